/* span.h: which integers an input may hold, by what reads it. */
#pragma once

#include "exec/data/feed/feed.h"
#include "onnx/graph/graph.h"

/* Classes where a loss reads it as labels, rows of a table where Gather does; else not known. */
void ebb_find_span(ebb_span *span, const ebb_graph *g, ebb_value input);
