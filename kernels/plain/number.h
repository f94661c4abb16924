/* number.h: elements of any dtype, one at a time, for kernels that run seldom: those of indices, of
 * quantised tensors, of images. What runs often has loops of its own for each dtype. */
#pragma once

#include "kernels/plain/plain.h"

/* Element i as a double (integers beyond 2^53 are rounded), or as an integer (floats truncated). */
double ebb_plain_real(const ebb_operand *o, int64_t i);
int64_t ebb_plain_whole(const ebb_operand *o, int64_t i);

/* Integer i modulo 2^64: every uint64 as it is, where ebb_plain_whole ends at INT64_MAX. */
uint64_t ebb_plain_word(const ebb_operand *o, int64_t i);

/* Element i = value, rounded to the float dtype; the nearest integer, ties to even, within the
 * range of an integer dtype. Neighbours that share a byte must be set by one thread. */
void ebb_plain_put(const ebb_operand *o, int64_t i, double value);
