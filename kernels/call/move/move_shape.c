/* move_shape.c: see move_shape.h. */
#include "kernels/call/move/move_shape.h"

/* ---- the same bytes ---- */

const char *ebb_view_misfit(const ebb_call *c)
{
    const ebb_operand *x = &c->in[0], *y = &c->out[0];
    if (x->type.kind != EBB_KIND_TENSOR || ebb_dtype_bits((ebb_dtype)x->type.dtype) == 0)
        return "works on tensors of numbers only";
    if (x->type.dtype != y->type.dtype || x->bytes != y->bytes)
        return "the output differs in dtype or size";
    bool kept = c->op == EBB_OP_IDENTITY && x->type.layout.kind == y->type.layout.kind &&
                x->type.layout.block == y->type.layout.block;
    if (!kept &&
        (x->type.layout.kind != EBB_LAYOUT_PLAIN || y->type.layout.kind != EBB_LAYOUT_PLAIN))
        return "works on row-major tensors only";
    return NULL;
}

/* ---- made from shapes and attributes ---- */

const int64_t *ebb_shape_dims(const ebb_call *c)
{
    const int64_t start = ebb_axis_of(c, "start", 0, c->in[0].type.rank);
    return c->in[0].type.dims + (start < 0 ? 0 : start);
}

const char *ebb_shape_misfit(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (!ebb_type_is_static(x))
        return "a dim is not known";
    if (y->dtype != EBB_I64 || y->layout.kind != EBB_LAYOUT_PLAIN)
        return "the output is not row-major int64";
    if (c->op == EBB_OP_SIZE)
        return ebb_elements(y) != 1 ? "the output is no scalar" : NULL;
    int64_t start = ebb_axis_of(c, "start", 0, x->rank);
    start = start < 0 ? 0 : start;
    if (y->rank != 1 || (y->dims[0] > 0 && (start > x->rank || y->dims[0] > x->rank - start)))
        return "the output does not fit the input's rank";
    return NULL;
}

const char *ebb_trilu_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    if (c->in[0].type.rank < 2)
        return "the input is no matrix";
    if (ebb_call_has(c, 1) && (ebb_elements(&c->in[1].type) != 1 || !ebb_indices_are(&c->in[1])))
        return "the diagonal is no integer";
    return NULL;
}

const char *ebb_range_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    const ebb_type *y = &c->out[0].type;
    if (y->rank != 1)
        return "the output is no vector";
    for (uint32_t i = 0; i < 3; i++)
        if (c->in[i].type.dtype != y->dtype || ebb_elements(&c->in[i].type) != 1)
            return "start, limit and step are not scalars of the output's dtype";
    return NULL;
}

const void *ebb_constant_bytes(const ebb_call *c, float *number, size_t *bytes)
{
    *bytes = 0;
    for (uint32_t i = 0; i < c->attrs.count; i++) {
        const ebb_attr *a = &c->attrs.list[i];
        if (strcmp(a->name, "value") == 0 && a->tensor != NULL) {
            *bytes = a->tensor->bytes;
            return a->tensor->data;
        }
        if (strcmp(a->name, "value_int") == 0) {
            *bytes = sizeof a->i;
            return &a->i;
        }
        if (strcmp(a->name, "value_float") == 0) {
            *number = (float)a->f;
            *bytes = sizeof *number;
            return number;
        }
        if (strcmp(a->name, "value_ints") == 0) {
            *bytes = a->count * sizeof *a->ints;
            return a->ints;
        }
        if (strcmp(a->name, "value_floats") == 0) {
            *bytes = a->count * sizeof *a->floats;
            return a->floats;
        }
    }
    return NULL;
}

const char *ebb_constant_misfit(const ebb_call *c)
{
    float number;
    size_t bytes;
    const void *from = ebb_constant_bytes(c, &number, &bytes);
    if (c->out[0].type.layout.kind != EBB_LAYOUT_PLAIN)
        return "works on row-major tensors only";
    if (bytes != c->out[0].bytes || (from == NULL && bytes > 0))
        return "its value is not there, or not of numbers";
    return NULL;
}

const void *ebb_constant_of_shape_value(const ebb_call *c)
{
    static const unsigned char zero[16] = {0};
    const ebb_attr *value = ebb_attr_find(&c->attrs, "value");
    return value != NULL && value->tensor != NULL ? value->tensor->data : zero;
}

const char *ebb_constant_of_shape_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    const ebb_attr *value = ebb_attr_find(&c->attrs, "value");
    if (value == NULL || value->tensor == NULL)
        return c->out[0].type.dtype != EBB_F32 ? "the output is not float32" : NULL;
    if (value->tensor->data == NULL || ebb_elements(&value->tensor->type) != 1 ||
        value->tensor->type.dtype != c->out[0].type.dtype)
        return "the value is not one of the output's dtype";
    return NULL;
}
