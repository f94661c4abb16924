/* cross_entropy_loops.h: the losses of cross_entropy.c and their gradient, for one type.
 *
 * Scores are [outer, n classes, inner], labels [outer, inner]. A job is EBB_ROWS samples where
 * inner is 1, else up to EBB_LANES neighbouring samples; each leaves the sum of its losses and of
 * its weights in two doubles of its own.
 */
#ifndef EBB_KERNELS_PLAIN_CROSS_ENTROPY_LOOPS_H
#define EBB_KERNELS_PLAIN_CROSS_ENTROPY_LOOPS_H

enum { EBB_ROWS = 16 };

static int64_t job_count(ebb_span s)
{
    if (s.inner == 1)
        return (s.outer + EBB_ROWS - 1) / EBB_ROWS;
    return s.outer * ((s.inner + EBB_LANES - 1) / EBB_LANES);
}

/* The samples first .. first + count - 1 of a job. */
static int64_t job_samples(ebb_span s, int64_t job, int64_t *count)
{
    if (s.inner == 1) {
        int64_t first = job * EBB_ROWS;
        *count = s.outer - first < EBB_ROWS ? s.outer - first : EBB_ROWS;
        return first;
    }
    int64_t chunks = (s.inner + EBB_LANES - 1) / EBB_LANES, lane = job % chunks * EBB_LANES;
    *count = s.inner - lane < EBB_LANES ? s.inner - lane : EBB_LANES;
    return job / chunks * s.inner + lane;
}

/* Where class k of a sample stands in the scores. */
static int64_t place_of(ebb_span s, int64_t sample, int64_t k)
{
    return (sample / s.inner * s.n + k) * s.inner + sample % s.inner;
}
#endif

/* The weight of a label: 0 where it is ignored. */
static REAL NAMED(weight_of)(const labels *l, const REAL *weight, int64_t label)
{
    if (l->ignores && label == l->ignored)
        return 0;
    return weight != NULL ? weight[label] : 1;
}

/* Adds up -w p of a job's samples, given p; writes them to loss where that is not NULL. */
static void NAMED(add_up)(REAL *loss, double part[2], const labels *l, const REAL *weight,
                          const REAL *p, int64_t first, int64_t count)
{
    part[0] = part[1] = 0;
    for (int64_t j = 0; j < count; j++) {
        REAL w = NAMED(weight_of)(l, weight, label_at(l, first + j));
        REAL value = w != 0 ? -w * p[j] : 0;
        if (loss != NULL)
            loss[first + j] = value;
        part[0] += (double)value;
        part[1] += (double)w;
    }
}

/* log_prob = log softmax(x), unless NULL (it may be x); the losses of all samples. */
static void NAMED(cross_entropy)(REAL *loss, REAL *log_prob, double *parts, const REAL *x,
                                 ebb_span s, const labels *l, const REAL *weight)
{
    int64_t jobs = job_count(s);
    EBB_PARALLEL_FOR(s.outer * s.n * s.inner * 4)
    for (int64_t job = 0; job < jobs; job++) {
        int64_t count, first = job_samples(s, job, &count);
        REAL p[EBB_LANES], most[EBB_LANES], shift[EBB_LANES];
        double sum[EBB_LANES];
        if (s.inner == 1) {
            for (int64_t j = 0; j < count; j++) {
                most[j] = NAMED(row_max)(x + (first + j) * s.n, s.n);
                sum[j] = NAMED(row_exp_sum)(x + (first + j) * s.n, s.n, most[j]);
            }
        } else {
            NAMED(lanes_max_sum)(x + place_of(s, first, 0), s.n, s.inner, count, most, sum);
        }
        for (int64_t j = 0; j < count; j++) {
            int64_t label = label_at(l, first + j);
            shift[j] = (REAL)log(sum[j]);
            p[j] = 0;
            if (!l->ignores || label != l->ignored)
                p[j] = (x[place_of(s, first + j, label)] - most[j]) - shift[j];
        }
        NAMED(add_up)(loss, parts + 2 * job, l, weight, p, first, count);
        if (log_prob == NULL)
            continue;
        if (s.inner == 1) {
            for (int64_t j = 0; j < count; j++) {
                const REAL *from = x + (first + j) * s.n;
                REAL *to = log_prob + (first + j) * s.n, high = most[j], low = shift[j];
                EBB_SIMD
                for (int64_t k = 0; k < s.n; k++)
                    to[k] = (from[k] - high) - low;
            }
            continue;
        }
        for (int64_t k = 0; k < s.n; k++) {
            const REAL *from = x + place_of(s, first, k);
            REAL *to = log_prob + place_of(s, first, k);
            EBB_SIMD
            for (int64_t j = 0; j < count; j++)
                to[j] = (from[j] - most[j]) - shift[j];
        }
    }
}

/* The same losses from log-probabilities. */
static void NAMED(nll)(REAL *loss, double *parts, const REAL *log_prob, ebb_span s, const labels *l,
                       const REAL *weight)
{
    int64_t jobs = job_count(s);
    EBB_PARALLEL_FOR(s.outer * s.inner * 4)
    for (int64_t job = 0; job < jobs; job++) {
        int64_t count, first = job_samples(s, job, &count);
        REAL p[EBB_LANES];
        for (int64_t j = 0; j < count; j++) {
            int64_t label = label_at(l, first + j);
            bool counts = !l->ignores || label != l->ignored;
            p[j] = counts ? log_prob[place_of(s, first + j, label)] : 0;
        }
        NAMED(add_up)(loss, parts + 2 * job, l, weight, p, first, count);
    }
}

/* Mean divides by the weights of the labels, which for none at all gives NaN, as PyTorch has it. */
static void NAMED(finish)(REAL *loss, const double *parts, int64_t jobs, bool mean)
{
    double sum = 0, weights = 0;
    for (int64_t job = 0; job < jobs; job++) {
        sum += parts[2 * job];
        weights += parts[2 * job + 1];
    }
    *loss = (REAL)(mean ? sum / weights : sum);
}

/* dx = (e^p - [class is the label]) w dy (/ sum w); 0 for ignored samples. dx may be p.
 * dy: one a sample (each), or one for all. */
static void NAMED(cross_entropy_grad)(REAL *dx, const REAL *dy, const REAL *p, ebb_span s,
                                      const labels *l, const REAL *weight, bool each, bool mean)
{
    int64_t jobs = job_count(s);
    double weights = mean ? 0 : 1;
    for (int64_t i = 0; mean && i < s.outer * s.inner; i++)
        weights += (double)NAMED(weight_of)(l, weight, label_at(l, i));
    EBB_PARALLEL_FOR(s.outer * s.n * s.inner * 4)
    for (int64_t job = 0; job < jobs; job++) {
        int64_t count, first = job_samples(s, job, &count);
        REAL scale[EBB_LANES];
        for (int64_t j = 0; j < count; j++) {
            REAL w = NAMED(weight_of)(l, weight, label_at(l, first + j));
            double g = (double)dy[each ? first + j : 0];
            scale[j] = w != 0 ? (REAL)((double)w * g / weights) : 0;
        }
        for (int64_t j = 0; s.inner == 1 && j < count; j++) {
            const REAL *from = p + (first + j) * s.n;
            REAL *to = dx + (first + j) * s.n, g = scale[j];
            EBB_SIMD
            for (int64_t k = 0; k < s.n; k++)
                to[k] = g != 0 ? EXP(from[k]) * g : 0;
        }
        for (int64_t k = 0; s.inner != 1 && k < s.n; k++) {
            const REAL *from = p + place_of(s, first, k);
            REAL *to = dx + place_of(s, first, k);
            EBB_SIMD
            for (int64_t j = 0; j < count; j++)
                to[j] = scale[j] != 0 ? EXP(from[j]) * scale[j] : 0;
        }
        for (int64_t j = 0; j < count; j++) {
            int64_t label = label_at(l, first + j);
            if (!l->ignores || label != l->ignored)
                dx[place_of(s, first + j, label)] -= scale[j];
        }
    }
}
