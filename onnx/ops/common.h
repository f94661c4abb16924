/* common.h: what the operator families share: inference by broadcasting, axes, small formulas of
 * gradient rules. ops/shape.h has the helpers that make types. */
#pragma once

#include "onnx/ops/ops.h"

/* ---- inference ---- */

/* Input i's type where it is given and a tensor, else NULL. */
const ebb_type *ebb_infer_type(const ebb_infer *c, uint32_t i);

/* Two shapes by the rules of numpy, into *into; an unknown dim stays unknown where nothing tells
 * it. The dtype stays. `input` is the number of the input that `with` belongs to, for the message.
 */
ebb_status ebb_infer_broadcast_with(const ebb_infer *c, ebb_type *into, const ebb_type *with,
                                    uint32_t input);

/* Inputs i and j, where both are given and known, have the same dtype / the same shape. */
ebb_status ebb_infer_same_dtype(const ebb_infer *c, uint32_t i, uint32_t j);
ebb_status ebb_infer_same_dims(const ebb_infer *c, uint32_t i, uint32_t j);

/* Input i is a vector of `size` elements (either unknown: no complaint); `what` says of what. */
ebb_status ebb_infer_vector(const ebb_infer *c, uint32_t i, int64_t size, const char *what);

/* The axes of a reduction as a set: attribute "axes" or input 1, negative ones counted from the
 * end, none given: all, or none at all with noop_with_empty_axes. *known is false where they are
 * not known. */
ebb_status ebb_infer_axes(const ebb_infer *c, int rank, bool reduced[EBB_MAX_RANK], bool *known);

/* Input 0 is a matrix, and input `of` has the number of an expert for each of its rows. */
ebb_status ebb_infer_experts(const ebb_infer *c, uint32_t of);

/* Elements of a type as a double; 0 where unknown. */
double ebb_type_count(const ebb_type *type);

/* ---- gradient rules ---- */

/* Whether input i of the rule's node is there; and whether its gradient is asked for, too. */
bool ebb_grad_has(const ebb_grad *c, uint32_t i);
bool ebb_grad_wants(const ebb_grad *c, uint32_t i);
/* The gradient of an output; none where none arrives. */
ebb_value ebb_grad_of(const ebb_grad *c, uint32_t output);
/* The attribute axis, counted from the front. */
int ebb_grad_axis(const ebb_grad *c, int64_t otherwise, int rank);

/* dx[i] = dx, summed over the axes along which input i was broadcast. */
void ebb_grad_give(ebb_build *b, ebb_grad *c, uint32_t i, ebb_value dx);

/* The node has no gradient that we know, for this reason: EBB_UNSUPPORTED. */
void ebb_grad_fail(ebb_build *b, const ebb_grad *c, const char *reason);

/* The type of a value whose shape the rule needs; false, and the builder stops, where it is not
 * known. */
bool ebb_grad_shape(ebb_build *b, const ebb_grad *c, ebb_value v, ebb_type *type);

/* The integers of a constant input, at most 2 EBB_MAX_RANK. False where it is absent or not
 * constant. */
bool ebb_grad_ints(const ebb_build *b, const ebb_grad *c, uint32_t i, int64_t *list, int *count);

/* Elements [from, from + size) of x along one axis. */
ebb_value ebb_emit_part(ebb_build *b, ebb_value x, int axis, int64_t from, int64_t size);

/* Elements of x along one axis by a constant list of their places. */
ebb_value ebb_emit_picked(ebb_build *b, ebb_value x, int axis, const int64_t *list, uint32_t count);

/* 0, step, 2 step ..., n of them, shaped to lie along one axis of `rank`. */
ebb_value ebb_emit_counted(ebb_build *b, int64_t n, int64_t step, int axis, int rank);

/* x * k and x + k for a number k of x's dtype. */
ebb_value ebb_emit_scaled(ebb_build *b, ebb_value x, double k);
ebb_value ebb_emit_shifted(ebb_build *b, ebb_value x, double k);

/* x broadcast to the shape of `like`; x itself where it has that one. */
ebb_value ebb_emit_expand_like(ebb_build *b, ebb_value x, ebb_value like);

/* The value of a constant scalar; false where it is not one. */
bool ebb_constant_scalar(const ebb_graph *g, ebb_value v, double *x);

/* Where(IsNaN(y), 0, y), which exporters write behind the Softmax y of an attention whose rows may be masked
 * whole: y, with zeros for their NaN. None: there is no such guard. */
ebb_value ebb_guarded_softmax(const ebb_graph *g, ebb_value y);
