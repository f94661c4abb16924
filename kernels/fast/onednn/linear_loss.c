/* linear_loss.c: LinearCrossEntropy with oneDNN's products, block by block; the rest is plain's.
 *
 * A block is of rows that count: rows whose label is ignored, or of no weight, cost no product. Where
 * others lie between its rows, they are gathered into the workspace, and their gradients put back:
 *
 *     workspace:  | as linear_loss.h says | rows of the block, int64 [block] | x, then dx [block, K] |
 *
 * dW is added up by the products themselves, in float32, block after block. The blocks are as the
 * node says, so results depend on the number of threads only as oneDNN's do. What sgemm packs its
 * operands into (some MiB a thread) is its own, not the workspace's.
 */
#include "kernels/fast/onednn/onednn.h"
#include "kernels/plain/scores/linear_loss.h"
#include "kernels/plain/vmath.h"
#include "kernels/spared.h"

#include <string.h>

#define REAL_BITS 32
#include "kernels/math/words.h"
#include "kernels/plain/scores/scores_loops.inc"
#define REAL_BITS 0
#include "kernels/math/words.h"

static const char *declines(const ebb_call *call)
{
    EBB_ASK(ebb_plain_floats(call));
    EBB_ASK(ebb_linear_loss_misfit(call));
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

/* ---- rows ---- */

static float *gathered(const ebb_linear_loss *l)
{
    return (float *)(l->picked + l->block);
}

static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    ebb_linear_loss l;
    size_t row, rows;
    ebb_linear_loss_sizes(call, &l);
    EBB_TRY(ebb_linear_loss_workspace(call, bytes));
    if (!ebb_size_mul(&row, (size_t)l.inner, sizeof(float)) ||
        !ebb_size_add(&row, row, sizeof(int64_t)) || !ebb_size_mul(&rows, row, (size_t)l.block) ||
        !ebb_size_add(bytes, *bytes, rows))
        return ebb_call_error(call, "a block of its rows is too large");
    return NULL;
}

/* Picks the next rows that count, at most a block of them: how many. Those passed by have no gradient. */
static int64_t pick(const ebb_linear_loss *l, int64_t *next)
{
    int64_t n = 0;
    for (; *next < l->rows && n < l->block; ++*next) {
        if (weight_of_f32(l, ebb_label_at(&l->labels, *next)) != 0)
            l->picked[n++] = *next;
        else if (l->dx != NULL)
            memset((float *)l->dx + *next * l->inner, 0, (size_t)l->inner * sizeof(float));
    }
    return n;
}

/* Copies the picked rows of x together, or rows that lie together to their places in dx. */
static void move_rows(const ebb_linear_loss *l, int64_t n, bool back)
{
    const size_t bytes = (size_t)l->inner * sizeof(float);
    EBB_PARALLEL_FOR(n * l->inner)
    for (int64_t i = 0; i < n; i++) {
        float *here = gathered(l) + i * l->inner;
        if (back)
            memcpy((float *)l->dx + l->picked[i] * l->inner, here, bytes);
        else
            memcpy(here, (const float *)l->x + l->picked[i] * l->inner, bytes);
    }
}

/* ---- the sweep ---- */

/* The n picked rows: their loss is added to *loss. */
static ebb_status sweep_block(const ebb_call *call, const ebb_linear_loss *l, int64_t n, bool adds,
                              double divisor, double *loss)
{
    int64_t C = l->classes, K = l->inner, ldw = l->turned ? K : C, first = l->picked[0];
    float alpha = (float)l->alpha, add = adds ? 1.0f : 0.0f;
    const bool together = l->picked[n - 1] - first == n - 1;
    const float *x = together ? (const float *)l->x + first * K : gathered(l);
    float *g = l->scores;
    if (!together)
        move_rows(l, n, false);
    if (l->bias != NULL)
        put_bias_f32(l, n);
    EBB_TRY(product(call, false, l->turned, n, C, K, alpha, x, K, l->w, ldw,
                    l->bias != NULL ? 1.0f : 0.0f, g));
    scores_to_gradient_f32(l, first, n, divisor);
    *loss += block_loss_f32(l, n);
    if (l->dbias != NULL)
        add_columns_f32(l->dbias, g, n, C, adds);
    if (l->dw != NULL && l->turned)
        EBB_TRY(product(call, true, false, C, K, n, alpha, g, C, x, K, add, l->dw));
    if (l->dw != NULL && !l->turned)
        EBB_TRY(product(call, true, false, K, C, n, alpha, x, K, g, C, add, l->dw));
    if (l->dx == NULL) // last: dx may be x
        return NULL;
    float *dx = together ? (float *)l->dx + first * K : gathered(l);
    EBB_TRY(product(call, false, !l->turned, n, K, C, alpha, g, C, l->w, ldw, 0.0f, dx));
    if (!together)
        move_rows(l, n, true);
    return NULL;
}

static ebb_status run(const ebb_call *call)
{
    ebb_linear_loss l;
    EBB_TRY(ebb_linear_loss_begin(call, &l));
    l.picked = (int64_t *)(void *)(l.each + l.block);
    double divisor = divisor_f32(&l), loss = 0;
    int64_t counted = 0;
    for (int64_t next = 0; next < l.rows;) {
        int64_t n = pick(&l, &next);
        if (n > 0)
            EBB_TRY(sweep_block(call, &l, n, counted > 0, divisor, &loss));
        counted += n;
    }
    const bool adds = counted > 0;
    ebb_spare(2.0 * (double)((l.rows - counted) * l.inner) * (double)l.classes *
              (1 + (l.dx != NULL) + (l.dw != NULL)));
    if (!adds && l.dw != NULL)
        memset(l.dw, 0, call->out[2].bytes);
    if (!adds && l.dbias != NULL)
        memset(l.dbias, 0, call->out[3].bytes);
    if (ebb_call_wants(call, 0))
        *(float *)call->out[0].data = (float)(loss / divisor);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_linear_loss[] = {
    {.name = "dnnl.linear_cross_entropy", .op = EBB_OP_LINEAR_CROSS_ENTROPY, .fits = declines, .workspace = workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(linear_loss)
