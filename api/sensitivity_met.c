/* sensitivity_met.c: from the readers of a saved tensor to where gradients come in. */
#include "api/sensitivity_met.h"

#include <ctype.h>

#include "passes/memory/sign.h"

/* "x_grad", "x_grad_2": of a value x that the forward makes. */
static ebb_status is_named_gradient(ebb_meetings *s, ebb_value v, bool *is)
{
    const ebb_graph *g = s->g;
    char *name = ebb_arena_strdup(s->arena, ebb_value_name(g, v));
    *is = false;
    EBB_GOT(name);
    size_t length = strlen(name), end = length;
    while (end > 0 && isdigit((unsigned char)name[end - 1]))
        end--;
    if (end < length && end > 0 && name[end - 1] == '_')
        name[length = end - 1] = '\0';
    if (length <= 5 || strcmp(name + length - 5, "_grad") != 0)
        return NULL;
    name[length - 5] = '\0';
    ebb_value of = ebb_value_find(g, name);
    *is = of.i != 0 && s->saves->forward[of.i];
    return NULL;
}

/* By value id: gradients, and what the backward makes of them; not what it computes again. */
ebb_status ebb_meetings_init(ebb_meetings *s)
{
    const ebb_graph *g = s->g;
    bool *is = s->gradient = EBB_NEW(s->arena, bool, g->value_count);
    EBB_GOT(is);
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        bool of_one = false;
        if (info->phase != EBB_BACKWARD)
            continue;
        for (uint32_t i = 0; i < info->in_count; i++)
            of_one = of_one || is[info->in[i].i];
        for (uint32_t i = 0; i < info->out_count; i++) {
            bool named = of_one;
            if (info->out[i].i != 0 && !named)
                EBB_TRY(is_named_gradient(s, info->out[i], &named));
            is[info->out[i].i] = named && info->out[i].i != 0;
        }
    }
    return NULL;
}

static ebb_status meet(ebb_meetings *s, ebb_met *m, ebb_value v)
{
    const ebb_graph *g = s->g;
    v = s->saves->root[v.i];
    const ebb_value_info *info = ebb_value_of(g, v);
    if (info->producer.i == 0 || !ebb_dtype_is_float((ebb_dtype)info->type->dtype))
        return NULL;
    for (size_t i = 0; i < m->count; i++)
        if (ebb_same_value(m->list[i], v))
            return NULL;
    EBB_GOT(ebb_arena_grow(s->arena, &m->list, m->count, &m->capacity, sizeof *m->list));
    m->list[m->count++] = v;
    return NULL;
}

typedef struct walk {
    bool *seen; /* by node id */
    ebb_node *stack;
    size_t height;
} walk;

static void push(walk *w, const ebb_graph *g, ebb_node n)
{
    if (w->seen[n.i] || ebb_node_of(g, n)->phase != EBB_BACKWARD)
        return;
    w->seen[n.i] = true;
    w->stack[w->height++] = n;
}

/* The gradient of the tensor itself, or a part of it, where n makes that: "x_grad", "x_grad_1". */
static ebb_value own_gradient(const ebb_meetings *s, const ebb_met *m, ebb_node n)
{
    const ebb_graph *g = s->g;
    size_t length = strlen(m->own);
    for (uint32_t i = 0; i < ebb_node_of(g, n)->out_count; i++) {
        const char *name = ebb_value_name(g, ebb_out(g, n, i));
        if (strncmp(name, m->own, length) == 0 &&
            (name[length] == '\0' ||
             (name[length] == '_' &&
              name[length + 1 + strspn(name + length + 1, "0123456789")] == '\0')))
            return ebb_out(g, n, i);
    }
    return EBB_NO_VALUE;
}

/* From a reader on, through what is made of the tensor alone, to where gradients come in. */
static ebb_status follow(ebb_meetings *s, ebb_met *m, walk *w)
{
    const ebb_graph *g = s->g;
    while (w->height > 0) {
        ebb_node n = w->stack[--w->height];
        const ebb_node_info *info = ebb_node_of(g, n);
        ebb_value own = own_gradient(s, m, n);
        bool met = own.i != 0;
        if (met)
            EBB_TRY(meet(s, m, own));
        for (uint32_t i = 0; i < info->in_count && own.i == 0; i++)
            if (s->gradient[info->in[i].i]) {
                met = true;
                EBB_TRY(meet(s, m, info->in[i]));
            }
        for (uint32_t i = 0; i < info->out_count && !met; i++) {
            const ebb_value_info *out = ebb_value_of(g, info->out[i]);
            for (size_t k = 0; info->out[i].i != 0 && k < out->use_count; k++)
                push(w, g, out->uses[k].node);
        }
    }
    return NULL;
}

ebb_status ebb_met_find(ebb_met *m, ebb_meetings *s, const ebb_code_site *site, const char *name)
{
    const ebb_graph *g = s->g;
    ebb_sign_question q;
    walk w = {.seen = EBB_NEW(s->arena, bool, g->node_count),
              .stack = EBB_NEW(s->arena, ebb_node, g->node_count)};
    EBB_GOT(w.seen && w.stack);
    for (uint32_t i = 0; i < site->count; i++)
        if (!ebb_asks_sign(g, site->reads[i], &q)) // that is answered by a mask, exactly
            push(&w, g, site->reads[i].node);
    m->own = ebb_arena_printf(s->arena, "%s_grad", name);
    EBB_GOT(m->own);
    EBB_TRY(follow(s, m, &w));
    ebb_value v = ebb_value_find(g, m->own);
    if (m->count == 0 && v.i != 0)
        EBB_TRY(meet(s, m, v));
    return NULL;
}
