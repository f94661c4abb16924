/* resize.c: bilinear, widened over all pixels that a smaller one covers ("antialias"), first along rows
 * and then along columns, in whole numbers of 22 binary places and rounded to bytes between the two: what
 * Pillow computes, so that a model sees what it saw in training there. (Pillow 13 goes along columns first
 * where only the height becomes less, which differs in the last bit of some bytes.)
 *
 *   out[x] = sum over s of weight(x, s) * in[s]      weight: a triangle around the middle of x, of width
 *                                                    2 * max(1, in / out), sum 1
 */
#include "exec/data/picture/picture.h"

#include <math.h>

enum { PLACES = 22 };

typedef struct taps { /* of one direction */
    int *first, *count;
    int32_t *weight; /* [size][most] */
    int most;
    void *memory;
} taps;

static ebb_status make_taps(taps *t, int in, int out)
{
    const double scale = (double)in / out, wide = scale < 1 ? 1 : scale;
    size_t bytes;
    t->most = (int)ceil(wide) * 2 + 1;
    EBB_GOT(ebb_size_mul(&bytes, (size_t)out, (size_t)t->most * (sizeof(double) + 4) + 8));
    double *exact = ebb_alloc(bytes);
    EBB_GOT(exact);
    t->memory = exact;
    t->weight = (int32_t *)(void *)(exact + (size_t)out * (size_t)t->most);
    t->first = (int *)(t->weight + (size_t)out * (size_t)t->most);
    t->count = t->first + out;
    for (int x = 0; x < out; x++) {
        const double middle = (x + 0.5) * scale;
        double sum = 0, *w = exact + (size_t)x * (size_t)t->most;
        int from = (int)(middle - wide + 0.5), to = (int)(middle + wide + 0.5);
        from = from < 0 ? 0 : from;
        to = to > in ? in : to;
        for (int s = from; s < to; s++) {
            const double away = fabs((s - middle + 0.5) * (1 / wide));
            w[s - from] = away < 1 ? 1 - away : 0;
            sum += w[s - from];
        }
        t->first[x] = from;
        t->count[x] = to - from;
        for (int s = 0; s < to - from; s++) {
            const double share = (sum != 0 ? w[s] * (1 / sum) : 0) * (1 << PLACES);
            t->weight[(size_t)x * (size_t)t->most + (size_t)s] = (int32_t)(share + 0.5);
        }
    }
    return NULL;
}

static unsigned char to_byte(int32_t sum)
{
    const int32_t value = sum >> PLACES;
    return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* step_in, step_out: bytes between two pixels along the direction. */
static void apply(unsigned char *out, const unsigned char *in, const taps *t, int count,
                  size_t step_in, size_t step_out)
{
    for (int x = 0; x < count; x++)
        for (int c = 0; c < 3; c++) {
            const int32_t *w = t->weight + (size_t)x * (size_t)t->most;
            const unsigned char *at = in + (size_t)t->first[x] * step_in + c;
            int32_t sum = 1 << (PLACES - 1);
            for (int s = 0; s < t->count[x]; s++)
                sum += w[s] * at[(size_t)s * step_in];
            out[(size_t)x * step_out + (size_t)c] = to_byte(sum);
        }
}

ebb_status ebb_picture_resize(ebb_picture *out, const ebb_picture *from, int left, int top,
                              int width, int height, ebb_picture *between)
{
    taps across = {0}, down = {0};
    const size_t stride = (size_t)from->width * 3, wide = (size_t)out->width * 3;
    const unsigned char *in = from->rgb + (size_t)top * stride + (size_t)left * 3;
    ebb_status status = ebb_picture_size(out, (uint64_t)out->width, (uint64_t)out->height);
    if (status == NULL)
        status = ebb_picture_size(between, (uint64_t)out->width, (uint64_t)height);
    if (status == NULL)
        status = make_taps(&across, width, out->width);
    if (status == NULL)
        status = make_taps(&down, height, out->height);
    for (int y = 0; status == NULL && y < height; y++) {
        if (width == out->width)
            memcpy(between->rgb + (size_t)y * wide, in + (size_t)y * stride, wide);
        else
            apply(between->rgb + (size_t)y * wide, in + (size_t)y * stride, &across, out->width, 3,
                  3);
    }
    if (status == NULL && height == out->height)
        memcpy(out->rgb, between->rgb, (size_t)height * wide);
    for (int x = 0; status == NULL && height != out->height && x < out->width; x++)
        apply(out->rgb + (size_t)x * 3, between->rgb + (size_t)x * 3, &down, out->height, wide,
              wide);
    ebb_free(across.memory);
    ebb_free(down.memory);
    return status;
}
