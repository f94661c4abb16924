/* halves.h: kernels in float16 and bfloat16 against the same kernel in float32.
 *
 *     agrees_in_halves(&t, "cuda.conv");
 *     agrees_mixed(&t, "cuda.batch_norm", 0x1E);     inputs 1 to 4 stay float32
 *
 * t is a call in float32. Its inputs are rounded to halves first, so that both see the same values;
 * the results must be those of float32, rounded once to nearest even. Operands whose bit is set in
 * `wide` (inputs from 0, outputs from 16) stay float32: scales and statistics beside images.
 */
#pragma once

#include "tests/cuda/cuda.h"
#include "tests/cuda/edges.h"

static inline uint16_t half_of(ebb_dtype half, float v)
{
    return half == EBB_F16 ? ebb_float_to_half(v) : ebb_float_to_bf16(v);
}

static inline double of_half(ebb_dtype half, uint16_t bits)
{
    return (double)(half == EBB_F16 ? ebb_half_to_float(bits) : ebb_bf16_to_float(bits));
}

/* `got` in a half or in float32; a tolerance is a share of 1 + the largest. */
static inline void same_halves(const ebb_operand *got, const ebb_operand *expected,
                               double tolerance, const char *kernel)
{
    const ebb_dtype dtype = (ebb_dtype)got->type.dtype;
    const float *value = expected->data;
    double largest = 0, worst = 0;
    for (size_t i = 0; i < count_of(got); i++)
        largest = fmax(largest, isfinite(value[i]) ? fabs((double)value[i]) : 0);
    for (size_t i = 0; i < count_of(got); i++) {
        const double g = value_of(got, i);
        const double e =
            dtype == EBB_F32 ? (double)value[i] : of_half(dtype, half_of(dtype, value[i]));
        const double apart = g == e || (isnan(g) && isnan(e)) ? 0 : fabs(g - e) / (1 + largest);
        if (!(apart <= tolerance))
            fail_msg("%s: element %zu is %.9g, float32 rounds to %.9g", kernel, i, g, e);
        worst = fmax(worst, apart);
    }
    has_seen(kernel, got, worst, tolerance);
}

static inline void narrow_operand(ebb_operand *to, const ebb_operand *from, ebb_dtype half)
{
    make_operand(to, half, from->type.rank, from->type.dims);
    for (size_t e = 0; e < count_of(from); e++) {
        float *v = (float *)from->data + e;
        uint16_t *bits = (uint16_t *)to->data + e;
        *bits = half_of(half, *v);
        *v = (float)of_half(half, *bits);
        if (isnan(*v) && e % 2 == 0) // of the lowest bit alone
            *bits = half == EBB_F16 ? 0x7C01 : 0x7F81;
    }
}

static inline void compare_halves(testing *t, const char *kernel, uint32_t wide, double tolerance)
{
    for (int brain = 0; brain < 2; brain++) {
        const ebb_dtype half = brain ? EBB_BF16 : EBB_F16;
        testing h = *t;
        h.call.in = h.in;
        h.call.out = h.out;
        h.call.attrs.list = h.attr;
        for (uint32_t i = 0; i < t->call.input_count; i++)
            if (t->in[i].type.dtype == EBB_F32 && (wide >> i & 1) == 0)
                narrow_operand(&h.in[i], &t->in[i], half);
        for (uint32_t o = 0; o < t->call.output_count; o++) {
            const ebb_type *type = &t->out[o].type;
            const bool is_half = type->dtype == EBB_F32 && (wide >> (16 + o) & 1) == 0;
            if (t->out[o].data != NULL)
                make_operand(&h.out[o], is_half ? half : (ebb_dtype)type->dtype, type->rank,
                             type->dims);
        }
        run_with(t, kernel);
        run_with(&h, kernel);
        for (uint32_t o = 0; o < t->call.output_count; o++) {
            if (t->out[o].data == NULL)
                continue;
            if (t->out[o].type.dtype == EBB_F32)
                same_halves(&h.out[o], &t->out[o], tolerance, kernel);
            else
                assert_memory_equal(h.out[o].data, t->out[o].data, t->out[o].bytes);
            unguard(h.out[o].data);
        }
        for (uint32_t i = 0; i < t->call.input_count; i++)
            if (h.in[i].data != t->in[i].data)
                unguard(h.in[i].data);
    }
}

/* How the drawn numbers are changed, so that conversions meet all at which they decide. */
typedef enum change {
    SMALL,  /* one of the inputs: float16 has no leading bit for its numbers */
    FINE,   /* in steps of 1/64: sums of products lie in the middle between two halves */
    COARSE, /* of 1/16: so do those of products of three */
    BIG,    /* one of the inputs, so that float16 ends; in all of them some are infinite or NaN */
    EXPONENTS, /* every exponent of float16, and edges.h's numbers within its range */
    CHANGES
} change;

static inline float changed(change how, bool is_one, size_t e, float v)
{
    const double edge = edges[e / 5 % EDGES];
    if (how == FINE || how == COARSE)
        return how == FINE ? rintf(v * 64) / 64 : rintf(v * 16) / 16;
    if (how == EXPONENTS)
        return e % 5 == 0 && fabs(edge) <= 65504 ? (float)edge : ldexpf(v, (int)(e * 7 % 38) - 22);
    return !is_one ? v : how == SMALL ? v * 0x1p-14F : v * 0x1p13F;
}

/* rounds: in between, where a sum may end that comes back in float32: EXPONENTS is smaller then. */
static inline void change_numbers(testing *t, float *const drawn[16], change how, uint32_t one,
                                  bool rounds)
{
    const float size = how == EXPONENTS && rounds ? 0x1p-10F : 1;
    for (uint32_t i = 0, seen = 0; i < t->call.input_count; i++) {
        const size_t count = drawn[i] == NULL ? 0 : count_of(&t->in[i]), apart = count / 17 | 1;
        const bool is_one = drawn[i] != NULL && seen++ == one;
        float *v = t->in[i].data;
        for (size_t e = 0; e < count; e++)
            v[e] = size * changed(how, is_one, e, drawn[i][e]);
        for (size_t k = 0; how == BIG && count > 4 && k < 16 && k < (count + 7) / 8; k++)
            v[count - 1 - k * apart] = (k + k / 8) % 2 ? NAN : INFINITY;
    }
}

/* Calls that are small in all those ways; the others, and where each access is watched, by turns. */
static inline void compare_drawn(testing *t, const char *kernel, uint32_t wide, double tolerance)
{
    static uint32_t turn;
    float *drawn[16] = {NULL};
    uint32_t floats = 0;
    size_t elements = getenv("EBB_TEST_SKEW") != NULL ? 2000 : 0;
    compare_halves(t, kernel, wide, tolerance);
    for (uint32_t i = 0; i < t->call.input_count; i++) {
        elements += t->in[i].data == NULL ? 0 : count_of(&t->in[i]);
        if (t->in[i].type.dtype != EBB_F32)
            continue;
        floats++;
        drawn[i] = malloc(t->in[i].bytes + 1);
        assert_non_null(drawn[i]);
        memcpy(drawn[i], t->in[i].data, t->in[i].bytes);
    }
    for (change how = SMALL; how < CHANGES && floats > 0; how++)
        if (elements < 2000 || how == turn % CHANGES) {
            change_numbers(t, drawn, how, (turn + turn / CHANGES + how) % floats, tolerance > 0);
            compare_halves(t, kernel, wide, tolerance);
        }
    turn++;
    for (uint32_t i = 0; i < t->call.input_count; i++)
        free(drawn[i]);
}

static inline void agrees_in_halves(testing *t, const char *kernel)
{
    compare_drawn(t, kernel, 0, 0);
}

/* Within what bounds.def states. */
static inline void agrees_mixed(testing *t, const char *kernel, uint32_t wide)
{
    compare_drawn(t, kernel, wide, bound_of(kernel).half);
}
