/* pointwise_grad.c: gradients of activations, dY first. Both inputs and the result have one shape,
 * so the result may be written over either. */
#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

/* d: an element of dY; x: of the other input (the operator's input or output, as it says); p: arg.
 */
#define ROW(name, T, EXPR)                                                             \
    static void name(void *out, const void *const *in, const int64_t *step, int64_t n, \
                     const void *arg)                                                  \
    {                                                                                  \
        static const double none[2];                                                   \
        (void)step;                                                                    \
        const double *given = arg != NULL ? arg : none;                                \
        const T p[2] = {(T)given[0], (T)given[1]};                                     \
        (void)p;                                                                       \
        T *y = out;                                                                    \
        const T *a = in[0], *b = in[1];                                                \
        EBB_SIMD                                                                       \
        for (int64_t i = 0; i < n; i++) {                                              \
            T d = a[i], x = b[i];                                                      \
            y[i] = (T)(EXPR);                                                          \
        }                                                                              \
    }
#define FLOATS(name, EXPR32, EXPR64) \
    ROW(name##_f32, float, EXPR32)   \
    ROW(name##_f64, double, EXPR64)

/* d/dx x cdf(x) = cdf(x) + x pdf(x) */
static inline float gelu_slope(float x)
{
    return ebb_normal_cdf(x) + x * 0.398942280f * ebb_exp(-0.5f * x * x);
}

static inline double gelu_slope64(double x)
{
    return ebb_normal_cdf64(x) + x * 0.39894228040143267794 * exp(-0.5 * x * x);
}

/* y = x s(u), u = k (x + c x^3), s the sigmoid: dy/dx = s + x s (1 - s) u' */
static inline float fast_gelu_slope(float x)
{
    float s = ebb_sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
    return s + x * s * (1.0f - s) * 1.59576912f * (1.0f + 0.134145f * x * x);
}

static inline double fast_gelu_slope64(double x)
{
    double s = 1.0 / (1.0 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
    return s + x * s * (1.0 - s) * 1.5957691216057308 * (1.0 + 0.134145 * x * x);
}

static inline float quick_gelu_slope(float x, float alpha)
{
    float s = ebb_sigmoid(alpha * x);
    return s + alpha * x * s * (1.0f - s);
}

static inline double quick_gelu_slope64(double x, double alpha)
{
    double s = 1.0 / (1.0 + exp(-alpha * x));
    return s + alpha * x * s * (1.0 - s);
}

/* y = x n / (n + 2), n = e (e + 2), e = e^x: dy/dx = n / (n + 2) + 4 x e (e + 1) / (n + 2)^2 */
static inline float mish_slope(float x)
{
    float near = x > 20.0f ? 20.0f : x;
    float e = ebb_exp(near), n = e * (e + 2.0f), per = 1.0f / (n + 2.0f);
    return (n + near * (4.0f * e * (e + 1.0f) * per)) * per;
}

static inline double mish_slope64(double x)
{
    double near = x > 20.0 ? 20.0 : x;
    double e = exp(near), n = e * (e + 2.0), per = 1.0 / (n + 2.0);
    return (n + near * (4.0 * e * (e + 1.0) * per)) * per;
}

FLOATS(relu_grad, x > 0 ? d : 0, x > 0 ? d : 0)
FLOATS(leaky_relu_grad, x > 0 ? d : p[0] * d, x > 0 ? d : p[0] * d)
FLOATS(sigmoid_grad, d *x *(1.0f - x), d *x *(1.0 - x))
FLOATS(tanh_grad, d *(1.0f - x * x), d *(1.0 - x * x))
FLOATS(gelu_grad, d *gelu_slope(x), d *gelu_slope64(x))
FLOATS(fast_gelu_grad, d *fast_gelu_slope(x), d *fast_gelu_slope64(x))
FLOATS(quick_gelu_grad, d *quick_gelu_slope(x, p[0]), d *quick_gelu_slope64(x, p[0]))
FLOATS(mish_grad, d *mish_slope(x), d *mish_slope64(x))
/* An infinite bound is none. */
#define WITHIN ((x > p[0]) | (p[0] == -INFINITY)) & ((x < p[1]) | (p[1] == INFINITY))
FLOATS(clip_grad, (WITHIN) ? d : 0, (WITHIN) ? d : 0)

static ebb_status run(const ebb_call *c, ebb_row_fn single, ebb_row_fn twice, const double *p)
{
    const ebb_operand *in[2] = {&c->in[0], &c->in[1]};
    ebb_plain_rows(&c->out[0], in, 2, c->in[0].type.dtype == EBB_F32 ? single : twice, p);
    return NULL;
}

#define SIMPLE(name)                                 \
    static ebb_status run_##name(const ebb_call *c)  \
    {                                                \
        return run(c, name##_f32, name##_f64, NULL); \
    }
SIMPLE(relu_grad)
SIMPLE(sigmoid_grad)
SIMPLE(tanh_grad)
SIMPLE(gelu_grad)
SIMPLE(fast_gelu_grad)
SIMPLE(mish_grad)

static ebb_status run_leaky_relu_grad(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", (double)0.01f), 0.0};
    return run(c, leaky_relu_grad_f32, leaky_relu_grad_f64, p);
}

static ebb_status run_quick_gelu_grad(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", 1.702), 0.0};
    return run(c, quick_gelu_grad_f32, quick_gelu_grad_f64, p);
}

static ebb_status run_clip_grad(const ebb_call *c)
{
    double p[2] = {-INFINITY, INFINITY};
    for (uint32_t k = 0; k < 2; k++) {
        if (!ebb_call_has(c, 2 + k))
            continue;
        if (ebb_elements(&c->in[2 + k].type) != 1)
            return ebb_call_error(c, "%s is not a scalar", k == 0 ? "min" : "max");
        p[k] = ebb_plain_scalar(&c->in[2 + k]);
    }
    return run(c, clip_grad_f32, clip_grad_f64, p);
}

static const char *declines(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    if (why != NULL)
        return why;
    if (c->in[0].type.dtype != c->in[1].type.dtype)
        return "the inputs differ in dtype";
    return ebb_type_same_shape(&c->in[0].type, &c->in[1].type) ? NULL
                                                               : "the inputs differ in shape";
}

static const char *declines_no_bias(const ebb_call *c)
{
    return ebb_call_has(c, 2) ? "takes no bias" : declines(c);
}

#define KERNEL(op, name, no)                                          \
    {                                                                 \
        "plain." #name, EBB_OP_##op, no, NULL, NULL, run_##name, NULL \
    }

// clang-format off
const ebb_kernel ebb_plain_pointwise_grad[] = {
    KERNEL(RELU_GRAD,       relu_grad,       declines),
    KERNEL(LEAKY_RELU_GRAD, leaky_relu_grad, declines),
    KERNEL(SIGMOID_GRAD,    sigmoid_grad,    declines),
    KERNEL(TANH_GRAD,       tanh_grad,       declines),
    KERNEL(GELU_GRAD,       gelu_grad,       declines_no_bias),
    KERNEL(FAST_GELU_GRAD,  fast_gelu_grad,  declines_no_bias),
    KERNEL(QUICK_GELU_GRAD, quick_gelu_grad, declines),
    KERNEL(MISH_GRAD,       mish_grad,       declines),
    KERNEL(CLIP_GRAD,       clip_grad,       declines),
};
// clang-format on
EBB_PLAIN_COUNT(pointwise_grad)
