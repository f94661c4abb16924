/* loss-in-place: cross entropy of scores in 16 bits and its gradient at once, over the scores.
 *
 *   before   x = Cast(scores)                                           float32, twice the scores
 *            loss, p = SoftmaxCrossEntropyLoss(x, t)                    float32, over x
 *            dx = SoftmaxCrossEntropyLossGrad(dy, p, t)                 float32, over p
 *            dscores = Cast(dx)
 *   after    loss, dscores = ai.ebb.ScoresCrossEntropy(dy, scores, t)   16 bits, over the scores
 *
 * Of a language model these are its largest tensors: of each token a number for each word.
 *
 * Exact: each element is widened, and rounded at the end, as before; in between it is in a register.
 *
 * Declines where scores are not cast from 16 bits, since then all is in one place already; where
 * log-probabilities or gradients in float32 are read by something else; and where dy is not there yet
 * where the loss is made, as one that depends on what is made of the loss.
 */
#include "exec/weigh/estimate.h"
#include "passes/common.h"

typedef struct site {
    ebb_graph *g;
    ebb_node loss, grad, last; /* last: the cast of the gradient */
    ebb_value scores;
} site;

static bool casts(const ebb_graph *g, ebb_node n, uint8_t to)
{
    return n.i != 0 && ebb_node_of(g, n)->op == EBB_OP_CAST &&
           ebb_value_of(g, ebb_out(g, n, 0))->type->dtype == to;
}

static const char *read_site(site *s, ebb_edit *e, ebb_node loss)
{
    const ebb_graph *g = e->g;
    const ebb_node cast = ebb_value_of(g, ebb_in(g, loss, 0))->producer;
    *s = (site){.g = e->g, .loss = loss};
    if (!casts(g, cast, EBB_F32) || !ebb_is_narrow(ebb_value_of(g, ebb_in(g, cast, 0))->type))
        return "its scores are not cast from 16 bits";
    s->scores = ebb_in(g, cast, 0);
    const char *why = ebb_loss_gradient(g, loss, &s->grad);
    if (why != NULL)
        return why;
    s->last = ebb_only_user(g, ebb_out(g, s->grad, 0));
    if (!casts(g, s->last, ebb_value_of(g, s->scores)->type->dtype))
        return "its gradient is read in float32";
    return NULL;
}

static ebb_status rewrite(ebb_edit *e, const site *s)
{
    ebb_graph *g = e->g;
    const ebb_value in[4] = {ebb_in(g, s->grad, 0), s->scores, ebb_in(g, s->loss, 1),
                             ebb_in(g, s->loss, 2)};
    ebb_value out[2];
    ebb_build b = ebb_edit_build(e, s->loss, EBB_PHASE_NONE);
    b.name = ebb_value_name(g, ebb_out(g, s->loss, 0));
    ebb_with_attrs_of(&b, s->loss);
    ebb_emit_node(&b, EBB_OP_SCORES_CROSS_ENTROPY, in, 4, out, 2, 3);
    EBB_TRY(b.status);
    ebb_keep_name(g, b.last, s->loss);
    EBB_TRY(ebb_edit_replace(e, ebb_out(g, s->last, 0), out[1]));
    EBB_TRY(ebb_edit_replace(e, ebb_out(g, s->loss, 0), out[0]));
    ebb_applied(e);
    return NULL;
}

static ebb_status visit(ebb_edit *e, const uint32_t *at, ebb_node n)
{
    site s;
    const char *reason = read_site(&s, e, n);
    if (reason == NULL) {
        const ebb_node dy = ebb_value_of(e->g, ebb_in(e->g, s.grad, 0))->producer;
        if (dy.i != 0 && at[dy.i] > at[n.i])
            reason = "what its gradient is multiplied by is made behind the loss";
    }
    if (reason != NULL)
        return ebb_declined(e, n, reason);
    ebb_found(e);
    const ebb_value p = ebb_out(e->g, n, 1);
    const double bytes = (double)ebb_stored_bytes(e->g, p); // read and written, half as many
    ebb_offer offer = {.value = p,
                       .saved_bytes = ebb_stored_bytes(e->g, p),
                       .added_ns = ebb_roofline_ns(e->g, 0, bytes) - ebb_node_ns(e->g, s.last) -
                                   ebb_node_ns(e->g, s.grad)};
    return ebb_offered(e, n, &offer) ? rewrite(e, &s) : NULL;
}

static ebb_status run(ebb_edit *e)
{
    const uint32_t *at = ebb_graph_positions(e->g, e->scratch);
    EBB_GOT(at);
    EBB_EACH_NODE(e->g, n)
        if (ebb_node_of(e->g, n)->op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS)
            EBB_TRY(visit(e, at, n));
    return NULL;
}

const ebb_pass ebb_pass_loss_in_place = {
    .name = "loss-in-place",
    .doc = "cross entropy of scores in 16 bits and its gradient at once, over the scores",
    .exactness = EBB_EXACT,
    .run = run,
};
