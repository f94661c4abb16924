/* place.h: what calls of CenterCropPad, Col2Im and MaxUnpool say, read and checked once for all
 * back ends. */
#pragma once

#include "kernels/math/words.h"
#include "kernels/kernels.h"

EBB_C_BEGIN

/* ---- CenterCropPad(X, shape): what both have, about the middle; zeros around ---- */

typedef struct ebb_middle {
    int rank;
    int64_t dims[EBB_MAX_RANK]; /* of what both have */
    int64_t from[EBB_MAX_RANK], to[EBB_MAX_RANK];
    int64_t skip_from, skip_to; /* elements before it */
    bool fills;                 /* the whole output */
} ebb_middle;

const char *ebb_middle_misfit(const ebb_call *c);
void ebb_middle_read(ebb_middle *m, const ebb_call *c);

/* ---- Col2Im: blocks laid back where they were, added where they overlap ---- */

typedef struct ebb_blocks {
    int rank;
    int64_t image[EBB_MAX_RANK], block[EBB_MAX_RANK], stride[EBB_MAX_RANK];
    int64_t dilation[EBB_MAX_RANK], pad[EBB_MAX_RANK], count[EBB_MAX_RANK];
    int64_t area, taps, windows; /* of an image, of a block, blocks of an image */
    int64_t images;
} ebb_blocks;

const char *ebb_blocks_misfit(const ebb_call *c);
/* block: `count` sizes of a block, which are values of input 2. */
ebb_status ebb_blocks_read(ebb_blocks *b, const ebb_call *c, const int64_t *block, uint32_t count);

/* The block whose tap k lies on a place of the image; -1: none. So a place asks its taps one after
 * another, and nothing is added by two at once. */
EBB_BOTH int64_t ebb_block_on(const ebb_blocks *b, int64_t k, int64_t place)
{
    int64_t window = 0, step = 1;
    for (int d = b->rank - 1; d >= 0; d--) {
        int64_t i = place % b->image[d] + b->pad[d] - k % b->block[d] * b->dilation[d];
        if (i < 0 || i % b->stride[d] != 0 || i / b->stride[d] >= b->count[d])
            return -1;
        window += i / b->stride[d] * step;
        step *= b->count[d];
        place /= b->image[d];
        k /= b->block[d];
    }
    return window;
}

/* ---- MaxUnpool(X, indices, output shape?): X where the indices say, zeros elsewhere ---- */

/* The indices count in the shape that the windows give; where another is asked for, that one lies
 * in its first corner. An element that several go to is the last one's. */
typedef struct ebb_unpool {
    int rank;
    int64_t dims[EBB_MAX_RANK], stride[EBB_MAX_RANK]; /* of the windows; of the output */
    int64_t count, n;                                 /* elements of those dims; of X */
} ebb_unpool;

const char *ebb_unpool_misfit(const ebb_call *c);
ebb_status ebb_unpool_read(ebb_unpool *u, const ebb_call *c);

/* Where an index, 0 .. count - 1, lies in the output. */
EBB_BOTH int64_t ebb_unpool_at(const ebb_unpool *u, int64_t index)
{
    int64_t at = 0;
    for (int d = u->rank - 1; d >= 0; d--) {
        at += index % u->dims[d] * u->stride[d];
        index /= u->dims[d];
    }
    return at;
}

EBB_C_END
