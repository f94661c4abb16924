/* along.c: arg-max and arg-min, running sums and products: an axis walked element by element. */
#include "kernels/plain/plain.h"

static double at(const ebb_operand *x, int64_t i)
{
    switch (x->type.dtype) {
    case EBB_F32:
        return (double)((const float *)x->data)[i];
    case EBB_F64:
        return ((const double *)x->data)[i];
    case EBB_I32:
        return (double)((const int32_t *)x->data)[i];
    default:
        return (double)((const int64_t *)x->data)[i];
    }
}

static const char *dtypes_of_numbers(const ebb_call *c)
{
    uint8_t t = c->in[0].type.dtype;
    bool right = t == EBB_F32 || t == EBB_F64 || t == EBB_I32 || t == EBB_I64;
    return right ? ebb_call_any(c) : "the dtype is not one of float32, float64, int32, int64";
}

/* 1: element i is larger than element j, 0: they are equal; -1: neither, as with NaN. */
static int against(const ebb_operand *x, int64_t i, int64_t j)
{
    if (x->type.dtype == EBB_I64) { // has more digits than a double has
        int64_t a = ((const int64_t *)x->data)[i], b = ((const int64_t *)x->data)[j];
        return a == b ? 0 : a > b ? 1 : -1;
    }
    double a = at(x, i), b = at(x, j);
    return a == b ? 0 : a > b ? 1 : -1;
}

static ebb_status run_arg(const ebb_call *c)
{
    int axis = 0;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), c->in[0].type.rank, &axis));
    ebb_span s = ebb_span_of(&c->in[0].type, axis);
    bool last = ebb_attr_int(&c->attrs, "select_last_index", 0) != 0;
    bool least = c->op == EBB_OP_ARG_MIN;
    int64_t *y = c->out[0].data;
    if (s.n == 0 && s.outer * s.inner > 0)
        return ebb_call_error(c, "an empty axis has no largest or smallest element");
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t j = 0; j < s.inner; j++) {
            int64_t best = 0;
            for (int64_t i = 1; i < s.n; i++) {
                int64_t here = (o * s.n + i) * s.inner + j;
                int64_t there = (o * s.n + best) * s.inner + j;
                int sign =
                    least ? against(&c->in[0], there, here) : against(&c->in[0], here, there);
                if (sign > 0 || (last && sign == 0))
                    best = i;
            }
            y[o * s.inner + j] = best;
        }
    return NULL;
}

/* What a running sum or product has come to. */
typedef struct running {
    bool product, exclusive;
    double real;
    uint64_t whole;
} running;

static void add_up(const ebb_operand *y, const ebb_operand *x, int64_t i, running *r)
{
    if (y->type.dtype == EBB_I64 || y->type.dtype == EBB_I32) {
        uint64_t before = r->whole;
        uint64_t next =
            (uint64_t)(int64_t)(y->type.dtype == EBB_I64 ? ((const int64_t *)x->data)[i]
                                                         : ((const int32_t *)x->data)[i]);
        r->whole = r->product ? before * next : before + next;
        uint64_t out = r->exclusive ? before : r->whole;
        if (y->type.dtype == EBB_I64)
            ((int64_t *)y->data)[i] = (int64_t)out;
        else
            ((int32_t *)y->data)[i] = (int32_t)out;
        return;
    }
    double before = r->real;
    r->real = r->product ? before * at(x, i) : before + at(x, i);
    double out = r->exclusive ? before : r->real;
    if (y->type.dtype == EBB_F32)
        ((float *)y->data)[i] = (float)out;
    else
        ((double *)y->data)[i] = out;
}

/* (X, axis) {exclusive, reverse} -> Y: sums or products of what lies before along the axis. */
static ebb_status run_cumulate(const ebb_call *c)
{
    int axis = 0;
    if (c->in[1].bytes == 0)
        return ebb_call_error(c, "its axis is an empty tensor");
    EBB_TRY(ebb_call_axis(c, ebb_plain_int(&c->in[1], 0), c->in[0].type.rank, &axis));
    ebb_span s = ebb_span_of(&c->in[0].type, axis);
    bool product = c->op == EBB_OP_CUM_PROD;
    bool reverse = ebb_attr_int(&c->attrs, "reverse", 0) != 0;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t j = 0; j < s.inner; j++) {
            running r = {product, ebb_attr_int(&c->attrs, "exclusive", 0) != 0, product, product};
            for (int64_t i = 0; i < s.n; i++)
                add_up(&c->out[0], &c->in[0], (o * s.n + (reverse ? s.n - 1 - i : i)) * s.inner + j,
                       &r);
        }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_along[] = {
    {.name = "plain.arg_max",  .op = EBB_OP_ARG_MAX,  .dtypes = dtypes_of_numbers, .run = run_arg},
    {.name = "plain.arg_min",  .op = EBB_OP_ARG_MIN,  .dtypes = dtypes_of_numbers, .run = run_arg},
    {.name = "plain.cum_sum",  .op = EBB_OP_CUM_SUM,  .dtypes = dtypes_of_numbers, .run = run_cumulate},
    {.name = "plain.cum_prod", .op = EBB_OP_CUM_PROD, .dtypes = dtypes_of_numbers, .run = run_cumulate},
};
// clang-format on
EBB_PLAIN_COUNT(along)
