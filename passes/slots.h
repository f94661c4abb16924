/* slots.h: what an initializer in an operand of an operator is for. */
#ifndef EBB_PASSES_SLOTS_H
#define EBB_PASSES_SLOTS_H

#include "onnx/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ebb_slot {
    EBB_SLOT_OTHER = 0,
    EBB_SLOT_WEIGHT,     /* a weight */
    EBB_SLOT_STATISTIC,  /* a running statistic */
    EBB_SLOT_SCALE,      /* found by calibration: trained where it is named */
    EBB_SLOT_BOUND,      /* a bound, a ratio, a number to fill with */
    EBB_SLOT_SIZE,       /* a size: never trained */
    EBB_SLOT_ARITHMETIC, /* a bias or a scale as well as a constant */
    EBB_SLOT_MOVED,      /* it is for what the output is for */
} ebb_slot;

ebb_slot ebb_slot_of(ebb_op op, uint32_t input);

static inline ebb_slot ebb_use_of(const ebb_graph *g, ebb_use use)
{
    return ebb_slot_of(ebb_node_of(g, use.node)->op, use.slot);
}

#ifdef __cplusplus
}
#endif
#endif
