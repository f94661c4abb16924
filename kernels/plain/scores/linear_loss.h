/* linear_loss.h: what the kernels of ai.ebb.LinearCrossEntropy share: sizes, blocks, workspace.
 *
 * One sweep over blocks of `block` rows. Only one block of scores exists, in the workspace:
 *
 *   workspace:  | scores [block, C], then their gradient | loss of each row, double [block] |
 */
#pragma once

#include "kernels/call/linear_loss.h"
#include "kernels/plain/indices.h"

typedef struct ebb_linear_loss {
    int64_t rows, inner, classes, block; /* as kernels/call/linear_loss.h has them */
    bool turned, mean;
    double alpha;
    ebb_labels labels;
    const void *x, *w, *bias, *weights; /* bias, weights: NULL where absent */
    void *dx, *dw, *dbias;              /* NULL where nobody wants them */
    void *scores;
    double *each;    /* the loss of each row of a block */
    int64_t *picked; /* the rows of a block; NULL: they lie together */
} ebb_linear_loss;

/* All but pointers and labels. */
void ebb_linear_loss_sizes(const ebb_call *c, ebb_linear_loss *l);
ebb_status ebb_linear_loss_workspace(const ebb_call *c, size_t *bytes);

/* Sizes, pointers and labels; each label is checked. */
ebb_status ebb_linear_loss_begin(const ebb_call *c, ebb_linear_loss *l);
