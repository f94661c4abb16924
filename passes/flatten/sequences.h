/* sequences.h: sequences whose lengths are known, as their tensors. */
#pragma once

#include "rewrite/rewrite.h"

/* What a walk over a graph knows of its sequences. */
typedef struct ebb_sequences {
    ebb_edit *e;
    ebb_graph *g;
    struct ebb_sequence *lists; /* by value id; NULL: there are no sequences */
    size_t value_count;
    size_t copied; /* tensors, from a sequence to the next */
} ebb_sequences;

ebb_status ebb_sequences_init(ebb_sequences *r, ebb_edit *e);
/* The next node in order. If it reads a sequence that is put together from tensors at known places, what
 * reads it reads those tensors instead, and it goes. Counts what it replaced, and reports the readers that
 * it cannot serve. */
ebb_status ebb_sequences_visit(ebb_sequences *r, ebb_node n);
