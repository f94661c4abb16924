/* conv_tiles.c: Conv, ConvTranspose and ConvWeightGrad by gathered.h, where no oneDNN takes them.
 *
 *                   A [m, k]               B [k, n]                            C [m, n]
 *   Conv            weight [M, C taps]     windows [C taps, N narrow]          narrow
 *   ConvTranspose   weight'[C, M taps]     narrow where taps meet [M taps, N wide]   wide
 *   ConvWeightGrad  narrow [M, N narrow]   windows' [N narrow, C taps]         weight
 *
 * once for each group, whose channels C and M are. See kernels/call/geometry.h for the wide and the narrow
 * tensor. A tap of a window lies at one place of every channel: places are looked up once for all.
 *
 * What a ConvTranspose of stride s computes at r, r + s, r + 2 s ... meets the same taps, every s-th: each such
 * phase is a product of its own, in which windows go on by 1.
 */
#include "kernels/fast/fast.h"
#include "kernels/fast/gathered.h"
#include "kernels/fast/tile.h"

enum { MOST_PHASES = 1024 }; /* beyond, a phase is too small for a product */

/* Element o of what is computed reads, by its j-th tap, place o * step + start + j * slope; the j-th is tap
 * first + j * every of the kernel. */
typedef struct axis {
    int64_t over, in; /* elements: computed, and there to be read */
    int64_t step, start, slope;
    int64_t taps, first, every;
} axis;

typedef struct form {
    ebb_geometry w;
    ebb_op op;
    bool turned;                  /* ConvTranspose */
    int64_t wide, narrow, kernel; /* elements: of a channel of each, of a kernel */
    int64_t channels, filters;    /* of a group, in the wide and in the narrow tensor */
    int64_t plane, image; /* elements from channel to channel, image to image, in windows' tensor */
    const float *left, *right, *bias;
    float *out;
    int64_t phase[EBB_AXES]; /* 0 but of ConvTranspose */
    axis along[EBB_AXES];
    int64_t grid, taps; /* elements computed of a channel, taps that meet in each */
} form;

/* ---- phases ---- */

static axis phase_along(const ebb_geometry *w, int i, int64_t phase)
{
    const int64_t stride = w->stride[i], dilation = w->dilation[i], from = phase + w->pad_begin[i];
    axis a = {.over = (w->wide[i] - phase + stride - 1) / stride,
              .in = w->narrow[i],
              .step = 1,
              .every = 1};
    while (a.every * (dilation % stride) % stride != 0)
        a.every++;
    const int64_t tried = ebb_least(a.every, w->kernel[i]);
    while (a.first < tried && (from - a.first * dilation) % stride != 0)
        a.first++;
    if (a.first == tried)
        return a; // no tap meets here
    a.taps = (w->kernel[i] - 1 - a.first) / a.every + 1;
    a.start = (from - a.first * dilation) / stride;
    a.slope = -(a.every * dilation / stride);
    return a;
}

static void set_phase(form *f, int64_t number)
{
    const ebb_geometry *w = &f->w;
    f->grid = f->taps = 1;
    for (int i = EBB_AXES - 1; i >= 0; i--) {
        axis *a = &f->along[i];
        if (f->turned) {
            const int64_t phases = ebb_least(w->stride[i], w->wide[i]);
            f->phase[i] = number % phases;
            number /= phases;
            *a = phase_along(w, i, f->phase[i]);
        } else {
            *a = (axis){.over = w->narrow[i],
                        .in = w->wide[i],
                        .step = w->stride[i],
                        .start = -w->pad_begin[i],
                        .slope = w->dilation[i],
                        .taps = w->kernel[i],
                        .every = 1};
        }
        f->grid *= a->over;
        f->taps *= a->taps;
    }
}

/* How many there are, counted to MOST_PHASES + 1. */
static int64_t phases(const form *f)
{
    int64_t n = 1;
    for (int i = 0; i < EBB_AXES && f->turned && n <= MOST_PHASES; i++)
        n *= ebb_least(ebb_least(f->w.stride[i], f->w.wide[i]), MOST_PHASES + 1);
    return n;
}

/* ---- windows ---- */

/* The stretches of a line that read, and behind them those of the padding. */
typedef struct list {
    ebb_stretch *at;
    int64_t count, begun; /* begun: where those of the padding begin, once they do */
    bool padding;
    int64_t step;
} list;

/* Elements to .. to + n of a line, of which the first reads `place`. Two that read are one where that only
 * reads too much in between: there is padding, which is written after. */
static void put(list *l, int64_t to, int64_t place, int64_t n)
{
    if (n <= 0)
        return;
    ebb_stretch *last = l->count > l->begun ? &l->at[l->count - 1] : NULL;
    if (last != NULL && (l->padding ? last->to + last->count == to
                                    : place - last->place == (to - last->to) * l->step))
        last->count = (int16_t)(to + n - last->to);
    else
        l->at[l->count++] = (ebb_stretch){(int32_t)place, (int16_t)to, (int16_t)n};
}

/* Elements to .. to + n, one after the other in a row of what is computed; base: where the row starts that
 * they read, -1: nowhere. */
static void put_row(list *l, const axis *a, int64_t to, int64_t base, int64_t o, int64_t n,
                    int64_t tap)
{
    const int64_t at = o * a->step + a->start + tap * a->slope;
    const int64_t before = at < 0 ? ebb_least(n, (a->step - 1 - at) / a->step) : 0;
    const int64_t left = base < 0 ? 0 : a->in - (at + before * a->step);
    const int64_t inside = left > 0 ? ebb_least(n - before, (left + a->step - 1) / a->step) : 0;
    if (!l->padding) {
        put(l, to + before, base + at + before * a->step, inside);
    } else {
        put(l, to, -1, before);
        put(l, to + before + inside, -1, n - before - inside);
    }
}

/* The place along an axis, or -1. */
static int64_t place_along(const axis *a, int64_t o, int64_t tap)
{
    const int64_t at = o * a->step + a->start + tap * a->slope;
    return at >= 0 && at < a->in ? at : -1;
}

static void put_rows(list *l, const form *f, int64_t tap, int64_t first, int64_t count)
{
    const axis *a = f->along;
    const int64_t t0 = tap / (a[1].taps * a[2].taps), t1 = tap / a[2].taps % a[1].taps;
    const int64_t row = first / a[2].over;
    int64_t o0 = row / a[1].over % a[0].over, o1 = row % a[1].over, o2 = first % a[2].over;
    int64_t image = 0;
    for (int64_t n, to = 0; to < count; to += n, o2 = 0) {
        n = ebb_least(count - to, a[2].over - o2);
        const int64_t p0 = place_along(&a[0], o0, t0), p1 = place_along(&a[1], o1, t1);
        const bool inside = p0 >= 0 && p1 >= 0;
        put_row(l, &a[2], to, inside ? image + (p0 * a[1].in + p1) * a[2].in : -1, o2, n,
                tap % a[2].taps);
        if (++o1 < a[1].over)
            continue;
        o1 = 0;
        if (++o0 < a[0].over)
            continue;
        o0 = 0;
        image += f->image;
    }
}

/* For each tap, from a channel of the first element's image on. */
static void places(const ebb_gathered *p, ebb_stretch *to, int64_t first, int64_t count)
{
    const form *f = p->form;
    for (int64_t tap = 0; tap < f->taps; tap++, to += count + 1) {
        list l = {.at = to, .step = f->along[2].step};
        put_rows(&l, f, tap, first, count);
        l.begun = l.count;
        l.padding = true;
        put_rows(&l, f, tap, first, count);
        to[l.count] = (ebb_stretch){0};
    }
}

/* memcpy of few: what overlaps is written twice. */
static inline void copy(float *to, const float *from, int64_t n)
{
    enum { AT_ONCE = 8 };
    if (n < AT_ONCE) {
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i];
        return;
    }
    for (int64_t i = 0; i + AT_ONCE <= n; i += AT_ONCE)
        memcpy(to + i, from + i, AT_ONCE * sizeof *to);
    memcpy(to + n - AT_ONCE, from + n - AT_ONCE, AT_ONCE * sizeof *to);
}

/* Line (channel, tap) of the windows. */
static void windows(const ebb_gathered *p, float *to, int64_t group, int64_t index, int64_t first,
                    int64_t count, const ebb_stretch *at)
{
    const form *f = p->form;
    const int64_t channel = group * (f->turned ? f->filters : f->channels) + index / f->taps;
    const float *from = f->right + first / f->grid * f->image + channel * f->plane;
    const int64_t step = f->along[2].step;
    at += index % f->taps * (count + 1);
    for (; at->count > 0 && at->place >= 0; at++)
        if (step == 1)
            copy(to + at->to, from + at->place, at->count);
        else
            for (int64_t i = 0; i < at->count; i++)
                to[at->to + i] = from[at->place + i * step];
    for (; at->count > 0; at++)
        for (int64_t i = 0; i < at->count; i++)
            to[at->to + i] = 0.0f;
}

/* ---- the other side, and what comes out ---- */

static void weight_row(const ebb_gathered *p, float *to, int64_t group, int64_t row, int64_t first,
                       int64_t count)
{
    const form *f = p->form;
    const float *from = f->left + (group * f->filters + row) * p->k + first;
    memcpy(to, from, (size_t)count * sizeof *to);
}

/* Where tap number `tap` of a phase lies in the kernel. */
static int64_t tap_of(const form *f, int64_t tap)
{
    const axis *a = f->along;
    const int64_t t2 = a[2].first + tap % a[2].taps * a[2].every;
    const int64_t t1 = a[1].first + tap / a[2].taps % a[1].taps * a[1].every;
    const int64_t t0 = a[0].first + tap / (a[2].taps * a[1].taps) * a[0].every;
    return (t0 * f->w.kernel[1] + t1) * f->w.kernel[2] + t2;
}

/* Of channel `row`: (filter, tap). All taps of a filter lie together. */
static void weight_column(const ebb_gathered *p, float *to, int64_t group, int64_t row,
                          int64_t first, int64_t count)
{
    const form *f = p->form;
    const int64_t apart = f->channels * f->kernel;
    const float *from = f->left + group * f->filters * apart + row * f->kernel;
    int64_t tap = first % f->taps;
    from += first / f->taps * apart;
    for (int64_t n; count > 0; to += n, count -= n) {
        n = f->taps == f->kernel ? ebb_least(count, f->taps - tap) : 1;
        copy(to, from + (n > 1 ? tap : tap_of(f, tap)), n);
        tap += n;
        if (tap == f->taps) {
            tap = 0;
            from += apart;
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

/* What is computed of a channel, row by row: in a phase, every stride-th of it. */
static void store_channel(const ebb_gathered *p, const float *from, int64_t group, int64_t row,
                          int64_t first, int64_t count)
{
    const form *f = p->form;
    const axis *a = f->along;
    const int64_t *size = f->turned ? f->w.wide : f->w.narrow;
    const int64_t channels = f->turned ? f->w.wide_channels : f->w.narrow_channels;
    const int64_t channel = group * p->m + row, whole = f->turned ? f->wide : f->narrow;
    const int64_t unit[] = {1, 1, 1}, *apart = f->turned ? f->w.stride : unit;
    const float bias = f->bias != NULL ? f->bias[channel] : 0.0f;
    for (int64_t n; count > 0; from += n, first += n, count -= n) {
        const int64_t o2 = first % a[2].over, o1 = first / a[2].over % a[1].over;
        const int64_t o0 = first / (a[2].over * a[1].over) % a[0].over;
        float *to =
            f->out + (first / f->grid * channels + channel) * whole +
            ((o0 * apart[0] + f->phase[0]) * size[1] + o1 * apart[1] + f->phase[1]) * size[2] +
            o2 * apart[2] + f->phase[2];
        n = ebb_least(count, a[2].over - o2);
        for (int64_t i = 0; i < n; i++)
            to[i * apart[2]] = from[i] + bias;
    }
}

static void store_weight(const ebb_gathered *p, const float *from, int64_t group, int64_t row,
                         int64_t first, int64_t count)
{
    const form *f = p->form;
    memcpy(f->out + (group * f->filters + row) * p->n + first, from, (size_t)count * sizeof *from);
}

/* ---- the kernels ---- */

/* Rows of which every window is one element are as well one long row. */
static void join_rows(ebb_geometry *w)
{
    for (int i = 1; i < EBB_AXES; i++)
        if (w->kernel[i] != 1 || w->stride[i] != 1 || w->pad_begin[i] != 0 ||
            w->wide[i] != w->narrow[i])
            return;
    w->wide[2] = w->narrow[2] = w->wide[2] * w->wide[1];
    w->wide[1] = w->narrow[1] = 1;
}

static const char *read_form(form *f, const ebb_call *call)
{
    *f = (form){.op = call->op, .turned = call->op == EBB_OP_CONV_TRANSPOSE};
    EBB_ASK(ebb_conv_read(&f->w, call));
    bool weights = call->op == EBB_OP_CONV_WEIGHT_GRAD;
    f->wide = ebb_geometry_volume(f->w.wide);
    f->narrow = ebb_geometry_volume(f->w.narrow);
    f->kernel = ebb_geometry_volume(f->w.kernel);
    f->channels = f->w.wide_channels / f->w.groups;
    f->filters = f->w.narrow_channels / f->w.groups;
    f->plane = f->turned ? f->narrow : f->wide;
    f->image = f->plane * (f->turned ? f->w.narrow_channels : f->w.wide_channels);
    f->left = call->in[weights ? 0 : 1].data;
    f->right = call->in[weights ? 1 : 0].data;
    f->bias = !weights && ebb_dnnl_has(call, 2) ? call->in[2].data : NULL;
    f->out = call->out[0].data;
    join_rows(&f->w);
    return NULL;
}

/* Of the phase that is set. */
static ebb_gathered product_of(const form *f)
{
    ebb_gathered p = {.batches = f->w.groups,
                      .form = f,
                      .m = f->turned ? f->channels : f->filters,
                      .n = f->w.batch * f->grid,
                      .k = (f->turned ? f->filters : f->channels) * f->taps,
                      .left = f->turned ? weight_column : weight_row,
                      .right = windows,
                      .places = places,
                      .place_rows = f->taps,
                      .store = store_channel};
    if (f->op == EBB_OP_CONV_WEIGHT_GRAD) {
        p.n = f->channels * f->taps;
        p.k = f->w.batch * f->grid;
        p.by_columns = true;
        p.left = narrow_row;
        p.store = store_weight;
    }
    return p;
}

static const char *misfit(const ebb_call *call)
{
    form f;
    EBB_ASK(read_form(&f, call));
    if (phases(&f) > MOST_PHASES)
        return "strides so large that few elements meet the same taps";
    set_phase(&f, phases(&f) - 1);                              // the smallest
    if (f.image > INT32_MAX / (EBB_GATHERED_LINE / f.grid + 2)) // so many images meet in a line
        return "images too large for places of 32 bits";
    if (f.w.groups > 1 && product_of(&f).m < 4)
        return "too few channels a group";
    return ebb_conv_bias_misfit(&f.w, call);
}

static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    form f;
    EBB_MUST_FIT(call, read_form(&f, call));
    *bytes = 0;
    for (int64_t i = 0; i < phases(&f); i++) {
        set_phase(&f, i);
        ebb_gathered p = product_of(&f);
        size_t own;
        EBB_TRY(ebb_gathered_workspace(&p, call, &own));
        *bytes = own > *bytes ? own : *bytes;
    }
    return NULL;
}

static ebb_status run(const ebb_call *call)
{
    form f;
    EBB_MUST_FIT(call, read_form(&f, call));
    for (int64_t i = 0; i < phases(&f); i++) {
        set_phase(&f, i);
        ebb_gathered p = product_of(&f);
        ebb_gathered_run(&p, call);
    }
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
