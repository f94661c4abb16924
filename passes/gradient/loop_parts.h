/* loop_parts.h: what loop.c has found of a loop, for loop_parts.c, which parts its forward from its backward. */
#pragma once

#include "onnx/graph/scan.h"
#include "passes/gradient/loop.h"

typedef enum ebb_loop_source {
    EBB_LOOP_STACKED, /* a new output of the forward */
    EBB_LOOP_SCANNED, /* scanned input k */
    EBB_LOOP_KEPT,    /* what is put together as scanned output k anyway */
} ebb_loop_source;

typedef struct ebb_loop_saved { /* what the backward reads of a step */
    ebb_value v;                /* in the joint graph, and by the same id in its copies */
    ebb_loop_source from;
    uint32_t k;
} ebb_loop_saved;

/* Operands of the backward: in its body, and in the graph around. States come first. */
typedef struct ebb_loop_operands {
    ebb_value *in, *outside;
    int64_t *axes, *directions; /* of what is scanned */
    uint32_t count, states;
    ebb_value *out;
    int64_t *out_axes, *out_directions;
    uint32_t out_count;
} ebb_loop_operands;

typedef struct ebb_loop_back {
    ebb_reverse *r;
    ebb_node n;
    ebb_scan s;
    const char *name;
    ebb_graph *joint; /* forward and backward of one step; then the backward alone */
    ebb_edit inner;
    ebb_report unread;
    ebb_reverse v;       /* the reverse mode of one step */
    const ebb_value *dy; /* of the node's outputs */
    ebb_value *inputs;   /* of the body, as they were */
    ebb_value *given; /* by output of the body: its gradient, an input of the joint graph; none */
    ebb_value *sum;   /* by captured value: the sum so far, the same */
    ebb_value *equal; /* by scanned output: what it is, seen through Identity */
    size_t forward_nodes; /* of the joint graph: those of the forward have lower ids */
    ebb_captured_grad *captured;
    size_t captured_count;
    ebb_loop_saved *list;
    size_t count, capacity;
    ebb_loop_operands o;
} ebb_loop_back;

/* With o's states and outputs, and the list of what is saved: the forward is the node with more outputs,
 * the joint graph the body of a new one. made: by output of that. */
ebb_status ebb_loop_part(ebb_loop_back *l, ebb_value *made);
