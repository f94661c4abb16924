/* feeds.c: which array feeds which input, and which rows are for evaluation alone. */
#include "api/trainer/trainer.h"

#include "onnx/graph/graph.h"
#include "onnx/words/options.h"

static const char *array_for(const char *const *map, const char *input)
{
    for (size_t i = 0; map != NULL && map[i] != NULL; i += 2)
        if (strcmp(map[i + 1], input) == 0)
            return map[i];
    return input;
}

ebb_status ebb_feeds_of(const char ***feeds, const ebb_model *model, ebb_data *data,
                        const char *const *map)
{
    const ebb_graph *g = model->graph;
    size_t count = 0;
    *feeds = NULL;
    EBB_TRY(ebb_data_bind(data, model, map));
    *feeds = ebb_alloc((2 * g->input_count + 1) * sizeof **feeds);
    EBB_GOT(*feeds);
    for (size_t i = 0; i < g->input_count; i++) {
        const char *input = ebb_value_name(g, g->inputs[i]);
        const ebb_named *array = ebb_data_find(data, array_for(map, input));
        if (array == NULL || (ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER) != 0)
            continue;
        (*feeds)[count++] = array->name;
        (*feeds)[count++] = input;
    }
    (*feeds)[count] = NULL;
    return NULL;
}

/* Both parts ascend, so that rows in order stay in order. */
ebb_status ebb_rows_split(int64_t *order, int64_t rows, double share, int64_t *held)
{
    EBB_NEED(order);
    EBB_NEED(held);
    EBB_NEED_COUNT(rows);
    *held = (int64_t)((double)rows * share + 0.5);
    if (*held < 1 || *held >= rows)
        return ebb_error(EBB_USAGE, "%g of %lld rows is not a part of them to evaluate on", share,
                         (long long)rows);
    int64_t *drawn = ebb_alloc((size_t)rows * sizeof *drawn);
    bool *out = ebb_alloc((size_t)rows * sizeof *out);
    if (drawn == NULL || out == NULL) {
        ebb_free(drawn);
        ebb_free(out);
        return ebb_error_memory();
    }
    memset(out, 0, (size_t)rows * sizeof *out);
    ebb_shuffle(drawn, rows, 0, UINT64_MAX); // an epoch that no training has
    for (int64_t i = 0; i < *held; i++)
        out[drawn[i]] = true;
    int64_t train = 0, test = rows - *held;
    for (int64_t i = 0; i < rows; i++)
        order[out[i] ? test++ : train++] = i;
    ebb_free(drawn);
    ebb_free(out);
    return NULL;
}

ebb_status ebb_trainer_take(ebb_trainer_options *own, const ebb_trainer_options *options)
{
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_trainer_options, own, best_by, options));
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, row_count);
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, batch);
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, steps);
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, epochs);
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, eval_every);
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, patience);
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, keep);
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, every);
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, every_ns);
    EBB_OPTIONS_COUNT(ebb_trainer_options, own, log_every);
    return NULL;
}

ebb_status ebb_trainer_steps(int64_t *steps, const ebb_trainer_options *options)
{
    EBB_NEED(steps);
    EBB_NEED(options);
    ebb_trainer_options own, *o = &own;
    EBB_TRY(ebb_trainer_take(o, options));
    const int64_t batch = o->batch > 0 ? o->batch : EBB_USUAL_BATCH,
                  per_epoch = o->row_count / batch;
    *steps = o->steps;
    if (o->row_count == 0)
        return ebb_error(EBB_USAGE, "there are no rows to train on (row_count is 0)");
    if (per_epoch < 1)
        return ebb_error(EBB_USAGE,
                         "%lld row%s fewer than one batch of %lld: take a smaller one, at most "
                         "--batch %lld",
                         (long long)o->row_count, o->row_count == 1 ? " is" : "s are",
                         (long long)batch, (long long)o->row_count);
    if (o->steps > 0)
        return NULL;
    if (__builtin_mul_overflow(o->epochs > 0 ? o->epochs : 1, per_epoch, steps))
        return ebb_error(EBB_USAGE, "%lld epochs are too many", (long long)o->epochs);
    return NULL;
}
