/* halves.h: float16 and bfloat16 as float32 and back, many at a time.
 *
 * Widening is exact; narrowing is to nearest, ties to even, and beyond the largest is infinity. The
 * bits are those of ebb_float_to_half() and ebb_float_to_bf16() (onnx/words/tensor.h), in loops
 * without branches, which become vector code.
 */
#ifndef EBB_KERNELS_HALVES_H
#define EBB_KERNELS_HALVES_H

#include "onnx/words/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* By threads. */
void ebb_widen(float *to, const void *from, ebb_dtype dtype, int64_t count);
void ebb_narrow(void *to, const float *from, ebb_dtype dtype, int64_t count);

/* By the thread that calls. */
void ebb_widen_here(float *to, const void *from, ebb_dtype dtype, int64_t count);
void ebb_narrow_here(void *to, const float *from, ebb_dtype dtype, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
