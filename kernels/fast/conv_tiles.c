/* conv_tiles.c: Conv, ConvTranspose and ConvWeightGrad by gathered.h, where no oneDNN takes them.
 *
 *                   A [m, k]               B [k, n]                            C [m, n]
 *   Conv            weight [M, C taps]     windows [C taps, N narrow]          narrow
 *   ConvTranspose   weight'[C, M taps]     narrow where taps meet [M taps, N wide]   wide
 *   ConvWeightGrad  narrow [M, N narrow]   windows' [N narrow, C taps]         weight
 *
 * once for each group, whose channels C and M are. See kernels/call/geometry.h for the wide and the narrow
 * tensor. A tap of a window lies at one place of every channel: places are looked up once for all.
 */
#include "kernels/fast/fast.h"
#include "kernels/fast/gathered.h"

typedef struct form {
    ebb_geometry w;
    ebb_op op;
    int64_t wide, narrow, taps; /* elements: of a channel of each, of a kernel */
    int64_t channels, filters;  /* of a group, in the wide and in the narrow tensor */
    const float *left, *right, *bias;
    float *out;
} form;

/* ---- where the taps are ---- */

/* The place along an axis that tap `k` reads for element `o` of what is computed, or -1. */
static int64_t place_along(const form *f, int axis, int64_t o, int64_t k)
{
    const ebb_geometry *w = &f->w;
    int64_t tap = k * w->dilation[axis] - w->pad_begin[axis];
    if (f->op != EBB_OP_CONV_TRANSPOSE) {
        int64_t at = o * w->stride[axis] + tap;
        return at >= 0 && at < w->wide[axis] ? at : -1;
    }
    int64_t at = o - tap;
    return at >= 0 && at % w->stride[axis] == 0 && at / w->stride[axis] < w->narrow[axis]
               ? at / w->stride[axis]
               : -1;
}

/* In the tensor that windows are taken of, from the first channel of its group in the first image: of
 * each tap, for `count` elements of what is computed; -1 in the padding. */
static void places(const ebb_gathered *p, int64_t *to, int64_t first, int64_t count)
{
    const form *f = p->form;
    const bool turned = f->op == EBB_OP_CONV_TRANSPOSE;
    const int64_t *over = turned ? f->w.wide : f->w.narrow, *in = turned ? f->w.narrow : f->w.wide;
    const int64_t volume = turned ? f->wide : f->narrow;
    const int64_t image = turned ? f->w.narrow_channels * f->narrow : f->w.wide_channels * f->wide;
    for (int64_t i = 0; i < count; i++) {
        const int64_t o = (first + i) % volume, from = (first + i) / volume * image;
        const int64_t at[] = {o / over[2] / over[1], o / over[2] % over[1], o % over[2]};
        for (int64_t k = 0; k < f->taps; k++) {
            int64_t k2 = k % f->w.kernel[2], k1 = k / f->w.kernel[2] % f->w.kernel[1];
            int64_t p0 = place_along(f, 0, at[0], k / (f->w.kernel[2] * f->w.kernel[1]));
            int64_t p1 = place_along(f, 1, at[1], k1), p2 = place_along(f, 2, at[2], k2);
            bool inside = p0 >= 0 && p1 >= 0 && p2 >= 0;
            to[k * count + i] = inside ? from + (p0 * in[1] + p1) * in[2] + p2 : -1;
        }
    }
}

/* Line (channel, tap) of the windows. */
static void windows(const ebb_gathered *p, float *to, int64_t group, int64_t index, int64_t first,
                    int64_t count, const int64_t *at)
{
    (void)first;
    const form *f = p->form;
    const bool turned = f->op == EBB_OP_CONV_TRANSPOSE;
    const int64_t channel = group * (turned ? f->filters : f->channels) + index / f->taps;
    const float *from = f->right + channel * (turned ? f->narrow : f->wide);
    at += index % f->taps * count;
    for (int64_t i = 0; i < count; i++)
        to[i] = at[i] >= 0 ? from[at[i]] : 0.0f;
}

/* ---- the other side, and what comes out ---- */

static void weight_row(const ebb_gathered *p, float *to, int64_t group, int64_t row, int64_t first,
                       int64_t count)
{
    const form *f = p->form;
    const float *from = f->left + (group * f->filters + row) * p->k + first;
    memcpy(to, from, (size_t)count * sizeof *to);
}

/* Of channel `row`: (filter, tap). */
static void weight_column(const ebb_gathered *p, float *to, int64_t group, int64_t row,
                          int64_t first, int64_t count)
{
    const form *f = p->form;
    const float *from = f->left + (group * f->filters * f->channels + row) * f->taps;
    int64_t filter = first / f->taps, tap = first % f->taps;
    for (int64_t i = 0; i < count; i++) {
        to[i] = from[filter * f->channels * f->taps + tap];
        if (++tap == f->taps) {
            tap = 0;
            filter++;
        }
    }
}

/* Elements first .. of a channel that goes on from image to image: its next stretch within an image, and
 * where that begins. */
static int64_t stretch(int64_t *at, int64_t channels, int64_t channel, int64_t volume,
                       int64_t first, int64_t count)
{
    int64_t image = first / volume, inside = first % volume;
    *at = (image * channels + channel) * volume + inside;
    return count < volume - inside ? count : volume - inside;
}

static void narrow_row(const ebb_gathered *p, float *to, int64_t group, int64_t row, int64_t first,
                       int64_t count)
{
    const form *f = p->form;
    for (int64_t at, n; count > 0; to += n, first += n, count -= n) {
        n = stretch(&at, f->w.narrow_channels, group * f->filters + row, f->narrow, first, count);
        memcpy(to, f->left + at, (size_t)n * sizeof *to);
    }
}

static void store_channel(const ebb_gathered *p, const float *from, int64_t group, int64_t row,
                          int64_t first, int64_t count)
{
    const form *f = p->form;
    const bool turned = f->op == EBB_OP_CONV_TRANSPOSE;
    const int64_t channel = group * p->m + row;
    const float bias = f->bias != NULL ? f->bias[channel] : 0.0f;
    for (int64_t at, n; count > 0; from += n, first += n, count -= n) {
        n = stretch(&at, turned ? f->w.wide_channels : f->w.narrow_channels, channel,
                    turned ? f->wide : f->narrow, first, count);
        EBB_SIMD
        for (int64_t i = 0; i < n; i++)
            f->out[at + i] = from[i] + bias;
    }
}

static void store_weight(const ebb_gathered *p, const float *from, int64_t group, int64_t row,
                         int64_t first, int64_t count)
{
    const form *f = p->form;
    memcpy(f->out + (group * f->filters + row) * p->n + first, from, (size_t)count * sizeof *from);
}

/* ---- the kernels ---- */

static const char *read_form(form *f, const ebb_call *call)
{
    const char *why = ebb_conv_read(&f->w, call);
    if (why != NULL)
        return why;
    bool weights = call->op == EBB_OP_CONV_WEIGHT_GRAD;
    f->op = call->op;
    f->wide = ebb_geometry_volume(f->w.wide);
    f->narrow = ebb_geometry_volume(f->w.narrow);
    f->taps = ebb_geometry_volume(f->w.kernel);
    f->channels = f->w.wide_channels / f->w.groups;
    f->filters = f->w.narrow_channels / f->w.groups;
    f->left = call->in[weights ? 0 : 1].data;
    f->right = call->in[weights ? 1 : 0].data;
    f->bias = !weights && ebb_dnnl_has(call, 2) ? call->in[2].data : NULL;
    f->out = call->out[0].data;
    return NULL;
}

static ebb_gathered product_of(const form *f)
{
    ebb_gathered p = {.batches = f->w.groups,
                      .form = f,
                      .m = f->filters,
                      .n = f->w.batch * f->narrow,
                      .k = f->channels * f->taps,
                      .left = weight_row,
                      .right = windows,
                      .places = places,
                      .place_rows = f->taps,
                      .store = store_channel};
    if (f->op == EBB_OP_CONV_TRANSPOSE) {
        p.m = f->channels;
        p.n = f->w.batch * f->wide;
        p.k = f->filters * f->taps;
        p.left = weight_column;
    } else if (f->op == EBB_OP_CONV_WEIGHT_GRAD) {
        p.n = f->channels * f->taps;
        p.k = f->w.batch * f->narrow;
        p.by_columns = true;
        p.left = narrow_row;
        p.store = store_weight;
    }
    return p;
}

static const char *misfit(const ebb_call *call)
{
    form f;
    const char *why = read_form(&f, call);
    if (why != NULL)
        return why;
    if (f.w.groups > 1 && product_of(&f).m < 4)
        return "too few channels a group";
    return ebb_conv_bias_misfit(&f.w, call);
}

static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    form f;
    const char *why = read_form(&f, call);
    if (why != NULL)
        return ebb_call_error(call, "%s", why);
    ebb_gathered p = product_of(&f);
    return ebb_gathered_workspace(&p, call, bytes);
}

static ebb_status run(const ebb_call *call)
{
    form f;
    const char *why = read_form(&f, call);
    if (why != NULL)
        return ebb_call_error(call, "%s", why);
    ebb_gathered p = product_of(&f);
    ebb_gathered_run(&p, call);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_conv_tiles[] = {
    {.name = "tiles.conv",             .op = EBB_OP_CONV,             .dtypes = ebb_dnnl_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "tiles.conv_transpose",   .op = EBB_OP_CONV_TRANSPOSE,   .dtypes = ebb_dnnl_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "tiles.conv_weight_grad", .op = EBB_OP_CONV_WEIGHT_GRAD, .dtypes = ebb_dnnl_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(conv_tiles)
