/* operand.h: what kernels of all back ends ask of a call's operands before they compute. */
#pragma once

#include "kernels/kernels.h"

EBB_C_BEGIN

/* Bytes of one element; 0 for dtypes that are packed below a byte or have no size. */
static inline size_t ebb_element_bytes(const ebb_type *t)
{
    unsigned bits = ebb_dtype_bits((ebb_dtype)t->dtype);
    return bits % 8 == 0 ? bits / 8 : 0;
}

/* May it hold indices? */
static inline bool ebb_indices_are(const ebb_operand *o)
{
    return o->type.dtype == EBB_I64 || o->type.dtype == EBB_I32;
}

/* A tensor seen along one axis: [outer, n, inner]. */
typedef struct ebb_span {
    int64_t outer, n, inner;
} ebb_span;

ebb_span ebb_span_of(const ebb_type *t, int axis);

/* Attribute `name` of the call, an axis that may be negative, counted from the front. Not checked:
 * what is outside of 0..rank-1 stays so. */
int64_t ebb_axis_of(const ebb_call *c, const char *name, int64_t otherwise, int rank);

/* axis (may be negative) into *normal; an error naming it where it is outside -rank..rank-1. */
ebb_status ebb_call_axis(const ebb_call *c, int64_t axis, int rank, int *normal);

/* The list of input `input` where it is there, else of attribute `attr` (NULL: none), else count 0.
 * The input is known before the run, or lies where the host can read it: kernels of other devices
 * decline what is not. */
ebb_status ebb_call_ints(const ebb_call *c, const char *attr, uint32_t input, int64_t *list,
                         uint32_t capacity, uint32_t *count);
/* Integer i of such an input. */
ebb_status ebb_call_int(const ebb_call *c, uint32_t input, int64_t i, int64_t *value);

/* ---- what rows ask: NULL, or why not ---- */

/* Of one operand, where it is there: row-major, static; and, but where `packed`, whole bytes an
 * element. */
const char *ebb_operand_misfit(const ebb_operand *o, bool packed);
/* Every operand there is: row-major, static, whole bytes an element. */
const char *ebb_call_any(const ebb_call *c);
/* The same, or elements packed below a byte. */
const char *ebb_call_any_bits(const ebb_call *c);
/* All float operands are of this dtype. */
const char *ebb_call_one_float(const ebb_call *c, uint8_t dtype);

EBB_C_END
