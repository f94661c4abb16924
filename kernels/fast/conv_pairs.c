/* conv_pairs.c: ConvWeightGradNhwc of bfloat16 where the processor multiplies pairs of these (tile.h) and has
 * nothing faster (AMX).
 *
 *     dW[filters, tap, channels] = dY'[filters, pixels] X_tap[pixels, channels]
 *
 * A job is a panel of channels and some filters, for which it goes through all pixels, a few at a time:
 * those of dY are made pairs of once, those of X that a tap reads for each tap. Sums of all taps are in
 * its memory; their order hangs on neither threads nor jobs. oneDNN's is as fast where nothing else runs,
 * but its threads wait for each other in loops: beside other programs it took three times as long.
 */
#include "kernels/fast/fast.h"
#include "kernels/fast/tile.h"
#include "kernels/plain/halves.h"
#include "kernels/processor.h"

enum {
    PANEL = EBB_TILE_COLUMNS,
    BLOCK = EBB_TILE_ROWS,
    TOGETHER = 256, /* pixels */
    PAIRS = TOGETHER / 2,
    MOST = 256, /* filters of a job */
    MOST_TAPS = 1 << 20,
};

typedef struct form {
    ebb_geometry w;
    const ebb_call *call;
    int64_t count, taps;             /* pixels of dY; of a window */
    int64_t channels, filters, some; /* filters of a job */
    int64_t across, jobs, slots;
} form;

/* Offsets in floats, in a slot. */
typedef struct memory {
    int64_t zeros, places, slots; /* before the slots */
    int64_t left, right, at, scratch, sum, line, slot;
    int64_t size;
} memory;

static int64_t padded(int64_t floats)
{
    return (floats + 15) / 16 * 16;
}

static const char *declines_operands(const ebb_call *call)
{
    for (uint32_t i = 0; i < 3; i++) {
        const ebb_operand *o = i < 2 ? &call->in[i] : &call->out[0];
        EBB_ASK(ebb_dnnl_declines_shape(o, true));
        if (o->type.dtype != EBB_BF16 && (i < 2 || o->type.dtype != EBB_F32))
            return "multiplies bfloat16";
    }
    return NULL;
}

static const char *read_sizes(form *f)
{
    const ebb_geometry *w = &f->w;
    const int64_t *pad = w->pad_begin, *end = w->pad_end;
    f->channels = w->wide_channels;
    f->filters = w->narrow_channels;
    f->count = w->batch * ebb_geometry_volume(w->narrow);
    f->taps = ebb_geometry_volume(w->kernel);
    if (w->groups != 1 || w->spatial != 2)
        return "multiplies images of one group";
    if (f->count > INT32_MAX || w->batch * ebb_geometry_volume(w->wide) > INT32_MAX)
        return "too many pixels";
    if (f->taps > MOST_TAPS) // whose sums and places, in floats, are then countable
        return "too large a window";
    if (f->taps == 1 && w->stride[1] * w->stride[2] == 1 && pad[1] + pad[2] + end[1] + end[2] == 0)
        return "a product of matrices"; // which others do as fast
    return f->channels < PANEL / 2 ? "wants more channels" : NULL;
}

static const char *read_form(form *f, const ebb_call *call)
{
    if (!EBB_TILE_PAIRS || ebb_processor_has_amx())
        return "the processor multiplies no pairs of bfloat16, or something else faster";
    *f = (form){.call = call};
    EBB_ASK(declines_operands(call));
    EBB_ASK(ebb_conv_read(&f->w, call));
    EBB_ASK(read_sizes(f));
    f->across = ebb_tile_width(f->channels) / PANEL;
    f->some = ebb_least((f->filters + BLOCK - 1) / BLOCK * BLOCK, MOST);
    while (f->across * ((f->filters + f->some - 1) / f->some) < 2 * ebb_threads() &&
           f->some > 4 * BLOCK)
        f->some = (f->some / 2 + BLOCK - 1) / BLOCK * BLOCK;
    f->jobs = f->across * ((f->filters + f->some - 1) / f->some);
    f->slots = ebb_least(f->jobs, ebb_threads());
    return NULL;
}

static memory memory_of(const form *f)
{
    memory m = {.places = padded(PANEL)};
    m.slots = m.places + padded(f->w.kernel[1] * f->w.narrow[1] + f->w.kernel[2] * f->w.narrow[2]);
    m.right = f->some * PAIRS;
    m.at = m.right + PAIRS * PANEL;
    m.scratch = m.at + padded(f->taps * TOGETHER);
    m.sum = m.scratch + 3 * TOGETHER;
    m.line = m.sum + f->taps * f->some * PANEL;
    m.slot = m.line + PANEL;
    m.size = m.slots + m.slot * f->slots;
    return m;
}

/* ---- what taps read ---- */

/* Along both axes, for each tap: where it reads for each row and column of dY, or -1. */
static void find_places(const form *f, int32_t *places)
{
    const ebb_geometry *w = &f->w;
    for (int axis = 1; axis <= 2; axis++)
        for (int64_t tap = 0; tap < w->kernel[axis]; tap++)
            for (int64_t o = 0; o < w->narrow[axis]; o++) {
                const int64_t at =
                    o * w->stride[axis] + tap * w->dilation[axis] - w->pad_begin[axis];
                *places++ = at >= 0 && at < w->wide[axis] ? (int32_t)at : -1;
            }
}

/* For `count` pixels of dY from `first` on: the pixels of X, at[tap * TOGETHER + i], or -1. */
static void look_up(const form *f, const int32_t *places, int32_t *at, int32_t *scratch,
                    int64_t first, int64_t count)
{
    const ebb_geometry *w = &f->w;
    const int64_t rows = w->narrow[1], columns = w->narrow[2];
    const int32_t wide = (int32_t)w->wide[2], size = (int32_t)(w->wide[1] * w->wide[2]);
    int32_t *row = scratch, *column = row + TOGETHER, *image = column + TOGETHER;
    for (int64_t i = 0; i < count; i++) {
        image[i] = (int32_t)((first + i) / (rows * columns)) * size;
        row[i] = (int32_t)((first + i) / columns % rows);
        column[i] = (int32_t)((first + i) % columns);
    }
    for (int64_t tap = 0; tap < f->taps; tap++, at += TOGETHER) {
        const int32_t *down = places + tap / w->kernel[2] * rows;
        const int32_t *across = places + w->kernel[1] * rows + tap % w->kernel[2] * columns;
        EBB_SIMD
        for (int64_t i = 0; i < count; i++) {
            const int32_t y = down[row[i]], x = across[column[i]];
            at[i] = y < 0 || x < 0 ? -1 : image[i] + y * wide + x;
        }
    }
}

/* ---- pairs ---- */

/* dY of so many pixels and filters into slivers of a block's filters. */
static void pack_left(const form *f, uint32_t *to, int64_t pixel, int64_t pixels, int64_t filter,
                      int64_t filters)
{
    const uint16_t *from = (const uint16_t *)f->call->in[0].data + pixel * f->filters + filter;
    for (int64_t first = 0; first < filters; first += BLOCK, to += PAIRS * BLOCK)
        ebb_tile_pair_lines(to, from + first, f->filters, 1, pixels,
                            ebb_least(filters - first, BLOCK), BLOCK);
}

/* The channels of the panel, of the pixels that a tap reads. */
static void pack_right(const form *f, uint32_t *to, const int32_t *at, const uint16_t *zeros,
                       int64_t pixels, int64_t channel, int64_t channels)
{
    const uint16_t *x = (const uint16_t *)f->call->in[1].data + channel;
    for (int64_t i = 0; i < pixels; i += 2, to += PANEL) {
        const int64_t one = at[i], two = i + 1 < pixels ? at[i + 1] : -1;
        const uint16_t *low = one < 0 ? zeros : x + one * f->channels;
        const uint16_t *high = two < 0 ? zeros : x + two * f->channels;
        if (channels == PANEL) {
            for (int64_t j = 0; j < PANEL; j++)
                to[j] = low[j] | (uint32_t)high[j] << 16;
            continue;
        }
        for (int64_t j = 0; j < PANEL; j++)
            to[j] = j < channels ? low[j] | (uint32_t)high[j] << 16 : 0;
    }
}

static void add_pixels(const form *f, const memory *m, float *all, float *slot, int64_t pixel,
                       int64_t filter, int64_t filters, int64_t channel)
{
    const int64_t pixels = ebb_least(f->count - pixel, TOGETHER), pairs = (pixels + 1) / 2;
    const int64_t channels = ebb_least(f->channels - channel, PANEL);
    int32_t *at = (int32_t *)(void *)(slot + m->at);
    uint32_t *right = (uint32_t *)(void *)(slot + m->right);
    look_up(f, (int32_t *)(void *)(all + m->places), at, (int32_t *)(void *)(slot + m->scratch),
            pixel, pixels);
    pack_left(f, (uint32_t *)(void *)(slot + m->left), pixel, pixels, filter, filters);
    for (int64_t tap = 0; tap < f->taps; tap++) {
        float *sum = slot + m->sum + tap * f->some * PANEL;
        pack_right(f, right, at + tap * TOGETHER, (uint16_t *)(void *)(all + m->zeros), pixels,
                   channel, channels);
        for (int64_t r = 0; r < filters; r += BLOCK)
            ebb_tile_block_of(sum + r * PANEL, PANEL, slot + m->left + r * PAIRS, 1, BLOCK,
                              slot + m->right, pairs, BLOCK, pixel > 0, true);
    }
}

static void compute_job(const form *f, const memory *m, float *all, float *slot, int64_t job)
{
    const int64_t channel = job % f->across * PANEL, filter = job / f->across * f->some;
    const int64_t filters = ebb_least(f->filters - filter, f->some);
    const int64_t n = ebb_least(f->channels - channel, PANEL);
    const ebb_operand *y = &f->call->out[0];
    const ebb_dtype dtype = (ebb_dtype)y->type.dtype;
    for (int64_t pixel = 0; pixel < f->count; pixel += TOGETHER)
        add_pixels(f, m, all, slot, pixel, filter, filters, channel);
    for (int64_t r = 0; r < filters; r++)
        for (int64_t tap = 0; tap < f->taps; tap++) {
            const float *sum = slot + m->sum + (tap * f->some + r) * PANEL;
            const int64_t at = ((filter + r) * f->taps + tap) * f->channels + channel;
            float *to = ebb_place_f32(y->data, dtype, at, slot + m->line);
            memcpy(to, sum, (size_t)n * sizeof *to);
            ebb_put_f32(y->data, dtype, at, n, to);
        }
}

/* ---- the kernel ---- */

static const char *fits(const ebb_call *call)
{
    form f;
    return read_form(&f, call);
}

static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    form f;
    EBB_MUST_FIT(call, read_form(&f, call));
    if (!ebb_size_mul(bytes, (size_t)memory_of(&f).size, sizeof(float)))
        return ebb_call_error(call, "its product takes too much memory");
    return NULL;
}

static ebb_status run(const ebb_call *call)
{
    form f;
    EBB_MUST_FIT(call, read_form(&f, call));
    const memory m = memory_of(&f);
    float *all = call->workspace;
    f.slots = (int64_t)(call->workspace_bytes / sizeof(float) - (size_t)m.slots) / m.slot;
    memset(all + m.zeros, 0, PANEL * sizeof(float));
    find_places(&f, (int32_t *)(void *)(all + m.places));
    const int64_t work = f.count * f.channels * f.filters;
    EBB_PARALLEL_FOR(work)
    for (int64_t slot = 0; slot < f.slots; slot++)
        for (int64_t job = slot; job < f.jobs; job += f.slots)
            compute_job(&f, &m, all, all + m.slots + slot * m.slot, job);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_conv_pairs[] = {
    {.name = "tiles.conv_weight_grad_nhwc", .op = EBB_OP_CONV_WEIGHT_GRAD_NHWC, .fits = fits, .workspace = workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(conv_pairs)
