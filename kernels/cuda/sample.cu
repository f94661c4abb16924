/* sample.cu: rows chosen (SampleRows) and rows mixed (RandomSketch) at random.
 *
 * SampleRows needs the rows by falling share, and of each place what is left from it on:
 *
 *     shares -> runs of 256 in order -> merged by twos ... -> sums from the smallest on -> draws
 *               (a block counts)        (a thread an element    (one block)               (a thread
 *                                        looks up its place)                               each)
 *
 * Equal shares keep the order of their rows, so that there is one order, and no sort can differ.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/math/philox.h"
#include "kernels/call/algebra.h"

enum { SIDE = 64, DEEP = 32, PER = 4, WIDE = SIDE / PER, THREADS = WIDE * WIDE, RUN = 256 };

typedef struct sample_facts { /* made on the device */
    double floor, mass;       /* mass: of the rows that are not sure */
    int64_t sure;
} sample_facts;

typedef struct sample_args {
    const void *h, *norms;
    const int64_t *key;
    int64_t *rows;
    void *weights; /* or NULL */
    int64_t n, d, k;
    uint32_t stream;
    double *share, *rest; /* by row; by place, n + 1 of them */
    int64_t *order, *to;  /* rows, the largest share first */
    int64_t run;          /* length of a run in order, before a merge */
    sample_facts *facts;
} sample_args;

typedef struct sketch_args {
    void *y;
    const void *x;
    const int64_t *key;
    ebb_sketch s;
} sketch_args;

EBB_GPU_INLINE bool comes_first(const double *share, int64_t a, int64_t b)
{
    return share[a] > share[b] || (share[a] == share[b] && a < b);
}

/* The last place from `first` on of which more than `target` is left. */
EBB_GPU_INLINE int64_t place_of(const sample_args *a, int64_t first, double target)
{
    int64_t lo = first, hi = a->n; // rest[lo] is the first that may be, rest[hi] is not
    while (hi - lo > 1) {
        const int64_t middle = lo + (hi - lo) / 2;
        if (a->rest[middle] > target)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

#define KERNELS "kernels/cuda/sample_kernels.inc"
#include "kernels/cuda/all_floats.inc"

/* ---- the order ---- */

/* A block a run: each row's place is the number of rows that come before it. */
EBB_GLOBAL(sort_runs, sample_args)
{
    EBB_SHARED(double, share);
    for (int64_t first = (int64_t)EBB_BLOCK * RUN; first < a.n;
         first += (int64_t)EBB_BLOCKS * RUN) {
        const int64_t count = a.n - first < RUN ? a.n - first : (int64_t)RUN, mine = EBB_THREAD;
        if (mine < count)
            share[mine] = a.share[first + mine];
        ebb_barrier();
        int64_t place = 0;
        for (int64_t other = 0; mine < count && other < count; other++)
            place += comes_first(share, other, mine) ? 1 : 0;
        if (mine < count)
            a.order[first + place] = first + mine;
        ebb_barrier();
    }
}

/* An element's place in the merged run: its own in its run, and those of the other before it. */
EBB_GLOBAL(merge_runs, sample_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        const int64_t first = i / (2 * a.run) * (2 * a.run), middle = first + a.run;
        const bool left = i < middle;
        const int64_t begin = left ? middle : first, last = left ? middle + a.run : middle;
        const int64_t row = a.order[i];
        int64_t lo = begin < a.n ? begin : a.n, hi = last < a.n ? last : a.n;
        const int64_t from = lo;
        while (lo < hi) {
            const int64_t at = lo + (hi - lo) / 2;
            if (comes_first(a.share, a.order[at], row))
                lo = at + 1;
            else
                hi = at;
        }
        a.to[(left ? i : i - a.run) + (lo - from)] = row;
    }
}

/* ---- what is left ---- */

/* rest[i] = sum of the shares at places i and after, added up from the smallest; then how many rows
 * are sure: the first place where rest / (k - place) is least. One block. */
EBB_GLOBAL(add_up, sample_args)
{
    EBB_SHARED(double, part);
    int64_t *place = (int64_t *)(part + EBB_THREADS);
    const int64_t each = (a.n + EBB_THREADS - 1) / EBB_THREADS;
    const int64_t first = EBB_THREAD * each, end = first + each < a.n ? first + each : a.n;
    double sum = 0;
    for (int64_t i = end - 1; i >= first; i--)
        sum += a.share[a.order[i]];
    part[EBB_THREAD] = sum;
    ebb_barrier();
    sum = 0;
    for (uint32_t t = EBB_THREADS - 1; t > EBB_THREAD; t--)
        sum += part[t];
    for (int64_t i = end - 1; i >= first; i--) {
        sum += a.share[a.order[i]];
        a.rest[i] = sum;
    }
    if (EBB_THREAD == 0)
        a.rest[a.n] = 0;
    ebb_barrier();
    double least = INFINITY;
    int64_t at = a.k; // nowhere
    for (int64_t i = EBB_THREAD; i < a.k; i += EBB_THREADS) {
        const double share = a.rest[i] / (double)(a.k - i);
        if (share < least) {
            least = share;
            at = i;
        }
    }
    part[EBB_THREAD] = least;
    place[EBB_THREAD] = at;
    ebb_barrier();
    if (EBB_THREAD != 0)
        return;
    for (uint32_t t = 1; t < EBB_THREADS; t++)
        if (part[t] < least || (part[t] == least && place[t] < at)) {
            least = part[t];
            at = place[t];
        }
    a.facts->sure = at < a.k ? at : 0;
    a.facts->mass = a.rest[a.facts->sure];
}

static const ebb_gpu_kernel lengths[] = EBB_CUDA_FLOATS(lengths);
static const ebb_gpu_kernel floors[] = EBB_CUDA_FLOATS(find_floor);
static const ebb_gpu_kernel weighs[] = EBB_CUDA_FLOATS(weigh);
static const ebb_gpu_kernel draws[] = EBB_CUDA_FLOATS(draw_rows);
static const ebb_gpu_kernel sketches[] = EBB_CUDA_FLOATS(sketch);

/* ---- SampleRows ---- */

static const char *misfit_sampling(const ebb_call *c)
{
    const ebb_type *h = &c->in[0].type;
    const int64_t n = h->dims[0], k = ebb_attr_int(&c->attrs, "k", 1);
    if (c->input_count < 3 || c->output_count < 1 || h->rank != 2)
        return "the input is no matrix";
    if (!ebb_dtype_is_float((ebb_dtype)c->in[1].type.dtype) || ebb_elements(&c->in[1].type) != n)
        return "there is not one norm a row";
    if (c->in[2].type.dtype != EBB_I64 || ebb_elements(&c->in[2].type) != 2)
        return "the key is not int64[2]";
    if (k < 1 || k > n || n > INT32_MAX)
        return "k is not between 1 and the number of rows";
    if (c->out[0].type.dtype != EBB_I64 || ebb_elements(&c->out[0].type) != k)
        return "the rows are not k int64";
    if (ebb_call_wants(c, 1) &&
        (c->out[1].type.dtype != h->dtype || ebb_elements(&c->out[1].type) != k))
        return "the weights are not k numbers of the input's dtype";
    return NULL;
}

/* | facts | share [n] | rest [n + 1] | order [n] | the same, to be merged into [n] | */
static ebb_status workspace_sampling(const ebb_call *c, size_t *bytes)
{
    *bytes = sizeof(sample_facts) + (size_t)(4 * c->in[0].type.dims[0] + 1) * sizeof(double);
    return NULL;
}

static sample_args read_sampling(const ebb_call *c)
{
    sample_args a;
    memset(&a, 0, sizeof a);
    a.n = c->in[0].type.dims[0];
    a.d = c->in[0].type.dims[1];
    a.k = ebb_attr_int(&c->attrs, "k", 1);
    a.stream = (uint32_t)ebb_attr_int(&c->attrs, "stream", 0);
    a.h = c->in[0].data;
    a.norms = c->in[1].data;
    a.key = (const int64_t *)c->in[2].data;
    a.rows = (int64_t *)c->out[0].data;
    a.weights = ebb_call_wants(c, 1) ? c->out[1].data : NULL;
    a.facts = (sample_facts *)c->workspace;
    a.share = (double *)(a.facts + 1);
    a.rest = a.share + a.n;
    a.order = (int64_t *)(a.rest + a.n + 1);
    a.to = a.order + a.n;
    return a;
}

static ebb_status put_in_order(const ebb_call *c, sample_args *a)
{
    EBB_TRY(EBB_LAUNCH(c, sort_runs, ebb_cuda_blocks((a->n + RUN - 1) / RUN), RUN,
                       RUN * sizeof(double), *a));
    for (a->run = RUN; a->run < a->n; a->run *= 2) {
        EBB_TRY(EBB_LAUNCH(c, merge_runs, ebb_cuda_grid(a->n), EBB_CUDA_BLOCK, 0, *a));
        int64_t *keep = a->order;
        a->order = a->to;
        a->to = keep;
    }
    return NULL;
}

static ebb_status run_sampling(const ebb_call *c)
{
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    const int norms = ebb_cuda_float_row(c->in[1].type.dtype); // float32 beside 16 bits
    const uint32_t shared = EBB_CUDA_BLOCK * sizeof(double);
    sample_args a = read_sampling(c);
    EBB_TRY(EBB_LAUNCH(c, lengths[row], ebb_cuda_grid(a.n * EBB_WARP), EBB_CUDA_BLOCK, 0, a));
    EBB_TRY(EBB_LAUNCH(c, floors[norms], ebb_cuda_blocks(1), EBB_CUDA_BLOCK, shared, a));
    EBB_TRY(EBB_LAUNCH(c, weighs[norms], ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a));
    EBB_TRY(put_in_order(c, &a));
    EBB_TRY(EBB_LAUNCH(c, add_up, ebb_cuda_blocks(1), EBB_CUDA_BLOCK, 2 * shared, a));
    return EBB_LAUNCH(c, draws[row], ebb_cuda_grid(a.k), EBB_CUDA_BLOCK, 0, a);
}

/* ---- RandomSketch ---- */

static ebb_status run_sketch(const ebb_call *c)
{
    sketch_args a;
    memset(&a, 0, sizeof a);
    EBB_MUST_FIT(c, ebb_sketch_read(&a.s, c));
    const uint8_t dtype = c->in[0].type.dtype;
    const size_t size = dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    const int64_t tiles = ((a.s.rows + SIDE - 1) / SIDE) * ((a.s.d + SIDE - 1) / SIDE);
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.key = (const int64_t *)c->in[1].data;
    return EBB_LAUNCH(c, sketches[ebb_cuda_float_row(dtype)], ebb_cuda_blocks(tiles), THREADS,
                      (uint32_t)(DEEP * SIDE * size + SIDE * sizeof(uint32_t)), a);
}

// clang-format off
const ebb_kernel ebb_cuda_sample[] = {
    {.name = "cuda.sample_rows",   .op = EBB_OP_SAMPLE_ROWS,   .dtypes = ebb_cuda_floats, .fits = misfit_sampling, .workspace = workspace_sampling, .run = run_sampling},
    {.name = "cuda.random_sketch", .op = EBB_OP_RANDOM_SKETCH, .dtypes = ebb_cuda_floats, .fits = ebb_sketch_misfit,   .run = run_sketch},
};
// clang-format on
EBB_CUDA_COUNT(sample)
