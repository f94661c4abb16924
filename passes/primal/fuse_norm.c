/* fuse_norm.c: decomposed LayerNorm and RMSNorm, found from their last node backwards.
 *
 *   LayerNorm   d = x - mean(x)   y = d / sqrt(mean(d^2) + eps) * scale + bias
 *   RMSNorm     y = x / sqrt(mean(x^2) + eps) * scale       with casts around the inner part or not
 *
 * The quotient may be Div, or Mul by Reciprocal or by Div(1, .); the square Pow by 2 or Mul with
 * itself. Hand-written, since as rules each would be two dozen patterns.
 */
#include "passes/primal/fuse_norm.h"

#include "passes/common.h"

typedef struct norm {
    ebb_value x, scale, bias;
    double epsilon;
} norm;

static ebb_node made_by(const ebb_graph *g, ebb_value v, ebb_op op)
{
    ebb_node n = ebb_value_of(g, v)->producer;
    return n.i != 0 && ebb_node_of(g, n)->op == op ? n : EBB_NO_NODE;
}

static bool is_number(const ebb_graph *g, ebb_value v, double x)
{
    double y;
    return v.i != 0 && ebb_scalar_of(g, v, &y) && y == x;
}

/* Mean over the last axis alone, with that axis kept: its input, or none. */
static ebb_value mean_over_last(const ebb_graph *g, ebb_value v, ebb_arena *scratch)
{
    int64_t axis;
    const ebb_node n = ebb_reduced_by(g, v, EBB_OP_REDUCE_MEAN, &axis, scratch);
    const bool last = n.i != 0 && axis == ebb_value_of(g, v)->type->rank - 1;
    return last ? ebb_in(g, n, 0) : EBB_NO_VALUE;
}

/* The value whose square v is, or none. */
static ebb_value square_root_of(const ebb_graph *g, ebb_value v)
{
    ebb_node n = made_by(g, v, EBB_OP_POW);
    if (n.i != 0 && is_number(g, ebb_in(g, n, 1), 2))
        return ebb_in(g, n, 0);
    n = made_by(g, v, EBB_OP_MUL);
    if (n.i != 0 && ebb_same_value(ebb_in(g, n, 0), ebb_in(g, n, 1)))
        return ebb_in(g, n, 0);
    return EBB_NO_VALUE;
}

/* v = sqrt(mean(d^2) + epsilon): d, or none. */
static ebb_value deviation_under(const ebb_graph *g, ebb_value v, double *epsilon,
                                 ebb_arena *scratch)
{
    ebb_node root = made_by(g, v, EBB_OP_SQRT);
    ebb_node sum = root.i != 0 ? made_by(g, ebb_in(g, root, 0), EBB_OP_ADD) : EBB_NO_NODE;
    for (uint32_t i = 0; i < 2 && sum.i != 0; i++) {
        if (!ebb_scalar_of(g, ebb_in(g, sum, 1 - i), epsilon))
            continue;
        ebb_value squares = mean_over_last(g, ebb_in(g, sum, i), scratch);
        return squares.i != 0 ? square_root_of(g, squares) : EBB_NO_VALUE;
    }
    return EBB_NO_VALUE;
}

/* v = d / sqrt(mean(d^2) + epsilon), however written: d, or none. */
static ebb_value normalised(const ebb_graph *g, ebb_value v, double *epsilon, ebb_arena *scratch)
{
    ebb_node n = made_by(g, v, EBB_OP_DIV);
    if (n.i != 0) {
        ebb_value d = deviation_under(g, ebb_in(g, n, 1), epsilon, scratch);
        return d.i != 0 && ebb_same_value(d, ebb_in(g, n, 0)) ? d : EBB_NO_VALUE;
    }
    n = made_by(g, v, EBB_OP_MUL);
    for (uint32_t i = 0; i < 2 && n.i != 0; i++) {
        ebb_node inverse = made_by(g, ebb_in(g, n, i), EBB_OP_RECIPROCAL);
        ebb_value under = inverse.i != 0 ? ebb_in(g, inverse, 0) : EBB_NO_VALUE;
        if (inverse.i == 0) {
            inverse = made_by(g, ebb_in(g, n, i), EBB_OP_DIV);
            if (inverse.i == 0 || !is_number(g, ebb_in(g, inverse, 0), 1))
                continue;
            under = ebb_in(g, inverse, 1);
        }
        ebb_value d = deviation_under(g, under, epsilon, scratch);
        if (d.i != 0 && ebb_same_value(d, ebb_in(g, n, 1 - i)))
            return d;
    }
    return EBB_NO_VALUE;
}

static bool is_vector_of_last(const ebb_graph *g, ebb_value v, ebb_value x)
{
    const ebb_type *a = ebb_value_of(g, v)->type, *b = ebb_value_of(g, x)->type;
    return a->rank == 1 && b->rank >= 1 && a->dims[0] > 0 && a->dims[0] == b->dims[b->rank - 1];
}

/* n = Mul(inner, scale) with inner normalised, seen through a Cast. */
static bool scaled(const ebb_graph *g, ebb_node n, norm *out, ebb_value *d, ebb_arena *scratch)
{
    if (n.i == 0 || ebb_node_of(g, n)->op != EBB_OP_MUL)
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        ebb_value inner = ebb_in(g, n, i);
        ebb_node cast = made_by(g, inner, EBB_OP_CAST);
        if (cast.i != 0)
            inner = ebb_in(g, cast, 0);
        *d = normalised(g, inner, &out->epsilon, scratch);
        out->scale = ebb_in(g, n, 1 - i);
        if (d->i != 0 && is_vector_of_last(g, out->scale, *d))
            return true;
    }
    return false;
}

static ebb_status replace(ebb_edit *e, ebb_node n, ebb_value y)
{
    ebb_applied(e);
    return ebb_edit_swap(e, n, y);
}

ebb_status ebb_fuse_layer_norm(ebb_edit *e, ebb_node n, bool *done)
{
    ebb_graph *g = e->g;
    norm f = {0};
    ebb_value d = EBB_NO_VALUE;
    *done = false;
    if (ebb_node_of(g, n)->op != EBB_OP_ADD)
        return NULL;
    for (uint32_t i = 0; i < 2 && d.i == 0; i++) {
        ebb_node product = made_by(g, ebb_in(g, n, i), EBB_OP_MUL);
        f.bias = ebb_in(g, n, 1 - i);
        if (!scaled(g, product, &f, &d, e->scratch) || !is_vector_of_last(g, f.bias, d))
            d = EBB_NO_VALUE;
    }
    ebb_node minus = d.i != 0 ? made_by(g, d, EBB_OP_SUB) : EBB_NO_NODE;
    if (minus.i == 0)
        return NULL;
    f.x = ebb_in(g, minus, 0);
    ebb_value mean_of = mean_over_last(g, ebb_in(g, minus, 1), e->scratch);
    uint8_t out_dtype = ebb_value_of(g, ebb_out(g, n, 0))->type->dtype;
    if (mean_of.i == 0 || !ebb_same_value(mean_of, f.x) ||
        ebb_value_of(g, f.x)->type->dtype != out_dtype)
        return NULL;
    *done = true;
    if (ebb_model_opset(g->model, "") < 17)
        return ebb_declined(e, n, "LayerNormalization needs opset 17");
    ebb_found(e);
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    b.name = ebb_node_name(g, n);
    ebb_with_int(&b, "axis", -1);
    ebb_with_float(&b, "epsilon", f.epsilon);
    ebb_value y = ebb_emit(&b, EBB_OP_LAYER_NORMALIZATION, f.x, f.scale, f.bias);
    EBB_TRY(b.status);
    return replace(e, n, y);
}

ebb_status ebb_fuse_rms_norm(ebb_edit *e, ebb_node n, bool *done)
{
    ebb_graph *g = e->g;
    norm f = {0};
    ebb_value d;
    *done = false;
    if (!scaled(g, n, &f, &d, e->scratch) || made_by(g, d, EBB_OP_SUB).i != 0)
        return NULL; // a difference: LayerNorm without bias, or not one of ours
    uint8_t out_dtype = ebb_value_of(g, ebb_out(g, n, 0))->type->dtype;
    ebb_node cast = made_by(g, d, EBB_OP_CAST);
    f.x = cast.i != 0 ? ebb_in(g, cast, 0) : d;
    if (ebb_value_of(g, f.x)->type->dtype != out_dtype)
        f.x = d;
    if (ebb_value_of(g, f.x)->type->dtype != out_dtype)
        return NULL;
    *done = true;
    ebb_found(e);
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    b.name = ebb_node_name(g, n);
    ebb_with_int(&b, "axis", -1);
    ebb_with_float(&b, "epsilon", f.epsilon);
    ebb_value y = ebb_emit(&b, EBB_OP_RMS_NORM, f.x, f.scale);
    EBB_TRY(b.status);
    return replace(e, n, y);
}
