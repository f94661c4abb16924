/* order_weigh.c: one order weighed, by the rules of weigh.c, without a repeat and without checks:
 * thousands of times in a search. And the two moves that take all operators at once.
 */
#include <string.h>

#include "passes/budget/planners/order/order.h"

enum { TO_THE_END = UINT32_MAX };

/* ---- who must run before whom ---- */

/* Calls out each pair (first, second), repeats included, that the readers and `before` ask for. */
static void each_pair(const ebb_remat_problem *p, void (*pair)(ebb_order *, uint32_t, uint32_t),
                      ebb_order *o)
{
    for (uint32_t v = 0; v < p->value_count; v++) {
        const ebb_remat_value *value = &p->values[v];
        for (uint32_t k = 0; value->op != EBB_REMAT_NONE && k < value->reader_count; k++)
            if (value->readers[k] != value->op)
                pair(o, value->op, value->readers[k]);
    }
    for (uint32_t u = 0; u < p->op_count; u++) {
        const ebb_remat_op *op = &p->ops[u];
        if (op->before_count == 0 && op->before != EBB_REMAT_NONE && op->before != u)
            pair(o, u, op->before);
        for (uint32_t k = 0; k < op->before_count; k++)
            pair(o, u, op->befores[k]);
    }
}

static void count_pair(ebb_order *o, uint32_t first, uint32_t second)
{
    o->succ_from[first + 1]++;
    o->pred_from[second + 1]++;
}

static void put_pair(ebb_order *o, uint32_t first, uint32_t second)
{
    o->succ[o->anchor[first]++] = second;
    o->pred[o->bucket[second]++] = first;
}

static ebb_status find_pairs(ebb_order *o)
{
    o->pred_from = EBB_NEW(o->arena, uint32_t, (size_t)o->n + 2);
    o->succ_from = EBB_NEW(o->arena, uint32_t, (size_t)o->n + 2);
    EBB_GOT(o->pred_from && o->succ_from);
    size_t pairs = o->n;
    for (uint32_t v = 0; v < o->p->value_count; v++)
        pairs += o->p->values[v].reader_count;
    for (uint32_t u = 0; u < o->n; u++)
        pairs += o->p->ops[u].before_count;
    if (pairs >= UINT32_MAX / 4)
        return ebb_error(EBB_REJECTED, "a step with %zu reads is too large to be ordered", pairs);
    each_pair(o->p, count_pair, o);
    for (uint32_t u = 0; u < o->n; u++) {
        o->pred_from[u + 1] += o->pred_from[u];
        o->succ_from[u + 1] += o->succ_from[u];
    }
    o->pred = EBB_NEW(o->arena, uint32_t, pairs + 1);
    o->succ = EBB_NEW(o->arena, uint32_t, pairs + 1);
    EBB_GOT(o->pred && o->succ);
    memcpy(o->anchor, o->succ_from, o->n * sizeof *o->anchor);
    memcpy(o->bucket, o->pred_from, o->n * sizeof *o->bucket);
    each_pair(o->p, put_pair, o);
    return NULL;
}

ebb_status ebb_order_init(ebb_order *o, const ebb_remat_problem *problem, ebb_arena *arena)
{
    *o = (ebb_order){.p = problem, .n = problem->op_count, .arena = arena};
    size_t n = (size_t)o->n + 1, values = (size_t)problem->value_count + 1;
    o->made = EBB_NEW(arena, uint64_t, n);
    o->position = EBB_NEW(arena, uint32_t, n);
    o->last = EBB_NEW(arena, uint32_t, values);
    o->state = EBB_NEW(arena, uint64_t, n);
    o->live = EBB_NEW(arena, uint64_t, n);
    o->dying = EBB_NEW(arena, uint64_t, n);
    o->anchor = EBB_NEW(arena, uint32_t, n + 1);
    o->bucket = EBB_NEW(arena, uint32_t, n + 1);
    o->local = EBB_NEW(arena, uint32_t, values);
    EBB_GOT(o->made && o->position && o->last && o->state && o->live && o->dying && o->anchor &&
            o->bucket && o->local);
    for (uint32_t u = 0; u < o->n; u++)
        for (uint32_t k = 0; k < problem->ops[u].out_count; k++)
            o->made[u] += problem->values[problem->ops[u].out[k]].bytes;
    return find_pairs(o);
}

/* ---- the weight ---- */

/* Bytes that outputs take over from operands that die at position i. */
static uint64_t taken_over(const ebb_order *o, const ebb_remat_op *op, uint32_t i)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < op->over_count; k++) {
        if (o->last[op->over[k].in] != i)
            continue;
        bool taken = false;
        for (uint32_t j = 0; j < k && !taken; j++)
            taken = (op->over[j].out == op->over[k].out || op->over[j].in == op->over[k].in) &&
                    o->last[op->over[j].in] == i;
        if (!taken)
            bytes += o->p->values[op->over[k].out].bytes;
    }
    return bytes;
}

static uint64_t start(ebb_order *o, const uint32_t *seq)
{
    const ebb_remat_problem *p = o->p;
    memset(o->dying, 0, (o->n + (size_t)1) * sizeof *o->dying);
    for (uint32_t i = 0; i < o->n; i++) {
        const ebb_remat_op *op = &p->ops[seq[i]];
        o->position[seq[i]] = i;
        for (uint32_t k = 0; k < op->in_count; k++)
            o->last[op->in[k]] = i;
        for (uint32_t k = 0; k < op->out_count; k++)
            o->last[op->out[k]] = i;
        o->work += op->in_count + op->out_count;
    }
    uint64_t live = p->base_bytes;
    for (uint32_t v = 0; v < p->value_count; v++) {
        const ebb_remat_value *value = &p->values[v];
        if (value->stays)
            o->last[v] = TO_THE_END;
        if (value->op == EBB_REMAT_NONE && (value->stays || value->reader_count > 0))
            live += value->bytes;
        if (o->last[v] != TO_THE_END && (value->op != EBB_REMAT_NONE || value->reader_count > 0))
            o->dying[o->last[v]] += value->bytes;
    }
    o->work += p->value_count;
    return live;
}

ebb_order_weight ebb_order_weigh(ebb_order *o, const uint32_t *seq)
{
    uint64_t live = start(o, seq);
    ebb_order_weight w = {.peak = live};
    for (uint32_t i = 0; i < o->n; i++) {
        const ebb_remat_op *op = &o->p->ops[seq[i]];
        o->state[i] = live;
        live += o->made[seq[i]];
        uint64_t here = live + op->workspace - taken_over(o, op, i);
        o->live[i] = here;
        w.area += o->made[seq[i]] > 0 ? (double)here : 0;
        if (here > w.peak || (here == w.peak && w.times == 0))
            w = (ebb_order_weight){here, i, 1, w.area};
        else if (here == w.peak)
            w.times++;
        live -= o->dying[i];
    }
    o->state[o->n] = live;
    o->work += o->n;
    return w;
}

bool ebb_order_better(const ebb_order_weight *a, const ebb_order_weight *b)
{
    if (a->peak != b->peak)
        return a->peak < b->peak;
    if (a->times != b->times)
        return a->times < b->times;
    return a->area < b->area;
}

/* ---- all at once ---- */

/* into: seq sorted by anchor, operators of one anchor in the order of seq. */
static void sort_by_anchor(ebb_order *o, const uint32_t *seq, uint32_t *into)
{
    memset(o->bucket, 0, (o->n + (size_t)2) * sizeof *o->bucket);
    for (uint32_t u = 0; u < o->n; u++)
        o->bucket[o->anchor[u] + 1]++;
    for (uint32_t i = 0; i < o->n; i++)
        o->bucket[i + 1] += o->bucket[i];
    for (uint32_t i = 0; i < o->n; i++)
        into[o->bucket[o->anchor[seq[i]]]++] = seq[i];
    o->work += o->n;
}

/* What stays alive longer if operator u, the last reader but for those after `until`, waits. */
static uint64_t held(const ebb_order *o, uint32_t u, uint32_t until)
{
    const ebb_remat_op *op = &o->p->ops[u];
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < op->in_count; k++)
        bytes += o->last[op->in[k]] < until ? o->p->values[op->in[k]].bytes : 0;
    return bytes;
}

void ebb_order_sink(ebb_order *o, const uint32_t *seq, uint32_t *into)
{
    for (uint32_t i = o->n; i-- > 0;) {
        uint32_t u = seq[i], first = TO_THE_END;
        const ebb_remat_op *op = &o->p->ops[u];
        uint64_t made = 0;
        for (uint32_t k = 0; k < op->out_count; k++)
            made += o->last[op->out[k]] != i ? o->p->values[op->out[k]].bytes : 0;
        for (uint32_t k = o->succ_from[u]; k < o->succ_from[u + 1]; k++)
            first = o->anchor[o->succ[k]] < first ? o->anchor[o->succ[k]] : first;
        bool moves = first != TO_THE_END && first > i + 1 && made > held(o, u, first);
        o->anchor[u] = moves ? first : i;
        o->work += op->in_count + op->out_count + o->succ_from[u + 1] - o->succ_from[u];
    }
    sort_by_anchor(o, seq, into);
}

/* What dies earlier if operator u, at position i, is early: its operands that nobody else reads
 * after `from`. */
static uint64_t freed(const ebb_order *o, uint32_t u, uint32_t i, uint32_t from)
{
    const ebb_remat_op *op = &o->p->ops[u];
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < op->in_count; k++) {
        const ebb_remat_value *value = &o->p->values[op->in[k]];
        bool alone = o->last[op->in[k]] == i;
        for (uint32_t r = 0; alone && r < value->reader_count; r++)
            alone = value->readers[r] == u || o->position[value->readers[r]] <= from;
        bytes += alone ? value->bytes : 0;
    }
    return bytes;
}

void ebb_order_rise(ebb_order *o, const uint32_t *seq, uint32_t *into)
{
    for (uint32_t i = 0; i < o->n; i++) {
        uint32_t u = seq[i], latest = 0;
        const ebb_remat_op *op = &o->p->ops[u];
        uint64_t made = 0;
        for (uint32_t k = 0; k < op->out_count; k++)
            made += o->last[op->out[k]] != i ? o->p->values[op->out[k]].bytes : 0;
        for (uint32_t k = o->pred_from[u]; k < o->pred_from[u + 1]; k++)
            latest = o->anchor[o->pred[k]] > latest ? o->anchor[o->pred[k]] : latest;
        bool moves = o->pred_from[u] < o->pred_from[u + 1] && latest + 1 < i &&
                     freed(o, u, i, latest) > made;
        o->anchor[u] = moves ? latest : i;
        o->work += op->in_count + op->out_count + o->pred_from[u + 1] - o->pred_from[u];
    }
    sort_by_anchor(o, seq, into);
}
