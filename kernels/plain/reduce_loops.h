/* reduce_loops.h: reductions for one element type; included by reduce.c with T, NAMED and REAL set.
 * REAL is what sums are kept in: double for the floats, int64_t for integers.
 *
 * x is seen as [outer, n, inner]: n is reduced. Integers have the first four operators alone.
 */

static void NAMED(rows)(const reduction *r, T *y, const T *x)
{
    EBB_PARALLEL_FOR(r->outer * r->n)
    for (int64_t o = 0; o < r->outer; o++) { // inner = 1: y[o] of a row of n
        const T *row = x + o * r->n;
        REAL sum = 0;
        if (r->op == EBB_OP_REDUCE_MAX || r->op == EBB_OP_REDUCE_MIN) {
            T best = row[0];
            for (int64_t i = 1; i < r->n; i++)
                best = NAMED(better)(r->op, row[i], best);
            y[o] = best;
            continue;
        }
        if (r->op == EBB_OP_REDUCE_SUM || r->op == EBB_OP_REDUCE_MEAN) {
            EBB_SIMD_SUM(sum)
            for (int64_t i = 0; i < r->n; i++)
                sum += (REAL)row[i];
        } else {
            sum = NAMED(start)(r->op);
            for (int64_t i = 0; i < r->n; i++)
                sum = NAMED(step)(r->op, sum, (REAL)row[i]);
        }
        y[o] = NAMED(finish)(r, sum);
    }
}

/* A block of columns at a time: `block` running values, walked along rows of x. */
static void NAMED(columns)(const reduction *r, T *y, const T *x)
{
    enum { BLOCK = 512 };
    int64_t blocks = (r->inner + BLOCK - 1) / BLOCK;
    EBB_PARALLEL_FOR(r->outer * r->n * r->inner)
    for (int64_t task = 0; task < r->outer * blocks; task++) {
        int64_t o = task / blocks, first = task % blocks * BLOCK;
        int64_t width = r->inner - first < BLOCK ? r->inner - first : BLOCK;
        const T *from = x + o * r->n * r->inner + first;
        T *to = y + o * r->inner + first;
        REAL run[BLOCK];
        if (r->op == EBB_OP_REDUCE_MAX || r->op == EBB_OP_REDUCE_MIN) {
            for (int64_t j = 0; j < width; j++)
                to[j] = from[j];
            for (int64_t i = 1; i < r->n; i++)
                for (int64_t j = 0; j < width; j++)
                    to[j] = NAMED(better)(r->op, from[i * r->inner + j], to[j]);
            continue;
        }
        for (int64_t j = 0; j < width; j++)
            run[j] = NAMED(start)(r->op);
        if (r->op == EBB_OP_REDUCE_SUM || r->op == EBB_OP_REDUCE_MEAN) {
            for (int64_t i = 0; i < r->n; i++) {
                const T *row = from + i * r->inner;
                EBB_SIMD
                for (int64_t j = 0; j < width; j++)
                    run[j] += (REAL)row[j];
            }
        } else {
            for (int64_t i = 0; i < r->n; i++)
                for (int64_t j = 0; j < width; j++)
                    run[j] = NAMED(step)(r->op, run[j], (REAL)from[i * r->inner + j]);
        }
        for (int64_t j = 0; j < width; j++)
            to[j] = NAMED(finish)(r, run[j]);
    }
}
