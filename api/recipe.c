/* recipe.c: the pipeline of a training step, as text: the only place that knows which passes a step
 * begins and ends with.
 *
 *     make      flatten, train-mode, fold, fuse, [segments], [teacher], loss, precision, gradient, optimizer,
 *               [data-parallel], [micro-batch], [costs], passes asked for, drop-saves, [fit], stream, alias, [costs]
 *     evaluate  the same without gradient and what follows from it
 *     use       train-mode with dropout off and batch norm frozen, [fold-norm]
 *     change    [inline, fold], [costs], passes asked for, [fit], [costs]
 *
 * The plan for a budget comes behind all that changes what is stored; costs are told twice, since
 * what came in between has none.
 */
#include "api/api.h"

#include "onnx/words/print.h"
#include "passes/common.h"
#include "passes/pipeline_text.h"
#include "onnx/words/options.h"

typedef struct recipe {
    const ebb_step_options *o;
    const ebb_model *model; /* that is changed */
    ebb_arena *arena;
    const char *text; /* NULL: no memory */
} recipe;

static void add(recipe *r, const char *pass)
{
    if (r->text != NULL)
        r->text =
            ebb_arena_printf(r->arena, "%s%s%s", r->text, r->text[0] != '\0' ? "," : "", pass);
}

/* An option of the pass that was added last: "train-mode" + ':' "seed" "1". NULL: not given. */
static void with(recipe *r, char before, const char *name, const char *value)
{
    if (r->text == NULL || value == NULL)
        return;
    const char *quoted = ebb_option_quoted(value, r->arena);
    r->text = quoted != NULL
                  ? ebb_arena_printf(r->arena, "%s%c%s=%s", r->text, before, name, quoted)
                  : NULL;
}

/* "cross-entropy:axis=1" of pass loss, and that pass alone. */
static ebb_status add_spec(recipe *r, const char *pass, const char *spec)
{
    ebb_stage stage;
    EBB_TRY(ebb_stage_read(&stage, pass, spec, r->arena));
    const char *options = ebb_stage_text(&stage, r->arena);
    add(r, pass);
    if (r->text != NULL)
        r->text = options != NULL ? ebb_arena_printf(r->arena, "%s:%s", r->text, options) : NULL;
    return NULL;
}

/* Several globs, or groups of them, are one value. */
static const char *joined(recipe *r, const char *const *globs, char between)
{
    const char *text = NULL;
    for (size_t i = 0; globs != NULL && globs[i] != NULL; i++)
        text =
            text == NULL ? globs[i] : ebb_arena_printf(r->arena, "%s%c%s", text, between, globs[i]);
    return text;
}

/* By the statistics of all processes' rows: of one process it is "train". */
static bool is_synced(const ebb_step_options *o)
{
    return o->batch_norm != NULL && strcmp(o->batch_norm, "sync") == 0;
}

/* Where weights are chosen, a layer that is not keeps its statistics. */
static void with_batch_norm(recipe *r)
{
    const ebb_step_options *o = r->o;
    const char *const train = joined(r, o->train, ';'), *const freeze = joined(r, o->freeze, ';');
    bool chosen = o->batch_norm == NULL && (train != NULL || freeze != NULL);
    with(r, ',', "batch-norm",
         chosen                                   ? "trained"
         : o->batch_norm != NULL && !is_synced(o) ? o->batch_norm
                                                  : "train");
    with(r, ',', "train", chosen ? train : NULL);
    with(r, ',', "freeze", chosen ? freeze : NULL);
}

/* A further pass that the recipe has itself, train-mode or gradient: its options are that one's. */
static const char *options_of(const char *pass, const char *own)
{
    const size_t length = strlen(own);
    return strncmp(pass, own, length) == 0 && pass[length] == ':' ? pass + length + 1 : NULL;
}

static void with_own(recipe *r, char before, const char *own)
{
    for (size_t i = 0; r->o->passes != NULL && r->o->passes[i] != NULL && r->text != NULL; i++) {
        const char *options = options_of(r->o->passes[i], own);
        if (options == NULL)
            continue;
        r->text = ebb_arena_printf(r->arena, "%s%c%s", r->text, before, options);
        before = ',';
    }
}

static void add_train_mode(recipe *r)
{
    const ebb_step_options *o = r->o;
    char seed[32];
    const char *dropout = o->dropout != NULL ? o->dropout : "on";
    const bool named = strcmp(dropout, "on") == 0 || strcmp(dropout, "off") == 0;
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)o->seed);
    add(r, "train-mode");
    with(r, ':', "seed", seed);
    with_batch_norm(r);
    with(r, ',', "statistics", o->onnx_statistics ? "onnx" : NULL);
    with(r, ',', "dropout", named ? dropout : "on");
    with(r, ',', "ratio", named ? NULL : dropout);
    with_own(r, ',', "train-mode");
}

static void add_gradient(recipe *r)
{
    const char *const train = joined(r, r->o->train, ';'), *const freeze =
                                                               joined(r, r->o->freeze, ';');
    add(r, "gradient");
    with(r, ':', "train", train);
    with(r, train != NULL ? ',' : ':', "freeze", freeze);
    char before = train != NULL || freeze != NULL ? ',' : ':';
    with(r, before, "straight-through", r->o->straight_through ? "on" : NULL);
    with(r, r->o->straight_through ? ',' : before, "partial", r->o->allow_partial ? "allow" : NULL);
    before = before == ',' || r->o->straight_through || r->o->allow_partial ? ',' : ':';
    with_own(r, before, "gradient");
}

static bool says(const ebb_stage *stage, const char *option)
{
    for (size_t i = 0; i < stage->option_count; i++)
        if (strcmp(stage->options[i].name, option) == 0)
            return true;
    return false;
}

static void with_number(recipe *r, const char *name, double x)
{
    char text[40];
    (void)ebb_snprintf(text, sizeof text, "%.9g", x);
    with(r, ',', name, x != 0 ? text : NULL);
}

static void with_steps(recipe *r)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)r->o->steps);
    with(r, ',', "steps", r->o->steps != 0 ? text : NULL);
}

/* "cosine:warmup=100" is schedule=cosine,warmup=100 of pass optimizer, and all else is, too. */
static ebb_status add_optimizer(recipe *r)
{
    const ebb_step_options *o = r->o;
    const char *kind = o->optimizer != NULL ? o->optimizer : "adamw";
    ebb_stage stage, schedule = {0};
    EBB_TRY(ebb_stage_read(&stage, "optimizer", kind, r->arena));
    EBB_TRY(add_spec(r, "optimizer", kind));
    if (o->schedule != NULL) {
        char *text = ebb_arena_printf(r->arena, "schedule=%s", o->schedule);
        char *colon = text != NULL ? strchr(text, ':') : NULL;
        EBB_GOT(text);
        if (colon != NULL)
            *colon = ',';
        EBB_TRY(ebb_while(ebb_stage_read(&schedule, "optimizer", text, r->arena),
                          "reading the schedule '%s'", o->schedule));
        for (size_t i = 0; i < schedule.option_count; i++)
            with(r, ',', schedule.options[i].name, schedule.options[i].value);
    }
    if ((says(&stage, "schedule") || o->schedule != NULL) && !says(&stage, "steps") &&
        !says(&schedule, "steps"))
        with_steps(r);
    with_number(r, "clip-norm", o->clip_norm);
    with_number(r, "ema", o->ema);
    with(r, ',', "groups", joined(r, o->groups, '|'));
    return NULL;
}

/* Each process has its part of the rows. */
static void add_ranks(recipe *r)
{
    char ranks[32];
    if (r->o->ranks < 2)
        return;
    (void)snprintf(ranks, sizeof ranks, "%d", r->o->ranks);
    add(r, "data-parallel");
    with(r, ':', "ranks", ranks);
    with(r, ',', "batch-norm", is_synced(r->o) ? "sync" : NULL);
    with(r, ',', "link", r->o->link);
    with(r, ',', "require", "1");
}

/* Batch norm sees one part at a time, as where gradients are accumulated in a loop. */
static void add_accumulation(recipe *r)
{
    if (r->o->accumulate == 0 || r->o->accumulate == 1)
        return;
    char parts[32];
    (void)snprintf(parts, sizeof parts, "%lld", (long long)r->o->accumulate);
    add(r, "micro-batch");
    with(r, ':', "parts", parts);
    with(r, ',', "batch-norm", "per-part");
    with(r, ',', "require", "1");
}

static void add_costs(recipe *r)
{
    if (r->o->costs == NULL)
        return;
    add(r, "cost");
    with(r, ':', "file", r->o->costs);
}

static void add_passes(recipe *r, bool has_gradient)
{
    for (size_t i = 0; r->o->passes != NULL && r->o->passes[i] != NULL; i++)
        if (r->o->passes[i][0] != '\0' &&
            !(has_gradient && (options_of(r->o->passes[i], "gradient") != NULL ||
                               options_of(r->o->passes[i], "train-mode") != NULL)))
            add(r, r->o->passes[i]);
}

/* Adapters that are there already. */
static void add_adapters(recipe *r)
{
    if (r->o->adapters == NULL)
        return;
    add(r, "lora");
    with(r, ':', "file", r->o->adapters);
}

/* What of the passes is a part of the model: adapters, which drop nothing here. */
static ebb_status add_parts_of_model(recipe *r)
{
    add_adapters(r);
    for (size_t i = 0; r->o->passes != NULL && r->o->passes[i] != NULL; i++) {
        ebb_stages stages;
        EBB_TRY(ebb_stages_read(&stages, r->o->passes[i], r->arena));
        for (size_t k = 0; k < stages.count; k++) {
            const ebb_stage *s = &stages.list[k];
            if (strcmp(s->pass->name, "lora") != 0)
                continue;
            add(r, "lora");
            for (size_t n = 0, given = 0; n < s->option_count; n++)
                if (strcmp(s->options[n].name, "dropout") != 0)
                    with(r, given++ == 0 ? ':' : ',', s->options[n].name, s->options[n].value);
        }
    }
    return NULL;
}

/* "2GiB,disk=20GiB": of the device's memory, and of other places. */
static ebb_status add_budget(recipe *r)
{
    const ebb_step_options *o = r->o;
    if (o->budget == NULL)
        return NULL;
    const char *amounts = ebb_arena_printf(r->arena, "budget=%s", o->budget);
    EBB_GOT(amounts);
    EBB_TRY(add_spec(r, "fit", amounts));
    with(r, ',', "time", o->plan_time);
    with(r, ',', "allow", o->allow);
    with(r, ',', "costs", o->costs);
    with(r, ',', "backend", o->backend);
    return NULL;
}

/* Its outputs are there to be read. */
static ebb_status add_teacher(recipe *r, const char *const *losses)
{
    const char *const file = r->o->teacher;
    bool read = false;
    if (file == NULL)
        return NULL;
    for (size_t i = 0; losses[i] != NULL; i++)
        read = read || strstr(losses[i], "target=" EBB_TEACHER "/") != NULL;
    if (!read)
        return ebb_hint(ebb_error(EBB_USAGE, "no loss reads what the teacher %s says", file),
                        "give one, e.g. --loss kl:target=teacher/OUTPUT, with the name of one of "
                        "its outputs");
    add(r, "teacher");
    with(r, ':', "file", file);
    return NULL;
}

/* Several are added up: until the last is there, the outputs stay for the others to read. */
static ebb_status add_losses(recipe *r, bool keep)
{
    const char *const one[2] = {r->o->loss, NULL};
    const char *const *list = r->o->losses != NULL && r->o->losses[0] != NULL ? r->o->losses : one;
    const bool several = list[0] != NULL && list[1] != NULL;
    EBB_TRY(add_teacher(r, list));
    for (size_t i = 0; list[i] != NULL; i++) {
        char nth[32];
        (void)snprintf(nth, sizeof nth, "%zu", i + 1);
        EBB_TRY(add_spec(r, "loss", list[i]));
        with(r, ',', "nth", several ? nth : NULL);
        with(r, ',', "keep-output", keep || list[i + 1] != NULL ? "1" : NULL);
    }
    return NULL;
}

static ebb_status make(recipe *r)
{
    const ebb_step_options *o = r->o;
    add(r, "flatten");
    add_train_mode(r);
    add(r, "fold,fuse");
    if (o->segments)
        add(r, "segments");
    EBB_TRY(add_losses(r, false));
    if (o->precision != NULL) {
        add(r, "precision");
        with(r, ':', "dtype", o->precision);
    }
    add_gradient(r);
    EBB_TRY(add_optimizer(r));
    add_ranks(r);
    add_accumulation(r);
    add_costs(r);
    add_adapters(r);
    add_passes(r, true);
    add(r, "drop-saves");
    EBB_TRY(add_budget(r));
    add(r, "stream,alias");
    add_costs(r);
    return NULL;
}

static ebb_status evaluate(recipe *r)
{
    add(r, "flatten,train-mode:dropout=off,batch-norm=frozen,fold,fuse");
    if (r->o->segments)
        add(r, "segments");
    EBB_TRY(add_losses(r, true));
    EBB_TRY(add_parts_of_model(r));
    add(r, "drop-saves,stream,alias");
    return NULL;
}

/* In a step that others made, whose batch was open, sizes may still be asked for as it runs. */
static ebb_status change(recipe *r)
{
    bool asks = false;
    const ebb_graph *g = r->model->graph;
    EBB_EACH_NODE(g, n)
        asks = asks || ebb_node_of(g, n)->op == EBB_OP_SHAPE;
    const bool changes = r->o->budget != NULL || (r->o->passes != NULL && r->o->passes[0] != NULL);
    if (changes && asks)
        add(r, "inline,fold");
    add_costs(r);
    add_passes(r, false);
    EBB_TRY(add_budget(r));
    if (changes)
        add_costs(r);
    return NULL;
}

static ebb_status write_text(char **text, const ebb_step_options *options, const ebb_model *model,
                             ebb_status (*fill)(recipe *r))
{
    ebb_step_options own;
    EBB_LOCAL_ARENA(arena);
    recipe r = {&own, model, arena, ""};
    *text = NULL;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_step_options, &own, link, options));
    EBB_OPTIONS_COUNT(ebb_step_options, &own, steps);
    EBB_OPTIONS_COUNT(ebb_step_options, &own, accumulate);
    EBB_OPTIONS_COUNT(ebb_step_options, &own, ranks);
    EBB_TRY(fill(&r));
    if (r.text != NULL && (*text = ebb_alloc(strlen(r.text) + 1)) != NULL)
        (void)strcpy(*text, r.text);
    return *text != NULL ? NULL : ebb_error_memory();
}

ebb_status ebb_step_pipeline(char **text, const ebb_step_options *options)
{
    EBB_NEED(text);
    return write_text(text, options, NULL, make);
}

ebb_status ebb_evaluation_pipeline(char **text, const ebb_step_options *options)
{
    EBB_NEED(text);
    return write_text(text, options, NULL, evaluate);
}

static ebb_status infer(recipe *r)
{
    add(r, "train-mode:dropout=off,batch-norm=frozen");
    return NULL;
}

static ebb_status infer_folded(recipe *r)
{
    EBB_TRY(infer(r));
    add(r, "fold-norm");
    return NULL;
}

ebb_status ebb_inference_pipeline(char **text, bool fold)
{
    EBB_NEED(text);
    return write_text(text, NULL, NULL, fold ? infer_folded : infer);
}

ebb_status ebb_change_pipeline(char **text, const ebb_model *model, const ebb_step_options *options)
{
    EBB_NEED(text);
    EBB_NEED(model);
    return write_text(text, options, model, change);
}
