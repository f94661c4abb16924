/* frozen.c: products with a matrix in few bits: a row of what is decoded at a time, then a sum for each
 * row of A. */
#include "kernels/call/linear_codes.h"
#include "kernels/plain/plain.h"

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

static ebb_status run(const ebb_call *c)
{
    ebb_frozen_matrix m;
    ebb_frozen_open(&m, c);
    const bool wide = c->in[0].type.dtype == EBB_F64;
    const int64_t inner = ebb_frozen_inner(&m.of), columns = ebb_frozen_columns(&m.of);
    const int64_t rows = ebb_elements(&c->in[0].type) / inner;
    double *w = c->workspace;
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t i = 0; i < inner; i++) {
            w[i] = m.of.turned ? ebb_frozen_at(&m, j, i) : ebb_frozen_at(&m, i, j);
            w[i] = wide ? w[i] : (double)(float)w[i];
        }
        EBB_PARALLEL_FOR(rows * inner)
        for (int64_t r = 0; r < rows; r++) {
            const double sum = sum_of(&c->in[0], r, w, inner);
            if (wide)
                ((double *)c->out[0].data)[r * columns + j] = sum;
            else
                ((float *)c->out[0].data)[r * columns + j] = (float)sum;
        }
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_frozen[] = {
    {.name = "plain.matmul_codes",       .op = EBB_OP_MATMUL_CODES,       .dtypes = dtypes, .fits = ebb_frozen_misfit, .workspace = workspace, .run = run},
    {.name = "plain.matmul_dequantized", .op = EBB_OP_MATMUL_DEQUANTIZED, .dtypes = dtypes, .fits = ebb_frozen_misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(frozen)
