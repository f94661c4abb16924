/* batch_split.h: a step that is computed in parts of its batch: by one process one after another (pass
 * micro-batch), or each by a process of its own (pass data-parallel).
 *
 *   batch_forms.c   which form each value has (batch_rules.h)
 *   batch_split.c   one node of one part
 *   batch_step.c    all of them, in their order
 *
 * A process has its part alone: graph inputs come in PARTS, and so does what is computed of them, labels
 * too. It computes part 0 of what it has, which is any part of the whole, and sums are those of the
 * group. What is made of labels alone and adds up (how many count) is needed by other nodes of the part, and
 * so are statistics that rows are computed of: such a sum is made at once, and WHOLE from there on. Where labels are
 * mixed (a mask that is looked up in all rows in one), each process gets those of all and goes on with them WHOLE. */
#pragma once

#include "passes/memory/rounding/batch_rules.h"

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
    bool spread; /* each by a process of its own */
    bool norm_per_part;
    bool again;   /* what is computed now was computed before: it is of the backward */
    int axis;     /* of the batch in graph inputs, */
    int64_t rows; /* and how many it has there */
    size_t value_count, node_count;
    ebb_batch_form *form; /* by value id */
    bool *depends;        /* by value id: on the batch */
    bool *labels;         /* by value: whole, and depends on inputs without floats alone */
    bool *needed;         /* by value id: its total */
    bool *clones;         /* by node id: computed part by part */
    bool *later;          /* by node id: when all parts are done */
    bool *joins;          /* by node id: it mixes labels, so each process has those of all */
    ebb_value
        *whole; /* by value id: the labels of all processes; what parts were put together to */
    ebb_batch_node **rule;   /* by node id: of those computed in parts */
    ebb_value **part;        /* by value id: what each part has */
    ebb_value *sum;          /* by value id: the running sum; that of the group */
    bool *early;             /* by value id: the group's sum, which parts read */
    ebb_value *look;         /* values to look at */
    uint32_t *looked, looks; /* by node id: in which look it was seen last; how many there were */
    ebb_value rank;          /* of this process; none: nobody has asked */
    ebb_value key, key_of;   /* of random bits, last asked for; of which key and part */
    int64_t key_part;
    ebb_batch_slices *slices; /* by value id */
    ebb_batch_count *totals;
    size_t total_count;
    ebb_node end; /* new nodes go before it */
    ebb_build b;
} ebb_batch_split;

/* Makes the step one of parts, or declines; option `require`: EBB_UNSUPPORTED where it would. The caller
 * says e, g, parts, spread and norm_per_part. */
ebb_status ebb_batch_step(ebb_batch_split *s);

/* Room, and the forms of graph inputs. *why as below. */
ebb_status ebb_batch_begin(ebb_batch_split *s, const char **why);
/* The pass has run on this step. */
bool ebb_batch_is_split(const ebb_edit *e);
bool ebb_batch_has_floats(const ebb_graph *g, ebb_node n);
/* Room for the parts of what n makes. */
ebb_status ebb_batch_make_room(ebb_batch_split *s, ebb_node n);

/* *why: why the step cannot be computed in parts, a literal, and at which node; or NULL. */
ebb_status ebb_batch_analyse(ebb_batch_split *s, const char **why, ebb_node *at);

/* Emits part i of node n before s->end, and adds its shares to running sums. */
ebb_status ebb_batch_compute(ebb_batch_split *s, ebb_node n, int64_t i);

/* The whole of a value whose parts are all there, put together before s->end, once. */
ebb_status ebb_batch_whole(ebb_batch_split *s, ebb_value v, ebb_value *whole);

/* What stands for a value that was computed in parts, outside of them, takes its place. */
ebb_status ebb_batch_put_together(ebb_batch_split *s, ebb_value v);

/* Which input of a loss, or of its gradient, the labels are. */
uint32_t ebb_batch_labels(ebb_op op);
