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

/* The next node is such an exchange as n. */
static inline void ebb_with_exchange_of(ebb_build *b, ebb_node n)
{
    const ebb_attrs attrs = ebb_node_attrs(b->g, n);
    const int64_t library = ebb_attr_int(&attrs, "library", 0);
    ebb_with_int(b, "ranks", ebb_ranks_of(b->g, n));
    if (library != 0)
        ebb_with_int(b, "library", library);
}

/* And the step. */
static inline int64_t ebb_ranks_in(const ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        if (ebb_op_has(ebb_node_of(g, n)->op, EBB_TOGETHER))
            return ebb_ranks_of(g, n);
    return 1;
}

/* Of two nodes the one that comes first; one of them may be none. */
static inline ebb_node ebb_earlier(ebb_node a, ebb_node b, const uint32_t *positions)
{
    return a.i == 0 || (b.i != 0 && positions[b.i] < positions[a.i]) ? b : a;
}

/* The first node that reads v; none: the step ends before. */
static inline ebb_node ebb_first_reader(const ebb_graph *g, ebb_value v, const uint32_t *positions)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    ebb_node first = EBB_NO_NODE;
    for (uint32_t u = 0; u < info->use_count; u++)
        first = ebb_earlier(first, info->uses[u].node, positions);
    return first;
}

/* Or nothing says what it starts as: a skeleton's, whose weights come later if they do. */
bool ebb_starts_as_zeros(const ebb_graph *g, ebb_value v);
/* Initializer v gets the type `part` and starts as this process's part of what it starts as now. Zeros are as many
 * fewer; else the initialization graph gets the bytes, or draws them, and cuts them. */
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
