/* attention: scores, mask, softmax, dropout and product become one node, which keeps two numbers a
 * row instead of the probabilities; its gradient computes them again, some rows at a time.
 *
 *   before   S = q k^T;  P = Softmax(S + mask);  D, m = Dropout(P, key);  y = D v
 *            dv = D^T dy;  dP = DropoutGrad(dy v^T, m);  dS = SoftmaxGrad(dP, P);  dq = dS k ...
 *            P, D and m are kept: 72 bits for each of heads s t elements
 *   after    y, max, sum = ai.ebb.AttentionDropout(q, k, v, mask, key)
 *            dq, dk, dv = ai.ebb.AttentionDropoutGrad(dy, q, k, v, mask, max, sum, key)
 *            and in 16 bits y, where something else of the backward reads it (ops/attention.c);
 *            k as [..., t, d], where a Transpose had turned it for the product (attention_turn.h)
 *
 * In a finished step the forward chain is found from its Softmax, then the backward chain that the
 * gradient pass makes of it, node by node, and both go together; what reads anything in between
 * keeps the site as it is. In a graph without a backward the forward chain alone is replaced, and
 * the operator's own rule makes the gradient.
 *
 * Rounding: the same products, exponentials and sums; the draws of dropout are the same bits. One
 * difference is meant: after Where(IsNaN(P), 0, P) the chain's gradient is NaN in rows that are all
 * masked with -inf; here it is 0, as the constant 0 has.
 *
 * Declines where an intermediate is read by others (a trained bias needs the gradient of the
 * scores), where a dropout has no key, where K and V have fewer heads than Q by broadcasting, and
 * where the mask is more than one fill, one condition and one bias can say.
 *
 * Papers: Rabe and Staats, "Self-attention does not need O(n^2) memory", 2021; Dao et al.,
 * "FlashAttention: fast and memory-efficient exact attention with IO-awareness", NeurIPS 2022.
 */
#include <math.h>

#include "exec/weigh/estimate.h"
#include "passes/memory/rounding/attention_mask.h"
#include "passes/memory/rounding/attention_turn.h"
#include "passes/passes.h"

enum { SITE_NODES = 32, DEPTH = 6 };

typedef struct site {
    ebb_node nodes[SITE_NODES]; /* all that go */
    uint32_t count;
    ebb_node softmax, last;                   /* last: the product with v */
    ebb_value q, k, v, y, scores, p, weights; /* weights: what v is multiplied with */
    bool k_turned;                            /* k is [..., t, d] */
    double scale;
    ebb_masking mask;
    ebb_node steps[DEPTH]; /* from the scores' product to the softmax, the product excluded */
    uint32_t step_count;
    ebb_node not_a_number, guard, dropout;
    ebb_node first_backward;
    ebb_value dy, dq, dk, dv;
} site;

/* ---- a product ---- */

typedef struct product { /* alpha op(a) op(b) */
    ebb_value a, b, out;
    bool turn_a, turn_b;
    double alpha;
} product;

static bool read_product(product *p, const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    ebb_attrs attrs = ebb_node_attrs(g, n);
    *p = (product){ebb_in(g, n, 0), ebb_in(g, n, 1), ebb_out(g, n, 0), false, false, 1.0};
    switch (n.i == 0 ? EBB_OP_UNKNOWN : info->op) {
    case EBB_OP_MATMUL:
        return true;
    case EBB_OP_FUSED_MATMUL:
        if (ebb_attr_int(&attrs, "transBatchA", 0) != 0 ||
            ebb_attr_int(&attrs, "transBatchB", 0) != 0)
            return false;
        break;
    case EBB_OP_GEMM:
        if (ebb_in(g, n, 2).i != 0)
            return false;
        break;
    default:
        return false;
    }
    p->turn_a = ebb_attr_int(&attrs, "transA", 0) != 0;
    p->turn_b = ebb_attr_int(&attrs, "transB", 0) != 0;
    p->alpha = ebb_attr_float(&attrs, "alpha", 1.0);
    return true;
}

static bool add_node(site *s, ebb_node n)
{
    if (n.i == 0 || s->count == SITE_NODES)
        return false;
    s->nodes[s->count++] = n;
    return true;
}

static bool is_member(const site *s, ebb_node n)
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
    product p;
    if (n.i == 0)
        return false;
    if (read_product(&p, g, n)) {
        s->scores = v;
        s->step_count = depth;
        return true;
    }
    static const struct {
        ebb_op op;
        uint32_t from, to; /* inputs that may be the scores */
    } kinds[] = {{EBB_OP_ADD, 0, 1}, {EBB_OP_MUL, 0, 1}, {EBB_OP_DIV, 0, 0}, {EBB_OP_WHERE, 1, 2}};
    if (depth == DEPTH)
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
    product p;
    ebb_node n = ebb_value_of(g, x)->producer;
    (void)read_product(&p, g, n);
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
    product p;
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
    if (count != 1 || !read_product(&p, g, reader[0]) || !ebb_same_value(p.a, v))
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
               ebb_attr_float(&backward, "ratio", -1.0) == ratio &&
               ebb_attr_int(&backward, "stream", 0) == ebb_attr_int(&forward, "stream", 0);
    default:
        return false;
    }
}

/* From the gradient of the probabilities back to the product dy v^T. */
static bool climb_to_dy(site *s, const ebb_graph *g, ebb_value d)
{
    ebb_node n = ebb_value_of(g, d)->producer;
    double zero;
    product p;
    if (s->guard.i != 0) {
        if (ebb_producer_op(g, d) != EBB_OP_WHERE ||
            !ebb_same_value(ebb_in(g, n, 0), ebb_out(g, s->not_a_number, 0)) ||
            !ebb_scalar_of(g, ebb_in(g, n, 1), &zero) || zero != 0.0 || !add_node(s, n))
            return false;
        d = ebb_in(g, n, 2);
        n = ebb_value_of(g, d)->producer;
    }
    if (s->dropout.i != 0) {
        if (!undoes_dropout(s, g, n) || !add_node(s, n))
            return false;
        d = ebb_in(g, n, 0);
        n = ebb_value_of(g, d)->producer;
    }
    if (!read_product(&p, g, n) || p.turn_a || !p.turn_b || p.alpha != 1.0 ||
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
        product p;
        if (!read_product(&p, g, n) || p.alpha != alpha || !add_node(s, n))
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
    product p;
    ebb_node grad = backward_reader(g, s->p, EBB_OP_SOFTMAX_GRAD, 1);
    if (grad.i != 0) {
        ebb_value d = ebb_out(g, grad, 0);
        (void)read_product(&p, g, ebb_value_of(g, s->scores)->producer);
        if (!is_last_axis(g, grad) || !add_node(s, grad) ||
            !climb_to_dy(s, g, ebb_in(g, grad, 0)) || !descend_steps(s, g, &d) ||
            !find_dq_and_dk(s, g, d, p.alpha))
            return other;
    }
    const ebb_value_info *weights = ebb_value_of(g, s->weights);
    for (size_t i = 0; i < weights->use_count; i++) {
        ebb_node n = weights->uses[i].node;
        if (!ebb_is_backward(g, n) || is_member(s, n))
            continue;
        if (s->dv.i != 0 || !read_product(&p, g, n) || weights->uses[i].slot != 0 || !p.turn_a ||
            p.turn_b || p.alpha != 1.0 || (s->dy.i != 0 && !ebb_same_value(p.b, s->dy)) ||
            !add_node(s, n))
            return other;
        s->dy = p.b;
        s->dv = p.out;
    }
    return none;
}

/* ---- the site as a whole ---- */

static bool is_boundary(const site *s, ebb_value v)
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
            if (v.i == 0 || is_boundary(s, v))
                continue;
            if (ebb_value_is_held(g, v))
                return false;
            for (size_t u = 0; u < value->use_count; u++)
                if (!is_member(s, value->uses[u].node))
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

/* The site of this softmax. False: none; else *why is NULL or the reason to leave it. */
static bool find_site(site *s, const ebb_graph *g, ebb_node softmax, bool trains, const char **why)
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

/* ---- what it is worth ---- */

static double bytes_of(const ebb_graph *g, ebb_value v)
{
    size_t bytes = 0;
    return v.i != 0 && ebb_type_bytes(ebb_value_of(g, v)->type, &bytes) ? (double)bytes : 0.0;
}

static ebb_offer offer_of(const site *s, const ebb_graph *g)
{
    const ebb_type *q = ebb_value_of(g, s->q)->type, *v = ebb_value_of(g, s->v)->type;
    ebb_dtype dtype = (ebb_dtype)q->dtype;
    double scores = bytes_of(g, s->scores), size = (double)ebb_dtype_bits(dtype) / 8;
    double d = (double)q->dims[q->rank - 1], e = (double)v->dims[v->rank - 1];
    double t = (double)v->dims[v->rank - 2], saved = 0, before = 0;
    double operands = bytes_of(g, s->q) + bytes_of(g, s->k) + bytes_of(g, s->v);
    bool back = s->dy.i != 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const ebb_node_info *info = ebb_node_of(g, s->nodes[i]);
        before += ebb_node_ns(g, s->nodes[i]);
        if (ebb_is_backward(g, s->nodes[i]))
            continue;
        for (uint32_t o = 0; o < info->out_count; o++) {
            const ebb_value_info *out = ebb_value_of(g, info->out[o]);
            bool kept = false;
            for (size_t u = 0; info->out[o].i != 0 && u < out->use_count; u++)
                kept = kept || ebb_is_backward(g, out->uses[u].node);
            if (kept && !is_boundary(s, info->out[o]))
                saved += bytes_of(g, info->out[o]);
        }
    }
    double after =
        ebb_product_ns(g, dtype, 2.0 * scores / size * (d + e), operands + bytes_of(g, s->y));
    if (back)
        after +=
            ebb_product_ns(g, dtype, 2.0 * scores / size * (3.0 * d + 2.0 * e), 2.0 * operands);
    if (saved > 0)
        saved -= 2.0 * scores / (t > 0 ? t : 1.0);
    return (ebb_offer){.value = s->p, .saved_bytes = (int64_t)saved, .added_ns = after - before};
}

/* ---- rewriting ---- */

static void set_attributes(ebb_build *b, const site *s, const ebb_graph *g)
{
    int64_t perm[EBB_MAX_RANK];
    int rank = ebb_value_of(g, s->k)->type->rank;
    for (int i = 0; i < rank; i++)
        perm[i] = s->k_turned && i >= rank - 2 ? 2 * rank - 3 - i : i;
    ebb_with_ints(b, "k_perm", perm, (uint32_t)rank);
    if (s->scale != 1.0)
        ebb_with_float(b, "scale", s->scale);
    if (s->mask.causal)
        ebb_with_int(b, "causal", 1);
    if (s->mask.fills && !(isinf(s->mask.fill) && s->mask.fill < 0))
        ebb_with_float(b, "fill", s->mask.fill);
    if (s->mask.fills && s->mask.replace)
        ebb_with_int(b, "replace", 1);
    if (s->guard.i != 0)
        ebb_with_int(b, "guard", 1);
    if (s->dropout.i != 0) {
        ebb_attrs attrs = ebb_node_attrs(g, s->dropout);
        ebb_with_float(b, "ratio", ebb_attr_float(&attrs, "ratio", 0.0));
        ebb_with_int(b, "stream", ebb_attr_int(&attrs, "stream", 0));
    }
}

/* The keys as rows, where nobody else reads what a Transpose made of them. */
static ebb_status turn_key(ebb_edit *e, site *s, ebb_key_turn *turn)
{
    ebb_graph *g = e->g;
    const ebb_value_info *k = ebb_value_of(g, s->k);
    bool turns = !s->k_turned && ebb_key_turn_find(turn, g, s->k, s->dk);
    for (size_t i = 0; i < k->use_count; i++)
        turns = turns && is_member(s, k->uses[i].node);
    if (!turns) {
        turn->backward = EBB_NO_NODE;
        return NULL;
    }
    ebb_build b = ebb_edit_build(e, s->last, EBB_PHASE_NONE);
    b.name = ebb_text(g, ebb_node_of(g, turn->forward)->name);
    s->k = ebb_key_turn_emit(&b, g, turn);
    s->k_turned = true;
    return b.status;
}

static ebb_status put_backward(ebb_edit *e, const site *s, ebb_node forward, ebb_node before,
                               const ebb_key_turn *turn)
{
    ebb_value old[3] = {s->dq, s->dk, s->dv}, made[3];
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < 3; i++)
        wanted |= old[i].i != 0 ? UINT32_C(1) << i : 0;
    ebb_build b = ebb_edit_build(e, before, EBB_PHASE_NONE);
    b.name = ebb_text(e->g, ebb_node_of(e->g, before)->name);
    ebb_emit_attention_grad(&b, forward, s->dy, s->y, wanted, made);
    if (turn->backward.i != 0) {
        old[1] = ebb_out(e->g, turn->backward, 0);
        b.name = ebb_text(e->g, ebb_node_of(e->g, turn->backward)->name);
        made[1] = ebb_key_turn_back(&b, turn, made[1]);
    }
    EBB_TRY(b.status);
    for (uint32_t i = 0; i < 3; i++)
        if (old[i].i != 0)
            EBB_TRY(ebb_edit_replace(e, old[i], made[i]));
    if (turn->backward.i != 0)
        ebb_edit_remove(e, turn->backward);
    return NULL;
}

/* The first of the site's backward nodes: all of them read dy, or come after one that does. */
static ebb_node first_backward(const site *s, const ebb_graph *g, const uint32_t *positions)
{
    ebb_node first = EBB_NO_NODE;
    for (uint32_t i = 0; i < s->count; i++)
        if (ebb_is_backward(g, s->nodes[i]) &&
            (first.i == 0 || positions[s->nodes[i].i] < positions[first.i]))
            first = s->nodes[i];
    return first;
}

static ebb_status rewrite(ebb_edit *e, site *s, const uint32_t *positions, ebb_value *masks)
{
    ebb_graph *g = e->g;
    bool drops = s->dropout.i != 0, back = s->dy.i != 0;
    ebb_value keep, made[3];
    ebb_key_turn turn;
    ebb_node before = first_backward(s, g, positions);
    EBB_TRY(turn_key(e, s, &turn));
    EBB_TRY(ebb_masking_keep(&keep, &s->mask, e, s->last, masks));
    ebb_build b = ebb_edit_build(e, s->last, EBB_PHASE_NONE);
    b.name = ebb_text(g, ebb_node_of(g, s->softmax)->name);
    ebb_value bias = s->mask.bias.i != 0 ? s->mask.bias : ebb_const_like(&b, s->q, 0.0);
    const ebb_value in[6] = {s->q, s->k, s->v,
                             keep, bias, drops ? ebb_in(g, s->dropout, 1) : EBB_NO_VALUE};
    set_attributes(&b, s, g);
    ebb_emit_node(&b, drops ? EBB_OP_EBB_ATTENTION_DROPOUT : EBB_OP_EBB_ATTENTION, in,
                  drops ? 6 : 5, made, back ? 3 : 1, back ? 7 : 1);
    EBB_TRY(b.status);
    if (back)
        EBB_TRY(put_backward(e, s, b.last, before, &turn));
    EBB_TRY(ebb_edit_replace(e, s->y, made[0]));
    for (uint32_t i = s->count; i-- > 0;)
        ebb_edit_remove(e, s->nodes[i]);
    ebb_applied(e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    const uint32_t *positions = ebb_graph_positions(g, e->scratch);
    ebb_value *masks = EBB_SCRATCH(e, ebb_value, g->value_count);
    ebb_node *softmaxes = EBB_SCRATCH(e, ebb_node, g->node_count);
    size_t count = 0;
    bool trains = false;
    if (positions == NULL || masks == NULL || softmaxes == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(g, n) {
        trains = trains || ebb_node_of(g, n)->phase == EBB_BACKWARD;
        if (ebb_node_of(g, n)->op == EBB_OP_SOFTMAX && !ebb_is_backward(g, n))
            softmaxes[count++] = n;
    }
    for (size_t i = 0; i < count; i++) {
        site s;
        const char *why;
        if (!find_site(&s, g, softmaxes[i], trains, &why))
            continue;
        if (why != NULL) {
            EBB_TRY(ebb_declined(e, softmaxes[i], why));
            continue;
        }
        ebb_offer offer = offer_of(&s, g);
        ebb_found(e);
        if (ebb_offered(e, softmaxes[i], &offer))
            EBB_TRY(rewrite(e, &s, positions, masks));
    }
    return NULL;
}

const ebb_pass ebb_pass_attention = {
    .name = "attention",
    .doc = "attention as one node that keeps two numbers a row instead of the probabilities",
    .paper = "Rabe and Staats, 2021; Dao et al., FlashAttention, NeurIPS 2022",
    .exactness = EBB_ROUNDING,
    .run = run,
};
