/* linear_loss.h: what a call of ai.ebb.LinearCrossEntropy says.
 *
 *   (x, w, bias?, target, weights?) -> loss, dx?, dw?, dbias?
 *
 *   x: [N rows, K], w: [K, C] or, with transB, [C, K]; scores = alpha x w + bias: [N, C]
 */
#pragma once

#include "kernels/operand.h"

EBB_C_BEGIN

typedef struct ebb_linear_sizes {
    int64_t rows, inner, classes; /* N, K, C */
    int64_t block; /* rows that are computed at once; the last block may have fewer */
    bool turned;   /* w is [C, K] */
    bool mean;
    double alpha;
} ebb_linear_sizes;

ebb_linear_sizes ebb_linear_loss_read(const ebb_call *c);
/* NULL, or why shapes, labels and the reduction do not fit. */
const char *ebb_linear_loss_misfit(const ebb_call *c);

EBB_C_END
