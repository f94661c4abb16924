/* sign-mask: the backward of a ReLU asks only "was it positive?", so keep that bit.
 *
 *   before   y = Relu(x)                      dx = ReluGrad(dy, y)   kept: y, 32 bits an element
 *   after    y = Relu(x), m = PackSign(y)     dx = MaskGrad(dy, m)   kept: m, 1 bit
 *
 *   before   y = PRelu(x, a)                  on = Greater(x, 0)  dx = Where(on, dy, dy a)
 *   after    y = PRelu(x, a), m = PackSign(x) on = UnpackBits(m)  dx = Where(on, dy, dy a)
 *
 * The same for Clip (was it strictly inside the bounds?), LeakyRelu (dx = dy or alpha dy) and
 * ThresholdedRelu, and for any comparison of a value of the forward with a constant that the
 * backward makes. Gradients that read the same value with the same bounds share one mask.
 *
 *   before   dx = ReluGrad(dy, y)             y is kept for this alone, x is kept anyway
 *   after    dx = ReluGrad(dy, x)             no bit at all
 *
 * Exact: the comparison is made on the same numbers, only earlier; and x > 0 where Relu(x) > 0.
 *
 * Declines where the backward reads the value, or a view of it, for another reason, or where it
 * stays to the end of the step anyway: it would live on, and the mask would be pure cost. So the
 * slope of a PRelu must not be trained: its gradient needs x itself.
 *
 * Paper: Jain et al., "Gist: efficient data encoding for deep neural network training", ISCA 2018.
 */
#include "exec/weigh/estimate.h"
#include "passes/common.h"
#include "passes/memory/sign.h"

typedef ebb_sign_question question;

typedef struct state {
    ebb_edit *e;
    ebb_saves saves;
    question *list;
    size_t count;
    uint32_t *asked; /* by root: questions about it */
    int8_t *taken;   /* by root: 1: they get masks, -1: not, 0: not yet decided */
} state;

/* Bytes of v and of its mask; 0 where its size is not known. */
static void sizes(const ebb_graph *g, ebb_value v, int64_t *bytes, int64_t *mask)
{
    int64_t elements = 0;
    *bytes = ebb_stored_bytes(g, v);
    *mask =
        ebb_type_elements(ebb_value_of(g, v)->type, &elements) ? ebb_stored_bits(elements, 1) : 0;
}

/* What masks for all questions about `root` would change. False where a size is not known. */
static bool weigh(ebb_offer *offer, const state *s, ebb_value root)
{
    const ebb_graph *g = s->e->g;
    int64_t bytes, mask;
    sizes(g, root, &bytes, &mask);
    if (bytes == 0)
        return false;
    *offer = (ebb_offer){.value = root, .saved_bytes = bytes};
    for (size_t i = 0; i < s->count; i++) {
        const question *q = &s->list[i];
        if (!ebb_same_value(ebb_saves_root(&s->saves, q->v), root) || q->refused != NULL)
            continue;
        bool first = true;
        for (size_t j = 0; j < i && first; j++)
            first = s->list[j].refused != NULL || !ebb_sign_same(&s->list[j], q);
        if (first) {
            offer->saved_bytes -= mask;
            offer->added_ns += ebb_roofline_ns(g, 0, (double)(bytes + mask));
        }
        double out = (double)ebb_stored_bytes(g, ebb_out(g, q->node, 0));
        offer->added_ns += ebb_roofline_ns(g, 0, (q->compares ? 1.0 : 2.0) * out + (double)mask) -
                           ebb_node_ns(g, q->node);
    }
    return true;
}

/* Another value that answers the question and is kept whatever this pass does, or none. */
static ebb_value kept_twin(const state *s, const question *q)
{
    ebb_value twin = q->compares ? EBB_NO_VALUE : ebb_sign_twin(s->e->g, q->node);
    ebb_value root = ebb_saves_root(&s->saves, twin);
    if (twin.i == 0 || root.i >= s->saves.value_count || !s->saves.forward[root.i])
        return EBB_NO_VALUE;
    return s->saves.kept[root.i] || s->saves.reads[root.i] > s->asked[root.i] ? twin : EBB_NO_VALUE;
}

/* All questions about one value stand or fall together: it is let go only if none reads it. */
static const char *decide(state *s, const question *q, ebb_value root)
{
    ebb_offer offer;
    if (q->v.i >= s->saves.value_count || !s->saves.forward[root.i])
        return "it reads a value that the backward makes";
    if (s->saves.kept[root.i])
        return "its value stays to the end of the step anyway";
    if (s->saves.reads[root.i] > s->asked[root.i])
        return "the backward reads its value for another reason";
    if (s->taken[root.i] != 0)
        return s->taken[root.i] > 0 ? NULL : "the plan does without it";
    if (!weigh(&offer, s, root))
        return "the size of its value is not known";
    if (offer.saved_bytes <= 0)
        return "its value is so small that a mask would not be smaller";
    s->taken[root.i] = ebb_offered(s->e, q->node, &offer) ? 1 : -1;
    return NULL;
}

static ebb_status answer(state *s, const question *q)
{
    ebb_value root = ebb_saves_root(&s->saves, q->v);
    ebb_found(s->e);
    if (q->refused != NULL)
        return ebb_skipped(s->e, q->node, q->refused);
    const char *reason = decide(s, q, root);
    if (reason != NULL)
        return ebb_skipped(s->e, q->node, reason);
    if (s->taken[root.i] < 0) // just now, and ebb_offered has counted it
        return NULL;
    EBB_TRY(ebb_sign_mask(s->e, q));
    ebb_applied(s->e);
    return NULL;
}

/* Reads what is kept anyway, where v is kept for this question alone. */
static ebb_status read_twin(state *s, question *q, bool *done)
{
    ebb_value root = ebb_saves_root(&s->saves, q->v), twin = kept_twin(s, q);
    *done = false;
    if (q->refused != NULL || twin.i == 0 || q->v.i >= s->saves.value_count ||
        s->saves.kept[root.i] || s->saves.reads[root.i] != 1 || s->asked[root.i] != 1)
        return NULL;
    *done = true;
    ebb_found(s->e);
    ebb_offer offer = {.value = root, .saved_bytes = ebb_stored_bytes(s->e->g, root)};
    if (!ebb_offered(s->e, q->node, &offer))
        return NULL;
    EBB_TRY(ebb_node_set_input(s->e->g, q->node, 1, twin));
    s->asked[root.i] = s->saves.reads[root.i] = 0;
    s->saves.reads[ebb_saves_root(&s->saves, twin).i]++;
    ebb_applied(s->e);
    return NULL;
}

static ebb_status collect(state *s)
{
    const ebb_graph *g = s->e->g;
    s->list = EBB_SCRATCH(s->e, question, g->node_count);
    s->asked = EBB_SCRATCH(s->e, uint32_t, s->saves.value_count);
    s->taken = EBB_SCRATCH(s->e, int8_t, s->saves.value_count);
    EBB_GOT(s->list && s->asked && s->taken);
    EBB_EACH_NODE(g, n) {
        if (!ebb_is_backward(g, n))
            continue;
        question q = ebb_sign_asked(g, n);
        if (q.v.i == 0)
            continue;
        ebb_value root = ebb_saves_root(&s->saves, q.v);
        if (q.compares && (root.i >= s->saves.value_count || !s->saves.forward[root.i]))
            continue; // a comparison within the backward is no save at all
        s->list[s->count++] = q;
        s->asked[root.i] += q.refused == NULL;
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e};
    EBB_TRY(ebb_saves_find(&s.saves, e->g, e->scratch));
    EBB_TRY(collect(&s));
    for (size_t i = 0; i < s.count; i++) {
        bool done;
        EBB_TRY(read_twin(&s, &s.list[i], &done));
        if (done)
            s.list[i].v = EBB_NO_VALUE;
    }
    for (size_t i = 0; i < s.count; i++)
        if (s.list[i].v.i != 0)
            EBB_TRY(answer(&s, &s.list[i]));
    return NULL;
}

// clang-format off
const ebb_pass ebb_pass_sign_mask = {
    .name = "sign-mask",
    .doc = "keep one bit per element of ReLU, LeakyReLU, PReLU, ThresholdedReLU and Clip for the backward",
    .paper = "Jain et al., Gist, ISCA 2018",
    .exactness = EBB_EXACT,
    .run = run,
};
// clang-format on
