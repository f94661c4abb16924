/* ort_checkpoint.h: the `checkpoint` of ONNX Runtime's training artifacts, as named arrays; in and
 * out. */
#pragma once

#include "exec/data/data.h"

/* Whether these are the first bytes of such a file. */
bool ebb_ort_checkpoint_is(const unsigned char *bytes, size_t size);

/* Parameters by their names, the `*trained` trained ones first (NULL: nobody asks), then the frozen
 * ones; then, where a training run wrote them, the optimizer's states by the names that ebb gives
 * them: NAME.exp_avg and NAME.exp_avg_sq, ebb.step (int64) and ebb.lr (float32).
 * EBB_REJECTED with the byte where the file is not sound; arrays lie in the mapping. */
ebb_status ebb_ort_checkpoint_read(ebb_data *data, const char *path, size_t *trained);
/* From memory, which must outlive data. folder, name: where the file of outlying bytes, NAME.data,
 * is; folder NULL: nowhere. */
ebb_status ebb_ort_checkpoint_parse(ebb_data *data, const unsigned char *bytes, size_t size,
                                    const char *folder, const char *name, size_t *trained);

enum { EBB_ORT_MOMENTS = 2 };

typedef struct ebb_ort_checkpoint { /* what is to be written; all is borrowed */
    const ebb_named *trained, *frozen;
    size_t trained_count, frozen_count;
    bool has_optimizer; /* what follows stands in the file */
    int64_t step;       /* steps done */
    float rate;
    unsigned moment_count;                     /* of each trained parameter, in its order */
    const ebb_named *moments[EBB_ORT_MOMENTS]; /* their names are not written */
    const char *properties;                    /* a JSON object, or NULL */
    uint64_t external_above; /* tensors of so many bytes or more go to PATH.data; 0: none, unless
                                the file would pass 2 GiB */
} ebb_ort_checkpoint;

/* Atomically. EBB_USAGE: an array whose bytes are missing, or of less than 8 bits an element. */
ebb_status ebb_ort_checkpoint_write(const char *path, const ebb_ort_checkpoint *checkpoint);

/* ---- .onnx_adapter: values for inputs of a model, by name ---- */

#define EBB_ORT_ADAPTER_MARK "TORT"
enum { EBB_ORT_ADAPTER_VERSION = 1 };

ebb_status ebb_ort_adapter_read(ebb_data *data, const char *path);
/* From memory, which must outlive data. */
ebb_status ebb_ort_adapter_parse(ebb_data *data, const unsigned char *bytes, size_t size);
/* Atomically; errors are those of a checkpoint. */
ebb_status ebb_ort_adapter_write(const char *path, const ebb_named *list, size_t count);
