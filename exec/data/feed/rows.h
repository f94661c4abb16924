/* rows.h: who gathers the rows of a batch, and where they go.
 *
 * There are two rooms for a batch. While the caller uses one, threads fill the other with the rows that
 * it announced; the next call for the same rows takes that one.
 */
#ifndef EBB_EXEC_DATA_ROWS_H
#define EBB_EXEC_DATA_ROWS_H

#include "exec/data/feed/feed.h"

#ifdef __cplusplus
extern "C" {
#endif

void ebb_reader_free(struct ebb_reader *reader); /* NULL is fine */

/* The feeds of the finished model, from now on; they are copied. */
ebb_status ebb_reader_bind(ebb_data *data, const ebb_feed *feeds, size_t count);

#ifdef __cplusplus
}
#endif
#endif
