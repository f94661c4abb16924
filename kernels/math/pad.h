/* pad.h: where Pad takes from what lies around its input. */
#pragma once

#include <stdint.h>

#include "kernels/math/words.h"

typedef enum ebb_pad_mode {
    EBB_PAD_CONSTANT,
    EBB_PAD_REFLECT,
    EBB_PAD_EDGE,
    EBB_PAD_WRAP,
    EBB_PAD_UNKNOWN,
} ebb_pad_mode;

/* Of a coordinate outside of 0..n-1. */
EBB_BOTH int64_t ebb_pad_source(ebb_pad_mode mode, int64_t i, int64_t n)
{
    if (mode == EBB_PAD_EDGE || n == 1)
        return i < 0 ? 0 : n - 1;
    int64_t period = mode == EBB_PAD_WRAP ? n : 2 * (n - 1);
    i %= period;
    i += i < 0 ? period : 0;
    return i < n ? i : period - i;
}
