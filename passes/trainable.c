/* trainable.c: which initializers are parameters. ONNX has no flag for it; four sources in order.
 */
#include "passes/trainable.h"

#include "passes/common.h"

#include <ctype.h>

const char *ebb_trainable_words(ebb_trainable_source source)
{
    static const char *const words[] = {
        [EBB_TRAINABLE_ROLES] = "chosen by a pass",
        [EBB_TRAINABLE_BINDINGS] = "by the file's update bindings",
        [EBB_TRAINABLE_METADATA] = "marked PARAMETER by the exporter",
        [EBB_TRAINABLE_SLOTS] = "found where operators expect weights",
    };
    return words[source];
}

bool ebb_name_is_anonymous(const char *name)
{
    if (strncmp(name, "onnx::", 6) == 0 || strstr(name, "Constant") != NULL ||
        strncmp(name, "_to_copy", 8) == 0)
        return true;
    if (strncmp(name, "val_", 4) != 0)
        return false;
    for (const char *c = name + 4; *c != '\0'; c++)
        if (!isdigit((unsigned char)*c) && *c != '_')
            return false;
    return true;
}

static bool is_statistic(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (info->role == EBB_ROLE_STATISTIC)
        return true;
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_op op = ebb_node_of(g, info->uses[i].node)->op;
        bool slot = info->uses[i].slot == 3 || info->uses[i].slot == 4;
        if (slot && ebb_op_has(op, EBB_STATISTICS))
            return true;
    }
    return false;
}

static bool is_size_slot(ebb_op op, uint32_t slot)
{
    return op == EBB_OP_RANGE || ((op == EBB_OP_RESIZE || op == EBB_OP_UPSAMPLE) && slot > 0);
}

static bool computes_sizes(ebb_op op)
{
    switch (op) {
    case EBB_OP_CONCAT:
    case EBB_OP_CAST:
    case EBB_OP_ADD:
    case EBB_OP_SUB:
    case EBB_OP_MUL:
    case EBB_OP_DIV:
    case EBB_OP_FLOOR:
    case EBB_OP_CEIL:
    case EBB_OP_ROUND:
    case EBB_OP_SLICE:
    case EBB_OP_GATHER:
    case EBB_OP_RESHAPE:
    case EBB_OP_SQUEEZE:
    case EBB_OP_UNSQUEEZE:
        return true;
    default:
        return false;
    }
}

bool ebb_feeds_sizes_alone(const ebb_graph *g, ebb_value v)
{
    enum { MOST = 64 }; // values on the way; exporters need five
    ebb_value here[MOST] = {v};
    for (size_t done = 0, count = 1; done < count; done++) {
        const ebb_value_info *info = ebb_value_of(g, here[done]);
        if (info->use_count == 0 || ebb_value_is_held(g, here[done]))
            return false;
        for (size_t i = 0; i < info->use_count; i++) {
            ebb_node n = info->uses[i].node;
            ebb_op op = ebb_node_of(g, n)->op;
            if (is_size_slot(op, info->uses[i].slot))
                continue;
            if (!computes_sizes(op) || count == MOST)
                return false;
            here[count++] = ebb_out(g, n, 0);
        }
    }
    return true;
}

bool ebb_trainable_candidate(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (info->dead || info->tensor == NULL || (info->flags & EBB_IS_INITIALIZER) == 0 ||
        !ebb_dtype_is_float((ebb_dtype)info->type->dtype))
        return false;
    bool ours = info->role == EBB_ROLE_CONSTANT || info->role == EBB_ROLE_OPTIMIZER ||
                info->role == EBB_ROLE_RANDOM;
    return !ours && !is_statistic(g, v) && !ebb_feeds_sizes_alone(g, v);
}

static bool moves_data(ebb_op op)
{
    return ebb_op_has(op, EBB_VIEW) || op == EBB_OP_TRANSPOSE || op == EBB_OP_SLICE ||
           op == EBB_OP_CONCAT || op == EBB_OP_PAD || op == EBB_OP_CAST || op == EBB_OP_CAST_LIKE ||
           op == EBB_OP_QUANTIZE_LINEAR || op == EBB_OP_DEQUANTIZE_LINEAR;
}

/* A scale or a zero point is found by calibration, and is trained where it is named only. */
static bool is_scale_slot(ebb_op op, uint32_t slot)
{
    return (op == EBB_OP_QUANTIZE_LINEAR || op == EBB_OP_DEQUANTIZE_LINEAR) && slot > 0;
}

static bool is_weight_slot(ebb_op op, uint32_t slot)
{
    switch (op) {
    case EBB_OP_MATMUL:
    case EBB_OP_FUSED_MATMUL:
        return slot <= 1;
    case EBB_OP_GATHER:
        return slot == 0;
    case EBB_OP_GEMM:
        return slot <= 2;
    case EBB_OP_CONV:
    case EBB_OP_CONV_TRANSPOSE:
    case EBB_OP_CONV_NHWC:
    case EBB_OP_CONV_TRANSPOSE_NHWC:
    case EBB_OP_BATCH_NORMALIZATION:
    case EBB_OP_BATCH_NORM_TRAINING:
    case EBB_OP_LAYER_NORMALIZATION:
    case EBB_OP_INSTANCE_NORMALIZATION:
    case EBB_OP_GROUP_NORMALIZATION:
    case EBB_OP_GROUP_NORM:
        return slot == 1 || slot == 2;
    case EBB_OP_RMS_NORM:
    case EBB_OP_RMS_NORMALIZATION:
    case EBB_OP_PRELU:
        return slot == 1;
    case EBB_OP_RNN:
    case EBB_OP_GRU:
    case EBB_OP_LSTM:
    case EBB_OP_LSTM_TRAINING:
        return slot >= 1 && slot <= 3;
    default:
        return false;
    }
}

bool ebb_feeds_weight_slot(const ebb_graph *g, ebb_value v)
{
    enum { FAR = 6 }; // an exported LSTM weight goes Slice, Concat, Unsqueeze; nothing goes further
    ebb_value here[64] = {v};
    size_t count = 1, done = 0;
    for (int step = 0; step < FAR && done < count; step++) {
        for (size_t end = count; done < end; done++) {
            const ebb_value_info *info = ebb_value_of(g, here[done]);
            for (size_t i = 0; i < info->use_count; i++) {
                ebb_node n = info->uses[i].node;
                ebb_op op = ebb_node_of(g, n)->op;
                if (is_weight_slot(op, info->uses[i].slot))
                    return true;
                if (moves_data(op) && !is_scale_slot(op, info->uses[i].slot) && count < 64 &&
                    ebb_out(g, n, 0).i != 0)
                    here[count++] = ebb_out(g, n, 0);
            }
        }
    }
    return false;
}

/* Arithmetic takes parameters too (a bias, a layer scale, the temperature of a softmax), but a lone
 * number there is a constant where the file does not tell. */
static bool looks_like_a_weight(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    int64_t elements;
    bool scale = info->use_count > 0;
    if (ebb_feeds_weight_slot(g, v))
        return true;
    for (size_t i = 0; scale && i < info->use_count; i++)
        scale = is_scale_slot(ebb_node_of(g, info->uses[i].node)->op, info->uses[i].slot);
    if (scale)
        return false;
    if (ebb_name_is_anonymous(ebb_value_name(g, v)) || info->use_count == 0)
        return false;
    return ebb_type_elements(info->type, &elements) &&
           (elements > 1 || (elements == 1 && ebb_is_parameter(g, v)));
}

static bool is_marked(const ebb_graph *g, ebb_value v, const char *as)
{
    const char *kind = ebb_props_get(g, &ebb_value_of(g, v)->props,
                                     "pkg.torch.export.graph_signature.InputSpec.kind");
    return kind != NULL && strstr(kind, as) != NULL;
}

ebb_status ebb_trainable_find(bool *trains, ebb_trainable_source *source, const ebb_graph *g)
{
    size_t chosen = 0, bound = 0, marked = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        if (!ebb_trainable_candidate(g, v))
            continue;
        chosen += ebb_value_of(g, v)->role == EBB_ROLE_PARAMETER;
        bound += (ebb_value_of(g, v)->flags & EBB_IS_STATE) != 0;
        marked += is_marked(g, v, "PARAMETER");
    }
    *source = chosen > 0   ? EBB_TRAINABLE_ROLES
              : bound > 0  ? EBB_TRAINABLE_BINDINGS
              : marked > 0 ? EBB_TRAINABLE_METADATA
                           : EBB_TRAINABLE_SLOTS;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        if (!ebb_trainable_candidate(g, v) || ebb_value_of(g, v)->role == EBB_ROLE_FROZEN)
            continue;
        trains[v.i] =
            *source == EBB_TRAINABLE_ROLES      ? ebb_value_of(g, v)->role == EBB_ROLE_PARAMETER
            : *source == EBB_TRAINABLE_BINDINGS ? (ebb_value_of(g, v)->flags & EBB_IS_STATE) != 0
            : *source == EBB_TRAINABLE_METADATA ? is_marked(g, v, "PARAMETER")
                                                : looks_like_a_weight(g, v);
    }
    return NULL;
}
