/* verbs.c: the verbs and their options. Each maps onto one or two calls of ebb.h. */
#include "cli/cli.h"

#include <stdlib.h>

// clang-format off
#define MODEL "--dim", "--shape", "--trust"
#define BACKEND "--backend", "--device", "--tf32", "--fp32-by"
#define STEP "--head", "--loss", "--teacher", "--optimizer", "--lr-schedule", "--clip-norm", "--accumulate", "--group", "--ema", "--train", "--freeze", "--adapter", "--allow-partial", "--straight-through", "--dropout", "--batch-norm", "--precision", "--pass", \
             "--strict", "--print-after", "--verify-each", "--seed"
#define PLANNING BACKEND, "--costs", "--budget", "--plan-time", "--allow"
#define THREADS "--threads", "--deterministic"
#define RUN THREADS, "--init", "--weights"
#define DATA "--data", "--map", "--scale", "--mean", "--std", "--layout", "--round", "--columns", "--resize", "--image-size", "--sequence", "--pack", "--tokenizer"
#define LOOK "--html", "--svg", "--perfetto"
#define WORDS(...) (const char *const[]){__VA_ARGS__, NULL}
#define WITH_A_BUDGET "--plan-time", "--budget", "--allow", "--budget"
#define OF_ROWS "--map", "--data", "--batch", "--data", "--scale", "--data", "--mean", "--data", "--std", "--data", "--layout", "--data", \
                "--round", "--data", "--columns", "--data", "--resize", "--data", "--image-size", "--data", "--sequence", "--data", "--pack", "--sequence", "--tokenizer", "--sequence"
// clang-format on

/* ---- verbs ---- */

static int finish(const cli *c, ebb_model *model, ebb_status status, char *json,
                  void (*show)(const json_t *))
{
    int code = EBB_OK;
    if (status == NULL && json != NULL) {
        code = cli_show(c, json, show); // which releases it
    } else {
        ebb_release(json);
        code = status != NULL ? cli_fail(status) : EBB_OK;
    }
    ebb_close(model);
    return code;
}

/* A model that contradicts itself, too: to look at it is what these verbs are for. */
static ebb_status open_as_is(const cli *c, ebb_model **model)
{
    ebb_status status = ebb_open_as_is(model, c->files[0]);
    if (status != NULL)
        return status;
    status = cli_bind(c, *model);
    return ebb_status_code(status) == EBB_REJECTED ? NULL : status;
}

static int inspect(const cli *c)
{
    ebb_model *model = NULL;
    char *text = NULL;
    ebb_status status = open_as_is(c, &model);
    bool plain_text = cli_has(c, "--text") || cli_has(c, "--node");
    if (status == NULL && cli_has(c, "--node"))
        status = ebb_inspect_node(model, cli_get(c, "--node", NULL), &text);
    else if (status == NULL && plain_text)
        status = ebb_inspect_text(model, &text);
    else if (status == NULL)
        status = ebb_inspect_json(model, &text);
    if (status == NULL && plain_text) {
        puts(text);
        ebb_release(text);
        text = NULL;
    }
    return finish(c, model, status, text, cli_show_inspect);
}

static int check(const cli *c)
{
    ebb_model *model = NULL;
    char *json = NULL;
    ebb_code found = EBB_OK;
    ebb_status status = open_as_is(c, &model);
    if (status == NULL)
        status = ebb_check(model, &found, &json);
    int code = finish(c, model, status, json, cli_show_check);
    return code == EBB_OK ? (int)found : code;
}

static int ops(const cli *c)
{
    ebb_model *model = NULL;
    char *json = NULL;
    ebb_status status = c->file_count > 0 ? cli_open(c, &model) : NULL;
    if (status == NULL)
        status = ebb_ops_json(model, &json);
    return finish(c, model, status, json, cli_show_ops);
}

/* A step as ONNX Runtime's four files, and what is not the same in them on stderr. */
static ebb_status write_artifacts(const cli *c, const ebb_model *model, const char *folder)
{
    char *json = NULL;
    ebb_status status = ebb_artifacts_save(model, folder, &json);
    json_t *o = json != NULL ? json_loads(json, 0, NULL) : NULL, *note;
    size_t i;
    json_array_foreach(json_object_get(o, "notes"), i, note)
        if (!cli_has(c, "--json"))
            cli_note("note: %s", json_string_value(note));
    json_decref(o);
    ebb_release(json);
    return status;
}

/* Writes the model, unless --dry-run says not to. */
static ebb_status write_result(const cli *c, const ebb_model *model)
{
    const char *path = cli_get(c, "-o", NULL);
    if (cli_has(c, "--dry-run") || path == NULL)
        return NULL;
    ebb_status status = cli_is_ort(c) ? write_artifacts(c, model, path) : ebb_save(model, path);
    if (status == NULL && !cli_has(c, "--json"))
        cli_note("wrote %s", path);
    return status;
}

static int check_dialect(const cli *c)
{
    const char *dialect = cli_get(c, "--dialect", "onnx");
    if (strcmp(dialect, "onnx") == 0 || strcmp(dialect, "ort") == 0)
        return EBB_OK;
    return cli_usage("--dialect takes onnx or ort, not '%s'", dialect);
}

static int needs_output(const cli *c)
{
    int code = check_dialect(c);
    if (code != EBB_OK)
        return code;
    if (cli_has(c, "-o") || cli_has(c, "--dry-run") || cli_has(c, "--print-after"))
        return EBB_OK;
    return cli_usage("say where the result goes: -o FILE (or --dry-run)");
}

static int grad(const cli *c)
{
    ebb_model *model = NULL;
    char *json = NULL;
    int code = needs_output(c);
    if (code == EBB_OK)
        code = cli_check_planning(c);
    if (code != EBB_OK)
        return code;
    ebb_status status = cli_open_whole(c, &model);
    if (status == NULL)
        status = cli_make_step(c, model, 0, &json);
    if (status == NULL)
        status = write_result(c, model);
    return finish(c, model, status, json, cli_show_passes);
}

static int rewrite(const cli *c)
{
    ebb_model *model = NULL;
    char *json = NULL;
    int code = needs_output(c);
    if (code == EBB_OK)
        code = cli_check_planning(c);
    if (code != EBB_OK)
        return code;
    if (!cli_has(c, "--pass") && !cli_has(c, "--costs") && !cli_has(c, "--dialect"))
        return cli_usage("say what to do: --pass NAME (see `ebb help passes`)");
    ebb_status status = cli_open_whole(c, &model);
    if (status == NULL)
        status = cli_rewrite(c, model, false, &json, NULL);
    if (status == NULL)
        status = write_result(c, model);
    return finish(c, model, status, json, cli_show_passes);
}

static ebb_plan_options plan_options(const cli *c)
{
    return (ebb_plan_options){.backend = cli_backend(c),
                              .run = cli_has(c, "--run"),
                              .seed = cli_seed(c),
                              .threads = cli_threads(c),
                              .lives = cli_wants_lives(c)};
}

/* What the passes said, beside what came of it. */
static int show_plan(const cli *c, char *json, char *report)
{
    json_t *o = json_loads(json, 0, NULL),
           *passes = report != NULL ? json_loads(report, 0, NULL) : NULL;
    ebb_release(json);
    ebb_release(report);
    if (passes != NULL)
        (void)json_object_set(o, "passes", json_object_get(passes, "passes"));
    ebb_amount budget = {0};
    if (cli_has(c, "--budget") && cli_budget(&budget, cli_get(c, "--budget", "")) == NULL &&
        budget.bytes != 0) // a share is of what the pass weighed: the model tells
        (void)json_object_set_new(o, "budget_bytes", json_integer((json_int_t)budget.bytes));
    json_decref(passes);
    int code = cli_save_lives(c, o);
    const ebb_plan_options options = plan_options(c);
    if (code == EBB_OK)
        code = cli_plan_ranks(c, &options, o);
    if (code == EBB_OK && cli_has(c, "--json"))
        cli_print_json(o, JSON_INDENT(2));
    else if (code == EBB_OK)
        cli_show_plan(o), cli_show_ranks(o);
    json_decref(o);
    return code;
}

static int plan(const cli *c)
{
    ebb_model *model = NULL;
    char *json = NULL, *report = NULL;
    bool step = false;
    int code = cli_check_planning(c);
    if (code != EBB_OK)
        return code;
    ebb_status status = cli_open_whole(c, &model);
    if (status == NULL)
        status = cli_has_step(model, &step);
    if (status == NULL && (code = cli_check_step(c, 0, step)) != EBB_OK) {
        ebb_close(model);
        return code;
    }
    const int ranks = (int)cli_whole(c, "--ranks", 1);
    if (status == NULL)
        status = ranks > 1 ? cli_step_for(c, model, ranks, &report)
                           : cli_rewrite(c, model, cli_step_option(c) != NULL, &report, NULL);
    ebb_plan_options options = plan_options(c);
    if (status == NULL)
        status = ebb_plan_json(model, &options, &json);
    if (status == NULL)
        code = show_plan(c, json, report);
    else
        ebb_release(report);
    return status == NULL ? (ebb_close(model), code) : finish(c, model, status, NULL, NULL);
}

static int diff(const cli *c)
{
    ebb_model *before = NULL, *after = NULL;
    char *json = NULL;
    ebb_status status = cli_open_unbound(c, &before, 0);
    if (status == NULL)
        status = cli_open_unbound(c, &after, 1);
    if (status == NULL)
        status = cli_bind_both(c, before, after);
    ebb_plan_options options = plan_options(c);
    options.steps = (int)cli_whole(c, "--steps", 0);
    if (status == NULL)
        status = ebb_diff_json(before, after, &options, &json);
    ebb_close(after);
    int code = EBB_OK;
    json_t *o = status == NULL && cli_wants_lives(c) ? json_loads(json, 0, NULL) : NULL;
    if (o != NULL)
        code = cli_save_lives(c, o);
    json_decref(o);
    const int shown = finish(c, before, status, json, cli_show_diff);
    return shown != EBB_OK ? shown : code;
}

/* The model as it will run: a step is made or left as it is, another graph is tidied. An exit code.
 */
static int open_to_time(const cli *c, ebb_model **model, int file)
{
    bool step = false;
    int code = EBB_OK;
    bool changes = cli_has(c, "--pass") || cli_has(c, "--budget") || cli_has(c, "--costs");
    ebb_status status = cli_open_at(c, model, file);
    if (status == NULL)
        status = cli_weights(c, *model);
    if (status == NULL)
        status = cli_has_step(*model, &step);
    if (status == NULL && (code = cli_check_step(c, file, step)) != EBB_OK)
        return code;
    if (status == NULL && cli_step_option(c) != NULL)
        status = cli_rewrite(c, *model, true, NULL, NULL);
    else if (status == NULL && (step || changes))
        status = cli_rewrite(c, *model, false, NULL, NULL);
    else if (status == NULL)
        status = ebb_rewrite(*model, "flatten", NULL, NULL);
    return status != NULL ? cli_fail(status) : EBB_OK;
}

static int calibrate(const cli *c)
{
    ebb_model *models[8] = {NULL};
    char *json = NULL;
    ebb_status status = NULL;
    int code = cli_check_planning(c);
    if (code != EBB_OK)
        return code;
    if (!cli_has(c, "-o"))
        return cli_usage("say where the times go: -o FILE");
    code = cli_check_alone();
    for (int i = 0; i < c->file_count && code == EBB_OK; i++)
        code = open_to_time(c, &models[i], i);
    const ebb_calibrate_options options = {.backend = cli_backend(c),
                                           .seed = cli_seed(c),
                                           .threads = cli_threads(c),
                                           .steps = (int)cli_whole(c, "--steps", 0),
                                           .spill = cli_get(c, "--spill", NULL)};
    if (code == EBB_OK)
        status =
            ebb_calibrate(models, (size_t)c->file_count, &options, cli_get(c, "-o", NULL), &json);
    for (int i = 1; i < c->file_count; i++)
        ebb_close(models[i]);
    if (code == EBB_OK)
        return finish(c, models[0], status, json, cli_show_bench);
    ebb_close(models[0]);
    return code;
}

static int pack(const cli *c)
{
    char *json = NULL;
    int code = needs_output(c);
    if (code != EBB_OK)
        return code;
    const ebb_pack_csv_options options = {.alignment = (uint64_t)cli_whole(c, "--align", 1),
                                          .capacity = (uint64_t)cli_whole(c, "--capacity", 0),
                                          .time_ns =
                                              (int64_t)(cli_number(c, "--time", 5) * 1e9) + 1};
    const char *out = cli_has(c, "--dry-run") ? NULL : cli_get(c, "-o", NULL);
    ebb_status status = ebb_pack_csv(c->files[0], out, &options, &json);
    return finish(c, NULL, status, json, cli_show_pack);
}

static int version(const cli *c)
{
    if (cli_has(c, "--json"))
        printf("{\"schema\": \"ebb.version/1\", \"version\": \"%s\"}\n", ebb_version());
    else
        printf("ebb %s\n", ebb_version());
    return EBB_OK;
}

/* The model as it is to be used: what only training needs is gone. */
static int export(const cli *c)
{
    ebb_model *model = NULL;
    char *json = NULL, *pipeline = NULL;
    bool step = false;
    if (!cli_has(c, "-o"))
        return cli_usage("say where the result goes: -o FILE");
    ebb_status status = cli_open_whole(c, &model);
    if (status == NULL)
        status = cli_has_step(model, &step);
    if (status == NULL && step) {
        ebb_close(model);
        return cli_usage("%s is a training step: export what `ebb train --save-model` wrote",
                         c->files[0]);
    }
    if (status == NULL)
        status = ebb_inference_pipeline(&pipeline, cli_has(c, "--fold"));
    if (status == NULL)
        status = ebb_rewrite(model, pipeline, NULL, &json);
    ebb_release(pipeline);
    if (status == NULL)
        status = write_result(c, model);
    return finish(c, model, status, json, cli_show_passes);
}

/* ---- the table ---- */

// clang-format off
static const cli_way inspects[] = {
    {"--node", NULL, "MODEL --node NAME", 1, 1, WORDS(MODEL, "--node"), NULL, inspect},
    {"--text", NULL, "MODEL --text", 1, 1, WORDS(MODEL, "--text"), NULL, inspect},
    {NULL, NULL, "MODEL", 1, 1, WORDS(MODEL, "-v", "--json"), NULL, inspect},
};
static const cli_way checks[] = {{NULL, NULL, "MODEL", 1, 1, WORDS(MODEL, "--json"), NULL, check}};
static const cli_way lists_ops[] = {{NULL, NULL, "[MODEL]", 0, 1, WORDS("--json"), NULL, ops}};
static const cli_way grads[] = {
    {NULL, NULL, "MODEL -o STEP", 1, 1, WORDS("-o", "--dialect", MODEL, STEP, PLANNING, THREADS, "--init", "--weights", "--dry-run", "-v", "--json"),
     WORDS(WITH_A_BUDGET, "--backend", "--budget", "--device", "--budget", "--tf32", "--budget", "--fp32-by", "--budget"), grad},
};
static const cli_way rewrites[] = {
    {NULL, NULL, "MODEL -o MODEL --pass NAME", 1, 1,
     WORDS("-o", "--dialect", MODEL, THREADS, "--pass", "--costs", "--strict", "--print-after", "--verify-each", "--init", "--weights", "--seed", "--dry-run", "-v", "--json"),
     WORDS("--seed", "--init"), rewrite},
};
static const cli_way exports[] = {
    {NULL, NULL, "MODEL -o MODEL", 1, 1, WORDS("-o", MODEL, "--fold", "--init", "--weights", "--seed", "-v", "--json"), WORDS("--seed", "--init"), export},
};
static const cli_way plans[] = {
    {NULL, NULL, "STEP", 1, 1, WORDS(MODEL, STEP, PLANNING, RUN, "--run", LOOK, "--ranks", "--link", "--json"), WORDS(WITH_A_BUDGET, "--link", "--ranks"), plan},
};
static const cli_way runs[] = {
    {NULL, NULL, "MODEL --data FILE", 1, 1, WORDS(MODEL, BACKEND, RUN, DATA, "--adapter", "--save", "--seed", "--profile", "--spill", "--spill-unchecked", "--json"), NULL, cli_run},
};
static const cli_way trains[] = {
    {NULL, NULL, "MODEL --data FILE", 1, 1,
     WORDS(MODEL, STEP, PLANNING, RUN, DATA, "--link", "--augment", "--batch", "--epochs", "--steps", "--no-shuffle", "--repeat-batch", "--checkpoint",
           "--every", "--resume", "--save-model", "--save-adapter", "--save-checkpoint", "--keep", "--eval", "--eval-split", "--eval-every", "--eval-map", "--metric", "--patience",
           "--log", "--log-every", "--on-nan", "--profile", "--spill", "--spill-unchecked", "--json"),
     WORDS(WITH_A_BUDGET, "--epochs", "!--steps", "--every", "--checkpoint", "--eval-map", "--eval", "--eval-split", "!--eval", "--log-every", "--log"), cli_train},
};
static const cli_way launches[] = {
    {"--", NULL, "-n N -- COMMAND...", 0, 0, WORDS("-n", "--late", "--link", "--"), NULL, cli_launch},
};
static const cli_way evals[] = {
    {NULL, NULL, "MODEL --data FILE --loss KIND", 1, 1, WORDS(MODEL, BACKEND, RUN, DATA, "--seed", "--batch", "--loss", "--teacher", "--adapter", "--metric", "--json"),
     WORDS("--seed", "--init"), cli_eval},
};
static const cli_way diffs[] = {
    {NULL, NULL, "BEFORE AFTER", 2, 2, WORDS(MODEL, "--run", "--steps", "--seed", BACKEND, THREADS, LOOK, "--json"),
     WORDS("--steps", "--run"), diff},
};
static const cli_way benches[] = {
    {"--calibrate-comm", NULL, "--calibrate-comm -o COSTS", 0, 0, WORDS("-o", "--calibrate-comm", "--json"), NULL, cli_calibrate_link},
    {"--calibrate", NULL, "--calibrate -o COSTS", 0, 0, WORDS("-o", "--calibrate", BACKEND, "--threads", "--seed", "--steps", "--spill", "--json"), NULL, calibrate},
    {"--calibrate", NULL, "MODEL... --calibrate -o COSTS", 1, 8,
     WORDS("-o", "--calibrate", MODEL, STEP, PLANNING, RUN, "--steps", "--spill", "--json"), WORDS(WITH_A_BUDGET), calibrate},
    {"--sweep", NULL, "--sweep FILE -o LINES", 0, 8,
     WORDS("-o", "--sweep", MODEL, STEP, PLANNING, RUN, "--run", DATA, "--batch", "--steps", "--json"), NULL, cli_sweep},
    {"--passes", NULL, "MODEL... --passes LIST -o LINES", 0, 8,
     WORDS("-o", "--passes", MODEL, STEP, PLANNING, RUN, "--run", DATA, "--batch", "--steps", "--json"),
     WORDS(WITH_A_BUDGET, OF_ROWS, "--steps", "--run", "--threads", "--run"), cli_sweep},
    {"--sensitivity", NULL, "MODEL --sensitivity --data FILE -o FILE", 0, 8,
     WORDS("-o", "--sensitivity", MODEL, STEP, PLANNING, RUN, DATA, "--batch", "--json"), WORDS(WITH_A_BUDGET), cli_sensitivity},
};
static const cli_way reduces[] = {
    {"--", NULL, "MODEL -o SMALL -- COMMAND {}", 1, 1,
     WORDS("-o", MODEL, "--init", "--weights", "--seed", "--match", "--exit", "--timeout", "--tests", "--json", "--"),
     WORDS("--seed", "--init"), cli_reduce},
    {"--fails", "types|check", "MODEL -o SMALL --fails types|check", 1, 1,
     WORDS("-o", MODEL, "--init", "--weights", "--seed", "--fails", "--match", "--tests", "--json"), WORDS("--seed", "--init"), cli_reduce},
    {"--fails", NULL, "MODEL -o SMALL --fails grad|rewrite|plan|run|nan", 1, 1,
     WORDS("-o", MODEL, STEP, PLANNING, RUN, "--fails", "--match", "--tests", "--json"), WORDS(WITH_A_BUDGET), cli_reduce},
};
static const cli_way packs[] = {
    {NULL, NULL, "INTERVALS.csv -o PACKED.csv", 1, 1, WORDS("-o", "--capacity", "--time", "--align", "--dry-run", "--json"), NULL, pack},
};
static const cli_way few_bits[] = {
    {NULL, NULL, "--function NAME", 0, 0, WORDS("--function", "--alpha", "--bits", "--weight", "--json"), NULL, cli_few_bit},
};
static const cli_way lists_devices[] = {{NULL, NULL, "", 0, 0, WORDS("--json"), NULL, cli_devices}};
static const cli_way versions[] = {{NULL, NULL, "", 0, 0, WORDS("--json"), NULL, version}};

#define WAYS(list) list, (int)(sizeof list / sizeof list[0])
const cli_verb cli_verbs[] = {
    {"inspect", "what is in a model: inputs, outputs, operators, weights", WAYS(inspects), NULL,
     WORDS("model.onnx", "model.onnx --text", "model.onnx --node /0/Conv")},
    {"check", "the doctor: all that would keep it from being trained, what its exporter did and lost, what would help", WAYS(checks), NULL,
     WORDS("model.onnx")},
    {"ops", "operators: kernel, gradient; of a model or all", WAYS(lists_ops), NULL,
     WORDS("", "model.onnx")},
    {"grad", "make the training step: loss, gradient, optimizer, memory passes", WAYS(grads), NULL,
     WORDS("model.onnx -o step.onnx --dim batch=16 --loss cross-entropy", "model.onnx -o smaller.onnx --dim batch=16 --loss cross-entropy --pass sign-mask --pass dropout-seed")},
    {"rewrite", "run passes over a model or step", WAYS(rewrites), NULL,
     WORDS("step.onnx -o masked.onnx --pass sign-mask")},
    {"plan", "what it will need: peak, arena, categories, who pins the peak", WAYS(plans), NULL,
     WORDS("step.onnx", "step.onnx --html plan.html", "model.onnx --dim batch=16 --loss cross-entropy --budget 80%", "model.onnx --dim batch=64 --loss cross-entropy --batch-norm sync --pass shard --ranks 64 --link ndr400")},
    {"run", "evaluate a graph once", WAYS(runs), NULL,
     WORDS("model.onnx --data data.npz --save outputs.safetensors")},
    {"train", "train: an exported model, or a step made by `ebb grad`", WAYS(trains), NULL,
     WORDS("model.onnx --data data.npz --map label=target --loss cross-entropy --epochs 3 --save-model trained.onnx", "step.onnx --data data.npz --map label=target --batch 16 --steps 100 --checkpoint state.safetensors")},
    {"launch", "start a command in N processes on this machine, which train one model: `ebb train` in them takes its part of each batch", WAYS(launches),
     "say what to start: ebb launch -n 4 -- ebb train MODEL ...",
     WORDS("-n 2 -- ebb train model.onnx --data data.npz --map label=target --loss cross-entropy --batch-norm frozen --epochs 1")},
    {"eval", "loss and metrics of a model on data, each row counted once: dropout off, running statistics", WAYS(evals), NULL,
     WORDS("trained.onnx --data data.npz --map label=target --loss cross-entropy --metric accuracy")},
    {"export", "a trained model as it is to be used: dropout gone, batch norm by its running statistics", WAYS(exports), NULL,
     WORDS("trained.onnx -o used.onnx --fold")},
    {"diff", "two files, counted byte by byte", WAYS(diffs), NULL,
     WORDS("step.onnx smaller.onnx", "step.onnx smaller.onnx --run --html diff.html")},
    {"bench", "measure what operators cost on this machine, or what passes save, cost and change", WAYS(benches),
     "say what to measure: --calibrate times operators, --sweep or --passes compares steps, --sensitivity codes their tensors one by one",
     WORDS("step.onnx --calibrate -o costs.json", "model.onnx --passes sign-mask --passes invert -o lines.jsonl --dim batch=16 --loss cross-entropy")},
    {"reduce", "the smallest model that still fails: by a criterion of ebb's own, or by a command that exits with 0 for it", WAYS(reduces),
     "say what failing is: --fails types|check|grad|rewrite|plan|run|nan, or -- COMMAND {} that exits with 0 where a model still shows it",
     WORDS("broken.onnx -o small.onnx --fails check", "broken.onnx -o small.onnx -- ./still-fails.sh {}")},
    {"pack", "give intervals offsets: columns id, lower, upper, size and perhaps offset", WAYS(packs), NULL,
     WORDS("intervals.csv -o packed.csv --capacity 1048576")},
    {"few-bit", "levels for the derivative of an activation, as pass few-bit has them", WAYS(few_bits), NULL,
     WORDS("--function gelu --bits 3 --weight normal")},
    {"devices", "what can run a step here, and what can be planned for", WAYS(lists_devices), NULL,
     WORDS("")},
    {"version", "the version", WAYS(versions), NULL,
     WORDS("")},
};
// clang-format on
const int cli_verb_count = (int)(sizeof cli_verbs / sizeof cli_verbs[0]);
