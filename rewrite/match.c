/* match.c: patterns: a rule's node list compiled, and fitted onto a graph from its root upwards.
 *
 * The nodes are visited last to first. Each stands before its users, so when it is visited one of
 * its outputs is bound already, and the value's producer is the only node that it can be. Where
 * inputs may be exchanged, the second order is tried after all that follows from the first has
 * failed.
 */
#include "rewrite/match.h"

#include <math.h>

enum { NO_NAME = EBB_PATTERN_NAMES };

/* ---- compile ---- */

static ebb_status name_index(ebb_pattern *p, const ebb_text_operand *operand, uint8_t *index)
{
    *index = NO_NAME;
    if (operand->name == NULL || operand->name[0] == '\0')
        return NULL;
    for (uint32_t i = 0; i < p->name_count; i++)
        if (strcmp(p->names[i], operand->name) == 0) {
            *index = (uint8_t)i;
            return NULL;
        }
    if (p->name_count == EBB_PATTERN_NAMES)
        return ebb_error(EBB_USAGE, "a rule names more than %d values", (int)EBB_PATTERN_NAMES);
    *index = (uint8_t)p->name_count;
    p->names[p->name_count++] = operand->name;
    return NULL;
}

static ebb_status index_operands(ebb_pattern *p, uint8_t **list, const ebb_text_operand *operands,
                                 size_t count, ebb_arena *arena)
{
    *list = EBB_NEW(arena, uint8_t, count);
    EBB_GOT(*list);
    for (size_t i = 0; i < count; i++)
        EBB_TRY(name_index(p, &operands[i], &(*list)[i]));
    return NULL;
}

ebb_status ebb_pattern_read(ebb_pattern *p, const char *text, ebb_arena *arena)
{
    ebb_text_reader r;
    memset(p, 0, sizeof *p);
    EBB_TRY(ebb_text_start(&r, text, arena));
    r.numbers = true;
    while (r.token != EBB_TOKEN_END) {
        uint32_t k = p->node_count;
        if (k == EBB_PATTERN_NODES)
            return ebb_error(EBB_USAGE, "a rule has more than %d nodes", (int)EBB_PATTERN_NODES);
        ebb_text_node *node = &p->nodes[k];
        EBB_TRY(ebb_text_node_read(&r, node));
        EBB_TRY(index_operands(p, &p->in[k], node->in, node->in_count, arena));
        EBB_TRY(index_operands(p, &p->out[k], node->out, node->out_count, arena));
        p->node_count++;
    }
    return NULL;
}

static bool reads(const ebb_pattern *p, uint32_t k, uint8_t name)
{
    for (size_t i = 0; i < p->nodes[k].in_count; i++)
        if (p->in[k][i] == name)
            return true;
    return false;
}

static bool is_read_after(const ebb_pattern *p, uint32_t k)
{
    for (size_t i = 0; i < p->nodes[k].out_count; i++)
        for (uint32_t later = k + 1; p->out[k][i] != NO_NAME && later < p->node_count; later++)
            if (reads(p, later, p->out[k][i]))
                return true;
    return false;
}

ebb_status ebb_pattern_check(const ebb_pattern *p)
{
    if (p->node_count == 0)
        return ebb_error(EBB_USAGE, "a rule has no nodes");
    for (uint32_t k = 0; k + 1 < p->node_count; k++)
        if (!is_read_after(p, k))
            return ebb_error(EBB_USAGE, "node %s of a rule is read by no later one",
                             p->nodes[k].op_name);
    const ebb_text_node *root = &p->nodes[p->node_count - 1];
    if (root->out_count == 0 || p->out[p->node_count - 1][0] == NO_NAME)
        return ebb_error(EBB_USAGE, "the last node of a rule, %s, has no output", root->op_name);
    return NULL;
}

/* ---- what fits what ---- */

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

/* One element, and no dimensions that would broadcast the other operand to a higher rank. */
static bool is_number(const ebb_graph *g, ebb_value v, double number)
{
    const ebb_tensor *t = v.i == 0 ? NULL : ebb_value_constant(g, v);
    int64_t count;
    if (t == NULL || t->type.rank > 1 || !ebb_type_elements(&t->type, &count) || count != 1)
        return false;
    ebb_dtype dtype = (ebb_dtype)t->type.dtype;
    if (!ebb_dtype_is_float(dtype) && !ebb_dtype_is_integer(dtype))
        return false;
    return near(ebb_tensor_double(t, 0), number);
}

static bool same_ints(const ebb_attr *a, const ebb_attr *b)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (a->ints[i] != b->ints[i])
            return false;
    return true;
}

static bool same_attr(const ebb_attr *want, const ebb_attr *have)
{
    if (have == NULL || have->type != want->type || have->ref != NULL || want->ref != NULL)
        return false;
    switch (want->type) {
    case EBB_ATTR_INT:
        return want->i == have->i;
    case EBB_ATTR_FLOAT:
        return near(want->f, have->f);
    case EBB_ATTR_STRING:
        return want->s_bytes == have->s_bytes && memcmp(want->s, have->s, want->s_bytes) == 0;
    case EBB_ATTR_INTS:
        return want->count == have->count && same_ints(want, have);
    case EBB_ATTR_FLOATS:
        for (uint32_t i = 0; want->count == have->count && i < want->count; i++)
            if (!near((double)want->floats[i], (double)have->floats[i]))
                return false;
        return want->count == have->count;
    default:
        return false;
    }
}

static const char *plain_domain(const char *domain)
{
    return strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

/* Operator, attributes and counts. Inputs beyond the pattern's are let through, but not where the
 * operator commutes: Sum(a, b) is not Sum(a, b, c). */
static bool node_could_be(const ebb_text_node *want, const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (info->dead || strcmp(ebb_text(g, info->op_name), want->op_name) != 0 ||
        strcmp(plain_domain(ebb_text(g, info->domain)), plain_domain(want->domain)) != 0)
        return false;
    if (info->in_count > want->in_count && ebb_op_has(info->op, EBB_COMMUTES))
        return false;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    for (size_t i = 0; i < want->attr_count; i++)
        if (!same_attr(&want->attr[i], ebb_attr_find(&attrs, want->attr[i].name)))
            return false;
    return true;
}

/* ---- fit ---- */

typedef struct search {
    const ebb_pattern *p;
    const ebb_graph *g;
    ebb_binding_set set;
} search;

static bool bind(search *s, uint8_t name, ebb_value v)
{
    if (v.i == 0)
        return false;
    if (s->set.values[name].i == 0)
        s->set.values[name] = v;
    return ebb_same_value(s->set.values[name], v);
}

static bool bind_outputs(search *s, uint32_t k, ebb_node n)
{
    for (uint32_t i = 0; i < s->p->nodes[k].out_count; i++)
        if (s->p->out[k][i] != NO_NAME && !bind(s, s->p->out[k][i], ebb_out(s->g, n, i)))
            return false;
    return true;
}

static bool bind_inputs(search *s, uint32_t k, ebb_node n, bool exchanged)
{
    for (uint32_t i = 0; i < s->p->nodes[k].in_count; i++) {
        const ebb_text_operand *want = &s->p->nodes[k].in[i];
        ebb_value v = ebb_in(s->g, n, exchanged && i < 2 ? 1 - i : i);
        if (want->name == NULL          ? !is_number(s->g, v, want->number)
            : s->p->in[k][i] == NO_NAME ? v.i != 0
                                        : !bind(s, s->p->in[k][i], v))
            return false;
    }
    return true;
}

/* The graph node that pattern node k must be: the producer of an output that is bound. */
static ebb_node node_for(const search *s, uint32_t k)
{
    for (size_t i = 0; i < s->p->nodes[k].out_count; i++) {
        uint8_t name = s->p->out[k][i];
        if (name != NO_NAME && s->set.values[name].i != 0)
            return ebb_value_of(s->g, s->set.values[name])->producer;
    }
    return EBB_NO_NODE;
}

/* Fits pattern nodes k, k-1 ... 0, node k onto n. At most EBB_PATTERN_NODES deep. */
static bool fit_from(search *s, uint32_t k, ebb_node n)
{
    const ebb_text_node *want = &s->p->nodes[k];
    if (n.i == 0 || !node_could_be(want, s->g, n))
        return false;
    bool commutes = want->in_count == 2 && ebb_op_has(ebb_node_of(s->g, n)->op, EBB_COMMUTES);
    ebb_binding_set before = s->set;
    for (int order = 0; order < (commutes ? 2 : 1); order++) {
        s->set = before;
        s->set.nodes[k] = n;
        if (!bind_outputs(s, k, n) || !bind_inputs(s, k, n, order == 1))
            continue;
        if (k == 0 || fit_from(s, k - 1, node_for(s, k - 1)))
            return true;
    }
    s->set = before;
    return false;
}

bool ebb_pattern_fits(const ebb_pattern *p, const ebb_graph *g, ebb_node n, ebb_binding_set *found)
{
    search s = {.p = p, .g = g};
    if (!fit_from(&s, p->node_count - 1, n))
        return false;
    *found = s.set;
    return true;
}

/* ---- whether what matched may go ---- */

static bool is_matched(const ebb_pattern *p, const ebb_binding_set *found, ebb_node n)
{
    for (uint32_t k = 0; k < p->node_count; k++)
        if (ebb_same_node(found->nodes[k], n))
            return true;
    return false;
}

static const char *value_held(const ebb_pattern *p, const ebb_graph *g,
                              const ebb_binding_set *found, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if ((info->flags & EBB_IS_OUTPUT) != 0)
        return "a value inside the pattern is an output of the graph";
    bool outside = ebb_value_is_held(g, v);
    for (size_t i = 0; i < info->use_count; i++)
        outside |= !is_matched(p, found, info->uses[i].node);
    return outside ? "a value inside the pattern is read outside of it" : NULL;
}

const char *ebb_pattern_held(const ebb_pattern *p, const ebb_graph *g, const ebb_binding_set *found)
{
    for (uint32_t k = 0; k < p->node_count; k++) {
        const ebb_node_info *info = ebb_node_of(g, found->nodes[k]);
        bool root = k + 1 == p->node_count;
        for (uint32_t i = root ? 1 : 0; i < info->out_count; i++) {
            const char *reason = info->out[i].i == 0 ? NULL : value_held(p, g, found, info->out[i]);
            if (reason != NULL)
                return reason;
        }
    }
    return NULL;
}
