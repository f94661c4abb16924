/* attention_turn.c: keys are read as [..., t, d], where a Transpose had made them [..., d, t] for a
 * product.
 *
 *     before    x [b, t, h, d] -- Transpose 0 2 3 1 --> k [b, h, d, t]     one element at a time
 *     after     x [b, t, h, d] -- Transpose 0 2 1 3 --> k [b, h, t, d]     rows of d at a time
 *
 * Kernels of attention want rows of d: cuDNN takes nothing else, so that keys which lie the other
 * way are turned back in its workspace, and their gradient after it. The gradient's Transpose
 * changes with it. One that only exchanged these two axes goes.
 */
#include "passes/memory/rounding/attention_turn.h"

/* The perm of a Transpose of that rank; false: the node is none. */
static bool read_perm(int64_t perm[EBB_MAX_RANK], const ebb_graph *g, ebb_node n, int rank)
{
    uint32_t count = 0;
    if (n.i == 0 || ebb_node_of(g, n)->op != EBB_OP_TRANSPOSE)
        return false;
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    const int64_t *given = ebb_attr_ints(&attrs, "perm", &count);
    if (given != NULL && count != (uint32_t)rank)
        return false;
    for (int i = 0; i < rank; i++)
        perm[i] = given != NULL ? given[i] : rank - 1 - i;
    return true;
}

bool ebb_key_turn_find(ebb_key_turn *turn, const ebb_graph *g, ebb_value k, ebb_value dk)
{
    const int rank = ebb_value_of(g, k)->type->rank;
    *turn = (ebb_key_turn){.rank = rank, .forward = ebb_value_of(g, k)->producer};
    if (rank < 2 || !read_perm(turn->perm, g, turn->forward, rank))
        return false;
    const int64_t last = turn->perm[rank - 1];
    turn->perm[rank - 1] = turn->perm[rank - 2];
    turn->perm[rank - 2] = last;
    if (dk.i == 0)
        return true;
    turn->backward = ebb_only_user(g, dk);
    if (!read_perm(turn->back_perm, g, turn->backward, rank))
        return false;
    for (int i = 0; i < rank; i++)
        if (turn->back_perm[i] >= rank - 2)
            turn->back_perm[i] = 2 * rank - 3 - turn->back_perm[i];
    return true;
}

static ebb_value transposed(ebb_build *b, ebb_value x, const int64_t *perm, int rank)
{
    bool stays = true;
    for (int i = 0; i < rank; i++)
        stays = stays && perm[i] == i;
    return stays ? x : ebb_emit_transpose(b, x, perm, rank);
}

ebb_value ebb_key_turn_emit(ebb_build *b, const ebb_graph *g, const ebb_key_turn *turn)
{
    return transposed(b, ebb_in(g, turn->forward, 0), turn->perm, turn->rank);
}

ebb_value ebb_key_turn_back(ebb_build *b, const ebb_key_turn *turn, ebb_value dk)
{
    return transposed(b, dk, turn->back_perm, turn->rank);
}
