/* rates.c: a fixed time, a time per operation and a time per byte, fitted to measurements.
 *
 * Least squares of the relative error, made robust by weights (iteratively: a sample that is off by
 * much counts less), and never negative: each set of the three terms is solved for on its own, and
 * of those without a negative term the nearest is taken. With few samples several sets fit equally
 * well; then the smallest does, by what a processor would be busy with.
 */
#include "exec/weigh/costs.h"

#include <math.h>
#include <stdlib.h>

enum { TERMS = 3, ROUNDS = 20 };

typedef struct fit {
    const ebb_cost_sample *samples;
    size_t count;
    double scale[TERMS]; /* largest value of each term, so that sums are of one size */
    double *weight;
} fit;

static double term(const ebb_cost_sample *s, int k)
{
    return k == 0 ? 1.0 : k == 1 ? s->flops : s->bytes;
}

/* Solves a system of up to three equations, by elimination with pivots. */
static bool solve(double a[TERMS][TERMS + 1], int n)
{
    for (int i = 0; i < n; i++) {
        int best = i;
        for (int r = i + 1; r < n; r++)
            best = fabs(a[r][i]) > fabs(a[best][i]) ? r : best;
        if (fabs(a[best][i]) < 1e-12)
            return false;
        for (int c = 0; c <= n; c++) {
            double swap = a[i][c];
            a[i][c] = a[best][c];
            a[best][c] = swap;
        }
        for (int r = 0; r < n; r++) {
            double factor = a[r][i] / a[i][i];
            for (int c = i; r != i && c <= n; c++)
                a[r][c] -= factor * a[i][c];
        }
    }
    for (int i = 0; i < n; i++)
        a[i][n] /= a[i][i];
    return true;
}

static double predicted(const double x[TERMS], const ebb_cost_sample *s)
{
    return x[0] + x[1] * s->flops + x[2] * s->bytes;
}

static double loss_of(const fit *f, const double x[TERMS])
{
    double sum = 0;
    for (size_t i = 0; i < f->count; i++) {
        double r = predicted(x, &f->samples[i]) / f->samples[i].ns - 1;
        sum += f->weight[i] * r * r;
    }
    return sum;
}

/* The weighted least squares over the terms in `set`; false where they do not determine it or one
 * is negative. */
static bool solve_set(const fit *f, unsigned set, double x[TERMS])
{
    int used[TERMS], n = 0;
    double a[TERMS][TERMS + 1] = {{0}};
    for (int k = 0; k < TERMS; k++) {
        x[k] = 0;
        if ((set & (1u << k)) == 0)
            continue;
        if (f->scale[k] <= 0)
            return false;
        used[n++] = k;
    }
    for (size_t i = 0; i < f->count; i++) {
        const ebb_cost_sample *s = &f->samples[i];
        for (int r = 0; r < n; r++) {
            double left = term(s, used[r]) / f->scale[used[r]] / s->ns;
            for (int c = 0; c < n; c++)
                a[r][c] += f->weight[i] * left * term(s, used[c]) / f->scale[used[c]] / s->ns;
            a[r][n] += f->weight[i] * left;
        }
    }
    /* Rows of one size, so that "nearly zero" means the same everywhere. */
    for (int r = 0; r < n; r++) {
        double size = a[r][r];
        if (!(size > 0))
            return false;
        for (int c = 0; c <= n; c++)
            a[r][c] /= size;
    }
    if (!solve(a, n))
        return false;
    for (int r = 0; r < n; r++) {
        x[used[r]] = a[r][n] / f->scale[used[r]];
        if (!(x[used[r]] >= 0) || !isfinite(x[used[r]]))
            return false;
    }
    return true;
}

static void best_set(const fit *f, bool arithmetic, double x[TERMS])
{
    static const unsigned busy[] = {2, 4, 1, 3, 6, 5, 7}, moving[] = {4, 2, 1, 5, 6, 3, 7};
    const unsigned *order = arithmetic ? busy : moving;
    double least = INFINITY;
    for (int i = 0; i < 7; i++) {
        double candidate[TERMS];
        if (!solve_set(f, order[i], candidate))
            continue;
        double loss = loss_of(f, candidate);
        if (loss < least - 1e-9 * (double)f->count) {
            least = loss;
            memcpy(x, candidate, sizeof candidate);
        }
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double ebb_quantile(double *list, size_t count, size_t parts)
{
    qsort(list, count, sizeof *list, ascending);
    return list[count / parts];
}

bool ebb_rate_fit(ebb_cost_rate *rate, const ebb_cost_sample *samples, size_t count)
{
    fit f = {.samples = samples, .count = count};
    double x[TERMS] = {0}, flops = 0, bytes = 0;
    f.weight = count > 0 ? ebb_alloc(count * sizeof *f.weight) : NULL;
    if (f.weight == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        f.weight[i] = 1;
        flops += samples[i].flops;
        bytes += samples[i].bytes;
        for (int k = 0; k < TERMS; k++)
            f.scale[k] = fmax(f.scale[k], term(&samples[i], k));
    }
    for (int round = 0; round < ROUNDS; round++) {
        best_set(&f, flops > 8 * bytes, x);
        for (size_t i = 0; i < count; i++)
            f.weight[i] = 1 / fmax(fabs(predicted(x, &samples[i]) / samples[i].ns - 1), 0.02);
    }
    for (size_t i = 0; i < count; i++)
        f.weight[i] = fabs(predicted(x, &samples[i]) / samples[i].ns - 1);
    rate->fixed_ns = x[0];
    rate->ns_per_flop = x[1];
    rate->ns_per_byte = x[2];
    rate->entries = count;
    rate->error = ebb_quantile(f.weight, count, 2);
    ebb_free(f.weight);
    return true;
}

double ebb_rate_ns(const ebb_cost_rate *rate, double flops, double bytes)
{
    return rate->fixed_ns + rate->ns_per_flop * flops + rate->ns_per_byte * bytes;
}
