/* order_greedy.c: an order from nothing: always the operator that adds the least.
 *
 * Forwards: of all that can run, the one that makes the least beyond what it frees. Backwards, from
 * the last operator on: of all whose readers have their place, the one that asks for the least
 * beyond what it makes; which is to run everything as late as can be. Ties go by the order given.
 *
 * Neither is good alone on a training step, whose list order is better than both; on graphs whose
 * list order means nothing they are where a search begins.
 */
#include <string.h>

#include "passes/budget/planners/order/order.h"

typedef struct entry {
    uint64_t adds, frees; /* bytes */
    uint32_t at;          /* position in the order given */
    uint32_t op;
} entry;

typedef struct greedy {
    ebb_order *o;
    bool forwards;
    uint32_t *waits; /* by operator: neighbours without a place */
    uint32_t *left;  /* by value: readers without a place */
    bool *placed;    /* by operator */
    entry *heap;
    size_t count, most;
} greedy;

/* ---- the heap: an operator may be in it several times; the first that comes out counts ---- */

static bool first(const entry *a, const entry *b)
{
    uint64_t x = a->adds + b->frees, y = b->adds + a->frees;
    return x != y ? x < y : a->at < b->at;
}

static void push(greedy *r, entry e)
{
    size_t i = r->count++;
    for (; i > 0 && first(&e, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = e;
}

static entry pop(greedy *r)
{
    entry top = r->heap[0], e = r->heap[--r->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < r->count; i = child) {
        if (child + 1 < r->count && first(&r->heap[child + 1], &r->heap[child]))
            child++;
        if (!first(&r->heap[child], &e))
            break;
        r->heap[i] = r->heap[child];
    }
    r->heap[i] = e;
    r->o->work += 16;
    return top;
}

/* ---- what an operator adds ---- */

static entry weigh(const greedy *r, uint32_t u)
{
    const ebb_remat_problem *p = r->o->p;
    const ebb_remat_op *op = &p->ops[u];
    entry e = {.op = u, .at = r->o->position[u]};
    for (uint32_t k = 0; k < op->out_count; k++) {
        const ebb_remat_value *value = &p->values[op->out[k]];
        bool alive = value->stays || value->reader_count > 0;
        if (alive && r->forwards)
            e.adds += value->bytes;
        else if (alive)
            e.frees += value->bytes;
    }
    for (uint32_t k = 0; k < op->in_count; k++) {
        uint32_t v = op->in[k];
        if (p->values[v].stays)
            continue;
        if (r->forwards && r->left[v] == 1)
            e.frees += p->values[v].bytes;
        if (!r->forwards && r->left[v] == p->values[v].reader_count)
            e.adds += p->values[v].bytes;
    }
    r->o->work += op->in_count + op->out_count;
    return e;
}

static void offer(greedy *r, uint32_t u)
{
    if (r->waits[u] == 0 && !r->placed[u] && r->count < r->most)
        push(r, weigh(r, u));
}

static void place(greedy *r, uint32_t u)
{
    ebb_order *o = r->o;
    const ebb_remat_op *op = &o->p->ops[u];
    const uint32_t *from = r->forwards ? o->succ_from : o->pred_from;
    const uint32_t *to = r->forwards ? o->succ : o->pred;
    r->placed[u] = true;
    for (uint32_t k = 0; k < op->in_count; k++) {
        const ebb_remat_value *value = &o->p->values[op->in[k]];
        uint32_t left = --r->left[op->in[k]];
        /* Forwards, the last reader frees it; backwards, the first has brought it alive. */
        bool turns = r->forwards ? left == 1 : left + 1 == value->reader_count;
        for (uint32_t i = 0; turns && i < value->reader_count; i++)
            offer(r, value->readers[i]);
        o->work += turns ? value->reader_count : 0;
    }
    for (uint32_t k = from[u]; k < from[u + 1]; k++)
        if (--r->waits[to[k]] == 0)
            offer(r, to[k]);
    o->work += from[u + 1] - from[u];
}

ebb_status ebb_order_greedy(ebb_order *o, bool forwards, uint32_t *into)
{
    greedy r = {.o = o, .forwards = forwards};
    EBB_LOCAL_ARENA(scratch);
    r.most = (size_t)o->n + 1;
    for (uint32_t v = 0; v < o->p->value_count; v++)
        r.most += o->p->values[v].reader_count;
    r.waits = EBB_NEW(scratch, uint32_t, (size_t)o->n + 1);
    r.left = EBB_NEW(scratch, uint32_t, (size_t)o->p->value_count + 1);
    r.placed = EBB_NEW(scratch, bool, (size_t)o->n + 1);
    r.heap = ebb_arena_alloc(scratch, r.most * sizeof *r.heap);
    EBB_GOT(r.waits && r.left && r.placed && r.heap);
    const uint32_t *from = forwards ? o->pred_from : o->succ_from;
    for (uint32_t v = 0; v < o->p->value_count; v++)
        r.left[v] = o->p->values[v].reader_count;
    for (uint32_t u = 0; u < o->n; u++)
        r.waits[u] = from[u + 1] - from[u];
    for (uint32_t u = 0; u < o->n; u++)
        offer(&r, u);
    for (uint32_t i = 0; i < o->n;) {
        uint32_t u = pop(&r).op;
        if (r.placed[u])
            continue;
        into[forwards ? i : o->n - 1 - i] = u;
        place(&r, u);
        i++;
    }
    return NULL;
}
