/* slots.h: what an initializer in an operand of an operator is for: the slots column of ops.def. */
#pragma once

#include "onnx/graph/graph.h"

/* The letters that op.h explains. */
typedef enum ebb_slot {
    EBB_SLOT_OTHER = '-',
    EBB_SLOT_WEIGHT = 'W', /* the layer's own, too */
    EBB_SLOT_STATISTIC = 'R',
    EBB_SLOT_SCALE = 'Q',
    EBB_SLOT_BOUND = 'B',
    EBB_SLOT_SIZE = 'S',
    EBB_SLOT_ARITHMETIC = 'A',
    EBB_SLOT_MOVED = 'M',
} ebb_slot;

static inline ebb_slot ebb_slot_of(ebb_op op, uint32_t input)
{
    char letter = ebb_op_slot(op, input);
    return letter == 'O' ? EBB_SLOT_WEIGHT : (ebb_slot)letter;
}

static inline ebb_slot ebb_use_of(const ebb_graph *g, ebb_use use)
{
    return ebb_slot_of(ebb_node_of(g, use.node)->op, use.slot);
}

static inline bool ebb_op_is_recurrent(ebb_op op)
{
    return op == EBB_OP_LSTM || op == EBB_OP_GRU || op == EBB_OP_RNN;
}
