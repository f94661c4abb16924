/* stream.c: decoding nodes and their readers in a graph. */
#include "onnx/graph/stream.h"

#include "onnx/graph/tile.h"

static bool type_of(const ebb_type **type, const ebb_graph *g, ebb_value v)
{
    *type = v.i != 0 ? ebb_value_of(g, v)->type : NULL;
    return *type == NULL || ebb_type_is_static(*type);
}

/* The reader's operands, as tile.h wants them. */
static const char *reader_refuses(const ebb_graph *g, ebb_use use)
{
    const ebb_node_info *n = ebb_node_of(g, use.node);
    const ebb_type *in[EBB_TILE_OPERANDS] = {NULL}, *out[EBB_TILE_OPERANDS] = {NULL};
    if (n->in_count > EBB_TILE_OPERANDS || n->out_count > EBB_TILE_OPERANDS)
        return "its reader has too many operands";
    for (uint32_t i = 0; i < n->in_count; i++)
        if (!type_of(&in[i], g, n->in[i]))
            return "its reader's operands have no known size";
    for (uint32_t k = 0; k < n->out_count; k++)
        if (!type_of(&out[k], g, n->out[k]))
            return "its reader's operands have no known size";
    ebb_attrs attrs = ebb_node_attrs(g, use.node);
    ebb_tiling tiling;
    return ebb_tiling_find(&tiling, n->op, &attrs, in, n->in_count, out, n->out_count, use.slot);
}

const char *ebb_stream_refuses(const ebb_graph *g, ebb_node n, ebb_use *reader)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    *reader = (ebb_use){EBB_NO_NODE, 0};
    if (!ebb_op_has(info->op, EBB_DECODES) || info->out_count != 1 || info->out[0].i == 0)
        return "it decodes nothing";
    const ebb_value_info *out = ebb_value_of(g, info->out[0]);
    if (ebb_value_is_held(g, info->out[0]) || out->use_count != 1)
        return "it has more than one reader";
    for (uint32_t i = 0; i < info->in_count; i++) {
        const ebb_type *type;
        if (!type_of(&type, g, info->in[i]) || (type != NULL && type->rank < 1))
            return "its code has no rows";
    }
    *reader = out->uses[0];
    if (ebb_node_of(g, reader->node)->tile_rows != 0)
        return "its reader is read in tiles itself";
    return reader_refuses(g, *reader);
}
