/* resize.c: Resize and Upsample, in every mode.
 *
 * Interpolation is a product over the axes. For each axis that changes, a table says for every
 * place of the output where its neighbours begin and how much each weighs:
 *
 *     out     .   .   .   .   .          place o
 *     in    .     .     .     .          neighbours begin[o], begin[o] + 1, ..., weights[o]
 *
 * Neighbours outside of the image are its edge. Then each element is a sum over the product of the
 * axes' neighbours.
 */
#include "kernels/plain/number.h"

#include <math.h>

enum { OUTSIDE = -1 }; /* taps of a place whose value is the extrapolation value */

typedef struct line { /* one axis */
    int64_t in, out, stride;
    double scale, from, to; /* roi */
    int64_t taps;           /* room for so many */
    int64_t *begin, *count; /* of each place of the output */
    double *weight;         /* [out, taps] */
} line;

typedef struct resizing {
    enum { NEAREST, LINEAR, CUBIC } mode;
    const char *transform, *nearest;
    bool antialias, exclude_outside;
    double a, extrapolation;
    int rank;
    line axis[EBB_MAX_RANK];
} resizing;

static uint32_t scales_at(const ebb_call *c)
{
    return c->op == EBB_OP_UPSAMPLE || c->version < 11 ? 1 : 2;
}

static bool has_sizes(const ebb_call *c)
{
    return scales_at(c) == 2 && ebb_plain_has(c, 3) && ebb_plain_elements(&c->in[3].type) > 0;
}

/* ---- what attributes say ---- */

static void read_modes(resizing *r, const ebb_call *c)
{
    const char *mode = ebb_attr_string(&c->attrs, "mode", "nearest");
    bool old = scales_at(c) == 1;
    r->mode = strcmp(mode, "cubic") == 0       ? CUBIC
              : strstr(mode, "linear") != NULL ? LINEAR
                                               : NEAREST;
    r->transform = ebb_attr_string(&c->attrs, "coordinate_transformation_mode",
                                   old ? "asymmetric" : "half_pixel");
    r->nearest = ebb_attr_string(&c->attrs, "nearest_mode", old ? "floor" : "round_prefer_floor");
    r->antialias = r->mode != NEAREST && ebb_attr_int(&c->attrs, "antialias", 0) != 0;
    r->exclude_outside = ebb_attr_int(&c->attrs, "exclude_outside", 0) != 0;
    r->a = ebb_attr_float(&c->attrs, "cubic_coeff_a", -0.75);
    r->extrapolation = ebb_attr_float(&c->attrs, "extrapolation_value", 0.0);
}

static bool resizes(const ebb_call *c, int axis, int *entry)
{
    uint32_t count;
    const int64_t *axes = ebb_attr_ints(&c->attrs, "axes", &count);
    *entry = axis;
    if (axes == NULL)
        return true;
    for (uint32_t i = 0; i < count; i++)
        if (axes[i] == axis || axes[i] + c->in[0].type.rank == axis) {
            *entry = (int)i;
            return true;
        }
    return false;
}

/* Room for the taps of an axis: the scale is not below out / (in + 1), rounding included. */
static int64_t room_of(const resizing *r, const line *l)
{
    int64_t reach = r->mode == CUBIC ? 2 : 1;
    if (!r->antialias || l->out >= l->in || l->out == 0)
        return 2 * reach;
    return 2 * (reach * (l->in + 1) / l->out + 2) + 2;
}

/* What needs no values: sizes and places in the workspace. Returns its bytes, 0 when too large. */
static size_t lay_out(resizing *r, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t strides[EBB_MAX_RANK];
    size_t at = 64;
    read_modes(r, c);
    r->rank = x->rank;
    ebb_strides(strides, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        line *l = &r->axis[d];
        size_t size;
        *l = (line){.in = x->dims[d], .out = y->dims[d], .stride = strides[d], .scale = 1, .to = 1};
        l->taps = room_of(r, l);
        char *base = c->workspace;
        l->begin = base != NULL ? (int64_t *)(void *)(base + at) : NULL;
        l->count = base != NULL ? l->begin + l->out : NULL;
        l->weight = base != NULL ? (double *)(void *)(l->count + l->out) : NULL;
        if (!ebb_size_mul(&size, (size_t)l->out, (size_t)l->taps + 2) ||
            !ebb_size_mul(&size, size, 8) || !ebb_size_add(&at, at, size))
            return 0;
    }
    return at;
}

/* ---- what values say ---- */

static ebb_status read_scales(resizing *r, const ebb_call *c)
{
    const ebb_attr *old = ebb_attr_find(&c->attrs, "scales");
    const char *policy = ebb_attr_string(&c->attrs, "keep_aspect_ratio_policy", "stretch");
    bool sizes = has_sizes(c), least = strcmp(policy, "not_larger") == 0;
    double common = least ? INFINITY : 0;
    for (int d = 0, entry; d < r->rank; d++) {
        line *l = &r->axis[d];
        if (!resizes(c, d, &entry))
            continue;
        if (sizes)
            l->scale = ebb_plain_real(&c->in[3], entry) / (double)l->in;
        else
            l->scale = old != NULL ? (double)old->floats[entry]
                                   : ebb_plain_real(&c->in[scales_at(c)], entry);
        common = least ? fmin(common, l->scale) : fmax(common, l->scale);
        if (strcmp(r->transform, "tf_crop_and_resize") == 0 && ebb_plain_has(c, 1)) {
            int64_t half = ebb_plain_elements(&c->in[1].type) / 2;
            l->from = ebb_plain_real(&c->in[1], entry);
            l->to = ebb_plain_real(&c->in[1], half + entry);
        }
    }
    for (int d = 0, entry; d < r->rank; d++) {
        if (sizes && strcmp(policy, "stretch") != 0 && resizes(c, d, &entry))
            r->axis[d].scale = common;
        if (!(r->axis[d].scale > 0))
            return ebb_call_error(c, "the scale of axis %d is %g", d, r->axis[d].scale);
    }
    return NULL;
}

/* Where place o of the output lies in the input. */
static double origin(const resizing *r, const line *l, int64_t o)
{
    double in = (double)l->in, whole = l->scale * in, x = (double)o;
    if (strcmp(r->transform, "align_corners") == 0)
        return whole == 1 ? 0 : x * (in - 1) / (whole - 1);
    if (strcmp(r->transform, "asymmetric") == 0)
        return x / l->scale;
    if (strcmp(r->transform, "tf_crop_and_resize") == 0) {
        double span = (l->to - l->from) * (in - 1);
        return l->from * (in - 1) + (whole == 1 ? span / 2 : x * span / (whole - 1));
    }
    if (strcmp(r->transform, "pytorch_half_pixel") == 0 && whole == 1)
        return -0.5;
    double plain = (x + 0.5) / l->scale - 0.5;
    if (strcmp(r->transform, "half_pixel_symmetric") == 0)
        return in / 2 * (1 - (double)l->out / whole) + plain;
    return plain;
}

/* Keys' cubic: of a distance. */
static double cubic(double a, double x)
{
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double weight_of(const resizing *r, double distance)
{
    double x = fabs(distance);
    return r->mode == CUBIC ? cubic(r->a, x) : x < 1 ? 1 - x : 0;
}

static int64_t nearest(const resizing *r, int64_t left, double right)
{
    bool up = right == 1 || strcmp(r->nearest, "ceil") == 0;
    if (strcmp(r->nearest, "round_prefer_floor") == 0)
        up = right > 0.5;
    else if (strcmp(r->nearest, "round_prefer_ceil") == 0)
        up = right >= 0.5;
    return left + (up ? 1 : 0);
}

/* Neighbours of place o. An origin between left and left + 1 is `right` beyond left, 0 < right <=
 * 1; on an element it is that of the left one's neighbour. */
static bool fill_place(const resizing *r, line *l, int64_t o)
{
    double x = origin(r, l, o), *w = l->weight + o * l->taps, total = 0;
    l->count[o] = OUTSIDE;
    l->begin[o] = 0;
    if (strcmp(r->transform, "tf_crop_and_resize") == 0 && (x < 0 || x > (double)(l->in - 1)))
        return true;
    if (!(fabs(x) < 1e15))
        return false;
    int64_t left = (int64_t)ceil(x) - 1, first;
    double right = x - (double)left, stretch = r->antialias ? fmin(l->scale, 1) : 1;
    if (r->mode == NEAREST) {
        l->begin[o] = nearest(r, left, right);
        l->count[o] = 1;
        w[0] = 1;
        return true;
    }
    first = (int64_t)floor(-(r->mode == CUBIC ? 2 : 1) / stretch) + 1;
    l->count[o] = 2 - 2 * first;
    l->begin[o] = left + first;
    if (l->count[o] > l->taps)
        return false;
    for (int64_t k = 0; k < l->count[o]; k++) {
        int64_t at = l->begin[o] + k;
        bool outside = r->exclude_outside && (at < 0 || at >= l->in);
        w[k] = outside ? 0 : weight_of(r, ((double)(first + k) - right) * stretch);
        total += w[k];
    }
    bool normal = r->antialias || r->exclude_outside;
    for (int64_t k = 0; normal && total != 0 && k < l->count[o]; k++)
        w[k] /= total;
    return true;
}

static ebb_status fill_tables(resizing *r, const ebb_call *c)
{
    for (int d = 0; d < r->rank; d++) {
        line *l = &r->axis[d];
        bool same = fabs(l->scale - 1) <= 1e-9 && l->in == l->out && l->from == 0 && l->to == 1;
        for (int64_t o = 0; o < l->out; o++) {
            if (same) {
                l->begin[o] = o;
                l->count[o] = 1;
                l->weight[o * l->taps] = 1;
            } else if (!fill_place(r, l, o)) {
                return ebb_call_error(c,
                                      "the scale of axis %d, %g, does not fit %lld elements of "
                                      "%lld",
                                      d, l->scale, (long long)l->out, (long long)l->in);
            }
        }
    }
    return NULL;
}

/* ---- sums ---- */

static double sum_axes(const resizing *r, const ebb_operand *x, const int64_t *place, int d,
                       int64_t at)
{
    if (d == r->rank)
        return ebb_plain_real(x, at);
    const line *l = &r->axis[d];
    int64_t o = place[d];
    const double *w = l->weight + o * l->taps;
    double sum = 0;
    for (int64_t k = 0; k < l->count[o]; k++) {
        int64_t i = l->begin[o] + k;
        i = i < 0 ? 0 : i >= l->in ? l->in - 1 : i;
        if (l->count[o] == 1)
            return sum_axes(r, x, place, d + 1, at + i * l->stride);
        if (w[k] != 0)
            sum += w[k] * sum_axes(r, x, place, d + 1, at + i * l->stride);
    }
    return sum;
}

static void put_element(const resizing *r, const ebb_call *c, int64_t index)
{
    int64_t place[EBB_MAX_RANK], rest = index;
    bool outside = false;
    for (int d = r->rank - 1; d >= 0; d--) {
        place[d] = rest % r->axis[d].out;
        rest /= r->axis[d].out;
        outside = outside || r->axis[d].count[place[d]] == OUTSIDE;
    }
    ebb_plain_put(&c->out[0], index,
                  outside ? r->extrapolation : sum_axes(r, &c->in[0], place, 0, 0));
}

static ebb_status run_resize(const ebb_call *c)
{
    resizing r;
    int64_t n = ebb_plain_elements(&c->out[0].type);
    if (n == 0)
        return NULL;
    if (ebb_plain_elements(&c->in[0].type) == 0)
        return ebb_call_error(c, "nothing cannot be resized to something");
    if (lay_out(&r, c) == 0)
        return ebb_call_error(c, "its tables pass what memory can be");
    EBB_TRY(read_scales(&r, c));
    EBB_TRY(fill_tables(&r, c));
    EBB_PARALLEL_FOR(n)
    for (int64_t i = 0; i < n; i++)
        put_element(&r, c, i);
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    resizing r;
    ebb_call peek = *c;
    peek.workspace = NULL;
    *bytes = lay_out(&r, &peek);
    return *bytes > 0 ? NULL : ebb_call_error(c, "its tables pass what memory can be");
}

static const char *declines(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type;
    if (!ebb_dtype_is_float((ebb_dtype)x->dtype) && !ebb_dtype_is_integer((ebb_dtype)x->dtype))
        return "works on numbers only";
    if (c->out[0].type.rank != x->rank)
        return "the output differs in rank";
    uint32_t count, at = scales_at(c);
    bool some = ebb_attr_ints(&c->attrs, "axes", &count) != NULL;
    int64_t entries = some ? (int64_t)count : x->rank;
    const ebb_attr *old = ebb_attr_find(&c->attrs, "scales");
    if (has_sizes(c))
        return ebb_plain_elements(&c->in[3].type) == entries ? NULL : "sizes do not fit the axes";
    if (ebb_plain_has(c, at))
        return ebb_plain_elements(&c->in[at].type) == entries ? NULL : "scales do not fit the axes";
    return old != NULL && old->floats != NULL && (int64_t)old->count == entries
               ? NULL
               : "neither scales nor sizes are given";
}

const ebb_kernel ebb_plain_resize[] = {
    {.name = "plain.resize",
     .op = EBB_OP_RESIZE,
     .declines = declines,
     .workspace = workspace,
     .run = run_resize},
    {.name = "plain.upsample",
     .op = EBB_OP_UPSAMPLE,
     .declines = declines,
     .workspace = workspace,
     .run = run_resize},
};
EBB_PLAIN_COUNT(resize)
