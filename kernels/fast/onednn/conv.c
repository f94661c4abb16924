/* conv.c: Conv, ConvTranspose as oneDNN's backward-by-data, ConvWeightGrad as its
 * backward-by-weights; the same with channels last, which are the same to oneDNN with strides.
 *
 * See kernels/call/geometry.h for the wide and the narrow tensor. oneDNN is told the layouts that the
 * tensors have where they are not row-major, and otherwise chooses: its kernels for blocks of 16
 * channels win back more than the reorders cost. A 1x1 convolution of stride 1 is a matrix product
 * of row-major tensors, without any copies:
 *
 *     Y[n] = W X[n]      dX[n] = W' dY[n]      dW = sum over n of dY[n] X[n]'
 *                                              X[n]: [C, HW], Y[n]: [M, HW], W: [M, C]
 *
 * With channels last dW is one product, dY' X of [N HW, M] and [N HW, C]: oneDNN's convolution took 1.5 times as long.
 */
#include "kernels/fast/onednn/onednn.h"

/* The three tensors of the form, and the dims that oneDNN wants for them. */
typedef struct form {
    const ebb_type *wide, *narrow, *weight;
    int weight_rank;
    int64_t weight_dims[EBB_MAX_RANK];
} form;

static void read_form(form *f, const ebb_call *call, const ebb_geometry *w)
{
    const ebb_type *first = &call->in[0].type, *second = &call->in[1].type;
    const ebb_type *out = &call->out[0].type;
    f->wide = call->op == EBB_OP_CONV ? first : call->op == EBB_OP_CONV_TRANSPOSE ? out : second;
    f->narrow = call->op == EBB_OP_CONV ? out : first;
    f->weight = call->op == EBB_OP_CONV_WEIGHT_GRAD ? out : second;
    int r = 0;
    if (w->groups > 1)
        f->weight_dims[r++] = w->groups;
    f->weight_dims[r++] = w->narrow_channels / w->groups;
    for (int i = 1; i < f->weight->rank; i++)
        f->weight_dims[r++] = f->weight->dims[i];
    f->weight_rank = r;
}

enum { ROWS = 8 };          /* of a product: fewer are not worth a piece */
enum { SMALL_IMAGE = 128 }; /* elements; between 7x7 and 14x14, which were measured */

static ebb_dtype dtype_of(const ebb_type *type)
{
    return (ebb_dtype)type->dtype;
}

static bool is_plain(const ebb_type *type)
{
    return type->layout.kind == EBB_LAYOUT_PLAIN;
}

static const char *free_choice(ebb_dnnl_layout *md, const ebb_type *type, bool freely)
{
    if (!is_plain(type) && !freely)
        return ebb_dnnl_of_type(md, type);
    ebb_dnnl_any(md, (ebb_dtype)type->dtype, type->rank, type->dims);
    return NULL;
}

/* 1x1, stride 1, no padding, one group: a matrix product, */
static bool is_product(const ebb_geometry *w)
{
    for (int axis = 0; axis < EBB_AXES; axis++)
        if (w->kernel[axis] != 1 || w->stride[axis] != 1 || w->pad_begin[axis] != 0 ||
            w->pad_end[axis] != 0)
            return false;
    return w->groups == 1;
}

/* with images that are row-major. */
static bool is_plain_product(const ebb_geometry *w, const form *f)
{
    return is_product(w) && is_plain(f->wide) && is_plain(f->narrow);
}

static const char *make_product(ebb_dnnl_plan *plan, const ebb_call *call, const ebb_geometry *w,
                                const form *f)
{
    int64_t C = w->wide_channels, M = w->narrow_channels, V = ebb_geometry_volume(w->wide);
    bool forward = call->op == EBB_OP_CONV;
    const int64_t weight_dims[] = {1, forward ? M : C, forward ? C : M};
    const int64_t weight_strides[] = {M * C, forward ? C : 1, forward ? 1 : C};
    const int64_t pieces = ebb_dnnl_pieces(call, w->batch, 1), images = w->batch / pieces;
    const int64_t from[] = {images, forward ? C : M, V}, to[] = {images, forward ? M : C, V};
    ebb_dnnl_layout weight, source, result;
    ebb_dnnl_strided(&weight, dtype_of(f->weight), 3, weight_dims, weight_strides);
    ebb_dnnl_plain(&source, dtype_of(forward ? f->wide : f->narrow), 3, from);
    ebb_dnnl_plain(&result, dtype_of(forward ? f->narrow : f->wide), 3, to);
    EBB_ASK(ebb_dnnl_describe_product(plan, &weight, &source, NULL, &result, 1.0f, false));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_SRC, false, 1, &weight));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_WEIGHTS, false, 0, &source));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_DST, true, 0, &result));
    plan->pieces = pieces;
    plan->port[1].piece = (size_t)(images * from[1] * V) * ebb_dnnl_size(&source);
    plan->port[2].piece = (size_t)(images * to[1] * V) * ebb_dnnl_size(&result);
    return NULL;
}

/* dW, one image after the other into the same matrix. */
static const char *make_sum_of_products(ebb_dnnl_plan *plan, const ebb_call *call,
                                        const ebb_geometry *w, const form *f)
{
    int64_t C = w->wide_channels, all = w->narrow_channels, V = ebb_geometry_volume(w->wide);
    const int64_t pieces = ebb_dnnl_pieces(call, all, ROWS), M = all / pieces;
    const int64_t left[] = {M, V}, right[] = {V, C}, to[] = {M, C}, turned[] = {1, V};
    ebb_dnnl_layout source, weight, result;
    ebb_dnnl_plain(&source, dtype_of(f->narrow), 2, left);
    ebb_dnnl_strided(&weight, dtype_of(f->wide), 2, right, turned);
    ebb_dnnl_plain(&result, EBB_F32, 2, to);
    EBB_ASK(ebb_dnnl_describe_product(plan, &source, &weight, NULL, &result, 1.0f, true));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_SRC, false, 0, &source));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_WEIGHTS, false, 1, &weight));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_DST, true, 0, &result));
    plan->repeat = w->batch;
    plan->port[2].adds = true;
    plan->port[2].rounded = dtype_of(f->weight) != EBB_F32;
    plan->pieces = pieces;
    plan->port[0].piece = (size_t)(M * V) * ebb_dnnl_size(&source);
    plan->port[2].piece = (size_t)(M * C) * ebb_dnnl_size(&result);
    plan->port[0].step = (size_t)(all * V) * ebb_dnnl_size(&source);
    plan->port[1].step = (size_t)(C * V) * ebb_dnnl_size(&weight);
    return NULL;
}

/* dW of images with channels last. */
static const char *make_product_of_pixels(ebb_dnnl_plan *plan, const ebb_call *call,
                                          const ebb_geometry *w, const form *f)
{
    const int64_t C = w->wide_channels, all = w->narrow_channels;
    const int64_t pixels = w->batch * ebb_geometry_volume(w->wide);
    const int64_t pieces = ebb_dnnl_pieces(call, all, ROWS), M = all / pieces;
    const int64_t left[] = {M, pixels}, turned[] = {1, all}, right[] = {pixels, C}, to[] = {M, C};
    ebb_dnnl_layout source, weight, result;
    ebb_dnnl_strided(&source, dtype_of(f->narrow), 2, left, turned);
    ebb_dnnl_plain(&weight, dtype_of(f->wide), 2, right);
    ebb_dnnl_plain(&result, dtype_of(f->weight), 2, to);
    EBB_ASK(ebb_dnnl_describe_product(plan, &source, &weight, NULL, &result, 1.0f, false));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_SRC, false, 0, &source));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_WEIGHTS, false, 1, &weight));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_DST, true, 0, &result));
    plan->pieces = pieces;
    plan->port[0].piece = (size_t)M * ebb_dnnl_size(&source);
    plan->port[2].piece = (size_t)(M * C) * ebb_dnnl_size(&result);
    return NULL;
}

static const char *read_axes(ebb_dnnl_windows *a, const ebb_geometry *w)
{
    memset(a, 0, sizeof *a);
    for (int i = 0; i < w->spatial; i++) {
        int from = EBB_AXES - w->spatial + i;
        a->stride[i] = w->stride[from];
        a->dilation[i] = w->dilation[from] - 1;
        a->begin[i] = w->pad_begin[from];
        // oneDNN wants the number of windows to follow from the sizes: what no window meets goes.
        int64_t reach =
            (w->narrow[from] - 1) * w->stride[from] + (w->kernel[from] - 1) * w->dilation[from] + 1;
        int64_t slack = w->wide[from] + w->pad_begin[from] + w->pad_end[from] - reach;
        a->end[i] = slack >= w->stride[from] ? w->pad_end[from] - slack : w->pad_end[from];
        if (a->end[i] < 0)
            return "elements that no window meets";
    }
    return NULL;
}

static const char *bias_of(ebb_dnnl_layout *md, const ebb_call *call, int64_t channels)
{
    const ebb_type *type = &call->in[2].type;
    if (type->rank != 1 || type->dims[0] != channels)
        return "the bias has the wrong shape";
    ebb_dnnl_plain(md, (ebb_dtype)type->dtype, 1, type->dims);
    return NULL;
}

/* The threads divide images, blocks of 16 channels and, except for dW, rows among themselves. A dW
 * of few blocks wants an image for each thread that is left over. */
static int64_t least_images(const ebb_call *call, const ebb_geometry *w)
{
    if (call->op != EBB_OP_CONV_WEIGHT_GRAD)
        return 1;
    if (call->deterministic)
        return 1;
    int64_t blocks = (w->wide_channels / w->groups + 15) / 16;
    blocks *= (w->narrow_channels / w->groups + 15) / 16;
    blocks *= w->groups; // a channel count below its type's limit: no overflow
    return (ebb_threads() + blocks - 1) / blocks;
}

/* Row-major, or with the channels of a group innermost. */
static void weight_as_it_lies(ebb_dnnl_layout *md, const form *f)
{
    int64_t strides[EBB_MAX_RANK], step = 1;
    int channels = f->weight_rank - f->weight->rank + 1;
    if (is_plain(f->weight)) {
        ebb_dnnl_plain(md, dtype_of(f->weight), f->weight_rank, f->weight_dims);
        return;
    }
    strides[channels] = 1;
    step = f->weight_dims[channels];
    for (int i = f->weight_rank - 1; i >= 0; i--) {
        if (i == channels)
            continue;
        strides[i] = step;
        step *= f->weight_dims[i];
    }
    ebb_dnnl_strided(md, dtype_of(f->weight), f->weight_rank, f->weight_dims, strides);
}

/* The weight gradient of some of the narrow channels, with all that it reads of the narrow tensor:
 * how many such pieces there are. `part` is that tensor's type then. */
static int64_t cut_channels(form *f, ebb_type *part, const ebb_call *call, const ebb_geometry *w)
{
    const bool can = call->op == EBB_OP_CONV_WEIGHT_GRAD && w->groups == 1 && is_plain(f->narrow) &&
                     is_plain(f->weight);
    const int64_t pieces = can ? ebb_dnnl_pieces(call, w->narrow_channels, 16) : 1;
    if (pieces == 1)
        return 1;
    *part = *f->narrow;
    part->dims[1] /= pieces;
    f->narrow = part;
    f->weight_dims[0] /= pieces;
    return pieces;
}

/* The channels of the part, as they lie in the whole. */
static const char *as_it_lies(ebb_dnnl_layout *md, const ebb_type *part, const ebb_type *whole)
{
    int64_t strides[EBB_MAX_RANK];
    if (part == whole)
        return ebb_dnnl_of_type(md, whole);
    ebb_strides(strides, whole->rank, whole->dims);
    ebb_dnnl_strided(md, dtype_of(whole), whole->rank, part->dims, strides);
    return NULL;
}

/* freely: oneDNN chooses the layouts of the tensors, whatever they have. */
static const char *make_direct(ebb_dnnl_plan *plan, const ebb_call *call, const ebb_geometry *w,
                               const form *whole, bool freely)
{
    form cut = *whole;
    const form *f = &cut;
    ebb_type part;
    ebb_dnnl_layout wide, narrow, weight, bias, wide_outer, narrow_outer, weight_outer;
    ebb_dnnl_windows a;
    bool biased = call->op == EBB_OP_CONV && ebb_dnnl_has(call, 2);
    EBB_ASK(read_axes(&a, w));
    plan->pieces = cut_channels(&cut, &part, call, w);
    EBB_ASK(free_choice(&wide, f->wide, freely));
    EBB_ASK(free_choice(&narrow, f->narrow, freely));
    EBB_ASK(ebb_dnnl_of_type(&wide_outer, f->wide));
    EBB_ASK(as_it_lies(&narrow_outer, f->narrow, whole->narrow));
    if (biased)
        EBB_ASK(bias_of(&bias, call, w->narrow_channels));
    // A gradient stays float32 until it is written: it may be the sum of several parts.
    ebb_dnnl_any(&weight, call->op == EBB_OP_CONV_WEIGHT_GRAD ? EBB_F32 : dtype_of(f->weight),
                 f->weight_rank, f->weight_dims);
    weight_as_it_lies(&weight_outer, f);
    plan->least_images = least_images(call, w);
    if (call->op == EBB_OP_CONV) {
        EBB_ASK(ebb_dnnl_describe_conv(plan, EBB_DNNL_FORWARD, &wide, &weight,
                                       biased ? &bias : NULL, &narrow, &a));
        EBB_ASK(ebb_dnnl_add_images(plan, DNNL_ARG_SRC, false, 0, &wide_outer));
        EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_WEIGHTS, false, 1, &weight_outer));
        if (biased)
            EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_BIAS, false, 2, &bias));
        return ebb_dnnl_add_images(plan, DNNL_ARG_DST, true, 0, &narrow_outer);
    }
    bool by_data = call->op == EBB_OP_CONV_TRANSPOSE;
    EBB_ASK(ebb_dnnl_describe_conv(plan, by_data ? EBB_DNNL_BY_DATA : EBB_DNNL_BY_WEIGHTS, &wide,
                                   &weight, NULL, &narrow, &a));
    EBB_ASK(ebb_dnnl_add_images(plan, DNNL_ARG_DIFF_DST, false, 0, &narrow_outer));
    if (by_data) {
        EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_WEIGHTS, false, 1, &weight_outer));
        return ebb_dnnl_add_images(plan, DNNL_ARG_DIFF_SRC, true, 0, &wide_outer);
    }
    EBB_ASK(ebb_dnnl_add_images(plan, DNNL_ARG_SRC, false, 1, &wide_outer));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_DIFF_WEIGHTS, true, 0, &weight_outer));
    if (plan->pieces > 1) {
        const int64_t channels = f->narrow->dims[1];
        plan->port[0].piece =
            (size_t)(channels * ebb_geometry_volume(w->narrow)) * ebb_dnnl_size(&narrow_outer);
        plan->port[2].piece =
            (size_t)(weight_outer.dims[0] * weight_outer.strides[0]) * ebb_dnnl_size(&weight_outer);
    }
    return NULL;
}

static const char *make_nhwc(ebb_dnnl_plan *plan, const ebb_call *call, const ebb_geometry *w,
                             const form *f)
{
    if (call->op == EBB_OP_CONV_WEIGHT_GRAD && is_product(w))
        return make_product_of_pixels(plan, call, w, f);
    const char *why = make_direct(plan, call, w, f, false);
    if (why == NULL && !ebb_dnnl_is_slow(plan))
        return NULL;
    if (plan->descriptor != NULL)
        dnnl_primitive_desc_destroy(plan->descriptor);
    *plan = (ebb_dnnl_plan){.descriptor = NULL};
    return make_direct(plan, call, w, f, true);
}

static const char *make(ebb_dnnl_plan *plan, const ebb_call *call)
{
    ebb_geometry w;
    form f;
    ebb_channels_view view;
    bool nhwc = ebb_channels_first_op(call->op) != EBB_OP_UNKNOWN;
    if (nhwc)
        EBB_ASK(ebb_channels_first_read(&view, call));
    call = nhwc ? &view.call : call;
    EBB_ASK(ebb_dnnl_numbers(call));
    EBB_ASK(ebb_conv_read(&w, call));
    read_form(&f, call, &w);
    bool biased = call->op != EBB_OP_CONV_WEIGHT_GRAD && ebb_dnnl_has(call, 2);
    if ((!nhwc && !is_plain(f.weight)) || (biased && !is_plain(&call->in[2].type)))
        return "weights that are not row-major";
    if (biased && call->op == EBB_OP_CONV_TRANSPOSE &&
        (!is_plain(f.wide) || call->in[2].type.rank != 1 ||
         call->in[2].type.dims[0] != w.wide_channels))
        return "a bias beside a layout that is not row-major, or of the wrong shape";
    if (biased && call->op == EBB_OP_CONV_TRANSPOSE && dtype_of(f.wide) != EBB_F32)
        return "a bias that is added to float32 alone";
    if (nhwc)
        return make_nhwc(plan, call, &w, &f);
    if (call->op == EBB_OP_CONV_WEIGHT_GRAD && is_plain_product(&w, &f))
        return make_sum_of_products(plan, call, &w, &f);
    // At 7x7 the product took 1.3 times as long as the direct kernels with their copies.
    if (call->op != EBB_OP_CONV_WEIGHT_GRAD && is_plain_product(&w, &f) &&
        ebb_geometry_volume(w.wide) >= SMALL_IMAGE && !(biased && call->op == EBB_OP_CONV))
        return make_product(plan, call, &w, &f);
    return make_direct(plan, call, &w, &f, false);
}

EBB_DNNL_PHASES(make)

/* oneDNN's backward-by-data has no bias. */
static ebb_status run_transpose(const ebb_call *call)
{
    EBB_TRY(ebb_dnnl_run(call));
    if (!ebb_dnnl_has(call, 2))
        return NULL;
    const ebb_type *type = &call->out[0].type;
    const float *bias = call->in[2].data;
    float *y = call->out[0].data;
    int64_t channels = type->dims[1], volume = 1;
    for (int i = 2; i < type->rank; i++)
        volume *= type->dims[i];
    EBB_PARALLEL_FOR(type->dims[0] * channels * volume)
    for (int64_t image = 0; image < type->dims[0] * channels; image++) {
        EBB_SIMD
        for (int64_t i = 0; i < volume; i++)
            y[image * volume + i] += bias[image % channels];
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_conv[] = {
    {.name = "dnnl.conv",                  .op = EBB_OP_CONV,                  .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
    {.name = "dnnl.conv_transpose",        .op = EBB_OP_CONV_TRANSPOSE,        .fits = declines, .workspace = workspace, .prepare = prepare, .run = run_transpose, .release = ebb_dnnl_release},
    {.name = "dnnl.conv_weight_grad",      .op = EBB_OP_CONV_WEIGHT_GRAD,      .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
    {.name = "dnnl.conv_nhwc",             .op = EBB_OP_CONV_NHWC,             .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
    {.name = "dnnl.conv_transpose_nhwc",   .op = EBB_OP_CONV_TRANSPOSE_NHWC,   .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
    {.name = "dnnl.conv_weight_grad_nhwc", .op = EBB_OP_CONV_WEIGHT_GRAD_NHWC, .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
};
// clang-format on
EBB_DNNL_COUNT(conv)
