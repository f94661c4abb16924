/* common: what the operator families share. */
#include "onnx/ops/common.h"

#include <stdio.h>

#include "onnx/graph/shape.h"
#include "onnx/words/print.h"

/* ---- messages and integers: declared in op.h ---- */

ebb_status ebb_infer_error(const ebb_infer *c, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)ebb_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ebb_error(EBB_REJECTED, "%s: %s", c->node, text);
}

ebb_status ebb_infer_ints(const ebb_infer *c, const char *attr, uint32_t input,
                          const int64_t **list, uint32_t *count, bool *known)
{
    *list = NULL;
    *count = 0;
    *known = true;
    if (attr != NULL) {
        const int64_t *ints = ebb_attr_ints(&c->attrs, attr, count);
        if (ebb_attr_find(&c->attrs, attr) != NULL) {
            static const int64_t nothing = 0; // given but empty is not the same as absent
            *list = ints != NULL ? ints : &nothing;
            return NULL;
        }
    }
    if (input >= c->input_count || c->in[input] == NULL)
        return NULL;
    const ebb_tensor *t = c->constant[input];
    if (t == NULL || t->data == NULL) {
        *known = false;
        return NULL;
    }
    int64_t elements;
    if (!ebb_dtype_is_integer((ebb_dtype)t->type.dtype) || t->type.rank > 1 ||
        !ebb_type_elements(&t->type, &elements) || elements > UINT16_MAX)
        return ebb_infer_error(c, "input %u is not a list of integers", (unsigned)input);
    int64_t *copy = EBB_NEW(c->scratch, int64_t, (size_t)elements + 1);
    EBB_GOT(copy);
    for (int64_t i = 0; i < elements; i++)
        copy[i] = ebb_tensor_int(t, i);
    *list = copy;
    *count = (uint32_t)elements;
    return NULL;
}

/* ---- inference ---- */

const ebb_type *ebb_infer_type(const ebb_infer *c, uint32_t i)
{
    if (i >= c->input_count || c->in[i] == NULL || c->in[i]->kind != EBB_KIND_TENSOR)
        return NULL;
    return c->in[i];
}

ebb_status ebb_infer_broadcast_with(const ebb_infer *c, ebb_type *into, const ebb_type *with,
                                    uint32_t input)
{
    if (into->rank < 0 || with->rank < 0) {
        *into = ebb_type_unranked((ebb_dtype)into->dtype);
        return NULL;
    }
    int rank = into->rank > with->rank ? into->rank : with->rank;
    ebb_type out = ebb_type_ranked((ebb_dtype)into->dtype, rank);
    for (int i = 0; i < rank; i++) {
        int a = i - (rank - into->rank), b = i - (rank - with->rank);
        if (a < 0) {
            ebb_type_put_dim(&out, i, with, b);
        } else if (b < 0 || with->dims[b] == 1) {
            ebb_type_put_dim(&out, i, into, a);
        } else if (into->dims[a] == 1) {
            ebb_type_put_dim(&out, i, with, b);
        } else if (into->dims[a] < 0 && with->dims[b] < 0) {
            if (ebb_same_str(into->symbols[a], with->symbols[b]))
                ebb_type_put_dim(&out, i, into, a); // equal by name: broadcasting changes nothing
        } else if (into->dims[a] < 0 || with->dims[b] < 0 || into->dims[a] == with->dims[b]) {
            ebb_type_set_dim(&out, i, into->dims[a] < 0 ? with->dims[b] : into->dims[a]);
        } else {
            char left[160], right[160];
            return ebb_infer_error(
                c, "input %u is %s and cannot be broadcast together with %s (%lld against %lld)",
                (unsigned)input, ebb_type_print(right, sizeof right, with, NULL),
                ebb_type_print(left, sizeof left, into, NULL), (long long)with->dims[b],
                (long long)into->dims[a]);
        }
    }
    *into = out;
    return NULL;
}

ebb_status ebb_infer_same_dtype(const ebb_infer *c, uint32_t i, uint32_t j)
{
    const ebb_type *a = ebb_infer_type(c, i), *b = ebb_infer_type(c, j);
    if (a == NULL || b == NULL || a->dtype == EBB_NONE || b->dtype == EBB_NONE ||
        a->dtype == b->dtype)
        return NULL;
    return ebb_infer_error(c, "input %u is %s, input %u is %s; they must agree", (unsigned)i,
                           ebb_dtype_name((ebb_dtype)a->dtype), (unsigned)j,
                           ebb_dtype_name((ebb_dtype)b->dtype));
}

ebb_status ebb_infer_same_dims(const ebb_infer *c, uint32_t i, uint32_t j)
{
    const ebb_type *a = ebb_infer_type(c, i), *b = ebb_infer_type(c, j);
    if (a == NULL || b == NULL || a->rank < 0 || b->rank < 0)
        return NULL;
    bool same = a->rank == b->rank;
    for (int k = 0; same && k < a->rank; k++)
        same = a->dims[k] < 0 || b->dims[k] < 0 || a->dims[k] == b->dims[k];
    if (same)
        return NULL;
    char left[160], right[160];
    return ebb_infer_error(c, "input %u is %s, input %u is %s; their shapes must agree",
                           (unsigned)i, ebb_type_print(left, sizeof left, a, NULL), (unsigned)j,
                           ebb_type_print(right, sizeof right, b, NULL));
}

ebb_status ebb_infer_vector(const ebb_infer *c, uint32_t i, int64_t size, const char *what)
{
    const ebb_type *t = ebb_infer_type(c, i);
    if (t == NULL || t->rank < 0)
        return NULL;
    if (t->rank != 1)
        return ebb_infer_error(c, "input %u has rank %d, a vector is expected", (unsigned)i,
                               (int)t->rank);
    if (size < 0 || t->dims[0] < 0 || t->dims[0] == size)
        return NULL;
    return ebb_infer_error(c, "input 0 has %lld %s, input %u has %lld elements", (long long)size,
                           what, (unsigned)i, (long long)t->dims[0]);
}

ebb_status ebb_infer_axes(const ebb_infer *c, int rank, bool reduced[EBB_MAX_RANK], bool *known)
{
    const int64_t *axes;
    uint32_t count;
    memset(reduced, 0, EBB_MAX_RANK * sizeof *reduced);
    EBB_TRY(ebb_infer_ints(c, "axes", 1, &axes, &count, known));
    if (!*known)
        return NULL;
    if (count == 0 && ebb_attr_int(&c->attrs, "noop_with_empty_axes", 0) == 0)
        for (int i = 0; i < rank; i++)
            reduced[i] = true;
    for (uint32_t k = 0; k < count; k++) {
        int axis;
        EBB_TRY(ebb_infer_axis(c, axes[k], rank, &axis));
        if (reduced[axis])
            return ebb_infer_error(c, "axis %d is named twice", axis);
        reduced[axis] = true;
    }
    return NULL;
}

/* ---- costs ---- */

double ebb_type_count(const ebb_type *type)
{
    int64_t elements;
    return type != NULL && ebb_type_elements(type, &elements) ? (double)elements : 0.0;
}

double ebb_cost_free(const ebb_infer *c)
{
    (void)c;
    return 0.0;
}

/* One operation for an element of the largest output: the bytes tell more about such a node. */
double ebb_cost_point(const ebb_infer *c)
{
    double most = 0.0;
    for (uint32_t k = 0; k < c->output_count; k++) {
        double elements = ebb_type_count(&c->out[k]);
        most = elements > most ? elements : most;
    }
    return most;
}

/* ---- gradient rules ---- */

void ebb_grad_none(ebb_build *b, ebb_grad *c)
{
    (void)b;
    (void)c;
}

void ebb_grad_missing(ebb_build *b, ebb_grad *c)
{
    ebb_grad_fail(b, c, "it has no gradient rule");
}

void ebb_grad_fail(ebb_build *b, const ebb_grad *c, const char *reason)
{
    ebb_build_fail(b, ebb_error(EBB_UNSUPPORTED, "%s cannot be differentiated: %s",
                                ebb_node_label(b->g, c->node), reason));
}

bool ebb_grad_has(const ebb_grad *c, uint32_t i)
{
    return i < c->input_count && c->x[i].i != 0;
}

bool ebb_grad_wants(const ebb_grad *c, uint32_t i)
{
    return i < c->input_count && c->x[i].i != 0 && c->wants[i];
}

ebb_value ebb_grad_of(const ebb_grad *c, uint32_t output)
{
    return output < c->output_count ? c->dy[output] : EBB_NO_VALUE;
}

int ebb_grad_axis(const ebb_grad *c, int64_t otherwise, int rank)
{
    const int64_t axis = ebb_attr_int(&c->attrs, "axis", otherwise);
    return (int)(axis < 0 ? axis + rank : axis);
}

void ebb_grad_give(ebb_build *b, ebb_grad *c, uint32_t i, ebb_value dx)
{
    if (b->status == NULL)
        c->dx[i] = ebb_emit_unbroadcast(b, dx, c->x[i]);
}

bool ebb_grad_shape(ebb_build *b, const ebb_grad *c, ebb_value v, ebb_type *type)
{
    if (b->status != NULL)
        return false;
    *type = *ebb_build_type(b, v);
    if (ebb_type_is_static(type))
        return true;
    ebb_build_fail(b, ebb_error(EBB_REJECTED, "%s: the shape of '%s' is not known",
                                ebb_node_label(b->g, c->node), ebb_value_name(b->g, v)));
    return false;
}

bool ebb_grad_ints(const ebb_build *b, const ebb_grad *c, uint32_t i, int64_t *list, int *count)
{
    const ebb_tensor *t =
        i < c->input_count && c->x[i].i != 0 ? ebb_value_constant(b->g, c->x[i]) : NULL;
    int64_t n;
    if (t == NULL || t->data == NULL || !ebb_type_elements(&t->type, &n) || n > 2 * EBB_MAX_RANK)
        return false;
    for (int64_t k = 0; k < n; k++)
        list[k] = ebb_tensor_int(t, k);
    *count = (int)n;
    return true;
}

ebb_value ebb_emit_part(ebb_build *b, ebb_value x, int axis, int64_t from, int64_t size)
{
    int64_t end = from + size, along = axis;
    ebb_value start = ebb_const_ints(b, &from, 1), stop = ebb_const_ints(b, &end, 1);
    return ebb_emit(b, EBB_OP_SLICE, x, start, stop, ebb_const_ints(b, &along, 1));
}

ebb_value ebb_emit_picked(ebb_build *b, ebb_value x, int axis, const int64_t *list, uint32_t count)
{
    ebb_value places = ebb_const_ints(b, list, count);
    ebb_with_int(b, "axis", axis);
    return ebb_emit(b, EBB_OP_GATHER, x, places);
}

ebb_value ebb_emit_scaled(ebb_build *b, ebb_value x, double k)
{
    if (b->status != NULL || k == 1.0)
        return x;
    return ebb_emit(b, EBB_OP_MUL, x, ebb_const_like(b, x, k));
}

ebb_value ebb_emit_shifted(ebb_build *b, ebb_value x, double k)
{
    if (b->status != NULL)
        return x;
    return ebb_emit(b, EBB_OP_ADD, x, ebb_const_like(b, x, k));
}

ebb_value ebb_emit_expand_like(ebb_build *b, ebb_value x, ebb_value like)
{
    if (b->status != NULL || ebb_type_same_shape(ebb_build_type(b, x), ebb_build_type(b, like)))
        return x;
    return ebb_emit(b, EBB_OP_EXPAND, x, ebb_const_shape(b, like));
}

bool ebb_constant_scalar(const ebb_graph *g, ebb_value v, double *x)
{
    const ebb_tensor *t = v.i != 0 ? ebb_value_constant(g, v) : NULL;
    int64_t elements;
    if (t == NULL || t->data == NULL || !ebb_type_elements(&t->type, &elements) || elements != 1)
        return false;
    ebb_dtype dtype = (ebb_dtype)t->type.dtype;
    if (ebb_dtype_is_float(dtype))
        *x = ebb_tensor_double(t, 0);
    else if (ebb_dtype_is_integer(dtype) || dtype == EBB_BOOL)
        *x = (double)ebb_tensor_int(t, 0);
    else
        return false;
    return true;
}

ebb_value ebb_emit_counted(ebb_build *b, int64_t n, int64_t step, int axis, int rank)
{
    int64_t dims[EBB_MAX_RANK], *list = EBB_NEW(&b->g->model->arena, int64_t, (size_t)n + 1);
    if (!ebb_build_got(b, list))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < n; i++)
        list[i] = i * step;
    for (int d = 0; d < rank; d++)
        dims[d] = d == axis ? n : 1;
    ebb_type type = ebb_type_tensor(EBB_I64, rank, dims);
    return ebb_const_tensor(b, &type, list);
}
