/* linear_grad: straight-through gradients: of steps, and of quantisation with a scale.
 *
 *   code = saturate(round(x / s) + zero)      x = (code - zero) s
 *
 * A step has the derivative 0, where it has one; what these rules say instead, where pass gradient
 * is asked to, is that of the line that the steps follow. Codes get a gradient as if they were
 * numbers, in the float of their reader; behind a DequantizeLinear with the same scale x gets dy
 * where its code is not saturated, and 0 where it is, and the scale gets
 *
 *   ds = sum dy (round(x / s) - x / s)  inside,  sum dy (bound - zero)  outside.
 */
#include "onnx/ops/common.h"

/* ---- steps ---- */

/* y = sign x, taken for min(max(x, -1), 1).  dx = dy where -1 < x < 1, else 0. */
void ebb_grad_sign(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit(b, EBB_OP_CLIP_GRAD, c->dy[0], c->x[0], ebb_const_like(b, c->x[0], -1.0),
                        ebb_const_like(b, c->x[0], 1.0));
}

/* ---- scales ---- */

typedef struct grid {
    ebb_type x, scale;
    enum { ONE, AXIS, BLOCKS } kind;
    int axis;
    int64_t block; /* elements along the axis that share a scale */
} grid;

/* How the scale lies on x; false, with the error noted, where that is not known. */
static bool read_grid(grid *g, ebb_build *b, const ebb_grad *c)
{
    int64_t count;
    *g = (grid){.kind = ONE};
    if (!ebb_grad_shape(b, c, c->x[0], &g->x) || !ebb_grad_shape(b, c, c->x[1], &g->scale))
        return false;
    if (!ebb_type_elements(&g->scale, &count) || count == 1)
        return true;
    int64_t axis = ebb_attr_int(&c->attrs, "axis", 1);
    g->axis = (int)(axis < 0 ? axis + g->x.rank : axis);
    g->kind = g->scale.rank == 1 && g->scale.dims[0] == g->x.dims[g->axis] ? AXIS : BLOCKS;
    if (g->kind == AXIS)
        return true;
    int64_t n = g->x.dims[g->axis], places = g->scale.dims[g->axis];
    g->block = ebb_attr_int(&c->attrs, "block_size", 0);
    if (g->block <= 0 && places > 0)
        g->block = (n + places - 1) / places;
    bool fits = g->scale.rank == g->x.rank && places > 0 && places <= n && g->block <= n;
    if (fits && g->block > 0 && g->x.rank < EBB_MAX_RANK)
        return true;
    ebb_grad_fail(b, c, "its blocks are not known");
    return false;
}

/* The shape of x with its axis as [places, block]; `block` 1: of the scale alike. */
static void apart(const grid *g, int64_t block, int64_t dims[EBB_MAX_RANK])
{
    for (int d = 0; d <= g->x.rank; d++)
        dims[d] = d <= g->axis ? g->scale.dims[d] : d == g->axis + 1 ? block : g->scale.dims[d - 1];
}

/* The scale, or the zero point, so that it broadcasts against x. */
static ebb_value on_grid(ebb_build *b, const grid *g, ebb_value v)
{
    int64_t dims[EBB_MAX_RANK], n = g->x.dims[g->axis];
    if (g->kind == ONE)
        return ebb_emit_reshape(b, v, NULL, 0);
    if (g->kind == AXIS) {
        for (int d = 0; d < g->x.rank; d++)
            dims[d] = d == g->axis ? n : 1;
        return ebb_emit_reshape(b, v, dims, g->x.rank);
    }
    apart(g, 1, dims);
    v = ebb_emit_reshape(b, v, dims, g->x.rank + 1);
    apart(g, g->block, dims);
    v = ebb_emit(b, EBB_OP_EXPAND, v, ebb_const_ints(b, dims, (uint32_t)g->x.rank + 1));
    memcpy(dims, g->x.dims, sizeof dims);
    dims[g->axis] = g->scale.dims[g->axis] * g->block;
    v = ebb_emit_reshape(b, v, dims, g->x.rank);
    return dims[g->axis] == n ? v : ebb_emit_part(b, v, g->axis, 0, n);
}

/* What all elements of x say to the scale: their sum for each of its places. */
static ebb_value to_scale(ebb_build *b, const grid *g, ebb_value d)
{
    int64_t axes[EBB_MAX_RANK], dims[EBB_MAX_RANK], pads[2 * EBB_MAX_RANK] = {0};
    uint32_t count = 0;
    if (g->kind == BLOCKS) {
        pads[g->x.rank + g->axis] = g->scale.dims[g->axis] * g->block - g->x.dims[g->axis];
        if (pads[g->x.rank + g->axis] > 0)
            d = ebb_emit(b, EBB_OP_PAD, d, ebb_const_ints(b, pads, 2 * (uint32_t)g->x.rank));
        apart(g, g->block, dims);
        d = ebb_emit_reshape(b, d, dims, g->x.rank + 1);
        axes[count++] = g->axis + 1;
    }
    for (int k = 0; g->kind != BLOCKS && k < g->x.rank; k++)
        if (g->kind == ONE || k != g->axis)
            axes[count++] = k;
    if (count > 0)
        d = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, d, axes, count, false);
    return ebb_emit_reshape(b, d, g->scale.dims, g->scale.rank);
}

/* ---- QuantizeLinear, DequantizeLinear ---- */

/* The numbers that a dtype of codes ends at; false: none that we know. */
static bool bounds_of(ebb_dtype dtype, double *least, double *most)
{
    unsigned bits = ebb_dtype_bits(dtype);
    if (ebb_dtype_is_small_float(dtype)) {
        *most = ebb_small_to_double(dtype, ebb_small_of_double(dtype, 1e30, true, EBB_ROUND_UP));
        *least = -*most;
        return true;
    }
    bool is_signed = dtype == EBB_I2 || dtype == EBB_I4 || dtype == EBB_I8 || dtype == EBB_I16;
    double all = (double)(UINT64_C(1) << (bits & 31));
    *least = is_signed ? -all / 2.0 : 0.0;
    *most = is_signed ? all / 2.0 - 1.0 : all - 1.0;
    return ebb_dtype_is_integer(dtype) && bits <= 16;
}

/* (x, scale, zero?) -> codes.  dx = dcode / s inside, ds = -sum dcode x / s^2 inside; 0 outside. */
void ebb_grad_quantize_linear(ebb_build *b, ebb_grad *c)
{
    grid g;
    double least, most;
    if (!read_grid(&g, b, c))
        return;
    ebb_dtype dtype = (ebb_dtype)g.x.dtype, codes = (ebb_dtype)ebb_build_type(b, c->y[0])->dtype;
    if (!bounds_of(codes, &least, &most)) {
        ebb_grad_fail(b, c, "its codes are of a dtype without bounds");
        return;
    }
    ebb_value scale = on_grid(b, &g, ebb_emit_cast(b, c->x[1], dtype));
    ebb_value u = ebb_emit(b, EBB_OP_DIV, c->x[0], scale), code = u;
    if (!ebb_dtype_is_small_float(codes)) { // between two codes lies the bound of both
        if (ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) >= 11)
            code = ebb_emit(b, EBB_OP_ROUND, u);
        least -= 0.5;
        most += 0.5;
    }
    if (ebb_grad_has(c, 2))
        code = ebb_emit(b, EBB_OP_ADD, code, on_grid(b, &g, ebb_emit_cast(b, c->x[2], dtype)));
    ebb_value d = ebb_emit_cast(b, c->dy[0], dtype);
    d = ebb_emit(b, EBB_OP_CLIP_GRAD, ebb_emit(b, EBB_OP_DIV, d, scale), code,
                 ebb_const_scalar(b, dtype, least), ebb_const_scalar(b, dtype, most));
    if (ebb_grad_wants(c, 0))
        c->dx[0] = d;
    if (!ebb_grad_wants(c, 1))
        return;
    ebb_value ds = to_scale(b, &g, ebb_emit(b, EBB_OP_NEG, ebb_emit(b, EBB_OP_MUL, d, u)));
    if (b->status == NULL)
        c->dx[1] = ebb_emit_cast(b, ds, (ebb_dtype)g.scale.dtype);
}

/* (codes, scale, zero?) -> y = (code - zero) s.  dcode = dy s, ds = sum dy (code - zero). */
void ebb_grad_dequantize_linear(ebb_build *b, ebb_grad *c)
{
    grid g;
    if (!read_grid(&g, b, c))
        return;
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, c->dy[0])->dtype;
    if (ebb_grad_wants(c, 0)) {
        ebb_value scale = on_grid(b, &g, ebb_emit_cast(b, c->x[1], dtype));
        c->dx[0] = ebb_emit(b, EBB_OP_MUL, c->dy[0], scale);
    }
    if (!ebb_grad_wants(c, 1))
        return;
    ebb_value steps = ebb_emit_cast(b, c->x[0], dtype);
    if (ebb_grad_has(c, 2))
        steps = ebb_emit(b, EBB_OP_SUB, steps, on_grid(b, &g, ebb_emit_cast(b, c->x[2], dtype)));
    ebb_value ds = to_scale(b, &g, ebb_emit(b, EBB_OP_MUL, c->dy[0], steps));
    if (b->status == NULL)
        c->dx[1] = ebb_emit_cast(b, ds, (ebb_dtype)g.scale.dtype);
}

/* (x) -> codes, scale, zero: the scale is that of x's own range, so nothing is saturated. It is
 * taken for a constant, as observers of ranges are.  dx = dcode / s. */
void ebb_grad_dynamic_quantize_linear(ebb_build *b, ebb_grad *c)
{
    ebb_value scale = ebb_grad_need_output(b, c, 1, "scale");
    if (c->dy[0].i != 0)
        c->dx[0] = ebb_emit(b, EBB_OP_DIV, c->dy[0], scale);
}
