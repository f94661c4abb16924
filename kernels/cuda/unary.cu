/* unary.cu: operators of one input, element by element; activations; Clip and PRelu. */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/formulas.h"

#define KERNELS "kernels/cuda/unary_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel kernels[][4] = {
#define UNARY(result, name, arity, value) EBB_CUDA_FLOATS(name),
#include "kernels/cuda/formulas.def"
};

static ebb_status run(const ebb_call *c)
{
    ebb_formula_use use;
    (void)ebb_formula_of(c, &use);
    return ebb_formula_run(c, &use, kernels[use.formula - EBB_FORMULA_neg], c->input_count);
}

/* ---- floats and integers ---- */

static ebb_status run_number(const ebb_call *c)
{
    if (ebb_dtype_is_float((ebb_dtype)c->in[0].type.dtype))
        return run(c);
    switch (c->op) {
    case EBB_OP_NEG:
        return ebb_whole_run(c, EBB_WHOLE_neg);
    case EBB_OP_ABS:
        return ebb_whole_run(c, EBB_WHOLE_abs);
    case EBB_OP_SIGN:
        return ebb_whole_run(c, EBB_WHOLE_sign);
    case EBB_OP_RELU:
        return ebb_whole_run(c, EBB_WHOLE_relu);
    case EBB_OP_PRELU:
        return ebb_whole_run(c, EBB_WHOLE_prelu);
    default:
        return ebb_whole_run(c, EBB_WHOLE_clip);
    }
}

static ebb_status run_clip(const ebb_call *c)
{
    static const char *const names[2] = {"min", "max"};
    for (uint32_t k = 0; k < 2; k++)
        if (ebb_call_has(c, 1 + k) && ebb_elements(&c->in[1 + k].type) != 1)
            return ebb_call_error(c, "%s is not a scalar", names[k]);
    return run_number(c);
}

static ebb_status run_not(const ebb_call *c)
{
    return ebb_whole_run(c, EBB_WHOLE_neither);
}

static ebb_status run_bit_not(const ebb_call *c)
{
    return ebb_whole_run(c, EBB_WHOLE_bit_not);
}

/* ---- declines ---- */

static const char *declines_number(const ebb_call *c)
{
    const char *why = ebb_cuda_numbers(c);
    if (why != NULL)
        return why;
    if (c->in[0].type.dtype == EBB_BOOL)
        return "does not compute with bools";
    for (uint32_t i = 1; i < c->input_count; i++)
        if (ebb_call_has(c, i) && c->in[i].type.dtype != c->in[0].type.dtype)
            return "inputs differ in dtype";
    return NULL;
}

static const char *declines_bits(const ebb_call *c)
{
    return ebb_dtype_is_integer((ebb_dtype)c->in[0].type.dtype) ? ebb_call_any(c)
                                                                : "works on integers only";
}

static const char *declines_not(const ebb_call *c)
{
    return c->in[0].type.dtype == EBB_BOOL ? ebb_call_any(c) : "works on bool only";
}

static const char *declines_fast_gelu(const ebb_call *c)
{
    return ebb_call_has(c, 1) ? "takes no bias" : ebb_cuda_floats(c);
}

#define KERNEL(op, name, declines, run)                             \
    {                                                               \
        "cuda." #name, EBB_OP_##op, declines, NULL, NULL, run, NULL \
    }

// clang-format off
const ebb_kernel ebb_cuda_unary[] = {
    KERNEL(NOT,              not,              declines_not,       run_not),
    KERNEL(BITWISE_NOT,      bit_not,          declines_bits,      run_bit_not),
    KERNEL(NEG,              neg,              declines_number,    run_number),
    KERNEL(ABS,              abs,              declines_number,    run_number),
    KERNEL(SIGN,             sign,             declines_number,    run_number),
    KERNEL(RELU,             relu,             declines_number,    run_number),
    KERNEL(CLIP,             clip,             declines_number,    run_clip),
    KERNEL(PRELU,            prelu,            declines_number,    run_number),
    KERNEL(EXP,              exp,              ebb_cuda_floats,    run),
    KERNEL(LOG,              log,              ebb_cuda_floats,    run),
    KERNEL(SQRT,             sqrt,             ebb_cuda_floats,    run),
    KERNEL(RECIPROCAL,       reciprocal,       ebb_cuda_floats,    run),
    KERNEL(ERF,              erf,              ebb_cuda_floats,    run),
    KERNEL(SIN,              sin,              ebb_cuda_floats,    run),
    KERNEL(COS,              cos,              ebb_cuda_floats,    run),
    KERNEL(TAN,              tan,              ebb_cuda_floats,    run),
    KERNEL(ASIN,             asin,             ebb_cuda_floats,    run),
    KERNEL(ACOS,             acos,             ebb_cuda_floats,    run),
    KERNEL(ATAN,             atan,             ebb_cuda_floats,    run),
    KERNEL(SINH,             sinh,             ebb_cuda_floats,    run),
    KERNEL(COSH,             cosh,             ebb_cuda_floats,    run),
    KERNEL(ASINH,            asinh,            ebb_cuda_floats,    run),
    KERNEL(ACOSH,            acosh,            ebb_cuda_floats,    run),
    KERNEL(ATANH,            atanh,            ebb_cuda_floats,    run),
    KERNEL(FLOOR,            floor,            ebb_cuda_floats,    run),
    KERNEL(CEIL,             ceil,             ebb_cuda_floats,    run),
    KERNEL(ROUND,            round,            ebb_cuda_floats,    run),
    KERNEL(LEAKY_RELU,       leaky_relu,       ebb_cuda_floats,    run),
    KERNEL(THRESHOLDED_RELU, thresholded_relu, ebb_cuda_floats,    run),
    KERNEL(ELU,              elu,              ebb_cuda_floats,    run),
    KERNEL(SELU,             selu,             ebb_cuda_floats,    run),
    KERNEL(CELU,             celu,             ebb_cuda_floats,    run),
    KERNEL(SHRINK,           shrink,           ebb_cuda_floats,    run),
    KERNEL(SWISH,            swish,            ebb_cuda_floats,    run),
    KERNEL(SIGMOID,          sigmoid,          ebb_cuda_floats,    run),
    KERNEL(TANH,             tanh,             ebb_cuda_floats,    run),
    KERNEL(HARD_SIGMOID,     hard_sigmoid,     ebb_cuda_floats,    run),
    KERNEL(HARD_SWISH,       hard_swish,       ebb_cuda_floats,    run),
    KERNEL(SOFTPLUS,         softplus,         ebb_cuda_floats,    run),
    KERNEL(SOFTSIGN,         softsign,         ebb_cuda_floats,    run),
    KERNEL(GELU,             gelu,             ebb_cuda_floats,    run),
    KERNEL(MISH,             mish,             ebb_cuda_floats,    run),
    KERNEL(IS_NAN,           is_nan,           ebb_cuda_floats,    run),
    KERNEL(IS_INF,           is_inf,           ebb_cuda_floats,    run),
    KERNEL(MS_GELU,          gelu,             ebb_cuda_floats,    run),
    KERNEL(MS_FAST_GELU,     fast_gelu,        declines_fast_gelu, run),
    KERNEL(MS_QUICK_GELU,    quick_gelu,       ebb_cuda_floats,    run),
};
// clang-format on
EBB_CUDA_COUNT(unary)
