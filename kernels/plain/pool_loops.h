/* pool_loops.h: pooling for one element type. Included by pool.c once for each, with REAL the type
 * and NAMED(x) the name; so no include guard. */

/* The tap of window o with the first maximum in row-major order, as an offset in the channel; -1
 * for a window that lies in the padding altogether. A NaN is greater than everything. */
static int64_t NAMED(first_maximum)(const ebb_geometry *w, const REAL *x, int64_t o)
{
    tap_range r;
    window_taps(&r, w, o);
    int64_t best = -1;
    REAL value = (REAL)-INFINITY;
    for (int64_t i = r.first[0]; i < r.end[0]; i += w->dilation[0])
        for (int64_t j = r.first[1]; j < r.end[1]; j += w->dilation[1]) {
            int64_t row = (i * w->wide[1] + j) * w->wide[2];
            for (int64_t k = r.first[2]; k < r.end[2]; k += w->dilation[2])
                if (best < 0 || x[row + k] > value || (isnan(x[row + k]) && !isnan(value))) {
                    best = row + k;
                    value = x[row + k];
                }
        }
    return best;
}

static void NAMED(max_pool)(const ebb_geometry *w, REAL *y, int64_t *indices, const REAL *x,
                            bool column_major)
{
    int64_t images = w->batch * w->wide_channels, wide = ebb_geometry_volume(w->wide);
    int64_t volume = ebb_geometry_volume(w->narrow);
    EBB_PARALLEL_FOR(images * volume * ebb_geometry_volume(w->kernel))
    for (int64_t image = 0; image < images; image++)
        for (int64_t o = 0; o < volume; o++) {
            int64_t at = NAMED(first_maximum)(w, x + image * wide, o);
            y[image * volume + o] = at < 0 ? (REAL)-INFINITY : x[image * wide + at];
            if (indices != NULL)
                indices[image * volume + o] =
                    at < 0 ? -1 : image * wide + (column_major ? by_columns(w, at) : at);
        }
}

static void NAMED(max_pool_grad)(const ebb_geometry *w, REAL *dx, const REAL *dy, const REAL *x)
{
    int64_t images = w->batch * w->wide_channels, wide = ebb_geometry_volume(w->wide);
    int64_t volume = ebb_geometry_volume(w->narrow);
    EBB_PARALLEL_FOR(images * volume * ebb_geometry_volume(w->kernel))
    for (int64_t image = 0; image < images; image++) {
        for (int64_t i = 0; i < wide; i++)
            dx[image * wide + i] = 0;
        for (int64_t o = 0; o < volume; o++) {
            int64_t at = NAMED(first_maximum)(w, x + image * wide, o);
            if (at >= 0)
                dx[image * wide + at] += dy[image * volume + o];
        }
    }
}

static void NAMED(average_pool)(const ebb_geometry *w, REAL *y, const REAL *x, bool count_pad)
{
    int64_t images = w->batch * w->wide_channels, wide = ebb_geometry_volume(w->wide);
    int64_t volume = ebb_geometry_volume(w->narrow);
    EBB_PARALLEL_FOR(images * volume * ebb_geometry_volume(w->kernel))
    for (int64_t image = 0; image < images; image++) {
        const REAL *from = x + image * wide;
        for (int64_t o = 0; o < volume; o++) {
            tap_range r;
            window_taps(&r, w, o);
            double sum = 0.0;
            for (int64_t i = r.first[0]; i < r.end[0]; i += w->dilation[0])
                for (int64_t j = r.first[1]; j < r.end[1]; j += w->dilation[1])
                    for (int64_t k = r.first[2]; k < r.end[2]; k += w->dilation[2])
                        sum += (double)from[(i * w->wide[1] + j) * w->wide[2] + k];
            int64_t count = count_pad ? r.padded_count : r.count;
            y[image * volume + o] = count == 0 ? 0 : (REAL)(sum / (double)count);
        }
    }
}

static void NAMED(average_pool_grad)(const ebb_geometry *w, REAL *dx, const REAL *dy,
                                     bool count_pad)
{
    int64_t images = w->batch * w->wide_channels, wide = ebb_geometry_volume(w->wide);
    int64_t volume = ebb_geometry_volume(w->narrow);
    EBB_PARALLEL_FOR(images * volume * ebb_geometry_volume(w->kernel))
    for (int64_t image = 0; image < images; image++) {
        REAL *to = dx + image * wide;
        for (int64_t i = 0; i < wide; i++)
            to[i] = 0;
        for (int64_t o = 0; o < volume; o++) {
            tap_range r;
            window_taps(&r, w, o);
            int64_t count = count_pad ? r.padded_count : r.count;
            if (count == 0)
                continue;
            REAL share = (REAL)((double)dy[image * volume + o] / (double)count);
            for (int64_t i = r.first[0]; i < r.end[0]; i += w->dilation[0])
                for (int64_t j = r.first[1]; j < r.end[1]; j += w->dilation[1])
                    for (int64_t k = r.first[2]; k < r.end[2]; k += w->dilation[2])
                        to[(i * w->wide[1] + j) * w->wide[2] + k] += share;
        }
    }
}

static void NAMED(global_pool)(REAL *y, const REAL *x, int64_t images, int64_t volume, bool average)
{
    EBB_PARALLEL_FOR(images * volume)
    for (int64_t image = 0; image < images; image++) {
        const REAL *from = x + image * volume;
        double sum = 0.0;
        REAL most = (REAL)-INFINITY;
        if (average) {
            EBB_SIMD_SUM(sum)
            for (int64_t i = 0; i < volume; i++)
                sum += (double)from[i];
        } else {
            for (int64_t i = 0; i < volume; i++)
                if (from[i] > most || isnan(from[i]))
                    most = from[i];
        }
        y[image] = average ? (REAL)(sum / (double)volume) : most;
    }
}
