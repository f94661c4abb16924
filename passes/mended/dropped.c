/* dropped.c: biases of fresh layers, which are zero.
 *
 *   before   y = Gemm(x, fc.weight)               "aten.addmm.default(args = (%p_fc_bias, %view, ...))"
 *   after    y = Gemm(x, fc.weight, fc.bias)      fc.bias = 0
 *
 * The dynamo exporter's optimiser drops them, and what is not in the file is not trained. Its note at
 * the node still names the parameter; so it does of a batch norm whose bias was zero when it was folded
 * into a convolution.
 */
#include "passes/mended/dropped.h"

#include <stdio.h>

#include "passes/parameters/trainable.h"

static const char kind_key[] = "pkg.torch.export.graph_signature.InputSpec.kind";

enum { LONGEST = 400 };

/* "p_fc_bias" of the call that the node stands for; false: it reads none. */
static bool bias_of_call(char name[LONGEST], const ebb_graph *g, ebb_node n)
{
    const char *at = ebb_props_get(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.fx_node");
    at = at != NULL ? strstr(at, "args = (") : NULL;
    while (at != NULL && (at = strstr(at, "%p_")) != NULL) {
        size_t length = strcspn(++at, ",)] ");
        if (length > 5 && length < LONGEST && strncmp(at + length - 5, "_bias", 5) == 0) {
            (void)snprintf(name, LONGEST, "%.*s", (int)length, at);
            return true;
        }
    }
    return false;
}

/* How many elements the bias has; 0: not known. */
static int64_t channels(const ebb_graph *g, ebb_node n)
{
    ebb_value w = ebb_in(g, n, 1);
    const ebb_tensor *t = w.i != 0 ? ebb_value_of(g, w)->tensor : NULL;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    int64_t groups = ebb_attr_int(&attrs, "group", 1);
    if (t == NULL || t->type.rank < 2)
        return 0;
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_CONV:
        return t->type.dims[0];
    case EBB_OP_CONV_TRANSPOSE:
        return groups > 0 && groups < INT32_MAX && t->type.dims[1] < INT32_MAX
                   ? t->type.dims[1] * groups
                   : 0;
    case EBB_OP_GEMM:
        return t->type.dims[ebb_attr_int(&attrs, "transB", 0) != 0 ? 0 : 1];
    default:
        return 0;
    }
}

/* "fc.weight" gives "fc.bias"; another name gets "_bias" behind it, as from the exporter. */
static const char *name_beside(const ebb_graph *g, ebb_node n, ebb_arena *scratch)
{
    const char *weight = ebb_value_name(g, ebb_in(g, n, 1));
    size_t length = strlen(weight);
    bool usual = length > 7 && strcmp(weight + length - 7, ".weight") == 0;
    return usual ? ebb_arena_printf(scratch, "%.*s.bias", (int)(length - 7), weight)
                 : ebb_arena_printf(scratch, "%s_bias", weight);
}

static ebb_status restore(ebb_graph *g, ebb_node n, int64_t count, ebb_arena *scratch)
{
    ebb_value bias;
    ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, ebb_in(g, n, 1))->tensor->type.dtype;
    ebb_type type = ebb_type_tensor(dtype, 1, &count);
    const char *name = name_beside(g, n, scratch);
    void *zeros = EBB_NEW(scratch, unsigned char, (size_t)count *(ebb_dtype_bits(dtype) / 8));
    EBB_GOT(name && zeros);
    EBB_TRY(ebb_graph_add_initializer(g, &bias, name, &type, zeros, EBB_ROLE_NONE));
    EBB_TRY(ebb_props_set(g, &ebb_value_of(g, bias)->props, kind_key, "PARAMETER"));
    EBB_TRY(ebb_props_set(g, &ebb_value_of(g, bias)->props, EBB_DROPPED, "1"));
    return ebb_node_set_input(g, n, 2, bias);
}

ebb_status ebb_dropped_restore(ebb_graph *g, ebb_arena *scratch)
{
    EBB_EACH_NODE(g, n) {
        char name[LONGEST];
        if (ebb_in(g, n, 2).i != 0 || !bias_of_call(name, g, n))
            continue;
        int64_t count = channels(g, n);
        ebb_value w = ebb_in(g, n, 1);
        if (count < 1 || !ebb_trainable_candidate(g, w) ||
            ebb_value_of(g, w)->tensor->data == NULL ||
            (uint64_t)count > ebb_value_of(g, w)->tensor->bytes)
            continue;
        EBB_TRY(restore(g, n, count, scratch));
    }
    return NULL;
}
