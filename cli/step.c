/* step.c: from a file and the command's words to a model: sizes, weights, and the pipeline of
 * passes that makes its step or changes one.
 */
#include "cli/cli.h"

#include <stdlib.h>

/* ---- models ---- */

static ebb_status set_shape(ebb_model *model, const char *text)
{
    char input[256], what[300], size[32];
    const char *colon = strrchr(text, ':');
    int64_t dims[12];
    int rank = 0;
    if (colon == NULL || (size_t)(colon - text) >= sizeof input)
        return ebb_set_shape(model, text, NULL, -1); // says what was expected
    (void)snprintf(input, sizeof input, "%.*s", (int)(colon - text), text);
    (void)snprintf(what, sizeof what, "--shape %s: a dim", input);
    for (const char *at = colon + 1, *end; *at != '\0'; at = *end == 'x' ? end + 1 : end) {
        end = at + strcspn(at, "x");
        if (rank == 12 || (*end == 'x' && end[1] == '\0'))
            return ebb_set_shape(model, input, NULL, -1);
        (void)snprintf(size, sizeof size, "%.*s", (int)(end - at), at);
        ebb_status status = ebb_whole_parse(&dims[rank++], size, "[0, inf)", what);
        if (status != NULL)
            return status;
    }
    return ebb_set_shape(model, input, dims, rank);
}

static ebb_status set_dim(ebb_model *model, const char *text)
{
    char name[256], what[300];
    const char *equals = strrchr(text, '=');
    int64_t size;
    if (equals == NULL || (size_t)(equals - text) >= sizeof name)
        return ebb_set_dim(model, text, -1); // says what was expected
    (void)snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    (void)snprintf(what, sizeof what, "--dim %s", name);
    ebb_status status = ebb_whole_parse(&size, equals + 1, "[0, inf)", what);
    return status == NULL ? ebb_set_dim(model, name, size) : status;
}

ebb_status cli_bind(const cli *c, ebb_model *model)
{
    ebb_status first = NULL;
    const char *text;
    for (int at = 0; (text = cli_next(c, "--dim", &at)) != NULL;) {
        ebb_status status = set_dim(model, text);
        first = first == NULL ? status : first;
    }
    for (int at = 0; (text = cli_next(c, "--shape", &at)) != NULL;) {
        ebb_status status = set_shape(model, text);
        first = first == NULL ? status : first;
    }
    return first;
}

ebb_status cli_set_threads(const cli *c, ebb_model *model)
{
    ebb_set_deterministic(model, cli_has(c, "--deterministic"));
    return ebb_set_threads(model, (int)strtol(cli_get(c, "--threads", "0"), NULL, 10));
}

ebb_status cli_open_at(const cli *c, ebb_model **model, int file)
{
    ebb_status status = ebb_open(model, c->files[file]);
    if (status == NULL)
        status = cli_set_threads(c, *model);
    return status == NULL ? cli_bind(c, *model) : status;
}

ebb_status cli_open(const cli *c, ebb_model **model)
{
    return cli_open_at(c, model, 0);
}

ebb_status cli_weights(const cli *c, ebb_model *model)
{
    ebb_status status = NULL;
    if (cli_has(c, "--init"))
        status = ebb_init_weights(model, cli_seed(c));
    if (status == NULL && cli_has(c, "--weights"))
        status = ebb_load_weights(model, cli_get(c, "--weights", NULL));
    return status;
}

const char *cli_step_option(const cli *c)
{
    static const char *const options[] = {"--loss",       "--optimizer",        "--train",
                                          "--freeze",     "--straight-through", "--dropout",
                                          "--batch-norm", "--precision"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (cli_has(c, options[i]))
            return options[i];
    return NULL;
}

int cli_check_step(const cli *c, int file, bool step)
{
    const char *option = step ? cli_step_option(c) : NULL;
    if (option == NULL)
        return EBB_OK;
    return cli_usage("%s is a training step already: %s has no effect on it", c->files[file],
                     option);
}

/* ---- pipelines: text that grows ---- */

typedef struct pipeline {
    char *text; /* complete when `run` has closed it */
    size_t size;
    FILE *out;
    bool begun;
} pipeline;

static void add(pipeline *p, const char *format, const char *a, const char *b)
{
    if (p->out == NULL)
        p->out = open_memstream(&p->text, &p->size);
    if (p->out != NULL)
        (void)fprintf(p->out, format, a, b);
    p->begun = true;
}

/* The next pass, after a comma where one stands before it. */
static void add_pass(pipeline *p, const char *name, const char *rest)
{
    add(p, p->begun ? ",%s%s" : "%s%s", name, rest);
}

/* "cross-entropy:axis=1" -> "loss:cross-entropy,axis=1" */
static void add_spec(pipeline *p, const char *pass, const char *spec)
{
    char text[4096];
    (void)snprintf(text, sizeof text, "%s", spec);
    char *colon = strchr(text, ':');
    if (colon != NULL)
        *colon = ',';
    add(p, ",%s:%s", pass, text);
}

static void print_graph(void *context, const char *pass, const char *text)
{
    (void)context;
    printf("# after %s\n%s\n", pass, text);
}

/* Its text, for free(); NULL: nothing was added, or no memory. */
static char *close_text(pipeline *p)
{
    if (p->out != NULL && fclose(p->out) == 0)
        return p->text;
    free(p->text);
    return NULL;
}

static ebb_status run(const cli *c, ebb_model *model, char *text, char **json)
{
    const ebb_rewrite_options options = {.strict = cli_has(c, "--strict"),
                                         .verify_each = cli_has(c, "--verify-each"),
                                         .print_after = cli_get(c, "--print-after", NULL),
                                         .print = print_graph};
    ebb_status status = ebb_rewrite(model, text != NULL ? text : "", &options, json);
    free(text);
    return status;
}

static void add_gradient(const cli *c, pipeline *p)
{
    add(p, ",gradient%s%s", "", "");
    const char *glob;
    bool any = false;
    static const char *const names[2] = {"train", "freeze"};
    static const char *const options[2] = {"--train", "--freeze"};
    for (int k = 0; k < 2; k++) {
        bool started = false;
        for (int at = 0; (glob = cli_next(c, options[k], &at)) != NULL; started = any = true) {
            if (started)
                add(p, ";%s%s", glob, "");
            else
                add(p, any ? ",%s=%s" : ":%s=%s", names[k], glob);
        }
    }
    if (cli_has(c, "--straight-through"))
        add(p, "%sstraight-through=on%s", any ? "," : ":", "");
}

/* ---- costs and budget ---- */

static const char *budget_of(const cli *c)
{
    const char *budget = cli_get(c, "--budget", NULL);
    return budget != NULL && strcmp(budget, "none") != 0 ? budget : NULL;
}

int cli_check_planning(const cli *c)
{
    const char *budget = budget_of(c), *costs = cli_get(c, "--costs", NULL);
    ebb_amount amount;
    ebb_status status = budget != NULL ? ebb_amount_parse(&amount, budget) : NULL;
    if (status != NULL) {
        int code = cli_fail(status);
        cli_note("  for --budget; `--budget none` asks for no plan");
        return code;
    }
    if (costs != NULL && (costs[0] == '\0' || strchr(costs, ',') != NULL))
        return cli_usage("--costs takes a file whose name has no comma, not '%s'", costs);
    return EBB_OK;
}

static void add_costs(const cli *c, pipeline *p)
{
    if (cli_has(c, "--costs"))
        add_pass(p, "cost:file=", cli_get(c, "--costs", ""));
}

/* Those asked for; then `tidy`, if any; then the plan for the budget, which nothing may follow that
 * changes what is stored. */
static void add_passes(const cli *c, pipeline *p, const char *tidy)
{
    const char *pass;
    for (int at = 0; (pass = cli_next(c, "--pass", &at)) != NULL;)
        if (pass[0] != '\0')
            add_pass(p, pass, "");
    if (tidy != NULL)
        add_pass(p, tidy, "");
    if (budget_of(c) == NULL)
        return;
    add_pass(p, "fit:budget=", budget_of(c));
    if (cli_has(c, "--plan-time"))
        add_pass(p, "time=", cli_get(c, "--plan-time", ""));
    if (cli_has(c, "--allow"))
        add_pass(p, "allow=", cli_get(c, "--allow", ""));
    if (cli_has(c, "--costs"))
        add_pass(p, "costs=", cli_get(c, "--costs", ""));
    if (cli_backend(c) != NULL)
        add_pass(p, "backend=", cli_backend(c));
}

/* ---- the step ---- */

bool cli_is_ort(const cli *c)
{
    return strcmp(cli_get(c, "--dialect", "onnx"), "ort") == 0;
}

char *cli_step_pipeline(const cli *c)
{
    pipeline p = {0};
    add(&p, "flatten,train-mode:seed=%s,batch-norm=%s", cli_get(c, "--seed", "0"),
        cli_get(c, "--batch-norm", "train"));
    if (cli_is_ort(c)) // its running variance is ONNX's
        add(&p, ",statistics=%s%s", "onnx", "");
    const char *dropout = cli_get(c, "--dropout", "on");
    const bool named = dropout[0] < '0' || dropout[0] > '9';
    add(&p, named ? ",dropout=%s%s" : ",dropout=on,ratio=%s%s", dropout, ",fold,fuse");
    if (cli_has(c, "--loss"))
        add_spec(&p, "loss", cli_get(c, "--loss", NULL));
    if (cli_has(c, "--precision"))
        add_pass(&p, "precision:", cli_get(c, "--precision", ""));
    add_gradient(c, &p);
    add_spec(&p, "optimizer", cli_get(c, "--optimizer", "adamw"));
    add_costs(c, &p);
    add_passes(c, &p, "drop-saves");
    add_pass(&p, "stream", "");
    add_pass(&p, "alias", "");
    add_costs(c, &p); // what came in between has none
    return close_text(&p);
}

/* Whether shapes are still asked for as the step runs: in one that others made, whose batch was
 * open. */
static bool asks_for_shapes(const ebb_model *model)
{
    json_t *o = NULL;
    bool asks = cli_inspect(model, &o) == NULL &&
                json_object_get(json_object_get(o, "operators"), "Shape") != NULL;
    json_decref(o);
    return asks;
}

ebb_status cli_make_step(const cli *c, ebb_model *model, char **json)
{
    return run(c, model, cli_step_pipeline(c), json);
}

char *cli_change_pipeline(const cli *c, const ebb_model *model)
{
    pipeline p = {0};
    bool changes = cli_has(c, "--pass") || budget_of(c) != NULL;
    if (changes && asks_for_shapes(model))
        add_pass(&p, "inline,fold", "");
    add_costs(c, &p);
    add_passes(c, &p, NULL);
    if (changes)
        add_costs(c, &p);
    return close_text(&p);
}

ebb_status cli_change_step(const cli *c, ebb_model *model, char **json)
{
    char *text = cli_change_pipeline(c, model);
    return text != NULL ? run(c, model, text, json) : NULL;
}

ebb_status cli_inspect(const ebb_model *model, json_t **object)
{
    char *text = NULL;
    *object = NULL;
    ebb_status status = ebb_inspect_json(model, &text);
    if (status == NULL)
        *object = json_loads(text, 0, NULL);
    ebb_release(text);
    return status;
}

ebb_status cli_has_step(const ebb_model *model, bool *step)
{
    json_t *o;
    ebb_status status = cli_inspect(model, &o);
    *step = json_is_true(json_object_get(o, "is_step"));
    json_decref(o);
    return status;
}
