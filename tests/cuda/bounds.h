/* bounds.h: how far a kernel of the GPU may be from the plain one, as bounds.def states it: for the
 * kernels as gcc compiles them, for what nvcc emits (ptx/), and on a device.
 *
 * $EBB_TEST_SEEN=FILE: each comparison adds a line to it, of the kernel, the dtype, the error, the
 * bound (bounds.py).
 */
#pragma once

#include "tests/kernels/call.h"

typedef struct bound {
    const char *kernel;
    double f32, f64; /* a share of 1 + the largest number; in places: units of the last place */
    double half;     /* of float16 and bfloat16, beyond one rounding: a share */
    double least;    /* in places: below it the error is absolute */
    bool in_places;
} bound;

/* Of a kernel without a row: none, so that it is exact. */
static inline bound bound_of(const char *kernel)
{
    static const bound rows[] = {
#define SHARE(kernel, f32, f64, half) {kernel, f32, f64, half, 0, false},
#define PLACES(kernel, places, least) {kernel, places, places, 0, least, true},
#include "tests/cuda/bounds.def"
#undef SHARE
#undef PLACES
    };
    const char *name = kernel + strlen("cuda.");
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
        if (strcmp(rows[k].kernel, name) == 0)
            return rows[k];
    return (bound){.kernel = name};
}

/* A call has the bound of float64 where any of its inputs or outputs is one. */
static inline double bound_for(const testing *t, const char *kernel)
{
    const bound b = bound_of(kernel);
    bool is_wide = false;
    for (uint32_t i = 0; i < t->call.input_count; i++)
        is_wide |= t->in[i].type.dtype == EBB_F64;
    for (uint32_t o = 0; o < t->call.output_count; o++)
        is_wide |= t->out[o].type.dtype == EBB_F64;
    return is_wide ? b.f64 : b.f32;
}

static inline void has_seen(const char *kernel, const ebb_operand *o, double error, double stated)
{
    const char *path = getenv("EBB_TEST_SEEN");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file == NULL)
        return;
    (void)fprintf(file, "%s %d %g %g\n", kernel, (int)o->type.dtype, error, stated);
    (void)fclose(file);
}

/* check_close(), which says what it has seen. */
static inline void check_bound(const ebb_operand *o, const double *expected, double stated,
                               const char *kernel)
{
    double largest = 0, worst = 0;
    check_close(o, expected, stated, kernel);
    for (size_t i = 0; i < count_of(o); i++)
        largest = fmax(largest, isfinite(expected[i]) ? fabs(expected[i]) : 0);
    for (size_t i = 0; i < count_of(o); i++)
        if (value_of(o, i) != expected[i] && !isnan(expected[i]))
            worst = fmax(worst, fabs(value_of(o, i) - expected[i]) / (1 + largest));
    has_seen(kernel, o, worst, stated);
}
