/* power.h: |x|^p and the p-th root, p a whole number from 1 up: for p-norms. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "kernels/math/words.h"

EBB_BOTH double ebb_power(double x, int64_t p)
{
    return p == 1 ? fabs(x) : p == 2 ? x * x : pow(fabs(x), (double)p);
}

EBB_BOTH double ebb_root(double x, int64_t p)
{
    return p == 1 ? x : p == 2 ? sqrt(x) : pow(x, 1.0 / (double)p);
}
