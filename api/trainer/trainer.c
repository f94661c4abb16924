/* trainer.c: the loop over data.
 *
 *     batch, step ──> evaluation, where it is due ──> results, where it was the best
 *                ──> a record in the logs ──> a checkpoint, where it is due
 *
 * A checkpoint is behind all that is due after its step, or says that the evaluation is not: so a
 * resumed run does what an unbroken one does.
 */
#include "api/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "exec/data/adapters.h"
#include "exec/data/data.h"
#include "exec/data/weights.h"
#include "onnx/file/sink.h"
#include "onnx/words/clock.h"
#include "onnx/words/options.h"

static void tell(ebb_trainer *t, ebb_trainer_event event)
{
    if (t->o.tell != NULL)
        t->o.tell(t->o.context, t, event);
}

/* ---- one step ---- */

/* Those of the step behind so many. */
static void list_rows(ebb_trainer *t, int64_t steps)
{
    const int64_t epoch = steps / t->per_epoch, from = steps % t->per_epoch * t->batch;
    if (t->order != NULL && t->ordered != epoch)
        ebb_shuffle_32(t->order, t->o.row_count, t->seed, (uint64_t)epoch);
    t->ordered = epoch;
    for (int64_t i = 0; i < t->batch; i++) {
        const int64_t row = t->order != NULL ? t->order[from + i] : from + i;
        t->index[i] = t->o.rows != NULL ? t->o.rows[row] : row;
    }
    ebb_data_epoch(t->data, t->seed, (uint64_t)epoch);
}

/* A process takes its own of each batch's. */
static ebb_status next_batch(ebb_trainer *t, ebb_batch *batch)
{
    const int64_t steps = t->o.repeat_batch ? 0 : t->facts.steps;
    const size_t rows = (size_t)(t->batch / ebb_group_ranks(t->group));
    const int64_t *own = t->index + rows * (size_t)ebb_group_rank(t->group);
    list_rows(t, steps);
    EBB_TRY(ebb_data_rows(t->data, own, rows, t->o.map, batch));
    if (t->o.repeat_batch || steps + 1 >= t->facts.until)
        return NULL;
    list_rows(t, steps + 1); // which are read during this step
    return ebb_data_ahead(t->data, own, rows, t->o.map);
}

/* NaN where there is no such value. */
static ebb_status read_number(double *number, ebb_program *program, const char *name)
{
    ebb_named value;
    *number = (double)NAN;
    if (name == NULL)
        return NULL;
    EBB_TRY(ebb_program_get(program, name, &value));
    *number = ebb_element(&value, 0);
    return NULL;
}

/* A row that cannot be taken ends the run, but the steps before it are good. */
static ebb_status save_steps_before(ebb_trainer *t, ebb_status status)
{
    const bool done = t->o.checkpoint != NULL && t->facts.steps > 0 && !t->gives;
    if (done && (t->saved_at == t->facts.steps || ebb_trainer_save(t) == NULL))
        return ebb_hint(status, "%s has the %lld steps before it: --resume goes on from there",
                        t->o.checkpoint, (long long)t->facts.steps);
    return status;
}

/* The first input that holds an infinity, and in which row of the data. NULL: none. */
static const char *find_infinity(int64_t *row, ebb_trainer *t, const ebb_batch *batch)
{
    const int64_t *own =
        t->index + t->batch / ebb_group_ranks(t->group) * (int64_t)ebb_group_rank(t->group);
    list_rows(t, t->o.repeat_batch ? 0 : t->facts.steps - 1);
    for (size_t k = 0; k < batch->count; k++) {
        const ebb_named *b = &batch->tensors[k];
        int64_t count = b->rank > 0 ? 1 : 0;
        for (int i = 0; i < b->rank; i++)
            count *= b->dims[i];
        for (int64_t i = 0; i < count; i++)
            if (isinf(ebb_element(b, (size_t)i))) {
                *row = own[i / (count / b->dims[0])];
                return b->name;
            }
    }
    return NULL;
}

/* A loss that is no number, or infinite. */
static ebb_status refuse_loss(ebb_trainer *t, const ebb_batch *batch)
{
    int64_t row;
    ebb_status status = ebb_error(EBB_RUNTIME,
                                  "step %lld: the loss '%s' is %s; nothing was saved after it "
                                  "(--on-nan warn goes on)",
                                  (long long)t->facts.steps, t->loss_name,
                                  isnan(t->facts.loss) ? "not a number" : "infinite");
    const char *input = find_infinity(&row, t, batch);
    if (input != NULL)
        return ebb_hint(status, "input '%s' is infinite in row %lld of the data: mend that row",
                        input, (long long)row);
    return ebb_hint(status, "a smaller rate (lr=), a warm-up or --clip-norm often helps; so does a "
                            "look at the scale of the data");
}

static ebb_status step(ebb_trainer *t)
{
    ebb_batch batch;
    ebb_trainer_facts *f = &t->facts;
    if (f->epoch_steps == t->per_epoch) {
        f->epoch_steps = 0;
        t->epoch_sum = 0;
    }
    ebb_status status = next_batch(t, &batch);
    if (status != NULL)
        return save_steps_before(t, status);
    EBB_TRY(ebb_program_step(t->program, &batch));
    EBB_TRY(read_number(&f->loss, t->program, t->loss_name));
    EBB_TRY(read_number(&f->rate, t->program, t->rate_name));
    f->steps++;
    f->epoch_steps++;
    f->epoch = (f->steps + t->per_epoch - 1) / t->per_epoch;
    f->step_ns = ebb_program_measure(t->program).step_ns;
    t->times[t->time_count++ % EBB_TIMES] = f->step_ns;
    t->epoch_sum += f->loss;
    t->record_due = true;
    if (!isfinite(f->loss) && t->loss_name != NULL && !t->o.goes_on_after_nan)
        return refuse_loss(t, &batch);
    return NULL;
}

/* ---- what is due after it ---- */

static bool is_stopped(void *trainer)
{
    return ((const ebb_trainer *)trainer)->stop != 0;
}

static bool ends_epoch(const ebb_trainer *t)
{
    return t->facts.epoch_steps == t->per_epoch;
}

static bool must_evaluate(const ebb_trainer *t)
{
    const ebb_trainer_facts *f = &t->facts;
    if (t->o.evaluator == NULL || f->steps == f->evaluated_at || f->steps == 0)
        return false;
    return f->steps >= f->until ||
           (t->o.eval_every > 0 ? f->steps % t->o.eval_every == 0 : ends_epoch(t));
}

static bool is_impatient(const ebb_trainer *t)
{
    return t->o.patience > 0 && t->facts.not_better >= t->o.patience;
}

static ebb_status add_record(ebb_trainer *t, const ebb_evaluator *evaluator)
{
    const ebb_trainer_facts *f = &t->facts;
    const int64_t every = t->o.log_every > 0 ? t->o.log_every : 1;
    const bool due = t->record_due && (f->steps % every == 0 || ends_epoch(t));
    if (!due && evaluator == NULL)
        return NULL;
    t->record_due = false;
    const double none = (double)NAN;
    const ebb_record r = {
        .step = f->steps,
        .epoch = f->epoch,
        .step_ns = f->step_ns,
        .loss = f->loss,
        .rate = t->facts.rate,
        .epoch_loss = ends_epoch(t) ? t->epoch_sum / (double)f->epoch_steps : none,
        .rows_per_second = f->step_ns > 0 ? (double)t->batch * 1e9 / (double)f->step_ns : none,
        .evaluator = evaluator};
    return ebb_logs_add(t->logs, &r);
}

/* What decides which evaluation is the best. */
static bool find_metric(ebb_metric *found, const ebb_trainer *t, const char *name)
{
    for (size_t i = 0; i < ebb_evaluator_count(t->o.evaluator); i++) {
        *found = ebb_evaluator_at(t->o.evaluator, i);
        if (strcmp(found->name, name) == 0)
            return true;
    }
    return false;
}

static bool is_better(const ebb_metric *now, double best) // or there was none
{
    return isfinite(now->value) &&
           !(now->higher_is_better ? now->value <= best : now->value >= best);
}

static ebb_status evaluate(ebb_trainer *t)
{
    ebb_trainer_facts *f = &t->facts;
    const int64_t began = ebb_now_ns();
    ebb_status status = ebb_evaluator_run(t->o.evaluator, t->program, is_stopped, t);
    t->evaluating_ns += ebb_now_ns() - began;
    if (status != NULL && ebb_evaluator_was_stopped(t->o.evaluator))
        return t->stop = 1, NULL; // a resumed run does it
    EBB_TRY(status);
    ebb_metric now;
    const bool better = find_metric(&now, t, f->best_by) && is_better(&now, f->best);
    f->evaluated_at = f->steps;
    t->saved_at = -1; // a checkpoint tells of it, so that of before is not of here
    f->not_better = better ? 0 : f->not_better + 1;
    if (better) {
        f->best = now.value;
        f->best_at = f->steps;
    }
    if (better && t->o.keep_best) {
        EBB_TRY(ebb_trainer_save_best(t));
        EBB_TRY(ebb_trainer_write_results(t));
        t->best_is_saved = true;
    }
    EBB_TRY(add_record(t, t->o.evaluator));
    tell(t, EBB_TRAINER_EVALUATED);
    return NULL;
}

static bool must_save(const ebb_trainer *t)
{
    const bool late = t->o.every_ns > 0 && ebb_now_ns() - t->saved_ns >= t->o.every_ns;
    return t->o.checkpoint != NULL &&
           (late || (t->o.every > 0 && t->facts.steps % t->o.every == 0));
}

static ebb_status do_what_is_due(ebb_trainer *t)
{
    const bool ends = ends_epoch(t) || t->facts.steps == t->facts.until;
    if (must_evaluate(t) && (t->stop == 0 || t->group != NULL)) // of a group all begin it
        EBB_TRY(evaluate(t));
    EBB_TRY(add_record(t, NULL));
    tell(t, EBB_TRAINER_STEP);
    if (ends)
        tell(t, EBB_TRAINER_EPOCH);
    bool save = must_save(t);
    EBB_TRY(ebb_trainer_follow(&save, t));
    if (save) {
        EBB_TRY(ebb_trainer_save(t));
        tell(t, EBB_TRAINER_SAVED);
    }
    return NULL;
}

static ebb_status finish(ebb_trainer *t)
{
    bool save = t->saved_at != t->facts.steps;
    EBB_TRY(ebb_trainer_follow(&save, t));
    if (save) {
        EBB_TRY(ebb_trainer_save(t));
        if (t->o.checkpoint != NULL)
            tell(t, EBB_TRAINER_SAVED);
    }
    return t->o.keep_best && t->best_is_saved ? NULL : ebb_trainer_write_results(t);
}

static ebb_status goes_on(bool *more, ebb_trainer *t)
{
    const bool can = t->facts.steps < t->facts.until && !is_impatient(t);
    *more = can && t->stop == 0;
    EBB_TRY(ebb_trainer_ask_all(more, t));
    if (can && !*more)
        t->stop = 1; // perhaps by another
    return NULL;
}

ebb_status ebb_trainer_run(ebb_trainer *trainer)
{
    EBB_NEED(trainer);
    ebb_trainer *t = trainer;
    bool more;
    ebb_trainer_facts *f = &t->facts;
    t->began_ns = t->saved_ns = ebb_now_ns();
    t->first = f->steps;
    if (must_evaluate(t)) // it was stopped before it could
        EBB_TRY(evaluate(t));
    f->was_over = f->steps >= f->until || is_impatient(t);
    EBB_TRY(goes_on(&more, t));
    while (more) {
        EBB_TRY(step(t));
        EBB_TRY(do_what_is_due(t));
        EBB_TRY(goes_on(&more, t));
    }
    f->stopped_early = f->steps < f->until && is_impatient(t);
    f->was_stopped = t->stop != 0 && f->steps < f->until && !f->stopped_early;
    return finish(t);
}

void ebb_trainer_stop(ebb_trainer *t)
{
    t->stop = 1;
}

/* ---- measuring ---- */

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median(const ebb_trainer *t)
{
    int64_t sorted[EBB_TIMES];
    const int64_t count = t->time_count < EBB_TIMES ? t->time_count : EBB_TIMES;
    if (count == 0)
        return 0;
    memcpy(sorted, t->times, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_size);
    return sorted[count / 2];
}

void ebb_trainer_measure_to(const ebb_trainer *t, ebb_trainer_facts *facts, size_t size)
{
    ebb_trainer_facts f = t->facts;
    const int64_t here = f.steps - t->first;
    const double ns = (double)(ebb_now_ns() - t->began_ns - t->evaluating_ns);
    f.epoch_loss = f.epoch_steps > 0 ? t->epoch_sum / (double)f.epoch_steps : (double)NAN;
    f.median_ns = median(t);
    if (here > 0 && ns > 0) {
        f.rows_per_second = (double)(here * t->batch) * 1e9 / ns;
        f.tokens_per_second = f.rows_per_second * (double)t->tokens_per_row;
        f.left_ns = (int64_t)((double)(f.until - f.steps) * ns / (double)here);
    }
    ebb_facts_give(facts, size, &f, sizeof f);
}

/* ---- making ---- */

static bool is_whole_number(int dtype)
{
    return strstr(ebb_dtype_text(dtype), "int") != NULL;
}

/* Texts are integers by rows of one length, and so is what stands beside them: targets, a mask. */
static int64_t tokens_of(const ebb_data *data, const char *const *map)
{
    for (size_t i = 0; map != NULL && map[i] != NULL; i += 2)
        for (size_t k = 0; k < i; k += 2) {
            const ebb_named *a = ebb_data_find(data, map[i]), *b = ebb_data_find(data, map[k]);
            if (a != NULL && b != NULL && a->rank == 2 && b->rank == 2 && a->dims[1] > 1 &&
                a->dims[1] == b->dims[1] && is_whole_number(a->dtype) && is_whole_number(b->dtype))
                return a->dims[1];
        }
    return 0;
}

static bool is_there(const char *path)
{
    return path == NULL || access(path, F_OK) == 0;
}

/* The rate of a schedule, or the one that the optimizer reads. */
static ebb_status find_rate(ebb_trainer *t)
{
    static const char *const names[] = {"ebb.rate", "ebb.lr"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ebb_status status = read_number(&t->facts.rate, t->program, names[i]);
        if (status == NULL)
            return t->rate_name = names[i], NULL;
        if (ebb_status_code(status) != EBB_USAGE) // not that there is none
            return status;
    }
    return NULL;
}

static ebb_status find_best_by(ebb_trainer *t)
{
    const char *name = t->o.best_by, *names[32];
    ebb_metric m;
    size_t count = 0;
    t->facts.best_by = "loss";
    if (name == NULL)
        return NULL;
    if (t->o.evaluator != NULL && find_metric(&m, t, name))
        return t->facts.best_by = m.name, NULL;
    for (; t->o.evaluator != NULL && count < 32 && count < ebb_evaluator_count(t->o.evaluator);
         count++)
        names[count] = ebb_evaluator_at(t->o.evaluator, count).name;
    const char *near = ebb_nearest(name, names, count);
    ebb_status status =
        ebb_error(EBB_USAGE, "the best by '%s': no evaluation has this metric", name);
    return near != NULL ? ebb_hint(status, "did you mean '%s'?", near)
                        : ebb_hint(status, "--metric %s lets one have it", name);
}

static ebb_status make_room(ebb_trainer *t)
{
    if (!t->o.in_order && t->o.row_count > (int64_t)UINT32_MAX + 1)
        return ebb_error(EBB_USAGE, "%lld rows are too many to be shuffled: take them in order",
                         (long long)t->o.row_count);
    t->index = ebb_alloc((size_t)t->batch * sizeof *t->index);
    t->order = !t->o.in_order ? ebb_alloc((size_t)t->o.row_count * sizeof *t->order) : NULL;
    t->ordered = -1;
    return t->index == NULL || (t->order == NULL && !t->o.in_order) ? ebb_error_memory() : NULL;
}

static ebb_status set_up(ebb_trainer *t)
{
    const ebb_trainer_options *o = &t->o;
    ebb_trainer_facts *f = &t->facts;
    const bool is_resumed = o->resume != NULL;
    EBB_TRY(ebb_trainer_steps(&f->until, o));
    if (t->batch % ebb_group_ranks(t->group) != 0)
        return ebb_error(EBB_USAGE, "a batch of %lld rows is not divisible by %d processes",
                         (long long)t->batch, ebb_group_ranks(t->group));
    t->per_epoch = f->per_epoch = o->row_count / t->batch;
    f->left_out = o->row_count % t->batch;
    EBB_TRY(find_best_by(t));
    if (o->save_adapter != NULL)
        EBB_TRY(ebb_adapters_exist(t->program, o->save_adapter));
    if (o->save_model != NULL)
        EBB_TRY(ebb_weights_take(t->program, o->exported));
    EBB_TRY(ebb_trainer_resume(t));
    EBB_TRY(make_room(t));
    f->epoch = (f->steps + t->per_epoch - 1) / t->per_epoch;
    t->saved_at = is_resumed && o->checkpoint != NULL && strcmp(o->resume, o->checkpoint) == 0
                      ? f->steps
                      : -1;
    t->best_is_saved = isfinite(f->best) && is_there(o->save_model) && is_there(o->save_adapter) &&
                       is_there(o->save_ort); // by the run that is gone on with
    t->tokens_per_row = tokens_of(t->data, o->map);
    EBB_TRY(find_rate(t));
    EBB_TRY(ebb_trainer_agree(t));
    return ebb_logs_open(&t->logs, o->logs, o->evaluator, is_resumed ? f->steps : -1);
}

ebb_status ebb_trainer_new(ebb_trainer **trainer, ebb_program *program, ebb_data *data,
                           const ebb_trainer_options *options)
{
    EBB_NEED(trainer);
    EBB_NEED(program);
    EBB_NEED(data);
    EBB_NEED(options);
    *trainer = NULL;
    ebb_trainer_options own;
    EBB_TRY(ebb_trainer_take(&own, options));
    ebb_trainer *t = ebb_alloc(sizeof *t);
    EBB_GOT(t);
    *t = (ebb_trainer){.o = own, .program = program, .data = data, .seed = own.seed};
    t->batch = own.batch > 0 ? own.batch : EBB_USUAL_BATCH;
    t->group = program->group;
    t->loss_name = ebb_program_loss_name(program);
    t->facts = (ebb_trainer_facts){
        .loss = (double)NAN, .epoch_loss = (double)NAN, .rate = (double)NAN, .best = (double)NAN};
    ebb_status status = ebb_trainer_share(t);
    if (status == NULL)
        status = set_up(t);
    if (status == NULL)
        *trainer = t;
    else
        ebb_trainer_free(t);
    return status;
}

void ebb_trainer_free(ebb_trainer *t)
{
    if (t == NULL)
        return;
    ebb_logs_close(t->logs);
    ebb_free(t->order);
    ebb_free(t->index);
    ebb_free(t);
}

ebb_status ebb_output_check(const char *path)
{
    EBB_NEED(path);
    return ebb_sink_check(path);
}
