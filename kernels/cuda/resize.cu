/* resize.cu: Resize and Upsample, in every mode.
 *
 * As kernels/plain/move/resize.c: a table for each axis says where the neighbours of a place begin and
 * what each weighs, by the same text (onnx/words/resize.h); an element is a sum over the product of the
 * axes' neighbours. Axes that stay as they are have no table, and merge with their likes:
 *
 *     [N, C, H, W], twice as high and wide:   [N C | H | W]      walked in this order
 *
 * Scales, sizes and roi that are first known in the run are read by the kernel that fills the
 * tables; how many neighbours a place may have, shapes alone say.
 */
#include "kernels/cuda/small.h"
#include "kernels/call/move/resizing.h"

typedef struct resize_line { /* one axis, or several that stay */
    int64_t out, stride;
    int32_t axis; /* whose table it has; -1: it stays */
    int64_t *begin, *count;
    double *weight; /* [out, taps] */
} resize_line;

typedef struct resize_numbers { /* of the run */
    const void *at;             /* NULL: not given */
    uint8_t dtype;
} resize_numbers;

typedef struct resize_args {
    ebb_resize what;
    ebb_resize_order order;
    resize_numbers scales, sizes, roi;
    ebb_cuda_step *step;
    uint32_t position;
    int32_t lines;
    resize_line line[EBB_MAX_RANK];
    void *y;
    const void *x;
    int64_t n;
    uint8_t dtype;
    bool narrow; /* all counts fit 32 bits: division is cheap */
} resize_args;

typedef struct resize_place { /* of one element */
    int64_t from, taps;
    int64_t at[EBB_MAX_RANK];
    bool outside;
} resize_place;

EBB_GPU_INLINE int64_t resize_divide(const resize_args *a, int64_t n, int64_t by)
{
    return a->narrow ? (int64_t)((uint32_t)n / (uint32_t)by) : n / by;
}

EBB_GPU_INLINE void resize_find(resize_place *p, const resize_args *a, int64_t i)
{
    p->from = 0;
    p->taps = 1;
    p->outside = false;
    for (int d = a->lines - 1; d >= 0; d--) {
        const resize_line *l = &a->line[d];
        const int64_t next = resize_divide(a, i, l->out), o = i - next * l->out;
        p->at[d] = o;
        i = next;
        if (l->axis < 0)
            p->from += o * l->stride;
        else if (l->count[o] < 0)
            p->outside = true;
        else
            p->taps *= l->count[o];
    }
}

/* The tables: blocks of row y fill that of line y. */
EBB_GLOBAL(resize_tables, resize_args)
{
    const resize_line *l = &a.line[EBB_BLOCK_Y];
    if (l->axis < 0)
        return;
    EBB_GRID_LOOP(o, l->out)
    l->count[o] = ebb_resize_place(&a.what, l->axis, o, &l->begin[o],
                                   l->weight + o * a.what.axis[l->axis].taps);
}

EBB_GPU_INLINE void resize_take(double *to, const resize_numbers *from, int64_t count)
{
    for (int64_t i = 0; i < count && from->at != NULL; i++)
        to[i] = ebb_load_number(from->at, i, from->dtype);
}

/* What fits no axis is told by the size that its scale would make, and read no further. */
EBB_GPU_INLINE bool resize_fits_in_run(const resize_args *a, const ebb_resize *what)
{
    for (int d = 0; d < what->rank; d++) {
        const ebb_resize_axis *l = &what->axis[d];
        const double size = l->scale * (double)l->in;
        if (l->scale > 0 && ebb_resize_fits(what, d))
            continue;
        const int64_t would = size > 0 && size < 1e15 ? (int64_t)size : 0;
        return ebb_cuda_inside(a->step, a->position, would == l->out ? -1 : would, l->out,
                               l->out + 1);
    }
    return true;
}

EBB_GLOBAL(resize_tables_in_run, resize_args)
{
    const resize_line *l = &a.line[EBB_BLOCK_Y];
    double scales[EBB_MAX_RANK], sizes[EBB_MAX_RANK], roi[2 * EBB_MAX_RANK];
    ebb_resize what = a.what;
    ebb_resize_values values = {scales, a.sizes.at != NULL ? sizes : NULL,
                                a.roi.at != NULL ? roi : NULL, 2 * a.order.entries};
    resize_take(scales, &a.scales, a.order.entries);
    resize_take(sizes, &a.sizes, a.order.entries);
    resize_take(roi, &a.roi, 2 * a.order.entries);
    (void)ebb_resize_apply(&what, &a.order, &values);
    const bool good = resize_fits_in_run(&a, &what);
    EBB_GRID_LOOP(o, l->out)
    l->count[o] = !good ? (int64_t)EBB_RESIZE_OUTSIDE
                        : ebb_resize_place(&what, l->axis, o, &l->begin[o],
                                           l->weight + o * what.axis[l->axis].taps);
}

#define KERNELS "kernels/cuda/resize_kernels.inc"
#include "kernels/cuda/all_floats.inc"

/* Of integers: sums in double, rounded to the nearest. */
EBB_GLOBAL(resize_whole, resize_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        resize_place p;
        resize_find(&p, &a, i);
        double sum = p.outside ? a.what.extrapolation : 0, w = 1;
        for (int64_t t = 0; t < p.taps && !p.outside && p.taps > 1; t++) {
            const int64_t from = resize_tap_f64(&w, &p, &a, t);
            const int64_t v = ebb_load_whole(a.x, from, a.dtype);
            sum += w * (a.dtype == EBB_U64 ? (double)(uint64_t)v : (double)v);
        }
        if (p.outside || p.taps > 1) {
            ebb_store_real(a.y, i, a.dtype, nearbyint(sum));
            continue;
        }
        const int64_t from = resize_tap_f64(&w, &p, &a, 0);
        ebb_store_whole(a.y, i, a.dtype, ebb_load_whole(a.x, from, a.dtype), false);
    }
}

static const ebb_gpu_kernel resizes[4] = EBB_CUDA_FLOATS(resize);

/* ---- calls ---- */

static double constant_number(const ebb_operand *o, int64_t i)
{
    return ebb_tensor_double(o->constant, i);
}

static const char *misfit(const ebb_call *c)
{
    EBB_ASK(ebb_resizing_misfit(c));
    if (c->out[0].type.dtype != c->in[0].type.dtype)
        return "the output differs in dtype";
    return NULL;
}

static bool is_in_run(const ebb_call *c)
{
    for (uint32_t i = 1; i < c->input_count; i++)
        if (ebb_cuda_constant(c, i) != NULL)
            return true;
    return false;
}

/* Bytes of the tables of all axes; where they lie, if `base` is there. 0: too many. */
static size_t lay_out(resize_args *a, char *base)
{
    size_t at = 64;
    for (int d = 0; d < a->lines; d++) {
        resize_line *l = &a->line[d];
        size_t size;
        if (l->axis < 0)
            continue;
        if (base != NULL) {
            l->begin = (int64_t *)(void *)(base + at);
            l->count = l->begin + l->out;
            l->weight = (double *)(void *)(l->count + l->out);
        }
        if (!ebb_size_mul(&size, (size_t)l->out, (size_t)a->what.axis[l->axis].taps + 2) ||
            !ebb_size_mul(&size, size, 8) || !ebb_size_add(&at, at, size))
            return 0;
    }
    return at;
}

/* stay: axes whose scale says so; else each has a table. */
static void read_lines(resize_args *a, const ebb_call *c, bool stay)
{
    const ebb_type *x = &c->in[0].type;
    int64_t strides[EBB_MAX_RANK];
    ebb_strides(strides, x->rank, x->dims);
    a->lines = 0;
    for (int d = 0; d < x->rank; d++) {
        const bool stays = stay && ebb_resize_stays(&a->what.axis[d]);
        resize_line *last = a->lines > 0 ? &a->line[a->lines - 1] : NULL;
        if (stays && last != NULL && last->axis < 0) { // dense: both are one axis
            last->out *= a->what.axis[d].out;
            last->stride = strides[d];
            continue;
        }
        resize_line *l = &a->line[a->lines++];
        l->out = a->what.axis[d].out;
        l->stride = strides[d];
        l->axis = stays ? -1 : d;
    }
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    resize_args a;
    memset(&a, 0, sizeof a);
    ebb_resizing_read(&a.what, c);
    read_lines(&a, c, false);
    *bytes = lay_out(&a, NULL);
    return *bytes > 0 ? NULL : ebb_call_error(c, "its tables pass what memory can be");
}

static bool is_narrow(const resize_args *a)
{
    int64_t taps = 1;
    for (int d = 0; d < a->lines; d++)
        if (a->line[d].axis >= 0 &&
            __builtin_mul_overflow(taps, a->what.axis[a->line[d].axis].taps, &taps))
            return false;
    return a->n <= INT32_MAX && taps <= INT32_MAX;
}

static resize_numbers numbers_of(const ebb_call *c, int input)
{
    resize_numbers n = {NULL, EBB_NONE};
    if (input >= 0) {
        n.at = c->in[input].data;
        n.dtype = c->in[input].type.dtype;
    }
    return n;
}

/* What says how to scale: to be read by a kernel, or read now. */
static ebb_status read_scales(resize_args *a, const ebb_call *c, bool in_run)
{
    const ebb_resizing_inputs in = ebb_resizing_inputs_of(c);
    EBB_MUST_FIT(c, ebb_resizing_roi_misfit(&a->what, c));
    if (in_run) {
        a->order = ebb_resize_order_of(&c->attrs, a->what.rank);
        a->scales = numbers_of(c, in.scales);
        a->sizes = numbers_of(c, in.sizes);
        a->roi = numbers_of(c, a->what.transform == EBB_RESIZE_CROP ? in.roi : -1);
        a->step = ebb_cuda_queue_of(c)->step;
        a->position = c->position;
        return NULL;
    }
    EBB_TRY(ebb_resizing_scale(&a->what, c, constant_number));
    for (int d = 0; d < a->what.rank; d++)
        if (!ebb_resize_fits(&a->what, d))
            return ebb_call_error(c, "the scale of axis %d, %g, does not fit %lld elements of %lld",
                                  d, a->what.axis[d].scale, (long long)a->what.axis[d].out,
                                  (long long)a->what.axis[d].in);
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    const bool in_run = is_in_run(c);
    resize_args a;
    int64_t most = 0;
    memset(&a, 0, sizeof a);
    a.n = ebb_elements(&c->out[0].type);
    if (a.n == 0)
        return NULL;
    if (ebb_elements(&c->in[0].type) == 0)
        return ebb_call_error(c, "nothing cannot be resized to something");
    ebb_resizing_read(&a.what, c);
    EBB_TRY(read_scales(&a, c, in_run));
    read_lines(&a, c, !in_run);
    (void)lay_out(&a, (char *)c->workspace);
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.dtype = c->in[0].type.dtype;
    a.narrow = is_narrow(&a);
    for (int d = 0; d < a.lines; d++)
        if (a.line[d].axis >= 0)
            most = a.line[d].out > most ? a.line[d].out : most;
    if (most > 0) {
        ebb_gpu_grid grid = ebb_cuda_grid(most);
        grid.y = (uint32_t)a.lines;
        EBB_TRY(EBB_LAUNCH(
            c, in_run ? (ebb_gpu_kernel)resize_tables_in_run : (ebb_gpu_kernel)resize_tables, grid,
            EBB_CUDA_BLOCK, 0, a));
    }
    if (!ebb_dtype_is_float((ebb_dtype)a.dtype))
        return EBB_LAUNCH(c, resize_whole, ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
    return EBB_LAUNCH(c, resizes[ebb_cuda_float_row(a.dtype)], ebb_cuda_grid(a.n), EBB_CUDA_BLOCK,
                      0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_resize[] = {
    {.name = "cuda.resize",   .op = EBB_OP_RESIZE,   .dtypes = ebb_call_any, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "cuda.upsample", .op = EBB_OP_UPSAMPLE, .dtypes = ebb_call_any, .fits = misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_CUDA_COUNT(resize)
