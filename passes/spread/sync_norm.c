/* sync_norm.c: see sync_norm.h.
 *
 *   before   y, running, mean, r = BatchNormTraining(x, s, t, running)       dx, ds, dt = BatchNormalizationGrad(dy, x, s, mean, r)
 *   after    mean = sum x / n                                                dt = sum dy
 *            d = x - mean                                                    ds = r sum dy d
 *            r = 1 / sqrt(sum d^2 / n + epsilon)                             dx = s r (dy - dt / n - d r ds / n)
 *            y = d s r + t
 *
 * Sums over all axes but the channels', of n elements each in the whole batch. The variance is that of
 * differences from the mean, as in one process: sums of squares alone would lose what a large mean hides.
 */
#include "passes/spread/sync_norm.h"

typedef struct norm {
    ebb_build b;
    ebb_type type; /* of x: [N, C, ...] */
    double n;      /* elements of a channel */
    int64_t axes[EBB_MAX_RANK];
    uint32_t count;
} norm;

static norm norm_of(ebb_edit *e, ebb_node n, ebb_value x)
{
    norm m = {.b = ebb_edit_build(e, n, EBB_PHASE_NONE), .type = *ebb_value_of(e->g, x)->type};
    m.n = 1;
    for (int d = 0; d < m.type.rank; d++) {
        if (d == 1)
            continue;
        m.axes[m.count++] = d;
        m.n *= (double)m.type.dims[d];
    }
    return m;
}

static ebb_value sum(norm *m, ebb_op op, ebb_value x)
{
    return ebb_emit_reduce(&m->b, op, x, m->axes, m->count, false);
}

static ebb_value times(norm *m, ebb_value v, double x)
{
    return ebb_emit(&m->b, EBB_OP_MUL, v, ebb_const_like(&m->b, v, x));
}

/* One number a channel, [C], beside x. */
static ebb_value along(norm *m, ebb_value v)
{
    int64_t dims[EBB_MAX_RANK];
    for (int d = 0; d < m->type.rank; d++)
        dims[d] = d == 1 ? m->type.dims[1] : 1;
    return ebb_emit_reshape(&m->b, v, dims, m->type.rank);
}

/* old of the running statistic and the rest of the batch's. */
static ebb_value follow(norm *m, ebb_value running, double old, ebb_value batch, double factor)
{
    return ebb_emit(&m->b, EBB_OP_ADD, times(m, running, old), times(m, batch, (1 - old) * factor));
}

static ebb_status replace(ebb_edit *e, norm *m, ebb_node n, const ebb_value *with, uint32_t count)
{
    EBB_TRY(m->b.status);
    for (uint32_t k = 0; k < count; k++)
        if (ebb_out(e->g, n, k).i != 0)
            EBB_TRY(ebb_edit_replace(e, ebb_out(e->g, n, k), with[k]));
    ebb_edit_remove(e, n);
    return NULL;
}

static ebb_status forward(ebb_edit *e, ebb_node n)
{
    const ebb_graph *g = e->g;
    const ebb_value x = ebb_in(g, n, 0);
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    const double old = ebb_attr_float(&attrs, "momentum", 0.9);
    const double epsilon = ebb_attr_float(&attrs, "epsilon", (double)1e-5f);
    const bool unbiased = ebb_attr_int(&attrs, "unbiased", 1) != 0;
    norm m = norm_of(e, n, x);
    ebb_build *b = &m.b;
    b->name = ebb_value_name(g, ebb_out(g, n, 0));
    const ebb_value mean = times(&m, sum(&m, EBB_OP_REDUCE_SUM, x), 1 / m.n);
    const ebb_value off = ebb_emit(b, EBB_OP_SUB, x, along(&m, mean));
    const ebb_value var = times(&m, sum(&m, EBB_OP_REDUCE_SUM_SQUARE, off), 1 / m.n);
    const ebb_value safe = ebb_emit(b, EBB_OP_ADD, var, ebb_const_like(b, var, epsilon));
    const ebb_value r = ebb_emit(b, EBB_OP_RECIPROCAL, ebb_emit(b, EBB_OP_SQRT, safe));
    const ebb_value slope = ebb_emit(b, EBB_OP_MUL, ebb_in(g, n, 1), r);
    const ebb_value scaled = ebb_emit(b, EBB_OP_MUL, off, along(&m, slope));
    const ebb_value y = ebb_emit(b, EBB_OP_ADD, scaled, along(&m, ebb_in(g, n, 2)));
    const double factor = unbiased && m.n > 1 ? m.n / (m.n - 1) : 1;
    const ebb_value with[] = {y, follow(&m, ebb_in(g, n, 3), old, mean, 1),
                              follow(&m, ebb_in(g, n, 4), old, var, factor), mean, r};
    return replace(e, &m, n, with, 5);
}

static ebb_status backward(ebb_edit *e, ebb_node n)
{
    const ebb_graph *g = e->g;
    const ebb_value dy = ebb_in(g, n, 0), x = ebb_in(g, n, 1), r = ebb_in(g, n, 4);
    norm m = norm_of(e, n, x);
    ebb_build *b = &m.b;
    b->name = ebb_value_name(g, ebb_out(g, n, 0));
    const ebb_value off = ebb_emit(b, EBB_OP_SUB, x, along(&m, ebb_in(g, n, 3)));
    const ebb_value dt = sum(&m, EBB_OP_REDUCE_SUM, dy);
    const ebb_value both = sum(&m, EBB_OP_REDUCE_SUM, ebb_emit(b, EBB_OP_MUL, dy, off));
    const ebb_value ds = ebb_emit(b, EBB_OP_MUL, both, r);
    const ebb_value share = times(&m, ebb_emit(b, EBB_OP_MUL, ds, r), 1 / m.n);
    const ebb_value apart = ebb_emit(b, EBB_OP_SUB, dy, along(&m, times(&m, dt, 1 / m.n)));
    const ebb_value drift = ebb_emit(b, EBB_OP_MUL, off, along(&m, share));
    const ebb_value slope = ebb_emit(b, EBB_OP_MUL, ebb_in(g, n, 2), r);
    const ebb_value rest = ebb_emit(b, EBB_OP_SUB, apart, drift);
    const ebb_value with[] = {ebb_emit(b, EBB_OP_MUL, rest, along(&m, slope)), ds, dt};
    return replace(e, &m, n, with, 3);
}

/* Computed in the dtype of the statistics. */
static ebb_status check(const ebb_graph *g, ebb_node n, ebb_value x)
{
    const ebb_type *t = ebb_value_of(g, x)->type;
    if (!ebb_is_narrow(t) && t->rank >= 2 && t->layout.kind == EBB_LAYOUT_PLAIN)
        return NULL;
    return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                              "%s: batch norm is computed over all processes in float32 and "
                              "float64, with channels in axis 1",
                              ebb_node_label(g, n)),
                    "--batch-norm frozen keeps to its running statistics");
}

ebb_status ebb_sync_norms(ebb_edit *e)
{
    EBB_EACH_NODE(e->g, n) {
        const ebb_op op = ebb_node_of(e->g, n)->op;
        const bool is_gradient = op == EBB_OP_BATCH_NORM_GRAD;
        if (op != EBB_OP_BATCH_NORM_TRAINING && !is_gradient)
            continue;
        EBB_TRY(check(e->g, n, ebb_in(e->g, n, is_gradient)));
        EBB_TRY(is_gradient ? backward(e, n) : forward(e, n));
    }
    return NULL;
}
