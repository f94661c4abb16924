/* graph.h: an operation graph of cuDNN in a few lines.
 *
 * cuDNN takes a graph of operations whose inner tensors need not exist ("virtual"), and answers
 * with kernels that compute all of it. This layer builds such graphs and knows nothing of ebb's
 * nodes:
 *
 *     ebb_cudnn_graph *g = ebb_cudnn_graph_new("conv + ReLU");
 *     ebb_cudnn_real(g, EBB_CUDNN_X, &x);
 *     ebb_cudnn_real(g, EBB_CUDNN_W, &w);
 *     int pre = ebb_cudnn_virtual(g, &y);
 *     ebb_cudnn_convolution(g, EBB_CUDNN_FORWARD, &window, EBB_CUDNN_X, EBB_CUDNN_W, pre);
 *     ebb_cudnn_unary(g, EBB_CUDNN_RELU, pre, ebb_cudnn_real(g, EBB_CUDNN_Y, &y));
 *     EBB_TRY(ebb_cudnn_graph_end(g));             the first error of all lines above, or NULL
 *
 * Errors stick: after one, every call does nothing and returns 0. A tensor is its number: the role
 * that it plays where it is in memory (the number by which a pointer is later given), else a fresh
 * one. Virtual tensors are float32 unless an operation wants otherwise: that is the precision of
 * what lies between two operations.
 *
 * Graphs that training needs are in shapes.h. Read next: plan.h.
 */
#ifndef EBB_KERNELS_CUDA_LIBRARY_CUDNN_GRAPH_H
#define EBB_KERNELS_CUDA_LIBRARY_CUDNN_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "onnx/words/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_CUDNN_RANK = 8, EBB_CUDNN_AXES = 3 };

/* ---- the library ---- */

/* Opens libcudnn.so.9, once a process; the file named by $EBB_CUDNN where that is set. EBB_DEVICE,
 * saying what to install, where there is none or it is older than what the graphs need. All
 * functions below call it. */
ebb_status ebb_cudnn_open(void);

/* 91900 for 9.19.0; 0 before ebb_cudnn_open() succeeded. */
int64_t ebb_cudnn_version(void);

/* A handle for the current device: what plan.h calls handle. The caller makes the device current
 * before, and drops the handle after the last plan that used it. stream: a cudaStream_t. */
ebb_status ebb_cudnn_handle_new(void **handle);
void ebb_cudnn_handle_free(void *handle);
ebb_status ebb_cudnn_handle_stream(void *handle, void *stream);

/* ---- tensors ---- */

/* dims are in cuDNN's order whatever the layout: N, C, spatial...; strides count elements. */
typedef struct ebb_cudnn_tensor {
    ebb_dtype dtype; /* EBB_BOOL: packed, eight channels to a byte, see shapes.h */
    int rank;
    int64_t dims[EBB_CUDNN_RANK], strides[EBB_CUDNN_RANK];
} ebb_cudnn_tensor;

/* Row-major; and channels last, that is, in memory as N, spatial..., C. */
ebb_cudnn_tensor ebb_cudnn_rows(ebb_dtype dtype, int rank, const int64_t *dims);
ebb_cudnn_tensor ebb_cudnn_channels_last(ebb_dtype dtype, int rank, const int64_t *dims);

/* The roles of tensors in memory. One number means the same in every graph. */
typedef enum ebb_cudnn_role {
    EBB_CUDNN_X = 1,
    EBB_CUDNN_W,
    EBB_CUDNN_BIAS,
    EBB_CUDNN_Y,
    EBB_CUDNN_MASK,  /* BOOLEAN: y > 0 */
    EBB_CUDNN_ADDED, /* a second addend: the residual */
    EBB_CUDNN_DY,
    EBB_CUDNN_DX,
    EBB_CUDNN_DW,
    EBB_CUDNN_DADDED, /* gradient of the residual */
    EBB_CUDNN_SCALE,
    EBB_CUDNN_DSCALE,
    EBB_CUDNN_DBIAS,
    EBB_CUDNN_MEAN,
    EBB_CUDNN_INVSTD, /* 1 / sqrt(variance + epsilon) */
    EBB_CUDNN_RUNNING_MEAN,
    EBB_CUDNN_RUNNING_VAR,
    EBB_CUDNN_NEXT_MEAN,
    EBB_CUDNN_NEXT_VAR,
    EBB_CUDNN_INDEX, /* INT8: which element of the window was the largest */
    EBB_CUDNN_Q,
    EBB_CUDNN_K,
    EBB_CUDNN_V,
    EBB_CUDNN_O,
    EBB_CUDNN_STATS, /* float32: log of the sum of exponents, a row */
    EBB_CUDNN_MAX,   /* float32: the largest score of a row */
    EBB_CUDNN_SUM,   /* float32: the sum of exponents of scores less that */
    EBB_CUDNN_DO,
    EBB_CUDNN_DQ,
    EBB_CUDNN_DK,
    EBB_CUDNN_DV,
    EBB_CUDNN_ROW_SUMS, /* float32 scratch of attention backward */
    EBB_CUDNN_DQ_SUMS,  /* float32 scratch of attention backward */
    EBB_CUDNN_KEPT,     /* of dropout: 0 or 1 for each score */
    EBB_CUDNN_ROLES
} ebb_cudnn_role;

const char *ebb_cudnn_role_name(int role); /* "x", "dw" ... */

/* ---- the builder ---- */

typedef struct ebb_cudnn_graph ebb_cudnn_graph;

/* label: for errors, copied. NULL when out of memory, which the calls below take as an error. */
ebb_cudnn_graph *ebb_cudnn_graph_new(const char *label);
/* Finalises. The graph is then fixed, and plans can be made of it. */
ebb_status ebb_cudnn_graph_end(ebb_cudnn_graph *graph);
/* Plans keep what they need of their graph: it may be freed before them. NULL is fine. */
void ebb_cudnn_graph_free(ebb_cudnn_graph *graph);

/* What the graph is, in text, one line a tensor or operation: equal texts are equal graphs. */
const char *ebb_cudnn_graph_text(const ebb_cudnn_graph *graph);

/* Bytes that a tensor in memory spans; 0 where the graph has no such role. */
int64_t ebb_cudnn_role_bytes(const ebb_cudnn_graph *graph, ebb_cudnn_role role);

int ebb_cudnn_real(ebb_cudnn_graph *graph, ebb_cudnn_role role, const ebb_cudnn_tensor *tensor);
int ebb_cudnn_virtual(ebb_cudnn_graph *graph, const ebb_cudnn_tensor *tensor);
/* A number that the kernels get by value, as a float32 tensor of dims 1. */
int ebb_cudnn_number(ebb_cudnn_graph *graph, int rank, float value);

/* What windows do along the spatial axes, of convolutions and pools. */
typedef struct ebb_cudnn_window {
    int spatial; /* 1..3; a convolution of one axis must be written as two by the caller */
    int64_t size[EBB_CUDNN_AXES]; /* of a pool; convolutions read it off the filter */
    int64_t stride[EBB_CUDNN_AXES], dilation[EBB_CUDNN_AXES];
    int64_t before[EBB_CUDNN_AXES], after[EBB_CUDNN_AXES]; /* padding */
} ebb_cudnn_window;

typedef enum ebb_cudnn_direction {
    EBB_CUDNN_FORWARD,
    EBB_CUDNN_BACKWARD_DATA,
    EBB_CUDNN_BACKWARD_FILTER
} ebb_cudnn_direction;

/* Forward: y from x, w. Backward data: x (dx) from w, y (dy). Backward filter: w (dw) from x, y.
 * Groups follow from the channels of x and w. float32 accumulation. */
void ebb_cudnn_convolution(ebb_cudnn_graph *graph, ebb_cudnn_direction direction,
                           const ebb_cudnn_window *window, int x, int w, int y);

typedef enum ebb_cudnn_point {
    EBB_CUDNN_IDENTITY,
    EBB_CUDNN_ADD,
    EBB_CUDNN_SUB,
    EBB_CUDNN_MUL,
    EBB_CUDNN_DIV,
    EBB_CUDNN_EXP,
    EBB_CUDNN_LOG,
    EBB_CUDNN_TANH,
    EBB_CUDNN_RELU,
    EBB_CUDNN_GELU,
    EBB_CUDNN_GELU_TANH,
    EBB_CUDNN_RELU_BACKWARD, /* dy, x: dx = x > 0 ? dy : 0 */
    EBB_CUDNN_GELU_BACKWARD,
    EBB_CUDNN_GELU_TANH_BACKWARD,
    EBB_CUDNN_GREATER,       /* BOOLEAN result */
    EBB_CUDNN_GREATER_EQUAL, /* BOOLEAN result */
    EBB_CUDNN_POINTS
} ebb_cudnn_point;

/* y = f(x); y = f(x, b) where b is spread over the dims in which it is 1. */
void ebb_cudnn_unary(ebb_cudnn_graph *graph, ebb_cudnn_point f, int x, int y);
void ebb_cudnn_binary(ebb_cudnn_graph *graph, ebb_cudnn_point f, int x, int b, int y);
/* dx = f'(x) dy. */
void ebb_cudnn_derivative(ebb_cudnn_graph *graph, ebb_cudnn_point f, int dy, int x, int dx);
/* y = chosen ? a : b. */
void ebb_cudnn_select(ebb_cudnn_graph *graph, int chosen, int a, int b, int y);
/* y = the element's place along an axis of x. */
void ebb_cudnn_place(ebb_cudnn_graph *graph, int axis, int x, int y);

typedef enum ebb_cudnn_norm_kind {
    EBB_CUDNN_BATCH_NORM,
    EBB_CUDNN_LAYER_NORM,
    EBB_CUDNN_RMS_NORM
} ebb_cudnn_norm_kind;

/* Tensors of a norm; 0: absent. Forward in training writes y, mean, invstd, and with running_* the
 * moving averages next_* = (1 - momentum) running + momentum batch. training false: the inference
 * form, which reads mean and invstd. */
typedef struct ebb_cudnn_norm {
    ebb_cudnn_norm_kind kind;
    bool training;
    int x, scale, bias, y, mean, invstd;
    int epsilon, momentum; /* by value */
    int running_mean, running_var, next_mean, next_var;
} ebb_cudnn_norm;
void ebb_cudnn_norm_forward(ebb_cudnn_graph *graph, const ebb_cudnn_norm *norm);

typedef struct ebb_cudnn_norm_back {
    ebb_cudnn_norm_kind kind;
    int x, scale, mean, invstd, dy; /* read; mean is absent for RMS */
    int dx, dscale, dbias;          /* written */
} ebb_cudnn_norm_back;
void ebb_cudnn_norm_backward(ebb_cudnn_graph *graph, const ebb_cudnn_norm_back *norm);

typedef enum ebb_cudnn_pool_kind {
    EBB_CUDNN_MAX_POOL,
    EBB_CUDNN_AVERAGE_POOL,       /* padding counts */
    EBB_CUDNN_AVERAGE_POOL_INSIDE /* padding does not count */
} ebb_cudnn_pool_kind;

/* index: of a max pool, or 0. */
void ebb_cudnn_pool(ebb_cudnn_graph *graph, ebb_cudnn_pool_kind kind,
                    const ebb_cudnn_window *window, int x, int y, int index);
void ebb_cudnn_pool_backward(ebb_cudnn_graph *graph, ebb_cudnn_pool_kind kind,
                             const ebb_cudnn_window *window, int dy, int dx, int index);

/* c = a b over the last two dims, [..., m, k] x [..., k, n]. */
void ebb_cudnn_matmul(ebb_cudnn_graph *graph, int a, int b, int c);

typedef enum ebb_cudnn_reducer { EBB_CUDNN_ADDS, EBB_CUDNN_MAXIMUM } ebb_cudnn_reducer;
/* Over the dims in which y has 1 and x has not. */
void ebb_cudnn_reduce(ebb_cudnn_graph *graph, ebb_cudnn_reducer how, int x, int y);

/* y is x under other dims and strides: a transpose of something virtual. */
void ebb_cudnn_reshape(ebb_cudnn_graph *graph, int x, int y);

/* Per-channel sum and sum of squares of x, float32 [1, C, 1, ...]. */
void ebb_cudnn_statistics(ebb_cudnn_graph *graph, int x, int sum, int squares);

#ifdef __cplusplus
}
#endif
#endif
