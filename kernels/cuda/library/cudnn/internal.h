/* internal.h: what the files of this folder share, and the only header here that needs cuDNN's.
 *
 * cuDNN is opened at run time and its functions are called through one table, so that the same
 * binary runs where there is none and says so.
 */
#ifndef EBB_KERNELS_CUDA_LIBRARY_CUDNN_INTERNAL_H
#define EBB_KERNELS_CUDA_LIBRARY_CUDNN_INTERNAL_H

#include <cudnn_graph.h>

#include "kernels/cuda/library/cudnn/plan.h"
#include "onnx/words/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the library ---- */

typedef struct ebb_cudnn_library {
    size_t (*version)(void);
    cudnnStatus_t (*create)(cudnnHandle_t *);
    cudnnStatus_t (*destroy)(cudnnHandle_t);
    cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t);
    const char *(*error_string)(cudnnStatus_t);
    void (*last_error)(char *, size_t);
    cudnnStatus_t (*make)(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);
    cudnnStatus_t (*drop)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                         cudnnBackendAttributeType_t, int64_t, const void *);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t const, cudnnBackendAttributeName_t,
                         cudnnBackendAttributeType_t, int64_t, int64_t *, void *);
    cudnnStatus_t (*execute)(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t);
} ebb_cudnn_library;

extern ebb_cudnn_library ebb_cudnn; /* filled by ebb_cudnn_open() */

/* NULL where code is success; else an error that begins with what, and ends with cuDNN's words.
 * Nothing the device supports is EBB_UNSUPPORTED, the rest EBB_RUNTIME. */
ebb_status ebb_cudnn_check(cudnnStatus_t code, const char *label, const char *what);

/* No memory, or a device that failed: the same question may be answered otherwise later. */
bool ebb_cudnn_may_pass(cudnnStatus_t code);

/* ---- a graph ---- */

enum { EBB_CUDNN_TENSORS = 96, EBB_CUDNN_OPERATIONS = 64, EBB_CUDNN_NUMBERS = 8 };

struct ebb_cudnn_graph {
    int owners; /* the builder and each plan; atomic */
    ebb_status broken;
    char label[96];
    cudnnBackendDescriptor_t graph;                           /* once ended */
    cudnnBackendDescriptor_t tensor[EBB_CUDNN_TENSORS];       /* by number */
    ebb_cudnn_tensor shape[EBB_CUDNN_TENSORS];                /* by number; rank 0: not there */
    int fresh;                                                /* the next number */
    cudnnBackendDescriptor_t operation[EBB_CUDNN_OPERATIONS]; /* the graph's, in order */
    cudnnBackendDescriptor_t detail[EBB_CUDNN_OPERATIONS];    /* what operations refer to */
    int operations, details;
    bool products;                    /* it multiplies matrices or convolves */
    int number_of[EBB_CUDNN_NUMBERS]; /* tensors by value */
    float number[EBB_CUDNN_NUMBERS];
    int numbers;
    char *text;
    size_t text_bytes, text_room;
};

ebb_cudnn_graph *ebb_cudnn_graph_share(const ebb_cudnn_graph *graph); /* one more owner */

/* Makes a descriptor that lives as long as the graph; NULL after an error. The second is one of the
 * graph's operations. */
cudnnBackendDescriptor_t ebb_cudnn_detail(ebb_cudnn_graph *graph,
                                          cudnnBackendDescriptorType_t type);
cudnnBackendDescriptor_t ebb_cudnn_operation(ebb_cudnn_graph *graph,
                                             cudnnBackendDescriptorType_t type);

/* Attributes, which are also written into the graph's text; tensors by their number, where 0 sets
 * nothing. */
void ebb_cudnn_set(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *values);
void ebb_cudnn_set_tensor(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                          cudnnBackendAttributeName_t name, int tensor);
void ebb_cudnn_set_descriptor(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                              cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void ebb_cudnn_finalize(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t what, const char *name);

void ebb_cudnn_break(ebb_cudnn_graph *graph, ebb_status status); /* the first error stays */
void ebb_cudnn_note(ebb_cudnn_graph *graph, const char *format, ...) EBB_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
