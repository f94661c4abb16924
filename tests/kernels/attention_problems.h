/* attention_problems.h: attention of many shapes, masks and fills, for the tests of every back end.
 */
#pragma once

#include "tests/kernels/call.h"

typedef enum masking { OPEN, PADDED, EACH, SHUT } masking; /* keep: [], [b,1,1,t], [b,h,s,t] */

typedef struct problem {
    int64_t b, h, s, t, d, e;
    bool turned, causal, biased;
    masking keep;
    double fill;
    int replace, guard;
    double ratio; /* 0: without dropout */
} problem;

// clang-format off
static const problem problems[] = {
    {1, 1,   1,    1,  1,  1, false, false, false, OPEN,   -INFINITY,  0, 0, 0},
    {2, 3,   5,    7,  4,  6, true,  false, false, OPEN,   -INFINITY,  0, 0, 0},
    {2, 3, 197,  197, 64, 64, true,  false, false, OPEN,   -INFINITY,  0, 0, 0},
    {1, 2, 130,  130, 16, 40, false, true,  false, OPEN,   -INFINITY,  0, 0, 0},
    {2, 2,  70,   70, 16, 16, true,  true,  false, PADDED, -3.4028234663852886e38, 0, 0, 0.1},
    {2, 2,  70,   70, 16, 16, true,  true,  false, SHUT,   -3.4028234663852886e38, 0, 0, 0.1},
    {2, 2,  33,   65,  8,  8, false, false, false, SHUT,   -INFINITY,  0, 1, 0.2},
    {2, 2,  33,   65,  8,  8, true,  false, true,  EACH,   -1.5,       0, 0, 0.5},
    {2, 2,  40,   33,  8, 24, false, true,  true,  EACH,   -1.5,       1, 0, 0.3},
    {1, 1, 100,   20,  5,  3, true,  true,  false, PADDED, -10000,     1, 0, 0},
    {1, 2,  37, 1100,  9,  7, true,  false, false, PADDED, -INFINITY,  0, 0, 0.9},
    {1, 1,  20, 4200,  8,  8, false, false, true,  OPEN,   -INFINITY,  0, 0, 0},
};
// clang-format on

static inline void put_keep(testing *t, const problem *p)
{
    const int64_t dims[] = {p->b, p->keep == EACH ? p->h : 1, p->keep == EACH ? p->s : 1, p->t};
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, EBB_BOOL, p->keep == OPEN ? 0 : 4, dims);
    uint8_t *keep = o->data;
    for (size_t i = 0; i < count_of(o); i++) {
        int64_t j = (int64_t)i % p->t;
        bool last = (int64_t)i / p->t == p->b - 1; // the last of the batch sees nobody
        keep[i] = p->keep == OPEN     ? 1
                  : p->keep == EACH   ? draw(t) < 0.4
                  : p->keep == PADDED ? j < p->t - 1 - p->t / 3
                                      : !last && j > 3;
    }
}

static inline void put_attributes(testing *t, const problem *p)
{
    static const int64_t turned[] = {0, 1, 3, 2}, straight[] = {0, 1, 2, 3};
    put_ints(t, "k_perm", 4, p->turned ? turned : straight);
    put_float(t, "scale", 0.7);
    put_int(t, "causal", p->causal);
    put_float(t, "fill", p->fill);
    put_int(t, "replace", p->replace);
    put_int(t, "guard", p->guard);
    put_float(t, "ratio", p->ratio);
    put_int(t, "stream", 77);
}

/* Q, K, V, keep, bias. */
static inline void put_operands(testing *t, const problem *p, ebb_dtype dtype)
{
    const int64_t q[] = {p->b, p->h, p->s, p->d}, v[] = {p->b, p->h, p->t, p->e};
    const int64_t k[] = {p->b, p->h, p->turned ? p->t : p->d, p->turned ? p->d : p->t};
    const int64_t bias[] = {p->h, p->s, 1};
    put_in(t, dtype, 4, q);
    put_in(t, dtype, 4, k);
    put_in(t, dtype, 4, v);
    put_keep(t, p);
    ebb_operand *o = put_in(t, dtype, p->biased ? 3 : 0, bias);
    if (!p->biased)
        set_value(o, 0, 0);
}

static inline void put_key(testing *t, const problem *p)
{
    static const int64_t two[] = {2};
    if (p->ratio == 0)
        return;
    ebb_operand *o = put_in(t, EBB_I64, 1, two);
    ((int64_t *)o->data)[0] = 81985529216486895;
    ((int64_t *)o->data)[1] = 7;
}
