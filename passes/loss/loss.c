/* loss: append a loss and its target input to a graph that ends in predictions.
 *
 *   before   ... logits
 *   after    ... logits,  loss = SoftmaxCrossEntropyLoss(logits, target)
 *                                target: a new input of the graph
 *
 *   cross-entropy  classes on axis `axis`; target: class numbers, int64, the shape without that
 *                  axis; they are brought to axis 1 by a reshape, and where needed a transpose
 *   others         loss_rows.c: the formula of each; target: as the output, or class numbers
 *   name=NAME      nothing is appended: output NAME is the loss, a single number
 *   weight=W       the loss is multiplied by W
 *   nth=1, 2, ...  several losses, one pass each: from the second on they are added to those before,
 *                  which stay outputs; their sum is the loss
 *
 * A target may be an input that is there: that of another loss, or what the model reads; or what the
 * pass teacher computes.
 *
 * The predictions stop being a graph output, for else they would stay to the end of the step;
 * keep-output=1 keeps them.
 */
#include "passes/loss/loss.h"

#include <stdio.h>

#include "onnx/graph/infer.h"
#include "passes/common.h"
#include "passes/parameters/trainable.h"

static bool is_float_tensor(const ebb_graph *g, ebb_value v)
{
    const ebb_type *type = ebb_value_of(g, v)->type;
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
        return ebb_meant(ebb_error(EBB_USAGE, "loss: the graph has no output '%s'", name), g,
                         g->outputs, g->output_count, name);
    return ebb_hint(ebb_error(EBB_USAGE, "loss: the graph has no floating-point output"),
                    "where it ends in labels or maps, have its scores written as an output: for "
                    "scikit-learn's models, options={'zipmap': False}");
}

/* ---- options ---- */

/* "cross-entropy|mse|..." */
static const char with_bar[] =
#define EBB_LOSS(build, name, task, target, takes) "|" name
#include "passes/loss/losses.def"
#undef EBB_LOSS
    ;
static const char doc_of_kind[] = "which loss:"
#define EBB_LOSS(build, name, task, target, takes) " " name
#include "passes/loss/losses.def"
#undef EBB_LOSS
    ;
#define NAMES (with_bar + 1)

static bool has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* An option of another loss would have no effect. kind NULL: the loss is an output already. */
static ebb_status check_options(const ebb_edit *e, const ebb_loss_kind *kind)
{
    static const char all[] = "kind output target reduction keep-output weight nth name";
    const char *takes = kind != NULL ? kind->takes : "axis ignore_index";
    for (size_t i = 0; i < e->option_count; i++) {
        const char *option = e->options[i].name;
        if (has_word(all, option) || has_word(takes, option))
            continue;
        return ebb_error(
            EBB_USAGE,
            "loss: %s has no option '%s'; it takes output, target, reduction, weight%s%s",
            kind != NULL ? kind->name : "a loss by name", option, takes[0] != '\0' ? " and " : "",
            takes);
    }
    return NULL;
}

static ebb_status class_axis(ebb_loss_site *s, int *axis)
{
    int rank = s->type.rank;
    const char *output = ebb_value_name(s->e->g, s->x);
    if (rank < 2)
        return ebb_error(EBB_USAGE,
                         "loss: %s needs a batch axis and a class axis, output '%s' has "
                         "rank %d",
                         ebb_option_string(s->e, "kind"), output, rank);
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

/* ---- the target ---- */

static void drop_axis(ebb_type *type, int axis)
{
    for (int d = axis; d + 1 < type->rank; d++) {
        type->dims[d] = type->dims[d + 1];
        type->symbols[d] = type->symbols[d + 1];
    }
    type->rank--;
}

static ebb_status check_lists(const ebb_loss_site *s)
{
    const char *output = ebb_value_name(s->e->g, s->x);
    if (s->type.rank != 3)
        return ebb_error(EBB_USAGE,
                         "loss: ctc needs time, rows and classes, output '%s' has rank %d", output,
                         (int)s->type.rank);
    if (!ebb_option_given(s->e, "time-axis"))
        return ebb_hint(
            ebb_error(EBB_USAGE, "loss: ctc: the axis of time in output '%s' must be said", output),
            "time-axis=0 for [time, rows, classes], time-axis=1 for [rows, time, classes]");
    return NULL;
}

static ebb_status find_axis(ebb_loss_site *s, ebb_loss_target rule)
{
    s->axis = -1;
    if (rule == EBB_TARGET_LISTS)
        return check_lists(s);
    if (rule == EBB_TARGET_LIKE || (rule == EBB_TARGET_EITHER && !ebb_option_given(s->e, "axis")))
        return NULL;
    return class_axis(s, &s->axis);
}

static ebb_value find_input(const ebb_graph *g, const char *name)
{
    for (size_t i = 0; i < g->input_count; i++)
        if (strcmp(ebb_value_name(g, g->inputs[i]), name) == 0 &&
            (ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER) == 0)
            return g->inputs[i];
    return EBB_NO_VALUE;
}

static bool may_be(const ebb_type *is, const ebb_type *wanted)
{
    const bool labels = wanted->dtype == EBB_I64 && is->dtype == EBB_I32;
    if (is->kind != EBB_KIND_TENSOR || (is->dtype != wanted->dtype && !labels) ||
        is->rank != wanted->rank)
        return false;
    for (int d = 0; d < is->rank; d++)
        if (is->dims[d] != wanted->dims[d] && is->dims[d] >= 0 && wanted->dims[d] >= 0)
            return false;
    return true;
}

static bool is_of_teacher(const char *name)
{
    return strncmp(name, EBB_TEACHER "/", strlen(EBB_TEACHER "/")) == 0;
}

/* What another model in the graph computes. */
static ebb_status find_taught(const ebb_edit *e, const char *name, ebb_value *taught)
{
    const ebb_graph *g = e->g;
    const char *all = "";
    for (size_t i = 0; i < g->output_count && all != NULL; i++) {
        const char *other = ebb_value_name(g, g->outputs[i]);
        if (strcmp(other, name) == 0)
            return *taught = g->outputs[i], NULL;
        if (is_of_teacher(other))
            all = ebb_arena_printf(e->scratch, "%s%s%s", all, all[0] != '\0' ? ", " : "", other);
    }
    EBB_GOT(all);
    return all[0] != '\0'
               ? ebb_error(EBB_USAGE, "loss: there is no '%s'; the teacher has %s", name, all)
               : ebb_error(EBB_USAGE, "loss: there is no '%s', as no teacher is given: --teacher",
                           name);
}

/* A new input, or one that is there and asked for by its name, or what the teacher says. */
static ebb_status find_target(ebb_loss_site *s, ebb_loss_target rule)
{
    ebb_graph *g = s->e->g;
    ebb_type type = s->type;
    const char *name = ebb_option_string(s->e, "target");
    ebb_value there = find_input(g, name);
    if (there.i == 0 && is_of_teacher(name))
        EBB_TRY(find_taught(s->e, name, &there));
    if (rule == EBB_TARGET_CLASSES || (rule == EBB_TARGET_EITHER && s->axis >= 0)) {
        type.dtype = EBB_I64;
        drop_axis(&type, s->axis);
    }
    if (rule == EBB_TARGET_LISTS) {
        type.dtype = EBB_I64;
        drop_axis(&type, (int)ebb_option_int(s->e, "time-axis"));
        type.symbols[1] = (ebb_str){0};
        type.dims[1] = ebb_option_given(s->e, "labels") ? ebb_option_int(s->e, "labels") : -1;
    }
    if (there.i == 0 || !ebb_option_given(s->e, "target")) {
        if (rule == EBB_TARGET_LISTS && type.dims[1] < 0)
            return ebb_error(EBB_USAGE,
                             "loss: ctc: say how many labels a row of the target has: labels=N");
        if (there.i != 0 && ebb_option_int(s->e, "nth") > 1)
            return ebb_error(EBB_USAGE,
                             "loss: '%s' is the target of another loss: say target=NAME for each "
                             "(the same name for the same array)",
                             name);
        s->is_new = true;
        EBB_TRY(ebb_value_add(g, &s->target, name, &type));
        return ebb_graph_add_input(g, s->target);
    }
    const ebb_type *is = ebb_value_of(g, there)->type;
    s->target = there;
    if (may_be(is, &type))
        return NULL;
    char own[256], wanted[256];
    return ebb_error(EBB_USAGE, "loss: %s'%s' is %s, as a target of '%s' it should be %s",
                     is_of_teacher(name) ? "" : "the input ", name,
                     ebb_type_print(own, sizeof own, is, &g->model->names), ebb_value_name(g, s->x),
                     ebb_type_print(wanted, sizeof wanted, &type, &g->model->names));
}

/* ---- the end ---- */

static bool is_loss(const ebb_graph *g, ebb_value v)
{
    const ebb_node n = ebb_value_of(g, v)->producer;
    return ebb_same_value(v, g->loss) || (n.i != 0 && ebb_node_of(g, n)->phase == EBB_LOSS);
}

/* The losses alone stay outputs, unless others are kept. */
static void let_go_of_outputs(ebb_edit *e)
{
    ebb_graph *g = e->g;
    for (size_t i = g->output_count; ebb_option_int(e, "keep-output") == 0 && i-- > 0;)
        if (!is_loss(g, g->outputs[i]))
            ebb_graph_remove_output(g, g->outputs[i]);
}

/* Which initializers are weights, while the outputs that are let go of still read them. *list NULL: none is but
 * `output`, which the loss reads. */
static ebb_status judge_weights(ebb_edit *e, ebb_value output, ebb_weight **list)
{
    const ebb_graph *g = e->g;
    ebb_trainable_source source;
    bool others = false;
    *list = NULL;
    for (size_t i = 0; i < g->output_count; i++)
        others |= !ebb_same_value(g->outputs[i], output) && !is_loss(g, g->outputs[i]);
    if (!others || ebb_option_int(e, "keep-output") != 0)
        return NULL;
    *list = EBB_SCRATCH(e, ebb_weight, g->value_count);
    EBB_GOT(*list);
    return ebb_weights_judge(*list, &source, g, e->scratch);
}

/* What no loss reads now is not trained: pass gradient counts and names it. */
static ebb_status note_unreached(ebb_edit *e, const ebb_weight *list, size_t value_count)
{
    enum { NUMBER = 24 };
    ebb_graph *g = e->g;
    size_t room = 1, length = 0;
    int64_t elements;
    if (list == NULL)
        return NULL;
    (void)ebb_graph_sweep(g);
    for (uint32_t i = 1; i < value_count; i++)
        if (list[i].kind == EBB_SURE_WEIGHT)
            room += strlen(ebb_value_name(g, (ebb_value){i})) + NUMBER;
    char *text = EBB_SCRATCH(e, char, room);
    EBB_GOT(text);
    for (uint32_t i = 1; i < value_count; i++)
        if (list[i].kind == EBB_SURE_WEIGHT && !ebb_value_is_read(g, (ebb_value){i}) &&
            ebb_type_elements(ebb_value_of(g, (ebb_value){i})->type, &elements))
            length += (size_t)snprintf(text + length, room - length, "%lld %s\n",
                                       (long long)elements, ebb_value_name(g, (ebb_value){i}));
    return length > 0 ? ebb_props_set(g, &g->props, EBB_UNREACHED, text) : NULL;
}

/* A sum that this pass made reads its last part, which stays an output. */
static bool is_sum_of_losses(const ebb_graph *g, ebb_value v)
{
    const ebb_node n = ebb_value_of(g, v)->producer;
    return n.i != 0 && ebb_node_of(g, n)->op == EBB_OP_ADD &&
           ebb_node_of(g, n)->phase == EBB_LOSS &&
           (ebb_value_of(g, ebb_in(g, n, 1))->flags & EBB_IS_OUTPUT) != 0;
}

/* loss = what it was so far + part. The sum bears the name, and goes to the end of the outputs. */
static ebb_status add_to_loss(ebb_build *b, ebb_value part)
{
    ebb_graph *g = b->g;
    const ebb_value before = g->loss;
    if (is_sum_of_losses(g, before)) {
        ebb_graph_remove_output(g, before);
        EBB_TRY(ebb_value_step_aside(g, before, "loss_before"));
    }
    ebb_with_name(b, "loss");
    const ebb_value sum = ebb_emit(b, EBB_OP_ADD, before, part);
    EBB_TRY(b->status);
    EBB_TRY(ebb_graph_add_output(g, sum));
    g->loss = sum;
    return NULL;
}

/* `part`, one number, is the loss, or the next one: times its weight. */
static ebb_status put(ebb_edit *e, ebb_build *b, ebb_value part, const char *name)
{
    ebb_graph *g = e->g;
    const double weight = ebb_option_float(e, "weight");
    const bool adds = ebb_option_int(e, "nth") > 1;
    if (weight != 1) {
        ebb_with_name(b, name);
        part = ebb_emit(b, EBB_OP_MUL, part, ebb_const_like(b, part, weight));
        EBB_TRY(b->status);
    }
    if ((ebb_value_of(g, part)->flags & EBB_IS_OUTPUT) == 0)
        EBB_TRY(ebb_graph_add_output(g, part));
    if (!adds || g->loss.i == 0)
        g->loss = part;
    else
        EBB_TRY(add_to_loss(b, part));
    ebb_applied(e);
    return NULL;
}

/* "loss"; of one of several, with its target. */
static const char *name_of(ebb_edit *e)
{
    return ebb_option_int(e, "nth") == 0
               ? "loss"
               : ebb_arena_printf(e->scratch, "loss_%s", ebb_option_string(e, "target"));
}

static ebb_build begin(ebb_edit *e)
{
    ebb_build b = ebb_edit_build(e, ebb_first_update(e->g), EBB_LOSS);
    b.phase = EBB_LOSS;
    b.name = "loss";
    return b;
}

static ebb_status name_existing(ebb_edit *e, const char *name)
{
    ebb_value v;
    int64_t elements;
    EBB_TRY(find_output(e, name, &v));
    const ebb_type *type = ebb_value_of(e->g, v)->type;
    if (!is_float_tensor(e->g, v) ||
        (type->rank > 0 && (!ebb_type_elements(type, &elements) || elements != 1)))
        return ebb_error(EBB_USAGE, "loss: output '%s' is not a single floating-point number",
                         name);
    ebb_found(e);
    ebb_build b = begin(e);
    return put(e, &b, v, name);
}

static ebb_status append(ebb_edit *e, const ebb_loss_kind *kind, ebb_value output)
{
    ebb_graph *g = e->g;
    ebb_build b = begin(e);
    ebb_loss_site s = {.e = e, .b = &b, .x = output, .type = *ebb_value_of(g, output)->type};
    const char *name = name_of(e);
    const size_t value_count = g->value_count;
    ebb_weight *weights;
    ebb_value loss = EBB_NO_VALUE;
    char text[256];
    EBB_GOT(name);
    if (s.type.rank < 0)
        return ebb_error(EBB_USAGE, "loss: the shape of output '%s' is not known",
                         ebb_value_name(g, output));
    s.name = ebb_option_float(e, "weight") == 1 ? name : NULL;
    EBB_TRY(judge_weights(e, output, &weights));
    EBB_TRY(find_axis(&s, kind->target));
    EBB_TRY(find_target(&s, kind->target));
    EBB_TRY(kind->build(&s, &loss));
    const ebb_type target = *ebb_value_of(g, s.target)->type;
    let_go_of_outputs(e);
    EBB_TRY(put(e, &b, loss, name));
    EBB_TRY(note_unreached(e, weights, value_count));
    return ebb_note(e, "%s of '%s' against %s'%s' %s", kind->name, ebb_value_name(g, output),
                    s.is_new                                     ? "the new input "
                    : is_of_teacher(ebb_value_name(g, s.target)) ? ""
                                                                 : "the input ",
                    ebb_value_name(g, s.target),
                    ebb_type_print(text, sizeof text, &target, &g->model->names));
}

static ebb_status run(ebb_edit *e)
{
    const char *name = ebb_option_string(e, "name"), *kind = ebb_option_string(e, "kind");
    ebb_value output;
    if (name == NULL && kind == NULL)
        return ebb_error(EBB_USAGE, "loss: say which, or name=OUTPUT: %s", NAMES);
    EBB_TRY(check_options(e, name == NULL ? ebb_loss_kind_find(kind) : NULL));
    if (e->g->loss.i != 0 && ebb_option_int(e, "nth") == 1 && name == NULL)
        return ebb_error(
            EBB_USAGE,
            "loss: the graph has the loss '%s' already, so several cannot be added up; "
            "name=%s, as the first of them, takes it along",
            ebb_value_name(e->g, e->g->loss), ebb_value_name(e->g, e->g->loss));
    if (name != NULL)
        return name_existing(e, name);
    if (e->g->loss.i != 0 && ebb_option_int(e, "nth") == 0)
        return ebb_declined(e, EBB_NO_NODE, "the graph has a loss already");
    EBB_TRY(find_output(e, ebb_option_string(e, "output"), &output));
    ebb_found(e);
    return append(e, ebb_loss_kind_find(kind), output);
}

// clang-format off
static const ebb_option options[] = {
    {"kind",            EBB_OPTION_CHOICE, NULL,     NAMES,                          doc_of_kind},
    {"output",          EBB_OPTION_STRING, NULL,     NULL,                            "the predictions; default: the first floating-point output"},
    {"target",          EBB_OPTION_STRING, "target", NULL,                            "name of the new graph input; or, where said, of one that is there, or of what the teacher computes: teacher/OUTPUT"},
    {"axis",            EBB_OPTION_INT,    NULL,     "[-12, 11]",                     "cross-entropy, cosine, kl: axis of the classes; default 1 for matrices. dice, focal: the target is class numbers"},
    {"ignore_index",    EBB_OPTION_INT,    "-100",   NULL,                            "cross-entropy, dice, focal: targets of this class do not count; ctc: fills rows up"},
    {"reduction",       EBB_OPTION_CHOICE, "mean",   "mean|sum",                      "over the elements that count"},
    {"keep-output",     EBB_OPTION_INT,    "0",      "[0, 1]",                        "1: what were graph outputs stay so"},
    {"name",            EBB_OPTION_STRING, NULL,     NULL,                            "this output is the loss already"},
    {"weight",          EBB_OPTION_FLOAT,  "1",      "(0, inf)",                      "the loss is multiplied by this"},
    {"nth",             EBB_OPTION_INT,    "0",      "[0, 1000]",                      "of several: 1 for the first, more for one that is added to those before; --loss given twice says so by itself"},
    {"class-weights",   EBB_OPTION_STRING, NULL,     NULL,                            "cross-entropy, focal: one number a class, \"1,2.5\", or a file of them"},
    {"label-smoothing", EBB_OPTION_FLOAT,  "0",      "[0, 1)",                        "cross-entropy: this share is spread over all classes"},
    {"pos-weight",      EBB_OPTION_STRING, NULL,     NULL,                            "bce-logits: weight of the elements that are 1: one number, one a column, or a file"},
    {"delta",           EBB_OPTION_FLOAT,  "1",      "(0, inf)",                      "huber: linear from this error on"},
    {"beta",            EBB_OPTION_FLOAT,  "1",      "(0, inf)",                      "smooth-l1: linear from this error on"},
    {"gamma",           EBB_OPTION_FLOAT,  "2",      "[1, inf)",                      "focal: how much less the easy elements count"},
    {"alpha",           EBB_OPTION_FLOAT,  "0.25",   "[0, 1]",                        "focal of 0 and 1: weight of the elements that are 1; the others have 1 - alpha"},
    {"smooth",          EBB_OPTION_FLOAT,  "1",      "(0, inf)",                      "dice: added above and below the fraction"},
    {"over",            EBB_OPTION_CHOICE, "sample", "sample|batch",                  "dice: what is summed before the fraction is formed"},
    {"temperature",     EBB_OPTION_FLOAT,  "1",      "(0, inf)",                      "kl: both logits are divided by it, the loss multiplied by its square"},
    {"time-axis",       EBB_OPTION_INT,    "0",      "[0, 1]",                        "ctc: axis of time in the predictions: 0 for [time, rows, classes], 1 for [rows, time, classes]"},
    {"labels",          EBB_OPTION_INT,    NULL,     "[1, 65536]",                    "ctc: labels in a row of the target; shorter ones are filled up with ignore_index"},
    {"blank",           EBB_OPTION_INT,    "0",      "[0, inf)",                      "ctc: the class that stands for no label"},
    {"input-lengths",   EBB_OPTION_STRING, NULL,     NULL,                            "ctc: name of a new graph input, how many steps of time each row has; default: all"},
    {"zero-infinity",   EBB_OPTION_INT,    "0",      "[0, 1]",                        "ctc: 1: rows whose labels do not fit into their steps count as 0"},
    {"target-is",       EBB_OPTION_CHOICE, "logits", "logits|probabilities|log-probabilities", "kl: what the target holds"},
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
