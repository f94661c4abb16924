/* pool: windows that take a maximum or an average, and the pools over all of space.
 *
 *   X: [N, C, d...] -> Y: [N, C, o...];  MaxPool's second output: indices of the maxima, int64;
 *   MaxPoolPacked's: their places in the windows, a few bits each.
 */
#include "onnx/ops/ops.h"
#include "onnx/graph/shape.h"
#include "onnx/ops/window.h"

/* MaxPoolPacked's windows are spelled out, and its second output is uint8[ceil(n * bits / 8)]. */
static ebb_status with_taps(ebb_infer *c)
{
    static const char *const needed[] = {"kernel_shape", "strides", "dilations", "pads"};
    int64_t n, bits = ebb_attr_int(&c->attrs, "bits", 8);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (ebb_attr_find(&c->attrs, needed[i]) == NULL)
            return ebb_infer_error(c, "%s is missing", needed[i]);
    if (bits != 1 && bits != 2 && bits != 4 && bits != 8 && bits != 16)
        return ebb_infer_error(c, "bits is %lld; 1, 2, 4, 8 or 16 is expected", (long long)bits);
    if (c->output_count < 2)
        return NULL;
    c->out[1] = ebb_type_ranked(EBB_U8, 1);
    if (ebb_type_elements(&c->out[0], &n) && n <= INT64_MAX / 16)
        ebb_type_set_dim(&c->out[1], 0, (n * bits + 7) / 8);
    return NULL;
}

ebb_status ebb_infer_pool(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    ebb_type out = ebb_type_unranked((ebb_dtype)x->dtype);
    if (x->rank >= 0) {
        ebb_window w;
        if (x->rank < 3)
            return ebb_infer_error(c, "the input has rank %d; at least 3 is needed", (int)x->rank);
        const char *wrong = ebb_window_resolve(&w, &c->attrs, x->rank - 2, x->dims + 2, NULL,
                                               ebb_attr_int(&c->attrs, "ceil_mode", 0) != 0);
        if (wrong != NULL)
            return ebb_infer_error(c, "%s", wrong);
        out = *x;
        for (int i = 0; i < w.rank; i++)
            ebb_type_set_dim(&out, i + 2, w.out[i]);
    }
    c->out[0] = out;
    if (c->op == EBB_OP_MAX_POOL_PACKED)
        return with_taps(c);
    if (c->output_count > 1) {
        c->out[1] = out;
        c->out[1].dtype = EBB_I64;
    }
    return NULL;
}

ebb_status ebb_infer_global_pool(ebb_infer *c)
{
    if (c->in[0]->rank >= 0 && c->in[0]->rank < 3)
        return ebb_infer_error(c, "the input has rank %d; at least 3 is needed",
                               (int)c->in[0]->rank);
    c->out[0] = *c->in[0];
    for (int i = 2; i < c->out[0].rank; i++)
        ebb_type_set_dim(&c->out[0], i, 1);
    return NULL;
}

/* ai.ebb MaxPoolGrad(dY, X) -> dX. */
ebb_status ebb_infer_max_pool_grad(ebb_infer *c)
{
    c->out[0] = *c->in[1];
    return NULL;
}

/* ai.ebb AveragePoolGrad(dY) {input_shape} -> dX, MaxPoolPackedGrad(dY, taps) {input_shape} -> dX.
 */
ebb_status ebb_infer_pool_grad(ebb_infer *c)
{
    uint32_t rank;
    const int64_t *dims = ebb_attr_ints(&c->attrs, "input_shape", &rank);
    if (rank < 3 || rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "input_shape is missing");
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] < 0)
            return ebb_infer_error(c, "input_shape has a negative dim");
    c->out[0] = ebb_type_tensor((ebb_dtype)c->in[0]->dtype, (int)rank, dims);
    return NULL;
}

/* One operation for each (element of the small side, tap). */
double ebb_cost_pool(const ebb_infer *c)
{
    bool forward =
        c->op == EBB_OP_MAX_POOL || c->op == EBB_OP_MAX_POOL_PACKED || c->op == EBB_OP_AVERAGE_POOL;
    const ebb_type *side = forward ? &c->out[0] : c->input_count > 0 ? c->in[0] : NULL;
    int64_t n;
    if (side == NULL || !ebb_type_elements(side, &n))
        return 0;
    uint32_t count;
    const int64_t *kernel = ebb_attr_ints(&c->attrs, "kernel_shape", &count);
    double taps = 1;
    for (uint32_t i = 0; i < count; i++)
        taps *= (double)kernel[i];
    return (double)n * taps;
}

/* y = MaxPool(x).  dx: dy goes to where the maximum was, which MaxPoolGrad finds again in x. Needs
 * x. */
void ebb_grad_max_pool(ebb_build *b, ebb_grad *c)
{
    ebb_with_attrs_of(b, c->node);
    c->dx[0] = ebb_emit(b, EBB_OP_MAX_POOL_GRAD, c->dy[0], c->x[0]);
}

/* y = AveragePool(x).  Needs x's shape alone. */
void ebb_grad_average_pool(ebb_build *b, ebb_grad *c)
{
    ebb_type x = *ebb_build_type(b, c->x[0]);
    if (!ebb_type_is_static(&x)) {
        ebb_build_fail(b, ebb_error(EBB_REJECTED, "%s: its input's shape is not known",
                                    ebb_node_label(b->g, c->node)));
        return;
    }
    ebb_with_attrs_of(b, c->node);
    ebb_with_ints(b, "input_shape", x.dims, (uint32_t)x.rank);
    c->dx[0] = ebb_emit(b, EBB_OP_AVERAGE_POOL_GRAD, c->dy[0]);
}

/* y = mean of x over space.  dx = dy / (elements of space), spread over it. */
void ebb_grad_global_average_pool(ebb_build *b, ebb_grad *c)
{
    ebb_type x = *ebb_build_type(b, c->x[0]);
    ebb_value shape = ebb_const_shape(b, c->x[0]);
    double count = 1;
    for (int i = 2; i < x.rank; i++)
        count *= (double)x.dims[i];
    ebb_value scale = ebb_const_like(b, c->dy[0], count > 0 ? 1.0 / count : 0.0);
    ebb_value small = ebb_emit(b, EBB_OP_MUL, c->dy[0], scale);
    c->dx[0] = ebb_emit(b, EBB_OP_EXPAND, small, shape);
}
