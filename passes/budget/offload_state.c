/* offload_state.c: states of the optimizer lie in another place from step to step, and are here while they are
 * updated.
 *
 *   before   ...  w', m' = F(w, g, m)                                         m <- m'
 *   after    ...  f = Fetch(m)  n = Wait(f, m)  w', m' = F(w, g, n)
 *                 s = Store(m')  k = Wait(s, m')                              m <- k
 *
 * The arena holds those of a few updates at a time. A state is fetched as early as the update before its own,
 * and waited for on its way back as late as the one behind it, where the peak does not rise for it: by the
 * ruler, with memory shared as the alias pass shares it.
 *
 * Declines for states that are read by name, or smaller than `least`.
 *
 * Paper: Ren et al., "ZeRO-Offload: democratizing billion-scale model training", USENIX ATC 2021.
 */
#include "passes/budget/offload.h"

#include <stdlib.h>

#include "exec/weigh/estimate.h"
#include "exec/weigh/memory.h"
#include "passes/common.h"
#include "passes/pipeline.h"

typedef struct piece { /* a state */
    ebb_value state, next;
    uint64_t bytes;
    uint32_t first,
        last; /* positions: its first reader; the last one, or who makes its next value */
    ebb_node fetch, read, store, written;
} piece;

typedef struct states {
    ebb_edit *e;
    ebb_graph *g;
    ebb_place place;
    uint32_t *at;   /* by node id: position */
    ebb_node *node; /* by position; none: it was moved from there */
    uint32_t count;
    piece *list;
    size_t piece_count;
    uint64_t *live; /* by position, of the arena */
} states;

static ebb_status read_list(states *s)
{
    s->count = 0;
    s->at = ebb_graph_positions(s->g, s->e->scratch);
    s->node = EBB_SCRATCH(s->e, ebb_node, s->g->node_count + (size_t)1);
    if (s->at == NULL || s->node == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(s->g, n)
        s->node[s->count++] = n;
    return NULL;
}

/* ---- which ---- */

static bool may_go(const ebb_graph *g, ebb_value state, ebb_value next)
{
    const ebb_value_info *was = ebb_value_of(g, state), *is = ebb_value_of(g, next);
    const int named = EBB_IS_OUTPUT | EBB_IS_CAPTURED | EBB_IS_INPUT;
    return was->role == EBB_ROLE_OPTIMIZER && ((was->flags | is->flags) & named) == 0 &&
           was->bound == 0 && is->bound == 1 && is->producer.i != 0 &&
           !ebb_op_moves(ebb_node_of(g, is->producer)->op) && was->use_count > 0;
}

static piece piece_of(const states *s, ebb_value state, ebb_value next, uint64_t bytes)
{
    const ebb_value_info *info = ebb_value_of(s->g, state);
    piece p = {.state = state, .next = next, .bytes = bytes, .first = s->count};
    p.last = s->at[ebb_value_of(s->g, next)->producer.i];
    for (size_t k = 0; k < info->use_count; k++) {
        const uint32_t reader = s->at[info->uses[k].node.i];
        p.first = reader < p.first ? reader : p.first;
        p.last = reader > p.last ? reader : p.last;
    }
    return p;
}

static int by_update(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->state.i < y->state.i ? -1 : x->state.i > y->state.i;
}

static ebb_status list_pieces(states *s)
{
    const ebb_graph *g = s->g;
    const char *names = ebb_option_string(s->e, "values");
    uint64_t least, room;
    EBB_TRY(ebb_option_bytes(s->e, "least", 0, &least));
    EBB_TRY(ebb_option_bytes(s->e, "room", 0, &room));
    room = ebb_option_given(s->e, "room") ? room : UINT64_MAX;
    s->list = EBB_SCRATCH(s->e, piece, g->binding_count + 1);
    if (s->list == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < g->binding_count; i++) {
        const ebb_value state = g->bindings[i].state, next = g->bindings[i].next;
        const uint64_t bytes = (uint64_t)ebb_stored_bytes(g, state);
        const uint64_t pages = (bytes + EBB_DISK_ALIGN - 1) / EBB_DISK_ALIGN * EBB_DISK_ALIGN;
        if (!may_go(g, state, next) || bytes == 0 || bytes < least || pages > room ||
            (names != NULL && !ebb_glob(names, ebb_value_name(g, state))))
            continue;
        room -= pages;
        s->list[s->piece_count++] = piece_of(s, state, next, bytes);
    }
    if (s->piece_count > 1)
        qsort(s->list, s->piece_count, sizeof *s->list, by_update);
    return NULL;
}

/* ---- the change ---- */

static ebb_status store(states *s, piece *p)
{
    const ebb_node behind = p->last + 1 < s->count ? s->node[p->last + 1] : EBB_NO_NODE;
    ebb_build b = ebb_edit_build(s->e, behind, EBB_UPDATE);
    b.name = ebb_value_name(s->g, p->state);
    ebb_with_string(&b, "place", ebb_place_name(s->place));
    const ebb_value stored = ebb_emit(&b, EBB_OP_STORE, p->next);
    const ebb_value written = ebb_emit(&b, EBB_OP_WAIT, stored, p->next);
    EBB_TRY(b.status);
    p->store = ebb_value_of(s->g, stored)->producer;
    p->written = ebb_value_of(s->g, written)->producer;
    ebb_graph_unbind(s->g, p->state);
    return ebb_graph_bind(s->g, p->state, written);
}

static ebb_status fetch(states *s, piece *p)
{
    ebb_build b = ebb_edit_build(s->e, s->node[p->first], EBB_UPDATE);
    b.name = ebb_value_name(s->g, p->state);
    const ebb_value fetched = ebb_emit(&b, EBB_OP_FETCH, p->state);
    const ebb_value read = ebb_emit(&b, EBB_OP_WAIT, fetched, p->state);
    EBB_TRY(b.status);
    p->fetch = ebb_value_of(s->g, fetched)->producer;
    p->read = ebb_value_of(s->g, read)->producer;
    for (uint32_t at = p->first; at <= p->last; at++)
        for (uint32_t i = 0; i < ebb_node_of(s->g, s->node[at])->in_count; i++)
            if (ebb_same_value(ebb_in(s->g, s->node[at], i), p->state))
                EBB_TRY(ebb_node_set_input(s->g, s->node[at], i, read));
    ebb_found(s->e);
    ebb_applied(s->e);
    return NULL;
}

/* ---- sooner and later ---- */

static ebb_status weigh(states *s)
{
    ebb_estimate estimate;
    ebb_memory memory;
    EBB_TRY(ebb_estimate_make(&estimate, s->e->scratch, s->g, ebb_option_string(s->e, "backend")));
    const ebb_memory_terms terms = {.workspace_bytes = estimate.workspace_bytes,
                                    .align = estimate.align,
                                    .maps = estimate.maps};
    ebb_status status = ebb_pipeline_mark(s->g);
    if (status == NULL)
        status = ebb_memory_weigh(&memory, s->e->scratch, s->g, &terms);
    ebb_pipeline_unmark(s->g);
    EBB_TRY(status);
    s->live = memory.live;
    return NULL;
}

/* Up to one update ahead: behind where what `before` fetched is waited for. */
static void start_sooner(states *s, const piece *p, const piece *before, uint64_t most)
{
    const uint32_t from = s->at[p->fetch.i], bound = s->at[before->read.i];
    uint32_t to = from;
    while (to > bound + 1 && s->live[to - 1] + p->bytes <= most)
        s->live[--to] += p->bytes;
    while (to < from && s->node[to].i == 0)
        to++;
    if (to == from)
        return;
    ebb_node_move(s->g, p->fetch, s->node[to]);
    s->node[from] = EBB_NO_NODE;
}

/* Up to one update behind: before `after` begins to be stored. */
static void end_later(states *s, const piece *p, const piece *after, uint64_t most)
{
    const uint32_t from = s->at[p->written.i], bound = s->at[after->store.i];
    uint32_t to = from;
    while (to + 1 < bound && s->live[to + 1] + p->bytes <= most)
        s->live[++to] += p->bytes;
    if (to == from)
        return;
    for (to++; to < bound && s->node[to].i == 0; to++)
        ;
    ebb_node_move(s->g, p->written, s->node[to]);
    s->node[from] = EBB_NO_NODE;
}

/* Pieces stand in the order of their updates; those of one update go together. */
static void spread(states *s)
{
    uint64_t most = 0;
    size_t before = 0, after = s->piece_count;
    for (uint32_t at = 0; at < s->count; at++)
        most = s->live[at] > most ? s->live[at] : most;
    for (size_t i = 1; i < s->piece_count; i++) {
        if (s->list[i].first != s->list[i - 1].first)
            before = i;
        if (before > 0)
            start_sooner(s, &s->list[i], &s->list[before - 1], most);
    }
    for (size_t i = s->piece_count; i-- > 0;) {
        if (i + 1 < s->piece_count && s->list[i].first != s->list[i + 1].first)
            after = i + 1;
        if (after < s->piece_count)
            end_later(s, &s->list[i], &s->list[after], most);
    }
}

ebb_status ebb_offload_states(ebb_edit *e)
{
    states s = {.e = e, .g = e->g, .place = ebb_place_find(ebb_option_string(e, "place"))};
    uint64_t bytes = 0;
    if (ebb_option_given(e, "budget"))
        return ebb_error(EBB_USAGE, "what=state moves all states that may go: it takes no budget");
    EBB_TRY(read_list(&s));
    EBB_TRY(list_pieces(&s));
    if (s.piece_count == 0)
        return NULL;
    for (size_t i = 0; i < s.piece_count; i++) // what frees memory goes first
        EBB_TRY(store(&s, &s.list[i]));
    for (size_t i = 0; i < s.piece_count; i++) {
        EBB_TRY(fetch(&s, &s.list[i]));
        bytes += s.list[i].bytes;
    }
    EBB_TRY(read_list(&s));
    EBB_TRY(weigh(&s));
    spread(&s);
    return ebb_note(e, "%zu states, %llu bytes, lie on the %s from step to step", s.piece_count,
                    (unsigned long long)bytes, ebb_place_name(s.place));
}
