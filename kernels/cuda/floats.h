/* floats.h: float16 and bfloat16 as kernels see them: 16 bits in memory, float32 in registers,
 * rounded to nearest even: by the device's own instructions, whose numbers are IEEE's, and by
 * integers on the host. Which NaN comes of one is each side's. */
#pragma once

#include "kernels/cuda/gpu.h"

typedef struct ebb_f16 {
    uint16_t bits;
} ebb_f16;
typedef struct ebb_bf16 {
    uint16_t bits;
} ebb_bf16;

EBB_GPU_INLINE float ebb_from_bf16(ebb_bf16 v)
{
    return ebb_f32_of_bits((uint32_t)v.bits << 16);
}

#if defined(__CUDACC__)

EBB_GPU_INLINE ebb_bf16 ebb_to_bf16(float v)
{
    ebb_bf16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
    return r;
}

EBB_GPU_INLINE float ebb_from_f16(ebb_f16 v)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
    return r;
}

EBB_GPU_INLINE ebb_f16 ebb_to_f16(float v)
{
    ebb_f16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
    return r;
}

#else

EBB_GPU_INLINE ebb_bf16 ebb_to_bf16(float v)
{
    uint32_t bits = ebb_bits_of_f32(v);
    ebb_bf16 r;
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) // NaN stays one
        r.bits = (uint16_t)(bits >> 16 | 0x40u);
    else
        r.bits = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
    return r;
}

EBB_GPU_INLINE float ebb_from_f16(ebb_f16 v)
{
    uint32_t sign = (uint32_t)(v.bits & 0x8000u) << 16, exponent = v.bits >> 10 & 31u;
    uint32_t mantissa = v.bits & 0x3FFu;
    if (exponent == 31)
        return ebb_f32_of_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent == 0) // zero or subnormal: mantissa * 2^-24
        return ebb_f32_of_bits(sign | ebb_bits_of_f32((float)mantissa * 5.9604644775390625e-8f));
    return ebb_f32_of_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
}

EBB_GPU_INLINE ebb_f16 ebb_to_f16(float v)
{
    uint32_t bits = ebb_bits_of_f32(v), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    ebb_f16 r;
    if (size > 0x7F800000u) {
        r.bits = (uint16_t)(sign | 0x7E00u);
    } else if (size >= 0x477FF000u) { // rounds to 2^16 or more
        r.bits = (uint16_t)(sign | 0x7C00u);
    } else if (size < 0x38800000u) { // subnormal: whole steps of 2^-24, rounded by the addition
        float rounded = ebb_f32_of_bits(size) + 0.5f;
        r.bits = (uint16_t)(sign | (ebb_bits_of_f32(rounded) - 0x3F000000u));
    } else {
        r.bits = (uint16_t)(sign | ((size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13));
    }
    return r;
}

#endif
