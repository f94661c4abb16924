/* conv.cu: convolutions, their gradients, channels first or last, as products of matrices that are
 * nowhere in memory.
 *
 *                  rows       columns                  depth
 *     forward      filters    images x windows         channels x taps      y  = W  x(window)
 *     backward     channels   images x places of x     filters x taps       dx = W' dy(window)
 *     weight       filters    channels x taps          images x windows     dW = dy x(window)'
 *
 * of each group. A block makes a tile of 64 x 64; it gathers 16 deep of the left and of the right
 * matrix into shared memory, with the addresses that they have in the images. dW has few rows and
 * columns and is very deep, so its depth is split among blocks, whose sums a second kernel adds in
 * order. Where a group has few channels (depthwise), a tile would be empty for the most part, and
 * each element is summed by one thread, or one block for dW.
 *
 * This is the fallback of cuDNN's kernels, and what computes in float64.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/window.h"

enum { CONV_TILE = 64, CONV_STEP = 16, CONV_PITCH = 68, CONV_EACH = 4 };
enum { CONV_BLOCKS = 512 }; /* enough to fill a device: dW is split into about so many tiles */
enum { CONV_FEW = 16 };     /* fewer channels a group than this are summed without tiles */

typedef enum conv_way { CONV_FORWARD, CONV_BACKWARD, CONV_WEIGHT } conv_way;

typedef struct conv_args {
    void *out;
    const void *left, *right, *bias;
    void *parts; /* sums of splits: [splits, weights] */
    ebb_cuda_window w;
    int32_t side[EBB_AXES], cells[EBB_AXES]; /* of averages: x has one element a cell */
    bool last;
    int64_t batch, groups, channels, each; /* channels and filters of one group */
    int64_t filter;                        /* weights of one filter */
    int64_t weights, elements;             /* of the whole weight; of the output */
    /* Elements from one image, channel, place to the next; of a filter, from one channel and from
     * one tap to the next. */
    int64_t wide_batch, wide_channel, wide_place;
    int64_t narrow_batch, narrow_channel, narrow_place;
    int64_t weight_channel, weight_tap;
    int64_t depth, tiles, row_tiles, column_tiles, splits, split_depth;
} conv_args;

/* ---- places ---- */

typedef struct conv_tile { /* where a block works */
    int64_t group, split, column;
    int32_t row, rows;
    int64_t first, end; /* of the depth */
    int64_t image;      /* that `first` lies in, for dW */
    int32_t place;
} conv_tile;

typedef struct conv_column { /* a column of the right matrix, and of the result */
    int64_t base;            /* of its image and group in the right tensor */
    int32_t at[EBB_AXES];    /* forward: where the window begins; else see conv_address */
    int64_t out, row;        /* element `out + row * (row of the result)` */
    bool there;
} conv_column;

typedef struct conv_depth { /* a place along the depth */
    int64_t k;
    int32_t outer, tap; /* channel or filter of the group; tap */
    int64_t image;      /* for dW */
    int32_t place;
} conv_depth;

typedef struct conv_slot {
    int32_t step, line; /* along the depth; row or column of the tile */
} conv_slot;

/* Which element of a tile this thread loads as its i-th: neighbouring threads take neighbours in
 * memory. */
EBB_GPU_INLINE conv_slot conv_slot_of(int i, bool along_depth)
{
    int32_t t = (int32_t)EBB_THREAD;
    conv_slot s;
    s.step = along_depth ? t % CONV_STEP : t / CONV_TILE + i * (256 / CONV_TILE);
    s.line = along_depth ? t / CONV_STEP + i * (256 / CONV_STEP) : t % CONV_TILE;
    return s;
}

EBB_GPU_INLINE bool conv_left_along_depth(const conv_args *a, conv_way way)
{
    return way == CONV_FORWARD || !a->last;
}

EBB_GPU_INLINE bool conv_right_along_depth(const conv_args *a, conv_way way)
{
    return way == CONV_WEIGHT ? !a->last : a->last;
}

/* The order of (channel, tap) is that of the weight in memory: what is last there varies fastest.
 */
EBB_GPU_INLINE void conv_split(conv_depth *d, const conv_args *a, int32_t k, int32_t channels)
{
    uint32_t fast = (uint32_t)(a->last ? channels : a->w.taps);
    uint32_t slow = (uint32_t)k / fast, rest = (uint32_t)k - slow * fast;
    d->outer = (int32_t)(a->last ? rest : slow);
    d->tap = (int32_t)(a->last ? slow : rest);
}

EBB_GPU_INLINE void conv_depth_of(conv_depth *d, const conv_args *a, conv_way way,
                                  const conv_tile *t, int64_t k)
{
    d->k = k;
    if (way == CONV_WEIGHT) {
        uint32_t all = (uint32_t)(k - t->first) + (uint32_t)t->place;
        uint32_t images = all / (uint32_t)a->w.narrow_volume;
        d->image = t->image + images;
        d->place = (int32_t)(all - images * (uint32_t)a->w.narrow_volume);
    } else {
        conv_split(d, a, (int32_t)k, (int32_t)(way == CONV_FORWARD ? a->channels : a->each));
    }
}

/* How far tap `tap` of window 0 is from the first place, negative in the padding. */
EBB_GPU_INLINE void conv_shift_of_tap(int32_t shift[EBB_AXES], const conv_args *a, int32_t tap)
{
    ebb_cuda_axes_of(shift, a->w.kernel, tap);
    for (int axis = 0; axis < EBB_AXES; axis++)
        shift[axis] = shift[axis] * a->w.dilation[axis] - a->w.before[axis];
}

/* The place in x of tap `tap` of the window that begins at `at`; -1 in the padding. */
EBB_GPU_INLINE int32_t conv_place_of_tap(const conv_args *a, const int32_t at[EBB_AXES],
                                         int32_t tap)
{
    int32_t k[EBB_AXES], place = 0;
    ebb_cuda_axes_of(k, a->w.kernel, tap);
    for (int axis = 0; axis < EBB_AXES; axis++) {
        int32_t i = at[axis] + k[axis] * a->w.dilation[axis];
        if (i < 0 || i >= a->w.wide[axis])
            return -1;
        place = place * a->w.wide[axis] + i;
    }
    return place;
}

/* The window whose tap `tap` lies on a place of x, which is `at` less the padding; -1: none. */
EBB_GPU_INLINE int32_t conv_window_of_tap(const conv_args *a, const int32_t at[EBB_AXES],
                                          int32_t tap)
{
    int32_t k[EBB_AXES], window = 0;
    ebb_cuda_axes_of(k, a->w.kernel, tap);
    for (int axis = 0; axis < EBB_AXES; axis++) {
        int32_t start = at[axis] - k[axis] * a->w.dilation[axis];
        int32_t o = start / a->w.stride[axis];
        if (start < 0 || o * a->w.stride[axis] != start || o >= a->w.narrow[axis])
            return -1;
        window = window * a->w.narrow[axis] + o;
    }
    return window;
}

/* The cell of x that a tap of window o lies on; -1 in the padding. */
EBB_GPU_INLINE int32_t conv_cell_of_window(const conv_args *a, const int32_t shift[EBB_AXES],
                                           int32_t o)
{
    int32_t at[EBB_AXES], cell = 0;
    ebb_cuda_axes_of(at, a->w.narrow, o);
    for (int axis = 0; axis < EBB_AXES; axis++) {
        int32_t i = at[axis] * a->w.stride[axis] + shift[axis];
        if (i < 0 || i >= a->w.wide[axis])
            return -1;
        cell = cell * a->cells[axis] + (a->side[axis] == 1 ? i : i / a->side[axis]);
    }
    return cell;
}

EBB_GPU_INLINE void conv_tile_of(conv_tile *t, const conv_args *a, conv_way way, int64_t tile)
{
    t->column = tile % a->column_tiles * CONV_TILE;
    tile /= a->column_tiles;
    t->row = (int32_t)(tile % a->row_tiles) * CONV_TILE;
    tile /= a->row_tiles;
    t->group = tile % a->groups;
    t->split = tile / a->groups;
    t->rows = (int32_t)(way == CONV_BACKWARD ? a->channels : a->each);
    t->first = t->split * a->split_depth;
    t->end = t->first + a->split_depth < a->depth ? t->first + a->split_depth : a->depth;
    t->image = 0;
    t->place = 0;
    if (way == CONV_WEIGHT && a->depth > 0) {
        t->image = t->first / a->w.narrow_volume;
        t->place = (int32_t)(t->first % a->w.narrow_volume);
    }
}

EBB_GPU_INLINE void conv_column_of(conv_column *c, const conv_args *a, conv_way way,
                                   const conv_tile *t, int32_t line)
{
    const int64_t j = t->column + line;
    c->there = false;
    if (way == CONV_WEIGHT) {
        if (j >= a->filter)
            return;
        conv_depth q;
        conv_split(&q, a, (int32_t)j, (int32_t)a->channels);
        conv_shift_of_tap(c->at, a, q.tap);
        c->base = (t->group * a->channels + q.outer) * a->wide_channel;
        c->out = j;
        c->row = a->filter;
    } else {
        const bool forward = way == CONV_FORWARD;
        const int32_t volume = forward ? a->w.narrow_volume : a->w.wide_volume;
        if (volume == 0 || j >= a->batch * volume)
            return;
        const int64_t n = j / volume;
        const int32_t place = (int32_t)(j - n * volume);
        ebb_cuda_axes_of(c->at, forward ? a->w.narrow : a->w.wide, place);
        for (int axis = 0; axis < EBB_AXES; axis++)
            c->at[axis] = forward ? c->at[axis] * a->w.stride[axis] - a->w.before[axis]
                                  : c->at[axis] + a->w.before[axis];
        c->base = forward ? n * a->wide_batch + t->group * a->channels * a->wide_channel
                          : n * a->narrow_batch + t->group * a->each * a->narrow_channel;
        c->out = forward ? n * a->narrow_batch + place * a->narrow_place
                         : n * a->wide_batch + place * a->wide_place;
        c->row = forward ? a->narrow_channel : a->wide_channel;
    }
    c->there = true;
}

/* Where the right matrix's element is in memory; -1: it is padding. */
EBB_GPU_INLINE int64_t conv_address(const conv_args *a, conv_way way, const conv_column *c,
                                    const conv_depth *k)
{
    int32_t place = way == CONV_FORWARD    ? conv_place_of_tap(a, c->at, k->tap)
                    : way == CONV_BACKWARD ? conv_window_of_tap(a, c->at, k->tap)
                                           : conv_cell_of_window(a, c->at, k->place);
    if (place < 0)
        return -1;
    if (way == CONV_FORWARD)
        return c->base + k->outer * a->wide_channel + place * a->wide_place;
    if (way == CONV_BACKWARD)
        return c->base + k->outer * a->narrow_channel + place * a->narrow_place;
    return c->base + k->image * a->wide_batch + place * a->wide_place;
}

typedef struct conv_place { /* of element e of an image tensor in memory */
    int64_t image, channel;
    int32_t place;
} conv_place;

EBB_GPU_INLINE void conv_place_of(conv_place *p, const conv_args *a, int64_t e, int64_t channels,
                                  int32_t volume)
{
    int64_t fast = a->last ? channels : volume, slow = a->last ? volume : channels;
    int64_t row = e / fast;
    p->image = row / slow;
    p->channel = a->last ? e - row * fast : row - p->image * slow;
    p->place = (int32_t)(a->last ? row - p->image * slow : e - row * fast);
}

#define KERNELS "kernels/cuda/conv_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel tiled[3][4] = {
    EBB_CUDA_FLOATS(conv_forward), EBB_CUDA_FLOATS(conv_backward), EBB_CUDA_FLOATS(conv_weight)};
static const ebb_gpu_kernel direct[3][4] = {EBB_CUDA_FLOATS(conv_forward_direct),
                                            EBB_CUDA_FLOATS(conv_backward_direct),
                                            EBB_CUDA_FLOATS(conv_weight_direct)};
static const ebb_gpu_kernel added[4] = EBB_CUDA_FLOATS(conv_parts);

/* ---- calls ---- */

static conv_way way_of(const ebb_call *c)
{
    ebb_op op = ebb_channels_first_op(c->op);
    switch (op != EBB_OP_UNKNOWN ? op : c->op) {
    case EBB_OP_CONV:
        return CONV_FORWARD;
    case EBB_OP_CONV_TRANSPOSE:
        return CONV_BACKWARD;
    default:
        return CONV_WEIGHT;
    }
}

/* A group's tiles would be empty for the most part. */
static bool is_direct(const conv_args *a, conv_way way)
{
    int64_t rows = way == CONV_BACKWARD ? a->channels : a->each;
    return a->groups > 1 && rows < CONV_FEW;
}

static void set_steps(conv_args *a, const ebb_geometry *g)
{
    int64_t cells = ebb_geometry_volume(g->wide), windows = a->w.narrow_volume;
    if (a->side[0] * a->side[1] * a->side[2] != 1)
        cells = (int64_t)a->cells[0] * a->cells[1] * a->cells[2];
    a->wide_batch = g->wide_channels * cells;
    a->narrow_batch = g->narrow_channels * windows;
    a->wide_channel = a->last ? 1 : cells;
    a->wide_place = a->last ? g->wide_channels : 1;
    a->narrow_channel = a->last ? 1 : windows;
    a->narrow_place = a->last ? g->narrow_channels : 1;
    a->weight_channel = a->last ? 1 : a->w.taps;
    a->weight_tap = a->last ? a->channels : 1;
}

static void set_tiles(conv_args *a, conv_way way)
{
    int64_t rows = way == CONV_BACKWARD ? a->channels : a->each;
    int64_t columns = way == CONV_FORWARD    ? a->batch * a->w.narrow_volume
                      : way == CONV_BACKWARD ? a->batch * a->w.wide_volume
                                             : a->filter;
    const int64_t most = INT64_C(1) << 30; // a split's depth is counted in 32 bits
    a->depth = way == CONV_FORWARD    ? a->filter
               : way == CONV_BACKWARD ? a->each * a->w.taps
                                      : a->batch * a->w.narrow_volume;
    a->row_tiles = (rows + CONV_TILE - 1) / CONV_TILE;
    a->column_tiles = (columns + CONV_TILE - 1) / CONV_TILE;
    a->tiles = a->row_tiles * a->column_tiles * a->groups;
    a->splits = 1;
    a->split_depth = a->depth;
    if (way == CONV_WEIGHT && a->tiles > 0 && !is_direct(a, way)) {
        int64_t wanted = (CONV_BLOCKS + a->tiles - 1) / a->tiles, useful = a->depth / 256 + 1;
        int64_t splits = wanted < useful ? wanted : useful;
        int64_t each = (a->depth + splits - 1) / splits;
        each = each > 0 ? (each + CONV_STEP - 1) / CONV_STEP * CONV_STEP : (int64_t)CONV_STEP;
        a->split_depth = each < most ? each : most;
        a->splits = (a->depth + a->split_depth - 1) / a->split_depth;
        a->splits = a->splits > 1 ? a->splits : 1;
        a->tiles *= a->splits;
    }
}

/* Everything but the pointers; or why not. */
static const char *read_call(conv_args *a, const ebb_call *c)
{
    ebb_geometry g;
    int64_t side[EBB_AXES] = {1, 1, 1}, cells[EBB_AXES] = {0, 0, 0};
    const conv_way way = way_of(c);
    const bool pooled = c->op == EBB_OP_CONV_WEIGHT_GRAD_POOLED;
    const char *why = pooled ? ebb_pooled_read(&g, side, cells, c) : ebb_conv_read(&g, c);
    memset(a, 0, sizeof *a);
    if (why == NULL && !pooled)
        why = ebb_conv_bias_misfit(&g, c);
    if (why == NULL)
        why = ebb_cuda_window_make(&a->w, &g);
    if (why != NULL)
        return why;
    for (int axis = 0; axis < EBB_AXES; axis++) {
        a->side[axis] = (int32_t)(pooled ? side[axis] : 1);
        a->cells[axis] = (int32_t)(pooled ? cells[axis] : g.wide[axis]);
    }
    a->last = ebb_channels_first_op(c->op) != EBB_OP_UNKNOWN;
    a->batch = g.batch;
    a->groups = g.groups;
    a->channels = g.wide_channels / g.groups;
    a->each = g.narrow_channels / g.groups;
    if (a->channels > INT32_MAX / a->w.taps || a->each > INT32_MAX / a->w.taps)
        return "a filter has more than 2^31 weights";
    a->filter = a->channels * a->w.taps;
    a->weights = g.narrow_channels * a->filter;
    a->elements = ebb_elements(&c->out[0].type);
    set_steps(a, &g);
    set_tiles(a, way);
    return NULL;
}

static const char *misfit(const ebb_call *c)
{
    conv_args a;
    return read_call(&a, c);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    conv_args a;
    const char *why = read_call(&a, c);
    *bytes = 0;
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    size_t real = c->in[0].type.dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    if (a.splits > 1 && (!ebb_size_mul(bytes, (size_t)a.splits, (size_t)a.weights) ||
                         !ebb_size_mul(bytes, *bytes, real)))
        return ebb_call_error(c, "the scratch memory is too large to address");
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    conv_args a;
    const conv_way way = way_of(c);
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    const uint32_t shared =
        2 * CONV_STEP * CONV_PITCH * (uint32_t)(row == 1 ? sizeof(double) : sizeof(float));
    EBB_MUST_FIT(c, read_call(&a, c));
    a.out = c->out[0].data;
    a.left = c->in[way == CONV_WEIGHT ? 0 : 1].data;
    a.right = c->in[way == CONV_WEIGHT ? 1 : 0].data;
    a.bias = way != CONV_WEIGHT && ebb_call_has(c, 2) ? c->in[2].data : NULL;
    a.parts = c->workspace;
    if (is_direct(&a, way)) {
        int64_t sets = a.last ? (a.groups * a.each + 31) / 32 : a.groups * a.each;
        return EBB_LAUNCH(c, direct[way][row],
                          way == CONV_WEIGHT ? ebb_cuda_blocks(sets * a.filter)
                                             : ebb_cuda_grid(a.elements),
                          EBB_CUDA_BLOCK, way == CONV_WEIGHT ? shared : 0, a);
    }
    EBB_TRY(EBB_LAUNCH(c, tiled[way][row], ebb_cuda_blocks(a.tiles), EBB_CUDA_BLOCK, shared, a));
    return a.splits == 1
               ? NULL
               : EBB_LAUNCH(c, added[row], ebb_cuda_grid(a.weights), EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_conv[] = {
    {.name = "cuda.conv",                    .op = EBB_OP_CONV,                    .dtypes = ebb_cuda_floats, .fits = misfit, .run = run},
    {.name = "cuda.conv_transpose",          .op = EBB_OP_CONV_TRANSPOSE,          .dtypes = ebb_cuda_floats, .fits = misfit, .run = run},
    {.name = "cuda.conv_weight_grad",        .op = EBB_OP_CONV_WEIGHT_GRAD,        .dtypes = ebb_cuda_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "cuda.conv_nhwc",               .op = EBB_OP_CONV_NHWC,               .dtypes = ebb_cuda_floats, .fits = misfit, .run = run},
    {.name = "cuda.conv_transpose_nhwc",     .op = EBB_OP_CONV_TRANSPOSE_NHWC,     .dtypes = ebb_cuda_floats, .fits = misfit, .run = run},
    {.name = "cuda.conv_weight_grad_nhwc",   .op = EBB_OP_CONV_WEIGHT_GRAD_NHWC,   .dtypes = ebb_cuda_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "cuda.conv_weight_grad_pooled", .op = EBB_OP_CONV_WEIGHT_GRAD_POOLED, .dtypes = ebb_cuda_floats, .fits = misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_CUDA_COUNT(conv)
