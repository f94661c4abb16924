/* loss_loops.h: softmax and log-softmax and their gradients, for one type; see loss.c. */

/* y = e^(x - max) / sum. */
static void NAMED(softmax)(REAL *y, const REAL *x, ebb_span s)
{
    int64_t chunks = (s.inner + EBB_LANES - 1) / EBB_LANES;
    EBB_PARALLEL_FOR(s.outer * s.n * s.inner * 4)
    for (int64_t job = 0; job < s.outer * chunks; job++) {
        int64_t first = job % chunks * EBB_LANES, at = job / chunks * s.n * s.inner + first;
        if (s.inner == 1) {
            double sum = NAMED(row_exp)(y + at, x + at, s.n, NAMED(row_max)(x + at, s.n));
            REAL scale = (REAL)(1.0 / sum), *row = y + at;
            EBB_SIMD
            for (int64_t k = 0; k < s.n; k++)
                row[k] *= scale;
            continue;
        }
        int64_t width = s.inner - first < EBB_LANES ? s.inner - first : EBB_LANES;
        REAL most[EBB_LANES], scale[EBB_LANES];
        double sum[EBB_LANES];
        NAMED(lanes_max_sum)(x + at, s.n, s.inner, width, most, sum);
        for (int64_t j = 0; j < width; j++)
            scale[j] = (REAL)(1.0 / sum[j]);
        for (int64_t k = 0; k < s.n; k++) {
            const REAL *from = x + at + k * s.inner;
            REAL *to = y + at + k * s.inner;
            EBB_SIMD
            for (int64_t j = 0; j < width; j++)
                to[j] = EXP(from[j] - most[j]) * scale[j];
        }
    }
}

/* y = (x - max) - log sum. */
static void NAMED(log_softmax)(REAL *y, const REAL *x, ebb_span s)
{
    int64_t chunks = (s.inner + EBB_LANES - 1) / EBB_LANES;
    EBB_PARALLEL_FOR(s.outer * s.n * s.inner * 4)
    for (int64_t job = 0; job < s.outer * chunks; job++) {
        int64_t first = job % chunks * EBB_LANES, at = job / chunks * s.n * s.inner + first;
        if (s.inner == 1) {
            const REAL *from = x + at;
            REAL most = NAMED(row_max)(from, s.n), *to = y + at;
            REAL shift = (REAL)log(NAMED(row_exp_sum)(from, s.n, most));
            EBB_SIMD
            for (int64_t k = 0; k < s.n; k++)
                to[k] = (from[k] - most) - shift;
            continue;
        }
        int64_t width = s.inner - first < EBB_LANES ? s.inner - first : EBB_LANES;
        REAL most[EBB_LANES], shift[EBB_LANES];
        double sum[EBB_LANES];
        NAMED(lanes_max_sum)(x + at, s.n, s.inner, width, most, sum);
        for (int64_t j = 0; j < width; j++)
            shift[j] = (REAL)log(sum[j]);
        for (int64_t k = 0; k < s.n; k++) {
            const REAL *from = x + at + k * s.inner;
            REAL *to = y + at + k * s.inner;
            EBB_SIMD
            for (int64_t j = 0; j < width; j++)
                to[j] = (from[j] - most[j]) - shift[j];
        }
    }
}

/* sum of a times b, or of a alone where b is NULL. */
static double NAMED(row_dot)(const REAL *a, const REAL *b, int64_t n)
{
    double total = 0;
    for (int64_t i = 0; i < n; i += EBB_RUN) {
        int64_t end = n - i < EBB_RUN ? n : i + EBB_RUN;
        REAL sum = 0;
        if (b != NULL) {
            EBB_SIMD_SUM(sum)
            for (int64_t k = i; k < end; k++)
                sum += a[k] * b[k];
        } else {
            EBB_SIMD_SUM(sum)
            for (int64_t k = i; k < end; k++)
                sum += a[k];
        }
        total += (double)sum;
    }
    return total;
}

/* Softmax: dx = y (dy - sum dy y). Its logarithm: dx = dy - e^y sum dy. dx may be dy or y. */
static void NAMED(softmax_grad)(REAL *dx, const REAL *dy, const REAL *y, ebb_span s, bool logarithm)
{
    int64_t chunks = (s.inner + EBB_LANES - 1) / EBB_LANES;
    EBB_PARALLEL_FOR(s.outer * s.n * s.inner * 2)
    for (int64_t job = 0; job < s.outer * chunks; job++) {
        int64_t first = job % chunks * EBB_LANES, at = job / chunks * s.n * s.inner + first;
        int64_t width = s.inner - first < EBB_LANES ? s.inner - first : EBB_LANES;
        if (s.inner == 1) {
            const REAL *g = dy + at, *p = y + at;
            REAL *to = dx + at, sum = (REAL)NAMED(row_dot)(g, logarithm ? NULL : p, s.n);
            if (logarithm) {
                EBB_SIMD
                for (int64_t k = 0; k < s.n; k++)
                    to[k] = g[k] - EXP(p[k]) * sum;
            } else {
                EBB_SIMD
                for (int64_t k = 0; k < s.n; k++)
                    to[k] = p[k] * (g[k] - sum);
            }
            continue;
        }
        double total[EBB_LANES];
        REAL sum[EBB_LANES];
        for (int64_t j = 0; j < width; j++)
            total[j] = 0;
        for (int64_t k = 0; k < s.n; k++) {
            const REAL *g = dy + at + k * s.inner, *p = y + at + k * s.inner;
            EBB_SIMD
            for (int64_t j = 0; j < width; j++)
                total[j] += (double)(logarithm ? g[j] : g[j] * p[j]);
        }
        for (int64_t j = 0; j < width; j++)
            sum[j] = (REAL)total[j];
        for (int64_t k = 0; k < s.n; k++) {
            const REAL *g = dy + at + k * s.inner, *p = y + at + k * s.inner;
            REAL *to = dx + at + k * s.inner;
            if (logarithm) {
                EBB_SIMD
                for (int64_t j = 0; j < width; j++)
                    to[j] = g[j] - EXP(p[j]) * sum[j];
            } else {
                EBB_SIMD
                for (int64_t j = 0; j < width; j++)
                    to[j] = p[j] * (g[j] - sum[j]);
            }
        }
    }
}
