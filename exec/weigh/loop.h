/* loop.h: a Scan as one call: the plan of its body, and where the body's values lie.
 *
 * The body is planned as a graph of its own, by the same ruler; its arena is the workspace of the call,
 * with a second place for each state behind it. All else lies outside, and is read and written there:
 *
 *   what the body reads by name        where it lies outside
 *   initializers of the body           in the model
 *   a slice of what is scanned         in the whole, where its bytes are together; else a copy in the arena
 *   a slice of what is made            the same
 *   a state                            by turns where the node's output lies and in the second place, so
 *                                      that the last step writes the output; a body that writes the new
 *                                      state over the old one needs no second place
 *
 * Only these addresses change from step to step. A loop within the body is one of its calls: its operands
 * lie in these places too, so it looks up their addresses each time it begins. Pass unroll makes sure
 * that each output of a body is made by a node of its own, and so has an address of its own.
 */
#pragma once

#include "exec/weigh/plan.h"
#include "onnx/graph/scan.h"

typedef enum ebb_loop_where { /* of a value of the body */
                              EBB_LOOP_ARENA = 0,
                              EBB_LOOP_FIXED, /* outside, or in the model: item k of `fixed` */
                              EBB_LOOP_OLD,   /* state k before the step */
                              EBB_LOOP_NEW,   /* and behind it */
                              EBB_LOOP_READ,  /* slice of scanned input k */
                              EBB_LOOP_MADE,  /* slice of scanned output k */
} ebb_loop_where;

typedef struct ebb_loop {
    ebb_scan scan;
    ebb_plan plan; /* of the body */
    struct ebb_loop_spot {
        ebb_loop_where where;
        uint32_t k;
    } * spots; /* by value id of the body */
    struct ebb_loop_fixed {
        ebb_value outside; /* of the graph around; none: in the model */
        void *data;
    } * fixed;
    uint32_t fixed_count;
    struct ebb_loop_state {
        size_t bytes;
        size_t places[2]; /* in the workspace, from 1; 0: where the output lies */
        bool in_place;
        const void *first; /* and the address of the old and the new one in a step */
        void *old, *new;
    } * states;
    struct ebb_loop_slices {
        ebb_slices of;
        ebb_value inner;
        bool together; /* read and written where the whole lies */
        bool unread;   /* nobody wants the whole: a place in the arena takes the slices */
        void *whole, *slice;
    } * read, *made;
    struct ebb_loop_move { /* an operand whose address changes */
        void **data;
        struct ebb_loop_spot spot;
    } * moves;
    uint32_t move_count;
    /* Calls that draw random numbers, and loops with such calls. A number depends on the name of its
     * node; in step t that is the name which the node's copy of an unrolled loop would have. */
    struct ebb_loop_draw {
        ebb_call *call;
        const char *name;
    } * draws;
    uint32_t draw_count;
    const char *name; /* how the names of copies begin */
    uint64_t before;  /* in a loop within a loop: the hash of the outer name and its step */
    size_t workspace_bytes;
} ebb_loop;

/* Plans the body of a Scan: call's kernel, and its state, an ebb_loop in arena memory. EBB_UNSUPPORTED
 * says why it cannot be run. */
ebb_status ebb_loop_plan(ebb_call *call, ebb_arena *arena, const ebb_graph *g, ebb_node n,
                         const ebb_setting *setting);
/* The loop that a call runs, or NULL. The executor fills `fixed` of the outside, once. */
ebb_loop *ebb_loop_of(const ebb_call *call);

extern const ebb_kernel ebb_loop_kernel; /* exec/run/loop.c */
