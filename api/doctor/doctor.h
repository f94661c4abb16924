/* doctor.h: what would keep a model from being trained, all of it at once; what `ebb check` says.
 *
 *   model as it was read ─┬─ types.c      nodes that contradict what they read; rules of a graph
 *                         ├─ files.c      dims without size, weights without bytes, opsets
 *                         ├─ buffers.c    what would be trained and should perhaps not be
 *                         ├─ operators.c  not known, or without a kernel
 *                         ├─ exporter.c   what the exporter wrote or lost, and who sees to it
 *       a tidied copy ────┼─ sizes.c      what has no size before it runs
 *                         └─ gradients.c  no gradient, on the way from a parameter to the loss
 *
 * The tidied copy is the model after the passes that `ebb grad` begins with; each runs alone, so
 * that one which fails is a finding and not the end. Gradients are made in it, when nobody needs it
 * any more.
 */
#pragma once

#include "api/api.h"

typedef enum ebb_severity {
    EBB_PROBLEM, /* keeps it from being trained; has a code */
    EBB_WARNING, /* it trains, but not as its author would expect */
    EBB_REMARK,  /* seen, and seen to */
    EBB_SEVERITY_COUNT
} ebb_severity;

enum { EBB_NODES_NAMED = 16 };

typedef struct ebb_finding {
    ebb_severity severity;
    const char *kind; /* "operator", "gradient", "frozen-batch-norm" ... */
    ebb_code code;    /* of a problem: what a verb would end with; else EBB_OK */
    const char *op, *domain;
    int64_t opset;                      /* of that domain; 0: no operator is meant */
    size_t count;                       /* nodes, or whatever `what` speaks of */
    const char *nodes[EBB_NODES_NAMED]; /* the first of them, by label */
    size_t node_count;
    const char *what, *help; /* clauses; help "" where nothing is to be done */
    const char *pass;        /* sees to it, without being asked; "" none */
} ebb_finding;

typedef struct ebb_doctor {
    const ebb_model *model;
    ebb_model *raw;   /* a copy with types as far as they agree */
    ebb_model *tidy;  /* a copy after the passes; NULL: types contradict each other */
    ebb_model *sized; /* a copy of that where open dims have sizes to try; NULL: none fit */
    ebb_report *reports;
    size_t report_count;
    ebb_arena arena;
    ebb_finding *list;
    size_t count, capacity;
} ebb_doctor;

/* A finding to fill, all empty but severity and kind; good until the next. NULL: no memory. */
ebb_finding *ebb_doctor_add(ebb_doctor *d, ebb_severity severity, const char *kind);
/* One more node of it: its label is kept where there is room. */
ebb_status ebb_doctor_node(ebb_doctor *d, ebb_finding *f, const ebb_graph *g, ebb_node n);
/* The finding of this kind about this operator, or a new one that names it. */
ebb_finding *ebb_doctor_about(ebb_doctor *d, ebb_severity severity, const char *kind,
                              const ebb_graph *g, ebb_node n);
/* Whether there is a finding of this kind. */
bool ebb_doctor_found(const ebb_doctor *d, const char *kind);
/* The first line of a status, kept. */
const char *ebb_doctor_sentence(ebb_doctor *d, ebb_status status);

/* doctor.c: all findings; goes with ebb_doctor_fini, whatever comes of it. */
ebb_status ebb_doctor_examine(ebb_doctor *d, const ebb_model *model);
/* What training would end with: EBB_OK where nothing hinders it. */
ebb_code ebb_doctor_code(const ebb_doctor *d);
void ebb_doctor_fini(ebb_doctor *d);

/* types.c: fills raw. */
ebb_status ebb_doctor_types(ebb_doctor *d);
/* exporter.c: fills tidy and reports. */
ebb_status ebb_doctor_tidy(ebb_doctor *d);
/* Runs a pass on a copy; that it ends in an error is a finding. */
ebb_status ebb_doctor_pass(ebb_doctor *d, ebb_model *copy, const char *pass, ebb_report *report);
ebb_status ebb_doctor_exporter(ebb_doctor *d);
/* sizes.c: fills sized. */
ebb_status ebb_doctor_sizes(ebb_doctor *d);
ebb_status ebb_doctor_files(ebb_doctor *d);
/* buffers.c: what of `trains`, by value id, was none of the author's parameters, as it seems. */
ebb_status ebb_doctor_buffers(ebb_doctor *d, const ebb_graph *g, const bool *trains);
ebb_status ebb_doctor_operators(ebb_doctor *d);
ebb_status ebb_doctor_gradients(ebb_doctor *d);
