/* plan.h: which of cuDNN's kernels compute a graph, and running them.
 *
 * For a finalised graph cuDNN's heuristics name configurations (an engine and its knobs), best
 * first; those that the rules forbid go; of the rest the first that can be made a plan is taken. A
 * plan knows its workspace before anything runs:
 *
 *     graph ── heuristics A, then FALLBACK ──> configurations ── rules ──> plan ──> run
 *
 * float32 is float32 unless TF32 is allowed: no Winograd, no FFT; sums are in float32 and in one
 * order, so that every run gives the same bits.
 *
 * The device is either the present one (a handle) or a described one (device.h), for which the
 * workspace is exact and nothing can be run.
 */
#pragma once

#include "kernels/cuda/library/cudnn/device.h"
#include "kernels/cuda/library/cudnn/graph.h"

EBB_C_BEGIN

/* Whether kernels that are compiled when a plan is made can be planned for a described device. They
 * need the driver's library, or the toolkit's stub of it, which has its name and does nothing:
 * where there is no libcuda.so.1, the file in $EBB_CUDA_STUB or the stub of a toolkit in its usual
 * place is opened instead. False: only what is compiled already can be planned. */
bool ebb_cudnn_compiles(void);

typedef struct ebb_cudnn_target {
    void *handle;                   /* the present device, or NULL */
    const ebb_cudnn_device *device; /* a described one, where handle is NULL */
} ebb_cudnn_target;

typedef struct ebb_cudnn_rules {
    bool tf32;               /* float32 may be rounded to ten bits before it is multiplied */
    int64_t workspace_bytes; /* at most; negative: any */
} ebb_cudnn_rules;

#define EBB_CUDNN_EXACT ((ebb_cudnn_rules){.workspace_bytes = -1})

typedef struct ebb_cudnn_choice {
    int64_t workspace_bytes;
    uint32_t numeric; /* bits 1 << CUDNN_NUMERICAL_NOTE_... */
    bool runs; /* false: a described device whose kernel was compiled but could not be loaded */
} ebb_cudnn_choice;

typedef struct ebb_cudnn_plan ebb_cudnn_plan;

/* Makes the first plan that the rules admit, or says EBB_UNSUPPORTED with what cuDNN said of the last
 * configuration and how many the rules refused; where memory or the device failed any other code,
 * and to ask again may help. Takes over the graph, whatever comes of it. */
ebb_status ebb_cudnn_plan_make(ebb_cudnn_plan **plan, ebb_cudnn_graph *graph,
                               const ebb_cudnn_target *target, const ebb_cudnn_rules *rules);

const ebb_cudnn_choice *ebb_cudnn_plan_choice(const ebb_cudnn_plan *plan);
void ebb_cudnn_plan_free(ebb_cudnn_plan *plan);

/* Enqueues on the handle's stream. roles[i] lies at pointers[i], on the device; numbers by value
 * are the plan's own. workspace: 256-aligned, choice->workspace_bytes long. EBB_RUNTIME. */
ebb_status ebb_cudnn_plan_run(const ebb_cudnn_plan *plan, void *handle, int count,
                              const int64_t *roles, void *const *pointers, void *workspace);

EBB_C_END
