/* chunk_sites.h: a linear layer, the cross-entropy of its scores, and the gradients of both, as
 * they lie around in a graph: what chunk-loss makes one node of.
 */
#pragma once

#include "passes/common.h"

enum { EBB_CHUNK_CUTS = 4 };

/* A Slice on the way from the layer to the loss, as it is done to rows of whatever lies beside the layer: the
 * last dim of `from` and `to` is not theirs to say. */
typedef struct ebb_chunk_cut {
    ebb_node node;
    int64_t starts[EBB_MAX_RANK], ends[EBB_MAX_RANK], axes[EBB_MAX_RANK], steps[EBB_MAX_RANK];
    int count;
    ebb_type from, to; /* the sliced value and the slice */
    int axis;          /* the classes' in the sliced value */
} ebb_chunk_cut;

typedef struct ebb_chunk_site {
    ebb_edit *e;
    ebb_graph *g;
    ebb_node loss, grad; /* the cross-entropy and its gradient */
    int64_t classes;
    /* upwards */
    ebb_node layer;
    ebb_value x, w, bias; /* bias: as it was given, of any rank; none: there is none */
    ebb_value low, up;    /* of its adapter; none: it has none */
    bool turned;          /* w is [classes, inner] */
    bool frozen;  /* w is the codes of a matrix in few bits, the layer's other inputs say which */
    bool widened; /* scores in 16 bits, their loss in float32 */
    double alpha, low_alpha;
    ebb_chunk_cut cuts[EBB_CHUNK_CUTS]; /* from the loss to the layer */
    int cut_count;
    /* downwards */
    ebb_value dx, dw, dbias, dlow, dup; /* none: nobody asks */
    int64_t block;
} ebb_chunk_site;

/* Fills the site of a cross-entropy, all but `block`. NULL; or why it is none, a full clause. */
const char *ebb_chunk_site_find(ebb_chunk_site *s, ebb_edit *e, ebb_node loss);

/* Its second part: dx, dw, dbias, dlow and dup (chunk_gradients.c). */
const char *ebb_chunk_find_gradients(ebb_chunk_site *s);

/* What comes of the blocks; none: nobody asks. */
typedef struct ebb_chunk_made {
    ebb_value loss, dx, dw, dbias, dlow, dup;
} ebb_chunk_made;

/* The blocks as nodes (chunk_blocks.c). */
ebb_status ebb_chunk_put_blocks(const ebb_chunk_site *s, ebb_build *b, ebb_chunk_made *made);

/* x, or what lies beside it, with the rows that the loss counts; a gradient of those as that of all. */
ebb_value ebb_chunk_cut_rows(const ebb_chunk_site *s, ebb_build *b, ebb_value x);
ebb_value ebb_chunk_uncut_rows(const ebb_chunk_site *s, ebb_build *b, ebb_value dx,
                               int64_t columns);

/* Where the classes' axis of one type is in another, through a view or a Transpose. -1: nowhere. */
int ebb_chunk_axis_in(const ebb_type *to, const ebb_type *from, int axis);
int ebb_chunk_axis_transposed(const ebb_graph *g, ebb_node n, int axis, bool upwards);

extern const char ebb_chunk_unknown_shape[];
