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
        ((uint16_t *)to->data)[e] = half_of(half, *v);
        *v = (float)of_half(half, half_of(half, *v));
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

/* Numbers at which the conversions decide, by turns: one of the inputs so small that float16 has no
 * leading bit for it; all in steps of 1/64, so that sums lie in the middle between two halves; one of
 * the inputs so big that float16 ends, and infinite. */
static inline void draw_edges(testing *t, uint32_t turn)
{
    const uint32_t one = turn / 3 % t->call.input_count;
    for (uint32_t i = 0; i < t->call.input_count; i++) {
        const size_t count = t->in[i].type.dtype == EBB_F32 ? count_of(&t->in[i]) : 0;
        float *v = t->in[i].data;
        for (size_t e = 0; e < count; e++)
            v[e] = turn % 3 == 1 ? rintf(v[e] * 64) / 64
                   : i != one    ? v[e]
                   : turn % 3    ? v[e] * 0x1p13F
                                 : v[e] * 0x1p-14F;
        if (count > 4 && i == one && turn % 3 == 2)
            v[count - 1] = INFINITY;
    }
}

static inline void compare_drawn(testing *t, const char *kernel, uint32_t wide, double tolerance)
{
    static uint32_t turn;
    compare_halves(t, kernel, wide, tolerance);
    draw_edges(t, turn++);
    compare_halves(t, kernel, wide, tolerance);
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
