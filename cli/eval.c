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

typedef struct score {
    double loss;              /* summed over what counts */
    int64_t counted, correct; /* targets; rows where the loss is no cross-entropy */
} score;

/* The test of a trained model, from one batch to the next. */
typedef struct test {
    const cli *c;
    ebb_loss_facts *loss;
    ebb_data *data;
    cli_map *map;
    score score;
    bool has_accuracy;
} test;

static bool is_float(int dtype)
{
    return strstr(ebb_dtype_text(dtype), "float") != NULL; // bfloat16 as well
}

/* What the model predicts: the output that the loss reads. data NULL: there is none of floats. */
static ebb_status find_scores(ebb_program *p, const ebb_loss_facts *l, ebb_named *out)
{
    const char *loss = ebb_program_loss_name(p);
    ebb_status status = NULL;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; status == NULL && i < ebb_program_output_count(p); i++) {
        const char *output = ebb_program_output_name(p, i);
        if (l->output != NULL ? strcmp(output, l->output) != 0
                              : loss != NULL && strcmp(output, loss) == 0)
            continue;
        status = ebb_program_get(p, output, out);
        if (status == NULL && is_float(out->dtype))
            return NULL;
    }
    out->data = NULL;
    return status;
}

/* Counts the targets, and those whose class has the highest score. False where the two do not go
 * together: then there is no accuracy. */
static bool count_correct(const ebb_named *scores, const ebb_named *target, const ebb_loss_facts *l,
                          score *s)
{
    int64_t outer = 1, inner = 1, targets = 1;
    const int64_t axis = l->axis + (l->axis < 0 ? scores->rank : 0);
    if (axis < 0 || axis >= scores->rank || is_float(target->dtype))
        return false;
    for (int d = 0; d < scores->rank; d++)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : scores->dims[d];
    for (int d = 0; d < target->rank; d++)
        targets *= target->dims[d];
    if (targets != outer * inner)
        return false;
    const int64_t classes = scores->dims[axis];
    for (int64_t i = 0; i < targets; i++) {
        const int64_t row = i / inner * classes * inner + i % inner;
        int64_t wanted = (int64_t)ebb_element(target, (size_t)i), best = 0;
        double most = ebb_element(scores, (size_t)row);
        if (wanted == l->ignore_index)
            continue;
        for (int64_t c = 1; c < classes; c++) {
            const double x = ebb_element(scores, (size_t)(row + c * inner));
            best = x > most ? c : best;
            most = x > most ? x : most;
        }
        s->counted++;
        s->correct += best == wanted;
    }
    return true;
}

static ebb_status take_batch(test *t, ebb_program *p, const ebb_batch *batch, int64_t rows)
{
    ebb_named scores;
    const ebb_named *right = NULL;
    score *s = &t->score;
    const int64_t before = s->counted;
    for (size_t i = 0; i < batch->count; i++)
        if (strcmp(batch->tensors[i].name, t->loss->target) == 0)
            right = &batch->tensors[i];
    double loss = 0;
    ebb_status status = find_scores(p, t->loss, &scores);
    if (strcmp(t->loss->kind, "cross-entropy") != 0 || right == NULL || scores.data == NULL ||
        !count_correct(&scores, right, t->loss, s)) {
        t->has_accuracy = false;
        s->counted += rows;
    }
    if (status == NULL)
        status = cli_loss(p, ebb_program_loss_name(p), &loss);
    if (s->counted > before) // a batch without a target that counts has no mean
        s->loss += t->loss->is_sum ? loss : loss * (double)(s->counted - before);
    return status;
}

/* Rows from .. to in batches of `batch`, which divides them. */
static ebb_status run_part(test *t, ebb_program *trained, int64_t from, int64_t to, int64_t batch)
{
    ebb_model *model = NULL;
    ebb_program *p = NULL;
    char *pipeline = NULL;
    int64_t rows;
    const cli *c = t->c;
    const ebb_step_options step = {.loss = cli_get(c, "--loss", NULL)};
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
            status = take_batch(t, p, &now, batch);
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
    ebb_status status = ebb_loss_facts_of(&t->loss, cli_get(c, "--loss", ""));
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
    const score *s = &t->score;
    double loss = s->counted > 0 ? s->loss / (double)s->counted : NAN;
    *result = json_pack("{s:I, s:I}", "rows", (json_int_t)rows, "counted", (json_int_t)s->counted);
    (void)json_object_set_new(*result, "loss", isfinite(loss) ? json_real(loss) : json_null());
    if (t->has_accuracy && s->counted > 0)
        (void)json_object_set_new(*result, "accuracy",
                                  json_real((double)s->correct / (double)s->counted));
    return EBB_OK;
}

int cli_evaluate(const cli *c, ebb_program *trained, int64_t batch, json_t **result)
{
    cli_map map;
    test t = {.c = c, .map = &map, .has_accuracy = true};
    *result = NULL;
    if (!cli_has(c, "--eval"))
        return EBB_OK;
    const char *maps = cli_has(c, "--eval-map") ? "--eval-map" : "--map";
    int code = cli_read_map(c, maps, &map) ? EBB_OK : EBB_USAGE;
    ebb_status status =
        code == EBB_OK ? ebb_data_open(&t.data, cli_get(c, "--eval", NULL), NULL) : NULL;
    if (status != NULL)
        code = cli_fail(status);
    if (code == EBB_OK)
        code = evaluate(&t, trained, batch, result);
    ebb_release(t.loss);
    ebb_data_close(t.data);
    cli_free_map(&map);
    return code;
}
