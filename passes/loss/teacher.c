/* teacher: a second model beside the first, for a loss to learn from.
 *
 *   before   ... logits                                       x: an input
 *   after    teacher/logits = ... (x)                         its weights are constants of the step
 *            ... logits                                       loss kl:target=teacher/logits reads both
 *
 * It is computed forward, dropout off and by running statistics, before the model: so of it only what a loss
 * reads is alive while the model is computed. Each input is the model's of the same name; where both
 * have one, it is that. Nothing of it is trained: constants are in no set of weights, whatever --train says.
 *
 * Declines, by an error, where a body of control flow is left in it and where the two are of other opsets
 * above 17, which a file cannot mix. What it says can always be computed before, by `ebb run`.
 */
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/words/map.h"
#include "passes/common.h"
#include "passes/flatten/body.h"
#include "passes/pipeline.h"

typedef struct teaching {
    ebb_edit *e;
    ebb_graph *g, *t; /* the model's, the teacher's */
    ebb_value *in;    /* values of g for the inputs of t */
} teaching;

/* ---- its inputs ---- */

static bool is_fed(const ebb_graph *g, ebb_value v)
{
    return (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) == 0;
}

static size_t count_fed(const ebb_graph *g, ebb_value *first)
{
    size_t count = 0;
    for (size_t i = g->input_count; i-- > 0;)
        if (is_fed(g, g->inputs[i])) {
            *first = g->inputs[i];
            count++;
        }
    return count;
}

static const char *names_of(ebb_arena *arena, const ebb_graph *g, const ebb_value *list,
                            size_t count)
{
    const char *text = "";
    for (size_t i = 0; i < count && text != NULL; i++)
        if (is_fed(g, list[i]))
            text = ebb_arena_printf(arena, "%s%s'%s'", text, text[0] != '\0' ? ", " : "",
                                    ebb_value_name(g, list[i]));
    return text != NULL ? text : "...";
}

/* Inputs with a default keep it. */
static void drop_defaults(ebb_graph *t)
{
    for (size_t i = t->input_count; i-- > 0;)
        if (!is_fed(t, t->inputs[i]))
            ebb_graph_remove_input(t, t->inputs[i]);
}

/* Rows may be more than those that it was exported with. */
static bool fits(const ebb_type *its, const ebb_type *ours)
{
    if (ours->kind != EBB_KIND_TENSOR || ours->dtype != its->dtype)
        return false;
    if (its->rank >= 0 && ours->rank >= 0 && its->rank != ours->rank)
        return false;
    for (int d = 1; d < its->rank && d < ours->rank; d++)
        if (its->dims[d] >= 0 && ours->dims[d] >= 0 && its->dims[d] != ours->dims[d])
            return false;
    return true;
}

static ebb_status join_input(teaching *s, size_t i)
{
    ebb_graph *g = s->g, *t = s->t;
    ebb_value only = EBB_NO_VALUE, unused;
    const char *name = ebb_value_name(t, t->inputs[i]);
    ebb_value v = ebb_value_find(g, name);
    if (v.i == 0 || (ebb_value_of(g, v)->flags & EBB_IS_INPUT) == 0 || !is_fed(g, v))
        v = count_fed(g, &only) == 1 && count_fed(t, &unused) == 1 ? only : EBB_NO_VALUE;
    if (v.i == 0)
        return ebb_hint(
            ebb_error(EBB_USAGE, "its input '%s' is none of the model, which has %s", name,
                      names_of(s->e->scratch, g, g->inputs, g->input_count)),
            "compute what it says before: `ebb run` saves it, and --data and --map feed it");
    const ebb_type *ours = ebb_value_of(g, v)->type, *its = ebb_value_of(t, t->inputs[i])->type;
    char a[256], b[256];
    if (!fits(its, ours))
        return ebb_error(EBB_USAGE, "its input '%s' is %s, and the model's '%s' is %s", name,
                         ebb_type_print(a, sizeof a, its, &t->model->names), ebb_value_name(g, v),
                         ebb_type_print(b, sizeof b, ours, &g->model->names));
    s->in[i] = v;
    return ebb_type_is_static(ours) ? ebb_bind_shape(t, name, ours->dims, ours->rank) : NULL;
}

/* ---- its graph ---- */

static const char *refuses(const ebb_graph *t, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(t, n);
    if (info->op == EBB_OP_UNKNOWN)
        return "no operator of this name is known";
    for (uint32_t i = 0; i < info->attr_count; i++)
        if (info->attr[i].graphs != NULL)
            return "its body is computed by the runtime, which a teacher cannot have";
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0 && ebb_value_of(t, info->out[k])->type->kind != EBB_KIND_TENSOR)
            return "it makes no tensor";
    return NULL;
}

/* Forward, as it is used; and what is of its own file alone is forgotten. */
static ebb_status prepare(teaching *s)
{
    ebb_graph *t = s->t;
    ebb_report *reports;
    size_t count;
    EBB_TRY(ebb_pipeline_run(t->model, "flatten,train-mode:dropout=off,batch-norm=frozen,fold,fuse",
                             &(ebb_rewrite_options){0}, s->e->scratch, &reports, &count));
    EBB_EACH_NODE(t, n) {
        const char *why = refuses(t, n);
        if (why != NULL)
            return ebb_error(EBB_UNSUPPORTED, "%s: %s", ebb_node_label(t, n), why);
        ebb_node_of(t, n)->doc = ebb_node_of(t, n)->overload = (ebb_str){0};
    }
    const int64_t its = ebb_model_opset(t->model, EBB_DOMAIN_ONNX),
                  ours = ebb_model_opset(s->g->model, EBB_DOMAIN_ONNX);
    if (its != ours) // operators of one name take other attributes or inputs
        return ebb_hint(ebb_error(EBB_UNSUPPORTED, "it is of opset %lld, and the model of %lld",
                                  (long long)its, (long long)ours),
                        "export both with one opset_version (up to 17 they go together)");
    for (size_t i = 0; i < t->model->import_count; i++)
        EBB_TRY(ebb_model_import(s->g->model, ebb_text(t, t->model->imports[i].domain),
                                 t->model->imports[i].version));
    return NULL;
}

/* Its bytes stay where they are: in the file, or in the memory that the model takes over. */
static ebb_status put_weights(teaching *s, ebb_body *body)
{
    for (size_t i = 0; i < s->t->initializer_count; i++) {
        const ebb_value v = s->t->initializers[i];
        const ebb_tensor *tensor = ebb_value_of(s->t, v)->tensor;
        ebb_value *put = &body->weights[v.i];
        const char *name =
            ebb_arena_printf(s->e->scratch, EBB_TEACHER "/%s", ebb_value_name(s->t, v));
        EBB_GOT(name);
        EBB_TRY(ebb_graph_add_initializer(s->g, put, name, &tensor->type, NULL, EBB_ROLE_CONSTANT));
        EBB_TRY(ebb_value_point(s->g, *put, tensor->data));
    }
    return NULL;
}

static ebb_status put_outputs(teaching *s, const ebb_body *body)
{
    size_t count = 0;
    for (size_t k = 0; k < s->t->output_count; k++) {
        const ebb_value v = ebb_body_output(body, k);
        const ebb_value_info *info = ebb_value_of(s->g, v);
        if (info->producer.i == 0 || (info->flags & EBB_IS_OUTPUT) != 0)
            continue; // what it only hands through
        EBB_TRY(ebb_graph_add_output(s->g, v));
        count++;
    }
    if (count == 0)
        return ebb_error(EBB_USAGE, "it computes nothing");
    return ebb_note(
        s->e, "%s computes %s for a loss to read as its target", ebb_option_string(s->e, "file"),
        names_of(s->e->scratch, s->g, s->g->outputs + s->g->output_count - count, count));
}

/* The model keeps what it now reads: files and memory of the teacher. */
static void take_over(ebb_model *model, ebb_model *teacher)
{
    struct ebb_mapping **oldest = &model->mappings;
    while (*oldest != NULL)
        oldest = &(*oldest)->older;
    *oldest = teacher->mappings;
    for (struct ebb_mapping *m = teacher->mappings; m != NULL; m = m->older)
        m->name = NULL; // which the model's own external files may have, too
    ebb_arena_take(&model->arena, &teacher->arena);
    teacher->mappings = NULL;
}

static ebb_status teach(teaching *s)
{
    ebb_body body;
    size_t nodes = 0;
    if (s->t->binding_count > 0)
        return ebb_error(EBB_USAGE, "it is a training step: the teacher is a model as exported");
    drop_defaults(s->t);
    s->in = EBB_SCRATCH(s->e, ebb_value, s->t->input_count + 1);
    EBB_GOT(s->in);
    for (size_t i = 0; i < s->t->input_count; i++)
        EBB_TRY(join_input(s, i));
    EBB_TRY(ebb_infer_graph(s->t));
    EBB_TRY(ebb_verify(s->t));
    EBB_TRY(prepare(s));
    EBB_TRY(ebb_body_open(s->e, &body, s->t));
    EBB_TRY(put_weights(s, &body));
    EBB_TRY(
        ebb_body_put(s->e, &body, ebb_first(s->g), EBB_TEACHER, s->in, s->t->input_count, &nodes));
    EBB_TRY(put_outputs(s, &body));
    ebb_applied(s->e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_model *teacher = NULL;
    const char *path = ebb_option_string(e, "file");
    if (path == NULL)
        return ebb_error(EBB_USAGE, "teacher: say which model it is: file=FILE");
    EBB_EACH_NODE(e->g, n)
        if (ebb_node_of(e->g, n)->phase == EBB_LOSS || ebb_node_of(e->g, n)->phase == EBB_BACKWARD)
            return ebb_error(EBB_USAGE, "teacher: the graph has its loss already; it goes before");
    ebb_found(e);
    EBB_TRY(ebb_model_read(&teacher, path));
    teacher->trusted = e->g->model->trusted;
    teaching s = {.e = e, .g = e->g, .t = teacher->graph};
    ebb_status status = ebb_at(teach(&s), path);
    take_over(e->g->model, teacher); // also where it failed: nodes may be there
    ebb_model_free(teacher);
    return status;
}

static const ebb_option options[] = {
    {"file", EBB_OPTION_STRING, NULL, NULL, "the other model, as exported or trained"},
    {0},
};

const ebb_pass ebb_pass_teacher = {
    .name = "teacher",
    .doc = "compute a second model beside the first, forward and not trained, for a loss to learn "
           "from: distillation",
    .paper = "Hinton, Vinyals and Dean, Distilling the knowledge in a neural network, 2015",
    .exactness = EBB_MAKES,
    .options = options,
    .run = run,
};
