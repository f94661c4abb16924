/* norm_rows_loops.h: LayerNorm and RMSNorm for one floating type; included by norm_rows.c.
 *
 * x: [m, n], each row normalised on its own. Statistics in double.
 */

static void NAMED(statistics)(const rows *r, const REAL *x, double *mean, double *inv_std)
{
    double sum = 0, square = 0;
    REAL shift = r->centred ? x[0] : 0; // near the mean: no cancellation below
    EBB_PRAGMA(omp simd reduction(+ : sum, square))
    for (int64_t j = 0; j < r->n; j++) {
        double d = (double)(x[j] - shift);
        sum += d;
        square += d * d;
    }
    double offset = r->centred ? sum / (double)r->n : 0;
    double var = square / (double)r->n - offset * offset;
    *mean = (double)shift + offset;
    *inv_std = 1.0 / sqrt((var > 0 ? var : 0) + r->epsilon);
}

static void NAMED(forward)(const rows *r, const ebb_call *c)
{
    const REAL *scale = c->in[1].data, *bias = ebb_plain_has(c, 2) ? c->in[2].data : NULL;
    const uint32_t mean_slot = r->centred ? 1 : 9, std_slot = r->centred ? 2 : 1;
    EBB_PARALLEL_FOR(r->m * r->n)
    for (int64_t i = 0; i < r->m; i++) {
        const REAL *x = (const REAL *)c->in[0].data + i * r->n;
        REAL *y = (REAL *)c->out[0].data + i * r->n;
        double mean, inv_std;
        NAMED(statistics)(r, x, &mean, &inv_std);
        put_statistic(c, mean_slot, i, mean);
        put_statistic(c, std_slot, i, inv_std);
        REAL mu = (REAL)mean, s = (REAL)inv_std;
        if (bias != NULL) {
            EBB_SIMD
            for (int64_t j = 0; j < r->n; j++)
                y[j] = (x[j] - mu) * s * scale[j] + bias[j];
        } else {
            EBB_SIMD
            for (int64_t j = 0; j < r->n; j++)
                y[j] = (x[j] - mu) * s * scale[j];
        }
    }
}

/* g = dy scale:  dx = inv_std (g - mean(g) - xhat mean(g xhat)); RMSNorm has no mean(g) term.
 * dscale = sum over rows of dy xhat, db = sum of dy: by blocks of rows, added up in order. */
static void NAMED(backward)(const rows *r, const ebb_call *c)
{
    const REAL *scale = c->in[2].data;
    double *sums = c->workspace; // [BLOCKS, 2, n]
    const int64_t n = r->n, per_block = (r->m + BLOCKS - 1) / BLOCKS;
    EBB_PARALLEL_FOR(r->m * r->n)
    for (int64_t block = 0; block < BLOCKS; block++) {
        double *dscale = sums + block * 2 * n, *dbias = dscale + n;
        int64_t end = (block + 1) * per_block < r->m ? (block + 1) * per_block : r->m;
        for (int64_t j = 0; j < 2 * n; j++)
            dscale[j] = 0;
        for (int64_t i = block * per_block; i < end; i++) {
            const REAL *dy = (const REAL *)c->in[0].data + i * n;
            const REAL *x = (const REAL *)c->in[1].data + i * n;
            double mean = r->centred ? get_statistic(c, 3, i) : 0;
            double inv_std = get_statistic(c, r->centred ? 4 : 3, i);
            REAL mu = (REAL)mean, s = (REAL)inv_std;
            double even = 0, tilt = 0;
            EBB_PRAGMA(omp simd reduction(+ : even, tilt))
            for (int64_t j = 0; j < n; j++) {
                REAL hat = (x[j] - mu) * s, g = dy[j] * scale[j];
                even += (double)g;
                tilt += (double)g * (double)hat;
                dscale[j] += (double)(dy[j] * hat);
                dbias[j] += (double)dy[j];
            }
            if (!ebb_plain_wants(c, 0))
                continue;
            REAL *dx = (REAL *)c->out[0].data + i * n;
            REAL a = r->centred ? (REAL)(even / (double)n) : 0, b = (REAL)(tilt / (double)n);
            EBB_SIMD
            for (int64_t j = 0; j < n; j++)
                dx[j] = (dy[j] * scale[j] - a - (x[j] - mu) * s * b) * s;
        }
    }
    for (uint32_t k = 0; k < 2; k++) {
        if (!ebb_plain_wants(c, 1 + k))
            continue;
        REAL *out = c->out[1 + k].data;
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t block = 0; block < BLOCKS; block++)
                sum += sums[(block * 2 + k) * n + j];
            out[j] = (REAL)sum;
        }
    }
}
