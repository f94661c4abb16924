/* checkpoint.h: safetensors out. */
#ifndef EBB_EXEC_DATA_CHECKPOINT_H
#define EBB_EXEC_DATA_CHECKPOINT_H

#include "onnx/words/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "F32"; NULL where the format has no name for it. */
const char *ebb_safetensors_dtype(ebb_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
