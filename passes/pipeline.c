/* pipeline.c: a list of passes, run over a model one by one. Its text is read in pipeline_text.c. */
#include "passes/pipeline.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "exec/weigh/memory.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/words/clock.h"
#include "passes/budget/contest.h"
#include "passes/fingerprint.h"
#include "passes/passes.h"
#include "passes/pipeline_text.h"

/* ---- the order ---- */

static ebb_pass_phase phase_at(const ebb_stages *p, size_t i)
{
    return ebb_pass_phase_of(p->list[i].pass);
}

/* The stage at `from` is run before the one at `to`. */
static void move_before(ebb_stages *p, size_t from, size_t to)
{
    const ebb_stage moved = p->list[from];
    memmove(&p->list[to + 1], &p->list[to], (from - to) * sizeof moved);
    p->list[to] = moved;
}

/* What changes the primal goes before the gradient of it; of that, what adds parameters before what
 * puts nodes between them and their readers. Else the order is that of the text. */
static void place_primal(ebb_stages *p)
{
    size_t gradient = 0, computation = 0;
    while (gradient < p->count && phase_at(p, gradient) != EBB_PHASE_GRADIENT)
        gradient++;
    for (size_t i = gradient + 1; i < p->count; i++)
        if (ebb_pass_moves(p->list[i].pass))
            move_before(p, i, gradient++);
    while (computation < p->count && phase_at(p, computation) != EBB_PHASE_COMPUTATION)
        computation++;
    for (size_t i = computation + 1; i < p->count; i++)
        if (phase_at(p, i) == EBB_PHASE_PARAMETERS)
            move_before(p, i, computation++);
}

/* ---- weighing ---- */

typedef struct weight {
    uint64_t peak_bytes, saved_bytes;
} weight;

/* Zeros where a size is not known yet. */
static weight weigh_as_marked(const ebb_graph *g)
{
    ebb_memory memory;
    if (ebb_require_static(g) != NULL || ebb_memory_total(&memory, g, EBB_ALIGN) != NULL)
        return (weight){0};
    return (weight){memory.peak_bytes, memory.saved_bytes};
}

/* ---- marks of shared memory ---- */

static const ebb_pass *const marking[] = {&ebb_pass_stream, &ebb_pass_alias}; // in this order

enum { STREAMED = 1, SHARED = 2 }; /* bits by place in marking[] */

static unsigned marks_by(const ebb_pass *pass)
{
    return pass == marking[0] ? STREAMED : pass == marking[1] ? SHARED : 0;
}

static unsigned marks_of(const ebb_graph *g)
{
    unsigned found = 0;
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        found |= info->tile_rows != 0 ? STREAMED : 0;
        for (uint32_t k = 0; k < info->out_count; k++)
            found |= ebb_node_over(g, n, k) != 0 ? SHARED : 0;
    }
    return found;
}

static void unshare(ebb_graph *g)
{
    EBB_EACH_VALUE(g, v)
        ebb_value_of(g, v)->over = 0;
}

void ebb_pipeline_unmark(ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        ebb_node_of(g, n)->tile_rows = 0;
    unshare(g);
}

static ebb_status run_pass(ebb_graph *g, const ebb_stage *s, ebb_decides decides, void *context,
                           ebb_arena *keep, ebb_report *report)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_edit edit = {.g = g,
                     .pass = s->pass,
                     .options = s->options,
                     .option_count = s->option_count,
                     .scratch = scratch,
                     .keep = keep,
                     .report = report,
                     .decides = decides,
                     .context = context};
    return s->pass->run(&edit);
}

static ebb_status put_marks(ebb_graph *g, unsigned which)
{
    EBB_LOCAL_ARENA(keep);
    for (size_t i = 0; i < sizeof marking / sizeof *marking; i++) {
        ebb_report unread = {0};
        const ebb_stage s = {.pass = marking[i]};
        if ((which & marks_by(s.pass)) != 0)
            EBB_TRY(run_pass(g, &s, NULL, NULL, keep, &unread));
    }
    return NULL;
}

ebb_status ebb_pipeline_mark(ebb_graph *g)
{
    return put_marks(g, STREAMED | SHARED);
}

ebb_status ebb_pipeline_one(ebb_graph *g, const ebb_pass *pass,
                            const struct ebb_option_value *options, ebb_decides decides,
                            void *context, ebb_arena *keep, ebb_report *report)
{
    ebb_stage s = {.pass = pass};
    for (; options != NULL && options[s.option_count].name != NULL; s.option_count++)
        ;
    struct ebb_option_value *list = EBB_NEW(keep, struct ebb_option_value, s.option_count + 1);
    EBB_GOT(list);
    if (s.option_count > 0)
        memcpy(list, options, s.option_count * sizeof *list);
    s.options = list;
    *report = (ebb_report){.pass = pass->name, .exactness = pass->exactness};
    EBB_TRY(run_pass(g, &s, decides, context, keep, report));
    (void)ebb_graph_sweep(g);
    return ebb_while(ebb_infer_graph(g), "inferring types after pass %s", pass->name);
}

/* A view is no copy, whether the alias pass has said so yet or not: else a pass that lets the
 * backward read a view of what is kept would seem to add to it. */
static weight weigh(ebb_graph *g)
{
    if ((marks_of(g) & SHARED) != 0)
        return weigh_as_marked(g);
    EBB_LOCAL_ARENA(keep);
    ebb_report unread = {0};
    struct ebb_option_value views = {"what", "views"};
    const ebb_stage s = {.pass = &ebb_pass_alias, .options = &views, .option_count = 1};
    weight w = {0};
    if (run_pass(g, &s, NULL, NULL, keep, &unread) == NULL)
        w = weigh_as_marked(g);
    unshare(g);
    return w;
}

/* ---- one stage ---- */

/* Under `strict`, a technique that was asked for and changed nothing is an error. What makes a step
 * or tidies it is no technique, and a budget that is kept is kept, with or without a change. */
static ebb_status check_applied(const ebb_stage *s, const ebb_report *r, ebb_arena *scratch)
{
    if (r->applied > 0 || r->holds || s->pass->exactness == EBB_MAKES || ebb_pass_tidies(s->pass))
        return NULL;
    if (r->found == 0)
        return ebb_error(EBB_UNSUPPORTED, "pass %s found nothing to apply to", s->pass->name);
    const char *reasons = "";
    for (size_t i = 0; i < r->skip_count && reasons != NULL; i++)
        reasons = ebb_arena_printf(scratch, "%s%s%s (%zu)", reasons, i > 0 ? "; " : "",
                                   r->skips[i].reason, r->skips[i].count);
    return ebb_error(EBB_UNSUPPORTED, "pass %s applied to none of %zu sites: %s", s->pass->name,
                     r->found, reasons != NULL ? reasons : "");
}

/* Of a preset it is enough that one of its techniques applied. */
static ebb_status check_presets(const ebb_stages *p, const ebb_report *reports)
{
    for (size_t i = 0; i < p->count; i++) {
        size_t applied = 0, techniques = 0, k = i;
        for (; p->list[i].preset != 0 && k < p->count; k++) {
            if (p->list[k].preset != p->list[i].preset)
                break;
            techniques += !ebb_pass_tidies(p->list[k].pass);
            applied += reports[k].applied;
        }
        if (techniques > 0 && applied == 0)
            return ebb_error(EBB_UNSUPPORTED,
                             "no pass of the preset found anything to apply to, from %s to %s",
                             p->list[i].pass->name, p->list[k - 1].pass->name);
        i = k > i ? k - 1 : i;
    }
    return NULL;
}

static ebb_status verify(const ebb_graph *g, const ebb_pass *pass)
{
    ebb_status status = ebb_verify(g);
    if (status == NULL || ebb_status_code(status) == EBB_VERIFY)
        return ebb_while(status, "checking the graph after pass %s", pass->name);
    return ebb_error(EBB_VERIFY, "pass %s left an illegal graph: %s", pass->name,
                     ebb_status_text(status));
}

static ebb_status show(const ebb_graph *g, const ebb_pass *pass, const ebb_rewrite_options *options)
{
    bool wanted =
        options->print != NULL && options->print_after != NULL &&
        (strcmp(options->print_after, "all") == 0 || strcmp(options->print_after, pass->name) == 0);
    if (!wanted)
        return NULL;
    char *text;
    EBB_TRY(ebb_text_print(&text, g));
    options->print(options->context, pass->name, text);
    ebb_free(text);
    return NULL;
}

/* What is known of the graph as the last stage left it. */
typedef struct known {
    unsigned marked; /* by the stages so far */
    weight weight;
    uint64_t settled; /* fingerprint of a graph of which inference tells nothing new; 0: it did */
} known;

/* Most stages leave the graph as it was, and that they applied nothing does not say so: its
 * fingerprint does. *settled: types are what they were. */
static ebb_status infer(ebb_graph *g, known *k, bool *settled)
{
    const uint64_t given = ebb_fingerprint(g);
    *settled = given == k->settled;
#ifdef NDEBUG
    if (*settled)
        return NULL;
#endif
    EBB_TRY(ebb_infer_graph(g));
    const bool stayed = ebb_fingerprint(g) == given;
    assert(stayed || !*settled);
    k->settled = stayed ? given : 0;
    return NULL;
}

/* The weight of a settled graph is known, too, unless there are marks. */
static weight weigh_anew(ebb_graph *g, const known *k, bool settled)
{
    const weight was = k->weight;
    const bool same = settled && k->marked == 0;
#ifdef NDEBUG
    if (same)
        return was;
#endif
    const weight w = weigh(g);
    assert(!same || was.peak_bytes == 0 || w.peak_bytes == 0 || // there was no memory to weigh it
           (w.peak_bytes == was.peak_bytes && w.saved_bytes == was.saved_bytes));
    return w;
}

static ebb_status run_stage(ebb_graph *g, const ebb_stage *s, const ebb_rewrite_options *options,
                            ebb_contest *contest, known *k, ebb_arena *keep, ebb_report *report)
{
    int64_t start = ebb_now_ns();
    unsigned own = marks_by(s->pass);
    bool settled;
    *report = (ebb_report){.pass = s->pass->name,
                           .exactness = s->pass->exactness,
                           .nodes_before = ebb_graph_size(g),
                           .peak_before_bytes = k->weight.peak_bytes};
    if (own == 0)
        ebb_pipeline_unmark(g);
    ebb_status status =
        run_pass(g, s, contest != NULL ? ebb_contest_judge : NULL, contest, keep, report);
    if (status != NULL) // a pass that refuses changes nothing, the marks included
        (void)put_marks(g, k->marked);
    EBB_TRY(status);
    (void)ebb_graph_sweep(g);
    EBB_TRY(ebb_while(infer(g, k, &settled), "inferring types after pass %s", s->pass->name));
    k->marked |= own;
    EBB_TRY(put_marks(g, k->marked & ~own)); // what is shared depends on what is read in tiles
#ifndef NDEBUG
    EBB_TRY(verify(g, s->pass));
#else
    if (options->verify_each)
        EBB_TRY(verify(g, s->pass));
#endif
    report->ns = ebb_now_ns() - start;
    const weight after = weigh_anew(g, k, settled);
    report->peak_after_bytes = after.peak_bytes;
    if (k->weight.peak_bytes > 0 && after.peak_bytes > 0)
        report->saved_bytes = (int64_t)k->weight.saved_bytes - (int64_t)after.saved_bytes;
    report->nodes_after = ebb_graph_size(g);
    k->weight = after;
    EBB_TRY(show(g, s->pass, options));
    return options->strict && s->preset == 0 ? check_applied(s, report, keep) : NULL;
}

/* ---- what the file remembers ---- */

/* The list that the model's metadata holds, or an empty one: a file may say anything. */
static json_t *remembered(const ebb_model *model)
{
    const char *text = ebb_props_get(model->graph, &model->props, "ebb.passes");
    json_t *list = text != NULL ? json_loads(text, 0, NULL) : NULL;
    if (json_is_array(list))
        return list;
    json_decref(list);
    return json_array();
}

static ebb_status remember(ebb_model *model, const ebb_stages *p, const ebb_report *reports,
                           size_t count, ebb_arena *scratch)
{
    json_t *list = remembered(model);
    bool complete = list != NULL;
    for (size_t i = 0; i < count && complete; i++) {
        const ebb_report *r = &reports[i];
        const char *options = ebb_stage_text(&p->list[i], scratch);
        complete =
            options != NULL &&
            json_array_append_new(
                list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "name", r->pass, "options",
                                options, "found", (json_int_t)r->found, "applied",
                                (json_int_t)r->applied, "saved_bytes", (json_int_t)r->saved_bytes,
                                "peak_before_bytes", (json_int_t)r->peak_before_bytes,
                                "peak_after_bytes", (json_int_t)r->peak_after_bytes)) == 0;
    }
    char *text = complete ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    EBB_GOT(text);
    ebb_status status = ebb_props_set(model->graph, &model->props, "ebb.passes", text);
    free(text);
    return status;
}

/* ---- passes that want the same ---- */

/* How many stages from the i-th on make offers. */
static size_t side_by_side(const ebb_stages *p, size_t i)
{
    size_t count = 0;
    while (i + count < p->count && ebb_pass_offers(p->list[i + count].pass))
        count++;
    return count;
}

/* What each of these stages would take, heard on a copy. */
static ebb_status hear(ebb_contest *contest, const ebb_graph *g, const ebb_stage *stages,
                       size_t count, ebb_arena *keep)
{
    ebb_model *copy;
    const ebb_pass **entrants =
        (const ebb_pass **)ebb_arena_zeroed(keep, count + 1, sizeof *entrants);
    EBB_GOT(entrants);
    for (size_t i = 0; i < count; i++)
        entrants[i] = stages[i].pass;
    EBB_TRY(ebb_contest_init(contest, g, entrants, count, keep));
    EBB_TRY(ebb_model_copy(&copy, g->model));
    ebb_pipeline_unmark(copy->graph);
    ebb_status status = NULL;
    for (size_t i = 0; i < count && status == NULL; i++) {
        ebb_report unread = {0};
        contest->now = i;
        status = run_pass(copy->graph, &stages[i], ebb_contest_hear, contest, keep, &unread);
    }
    ebb_model_free(copy);
    return status;
}

/* Stages side by side. One that was refused a tensor is run again at the end: what the winner left
 * after all is not lost. */
static ebb_status run_contest(ebb_graph *g, const ebb_stage *stages, size_t count,
                              const ebb_rewrite_options *options, known *k, ebb_arena *keep,
                              ebb_report *reports)
{
    ebb_contest contest;
    size_t *refused = EBB_NEW(keep, size_t, count + 1);
    EBB_GOT(refused);
    EBB_TRY(hear(&contest, g, stages, count, keep));
    for (size_t i = 0; i < count; i++) {
        contest.now = i;
        contest.refused = 0;
        EBB_TRY(run_stage(g, &stages[i], options, &contest, k, keep, &reports[i]));
        refused[i] = contest.refused;
    }
    for (size_t i = 0; i < count; i++) {
        ebb_report again;
        if (refused[i] == 0)
            continue;
        ebb_rewrite_options quiet = *options;
        quiet.strict = false;
        EBB_TRY(run_stage(g, &stages[i], &quiet, NULL, k, keep, &again));
        reports[i].applied += again.applied;
        reports[i].saved_bytes += again.saved_bytes;
    }
    return NULL;
}

static ebb_status run_all(ebb_model *model, const ebb_stages *p, const ebb_rewrite_options *options,
                          ebb_arena *keep, ebb_report *reports, size_t *count)
{
    ebb_graph *g = model->graph;
    known k = {.marked = marks_of(g)};
    bool settled;
    EBB_TRY(infer(g, &k, &settled));
    k.weight = weigh(g);
    for (size_t i = 0; i < p->count; i = *count) {
        size_t offering = side_by_side(p, i);
        if (offering > 1) {
            EBB_TRY(run_contest(g, &p->list[i], offering, options, &k, keep, &reports[i]));
            *count += offering;
        } else {
            EBB_TRY(run_stage(g, &p->list[i], options, NULL, &k, keep, &reports[i]));
            ++*count;
        }
    }
    return options->strict ? check_presets(p, reports) : NULL;
}

ebb_status ebb_pipeline_run(ebb_model *model, const char *pipeline,
                            const ebb_rewrite_options *options, ebb_arena *keep,
                            ebb_report **reports, size_t *count)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_stages p;
    *reports = NULL;
    *count = 0;
    EBB_TRY(ebb_stages_read(&p, pipeline, scratch));
    *reports = EBB_NEW(keep, ebb_report, p.count + 1);
    EBB_GOT(*reports);
    place_primal(&p);
    EBB_TRY(run_all(model, &p, options, keep, *reports, count));
    return remember(model, &p, *reports, *count, scratch);
}
