/* norm.c: batch norm: by the batch's statistics, by the running ones, and backward: from its input,
 * from its output, or from the output of the activation behind it. */
#include "kernels/plain/layers/norm.h"

#include <math.h>

#include "kernels/plain/halves.h"
#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

/* Where channels are innermost: neighbouring ones of a strip, those of a line of the cache, rows at a time. */
enum { TOGETHER = 256, LINE = 16, SOME = 4 };
enum { SUMS = 2048, MOST_PARTS = 64, LEAST_ROWS = 256 }; // sums of parts; parts, and rows of one

typedef struct batch { /* x: [n, c, s] */
    int64_t n, c, s;
    double epsilon, momentum;
    bool unbiased;
    int64_t threads; /* jobs: with a buffer each where x has 16 bits */
} batch;

static batch read_batch(const ebb_call *call, const ebb_type *x)
{
    batch b = {.n = x->dims[0], .c = x->rank > 1 ? x->dims[1] : 1, .s = 1};
    for (int d = 2; d < x->rank; d++)
        b.s *= x->dims[d];
    b.epsilon = ebb_attr_float(&call->attrs, "epsilon", (double)1e-5f);
    b.momentum = ebb_attr_float(&call->attrs, "momentum", 0.9);
    b.threads = ebb_threads();
    b.unbiased =
        call->op == EBB_OP_BATCH_NORM_TRAINING && ebb_attr_int(&call->attrs, "unbiased", 1) != 0;
    return b;
}

/* ---- strips: some rows and neighbouring channels of [N, C], for one thread ----
 *
 * Rows of few channels are short: there two threads with half of each row read all of the memory both. So the
 * rows go in parts, whose sums are added in their order; how many, the shape alone says.
 */
typedef struct strips {
    int64_t n, c, parts, width, jobs;
} strips;

typedef struct strip {
    int64_t first, last, k, width; /* rows; channels from k on */
    int64_t sums;                  /* where those of the part's channel k lie, [parts, C] */
} strip;

static strips strips_of(int64_t n, int64_t c, int64_t threads)
{
    strips g = {.n = n, .c = c, .parts = 1};
    while (2 * g.parts <= MOST_PARTS && 2 * g.parts * c <= SUMS && n >= 2 * g.parts * LEAST_ROWS)
        g.parts *= 2;
    const int64_t beside = (threads + g.parts - 1) / g.parts, each = (c + beside - 1) / beside;
    const int64_t width = (each + LINE - 1) / LINE * LINE;
    g.width = width < LINE ? LINE : ebb_least(width, TOGETHER); // there may be no channel
    g.jobs = g.parts * ((c + g.width - 1) / g.width);
    return g;
}

static strip strip_of(const strips *g, int64_t job)
{
    const int64_t blocks = g->jobs / g->parts, part = job / blocks, k = job % blocks * g->width;
    return (strip){.first = g->n * part / g->parts,
                   .last = g->n * (part + 1) / g->parts,
                   .k = k,
                   .width = ebb_least(g->c - k, g->width),
                   .sums = part * g->c + k};
}

/* The next rows at some channels come to the cache while these are summed: in the order of rows of a strip no
 * processor asks for them by itself. */
static inline void ask_rows(const ebb_operand *x, int64_t n, int64_t c, int64_t k)
{
    const size_t size = ebb_element_bytes(&x->type);
    for (int64_t r = 0; r < SOME; r++)
        __builtin_prefetch((const char *)x->data + (size_t)((n + r) * c + k) * size);
}

/* Of two numbers of float32, whose product double holds, the bits are the same with either. */
static inline double plus_product(double sum, double a, double b)
{
#ifdef FP_FAST_FMA
    return fma(a, b, sum);
#else
    return sum + a * b;
#endif
}

/* Those of all parts into those of the first. */
static void add_parts(const strips *g, double *sums)
{
    for (int64_t i = g->c; i < g->parts * g->c; i++)
        sums[i % g->c] += sums[i];
}

/* ---- rows of 16 bits that are made of rows of 16 bits, without a buffer ---- */

/* Where the first operand has 16 bits, the others have the same. */
static bool are_halves(const ebb_operand *o, const ebb_operand *other, const ebb_operand *more)
{
    return ebb_is_half((ebb_dtype)o->type.dtype) && other->type.dtype == o->type.dtype &&
           more->type.dtype == o->type.dtype;
}

static uint16_t *halves_of(const ebb_operand *o, int64_t at)
{
    return (uint16_t *)o->data + at;
}

static void scale_halves(ebb_dtype dtype, uint16_t *to, const uint16_t *from, int64_t n, float mean,
                         float factor, float bias)
{
    if (dtype == EBB_BF16) {
        EBB_SIMD
        for (int64_t i = 0; i < n; i++)
            to[i] = ebb_round_bf16((ebb_wide_bf16(from[i]) - mean) * factor + bias);
    } else {
        EBB_SIMD
        for (int64_t i = 0; i < n; i++)
            to[i] = ebb_round_half((ebb_wide_half(from[i]) - mean) * factor + bias);
    }
}

/* As segment_grads, of what is kept plain. */
static void grads_halves(ebb_dtype dtype, uint16_t *to, const uint16_t *g, const uint16_t *x,
                         int64_t n, float centre, float factor, float even, float tilt)
{
    if (dtype == EBB_BF16) {
        EBB_SIMD
        for (int64_t i = 0; i < n; i++)
            to[i] = ebb_round_bf16(ebb_wide_bf16(g[i]) * factor - even -
                                   (ebb_wide_bf16(x[i]) - centre) * tilt);
    } else {
        EBB_SIMD
        for (int64_t i = 0; i < n; i++)
            to[i] = ebb_round_half(ebb_wide_half(g[i]) * factor - even -
                                   (ebb_wide_half(x[i]) - centre) * tilt);
    }
}

#include "kernels/plain/layers/norm_bf16.inc"

static bool are_bf16(const ebb_operand *o, const ebb_operand *other, const ebb_operand *more)
{
    return o->type.dtype == EBB_BF16 && are_halves(o, other, more);
}

#define LOOPS "kernels/plain/layers/norm_loops.inc"
#include "kernels/plain/both_floats.inc"

static ebb_status run_forward(const ebb_call *c)
{
    batch b = read_batch(c, &c->in[0].type);
    bool train =
        c->op == EBB_OP_BATCH_NORM_TRAINING || ebb_attr_int(&c->attrs, "training_mode", 0) != 0;
    if (train)
        EBB_BY_FLOAT(c->in[0], train, &b, c);
    else
        EBB_BY_FLOAT(c->in[0], infer, &b, c);
    return NULL;
}

/* ---- backward ---- */

void ebb_norm_read_kept(const ebb_call *call, ebb_norm_kept *kept, double *slope, double *elu,
                        double *least)
{
    *slope = ebb_attr_float(&call->attrs, "slope", 1.0);
    *elu = ebb_attr_float(&call->attrs, "elu", 0.0);
    *least = ebb_attr_float(&call->attrs, "least", 0x1p-24);
    *kept = *elu > 0 ? EBB_NORM_ELU : *slope == 1.0 ? EBB_NORM_PLAIN : EBB_NORM_LEAKY;
}

static ebb_norm_channels read_channels(const ebb_call *call)
{
    batch b = read_batch(call, &call->in[1].type);
    ebb_norm_channels c = {
        .call = call, .n = b.n, .c = b.c, .s = b.s, .slope = 1, .threads = b.threads};
    if (call->op == EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT)
        ebb_norm_read_kept(call, &c.kept, &c.slope, &c.elu, &c.least);
    return c;
}

static ebb_status run_gradient(const ebb_call *c)
{
    ebb_norm_channels b = read_channels(c);
    EBB_BY_FLOAT(c->in[1], gradient, &b);
    return NULL;
}

ebb_status ebb_plain_batch_norm_rows(const ebb_call *tile, const ebb_call *whole, void *dx)
{
    ebb_norm_channels b = read_channels(tile);
    double count = (double)(whole->in[1].type.dims[0] * b.s);
    const ebb_operand to = {.type = tile->in[1].type, .data = dx};
    EBB_BY_FLOAT(tile->in[1], gradient_rows, &b, whole, count, &to);
    return NULL;
}

/* ---- what is asked ---- */

static bool is_gradient(const ebb_call *c)
{
    return c->op == EBB_OP_BATCH_NORM_GRAD || c->op == EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT;
}

/* x, y, dy and dx may have 16 bits, where all else is float32. */
static const char *dtypes(const ebb_call *c)
{
    enum { OPERANDS = 8 };
    ebb_operand in[OPERANDS], out[OPERANDS];
    ebb_call wide = *c;
    if (c->input_count > OPERANDS || c->output_count > OPERANDS)
        return "more operands than a batch norm has";
    memcpy(in, c->in, c->input_count * sizeof *in);
    memcpy(out, c->out, c->output_count * sizeof *out);
    wide.in = in;
    wide.out = out;
    for (uint32_t i = 0; i < (is_gradient(c) ? 2u : 1u) && i < c->input_count; i++)
        if (ebb_is_narrow(&in[i].type))
            in[i].type.dtype = EBB_F32;
    if (c->output_count > 0 && ebb_is_narrow(&out[0].type))
        out[0].type.dtype = EBB_F32;
    return ebb_plain_floats(&wide);
}

/* Two rows for each thread, where an operand has 16 bits. */
static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    const batch b = read_batch(c, &c->in[is_gradient(c) ? 1 : 0].type);
    bool narrow = c->output_count > 0 && ebb_is_narrow(&c->out[0].type);
    for (uint32_t i = 0; i < c->input_count; i++)
        narrow = narrow || ebb_is_narrow(&c->in[i].type);
    *bytes = 0;
    if (narrow && !ebb_size_mul(bytes, (size_t)b.s, (size_t)b.threads * 2 * sizeof(float)))
        return ebb_call_error(c, "its rows are too long");
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_norm[] = {
    {.name = "plain.batch_norm",                  .op = EBB_OP_BATCH_NORMALIZATION,         .dtypes = dtypes, .workspace = workspace, .run = run_forward},
    {.name = "plain.batch_norm_training",         .op = EBB_OP_BATCH_NORM_TRAINING,         .dtypes = dtypes, .workspace = workspace, .run = run_forward},
    {.name = "plain.batch_norm_grad",             .op = EBB_OP_BATCH_NORM_GRAD,             .dtypes = dtypes, .workspace = workspace, .run = run_gradient},
    {.name = "plain.batch_norm_grad_from_output", .op = EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, .dtypes = dtypes, .workspace = workspace, .run = run_gradient},
};
// clang-format on
EBB_PLAIN_COUNT(norm)
