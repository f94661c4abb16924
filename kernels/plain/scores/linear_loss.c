/* linear_loss.c: LinearCrossEntropy: a linear layer, softmax cross-entropy and the gradients of
 * both, by blocks of rows.
 *
 * As many products as the step without it has: of each block the scores are made once, turned into
 * their gradient in place, and used up. What the mean divides by is counted before the sweep, so
 * that gradients need no second one. The gradients are those for a loss gradient of 1.
 */
#include "kernels/plain/scores/linear_loss.h"
#include "kernels/plain/vmath.h"

#include <string.h>

typedef struct products { /* [m, k] x [k, n] */
    int64_t m, n, k, a_row, a_column, b_row, b_column;
    double alpha;
} products;

#define LOOPS "kernels/plain/scores/linear_loss_loops.inc"
#include "kernels/plain/both_floats.inc"

enum { X, W, BIAS, TARGET, WEIGHTS };
enum { LOSS, DX, DW, DBIAS };

void ebb_linear_loss_sizes(const ebb_call *c, ebb_linear_loss *l)
{
    const ebb_linear_sizes s = ebb_linear_loss_read(c);
    *l = (ebb_linear_loss){.rows = s.rows,
                           .inner = s.inner,
                           .classes = s.classes,
                           .block = s.block,
                           .turned = s.turned,
                           .mean = s.mean,
                           .alpha = s.alpha};
}

ebb_status ebb_linear_loss_workspace(const ebb_call *c, size_t *bytes)
{
    ebb_linear_loss l;
    size_t elements, each;
    ebb_linear_loss_sizes(c, &l);
    if (!ebb_size_mul(&elements, (size_t)l.block, (size_t)l.classes) ||
        !ebb_size_mul(bytes, elements, ebb_element_bytes(&c->in[X].type)) ||
        !ebb_size_mul(&each, (size_t)l.block + 8, sizeof(double)) || // 8: so that it is aligned
        !ebb_size_add(bytes, *bytes, each))
        return ebb_call_error(c, "a block of its scores is too large");
    return NULL;
}

ebb_status ebb_linear_loss_begin(const ebb_call *c, ebb_linear_loss *l)
{
    ebb_linear_loss_sizes(c, l);
    EBB_TRY(ebb_labels_read(c, &c->in[TARGET], l->classes, &l->labels));
    l->x = c->in[X].data;
    l->w = c->in[W].data;
    l->bias = ebb_call_has(c, BIAS) ? c->in[BIAS].data : NULL;
    l->weights = ebb_call_has(c, WEIGHTS) ? c->in[WEIGHTS].data : NULL;
    l->dx = ebb_call_wants(c, DX) ? c->out[DX].data : NULL;
    l->dw = ebb_call_wants(c, DW) ? c->out[DW].data : NULL;
    l->dbias = ebb_call_wants(c, DBIAS) ? c->out[DBIAS].data : NULL;
    size_t bytes = (size_t)(l->block * l->classes) * ebb_element_bytes(&c->in[X].type);
    l->scores = c->workspace;
    l->each = (double *)((char *)c->workspace + (bytes + 63) / 64 * 64);
    // what no block will reach
    if (l->rows == 0 && l->dw != NULL)
        memset(l->dw, 0, c->out[DW].bytes);
    if (l->rows == 0 && l->dbias != NULL)
        memset(l->dbias, 0, c->out[DBIAS].bytes);
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_linear_loss l;
    EBB_TRY(ebb_linear_loss_begin(c, &l));
    double loss = EBB_BY_FLOAT(c->in[X], sweep, &l);
    if (!ebb_call_wants(c, LOSS))
        return NULL;
    if (c->in[X].type.dtype == EBB_F64)
        *(double *)c->out[LOSS].data = loss;
    else
        *(float *)c->out[LOSS].data = (float)loss;
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_linear_loss[] = {
    {.name = "plain.linear_cross_entropy", .op = EBB_OP_LINEAR_CROSS_ENTROPY, .dtypes = ebb_plain_floats, .fits = ebb_linear_loss_misfit, .workspace = ebb_linear_loss_workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(linear_loss)
