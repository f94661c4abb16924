/* cublas_sums.cu: LinearGrad by cuBLASLt, which sums one side of a product while it multiplies.
 *
 *     P, sum_A = LinearGrad(A, B)        P [M, N] = A' B, sum_A [M]
 *
 *     in rows      y [M, N] = a [M, T] b [T, N], a: A turned     sums of a over T
 *     in columns   y' [N, M] = b' [N, T] a' [T, M]               BGRADB: of the library's second side
 *
 * and with sum_B in the place of sum_A: BGRADA, of its first. The library's order of sums is its own,
 * which is why this is a node (passes/speed/linear_grad.c) and no joining of two calls.
 *
 * Its kernels for the sums are not always worth it, so where it has them they race once against one
 * call after the other, a product of the library's and a sum of our own; the outcome is kept with the
 * choices of algorithms, since the two round differently. What cannot be kept is done at once. Where
 * the library has no algorithm with sums the calls are made one after the other. Sums of both sides,
 * and those of float64, it is never asked for: then LinearGrad is its parts (kernels/nested/compose.c).
 */
#include "kernels/cuda/library/cublas.h"

#if defined(EBB_CUBLASLT)

#include "kernels/cuda/library/choose.h"
#include "kernels/cuda/product.h"
#include "onnx/words/arena.h"

static const int64_t all_rows[1] = {0};

typedef struct two_calls { /* as calls of their own */
    ebb_call product, sum;
    ebb_operand in[2], out[2]; /* out: the product, the sums */
    ebb_attr turned[1], over_rows[2];
    uint32_t after;
} two_calls;

typedef struct state_of {
    void *chosen;              /* the product's state */
    ebb_cublas_choice *joined; /* NULL or without a plan: one call after the other */
} state_of;

static const ebb_kernel *kernel_that_has(const ebb_kernel *list, size_t count, ebb_op op)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].op == op)
            return &list[i];
    return NULL;
}

static void name_attribute(ebb_attr *a, const char *name, ebb_attr_type type)
{
    memset(a, 0, sizeof *a);
    a->name = name;
    a->type = type;
}

static void read_both(two_calls *k, const ebb_call *c)
{
    const uint32_t slot = ebb_call_wants(c, 1) ? 0 : 1;
    k->after = slot == 0 ? EBB_LT_SUM_A : EBB_LT_SUM_B;
    for (int i = 0; i < 2; i++)
        k->in[i] = c->in[i];
    k->out[0] = c->out[0];
    k->out[1] = c->out[1 + slot];
    name_attribute(&k->turned[0], "transA", EBB_ATTR_INT);
    k->turned[0].i = 1;
    name_attribute(&k->over_rows[0], "axes", EBB_ATTR_INTS);
    k->over_rows[0].ints = all_rows;
    k->over_rows[0].count = 1;
    name_attribute(&k->over_rows[1], "keepdims", EBB_ATTR_INT);
    k->product = k->sum = *c;
    k->product.op = EBB_OP_GEMM;
    k->product.attrs.list = k->turned;
    k->product.attrs.count = 1;
    k->product.in = k->in;
    k->product.input_count = 2;
    k->product.out = &k->out[0];
    k->product.kernel = kernel_that_has(ebb_cuda_cublas, ebb_cuda_cublas_count, EBB_OP_GEMM);
    k->sum.op = EBB_OP_REDUCE_SUM;
    k->sum.attrs.list = k->over_rows;
    k->sum.attrs.count = 2;
    k->sum.in = &k->in[slot];
    k->sum.out = &k->out[1];
    k->sum.kernel = kernel_that_has(ebb_cuda_reduce, ebb_cuda_reduce_count, EBB_OP_REDUCE_SUM);
    k->sum.input_count = k->product.output_count = k->sum.output_count = 1;
    k->sum.version = 1; // axes as an attribute
    k->product.state = k->sum.state = NULL;
}

static const char *declines_sums(const ebb_call *c)
{
    two_calls k;
    if (c->input_count != 2 || !ebb_call_wants(c, 0) ||
        ebb_call_wants(c, 1) == ebb_call_wants(c, 2))
        return "the library sums one side of a product, and it is asked for none or both";
    if (c->in[0].type.dtype == EBB_F64)
        return "the library sums nothing beside products of float64";
    read_both(&k, c);
    const char *why = ebb_kernel_declines(k.product.kernel, &k.product);
    return why != NULL ? why : ebb_kernel_declines(k.sum.kernel, &k.sum);
}

/* That of the product serves both ways. */
static ebb_status workspace_of_sums(const ebb_call *c, size_t *bytes)
{
    two_calls k;
    size_t alone = 0;
    read_both(&k, c);
    EBB_TRY(k.product.kernel->workspace(&k.product, bytes));
    EBB_TRY(k.sum.kernel->workspace(&k.sum, &alone));
    *bytes = alone > *bytes ? alone : *bytes;
    return NULL;
}

/* ---- both ways ---- */

static ebb_status run_apart(const two_calls *k)
{
    EBB_TRY(k->product.kernel->run(&k->product));
    return k->sum.kernel->run(&k->sum);
}

static ebb_status run_beside(const two_calls *k, const ebb_cublas_choice *one)
{
    ebb_cuda_product p;
    const ebb_cublas_beside beside = {NULL, k->out[1].data};
    ebb_cublas_read(&p, &k->product);
    return ebb_cublas_run(&k->product, &p, k->in[0].type.dtype, one->plan, one->algorithm, &beside);
}

static ebb_status run_sums(const ebb_call *c)
{
    two_calls k;
    const state_of *s = (const state_of *)c->state;
    read_both(&k, c);
    k.product.state = s->chosen;
    return s->joined != NULL && s->joined->plan != NULL ? run_beside(&k, s->joined) : run_apart(&k);
}

/* ---- the choice ---- */

typedef struct duel {
    const two_calls *k;
    const ebb_cublas_choice *one;
    void *marks[2];
} duel;

static ebb_status time_way(void *context, int candidate, int64_t *ns)
{
    duel *w = (duel *)context;
    void *stream = ebb_cuda_queue_of(&w->k->product)->stream;
    EBB_TRY(ebb_gpu_mark(stream, &w->marks[0]));
    EBB_TRY(candidate == 0 ? run_beside(w->k, w->one) : run_apart(w->k));
    EBB_TRY(ebb_gpu_mark(stream, &w->marks[1]));
    EBB_TRY(ebb_gpu_wait(stream));
    *ns = ebb_gpu_between(w->marks[0], w->marks[1]);
    return NULL;
}

static bool has_pointers(const two_calls *k)
{
    return k->in[0].data != NULL && k->in[1].data != NULL && k->out[0].data != NULL &&
           k->out[1].data != NULL &&
           (k->product.workspace != NULL || k->product.workspace_bytes == 0);
}

static void compare_ways(const two_calls *k, ebb_cublas_choice *one)
{
    duel w = {k, one, {NULL, NULL}};
    one->compared = true;
    const int winner = ebb_choose(2, time_way, &w);
    for (int i = 0; i < 2; i++)
        ebb_gpu_unmark(w.marks[i]);
    if (winner == 1)
        ebb_cublas_keep_apart(&k->product, one);
}

static ebb_status prepare_sums(ebb_call *c)
{
    two_calls k;
    ebb_cuda_product p;
    state_of *s = (state_of *)ebb_alloc(sizeof *s);
    if (s == NULL)
        return ebb_error_memory();
    memset(s, 0, sizeof *s);
    c->state = s;
    read_both(&k, c);
    EBB_TRY(k.product.kernel->prepare(&k.product));
    s->chosen = k.product.state; // the queue's
    ebb_cublas_read(&p, &k.product);
    p.align = 256;
    const ebb_operand *all[] = {&k.in[0], &k.in[1], &k.out[0], &k.out[1]};
    for (int i = 0; i < 4; i++)
        p.align = ebb_cublas_align(all[i]) < p.align ? ebb_cublas_align(all[i]) : p.align;
    EBB_TRY(ebb_cublas_choose_sums(&k.product, &p, c->in[0].type.dtype, k.after, k.out[1].data,
                                   &s->joined));
    if (s->joined != NULL && s->joined->plan != NULL && !s->joined->compared && has_pointers(&k))
        compare_ways(&k, s->joined);
    return NULL;
}

static void release_sums(ebb_call *c)
{
    ebb_free(c->state);
    c->state = NULL;
}

// clang-format off
const ebb_kernel ebb_cuda_cublas_sums[] = {
    {.name = "cuda.lt_linear_grad", .op = EBB_OP_LINEAR_GRAD, .fits = declines_sums, .workspace = workspace_of_sums, .prepare = prepare_sums, .run = run_sums, .release = release_sums},
};
// clang-format on
EBB_CUDA_COUNT(cublas_sums)

#endif
