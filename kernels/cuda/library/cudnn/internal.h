/* internal.h: what the files of this folder share, and the only header here that needs cuDNN's.
 *
 * cuDNN is opened at run time and its functions are called through one table, so that the same
 * binary runs where there is none and says so.
 *
 * A graph is built in a few lines:
 *
 *     EBB_TRY(ebb_cudnn_graph_new(&g, "conv + ReLU"));
 *     ebb_cudnn_real(g, EBB_CUDNN_X, &x);
 *     ebb_cudnn_real(g, EBB_CUDNN_W, &w);
 *     int pre = ebb_cudnn_virtual(g, &y);
 *     ebb_cudnn_convolution(g, EBB_CUDNN_FORWARD, &window, EBB_CUDNN_X, EBB_CUDNN_W, pre);
 *     ebb_cudnn_point(g, CUDNN_POINTWISE_RELU_FWD, pre, 0, ebb_cudnn_real(g, EBB_CUDNN_Y, &y));
 *     return ebb_cudnn_graph_end(out, g);          the first error of all lines above, or NULL
 *
 * Errors stick: after one, every call does nothing and returns 0. A tensor is its number: the role
 * that it plays where it is in memory, else a fresh one; 0 is none.
 */
#pragma once

#include <cudnn_graph.h>

#include "kernels/cuda/library/cudnn/plan.h"
#include "onnx/words/arena.h"

/* ---- the library ---- */

/* The functions that are used, each under a name without the library's. */
// clang-format off
#define EBB_CUDNN_FUNCTIONS(X)                                                               \
    X(version, GetVersion) X(create, Create) X(destroy, Destroy) X(set_stream, SetStream)    \
    X(error_string, GetErrorString) X(last_error, GetLastErrorString)                        \
    X(make, BackendCreateDescriptor) X(drop, BackendDestroyDescriptor)                       \
    X(finalize, BackendFinalize) X(set, BackendSetAttribute) X(get, BackendGetAttribute)     \
    X(execute, BackendExecute)
// clang-format on

#define EBB_CUDNN_FUNCTION(name, function) __typeof__(&cudnn##function) name;
typedef struct ebb_cudnn_library {
    EBB_CUDNN_FUNCTIONS(EBB_CUDNN_FUNCTION)
} ebb_cudnn_library;

extern ebb_cudnn_library ebb_cudnn; /* filled by ebb_cudnn_open() */

/* NULL where code is success; else an error that begins with what, and ends with cuDNN's words.
 * Nothing the device supports is EBB_UNSUPPORTED, the rest EBB_RUNTIME. */
ebb_status ebb_cudnn_check(cudnnStatus_t code, const char *label, const char *what);

/* No memory, or a device that failed: the same question may be answered otherwise later. */
bool ebb_cudnn_may_pass(cudnnStatus_t code);

/* ---- a graph ---- */

enum { EBB_CUDNN_TENSORS = 96, EBB_CUDNN_OPERATIONS = 64, EBB_CUDNN_NUMBERS = 8 };
enum { EBB_CUDNN_MADE = EBB_CUDNN_TENSORS + 2 * EBB_CUDNN_OPERATIONS };

struct ebb_cudnn_graph {
    ebb_status broken;
    const char *label;
    cudnnBackendDescriptor_t graph;                           /* once ended */
    cudnnBackendDescriptor_t made[EBB_CUDNN_MADE];            /* all, to be dropped */
    cudnnBackendDescriptor_t operation[EBB_CUDNN_OPERATIONS]; /* the graph's, in order */
    cudnnBackendDescriptor_t tensor[EBB_CUDNN_TENSORS];       /* by number */
    ebb_cudnn_tensor shape[EBB_CUDNN_TENSORS];                /* by number */
    int count, operations;
    int fresh;                        /* the next number of a tensor */
    bool products;                    /* it multiplies matrices or convolves */
    int number_of[EBB_CUDNN_NUMBERS]; /* tensors by value */
    float number[EBB_CUDNN_NUMBERS];
    int numbers;
};

/* label: a literal, for errors. */
ebb_status ebb_cudnn_graph_new(ebb_cudnn_graph **graph, const char *label);
/* Finalises the graph into *out, or frees it and says what was wrong. */
ebb_status ebb_cudnn_graph_end(ebb_cudnn_graph **out, ebb_cudnn_graph *graph);

/* A descriptor that lives as long as the graph; NULL after an error. Then its attributes; tensors by
 * their number, where 0 sets nothing. */
cudnnBackendDescriptor_t ebb_cudnn_make(ebb_cudnn_graph *graph, cudnnBackendDescriptorType_t type);
cudnnBackendDescriptor_t ebb_cudnn_operation(ebb_cudnn_graph *graph,
                                             cudnnBackendDescriptorType_t type);
void ebb_cudnn_set(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *values);
void ebb_cudnn_set_tensor(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                          cudnnBackendAttributeName_t name, int tensor);
void ebb_cudnn_finalize(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t what, const char *name);

/* ---- tensors of a graph ---- */

/* Row-major; and channels last, that is, in memory as N, spatial..., C. */
ebb_cudnn_tensor ebb_cudnn_rows(ebb_dtype dtype, int rank, const int64_t *dims);
ebb_cudnn_tensor ebb_cudnn_channels_last(ebb_dtype dtype, int rank, const int64_t *dims);
ebb_cudnn_tensor ebb_cudnn_as(const ebb_cudnn_tensor *tensor, ebb_dtype dtype);

int ebb_cudnn_real(ebb_cudnn_graph *graph, ebb_cudnn_role role, const ebb_cudnn_tensor *tensor);
int ebb_cudnn_virtual(ebb_cudnn_graph *graph, const ebb_cudnn_tensor *tensor);
/* A number that the kernels get by value, as a float32 tensor of dims 1. */
int ebb_cudnn_number(ebb_cudnn_graph *graph, int rank, float value);

/* ---- operations (ops.c) ---- */

typedef enum ebb_cudnn_direction {
    EBB_CUDNN_FORWARD,
    EBB_CUDNN_BACKWARD_DATA,
    EBB_CUDNN_BACKWARD_FILTER
} ebb_cudnn_direction;

/* Forward: y from x, w. Backward data: x (dx) from w, y (dy). Backward filter: w (dw) from x, y.
 * Groups follow from the channels of x and w. float32 accumulation. */
void ebb_cudnn_convolution(ebb_cudnn_graph *graph, ebb_cudnn_direction direction,
                           const ebb_cudnn_window *window, int x, int w, int y);

/* y = f(x); y = f(x, b) where b is spread over the dims in which it is 1. */
void ebb_cudnn_point(ebb_cudnn_graph *graph, cudnnPointwiseMode_t f, int x, int b, int y);
/* y = chosen ? a : b. */
void ebb_cudnn_select(ebb_cudnn_graph *graph, int chosen, int a, int b, int y);
/* y = the element's place along an axis of x. */
void ebb_cudnn_place(ebb_cudnn_graph *graph, int axis, int x, int y);

/* What follows a value, by bits of shapes.h: BIAS, ADD, RELU, and MASK of the result. The last of them
 * writes Y, which is there already, and is like y; bias: of BIAS. */
void ebb_cudnn_epilogue(ebb_cudnn_graph *graph, unsigned with, int value, const ebb_cudnn_tensor *y,
                        const ebb_cudnn_tensor *bias);
/* The number that a value before an epilogue has: Y where nothing follows it. */
int ebb_cudnn_before(ebb_cudnn_graph *graph, unsigned with, const ebb_cudnn_tensor *y);

/* Batch norm in training: X, SCALE, BIAS -> y, MEAN, INVSTD; and dy, X, SCALE, MEAN, INVSTD -> DX,
 * DSCALE, DBIAS. */
void ebb_cudnn_norm_forward(ebb_cudnn_graph *graph, int epsilon, int y);
void ebb_cudnn_norm_backward(ebb_cudnn_graph *graph, int dy);

/* Forward: x -> y; backward: y (dy) -> x (dx). */
void ebb_cudnn_pool(ebb_cudnn_graph *graph, ebb_cudnn_pool_kind kind,
                    const ebb_cudnn_window *window, bool backward, int x, int y);

/* c = a b over the last two dims, [..., m, k] x [..., k, n]. */
void ebb_cudnn_matmul(ebb_cudnn_graph *graph, int a, int b, int c);
/* Over the dims in which y has 1 and x has not. */
void ebb_cudnn_reduce(ebb_cudnn_graph *graph, cudnnReduceTensorOp_t how, int x, int y);
/* y is x under other dims and strides: a transpose of something virtual. */
void ebb_cudnn_reshape(ebb_cudnn_graph *graph, int x, int y);
