/* order_cut.c: the best state in which one operator can run.
 *
 * When operator u runs, some operators have run before it. That set D holds with each operator all
 * that must run before it; it holds all that u waits for, and not u. A value is alive in that state
 * if its maker is in D and a reader is not. So the least that can be alive around u, whatever the
 * order, is a minimum cut:
 *
 *     source = what u waits for          p --bytes--> v        v is alive: p in D, a reader not
 *     sink   = u and what waits for it   v --never--> reader   v is dead only if all readers are
 *     free   = all others                r --never--> p        in D; r is in D only with its p
 *
 * In a training step nearly all operators are tied to u one way or the other, so the network is
 * small: gradients of weights and updates of other layers, branches. There may be many minimum
 * cuts. Each operator that changes sides adds a fraction of a byte, so that it is one close to the
 * order as it stands; these are closed under union and intersection: there is a smallest and a
 * largest one.
 *
 * Maximum flow by Dinic's method.
 */
#include <string.h>

#include "passes/budget/planners/order/order.h"

enum { SOURCE = 0, SINK = 1, FREE = 2 }; /* FREE + k: a free operator, or a value */
enum { NOWHERE = UINT32_MAX };

static const uint64_t never = UINT64_C(1) << 62;

struct ebb_order_flow {
    uint32_t *node;  /* by operator: SOURCE, SINK, or FREE + k */
    uint32_t *ops;   /* free operators */
    uint32_t *head;  /* by node: its first edge */
    uint32_t *now;   /* by node: the edge to go on with */
    uint32_t *level; /* by node: distance from the source + 1; 0: not reached */
    uint32_t *queue;
    uint32_t *path;      /* edges */
    uint32_t *next, *to; /* by edge; edge ^ 1 is its reverse */
    uint64_t *left;      /* by edge: capacity that is left */
    bool *seen;          /* by value; all false between uses */
    uint32_t op_count, node_count, edge_count;
    uint32_t shift; /* capacities are bytes << shift */
};

/* Bytes are counted in fractions small enough for all operators, where there is room. */
static uint32_t fraction(const ebb_order *o)
{
    uint64_t most = 1;
    uint32_t shift = 0;
    for (uint32_t v = 0; v < o->p->value_count; v++)
        most += o->p->values[v].bytes < never ? o->p->values[v].bytes / 2 : never / 2;
    while (shift < 20 && (o->n >> shift) != 0 && most < never >> (shift + 2))
        shift++;
    return shift;
}

static ebb_status make_flow(ebb_order *o)
{
    ebb_order_flow *f = EBB_NEW(o->arena, ebb_order_flow, 1);
    EBB_GOT(f);
    size_t nodes = (size_t)o->n + o->p->value_count + FREE + 1;
    size_t edges = nodes;
    for (uint32_t v = 0; v < o->p->value_count; v++)
        edges += (size_t)o->p->values[v].reader_count + 1;
    edges = 2 * (edges + o->pred_from[o->n] + 1);
    f->node = EBB_NEW(o->arena, uint32_t, (size_t)o->n + 1);
    f->ops = EBB_NEW(o->arena, uint32_t, (size_t)o->n + 1);
    f->head = EBB_NEW(o->arena, uint32_t, nodes);
    f->now = EBB_NEW(o->arena, uint32_t, nodes);
    f->level = EBB_NEW(o->arena, uint32_t, nodes);
    f->queue = EBB_NEW(o->arena, uint32_t, nodes);
    f->path = EBB_NEW(o->arena, uint32_t, nodes);
    f->next = EBB_NEW(o->arena, uint32_t, edges);
    f->to = EBB_NEW(o->arena, uint32_t, edges);
    f->left = EBB_NEW(o->arena, uint64_t, edges);
    f->seen = EBB_NEW(o->arena, bool, (size_t)o->p->value_count + 1);
    EBB_GOT(f->node && f->ops && f->head && f->now && f->level && f->queue && f->path && f->next &&
            f->to && f->left && f->seen);
    f->shift = fraction(o);
    o->flow = f;
    return NULL;
}

/* ---- the network ---- */

/* Sides of the operators around seq[at]; false where none is free. */
static bool take_sides(ebb_order *o, ebb_order_flow *f, const uint32_t *seq, uint32_t at,
                       uint32_t reach)
{
    uint32_t from = at > reach ? at - reach : 0;
    uint32_t until = o->n - at > reach ? at + reach : o->n;
    f->op_count = 0;
    for (uint32_t i = 0; i < o->n; i++)
        f->node[seq[i]] = i < from ? SOURCE : i >= until ? SINK : FREE;
    f->node[seq[at]] = SINK;
    for (uint32_t i = at + 1; i-- > from;) {
        uint32_t u = seq[i];
        if (i == at || f->node[u] == SOURCE)
            for (uint32_t k = o->pred_from[u]; k < o->pred_from[u + 1]; k++)
                f->node[o->pred[k]] = SOURCE;
        o->work += o->pred_from[u + 1] - o->pred_from[u] + 1;
    }
    for (uint32_t i = at; i < until; i++) {
        uint32_t u = seq[i];
        if (f->node[u] == SINK)
            for (uint32_t k = o->succ_from[u]; k < o->succ_from[u + 1]; k++)
                f->node[o->succ[k]] = SINK;
        o->work += o->succ_from[u + 1] - o->succ_from[u] + 1;
    }
    for (uint32_t i = from; i < until; i++)
        if (f->node[seq[i]] == FREE) {
            f->node[seq[i]] = FREE + f->op_count;
            f->ops[f->op_count++] = seq[i];
        }
    o->work += o->n / 4;
    f->node_count = FREE + f->op_count;
    f->edge_count = 0;
    for (uint32_t k = 0; k < f->node_count; k++)
        f->head[k] = NOWHERE;
    return f->op_count > 0;
}

static void link(ebb_order_flow *f, uint32_t from, uint32_t to, uint64_t capacity)
{
    uint32_t e = f->edge_count;
    f->to[e] = to;
    f->left[e] = capacity < never ? capacity : never;
    f->next[e] = f->head[from];
    f->head[from] = e;
    f->to[e + 1] = from;
    f->left[e + 1] = 0;
    f->next[e + 1] = f->head[to];
    f->head[to] = e + 1;
    f->edge_count += 2;
}

/* Value v has a free operator among its maker and readers. */
static void link_value(ebb_order *o, ebb_order_flow *f, uint32_t v)
{
    const ebb_remat_value *value = &o->p->values[v];
    uint32_t maker = value->op == EBB_REMAT_NONE ? (uint32_t)SOURCE : f->node[value->op];
    uint32_t readers = 0, one = 0;
    bool stays = value->stays;
    o->work += value->reader_count + 1;
    for (uint32_t k = 0; k < value->reader_count; k++) {
        uint32_t reader = f->node[value->readers[k]];
        stays = stays || reader == SINK;
        readers += reader >= FREE;
        one = reader >= FREE ? reader : one;
    }
    if (maker == SINK || (stays && maker == SOURCE))
        return; // dead, or alive, in any case
    if (stays) {
        link(f, maker, SINK, value->bytes << f->shift);
    } else if (readers == 1) {
        link(f, maker, one, value->bytes << f->shift);
    } else if (readers > 1) {
        uint32_t node = f->node_count++;
        f->head[node] = NOWHERE;
        link(f, maker, node, value->bytes << f->shift);
        for (uint32_t k = 0; k < value->reader_count; k++)
            if (f->node[value->readers[k]] >= FREE)
                link(f, node, f->node[value->readers[k]], never);
    }
}

static void link_all(ebb_order *o, ebb_order_flow *f, uint32_t at)
{
    for (uint32_t i = 0; i < f->op_count; i++) {
        uint32_t u = f->ops[i];
        const ebb_remat_op *op = &o->p->ops[u];
        if (o->position[u] < at)
            link(f, SOURCE, f->node[u], 1);
        else
            link(f, f->node[u], SINK, 1);
        for (uint32_t k = o->pred_from[u]; k < o->pred_from[u + 1]; k++)
            if (f->node[o->pred[k]] >= FREE)
                link(f, f->node[u], f->node[o->pred[k]], never);
        for (uint32_t k = 0; k < op->in_count + op->out_count; k++) {
            uint32_t v = k < op->in_count ? op->in[k] : op->out[k - op->in_count];
            if (!f->seen[v])
                link_value(o, f, v);
            f->seen[v] = true;
        }
    }
    for (uint32_t i = 0; i < f->op_count; i++) {
        const ebb_remat_op *op = &o->p->ops[f->ops[i]];
        for (uint32_t k = 0; k < op->in_count; k++)
            f->seen[op->in[k]] = false;
        for (uint32_t k = 0; k < op->out_count; k++)
            f->seen[op->out[k]] = false;
    }
}

/* ---- maximum flow ---- */

/* Nodes that the source reaches (forward), or that reach the sink. */
static void walk(ebb_order *o, ebb_order_flow *f, uint32_t from, bool forward)
{
    uint32_t head = 0, tail = 0;
    memset(f->level, 0, f->node_count * sizeof *f->level);
    f->level[from] = 1;
    f->queue[tail++] = from;
    while (head < tail) {
        uint32_t a = f->queue[head++];
        for (uint32_t e = f->head[a]; e != NOWHERE; e = f->next[e]) {
            o->work++;
            if (f->left[forward ? e : e ^ 1] == 0 || f->level[f->to[e]] != 0)
                continue;
            f->level[f->to[e]] = f->level[a] + 1;
            f->queue[tail++] = f->to[e];
        }
    }
}

/* Sends flow along shortest ways until there is none of that length. */
static void send(ebb_order *o, ebb_order_flow *f)
{
    uint32_t depth = 0, a = SOURCE;
    memcpy(f->now, f->head, f->node_count * sizeof *f->now);
    while (!ebb_order_spent(o)) {
        if (a == SINK) {
            uint64_t least = UINT64_MAX;
            uint32_t cut = 0;
            for (uint32_t k = 0; k < depth; k++)
                if (f->left[f->path[k]] < least) {
                    least = f->left[f->path[k]];
                    cut = k;
                }
            for (uint32_t k = 0; k < depth; k++) {
                f->left[f->path[k]] -= least;
                f->left[f->path[k] ^ 1] += least;
            }
            o->work += 2 * (uint64_t)depth;
            depth = cut; // back to before the edge that is full now
            a = f->to[f->path[cut] ^ 1];
            continue;
        }
        uint32_t e = f->now[a];
        o->work++;
        if (e == NOWHERE) {
            if (depth == 0)
                return;
            a = f->to[f->path[--depth] ^ 1];
            f->now[a] = f->next[f->now[a]];
        } else if (f->left[e] > 0 && f->level[f->to[e]] == f->level[a] + 1) {
            f->path[depth++] = e;
            a = f->to[e];
        } else {
            f->now[a] = f->next[e];
        }
    }
}

ebb_status ebb_order_cut(ebb_order *o, const uint32_t *seq, uint32_t at, uint32_t reach,
                         bool *small, bool *large, bool *found)
{
    *found = false;
    if (o->flow == NULL)
        EBB_TRY(make_flow(o));
    ebb_order_flow *f = o->flow;
    if (!take_sides(o, f, seq, at, reach))
        return NULL;
    link_all(o, f, at);
    uint64_t limit = o->limit, most = o->work + (o->limit - o->work) / 8;
    o->limit = o->work < o->limit ? most : o->limit; // no single cut takes all that is left
    for (walk(o, f, SOURCE, true); f->level[SINK] != 0 && !ebb_order_spent(o);
         walk(o, f, SOURCE, true))
        send(o, f);
    bool done = !ebb_order_spent(o);
    o->limit = limit;
    if (!done)
        return NULL;
    for (uint32_t u = 0; u < o->n; u++)
        small[u] = f->node[u] == SOURCE || (f->node[u] >= FREE && f->level[f->node[u]] != 0);
    walk(o, f, SINK, false);
    for (uint32_t u = 0; u < o->n; u++)
        large[u] = f->node[u] == SOURCE || (f->node[u] >= FREE && f->level[f->node[u]] == 0);
    o->work += o->n;
    *found = true;
    return NULL;
}
