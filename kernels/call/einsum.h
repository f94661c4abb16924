/* einsum.h: what a call of Einsum says, read and checked once for all back ends. */
#ifndef EBB_KERNELS_CALL_EINSUM_H
#define EBB_KERNELS_CALL_EINSUM_H

#include "kernels/kernels.h"
#include "onnx/words/einsum.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills *e by the call's equation and inputs; NULL where these and the output fit each other, else
 * why not. */
const char *ebb_einsum_misfit(ebb_einsum *e, const ebb_call *c);

#ifdef __cplusplus
}
#endif
#endif
