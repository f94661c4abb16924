/* softmax_loops.h: exponentials of rows and their sums, for one type.
 *
 * Included once a type, with REAL, NAMED(x) and EXP(x). A row is dense; lanes are up to EBB_LANES
 * neighbouring columns of [n, inner], each a line of its own. Sums over more than EBB_RUN elements
 * are in double.
 */
#ifndef EBB_KERNELS_PLAIN_SOFTMAX_LOOPS_H
#define EBB_KERNELS_PLAIN_SOFTMAX_LOOPS_H
enum { EBB_LANES = 64, EBB_RUN = 1024 };
#endif

/* The biggest of a row; NaN are passed over (their exponentials are NaN all the same). */
static inline REAL NAMED(row_max)(const REAL *x, int64_t n)
{
    enum { WIDE = 32 };
    REAL best[WIDE], most = (REAL)-INFINITY;
    int64_t whole = n / WIDE * WIDE;
    for (int j = 0; j < WIDE; j++)
        best[j] = most;
    for (int64_t i = 0; i < whole; i += WIDE) {
        EBB_SIMD
        for (int j = 0; j < WIDE; j++)
            best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
    }
    for (int j = 0; j < WIDE; j++)
        most = best[j] > most ? best[j] : most;
    for (int64_t i = whole; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

/* sum e^(x - most). */
static inline double NAMED(row_exp_sum)(const REAL *x, int64_t n, REAL most)
{
    double total = 0;
    for (int64_t i = 0; i < n; i += EBB_RUN) {
        int64_t end = n - i < EBB_RUN ? n : i + EBB_RUN;
        REAL sum = 0;
        EBB_SIMD_SUM(sum)
        for (int64_t k = i; k < end; k++)
            sum += EXP(x[k] - most);
        total += (double)sum;
    }
    return total;
}

/* The same, leaving e^(x - most) in y, which may be x. */
static inline double NAMED(row_exp)(REAL *y, const REAL *x, int64_t n, REAL most)
{
    double total = 0;
    for (int64_t i = 0; i < n; i += EBB_RUN) {
        int64_t end = n - i < EBB_RUN ? n : i + EBB_RUN;
        REAL sum = 0;
        EBB_SIMD_SUM(sum)
        for (int64_t k = i; k < end; k++) {
            REAL e = EXP(x[k] - most);
            y[k] = e;
            sum += e;
        }
        total += (double)sum;
    }
    return total;
}

/* Of each lane the biggest element and the sum of e^(x - biggest). */
static inline void NAMED(lanes_max_sum)(const REAL *x, int64_t n, int64_t inner, int64_t width,
                                        REAL *most, double *sum)
{
    for (int64_t j = 0; j < width; j++) {
        most[j] = (REAL)-INFINITY;
        sum[j] = 0;
    }
    for (int64_t k = 0; k < n; k++) {
        const REAL *row = x + k * inner;
        EBB_SIMD
        for (int64_t j = 0; j < width; j++)
            most[j] = row[j] > most[j] ? row[j] : most[j];
    }
    for (int64_t k = 0; k < n; k++) {
        const REAL *row = x + k * inner;
        EBB_SIMD
        for (int64_t j = 0; j < width; j++)
            sum[j] += (double)EXP(row[j] - most[j]);
    }
}
