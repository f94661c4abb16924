/* attention.h: what attention is asked to compute, read from a call once for all back ends.
 *
 *   x[i, j] = scale q_i . k_j            where keep and, with causal, j <= i
 *             that + fill, or fill       elsewhere
 *   x += bias;   P = e^(x - max) / sum along each row;   Y = drop(P) V
 *
 * The leading axes of Q, K and V are heads: each is a problem of its own. The signatures stand in
 * onnx/tables/bodies_attention.def.
 */
#pragma once

#include "kernels/kernels.h"

EBB_C_BEGIN

typedef struct ebb_attention_mask { /* broadcast over [heads..., s, t] */
    int64_t stride[EBB_MAX_RANK];   /* elements; 0 along what it is broadcast over */
    bool single;                    /* one element for all */
} ebb_attention_mask;

typedef struct ebb_attention {
    int rank;                           /* of the scores, [heads..., s, t] */
    int64_t dims[EBB_MAX_RANK];         /* theirs */
    int64_t heads, s, t, d, e;          /* Q: [s, d], K: [t, d] or [d, t], V: [t, e] in each head */
    int64_t key_stride, feature_stride; /* of K within a head */
    double scale, fill, ratio;
    bool causal, replace, guard, drops;
    uint32_t threshold, stream, key; /* of dropout; key: the input that is it */
    int64_t run;                     /* of what it draws: kernels/draws.h */
    uint32_t y;                      /* of a gradient: the input that is the output; 0: none */
    ebb_attention_mask keep, bias;
    ebb_attention_mask result; /* y by the axes of the scores, of which it has all but the last */
} ebb_attention;

/* Reads shapes and attributes; the operands of a gradient begin at input 1. NULL: done, else why
 * the call is none that any kernel takes. */
const char *ebb_attention_read(ebb_attention *a, const ebb_call *call);

bool ebb_attention_is_grad(ebb_op op);
static inline uint32_t ebb_attention_first(ebb_op op) /* the input that is Q */
{
    return ebb_attention_is_grad(op) ? 1 : 0;
}

/* Where row i of a head begins in a mask. */
int64_t ebb_attention_row(const ebb_attention *a, const ebb_attention_mask *m, int64_t head,
                          int64_t i);

/* Flags of elements first .. first + count - 1 of the dropout over the scores: kept or not. */
void ebb_attention_kept(uint8_t *kept, const ebb_attention *a, const int64_t *key, int64_t first,
                        int64_t count);

EBB_C_END
