/* revolve_count.c: the exact numbers of binomial checkpointing; see revolve.h. */
#include "passes/budget/planners/chain/revolve.h"

#include <math.h>

uint64_t ebb_revolve_beta(int64_t s, int64_t r)
{
    if (s < 0 || r < 0)
        return 0;
    int64_t few = s < r ? s : r, all = s + r;
    uint64_t product = 1;
    for (int64_t i = 1; i <= few; i++) { // C(all - few + i, i), a whole number at each step
        uint64_t by = (uint64_t)(all - few + i), part = product % (uint64_t)i;
        if (__builtin_mul_overflow(product / (uint64_t)i, by, &product) ||
            __builtin_mul_overflow(part, by, &part) ||
            __builtin_add_overflow(product, part / (uint64_t)i, &product))
            return UINT64_MAX;
    }
    return product;
}

static int64_t repetitions(uint64_t l, uint64_t s) /* the least r with beta(s, r) >= l */
{
    int64_t r = 0;
    while (ebb_revolve_beta((int64_t)s, r) < l)
        r++;
    return r;
}

uint64_t ebb_revolve_forwards(uint64_t l, uint64_t s)
{
    int64_t r = repetitions(l, s);
    return (uint64_t)r * l - (r > 0 ? ebb_revolve_beta((int64_t)s + 1, r - 1) : 0);
}

/* Both parts, the one from here and the one from the new state, must stay within the range in
 * which r, or r - 1, repetitions do. Between the bounds any place is as good. */
uint64_t ebb_revolve_advance(uint64_t steps, uint64_t slots)
{
    int64_t d = (int64_t)slots, r = repetitions(steps, slots);
    uint64_t near = ebb_revolve_beta(d, r - 2), far = ebb_revolve_beta(d, r - 1);
    uint64_t rest = ebb_revolve_beta(d - 1, r - 1), less = ebb_revolve_beta(d - 2, r - 1);
    uint64_t advance;
    if (slots == 1)
        advance = steps - 1;
    else if (steps <= far + less)
        advance = near;
    else if (steps >= ebb_revolve_beta(d, r) - ebb_revolve_beta(d - 3, r))
        advance = far;
    else
        advance = steps - rest - less;
    advance = advance < 1 ? 1 : advance;
    return advance < steps ? advance : steps - 1;
}

/* ---- several memories ---- */

/* stored[l][m]: the state before l + 1 steps lies in this memory, of which m slots are left with
 * it; fresh[l][m]: it has not been stored yet. Each row has slots + 1 entries. */
typedef struct tables {
    double *stored, *fresh;
    size_t width;
} tables;

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void first_level(const tables *t, uint32_t steps, const ebb_revolve_level *level,
                        double forward, double backward)
{
    for (uint32_t m = 0; m <= level->slots; m++)
        t->stored[m] = t->fresh[m] = backward;
    for (uint32_t l = 1; l <= steps; l++) {
        double *row = &t->stored[l * t->width];
        double n = l;
        row[0] = HUGE_VAL;
        row[1] = (n + 1) * backward + n * (n + 1) / 2 * forward + n * level->read;
        for (uint32_t m = 2; m <= level->slots; m++) {
            row[m] = row[1];
            for (uint32_t j = 1; j < l; j++)
                row[m] = least(row[m], j * forward + t->fresh[(l - j) * t->width + m - 1] +
                                           level->read + t->stored[(j - 1) * t->width + m]);
            if (l == 1)
                row[m] = forward + 2 * backward + level->read;
        }
        for (uint32_t m = 0; m <= level->slots; m++)
            t->fresh[l * t->width + m] = level->write + row[m];
    }
}

/* below[l]: what the faster memories need by themselves, all their slots free. */
static void next_level(const tables *t, uint32_t steps, const ebb_revolve_level *level,
                       const double *below, double forward, double backward)
{
    for (uint32_t m = 0; m <= level->slots; m++)
        t->stored[m] = t->fresh[m] = backward;
    for (uint32_t l = 1; l <= steps; l++) {
        double *stored = &t->stored[l * t->width], *fresh = &t->fresh[l * t->width];
        stored[0] = HUGE_VAL;
        fresh[0] = below[l];
        for (uint32_t m = 1; m <= level->slots; m++) {
            stored[m] = below[l];
            for (uint32_t j = 1; j < l; j++)
                stored[m] = least(stored[m], j * forward + t->fresh[(l - j) * t->width + m - 1] +
                                                 level->read + t->stored[(j - 1) * t->width + m]);
            fresh[m] = least(below[l], level->write + stored[m]);
        }
    }
}

static ebb_status fill(double *cost, uint32_t steps, const ebb_revolve_level *levels,
                       uint32_t level_count, double forward, double backward, ebb_arena *scratch)
{
    double *below = EBB_NEW(scratch, double, (size_t)steps + 1);
    if (below == NULL)
        return ebb_error_memory();
    for (uint32_t k = 0; k < level_count; k++) {
        tables t = {.width = (size_t)levels[k].slots + 1};
        size_t count;
        if (!ebb_size_mul(&count, t.width, (size_t)steps + 1))
            return ebb_error_memory();
        t.stored = EBB_NEW(scratch, double, count);
        t.fresh = EBB_NEW(scratch, double, count);
        if (t.stored == NULL || t.fresh == NULL)
            return ebb_error_memory();
        if (k == 0)
            first_level(&t, steps, &levels[k], forward, backward);
        else
            next_level(&t, steps, &levels[k], below, forward, backward);
        for (uint32_t l = 0; l <= steps; l++)
            below[l] = t.fresh[l * t.width + levels[k].slots];
    }
    *cost = below[steps];
    return NULL;
}

ebb_status ebb_revolve_cost(double *cost, uint32_t steps, const ebb_revolve_level *levels,
                            uint32_t level_count, double forward, double backward)
{
    ebb_arena scratch = {0};
    ebb_status status = fill(cost, steps, levels, level_count, forward, backward, &scratch);
    ebb_arena_fini(&scratch);
    return status;
}
