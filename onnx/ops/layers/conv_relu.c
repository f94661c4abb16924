/* conv_relu: a convolution, what is added to it, and the ReLU behind, as one operator.
 *
 *   ConvRelu, ConvReluNhwc      (X, W, bias?)       -> Z, bits      Z = Relu(Conv(X, W, bias))
 *   ConvAddReluNhwc             (X, W, bias?, A)    -> Z, bits      Z = Relu(ConvNhwc(X, W, bias) + A)
 *
 * Everything of the convolution's own is asked of its row, with the operands that are its.
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

enum { CONV_INPUTS = 3, ADDED = 3 };

/* What the convolution alone would be inferred from; its type goes to *y. */
static ebb_infer conv_of(const ebb_infer *c, ebb_type *y)
{
    ebb_infer conv = *c;
    conv.op = ebb_op_convolution(c->op);
    conv.input_count = c->input_count < CONV_INPUTS ? c->input_count : CONV_INPUTS;
    conv.output_count = 1;
    conv.out = y;
    return conv;
}

ebb_status ebb_infer_conv_relu(ebb_infer *c)
{
    ebb_type y = ebb_type_none();
    ebb_infer conv = conv_of(c, &y);
    EBB_TRY(ebb_op_row_of(conv.op)->infer(&conv));
    if (c->op == EBB_OP_CONV_ADD_RELU_NHWC) {
        const ebb_type *added = ebb_infer_type(c, ADDED);
        if (added == NULL)
            return ebb_infer_error(c, "input %d, what is added, is missing", ADDED);
        if (y.rank >= 0 && added->rank >= 0 && added->rank != y.rank)
            return ebb_infer_error(c, "what is added has rank %d, and the convolution %d",
                                   (int)added->rank, (int)y.rank);
        for (int i = 0; i < y.rank && i < added->rank; i++)
            if (y.dims[i] >= 0 && added->dims[i] >= 0 && y.dims[i] != added->dims[i])
                return ebb_infer_error(
                    c, "dim %d of what is added is %lld, and %lld of the convolution", i,
                    (long long)added->dims[i], (long long)y.dims[i]);
    }
    c->out[0] = y;
    if (c->output_count > 1)
        c->out[1] = ebb_type_bits(&y);
    return NULL;
}

double ebb_cost_conv_relu(const ebb_infer *c)
{
    const ebb_infer conv = conv_of(c, c->out);
    return ebb_op_row_of(conv.op)->cost(&conv);
}

/* z = max(y + a, 0): what is let through is the gradient of y and of a. */
void ebb_grad_conv_relu(ebb_build *b, ebb_grad *c)
{
    const ebb_op op = ebb_op_convolution(ebb_node_of(b->g, c->node)->op);
    const ebb_value through = ebb_emit(b, EBB_OP_RELU_GRAD, c->dy[0], c->y[0]);
    ebb_grad conv = *c;
    conv.input_count = c->input_count < CONV_INPUTS ? c->input_count : CONV_INPUTS;
    conv.output_count = 1;
    conv.dy = &through;
    ebb_grad_rule(b, op, &conv);
    if (c->input_count > ADDED && c->wants[ADDED])
        c->dx[ADDED] = through;
}
