/* pool-index: the backward of a MaxPool asks only which element of each window was the largest.
 *
 *   before   y = MaxPool(x)                        dx = MaxPoolGrad(dy, x)          x is kept
 *   after    y, taps = ai.ebb.MaxPoolPacked(x)     dx = MaxPoolPackedGrad(dy, taps)
 *            taps: 1, 2, 4, 8 or 16 bits for each window, as many as its taps need: 2 for 2 x 2
 *
 *   before   x = Relu(h)  y = MaxPool(x)           dh = ReluGrad(MaxPoolGrad(dy, x), x)
 *   after    x = Relu(h)  y, taps = ...            dh = MaxPoolPackedGrad(ReluGrad(dy, y), taps)
 *
 * In the second picture x would be kept for its sign alone. But where dy goes x is y, so y tells
 * the sign, and y is smaller and mostly kept by the operator that follows. The same for Clip, and
 * where views stand between the two gradients.
 *
 * Exact: the forward notes the tap that MaxPoolGrad would find again: the first maximum in
 * row-major order, NaN above all. Each element of dx adds the same numbers in the same order; where
 * several windows chose one element they have one y, so all of them pass the ReluGrad or none does.
 *
 * Declines where the backward reads x, or a view of it, for another reason, or where x stays to the
 * end of the step anyway; where the Indices of the MaxPool are read.
 *
 * Paper: Jain et al., "Gist: efficient data encoding for deep neural network training", ISCA 2018
 * (4 bits for 3 x 3, after a ReLU).
 */
#include "exec/weigh/estimate.h"
#include "onnx/ops/window.h"
#include "passes/common.h"

typedef struct site {
    ebb_node grad, forward;
    ebb_node sign; /* ReluGrad or ClipGrad of the same x, which alone reads dx; or none */
    ebb_window w;
    unsigned bits;
    double taps;         /* of a window */
    const char *refused; /* why it cannot be done at all */
} site;

typedef struct state {
    ebb_edit *e;
    ebb_saves saves;
    uint32_t *answered; /* by root: reads of the backward that this pass could do away with */
    int8_t *taken; /* by root: 1: its sites are rewritten, -1: they are not, 0: not yet asked */
} state;

static bool same_attr(const ebb_attrs *a, const ebb_attrs *b, const char *name)
{
    uint32_t m = 0, n = 0;
    const int64_t *x = ebb_attr_ints(a, name, &m), *y = ebb_attr_ints(b, name, &n);
    return m == n && (m == 0 || memcmp(x, y, m * sizeof *x) == 0);
}

static bool same_window(const ebb_graph *g, ebb_node m, ebb_node n)
{
    ebb_attrs a = ebb_node_attrs(g, m), b = ebb_node_attrs(g, n);
    static const char *const lists[] = {"kernel_shape", "strides", "dilations", "pads"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (!same_attr(&a, &b, lists[i]))
            return false;
    return ebb_attr_int(&a, "ceil_mode", 0) == ebb_attr_int(&b, "ceil_mode", 0) &&
           strcmp(ebb_attr_string(&a, "auto_pad", "NOTSET"),
                  ebb_attr_string(&b, "auto_pad", "NOTSET")) == 0;
}

/* The MaxPool whose gradient n is. */
static ebb_node forward_of(const ebb_graph *g, ebb_node n)
{
    const ebb_value_info *x = ebb_value_of(g, ebb_in(g, n, 1));
    for (size_t i = 0; i < x->use_count; i++) {
        ebb_node m = x->uses[i].node;
        if (ebb_node_of(g, m)->op == EBB_OP_MAX_POOL && !ebb_is_backward(g, m) &&
            same_window(g, m, n))
            return m;
    }
    return EBB_NO_NODE;
}

static bool is_sign(const ebb_graph *g, ebb_node n)
{
    ebb_op op = n.i == 0 ? EBB_OP_UNKNOWN : ebb_node_of(g, n)->op;
    return op == EBB_OP_RELU_GRAD || op == EBB_OP_CLIP_GRAD;
}

/* As many bits as the taps of a window need; 0: more than a code has. */
static unsigned bits_for(double taps)
{
    for (unsigned bits = 1; bits <= 16; bits *= 2)
        if (taps <= (double)(1u << bits))
            return bits;
    return 0;
}

static site look(const ebb_graph *g, ebb_node n)
{
    site s = {.grad = n, .forward = forward_of(g, n), .taps = 1};
    ebb_value x = ebb_in(g, n, 1);
    ebb_value dx = ebb_out(g, n, 0);
    ebb_node user = ebb_only_user(g, dx);
    while (user.i != 0 && ebb_op_has(ebb_node_of(g, user)->op, EBB_VIEW) &&
           ebb_same_value(ebb_in(g, user, 0), dx)) {
        dx = ebb_out(g, user, 0);
        user = ebb_only_user(g, dx);
    }
    ebb_type type = *ebb_value_of(g, x)->type;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    size_t bytes;
    if (s.forward.i == 0) {
        s.refused = "the forward has no MaxPool of the same input and window";
        return s;
    }
    ebb_value indices = ebb_out(g, s.forward, 1);
    if (is_sign(g, user) && ebb_same_value(ebb_in(g, user, 0), dx) &&
        ebb_same_value(ebb_unviewed(g, ebb_in(g, user, 1)), ebb_unviewed(g, x)))
        s.sign = user;
    if (!ebb_type_bytes(&type, &bytes) || type.rank < 3 || type.rank > 5)
        s.refused = "its input's shape is not known, or has more than three spatial axes";
    else if (ebb_value_is_read(g, indices))
        s.refused = "its Indices are read, too";
    else if (ebb_window_resolve(&s.w, &attrs, type.rank - 2, type.dims + 2, NULL,
                                ebb_attr_int(&attrs, "ceil_mode", 0) != 0) != NULL)
        s.refused = "its window does not fit its input";
    for (int i = 0; s.refused == NULL && i < s.w.rank; i++)
        s.taps *= (double)s.w.kernel[i];
    s.bits = bits_for(s.taps);
    if (s.refused == NULL && s.bits == 0)
        s.refused = "its window has more than 65536 taps";
    return s;
}

static int64_t elements_of(const ebb_graph *g, ebb_value v)
{
    int64_t n = 0;
    return ebb_type_elements(ebb_value_of(g, v)->type, &n) ? n : 0;
}

/* Whether y lives into the backward even if this pass does nothing. */
static bool is_kept(const state *s, ebb_value y)
{
    ebb_value root = ebb_saves_root(&s->saves, y);
    return s->saves.kept[root.i] || s->saves.reads[root.i] > 0;
}

/* What this site adds to the offer of its input. */
static void add_site(ebb_offer *offer, const state *s, const site *p)
{
    const ebb_graph *g = s->e->g;
    ebb_value x = ebb_in(g, p->grad, 1), y = ebb_out(g, p->forward, 0);
    double wide = (double)ebb_stored_bytes(g, x), narrow = (double)ebb_stored_bytes(g, y);
    int64_t codes = ebb_stored_bits(elements_of(g, y), p->bits);
    offer->saved_bytes -= codes;
    offer->added_ns += ebb_roofline_ns(g, 0, wide + narrow + (double)codes);
    offer->added_ns -= ebb_node_ns(g, p->grad);
    offer->added_ns +=
        ebb_roofline_ns(g, (double)elements_of(g, y) * p->taps, wide + narrow + (double)codes) -
        ebb_node_ns(g, p->forward);
    if (p->sign.i == 0)
        return;
    offer->saved_bytes -= is_kept(s, y) ? 0 : (int64_t)narrow;
    offer->added_ns += ebb_roofline_ns(g, 0, 3 * narrow) - ebb_node_ns(g, p->sign);
}

/* All sites of one input stand or fall together: it is let go only if none reads it. */
static const char *ask(state *s, ebb_node n, ebb_value root)
{
    const ebb_graph *g = s->e->g;
    ebb_offer offer = {.value = root, .saved_bytes = ebb_stored_bytes(g, root)};
    if (s->saves.kept[root.i])
        return "its input stays to the end of the step anyway";
    if (s->saves.reads[root.i] > s->answered[root.i])
        return "the backward reads its input for another reason";
    EBB_EACH_NODE(g, m) {
        if (ebb_node_of(g, m)->op != EBB_OP_MAX_POOL_GRAD || !ebb_is_backward(g, m) ||
            !ebb_same_value(ebb_saves_root(&s->saves, ebb_in(g, m, 1)), root))
            continue;
        site p = look(g, m);
        add_site(&offer, s, &p);
    }
    if (offer.saved_bytes <= 0)
        return "its input is so small that the places would not be smaller";
    s->taken[root.i] = ebb_offered(s->e, n, &offer) ? 1 : -1;
    return NULL;
}

static void with_window(ebb_build *b, const site *p, bool ceiling)
{
    int64_t pads[2 * EBB_MAX_RANK];
    uint32_t rank = (uint32_t)p->w.rank;
    for (uint32_t i = 0; i < rank; i++) {
        pads[i] = p->w.begin[i];
        pads[rank + i] = p->w.end[i];
    }
    ebb_with_ints(b, "kernel_shape", p->w.kernel, rank);
    ebb_with_ints(b, "strides", p->w.stride, rank);
    ebb_with_ints(b, "dilations", p->w.dilation, rank);
    ebb_with_ints(b, "pads", pads, 2 * rank);
    if (ceiling)
        ebb_with_int(b, "ceil_mode", 1);
    ebb_with_int(b, "bits", p->bits);
}

static ebb_status rewrite(ebb_edit *e, const site *p)
{
    ebb_graph *g = e->g;
    ebb_value x = ebb_in(g, p->grad, 1), dy = ebb_in(g, p->grad, 0), made[2];
    ebb_type type = *ebb_value_of(g, x)->type;
    ebb_attrs attrs = ebb_node_attrs(g, p->forward);
    bool ceiling = ebb_attr_int(&attrs, "ceil_mode", 0) != 0;
    ebb_build f = ebb_edit_build(e, p->forward, EBB_FORWARD);
    f.name = ebb_value_name(g, ebb_out(g, p->forward, 0));
    with_window(&f, p, ceiling);
    ebb_emit_node(&f, EBB_OP_MAX_POOL_PACKED, &x, 1, made, 2, 3);
    EBB_TRY(f.status);
    ebb_keep_name(g, f.last, p->forward);

    ebb_build b = ebb_edit_build_for(e, p->grad);
    if (p->sign.i != 0)
        dy = ebb_emit(&b, ebb_node_of(g, p->sign)->op, dy, made[0], ebb_in(g, p->sign, 2),
                      ebb_in(g, p->sign, 3));
    with_window(&b, p, ceiling);
    ebb_with_ints(&b, "input_shape", type.dims, (uint32_t)type.rank);
    ebb_value dx = ebb_emit(&b, EBB_OP_MAX_POOL_PACKED_GRAD, dy, made[1]);
    EBB_TRY(b.status);
    if (p->sign.i != 0) { // it has had its say: views between the two stay
        EBB_TRY(ebb_edit_swap(e, p->sign, ebb_in(g, p->sign, 0)));
    }
    EBB_TRY(ebb_edit_swap(e, p->grad, dx));
    ebb_applied(e);
    return ebb_edit_swap(e, p->forward, made[0]);
}

static ebb_status visit(state *s, ebb_node n)
{
    site p = look(s->e->g, n);
    ebb_value root = ebb_saves_root(&s->saves, ebb_in(s->e->g, n, 1));
    ebb_found(s->e);
    if (p.refused != NULL)
        return ebb_skipped(s->e, n, p.refused);
    if (root.i >= s->saves.value_count || !s->saves.forward[root.i])
        return ebb_skipped(s->e, n, "it reads a value that the backward makes");
    bool asked = s->taken[root.i] == 0;
    const char *reason = asked ? ask(s, n, root) : NULL;
    if (reason != NULL)
        return ebb_skipped(s->e, n, reason);
    if (s->taken[root.i] < 0) // ebb_offered has counted the one that was asked for
        return asked ? NULL : ebb_skipped(s->e, n, "the plan does without it");
    return rewrite(s->e, &p);
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e};
    EBB_TRY(ebb_saves_find(&s.saves, e->g, e->scratch));
    s.answered = EBB_SCRATCH(e, uint32_t, s.saves.value_count);
    s.taken = EBB_SCRATCH(e, int8_t, s.saves.value_count);
    EBB_GOT(s.answered && s.taken);
    EBB_EACH_NODE(e->g, n) {
        if (ebb_node_of(e->g, n)->op != EBB_OP_MAX_POOL_GRAD || !ebb_is_backward(e->g, n))
            continue;
        site p = look(e->g, n);
        if (p.refused == NULL)
            s.answered[ebb_saves_root(&s.saves, ebb_in(e->g, n, 1)).i] += p.sign.i != 0 ? 2 : 1;
    }
    EBB_EACH_NODE(e->g, n)
        if (ebb_node_of(e->g, n)->op == EBB_OP_MAX_POOL_GRAD && ebb_is_backward(e->g, n))
            EBB_TRY(visit(&s, n));
    return NULL;
}

const ebb_pass ebb_pass_pool_index = {
    .name = "pool-index",
    .doc = "keep the place of each maximum of a MaxPool, a few bits, instead of its input",
    .paper = "Jain et al., Gist, ISCA 2018",
    .exactness = EBB_EXACT,
    .run = run,
};
