/* hrevolve.c: any number of levels, each with its slots and its times.
 *
 *   stored_k(n, m)  n steps whose first state lies at level k, of which m slots are left with it:
 *                   least of below_k(n) and, over j,
 *                   j forward + fresh_k(n - j, m - 1) + read_k + stored_k(j, m)
 *   fresh_k(n, m)   it lies nowhere yet: least of below_k(n) and write_k + stored_k(n, m)
 *   below_k(n)      what the levels before k need by themselves: fresh_(k-1)(n, all slots)
 *
 * Where moves in memory take no time, the table of level 0 is revolve's closed form. The tables
 * take levels * slots * n^2 time. Above a bound, n counts blocks of steps: states of the slower
 * levels lie at the beginnings of blocks alone, and those of memory where they are best.
 *
 * Paper: Herrmann and Pallez, "H-Revolve: a framework for adjoint computation on synchronous
 * hierarchical platforms", 2020.
 */
#include <math.h>

#include "passes/budget/planners/walk/tables.h"

enum { MOST_BLOCKS = 4096 };
static const double most_work = 1e9, most_entries = 8e6;

typedef struct table {
    double *stored, *fresh; /* row of blocks + 1 for each number of slots */
    double *below;          /* blocks + 1 */
    uint32_t slots;
} table;

typedef struct hrevolve {
    const ebb_course *c;
    table level[EBB_WALK_LEVELS];
    uint32_t blocks, block; /* steps in one; the last may be shorter */
    uint32_t lowest;        /* the first level that has a table */
    double *memory;         /* below it, where that is not the first */
    size_t width;
} hrevolve;

static double *row(const hrevolve *h, double *rows, uint32_t slots)
{
    return &rows[slots * h->width];
}

static void fill_slots(const hrevolve *h, uint32_t k, uint32_t m, double *go)
{
    const ebb_walk_level *level = &h->c->level[k];
    const table *t = &h->level[k];
    double *stored = row(h, t->stored, m), *fresh = row(h, t->fresh, m);
    const double *less = row(h, t->fresh, m - 1);
    for (uint32_t n = 1; n <= h->blocks; n++) {
        double best = ebb_walk_least_sum(&go[1], &less[n - 1], n - 1);
        stored[n] = best < t->below[n] ? best : t->below[n];
        double written = level->write + stored[n];
        fresh[n] = written < t->below[n] ? written : t->below[n];
        go[n] = (double)n * h->block * h->c->forward + level->read + stored[n];
    }
}

static ebb_status fill_level(hrevolve *h, uint32_t k, ebb_arena *scratch)
{
    table *t = &h->level[k];
    size_t count;
    double *go = EBB_NEW(scratch, double, h->width);
    EBB_GOT(ebb_size_mul(&count, h->width, (size_t)t->slots + 1));
    t->stored = EBB_NEW(scratch, double, count);
    t->fresh = EBB_NEW(scratch, double, count);
    t->below = EBB_NEW(scratch, double, h->width);
    EBB_GOT(go && t->stored && t->fresh && t->below);
    for (uint32_t n = 1; n <= h->blocks; n++) {
        if (k > h->lowest)
            t->below[n] = row(h, h->level[k - 1].fresh, h->level[k - 1].slots)[n];
        else if (h->lowest > 0)
            t->below[n] = h->memory[n];
        else
            t->below[n] = n == 1 ? h->c->backward : HUGE_VAL; // one step needs no slot
        t->fresh[n] = t->below[n];
    }
    for (uint32_t m = 1; m <= t->slots; m++)
        fill_slots(h, k, m, go);
    return NULL;
}

/* ---- the walk ---- */

static uint32_t step_of(const hrevolve *h, uint32_t block)
{
    uint64_t step = (uint64_t)block * h->block;
    return step < h->c->steps ? (uint32_t)step : h->c->steps;
}

static ebb_status descend(const hrevolve *h, ebb_walk *w, uint32_t k, uint32_t first, uint32_t n);

/* Of n blocks whose first state lies at level k: how far to run first, m slots being left with it. */
static uint32_t stop_of(const hrevolve *h, uint32_t k, uint32_t m, uint32_t n)
{
    const double *stored = row(h, h->level[k].stored, m), *less = row(h, h->level[k].fresh, m - 1);
    double least = HUGE_VAL;
    uint32_t at = 1;
    for (uint32_t j = 1; j < n; j++) {
        double time = (double)j * h->block * h->c->forward + stored[j] + less[n - j];
        at = time < least ? j : at;
        least = time < least ? time : least;
    }
    return at;
}

/* State `first` (counted in blocks) is at hand and lies nowhere. Depth: at most the slots. */
static ebb_status go_fresh(const hrevolve *h, ebb_walk *w, uint32_t k, uint32_t m, uint32_t first,
                           uint32_t n)
{
    const table *t = &h->level[k];
    const double *stored = row(h, t->stored, m);
    uint32_t at = step_of(h, first);
    if (row(h, t->fresh, m)[n] == t->below[n])
        return descend(h, w, k, first, n);
    EBB_TRY(ebb_walk_add(w, EBB_ACT_WRITE, k, at, 0));
    while (stored[n] != t->below[n]) {
        uint32_t j = stop_of(h, k, m, n);
        EBB_TRY(ebb_walk_add(w, EBB_ACT_FORWARD, 0, at, step_of(h, first + j)));
        EBB_TRY(go_fresh(h, w, k, m - 1, first + j, n - j));
        EBB_TRY(ebb_walk_add(w, EBB_ACT_READ, k, at, 0));
        n = j;
    }
    EBB_TRY(ebb_walk_add(w, EBB_ACT_DROP, k, at, 0));
    return descend(h, w, k, first, n);
}

static ebb_status descend(const hrevolve *h, ebb_walk *w, uint32_t k, uint32_t first, uint32_t n)
{
    if (k > h->lowest)
        return go_fresh(h, w, k - 1, h->level[k - 1].slots, first, n);
    return ebb_walk_binomial(w, step_of(h, first), step_of(h, first + n), h->c->level[0].slots);
}

static ebb_status cut_into_blocks(hrevolve *h)
{
    const ebb_course *c = h->c;
    uint64_t most = c->steps < MOST_BLOCKS ? c->steps : MOST_BLOCKS;
    for (;; most -= most / 8) {
        double slots = 0;
        for (uint32_t k = h->lowest; k < c->level_count; k++)
            slots += (double)(c->level[k].slots < most ? c->level[k].slots : most) + 1;
        if (most < 8 || ((double)most * (double)most / 2 * slots <= most_work &&
                         (double)most * slots <= most_entries))
            break;
    }
    h->block = (uint32_t)((c->steps + most - 1) / most);
    h->blocks = (uint32_t)(((uint64_t)c->steps + h->block - 1) / h->block);
    h->width = (size_t)h->blocks + 1;
    if (h->block > 1 && h->lowest == 0)
        return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                  "hrevolve plans chains of at most %llu steps where moves in the "
                                  "first level take time",
                                  (unsigned long long)most),
                        "count moves in memory for nothing");
    return NULL;
}

ebb_status ebb_walk_hrevolve(ebb_walk *walk, const ebb_course *course, double *cost)
{
    EBB_LOCAL_ARENA(scratch);
    hrevolve h = {.c = course};
    h.lowest = course->level[0].write <= 0 && course->level[0].read <= 0;
    EBB_TRY(cut_into_blocks(&h));
    if (h.lowest > 0) {
        h.memory = EBB_NEW(scratch, double, h.width);
        EBB_GOT(h.memory);
        ebb_walk_in_memory(h.memory, h.blocks, h.block, course);
    }
    for (uint32_t k = h.lowest; k < course->level_count; k++) {
        h.level[k].slots = course->level[k].slots < h.blocks ? course->level[k].slots : h.blocks;
        EBB_TRY(fill_level(&h, k, scratch));
    }
    uint32_t last = course->level_count - 1;
    if (last < h.lowest)
        return ebb_walk_revolve(walk, course, cost);
    *cost = row(&h, h.level[last].fresh, h.level[last].slots)[h.blocks];
    return go_fresh(&h, walk, last, h.level[last].slots, 0, h.blocks);
}
