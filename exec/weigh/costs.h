/* costs.h: what operators cost on a machine, as measured: a file, and a look-up by node.
 *
 * An entry is a signature (operator, operand types, small constant operands, attributes) with the
 * time that a node of it took within a step. Rates (a fixed time, a time per operation and one per
 * byte) are fitted to the entries of a family (operator and dtype), for signatures that were not
 * measured.
 *
 *     {"schema": "ebb.costs/1", "processor": "...", "processors": 2, "threads": 2, "backend":
 * "cpu", "entries": [{"signature": "Relu(float32[8,4])->(float32[8,4]){}", "family": "Relu
 * float32", "ns": 812.5, "flops": 32, "bytes": 256, "nodes": 3}, ...], "rates": [{"family": "Relu
 * float32", "fixed_ns": 700, "ns_per_flop": 0, "ns_per_byte": 0.02, "entries": 12, "error": 0.08},
 * ...]}
 *
 * Of moves to disk and back, where a folder's were measured, as of a byte (move_time.h):
 *
 *     "disk": {"store": {"alone_ns": 0.3, "beside_ns": 0.5, "taken_ns": 0.2, "processor_ns": 0.3}, "fetch": {...}}
 *
 * Of exchanges with other processes, where `ebb bench --calibrate-comm` measured them (link.h):
 *
 *     "link": {"us": 30, "gb": 1.17}
 *
 * and of how computing slows where so many processes compute at once here:
 *
 *     "crowds": [{"ranks": 4, "threads": 1, "alone_ns": 9.1e6, "together_ns": 2.1e7}]
 *
 * costs.c keeps, reads and writes; costs_ways.c of moves and links; rates.c fits; calibrate.c, calibrate_moves.c,
 * calibrate_link.c and calibrate_crowd.c measure.
 */
#pragma once

#include "exec/weigh/link.h"
#include "exec/weigh/move_time.h"
#include "kernels/away/group.h"
#include "onnx/graph/graph.h"

#include <jansson.h>

typedef struct ebb_cost_entry {
    const char *signature, *family;
    double ns; /* mean over the nodes that were measured */
    double flops, bytes;
    uint64_t nodes;
} ebb_cost_entry;

typedef struct ebb_cost_rate {
    const char *family;
    double fixed_ns, ns_per_flop, ns_per_byte; /* none is negative */
    uint64_t entries;                          /* that it was fitted to */
    double error;                              /* median of |fitted / measured - 1| */
} ebb_cost_rate;

typedef struct ebb_costs {
    ebb_arena arena;
    const char *processor, *backend;
    int processors, threads;
    ebb_cost_entry *entries;
    size_t entry_count, entry_capacity;
    ebb_names signatures; /* id = index + 1 */
    ebb_cost_rate *rates;
    size_t rate_count;
    ebb_names families;     /* of the rates: id = index + 1 */
    bool moves;             /* to disk and back were measured: */
    ebb_move_time ways[2];  /* of a byte */
    double processor_ns[2]; /* what a processor is busy with a byte */
    bool linked;            /* to other processes was measured: */
    ebb_link link;
    ebb_crowd crowds[EBB_GROUP_MOST + 1]; /* by the number of processes */
} ebb_costs;

/* Of this machine, without entries. Both are freed with ebb_costs_free. */
ebb_status ebb_costs_new(ebb_costs **costs, const char *backend, int threads);
/* EBB_IO where it cannot be read; EBB_REJECTED, naming the place, where it is not such a file. */
ebb_status ebb_costs_read(ebb_costs **costs, const char *path);
void ebb_costs_free(ebb_costs *costs); /* NULL is fine */
/* Atomically. */
ebb_status ebb_costs_write(const ebb_costs *costs, const char *path);

/* One more node of graph g that took so long. */
ebb_status ebb_costs_add(ebb_costs *costs, const ebb_graph *g, ebb_node n, double ns);
/* Rates from the entries; those that were there go. */
ebb_status ebb_costs_fit(ebb_costs *costs);

typedef enum ebb_cost_source {
    EBB_COST_UNKNOWN,  /* the file says nothing of this node */
    EBB_COST_MEASURED, /* its signature was measured */
    EBB_COST_RATE,     /* its family was */
} ebb_cost_source;

/* *ns is set unless the source is EBB_COST_UNKNOWN. */
ebb_cost_source ebb_costs_of(const ebb_costs *costs, const ebb_graph *g, ebb_node n, double *ns);

/* costs_ways.c: what was measured of the ways to a disk and to other processes, in the file. */
void ebb_costs_ways_write(json_t *root, const ebb_costs *costs);
ebb_status ebb_costs_ways_read(ebb_costs *costs, const json_t *root);
/* How many times as long what is computed takes beside so many of this machine; 1 where it was not measured. */
double ebb_costs_crowd(const ebb_costs *costs, int64_t ranks);

/* What is measured apart: operator, dtypes and dims of the operands, integer constants of few
 * elements, and attributes by name, without those that choose random numbers. Printable ASCII. */
enum { EBB_SIGNATURE_BYTES = 1024 };
const char *ebb_cost_signature(char text[EBB_SIGNATURE_BYTES], const ebb_graph *g, ebb_node n);

/* The processor's name as the system tells it, printable; "unknown" where it does not. */
const char *ebb_processor_name(char text[128]);

/* ---- rates.c ---- */

typedef struct ebb_cost_sample {
    double ns, flops, bytes;
} ebb_cost_sample;

/* fixed + per_flop * flops + per_byte * bytes, none negative, that comes nearest to the samples in
 * ratio; outliers count little. False: no sample, or no memory. */
bool ebb_rate_fit(ebb_cost_rate *rate, const ebb_cost_sample *samples, size_t count);
double ebb_rate_ns(const ebb_cost_rate *rate, double flops, double bytes);
/* The element behind one of so many parts of the list, which is sorted: 2, the median; 4, the lower quartile. */
double ebb_quantile(double *list, size_t count, size_t parts);

/* ---- calibrate.c ---- */

typedef struct ebb_timing {
    const char *backend; /* NULL: "cpu" */
    uint64_t seed;
    int threads;       /* 0: as many as processors */
    int steps;         /* timed; 0: 7, fewer where they take long */
    bool sweep;        /* the model is one of ours: weights are made up, times taken undisturbed */
    const char *spill; /* moves: the folder; NULL: the usual one */
} ebb_timing;

typedef struct ebb_timed {
    uint64_t nodes, steps;
    double step_ns;  /* lower quartile over the steps */
    double nodes_ns; /* sum over the nodes of the lower quartile of each */
} ebb_timed;

/* Runs steps of the model on random data and adds every node with the lower quartile of its times.
 * Quartiles of parts add up to less than that of the whole where now and then a node is disturbed,
 * so those of a user's model are scaled by step_ns / nodes_ns: what is added adds up to the step. A
 * sweep's steps stand for nobody's, and are left as they are. */
ebb_status ebb_costs_time(ebb_costs *costs, ebb_timed *timed, ebb_model *model,
                          const ebb_timing *options);

/* Weights for a graph whose numbers do not matter: small, and the same in each run. */
ebb_status ebb_costs_fill(ebb_program *program);

/* ---- calibrate_moves.c ---- */

/* Moves bytes to disk and back, by themselves and beside steps of this model, and adds the times, all
 * multiplied by `scale`, as those of nodes are. Nothing where steps are another device's. */
ebb_status ebb_costs_time_moves(ebb_costs *costs, ebb_model *model, const ebb_timing *options,
                                double scale);
