/* norm.h: what the families of norms share in the backward: how what is kept is read. */
#pragma once

#include "kernels/kernels.h"

/* How dy and the value that was normalised are read off what is kept. */
typedef enum ebb_norm_kept {
    EBB_NORM_PLAIN, /* it is kept: the input, or the output itself */
    EBB_NORM_LEAKY, /* z = y or slope y: dy = dz or slope dz */
    EBB_NORM_ELU,   /* z = y or a (e^y - 1): dy = dz or dz (z + a) */
} ebb_norm_kept;

typedef struct ebb_norm_channels {
    const ebb_call *call;
    int64_t n, c, s; /* [N, C, S] */
    ebb_norm_kept kept;
    double slope, elu, least;
    int64_t threads;
} ebb_norm_channels;

/* `kept` and its numbers, of a ...GradFromOutput. */
void ebb_norm_read_kept(const ebb_call *call, ebb_norm_kept *kept, double *slope, double *elu,
                        double *least);

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
