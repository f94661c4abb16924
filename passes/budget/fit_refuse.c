/* fit_refuse.c: a budget that cannot be met: the least that was reached, its price, and what pins it. */
#include <stdlib.h>

#include "passes/budget/fit.h"
#include "onnx/words/amount.h"

enum { PINNED = 4 };

static int largest_first(const void *a, const void *b)
{
    const ebb_memory_tensor *const *x = a, *const *y = b;
    if ((*x)->bytes != (*y)->bytes)
        return (*x)->bytes > (*y)->bytes ? -1 : 1;
    return (*x > *y) - (*x < *y);
}

ebb_status ebb_fit_pins(const char **text, const joint *j, ebb_graph *g,
                        const ebb_estimate *estimate)
{
    ebb_arena *scratch = j->e->scratch;
    ebb_memory m;
    size_t count = 0;
    uint64_t others = 0, throughout = 0;
    EBB_TRY(ebb_trial_memory(&m, scratch, g, estimate));
    const ebb_memory_tensor **pins =
        EBB_SCRATCH(j->e, const ebb_memory_tensor *, m.tensor_count + 1);
    EBB_GOT(pins);
    for (const ebb_memory_tensor *t = m.tensors; t != m.tensors + m.tensor_count; t++)
        if (t->birth == 0 && t->death + 1 >= m.positions)
            throughout += t->bytes;
        else if (t->birth <= m.peak_position && m.peak_position <= t->death)
            pins[count++] = t;
    if (count > 1)
        qsort(pins, count, sizeof *pins, largest_first);
    ebb_node fullest = EBB_NO_NODE;
    uint32_t at = 0;
    EBB_EACH_NODE(g, n)
        if (at++ == m.peak_position)
            fullest = n;
    *text = ebb_arena_printf(scratch, "; it is fullest at %s, with", ebb_node_label(g, fullest));
    for (size_t i = 0; i < count && *text != NULL; i++)
        if (i < PINNED && pins[i]->bytes >= m.peak_bytes / 100 && pins[i]->value.i != 0)
            *text =
                ebb_arena_printf(scratch, "%s '%s' (%s),", *text, ebb_value_name(g, pins[i]->value),
                                 ebb_bytes(pins[i]->bytes).text);
        else
            others += pins[i]->bytes;
    if (*text != NULL)
        *text = ebb_arena_printf(scratch, "%s other tensors (%s) and what is there throughout (%s)",
                                 *text, ebb_bytes(others).text, ebb_bytes(throughout).text);
    return *text != NULL ? NULL : ebb_error_memory();
}

/* Of the point's step. */
static ebb_status what_pins(const char **text, const joint *j, const choice *c)
{
    size_t copies;
    ebb_estimate estimate;
    ebb_report report = {.pass = j->e->pass->name};
    ebb_edit e = *j->e;
    e.g = c->v->model->graph;
    e.report = &report;
    EBB_TRY(ebb_remat_apply(&e, &c->v->trial.source, &c->point->schedule, &copies));
    (void)ebb_graph_sweep(e.g);
    EBB_TRY(ebb_trial_measure(&estimate, e.scratch, e.g, j->backend, UINT64_MAX));
    return ebb_fit_pins(text, j, e.g, &estimate);
}

/* To the byte, so that it can be given as it stands. */
static const char at_least[] = "give a budget of at least %llu (%s)%s";

ebb_status ebb_fit_refuse(const joint *j, uint64_t budget, const choice *least,
                          const ebb_fit_away *away)
{
    const char *or_rounding = j->allowed == EBB_EXACT ? ", or --allow rounding" : "", *pins;
    if (least == NULL)
        return ebb_error(EBB_NO_PLAN, "nothing in this step can be made smaller");
    if (away->least < least->bytes)
        return ebb_hint(
            ebb_error(
                EBB_NO_PLAN,
                "no plan keeps to %s: the least reached is %s, with what can be moved in other "
                "places, and %s without%s",
                ebb_bytes(budget).text, ebb_bytes(away->least).text, ebb_bytes(least->bytes).text,
                away->pins),
            at_least, (unsigned long long)away->least, ebb_bytes(away->least).text, or_rounding);
    EBB_TRY(what_pins(&pins, j, least));
    uint64_t floor = UINT64_MAX;
    for (size_t i = 0; i < j->variant_count; i++) {
        uint64_t f = ebb_remat_floor(&j->variants[i].trial.source.problem);
        floor = f < floor ? f : floor;
    }
    if (least->v->proven && j->variant_count == 1 && !j->before.estimate.runs)
        return ebb_hint(
            ebb_error(EBB_NO_PLAN,
                      "no plan keeps to %s, and none exists: the least that any order and any "
                      "recomputation can reach is %s%s",
                      ebb_bytes(budget).text, ebb_bytes(least->bytes).text, pins),
            at_least, (unsigned long long)least->bytes, ebb_bytes(least->bytes).text, "");
    return ebb_hint(
        ebb_error(
            EBB_NO_PLAN,
            "no plan keeps to %s: the least reached is %s, at %.2f times the step time, and no "
            "plan at all can be below %s%s",
            ebb_bytes(budget).text, ebb_bytes(least->bytes).text, ebb_fit_slower(j, least->ns),
            ebb_bytes(floor).text, pins),
        at_least, (unsigned long long)least->bytes, ebb_bytes(least->bytes).text, or_rounding);
}
