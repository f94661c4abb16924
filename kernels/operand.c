/* operand.c: see operand.h. */
#include "kernels/operand.h"

ebb_span ebb_span_of(const ebb_type *t, int axis)
{
    ebb_span s = {1, 1, 1};
    for (int d = 0; d < t->rank; d++) {
        if (d < axis)
            s.outer *= t->dims[d];
        else if (d == axis)
            s.n = t->dims[d];
        else
            s.inner *= t->dims[d];
    }
    return s;
}

int64_t ebb_axis_of(const ebb_call *c, const char *name, int64_t otherwise, int rank)
{
    int64_t axis = ebb_attr_int(&c->attrs, name, otherwise);
    return axis < 0 ? axis + rank : axis;
}

ebb_status ebb_call_axis(const ebb_call *c, int64_t axis, int rank, int *normal)
{
    if (axis < -rank || axis >= rank)
        return ebb_call_error(c, "axis %lld is outside -%d..%d", (long long)axis, rank, rank - 1);
    *normal = (int)(axis < 0 ? axis + rank : axis);
    return NULL;
}

/* ---- lists of integers ---- */

/* The tensor of an input, which the host can read. */
static ebb_status open_ints(const ebb_call *c, uint32_t input, ebb_tensor *t)
{
    const ebb_operand *o = &c->in[input];
    const bool host =
        c->backends == NULL || *c->backends == NULL || (*c->backends)->device->is_host;
    if (!ebb_indices_are(o))
        return ebb_call_error(c, "input %u is %s, not int32 or int64", input,
                              ebb_dtype_name((ebb_dtype)o->type.dtype));
    *t = (ebb_tensor){.type = o->type, .data = o->data, .bytes = o->bytes};
    if (o->constant != NULL && o->constant->data != NULL)
        *t = *o->constant;
    else if (!host)
        return ebb_call_error(c, "input %u is not known before the run", input);
    return NULL;
}

ebb_status ebb_call_int(const ebb_call *c, uint32_t input, int64_t i, int64_t *value)
{
    ebb_tensor t;
    EBB_TRY(open_ints(c, input, &t));
    *value = ebb_tensor_int(&t, i);
    return NULL;
}

static ebb_status read_input(const ebb_call *c, uint32_t input, int64_t *list, uint32_t capacity,
                             uint32_t *count)
{
    ebb_tensor t;
    EBB_TRY(open_ints(c, input, &t));
    const int64_t n = ebb_elements(&t.type);
    if (n > (int64_t)capacity)
        return ebb_call_error(c, "input %u has %lld entries, at most %u make sense", input,
                              (long long)n, capacity);
    for (int64_t i = 0; i < n; i++)
        list[i] = ebb_tensor_int(&t, i);
    *count = (uint32_t)n;
    return NULL;
}

ebb_status ebb_call_ints(const ebb_call *c, const char *attr, uint32_t input, int64_t *list,
                         uint32_t capacity, uint32_t *count)
{
    uint32_t n = 0;
    *count = 0;
    if (ebb_call_has(c, input))
        return read_input(c, input, list, capacity, count);
    const int64_t *given = attr != NULL ? ebb_attr_ints(&c->attrs, attr, &n) : NULL;
    if (n > capacity)
        return ebb_call_error(c, "attribute '%s' has %u entries, at most %u make sense", attr, n,
                              capacity);
    if (n > 0)
        memcpy(list, given, n * sizeof *list);
    *count = n;
    return NULL;
}

/* ---- what rows ask ---- */

const char *ebb_operand_misfit(const ebb_operand *o, bool packed)
{
    if (o->type.dtype == EBB_NONE)
        return NULL;
    if (o->type.kind != EBB_KIND_TENSOR)
        return "works on tensors only";
    if (!ebb_type_is_static(&o->type))
        return "a dim is not known";
    if (o->type.layout.kind != EBB_LAYOUT_PLAIN)
        return "works on row-major tensors only";
    if (!packed && ebb_element_bytes(&o->type) == 0)
        return "elements are not whole bytes";
    return NULL;
}

static const char *misfit_of_all(const ebb_call *c, bool packed)
{
    for (uint32_t i = 0; i < c->input_count; i++)
        EBB_ASK(ebb_operand_misfit(&c->in[i], packed));
    for (uint32_t o = 0; o < c->output_count; o++)
        EBB_ASK(ebb_operand_misfit(&c->out[o], packed));
    return NULL;
}

const char *ebb_call_any(const ebb_call *c)
{
    return misfit_of_all(c, false);
}

const char *ebb_call_any_bits(const ebb_call *c)
{
    return misfit_of_all(c, true);
}

const char *ebb_call_one_float(const ebb_call *c, uint8_t dtype)
{
    for (uint32_t i = 0; i < c->input_count; i++)
        if (ebb_dtype_is_float((ebb_dtype)c->in[i].type.dtype) && c->in[i].type.dtype != dtype)
            return "float inputs differ in dtype";
    for (uint32_t o = 0; o < c->output_count; o++)
        if (ebb_dtype_is_float((ebb_dtype)c->out[o].type.dtype) && c->out[o].type.dtype != dtype)
            return "float outputs differ in dtype from the inputs";
    return NULL;
}

void ebb_call_forget(ebb_call *call)
{
    ebb_free(call->state);
    call->state = NULL;
}
