/* ops.c: the operations of a graph: one function each, attributes in the order of cuDNN's manual.
 */
#include "kernels/cuda/library/cudnn/internal.h"
#include "kernels/cuda/library/cudnn/shapes.h"

/* Everything is summed and computed in float32, whatever the tensors hold. */
static const cudnnDataType_t precise = CUDNN_DATA_FLOAT;

#define SET(name, type, value) \
    ebb_cudnn_set(graph, d, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, value)
#define SETS(name, type, count, value) \
    ebb_cudnn_set(graph, d, CUDNN_ATTR_##name, CUDNN_TYPE_##type, count, value)
#define SET_IN(name, tensor) ebb_cudnn_set_tensor(graph, d, CUDNN_ATTR_OPERATION_##name, tensor)

/* ---- convolution ---- */

static cudnnBackendDescriptor_t window_of(ebb_cudnn_graph *graph, const ebb_cudnn_window *window)
{
    cudnnBackendDescriptor_t d = ebb_cudnn_make(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t axes = window->spatial;
    SET(CONVOLUTION_COMP_TYPE, DATA_TYPE, &precise);
    SET(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, &mode);
    SET(CONVOLUTION_SPATIAL_DIMS, INT64, &axes);
    SETS(CONVOLUTION_DILATIONS, INT64, axes, window->dilation);
    SETS(CONVOLUTION_FILTER_STRIDES, INT64, axes, window->stride);
    SETS(CONVOLUTION_PRE_PADDINGS, INT64, axes, window->before);
    SETS(CONVOLUTION_POST_PADDINGS, INT64, axes, window->after);
    ebb_cudnn_finalize(graph, d, "the window");
    return d;
}

/* The attributes of the three directions, in their columns. */
#define CONVOLUTION(type, way, x, w, y)                          \
    {                                                            \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR, \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_CONV_DESC,  \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##x,        \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##w,        \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##y,        \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_ALPHA,      \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_BETA        \
    }
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
} directions[] = {
    [EBB_CUDNN_FORWARD] = CONVOLUTION(FORWARD, FORWARD, X, W, Y),
    [EBB_CUDNN_BACKWARD_DATA] = CONVOLUTION(BACKWARD_DATA, BWD_DATA, DX, W, DY),
    [EBB_CUDNN_BACKWARD_FILTER] = CONVOLUTION(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
};

void ebb_cudnn_convolution(ebb_cudnn_graph *graph, ebb_cudnn_direction direction,
                           const ebb_cudnn_window *window, int x, int w, int y)
{
    float one = 1, zero = 0;
    cudnnBackendDescriptor_t slide = window_of(graph, window);
    cudnnBackendDescriptor_t d = ebb_cudnn_operation(graph, directions[direction].type);
    graph->products = true;
    ebb_cudnn_set(graph, d, directions[direction].window, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &slide);
    ebb_cudnn_set_tensor(graph, d, directions[direction].x, x);
    ebb_cudnn_set_tensor(graph, d, directions[direction].w, w);
    ebb_cudnn_set_tensor(graph, d, directions[direction].y, y);
    ebb_cudnn_set(graph, d, directions[direction].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    ebb_cudnn_set(graph, d, directions[direction].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    ebb_cudnn_finalize(graph, d, "the convolution");
}

/* ---- pointwise ---- */

/* axis < 0: none; b, chosen 0: none. */
static void pointwise(ebb_cudnn_graph *graph, cudnnPointwiseMode_t mode, int64_t axis, int x, int b,
                      int chosen, int y)
{
    cudnnBackendDescriptor_t d = ebb_cudnn_make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), how = d;
    SET(POINTWISE_MODE, POINTWISE_MODE, &mode);
    SET(POINTWISE_MATH_PREC, DATA_TYPE, &precise);
    if (axis >= 0)
        SET(POINTWISE_AXIS, INT64, &axis);
    ebb_cudnn_finalize(graph, d, "the pointwise mode");
    d = ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    SET(OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, &how);
    SET_IN(POINTWISE_XDESC, x);
    SET_IN(POINTWISE_BDESC, b);
    SET_IN(POINTWISE_TDESC, chosen);
    SET_IN(POINTWISE_YDESC, y);
    ebb_cudnn_finalize(graph, d, "a pointwise operation");
}

void ebb_cudnn_point(ebb_cudnn_graph *graph, cudnnPointwiseMode_t f, int x, int b, int y)
{
    pointwise(graph, f, -1, x, b, 0, y);
}

void ebb_cudnn_select(ebb_cudnn_graph *graph, int chosen, int a, int b, int y)
{
    pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, -1, a, b, chosen, y);
}

void ebb_cudnn_place(ebb_cudnn_graph *graph, int axis, int x, int y)
{
    pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, axis, x, 0, 0, y);
}

int ebb_cudnn_before(ebb_cudnn_graph *graph, unsigned with, const ebb_cudnn_tensor *y)
{
    const ebb_cudnn_tensor inner = ebb_cudnn_as(y, EBB_F32);
    const unsigned follows = EBB_CUDNN_WITH_BIAS | EBB_CUDNN_WITH_ADD | EBB_CUDNN_WITH_RELU;
    return (with & follows) != 0 ? ebb_cudnn_virtual(graph, &inner) : EBB_CUDNN_Y;
}

void ebb_cudnn_epilogue(ebb_cudnn_graph *graph, unsigned with, int value, const ebb_cudnn_tensor *y,
                        const ebb_cudnn_tensor *bias)
{
    const ebb_cudnn_tensor bits = ebb_cudnn_as(y, EBB_BOOL);
    const unsigned addends[] = {EBB_CUDNN_WITH_BIAS, EBB_CUDNN_WITH_ADD};
    for (int i = 0; i < 2; i++) {
        if ((with & addends[i]) == 0)
            continue;
        with &= ~addends[i];
        const int addend = i == 0 ? ebb_cudnn_real(graph, EBB_CUDNN_BIAS, bias)
                                  : ebb_cudnn_real(graph, EBB_CUDNN_ADDED, y);
        const int sum = ebb_cudnn_before(graph, with, y);
        ebb_cudnn_point(graph, CUDNN_POINTWISE_ADD, value, addend, sum);
        value = sum;
    }
    if (with & EBB_CUDNN_WITH_RELU)
        ebb_cudnn_point(graph, CUDNN_POINTWISE_RELU_FWD, value, 0, EBB_CUDNN_Y);
    if (with & EBB_CUDNN_WITH_MASK) /* of what is stored: asking the value before it is refused */
        ebb_cudnn_point(graph, CUDNN_POINTWISE_CMP_GT, EBB_CUDNN_Y,
                        ebb_cudnn_number(graph, y->rank, 0),
                        ebb_cudnn_real(graph, EBB_CUDNN_MASK, &bits));
}

/* ---- norms ---- */

static const cudnnBackendNormMode_t batch = CUDNN_BATCH_NORM;

void ebb_cudnn_norm_forward(ebb_cudnn_graph *graph, int epsilon, int y)
{
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    SET(OPERATION_NORM_FWD_MODE, NORM_MODE, &batch);
    SET(OPERATION_NORM_FWD_PHASE, NORM_FWD_PHASE, &phase);
    SET_IN(NORM_FWD_XDESC, EBB_CUDNN_X);
    SET_IN(NORM_FWD_MEAN_DESC, EBB_CUDNN_MEAN);
    SET_IN(NORM_FWD_INV_VARIANCE_DESC, EBB_CUDNN_INVSTD);
    SET_IN(NORM_FWD_SCALE_DESC, EBB_CUDNN_SCALE);
    SET_IN(NORM_FWD_BIAS_DESC, EBB_CUDNN_BIAS);
    SET_IN(NORM_FWD_EPSILON_DESC, epsilon);
    SET_IN(NORM_FWD_YDESC, y);
    ebb_cudnn_finalize(graph, d, "the norm");
}

void ebb_cudnn_norm_backward(ebb_cudnn_graph *graph, int dy)
{
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    SET(OPERATION_NORM_BWD_MODE, NORM_MODE, &batch);
    SET_IN(NORM_BWD_XDESC, EBB_CUDNN_X);
    SET_IN(NORM_BWD_MEAN_DESC, EBB_CUDNN_MEAN);
    SET_IN(NORM_BWD_INV_VARIANCE_DESC, EBB_CUDNN_INVSTD);
    SET_IN(NORM_BWD_DYDESC, dy);
    SET_IN(NORM_BWD_SCALE_DESC, EBB_CUDNN_SCALE);
    SET_IN(NORM_BWD_DSCALE_DESC, EBB_CUDNN_DSCALE);
    SET_IN(NORM_BWD_DBIAS_DESC, EBB_CUDNN_DBIAS);
    SET_IN(NORM_BWD_DXDESC, EBB_CUDNN_DX);
    ebb_cudnn_finalize(graph, d, "the norm's gradient");
}

/* ---- pools ---- */

static const struct {
    cudnnResampleMode_t mode;
    cudnnPaddingMode_t padding;
} pools[] = {
    [EBB_CUDNN_MAX_POOL] = {CUDNN_RESAMPLE_MAXPOOL, CUDNN_NEG_INF_PAD},
    [EBB_CUDNN_AVERAGE_POOL] = {CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING, CUDNN_ZERO_PAD},
    [EBB_CUDNN_AVERAGE_POOL_INSIDE] = {CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, CUDNN_ZERO_PAD},
};

static void set_fractions(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                          cudnnBackendAttributeName_t name, int axes, const int64_t *values)
{
    cudnnFraction_t whole[EBB_CUDNN_AXES];
    for (int i = 0; i < axes; i++)
        whole[i] = (cudnnFraction_t){values[i], 1};
    ebb_cudnn_set(graph, of, name, CUDNN_TYPE_FRACTION, axes, whole);
}

static cudnnBackendDescriptor_t pool_of(ebb_cudnn_graph *graph, ebb_cudnn_pool_kind kind,
                                        const ebb_cudnn_window *window)
{
    cudnnBackendDescriptor_t d = ebb_cudnn_make(graph, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    const int64_t axes = window->spatial;
    SET(RESAMPLE_MODE, RESAMPLE_MODE, &pools[kind].mode);
    SET(RESAMPLE_COMP_TYPE, DATA_TYPE, &precise);
    SET(RESAMPLE_NAN_PROPAGATION, NAN_PROPOGATION, &nan);
    SET(RESAMPLE_PADDING_MODE, PADDING_MODE, &pools[kind].padding);
    SET(RESAMPLE_SPATIAL_DIMS, INT64, &axes);
    set_fractions(graph, d, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, (int)axes, window->size);
    set_fractions(graph, d, CUDNN_ATTR_RESAMPLE_STRIDES, (int)axes, window->stride);
    set_fractions(graph, d, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, (int)axes, window->before);
    set_fractions(graph, d, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, (int)axes, window->after);
    ebb_cudnn_finalize(graph, d, "the pool's window");
    return d;
}

void ebb_cudnn_pool(ebb_cudnn_graph *graph, ebb_cudnn_pool_kind kind,
                    const ebb_cudnn_window *window, bool backward, int x, int y)
{
    cudnnBackendDescriptor_t pool = pool_of(graph, kind, window);
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, backward ? CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR
                                            : CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    if (backward) {
        SET(OPERATION_RESAMPLE_BWD_DESC, BACKEND_DESCRIPTOR, &pool);
        SET_IN(RESAMPLE_BWD_DXDESC, x);
        SET_IN(RESAMPLE_BWD_DYDESC, y);
    } else {
        SET(OPERATION_RESAMPLE_FWD_DESC, BACKEND_DESCRIPTOR, &pool);
        SET_IN(RESAMPLE_FWD_XDESC, x);
        SET_IN(RESAMPLE_FWD_YDESC, y);
    }
    ebb_cudnn_finalize(graph, d, "the pool");
}

/* ---- matrices, sums, the rest ---- */

void ebb_cudnn_matmul(ebb_cudnn_graph *graph, int a, int b, int c)
{
    cudnnBackendDescriptor_t d = ebb_cudnn_make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR), how = d;
    graph->products = true;
    SET(MATMUL_COMP_TYPE, DATA_TYPE, &precise);
    ebb_cudnn_finalize(graph, d, "the product's precision");
    d = ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    SET(OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, &how);
    SET_IN(MATMUL_ADESC, a);
    SET_IN(MATMUL_BDESC, b);
    SET_IN(MATMUL_CDESC, c);
    ebb_cudnn_finalize(graph, d, "the product of matrices");
}

void ebb_cudnn_reduce(ebb_cudnn_graph *graph, cudnnReduceTensorOp_t how, int x, int y)
{
    cudnnBackendDescriptor_t d = ebb_cudnn_make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), by = d;
    SET(REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, &how);
    SET(REDUCTION_COMP_TYPE, DATA_TYPE, &precise);
    ebb_cudnn_finalize(graph, d, "the reduction's kind");
    d = ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    SET(OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, &by);
    SET_IN(REDUCTION_XDESC, x);
    SET_IN(REDUCTION_YDESC, y);
    ebb_cudnn_finalize(graph, d, "the reduction");
}

void ebb_cudnn_reshape(ebb_cudnn_graph *graph, int x, int y)
{
    cudnnBackendDescriptor_t d =
        ebb_cudnn_operation(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    SET_IN(RESHAPE_XDESC, x);
    SET_IN(RESHAPE_YDESC, y);
    ebb_cudnn_finalize(graph, d, "the reshape");
}
