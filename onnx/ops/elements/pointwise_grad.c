/* pointwise_grad: gradients of arithmetic: sums, products, powers, roots, selection. Activations
 * are in activation_grad.c.
 *
 * Each rule states its algebra; sums over broadcast axes are left to ebb_grad_give. Where the
 * output serves as well as the input it is the output that is read, since the next node keeps it
 * anyway.
 */
#include "onnx/ops/common.h"

static const double two_over_root_pi = 1.12837916709551257390;

/* y = a + b + ...  Each gets dy. */
void ebb_grad_add(ebb_build *b, ebb_grad *c)
{
    for (uint32_t i = 0; i < c->input_count; i++)
        if (ebb_grad_wants(c, i))
            ebb_grad_give(b, c, i, c->dy[0]);
}

/* y = (a + b + ...) / n.  Each gets dy / n. */
void ebb_grad_mean(ebb_build *b, ebb_grad *c)
{
    ebb_value share = c->dy[0];
    if (c->input_count > 1)
        share = ebb_emit(b, EBB_OP_DIV, share, ebb_const_like(b, share, c->input_count));
    for (uint32_t i = 0; i < c->input_count; i++)
        if (ebb_grad_wants(c, i))
            ebb_grad_give(b, c, i, share);
}

/* y = a - b.  da = dy, db = -dy, negated after the sum over broadcast axes: it is smaller there. */
void ebb_grad_sub(ebb_build *b, ebb_grad *c)
{
    if (ebb_grad_wants(c, 0))
        ebb_grad_give(b, c, 0, c->dy[0]);
    if (ebb_grad_wants(c, 1))
        c->dx[1] = ebb_emit(b, EBB_OP_NEG, ebb_emit_unbroadcast(b, c->dy[0], c->x[1]));
}

/* y = a b.  da = dy b, db = dy a. */
void ebb_grad_mul(ebb_build *b, ebb_grad *c)
{
    for (uint32_t i = 0; i < 2; i++)
        if (ebb_grad_wants(c, i))
            ebb_grad_give(b, c, i, ebb_emit(b, EBB_OP_MUL, c->dy[0], c->x[1 - i]));
}

/* y = a / b.  da = dy / b, db = -dy a / b^2 = -(dy / b) y.  Needs b and, for db, y; never a. */
void ebb_grad_div(ebb_build *b, ebb_grad *c)
{
    ebb_value da = ebb_emit(b, EBB_OP_DIV, c->dy[0], c->x[1]);
    if (ebb_grad_wants(c, 0))
        ebb_grad_give(b, c, 0, da);
    if (ebb_grad_wants(c, 1)) {
        ebb_value db = ebb_emit(b, EBB_OP_MUL, da, c->y[0]);
        c->dx[1] = ebb_emit(b, EBB_OP_NEG, ebb_emit_unbroadcast(b, db, c->x[1]));
    }
}

/* y = a - n b with n whole.  da = dy, db = -dy n: n is (a - y) / b, rounded. */
void ebb_grad_mod(ebb_build *b, ebb_grad *c)
{
    if (ebb_grad_wants(c, 0))
        ebb_grad_give(b, c, 0, c->dy[0]);
    if (ebb_grad_wants(c, 1)) {
        ebb_value times =
            ebb_emit(b, EBB_OP_DIV, ebb_emit(b, EBB_OP_SUB, c->y[0], c->x[0]), c->x[1]);
        ebb_grad_give(b, c, 1, ebb_emit(b, EBB_OP_MUL, c->dy[0], ebb_emit(b, EBB_OP_ROUND, times)));
    }
}

/* y = x^p.  dx = dy p x^(p-1), without a power for the exponents that models use: 1, 2, 1/2.
 *           dp = dy y ln x where x > 0, else 0. */
void ebb_grad_pow(ebb_build *b, ebb_grad *c)
{
    ebb_value x = c->x[0], p = c->x[1], y = c->y[0], dy = c->dy[0];
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, x)->dtype;
    double exponent = 0.0;
    if (ebb_grad_wants(c, 0)) {
        ebb_value dx;
        if (!ebb_constant_scalar(b->g, p, &exponent)) {
            ebb_value less = ebb_emit(b, EBB_OP_SUB, p, ebb_const_like(b, p, 1.0));
            ebb_value slope = ebb_emit(b, EBB_OP_MUL, ebb_emit_cast(b, p, dtype),
                                       ebb_emit(b, EBB_OP_POW, x, less));
            // x^(p-1) is infinite at x = 0 = p, where the slope of the constant 1 is 0
            ebb_value flat = ebb_emit(b, EBB_OP_EQUAL, p, ebb_const_like(b, p, 0.0));
            slope = ebb_emit(b, EBB_OP_WHERE, flat, ebb_const_like(b, x, 0.0), slope);
            dx = ebb_emit(b, EBB_OP_MUL, dy, slope);
        } else if (exponent == 0.0) {
            dx = EBB_NO_VALUE;
        } else if (exponent == 1.0) {
            dx = dy;
        } else if (exponent == 2.0) {
            dx = ebb_emit(b, EBB_OP_MUL, dy, ebb_emit_scaled(b, x, 2.0));
        } else if (exponent == 0.5) {
            dx = ebb_emit(b, EBB_OP_DIV, ebb_emit_scaled(b, dy, 0.5), y);
        } else {
            ebb_value less = ebb_const_like(b, x, exponent - 1.0);
            ebb_value slope = ebb_emit_scaled(b, ebb_emit(b, EBB_OP_POW, x, less), exponent);
            dx = ebb_emit(b, EBB_OP_MUL, dy, slope);
        }
        if (dx.i != 0)
            ebb_grad_give(b, c, 0, dx);
    }
    if (ebb_grad_wants(c, 1)) {
        ebb_value zero = ebb_const_like(b, x, 0.0);
        ebb_value slope = ebb_emit(b, EBB_OP_MUL, y, ebb_emit(b, EBB_OP_LOG, x));
        slope = ebb_emit(b, EBB_OP_WHERE, ebb_emit(b, EBB_OP_GREATER, x, zero), slope, zero);
        ebb_value dp = ebb_emit_unbroadcast(b, ebb_emit(b, EBB_OP_MUL, dy, slope), p);
        if (b->status == NULL)
            c->dx[1] = ebb_emit_cast(b, dp, (ebb_dtype)ebb_build_type(b, p)->dtype);
    }
}

/* y = max(a, b, ...), or min.  dy goes where y came from; among equals it is split evenly. */
void ebb_grad_extremum(ebb_build *b, ebb_grad *c)
{
    if (c->input_count == 1) {
        c->dx[0] = c->dy[0];
        return;
    }
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, c->y[0])->dtype;
    ebb_value *hit = EBB_NEW(&b->g->model->arena, ebb_value, c->input_count);
    if (!ebb_build_got(b, hit))
        return;
    ebb_value hits = EBB_NO_VALUE;
    for (uint32_t i = 0; i < c->input_count; i++) {
        hit[i] = ebb_emit_cast(b, ebb_emit(b, EBB_OP_EQUAL, c->x[i], c->y[0]), dtype);
        hits = i == 0 ? hit[0] : ebb_emit(b, EBB_OP_ADD, hits, hit[i]);
    }
    ebb_value share = ebb_emit(b, EBB_OP_DIV, c->dy[0], hits);
    for (uint32_t i = 0; i < c->input_count; i++)
        if (ebb_grad_wants(c, i))
            ebb_grad_give(b, c, i, ebb_emit(b, EBB_OP_MUL, share, hit[i]));
}

/* x^2 + k. */
static ebb_value square_plus(ebb_build *b, ebb_value x, double k)
{
    return ebb_emit_shifted(b, ebb_emit(b, EBB_OP_MUL, x, x), k);
}

/* 1 - x^2. */
static ebb_value one_less_square(ebb_build *b, ebb_value x)
{
    return ebb_emit(b, EBB_OP_SUB, ebb_const_like(b, x, 1.0), ebb_emit(b, EBB_OP_MUL, x, x));
}

/* dy / sqrt(s). */
static ebb_value over_root(ebb_build *b, ebb_value dy, ebb_value s)
{
    return ebb_emit(b, EBB_OP_DIV, dy, ebb_emit(b, EBB_OP_SQRT, s));
}

// clang-format off
/* Rules of a line: dx[0], of DY, X and Y. */
#define DY c->dy[0]
#define X c->x[0]
#define Y c->y[0]
#define DO(op, ...) ebb_emit(b, EBB_OP_##op, __VA_ARGS__)
#define RULE(name, dx0) void ebb_grad_##name(ebb_build *b, ebb_grad *c) { c->dx[0] = dx0; }
/* y = -x.       dx = -dy. */                          RULE( neg, DO(NEG, DY) )
/* y = |x|.      dx = dy sign x. */                    RULE( abs, DO(MUL, DY, DO(SIGN, X)) )
/* y = e^x.      dx = dy y. */                         RULE( exp, DO(MUL, DY, Y) )
/* y = ln x.     dx = dy / x. */                       RULE( log, DO(DIV, DY, X) )
/* y = sqrt x.   dx = dy / (2 y). */                   RULE( sqrt, DO(DIV, ebb_emit_scaled(b, DY, 0.5), Y) )
/* y = 1 / x.    dx = -dy y^2. */                      RULE( reciprocal, DO(NEG, DO(MUL, DY, DO(MUL, Y, Y))) )
/* y = erf x.    dx = dy (2 / sqrt pi) e^(-x^2). */    RULE( erf, DO(MUL, DY, ebb_emit_scaled(b, DO(EXP, DO(NEG, DO(MUL, X, X))), two_over_root_pi)) )
/* y = sin x.    dx = dy cos x. */                     RULE( sin, DO(MUL, DY, DO(COS, X)) )
/* y = cos x.    dx = -dy sin x. */                    RULE( cos, DO(MUL, DY, DO(NEG, DO(SIN, X))) )
/* y = tan x.    dx = dy (1 + y^2). */                 RULE( tan, DO(MUL, DY, square_plus(b, Y, 1.0)) )
/* y = arctan x. dx = dy / (1 + x^2). */               RULE( atan, DO(DIV, DY, square_plus(b, X, 1.0)) )
/* y = arcsin x. dx = dy / sqrt(1 - x^2). */           RULE( asin, over_root(b, DY, one_less_square(b, X)) )
/* y = arccos x. dx = -dy / sqrt(1 - x^2). */          RULE( acos, DO(NEG, over_root(b, DY, one_less_square(b, X))) )
/* y = sinh x.   dx = dy cosh x. */                    RULE( sinh, DO(MUL, DY, DO(COSH, X)) )
/* y = cosh x.   dx = dy sinh x. */                    RULE( cosh, DO(MUL, DY, DO(SINH, X)) )
/* y = arsinh x. dx = dy / sqrt(x^2 + 1). */           RULE( asinh, over_root(b, DY, square_plus(b, X, 1.0)) )
/* y = arcosh x. dx = dy / sqrt(x^2 - 1). */           RULE( acosh, over_root(b, DY, square_plus(b, X, -1.0)) )
/* y = artanh x. dx = dy / (1 - x^2). */               RULE( atanh, DO(DIV, DY, one_less_square(b, X)) )
// clang-format on

/* y = condition ? u : v.  du = condition ? dy : 0, dv = condition ? 0 : dy. */
void ebb_grad_where(ebb_build *b, ebb_grad *c)
{
    ebb_value zero = ebb_const_like(b, c->dy[0], 0.0);
    if (ebb_grad_wants(c, 1))
        ebb_grad_give(b, c, 1, ebb_emit(b, EBB_OP_WHERE, c->x[0], c->dy[0], zero));
    if (!ebb_grad_wants(c, 2))
        return;
    const ebb_value guarded = ebb_guarded_softmax(b->g, c->x[2]);
    if (guarded.i != 0 && ebb_same_value(guarded, c->y[0])) // the softmax's own rule sees to it
        c->dx[2] = c->dy[0];
    else
        ebb_grad_give(b, c, 2, ebb_emit(b, EBB_OP_WHERE, c->x[0], zero, c->dy[0]));
}

/* y = x in another dtype.  dx = dy in x's; nothing flows through integers. */
void ebb_grad_cast(ebb_build *b, ebb_grad *c)
{
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, c->x[0])->dtype;
    if (ebb_dtype_is_float(dtype))
        c->dx[0] = ebb_emit_cast(b, c->dy[0], dtype);
}
