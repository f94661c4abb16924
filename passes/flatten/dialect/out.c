/* out.c: the other way of dialect.c. */
#include "passes/flatten/dialect/out.h"

#include "onnx/file/file.h"
#include "passes/common.h"

/* A compiler need take string literals of 4095 bytes only; ours take longer ones. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

static const struct body {
    const char *name, *text;
} bodies[] = {
#define EBB_OUT(name, text) {name, text},
#include "passes/flatten/dialect/out.def"
#undef EBB_OUT
};

ebb_status ebb_out_body(ebb_model *model, const char *name)
{
    const int64_t opset = ebb_model_opset(model, EBB_DOMAIN_ONNX);
    for (size_t i = 0; i < model->function_count; i++)
        if (strcmp(ebb_names_text(&model->names, model->functions[i].domain), EBB_DOMAIN_MS) == 0 &&
            strcmp(ebb_names_text(&model->names, model->functions[i].name), name) == 0)
            return NULL;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        ebb_function f;
        if (strcmp(bodies[i].name, name) != 0)
            continue;
        EBB_TRY(ebb_text_parse_function(model, &f, bodies[i].text));
        if (f.imports[0].version > opset)
            return NULL; // the body says what this opset has no words for
        f.imports[0].version = opset;
        f.origin = NULL;
        EBB_GOT(ebb_arena_grow(&model->arena, &model->functions, model->function_count,
                               &model->function_capacity, sizeof f));
        model->functions[model->function_count++] = f;
    }
    return NULL;
}

static bool is_op(const ebb_graph *g, ebb_node n, ebb_op op)
{
    return n.i != 0 && ebb_node_of(g, n)->op == op;
}

/* ---- convolutions ---- */

static bool same_ints(const ebb_attrs *a, const ebb_attrs *b, const char *name)
{
    uint32_t m = 0, n = 0;
    const int64_t *x = ebb_attr_ints(a, name, &m), *y = ebb_attr_ints(b, name, &n);
    return x != NULL && y != NULL && m == n && memcmp(x, y, n * sizeof *x) == 0;
}

/* Of the same windows, all of whose sizes are written out. */
static bool same_windows(const ebb_graph *g, ebb_node a, ebb_node b)
{
    const ebb_attrs x = ebb_node_attrs(g, a), y = ebb_node_attrs(g, b);
    return same_ints(&x, &y, "kernel_shape") && same_ints(&x, &y, "pads") &&
           same_ints(&x, &y, "strides") && same_ints(&x, &y, "dilations") &&
           ebb_attr_int(&x, "group", 1) == ebb_attr_int(&y, "group", 1) &&
           strcmp(ebb_attr_string(&x, "auto_pad", "NOTSET"), "NOTSET") == 0;
}

static bool same_shape(const ebb_graph *g, ebb_value a, ebb_value b)
{
    return a.i != 0 && b.i != 0 &&
           ebb_type_same_shape(ebb_value_of(g, a)->type, ebb_value_of(g, b)->type);
}

/* Sums dY over everything but the channels. */
static bool is_bias_grad(const ebb_graph *g, ebb_node n, ebb_arena *scratch)
{
    const int64_t *axes;
    uint32_t count;
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    const int rank = ebb_value_of(g, ebb_in(g, n, 0))->type->rank;
    if (!is_op(g, n, EBB_OP_REDUCE_SUM) || ebb_attr_int(&attrs, "keepdims", 1) != 0 ||
        !ebb_ints_of(g, ebb_in(g, n, 1), scratch, &axes, &count) || (int)count != rank - 1)
        return false;
    bool seen[EBB_MAX_RANK] = {false};
    for (uint32_t i = 0; i < count; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 0 || axis >= rank || axis == 1 || seen[axis])
            return false;
        seen[axis] = true;
    }
    return true;
}

typedef struct conv_grad { /* the nodes that one ConvGrad stands for; none: it is not there */
    ebb_node of_x, of_w, of_b;
    ebb_value w;
} conv_grad;

/* The weight is what dX is made with; where nobody wants dX, that of the forward, of which the
 * shape alone counts. */
static void find_conv_grad(const ebb_graph *g, ebb_node of_w, conv_grad *c, ebb_arena *scratch)
{
    ebb_value dy = ebb_in(g, of_w, 0), x = ebb_in(g, of_w, 1), dw = ebb_out(g, of_w, 0);
    *c = (conv_grad){.of_w = of_w};
    for (size_t i = 0; i < ebb_value_of(g, dy)->use_count; i++) {
        const ebb_use use = ebb_value_of(g, dy)->uses[i];
        ebb_node n = use.node;
        if (use.slot != 0)
            continue;
        if (c->of_x.i == 0 && is_op(g, n, EBB_OP_CONV_TRANSPOSE) && ebb_in(g, n, 2).i == 0 &&
            same_windows(g, n, of_w) && same_shape(g, ebb_in(g, n, 1), dw) &&
            same_shape(g, ebb_out(g, n, 0), x)) {
            c->of_x = n;
            c->w = ebb_in(g, n, 1);
        }
        if (c->of_b.i == 0 && is_bias_grad(g, n, scratch))
            c->of_b = n;
    }
    for (size_t i = 0; i < ebb_value_of(g, x)->use_count && c->w.i == 0; i++) {
        ebb_node n = ebb_value_of(g, x)->uses[i].node;
        if (is_op(g, n, EBB_OP_CONV) && same_shape(g, ebb_in(g, n, 1), dw) &&
            same_windows(g, n, of_w))
            c->w = ebb_in(g, n, 1);
    }
}

/* The node's output k, if it is there, is slot `to` of `list` now; the node goes. */
static void take_output(ebb_graph *g, ebb_node n, ebb_value *list, uint32_t to)
{
    if (n.i == 0)
        return;
    list[to] = ebb_out(g, n, 0);
    ebb_node_remove(g, n);
}

/* Where X is decoded late, an output's reader may stand before it: the caller sorts. */
static ebb_status join_conv_grad(ebb_graph *g, const conv_grad *c)
{
    const ebb_node_info *was = ebb_node_of(g, c->of_w);
    const ebb_value in[3] = {ebb_in(g, c->of_w, 0), ebb_in(g, c->of_w, 1), c->w};
    const ebb_str name = was->name;
    const ebb_attr *attrs = was->attr;
    const uint32_t attr_count = was->attr_count;
    ebb_node after = ebb_next(g, c->of_w), n;
    ebb_value out[3] = {{0}, {0}, {0}};
    while (after.i != 0 && (ebb_same_node(after, c->of_x) || ebb_same_node(after, c->of_b)))
        after = ebb_next(g, after);
    take_output(g, c->of_x, out, 0);
    take_output(g, c->of_b, out, 2);
    take_output(g, c->of_w, out, 1);
    EBB_TRY(
        ebb_node_add(g, &n, after, EBB_DOMAIN_MS, "ConvGrad", in, 3, out, c->of_b.i != 0 ? 3 : 2));
    for (uint32_t i = 0; i < attr_count; i++)
        EBB_TRY(ebb_node_set_attr(g, n, &attrs[i]));
    ebb_node_of(g, n)->name = name;
    ebb_node_of(g, n)->phase = EBB_BACKWARD;
    return ebb_out_body(g->model, "ConvGrad");
}

static bool conv_grad_takes(const ebb_graph *g, ebb_value x)
{
    uint8_t dtype = ebb_value_of(g, x)->type->dtype;
    return dtype == EBB_F32 || dtype == EBB_F64 || dtype == EBB_F16;
}

/* ---- what else has another name there ---- */

static ebb_status rename_batch_norm(ebb_graph *g, ebb_node n, size_t *narrowed)
{
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    *narrowed += ebb_attr_int(&attrs, "unbiased", 1) != 0;
    EBB_TRY(ebb_node_drop_attr(g, n, "unbiased"));
    EBB_TRY(ebb_node_set_int(g, n, "training_mode", 1));
    ebb_node_info *info = ebb_node_of(g, n);
    info->op = EBB_OP_UNKNOWN;
    info->domain = ebb_graph_intern(g, EBB_DOMAIN_MS);
    info->op_name = ebb_graph_intern(g, "BatchNormInternal");
    EBB_GOT(info->domain.i != 0 && info->op_name.i != 0);
    return ebb_out_body(g->model, "BatchNormInternal");
}

/* Dropout draws from the runtime's own generator, which goes on by itself. */
static ebb_status rename_dropout(ebb_graph *g, ebb_node n)
{
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    ebb_build b = ebb_build_at(g, n, EBB_FORWARD, NULL);
    ebb_value ratio = ebb_const_scalar(&b, EBB_F32, ebb_attr_float(&attrs, "ratio", 0));
    ebb_value on = ebb_const_scalar(&b, EBB_BOOL, 1);
    EBB_TRY(b.status);
    EBB_TRY(ebb_node_drop_attr(g, n, "ratio"));
    EBB_TRY(ebb_node_drop_attr(g, n, "stream"));
    EBB_TRY(ebb_node_drop_attr(g, n, "run"));
    EBB_TRY(ebb_node_set_input(g, n, 1, ratio));
    EBB_TRY(ebb_node_set_input(g, n, 2, on));
    return ebb_node_set_op(g, n, EBB_OP_DROPOUT);
}

ebb_status ebb_out_training(ebb_graph *g, size_t *narrowed)
{
    EBB_LOCAL_ARENA(scratch);
    EBB_TRY(ebb_model_import(g->model, EBB_DOMAIN_MS, 1));
    *narrowed = 0;
    for (ebb_node n = ebb_first(g), next; n.i != 0; n = next) {
        conv_grad c;
        next = ebb_next(g, n);
        if (is_op(g, n, EBB_OP_BATCH_NORM_TRAINING))
            EBB_TRY(rename_batch_norm(g, n, narrowed));
        else if (is_op(g, n, EBB_OP_EBB_DROPOUT) && ebb_model_opset(g->model, "") >= 12)
            EBB_TRY(rename_dropout(g, n));
        if (!is_op(g, n, EBB_OP_CONV_WEIGHT_GRAD) || !conv_grad_takes(g, ebb_in(g, n, 0)))
            continue;
        find_conv_grad(g, n, &c, scratch);
        if (c.w.i == 0)
            continue;
        while (next.i != 0 && (ebb_same_node(next, c.of_x) || ebb_same_node(next, c.of_b)))
            next = ebb_next(g, next);
        EBB_TRY(join_conv_grad(g, &c));
    }
    (void)ebb_graph_sweep(g);
    return ebb_graph_sort(g);
}

/* ---- at rest ---- */

static ebb_status pass_on(ebb_graph *g, ebb_node n)
{
    ebb_value y = ebb_out(g, n, 0), x = ebb_in(g, n, 0);
    EBB_TRY(ebb_value_replace(g, y, x));
    ebb_node_remove(g, n);
    return NULL;
}

static ebb_status drop_outputs(ebb_graph *g, ebb_node n, uint32_t from)
{
    for (uint32_t k = from; k < ebb_node_of(g, n)->out_count; k++)
        EBB_TRY(ebb_node_set_output(g, n, k, EBB_NO_VALUE));
    return NULL;
}

/* What is normalised by running statistics, and then the sum and the ReLU as nodes of their own. */
static ebb_status rest_norm_relu(ebb_graph *g, ebb_node n)
{
    ebb_value in[6] = {{0}}, z = ebb_out(g, n, 0);
    ebb_build b = ebb_build_at(g, n, EBB_FORWARD, NULL);
    ebb_attrs attrs = ebb_node_attrs(g, n);
    for (uint32_t i = 0; i < 6; i++)
        in[i] = ebb_in(g, n, i);
    ebb_with_float(&b, "epsilon", ebb_attr_float(&attrs, "epsilon", (double)1e-5f));
    ebb_value y = ebb_emit_list(&b, EBB_OP_BATCH_NORMALIZATION, in, 5);
    if (in[5].i != 0)
        y = ebb_emit(&b, EBB_OP_ADD, y, in[5]);
    y = ebb_emit(&b, EBB_OP_RELU, y);
    EBB_TRY(b.status);
    EBB_TRY(ebb_value_replace(g, z, y));
    ebb_node_remove(g, n);
    return NULL;
}

static ebb_status rest(ebb_graph *g, ebb_node n)
{
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_BATCH_NORM_TRAINING:
        EBB_TRY(ebb_node_drop_attr(g, n, "unbiased"));
        EBB_TRY(drop_outputs(g, n, 1));
        return ebb_node_set_op(g, n, EBB_OP_BATCH_NORMALIZATION);
    case EBB_OP_BATCH_NORM_RELU:
    case EBB_OP_BATCH_NORM_ADD_RELU:
        return rest_norm_relu(g, n);
    case EBB_OP_BATCH_NORMALIZATION:
        EBB_TRY(drop_outputs(g, n, 1));
        EBB_TRY(ebb_node_drop_attr(g, n, "training_mode"));
        return NULL;
    case EBB_OP_LSTM_TRAINING:
        EBB_TRY(drop_outputs(g, n, 3));
        return ebb_node_set_op(g, n, EBB_OP_LSTM);
    case EBB_OP_EBB_ATTENTION_DROPOUT:
        EBB_TRY(ebb_node_set_input(g, n, 5, EBB_NO_VALUE));
        EBB_TRY(ebb_node_drop_attr(g, n, "ratio"));
        EBB_TRY(ebb_node_drop_attr(g, n, "stream"));
        EBB_TRY(ebb_node_drop_attr(g, n, "run"));
        return ebb_node_set_op(g, n, EBB_OP_EBB_ATTENTION);
    case EBB_OP_DROPOUT:
    case EBB_OP_EBB_DROPOUT:
    case EBB_OP_EBB_DROPOUT_PACKED:
        return pass_on(g, n);
    default:
        if (!ebb_op_has(ebb_node_of(g, n)->op, EBB_RANDOM))
            return NULL;
        return ebb_error(EBB_UNSUPPORTED,
                         "%s draws random numbers, and there is no way known to have it at rest",
                         ebb_node_label(g, n));
    }
}

ebb_status ebb_out_eval(ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        EBB_TRY(rest(g, n));
    (void)ebb_graph_sweep(g);
    return NULL;
}
