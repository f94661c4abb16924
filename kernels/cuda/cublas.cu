/* cublas.cu: MatMul, FusedMatMul and Gemm by cuBLASLt, before the products of our own. For the GPU
 * alone: the host's build has no such library, and no list of kernels names these there.
 *
 *     prepare: descriptors -> at most 8 algorithms -> the fastest of them, timed once a problem
 *              in borrowed memory; where none can be had, the library's first
 *     run:     (c spread over y) -> one call
 *
 * Float32 is float32, unless ebb_cuda_tf32. Sums are never cut into parts that are added in any
 * order. Where the library has no algorithm the product is our own: workspace serves both.
 */
#include "kernels/cuda/lt.h"

#if defined(__CUDACC__) && defined(EBB_CUBLASLT)

#include "onnx/arena.h"

typedef struct chosen { /* one a problem; kept by the queue */
    struct chosen *next;
    ebb_lt_problem problem;
    ebb_lt_plan *plan; /* NULL: there is no algorithm */
    uint32_t algorithm;
} chosen;

typedef struct library { /* ebb_cuda_queue.cublas */
    void *handle;
    chosen *first;
} library;

void ebb_cuda_cublas_close(void *opened)
{
    library *l = (library *)opened;
    if (l == NULL)
        return;
    for (chosen *c = l->first, *next; c != NULL; c = next) {
        next = c->next;
        ebb_lt_plan_free(c->plan);
        ebb_free(c);
    }
    ebb_lt_handle_free(l->handle);
    ebb_free(l);
}

static ebb_status open_library(ebb_cuda_queue *q)
{
    if (q->cublas != NULL)
        return NULL;
    library *l = (library *)ebb_alloc(sizeof *l);
    if (l == NULL)
        return ebb_error_memory();
    memset(l, 0, sizeof *l);
    ebb_status status = ebb_lt_handle_new(&l->handle);
    if (status != NULL) {
        ebb_free(l);
        return status;
    }
    q->cublas = l;
    return NULL;
}

/* ---- problems ---- */

/* How the third operand of a Gemm gets in. */
typedef enum third { ABSENT, EPILOGUE, WHOLE, SPREAD } third;

static third third_of(const ebb_call *c, const ebb_cuda_product *p)
{
    if (c->op != EBB_OP_GEMM || !ebb_cuda_has(c, 2) || p->beta == 0)
        return ABSENT;
    if (p->c_row == p->n && p->c_column == 1)
        return WHOLE;
    const bool vector = p->c_row == 0 && p->c_column == 1 && p->beta == 1;
    return vector && c->in[0].type.dtype != EBB_F64 ? EPILOGUE : SPREAD;
}

/* At most 32 MiB, as much as Hopper's kernels ask for, and no more than the operands take. */
static uint64_t bound_of(const ebb_call *c, const ebb_cuda_product *p)
{
    const uint64_t most = (uint64_t)32 << 20;
    const uint64_t own = ebb_cuda_product_bytes(p, c->in[0].type.dtype);
    uint64_t bytes =
        ((uint64_t)c->in[0].bytes + c->in[1].bytes + c->out[0].bytes + 255) / 256 * 256;
    bytes = bytes < most ? bytes : most;
    return bytes > own ? bytes : own;
}

static const char *read_problem(ebb_lt_problem *problem, const ebb_cuda_product *p,
                                const ebb_call *c)
{
    memset(problem, 0, sizeof *problem);
    problem->workspace_bytes = bound_of(c, p);
    problem->dtype = c->in[0].type.dtype;
    problem->after = third_of(c, p) == EPILOGUE ? EBB_LT_BIAS : EBB_LT_NOTHING;
    problem->tf32 = ebb_cuda_tf32 && problem->dtype == EBB_F32;
    return ebb_lt_map_read(&problem->map, p);
}

static const char *declines(const ebb_call *c)
{
    ebb_cuda_product p;
    ebb_lt_problem problem;
    const char *why = ebb_cuda_product_declines(c);
    if (why != NULL)
        return why;
    ebb_cuda_product_read(&p, c);
    why = read_problem(&problem, &p, c);
    if (why != NULL)
        return why;
    return ebb_lt_open() == NULL ? NULL
                                 : "cuBLASLt 13 cannot be opened (EBB_CUBLASLT names its file)";
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_cuda_product p;
    ebb_cuda_product_read(&p, c);
    *bytes = (size_t)bound_of(c, &p);
    return NULL;
}

/* ---- the choice of an algorithm ---- */

typedef struct trial { /* borrowed memory: whatever it holds, zeros in fact */
    void *a, *b, *y, *bias, *workspace;
    void *marks[2];
} trial;

static void return_trial(trial *t)
{
    void *blocks[] = {t->a, t->b, t->y, t->bias, t->workspace};
    for (int i = 0; i < 5; i++)
        if (blocks[i] != NULL)
            ebb_gpu_release(blocks[i]);
    for (int i = 0; i < 2; i++)
        ebb_gpu_unmark(t->marks[i]);
}

static ebb_status borrow(void *stream, size_t bytes, void **block)
{
    EBB_TRY(ebb_gpu_allocate(bytes > 0 ? bytes : 1, block));
    return ebb_gpu_clear(stream, *block, bytes);
}

static ebb_status borrow_trial(trial *t, const ebb_call *c, const ebb_cuda_product *p,
                               uint64_t bytes)
{
    void *stream = ebb_cuda_queue_of(c)->stream;
    memset(t, 0, sizeof *t);
    EBB_TRY(borrow(stream, c->in[0].bytes, &t->a));
    EBB_TRY(borrow(stream, c->in[1].bytes, &t->b));
    EBB_TRY(borrow(stream, c->out[0].bytes, &t->y));
    EBB_TRY(borrow(stream, (size_t)p->n * sizeof(double), &t->bias));
    return borrow(stream, (size_t)bytes, &t->workspace);
}

/* ns of the fastest of a few runs; a first one, not counted, loads the kernel. */
static ebb_status time_one(chosen *one, uint32_t i, const ebb_call *c, trial *t, int64_t *ns)
{
    enum { RUNS = 4 };
    const ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    ebb_lt_operands o;
    memset(&o, 0, sizeof o);
    o.a = t->a;
    o.b = t->b;
    o.y = t->y;
    o.bias = t->bias;
    o.alpha = 1;
    o.workspace = t->workspace;
    *ns = INT64_MAX;
    for (int run = 0; run < RUNS; run++) {
        EBB_TRY(ebb_gpu_mark(q->stream, &t->marks[0]));
        EBB_TRY(ebb_lt_plan_run(one->plan, ((library *)q->cublas)->handle, i, &o, q->stream));
        EBB_TRY(ebb_gpu_mark(q->stream, &t->marks[1]));
        EBB_TRY(ebb_gpu_wait(q->stream));
        const int64_t took = ebb_gpu_between(t->marks[0], t->marks[1]);
        if (run > 0 && took < *ns)
            *ns = took;
    }
    return NULL;
}

/* The first that is within a twentieth of the fastest: noise alone changes no choice. */
static ebb_status time_all(chosen *one, const ebb_call *c, trial *t)
{
    int64_t ns[EBB_LT_PLANS], least = INT64_MAX;
    const uint32_t count = ebb_lt_plan_count(one->plan);
    for (uint32_t i = 0; i < count; i++) {
        EBB_TRY(time_one(one, i, c, t, &ns[i]));
        least = ns[i] < least ? ns[i] : least;
    }
    for (uint32_t i = count; i-- > 0;)
        if (ns[i] <= least + least / 20)
            one->algorithm = i;
    return NULL;
}

static ebb_status choose(chosen *one, const ebb_call *c, const ebb_cuda_product *p)
{
    library *l = (library *)ebb_cuda_queue_of(c)->cublas;
    EBB_TRY(ebb_lt_plan_new(&one->plan, &one->problem));
    ebb_status status = ebb_lt_plan_find(one->plan, l->handle);
    if (status != NULL) { // our own, then
        ebb_lt_plan_free(one->plan);
        one->plan = NULL;
        return NULL;
    }
    if (ebb_lt_plan_count(one->plan) < 2)
        return NULL;
    trial t;
    status = borrow_trial(&t, c, p, one->problem.workspace_bytes);
    if (status == NULL)
        status = time_all(one, c, &t);
    else // no memory to try in: the library's first
        status = NULL;
    return_trial(&t);
    return status;
}

static ebb_status prepare(ebb_call *c)
{
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    ebb_cuda_product p;
    ebb_lt_problem problem;
    EBB_TRY(open_library(q));
    ebb_cuda_product_read(&p, c);
    const char *why = read_problem(&problem, &p, c);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    library *l = (library *)q->cublas;
    for (chosen *one = l->first; one != NULL; one = one->next)
        if (memcmp(&one->problem, &problem, sizeof problem) == 0) {
            c->state = one;
            return NULL;
        }
    chosen *one = (chosen *)ebb_alloc(sizeof *one);
    if (one == NULL)
        return ebb_error_memory();
    memset(one, 0, sizeof *one);
    one->problem = problem;
    one->next = l->first;
    l->first = one; // the queue's from here on, whatever comes
    EBB_TRY(choose(one, c, &p));
    c->state = one;
    return NULL;
}

/* ---- a run ---- */

static ebb_status run_own(const ebb_call *c, ebb_cuda_product *p)
{
    p->c = c->op == EBB_OP_GEMM && ebb_cuda_has(c, 2) ? c->in[2].data : NULL;
    p->parts = c->workspace;
    return ebb_cuda_product_run(c, p, c->in[0].type.dtype);
}

static ebb_status run(const ebb_call *c)
{
    const ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    const chosen *one = (const chosen *)c->state;
    ebb_cuda_product p;
    ebb_lt_operands o;
    ebb_cuda_product_read(&p, c);
    p.y = c->out[0].data;
    p.a = c->in[0].data;
    p.b = c->in[1].data;
    if (one == NULL || one->plan == NULL)
        return run_own(c, &p);
    const third third = third_of(c, &p);
    memset(&o, 0, sizeof o);
    o.a = p.a;
    o.b = p.b;
    o.y = p.y;
    o.alpha = p.alpha;
    o.beta = third == WHOLE || third == SPREAD ? p.beta : 0;
    o.c = third == WHOLE ? c->in[2].data : p.y;
    o.bias = third == EPILOGUE ? c->in[2].data : NULL;
    o.workspace = c->workspace;
    if (third == SPREAD) {
        p.c = c->in[2].data;
        EBB_TRY(ebb_cuda_product_fill(c, &p, c->in[0].type.dtype));
    }
    return ebb_lt_plan_run(one->plan, ((const library *)q->cublas)->handle, one->algorithm, &o,
                           q->stream);
}

const ebb_kernel ebb_cuda_cublas[] = {
    {"cuda.lt_matmul", EBB_OP_MATMUL, declines, workspace, prepare, run, NULL},
    {"cuda.lt_fused_matmul", EBB_OP_FUSED_MATMUL, declines, workspace, prepare, run, NULL},
    {"cuda.lt_gemm", EBB_OP_GEMM, declines, workspace, prepare, run, NULL},
};
EBB_CUDA_COUNT(cublas)

#endif
