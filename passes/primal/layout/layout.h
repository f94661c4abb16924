/* layout.h: images with channels last, while pass layout makes them; shared by its files.
 *
 *     v  [N, C, H, W]     the value of the graph, by whose id all is kept
 *     last  [N, H, W, C]  the same image with channels last
 *     flat  [N H W, C]    the bytes of last, as batch norm wants them
 */
#pragma once

#include "passes/common.h"

typedef struct ebb_image { /* what there is of a value; none: not made */
    ebb_value last, flat;
    ebb_value padded;  /* last, with zeros for channels up to a multiple */
    ebb_value operand; /* of a value of lower rank: shaped to be broadcast to images */
    ebb_value instead; /* equal to the value itself: takes its place */
    bool stored;       /* last is an initializer that is to have the value's name */
} ebb_image;

typedef struct ebb_images {
    ebb_edit *e;
    ebb_image *of; /* by value id */
    size_t count;  /* values when the pass began: only these have entries */
    int64_t pad;
    bool stored; /* weights are */
} ebb_images;

/* Four dims, of which all but the first are known and positive. */
bool ebb_is_image(const ebb_graph *g, ebb_value v);

/* weights.c: v, a weight that only convolutions read, or its Cast, with channels last from now
 * on: made of an initializer of its own, which takes over the weight's name when that has gone
 * (ebb_weights_settle). *last is none where there are other readers, or no initializer. */
ebb_status ebb_weight_stored(ebb_images *s, ebb_build *b, ebb_value v, ebb_value *last);
ebb_status ebb_weights_settle(ebb_images *s);

/* The image of v: an entry to read and write. */
ebb_image *ebb_image_of(ebb_images *s, ebb_value v);
static inline bool ebb_has_image(ebb_images *s, ebb_value v)
{
    return v.i != 0 && v.i < s->count && s->of[v.i].last.i != 0;
}

/* v with channels last: made before b's node by a Transpose, or by a Reshape where that does,
 * unless it is there. v is an image. */
ebb_value ebb_image_last(ebb_images *s, ebb_build *b, ebb_value v);
/* The same as a matrix of pixels and channels. */
ebb_value ebb_image_flat(ebb_images *s, ebb_build *b, ebb_value v);
/* `last` in the order of `like`, [N, C, H, W]. */
ebb_value ebb_image_first(ebb_build *b, ebb_value last, const ebb_type *like);

/* The form of node n for images with channels last, where one of its inputs is such: emitted before
 * n, its outputs noted as images or instead of the old ones. NULL, or why there is none: a literal.
 */
const char *ebb_layout_follow(ebb_images *s, ebb_build *b, ebb_node n);

/* Whether n is a Transpose from channels last: what it transposes is then the image of what it
 * makes, and it goes where nobody else reads it. */
bool ebb_layout_comes_last(ebb_images *s, ebb_node n);

/* layout.c: all of it, on e's graph. */
ebb_status ebb_layout_apply(ebb_edit *e, int64_t pad);

/* auto.c: why it would not make a step of e's graph shorter, or NULL; *pad: as the back end wants it. */
ebb_status ebb_layout_pays(const char **why_not, int64_t *pad, ebb_edit *e);
