/* test_order.c: orders of random steps, against all orders that there are. */
#include <stdlib.h>
#include <time.h>

#include "passes/budget/planners/planner.h"
#include "tests/owned.h"
#include "tests/test.h"

static const uint64_t steps = 100000;

static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* ---- random steps ---- */

typedef struct shape {
    uint32_t ops, reach; /* an operator reads what the last `reach` have made */
    bool overs, stays, befores, workspace;
} shape;

static void add(uint32_t *list, uint32_t *count, uint32_t x)
{
    for (uint32_t i = 0; i < *count; i++)
        if (list[i] == x)
            return;
    list[(*count)++] = x;
}

/* One output for each operator, some with two; some inputs. */
static ebb_remat_problem make(const shape *s, ebb_arena *arena)
{
    enum { INPUTS = 2, MOST_IN = 4 };
    uint32_t n = s->ops, values = 0, readers = 0;
    ebb_remat_op *ops = EBB_NEW(arena, ebb_remat_op, n);
    ebb_remat_value *value = EBB_NEW(arena, ebb_remat_value, 2 * n + INPUTS);
    uint32_t *lists = EBB_NEW(arena, uint32_t, n * (MOST_IN + 2));
    uint32_t *pool = EBB_NEW(arena, uint32_t, n * MOST_IN);
    uint32_t *out_of = EBB_NEW(arena, uint32_t, n);
    for (; values < INPUTS; values++)
        value[values] = (ebb_remat_value){.bytes = 1 + draw(20), .op = EBB_REMAT_NONE};
    for (uint32_t u = 0; u < n; u++) {
        ebb_remat_op *op = &ops[u];
        uint32_t *in = lists + u * (MOST_IN + 2), *out = in + MOST_IN;
        op->in = in;
        op->out = out;
        op->before = EBB_REMAT_NONE;
        op->workspace = s->workspace && draw(4) == 0 ? draw(12) : 0;
        uint32_t wanted = draw(MOST_IN);
        for (uint32_t k = 0; k < wanted; k++) {
            uint32_t back = u < s->reach ? u : s->reach, from = u - draw(back + 1);
            add(in, &op->in_count, from == u ? draw(INPUTS) : out_of[from]);
        }
        out_of[u] = values;
        for (uint32_t k = 0; k < 1u + (draw(6) == 0); k++) {
            out[op->out_count++] = values;
            value[values++] = (ebb_remat_value){
                .bytes = 1 + draw(30), .op = u, .stays = s->stays && draw(8) == 0};
        }
        if (s->overs && op->in_count > 0 && draw(2) == 0) {
            ebb_remat_over *over = EBB_NEW(arena, ebb_remat_over, 1);
            *over = (ebb_remat_over){out[0], in[0]};
            value[out[0]].bytes = value[in[0]].bytes;
            op->over = over;
            op->over_count = 1;
        }
        if (s->befores && u > 0 && draw(5) == 0)
            ops[draw(u)].before = u;
    }
    for (uint32_t v = 0; v < values; v++) {
        value[v].readers = pool + readers;
        for (uint32_t u = 0; u < n; u++)
            for (uint32_t k = 0; k < ops[u].in_count; k++)
                if (ops[u].in[k] == v) {
                    pool[readers++] = u;
                    value[v].reader_count++;
                }
    }
    return (ebb_remat_problem){
        .ops = ops, .op_count = n, .values = value, .value_count = values, .base_bytes = 100};
}

static ebb_remat_weight weigh(const ebb_remat_problem *p, const ebb_remat_schedule *s)
{
    ebb_arena scratch = {0};
    ebb_remat_weight w;
    ebb_status status = ebb_remat_weigh(&w, NULL, p, s, &scratch);
    ebb_arena_fini(&scratch);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
    return w;
}

static void each_once(const ebb_remat_problem *p, const ebb_remat_schedule *s)
{
    FREED bool *seen = calloc(p->op_count + 1u, sizeof *seen);
    assert_non_null(seen);
    assert_int_equal(s->count, p->op_count);
    for (size_t i = 0; i < s->count; i++) {
        assert_false(seen[s->ops[i]]);
        seen[s->ops[i]] = true;
    }
}

/* ---- all orders ---- */

typedef struct all {
    const ebb_remat_problem *p;
    uint32_t seq[16];
    bool used[16];
    uint64_t best;
} all;

static bool may_run(const all *a, uint32_t u)
{
    const ebb_remat_op *op = &a->p->ops[u];
    for (uint32_t k = 0; k < op->in_count; k++) {
        uint32_t maker = a->p->values[op->in[k]].op;
        if (maker != EBB_REMAT_NONE && !a->used[maker])
            return false;
    }
    for (uint32_t v = 0; v < a->p->op_count; v++)
        if (a->p->ops[v].before == u && !a->used[v])
            return false;
    return true;
}

static void try_all(all *a, uint32_t depth)
{
    if (depth == a->p->op_count) {
        uint64_t peak = weigh(a->p, &(ebb_remat_schedule){a->seq, depth}).peak_bytes;
        a->best = peak < a->best ? peak : a->best;
        return;
    }
    for (uint32_t u = 0; u < a->p->op_count; u++) {
        if (a->used[u] || !may_run(a, u))
            continue;
        a->used[u] = true;
        a->seq[depth] = u;
        try_all(a, depth + 1);
        a->used[u] = false;
    }
}

TEST(up_to_eight_operators_the_order_is_the_best_of_all)
{
    for (int i = 0; i < 300; i++) {
        OWNED_ARENA arena = {0};
        seed = 1000u + (uint32_t)i;
        shape s = {.ops = 1 + draw(8), .reach = 1 + draw(8)};
        s.overs = draw(2) == 0;
        s.stays = draw(2) == 0;
        s.befores = draw(2) == 0;
        s.workspace = draw(2) == 0;
        ebb_remat_problem p = make(&s, &arena);
        ebb_remat_schedule order;
        assert_null(ebb_remat_order(&order, &p, steps, &arena));
        each_once(&p, &order);
        all a = {.p = &p, .best = UINT64_MAX};
        try_all(&a, 0);
        if (weigh(&p, &order).peak_bytes != a.best)
            fail_msg("case %d: %llu bytes, but %llu can be reached", i,
                     (unsigned long long)weigh(&p, &order).peak_bytes, (unsigned long long)a.best);
    }
}

/* ---- larger ones ---- */

static ebb_remat_problem renumbered(const ebb_remat_problem *p, const ebb_remat_schedule *s,
                                    ebb_arena *arena)
{
    uint32_t *number = EBB_NEW(arena, uint32_t, p->op_count);
    ebb_remat_op *ops = EBB_NEW(arena, ebb_remat_op, p->op_count);
    ebb_remat_value *values = EBB_NEW(arena, ebb_remat_value, p->value_count);
    for (uint32_t i = 0; i < p->op_count; i++)
        number[s->ops[i]] = i;
    for (uint32_t i = 0; i < p->op_count; i++) {
        ops[i] = p->ops[s->ops[i]];
        if (ops[i].before != EBB_REMAT_NONE)
            ops[i].before = number[ops[i].before];
    }
    for (uint32_t v = 0; v < p->value_count; v++) {
        uint32_t count = 0, *readers = EBB_NEW(arena, uint32_t, p->values[v].reader_count + 1u);
        values[v] = p->values[v];
        values[v].op = values[v].op == EBB_REMAT_NONE ? EBB_REMAT_NONE : number[values[v].op];
        for (uint32_t i = 0; i < p->op_count; i++)
            for (uint32_t k = 0; k < ops[i].in_count; k++)
                if (ops[i].in[k] == v)
                    readers[count++] = i;
        values[v].readers = readers;
    }
    ebb_remat_problem q = *p;
    q.ops = ops;
    q.values = values;
    return q;
}

TEST(it_is_never_above_list_order_and_settled)
{
    for (int i = 0; i < 30; i++) {
        OWNED_ARENA arena = {0};
        seed = 5000u + (uint32_t)i;
        shape s = {.ops = 20 + draw(130),
                   .reach = 2 + draw(40),
                   .overs = true,
                   .stays = true,
                   .befores = draw(2) == 0,
                   .workspace = true};
        ebb_remat_problem p = make(&s, &arena);
        ebb_remat_schedule list, order, again;
        assert_null(ebb_remat_keep_all(&list, &p, &arena));
        assert_null(ebb_remat_order(&order, &p, steps, &arena));
        each_once(&p, &order);
        uint64_t before = weigh(&p, &list).peak_bytes, after = weigh(&p, &order).peak_bytes;
        assert_true(after <= before);
        ebb_remat_problem q = renumbered(&p, &order, &arena);
        assert_null(ebb_remat_order(&again, &q, steps, &arena));
        if (after < before && weigh(&q, &again).peak_bytes != after)
            fail_msg("case %d: %llu, %llu, again %llu bytes", i, (unsigned long long)before,
                     (unsigned long long)after, (unsigned long long)weigh(&q, &again).peak_bytes);
    }
}
