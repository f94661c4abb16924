/* shape.h: what the inference of the move, conv, pool and recurrent families shares. In move.c. */
#pragma once

#include "onnx/tables/op.h"

/* A tensor of unknown rank; of known rank with all dims unknown. */
ebb_type ebb_type_unranked(ebb_dtype dtype);
ebb_type ebb_type_ranked(ebb_dtype dtype, int rank);

/* Dim `at` becomes from's dim `which`, symbol included; or a plain size (-1: unknown). */
void ebb_type_put_dim(ebb_type *type, int at, const ebb_type *from, int which);
void ebb_type_set_dim(ebb_type *type, int at, int64_t size);

/* uint8: a bit for each element of x, eight to a byte. */
ebb_type ebb_type_bits(const ebb_type *x);

/* The first `count` inputs must be there. */
ebb_status ebb_infer_need(const ebb_infer *c, uint32_t count);

/* axis, perhaps negative, into 0..rank-1; an error outside. */
ebb_status ebb_infer_axis(const ebb_infer *c, int64_t axis, int rank, int *out);

/* The integers of a constant input, in scratch memory; false where they are not known. */
bool ebb_infer_constant_ints(const ebb_infer *c, uint32_t input, const int64_t **list,
                             int64_t *count);

/* out[0] = a tensor whose shape is the value of that input, as far as it is known. */
ebb_status ebb_infer_shape_input(const ebb_infer *c, uint32_t input, ebb_dtype dtype);

/* ONNX Slice along one axis of `dim` elements: the first index and how many are taken. */
int64_t ebb_slice_bounds(int64_t dim, int64_t start, int64_t end, int64_t step, int64_t *size);
