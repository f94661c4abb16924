/* graph.h: what all graphs of cuDNN share: the library, tensors, windows, and which tensor of a call
 * plays which role.
 *
 * cuDNN takes a graph of operations whose inner tensors need not exist ("virtual"), and answers
 * with kernels that compute all of it. Nothing here knows of ebb's nodes.
 *
 *     shapes.h: sizes -> graph (internal.h: how one is built) -> plan.h: graph -> kernels
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "onnx/words/tensor.h"

EBB_C_BEGIN

enum { EBB_CUDNN_RANK = 5, EBB_CUDNN_AXES = 3 }; /* N, C and at most three spatial axes */

/* ---- the library ---- */

/* Opens libcudnn.so.9, once a process; the file named by $EBB_CUDNN where that is set. EBB_DEVICE,
 * saying what to install, where there is none or it is older than what the graphs need. All
 * functions below call it. */
ebb_status ebb_cudnn_open(void);

/* 91900 for 9.19.0; 0 before ebb_cudnn_open() succeeded. */
int64_t ebb_cudnn_version(void);

/* A handle for the current device: what plan.h calls handle. The caller makes the device current
 * before, and drops the handle after the last plan that used it. stream: a cudaStream_t, or NULL. */
ebb_status ebb_cudnn_handle_new(void **handle, void *stream);
void ebb_cudnn_handle_free(void *handle);

/* ---- tensors ---- */

/* dims are in cuDNN's order whatever the layout: N, C, spatial...; strides count elements. */
typedef struct ebb_cudnn_tensor {
    ebb_dtype dtype; /* EBB_BOOL: packed, eight channels to a byte, see shapes.h */
    int rank;
    int64_t dims[EBB_CUDNN_RANK], strides[EBB_CUDNN_RANK];
} ebb_cudnn_tensor;

/* The roles of tensors in memory, by which pointers are given. One number means the same in every
 * graph. MASK: y > 0. ADDED: the residual. INVSTD: 1 / sqrt(variance + epsilon). Float32 and a number
 * a row of scores: STATS, the log of the sum of exponents; MAX, the largest score; SUM, the sum of
 * exponents of scores less that; ROW_SUMS, scratch of attention backward. KEPT, of dropout: 0 or 1
 * for each score. */
// clang-format off
#define EBB_CUDNN_ROLE_LIST(ROLE)                                                            \
    ROLE(X) ROLE(W) ROLE(BIAS) ROLE(Y) ROLE(MASK) ROLE(ADDED)                                \
    ROLE(DY) ROLE(DX) ROLE(DW) ROLE(DADDED) ROLE(SCALE) ROLE(DSCALE) ROLE(DBIAS)             \
    ROLE(MEAN) ROLE(INVSTD) ROLE(Q) ROLE(K) ROLE(V) ROLE(O) ROLE(STATS) ROLE(MAX) ROLE(SUM)  \
    ROLE(DO) ROLE(DQ) ROLE(DK) ROLE(DV) ROLE(ROW_SUMS) ROLE(KEPT)
// clang-format on
#define EBB_CUDNN_ROLE_NUMBER(name) EBB_CUDNN_##name,
typedef enum ebb_cudnn_role {
    EBB_CUDNN_NONE,
    EBB_CUDNN_ROLE_LIST(EBB_CUDNN_ROLE_NUMBER) EBB_CUDNN_ROLES
} ebb_cudnn_role;

/* What windows do along the spatial axes, of convolutions and pools. */
typedef struct ebb_cudnn_window {
    int spatial;                  /* 1..3 */
    int64_t size[EBB_CUDNN_AXES]; /* of a pool; convolutions read it off the filter */
    int64_t stride[EBB_CUDNN_AXES], dilation[EBB_CUDNN_AXES];
    int64_t before[EBB_CUDNN_AXES], after[EBB_CUDNN_AXES]; /* padding */
} ebb_cudnn_window;

typedef enum ebb_cudnn_pool_kind {
    EBB_CUDNN_MAX_POOL,
    EBB_CUDNN_AVERAGE_POOL,       /* padding counts */
    EBB_CUDNN_AVERAGE_POOL_INSIDE /* padding does not count */
} ebb_cudnn_pool_kind;

/* ---- a graph ---- */

typedef struct ebb_cudnn_graph ebb_cudnn_graph;

/* NULL is fine. */
void ebb_cudnn_graph_free(ebb_cudnn_graph *graph);

/* Bytes that a tensor in memory spans; 0 where the graph has no such role. */
int64_t ebb_cudnn_role_bytes(const ebb_cudnn_graph *graph, ebb_cudnn_role role);

EBB_C_END
