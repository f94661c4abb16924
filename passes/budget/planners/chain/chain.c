/* chain.c: where the forward is cut, and schedules from stages. chain_measure.c weighs them. */
#include "passes/budget/planners/chain/chain.h"

#include "passes/budget/planners/chain/chain_measure.h"

enum {
    FEW = 12,     /* fewer natural cuts than this: any position may be one */
    LONG = 8,     /* a value that crosses an eighth of the forward */
    SMALL = 1024, /* and takes less than 1/1024 of its bytes is always kept: a mask, a table */
};

typedef struct cutter {
    ebb_chain *c;
    const ebb_remat_problem *p;
    ebb_arena *arena, *scratch;
    bool *is_forward;   /* by operator */
    uint32_t *position; /* by operator of the forward */
    uint32_t *forward, *backward, *stage_of, *reach, *cut;
    bool *read_back, *always;
    uint64_t *crossing; /* by position: bytes that cross before it */
    uint32_t *crossers;
} cutter;

/* ---- the two parts ---- */

/* Of the forward is what is marked so and depends on nothing of the backward. Both parts run in
 * list order, the forward first; an operator that must precede one of the forward pulls that one
 * over to the backward. */
static ebb_status split(cutter *t)
{
    const ebb_remat_problem *p = t->p;
    bool *pulled = EBB_NEW(t->scratch, bool, (size_t)p->op_count + 1);
    EBB_GOT(pulled);
    for (bool again = true; again;) {
        again = false;
        for (uint32_t u = 0; u < p->op_count; u++) {
            const ebb_remat_op *op = &p->ops[u];
            t->is_forward[u] = !op->backward && !pulled[u];
            for (uint32_t k = 0; k < op->in_count && t->is_forward[u]; k++) {
                uint32_t maker = p->values[op->in[k]].op;
                t->is_forward[u] = maker == EBB_REMAT_NONE || t->is_forward[maker];
            }
        }
        for (uint32_t u = 0; u < p->op_count; u++) {
            uint32_t by = p->ops[u].before;
            if (!t->is_forward[u] && by != EBB_REMAT_NONE && t->is_forward[by] && by > u)
                again = pulled[by] = true;
        }
    }
    for (uint32_t u = 0; u < p->op_count; u++) {
        if (t->is_forward[u]) {
            t->position[u] = t->c->forward_count;
            t->forward[t->c->forward_count++] = u;
        } else {
            t->backward[t->c->backward_count++] = u;
        }
    }
    return NULL;
}

/* How far each value of the forward reaches, and which ones every plan keeps. */
static void find_reach(cutter *t)
{
    const ebb_remat_problem *p = t->p;
    uint64_t total = 0;
    for (uint32_t v = 0; v < p->value_count; v++) {
        const ebb_remat_value *value = &p->values[v];
        if (value->op == EBB_REMAT_NONE || !t->is_forward[value->op])
            continue;
        t->reach[v] = t->position[value->op];
        total += value->bytes;
        for (uint32_t i = 0; i < value->reader_count; i++) {
            if (t->is_forward[value->readers[i]])
                t->reach[v] = t->position[value->readers[i]];
            else
                t->read_back[v] = true;
        }
    }
    for (uint32_t v = 0; v < p->value_count; v++) {
        const ebb_remat_value *value = &p->values[v];
        if (value->op == EBB_REMAT_NONE || !t->is_forward[value->op])
            continue;
        uint32_t span = t->reach[v] - t->position[value->op];
        bool lasting = span > LONG && span > t->c->forward_count / LONG;
        t->always[v] =
            value->stays || p->ops[value->op].once || (lasting && value->bytes <= total / SMALL);
    }
}

static ebb_status find_crossing(cutter *t)
{
    const ebb_remat_problem *p = t->p;
    uint32_t n = t->c->forward_count;
    uint64_t *ends = EBB_NEW(t->scratch, uint64_t, (size_t)n + 2);
    uint32_t *enders = EBB_NEW(t->scratch, uint32_t, (size_t)n + 2);
    EBB_GOT(ends && enders);
    uint64_t live = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) { // after operator i, before position i + 1
        const ebb_remat_op *op = &p->ops[t->forward[i]];
        for (uint32_t k = 0; k < op->out_count; k++) {
            uint32_t v = op->out[k];
            if (t->always[v])
                continue;
            live += p->values[v].bytes;
            ends[t->reach[v]] += p->values[v].bytes;
            count += p->values[v].bytes > 0;
            enders[t->reach[v]] += p->values[v].bytes > 0;
        }
        live -= ends[i];
        count -= enders[i];
        t->crossing[i + 1] = live;
        t->crossers[i + 1] = count;
    }
    return NULL;
}

/* ---- cuts ---- */

/* One value crosses, or on both sides more does: flat stretches have the nearest other level. */
static void find_natural(const cutter *t, bool *natural)
{
    uint32_t n = t->c->forward_count;
    bool falls = true; // what comes before this stretch is higher
    for (uint32_t i = 1; i < n; i++) {
        if (i > 1 && t->crossing[i] != t->crossing[i - 1])
            falls = t->crossing[i] < t->crossing[i - 1];
        natural[i] = t->crossers[i] <= 1 || falls;
    }
    bool rises = true;
    for (uint32_t i = n; i-- > 1;) {
        if (i + 1 < n && t->crossing[i] != t->crossing[i + 1])
            rises = t->crossing[i] < t->crossing[i + 1];
        natural[i] = natural[i] && (t->crossers[i] <= 1 || rises);
    }
}

static double made_bytes(const cutter *t, uint32_t i)
{
    const ebb_remat_op *op = &t->p->ops[t->forward[i]];
    double bytes = 0;
    for (uint32_t k = 0; k < op->out_count; k++)
        bytes += (double)t->p->values[op->out[k]].bytes;
    return bytes;
}

/* Of each window the lowest cut remains. Windows weigh the same: a share of the work, one of the
 * bytes, one of the operators. */
static void thin(const cutter *t, bool *natural, uint32_t most)
{
    uint32_t n = t->c->forward_count, best = 0, window = 1;
    double ns = 0, bytes = 0, weight = 0;
    for (uint32_t i = 0; i < n; i++) {
        ns += t->p->ops[t->forward[i]].cost_ns;
        bytes += made_bytes(t, i);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool candidate = natural[i];
        natural[i] = false;
        if (candidate && (best == 0 || t->crossing[i] < t->crossing[best]))
            best = i;
        weight += (ns > 0 ? t->p->ops[t->forward[i]].cost_ns / ns : 0) +
                  (bytes > 0 ? made_bytes(t, i) / bytes : 0) + 1.0 / n;
        if (weight * most < 3.0 * window)
            continue;
        while (weight * most >= 3.0 * window && window < most)
            window++;
        if (best > 0)
            natural[best] = true;
        best = 0;
    }
}

static ebb_status cut(cutter *t, uint32_t most)
{
    ebb_chain *c = t->c;
    uint32_t n = c->forward_count, count = 0;
    bool *natural = EBB_NEW(t->scratch, bool, (size_t)n + 1);
    EBB_GOT(natural);
    find_natural(t, natural);
    for (uint32_t i = 1; i < n; i++)
        count += natural[i];
    if (count < FEW && count + 1 < n) {
        memset(natural, 1, n);
        count = n - 1;
    }
    if (count + 1 > most)
        thin(t, natural, most);
    t->cut = EBB_NEW(t->arena, uint32_t, (size_t)n + 2);
    EBB_GOT(t->cut);
    c->stages = n > 0;
    for (uint32_t i = 1; i < n && c->stages < most; i++)
        if (natural[i])
            t->cut[c->stages++] = i;
    t->cut[c->stages] = n;
    c->cut = t->cut;
    return NULL;
}

/* ---- the chain ---- */

static ebb_status allocate(cutter *t)
{
    size_t ops = (size_t)t->p->op_count + 2, values = (size_t)t->p->value_count + 1;
    t->is_forward = EBB_NEW(t->scratch, bool, ops);
    t->position = EBB_NEW(t->scratch, uint32_t, ops);
    t->crossing = EBB_NEW(t->scratch, uint64_t, ops);
    t->crossers = EBB_NEW(t->scratch, uint32_t, ops);
    t->c->forward = t->forward = EBB_NEW(t->arena, uint32_t, ops);
    t->c->backward = t->backward = EBB_NEW(t->arena, uint32_t, ops);
    t->c->stage_of = t->stage_of = EBB_NEW(t->arena, uint32_t, values);
    t->c->reach = t->reach = EBB_NEW(t->arena, uint32_t, values);
    t->c->read_back = t->read_back = EBB_NEW(t->arena, bool, values);
    t->c->always = t->always = EBB_NEW(t->arena, bool, values);
    EBB_GOT(t->is_forward && t->position && t->crossing && t->crossers && t->forward &&
            t->backward && t->stage_of && t->reach && t->read_back && t->always);
    return NULL;
}

static ebb_status make(cutter *t, uint32_t most)
{
    EBB_TRY(allocate(t));
    EBB_TRY(split(t));
    find_reach(t);
    EBB_TRY(find_crossing(t));
    EBB_TRY(cut(t, most));
    memset(t->stage_of, 0xff, (size_t)t->p->value_count * sizeof *t->stage_of);
    for (uint32_t s = 0; s < t->c->stages; s++)
        for (uint32_t i = t->cut[s]; i < t->cut[s + 1]; i++)
            for (uint32_t k = 0; k < t->p->ops[t->forward[i]].out_count; k++)
                t->stage_of[t->p->ops[t->forward[i]].out[k]] = s;
    return ebb_chain_measure(t->c, t->crossing, t->arena, t->scratch);
}

ebb_status ebb_chain_make(ebb_chain *chain, const ebb_remat_problem *problem, uint32_t most,
                          ebb_arena *arena)
{
    EBB_LOCAL_ARENA(scratch);
    *chain = (ebb_chain){.problem = problem};
    cutter t = {.c = chain, .p = problem, .arena = arena, .scratch = scratch};
    return make(&t, most > 0 ? most : 1);
}

ebb_status ebb_chain_keep(const ebb_chain *chain, const bool *enters, uint32_t from, bool *kept)
{
    EBB_LOCAL_ARENA(scratch);
    uint32_t *next = EBB_NEW(scratch, uint32_t, (size_t)chain->stages + 2); // kept cut behind s
    EBB_GOT(next);
    next[chain->stages] = chain->stages;
    for (uint32_t s = chain->stages; s-- > 0;)
        next[s] = s + 1 < chain->stages && enters[s + 1] ? s + 1 : next[s + 1];
    for (uint32_t v = 0; v < chain->problem->value_count; v++) {
        uint32_t s = chain->stage_of[v];
        kept[v] = chain->always[v] ||
                  (s != EBB_REMAT_NONE && (s >= from || chain->reach[v] >= chain->cut[next[s]]));
    }
    return NULL;
}

/* ---- the tape ---- */

ebb_status ebb_tape_start(ebb_tape *tape, const ebb_chain *chain, size_t most, ebb_arena *arena)
{
    *tape = (ebb_tape){.chain = chain, .arena = arena, .most = most};
    tape->done = EBB_NEW(arena, bool, (size_t)chain->problem->op_count + 1);
    return tape->done != NULL ? NULL : ebb_error_memory();
}

static ebb_status add(ebb_tape *tape, uint32_t u)
{
    tape->full = tape->full || tape->count >= tape->most;
    if (tape->full)
        return NULL;
    EBB_GOT(
        ebb_arena_grow(tape->arena, &tape->ops, tape->count, &tape->capacity, sizeof *tape->ops));
    tape->ops[tape->count++] = u;
    if (!ebb_remat_is_move(tape->chain->problem, u))
        tape->done[u] = true;
    return NULL;
}

ebb_status ebb_tape_move(ebb_tape *tape, ebb_remat_move_kind kind, uint32_t value)
{
    return add(tape, ebb_remat_move(tape->chain->problem, kind, value));
}

static bool worth_repeating(const ebb_tape *tape, const ebb_remat_op *op)
{
    if (op->once || (op->before != EBB_REMAT_NONE && tape->done[op->before]))
        return false;
    for (uint32_t k = 0; k < op->before_count; k++) // join may run another of them first
        if (tape->done[op->befores[k]])
            return false;
    for (uint32_t k = 0; k < op->out_count; k++)
        if (!tape->chain->always[op->out[k]])
            return true;
    return false;
}

ebb_status ebb_tape_again(ebb_tape *tape, uint32_t op)
{
    bool may = !tape->done[op] || worth_repeating(tape, &tape->chain->problem->ops[op]);
    return may ? add(tape, op) : NULL;
}

ebb_status ebb_tape_forward(ebb_tape *tape, uint32_t stage)
{
    const ebb_chain *c = tape->chain;
    for (uint32_t i = c->cut[stage]; i < c->cut[stage + 1]; i++)
        EBB_TRY(ebb_tape_again(tape, c->forward[i]));
    return NULL;
}

ebb_status ebb_tape_backward(ebb_tape *tape, uint32_t stage)
{
    const ebb_chain *c = tape->chain;
    for (uint32_t i = c->turn[stage + 1]; i < c->turn[stage]; i++)
        EBB_TRY(add(tape, c->backward[i]));
    return NULL;
}
