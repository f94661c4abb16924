/* heads.h: what kernels of ONNX's Attention share. */
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/call/heads.h"

EBB_C_BEGIN

/* to [batch, heads, past and new, size] = tokens of the past, and new ones behind them. */
ebb_status ebb_cuda_heads_keep(const ebb_call *c, const ebb_heads *p, const ebb_tokens *from,
                               void *to);

EBB_C_END
