/* sensitivity.c: bench --sensitivity: a step, one batch of data, and what ebb_sensitivity says. */
#include "cli/cli.h"

#include <stdlib.h>
#include <unistd.h>

typedef struct job {
    const cli *c;
    ebb_model *model;
    ebb_data *data;
    cli_map map;
    int64_t batch, rows; /* batch 0: as many rows as the step was made for */
    int64_t *index;
    bool tty;
} job;

/* ---- the step ---- */

/* The first dim of the first input that an array feeds, where it is fixed; else 0. */
static int64_t rows_of_step(const job *j)
{
    const ebb_model_facts *f = j->map.facts;
    for (size_t i = 0; i < f->input_count; i++)
        for (size_t k = 0; j->map.feeds[k] != NULL; k += 2)
            if (strcmp(j->map.feeds[k + 1], f->inputs[i].name) == 0 && f->inputs[i].rank > 0)
                return f->inputs[i].dims[0] > 0 ? f->inputs[i].dims[0] : 0;
    return 0;
}

/* A step keeps its own number of rows unless --batch says another. */
static ebb_status bind(job *j, bool is_step)
{
    int64_t own = 0;
    ebb_status status = is_step ? cli_find_feeds(j->model, j->data, &j->map) : NULL;
    if (status == NULL && is_step && j->batch == 0)
        own = rows_of_step(j);
    j->batch = j->batch > 0 ? j->batch : own > 0 ? own : 32;
    return status == NULL ? cli_bind_rows(j->model, j->data, &j->map, j->batch, &j->rows) : status;
}

/* A step that keeps its gradients as outputs replaces no state, but it has its loss. */
static ebb_status find_step(const job *j, bool *is_step)
{
    ebb_model_facts *facts;
    ebb_status status = ebb_facts_of(&facts, j->model);
    *is_step = status == NULL && (facts->is_step || facts->loss != NULL);
    ebb_release(facts);
    return status;
}

static ebb_status prepare(job *j, bool *is_step)
{
    const cli *c = j->c;
    ebb_status status = cli_open_whole(c, &j->model);
    if (status == NULL)
        status = find_step(j, is_step);
    if (status != NULL || (*is_step ? cli_step_option(c) != NULL : !cli_has(c, "--loss")))
        return status; // and the caller says why

    status = cli_open_data(c, "--data", false, j->model, &j->data);
    if (status == NULL)
        status = bind(j, *is_step);
    if (status == NULL)
        status = cli_rewrite(c, j->model, !*is_step, NULL, NULL);
    return status == NULL ? cli_find_feeds(j->model, j->data, &j->map) : status;
}

/* ---- telling ---- */

static void progress(void *context, size_t done, size_t count, const char *tensor)
{
    const job *j = context;
    if (j->tty && tensor == NULL)
        fprintf(stderr, "\r%zu of %zu tensors%-48s\n", done, count, "");
    else if (j->tty)
        fprintf(stderr, "\r%zu of %zu tensors: %-46.46s", done, count, tensor);
    else if (tensor != NULL)
        cli_note("%zu of %zu: %s", done + 1, count, tensor);
}

static void show(const json_t *o)
{
    char bytes[32];
    size_t i;
    json_t *t;
    printf("%-48s %12s %12s %12s %12s\n", "tensor", "bytes", "range^2", "gradient^2",
           "sensitivity");
    json_array_foreach(json_object_get(o, "tensors"), i, t)
        printf("%-48s %12s %12.4g %12.4g %12.4g\n", cli_text(t, "name"),
               cli_bytes(bytes, cli_real(t, "bytes")), cli_real(t, "range2"), cli_real(t, "grad2"),
               cli_real(t, "sensitivity"));
    printf("%zu tensors by the gradients of %lld parameters\n",
           json_array_size(json_object_get(o, "tensors")), (long long)cli_real(o, "gradients"));
    json_array_foreach(json_object_get(o, "skipped"), i, t)
        printf("skipped %lld: %s\n", (long long)cli_real(t, "count"), cli_text(t, "reason"));
}

/* ---- all ---- */

static int measure(job *j)
{
    const cli *c = j->c;
    ebb_batch batch = {0};
    char *json = NULL;
    if (j->rows < j->batch)
        return cli_usage("%lld rows are fewer than one batch of %lld", (long long)j->rows,
                         (long long)j->batch);
    j->index = calloc((size_t)j->batch, sizeof *j->index);
    if (j->index == NULL)
        return EBB_RUNTIME;
    for (int64_t i = 0; i < j->batch; i++)
        j->index[i] = i;
    ebb_status status = ebb_data_rows(j->data, j->index, (size_t)j->batch, j->map.feeds, &batch);
    const ebb_sensitivity_options options = {.batch = &batch,
                                             .backend = cli_backend(c),
                                             .seed = cli_seed(c),
                                             .threads = cli_threads(c),
                                             .progress = progress,
                                             .context = j};
    if (status == NULL)
        status = ebb_sensitivity(j->model, &options, cli_get(c, "-o", NULL), &json);
    return status == NULL ? cli_show(c, json, show) : cli_fail(status);
}

static int check_words(job *j)
{
    const cli *c = j->c;
    if (c->file_count != 1)
        return cli_usage("--sensitivity takes one model, not %d", c->file_count);
    if (!cli_has(c, "--data"))
        return cli_usage("say what to measure it on: --data FILE");
    if (!cli_has(c, "-o"))
        return cli_usage("say where the sensitivities go: -o FILE");
    j->batch = cli_whole(c, "--batch", 0);
    int code = cli_check_planning(c);
    return code == EBB_OK && !cli_read_map(c, "--map", &j->map) ? EBB_USAGE : code;
}

int cli_sensitivity(const cli *c)
{
    job j = {.c = c, .tty = isatty(STDERR_FILENO) == 1};
    bool is_step = false;
    int code = check_words(&j);
    if (code == EBB_OK) {
        ebb_status status = prepare(&j, &is_step);
        if (status != NULL)
            code = cli_fail(status);
        else if (!is_step && !cli_has(c, "--loss"))
            code = cli_usage("%s is no training step: give its --loss, or a step that `ebb grad` "
                             "wrote",
                             c->files[0]);
        else if ((code = cli_check_step(c, 0, is_step)) == EBB_OK)
            code = measure(&j);
    }
    free(j.index);
    cli_free_map(&j.map);
    ebb_data_close(j.data);
    ebb_close(j.model);
    return code;
}
