/* rotor: for each stage of a chain: drop it, keep its input, or keep what its backward reads.
 *
 *   keep input   run i .. k-1 and drop all but the end; then k .. j, back; then i .. k-1 again
 *   keep all     run i and keep what it saved; then i+1 .. j, back; then the backward of i
 *
 * The exact optimum over both for stages of any size and cost, by dynamic programming over stages
 * i .. j and bytes in at most 500 slots. Keep all comes in several forms: without the values that
 * are cheapest to make again for their bytes, which are made again before the stage's backward.
 *
 * Where the chain is only nearly the problem, the bytes given to it are a dial, turned until the
 * true peak fits.
 *
 * Papers: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, RR-9302 / arXiv 1911.13214; the forms
 * of keep all: Zhao et al., "Rockmate", arXiv 2307.01236.
 */
#include <math.h>
#include <stdlib.h>

#include "passes/budget/planners/chain/chain.h"

enum { MOST_STAGES = 160, LEAST_STAGES = 12, SLOTS = 500, FORMS = 5, MOST_TRIES = 40 };

typedef struct form {
    uint64_t bytes;
    double ns;    /* to make again what it dropped */
    uint32_t ops; /* that many of the stage's cheapest are dropped */
} form;

typedef struct rotor {
    ebb_chain chain;
    form (*forms)[FORMS]; /* by stage; the first drops nothing */
    uint32_t *form_count;
    uint32_t *rank;   /* by operator: its place among the cheapest of its stage */
    double *ns_up_to; /* by stage: forward time of all stages before it */
    double slot;      /* bytes; of the table as it is filled */
    float *table;     /* by pair of stages i <= j and slots: nanoseconds; INFINITY: not so few */
} rotor;

/* ---- forms ---- */

typedef struct cheap {
    double ratio;
    uint32_t op;
} cheap;

static int by_ratio(const void *a, const void *b)
{
    const cheap *x = a, *y = b;
    if (x->ratio < y->ratio || x->ratio > y->ratio)
        return x->ratio < y->ratio ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

/* What stage s holds between its forward and its backward where the operators of the `ops` lowest
 * ranks are dropped: what leaves it, what the others made for the backward or for those. */
static form form_of(const rotor *r, uint32_t s, uint32_t ops)
{
    const ebb_chain *c = &r->chain;
    const ebb_remat_problem *p = c->problem;
    form f = {.ops = ops};
    for (uint32_t i = c->cut[s]; i < c->cut[s + 1]; i++) {
        uint32_t u = c->forward[i];
        bool dropped = r->rank[u] < ops;
        f.ns += dropped ? p->ops[u].cost_ns : 0;
        for (uint32_t k = 0; k < p->ops[u].out_count; k++) {
            uint32_t v = p->ops[u].out[k];
            bool needed = c->reach[v] >= c->cut[s + 1] || (c->read_back[v] && !dropped);
            for (uint32_t j = 0; j < p->values[v].reader_count && !needed && !dropped; j++)
                needed = r->rank[p->values[v].readers[j]] < ops;
            f.bytes += needed && !c->always[v] ? p->values[v].bytes : 0;
        }
    }
    return f;
}

static void find_forms(rotor *r, uint32_t s, cheap *list)
{
    const ebb_chain *c = &r->chain;
    uint32_t count = 0;
    for (uint32_t i = c->cut[s]; i < c->cut[s + 1]; i++) {
        const ebb_remat_op *op = &c->problem->ops[c->forward[i]];
        double bytes = 0;
        for (uint32_t k = 0; k < op->out_count; k++)
            bytes += c->always[op->out[k]] ? 0 : (double)c->problem->values[op->out[k]].bytes;
        if (bytes > 0 && !op->once && op->before == EBB_REMAT_NONE)
            list[count++] = (cheap){op->cost_ns / bytes, c->forward[i]};
    }
    qsort(list, count, sizeof *list, by_ratio);
    for (uint32_t i = 0; i < count; i++)
        r->rank[list[i].op] = i;
    form *forms = r->forms[s];
    forms[0] = (form){.bytes = c->saved[s]};
    uint32_t made = 1;
    for (uint32_t k = 1; k < FORMS; k++) {
        uint32_t ops = (uint32_t)((uint64_t)count * k / (FORMS - 1));
        form f = form_of(r, s, ops);
        if (ops > forms[made - 1].ops && f.bytes < forms[made - 1].bytes)
            forms[made++] = f;
    }
    r->form_count[s] = made;
}

/* ---- the table ---- */

static float *cell(const rotor *r, uint32_t i, uint32_t j)
{
    return &r->table[((size_t)j * (j + 1) / 2 + i) * (SLOTS + 1)];
}

static uint32_t slots_of(const rotor *r, uint64_t bytes)
{
    double slots = ceil((double)bytes / r->slot);
    return slots <= SLOTS ? (uint32_t)slots : SLOTS + 1;
}

/* One choice for stages i .. j: the one stage after which it goes on, what that holds, its time,
 * and from how many slots on it can be made. */
typedef struct choice {
    const float *after, *inner; /* inner: NULL for keep all */
    uint32_t held, least;
    float ns;
} choice;

static choice keep_all(const rotor *r, uint32_t i, uint32_t j, uint32_t which)
{
    const ebb_chain *c = &r->chain;
    const form *f = &r->forms[i][which];
    uint64_t run = c->fill[i] + c->grad[j];
    uint64_t again = which > 0 ? c->redo[i] + c->grad[i] : 0, most = run > again ? run : again;
    most = c->back[i] > most ? c->back[i] : most;
    choice made = {.after = cell(r, i + 1, j), .held = slots_of(r, f->bytes)};
    made.least = slots_of(r, most);
    made.least = made.held > made.least ? made.held : made.least;
    made.ns = (float)(c->ns[i] + f->ns);
    return made;
}

/* highest: of the stages i .. k-1 while they run and are dropped, without the gradient. */
static choice keep_input(const rotor *r, uint32_t i, uint32_t k, uint32_t j, uint64_t highest)
{
    choice made = {.after = cell(r, k, j), .inner = cell(r, i, k - 1)};
    made.held = slots_of(r, r->chain.in[k]);
    made.least = slots_of(r, highest + r->chain.grad[j]);
    made.least = made.held > made.least ? made.held : made.least;
    made.ns = (float)(r->ns_up_to[k] - r->ns_up_to[i]);
    return made;
}

static float cost_of(const choice *c, uint32_t m)
{
    return m < c->least ? INFINITY
                        : c->ns + c->after[m - c->held] + (c->inner != NULL ? c->inner[m] : 0);
}

static void improve(float *row, const choice *c)
{
    for (uint32_t m = c->least; m <= SLOTS; m++) {
        float ns = c->ns + c->after[m - c->held] + (c->inner != NULL ? c->inner[m] : 0);
        row[m] = ns < row[m] ? ns : row[m];
    }
}

static uint64_t higher(const ebb_chain *c, uint32_t i, uint32_t k, uint64_t highest)
{
    uint64_t here = c->drop[k] + (k > i ? c->in[k] : 0);
    return here > highest ? here : highest;
}

static void fill_pair(rotor *r, uint32_t i, uint32_t j)
{
    const ebb_chain *c = &r->chain;
    float *row = cell(r, i, j);
    if (i == j) {
        uint64_t run = c->redo[i] + c->grad[i];
        uint32_t least = slots_of(r, run > c->back[i] ? run : c->back[i]);
        for (uint32_t m = 0; m <= SLOTS; m++)
            row[m] = m < least ? INFINITY : (float)c->redo_ns[i];
        return;
    }
    for (uint32_t m = 0; m <= SLOTS; m++)
        row[m] = INFINITY;
    for (uint32_t f = 0; f < r->form_count[i]; f++) {
        choice all = keep_all(r, i, j, f);
        improve(row, &all);
    }
    uint64_t highest = 0;
    for (uint32_t k = i + 1; k <= j; k++) {
        highest = higher(c, i, k - 1, highest);
        choice input = keep_input(r, i, k, j, highest);
        improve(row, &input);
    }
}

static void fill(rotor *r, uint64_t bytes)
{
    r->slot = bytes > SLOTS ? (double)bytes / SLOTS : 1;
    for (uint32_t j = 0; j < r->chain.stages; j++)
        for (uint32_t i = j + 1; i-- > 0;)
            fill_pair(r, i, j);
}

/* ---- the schedule ---- */

static ebb_status make_dropped(const rotor *r, ebb_tape *tape, uint32_t s, uint32_t ops)
{
    const ebb_chain *c = &r->chain;
    for (uint32_t i = c->cut[s]; i < c->cut[s + 1]; i++)
        if (r->rank[c->forward[i]] < ops)
            EBB_TRY(ebb_tape_again(tape, c->forward[i]));
    return NULL;
}

/* Follows the table, choosing again as it was filled. Depth: at most the stages. */
static ebb_status follow(const rotor *r, ebb_tape *tape, uint32_t i, uint32_t j, uint32_t m)
{
    const ebb_chain *c = &r->chain;
    float best = INFINITY;
    uint32_t which = 0, at = 0, held = 0;
    uint64_t highest = 0;
    for (uint32_t f = 0; i < j && f < r->form_count[i]; f++) {
        choice all = keep_all(r, i, j, f);
        if (cost_of(&all, m) < best) {
            best = cost_of(&all, m);
            which = f;
            held = all.held;
        }
    }
    for (uint32_t k = i + 1; k <= j; k++) {
        highest = higher(c, i, k - 1, highest);
        choice input = keep_input(r, i, k, j, highest);
        if (cost_of(&input, m) < best) {
            best = cost_of(&input, m);
            at = k;
            held = input.held;
        }
    }
    if (at > 0) {
        for (uint32_t s = i; s < at; s++)
            EBB_TRY(ebb_tape_forward(tape, s));
        EBB_TRY(follow(r, tape, at, j, m - held));
        return follow(r, tape, i, at - 1, m);
    }
    EBB_TRY(ebb_tape_forward(tape, i));
    if (i < j) {
        EBB_TRY(follow(r, tape, i + 1, j, m - held));
        EBB_TRY(make_dropped(r, tape, i, r->forms[i][which].ops));
    }
    return ebb_tape_backward(tape, i);
}

static ebb_status by_slots(void *self, uint64_t slots, ebb_remat_schedule *schedule,
                           ebb_arena *scratch)
{
    const rotor *r = self;
    ebb_tape tape;
    if (isinf(cell(r, 0, r->chain.stages - 1)[slots]))
        return NULL;
    EBB_TRY(ebb_tape_start(&tape, &r->chain, SIZE_MAX, scratch));
    EBB_TRY(follow(r, &tape, 0, r->chain.stages - 1, (uint32_t)slots));
    *schedule = (ebb_remat_schedule){tape.ops, tape.count};
    return NULL;
}

/* ---- the planner ---- */

static ebb_status prepare(rotor *r, const ebb_remat_problem *p, uint32_t most, ebb_arena *scratch)
{
    EBB_TRY(ebb_chain_make(&r->chain, p, most, scratch));
    size_t stages = r->chain.stages;
    r->forms = ebb_arena_zeroed(scratch, stages + 1, sizeof *r->forms);
    r->form_count = EBB_NEW(scratch, uint32_t, stages + 1);
    r->rank = EBB_NEW(scratch, uint32_t, (size_t)p->op_count + 1);
    r->ns_up_to = EBB_NEW(scratch, double, stages + 1);
    r->table = EBB_NEW(scratch, float, (stages * (stages + 1) / 2 + 1) * (SLOTS + 1));
    cheap *list = EBB_NEW(scratch, cheap, (size_t)p->op_count + 1);
    EBB_GOT(r->forms && r->form_count && r->rank && r->ns_up_to && r->table && list);
    memset(r->rank, 0xff, p->op_count * sizeof *r->rank);
    for (uint32_t s = 0; s < stages; s++) {
        find_forms(r, s, list);
        r->ns_up_to[s + 1] = r->ns_up_to[s] + r->chain.ns[s];
    }
    return NULL;
}

static uint64_t least_slots(const rotor *r)
{
    const float *row = cell(r, 0, r->chain.stages - 1);
    uint64_t m = 0;
    while (m < SLOTS && isinf(row[m]))
        m++;
    return m;
}

/* Slots round up, so the first table, in which all is kept, is coarse for a small budget: the next
 * ones are made in smaller slots, up to twice what the budget leaves. */
static ebb_status turn(rotor *r, ebb_remat_best *best, uint32_t tries)
{
    uint64_t bytes = ebb_chain_all_kept(&r->chain), base = r->chain.base;
    for (uint32_t round = 0; round < 3; round++) {
        fill(r, bytes);
        EBB_TRY(ebb_remat_best_turn(best, least_slots(r), SLOTS, tries, by_slots, r));
        uint64_t left = best->budget > base ? 2 * (best->budget - base) : 0;
        if (!best->fits) // below: the least that the table knows
            left = (uint64_t)(1.5 * r->slot * (double)least_slots(r));
        if (left == 0 || left >= bytes / 2)
            break;
        bytes = left;
    }
    return NULL;
}

static ebb_status offer_all(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch)
{
    uint32_t tries = ebb_remat_tries(best->problem, steps / 4, MOST_TRIES), most = MOST_STAGES;
    while (most > LEAST_STAGES && (uint64_t)most * most * most / 6 * SLOTS / 500 > steps)
        most -= 4;
    rotor r = {0};
    EBB_TRY(prepare(&r, best->problem, most, scratch));
    return r.chain.stages > 1 ? turn(&r, best, tries / 2) : NULL;
}

const ebb_planner ebb_planner_rotor = {
    .name = "rotor",
    .doc = "for each stage drop, keep the input or keep all, by dynamic programming over bytes",
    .paper = "Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, arXiv 1911.13214",
    .offer = offer_all,
    .seeds = 4000,
};
