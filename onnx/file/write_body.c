/* write_body.c: which calls the body of their operator does not mean. */
#include "onnx/file/writer.h"

#include <string.h>
#include <strings.h>

static bool has_input(const ebb_graph *g, ebb_node n, uint32_t i)
{
    return ebb_in(g, n, i).i != 0;
}

/* Bodies cannot see strings and what is left out; what these say holds for Momentum of one tensor
 * in standard mode, for recurrent operators with the time first and the activations that a node
 * has which names none (RNN: Relu too), and for com.microsoft's LSTM of all steps without
 * peepholes.
 */
static bool has_other_activations(const ebb_attrs *attrs, const char *f, const char *g)
{
    const ebb_attr *names = ebb_attr_find(attrs, "activations");
    if (ebb_attr_int(attrs, "layout", 0) != 0)
        return true;
    for (uint32_t i = 0; names != NULL && i < names->count; i++)
        if (names->type != EBB_ATTR_STRINGS ||
            (strcasecmp(names->strings[i], f) != 0 && strcasecmp(names->strings[i], g) != 0))
            return true;
    return false;
}

/* Sigmoid first, then Tanh, in each direction. */
static bool has_unusual_activations(const ebb_attrs *attrs, uint32_t each)
{
    const ebb_attr *names = ebb_attr_find(attrs, "activations");
    if (has_other_activations(attrs, "Sigmoid", "Tanh"))
        return true;
    for (uint32_t i = 0; names != NULL && i < names->count; i++)
        if (strcasecmp(names->strings[i], i % each == 0 ? "Sigmoid" : "Tanh") != 0)
            return true;
    return false;
}

static bool is_matrix(const ebb_graph *g, ebb_node n, uint32_t i)
{
    return ebb_value_of(g, ebb_in(g, n, i))->type->rank >= 2;
}

bool ebb_body_is_narrow(const ebb_graph *g, ebb_node n)
{
    const ebb_value first = ebb_in(g, n, 0);
    return first.i != 0 && ebb_is_narrow(ebb_value_of(g, first)->type);
}

bool ebb_body_is_wrong(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    switch (info->op) {
    case EBB_OP_MOMENTUM:
        return info->in_count != 5 ||
               strcmp(ebb_attr_string(&attrs, "mode", "standard"), "standard") != 0;
    case EBB_OP_MS_FAST_GELU:
        return has_input(g, n, 1);
    case EBB_OP_FUSED_MATMUL:
        return !is_matrix(g, n, 0) || !is_matrix(g, n, 1) ||
               ebb_attr_int(&attrs, "transBatchA", 0) != 0 ||
               ebb_attr_int(&attrs, "transBatchB", 0) != 0;
    case EBB_OP_RNN_GRAD:
        return has_other_activations(&attrs, "Tanh", "Relu");
    case EBB_OP_GRU_GRAD:
        return has_unusual_activations(&attrs, 2);
    case EBB_OP_EBB_LSTM_GRAD:
        return has_unusual_activations(&attrs, 3);
    case EBB_OP_LSTM_TRAINING:
    case EBB_OP_LSTM_GRAD:
        if (has_unusual_activations(&attrs, 3) || ebb_attr_find(&attrs, "clip") != NULL ||
            ebb_attr_int(&attrs, "input_forget", 0) != 0)
            return true;
        return info->op == EBB_OP_LSTM_TRAINING ? has_input(g, n, 4) || has_input(g, n, 7)
                                                : has_input(g, n, 3) || ebb_out(g, n, 6).i != 0;
    default:
        return false;
    }
}
