/* loss: append a loss and its target input to a graph that ends in predictions.
 *
 *   before   ... logits
 *   after    ... logits,  loss = SoftmaxCrossEntropyLoss(logits, target)
 *                                target: a new input of the graph
 *
 *   cross-entropy  classes on axis `axis`; target: class numbers, int64, the shape without that
 *                  axis
 *   mse, l1        target: as the output
 *   bce-logits     softplus(x) - x target: the stable form of binary cross-entropy on logits
 *   name=NAME      nothing is appended: output NAME is the loss, a single number
 *
 * The classes of a cross-entropy are brought to axis 1 by a reshape, and where needed a transpose.
 * The predictions stop being a graph output, for else they would stay to the end of the step;
 * keep-output=1 keeps them.
 */
#include "passes/primal/loss.h"

#include "passes/common.h"
#include "passes/passes.h"

static const ebb_loss_kind kinds[] = {
    {"cross-entropy", EBB_TASK_CLASSES},
    {"mse", EBB_TASK_NUMBERS},
    {"l1", EBB_TASK_NUMBERS},
    {"bce-logits", EBB_TASK_LABELS},
};

const ebb_loss_kind *ebb_loss_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

typedef struct spot {
    ebb_edit *e;
    ebb_build *b;
    ebb_value output;
    ebb_type type;   /* the output's */
    ebb_type target; /* to be filled: the target input's */
} spot;

static bool is_float_tensor(const ebb_graph *g, ebb_value v)
{
    const ebb_type *type = &ebb_value_of(g, v)->type;
    return type->kind == EBB_KIND_TENSOR && ebb_dtype_is_float((ebb_dtype)type->dtype);
}

static ebb_status find_output(ebb_edit *e, const char *name, ebb_value *output)
{
    const ebb_graph *g = e->g;
    for (size_t i = 0; i < g->output_count; i++) {
        ebb_value v = g->outputs[i];
        if (name != NULL ? strcmp(ebb_value_name(g, v), name) == 0 : is_float_tensor(g, v)) {
            *output = v;
            return NULL;
        }
    }
    if (name != NULL)
        return ebb_error(EBB_USAGE, "loss: the graph has no output '%s'", name);
    return ebb_hint(ebb_error(EBB_USAGE, "loss: the graph has no floating-point output"),
                    "where it ends in labels or maps, have its scores written as an output: for "
                    "scikit-learn's models, options={'zipmap': False}");
}

static ebb_status name_existing(ebb_edit *e, const char *name)
{
    ebb_value v;
    int64_t elements;
    EBB_TRY(find_output(e, name, &v));
    const ebb_type *type = &ebb_value_of(e->g, v)->type;
    if (!is_float_tensor(e->g, v) ||
        (type->rank > 0 && (!ebb_type_elements(type, &elements) || elements != 1)))
        return ebb_error(EBB_USAGE, "loss: output '%s' is not a single floating-point number",
                         name);
    ebb_found(e);
    e->g->loss = v;
    ebb_applied(e);
    return NULL;
}

/* ---- cross-entropy ---- */

static ebb_status class_axis(spot *s, int *axis)
{
    int rank = s->type.rank;
    const char *output = ebb_value_name(s->e->g, s->output);
    if (rank < 2)
        return ebb_error(EBB_USAGE,
                         "loss: cross-entropy needs a batch axis and a class axis, output '%s' has "
                         "rank %d",
                         output, rank);
    if (!ebb_option_given(s->e, "axis")) {
        if (rank > 2)
            return ebb_hint(
                ebb_error(EBB_USAGE,
                          "loss: output '%s' has rank %d, so the axis of the classes must "
                          "be said",
                          output, rank),
                "axis=-1 for language models, axis=1 for segmentation");
        *axis = 1;
        return NULL;
    }
    int64_t given = ebb_option_int(s->e, "axis");
    if (given < -rank || given >= rank)
        return ebb_error(EBB_USAGE, "loss: axis=%lld is out of range, output '%s' has rank %d",
                         (long long)given, output, rank);
    *axis = (int)(given < 0 ? given + rank : given);
    return NULL;
}

static void drop_axis(ebb_type *type, int axis)
{
    for (int d = axis; d + 1 < type->rank; d++) {
        type->dims[d] = type->dims[d + 1];
        type->symbols[d] = type->symbols[d + 1];
    }
    type->rank--;
}

/* logits [..., V] -> [N, V], with the classes moved last where they are not. */
static ebb_value as_matrix(spot *s, int axis)
{
    ebb_value x = s->output;
    int rank = s->type.rank;
    int64_t classes = s->type.dims[axis];
    if (axis != rank - 1) {
        int64_t perm[EBB_MAX_RANK];
        for (int d = 0, k = 0; d < rank; d++)
            if (d != axis)
                perm[k++] = d;
        perm[rank - 1] = axis;
        ebb_with_ints(s->b, "perm", perm, (uint32_t)rank);
        x = ebb_emit(s->b, EBB_OP_TRANSPOSE, x);
    }
    int64_t shape[2] = {-1, classes};
    return ebb_emit(s->b, EBB_OP_RESHAPE, x, ebb_const_ints(s->b, shape, 2));
}

/* The loss is an operator from opset 12 on. In an older model, which pass opset could not bring along
 * or was not asked to, it is computed all the same, but no runtime reads the file. */
static ebb_status note_opset(ebb_edit *e)
{
    enum { FIRST_OPSET = 12 };
    const int64_t opset = ebb_model_opset(e->g->model, EBB_DOMAIN_ONNX);
    return opset >= FIRST_OPSET
               ? NULL
               : ebb_note(e,
                          "the model is of opset %lld, which has no SoftmaxCrossEntropyLoss: it "
                          "can be trained, but other runtimes cannot read a step that is written; "
                          "put the pass opset before this one, or export it at opset 13 or newer",
                          (long long)opset);
}

static ebb_status cross_entropy(spot *s, ebb_value *target, ebb_value *loss)
{
    int axis = 0;
    EBB_TRY(class_axis(s, &axis));
    EBB_TRY(note_opset(s->e));
    s->target = s->type;
    s->target.dtype = EBB_I64;
    drop_axis(&s->target, axis);
    ebb_graph *g = s->e->g;
    EBB_TRY(ebb_value_add(g, target, ebb_option_string(s->e, "target"), &s->target));
    EBB_TRY(ebb_graph_add_input(g, *target));
    ebb_value logits = s->output, label = *target;
    if (axis != 1) {
        int64_t all = -1;
        if (s->type.dims[axis] < 0)
            return ebb_error(EBB_USAGE, "loss: the number of classes of output '%s' is not known",
                             ebb_value_name(g, s->output));
        logits = as_matrix(s, axis);
        if (s->target.rank != 1)
            label = ebb_emit(s->b, EBB_OP_RESHAPE, label, ebb_const_ints(s->b, &all, 1));
    }
    ebb_with_string(s->b, "reduction", ebb_option_string(s->e, "reduction"));
    ebb_with_int(s->b, "ignore_index", ebb_option_int(s->e, "ignore_index"));
    ebb_with_name(s->b, "loss");
    *loss = ebb_emit(s->b, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, logits, label);
    return s->b->status;
}

/* ---- losses by element ---- */

static ebb_status elementwise(spot *s, const char *kind, ebb_value *target, ebb_value *loss)
{
    ebb_graph *g = s->e->g;
    s->target = s->type;
    EBB_TRY(ebb_value_add(g, target, ebb_option_string(s->e, "target"), &s->target));
    EBB_TRY(ebb_graph_add_input(g, *target));
    ebb_value x = s->output, each;
    if (strcmp(kind, "bce-logits") == 0) {
        ebb_value xt = ebb_emit(s->b, EBB_OP_MUL, x, *target);
        each = ebb_emit(s->b, EBB_OP_SUB, ebb_emit(s->b, EBB_OP_SOFTPLUS, x), xt);
    } else {
        ebb_value d = ebb_emit(s->b, EBB_OP_SUB, x, *target);
        each = strcmp(kind, "l1") == 0 ? ebb_emit(s->b, EBB_OP_ABS, d)
                                       : ebb_emit(s->b, EBB_OP_MUL, d, d);
    }
    bool sum = strcmp(ebb_option_string(s->e, "reduction"), "sum") == 0;
    ebb_with_int(s->b, "keepdims", 0);
    ebb_with_name(s->b, "loss");
    *loss = ebb_emit(s->b, sum ? EBB_OP_REDUCE_SUM : EBB_OP_REDUCE_MEAN, each);
    return s->b->status;
}

static ebb_status append(ebb_edit *e, ebb_value output)
{
    ebb_graph *g = e->g;
    const char *kind = ebb_option_string(e, "kind");
    ebb_build b = ebb_edit_build(e, ebb_first_update(g), EBB_LOSS);
    b.phase = EBB_LOSS;
    b.name = "loss";
    spot s = {.e = e, .b = &b, .output = output, .type = ebb_value_of(g, output)->type};
    ebb_value target = EBB_NO_VALUE, loss = EBB_NO_VALUE;
    if (s.type.rank < 0)
        return ebb_error(EBB_USAGE, "loss: the shape of output '%s' is not known",
                         ebb_value_name(g, output));
    if (strcmp(kind, "cross-entropy") == 0)
        EBB_TRY(cross_entropy(&s, &target, &loss));
    else
        EBB_TRY(elementwise(&s, kind, &target, &loss));
    if (ebb_option_int(e, "keep-output") == 0)
        while (g->output_count > 0)
            ebb_graph_remove_output(g, g->outputs[0]);
    EBB_TRY(ebb_graph_add_output(g, loss));
    g->loss = loss;
    ebb_applied(e);
    char text[256];
    return ebb_note(e, "%s of '%s' against the new input '%s' %s", kind, ebb_value_name(g, output),
                    ebb_value_name(g, target),
                    ebb_type_print(text, sizeof text, &s.target, &g->model->names));
}

static ebb_status run(ebb_edit *e)
{
    const char *name = ebb_option_string(e, "name");
    ebb_value output;
    if (name != NULL)
        return name_existing(e, name);
    if (ebb_option_string(e, "kind") == NULL)
        return ebb_error(EBB_USAGE,
                         "loss: say which: cross-entropy, mse, l1, bce-logits, or name=OUTPUT");
    if (e->g->loss.i != 0)
        return ebb_declined(e, EBB_NO_NODE, "the graph has a loss already");
    EBB_TRY(find_output(e, ebb_option_string(e, "output"), &output));
    ebb_found(e);
    return append(e, output);
}

// clang-format off
static const ebb_option options[] = {
    {"kind",         EBB_OPTION_CHOICE, NULL,     "cross-entropy|mse|l1|bce-logits", "which loss"},
    {"output",       EBB_OPTION_STRING, NULL,     NULL,                              "the predictions; default: the first floating-point output"},
    {"target",       EBB_OPTION_STRING, "target", NULL,                              "name of the new graph input"},
    {"axis",         EBB_OPTION_INT,    NULL,     "[-12, 11]",                       "cross-entropy: axis of the classes; default 1 for matrices"},
    {"ignore_index", EBB_OPTION_INT,    "-100",   NULL,                              "cross-entropy: targets of this class do not count"},
    {"reduction",    EBB_OPTION_CHOICE, "mean",   "mean|sum",                        "over the elements that count"},
    {"keep-output",  EBB_OPTION_INT,    "0",      "[0, 1]",                          "1: what were graph outputs stay so"},
    {"name",         EBB_OPTION_STRING, NULL,     NULL,                              "this output is the loss already"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_loss = {
    .name = "loss",
    .doc = "append a loss and its target input",
    .exactness = EBB_MAKES,
    .options = options,
    .run = run,
};
