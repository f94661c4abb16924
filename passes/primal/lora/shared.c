/* shared.c: layers that are one module of the framework, which is called more than once.
 *
 * Such a module's weight is read by several nodes, of which exporters number the paths ("query", "query_1"). A
 * quantiser that meets it again may store it again, or it rounds the weight for the first reader alone and
 * leaves it in floats, under its own name, for the others. All these layers have one adapter, called as the
 * first is. Layers with other paths stay apart, be their codes equal: they may be copies that nobody trained yet.
 */
#include "passes/mended/copied.h"
#include "passes/primal/lora/adapters.h"

static int64_t width(const ebb_graph *g, ebb_value v)
{
    const ebb_type *t = ebb_value_of(g, v)->type;
    return t->rank > 0 ? t->dims[t->rank - 1] : -1;
}

static bool has_same_bytes(const ebb_graph *g, ebb_value a, ebb_value b)
{
    const ebb_tensor *x = ebb_value_of(g, a)->tensor, *y = ebb_value_of(g, b)->tensor;
    return x != NULL && y != NULL && x->data != NULL && y->data != NULL && x->bytes == y->bytes &&
           x->type.dtype == y->type.dtype && ebb_type_same_shape(&x->type, &y->type) &&
           memcmp(x->data, y->data, x->bytes) == 0;
}

/* Codes with what they are decoded by. */
static bool has_same_codes(const ebb_graph *g, const ebb_lora_layer *a, const ebb_lora_layer *b)
{
    const ebb_node_info *m = ebb_node_of(g, a->node), *n = ebb_node_of(g, b->node);
    bool turned;
    if (m->op != n->op || m->in_count != n->in_count ||
        ebb_value_of(g, a->weight)->tensor == NULL || ebb_value_of(g, b->weight)->tensor == NULL ||
        !ebb_is_copy(g, a->weight, b->weight, &turned) || turned)
        return false;
    for (uint32_t i = 2; i < m->in_count; i++)
        if (!ebb_same_value(m->in[i], n->in[i]) && !has_same_bytes(g, m->in[i], n->in[i]))
            return false;
    return true;
}

/* Behind the number of a call: "_1" at the end of a part of a path. */
static const char *behind_number(const char *at)
{
    const char *end = at + (*at == '_');
    while (end > at && *end >= '0' && *end <= '9')
        end++;
    return end > at + 1 && (*end == '.' || *end == '\0') ? end : at;
}

/* "layer.query" and "layer.query_1"; what has no path is told by its codes alone. */
static bool may_be_calls_of_one(const char *a, const char *b)
{
    if (strchr(a, '.') == NULL || strchr(b, '.') == NULL)
        return true;
    for (a = behind_number(a), b = behind_number(b); *a != '\0' && *a == *b;)
        a = behind_number(a + 1), b = behind_number(b + 1);
    return *a == *b;
}

/* "weight_Q4" are the codes of "weight". */
static bool is_rounded_from(const ebb_graph *g, ebb_value codes, ebb_value weight)
{
    static const char *const endings[] = {"_Q2", "_Q4", "_Q8", "_Bnb4", "_DQ_Q4", "_quantized"};
    const char *name = ebb_value_name(g, codes), *of = ebb_value_name(g, weight);
    const size_t length = strlen(of);
    if (strncmp(name, of, length) != 0)
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (strcmp(name + length, endings[i]) == 0)
            return true;
    return false;
}

static bool is_same_module(const ebb_graph *g, const ebb_lora_layer *a, const ebb_lora_layer *b)
{
    if (ebb_same_value(a->weight, b->weight))
        return true;
    if (!a->frozen || width(g, ebb_in(g, a->node, 0)) != width(g, ebb_in(g, b->node, 0)) ||
        width(g, ebb_out(g, a->node, 0)) != width(g, ebb_out(g, b->node, 0)))
        return false;
    if (b->frozen && !may_be_calls_of_one(a->whole.module, b->whole.module))
        return false;
    return b->frozen ? has_same_codes(g, a, b) : is_rounded_from(g, a->stored, b->stored);
}

void ebb_lora_share(const ebb_graph *g, const ebb_lora_layer *before, size_t count,
                    ebb_lora_layer *layer)
{
    layer->shared = layer->weight;
    for (size_t i = 0; i < count; i++) {
        if (!is_same_module(g, &before[i], layer))
            continue;
        layer->shared = before[i].shared;
        layer->whole = before[i].whole;
        layer->part_count = before[i].part_count;
        memcpy(layer->part, before[i].part, sizeof layer->part);
        return;
    }
}
