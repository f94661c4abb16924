/* number.c: elements of any dtype; see number.h. */
#include "kernels/plain/number.h"

#include <math.h>

#include "kernels/math/round_once.h"

double ebb_plain_real(const ebb_operand *o, int64_t i)
{
    if (o->type.dtype == EBB_F32)
        return (double)((const float *)o->data)[i];
    if (o->type.dtype == EBB_F64)
        return ((const double *)o->data)[i];
    ebb_tensor t = {.type.dtype = o->type.dtype, .data = o->data};
    return ebb_tensor_double(&t, i);
}

int64_t ebb_plain_whole(const ebb_operand *o, int64_t i)
{
    ebb_tensor t = {.type.dtype = o->type.dtype, .data = o->data};
    return ebb_tensor_int(&t, i);
}

uint64_t ebb_plain_word(const ebb_operand *o, int64_t i)
{
    uint64_t word;
    if (o->type.dtype != EBB_U64)
        return (uint64_t)ebb_plain_whole(o, i);
    memcpy(&word, (const char *)o->data + (size_t)i * sizeof word, sizeof word);
    return word;
}

/* The ends of an integer dtype of up to 32 bits. */
static void range_of(ebb_dtype dtype, double *least, double *most)
{
    unsigned bits = ebb_dtype_bits(dtype);
    bool is_signed = dtype == EBB_I2 || dtype == EBB_I4 || dtype == EBB_I8 || dtype == EBB_I16 ||
                     dtype == EBB_I32 || dtype == EBB_I64;
    *least = is_signed ? -ldexp(1.0, (int)bits - 1) : 0.0;
    *most = ldexp(1.0, (int)bits - (is_signed ? 1 : 0)) - 1.0;
}

static void put_bits(const ebb_operand *o, int64_t i, uint64_t value)
{
    unsigned bits = ebb_dtype_bits((ebb_dtype)o->type.dtype);
    uint8_t as8 = (uint8_t)value;
    uint16_t as16 = (uint16_t)value;
    uint32_t as32 = (uint32_t)value;
    char *at = (char *)o->data + (size_t)i * bits / 8;
    switch (bits) {
    case 8:
        memcpy(at, &as8, sizeof as8);
        break;
    case 16:
        memcpy(at, &as16, sizeof as16);
        break;
    case 32:
        memcpy(at, &as32, sizeof as32);
        break;
    case 64:
        memcpy(at, &value, sizeof value);
        break;
    default:
        ebb_bits_put(o->data, i, bits, (unsigned)value);
    }
}

static void put_whole(const ebb_operand *o, int64_t i, double value)
{
    double least, most;
    range_of((ebb_dtype)o->type.dtype, &least, &most);
    double near = value != value ? 0.0 : nearbyint(value);
    if (near >= most && o->type.dtype == EBB_U64)
        put_bits(o, i, UINT64_MAX);
    else if (near >= most && o->type.dtype == EBB_I64)
        put_bits(o, i, INT64_MAX);
    else if (o->type.dtype == EBB_U64)
        put_bits(o, i, near > 0.0 ? (uint64_t)near : 0);
    else
        put_bits(o, i, (uint64_t)(int64_t)(near < least ? least : near > most ? most : near));
}

void ebb_plain_put(const ebb_operand *o, int64_t i, double value)
{
    ebb_dtype dtype = (ebb_dtype)o->type.dtype;
    if (dtype == EBB_F32)
        ((float *)o->data)[i] = (float)value;
    else if (dtype == EBB_F64)
        ((double *)o->data)[i] = value;
    else if (dtype == EBB_F16)
        put_bits(o, i, ebb_float_to_half(ebb_odd_float(value)));
    else if (dtype == EBB_BF16)
        put_bits(o, i, ebb_float_to_bf16(ebb_odd_float(value)));
    else if (ebb_dtype_is_small_float(dtype))
        put_bits(o, i, ebb_small_of_double(dtype, value, true, EBB_ROUND_UP));
    else if (dtype == EBB_BOOL)
        put_bits(o, i, value != 0.0);
    else
        put_whole(o, i, value);
}
