/* updates.c: what each optimizer computes, as nodes: the functions behind optimizers.def.
 *
 * w: the parameter, g: its gradient, t: steps with this one. Adam's family, SGD and momentum have a
 * node of their own; the others are standard nodes. What is computed of weights of 16 bits is
 * computed in float32, and such a weight's new states are float32.
 */
#include <math.h>

#include "passes/gradient/update.h"

/* ---- parts ---- */

static const ebb_type *type_of(const ebb_update *u, ebb_value v)
{
    return ebb_value_of(u->b->g, v)->type;
}

static ebb_dtype computed_in(const ebb_update *u)
{
    return type_of(u, u->w)->dtype == EBB_F64 ? EBB_F64 : EBB_F32;
}

static ebb_value wide(ebb_update *u, ebb_value v)
{
    return ebb_emit_cast(u->b, v, computed_in(u));
}

static ebb_value number(ebb_update *u, double x)
{
    return ebb_const_scalar(u->b, computed_in(u), x);
}

static ebb_value add(ebb_update *u, ebb_value a, ebb_value b)
{
    return ebb_emit(u->b, EBB_OP_ADD, a, b);
}

static ebb_value sub(ebb_update *u, ebb_value a, ebb_value b)
{
    return ebb_emit(u->b, EBB_OP_SUB, a, b);
}

static ebb_value mul(ebb_update *u, ebb_value a, ebb_value b)
{
    return ebb_emit(u->b, EBB_OP_MUL, a, b);
}

static ebb_value divide(ebb_update *u, ebb_value a, ebb_value b)
{
    return ebb_emit(u->b, EBB_OP_DIV, a, b);
}

static ebb_value root(ebb_update *u, ebb_value a)
{
    return ebb_emit(u->b, EBB_OP_SQRT, a);
}

static ebb_value scaled(ebb_update *u, ebb_value a, double x)
{
    return x == 1 ? a : mul(u, a, number(u, x));
}

/* from + share (to - from) */
static ebb_value between(ebb_update *u, ebb_value from, ebb_value to, ebb_value share)
{
    return add(u, from, mul(u, sub(u, to, from), share));
}

static ebb_value rate_of(ebb_update *u)
{
    return wide(u, u->group->rate);
}

/* g + weight-decay w: decay as part of the loss. */
static ebb_value slope_of(ebb_update *u, ebb_value w)
{
    const double decay = ebb_update_number(u, "weight-decay");
    ebb_value g = wide(u, u->grad);
    return decay == 0 ? g : add(u, g, scaled(u, w, decay));
}

/* w - rate (step + weight-decay w): decay apart from the step. */
static void go(ebb_update *u, ebb_value w, ebb_value step, double decay)
{
    if (decay != 0)
        step = add(u, step, scaled(u, w, decay));
    u->next = ebb_emit_cast(u->b, sub(u, w, mul(u, step, rate_of(u))),
                            (ebb_dtype)type_of(u, u->w)->dtype);
}

/* A new state of w's shape, in the type that is computed in. */
static uint32_t state_like(ebb_update *u, const char *suffix)
{
    ebb_type type = *type_of(u, u->w);
    type.dtype = computed_in(u);
    return ebb_update_state(u, suffix, &type);
}

/* A running mean of x: the state's next value. */
static ebb_value follow(ebb_update *u, uint32_t k, ebb_value x, double share)
{
    return u->states[k].next = between(u, u->states[k].state, x, number(u, share));
}

/* v' = momentum v + x: the state's next value. */
static ebb_value gather_speed(ebb_update *u, uint32_t k, ebb_value x, double momentum)
{
    ebb_value v = u->states[k].state;
    return u->states[k].next = add(u, v, sub(u, x, scaled(u, v, 1 - momentum)));
}

/* Steps with this one, as a number to compute with. */
static ebb_value count_as(ebb_update *u, ebb_dtype dtype)
{
    if (u->all->count.i == 0)
        u->all->count = add(u, u->all->step, ebb_const_scalar(u->b, EBB_I64, 1));
    return ebb_emit_cast(u->b, u->all->count, dtype);
}

static void with_next_name(ebb_update *u)
{
    const char *name = ebb_value_name(u->b->g, u->w);
    char *next = ebb_arena_printf(u->all->e->scratch, "%s_next", name);
    if (ebb_build_got(u->b, next))
        ebb_with_name(u->b, next);
}

/* ---- SGD ---- */

/* w' = w - lr (g + weight-decay w) */
void ebb_update_sgd(ebb_update *u)
{
    ebb_with_float(u->b, "weight_decay", ebb_update_number(u, "weight-decay"));
    with_next_name(u);
    u->next = ebb_emit(u->b, EBB_OP_SGD, u->group->rate, u->w, u->grad);
}

/* v' = momentum v + g + weight-decay w,  w' = w - lr v' */
void ebb_update_momentum(ebb_update *u)
{
    ebb_value out[2] = {0};
    const uint32_t v = ebb_update_state(u, "momentum", NULL);
    ebb_with_float(u->b, "alpha", ebb_update_number(u, "momentum"));
    ebb_with_float(u->b, "beta", 1);
    ebb_with_string(u->b, "mode", "standard");
    ebb_with_float(u->b, "norm_coefficient", ebb_update_number(u, "weight-decay"));
    with_next_name(u);
    ebb_emit_node(u->b, EBB_OP_MOMENTUM,
                  (ebb_value[]){u->group->rate, u->all->step, u->w, u->grad, u->states[v].state}, 5,
                  out, 2, 3);
    u->next = out[0];
    u->states[v].next = out[1];
}

/* v' = momentum v + d,  w' = w - lr (d + momentum v'),  d = g + weight-decay w */
void ebb_update_nesterov(ebb_update *u)
{
    const double momentum = ebb_update_number(u, "momentum");
    const uint32_t v = state_like(u, "momentum");
    ebb_value w = wide(u, u->w), d = slope_of(u, w);
    go(u, w, add(u, d, scaled(u, gather_speed(u, v, d, momentum), momentum)), 0);
}

/* ---- Adam ---- */

static void two_moments(ebb_update *u)
{
    (void)ebb_update_state(u, "exp_avg", NULL);
    (void)ebb_update_state(u, "exp_avg_sq", NULL);
}

static void take_moments(ebb_update *u, const ebb_value out[3])
{
    u->next = out[0];
    u->states[0].next = out[1];
    u->states[1].next = out[2];
}

static void with_moments(ebb_update *u)
{
    ebb_with_float(u->b, "alpha", ebb_update_number(u, "beta1"));
    ebb_with_float(u->b, "beta", ebb_update_number(u, "beta2"));
    ebb_with_float(u->b, "epsilon", ebb_update_number(u, "epsilon"));
}

/* The node AdamW for this gradient. */
static void adamw_node(ebb_update *u, ebb_value grad, double decay)
{
    ebb_value out[3] = {0};
    with_moments(u);
    ebb_with_float(u->b, "weight_decay", decay);
    with_next_name(u);
    ebb_emit_node(u->b, EBB_OP_ADAMW,
                  (ebb_value[]){u->group->rate, u->all->step, u->w, grad, u->states[0].state,
                                u->states[1].state},
                  6, out, 3, 7);
    take_moments(u, out);
}

/* w (1 - lr decay) */
static ebb_value decayed(ebb_update *u, ebb_value w, double decay)
{
    ebb_value lr = u->group->rate;
    if (decay == 0)
        return w;
    ebb_value part = mul(u, lr, ebb_const_like(u->b, lr, decay));
    return mul(u, w, sub(u, ebb_const_like(u->b, lr, 1), part));
}

/* Steps with this one, or 0 where Adam is not to correct its moments. */
static ebb_value counted(ebb_update *u, bool correct)
{
    ebb_value *count = &u->all->count;
    if (!correct)
        return ebb_const_scalar(u->b, EBB_I64, 0);
    if (count->i == 0)
        *count = add(u, u->all->step, ebb_const_scalar(u->b, EBB_I64, 1));
    return *count;
}

/* AdamW otherwise than ai.ebb.AdamW has it: the decay apart, before the step or behind it. */
static void adam_and_decay(ebb_update *u, bool behind, bool correct)
{
    const double decay = ebb_update_number(u, "weight-decay");
    ebb_value out[3] = {0}, x = behind ? u->w : decayed(u, u->w, decay);
    ebb_value count = counted(u, correct);
    with_moments(u);
    ebb_emit_node(
        u->b, EBB_OP_ADAM,
        (ebb_value[]){u->group->rate, count, x, u->grad, u->states[0].state, u->states[1].state}, 6,
        out, 3, 7);
    if (behind)
        out[0] = decayed(u, out[0], decay);
    take_moments(u, out);
}

/* m' and v': running means of g and g^2; both corrected for their start at zero by 1 - beta^t;
 * w' = w (1 - lr weight-decay) - lr m' / (sqrt(v') + epsilon) */
void ebb_update_adamw(ebb_update *u)
{
    const bool behind = strcmp(ebb_update_text(u, "order"), "transformers") == 0;
    const bool correct = ebb_update_number(u, "correct-bias") != 0;
    two_moments(u);
    if (behind || !correct)
        adam_and_decay(u, behind, correct);
    else
        adamw_node(u, u->grad, ebb_update_number(u, "weight-decay"));
}

/* The same with the decay in the gradient: g + weight-decay w. */
void ebb_update_adam(ebb_update *u)
{
    const double decay = ebb_update_number(u, "weight-decay");
    ebb_value g = u->grad;
    two_moments(u);
    if (decay != 0)
        g = add(u, g, mul(u, u->w, ebb_const_like(u->b, u->w, decay)));
    adamw_node(u, g, 0);
}

/* ---- by the gradient's own size ---- */

/* s' = alpha s + (1 - alpha) d^2,  d = g + weight-decay w;  q = d / (sqrt(s') + epsilon);
 * w' = w - lr q, with momentum w - lr b',  b' = momentum b + q.
 * centered: s' - a'^2 for s', with a' the running mean of d. */
void ebb_update_rmsprop(ebb_update *u)
{
    const double fresh = 1 - ebb_update_number(u, "alpha");
    const double momentum = ebb_update_number(u, "momentum");
    const bool centered = ebb_update_number(u, "centered") != 0;
    const uint32_t s = state_like(u, "square_avg");
    const uint32_t a = centered ? state_like(u, "grad_avg") : 0;
    const uint32_t b = momentum != 0 ? state_like(u, "momentum_buffer") : 0;
    ebb_value w = wide(u, u->w), d = slope_of(u, w), square = follow(u, s, mul(u, d, d), fresh);
    if (centered) { // rounding must not make it negative
        ebb_value mean = follow(u, a, d, fresh);
        square = ebb_emit(u->b, EBB_OP_MAX, sub(u, square, mul(u, mean, mean)), number(u, 0));
    }
    ebb_value epsilon = number(u, ebb_update_number(u, "epsilon"));
    ebb_value size = add(u, root(u, square), epsilon);
    ebb_value q = divide(u, d, size);
    go(u, w, momentum != 0 ? gather_speed(u, b, q, momentum) : q, 0);
}

/* s' = s + d^2,  d = g + weight-decay w;  w' = w - lr / (1 + (t - 1) lr-decay) d / (sqrt(s') +
 * epsilon) */
void ebb_update_adagrad(ebb_update *u)
{
    const double slower = ebb_update_number(u, "lr-decay");
    const uint32_t s = state_like(u, "sum");
    ebb_value w = wide(u, u->w), d = slope_of(u, w);
    ebb_value sum = u->states[s].next = add(u, u->states[s].state, mul(u, d, d));
    ebb_value epsilon = number(u, ebb_update_number(u, "epsilon"));
    ebb_value size = add(u, root(u, sum), epsilon);
    ebb_value q = divide(u, d, size);
    if (slower != 0) {
        ebb_value done = ebb_emit_cast(u->b, u->all->step, computed_in(u));
        ebb_value one = number(u, 1);
        q = divide(u, q, add(u, scaled(u, done, slower), one));
    }
    go(u, w, q, 0);
}

/* w' = w - lr (sign(beta1 m + (1 - beta1) g) + weight-decay w),  m' = beta2 m + (1 - beta2) g.
 * Chen et al., Symbolic discovery of optimization algorithms, NeurIPS 2023. */
void ebb_update_lion(ebb_update *u)
{
    const uint32_t m = state_like(u, "exp_avg");
    ebb_value w = wide(u, u->w), g = wide(u, u->grad), old = u->states[m].state;
    ebb_value off = sub(u, g, old);
    ebb_value ahead = add(u, old, scaled(u, off, 1 - ebb_update_number(u, "beta1")));
    u->states[m].next = add(u, old, scaled(u, off, 1 - ebb_update_number(u, "beta2")));
    go(u, w, ebb_emit(u->b, EBB_OP_SIGN, ahead), ebb_update_number(u, "weight-decay"));
}

/* ---- Adafactor ---- */

static double elements_of(const ebb_update *u)
{
    int64_t n = 1;
    return ebb_type_elements(type_of(u, u->w), &n) && n > 0 ? (double)n : 1;
}

/* The root of the mean square of all elements of x, which has w's shape. */
static ebb_value size_of(ebb_update *u, ebb_value x)
{
    ebb_with_int(u->b, "keepdims", 0);
    ebb_value sum = ebb_emit(u->b, EBB_OP_REDUCE_SUM_SQUARE, x);
    return root(u, divide(u, sum, number(u, elements_of(u))));
}

/* The mean of x or of its squares along one axis, which stays with size 1. */
static ebb_value mean_over(ebb_update *u, ebb_value x, int axis, bool of_squares)
{
    const int64_t axes[1] = {axis}, n = type_of(u, x)->dims[axis];
    if (!of_squares)
        return ebb_emit_reduce(u->b, EBB_OP_REDUCE_MEAN, x, axes, 1, true);
    ebb_value sum = ebb_emit_reduce(u->b, EBB_OP_REDUCE_SUM_SQUARE, x, axes, 1, true);
    return divide(u, sum, number(u, n > 0 ? (double)n : 1));
}

/* The mean square of g along one axis, followed by a state of its shape. */
static ebb_value follow_mean(ebb_update *u, const char *suffix, ebb_value g, int axis,
                             ebb_value share)
{
    ebb_type type = *type_of(u, u->w);
    type.dtype = computed_in(u);
    type.dims[axis] = 1;
    const uint32_t k = ebb_update_state(u, suffix, &type);
    return u->states[k].next = between(u, u->states[k].state, mean_over(u, g, axis, true), share);
}

/* With b = t^beta2-decay, rows r' = r + b (mean of g^2 over columns - r), columns c' alike:
 * v = r' c' / max(mean of r', epsilon), of a vector v' = v + b (g^2 - v);
 * q = g / sqrt(max(v, epsilon^2)),
 * w' = w (1 - lr weight-decay) - max(epsilon2, rms(w)) min(lr, t^-1/2) / max(1, rms(q) / threshold)
 * q. Of more than two axes the last two are rows and columns, as PyTorch has it. Shazeer, Stern,
 * Adafactor: adaptive learning rates with sublinear memory cost, ICML 2018. */
void ebb_update_adafactor(ebb_update *u)
{
    const double epsilon = ebb_update_number(u, "epsilon"),
                 decay = ebb_update_number(u, "weight-decay");
    const int rank = type_of(u, u->w)->rank;
    ebb_value w = wide(u, u->w), g = wide(u, u->grad), v;
    ebb_value t = count_as(u, computed_in(u));
    ebb_value share = ebb_emit(u->b, EBB_OP_POW, t, number(u, ebb_update_number(u, "beta2-decay")));
    if (rank > 1) {
        ebb_value rows = follow_mean(u, "row_var", g, rank - 1, share);
        ebb_value columns = follow_mean(u, "col_var", g, rank - 2, share);
        ebb_value mean =
            ebb_emit(u->b, EBB_OP_MAX, mean_over(u, rows, rank - 2, false), number(u, epsilon));
        v = mul(u, divide(u, rows, mean), columns);
    } else {
        const uint32_t k = state_like(u, "variance");
        v = u->states[k].next = between(u, u->states[k].state, mul(u, g, g), share);
    }
    ebb_value least = number(u, epsilon * epsilon);
    ebb_value q = divide(u, g, root(u, ebb_emit(u->b, EBB_OP_MAX, v, least)));
    ebb_value slow = ebb_emit(u->b, EBB_OP_RECIPROCAL, root(u, t));
    ebb_value rate = ebb_emit(u->b, EBB_OP_MIN, rate_of(u), slow);
    ebb_value weight =
        ebb_emit(u->b, EBB_OP_MAX, size_of(u, w), number(u, ebb_update_number(u, "epsilon2")));
    ebb_value excess =
        ebb_emit(u->b, EBB_OP_MAX, scaled(u, size_of(u, q), 1 / ebb_update_number(u, "threshold")),
                 number(u, 1));
    ebb_value step = mul(u, q, divide(u, mul(u, weight, rate), excess));
    if (decay != 0)
        step = add(u, step, mul(u, w, scaled(u, rate_of(u), decay)));
    u->next = ebb_emit_cast(u->b, sub(u, w, step), (ebb_dtype)type_of(u, u->w)->dtype);
}

/* ---- Muon ---- */

/* alpha a' b' + beta c: a', b' are a, b, transposed where asked */
static ebb_value product(ebb_update *u, ebb_value a, bool turn_a, ebb_value b, bool turn_b,
                         double alpha, ebb_value c, double beta)
{
    if (turn_a)
        ebb_with_int(u->b, "transA", 1);
    if (turn_b)
        ebb_with_int(u->b, "transB", 1);
    if (c.i == 0)
        return ebb_emit(u->b, EBB_OP_GEMM, a, b);
    ebb_with_float(u->b, "alpha", alpha);
    ebb_with_float(u->b, "beta", beta);
    return ebb_emit(u->b, EBB_OP_GEMM, a, b, c);
}

/* x with singular values near 1: Newton and Schulz's iteration of fifth order, on the smaller of
 * x x^T and x^T x. */
static ebb_value orthogonal(ebb_update *u, ebb_value x, int64_t steps)
{
    static const double a = 3.4445, b = -4.7750, c = 2.0315;
    const ebb_type *type = type_of(u, u->w);
    const bool tall = type->dims[0] > type->dims[1];
    ebb_with_int(u->b, "keepdims", 0);
    ebb_value norm = root(u, ebb_emit(u->b, EBB_OP_REDUCE_SUM_SQUARE, x));
    x = divide(u, x, ebb_emit(u->b, EBB_OP_MAX, norm, number(u, 1e-7)));
    for (int64_t i = 0; i < steps; i++) {
        ebb_value gram = product(u, x, tall, x, !tall, 1, EBB_NO_VALUE, 0);
        ebb_value bend = product(u, gram, false, gram, false, c, gram, b);
        x = tall ? product(u, x, false, bend, false, 1, x, a)
                 : product(u, bend, false, x, false, 1, x, a);
    }
    return x;
}

/* m' = momentum m + (1 - momentum) g;  w' = w - lr (adjust orthogonal(d) + weight-decay w), with
 * d = m', nesterov: g + momentum (m' - g); adjust: sqrt(max(1, rows / columns)), or such that a
 * step is as long as AdamW's. What is no matrix within the network goes by AdamW with the same rate
 * and decay. Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024. */
void ebb_update_muon(ebb_update *u)
{
    const double momentum = ebb_update_number(u, "momentum"),
                 decay = ebb_update_number(u, "weight-decay");
    if (!u->all->is_hidden[u->w.i]) {
        two_moments(u);
        adamw_node(u, u->grad, decay);
        return;
    }
    const uint32_t m = state_like(u, "momentum");
    const ebb_type *type = type_of(u, u->w);
    const double rows = (double)type->dims[0], columns = (double)type->dims[1];
    const bool like_adamw = strcmp(ebb_update_text(u, "adjust"), "match-rms-adamw") == 0;
    ebb_value w = wide(u, u->w), g = wide(u, u->grad), d = follow(u, m, g, 1 - momentum);
    if (ebb_update_number(u, "nesterov") != 0)
        d = between(u, g, d, number(u, momentum));
    d = orthogonal(u, d, (int64_t)ebb_update_number(u, "ns-steps"));
    go(u, w,
       scaled(u, d, like_adamw ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns))),
       decay);
}
