/* trial.h: what a step would take in the arena, tried on a copy. For passes that obey a budget. */
#pragma once

#include "passes/budget/planners/problem.h"
#include "passes/pipeline.h"

typedef struct ebb_trial {
    ebb_estimate estimate;   /* with memory shared as the alias pass shares it */
    ebb_remat_source source; /* the graph in numbers */
    uint64_t bytes;          /* what is held to a budget: the arena; without one, the peak */
} ebb_trial;

/* Weighs g as it stands; its marks must be off, and are off afterwards. Arena memory. */
ebb_status ebb_trial_weigh(ebb_trial *trial, ebb_arena *arena, ebb_graph *g, const char *backend);

/* The arena of g as it stands, packed until `enough` bytes do (ebb_estimate_within), and its time. */
ebb_status ebb_trial_measure(ebb_estimate *estimate, ebb_arena *arena, ebb_graph *g,
                             const char *backend, uint64_t enough);

/* Who is alive when in g, with memory shared as the alias pass shares it, and what the estimate says of workspaces and
 * the device. Arena memory. */
ebb_status ebb_trial_memory(ebb_memory *memory, ebb_arena *arena, ebb_graph *g,
                            const ebb_estimate *estimate);

/* What g would take with the schedule applied: *bytes as in ebb_trial, *ns the step's time. g is
 * not changed. */
ebb_status ebb_trial_schedule(uint64_t *bytes, double *ns, const ebb_trial *trial, ebb_graph *g,
                              const ebb_remat_schedule *schedule, const char *backend);
