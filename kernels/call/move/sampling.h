/* sampling.h: what calls of GridSample, AffineGrid and DeformConv say, read and checked once for
 * all back ends; what they mean is in sampling.inc.
 *
 * Each NAME_misfit gives NULL where shapes and attributes fit each other, else why not; dtypes are
 * the back end's to check. NAME_read is for calls that fit.
 */
#pragma once

#include "kernels/call/geometry.h"

EBB_C_BEGIN

/* ---- GridSample(X, grid) {mode, padding_mode, align_corners} ---- */

typedef enum ebb_sampling_mode {
    EBB_SAMPLE_NEAREST,
    EBB_SAMPLE_LINEAR,
    EBB_SAMPLE_CUBIC,
} ebb_sampling_mode;

typedef enum ebb_sampling_padding {
    EBB_SAMPLE_ZEROS,
    EBB_SAMPLE_BORDER,
    EBB_SAMPLE_REFLECTION,
} ebb_sampling_padding;

typedef struct ebb_sampling {
    ebb_sampling_mode mode;
    ebb_sampling_padding padding;
    bool align;
    int rank; /* axes of the image */
    int64_t size[EBB_MAX_RANK], stride[EBB_MAX_RANK];
    int64_t batch, channels, image, area; /* elements of a channel of X; of Y */
} ebb_sampling;

typedef struct ebb_sampling_taps { /* of one place: neighbours along each axis */
    int shift;                     /* 2^shift of them */
    int64_t at[EBB_MAX_RANK][4];   /* elements from the start of the channel */
    double weight[EBB_MAX_RANK][4];
} ebb_sampling_taps;

void ebb_sampling_read(ebb_sampling *s, const ebb_call *c);
const char *ebb_sampling_misfit(const ebb_call *c);

/* ---- AffineGrid(theta, size) {align_corners} ---- */

typedef struct ebb_affine {
    bool align;
    int rank;
    int64_t size[EBB_MAX_RANK], batch, area; /* places of one image */
} ebb_affine;

void ebb_affine_read(ebb_affine *a, const ebb_call *c);
const char *ebb_affine_misfit(const ebb_call *c);

/* ---- DeformConv(X, W, offsets, bias?, mask?) ---- */

typedef struct ebb_deform {
    ebb_geometry w;
    int64_t taps, volume, wide; /* of a kernel; places of Y, of X in one channel */
    int64_t shares;             /* offset_group */
} ebb_deform;

/* NULL, or why the call is none that a kernel takes. */
const char *ebb_deform_read(ebb_deform *d, const ebb_call *c);

/* ---- RoiAlign; what it means is in math/roi.inc ----
 *
 *     RoiAlign(X, rois, images) -> Y     RoiAlignGrad(dY, rois, images) -> dX
 *                                        RoiAlignMaxGrad(dY, X, rois, images) -> dX
 */

typedef struct ebb_roi {                                            /* what all regions share */
    uint32_t rois, images;                                          /* the inputs that they are */
    int64_t regions, batch, channels, height, width, rows, columns; /* rows, columns: of Y */
    double scale;
    bool half, largest;
    int64_t ratio;
} ebb_roi;

typedef struct ebb_region {
    double top, left, bin_height, bin_width;
    int64_t rows, columns; /* samples of a bin; 0: none */
    int64_t image;
} ebb_region;

typedef struct ebb_roi_sample { /* four neighbours, top left first; none outside of the image */
    int64_t at[4];
    double weight[4];
} ebb_roi_sample;

/* NULL, or why the call is none that a kernel takes. Dtypes of floats are the back end's to check.
 */
const char *ebb_roi_read(ebb_roi *a, const ebb_call *c);
const char *ebb_roi_misfit(const ebb_call *c);

EBB_C_END
