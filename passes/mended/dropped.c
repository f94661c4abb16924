/* dropped.c: biases of fresh layers, which are zero.
 *
 *   before   y = Gemm(x, fc.weight)               "aten.addmm.default(args = (%p_fc_bias, %view, ...))"
 *   after    y = Gemm(x, fc.weight, fc.bias)      fc.bias = 0
 *
 * The dynamo exporter's optimiser drops them, and what is not in the file is not trained. Its note at
 * the node still names the parameter; so it does of a batch norm whose bias was zero when it was folded
 * into a convolution. A layer that runs twice has one bias.
 */
#include "passes/mended/dropped.h"

#include <stdio.h>

#include "passes/parameters/noted.h"
#include "passes/parameters/trainable.h"

typedef struct dropping {
    ebb_graph *g;
    ebb_arena *scratch;
    ebb_noted_losses losses;
    ebb_noted noted; /* of the node that was looked at last */
} dropping;

static bool is_of_layer(const ebb_graph *g, ebb_node n)
{
    static const char layers[][9] = {".linear.", ".addmm.", ".conv"};
    const char *call = ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL);
    bool is = false;
    for (size_t i = 0; i < sizeof layers / sizeof *layers && !is; i++) {
        const char *found = strstr(call, layers[i]);
        is = found != NULL && found < strchr(call, '(');
    }
    return is;
}

/* A parameter that the file does not have, or did not before. */
static bool is_dropped(const dropping *d, const char *source)
{
    const ebb_noted_loss *known = ebb_noted_parameter(&d->losses, source);
    const ebb_value v = known != NULL ? ebb_value_find(d->g, known->name) : EBB_NO_VALUE;
    return known != NULL &&
           (v.i == 0 || ebb_props_get(d->g, &ebb_value_of(d->g, v)->props, EBB_DROPPED) != NULL);
}

/* "p_fc_bias" of the call that the node stands for; else what a layer's call reads that the file does not have;
 * NULL: neither. */
static const char *bias_of_call(dropping *d, ebb_node n)
{
    ebb_noted_sources(&d->noted, d->g, n, "p_");
    for (int i = 0; i < d->noted.count; i++)
        if (ebb_ends_in(d->noted.name[i], "_bias"))
            return d->noted.name[i];
    for (int i = 0; i < d->noted.count && is_of_layer(d->g, n); i++)
        if (is_dropped(d, d->noted.name[i]))
            return d->noted.name[i];
    return NULL;
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

/* The bias of that name, which a layer read before. */
static ebb_value there_already(const ebb_graph *g, const char *name, const ebb_type *type)
{
    const ebb_value v = ebb_value_find(g, name);
    const ebb_tensor *t = v.i != 0 ? ebb_value_of(g, v)->tensor : NULL;
    const bool is = t != NULL && (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0 &&
                    ebb_type_same_shape(&t->type, type) && t->type.dtype == type->dtype;
    return is ? v : EBB_NO_VALUE;
}

static ebb_status restore(dropping *d, ebb_node n, const char *source, int64_t count)
{
    ebb_graph *g = d->g;
    const ebb_noted_loss *known = ebb_noted_parameter(&d->losses, source);
    const ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, ebb_in(g, n, 1))->tensor->type.dtype;
    const ebb_type type = ebb_type_tensor(dtype, 1, &count);
    const char *name = known != NULL ? known->name : name_beside(g, n, d->scratch);
    void *zeros = EBB_NEW(d->scratch, unsigned char, (size_t)count *(ebb_dtype_bits(dtype) / 8));
    EBB_GOT(name && zeros);
    ebb_value bias = there_already(g, name, &type);
    if (bias.i == 0) {
        EBB_TRY(ebb_graph_add_initializer(g, &bias, name, &type, zeros, EBB_ROLE_NONE));
        ebb_props *props = &ebb_value_of(g, bias)->props;
        EBB_TRY(ebb_props_set(g, props, EBB_NOTED_KIND, "PARAMETER"));
        EBB_TRY(ebb_props_set(g, props, EBB_DROPPED, "1"));
    }
    return ebb_node_set_input(g, n, 2, bias);
}

ebb_status ebb_dropped_restore(ebb_graph *g, ebb_arena *scratch)
{
    dropping *d = EBB_NEW(scratch, dropping, 1);
    EBB_GOT(d);
    *d = (dropping){.g = g, .scratch = scratch};
    EBB_TRY(ebb_noted_losses_find(&d->losses, g, scratch));
    EBB_EACH_NODE(g, n) {
        const char *source = ebb_in(g, n, 2).i == 0 ? bias_of_call(d, n) : NULL;
        const int64_t count = source != NULL ? channels(g, n) : 0;
        ebb_value w = ebb_in(g, n, 1);
        if (count < 1 || !ebb_trainable_candidate(g, w) ||
            ebb_value_of(g, w)->tensor->data == NULL ||
            (uint64_t)count > ebb_value_of(g, w)->tensor->bytes)
            continue;
        EBB_TRY(restore(d, n, source, count));
    }
    return NULL;
}
