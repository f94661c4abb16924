/* elements.h: elements of a dtype that is first known when the kernel runs.
 *
 * A float goes through double, everything else through int64 (uint64 with its bits). Float to
 * integer truncates; what does not fit takes the nearest end, NaN becomes 0. Integer to integer
 * keeps the low bits. Every number is rounded once. To bool: everything but zero is true. So the plain Cast does.
 */
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/math/round_once.h"

EBB_GPU_INLINE double ebb_load_real(const void *p, int64_t i, uint8_t dtype)
{
    switch (dtype) {
    case EBB_F32:
        return (double)((const float *)p)[i];
    case EBB_F64:
        return ((const double *)p)[i];
    case EBB_F16:
        return (double)ebb_from_f16(((const ebb_f16 *)p)[i]);
    case EBB_BF16:
        return (double)ebb_from_bf16(((const ebb_bf16 *)p)[i]);
    default:
        return 0;
    }
}

EBB_GPU_INLINE int64_t ebb_load_whole(const void *p, int64_t i, uint8_t dtype)
{
    switch (dtype) {
    case EBB_I8:
        return ((const int8_t *)p)[i];
    case EBB_I16:
        return ((const int16_t *)p)[i];
    case EBB_I32:
        return ((const int32_t *)p)[i];
    case EBB_U8:
    case EBB_BOOL:
        return ((const uint8_t *)p)[i];
    case EBB_U16:
        return ((const uint16_t *)p)[i];
    case EBB_U32:
        return ((const uint32_t *)p)[i];
    case EBB_U64:
    case EBB_I64:
        return ((const int64_t *)p)[i];
    default:
        return 0;
    }
}

/* low and high as doubles: high is the first that does not fit. */
#define EBB_STORE_REAL(d, T, low, high, most)                                                   \
    case d:                                                                                     \
        ((T *)p)[i] = v != v ? (T)0 : v <= (low) ? (T)(low) : v >= (high) ? (T)(most) : (T)(v); \
        break;

EBB_GPU_INLINE void ebb_store_real(void *p, int64_t i, uint8_t dtype, double v)
{
    switch (dtype) {
        EBB_STORE_REAL(EBB_I8, int8_t, -128.0, 128.0, INT8_MAX)
        EBB_STORE_REAL(EBB_I16, int16_t, -32768.0, 32768.0, INT16_MAX)
        EBB_STORE_REAL(EBB_I32, int32_t, -2147483648.0, 2147483648.0, INT32_MAX)
        EBB_STORE_REAL(EBB_I64, int64_t, -9223372036854775808.0, 9223372036854775808.0, INT64_MAX)
        EBB_STORE_REAL(EBB_U8, uint8_t, 0.0, 256.0, UINT8_MAX)
        EBB_STORE_REAL(EBB_U16, uint16_t, 0.0, 65536.0, UINT16_MAX)
        EBB_STORE_REAL(EBB_U32, uint32_t, 0.0, 4294967296.0, UINT32_MAX)
        EBB_STORE_REAL(EBB_U64, uint64_t, 0.0, 18446744073709551616.0, UINT64_MAX)
    case EBB_F32:
        ((float *)p)[i] = (float)v;
        break;
    case EBB_F64:
        ((double *)p)[i] = v;
        break;
    case EBB_F16:
        ((ebb_f16 *)p)[i] = ebb_to_f16(ebb_odd_float(v));
        break;
    case EBB_BF16:
        ((ebb_bf16 *)p)[i] = ebb_to_bf16(ebb_odd_float(v));
        break;
    case EBB_BOOL:
        ((uint8_t *)p)[i] = v != 0;
        break;
    default:
        break;
    }
}

/* wide: v has the bits of a uint64. */
EBB_GPU_INLINE void ebb_store_whole(void *p, int64_t i, uint8_t dtype, int64_t v, bool wide)
{
    switch (dtype) {
    case EBB_I8:
    case EBB_U8:
        ((uint8_t *)p)[i] = (uint8_t)v;
        break;
    case EBB_I16:
    case EBB_U16:
        ((uint16_t *)p)[i] = (uint16_t)v;
        break;
    case EBB_I32:
    case EBB_U32:
        ((uint32_t *)p)[i] = (uint32_t)v;
        break;
    case EBB_I64:
    case EBB_U64:
        ((int64_t *)p)[i] = v;
        break;
    case EBB_BOOL:
        ((uint8_t *)p)[i] = v != 0;
        break;
    case EBB_F64:
        ((double *)p)[i] = wide ? (double)(uint64_t)v : (double)v;
        break;
    case EBB_F32:
        ((float *)p)[i] = wide ? (float)(uint64_t)v : (float)v;
        break;
    case EBB_F16:
        ((ebb_f16 *)p)[i] = ebb_to_f16(ebb_odd_float(ebb_odd_double(v, wide)));
        break;
    case EBB_BF16:
        ((ebb_bf16 *)p)[i] = ebb_to_bf16(ebb_odd_float(ebb_odd_double(v, wide)));
        break;
    default:
        break;
    }
}
