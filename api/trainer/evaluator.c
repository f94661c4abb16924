/* evaluator.c: trained parameters on data that they were not trained on.
 *
 * A training step draws dropout, takes batch norm's statistics from the batch and changes its
 * states, so it cannot tell. A copy of the exported model gets the trained values and is run forward
 * with dropout off and running statistics; what is left of the rows after whole batches makes a
 * batch of its own, so that each row counts once.
 *
 * Of several processes each takes every Nth batch; losses are added in the order of batches, so that all,
 * and one alone, find the same one the best. With fewer batches than processes each counts them all.
 */
#include "api/trainer/trainer.h"

#include "exec/data/checksum.h"
#include "exec/data/data.h"
#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "onnx/words/options.h"

struct ebb_evaluator {
    ebb_evaluator_options o;
    const ebb_model *exported;
    ebb_data *data; /* beside the caller's, which a trainer may read meanwhile */
    ebb_metrics *metrics;
    int64_t *rows; /* row_count of them */
    int64_t row_count, batch;
    bool was_stopped; /* the last run */
    struct kept {     /* of the last run; names also of the first batch */
        ebb_metric *list;
        size_t count;
    } kept;
};

typedef struct part { /* one program, for one size of batch */
    ebb_model *model;
    ebb_program *program;
    const char **feeds; /* arrays and inputs */
} part;

static void part_free(part *p)
{
    ebb_program_free(p->program);
    ebb_free(p->feeds);
    ebb_close(p->model);
}

static ebb_status make_part(part *p, const ebb_evaluator *e, ebb_program *trained, int64_t batch)
{
    int64_t rows;
    char *pipeline = NULL;
    const ebb_evaluator_options *o = &e->o;
    const ebb_step_options step = {.losses = o->losses,
                                   .teacher = o->teacher,
                                   .passes = o->passes,
                                   .adapters = o->adapters,
                                   .segments = o->segments};
    const ebb_compile_options options = {.backend = o->backend, .threads = o->threads};
    *p = (part){NULL};
    EBB_TRY(ebb_model_copy(&p->model, e->exported));
    EBB_TRY(ebb_data_shape(e->data, p->model, o->map, batch, &rows));
    if (o->bind != NULL) {
        o->bind(o->context, p->model);
        EBB_TRY(ebb_data_shape(e->data, p->model, o->map, batch, &rows)); // arrays know better
    }
    EBB_TRY(ebb_evaluation_pipeline(&pipeline, &step));
    const bool adapted = strstr(pipeline, ",lora") != NULL; // the values have their places then
    ebb_status status = trained != NULL && !adapted ? ebb_program_store(trained, p->model) : NULL;
    if (status == NULL)
        status = ebb_rewrite(p->model, pipeline, NULL, NULL);
    ebb_release(pipeline);
    if (status == NULL && trained != NULL && adapted)
        status = ebb_program_store(trained, p->model);
    EBB_TRY(status);
    EBB_TRY(ebb_data_shape(e->data, p->model, o->map, batch, &rows)); // the target is there now
    EBB_TRY(ebb_feeds_of(&p->feeds, p->model, e->data, o->map));
    return ebb_program_compile(&p->program, p->model, &options);
}

typedef struct asking {
    bool (*stop)(void *context);
    void *context;
    ebb_group *all,
        *group; /* that is asked, and that shares the batches; NULL: this process alone */
} asking;

/* Whether all go on: one that was told to stop may not leave the others waiting. */
static ebb_status go_on(ebb_evaluator *e, const asking *ask)
{
    int64_t on = ask->stop == NULL || !ask->stop(ask->context);
    if (ask->all != NULL)
        EBB_TRY(ebb_group_least(ask->all, "an evaluation", &on));
    e->was_stopped = on == 0;
    return on != 0 ? NULL : ebb_error(EBB_RUNTIME, "the evaluation was stopped");
}

static ebb_status run_batch(ebb_evaluator *e, part *p, int64_t at, int64_t batch, const asking *ask)
{
    ebb_batch now;
    EBB_TRY(ebb_data_rows(e->data, e->rows + at, (size_t)batch, p->feeds, &now));
    EBB_TRY(ebb_program_step(p->program, &now));
    return ebb_metrics_turn(e->metrics, ask->group, p->program, &now);
}

static ebb_status run_rows(ebb_evaluator *e, part *p, int64_t from, int64_t to, int64_t batch,
                           const asking *ask)
{
    const int64_t own = batch * ebb_group_rank(ask->group);
    for (int64_t at = from; at < to; at += batch * ebb_group_ranks(ask->group)) {
        EBB_TRY(go_on(e, ask));
        EBB_TRY(at + own < to ? run_batch(e, p, at + own, batch, ask)
                              : ebb_metrics_turn(e->metrics, ask->group, p->program, NULL));
    }
    return NULL;
}

/* Rows from .. to in batches of `batch`, which divides them. */
static ebb_status run_part(ebb_evaluator *e, ebb_program *trained, int64_t from, int64_t to,
                           int64_t batch, const asking *ask)
{
    part p;
    if (from == to)
        return NULL;
    ebb_status status = make_part(&p, e, trained, batch);
    if (status == NULL)
        status = run_rows(e, &p, from, to, batch, ask);
    part_free(&p);
    return status;
}

/* Names stay the metrics' own. */
static ebb_status keep(ebb_evaluator *e)
{
    const size_t count = ebb_metrics_count(e->metrics);
    ebb_metric *list = ebb_alloc((count + 1) * sizeof *list);
    EBB_GOT(list);
    for (size_t i = 0; i < count; i++)
        list[i] = ebb_metrics_at(e->metrics, i);
    ebb_free(e->kept.list);
    e->kept = (struct kept){list, count};
    return NULL;
}

/* What a run would do, with the first rows alone. */
static ebb_status try_once(ebb_evaluator *e)
{
    const asking nobody = {NULL};
    const int64_t whole = e->row_count / e->batch * e->batch;
    if (whole > 0)
        EBB_TRY(run_part(e, NULL, 0, e->batch, e->batch, &nobody));
    if (whole < e->row_count)
        EBB_TRY(run_part(e, NULL, whole, e->row_count, e->row_count - whole, &nobody));
    return keep(e);
}

/* What is worth knowing of how they are used is asked of the caller's. */
static ebb_status give_notes(ebb_data *data, const ebb_data *own)
{
    const char *note;
    for (size_t i = 0; (note = ebb_data_note(own, i)) != NULL; i++)
        EBB_TRY(ebb_data_add_note(data, "%s", note));
    return NULL;
}

static ebb_status list_rows(ebb_evaluator *e)
{
    ebb_model *model = NULL;
    int64_t rows = -1;
    ebb_status status = ebb_model_copy(&model, e->exported);
    if (status == NULL)
        status = ebb_data_shape(e->data, model, e->o.map, 1, &rows);
    ebb_close(model);
    if (status != NULL || rows < 1)
        return status != NULL ? status
                              : ebb_error(EBB_USAGE, "the data to evaluate on have no array for "
                                                     "any input of the model: name them in a map");
    e->row_count = e->o.rows != NULL ? e->o.row_count : rows;
    e->rows = ebb_alloc((size_t)e->row_count * sizeof *e->rows);
    EBB_GOT(e->rows);
    for (int64_t i = 0; i < e->row_count; i++)
        e->rows[i] = e->o.rows != NULL ? e->o.rows[i] : i;
    return NULL;
}

ebb_status ebb_evaluator_new(ebb_evaluator **evaluator, const ebb_model *exported, ebb_data *data,
                             const ebb_evaluator_options *options)
{
    EBB_NEED(evaluator);
    EBB_NEED(exported);
    EBB_NEED(data);
    EBB_NEED(options);
    *evaluator = NULL;
    ebb_evaluator_options own;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_evaluator_options, &own, group, options));
    EBB_NEED_COUNT(own.row_count);
    EBB_NEED_COUNT(own.batch);
    EBB_NEED_COUNT(own.threads);
    EBB_NEED(own.losses);
    ebb_evaluator *e = ebb_alloc(sizeof *e);
    EBB_GOT(e);
    *e = (ebb_evaluator){.o = own, .exported = exported};
    e->batch = own.batch > 0 ? own.batch : EBB_USUAL_BATCH;
    ebb_status status = ebb_data_beside(&e->data, data);
    if (status == NULL)
        status = ebb_metrics_new(&e->metrics, own.losses, own.metrics);
    if (status == NULL)
        status = list_rows(e);
    if (status == NULL)
        status = try_once(e);
    if (status == NULL)
        status = give_notes(data, e->data);
    if (status == NULL)
        *evaluator = e;
    else
        ebb_evaluator_free(e);
    return status;
}

ebb_status ebb_evaluator_agree(const ebb_evaluator *e, ebb_group *group)
{
    ebb_checksum c;
    ebb_checksum_begin(&c);
    ebb_checksum_add(&c, e->rows, (size_t)e->row_count * sizeof *e->rows);
    ebb_checksum_add(&c, &e->batch, sizeof e->batch);
    EBB_TRY(ebb_group_agree(group, "the evaluation (checksum of its rows and batch)",
                            ebb_checksum_end(&c)));
    const int64_t most = e->row_count < e->batch ? e->row_count : e->batch;
    return ebb_while(ebb_data_agree(group, e->data, NULL, // as try_once has bound them
                                    &(ebb_some_rows){e->rows, e->row_count, most}),
                     "comparing what is evaluated on");
}

ebb_status ebb_evaluator_run(ebb_evaluator *evaluator, ebb_program *trained,
                             bool (*stop)(void *context), void *context)
{
    EBB_NEED(evaluator);
    ebb_evaluator *e = evaluator;
    ebb_group *const all = trained != NULL ? trained->group : e->o.group;
    asking ask = {stop, context, all, all};
    const int64_t whole = e->row_count / e->batch * e->batch;
    if (e->row_count / e->batch < ebb_group_ranks(ask.group))
        ask.group = NULL;
    if (trained == NULL && all != NULL) {
        EBB_TRY(ebb_exported_agree(all, e->exported->graph)); // a training's has been compared
        EBB_TRY(ebb_evaluator_agree(e, all));
    }
    ebb_metrics_clear(e->metrics);
    EBB_TRY(run_part(e, trained, 0, whole, e->batch, &ask));
    EBB_TRY(run_part(e, trained, whole, e->row_count, e->row_count - whole, &ask));
    if (ask.group != NULL)
        EBB_TRY(ebb_metrics_merge(e->metrics, ask.group));
    return keep(e);
}

bool ebb_evaluator_was_stopped(const ebb_evaluator *e)
{
    return e->was_stopped;
}

int64_t ebb_evaluator_rows(const ebb_evaluator *e)
{
    return e->row_count;
}

size_t ebb_evaluator_count(const ebb_evaluator *e)
{
    return e->kept.count;
}

ebb_metric ebb_evaluator_at(const ebb_evaluator *e, size_t index)
{
    return index < e->kept.count ? e->kept.list[index] : (ebb_metric){0};
}

void ebb_evaluator_free(ebb_evaluator *e)
{
    if (e == NULL)
        return;
    ebb_metrics_free(e->metrics);
    ebb_data_close(e->data);
    ebb_free(e->rows);
    ebb_free(e->kept.list);
    ebb_free(e);
}
