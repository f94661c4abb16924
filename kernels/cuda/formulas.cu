/* formulas.cu: which formula an operator is, and how its kernels are launched. */
#include "kernels/cuda/formulas.h"

#define ROW_NUMBER false
#define ROW_FLAG true
const ebb_formula_row ebb_formula_rows[EBB_FORMULA_COUNT] = {
#define POINTWISE(result, name, arity, value) {#name, arity, ROW_##result, #value},
#define UNARY POINTWISE
#define GRADIENT POINTWISE
#include "kernels/cuda/formulas.def"
};

#define FUNCTION(name, parameters, ...) \
    "EBB_GPU_INLINE REAL NAMED(" #name ")" #parameters "\n" #__VA_ARGS__ "\n"
const char *const ebb_formula_functions =
#include "kernels/cuda/formulas.def"
    ;

/* ---- which ---- */

typedef struct named { /* attributes p and q where they are not given */
    ebb_op op;
    ebb_formula formula;
    const char *p, *q;
    double p_otherwise, q_otherwise;
} named;

// clang-format off
static const named table[] = {
    {EBB_OP_ADD, EBB_FORMULA_add, NULL, NULL, 0, 0},
    {EBB_OP_SUB, EBB_FORMULA_sub, NULL, NULL, 0, 0},
    {EBB_OP_MUL, EBB_FORMULA_mul, NULL, NULL, 0, 0},
    {EBB_OP_DIV, EBB_FORMULA_div, NULL, NULL, 0, 0},
    {EBB_OP_POW, EBB_FORMULA_pow, NULL, NULL, 0, 0},
    {EBB_OP_MOD, EBB_FORMULA_mod, NULL, NULL, 0, 0},
    {EBB_OP_MAX, EBB_FORMULA_max, NULL, NULL, 0, 0},
    {EBB_OP_MIN, EBB_FORMULA_min, NULL, NULL, 0, 0},
    {EBB_OP_SUM, EBB_FORMULA_mean, NULL, NULL, 1, 0},
    {EBB_OP_MEAN, EBB_FORMULA_mean, NULL, NULL, 1, 0},
    {EBB_OP_EQUAL, EBB_FORMULA_equal, NULL, NULL, 0, 0},
    {EBB_OP_GREATER, EBB_FORMULA_greater, NULL, NULL, 0, 0},
    {EBB_OP_GREATER_OR_EQUAL, EBB_FORMULA_greater_equal, NULL, NULL, 0, 0},
    {EBB_OP_LESS, EBB_FORMULA_less, NULL, NULL, 0, 0},
    {EBB_OP_LESS_OR_EQUAL, EBB_FORMULA_less_equal, NULL, NULL, 0, 0},
    {EBB_OP_NEG, EBB_FORMULA_neg, NULL, NULL, 0, 0},
    {EBB_OP_ABS, EBB_FORMULA_abs, NULL, NULL, 0, 0},
    {EBB_OP_SIGN, EBB_FORMULA_sign, NULL, NULL, 0, 0},
    {EBB_OP_RELU, EBB_FORMULA_relu, NULL, NULL, 0, 0},
    {EBB_OP_CLIP, EBB_FORMULA_clip, NULL, NULL, 0, 0},
    {EBB_OP_PRELU, EBB_FORMULA_prelu, NULL, NULL, 0, 0},
    {EBB_OP_EXP, EBB_FORMULA_exp, NULL, NULL, 0, 0},
    {EBB_OP_LOG, EBB_FORMULA_log, NULL, NULL, 0, 0},
    {EBB_OP_SQRT, EBB_FORMULA_sqrt, NULL, NULL, 0, 0},
    {EBB_OP_RECIPROCAL, EBB_FORMULA_reciprocal, NULL, NULL, 0, 0},
    {EBB_OP_ERF, EBB_FORMULA_erf, NULL, NULL, 0, 0},
    {EBB_OP_SIN, EBB_FORMULA_sin, NULL, NULL, 0, 0},
    {EBB_OP_COS, EBB_FORMULA_cos, NULL, NULL, 0, 0},
    {EBB_OP_TAN, EBB_FORMULA_tan, NULL, NULL, 0, 0},
    {EBB_OP_ASIN, EBB_FORMULA_asin, NULL, NULL, 0, 0},
    {EBB_OP_ACOS, EBB_FORMULA_acos, NULL, NULL, 0, 0},
    {EBB_OP_ATAN, EBB_FORMULA_atan, NULL, NULL, 0, 0},
    {EBB_OP_SINH, EBB_FORMULA_sinh, NULL, NULL, 0, 0},
    {EBB_OP_COSH, EBB_FORMULA_cosh, NULL, NULL, 0, 0},
    {EBB_OP_ASINH, EBB_FORMULA_asinh, NULL, NULL, 0, 0},
    {EBB_OP_ACOSH, EBB_FORMULA_acosh, NULL, NULL, 0, 0},
    {EBB_OP_ATANH, EBB_FORMULA_atanh, NULL, NULL, 0, 0},
    {EBB_OP_FLOOR, EBB_FORMULA_floor, NULL, NULL, 0, 0},
    {EBB_OP_CEIL, EBB_FORMULA_ceil, NULL, NULL, 0, 0},
    {EBB_OP_ROUND, EBB_FORMULA_round, NULL, NULL, 0, 0},
    {EBB_OP_LEAKY_RELU, EBB_FORMULA_leaky_relu, "alpha", NULL, (double)0.01f, 0},
    {EBB_OP_THRESHOLDED_RELU, EBB_FORMULA_thresholded_relu, "alpha", NULL, 1, 0},
    {EBB_OP_ELU, EBB_FORMULA_elu, "alpha", NULL, 1, 0},
    {EBB_OP_SELU, EBB_FORMULA_selu, "alpha", "gamma", 1.67326319217681884765625, 1.05070102214813232421875},
    {EBB_OP_CELU, EBB_FORMULA_celu, "alpha", NULL, 1, 0},
    {EBB_OP_SHRINK, EBB_FORMULA_shrink, "lambd", "bias", 0.5, 0},
    {EBB_OP_SWISH, EBB_FORMULA_quick_gelu, "alpha", NULL, 1, 0},
    {EBB_OP_SIGMOID, EBB_FORMULA_sigmoid, NULL, NULL, 0, 0},
    {EBB_OP_TANH, EBB_FORMULA_tanh, NULL, NULL, 0, 0},
    {EBB_OP_HARD_SIGMOID, EBB_FORMULA_hard_sigmoid, "alpha", "beta", 0.2, 0.5},
    {EBB_OP_HARD_SWISH, EBB_FORMULA_hard_swish, NULL, NULL, 0, 0},
    {EBB_OP_SOFTPLUS, EBB_FORMULA_softplus, NULL, NULL, 0, 0},
    {EBB_OP_SOFTSIGN, EBB_FORMULA_softsign, NULL, NULL, 0, 0},
    {EBB_OP_GELU, EBB_FORMULA_gelu, NULL, NULL, 0, 0},
    {EBB_OP_MISH, EBB_FORMULA_mish, NULL, NULL, 0, 0},
    {EBB_OP_IS_NAN, EBB_FORMULA_is_nan, NULL, NULL, 0, 0},
    {EBB_OP_IS_INF, EBB_FORMULA_is_inf, NULL, NULL, 1, 1},
    {EBB_OP_MS_GELU, EBB_FORMULA_gelu, NULL, NULL, 0, 0},
    {EBB_OP_MS_FAST_GELU, EBB_FORMULA_fast_gelu, NULL, NULL, 0, 0},
    {EBB_OP_MS_QUICK_GELU, EBB_FORMULA_quick_gelu, "alpha", NULL, 1.702, 0},
    {EBB_OP_RELU_GRAD, EBB_FORMULA_relu_grad, NULL, NULL, 0, 0},
    {EBB_OP_LEAKY_RELU_GRAD, EBB_FORMULA_leaky_relu_grad, "alpha", NULL, (double)0.01f, 0},
    {EBB_OP_SIGMOID_GRAD, EBB_FORMULA_sigmoid_grad, NULL, NULL, 0, 0},
    {EBB_OP_TANH_GRAD, EBB_FORMULA_tanh_grad, NULL, NULL, 0, 0},
    {EBB_OP_GELU_GRAD, EBB_FORMULA_gelu_grad, NULL, NULL, 0, 0},
    {EBB_OP_FAST_GELU_GRAD, EBB_FORMULA_fast_gelu_grad, NULL, NULL, 0, 0},
    {EBB_OP_QUICK_GELU_GRAD, EBB_FORMULA_quick_gelu_grad, "alpha", NULL, 1.702, 0},
    {EBB_OP_MISH_GRAD, EBB_FORMULA_mish_grad, NULL, NULL, 0, 0},
    {EBB_OP_CLIP_GRAD, EBB_FORMULA_clip_grad, NULL, NULL, 0, 0},
};
// clang-format on

static const named *find(ebb_op op)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].op == op)
            return &table[i];
    return NULL;
}

bool ebb_formula_of(const ebb_call *c, ebb_formula_use *use)
{
    const named *row = find(c->op);
    memset(use, 0, sizeof *use);
    if (row == NULL)
        return false;
    use->formula = row->formula;
    use->p =
        row->p != NULL ? ebb_attr_float(&c->attrs, row->p, row->p_otherwise) : row->p_otherwise;
    use->q =
        row->q != NULL ? ebb_attr_float(&c->attrs, row->q, row->q_otherwise) : row->q_otherwise;
    if (c->op == EBB_OP_GELU &&
        strcmp(ebb_attr_string(&c->attrs, "approximate", "none"), "tanh") == 0)
        use->formula = EBB_FORMULA_fast_gelu;
    if (c->op == EBB_OP_MOD && ebb_attr_int(&c->attrs, "fmod", 0) != 0)
        use->formula = EBB_FORMULA_fmod;
    if (c->op == EBB_OP_IS_INF) {
        use->p = (double)ebb_attr_int(&c->attrs, "detect_positive", 1);
        use->q = (double)ebb_attr_int(&c->attrs, "detect_negative", 1);
    }
    if (c->op == EBB_OP_CLIP) { // before opset 11 the bounds are attributes
        use->other[1] = ebb_attr_float(&c->attrs, "min", -(double)INFINITY);
        use->other[2] = ebb_attr_float(&c->attrs, "max", (double)INFINITY);
    }
    if (c->op == EBB_OP_CLIP_GRAD) {
        use->other[2] = -(double)INFINITY;
        use->other[3] = (double)INFINITY;
    }
    if (use->formula == EBB_FORMULA_mean) {
        for (int k = 0; k < EBB_CUDA_INPUTS; k++)
            use->other[k] = -0.0;
        use->p = c->op == EBB_OP_MEAN ? (double)c->input_count : 1;
    }
    return true;
}

/* ---- launch ---- */

int64_t ebb_cuda_pack(const ebb_cuda_walk *w, int64_t n, const void *out, const void *const *in,
                      int count, size_t size)
{
    int64_t lanes = (int64_t)(16 / size);
    if (w->rank < 1 || (w->rank > 1 && w->dims[0] % lanes != 0) || n < lanes ||
        (uintptr_t)out % 16 != 0)
        return 1;
    for (int k = 0; k < count; k++) {
        if (in[k] == NULL || w->stride[k][0] == 0)
            continue;
        if (w->stride[k][0] != 1 || (uintptr_t)in[k] % 16 != 0)
            return 1;
        for (int d = 1; d < w->rank; d++)
            if (w->stride[k][d] % lanes != 0)
                return 1;
    }
    return lanes;
}

ebb_status ebb_formula_run(const ebb_call *c, const ebb_formula_use *use,
                           const ebb_gpu_kernel kernels[4], uint32_t count)
{
    const ebb_type *in[EBB_CUDA_INPUTS], *out = &c->out[0].type;
    ebb_formula_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    a.p = use->p;
    a.q = use->q;
    a.n = ebb_elements(out);
    int arity = ebb_formula_rows[use->formula].arity;
    const ebb_type scalar = ebb_type_tensor((ebb_dtype)c->in[0].type.dtype, 0, NULL);
    for (int k = 0; k < arity; k++) {
        bool there = (uint32_t)k < count && ebb_call_has(c, (uint32_t)k);
        in[k] = there ? &c->in[k].type : &scalar;
        a.in[k] = there ? c->in[k].data : NULL;
        a.other[k] = use->other[k];
    }
    ebb_cuda_walk_make(&a.walk, out, in, arity);
    int64_t lanes =
        ebb_cuda_pack(&a.walk, a.n, a.out, a.in, arity, ebb_element_bytes(&c->in[0].type));
    a.packed = lanes > 1 ? a.n / lanes * lanes : 0;
    int64_t pieces = a.packed / lanes > a.n - a.packed ? a.packed / lanes : a.n - a.packed;
    return EBB_LAUNCH(c, kernels[ebb_cuda_float_row(c->in[0].type.dtype)], ebb_cuda_grid(pieces),
                      EBB_CUDA_BLOCK, 0, a);
}
