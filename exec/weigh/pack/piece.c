/* piece.c: see piece.h. */
#include "exec/weigh/pack/piece.h"

#include "onnx/words/clock.h"

uint64_t ebb_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t c = a % b;
        a = b;
        b = c;
    }
    return a;
}

bool ebb_budget_spent(const ebb_budget *budget)
{
    return budget->steps >= budget->most ||
           (budget->deadline_ns != 0 && ebb_now_ns() >= budget->deadline_ns);
}

ebb_budget ebb_budget_part(const ebb_budget *budget, double share)
{
    ebb_budget part = *budget;
    if (budget->most != UINT64_MAX && budget->steps < budget->most)
        part.most = budget->steps + (uint64_t)((double)(budget->most - budget->steps) * share);
    if (budget->deadline_ns != 0) {
        int64_t now = ebb_now_ns(), left = budget->deadline_ns - now;
        part.deadline_ns = now + (left > 0 ? (int64_t)((double)left * share) : 0);
    }
    return part;
}
