/* traffic.h: what a step gives to the other processes of its group. */
#ifndef EBB_EXEC_WEIGH_TRAFFIC_H
#define EBB_EXEC_WEIGH_TRAFFIC_H

#include "onnx/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of one process, as kernels/plain/group.c exchanges it. */
typedef struct ebb_traffic {
    int64_t ranks; /* 1: the step is for one */
    uint64_t nodes, exchanges, sent_bytes;
} ebb_traffic;

/* Shapes are known. */
ebb_traffic ebb_traffic_of(const ebb_graph *g);

/* An exchange, or the Wait for one, by so much of the step computed before it. */
typedef struct ebb_traffic_event {
    double at_ns;
    uint64_t exchanges, sent_bytes;
    bool is_beside;   /* the step goes on meanwhile */
    size_t waits_for; /* the event that is waited for, from 1; 0: it is an exchange */
} ebb_traffic_event;

/* In the order of nodes, into memory of the arena. */
ebb_status ebb_traffic_events(ebb_traffic_event **list, size_t *count, const ebb_graph *g,
                              const struct ebb_rates *rates, ebb_arena *arena);

#ifdef __cplusplus
}
#endif
#endif
