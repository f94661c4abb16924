/* plain.h: what the plain kernels share: rows of broadcast operands, strided copies, axes, indices.
 *
 * Each file of this folder is a family: it ends in an array of kernels, and backend.c lists the
 * arrays. To add a kernel: a function and a row in its file's array.
 */
#pragma once

#include "kernels/operand.h"
#include "kernels/parallel.h"

/* ---- families ---- */

// clang-format off
#define EBB_PLAIN_FAMILIES(X)                                                                      \
    X(pointwise) X(cast) X(reduce) X(along) X(matmul) X(conv) X(pool) X(norm)    \
    X(norm_rows) X(norm_group) X(loss) X(cross_entropy) X(linear_loss) X(move) X(move_shape) X(move_index) X(scatter)           \
    X(recurrent) X(random) X(sample) X(optim) X(low_bit) X(packed) X(attention) X(codes) X(invert) X(few_bit)   \
    X(linear_codes) X(frozen) X(experts) X(place) X(select) X(heads) X(resize) X(grid) X(roi) X(signal) X(algebra) \
    X(power) X(heads_grad) X(moves) X(group)
// clang-format on

#define EBB_PLAIN_DECLARE(name)                 \
    extern const ebb_kernel ebb_plain_##name[]; \
    extern const size_t ebb_plain_##name##_count;
EBB_PLAIN_FAMILIES(EBB_PLAIN_DECLARE)

/* Closes a family's file: the count of `ebb_plain_NAME`. */
#define EBB_PLAIN_COUNT(name) \
    const size_t ebb_plain_##name##_count = sizeof ebb_plain_##name / sizeof ebb_plain_##name[0];

/* ---- for operands read in tiles (kernels/nested/stream.c) ---- */

/* ebb_tile_parts.batch_norm_rows. */
ebb_status ebb_plain_batch_norm_rows(const ebb_call *tile, const ebb_call *whole, void *dx);

/* ---- operands ---- */

/* Integer i of an int32 or int64 operand (others: 0, which declines() keeps away). Copied out,
 * since the bytes of a constant lie in the mapped file wherever they happen to. */
static inline int64_t ebb_plain_int(const ebb_operand *o, int64_t i)
{
    const unsigned char *bytes = o->data;
    int64_t wide = 0;
    int32_t narrow = 0;
    if (o->type.dtype == EBB_I64) {
        memcpy(&wide, bytes + (size_t)i * sizeof wide, sizeof wide);
        return wide;
    }
    if (o->type.dtype == EBB_I32)
        memcpy(&narrow, bytes + (size_t)i * sizeof narrow, sizeof narrow);
    return narrow;
}

/* A scalar of any plain numeric type as a double. */
double ebb_plain_scalar(const ebb_operand *o);

/* name_f64 or name_f32, which both_floats.inc makes, by the type of an operand. */
#define EBB_BY_FLOAT(operand, name, ...) \
    ((operand).type.dtype == EBB_F64 ? name##_f64(__VA_ARGS__) : name##_f32(__VA_ARGS__))

/* ---- what rows ask ---- */

/* ebb_call_any, and input 0 is float32 or float64, and so are all float operands: one dtype for
 * all of them. */
const char *ebb_plain_floats(const ebb_call *c);
/* And input 0 is a float as above or an integer. */
const char *ebb_plain_numbers(const ebb_call *c);

/* ---- rows ---- */

/* Computes n elements of an output row: out is dense, input k advances by step[k] (0 or 1)
 * elements. out may be the same memory as an input whose step is 1. */
typedef void (*ebb_row_fn)(void *out, const void *const *in, const int64_t *step, int64_t n,
                           const void *arg);

enum { EBB_ROW_INPUTS = 4 };

/* Calls fn over all of out, inputs broadcast to it. Rows are as long as the shapes allow. */
void ebb_plain_rows(const ebb_operand *out, const ebb_operand *const *in, int count, ebb_row_fn fn,
                    const void *arg);

/* A call that has a row in pointwise.def, in any dtype of its row and in 16 bits. */
ebb_status ebb_plain_formula(const ebb_call *call);

/* ---- copies ---- */

/* For every index of dims: to[index . to_stride] = from[index . from_stride]; strides in elements
 * and of any sign, from 0 too. The two do not overlap. */
void ebb_plain_copy(void *to, const int64_t *to_stride, const void *from,
                    const int64_t *from_stride, int rank, const int64_t *dims, size_t size);

/* count elements of `size` bytes, each equal to *value. */
void ebb_plain_fill(void *to, const void *value, int64_t count, size_t size);

void ebb_plain_memcpy(void *to, const void *from, size_t bytes); /* by threads; the same: nothing */
