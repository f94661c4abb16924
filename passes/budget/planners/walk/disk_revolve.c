/* disk_revolve.c: memory with few slots and a disk that takes any number of states.
 *
 *   memory(n)   n steps by revolve in memory: closed form
 *   again(n)    the first state lies on the disk and may be read again and again:
 *               least of memory(n) and, over j, j forward + memory(n - j) + read + again(j)
 *   segment(j)  write + j forward + read + again(j)
 *   all(n)      least of memory(n) and, over j, segment(j) + all(n - j)
 *
 * again: memory is convex, so that a place to stop at which is better than an earlier one for some n
 * stays so for all longer ones: the places form a queue, and all n take n log n.
 *
 * all: a segment need not be longer than a bound. Say again(j) goes first to i. If i forward is no
 * less than write, or memory(j - i) no less than again(j - i) + write, then another write at i does
 * as well: segment(i) + segment(j - i) is no more than segment(j). One of both holds where j is at
 * least write / forward + last + 1, last being the last n for which memory(n) < again(n) + write, or
 * memory(n) is again(n).
 *
 * periodic-disk-revolve writes every m-th state, for the m of the least segment(m) / m: as good in
 * the limit of long chains. The bound holds for it, too.
 *
 * Papers: Aupy, Herrmann, Hovland, Robert, "Optimal multistage algorithm for adjoint computation",
 * 2016; Aupy and Herrmann, "Periodicity in optimal hierarchical checkpointing schemes for adjoint
 * computations", 2017.
 */
#include <math.h>

#include "passes/budget/planners/walk/tables.h"

typedef struct disk {
    const ebb_course *c;
    double *memory, *again, *segment, *all; /* by number of steps */
    uint32_t *stop;                         /* of again: where it goes first; 0: memory */
    uint32_t longest;                       /* segment */
} disk;

/* Steps n by going first to j (less than n), or in memory (0). */
static double going_to(const disk *d, uint32_t j, uint32_t n)
{
    double first = j > 0 ? j * d->c->forward + d->c->level[1].read + d->again[j] : 0;
    return first + d->memory[n - j];
}

/* The first n in from .. end at which j is better than the earlier place i; end + 1: none. */
static uint32_t takes_over(const disk *d, uint32_t i, uint32_t j, uint32_t from, uint32_t end)
{
    uint32_t low = from, high = end + 1;
    while (low < high) {
        uint32_t n = low + (high - low) / 2;
        if (going_to(d, j, n) < going_to(d, i, n))
            high = n;
        else
            low = n + 1;
    }
    return low;
}

typedef struct place {
    uint32_t at, since; /* the best place for n = since .. up to the next one's */
} place;

static ebb_status fill_again(disk *d, ebb_arena *scratch)
{
    uint32_t steps = d->c->steps, head = 0, tail = 1;
    place *queue = EBB_NEW(scratch, place, (size_t)steps + 2);
    EBB_GOT(queue);
    queue[0] = (place){0, 1};
    for (uint32_t n = 1; n <= steps; n++) {
        while (head + 1 < tail && queue[head + 1].since <= n)
            head++;
        d->stop[n] = queue[head].at;
        d->again[n] = going_to(d, d->stop[n], n);
        while (tail - head > 1 && queue[tail - 1].since > n &&
               going_to(d, n, queue[tail - 1].since) <
                   going_to(d, queue[tail - 1].at, queue[tail - 1].since))
            tail--;
        uint32_t from = queue[tail - 1].since > n ? queue[tail - 1].since : n + 1;
        uint32_t since = takes_over(d, queue[tail - 1].at, n, from, steps);
        if (since <= steps)
            queue[tail++] = (place){n, since};
    }
    return NULL;
}

static uint32_t longest_segment(const disk *d)
{
    double write = d->c->level[1].write, short_of = ceil(write / d->c->forward);
    uint32_t last = d->c->steps;
    while (last > 0 && d->memory[last] > d->again[last] &&
           d->memory[last] >= d->again[last] + write)
        last--;
    double bound = short_of + last + 1;
    return bound < d->c->steps ? (uint32_t)bound : d->c->steps; // a forward of no time: no bound
}

static ebb_status prepare(disk *d, const ebb_course *c, ebb_arena *scratch)
{
    size_t count = (size_t)c->steps + 1;
    if (c->level_count < 2)
        return ebb_error(EBB_USAGE, "disk-revolve wants a second level");
    *d = (disk){.c = c};
    d->memory = EBB_NEW(scratch, double, count);
    d->again = EBB_NEW(scratch, double, count);
    d->segment = EBB_NEW(scratch, double, count);
    d->all = EBB_NEW(scratch, double, count);
    d->stop = EBB_NEW(scratch, uint32_t, count);
    EBB_GOT(d->memory && d->again && d->segment && d->all && d->stop);
    ebb_walk_in_memory(d->memory, c->steps, 1, c);
    EBB_TRY(fill_again(d, scratch));
    for (uint32_t j = 1; j <= c->steps; j++)
        d->segment[j] = c->level[1].write + j * c->forward + c->level[1].read + d->again[j];
    d->longest = longest_segment(d);
    return NULL;
}

/* ---- the walk ---- */

/* Steps first .. first+n-1, whose first state lies on the disk. */
static ebb_status go_back(const disk *d, ebb_walk *w, uint32_t first, uint32_t n)
{
    uint32_t slots = d->c->level[0].slots;
    EBB_TRY(ebb_walk_add(w, EBB_ACT_READ, 1, first, 0));
    while (d->stop[n] > 0) {
        uint32_t to = d->stop[n];
        EBB_TRY(ebb_walk_add(w, EBB_ACT_FORWARD, 0, first, first + to));
        EBB_TRY(ebb_walk_binomial(w, first + to, first + n, slots));
        EBB_TRY(ebb_walk_add(w, EBB_ACT_READ, 1, first, 0));
        n = to;
    }
    EBB_TRY(ebb_walk_add(w, EBB_ACT_DROP, 1, first, 0));
    return ebb_walk_binomial(w, first, first + n, slots);
}

/* Segments of these lengths, then the rest in memory. */
static ebb_status go(const disk *d, ebb_walk *w, const uint32_t *length, uint32_t count)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        EBB_TRY(ebb_walk_add(w, EBB_ACT_WRITE, 1, at, 0));
        EBB_TRY(ebb_walk_add(w, EBB_ACT_FORWARD, 0, at, at + length[i]));
        at += length[i];
    }
    EBB_TRY(ebb_walk_binomial(w, at, d->c->steps, d->c->level[0].slots));
    for (uint32_t i = count; i-- > 0;) {
        at -= length[i];
        EBB_TRY(go_back(d, w, at, length[i]));
    }
    return NULL;
}

ebb_status ebb_walk_disk_revolve(ebb_walk *walk, const ebb_course *course, double *cost)
{
    EBB_LOCAL_ARENA(scratch);
    disk d;
    EBB_TRY(prepare(&d, course, scratch));
    for (uint32_t n = 1; n <= course->steps; n++) {
        uint32_t most = n - 1 < d.longest ? n - 1 : d.longest;
        double split = ebb_walk_least_sum(&d.segment[1], &d.all[n - 1], most);
        d.all[n] = split < d.memory[n] ? split : d.memory[n];
    }
    *cost = d.all[course->steps];
    uint32_t *length = EBB_NEW(scratch, uint32_t, (size_t)course->steps + 1), count = 0;
    EBB_GOT(length);
    for (uint32_t n = course->steps, j; d.all[n] < d.memory[n]; n -= j) {
        j = 1;
        for (uint32_t k = 2; k < n && k <= d.longest; k++)
            if (d.segment[k] + d.all[n - k] < d.segment[j] + d.all[n - j])
                j = k;
        length[count++] = j;
    }
    return go(&d, walk, length, count);
}

ebb_status ebb_walk_periodic_disk_revolve(ebb_walk *walk, const ebb_course *course, double *cost)
{
    EBB_LOCAL_ARENA(scratch);
    disk d;
    EBB_TRY(prepare(&d, course, scratch));
    uint32_t period = 1;
    for (uint32_t j = 2; j <= d.longest; j++)
        if (d.segment[j] / j < d.segment[period] / period)
            period = j;
    uint32_t count = (course->steps - 1) / period;
    uint32_t *length = EBB_NEW(scratch, uint32_t, (size_t)count + 1);
    EBB_GOT(length);
    for (uint32_t i = 0; i < count; i++)
        length[i] = period;
    *cost = count * d.segment[period] + d.memory[course->steps - count * period];
    return go(&d, walk, length, count);
}
