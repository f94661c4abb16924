/* halves.h: kernels in float16 and bfloat16 against the same kernel in float32.
 *
 *     agrees_in_halves(&t, "cuda.conv", 0);
 *
 * t is a call in float32. Its inputs are rounded to halves first, so that both see the same values;
 * the results must be those of float32, rounded once to nearest even. A tolerance is for what is
 * stored in between, as a share of 1 + the largest result.
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

static inline void same_halves(const ebb_operand *got, const ebb_operand *expected,
                               double tolerance, const char *kernel)
{
    const uint16_t *bits = got->data;
    const float *value = expected->data;
    double largest = 0;
    for (size_t i = 0; i < count_of(got); i++)
        largest = fmax(largest, isfinite(value[i]) ? fabs((double)value[i]) : 0);
    for (size_t i = 0; i < count_of(got); i++) {
        ebb_dtype half = (ebb_dtype)got->type.dtype;
        uint16_t rounded = half_of(half, value[i]);
        double g = of_half(half, bits[i]), e = of_half(half, rounded);
        if (bits[i] != rounded && !(isnan(g) && isnan(e)) &&
            !(fabs(g - e) <= tolerance * (1 + largest)))
            fail_msg("%s: element %zu is %.9g, float32 rounds to %.9g", kernel, i, g, e);
    }
}

static inline void agrees_in_halves(testing *t, const char *kernel, double tolerance)
{
    for (int brain = 0; brain < 2; brain++) {
        const ebb_dtype half = brain ? EBB_BF16 : EBB_F16;
        testing h = *t;
        h.call.in = h.in;
        h.call.out = h.out;
        h.call.attrs.list = h.attr;
        for (uint32_t i = 0; i < t->call.input_count; i++) {
            const ebb_operand *from = &t->in[i];
            if (from->type.dtype != EBB_F32)
                continue;
            make_operand(&h.in[i], half, from->type.rank, from->type.dims);
            for (size_t e = 0; e < count_of(from); e++) {
                float *v = (float *)from->data + e;
                ((uint16_t *)h.in[i].data)[e] = half_of(half, *v);
                *v = (float)of_half(half, half_of(half, *v));
            }
        }
        for (uint32_t o = 0; o < t->call.output_count; o++) {
            const ebb_type *type = &t->out[o].type;
            if (type->dtype != EBB_NONE)
                make_operand(&h.out[o], type->dtype == EBB_F32 ? half : (ebb_dtype)type->dtype,
                             type->rank, type->dims);
        }
        run_with(t, kernel);
        run_with(&h, kernel);
        for (uint32_t o = 0; o < t->call.output_count; o++) {
            if (t->out[o].type.dtype == EBB_F32)
                same_halves(&h.out[o], &t->out[o], tolerance, kernel);
            else if (t->out[o].type.dtype != EBB_NONE)
                assert_memory_equal(h.out[o].data, t->out[o].data, t->out[o].bytes);
            unguard(h.out[o].data);
        }
        for (uint32_t i = 0; i < t->call.input_count; i++)
            if (t->in[i].type.dtype == EBB_F32)
                unguard(h.in[i].data);
    }
}
