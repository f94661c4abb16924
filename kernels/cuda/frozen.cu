/* frozen.cu: products with a matrix in few bits, by the tiles of matmul.cu; rows of a table in few bits;
 * products whose rows have an expert each.
 *
 *     a thread, of each piece:   [ c3 c2 c1 c0 ]   four codes in a row
 *                                       |          level, zero point, scale
 *     shared                     [16][64 + 1]      floats, for 64 rows of A
 *
 * A piece is decoded again by each block that reads it: no float of the matrix lies in memory. Forward a
 * column of the product is a row of codes; back a row of codes goes across columns.
 *
 * Where rows have experts a block takes rows of one expert after the other, which are neighbours: the graph
 * has them sorted. Of the gradient of an expert it passes by pieces that have none of its rows.
 */
#include "kernels/call/linear_codes.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/move.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/small.h"
#include "kernels/math/codes.h"

enum { SIDE = 64, DEEP = 16, PITCH = SIDE + 1, PER = 4, WIDE = SIDE / PER, THREADS = WIDE * WIDE };
enum { RUN = SIDE * DEEP / THREADS, LEVELS = 256 };

typedef struct row_experts {
    const int64_t *of; /* of each row; NULL: one matrix for all */
    int64_t rows, count;
    ebb_cuda_step *step; /* for faults, as position is */
    uint32_t position;
} row_experts;

typedef struct frozen_args {
    ebb_cuda_product p;  /* without b */
    const void *weights; /* floats, in place of codes; NULL: there are codes */
    ebb_frozen of;
    const uint8_t *codes, *zeros;
    const void *scales, *levels; /* levels NULL: dtype says what codes stand for */
    uint8_t scale_dtype, zero_dtype, level_dtype, dtype;
    row_experts experts;
} frozen_args;

typedef struct grad_args {
    void *dw;           /* [experts, n, k] */
    const void *dy, *a; /* [rows, n]; [rows, k] */
    int64_t n, k;
    row_experts experts;
} grad_args;

typedef struct table_args {
    void *y;
    const void *table, *scales, *zeros;
    ebb_frozen_table t;
    ebb_span s;
    int64_t picked; /* rows of each of s.outer */
    ebb_cuda_indices index;
    uint8_t dtype; /* of scales and y */
} table_args;

/* Of a dtype's code, as a number. */
EBB_GPU_INLINE double level_of(uint8_t dtype, uint32_t bits, uint32_t code)
{
    const uint32_t half = 1u << (bits - 1);
    if (dtype == EBB_I8 || dtype == EBB_I4 || dtype == EBB_I2)
        return (double)(int32_t)(code ^ half) - (double)half;
    return dtype == EBB_U8 || dtype == EBB_U4 || dtype == EBB_U2 ? (double)code
                                                                 : ebb_of_small(dtype, code);
}

/* The expert of `row`, and the first row before `end` that is not of it as well. */
EBB_GPU_INLINE int64_t expert_at(const row_experts *e, int64_t row, int64_t end, int64_t *next)
{
    *next = end;
    if (e->of == NULL)
        return 0;
    for (*next = row + 1; *next < end && e->of[*next] == e->of[row];)
        ++*next;
    return e->of[row];
}

/* Tells of a row whose expert is none. */
EBB_GPU_INLINE void check_experts(const row_experts *e)
{
    EBB_GRID_LOOP(r, e->of == NULL ? 0 : e->rows)
    (void)ebb_cuda_inside(e->step, e->position, e->of[r], 0, e->count);
}

/* Is one of DEEP rows the expert's? */
EBB_GPU_INLINE bool any_of(const row_experts *e, int64_t expert, int64_t row)
{
    for (int64_t r = row; r < row + DEEP && r < e->rows; r++)
        if (e->of[r] == expert)
            return true;
    return false;
}

#define KERNELS "kernels/cuda/frozen_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel products[] = EBB_CUDA_FLOATS(frozen_product);
static const ebb_gpu_kernel grads[] = EBB_CUDA_FLOATS(experts_grad);

/* ---- products ---- */

static uint32_t shared_bytes(uint8_t dtype, uint32_t levels)
{
    const uint32_t each = dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    return (2 * DEEP * PITCH + levels) * each;
}

static row_experts experts_of(const ebb_call *c, uint32_t input, int64_t rows, int64_t count)
{
    const row_experts e = {(const int64_t *)c->in[input].data, rows, count,
                           ebb_cuda_queue_of(c)->step, c->position};
    return e;
}

/* A and the product are dense. */
static void read_sizes(ebb_cuda_product *p, int64_t rows, int64_t columns, int64_t inner)
{
    ebb_cuda_product_plain(p, rows, columns, inner);
    p->a_row = inner;
    p->a_column = 1;
    ebb_cuda_product_split(p);
}

static void read_product(frozen_args *a, const ebb_call *c)
{
    memset(a, 0, sizeof *a);
    if (c->op == EBB_OP_EXPERTS_MATMUL) {
        ebb_experts e;
        (void)ebb_experts_read(&e, c); // `fits` has seen it
        a->of.n = e.n;
        a->of.k = e.k;
        a->of.turned = e.turned;
        a->of.matrices = e.experts;
    } else {
        ebb_frozen_of(&a->of, c);
    }
    const int64_t inner = ebb_frozen_inner(&a->of);
    read_sizes(&a->p, ebb_elements(&c->in[0].type) / inner, ebb_frozen_columns(&a->of), inner);
}

static void read_codes(frozen_args *a, const ebb_call *c)
{
    const bool has_zeros = a->of.zero != EBB_ZERO_NONE, has_levels = a->of.dtype == EBB_NONE;
    a->codes = (const uint8_t *)c->in[EBB_FROZEN_CODES].data;
    a->scales = c->in[EBB_FROZEN_SCALES].data;
    a->zeros = has_zeros ? (const uint8_t *)c->in[EBB_FROZEN_ZEROS].data : NULL;
    a->levels = has_levels ? c->in[EBB_FROZEN_LEVELS].data : NULL;
    a->scale_dtype = c->in[EBB_FROZEN_SCALES].type.dtype;
    a->zero_dtype = has_zeros ? c->in[EBB_FROZEN_ZEROS].type.dtype : (uint8_t)EBB_NONE;
    a->level_dtype = has_levels ? c->in[EBB_FROZEN_LEVELS].type.dtype : (uint8_t)EBB_NONE;
    a->dtype = (uint8_t)a->of.dtype;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    frozen_args a;
    read_product(&a, c);
    *bytes = ebb_cuda_product_bytes(&a.p, c->in[0].type.dtype);
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    const uint8_t dtype = c->in[0].type.dtype;
    frozen_args a;
    read_product(&a, c);
    if (c->op == EBB_OP_EXPERTS_MATMUL)
        a.weights = c->in[1].data;
    else
        read_codes(&a, c);
    if (c->op == EBB_OP_EXPERTS_MATMUL || c->op == EBB_OP_EXPERTS_MATMUL_CODES)
        a.experts =
            experts_of(c, c->op == EBB_OP_EXPERTS_MATMUL ? 2 : EBB_FROZEN_OF, a.p.m, a.of.matrices);
    a.p.y = c->out[0].data;
    a.p.a = c->in[0].data;
    a.p.parts = c->workspace;
    EBB_TRY(EBB_LAUNCH(c, products[ebb_cuda_float_row(dtype)],
                       ebb_cuda_blocks(ebb_cuda_product_jobs(&a.p)), THREADS,
                       shared_bytes(dtype, LEVELS), a));
    return ebb_cuda_product_sum(c, &a.p, dtype);
}

/* (A, dY, of) -> dW. */
static ebb_status run_grad(const ebb_call *c)
{
    const uint8_t dtype = c->in[0].type.dtype;
    ebb_experts e;
    grad_args a;
    memset(&a, 0, sizeof a);
    EBB_MUST_FIT(c, ebb_experts_read(&e, c));
    a.dw = c->out[0].data;
    a.a = c->in[0].data;
    a.dy = c->in[1].data;
    a.n = e.n;
    a.k = e.k;
    a.experts = experts_of(c, 2, e.rows, e.experts);
    const int64_t tiles = (e.n + SIDE - 1) / SIDE * ((e.k + SIDE - 1) / SIDE);
    return EBB_LAUNCH(c, grads[ebb_cuda_float_row(dtype)], ebb_cuda_blocks(e.experts * tiles),
                      THREADS, shared_bytes(dtype, 0), a);
}

static const char *dtypes(const ebb_call *c)
{
    const uint8_t a = c->in[0].type.dtype;
    return ebb_dtype_is_float((ebb_dtype)a) && c->out[0].type.dtype == a
               ? NULL
               : "multiplies float16, bfloat16, float32 and float64 only";
}

static const char *misfit_experts(const ebb_call *c)
{
    ebb_experts e;
    EBB_ASK(ebb_cuda_floats(c));
    return ebb_experts_read(&e, c);
}

/* ---- rows of a table ---- */

EBB_GPU_INLINE double table_at(const table_args *a, int64_t i)
{
    const ebb_frozen_table *t = &a->t;
    const bool bytes = t->dtype == EBB_U8;
    const int64_t line = i / t->behind, row = line / t->along;
    const int64_t place = (line - row * t->along) / t->block;
    const int64_t block = (row * t->blocks + place) * t->behind + i % t->behind;
    const double level = bytes ? (double)ebb_code_get((const uint8_t *)a->table, t->bits, i)
                               : ebb_load_number(a->table, i, (uint8_t)t->dtype);
    double zero = bytes ? (double)(1u << (t->bits - 1)) : 0.0;
    if (a->zeros != NULL)
        zero = t->packed ? (double)ebb_code_get((const uint8_t *)a->zeros, t->bits,
                                                row * t->zero_row + place)
                         : ebb_load_number(a->zeros, block, (uint8_t)t->dtype);
    return (level - zero) * ebb_load_real(a->scales, block, a->dtype);
}

/* A thread an element. */
EBB_GLOBAL(gather_codes, table_args)
{
    EBB_GRID_LOOP(i, a.s.outer * a.picked * a.s.inner)
    {
        const int64_t row = ebb_cuda_quotient(i, a.s.inner);
        const int64_t outer = ebb_cuda_quotient(row, a.picked);
        const int64_t at = ebb_cuda_index(&a.index, row - outer * a.picked, a.s.n);
        if (at >= 0)
            ebb_store_real(a.y, i, a.dtype,
                           table_at(&a, (outer * a.s.n + at) * a.s.inner + i - row * a.s.inner));
    }
}

/* (table, indices, scales, zeros?) -> rows of the table. */
static ebb_status run_gather(const ebb_call *c)
{
    table_args a;
    memset(&a, 0, sizeof a);
    EBB_MUST_FIT(c, ebb_frozen_table_of(&a.t, c));
    a.y = c->out[0].data;
    a.table = c->in[0].data;
    a.index = ebb_cuda_indices_of(c, 1);
    a.scales = c->in[2].data;
    a.zeros = ebb_call_has(c, 3) ? c->in[3].data : NULL;
    a.s = ebb_span_of(&a.t.whole, a.t.gather);
    a.picked = ebb_elements(&c->in[1].type);
    a.dtype = c->out[0].type.dtype;
    return EBB_LAUNCH(c, gather_codes, ebb_cuda_grid(a.s.outer * a.picked * a.s.inner),
                      EBB_CUDA_BLOCK, 0, a);
}

static const char *misfit_table(const ebb_call *c)
{
    ebb_frozen_table t;
    return ebb_frozen_table_of(&t, c);
}

// clang-format off
const ebb_kernel ebb_cuda_frozen[] = {
    {.name = "cuda.matmul_codes",           .op = EBB_OP_MATMUL_CODES,           .dtypes = dtypes, .fits = ebb_frozen_misfit, .workspace = workspace, .run = run},
    {.name = "cuda.matmul_dequantized",     .op = EBB_OP_MATMUL_DEQUANTIZED,     .dtypes = dtypes, .fits = ebb_frozen_misfit, .workspace = workspace, .run = run},
    {.name = "cuda.experts_matmul_codes",   .op = EBB_OP_EXPERTS_MATMUL_CODES,   .dtypes = dtypes, .fits = ebb_frozen_misfit, .workspace = workspace, .run = run},
    {.name = "cuda.experts_matmul",         .op = EBB_OP_EXPERTS_MATMUL,         .fits = misfit_experts, .workspace = workspace, .run = run},
    {.name = "cuda.experts_matmul_grad",    .op = EBB_OP_EXPERTS_MATMUL_GRAD,    .fits = misfit_experts, .run = run_grad},
    {.name = "cuda.gather_block_quantized", .op = EBB_OP_GATHER_BLOCK_QUANTIZED, .fits = misfit_table, .run = run_gather},
};
// clang-format on
EBB_CUDA_COUNT(frozen)
