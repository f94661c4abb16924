/* linear_loss.cu: LinearCrossEntropy: a linear layer, softmax cross-entropy and the gradients of
 * both, by blocks of rows.
 *
 *     workspace:  | facts | loss of each row [block] | parts of products | scores [block, C] |
 *
 *     for each block of rows:  scores = alpha x w + bias
 *                              scores -> their gradient, in place; losses
 *                              dbias += its columns;  dw += its product with x;  dx = that with w
 *
 * Scores and their gradient are kept in the operands' dtype, in 16 bits rounded each, as a layer
 * and its loss would have them. What is summed over rows is float32 beside 16 bits, and so are
 * bias and weights. What the mean divides by is counted first. Products are a library's where
 * there is one (product.h).
 */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/product.h"
#include "onnx/words/arena.h"
#include "kernels/call/linear_loss.h"

typedef struct loss_facts { /* made on the device */
    double divisor, loss;
} loss_facts;

typedef struct loss_args {
    int64_t rows, inner, classes, block;
    int64_t first, count; /* rows of this block */
    bool turned, mean, ignores, wide, has_bias;
    int64_t ignored;
    double alpha;
    const void *x, *w, *bias, *labels, *weights; /* bias, weights: NULL where absent */
    void *loss, *dx, *dw, *dbias;                /* NULL where nobody wants them */
    void *scores, *parts;
    double *each;
    loss_facts *facts;
    ebb_cuda_step *step;
    uint32_t position;
} loss_args;

EBB_GPU_INLINE int64_t label_at(const loss_args *a, int64_t i)
{
    return a->wide ? ((const int64_t *)a->labels)[i] : (int64_t)((const int32_t *)a->labels)[i];
}

/* Every thread of the block gets the sum; part: a double a thread. */
EBB_GPU_INLINE double block_sum(double *part, double v)
{
    part[EBB_THREAD] = v;
    ebb_barrier();
    for (uint32_t half = EBB_THREADS / 2; half > 0; half /= 2) {
        if (EBB_THREAD < half)
            part[EBB_THREAD] += part[EBB_THREAD + half];
        ebb_barrier();
    }
    v = part[0];
    ebb_barrier();
    return v;
}

EBB_GPU_INLINE double block_max(double *part, double v)
{
    part[EBB_THREAD] = v;
    ebb_barrier();
    for (uint32_t half = EBB_THREADS / 2; half > 0; half /= 2) {
        if (EBB_THREAD < half && part[EBB_THREAD + half] > part[EBB_THREAD])
            part[EBB_THREAD] = part[EBB_THREAD + half];
        ebb_barrier();
    }
    v = part[0];
    ebb_barrier();
    return v;
}

#define KERNELS "kernels/cuda/linear_loss_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel divisors[] = EBB_CUDA_FLOATS(find_divisor);
static const ebb_gpu_kernel gradients[] = EBB_CUDA_FLOATS(to_gradient);
static const ebb_gpu_kernel columns[] = EBB_CUDA_FLOATS(add_columns);
static const ebb_gpu_kernel losses[] = EBB_CUDA_FLOATS(add_losses);

enum { X, W, BIAS, TARGET, WEIGHTS };
enum { LOSS, DX, DW, DBIAS };

/* ---- sizes ---- */

static void read_sizes(const ebb_call *c, loss_args *a)
{
    const ebb_linear_sizes s = ebb_linear_loss_read(c);
    memset(a, 0, sizeof *a);
    a->rows = s.rows;
    a->inner = s.inner;
    a->classes = s.classes;
    a->block = s.block;
    a->turned = s.turned;
    a->mean = s.mean;
    a->alpha = s.alpha;
    a->has_bias = ebb_call_has(c, BIAS);
    const ebb_attr *ignored = ebb_attr_find(&c->attrs, "ignore_index");
    a->ignores = ignored != NULL && ignored->type == EBB_ATTR_INT;
    a->ignored = a->ignores ? ignored->i : 0;
}

/* x, w and dx are of one float dtype; the others of the registers'. */
static const char *dtypes_of_loss(const ebb_call *c)
{
    const uint8_t dtype = c->in[X].type.dtype, sums = dtype == EBB_F64 ? EBB_F64 : EBB_F32;
    if (!ebb_dtype_is_float((ebb_dtype)dtype) || !ebb_call_has(c, W) ||
        c->in[W].type.dtype != dtype || (ebb_call_wants(c, DX) && c->out[DX].type.dtype != dtype))
        return "x and w are not of one float type";
    if ((ebb_call_has(c, BIAS) && c->in[BIAS].type.dtype != sums) ||
        (ebb_call_has(c, WEIGHTS) && c->in[WEIGHTS].type.dtype != sums) ||
        (ebb_call_wants(c, LOSS) && c->out[LOSS].type.dtype != sums) ||
        (ebb_call_wants(c, DW) && c->out[DW].type.dtype != sums) ||
        (ebb_call_wants(c, DBIAS) && c->out[DBIAS].type.dtype != sums))
        return "beside 16 bits bias, weights and what is summed over rows are not float32";
    return NULL;
}

/* ---- products ---- */

/* Of n rows: scores = alpha x w + bias. */
static ebb_cuda_product to_scores(const loss_args *a, int64_t n)
{
    ebb_cuda_product p;
    ebb_cuda_product_plain(&p, n, a->classes, a->inner);
    p.a_row = a->inner;
    p.a_column = 1;
    p.b_row = a->turned ? 1 : a->classes;
    p.b_column = a->turned ? a->inner : 1;
    p.c_column = 1;
    p.wide_c = true;
    p.alpha = a->alpha;
    p.has_c = a->has_bias;
    ebb_cuda_product_split(&p);
    return p;
}

/* dx = alpha g w'. */
static ebb_cuda_product to_inputs(const loss_args *a, int64_t n)
{
    ebb_cuda_product p;
    ebb_cuda_product_plain(&p, n, a->inner, a->classes);
    p.a_row = a->classes;
    p.a_column = 1;
    p.b_row = a->turned ? a->inner : 1;
    p.b_column = a->turned ? 1 : a->classes;
    p.alpha = a->alpha;
    ebb_cuda_product_split(&p);
    return p;
}

/* dw: g' x [C, K] where w is turned, x' g [K, C] else; added to what the blocks before it gave. */
static ebb_cuda_product to_weights(const loss_args *a, int64_t n)
{
    ebb_cuda_product p;
    const int64_t m = a->turned ? a->classes : a->inner,
                  columns_of = a->turned ? a->inner : a->classes;
    ebb_cuda_product_plain(&p, m, columns_of, n);
    p.a_row = 1;
    p.a_column = m;
    p.b_row = columns_of;
    p.b_column = 1;
    p.c_row = columns_of;
    p.c_column = 1;
    p.has_c = true; // but for the first block
    p.alpha = a->alpha;
    p.wide_y = p.wide_c = true;
    ebb_cuda_product_split(&p);
    return p;
}

typedef enum product_of { SCORES, WEIGHTS_GRADIENT, INPUTS_GRADIENT, PRODUCTS } product_of;

static ebb_cuda_product product_for(const loss_args *a, int which, int64_t n)
{
    return which == SCORES             ? to_scores(a, n)
           : which == WEIGHTS_GRADIENT ? to_weights(a, n)
                                       : to_inputs(a, n);
}

/* Bytes for the parts of any of them, of whole and of last blocks. */
static size_t parts_bytes(const ebb_call *c, const loss_args *a)
{
    const uint8_t dtype = c->in[X].type.dtype;
    const int64_t rest = a->block > 0 ? a->rows % a->block : 0;
    size_t most = 0;
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < PRODUCTS; i++) {
            const ebb_cuda_product p = product_for(a, i, last ? rest : a->block);
            const size_t bytes = ebb_cuda_products_by != NULL
                                     ? ebb_cuda_products_by->bytes(&p, dtype)
                                     : ebb_cuda_product_bytes(&p, dtype);
            most = bytes > most ? bytes : most;
        }
    return (most + 255) / 256 * 256;
}

static size_t each_bytes(const loss_args *a)
{
    return (sizeof(loss_facts) + (size_t)a->block * sizeof(double) + 255) / 256 * 256;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    loss_args a;
    size_t elements;
    read_sizes(c, &a);
    if (!ebb_size_mul(&elements, (size_t)a.block, (size_t)a.classes) ||
        !ebb_size_mul(bytes, elements, ebb_element_bytes(&c->in[X].type)) ||
        !ebb_size_add(bytes, *bytes, each_bytes(&a) + parts_bytes(c, &a)))
        return ebb_call_error(c, "a block of its scores is too large");
    return NULL;
}

/* ---- the sweep ---- */

static void read_operands(const ebb_call *c, loss_args *a)
{
    read_sizes(c, a);
    a->x = c->in[X].data;
    a->w = c->in[W].data;
    a->bias = ebb_call_has(c, BIAS) ? c->in[BIAS].data : NULL;
    a->labels = c->in[TARGET].data;
    a->wide = c->in[TARGET].type.dtype == EBB_I64;
    a->weights = ebb_call_has(c, WEIGHTS) ? c->in[WEIGHTS].data : NULL;
    a->loss = ebb_call_wants(c, LOSS) ? c->out[LOSS].data : NULL;
    a->dx = ebb_call_wants(c, DX) ? c->out[DX].data : NULL;
    a->dw = ebb_call_wants(c, DW) ? c->out[DW].data : NULL;
    a->dbias = ebb_call_wants(c, DBIAS) ? c->out[DBIAS].data : NULL;
    a->facts = (loss_facts *)c->workspace;
    a->each = (double *)(a->facts + 1);
    a->parts = (unsigned char *)c->workspace + each_bytes(a);
    a->scores = (unsigned char *)a->parts + parts_bytes(c, a);
    a->step = ebb_cuda_queue_of(c)->step;
    a->position = c->position;
}

/* A library's algorithms; NULL: the product is our own. */
typedef struct prepared {
    const void *chosen[2][PRODUCTS]; /* of a whole block, of the last one */
} prepared;

/* Which operands a product of this block has. */
static ebb_cuda_product product_at(const ebb_call *c, const loss_args *a, int which)
{
    const size_t at = (size_t)(a->first * a->inner) * ebb_element_bytes(&c->in[X].type);
    const unsigned char *x = (const unsigned char *)a->x + at;
    ebb_cuda_product p = product_for(a, which, a->count);
    p.parts = a->parts;
    if (which == SCORES) {
        p.y = a->scores;
        p.a = x;
        p.b = a->w;
        p.c = a->bias;
    } else if (which == WEIGHTS_GRADIENT) {
        p.y = a->dw;
        p.a = a->turned ? a->scores : (const void *)x;
        p.b = a->turned ? (const void *)x : a->scores;
        p.c = a->first > 0 ? a->dw : NULL;
    } else {
        p.y = a->dx != NULL ? (unsigned char *)a->dx + at : NULL;
        p.a = a->scores;
        p.b = a->w;
    }
    return p;
}

static ebb_status run_product(const ebb_call *c, const loss_args *a, int which)
{
    const ebb_cuda_product p = product_at(c, a, which);
    const prepared *state = (const prepared *)c->state;
    const uint8_t dtype = c->in[X].type.dtype;
    if (state == NULL)
        return ebb_cuda_product_run(c, &p, dtype);
    return ebb_cuda_products_by->run(c, &p, dtype, state->chosen[a->count < a->block][which]);
}

static ebb_status run_block(const ebb_call *c, const loss_args *a)
{
    const int row = ebb_cuda_float_row(c->in[X].type.dtype);
    const uint32_t shared = EBB_CUDA_BLOCK * sizeof(double);
    EBB_TRY(run_product(c, a, SCORES));
    EBB_TRY(EBB_LAUNCH(c, gradients[row], ebb_cuda_blocks(a->count), EBB_CUDA_BLOCK, shared, *a));
    EBB_TRY(EBB_LAUNCH(c, losses[row], ebb_cuda_blocks(1), EBB_CUDA_BLOCK, shared, *a));
    if (a->dbias != NULL)
        EBB_TRY(EBB_LAUNCH(c, columns[row], ebb_cuda_blocks((a->classes + EBB_WARP - 1) / EBB_WARP),
                           EBB_CUDA_BLOCK, shared, *a));
    if (a->dw != NULL)
        EBB_TRY(run_product(c, a, WEIGHTS_GRADIENT));
    return a->dx != NULL ? run_product(c, a, INPUTS_GRADIENT) : NULL; // last: dx may be x
}

/* Blocks of x and dx begin where their rows do. */
static ebb_status prepare(ebb_call *c)
{
    const uint8_t dtype = c->in[X].type.dtype;
    loss_args a;
    if (ebb_cuda_products_by == NULL || c->in[X].data == NULL)
        return NULL;
    read_operands(c, &a);
    prepared *state = (prepared *)ebb_alloc(sizeof *state);
    EBB_GOT(state);
    memset(state, 0, sizeof *state);
    c->state = state;
    const uint64_t step = (uint64_t)(a.block * a.inner) * ebb_element_bytes(&c->in[X].type);
    for (int last = 0; last < 2; last++) {
        a.count = last ? a.rows % a.block : a.block;
        a.first = last ? a.rows - a.count : 0;
        for (int i = 0; i < PRODUCTS && a.count > 0; i++) {
            ebb_cuda_product p = product_at(c, &a, i);
            p.align = a.block < a.rows ? ebb_cuda_align_of(step) : 256;
            if (i == INPUTS_GRADIENT && a.dx == a.x) // nothing is tried over an operand
                p.y = a.classes < a.inner ? NULL : a.scores;
            if (i == INPUTS_GRADIENT ? a.dx != NULL : p.y != NULL)
                EBB_TRY(ebb_cuda_products_by->choose(c, &p, dtype, &state->chosen[last][i]));
        }
    }
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    loss_args a;
    read_operands(c, &a);
    const int row = ebb_cuda_float_row(c->in[X].type.dtype);
    const uint32_t shared = EBB_CUDA_BLOCK * sizeof(double);
    EBB_TRY(EBB_LAUNCH(c, divisors[row], ebb_cuda_blocks(1), EBB_CUDA_BLOCK, shared, a));
    for (a.first = 0; a.first < a.rows; a.first += a.block) {
        a.count = a.rows - a.first < a.block ? a.rows - a.first : a.block;
        EBB_TRY(run_block(c, &a));
    }
    if (a.rows > 0)
        return NULL;
    // what no block has reached
    void *stream = ebb_cuda_queue_of(c)->stream;
    if (a.dw != NULL)
        EBB_TRY(ebb_gpu_clear(stream, a.dw, c->out[DW].bytes));
    if (a.dbias != NULL)
        EBB_TRY(ebb_gpu_clear(stream, a.dbias, c->out[DBIAS].bytes));
    return EBB_LAUNCH(c, losses[row], ebb_cuda_blocks(1), EBB_CUDA_BLOCK, shared, a);
}

// clang-format off
const ebb_kernel ebb_cuda_linear_loss[] = {
    {.name = "cuda.linear_cross_entropy", .op = EBB_OP_LINEAR_CROSS_ENTROPY, .dtypes = dtypes_of_loss, .fits = ebb_linear_loss_misfit, .workspace = workspace, .prepare = prepare, .run = run, .release = ebb_call_forget},
};
// clang-format on
EBB_CUDA_COUNT(linear_loss)
