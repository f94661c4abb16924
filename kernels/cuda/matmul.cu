/* matmul.cu: MatMul, FusedMatMul and Gemm by tiles of 64 x 64: any float type, any strides. It is
 * what is left where no library can be opened, and the oracle in double precision on the device.
 *
 *     a block of 256 threads       one step: 16 deep         a thread: 4 rows, 4 columns
 *     +-----------------+          a: [16][64 + 1]           x = 0  1 .. 15  0  1 ..
 *     | 64 x 64 of y    |          b: [16][64 + 1]
 *     +-----------------+
 */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/product.h"

enum { SIDE = 64, DEEP = 16, PITCH = SIDE + 1, PER = 4, WIDE = SIDE / PER, THREADS = WIDE * WIDE };

#define KERNELS "kernels/cuda/matmul_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel products[] = EBB_CUDA_FLOATS(product);
static const ebb_gpu_kernel sums[] = EBB_CUDA_FLOATS(add_parts);
static const ebb_gpu_kernel fills[] = EBB_CUDA_FLOATS(fill);

static uint32_t register_bytes(uint8_t dtype)
{
    return dtype == EBB_F64 ? sizeof(double) : sizeof(float);
}

static int64_t tiles_of(const ebb_cuda_product *p)
{
    return p->batches * ((p->m + SIDE - 1) / SIDE) * ((p->n + SIDE - 1) / SIDE);
}

int64_t ebb_cuda_product_jobs(const ebb_cuda_product *p)
{
    return tiles_of(p) * p->splits;
}

/* ---- sizes ---- */

void ebb_cuda_product_plain(ebb_cuda_product *p, int64_t m, int64_t n, int64_t k)
{
    memset(p, 0, sizeof *p);
    p->m = m;
    p->n = n;
    p->k = k;
    p->y_row = n;
    p->batches = p->splits = 1;
    p->each = k;
    p->alpha = p->beta = 1;
    p->align = 256;
}

void ebb_cuda_product_split(ebb_cuda_product *p)
{
    enum { BLOCKS = 128, LEAST = 256, MOST = 64 }; // about an SM each; k of a part; parts
    int64_t tiles = tiles_of(p), splits = tiles > 0 ? BLOCKS / tiles : 1;
    splits = splits < p->k / LEAST ? splits : p->k / LEAST;
    splits = splits < MOST ? splits : (int64_t)MOST;
    p->splits = splits > 1 ? splits : 1;
    p->each = (p->k + p->splits - 1) / p->splits;
    p->each = (p->each + DEEP - 1) / DEEP * DEEP;
}

/* [batch..., m, k] x [k, n] is one product of batch * m rows, where the rows of a follow each
 * other. */
static void fold_batches(ebb_cuda_product *p)
{
    const ebb_cuda_walk *w = &p->walk;
    if (w->rank != 1 || w->stride[0][0] != 1 || w->stride[1][0] != 0 || p->a_column != 1 ||
        p->a_row != p->k)
        return;
    p->m *= p->batches;
    p->batches = 1;
    memset(&p->walk, 0, sizeof p->walk);
}

static void read_batches(ebb_cuda_product *p, const ebb_call *c)
{
    ebb_type a = c->in[0].type, b = c->in[1].type, y = c->out[0].type;
    const ebb_type *in[2] = {&a, &b};
    y.rank = (int8_t)(y.rank - (a.rank > 1) - (b.rank > 1));
    a.rank = (int8_t)(a.rank > 2 ? a.rank - 2 : 0);
    b.rank = (int8_t)(b.rank > 2 ? b.rank - 2 : 0);
    p->batches = ebb_elements(&y);
    ebb_cuda_walk_make(&p->walk, &y, in, 2);
    fold_batches(p);
}

/* The matrices are the last two axes; a vector is a row on the left and a column on the right. */
void ebb_cuda_product_read(ebb_cuda_product *p, const ebb_call *c)
{
    if (c->op == EBB_OP_EINSUM) {
        (void)ebb_cuda_product_of_einsum(p, c); // ebb_cuda_product_misfit() has seen it
        return;
    }
    const ebb_type *a = &c->in[0].type, *b = &c->in[1].type;
    const bool turn_a = ebb_attr_int(&c->attrs, "transA", 0) != 0 && a->rank > 1;
    const bool turn_b = ebb_attr_int(&c->attrs, "transB", 0) != 0 && b->rank > 1;
    const int64_t a_rows = a->rank > 1 ? a->dims[a->rank - 2] : 1, a_columns = a->dims[a->rank - 1];
    const int64_t b_rows = b->rank > 1 ? b->dims[b->rank - 2] : b->dims[0];
    const int64_t b_columns = b->rank > 1 ? b->dims[b->rank - 1] : 1;
    ebb_cuda_product_plain(p, turn_a ? a_columns : a_rows, turn_b ? b_rows : b_columns,
                           turn_a ? a_rows : a_columns);
    p->a_row = turn_a ? 1 : a_columns;
    p->a_column = turn_a ? a_columns : 1;
    p->b_row = turn_b ? 1 : b_columns;
    p->b_column = turn_b ? b_columns : 1;
    p->a_matrix = p->m * p->k;
    p->b_matrix = p->k * p->n;
    if (c->op != EBB_OP_MATMUL)
        p->alpha = ebb_attr_float(&c->attrs, "alpha", 1.0);
    if (c->op == EBB_OP_GEMM && ebb_call_has(c, 2)) {
        const ebb_type *t = &c->in[2].type;
        const int64_t columns = t->rank > 0 ? t->dims[t->rank - 1] : 1;
        p->c_row = t->rank > 1 && t->dims[0] != 1 ? columns : 0;
        p->c_column = columns != 1 ? 1 : 0;
        p->beta = ebb_attr_float(&c->attrs, "beta", 1.0);
        p->has_c = p->beta != 0;
    }
    read_batches(p, c);
    ebb_cuda_product_split(p);
}

size_t ebb_cuda_product_bytes(const ebb_cuda_product *p, uint8_t dtype)
{
    return p->splits < 2 ? 0 // small: there are few tiles
                         : (size_t)(p->splits * p->batches * p->m * p->n) * register_bytes(dtype);
}

/* ---- launches ---- */

ebb_status ebb_cuda_product_run(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype)
{
    const int row = ebb_cuda_float_row(dtype);
    const uint32_t shared = 2 * DEEP * PITCH * register_bytes(dtype);
    EBB_TRY(EBB_LAUNCH(c, products[row], ebb_cuda_blocks(ebb_cuda_product_jobs(p)), THREADS, shared,
                       *p));
    return ebb_cuda_product_sum(c, p, dtype);
}

ebb_status ebb_cuda_product_sum(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype)
{
    if (p->splits < 2)
        return NULL;
    return EBB_LAUNCH(c, sums[ebb_cuda_float_row(dtype)], ebb_cuda_grid(p->batches * p->m * p->n),
                      EBB_CUDA_BLOCK, 0, *p);
}

ebb_status ebb_cuda_product_fill(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype)
{
    return EBB_LAUNCH(c, fills[ebb_cuda_float_row(dtype)], ebb_cuda_grid(p->m * p->n),
                      EBB_CUDA_BLOCK, 0, *p);
}

/* ---- kernels ---- */

const char *ebb_cuda_product_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_cuda_floats(c));
    ebb_cuda_product p;
    if (c->op == EBB_OP_EINSUM)
        return ebb_cuda_product_of_einsum(&p, c);
    if (c->input_count < 2 || c->in[0].type.rank < 1 || c->in[1].type.rank < 1)
        return "its operands are no matrices";
    if (c->op == EBB_OP_FUSED_MATMUL && (ebb_attr_int(&c->attrs, "transBatchA", 0) != 0 ||
                                         ebb_attr_int(&c->attrs, "transBatchB", 0) != 0))
        return "pass inline makes transposes of transBatchA and transBatchB";
    if (c->op == EBB_OP_GEMM && (c->in[0].type.rank != 2 || c->in[1].type.rank != 2 ||
                                 (ebb_call_has(c, 2) && c->in[2].type.rank > 2)))
        return "its operands are no matrices";
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_cuda_product p;
    ebb_cuda_product_read(&p, c);
    *bytes = ebb_cuda_product_bytes(&p, c->in[0].type.dtype);
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_cuda_product p;
    ebb_cuda_product_read(&p, c);
    p.y = c->out[0].data;
    p.a = c->in[0].data;
    p.b = c->in[1].data;
    p.c = c->op == EBB_OP_GEMM && ebb_call_has(c, 2) ? c->in[2].data : NULL;
    p.parts = c->workspace;
    return ebb_cuda_product_run(c, &p, c->in[0].type.dtype);
}

// clang-format off
const ebb_kernel ebb_cuda_matmul[] = {
    {.name = "cuda.matmul",       .op = EBB_OP_MATMUL,       .fits = ebb_cuda_product_misfit, .workspace = workspace, .run = run},
    {.name = "cuda.fused_matmul", .op = EBB_OP_FUSED_MATMUL, .fits = ebb_cuda_product_misfit, .workspace = workspace, .run = run},
    {.name = "cuda.gemm",         .op = EBB_OP_GEMM,         .fits = ebb_cuda_product_misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_CUDA_COUNT(matmul)
