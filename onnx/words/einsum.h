/* einsum.h: an Einsum equation against the shapes of its inputs. */
#pragma once

#include "onnx/words/tensor.h"

EBB_C_BEGIN

enum { EBB_EINSUM_INPUTS = 16, EBB_EINSUM_LABELS = 64 };

typedef struct ebb_einsum {
    uint32_t inputs;
    int labels; /* 0 .. out_rank-1 are the output's dims, the rest is summed over */
    int out_rank;
    int64_t size[EBB_EINSUM_LABELS];               /* -1: unknown */
    int8_t label[EBB_EINSUM_INPUTS][EBB_MAX_RANK]; /* of each dim of each input */
} ebb_einsum;

/* "ij, jk -> ik", with "..." for dims that broadcast, and without an arrow for the labels that
 * stand once, in their order. Ranks must be known. A sentence where the equation is wrong or does
 * not fit, else NULL. */
const char *ebb_einsum_read(ebb_einsum *e, const char *equation, uint32_t inputs,
                            const ebb_type *const *types);

EBB_C_END
