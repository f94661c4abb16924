/* quantise: what the backward reads again is kept as codes of a few bits and a range for each
 * group.
 *
 *   before   y = Conv(x, w)                          dw = ConvWeightGrad(dy, x)     x is kept
 *   after    y = Conv(x, w)                          x_1 = ai.ebb.Dequantize(codes, range)
 *            codes, range = ai.ebb.Quantize(x, key)  dw = ConvWeightGrad(dy, x_1)   codes are kept
 *
 * The forward is as it was, bit for bit; only what the gradient reads is rounded, at random
 * (Philox, by the model's key) and without bias: low is rounded down and step up before they
 * encode. Each reader decodes for itself, right before it runs, in the shape that it wants. Readers
 * that ask but for a sign (ReluGrad, ClipGrad) get a mask of one bit, which is exact.
 *
 * Lossy: of an element in a group of range D, the error has the mean 0 (to 2^-17 D / (2^bits - 1))
 * and at most the variance (D / (2^bits - 1))^2 / 4. Gradients that are linear in what is coded
 * (products, convolutions) stay unbiased; those of norms, softmax and activations do not quite.
 *
 * Declines where the value stays to the end of the step anyway; where a reader would not bear it
 * (MaxPoolGrad compares elements; a divisor may become 0); where the codes would not be smaller;
 * and for what the loss keeps. Statistics of norms are no tensors to code.
 *
 * bits=mixed gives each tensor bits by what it bears, so that the variance of the gradient is small
 * for so many on average. Shapes tell little of that; measured=FILE, which `ebb bench
 * --sensitivity` writes, tells ranges and gradients (ActNN) or how the gradient changes with each
 * code (gact).
 *
 * scheme=mesa keeps 8 bits, and a range for each head of attention or group of channels that
 * follows those of the steps before: range <- 0.9 range + 0.1 (that of this step), the first step
 * takes its own. It is a state of the step, {low, width}, by which the codes are made and read
 * again. What lies outside is kept as the nearest end: biased there.
 *
 * Papers: Chen et al., "ActNN: reducing training memory footprint via 2-bit activation compressed
 * training", ICML 2021; Liu et al., "GACT: activation compressed training for generic network
 * architectures", ICML 2022; Pan et al., "Mesa: a memory-saving training framework for
 * transformers", 2021.
 */
#include <math.h>
#include <stdio.h>

#include "passes/memory/lossy/bits.h"
#include "passes/memory/lossy/code_sites.h"

typedef struct grouping { /* of a tensor's elements, and which groups have a range in common */
    int axis;
    int64_t rows, size, classes;
} grouping;

typedef struct state {
    ebb_edit *e;
    ebb_code_sites sites;
    ebb_bits_item *bits; /* of each site */
    int64_t group;
    bool mesa, gact;
} state;

/* ---- groups ---- */

static bool reads_channels(const ebb_graph *g, const ebb_code_site *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        ebb_op op = ebb_node_of(g, p->reads[i].node)->op;
        if (op == EBB_OP_CONV_WEIGHT_GRAD || op == EBB_OP_BATCH_NORM_GRAD)
            return true;
    }
    return false;
}

enum { MOST_CLASSES = 16 };

/* Mesa's: along axis 1 (heads, channels of images), else along the last (channels of tokens): as
 * many classes as divide it, up to 16, if each run of one is at least a group long. */
static grouping shared_ranges(const state *s, const ebb_code_site *p)
{
    const ebb_type *type = ebb_value_of(s->e->g, p->root)->type;
    bool second = type->rank >= 4 || (type->rank == 3 && reads_channels(s->e->g, p));
    grouping m = {.rows = 1, .size = p->elements, .classes = 1};
    if (type->rank < 2)
        return m;
    int along = second ? 1 : type->rank - 1;
    int64_t run = 1;
    for (int d = along; d < type->rank; d++)
        run *= type->dims[d];
    m = (grouping){.axis = 1, .rows = type->dims[0], .size = run, .classes = 1};
    for (int64_t k = MOST_CLASSES; k > 1 && m.classes == 1; k--)
        if (type->dims[along] % k == 0 && run / k >= s->group) {
            m.classes = k;
            m.size = run / k;
        }
    return m;
}

static grouping groups_of(const state *s, const ebb_code_site *p)
{
    grouping m = {.size = s->group};
    if (s->mesa)
        return shared_ranges(s, p);
    (void)ebb_code_rows(ebb_value_of(s->e->g, p->root)->type, &m.axis, &m.rows);
    return m;
}

static int64_t coded_bytes(const state *s, const ebb_code_site *p, int bits)
{
    grouping m = groups_of(s, p);
    int64_t inner = p->elements / m.rows;
    int64_t codes = m.rows * ((inner * bits + 7) / 8);
    int64_t ranges = m.rows * ((inner + m.size - 1) / m.size) * 4;
    return ebb_stored_bits(codes, 8) + ebb_stored_bits(ranges, 8) + p->masks;
}

/* ---- one site ---- */

typedef struct coded {
    ebb_value codes, range;
    int64_t bits, group, to;
} coded;

static ebb_value decode(void *context, ebb_build *b, const ebb_type *shape)
{
    const coded *c = context;
    ebb_with_int(b, "bits", c->bits);
    ebb_with_int(b, "group", c->group);
    ebb_with_ints(b, "shape", shape->dims, (uint32_t)shape->rank);
    if (c->to != EBB_F32)
        ebb_with_int(b, "to", c->to);
    return ebb_emit(b, EBB_OP_DEQUANTIZE, c->codes, c->range);
}

/* {low, width} for each class; a negative width: none has been seen. */
static ebb_status running_range(ebb_edit *e, const ebb_code_site *p, int64_t classes,
                                ebb_value *range)
{
    static const float none[2 * MOST_CLASSES] = {0,  -1, 0,  -1, 0,  -1, 0,  -1, 0,  -1, 0,
                                                 -1, 0,  -1, 0,  -1, 0,  -1, 0,  -1, 0,  -1,
                                                 0,  -1, 0,  -1, 0,  -1, 0,  -1, 0,  -1};
    const int64_t dims[2] = {classes, 2};
    ebb_type type = ebb_type_tensor(EBB_F32, 2, dims);
    char *name = ebb_arena_printf(e->scratch, "%s.range", ebb_value_name(e->g, p->root));
    EBB_GOT(name);
    return ebb_graph_add_initializer(e->g, range, name, &type, none, EBB_ROLE_STATISTIC);
}

static ebb_status rewrite(state *s, const ebb_code_site *p, int bits)
{
    ebb_graph *g = s->e->g;
    grouping m = groups_of(s, p);
    ebb_value key, range = EBB_NO_VALUE, out[3];
    EBB_TRY(ebb_random_key(s->e, &key));
    if (s->mesa)
        EBB_TRY(running_range(s->e, p, m.classes, &range));
    ebb_build b = ebb_encode_after(s->e, p->root);
    ebb_with_int(&b, "bits", bits);
    ebb_with_int(&b, "group", m.size);
    if (m.axis != 1)
        ebb_with_int(&b, "axis", m.axis);
    ebb_with_int(&b, "stream", ebb_random_stream(g, b.name));
    if (s->mesa)
        ebb_emit_node(&b, EBB_OP_QUANTIZE_RUNNING, (ebb_value[]){p->root, key, range}, 3, out, 3,
                      7);
    else
        ebb_emit_node(&b, EBB_OP_QUANTIZE, (ebb_value[]){p->root, key}, 2, out, 2, 3);
    EBB_TRY(b.status);
    if (s->mesa)
        EBB_TRY(ebb_graph_bind(g, range, out[2]));
    coded c = {out[0], out[1], bits, m.size, ebb_value_of(g, p->root)->type->dtype};
    return ebb_code_site_decode(s->e, p, decode, &c);
}

static ebb_status visit(state *s, const ebb_code_site *p, int bits)
{
    ebb_found(s->e);
    if (p->refused != NULL)
        return ebb_skipped(s->e, p->node, p->refused);
    if (p->exponent && bits < 8)
        return ebb_skipped(
            s->e, p->node,
            "its readers take exponents of it, which fewer than 8 bits would blow up");
    if (bits == EBB_BITS_LEAVE)
        return ebb_skipped(s->e, p->node, "the bits that there are on average leave it as it is");
    int64_t codes = coded_bytes(s, p, bits);
    if (codes >= p->bytes)
        return ebb_skipped(s->e, p->node, "its codes and ranges would not be smaller");
    const ebb_offer offer = {.value = p->root,
                             .saved_bytes = p->bytes - codes,
                             .transient_bytes = codes,
                             .added_ns =
                                 ebb_code_ns(s->e->g, p->elements, p->bytes, codes, p->count),
                             .error = ebb_code_error(bits)};
    return ebb_offered(s->e, p->node, &offer) ? rewrite(s, p, bits) : NULL;
}

/* ---- bits for all ---- */

/* Positions of the kernel / 4 / groups, of a convolution's input; else 1. */
static double dimension_factor(const ebb_graph *g, const ebb_code_site *p)
{
    double most = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        ebb_node n = p->reads[i].node;
        bool last = ebb_node_of(g, n)->op == EBB_OP_CONV_WEIGHT_GRAD_NHWC;
        if (ebb_node_of(g, n)->op != EBB_OP_CONV_WEIGHT_GRAD && !last)
            continue;
        ebb_attrs attrs = ebb_node_attrs(g, n);
        const ebb_type *w = ebb_value_of(g, ebb_out(g, n, 0))->type;
        double positions = 1, groups = (double)ebb_attr_int(&attrs, "group", 1);
        for (int d = last ? 1 : 2; d < w->rank - last; d++)
            positions *= (double)w->dims[d];
        most = fmax(most, positions / 4 / fmax(groups, 1));
    }
    return most > 0 ? most : 1;
}

static ebb_status share_bits(state *s)
{
    const char *file = ebb_option_string(s->e, "measured");
    size_t count = 0, missing = 0;
    ebb_bits_item **items = EBB_SCRATCH(s->e, ebb_bits_item *, s->sites.count + 1);
    EBB_GOT(items);
    for (size_t i = 0; i < s->sites.count; i++) {
        const ebb_code_site *p = &s->sites.list[i];
        s->bits[i].bits = 8; // of what is too small to have a share: any code of it is larger
        if (p->refused != NULL || coded_bytes(s, p, 1) >= p->bytes)
            continue;
        s->bits[i] = (ebb_bits_item){.name = ebb_value_name(s->e->g, p->root),
                                     .weight = (double)p->elements,
                                     .cost = s->gact ? 1 : dimension_factor(s->e->g, p),
                                     .least = p->exponent ? 8 : 1};
        items[count++] = &s->bits[i];
    }
    if (file == NULL && count > 0)
        EBB_TRY(ebb_note(s->e, "no measurements are given (measured=FILE, which `ebb bench "
                               "--sensitivity` makes): the bits are shared by shapes alone"));
    if (file != NULL)
        EBB_TRY(ebb_bits_measured(items, count, file, s->gact, &missing));
    if (missing > 0)
        EBB_TRY(ebb_note(s->e, "of %zu tensors, %zu are not in %s: they count as the others' mean",
                         count, missing, file));
    ebb_bits_share(items, count, s->gact ? EBB_BITS_LEAVE : 8, ebb_option_float(s->e, "average"));
    return NULL;
}

static ebb_status choose_bits(state *s)
{
    s->bits = EBB_SCRATCH(s->e, ebb_bits_item, s->sites.count + 1);
    EBB_GOT(s->bits);
    if (strcmp(ebb_option_string(s->e, "bits"), "mixed") == 0)
        return share_bits(s);
    for (size_t i = 0; i < s->sites.count; i++)
        s->bits[i].bits = (int)ebb_option_int(s->e, "bits");
    return NULL;
}

/* ---- the pass ---- */

static ebb_status check_options(state *s)
{
    const char *bits = ebb_option_string(s->e, "bits"), *scheme = ebb_option_string(s->e, "scheme");
    bool mixed = strcmp(bits, "mixed") == 0;
    s->mesa = strcmp(scheme, "mesa") == 0;
    s->gact = strcmp(scheme, "gact") == 0;
    s->group = ebb_option_int(s->e, "group");
    if (!mixed && (ebb_option_given(s->e, "average") || ebb_option_given(s->e, "measured")))
        return ebb_error(EBB_USAGE, "pass quantise: average and measured are for bits=mixed");
    if (s->mesa && strcmp(bits, "8") != 0)
        return ebb_error(EBB_USAGE, "pass quantise: scheme=mesa keeps bits=8, not %s", bits);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e};
    EBB_TRY(check_options(&s));
    EBB_TRY(ebb_code_sites_find(&s.sites, e, ebb_option_string(e, "only")));
    EBB_TRY(choose_bits(&s));
    for (size_t i = 0; i < s.sites.count; i++)
        EBB_TRY(visit(&s, &s.sites.list[i], s.bits[i].bits));
    return NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"bits",     EBB_OPTION_CHOICE, "8",     "1|2|4|8|mixed",     "of each code; mixed: shared out, so that they are `average` on average"},
    {"group",    EBB_OPTION_INT,    "256",   "[8, 1048576] by 8", "elements with a range in common, within a row: a multiple of 8"},
    {"scheme",   EBB_OPTION_CHOICE, "actnn", "actnn|mesa|gact",   "actnn, gact: a range for each group, mixed bits by ranges and gradients, or by changes of the gradient that were measured; mesa: running ranges"},
    {"only",     EBB_OPTION_STRING, NULL,    NULL,                "names of tensors, with * and ?; others are left as they are"},
    {"measured", EBB_OPTION_STRING, NULL,    NULL,                "for mixed bits: what `ebb bench --sensitivity -o FILE` wrote; without, shapes decide"},
    {"average",  EBB_OPTION_FLOAT,  "2",     "bits [1, 32]",      "bits for each element, of mixed bits"},
    {"seed",     EBB_OPTION_INT,    "1",     "[0, inf)",          "of the random key, where the model has none"},
    {NULL, 0, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_quantise = {
    .name = "quantise",
    .doc = "keep what the backward reads as codes of 1 to 8 bits, rounded at random without bias",
    .paper = "Chen et al., ActNN, ICML 2021",
    .exactness = EBB_LOSSY,
    .options = options,
    .run = run,
};
// clang-format on
