/* head.h: one head of attention.c, and its masks (masks.c). */
#pragma once

#include "kernels/call/attention.h"
#include "kernels/fast/fast.h"
#include "kernels/plain/halves.h"

typedef struct ebb_attention_layout { /* of a slot: offsets in floats */
    int64_t rows;                     /* of a tile */
    int64_t step;                     /* between rows of x and g */
    int64_t dp, ep;                   /* d and e in whole panels */
    int64_t x, g, scaled, kt, k, vt, v, q, dy, out, dk, dv, part, kept;
    int64_t wide, bias; /* of 16 bits as float32: keys, or rows of Q and dY behind them; a row */
    int64_t narrow;     /* x or g as pairs */
    int64_t size;
} ebb_attention_layout;

typedef struct
    ebb_attention_head { /* one head's problem; inputs and outputs begin at its first row */
    const ebb_attention *a;
    const ebb_call *call;
    const ebb_attention_layout *l;
    float *memory; /* the slot */
    int64_t index;
    ebb_dtype dtype; /* of what is a void pointer */
    bool pairs;      /* products are of pairs of bfloat16, as tile.h has them */
    const void *q, *k, *v, *dy, *bias;
    void *y, *dq, *dk, *dv;
    const float *max, *sum;
    float *max_out, *sum_out;
    const uint8_t *keep;
    const int64_t *key;
    bool biased, all_kept; /* there is a bias other than 0; keep is true everywhere */
    bool may_skip;         /* masked keys have probability 0 beside any other */
} ebb_attention_head;

/* Elements at .. at + n of an operand; of 16 bits in the buffer. */
static inline const float *ebb_attention_look(const ebb_attention_head *h, const void *operand,
                                              int64_t at, int64_t n, int64_t buffer)
{
    return ebb_look_f32(operand, h->dtype, at, n, h->memory + buffer);
}

/* ---- masks.c ---- */

/* How many keys are to be computed for rows first .. end - 1: those up to the last that one of them
 * may see; all where a row may see none, since then masked keys share its probability. */
int64_t ebb_attention_keys(const ebb_attention_head *h, int64_t first, int64_t end);
/* Products into scores, of row i and n keys: mask and bias. */
void ebb_attention_mask_row(const ebb_attention_head *h, float *x, int64_t i, int64_t n);
/* Where fill took a score's place, no gradient goes on to it. */
void ebb_attention_cut_row(const ebb_attention_head *h, float *ds, int64_t i, int64_t n);
/* Which of them dropout keeps: in the slot's memory. */
const uint8_t *ebb_attention_draw_row(const ebb_attention_head *h, int64_t i, int64_t n);
