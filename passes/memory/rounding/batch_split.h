/* batch_split.h: a step that is computed in parts of its batch: what micro_batch.c decides, and how
 * batch_split.c makes nodes of it. */
#ifndef EBB_PASSES_MEMORY_ROUNDING_BATCH_SPLIT_H
#define EBB_PASSES_MEMORY_ROUNDING_BATCH_SPLIT_H

#include "passes/memory/rounding/batch_rules.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_batch_slices { /* slices of a whole value */
    ebb_batch_form form;          /* how; outer 0: none yet */
    ebb_value *part;
} ebb_batch_slices;

typedef struct ebb_batch_count { /* what the labels of a loss count */
    ebb_value labels, weights, value;
    int64_t ignored;
    bool ignores;
} ebb_batch_count;

typedef struct ebb_batch_split {
    ebb_edit *e;
    ebb_graph *g;
    int64_t parts;
    int axis; /* of the batch in graph inputs */
    size_t value_count, node_count;
    ebb_batch_form *form;     /* by value id */
    bool *depends;            /* by value id: on the batch */
    bool *labels;             /* by value: whole, and depends on inputs without floats alone */
    bool *needed;             /* by value id: its total */
    bool *clones;             /* by node id: computed part by part */
    bool *later;              /* by node id: when all parts are done */
    ebb_batch_node **rule;    /* by node id: of those computed in parts */
    ebb_value **part;         /* by value id: what each part has */
    ebb_value *sum;           /* by value id: the running sum */
    ebb_batch_slices *slices; /* by value id */
    ebb_batch_count *totals;
    size_t total_count;
    ebb_node end; /* new nodes go before it */
    ebb_build b;
} ebb_batch_split;

/* Emits part i of node n before s->end, and adds its shares to running sums. */
ebb_status ebb_batch_compute(ebb_batch_split *s, ebb_node n, int64_t i);

/* What stands for a value that was computed in parts, outside of them, takes its place. */
ebb_status ebb_batch_put_together(ebb_batch_split *s, ebb_value v);

/* Which input of a loss, or of its gradient, the labels are. */
uint32_t ebb_batch_labels(ebb_op op);

#ifdef __cplusplus
}
#endif
#endif
