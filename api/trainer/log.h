/* log.h: what a training writes beside its results: one record a step, and what was evaluated after
 * it, into any number of files. Of a file that is there a resumed run keeps the steps that it goes on
 * from.
 */
#pragma once

#include "ebb.h"
#include "onnx/words/status.h"

typedef struct ebb_record {
    int64_t step, epoch, step_ns;
    double loss, rate, epoch_loss;  /* NaN: none; the mean at the end of an epoch alone */
    double rows_per_second;         /* the same */
    const ebb_evaluator *evaluator; /* which has just run; or NULL */
} ebb_record;

typedef struct ebb_logs ebb_logs;

/* paths: NULL-terminated, or NULL. The evaluator, or NULL, names the metrics. resumed_at: steps that
 * are kept; -1: none, the file begins. */
ebb_status ebb_logs_open(ebb_logs **logs, const char *const *paths, const ebb_evaluator *evaluator,
                         int64_t resumed_at);
ebb_status ebb_logs_add(ebb_logs *logs, const ebb_record *record);
void ebb_logs_close(ebb_logs *logs); /* NULL is fine */

/* ---- events.c: files that TensorBoard reads: records of protobuf, each between checksums ---- */

typedef struct ebb_tag {
    const char *name;
    double value;
} ebb_tag;

uint32_t ebb_crc32c(const void *bytes, size_t count);
/* length, checksum of it, bytes, checksum of those: 16 more than count. */
size_t ebb_event_frame(uint8_t *out, const void *bytes, size_t count);
/* A framed event of these numbers, for ebb_free. tags NULL: the first of a file, or, with a step above 0,
 * the second, which says that later steps of earlier files do not count. */
ebb_status ebb_event_make(uint8_t **out, size_t *bytes, double seconds, int64_t step,
                          const ebb_tag *tags, size_t count);
