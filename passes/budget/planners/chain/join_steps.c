/* join_steps.c: join (walk/join.c) on a step whose forward is chains that meet.
 *
 *   a0 a1 a2 a3 \
 *                 head, loss         two encoders and a score of their outputs
 *   b0 b1 b2    /
 *
 * Parts of the forward of which none reads what another makes are chains, each cut into stages of
 * its own (chain.h), as many as its share of the time says. Where two that weigh something meet the
 * turn begins: what depends on several chains, and the backward until it needs the inner values of
 * one. Behind the turn a stage is reversed by the operators of the backward that belong to it; what
 * depends on several chains, such as the gradient of a weight that they share, runs as soon as all
 * that it reads is there.
 *
 * The method takes all steps as equal; how many slots, and how many stages, are tried on the true
 * problem, beside revolve, which sees one chain where this sees several. The cheapest that fits is
 * taken.
 */
#include "passes/budget/planners/chain/chain.h"
#include "passes/budget/planners/walk/walk.h"

enum { MOST_STAGES = 64, LEAST_STAGES = 2, MOST_TRIES = 80, LONGEST = 40, SHARE = 16 };
static const double most_work = 1e7; // of a walk, in steps of its table

/* Whose an operator is: of a chain, by its number, or of these. */
enum { TURN = EBB_WALK_BRANCHES, SEVERAL };

typedef struct joiner {
    const ebb_remat_problem *p;
    ebb_chain whole, chain[EBB_WALK_BRANCHES];
    uint32_t chain_count;
    uint8_t *owner;     /* by operator */
    bool *later;        /* by operator: runs behind the forward of the chains */
    uint32_t *set;      /* union-find: by operator */
    double *weight;     /* by set: bytes */
    uint32_t *waits;    /* by operator: for so many others that run later, too */
    bool *released;     /* by operator: it may run when it waits for nothing */
    uint32_t *block;    /* operators that are released together, in list order */
    uint32_t *block_of; /* by operator: the number of its block */
    uint32_t blocks;
    uint32_t *ready, ready_count; /* a stack */
    ebb_course course;
    uint32_t first[EBB_WALK_BRANCHES + 1]; /* states, as the course numbers them */
} joiner;

/* ---- chains ---- */

static uint32_t set_of(const joiner *j, uint32_t u)
{
    while (j->set[u] != u) {
        j->set[u] = j->set[j->set[u]];
        u = j->set[u];
    }
    return u;
}

/* Operator u reads what the turn makes, or two sets that weigh enough to be chains. */
static bool meets(const joiner *j, uint32_t u, double enough)
{
    const ebb_remat_op *op = &j->p->ops[u];
    uint32_t heavy = EBB_REMAT_NONE;
    for (uint32_t k = 0; k < op->in_count; k++) {
        const uint32_t maker = j->p->values[op->in[k]].op;
        if (maker == EBB_REMAT_NONE)
            continue;
        const uint32_t set = set_of(j, maker);
        if (j->owner[set] != SEVERAL)
            return true;
        if (j->weight[set] < enough || set == heavy)
            continue;
        if (heavy != EBB_REMAT_NONE)
            return true;
        heavy = set;
    }
    return false;
}

/* The sets that u reads and that weigh enough become chains. */
static void close_chains(joiner *j, uint32_t u, double enough)
{
    const ebb_remat_op *op = &j->p->ops[u];
    j->owner[u] = TURN;
    for (uint32_t k = 0; k < op->in_count; k++) {
        const uint32_t maker = j->p->values[op->in[k]].op;
        const uint32_t set = maker != EBB_REMAT_NONE ? set_of(j, maker) : u;
        if (j->owner[set] == SEVERAL && j->weight[set] >= enough &&
            j->chain_count < EBB_WALK_BRANCHES)
            j->owner[set] = (uint8_t)j->chain_count++;
    }
}

static void unite(joiner *j, uint32_t u)
{
    const ebb_remat_op *op = &j->p->ops[u];
    for (uint32_t k = 0; k < op->out_count; k++)
        j->weight[u] += (double)j->p->values[op->out[k]].bytes;
    for (uint32_t k = 0; k < op->in_count; k++) {
        const uint32_t maker = j->p->values[op->in[k]].op;
        const uint32_t set = maker != EBB_REMAT_NONE ? set_of(j, maker) : u;
        if (set == u)
            continue;
        j->set[set] = u;
        j->weight[u] += j->weight[set];
    }
}

/* Owner of each operator of the forward. While sets grow their owner is SEVERAL: not yet known. */
static void find_chains(joiner *j)
{
    const ebb_chain *w = &j->whole;
    double all = 0;
    memset(j->owner, SEVERAL, j->p->op_count);
    for (uint32_t i = 0; i < w->forward_count; i++)
        for (uint32_t k = 0; k < j->p->ops[w->forward[i]].out_count; k++)
            all += (double)j->p->values[j->p->ops[w->forward[i]].out[k]].bytes;
    for (uint32_t i = 0; i < w->forward_count; i++) {
        const uint32_t u = w->forward[i];
        j->set[u] = u;
        if (meets(j, u, all / SHARE))
            close_chains(j, u, all / SHARE);
        else
            unite(j, u);
    }
    for (uint32_t i = 0; i < w->forward_count; i++) {
        const uint32_t u = w->forward[i];
        j->owner[u] = j->owner[set_of(j, u)];
        if (j->owner[u] == SEVERAL)
            j->owner[u] = TURN;
    }
}

/* The same problem in which all but chain b is of the backward, cut into stages. */
static ebb_status cut(joiner *j, uint32_t b, uint32_t most, ebb_arena *scratch)
{
    ebb_remat_problem *p = EBB_NEW(scratch, ebb_remat_problem, 1);
    ebb_remat_op *ops = EBB_NEW(scratch, ebb_remat_op, (size_t)j->p->op_count + 1);
    EBB_GOT(p && ops);
    *p = *j->p;
    p->ops = ops;
    for (uint32_t u = 0; u < p->op_count; u++) {
        ops[u] = j->p->ops[u];
        ops[u].backward = j->owner[u] != b;
    }
    return ebb_chain_make(&j->chain[b], p, most, scratch);
}

/* ---- who owns the backward ---- */

/* What the turn reads says nothing: its gradient is made there of the others' outputs. */
static uint8_t owner_of_value(const joiner *j, uint32_t v)
{
    const ebb_remat_value *value = &j->p->values[v];
    if (value->op == EBB_REMAT_NONE)
        return TURN;
    if (j->later[value->op])
        return j->owner[value->op];
    for (uint32_t i = 0; i < value->reader_count; i++)
        if (j->owner[value->readers[i]] == TURN && !j->p->ops[value->readers[i]].backward)
            return TURN;
    return j->owner[value->op];
}

static void find_owners(joiner *j)
{
    for (uint32_t i = 0; i < j->whole.backward_count; i++) {
        const uint32_t u = j->whole.backward[i];
        const ebb_remat_op *op = &j->p->ops[u];
        uint8_t owner = TURN;
        for (uint32_t k = 0; k < op->in_count; k++) {
            const uint8_t by = owner_of_value(j, op->in[k]);
            if (by != TURN && by != owner)
                owner = owner == TURN ? by : SEVERAL;
        }
        j->owner[u] = owner;
    }
}

/* ---- the order of what runs later ---- */

/* Calls `each` for the operators that must run behind u. */
static void each_behind(joiner *j, uint32_t u, void (*each)(joiner *, uint32_t))
{
    const ebb_remat_op *op = &j->p->ops[u];
    for (uint32_t k = 0; k < op->out_count; k++) {
        const ebb_remat_value *value = &j->p->values[op->out[k]];
        for (uint32_t i = 0; i < value->reader_count; i++)
            each(j, value->readers[i]);
    }
    for (uint32_t i = 0; i < op->before_count; i++)
        each(j, op->befores[i]);
    if (op->before != EBB_REMAT_NONE && op->before_count == 0)
        each(j, op->before);
}

static void count_wait(joiner *j, uint32_t u)
{
    j->waits[u]++;
}

static void end_wait(joiner *j, uint32_t u)
{
    // of the block that is being played u is reached in its turn
    if (--j->waits[u] == 0 && j->released[u] && j->block_of[u] != j->blocks)
        j->ready[j->ready_count++] = u;
}

static ebb_status play_block(joiner *j, ebb_tape *tape, uint32_t count)
{
    j->blocks++;
    for (uint32_t i = 0; i < count; i++) {
        j->released[j->block[i]] = true;
        j->block_of[j->block[i]] = j->blocks;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (j->waits[j->block[i]] > 0)
            continue;
        j->ready[j->ready_count++] = j->block[i];
        while (j->ready_count > 0) {
            const uint32_t u = j->ready[--j->ready_count];
            EBB_TRY(ebb_tape_again(tape, u));
            each_behind(j, u, end_wait);
        }
    }
    j->blocks++; // what of it still waits runs when it may
    return NULL;
}

static ebb_status play_turn(joiner *j, ebb_tape *tape)
{
    uint32_t count = 0;
    for (uint32_t u = 0; u < j->p->op_count; u++)
        if (j->later[u] && j->owner[u] >= TURN)
            j->block[count++] = u;
    return play_block(j, tape, count);
}

static ebb_status play_back(joiner *j, ebb_tape *tape, uint32_t b, uint32_t stage)
{
    const ebb_chain *c = &j->chain[b];
    uint32_t count = 0;
    for (uint32_t i = c->turn[stage + 1]; i < c->turn[stage]; i++)
        if (j->owner[c->backward[i]] == b)
            j->block[count++] = c->backward[i];
    return play_block(j, tape, count);
}

static ebb_status play(joiner *j, ebb_tape *tape, const ebb_act *a)
{
    uint32_t b = 0;
    while (b + 1 < j->chain_count && a->at >= j->first[b + 1])
        b++;
    tape->chain = &j->chain[b];
    switch ((ebb_act_kind)a->kind) {
    case EBB_ACT_FORWARD:
        for (uint32_t s = a->at; s < a->to; s++)
            EBB_TRY(ebb_tape_forward(tape, s - j->first[b]));
        return NULL;
    case EBB_ACT_REVERSE:
        EBB_TRY(ebb_tape_forward(tape, a->at - j->first[b]));
        return play_back(j, tape, b, a->at - j->first[b]);
    case EBB_ACT_TURN:
        return play_turn(j, tape);
    default: // a copy lies where it was made, and goes with its last reader
        return NULL;
    }
}

static ebb_status by_slots(void *self, uint64_t slots, ebb_remat_schedule *schedule,
                           ebb_arena *scratch)
{
    joiner *j = self;
    ebb_walk walk = {.arena = scratch};
    ebb_tape tape;
    double cost;
    j->course.level[0].slots = (uint32_t)slots;
    EBB_TRY(ebb_walk_join(&walk, &j->course, &cost));
    memset(j->waits, 0, j->p->op_count * sizeof *j->waits);
    memset(j->block_of, 0, j->p->op_count * sizeof *j->block_of);
    memset(j->released, 0, j->p->op_count * sizeof *j->released);
    j->blocks = 0;
    for (uint32_t u = 0; u < j->p->op_count; u++)
        if (j->later[u])
            each_behind(j, u, count_wait);
    EBB_TRY(ebb_tape_start(&tape, &j->chain[0], (size_t)j->p->op_count * LONGEST, scratch));
    for (size_t i = 0; i < walk.count && !tape.full; i++)
        EBB_TRY(play(j, &tape, &walk.acts[i]));
    *schedule = (ebb_remat_schedule){tape.ops, tape.full ? 0 : tape.count};
    return NULL;
}

/* ---- the planner ---- */

static ebb_status allocate(joiner *j, ebb_arena *scratch)
{
    const size_t ops = (size_t)j->p->op_count + 2;
    j->owner = EBB_NEW(scratch, uint8_t, ops);
    j->later = EBB_NEW(scratch, bool, ops);
    j->set = EBB_NEW(scratch, uint32_t, ops);
    j->weight = EBB_NEW(scratch, double, ops);
    j->waits = EBB_NEW(scratch, uint32_t, ops);
    j->released = EBB_NEW(scratch, bool, ops);
    j->block = EBB_NEW(scratch, uint32_t, ops);
    j->block_of = EBB_NEW(scratch, uint32_t, ops);
    j->ready = EBB_NEW(scratch, uint32_t, ops);
    return j->owner != NULL && j->later != NULL && j->set != NULL && j->weight != NULL &&
                   j->waits != NULL && j->released != NULL && j->block != NULL &&
                   j->block_of != NULL && j->ready != NULL
               ? NULL
               : ebb_error_memory();
}

static double time_of(const joiner *j, uint32_t b)
{
    double ns = 1;
    for (uint32_t i = 0; i < j->whole.forward_count; i++)
        if (j->owner[j->whole.forward[i]] == b)
            ns += j->p->ops[j->whole.forward[i]].cost_ns;
    return ns;
}

/* Each chain in stages, the slowest in `most`; what is in no stage runs later. */
static ebb_status cut_all(joiner *j, uint32_t most, ebb_arena *scratch)
{
    double slowest = 0;
    for (uint32_t b = 0; b < j->chain_count; b++)
        slowest = time_of(j, b) > slowest ? time_of(j, b) : slowest;
    memset(j->later, 1, j->p->op_count * sizeof *j->later);
    j->course =
        (ebb_course){.forward = 1, .backward = 1, .level_count = 1, .branch_count = j->chain_count};
    for (uint32_t b = 0; b < j->chain_count; b++) {
        const ebb_chain *c = &j->chain[b];
        EBB_TRY(cut(j, b, (uint32_t)(most * time_of(j, b) / slowest + 0.5), scratch));
        for (uint32_t i = 0; i < c->forward_count; i++)
            j->later[c->forward[i]] = false;
        j->course.branch[b] = c->stages;
        j->first[b + 1] = j->first[b] + c->stages + 1;
    }
    j->course.steps = j->first[j->chain_count];
    for (uint32_t i = 0; i < j->whole.forward_count; i++) // what a chain could not take
        if (j->later[j->whole.forward[i]])
            j->owner[j->whole.forward[i]] = TURN;
    find_owners(j);
    return NULL;
}

/* A state is overwritten in a chain; who reads it must not run behind that chain. */
static bool keeps_its_states(const joiner *j)
{
    for (uint32_t u = 0; u < j->p->op_count; u++) {
        const ebb_remat_op *op = &j->p->ops[u];
        for (uint32_t i = 0; i < op->before_count; i++) {
            const uint32_t by = op->befores[i];
            if (!j->later[by] && (j->later[u] || j->owner[u] != j->owner[by]))
                return false;
        }
    }
    return true;
}

static double work_of(const ebb_course *c)
{
    double work = (double)c->steps * c->steps;
    for (uint32_t b = 0; b < c->branch_count; b++)
        work *= c->branch[b] + 1.0;
    return work;
}

static ebb_status try_stages(void *tries, ebb_remat_best *best, uint32_t most, ebb_arena *scratch)
{
    joiner j = {.p = best->problem};
    EBB_TRY(allocate(&j, scratch));
    EBB_TRY(ebb_chain_make(&j.whole, best->problem, 1, scratch));
    find_chains(&j);
    if (j.chain_count < 2)
        return NULL;
    EBB_TRY(cut_all(&j, most, scratch));
    for (uint32_t b = 0; b < j.chain_count; b++)
        if (j.chain[b].stages == 0)
            return NULL;
    return keeps_its_states(&j) && work_of(&j.course) <= most_work
               ? ebb_remat_best_turn(best, 2 * j.chain_count, j.course.steps,
                                     *(const uint32_t *)tries, by_slots, &j)
               : NULL;
}

static ebb_status offer_all(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch)
{
    (void)scratch;
    uint32_t tries = ebb_remat_tries(best->problem, steps / 2, MOST_TRIES) / 8;
    tries = tries < 4 ? 4 : tries;
    EBB_TRY(ebb_remat_best_ask(best, "revolve", steps));
    return ebb_remat_best_halve(best, MOST_STAGES, LEAST_STAGES, try_stages, &tries);
}

const ebb_planner ebb_planner_join = {
    .name = "join",
    .doc = "chains that meet, such as two encoders: each by binomial checkpointing, in any order",
    .paper = "Beaumont, Herrmann, Pallez, Shilova, \"Optimal memory-aware backpropagation of deep "
             "join networks\", Phil. Trans. R. Soc. A 378, 2020",
    .offer = offer_all,
    .points = 4000,
};
