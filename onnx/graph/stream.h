/* stream.h: may a decoding node be read in tiles where it stands? For verify, the stream pass and
 * the executor; what the operators allow is in tile.h. */
#pragma once

#include "onnx/graph/graph.h"

/* NULL, or why n's output has to be whole: a full clause. *reader: who reads it, and where. */
const char *ebb_stream_refuses(const ebb_graph *g, ebb_node n, ebb_use *reader);

/* The producer of v, where v is never whole; else none. */
static inline ebb_node ebb_stream_source(const ebb_graph *g, ebb_value v)
{
    ebb_node n = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
    return n.i != 0 && ebb_node_of(g, n)->tile_rows != 0 ? n : EBB_NO_NODE;
}
