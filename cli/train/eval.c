/* eval.c: trained parameters on data that they were not trained on: `ebb eval`, and what `ebb train`
 * evaluates on.
 */
#include "cli/cli.h"

#include <math.h>

/* Sizes that no array gives. Those that one gave are taken, which is no error here. */
static void bind_sizes(void *context, ebb_model *model)
{
    (void)cli_bind(context, model);
}

int cli_check_metrics(const cli *c)
{
    const char *losses[MOST_WORDS + 1], *names[MOST_WORDS + 1];
    ebb_metrics *metrics = NULL;
    cli_list(c, "--loss", losses);
    cli_list(c, "--metric", names);
    ebb_status status = names[0] != NULL ? ebb_metrics_new(&metrics, losses, names) : NULL;
    ebb_metrics_free(metrics);
    return status != NULL ? cli_fail(status) : EBB_OK;
}

int cli_open_evaluation(const cli *c, cli_evaluation *e, const char *files, const char *map)
{
    cli_list(c, "--loss", e->losses);
    cli_list(c, "--metric", e->metrics);
    cli_list(c, "--pass", e->passes);
    if (!cli_read_map(c, map, &e->map))
        return EBB_USAGE;
    const ebb_evaluator_options options = {.losses = e->losses,
                                           .metrics = e->metrics,
                                           .map = e->map.pairs,
                                           .rows = e->rows,
                                           .row_count = e->row_count,
                                           .batch = e->batch,
                                           .backend = cli_backend(c),
                                           .threads = cli_threads(c),
                                           .teacher = cli_get(c, "--teacher", NULL),
                                           .passes = e->passes,
                                           .adapters = cli_get(c, "--adapter", NULL),
                                           .segments = cli_has(c, "--pack"),
                                           .group = cli_launched(),
                                           .bind = bind_sizes,
                                           .context = (void *)(uintptr_t)c};
    ebb_status status = e->of != NULL ? cli_data_again(c, e->of, &e->data)
                                      : cli_open_data(c, files, false, e->model, &e->data);
    if (status == NULL)
        status = ebb_evaluator_new(&e->evaluator, e->model, e->data, &options);
    cli_notes(e->data, e->of);
    return status == NULL ? EBB_OK : cli_fail(status);
}

void cli_close_evaluation(cli_evaluation *e)
{
    ebb_evaluator_free(e->evaluator);
    ebb_data_close(e->data);
    cli_free_map(&e->map);
}

json_t *cli_metrics(const ebb_evaluator *e)
{
    json_t *o = json_pack("{s:I, s:I}", "rows", (json_int_t)ebb_evaluator_rows(e), "counted",
                          (json_int_t)ebb_evaluator_at(e, 0).counted);
    for (size_t i = 0; i < ebb_evaluator_count(e); i++) {
        const ebb_metric m = ebb_evaluator_at(e, i);
        (void)json_object_set_new(o, m.name, isfinite(m.value) ? json_real(m.value) : json_null());
    }
    return o;
}

void cli_print_metrics(FILE *out, const json_t *metrics)
{
    const char *name;
    json_t *value;
    fprintf(out, "loss %.6f", cli_real(metrics, "loss"));
    json_object_foreach((json_t *)(uintptr_t)metrics, name, value) {
        if (strcmp(name, "accuracy") == 0)
            fprintf(out, ", accuracy %.2f %% of %.0f", 100 * cli_real(metrics, name),
                    cli_real(metrics, "counted"));
        else if (json_is_real(value) && strcmp(name, "loss") != 0)
            fprintf(out, ", %s %.6g", name, json_real_value(value));
    }
    (void)fputc('\n', out);
}

static void show(const cli *c, const ebb_evaluator *e)
{
    json_t *o = json_pack("{s:s}", "schema", "ebb.eval/1"), *metrics = cli_metrics(e);
    (void)json_object_update(o, metrics);
    if (cli_has(c, "--json")) {
        cli_print_json(o, JSON_COMPACT);
    } else {
        printf("%s: ", cli_get(c, "--data", ""));
        cli_print_metrics(stdout, metrics);
    }
    json_decref(metrics);
    json_decref(o);
}

/* Sizes that are asked for, of a model to look at; the one that is evaluated gets those of its arrays. */
typedef struct probe {
    ebb_model *model;
    cli_sizes sizes;
} probe;

static int ask_sizes(const cli *c, probe *p, int64_t *batch)
{
    ebb_status status = cli_open_sizes(c, &p->model, &p->sizes);
    return status == NULL ? cli_take_rows(c, batch, p->sizes.rows) : cli_fail(status);
}

static int check_sizes(const probe *p, const cli_evaluation *e)
{
    int64_t rows;
    ebb_status status = cli_bind_rows(p->model, e->data, &e->map, e->batch, &rows);
    return status == NULL ? cli_check_sizes(&p->sizes, p->model) : cli_fail(status);
}

int cli_eval(const cli *c)
{
    cli_evaluation e = {.batch = cli_whole(c, "--batch", 32)};
    probe p = {NULL};
    bool step = false;
    if (!cli_has(c, "--data"))
        return cli_usage("say what to evaluate it on: --data FILE");
    if (!cli_has(c, "--loss"))
        return cli_usage("say what to evaluate it by, e.g. --loss cross-entropy");
    ebb_status status = cli_join();
    if (status == NULL)
        status = ebb_open(&e.model, c->files[0]);
    if (status == NULL)
        status = cli_set_threads(c, e.model);
    if (status == NULL)
        status = cli_weights(c, e.model);
    if (status == NULL)
        status = cli_has_step(e.model, &step);
    int code = status != NULL ? cli_fail(status) : cli_check_step(c, 0, step);
    if (code == EBB_OK)
        code = ask_sizes(c, &p, &e.batch);
    if (code == EBB_OK)
        code = cli_open_evaluation(c, &e, "--data", "--map");
    if (code == EBB_OK)
        code = check_sizes(&p, &e);
    if (code == EBB_OK && (status = ebb_evaluator_run(e.evaluator, NULL, NULL, NULL)) != NULL)
        code = cli_fail(status);
    if (code == EBB_OK)
        show(c, e.evaluator);
    cli_leave();
    cli_close_evaluation(&e);
    ebb_close(e.model);
    ebb_close(p.model);
    cli_free_sizes(&p.sizes);
    return code;
}
