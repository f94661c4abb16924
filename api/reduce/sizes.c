/* sizes.c: smaller dims.
 *
 *   before   x [8, 768]  w [768, 3072]  shape = {8, 12, 64}       768 -> 2
 *   after    x [8, 2]    w [2, 3072]    shape = {8, 12, 64}       w keeps its first rows
 *
 * A size means the same wherever it stands, as far as anyone can tell: all dims that have it shrink
 * together, and so do the numbers of small constants of integers, which often are shapes. Where
 * that is wrong the types do not agree or the failure is another, and the change is not taken.
 */
#include "api/reduce/reduce.h"

/* What inference does not tell: inputs, initializers, and what an unknown operator makes. */
static bool is_said(const ebb_graph *g, const ebb_value_info *info)
{
    return !info->dead &&
           (info->producer.i == 0 || ebb_node_of(g, info->producer)->op == EBB_OP_UNKNOWN);
}

int64_t ebb_reduce_next_size(const ebb_graph *g, int64_t below)
{
    int64_t largest = 0;
    EBB_EACH_VALUE(g, v) {
        const ebb_value_info *info = ebb_value_of(g, v);
        for (int k = 0; is_said(g, info) && k < info->type->rank; k++)
            if (info->type->dims[k] < below && info->type->dims[k] > largest)
                largest = info->type->dims[k];
    }
    return largest > 1 ? largest : 0;
}

static bool shrink_type(ebb_type *t, int64_t from, int64_t to)
{
    bool changed = false;
    for (int k = 0; k < t->rank; k++)
        if (t->dims[k] == from) {
            t->dims[k] = to;
            changed = true;
        }
    return changed;
}

/* The leading part of each axis. old: strides of what is there, in elements. */
static void take_corner(unsigned char *to, const unsigned char *from, const ebb_type *t,
                        const int64_t *old, size_t element, int axis)
{
    int64_t rest = 1;
    for (int k = axis + 1; k < t->rank; k++)
        rest *= t->dims[k];
    for (int64_t i = 0; i < (axis < t->rank ? t->dims[axis] : 1); i++) {
        if (axis + 1 >= t->rank)
            memcpy(to + (size_t)i * element, from + (size_t)i * element, element);
        else
            take_corner(to + (size_t)(i * rest) * element, from + (size_t)(i * old[axis]) * element,
                        t, old, element, axis + 1);
    }
}

static ebb_status shrink_tensor(ebb_graph *g, ebb_value v, int64_t from, int64_t to)
{
    ebb_value_info *info = ebb_value_of(g, v);
    ebb_type type = *info->type;
    int64_t strides[EBB_MAX_RANK];
    ebb_strides(strides, type.rank, type.dims);
    (void)shrink_type(&type, from, to);
    ebb_tensor made = {.type = type};
    size_t element = ebb_dtype_bits((ebb_dtype)type.dtype) / 8;
    if (!ebb_type_bytes(&type, &made.bytes))
        return ebb_error(EBB_REJECTED, "initializer '%s' has no size", ebb_value_name(g, v));
    if (info->tensor->data != NULL && made.bytes > 0) {
        unsigned char *bytes = ebb_arena_alloc(&g->model->arena, made.bytes);
        EBB_GOT(bytes);
        take_corner(bytes, info->tensor->data, &type, strides, element, 0);
        made.data = bytes;
    }
    return ebb_value_set_tensor(g, v, &made);
}

/* Numbers of a small constant of int64 that are `from` become `to`. */
static ebb_status shrink_numbers(ebb_graph *g, ebb_value v, int64_t from, int64_t to)
{
    enum { MOST = 16 };
    ebb_value_info *info = ebb_value_of(g, v);
    const ebb_tensor *t = info->tensor;
    int64_t count, numbers[MOST];
    bool any = false;
    if (info->type->dtype != EBB_I64 || info->type->rank > 1 || t->data == NULL ||
        !ebb_type_elements(info->type, &count) || count > MOST)
        return NULL;
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = ebb_tensor_int(t, i);
        any = any || numbers[i] == from;
        numbers[i] = numbers[i] == from ? to : numbers[i];
    }
    if (!any)
        return NULL;
    int64_t *bytes = EBB_NEW(&g->model->arena, int64_t, (size_t)count);
    EBB_GOT(bytes);
    memcpy(bytes, numbers, (size_t)count * sizeof *bytes);
    const ebb_tensor made = {.type = *info->type, .data = bytes, .bytes = t->bytes};
    return ebb_value_set_tensor(g, v, &made);
}

ebb_status ebb_less_size(ebb_model *copy, size_t at, size_t size, bool *applies)
{
    ebb_graph *g = copy->graph;
    int64_t from = (int64_t)at, to = (int64_t)size;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        ebb_type type = *ebb_value_of(g, v)->type;
        if (shrink_type(&type, from, to)) {
            if (ebb_dtype_bits((ebb_dtype)type.dtype) < 8) { // packed, or strings
                *applies = false;
                return NULL;
            }
            EBB_TRY(shrink_tensor(g, v, from, to));
            *applies = true;
        }
        EBB_TRY(shrink_numbers(g, v, from, to));
    }
    EBB_EACH_VALUE(g, v) {
        ebb_value_info *info = ebb_value_of(g, v);
        if (info->dead || (info->flags & EBB_IS_INITIALIZER) != 0)
            continue;
        ebb_type type = *info->type;
        bool known = !is_said(g, info);
        if (!known)
            *applies = shrink_type(&type, from, to) || *applies;
        for (int k = 0; known && k < type.rank; k++) {
            type.dims[k] = -1; // inferred again
            type.symbols[k] = (ebb_str){0};
        }
        EBB_TRY(ebb_value_set_type(g, v, &type));
    }
    return NULL;
}
