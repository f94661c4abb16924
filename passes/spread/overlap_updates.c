/* overlap_updates.c: what is computed of sums goes behind what can be computed beside their exchange.
 *
 *   at the end     w' = update(w, a')  v' = update(v, b')      a was exchanged last: v' first, while it is
 *   behind each    a' = AllReduce(a)  w' = update(w, a')  b = f(...)      (pass release) w' where a' is waited for
 *
 * An update, and what cuts its gradient out of a bucket, goes to the exchange at which `depth` others would be under
 * way. Behind the last exchange all stand in the order of those that they read, since nothing else is left to be
 * computed beside it. Each stays in front of what reads it, and of what writes over a state that it reads.
 */
#include "passes/spread/overlap_updates.h"

#include <stdlib.h>

#include "onnx/graph/place.h"
#include "passes/common.h"
#include "passes/spread/gather_parts.h"

typedef struct place {
    ebb_node node;
    uint32_t slot;  /* 2 * position + 1; or, of what moves, 2 * that of what it goes before */
    uint32_t reads; /* the last exchange that it is made of, from 1 */
    uint32_t at;    /* its position */
    bool is_exchange, moves;
} place;

typedef struct holding {
    const ebb_graph *g;
    ebb_saves saves;
    const uint32_t *at; /* node id -> position */
    place *list;        /* by position */
    uint32_t count, end;
    uint32_t *read;   /* by value id of a state: the last exchange that what reads it is made of */
    ebb_value *state; /* by value id: the state that it replaces */
    uint32_t *over;   /* by value id of a state: the position of what replaces it */
} holding;

static ebb_node maker_of(const ebb_graph *g, ebb_value v)
{
    return v.i == 0 ? EBB_NO_NODE : ebb_value_of(g, v)->producer;
}

static bool is_cut_or_update(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (ebb_body_next(info, NULL) != NULL)
        return false;
    if (ebb_op_moves(info->op))
        return ebb_ends_exchange(g, n);
    return info->op == EBB_OP_SLICE || info->op == EBB_OP_RESHAPE || info->phase == EBB_UPDATE;
}

/* Whether all that read v move. */
static bool goes_along(const holding *h, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(h->g, v);
    bool along = true;
    for (uint32_t u = 0; along && u < info->use_count; u++)
        along = h->list[h->at[info->uses[u].node.i]].moves;
    return along;
}

/* An update does; and what cuts a gradient, if nothing that stays where it is reads that. */
static bool moves(const holding *h, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(h->g, n);
    if (h->list[h->at[n.i]].is_exchange || !is_cut_or_update(h->g, n))
        return false;
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0 &&
            ((ebb_value_of(h->g, info->out[k])->flags & EBB_IS_CAPTURED) != 0 ||
             (info->phase != EBB_UPDATE && !goes_along(h, info->out[k]))))
            return false;
    return true;
}

static ebb_status look(holding *h, ebb_edit *e, const ebb_node *exchanges, size_t count)
{
    const ebb_graph *g = h->g = e->g;
    EBB_TRY(ebb_saves_find(&h->saves, g, e->scratch));
    h->at = ebb_graph_positions(g, e->scratch);
    h->list = EBB_SCRATCH(e, place, g->node_count + (size_t)1);
    h->read = EBB_SCRATCH(e, uint32_t, g->value_count + (size_t)1);
    h->over = EBB_SCRATCH(e, uint32_t, g->value_count + (size_t)1);
    h->state = EBB_SCRATCH(e, ebb_value, g->value_count + (size_t)1);
    EBB_GOT(h->at && h->list && h->read && h->over && h->state);
    EBB_EACH_NODE(g, n) {
        h->list[h->count] = (place){.node = n, .at = h->count, .slot = 2 * h->count + 1};
        h->count++;
    }
    for (size_t i = 0; i < count; i++) {
        place *o = &h->list[h->at[exchanges[i].i]];
        const ebb_op op = ebb_node_of(g, o->node)->op;
        o->is_exchange = true;
        o->reads = op == EBB_OP_UNSHARD || op == EBB_OP_START_UNSHARD ? 0 : (uint32_t)i + 1;
    }
    for (uint32_t p = h->count; p-- > 0;) {
        h->list[p].moves = moves(h, h->list[p].node);
        if (!h->list[p].moves && h->end == 0)
            h->end = p + 1;
    }
    for (size_t i = 0; i < g->binding_count; i++) {
        const ebb_value next = g->bindings[i].next, state = g->bindings[i].state;
        const ebb_node maker = maker_of(g, next);
        h->state[next.i] = state;
        h->over[state.i] = maker.i != 0 ? h->at[maker.i] : 0;
    }
    return NULL;
}

static void at_least(uint32_t *value, uint32_t other)
{
    if (*value < other)
        *value = other;
}

static void at_most(uint32_t *value, uint32_t other)
{
    if (*value > other)
        *value = other;
}

/* Which exchange each waits for: by its operands, and by what reads the states that it replaces. */
static void find_reads(holding *h)
{
    const ebb_graph *g = h->g;
    for (uint32_t p = 0; p < h->count; p++) {
        const ebb_node_info *info = ebb_node_of(g, h->list[p].node);
        uint32_t *reads = &h->list[p].reads;
        for (uint32_t i = 0; i < info->in_count; i++) {
            const ebb_node maker = maker_of(g, info->in[i]);
            if (maker.i != 0)
                at_least(reads, h->list[h->at[maker.i]].reads);
        }
        for (uint32_t k = 0; k < info->out_count; k++)
            at_least(reads, h->read[h->state[info->out[k].i].i]);
        for (uint32_t i = 0; i < info->in_count; i++)
            if (info->in[i].i != 0)
                at_least(&h->read[ebb_saves_root(&h->saves, info->in[i]).i], *reads);
    }
}

/* A sum that no node reads is waited for behind all. */
static bool is_for_output(const ebb_graph *g, ebb_node n)
{
    return ebb_ends_exchange(g, n) && ebb_value_of(g, ebb_out(g, n, 0))->use_count == 0;
}

/* As late as can be: before the exchange that would be one too many, before what reads it, and before what writes over
 * what it reads. */
static void find_slots(holding *h, const ebb_node *exchanges, const size_t *until, size_t count)
{
    const ebb_graph *g = h->g;
    for (uint32_t p = 0; p < h->count; p++) {
        place *o = &h->list[p];
        const size_t next = o->reads != 0 ? until[o->reads - 1] : 0;
        if (o->moves && (p >= h->end || (o->reads != 0 && next + 1 >= count))) {
            o->slot = 2 * h->count;
            if (is_for_output(g, o->node))
                o->reads = UINT32_MAX;
        } else if (o->moves && o->reads != 0)
            at_least(&o->slot, 2 * h->at[exchanges[next].i]);
    }
    for (uint32_t p = h->count; p-- > 0;) {
        const ebb_node_info *info = ebb_node_of(g, h->list[p].node);
        const uint32_t slot = h->list[p].moves ? h->list[p].slot : 2 * p;
        for (uint32_t i = 0; i < info->in_count; i++) {
            const ebb_value v = info->in[i];
            const ebb_node maker = maker_of(g, v);
            const uint32_t over = h->over[ebb_saves_root(&h->saves, v).i];
            if (maker.i != 0 && h->list[h->at[maker.i]].moves)
                at_most(&h->list[h->at[maker.i]].slot, slot);
            if (over > p && h->list[p].moves)
                at_most(&h->list[p].slot, h->list[over].slot);
        }
    }
}

static int by_slot(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    if (x->reads != y->reads)
        return x->reads < y->reads ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

ebb_status ebb_overlap_updates(ebb_edit *e, const ebb_node *exchanges, const size_t *until,
                               size_t count)
{
    holding h = {0};
    EBB_TRY(look(&h, e, exchanges, count));
    find_reads(&h);
    find_slots(&h, exchanges, until, count);
    qsort(h.list, h.count, sizeof *h.list, by_slot);
    for (uint32_t i = 0; i < h.count; i++)
        ebb_node_move(e->g, h.list[i].node, EBB_NO_NODE);
    return NULL;
}
