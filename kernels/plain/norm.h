/* norm.h: the gradient of batch norm in two passes, image by image.
 *
 * The whole kernel is these passes over all images at once, channel by channel. Who has the saved
 * tensor in parts only (a reader of codes, decoded by tiles of images) calls them for one part
 * after another, first all sums and then all gradients: the numbers are the same, bit for bit,
 * however the images are dealt out, since a channel's sums are added up image by image.
 *
 *     ebb_norm_channels_of(&b, call);                      sums: [C, 2], zero at first
 *     for each part:  ebb_norm_channel_sums(&b, dy, x, images, sums)
 *     ebb_norm_channel_ends(&b, sums, dscale, dbias)
 *     for each part:  ebb_norm_channel_grads(&b, sums, dy, x, images, dx)
 */
#ifndef EBB_KERNELS_PLAIN_NORM_H
#define EBB_KERNELS_PLAIN_NORM_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How dy and the value that was normalised are read off what is kept. */
typedef enum ebb_norm_kept {
    EBB_NORM_PLAIN, /* it is kept: the input, or the output itself */
    EBB_NORM_LEAKY, /* z = y or slope y: dy = dz or slope dz */
    EBB_NORM_ELU,   /* z = y or a (e^y - 1): dy = dz or dz (z + a) */
} ebb_norm_kept;

typedef struct ebb_norm_channels {
    const ebb_call *call;
    int64_t n, c, s; /* [N, C, S] of the whole tensor */
    ebb_norm_kept kept;
    double slope, elu, least;
} ebb_norm_channels;

/* Of a BatchNormalizationGrad or BatchNormGradFromOutput. */
ebb_norm_channels ebb_norm_channels_of(const ebb_call *call);

/* Adds to sums[c] = {sum dy, sum dy (v - centre)} over some images. dy, x: those images. */
void ebb_norm_channel_sums(const ebb_norm_channels *b, const void *dy, const void *x,
                           int64_t images, double *sums);

/* The gradients of scale and bias; either may be NULL. */
void ebb_norm_channel_ends(const ebb_norm_channels *b, const double *sums, void *dscale,
                           void *dbias);

/* dx of some images, from the sums over all. dx may be dy or x. */
void ebb_norm_channel_grads(const ebb_norm_channels *b, const double *sums, const void *dy,
                            const void *x, int64_t images, void *dx);

/* ---- what the families of norms share ---- */

/* 1 / scale, for tracing an output back: the scale away from zero, its sign kept. Below least
 * |bias| rounding has left nothing of the normalised value in the output. */
static inline double ebb_norm_undo(double scale, double bias, double least)
{
    const double tiny = (double)1e-30f;
    double size = scale < 0 ? -scale : scale, floor = (bias < 0 ? -bias : bias) * least;
    floor = floor > tiny ? floor : tiny;
    size = size > floor ? size : floor;
    return scale < 0 ? -1.0 / size : 1.0 / size;
}

void ebb_norm_read_kept(const ebb_call *call, ebb_norm_kept *kept, double *slope, double *elu,
                        double *least);

#ifdef __cplusplus
}
#endif
#endif
