/* cudnn_plans.h: cuDNN's plans for calls of ebb: for which device, and each made once a process.
 *
 *     call ── cudnn_conv.c ... ──> ask (sizes) ──> here: this process, else cuDNN
 *
 * Plans are for the device that is here, or for a described one, whose workspaces are then exact
 * though nothing can run. They live until the process ends: calls share them.
 */
#pragma once

#include "kernels/cuda/library/cudnn/plan.h"
#include "kernels/cuda/library/cudnn/shapes.h"
#include "kernels/kernels.h"

EBB_C_BEGIN

/* From now on plans are for the described device of that name; NULL: for the one that is here.
 * EBB_USAGE lists the known names. */
ebb_status ebb_cuda_cudnn_describe(const char *name);

/* Are they for a described device? Such plans cannot run, whatever is here. */
bool ebb_cuda_cudnn_described(void);

/* Adds "cuDNN 9.19.0", or why there is none, to the list in text. device: one is here, and to use
 * it the library must be able to. */
void ebb_cuda_cudnn_library(char *text, size_t size, bool device);

typedef enum ebb_cuda_cudnn_kind { /* the functions of shapes.h */
                                   EBB_ASK_CONV,
                                   EBB_ASK_CONV_DATA,
                                   EBB_ASK_CONV_FILTER,
                                   EBB_ASK_POOL,
                                   EBB_ASK_POOL_GRADIENT,
                                   EBB_ASK_BATCH_NORM,
                                   EBB_ASK_BATCH_NORM_BACKWARD,
                                   EBB_ASK_ATTENTION,
                                   EBB_ASK_ATTENTION_BACKWARD
} ebb_cuda_cudnn_kind;

typedef struct ebb_cuda_cudnn_ask { /* cleared first: equal bytes are equal plans */
    ebb_cuda_cudnn_kind kind;
    unsigned with;
    union {
        ebb_cudnn_conv_sizes conv;
        ebb_cudnn_pool_sizes pool;
        ebb_cudnn_batch_norm_sizes norm;
        ebb_cudnn_attention_sizes attention;
    } of;
} ebb_cuda_cudnn_ask;

/* The plan, or NULL and in *why what stands against it; *why lives as long as the process. float32
 * is computed as float32 unless ebb_cuda_tf32; sums are in one order always. */
const ebb_cudnn_plan *ebb_cuda_cudnn_plan(const char **why, const ebb_cuda_cudnn_ask *ask);

EBB_C_END
