/* walks.c: schedules over memory and disk (walk/walk.h) on the stages of a step's forward.
 *
 *   state i        what crosses the cut before stage i and is not always kept
 *   level 0        memory: the latest copies of it, which lie there until they are read
 *   level 1        the disk: Store and Wait behind the stage that made it, Fetch and Wait before
 *                  its reader
 *
 *   before   F0 F1 F2 F3 | B3 B2 B1 B0
 *   after    F0 F1 write(x2) F2 F3 | F3 B3 read(x2) F2 B2 F0 F1 B1 F0 B0
 *
 * The methods take all steps as equal, so the stages are cut to weigh nearly the same; a step takes
 * their mean time, and a move as long as the mean of what crosses. How many slots, and how many
 * stages, are tried on the true problem; the cheapest that fits is taken. The referee knows of moves,
 * so what is taken is what is written.
 */
#include "passes/budget/planners/chain/chain.h"
#include "passes/budget/planners/walk/walk.h"

enum { MOST_STAGES = 1024, LEAST_STAGES = 4, MOST_TRIES = 80, LONGEST = 40 };

typedef ebb_status (*method)(ebb_walk *, const ebb_course *, double *);

enum { STARTED = 1, AWAY = 2 };

typedef struct walker {
    const ebb_chain *c;
    method method;
    ebb_course course;
    uint32_t *crossing, *from; /* state i is crossing[from[i] .. from[i + 1]) */
    uint8_t *stored;           /* by value */
    uint32_t reading;          /* the state whose read is under way */
} walker;

/* ---- states ---- */

static ebb_status find_states(walker *k, ebb_arena *scratch)
{
    const ebb_chain *c = k->c;
    size_t count = 0, capacity = 0;
    k->crossing = NULL;
    k->from = EBB_NEW(scratch, uint32_t, (size_t)c->stages + 2);
    k->stored = EBB_NEW(scratch, uint8_t, (size_t)c->problem->value_count + 1);
    EBB_GOT(k->from && k->stored);
    for (uint32_t i = 0; i < c->stages; i++) {
        for (uint32_t v = 0; v < c->problem->value_count; v++) {
            if (c->stage_of[v] >= i || c->always[v] || c->reach[v] < c->cut[i] ||
                c->problem->values[v].bytes == 0)
                continue;
            EBB_GOT(ebb_arena_grow(scratch, &k->crossing, count, &capacity, sizeof *k->crossing));
            k->crossing[count++] = v;
        }
        k->from[i + 1] = (uint32_t)count;
    }
    return NULL;
}

/* What is there already, because it crosses an earlier cut, too, is not written again. */
static ebb_status start_write(walker *k, ebb_tape *tape, uint32_t state)
{
    for (uint32_t i = k->from[state]; i < k->from[state + 1]; i++) {
        if (k->stored[k->crossing[i]] != 0)
            continue;
        k->stored[k->crossing[i]] = STARTED;
        EBB_TRY(ebb_tape_move(tape, EBB_REMAT_STORE, k->crossing[i]));
    }
    return NULL;
}

static ebb_status end_write(walker *k, ebb_tape *tape, uint32_t state)
{
    for (uint32_t i = k->from[state]; i < k->from[state + 1]; i++) {
        if (k->stored[k->crossing[i]] != STARTED)
            continue;
        k->stored[k->crossing[i]] = AWAY;
        EBB_TRY(ebb_tape_move(tape, EBB_REMAT_AWAY, k->crossing[i]));
    }
    return NULL;
}

static ebb_status read_state(walker *k, ebb_tape *tape, uint32_t state, ebb_remat_move_kind kind)
{
    k->reading = kind == EBB_REMAT_FETCH ? state : EBB_REMAT_NONE;
    for (uint32_t i = k->from[state]; i < k->from[state + 1]; i++)
        EBB_TRY(ebb_tape_move(tape, kind, k->crossing[i]));
    return NULL;
}

/* ---- acts ---- */

static ebb_status play(walker *k, ebb_tape *tape, const ebb_act *a)
{
    bool disk = a->level > 0;
    switch ((ebb_act_kind)a->kind) {
    case EBB_ACT_FORWARD:
        for (uint32_t s = a->at; s < a->to; s++)
            EBB_TRY(ebb_tape_forward(tape, s));
        return NULL;
    case EBB_ACT_SAVE:
        return ebb_tape_forward(tape, a->at);
    case EBB_ACT_REVERSE:
        EBB_TRY(ebb_tape_forward(tape, a->at));
        return ebb_tape_backward(tape, a->at);
    case EBB_ACT_BACK:
        return ebb_tape_backward(tape, a->at);
    case EBB_ACT_WRITE:
        EBB_TRY(disk ? start_write(k, tape, a->at) : NULL);
        return disk ? end_write(k, tape, a->at) : NULL;
    case EBB_ACT_READ:
        EBB_TRY(disk ? read_state(k, tape, a->at, EBB_REMAT_FETCH) : NULL);
        return disk ? read_state(k, tape, a->at, EBB_REMAT_BACK) : NULL;
    case EBB_ACT_START_WRITE:
        return start_write(k, tape, a->at);
    case EBB_ACT_START_READ:
        return read_state(k, tape, a->at, EBB_REMAT_FETCH);
    case EBB_ACT_WAIT:
        return a->at == k->reading ? read_state(k, tape, a->at, EBB_REMAT_BACK)
                                   : end_write(k, tape, a->at);
    case EBB_ACT_DROP: // copies go with their last reader
    case EBB_ACT_TURN:
        return NULL;
    }
    return NULL;
}

static ebb_status by_slots(void *self, uint64_t slots, ebb_remat_schedule *schedule,
                           ebb_arena *scratch)
{
    walker *k = self;
    ebb_walk walk = {.arena = scratch};
    ebb_tape tape;
    double cost;
    k->course.level[0].slots = (uint32_t)slots;
    k->reading = EBB_REMAT_NONE;
    memset(k->stored, 0, k->c->problem->value_count);
    EBB_TRY(k->method(&walk, &k->course, &cost));
    EBB_TRY(ebb_tape_start(&tape, k->c, (size_t)k->c->problem->op_count * LONGEST, scratch));
    for (size_t i = 0; i < walk.count && !tape.full; i++)
        EBB_TRY(play(k, &tape, &walk.acts[i]));
    *schedule = (ebb_remat_schedule){tape.ops, tape.full ? 0 : tape.count};
    return NULL;
}

/* ---- the planners ---- */

/* Times of the mean stage: what a backward takes beside its forward makes no difference to what is
 * stored, only to whether reads are over in time. */
static ebb_course course_of(const ebb_chain *c)
{
    double ns = 0, bytes = 0;
    for (uint32_t s = 0; s < c->stages; s++) {
        ns += c->ns[s];
        bytes += (double)c->in[s];
    }
    ns /= c->stages;
    double move = bytes / c->stages * c->problem->move_ns;
    return (ebb_course){.steps = c->stages,
                        .forward = ns > 1 ? ns : 1,
                        .backward = ns > 1 ? 3 * ns : 3,
                        .level = {{1, 0, 0}, {EBB_WALK_NO_LIMIT, move, move}},
                        .level_count = 2,
                        .buffers = 2};
}

typedef struct tried {
    method plan;
    uint32_t tries, stages; /* of the last chain */
} tried;

static ebb_status try_stages(void *self, ebb_remat_best *best, uint32_t most, ebb_arena *scratch)
{
    tried *t = self;
    ebb_chain chain;
    EBB_TRY(ebb_chain_make(&chain, best->problem, most, scratch));
    bool fewer = chain.stages < t->stages;
    t->stages = fewer ? chain.stages : t->stages;
    if (!fewer || chain.stages < 2)
        return NULL;
    walker k = {.c = &chain, .method = t->plan, .course = course_of(&chain)};
    EBB_TRY(find_states(&k, scratch));
    return ebb_remat_best_turn(best, 1, chain.stages, t->tries, by_slots, &k);
}

/* without: the planner for the same without a disk, or NULL where the method is always of both. */
static ebb_status offer_by(method plan, const char *without, ebb_remat_best *best, uint64_t steps)
{
    const uint32_t tries = ebb_remat_tries(best->problem, steps / 2, MOST_TRIES) / 8;
    tried t = {plan, tries < 4 ? 4 : tries, UINT32_MAX};
    if (without != NULL)
        EBB_TRY(ebb_remat_best_ask(best, without, steps));
    return ebb_remat_best_halve(best, MOST_STAGES, LEAST_STAGES, try_stages, &t);
}

#define WALKS(id, title, without, line, by)                                                \
    static ebb_status offer_##id(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch) \
    {                                                                                      \
        (void)scratch;                                                                     \
        return offer_by(ebb_walk_##id, without, best, steps);                              \
    }                                                                                      \
    const ebb_planner ebb_planner_##id = {                                                 \
        .name = title, .doc = line, .paper = by, .offer = offer_##id}

WALKS(disk_revolve, "disk-revolve", "revolve",
      "few states in memory, any number on disk, at least time",
      "Aupy, Herrmann, Hovland, Robert, \"Optimal multistage algorithm for adjoint computation\", "
      "2016");
WALKS(periodic_disk_revolve, "periodic-disk-revolve", NULL,
      "the same with every m-th state on disk, for the best m",
      "Aupy and Herrmann, \"Periodicity in optimal hierarchical checkpointing schemes\", 2017");
WALKS(hrevolve, "hrevolve", "revolve",
      "memory and disk as levels with slots and times, at least time",
      "Herrmann and Pallez, \"H-Revolve: a framework for adjoint computation on synchronous "
      "hierarchical platforms\", 2020");
WALKS(multistage, "multistage", NULL,
      "states on disk as often as moves beside the step allow, revolve between them",
      "Kukreja, Hueckelheim, Gorman, arXiv 1806.01117");
WALKS(double_checkpoint, "double-checkpoint", NULL,
      "the same, with square-root checkpoints between them: two runs more at most",
      "Bencheikh, Finkbeiner, Neftci, arXiv 2412.11810");
