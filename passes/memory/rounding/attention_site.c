/* attention_site.c: two chains of nodes, matched link by link. */
#include "passes/memory/rounding/attention_site.h"

#include <math.h>

typedef ebb_attention_site site;

static bool add_node(site *s, ebb_node n)
{
    if (n.i == 0 || s->count == EBB_ATTENTION_NODES)
        return false;
    s->nodes[s->count++] = n;
    return true;
}

bool ebb_attention_has(const site *s, ebb_node n)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (ebb_same_node(s->nodes[i], n))
            return true;
    return false;
}

/* ---- the forward chain ---- */

static bool is_last_axis(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    int64_t axis = ebb_attr_int(&attrs, "axis", -1);
    int rank = ebb_value_of(g, ebb_in(g, n, 0))->type->rank;
    return axis == -1 || (rank > 0 && axis == rank - 1);
}

/* Finds the product that v comes from; the nodes on the way into steps, last first. */
static bool find_scores(site *s, const ebb_graph *g, ebb_value v, uint32_t depth)
{
    ebb_node n = ebb_value_of(g, v)->producer;
    ebb_product p;
    if (n.i == 0)
        return false;
    if (ebb_read_product(&p, g, n)) {
        s->scores = v;
        s->step_count = depth;
        return true;
    }
    static const struct {
        ebb_op op;
        uint32_t from, to; /* inputs that may be the scores */
    } kinds[] = {{EBB_OP_ADD, 0, 1}, {EBB_OP_MUL, 0, 1}, {EBB_OP_DIV, 0, 0}, {EBB_OP_WHERE, 1, 2}};
    if (depth == EBB_ATTENTION_STEPS)
        return false;
    s->steps[depth] = n;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (uint32_t i = kinds[k].from; ebb_node_of(g, n)->op == kinds[k].op && i <= kinds[k].to;
             i++)
            if (ebb_type_same_shape(ebb_value_of(g, ebb_in(g, n, i))->type,
                                    ebb_value_of(g, v)->type) &&
                find_scores(s, g, ebb_in(g, n, i), depth + 1))
                return true;
    return false;
}

/* Takes the step from x in; NULL, or why not. */
static const char *read_step(site *s, const ebb_graph *g, ebb_node n, ebb_value x)
{
    bool masked = s->mask.fills || s->mask.bias.i != 0 || s->mask.causal;
    bool first = ebb_same_value(ebb_in(g, n, 0), x);
    ebb_value other = ebb_in(g, n, first ? 1 : 0);
    double factor;
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_MUL:
    case EBB_OP_DIV:
        if (!ebb_scalar_of(g, other, &factor) || factor == 0.0)
            return "its scores are scaled by something that is no constant";
        if (masked)
            return "its scores are scaled after the mask";
        s->scale = ebb_node_of(g, n)->op == EBB_OP_MUL ? s->scale * factor : s->scale / factor;
        return NULL;
    case EBB_OP_ADD:
        return ebb_masking_add(&s->mask, g, other);
    default: // Where
        first = ebb_same_value(ebb_in(g, n, 1), x);
        return ebb_masking_where(&s->mask, g, ebb_in(g, n, 0), first, ebb_in(g, n, first ? 2 : 1));
    }
}

/* The steps from the scores to the softmax. */
static const char *read_steps(site *s, const ebb_graph *g)
{
    ebb_value x = s->scores;
    ebb_product p;
    ebb_node n = ebb_value_of(g, x)->producer;
    (void)ebb_read_product(&p, g, n);
    if (p.turn_a)
        return "its queries are read transposed";
    s->q = p.a;
    s->k = p.b;
    s->k_turned = p.turn_b;
    s->scale = p.alpha;
    if (!add_node(s, n))
        return "its chain is too long";
    for (uint32_t i = s->step_count; i-- > 0;) {
        const char *why = read_step(s, g, s->steps[i], x);
        if (why != NULL)
            return why;
        x = ebb_out(g, s->steps[i], 0);
        if (!add_node(s, s->steps[i]))
            return "its chain is too long";
    }
    return NULL;
}

/* Where(IsNaN(p), 0, p): the guard, with its question. */
static bool read_guard(site *s, const ebb_graph *g, ebb_node question, ebb_node where)
{
    double zero;
    return question.i != 0 && where.i != 0 && ebb_node_of(g, question)->op == EBB_OP_IS_NAN &&
           ebb_node_of(g, where)->op == EBB_OP_WHERE &&
           ebb_same_value(ebb_in(g, where, 0), ebb_out(g, question, 0)) &&
           ebb_same_value(ebb_in(g, where, 2), s->p) &&
           ebb_scalar_of(g, ebb_in(g, where, 1), &zero) && zero == 0.0;
}

/* The node of the forward that alone reads v there, or two of them. */
static uint32_t forward_readers(const ebb_graph *g, ebb_value v, ebb_node reader[2])
{
    const ebb_value_info *info = ebb_value_of(g, v);
    uint32_t count = 0;
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        if (ebb_is_backward(g, n))
            continue;
        if (count < 2)
            reader[count] = n;
        count++;
    }
    return count;
}

/* From the softmax to the product with v. False: this softmax is no attention's. */
static bool find_product(site *s, const ebb_graph *g, const char **why)
{
    ebb_node reader[2] = {EBB_NO_NODE, EBB_NO_NODE};
    ebb_value v = s->p = ebb_out(g, s->softmax, 0);
    ebb_product p;
    uint32_t count = forward_readers(g, v, reader);
    if (count == 2 && ebb_node_of(g, reader[0])->op == EBB_OP_WHERE) {
        ebb_node swap = reader[0];
        reader[0] = reader[1];
        reader[1] = swap;
    }
    if (count == 2 && read_guard(s, g, reader[0], reader[1])) {
        s->not_a_number = reader[0];
        s->guard = reader[1];
        v = ebb_out(g, s->guard, 0);
        count = forward_readers(g, v, reader);
    }
    ebb_op op = count == 1 ? ebb_node_of(g, reader[0])->op : EBB_OP_UNKNOWN;
    if (op == EBB_OP_DROPOUT)
        *why = "its dropout has no key: run train-mode first";
    if (op == EBB_OP_DROPOUT || op == EBB_OP_EBB_DROPOUT || op == EBB_OP_EBB_DROPOUT_PACKED) {
        s->dropout = reader[0];
        v = ebb_out(g, s->dropout, 0);
        count = forward_readers(g, v, reader);
    }
    if (count != 1 || !ebb_read_product(&p, g, reader[0]) || !ebb_same_value(p.a, v))
        return false;
    if (*why == NULL && (p.turn_a || p.turn_b || p.alpha != 1.0))
        *why = "its values are read transposed or scaled";
    s->last = reader[0];
    s->weights = v;
    s->v = p.b;
    s->y = p.out;
    return true;
}

static const char *check_types(const site *s, const ebb_graph *g)
{
    const ebb_type *q = ebb_value_of(g, s->q)->type, *k = ebb_value_of(g, s->k)->type;
    const ebb_type *v = ebb_value_of(g, s->v)->type;
    if (!ebb_type_is_static(q) || !ebb_type_is_static(k) || !ebb_type_is_static(v))
        return "its shapes are not known";
    if (q->rank < 2 || k->rank != q->rank || v->rank != q->rank)
        return "its queries, keys and values differ in rank";
    for (int i = 0; i < q->rank - 2; i++)
        if (k->dims[i] != q->dims[i] || v->dims[i] != q->dims[i])
            return "its queries, keys and values differ in heads";
    if (!ebb_dtype_is_float((ebb_dtype)q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype)
        return "its queries, keys and values are not of one float dtype";
    return NULL;
}

/* ---- the backward chain ---- */

/* The node of the backward among v's readers that has this op, v at this slot; none or several:
 * none. */
static ebb_node backward_reader(const ebb_graph *g, ebb_value v, ebb_op op, uint32_t slot)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    ebb_node found = EBB_NO_NODE;
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        if (!ebb_is_backward(g, n) || ebb_node_of(g, n)->op != op || info->uses[i].slot != slot)
            continue;
        if (found.i != 0)
            return EBB_NO_NODE;
        found = n;
    }
    return found;
}

/* Whether n is the gradient of the site's dropout: with its mask, its bits or its key, and scaled
 * as it scales. */
static bool undoes_dropout(const site *s, const ebb_graph *g, ebb_node n)
{
    if (n.i == 0)
        return false;
    ebb_attrs forward = ebb_node_attrs(g, s->dropout), backward = ebb_node_attrs(g, n);
    double ratio = ebb_attr_float(&forward, "ratio", 0.0), other = -1.0, on = 0.0;
    bool masked = ebb_same_value(ebb_in(g, n, 1), ebb_out(g, s->dropout, 1));
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_DROPOUT_GRAD:
        return masked && ebb_scalar_of(g, ebb_in(g, n, 2), &other) &&
               (float)other == (float)ratio && ebb_scalar_of(g, ebb_in(g, n, 3), &on) && on != 0.0;
    case EBB_OP_MASK_GRAD:
        return masked && ebb_attr_float(&backward, "alpha", 0.0) == 0.0 &&
               (float)ebb_attr_float(&backward, "scale", 1.0) == (float)(1.0 / (1.0 - ratio));
    case EBB_OP_EBB_DROPOUT_SEED_GRAD:
        return ebb_same_value(ebb_in(g, n, 1), ebb_in(g, s->dropout, 1)) &&
               ebb_same_draw(g, n, s->dropout);
    default:
        return false;
    }
}

/* From the gradient of the probabilities back to the product dy v^T. */
static bool climb_to_dy(site *s, const ebb_graph *g, ebb_value d)
{
    ebb_node n = ebb_value_of(g, d)->producer;
    ebb_product p;
    if (s->dropout.i != 0) {
        if (!undoes_dropout(s, g, n) || !add_node(s, n))
            return false;
        d = ebb_in(g, n, 0);
        n = ebb_value_of(g, d)->producer;
    }
    if (!ebb_read_product(&p, g, n) || p.turn_a || !p.turn_b || p.alpha != 1.0 ||
        !ebb_same_value(p.b, s->v) || !add_node(s, n))
        return false;
    s->dy = p.a;
    return true;
}

/* The gradient of the scores' product, from that of the softmax's input through the steps. */
static bool descend_steps(site *s, const ebb_graph *g, ebb_value *d)
{
    for (uint32_t i = 0; i < s->step_count; i++) {
        ebb_node step = s->steps[i];
        ebb_op op = ebb_node_of(g, step)->op;
        if (op == EBB_OP_ADD)
            continue; // passes it on
        ebb_node n = ebb_only_user(g, *d);
        if (n.i == 0 || ebb_node_of(g, n)->op != op || !add_node(s, n))
            return false;
        if (op == EBB_OP_WHERE && !ebb_same_value(ebb_in(g, n, 0), ebb_in(g, step, 0)))
            return false;
        *d = ebb_out(g, n, 0);
    }
    return true;
}

/* dq = dS op(k)^T and dk = dS^T q, or q^T dS where k is [d, t]; all of dS's readers. */
static bool find_dq_and_dk(site *s, const ebb_graph *g, ebb_value ds, double alpha)
{
    const ebb_value_info *info = ebb_value_of(g, ds);
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        ebb_product p;
        if (!ebb_read_product(&p, g, n) || p.alpha != alpha || !add_node(s, n))
            return false;
        bool of_q = ebb_same_value(p.a, ds) && ebb_same_value(p.b, s->k) && !p.turn_a &&
                    p.turn_b == !s->k_turned && info->uses[i].slot == 0;
        bool of_k =
            s->k_turned
                ? ebb_same_value(p.a, ds) && p.turn_a && !p.turn_b && ebb_same_value(p.b, s->q)
                : ebb_same_value(p.b, ds) && p.turn_a && !p.turn_b && ebb_same_value(p.a, s->q);
        if (of_q == of_k || (of_q ? s->dq : s->dk).i != 0)
            return false;
        *(of_q ? &s->dq : &s->dk) = p.out;
    }
    return true;
}

static const char *find_backward(site *s, const ebb_graph *g)
{
    static const char other[] = "its backward is not the one that the gradient pass makes";
    const char *none = NULL;
    ebb_product p;
    const ebb_value kept = s->guard.i != 0 ? ebb_out(g, s->guard, 0) : s->p;
    ebb_node grad = backward_reader(g, kept, EBB_OP_SOFTMAX_GRAD, 1);
    if (grad.i != 0) {
        ebb_value d = ebb_out(g, grad, 0);
        (void)ebb_read_product(&p, g, ebb_value_of(g, s->scores)->producer);
        if (!is_last_axis(g, grad) || !add_node(s, grad) ||
            !climb_to_dy(s, g, ebb_in(g, grad, 0)) || !descend_steps(s, g, &d) ||
            !find_dq_and_dk(s, g, d, p.alpha))
            return other;
    }
    const ebb_value_info *weights = ebb_value_of(g, s->weights);
    for (size_t i = 0; i < weights->use_count; i++) {
        ebb_node n = weights->uses[i].node;
        if (!ebb_is_backward(g, n) || ebb_attention_has(s, n))
            continue;
        if (s->dv.i != 0 || !ebb_read_product(&p, g, n) || weights->uses[i].slot != 0 ||
            !p.turn_a || p.turn_b || p.alpha != 1.0 ||
            (s->dy.i != 0 && !ebb_same_value(p.b, s->dy)) || !add_node(s, n))
            return other;
        s->dy = p.b;
        s->dv = p.out;
    }
    return none;
}

/* ---- the site as a whole ---- */

bool ebb_attention_gives(const site *s, ebb_value v)
{
    return ebb_same_value(v, s->y) || ebb_same_value(v, s->dq) || ebb_same_value(v, s->dk) ||
           ebb_same_value(v, s->dv);
}

/* Nothing outside reads what goes. */
static bool is_closed(const site *s, const ebb_graph *g)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const ebb_node_info *info = ebb_node_of(g, s->nodes[i]);
        for (uint32_t o = 0; o < info->out_count; o++) {
            ebb_value v = info->out[o];
            const ebb_value_info *value = ebb_value_of(g, v);
            if (v.i == 0 || ebb_attention_gives(s, v))
                continue;
            if (ebb_value_is_held(g, v))
                return false;
            for (size_t u = 0; u < value->use_count; u++)
                if (!ebb_attention_has(s, value->uses[u].node))
                    return false;
        }
    }
    return true;
}

/* Whether v is made from a weight: a table of relative positions, say. */
static bool has_weight(const ebb_graph *g, ebb_value v, int depth)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (info->producer.i == 0) {
        int64_t n = 0;
        return (info->flags & EBB_IS_INITIALIZER) != 0 &&
               ebb_dtype_is_float((ebb_dtype)info->type->dtype) &&
               (!ebb_type_elements(info->type, &n) || n > 1);
    }
    const ebb_node_info *node = ebb_node_of(g, info->producer);
    if (depth == 0)
        return true;
    for (uint32_t i = 0; i < node->in_count; i++)
        if (node->in[i].i != 0 && has_weight(g, node->in[i], depth - 1))
            return true;
    return false;
}

bool ebb_attention_find(site *s, const ebb_graph *g, ebb_node softmax, bool trains,
                        const char **why)
{
    *s = (site){.softmax = softmax};
    *why = NULL;
    if (!is_last_axis(g, softmax) || !find_scores(s, g, ebb_in(g, softmax, 0), 0) ||
        !find_product(s, g, why))
        return false;
    if (*why == NULL)
        *why = read_steps(s, g);
    if (*why == NULL)
        *why = check_types(s, g);
    if (*why != NULL)
        return true;
    ebb_node forward[] = {s->softmax, s->not_a_number, s->guard, s->dropout, s->last};
    for (size_t i = 0; i < sizeof forward / sizeof forward[0]; i++)
        if (forward[i].i != 0)
            (void)add_node(s, forward[i]);
    *why = find_backward(s, g);
    ebb_value bias = s->mask.bias;
    if (*why == NULL && !is_closed(s, g))
        *why = "something else reads its scores, its probabilities or their gradients";
    else if (*why == NULL && !trains && bias.i != 0 && ebb_value_of(g, bias)->producer.i != 0 &&
             has_weight(g, bias, 32))
        *why = "its bias seems to be trained";
    return true;
}
