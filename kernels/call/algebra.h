/* algebra.h: what calls of Einsum, Det and its gradient, Inverse, TfIdfVectorizer and RandomSketch say, read and checked
 * once for all back ends.
 */
#pragma once

#include "kernels/kernels.h"
#include "kernels/math/philox.h"
#include "onnx/words/einsum.h"

EBB_C_BEGIN

/* Fills *e by the call's equation and inputs; NULL where these and the output fit each other, else
 * why not. */
const char *ebb_einsum_call_read(ebb_einsum *e, const ebb_call *c);

/* Sides of the matrices of Det or of DetGrad, and how many there are; a sentence where they are
 * none. */
const char *ebb_det_read(int64_t *n, int64_t *count, const ebb_call *c);

/* The same of Inverse. */
const char *ebb_inverse_read(int64_t *n, int64_t *count, const ebb_call *c);

/* ---- TfIdfVectorizer ----
 *
 *     pool_int64s    2 3 5 4 | 5 6 7 8 6 7      ngram_counts 0 4: four words, then three pairs
 *     ngram_indexes  0 1 2 3   4   5   6        which column of Y counts each
 */

typedef struct ebb_gram_pool { /* n-grams one after the other, those of one length together */
    const int64_t *starts, *index, *words;
    const float *weights; /* one for each entry of index; NULL: 1 */
    uint32_t lengths, grams, size;
    int64_t shortest, longest, skip;
} ebb_gram_pool;

typedef enum ebb_gram_mode { EBB_GRAM_TF, EBB_GRAM_IDF, EBB_GRAM_TFIDF } ebb_gram_mode;

/* Fills *p with attributes of the call, which must outlive it; NULL where these and the operands
 * fit each other, else why not. */
const char *ebb_gram_pool_read(ebb_gram_pool *p, const ebb_call *c);

ebb_gram_mode ebb_gram_mode_of(const ebb_call *c);

/* Where the n-grams of n words end in the pool; they begin at starts[n - 1]. */
static inline int64_t ebb_grams_end(const ebb_gram_pool *p, int64_t n)
{
    return n < (int64_t)p->lengths ? p->starts[n] : (int64_t)p->size;
}

/* ---- RandomSketch: row r of S takes words r * width .. of Philox, one bit a sign, the lowest first ---- */

typedef struct ebb_sketch { /* Y [rows, d] = S [rows, n] X [n, d] */
    int64_t n, d, rows;
    int64_t width; /* words of a row of S */
    double scale;  /* 1 / sqrt(rows) */
    uint64_t seed, step;
    uint32_t stream;
} ebb_sketch;

/* Why these are no operands of RandomSketch, or NULL. The key is read by ebb_sketch_key. */
const char *ebb_sketch_read(ebb_sketch *s, const ebb_call *c);
const char *ebb_sketch_misfit(const ebb_call *c);

static inline void ebb_sketch_key(ebb_sketch *s, const ebb_call *c)
{
    const int64_t *key = (const int64_t *)c->in[1].data;
    s->seed = (uint64_t)key[0];
    s->step = (uint64_t)key[1];
}

EBB_BOTH uint32_t ebb_sketch_word(const ebb_sketch *s, int64_t row, int64_t i)
{
    uint64_t at = (uint64_t)(row * s->width + i);
    return ebb_philox_block(s->seed, s->step, s->stream, at / 4).word[at % 4];
}

EBB_C_END
