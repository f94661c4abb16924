/* norm_loops.h: batch norm for one floating type; included by norm.c with REAL and NAMED set.
 *
 * x: [N, C, S] with S the product of the spatial axes. One channel belongs to one thread, and its
 * sums run over rows of S elements in double, so the result does not depend on the threads.
 */

/* Sum and sum of squares of x - shift over one channel. */
static void NAMED(moments)(const batch *b, const REAL *x, REAL shift, double *sum, double *square)
{
    double s = 0, q = 0;
    for (int64_t n = 0; n < b->n; n++) {
        const REAL *row = x + n * b->c * b->s;
        double rs = 0, rq = 0;
        EBB_PRAGMA(omp simd reduction(+ : rs, rq))
        for (int64_t i = 0; i < b->s; i++) {
            double d = (double)(row[i] - shift);
            rs += d;
            rq += d * d;
        }
        s += rs;
        q += rq;
    }
    *sum = s;
    *square = q;
}

/* y = (x - mean) * factor + bias over one channel. */
static void NAMED(scale_channel)(const batch *b, REAL *y, const REAL *x, REAL mean, REAL factor,
                                 REAL bias)
{
    for (int64_t n = 0; n < b->n; n++) {
        const REAL *from = x + n * b->c * b->s;
        REAL *to = y + n * b->c * b->s;
        EBB_SIMD
        for (int64_t i = 0; i < b->s; i++)
            to[i] = (from[i] - mean) * factor + bias;
    }
}

static void NAMED(train)(const batch *b, const ebb_call *c)
{
    const REAL *x = c->in[0].data, *scale = c->in[1].data, *bias = c->in[2].data;
    const REAL *old_mean = c->in[3].data, *old_var = c->in[4].data;
    double count = (double)(b->n * b->s),
           correct = b->unbiased && count > 1 ? count / (count - 1) : 1;
    EBB_PARALLEL_FOR(b->n * b->c * b->s)
    for (int64_t k = 0; k < b->c; k++) {
        REAL shift = b->n * b->s > 0 ? x[k * b->s] : 0; // near the mean: no cancellation below
        double sum, square;
        NAMED(moments)(b, x + k * b->s, shift, &sum, &square);
        double offset = count > 0 ? sum / count : 0;
        double mean = (double)shift + offset;
        double var = count > 0 ? square / count - offset * offset : 0;
        var = var > 0 ? var : 0;
        double inv_std = 1.0 / sqrt(var + b->epsilon);
        if (ebb_plain_wants(c, 0))
            NAMED(scale_channel)
            (b, (REAL *)c->out[0].data + k * b->s, x + k * b->s, (REAL)mean,
             (REAL)((double)scale[k] * inv_std), bias[k]);
        double m = b->momentum;
        if (ebb_plain_wants(c, 1))
            ((REAL *)c->out[1].data)[k] = (REAL)((double)old_mean[k] * m + mean * (1 - m));
        if (ebb_plain_wants(c, 2))
            ((REAL *)c->out[2].data)[k] = (REAL)((double)old_var[k] * m + var * correct * (1 - m));
        if (ebb_plain_wants(c, 3))
            ((REAL *)c->out[3].data)[k] = (REAL)mean;
        if (ebb_plain_wants(c, 4))
            ((REAL *)c->out[4].data)[k] = (REAL)inv_std;
    }
}

static void NAMED(infer)(const batch *b, const ebb_call *c)
{
    const REAL *x = c->in[0].data, *scale = c->in[1].data, *bias = c->in[2].data;
    const REAL *mean = c->in[3].data, *var = c->in[4].data;
    EBB_PARALLEL_FOR(b->n * b->c * b->s)
    for (int64_t k = 0; k < b->c; k++)
        NAMED(scale_channel)
        (b, (REAL *)c->out[0].data + k * b->s, x + k * b->s, mean[k],
         (REAL)((double)scale[k] / sqrt((double)var[k] + b->epsilon)), bias[k]);
}

/* dx = scale inv_std (dy - mean(dy) - xhat mean(dy xhat)), dscale = sum(dy xhat), db = sum(dy). */
static void NAMED(gradient)(const batch *b, const ebb_call *c)
{
    const REAL *dy = c->in[0].data, *x = c->in[1].data, *scale = c->in[2].data;
    const REAL *mean = c->in[3].data, *inv_std = c->in[4].data;
    double count = (double)(b->n * b->s);
    EBB_PARALLEL_FOR(b->n * b->c * b->s)
    for (int64_t k = 0; k < b->c; k++) {
        double sum = 0, product = 0;
        REAL mu = mean[k];
        for (int64_t n = 0; n < b->n; n++) {
            const REAL *g = dy + (n * b->c + k) * b->s, *v = x + (n * b->c + k) * b->s;
            double rs = 0, rp = 0;
            EBB_PRAGMA(omp simd reduction(+ : rs, rp))
            for (int64_t i = 0; i < b->s; i++) {
                rs += (double)g[i];
                rp += (double)g[i] * (double)(v[i] - mu);
            }
            sum += rs;
            product += rp;
        }
        double r = (double)inv_std[k];
        if (ebb_plain_wants(c, 1))
            ((REAL *)c->out[1].data)[k] = (REAL)(product * r);
        if (ebb_plain_wants(c, 2))
            ((REAL *)c->out[2].data)[k] = (REAL)sum;
        if (!ebb_plain_wants(c, 0) || count == 0)
            continue;
        REAL factor = (REAL)((double)scale[k] * r), even = (REAL)(sum / count);
        REAL tilt = (REAL)(product * r * r / count);
        for (int64_t n = 0; n < b->n; n++) {
            const REAL *g = dy + (n * b->c + k) * b->s, *v = x + (n * b->c + k) * b->s;
            REAL *to = (REAL *)c->out[0].data + (n * b->c + k) * b->s;
            EBB_SIMD
            for (int64_t i = 0; i < b->s; i++)
                to[i] = (g[i] - even - (v[i] - mu) * tilt) * factor;
        }
    }
}
