/* dtr_price.c: what it costs to miss a value. The method is in dtr.c.
 */
#include <math.h>

#include "passes/budget/planners/dtr/dtr.h"

typedef ebb_dtr_walk walk;

/* ---- what is known of a value ---- */

uint32_t ebb_dtr_next_use(const walk *w, uint32_t v) /* a list position; UINT32_MAX: none */
{
    const ebb_remat_value *value = &w->p->values[v];
    if (w->next[v] < value->reader_count)
        return value->readers[w->next[v]];
    return value->stays ? w->p->op_count : UINT32_MAX;
}

static bool dtr_repeatable(const walk *w, uint32_t u)
{
    const ebb_remat_op *op = &w->p->ops[u];
    return !op->once && (op->before == EBB_REMAT_NONE || !w->done[op->before]);
}

bool ebb_dtr_can_be_made(const walk *w, uint32_t v)
{
    uint32_t u = w->p->values[v].op;
    if (u == EBB_REMAT_NONE || !dtr_repeatable(w, u))
        return false;
    const ebb_remat_op *op = &w->p->ops[u];
    for (uint32_t k = 0; k < op->in_count; k++)
        if (w->lost[op->in[k]])
            return false;
    return true;
}

/* ---- what making something again would need ---- */

bool ebb_dtr_is_needed(const walk *w, uint32_t absent)
{
    return ebb_dtr_next_use(w, absent) != UINT32_MAX || w->need[absent] > 0;
}

void ebb_dtr_count_need(walk *w, uint32_t v, bool needed)
{
    uint32_t top = 0;
    w->queue[top++] = v;
    w->counted[v] = needed;
    while (top > 0) {
        const ebb_remat_op *op = &w->p->ops[w->p->values[w->queue[--top]].op];
        for (uint32_t k = 0; k < op->in_count; k++) {
            uint32_t in = op->in[k];
            w->need[in] += needed ? 1 : UINT32_MAX;
            if (w->resident[in] || w->counted[in] == needed || ebb_dtr_is_needed(w, in) != needed ||
                w->p->values[in].op == EBB_REMAT_NONE)
                continue;
            w->counted[in] = needed;
            w->queue[top++] = in;
        }
    }
}

bool ebb_dtr_supports(walk *w, uint32_t v)
{
    uint32_t head = 0, tail = 0;
    w->stamp++;
    w->queue[tail++] = v;
    while (head < tail && tail < EBB_DTR_NEAR) {
        const ebb_remat_value *value = &w->p->values[w->queue[head++]];
        for (uint32_t r = 0; r < value->reader_count; r++) {
            const ebb_remat_op *op = &w->p->ops[value->readers[r]];
            if (!w->done[value->readers[r]] || !dtr_repeatable(w, value->readers[r]))
                continue;
            for (uint32_t k = 0; k < op->out_count; k++) {
                uint32_t out = op->out[k];
                if (w->mark[out] == w->stamp)
                    continue;
                w->mark[out] = w->stamp;
                if (w->resident[out] && ebb_dtr_next_use(w, out) != UINT32_MAX)
                    return true;
                if (!w->resident[out] && tail < EBB_DTR_NEAR)
                    w->queue[tail++] = out;
            }
        }
    }
    w->evaluations++;
    return false;
}

/* ---- what is evicted, as components ---- */

static uint32_t root_of(walk *w, uint32_t node)
{
    while (w->parent[node] != node) {
        w->parent[node] = w->parent[w->parent[node]];
        node = w->parent[node];
    }
    return node;
}

static void join(walk *w, uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0)
        return;
    a = root_of(w, a - 1);
    b = root_of(w, b - 1);
    if (a == b)
        return;
    w->parent[b] = a;
    w->set_cost[a] += w->set_cost[b];
}

void ebb_dtr_goes_absent(walk *w, uint32_t u) /* an output of u went */
{
    if (w->set_of[u] != 0)
        return;
    w->parent[w->set_count] = w->set_count;
    w->set_cost[w->set_count] = w->p->ops[u].cost_ns;
    w->set_of[u] = ++w->set_count;
}

void ebb_dtr_comes_back(walk *w, uint32_t u) /* u was executed; its set keeps its other members */
{
    if (w->set_of[u] == 0)
        return;
    w->set_cost[root_of(w, w->set_of[u] - 1)] -= w->p->ops[u].cost_ns;
    w->set_of[u] = 0;
}

static bool waits(const walk *w, uint32_t u) /* to be executed again for something needed */
{
    const ebb_remat_op *op = &w->p->ops[u];
    for (uint32_t k = 0; k < op->out_count; k++)
        if (w->counted[op->out[k]])
            return true;
    return false;
}

/* Operators next to v that would have to run with it, or wait for it: evicted makers of its
 * operator's inputs, and operators which read it and have an evicted output. */
void ebb_dtr_join_absent(walk *w, uint32_t v)
{
    const ebb_remat_value *value = &w->p->values[v];
    const ebb_remat_op *op = &w->p->ops[value->op];
    for (uint32_t k = 0; k < op->in_count; k++)
        if (!w->resident[op->in[k]] && w->p->values[op->in[k]].op != EBB_REMAT_NONE)
            join(w, w->set_of[value->op], w->set_of[w->p->values[op->in[k]].op]);
    for (uint32_t r = 0; r < value->reader_count; r++)
        if (waits(w, value->readers[r]))
            join(w, w->set_of[value->op], w->set_of[value->readers[r]]);
}

static double components_around(walk *w, uint32_t v)
{
    enum { MOST = 16 };
    const ebb_remat_value *value = &w->p->values[v];
    const ebb_remat_op *op = &w->p->ops[value->op];
    uint32_t roots[MOST], count = 0;
    double cost = 0;
    for (uint32_t k = 0; k < op->in_count + value->reader_count && count < MOST; k++) {
        uint32_t u = k >= op->in_count        ? value->readers[k - op->in_count]
                     : w->resident[op->in[k]] ? EBB_REMAT_NONE
                                              : w->p->values[op->in[k]].op;
        if (u == EBB_REMAT_NONE || w->set_of[u] == 0 || (k >= op->in_count && !waits(w, u)))
            continue;
        uint32_t root = root_of(w, w->set_of[u] - 1);
        bool new = true;
        for (uint32_t i = 0; i < count; i++)
            new = new &&roots[i] != root;
        if (!new)
            continue;
        roots[count++] = root;
        cost += w->set_cost[root];
    }
    return cost > 0 ? cost : 0;
}

/* ---- h ---- */

static double ancestors_of(walk *w, uint32_t v)
{
    double cost = 0;
    uint32_t head = 0, tail = 0;
    w->stamp++;
    w->queue[tail++] = v;
    while (head < tail) {
        const ebb_remat_op *op = &w->p->ops[w->p->values[w->queue[head++]].op];
        for (uint32_t k = 0; k < op->in_count && tail < EBB_DTR_NEAR; k++) {
            uint32_t in = op->in[k];
            if (w->resident[in] || w->mark[in] == w->stamp || w->p->values[in].op == EBB_REMAT_NONE)
                continue;
            w->mark[in] = w->stamp;
            w->queue[tail++] = in;
            cost += w->p->ops[w->p->values[in].op].cost_ns;
        }
        w->evaluations++;
    }
    return cost;
}

static double needed_descendants_of(walk *w, uint32_t v)
{
    double cost = 0;
    uint32_t head = 0, tail = 0;
    w->stamp++;
    w->queue[tail++] = v;
    while (head < tail) {
        const ebb_remat_value *value = &w->p->values[w->queue[head++]];
        for (uint32_t r = 0; r < value->reader_count; r++) {
            const ebb_remat_op *op = &w->p->ops[value->readers[r]];
            if (!w->done[value->readers[r]])
                continue;
            for (uint32_t k = 0; k < op->out_count && tail < EBB_DTR_NEAR; k++) {
                uint32_t out = op->out[k];
                if (w->resident[out] || w->mark[out] == w->stamp)
                    continue;
                w->mark[out] = w->stamp;
                w->queue[tail++] = out;
                if (ebb_dtr_next_use(w, out) != UINT32_MAX)
                    cost += op->cost_ns;
            }
        }
        w->evaluations++;
    }
    return cost;
}

/* Of a value that the list does not read again: when what is made from it is read. */
static uint32_t next_use_below(const walk *w, uint32_t v)
{
    const ebb_remat_value *value = &w->p->values[v];
    uint32_t soonest = ebb_dtr_next_use(w, v);
    for (uint32_t r = 0; r < value->reader_count && soonest == UINT32_MAX; r++) {
        const ebb_remat_op *op = &w->p->ops[value->readers[r]];
        for (uint32_t k = 0; k < op->out_count; k++) {
            uint32_t use = w->resident[op->out[k]] ? UINT32_MAX : ebb_dtr_next_use(w, op->out[k]);
            soonest = use < soonest ? use : soonest;
        }
    }
    return soonest;
}

double ebb_dtr_price(walk *w, uint32_t v)
{
    const ebb_remat_value *value = &w->p->values[v];
    w->evaluations++;
    if (w->pins[v] != 0 || value->bytes == 0)
        return (double)INFINITY;
    if (!ebb_dtr_can_be_made(w, v)) {
        if (ebb_dtr_next_use(w, v) != UINT32_MAX)
            return (double)INFINITY;
        if (w->need[v] > 0)
            return (double)INFINITY;
        // Without it, what was made from it can no longer be evicted: a last resort.
        return ebb_dtr_supports(w, v) ? 1e200 / (double)value->bytes : -1;
    }
    double cost = w->p->ops[value->op].cost_ns;
    switch (w->how.around) {
    case EBB_DTR_COMPONENTS:
        cost += components_around(w, v);
        break;
    case EBB_DTR_EXACTLY:
        cost += ancestors_of(w, v) + needed_descendants_of(w, v);
        break;
    case EBB_DTR_ANCESTORS:
        cost += ancestors_of(w, v);
        break;
    case EBB_DTR_ITSELF:
        break;
    }
    double time = w->now - w->used[v];
    if (w->how.time == EBB_DTR_UNTIL_NEXT_USE) {
        uint32_t use = next_use_below(w, v);
        time = use == UINT32_MAX ? w->starts[w->p->op_count] : w->starts[use] - w->starts[w->at];
    }
    return (cost + 1) / ((double)value->bytes * (time + 1));
}
