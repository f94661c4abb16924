/* slots.c: what an initializer in an operand of an operator is for. */
#include "passes/slots.h"

ebb_slot ebb_slot_of(ebb_op op, uint32_t input)
{
    switch (op) {
    case EBB_OP_MATMUL:
    case EBB_OP_FUSED_MATMUL:
        return input <= 1 ? EBB_SLOT_WEIGHT : EBB_SLOT_OTHER;
    case EBB_OP_GATHER:
        return input == 0 ? EBB_SLOT_WEIGHT : EBB_SLOT_OTHER;
    case EBB_OP_GEMM:
        return EBB_SLOT_WEIGHT;
    case EBB_OP_CONV:
    case EBB_OP_CONV_TRANSPOSE:
    case EBB_OP_CONV_NHWC:
    case EBB_OP_CONV_TRANSPOSE_NHWC:
    case EBB_OP_LAYER_NORMALIZATION:
    case EBB_OP_INSTANCE_NORMALIZATION:
    case EBB_OP_GROUP_NORMALIZATION:
    case EBB_OP_GROUP_NORM:
        return input == 1 || input == 2 ? EBB_SLOT_WEIGHT : EBB_SLOT_OTHER;
    case EBB_OP_BATCH_NORMALIZATION:
    case EBB_OP_BATCH_NORM_TRAINING:
        return input == 1 || input == 2   ? EBB_SLOT_WEIGHT
               : input == 3 || input == 4 ? EBB_SLOT_STATISTIC
                                          : EBB_SLOT_OTHER;
    case EBB_OP_RMS_NORM:
    case EBB_OP_RMS_NORMALIZATION:
    case EBB_OP_PRELU:
        return input == 1 ? EBB_SLOT_WEIGHT : EBB_SLOT_OTHER;
    case EBB_OP_RNN:
    case EBB_OP_GRU:
    case EBB_OP_LSTM:
    case EBB_OP_LSTM_TRAINING:
        return input >= 1 && input <= 3 ? EBB_SLOT_WEIGHT : EBB_SLOT_OTHER;
    case EBB_OP_ADD:
    case EBB_OP_SUB:
    case EBB_OP_MUL:
    case EBB_OP_DIV:
    case EBB_OP_SUM:
        return EBB_SLOT_ARITHMETIC;
    case EBB_OP_RANGE:
        return EBB_SLOT_SIZE;
    case EBB_OP_RESIZE:
    case EBB_OP_UPSAMPLE:
        return input > 0 ? EBB_SLOT_SIZE : EBB_SLOT_OTHER;
    case EBB_OP_CLIP:
    case EBB_OP_DROPOUT:
        return input > 0 ? EBB_SLOT_BOUND : EBB_SLOT_OTHER;
    case EBB_OP_PAD:
        return input > 0 ? EBB_SLOT_BOUND : EBB_SLOT_MOVED;
    case EBB_OP_QUANTIZE_LINEAR:
    case EBB_OP_DEQUANTIZE_LINEAR:
        return input > 0 ? EBB_SLOT_SCALE : EBB_SLOT_MOVED;
    case EBB_OP_TRANSPOSE:
    case EBB_OP_EXPAND:
    case EBB_OP_TILE:
    case EBB_OP_SLICE:
    case EBB_OP_CAST:
    case EBB_OP_CAST_LIKE:
        return input == 0 ? EBB_SLOT_MOVED : EBB_SLOT_OTHER;
    case EBB_OP_CONCAT:
        return EBB_SLOT_MOVED;
    default:
        return ebb_op_has(op, EBB_VIEW) && input == 0 ? EBB_SLOT_MOVED : EBB_SLOT_OTHER;
    }
}
