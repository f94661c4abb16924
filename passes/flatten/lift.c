/* lift.c: see lift.h. */
#include "passes/flatten/lift.h"

#include "passes/flatten/constants.h"

enum { SMALL_BYTES = 1 << 12 }; /* constants of a body up to this size stay in it */

ebb_edit ebb_lift_edit(const ebb_unroll *u, ebb_graph *body, ebb_report *report)
{
    ebb_edit inner = *u->e;
    *report = (ebb_report){.pass = u->e->pass->name};
    inner.g = body;
    inner.report = report;
    return inner;
}

/* ---- initializers ---- */

/* A stand-in in the body for `outside`; what read `old` reads it. */
static ebb_status read_outside(ebb_graph *body, ebb_value old, const char *outside,
                               const ebb_type *type)
{
    ebb_value taken = ebb_value_find(body, outside), v;
    if (taken.i != 0)
        EBB_TRY(ebb_value_step_aside(body, taken, outside));
    EBB_TRY(ebb_value_add(body, &v, outside, type));
    ebb_value_of(body, v)->flags |= EBB_IS_OUTER;
    return ebb_value_replace(body, old, v);
}

ebb_status ebb_lift_weights(ebb_unroll *u, ebb_edit *inner)
{
    ebb_graph *body = inner->g;
    for (size_t i = body->initializer_count; i-- > 0;) {
        ebb_value v = body->initializers[i], made;
        const ebb_value_info *info = ebb_value_of(body, v);
        int64_t count;
        if (info->tensor == NULL || info->tensor->data == NULL ||
            (info->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT)) != 0 ||
            !ebb_type_elements(info->type, &count))
            continue;
        bool floats = ebb_dtype_is_float((ebb_dtype)info->type->dtype) && count > 1;
        if (!floats && info->tensor->bytes <= SMALL_BYTES)
            continue;
        EBB_TRY(ebb_graph_add_initializer(u->g, &made, ebb_value_name(body, v), info->type,
                                          info->tensor->data, (ebb_role)info->role));
        EBB_TRY(ebb_props_set_all(u->g, &ebb_value_of(u->g, made)->props, body, &info->props));
        ebb_value_of(u->g, made)->flags |= EBB_IS_CAPTURED;
        EBB_TRY(read_outside(body, v, ebb_value_name(u->g, made), ebb_value_of(body, v)->type));
        ebb_graph_remove_initializer(body, v);
        ebb_applied(inner);
    }
    return NULL;
}

/* ---- nodes ---- */

static bool is_same_in_each_step(const ebb_graph *body, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(body, n);
    bool any = false;
    if (info->op == EBB_OP_UNKNOWN || ebb_op_has(info->op, EBB_RANDOM | EBB_BODIES))
        return false;
    for (uint32_t i = 0; i < info->in_count; i++) {
        const uint8_t flags = ebb_value_of(body, info->in[i])->flags;
        if (info->in[i].i != 0 && (flags & (EBB_IS_OUTER | EBB_IS_INITIALIZER)) == 0)
            return false;
        any = any || (flags & EBB_IS_OUTER) != 0;
    }
    for (uint32_t k = 0; k < info->out_count; k++)
        if ((ebb_value_of(body, info->out[k])->flags & EBB_IS_OUTPUT) != 0)
            return false;
    return any;
}

/* A node of the body becomes one before the loop. */
static ebb_status put_before(ebb_unroll *u, ebb_edit *inner, ebb_node loop, ebb_node n)
{
    ebb_graph *g = u->g, *body = inner->g;
    const ebb_node_info *info = ebb_node_of(body, n);
    const uint32_t in_count = info->in_count, out_count = info->out_count;
    ebb_value *in = EBB_SCRATCH(u->e, ebb_value, in_count + 1u);
    ebb_value *out = EBB_SCRATCH(u->e, ebb_value, out_count + 1u);
    ebb_node put;
    EBB_GOT(in && out);
    for (uint32_t i = 0; i < in_count; i++) {
        const ebb_value_info *x = ebb_value_of(body, info->in[i]);
        if ((x->flags & EBB_IS_OUTER) != 0)
            in[i] = ebb_value_find(g, ebb_text(body, x->name));
        else if (info->in[i].i != 0)
            EBB_TRY(ebb_graph_add_initializer(g, &in[i], ebb_text(body, x->name), x->type,
                                              x->tensor->data, (ebb_role)x->role));
    }
    for (uint32_t k = 0; k < out_count; k++)
        if (info->out[k].i != 0)
            EBB_TRY(ebb_value_add(g, &out[k], ebb_value_name(body, info->out[k]),
                                  ebb_value_of(body, info->out[k])->type));
    EBB_TRY(ebb_node_add(g, &put, loop, ebb_text(body, info->domain), ebb_text(body, info->op_name),
                         in, in_count, out, out_count));
    EBB_TRY(ebb_node_set_attrs(g, put, info->attr, info->attr_count));
    ebb_node_of(g, put)->name = info->name;
    ebb_node_of(g, put)->phase = ebb_node_of(g, loop)->phase;
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, put)->props, "ebb.pass", u->e->pass->name));
    for (uint32_t k = 0; k < out_count; k++)
        if (out[k].i != 0)
            EBB_TRY(read_outside(body, info->out[k], ebb_value_name(g, out[k]),
                                 ebb_value_of(g, out[k])->type));
    ebb_edit_remove(inner, n);
    ebb_applied(inner);
    return NULL;
}

ebb_status ebb_lift_same(ebb_unroll *u, ebb_edit *inner, ebb_node loop)
{
    for (ebb_node n = ebb_first(inner->g), next; n.i != 0; n = next) {
        next = ebb_next(inner->g, n);
        if (is_same_in_each_step(inner->g, n))
            EBB_TRY(put_before(u, inner, loop, n));
    }
    return NULL;
}

/* ---- bodies within bodies ---- */

/* What no operator takes as a weight, a table. */
static ebb_status lift_constants(ebb_unroll *u, ebb_edit *inner, ebb_node around)
{
    for (ebb_node n = ebb_first(inner->g), next; n.i != 0; n = next) {
        const ebb_tensor *t = NULL;
        int64_t count;
        next = ebb_next(inner->g, n);
        if (ebb_node_of(inner->g, n)->op == EBB_OP_CONSTANT &&
            (ebb_value_of(inner->g, ebb_out(inner->g, n, 0))->flags & EBB_IS_OUTPUT) == 0)
            t = ebb_value_constant(inner->g, ebb_out(inner->g, n, 0));
        if (t != NULL && ebb_dtype_is_float((ebb_dtype)t->type.dtype) &&
            ebb_type_elements(&t->type, &count) && count > 1)
            EBB_TRY(put_before(u, inner, around, n));
    }
    return NULL;
}

static ebb_status lift_within(ebb_unroll *u, bool is_body)
{
    EBB_EACH_NODE(u->g, n)
        EBB_EACH_BODY(ebb_node_of(u->g, n), body) {
            ebb_report unread;
            ebb_edit inner = ebb_lift_edit(u, *body, &unread);
            ebb_unroll v = {.e = &inner, .g = inner.g, .most = u->most};
            EBB_TRY(lift_within(&v, true));
            if (!is_body)
                continue;
            EBB_TRY(ebb_constant_take_weights(&inner));
            EBB_TRY(ebb_lift_weights(u, &inner));
            EBB_TRY(lift_constants(u, &inner, n));
        }
    ebb_captures_mark(u->g);
    return NULL;
}

ebb_status ebb_lift_within(ebb_unroll *u)
{
    return lift_within(u, false);
}
