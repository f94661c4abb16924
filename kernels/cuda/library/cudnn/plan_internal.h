/* plan_internal.h: a plan's insides, for plan.c and plan_text.c. */
#ifndef EBB_KERNELS_CUDA_LIBRARY_CUDNN_PLAN_INTERNAL_H
#define EBB_KERNELS_CUDA_LIBRARY_CUDNN_PLAN_INTERNAL_H

#include "kernels/cuda/library/cudnn/internal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_cudnn_plan {
    ebb_cudnn_graph *graph; /* one owner of it */
    ebb_cudnn_choice choice;
    cudnnBackendDescriptor_t plan;
    cudnnBackendDescriptor_t config; /* NULL of a plan that was read whole */
    /* Where the configuration was made from a choice: */
    cudnnBackendDescriptor_t engine, knob[EBB_CUDNN_KNOBS];
};

/* The described device of a target, as cuDNN has it; NULL, and no error, for the present one. */
ebb_status ebb_cudnn_describe(cudnnBackendDescriptor_t *made, const char *label,
                              const ebb_cudnn_target *target);

/* An empty plan of a graph; and the finalised one, from its configuration or from cuDNN's text. */
ebb_status ebb_cudnn_plan_begin(ebb_cudnn_plan **plan, const ebb_cudnn_graph *graph);
ebb_status ebb_cudnn_plan_finish(ebb_cudnn_plan *plan, const ebb_cudnn_target *target,
                                 const char *json);

#ifdef __cplusplus
}
#endif
#endif
