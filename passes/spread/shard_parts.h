/* shard_parts.h: what each process has a part of: where the parts come from, and where the whole is put
 * together. */
#pragma once

#include "rewrite/rewrite.h"

/* For how many processes a node is that exchanges with others, or knows of them. */
static inline int64_t ebb_ranks_of(const ebb_graph *g, ebb_node n)
{
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    return ebb_attr_int(&attrs, "ranks", 1);
}

bool ebb_starts_as_zeros(const ebb_graph *g, ebb_value v);
/* Whether initializer v has bytes, or the model's initialization graph draws it. */
bool ebb_has_start(const ebb_graph *g, ebb_value v);
/* Initializer v, which has a start, gets the type `part` and starts as this process's part of what it starts
 * as now. Zeros are as many fewer; else the initialization graph gets the bytes, or draws them, and cuts them. */
ebb_status ebb_shard_start(ebb_graph *g, ebb_value v, const ebb_type *part, int64_t ranks);
/* And back: a part gets the type `whole`, and starts as what it was a part of. */
ebb_status ebb_whole_start(ebb_graph *g, ebb_value v, const ebb_type *whole);

typedef struct ebb_shard_weights {
    ebb_edit *e;
    const ebb_type *
        *whole; /* by value id: what the weight was that is a part now; NULL: it is none */
    const uint32_t *reached;        /* by node id: not 0: it computes with parts */
    size_t value_count, node_count; /* of before */
    int64_t ranks;
    bool once; /* a weight stays whole from its first reader to the last */
} ebb_shard_weights;

/* Whoever reads a weight as a whole gets it put together, and lets it go: the backward's nodes get it anew, and
 * what is made of weights alone (a transposed one) is made anew, too. */
ebb_status ebb_shard_join(const ebb_shard_weights *weights);
