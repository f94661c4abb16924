/* facts.h: the integers of shape arithmetic, as far as they are known before anything is computed.
 *
 * Shape(x) of a [batch, 8] is {batch?, 8}: its second element is known and the first is known to be
 * the size called "batch". Such short lists are followed through Gather, Concat, Add and their
 * like, so that Reshape(x, Concat(Shape(x)[0], -1)) has a type even while batch is open. Part of
 * infer.c; nothing in the graph is changed.
 */
#pragma once

#include "onnx/graph/graph.h"

enum { EBB_FACT_MAX = 64 }; /* elements of a list that is followed */

typedef struct ebb_fact_item {
    int64_t value;  /* where known */
    ebb_str symbol; /* where not known: the size's name, or 0 */
    bool known;
    bool size; /* not known, but not negative */
} ebb_fact_item;

typedef struct ebb_fact {
    const ebb_fact_item *items; /* NULL: nothing is known */
    int count;
    int rank;                 /* 0 or 1 */
    const ebb_tensor *tensor; /* all items, where all are known */
} ebb_fact;

typedef struct ebb_facts {
    const ebb_graph *g;
    ebb_arena *arena;
    const ebb_fact **list; /* by value id; NULL: nothing was learned, and no constant looked at */
    size_t count;
} ebb_facts;

static inline ebb_fact_item ebb_fact_known(int64_t value)
{
    return (ebb_fact_item){.value = value, .known = true};
}
static inline bool ebb_fact_is(ebb_fact_item item, int64_t value)
{
    return item.known && item.value == value;
}

ebb_status ebb_facts_init(ebb_facts *facts, const ebb_graph *g, ebb_arena *arena);

/* What was learned of v, as a constant. NULL: nothing, or not all of it is known. */
static inline const ebb_tensor *ebb_facts_learned(const ebb_facts *facts, ebb_value v)
{
    const ebb_fact *fact = v.i < facts->count ? facts->list[v.i] : NULL;
    return fact != NULL ? fact->tensor : NULL;
}

/* The value as a constant: the graph's, or found by following. NULL: not known. */
const ebb_tensor *ebb_facts_tensor(ebb_facts *facts, ebb_value v);

/* The fact about input i; NULL: none. */
const ebb_fact *ebb_fact_of_input(ebb_facts *facts, ebb_node n, uint32_t i);

/* facts_refine.c: fills dims that the node's own rule left open. */
void ebb_facts_refine(ebb_facts *facts, ebb_node n, ebb_type *out);

/* What the node's first output holds. Its type is known by now. */
ebb_status ebb_facts_learn(ebb_facts *facts, ebb_node n);
