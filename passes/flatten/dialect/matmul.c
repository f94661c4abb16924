/* matmul: products and convolutions with an activation inside. */
#include "passes/flatten/dialect/dialect.h"

/* ---- activations by name ---- */

/* Where the numbers of an activation are: in attributes of their own, or in a list. */
typedef struct numbers {
    const char *first, *second; /* names, or NULL */
    const char *list;           /* name, or NULL */
} numbers;

static double number(const ebb_foreign *f, const numbers *from, unsigned which, double otherwise)
{
    const char *name = which == 0 ? from->first : from->second;
    const ebb_attr *list = from->list != NULL ? ebb_attr_find(&f->attrs, from->list) : NULL;
    if (name != NULL)
        return ebb_attr_float(&f->attrs, name, otherwise);
    bool there = list != NULL && list->type == EBB_ATTR_FLOATS && which < list->count;
    return there ? (double)list->floats[which] : otherwise;
}

static ebb_value activated(ebb_build *b, ebb_foreign *f, ebb_value x, const numbers *from)
{
    const char *name = ebb_attr_string(&f->attrs, "activation", "");
    if (name[0] == '\0')
        return x;
    if (strcmp(name, "Relu") == 0)
        return ebb_emit(b, EBB_OP_RELU, x);
    if (strcmp(name, "Tanh") == 0)
        return ebb_emit(b, EBB_OP_TANH, x);
    if (strcmp(name, "Sigmoid") == 0)
        return ebb_emit(b, EBB_OP_SIGMOID, x);
    if (strcmp(name, "LeakyRelu") == 0) {
        ebb_with_float(b, "alpha", number(f, from, 0, (double)0.01f));
        return ebb_emit(b, EBB_OP_LEAKY_RELU, x);
    }
    if (strcmp(name, "HardSigmoid") == 0) {
        ebb_with_float(b, "alpha", number(f, from, 0, (double)0.2f));
        ebb_with_float(b, "beta", number(f, from, 1, 0.5));
        return ebb_emit(b, EBB_OP_HARD_SIGMOID, x);
    }
    if (strcmp(name, "Clip") == 0)
        return ebb_emit(b, EBB_OP_CLIP, x,
                        ebb_const_like(b, x, number(f, from, 0, -3.402823466e38)),
                        ebb_const_like(b, x, number(f, from, 1, 3.402823466e38)));
    f->declines = "its activation is not known";
    return x;
}

/* ---- products ---- */

/* x[M, batch..., K] -> [batch..., M, K], where the flag says so. */
static ebb_value with_batch_first(ebb_build *b, ebb_foreign *f, uint32_t input, const char *flag)
{
    const ebb_value x = f->x[input];
    int64_t perm[EBB_MAX_RANK];
    ebb_type type;
    if (ebb_attr_int(&f->attrs, flag, 0) == 0 || !ebb_foreign_ranked(b, f, input, &type) ||
        type.rank < 3)
        return x;
    for (int d = 0; d + 2 < type.rank; d++)
        perm[d] = d + 1;
    perm[type.rank - 2] = 0;
    perm[type.rank - 1] = type.rank - 1;
    return ebb_emit_transpose(b, x, perm, type.rank);
}

/* ebb runs the call as it is but for its flags that turn the batch, which become transposes. */
void ebb_dialect_fused_matmul(ebb_build *b, ebb_foreign *f)
{
    f->native = ebb_attr_int(&f->attrs, "transBatchA", 0) == 0 &&
                ebb_attr_int(&f->attrs, "transBatchB", 0) == 0;
    if (f->native)
        return;
    ebb_value left = with_batch_first(b, f, 0, "transBatchA");
    ebb_value right = with_batch_first(b, f, 1, "transBatchB");
    if (f->declines != NULL)
        return;
    ebb_with_foreign(b, f, "alpha", "transA", "transB");
    f->y[0] = ebb_emit(b, EBB_OP_FUSED_MATMUL, left, right);
}

/* The old name of FusedMatMul. */
void ebb_dialect_transpose_matmul(ebb_build *b, ebb_foreign *f)
{
    ebb_with_attrs_of(b, f->node);
    f->y[0] = ebb_emit(b, EBB_OP_FUSED_MATMUL, f->x[0], f->x[1]);
}

void ebb_dialect_fused_gemm(ebb_build *b, ebb_foreign *f)
{
    static const numbers from = {"activation_alpha", "activation_beta", NULL};
    ebb_with_foreign(b, f, "alpha", "beta", "transA", "transB");
    f->y[0] = activated(b, f, ebb_emit(b, EBB_OP_GEMM, f->x[0], f->x[1], f->x[2]), &from);
}

void ebb_dialect_fused_matmul_activation(ebb_build *b, ebb_foreign *f)
{
    static const numbers from = {"activation_alpha", "activation_beta", NULL};
    ebb_with_foreign(b, f, "alpha", "transA", "transB", "transBatchA", "transBatchB");
    f->y[0] = activated(b, f, ebb_emit(b, EBB_OP_FUSED_MATMUL, f->x[0], f->x[1]), &from);
}

/* GemmFastGelu(X, W, bias?) */
void ebb_dialect_gemm_fast_gelu(ebb_build *b, ebb_foreign *f)
{
    ebb_value product = ebb_emit(b, EBB_OP_MATMUL, f->x[0], f->x[1]);
    f->y[0] = ebb_emit(b, EBB_OP_MS_FAST_GELU, ebb_emit_plus(b, product, f->x[2]));
}

/* ---- convolutions ---- */

/* FusedConv(X, W, bias?, Z?) {Conv's, activation, activation_params} -> activation(conv + Z) */
void ebb_dialect_fused_conv(ebb_build *b, ebb_foreign *f)
{
    static const numbers from = {NULL, NULL, "activation_params"};
    ebb_with_foreign(b, f, "auto_pad", "dilations", "group", "kernel_shape", "pads", "strides");
    ebb_value y = ebb_emit(b, EBB_OP_CONV, f->x[0], f->x[1], f->x[2]);
    f->y[0] = activated(b, f, ebb_emit_plus(b, y, f->x[3]), &from);
}
