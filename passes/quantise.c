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
 * Papers: Chen et al., "ActNN: reducing training memory footprint via 2-bit activation compressed
 * training", ICML 2021; Liu et al., "GACT: activation compressed training for generic network
 * architectures", ICML 2022; Pan et al., "Mesa: a memory-saving training framework for
 * transformers", 2021.
 */
#include <math.h>

#include "exec/estimate.h"
#include "passes/bits.h"
#include "passes/decode.h"
#include "passes/passes.h"

typedef enum reading { /* how a reader takes an error of what it reads */
                       READS_LINEAR,
                       READS_SMOOTH,   /* through a bounded function */
                       READS_EXPONENT, /* scores of attention: few bits would blow up */
                       READS_SIGN,
                       READS_EXACTLY, /* does not bear any */
} reading;

typedef struct site {
    ebb_value root;
    ebb_node node; /* for reports */
    const ebb_use *reads;
    uint32_t count;
    int64_t rows, inner, bytes, masks;
    int axis;
    ebb_bits_item bits;
    const char *refused;
} site;

typedef struct state {
    ebb_edit *e;
    ebb_reads reads;
    site *sites;
    size_t count;
    int64_t group;
    const char *scheme;
    ebb_value key;
} state;

/* ---- readers ---- */

static reading by_slot(uint32_t slot, uint32_t saved, reading how)
{
    return slot == saved ? how : READS_EXACTLY;
}

static reading reading_of(const ebb_graph *g, ebb_use use)
{
    ebb_sign_question q;
    switch (ebb_node_of(g, use.node)->op) {
    case EBB_OP_MATMUL:
    case EBB_OP_FUSED_MATMUL:
    case EBB_OP_GEMM:
    case EBB_OP_CONV:
    case EBB_OP_CONV_TRANSPOSE:
    case EBB_OP_CONV_WEIGHT_GRAD:
    case EBB_OP_ADD:
    case EBB_OP_SUB:
    case EBB_OP_SUM:
    case EBB_OP_MUL:
    case EBB_OP_NEG:
    case EBB_OP_REDUCE_SUM:
    case EBB_OP_REDUCE_MEAN:
    case EBB_OP_TRANSPOSE:
    case EBB_OP_CONCAT:
    case EBB_OP_SPLIT:
    case EBB_OP_SLICE:
    case EBB_OP_EXPAND:
        return READS_LINEAR;
    case EBB_OP_DIV:
    case EBB_OP_GATHER:
        return by_slot(use.slot, 0, READS_LINEAR);
    case EBB_OP_WHERE:
        return use.slot == 0 ? READS_EXACTLY : READS_LINEAR;
    case EBB_OP_BATCH_NORM_GRAD:
    case EBB_OP_LAYER_NORM_GRAD:
    case EBB_OP_RMS_NORM_GRAD:
    case EBB_OP_SOFTMAX_GRAD:
    case EBB_OP_GELU_GRAD:
    case EBB_OP_FAST_GELU_GRAD:
    case EBB_OP_QUICK_GELU_GRAD:
    case EBB_OP_SIGMOID_GRAD:
    case EBB_OP_TANH_GRAD:
        return by_slot(use.slot, 1, READS_SMOOTH);
    case EBB_OP_ERF:
    case EBB_OP_EXP:
    case EBB_OP_SIGMOID:
    case EBB_OP_TANH:
    case EBB_OP_SIN:
    case EBB_OP_COS:
        return READS_SMOOTH;
    case EBB_OP_EBB_ATTENTION_GRAD:
    case EBB_OP_EBB_ATTENTION_DROPOUT_GRAD:
        return use.slot == 3                    ? READS_LINEAR
               : use.slot == 1 || use.slot == 2 ? READS_EXPONENT
                                                : READS_EXACTLY;
    default:
        return ebb_asks_sign(g, use, &q) ? READS_SIGN : READS_EXACTLY;
    }
}

/* ---- sites ---- */

/* Means, variances, normalisers: few numbers on which many depend. */
static bool is_statistic(const ebb_graph *g, ebb_value v)
{
    ebb_node maker = ebb_value_of(g, v)->producer;
    if (maker.i == 0 || ebb_value_of(g, v)->producer_slot == 0)
        return false;
    ebb_op op = ebb_node_of(g, maker)->op;
    return op != EBB_OP_SPLIT && op != EBB_OP_LSTM && op != EBB_OP_LSTM_TRAINING;
}

static bool is_of_loss(const ebb_graph *g, ebb_value v)
{
    ebb_node maker = ebb_value_of(g, v)->producer;
    return maker.i != 0 && ebb_node_of(g, maker)->phase == EBB_LOSS;
}

/* Rows: the first dims whose product is more than one. */
static bool measure(site *s, const ebb_graph *g)
{
    const ebb_type *type = &ebb_value_of(g, s->root)->type;
    int64_t elements;
    s->bytes = ebb_stored_bytes(g, s->root);
    if (s->bytes == 0 || type->kind != EBB_KIND_TENSOR || !ebb_type_elements(type, &elements))
        return false;
    s->rows = 1;
    while (s->axis < type->rank && s->rows == 1)
        s->rows = type->dims[s->axis++];
    if (s->axis == type->rank && type->rank > 0) { // of nothing but rows: one row
        s->axis = 0;
        s->rows = 1;
    }
    s->inner = elements / s->rows;
    return true;
}

static int64_t coded_bytes(const state *s, const site *p, unsigned bits)
{
    int64_t codes = p->rows * ((p->inner * (int64_t)bits + 7) / 8);
    int64_t ranges = p->rows * ((p->inner + s->group - 1) / s->group) * 4;
    return ebb_stored_bits(codes, 8) + ebb_stored_bits(ranges, 8) + p->masks;
}

/* Readers, bytes of masks, and what the bits weigh. */
static void look(state *s, site *p)
{
    const ebb_graph *g = s->e->g;
    uint32_t signs = 0;
    ebb_sign_question q, seen[2];
    uint32_t masks = 0;
    p->bits.least = 1;
    for (uint32_t i = 0; i < p->count; i++) {
        reading how = reading_of(g, p->reads[i]);
        if (how == READS_EXACTLY)
            p->refused = "the backward reads it in a way that bears no error";
        if (how == READS_EXPONENT)
            p->bits.least = 8;
        if (how != READS_SIGN)
            continue;
        signs++;
        (void)ebb_asks_sign(g, p->reads[i], &q);
        bool known = false;
        for (uint32_t k = 0; k < masks && k < 2; k++)
            known = known || (seen[k].low == q.low && seen[k].high == q.high);
        if (!known && masks < 2)
            seen[masks] = q;
        masks += !known;
    }
    if (p->refused == NULL && signs == p->count)
        p->refused = "the backward asks only its sign, for which sign-mask keeps a bit";
    p->masks = (int64_t)masks * ebb_stored_bits(p->rows * p->inner, 1);
}

static bool is_wanted(const state *s, ebb_value v)
{
    const char *only = ebb_option_string(s->e, "only");
    return only == NULL || ebb_glob(only, ebb_value_name(s->e->g, v));
}

static ebb_status add_site(state *s, ebb_value v)
{
    const ebb_graph *g = s->e->g;
    ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, v)->type.dtype;
    site p = {.root = v};
    p.reads = ebb_reads_of(&s->reads, v, &p.count);
    if (!ebb_same_value(s->reads.saves.root[v.i], v) || !s->reads.saves.forward[v.i] ||
        p.count == 0 || (dtype != EBB_F32 && dtype != EBB_F64) || is_statistic(g, v) ||
        (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0 || ebb_value_constant(g, v) != NULL ||
        !is_wanted(s, v))
        return NULL;
    ebb_node maker = ebb_value_of(g, v)->producer;
    p.node = maker.i != 0 ? maker : p.reads[0].node;
    p.refused = ebb_must_stay(&s->reads, v);
    if (p.refused == NULL && is_of_loss(g, v))
        p.refused = "it is the loss's own";
    if (p.refused == NULL && !measure(&p, g))
        p.refused = "its size is not known";
    if (p.refused == NULL)
        look(s, &p);
    p.bits.name = ebb_value_name(g, v);
    p.bits.weight = (double)(p.rows * p.inner);
    s->sites[s->count++] = p;
    return NULL;
}

static ebb_status find_sites(state *s)
{
    const ebb_graph *g = s->e->g;
    EBB_TRY(ebb_reads_find(&s->reads, g, s->e->scratch));
    s->sites = EBB_SCRATCH(s->e, site, g->value_count);
    if (s->sites == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < g->input_count; i++)
        EBB_TRY(add_site(s, g->inputs[i]));
    EBB_EACH_NODE(g, n)
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++)
        if (ebb_out(g, n, k).i != 0)
            EBB_TRY(add_site(s, ebb_out(g, n, k)));
    return NULL;
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

static ebb_status rewrite(state *s, site *p)
{
    ebb_graph *g = s->e->g;
    ebb_value out[2];
    EBB_TRY(ebb_random_key(s->e, &s->key));
    ebb_build b = ebb_encode_after(s->e, p->root);
    ebb_with_int(&b, "bits", p->bits.bits);
    ebb_with_int(&b, "group", s->group);
    if (p->axis != 1)
        ebb_with_int(&b, "axis", p->axis);
    ebb_with_int(&b, "stream", ebb_random_stream(g, b.name));
    ebb_emit_node(&b, EBB_OP_QUANTIZE, (ebb_value[]){p->root, s->key}, 2, out, 2, 3);
    EBB_TRY(b.status);
    coded c = {out[0], out[1], p->bits.bits, s->group, ebb_value_of(g, p->root)->type.dtype};
    for (uint32_t i = 0; i < p->count; i++) {
        ebb_sign_question q;
        ebb_value read = ebb_in(g, p->reads[i].node, p->reads[i].slot);
        if (reading_of(g, p->reads[i]) == READS_SIGN) {
            (void)ebb_asks_sign(g, p->reads[i], &q);
            EBB_TRY(ebb_answer_sign(s->e, p->reads[i], p->root, &q));
        } else if (ebb_producer_op(g, read) != EBB_OP_DEQUANTIZE) // not the other operand's
            EBB_TRY(ebb_decode_before(s->e, p->reads[i], decode, &c));
    }
    ebb_applied(s->e);
    return NULL;
}

/* Of a normal distribution in groups of 256, whose range is 5.66 sigma on average: the root mean
 * square of the error, f (1 - f) D^2 with f spread evenly, by sigma. */
static double error_of(int bits)
{
    return 5.66 / ((double)((1 << bits) - 1) * sqrt(6.0));
}

/* Sixteen bits a draw, eight for each element of a vector of 32 lanes: measured beside the
 * roofline's machine; encoding reads the value twice. */
static const double flops_per_code = 20;

static ebb_status visit(state *s, site *p)
{
    ebb_found(s->e);
    if (p->refused != NULL)
        return ebb_skipped(s->e, p->node, p->refused);
    if (p->bits.bits < p->bits.least)
        return ebb_skipped(s->e, p->node,
                           "its readers take exponents of it: less than 8 bits would blow up");
    if (p->bits.bits == EBB_BITS_LEAVE)
        return ebb_skipped(s->e, p->node, "the bits that there are on average leave it as it is");
    int64_t codes = coded_bytes(s, p, (unsigned)p->bits.bits);
    if (codes >= p->bytes)
        return ebb_skipped(s->e, p->node, "its codes and ranges would not be smaller");
    double elements = p->bits.weight, bytes = (double)p->bytes;
    ebb_offer offer = {.value = p->root,
                       .saved_bytes = p->bytes - codes,
                       .transient_bytes = codes,
                       .error = error_of(p->bits.bits)};
    offer.added_ns = ebb_roofline_ns(flops_per_code * elements, bytes + (double)codes) +
                     p->count * ebb_roofline_ns(2 * elements, bytes + (double)codes);
    return ebb_offered(s->e, p->node, &offer) ? rewrite(s, p) : NULL;
}

/* ---- bits for all ---- */

/* Positions of the kernel / 4 / groups, of a convolution's input; else 1. */
static double dimension_factor(const ebb_graph *g, const site *p)
{
    double most = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        ebb_node n = p->reads[i].node;
        if (ebb_node_of(g, n)->op != EBB_OP_CONV_WEIGHT_GRAD)
            continue;
        ebb_attrs attrs = ebb_node_attrs(g, n);
        const ebb_type *w = &ebb_value_of(g, ebb_out(g, n, 0))->type;
        double positions = 1, groups = (double)ebb_attr_int(&attrs, "group", 1);
        for (int d = 2; d < w->rank; d++)
            positions *= (double)w->dims[d];
        most = fmax(most, positions / 4 / fmax(groups, 1));
    }
    return most > 0 ? most : 1;
}

static ebb_status share_bits(state *s)
{
    const char *file = ebb_option_string(s->e, "measured");
    bool gact = strcmp(s->scheme, "gact") == 0;
    size_t count = 0, missing = 0;
    ebb_bits_item **items = EBB_SCRATCH(s->e, ebb_bits_item *, s->count + 1);
    if (items == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < s->count; i++) {
        site *p = &s->sites[i];
        if (p->refused != NULL || coded_bytes(s, p, 1) >= p->bytes)
            continue;
        p->bits.cost = gact ? 1 : dimension_factor(s->e->g, p);
        items[count++] = &p->bits;
    }
    if (file == NULL && count > 0)
        EBB_TRY(ebb_note(s->e, "no measurements are given (measured=FILE, which `ebb bench "
                               "--sensitivity` makes): the bits are shared by shapes alone"));
    if (file != NULL) {
        EBB_TRY(ebb_bits_measured(items, count, file, gact, &missing));
        if (missing > 0)
            EBB_TRY(ebb_note(s->e,
                             "of %zu tensors, %zu are not in %s: they count as the mean of the "
                             "others",
                             count, missing, file));
    }
    ebb_bits_share(items, count, gact ? EBB_BITS_LEAVE : 8, ebb_option_float(s->e, "average"));
    return NULL;
}

static ebb_status choose_bits(state *s)
{
    const char *bits = ebb_option_string(s->e, "bits");
    if (strcmp(bits, "mixed") == 0)
        return share_bits(s);
    for (size_t i = 0; i < s->count; i++)
        s->sites[i].bits.bits = (int)ebb_option_int(s->e, "bits");
    return NULL;
}

/* ---- the pass ---- */

static ebb_status check_options(state *s)
{
    bool mixed = strcmp(ebb_option_string(s->e, "bits"), "mixed") == 0;
    double average = ebb_option_float(s->e, "average");
    s->scheme = ebb_option_string(s->e, "scheme");
    s->group = ebb_option_int(s->e, "group");
    if (s->group < 8 || s->group > 1 << 20 || s->group % 8 != 0)
        return ebb_error(EBB_USAGE,
                         "pass quantise: group=%lld is not a multiple of 8 from 8 to 1048576",
                         (long long)s->group);
    if (!(average >= 1 && average <= 32))
        return ebb_error(EBB_USAGE,
                         "pass quantise: average=%g is not a number of bits from 1 to 32", average);
    if (!mixed && (ebb_option_given(s->e, "average") || ebb_option_given(s->e, "measured")))
        return ebb_error(EBB_USAGE, "pass quantise: average and measured are for bits=mixed");
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e};
    EBB_TRY(check_options(&s));
    EBB_TRY(find_sites(&s));
    EBB_TRY(choose_bits(&s));
    for (size_t i = 0; i < s.count; i++)
        EBB_TRY(visit(&s, &s.sites[i]));
    return NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"bits",     EBB_OPTION_CHOICE, "8",     "1|2|4|8|mixed", "of each code; mixed: shared out, so that they are `average` on average"},
    {"group",    EBB_OPTION_INT,    "256",   NULL,            "elements with a range in common, within a row: a multiple of 8"},
    {"scheme",   EBB_OPTION_CHOICE, "actnn", "actnn|gact",    "what mixed bits go by: ranges and gradients (actnn), or measured changes of the gradient (gact)"},
    {"only",     EBB_OPTION_STRING, NULL,    NULL,            "names of tensors, with * and ?; others are left as they are"},
    {"measured", EBB_OPTION_STRING, NULL,    NULL,            "a file of sensitivities, for mixed bits"},
    {"average",  EBB_OPTION_FLOAT,  "2",     NULL,            "bits for each element, of mixed bits"},
    {"seed",     EBB_OPTION_INT,    "1",     NULL,            "of the random key, where the model has none"},
    {NULL, 0, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_quantise = {
    .name = "quantise",
    .doc = "keep what the backward reads as codes of 1 to 8 bits, rounded at random without bias",
    .paper = "Chen et al., ActNN, ICML 2021",
    .exactness = EBB_LOSSY,
    .options = options,
    .run = run,
    .offers = true,
};
// clang-format on
