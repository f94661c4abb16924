/* pofo_steps.c: pofo (walk/pofo.h) on the stages of a step's forward.
 *
 *   forward    Store what is kept for a unit behind that unit; Wait for it where by its time it is
 *              over, or where the plan waits because memory lacks
 *   backward   the same seen from the end: Wait for it before the unit's backward, Fetch it so much
 *              earlier that it is over by then, but not where memory lacks
 *
 * The plan drains bytes evenly; the step moves whole tensors, so they take memory somewhat longer.
 * The bytes given to the plan are a dial, turned until the true peak fits.
 *
 * Paper: Beaumont, Eyraud-Dubois, Shilova, NeurIPS 2021.
 */
#include <math.h>

#include "passes/budget/planners/chain/chain.h"
#include "passes/budget/planners/walk/pofo.h"

enum { STAGES = 16, FEWEST = 4, SLOTS = 40, SETTINGS = 40, TRIES = 8 };

/* A tensor set that is offloaded: what was kept for a unit. */
typedef struct moved {
    uint32_t *values, count;
    double ns;             /* of its move */
    uint32_t size;         /* slots */
    uint32_t gone, wanted; /* before this unit's forward it is away; behind this unit's backward it
                            * is fetched */
} moved;

typedef struct stepper {
    ebb_chain chain;
    ebb_pofo_stage *stage;
    ebb_pofo pofo;
    double *rotor;
    uint64_t most; /* bytes with which all is kept */
    ebb_pofo_plan plan;
    moved *moved;   /* by unit */
    uint8_t *state; /* by value: on its way, or away */
} stepper;

enum { STORING = 1, AWAY = 2, FETCHING = 4 };

/* ---- the chain in slots ---- */

static uint32_t slots_of(uint64_t bytes, double slot)
{
    double slots = ceil((double)bytes / slot);
    return slots <= 4 * SLOTS ? (uint32_t)slots : 4 * SLOTS;
}

static double backward_ns(const ebb_chain *c, uint32_t s)
{
    double ns = 0;
    for (uint32_t i = c->turn[s + 1]; i < c->turn[s]; i++)
        ns += c->problem->ops[c->backward[i]].cost_ns;
    return ns;
}

static ebb_status in_slots(stepper *t, uint64_t bytes, ebb_arena *scratch)
{
    const ebb_chain *c = &t->chain;
    double slot = bytes > SLOTS ? (double)bytes / SLOTS : 1;
    for (uint32_t s = 0; s < c->stages; s++)
        t->stage[s] = (ebb_pofo_stage){.forward = c->ns[s],
                                       .backward = backward_ns(c, s),
                                       .in = slots_of(c->in[s], slot),
                                       .saved = slots_of(c->saved[s], slot),
                                       .drop = slots_of(c->drop[s], slot),
                                       .fill = slots_of(c->fill[s], slot),
                                       .back = slots_of(c->back[s], slot),
                                       .grad = slots_of(c->grad[s], slot)};
    double move = c->problem->move_ns * slot;
    t->pofo = (ebb_pofo){t->stage, c->stages, SLOTS, move > 0 ? 1 / move : 1};
    t->rotor = ebb_pofo_rotor(&t->pofo, scratch);
    return t->rotor != NULL ? NULL : ebb_error_memory();
}

/* ---- what is moved, and when ---- */

/* Kept for a unit: the state before it, and what else its neighbour saved. */
static bool is_kept_for(const ebb_chain *c, uint32_t v, uint32_t first, bool with_saved)
{
    if (c->always[v] || c->stage_of[v] >= first || c->problem->values[v].bytes == 0)
        return false;
    if (with_saved)
        return c->stage_of[v] == first - 1 && (c->read_back[v] || c->reach[v] >= c->cut[first]);
    return c->reach[v] >= c->cut[first];
}

static ebb_status list_values(stepper *t, uint32_t u, ebb_arena *scratch)
{
    const ebb_chain *c = &t->chain;
    const ebb_pofo_unit *unit = &t->plan.units[u];
    moved *m = &t->moved[u];
    bool with_saved = u > 0 && t->plan.units[u - 1].all;
    size_t capacity = 0;
    double bytes = 0;
    *m = (moved){.gone = UINT32_MAX, .wanted = UINT32_MAX};
    if (u == 0)
        return NULL;
    m->size = with_saved ? t->stage[unit->first - 1].saved : t->stage[unit->first].in;
    for (uint32_t v = 0; unit->away && v < c->problem->value_count; v++) {
        if (!is_kept_for(c, v, unit->first, with_saved))
            continue;
        EBB_GOT(ebb_arena_grow(scratch, &m->values, m->count, &capacity, sizeof *m->values));
        m->values[m->count++] = v;
        bytes += (double)c->problem->values[v].bytes;
    }
    m->ns = bytes * c->problem->move_ns;
    return NULL;
}

/* The forward, or (back) the backward seen from the end: before which unit each move is over, by
 * the time of the link or because the unit lacks room. */
static void time_moves(stepper *t, bool back)
{
    const ebb_pofo_plan *p = &t->plan;
    double now = 0, link = 0, over[STAGES];
    uint32_t oldest = 0, queue = 0, stays = 0;
    for (uint32_t u = 0; u < p->count; u++) {
        const ebb_pofo_unit *unit = &p->units[u];
        uint32_t highest = 0;
        double busy = 0;
        for (uint32_t s = unit->first; s < unit->end; s++) {
            uint32_t here = t->stage[s].drop + (s > unit->first ? t->stage[s].in : 0);
            highest = here > highest ? here : highest;
            busy += t->stage[s].forward;
        }
        if (unit->all) {
            highest = back ? t->stage[unit->first].back : t->stage[unit->first].fill;
            busy = back ? t->stage[unit->first].backward : busy;
        } else if (back || u + 1 == p->count) {
            size_t j = unit->end - 1;
            highest = unit->slots;
            busy = t->rotor[(j * (j + 1) / 2 + unit->first) * (SLOTS + 1) + unit->slots];
        }
        uint32_t need = stays + t->moved[u].size + highest;
        for (; oldest < u; oldest++) {
            moved *m = &t->moved[oldest];
            if (m->count == 0)
                continue;
            if (over[oldest] > now && queue + need <= SLOTS)
                break;
            now = over[oldest] > now ? over[oldest] : now;
            queue -= m->size;
            *(back ? &m->wanted : &m->gone) = u;
        }
        now += busy;
        if (t->moved[u].count > 0) {
            link = (link > now ? link : now) + t->moved[u].ns;
            over[u] = link;
            queue += t->moved[u].size;
        } else {
            stays += t->moved[u].size;
        }
    }
}

/* ---- the tape ---- */

static ebb_status move(stepper *t, ebb_tape *tape, uint32_t u, ebb_remat_move_kind kind)
{
    static const uint8_t before[] = {0, STORING, AWAY, AWAY | FETCHING},
                         then[] = {STORING, AWAY, AWAY | FETCHING, AWAY};
    for (uint32_t i = 0; i < t->moved[u].count; i++) {
        uint32_t v = t->moved[u].values[i];
        if (t->state[v] != before[kind])
            continue;
        t->state[v] = then[kind];
        EBB_TRY(ebb_tape_move(tape, kind, v));
    }
    return NULL;
}

/* Stages i .. j forward and back in m slots. Depth: at most the stages. */
static ebb_status reverse(const stepper *t, ebb_tape *tape, uint32_t i, uint32_t j, uint32_t m)
{
    uint32_t at = i < j ? ebb_pofo_split(&t->pofo, t->rotor, i, j, m) : 0;
    if (at > 0) {
        for (uint32_t s = i; s < at; s++)
            EBB_TRY(ebb_tape_forward(tape, s));
        EBB_TRY(reverse(t, tape, at, j, m - t->stage[at].in));
        return reverse(t, tape, i, at - 1, m);
    }
    EBB_TRY(ebb_tape_forward(tape, i));
    if (i < j)
        EBB_TRY(reverse(t, tape, i + 1, j, m - t->stage[i].saved));
    return ebb_tape_backward(tape, i);
}

static ebb_status go(stepper *t, ebb_tape *tape)
{
    const ebb_pofo_plan *p = &t->plan;
    const uint32_t last = p->count - 1;
    for (uint32_t u = 0; u < p->count; u++) {
        for (uint32_t w = 1; w < u; w++)
            if (t->moved[w].gone == u || (u == last && t->moved[w].gone > u))
                EBB_TRY(move(t, tape, w, EBB_REMAT_AWAY));
        if (u == last)
            break;
        for (uint32_t s = p->units[u].first; s < p->units[u].end; s++)
            EBB_TRY(ebb_tape_forward(tape, s));
        EBB_TRY(move(t, tape, u, EBB_REMAT_STORE));
    }
    for (uint32_t u = p->count; u-- > 0;) {
        const ebb_pofo_unit *unit = &p->units[u];
        EBB_TRY(move(t, tape, u, EBB_REMAT_FETCH)); // where it was not fetched before
        EBB_TRY(move(t, tape, u, EBB_REMAT_BACK));
        if (unit->all && u < last)
            EBB_TRY(ebb_tape_backward(tape, unit->first));
        else
            EBB_TRY(reverse(t, tape, unit->first, unit->end - 1, unit->slots));
        for (uint32_t w = u; w-- > 1;)
            if (t->moved[w].wanted == u || (u == last && t->moved[w].wanted > u))
                EBB_TRY(move(t, tape, w, EBB_REMAT_FETCH));
    }
    return NULL;
}

static ebb_status by_bytes(void *self, uint64_t setting, ebb_remat_schedule *schedule,
                           ebb_arena *scratch)
{
    stepper *t = self;
    const size_t values = (size_t)t->chain.problem->value_count + 1;
    ebb_tape tape;
    EBB_TRY(in_slots(t, t->most / SETTINGS * setting, scratch));
    EBB_TRY(ebb_pofo_make(&t->plan, &t->pofo, t->rotor, scratch));
    if (isinf(t->plan.time))
        return NULL;
    t->moved = EBB_NEW(scratch, moved, (size_t)t->plan.count + 1);
    t->state = EBB_NEW(scratch, uint8_t, values);
    EBB_GOT(t->moved && t->state);
    for (uint32_t u = 0; u < t->plan.count; u++)
        EBB_TRY(list_values(t, u, scratch));
    time_moves(t, false);
    time_moves(t, true);
    EBB_TRY(ebb_tape_start(&tape, &t->chain, SIZE_MAX, scratch));
    EBB_TRY(go(t, &tape));
    *schedule = (ebb_remat_schedule){tape.ops, tape.count};
    return NULL;
}

static ebb_status try_stages(void *self, ebb_remat_best *best, uint32_t most, ebb_arena *scratch)
{
    stepper *t = self;
    *t = (stepper){.rotor = NULL};
    EBB_TRY(ebb_chain_make(&t->chain, best->problem, most, scratch));
    t->stage = EBB_NEW(scratch, ebb_pofo_stage, (size_t)t->chain.stages + 1);
    t->most = ebb_chain_all_kept(&t->chain);
    EBB_GOT(t->stage);
    return t->chain.stages > 1 ? ebb_remat_best_turn(best, 1, SETTINGS, TRIES, by_bytes, t) : NULL;
}

static ebb_status offer_all(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch)
{
    (void)scratch;
    stepper t;
    EBB_TRY(ebb_remat_best_ask(best, "rotor", steps)); // its table is finer
    return ebb_remat_best_halve(best, STAGES, FEWEST, try_stages, &t);
}

const ebb_planner ebb_planner_pofo = {
    .name = "pofo",
    .doc = "for each stage keep all or make it again, and for what is kept, memory or disk",
    .paper = "Beaumont, Eyraud-Dubois, Shilova, \"Efficient combination of rematerialization and "
             "offloading for training DNNs\", NeurIPS 2021",
    .offer = offer_all,
};
