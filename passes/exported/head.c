/* head: the last layer, for other classes.
 *
 *   before   ... x, logits = Gemm(x, W[1000, 512], b[1000])          of the data it was trained on
 *   after    ... x, logits = Gemm(x, W[10, 512], b[10])              fresh: uniform in +-1/sqrt(512)
 *
 * The layer is found by walking back from the output over what keeps classes apart (a bias that is added,
 * softmax, sigmoid, a view, a mean over places) to a Gemm, a MatMul with a weight or a convolution of 1 x 1.
 * Its numbers are drawn as PyTorch's Linear draws them, from the seed and the layer's name. Names stay.
 * It goes before the loss, whose target follows from the output.
 */
#include "passes/common.h"

#include "kernels/math/philox.h"
#include "onnx/graph/infer.h"

#include <math.h>

typedef struct layer {
    ebb_node node;
    ebb_node add;     /* of a bias behind it, or none */
    ebb_value weight; /* initializer */
    ebb_value bias;   /* initializer, or none */
    int axis;         /* of the weight: the classes */
    int64_t fan_in, classes;
} layer;

static bool is_weight(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 && (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0 &&
           ebb_type_is_static(ebb_value_of(g, v)->type);
}

/* ---- finding it ---- */

static bool keeps_classes(ebb_op op)
{
    static const ebb_op list[] = {EBB_OP_SOFTMAX,
                                  EBB_OP_LOG_SOFTMAX,
                                  EBB_OP_SIGMOID,
                                  EBB_OP_RELU,
                                  EBB_OP_CAST,
                                  EBB_OP_IDENTITY,
                                  EBB_OP_FLATTEN,
                                  EBB_OP_SQUEEZE,
                                  EBB_OP_DROPOUT,
                                  EBB_OP_TRANSPOSE,
                                  EBB_OP_GLOBAL_AVERAGE_POOL,
                                  EBB_OP_REDUCE_MEAN};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i] == op)
            return true;
    return false;
}

/* The weight that an operand is, perhaps transposed on its way. */
static ebb_value weight_behind(const ebb_graph *g, ebb_value v, bool *turned)
{
    *turned = false;
    if (ebb_producer_op(g, v) == EBB_OP_TRANSPOSE) {
        *turned = true;
        v = ebb_in(g, ebb_value_of(g, v)->producer, 0);
    }
    return is_weight(g, v) ? v : EBB_NO_VALUE;
}

static bool read_layer(const ebb_graph *g, ebb_node n, layer *l)
{
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    const ebb_op op = ebb_node_of(g, n)->op;
    bool turned = false;
    if (op != EBB_OP_GEMM && op != EBB_OP_MATMUL && op != EBB_OP_CONV)
        return false;
    l->node = n;
    l->weight = weight_behind(g, ebb_in(g, n, 1), &turned);
    if (l->weight.i == 0)
        return false;
    const ebb_type *type = ebb_value_of(g, l->weight)->type;
    if (op == EBB_OP_CONV) {
        l->axis = 0;
        for (int i = 2; i < type->rank; i++)
            if (type->dims[i] != 1)
                return false;
        if (type->rank < 3 || turned || ebb_attr_int(&attrs, "group", 1) != 1)
            return false;
    } else {
        const bool rows = op == EBB_OP_GEMM && ebb_attr_int(&attrs, "transB", 0) != 0;
        if (type->rank != 2)
            return false;
        l->axis = rows != turned ? 0 : 1;
    }
    l->classes = type->dims[l->axis];
    l->fan_in = type->dims[1 - l->axis];
    if (op != EBB_OP_MATMUL && is_weight(g, ebb_in(g, n, 2)))
        l->bias = ebb_in(g, n, 2);
    return type->dtype == EBB_F32 && l->fan_in > 0;
}

/* The operand of an Add that is a weight with one number for each class; the other one in *x. */
static ebb_value bias_of(const ebb_graph *g, ebb_node add, ebb_value *x)
{
    for (uint32_t k = 0; k < 2; k++) {
        ebb_value v = ebb_in(g, add, k);
        *x = ebb_in(g, add, 1 - k);
        if (is_weight(g, v) && ebb_value_of(g, v)->type->rank == 1)
            return v;
    }
    return EBB_NO_VALUE;
}

static ebb_status find_layer(ebb_edit *e, ebb_value output, layer *l)
{
    const ebb_graph *g = e->g;
    ebb_node n = ebb_value_of(g, output)->producer;
    *l = (layer){0};
    while (n.i != 0 && !read_layer(g, n, l)) {
        const ebb_op op = ebb_node_of(g, n)->op;
        ebb_value x = ebb_in(g, n, 0);
        if (op == EBB_OP_ADD && l->bias.i == 0) {
            l->bias = bias_of(g, n, &x);
            l->add = n;
        }
        if (l->add.i == n.i ? l->bias.i == 0 : !keeps_classes(op))
            return ebb_hint(
                ebb_error(EBB_UNSUPPORTED,
                          "the head of '%s' is not a Gemm, a MatMul with a weight or a 1x1 Conv: "
                          "before it comes %s",
                          ebb_value_name(g, output), ebb_node_label(g, n)),
                "name another output: head:output=NAME");
        n = ebb_value_of(g, x)->producer;
    }
    if (n.i == 0)
        return ebb_error(EBB_UNSUPPORTED, "'%s' has no layer with a weight before it",
                         ebb_value_name(g, output));
    if (l->bias.i != 0 && ebb_value_of(g, l->bias)->type->dims[0] != l->classes)
        return ebb_error(EBB_UNSUPPORTED,
                         "the bias '%s' is not one number for each of %lld classes",
                         ebb_value_name(g, l->bias), (long long)l->classes);
    return NULL;
}

static ebb_status find_output(ebb_edit *e, ebb_value *output)
{
    const ebb_graph *g = e->g;
    const char *name = ebb_option_string(e, "output");
    *output = EBB_NO_VALUE;
    for (size_t i = 0; i < g->output_count && output->i == 0; i++)
        if (name != NULL
                ? strcmp(ebb_value_name(g, g->outputs[i]), name) == 0
                : ebb_dtype_is_float((ebb_dtype)ebb_value_of(g, g->outputs[i])->type->dtype))
            *output = g->outputs[i];
    if (output->i != 0)
        return NULL;
    return name != NULL ? ebb_error(EBB_USAGE, "there is no output '%s'", name)
                        : ebb_error(EBB_UNSUPPORTED, "no output is of floating-point numbers");
}

/* ---- drawing it ---- */

/* The value with other numbers, under the same name and with the same marks. */
static ebb_status draw_anew(ebb_edit *e, ebb_value *v, int axis, int64_t classes, double bound,
                            uint32_t stream)
{
    ebb_graph *g = e->g;
    ebb_type type = *ebb_value_of(g, *v)->type;
    const char *name = ebb_arena_strdup(e->scratch, ebb_value_name(g, *v));
    int64_t count;
    size_t bytes;
    type.dims[axis] = classes;
    if (!ebb_type_elements(&type, &count) || !ebb_type_bytes(&type, &bytes))
        return ebb_error(EBB_USAGE, "%lld classes are too many", (long long)classes);
    float *numbers = ebb_arena_alloc(e->scratch, bytes);
    EBB_GOT(numbers && name);
    const uint64_t seed = (uint64_t)ebb_option_int(e, "seed");
    for (int64_t i = 0; i < count; i++) {
        const ebb_philox drawn = ebb_philox_block(seed, 0, stream, (uint64_t)i / 4);
        numbers[i] = (float)((2 * (double)ebb_philox_uniform(drawn.word[i % 4]) - 1) * bound);
    }
    ebb_value fresh, old = *v;
    EBB_TRY(ebb_graph_add_initializer(g, &fresh, name, &type, numbers,
                                      (ebb_role)ebb_value_of(g, old)->role));
    *v = fresh;
    return ebb_props_set_all(g, &ebb_value_of(g, fresh)->props, g, &ebb_value_of(g, old)->props);
}

/* Whether a node on the way to the old value's reader reads it, too, is not our concern: it keeps it. */
static ebb_status put_in(ebb_edit *e, ebb_value old, ebb_value fresh, ebb_node reader)
{
    ebb_graph *g = e->g;
    const char *name = ebb_arena_strdup(e->scratch, ebb_value_name(g, old));
    EBB_GOT(name);
    for (uint32_t k = 0; k < ebb_node_of(g, reader)->in_count; k++)
        if (ebb_in(g, reader, k).i == old.i)
            EBB_TRY(ebb_node_set_input(g, reader, k, fresh));
    if (ebb_value_is_read(g, old))
        return ebb_note(e, "'%s' is read elsewhere, too: there it stays, and the head has '%s'",
                        name, ebb_value_name(g, fresh));
    if ((ebb_value_of(g, old)->flags & EBB_IS_INPUT) != 0)
        ebb_graph_remove_input(g, old);
    ebb_graph_remove_initializer(g, old);
    ebb_value_bury(g, old);
    return ebb_value_rename(g, fresh, name);
}

/* Shapes behind the layer are found anew. */
static ebb_status forget_shapes(ebb_graph *g, ebb_value from, bool *behind)
{
    behind[from.i] = true;
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        bool reached = false;
        for (uint32_t k = 0; k < info->in_count && !reached; k++)
            reached = behind[info->in[k].i];
        for (uint32_t k = 0; k < info->out_count && reached; k++)
            behind[info->out[k].i] = info->out[k].i != 0;
    }
    EBB_EACH_VALUE(g, v) {
        ebb_type type = *ebb_value_of(g, v)->type;
        if (!behind[v.i] || type.rank < 1)
            continue;
        for (int i = 0; i < type.rank; i++) {
            type.dims[i] = -1;
            type.symbols[i] = (ebb_str){0};
        }
        EBB_TRY(ebb_value_set_type(g, v, &type));
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    const int64_t classes = ebb_option_int(e, "classes");
    ebb_value output;
    layer l;
    if (classes < 1)
        return ebb_error(EBB_USAGE, "say how many classes the new head has: head:classes=N");
    if (g->loss.i != 0 || g->binding_count > 0)
        return ebb_error(EBB_USAGE, "a head is put on before the step is made: --head, or `ebb "
                                    "rewrite --pass head:...` of the exported model");
    ebb_found(e);
    EBB_TRY(find_output(e, &output));
    EBB_TRY(find_layer(e, output, &l));
    const double bound = 1 / sqrt((double)l.fan_in);
    const ebb_value old_weight = l.weight, old_bias = l.bias;
    const char *names[2] = {ebb_arena_strdup(e->scratch, ebb_value_name(g, old_weight)),
                            ebb_arena_strdup(e->scratch, ebb_value_name(g, old_bias))};
    const uint32_t stream = ebb_hash31(ebb_value_name(g, ebb_out(g, l.node, 0)));
    ebb_node reader = ebb_producer_op(g, ebb_in(g, l.node, 1)) == EBB_OP_TRANSPOSE
                          ? ebb_value_of(g, ebb_in(g, l.node, 1))->producer
                          : l.node;
    EBB_TRY(draw_anew(e, &l.weight, l.axis, classes, bound, stream));
    EBB_TRY(put_in(e, old_weight, l.weight, reader));
    if (old_bias.i != 0) {
        EBB_TRY(draw_anew(e, &l.bias, 0, classes, bound, stream + 1));
        EBB_TRY(put_in(e, old_bias, l.bias, l.add.i != 0 ? l.add : l.node));
    }
    bool *behind = EBB_SCRATCH(e, bool, g->value_count + 1);
    EBB_GOT(behind);
    EBB_TRY(forget_shapes(g, ebb_out(g, reader, 0), behind));
    EBB_TRY(ebb_infer_graph(g));
    ebb_applied(e);
    return ebb_note(
        e, "%s gives %lld classes instead of %lld: '%s'%s%s%s drawn anew, uniform in +-%.4g",
        ebb_node_label(g, l.node), (long long)classes, (long long)l.classes, names[0],
        old_bias.i != 0 ? " and '" : "", old_bias.i != 0 ? names[1] : "",
        old_bias.i != 0 ? "' are" : " is", bound);
}

// clang-format off
static const ebb_option options[] = {
    {"classes", EBB_OPTION_INT,    NULL, "[1, inf)", "of the new head"},
    {"output",  EBB_OPTION_STRING, NULL, NULL,       "the output that the head gives; without it the first of floats"},
    {"seed",    EBB_OPTION_INT,    "0",  "[0, inf)", "of the numbers that are drawn"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_head = {
    .name = "head",
    .doc = "put a fresh last layer with other classes on an exported model",
    .exactness = EBB_MAKES,
    .options = options,
    .run = run,
};
