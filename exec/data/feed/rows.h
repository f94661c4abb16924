/* rows.h: who gathers the rows of a batch, and where they go.
 *
 * There are two rooms for a batch. While the caller uses one, threads fill the other with the rows that
 * it announced; the next call for the same rows takes that one.
 */
#pragma once

#include "exec/data/feed/feed.h"

void ebb_reader_free(struct ebb_reader *reader); /* NULL is fine */

/* The feeds of the finished model, from now on; they are copied. */
ebb_status ebb_reader_bind(ebb_data *data, const ebb_feed *feeds, size_t count);
