/* split-frequency: an image that the backward reads again is kept as means of its blocks and what
 * is left in codes of few bits.
 *
 *   before   y = Conv(x, w)                                  dw = ConvWeightGrad(dy, x)
 *   after    y = Conv(x, w)                                  x_1 = ai.ebb.SplitFrequencyDecode(...)
 *            low, codes, range = ai.ebb.SplitFrequency(x)    dw = ConvWeightGrad(dy, x_1)
 *
 * Neighbours in an image are alike, so most of its range is in the means, which 16 bits keep for
 * each block * block elements; the rest has a smaller range, and so smaller steps for as many bits.
 * What bfloat16 does to a mean is part of the rest: nothing is lost but by rounding at random,
 * which is without bias. Each plane of an image has one range. Readers decode as those of quantise
 * do, and those that ask but for a sign get a mask of one bit.
 *
 * What a convolution with channels last reads, or made some nodes before, is an image with channels
 * last. A transpose puts its planes together before they are coded, and one takes them apart when
 * they are decoded; its pixels in rows, and as a pool sees them, are views of it.
 *
 * Lossy: for a plane whose rest has the range D, as quantise says.
 *
 * Declines where the value is no batch of images, or a reader wants it in another shape; and where
 * quantise would.
 *
 * Paper: Wang et al., "DIVISION: memory efficient training via dual activation precision", ICML
 * 2023.
 */
#include "exec/weigh/estimate.h"
#include "passes/memory/lossy/code_sites.h"

enum { NODES_BEFORE = 8 }; /* that an image is followed back through */

typedef struct image_shape {
    ebb_type planes; /* [N, C, H, W] */
    bool last;       /* it lies as [N, H, W, C] */
} image_shape;

typedef struct coded {
    ebb_value low, codes, range;
    int64_t bits, block, to;
    image_shape image;
} coded;

/* ---- images ---- */

static bool is_conv_nhwc(ebb_op op)
{
    return op == EBB_OP_CONV_NHWC || op == EBB_OP_CONV_TRANSPOSE_NHWC ||
           op == EBB_OP_CONV_WEIGHT_GRAD_NHWC;
}

/* Whether a convolution with channels last made v, or what v is, element by element, made of. */
static bool comes_last(const ebb_graph *g, ebb_value v)
{
    for (int i = 0; i < NODES_BEFORE; i++) {
        ebb_node n = ebb_value_of(g, v)->producer;
        ebb_op op = ebb_producer_op(g, v);
        if (n.i == 0 || is_conv_nhwc(op))
            return n.i != 0;
        ebb_value from = ebb_in(g, n, 0);
        bool follows = from.i != 0 && op != EBB_OP_TRANSPOSE &&
                       (ebb_op_has(op, EBB_VIEW) ||
                        ebb_type_same_shape(ebb_value_of(g, from)->type, ebb_value_of(g, v)->type));
        if (!follows)
            return false;
        v = from;
    }
    return false;
}

/* The site as planes; false where it is no batch of images. */
static bool find_image(image_shape *found, const ebb_graph *g, const ebb_code_site *p)
{
    ebb_value v = ebb_value_of(g, p->root)->type->rank == 4 ? p->root : EBB_NO_VALUE;
    found->last = comes_last(g, p->root);
    for (uint32_t i = 0; i < p->count; i++) {
        ebb_value read = ebb_in(g, p->reads[i].node, p->reads[i].slot);
        if (v.i == 0 && ebb_value_of(g, read)->type->rank == 4)
            v = read;
        if (ebb_value_of(g, read)->type->rank == 4 &&
            is_conv_nhwc(ebb_node_of(g, p->reads[i].node)->op))
            found->last = true;
    }
    if (v.i == 0 || (!found->last && !ebb_same_value(v, p->root)))
        return false;
    const ebb_type t = *ebb_value_of(g, v)->type;
    found->planes = t;
    if (found->last) {
        found->planes.dims[1] = t.dims[3];
        found->planes.dims[2] = t.dims[1];
        found->planes.dims[3] = t.dims[2];
    }
    return true;
}

/* ---- codes ---- */

static int64_t coded_bytes(const ebb_type *x, int64_t block, int64_t bits)
{
    int64_t planes = x->dims[0] * x->dims[1];
    int64_t low = planes * ebb_up(x->dims[2], block) * ebb_up(x->dims[3], block) * 2;
    int64_t codes = planes * ebb_up(x->dims[2] * x->dims[3], 8 / bits);
    return ebb_stored_bits(low, 8) + ebb_stored_bits(codes, 8) + ebb_stored_bits(planes * 4, 8);
}

static ebb_value decode(void *context, ebb_build *b, const ebb_type *shape)
{
    static const int64_t last[] = {0, 2, 3, 1};
    const coded *c = context;
    ebb_with_int(b, "block", c->block);
    ebb_with_int(b, "bits", c->bits);
    ebb_with_ints(b, "shape", c->image.planes.dims, 4);
    if (c->to != EBB_F32)
        ebb_with_int(b, "to", c->to);
    ebb_value x = ebb_emit(b, EBB_OP_SPLIT_FREQUENCY_DECODE, c->low, c->codes, c->range);
    if (!c->image.last)
        return x;
    x = ebb_emit_transpose(b, x, last, 4);
    if (b->status != NULL || ebb_type_same_shape(ebb_build_type(b, x), shape))
        return x;
    return ebb_emit_reshape(b, x, shape->dims, shape->rank);
}

/* The root as planes, made beside it. */
static ebb_value planes_of(ebb_build *b, ebb_value root, const image_shape *i)
{
    static const int64_t first[] = {0, 3, 1, 2};
    const int64_t *d = i->planes.dims, dims[] = {d[0], d[2], d[3], d[1]};
    if (!i->last)
        return root;
    ebb_value x =
        ebb_value_of(b->g, root)->type->rank == 4 ? root : ebb_emit_reshape(b, root, dims, 4);
    return ebb_emit_transpose(b, x, first, 4);
}

static ebb_status rewrite(ebb_edit *e, const ebb_code_site *p, const image_shape *i, int64_t block,
                          int64_t bits)
{
    ebb_value key, out[3];
    EBB_TRY(ebb_random_key(e, &key));
    ebb_build b = ebb_encode_after(e, p->root);
    ebb_value x = planes_of(&b, p->root, i);
    ebb_with_int(&b, "block", block);
    ebb_with_int(&b, "bits", bits);
    ebb_with_int(&b, "stream", ebb_random_stream(e->g, b.name));
    ebb_emit_node(&b, EBB_OP_SPLIT_FREQUENCY, (ebb_value[]){x, key}, 2, out, 3, 7);
    EBB_TRY(b.status);
    coded c = {out[0], out[1], out[2], bits, block, ebb_value_of(e->g, p->root)->type->dtype, *i};
    return ebb_code_site_decode(e, p, decode, &c);
}

static const char *refused(const ebb_graph *g, const ebb_code_site *p, image_shape *image)
{
    const ebb_type *x = ebb_value_of(g, p->root)->type;
    if (p->refused != NULL)
        return p->refused;
    if (!find_image(image, g, p))
        return "it is no batch of images";
    for (uint32_t i = 0; i < p->count && !image->last; i++)
        if (!ebb_type_same_shape(
                x, ebb_value_of(g, ebb_in(g, p->reads[i].node, p->reads[i].slot))->type))
            return "the backward reads it in another shape";
    return p->exponent ? "its readers take exponents of it" : NULL;
}

static ebb_status visit(ebb_edit *e, const ebb_code_site *p, int64_t block, int64_t bits)
{
    image_shape image;
    const char *reason = refused(e->g, p, &image);
    ebb_found(e);
    if (reason != NULL)
        return ebb_skipped(e, p->node, reason);
    int64_t codes = coded_bytes(&image.planes, block, bits) + p->masks;
    if (codes >= p->bytes)
        return ebb_skipped(e, p->node, "its means and codes would not be smaller");
    ebb_offer offer = {.value = p->root,
                       .saved_bytes = p->bytes - codes,
                       .transient_bytes = codes,
                       .added_ns = ebb_code_ns(e->g, p->elements, 2 * p->bytes, codes, p->count),
                       .error = ebb_code_error((int)bits)};
    if (image.last) {
        offer.transient_bytes += p->bytes;
        offer.added_ns += (1 + p->count) * ebb_roofline_ns(e->g, 0, 2 * (double)p->bytes);
    }
    return ebb_offered(e, p->node, &offer) ? rewrite(e, p, &image, block, bits) : NULL;
}

static ebb_status run(ebb_edit *e)
{
    int64_t block = ebb_option_int(e, "block"), bits = ebb_option_int(e, "bits");
    ebb_code_sites sites;
    EBB_TRY(ebb_code_sites_find(&sites, e, ebb_option_string(e, "only")));
    for (size_t i = 0; i < sites.count; i++)
        EBB_TRY(visit(e, &sites.list[i], block, bits));
    return NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"block", EBB_OPTION_INT,    "8",  "[2, 64]",  "height and width of what has a mean in common"},
    {"bits",  EBB_OPTION_CHOICE, "2",  "1|2|4|8",  "of each code of the rest"},
    {"only",  EBB_OPTION_STRING, NULL, NULL,       "names of tensors, with * and ?; others are left as they are"},
    {"seed",  EBB_OPTION_INT,    "1",  "[0, inf)", "of the random key, where the model has none"},
    {NULL, 0, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_split_frequency = {
    .name = "split-frequency",
    .doc = "keep images as means of blocks in 16 bits and the rest as codes of few bits",
    .paper = "Wang et al., DIVISION, ICML 2023",
    .exactness = EBB_LOSSY,
    .options = options,
    .run = run,
};
// clang-format on
