/* matmul_loops.h: matrix products for one floating type; included by matmul.c with REAL and NAMED
 * set. */

/* c[m, n] = sum over k of a[m, k] b[k, n], strides in elements; sums in double. Row by row of c,
 * with b walked along its rows: a row of sums at a time, so that the inner loop has lanes. */
static void NAMED(product)(const product *p, REAL *c, const REAL *a, const REAL *b, double *row)
{
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++)
            row[j] = 0;
        for (int64_t k = 0; k < p->k; k++) {
            double x = (double)a[i * p->a_row + k * p->a_column];
            const REAL *from = b + k * p->b_row;
            EBB_SIMD
            for (int64_t j = 0; j < p->n; j++)
                row[j] += x * (double)from[j * p->b_column];
        }
        for (int64_t j = 0; j < p->n; j++)
            c[i * p->n + j] = (REAL)(row[j] * p->alpha);
    }
}

/* y = alpha A' B' + beta C; C is broadcast to [m, n]. */
static void NAMED(add_bias)(const product *p, REAL *y, const REAL *c, int64_t row, int64_t column,
                            double beta)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++)
            y[i * p->n + j] =
                (REAL)((double)y[i * p->n + j] + beta * (double)c[i * row + j * column]);
}
