/* ops.c: the operations of a graph: one function each, attributes in the order of cuDNN's manual.
 */
#include "kernels/cuda/library/cudnn/internal.h"

/* Everything is summed and computed in float32, whatever the tensors hold. */
static const cudnnDataType_t precise = CUDNN_DATA_FLOAT;

#define SET(name, type, value) \
    ebb_cudnn_set(graph, d, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, value)
#define SETS(name, count, value) \
    ebb_cudnn_set(graph, d, CUDNN_ATTR_##name, CUDNN_TYPE_INT64, count, value)
#define SET_IN(op, name, tensor) \
    ebb_cudnn_set_tensor(graph, op, CUDNN_ATTR_OPERATION_##name, tensor)

/* ---- convolution ---- */

static cudnnBackendDescriptor_t window_of(ebb_cudnn_graph *graph, const ebb_cudnn_window *window)
{
    cudnnBackendDescriptor_t d = ebb_cudnn_detail(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t axes = window->spatial;
    SET(CONVOLUTION_COMP_TYPE, DATA_TYPE, &precise);
    SET(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, &mode);
    SET(CONVOLUTION_SPATIAL_DIMS, INT64, &axes);
    SETS(CONVOLUTION_DILATIONS, axes, window->dilation);
    SETS(CONVOLUTION_FILTER_STRIDES, axes, window->stride);
    SETS(CONVOLUTION_PRE_PADDINGS, axes, window->before);
    SETS(CONVOLUTION_POST_PADDINGS, axes, window->after);
    ebb_cudnn_finalize(graph, d, "the window");
    return d;
}

/* The attributes of the three directions, in their columns. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
} directions[] = {
    [EBB_CUDNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [EBB_CUDNN_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [EBB_CUDNN_BACKWARD_FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

void ebb_cudnn_convolution(ebb_cudnn_graph *graph, ebb_cudnn_direction direction,
                           const ebb_cudnn_window *window, int x, int w, int y)
{
    float one = 1, zero = 0;
    if (graph == NULL)
        return;
    graph->products = true;
    cudnnBackendDescriptor_t slide = window_of(graph, window);
    cudnnBackendDescriptor_t d = ebb_cudnn_operation(graph, directions[direction].type);
    ebb_cudnn_set_descriptor(graph, d, directions[direction].window, slide);
    ebb_cudnn_set_tensor(graph, d, directions[direction].x, x);
    ebb_cudnn_set_tensor(graph, d, directions[direction].w, w);
    ebb_cudnn_set_tensor(graph, d, directions[direction].y, y);
    ebb_cudnn_set(graph, d, directions[direction].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    ebb_cudnn_set(graph, d, directions[direction].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    ebb_cudnn_finalize(graph, d, "the convolution");
}

/* ---- pointwise ---- */

static const cudnnPointwiseMode_t modes[EBB_CUDNN_POINTS] = {
    [EBB_CUDNN_IDENTITY] = CUDNN_POINTWISE_IDENTITY,
    [EBB_CUDNN_ADD] = CUDNN_POINTWISE_ADD,
    [EBB_CUDNN_SUB] = CUDNN_POINTWISE_SUB,
    [EBB_CUDNN_MUL] = CUDNN_POINTWISE_MUL,
    [EBB_CUDNN_DIV] = CUDNN_POINTWISE_DIV,
    [EBB_CUDNN_EXP] = CUDNN_POINTWISE_EXP,
    [EBB_CUDNN_LOG] = CUDNN_POINTWISE_LOG,
    [EBB_CUDNN_TANH] = CUDNN_POINTWISE_TANH_FWD,
    [EBB_CUDNN_RELU] = CUDNN_POINTWISE_RELU_FWD,
    [EBB_CUDNN_GELU] = CUDNN_POINTWISE_GELU_FWD,
    [EBB_CUDNN_GELU_TANH] = CUDNN_POINTWISE_GELU_APPROX_TANH_FWD,
    [EBB_CUDNN_RELU_BACKWARD] = CUDNN_POINTWISE_RELU_BWD,
    [EBB_CUDNN_GELU_BACKWARD] = CUDNN_POINTWISE_GELU_BWD,
    [EBB_CUDNN_GELU_TANH_BACKWARD] = CUDNN_POINTWISE_GELU_APPROX_TANH_BWD,
    [EBB_CUDNN_GREATER] = CUDNN_POINTWISE_CMP_GT,
    [EBB_CUDNN_GREATER_EQUAL] = CUDNN_POINTWISE_CMP_GE,
};

/* Begins an operation with its mode; axis < 0: none. */
static cudnnBackendDescriptor_t begin(ebb_cudnn_graph *graph, cudnnPointwiseMode_t mode, int axis)
{
    cudnnBackendDescriptor_t d = ebb_cudnn_detail(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;
    int64_t along = axis;
    SET(POINTWISE_MODE, POINTWISE_MODE, &mode);
    SET(POINTWISE_MATH_PREC, DATA_TYPE, &precise);
    if (axis >= 0)
        SET(POINTWISE_AXIS, INT64, &along);
    ebb_cudnn_finalize(graph, d, "the pointwise mode");
    op = ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    ebb_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    return op;
}

void ebb_cudnn_unary(ebb_cudnn_graph *graph, ebb_cudnn_point f, int x, int y)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t op = begin(graph, modes[f], -1);
    SET_IN(op, POINTWISE_XDESC, x);
    SET_IN(op, POINTWISE_YDESC, y);
    ebb_cudnn_finalize(graph, op, "a pointwise operation of one tensor");
}

void ebb_cudnn_binary(ebb_cudnn_graph *graph, ebb_cudnn_point f, int x, int b, int y)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t op = begin(graph, modes[f], -1);
    SET_IN(op, POINTWISE_XDESC, x);
    SET_IN(op, POINTWISE_BDESC, b);
    SET_IN(op, POINTWISE_YDESC, y);
    ebb_cudnn_finalize(graph, op, "a pointwise operation of two tensors");
}

void ebb_cudnn_derivative(ebb_cudnn_graph *graph, ebb_cudnn_point f, int dy, int x, int dx)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t op = begin(graph, modes[f], -1);
    SET_IN(op, POINTWISE_XDESC, x);
    SET_IN(op, POINTWISE_DYDESC, dy);
    SET_IN(op, POINTWISE_DXDESC, dx);
    ebb_cudnn_finalize(graph, op, "a derivative");
}

void ebb_cudnn_select(ebb_cudnn_graph *graph, int chosen, int a, int b, int y)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t op = begin(graph, CUDNN_POINTWISE_BINARY_SELECT, -1);
    SET_IN(op, POINTWISE_XDESC, a);
    SET_IN(op, POINTWISE_BDESC, b);
    SET_IN(op, POINTWISE_TDESC, chosen);
    SET_IN(op, POINTWISE_YDESC, y);
    ebb_cudnn_finalize(graph, op, "a selection");
}

void ebb_cudnn_place(ebb_cudnn_graph *graph, int axis, int x, int y)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t op = begin(graph, CUDNN_POINTWISE_GEN_INDEX, axis);
    SET_IN(op, POINTWISE_XDESC, x);
    SET_IN(op, POINTWISE_YDESC, y);
    ebb_cudnn_finalize(graph, op, "places along an axis");
}

/* ---- norms ---- */

static const cudnnBackendNormMode_t norm_modes[] = {[EBB_CUDNN_BATCH_NORM] = CUDNN_BATCH_NORM,
                                                    [EBB_CUDNN_LAYER_NORM] = CUDNN_LAYER_NORM,
                                                    [EBB_CUDNN_RMS_NORM] = CUDNN_RMS_NORM};

void ebb_cudnn_norm_forward(ebb_cudnn_graph *graph, const ebb_cudnn_norm *norm)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    cudnnBackendNormFwdPhase_t phase =
        norm->training ? CUDNN_NORM_FWD_TRAINING : CUDNN_NORM_FWD_INFERENCE;
    SET(OPERATION_NORM_FWD_MODE, NORM_MODE, &norm_modes[norm->kind]);
    SET(OPERATION_NORM_FWD_PHASE, NORM_FWD_PHASE, &phase);
    SET_IN(d, NORM_FWD_XDESC, norm->x);
    SET_IN(d, NORM_FWD_MEAN_DESC, norm->mean);
    SET_IN(d, NORM_FWD_INV_VARIANCE_DESC, norm->invstd);
    SET_IN(d, NORM_FWD_SCALE_DESC, norm->scale);
    SET_IN(d, NORM_FWD_BIAS_DESC, norm->bias);
    SET_IN(d, NORM_FWD_EPSILON_DESC, norm->epsilon);
    SET_IN(d, NORM_FWD_EXP_AVG_FACTOR_DESC, norm->momentum);
    SET_IN(d, NORM_FWD_INPUT_RUNNING_MEAN_DESC, norm->running_mean);
    SET_IN(d, NORM_FWD_INPUT_RUNNING_VAR_DESC, norm->running_var);
    SET_IN(d, NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, norm->next_mean);
    SET_IN(d, NORM_FWD_OUTPUT_RUNNING_VAR_DESC, norm->next_var);
    SET_IN(d, NORM_FWD_YDESC, norm->y);
    ebb_cudnn_finalize(graph, d, "the norm");
}

void ebb_cudnn_norm_backward(ebb_cudnn_graph *graph, const ebb_cudnn_norm_back *norm)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    SET(OPERATION_NORM_BWD_MODE, NORM_MODE, &norm_modes[norm->kind]);
    SET_IN(d, NORM_BWD_XDESC, norm->x);
    SET_IN(d, NORM_BWD_MEAN_DESC, norm->mean);
    SET_IN(d, NORM_BWD_INV_VARIANCE_DESC, norm->invstd);
    SET_IN(d, NORM_BWD_DYDESC, norm->dy);
    SET_IN(d, NORM_BWD_SCALE_DESC, norm->scale);
    SET_IN(d, NORM_BWD_DSCALE_DESC, norm->dscale);
    SET_IN(d, NORM_BWD_DBIAS_DESC, norm->dbias);
    SET_IN(d, NORM_BWD_DXDESC, norm->dx);
    ebb_cudnn_finalize(graph, d, "the norm's gradient");
}

/* ---- pools ---- */

static cudnnBackendDescriptor_t pool_of(ebb_cudnn_graph *graph, ebb_cudnn_pool_kind kind,
                                        const ebb_cudnn_window *window)
{
    cudnnBackendDescriptor_t d = ebb_cudnn_detail(graph, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    cudnnResampleMode_t mode = kind == EBB_CUDNN_MAX_POOL ? CUDNN_RESAMPLE_MAXPOOL
                               : kind == EBB_CUDNN_AVERAGE_POOL
                                   ? CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING
                                   : CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING;
    cudnnPaddingMode_t padding = kind == EBB_CUDNN_MAX_POOL ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD;
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    int64_t axes = window->spatial;
    cudnnFraction_t before[EBB_CUDNN_AXES], after[EBB_CUDNN_AXES], stride[EBB_CUDNN_AXES],
        size[EBB_CUDNN_AXES];
    for (int i = 0; i < EBB_CUDNN_AXES; i++) {
        before[i] = (cudnnFraction_t){window->before[i], 1};
        after[i] = (cudnnFraction_t){window->after[i], 1};
        stride[i] = (cudnnFraction_t){window->stride[i], 1};
        size[i] = (cudnnFraction_t){window->size[i], 1};
    }
    SET(RESAMPLE_MODE, RESAMPLE_MODE, &mode);
    SET(RESAMPLE_COMP_TYPE, DATA_TYPE, &precise);
    SET(RESAMPLE_NAN_PROPAGATION, NAN_PROPOGATION, &nan);
    SET(RESAMPLE_PADDING_MODE, PADDING_MODE, &padding);
    SET(RESAMPLE_SPATIAL_DIMS, INT64, &axes);
    ebb_cudnn_set(graph, d, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, axes, size);
    ebb_cudnn_set(graph, d, CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, axes, stride);
    ebb_cudnn_set(graph, d, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, axes, before);
    ebb_cudnn_set(graph, d, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, axes, after);
    ebb_cudnn_finalize(graph, d, "the pool's window");
    return d;
}

void ebb_cudnn_pool(ebb_cudnn_graph *graph, ebb_cudnn_pool_kind kind,
                    const ebb_cudnn_window *window, int x, int y, int index)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t pool = pool_of(graph, kind, window);
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    ebb_cudnn_set_descriptor(graph, d, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, pool);
    SET_IN(d, RESAMPLE_FWD_XDESC, x);
    SET_IN(d, RESAMPLE_FWD_YDESC, y);
    SET_IN(d, RESAMPLE_FWD_IDXDESC, index);
    ebb_cudnn_finalize(graph, d, "the pool");
}

void ebb_cudnn_pool_backward(ebb_cudnn_graph *graph, ebb_cudnn_pool_kind kind,
                             const ebb_cudnn_window *window, int dy, int dx, int index)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t pool = pool_of(graph, kind, window);
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
    ebb_cudnn_set_descriptor(graph, d, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, pool);
    SET_IN(d, RESAMPLE_BWD_DXDESC, dx);
    SET_IN(d, RESAMPLE_BWD_DYDESC, dy);
    SET_IN(d, RESAMPLE_BWD_IDXDESC, index);
    ebb_cudnn_finalize(graph, d, "the pool's gradient");
}

/* ---- matrices, sums, the rest ---- */

void ebb_cudnn_matmul(ebb_cudnn_graph *graph, int a, int b, int c)
{
    if (graph == NULL)
        return;
    graph->products = true;
    cudnnBackendDescriptor_t d = ebb_cudnn_detail(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    SET(MATMUL_COMP_TYPE, DATA_TYPE, &precise);
    ebb_cudnn_finalize(graph, d, "the product's precision");
    cudnnBackendDescriptor_t op =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    ebb_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    SET_IN(op, MATMUL_ADESC, a);
    SET_IN(op, MATMUL_BDESC, b);
    SET_IN(op, MATMUL_CDESC, c);
    ebb_cudnn_finalize(graph, op, "the product of matrices");
}

void ebb_cudnn_reduce(ebb_cudnn_graph *graph, ebb_cudnn_reducer how, int x, int y)
{
    cudnnReduceTensorOp_t by =
        how == EBB_CUDNN_ADDS ? CUDNN_REDUCE_TENSOR_ADD : CUDNN_REDUCE_TENSOR_MAX;
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t d = ebb_cudnn_detail(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    SET(REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, &by);
    SET(REDUCTION_COMP_TYPE, DATA_TYPE, &precise);
    ebb_cudnn_finalize(graph, d, "the reduction's kind");
    cudnnBackendDescriptor_t op =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    ebb_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    SET_IN(op, REDUCTION_XDESC, x);
    SET_IN(op, REDUCTION_YDESC, y);
    ebb_cudnn_finalize(graph, op, "the reduction");
}

void ebb_cudnn_reshape(ebb_cudnn_graph *graph, int x, int y)
{
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    SET_IN(d, RESHAPE_XDESC, x);
    SET_IN(d, RESHAPE_YDESC, y);
    ebb_cudnn_finalize(graph, d, "the reshape");
}

void ebb_cudnn_statistics(ebb_cudnn_graph *graph, int x, int sum, int squares)
{
    cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    if (graph == NULL)
        return;
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    SET(OPERATION_GENSTATS_MODE, GENSTATS_MODE, &mode);
    SET(OPERATION_GENSTATS_MATH_PREC, DATA_TYPE, &precise);
    SET_IN(d, GENSTATS_XDESC, x);
    SET_IN(d, GENSTATS_SUMDESC, sum);
    SET_IN(d, GENSTATS_SQSUMDESC, squares);
    ebb_cudnn_finalize(graph, d, "the statistics");
}
