/* roi.h: what calls of RoiAlign and its gradients say, read and checked once for all back ends;
 * what they mean is in roi.inc.
 *
 *     RoiAlign(X, rois, images) -> Y     RoiAlignGrad(dY, rois, images) -> dX
 *                                        RoiAlignMaxGrad(dY, X, rois, images) -> dX
 */
#ifndef EBB_KERNELS_CALL_ROI_H
#define EBB_KERNELS_CALL_ROI_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
