/* depthwise.c: 3x3 convolutions with one filter a channel, straight over row-major tensors.
 *
 * Their arithmetic is so little that bringing the tensors into oneDNN's layout and back costs more
 * than the convolution; and needs no copies, so no workspace. One image [H, W] at a time; a row of
 * the result takes all nine taps in one pass. Rows in the padding are a row of zeros, and only the
 * columns at the borders ask where they are:
 *
 *     | border | all three taps inside: vector lanes | border |
 *
 * The input gradient of stride 1 is the same sum with the filter turned round. For stride 2 the
 * even and the odd columns of dX take different taps, and two neighbours are computed together:
 *
 *     dX[2o + 1 - p] = k1 dY[o]      dX[2o + 2 - p] = k2 dY[o] + k0 dY[o + 1]
 */
#include "kernels/fast/fast.h"

/* On rows below these oneDNN is the faster one, copies and all (bench_kernels "depth"). */
enum { WIDEST = 2048, NARROWEST = 24, NARROWEST_FOR_WEIGHTS = 48 };

static float zeros[WIDEST]; /* not const: so it takes no room in the library's file */

typedef struct plane { /* an image, or the gradient of one */
    const float *at;
    int64_t rows, columns;
} plane;

static const float *row_or_zeros(const plane *x, int64_t row)
{
    return row < 0 || row >= x->rows ? zeros : x->at + row * x->columns;
}

/* Columns [*lo, *hi) of `count` have their three taps, from o * stride - pad on, inside of
 * `columns`. */
static void inside(int64_t *lo, int64_t *hi, int64_t count, int64_t columns, int64_t stride,
                   int64_t pad)
{
    *lo = (pad + stride - 1) / stride;
    int64_t room = columns - 3 + pad;
    *hi = room < 0 ? 0 : room / stride + 1;
    *hi = *hi < count ? *hi : count;
    *lo = *lo < *hi ? *lo : *hi;
}

static float at_border(const float *const row[3], const float *k, int64_t start, int64_t columns)
{
    float sum = 0;
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            if (start + b >= 0 && start + b < columns)
                sum += k[3 * a + b] * row[a][start + b];
    return sum;
}

#define NINE(x, y, z, i)                                                               \
    (k[0] * (x)[i] + k[1] * (x)[(i) + 1] + k[2] * (x)[(i) + 2] + k[3] * (y)[i] +       \
     k[4] * (y)[(i) + 1] + k[5] * (y)[(i) + 2] + k[6] * (z)[i] + k[7] * (z)[(i) + 1] + \
     k[8] * (z)[(i) + 2])

/* y[o, q] = bias + sum over a, b of k[a][b] * x[o * stride - pads[0] + a, q * stride - pads[1] + b]
 */
static void correlate(float *restrict y, int64_t rows, int64_t columns, const plane *x,
                      const float *filter, int64_t stride, const int64_t *pads, float bias)
{
    int64_t lo, hi, pad = pads[1];
    float k[9];
    memcpy(k, filter, sizeof k);
    inside(&lo, &hi, columns, x->columns, stride, pad);
    for (int64_t o = 0; o < rows; o++, y += columns) {
        const float *row[3];
        for (int a = 0; a < 3; a++)
            row[a] = row_or_zeros(x, o * stride - pads[0] + a);
        const float *r0 = row[0], *r1 = row[1], *r2 = row[2];
        for (int64_t q = 0; q < lo; q++)
            y[q] = bias + at_border(row, k, q * stride - pad, x->columns);
        if (stride == 1) {
            EBB_SIMD
            for (int64_t q = lo; q < hi; q++)
                y[q] = bias + NINE(r0, r1, r2, q - pad);
        } else {
            EBB_SIMD
            for (int64_t q = lo; q < hi; q++)
                y[q] = bias + NINE(r0, r1, r2, 2 * q - pad);
        }
        for (int64_t q = hi; q < columns; q++)
            y[q] = bias + at_border(row, k, q * stride - pad, x->columns);
    }
}

/* One element of dX, stride 2: whichever taps of whichever windows lie on it. */
static float gather(const float *const row[2], const float *const k[2], int64_t column, int64_t pad,
                    int64_t windows)
{
    float sum = 0;
    for (int a = 0; a < 2; a++)
        for (int64_t b = 0; b < 3; b++) {
            int64_t o = column + pad - b;
            if (o >= 0 && o % 2 == 0 && o / 2 < windows)
                sum += k[a][b] * row[a][o / 2];
        }
    return sum;
}

/* The input gradient for stride 2. A row of dX meets one or two rows of dY. */
static void spread(float *restrict dx, int64_t rows, int64_t columns, const plane *dy,
                   const float *filter, const int64_t *pads, float bias)
{
    static const float none[3];
    int64_t pad = pads[1], windows = dy->columns;
    // pairs o of columns 2o + 1 - pad and 2o + 2 - pad, both in the row, with windows o and o + 1
    int64_t lo = pad / 2, hi = (columns - 2 + pad) / 2;
    hi = hi < windows - 1 ? hi : windows - 1;
    for (int64_t i = 0; i < rows; i++, dx += columns) {
        const float *row[2] = {zeros, zeros}, *k[2] = {none, none};
        int met = 0;
        for (int a = 0; a < 3; a++) {
            int64_t o = i + pads[0] - a;
            if (o >= 0 && o % 2 == 0 && o / 2 < dy->rows) {
                row[met] = dy->at + o / 2 * windows;
                k[met++] = filter + 3 * a;
            }
        }
        int64_t first = lo < hi ? 2 * lo + 1 - pad : 0, last = lo < hi ? 2 * hi + 1 - pad : 0;
        for (int64_t q = 0; q < first; q++)
            dx[q] = bias + gather(row, k, q, pad, windows);
        const float *r = row[0], *s = row[1];
        float r0 = k[0][0], r1 = k[0][1], r2 = k[0][2], s0 = k[1][0], s1 = k[1][1], s2 = k[1][2];
        float *pair = dx + 1 - pad;
        EBB_SIMD
        for (int64_t o = lo; o < hi; o++) {
            pair[2 * o] = bias + r1 * r[o] + s1 * s[o];
            pair[2 * o + 1] = bias + r2 * r[o] + r0 * r[o + 1] + s2 * s[o] + s0 * s[o + 1];
        }
        for (int64_t q = last; q < columns; q++)
            dx[q] = bias + gather(row, k, q, pad, windows);
    }
}

enum { LANES = 16 };

/* lane[t][l] += g[l] * (tap t of window l), for windows l below `width`: nine sums side by side.
 * x, y, z: the three rows at the first tap of window 0. Written out, because all nine share g[l].
 */
#define NINE_SUMS(width, stride)                \
    EBB_SIMD                                    \
    for (int64_t l = 0; l < (width); l++) {     \
        lane[0][l] += g[l] * x[(stride)*l];     \
        lane[1][l] += g[l] * x[(stride)*l + 1]; \
        lane[2][l] += g[l] * x[(stride)*l + 2]; \
        lane[3][l] += g[l] * y[(stride)*l];     \
        lane[4][l] += g[l] * y[(stride)*l + 1]; \
        lane[5][l] += g[l] * y[(stride)*l + 2]; \
        lane[6][l] += g[l] * z[(stride)*l];     \
        lane[7][l] += g[l] * z[(stride)*l + 1]; \
        lane[8][l] += g[l] * z[(stride)*l + 2]; \
    }

static void nine_sums(float (*restrict lane)[LANES], const float *g, const float *x, const float *y,
                      const float *z, int64_t width, int64_t stride)
{
    if (stride == 1 && width == LANES) {
        NINE_SUMS(LANES, 1)
    } else if (stride == 1) {
        NINE_SUMS(width, 1)
    } else if (width == LANES) {
        NINE_SUMS(LANES, 2)
    } else {
        NINE_SUMS(width, 2)
    }
}

/* sum[a][b] += sum over o, q of dy[o, q] * x[o * stride - pads[0] + a, q * stride - pads[1] + b] */
static void gather_weights(double *sum, const plane *dy, const plane *x, int64_t stride,
                           const int64_t *pads)
{
    int64_t lo, hi, pad = pads[1];
    float lane[9][LANES] = {{0}};
    inside(&lo, &hi, dy->columns, x->columns, stride, pad);
    for (int64_t o = 0; o < dy->rows; o++) {
        const float *g = dy->at + o * dy->columns, *row[3];
        for (int a = 0; a < 3; a++)
            row[a] = row_or_zeros(x, o * stride - pads[0] + a);
        for (int64_t q = lo; q < hi; q += LANES) {
            int64_t at = q * stride - pad;
            nine_sums(lane, g + q, row[0] + at, row[1] + at, row[2] + at,
                      hi - q < LANES ? hi - q : LANES, stride);
        }
        for (int64_t q = lo == 0 ? hi : 0; q < dy->columns; q = q + 1 == lo ? hi : q + 1)
            for (int t = 0; t < 9; t++) {
                int64_t column = q * stride - pad + t % 3;
                if (column >= 0 && column < x->columns)
                    sum[t] += (double)g[q] * (double)row[t / 3][column];
            }
    }
    for (int t = 0; t < 9; t++)
        for (int l = 0; l < LANES; l++)
            sum[t] += (double)lane[t][l];
}

static const char *misfit(const ebb_call *call)
{
    ebb_geometry w;
    EBB_ASK(ebb_conv_read(&w, call));
    if (w.spatial != 2 || w.groups != w.wide_channels || w.groups != w.narrow_channels)
        return "not one filter a channel";
    for (int axis = 1; axis < EBB_AXES; axis++)
        if (w.kernel[axis] != 3 || w.dilation[axis] != 1 || w.stride[axis] != w.stride[1] ||
            w.stride[axis] > 2 || w.pad_begin[axis] > 2)
            return "not 3x3 with stride 1 or 2";
    int64_t narrowest = call->op == EBB_OP_CONV_WEIGHT_GRAD ? NARROWEST_FOR_WEIGHTS : NARROWEST;
    if (w.wide[2] < narrowest || w.wide[2] > WIDEST || w.narrow[2] > WIDEST)
        return "rows that are too short or too long";
    return ebb_conv_bias_misfit(&w, call);
}

static ebb_status run(const ebb_call *call)
{
    ebb_geometry w;
    EBB_MUST_FIT(call, ebb_conv_read(&w, call));
    const float *weight = call->in[1].data, *from = call->in[0].data;
    const float *bias = ebb_dnnl_has(call, 2) ? call->in[2].data : NULL;
    int64_t wide = ebb_geometry_volume(w.wide), narrow = ebb_geometry_volume(w.narrow);
    const int64_t around[] = {2 - w.pad_begin[1], 2 - w.pad_begin[2]};
    float *out = call->out[0].data;
    bool forward = call->op == EBB_OP_CONV;
    EBB_PARALLEL_FOR(w.batch * w.groups * wide)
    for (int64_t image = 0; image < w.batch * w.groups; image++) {
        const float *k = weight + image % w.groups * 9;
        float b = bias == NULL ? 0 : bias[image % w.groups];
        plane x = {from + image * wide, w.wide[1], w.wide[2]};
        plane y = {from + image * narrow, w.narrow[1], w.narrow[2]};
        if (forward) {
            correlate(out + image * narrow, y.rows, y.columns, &x, k, w.stride[1], &w.pad_begin[1],
                      b);
        } else if (w.stride[1] == 2) {
            spread(out + image * wide, x.rows, x.columns, &y, k, &w.pad_begin[1], b);
        } else {
            float turned[9];
            for (int t = 0; t < 9; t++)
                turned[t] = k[8 - t];
            correlate(out + image * wide, x.rows, x.columns, &y, turned, 1, around, b);
        }
    }
    return NULL;
}

/* A channel belongs to one thread, which goes through the batch in order. */
static ebb_status run_weights(const ebb_call *call)
{
    ebb_geometry w;
    EBB_MUST_FIT(call, ebb_conv_read(&w, call));
    int64_t wide = ebb_geometry_volume(w.wide), narrow = ebb_geometry_volume(w.narrow);
    float *out = call->out[0].data;
    EBB_PARALLEL_FOR(w.batch * w.groups * wide)
    for (int64_t c = 0; c < w.groups; c++) {
        double sum[9] = {0};
        for (int64_t n = 0; n < w.batch; n++) {
            int64_t image = n * w.groups + c;
            plane y = {(const float *)call->in[0].data + image * narrow, w.narrow[1], w.narrow[2]};
            plane x = {(const float *)call->in[1].data + image * wide, w.wide[1], w.wide[2]};
            gather_weights(sum, &y, &x, w.stride[1], &w.pad_begin[1]);
        }
        for (int t = 0; t < 9; t++)
            out[c * 9 + t] = (float)sum[t];
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_depthwise[] = {
    {.name = "rows.conv",             .op = EBB_OP_CONV,             .dtypes = ebb_dnnl_plain_floats, .fits = misfit, .run = run},
    {.name = "rows.conv_transpose",   .op = EBB_OP_CONV_TRANSPOSE,   .dtypes = ebb_dnnl_plain_floats, .fits = misfit, .run = run},
    {.name = "rows.conv_weight_grad", .op = EBB_OP_CONV_WEIGHT_GRAD, .dtypes = ebb_dnnl_plain_floats, .fits = misfit, .run = run_weights},
};
// clang-format on
EBB_DNNL_COUNT(depthwise)
