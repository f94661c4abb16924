/* revolve_count.c: the exact numbers of binomial checkpointing; see revolve.h. */
#include "passes/budget/planners/chain/revolve.h"

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
    if (slots == 1)
        return steps - 1;
    int64_t d = (int64_t)slots, r = repetitions(steps, slots);
    uint64_t near = ebb_revolve_beta(d, r - 2), far = ebb_revolve_beta(d, r - 1);
    uint64_t rest = ebb_revolve_beta(d - 1, r - 1), less = ebb_revolve_beta(d - 2, r - 1);
    uint64_t advance;
    if (steps <= far + less)
        advance = near;
    else if (steps >= ebb_revolve_beta(d, r) - ebb_revolve_beta(d - 3, r))
        advance = far;
    else
        advance = steps - rest - less;
    advance = advance < 1 ? 1 : advance;
    return advance < steps ? advance : steps - 1;
}
