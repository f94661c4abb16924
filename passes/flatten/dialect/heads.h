/* heads.h: what the fused forms of attention share: the heads of one call, as they are found. */
#pragma once

#include "passes/flatten/dialect/dialect.h"

typedef struct ebb_heads {
    ebb_value q, k, v; /* [B, N, S, h], [B, heads of keys, T, h] */
    ebb_value bias;    /* added to the scores, or none */
    ebb_value past;    /* int64 [B, 1, 1, 1]: positions before the first query; none: T - S */
    double scale, cap;
    int64_t count, of_keys; /* heads of Q; of K and V, fewer where several share them */
    int64_t window;         /* keys that a query sees at most, with causal; 0: all before it */
    int64_t sinks;          /* so many keys at the end are seen by all queries */
    bool causal;
} ebb_heads;

/* ---- attention.c ---- */

/* [B, S, N h] -> [B, N, S, h], and back. */
ebb_value ebb_heads_apart(ebb_build *b, ebb_value x, int64_t count);
ebb_value ebb_heads_together(ebb_build *b, ebb_value x);

/* Q, K and V of rows, [B, S, N h], apart in h. */
void ebb_heads_take(ebb_build *b, ebb_heads *h, const ebb_value part[3]);

/* X weights + bias of inputs 0, 1 and 2 as Q, K and V, parts along `axis`: thirds, or as qkv_hidden_sizes says.
 * False: declined. */
bool ebb_heads_project(ebb_build *b, ebb_foreign *f, int axis, ebb_value part[3]);

/* [B, K, T, h] -> [B, N, T, h]: heads of keys that N / K heads of queries share. */
ebb_value ebb_heads_shared(ebb_build *b, const ebb_heads *h, ebb_value x);

/* The lowest number of `like`'s dtype that is no infinity. */
double ebb_heads_lowest(const ebb_build *b, ebb_value like);

/* [B, 1, 1, T]: `hidden` for keys from each row's length, lengths [B], on; else 0. */
ebb_value ebb_heads_bias_of_lengths(ebb_build *b, ebb_foreign *f, ebb_value lengths, int64_t t,
                                    ebb_dtype dtype, double hidden);

/* The size along the last axis, or -1. */
int64_t ebb_heads_last_dim(const ebb_build *b, ebb_value x);

/* Whether the call has one of the inputs `from` .. `to`, which only generation has: then it is declined. */
bool ebb_heads_generates(ebb_foreign *f, uint32_t from, uint32_t to);

/* softmax(scale Q K^T + bias) V, as [B, S, N h]; none where the call is declined. */
ebb_value ebb_heads_attend(ebb_build *b, ebb_foreign *f, ebb_heads *h);

/* ---- cache.c ---- */

/* K and V behind a past of theirs, [B, N, P, h] (none: they stay), of which `filled` positions
 * count (none: all). y[1] and y[2]: what they are then, or the buffers. */
void ebb_heads_append(ebb_build *b, ebb_foreign *f, ebb_heads *h, ebb_value past_k,
                      ebb_value past_v, ebb_value filled);
/* The same for a past of both, [2, B, N, P, h]; y[1], where wanted, is both as one. */
void ebb_heads_pair(ebb_build *b, ebb_foreign *f, ebb_heads *h, ebb_value past, ebb_value filled);

/* For GroupQueryAttention, whose rows each have a past of their own length: fills h->past where the
 * call has a past, and gives the positions of the `length` queries, [B, length]; else none. */
ebb_value ebb_heads_places(ebb_build *b, ebb_foreign *f, ebb_heads *h, int64_t length);
/* Then K and V of `length` positions go there behind the past. */
void ebb_heads_insert(ebb_build *b, ebb_foreign *f, ebb_heads *h, int64_t length);

/* bool [B, 1, S, T]: whether a query, behind h->past, sees a key. */
ebb_value ebb_heads_seen_from(ebb_build *b, ebb_foreign *f, const ebb_heads *h, int64_t s,
                              int64_t t);
