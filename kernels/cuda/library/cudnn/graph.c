/* graph.c: the builder: descriptors, tensors, the text of a graph, sticky errors. Operations:
 * ops.c.
 */
#include <stdarg.h>
#include <stdio.h>

#include "kernels/cuda/library/cudnn/internal.h"

/* ---- tensors ---- */

ebb_cudnn_tensor ebb_cudnn_rows(ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_cudnn_tensor t = {.dtype = dtype, .rank = rank};
    int64_t step = 1;
    for (int i = rank - 1; i >= 0 && i < EBB_CUDNN_RANK; i--) {
        t.dims[i] = dims[i];
        t.strides[i] = step;
        if (__builtin_mul_overflow(step, dims[i], &step))
            step = 0; /* no stride: refused when the tensor is made */
    }
    return t;
}

ebb_cudnn_tensor ebb_cudnn_channels_last(ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_cudnn_tensor t = {.dtype = dtype, .rank = rank};
    int64_t step = 1;
    if (rank < 3 || rank > EBB_CUDNN_RANK)
        return ebb_cudnn_rows(dtype, rank, dims);
    for (int n = 0; n < rank; n++) {
        int i = n == 0 ? 1 : n == rank - 1 ? 0 : rank - n; /* C, last axis ... first axis, N */
        t.dims[i] = dims[i];
        t.strides[i] = step;
        if (__builtin_mul_overflow(step, dims[i], &step))
            step = 0;
    }
    return t;
}

static const char *const role_names[EBB_CUDNN_ROLES] = {
    [EBB_CUDNN_X] = "x",
    [EBB_CUDNN_W] = "w",
    [EBB_CUDNN_BIAS] = "bias",
    [EBB_CUDNN_Y] = "y",
    [EBB_CUDNN_MASK] = "mask",
    [EBB_CUDNN_ADDED] = "added",
    [EBB_CUDNN_DY] = "dy",
    [EBB_CUDNN_DX] = "dx",
    [EBB_CUDNN_DW] = "dw",
    [EBB_CUDNN_DADDED] = "dadded",
    [EBB_CUDNN_SCALE] = "scale",
    [EBB_CUDNN_DSCALE] = "dscale",
    [EBB_CUDNN_DBIAS] = "dbias",
    [EBB_CUDNN_MEAN] = "mean",
    [EBB_CUDNN_INVSTD] = "invstd",
    [EBB_CUDNN_RUNNING_MEAN] = "running_mean",
    [EBB_CUDNN_RUNNING_VAR] = "running_var",
    [EBB_CUDNN_NEXT_MEAN] = "next_mean",
    [EBB_CUDNN_NEXT_VAR] = "next_var",
    [EBB_CUDNN_INDEX] = "index",
    [EBB_CUDNN_Q] = "q",
    [EBB_CUDNN_K] = "k",
    [EBB_CUDNN_V] = "v",
    [EBB_CUDNN_O] = "o",
    [EBB_CUDNN_STATS] = "stats",
    [EBB_CUDNN_MAX] = "max",
    [EBB_CUDNN_SUM] = "sum",
    [EBB_CUDNN_DO] = "do",
    [EBB_CUDNN_DQ] = "dq",
    [EBB_CUDNN_DK] = "dk",
    [EBB_CUDNN_DV] = "dv",
    [EBB_CUDNN_ROW_SUMS] = "row_sums",
    [EBB_CUDNN_DQ_SUMS] = "dq_sums",
    [EBB_CUDNN_KEPT] = "kept",
};

const char *ebb_cudnn_role_name(int role)
{
    return role > 0 && role < EBB_CUDNN_ROLES ? role_names[role] : "inner";
}

static bool cudnn_type(ebb_dtype dtype, cudnnDataType_t *type)
{
    switch (dtype) {
    case EBB_F32:
        *type = CUDNN_DATA_FLOAT;
        return true;
    case EBB_F16:
        *type = CUDNN_DATA_HALF;
        return true;
    case EBB_BF16:
        *type = CUDNN_DATA_BFLOAT16;
        return true;
    case EBB_I8:
        *type = CUDNN_DATA_INT8;
        return true;
    case EBB_I32:
        *type = CUDNN_DATA_INT32;
        return true;
    case EBB_I64:
        *type = CUDNN_DATA_INT64;
        return true;
    case EBB_BOOL:
        *type = CUDNN_DATA_BOOLEAN;
        return true;
    default:
        return false;
    }
}

/* ---- life ---- */

ebb_cudnn_graph *ebb_cudnn_graph_new(const char *label)
{
    ebb_cudnn_graph *graph = ebb_alloc(sizeof *graph);
    if (graph == NULL)
        return NULL;
    memset(graph, 0, sizeof *graph);
    graph->owners = 1;
    graph->fresh = EBB_CUDNN_ROLES;
    (void)snprintf(graph->label, sizeof graph->label, "%s", label);
    graph->broken = ebb_cudnn_open();
    return graph;
}

ebb_cudnn_graph *ebb_cudnn_graph_share(const ebb_cudnn_graph *graph)
{
    ebb_cudnn_graph *shared = (ebb_cudnn_graph *)(uintptr_t)graph; /* counting is no change */
    (void)__atomic_add_fetch(&shared->owners, 1, __ATOMIC_RELAXED);
    return shared;
}

void ebb_cudnn_graph_free(ebb_cudnn_graph *graph)
{
    if (graph == NULL || __atomic_sub_fetch(&graph->owners, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (graph->graph != NULL)
        (void)ebb_cudnn.drop(graph->graph);
    for (int i = 0; i < graph->operations; i++)
        (void)ebb_cudnn.drop(graph->operation[i]);
    for (int i = 0; i < graph->details; i++)
        (void)ebb_cudnn.drop(graph->detail[i]);
    for (int i = 0; i < EBB_CUDNN_TENSORS; i++)
        if (graph->tensor[i] != NULL)
            (void)ebb_cudnn.drop(graph->tensor[i]);
    ebb_free(graph->text);
    ebb_free(graph);
}

void ebb_cudnn_break(ebb_cudnn_graph *graph, ebb_status status)
{
    if (graph->broken == NULL)
        graph->broken = status;
}

const char *ebb_cudnn_graph_text(const ebb_cudnn_graph *graph)
{
    return graph->text != NULL ? graph->text : "";
}

void ebb_cudnn_note(ebb_cudnn_graph *graph, const char *format, ...)
{
    for (int again = 0; again < 2 && graph->broken == NULL; again++) {
        va_list list;
        size_t room = graph->text_room - graph->text_bytes;
        va_start(list, format);
        int length =
            vsnprintf(room > 0 ? graph->text + graph->text_bytes : NULL, room, format, list);
        va_end(list);
        if (length >= 0 && (size_t)length < room) {
            graph->text_bytes += (size_t)length;
            return;
        }
        size_t more = 2 * graph->text_room + 1024 + (length > 0 ? (size_t)length : 0);
        char *grown = ebb_realloc(graph->text, more);
        if (grown == NULL) {
            ebb_cudnn_break(graph, ebb_error_memory());
            return;
        }
        graph->text = grown;
        graph->text_room = more;
    }
}

/* ---- descriptors ---- */

static cudnnBackendDescriptor_t make(ebb_cudnn_graph *graph, cudnnBackendDescriptorType_t type,
                                     cudnnBackendDescriptor_t *list, int *count)
{
    cudnnBackendDescriptor_t made = NULL;
    if (graph->broken != NULL)
        return NULL;
    if (*count == EBB_CUDNN_OPERATIONS) {
        ebb_cudnn_break(graph, ebb_error(EBB_UNSUPPORTED, "%s: more than %d operations in a graph",
                                         graph->label, EBB_CUDNN_OPERATIONS));
        return NULL;
    }
    ebb_cudnn_break(graph,
                    ebb_cudnn_check(ebb_cudnn.make(type, &made), graph->label, "a descriptor"));
    if (graph->broken == NULL)
        list[(*count)++] = made;
    return made;
}

cudnnBackendDescriptor_t ebb_cudnn_detail(ebb_cudnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    ebb_cudnn_note(graph, "detail %d: kind %d\n", graph->details, (int)type);
    return make(graph, type, graph->detail, &graph->details);
}

cudnnBackendDescriptor_t ebb_cudnn_operation(ebb_cudnn_graph *graph,
                                             cudnnBackendDescriptorType_t type)
{
    ebb_cudnn_note(graph, "operation %d: kind %d\n", graph->operations, (int)type);
    return make(graph, type, graph->operation, &graph->operations);
}

static void note_values(ebb_cudnn_graph *graph, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    ebb_cudnn_note(graph, "  %d =", (int)name);
    for (int64_t i = 0; i < count; i++) {
        if (type == CUDNN_TYPE_INT64)
            ebb_cudnn_note(graph, " %lld", (long long)((const int64_t *)values)[i]);
        else if (type == CUDNN_TYPE_FRACTION)
            ebb_cudnn_note(graph, " %lld/%lld",
                           (long long)((const cudnnFraction_t *)values)[i].numerator,
                           (long long)((const cudnnFraction_t *)values)[i].denominator);
        else if (type == CUDNN_TYPE_FLOAT)
            ebb_cudnn_note(graph, " %a", (double)((const float *)values)[i]);
        else if (type == CUDNN_TYPE_DOUBLE)
            ebb_cudnn_note(graph, " %a", ((const double *)values)[i]);
        else if (type == CUDNN_TYPE_BOOLEAN)
            ebb_cudnn_note(graph, " %d", ((const bool *)values)[i]);
        else /* an enumeration */
            ebb_cudnn_note(graph, " %d", ((const int *)values)[i]);
    }
    ebb_cudnn_note(graph, "\n");
}

static void set(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values)
{
    char what[40];
    if (graph->broken != NULL)
        return;
    (void)snprintf(what, sizeof what, "attribute %d", (int)name);
    ebb_cudnn_break(
        graph, ebb_cudnn_check(ebb_cudnn.set(of, name, type, count, values), graph->label, what));
}

void ebb_cudnn_set(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *values)
{
    note_values(graph, name, type, count, values);
    set(graph, of, name, type, count, values);
}

void ebb_cudnn_set_tensor(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                          cudnnBackendAttributeName_t name, int tensor)
{
    if (tensor == 0 || graph->broken != NULL)
        return;
    if (tensor < 0 || tensor >= EBB_CUDNN_TENSORS || graph->tensor[tensor] == NULL) {
        ebb_cudnn_break(graph,
                        ebb_error(EBB_RUNTIME,
                                  "%s: attribute %d names tensor %d (%s), which "
                                  "is not in the graph",
                                  graph->label, (int)name, tensor, ebb_cudnn_role_name(tensor)));
        return;
    }
    ebb_cudnn_note(graph, "  %d = tensor %d\n", (int)name, tensor);
    set(graph, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->tensor[tensor]);
}

void ebb_cudnn_set_descriptor(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                              cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    ebb_cudnn_note(graph, "  %d = detail %d\n", (int)name, graph->details - 1);
    set(graph, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void ebb_cudnn_finalize(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t what, const char *name)
{
    if (graph->broken == NULL)
        ebb_cudnn_break(graph, ebb_cudnn_check(ebb_cudnn.finalize(what), graph->label, name));
}

/* ---- tensors of a graph ---- */

static ebb_status check_tensor(const ebb_cudnn_graph *graph, int number,
                               const ebb_cudnn_tensor *tensor)
{
    if (number <= 0 || number >= EBB_CUDNN_TENSORS || graph->tensor[number] != NULL)
        return ebb_error(EBB_RUNTIME, "%s: tensor %d (%s) is there twice, or there are too many",
                         graph->label, number, ebb_cudnn_role_name(number));
    if (tensor->rank < 1 || tensor->rank > EBB_CUDNN_RANK)
        return ebb_error(EBB_UNSUPPORTED, "%s: tensor %s has %d dims: cuDNN takes 1 to %d",
                         graph->label, ebb_cudnn_role_name(number), tensor->rank, EBB_CUDNN_RANK);
    int64_t last = 0, step = 0;
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] <= 0 || tensor->strides[i] <= 0 ||
            __builtin_mul_overflow(tensor->dims[i], tensor->strides[i], &step) ||
            __builtin_add_overflow(last, step, &last) || last > INT64_MAX / 8)
            return ebb_error(EBB_UNSUPPORTED,
                             "%s: dim %d of tensor %s is %lld with stride %lld: both must be "
                             "positive and the bytes must fit 63 bits",
                             graph->label, i, ebb_cudnn_role_name(number),
                             (long long)tensor->dims[i], (long long)tensor->strides[i]);
    return NULL;
}

static int add_tensor(ebb_cudnn_graph *graph, int number, const ebb_cudnn_tensor *tensor,
                      bool is_virtual, bool by_value)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t uid = number, alignment = by_value ? 4 : 16;
    if (graph == NULL || graph->broken != NULL)
        return 0;
    ebb_cudnn_break(graph, check_tensor(graph, number, tensor));
    if (graph->broken == NULL && !cudnn_type(tensor->dtype, &type))
        ebb_cudnn_break(graph, ebb_error(EBB_UNSUPPORTED, "%s: cuDNN has no dtype for tensor %s",
                                         graph->label, ebb_cudnn_role_name(number)));
    if (graph->broken != NULL)
        return 0;
    cudnnBackendDescriptor_t t = NULL;
    ebb_cudnn_break(graph, ebb_cudnn_check(ebb_cudnn.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &t),
                                           graph->label, "a tensor"));
    graph->tensor[number] = t;
    graph->shape[number] = *tensor;
    ebb_cudnn_note(graph, "tensor %d %s\n", number, ebb_cudnn_role_name(number));
    ebb_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    ebb_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, tensor->rank,
                  tensor->dims);
    ebb_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, tensor->rank,
                  tensor->strides);
    ebb_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    ebb_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (is_virtual)
        ebb_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (by_value)
        ebb_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    ebb_cudnn_finalize(graph, t, ebb_cudnn_role_name(number));
    return graph->broken == NULL ? number : 0;
}

int ebb_cudnn_real(ebb_cudnn_graph *graph, ebb_cudnn_role role, const ebb_cudnn_tensor *tensor)
{
    return add_tensor(graph, (int)role, tensor, false, false);
}

int64_t ebb_cudnn_role_bytes(const ebb_cudnn_graph *graph, ebb_cudnn_role role)
{
    const ebb_cudnn_tensor *t = &graph->shape[role];
    int64_t last = 0; /* check_tensor() saw that this fits */
    if (graph->tensor[role] == NULL)
        return 0;
    for (int i = 0; i < t->rank; i++)
        last += (t->dims[i] - 1) * t->strides[i];
    return t->dtype == EBB_BOOL ? last / 8 + 1
                                : (last + 1) * (int64_t)(ebb_dtype_bits(t->dtype) / 8);
}

int ebb_cudnn_virtual(ebb_cudnn_graph *graph, const ebb_cudnn_tensor *tensor)
{
    return graph == NULL ? 0 : add_tensor(graph, graph->fresh++, tensor, true, false);
}

int ebb_cudnn_number(ebb_cudnn_graph *graph, int rank, float value)
{
    static const int64_t ones[EBB_CUDNN_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    ebb_cudnn_tensor one = ebb_cudnn_rows(EBB_F32, rank, ones);
    if (graph == NULL)
        return 0;
    if (graph->numbers == EBB_CUDNN_NUMBERS) {
        ebb_cudnn_break(graph, ebb_error(EBB_RUNTIME, "%s: more than %d numbers by value",
                                         graph->label, EBB_CUDNN_NUMBERS));
        return 0;
    }
    int number = add_tensor(graph, graph->fresh++, &one, false, true);
    /* The value is not cuDNN's to know, but a plan that is found again must carry the same. */
    ebb_cudnn_note(graph, "  value %a\n", (double)value);
    if (number != 0) {
        graph->number_of[graph->numbers] = number;
        graph->number[graph->numbers++] = value;
    }
    return number;
}

ebb_status ebb_cudnn_graph_end(ebb_cudnn_graph *graph)
{
    if (graph == NULL)
        return ebb_error_memory();
    if (graph->broken != NULL)
        return graph->broken;
    EBB_TRY(ebb_cudnn_check(ebb_cudnn.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph->graph),
                            graph->label, "a graph"));
    set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        graph->operations, graph->operation);
    ebb_cudnn_finalize(graph, graph->graph, "the graph");
    return graph->broken;
}
