/* pieces.h: sums over the processes of a group and parts of tensors of which each has its own, piece by piece, in
 * whatever memory they lie: a back end brings the hands.
 *
 * In an AllReduce rank r gets block r of the piece from all, adds them in the order of ranks and gives the sum to
 * all:
 *
 *     workspace |-- piece: one block from each rank --|-- end: a last piece that blocks do not divide --|
 *
 * In a ReduceScatter and an AllGather a piece has a block from the part of each rank, and the part is what a rank
 * has of the whole tensor: elements r * len .. of it, zeros behind its end.
 *
 * Where a library is asked for its own sum (attribute library) and has one, it brings and adds a piece at once.
 *
 * Else each number is added as operator Add does, in its own dtype: so the sum of what N ranks have has the bits that
 * adding N parts one after another has in one process, by whichever hands.
 */
#pragma once

#include "kernels/away/group.h"
#include "kernels/kernels.h"

EBB_C_BEGIN

typedef struct ebb_hands ebb_hands;
struct ebb_hands {
    ebb_status (*exchange)(const ebb_hands *h, const ebb_call *c, ebb_group_verb verb,
                           const void *from, void *to, size_t block);
    /* The sum of as many blocks as there are ranks, in the first. */
    ebb_status (*add)(const ebb_hands *h, const ebb_call *c, void *blocks, int64_t block);
    /* A library's sum of n elements of all ranks, in an order of its own; *done: there is one. */
    ebb_status (*sum)(const ebb_hands *h, const ebb_call *c, const void *from, void *to, int64_t n,
                      bool *done);
    ebb_status (*copy)(const ebb_hands *h, void *to, const void *from, size_t bytes);
    ebb_status (*clear)(const ebb_hands *h, void *to, size_t bytes);
    void *way; /* a back end's own: where it does so */
};

int64_t ebb_pieces_ranks(const ebb_call *c);
/* A rank and a number of them, of a call's group or of one process alone. */
int ebb_group_rank_of(const ebb_call *c);
const char *ebb_pieces_misfit(const ebb_call *c);
const char *ebb_pieces_misfit_sum(const ebb_call *c);
ebb_status ebb_pieces_workspace(const ebb_call *c, size_t *bytes);
/* Whatever of it the call is; EBB_RUNTIME where the group has another number of processes. */
ebb_status ebb_pieces_run(const ebb_call *c, const ebb_hands *h);

EBB_C_END
