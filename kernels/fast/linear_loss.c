/* linear_loss.c: LinearCrossEntropy with oneDNN's products, block by block; the rest is plain's.
 *
 * dW is added up by the products themselves, in float32, block after block. The blocks are as the
 * node says, so results depend on the number of threads only as oneDNN's do. What sgemm packs its
 * operands into (some MiB a thread) is its own, not the workspace's.
 */
#include "kernels/fast/onednn.h"
#include "kernels/plain/scores/linear_loss.h"
#include "kernels/plain/vmath.h"

#include <math.h>
#include <string.h>

#define REAL_BITS 32
#include "kernels/math/words.h"
#include "kernels/plain/scores/scores_loops.inc"
#define REAL_BITS 0
#include "kernels/math/words.h"

static const char *declines(const ebb_call *call)
{
    const char *why = ebb_linear_loss_misfit(call);
    if (why != NULL)
        return why;
    if (call->in[0].type.dtype != EBB_F32)
        return "oneDNN multiplies float32 only";
    return ebb_elements(&call->in[0].type) == 0 || ebb_elements(&call->in[1].type) == 0
               ? "an empty operand"
               : NULL;
}

/* c[m, n] = alpha a b + beta c; `row`: of a and of b as they lie. */
static ebb_status product(const ebb_call *call, bool turn_a, bool turn_b, int64_t m, int64_t n,
                          int64_t k, float alpha, const float *a, int64_t row_a, const float *b,
                          int64_t row_b, float beta, float *c)
{
    const ebb_dnnl_matrix left = {a, row_a, turn_a}, right = {b, row_b, turn_b};
    return ebb_dnnl_product(call, &left, &right, m, n, k, alpha, beta, c, n);
}

/* Rows first .. first + n - 1: their loss is added to *loss. */
static ebb_status sweep_block(const ebb_call *call, const ebb_linear_loss *l, int64_t first,
                              int64_t n, double divisor, double *loss)
{
    int64_t C = l->classes, K = l->inner, ldw = l->turned ? K : C;
    float alpha = (float)l->alpha, add = first > 0 ? 1.0f : 0.0f;
    const float *x = (const float *)l->x + first * K;
    float *g = l->scores;
    if (l->bias != NULL)
        put_bias_f32(l, n);
    EBB_TRY(product(call, false, l->turned, n, C, K, alpha, x, K, l->w, ldw,
                    l->bias != NULL ? 1.0f : 0.0f, g));
    scores_to_gradient_f32(l, first, n, divisor);
    *loss += block_loss_f32(l, n);
    if (l->dbias != NULL)
        add_columns_f32(l->dbias, g, n, C, first > 0);
    if (l->dw != NULL && l->turned)
        EBB_TRY(product(call, true, false, C, K, n, alpha, g, C, x, K, add, l->dw));
    if (l->dw != NULL && !l->turned)
        EBB_TRY(product(call, true, false, K, C, n, alpha, x, K, g, C, add, l->dw));
    if (l->dx == NULL) // last: dx may be x
        return NULL;
    return product(call, false, !l->turned, n, K, C, alpha, g, C, l->w, ldw, 0.0f,
                   (float *)l->dx + first * K);
}

static ebb_status run(const ebb_call *call)
{
    ebb_linear_loss l;
    EBB_TRY(ebb_linear_loss_begin(call, &l));
    double divisor = divisor_f32(&l), loss = 0;
    for (int64_t first = 0; first < l.rows; first += l.block) {
        int64_t n = l.rows - first < l.block ? l.rows - first : l.block;
        EBB_TRY(sweep_block(call, &l, first, n, divisor, &loss));
    }
    if (ebb_dnnl_wants(call, 0))
        *(float *)call->out[0].data = (float)(loss / divisor);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_linear_loss[] = {
    {.name = "dnnl.linear_cross_entropy", .op = EBB_OP_LINEAR_CROSS_ENTROPY, .fits = declines, .workspace = ebb_linear_loss_workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(linear_loss)
