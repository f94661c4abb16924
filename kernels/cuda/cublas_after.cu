/* cublas_after.cu: what follows a product is done on its way out, by cuBLASLt.
 *
 *     before   k      Gemm      a, b, bias -> y     y goes to memory and back twice
 *              k + 1  Relu      y          -> z
 *              k + 2  PackSign  z          -> bits
 *     after    k      one call, RELU_AUX_BIAS: z and bits; y is never stored
 *
 *     before   k      Gemm      dz, b      -> g     after   one call, DRELU: dy
 *              k + 1  MaskGrad  g, bits    -> dy
 *
 * Views between them, which move nothing, are passed over.
 *
 * The bits of every result stay as they are without. Nobody documents what the library's ReLU makes
 * of NaN and of -0, nor the order of its bits, so three things are asked of the device itself:
 *
 *   - does the library agree with the own kernels, on a small product whose results are NaN, zeros
 *     of both signs, infinities and what rounds to zero? Once a queue, dtype and way out (a probe);
 *   - does it take the very algorithm that the product has without (same sums)?
 *   - is it faster than call after call? A race at compile time; its outcome need not be kept,
 *     since both give the same.
 *
 * Where an answer is no the calls run one after the other, as if nobody had asked. A row of bits
 * is ours only where it fills whole lines of 128.
 */
#include "kernels/cuda/cublas.h"

#if defined(EBB_CUBLASLT)

#include "kernels/cuda/choose.h"
#include "kernels/cuda/product.h"
#include "onnx/arena.h"

enum { CALLS = 3, LINE = 128 };

typedef struct joined { /* the state of the product's call */
    const ebb_kernel *kernels[CALLS];
    uint32_t at[CALLS]; /* where they are, from the product on */
    uint32_t count;
    uint32_t after;    /* the most that may be done on the way out */
    uint32_t covers;   /* calls that the plan does; those behind it run on their own */
    void *chosen;      /* the state that the product has alone */
    ebb_lt_plan *plan; /* NULL: call after call */
} joined;

/* ---- both ways ---- */

static ebb_status run_from(const ebb_call *c, const joined *j, uint32_t first)
{
    for (uint32_t m = first; m < j->count; m++) {
        ebb_call one = c[j->at[m]];
        one.kernel = j->kernels[m];
        if (m == 0)
            one.state = j->chosen;
        EBB_TRY(one.kernel->run(&one));
    }
    return NULL;
}

/* The bits that the plan writes or reads. */
static void *bits_of(const ebb_call *c, const joined *j)
{
    if (j->after == EBB_LT_DRELU)
        return c[j->at[1]].in[1].data;
    return j->covers == 3 ? c[j->at[2]].out[0].data : NULL;
}

static ebb_status run_joined(const ebb_call *c, const joined *j)
{
    ebb_cuda_product p;
    ebb_cublas_read(&p, c);
    p.y = c[j->at[1]].out[0].data;
    EBB_TRY(ebb_cublas_run(c, &p, c->in[0].type.dtype, j->plan, 0, bits_of(c, j)));
    return run_from(c, j, j->covers);
}

static ebb_status run_group(const ebb_call *c)
{
    const joined *j = (const joined *)c->state;
    return j->plan != NULL ? run_joined(c, j) : run_from(c, j, 0);
}

/* ---- the probe ---- */

enum { PROBE_M = 16, PROBE_N = 2 * LINE, PROBE_K = 16, MOST_BYTES = 4 };

/* In device memory; 16 bits use half of each. All parts begin at multiples of 256 bytes. */
typedef struct trial_memory {
    unsigned char a[PROBE_M * PROBE_K * MOST_BYTES], b[PROBE_K * PROBE_N * MOST_BYTES],
        bias[PROBE_N * MOST_BYTES];
    unsigned char plain[PROBE_M * PROBE_N * MOST_BYTES]; /* the product alone */
    unsigned char ours[PROBE_M * PROBE_N * MOST_BYTES], theirs[PROBE_M * PROBE_N * MOST_BYTES];
    unsigned char our_bits[PROBE_M * PROBE_N / 8], their_bits[PROBE_M * PROBE_N / 8];
} trial_memory;

/* One number in three dtypes. */
typedef struct special {
    uint32_t f32;
    uint16_t f16, bf16;
} special;

static const special specials[PROBE_M] = {
    {0x3F800000, 0x3C00, 0x3F80}, /* 1 */
    {0xBF800000, 0xBC00, 0xBF80},
    {0x00000000, 0x0000, 0x0000},
    {0x80000000, 0x8000, 0x8000}, /* -0 */
    {0x7F800000, 0x7C00, 0x7F80},
    {0xFF800000, 0xFC00, 0xFF80}, /* -inf */
    {0x7FC00000, 0x7E00, 0x7FC0},
    {0xFFC12345, 0xFE55, 0xFFD5}, /* NaNs */
    {0x00800000, 0x0400, 0x0080},
    {0x80800000, 0x8400, 0x8080}, /* the least normal ones: their products round to 0 */
    {0x00000123, 0x0003, 0x0003}, /* subnormal */
    {0x7F7FFFFF, 0x7BFF, 0x7F7F}, /* the largest */
    {0x3FD9999A, 0x3ECD, 0x3FDA}, /* 1.7 */
    {0xBE99999A, 0xB4CD, 0xBE9A}, /* -0.3 */
    {0x3B800000, 0x1C00, 0x3B80}, /* 2^-8 */
    {0xBB800000, 0x9C00, 0xBB80},
};

static void put_special(unsigned char *array, uint8_t dtype, uint32_t at, uint32_t which)
{
    const special *v = &specials[which % PROBE_M];
    if (dtype == EBB_F32)
        memcpy(array + 4 * at, &v->f32, 4);
    else
        memcpy(array + 2 * at, dtype == EBB_F16 ? &v->f16 : &v->bf16, 2);
}

/* y[i, j] is one special number times another, plus a third: column 0 of a, row 0 of b. */
static void fill_trial(trial_memory *t, uint8_t dtype)
{
    uint32_t draw = 1;
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < PROBE_M; i++)
        put_special(t->a, dtype, i * PROBE_K, i);
    for (uint32_t j = 0; j < PROBE_N; j++) {
        draw = draw * 1664525u + 1013904223u;
        put_special(t->b, dtype, j, draw >> 20);
        put_special(t->bias, dtype, j, draw >> 26);
    }
    for (uint32_t k = 0; k < PROBE_M * PROBE_N / 8;
         k++) { // what a gradient reads; else written over
        draw = draw * 1664525u + 1013904223u;
        t->our_bits[k] = t->their_bits[k] = (unsigned char)(draw >> 24);
    }
    memset(t->theirs, 0xA5, sizeof t->theirs);
}

static ebb_operand operand_of(void *data, uint8_t dtype, int64_t n)
{
    ebb_operand o;
    memset(&o, 0, sizeof o);
    o.type = ebb_type_tensor((ebb_dtype)dtype, 1, &n);
    o.bytes = (size_t)n * ebb_dtype_bits((ebb_dtype)dtype) / 8;
    o.data = data;
    return o;
}

/* Call m of the group, on other operands. */
static ebb_status run_ours(const ebb_call *c, const joined *j, uint32_t m, ebb_operand x,
                           ebb_operand mask, ebb_operand y)
{
    ebb_call one = c[j->at[m]];
    ebb_operand in[2] = {x, mask};
    one.in = in;
    one.out = &y;
    one.kernel = j->kernels[m];
    return one.kernel->run(&one);
}

typedef struct probe {
    const ebb_call *c;
    const joined *j;
    uint32_t after;
    uint8_t dtype;
    ebb_lt_plan *alone, *with;
    uint32_t algorithm; /* of alone; with has it too, as its only one */
    trial_memory *device;
} probe;

static ebb_status run_both(const probe *b, double alpha)
{
    const ebb_cuda_queue *q = ebb_cuda_queue_of(b->c);
    void *handle = ((const ebb_cublas *)q->cublas)->handle;
    trial_memory *d = b->device;
    ebb_lt_operands o;
    memset(&o, 0, sizeof o);
    o.a = d->a;
    o.b = d->b;
    o.bias = d->bias;
    o.alpha = alpha;
    o.y = d->plain;
    EBB_TRY(ebb_lt_plan_run(b->alone, handle, b->algorithm, &o, q->stream));
    o.y = d->theirs;
    o.aux = d->their_bits;
    EBB_TRY(ebb_lt_plan_run(b->with, handle, 0, &o, q->stream));
    const ebb_operand ours = operand_of(d->ours, b->dtype, PROBE_M * PROBE_N);
    const ebb_operand bits = operand_of(d->our_bits, EBB_U8, PROBE_M * PROBE_N / 8);
    EBB_TRY(run_ours(b->c, b->j, 1, operand_of(d->plain, b->dtype, PROBE_M * PROBE_N), bits, ours));
    if (b->after == EBB_LT_RELU_AUX || b->after == EBB_LT_RELU_AUX_BIAS)
        EBB_TRY(run_ours(b->c, b->j, 2, ours, bits, bits));
    return NULL;
}

static ebb_status compare(const probe *b, trial_memory *host, bool *agrees)
{
    void *stream = ebb_cuda_queue_of(b->c)->stream;
    const size_t bytes = (size_t)(PROBE_M * PROBE_N) * ebb_dtype_bits((ebb_dtype)b->dtype) / 8;
    *agrees = true;
    for (int sign = 1; sign >= -1 && *agrees; sign -= 2) { // -1 times a sum of +0 is -0
        fill_trial(host, b->dtype);
        EBB_TRY(ebb_gpu_copy(stream, b->device, host, sizeof *host, EBB_TO_DEVICE));
        EBB_TRY(run_both(b, sign));
        EBB_TRY(ebb_gpu_copy(stream, host, b->device, sizeof *host, EBB_TO_HOST));
        *agrees = memcmp(host->ours, host->theirs, bytes) == 0 &&
                  memcmp(host->our_bits, host->their_bits, sizeof host->our_bits) == 0;
    }
    return NULL;
}

/* The plans of the probe, both by one algorithm. EBB_UNSUPPORTED where there is none for both. */
static ebb_status make_plans(probe *b)
{
    void *handle = ((const ebb_cublas *)ebb_cuda_queue_of(b->c)->cublas)->handle;
    ebb_cuda_product p;
    ebb_lt_problem problem;
    memset(&problem, 0, sizeof problem);
    ebb_cuda_product_plain(&p, PROBE_M, PROBE_N, PROBE_K);
    p.a_row = PROBE_K;
    p.b_row = PROBE_N;
    p.a_column = p.b_column = 1;
    (void)ebb_lt_map_read(&problem.map, &p);
    problem.dtype = b->dtype;
    problem.tf32 = ebb_cuda_tf32 && b->dtype == EBB_F32;
    problem.after = ebb_lt_has_bias(b->after) ? EBB_LT_BIAS : EBB_LT_NOTHING;
    EBB_TRY(ebb_lt_plan_new(&b->alone, &problem));
    EBB_TRY(ebb_lt_plan_find(b->alone, handle));
    problem.after = b->after;
    problem.aux_lead = ebb_lt_has_aux(b->after) ? ebb_lt_aux_lead(PROBE_N) : 0;
    EBB_TRY(ebb_lt_plan_new(&b->with, &problem));
    for (; b->algorithm < ebb_lt_plan_count(b->alone); b->algorithm++) {
        uint8_t bytes[EBB_LT_ALGORITHM];
        ebb_lt_plan_save(b->alone, b->algorithm, bytes);
        if (ebb_lt_plan_restore(b->with, handle, bytes) == NULL)
            return NULL;
    }
    return ebb_error(EBB_UNSUPPORTED, "cuBLASLt has no algorithm with and without what follows");
}

static bool try_out(probe *b)
{
    void *memory = NULL;
    bool agrees = false;
    trial_memory *host = (trial_memory *)ebb_alloc(sizeof *host);
    ebb_status status = host == NULL ? ebb_error_memory() : make_plans(b);
    if (status == NULL)
        status = ebb_gpu_allocate(sizeof *b->device, &memory);
    b->device = (trial_memory *)memory;
    if (status == NULL)
        status = compare(b, host, &agrees);
    if (memory != NULL)
        ebb_gpu_release(memory);
    ebb_lt_plan_free(b->alone);
    ebb_lt_plan_free(b->with);
    ebb_free(host);
    return status == NULL && agrees;
}

/* Does the library's way out give the bits of the own kernels? */
static bool agree_on(const ebb_call *c, const joined *j, uint32_t after)
{
    ebb_cublas *l = (ebb_cublas *)ebb_cuda_queue_of(c)->cublas;
    const uint8_t dtype = c->in[0].type.dtype;
    if ((l->tried[dtype] >> after & 1) == 0) {
        probe b;
        memset(&b, 0, sizeof b);
        b.c = c;
        b.j = j;
        b.after = after;
        b.dtype = dtype;
        l->tried[dtype] |= 1u << after;
        if (try_out(&b))
            l->agrees[dtype] |= 1u << after;
    }
    return (l->agrees[dtype] >> after & 1) != 0;
}

/* ---- the choice ---- */

/* The algorithm that the product has alone, with `after` behind it; j->plan NULL where it has not,
 * or would compute something else. */
static void make_joined(joined *j, const ebb_call *c, uint32_t after, uint32_t covers)
{
    const ebb_cublas_choice *one = (const ebb_cublas_choice *)j->chosen;
    const ebb_cublas *l = (const ebb_cublas *)ebb_cuda_queue_of(c)->cublas;
    uint8_t bytes[EBB_LT_ALGORITHM];
    if (!agree_on(c, j, after))
        return;
    ebb_lt_problem problem = one->problem;
    problem.after = after;
    problem.aux_lead = ebb_lt_has_aux(after) ? problem.map.result.rows : 0;
    ebb_lt_plan_save(one->plan, one->algorithm, bytes);
    if (ebb_lt_plan_new(&j->plan, &problem) == NULL &&
        ebb_lt_plan_restore(j->plan, l->handle, bytes) == NULL) {
        j->covers = covers;
        return;
    }
    ebb_lt_plan_free(j->plan);
    j->plan = NULL;
}

typedef struct contest {
    const ebb_call *c;
    const joined *j;
    void *marks[2];
} contest;

static ebb_status time_one(void *context, int candidate, int64_t *ns)
{
    contest *w = (contest *)context;
    void *stream = ebb_cuda_queue_of(w->c)->stream;
    EBB_TRY(ebb_gpu_mark(stream, &w->marks[0]));
    EBB_TRY(candidate == 0 ? run_joined(w->c, w->j) : run_from(w->c, w->j, 0));
    EBB_TRY(ebb_gpu_mark(stream, &w->marks[1]));
    EBB_TRY(ebb_gpu_wait(stream));
    *ns = ebb_gpu_between(w->marks[0], w->marks[1]);
    return NULL;
}

static void race_ways(joined *j, const ebb_call *c)
{
    contest w = {c, j, {NULL, NULL}};
    const int winner = ebb_choose(2, time_one, &w);
    for (int i = 0; i < 2; i++)
        ebb_gpu_unmark(w.marks[i]);
    if (winner == 0)
        return;
    ebb_lt_plan_free(j->plan);
    j->plan = NULL;
}

static ebb_status prepare_group(ebb_call *c)
{
    joined *j = (joined *)c->state;
    ebb_call product = *c;
    product.kernel = j->kernels[0];
    product.state = NULL;
    EBB_TRY(product.kernel->prepare(&product));
    j->chosen = product.state;
    const ebb_cublas_choice *one = (const ebb_cublas_choice *)j->chosen;
    if (one == NULL || one->plan == NULL ||
        ebb_cuda_align_of((uintptr_t)c[j->at[1]].out[0].data) < one->problem.align)
        return NULL;
    const bool bias = ebb_lt_has_bias(one->problem.after);
    if (j->after == EBB_LT_RELU_AUX)
        make_joined(j, c, bias ? EBB_LT_RELU_AUX_BIAS : EBB_LT_RELU_AUX, 3);
    if (j->plan == NULL && j->after != EBB_LT_DRELU)
        make_joined(j, c, bias ? EBB_LT_RELU_BIAS : EBB_LT_RELU, 2);
    if (j->after == EBB_LT_DRELU && !bias)
        make_joined(j, c, EBB_LT_DRELU, 2);
    if (j->plan != NULL)
        race_ways(j, c);
    return NULL;
}

static void release_group(ebb_call *c)
{
    joined *j = (joined *)c->state;
    if (j == NULL)
        return;
    ebb_lt_plan_free(j->plan); // the product's own is the queue's
    ebb_free(j);
    c->state = NULL;
}

static const ebb_kernel product_and_more = {"cuda.lt_joined", EBB_OP_UNKNOWN, NULL,         NULL,
                                            prepare_group,    run_group,      release_group};

/* ---- which calls ---- */

static bool is_product(const ebb_call *c)
{
    bool ours = false;
    for (size_t k = 0; k < ebb_cuda_cublas_count && !ours; k++)
        ours = c->kernel == &ebb_cuda_cublas[k];
    for (uint32_t i = 0; i < c->input_count; i++)
        ours = ours && c->in[i].source == NULL;
    if (!ours || c->streamed || c->state != NULL)
        return false;
    return c->in[0].type.dtype != EBB_F64; // the library does nothing after those
}

/* Does c, of an own kernel for op, read all of x first? */
static bool is_next(const ebb_call *c, ebb_op op, const ebb_operand *x)
{
    return c->op == op && c->kernel->op == op && c->kernel->prepare == NULL && !c->streamed &&
           c->state == NULL && c->in[0].source == NULL && c->in[0].data == x->data &&
           c->in[0].bytes == x->bytes && c->in[0].type.dtype == x->type.dtype;
}

/* May the product write o already? */
static bool is_free(const ebb_call *c, const ebb_operand *o)
{
    ebb_operand workspace;
    memset(&workspace, 0, sizeof workspace);
    workspace.data = c->workspace;
    workspace.bytes = c->workspace_bytes;
    bool free_of = !ebb_cuda_overlap(o, &workspace);
    for (uint32_t i = 0; i < c->input_count && free_of; i++)
        free_of = c->in[i].type.dtype == EBB_NONE || !ebb_cuda_overlap(o, &c->in[i]);
    return free_of;
}

static bool is_view(const ebb_call *c)
{
    return ebb_op_has(c->op, EBB_VIEW) && !c->streamed && c->in[0].source == NULL &&
           c->in[0].data == c->out[0].data && c->in[0].bytes == c->out[0].bytes;
}

/* The call behind calls[k] and behind views; count: there is none. */
static uint32_t next_of(const ebb_call *calls, uint32_t count, uint32_t k)
{
    do
        k++;
    while (k < count && is_view(&calls[k]));
    return k;
}

/* Is y, and are its views, read by nobody behind calls[last]? */
static bool is_let_go(const ebb_call *calls, uint32_t last)
{
    bool free_of = calls[0].out[0].last_read <= calls[last].position;
    for (uint32_t k = 1; k < last && free_of; k++)
        free_of = calls[k].out[0].data != calls[0].out[0].data ||
                  calls[k].out[0].last_read <= calls[last].position;
    return free_of;
}

static bool is_gradient(const ebb_call *product, const ebb_call *c, bool lines)
{
    const ebb_operand *bits = &c->in[1], *z = &c->out[0];
    return is_next(c, EBB_OP_MASK_GRAD, &product->out[0]) && lines &&
           ebb_attr_float(&c->attrs, "scale", 1.0) == 1 &&
           ebb_attr_float(&c->attrs, "alpha", 0.0) == 0 && (uintptr_t)bits->data % 16 == 0 &&
           is_free(product, bits) && !ebb_cuda_overlap(z, bits);
}

static bool is_packing(const ebb_call *product, const ebb_call *c, const ebb_operand *z, bool lines)
{
    const ebb_operand *bits = &c->out[0];
    return is_next(c, EBB_OP_PACK_SIGN, z) && lines && ebb_attr_float(&c->attrs, "low", 0.0) == 0 &&
           ebb_attr_float(&c->attrs, "high", (double)INFINITY) == (double)INFINITY &&
           (uintptr_t)bits->data % 16 == 0 && is_free(product, bits) && !ebb_cuda_overlap(z, bits);
}

/* What can be done on the way out: j->after, and where those calls are; false: nothing. */
static bool find_after(joined *j, const ebb_call *calls, uint32_t count)
{
    const uint32_t first = next_of(calls, count, 0);
    if (first >= count || (calls[first].op != EBB_OP_RELU && calls[first].op != EBB_OP_MASK_GRAD))
        return false;
    const ebb_operand *y = &calls[0].out[0], *z = &calls[first].out[0];
    ebb_cuda_product p;
    ebb_cublas_read(&p, calls);
    if (p.batches != 1 || p.m < 1 || p.n < 1 || !is_let_go(calls, first) ||
        (z->data != y->data && !is_free(calls, z)))
        return false;
    const bool lines = p.n % LINE == 0;
    j->at[1] = first;
    j->count = 2;
    j->after = EBB_LT_DRELU;
    if (is_gradient(&calls[0], &calls[first], lines))
        return true;
    j->after = EBB_LT_RELU;
    if (!is_next(&calls[first], EBB_OP_RELU, y))
        return false;
    const uint32_t second = next_of(calls, count, first);
    if (second < count && calls[second].op == EBB_OP_PACK_SIGN &&
        is_packing(&calls[0], &calls[second], z, lines)) {
        j->after = EBB_LT_RELU_AUX;
        j->at[2] = second;
        j->count = 3;
    }
    return true;
}

ebb_status ebb_cublas_group(ebb_call *calls, uint32_t count, int version, uint32_t *taken)
{
    joined found;
    (void)version;
    *taken = 0;
    memset(&found, 0, sizeof found);
    if (!is_product(&calls[0]) || !find_after(&found, calls, count))
        return NULL;
    joined *j = (joined *)ebb_alloc(sizeof *j);
    if (j == NULL)
        return ebb_error_memory();
    *j = found;
    for (uint32_t m = 0; m < j->count; m++) {
        ebb_call *c = &calls[j->at[m]];
        j->kernels[m] = c->kernel;
        c->kernel = m == 0 ? &product_and_more : &ebb_cuda_joined;
    }
    calls[0].state = j;
    *taken = j->at[j->count - 1] + 1;
    return NULL;
}

#endif
