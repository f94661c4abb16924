/* states.c: what a step replaces lies in another place from step to step, and is here while it is read and
 * replaced: states of the optimizer; trained weights, too, where they are asked for.
 *
 *   before   ...  w', m' = F(w, g, m)                                         m <- m'
 *   after    ...  f = Fetch(m)  n = Wait(f, m)  w', m' = F(w, g, n)
 *                 s = Store(m')  k = Wait(s, m')                              m <- k
 *
 * The arena holds those of a few nodes at a time. Where two readers are further apart than it takes to fetch the
 * bytes, they are fetched again: a weight forward and backward. When each move begins, and when it is waited for, is
 * found together with those of other tensors (moved.h), so that none stands behind one that is needed later.
 *
 * States that are replaced in parts of their rows (states_cut.c) come and go in these.
 *
 * Declines for what is read by name, or smaller than `least`.
 *
 * Paper: Ren et al., "ZeRO-Offload: democratizing billion-scale model training", USENIX ATC 2021; of weights:
 * Rajbhandari et al., "ZeRO-Infinity", SC 2021.
 */
#include "passes/budget/states.h"

#include <stdlib.h>

#include "passes/budget/moved.h"
#include "passes/budget/states_cut.h"
#include "passes/common.h"
#include "onnx/words/amount.h"

enum { FILLS = 16 };

typedef struct stay {      /* of a state, or of a part of it, in the arena */
    ebb_value state, next; /* next: none, but where the state is replaced */
    uint32_t first,
        last; /* positions: its first reader; the last one, or who makes its next value */
    ebb_away_stay moves;
} stay;

typedef struct states {
    ebb_edit *e;
    ebb_graph *g;
    ebb_away_states *wish;
    uint32_t *at;   /* by node id: position */
    ebb_node *node; /* by position */
    uint32_t count;
    double *starts; /* by position */
    stay *list;
    size_t stay_count, capacity;
    ebb_cuts cuts;
} states;

static ebb_status read_list(states *s)
{
    s->count = 0;
    s->at = ebb_graph_positions(s->g, s->e->scratch);
    s->node = EBB_SCRATCH(s->e, ebb_node, s->g->node_count + (size_t)1);
    s->starts = EBB_SCRATCH(s->e, double, s->g->node_count + (size_t)1);
    EBB_GOT(s->at && s->node && s->starts);
    EBB_EACH_NODE(s->g, n) {
        s->starts[s->count + 1] = s->starts[s->count] + ebb_node_ns(s->g, n);
        s->node[s->count++] = n;
    }
    return NULL;
}

/* ---- which ---- */

bool ebb_state_may_go(const ebb_graph *g, const ebb_away_states *wish, ebb_value state,
                      ebb_value next)
{
    const ebb_value_info *was = ebb_value_of(g, state), *is = ebb_value_of(g, next);
    const int named = EBB_IS_OUTPUT | EBB_IS_CAPTURED | EBB_IS_INPUT;
    const bool is_meant =
        was->role == EBB_ROLE_OPTIMIZER || (was->role == EBB_ROLE_PARAMETER && wish->weights);
    const uint64_t bytes = (uint64_t)ebb_stored_bytes(g, state);
    return is_meant && ((was->flags | is->flags) & named) == 0 && was->bound == 0 &&
           is->bound == 1 && is->producer.i != 0 &&
           !ebb_op_moves(ebb_node_of(g, is->producer)->op) && !ebb_node_rests(g, is->producer) &&
           was->use_count > 0 && bytes > 0 && bytes >= wish->least &&
           (wish->names == NULL || ebb_glob(wish->names, ebb_value_name(g, state)));
}

static int ascending(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static ebb_status add_stay(states *s, stay one)
{
    EBB_GOT(ebb_arena_grow(s->e->scratch, &s->list, s->stay_count, &s->capacity, sizeof *s->list));
    s->list[s->stay_count++] = one;
    return NULL;
}

/* Of its readers, in their order, those that are close to each other see it in one stay. */
static ebb_status add_stays(states *s, ebb_value state, ebb_value next, uint64_t bytes)
{
    const ebb_value_info *info = ebb_value_of(s->g, state);
    const double fetch_ns = ebb_move_time_of(s->g, (double)bytes, s->wish->place, true).beside;
    uint32_t *readers = EBB_SCRATCH(s->e, uint32_t, info->use_count);
    EBB_GOT(readers);
    for (size_t k = 0; k < info->use_count; k++)
        readers[k] = s->at[info->uses[k].node.i];
    qsort(readers, info->use_count, sizeof *readers, ascending);
    stay one = {.state = state, .moves.bytes = bytes, .first = readers[0], .last = readers[0]};
    for (size_t k = 1; k < info->use_count; k++) {
        if (s->starts[readers[k]] - s->starts[one.last + 1] > fetch_ns) {
            EBB_TRY(add_stay(s, one));
            one.first = readers[k];
        }
        one.last = readers[k];
    }
    const uint32_t made = s->at[ebb_value_of(s->g, next)->producer.i];
    one.last = made > one.last ? made : one.last;
    one.next = next;
    return add_stay(s, one);
}

static int by_first(const void *a, const void *b)
{
    const stay *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->state.i < y->state.i ? -1 : x->state.i > y->state.i;
}

static ebb_status list_stays(states *s)
{
    const ebb_graph *g = s->g;
    ebb_away_states *w = s->wish;
    for (size_t i = 0; i < g->binding_count; i++) {
        const ebb_value state = g->bindings[i].state, next = g->bindings[i].next;
        const uint64_t bytes = (uint64_t)ebb_stored_bytes(g, state);
        const uint64_t pages = (bytes + EBB_DISK_ALIGN - 1) / EBB_DISK_ALIGN * EBB_DISK_ALIGN;
        if (!ebb_state_may_go(g, w, state, next) || pages > w->room - w->pages)
            continue;
        w->pages += pages;
        w->bytes += bytes;
        w->count++;
        const ebb_node split = ebb_cut_state(&s->cuts, state);
        if (split.i == 0)
            EBB_TRY(add_stays(s, state, next, bytes));
        for (uint32_t k = 0; split.i != 0 && k < ebb_node_of(g, split)->out_count; k++) {
            const ebb_value part = ebb_out(g, split, k);
            EBB_TRY(add_stays(s, part, ebb_in(g, ebb_value_of(g, next)->producer, k),
                              (uint64_t)ebb_stored_bytes(g, part)));
        }
    }
    if (s->stay_count > 1)
        qsort(s->list, s->stay_count, sizeof *s->list, by_first);
    return NULL;
}

/* ---- the change ---- */

static ebb_status store(states *s, stay *p)
{
    if (p->next.i == 0)
        return NULL;
    const ebb_value_info *next = ebb_value_of(s->g, p->next);
    const ebb_use joined = next->bound == 0 ? next->uses[0] : (ebb_use){EBB_NO_NODE, 0};
    const ebb_node behind = p->last + 1 < s->count ? s->node[p->last + 1] : EBB_NO_NODE;
    ebb_build b = ebb_edit_build(s->e, behind, EBB_UPDATE);
    b.name = ebb_value_name(s->g, p->state);
    ebb_with_string(&b, "place", ebb_place_name(s->wish->place));
    const ebb_value stored = ebb_emit(&b, EBB_OP_STORE, p->next);
    const ebb_value written = ebb_emit(&b, EBB_OP_WAIT, stored, p->next);
    EBB_TRY(b.status);
    p->moves.store = ebb_value_of(s->g, stored)->producer;
    p->moves.written = ebb_value_of(s->g, written)->producer;
    if (joined.node.i != 0)
        return ebb_node_set_input(s->g, joined.node, joined.slot, written);
    ebb_graph_unbind(s->g, p->state);
    return ebb_graph_bind(s->g, p->state, written);
}

static ebb_status fetch(states *s, stay *p)
{
    ebb_build b = ebb_edit_build(s->e, s->node[p->first], EBB_PHASE_NONE);
    b.name = ebb_value_name(s->g, p->state);
    const ebb_value fetched = ebb_emit(&b, EBB_OP_FETCH, p->state);
    const ebb_value read = ebb_emit(&b, EBB_OP_WAIT, fetched, p->state);
    EBB_TRY(b.status);
    p->moves.fetch = ebb_value_of(s->g, fetched)->producer;
    for (uint32_t at = p->first; at <= p->last; at++)
        for (uint32_t i = 0; i < ebb_node_of(s->g, s->node[at])->in_count; i++)
            if (ebb_same_value(ebb_in(s->g, s->node[at], i), p->state))
                EBB_TRY(ebb_node_set_input(s->g, s->node[at], i, read));
    ebb_found(s->e);
    ebb_applied(s->e);
    return NULL;
}

ebb_status ebb_states_move(ebb_edit *e, ebb_away_states *wish)
{
    states s = {.e = e, .g = e->g, .wish = wish};
    wish->bytes = wish->pages = 0;
    wish->count = wish->stay_count = 0;
    EBB_TRY(ebb_states_cut(&s.cuts, e, wish));
    EBB_TRY(read_list(&s));
    EBB_TRY(list_stays(&s));
    if (s.stay_count == 0)
        return NULL;
    for (size_t i = 0; i < s.stay_count; i++) // what frees memory goes first
        EBB_TRY(store(&s, &s.list[i]));
    for (size_t i = 0; i < s.stay_count; i++)
        EBB_TRY(fetch(&s, &s.list[i]));
    wish->stays = EBB_SCRATCH(e, ebb_away_stay, s.stay_count);
    EBB_GOT(wish->stays);
    for (size_t i = 0; i < s.stay_count; i++)
        wish->stays[wish->stay_count++] = s.list[i].moves;
    return NULL;
}

const char *ebb_states_text(const ebb_edit *e, const ebb_away_states *away)
{
    const char *text =
        ebb_arena_printf(e->scratch, "%zu states, %s, lie on the %s from step to step", away->count,
                         ebb_bytes(away->bytes).text, ebb_place_name(away->place));
    if (text == NULL || away->cut_count == 0)
        return text;
    return ebb_arena_printf(e->scratch, "%s; large weights updated some rows at a time: %zu", text,
                            away->cut_count);
}

/* Moves as early, and as late, as they take beside the step, as far as the arena is no larger for it. */
static ebb_status spread(ebb_edit *e, const ebb_away_states *wish)
{
    ebb_moved o;
    ebb_estimate estimate;
    uint64_t least, height;
    const ebb_moved_places places = {.count = 1, .place = {wish->place}, .room = {UINT64_MAX}};
    EBB_TRY(ebb_trial_measure(&estimate, e->scratch, e->g, wish->backend, UINT64_MAX));
    EBB_TRY(ebb_moved_begin(&o, e, &places, UINT64_MAX, NULL, &estimate, wish));
    const uint64_t peak = o.memory.peak_bytes;
    ebb_moved_plan plan = {.aim = peak};
    o.problem.fill = 1;
    EBB_TRY(ebb_moved_look(&o, &plan));
    EBB_TRY(ebb_moved_pack(&o, peak, &least));
    for (int part = FILLS; part >= 0; part--) {
        o.problem.fill = peak / FILLS * (uint64_t)part + 1;
        EBB_TRY(ebb_moved_look(&o, &plan));
        EBB_TRY(ebb_moved_pack(&o, least, &height));
        if (height <= least)
            break;
    }
    return ebb_moved_apply(&o);
}

ebb_status ebb_offload_states(ebb_edit *e)
{
    const char *what = ebb_option_string(e, "what");
    ebb_away_states wish = {.place = ebb_place_find(ebb_option_string(e, "place")),
                            .weights = strcmp(what, "weights") == 0,
                            .room = UINT64_MAX,
                            .names = ebb_option_string(e, "values"),
                            .backend = ebb_option_string(e, "backend")};
    if (ebb_option_given(e, "budget"))
        return ebb_error(EBB_USAGE, "what=%s moves all that may go: it takes no budget", what);
    EBB_TRY(ebb_option_bytes(e, "least", 0, &wish.least));
    if (ebb_option_given(e, "room"))
        EBB_TRY(ebb_option_bytes(e, "room", 0, &wish.room));
    EBB_TRY(ebb_states_move(e, &wish));
    if (wish.count == 0)
        return NULL;
    EBB_TRY(spread(e, &wish));
    const char *text = ebb_states_text(e, &wish);
    return text != NULL ? ebb_note(e, "%s", text) : ebb_error_memory();
}
