/* shapes_attention.c: attention, composed of products, reductions and pointwise operations.
 *
 * cuDNN recognises this composition and computes it by tiles, so that the scores [B, H, Sq, Sk] are
 * never in memory; every tensor below of that shape is virtual.
 *
 *     S = scale Q K^T + bias        -inf where a key is later than its query
 *     stats = max + log sum exp(S - max)
 *     P = exp(S - max) / sum,  O = P V
 *
 *     D = rowsum(dO * O)            P = exp(S - stats)
 *     dV = P^T dO,  dP = dO V^T,  dS = P (dP - D),  dQ = scale dS K,  dK = scale dS^T Q
 *
 * Dropout multiplies P by kept / (1 - p) before the product with V. Which are kept is read from
 * memory: how cuDNN's own random numbers lie over the scores is not documented, so that no other
 * back end could draw the same.
 */
#include <math.h>

#include "kernels/cuda/library/cudnn/shapes.h"
#include "onnx/words/arena.h"

enum { RANK = 4 };

ebb_cudnn_heads ebb_cudnn_heads_first(int64_t heads, int64_t rows, int64_t width)
{
    return (ebb_cudnn_heads){.batch = heads * rows * width, .head = rows * width, .row = width};
}

ebb_cudnn_heads ebb_cudnn_heads_inside(int64_t heads, int64_t rows, int64_t width)
{
    return (ebb_cudnn_heads){.batch = heads * rows * width, .head = width, .row = heads * width};
}

/* ---- tensors ---- */

typedef struct building {
    ebb_cudnn_graph *g;
    const ebb_cudnn_attention_sizes *s;
    ebb_cudnn_tensor scores, row; /* float32 [B, H, Sq, Sk] and [B, H, Sq, 1] */
    int kept, rescale;            /* of dropout: 0 and 1, and 1 / (1 - p); 0 where it is off */
} building;

static ebb_cudnn_tensor heads(ebb_dtype dtype, int64_t b, int64_t h, int64_t rows, int64_t width,
                              const ebb_cudnn_heads *lie)
{
    return (ebb_cudnn_tensor){.dtype = dtype,
                              .rank = RANK,
                              .dims = {b, h, rows, width},
                              .strides = {lie->batch, lie->head, lie->row, 1}};
}

static ebb_cudnn_tensor transposed(const ebb_cudnn_tensor *t)
{
    ebb_cudnn_tensor r = *t;
    r.dims[2] = t->dims[3];
    r.dims[3] = t->dims[2];
    r.strides[2] = t->strides[3];
    r.strides[3] = t->strides[2];
    return r;
}

static ebb_cudnn_tensor as(const ebb_cudnn_tensor *tensor, ebb_dtype dtype)
{
    ebb_cudnn_tensor t = *tensor;
    t.dtype = dtype;
    return t;
}

static ebb_status begin(building *b, const ebb_cudnn_attention_sizes *s, const char *label)
{
    const int64_t scores[RANK] = {s->batch, s->heads, s->queries, s->keys},
                  row[RANK] = {s->batch, s->heads, s->queries, 1};
    const int64_t all[] = {s->batch, s->heads, s->kv_heads,   s->queries,
                           s->keys,  s->width, s->value_width};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] <= 0 || all[i] > INT32_MAX)
            return ebb_error(EBB_REJECTED, "attention: %lld is no size that cuDNN can take",
                             (long long)all[i]);
    if (s->heads % s->kv_heads != 0)
        return ebb_error(EBB_REJECTED, "attention: %lld heads of Q for %lld of K and V",
                         (long long)s->heads, (long long)s->kv_heads);
    if (s->width % 8 != 0 || s->value_width % 8 != 0)
        return ebb_error(EBB_UNSUPPORTED,
                         "attention: heads of %lld and %lld elements: cuDNN takes multiples of 8",
                         (long long)s->width, (long long)s->value_width);
    if (s->dtype != EBB_BF16 && s->dtype != EBB_F16)
        return ebb_error(EBB_UNSUPPORTED, "attention: cuDNN's is of float16 and bfloat16 alone");
    if (!(s->dropout >= 0 && s->dropout < 1))
        return ebb_error(EBB_REJECTED, "attention: a dropout of %g", s->dropout);
    *b = (building){.g = ebb_cudnn_graph_new(label),
                    .s = s,
                    .scores = ebb_cudnn_rows(EBB_F32, RANK, scores),
                    .row = ebb_cudnn_rows(EBB_F32, RANK, row)};
    return b->g != NULL ? NULL : ebb_error_memory();
}

static ebb_status end(ebb_cudnn_graph **out, ebb_cudnn_graph *graph)
{
    ebb_status status = ebb_cudnn_graph_end(graph);
    *out = status == NULL ? graph : NULL;
    if (status != NULL)
        ebb_cudnn_graph_free(graph);
    return status;
}

/* ---- steps that both directions share: each takes and gives a tensor's number ---- */

static int scores_binary(building *b, ebb_cudnn_point f, int x, int with)
{
    int y = ebb_cudnn_virtual(b->g, &b->scores);
    ebb_cudnn_binary(b->g, f, x, with, y);
    return y;
}

static int scores_unary(building *b, ebb_cudnn_point f, int x)
{
    int y = ebb_cudnn_virtual(b->g, &b->scores);
    ebb_cudnn_unary(b->g, f, x, y);
    return y;
}

/* The scores that stay, and what makes up for the others. */
static void read_kept(building *b)
{
    const ebb_cudnn_tensor kept = as(&b->scores, b->s->dtype);
    if (b->s->dropout <= 0)
        return;
    b->kept = ebb_cudnn_real(b->g, EBB_CUDNN_KEPT, &kept);
    b->rescale = ebb_cudnn_number(b->g, RANK, (float)(1 / (1 - b->s->dropout)));
}

/* scale Q K^T, capped, + bias */
static int scores(building *b, int q, int k_transposed)
{
    const ebb_cudnn_attention_sizes *s = b->s;
    int x = ebb_cudnn_virtual(b->g, &b->scores);
    ebb_cudnn_matmul(b->g, q, k_transposed, x);
    x = scores_binary(b, EBB_CUDNN_MUL, x, ebb_cudnn_number(b->g, RANK, s->scale));
    if (s->cap > 0) {
        x = scores_binary(b, EBB_CUDNN_MUL, x, ebb_cudnn_number(b->g, RANK, 1 / s->cap));
        x = scores_unary(b, EBB_CUDNN_TANH, x);
        x = scores_binary(b, EBB_CUDNN_MUL, x, ebb_cudnn_number(b->g, RANK, s->cap));
    }
    if (s->bias) {
        const int64_t dims[RANK] = {s->bias_batch, s->bias_heads, s->bias_rows, s->keys};
        const ebb_cudnn_tensor bias =
            ebb_cudnn_rows(s->bias_dtype != EBB_NONE ? s->bias_dtype : s->dtype, RANK, dims);
        x = scores_binary(b, EBB_CUDNN_ADD, x, ebb_cudnn_real(b->g, EBB_CUDNN_BIAS, &bias));
    }
    return x;
}

/* -inf where the key comes after the query. */
static int without_future(building *b, int x)
{
    ebb_cudnn_tensor place = as(&b->scores, EBB_I32), bits = as(&b->scores, EBB_BOOL);
    if (!b->s->causal)
        return x;
    int row = ebb_cudnn_virtual(b->g, &place), column = ebb_cudnn_virtual(b->g, &place);
    int past = ebb_cudnn_virtual(b->g, &bits), y = ebb_cudnn_virtual(b->g, &b->scores);
    ebb_cudnn_place(b->g, 2, x, row);
    ebb_cudnn_place(b->g, 3, x, column);
    ebb_cudnn_binary(b->g, EBB_CUDNN_GREATER_EQUAL, row, column, past);
    ebb_cudnn_select(b->g, past, x, ebb_cudnn_number(b->g, RANK, -INFINITY), y);
    return y;
}

/* ---- forward ---- */

/* P, of the given dtype. */
static int softmax(building *b, int x, unsigned with, ebb_dtype dtype)
{
    const bool parts = (with & EBB_CUDNN_WITH_PARTS) != 0;
    int most =
        parts ? ebb_cudnn_real(b->g, EBB_CUDNN_MAX, &b->row) : ebb_cudnn_virtual(b->g, &b->row);
    int sum =
        parts ? ebb_cudnn_real(b->g, EBB_CUDNN_SUM, &b->row) : ebb_cudnn_virtual(b->g, &b->row);
    ebb_cudnn_reduce(b->g, EBB_CUDNN_MAXIMUM, x, most);
    int e = scores_unary(b, EBB_CUDNN_EXP, scores_binary(b, EBB_CUDNN_SUB, x, most));
    ebb_cudnn_reduce(b->g, EBB_CUDNN_ADDS, e, sum);
    if ((with & EBB_CUDNN_WITH_STATS) != 0) {
        int log = ebb_cudnn_virtual(b->g, &b->row);
        ebb_cudnn_unary(b->g, EBB_CUDNN_LOG, sum, log);
        ebb_cudnn_binary(b->g, EBB_CUDNN_ADD, most, log,
                         ebb_cudnn_real(b->g, EBB_CUDNN_STATS, &b->row));
    }
    const ebb_cudnn_tensor result = as(&b->scores, dtype);
    int p = ebb_cudnn_virtual(b->g, &result);
    ebb_cudnn_binary(b->g, EBB_CUDNN_DIV, e, sum, p);
    return p;
}

ebb_status ebb_cudnn_attention_forward(ebb_cudnn_graph **graph,
                                       const ebb_cudnn_attention_sizes *sizes, unsigned with)
{
    const ebb_cudnn_attention_sizes *s = sizes;
    building b;
    *graph = NULL;
    EBB_TRY(begin(&b, s, "attention forward"));
    const ebb_cudnn_tensor q = heads(s->dtype, s->batch, s->heads, s->queries, s->width, &s->q);
    const ebb_cudnn_tensor k = heads(s->dtype, s->batch, s->kv_heads, s->keys, s->width, &s->k);
    const ebb_cudnn_tensor v =
        heads(s->dtype, s->batch, s->kv_heads, s->keys, s->value_width, &s->v);
    const ebb_cudnn_tensor o =
        heads(s->dtype, s->batch, s->heads, s->queries, s->value_width, &s->o);
    const ebb_cudnn_tensor kt = transposed(&k), narrow = as(&b.scores, s->dtype);
    read_kept(&b);
    int x = scores(&b, ebb_cudnn_real(b.g, EBB_CUDNN_Q, &q), ebb_cudnn_real(b.g, EBB_CUDNN_K, &kt));
    /* The product with V reads probabilities in the dtype of V. */
    bool dropout = b.kept != 0;
    int p = softmax(&b, without_future(&b, x), with, dropout ? EBB_F32 : s->dtype);
    if (dropout) {
        int scaled = ebb_cudnn_virtual(b.g, &narrow);
        ebb_cudnn_binary(b.g, EBB_CUDNN_MUL, scores_binary(&b, EBB_CUDNN_MUL, p, b.kept), b.rescale,
                         scaled);
        p = scaled;
    }
    ebb_cudnn_matmul(b.g, p, ebb_cudnn_real(b.g, EBB_CUDNN_V, &v),
                     ebb_cudnn_real(b.g, EBB_CUDNN_O, &o));
    return end(graph, b.g);
}

/* ---- backward ---- */

/* rowsum(dO * O), as the kernels want it: with dropout times 1 - p. */
static int row_sums(building *b, int dout, int o, const ebb_cudnn_tensor *shape)
{
    const ebb_cudnn_tensor wide = ebb_cudnn_rows(EBB_F32, RANK, shape->dims);
    int product = ebb_cudnn_virtual(b->g, &wide), sum = ebb_cudnn_virtual(b->g, &b->row);
    int result = ebb_cudnn_real(b->g, EBB_CUDNN_ROW_SUMS, &b->row);
    ebb_cudnn_binary(b->g, EBB_CUDNN_MUL, dout, o, product);
    ebb_cudnn_reduce(b->g, EBB_CUDNN_ADDS, product, sum);
    ebb_cudnn_binary(b->g, EBB_CUDNN_MUL, sum,
                     ebb_cudnn_number(b->g, RANK, (float)(1 - b->s->dropout)), result);
    return result;
}

/* x^T y into the gradient of K or V: summed over the heads of Q that share one of K and V. */
static void into_shared(building *b, int x, int y, ebb_cudnn_role role,
                        const ebb_cudnn_tensor *shape)
{
    const ebb_cudnn_attention_sizes *s = b->s;
    const ebb_cudnn_tensor square = transposed(&b->scores), narrow = as(&square, s->dtype);
    int turned = ebb_cudnn_virtual(b->g, &narrow), result = ebb_cudnn_real(b->g, role, shape);
    ebb_cudnn_reshape(b->g, x, turned);
    if (s->heads == s->kv_heads) {
        ebb_cudnn_matmul(b->g, turned, y, result);
        return;
    }
    const int64_t dims[RANK] = {s->batch, s->heads, shape->dims[2], shape->dims[3]};
    const ebb_cudnn_tensor each = ebb_cudnn_rows(s->dtype, RANK, dims);
    int whole = ebb_cudnn_virtual(b->g, &each);
    ebb_cudnn_matmul(b->g, turned, y, whole);
    ebb_cudnn_reduce(b->g, EBB_CUDNN_ADDS, whole, result);
}

/* dS K into DQ, by a float32 sum in memory unless the order of summation must not change. */
static void into_queries(building *b, int ds, int k, const ebb_cudnn_tensor *q)
{
    int dq = ebb_cudnn_real(b->g, EBB_CUDNN_DQ, q);
    if (b->s->deterministic) {
        ebb_cudnn_matmul(b->g, ds, k, dq);
        return;
    }
    const ebb_cudnn_tensor wide = ebb_cudnn_rows(EBB_F32, RANK, q->dims);
    int sums = ebb_cudnn_real(b->g, EBB_CUDNN_DQ_SUMS, &wide);
    ebb_cudnn_matmul(b->g, ds, k, sums);
    ebb_cudnn_unary(b->g, EBB_CUDNN_IDENTITY, sums, dq);
}

static ebb_status scratch(const ebb_cudnn_attention_sizes *s, int64_t *bytes)
{
    size_t rows = 0, sums = 0;
    const size_t one = sizeof(float);
    bool fits = ebb_size_mul(&rows, (size_t)s->batch * (size_t)s->heads, (size_t)s->queries) &&
                ebb_size_mul(&sums, rows, (size_t)s->width) && ebb_size_mul(&sums, sums, one) &&
                ebb_size_mul(&rows, rows, one) && ebb_size_align(&rows, rows, 256) &&
                ebb_size_align(&sums, sums, 256) &&
                ebb_size_add(&rows, rows, s->deterministic ? 0 : sums) && rows <= INT64_MAX;
    if (!fits)
        return ebb_error(EBB_REJECTED, "attention: its scratch does not fit 63 bits");
    *bytes = (int64_t)rows;
    return NULL;
}

ebb_status ebb_cudnn_attention_backward(ebb_cudnn_graph **graph,
                                        const ebb_cudnn_attention_sizes *sizes,
                                        int64_t *scratch_bytes)
{
    const ebb_cudnn_attention_sizes *s = sizes;
    building b;
    *graph = NULL;
    EBB_TRY(begin(&b, s, "attention backward"));
    const ebb_cudnn_tensor q = heads(s->dtype, s->batch, s->heads, s->queries, s->width, &s->q);
    const ebb_cudnn_tensor k = heads(s->dtype, s->batch, s->kv_heads, s->keys, s->width, &s->k);
    const ebb_cudnn_tensor v =
        heads(s->dtype, s->batch, s->kv_heads, s->keys, s->value_width, &s->v);
    const ebb_cudnn_tensor o =
        heads(s->dtype, s->batch, s->heads, s->queries, s->value_width, &s->o);
    const ebb_cudnn_tensor given =
        heads(s->dtype, s->batch, s->heads, s->queries, s->value_width, &s->dout);
    const ebb_cudnn_tensor kt = transposed(&k), vt = transposed(&v);
    int in_q = ebb_cudnn_real(b.g, EBB_CUDNN_Q, &q), in_k = ebb_cudnn_real(b.g, EBB_CUDNN_K, &kt);
    int in_v = ebb_cudnn_real(b.g, EBB_CUDNN_V, &vt), in_o = ebb_cudnn_real(b.g, EBB_CUDNN_O, &o);
    int dout = ebb_cudnn_real(b.g, EBB_CUDNN_DO, &given);
    int stats = ebb_cudnn_real(b.g, EBB_CUDNN_STATS, &b.row);
    read_kept(&b);
    int sums = row_sums(&b, dout, in_o, &o);

    int x = scores_binary(&b, EBB_CUDNN_SUB, scores(&b, in_q, in_k), stats);
    int e = scores_unary(&b, EBB_CUDNN_EXP, without_future(&b, x)), p = e;
    if (b.kept != 0)
        p = scores_binary(&b, EBB_CUDNN_MUL, scores_binary(&b, EBB_CUDNN_MUL, e, b.kept),
                          b.rescale);
    into_shared(&b, p, dout, EBB_CUDNN_DV, &v);

    int dp = ebb_cudnn_virtual(b.g, &b.scores);
    ebb_cudnn_matmul(b.g, dout, in_v, dp);
    if (b.kept != 0)
        dp = scores_binary(&b, EBB_CUDNN_MUL, dp, b.kept);
    int ds = scores_binary(&b, EBB_CUDNN_MUL, scores_binary(&b, EBB_CUDNN_SUB, dp, sums), e);
    if (b.rescale != 0)
        ds = scores_binary(&b, EBB_CUDNN_MUL, ds, b.rescale);
    int last = ebb_cudnn_virtual(b.g, &b.scores);
    ebb_cudnn_binary(b.g, EBB_CUDNN_MUL, ds, ebb_cudnn_number(b.g, RANK, s->scale), last);
    into_shared(&b, last, in_q, EBB_CUDNN_DK, &k);

    int plain_k = ebb_cudnn_virtual(b.g, &k);
    ebb_cudnn_reshape(b.g, in_k, plain_k);
    into_queries(&b, last, plain_k, &q);
    EBB_TRY(end(graph, b.g));
    return scratch(s, scratch_bytes);
}
