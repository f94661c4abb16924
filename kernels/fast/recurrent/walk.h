/* walk.h, of recurrent.c: a call's sizes, where its operands lie, and what both ways share. */
#pragma once

#include "kernels/fast/fast.h"
#include "kernels/fast/product.h"
#include "kernels/fast/recurrent/cells.h"
#include "kernels/fast/tile.h"
#include "kernels/plain/halves.h"

typedef struct ebb_walk { /* one direction of a call */
    const ebb_call *call;
    const ebb_cell_formulas *cell;
    ebb_recurrent s;
    bool half;
    int64_t d, wide; /* of a row of all parts */
    int64_t steps;   /* of X at once */
    int64_t panels;  /* of columns of h */
    ebb_product dx, dw;
    size_t sums, da, bias, h, state, dh, before, weights, products, bytes; /* in the workspace */
} ebb_walk;

/* Neighbouring gates of R whose parts are neighbours, too. */
typedef struct ebb_walk_run {
    int64_t gate, count, part;
} ebb_walk_run;

/* Why the call is not for these kernels, or NULL. */
const char *ebb_walk_read(ebb_walk *w, const ebb_call *call);

/* sums = X W' + b and sums += h before times R' of a run, for so many steps; dR of a run. */
ebb_product ebb_walk_product_of_x(const ebb_walk *w, int64_t steps);
ebb_product ebb_walk_product_of_h(const ebb_walk *w, const ebb_walk_run *r, int64_t steps);
ebb_product ebb_walk_product_of_dr(const ebb_walk *w, const ebb_walk_run *r);

static inline size_t ebb_walk_size(const ebb_walk *w)
{
    return w->half ? sizeof(uint16_t) : sizeof(float);
}

static inline ebb_dtype ebb_walk_dtype(const ebb_walk *w)
{
    return w->half ? EBB_BF16 : EBB_F32;
}

/* Numbers along k of a product that stand for one float: pairs of bfloat16. */
static inline int64_t ebb_walk_unit(const ebb_walk *w)
{
    return w->half ? 2 : 1;
}

/* Numbers of the call's dtype, from element i on; NULL stays NULL. */
static inline void *ebb_walk_from(const ebb_walk *w, const void *data, int64_t i)
{
    return data == NULL ? NULL : (char *)(uintptr_t)data + (size_t)i * ebb_walk_size(w);
}

static inline void *ebb_walk_input(const ebb_walk *w, int slot)
{
    return slot >= 0 && ebb_dnnl_has(w->call, (uint32_t)slot) ? w->call->in[slot].data : NULL;
}

static inline void *ebb_walk_output(const ebb_walk *w, uint32_t o)
{
    return ebb_call_wants(w->call, o) ? w->call->out[o].data : NULL;
}

static inline void *ebb_walk_scratch(const ebb_walk *w, size_t at)
{
    return (char *)w->call->workspace + at;
}

static inline float *ebb_walk_floats(const ebb_walk *w, size_t at)
{
    return ebb_walk_scratch(w, at);
}

/* This direction's part of W or R, [GH, columns]. */
static inline void *ebb_walk_weights(const ebb_walk *w, int slot, int64_t columns)
{
    return ebb_walk_from(w, ebb_walk_input(w, slot), w->d * w->s.gates * w->s.hidden * columns);
}

/* W's gates are one run; so are R's, but for one of a GRU. */
static inline bool ebb_walk_next_run(const ebb_walk *w, ebb_walk_run *r)
{
    const int8_t *parts = w->cell->fed;
    r->gate += r->count;
    if (r->gate == w->s.gates)
        return false;
    r->part = parts[r->gate];
    for (r->count = 1; r->gate + r->count < w->s.gates; r->count++)
        if (parts[r->gate + r->count] != r->part + r->count)
            break;
    return true;
}
