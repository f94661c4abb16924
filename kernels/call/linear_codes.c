/* linear_codes.c: the operands of quantisation with a scale, checked for all back ends. */
#include "kernels/call/linear_codes.h"

#include "kernels/operand.h"

/* ---- which scale ---- */

static const char *read_blocks(ebb_scales *s, const ebb_call *c, int axis)
{
    const ebb_type *x = &c->in[0].type, *scale = &c->in[1].type;
    if (scale->rank != x->rank)
        return "the scale has neither the length of the axis nor the rank of the input";
    for (int d = 0; d < x->rank; d++)
        if (d != axis && scale->dims[d] != x->dims[d])
            return "the scale differs from the input outside of the axis";
    s->kind = EBB_SCALE_BLOCKS;
    s->places = scale->dims[axis];
    if (s->places <= 0)
        return "the scale is empty";
    s->block = ebb_attr_int(&c->attrs, "block_size", 0);
    if (s->block <= 0)
        s->block = (s->n + s->places - 1) / s->places;
    if (s->n > 0 && (s->block == 0 || (s->n - 1) / s->block >= s->places))
        return "the blocks do not cover the axis";
    return NULL;
}

const char *ebb_scales_read(ebb_scales *s, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *scale = &c->in[1].type;
    *s = (ebb_scales){.kind = EBB_SCALE_ONE};
    if (ebb_call_has(c, 2) && ebb_elements(&c->in[2].type) != ebb_elements(scale))
        return "the zero point differs in size from the scale";
    if (ebb_elements(scale) == 1)
        return NULL;
    int64_t given = ebb_attr_int(&c->attrs, "axis", 1), axis = given < 0 ? given + x->rank : given;
    if (axis < 0 || axis >= x->rank)
        return "the axis lies outside of the input";
    *s = (ebb_scales){x->dims[axis], 1, x->dims[axis], 1, EBB_SCALE_AXIS};
    for (int d = (int)axis + 1; d < x->rank; d++)
        s->inner *= x->dims[d];
    if (scale->rank == 1 && scale->dims[0] == s->n &&
        (x->rank > 1 || ebb_attr_int(&c->attrs, "block_size", 0) <= 1))
        return NULL;
    return read_blocks(s, c, (int)axis);
}

/* ---- products ---- */

ebb_coded_product ebb_coded_product_of(const ebb_call *c)
{
    if (c->op == EBB_OP_MATMUL_INTEGER || c->op == EBB_OP_CONV_INTEGER)
        return (ebb_coded_product){0, -1, 2, 1, -1, 3, -1, -1, -1};
    return (ebb_coded_product){0, 1, 2, 3, 4, 5, 6, 7, c->op == EBB_OP_QLINEAR_CONV ? 8 : -1};
}

/* An entry for all or one for each of `count`. */
static bool fits(const ebb_call *c, int input, int64_t count)
{
    if (!ebb_call_has(c, input))
        return true;
    int64_t n = ebb_elements(&c->in[input].type);
    return n == 1 || n == count;
}

static const char *unfit(const ebb_call *c, const ebb_coded_product *p, int64_t rows,
                         int64_t columns)
{
    uint8_t a = c->in[p->a].type.dtype, b = c->in[p->b].type.dtype;
    if ((a != EBB_U8 && a != EBB_I8) || (b != EBB_U8 && b != EBB_I8))
        return "multiplies uint8 and int8 only";
    if (!fits(c, p->a_zero, rows) || !fits(c, p->a_scale, rows) || !fits(c, p->b_zero, columns) ||
        !fits(c, p->b_scale, columns) || !fits(c, p->y_scale, 1) || !fits(c, p->y_zero, 1))
        return "a scale or zero point is neither one number nor one for each row or column";
    if (p->y_scale < 0)
        return c->out[0].type.dtype == EBB_I32 ? NULL : "the output is not int32";
    return ebb_call_has(c, p->a_scale) && ebb_call_has(c, p->b_scale) && ebb_call_has(c, p->y_scale)
               ? NULL
               : "a scale is missing";
}

const char *ebb_coded_matmul_misfit(const ebb_call *c)
{
    ebb_coded_product p = ebb_coded_product_of(c);
    const ebb_type *a = &c->in[p.a].type, *b = &c->in[p.b].type;
    return unfit(c, &p, a->rank > 1 ? a->dims[a->rank - 2] : 1,
                 b->rank > 1 ? b->dims[b->rank - 1] : 1);
}

const char *ebb_coded_conv_read(ebb_geometry *w, const ebb_call *c)
{
    ebb_coded_product p = ebb_coded_product_of(c);
    const char *why =
        ebb_geometry_read(w, &c->attrs, &c->in[p.a].type, &c->out[0].type, &c->in[p.b].type, false);
    if (why == NULL)
        why = unfit(c, &p, 1, w->narrow_channels);
    if (why == NULL && ebb_call_has(c, p.bias) &&
        ebb_elements(&c->in[p.bias].type) != w->narrow_channels)
        why = "the bias has the wrong shape";
    return why;
}

/* ---- a matrix in few bits ---- */

enum { FROZEN_INPUTS = EBB_FROZEN_LEVELS + 1 };

static const char *read_frozen(ebb_frozen *f, const ebb_call *c)
{
    const ebb_type *in[FROZEN_INPUTS] = {NULL};
    for (uint32_t i = 0; i < c->input_count && i < FROZEN_INPUTS; i++)
        in[i] = ebb_call_has(c, i) ? &c->in[i].type : NULL;
    return ebb_frozen_read(f, c->op != EBB_OP_MATMUL_DEQUANTIZED, &c->attrs, in, FROZEN_INPUTS);
}

const char *ebb_frozen_misfit(const ebb_call *c)
{
    ebb_frozen f;
    EBB_ASK(ebb_call_any_bits(c));
    EBB_ASK(read_frozen(&f, c));
    const ebb_type *a = &c->in[0].type, *y = &c->out[0].type;
    if (a->rank < 1 || y->rank != a->rank || y->dims[y->rank - 1] != ebb_frozen_columns(&f))
        return "the output has another shape";
    for (int d = 0; d + 1 < a->rank; d++)
        if (a->dims[d] != y->dims[d])
            return "the output has another shape";
    if (c->op != EBB_OP_EXPERTS_MATMUL_CODES)
        return NULL;
    const ebb_type *of = &c->in[EBB_FROZEN_OF].type;
    return of->dtype == EBB_I64 && of->rank == 1 && a->rank == 2 && of->dims[0] == a->dims[0]
               ? NULL
               : "input 5 has not one expert for each row";
}

const int64_t *ebb_frozen_experts(const ebb_call *c)
{
    return c->op == EBB_OP_EXPERTS_MATMUL_CODES ? c->in[EBB_FROZEN_OF].data : NULL;
}

void ebb_frozen_of(ebb_frozen *f, const ebb_call *c)
{
    (void)read_frozen(f, c);
}

void ebb_frozen_open(ebb_frozen_matrix *m, const ebb_call *c)
{
    ebb_tensor in[FROZEN_INPUTS] = {0};
    ebb_frozen f;
    ebb_frozen_of(&f, c);
    for (uint32_t i = 1; i < c->input_count && i < FROZEN_INPUTS; i++)
        in[i] = (ebb_tensor){.type = c->in[i].type, .data = c->in[i].data};
    ebb_frozen_fill(m, &f, in);
}

const char *ebb_frozen_table_of(ebb_frozen_table *t, const ebb_call *c)
{
    enum { SCALES = 2, INPUTS = 4 };
    const ebb_type *in[INPUTS] = {NULL};
    EBB_ASK(ebb_call_any_bits(c));
    for (uint32_t i = 0; i < c->input_count && i < INPUTS; i++)
        in[i] = ebb_call_has(c, i) ? &c->in[i].type : NULL;
    EBB_ASK(ebb_frozen_table_read(t, &c->attrs, in, INPUTS));
    return c->out[0].type.dtype == c->in[SCALES].type.dtype
               ? NULL
               : "the output is of another dtype than the scales";
}

/* ---- a matrix for each expert ---- */

const char *ebb_experts_read(ebb_experts *e, const ebb_call *c)
{
    const bool grad = c->op == EBB_OP_EXPERTS_MATMUL_GRAD;
    const ebb_type *a = &c->in[0].type, *w = grad ? &c->out[0].type : &c->in[1].type;
    const ebb_type *y = grad ? &c->in[1].type : &c->out[0].type, *of = &c->in[2].type;
    if (a->rank != 2 || y->rank != 2 || w->rank != 3 || of->rank != 1 || of->dtype != EBB_I64)
        return "an operand has another rank or dtype than such products have";
    *e = (ebb_experts){.rows = a->dims[0],
                       .experts = w->dims[0],
                       .n = w->dims[1],
                       .k = w->dims[2],
                       .turned = grad || ebb_attr_int(&c->attrs, "transB", 1) != 0,
                       .of = c->in[2].data};
    const int64_t inner = e->turned ? e->k : e->n, columns = e->turned ? e->n : e->k;
    return a->dims[1] == inner && y->dims[1] == columns && y->dims[0] == e->rows &&
                   of->dims[0] == e->rows
               ? NULL
               : "the operands' sizes do not fit each other";
}

ebb_status ebb_experts_check(const ebb_call *c, const int64_t *of, int64_t rows, int64_t experts)
{
    for (int64_t r = 0; r < rows; r++)
        if (of[r] < 0 || of[r] >= experts)
            return ebb_call_error(c, "row %lld is of expert %lld, and there are %lld", (long long)r,
                                  (long long)of[r], (long long)experts);
    return NULL;
}

const char *ebb_dynamic_quantize_dtypes(const ebb_call *c)
{
    return c->in[0].type.dtype == EBB_F32 ? ebb_call_any(c) : "quantises float32 only";
}
