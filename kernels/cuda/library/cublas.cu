/* cublas.cu: products by cuBLASLt: MatMul, FusedMatMul and Gemm, before those of our own, and what
 * has products inside (product.h). For the GPU alone: the host's build has no such library, and no
 * list of kernels names these there.
 *
 *     choose:  problem -> the library's first algorithm for it, kept by the queue
 *     run:     (c spread over y) -> one call
 *
 * Float32 is float32, unless ebb_cuda_tf32. Where the library has no algorithm, or cannot use the
 * device, the product is our own: workspace serves both. A bias is added on the way out. What else the
 * library can do there (ReLU, its bits and gradient, the sums for a bias's gradient) is not asked of
 * it: nobody documents its NaN, its -0, its bits' order or its sums' order.
 */
#if defined(EBB_CUBLASLT)

#include "kernels/cuda/library/lt.h"
#include "kernels/cuda/product.h"
#include "onnx/words/arena.h"

typedef struct chosen { /* one a problem; kept by the queue */
    struct chosen *next;
    ebb_lt_problem problem;
    ebb_lt_plan *plan; /* NULL: there is no algorithm */
} chosen;

typedef struct library { /* ebb_cuda_queue.cublas */
    void *handle;        /* NULL: it cannot use the device, products are our own */
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

/* Makes q->cublas, once. */
static ebb_status open_library(ebb_cuda_queue *q)
{
    if (q->cublas != NULL)
        return NULL;
    library *l = (library *)ebb_alloc(sizeof *l);
    EBB_GOT(l);
    memset(l, 0, sizeof *l);
    (void)ebb_lt_handle_new(&l->handle); // `ebb devices` says why there is none
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
static size_t most_workspace(const ebb_cuda_product *p, uint8_t dtype)
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
    problem->workspace_bytes = most_workspace(p, dtype);
    problem->dtype = dtype;
    problem->align = p->align;
    problem->bias = third_of(p, dtype) == EPILOGUE;
    problem->tf32 = ebb_cuda_tf32 && dtype == EBB_F32;
    problem->wide = p->wide_y && is_narrow(dtype);
    if (is_narrow(dtype) && third_of(p, dtype) == WHOLE && p->wide_c != p->wide_y)
        return "what is added is of another type than the product";
    return ebb_lt_map_read(&problem->map, p);
}

static const char *declines_product(const ebb_cuda_product *p, uint8_t dtype)
{
    ebb_lt_problem problem;
    EBB_ASK(read_problem(&problem, p, dtype));
    return ebb_lt_open() == NULL ? NULL
                                 : "cuBLASLt 13 cannot be opened (EBB_CUBLASLT names its file)";
}

/* ---- running one ---- */

static ebb_status run_product(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                              const void *state)
{
    const ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    const chosen *one = (const chosen *)state;
    ebb_lt_operands o;
    if (one == NULL || one->plan == NULL)
        return ebb_cuda_product_run(c, p, dtype);
    // the caller may have nothing to add this time, though it has at others
    third how = third_of(p, dtype);
    if (p->c == NULL && how != EPILOGUE)
        how = ABSENT;
    memset(&o, 0, sizeof o);
    o.a = p->a;
    o.b = p->b;
    o.y = p->y;
    o.alpha = p->alpha;
    o.beta = how == WHOLE || how == SPREAD ? p->beta : 0;
    o.c = how == WHOLE ? p->c : p->y;
    o.bias = how == EPILOGUE ? (void *)(uintptr_t)p->c : NULL;
    o.workspace = p->parts;
    if (how == SPREAD)
        EBB_TRY(ebb_cuda_product_fill(c, p, dtype));
    return ebb_lt_plan_run(one->plan, ((const library *)q->cublas)->handle, &o, q->stream);
}

/* ---- the choice of an algorithm ---- */

static ebb_status make_plan(chosen *one, const library *l)
{
    EBB_TRY(ebb_lt_plan_new(&one->plan, &one->problem));
    if (ebb_lt_plan_find(one->plan, l->handle) != NULL) {
        ebb_lt_plan_free(one->plan);
        one->plan = NULL; // our own, then
    }
    return NULL;
}

static ebb_status choose(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                         const void **state)
{
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    ebb_lt_problem problem;
    *state = NULL;
    if (declines_product(p, dtype) != NULL)
        return NULL;
    (void)read_problem(&problem, p, dtype);
    EBB_TRY(open_library(q));
    library *l = (library *)q->cublas;
    if (l->handle == NULL)
        return NULL;
    chosen *one = l->first;
    while (one != NULL && memcmp(&one->problem, &problem, sizeof problem) != 0)
        one = one->next;
    if (one == NULL) {
        one = (chosen *)ebb_alloc(sizeof *one);
        EBB_GOT(one);
        memset(one, 0, sizeof *one);
        one->problem = problem;
        one->next = l->first;
        l->first = one; // the queue's from here on, whatever comes
        EBB_TRY(make_plan(one, l));
    }
    *state = one;
    return NULL;
}

static const ebb_cuda_products products = {declines_product, most_workspace, choose, run_product};
const ebb_cuda_products *ebb_cuda_products_by = &products;

/* ---- MatMul, FusedMatMul, Gemm, Einsum ---- */

static const char *declines(const ebb_call *c)
{
    ebb_cuda_product p;
    EBB_ASK(ebb_cuda_product_misfit(c));
    ebb_cuda_product_read(&p, c);
    return declines_product(&p, c->in[0].type.dtype);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_cuda_product p;
    ebb_cuda_product_read(&p, c);
    *bytes = most_workspace(&p, c->in[0].type.dtype);
    return NULL;
}

static void read_call(ebb_cuda_product *p, const ebb_call *c)
{
    ebb_cuda_product_read(p, c);
    p->y = c->out[0].data;
    p->a = c->in[0].data;
    p->b = c->in[1].data;
    p->c = p->has_c ? c->in[2].data : NULL;
    p->parts = c->workspace;
}

/* Where it begins: at a multiple of so many bytes. A tile's operands lie where its rows begin
 * (kernels/nested/stream.c), and are not known yet. */
static uint32_t alignment(const ebb_operand *o)
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
        const uint32_t align = alignment(all[i]);
        least = align < least ? align : least;
    }
    return least;
}

static ebb_status prepare(ebb_call *c)
{
    ebb_cuda_product p;
    const void *state = NULL;
    read_call(&p, c);
    p.align = align_of(c);
    EBB_TRY(choose(c, &p, c->in[0].type.dtype, &state));
    c->state = (void *)(uintptr_t)state;
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_cuda_product p;
    read_call(&p, c);
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
