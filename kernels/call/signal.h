/* signal.h: what calls of DFT and STFT say, read and checked once for all back ends; what they mean
 * is in signal.inc. */
#pragma once

#include <math.h>

#include "kernels/math/words.h"
#include "kernels/kernels.h"

EBB_C_BEGIN

typedef struct ebb_transforms { /* of many lines, by their places in X and Y */
    int64_t n, bins;            /* length of a transform; coefficients that are wanted of it */
    int64_t lines,
        inner; /* a line's start: line / inner * outer_step + line % inner * inner_step */
    int64_t outer_step, inner_step;
    int64_t step, have; /* elements of X from one of a line to the next; how many there are */
    int64_t out_outer, out_inner, out_step; /* the same of Y, whose lines have `bins` */
    int64_t window;                         /* how long it is; 0: none */
    int32_t parts, made;    /* of an element of X, of Y. 1: real, 2: and imaginary */
    bool inverse, mirrored; /* mirrored: X is the first half of a spectrum, the rest conjugate */
} ebb_transforms;

/* An integer that a back end can read now. */
typedef int64_t (*ebb_signal_number)(const ebb_operand *operand, int64_t i);

/* NULL where shapes fit each other, else why not. */
const char *ebb_dft_misfit(const ebb_call *c);
const char *ebb_stft_misfit(const ebb_call *c);

/* Of a call that fits; an error where values do not. */
ebb_status ebb_dft_read(ebb_transforms *t, const ebb_call *c, ebb_signal_number number);
ebb_status ebb_stft_read(ebb_transforms *t, const ebb_call *c, ebb_signal_number number);

/* Numbers in the table of roots of one: of the longest transform that the output's shape allows. */
ebb_status ebb_signal_roots(const ebb_call *c, size_t *count);

/* ---- MelWeightMatrix ---- */

typedef struct ebb_mel { /* its five inputs */
    double bins, length, rate, lowest, highest;
} ebb_mel;

EBB_BOTH double ebb_mel_of(double hertz)
{
    return 2595.0 * log10(1.0 + hertz / 700.0);
}

/* Whether all edges can be made: no input is NaN, infinite or negative, and no edge lies at a bin
 * that a double does not hold. */
EBB_BOTH bool ebb_mel_in_range(const ebb_mel *m)
{
    const double top = m->lowest > m->highest ? m->lowest : m->highest;
    const double many = 4503599627370496.0; // 2^52
    return m->bins >= 0 && m->bins < many && m->length >= 0 && m->length < many && m->rate > 0 &&
           m->rate < 1e300 && m->lowest >= 0 && m->lowest < 1e12 && m->highest >= 0 &&
           m->highest < 1e12 && (m->length + 1.0) * top / m->rate < many;
}

/* The DFT's bin at which edge i of the triangles lies. */
EBB_BOTH int64_t ebb_mel_edge(const ebb_mel *m, int64_t i)
{
    const double low = ebb_mel_of(m->lowest), high = ebb_mel_of(m->highest);
    const double step = (high - low) / (m->bins + 2.0);
    const double hertz = 700.0 * (pow(10.0, ((double)i * step + low) / 2595.0) - 1.0);
    return (int64_t)floor((m->length + 1.0) * hertz / m->rate);
}

/* Of bin j in the triangle of three edges, themselves bins. */
EBB_BOTH double ebb_mel_weight(int64_t j, int64_t left, int64_t middle, int64_t right)
{
    if (right > middle && j >= middle && j < right)
        return (double)(right - j) / (double)(right - middle);
    if (left == middle && j == middle)
        return 1;
    if (j >= left && j <= middle && middle > left)
        return (double)(j - left) / (double)(middle - left);
    return 0;
}

EBB_C_END
