/* heads.h: what calls of Attention, FlexAttention, LinearAttention, CausalConvWithState and
 * RotaryEmbedding say, read and checked once for all back ends.
 *
 * Each NAME_misfit gives NULL where shapes and attributes fit each other, else why not; dtypes of
 * floats are the back end's to check. NAME_read is for calls that fit.
 */
#pragma once

#include "kernels/math/words.h"
#include "kernels/kernels.h"

EBB_C_BEGIN

/* ---- Attention ---- */

typedef struct ebb_tokens { /* where the rows of a head lie: past ones, then new ones */
    const void *past, *now;
    int64_t heads, size, before, length;
    bool packed; /* [batch, length, heads size] */
} ebb_tokens;

typedef struct ebb_heads {
    ebb_tokens q, k, v;
    int64_t batch, total;
    double scale, cap;
    bool causal;
    int64_t mode;
    const void *mask; /* or NULL; of bools, or of floats that are added */
    bool mask_is_bool;
    int64_t mask_stride[4], mask_length; /* and how many keys it covers */
    const int64_t *lengths; /* of keys that are there, for each of the batch; or NULL */
} ebb_heads;

/* Elements from the start of `now` or `past` to the row of token j of head h. */
EBB_BOTH int64_t ebb_token_row(const ebb_tokens *s, int64_t b, int64_t h, int64_t j)
{
    if (j < s->before)
        return ((b * s->heads + h) * s->before + j) * s->size;
    int64_t i = j - s->before;
    return s->packed ? ((b * s->length + i) * s->heads + h) * s->size
                     : ((b * s->heads + h) * s->length + i) * s->size;
}

ebb_heads ebb_heads_read(const ebb_call *c);

/* ---- LinearAttention ---- */

typedef struct ebb_linear_attention {
    int64_t batch, length, q_heads, heads, key, value;
    double scale;
    bool decays, delta, decay_by_key, one_beta;
    const void *in[6]; /* query, key, value, past state, decay, beta; NULL: not there */
    void *y;           /* NULL: not wanted */
} ebb_linear_attention;

ebb_linear_attention ebb_linear_read(const ebb_call *c);

/* Its gradient, in spans of tokens: kernels/math/linear_attention.inc. */
enum {
    EBB_LINEAR_DY,
    EBB_LINEAR_DSTATE,
    EBB_LINEAR_QUERY,
    EBB_LINEAR_KEY,
    EBB_LINEAR_VALUE,
    EBB_LINEAR_STATE,
    EBB_LINEAR_DECAY,
    EBB_LINEAR_BETA,
    EBB_LINEAR_INPUTS,
};
enum {
    EBB_LINEAR_DQUERY,
    EBB_LINEAR_DKEY,
    EBB_LINEAR_DVALUE,
    EBB_LINEAR_DSTATE_0,
    EBB_LINEAR_DDECAY,
    EBB_LINEAR_DBETA,
    EBB_LINEAR_OUTPUTS,
};

typedef struct ebb_linear_back {
    int64_t batch, length, q_heads, heads, key, value, span, spans;
    bool delta;
    const ebb_operand *operands;       /* the call's inputs; for the host */
    const void *in[EBB_LINEAR_INPUTS]; /* and where they lie */
    const ebb_operand *results;        /* outputs; for the host */
    void *out[EBB_LINEAR_OUTPUTS];     /* NULL: not wanted */
} ebb_linear_back;

ebb_linear_back ebb_linear_back_read(const ebb_call *c);
const char *ebb_linear_back_misfit(const ebb_call *c);
/* Numbers that a head needs; 0: too many, or none. */
size_t ebb_linear_back_size(const ebb_linear_back *r);

/* ---- CausalConvWithState ---- */

typedef struct ebb_causal {
    int64_t channels, length, taps, rows; /* rows: channels of all the batch */
    bool silu;
    const void *x, *w, *bias, *past; /* bias, past: or NULL */
    void *y, *next;                  /* NULL: not wanted */
} ebb_causal;

ebb_causal ebb_causal_read(const ebb_call *c);

/* ---- RotaryEmbedding ---- */

typedef struct ebb_rotation {
    int64_t batch, heads, length, size, turned; /* the first `turned` of a head's elements turn */
    bool packed, interleaved;
    const void *cosine, *sine;
    const int64_t *positions; /* or NULL: each token has a row of its own in the caches */
} ebb_rotation;

ebb_rotation ebb_rotation_read(const ebb_call *c);

/* The misfit of any operator of this file, by the call's. */
const char *ebb_any_heads_misfit(const ebb_call *c);

EBB_C_END
