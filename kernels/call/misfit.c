/* misfit.c: see misfit.h. */
#include "kernels/call/misfit.h"

#include "kernels/draws.h"
#include "kernels/math/invert_fit.h"

#include <float.h>
#include <math.h>

/* ---- losses ---- */

const char *ebb_loss_misfit(const ebb_call *c)
{
    if (c->input_count > 1 && !ebb_type_same_shape(&c->in[0].type, &c->in[1].type))
        return "inputs differ in shape";
    return NULL;
}

uint32_t ebb_cross_entropy_first(const ebb_call *c)
{
    return c->op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD || c->op == EBB_OP_SCORES_CROSS_ENTROPY;
}

/* Beside scores of 16 bits all other floats are float32. */
static uint8_t dtype_beside(const ebb_call *c, const ebb_type *x)
{
    return c->op == EBB_OP_SCORES_CROSS_ENTROPY && ebb_is_narrow(x) ? EBB_F32 : x->dtype;
}

const char *ebb_scores_dtypes(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    const ebb_type *x = &c->in[1].type;
    const uint8_t beside = dtype_beside(c, x);
    if (!ebb_dtype_is_float((ebb_dtype)x->dtype) || c->in[0].type.dtype != beside ||
        (ebb_call_wants(c, 0) && c->out[0].type.dtype != beside) ||
        (ebb_call_wants(c, 1) && c->out[1].type.dtype != x->dtype))
        return "dY and the loss are not of the scores' float type, float32 beside 16 bits";
    return NULL;
}

const char *ebb_cross_entropy_misfit(const ebb_call *c)
{
    const uint32_t first = ebb_cross_entropy_first(c);
    const ebb_type *x = &c->in[first].type, *t = &c->in[first + 1].type;
    const char *reduction = ebb_attr_string(&c->attrs, "reduction", "mean");
    const bool none = strcmp(reduction, "none") == 0;
    if (!none && strcmp(reduction, "mean") != 0 && strcmp(reduction, "sum") != 0)
        return "the reduction is none of none, mean and sum";
    if (!ebb_indices_are(&c->in[first + 1]))
        return "labels are neither int32 nor int64";
    if (x->rank < 2 || t->rank != x->rank - 1)
        return "labels do not fit the scores";
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] != x->dims[d == 0 ? 0 : d + 1])
            return "labels do not fit the scores";
    if (ebb_call_has(c, first + 2) && (c->in[first + 2].type.dtype != dtype_beside(c, x) ||
                                       ebb_elements(&c->in[first + 2].type) != x->dims[1]))
        return "weights are not one a class";
    const int64_t losses = none ? ebb_elements(t) : 1;
    const bool grad = c->op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD;
    if ((first == 1 && ebb_elements(&c->in[0].type) != losses) ||
        (!grad && ebb_call_wants(c, 0) && ebb_elements(&c->out[0].type) != losses))
        return "the loss has the wrong size";
    return NULL;
}

/* ---- dropout ---- */

bool ebb_dropout_is_keyed(const ebb_call *c)
{
    return c->op == EBB_OP_EBB_DROPOUT_PACKED || c->op == EBB_OP_EBB_DROPOUT ||
           c->op == EBB_OP_EBB_DROPOUT_SEED_GRAD;
}

uint32_t ebb_dropout_first_scalar(const ebb_call *c)
{
    return c->op == EBB_OP_DROPOUT_GRAD ? 2 : 1;
}

const char *ebb_dropout_misfit(const ebb_call *c)
{
    const int64_t n = ebb_elements(&c->in[0].type);
    const bool keyed = ebb_dropout_is_keyed(c), packed = c->op == EBB_OP_EBB_DROPOUT_PACKED;
    if (c->out[0].type.dtype != c->in[0].type.dtype)
        return "float outputs differ in dtype from the inputs";
    if (ebb_call_wants(c, 1) && (c->out[1].type.dtype != (packed ? EBB_U8 : EBB_BOOL) ||
                                 ebb_elements(&c->out[1].type) != (packed ? (n + 7) / 8 : n)))
        return packed ? "the mask is not one bit an element"
                      : "the mask is not one bool an element";
    if (keyed && (!ebb_call_has(c, 1) || !ebb_is_draws_key(&c->in[1])))
        return "the key is not int64[2] or int64[4]";
    if (c->op == EBB_OP_DROPOUT_GRAD && (!ebb_call_has(c, 1) || c->in[1].type.dtype != EBB_BOOL ||
                                         ebb_elements(&c->in[1].type) != n))
        return "the mask is not one bool an element";
    for (uint32_t i = ebb_dropout_first_scalar(c); !keyed && i < c->input_count; i++)
        if (ebb_call_has(c, i) && ebb_elements(&c->in[i].type) != 1)
            return "the ratio or the training mode is not a scalar";
    return NULL;
}

/* ---- draws ---- */

/* The largest float of a dtype below `high`. */
static double below(double high, ebb_dtype dtype)
{
    static const struct {
        int digits, least; // of the fraction; the smallest step is 2^least
        double most;
    } formats[EBB_DTYPE_COUNT] = {[EBB_F64] = {53, -1074, DBL_MAX},
                                  [EBB_F32] = {24, -149, (double)FLT_MAX},
                                  [EBB_F16] = {11, -24, 65504.0},
                                  [EBB_BF16] = {8, -133, 0x1.FEp127}};
    int exponent, digits = formats[dtype].digits, least = formats[dtype].least;
    if (frexp(high, &exponent) == 0.5) // a power of two: the steps below it are smaller
        exponent--;
    const double step = ldexp(1.0, exponent - digits > least ? exponent - digits : least);
    return fmin((ceil(high / step) - 1.0) * step, formats[dtype].most);
}

ebb_drawing ebb_drawing_read(const ebb_call *c)
{
    ebb_drawing d = {.most = (double)INFINITY};
    d.is_normal = c->op == EBB_OP_RANDOM_NORMAL || c->op == EBB_OP_RANDOM_NORMAL_LIKE;
    d.base = ebb_attr_float(&c->attrs, d.is_normal ? "mean" : "low", 0.0);
    d.width = ebb_attr_float(&c->attrs, d.is_normal ? "scale" : "high", 1.0);
    if (d.is_normal)
        return d;
    if (d.width > d.base)
        d.most = below(d.width, (ebb_dtype)c->out[0].type.dtype);
    d.width -= d.base;
    return d;
}

/* ---- bits ---- */

static int64_t bytes_of_bits(const ebb_type *flags)
{
    return (ebb_elements(flags) + 7) / 8;
}

const char *ebb_pack_bits_misfit(const ebb_call *c)
{
    const bool packs = c->op == EBB_OP_PACK_BITS;
    const ebb_type *flags = packs ? &c->in[0].type : &c->out[0].type;
    const ebb_type *bits = packs ? &c->out[0].type : &c->in[0].type;
    if (flags->dtype != EBB_BOOL || bits->dtype != EBB_U8)
        return "bools into uint8, and back, alone";
    return ebb_elements(bits) == bytes_of_bits(flags) ? NULL : "the bits have the wrong length";
}

const char *ebb_pack_sign_misfit(const ebb_call *c)
{
    const ebb_type *bits = c->op == EBB_OP_PACK_SIGN ? &c->out[0].type : &c->in[1].type;
    if (bits->dtype != EBB_U8)
        return "the mask is not uint8";
    return ebb_elements(bits) == bytes_of_bits(&c->in[0].type) ? NULL
                                                               : "the mask has the wrong length";
}

const char *ebb_update_misfit(const ebb_call *c, uint32_t first, uint32_t groups)
{
    EBB_ASK(ebb_call_any(c));
    const uint8_t dtype = c->in[first].type.dtype;
    for (uint32_t i = 0; i < first; i++)
        if (ebb_elements(&c->in[i].type) != 1)
            return "the rate or the step count is not a scalar";
    for (uint32_t i = first; i < c->input_count; i++) {
        const ebb_type *like = &c->in[first + (i - first) % groups].type;
        if (c->in[i].type.dtype != dtype || !ebb_type_same_shape(&c->in[i].type, like))
            return "weight, gradient and states differ in type";
    }
    for (uint32_t o = 0; o < c->output_count; o++) {
        const ebb_type *like = &c->in[first + o % groups].type;
        if (c->out[o].type.dtype != dtype || !ebb_type_same_shape(&c->out[o].type, like))
            return "an output is missing or differs in type";
    }
    return NULL;
}

const ebb_invert_fit *ebb_invert_fit_of(const ebb_call *c, double *alpha)
{
    bool scaled = c->op == EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT;
    *alpha = scaled ? ebb_attr_float(&c->attrs, "alpha", (double)1.702f) : 1.0;
    return scaled                                       ? &ebb_invert_silu // x sigmoid(alpha x)
           : c->op == EBB_OP_GELU_GRAD_FROM_OUTPUT      ? &ebb_invert_gelu
           : c->op == EBB_OP_FAST_GELU_GRAD_FROM_OUTPUT ? &ebb_invert_gelu_tanh
                                                        : &ebb_invert_mish;
}

const char *ebb_invert_misfit(const ebb_call *c)
{
    if (!ebb_type_same_shape(&c->in[0].type, &c->in[1].type))
        return "the inputs differ in shape";
    if (!ebb_call_has(c, 2) || c->in[2].type.dtype != EBB_U8)
        return "the bits are not uint8";
    return ebb_elements(&c->in[2].type) == bytes_of_bits(&c->in[0].type)
               ? NULL
               : "the bits have the wrong length";
}

const char *ebb_few_bit_misfit(const ebb_call *c)
{
    const bool encodes = c->op == EBB_OP_FEW_BIT;
    const int64_t bits = ebb_attr_int(&c->attrs, "bits", 1);
    if (bits < 1 || bits > EBB_FEW_BIT_MOST)
        return "bits is not 1, 2, 3 or 4";
    if (!ebb_call_has(c, encodes ? 1 : 2))
        return "an input is missing";
    const ebb_operand *codes = encodes ? &c->out[0] : &c->in[1];
    const ebb_operand *table = encodes ? &c->in[1] : &c->in[2];
    if (codes->type.dtype != EBB_U8 || table->type.dtype != c->in[0].type.dtype)
        return "the codes are not uint8, or the table is of another type";
    if (ebb_elements(&table->type) != (INT64_C(1) << bits) - (encodes ? 1 : 0))
        return encodes ? "there must be 2^bits - 1 borders" : "there must be 2^bits levels";
    return ebb_elements(&codes->type) == bytes_of_bits(&c->in[0].type) * bits
               ? NULL
               : "the codes have the wrong length";
}

/* ---- others ---- */

const char *ebb_global_pool_misfit(const ebb_call *c)
{
    if (c->in[0].type.rank < 2)
        return "no channels";
    return ebb_elements(&c->out[0].type) == c->in[0].type.dims[0] * c->in[0].type.dims[1]
               ? NULL
               : "the output does not have one element a channel";
}

bool ebb_scale_covers(const ebb_type *x, const ebb_type *scale, int64_t n, int64_t period)
{
    for (int d = 1; d <= scale->rank; d++)
        if (d > x->rank || scale->dims[scale->rank - d] != x->dims[x->rank - d])
            return false;
    return period > 0 && n % period == 0 && period <= n;
}

ebb_status ebb_dropout_check(const ebb_call *c, double ratio)
{
    if (!(ratio >= 0.0 && ratio < 1.0))
        return ebb_call_error(c, "ratio %g is outside of [0, 1)", ratio);
    return NULL;
}

const char *ebb_reverse_sequence_misfit(const ebb_call *c)
{
    const int64_t batch = ebb_attr_int(&c->attrs, "batch_axis", 1);
    if (c->in[0].type.rank < 2 || (batch != 0 && batch != 1) ||
        ebb_attr_int(&c->attrs, "time_axis", 0) != 1 - batch)
        return "batch_axis and time_axis are not 0 and 1";
    if (ebb_elements(&c->in[1].type) != c->in[0].type.dims[batch] || !ebb_indices_are(&c->in[1]))
        return "there is not one length in int32 or int64 for each sequence";
    return NULL;
}

const char *ebb_lrn_misfit(const ebb_call *c)
{
    const int64_t size = ebb_attr_int(&c->attrs, "size", 0);
    return c->in[0].type.rank < 2 || size < 1 || size > INT32_MAX ? "size or rank is out of range"
                                                                  : NULL;
}
