/* loss_loops.h: softmax and log-softmax for one floating type; included by loss.c with REAL, NAMED
 * and EXP set. x: [outer, n, inner]; a row is n elements `inner` apart.
 */

static void NAMED(forward)(const ebb_span *s, bool logarithm, REAL *y, const REAL *x)
{
    EBB_PARALLEL_FOR(s->outer * s->n * s->inner)
    for (int64_t row = 0; row < s->outer * s->inner; row++) {
        int64_t first = row / s->inner * s->n * s->inner + row % s->inner, step = s->inner;
        const REAL *from = x + first;
        REAL *to = y + first, most = from[0];
        for (int64_t i = 1; i < s->n; i++)
            most = from[i * step] > most ? from[i * step] : most;
        double sum = 0;
        if (logarithm) {
            EBB_SIMD_SUM(sum)
            for (int64_t i = 0; i < s->n; i++)
                sum += (double)EXP(from[i * step] - most);
            REAL norm = (REAL)log(sum);
            EBB_SIMD
            for (int64_t i = 0; i < s->n; i++)
                to[i * step] = from[i * step] - most - norm;
            continue;
        }
        if (step == 1) {
            EBB_SIMD_SUM(sum)
            for (int64_t i = 0; i < s->n; i++) {
                REAL e = EXP(from[i] - most);
                to[i] = e;
                sum += (double)e;
            }
        } else {
            for (int64_t i = 0; i < s->n; i++) {
                REAL e = EXP(from[i * step] - most);
                to[i * step] = e;
                sum += (double)e;
            }
        }
        REAL scale = (REAL)(1.0 / sum);
        EBB_SIMD
        for (int64_t i = 0; i < s->n; i++)
            to[i * step] *= scale;
    }
}

/* Softmax: dx = y (dy - sum(dy y)). Log-softmax: dx = dy - exp(y) sum(dy). */
static void NAMED(backward)(const ebb_span *s, bool logarithm, REAL *dx, const REAL *dy,
                            const REAL *y)
{
    EBB_PARALLEL_FOR(s->outer * s->n * s->inner)
    for (int64_t row = 0; row < s->outer * s->inner; row++) {
        int64_t first = row / s->inner * s->n * s->inner + row % s->inner, step = s->inner;
        const REAL *g = dy + first, *p = y + first;
        REAL *to = dx + first;
        double sum = 0;
        if (logarithm) {
            EBB_SIMD_SUM(sum)
            for (int64_t i = 0; i < s->n; i++)
                sum += (double)g[i * step];
            REAL whole = (REAL)sum;
            EBB_SIMD
            for (int64_t i = 0; i < s->n; i++)
                to[i * step] = g[i * step] - EXP(p[i * step]) * whole;
            continue;
        }
        EBB_SIMD_SUM(sum)
        for (int64_t i = 0; i < s->n; i++)
            sum += (double)(g[i * step] * p[i * step]);
        REAL mean = (REAL)sum;
        EBB_SIMD
        for (int64_t i = 0; i < s->n; i++)
            to[i * step] = p[i * step] * (g[i * step] - mean);
    }
}
