/* reverse.h: the gradient of one value by others, as nodes. See pass gradient and pass
 * differentiate. */
#pragma once

#include "rewrite/rewrite.h"

typedef struct ebb_no_gradient { /* a node on the way whose gradient cannot be made */
    ebb_node node;
    const char *sentence; /* its label, or what its rule says; scratch memory */
} ebb_no_gradient;

typedef struct ebb_reverse {
    ebb_edit *e;
    ebb_graph *g;
    ebb_build b;        /* where the nodes go */
    ebb_value y;        /* what is differentiated; its gradient is grad[y.i] */
    bool *ys;           /* by value id: what is differentiated instead of y; NULL: y */
    size_t value_count; /* before the backward */
    bool *trains;       /* by value id: what y is differentiated by */
    bool *leaf;         /* by value id: given, whatever makes it; NULL: none */
    bool *wants;        /* depends on one of those */
    bool *counts;       /* y depends on it */
    bool straight;      /* gradients go straight through steps (EBB_STEPS), which else stop them */
    bool again;         /* of the steps of kept loops states alone are kept (loop.c) */
    bool *codes;        /* made by a step from numbers of another dtype; wanted like those */
    ebb_value *grad;    /* the sum so far */
    uint32_t *parts;    /* contributions so far */
    uint32_t *left;     /* uses on the way whose nodes have not been visited yet */
    ebb_node *order;    /* the forward's nodes, as they were */
    size_t node_count;
    ebb_no_gradient *unsupported; /* so far */
    size_t unsupported_count, unsupported_capacity;
    bool nameless; /* gradients are not called x_grad */
    /* NULL, or: what the rule of n is told its inputs are, to be changed (what gets the gradients is
     * not); one contribution to input i of n, to be changed; all contributions to x are in. */
    ebb_status (*reads)(struct ebb_reverse *r, ebb_node n, ebb_value *x);
    ebb_status (*adjust)(struct ebb_reverse *r, ebb_node n, uint32_t i, ebb_value *dx);
    ebb_status (*finish)(struct ebb_reverse *r, ebb_value x);
    void *context; /* of those three */
} ebb_reverse;

/* With e and g set: takes down the nodes before `end` (none: all), those of the update left out.
 * Then the caller sets trains, and y. */
ebb_status ebb_reverse_open(ebb_reverse *r, ebb_node end);
/* Fills wants and counts. */
void ebb_reverse_mark(ebb_reverse *r);
/* Whether the gradient goes through n, then. */
bool ebb_reverse_passes(const ebb_reverse *r, ebb_node n);
/* Nodes on the way whose operator has no rule but a function body become that body. *changed: there
 * were some, so that r must be opened anew; ids of values that they made do not last, names do. In
 * second_order.c. */
ebb_status ebb_reverse_expand(ebb_reverse *r, bool *changed);
/* Whether an operator's body could be differentiated in its place. */
bool ebb_reverse_expands(ebb_op op);
/* Operators on the way without a rule are noted, and all in one error. */
ebb_status ebb_reverse_find_unsupported(ebb_reverse *r);
ebb_status ebb_reverse_say_unsupported(const ebb_reverse *r);
/* Emits the gradients, with b and grad[y.i] set. */
ebb_status ebb_reverse_run(ebb_reverse *r);

/* grad, the gradient of `of`, gets its name: of_grad; part >= 0: of_grad_PART. */
ebb_status ebb_reverse_name(ebb_reverse *r, ebb_value grad, ebb_value of, int part);
