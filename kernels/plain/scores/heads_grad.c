/* heads_grad.c: the gradient of LinearAttention: kernels/math/linear_attention.inc, in double. */
#include "kernels/call/heads.h"
#include "kernels/plain/number.h"

#include <math.h>

enum { SLOTS = 16 }; /* heads at a time */

static void put(const ebb_linear_back *r, int o, int64_t at, double value)
{
    if (r->out[o] != NULL)
        ebb_plain_put(&r->results[o], at, value);
}

#define SUM double
#define EXPONENT(x) exp(x)
#define NUMBER(r, i, at) ebb_plain_real(&(r)->operands[i], at)
#define PUT(r, o, at, v) put(r, o, at, v)
#define NAMED(x) x
#define FORMULA static
#define EACH(i, n) for (int64_t i = 0; i < (n); i++)
#define TOGETHER ((void)0)
#include "kernels/math/linear_attention.inc"

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_linear_back r = ebb_linear_back_read(c);
    size_t size = ebb_linear_back_size(&r);
    bool fits = ebb_size_mul(bytes, size, SLOTS * sizeof(double));
    return fits && (size > 0 || r.value == 0) ? NULL
                                              : ebb_call_error(c, "its states are too large");
}

static ebb_status run(const ebb_call *c)
{
    ebb_linear_back r = ebb_linear_back_read(c);
    int64_t heads = r.batch * r.heads;
    EBB_PARALLEL_FOR(heads * r.length * r.key * r.value)
    for (int64_t slot = 0; slot < SLOTS; slot++)
        for (int64_t s = slot; s < heads; s += SLOTS) {
            linear_back p = linear_back_of(
                &r, s, (double *)c->workspace + (size_t)slot * ebb_linear_back_size(&r));
            linear_back_head(&r, &p);
        }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_heads_grad[] = {
    {.name = "plain.linear_attention_grad", .op = EBB_OP_LINEAR_ATTENTION_GRAD, .dtypes = ebb_plain_floats, .fits = ebb_linear_back_misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(heads_grad)
