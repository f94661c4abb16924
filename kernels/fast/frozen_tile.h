/* frozen_tile.h: a product with a matrix in few bits, and the tile of it that a thread has decoded
 * (frozen.c multiplies, frozen_decode.c decodes).
 */
#pragma once

#include "kernels/call/linear_codes.h"
#include "kernels/fast/tile.h"

enum {
    EBB_PANEL_DEPTH = 512,  /* rows of a panel */
    EBB_PANEL_WIDEST = 256, /* columns of a tile: A is read once for all of them */
    /* scales of a tile: as many as rows, for LANES columns each */
    EBB_PANEL_GRID = (EBB_PANEL_DEPTH + 2) * (EBB_PANEL_WIDEST / EBB_TILE_LANES + 2),
};

typedef struct ebb_frozen_product {
    ebb_frozen_matrix m;
    const float *whole; /* numbers instead of codes, times alpha: of what is not in few bits */
    float alpha;
    float level[256];
    const float *a;
    float *y;
    int64_t rows, inner, columns;
    int64_t inner_group, column_group; /* neighbours that share a scale; all: INT64_MAX */
    int64_t width, parts;              /* of a job: columns; and the rows are in so many parts */
    int64_t *spared;                   /* products of two numbers that no thread made */
    bool quick;                        /* lanes can decode it */
} ebb_frozen_product;

typedef struct ebb_frozen_tile {
    const ebb_frozen_product *p;
    float *panels, *scales, *zeros, *ragged;
    int64_t column, columns, from, depth; /* of Y, and of what is summed over */
    int64_t grid_row;                     /* scales of one group of what is summed over */
} ebb_frozen_tile;

/* Fills `panels` with what is decoded, zeros behind its last column. */
void ebb_frozen_decode(ebb_frozen_tile *t);

/* Whether lanes can decode it: `quick`. */
bool ebb_frozen_lanes_can(const ebb_frozen_product *p);
