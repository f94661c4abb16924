/* invert: GELU, SiLU, quick-GELU and Mish are undone from their output, so their input can go.
 *
 *   before   y = Gelu(x)                          dx = GeluGrad(dy, x)
 *   after    y = Gelu(x), b = PackSign(x) {x0}    dx = GeluGradFromOutput(dy, y, b)
 *
 * 32 bits an element before, 1 after: y is kept anyway, by the weight gradient of the layer that
 * reads it, say. It takes each value between its minimum and 0 twice; the bit, whether x lies right
 * of the minimum at x0, tells which. The derivative is a polynomial in sqrt(y - y0), y0 = f(x0);
 * kernels/math/generate/invert.py has made it.
 *
 * Lossy: the derivative is off by at most 5e-4 anywhere, y being a float; 2e-4 is what is measured,
 * nearly all of it from the rounding of y beside its minimum. docs/invert.md has the errors for
 * shorter types.
 *
 * Declines where y is not kept for the backward anyway: x would only change places with it, and
 * making y again from x, where it is wanted, saves the same exactly. Declines, too, where the
 * backward reads x for another reason, or where x stays to the end of the step.
 *
 * Paper: "Inverted activations", arXiv 2407.15545, 2024. Its formulas are off by up to 0.019 and
 * their left tails do not end in 0; ours are made anew.
 */
#include "exec/weigh/estimate.h"
#include "passes/common.h"
#include "passes/memory/decode.h"

/* Of the error of the derivative. */
static const double bound = 5e-4;

typedef struct kind {
    ebb_op grad, inverted;
    double x0; /* where f is least */
} kind;

static const kind kinds[] = {
    {EBB_OP_GELU_GRAD, EBB_OP_GELU_GRAD_FROM_OUTPUT, -0.75179152469356446},
    {EBB_OP_FAST_GELU_GRAD, EBB_OP_FAST_GELU_GRAD_FROM_OUTPUT, -0.75246142207101626},
    {EBB_OP_QUICK_GELU_GRAD, EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, -1.27846454276107380},
    {EBB_OP_MISH_GRAD, EBB_OP_MISH_GRAD_FROM_OUTPUT, -1.19243121451549521},
};

typedef struct site {
    ebb_node grad;
    const kind *kind;
    ebb_value x, y; /* y: none where no forward node makes it */
    double alpha;   /* of quick-GELU */
} site;

static const kind *kind_of(const ebb_graph *g, ebb_node n)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].grad == ebb_node_of(g, n)->op)
            return &kinds[i];
    return NULL;
}

/* Whether node n is the function whose gradient the site is. */
static bool is_forward_of(const ebb_graph *g, ebb_node n, const site *s)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    bool by_tanh = strcmp(ebb_attr_string(&attrs, "approximate", "none"), "tanh") == 0;
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_GELU:
        return s->kind->grad == (by_tanh ? EBB_OP_FAST_GELU_GRAD : EBB_OP_GELU_GRAD);
    case EBB_OP_MS_GELU:
        return s->kind->grad == EBB_OP_GELU_GRAD;
    case EBB_OP_MS_FAST_GELU:
        return s->kind->grad == EBB_OP_FAST_GELU_GRAD && ebb_in(g, n, 1).i == 0;
    case EBB_OP_MS_QUICK_GELU:
        return s->kind->grad == EBB_OP_QUICK_GELU_GRAD &&
               ebb_attr_float(&attrs, "alpha", (double)1.702f) == s->alpha;
    case EBB_OP_MISH:
        return s->kind->grad == EBB_OP_MISH_GRAD;
    default:
        return false;
    }
}

static site look(const ebb_graph *g, ebb_node n, const kind *k)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    site s = {.grad = n, .kind = k, .x = ebb_in(g, n, 1)};
    s.alpha = ebb_attr_float(&attrs, "alpha", (double)1.702f);
    const ebb_value_info *info = ebb_value_of(g, s.x);
    for (size_t i = 0; i < info->use_count && s.y.i == 0; i++) {
        ebb_use use = info->uses[i];
        if (use.slot == 0 && !ebb_is_backward(g, use.node) && is_forward_of(g, use.node, &s))
            s.y = ebb_out(g, use.node, 0);
    }
    return s;
}

/* Why the site must stay as it is, or NULL and what its change is worth. */
static const char *weigh(ebb_offer *offer, const ebb_graph *g, const ebb_saves *saves,
                         const site *s)
{
    ebb_value x = ebb_saves_root(saves, s->x), y = ebb_saves_root(saves, s->y);
    int64_t elements = 0, bytes = ebb_stored_bytes(g, s->x);
    if (s->x.i >= saves->value_count || !saves->forward[x.i])
        return "it reads a value that the backward makes";
    if (s->y.i == 0)
        return "the forward has no node of which it is the gradient";
    if (s->kind->grad == EBB_OP_QUICK_GELU_GRAD && !(s->alpha > 0))
        return "its alpha is not positive";
    if (saves->kept[x.i])
        return "its input stays to the end of the step anyway";
    if (saves->reads[x.i] > 1)
        return "the backward reads its input for another reason";
    if (!saves->kept[y.i] && saves->reads[y.i] == 0)
        return "its output is not kept for the backward: keeping the input alone, and recomputing "
               "the output where it is wanted, saves the same";
    if (bytes == 0 || !ebb_type_elements(ebb_value_of(g, s->x)->type, &elements))
        return "the size of its input is not known";
    int64_t bits = ebb_stored_bits(elements, 1);
    *offer = (ebb_offer){.value = x, .saved_bytes = bytes - bits, .error = bound};
    offer->added_ns = ebb_roofline_ns(g, 0, (double)(bytes + bits)) +
                      ebb_roofline_ns(g, 0, 3.0 * (double)bytes + (double)bits) -
                      ebb_node_ns(g, s->grad);
    return offer->saved_bytes > 0 ? NULL : "its input is so small that bits would not be smaller";
}

static ebb_status rewrite(ebb_edit *e, const site *s)
{
    ebb_graph *g = e->g;
    bool scaled = s->kind->grad == EBB_OP_QUICK_GELU_GRAD;
    ebb_build f = ebb_encode_after(e, s->x);
    ebb_with_float(&f, "low", s->kind->x0 / (scaled ? s->alpha : 1.0));
    ebb_value bits = ebb_emit(&f, EBB_OP_PACK_SIGN, s->x);
    EBB_TRY(f.status);

    ebb_build b = ebb_edit_build_for(e, s->grad);
    if (scaled)
        ebb_with_float(&b, "alpha", s->alpha);
    ebb_value dx = ebb_emit(&b, s->kind->inverted, ebb_in(g, s->grad, 0), s->y, bits);
    EBB_TRY(b.status);
    ebb_applied(e);
    return ebb_edit_swap(e, s->grad, dx);
}

static ebb_status run(ebb_edit *e)
{
    ebb_saves saves;
    EBB_TRY(ebb_saves_find(&saves, e->g, e->scratch));
    EBB_EACH_NODE(e->g, n) {
        const kind *k = kind_of(e->g, n);
        if (k == NULL || !ebb_is_backward(e->g, n))
            continue;
        site s = look(e->g, n, k);
        ebb_offer offer;
        const char *reason = weigh(&offer, e->g, &saves, &s);
        ebb_found(e);
        if (reason != NULL)
            EBB_TRY(ebb_skipped(e, n, reason));
        else if (ebb_offered(e, n, &offer))
            EBB_TRY(rewrite(e, &s));
    }
    return NULL;
}

const ebb_pass ebb_pass_invert = {
    .name = "invert",
    .doc = "derivative of GELU, SiLU, quick-GELU and Mish from their output and one bit an element",
    .paper = "Inverted Activations, arXiv 2407.15545, 2024",
    .exactness = EBB_LOSSY,
    .run = run,
};
