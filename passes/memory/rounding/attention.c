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
#include "passes/memory/rounding/attention_site.h"
#include "passes/memory/rounding/attention_turn.h"

typedef ebb_attention_site site;

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
            if (kept && !ebb_attention_gives(s, info->out[o]))
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
    if (s->dropout.i != 0)
        ebb_with_draw(b, s->dropout);
}

/* The keys as rows, where nobody else reads what a Transpose made of them. */
static ebb_status turn_key(ebb_edit *e, site *s, ebb_key_turn *turn)
{
    ebb_graph *g = e->g;
    const ebb_value_info *k = ebb_value_of(g, s->k);
    bool turns = !s->k_turned && ebb_key_turn_find(turn, g, s->k, s->dk);
    for (size_t i = 0; i < k->use_count; i++)
        turns = turns && ebb_attention_has(s, k->uses[i].node);
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
    ebb_build b = ebb_edit_build_for(e, before);
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
    EBB_GOT(positions && masks && softmaxes);
    EBB_EACH_NODE(g, n) {
        trains = trains || ebb_node_of(g, n)->phase == EBB_BACKWARD;
        if (ebb_node_of(g, n)->op == EBB_OP_SOFTMAX && !ebb_is_backward(g, n))
            softmaxes[count++] = n;
    }
    for (size_t i = 0; i < count; i++) {
        site s;
        const char *why;
        if (!ebb_attention_find(&s, g, softmaxes[i], trains, &why))
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
