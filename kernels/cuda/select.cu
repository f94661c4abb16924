/* select.cu: Unique and NonMaxSuppression. How many rows they choose is known after the run; a
 * count other than the planned one is told as a fault.
 *
 *     Unique   slices         b a c a b   merged by twos, fours, ..: each slice counts, by halving,
 *              in order       a a b b c   those of the other run that come before it
 *              begins a row   1 0 1 0 1   summed up: which row of Y each is
 *
 *     NonMaxSuppression      a block for each class of each image: the best box that is left is
 *                            chosen, and what lies much over it goes
 *
 * Which boxes stay must be what the CPU keeps: products are rounded before they are added.
 */
#include "kernels/cuda/move.h"
#include "kernels/cuda/order.h"
#include "kernels/cuda/small.h"

/* ---- Unique ---- */

typedef struct unique_args {
    const void *x;
    int64_t outer, n, inner; /* n slices */
    uint32_t *order, *next;  /* of slices; order NULL: as they lie */
    int64_t run;             /* so many are in order already */
    uint32_t *rows;          /* [n + 1]: does a row begin here, then how many do before */
    uint32_t *firsts;        /* [n + 1], of slices: the same, where rows come as they lie in X */
    uint32_t *starts;        /* [n]: where in the order a row begins */
    int32_t *chosen;         /* [planned]: the slice that row is */
    int64_t *index, *inverse, *count; /* outputs; NULL: nobody wants them */
    int64_t planned;
    ebb_cuda_step *step;
    uint32_t position;
    uint8_t dtype;
    bool is_float, sorted;
} unique_args;

/* -1, 0, 1 as element i is before, like or after element j; NaN is like NaN, and last. */
EBB_GPU_INLINE int compare_elements(const unique_args *a, int64_t i, int64_t j)
{
    if (a->is_float) {
        const double x = ebb_load_real(a->x, i, a->dtype), y = ebb_load_real(a->x, j, a->dtype);
        if ((x != x) != (y != y))
            return x != x ? 1 : -1;
        return x < y ? -1 : x > y ? 1 : 0;
    }
    const int64_t x = ebb_load_whole(a->x, i, a->dtype), y = ebb_load_whole(a->x, j, a->dtype);
    const bool less = a->dtype == EBB_U64 ? (uint64_t)x < (uint64_t)y : x < y;
    return x == y ? 0 : less ? -1 : 1;
}

EBB_GPU_INLINE int compare_slices(const unique_args *a, int64_t i, int64_t j)
{
    for (int64_t o = 0; o < a->outer; o++)
        for (int64_t k = 0; k < a->inner; k++) {
            const int64_t base = o * a->n * a->inner + k;
            const int found = compare_elements(a, base + i * a->inner, base + j * a->inner);
            if (found != 0)
                return found;
        }
    return 0;
}

/* Slice k of the order. */
EBB_GPU_INLINE int64_t slice_at(const unique_args *a, int64_t k)
{
    return a->order != NULL ? (int64_t)a->order[k] : k;
}

/* Two runs become one; equal slices stay in the order of their places. */
EBB_GLOBAL(merge_runs, unique_args)
{
    EBB_GRID_LOOP(k, a.n)
    {
        const int64_t start = k / (2 * a.run) * (2 * a.run), middle = start + a.run;
        const bool left = k < middle;
        const int64_t end = left ? middle + a.run : middle, mine = slice_at(&a, k);
        const int64_t begin = left ? (middle < a.n ? middle : a.n) : start;
        int64_t low = begin, high = end < a.n ? end : a.n;
        while (low < high) {
            const int64_t half = low + (high - low) / 2, other = slice_at(&a, half);
            const int found = compare_slices(&a, other, mine);
            if (found < 0 || (found == 0 && other < mine))
                low = half + 1;
            else
                high = half;
        }
        a.next[(left ? k : k - a.run) + (low - begin)] = (uint32_t)mine;
    }
}

EBB_GLOBAL(begin_rows, unique_args)
{
    EBB_GRID_LOOP(k, a.n)
    {
        const int64_t mine = slice_at(&a, k);
        const uint32_t begins = k == 0 || compare_slices(&a, slice_at(&a, k - 1), mine) != 0;
        a.rows[k] = begins;
        a.firsts[mine] = begins;
    }
}

EBB_GLOBAL(list_starts, unique_args)
{
    EBB_GRID_LOOP(k, a.n)
    {
        if (a.rows[k + 1] != a.rows[k])
            a.starts[a.rows[k]] = (uint32_t)k;
    }
}

EBB_GLOBAL(put_rows, unique_args)
{
    const int64_t all = a.rows[a.n];
    if (EBB_BLOCK == 0 && EBB_THREAD == 0)
        (void)ebb_cuda_inside(a.step, a.position, all, a.planned, a.planned + 1);
    EBB_GRID_LOOP(k, a.n)
    {
        const int64_t place = (int64_t)a.rows[k + 1] - 1, start = a.starts[place];
        const int64_t mine = slice_at(&a, k);
        const int64_t row = a.sorted ? place : (int64_t)a.firsts[slice_at(&a, start)];
        if (a.inverse != NULL)
            a.inverse[mine] = row;
        if (k != start || row >= a.planned)
            continue;
        a.chosen[row] = (int32_t)mine;
        if (a.index != NULL)
            a.index[row] = mine;
        if (a.count != NULL)
            a.count[row] = (place + 1 < all ? (int64_t)a.starts[place + 1] : a.n) - start;
    }
}

/* X cut into slices along the axis; the whole of it flat where there is none. */
static ebb_status read_unique(const ebb_call *c, unique_args *a)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    ebb_span s = {1, ebb_elements(x), 1};
    int axis = 0;
    memset(a, 0, sizeof *a);
    if (ebb_attr_find(&c->attrs, "axis") != NULL) {
        EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->rank, &axis));
        s = ebb_span_of(x, axis);
    }
    if (y->rank <= axis)
        return ebb_call_error(c, "its output has no such axis");
    a->outer = s.outer;
    a->n = s.n;
    a->inner = s.inner;
    a->planned = y->dims[axis];
    return NULL;
}

/* order, order, rows, firsts, starts; then what is chosen. */
static ebb_status unique_workspace(const ebb_call *c, size_t *bytes)
{
    unique_args a;
    EBB_TRY(read_unique(c, &a));
    return ebb_size_mul(bytes, 5 * (size_t)a.n + 2 + (size_t)a.planned, sizeof(uint32_t))
               ? NULL
               : ebb_call_error(c, "it is too large");
}

static ebb_status order_slices(const ebb_call *c, unique_args *a)
{
    uint32_t *const list = (uint32_t *)c->workspace;
    uint32_t which = 0;
    for (a->run = 1; a->run < a->n; a->run *= 2, which = 1 - which) {
        a->next = list + (int64_t)which * a->n;
        EBB_TRY(EBB_LAUNCH(c, merge_runs, ebb_cuda_grid(a->n), EBB_CUDA_BLOCK, 0, *a));
        a->order = a->next;
    }
    return NULL;
}

/* (X) {axis?, sorted = 1} -> Y, first places?, place in Y of each?, counts?. */
static ebb_status run_unique(const ebb_call *c)
{
    unique_args a;
    EBB_TRY(read_unique(c, &a));
    const ebb_span s = {a.outer, a.n, a.inner};
    a.x = c->in[0].data;
    a.dtype = c->in[0].type.dtype;
    a.is_float = ebb_dtype_is_float((ebb_dtype)a.dtype);
    a.sorted = ebb_attr_int(&c->attrs, "sorted", 1) != 0;
    a.rows = (uint32_t *)c->workspace + 2 * a.n;
    a.firsts = a.rows + a.n + 1;
    a.starts = a.firsts + a.n + 1;
    a.chosen = (int32_t *)(a.starts + a.n);
    a.index = ebb_call_wants(c, 1) ? (int64_t *)c->out[1].data : NULL;
    a.inverse = ebb_call_wants(c, 2) ? (int64_t *)c->out[2].data : NULL;
    a.count = ebb_call_wants(c, 3) ? (int64_t *)c->out[3].data : NULL;
    a.step = ebb_cuda_queue_of(c)->step;
    a.position = c->position;
    EBB_TRY(order_slices(c, &a));
    EBB_TRY(EBB_LAUNCH(c, begin_rows, ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a));
    EBB_TRY(ebb_cuda_sum_before(c, a.rows, a.n));
    EBB_TRY(ebb_cuda_sum_before(c, a.firsts, a.n));
    EBB_TRY(EBB_LAUNCH(c, list_starts, ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a));
    if (a.planned > 0) // fewer rows than planned must not lead anywhere
        EBB_TRY(ebb_gpu_clear(ebb_cuda_queue_of(c)->stream, a.chosen,
                              (size_t)a.planned * sizeof *a.chosen));
    EBB_TRY(EBB_LAUNCH(c, put_rows, ebb_cuda_grid(a.n > 0 ? a.n : 1), EBB_CUDA_BLOCK, 0, a));
    const ebb_cuda_indices list = {a.chosen, 0, c->position, a.step};
    return ebb_cuda_take(c, c->out[0].data, a.x, &s, &list, a.planned,
                         ebb_element_bytes(&c->in[0].type));
}

static const char *misfit_unique(const ebb_call *c)
{
    unique_args a;
    const ebb_dtype x = (ebb_dtype)c->in[0].type.dtype;
    if (!ebb_dtype_is_float(x) && !ebb_dtype_is_integer(x) && x != EBB_BOOL)
        return "works on numbers only";
    if (!ebb_call_wants(c, 0) || c->out[0].type.dtype != c->in[0].type.dtype)
        return "its first output is not wanted, or of another dtype";
    if (read_unique(c, &a) != NULL)
        return "its axis is outside of the input";
    for (uint32_t k = 1; k < 4; k++)
        if (ebb_call_wants(c, k) && (c->out[k].type.dtype != EBB_I64 ||
                                     ebb_elements(&c->out[k].type) != (k == 2 ? a.n : a.planned)))
            return "its lists do not fit the rows";
    return a.n > 0x7FFFFFFF ? "more than 2^31 slices" : NULL;
}

/* ---- NonMaxSuppression ---- */

typedef struct suppress_args {
    const void *boxes, *scores;
    const void *most, *close, *least; /* scalars; NULL: none, 0, below all */
    int64_t *y;
    uint32_t *counts; /* [jobs + 1]: chosen of each class of each image; then of those before it */
    uint32_t *lists;  /* [jobs, keep]: the boxes */
    uint8_t *gone;    /* [blocks, n] */
    int64_t jobs, classes, n, keep, planned;
    ebb_cuda_step *step;
    uint32_t position;
    uint8_t box_dtype, score_dtype, most_dtype, close_dtype, least_dtype;
    bool centered;
} suppress_args;

typedef struct box {
    double top, left, bottom, right;
} box;

EBB_GPU_INLINE box box_at(const suppress_args *a, int64_t i)
{
    double p[4];
    box b;
    for (int k = 0; k < 4; k++)
        p[k] = ebb_load_number(a->boxes, i * 4 + k, a->box_dtype);
    const bool down = p[0] <= p[2], right = p[1] <= p[3]; // any two opposite corners
    b.top = a->centered ? p[1] - p[3] / 2 : p[down ? 0 : 2];
    b.left = a->centered ? p[0] - p[2] / 2 : p[right ? 1 : 3];
    b.bottom = a->centered ? p[1] + p[3] / 2 : p[down ? 2 : 0];
    b.right = a->centered ? p[0] + p[2] / 2 : p[right ? 3 : 1];
    return b;
}

/* What both have of what one of them has. */
EBB_GPU_INLINE double overlap(const box *a, const box *b)
{
    const double height =
        (a->bottom < b->bottom ? a->bottom : b->bottom) - (a->top > b->top ? a->top : b->top);
    const double width =
        (a->right < b->right ? a->right : b->right) - (a->left > b->left ? a->left : b->left);
    if (height <= 0 || width <= 0)
        return 0;
    const double both = height * width, area_a = (a->bottom - a->top) * (a->right - a->left);
    return both / (area_a + (b->bottom - b->top) * (b->right - b->left) - both);
}

typedef struct best_box {
    double score;
    int64_t at; /* -1: none */
} best_box;

EBB_GPU_INLINE best_box better_box(best_box a, best_box b)
{
    const bool first =
        b.at < 0 || (a.at >= 0 && (a.score > b.score || (a.score == b.score && a.at < b.at)));
    return first ? a : b;
}

/* The best box of this class that is left, for all threads of the block. */
EBB_GPU_INLINE best_box find_best(const suppress_args *a, int64_t job, const uint8_t *gone,
                                  best_box *shared)
{
    best_box mine = {0, -1};
    EBB_BLOCK_LOOP(i, a->n)
    {
        if (gone[i] != 0)
            continue;
        const best_box here = {ebb_load_number(a->scores, job * a->n + i, a->score_dtype), i};
        mine = better_box(mine, here);
    }
    shared[EBB_THREAD] = mine;
    ebb_barrier();
    for (uint32_t half = EBB_CUDA_BLOCK / 2; half > 0; half /= 2) {
        if (EBB_THREAD < half)
            shared[EBB_THREAD] = better_box(shared[EBB_THREAD], shared[EBB_THREAD + half]);
        ebb_barrier();
    }
    mine = shared[0];
    ebb_barrier(); // all have read
    return mine;
}

EBB_GLOBAL(choose_boxes, suppress_args)
{
    EBB_SHARED(best_box, shared);
    const int64_t most = a.most != NULL ? ebb_load_integer(a.most, 0, a.most_dtype) : 0;
    const double close = a.close != NULL ? ebb_load_number(a.close, 0, a.close_dtype) : 0.0;
    const double least = a.least != NULL ? ebb_load_number(a.least, 0, a.least_dtype) : -1e300;
    uint8_t *gone = a.gone + (int64_t)EBB_BLOCK * a.n;
    for (int64_t job = EBB_BLOCK; job < a.jobs; job += EBB_BLOCKS) {
        const int64_t image = job / a.classes;
        int64_t count = 0;
        EBB_BLOCK_LOOP(i, a.n) // each thread asks for the flags of its own boxes alone
        gone[i] = !(ebb_load_number(a.scores, job * a.n + i, a.score_dtype) > least);
        while (count < most) {
            const best_box best = find_best(&a, job, gone, shared);
            if (best.at < 0)
                break;
            if (EBB_THREAD == 0 && count < a.keep)
                a.lists[job * a.keep + count] = (uint32_t)best.at;
            count++;
            const box chosen = box_at(&a, image * a.n + best.at);
            EBB_BLOCK_LOOP(i, a.n)
            {
                if (gone[i] != 0)
                    continue;
                const box other = box_at(&a, image * a.n + i);
                gone[i] = i == best.at || overlap(&other, &chosen) > close;
            }
        }
        if (EBB_THREAD == 0)
            a.counts[job] = (uint32_t)count;
    }
}

EBB_GLOBAL(put_boxes, suppress_args)
{
    if (EBB_BLOCK == 0 && EBB_THREAD == 0)
        (void)ebb_cuda_inside(a.step, a.position, a.counts[a.jobs], a.planned, a.planned + 1);
    for (int64_t job = EBB_BLOCK; job < a.jobs; job += EBB_BLOCKS) {
        const int64_t from = a.counts[job], to = a.counts[job + 1];
        for (int64_t row = from + EBB_THREAD; row < to && row < a.planned; row += EBB_THREADS) {
            a.y[row * 3] = job / a.classes;
            a.y[row * 3 + 1] = job % a.classes;
            a.y[row * 3 + 2] = a.lists[job * a.keep + row - from];
        }
    }
}

enum { MOST_BLOCKS = 1024 }; // as many classes at a time

static void read_suppress(const ebb_call *c, suppress_args *a)
{
    memset(a, 0, sizeof *a);
    a->classes = c->in[1].type.dims[1];
    a->jobs = c->in[0].type.dims[0] * a->classes;
    a->n = c->in[0].type.dims[1];
    a->planned = c->out[0].type.dims[0];
    a->keep = a->n < a->planned ? a->n : a->planned;
}

static int64_t blocks_of(const suppress_args *a)
{
    return a->jobs < MOST_BLOCKS ? a->jobs : (int64_t)MOST_BLOCKS;
}

static ebb_status suppress_workspace(const ebb_call *c, size_t *bytes)
{
    suppress_args a;
    read_suppress(c, &a); // fewer than 2^31 scores: nothing overflows
    *bytes =
        (size_t)(a.jobs + 1 + a.jobs * a.keep) * sizeof(uint32_t) + (size_t)(blocks_of(&a) * a.n);
    return NULL;
}

static const void *limit_of(const ebb_call *c, uint32_t input, uint8_t *dtype)
{
    if (!ebb_call_has(c, input))
        return NULL;
    *dtype = c->in[input].type.dtype;
    return c->in[input].data;
}

/* (boxes, scores, most of a class?, overlap?, score?) -> rows of image, class, box. */
static ebb_status run_suppress(const ebb_call *c)
{
    suppress_args a;
    read_suppress(c, &a);
    a.boxes = c->in[0].data;
    a.scores = c->in[1].data;
    a.box_dtype = c->in[0].type.dtype;
    a.score_dtype = c->in[1].type.dtype;
    a.most = limit_of(c, 2, &a.most_dtype);
    a.close = limit_of(c, 3, &a.close_dtype);
    a.least = limit_of(c, 4, &a.least_dtype);
    a.y = (int64_t *)c->out[0].data;
    a.counts = (uint32_t *)c->workspace;
    a.lists = a.counts + a.jobs + 1;
    a.gone = (uint8_t *)(a.lists + a.jobs * a.keep);
    a.step = ebb_cuda_queue_of(c)->step;
    a.position = c->position;
    a.centered = ebb_attr_int(&c->attrs, "center_point_box", 0) != 0;
    EBB_TRY(EBB_LAUNCH(c, choose_boxes, ebb_cuda_blocks(blocks_of(&a)), EBB_CUDA_BLOCK,
                       EBB_CUDA_BLOCK * (uint32_t)sizeof(best_box), a));
    EBB_TRY(ebb_cuda_sum_before(c, a.counts, a.jobs));
    return EBB_LAUNCH(c, put_boxes, ebb_cuda_blocks(a.jobs > 0 ? blocks_of(&a) : 1), EBB_CUDA_BLOCK,
                      0, a);
}

static const char *misfit_suppress(const ebb_call *c)
{
    int64_t scores;
    const ebb_type *b = &c->in[0].type, *s = &c->in[1].type, *y = &c->out[0].type;
    if (b->rank != 3 || s->rank != 3 || b->dims[2] != 4 || b->dims[0] != s->dims[0] ||
        b->dims[1] != s->dims[2])
        return "boxes and scores do not fit each other";
    for (uint32_t i = 2; i < 5; i++)
        if (ebb_call_has(c, i) && ebb_elements(&c->in[i].type) != 1)
            return "a limit is not a single number";
    if (ebb_call_has(c, 2) && !ebb_dtype_is_integer((ebb_dtype)c->in[2].type.dtype))
        return "the most of a class is no integer";
    if (y->dtype != EBB_I64 || y->rank != 2 || y->dims[1] != 3)
        return "the output is not int64[rows, 3]";
    const bool fits = !__builtin_mul_overflow(s->dims[0], s->dims[1], &scores) &&
                      !__builtin_mul_overflow(scores, s->dims[2], &scores);
    return fits && scores <= 0x7FFFFFFF ? NULL : "more than 2^31 scores";
}

// clang-format off
const ebb_kernel ebb_cuda_select[] = {
    {.name = "cuda.unique",              .op = EBB_OP_UNIQUE,              .dtypes = ebb_call_any, .fits = misfit_unique,   .workspace = unique_workspace,   .run = run_unique},
    {.name = "cuda.non_max_suppression", .op = EBB_OP_NON_MAX_SUPPRESSION, .dtypes = ebb_call_any, .fits = misfit_suppress, .workspace = suppress_workspace, .run = run_suppress},
};
// clang-format on
EBB_CUDA_COUNT(select)
