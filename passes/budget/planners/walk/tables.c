/* tables.c: sums and minima for many lengths; see tables.h. */
#include "passes/budget/planners/walk/tables.h"

#include <math.h>

#include "passes/budget/planners/chain/revolve.h"

void ebb_walk_in_memory(double *least, uint32_t count, uint32_t block, const ebb_course *course)
{
    int64_t slots = course->level[0].slots, r = 0;
    for (uint32_t n = 1; n <= count; n++) { // t(l, s) as in revolve.h; r only grows with l
        uint64_t steps = (uint64_t)n * block;
        while (ebb_revolve_beta(slots, r) < steps)
            r++;
        uint64_t less = r > 0 ? ebb_revolve_beta(slots + 1, r - 1) : 0;
        least[n] = (double)((uint64_t)r * steps - less) * course->forward +
                   (double)steps * course->backward;
    }
}

static double lower(double a, double b)
{
    return a < b ? a : b;
}

double ebb_walk_least_sum(const double *up, const double *down, size_t count)
{
    double a = HUGE_VAL, b = HUGE_VAL, c = HUGE_VAL,
           d = HUGE_VAL; // four chains of minima at a time
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        a = lower(up[i] + *(down - i), a);
        b = lower(up[i + 1] + *(down - i - 1), b);
        c = lower(up[i + 2] + *(down - i - 2), c);
        d = lower(up[i + 3] + *(down - i - 3), d);
    }
    for (; i < count; i++)
        a = lower(up[i] + *(down - i), a);
    return lower(lower(a, b), lower(c, d));
}
