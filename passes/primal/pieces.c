/* pieces.c: see pieces.h. */
#include "passes/primal/pieces.h"

#include "onnx/graph/infer.h"
#include "passes/common.h"

/* ---- lengths ---- */

static int64_t start_of(const ebb_pieces *s, int64_t part)
{
    const int64_t rest = s->steps % s->parts;
    return s->steps / s->parts * part + (part < rest ? part : rest);
}

/* Where part p lies in what it walks through. */
static void range_of(const ebb_pieces *s, const ebb_whole *w, uint32_t p, int64_t *from,
                     int64_t *to)
{
    *from = w->backwards ? s->steps - start_of(s, p + (int64_t)1) : start_of(s, p);
    *to = *from + start_of(s, p + (int64_t)1) - start_of(s, p);
}

/* ---- nodes ---- */

static ebb_build build(const ebb_pieces *s)
{
    ebb_build b = ebb_edit_build(s->e, s->before, EBB_PHASE_NONE);
    b.name = s->name;
    return b;
}

ebb_status ebb_pieces_add_node(const ebb_pieces *s, ebb_node *made, const char *op,
                               const char *name, const ebb_value *in, uint32_t in_count,
                               const ebb_value *out, uint32_t out_count)
{
    EBB_TRY(ebb_node_add(s->g, made, s->before, EBB_DOMAIN_ONNX, op, in, in_count, out, out_count));
    ebb_node_info *info = ebb_node_of(s->g, *made);
    info->name = ebb_graph_fresh(s->g, name);
    info->phase = ebb_node_of(s->g, s->n)->phase;
    EBB_GOT(info->name.i != 0);
    return ebb_props_set(s->g, &info->props, "ebb.pass", s->e->pass->name);
}

ebb_status ebb_pieces_add_value(const ebb_pieces *s, ebb_value *v, const char *name)
{
    const ebb_type open = ebb_type_none();
    return ebb_value_add(s->g, v, name, &open);
}

/* ---- what is walked through ---- */

/* A Squeeze that leaves the first axis where it is, which is the one walked along. */
static ebb_node squeezed_by(const ebb_pieces *s, const ebb_whole *w)
{
    const ebb_node by = ebb_value_of(s->g, w->v)->producer;
    const int64_t *axes;
    uint32_t count;
    if (ebb_producer_op(s->g, w->v) != EBB_OP_SQUEEZE || w->axis != 0 ||
        !ebb_ints_of(s->g, ebb_in(s->g, by, 1), s->e->scratch, &axes, &count))
        return EBB_NO_NODE;
    for (uint32_t i = 0; i < count; i++)
        if (axes[i] <= 0) // one that is counted from the end is not worth the while
            return EBB_NO_NODE;
    return by;
}

/* The Concat that puts v together of such pieces; none: it is not. */
static ebb_node joined_by(const ebb_pieces *s, const ebb_whole *w)
{
    const ebb_value v = w->squeeze.i != 0 ? ebb_in(s->g, w->squeeze, 0) : w->v;
    const ebb_node by = ebb_value_of(s->g, v)->producer;
    const ebb_node_info *info = ebb_node_of(s->g, by);
    if (by.i == 0 || info->op != EBB_OP_CONCAT || info->in_count != s->parts)
        return EBB_NO_NODE;
    ebb_attrs attrs = ebb_node_attrs(s->g, by);
    if (ebb_attr_int(&attrs, "axis", -1) != w->axis)
        return EBB_NO_NODE;
    for (uint32_t p = 0; p < s->parts; p++) {
        int64_t from, to;
        range_of(s, w, p, &from, &to);
        const ebb_type *type =
            ebb_value_of(s->g, info->in[w->backwards ? s->parts - 1 - p : p])->type;
        if (type->rank <= w->axis || type->dims[w->axis] != to - from)
            return EBB_NO_NODE;
    }
    return by;
}

static bool is_table(const ebb_pieces *s, const ebb_whole *w)
{
    const ebb_tensor *t = ebb_value_constant(s->g, w->v);
    return t != NULL && t->data != NULL && w->axis == 0 &&
           !ebb_dtype_is_float((ebb_dtype)t->type.dtype) &&
           ebb_dtype_bits((ebb_dtype)t->type.dtype) >= 8;
}

/* Rows of a table that the model has are tables of their own. */
static ebb_status take_rows(const ebb_pieces *s, const ebb_whole *w, uint32_t p, ebb_value *piece)
{
    const ebb_tensor *t = ebb_value_constant(s->g, w->v);
    ebb_type type = t->type;
    int64_t from, to;
    range_of(s, w, p, &from, &to);
    type.dims[0] = to - from;
    const size_t row = t->bytes / (size_t)s->steps;
    return ebb_graph_add_initializer(s->g, piece, ebb_value_name(s->g, w->v), &type,
                                     (const char *)t->data + (size_t)from * row, EBB_ROLE_CONSTANT);
}

static ebb_status split(const ebb_pieces *s, ebb_whole *w)
{
    int64_t *lengths = EBB_SCRATCH(s->e, int64_t, s->parts);
    ebb_value *in_order = EBB_SCRATCH(s->e, ebb_value, s->parts);
    ebb_build b = build(s);
    ebb_node made;
    EBB_GOT(lengths && in_order);
    for (uint32_t p = 0; p < s->parts; p++) {
        const uint32_t at = w->backwards ? s->parts - 1 - p : p;
        lengths[at] = start_of(s, p + (int64_t)1) - start_of(s, p);
    }
    const ebb_value in[2] = {w->v, ebb_const_ints(&b, lengths, s->parts)};
    EBB_TRY(b.status);
    for (uint32_t p = 0; p < s->parts; p++)
        EBB_TRY(ebb_pieces_add_value(s, &in_order[p], ebb_value_name(s->g, w->v)));
    EBB_TRY(ebb_pieces_add_node(s, &made, "Split", s->name, in, 2, in_order, s->parts));
    EBB_TRY(ebb_node_set_int(s->g, made, "axis", w->axis));
    for (uint32_t p = 0; p < s->parts; p++)
        w->piece[p] = in_order[w->backwards ? s->parts - 1 - p : p];
    return ebb_infer_node(s->g, made);
}

ebb_status ebb_whole_open(const ebb_pieces *s, ebb_whole *w)
{
    w->squeeze = squeezed_by(s, w);
    const ebb_node concat = joined_by(s, w);
    w->joined = concat.i != 0;
    if (!w->joined)
        w->squeeze = EBB_NO_NODE;
    if (!w->joined && w->v.i < s->value_count && !s->learns[w->v.i])
        return NULL;
    w->piece = EBB_SCRATCH(s->e, ebb_value, s->parts);
    EBB_GOT(w->piece);
    if (!w->joined)
        return split(s, w);
    for (uint32_t p = 0; p < s->parts; p++)
        w->piece[p] = ebb_in(s->g, concat, w->backwards ? s->parts - 1 - p : p);
    return NULL;
}

ebb_status ebb_whole_take(const ebb_pieces *s, const ebb_whole *w, uint32_t p, ebb_value *piece)
{
    int64_t from, to, axis = w->axis;
    ebb_build b = build(s);
    if (w->piece != NULL) {
        *piece = w->piece[p];
        if (w->squeeze.i != 0)
            *piece = ebb_emit(&b, EBB_OP_SQUEEZE, *piece, ebb_in(s->g, w->squeeze, 1));
        return b.status;
    }
    if (is_table(s, w))
        return take_rows(s, w, p, piece);
    range_of(s, w, p, &from, &to);
    *piece = ebb_emit(&b, EBB_OP_SLICE, w->v, ebb_const_ints(&b, &from, 1),
                      ebb_const_ints(&b, &to, 1), ebb_const_ints(&b, &axis, 1));
    return b.status;
}

/* ---- what is put together ---- */

ebb_status ebb_whole_put_together(const ebb_pieces *s, const ebb_whole *w)
{
    ebb_build b = build(s);
    ebb_value *in_order = EBB_SCRATCH(s->e, ebb_value, s->parts);
    EBB_GOT(in_order);
    for (uint32_t p = 0; p < s->parts; p++)
        in_order[w->backwards ? s->parts - 1 - p : p] = w->piece[p];
    ebb_with_int(&b, "axis", w->axis);
    ebb_value all = ebb_emit_list(&b, EBB_OP_CONCAT, in_order, s->parts);
    EBB_TRY(b.status);
    return ebb_edit_replace(s->e, w->v, all);
}
