/* sign.c: questions about the sign of a value, and their answers from bits. */
#include "passes/memory/sign.h"

#include "passes/memory/decode.h"

#include <math.h>

typedef ebb_sign_question question;

static void ask_bounds(question *q, const ebb_graph *g, ebb_value low, ebb_value high)
{
    if ((low.i != 0 && !ebb_scalar_of(g, low, &q->low)) ||
        (high.i != 0 && !ebb_scalar_of(g, high, &q->high)))
        q->refused = "a bound of the Clip is not constant";
    else if (q->low != (double)(float)q->low || q->high != (double)(float)q->high)
        q->refused = "a bound has more digits than an attribute holds";
}

/* Greater or Less of a value of the forward and a constant, in either order. */
static void ask_comparison(question *q, const ebb_graph *g, ebb_node n, bool greater)
{
    ebb_value a = ebb_in(g, n, 0), b = ebb_in(g, n, 1), out = ebb_out(g, n, 0);
    double x;
    bool swapped = ebb_scalar_of(g, a, &x);
    if (!swapped && !ebb_scalar_of(g, b, &x))
        return;
    ebb_value v = swapped ? b : a;
    ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, v)->type->dtype;
    if (!ebb_dtype_is_float(dtype) ||
        !ebb_type_same_shape(ebb_value_of(g, v)->type, ebb_value_of(g, out)->type) || isinf(x) ||
        x != (double)(float)x)
        return;
    q->v = v;
    q->compares = true;
    if (greater != swapped)
        q->low = x;
    else
        q->high = x;
}

question ebb_sign_asked(const ebb_graph *g, ebb_node n)
{
    const double infinity = (double)INFINITY;
    question q = {.node = n, .low = -infinity, .high = infinity};
    ebb_attrs attrs = ebb_node_attrs(g, n);
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_RELU_GRAD:
        q.low = 0;
        q.v = ebb_in(g, n, 1);
        break;
    case EBB_OP_LEAKY_RELU_GRAD:
        q.low = 0;
        q.v = ebb_in(g, n, 1);
        q.alpha = ebb_attr_float(&attrs, "alpha", 0.01);
        if (q.alpha == 0 || isnan(q.alpha))
            q.refused = "its slope is 0 or no number";
        break;
    case EBB_OP_CLIP_GRAD:
        q.v = ebb_in(g, n, 1);
        ask_bounds(&q, g, ebb_in(g, n, 2), ebb_in(g, n, 3));
        break;
    case EBB_OP_GREATER:
    case EBB_OP_LESS:
        ask_comparison(&q, g, n, ebb_node_of(g, n)->op == EBB_OP_GREATER);
        break;
    default:
        break;
    }
    return q;
}

bool ebb_asks_sign(const ebb_graph *g, ebb_use use, question *q)
{
    *q = ebb_sign_asked(g, use.node);
    return use.slot == 1 && q->v.i != 0 && !q->compares && q->refused == NULL;
}

bool ebb_sign_same(const question *a, const question *b)
{
    return ebb_same_value(a->v, b->v) && a->low == b->low && a->high == b->high;
}

/* The mask that an earlier question about v has made with the same bounds, or none. */
static ebb_value existing_mask(const ebb_graph *g, const question *q)
{
    const ebb_value_info *info = ebb_value_of(g, q->v);
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        ebb_attrs attrs = ebb_node_attrs(g, n);
        if (ebb_node_of(g, n)->op == EBB_OP_PACK_SIGN && !ebb_is_backward(g, n) &&
            ebb_attr_float(&attrs, "low", 0) == q->low &&
            ebb_attr_float(&attrs, "high", (double)INFINITY) == q->high)
            return ebb_out(g, n, 0);
    }
    return EBB_NO_VALUE;
}

ebb_status ebb_sign_mask(ebb_edit *e, const question *q)
{
    ebb_graph *g = e->g;
    ebb_value m = existing_mask(g, q), old = ebb_out(g, q->node, 0), made;
    if (m.i == 0) {
        ebb_build b = ebb_encode_after(e, q->v);
        if (q->low != 0)
            ebb_with_float(&b, "low", q->low);
        if (!isinf(q->high))
            ebb_with_float(&b, "high", q->high);
        m = ebb_emit(&b, EBB_OP_PACK_SIGN, q->v);
        EBB_TRY(b.status);
    }
    ebb_build b = ebb_edit_build_for(e, q->node);
    if (q->compares) {
        ebb_type type = *ebb_value_of(g, old)->type;
        ebb_with_ints(&b, "shape", type.dims, (uint32_t)type.rank);
        made = ebb_emit(&b, EBB_OP_UNPACK_BITS, m);
    } else {
        if (q->alpha != 0)
            ebb_with_float(&b, "alpha", q->alpha);
        made = ebb_emit(&b, EBB_OP_MASK_GRAD, ebb_in(g, q->node, 0), m);
    }
    EBB_TRY(b.status);
    return ebb_edit_swap(e, q->node, made);
}
