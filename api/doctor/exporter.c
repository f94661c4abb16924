/* exporter.c: what the exporter wrote, counted in the file and again in what the passes made of it;
 * and what it lost. */
#include "api/doctor/doctor.h"

#include "onnx/graph/infer.h"
#include "passes/mended/copied.h"
#include "passes/mended/dropped.h"
#include "passes/primal/habit.h"
#include "passes/primal/lost.h"
#include "passes/mended/looked_up.h"
#include "passes/mended/merged.h"
#include "passes/mended/unfolded.h"
#include "passes/mended/zeros.h"
#include "passes/parameters/values.h"
#include "passes/passes.h"
#include "passes/pipeline.h"
#include "passes/pipeline_text.h"

/* ---- the tidied copy ---- */

ebb_status ebb_doctor_pass(ebb_doctor *d, ebb_model *model, const char *pass, ebb_report *report)
{
    const ebb_rewrite_options options = {0};
    ebb_report *reports;
    size_t count = 0;
    ebb_status status = ebb_pipeline_run(model, pass, &options, &d->arena, &reports, &count);
    *report = (ebb_report){.pass = pass};
    if (status == NULL && count == 1)
        *report = reports[0];
    if (status == NULL || ebb_status_code(status) == EBB_RUNTIME)
        return status;
    ebb_finding *f = ebb_doctor_add(d, EBB_PROBLEM, "pass");
    EBB_GOT(f);
    const char *sentence = ebb_doctor_sentence(d, status);
    f->code = ebb_status_code(status);
    f->pass = pass;
    f->what =
        sentence != NULL ? ebb_arena_printf(&d->arena, "pass %s ended: %s", pass, sentence) : NULL;
    f->help = "what it names must be otherwise in the model";
    return f->what != NULL ? NULL : ebb_error_memory();
}

ebb_status ebb_doctor_tidy(ebb_doctor *d)
{
    if (ebb_doctor_found(d, "types") || ebb_doctor_found(d, "graph"))
        return NULL; // no pass is made for such a graph
    char *text;
    ebb_stages stages;
    EBB_TRY(ebb_model_copy(&d->tidy, d->model)); // not of raw, which goes first
    EBB_TRY(ebb_zeros_drop(d->tidy->graph));
    EBB_TRY(ebb_infer_graph(d->tidy->graph));
    EBB_TRY(ebb_step_pipeline(&text, NULL));
    ebb_status status = ebb_stages_read(&stages, text, &d->arena);
    ebb_release(text);
    EBB_TRY(status);
    d->reports = EBB_NEW(&d->arena, ebb_report, stages.count);
    EBB_GOT(d->reports);
    for (size_t i = 0; stages.list[i].pass != &ebb_pass_gradient; i++) { // as a step begins
        EBB_TRY(ebb_doctor_pass(d, d->tidy, stages.list[i].pass->name, &d->reports[i]));
        d->report_count++;
    }
    return NULL;
}

/* ---- habits ---- */

typedef struct census {
    ebb_doctor *d;
    const ebb_habit *row;
    size_t count;
    ebb_finding *f; /* to be told of the nodes; NULL: only count */
} census;

static ebb_status take_down(void *context, const ebb_graph *g, ebb_node n)
{
    census *c = context;
    if (!c->row->fits(g, n))
        return NULL;
    c->count++;
    return c->f != NULL ? ebb_doctor_node(c->d, c->f, g, n) : NULL;
}

/* Why a pass left some: its reasons, each with how often. */
static const char *reasons_of(ebb_doctor *d, const char *pass)
{
    const char *text = "";
    for (size_t i = 0; i < d->report_count && pass != NULL; i++) {
        const ebb_report *r = &d->reports[i];
        for (size_t k = 0; strcmp(r->pass, pass) == 0 && k < r->skip_count && text != NULL; k++)
            text = ebb_arena_printf(&d->arena, "%s; %s", text, r->skips[k].reason);
    }
    return text;
}

static ebb_status look_for(ebb_doctor *d, const ebb_habit *row)
{
    census before = {.d = d, .row = row}, after = {.d = d, .row = row};
    EBB_TRY(ebb_visit_nodes(d->raw, take_down, &before));
    if (before.count == 0)
        return NULL;
    if (d->tidy != NULL)
        EBB_TRY(ebb_visit_nodes(d->tidy, take_down, &after));
    bool handled = row->pass != NULL && d->tidy != NULL && after.count == 0;
    ebb_finding *f =
        ebb_doctor_add(d, handled || row->harmless ? EBB_REMARK : EBB_WARNING, row->kind);
    EBB_GOT(f);
    census named = {.d = d, .row = row, .f = f};
    EBB_TRY(ebb_visit_nodes(d->raw, take_down, &named));
    f->what = row->what;
    f->pass = handled ? row->pass : "";
    f->help = handled ? "" : row->help;
    if (handled || d->tidy == NULL || row->pass == NULL)
        return NULL;
    const char *why = reasons_of(d, row->pass);
    f->what = why != NULL ? ebb_arena_printf(&d->arena, "%s; after the passes there are %zu%s",
                                             row->what, after.count, why)
                          : NULL;
    return f->what != NULL ? NULL : ebb_error_memory();
}

/* Chains that a pass puts together, by its own count. on: a copy that may be changed. */
static ebb_status count_sites(ebb_doctor *d, const char *kind, const ebb_report *r,
                              const char *what, const char *help)
{
    if (r->applied == 0)
        return NULL;
    ebb_finding *f = ebb_doctor_add(d, EBB_REMARK, kind);
    EBB_GOT(f);
    f->count = r->applied;
    f->what = what;
    f->help = help;
    f->pass = help[0] == '\0' ? r->pass : "";
    return NULL;
}

static ebb_status look_for_chains(ebb_doctor *d)
{
    ebb_model *copy;
    ebb_report r;
    EBB_TRY(count_sites(d, "taken-apart", &d->reports[d->report_count - 1],
                        "chains that stand for one operator (GELU, LayerNorm, a product with a "
                        "transposed weight ...), put together again",
                        ""));
    EBB_TRY(ebb_model_copy(&copy, d->tidy));
    size_t known = d->count;
    ebb_status status = ebb_doctor_pass(d, copy, "attention", &r);
    d->count = known; // it is not asked to apply
    ebb_model_free(copy);
    EBB_TRY(status);
    return count_sites(d, "attention", &r, "attention written as products and a softmax",
                       "--pass attention makes one operator of each, which keeps no probabilities");
}

/* ---- what is lost ---- */

static ebb_status tell_losses_of(ebb_doctor *d, const ebb_graph *g)
{
    static const char *const kinds[EBB_LOST_KIND_COUNT] = {
        "folded-batch-norm", "merged-parameters", "folded-weight", "parted-weight", "lost-detach",
        "lost-weight",       "lost-mark",         "lost-update",   "lost-sum"};
    ebb_lost *lost;
    size_t count;
    EBB_TRY(ebb_lost_list(&lost, &count, g, &d->arena));
    for (size_t i = 0; i < count; i++) {
        const ebb_severity severity = lost[i].refused                 ? EBB_PROBLEM
                                      : lost[i].kind == EBB_LOST_NAME ? EBB_REMARK // it is trained
                                                                      : EBB_WARNING;
        ebb_finding *f = ebb_doctor_add(d, severity, kinds[lost[i].kind]);
        EBB_GOT(f);
        f->code = lost[i].refused ? EBB_REJECTED : EBB_OK;
        f->what = lost[i].sentence;
        f->help = ebb_lost_help(lost[i].kind);
        if (lost[i].node.i != 0)
            EBB_TRY(ebb_doctor_node(d, f, g, lost[i].node));
    }
    return NULL;
}

/* What is undone where a file is opened to be trained, and in train-mode. */
static const struct mended {
    const char *mark, *kind, *what;
} mended[] = {
    {EBB_MERGED_WITH, "merged-parameters",
     "initializers that the exporter made one with others, as their values were equal, and that "
     "the "
     "file tells apart"},
    {EBB_COPIED_AS, "copied-parameters",
     "parameters that the exporter stored twice, as a tied head beside its embedding; each is one "
     "again"},
    {EBB_REPEATED, "repeated-parameters",
     "parameters that the exporter repeated, as a token for each row of the batch; each is there "
     "once again"},
    {EBB_LOOKED_UP, "looked-up-parameters",
     "tables of places that the exporter looked up in before the run; each is a table again"},
    {EBB_DROPPED, "dropped-biases",
     "biases that the exporter left out, as they were zero; they are there again"},
};

static ebb_status tell_mended(ebb_doctor *d, const ebb_graph *g, const struct mended *row)
{
    size_t count = 0;
    for (size_t i = 0; i < g->initializer_count; i++)
        count += ebb_props_get(g, &ebb_value_of(g, g->initializers[i])->props, row->mark) != NULL;
    if (count == 0)
        return NULL;
    ebb_finding *f = ebb_doctor_add(d, EBB_REMARK, row->kind);
    EBB_GOT(f);
    f->count = count;
    f->pass = "train-mode";
    f->what = row->what;
    return NULL;
}

/* Where all weights stand in nodes, fold makes initializers of them. */
static bool is_taken(const ebb_graph *tidy, const char *name)
{
    const ebb_value v = ebb_value_find(tidy, name);
    return v.i != 0 && ebb_value_of(tidy, v)->role != EBB_ROLE_CONSTANT;
}

/* PyTorch's exporters write no such numbers into nodes: a tool behind them computed these of what the file had. */
static ebb_status look_into_constant(ebb_doctor *d, ebb_node n)
{
    enum { ENOUGH = 32 }; // different numbers, as nobody writes down
    const ebb_graph *g = d->raw->graph;
    const ebb_value y = ebb_out(g, n, 0);
    const bool made = ebb_node_of(g, n)->op == EBB_OP_CONSTANT && y.i != 0;
    const ebb_tensor *t = made ? ebb_value_constant(g, y) : NULL;
    ebb_look look;
    int64_t different;
    if (t == NULL || is_taken(d->tidy->graph, ebb_value_name(g, y)))
        return NULL;
    EBB_TRY(ebb_values_look(&look, &different, t, &d->arena));
    if ((look != EBB_LOOK_DRAWN && look != EBB_LOOK_ONE_SIGN) || different < ENOUGH ||
        ebb_is_table_of_sines(t))
        return NULL;
    ebb_finding *f = ebb_doctor_add(d, EBB_WARNING, "lost-weight");
    EBB_GOT(f);
    f->what = ebb_arena_printf(
        &d->arena, "the constant '%.200s' holds numbers as a parameter does, and is not trained",
        ebb_value_name(g, y));
    f->help = "give ebb the file as it was exported, before another tool simplified it";
    return f->what != NULL ? NULL : ebb_error_memory();
}

/* As a step begins: an operator of another runtime may hold a convolution. */
static ebb_status open_calls(ebb_doctor *d, ebb_model *copy)
{
    const size_t known = d->count;
    ebb_report r;
    ebb_status status = d->tidy != NULL ? ebb_doctor_pass(d, copy, "inline", &r) : NULL;
    d->count = known; // told of the tidied copy
    return status;
}

static ebb_status tell_losses(ebb_doctor *d)
{
    ebb_model *copy;
    EBB_TRY(ebb_model_copy(&copy, d->raw));
    ebb_status status = open_calls(d, copy);
    if (status == NULL)
        status = ebb_merged_part(copy->graph, &d->arena);
    if (status == NULL)
        status = tell_losses_of(d, copy->graph);
    for (size_t i = 0; status == NULL && i < sizeof mended / sizeof *mended; i++)
        status = tell_mended(d, copy->graph, &mended[i]);
    ebb_model_free(copy);
    EBB_TRY(status);
    if (d->tidy != NULL)
        EBB_EACH_NODE(d->raw->graph, n)
            EBB_TRY(look_into_constant(d, n));
    return NULL;
}

ebb_status ebb_doctor_exporter(ebb_doctor *d)
{
    size_t count;
    const ebb_habit *rows = ebb_habits(&count);
    EBB_TRY(tell_losses(d));
    for (size_t i = 0; i < count; i++)
        EBB_TRY(look_for(d, &rows[i]));
    if (d->tidy == NULL)
        return NULL;
    ebb_model_free(d->raw); // before another copy is made
    d->raw = NULL;
    return look_for_chains(d);
}
