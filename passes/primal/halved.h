/* halved.h: which nodes compute in 16 bits. precision.c says what is meant and casts between. */
#pragma once

#include "rewrite/rewrite.h"

typedef struct ebb_halved {
    ebb_edit *e;
    ebb_graph *g;
    size_t value_count, node_count; /* before any cast */
    bool *trains, *activation;      /* by value */
    bool *active, *low, *of_loss;   /* by node; active: reads an activation */
    ebb_node *order;                /* of all nodes but those of the update */
    size_t count;
} ebb_halved;

/* Fills all of them, in scratch memory of e. Reports what is found, and what stays float32 and why;
 * the option keep= of e names what shall. */
ebb_status ebb_halved_choose(ebb_halved *h, ebb_edit *e);

bool ebb_is_f32(const ebb_graph *g, ebb_value v); /* a tensor of float32 */
bool ebb_halved_takes_float32(ebb_op op,
                              uint32_t slot); /* that input, whatever the node computes in */
bool ebb_halved_gives_float32(ebb_op op, uint32_t slot); /* likewise that output */
bool ebb_halved_moves(ebb_op op);                        /* is as its data is */
bool ebb_halved_counts(ebb_op op); /* computes, so that the report counts it */
