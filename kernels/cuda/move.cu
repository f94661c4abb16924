/* move.cu: Transpose, Pad, and what kernels/call/move/move.h reads: each a strided copy. */
#include "kernels/cuda/move.h"
#include "kernels/cuda/small.h"
#include "kernels/call/move/move.h"
#include "kernels/call/move/place.h"

typedef struct walk_args {
    void *y;
    const void *x;
    int64_t n;
    ebb_cuda_path path;
} walk_args;

/* The path is of the dims around the two that turn. */
typedef struct turn_args {
    void *y;
    const void *x;
    int64_t tiles, tiles_across, tiles_along;
    int64_t across, along, to_across, from_along;
    ebb_cuda_path path;
} turn_args;

typedef struct pad_args {
    void *y;
    const void *x, *value; /* value NULL: zero */
    int64_t n;
    int32_t rank, mode;
    int64_t dims[EBB_MAX_RANK], from_dims[EBB_MAX_RANK], stride[EBB_MAX_RANK], begin[EBB_MAX_RANK];
} pad_args;

#define KERNELS "kernels/cuda/move_kernels.inc"
#include "kernels/cuda/all_sizes.inc"

/* ---- copies ---- */

void ebb_cuda_path_make(ebb_cuda_path *p, int rank, const int64_t *dims, const int64_t *to,
                        const int64_t *from)
{
    ebb_cuda_path made;
    memset(&made, 0, sizeof made);
    for (int d = 0; d < rank; d++) {
        int64_t n = dims[d];
        int last = made.rank - 1;
        if (n == 1)
            continue;
        if (last >= 0 && made.to[last] == to[d] * n && made.from[last] == from[d] * n) {
            made.dims[last] *= n;
            made.to[last] = to[d];
            made.from[last] = from[d];
            continue;
        }
        made.dims[made.rank] = n;
        made.to[made.rank] = to[d];
        made.from[made.rank++] = from[d];
    }
    *p = made;
}

static bool lies_at(const void *p, size_t size)
{
    return (uintptr_t)p % size == 0;
}

size_t ebb_cuda_widest(const void *a, const void *b, size_t size, int64_t bytes)
{
    while (size < sizeof(ebb_cuda_wide) && bytes % (int64_t)(2 * size) == 0 &&
           lies_at(a, 2 * size) && lies_at(b, 2 * size))
        size *= 2;
    return size;
}

int ebb_cuda_lanes(int64_t rows, int64_t inner)
{
    int lanes = 0, most = rows < 4096 ? 8 : 5;
    while (lanes < most && (int64_t)1 << lanes < inner)
        lanes++;
    return lanes;
}

/* Pairs of neighbours that go together everywhere become one element; again and again. */
static size_t widen(ebb_cuda_path *p, const void *to, const void *from, size_t size)
{
    int last = p->rank - 1;
    if (last < 0 || p->to[last] != 1 || p->from[last] != 1)
        return size;
    while (size < sizeof(ebb_cuda_wide) && p->dims[last] % 2 == 0 && lies_at(to, 2 * size) &&
           lies_at(from, 2 * size)) {
        for (int d = 0; d < last; d++)
            if (p->to[d] % 2 != 0 || p->from[d] % 2 != 0)
                return size;
        for (int d = 0; d < last; d++) {
            p->to[d] /= 2;
            p->from[d] /= 2;
        }
        p->dims[last] /= 2;
        size *= 2;
    }
    return size;
}

enum { TURNS = 16 }; /* shorter dims than these leave most of a tile empty */

/* The dim along which the input is dense, where the output is so along another; else -1. */
static int turning(const ebb_cuda_path *p)
{
    int last = p->rank - 1;
    if (last < 1 || p->to[last] != 1 || p->from[last] == 1 || p->dims[last] < TURNS)
        return -1;
    for (int d = 0; d < last; d++)
        if (p->from[d] == 1 && p->dims[d] >= TURNS)
            return d;
    return -1;
}

static ebb_status turn(const ebb_call *c, void *to, const void *from, const ebb_cuda_path *p,
                       int across, size_t size)
{
    static const ebb_gpu_kernel turns[] = EBB_CUDA_SIZES(turn);
    int last = p->rank - 1;
    int64_t side = size < 4 ? 64 : 32, outer = 1;
    turn_args a;
    memset(&a, 0, sizeof a);
    a.y = to;
    a.x = from;
    a.across = p->dims[across];
    a.along = p->dims[last];
    a.to_across = p->to[across];
    a.from_along = p->from[last];
    a.tiles_across = (a.across + side - 1) / side;
    a.tiles_along = (a.along + side - 1) / side;
    for (int d = 0; d < last; d++) {
        if (d == across)
            continue;
        outer *= p->dims[d];
        a.path.dims[a.path.rank] = p->dims[d];
        a.path.to[a.path.rank] = p->to[d];
        a.path.from[a.path.rank++] = p->from[d];
    }
    a.tiles = outer * a.tiles_across * a.tiles_along;
    size_t pitch = (size_t)side * size + (size < 4 ? 4 : size);
    return EBB_LAUNCH(c, turns[ebb_cuda_size_row(size)], ebb_cuda_blocks(a.tiles), EBB_CUDA_BLOCK,
                      (uint32_t)((size_t)side * pitch), a);
}

ebb_status ebb_cuda_copy(const ebb_call *c, void *to, const void *from, size_t bytes)
{
    if (to == from || bytes == 0)
        return NULL;
    return ebb_gpu_copy(ebb_cuda_queue_of(c)->stream, to, from, bytes, EBB_ON_DEVICE);
}

ebb_status ebb_cuda_strided(const ebb_call *c, void *to, const int64_t *to_stride, const void *from,
                            const int64_t *from_stride, int rank, const int64_t *dims, size_t size)
{
    static const ebb_gpu_kernel walks[] = EBB_CUDA_SIZES(walk);
    walk_args a = {to, from, 1, {0}};
    for (int d = 0; d < rank; d++)
        a.n *= dims[d];
    if (a.n == 0)
        return NULL;
    ebb_cuda_path_make(&a.path, rank, dims, to_stride, from_stride);
    if (a.path.rank == 0 || (a.path.rank == 1 && a.path.to[0] == 1 && a.path.from[0] == 1))
        return ebb_cuda_copy(c, to, from, (size_t)a.n * size);
    size_t wide = widen(&a.path, to, from, size);
    a.n /= (int64_t)(wide / size);
    ebb_cuda_path_make(&a.path, a.path.rank, a.path.dims, a.path.to, a.path.from);
    int across = turning(&a.path);
    if (across >= 0)
        return turn(c, to, from, &a.path, across, wide);
    return EBB_LAUNCH(c, walks[ebb_cuda_size_row(wide)], ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

/* ---- Transpose ---- */

typedef struct bits_args {
    uint8_t *y;
    const void *x;
    int64_t n; /* elements of `bits` bits, below 8 */
    uint32_t bits;
    ebb_cuda_path path;
} bits_args;

/* A thread a byte; what is beyond the last element is 0. */
EBB_GLOBAL(turn_bits, bits_args)
{
    const int64_t each = 8 / (int64_t)a.bits;
    EBB_GRID_LOOP(b, (a.n + each - 1) / each)
    {
        uint32_t byte = 0;
        for (int64_t i = b * each; i < (b + 1) * each && i < a.n; i++) {
            int64_t to, from;
            ebb_cuda_step_of(&a.path, i, &to, &from);
            byte |= ebb_bits_at(a.x, from, a.bits) << (uint32_t)(i - b * each) * a.bits;
        }
        a.y[b] = (uint8_t)byte;
    }
}

static ebb_status turn_packed(const ebb_call *c, const int64_t *to, const int64_t *from,
                              const int64_t *dims)
{
    const ebb_type *x = &c->in[0].type;
    bits_args a;
    memset(&a, 0, sizeof a);
    a.y = (uint8_t *)c->out[0].data;
    a.x = c->in[0].data;
    a.n = ebb_elements(x);
    a.bits = ebb_dtype_bits((ebb_dtype)x->dtype);
    if (a.n == 0)
        return NULL;
    ebb_cuda_path_make(&a.path, x->rank, dims, to, from);
    if (a.path.rank == 0 || (a.path.rank == 1 && a.path.from[0] == 1))
        return ebb_cuda_copy(c, a.y, a.x, c->out[0].bytes);
    const int64_t each = 8 / (int64_t)a.bits;
    return EBB_LAUNCH(c, turn_bits, ebb_cuda_grid((a.n + each - 1) / each), EBB_CUDA_BLOCK, 0, a);
}

/* (X) {perm} -> Y. */
static ebb_status run_transpose(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    uint32_t count = 0;
    const int64_t *perm = ebb_attr_ints(&c->attrs, "perm", &count);
    int64_t stride[EBB_MAX_RANK] = {0}, to[EBB_MAX_RANK] = {0};
    int64_t from[EBB_MAX_RANK] = {0}, dims[EBB_MAX_RANK] = {0};
    ebb_strides(stride, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        int64_t axis = perm != NULL ? perm[d] : x->rank - 1 - d;
        dims[d] = x->dims[axis];
        from[d] = stride[axis];
    }
    ebb_strides(to, x->rank, dims);
    if (ebb_element_bytes(x) == 0)
        return turn_packed(c, to, from, dims);
    return ebb_cuda_strided(c, c->out[0].data, to, c->in[0].data, from, x->rank, dims,
                            ebb_element_bytes(x));
}

/* ---- what kernels/call/move/move.h reads ---- */

static ebb_status clear(const ebb_call *c, void *to, size_t bytes)
{
    return ebb_gpu_clear(ebb_cuda_queue_of(c)->stream, to, bytes);
}

static const ebb_mover mover = {ebb_cuda_strided, clear};

EBB_MOVE(concat)
EBB_MOVE(split)
EBB_MOVE(slice)
EBB_MOVE(slice_grad)
EBB_MOVE(depth_to_space)
EBB_MOVE(space_to_depth)
EBB_MOVE(expand)
EBB_MOVE(tile)

static const char *declines_split(const ebb_call *c)
{
    EBB_ASK(ebb_split_misfit(c));
    return ebb_cuda_constant(c, 1);
}

static const char *misfit_slice(const ebb_call *c)
{
    uint32_t first = c->op == EBB_OP_SLICE_GRAD ? 2 : 1;
    for (uint32_t i = first; i < first + 4; i++)
        EBB_ASK(ebb_cuda_constant(c, i));
    return NULL;
}

/* ---- Pad ---- */

/* Dims of the padding, those that are not padded merged with the one around them: as a wider
 * element of it where pads are constant, else where that one is not padded either. */
static void merge_pads(pad_args *a, const ebb_type *x, const ebb_type *y, const int64_t *begin)
{
    int64_t stride[EBB_MAX_RANK] = {0};
    ebb_strides(stride, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        int last = a->rank - 1;
        bool whole = begin[d] == 0 && x->dims[d] == y->dims[d];
        bool fits = last >= 0 && whole &&
                    (a->mode == EBB_PAD_CONSTANT ||
                     (a->begin[last] == 0 && a->from_dims[last] == a->dims[last]));
        if (fits && !__builtin_mul_overflow(a->begin[last], x->dims[d], &a->begin[last])) {
            a->from_dims[last] *= x->dims[d];
            a->dims[last] *= x->dims[d];
            a->stride[last] = stride[d];
            continue;
        }
        last = a->rank++;
        a->begin[last] = begin[d];
        a->from_dims[last] = x->dims[d];
        a->dims[last] = y->dims[d];
        a->stride[last] = stride[d];
    }
}

/* What there is to pad with: the input without what negative pads cut away. False where nothing is
 * left along an axis. */
static bool cut_away(pad_args *a, size_t size)
{
    int64_t first = 0;
    for (int d = 0; d < a->rank; d++) {
        int64_t low = a->begin[d] < 0 ? -a->begin[d] : 0, end = a->dims[d] - a->begin[d];
        int64_t left = (end < a->from_dims[d] ? end : a->from_dims[d]) - low;
        if (left <= 0)
            return false;
        a->begin[d] += low;
        a->from_dims[d] = left;
        first += low * a->stride[d];
    }
    a->x = (const char *)a->x + (size_t)first * size;
    return true;
}

/* (X, pads, value?, axes?) {mode} -> Y. */
static ebb_status run_pad(const ebb_call *c)
{
    static const ebb_gpu_kernel pads[] = EBB_CUDA_SIZES(pad);
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t begin[EBB_MAX_RANK];
    EBB_TRY(ebb_pads_read(c, begin));
    pad_args a;
    memset(&a, 0, sizeof a);
    a.n = ebb_elements(y);
    if (a.n == 0)
        return NULL;
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.value = ebb_call_has(c, 2) ? c->in[2].data : NULL;
    a.mode = (int32_t)ebb_pad_mode_of(c);
    merge_pads(&a, x, y, begin);
    if (a.mode != EBB_PAD_CONSTANT && !cut_away(&a, ebb_element_bytes(x)))
        return ebb_call_error(c, "there is nothing to pad with: no element is left");
    return EBB_LAUNCH(c, pads[ebb_cuda_size_row(ebb_element_bytes(x))], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

static const char *misfit_pad(const ebb_call *c)
{
    EBB_ASK(ebb_pad_misfit(c));
    EBB_ASK(ebb_cuda_constant(c, 1));
    return ebb_cuda_constant(c, 3);
}

/* ---- CenterCropPad ---- */

static ebb_status run_center(const ebb_call *c)
{
    const size_t size = ebb_element_bytes(&c->in[0].type);
    ebb_middle m;
    ebb_middle_read(&m, c);
    if (!m.fills && c->out[0].bytes > 0)
        EBB_TRY(ebb_gpu_clear(ebb_cuda_queue_of(c)->stream, c->out[0].data, c->out[0].bytes));
    return ebb_cuda_strided(c, (char *)c->out[0].data + (size_t)m.skip_to * size, m.to,
                            (const char *)c->in[0].data + (size_t)m.skip_from * size, m.from,
                            m.rank, m.dims, size);
}

// clang-format off
const ebb_kernel ebb_cuda_move[] = {
    {.name = "cuda.transpose",       .op = EBB_OP_TRANSPOSE,       .fits = ebb_transpose_misfit, .run = run_transpose},
    {.name = "cuda.concat",          .op = EBB_OP_CONCAT,          .fits = ebb_concat_misfit, .run = run_concat},
    {.name = "cuda.split",           .op = EBB_OP_SPLIT,           .fits = declines_split, .run = run_split},
    {.name = "cuda.slice",           .op = EBB_OP_SLICE,           .dtypes = ebb_same_dtype_misfit, .fits = misfit_slice, .run = run_slice},
    {.name = "cuda.slice_grad",      .op = EBB_OP_SLICE_GRAD,      .dtypes = ebb_same_dtype_misfit, .fits = misfit_slice, .run = run_slice_grad},
    {.name = "cuda.pad",             .op = EBB_OP_PAD,             .dtypes = ebb_same_dtype_misfit, .fits = misfit_pad, .run = run_pad},
    {.name = "cuda.center_crop_pad", .op = EBB_OP_CENTER_CROP_PAD, .dtypes = ebb_call_any, .fits = ebb_middle_misfit, .run = run_center},
    {.name = "cuda.depth_to_space",  .op = EBB_OP_DEPTH_TO_SPACE,  .fits = ebb_depth_misfit, .run = run_depth_to_space},
    {.name = "cuda.space_to_depth",  .op = EBB_OP_SPACE_TO_DEPTH,  .fits = ebb_depth_misfit, .run = run_space_to_depth},
    {.name = "cuda.expand",          .op = EBB_OP_EXPAND,          .fits = ebb_expand_misfit, .run = run_expand},
    {.name = "cuda.tile",            .op = EBB_OP_TILE,            .fits = ebb_tile_misfit, .run = run_tile},
};
// clang-format on
EBB_CUDA_COUNT(move)
