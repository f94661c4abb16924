/* pointwise_grad.cu: gradients of activations, dY first. Both inputs and the result have one shape,
 * so the result may be written over either. */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/formulas.h"

#define KERNELS "kernels/cuda/pointwise_grad_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel kernels[][4] = {
#define GRADIENT(result, name, arity, value) EBB_CUDA_FLOATS(name),
#include "kernels/cuda/formulas.def"
};

static ebb_status run(const ebb_call *c)
{
    ebb_formula_use use;
    (void)ebb_formula_of(c, &use);
    return ebb_formula_run(c, &use, kernels[use.formula - EBB_FORMULA_relu_grad], c->input_count);
}

static ebb_status run_clip_grad(const ebb_call *c)
{
    for (uint32_t k = 0; k < 2; k++)
        if (ebb_call_has(c, 2 + k) && ebb_elements(&c->in[2 + k].type) != 1)
            return ebb_call_error(c, "%s is not a scalar", k == 0 ? "min" : "max");
    return run(c);
}

static const char *declines(const ebb_call *c)
{
    const char *why = ebb_cuda_floats(c);
    if (why != NULL)
        return why;
    return ebb_type_same_shape(&c->in[0].type, &c->in[1].type) ? NULL
                                                               : "the inputs differ in shape";
}

static const char *declines_no_bias(const ebb_call *c)
{
    return ebb_call_has(c, 2) ? "takes no bias" : declines(c);
}

#define KERNEL(op, name, declines, run)                             \
    {                                                               \
        "cuda." #name, EBB_OP_##op, declines, NULL, NULL, run, NULL \
    }

// clang-format off
const ebb_kernel ebb_cuda_pointwise_grad[] = {
    KERNEL(RELU_GRAD,       relu_grad,       declines,         run),
    KERNEL(LEAKY_RELU_GRAD, leaky_relu_grad, declines,         run),
    KERNEL(SIGMOID_GRAD,    sigmoid_grad,    declines,         run),
    KERNEL(TANH_GRAD,       tanh_grad,       declines,         run),
    KERNEL(GELU_GRAD,       gelu_grad,       declines_no_bias, run),
    KERNEL(FAST_GELU_GRAD,  fast_gelu_grad,  declines_no_bias, run),
    KERNEL(QUICK_GELU_GRAD, quick_gelu_grad, declines,         run),
    KERNEL(MISH_GRAD,       mish_grad,       declines,         run),
    KERNEL(CLIP_GRAD,       clip_grad,       declines,         run_clip_grad),
};
// clang-format on
EBB_CUDA_COUNT(pointwise_grad)
