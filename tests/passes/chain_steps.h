/* chain_steps.h: steps of layers in numbers, equal or drawn, and planners on them. */
#pragma once

#include "passes/budget/planners/kept.h"
#include "tests/test.h"

static const uint64_t work = 10u * 1000 * 1000;
static uint64_t seed;

static inline uint32_t draw(uint32_t below) /* 0 .. below - 1 */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

#define OK(call) assert_null(call)

/* ---- problems ---- */

enum { MOST_OPERANDS = 8 };

typedef struct step {
    ebb_arena arena;
    ebb_remat_problem problem;
    ebb_remat_op *ops;
    ebb_remat_value *values;
    uint32_t room;
} step;

static inline void step_init(step *s, uint32_t room)
{
    *s = (step){.room = room};
    s->ops = EBB_NEW(&s->arena, ebb_remat_op, room);
    s->values = EBB_NEW(&s->arena, ebb_remat_value, room * (size_t)3);
    assert_non_null(s->ops);
    assert_non_null(s->values);
}

static inline uint32_t add_op(step *s, double ns, bool backward)
{
    assert_true(s->problem.op_count < s->room);
    ebb_remat_op *op = &s->ops[s->problem.op_count];
    *op = (ebb_remat_op){.cost_ns = ns, .backward = backward, .before = EBB_REMAT_NONE};
    op->in = EBB_NEW(&s->arena, uint32_t, MOST_OPERANDS);
    op->out = EBB_NEW(&s->arena, uint32_t, MOST_OPERANDS);
    return s->problem.op_count++;
}

static inline void reads(step *s, uint32_t u, uint32_t v)
{
    ebb_remat_op *op = &s->ops[u];
    uint32_t *in = (uint32_t *)(uintptr_t)op->in;
    for (uint32_t k = 0; k < op->in_count; k++)
        if (in[k] == v)
            return;
    assert_true(op->in_count < MOST_OPERANDS);
    in[op->in_count++] = v;
    s->values[v].reader_count++;
}

static inline uint32_t makes(step *s, uint32_t u, uint64_t bytes) /* u NONE: an input */
{
    uint32_t v = s->problem.value_count++;
    assert_true(v < s->room * 3);
    s->values[v] = (ebb_remat_value){.bytes = bytes, .op = u};
    if (u != EBB_REMAT_NONE)
        ((uint32_t *)(uintptr_t)s->ops[u].out)[s->ops[u].out_count++] = v;
    return v;
}

static inline void step_finish(step *s)
{
    uint32_t **next = EBB_NEW(&s->arena, uint32_t *, s->problem.value_count + (size_t)1);
    for (uint32_t v = 0; v < s->problem.value_count; v++)
        s->values[v].readers = next[v] =
            EBB_NEW(&s->arena, uint32_t, s->values[v].reader_count + (size_t)1);
    for (uint32_t u = 0; u < s->problem.op_count; u++)
        for (uint32_t k = 0; k < s->ops[u].in_count; k++)
            *next[s->ops[u].in[k]]++ = u;
    s->problem.ops = s->ops;
    s->problem.values = s->values;
}

/* How a random step differs from n equal layers. Chances are in percent. */
typedef struct shape {
    uint32_t layers;
    bool equal;    /* all values 64 bytes, all costs 10 */
    uint32_t skip; /* a layer reads an earlier one, too */
    uint32_t side; /* a layer has a second output, for its backward */
    uint32_t once; /* a layer must not be repeated */
    bool weights;  /* gradients of weights, and updates after which the readers must not run */
} shape;

/* Layer i: value[i] -> value[i + 1]; its backward reads what it read, and the gradient. */
static inline void make_step(step *s, const shape *how)
{
    uint32_t n = how->layers;
    step_init(s, 4 * n + 8);
    uint32_t *value = EBB_NEW(&s->arena, uint32_t, n + (size_t)2);
    uint32_t *side = EBB_NEW(&s->arena, uint32_t, n + (size_t)2);
    uint32_t *skip = EBB_NEW(&s->arena, uint32_t, n + (size_t)2);
    uint32_t *skipped = EBB_NEW(&s->arena, uint32_t, n + (size_t)2); /* its gradient + 1 */
    uint32_t *weight = EBB_NEW(&s->arena, uint32_t, n + (size_t)2);
    s->problem.base_bytes = 1000;
    value[0] = makes(s, EBB_REMAT_NONE, 32);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = add_op(s, how->equal ? 10 : 1 + draw(100), false);
        s->ops[u].once = draw(100) < how->once;
        s->ops[u].workspace = how->equal ? 0 : draw(30);
        reads(s, u, value[i]);
        skip[i] = i > 1 && draw(100) < how->skip ? 1 + draw(i - 1) : 0;
        if (skip[i] > 0)
            reads(s, u, value[skip[i]]);
        value[i + 1] = makes(s, u, how->equal ? 64 : draw(200));
        side[i] = draw(100) < how->side ? makes(s, u, 1 + draw(40)) : 0;
    }
    uint32_t turn = add_op(s, 1, true), grad;
    reads(s, turn, value[n]);
    s->values[makes(s, turn, 4)].stays = true;
    grad = makes(s, turn, s->values[value[n]].bytes);
    for (uint32_t i = n; i-- > 0;) {
        uint32_t u = add_op(s, how->equal ? 20 : 1 + draw(200), true);
        reads(s, u, grad);
        reads(s, u, value[i]);
        if (side[i] > 0)
            reads(s, u, side[i]);
        if (skipped[i + 1] > 0)
            reads(s, u, skipped[i + 1] - 1);
        grad = makes(s, u, s->values[value[i]].bytes);
        if (skip[i] > 0 && skipped[skip[i]] == 0)
            skipped[skip[i]] = makes(s, u, s->values[value[skip[i]]].bytes) + 1;
        if (how->weights)
            weight[i] = makes(s, u, 1 + draw(20));
    }
    s->values[grad].stays = true; /* without a weight's gradient this is why the backward runs */
    for (uint32_t i = n; how->weights && i-- > 0;) {
        uint32_t u = add_op(s, 1, true);
        s->ops[u].once = true;
        reads(s, u, weight[i]);
        s->values[makes(s, u, 0)].stays = true;
        s->ops[i].before = u;
    }
    step_finish(s);
}

static inline ebb_remat_weight weigh(step *s, const ebb_remat_schedule *schedule)
{
    ebb_remat_weight w;
    OK(ebb_remat_weigh(&w, NULL, &s->problem, schedule, &s->arena));
    return w;
}

static inline ebb_remat_weight weigh_kept_all(step *s)
{
    ebb_remat_schedule all;
    OK(ebb_remat_keep_all(&all, &s->problem, &s->arena));
    return weigh(s, &all);
}

static inline ebb_remat_weight weigh_plan(step *s, const char *name, uint64_t budget)
{
    ebb_remat_schedule schedule;
    const ebb_planner *planner = ebb_planner_find(name);
    assert_non_null(planner);
    OK(ebb_planner_plan(planner, &schedule, &s->problem, budget, work, &s->arena));
    return weigh(s, &schedule);
}
