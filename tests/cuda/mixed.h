/* mixed.h: a CUDA kernel in float16 and bfloat16 against itself in float32, where some
 * operands may stay float32 (scales and statistics beside images in a half).
 *
 *     agrees_mixed(&t, "cuda.softmax", 0, 1e-5);
 *
 * t is a call whose floats are float32. Its inputs are rounded to the half, in place; the kernel
 * computes from both and the results may differ by one rounding and `tolerance` of the largest.
 * Operands whose bit is set in `wide` (inputs from 0, outputs from 16) stay float32.
 */
#pragma once

#include "tests/cuda/cuda.h"

static inline uint16_t to_half(ebb_dtype half, float v)
{
    return half == EBB_F16 ? ebb_float_to_half(v) : ebb_float_to_bf16(v);
}

static inline float from_half(ebb_dtype half, uint16_t v)
{
    return half == EBB_F16 ? ebb_half_to_float(v) : ebb_bf16_to_float(v);
}

static inline void narrow_operand(ebb_operand *to, const ebb_operand *from, ebb_dtype half)
{
    if (from->type.dtype != EBB_F32)
        return;
    make_operand(to, half, from->type.rank, from->type.dims);
    for (size_t i = 0; i < count_of(from); i++) {
        float *v = (float *)from->data + i;
        uint16_t bits = to_half(half, *v);
        ((uint16_t *)to->data)[i] = bits;
        *v = from_half(half, bits);
    }
}

static inline void check_half(const ebb_operand *got, const ebb_operand *expected, ebb_dtype half,
                              double tolerance, const char *what)
{
    const double ulp = half == EBB_F16 ? 0x1p-10 : 0x1p-7;
    double largest = 0;
    for (size_t i = 0; i < count_of(expected); i++) {
        double e = value_of(expected, i);
        largest = fmax(largest, isfinite(e) ? fabs(e) : 0);
    }
    for (size_t i = 0; i < count_of(got); i++) {
        double e = value_of(expected, i), g = 0;
        if (got->type.dtype == EBB_F32 || got->type.dtype == EBB_I64)
            g = value_of(got, i);
        else
            g = (double)from_half(half, ((const uint16_t *)got->data)[i]);
        if (g == e || (isnan(g) && isnan(e)))
            continue;
        if (!(fabs(g - e) <= ulp * fabs(e) + tolerance * (1 + largest)))
            fail_msg("%s in %s: element %zu is %.9g, expected %.9g", what,
                     half == EBB_F16 ? "float16" : "bfloat16", i, g, e);
    }
}

static inline void agrees_mixed(testing *t, const char *kernel, uint32_t wide, double tolerance)
{
    for (int h = 0; h < 2; h++) {
        const ebb_dtype half = h == 0 ? EBB_F16 : EBB_BF16;
        testing n = *t;
        n.call.in = n.in;
        n.call.out = n.out;
        n.call.attrs.list = n.attr;
        for (uint32_t i = 0; i < t->call.input_count; i++)
            if ((wide >> i & 1) == 0)
                narrow_operand(&n.in[i], &t->in[i], half);
        for (uint32_t o = 0; o < t->call.output_count; o++)
            if (t->out[o].data != NULL &&
                ((wide >> (16 + o) & 1) != 0 || t->out[o].type.dtype != EBB_F32))
                make_operand(&n.out[o], (ebb_dtype)t->out[o].type.dtype, t->out[o].type.rank,
                             t->out[o].type.dims);
            else if (t->out[o].data != NULL)
                make_operand(&n.out[o], half, t->out[o].type.rank, t->out[o].type.dims);
        run_with(t, kernel);
        run_with(&n, kernel);
        for (uint32_t o = 0; o < t->call.output_count; o++)
            if (t->out[o].data != NULL) {
                check_half(&n.out[o], &t->out[o], half, tolerance, kernel);
                unguard(n.out[o].data);
            }
        for (uint32_t i = 0; i < t->call.input_count; i++)
            if (n.in[i].data != t->in[i].data)
                unguard(n.in[i].data);
    }
}
