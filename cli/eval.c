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

/* The value of NAME= in "cross-entropy:axis=-1,NAME=value", into text; false where it is not there.
 */
static bool option_in(const char *spec, const char *name, char text[256])
{
    size_t n = strlen(name);
    for (const char *at = strpbrk(spec, ":,"); at != NULL; at = strpbrk(at + 1, ":,"))
        if (strncmp(at + 1, name, n) == 0 && at[1 + n] == '=') {
            (void)snprintf(text, 256, "%.*s", (int)strcspn(at + 2 + n, ","), at + 2 + n);
            return true;
        }
    return false;
}

static bool is_kind(const char *spec, const char *kind)
{
    size_t n = strcspn(spec, ":,");
    return n == strlen(kind) && strncmp(spec, kind, n) == 0;
}

/* What the model predicts: the output that the loss reads. data NULL: there is none of floats. */
static ebb_status find_scores(ebb_program *p, const char *spec, ebb_named *out)
{
    char name[256];
    const char *loss = ebb_program_loss_name(p);
    const bool named = option_in(spec, "output", name);
    ebb_status status = NULL;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; status == NULL && i < ebb_program_output_count(p); i++) {
        const char *output = ebb_program_output_name(p, i);
        if (named ? strcmp(output, name) != 0 : loss != NULL && strcmp(output, loss) == 0)
            continue;
        status = ebb_program_get(p, output, out);
        if (status == NULL && out->dtype == 1)
            return NULL;
    }
    out->data = NULL;
    return status;
}

static int64_t class_at(const ebb_named *target, int64_t i)
{
    return target->dtype == 7 ? ((const int64_t *)target->data)[i]
                              : ((const int32_t *)target->data)[i];
}

/* Counts the targets, and those whose class has the highest score. False where the two do not go
 * together: then there is no accuracy. */
static bool count_correct(const ebb_named *scores, const ebb_named *target, const char *spec,
                          score *s)
{
    char text[256];
    int axis = option_in(spec, "axis", text) ? (int)strtol(text, NULL, 10) : 1;
    int64_t ignore = option_in(spec, "ignore_index", text) ? strtoll(text, NULL, 10) : -100;
    int64_t outer = 1, inner = 1, targets = 1;
    axis += axis < 0 ? scores->rank : 0;
    if (axis < 0 || axis >= scores->rank || (target->dtype != 7 && target->dtype != 6))
        return false;
    for (int d = 0; d < scores->rank; d++)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : scores->dims[d];
    for (int d = 0; d < target->rank; d++)
        targets *= target->dims[d];
    if (targets != outer * inner)
        return false;
    const float *f = scores->data;
    for (int64_t i = 0; i < targets; i++) {
        int64_t wanted = class_at(target, i), best = 0, classes = scores->dims[axis];
        const float *row = f + i / inner * classes * inner + i % inner;
        if (wanted == ignore)
            continue;
        for (int64_t c = 1; c < classes; c++)
            if (row[c * inner] > row[best * inner])
                best = c;
        s->counted++;
        s->correct += best == wanted;
    }
    return true;
}

static ebb_status take_batch(ebb_program *p, const char *spec, const ebb_batch *batch, int64_t rows,
                             score *s, bool *has_accuracy)
{
    char target[256] = "target", text[256];
    ebb_named scores;
    const ebb_named *right = NULL;
    int64_t before = s->counted;
    (void)option_in(spec, "target", target);
    for (size_t i = 0; i < batch->count; i++)
        if (strcmp(batch->tensors[i].name, target) == 0)
            right = &batch->tensors[i];
    double loss = 0;
    ebb_status status = find_scores(p, spec, &scores);
    if (!is_kind(spec, "cross-entropy") || right == NULL || scores.data == NULL ||
        !count_correct(&scores, right, spec, s)) {
        *has_accuracy = false;
        s->counted += rows;
    }
    bool summed = option_in(spec, "reduction", text) && strcmp(text, "sum") == 0;
    if (status == NULL)
        status = cli_loss(p, ebb_program_loss_name(p), &loss);
    if (s->counted > before) // a batch without a target that counts has no mean
        s->loss += summed ? loss : loss * (double)(s->counted - before);
    return status;
}

/* Rows from .. from + count in batches of `batch`, which divides count. */
static ebb_status run_part(const cli *c, ebb_program *trained, ebb_data *data, cli_map *map,
                           const int64_t range[2], int64_t batch, score *s, bool *has_accuracy)
{
    ebb_model *model = NULL;
    ebb_program *p = NULL;
    char pipeline[1024];
    int64_t rows;
    const char *spec = cli_get(c, "--loss", "");
    int kind = (int)strcspn(spec, ":");
    (void)snprintf(pipeline, sizeof pipeline,
                   "flatten,train-mode:dropout=off,batch-norm=frozen,fold,"
                   "fuse,loss:%.*s%s%s,"
                   "keep-output=1,drop-saves,alias",
                   kind, spec, spec[kind] != '\0' ? "," : "",
                   spec[kind] != '\0' ? spec + kind + 1 : "");
    ebb_status status = ebb_open(&model, c->files[0]);
    if (status == NULL)
        status = cli_set_threads(c, model);
    if (status == NULL)
        status = cli_bind_rows(model, data, map, batch, &rows);
    if (status == NULL)
        (void)cli_bind(c, model); // sizes that no array gives; those that one gave are taken
    if (status == NULL)
        status = ebb_program_store(trained, model);
    if (status == NULL)
        status = ebb_rewrite(model, pipeline, NULL, NULL);
    if (status == NULL) // the target is an input now
        status = cli_bind_rows(model, data, map, batch, &rows);
    if (status == NULL)
        status = cli_find_feeds(model, data, map);
    const ebb_compile_options options = {.backend = cli_backend(c), .threads = cli_threads(c)};
    if (status == NULL)
        status = ebb_program_compile(&p, model, &options);
    int64_t *index = calloc((size_t)batch, sizeof *index);
    for (int64_t at = range[0]; status == NULL && index != NULL && at < range[1]; at += batch) {
        ebb_batch now;
        for (int64_t i = 0; i < batch; i++)
            index[i] = at + i;
        status = ebb_data_rows(data, index, (size_t)batch, map->feeds, &now);
        if (status == NULL)
            status = ebb_program_step(p, &now);
        if (status == NULL)
            status = take_batch(p, spec, &now, batch, s, has_accuracy);
    }
    free(index);
    ebb_program_free(p);
    ebb_close(model);
    return status;
}

static int evaluate(const cli *c, ebb_program *trained, ebb_data *data, cli_map *map, int64_t batch,
                    json_t **result)
{
    ebb_model *model = NULL;
    int64_t rows = -1;
    score s = {0};
    bool has_accuracy = true;
    ebb_status status = ebb_open(&model, c->files[0]);
    if (status == NULL)
        status = cli_bind_rows(model, data, map, 1, &rows);
    ebb_close(model);
    if (status == NULL && rows < 1)
        return cli_usage("%s has no array for any input of %s: name them with --eval-map",
                         cli_get(c, "--eval", ""), c->files[0]);
    int64_t whole = rows / batch * batch;
    if (status == NULL && whole > 0)
        status = run_part(c, trained, data, map, (int64_t[]){0, whole}, batch, &s, &has_accuracy);
    if (status == NULL && rows > whole)
        status = run_part(c, trained, data, map, (int64_t[]){whole, rows}, rows - whole, &s,
                          &has_accuracy);
    if (status != NULL)
        return cli_fail(status);
    double loss = s.counted > 0 ? s.loss / (double)s.counted : NAN;
    *result = json_pack("{s:I, s:I}", "rows", (json_int_t)rows, "counted", (json_int_t)s.counted);
    (void)json_object_set_new(*result, "loss", isfinite(loss) ? json_real(loss) : json_null());
    if (has_accuracy && s.counted > 0)
        (void)json_object_set_new(*result, "accuracy",
                                  json_real((double)s.correct / (double)s.counted));
    return EBB_OK;
}

int cli_evaluate(const cli *c, ebb_program *trained, int64_t batch, json_t **result)
{
    ebb_data *data = NULL;
    cli_map map;
    *result = NULL;
    if (!cli_has(c, "--eval"))
        return EBB_OK;
    const char *maps = cli_has(c, "--eval-map") ? "--eval-map" : "--map";
    int code = cli_read_map(c, maps, &map) ? EBB_OK : EBB_USAGE;
    ebb_status status =
        code == EBB_OK ? ebb_data_open(&data, cli_get(c, "--eval", NULL), NULL) : NULL;
    if (status != NULL)
        code = cli_fail(status);
    if (code == EBB_OK)
        code = evaluate(c, trained, data, &map, batch, result);
    ebb_data_close(data);
    cli_free_map(&map);
    return code;
}
