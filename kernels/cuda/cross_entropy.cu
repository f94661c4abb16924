/* cross_entropy.cu: the losses over class scores [N, C, d...] and labels [N, d...], the gradient
 * of the first, and both at once.
 *
 * Scores are [outer, n classes, inner], a sample one of [outer, inner]. Where inner is 1 a sample
 * is a warp's or a block's, else a thread's. Each block adds up the losses and weights of its
 * samples; one block of a second launch adds up those. A label that is no class is told as a fault
 * and counts as ignored.
 */
#include "kernels/cuda/lanes.h"
#include "kernels/call/misfit.h"

enum { PARTS = 1024 }; // blocks at most

typedef struct entropy_args {
    int64_t outer, n, inner;
    const void *x;      /* scores, or log-probabilities */
    const void *weight; /* [n]; NULL: 1 */
    const void *labels;
    const void *dy; /* where it is not NULL, log_prob is the gradient */
    void *loss;     /* one a sample; NULL: summed */
    void *total;    /* the loss summed; NULL: not wanted, or one a sample */
    void *log_prob; /* or dx */
    double *parts;  /* [parts_count, 2]: losses and weights; from 2 PARTS on the weights of all */
    int64_t parts_count;
    int64_t ignored;
    ebb_cuda_step *step;
    uint32_t position;
    uint32_t lanes; /* of a row */
    uint32_t ignores, wide_labels, mean;
    uint32_t each, narrow; /* a dy for each sample; the scores alone have 16 bits */
} entropy_args;

/* The class of a sample; -1: it does not count. */
EBB_GPU_INLINE int64_t class_of(const entropy_args *a, int64_t sample)
{
    const int64_t label = a->wide_labels ? ((const int64_t *)a->labels)[sample]
                                         : (int64_t)((const int32_t *)a->labels)[sample];
    if (a->ignores && label == a->ignored)
        return -1;
    return ebb_cuda_inside(a->step, a->position, label, 0, a->n) ? label : -1;
}

/* The parts of a block, from its threads. */
EBB_GPU_INLINE void put_parts(const entropy_args *a, double *shared, double loss, double weight)
{
    ebb_team t;
    t.lane = EBB_THREAD;
    t.lanes = EBB_THREADS;
    t.row = t.step = 0;
    ebb_team_sum(&t, shared, &loss, &weight);
    if (EBB_THREAD == 0) {
        a->parts[2 * EBB_BLOCK] = loss;
        a->parts[2 * EBB_BLOCK + 1] = weight;
    }
}

/* One block: the parts of all; every thread gets them. */
EBB_GPU_INLINE void add_parts(const entropy_args *a, double *shared, double *loss, double *weight)
{
    ebb_team t;
    t.lane = EBB_THREAD;
    t.lanes = EBB_THREADS;
    t.row = t.step = 0;
    *loss = *weight = 0;
    for (int64_t i = EBB_THREAD; i < a->parts_count; i += EBB_THREADS) {
        *loss += a->parts[2 * i];
        *weight += a->parts[2 * i + 1];
    }
    ebb_team_sum(&t, shared, loss, weight);
}

#define KERNELS "kernels/cuda/cross_entropy_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel rows[] = EBB_CUDA_FLOATS(loss_rows);
static const ebb_gpu_kernel lines[] = EBB_CUDA_FLOATS(loss_lines);
static const ebb_gpu_kernel picks[] = EBB_CUDA_FLOATS(loss_picks);
static const ebb_gpu_kernel finishes[] = EBB_CUDA_FLOATS(finish_loss);
static const ebb_gpu_kernel weighs[] = EBB_CUDA_FLOATS(weigh);
static const ebb_gpu_kernel weight_sums[] = EBB_CUDA_FLOATS(finish_weights);
static const ebb_gpu_kernel grad_rows[] = EBB_CUDA_FLOATS(grad_rows);
static const ebb_gpu_kernel grad_lines[] = EBB_CUDA_FLOATS(grad_lines);

/* ---- operands ---- */

static bool reduces_by(const ebb_call *c, const char *name)
{
    return strcmp(ebb_attr_string(&c->attrs, "reduction", "mean"), name) == 0;
}

static ebb_gpu_grid fewer(ebb_gpu_grid grid)
{
    grid.x = grid.x < (uint32_t)PARTS ? grid.x : (uint32_t)PARTS;
    return grid;
}

static entropy_args args_of(const ebb_call *c)
{
    const uint32_t first = ebb_cross_entropy_first(c);
    const ebb_span s = ebb_span_of(&c->in[first].type, 1);
    const ebb_attr *ignored = ebb_attr_find(&c->attrs, "ignore_index");
    const ebb_cuda_queue *queue = ebb_cuda_queue_of(c);
    entropy_args a;
    memset(&a, 0, sizeof a);
    a.outer = s.outer;
    a.n = s.n;
    a.inner = s.inner;
    a.x = c->in[first].data;
    a.labels = c->in[first + 1].data;
    a.wide_labels = c->in[first + 1].type.dtype == EBB_I64;
    a.weight = ebb_call_has(c, first + 2) ? c->in[first + 2].data : NULL;
    a.ignores = ignored != NULL && ignored->type == EBB_ATTR_INT;
    a.ignored = a.ignores ? ignored->i : 0;
    a.mean = reduces_by(c, "mean");
    a.parts = (double *)c->workspace;
    a.step = queue != NULL ? queue->step : NULL;
    a.position = c->position;
    a.lanes = ebb_team_lanes(s.n);
    a.dy = first == 1 ? c->in[0].data : NULL;
    a.each = reduces_by(c, "none");
    a.narrow = c->op == EBB_OP_SCORES_CROSS_ENTROPY && ebb_is_narrow(&c->in[first].type);
    return a;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    (void)c;
    *bytes = (2 * (size_t)PARTS + 2) * sizeof(double);
    return NULL;
}

/* ---- runs ---- */

static int row_of(const ebb_call *c)
{
    return ebb_cuda_float_row(c->in[ebb_cross_entropy_first(c)].type.dtype);
}

/* What a mean's gradient is divided by, behind the parts. */
static ebb_status add_weights(const ebb_call *c, entropy_args a)
{
    const ebb_gpu_grid grid = fewer(ebb_cuda_grid(a.outer * a.inner)), one = {1, 1, 1};
    a.parts_count = grid.x;
    if (!a.mean)
        return NULL;
    EBB_TRY(EBB_LAUNCH(c, weighs[row_of(c)], grid, EBB_CUDA_BLOCK, EBB_TEAM_SHARED, a));
    return EBB_LAUNCH(c, weight_sums[row_of(c)], one, EBB_CUDA_BLOCK, EBB_TEAM_SHARED, a);
}

/* (scores, labels, weights?) {reduction, ignore_index?} -> loss, log_prob?. log_prob may be scores.
 * (log_prob, labels, weights?) -> loss, for NegativeLogLikelihoodLoss.
 * (dY, scores, labels, weights?) -> loss, dX. dX may be scores. */
static ebb_status run_loss(const ebb_call *c)
{
    entropy_args a = args_of(c);
    const int row = row_of(c);
    const int64_t samples = a.outer * a.inner;
    void *loss = ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    *(a.each ? &a.loss : &a.total) = loss;
    if (a.dy != NULL)
        EBB_TRY(add_weights(c, a));
    const bool picked = c->op == EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS;
    const bool by_rows = !picked && a.inner == 1;
    a.log_prob = !picked && ebb_call_wants(c, 1) ? c->out[1].data : NULL;
    const ebb_gpu_grid grid =
        fewer(by_rows ? ebb_team_grid(a.outer, a.lanes) : ebb_cuda_grid(samples));
    a.parts_count = grid.x;
    EBB_TRY(EBB_LAUNCH(c,
                       (picked    ? picks
                        : by_rows ? rows
                                  : lines)[row],
                       grid, by_rows ? ebb_team_threads(a.lanes) : (uint32_t)EBB_CUDA_BLOCK,
                       EBB_TEAM_SHARED, a));
    if (a.total == NULL)
        return NULL;
    const ebb_gpu_grid one = {1, 1, 1};
    return EBB_LAUNCH(c, finishes[row], one, EBB_CUDA_BLOCK, EBB_TEAM_SHARED, a);
}

/* (dY, log_prob, labels, weights?) {reduction, ignore_index?} -> dX. dX may be log_prob. */
static ebb_status run_grad(const ebb_call *c)
{
    entropy_args a = args_of(c);
    const int row = row_of(c);
    a.log_prob = c->out[0].data;
    EBB_TRY(add_weights(c, a));
    if (a.inner > 1)
        return EBB_LAUNCH(c, grad_lines[row], ebb_cuda_grid(a.outer * a.inner), EBB_CUDA_BLOCK, 0,
                          a);
    return EBB_LAUNCH(c, grad_rows[row], ebb_team_grid(a.outer, a.lanes), ebb_team_threads(a.lanes),
                      0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_cross_entropy[] = {
    {.name = "cuda.softmax_cross_entropy_loss",      .op = EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS,      .dtypes = ebb_cuda_floats, .fits = ebb_cross_entropy_misfit, .workspace = workspace, .run = run_loss},
    {.name = "cuda.softmax_cross_entropy_loss_grad", .op = EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, .dtypes = ebb_cuda_floats, .fits = ebb_cross_entropy_misfit, .workspace = workspace, .run = run_grad},
    {.name = "cuda.negative_log_likelihood_loss",    .op = EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS,    .dtypes = ebb_cuda_floats, .fits = ebb_cross_entropy_misfit, .workspace = workspace, .run = run_loss},
    {.name = "cuda.scores_cross_entropy",            .op = EBB_OP_SCORES_CROSS_ENTROPY,            .dtypes = ebb_scores_dtypes, .fits = ebb_cross_entropy_misfit, .workspace = workspace, .run = run_loss},
};
// clang-format on
EBB_CUDA_COUNT(cross_entropy)
