/* fit_refuse.c: a budget that cannot be met: the least that was reached, its price, and what pins it. */
#include <stdlib.h>

#include "passes/budget/fit.h"
#include "onnx/words/amount.h"

enum { PINNED = 4 };

typedef struct pin {
    uint64_t bytes;
    uint32_t value;
} pin;

static int largest_first(const void *a, const void *b)
{
    const pin *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

/* The largest tensors alive where the lowest schedule is fullest, as text. */
static const char *what_pins(const joint *j, const choice *c)
{
    const ebb_remat_source *source = &c->v->trial.source;
    const ebb_remat_problem *p = &source->problem;
    const ebb_remat_schedule *s = &c->point->schedule;
    const ebb_graph *g = c->v->model->graph;
    ebb_arena *scratch = j->e->scratch;
    ebb_remat_weight w;
    size_t count = 0;
    uint64_t others = 0;
    pin *pins = EBB_NEW(scratch, pin, (size_t)p->value_count + 1);
    if (pins == NULL || s->count == 0 || ebb_remat_weigh(&w, NULL, p, s, scratch) != NULL)
        return "";
    const bool *alive = ebb_remat_alive(p, s, w.peak_at, scratch);
    for (uint32_t v = 0; alive != NULL && v < p->value_count; v++)
        if (alive[v])
            pins[count++] = (pin){p->values[v].bytes, v};
    qsort(pins, count, sizeof *pins, largest_first);
    const char *text = ebb_arena_printf(scratch, "; it is fullest at %s, with",
                                        ebb_node_label(g, source->node[s->ops[w.peak_at]]));
    for (size_t i = 0; i < count && text != NULL; i++)
        if (i < PINNED && pins[i].bytes >= w.peak_bytes / 100)
            text = ebb_arena_printf(scratch, "%s '%s' (%s),", text,
                                    ebb_value_name(g, source->value[pins[i].value]),
                                    ebb_bytes(pins[i].bytes).text);
        else
            others += pins[i].bytes;
    if (text != NULL)
        text = ebb_arena_printf(scratch, "%s other tensors (%s) and what is there throughout (%s)",
                                text, ebb_bytes(others).text, ebb_bytes(p->base_bytes).text);
    return text != NULL ? text : "";
}

/* To the byte, so that it can be given as it stands. */
static const char at_least[] = "give a budget of at least %llu (%s)%s";

ebb_status ebb_fit_refuse(const joint *j, uint64_t budget, const choice *least, uint64_t moved)
{
    if (least == NULL)
        return ebb_error(EBB_NO_PLAN, "nothing in this step can be made smaller");
    if (moved < least->bytes)
        return ebb_hint(
            ebb_error(
                EBB_NO_PLAN,
                "no plan keeps to %s: the least reached is %s, with what can be moved in other "
                "places, and %s without",
                ebb_bytes(budget).text, ebb_bytes(moved).text, ebb_bytes(least->bytes).text),
            at_least, (unsigned long long)moved, ebb_bytes(moved).text, "");
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
                      ebb_bytes(budget).text, ebb_bytes(least->bytes).text, what_pins(j, least)),
            at_least, (unsigned long long)least->bytes, ebb_bytes(least->bytes).text, "");
    return ebb_hint(
        ebb_error(
            EBB_NO_PLAN,
            "no plan keeps to %s: the least reached is %s, at %.2f times the step time, and no "
            "plan at all can be below %s%s",
            ebb_bytes(budget).text, ebb_bytes(least->bytes).text, ebb_fit_slower(j, least->ns),
            ebb_bytes(floor).text, what_pins(j, least)),
        at_least, (unsigned long long)least->bytes, ebb_bytes(least->bytes).text,
        j->allowed == EBB_EXACT ? ", or --allow rounding" : "");
}
