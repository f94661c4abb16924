/* fuse_slices.h, of fuse.c: slices that take a tensor apart. */
#ifndef EBB_PASSES_PRIMAL_FUSE_SLICES_H
#define EBB_PASSES_PRIMAL_FUSE_SLICES_H

#include "rewrite/rewrite.h"

/* Where n is the first of such slices, puts a Split in their place. */
ebb_status ebb_fuse_slices(ebb_edit *e, ebb_node n);

#endif
