/* moved_apply.c: Stores, Fetches and Waits of a plan. */
#include "passes/budget/moved.h"

/* Who reads the bytes of what waits elsewhere, tensor by tensor in their order, as the graph was before. */
typedef struct reading {
    ebb_value v;
    uint32_t at, slot;
    uint32_t behind; /* index + 1 of the tensor's next reading */
} reading;

typedef struct changes {
    ebb_moved *o;
    reading *readings;
    uint32_t *first;  /* by value id of a tensor: index + 1 of its next reading */
    ebb_value *of;    /* by value id of a view: what it was a view of */
    ebb_value *shown; /* by value id: what shows it after it came back, */
    uint32_t *site;   /* and for which site: index + 1 */
} changes;

static ebb_status list_readings(changes *c)
{
    const ebb_graph *g = c->o->g;
    const ebb_away_problem *q = &c->o->problem;
    ebb_arena *scratch = c->o->e->scratch;
    size_t count = 0, inputs = 0;
    c->first = EBB_NEW(scratch, uint32_t, g->value_count);
    c->site = EBB_NEW(scratch, uint32_t, g->value_count);
    c->of = EBB_NEW(scratch, ebb_value, g->value_count);
    c->shown = EBB_NEW(scratch, ebb_value, g->value_count);
    bool *goes = EBB_NEW(scratch, bool, g->value_count);
    EBB_GOT(c->first && c->site && c->of && c->shown && goes);
    for (size_t i = 0; i < q->site_count; i++)
        goes[q->sites[i].tensor] |= q->sites[i].place != 0;
    for (uint32_t p = 0; p < q->count; p++)
        inputs += ebb_node_of(g, c->o->node[p])->in_count;
    c->readings = EBB_NEW(scratch, reading, inputs + 1);
    EBB_GOT(c->readings);
    for (uint32_t p = q->count; p-- > 0;) {
        const ebb_node_info *node = ebb_node_of(g, c->o->node[p]);
        if (ebb_op_has(node->op, EBB_VIEW) && node->out_count > 0 && node->out[0].i != 0)
            c->of[node->out[0].i] = ebb_in(g, c->o->node[p], 0);
        for (uint32_t i = node->in_count; i-- > 0;) {
            const ebb_value root =
                node->in[i].i != 0 ? ebb_saves_root(&c->o->saves, node->in[i]) : EBB_NO_VALUE;
            if (root.i == 0 || !goes[root.i])
                continue;
            c->readings[count] = (reading){node->in[i], p, i, c->first[root.i]};
            c->first[root.i] = (uint32_t)++count;
        }
    }
    return NULL;
}

static void show(changes *c, uint32_t site, ebb_value v, ebb_value by)
{
    c->shown[v.i] = by;
    c->site[v.i] = site + 1;
}

/* What shows v, which is a view of what has come back for this site. */
static ebb_status show_again(changes *c, uint32_t site, ebb_value v, ebb_node before)
{
    ebb_graph *g = c->o->g;
    if (c->site[v.i] == site + 1)
        return NULL;
    const ebb_node view = ebb_value_of(g, v)->producer;
    EBB_TRY(show_again(c, site, c->of[v.i], before));
    ebb_value in[EBB_MAX_RANK] = {c->shown[c->of[v.i].i]};
    const uint32_t ins = ebb_node_of(g, view)->in_count;
    for (uint32_t i = 1; i < ins && i < EBB_MAX_RANK; i++)
        in[i] = ebb_in(g, view, i);
    ebb_build b = ebb_edit_build(c->o->e, before, EBB_PHASE_NONE);
    ebb_with_attrs_of(&b, view);
    show(c, site, v, ebb_emit_list(&b, ebb_node_of(g, view)->op, in, ins));
    return b.status;
}

/* The tensor's site behind this one that is away; the sites' count: none. */
static uint32_t site_behind(const ebb_away_problem *q, uint32_t site)
{
    uint32_t k = q->sites[site].ring;
    while (k > site && q->sites[k].place == 0)
        k = q->sites[k].ring;
    return k > site ? k : (uint32_t)q->site_count;
}

/* Readers behind this time and before the next read what came back. */
static ebb_status redirect(changes *c, uint32_t site, ebb_value back, ebb_node before)
{
    ebb_graph *g = c->o->g;
    const ebb_away_problem *q = &c->o->problem;
    const uint32_t tensor = q->sites[site].tensor, next = site_behind(q, site);
    const uint32_t end = next < q->site_count ? q->sites[next].next : q->count;
    uint32_t *first = &c->first[tensor];
    show(c, site, (ebb_value){tensor}, back);
    while (*first != 0 && c->readings[*first - 1].at < q->sites[site].next)
        *first = c->readings[*first - 1].behind;
    for (; *first != 0 && c->readings[*first - 1].at < end;
         *first = c->readings[*first - 1].behind) {
        const reading *r = &c->readings[*first - 1];
        const ebb_node n = c->o->node[r->at];
        EBB_TRY(show_again(c, site, r->v, before));
        EBB_TRY(ebb_node_set_input(g, n, r->slot, c->shown[r->v.i]));
        if (r->slot == 0 && ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW))
            show(c, site, ebb_out(g, n, 0), ebb_out(g, n, 0)); // it shows what came back
    }
    return NULL;
}

typedef struct moved { /* by site; those of a tensor have one `away` */
    ebb_value stored, away, fetched;
} moved;

static ebb_status move(changes *c, moved *list, uint32_t site, int stage)
{
    ebb_moved *o = c->o;
    const ebb_away_site *s = &o->problem.sites[site];
    const ebb_value root = {s->tensor};
    moved *m = &list[site];
    const uint32_t p[4] = {s->made + 1, s->gone, s->back, s->next};
    const ebb_node before = stage < 2 ? o->node[p[stage]] : o->before[p[stage]];
    ebb_build b = ebb_edit_build(o->e, before, EBB_PHASE_NONE);
    b.name = ebb_value_name(o->g, root);
    if (stage == 0) {
        ebb_with_string(&b, "place", ebb_place_name(o->places->place[s->place - 1]));
        m->stored = ebb_emit(&b, EBB_OP_STORE, root);
    } else if (stage == 1) {
        m->away = ebb_emit(&b, EBB_OP_WAIT, m->stored, root);
        for (uint32_t k = s->ring; k != site; k = o->problem.sites[k].ring)
            list[k].away = m->away;
    } else if (stage == 2) {
        m->fetched = ebb_emit(&b, EBB_OP_FETCH, m->away);
    } else {
        const ebb_value back = ebb_emit(&b, EBB_OP_WAIT, m->fetched, m->away);
        EBB_TRY(b.status);
        EBB_TRY(redirect(c, site, back, before));
        ebb_found(o->e);
        ebb_applied(o->e);
    }
    return b.status;
}

/* The Fetch of a state, or the Wait for its Store, behind the last before it that has not gone from its place. */
static void move_state(ebb_moved *o, const ebb_away_site *s)
{
    const ebb_value_info *info = ebb_value_of(o->g, (ebb_value){s->tensor});
    uint32_t gone = s->gone;
    if (s->lasts == EBB_AWAY_RETURNS) {
        if (s->back < s->next)
            ebb_node_move(o->g, info->producer, o->before[s->back]);
        return;
    }
    while (gone > s->last + 1 && o->before[gone - 1].i != o->node[gone - 1].i)
        gone--;
    for (size_t k = 0; gone > s->last + 1 && k < info->use_count; k++)
        if (ebb_node_of(o->g, info->uses[k].node)->op == EBB_OP_WAIT)
            ebb_node_move(o->g, info->uses[k].node, ebb_node_of(o->g, o->node[gone - 1])->next);
}

/* All Stores, then all Waits for them, then what comes back: at one place what frees memory goes first. Moves of
 * states go when nothing is put before them any more. */
ebb_status ebb_moved_apply(ebb_moved *o)
{
    const ebb_away_problem *q = &o->problem;
    changes c = {.o = o};
    moved *list = EBB_SCRATCH(o->e, moved, q->site_count + 1);
    EBB_GOT(list);
    EBB_TRY(list_readings(&c));
    for (int stage = 0; stage < 4; stage++)
        for (uint32_t i = 0; i < q->site_count; i++)
            if (q->sites[i].lasts == EBB_AWAY_STEP) {
                if (stage < 2 ? ebb_away_writes(q->sites, i) : q->sites[i].place != 0)
                    EBB_TRY(move(&c, list, i, stage));
            } else if (stage == 2) {
                move_state(o, &q->sites[i]);
            }
    return NULL;
}
