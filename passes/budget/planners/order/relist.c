/* relist.c: the same executions in a better order.
 *
 * Each execution of a schedule is taken as an operator of its own, each copy as a value of its own:
 * a problem without repeats, which order.c puts into an order of less memory. So recomputation and
 * order are improved in turns.
 */
#include "passes/budget/planners/planner.h"

typedef struct expansion {
    const ebb_remat_problem *p;
    const ebb_remat_schedule *s;
    ebb_arena *arena;
    ebb_remat_op *ops;
    ebb_remat_value *values;
    uint32_t value_count;
    uint32_t *latest; /* value -> its latest copy */
    uint32_t *first;  /* operator -> its first execution + 1 */
} expansion;

static ebb_status expand_one(expansion *x, uint32_t i)
{
    const ebb_remat_op *from = &x->p->ops[x->s->ops[i]];
    ebb_remat_op *op = &x->ops[i];
    *op = *from;
    uint32_t *in = EBB_NEW(x->arena, uint32_t, (size_t)from->in_count + 1);
    uint32_t *out = EBB_NEW(x->arena, uint32_t, (size_t)from->out_count + 1);
    ebb_remat_over *over = EBB_NEW(x->arena, ebb_remat_over, (size_t)from->over_count + 1);
    EBB_GOT(in && out && over);
    for (uint32_t k = 0; k < from->in_count; k++)
        in[k] = x->latest[from->in[k]];
    for (uint32_t k = 0; k < from->over_count; k++)
        over[k].in = x->latest[from->over[k].in];
    for (uint32_t k = 0; k < from->out_count; k++) {
        out[k] = x->value_count++;
        x->values[out[k]] = (ebb_remat_value){.bytes = x->p->values[from->out[k]].bytes, .op = i};
        x->latest[from->out[k]] = out[k];
    }
    for (uint32_t k = 0; k < from->over_count; k++)
        over[k].out = x->latest[from->over[k].out];
    op->in = in;
    op->out = out;
    op->over = over;
    if (x->first[x->s->ops[i]] == 0)
        x->first[x->s->ops[i]] = i + 1;
    return NULL;
}

/* Executions of a reader of a state come before the state's update. */
static ebb_status expand_befores(expansion *x)
{
    for (uint32_t i = 0; i < x->s->count; i++) {
        ebb_remat_op *op = &x->ops[i];
        uint32_t *befores = EBB_NEW(x->arena, uint32_t, (size_t)op->before_count + 1);
        EBB_GOT(befores);
        uint32_t count = 0;
        for (uint32_t k = 0; k < op->before_count; k++)
            if (x->first[op->befores[k]] != 0)
                befores[count++] = x->first[op->befores[k]] - 1;
        if (op->before != EBB_REMAT_NONE)
            op->before = x->first[op->before] != 0 ? x->first[op->before] - 1 : EBB_REMAT_NONE;
        op->befores = befores;
        op->before_count = count;
    }
    return NULL;
}

static ebb_status expand_readers(expansion *x)
{
    size_t total = 0;
    for (uint32_t i = 0; i < x->s->count; i++)
        for (uint32_t k = 0; k < x->ops[i].in_count; k++, total++)
            x->values[x->ops[i].in[k]].reader_count++;
    uint32_t *pool = EBB_NEW(x->arena, uint32_t, total + 1);
    uint32_t **next = EBB_NEW(x->arena, uint32_t *, (size_t)x->value_count + 1);
    EBB_GOT(pool && next);
    for (uint32_t v = 0; v < x->value_count; v++) {
        x->values[v].readers = next[v] = pool;
        pool += x->values[v].reader_count;
    }
    for (uint32_t i = 0; i < x->s->count; i++)
        for (uint32_t k = 0; k < x->ops[i].in_count; k++)
            *next[x->ops[i].in[k]]++ = i;
    return NULL;
}

static ebb_status expand(expansion *x, ebb_remat_problem *expanded)
{
    const ebb_remat_problem *p = x->p;
    size_t values = p->value_count;
    for (size_t i = 0; i < x->s->count; i++)
        values += p->ops[x->s->ops[i]].out_count;
    x->ops = EBB_NEW(x->arena, ebb_remat_op, x->s->count + 1);
    x->values = EBB_NEW(x->arena, ebb_remat_value, values + 1);
    x->latest = EBB_NEW(x->arena, uint32_t, (size_t)p->value_count + 1);
    x->first = EBB_NEW(x->arena, uint32_t, (size_t)p->op_count + 1);
    EBB_GOT(x->ops && x->values && x->latest && x->first);
    for (uint32_t v = 0; v < p->value_count; v++) {
        if (p->values[v].op != EBB_REMAT_NONE)
            continue;
        x->latest[v] = x->value_count++;
        x->values[x->latest[v]] =
            (ebb_remat_value){.bytes = p->values[v].bytes, .op = EBB_REMAT_NONE};
    }
    for (uint32_t i = 0; i < x->s->count; i++)
        EBB_TRY(expand_one(x, i));
    for (uint32_t v = 0; v < p->value_count; v++)
        if (p->values[v].stays)
            x->values[x->latest[v]].stays = true;
    EBB_TRY(expand_befores(x));
    EBB_TRY(expand_readers(x));
    *expanded = (ebb_remat_problem){.ops = x->ops,
                                    .op_count = (uint32_t)x->s->count,
                                    .values = x->values,
                                    .value_count = x->value_count,
                                    .base_bytes = p->base_bytes};
    return NULL;
}

ebb_status ebb_remat_relist(ebb_remat_schedule *better, const ebb_remat_problem *problem,
                            const ebb_remat_schedule *schedule, uint64_t steps, ebb_arena *arena)
{
    expansion x = {.p = problem, .s = schedule, .arena = arena};
    ebb_remat_problem expanded;
    ebb_remat_schedule order;
    ebb_remat_weight before, after;
    *better = *schedule;
    if (problem->moves)
        return NULL;
    EBB_TRY(expand(&x, &expanded));
    EBB_TRY(ebb_remat_order(&order, &expanded, steps, arena));
    uint32_t *ops = EBB_NEW(arena, uint32_t, order.count + 1);
    EBB_GOT(ops);
    for (size_t i = 0; i < order.count; i++)
        ops[i] = schedule->ops[order.ops[i]];
    *better = (ebb_remat_schedule){ops, order.count};
    /* Reads take the latest copy, which in another order may be another one. */
    EBB_TRY(ebb_remat_weigh(&before, NULL, problem, schedule, arena));
    EBB_TRY(ebb_remat_weigh(&after, NULL, problem, better, arena));
    if (after.peak_bytes >= before.peak_bytes)
        *better = *schedule;
    return NULL;
}
