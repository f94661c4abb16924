/* step.c: from a file and the command's words to a model: sizes, weights, and the pipeline of
 * passes that makes its step or changes one.
 */
#include "cli/cli.h"

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
    (void)snprintf(what, sizeof what, "--shape %s:AxBxC: a dim", input);
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

/* Of two models a size may be one's alone: of an export beside a step, which has its sizes. */
static ebb_status set_either(ebb_status (*set)(ebb_model *, const char *), const char *text,
                             ebb_model *model, ebb_model *other)
{
    ebb_status status = set(model, text), others = other != NULL ? set(other, text) : status;
    ebb_status wrong = status != NULL ? status : others;
    const bool is_one = (status == NULL) != (others == NULL);
    return is_one && ebb_status_code(wrong) == EBB_USAGE ? NULL : wrong;
}

static ebb_status set_all(ebb_status (*set)(ebb_model *, const char *), const cli *c,
                          const char *option, ebb_model *model, ebb_model *other)
{
    ebb_status first = NULL;
    const char *text;
    for (int at = 0; (text = cli_next(c, option, &at)) != NULL;) {
        ebb_status status = set_either(set, text, model, other);
        first = first == NULL ? status : first;
    }
    return first;
}

ebb_status cli_bind_both(const cli *c, ebb_model *model, ebb_model *other)
{
    if (cli_has(c, "--trust")) {
        ebb_trust(model);
        if (other != NULL)
            ebb_trust(other);
    }
    ebb_status dims = set_all(set_dim, c, "--dim", model, other);
    ebb_status shapes = set_all(set_shape, c, "--shape", model, other);
    return dims != NULL ? dims : shapes;
}

ebb_status cli_bind(const cli *c, ebb_model *model)
{
    return cli_bind_both(c, model, NULL);
}

ebb_status cli_set_threads(const cli *c, ebb_model *model)
{
    ebb_set_deterministic(model, cli_has(c, "--deterministic"));
    return ebb_set_threads(model, cli_threads(c));
}

void cli_note_pass(const json_t *report, const char *name)
{
    json_t *pass, *note;
    size_t i, k;
    json_array_foreach(json_object_get(report, "passes"), i, pass)
        json_array_foreach(json_object_get(pass, "notes"), k, note)
            if (strcmp(cli_text(pass, "name"), name) == 0)
                cli_note("note: %s", json_string_value(note));
}

/* Which layer it took is worth a look. */
static void note_head(const char *json)
{
    json_t *o = json != NULL ? json_loads(json, 0, NULL) : NULL;
    cli_note_pass(o, "head");
    json_decref(o);
}

ebb_status cli_head(const cli *c, ebb_model *model, bool quiet)
{
    char text[512], *json = NULL;
    const char *head = cli_get(c, "--head", NULL);
    if (head == NULL)
        return NULL;
    const int length =
        snprintf(text, sizeof text, "head:seed=%llu,%s", (unsigned long long)cli_seed(c), head);
    if (length < 0 || (size_t)length >= sizeof text)
        text[0] = '\0'; // an empty pipeline, which is refused
    ebb_status status = ebb_rewrite(model, text, NULL, &json);
    if (status == NULL && !quiet)
        note_head(json);
    ebb_release(json);
    return status;
}

ebb_status cli_open_unbound(const cli *c, ebb_model **model, int file)
{
    ebb_status status = ebb_open(model, c->files[file]);
    if (status == NULL)
        status = cli_set_threads(c, *model);
    return status == NULL ? cli_head(c, *model, false) : status;
}

ebb_status cli_open_at(const cli *c, ebb_model **model, int file)
{
    ebb_status status = cli_open_unbound(c, model, file);
    return status == NULL ? cli_bind(c, *model) : status;
}

/* The first dim of an input that it had not before; 0: none. */
static int64_t rows_that_are_new(const ebb_model_facts *before, const ebb_model_facts *after)
{
    for (size_t i = 0; i < before->input_count && i < after->input_count; i++) {
        const ebb_named *a = &before->inputs[i], *b = &after->inputs[i];
        if (a->rank > 0 && b->rank > 0 && a->dims[0] != b->dims[0])
            return b->dims[0];
    }
    return 0;
}

ebb_status cli_open_sizes(const cli *c, ebb_model **model, cli_sizes *sizes)
{
    *sizes = (cli_sizes){NULL};
    ebb_status status = cli_open_unbound(c, model, 0);
    if (status != NULL || !(cli_has(c, "--dim") || cli_has(c, "--shape")))
        return status == NULL ? cli_bind(c, *model) : status;
    status = ebb_facts_of(&sizes->before, *model);
    if (status == NULL)
        status = cli_bind(c, *model);
    if (status == NULL)
        status = ebb_facts_of(&sizes->after, *model);
    if (status == NULL)
        sizes->rows = rows_that_are_new(sizes->before, sizes->after);
    return status;
}

static int check_input(const ebb_named *before, const ebb_named *after, const ebb_named *now)
{
    const bool comparable = before->rank == after->rank && after->rank == now->rank;
    for (int k = 1; comparable && k < now->rank; k++)
        if (before->dims[k] != after->dims[k] && after->dims[k] != now->dims[k])
            return cli_usage("--dim or --shape gives dim %d of input '%s' a size of %lld, and its "
                             "array one of %lld: leave it out",
                             k, now->name, (long long)after->dims[k], (long long)now->dims[k]);
    return EBB_OK;
}

int cli_check_sizes(const cli_sizes *sizes, const ebb_model *model)
{
    ebb_model_facts *now = NULL;
    if (sizes->after == NULL)
        return EBB_OK;
    ebb_status status = ebb_facts_of(&now, model);
    int code = status != NULL ? cli_fail(status) : EBB_OK;
    for (size_t i = 0; code == EBB_OK && i < now->input_count && i < sizes->after->input_count; i++)
        code = check_input(&sizes->before->inputs[i], &sizes->after->inputs[i], &now->inputs[i]);
    ebb_release(now);
    return code;
}

void cli_free_sizes(cli_sizes *sizes)
{
    ebb_release(sizes->before);
    ebb_release(sizes->after);
    *sizes = (cli_sizes){NULL};
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

ebb_status cli_open_whole(const cli *c, ebb_model **model)
{
    ebb_status status = cli_open(c, model);
    return status == NULL ? cli_weights(c, *model) : status;
}

const char *cli_step_option(const cli *c)
{
    static const char *const options[] = {"--loss",
                                          "--teacher",
                                          "--optimizer",
                                          "--lr-schedule",
                                          "--clip-norm",
                                          "--accumulate",
                                          "--group",
                                          "--ema",
                                          "--train",
                                          "--freeze",
                                          "--adapter",
                                          "--allow-partial",
                                          "--straight-through",
                                          "--dropout",
                                          "--batch-norm",
                                          "--precision",
                                          "--ranks",
                                          "--link"};
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

/* ---- costs and budget ---- */

static const char *budget_of(const cli *c)
{
    const char *budget = cli_get(c, "--budget", NULL);
    return budget != NULL && strcmp(budget, "none") != 0 ? budget : NULL;
}

/* "2GiB,disk=20GiB": the amount for the device's memory; those behind it are read too. */
ebb_status cli_budget(ebb_amount *amount, const char *budget)
{
    ebb_amount one;
    for (const char *part = budget;; part += strcspn(part, ",") + 1) {
        char text[64];
        const int length = (int)strcspn(part, ",");
        (void)snprintf(text, sizeof text, "%.*s", length, part);
        const char *equals = strchr(text, '=');
        ebb_status status = ebb_amount_parse(part == budget ? amount : &one,
                                             part == budget || equals == NULL ? text : equals + 1);
        if (status != NULL || part[length] == '\0')
            return status;
    }
}

/* Whether the device's memory comes first, and behind it places, each once; amounts are not looked at. */
static bool names_places(const char *budget)
{
    static const char *const places[] = {"disk=", "host="};
    int given[] = {0, 0};
    for (const char *part = budget;; part += strcspn(part, ",") + 1) {
        const size_t length = strcspn(part, ","), name = strcspn(part, "=") + 1;
        int place = 0;
        while (place < 2 && strncmp(part, places[place], 5) != 0)
            place++;
        if (name <= length && (part == budget || place == 2 || ++given[place] > 1))
            return false;
        if (part[length] == '\0')
            return true;
    }
}

int cli_check_planning(const cli *c)
{
    const char *budget = budget_of(c);
    ebb_amount amount;
    if (budget != NULL && !names_places(budget))
        return cli_usage(
            "--budget takes the amount of the device's memory, then other places, each once: "
            "2GiB,disk=20GiB (or host=, of a GPU's step), not '%s'",
            budget);
    ebb_status status = budget != NULL ? cli_budget(&amount, budget) : NULL;
    if (status != NULL) {
        int code = cli_fail(status);
        cli_note("  for --budget %s; `--budget none` asks for no plan", budget);
        return code;
    }
    return EBB_OK;
}

/* ---- the step ---- */

bool cli_is_ort(const cli *c)
{
    return strcmp(cli_get(c, "--dialect", "onnx"), "ort") == 0;
}

typedef struct lists { /* of as many words as there can be */
    const char *train[MOST_WORDS + 1], *freeze[MOST_WORDS + 1], *passes[MOST_WORDS + 1],
        *groups[MOST_WORDS + 1];
    const char *losses[MOST_WORDS + 1];
} lists;

void cli_list(const cli *c, const char *option, const char *list[MOST_WORDS + 1])
{
    int count = 0;
    for (int at = 0; (list[count] = cli_next(c, option, &at)) != NULL;)
        count++;
}

/* What the words say of a step; in the memory of the words and of the lists. */
static ebb_step_options step_options(const cli *c, lists *l)
{
    cli_list(c, "--train", l->train);
    cli_list(c, "--freeze", l->freeze);
    cli_list(c, "--pass", l->passes);
    cli_list(c, "--loss", l->losses);
    cli_list(c, "--group", l->groups);
    return (ebb_step_options){.losses = l->losses,
                              .optimizer = cli_get(c, "--optimizer", NULL),
                              .train = l->train,
                              .freeze = l->freeze,
                              .straight_through = cli_has(c, "--straight-through"),
                              .dropout = cli_get(c, "--dropout", NULL),
                              .batch_norm = cli_get(c, "--batch-norm", NULL),
                              .onnx_statistics = cli_is_ort(c), // its running variance is ONNX's
                              .precision = cli_get(c, "--precision", NULL),
                              .seed = cli_seed(c),
                              .passes = l->passes,
                              .costs = cli_get(c, "--costs", NULL),
                              .budget = budget_of(c),
                              .plan_time = cli_get(c, "--plan-time", NULL),
                              .allow = cli_get(c, "--allow", NULL),
                              .backend = cli_backend(c),
                              .schedule = cli_get(c, "--lr-schedule", NULL),
                              .clip_norm = cli_number(c, "--clip-norm", 0),
                              .accumulate = cli_whole(c, "--accumulate", 1),
                              .groups = l->groups,
                              .teacher = cli_get(c, "--teacher", NULL),
                              .ema = cli_number(c, "--ema", 0),
                              .adapters = cli_get(c, "--adapter", NULL),
                              .segments = cli_has(c, "--pack"),
                              .ranks = ebb_group_ranks(cli_launched()),
                              .link = cli_get(c, "--link", NULL),
                              // a part of a model shows a failure as well
                              .allow_partial =
                                  cli_has(c, "--allow-partial") || cli_has(c, "--fails")};
}

ebb_status cli_pipeline(const cli *c, const ebb_model *model, bool make, char **text)
{
    lists l;
    const ebb_step_options options = step_options(c, &l);
    return make ? ebb_step_pipeline(text, &options) : ebb_change_pipeline(text, model, &options);
}

static void print_graph(void *context, const char *pass, const char *text)
{
    (void)context;
    printf("# after %s\n%s\n", pass, text);
}

static ebb_status run_pipeline(const cli *c, ebb_model *model, const char *text, char **json,
                               ebb_rewrite_facts *facts)
{
    const ebb_rewrite_options options = {.strict = cli_has(c, "--strict"),
                                         .verify_each = cli_has(c, "--verify-each"),
                                         .print_after = cli_get(c, "--print-after", NULL),
                                         .print = print_graph,
                                         .facts = facts};
    return text[0] != '\0' ? ebb_rewrite(model, text, &options, json) : NULL;
}

ebb_status cli_rewrite(const cli *c, ebb_model *model, bool make, char **json,
                       ebb_rewrite_facts *facts)
{
    char *text;
    ebb_status status = cli_pipeline(c, model, make, &text);
    if (status == NULL)
        status = run_pipeline(c, model, text, json, facts);
    ebb_release(text);
    return status;
}

ebb_status cli_make_step(const cli *c, ebb_model *model, int64_t steps, char **json)
{
    lists l;
    char *text;
    json_t *warnings = cli_warnings(model);
    ebb_step_options options = step_options(c, &l);
    options.steps = steps;
    *json = NULL;
    ebb_status status = ebb_step_pipeline(&text, &options);
    if (status == NULL)
        status = run_pipeline(c, model, text, json, NULL);
    if (status == NULL)
        cli_tell_made(json, warnings);
    ebb_release(text);
    json_decref(warnings);
    return status;
}

ebb_status cli_step_for(const cli *c, ebb_model *model, int ranks, char **json)
{
    lists l;
    char *text;
    ebb_step_options options = step_options(c, &l);
    options.ranks = ranks;
    if (options.link == NULL && options.costs == NULL)
        options.link = "10gbe";
    ebb_status status = ebb_step_pipeline(&text, &options);
    if (status == NULL)
        status = run_pipeline(c, model, text, json, NULL);
    ebb_release(text);
    return status;
}

ebb_status cli_has_step(const ebb_model *model, bool *step)
{
    ebb_model_facts *facts;
    ebb_status status = ebb_facts_of(&facts, model);
    *step = status == NULL && facts->trains;
    ebb_release(facts);
    return status;
}
