/* bind.c: inputs whose values decide sizes become constants.
 *
 *   n ──> Range ──> Reshape.shape        what is made has no known size while n is an input
 *   5 ──> Range ──> Reshape.shape        and a size that folding finds once n is 5
 *
 * ebb plans memory before it runs, so sizes, trip counts and conditions must be known by then. What
 * a run is given can be looked at first: the inputs upstream of a node whose outputs have no known
 * size, or of an If, Loop or Scan that is still there, are fixed to their values.
 */
#include "api/api.h"

#include "onnx/graph/graph.h"
#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"

enum { MOST_ELEMENTS = 4096 }; /* of an input that is bound: sizes are few, and data is not */

const ebb_named *ebb_batch_find(const ebb_batch *batch, const char *name)
{
    for (size_t i = 0; i < batch->count; i++)
        if (strcmp(batch->tensors[i].name, name) == 0)
            return &batch->tensors[i];
    return NULL;
}

static bool is_open(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    bool open =
        ebb_op_has(info->op, EBB_BODIES) && !ebb_scan_is_kept(g, n); // which waits for nothing
    for (uint32_t k = 0; k < info->out_count && !open; k++)
        open = info->out[k].i != 0 && !ebb_type_is_static(ebb_value_of(g, info->out[k])->type);
    return open;
}

/* What the bodies of n read by name. */
static void mark_captured(const ebb_graph *g, ebb_node n, bool *marked)
{
    EBB_EACH_BODY(ebb_node_of(g, n), body)
        EBB_EACH_VALUE(*body, v) {
            const ebb_value outside = ebb_body_outside(g, *body, v);
            marked[outside.i] |= outside.i != 0;
        }
}

/* By value id: what nodes of unknown size are made of. */
static void mark_upstream(const ebb_graph *g, bool *marked)
{
    for (ebb_node n = ebb_last(g); n.i != 0; n = ebb_prev(g, n)) {
        const ebb_node_info *info = ebb_node_of(g, n);
        bool reached = is_open(g, n);
        for (uint32_t k = 0; k < info->out_count && !reached; k++)
            reached = marked[info->out[k].i];
        for (uint32_t k = 0; reached && k < info->in_count; k++)
            marked[info->in[k].i] = true;
        if (reached)
            mark_captured(g, n, marked);
    }
}

/* Integers, truth values, and the few floats that scales of a Resize are. */
static bool decides(const ebb_named *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++)
        if (__builtin_mul_overflow(count, t->dims[d], &count))
            return false;
    return t->data != NULL && count <= MOST_ELEMENTS &&
           (!ebb_dtype_is_float((ebb_dtype)t->dtype) || t->rank <= 1);
}

/* Nodes read a constant with these bytes instead of the input. */
static ebb_status fix(ebb_graph *g, ebb_value v, const ebb_named *t)
{
    size_t bytes;
    ebb_type type = ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims);
    const ebb_type *own = ebb_value_of(g, v)->type;
    if (own->dtype != type.dtype || !ebb_type_bytes(&type, &bytes))
        return ebb_error(EBB_USAGE, "input '%s' is given as %s, and the model wants %s",
                         ebb_value_name(g, v), ebb_dtype_name((ebb_dtype)t->dtype),
                         ebb_dtype_name((ebb_dtype)own->dtype));
    ebb_value with;
    EBB_TRY(ebb_graph_add_initializer(g, &with, NULL, &type, t->data, EBB_ROLE_CONSTANT));
    EBB_TRY(ebb_value_replace(g, v, with));
    return NULL;
}

ebb_status ebb_bind_values(ebb_model *model, const ebb_batch *batch, size_t *count)
{
    EBB_NEED(model);
    EBB_NEED(batch);
    EBB_NEED(count);
    ebb_graph *g = model->graph;
    EBB_LOCAL_ARENA(scratch);
    *count = 0;
    bool *marked = ebb_arena_zeroed(scratch, g->value_count + 1, sizeof *marked);
    EBB_GOT(marked);
    mark_upstream(g, marked);
    for (size_t i = 0; i < g->input_count; i++) {
        ebb_value v = g->inputs[i];
        const ebb_named *t = ebb_batch_find(batch, ebb_value_name(g, v));
        if (!marked[v.i] || t == NULL || !decides(t))
            continue;
        EBB_TRY(fix(g, v, t));
        ++*count;
    }
    return ebb_infer_graph(g);
}

ebb_status ebb_bind_defaults(ebb_model *model, const ebb_batch *batch, size_t *count)
{
    EBB_NEED(model);
    EBB_NEED(batch);
    EBB_NEED(count);
    ebb_graph *g = model->graph;
    *count = 0;
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_named *t = ebb_batch_find(batch, ebb_value_name(g, g->inputs[i]));
        if (t == NULL || (ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER) == 0)
            continue;
        EBB_TRY(fix(g, g->inputs[i], t));
        ++*count;
    }
    return *count > 0 ? ebb_infer_graph(g) : NULL;
}
