/* tally_merge.c: one tally of those of several processes. */
#include "api/tally.h"

enum { AT_ONCE = 16 }; /* classes or columns */

/* Adds the others' counts; rows: of each rank. */
static ebb_status merge_numbers(ebb_tally *t, ebb_group *group, int64_t rows[EBB_GROUP_MOST])
{
    struct numbers {
        int64_t counted, rows, errors, correct, near;
        double nll, squared, absolute;
    } all[EBB_GROUP_MOST], sum = {0};
    const struct numbers own = {t->counted, t->rows, t->errors,  t->correct,
                                t->near,    t->nll,  t->squared, t->absolute};
    EBB_TRY(ebb_group_all_gather(group, &own, all, sizeof own, "the counts of an evaluation"));
    for (int r = 0; r < ebb_group_ranks(group); r++) {
        rows[r] = all[r].rows;
        sum.counted += all[r].counted;
        sum.rows += all[r].rows;
        sum.errors += all[r].errors;
        sum.correct += all[r].correct;
        sum.near += all[r].near;
        sum.nll += all[r].nll;
        sum.squared += all[r].squared;
        sum.absolute += all[r].absolute;
    }
    t->counted = sum.counted;
    t->rows = sum.rows;
    t->errors = sum.errors;
    t->correct = sum.correct;
    t->near = sum.near;
    t->nll = sum.nll;
    t->squared = sum.squared;
    t->absolute = sum.absolute;
    return NULL;
}

static ebb_status merge_classes(ebb_tally_class *list, int64_t count, ebb_group *group)
{
    ebb_tally_class all[EBB_GROUP_MOST * AT_ONCE], own[AT_ONCE] = {{0}};
    memcpy(own, list, (size_t)count * sizeof *own);
    EBB_TRY(ebb_group_all_gather(group, own, all, sizeof own, "the classes of an evaluation"));
    for (int64_t i = 0; i < count; i++)
        for (int r = 0; r < ebb_group_ranks(group); r++) {
            const ebb_tally_class *c = &all[r * AT_ONCE + i];
            const ebb_tally_class none = {0};
            list[i] = r == 0 ? none : list[i];
            list[i].hits += c->hits;
            list[i].predicted += c->predicted;
            list[i].wanted += c->wanted;
        }
    return NULL;
}

/* Means and spreads of two sets of n and m numbers: Chan, Golub and LeVeque 1979. */
static void add_column(ebb_tally_column *a, int64_t n, const ebb_tally_column *b, int64_t m)
{
    const double apart = b->mean - a->mean, both = (double)(n + m);
    if (m == 0)
        return;
    a->spread += b->spread + apart * apart * (double)n * (double)m / both;
    a->mean += apart * (double)m / both;
    a->error += b->error;
}

static ebb_status merge_columns(ebb_tally_column *list, int64_t count, ebb_group *group,
                                const int64_t rows[EBB_GROUP_MOST])
{
    ebb_tally_column all[EBB_GROUP_MOST * AT_ONCE], own[AT_ONCE] = {{0}};
    memcpy(own, list, (size_t)count * sizeof *own);
    EBB_TRY(ebb_group_all_gather(group, own, all, sizeof own, "the columns of an evaluation"));
    for (int64_t i = 0; i < count; i++) {
        int64_t n = rows[0];
        list[i] = all[i];
        for (int r = 1; r < ebb_group_ranks(group); n += rows[r++])
            add_column(&list[i], n, &all[r * AT_ONCE + i], rows[r]);
    }
    return NULL;
}

ebb_status ebb_tally_merge(ebb_tally *t, ebb_group *group)
{
    int64_t rows[EBB_GROUP_MOST];
    EBB_TRY(merge_numbers(t, group, rows));
    for (int64_t at = 0; t->rank != 0 && at < t->width; at += AT_ONCE) {
        const int64_t count = t->width - at < AT_ONCE ? t->width - at : AT_ONCE;
        EBB_TRY(t->columns != NULL ? merge_columns(t->columns + at, count, group, rows)
                                   : merge_classes(t->classes + at, count, group));
    }
    return NULL;
}
