/* sketch.h: the random signs of RandomSketch, and its call, for all back ends.
 *
 * Row r of S takes words r * width .. of Philox, one bit a sign, the lowest first.
 */
#ifndef EBB_KERNELS_CALL_SKETCH_H
#define EBB_KERNELS_CALL_SKETCH_H

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/math/philox.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_sketch { /* Y [rows, d] = S [rows, n] X [n, d] */
    int64_t n, d, rows;
    int64_t width; /* words of a row of S */
    double scale;  /* 1 / sqrt(rows) */
    uint64_t seed, step;
    uint32_t stream;
} ebb_sketch;

/* Why these are no operands of RandomSketch, or NULL. The key is read by ebb_sketch_key. */
static inline const char *ebb_sketch_read(ebb_sketch *s, const ebb_call *c)
{
    if (c->input_count < 2 || c->in[0].type.rank != 2 || c->out[0].type.rank != 2)
        return "its operands are no matrices";
    if (c->in[1].type.dtype != EBB_I64 || c->in[1].type.rank != 1 || c->in[1].type.dims[0] != 2)
        return "the key is not int64[2]";
    memset(s, 0, sizeof *s);
    s->n = c->in[0].type.dims[0];
    s->d = c->in[0].type.dims[1];
    s->rows = ebb_attr_int(&c->attrs, "rows", 1);
    s->width = (s->n + 31) / 32;
    if (s->rows < 1 || c->out[0].type.dims[0] != s->rows || c->out[0].type.dims[1] != s->d)
        return "the result does not have the rows that it says, or another width than the input";
    if (s->n > INT32_MAX || s->rows > INT32_MAX)
        return "too many rows";
    s->scale = 1.0 / sqrt((double)s->rows);
    s->stream = (uint32_t)ebb_attr_int(&c->attrs, "stream", 0);
    return NULL;
}

static inline void ebb_sketch_key(ebb_sketch *s, const ebb_call *c)
{
    const int64_t *key = (const int64_t *)c->in[1].data;
    s->seed = (uint64_t)key[0];
    s->step = (uint64_t)key[1];
}

EBB_PHILOX uint32_t ebb_sketch_word(const ebb_sketch *s, int64_t row, int64_t i)
{
    uint64_t at = (uint64_t)(row * s->width + i);
    return ebb_philox_block(s->seed, s->step, s->stream, at / 4).word[at % 4];
}

#ifdef __cplusplus
}
#endif
#endif
