/* eval.c: the trained parameters on data that they were not trained on.
 *
 * A training step draws dropout, takes batch norm's statistics from the batch and changes its
 * states, so it cannot tell. The exported model is opened again, gets the trained values, and is
 * run forward with dropout off and running statistics; what is left of the rows after whole batches
 * makes a batch of its own.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>

/* The test of a trained model, from one batch to the next. */
typedef struct test {
    const cli *c;
    const char *losses[MOST_WORDS + 1], *names[MOST_WORDS + 1];
    ebb_metrics *metrics;
    ebb_data *data;
    cli_map *map;
} test;

/* Rows from .. to in batches of `batch`, which divides them. */
static ebb_status run_part(test *t, ebb_program *trained, int64_t from, int64_t to, int64_t batch)
{
    ebb_model *model = NULL;
    ebb_program *p = NULL;
    char *pipeline = NULL;
    int64_t rows;
    const cli *c = t->c;
    const ebb_step_options step = {.losses = t->losses};
    ebb_status status = ebb_evaluation_pipeline(&pipeline, &step);
    if (status == NULL)
        status = ebb_open(&model, c->files[0]);
    if (status == NULL)
        status = cli_set_threads(c, model);
    if (status == NULL)
        status = cli_bind_rows(model, t->data, t->map, batch, &rows);
    if (status == NULL)
        (void)cli_bind(c, model); // sizes that no array gives; those that one gave are taken
    if (status == NULL)
        status = ebb_program_store(trained, model);
    if (status == NULL)
        status = ebb_rewrite(model, pipeline, NULL, NULL);
    ebb_release(pipeline);
    if (status == NULL) // the target is an input now
        status = cli_bind_rows(model, t->data, t->map, batch, &rows);
    if (status == NULL)
        status = cli_find_feeds(model, t->data, t->map);
    const ebb_compile_options options = {.backend = cli_backend(c), .threads = cli_threads(c)};
    if (status == NULL)
        status = ebb_program_compile(&p, model, &options);
    int64_t *index = calloc((size_t)batch, sizeof *index);
    for (int64_t at = from; status == NULL && index != NULL && at < to; at += batch) {
        ebb_batch now;
        for (int64_t i = 0; i < batch; i++)
            index[i] = at + i;
        status = ebb_data_rows(t->data, index, (size_t)batch, t->map->feeds, &now);
        if (status == NULL)
            status = ebb_program_step(p, &now);
        if (status == NULL)
            status = ebb_metrics_take(t->metrics, p, &now);
    }
    free(index);
    ebb_program_free(p);
    ebb_close(model);
    return status;
}

static int evaluate(test *t, ebb_program *trained, int64_t batch, json_t **result)
{
    ebb_model *model = NULL;
    int64_t rows = -1;
    const cli *c = t->c;
    cli_list(c, "--loss", t->losses);
    cli_list(c, "--metric", t->names);
    ebb_status status = ebb_metrics_new(&t->metrics, t->losses, t->names);
    if (status == NULL)
        status = ebb_open(&model, c->files[0]);
    if (status == NULL)
        status = cli_bind_rows(model, t->data, t->map, 1, &rows);
    ebb_close(model);
    if (status == NULL && rows < 1)
        return cli_usage("%s has no array for any input of %s: name them with --eval-map",
                         cli_get(c, "--eval", ""), c->files[0]);
    const int64_t whole = rows / batch * batch;
    if (status == NULL && whole > 0)
        status = run_part(t, trained, 0, whole, batch);
    if (status == NULL && rows > whole)
        status = run_part(t, trained, whole, rows, rows - whole);
    if (status != NULL)
        return cli_fail(status);
    *result = json_pack("{s:I, s:I}", "rows", (json_int_t)rows, "counted",
                        (json_int_t)ebb_metrics_at(t->metrics, 0).counted);
    for (size_t i = 0; i < ebb_metrics_count(t->metrics); i++) {
        const ebb_metric m = ebb_metrics_at(t->metrics, i);
        (void)json_object_set_new(*result, m.name,
                                  isfinite(m.value) ? json_real(m.value) : json_null());
    }
    return EBB_OK;
}

int cli_check_metrics(const cli *c)
{
    const char *losses[MOST_WORDS + 1], *names[MOST_WORDS + 1];
    ebb_metrics *metrics;
    cli_list(c, "--loss", losses);
    cli_list(c, "--metric", names);
    ebb_status status = names[0] != NULL ? ebb_metrics_new(&metrics, losses, names) : NULL;
    if (names[0] != NULL)
        ebb_metrics_free(metrics);
    return status == NULL ? EBB_OK : cli_fail(status);
}

int cli_evaluate(const cli *c, ebb_program *trained, int64_t batch, json_t **result)
{
    cli_map map;
    test t = {.c = c, .map = &map};
    *result = NULL;
    if (!cli_has(c, "--eval"))
        return EBB_OK;
    const char *maps = cli_has(c, "--eval-map") ? "--eval-map" : "--map";
    int code = cli_read_map(c, maps, &map) ? EBB_OK : EBB_USAGE;
    ebb_status status = code == EBB_OK ? cli_open_data(c, "--eval", NULL, &t.data) : NULL;
    if (status != NULL)
        code = cli_fail(status);
    if (code == EBB_OK)
        code = evaluate(&t, trained, batch, result);
    ebb_metrics_free(t.metrics);
    ebb_data_close(t.data);
    cli_free_map(&map);
    return code;
}
