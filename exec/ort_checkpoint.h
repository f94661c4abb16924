/* ort_checkpoint.h: the `checkpoint` of ONNX Runtime's training artifacts, as named arrays. */
#ifndef EBB_EXEC_ORT_CHECKPOINT_H
#define EBB_EXEC_ORT_CHECKPOINT_H

#include "exec/data.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
