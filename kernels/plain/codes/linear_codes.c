/* linear_codes.c: ONNX's quantisation with a scale, and products of quantised tensors.
 *
 *     code = saturate(round(x / scale) + zero)        x = (code - zero) * scale
 *
 * Quotients are taken in the dtype of the scale, as ONNX has it. Products are sums of int64, which
 * no product of 8-bit numbers that fits in memory can leave.
 */
#include "kernels/call/linear_codes.h"
#include "kernels/plain/number.h"

#include <math.h>

static int64_t scale_of(const ebb_scales *g, int64_t i)
{
    if (g->kind == EBB_SCALE_ONE)
        return 0;
    int64_t place = i / g->inner % g->n;
    if (g->kind == EBB_SCALE_AXIS)
        return place;
    return (i / g->inner / g->n * g->places + place / g->block) * g->inner + i % g->inner;
}

/* ---- QuantizeLinear, DequantizeLinear ---- */

static const char *misfit_linear(const ebb_call *c)
{
    ebb_scales g;
    const ebb_type *real = c->op == EBB_OP_QUANTIZE_LINEAR ? &c->in[0].type : &c->out[0].type;
    if (real->dtype != EBB_F32 && real->dtype != EBB_F64 && real->dtype != EBB_I32)
        return "computes in float32 and float64 only";
    return ebb_scales_read(&g, c);
}

static double divided(const ebb_operand *scale, double x, double by)
{
    return scale->type.dtype == EBB_F64 ? x / by : (double)((float)x / (float)by);
}

/* (x, scale, zero?) -> codes. Codes that share a byte are set by one thread: this one. */
static ebb_status run_quantize(const ebb_call *c)
{
    ebb_scales g;
    EBB_MUST_FIT(c, ebb_scales_read(&g, c));
    const ebb_operand *y = &c->out[0], *scale = &c->in[1];
    bool saturate = ebb_attr_int(&c->attrs, "saturate", 1) != 0;
    ebb_dtype dtype = (ebb_dtype)y->type.dtype;
    bool small = ebb_dtype_is_small_float(dtype);
    unsigned bits = ebb_dtype_bits(dtype);
    if (bits < 8)
        memset(y->data, 0, y->bytes);
    for (int64_t i = 0, n = ebb_elements(&y->type); i < n; i++) {
        int64_t at = scale_of(&g, i);
        double quotient = divided(scale, ebb_plain_real(&c->in[0], i), ebb_plain_real(scale, at));
        double zero = ebb_call_has(c, 2) ? ebb_plain_real(&c->in[2], at) : 0.0;
        if (small)
            ebb_bits_put(y->data, i, bits,
                         ebb_small_of_double(dtype, quotient + zero, saturate, EBB_ROUND_UP));
        else
            ebb_plain_put(y, i, nearbyint(quotient) + zero);
    }
    return NULL;
}

/* (codes, scale, zero?) -> x. */
static ebb_status run_dequantize(const ebb_call *c)
{
    ebb_scales g;
    EBB_MUST_FIT(c, ebb_scales_read(&g, c));
    const ebb_operand *y = &c->out[0];
    int64_t n = ebb_elements(&y->type);
    EBB_PARALLEL_FOR(n)
    for (int64_t i = 0; i < n; i++) {
        int64_t at = scale_of(&g, i);
        double zero = ebb_call_has(c, 2) ? ebb_plain_real(&c->in[2], at) : 0.0;
        ebb_plain_put(y, i, (ebb_plain_real(&c->in[0], i) - zero) * ebb_plain_real(&c->in[1], at));
    }
    return NULL;
}

/* (x) -> codes, scale, zero: the range of x, widened to hold 0, in 256 steps. */
static ebb_status run_dynamic(const ebb_call *c)
{
    const float *x = c->in[0].data;
    uint8_t *y = c->out[0].data, zero;
    int64_t n = ebb_elements(&c->in[0].type);
    float least = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    float scale = (most - least) / 255.0f;
    float at_zero = scale > 0 ? nearbyintf(-least / scale) : 0.0f;
    zero = (uint8_t)(at_zero > 0 ? at_zero > 255 ? 255 : at_zero : 0); // also of NaN
    for (int64_t i = 0; i < n && ebb_call_wants(c, 0); i++) {
        float code = (scale > 0 ? nearbyintf(x[i] / scale) : 0.0f) + (float)zero;
        y[i] = (uint8_t)(code > 0 ? code > 255 ? 255 : code : 0);
    }
    if (ebb_call_wants(c, 1))
        *(float *)c->out[1].data = scale;
    if (ebb_call_wants(c, 2))
        *(uint8_t *)c->out[2].data = zero;
    return NULL;
}

/* ---- products ---- */

/* Element `at` of a list that has one entry for all or one for each; 0 where it is not there. */
static int64_t zero_at(const ebb_call *c, int input, int64_t at)
{
    if (input < 0 || !ebb_call_has(c, (uint32_t)input))
        return 0;
    const ebb_operand *o = &c->in[input];
    return ebb_plain_whole(o, ebb_elements(&o->type) == 1 ? 0 : at);
}

static double scale_at(const ebb_call *c, int input, int64_t at)
{
    const ebb_operand *o = &c->in[input];
    return ebb_plain_real(o, ebb_elements(&o->type) == 1 ? 0 : at);
}

/* The sum as int32, or scaled to codes: `row` and `column` choose the scales of a and b. */
static void put_sum(const ebb_call *c, const ebb_coded_product *p, int64_t i, int64_t sum,
                    int64_t row, int64_t column)
{
    if (p->y_scale < 0) {
        ((int32_t *)c->out[0].data)[i] = (int32_t)(uint32_t)(uint64_t)sum;
        return;
    }
    double scale = scale_at(c, p->a_scale, row) * scale_at(c, p->b_scale, column);
    double code = (double)(float)((double)sum * scale / scale_at(c, p->y_scale, 0));
    ebb_plain_put(&c->out[0], i, nearbyint(code) + (double)zero_at(c, p->y_zero, 0));
}

typedef struct batches { /* of a matrix product: strides of the leading dims, 0 where broadcast */
    int rank;
    int64_t dims[EBB_MAX_RANK], a[EBB_MAX_RANK], b[EBB_MAX_RANK], count;
} batches;

static void leading(int64_t *stride, const batches *w, const ebb_type *t, int64_t matrix)
{
    int lead = t->rank > 2 ? t->rank - 2 : 0;
    for (int d = w->rank - 1; d >= 0; d--) {
        int e = d - (w->rank - lead);
        int64_t n = e >= 0 ? t->dims[e] : 1;
        stride[d] = n == 1 ? 0 : matrix;
        matrix *= n;
    }
}

static ebb_status run_matmul(const ebb_call *c)
{
    ebb_coded_product p = ebb_coded_product_of(c);
    const ebb_operand *left = &c->in[p.a], *right = &c->in[p.b];
    const ebb_type *a = &left->type, *b = &right->type, *y = &c->out[0].type;
    int64_t k = a->dims[a->rank - 1], m = a->rank > 1 ? a->dims[a->rank - 2] : 1;
    int64_t n = b->rank > 1 ? b->dims[b->rank - 1] : 1;
    batches w = {.rank = y->rank - (a->rank > 1) - (b->rank > 1), .count = 1};
    for (int d = 0; d < w.rank; d++)
        w.count *= w.dims[d] = y->dims[d];
    leading(w.a, &w, a, m * k);
    leading(w.b, &w, b, k * n);
    for (int64_t i = 0; i < w.count * m * n; i++) {
        int64_t batch = i / n / m, row = i / n % m, column = i % n, sum = 0;
        int64_t at_a = row * k, at_b = column;
        for (int d = w.rank - 1; d >= 0; d--) {
            at_a += batch % w.dims[d] * w.a[d];
            at_b += batch % w.dims[d] * w.b[d];
            batch /= w.dims[d];
        }
        int64_t za = zero_at(c, p.a_zero, row), zb = zero_at(c, p.b_zero, column);
        for (int64_t j = 0; j < k; j++)
            sum += (ebb_plain_whole(left, at_a + j) - za) *
                   (ebb_plain_whole(right, at_b + j * n) - zb);
        put_sum(c, &p, i, sum, row, column);
    }
    return NULL;
}

static const char *declines_scales(const ebb_call *c)
{
    ebb_coded_product p = ebb_coded_product_of(c);
    const int scales[3] = {p.a_scale, p.b_scale, p.y_scale};
    for (int i = 0; i < 3; i++)
        if (scales[i] >= 0 && c->in[scales[i]].type.dtype != EBB_F32 &&
            c->in[scales[i]].type.dtype != EBB_F64)
            return "scales are not float32";
    return NULL;
}

static const char *misfit_matmul(const ebb_call *c)
{
    EBB_ASK(ebb_coded_matmul_misfit(c));
    return declines_scales(c);
}

/* ---- convolutions ---- */

static const char *misfit_conv(const ebb_call *c)
{
    ebb_geometry w;
    EBB_ASK(ebb_coded_conv_read(&w, c));
    return declines_scales(c);
}

/* The sum at window o of output channel m. What lies in the padding is the zero point: nothing. */
static int64_t window_sum(const ebb_call *c, const ebb_coded_product *p, const ebb_geometry *w,
                          int64_t image, int64_t m, int64_t o)
{
    int64_t channels = w->wide_channels / w->groups, each = w->narrow_channels / w->groups;
    int64_t taps = ebb_geometry_volume(w->kernel), wide = ebb_geometry_volume(w->wide), sum = 0;
    int64_t za = zero_at(c, p->a_zero, 0), zb = zero_at(c, p->b_zero, m);
    int64_t at[EBB_AXES];
    ebb_window_start(at, w, o);
    for (int64_t k = 0; k < taps; k++) {
        int64_t place = ebb_place_of_tap(w, at, k);
        if (place < 0)
            continue;
        for (int64_t j = 0; j < channels; j++) {
            int64_t x = (image * w->wide_channels + m / each * channels + j) * wide + place;
            sum += (ebb_plain_whole(&c->in[p->a], x) - za) *
                   (ebb_plain_whole(&c->in[p->b], (m * channels + j) * taps + k) - zb);
        }
    }
    return sum;
}

static ebb_status run_conv(const ebb_call *c)
{
    ebb_coded_product p = ebb_coded_product_of(c);
    ebb_geometry w;
    EBB_MUST_FIT(c, ebb_coded_conv_read(&w, c));
    int64_t volume = ebb_geometry_volume(w.narrow), n = w.batch * w.narrow_channels * volume;
    EBB_PARALLEL_FOR(n)
    for (int64_t i = 0; i < n; i++) {
        int64_t m = i / volume % w.narrow_channels;
        int64_t sum = window_sum(c, &p, &w, i / volume / w.narrow_channels, m, i % volume);
        if (p.bias >= 0 && ebb_call_has(c, (uint32_t)p.bias))
            sum += ebb_plain_whole(&c->in[p.bias], m);
        put_sum(c, &p, i, sum, 0, m);
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_linear_codes[] = {
    {.name = "plain.quantize_linear",   .op = EBB_OP_QUANTIZE_LINEAR,         .dtypes = ebb_call_any_bits, .fits = misfit_linear, .run = run_quantize},
    {.name = "plain.dequantize_linear", .op = EBB_OP_DEQUANTIZE_LINEAR,       .dtypes = ebb_call_any_bits, .fits = misfit_linear, .run = run_dequantize},
    {.name = "plain.dynamic_quantize",  .op = EBB_OP_DYNAMIC_QUANTIZE_LINEAR, .dtypes = ebb_dynamic_quantize_dtypes, .run = run_dynamic},
    {.name = "plain.matmul_integer",    .op = EBB_OP_MATMUL_INTEGER,          .dtypes = ebb_call_any, .fits = misfit_matmul, .run = run_matmul},
    {.name = "plain.qlinear_matmul",    .op = EBB_OP_QLINEAR_MATMUL,          .dtypes = ebb_call_any, .fits = misfit_matmul, .run = run_matmul},
    {.name = "plain.conv_integer",      .op = EBB_OP_CONV_INTEGER,            .dtypes = ebb_call_any, .fits = misfit_conv, .run = run_conv},
    {.name = "plain.qlinear_conv",      .op = EBB_OP_QLINEAR_CONV,            .dtypes = ebb_call_any, .fits = misfit_conv, .run = run_conv},
};
// clang-format on
EBB_PLAIN_COUNT(linear_codes)
