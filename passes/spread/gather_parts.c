/* gather_parts.c: see gather_parts.h.
 *
 *   before   s = ReduceScatter(d)  u = Shard(w)  u', m' = Momentum(u, s, m)  w' = AllGather(u', w)     m: [n / ranks]
 *   after    s = AllReduce(d)                    w', m' = Momentum(w, s, m)                            m: [n]
 */
#include "passes/spread/gather_parts.h"

#include <stdio.h>

#include "onnx/graph/infer.h"
#include "onnx/graph/place.h"
#include "passes/spread/shard_parts.h"

/* ---- what is what ---- */

bool ebb_ends_exchange(const ebb_graph *g, ebb_node n)
{
    const ebb_op op = ebb_producer_op(g, ebb_in(g, n, 0));
    return ebb_node_of(g, n)->op == EBB_OP_WAIT && ebb_op_has(op, EBB_TOGETHER);
}

static bool is_one(const ebb_graph *g, ebb_value v)
{
    int64_t n;
    return ebb_type_elements(ebb_value_of(g, v)->type, &n) && n == 1;
}

/* What a node makes of parts. */
static ebb_held of_parts(const ebb_graph *g, ebb_node n, const char **why)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    const bool adds = op == EBB_OP_REDUCE_SUM_SQUARE || op == EBB_OP_REDUCE_SUM;
    if (adds && is_one(g, ebb_out(g, n, 0)))
        return EBB_HELD_SHARE;
    if (!ebb_op_has(op, EBB_POINTWISE) && !ebb_op_has(op, EBB_UPDATES))
        *why = "it reads a part of a tensor, and is not computed element by element";
    return EBB_HELD_PART;
}

/* A bucket has such numbers beside gradients. */
static ebb_held of_shares(const ebb_graph *g, ebb_node n, bool all, const char **why)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    if (op != EBB_OP_RESHAPE && op != EBB_OP_CONCAT)
        *why = "it reads a sum over a part of a tensor, and is no sum over all";
    return all ? EBB_HELD_SHARE : EBB_HELD_OWN;
}

static ebb_held of_inputs(const ebb_held *held, const ebb_graph *g, ebb_node n, const char **why)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    uint32_t count[EBB_HELD_SHARE + 1] = {0};
    for (uint32_t i = 0; i < info->in_count; i++)
        if (info->in[i].i != 0 && (info->op != EBB_OP_RESHAPE || i == 0))
            count[held[info->in[i].i]]++;
    const uint32_t others = count[EBB_HELD_OWN] + count[EBB_HELD_SHARE];
    if (count[EBB_HELD_PART] > 0 && others > 0)
        *why = "it reads a part of a tensor beside what each process has";
    if (count[EBB_HELD_PART] > 0)
        return of_parts(g, n, why);
    if (count[EBB_HELD_SHARE] > 0)
        return of_shares(g, n, others + count[EBB_HELD_SAME] == count[EBB_HELD_SHARE], why);
    return count[EBB_HELD_OWN] > 0 ? EBB_HELD_OWN : EBB_HELD_SAME;
}

static ebb_held of_node(const ebb_held *held, const ebb_graph *g, ebb_node n, int64_t ranks,
                        const char **why)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    if (ebb_op_has(op, EBB_TOGETHER) && ebb_ranks_of(g, n) != ranks)
        *why = "it is for another number of processes than the one before it";
    switch (op) {
    case EBB_OP_RANK:
        return EBB_HELD_OWN;
    case EBB_OP_ALL_REDUCE:
    case EBB_OP_START_ALL_REDUCE:
    case EBB_OP_ALL_GATHER:
    case EBB_OP_UNSHARD:
    case EBB_OP_START_UNSHARD:
        return EBB_HELD_SAME;
    case EBB_OP_SHARD:
    case EBB_OP_REDUCE_SCATTER:
    case EBB_OP_START_REDUCE_SCATTER:
        return EBB_HELD_PART;
    case EBB_OP_WAIT:
        if (ebb_ends_exchange(g, n))
            return held[ebb_in(g, n, 0).i];
        break;
    default:
        break;
    }
    if (ebb_op_moves(op))
        *why = "what it moves would be moved by each: pass gather comes before offload";
    return of_inputs(held, g, n, why);
}

static const char *check_ends(const ebb_held *held, const ebb_graph *g)
{
    EBB_EACH_VALUE(g, v)
        if (held[v.i] != EBB_HELD_SAME && (ebb_value_of(g, v)->flags & EBB_IS_CAPTURED) != 0)
            return "a subgraph reads what each process has";
    for (size_t i = 0; i < g->binding_count; i++)
        if (held[g->bindings[i].next.i] != held[g->bindings[i].state.i])
            return "a state is replaced by what each process has";
    for (size_t i = 0; i < g->output_count; i++) {
        const ebb_value v = g->outputs[i];
        if (held[v.i] != EBB_HELD_SAME && (held[v.i] != EBB_HELD_OWN || ebb_rows_axis(g, v) < 0))
            return "an output is what each process has, and no rows of the batch";
    }
    return NULL;
}

void ebb_held_find(ebb_held *held, const ebb_graph *g, int64_t ranks, const char **why,
                   ebb_node *at)
{
    ebb_type whole;
    bool any = false;
    *why = NULL;
    *at = EBB_NO_NODE;
    for (size_t i = 0; i < g->input_count; i++)
        if (ebb_rows_axis(g, g->inputs[i]) >= 0)
            held[g->inputs[i].i] = any = EBB_HELD_OWN;
    if (!any)
        *why = "no input says that it has the rows of one process";
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value v = g->initializers[i];
        if (!ebb_is_part(g, v))
            continue;
        held[v.i] = EBB_HELD_PART;
        if (!ebb_part_whole(&whole, g, v, ranks))
            *why = "a weight or state is no part of a tensor for so many processes";
    }
    EBB_EACH_NODE(g, n) {
        if (*why != NULL)
            return;
        *at = n;
        const ebb_held made = of_node(held, g, n, ranks, why);
        for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++)
            held[ebb_out(g, n, k).i] = made;
        held[0] = EBB_HELD_SAME;
    }
    *at = EBB_NO_NODE;
    *why = check_ends(held, g);
}

/* ---- parts become whole ---- */

static ebb_op at_once(ebb_op op)
{
    return op == EBB_OP_START_ALL_REDUCE       ? EBB_OP_ALL_REDUCE
           : op == EBB_OP_START_REDUCE_SCATTER ? EBB_OP_REDUCE_SCATTER
                                               : EBB_OP_UNSHARD;
}

/* The exchange is made where it was begun. */
static ebb_status end_at_once(ebb_edit *e, ebb_node wait)
{
    ebb_graph *g = e->g;
    const ebb_value begun = ebb_in(g, wait, 0);
    const ebb_node start = ebb_value_of(g, begun)->producer;
    EBB_TRY(ebb_node_set_op(g, start, at_once(ebb_node_of(g, start)->op)));
    return ebb_edit_swap(e, wait, begun);
}

/* `with` is what n made, and has its name where it was made itself. */
static ebb_status stand_for(ebb_edit *e, ebb_node n, ebb_value with)
{
    ebb_graph *g = e->g;
    const ebb_value old = ebb_out(g, n, 0);
    const char *name = ebb_value_name(g, old);
    const bool is_made = ebb_value_of(g, with)->producer.i != 0 &&
                         (ebb_value_of(g, with)->flags & EBB_IS_OUTPUT) == 0;
    EBB_TRY(ebb_edit_swap(e, n, with));
    return is_made && ebb_value_find(g, name).i != 0 ? ebb_value_take_name(g, with, old) : NULL;
}

static ebb_status sum_whole(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    EBB_TRY(ebb_node_set_op(g, n, EBB_OP_ALL_REDUCE));
    return ebb_value_set_type(g, ebb_out(g, n, 0), ebb_value_of(g, ebb_in(g, n, 0))->type);
}

/* Element by element: what it makes has the shape of what it reads. */
static ebb_status compute_whole(ebb_graph *g, const ebb_held *held, ebb_node n)
{
    ebb_type like = {0};
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        const ebb_value v = ebb_in(g, n, i);
        if (held[v.i] == EBB_HELD_PART && !is_one(g, v))
            like = *ebb_value_of(g, v)->type;
    }
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++) {
        const ebb_value v = ebb_out(g, n, k);
        if (held[v.i] != EBB_HELD_PART)
            continue;
        like.dtype = ebb_value_of(g, v)->type->dtype;
        EBB_TRY(ebb_value_set_type(g, v, &like));
    }
    return ebb_infer_node(g, n);
}

static ebb_status make_whole(ebb_edit *e, const ebb_held *held, ebb_node n)
{
    ebb_graph *g = e->g;
    const ebb_value x = ebb_in(g, n, 0);
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_REDUCE_SCATTER:
        return sum_whole(e, n);
    case EBB_OP_UNSHARD:
        return held[x.i] != EBB_HELD_OWN ? stand_for(e, n, x) : NULL;
    case EBB_OP_SHARD:
    case EBB_OP_ALL_GATHER:
        return stand_for(e, n, x);
    case EBB_OP_ALL_REDUCE:
        return held[x.i] == EBB_HELD_SHARE ? stand_for(e, n, x) : NULL;
    default:
        return held[ebb_out(g, n, 0).i] == EBB_HELD_PART ? compute_whole(g, held, n) : NULL;
    }
}

ebb_status ebb_parts_whole(ebb_edit *e, const ebb_held *held, int64_t ranks)
{
    ebb_graph *g = e->g;
    EBB_EACH_NODE(g, n)
        if (ebb_ends_exchange(g, n))
            EBB_TRY(end_at_once(e, n));
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_type whole;
        if (ebb_part_whole(&whole, g, g->initializers[i], ranks))
            EBB_TRY(ebb_whole_start(g, g->initializers[i], &whole));
    }
    EBB_EACH_NODE(g, n)
        EBB_TRY(make_whole(e, held, n));
    return NULL;
}
