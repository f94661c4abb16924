/* random.cu: dropout and the operators that draw: the bits of the plain kernels (kernels/math/philox.h).
 *
 * A thread draws two blocks of four words, for eight elements: one byte of a packed mask. Keys and
 * the number of the step are read from device memory, so that a recorded step draws anew.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/draws.h"
#include "kernels/call/misfit.h"
#include "kernels/math/philox.h"

enum { LOT = 8 }; /* elements a thread */

typedef struct source {
    const int64_t *key;        /* as kernels/draws.h has it; or NULL: */
    const ebb_cuda_step *step; /* the queue's, with: */
    uint64_t seed;
    uint32_t stream;
    int64_t run; /* draws.h */
} source;

typedef struct dropout_args {
    void *y;
    uint8_t *mask, *bits; /* or NULL */
    const void *x;
    int64_t n;
    source from;
    uint32_t threshold;
    double scale;
    int32_t all; /* 1: every element is kept, unscaled; -1: none is; 0: drawn */
} dropout_args;

typedef struct dropout_grad_args {
    void *dx;
    const void *dy;
    const uint8_t *mask; /* NULL: every element as it is */
    int64_t n;
    double scale;
} dropout_grad_args;

typedef struct draw_args {
    void *y;
    int64_t n;
    source from;
    double base, width, most; // base + width * number, at most `most`
    int32_t normal;
} draw_args;

/* The words of elements first .. first + 7. */
EBB_GPU_INLINE void draw(uint32_t words[LOT], const source *s, int64_t first)
{
    uint64_t seed = s->key != NULL ? (uint64_t)s->key[0] : s->seed;
    uint64_t step = s->key != NULL ? (uint64_t)s->key[1] : s->step->step;
    for (int b = 0; s->run == 0 && b < 2; b++) {
        ebb_philox p = ebb_philox_block(seed, step, s->stream, (uint64_t)first / 4 + (uint64_t)b);
        for (int i = 0; i < 4; i++)
            words[4 * b + i] = p.word[i];
    }
    ebb_philox p = {{0, 0, 0, 0}};
    uint64_t last = 0;
    for (int i = 0; s->run != 0 && i < LOT; i++) { // what lies together here may not in the whole
        const uint64_t at = ebb_philox_place(first + i, s->key[2], s->key[3], s->run);
        if (i == 0 || at / 4 != last)
            p = ebb_philox_block(seed, step, s->stream, at / 4);
        last = at / 4;
        words[i] = p.word[at % 4];
    }
}

/* Two words make a pair of normals (Box and Muller). */
EBB_GPU_INLINE double normal(const uint32_t words[LOT], int i)
{
    const double unit = 1.0 / 4294967296.0, turn = 6.283185307179586476925287;
    double r = sqrt(-2.0 * log(((double)words[i & ~1] + 1.0) * unit));
    double t = turn * ((double)words[i | 1] * unit);
    return i % 2 == 0 ? r * cos(t) : r * sin(t);
}

#define KERNELS "kernels/cuda/random_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel dropout[] = EBB_CUDA_FLOATS(dropout);
static const ebb_gpu_kernel dropout_grad[] = EBB_CUDA_FLOATS(dropout_grad);
static const ebb_gpu_kernel drawn[] = EBB_CUDA_FLOATS(drawn);

static ebb_gpu_grid grid_of(int64_t n)
{
    return ebb_cuda_grid((n + LOT - 1) / LOT);
}

/* ---- dropout ---- */

/* The call's own source: a seed attribute, where there is one, takes the seed's place. */
static source source_of(const ebb_call *c)
{
    source s = {NULL, ebb_cuda_queue_of(c)->step, c->seed,
                (uint32_t)(c->stream ^ (c->stream >> 32)), 0};
    const ebb_attr *seed = ebb_attr_find(&c->attrs, "seed");
    if (seed != NULL && seed->type == EBB_ATTR_INT)
        s.seed = (uint64_t)seed->i;
    else if (seed != NULL && seed->type == EBB_ATTR_FLOAT)
        memcpy(&s.seed, &seed->f, sizeof s.seed);
    return s;
}

static ebb_status drop(const ebb_call *c, source from, double ratio, int32_t all, bool wants_mask)
{
    bool packed = c->op == EBB_OP_EBB_DROPOUT_PACKED;
    uint8_t *mask = wants_mask ? (uint8_t *)c->out[1].data : NULL;
    dropout_args a;
    memset(&a, 0, sizeof a);
    a.y = c->out[0].data;
    a.mask = packed ? NULL : mask;
    a.bits = packed ? mask : NULL;
    a.x = c->in[0].data;
    a.n = ebb_elements(&c->in[0].type);
    a.from = from;
    a.threshold = ebb_dropout_threshold(ratio);
    a.scale = (double)(float)(1.0 / (1.0 - ratio));
    a.all = all;
    return EBB_LAUNCH(c, dropout[ebb_cuda_float_row(c->in[0].type.dtype)], grid_of(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

/* (X, ratio?, training_mode?) {seed?} -> Y, mask?. Y may be X. */
static ebb_status run_dropout(const ebb_call *c)
{
    double ratio = ebb_cuda_scalar(c, 1, 0.5);
    bool training = ebb_cuda_scalar(c, 2, 0.0) != 0.0, mask = ebb_call_wants(c, 1);
    if (!training || ratio == 0.0)
        return drop(c, source_of(c), 0.0, 1, mask);
    if (ratio == 1.0) // allowed by PyTorch: nothing is kept
        return drop(c, source_of(c), 0.0, -1, mask);
    EBB_TRY(ebb_dropout_check(c, ratio));
    return drop(c, source_of(c), ratio, 0, mask);
}

/* (dY, mask, ratio?, training_mode?) -> dX. dX may be dY. */
static ebb_status run_dropout_grad(const ebb_call *c)
{
    double ratio = ebb_cuda_scalar(c, 2, 0.5);
    bool training = ebb_cuda_scalar(c, 3, 1.0) != 0.0;
    if (training && ratio != 1.0)
        EBB_TRY(ebb_dropout_check(c, ratio));
    dropout_grad_args a = {
        c->out[0].data, c->in[0].data, training ? (const uint8_t *)c->in[1].data : NULL,
        ebb_elements(&c->in[0].type), ratio == 1.0 ? 0.0 : (double)(float)(1.0 / (1.0 - ratio))};
    return EBB_LAUNCH(c, dropout_grad[ebb_cuda_float_row(c->in[0].type.dtype)], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

/* (X, key) {ratio, stream} -> Y, mask?; and (dY, key) {ratio, stream} -> dX, the same draw. */
static ebb_status run_keyed(const ebb_call *c)
{
    double ratio = ebb_attr_float(&c->attrs, "ratio", 0.0);
    source s = {(const int64_t *)c->in[1].data, NULL, 0,
                (uint32_t)ebb_attr_int(&c->attrs, "stream", 0),
                ebb_draws_run(c, &c->in[1], ebb_elements(&c->in[0].type))};
    EBB_TRY(ebb_dropout_check(c, ratio));
    return drop(c, s, ratio, 0, c->op != EBB_OP_EBB_DROPOUT_SEED_GRAD && ebb_call_wants(c, 1));
}

static const char *declines_dropout(const ebb_call *c)
{
    const bool keyed = ebb_dropout_is_keyed(c);
    const char *why = ebb_cuda_floats(c);
    for (uint32_t i = 1; why != NULL && !keyed && i < c->input_count; i++)
        if (ebb_dtype_is_float((ebb_dtype)c->in[i].type.dtype)) // a ratio has its own dtype
            why = ebb_call_any(c);
    if (why == NULL && !ebb_dtype_is_float((ebb_dtype)c->in[0].type.dtype))
        why = "computes in float16, bfloat16, float32 and float64 only";
    for (uint32_t i = ebb_dropout_first_scalar(c); why == NULL && !keyed && i < c->input_count; i++)
        why = ebb_cuda_constant(c, i);
    return why != NULL ? why : ebb_dropout_misfit(c);
}

/* ---- normal and uniform ---- */

/* {mean, scale} or {low, high} -> Y. */
static ebb_status run_random(const ebb_call *c)
{
    const ebb_drawing d = ebb_drawing_read(c);
    draw_args a = {
        c->out[0].data, ebb_elements(&c->out[0].type), source_of(c), d.base, d.width, d.most,
        d.is_normal};
    return EBB_LAUNCH(c, drawn[ebb_cuda_float_row(c->out[0].type.dtype)], grid_of(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

static const char *misfit_random(const ebb_call *c)
{
    return ebb_dtype_is_float((ebb_dtype)c->out[0].type.dtype)
               ? NULL
               : "computes in float16, bfloat16, float32 and float64 only";
}

// clang-format off
const ebb_kernel ebb_cuda_random[] = {
    {.name = "cuda.dropout",             .op = EBB_OP_DROPOUT,               .fits = declines_dropout, .run = run_dropout},
    {.name = "cuda.dropout_grad",        .op = EBB_OP_DROPOUT_GRAD,          .fits = declines_dropout, .run = run_dropout_grad},
    {.name = "cuda.keyed_dropout",       .op = EBB_OP_EBB_DROPOUT,           .fits = declines_dropout, .run = run_keyed},
    {.name = "cuda.dropout_packed",      .op = EBB_OP_EBB_DROPOUT_PACKED,    .fits = declines_dropout, .run = run_keyed},
    {.name = "cuda.dropout_seed_grad",   .op = EBB_OP_EBB_DROPOUT_SEED_GRAD, .fits = declines_dropout, .run = run_keyed},
    {.name = "cuda.random_normal",       .op = EBB_OP_RANDOM_NORMAL,         .dtypes = ebb_call_any, .fits = misfit_random, .run = run_random},
    {.name = "cuda.random_uniform",      .op = EBB_OP_RANDOM_UNIFORM,        .dtypes = ebb_call_any, .fits = misfit_random, .run = run_random},
    {.name = "cuda.random_normal_like",  .op = EBB_OP_RANDOM_NORMAL_LIKE,    .dtypes = ebb_call_any, .fits = misfit_random, .run = run_random},
    {.name = "cuda.random_uniform_like", .op = EBB_OP_RANDOM_UNIFORM_LIKE,   .dtypes = ebb_call_any, .fits = misfit_random, .run = run_random},
};
// clang-format on
EBB_CUDA_COUNT(random)
