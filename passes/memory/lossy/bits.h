/* bits.h: how many bits each coded tensor gets, so that they are so many on average. */
#pragma once

#include "onnx/words/status.h"

#include <stddef.h>

enum { EBB_BITS_LEAVE = 32 }; /* no code: it is left as it is */

typedef struct ebb_bits_item {
    const char *name;
    double weight; /* elements */
    double cost;   /* C of C / (2^bits - 1)^2, the variance that its bits bring; >= 0 */
    int least;     /* no fewer bits than these */
    int bits;      /* 1, 2, 4, 8 or EBB_BITS_LEAVE */
} ebb_bits_item;

/* Starting from `most` bits for all, takes bits away, always where the variance grows least for
 * each bit of memory, until the average is at most `average`, or nothing can be taken. */
void ebb_bits_share(ebb_bits_item *const *items, size_t count, int most, double average);

/* Multiplies each item's cost by what the measurements say of it, and sets *missing to how many
 * they do not name (those get the mean of the others'). by_gradient: by `sensitivity`, the measured
 * change of the gradient; else by `range2` times `grad2`. EBB_IO, or EBB_REJECTED where the file is
 * not
 * {"schema": "ebb.sensitivity/1", "tensors": [{"name": ..., "range2": ..., ...}]}. */
ebb_status ebb_bits_measured(ebb_bits_item *const *items, size_t count, const char *path,
                             bool by_gradient, size_t *missing);
