/* norm_sites.c: finds the gradients of normalisations, says what rounding costs when they read the
 * output, and rewrites them.
 *
 *   dx, ds, dt = LayerNormalizationGrad(dy, x, s, mean, r)
 *   dx, ds, dt = ai.ebb.LayerNormGradFromOutput(dy, y, s, t, r)
 */
#include "passes/memory/rounding/norm_sites.h"

#include <math.h>

/* Operand places and what takes a node's place, by the gradient's operator. */
typedef struct shape {
    ebb_op grad, from_output;
    ebb_op forward;
    uint32_t inv_std_in, inv_std_out, mean_out; /* mean_out 0: there is none */
    bool by_channel;
} shape;

// clang-format off
static const shape shapes[] = {
    {EBB_OP_LAYER_NORM_GRAD, EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT, EBB_OP_LAYER_NORMALIZATION, 4, 2, 1, false},
    {EBB_OP_RMS_NORM_GRAD,   EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT,   EBB_OP_RMS_NORM,            3, 1, 0, false},
    {EBB_OP_BATCH_NORM_GRAD, EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, EBB_OP_BATCH_NORM_TRAINING, 4, 4, 3, true},
    {EBB_OP_GROUP_NORM_GRAD, EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT, EBB_OP_GROUP_NORM,          4, 2, 1, true},
};
// clang-format on

static const shape *shape_of(ebb_op grad)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].grad == grad)
            return &shapes[i];
    return NULL;
}

/* ---- find ---- */

bool ebb_norm_site_find(ebb_norm_site *site, const ebb_graph *g, ebb_node n)
{
    const shape *s = shape_of(ebb_node_of(g, n)->op);
    if (s == NULL || !ebb_is_backward(g, n))
        return false;
    *site = (ebb_norm_site){.grad = n, .x = ebb_in(g, n, 1), .by_channel = s->by_channel};
    site->inv_std = ebb_in(g, n, s->inv_std_in);
    ebb_node forward = ebb_value_of(g, site->inv_std)->producer;
    if (forward.i == 0 || ebb_node_of(g, forward)->op != s->forward ||
        ebb_is_backward(g, forward) ||
        !ebb_same_value(ebb_out(g, forward, s->inv_std_out), site->inv_std) ||
        !ebb_same_value(ebb_unviewed(g, ebb_in(g, forward, 0)), ebb_unviewed(g, site->x))) {
        site->refused = "its statistics are not those that a norm of the forward keeps";
        return true;
    }
    site->forward = forward;
    site->y = ebb_out(g, forward, 0);
    site->scale = ebb_in(g, forward, 1);
    site->bias = ebb_in(g, forward, 2);
    if (s->grad == EBB_OP_RMS_NORM_GRAD)
        site->bias = EBB_NO_VALUE;
    if (site->y.i == 0 ||
        !ebb_type_same_shape(ebb_value_of(g, site->y)->type, ebb_value_of(g, site->x)->type))
        site->refused = "its output and its input differ in shape";
    return true;
}

/* ---- measure ---- */

/* The weights of one parameter, or of what it was before it was cast to 16 bits. NULL tensor and
 * true: they are not in the file, and assumed. */
static bool weights_of(const ebb_graph *g, ebb_value v, const ebb_tensor **t)
{
    if (ebb_producer_op(g, v) == EBB_OP_CAST)
        v = ebb_in(g, ebb_value_of(g, v)->producer, 0);
    const ebb_value_info *info = ebb_value_of(g, v);
    *t = NULL;
    if ((info->flags & EBB_IS_INITIALIZER) == 0 || info->tensor == NULL ||
        !ebb_dtype_is_float((ebb_dtype)info->type->dtype))
        return false;
    if (info->tensor->data != NULL)
        *t = info->tensor;
    return true;
}

static double element(const ebb_tensor *t, int64_t i, int64_t count)
{
    return ebb_tensor_double(t, i % count);
}

void ebb_norm_site_measure(ebb_norm_site *site, const ebb_graph *g, ebb_norm_act act)
{
    const ebb_tensor *scale, *bias = NULL;
    int64_t scales = 1, biases = 1;
    site->amplification = 1;
    if (!weights_of(g, site->scale, &scale) ||
        (site->bias.i != 0 && !weights_of(g, site->bias, &bias))) {
        site->refused = "its scale or bias is computed, so nothing is known of its size";
        return;
    }
    site->assumed = scale == NULL || (site->bias.i != 0 && bias == NULL);
    if ((scale != NULL && !ebb_type_elements(&scale->type, &scales)) ||
        (bias != NULL && !ebb_type_elements(&bias->type, &biases)) || scales < 1 || biases < 1)
        return; // nothing is normalised
    for (int64_t i = 0; i < (scales > biases ? scales : biases); i++) {
        double s = scale != NULL ? fabs(element(scale, i, scales)) : 1;
        double t = bias != NULL ? element(bias, i, biases) : 0;
        double height = fabs(t) + s;
        if (act.elu > 0) // z = a (e^y - 1) of a y this low has a slope of a e^y
            height += exp(fmin(fmax(4 * s - t, 0), 700));
        double here = s > 1e-30 ? height / s : (double)INFINITY;
        if (!(here <= site->amplification)) // NaN too
            site->amplification = here == here ? here : (double)INFINITY;
    }
}

/* Beside 16 bit, the input itself, kept in 16 bits, would be rounded by one unit. */
const char *ebb_norm_site_guard(const ebb_norm_site *site, const ebb_graph *g, double limit)
{
    if (isinf(site->amplification))
        return "a scale of it is 0: its output tells nothing of its input";
    if (ebb_dtype_bits((ebb_dtype)ebb_value_of(g, site->x)->type->dtype) < 32 && limit > 4)
        limit = 4;
    if (site->amplification > limit)
        return "its scales are small beside its biases: rounding of its output would grow by more "
               "than `amplify`";
    return NULL;
}

/* ---- rewrite ---- */

int64_t ebb_norm_site_mean_bytes(const ebb_graph *g, const ebb_norm_site *site)
{
    const shape *s = shape_of(ebb_node_of(g, site->grad)->op);
    ebb_value mean = s->mean_out != 0 ? ebb_out(g, site->forward, s->mean_out) : EBB_NO_VALUE;
    return mean.i != 0 && ebb_only_user(g, mean).i != 0 ? ebb_stored_bytes(g, mean) : 0;
}

/* A bias of the shape in which the gradient takes scale and bias. */
static ebb_value bias_like(ebb_build *b, const ebb_norm_site *site, ebb_value scale)
{
    if (site->bias.i == 0)
        return ebb_emit_zeros_like(b, scale);
    if (ebb_type_same_shape(ebb_build_type(b, site->bias), ebb_build_type(b, scale)))
        return site->bias;
    return ebb_emit(b, EBB_OP_EXPAND, site->bias, ebb_const_shape(b, scale));
}

static ebb_status emit_gradient(ebb_edit *e, const ebb_norm_site *site, ebb_value dz, ebb_value z,
                                ebb_norm_act act, ebb_value made[3])
{
    ebb_graph *g = e->g;
    const shape *s = shape_of(ebb_node_of(g, site->grad)->op);
    bool has_bias = s->grad != EBB_OP_RMS_NORM_GRAD;
    ebb_value in[5] = {dz, z, ebb_in(g, site->grad, 2)};
    uint32_t count = 3, wanted = 0;
    ebb_build b = ebb_edit_build_for(e, site->grad);
    ebb_attrs attrs = ebb_node_attrs(g, site->grad);
    for (uint32_t k = 0; k < 3; k++)
        if (ebb_out(g, site->grad, k).i != 0)
            wanted |= 1u << k;
    if (has_bias)
        in[count++] = bias_like(&b, site, in[2]);
    in[count++] = site->inv_std;
    if (!s->by_channel)
        ebb_with_int(&b, "axis", ebb_attr_int(&attrs, "axis", -1));
    if (act.slope != 1)
        ebb_with_float(&b, "slope", act.slope);
    if (act.elu != 0)
        ebb_with_float(&b, "elu", act.elu);
    ebb_emit_node(&b, s->from_output, in, count, made, has_bias ? 3 : 2, wanted);
    return b.status;
}

ebb_status ebb_norm_site_rewrite(ebb_edit *e, const ebb_norm_site *site, ebb_value dz, ebb_value z,
                                 ebb_norm_act act)
{
    ebb_graph *g = e->g;
    const shape *s = shape_of(ebb_node_of(g, site->grad)->op);
    ebb_value made[3] = {{0}, {0}, {0}};
    bool mean_goes = ebb_norm_site_mean_bytes(g, site) > 0;
    EBB_TRY(emit_gradient(e, site, dz, z, act, made));
    for (uint32_t k = 0; k < 3; k++)
        if (made[k].i != 0)
            EBB_TRY(ebb_edit_replace(e, ebb_out(g, site->grad, k), made[k]));
    ebb_edit_remove(e, site->grad);
    if (mean_goes)
        EBB_TRY(ebb_node_set_output(g, site->forward, s->mean_out, EBB_NO_VALUE));
    return NULL;
}

/* ---- report ---- */

ebb_status ebb_norm_guard_declined(ebb_edit *e, const ebb_norm_site *site, const char *reason)
{
    if (!isinf(site->amplification))
        EBB_TRY(ebb_note(e, "%s would amplify rounding %.3g times",
                         ebb_node_label(e->g, site->forward), site->amplification));
    return ebb_skipped(e, site->grad, reason);
}

void ebb_norm_guard_passed(ebb_norm_guard *guard, const ebb_norm_site *site)
{
    guard->measured += !site->assumed;
    guard->assumed += site->assumed;
    if (!site->assumed && site->amplification > guard->worst)
        guard->worst = site->amplification;
}

ebb_status ebb_norm_guard_note(ebb_edit *e, const ebb_norm_guard *guard)
{
    if (guard->measured > 0)
        EBB_TRY(ebb_note(e,
                         "rounding of what is kept is amplified at most %.3g times by the weights "
                         "as they are; training moves them: run the pass again on a later "
                         "checkpoint where scales shrink",
                         guard->worst));
    if (guard->assumed > 0)
        EBB_TRY(ebb_note(e,
                         "%zu norm%s without weights in the file taken to begin with scales of "
                         "1 and biases of 0",
                         guard->assumed, guard->assumed == 1 ? " is" : "s are"));
    return NULL;
}
