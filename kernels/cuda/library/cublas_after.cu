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
 *     of both signs, infinities and what rounds to zero? (cublas_probe.cu)
 *   - does it take the very algorithm that the product has without (same sums)?
 *   - is it faster than call after call? A race at compile time; its outcome need not be kept,
 *     since both give the same.
 *
 * Where an answer is no the calls run one after the other, as if nobody had asked. A row of bits
 * is ours only where it fills whole lines of 128.
 */
#include "kernels/cuda/library/cublas.h"

#if defined(EBB_CUBLASLT)

#include "kernels/cuda/library/choose.h"
#include "kernels/cuda/product.h"
#include "onnx/words/arena.h"

enum { CALLS = 3, LINE = EBB_CUBLAS_LINE };

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
    const ebb_cublas_beside beside = {bits_of(c, j), NULL};
    EBB_TRY(ebb_cublas_run(c, &p, c->in[0].type.dtype, j->plan, 0, &beside));
    return run_from(c, j, j->covers);
}

static ebb_status run_group(const ebb_call *c)
{
    const joined *j = (const joined *)c->state;
    return j->plan != NULL ? run_joined(c, j) : run_from(c, j, 0);
}

/* ---- the choice ---- */

/* The algorithm that the product has alone, with `after` behind it; j->plan NULL where it has not,
 * or would compute something else. */
static void make_joined(joined *j, const ebb_call *c, uint32_t after, uint32_t covers)
{
    const ebb_cublas_choice *one = (const ebb_cublas_choice *)j->chosen;
    const ebb_cublas *l = (const ebb_cublas *)ebb_cuda_queue_of(c)->cublas;
    uint8_t bytes[EBB_LT_ALGORITHM];
    if (ebb_cublas_differs(ebb_cuda_queue_of(c), c->in[0].type.dtype, after) != NULL)
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

static const ebb_kernel product_and_more = {.name = "cuda.lt_joined",
                                            .op = EBB_OP_UNKNOWN,
                                            .prepare = prepare_group,
                                            .run = run_group,
                                            .release = release_group};

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
