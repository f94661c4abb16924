/* fuse_norm.h, of fuse.c: decomposed LayerNorm and RMSNorm. */
#pragma once

#include "rewrite/rewrite.h"

/* Where node n is the last of such a chain, replaces the chain and sets *done. */
ebb_status ebb_fuse_layer_norm(ebb_edit *e, ebb_node n, bool *done);
ebb_status ebb_fuse_rms_norm(ebb_edit *e, ebb_node n, bool *done);
