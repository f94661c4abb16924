/* recurrent.h: sizes of recurrent layers, for tests of their kernels. */
#ifndef EBB_TESTS_CUDA_RECURRENT_H
#define EBB_TESTS_CUDA_RECURRENT_H

#include "tests/cuda/halves.h"

typedef struct shape {
    const char *direction;
    int64_t T, B, I, H;
} shape; /* steps, batch, inputs, hidden */

static inline int64_t directions(const shape *s)
{
    return strcmp(s->direction, "bidirectional") == 0 ? 2 : 1;
}

#endif
