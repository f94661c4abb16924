/* shapes.h: the graphs that training needs, each a function of sizes, dtype and layout.
 *
 * Every function returns a finalised graph in *graph, or why there is none. Which tensors it has in
 * memory is said by the roles (graph.h) named beside it. Whether a device has kernels for it is the
 * business of plan.h.
 *
 * A BOOLEAN mask is one bit an element, eight neighbours along the fastest dim to a byte, lowest
 * bit first: numel / 8 bytes, with channels a multiple of 8.
 */
#pragma once

#include "kernels/cuda/library/cudnn/graph.h"

EBB_C_BEGIN

enum {                          /* what comes with a graph: bits */
       EBB_CUDNN_WITH_BIAS = 1, /* a convolution reads BIAS, of its dtype, [1, K, 1, 1] */
       EBB_CUDNN_WITH_ADD = 2,  /* reads ADDED, like y, before the ReLU */
       EBB_CUDNN_WITH_RELU = 4,
       EBB_CUDNN_WITH_MASK = 8,   /* writes MASK, or reads it in a backward graph */
       EBB_CUDNN_WITH_ADDED = 16, /* batch norm backward writes DADDED = mask * dy too */
       EBB_CUDNN_WITH_STATS = 32, /* attention writes STATS */
       EBB_CUDNN_WITH_PARTS = 64  /* attention writes what STATS is made of: MAX and SUM */
};

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

/* X, W -> Y; with BIAS, ADD, RELU, MASK. */
ebb_status ebb_cudnn_conv_forward(ebb_cudnn_graph **graph, const ebb_cudnn_conv_sizes *sizes,
                                  unsigned with);
/* DY, W -> DX; and X, DY -> DW. */
ebb_status ebb_cudnn_conv_backward_data(ebb_cudnn_graph **graph, const ebb_cudnn_conv_sizes *sizes);
ebb_status ebb_cudnn_conv_backward_filter(ebb_cudnn_graph **graph,
                                          const ebb_cudnn_conv_sizes *sizes);

typedef struct ebb_cudnn_pool_sizes {
    ebb_dtype dtype;
    bool channels_last;
    ebb_cudnn_pool_kind kind;
    int64_t batch, channels;
    int64_t in[EBB_CUDNN_AXES], out[EBB_CUDNN_AXES];
    ebb_cudnn_window window; /* of 2 or 3 axes */
} ebb_cudnn_pool_sizes;

/* X -> Y; backward, of averages: DY -> DX. */
ebb_status ebb_cudnn_pooling(ebb_cudnn_graph **graph, const ebb_cudnn_pool_sizes *sizes,
                             bool backward);

/* ---- batch norm of [rows, channels] in training ---- */

typedef struct ebb_cudnn_batch_norm_sizes {
    ebb_dtype dtype; /* of x, y, dy, dx; all that is a number a channel is float32 */
    int64_t rows, channels;
    float epsilon;
} ebb_cudnn_batch_norm_sizes;

/* X, SCALE, BIAS -> Y, MEAN, INVSTD; with ADD, RELU, MASK. */
ebb_status ebb_cudnn_batch_norm_forward(ebb_cudnn_graph **graph,
                                        const ebb_cudnn_batch_norm_sizes *sizes, unsigned with);
/* X, DY, SCALE, MEAN, INVSTD -> DX, DSCALE, DBIAS. With MASK: dy is masked first; with ADDED: the
 * masked dy is written to DADDED. */
ebb_status ebb_cudnn_batch_norm_backward(ebb_cudnn_graph **graph,
                                         const ebb_cudnn_batch_norm_sizes *sizes, unsigned with);

/* ---- attention ---- */

/* A tensor [B, H, S, D] by what lies between neighbours, so that packed and transposed storage need
 * no copy; the last stride must be 1. */
typedef struct ebb_cudnn_heads {
    int64_t batch, head, row; /* strides in elements */
} ebb_cudnn_heads;
ebb_cudnn_heads ebb_cudnn_heads_first(int64_t heads, int64_t rows, int64_t width);  /* B,H,S,D */
ebb_cudnn_heads ebb_cudnn_heads_inside(int64_t heads, int64_t rows, int64_t width); /* B,S,H,D */

typedef struct ebb_cudnn_attention_sizes {
    ebb_dtype dtype; /* float16 or bfloat16; STATS, MAX, SUM and ROW_SUMS are float32 */
    int64_t batch, heads, kv_heads, queries, keys, width, value_width;
    ebb_cudnn_heads q, k, v, o; /* dq, dk, dv lie as q, k, v */
    ebb_cudnn_heads dout;       /* backward */
    float scale;
    float cap; /* forward: scores become cap tanh(score / cap), before the bias; 0: they stay */
    bool causal;
    bool bias;            /* reads BIAS [bias_batch, bias_heads, bias_rows, keys] */
    ebb_dtype bias_dtype; /* EBB_NONE: the graph's */
    int64_t bias_batch, bias_heads, bias_rows; /* 1, or as many as there are */
    double dropout; /* 0: off. Which scores stay is KEPT, of the graph's dtype, row-major */
} ebb_cudnn_attention_sizes;

/* Q, K, V (BIAS, KEPT) -> O; with STATS; with PARTS. These are [B, H, S]. */
ebb_status ebb_cudnn_attention_forward(ebb_cudnn_graph **graph,
                                       const ebb_cudnn_attention_sizes *sizes, unsigned with);
/* Q, K, V, O, DO, STATS (BIAS, KEPT) -> DQ, DK, DV, of as many heads of K and V as of Q. Needs
 * ROW_SUMS [B, H, S] as scratch beside the workspace. */
ebb_status ebb_cudnn_attention_backward(ebb_cudnn_graph **graph,
                                        const ebb_cudnn_attention_sizes *sizes);

EBB_C_END
