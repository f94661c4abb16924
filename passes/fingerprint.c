/* fingerprint.c: one number of a graph. Passes change it by many ways, some of them by plain
 * assignments; what they did is seen here in what they left. */
#include "passes/fingerprint.h"

#include "onnx/words/mix.h"

static void mix(uint64_t *print, uint64_t word)
{
    *print = ebb_hash_mix(*print, word);
}

static void mix_pair(uint64_t *print, uint32_t a, uint32_t b)
{
    mix(print, (uint64_t)a << 32 | b);
}

static void mix_address(uint64_t *print, const void *at)
{
    mix(print, (uint64_t)(uintptr_t)at);
}

static void mix_values(uint64_t *print, const ebb_value *list, size_t count)
{
    mix(print, count);
    for (size_t i = 0; i < count; i++)
        mix(print, list[i].i);
}

static void mix_node(uint64_t *print, const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    mix_pair(print, n.i, info->op);
    mix_pair(print, info->domain.i, info->phase);
    mix_address(print, info->attr);
    mix(print, info->attr_count);
    mix_values(print, info->in, info->in_count);
    mix_values(print, info->out, info->out_count);
    EBB_EACH_PROP(&info->props, p)
        mix_pair(print, p->key.i, p->value.i);
    EBB_EACH_BODY(info, body)
        mix(print, ebb_fingerprint(*body));
}

static void mix_value(uint64_t *print, const ebb_value_info *info)
{
    mix_address(print, info->type);
    mix_address(print, info->tensor);
    mix_pair(print, info->name.i,
             (uint32_t)info->flags << 16 | (uint32_t)info->role << 8 | info->dead);
    mix_pair(print, info->binding, info->bound);
}

uint64_t ebb_fingerprint(const ebb_graph *g)
{
    uint64_t print = g->loss.i;
    EBB_EACH_NODE(g, n)
        mix_node(&print, g, n);
    EBB_EACH_VALUE(g, v)
        mix_value(&print, ebb_value_of(g, v));
    mix_values(&print, g->inputs, g->input_count);
    mix_values(&print, g->outputs, g->output_count);
    mix_values(&print, g->initializers, g->initializer_count);
    for (size_t i = 0; i < g->binding_count; i++)
        mix_pair(&print, g->bindings[i].state.i, g->bindings[i].next.i);
    for (size_t i = 0; i < g->model->import_count; i++) {
        mix(&print, g->model->imports[i].domain.i);
        mix(&print, (uint64_t)g->model->imports[i].version);
    }
    return print;
}
