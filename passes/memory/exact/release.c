/* release: a parameter is updated as soon as its gradient is complete, so the gradient dies at
 * once.
 *
 *   before   dw2 = ..  dw1 = ..  w2' = Sgd(w2, dw2)  w1' = Sgd(w1, dw1)     all gradients pile up
 *   after    dw2 = ..  w2' = Sgd(w2, dw2)  dw1 = ..  w1' = Sgd(w1, dw1)     one is there at a time
 *
 * An update moves up to what it waits for: its operands, and the last read of each state that it
 * writes over, by the backward or by what the backward runs again. Nodes of the update phase
 * between the gradient and the update move along; what they share (a power of the step count) moves
 * before the first that reads it. What writes over ebb.step stays behind all that read it.
 *
 * Exact: nodes move, and each still reads what it read.
 *
 * Declines where an update reads a number made from other gradients, as when they are clipped by
 * their global norm: then all are needed before the first may go. And where the new parameter gets
 * memory of its own: an early one would take what the gradient leaves.
 *
 * Paper: Lv et al., "Full parameter fine-tuning for large language models with limited resources",
 * 2023 (fusing gradient and update).
 */
#include "passes/common.h"

enum { MANY = UINT32_MAX };

typedef struct releaser {
    ebb_edit *e;
    const ebb_graph *g;
    ebb_saves saves;
    uint32_t *at;    /* node id -> position */
    ebb_node *node;  /* position -> node */
    uint32_t *early; /* position -> position of what it waits for, if all go as early as can be */
    uint32_t *key;   /* position -> position behind which it will stand */
    uint32_t *gradient; /* position -> value id of the one gradient that it needs; 0: none; MANY */
    uint32_t *last;     /* value id of a root -> position up to which it is read */
    ebb_value *state;   /* value id -> the state that it replaces */
    bool *own;          /* position: an update that moves; what it waits for is in early[] */
    uint32_t count;
} releaser;

static ebb_status look(releaser *r)
{
    const ebb_graph *g = r->g;
    ebb_arena *scratch = r->e->scratch;
    EBB_TRY(ebb_saves_find(&r->saves, g, scratch));
    size_t nodes = g->node_count + (size_t)1, values = g->value_count + (size_t)1;
    r->at = ebb_graph_positions(g, scratch);
    r->node = EBB_NEW(scratch, ebb_node, nodes);
    r->early = EBB_NEW(scratch, uint32_t, nodes);
    r->key = EBB_NEW(scratch, uint32_t, nodes);
    r->gradient = EBB_NEW(scratch, uint32_t, nodes);
    r->own = EBB_NEW(scratch, bool, nodes);
    r->last = EBB_NEW(scratch, uint32_t, values);
    r->state = EBB_NEW(scratch, ebb_value, values);
    EBB_GOT(r->at && r->node && r->early && r->key && r->gradient && r->own && r->last && r->state);
    EBB_EACH_NODE(g, n) {
        r->key[r->count] = r->early[r->count] = r->count;
        r->node[r->count++] = n;
    }
    for (size_t i = 0; i < g->binding_count; i++)
        r->state[g->bindings[i].next.i] = g->bindings[i].state;
    return NULL;
}

static bool is_update(const releaser *r, uint32_t p)
{
    return ebb_node_of(r->g, r->node[p])->phase == EBB_UPDATE;
}

/* ---- how early ---- */

static void wait_for(uint32_t *until, uint32_t position)
{
    if (*until < position)
        *until = position;
}

static void add_gradient(uint32_t *known, uint32_t gradient)
{
    if (gradient != 0)
        *known = *known == 0 || *known == gradient ? gradient : (uint32_t)MANY;
}

/* Whether output k takes over its state's memory once all have read the state. */
static bool writes_over(const releaser *r, const ebb_node_info *node, uint32_t k)
{
    ebb_value state = r->state[node->out[k].i];
    for (uint32_t i = 0; i < node->in_count; i++)
        if (node->in[i].i != 0 && ebb_same_value(ebb_saves_root(&r->saves, node->in[i]), state) &&
            ebb_op_may_alias(node->op, k, i))
            return true;
    return false;
}

/* What the update-phase node at p waits for. */
static void find_early(releaser *r, uint32_t p)
{
    const ebb_graph *g = r->g;
    const ebb_node_info *node = ebb_node_of(g, r->node[p]);
    uint32_t early = 0, states = 0, stays = 0;
    for (uint32_t i = 0; i < node->in_count; i++) {
        ebb_node maker = node->in[i].i == 0 ? EBB_NO_NODE : ebb_value_of(g, node->in[i])->producer;
        if (maker.i == 0)
            continue;
        wait_for(&early, r->early[r->at[maker.i]]);
        if (ebb_node_of(g, maker)->phase == EBB_BACKWARD)
            add_gradient(&r->gradient[p], node->in[i].i);
        else if (is_update(r, r->at[maker.i]))
            add_gradient(&r->gradient[p], r->gradient[r->at[maker.i]]);
    }
    for (uint32_t k = 0; k < node->out_count; k++) {
        ebb_value state = node->out[k].i == 0 ? EBB_NO_VALUE : r->state[node->out[k].i];
        if (state.i == 0)
            continue;
        states++;
        stays += !writes_over(r, node, k) || (ebb_value_of(g, state)->flags & EBB_IS_CAPTURED) != 0;
        wait_for(&early, r->last[state.i]);
    }
    stays += ebb_body_next(node, NULL) != NULL;
    r->own[p] = states > 0 && r->gradient[p] != 0;
    if (stays > 0 || (r->own[p] && r->gradient[p] == MANY))
        early = p;
    r->early[p] = early < p ? early : p;
}

static void find_all(releaser *r)
{
    const ebb_graph *g = r->g;
    for (uint32_t p = 0; p < r->count; p++) {
        const ebb_node_info *node = ebb_node_of(g, r->node[p]);
        if (node->phase == EBB_UPDATE)
            find_early(r, p);
        for (uint32_t i = 0; i < node->in_count; i++)
            if (node->in[i].i != 0)
                wait_for(&r->last[ebb_saves_root(&r->saves, node->in[i]).i], r->early[p]);
    }
    /* What only helps an update goes where the first that needs it goes. */
    for (uint32_t p = r->count; p-- > 0;) {
        const ebb_node_info *node = ebb_node_of(g, r->node[p]);
        if (node->phase != EBB_UPDATE)
            continue;
        if (r->own[p])
            r->key[p] = r->early[p];
        for (uint32_t k = 0; k < node->out_count; k++) {
            const ebb_value_info *out = ebb_value_of(g, node->out[k]);
            for (size_t i = 0; node->out[k].i != 0 && i < out->use_count; i++) {
                uint32_t reader = r->key[r->at[out->uses[i].node.i]];
                r->key[p] = reader < r->key[p] ? reader : r->key[p];
            }
        }
    }
}

/* Keys may lie above what was assumed: a helper waits for its reader. So once more, in order:
 * behind what makes the operands, and behind all that read a state that is written over. */
static void settle(releaser *r)
{
    const ebb_graph *g = r->g;
    memset(r->last, 0, g->value_count * sizeof *r->last);
    for (uint32_t p = 0; p < r->count; p++) {
        const ebb_node_info *node = ebb_node_of(g, r->node[p]);
        for (uint32_t i = 0; i < node->in_count && node->phase == EBB_UPDATE; i++) {
            ebb_node maker =
                node->in[i].i == 0 ? EBB_NO_NODE : ebb_value_of(g, node->in[i])->producer;
            if (maker.i != 0)
                wait_for(&r->key[p], r->key[r->at[maker.i]]);
        }
        for (uint32_t k = 0; k < node->out_count && r->own[p]; k++)
            if (node->out[k].i != 0 && r->state[node->out[k].i].i != 0)
                wait_for(&r->key[p], r->last[r->state[node->out[k].i].i]);
        for (uint32_t i = 0; i < node->in_count; i++)
            if (node->in[i].i != 0)
                wait_for(&r->last[ebb_saves_root(&r->saves, node->in[i]).i], r->key[p]);
    }
}

/* ---- the move ---- */

/* Nodes by key, those of one key as they stood. */
static ebb_status sorted(const releaser *r, uint32_t *order)
{
    uint32_t *from = EBB_SCRATCH(r->e, uint32_t, r->count + (size_t)1);
    EBB_GOT(from);
    for (uint32_t p = 0; p < r->count; p++)
        from[r->key[p] + 1]++;
    for (uint32_t p = 0; p < r->count; p++)
        from[p + 1] += from[p];
    for (uint32_t p = 0; p < r->count; p++)
        order[from[r->key[p]]++] = p;
    return NULL;
}

static ebb_status report(const releaser *r, uint32_t p, bool moved)
{
    if (moved) {
        ebb_found(r->e);
        ebb_applied(r->e);
        return NULL;
    }
    if (r->gradient[p] == MANY)
        return ebb_declined(r->e, r->node[p],
                            "it reads a number made from other gradients, as clipping by their "
                            "global norm does");
    const ebb_node_info *node = ebb_node_of(r->g, r->node[p]);
    for (uint32_t k = 0; k < node->out_count; k++)
        if (node->out[k].i != 0 && r->state[node->out[k].i].i != 0 && !writes_over(r, node, k))
            return ebb_declined(r->e, r->node[p], "what it makes gets memory of its own");
    return NULL;
}

/* An update has moved if it stands behind fewer nodes that are no updates. */
static ebb_status report_all(const releaser *r, const uint32_t *order)
{
    uint32_t *others = EBB_SCRATCH(r->e, uint32_t, r->count + (size_t)1), now = 0;
    EBB_GOT(others);
    for (uint32_t p = 0; p < r->count; p++)
        others[p + 1] = others[p] + !is_update(r, p);
    for (uint32_t i = 0; i < r->count; i++) {
        now += !is_update(r, order[i]);
        if (r->own[order[i]])
            EBB_TRY(report(r, order[i], now < others[order[i]]));
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    releaser r = {.e = e, .g = e->g};
    EBB_TRY(look(&r));
    find_all(&r);
    settle(&r);
    uint32_t *order = EBB_SCRATCH(e, uint32_t, r.count + (size_t)1);
    EBB_GOT(order);
    EBB_TRY(sorted(&r, order));
    EBB_TRY(report_all(&r, order));
    for (uint32_t i = 0; i < r.count; i++)
        ebb_node_move(e->g, r.node[order[i]], EBB_NO_NODE);
    return NULL;
}

const ebb_pass ebb_pass_release = {
    .name = "release",
    .doc = "update each parameter as soon as its gradient is complete, so that gradients never "
           "pile up",
    .paper = "Lv et al., \"Full parameter fine-tuning for large language models with limited "
             "resources\", 2023",
    .exactness = EBB_EXACT,
    .run = run,
};
