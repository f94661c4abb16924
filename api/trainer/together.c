/* together.c: a training in several processes: that all of them do the same, and who writes. */
#include "api/trainer/trainer.h"

#include "exec/data/checksum.h"
#include "exec/data/shards.h"
#include "exec/run/program.h"
#include "onnx/file/file.h"

static void add_tensors(ebb_checksum *c, const ebb_graph *g)
{
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_tensor *t = ebb_value_of(g, g->initializers[i])->tensor;
        if (t != NULL && t->data != NULL)
            ebb_checksum_add(c, t->data, t->bytes);
    }
}

static ebb_status add_nodes(ebb_checksum *c, const ebb_graph *g)
{
    char *text = NULL;
    EBB_TRY(ebb_text_print(&text, g));
    ebb_checksum_add(c, text, strlen(text));
    ebb_free(text);
    return NULL;
}

ebb_status ebb_exported_agree(ebb_group *group, const ebb_graph *g)
{
    ebb_checksum c;
    ebb_checksum_begin(&c);
    EBB_TRY(add_nodes(&c, g));
    add_tensors(&c, g);
    return ebb_group_agree(group, "the model (checksum of its nodes and weights)",
                           ebb_checksum_end(&c));
}

/* Of the nodes, and of all that is known before the first batch. */
static ebb_status sum_of(ebb_program *p, uint64_t *sum)
{
    const ebb_graph *g = p->plan.g;
    ebb_checksum c;
    ebb_checksum_begin(&c);
    if (p->model->initialization != NULL)
        add_tensors(&c, p->model->initialization); // what parts are cut of
    EBB_TRY(add_nodes(&c, g));
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_named t;
        size_t bytes = 0;
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        if (info->dead || !ebb_type_bytes(info->type, &bytes) || bytes == 0 ||
            ebb_is_shard(p, g->initializers[i]))
            continue;
        EBB_TRY(ebb_program_get(p, ebb_value_name(g, g->initializers[i]), &t));
        ebb_checksum_add(&c, t.data, bytes);
    }
    *sum = ebb_checksum_end(&c);
    return NULL;
}

static uint64_t sum_of_options(const ebb_trainer *t)
{
    const ebb_trainer_options *o = &t->o;
    const int64_t numbers[] = {t->facts.steps,       t->facts.until,      t->batch,
                               o->row_count,         (int64_t)t->seed,    o->in_order,
                               o->eval_every,        o->patience,         o->repeat_batch,
                               o->goes_on_after_nan, o->evaluator != NULL};
    ebb_checksum c;
    ebb_checksum_begin(&c);
    ebb_checksum_add(&c, numbers, sizeof numbers);
    ebb_checksum_add(&c, t->facts.best_by, strlen(t->facts.best_by));
    return ebb_checksum_end(&c);
}

static void add_batch(ebb_checksum *c, const ebb_batch *batch)
{
    for (size_t k = 0; k < batch->count; k++) {
        const ebb_named *b = &batch->tensors[k];
        int64_t count = 1;
        for (int i = 0; i < b->rank; i++)
            count *= b->dims[i];
        ebb_checksum_add(c, b->data, (size_t)count * ebb_dtype_bits(b->dtype) / 8);
    }
}

/* Each process reads its own rows alone: so of some that lie apart all read the same once. */
ebb_status ebb_data_agree(ebb_group *group, ebb_data *data, const char *const *map,
                          const ebb_some_rows *of)
{
    enum { MANY = 16 };
    const size_t each = of->at_once < MANY ? (size_t)of->at_once : MANY;
    int64_t rows[MANY], next = 0;
    ebb_batch batch;
    ebb_checksum c;
    ebb_checksum_begin(&c);
    while (next < MANY) {
        for (size_t k = 0; k < each; k++, next++) {
            const int64_t row = next % MANY * (of->count - 1) / (MANY - 1);
            rows[k] = of->rows != NULL ? of->rows[row] : row;
        }
        EBB_TRY(ebb_data_rows(data, rows, each, map, &batch));
        add_batch(&c, &batch);
    }
    return ebb_group_agree(group, "the data (checksum of 16 rows or more)", ebb_checksum_end(&c));
}

ebb_status ebb_trainer_agree(ebb_trainer *t)
{
    uint64_t sum;
    if (t->group == NULL)
        return NULL;
    EBB_TRY(sum_of(t->program, &sum));
    EBB_TRY(ebb_group_agree(t->group, "the step (checksum of its nodes and weights)", sum));
    EBB_TRY(ebb_group_agree(t->group, "the training (checksum of its rows and options)",
                            sum_of_options(t)));
    ebb_data_epoch(t->data, t->seed, 0);
    EBB_TRY(ebb_data_agree(
        t->group, t->data, t->o.map,
        &(ebb_some_rows){t->o.rows, t->o.row_count, t->batch / ebb_group_ranks(t->group)}));
    return t->o.evaluator != NULL ? ebb_evaluator_agree(t->o.evaluator, t->group) : NULL;
}

ebb_status ebb_trainer_ask_all(bool *all, ebb_trainer *t)
{
    int64_t least = *all;
    if (t->group == NULL)
        return NULL;
    EBB_TRY(ebb_group_least(t->group, "the end of a step", &least));
    *all = least != 0;
    return NULL;
}

ebb_status ebb_trainer_follow(bool *due, ebb_trainer *t)
{
    if (!t->gives)
        return NULL;
    *due = *due || ebb_group_rank(t->group) > 0;
    return ebb_trainer_ask_all(due, t);
}

ebb_status ebb_trainer_share(ebb_trainer *t)
{
    ebb_trainer_options *o = &t->o;
    const bool parts = ebb_has_shards(t->program, EBB_ROLE_NONE);
    if (parts && o->save_ort != NULL)
        return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                  "%s: the step's states are in parts, which "
                                  "training artifacts have no words for",
                                  o->save_ort),
                        "train without pass shard, or save a checkpoint");
    t->gives = parts && o->checkpoint != NULL;
    t->stores = ebb_has_shards(t->program, EBB_ROLE_PARAMETER) && o->save_model != NULL;
    if (ebb_group_rank(t->group) == 0)
        return NULL;
    o->checkpoint = o->save_model = o->save_adapter = o->save_ort = NULL;
    o->logs = NULL;
    return NULL;
}
