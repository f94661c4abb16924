/* conv_loops.h: the three convolutions for one element type. Included by conv.c once for each, with
 * REAL the type and NAMED(x) the name; so no include guard. */

/* narrow[n,m,o] = bias[m] + sum over c, k of wide[n, c of m's group, o*stride + k*dilation - pad] *
 * weight[m,c,k] */
static void NAMED(convolve)(const ebb_geometry *w, REAL *narrow, const REAL *wide,
                            const REAL *weight, const REAL *bias)
{
    int64_t channels = w->wide_channels / w->groups, each = w->narrow_channels / w->groups;
    int64_t wide_volume = ebb_geometry_volume(w->wide), volume = ebb_geometry_volume(w->narrow);
    int64_t taps = ebb_geometry_volume(w->kernel), images = w->batch * w->narrow_channels;
    int64_t work = images * volume * taps * channels;
    EBB_PARALLEL_FOR(work)
    for (int64_t image = 0; image < images; image++) {
        int64_t n = image / w->narrow_channels, m = image % w->narrow_channels;
        const REAL *from = wide + (n * w->wide_channels + m / each * channels) * wide_volume;
        const REAL *by = weight + m * channels * taps;
        for (int64_t o = 0; o < volume; o++) {
            int64_t at[EBB_AXES];
            window_start(at, w, o);
            double sum = bias == NULL ? 0.0 : (double)bias[m];
            for (int64_t k = 0; k < taps; k++) {
                int64_t place = place_of_tap(w, at, k);
                if (place < 0)
                    continue;
                for (int64_t c = 0; c < channels; c++)
                    sum += (double)from[c * wide_volume + place] * (double)by[c * taps + k];
            }
            narrow[image * volume + o] = (REAL)sum;
        }
    }
}

/* The transpose of the above: wide[n,c,i] = bias[c] + sum over the m, o, k that convolve() would
 * have multiplied with wide[n,c,i]. Gathers, so that each output has one owner and one order of
 * addition. */
static void NAMED(deconvolve)(const ebb_geometry *w, REAL *wide, const REAL *narrow,
                              const REAL *weight, const REAL *bias)
{
    int64_t channels = w->wide_channels / w->groups, each = w->narrow_channels / w->groups;
    int64_t wide_volume = ebb_geometry_volume(w->wide), volume = ebb_geometry_volume(w->narrow);
    int64_t taps = ebb_geometry_volume(w->kernel), images = w->batch * w->wide_channels;
    int64_t work = images * wide_volume * taps * each;
    EBB_PARALLEL_FOR(work)
    for (int64_t image = 0; image < images; image++) {
        int64_t n = image / w->wide_channels, c = image % w->wide_channels, g = c / channels;
        const REAL *from = narrow + (n * w->narrow_channels + g * each) * volume;
        const REAL *by = weight + (g * each * channels + c % channels) * taps;
        for (int64_t i = 0; i < wide_volume; i++) {
            double sum = bias == NULL ? 0.0 : (double)bias[c];
            for (int64_t k = 0; k < taps; k++) {
                int64_t place = window_of_tap(w, i, k);
                if (place < 0)
                    continue;
                for (int64_t m = 0; m < each; m++)
                    sum += (double)from[m * volume + place] * (double)by[m * channels * taps + k];
            }
            wide[image * wide_volume + i] = (REAL)sum;
        }
    }
}

/* weight_grad[m,c,k] = sum over n, o of narrow[n,m,o] * wide[n, c, o*stride + k*dilation - pad] */
static void NAMED(weight_grad)(const ebb_geometry *w, REAL *grad, const REAL *narrow,
                               const REAL *wide)
{
    int64_t channels = w->wide_channels / w->groups, each = w->narrow_channels / w->groups;
    int64_t wide_volume = ebb_geometry_volume(w->wide), volume = ebb_geometry_volume(w->narrow);
    int64_t taps = ebb_geometry_volume(w->kernel), filters = w->narrow_channels * channels;
    int64_t work = filters * taps * w->batch * volume;
    EBB_PARALLEL_FOR(work)
    for (int64_t filter = 0; filter < filters; filter++) {
        int64_t m = filter / channels, c = m / each * channels + filter % channels;
        for (int64_t k = 0; k < taps; k++) {
            double sum = 0.0;
            for (int64_t n = 0; n < w->batch; n++) {
                const REAL *from = wide + (n * w->wide_channels + c) * wide_volume;
                const REAL *by = narrow + (n * w->narrow_channels + m) * volume;
                for (int64_t o = 0; o < volume; o++) {
                    int64_t at[EBB_AXES];
                    window_start(at, w, o);
                    int64_t place = place_of_tap(w, at, k);
                    if (place >= 0)
                        sum += (double)by[o] * (double)from[place];
                }
            }
            grad[filter * taps + k] = (REAL)sum;
        }
    }
}
