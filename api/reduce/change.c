/* change.c: ways in which a model can be less. */
#include "api/reduce/reduce.h"

/* ---- loose ends ---- */

static bool is_made(const ebb_value_info *info)
{
    return info->producer.i != 0 ||
           (info->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER | EBB_IS_OUTER)) != 0;
}

/* Bindings and outputs of what is gone; then what is read and not made becomes an input. */
static ebb_status open_inputs(ebb_graph *g, bool *possible)
{
    for (size_t i = g->binding_count; i-- > 0;)
        if (!is_made(ebb_value_of(g, g->bindings[i].next)))
            ebb_graph_unbind(g, g->bindings[i].state);
    for (size_t i = g->output_count; i-- > 0;)
        if (!is_made(ebb_value_of(g, g->outputs[i])))
            ebb_graph_remove_output(g, g->outputs[i]);
    if (!is_made(ebb_value_of(g, g->loss)))
        g->loss = EBB_NO_VALUE;
    EBB_EACH_VALUE(g, v) {
        const ebb_value_info *info = ebb_value_of(g, v);
        if (is_made(info) || !ebb_value_is_read(g, v))
            continue;
        *possible = *possible && info->type->kind == EBB_KIND_TENSOR &&
                    info->type->dtype != EBB_NONE && info->type->rank >= 0;
        ebb_value_of(g, v)->dead = false;
        EBB_TRY(ebb_graph_add_input(g, v));
    }
    return NULL;
}

/* A node whose readers went has its first output that was read as an output of the graph. */
static ebb_status open_outputs(ebb_graph *g, const bool *had_readers, size_t count)
{
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        ebb_value lost = EBB_NO_VALUE;
        bool kept = false;
        for (uint32_t k = info->out_count; k-- > 0;) {
            ebb_value y = info->out[k];
            kept = kept || ebb_value_is_read(g, y);
            lost = y.i != 0 && y.i < count && had_readers[y.i] ? y : lost;
        }
        if (!kept && lost.i != 0)
            EBB_TRY(ebb_graph_add_output(g, lost));
    }
    return NULL;
}

/* Values that nobody makes or reads any more, whose names the file would keep. */
static void forget_loose(ebb_graph *g)
{
    EBB_EACH_VALUE(g, v) {
        const ebb_value_info *info = ebb_value_of(g, v);
        if (!info->dead && !is_made(info) && !ebb_value_is_read(g, v))
            ebb_value_bury(g, v);
    }
}

static void drop_unread(ebb_graph *g)
{
    for (size_t i = g->initializer_count; i-- > 0;) {
        ebb_value v = g->initializers[i];
        if (ebb_value_is_read(g, v))
            continue;
        ebb_graph_unbind(g, v);
        ebb_graph_remove_initializer(g, v);
    }
    for (size_t i = g->input_count; i-- > 0;)
        if (!ebb_value_is_read(g, g->inputs[i]) &&
            (ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER) == 0)
            ebb_graph_remove_input(g, g->inputs[i]);
}

ebb_status ebb_reduce_tie(ebb_graph *g, const bool *had_readers, size_t count, bool *possible)
{
    *possible = true;
    ebb_captures_mark(g);
    EBB_TRY(open_inputs(g, possible));
    EBB_TRY(open_outputs(g, had_readers, count));
    (void)ebb_graph_sweep(g);
    ebb_captures_mark(g);
    drop_unread(g);
    forget_loose(g);
    *possible = *possible && ebb_first(g).i != 0;
    return NULL;
}

/* ---- nodes, outputs ---- */

static ebb_node node_at(const ebb_graph *g, size_t at)
{
    ebb_node n = ebb_first(g);
    while (n.i != 0 && at-- > 0)
        n = ebb_next(g, n);
    return n;
}

ebb_status ebb_less_nodes(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    ebb_node n = node_at(g, at), last = n;
    while (size-- > 1 && n.i != 0 && ebb_next(g, last).i != 0)
        last = ebb_next(g, last);
    *applies = n.i != 0;
    for (ebb_node k = last, before; k.i != 0; k = before) {
        before = ebb_same_node(k, n) ? EBB_NO_NODE : ebb_prev(g, k);
        ebb_node_remove(g, k);
    }
    return NULL;
}

/* What a float tensor's readers read instead: ones, as a weight. */
static ebb_status stand_in(ebb_graph *g, ebb_value v)
{
    enum { MOST = 1 << 16 }; // elements
    const ebb_value_info *info = ebb_value_of(g, v);
    ebb_type type = *info->type;
    ebb_value made;
    int64_t count;
    size_t bytes;
    if (info->use_count == 0 || (info->flags & EBB_IS_CAPTURED) != 0 || type.dtype != EBB_F32 ||
        !ebb_type_is_static(&type) || !ebb_type_elements(&type, &count) || count > MOST ||
        !ebb_type_bytes(&type, &bytes))
        return NULL;
    float *ones = EBB_NEW(&g->model->arena, float, (size_t)count + 1);
    EBB_GOT(ones);
    for (int64_t i = 0; i < count; i++)
        ones[i] = 1;
    EBB_TRY(ebb_graph_add_initializer(g, &made, ebb_value_name(g, v), &type, ones, EBB_ROLE_NONE));
    return ebb_value_replace(g, v, made);
}

ebb_status ebb_less_before_weights(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    size_t values = g->value_count;
    bool *gone = EBB_NEW(&copy->arena, bool, values);
    EBB_GOT(gone);
    ebb_node n = node_at(g, at);
    for (size_t k = 0; k < size && n.i != 0; k++, n = ebb_next(g, n))
        for (uint32_t i = 0; i < ebb_node_of(g, n)->out_count; i++)
            gone[ebb_node_of(g, n)->out[i].i] = true;
    EBB_TRY(ebb_less_nodes(copy, at, size, applies));
    for (uint32_t i = 1; i < values; i++)
        if (gone[i])
            EBB_TRY(stand_in(g, (ebb_value){i}));
    return NULL;
}

ebb_status ebb_less_outputs(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    *applies = at < g->output_count && g->output_count > size;
    for (size_t k = 0; *applies && k < size && at < g->output_count; k++)
        ebb_graph_remove_output(g, g->outputs[at]);
    return NULL;
}

ebb_status ebb_less_steps(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    *applies = at < g->binding_count;
    for (size_t k = 0; k < size && at < g->binding_count; k++)
        ebb_graph_unbind(g, g->bindings[at].state);
    return NULL;
}

/* ---- operands, attributes ---- */

/* From which operand on ONNX lets it be absent. Of operators that ebb does not know, any may be. */
static uint32_t first_optional(const ebb_graph *g, ebb_node n)
{
    static const struct {
        const char *name;
        uint32_t slot;
    } optional[] = {
        {"Attention", 3},
        {"Clip", 1},
        {"Conv", 2},
        {"ConvTranspose", 2},
        {"DequantizeLinear", 2},
        {"Dropout", 1},
        {"GRU", 3},
        {"Gemm", 2},
        {"LSTM", 3},
        {"LayerNormalization", 2},
        {"NegativeLogLikelihoodLoss", 2},
        {"Pad", 2},
        {"QuantizeLinear", 2},
        {"RNN", 3},
        {"ReduceL1", 1},
        {"ReduceL2", 1},
        {"ReduceLogSum", 1},
        {"ReduceLogSumExp", 1},
        {"ReduceMax", 1},
        {"ReduceMean", 1},
        {"ReduceMin", 1},
        {"ReduceProd", 1},
        {"ReduceSum", 1},
        {"ReduceSumSquare", 1},
        {"Resize", 1},
        {"RotaryEmbedding", 3},
        {"Slice", 3},
        {"SoftmaxCrossEntropyLoss", 2},
        {"Squeeze", 1},
        {"Trilu", 1},
    };
    const ebb_node_info *info = ebb_node_of(g, n);
    if (info->op == EBB_OP_UNKNOWN)
        return 0;
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        if (strcmp(optional[i].name, ebb_text(g, info->op_name)) == 0)
            return optional[i].slot;
    return UINT32_MAX;
}

ebb_status ebb_less_operands(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    ebb_node n = node_at(g, at);
    ebb_node_info *info = ebb_node_of(g, n);
    uint32_t present = 0;
    for (uint32_t i = 0; i < info->in_count; i++)
        present += info->in[i].i != 0;
    *applies = n.i != 0 && size < info->in_count && present > 1;
    if (!*applies)
        return NULL;
    uint32_t slot = info->in_count - 1 - (uint32_t)size;
    *applies = info->in[slot].i != 0 && slot >= first_optional(g, n);
    if (!*applies)
        return NULL;
    EBB_TRY(ebb_node_set_input(g, n, slot, EBB_NO_VALUE));
    info = ebb_node_of(g, n);
    while (info->in_count > 0 && info->in[info->in_count - 1].i == 0)
        info->in_count--;
    return NULL;
}

static bool same_type(const ebb_type *a, const ebb_type *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank && a->rank >= 0 &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

ebb_status ebb_less_between(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    ebb_node n = node_at(g, at);
    const ebb_node_info *info = ebb_node_of(g, n);
    ebb_value x = n.i != 0 && size < info->in_count ? info->in[size] : EBB_NO_VALUE;
    ebb_value y = n.i != 0 && info->out_count > 0 ? info->out[0] : EBB_NO_VALUE;
    *applies = x.i != 0 && y.i != 0 && ebb_value_of(g, y)->use_count > 0 &&
               !ebb_value_is_held(g, y) &&
               same_type(ebb_value_of(g, x)->type, ebb_value_of(g, y)->type);
    if (!*applies)
        return NULL;
    EBB_TRY(ebb_value_replace(g, y, x));
    ebb_node_remove(g, n);
    return NULL;
}

ebb_status ebb_less_attributes(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    ebb_node n = node_at(g, at);
    const ebb_node_info *info = ebb_node_of(g, n);
    *applies = n.i != 0 && size < info->attr_count && info->attr[size].graphs == NULL;
    if (*applies)
        EBB_TRY(ebb_node_drop_attr(g, n, info->attr[size].name));
    return NULL;
}

/* ---- weights ---- */

/* It becomes an input of its name. */
ebb_status ebb_less_initializers(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    for (size_t k = 0; k < size && at < g->initializer_count; k++) {
        ebb_value v = g->initializers[at], made;
        ebb_type type = *ebb_value_of(g, v)->type;
        const char *name = ebb_value_name(g, v);
        if ((ebb_value_of(g, v)->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT | EBB_IS_STATE)) != 0) {
            at++;
            continue;
        }
        EBB_TRY(ebb_value_add(g, &made, NULL, &type));
        EBB_TRY(ebb_graph_add_input(g, made));
        EBB_TRY(ebb_value_replace(g, v, made));
        ebb_graph_remove_initializer(g, v);
        EBB_TRY(ebb_value_rename(g, made, name));
        *applies = true;
    }
    return NULL;
}

/* ---- what is said beside the graph ---- */

static bool calls(const ebb_graph *g, const ebb_function *f)
{
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        if (ebb_same_str(info->op_name, f->name) && ebb_same_str(info->domain, f->domain))
            return true;
        EBB_EACH_BODY(info, body)
            if (calls(*body, f))
                return true;
    }
    return false;
}

/* All functions that nobody calls; at and size do not matter. */
ebb_status ebb_less_functions(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    size_t kept;
    (void)at;
    (void)size;
    do {
        kept = 0;
        for (size_t i = 0; i < copy->function_count; i++) {
            bool called = calls(copy->graph, &copy->functions[i]);
            for (size_t k = 0; k < copy->function_count && !called; k++)
                called = k != i && calls(copy->functions[k].body, &copy->functions[i]);
            if (called)
                copy->functions[kept++] = copy->functions[i];
            else
                *applies = true;
        }
        bool fewer = kept < copy->function_count;
        copy->function_count = kept;
        if (!fewer)
            break;
    } while (kept > 0);
    return NULL;
}

/* 0: how weights are drawn; 1: metadata of the model and graph; 2: that of nodes and values. */
ebb_status ebb_less_said(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    (void)size;
    if (at == 0) {
        *applies = copy->initialization != NULL;
        copy->initialization = NULL;
        copy->init_binding_count = 0;
    } else if (at == 1) {
        *applies = copy->props.all != NULL || g->props.all != NULL || g->doc.i != 0;
        copy->props.all = g->props.all = NULL;
        g->doc = (ebb_str){0};
    } else {
        EBB_EACH_NODE(g, n) {
            *applies = *applies || ebb_node_of(g, n)->props.all != NULL;
            ebb_node_of(g, n)->props.all = NULL;
            ebb_node_of(g, n)->doc = (ebb_str){0};
        }
        EBB_EACH_VALUE(g, v)
            ebb_value_of(g, v)->props.all = NULL;
    }
    return NULL;
}
