/* pool-input: keep the averages of a convolution's input over cells, for its weight gradient.
 *
 *   before   y = Conv(x, w)                          dw = ConvWeightGrad(dy, x)
 *   after    y = Conv(x, w)  m = AveragePool(x)      dw = ai.ebb.ConvWeightGradPooled(dy, m)
 *            m: x's averages over cells of p x p, those at the edges over what is there
 *
 * Mostly x is a ReLU's output, and the gradient of that ReLU asks for its sign: that is kept as a
 * bit an element, as sign-mask would, which does not while the convolution reads x:
 *
 *   before   dh = ReluGrad(dx, x)                    after    b = PackSign(x)  dh = MaskGrad(dx, b)
 *
 * With channels last the pooling is one of [N, 1, H, W, C], and the backward turns dy and m, so
 * that their channels come first, and dw back.
 *
 * The forward, dx and dbias use x and w as before and stay exact. dw is what it would be if x were
 * even within each cell: it loses what varies there, which is a bias and no noise. Convolutions
 * that read the same x share m.
 *
 * Lossy, without a useful bound: m is x projected on what is even within cells, so what is lost of
 * x is at most all of it (the offer's error is 1). Measured, cosine of dw to the exact one: 0.99
 * and above where x has a large mean or falls off with frequency as images do; on noise 0.73 (p =
 * 2) and 0.49 (p = 4) of one layer, and behind batch norm, which takes the mean out of dy, 0.5 and
 * 0.25.
 *
 * Declines where the backward reads x, or a view of it, for another reason too, where x stays to
 * the end of the step anyway, and where an axis is shorter than a cell.
 *
 * Paper: Barley and Froening, "Less memory means smaller GPUs: backpropagation with compressed
 * activations", 2024.
 */
#include "exec/weigh/estimate.h"
#include "passes/common.h"
#include "passes/memory/decode.h"
#include "passes/memory/sign.h"

typedef struct state {
    ebb_edit *e;
    ebb_saves saves;
    int64_t p;
    uint32_t *answered; /* by root: reads of the backward that m could serve */
    uint32_t *signs;    /* by root: reads that a bit an element could answer */
    ebb_value *made;    /* by value: its averages, once they are there */
    int8_t *taken; /* by root: 1: its sites are rewritten, -1: they are not, 0: not yet asked */
} state;

static ebb_value root_of(const state *s, ebb_value v)
{
    return ebb_saves_root(&s->saves, v);
}

static bool of_forward(const state *s, ebb_value v)
{
    ebb_value root = root_of(s, v);
    return v.i != 0 && root.i < s->saves.value_count && s->saves.forward[root.i];
}

static bool has_channels_last(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->op == EBB_OP_CONV_WEIGHT_GRAD_NHWC;
}

/* The type of m. x is static. */
static ebb_type pooled_type(const ebb_type *x, int64_t p, bool last)
{
    ebb_type t = *x;
    for (int i = last ? 1 : 2; i < t.rank - last; i++)
        t.dims[i] = ebb_up(x->dims[i], p);
    return t;
}

/* Why this node cannot be served by averages, whoever else reads its input; else NULL. */
static const char *refused(const state *s, ebb_node n)
{
    const ebb_graph *g = s->e->g;
    ebb_value x = ebb_in(g, n, 1);
    const ebb_type *type = ebb_value_of(g, x)->type, *out = ebb_value_of(g, ebb_out(g, n, 0))->type;
    size_t bytes;
    if (!of_forward(s, x))
        return of_forward(s, ebb_in(g, n, 0))
                   ? "it belongs to a transposed convolution, whose input is the narrow side"
                   : "it reads a value that the backward makes";
    if (!ebb_type_bytes(type, &bytes) || !ebb_type_bytes(out, &bytes) ||
        !ebb_type_is_static(ebb_value_of(g, ebb_in(g, n, 0))->type))
        return "its shapes are not known";
    if (type->rank < 3 || type->rank > 5)
        return "its input has more than three spatial axes";
    if (!ebb_dtype_is_float((ebb_dtype)type->dtype))
        return "its input has no floats";
    bool last = has_channels_last(g, n);
    for (int i = last ? 1 : 2; i < type->rank - last; i++)
        if (type->dims[i] < s->p)
            return "an axis of its input is shorter than a cell";
    return NULL;
}

static bool is_site(const ebb_graph *g, ebb_node n)
{
    return (ebb_node_of(g, n)->op == EBB_OP_CONV_WEIGHT_GRAD || has_channels_last(g, n)) &&
           ebb_is_backward(g, n);
}

static double elements_of(const ebb_type *t)
{
    int64_t n;
    return ebb_type_elements(t, &n) ? (double)n : 0;
}

/* What the node's other form takes: products over cells, and dY added up for each tap. */
static double pooled_ns(const state *s, ebb_node n)
{
    const ebb_graph *g = s->e->g;
    const bool last = has_channels_last(g, n);
    ebb_type m = pooled_type(ebb_value_of(g, ebb_in(g, n, 1))->type, s->p, last);
    const ebb_type *dw = ebb_value_of(g, ebb_out(g, n, 0))->type;
    const ebb_type *dy = ebb_value_of(g, ebb_in(g, n, 0))->type;
    double taps = 1, cells = elements_of(&m) / (double)m.dims[last ? m.rank - 1 : 1]; // of all
    for (int i = last ? 1 : 2; i < dw->rank - last; i++)
        taps *= (double)dw->dims[i];
    double sums = taps * cells * (double)dw->dims[0] * (double)s->p;
    double bytes = (double)ebb_dtype_bits((ebb_dtype)m.dtype) / 8;
    return ebb_product_ns(g, (ebb_dtype)m.dtype, 2 * cells * elements_of(dw) + sums,
                          bytes * (elements_of(&m) + elements_of(dw) + elements_of(dy)) *
                              (last ? 3 : 1));
}

/* What n asks about the sign of a value of the forward that bits can answer; else v is none. */
static ebb_sign_question sign_asked(const state *s, ebb_node n)
{
    ebb_sign_question q = {.node = n};
    if (!ebb_is_backward(s->e->g, n))
        return q;
    q = ebb_sign_asked(s->e->g, n);
    if (q.refused != NULL || !of_forward(s, q.v))
        q.v = EBB_NO_VALUE;
    return q;
}

/* Adds what a mask for use `i` of v changes, unless an earlier use has it. */
static void weigh_sign(ebb_offer *offer, const state *s, ebb_value v, size_t i)
{
    const ebb_graph *g = s->e->g;
    const ebb_value_info *info = ebb_value_of(g, v);
    ebb_sign_question q = sign_asked(s, info->uses[i].node);
    if (!ebb_same_value(q.v, v))
        return;
    int64_t bits = ebb_stored_bits((int64_t)elements_of(info->type), 1);
    double out = (double)ebb_stored_bytes(g, ebb_out(g, q.node, 0));
    offer->added_ns += ebb_roofline_ns(g, 0, 2 * out + (double)bits) - ebb_node_ns(g, q.node);
    for (size_t k = 0; k < i; k++) {
        ebb_sign_question earlier = sign_asked(s, info->uses[k].node);
        if (ebb_same_value(earlier.v, v) && ebb_sign_same(&earlier, &q))
            return;
    }
    offer->saved_bytes -= bits;
    offer->added_ns += ebb_roofline_ns(g, 0, (double)(ebb_stored_bytes(g, v) + bits));
}

/* Adds what averages of v change, if a site reads it. */
static void weigh_averages(ebb_offer *offer, const state *s, ebb_value v)
{
    const ebb_graph *g = s->e->g;
    const ebb_value_info *info = ebb_value_of(g, v);
    bool pooled = false, last = false;
    size_t bytes;
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_use use = info->uses[i];
        if (use.slot != 1 || !is_site(g, use.node) || refused(s, use.node) != NULL)
            continue;
        last = has_channels_last(g, use.node);
        offer->added_ns += pooled_ns(s, use.node) - ebb_node_ns(g, use.node);
        pooled = true;
    }
    ebb_type m = pooled_type(info->type, s->p, last);
    if (!pooled || !ebb_type_bytes(&m, &bytes))
        return;
    offer->saved_bytes -= ((int64_t)bytes + EBB_ALIGN - 1) / EBB_ALIGN * EBB_ALIGN;
    offer->added_ns +=
        ebb_roofline_ns(g, elements_of(info->type), (double)ebb_stored_bytes(g, v) + (double)bytes);
}

/* All sites of one input stand or fall together: it is let go only if none reads it. */
static const char *decide(state *s, ebb_node n, ebb_value root)
{
    const ebb_graph *g = s->e->g;
    ebb_offer offer = {.value = root, .saved_bytes = ebb_stored_bytes(g, root), .error = 1};
    if (s->saves.kept[root.i])
        return "its input stays to the end of the step anyway";
    if (s->saves.reads[root.i] > s->answered[root.i] + s->signs[root.i])
        return "the backward reads its input for another reason";
    EBB_EACH_VALUE(g, v) {
        if (ebb_value_of(g, v)->dead || !ebb_same_value(root_of(s, v), root))
            continue;
        weigh_averages(&offer, s, v);
        for (size_t i = 0; i < ebb_value_of(g, v)->use_count; i++)
            weigh_sign(&offer, s, v, i);
    }
    if (offer.saved_bytes <= 0)
        return "its input is so small that the averages would not be smaller";
    s->taken[root.i] = ebb_offered(s->e, n, &offer) ? 1 : -1;
    return NULL;
}

/* The averages of x with channels last, as [N, h, w, C]: a window of 1 along C. */
static ebb_value averages_last(state *s, ebb_build *b, ebb_value x)
{
    const ebb_type *t = ebb_value_of(s->e->g, x)->type;
    const ebb_type m = pooled_type(t, s->p, true);
    int64_t images[EBB_MAX_RANK] = {t->dims[0], 1}, side[EBB_MAX_RANK] = {0};
    uint32_t axes = (uint32_t)t->rank - 1;
    for (uint32_t i = 0; i < axes; i++) {
        images[2 + i] = t->dims[1 + i];
        side[i] = i + 1 < axes ? s->p : 1;
    }
    ebb_value image = ebb_emit_reshape(b, x, images, t->rank + 1);
    ebb_with_int(b, "ceil_mode", 1);
    ebb_with_ints(b, "kernel_shape", side, axes);
    ebb_with_ints(b, "strides", side, axes);
    return ebb_emit_reshape(b, ebb_emit(b, EBB_OP_AVERAGE_POOL, image), m.dims, m.rank);
}

/* The same with channels first, or back. */
static ebb_value turned(ebb_build *b, ebb_value v, bool first)
{
    int64_t perm[EBB_MAX_RANK] = {0};
    int rank = b->status == NULL ? ebb_build_type(b, v)->rank : 0;
    for (int i = 1; i < rank; i++)
        perm[i] = first ? (i == 1 ? rank - 1 : i - 1) : (i == rank - 1 ? 1 : i + 1);
    return ebb_emit_transpose(b, v, perm, rank);
}

/* x's averages, made right after x where nobody has made them. */
static ebb_status averages(state *s, ebb_value x, bool last, ebb_value *m)
{
    ebb_graph *g = s->e->g;
    int64_t side[EBB_MAX_RANK];
    uint32_t axes = (uint32_t)ebb_value_of(g, x)->type->rank - 2;
    *m = s->made[x.i];
    if (m->i != 0)
        return NULL;
    ebb_build b = ebb_encode_after(s->e, x);
    for (uint32_t i = 0; i < axes; i++)
        side[i] = s->p;
    if (last) {
        *m = averages_last(s, &b, x);
    } else {
        ebb_with_int(&b, "ceil_mode", 1);
        ebb_with_ints(&b, "kernel_shape", side, axes);
        ebb_with_ints(&b, "strides", side, axes);
        *m = ebb_emit(&b, EBB_OP_AVERAGE_POOL, x);
    }
    s->made[x.i] = *m;
    return b.status;
}

static ebb_status rewrite(state *s, ebb_node n)
{
    ebb_graph *g = s->e->g;
    ebb_value x = ebb_in(g, n, 1), dy = ebb_in(g, n, 0), m;
    const bool last = has_channels_last(g, n);
    EBB_TRY(averages(s, x, last, &m));
    ebb_type type = *ebb_value_of(g, x)->type;
    ebb_build b = ebb_edit_build_for(s->e, n);
    if (last) {
        memmove(type.dims + 2, type.dims + 1, (size_t)(type.rank - 2) * sizeof *type.dims);
        type.dims[1] = ebb_value_of(g, x)->type->dims[type.rank - 1];
        dy = turned(&b, dy, true);
        m = turned(&b, m, true);
    }
    ebb_with_attrs_of(&b, n);
    ebb_with_ints(&b, "input_shape", type.dims, (uint32_t)type.rank);
    ebb_with_int(&b, "p", s->p);
    ebb_value dw = ebb_emit(&b, EBB_OP_CONV_WEIGHT_GRAD_POOLED, dy, m);
    if (last)
        dw = turned(&b, dw, false);
    EBB_TRY(b.status);
    ebb_applied(s->e);
    return ebb_edit_swap(s->e, n, dw);
}

/* Bits for all who ask for the sign of `root`, so that nobody reads it any more. */
static ebb_status answer_signs(state *s, ebb_value root)
{
    EBB_EACH_NODE(s->e->g, n) {
        ebb_sign_question q = sign_asked(s, n);
        if (q.v.i != 0 && ebb_same_value(root_of(s, q.v), root))
            EBB_TRY(ebb_sign_mask(s->e, &q));
    }
    return NULL;
}

static ebb_status visit(state *s, ebb_node n)
{
    const char *reason = refused(s, n);
    ebb_found(s->e);
    if (reason != NULL)
        return ebb_skipped(s->e, n, reason);
    ebb_value root = root_of(s, ebb_in(s->e->g, n, 1));
    bool asked = s->taken[root.i] == 0;
    if (asked)
        reason = decide(s, n, root);
    if (reason != NULL)
        return ebb_skipped(s->e, n, reason);
    if (asked && s->taken[root.i] > 0)
        EBB_TRY(answer_signs(s, root));
    if (s->taken[root.i] < 0) // ebb_offered has counted the one that was asked for
        return asked ? NULL : ebb_skipped(s->e, n, "the plan does without it");
    return rewrite(s, n);
}

static void count_reads(state *s)
{
    const ebb_graph *g = s->e->g;
    EBB_EACH_NODE(g, n) {
        ebb_sign_question q = sign_asked(s, n);
        if (q.v.i != 0)
            s->signs[root_of(s, q.v).i]++;
        if (is_site(g, n) && refused(s, n) == NULL)
            s->answered[root_of(s, ebb_in(g, n, 1)).i]++;
    }
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e, .p = strcmp(ebb_option_string(e, "p"), "4") == 0 ? 4 : 2};
    EBB_TRY(ebb_saves_find(&s.saves, e->g, e->scratch));
    s.answered = EBB_SCRATCH(e, uint32_t, s.saves.value_count);
    s.signs = EBB_SCRATCH(e, uint32_t, s.saves.value_count);
    s.taken = EBB_SCRATCH(e, int8_t, s.saves.value_count);
    s.made = EBB_SCRATCH(e, ebb_value, s.saves.value_count);
    EBB_GOT(s.made && s.answered && s.signs && s.taken);
    count_reads(&s);
    EBB_EACH_NODE(e->g, n)
        if (is_site(e->g, n))
            EBB_TRY(visit(&s, n));
    return NULL;
}

static const ebb_option options[] = {
    {"p", EBB_OPTION_CHOICE, "2", "2|4", "elements of a cell along each axis"},
    {0},
};

const ebb_pass ebb_pass_pool_input = {
    .name = "pool-input",
    .doc = "keep averages of convolution inputs over p x p cells for the weight gradient",
    .paper = "Barley and Froening, Less memory means smaller GPUs, 2024",
    .exactness = EBB_LOSSY,
    .options = options,
    .run = run,
};
