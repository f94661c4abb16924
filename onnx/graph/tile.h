/* tile.h: which operators can take an operand one tile of rows at a time.
 *
 * A tensor kept in a code is decoded for its reader. Decoded whole it would set the peak; so the
 * reader may ask for it by rows of axis 0, a tile at a time. That works where what the reader makes
 * of some rows does not depend on the others, or adds up over them:
 *
 *   dx = LayerNormalizationGrad(dy, x, ...)     rows of dx from rows of dy and x; dscale adds up
 *   dW = FusedMatMul(x, dy) {transA = 1}        adds up
 *   dW = ConvWeightGrad(dy, x)                  adds up over the images
 *   dx = BatchNormalizationGrad(dy, x, ...)     sums first, then rows of dx: two walks
 *
 * Node mark "ebb.stream" on the decoding node (trait DECODES): its output is never whole, its one
 * reader asks for tiles. Set by the stream pass, checked by verify, obeyed by the ruler and the
 * executor; other runtimes see an ordinary node.
 */
#pragma once

#include "onnx/tables/op.h"

enum { EBB_TILE_OPERANDS = 8 };

typedef enum ebb_tile_role {
    EBB_TILE_WHOLE, /* the same for every tile */
    EBB_TILE_ROWS,  /* axis 0 holds the rows */
    EBB_TILE_SUM,   /* outputs: adds up over the tiles */
} ebb_tile_role;

typedef struct ebb_tiling {
    bool two_walks; /* the SUM outputs are needed before the rows can be made */
    uint8_t in[EBB_TILE_OPERANDS], out[EBB_TILE_OPERANDS]; /* ebb_tile_role */
} ebb_tiling;

/* How an operator would take input `slot` by rows. types: NULL where an operand is absent. NULL, or
 * why it needs the operand whole: a literal. */
const char *ebb_tiling_find(ebb_tiling *tiling, ebb_op op, const ebb_attrs *attrs,
                            const ebb_type *const *in, uint32_t in_count,
                            const ebb_type *const *out, uint32_t out_count, uint32_t slot);
