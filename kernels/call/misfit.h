/* misfit.h: what a call of an operator must look like for kernels of any back end, beyond dtypes
 * and layout, which each asks for itself: NULL, or why not. Operators whose geometry all back ends
 * read have theirs beside it (move.h, place.h, scatter.h, geometry.h ...). In this folder
 * ebb_x_misfit judges a call, and ebb_x_read fills a struct with what it says.
 */
#pragma once

#include "kernels/operand.h"

EBB_C_BEGIN

/* Losses of one input or two. */
const char *ebb_loss_misfit(const ebb_call *c);

/* SoftmaxCrossEntropyLoss(scores, labels, weights?), its gradient (dY first), both (dY first, too),
 * and NegativeLogLikelihoodLoss. The scores are this input: */
uint32_t ebb_cross_entropy_first(const ebb_call *c);
const char *ebb_scores_dtypes(const ebb_call *c); /* of both at once: dtypes */
const char *ebb_cross_entropy_misfit(const ebb_call *c);

/* Dropout and its gradients, keyed or not: masks, keys, scalars; input 0 and output 0 agree. */
const char *ebb_dropout_misfit(const ebb_call *c);
/* Has it a key? Else a ratio and a training mode may follow from this input on: */
bool ebb_dropout_is_keyed(const ebb_call *c);
uint32_t ebb_dropout_first_scalar(const ebb_call *c);

/* What RandomUniform and RandomNormal (and those of another's shape) draw: base + width * number, and
 * nothing above `most`: of [low, high) no number is rounded to high. */
typedef struct ebb_drawing {
    bool is_normal;
    double base, width, most;
} ebb_drawing;
ebb_drawing ebb_drawing_read(const ebb_call *c);

/* Optimizers: all operands are there, scalars before `first`; behind it W, G and states of `groups`
 * tensors are of one dtype, and of each tensor of one shape, as outputs are. */
const char *ebb_update_misfit(const ebb_call *c, uint32_t first, uint32_t groups);

const char *ebb_pack_bits_misfit(const ebb_call *c); /* PackBits, UnpackBits */
const char *ebb_pack_sign_misfit(const ebb_call *c); /* PackSign, MaskGrad */
const char *ebb_invert_misfit(const ebb_call *c);    /* (dY, Y, bits of the side) -> dX */
/* The function that such a call inverts, as that of alpha x, over alpha. */
const struct ebb_invert_fit *ebb_invert_fit_of(const ebb_call *c, double *alpha);

enum { EBB_FEW_BIT_MOST = 4 };
const char *ebb_few_bit_misfit(const ebb_call *c);

const char *ebb_global_pool_misfit(const ebb_call *c); /* one element a channel */
/* The scale of a norm is the last axes of x, whole; over those before, within n, it is repeated each `period`. */
bool ebb_scale_covers(const ebb_type *x, const ebb_type *scale, int64_t n, int64_t period);
ebb_status ebb_dropout_check(const ebb_call *c, double ratio);
const char *ebb_reverse_sequence_misfit(const ebb_call *c);
const char *ebb_lrn_misfit(const ebb_call *c);

EBB_C_END
