/* sign-mask: the backward of a ReLU asks only "was it positive?", so keep that bit.
 *
 *   before   y = Relu(x)                     dx = ReluGrad(dy, y)      y is kept: 32 bits an
 * element after    y = Relu(x), m = PackSign(y)    dx = MaskGrad(dy, m)      m is kept:  1 bit
 *
 * The same for Clip (was it strictly inside the bounds?) and LeakyRelu (dx = dy or alpha dy).
 * Gradients that read the same value with the same bounds share one mask.
 *
 * Exact: the comparison is made on the same numbers, only earlier.
 *
 * Declines where the backward reads the value, or a view of it, for another reason, or where it
 * stays to the end of the step anyway: it would live on, and the mask would be pure cost.
 *
 * Paper: Jain et al., "Gist: efficient data encoding for deep neural network training", ISCA 2018.
 */
#include <math.h>

#include "passes/common.h"
#include "passes/passes.h"

typedef struct question { /* dx = low < v < high ? dy : alpha dy */
    ebb_value v;
    double low, high; /* high: INFINITY where there is none */
    double alpha;
    const char *refused;
} question;

/* What gradient node n asks of its saved value; v is none where n is no such gradient. */
static question asked_by(const ebb_graph *g, ebb_node n)
{
    question q = {.v = ebb_in(g, n, 1), .high = (double)INFINITY};
    ebb_attrs attrs = ebb_node_attrs(g, n);
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_RELU_GRAD:
        return q;
    case EBB_OP_LEAKY_RELU_GRAD:
        q.alpha = ebb_attr_float(&attrs, "alpha", 0.01);
        if (!(q.alpha > 0))
            q.refused = "the slope is not positive, so the output does not tell the sign";
        return q;
    case EBB_OP_CLIP_GRAD:
        q.low = -(double)INFINITY;
        if (ebb_in(g, n, 2).i != 0 && !ebb_scalar_of(g, ebb_in(g, n, 2), &q.low))
            q.refused = "a bound of the Clip is not constant";
        if (ebb_in(g, n, 3).i != 0 && !ebb_scalar_of(g, ebb_in(g, n, 3), &q.high))
            q.refused = "a bound of the Clip is not constant";
        return q;
    default:
        return (question){.v = EBB_NO_VALUE};
    }
}

static size_t rounded_bytes(size_t bytes)
{
    enum { ALIGN = 64 }; // what the arena rounds to
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static const char *declines(const ebb_graph *g, const ebb_saves *s, const question *q,
                            const uint32_t *questions)
{
    ebb_value root = ebb_saves_root(s, q->v);
    int64_t elements;
    size_t bytes;
    if (q->refused != NULL)
        return q->refused;
    if (q->v.i >= s->value_count || !s->forward[root.i])
        return "it reads a value that the backward makes";
    if (s->kept[root.i])
        return "its value stays to the end of the step anyway";
    if (s->reads[root.i] > questions[root.i])
        return "the backward reads its value for another reason";
    if (!ebb_type_elements(&ebb_value_of(g, q->v)->type, &elements) ||
        !ebb_type_bytes(&ebb_value_of(g, q->v)->type, &bytes))
        return "the size of its value is not known";
    if (rounded_bytes((size_t)(elements / 8) + 1) >= rounded_bytes(bytes))
        return "its value is so small that a mask would not be smaller";
    return NULL;
}

/* The mask that an earlier question about v has made with the same bounds, or none. */
static ebb_value existing_mask(const ebb_graph *g, const question *q)
{
    const ebb_value_info *info = ebb_value_of(g, q->v);
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        ebb_attrs attrs = ebb_node_attrs(g, n);
        if (ebb_node_of(g, n)->op == EBB_OP_PACK_SIGN && !ebb_is_backward(g, n) &&
            ebb_attr_float(&attrs, "low", 0) == (double)(float)q->low &&
            ebb_attr_float(&attrs, "high", (double)INFINITY) == (double)(float)q->high)
            return ebb_out(g, n, 0);
    }
    return EBB_NO_VALUE;
}

static ebb_status mask(ebb_edit *e, ebb_node n, const question *q)
{
    ebb_graph *g = e->g;
    ebb_node maker = ebb_value_of(g, q->v)->producer;
    ebb_value m = existing_mask(g, q);
    if (m.i == 0) {
        ebb_node after = maker.i != 0 ? ebb_next(g, maker) : ebb_first(g);
        ebb_build b = ebb_edit_build(e, after, EBB_FORWARD);
        b.name = ebb_value_name(g, q->v);
        if (q->low != 0)
            ebb_with_float(&b, "low", q->low);
        if (!isinf(q->high))
            ebb_with_float(&b, "high", q->high);
        m = ebb_emit(&b, EBB_OP_PACK_SIGN, q->v);
        EBB_TRY(b.status);
    }
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    b.name = ebb_text(g, ebb_node_of(g, n)->name);
    if (q->alpha != 0)
        ebb_with_float(&b, "alpha", q->alpha);
    ebb_value dx = ebb_emit(&b, EBB_OP_MASK_GRAD, ebb_in(g, n, 0), m);
    EBB_TRY(b.status);
    ebb_value old = ebb_out(g, n, 0);
    EBB_TRY(ebb_edit_replace(e, old, dx));
    ebb_edit_remove(e, n);
    ebb_applied(e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_saves saves;
    EBB_TRY(ebb_saves_find(&saves, e->g, e->scratch));
    uint32_t *questions = EBB_SCRATCH(e, uint32_t, saves.value_count);
    if (questions == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(e->g, n)
    {
        question q = asked_by(e->g, n);
        if (q.v.i != 0 && q.refused == NULL && ebb_is_backward(e->g, n))
            questions[ebb_saves_root(&saves, q.v).i]++;
    }
    EBB_EACH_NODE(e->g, n)
    {
        if (!ebb_is_backward(e->g, n))
            continue;
        question q = asked_by(e->g, n);
        if (q.v.i == 0)
            continue;
        const char *reason = declines(e->g, &saves, &q, questions);
        if (reason != NULL) {
            EBB_TRY(ebb_declined(e, n, reason));
            continue;
        }
        ebb_found(e);
        EBB_TRY(mask(e, n, &q));
    }
    return NULL;
}

const ebb_pass ebb_pass_sign_mask = {
    .name = "sign-mask",
    .doc = "keep one bit per element of ReLU, LeakyReLU and Clip for the backward",
    .paper = "Jain et al., Gist, ISCA 2018",
    .exactness = EBB_EXACT,
    .run = run,
};
