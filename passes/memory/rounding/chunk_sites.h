/* chunk_sites.h: a linear layer, the cross-entropy of its scores, and the gradients of both, as
 * they lie around in a graph: what chunk-loss makes one node of.
 */
#ifndef EBB_PASSES_MEMORY_ROUNDING_CHUNK_SITES_H
#define EBB_PASSES_MEMORY_ROUNDING_CHUNK_SITES_H

#include "passes/common.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_CHUNK_CUTS = 4 };

/* A Slice on the way from the layer to the loss, as it is done to x: [rows..., inner]. */
typedef struct ebb_chunk_cut {
    ebb_node node;
    int64_t starts[EBB_MAX_RANK], ends[EBB_MAX_RANK], axes[EBB_MAX_RANK], steps[EBB_MAX_RANK];
    int count;
    ebb_type from, to; /* the sliced value and the slice, as x has them */
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
    bool turned;          /* w is [classes, inner] */
    bool widened;         /* scores in 16 bits, their loss in float32 */
    double alpha;
    ebb_chunk_cut cuts[EBB_CHUNK_CUTS]; /* from the loss to the layer */
    int cut_count;
    /* downwards */
    ebb_value dx, dw, dbias; /* none: nobody asks */
    int64_t block;
} ebb_chunk_site;

/* Fills the site of a cross-entropy, all but `block`. NULL; or why it is none, a full clause. */
const char *ebb_chunk_site_find(ebb_chunk_site *s, ebb_edit *e, ebb_node loss);

extern const char ebb_chunk_unknown_shape[];

#ifdef __cplusplus
}
#endif
#endif
