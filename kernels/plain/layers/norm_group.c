/* norm_group.c: group norm and instance norm, forward and backward: from the input, from the
 * output, or from the output of the activation behind it. */
#include <math.h>

#include "kernels/plain/layers/norm.h"
#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

typedef struct groups { /* x: [n, g, d, s]; scale, bias: [g, d]; mean, inv_std: [n, g] */
    int64_t n, g, d, s;
    double epsilon;
    bool from_output;
    ebb_norm_channels read; /* how what is kept is read; no more of it */
} groups;

#define LOOPS "kernels/plain/layers/norm_group_loops.inc"
#include "kernels/plain/both_floats.inc"

/* The sizes of a call whose image is x; false where they do not fit together. */
static bool read_groups(groups *r, const ebb_type *x, int64_t count, const ebb_type *scale)
{
    int64_t all = ebb_elements(x), scales = ebb_elements(scale);
    *r = (groups){.n = x->dims[0], .g = count};
    if (x->rank < 2 || count <= 0 || x->dims[1] % count != 0 ||
        (scales != count && scales != x->dims[1]))
        return false;
    r->d = scales / count;
    r->s = r->n * scales > 0 ? all / (r->n * scales) : 0;
    return true;
}

static bool read_forward(groups *r, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t count = ebb_attr_int(&c->attrs, "num_groups", 0);
    if (c->op == EBB_OP_INSTANCE_NORMALIZATION)
        count = x->rank > 1 ? x->dims[1] : 0;
    bool fits = read_groups(r, x, count, &c->in[1].type);
    r->epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-5f);
    return fits;
}

static bool read_backward(groups *r, const ebb_call *c)
{
    const ebb_type *x = &c->in[1].type, *inv_std = &c->in[4].type;
    if (inv_std->rank != 2 || x->rank < 2 || inv_std->dims[0] != x->dims[0])
        return false;
    bool fits = read_groups(r, x, inv_std->dims[1], &c->in[2].type);
    r->from_output = c->op == EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT;
    r->read = (ebb_norm_channels){.slope = 1};
    if (r->from_output)
        ebb_norm_read_kept(c, &r->read.kept, &r->read.slope, &r->read.elu, &r->read.least);
    return fits;
}

static const char *forward_misfit(const ebb_call *c)
{
    groups r;
    return read_forward(&r, c) ? NULL : "its channels, groups and scales do not fit together";
}

static const char *backward_misfit(const ebb_call *c)
{
    groups r;
    return read_backward(&r, c) ? NULL : "its channels, groups and scales do not fit together";
}

static ebb_status run_forward(const ebb_call *c)
{
    groups r;
    if (!read_forward(&r, c) || r.s == 0)
        return NULL;
    EBB_BY_FLOAT(c->in[0], forward, &r, c);
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    groups r;
    *bytes = 0;
    if (!read_backward(&r, c))
        return NULL;
    if (!ebb_size_mul(bytes, (size_t)(r.n * r.g), (size_t)r.d * 2 * sizeof(double)))
        return ebb_call_error(c, "it has too many groups");
    return NULL;
}

static ebb_status run_backward(const ebb_call *c)
{
    groups r;
    if (!read_backward(&r, c))
        return NULL;
    EBB_BY_FLOAT(c->in[1], backward, &r, c);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_norm_group[] = {
    {.name = "plain.instance_normalization",      .op = EBB_OP_INSTANCE_NORMALIZATION,      .dtypes = ebb_plain_floats, .fits = forward_misfit,  .run = run_forward},
    {.name = "plain.group_normalization",         .op = EBB_OP_GROUP_NORMALIZATION,         .dtypes = ebb_plain_floats, .fits = forward_misfit,  .run = run_forward},
    {.name = "plain.group_norm",                  .op = EBB_OP_GROUP_NORM,                  .dtypes = ebb_plain_floats, .fits = forward_misfit,  .run = run_forward},
    {.name = "plain.group_norm_grad",             .op = EBB_OP_GROUP_NORM_GRAD,             .dtypes = ebb_plain_floats, .fits = backward_misfit, .workspace = workspace, .run = run_backward},
    {.name = "plain.group_norm_grad_from_output", .op = EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT, .dtypes = ebb_plain_floats, .fits = backward_misfit, .workspace = workspace, .run = run_backward},
};
// clang-format on
EBB_PLAIN_COUNT(norm_group)
