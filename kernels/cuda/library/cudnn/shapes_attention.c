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

#include "kernels/cuda/library/cudnn/internal.h"
#include "kernels/cuda/library/cudnn/shapes.h"

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
    ebb_cudnn_tensor q, k, v, o;
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
    *b = (building){.s = s,
                    .q = heads(s->dtype, s->batch, s->heads, s->queries, s->width, &s->q),
                    .k = heads(s->dtype, s->batch, s->kv_heads, s->keys, s->width, &s->k),
                    .v = heads(s->dtype, s->batch, s->kv_heads, s->keys, s->value_width, &s->v),
                    .o = heads(s->dtype, s->batch, s->heads, s->queries, s->value_width, &s->o),
                    .scores = ebb_cudnn_rows(EBB_F32, RANK, scores),
                    .row = ebb_cudnn_rows(EBB_F32, RANK, row)};
    return ebb_cudnn_graph_new(&b->g, label);
}

/* ---- steps that both directions share: each takes and gives a tensor's number ---- */

/* f of the scores x, and of `with` where it is not 0. */
static int point(building *b, cudnnPointwiseMode_t f, int x, int with)
{
    int y = ebb_cudnn_virtual(b->g, &b->scores);
    ebb_cudnn_point(b->g, f, x, with, y);
    return y;
}

static int times(building *b, int x, float number)
{
    return point(b, CUDNN_POINTWISE_MUL, x, ebb_cudnn_number(b->g, RANK, number));
}

/* The scores that stay, and what makes up for the others. */
static void read_kept(building *b)
{
    const ebb_cudnn_tensor kept = ebb_cudnn_as(&b->scores, b->s->dtype);
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
    x = times(b, x, s->scale);
    if (s->cap > 0)
        x = times(b, point(b, CUDNN_POINTWISE_TANH_FWD, times(b, x, 1 / s->cap), 0), s->cap);
    if (s->bias) {
        const int64_t dims[RANK] = {s->bias_batch, s->bias_heads, s->bias_rows, s->keys};
        const ebb_cudnn_tensor bias =
            ebb_cudnn_rows(s->bias_dtype != EBB_NONE ? s->bias_dtype : s->dtype, RANK, dims);
        x = point(b, CUDNN_POINTWISE_ADD, x, ebb_cudnn_real(b->g, EBB_CUDNN_BIAS, &bias));
    }
    return x;
}

/* -inf where the key comes after the query. */
static int without_future(building *b, int x)
{
    ebb_cudnn_tensor place = ebb_cudnn_as(&b->scores, EBB_I32),
                     bits = ebb_cudnn_as(&b->scores, EBB_BOOL);
    if (!b->s->causal)
        return x;
    int row = ebb_cudnn_virtual(b->g, &place), column = ebb_cudnn_virtual(b->g, &place);
    int past = ebb_cudnn_virtual(b->g, &bits), y = ebb_cudnn_virtual(b->g, &b->scores);
    ebb_cudnn_place(b->g, 2, x, row);
    ebb_cudnn_place(b->g, 3, x, column);
    ebb_cudnn_point(b->g, CUDNN_POINTWISE_CMP_GE, row, column, past);
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
    ebb_cudnn_reduce(b->g, CUDNN_REDUCE_TENSOR_MAX, x, most);
    int e = point(b, CUDNN_POINTWISE_EXP, point(b, CUDNN_POINTWISE_SUB, x, most), 0);
    ebb_cudnn_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    if ((with & EBB_CUDNN_WITH_STATS) != 0) {
        int log = ebb_cudnn_virtual(b->g, &b->row);
        ebb_cudnn_point(b->g, CUDNN_POINTWISE_LOG, sum, 0, log);
        ebb_cudnn_point(b->g, CUDNN_POINTWISE_ADD, most, log,
                        ebb_cudnn_real(b->g, EBB_CUDNN_STATS, &b->row));
    }
    const ebb_cudnn_tensor result = ebb_cudnn_as(&b->scores, dtype);
    int p = ebb_cudnn_virtual(b->g, &result);
    ebb_cudnn_point(b->g, CUDNN_POINTWISE_DIV, e, sum, p);
    return p;
}

ebb_status ebb_cudnn_attention_forward(ebb_cudnn_graph **graph,
                                       const ebb_cudnn_attention_sizes *sizes, unsigned with)
{
    building b;
    *graph = NULL;
    EBB_TRY(begin(&b, sizes, "attention forward"));
    const ebb_cudnn_tensor kt = transposed(&b.k), narrow = ebb_cudnn_as(&b.scores, sizes->dtype);
    read_kept(&b);
    int x =
        scores(&b, ebb_cudnn_real(b.g, EBB_CUDNN_Q, &b.q), ebb_cudnn_real(b.g, EBB_CUDNN_K, &kt));
    /* The product with V reads probabilities in the dtype of V. */
    bool dropout = b.kept != 0;
    int p = softmax(&b, without_future(&b, x), with, dropout ? EBB_F32 : sizes->dtype);
    if (dropout) {
        int scaled = ebb_cudnn_virtual(b.g, &narrow);
        ebb_cudnn_point(b.g, CUDNN_POINTWISE_MUL, point(&b, CUDNN_POINTWISE_MUL, p, b.kept),
                        b.rescale, scaled);
        p = scaled;
    }
    ebb_cudnn_matmul(b.g, p, ebb_cudnn_real(b.g, EBB_CUDNN_V, &b.v),
                     ebb_cudnn_real(b.g, EBB_CUDNN_O, &b.o));
    return ebb_cudnn_graph_end(graph, b.g);
}

/* ---- backward ---- */

/* rowsum(dO * O), as the kernels want it: with dropout times 1 - p. */
static int row_sums(building *b, int dout, int o)
{
    const ebb_cudnn_tensor wide = ebb_cudnn_rows(EBB_F32, RANK, b->o.dims);
    int product = ebb_cudnn_virtual(b->g, &wide), sum = ebb_cudnn_virtual(b->g, &b->row);
    int result = ebb_cudnn_real(b->g, EBB_CUDNN_ROW_SUMS, &b->row);
    ebb_cudnn_point(b->g, CUDNN_POINTWISE_MUL, dout, o, product);
    ebb_cudnn_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    ebb_cudnn_point(b->g, CUDNN_POINTWISE_MUL, sum,
                    ebb_cudnn_number(b->g, RANK, (float)(1 - b->s->dropout)), result);
    return result;
}

/* x^T y, the gradient of K or V. */
static void turned_product(building *b, int x, int y, ebb_cudnn_role role,
                           const ebb_cudnn_tensor *shape)
{
    const ebb_cudnn_tensor square = transposed(&b->scores),
                           narrow = ebb_cudnn_as(&square, b->s->dtype);
    int turned = ebb_cudnn_virtual(b->g, &narrow);
    ebb_cudnn_reshape(b->g, x, turned);
    ebb_cudnn_matmul(b->g, turned, y, ebb_cudnn_real(b->g, role, shape));
}

ebb_status ebb_cudnn_attention_backward(ebb_cudnn_graph **graph, const ebb_cudnn_attention_sizes *s)
{
    building b;
    *graph = NULL;
    EBB_TRY(begin(&b, s, "attention backward"));
    const ebb_cudnn_tensor given =
        heads(s->dtype, s->batch, s->heads, s->queries, s->value_width, &s->dout);
    const ebb_cudnn_tensor kt = transposed(&b.k), vt = transposed(&b.v);
    int in_q = ebb_cudnn_real(b.g, EBB_CUDNN_Q, &b.q), in_k = ebb_cudnn_real(b.g, EBB_CUDNN_K, &kt);
    int in_v = ebb_cudnn_real(b.g, EBB_CUDNN_V, &vt), in_o = ebb_cudnn_real(b.g, EBB_CUDNN_O, &b.o);
    int dout = ebb_cudnn_real(b.g, EBB_CUDNN_DO, &given);
    int stats = ebb_cudnn_real(b.g, EBB_CUDNN_STATS, &b.row);
    read_kept(&b);
    int sums = row_sums(&b, dout, in_o);

    int x = point(&b, CUDNN_POINTWISE_SUB, scores(&b, in_q, in_k), stats);
    int e = point(&b, CUDNN_POINTWISE_EXP, without_future(&b, x), 0), p = e;
    if (b.kept != 0)
        p = point(&b, CUDNN_POINTWISE_MUL, point(&b, CUDNN_POINTWISE_MUL, e, b.kept), b.rescale);
    turned_product(&b, p, dout, EBB_CUDNN_DV, &b.v);

    int dp = ebb_cudnn_virtual(b.g, &b.scores);
    ebb_cudnn_matmul(b.g, dout, in_v, dp);
    if (b.kept != 0)
        dp = point(&b, CUDNN_POINTWISE_MUL, dp, b.kept);
    int ds = point(&b, CUDNN_POINTWISE_MUL, point(&b, CUDNN_POINTWISE_SUB, dp, sums), e);
    if (b.rescale != 0)
        ds = point(&b, CUDNN_POINTWISE_MUL, ds, b.rescale);
    ds = times(&b, ds, s->scale);
    turned_product(&b, ds, in_q, EBB_CUDNN_DK, &b.k);

    int plain_k = ebb_cudnn_virtual(b.g, &b.k);
    ebb_cudnn_reshape(b.g, in_k, plain_k);
    ebb_cudnn_matmul(b.g, ds, plain_k, ebb_cudnn_real(b.g, EBB_CUDNN_DQ, &b.q));
    return ebb_cudnn_graph_end(graph, b.g);
}
