/* values.h: what the numbers of a tensor look like: drawn and trained, or made by a rule. */
#pragma once

#include "onnx/words/tensor.h"

typedef enum ebb_look {
    EBB_LOOK_DRAWN = 0, /* nothing else was seen, or there are no bytes, or too few elements */
    EBB_LOOK_EQUAL,     /* one number everywhere */
    EBB_LOOK_MASK,      /* two or three numbers, or one that is infinite or as large */
    EBB_LOOK_WHOLE,     /* whole numbers: indices, regions, counts */
    EBB_LOOK_COMPUTED, /* each line along an axis goes on by a rule: sines, steps, powers, a window */
    EBB_LOOK_EXPANDED,  /* the same along a whole axis */
    EBB_LOOK_LOOKED_UP, /* numbers come again, as those that were taken from a smaller table */
    EBB_LOOK_PADDED,    /* of one axis, and zero in a large part of it */
    EBB_LOOK_ONE_SIGN,  /* of several axes, and all above zero or all below, as exponentials are */
    EBB_LOOK_COUNT
} ebb_look;

/* At most a few ten thousand elements are read, whatever the size. scratch: for them. different, if
 * not NULL: of how many numbers it seems to be made. */
ebb_status ebb_values_look(ebb_look *look, int64_t *different, const ebb_tensor *t,
                           ebb_arena *scratch);

/* Axes of more than one element. */
int ebb_long_axes(const ebb_type *type);

/* Whether it is a table with sines of the place in its columns, to the last bits. A few lines are read. */
bool ebb_is_table_of_sines(const ebb_tensor *t);

typedef struct ebb_extremes { /* of a tensor's elements */
    const ebb_tensor *tensor;
    int64_t count;             /* 0: too few to say something, or no bytes */
    bool known;                /* what follows: it is looked for where it is needed */
    int64_t least, most;       /* places of the least and the most */
    double size;               /* the greatest distance from 0 */
    double first, from, range; /* the one at place 0, the least, and from it to the most */
} ebb_extremes;

ebb_extremes ebb_extremes_of(const ebb_tensor *t);

/* Whether y is a x + b to the last bits, but not x itself, for numbers that are not all equal. */
bool ebb_is_affine(ebb_extremes *x, ebb_extremes *y);

/* Whether the longer one begins with the shorter one's numbers, which are not all equal, as a table and its first
 * rows do. */
bool ebb_is_begun(const ebb_tensor *x, const ebb_tensor *y);

/* "its values are those of a mask": a clause; "" for DRAWN. */
const char *ebb_look_words(ebb_look look);
