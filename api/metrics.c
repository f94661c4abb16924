/* metrics.c: the loss and the metrics of an evaluation, batch by batch.
 *
 * A loss says what its predictions and targets are, so each has a tally (tally.h) of that kind. The
 * mean of a loss over all rows is that of its batches, each with the weight that it was divided by.
 */
#include "api/api.h"

#include <math.h>

#include "api/tally.h"

typedef struct part { /* a loss with what is counted for it */
    ebb_loss_facts *facts;
    ebb_tally tally;
    double sum, weight; /* of the loss times its weights; of those */
    struct term {
        double sum, weight;
    } last;     /* those of the last batch */
    double own; /* weights of the batches that were counted here */
    bool fits;  /* so far each batch could be counted */
} part;

typedef struct wanted {        /* a metric of a part, or its loss */
    const ebb_metric_row *row; /* NULL: the loss */
    size_t part;
    const char *name;
} wanted;

struct ebb_metrics {
    ebb_arena arena;
    part *parts;
    size_t part_count;
    const ebb_metric_row **named; /* NULL-terminated; none: the usual ones */
    wanted *list;
    size_t count, capacity;
    bool settled; /* the list is complete: a batch has been seen */
};

/* ---- names ---- */

const char *ebb_metric_name(size_t index)
{
    size_t count = 0;
    while (ebb_metric_rows[count].name != NULL)
        count++;
    return index < count ? ebb_metric_rows[index].name : NULL;
}

static const ebb_metric_row *find_row(const char *name)
{
    const ebb_metric_row *row = ebb_metric_rows;
    while (row->name != NULL && strcmp(row->name, name) != 0)
        row++;
    return row->name != NULL ? row : NULL;
}

static ebb_status unknown_metric(ebb_metrics *m, const char *name)
{
    const char *names[32], *all = "";
    size_t count = 0;
    for (; count < 32 && ebb_metric_name(count) != NULL; count++) {
        names[count] = ebb_metric_name(count);
        all = ebb_arena_printf(&m->arena, "%s%s%s", all, count > 0 ? ", " : "", names[count]);
        EBB_GOT(all);
    }
    const char *near = ebb_nearest(name, names, count);
    ebb_status status = ebb_error(EBB_USAGE, "there is no metric '%s': %s", name, all);
    return near != NULL ? ebb_hint(status, "did you mean '%s'?", near) : status;
}

static bool suits(const ebb_metric_row *row, const part *p)
{
    return (row->fits & (unsigned)p->tally.task) != 0;
}

static ebb_status read_names(ebb_metrics *m, const char *const *names)
{
    size_t count = 0;
    while (names != NULL && names[count] != NULL)
        count++;
    m->named = EBB_NEW(&m->arena, const ebb_metric_row *, count + 1);
    EBB_GOT(m->named);
    for (size_t i = 0; i < count; i++) {
        const ebb_metric_row *row = find_row(names[i]);
        bool any = false;
        if (row == NULL)
            return unknown_metric(m, names[i]);
        for (size_t k = 0; k < i; k++)
            if (m->named[k] == row)
                return ebb_error(EBB_USAGE, "metric '%s' is asked for twice", names[i]);
        for (size_t k = 0; k < m->part_count; k++) {
            any = any || suits(row, &m->parts[k]);
            m->parts[k].tally.needs_likelihood |= row->needs_likelihood;
        }
        if (!any)
            return ebb_error(EBB_USAGE,
                             "metric '%s' does not fit the loss%s%s: it needs predictions and "
                             "targets of another kind",
                             names[i], m->part_count > 0 ? " " : "",
                             m->part_count > 0 ? m->parts[0].facts->kind : "");
        m->named[i] = row;
    }
    return NULL;
}

/* ---- which ---- */

static ebb_status add(ebb_metrics *m, const ebb_metric_row *row, size_t of, bool several)
{
    const char *name = row != NULL ? row->name : "loss";
    if (several)
        name = ebb_arena_printf(&m->arena, "%s/%s", name, m->parts[of].facts->target);
    EBB_GOT(name && ebb_arena_grow(&m->arena, &m->list, m->count, &m->capacity, sizeof *m->list));
    m->list[m->count++] = (wanted){row, of, name};
    return NULL;
}

static bool is_wanted(const ebb_metrics *m, const ebb_metric_row *row, const part *p)
{
    if (!suits(row, p) || !p->fits)
        return false;
    for (size_t i = 0; m->named[i] != NULL; i++)
        if (m->named[i] == row)
            return true;
    return m->named[0] == NULL && row->is_usual != NULL && row->is_usual(&p->tally);
}

/* After the first batch, which tells ranks and numbers of classes. */
static ebb_status settle(ebb_metrics *m)
{
    for (size_t k = 0; m->part_count > 1 && k < m->part_count; k++)
        EBB_TRY(add(m, NULL, k, true));
    for (const ebb_metric_row *row = ebb_metric_rows; row->name != NULL; row++) {
        size_t users = 0;
        for (size_t k = 0; k < m->part_count; k++)
            users += is_wanted(m, row, &m->parts[k]);
        for (size_t k = 0; k < m->part_count; k++)
            if (is_wanted(m, row, &m->parts[k]))
                EBB_TRY(add(m, row, k, users > 1));
    }
    for (size_t i = 0; m->named[i] != NULL; i++) {
        bool found = false;
        for (size_t k = 0; k < m->count; k++)
            found = found || m->list[k].row == m->named[i];
        if (!found)
            return ebb_error(EBB_USAGE,
                             "metric '%s': the types or sizes of the predictions and of the target "
                             "do not go together",
                             m->named[i]->name);
    }
    m->settled = true;
    return NULL;
}

/* ---- making ---- */

static bool is_of_lists(const ebb_loss_kind *kind)
{
    return kind != NULL && kind->task == EBB_TASK_LISTS;
}

static ebb_status make(ebb_metrics *m, const char *const *losses, const char *const *names)
{
    size_t count = 0;
    while (losses != NULL && losses[count] != NULL)
        count++;
    m->parts = EBB_NEW(&m->arena, part, count + 1);
    EBB_GOT(m->parts);
    for (size_t k = 0; k < count; k++) {
        part *p = &m->parts[k];
        EBB_TRY(ebb_loss_facts_of(&p->facts, losses[k]));
        m->part_count++;
        const ebb_loss_kind *kind = ebb_loss_kind_find(p->facts->kind);
        p->fits = true;
        const bool told = kind == NULL && p->facts->output != NULL; // what it was made of
        p->tally = (ebb_tally){.task = kind != NULL ? kind->task
                                       : told       ? EBB_TASK_CLASSES_OR_NUMBERS
                                                    : EBB_TASK_OTHER,
                               .axis = is_of_lists(kind) ? p->facts->time_axis : p->facts->axis,
                               .blank = p->facts->blank,
                               .ignore_index = p->facts->ignore_index,
                               .needs_likelihood = names == NULL || names[0] == NULL};
    }
    EBB_TRY(read_names(m, names));
    return add(m, NULL, count, false);
}

ebb_status ebb_metrics_new(ebb_metrics **metrics, const char *const *losses,
                           const char *const *names)
{
    EBB_NEED(metrics);
    EBB_NEED(losses);
    ebb_metrics *m = ebb_alloc(sizeof *m);
    *metrics = NULL;
    EBB_GOT(m);
    *m = (ebb_metrics){0};
    ebb_status status = make(m, losses, names);
    if (status == NULL)
        *metrics = m;
    else
        ebb_metrics_free(m);
    return status;
}

void ebb_metrics_free(ebb_metrics *m)
{
    for (size_t k = 0; m != NULL && k < m->part_count; k++) {
        ebb_release(m->parts[k].facts);
        ebb_tally_fini(&m->parts[k].tally);
    }
    if (m != NULL)
        ebb_arena_fini(&m->arena);
    ebb_release(m);
}

void ebb_metrics_clear(ebb_metrics *m)
{
    for (size_t k = 0; k < m->part_count; k++) {
        part *p = &m->parts[k];
        const ebb_tally kept = p->tally;
        ebb_tally_fini(&p->tally);
        p->tally = (ebb_tally){.task = kept.task,
                               .axis = kept.axis,
                               .blank = kept.blank,
                               .ignore_index = kept.ignore_index,
                               .needs_likelihood = kept.needs_likelihood};
        p->sum = p->weight = p->own = 0;
        p->fits = true;
    }
    m->count = 1; // the loss
    m->settled = false;
}

/* ---- a batch ---- */

/* Not one that was there before. */
static bool is_made(const ebb_loss_facts *l)
{
    return l->name == NULL || l->weight != 1;
}

/* A graph output that the loss pass made: the losses stand at the end, one behind the other, and
 * where there are several, their sum. */
static size_t first_loss_output(const ebb_metrics *m, const ebb_program *p)
{
    const size_t count = ebb_program_output_count(p);
    size_t made = m->part_count > 1;
    for (size_t k = 0; k < m->part_count; k++)
        made += is_made(m->parts[k].facts);
    return made < count ? count - made : 0;
}

static const char *loss_output(const ebb_metrics *m, const ebb_program *p, size_t part_index)
{
    size_t at = first_loss_output(m, p);
    if (!is_made(m->parts[part_index].facts))
        return m->parts[part_index].facts->name;
    for (size_t k = 0; k < part_index; k++)
        at += is_made(m->parts[k].facts);
    return ebb_program_output_name(p, at);
}

/* What the model predicts: the output that the loss reads. data NULL: there is none of floats. */
static ebb_status find_scores(const ebb_metrics *m, ebb_program *p, const ebb_loss_facts *l,
                              ebb_named *out)
{
    const char *loss = ebb_program_loss_name(p);
    const size_t end = first_loss_output(m, p);
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < end; i++) {
        const char *name = ebb_program_output_name(p, i);
        if (l->output != NULL ? strcmp(name, l->output) != 0
                              : loss == NULL || strcmp(name, loss) == 0)
            continue;
        EBB_TRY(ebb_program_get(p, name, out));
        if (ebb_dtype_is_float((ebb_dtype)out->dtype))
            return NULL;
    }
    out->data = NULL;
    return NULL;
}

static ebb_tensor tensor_of(const ebb_named *n)
{
    return (ebb_tensor){.type = ebb_type_tensor((ebb_dtype)n->dtype, n->rank, n->dims),
                        .data = n->data};
}

static ebb_status count_batch(ebb_metrics *m, part *p, ebb_program *program, const ebb_batch *batch)
{
    ebb_named scores;
    const ebb_named *target = ebb_batch_find(batch, p->facts->target);
    bool fits = false;
    EBB_TRY(find_scores(m, program, p->facts, &scores));
    if (p->fits && target != NULL && scores.data != NULL) {
        const ebb_named *steps =
            p->facts->lengths != NULL ? ebb_batch_find(batch, p->facts->lengths) : NULL;
        const ebb_tensor x = tensor_of(&scores), y = tensor_of(target);
        const ebb_tensor lengths = steps != NULL ? tensor_of(steps) : (ebb_tensor){0};
        EBB_TRY(ebb_tally_take(&p->tally, &x, &y, steps != NULL ? &lengths : NULL, &fits));
    }
    p->fits = fits;
    return NULL;
}

static int64_t rows_of(const ebb_batch *batch, const part *p)
{
    const ebb_named *n = ebb_batch_find(batch, p->facts->target);
    n = n == NULL && batch->count > 0 ? &batch->tensors[0] : n;
    return n != NULL && n->rank > 0 ? n->dims[0] : 1;
}

/* These are means over targets, others over elements, of which rows have the same number. */
static bool is_focal(const part *p)
{
    return strcmp(p->facts->kind, "focal") == 0; // whose weights of classes are not divided by
}

static bool counts_targets(const part *p)
{
    return p->fits && p->tally.task == EBB_TASK_CLASSES &&
           (strcmp(p->facts->kind, "cross-entropy") == 0 || is_focal(p));
}

/* What means are divided by: rows of this batch; or targets, or weights of their classes, so far. */
static double weight_of(const part *p, const ebb_batch *batch)
{
    const ebb_loss_facts *l = p->facts;
    double sum = 0;
    if (!counts_targets(p))
        return (double)rows_of(batch, p);
    if (l->class_weights == NULL || l->is_sum || is_focal(p))
        return (double)p->tally.counted;
    for (int64_t c = 0; c < p->tally.width && (size_t)c < l->class_weight_count; c++)
        sum += l->class_weights[c] * (double)p->tally.classes[c].wanted;
    return sum;
}

static ebb_status take_loss(ebb_metrics *m, size_t k, double weight, ebb_program *program)
{
    part *p = &m->parts[k];
    ebb_named value;
    const char *name = loss_output(m, program, k);
    p->last = (struct term){0};
    if (name == NULL || weight <= 0) // a batch without a target that counts has no mean
        return NULL;
    EBB_TRY(ebb_program_get(program, name, &value));
    p->last = (struct term){ebb_element(&value, 0) * (p->facts->is_sum ? 1 : weight), weight};
    p->own += weight;
    return NULL;
}

static void add_term(part *p, struct term t)
{
    p->sum += t.weight > 0 ? t.sum : 0;
    p->weight += t.weight;
}

static ebb_status take(ebb_metrics *m, ebb_program *program, const ebb_batch *batch)
{
    for (size_t k = 0; k < m->part_count; k++) {
        part *p = &m->parts[k];
        EBB_TRY(count_batch(m, p, program, batch));
        const double all = weight_of(p, batch), now = counts_targets(p) ? all - p->own : all;
        EBB_TRY(take_loss(m, k, now, program));
    }
    return m->settled ? NULL : settle(m);
}

ebb_status ebb_metrics_take(ebb_metrics *metrics, ebb_program *program, const ebb_batch *batch)
{
    EBB_NEED(metrics);
    EBB_NEED(program);
    EBB_NEED(batch);
    EBB_TRY(take(metrics, program, batch));
    for (size_t k = 0; k < metrics->part_count; k++)
        add_term(&metrics->parts[k], metrics->parts[k].last);
    return NULL;
}

/* ---- by several processes ---- */

ebb_status ebb_metrics_turn(ebb_metrics *m, ebb_group *group, ebb_program *program,
                            const ebb_batch *batch)
{
    struct term all[EBB_GROUP_MOST];
    if (batch != NULL)
        EBB_TRY(take(m, program, batch));
    for (size_t k = 0; k < m->part_count; k++) {
        part *p = &m->parts[k];
        const struct term own = batch != NULL ? p->last : (struct term){0};
        EBB_TRY(ebb_group_all_gather(group, &own, all, sizeof own, "the loss of an evaluation"));
        for (int r = 0; r < ebb_group_ranks(group); r++)
            add_term(p, all[r]);
    }
    return NULL;
}

ebb_status ebb_metrics_merge(ebb_metrics *m, ebb_group *group)
{
    for (size_t k = 0; k < m->part_count; k++) {
        int64_t fits = m->parts[k].fits;
        EBB_TRY(ebb_group_least(group, "the metrics of an evaluation", &fits));
        m->parts[k].fits = fits != 0;
        EBB_TRY(ebb_tally_merge(&m->parts[k].tally, group));
    }
    return NULL;
}

/* ---- the end ---- */

size_t ebb_metrics_count(const ebb_metrics *m)
{
    return m->count;
}

static double mean_loss(const part *p)
{
    return p->weight > 0 ? p->sum / p->weight : (double)NAN;
}

ebb_metric ebb_metrics_at(const ebb_metrics *m, size_t index)
{
    const wanted *w = &m->list[index];
    ebb_metric metric = {.name = w->name};
    if (w->row != NULL) {
        const part *p = &m->parts[w->part];
        metric.value = p->fits ? w->row->value(&p->tally) : (double)NAN;
        metric.higher_is_better = !w->row->lower_is_better;
        metric.counted = p->tally.counted;
        return metric;
    }
    for (size_t k = 0; k < m->part_count; k++)
        if (k == w->part || w->part == m->part_count) {
            metric.value += mean_loss(&m->parts[k]);
            if (metric.counted == 0)
                metric.counted = counts_targets(&m->parts[k]) ? m->parts[k].tally.counted
                                                              : (int64_t)m->parts[k].weight;
        }
    return metric;
}
