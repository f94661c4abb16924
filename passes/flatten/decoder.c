/* decoder: a language model that was exported to generate text is read as one that is trained.
 *
 *   before   k = Concat(past_key_values.0.key, new)       past of any length, an input for each layer
 *            y = If(use_cache_branch)                     both ways of a merged file
 *   after    k = new                                      no past: all tokens come at once
 *            y = If(false)                                which pass unroll takes away
 *
 * An input whose length is given (--shape, --dim, data) and is not 0 stays as it is. What a mask counts
 * is as long as the tokens then. The presents are outputs that a loss leaves out like all others.
 */
#include "onnx/graph/infer.h"
#include "passes/common.h"

/* ---- the past ---- */

/* The operators of ONNX Runtime, and ONNX's own, take keys and values of a past as inputs that may be
 * left out. */
static bool may_lack(const ebb_graph *g, ebb_use use)
{
    static const struct optional {
        const char *op;
        uint32_t from, to;
    } table[] = {{"GroupQueryAttention", 3, 4}, {"MultiHeadAttention", 6, 7}, {"Attention", 4, 5}};
    const ebb_node_info *info = ebb_node_of(g, use.node);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(ebb_text(g, info->op_name), table[i].op) == 0)
            return use.slot >= table[i].from && use.slot <= table[i].to;
    return false;
}

static bool joins(const ebb_graph *g, ebb_node n, const ebb_type *type, int axis)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    int64_t along = ebb_attr_int(&attrs, "axis", 0);
    return ebb_node_of(g, n)->op == EBB_OP_CONCAT && ebb_node_of(g, n)->in_count > 1 &&
           (along < 0 ? along + type->rank : along) == axis;
}

/* Where nothing is joined to something. */
static ebb_status leave_out(ebb_graph *g, ebb_node n, uint32_t slot)
{
    const uint32_t last = ebb_node_of(g, n)->in_count - 1;
    for (uint32_t i = slot; i < last; i++)
        EBB_TRY(ebb_node_set_input(g, n, i, ebb_in(g, n, i + 1)));
    EBB_TRY(ebb_node_set_input(g, n, last, EBB_NO_VALUE));
    ebb_node_of(g, n)->in_count = last;
    return NULL;
}

static ebb_status put_constant(ebb_graph *g, ebb_value v, const ebb_type *type)
{
    static const int64_t zero = 0; // which is false, too
    ebb_value with;
    EBB_TRY(ebb_graph_add_initializer(g, &with, NULL, type, &zero, EBB_ROLE_CONSTANT));
    EBB_TRY(ebb_value_replace(g, v, with));
    ebb_graph_remove_input(g, v);
    return NULL;
}

static ebb_status empty(ebb_graph *g, ebb_value v, int axis)
{
    ebb_type type = *ebb_value_of(g, v)->type;
    size_t bound;
    if (type.dims[axis] < 0 && type.symbols[axis].i != 0)
        EBB_TRY(ebb_bind_dim(g, ebb_text(g, type.symbols[axis]), 0, &bound));
    type = *ebb_value_of(g, v)->type;
    type.dims[axis] = 0;
    type.symbols[axis] = (ebb_str){0};
    EBB_TRY(ebb_value_set_type(g, v, &type));
    for (size_t i = ebb_value_of(g, v)->use_count; i-- > 0;) {
        const ebb_use use = ebb_value_of(g, v)->uses[i];
        if (joins(g, use.node, &type, axis))
            EBB_TRY(leave_out(g, use.node, use.slot));
        else if (may_lack(g, use))
            EBB_TRY(ebb_node_set_input(g, use.node, use.slot, EBB_NO_VALUE));
    }
    if (!ebb_value_is_read(g, v))
        ebb_graph_remove_input(g, v);
    else if (ebb_type_is_static(&type))
        return put_constant(g, v, &type);
    return NULL;
}

/* What a convolution read last: where it reads none, zeros stand before the first token. */
static ebb_status leave_state(ebb_graph *g, ebb_value v)
{
    for (size_t i = ebb_value_of(g, v)->use_count; i-- > 0;) {
        const ebb_use use = ebb_value_of(g, v)->uses[i];
        EBB_TRY(ebb_node_set_input(g, use.node, use.slot, EBB_NO_VALUE));
    }
    ebb_graph_remove_input(g, v);
    return NULL;
}

/* ---- the mask ---- */

/* A mask over past and new tokens is one of the new ones: [batch, total], as input_ids is. */
static ebb_status measure_mask(ebb_graph *g)
{
    const ebb_value mask = ebb_value_find(g, "attention_mask"),
                    ids = ebb_value_find(g, "input_ids");
    if (mask.i == 0 || ids.i == 0 || (ebb_value_of(g, mask)->flags & EBB_IS_INPUT) == 0)
        return NULL;
    ebb_type type = *ebb_value_of(g, mask)->type;
    const ebb_type *of_ids = ebb_value_of(g, ids)->type;
    if (type.rank != 2 || of_ids->rank != 2 || type.dims[1] >= 0)
        return NULL;
    type.dims[1] = of_ids->dims[1];
    type.symbols[1] = of_ids->symbols[1];
    return ebb_value_set_type(g, mask, &type);
}

/* ---- the pass ---- */

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    size_t pasts = 0;
    EBB_EACH_NODE(g, n)
        if (ebb_is_backward(g, n))
            return NULL;
    for (size_t i = g->input_count; i-- > 0;) {
        const ebb_value v = g->inputs[i];
        const int axis = ebb_past_axis(g, v);
        const bool state = ebb_is_past_state(g, v);
        if (axis < 0 && !state && !ebb_is_switch(g, v))
            continue;
        ebb_found(e);
        if (axis >= 0)
            EBB_TRY(empty(g, v, axis));
        else if (state)
            EBB_TRY(leave_state(g, v));
        else {
            EBB_TRY(ebb_note(e, "'%s' is %s", ebb_value_name(g, v),
                             ebb_value_of(g, v)->type->dtype == EBB_BOOL ? "false" : "0, for all"));
            EBB_TRY(put_constant(g, v, ebb_value_of(g, v)->type));
        }
        pasts += axis >= 0 || state;
        ebb_applied(e);
    }
    if (pasts == 0)
        return NULL;
    EBB_TRY(measure_mask(g));
    EBB_TRY(ebb_note(e, "%zu inputs of a past are empty: all tokens come at once", pasts));
    return ebb_infer_graph(g);
}

const ebb_pass ebb_pass_decoder = {
    .name = "decoder",
    .doc = "leave out the past of a language model that was exported to generate",
    .exactness = EBB_EXACT,
    .run = run,
};
