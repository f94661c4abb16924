/* call.c: node to call. The only place where names become what kernels know. */
#include "exec/weigh/call.h"

#include "onnx/graph/infer.h"

/* FNV-1a: the stream of a node's name is the same in every program. */
uint64_t ebb_stream_longer(uint64_t stream, const char *text)
{
    for (; *text != '\0'; text++)
        stream = (stream ^ (unsigned char)*text) * UINT64_C(0x100000001B3);
    return stream;
}

static ebb_status fill_operand(ebb_operand *operand, const ebb_graph *g, ebb_node n, ebb_value v,
                               bool constants)
{
    if (v.i == 0)
        return NULL; /* dtype EBB_NONE: absent */
    const ebb_value_info *info = ebb_value_of(g, v);
    if (!ebb_type_bytes(info->type, &operand->bytes)) {
        char text[256];
        ebb_type_print(text, sizeof text, info->type, &g->model->names);
        ebb_status status =
            ebb_error(EBB_REJECTED, "%s: '%s' has the type %s, whose size is not known",
                      ebb_node_label(g, n), ebb_value_name(g, v), text);
        return ebb_type_is_static(info->type) ? status
                                              : ebb_hint(status, "%s", ebb_help_of_sizes(g, n));
    }
    operand->type = *info->type;
    operand->constant =
        constants || info->role == EBB_ROLE_CONSTANT ? ebb_value_constant(g, v) : NULL;
    return NULL;
}

ebb_status ebb_call_make(ebb_call *call, ebb_arena *arena, const ebb_graph *g, ebb_node n,
                         uint64_t seed)
{
    const ebb_node_info *node = ebb_node_of(g, n);
    *call = (ebb_call){.op = node->op, .seed = seed};
    call->version = ebb_model_opset(g->model, ebb_text(g, node->domain));
    call->node = ebb_arena_strdup(arena, ebb_node_label(g, n));
    call->attrs = ebb_node_attrs(g, n);
    call->input_count = node->in_count;
    call->output_count = node->out_count;
    call->in = EBB_NEW(arena, ebb_operand, node->in_count + (size_t)1);
    call->out = EBB_NEW(arena, ebb_operand, node->out_count + (size_t)1);
    EBB_GOT(call->node && call->in && call->out);
    const char *name = ebb_text(g, node->name);
    for (uint32_t k = 0; name[0] == '\0' && k < node->out_count; k++)
        name = ebb_value_name(g, node->out[k]);
    call->stream = ebb_stream_longer(EBB_STREAM_OF_NO_NAME, name);
    /* An optimizer's learning rate may be set between steps, so its value is not known before; what
     * is a constant by its role stays one. */
    bool constants = !ebb_op_has(node->op, EBB_UPDATES);
    for (uint32_t i = 0; i < node->in_count; i++)
        EBB_TRY(fill_operand(&call->in[i], g, n, node->in[i], constants));
    for (uint32_t i = 0; i < node->out_count; i++)
        EBB_TRY(fill_operand(&call->out[i], g, n, node->out[i], false));
    for (uint32_t i = 0; i < node->out_count; i++)
        call->out[i].over = (uint8_t)ebb_node_over(g, n, i);
    return NULL;
}
