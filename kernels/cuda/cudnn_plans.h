/* cudnn_plans.h: cuDNN's plans for calls of ebb: for which device, and each made once a process.
 *
 *     call ── cudnn_conv.c ──> ask (sizes, direction) ──> here: this process, else cache.h, else
 * cuDNN
 *
 * Plans are for the device that is here, or for a described one, whose workspaces are then exact
 * though nothing can run. They live until the process ends: calls share them.
 */
#ifndef EBB_KERNELS_CUDA_CUDNN_PLANS_H
#define EBB_KERNELS_CUDA_CUDNN_PLANS_H

#include "kernels/cuda/cudnn/plan.h"
#include "kernels/cuda/cudnn/shapes.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From now on plans are for the described device of that name; NULL: for the one that is here.
 * EBB_USAGE lists the known names. */
ebb_status ebb_cuda_cudnn_describe(const char *name);

/* Are they for a described device? Such plans cannot run, whatever is here. */
bool ebb_cuda_cudnn_described(void);

/* The names, ended by NULL. */
extern const char *const ebb_cudnn_described_names[];

/* Adds "cuDNN 9.19.0", or why there is none, to the list in text. */
void ebb_cuda_cudnn_library(char *text, size_t size);

typedef struct ebb_cuda_cudnn_ask { /* equal bytes: equal plans */
    ebb_cudnn_direction way;
    unsigned with;
    ebb_cudnn_conv_sizes sizes;
} ebb_cuda_cudnn_ask;

/* Fills *ask from Conv, ConvTranspose, ConvWeightGrad, channels first or last; or says why cuDNN
 * has nothing for the call whatever the device. A pure function. */
const char *ebb_cuda_cudnn_ask_of(ebb_cuda_cudnn_ask *ask, const ebb_call *call);

/* The plan, or NULL and in *why what stands against it; *why lives as long as the process. float32
 * is computed as float32 unless ebb_cuda_tf32. */
const ebb_cudnn_plan *ebb_cuda_cudnn_plan(const char **why, const ebb_cuda_cudnn_ask *ask);

#ifdef __cplusplus
}
#endif
#endif
