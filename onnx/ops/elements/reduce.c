/* reduce: sums, means and extrema over axes; the place of an extremum; running sums. */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* ---- inference ---- */

/* Axes as an attribute (opsets before 13 and 18) or as input 1. */
ebb_status ebb_infer_reduce(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    bool keep = ebb_attr_int(&c->attrs, "keepdims", 1) != 0, known;
    bool reduced[EBB_MAX_RANK];
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (x->kind != EBB_KIND_TENSOR || x->rank < 0)
        return NULL;
    EBB_TRY(ebb_infer_axes(c, x->rank, reduced, &known));
    if (!known) {
        const ebb_type *axes = ebb_infer_type(c, 1);
        if (keep)
            c->out[0] = ebb_type_ranked((ebb_dtype)x->dtype, x->rank);
        else if (axes != NULL && axes->rank == 1 && axes->dims[0] > 0 && axes->dims[0] <= x->rank)
            c->out[0] = ebb_type_ranked((ebb_dtype)x->dtype, x->rank - (int)axes->dims[0]);
        return NULL;
    }
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, 0);
    for (int i = 0; i < x->rank; i++) {
        if (!reduced[i])
            ebb_type_put_dim(&out, out.rank++, x, i);
        else if (keep)
            ebb_type_set_dim(&out, out.rank++, 1);
    }
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_arg(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    bool keep = ebb_attr_int(&c->attrs, "keepdims", 1) != 0;
    c->out[0] = ebb_type_unranked(EBB_I64);
    if (x->kind != EBB_KIND_TENSOR || x->rank < 0)
        return NULL;
    int axis;
    EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->rank, &axis));
    ebb_type out = ebb_type_ranked(EBB_I64, 0);
    for (int i = 0; i < x->rank; i++) {
        if (i != axis)
            ebb_type_put_dim(&out, out.rank++, x, i);
        else if (keep)
            ebb_type_set_dim(&out, out.rank++, 1);
    }
    c->out[0] = out;
    return NULL;
}

/* One operation for an element of the input. */
double ebb_cost_reduce(const ebb_infer *c)
{
    return ebb_type_count(ebb_infer_type(c, 0));
}

/* ---- gradients ---- */

/* What the rules need to know of a reduction. */
typedef struct span {
    ebb_type x;    /* type of the input */
    ebb_type kept; /* the output's, with the reduced axes kept as 1 */
    int64_t axes[EBB_MAX_RANK];
    uint32_t count;  /* of axes */
    double elements; /* that make one output element */
} span;

/* False, with the error noted, where the axes cannot be told. */
static bool look(ebb_build *b, const ebb_grad *c, span *s)
{
    bool reduced[EBB_MAX_RANK] = {false};
    const int64_t *list = NULL;
    int64_t copy[EBB_MAX_RANK];
    uint32_t count = 0;
    s->x = *ebb_build_type(b, c->x[0]);
    if (!ebb_type_is_static(&s->x)) {
        ebb_grad_fail(b, c, "the shape of its input is not known");
        return false;
    }
    bool global = ebb_node_of(b->g, c->node)->op == EBB_OP_GLOBAL_MAX_POOL;
    if (!global) // its attribute of that name, if a file gives it one, means nothing
        list = ebb_attr_ints(&c->attrs, "axes", &count);
    if (list == NULL && c->input_count > 1 && c->x[1].i != 0) {
        const ebb_tensor *t = ebb_value_constant(b->g, c->x[1]);
        int64_t n;
        if (t == NULL || t->data == NULL || !ebb_type_elements(&t->type, &n) || n > EBB_MAX_RANK) {
            ebb_grad_fail(b, c, "its axes are not constant");
            return false;
        }
        for (count = 0; count < n; count++)
            copy[count] = ebb_tensor_int(t, count);
        list = copy;
    }
    bool all = count == 0 && !global && ebb_attr_int(&c->attrs, "noop_with_empty_axes", 0) == 0;
    for (int i = 0; i < s->x.rank; i++)
        reduced[i] = all || (global && i >= 2);
    for (uint32_t k = 0; k < count; k++) {
        if (list[k] < -s->x.rank || list[k] >= s->x.rank) {
            ebb_grad_fail(b, c, "an axis lies outside of its input's rank");
            return false;
        }
        reduced[list[k] < 0 ? list[k] + s->x.rank : list[k]] = true;
    }
    s->kept = s->x;
    s->count = 0;
    s->elements = 1.0;
    for (int i = 0; i < s->x.rank; i++)
        if (reduced[i]) {
            s->axes[s->count++] = i;
            s->elements *= (double)s->x.dims[i];
            s->kept.dims[i] = 1;
        }
    return true;
}

/* v, of the output's shape, with the reduced axes as 1: it broadcasts against x. */
static ebb_value keep(ebb_build *b, const span *s, ebb_value v)
{
    return ebb_emit_reshape(b, v, s->kept.dims, s->kept.rank);
}

static ebb_value spread(ebb_build *b, const ebb_grad *c, ebb_value kept)
{
    return ebb_emit_expand_like(b, kept, c->x[0]);
}

/* y = sum x.  dx = dy, spread. */
void ebb_grad_reduce_sum(ebb_build *b, ebb_grad *c)
{
    span s;
    if (look(b, c, &s))
        c->dx[0] = spread(b, c, keep(b, &s, c->dy[0]));
}

/* y = sum x / n.  dx = dy / n, divided before it is spread. */
void ebb_grad_reduce_mean(ebb_build *b, ebb_grad *c)
{
    span s;
    if (!look(b, c, &s))
        return;
    ebb_value share = c->dy[0];
    if (s.elements != 1.0)
        share = ebb_emit(b, EBB_OP_DIV, share, ebb_const_like(b, share, s.elements));
    c->dx[0] = spread(b, c, keep(b, &s, share));
}

/* y = max x, or min.  dx = dy / (number of equals) where x = y, else 0. */
void ebb_grad_reduce_max(ebb_build *b, ebb_grad *c)
{
    span s;
    if (!look(b, c, &s))
        return;
    ebb_value hit = ebb_emit(b, EBB_OP_EQUAL, c->x[0], keep(b, &s, c->y[0]));
    ebb_value hits = ebb_emit_cast(b, hit, (ebb_dtype)s.x.dtype);
    if (s.count > 0)
        hits = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, hits, s.axes, s.count, true);
    ebb_value share = ebb_emit(b, EBB_OP_DIV, keep(b, &s, c->dy[0]), hits);
    c->dx[0] = ebb_emit(b, EBB_OP_WHERE, hit, share, ebb_const_like(b, c->x[0], 0.0));
}

/* y = sum |x|.  dx = dy sign x. */
void ebb_grad_reduce_l1(ebb_build *b, ebb_grad *c)
{
    span s;
    if (look(b, c, &s))
        c->dx[0] =
            ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_SIGN, c->x[0]), keep(b, &s, c->dy[0]));
}

/* y = ln sum x.  dx = dy / sum x = dy e^-y, spread. */
void ebb_grad_reduce_log_sum(ebb_build *b, ebb_grad *c)
{
    span s;
    if (!look(b, c, &s))
        return;
    ebb_value share = ebb_emit(b, EBB_OP_EXP, ebb_emit(b, EBB_OP_NEG, c->y[0]));
    c->dx[0] = spread(b, c, keep(b, &s, ebb_emit(b, EBB_OP_MUL, c->dy[0], share)));
}

/* y = sqrt(sum x^2).  dx = x dy / y, and 0 where y = 0. */
void ebb_grad_reduce_l2(ebb_build *b, ebb_grad *c)
{
    span s;
    if (!look(b, c, &s))
        return;
    ebb_value zero = ebb_const_like(b, c->y[0], 0.0);
    ebb_value unit = ebb_emit(b, EBB_OP_DIV, c->dy[0], c->y[0]);
    unit = ebb_emit(b, EBB_OP_WHERE, ebb_emit(b, EBB_OP_EQUAL, c->y[0], zero), zero, unit);
    c->dx[0] = ebb_emit(b, EBB_OP_MUL, c->x[0], keep(b, &s, unit));
}

/* y = product of x.  dx_i = dy times all others: x_i divided out of the product of those that are
 * not zero, where none of the others is zero; else 0. */
void ebb_grad_reduce_prod(ebb_build *b, ebb_grad *c)
{
    span s;
    if (!look(b, c, &s))
        return;
    ebb_value zero = ebb_const_like(b, c->x[0], 0.0), one = ebb_const_like(b, c->x[0], 1.0);
    ebb_value is_zero = ebb_emit(b, EBB_OP_EQUAL, c->x[0], zero);
    ebb_value safe = ebb_emit(b, EBB_OP_WHERE, is_zero, one, c->x[0]), all = safe;
    ebb_value own = ebb_emit_cast(b, is_zero, (ebb_dtype)s.x.dtype), zeros = own;
    if (s.count > 0) {
        all = ebb_emit_reduce(b, EBB_OP_REDUCE_PROD, safe, s.axes, s.count, true);
        zeros = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, own, s.axes, s.count, true);
    }
    ebb_value others = ebb_emit(b, EBB_OP_EQUAL, zeros, own); // none of them is zero
    ebb_value part = ebb_emit(b, EBB_OP_MUL, all, keep(b, &s, c->dy[0]));
    part = ebb_emit(b, EBB_OP_DIV, part, safe);
    c->dx[0] = ebb_emit(b, EBB_OP_WHERE, others, part, zero);
}

/* y = sum x^2.  dx = 2 x dy. */
void ebb_grad_reduce_sum_square(ebb_build *b, ebb_grad *c)
{
    span s;
    if (look(b, c, &s))
        c->dx[0] = ebb_emit(b, EBB_OP_MUL, c->x[0], keep(b, &s, ebb_emit_scaled(b, c->dy[0], 2.0)));
}

/* y = ln sum e^x.  dx = dy e^(x - y). */
void ebb_grad_reduce_log_sum_exp(ebb_build *b, ebb_grad *c)
{
    span s;
    if (!look(b, c, &s))
        return;
    ebb_value part = ebb_emit(b, EBB_OP_SUB, c->x[0], keep(b, &s, c->y[0]));
    c->dx[0] = ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_EXP, part), keep(b, &s, c->dy[0]));
}

/* y_i = sum of x_j up to i.  dx_j = sum of dy_i from j on: the same the other way round. */
void ebb_grad_cum_sum(ebb_build *b, ebb_grad *c)
{
    ebb_with_int(b, "exclusive", ebb_attr_int(&c->attrs, "exclusive", 0));
    ebb_with_int(b, "reverse", ebb_attr_int(&c->attrs, "reverse", 0) == 0);
    c->dx[0] = ebb_emit(b, EBB_OP_CUM_SUM, c->dy[0], c->x[1]);
}

/* CumSum or CumProd with the node's own way of counting; `back`: from the other end. */
static ebb_value cumulate(ebb_build *b, const ebb_grad *c, ebb_op op, ebb_value x, bool exclusive,
                          bool back)
{
    bool reverse = ebb_attr_int(&c->attrs, "reverse", 0) != 0;
    ebb_with_int(b, "exclusive", exclusive);
    ebb_with_int(b, "reverse", reverse != back);
    return ebb_emit(b, op, x, c->x[1]);
}

/* y_i = product of x_j up to i.  dx_j = sum over i from j on of dy_i y_i / x_j before the first
 * zero of the line; at it the same with the products of all others, and behind it 0. */
void ebb_grad_cum_prod(ebb_build *b, ebb_grad *c)
{
    bool exclusive = ebb_attr_int(&c->attrs, "exclusive", 0) != 0;
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, c->x[0])->dtype;
    ebb_value zero = ebb_const_like(b, c->x[0], 0.0), one = ebb_const_like(b, c->x[0], 1.0);
    ebb_value is_zero = ebb_emit(b, EBB_OP_EQUAL, c->x[0], zero);
    ebb_value safe = ebb_emit(b, EBB_OP_WHERE, is_zero, one, c->x[0]);
    ebb_value zeros = ebb_emit_cast(b, is_zero, dtype);
    ebb_value before = cumulate(b, c, EBB_OP_CUM_SUM, zeros, false, false); // and here
    ebb_value none = ebb_emit(b, EBB_OP_EQUAL, before, zero);
    ebb_value first = ebb_emit(b, EBB_OP_AND, is_zero, ebb_emit(b, EBB_OP_EQUAL, before, one));
    ebb_value without = ebb_emit(b, EBB_OP_WHERE, first, one, c->x[0]);
    ebb_value others = cumulate(b, c, EBB_OP_CUM_PROD, without, exclusive, false);
    ebb_value at_zero = ebb_emit(b, EBB_OP_MUL, c->dy[0], others);
    ebb_value ahead = ebb_emit(b, EBB_OP_MUL, c->dy[0], c->y[0]);
    at_zero = cumulate(b, c, EBB_OP_CUM_SUM, at_zero, exclusive, true);
    ahead = cumulate(b, c, EBB_OP_CUM_SUM, ahead, exclusive, true);
    ahead = ebb_emit(b, EBB_OP_WHERE, none, ebb_emit(b, EBB_OP_DIV, ahead, safe), zero);
    c->dx[0] = ebb_emit(b, EBB_OP_WHERE, first, at_zero, ahead);
}
