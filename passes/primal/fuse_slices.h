/* fuse_slices.h, of fuse.c: slices that take a tensor apart. */
#pragma once

#include "rewrite/rewrite.h"

/* Where n is the first of such slices, puts a Split in their place. */
ebb_status ebb_fuse_slices(ebb_edit *e, ebb_node n);
