/* experts.c: products whose rows go to one of several matrices each, with sums in double. */
#include "kernels/call/linear_codes.h"
#include "kernels/plain/plain.h"

#define LOOPS "kernels/plain/layers/experts_loops.inc"
#include "kernels/plain/both_floats.inc"

static const char *fits(const ebb_call *c)
{
    ebb_experts e;
    EBB_ASK(ebb_experts_read(&e, c));
    if (c->in[1].type.dtype != c->in[0].type.dtype || c->out[0].type.dtype != c->in[0].type.dtype)
        return "operands are of several dtypes";
    if (c->in[0].type.dtype != EBB_F32 && c->in[0].type.dtype != EBB_F64)
        return "multiplies float32 and float64 only";
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    if (!ebb_size_mul(bytes, (size_t)c->in[0].type.dims[1], sizeof(double)))
        return ebb_call_error(c, "the product is too wide");
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_experts e;
    const bool gradients = c->op == EBB_OP_EXPERTS_MATMUL_GRAD;
    const void *a = c->in[0].data, *b = c->in[1].data;
    EBB_MUST_FIT(c, ebb_experts_read(&e, c));
    EBB_TRY(ebb_experts_check(c, e.of, e.rows, e.experts));
    if (gradients)
        EBB_BY_FLOAT(c->in[0], gradients, &e, c->out[0].data, a, b, c->workspace);
    else
        EBB_BY_FLOAT(c->in[0], multiply, &e, c->out[0].data, a, b);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_experts[] = {
    {.name = "plain.experts_matmul",      .op = EBB_OP_EXPERTS_MATMUL,      .fits = fits, .run = run},
    {.name = "plain.experts_matmul_grad", .op = EBB_OP_EXPERTS_MATMUL_GRAD, .fits = fits, .workspace = workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(experts)
