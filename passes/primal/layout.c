/* layout: images with channels last, as the convolutions of GPUs and of oneDNN want them.
 *
 *   before   x --Conv(w)--> BatchNormalization --> Relu --> Conv ... --> GlobalAveragePool
 *            [N, C, H, W] all the way
 *   after    x --Transpose--Pad--> ai.ebb.ConvNhwc(Transpose(w)) --> BatchNormalization --> Relu
 * ... [N, H, W, C], transposed only where an image comes in and where an operator needs the old
 * order; batch norm sees [N H W, C] and pools see [N, 1, H, W, C], which are views
 *
 * No value has a layout that its shape does not tell: an image with channels last is an ordinary
 * tensor [N, H, W, C], so all operators, passes, rulers and runtimes know what lies where, and
 * every transpose is a node with a cost. Only the convolutions need operators of their own.
 *
 * It runs before `gradient`: gradients of all that it emits are known, so those of images have
 * channels last too, without a rule for any gradient operator; and optimizers do not see it.
 *
 * Parameters keep their shapes and names, and with them optimizer states and files of weights. The
 * Transpose of a weight takes its bytes once more (none for 1 x 1 and depthwise kernels, where it
 * is a Reshape), as a value that recomputation may drop. With weights=stored it is the initializer
 * that is turned, its initial draw too, so nothing is transposed in a step, 16 bits or not; the mark "ebb.turned"
 * tells who loads and stores weights by name (exec/data/weights.c).
 *
 * Where a convolution of one group reads channels that are no multiple of `pad`, zeros are added to
 * its image and its weight: exact. GPUs multiply eight at a time; with order=auto a processor, which
 * does not, gets no pads, and channels last where they pay (layout/auto.c).
 *
 * Dropout keeps its order, in which its mask is drawn. So does all that is not in layout/rules.c:
 * transposes appear around it.
 */
#include "passes/primal/layout/layout.h"

#include "onnx/ops/window.h"

/* ---- images ---- */

bool ebb_is_image(const ebb_graph *g, ebb_value v)
{
    const ebb_type *t = ebb_value_of(g, v)->type;
    return v.i != 0 && t->kind == EBB_KIND_TENSOR && t->rank == 4 && t->dims[1] > 0 &&
           t->dims[2] > 0 && t->dims[3] > 0;
}

ebb_image *ebb_image_of(ebb_images *s, ebb_value v)
{
    return &s->of[v.i];
}

/* Whether channels first and last are the same bytes. */
static bool is_same_bytes(const ebb_type *t)
{
    return t->dims[1] == 1 || (t->dims[2] == 1 && t->dims[3] == 1);
}

ebb_value ebb_image_last(ebb_images *s, ebb_build *b, ebb_value v)
{
    static const int64_t perm[] = {0, 2, 3, 1};
    ebb_image *image = ebb_image_of(s, v);
    if (image->last.i != 0)
        return image->last;
    ebb_type t = *ebb_value_of(b->g, v)->type;
    const int64_t dims[] = {t.dims[0], t.dims[2], t.dims[3], t.dims[1]};
    const char *name = b->name;
    b->name = ebb_value_name(b->g, v);
    ebb_value last =
        is_same_bytes(&t) ? ebb_emit_reshape(b, v, dims, 4) : ebb_emit_transpose(b, v, perm, 4);
    b->name = name;
    image->last = last;
    return last;
}

ebb_value ebb_image_flat(ebb_images *s, ebb_build *b, ebb_value v)
{
    ebb_value last = ebb_image_last(s, b, v);
    ebb_image *image = ebb_image_of(s, v);
    if (image->flat.i == 0 && b->status == NULL) {
        ebb_type t = *ebb_build_type(b, last);
        int64_t pixels;
        if (t.dims[0] < 0 || __builtin_mul_overflow(t.dims[0], t.dims[1] * t.dims[2], &pixels))
            pixels = -1;
        const int64_t dims[] = {pixels, t.dims[3]};
        image->flat = ebb_emit_reshape(b, last, dims, 2);
    }
    return image->flat;
}

ebb_value ebb_image_first(ebb_build *b, ebb_value last, const ebb_type *like)
{
    static const int64_t perm[] = {0, 3, 1, 2};
    return is_same_bytes(like) ? ebb_emit_reshape(b, last, like->dims, 4)
                               : ebb_emit_transpose(b, last, perm, 4);
}

/* v with channels last, and zeros for `extra` channels more. */
static ebb_value padded(ebb_images *s, ebb_build *b, ebb_value v, int64_t extra)
{
    const int64_t pads[] = {0, 0, 0, 0, 0, 0, 0, extra};
    ebb_value last = ebb_image_last(s, b, v);
    ebb_image *image = ebb_image_of(s, v);
    if (extra == 0)
        return last;
    if (image->padded.i == 0)
        image->padded = ebb_emit(b, EBB_OP_PAD, last, ebb_const_ints(b, pads, 8));
    return image->padded;
}

/* ---- convolutions ---- */

static bool is_conv(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->op == EBB_OP_CONV || ebb_node_of(g, n)->op == EBB_OP_CONV_TRANSPOSE;
}

static const char *window_of(ebb_window *w, const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    ebb_value x = ebb_in(g, n, 0), weight = ebb_in(g, n, 1);
    uint32_t count;
    if (!ebb_is_image(g, x))
        return "its input is not known to be an image of two axes";
    if (!ebb_is_image(g, weight) || !ebb_type_is_static(ebb_value_of(g, weight)->type) ||
        !ebb_is_image(g, ebb_out(g, n, 0)))
        return "the shape of its weight or output is not known";
    ebb_attr_ints(&attrs, "output_shape", &count);
    if (count != 0)
        return "its output_shape decides its pads";
    const int64_t *dims = ebb_value_of(g, x)->type->dims + 2;
    const int64_t *kernel = ebb_value_of(g, weight)->type->dims + 2;
    const char *wrong = ebb_node_of(g, n)->op == EBB_OP_CONV
                            ? ebb_window_resolve(w, &attrs, 2, dims, kernel, false)
                            : ebb_window_resolve_transposed(w, &attrs, 2, dims, kernel);
    return wrong != NULL ? "its window does not fit its input" : NULL;
}

static void with_window(ebb_build *b, const ebb_window *w, int64_t group, bool transposed)
{
    const int64_t pads[] = {w->begin[0], w->begin[1], w->end[0], w->end[1]};
    ebb_with_ints(b, "kernel_shape", w->kernel, 2);
    ebb_with_ints(b, "strides", w->stride, 2);
    ebb_with_ints(b, "dilations", w->dilation, 2);
    ebb_with_ints(b, "pads", pads, 4);
    ebb_with_int(b, "group", group);
    if (transposed)
        ebb_with_ints(b, "output_padding", w->output_padding, 2);
}

static bool image_is_same(const ebb_graph *g, ebb_value v)
{
    return is_same_bytes(ebb_value_of(g, v)->type);
}

static const char *convolve(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_graph *g = b->g;
    ebb_window w;
    const char *refused = window_of(&w, g, n);
    if (refused != NULL)
        return refused;
    bool transposed = ebb_node_of(g, n)->op == EBB_OP_CONV_TRANSPOSE;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    ebb_value x = ebb_in(g, n, 0), weight = ebb_in(g, n, 1), y = ebb_out(g, n, 0);
    int64_t group = ebb_attr_int(&attrs, "group", 1), channels = ebb_value_of(g, x)->type->dims[1];
    if (s->stored && !image_is_same(g, weight) && ebb_image_of(s, weight)->last.i == 0)
        ebb_build_fail(b, ebb_weight_stored(s, b, weight, &ebb_image_of(s, weight)->last));
    // The input channels of ConvTranspose are the first dim of its weight: left as they are.
    int64_t extra = group == 1 && !transposed ? (s->pad - channels % s->pad) % s->pad : 0;
    ebb_value bias = ebb_in(g, n, 2), made;
    ebb_value in[] = {padded(s, b, x, extra), padded(s, b, weight, extra), bias};
    with_window(b, &w, group, transposed);
    ebb_emit_node(b, transposed ? EBB_OP_CONV_TRANSPOSE_NHWC : EBB_OP_CONV_NHWC, in,
                  transposed ? 2 : 3, &made, 1, 1);
    if (b->status == NULL)
        ebb_keep_name(g, b->last, n);
    // Libraries know ConvTranspose as a gradient, which has no bias; here it adds without a view.
    bool adds = transposed && bias.i != 0;
    ebb_image_of(s, y)->last = adds ? ebb_emit(b, EBB_OP_ADD, made, bias) : made;
    return NULL;
}

/* ---- the walk ---- */

static bool reads_image(ebb_images *s, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(s->e->g, n);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (ebb_has_image(s, info->in[i]))
            return true;
    return false;
}

/* A subgraph reads it by name, whatever the uses say. */
static bool is_captured(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0 && (ebb_value_of(g, info->out[k])->flags & EBB_IS_CAPTURED) != 0)
            return true;
    return false;
}

static ebb_status visit(ebb_images *s, ebb_node n, bool *replaced)
{
    ebb_graph *g = s->e->g;
    bool conv = is_conv(g, n);
    *replaced = false;
    if (ebb_layout_comes_last(s, n) || (!conv && !reads_image(s, n)))
        return NULL;
    ebb_build b = ebb_edit_build(s->e, n, EBB_PHASE_NONE);
    ebb_value y = ebb_out(g, n, 0);
    b.name = y.i != 0 ? ebb_value_name(g, y) : NULL;
    const char *refused = is_captured(g, n) ? "a subgraph reads what it makes"
                          : conv            ? convolve(s, &b, n)
                                            : ebb_layout_follow(s, &b, n);
    EBB_TRY(b.status);
    *replaced = refused == NULL;
    if (!conv)
        return NULL;
    ebb_found(s->e);
    if (refused != NULL)
        return ebb_skipped(s->e, n, refused);
    ebb_applied(s->e);
    return NULL;
}

/* The replaced node goes; who still reads what it made gets that in the old order. */
static ebb_status retire(ebb_images *s, ebb_node n, size_t *transposes)
{
    ebb_graph *g = s->e->g;
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++) {
        ebb_value y = ebb_out(g, n, k);
        if (!ebb_value_is_read(g, y))
            continue;
        ebb_value with = ebb_image_of(s, y)->instead;
        if (with.i == 0) {
            ebb_build b = ebb_edit_build(s->e, n, EBB_PHASE_NONE);
            ebb_type type = *ebb_value_of(g, y)->type;
            b.name = ebb_value_name(g, y);
            with = ebb_image_first(&b, ebb_image_of(s, y)->last, &type);
            EBB_TRY(b.status);
            *transposes += ebb_producer_op(g, with) == EBB_OP_TRANSPOSE;
        }
        EBB_TRY(ebb_edit_replace(s->e, y, with));
    }
    ebb_edit_remove(s->e, n);
    return NULL;
}

static ebb_status decline_all(ebb_edit *e, const char *why)
{
    EBB_EACH_NODE(e->g, n)
        if (is_conv(e->g, n))
            EBB_TRY(ebb_declined(e, n, why));
    return NULL;
}

ebb_status ebb_layout_apply(ebb_edit *e, int64_t pad)
{
    ebb_graph *g = e->g;
    ebb_images s = {.e = e, .count = g->value_count, .pad = pad};
    s.stored = strcmp(ebb_option_string(e, "weights"), "stored") == 0;
    s.of = EBB_SCRATCH(e, ebb_image, g->value_count);
    ebb_node *replaced = EBB_SCRATCH(e, ebb_node, g->node_count);
    size_t count = 0, transposes = 0;
    EBB_GOT(s.of && replaced);
    EBB_EACH_NODE(g, n) {
        bool taken;
        EBB_TRY(visit(&s, n, &taken));
        if (taken)
            replaced[count++] = n;
    }
    for (size_t i = count; i-- > 0;) // readers before what they read
        EBB_TRY(retire(&s, replaced[i], &transposes));
    EBB_TRY(ebb_weights_settle(&s));
    if (transposes > 0)
        EBB_TRY(ebb_note(e, "%zu image%s transposed back for operators that want channels first",
                         transposes, transposes == 1 ? " is" : "s are"));
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    int64_t pad = ebb_option_int(e, "pad");
    const char *why_not = NULL;
    EBB_EACH_NODE(e->g, n)
        if (ebb_node_of(e->g, n)->phase == EBB_BACKWARD)
            return decline_all(e, "the graph has its gradient: layout goes before `gradient`");
    if (strcmp(ebb_option_string(e, "order"), "auto") == 0)
        EBB_TRY(ebb_layout_pays(&why_not, &pad, e));
    return why_not == NULL ? ebb_layout_apply(e, pad) : decline_all(e, why_not);
}

static const ebb_option options[] = {
    {"order", EBB_OPTION_CHOICE, "nhwc", "nhwc|auto",
     "nhwc: channels last; auto: where they make a step shorter"},
    {"pad", EBB_OPTION_INT, "8", "[1, 4096]",
     "convolutions read a multiple of so many channels; 1: as is"},
    {"weights", EBB_OPTION_CHOICE, "kept", "kept|stored",
     "kept: weights keep their shapes, and Transpose nodes turn them; stored: they are kept "
     "turned"},
    {"backend", EBB_OPTION_STRING, "cpu", NULL, "auto: which runs the step"},
    {0},
};

const ebb_pass ebb_pass_layout = {
    .name = "layout",
    .doc = "images with channels last, transposed only where they come in and go",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
