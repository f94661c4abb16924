/* conv_shape.h: one convolution or pool, said in a row of a table. */
#pragma once

#include "tests/kernels/call.h"

typedef struct shape { /* a convolution or pool; dims of X, W and the attributes */
    const char *what;
    int spatial;
    int64_t n, c, m, groups;
    int64_t size[3], kernel[3], stride[3], dilation[3], pads[6];
} shape;

typedef struct dims {
    int rank;
    int64_t x[5], w[5], y[5];
} dims;

static inline dims dims_of(const shape *s)
{
    dims d = {.rank = s->spatial + 2};
    d.x[0] = d.y[0] = s->n;
    d.x[1] = s->c;
    d.y[1] = d.w[0] = s->m;
    d.w[1] = s->c / s->groups;
    for (int i = 0; i < s->spatial; i++) {
        int64_t reach = (s->kernel[i] - 1) * s->dilation[i] + 1;
        d.x[2 + i] = s->size[i];
        d.w[2 + i] = s->kernel[i];
        d.y[2 + i] = (s->size[i] + s->pads[i] + s->pads[s->spatial + i] - reach) / s->stride[i] + 1;
    }
    return d;
}

static inline void put_window(testing *t, const shape *s)
{
    put_ints(t, "strides", (uint32_t)s->spatial, s->stride);
    put_ints(t, "dilations", (uint32_t)s->spatial, s->dilation);
    put_ints(t, "pads", 2 * (uint32_t)s->spatial, s->pads);
    put_ints(t, "kernel_shape", (uint32_t)s->spatial, s->kernel);
}
