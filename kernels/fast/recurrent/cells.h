/* cells.h: the formulas of recurrent.c's cells, one step of one sequence, EBB_TILE_COLUMNS columns at most.
 *
 * A step's sums have a row of `parts` for each sequence, H columns a part: those of the gates of W, in their
 * order, and behind them what a cell keeps beside (a GRU: r times it is in n). Numbers of the call are float32 or
 * bfloat16, all else is float32.
 */
#pragma once

#include "kernels/call/recurrent.h"

enum { EBB_MOST_PARTS = 4 };

/* Pointers at the first of the columns; parts of x, bias and da are `apart` elements from each other, parts of
 * fed EBB_TILE_COLUMNS. */
typedef struct ebb_cell_forward {
    int64_t apart;
    const float *x,
        *bias;        /* x W' and what the bias adds to it; bias: for the parts behind the gates */
    const float *fed; /* h R', by gates */
    float *state;     /* LSTM: c; GRU: h in float32 */
    void *h;          /* behind the step */
    void *c, *gates;  /* LSTM, of the call: the same c; after their activations, `kept` elements
                              from each other */
    int64_t kept;
} ebb_cell_forward;

typedef struct ebb_cell_backward {
    int64_t apart;
    const float *sums;        /* before the activations, where the cell makes them again */
    const void *gates;        /* LSTM: after their activations, `apart` elements from each other */
    const float *fed;         /* da R of the step behind */
    float *dh;                /* what else arrives at h; becomes what passes by the products */
    float *dc;                /* LSTM */
    const void *dy;           /* what arrives at this step's h alone */
    const void *now, *before; /* LSTM: c; else h; behind the step and before it */
    void *da;                 /* the gradients before the activations */
} ebb_cell_backward;

typedef struct ebb_cell_formulas {
    int parts, gates;
    int8_t fed[EBB_MOST_PARTS]; /* the part to which h R' of a gate goes */
    bool again;                 /* its gradient makes the sums again, from all h */
    void (*forward[2])(const ebb_cell_forward *, int64_t columns); /* float32, bfloat16 */
    void (*backward[2])(const ebb_cell_backward *, int64_t columns);
} ebb_cell_formulas;

extern const ebb_cell_formulas ebb_cell_formulas_of[]; /* by ebb_cell */
