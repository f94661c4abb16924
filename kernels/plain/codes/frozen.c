/* frozen.c: products with a matrix in few bits: a row of what is decoded at a time, then a sum for each
 * row of A; and rows of a table in few bits. */
#include "kernels/call/linear_codes.h"
#include "kernels/plain/number.h"

static const char *dtypes(const ebb_call *c)
{
    const uint8_t a = c->in[0].type.dtype;
    if ((a != EBB_F32 && a != EBB_F64) || c->out[0].type.dtype != a)
        return "multiplies float32 and float64 only";
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    const ebb_type *a = &c->in[0].type;
    *bytes = (size_t)a->dims[a->rank - 1] * sizeof(double);
    return NULL;
}

static double sum_of(const ebb_operand *a, int64_t row, const double *w, int64_t inner)
{
    double sum = 0;
    if (a->type.dtype == EBB_F32) {
        const float *x = (const float *)a->data + row * inner;
        for (int64_t i = 0; i < inner; i++)
            sum += (double)x[i] * w[i];
    } else {
        const double *x = (const double *)a->data + row * inner;
        for (int64_t i = 0; i < inner; i++)
            sum += x[i] * w[i];
    }
    return sum;
}

/* Rows from `first` on that are the matrix's. */
static void multiply(const ebb_call *c, const ebb_frozen_matrix *m, int64_t first, int64_t end)
{
    const bool wide = c->in[0].type.dtype == EBB_F64;
    const int64_t inner = ebb_frozen_inner(&m->of), columns = ebb_frozen_columns(&m->of);
    double *w = c->workspace;
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t i = 0; i < inner; i++) {
            w[i] = m->of.turned ? ebb_frozen_at(m, j, i) : ebb_frozen_at(m, i, j);
            w[i] = wide ? w[i] : (double)(float)w[i];
        }
        EBB_PARALLEL_FOR((end - first) * inner)
        for (int64_t r = first; r < end; r++) {
            const double sum = sum_of(&c->in[0], r, w, inner);
            if (wide)
                ((double *)c->out[0].data)[r * columns + j] = sum;
            else
                ((float *)c->out[0].data)[r * columns + j] = (float)sum;
        }
    }
}

static ebb_status run(const ebb_call *c)
{
    ebb_frozen_matrix m;
    ebb_frozen_open(&m, c);
    const int64_t rows = ebb_elements(&c->in[0].type) / ebb_frozen_inner(&m.of);
    const int64_t *of = ebb_frozen_experts(c);
    if (of == NULL) {
        multiply(c, &m, 0, rows);
        return NULL;
    }
    EBB_TRY(ebb_experts_check(c, of, rows, m.of.matrices));
    for (int64_t r = 0, next; r < rows; r = next) {
        const ebb_frozen_matrix one = ebb_frozen_one(&m, of[r]);
        next = ebb_experts_next(of, rows, r);
        multiply(c, &one, r, next);
    }
    return NULL;
}

/* ---- rows of a table ---- */

static const char *misfit_table(const ebb_call *c)
{
    ebb_frozen_table t;
    return ebb_frozen_table_of(&t, c);
}

/* Element i of the table decoded. */
static double table_at(const ebb_frozen_table *t, const ebb_call *c, int64_t i)
{
    const bool bytes = t->dtype == EBB_U8;
    const int64_t row = i / t->behind / t->along, place = i / t->behind % t->along / t->block;
    const int64_t block = (row * t->blocks + place) * t->behind + i % t->behind;
    const double level =
        bytes ? (double)ebb_bits_get(c->in[0].data, i, t->bits) : ebb_plain_real(&c->in[0], i);
    double zero = bytes ? (double)(1u << (t->bits - 1)) : 0.0;
    if (ebb_call_has(c, 3))
        zero = t->packed ? (double)ebb_bits_get(c->in[3].data, row * t->zero_row + place, t->bits)
                         : ebb_plain_real(&c->in[3], block);
    return (level - zero) * ebb_plain_real(&c->in[2], block);
}

static ebb_status run_gather(const ebb_call *c)
{
    ebb_frozen_table t;
    EBB_MUST_FIT(c, ebb_frozen_table_of(&t, c));
    const ebb_span s = ebb_span_of(&t.whole, t.gather);
    const int64_t picked = ebb_elements(&c->in[1].type);
    for (int64_t j = 0; j < picked; j++) {
        const int64_t at = ebb_plain_int(&c->in[1], j);
        if (at < -s.n || at >= s.n)
            return ebb_call_error(c, "index %lld is outside of the %lld rows of the table",
                                  (long long)at, (long long)s.n);
    }
    EBB_PARALLEL_FOR(s.outer * picked * s.inner)
    for (int64_t row = 0; row < s.outer * picked; row++) {
        const int64_t given = ebb_plain_int(&c->in[1], row % picked);
        const int64_t at = given < 0 ? given + s.n : given;
        const int64_t from = (row / picked * s.n + at) * s.inner;
        for (int64_t i = 0; i < s.inner; i++)
            ebb_plain_put(&c->out[0], row * s.inner + i, table_at(&t, c, from + i));
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_frozen[] = {
    {.name = "plain.matmul_codes",       .op = EBB_OP_MATMUL_CODES,       .dtypes = dtypes, .fits = ebb_frozen_misfit, .workspace = workspace, .run = run},
    {.name = "plain.experts_matmul_codes", .op = EBB_OP_EXPERTS_MATMUL_CODES, .dtypes = dtypes, .fits = ebb_frozen_misfit, .workspace = workspace, .run = run},
    {.name = "plain.gather_block_quantized", .op = EBB_OP_GATHER_BLOCK_QUANTIZED, .fits = misfit_table, .run = run_gather},
    {.name = "plain.matmul_dequantized", .op = EBB_OP_MATMUL_DEQUANTIZED, .dtypes = dtypes, .fits = ebb_frozen_misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(frozen)
