/* image, gradients: of what samples an image between its elements. Resize's is in resize_grad.c.
 *
 * GridSample and DeformConv read x at places that are inputs too: sampled.h has what flows into x
 * and into the places. All are nodes of operators that other runtimes have.
 */
#include "onnx/ops/common.h"
#include "onnx/ops/move/sampled.h"
#include "onnx/ops/window.h"

/* x as something that coordinates are computed in: float32, or float64 where it is that. */
static ebb_value as_coordinates(ebb_build *b, ebb_value x)
{
    if (b->status != NULL)
        return x;
    return ebb_emit_cast(b, x, ebb_build_type(b, x)->dtype == EBB_F64 ? EBB_F64 : EBB_F32);
}

/* dx[i] = v, in its shape and dtype. */
static void give(ebb_build *b, ebb_grad *c, uint32_t i, ebb_value v)
{
    if (b->status != NULL)
        return;
    v = ebb_emit_cast(b, v, (ebb_dtype)ebb_build_type(b, c->x[i])->dtype);
    c->dx[i] = ebb_emit_reshape_like(b, v, c->x[i]);
}

static void give_zeros(ebb_build *b, ebb_grad *c)
{
    for (uint32_t i = 0; i < c->input_count; i++)
        if (ebb_grad_wants(c, i))
            c->dx[i] = ebb_emit_zeros_like(b, c->x[i]);
}

/* ---- AffineGrid ---- */

/* y [N, d..., r] = theta [N, r, r + 1] times (coordinates, 1) of each place.  dtheta = dy' times
 * these, which size alone decides. */
void ebb_grad_affine_grid(ebb_build *b, ebb_grad *c)
{
    static const int64_t swap[3] = {0, 2, 1};
    ebb_type y;
    bool align = ebb_attr_int(&c->attrs, "align_corners", 0) != 0;
    if (!ebb_grad_shape(b, c, c->y[0], &y))
        return;
    const int64_t rank = y.rank - 2;
    if (rank < 1) { // as a file may say where size is not known
        ebb_build_fail(b, ebb_error(EBB_REJECTED, "%s: a grid has 3 dims at least, not %d",
                                    ebb_node_label(b->g, c->node), (int)y.rank));
        return;
    }
    size_t count = 1, bytes = 0;
    bool fits = true;
    for (int d = 1; d <= rank; d++)
        fits = fits && ebb_size_mul(&count, count, (size_t)y.dims[d]);
    fits = fits && ebb_size_mul(&bytes, count, (size_t)(rank + 1) * sizeof(double));
    const int64_t area = (int64_t)count;
    double *places = fits ? ebb_alloc(bytes) : NULL;
    if (!ebb_build_got(b, places))
        return;
    for (int64_t i = 0; i < area; i++) {
        double *at = places + i * (rank + 1);
        int64_t rest = i;
        at[rank] = 1;
        for (int64_t d = rank - 1; d >= 0; d--) { // innermost axis first
            int64_t n = y.dims[d + 1], k = rest % n;
            at[rank - 1 - d] = align ? (n > 1 ? 2.0 * (double)k / (double)(n - 1) - 1 : -1)
                                     : (2.0 * (double)k + 1) / (double)n - 1;
            rest /= n;
        }
    }
    const int64_t dims[2] = {area, rank + 1}, flat[3] = {y.dims[0], area, rank};
    ebb_value base = ebb_const_floats(b, (ebb_dtype)y.dtype, 2, dims, places);
    ebb_free(places);
    ebb_value dy = ebb_emit_transpose(b, ebb_emit_reshape(b, c->dy[0], flat, 3), swap, 3);
    c->dx[0] = ebb_emit(b, EBB_OP_MATMUL, dy, base);
}

/* ---- GridSample ---- */

static ebb_sampling read_sampling(const ebb_grad *c, const ebb_type *x)
{
    const char *mode = ebb_attr_string(&c->attrs, "mode", "linear");
    const char *padding = ebb_attr_string(&c->attrs, "padding_mode", "zeros");
    ebb_sampling s = {.rank = x->rank - 2};
    s.mode = strstr(mode, "linear") != NULL  ? EBB_SAMPLE_LINEAR
             : strstr(mode, "cubic") != NULL ? EBB_SAMPLE_CUBIC
                                             : EBB_SAMPLE_NEAREST;
    s.padding = strcmp(padding, "border") == 0       ? EBB_SAMPLE_BORDER
                : strcmp(padding, "reflection") == 0 ? EBB_SAMPLE_REFLECTION
                                                     : EBB_SAMPLE_ZEROS;
    s.align = ebb_attr_int(&c->attrs, "align_corners", 0) != 0;
    for (int d = 0; d < s.rank; d++)
        s.size[d] = x->dims[d + 2];
    return s;
}

/* Where axis d of the grid, -1 to 1, lies in the image, and the derivative of that. grid: [N, Q,
 * rank], the innermost axis first. */
static ebb_value place_along(ebb_build *b, const ebb_sampling *s, int d, ebb_value grid,
                             ebb_value *slope)
{
    const int64_t which = s->rank - 1 - d, dims[2] = {0, -1};
    double n = (double)s->size[d];
    ebb_value at = ebb_emit_picked(b, grid, 2, &which, 1);
    at = ebb_emit_shifted(b, ebb_emit(b, EBB_OP_RESHAPE, at, ebb_const_ints(b, dims, 2)), 1);
    if (s->align)
        at = ebb_emit_scaled(b, ebb_emit_scaled(b, at, 0.5), n - 1);
    else
        at = ebb_emit_scaled(b, ebb_emit_shifted(b, ebb_emit_scaled(b, at, n), -1), 0.5);
    if (s->mode == EBB_SAMPLE_NEAREST)
        at = ebb_emit(b, EBB_OP_ROUND, at);
    at = ebb_emit_folded(b, s, d, at, slope);
    ebb_value scale = ebb_const_like(b, at, (s->align ? n - 1 : n) / 2);
    *slope = slope->i != 0 ? ebb_emit(b, EBB_OP_MUL, *slope, scale) : scale;
    return at;
}

/* y = GridSample(x, grid).  Needs the grid and, for its gradient, x. */
void ebb_grad_grid_sample(ebb_build *b, ebb_grad *c)
{
    ebb_type x, grid, y;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !ebb_grad_shape(b, c, c->x[1], &grid) ||
        !ebb_grad_shape(b, c, c->y[0], &y))
        return;
    ebb_sampling s = read_sampling(c, &x);
    int64_t size = 1, places = 1, elements;
    for (int d = 0; d < s.rank; d++) {
        size *= s.size[d];
        places *= y.dims[d + 2];
    }
    if (!ebb_type_elements(&y, &elements) || size == 0 || elements == 0) {
        give_zeros(b, c);
        return;
    }
    const int64_t wide[3] = {x.dims[0], x.dims[1], size}, rows[3] = {x.dims[0], places, s.rank};
    const int64_t narrow[3] = {x.dims[0], x.dims[1], places}, column[3] = {x.dims[0], places, 1};
    ebb_value at[EBB_MAX_RANK], slope[EBB_MAX_RANK], parts[EBB_MAX_RANK];
    ebb_sampled out = {.wants_dx = ebb_grad_wants(c, 0), .wants_places = ebb_grad_wants(c, 1)};
    ebb_value flat = as_coordinates(b, ebb_emit_reshape(b, c->x[1], rows, 3));
    for (int d = 0; d < s.rank; d++)
        at[d] = place_along(b, &s, d, flat, &slope[d]);
    ebb_value dy = ebb_emit_reshape(b, c->dy[0], narrow, 3);
    ebb_emit_sampled(b, &s, ebb_emit_reshape(b, c->x[0], wide, 3), at, dy, &out);
    if (out.wants_dx)
        give(b, c, 0, out.dx);
    if (!out.wants_places || b->status != NULL)
        return;
    if (s.mode == EBB_SAMPLE_NEAREST) {
        c->dx[1] = ebb_emit_zeros_like(b, c->x[1]);
        return;
    }
    for (int d = 0; d < s.rank; d++)
        parts[s.rank - 1 - d] =
            ebb_emit_reshape(b, ebb_emit(b, EBB_OP_MUL, out.dplace[d], slope[d]), column, 3);
    ebb_with_int(b, "axis", 2);
    give(b, c, 1, ebb_emit_list(b, EBB_OP_CONCAT, parts, (uint32_t)s.rank));
}

/* ---- RoiAlign ---- */

/* y = RoiAlign(x, rois, images).  Needs the regions and, for maxima, x. How many samples a bin has
 * can depend on the regions, so this is an operator of its own and no nodes. Nothing flows into the
 * regions: detectors are trained with them held fast, and PyTorch has no such gradient either. */
void ebb_grad_roi_align(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    bool before_16 = ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) < 16;
    const char *mode = ebb_attr_string(&c->attrs, "coordinate_transformation_mode",
                                       before_16 ? "output_half_pixel" : "half_pixel");
    bool most = strcmp(ebb_attr_string(&c->attrs, "mode", "avg"), "max") == 0;
    if (!ebb_grad_wants(c, 0) || !ebb_grad_shape(b, c, c->x[0], &x))
        return;
    ebb_with_int(b, "half", strcmp(mode, "half_pixel") == 0);
    ebb_with_int(b, "sampling_ratio", ebb_attr_int(&c->attrs, "sampling_ratio", 0));
    ebb_with_float(b, "spatial_scale", ebb_attr_float(&c->attrs, "spatial_scale", 1.0));
    if (most) {
        c->dx[0] = ebb_emit(b, EBB_OP_ROI_ALIGN_MAX_GRAD, c->dy[0], c->x[0], c->x[1], c->x[2]);
        return;
    }
    ebb_with_ints(b, "input_shape", x.dims, (uint32_t)x.rank);
    c->dx[0] = ebb_emit(b, EBB_OP_ROI_ALIGN_GRAD, c->dy[0], c->x[1], c->x[2]);
}

/* y = MaxRoiPool(x, rois).  Needs x and the regions, into which nothing flows: their bounds are rounded. */
void ebb_grad_max_roi_pool(ebb_build *b, ebb_grad *c)
{
    if (!ebb_grad_wants(c, 0))
        return;
    ebb_with_float(b, "spatial_scale", ebb_attr_float(&c->attrs, "spatial_scale", 1.0));
    c->dx[0] = ebb_emit(b, EBB_OP_MAX_ROI_POOL_GRAD, c->dy[0], c->x[0], c->x[1]);
}

/* ---- DeformConv ---- */

/* y[n, m, o] = bias + sum over channels j and taps k of w[m, j, k] mask[n, k, o] x at (place of tap
 * k in window o, plus its offset). `shares` groups of channels have offsets of their own.
 *
 *     value = x sampled           [N shares, C / shares, taps windows]
 *     columns = value mask        [N, groups, C / groups taps, windows]
 *     y = w columns
 */
typedef struct deformed {
    ebb_sampling s;
    ebb_window w;
    ebb_type x, weight, y;
    int64_t shares, groups, taps, windows, size;
} deformed;

static const char *read_deformed(deformed *f, const ebb_grad *c)
{
    int rank = f->x.rank - 2;
    f->shares = ebb_attr_int(&c->attrs, "offset_group", 1);
    f->groups = ebb_attr_int(&c->attrs, "group", 1);
    f->s = (ebb_sampling){.mode = EBB_SAMPLE_LINEAR, .padding = EBB_SAMPLE_ZEROS, .rank = rank};
    f->taps = f->windows = f->size = 1;
    const char *wrong =
        ebb_window_resolve(&f->w, &c->attrs, rank, f->x.dims + 2, f->weight.dims + 2, false);
    if (wrong != NULL)
        return wrong;
    if (f->shares < 1 || f->groups < 1 || f->x.dims[1] % f->shares != 0 ||
        f->x.dims[1] % f->groups != 0 || f->y.dims[1] % f->groups != 0)
        return "group and offset_group do not divide its channels";
    for (int d = 0; d < rank; d++) {
        f->s.size[d] = f->x.dims[d + 2];
        f->size *= f->x.dims[d + 2];
        f->taps *= f->w.kernel[d];
        f->windows *= f->w.out[d];
    }
    int64_t columns; // for each channel of x and of the batch; two taps an axis, and coordinates
    if (__builtin_mul_overflow(f->taps, f->windows, &columns) ||
        __builtin_mul_overflow(columns, f->x.dims[0] * f->x.dims[1], &columns) ||
        columns > INT64_MAX >> 16)
        return "its taps are too many";
    return NULL;
}

/* Where the taps of all windows lie along axis d, offsets included: [N shares, taps windows].
 * offsets: [N shares, taps, rank, windows]. */
static ebb_value tap_places(ebb_build *b, const deformed *f, int d, ebb_value offsets)
{
    const int64_t which = d, flat[2] = {f->x.dims[0] * f->shares, f->taps * f->windows};
    const int64_t row[2] = {1, f->taps * f->windows};
    double *at = ebb_alloc((size_t)row[1] * sizeof *at);
    if (!ebb_build_got(b, at))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < row[1]; i++) {
        int64_t tap = i / f->windows, window = i % f->windows;
        for (int k = f->s.rank - 1; k > d; k--) {
            tap /= f->w.kernel[k];
            window /= f->w.out[k];
        }
        at[i] = (double)(window % f->w.out[d] * f->w.stride[d] - f->w.begin[d] +
                         tap % f->w.kernel[d] * f->w.dilation[d]);
    }
    ebb_value off = ebb_emit_reshape(b, ebb_emit_picked(b, offsets, 2, &which, 1), flat, 2);
    ebb_value sum = EBB_NO_VALUE;
    if (b->status == NULL)
        sum = ebb_emit(b, EBB_OP_ADD, off,
                       ebb_const_floats(b, (ebb_dtype)ebb_build_type(b, off)->dtype, 2, row, at));
    ebb_free(at);
    return sum;
}

/* w' dy, as `value` is laid out. */
static ebb_value of_columns(ebb_build *b, const ebb_grad *c, const deformed *f, ebb_value dy)
{
    static const int64_t swap[4] = {0, 1, 3, 2};
    const int64_t rows = f->x.dims[1] / f->groups * f->taps;
    const int64_t split[4] = {1, f->groups, f->y.dims[1] / f->groups, rows};
    const int64_t flat[3] = {f->x.dims[0] * f->shares, f->x.dims[1] / f->shares,
                             f->taps * f->windows};
    ebb_value w = ebb_emit_transpose(b, ebb_emit_reshape(b, c->x[1], split, 4), swap, 4);
    return ebb_emit_reshape(b, ebb_emit(b, EBB_OP_MATMUL, w, dy), flat, 3);
}

/* dw = dy columns', summed over the batch. */
static ebb_value of_weight(ebb_build *b, const deformed *f, ebb_value dy, ebb_value columns)
{
    static const int64_t swap[4] = {0, 1, 3, 2}, batch = 0;
    const int64_t split[4] = {f->x.dims[0], f->groups, f->x.dims[1] / f->groups * f->taps,
                              f->windows};
    ebb_value turned = ebb_emit_transpose(b, ebb_emit_reshape(b, columns, split, 4), swap, 4);
    return ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, ebb_emit(b, EBB_OP_MATMUL, dy, turned), &batch, 1,
                           false);
}

static void give_bias(ebb_build *b, ebb_grad *c)
{
    int64_t axes[EBB_MAX_RANK];
    uint32_t count = 0;
    if (b->status != NULL || !ebb_grad_wants(c, 3))
        return;
    for (int d = 0; d < ebb_build_type(b, c->dy[0])->rank; d++)
        if (d != 1)
            axes[count++] = d;
    give(b, c, 3, ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, c->dy[0], axes, count, false));
}

/* What flows into x, w, offsets and mask. */
static void give_deformed(ebb_build *b, ebb_grad *c, const deformed *f)
{
    static const int64_t channels = 1;
    const int64_t n = f->x.dims[0] * f->shares, q = f->taps * f->windows;
    const int64_t wide[3] = {n, f->x.dims[1] / f->shares, f->size}, by_tap[3] = {n, 1, q};
    const int64_t at_tap[4] = {n, f->taps, f->s.rank, f->windows};
    const int64_t of_tap[4] = {n, f->taps, 1, f->windows};
    const int64_t out[4] = {f->x.dims[0], f->groups, f->y.dims[1] / f->groups, f->windows};
    ebb_value at[EBB_MAX_RANK], parts[EBB_MAX_RANK], dcolumns = EBB_NO_VALUE, dvalue = EBB_NO_VALUE;
    ebb_value mask = c->input_count > 4 ? c->x[4] : EBB_NO_VALUE;
    ebb_sampled got = {.wants_dx = ebb_grad_wants(c, 0), .wants_places = ebb_grad_wants(c, 2)};
    got.wants_value = ebb_grad_wants(c, 1) || ebb_grad_wants(c, 4);
    ebb_value dy = ebb_emit_reshape(b, c->dy[0], out, 4);
    ebb_value offsets = as_coordinates(b, ebb_emit_reshape(b, c->x[2], at_tap, 4));
    for (int d = 0; d < f->s.rank; d++)
        at[d] = tap_places(b, f, d, offsets);
    if (mask.i != 0)
        mask = ebb_emit_reshape(b, mask, by_tap, 3);
    if (got.wants_dx || got.wants_places || ebb_grad_wants(c, 4))
        dvalue = dcolumns = of_columns(b, c, f, dy);
    if (dvalue.i != 0 && mask.i != 0)
        dvalue = ebb_emit(b, EBB_OP_MUL, dcolumns, mask);
    ebb_emit_sampled(b, &f->s, ebb_emit_reshape(b, c->x[0], wide, 3), at, dvalue, &got);
    if (got.wants_dx)
        give(b, c, 0, got.dx);
    if (ebb_grad_wants(c, 1))
        give(b, c, 1,
             of_weight(b, f, dy,
                       mask.i != 0 ? ebb_emit(b, EBB_OP_MUL, got.value, mask) : got.value));
    if (ebb_grad_wants(c, 4))
        give(b, c, 4,
             ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, ebb_emit(b, EBB_OP_MUL, dcolumns, got.value),
                             &channels, 1, false));
    if (!got.wants_places || b->status != NULL)
        return;
    for (int d = 0; d < f->s.rank; d++)
        parts[d] = ebb_emit_reshape(b, got.dplace[d], of_tap, 4);
    ebb_with_int(b, "axis", 2);
    give(b, c, 2, ebb_emit_list(b, EBB_OP_CONCAT, parts, (uint32_t)f->s.rank));
}

/* y = DeformConv(x, w, offsets, bias?, mask?). */
void ebb_grad_deform_conv(ebb_build *b, ebb_grad *c)
{
    deformed f;
    int64_t elements, rows;
    if (!ebb_grad_shape(b, c, c->x[0], &f.x) || !ebb_grad_shape(b, c, c->x[1], &f.weight) ||
        !ebb_grad_shape(b, c, c->y[0], &f.y))
        return;
    const char *wrong = read_deformed(&f, c);
    if (wrong != NULL) {
        ebb_grad_fail(b, c, wrong);
        return;
    }
    if (!ebb_type_elements(&f.y, &elements) || !ebb_type_elements(&f.weight, &rows) ||
        f.size == 0 || elements == 0 || rows == 0)
        give_zeros(b, c);
    else
        give_deformed(b, c, &f);
    give_bias(b, c);
}
