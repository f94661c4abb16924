/* attention_mask.h: masks of attention as a library takes them, which has none of single keys: a
 * bias that is added to the scores, and what becomes of rows that see no key at all.
 *
 *     keep, bias  ->  b[.., j] = bias, where keep is true; else the lowest there is of bfloat16
 *     rows        ->  alive[i]: is there a key whose score is not -infinity?
 *     afterwards      a row that sees none: 0 with `guard`, else no number, forward and backward
 *
 * So the library meets no -infinity but its own of causality, and no row without a key.
 *
 * Of the statistics of a row the gradient of a library wants one number, max + log sum: then P is
 * e^(x - it). A row that is guarded and has no sum has +infinity there: P = 0.
 */
#pragma once

#include "kernels/call/attention.h"
#include "kernels/cuda/cuda.h"
#include "kernels/call/heads.h"

EBB_C_BEGIN

typedef struct ebb_cuda_masking {
    /* Batches, heads and rows of the whole; of the bias that is made, 1 where all are alike. */
    int64_t dims[3], bias_dims[3];
    int64_t rows; /* of `alive`: as of the bias, or all with causal */
    int64_t keys;
    int64_t given;  /* keys that keep and bias cover: those behind are left out */
    int64_t before; /* keys before the first query's own, for causality that is folded */
    int64_t keep_stride[4], bias_stride[4]; /* of what is given, by batch, head, row, key */
    float fill;                             /* added where keep is false */
    bool folds;                             /* keys of the future are lowered as well */
    bool causal; /* the library leaves them out: they keep no row alive */
    bool dies;   /* there may be rows without a key */
    bool guard;
    bool wide;   /* beside float16 the bias is float32: it has no number that is low enough */
    bool packed; /* rows of a result lie as [batch, row, head] */
} ebb_cuda_masking;

/* Of the operands Q, K, V, keep, bias. *is_masked false: causality is all there is, and *m is
 * clear. Or why no library's bias says the same. */
const char *ebb_cuda_masking_read(ebb_cuda_masking *m, bool *is_masked, const ebb_attention *a,
                                  const ebb_operand *operands);
/* Of a call of ONNX's Attention that was read, whose floats are of the dtype. */
const char *ebb_cuda_masking_of_heads(ebb_cuda_masking *m, bool *is_masked, const ebb_heads *h,
                                      const ebb_call *c, uint8_t dtype);
/* Of the bias that is made. */
static inline size_t ebb_cuda_masking_bytes(const ebb_cuda_masking *m)
{
    return (size_t)(m->bias_dims[0] * m->bias_dims[1] * m->bias_dims[2] * m->keys) *
           (m->wide ? sizeof(float) : sizeof(uint16_t));
}

/* keep, bias: or NULL; lengths: NULL, or how many keys each of the batch has. bfloat16, or
 * float32 where it is wide, [bias_dims, keys]; and bytes [bias_dims[0], bias_dims[1], rows], NULL
 * where none dies.
 */
ebb_status ebb_cuda_masking_make(const ebb_call *c, const ebb_cuda_masking *m, const void *keep,
                                 const void *bias, const int64_t *lengths, void *to, void *alive);
/* Of rows that see no key: y [dims, columns] in 16 bits, max and sum in float32 where not NULL. */
ebb_status ebb_cuda_masking_settle(const ebb_call *c, const ebb_cuda_masking *m, const void *alive,
                                   void *y, int64_t columns, void *max, void *sum);

/* Which scores a dropout keeps, 1 or 0 in float16 or bfloat16, row-major: of count heads of a, from
 * head `first` on. key: int64[2] on the device. */
ebb_status ebb_cuda_masking_kept(const ebb_call *c, const ebb_attention *a, const void *key,
                                 ebb_dtype dtype, int64_t first, int64_t count, void *to);

/* That one number, float32 as they are, of so many rows. */
ebb_status ebb_cuda_masking_log_sums(const ebb_call *c, const void *max, const void *sum,
                                     bool guard, void *to, int64_t rows);

EBB_C_END
