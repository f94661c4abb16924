/* grid.c: images sampled at places that are numbers: GridSample, AffineGrid, DeformConv.
 */
#include "kernels/geometry.h"
#include "kernels/plain/number.h"

#include <math.h>

/* ---- GridSample(X, grid) {mode, padding_mode, align_corners} ---- */

typedef struct sampling {
    enum { NEAREST, LINEAR, CUBIC } mode;
    enum { ZEROS, BORDER, REFLECTION } padding;
    bool align;
    int rank; /* axes of the image */
    int64_t size[EBB_MAX_RANK], stride[EBB_MAX_RANK];
    const ebb_operand *x;
} sampling;

static void read_sampling(sampling *s, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    const char *mode = ebb_attr_string(&c->attrs, "mode", "linear");
    const char *padding = ebb_attr_string(&c->attrs, "padding_mode", "zeros");
    int64_t strides[EBB_MAX_RANK];
    s->mode = strstr(mode, "linear") != NULL  ? LINEAR
              : strstr(mode, "cubic") != NULL ? CUBIC
                                              : NEAREST;
    s->padding = strcmp(padding, "border") == 0       ? BORDER
                 : strcmp(padding, "reflection") == 0 ? REFLECTION
                                                      : ZEROS;
    s->align = ebb_attr_int(&c->attrs, "align_corners", 0) != 0;
    s->rank = x->rank - 2;
    s->x = &c->in[0];
    ebb_strides(strides, x->rank, x->dims);
    for (int d = 0; d < s->rank; d++) {
        s->size[d] = x->dims[d + 2];
        s->stride[d] = strides[d + 2];
    }
}

/* Back and forth between low and high. */
static double reflect(double x, double low, double high)
{
    double span = high - low, off = fabs(x - low);
    if (!(span > 0))
        return low;
    double turns = floor(off / span), rest = off - turns * span;
    return fmod(turns, 2) == 0 ? low + rest : high - rest;
}

static double place_of(const sampling *s, int d, double x)
{
    double n = (double)s->size[d];
    double at = s->align ? (x + 1) / 2 * (n - 1) : ((x + 1) * n - 1) / 2;
    double low = s->align ? 0 : -0.5, high = s->align ? n - 1 : n - 0.5;
    if (s->mode == NEAREST)
        at = nearbyint(at);
    if (s->padding == BORDER && (at < low || at > high))
        return fmin(fmax(at, 0), n - 1);
    if (s->padding == REFLECTION && (at < low || at > high))
        return reflect(at, low, high);
    return at;
}

/* The element that stands for place i of axis d; -1: none, a zero. */
static int64_t element_of(const sampling *s, int d, int64_t i)
{
    int64_t n = s->size[d];
    if (i >= 0 && i < n)
        return i;
    if (s->padding == ZEROS)
        return -1;
    if (s->padding == REFLECTION)
        i = (int64_t)reflect((double)i, s->align ? 0 : -0.5,
                             s->align ? (double)n - 1 : (double)n - 0.5);
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static double cubic(double x)
{
    const double a = -0.75;
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double sample(const sampling *s, const double *place, int d, int64_t at)
{
    if (d == s->rank)
        return ebb_plain_real(s->x, at);
    double base = s->mode == NEAREST ? nearbyint(place[d]) : floor(place[d]), sum = 0;
    int64_t first = s->mode == CUBIC ? -1 : 0, last = s->mode == CUBIC ? 2 : s->mode == LINEAR;
    if (!(fabs(base) < 1e15))
        return 0;
    for (int64_t k = first; k <= last; k++) {
        double off = fabs(place[d] - base - (double)k);
        double w = s->mode == NEAREST ? 1 : s->mode == LINEAR ? 1 - off : cubic(off);
        int64_t i = element_of(s, d, (int64_t)base + k);
        if (i >= 0 && w != 0)
            sum += w * sample(s, place, d + 1, at + i * s->stride[d]);
    }
    return sum;
}

static ebb_status run_grid_sample(const ebb_call *c)
{
    sampling s;
    read_sampling(&s, c);
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t channels = y->dims[1], area = 1, image = 1, batch = y->dims[0];
    for (int d = 0; d < s.rank; d++) {
        area *= y->dims[d + 2];
        image *= x->dims[d + 2];
    }
    EBB_PARALLEL_FOR(batch * area * channels)
    for (int64_t i = 0; i < batch * area; i++) {
        double place[EBB_MAX_RANK];
        for (int d = 0; d < s.rank; d++) /* coordinates come innermost axis first */
            place[d] = place_of(&s, d, ebb_plain_real(&c->in[1], i * s.rank + s.rank - 1 - d));
        for (int64_t k = 0; k < channels; k++) {
            int64_t plane = i / area * channels + k;
            ebb_plain_put(&c->out[0], plane * area + i % area,
                          image > 0 ? sample(&s, place, 0, plane * image) : 0);
        }
    }
    return NULL;
}

static const char *declines_grid_sample(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type, *grid = &c->in[1].type, *y = &c->out[0].type;
    if (!ebb_dtype_is_float((ebb_dtype)x->dtype) || !ebb_dtype_is_float((ebb_dtype)grid->dtype))
        return "works on floats only";
    bool fits = x->rank >= 3 && grid->rank == x->rank && grid->dims[x->rank - 1] == x->rank - 2 &&
                grid->dims[0] == x->dims[0] && y->rank == x->rank && y->dims[1] == x->dims[1];
    return fits ? NULL : "image and grid do not fit each other";
}

/* ---- AffineGrid(theta, size) {align_corners} ---- */

static ebb_status run_affine_grid(const ebb_call *c)
{
    const ebb_type *y = &c->out[0].type;
    bool align = ebb_attr_int(&c->attrs, "align_corners", 0) != 0;
    int rank = y->rank - 2;
    int64_t area = 1;
    for (int d = 0; d < rank; d++)
        area *= y->dims[d + 1];
    for (int64_t i = 0; i < y->dims[0] * area; i++) {
        double at[EBB_MAX_RANK];
        int64_t rest = i % area;
        for (int d = rank - 1; d >= 0; d--) { /* innermost axis first */
            int64_t n = y->dims[d + 1], k = rest % n;
            at[rank - 1 - d] = align ? (n > 1 ? 2.0 * (double)k / (double)(n - 1) - 1 : -1)
                                     : (2.0 * (double)k + 1) / (double)n - 1;
            rest /= n;
        }
        at[rank] = 1;
        for (int r = 0; r < rank; r++) {
            double sum = 0;
            for (int k = 0; k <= rank; k++)
                sum += at[k] * ebb_plain_real(&c->in[0], (i / area * rank + r) * (rank + 1) + k);
            ebb_plain_put(&c->out[0], i * rank + r, sum);
        }
    }
    return NULL;
}

static const char *declines_affine_grid(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    const ebb_type *theta = &c->in[0].type, *y = &c->out[0].type;
    bool fits = theta->rank == 3 && y->rank >= 3 && theta->dims[0] == y->dims[0] &&
                theta->dims[1] == y->rank - 2 && theta->dims[2] == y->rank - 1 &&
                y->dims[y->rank - 1] == y->rank - 2;
    return fits ? NULL : "theta and size do not fit each other";
}

/* ---- DeformConv(X, W, offsets, bias?, mask?) ---- */

/* Linear between elements of a plane, zero outside. */
static double between(const ebb_operand *x, int64_t plane, const ebb_geometry *w, const double *at)
{
    double sum = 0;
    for (int corner = 0; corner < 1 << EBB_AXES; corner++) {
        int64_t place = 0;
        double weight = 1;
        for (int d = 0; d < EBB_AXES && weight != 0; d++) {
            double base = floor(at[d]), over = at[d] - base;
            bool up = (corner >> d & 1) != 0;
            if (!(base >= -1 && base <= (double)w->wide[d]))
                return 0;
            int64_t i = (int64_t)base + up;
            weight *= i < 0 || i >= w->wide[d] ? 0 : up ? over : 1 - over;
            place = place * w->wide[d] + i;
        }
        if (weight != 0)
            sum += weight * ebb_plain_real(x, plane + place);
    }
    return sum;
}

static double deformed(const ebb_call *c, const ebb_geometry *w, int64_t n, int64_t m, int64_t o)
{
    int64_t taps = ebb_geometry_volume(w->kernel), volume = ebb_geometry_volume(w->narrow);
    int64_t channels = w->wide_channels / w->groups, each = w->narrow_channels / w->groups;
    int64_t wide = ebb_geometry_volume(w->wide), first = EBB_AXES - w->spatial;
    int64_t shares = ebb_attr_int(&c->attrs, "offset_group", 1);
    double sum = ebb_plain_has(c, 3) ? ebb_plain_real(&c->in[3], m) : 0;
    for (int64_t j = 0; j < channels; j++)
        for (int64_t k = 0; k < taps; k++) {
            int64_t channel = m / each * channels + j, tap = k, window = o;
            int64_t row = (n * shares + channel / (w->wide_channels / shares)) * taps + k;
            double at[EBB_AXES] = {0};
            for (int64_t d = EBB_AXES - 1; d >= 0; d--) {
                at[d] = (double)(window % w->narrow[d] * w->stride[d] - w->pad_begin[d] +
                                 tap % w->kernel[d] * w->dilation[d]);
                if (d >= first)
                    at[d] += ebb_plain_real(&c->in[2], (row * w->spatial + d - first) * volume + o);
                window /= w->narrow[d];
                tap /= w->kernel[d];
            }
            double x = between(&c->in[0], (n * w->wide_channels + channel) * wide, w, at);
            if (ebb_plain_has(c, 4))
                x *= ebb_plain_real(&c->in[4], row * volume + o);
            sum += x * ebb_plain_real(&c->in[1], (m * channels + j) * taps + k);
        }
    return sum;
}

static const char *window_of(ebb_geometry *w, const ebb_call *c)
{
    return ebb_geometry_read(w, &c->attrs, &c->in[0].type, &c->out[0].type, &c->in[1].type, false);
}

static ebb_status run_deform_conv(const ebb_call *c)
{
    ebb_geometry w;
    const char *why = window_of(&w, c);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    int64_t volume = ebb_geometry_volume(w.narrow), n = w.batch * w.narrow_channels * volume;
    EBB_PARALLEL_FOR(n * ebb_geometry_volume(w.kernel))
    for (int64_t i = 0; i < n; i++)
        ebb_plain_put(&c->out[0], i,
                      deformed(c, &w, i / volume / w.narrow_channels,
                               i / volume % w.narrow_channels, i % volume));
    return NULL;
}

static const char *declines_deform_conv(const ebb_call *c)
{
    ebb_geometry w;
    const char *why = ebb_plain_floats(c);
    if (why == NULL)
        why = window_of(&w, c);
    if (why != NULL)
        return why;
    int64_t shares = ebb_attr_int(&c->attrs, "offset_group", 1);
    int64_t entries =
        w.batch * shares * ebb_geometry_volume(w.kernel) * ebb_geometry_volume(w.narrow);
    if (shares < 1 || w.wide_channels % shares != 0)
        return "offset_group does not divide the channels";
    if (ebb_plain_elements(&c->in[2].type) != entries * w.spatial ||
        (ebb_plain_has(c, 3) && ebb_plain_elements(&c->in[3].type) != w.narrow_channels) ||
        (ebb_plain_has(c, 4) && ebb_plain_elements(&c->in[4].type) != entries))
        return "offsets, bias or mask have the wrong shape";
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_grid[] = {
    {.name = "plain.grid_sample", .op = EBB_OP_GRID_SAMPLE, .declines = declines_grid_sample, .run = run_grid_sample},
    {.name = "plain.affine_grid", .op = EBB_OP_AFFINE_GRID, .declines = declines_affine_grid, .run = run_affine_grid},
    {.name = "plain.deform_conv", .op = EBB_OP_DEFORM_CONV, .declines = declines_deform_conv, .run = run_deform_conv},
};
// clang-format on
EBB_PLAIN_COUNT(grid)
