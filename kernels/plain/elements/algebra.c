/* algebra.c: Einsum by its definition, Det and Inverse by elimination, TfIdfVectorizer by comparing. */
#include "kernels/math/det.h"
#include "kernels/call/algebra.h"
#include "kernels/plain/number.h"

#include <math.h>

/* ---- Einsum ---- */

/* Elements of input i from one value of a label to the next: a label that an input has twice is its
 * diagonal; a dim of 1 stands still. */
static void label_strides(int64_t *to, const ebb_einsum *e, const ebb_type *t, uint32_t i)
{
    int64_t strides[EBB_MAX_RANK];
    ebb_strides(strides, t->rank, t->dims);
    for (int l = 0; l < e->labels; l++)
        to[l] = 0;
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] != 1)
            to[e->label[i][d]] += strides[d];
}

typedef struct summing {
    ebb_einsum e;
    int64_t stride[EBB_EINSUM_INPUTS][EBB_EINSUM_LABELS], terms;
} summing;

static void put_sum(const ebb_call *c, const summing *s, int64_t index)
{
    int64_t base[EBB_EINSUM_INPUTS] = {0}, rest = index, exact = 0;
    bool whole = ebb_dtype_is_integer((ebb_dtype)c->out[0].type.dtype);
    double sum = 0;
    for (int l = s->e.out_rank - 1; l >= 0; l--) {
        for (uint32_t i = 0; i < s->e.inputs; i++)
            base[i] += rest % s->e.size[l] * s->stride[i][l];
        rest /= s->e.size[l];
    }
    for (int64_t k = 0; k < s->terms; k++) {
        uint64_t product = 1;
        double factor = 1;
        for (uint32_t i = 0; i < s->e.inputs; i++) {
            int64_t at = base[i];
            rest = k;
            for (int l = s->e.labels - 1; l >= s->e.out_rank; l--) {
                at += rest % s->e.size[l] * s->stride[i][l];
                rest /= s->e.size[l];
            }
            if (whole)
                product *= ebb_plain_word(&c->in[i], at);
            else
                factor *= ebb_plain_real(&c->in[i], at);
        }
        exact = (int64_t)((uint64_t)exact + product);
        sum += factor;
    }
    if (c->out[0].type.dtype == EBB_I64 || c->out[0].type.dtype == EBB_U64)
        ((int64_t *)c->out[0].data)[index] = exact;
    else
        ebb_plain_put(&c->out[0], index, whole ? (double)exact : sum);
}

static ebb_status run_einsum(const ebb_call *c)
{
    summing s = {.terms = 1};
    const char *wrong = ebb_einsum_call_read(&s.e, c);
    if (wrong != NULL)
        return ebb_call_error(c, "%s", wrong);
    for (uint32_t i = 0; i < c->input_count; i++)
        label_strides(s.stride[i], &s.e, &c->in[i].type, i);
    for (int l = s.e.out_rank; l < s.e.labels; l++)
        if (__builtin_mul_overflow(s.terms, s.e.size[l], &s.terms))
            return ebb_call_error(c, "it sums over too much");
    int64_t n = ebb_elements(&c->out[0].type), work;
    if (__builtin_mul_overflow(n, s.terms, &work))
        return ebb_call_error(c, "it sums over too much");
    EBB_PARALLEL_FOR(work)
    for (int64_t i = 0; i < n; i++)
        put_sum(c, &s, i);
    return NULL;
}

static const char *misfit_einsum(const ebb_call *c)
{
    ebb_einsum e;
    return ebb_einsum_call_read(&e, c);
}

/* ---- Det ---- */

static ebb_status run_det(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t n = x->dims[x->rank - 1], count = ebb_elements(&c->out[0].type);
    double *m = c->workspace;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < n * n; k++)
            m[k] = ebb_plain_real(&c->in[0], i * n * n + k);
        ebb_plain_put(&c->out[0], i, ebb_determinant(m, n));
    }
    return NULL;
}

static ebb_status det_workspace(const ebb_call *c, size_t *bytes)
{
    size_t n = (size_t)c->in[0].type.dims[c->in[0].type.rank - 1];
    return ebb_size_mul(bytes, n, n) && ebb_size_mul(bytes, *bytes, sizeof(double))
               ? NULL
               : ebb_call_error(c, "the matrix is too large");
}

static const char *misfit_det(const ebb_call *c)
{
    int64_t n, count;
    return ebb_det_read(&n, &count, c);
}

/* ---- DetGrad(dY, X) ---- */

/* dX = dy cof X, cof X = (adj X)^T, adj X = sign Q adj(U) L^-1 P. */
static ebb_status run_det_grad(const ebb_call *c)
{
    const ebb_type *x = &c->in[1].type;
    int64_t n = x->dims[x->rank - 1], count = ebb_elements(&c->in[0].type);
    ebb_factors f = {.m = c->workspace, .n = n};
    double *a = f.m + n * n;
    f.row = (int64_t *)(a + n * n);
    f.column = f.row + n;
    for (int64_t s = 0; s < count && n > 0; s++) {
        double dy = ebb_plain_real(&c->in[0], s);
        for (int64_t k = 0; k < n * n; k++)
            f.m[k] = ebb_plain_real(&c->in[1], s * n * n + k);
        ebb_factor(&f);
        ebb_adjugate_whole(&f, a);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                ebb_plain_put(&c->out[0], s * n * n + f.row[j] * n + f.column[i],
                              dy * f.sign * a[i * n + j]);
    }
    return NULL;
}

static ebb_status det_grad_workspace(const ebb_call *c, size_t *bytes)
{
    size_t n = (size_t)c->in[1].type.dims[c->in[1].type.rank - 1];
    return ebb_size_mul(bytes, n + 1, n) && ebb_size_mul(bytes, *bytes, 2 * sizeof(double))
               ? NULL
               : ebb_call_error(c, "the matrix is too large");
}

/* ---- Inverse ---- */

static ebb_status run_inverse(const ebb_call *c)
{
    int64_t n, count;
    (void)ebb_inverse_read(&n, &count, c); // declines() has seen it
    double *m = c->workspace, *a = m + n * n;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < n * n; k++)
            m[k] = ebb_plain_real(&c->in[0], i * n * n + k);
        ebb_inverse(a, m, n);
        for (int64_t k = 0; k < n * n; k++)
            ebb_plain_put(&c->out[0], i * n * n + k, a[k]);
    }
    return NULL;
}

static ebb_status inverse_workspace(const ebb_call *c, size_t *bytes)
{
    EBB_TRY(det_workspace(c, bytes));
    return ebb_size_mul(bytes, *bytes, 2) ? NULL : ebb_call_error(c, "the matrix is too large");
}

static const char *misfit_inverse(const ebb_call *c)
{
    int64_t n, count;
    return ebb_inverse_read(&n, &count, c);
}

/* ---- TfIdfVectorizer ---- */

/* Whether the n words that begin at `at`, `step` apart, are this n-gram. */
static bool is_gram(const ebb_operand *x, int64_t at, int64_t step, const int64_t *words, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (ebb_plain_whole(x, at + k * step) != words[k])
            return false;
    return true;
}

/* Counts of one row into its outputs. */
static void count_row(const ebb_call *c, const ebb_gram_pool *p, int64_t row, int64_t length,
                      float *y)
{
    int64_t gram = 0;
    for (int64_t n = 1; n <= (int64_t)p->lengths; n++) {
        int64_t to = ebb_grams_end(p, n);
        for (int64_t from = p->starts[n - 1]; from < to; from += n, gram++) {
            if (n < p->shortest || n > p->longest)
                continue;
            int64_t skips = n == 1 ? 0 : p->skip; /* a single word has nothing between */
            for (int64_t skip = 0; skip <= skips && skip < length; skip++)
                for (int64_t at = 0; at + (n - 1) * (skip + 1) < length; at++)
                    if (is_gram(&c->in[0], row * length + at, skip + 1, p->words + from, n))
                        y[p->index[gram]] += 1;
        }
    }
}

static ebb_status run_tf_idf(const ebb_call *c)
{
    ebb_gram_pool p;
    const char *wrong = ebb_gram_pool_read(&p, c);
    if (wrong != NULL)
        return ebb_call_error(c, "%s", wrong);
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    const ebb_gram_mode mode = ebb_gram_mode_of(c);
    int64_t length = x->dims[x->rank - 1], width = y->dims[y->rank - 1];
    int64_t rows = x->rank == 2 ? x->dims[0] : 1;
    float *out = c->out[0].data;
    memset(out, 0, c->out[0].bytes);
    for (int64_t r = 0; r < rows; r++) {
        count_row(c, &p, r, length, out + r * width);
        for (uint32_t g = 0; g < p.grams; g++) {
            float *v = out + r * width + p.index[g], w = p.weights != NULL ? p.weights[g] : 1;
            if (mode == EBB_GRAM_IDF)
                *v = *v > 0 ? w : 0;
            else if (mode == EBB_GRAM_TFIDF)
                *v *= w;
        }
    }
    return NULL;
}

static const char *misfit_tf_idf(const ebb_call *c)
{
    ebb_gram_pool p;
    return ebb_gram_pool_read(&p, c);
}

// clang-format off
const ebb_kernel ebb_plain_algebra[] = {
    {.name = "plain.einsum",   .op = EBB_OP_EINSUM,            .dtypes = ebb_plain_numbers, .fits = misfit_einsum, .run = run_einsum},
    {.name = "plain.det",      .op = EBB_OP_DET,               .dtypes = ebb_plain_floats,  .fits = misfit_det,    .workspace = det_workspace, .run = run_det},
    {.name = "plain.det_grad", .op = EBB_OP_DET_GRAD,          .dtypes = ebb_plain_floats,  .fits = misfit_det,    .workspace = det_grad_workspace, .run = run_det_grad},
    {.name = "plain.inverse",  .op = EBB_OP_INVERSE,           .dtypes = ebb_plain_floats,  .fits = misfit_inverse, .workspace = inverse_workspace, .run = run_inverse},
    {.name = "plain.tf_idf",   .op = EBB_OP_TF_IDF_VECTORIZER, .dtypes = ebb_call_any,      .fits = misfit_tf_idf, .run = run_tf_idf},
};
// clang-format on
EBB_PLAIN_COUNT(algebra)
