/* cut.h: how a call goes through its kernel piece by piece, where a piece needs nothing of the others.
 *
 *     y [8, 12, 512, 64]     axis 2, outer 96, a piece [1, 1, 64, 64]
 *
 * A piece is a range of one axis at one place of the axes before it: of few thousand elements, so that
 * what is made of it stays in the first cache. Pieces are dealt out to slots: one thread with calls
 * and workspace of its own.
 */
#pragma once

#include "kernels/kernels.h"

typedef struct ebb_cut {
    bool whole; /* not cut: one piece */
    bool flat;  /* every operand is one element or as many as the output: a list of elements */
    int rank, axis;
    int64_t dims[EBB_MAX_RANK]; /* of y */
    int64_t outer, per_piece, pieces;
    uint32_t slots;
} ebb_cut;

/* By the call's operator, its operands' shapes and the number of threads. */
ebb_cut ebb_cut_find(const ebb_call *call);

/* What is left of the axis for its last piece, if that is less than others have; else 0. */
int64_t ebb_cut_rest(const ebb_cut *cut);

/* The operand's type in a piece with `units` of the axis; the element of it where a piece begins. */
void ebb_cut_type(const ebb_cut *cut, ebb_type *type, int64_t units);
int64_t ebb_cut_first(const ebb_cut *cut, const ebb_type *type, int64_t piece);
