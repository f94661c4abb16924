/* body.h: the body of a function, a branch or a loop, put where it runs. */
#pragma once

#include "rewrite/rewrite.h"

enum { EBB_BODY_NODES = 1 << 20 }; /* of all copies in a run: small bodies can nest to any size */

/* Copies of one body of a node of e->g. Initializers and Constants come over once, with the first
 * copy. */
typedef struct ebb_body {
    const ebb_graph *graph;
    ebb_value *map;     /* by value id of the body: what it is in this copy */
    ebb_value *weights; /* by value id of the body: its initializers and Constants */
} ebb_body;

ebb_status ebb_body_open(ebb_edit *e, ebb_body *body, const ebb_graph *graph);

/* A copy of all nodes before `before`, with names under `place` ("loop/3"), phase and provenance of
 * `before`, and types inferred. The body's first `given` inputs are in[0..given), those behind have
 * initializers. What the body makes is in body->map afterwards. *nodes counts. */
ebb_status ebb_body_put(ebb_edit *e, ebb_body *body, ebb_node before, const char *place,
                        const ebb_value *in, size_t given, size_t *nodes);

/* Node n of `from` before `before`, without its attributes: its inputs are map's, its outputs are entered there; names
 * under `place`, phase and words of `before`. hints: what the file says of its outputs holds. */
ebb_status ebb_body_put_node(ebb_edit *e, ebb_node *put, const ebb_graph *from, ebb_node n,
                             ebb_node before, const char *place, ebb_value *map, bool hints);

/* The body's output k in this copy; a value of e->g where the body hands one through. */
ebb_value ebb_body_output(const ebb_body *body, size_t k);

/* Bodies within a copied attribute: what stood for values of `from` stands for map[...] of g. */
ebb_status ebb_body_copy_graphs(ebb_edit *e, ebb_attr *attr, const ebb_value *map,
                                const ebb_graph *from);

/* made[k] takes the place and the name of output k of n, and n goes. `before`: values with smaller
 * ids were there before and keep their names. */
ebb_status ebb_body_stand_in(ebb_edit *e, ebb_node n, const ebb_value *made, uint32_t count,
                             size_t before);
