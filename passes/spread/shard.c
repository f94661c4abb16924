/* shard: each process keeps and updates its part of what the optimizer keeps.
 *
 *   before   g = AllReduce(d)                     w', m', v' = AdamW(w, g, m, v)       m, v: [n]
 *   after    s = ReduceScatter(d)  u = Shard(w)   u', m', v' = AdamW(u, s, m, v)       m, v: [n / ranks]
 *                                                 w' = AllGather(u', w)
 *
 * With the states the gradient's sum is there in parts alone, and the whole gradient of a process goes when
 * it has given its parts: what ZeRO calls stages 1 and 2 is one thing where nodes have an order. The bytes
 * sent are those of before: an AllReduce is a ReduceScatter and an AllGather.
 *
 * A part is ceil(n / ranks) elements of the tensor in one row, the last filled up with zeros. The step
 * that uses the gradient must be computed element by element, as SGD, momentum, Adam and AdamW are, and
 * those made of standard nodes: then each element has the bits that it had. A state that starts as zeros
 * gets the shape of the part, and metadata that says its own (onnx/graph/place.h), by which checkpoints
 * have it whole. Another (an average that starts as w) stays whole where w does, and is cut in each step, as w is.
 *
 * what=parameters: so it is with the weights (ZeRO's stage 3). Each process has its part of them, which the
 * model's initialization graph cuts, and they are put together before their readers, let go, and put together anew
 * for the backward:
 *
 *   W = Unshard(w)   y = f(x, W)   ...   W' = Unshard(w)   dx = g(dy, W')   ...   w', m', v' = AdamW(w, s, m, v)
 *
 * Adapters stay whole, and what a subgraph reads. A gradient that is made of sums, alike in all processes (of a table
 * that all rows look up alike), is cut where it is there:  s = Shard(g).
 *
 * Rounding: the norm of all gradients is made of sums of parts. All else is exact.
 *
 * Declines small gradients, and those that someone wants whole: a graph output, an update by rows and
 * columns (Adafactor) or by products (Muon).
 */
#include <stdio.h>

#include "onnx/graph/infer.h"
#include "onnx/graph/place.h"
#include "passes/common.h"
#include "passes/spread/shard_parts.h"

typedef struct sharding {
    ebb_edit *e;
    ebb_graph *g;
    size_t value_count, node_count; /* of before */
    ebb_value *part;                /* by value id: this process's; none: it is whole */
    const ebb_type **whole;         /* by value id: of a weight that is there in parts */
    bool weights;                   /* they are to be */
    uint32_t *reached;              /* by node id: the gradient whose step it is in, from 1 */
    ebb_value *list;                /* values to look at */
    ebb_build b;
} sharding;

/* ---- which gradients ---- */

static bool is_one(const ebb_graph *g, ebb_value v)
{
    int64_t n;
    return ebb_type_elements(ebb_value_of(g, v)->type, &n) && n == 1;
}

/* Of the same elements in the same order. */
static bool is_like(const ebb_graph *g, ebb_value v, const ebb_type *like)
{
    const ebb_type *t = ebb_value_of(g, v)->type;
    return ebb_type_same_shape(t, like) && t->layout.kind == EBB_LAYOUT_PLAIN;
}

/* Of all elements: the norm of the gradients. */
static bool is_sum_of_squares(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->op == EBB_OP_REDUCE_SUM_SQUARE && is_one(g, ebb_out(g, n, 0));
}

static bool is_by_element(const ebb_graph *g, ebb_node n, const ebb_type *like)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    bool is = (ebb_op_has(info->op, EBB_POINTWISE) || ebb_op_has(info->op, EBB_UPDATES)) &&
              !ebb_op_has(info->op, EBB_RANDOM);
    for (uint32_t i = 0; i < info->in_count; i++)
        is = is && (info->in[i].i == 0 || is_one(g, info->in[i]) || is_like(g, info->in[i], like));
    for (uint32_t k = 0; k < info->out_count; k++)
        is = is && (info->out[k].i == 0 || is_like(g, info->out[k], like));
    return is;
}

static const char for_others[] = "it is no gradient: others are made of it";

/* All that is computed of a gradient, by nodes marked `mark`; or why it must be whole. */
static const char *follow(sharding *s, ebb_value grad, uint32_t mark)
{
    const ebb_graph *g = s->g;
    const ebb_type *like = ebb_value_of(g, grad)->type;
    size_t count = 1;
    s->list[0] = grad;
    while (count > 0) {
        const ebb_value_info *info = ebb_value_of(g, s->list[--count]);
        if ((info->flags & (EBB_IS_OUTPUT | EBB_IS_CAPTURED)) != 0)
            return "an output of the graph is made of it";
        for (uint32_t u = 0; u < info->use_count; u++) {
            const ebb_node n = info->uses[u].node;
            if (s->reached[n.i] == mark)
                continue;
            if (s->reached[n.i] != 0)
                return "another gradient is in its step";
            const bool ends = is_sum_of_squares(g, n);
            if (!ends && !is_by_element(g, n, like))
                return ebb_node_of(g, n)->phase != EBB_UPDATE
                           ? for_others
                           : "what is computed of it is not computed element by element";
            s->reached[n.i] = mark;
            for (uint32_t k = 0; !ends && k < ebb_node_of(g, n)->out_count; k++)
                if (ebb_out(g, n, k).i != 0)
                    s->list[count++] = ebb_out(g, n, k);
        }
    }
    return NULL;
}

static void forget(sharding *s, uint32_t mark)
{
    for (size_t n = 0; n < s->node_count; n++)
        if (s->reached[n] == mark)
            s->reached[n] = 0;
}

/* ---- a part of what is whole ---- */

static ebb_type part_type(const ebb_type *whole, int64_t ranks)
{
    int64_t n = 0;
    const bool known = ebb_type_elements(whole, &n);
    const int64_t length = known ? n / ranks + (n % ranks != 0) : -1;
    return ebb_type_tensor((ebb_dtype)whole->dtype, 1, &length);
}

/* The weight of which a state is the running average: "layer.weight" of "layer.weight.ema"; none. */
static ebb_value averaged_by(const ebb_graph *g, ebb_value state)
{
    char name[560];
    (void)snprintf(name, sizeof name, "%.550s", ebb_value_name(g, state));
    char *dot = strrchr(name, '.');
    if (dot == NULL || strcmp(dot, ".ema") != 0)
        return EBB_NO_VALUE;
    *dot = '\0';
    return ebb_value_find(g, name);
}

/* Adapters are saved, and added to what they adapt, by themselves. */
static bool is_adapter(const ebb_graph *g, ebb_value v)
{
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_props *props = &ebb_value_of(g, g->initializers[i])->props;
        const char *a = ebb_props_get(g, props, "ebb.adapter.a");
        if (a != NULL &&
            (ebb_same_value(g->initializers[i], v) || strcmp(a, ebb_value_name(g, v)) == 0))
            return true;
    }
    return false;
}

/* One that the steps of gradients alone replace, and that nobody asks for by its name. */
static bool is_replaced_here(const sharding *s, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(s->g, v);
    const ebb_value next = ebb_graph_bound(s->g, v);
    return next.i != 0 && next.i < s->value_count && info->tensor != NULL &&
           (info->flags & (EBB_IS_OUTPUT | EBB_IS_INPUT | EBB_IS_CAPTURED)) == 0 &&
           s->reached[ebb_value_of(s->g, next)->producer.i] != 0;
}

/* A state of the optimizer that its step alone reads, and that starts as zeros. An average goes with its weight,
 * in whose place it is saved. */
static bool is_state_of_parts(const sharding *s, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(s->g, v);
    if (info->role != EBB_ROLE_OPTIMIZER || !is_replaced_here(s, v))
        return false;
    for (uint32_t u = 0; u < info->use_count; u++)
        if (info->uses[u].node.i >= s->node_count || s->reached[info->uses[u].node.i] == 0)
            return false;
    const ebb_value w = averaged_by(s->g, v);
    return w.i == 0 ? ebb_starts_as_zeros(s->g, v) : w.i < s->value_count && s->whole[w.i] != NULL;
}

static bool is_weight_of_parts(const sharding *s, ebb_value v)
{
    return s->weights && ebb_value_of(s->g, v)->role == EBB_ROLE_PARAMETER &&
           is_replaced_here(s, v) && !is_adapter(s->g, v);
}

static ebb_status keep_part(const sharding *s, ebb_value v, int64_t ranks)
{
    const ebb_type *whole = ebb_value_of(s->g, v)->type, part = part_type(whole, ranks);
    EBB_TRY(ebb_part_mark(s->g, v, whole));
    return ebb_shard_start(s->g, v, &part, ranks);
}

/* What node n reads instead of v. */
static ebb_status part_of(sharding *s, ebb_node n, ebb_value v, int64_t ranks, ebb_value *part)
{
    *part = v;
    if (v.i == 0 || is_one(s->g, v))
        return NULL;
    if (s->part[v.i].i != 0)
        return *part = s->part[v.i], NULL;
    if (is_weight_of_parts(s, v))
        s->whole[v.i] = ebb_value_of(s->g, v)->type;
    if (s->whole[v.i] != NULL || is_state_of_parts(s, v)) {
        s->part[v.i] = v;
        return keep_part(s, v, ranks);
    }
    s->b.before = n;
    s->b.name = ebb_value_name(s->g, v);
    ebb_with_int(&s->b, "ranks", ranks);
    *part = s->part[v.i] = ebb_emit(&s->b, EBB_OP_SHARD, v);
    return s->b.status;
}

/* ---- one node ---- */

/* The state that a binding replaces by v; none. */
static ebb_value replaced_by(const ebb_graph *g, ebb_value v)
{
    for (size_t i = 0; ebb_value_is_bound(g, v) && i < g->binding_count; i++)
        if (ebb_same_value(g->bindings[i].next, v))
            return g->bindings[i].state;
    return EBB_NO_VALUE;
}

/* What replaces a whole state is put together of its parts, under its name. */
static ebb_status gather(sharding *s, ebb_node n, ebb_value v, int64_t ranks)
{
    ebb_graph *g = s->g;
    const ebb_value state = replaced_by(g, v);
    const char *name = ebb_value_name(g, v);
    char aside[580];
    if (state.i == 0 || ebb_same_value(s->part[state.i], state))
        return NULL;
    (void)snprintf(aside, sizeof aside, "%.550s/part", name);
    EBB_TRY(ebb_value_step_aside(g, v, aside));
    s->b.before = ebb_next(g, n);
    s->b.name = ebb_value_name(g, state);
    ebb_with_int(&s->b, "ranks", ranks);
    ebb_with_name(&s->b, name);
    const ebb_value whole = ebb_emit(&s->b, EBB_OP_ALL_GATHER, v, state);
    EBB_TRY(s->b.status);
    return ebb_graph_bind(g, state, whole);
}

/* The sum over a part becomes that over all. */
static ebb_status sum_squares(sharding *s, ebb_node n, int64_t ranks)
{
    ebb_graph *g = s->g;
    const ebb_value old = ebb_out(g, n, 0);
    s->b.before = n;
    s->b.name = ebb_value_name(g, old);
    ebb_with_int(&s->b, "keepdims", 0);
    ebb_value sum = ebb_emit(&s->b, EBB_OP_REDUCE_SUM_SQUARE, s->part[ebb_in(g, n, 0).i]);
    sum = ebb_emit_reshape_like(&s->b, sum, old);
    ebb_with_int(&s->b, "ranks", ranks);
    sum = ebb_emit(&s->b, EBB_OP_ALL_REDUCE, sum);
    EBB_TRY(s->b.status);
    return ebb_edit_swap(s->e, n, sum);
}

static ebb_status compute_part(sharding *s, ebb_node n, int64_t ranks)
{
    ebb_graph *g = s->g;
    s->b.phase = (ebb_phase)ebb_node_of(g, n)->phase;
    if (is_sum_of_squares(g, n))
        return sum_squares(s, n, ranks);
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        ebb_value part;
        EBB_TRY(part_of(s, n, ebb_in(g, n, i), ranks, &part));
        EBB_TRY(ebb_node_set_input(g, n, i, part));
    }
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++) {
        const ebb_value v = ebb_out(g, n, k);
        if (v.i == 0)
            continue;
        const ebb_type type = part_type(ebb_value_of(g, v)->type, ranks);
        EBB_TRY(ebb_value_set_type(g, v, &type));
        s->part[v.i] = v;
    }
    EBB_TRY(ebb_infer_node(g, n));
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++)
        if (ebb_out(g, n, k).i != 0)
            EBB_TRY(gather(s, n, ebb_out(g, n, k), ranks));
    return NULL;
}

/* ---- the step ---- */

static bool is_sum(const ebb_graph *g, ebb_value v)
{
    return ebb_producer_op(g, v) == EBB_OP_ALL_REDUCE;
}

static ebb_status scatter(sharding *s, ebb_value grad, int64_t ranks)
{
    ebb_graph *g = s->g;
    const ebb_node n = ebb_value_of(g, grad)->producer;
    s->b.before = is_sum(g, grad) ? n : ebb_next(g, n);
    s->b.phase = (ebb_phase)ebb_node_of(g, n)->phase;
    s->b.name = ebb_value_name(g, grad);
    ebb_with_int(&s->b, "ranks", ranks);
    s->part[grad.i] = is_sum(g, grad) ? ebb_emit(&s->b, EBB_OP_REDUCE_SCATTER, ebb_in(g, n, 0))
                                      : ebb_emit(&s->b, EBB_OP_SHARD, grad);
    EBB_TRY(s->b.status);
    ebb_applied(s->e);
    return NULL;
}

static bool is_read_by_update(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    for (uint32_t u = 0; u < info->use_count; u++)
        if (ebb_node_of(g, info->uses[u].node)->phase == EBB_UPDATE)
            return true;
    return false;
}

/* A sum of all processes', or what the backward makes of such. What is small (a count, a loss) is no site. */
static bool is_gradient(const sharding *s, ebb_value v, int64_t ranks)
{
    int64_t elements;
    const ebb_type *type = ebb_value_of(s->g, v)->type;
    const ebb_node n = ebb_value_of(s->g, v)->producer;
    const ebb_op op = ebb_node_of(s->g, n)->op;
    if (ranks < 2 || v.i == 0 || !ebb_type_elements(type, &elements) ||
        !ebb_dtype_is_float((ebb_dtype)type->dtype) || elements < ranks ||
        elements < ebb_option_int(s->e, "least") || s->reached[n.i] != 0)
        return false;
    return is_sum(s->g, v) || (ebb_node_of(s->g, n)->phase == EBB_BACKWARD && op != EBB_OP_WAIT &&
                               !ebb_op_has(op, EBB_TOGETHER) && is_read_by_update(s->g, v));
}

static ebb_status find_in(sharding *s, ebb_node n, int64_t ranks, uint32_t *mark)
{
    for (uint32_t k = 0; k < ebb_node_of(s->g, n)->out_count; k++) {
        const ebb_value v = ebb_out(s->g, n, k);
        if (!is_gradient(s, v, ranks))
            continue;
        const char *why = follow(s, v, ++*mark);
        if (why != NULL)
            forget(s, *mark);
        if (why == for_others)
            continue;
        ebb_found(s->e);
        EBB_TRY(why != NULL ? ebb_skipped(s->e, n, why) : scatter(s, v, ranks));
    }
    return NULL;
}

static ebb_status find(sharding *s, int64_t *ranks)
{
    uint32_t mark = 0;
    EBB_EACH_NODE(s->g, n) {
        if (ebb_node_of(s->g, n)->op == EBB_OP_ALL_REDUCE)
            *ranks = ebb_ranks_of(s->g, n);
        if (n.i < s->node_count)
            EBB_TRY(find_in(s, n, *ranks, &mark));
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    sharding s = {.e = e, .g = g, .value_count = g->value_count, .node_count = g->node_count};
    int64_t ranks = 1;
    EBB_TRY(ebb_require_static(g));
    s.part = EBB_SCRATCH(e, ebb_value, g->value_count);
    s.list = EBB_SCRATCH(e, ebb_value, g->value_count + 1);
    s.whole = EBB_SCRATCH(e, const ebb_type *, g->value_count);
    s.weights = strcmp(ebb_option_string(e, "what"), "parameters") == 0;
    s.reached = EBB_SCRATCH(e, uint32_t, 2 * g->node_count); // those that are made as well
    EBB_GOT(s.part && s.list && s.whole && s.reached);
    s.b = ebb_edit_build(e, EBB_NO_NODE, EBB_UPDATE);
    EBB_TRY(find(&s, &ranks));
    EBB_EACH_NODE(g, n)
        if (n.i < s.node_count && s.reached[n.i] != 0)
            EBB_TRY(compute_part(&s, n, ranks));
    const ebb_shard_weights weights = {.e = e,
                                       .whole = s.whole,
                                       .reached = s.reached,
                                       .value_count = s.value_count,
                                       .node_count = s.node_count,
                                       .ranks = ranks,
                                       .once = strcmp(ebb_option_string(e, "again"), "fit") == 0};
    return s.weights ? ebb_shard_join(&weights) : NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"what",  EBB_OPTION_CHOICE, "states", "states|parameters", "of the optimizer's states alone, or of the weights, too"},
    {"again", EBB_OPTION_CHOICE, "always", "always|fit",        "weights are put together anew for the backward; fit: where a budget asks for it"},
    {"least", EBB_OPTION_INT,    "256",    "[1, inf)",          "gradients of fewer elements stay whole"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_shard = {
    .name = "shard",
    .doc = "each process keeps and updates its part of the optimizer's states and gradients, or of "
           "the weights, too",
    .paper = "Rajbhandari et al., ZeRO, SC 2020",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
