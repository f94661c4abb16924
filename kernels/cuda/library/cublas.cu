/* cublas.cu: products by cuBLASLt: MatMul, FusedMatMul and Gemm, before those of our own, and what
 * has products inside (product.h). For the GPU alone: the host's build has no such library, and no
 * list of kernels names these there.
 *
 *     choose:  problem -> kept for it on this device and by this library? that one
 *                         else at most 8 algorithms -> a race (choose.h) on the operands' memory
 *                         -> kept
 *     run:     (c spread over y) -> one call
 *
 * Float32 is float32, unless ebb_cuda_tf32. Sums are never cut into parts that are added in any
 * order. A choice that cannot be kept is the library's first: another run would choose otherwise,
 * and round otherwise. Where the library has no algorithm, or cannot use the device, the product is
 * our own: workspace serves both.
 *
 * A bias is added on the way out; ReLU, its bits and its gradient where they are as our own
 * (cublas_after.cu). Sums for the gradient of a bias have an order that nobody says, so they never
 * take the place of a node that sums: they are a node's of their own (cublas_sums.cu).
 */
#if defined(EBB_CUBLASLT)

#include "kernels/cuda/library/choose.h"
#include "kernels/cuda/library/cublas.h"
#include "onnx/words/arena.h"

#include <stdio.h>

typedef ebb_cublas_choice chosen;
typedef ebb_cublas library;

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

ebb_status ebb_cublas_open(ebb_cuda_queue *q)
{
    ebb_device_facts f;
    if (q->cublas != NULL)
        return NULL;
    library *l = (library *)ebb_alloc(sizeof *l);
    if (l == NULL)
        return ebb_error_memory();
    memset(l, 0, sizeof *l);
    memset(&f, 0, sizeof f);
    if (ebb_gpu_facts(&f) == NULL)
        (void)ebb_lt_handle_new(&l->handle); // `ebb devices` says why there is none
    (void)snprintf(l->device, sizeof l->device, "%s-%d", f.name, f.driver);
    q->cublas = l;
    return NULL;
}

/* ---- problems ---- */

/* How c gets in. */
typedef enum third { ABSENT, EPILOGUE, WHOLE, SPREAD } third;

static bool is_narrow(uint8_t dtype)
{
    return dtype == EBB_F16 || dtype == EBB_BF16;
}

static third third_of(const ebb_cuda_product *p, uint8_t dtype)
{
    if (!p->has_c || p->beta == 0)
        return ABSENT;
    if (p->c_row == p->y_row && p->c_column == 1)
        return WHOLE;
    const bool vector = p->c_row == 0 && p->c_column == 1 && p->beta == 1;
    const bool other = p->wide_c && is_narrow(dtype); // than the library takes a bias in
    return vector && dtype != EBB_F64 && !other ? EPILOGUE : SPREAD;
}

/* At most 32 MiB, as much as Hopper's kernels ask for, and no more than the operands take. */
static size_t bound_of(const ebb_cuda_product *p, uint8_t dtype)
{
    const uint64_t most = (uint64_t)32 << 20, element = ebb_dtype_bits((ebb_dtype)dtype) / 8;
    const uint64_t own = ebb_cuda_product_bytes(p, dtype);
    uint64_t elements = (uint64_t)(p->m * p->n) * (uint64_t)p->batches;
    elements += (uint64_t)(p->m * p->k) * (uint64_t)(p->walk.rank > 0 ? p->batches : 1);
    elements += (uint64_t)(p->k * p->n) * (uint64_t)(p->walk.rank > 0 ? p->batches : 1);
    uint64_t bytes = elements < most ? (elements * element + 255) / 256 * 256 : most;
    bytes = bytes < most ? bytes : most;
    return (size_t)(bytes > own ? bytes : own);
}

static const char *read_problem(ebb_lt_problem *problem, const ebb_cuda_product *p, uint8_t dtype)
{
    memset(problem, 0, sizeof *problem);
    problem->workspace_bytes = bound_of(p, dtype);
    problem->dtype = dtype;
    problem->align = p->align;
    problem->after = third_of(p, dtype) == EPILOGUE ? EBB_LT_BIAS : EBB_LT_NOTHING;
    problem->tf32 = ebb_cuda_tf32 && dtype == EBB_F32;
    problem->wide = p->wide_y && is_narrow(dtype);
    if (is_narrow(dtype) && third_of(p, dtype) == WHOLE && p->wide_c != p->wide_y)
        return "what is added is of another type than the product";
    return ebb_lt_map_read(&problem->map, p);
}

static const char *declines_product(const ebb_cuda_product *p, uint8_t dtype)
{
    ebb_lt_problem problem;
    const char *why = read_problem(&problem, p, dtype);
    if (why != NULL)
        return why;
    return ebb_lt_open() == NULL ? NULL
                                 : "cuBLASLt 13 cannot be opened (EBB_CUBLASLT names its file)";
}

/* ---- running one ---- */

static ebb_lt_operands operands_of(const ebb_cuda_product *p, third how,
                                   const ebb_cublas_beside *beside)
{
    ebb_lt_operands o;
    memset(&o, 0, sizeof o);
    o.a = p->a;
    o.b = p->b;
    o.y = p->y;
    o.alpha = p->alpha;
    o.beta = how == WHOLE || how == SPREAD ? p->beta : 0;
    o.c = how == WHOLE ? p->c : p->y;
    o.bias = how == EPILOGUE ? (void *)(uintptr_t)p->c : NULL;
    o.workspace = p->parts;
    if (beside != NULL) {
        o.aux = beside->aux;
        o.bias = beside->sums != NULL ? beside->sums : o.bias;
    }
    return o;
}

bool ebb_cublas_adds_bias(const ebb_cuda_product *p, uint8_t dtype)
{
    return third_of(p, dtype) == EPILOGUE;
}

ebb_status ebb_cublas_run(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                          ebb_lt_plan *plan, uint32_t i, const ebb_cublas_beside *beside)
{
    const ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    // the caller may have nothing to add this time, though it has at others
    third how = third_of(p, dtype);
    if (p->c == NULL && how != EPILOGUE)
        how = ABSENT;
    const ebb_lt_operands o = operands_of(p, how, beside);
    if (how == SPREAD)
        EBB_TRY(ebb_cuda_product_fill(c, p, dtype));
    return ebb_lt_plan_run(plan, ((const library *)q->cublas)->handle, i, &o, q->stream);
}

static ebb_status run_product(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                              const void *state)
{
    const chosen *one = (const chosen *)state;
    if (one == NULL || one->plan == NULL)
        return ebb_cuda_product_run(c, p, dtype);
    return ebb_cublas_run(c, p, dtype, one->plan, one->algorithm, NULL);
}

/* ---- the choice of an algorithm ---- */

typedef struct stopwatch {
    chosen *one;
    const ebb_cuda_queue *queue;
    ebb_lt_operands operands;
    void *marks[2];
} stopwatch;

static ebb_status trial(void *context, int candidate, int64_t *ns)
{
    stopwatch *w = (stopwatch *)context;
    const library *l = (const library *)w->queue->cublas;
    EBB_TRY(ebb_gpu_mark(w->queue->stream, &w->marks[0]));
    EBB_TRY(ebb_lt_plan_run(w->one->plan, l->handle, (uint32_t)candidate, &w->operands,
                            w->queue->stream));
    EBB_TRY(ebb_gpu_mark(w->queue->stream, &w->marks[1]));
    EBB_TRY(ebb_gpu_wait(w->queue->stream));
    *ns = ebb_gpu_between(w->marks[0], w->marks[1]);
    return NULL;
}

static bool has_operands(const ebb_cuda_product *p, third how, uint64_t workspace_bytes)
{
    return p->a != NULL && p->b != NULL && p->y != NULL && (how != EPILOGUE || p->c != NULL) &&
           (workspace_bytes == 0 || p->parts != NULL);
}

static void race(chosen *one, const ebb_call *c, const ebb_cuda_product *p,
                 const ebb_cublas_beside *beside)
{
    uint8_t bytes[EBB_LT_ALGORITHM], kept[EBB_LT_ALGORITHM];
    const library *l = (const library *)ebb_cuda_queue_of(c)->cublas;
    const third how = third_of(p, (uint8_t)one->problem.dtype);
    if (!has_operands(p, how, one->problem.workspace_bytes) ||
        (ebb_lt_has_sums(one->problem.after) && beside->sums == NULL))
        return;
    stopwatch w;
    memset(&w, 0, sizeof w);
    w.one = one;
    w.queue = ebb_cuda_queue_of(c);
    w.operands = operands_of(p, how, beside);
    w.operands.c = p->y; // what is added may be made later, and takes as long
    one->raced = true;
    const int winner = ebb_choose((int)ebb_lt_plan_count(one->plan), trial, &w);
    for (int i = 0; i < 2; i++)
        ebb_gpu_unmark(w.marks[i]);
    if (winner < 0)
        return;
    ebb_lt_plan_save(one->plan, (uint32_t)winner, bytes);
    ebb_lt_keep(l->device, &one->problem, bytes);
    if (ebb_lt_recall(l->device, &one->problem, kept) && memcmp(kept, bytes, sizeof kept) == 0)
        one->algorithm = (uint32_t)winner;
}

/* What is kept of a problem whose calls are faster one after the other: no algorithm's bytes. */
static const uint8_t no_algorithm[EBB_LT_ALGORITHM] = {0};

static void forget_plan(chosen *one)
{
    ebb_lt_plan_free(one->plan);
    one->plan = NULL;
}

static ebb_status make_plan(chosen *one, const library *l)
{
    uint8_t bytes[EBB_LT_ALGORITHM];
    const bool kept = ebb_lt_recall(l->device, &one->problem, bytes);
    one->raced = one->compared = true; // in its time
    if (kept && memcmp(bytes, no_algorithm, sizeof bytes) == 0)
        return NULL;
    EBB_TRY(ebb_lt_plan_new(&one->plan, &one->problem));
    if (kept && ebb_lt_plan_restore(one->plan, l->handle, bytes) == NULL)
        return NULL;
    one->raced = one->compared = false;
    if (ebb_lt_plan_find(one->plan, l->handle) != NULL)
        forget_plan(one); // our own, then
    return NULL;
}

void ebb_cublas_keep_apart(const ebb_call *c, ebb_cublas_choice *one)
{
    uint8_t kept[EBB_LT_ALGORITHM];
    const library *l = (const library *)ebb_cuda_queue_of(c)->cublas;
    ebb_lt_keep(l->device, &one->problem, no_algorithm);
    if (ebb_lt_recall(l->device, &one->problem, kept) &&
        memcmp(kept, no_algorithm, sizeof kept) == 0)
        forget_plan(one);
}

static ebb_status choose_with(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                              uint32_t after, const ebb_cublas_beside *beside, chosen **state)
{
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    ebb_lt_problem problem;
    *state = NULL;
    if (declines_product(p, dtype) != NULL)
        return NULL;
    (void)read_problem(&problem, p, dtype);
    if (after != EBB_LT_NOTHING)
        problem.after = after;
    EBB_TRY(ebb_cublas_open(q));
    library *l = (library *)q->cublas;
    if (l->handle == NULL)
        return NULL;
    chosen *one = l->first;
    while (one != NULL && memcmp(&one->problem, &problem, sizeof problem) != 0)
        one = one->next;
    if (one == NULL) {
        one = (chosen *)ebb_alloc(sizeof *one);
        if (one == NULL)
            return ebb_error_memory();
        memset(one, 0, sizeof *one);
        one->problem = problem;
        one->next = l->first;
        l->first = one; // the queue's from here on, whatever comes
        EBB_TRY(make_plan(one, l));
    }
    if (one->plan != NULL && !one->raced && ebb_lt_plan_count(one->plan) > 1)
        race(one, c, p, beside);
    *state = one;
    return NULL;
}

static ebb_status choose(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                         const void **state)
{
    chosen *one = NULL;
    ebb_status status = choose_with(c, p, dtype, EBB_LT_NOTHING, NULL, &one);
    *state = one;
    return status;
}

ebb_status ebb_cublas_choose_sums(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                                  uint32_t after, void *sums, ebb_cublas_choice **one)
{
    const ebb_cublas_beside beside = {NULL, sums};
    return choose_with(c, p, dtype, after, &beside, one);
}

static const ebb_cuda_products products = {declines_product, bound_of, choose, run_product,
                                           ebb_cublas_group};
const ebb_cuda_products *ebb_cuda_products_by = &products;

/* ---- MatMul, FusedMatMul, Gemm, Einsum ---- */

static const char *declines(const ebb_call *c)
{
    ebb_cuda_product p;
    const char *why = ebb_cuda_product_misfit(c);
    if (why != NULL)
        return why;
    ebb_cuda_product_read(&p, c);
    return declines_product(&p, c->in[0].type.dtype);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_cuda_product p;
    ebb_cuda_product_read(&p, c);
    *bytes = bound_of(&p, c->in[0].type.dtype);
    return NULL;
}

void ebb_cublas_read(ebb_cuda_product *p, const ebb_call *c)
{
    ebb_cuda_product_read(p, c);
    p->y = c->out[0].data;
    p->a = c->in[0].data;
    p->b = c->in[1].data;
    p->c = p->has_c ? c->in[2].data : NULL;
    p->parts = c->workspace;
}

uint32_t ebb_cublas_align(const ebb_operand *o)
{
    const int64_t rows = o->type.rank > 0 ? o->type.dims[0] : 1;
    return ebb_cuda_align_of(o->data != NULL ? (uintptr_t)o->data
                             : rows > 0      ? o->bytes / (uint64_t)rows
                                             : 0);
}

static uint32_t align_of(const ebb_call *c)
{
    const ebb_operand *all[] = {&c->in[0], &c->in[1], &c->out[0]};
    uint32_t least = 256;
    for (int i = 0; i < 3; i++) {
        const uint32_t align = ebb_cublas_align(all[i]);
        least = align < least ? align : least;
    }
    return least;
}

static ebb_status prepare(ebb_call *c)
{
    ebb_cuda_product p;
    const void *state = NULL;
    ebb_cublas_read(&p, c);
    p.align = align_of(c);
    EBB_TRY(choose(c, &p, c->in[0].type.dtype, &state));
    c->state = (void *)(uintptr_t)state;
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_cuda_product p;
    ebb_cublas_read(&p, c);
    return run_product(c, &p, c->in[0].type.dtype, c->state);
}

// clang-format off
const ebb_kernel ebb_cuda_cublas[] = {
    {.name = "cuda.lt_matmul",       .op = EBB_OP_MATMUL,       .fits = declines, .workspace = workspace, .prepare = prepare, .run = run},
    {.name = "cuda.lt_fused_matmul", .op = EBB_OP_FUSED_MATMUL, .fits = declines, .workspace = workspace, .prepare = prepare, .run = run},
    {.name = "cuda.lt_gemm",         .op = EBB_OP_GEMM,         .fits = declines, .workspace = workspace, .prepare = prepare, .run = run},
    {.name = "cuda.lt_einsum",       .op = EBB_OP_EINSUM,       .fits = declines, .workspace = workspace, .prepare = prepare, .run = run},
};
// clang-format on
EBB_CUDA_COUNT(cublas)

#else

#include "kernels/cuda/product.h"

const ebb_cuda_products *ebb_cuda_products_by;

#endif
