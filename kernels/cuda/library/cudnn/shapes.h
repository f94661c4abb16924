/* shapes.h: the graphs that training needs, each a function of sizes, dtype and layout.
 *
 * Every function returns a finalised graph in *graph, or why there is none. Which tensors it has in
 * memory is said by the roles (graph.h) named beside it. Whether a device has kernels for it is the
 * business of plan.h.
 *
 * A BOOLEAN mask is one bit an element, eight neighbours along the fastest dim to a byte, lowest
 * bit first: numel / 8 bytes, with channels a multiple of 8. What a graph stores is read by cuDNN's
 * own graphs again (conv_backward_data and batch_norm_backward with mask).
 *
 * Per-channel tensors of batch norm are float32 [1, C, 1, 1], as are scale and bias.
 */
#ifndef EBB_KERNELS_CUDA_LIBRARY_CUDNN_SHAPES_H
#define EBB_KERNELS_CUDA_LIBRARY_CUDNN_SHAPES_H

#include "kernels/cuda/library/cudnn/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolution and pooling ---- */

typedef struct ebb_cudnn_conv_sizes {
    ebb_dtype dtype;    /* of x, w, y and their gradients: float32, float16, bfloat16 */
    bool channels_last; /* x, y as N, spatial, C and w as K, spatial, C/groups; else row-major */
    int64_t batch, channels, filters, groups;
    int64_t in[EBB_CUDNN_AXES], kernel[EBB_CUDNN_AXES];
    ebb_cudnn_window window; /* size is unread; one spatial axis is handed on as two */
} ebb_cudnn_conv_sizes;

/* y's spatial sizes. EBB_REJECTED where a size is not positive or overflows. */
ebb_status ebb_cudnn_conv_out(const ebb_cudnn_conv_sizes *sizes, int64_t out[EBB_CUDNN_AXES]);

enum {                          /* what comes with a graph: bits */
       EBB_CUDNN_WITH_BIAS = 1, /* reads BIAS, of the graph's dtype, [1, K, 1, 1] */
       EBB_CUDNN_WITH_ADD = 2,  /* reads ADDED, like y, before the ReLU */
       EBB_CUDNN_WITH_RELU = 4,
       EBB_CUDNN_WITH_MASK = 8,     /* writes MASK, or reads it in a backward graph */
       EBB_CUDNN_WITH_FLOAT = 16,   /* DW is float32 though the rest is not */
       EBB_CUDNN_WITH_RUNNING = 32, /* batch norm updates the moving averages too */
       EBB_CUDNN_WITH_ADDED = 64,   /* batch norm backward writes DADDED = mask * dy too */
       EBB_CUDNN_WITH_STATS = 128,  /* attention writes STATS */
       EBB_CUDNN_WITH_PARTS = 256   /* attention writes what STATS is made of: MAX and SUM */
};

/* X, W -> Y; with BIAS, RELU, MASK. */
ebb_status ebb_cudnn_conv_forward(ebb_cudnn_graph **graph, const ebb_cudnn_conv_sizes *sizes,
                                  unsigned with);
/* DY, W -> DX; with MASK: dx = mask * ..., the mask of x as what made x wrote it. */
ebb_status ebb_cudnn_conv_backward_data(ebb_cudnn_graph **graph, const ebb_cudnn_conv_sizes *sizes,
                                        unsigned with);
/* X, DY -> DW; with FLOAT, which cuDNN has not for depthwise convolutions (groups = channels). */
ebb_status ebb_cudnn_conv_backward_filter(ebb_cudnn_graph **graph,
                                          const ebb_cudnn_conv_sizes *sizes, unsigned with);

typedef struct ebb_cudnn_pool_sizes {
    ebb_dtype dtype;
    bool channels_last;
    ebb_cudnn_pool_kind kind;
    int64_t batch, channels;
    int64_t in[EBB_CUDNN_AXES], out[EBB_CUDNN_AXES];
    ebb_cudnn_window window;
} ebb_cudnn_pool_sizes;

/* X -> Y, and INDEX of a max pool where index is true. DY (and INDEX) -> DX. */
ebb_status ebb_cudnn_pool_forward(ebb_cudnn_graph **graph, const ebb_cudnn_pool_sizes *sizes,
                                  bool index);
ebb_status ebb_cudnn_pool_gradient(ebb_cudnn_graph **graph, const ebb_cudnn_pool_sizes *sizes);

/* ---- normalisation ---- */

typedef struct ebb_cudnn_batch_norm_sizes {
    ebb_dtype dtype; /* of x, y, dy, dx */
    bool channels_last;
    int spatial; /* 1 or 2 are written as 2 */
    int64_t batch, channels, in[EBB_CUDNN_AXES];
    float epsilon, momentum; /* momentum: weight of the new batch */
} ebb_cudnn_batch_norm_sizes;

/* X, SCALE, BIAS -> Y, MEAN, INVSTD; with ADD, RELU, MASK, RUNNING. The running variance is
 * cuDNN's: divided by n - 1, where ONNX divides by n. */
ebb_status ebb_cudnn_batch_norm_forward(ebb_cudnn_graph **graph,
                                        const ebb_cudnn_batch_norm_sizes *sizes, unsigned with);
/* X, DY, SCALE, MEAN, INVSTD -> DX, DSCALE, DBIAS. With MASK: dy is masked first; with ADDED: the
 * masked dy is written to DADDED. With RELU and no MASK: the mask is found again from x, SCALE,
 * BIAS, so that neither y nor a mask need be stored. */
ebb_status ebb_cudnn_batch_norm_backward(ebb_cudnn_graph **graph,
                                         const ebb_cudnn_batch_norm_sizes *sizes, unsigned with);

typedef struct ebb_cudnn_rows_norm_sizes { /* layer norm, RMS norm over rows */
    ebb_dtype dtype;                       /* of x, y, dy, dx */
    ebb_dtype parameters;                  /* of scale, bias and their gradients */
    bool rms;                              /* no mean, no bias */
    int64_t rows, columns;
    float epsilon;
} ebb_cudnn_rows_norm_sizes;

/* X, SCALE, BIAS -> Y, MEAN, INVSTD; with ADD: X + ADDED is what is normalised. */
ebb_status ebb_cudnn_rows_norm_forward(ebb_cudnn_graph **graph,
                                       const ebb_cudnn_rows_norm_sizes *sizes, unsigned with);
/* X, DY, SCALE, MEAN, INVSTD -> DX, DSCALE, DBIAS. */
ebb_status ebb_cudnn_rows_norm_backward(ebb_cudnn_graph **graph,
                                        const ebb_cudnn_rows_norm_sizes *sizes);

/* ---- attention ---- */

/* A tensor [B, H, S, D] by what lies between neighbours, so that packed and transposed storage need
 * no copy; the last stride must be 1. */
typedef struct ebb_cudnn_heads {
    int64_t batch, head, row; /* strides in elements */
} ebb_cudnn_heads;
ebb_cudnn_heads ebb_cudnn_heads_first(int64_t heads, int64_t rows, int64_t width);  /* B,H,S,D */
ebb_cudnn_heads ebb_cudnn_heads_inside(int64_t heads, int64_t rows, int64_t width); /* B,S,H,D */

typedef struct ebb_cudnn_attention_sizes {
    ebb_dtype dtype; /* float16 or bfloat16; STATS, ROW_SUMS, DQ_SUMS are float32 */
    int64_t batch, heads, kv_heads, queries, keys, width, value_width;
    ebb_cudnn_heads q, k, v, o; /* dq, dk, dv lie as q, k, v */
    ebb_cudnn_heads dout;       /* backward */
    float scale;
    float cap; /* forward: scores become cap tanh(score / cap), before the bias; 0: they stay */
    bool causal;
    bool bias;            /* reads BIAS [bias_batch, bias_heads, bias_rows, keys] */
    ebb_dtype bias_dtype; /* EBB_NONE: the graph's */
    int64_t bias_batch, bias_heads, bias_rows; /* 1, or as many as there are */
    double dropout;     /* 0: off. Which scores stay is KEPT, of the graph's dtype, row-major */
    bool deterministic; /* backward: DQ in one order of summation, and no DQ_SUMS */
} ebb_cudnn_attention_sizes;

/* Q, K, V (BIAS, KEPT) -> O; with STATS; with PARTS. These are [B, H, S] float32. */
ebb_status ebb_cudnn_attention_forward(ebb_cudnn_graph **graph,
                                       const ebb_cudnn_attention_sizes *sizes, unsigned with);
/* Q, K, V, O, DO, STATS (BIAS, KEPT) -> DQ, DK, DV. Needs scratch tensors of float32 beside
 * the workspace: ROW_SUMS [B, H, S], and unless deterministic DQ_SUMS [B, H, S, D], both row-major;
 * nothing need be in them before. *scratch_bytes: their sum, each rounded up to 256. */
ebb_status ebb_cudnn_attention_backward(ebb_cudnn_graph **graph,
                                        const ebb_cudnn_attention_sizes *sizes,
                                        int64_t *scratch_bytes);

#ifdef __cplusplus
}
#endif
#endif
