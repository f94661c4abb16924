/* pool.c: MaxPool with Indices, AveragePool, the global pools, and the gradients.
 *
 * MaxPoolGrad has no Indices: it looks for the maxima again, in the same order, so that ties go the
 * same way (the first one wins, as in PyTorch). MaxPoolPacked notes which tap of the window it was,
 * in a few bits, and MaxPoolPackedGrad goes there without looking. A window's divisor in
 * AveragePool counts its taps inside the tensor, with count_include_pad also those on the padding,
 * but never those that ceil_mode lets run beyond it.
 */
#include "kernels/plain/number.h"
#include "kernels/math/codes.h"
#include "kernels/call/geometry.h"
#include "kernels/call/misfit.h"

#include <math.h>

/* The taps of one window that lie inside the tensor: first, first + dilation, ... below end. */
typedef struct tap_range {
    int64_t first[EBB_AXES], end[EBB_AXES];
    int64_t count, padded_count;
} tap_range;

static int64_t taps_below(int64_t first, int64_t end, int64_t step)
{
    return end <= first ? 0 : (end - first + step - 1) / step;
}

static void window_taps(tap_range *r, const ebb_geometry *w, int64_t o)
{
    r->count = r->padded_count = 1;
    for (int axis = EBB_AXES - 1; axis >= 0; axis--) {
        int64_t step = w->dilation[axis];
        int64_t start = o % w->narrow[axis] * w->stride[axis] - w->pad_begin[axis];
        int64_t end = start + (w->kernel[axis] - 1) * step + 1;
        int64_t padded_end = w->wide[axis] + w->pad_end[axis];
        r->first[axis] = start >= 0 ? start : start + (-start + step - 1) / step * step;
        r->end[axis] = end < w->wide[axis] ? end : w->wide[axis];
        r->count *= taps_below(r->first[axis], r->end[axis], step);
        r->padded_count *= taps_below(start, end < padded_end ? end : padded_end, step);
        o /= w->narrow[axis];
    }
}

/* The offset of the same element if the last axis varied slowest (storage_order 1). */
static int64_t by_columns(const ebb_geometry *w, int64_t at)
{
    int64_t k = at % w->wide[2], j = at / w->wide[2] % w->wide[1], i = at / w->wide[2] / w->wide[1];
    return i + w->wide[0] * (j + w->wide[1] * k);
}

/* The tap of window o at offset `at` of the channel, counted in row-major order. */
static uint32_t tap_at(const ebb_geometry *w, int64_t o, int64_t at)
{
    int64_t tap = 0, place = 1;
    for (int axis = EBB_AXES - 1; axis >= 0; axis--) {
        int64_t start = o % w->narrow[axis] * w->stride[axis] - w->pad_begin[axis];
        tap += (at % w->wide[axis] - start) / w->dilation[axis] * place;
        place *= w->kernel[axis];
        o /= w->narrow[axis];
        at /= w->wide[axis];
    }
    return (uint32_t)tap;
}

/* The other way round; -1 where that tap is outside of the channel. */
static int64_t offset_of(const ebb_geometry *w, int64_t o, int64_t tap)
{
    int64_t offset = 0, place = 1;
    for (int axis = EBB_AXES - 1; axis >= 0; axis--) {
        int64_t at = o % w->narrow[axis] * w->stride[axis] - w->pad_begin[axis] +
                     tap % w->kernel[axis] * w->dilation[axis];
        if (at < 0 || at >= w->wide[axis])
            return -1;
        offset += at * place;
        place *= w->wide[axis];
        tap /= w->kernel[axis];
        o /= w->narrow[axis];
    }
    return offset;
}

#define LOOPS "kernels/plain/layers/pool_loops.inc"
#include "kernels/plain/both_floats.inc"

static const char *misfit(const ebb_call *call)
{
    ebb_geometry w;
    if (ebb_call_wants(call, 1) && call->out[1].type.dtype != EBB_I64)
        return "Indices are not int64";
    return ebb_pool_read(&w, call);
}

static const char *misfit_packed(const ebb_call *call)
{
    ebb_geometry w;
    bool backward = call->op == EBB_OP_MAX_POOL_PACKED_GRAD;
    if (backward ? !ebb_call_has(call, 1) : !ebb_call_wants(call, 1))
        return "no taps";
    EBB_ASK(ebb_pool_read(&w, call));
    return ebb_taps_misfit(&w, call);
}

static ebb_status run(const ebb_call *call)
{
    ebb_geometry w;
    EBB_MUST_FIT(call, ebb_pool_read(&w, call));
    bool count_pad = ebb_attr_int(&call->attrs, "count_include_pad", 0) != 0;
    bool columns = ebb_attr_int(&call->attrs, "storage_order", 0) != 0;
    unsigned bits = (unsigned)ebb_attr_int(&call->attrs, "bits", 8);
    int64_t *indices =
        call->op == EBB_OP_MAX_POOL && ebb_call_wants(call, 1) ? call->out[1].data : NULL;
    const void *first = call->in[0].data;
    void *out = call->out[0].data;
    switch (call->op) {
    case EBB_OP_MAX_POOL:
        EBB_BY_FLOAT(call->out[0], max_pool, &w, out, indices, first, columns);
        break;
    case EBB_OP_AVERAGE_POOL:
        EBB_BY_FLOAT(call->out[0], average_pool, &w, out, first, count_pad);
        break;
    case EBB_OP_MAX_POOL_PACKED:
        EBB_BY_FLOAT(call->out[0], max_pool_packed, &w, out, call->out[1].data, bits, first);
        break;
    case EBB_OP_MAX_POOL_PACKED_GRAD:
        EBB_BY_FLOAT(call->out[0], max_pool_packed_grad, &w, out, first, call->in[1].data, bits);
        break;
    case EBB_OP_MAX_POOL_GRAD:
        EBB_BY_FLOAT(call->out[0], max_pool_grad, &w, out, first, call->in[1].data);
        break;
    default:
        EBB_BY_FLOAT(call->out[0], average_pool_grad, &w, out, first, count_pad);
        break;
    }
    return NULL;
}

/* The largest of integers of window o of the plane at `plane`; nothing but padding gives the least
 * number of the dtype. Also where it is, -1: nowhere. */
static int64_t most_at(const ebb_call *call, const ebb_geometry *w, int64_t plane, int64_t o)
{
    tap_range r;
    int64_t best = -1;
    window_taps(&r, w, o);
    for (int64_t i = r.first[0]; i < r.end[0]; i += w->dilation[0])
        for (int64_t j = r.first[1]; j < r.end[1]; j += w->dilation[1])
            for (int64_t k = r.first[2]; k < r.end[2]; k += w->dilation[2]) {
                int64_t at = (i * w->wide[1] + j) * w->wide[2] + k;
                if (best < 0 || ebb_plain_whole(&call->in[0], plane + at) >
                                    ebb_plain_whole(&call->in[0], plane + best))
                    best = at;
            }
    return best;
}

/* MaxPool of int8 and uint8. */
static ebb_status run_integers(const ebb_call *call)
{
    ebb_geometry w;
    EBB_MUST_FIT(call, ebb_pool_read(&w, call));
    bool columns = ebb_attr_int(&call->attrs, "storage_order", 0) != 0;
    int64_t *indices = ebb_call_wants(call, 1) ? call->out[1].data : NULL;
    int64_t wide = ebb_geometry_volume(w.wide), volume = ebb_geometry_volume(w.narrow);
    for (int64_t i = 0, n = ebb_elements(&call->out[0].type); i < n; i++) {
        int64_t plane = i / volume * wide, at = most_at(call, &w, plane, i % volume);
        ebb_plain_put(&call->out[0], i,
                      at < 0 ? -INFINITY : (double)ebb_plain_whole(&call->in[0], plane + at));
        if (indices != NULL)
            indices[i] = at < 0 ? -1 : plane + (columns ? by_columns(&w, at) : at);
    }
    return NULL;
}

static const char *misfit_integers(const ebb_call *call)
{
    ebb_geometry w;
    if (call->in[0].type.dtype != EBB_I8 && call->in[0].type.dtype != EBB_U8)
        return "of integers it takes int8 and uint8 only";
    if (ebb_call_wants(call, 1) && call->out[1].type.dtype != EBB_I64)
        return "Indices are not int64";
    return ebb_pool_read(&w, call);
}

static ebb_status run_global(const ebb_call *call)
{
    const ebb_type *type = &call->in[0].type;
    int64_t images = type->dims[0] * type->dims[1];
    int64_t volume = images == 0 ? 0 : ebb_elements(type) / images;
    bool average = call->op == EBB_OP_GLOBAL_AVERAGE_POOL;
    EBB_BY_FLOAT(call->in[0], global_pool, call->out[0].data, call->in[0].data, images, volume,
                 average);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_pool[] = {
    {.name = "plain.max_pool",             .op = EBB_OP_MAX_POOL,             .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.max_pool_integers",    .op = EBB_OP_MAX_POOL,             .dtypes = ebb_call_any, .fits = misfit_integers, .run = run_integers},
    {.name = "plain.average_pool",         .op = EBB_OP_AVERAGE_POOL,         .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.max_pool_grad",        .op = EBB_OP_MAX_POOL_GRAD,        .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.max_pool_packed",      .op = EBB_OP_MAX_POOL_PACKED,      .dtypes = ebb_plain_floats, .fits = misfit_packed, .run = run},
    {.name = "plain.max_pool_packed_grad", .op = EBB_OP_MAX_POOL_PACKED_GRAD, .dtypes = ebb_plain_floats, .fits = misfit_packed, .run = run},
    {.name = "plain.average_pool_grad",    .op = EBB_OP_AVERAGE_POOL_GRAD,    .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.global_average_pool",  .op = EBB_OP_GLOBAL_AVERAGE_POOL,  .dtypes = ebb_plain_floats, .fits = ebb_global_pool_misfit, .run = run_global},
    {.name = "plain.global_max_pool",      .op = EBB_OP_GLOBAL_MAX_POOL,      .dtypes = ebb_plain_floats, .fits = ebb_global_pool_misfit, .run = run_global},
};
// clang-format on
EBB_PLAIN_COUNT(pool)
