/* graph.c: the builder: descriptors, tensors, sticky errors. Operations: ops.c. */
#include "kernels/cuda/library/cudnn/internal.h"

/* ---- tensors ---- */

/* Strides over the axes in the given order, the fastest first. */
static ebb_cudnn_tensor dense(ebb_dtype dtype, int rank, const int64_t *dims, const int *order)
{
    ebb_cudnn_tensor t = {.dtype = dtype, .rank = rank};
    int64_t step = 1;
    for (int n = 0; n < rank; n++) {
        const int i = order[n];
        t.dims[i] = dims[i];
        t.strides[i] = step;
        if (__builtin_mul_overflow(step, dims[i], &step))
            step = 0; /* no stride: refused when the tensor is made */
    }
    return t;
}

ebb_cudnn_tensor ebb_cudnn_rows(ebb_dtype dtype, int rank, const int64_t *dims)
{
    static const int backwards[] = {4, 3, 2, 1, 0};
    return dense(dtype, rank, dims, backwards + EBB_CUDNN_RANK - rank);
}

ebb_cudnn_tensor ebb_cudnn_channels_last(ebb_dtype dtype, int rank, const int64_t *dims)
{
    static const int images[] = {1, 3, 2, 0}, volumes[] = {1, 4, 3, 2, 0};
    return dense(dtype, rank, dims, rank == EBB_CUDNN_RANK ? volumes : images);
}

ebb_cudnn_tensor ebb_cudnn_as(const ebb_cudnn_tensor *tensor, ebb_dtype dtype)
{
    ebb_cudnn_tensor t = *tensor;
    t.dtype = dtype;
    return t;
}

#define NAME(role) #role,
static const char *const role_names[EBB_CUDNN_ROLES] = {"none", EBB_CUDNN_ROLE_LIST(NAME)};

static const char *name_of(int number)
{
    return number > 0 && number < EBB_CUDNN_ROLES ? role_names[number] : "inner";
}

static bool cudnn_type(ebb_dtype dtype, cudnnDataType_t *type)
{
    static const struct {
        ebb_dtype dtype;
        cudnnDataType_t type;
    } types[] = {{EBB_F32, CUDNN_DATA_FLOAT},
                 {EBB_F16, CUDNN_DATA_HALF},
                 {EBB_BF16, CUDNN_DATA_BFLOAT16},
                 {EBB_I32, CUDNN_DATA_INT32},
                 {EBB_BOOL, CUDNN_DATA_BOOLEAN}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == dtype) {
            *type = types[i].type;
            return true;
        }
    return false;
}

/* ---- life ---- */

ebb_status ebb_cudnn_graph_new(ebb_cudnn_graph **graph, const char *label)
{
    *graph = NULL;
    EBB_TRY(ebb_cudnn_open());
    ebb_cudnn_graph *made = ebb_alloc(sizeof *made);
    EBB_GOT(made);
    memset(made, 0, sizeof *made);
    made->fresh = EBB_CUDNN_ROLES;
    made->label = label;
    *graph = made;
    return NULL;
}

void ebb_cudnn_graph_free(ebb_cudnn_graph *graph)
{
    if (graph == NULL)
        return;
    while (graph->count > 0)
        (void)ebb_cudnn.drop(graph->made[--graph->count]);
    ebb_free(graph);
}

static void take(ebb_cudnn_graph *graph, ebb_status status) /* the first error stays */
{
    if (graph->broken == NULL)
        graph->broken = status;
}

/* ---- descriptors ---- */

cudnnBackendDescriptor_t ebb_cudnn_make(ebb_cudnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (graph->broken == NULL && graph->count == EBB_CUDNN_MADE)
        take(graph, ebb_error(EBB_UNSUPPORTED, "%s: the graph is too large", graph->label));
    if (graph->broken == NULL)
        take(graph, ebb_cudnn_check(ebb_cudnn.make(type, &made), graph->label, "a descriptor"));
    if (graph->broken == NULL)
        graph->made[graph->count++] = made;
    return graph->broken == NULL ? made : NULL;
}

cudnnBackendDescriptor_t ebb_cudnn_operation(ebb_cudnn_graph *graph,
                                             cudnnBackendDescriptorType_t type)
{
    if (graph->broken == NULL && graph->operations == EBB_CUDNN_OPERATIONS)
        take(graph, ebb_error(EBB_UNSUPPORTED, "%s: more than %d operations in a graph",
                              graph->label, EBB_CUDNN_OPERATIONS));
    cudnnBackendDescriptor_t made = ebb_cudnn_make(graph, type);
    if (made != NULL)
        graph->operation[graph->operations++] = made;
    return made;
}

void ebb_cudnn_set(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *values)
{
    if (graph->broken != NULL)
        return;
    ebb_status status =
        ebb_cudnn_check(ebb_cudnn.set(of, name, type, count, values), graph->label, "an attribute");
    take(graph, status != NULL ? ebb_while(status, "setting attribute %d", (int)name) : NULL);
}

void ebb_cudnn_set_tensor(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t of,
                          cudnnBackendAttributeName_t name, int tensor)
{
    if (tensor == 0 || graph->broken != NULL)
        return;
    if (graph->tensor[tensor] == NULL)
        take(graph, ebb_error(EBB_RUNTIME,
                              "%s: attribute %d names tensor %d (%s), which is not in the graph",
                              graph->label, (int)name, tensor, name_of(tensor)));
    ebb_cudnn_set(graph, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->tensor[tensor]);
}

void ebb_cudnn_finalize(ebb_cudnn_graph *graph, cudnnBackendDescriptor_t what, const char *name)
{
    if (graph->broken == NULL)
        take(graph, ebb_cudnn_check(ebb_cudnn.finalize(what), graph->label, name));
}

/* ---- tensors of a graph ---- */

static ebb_status check_tensor(const ebb_cudnn_graph *graph, int number,
                               const ebb_cudnn_tensor *tensor)
{
    int64_t last = 0, step = 0;
    if (number >= EBB_CUDNN_TENSORS || graph->tensor[number] != NULL)
        return ebb_error(EBB_RUNTIME, "%s: tensor %d (%s) is there twice, or there are too many",
                         graph->label, number, name_of(number));
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] <= 0 || tensor->strides[i] <= 0 ||
            __builtin_mul_overflow(tensor->dims[i], tensor->strides[i], &step) ||
            __builtin_add_overflow(last, step, &last) || last > INT64_MAX / 8)
            return ebb_error(EBB_UNSUPPORTED,
                             "%s: dim %d of tensor %s is %lld with stride %lld: both must be "
                             "positive and the bytes must fit 63 bits",
                             graph->label, i, name_of(number), (long long)tensor->dims[i],
                             (long long)tensor->strides[i]);
    return NULL;
}

static int add_tensor(ebb_cudnn_graph *graph, int number, const ebb_cudnn_tensor *tensor,
                      bool is_virtual, bool by_value)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t uid = number, alignment = by_value ? 4 : 16;
    if (graph->broken != NULL)
        return 0;
    take(graph, check_tensor(graph, number, tensor));
    if (!cudnn_type(tensor->dtype, &type))
        take(graph, ebb_error(EBB_UNSUPPORTED, "%s: cuDNN has no dtype for tensor %s", graph->label,
                              name_of(number)));
    cudnnBackendDescriptor_t t = ebb_cudnn_make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (t == NULL)
        return 0;
    graph->tensor[number] = t;
    graph->shape[number] = *tensor;
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
    ebb_cudnn_finalize(graph, t, name_of(number));
    return graph->broken == NULL ? number : 0;
}

int ebb_cudnn_real(ebb_cudnn_graph *graph, ebb_cudnn_role role, const ebb_cudnn_tensor *tensor)
{
    return add_tensor(graph, (int)role, tensor, false, false);
}

int ebb_cudnn_virtual(ebb_cudnn_graph *graph, const ebb_cudnn_tensor *tensor)
{
    return add_tensor(graph, graph->fresh++, tensor, true, false);
}

int ebb_cudnn_number(ebb_cudnn_graph *graph, int rank, float value)
{
    static const int64_t ones[EBB_CUDNN_RANK] = {1, 1, 1, 1, 1};
    const ebb_cudnn_tensor one = ebb_cudnn_rows(EBB_F32, rank, ones);
    if (graph->numbers == EBB_CUDNN_NUMBERS)
        take(graph, ebb_error(EBB_RUNTIME, "%s: more than %d numbers by value", graph->label,
                              EBB_CUDNN_NUMBERS));
    const int number = add_tensor(graph, graph->fresh++, &one, false, true);
    if (number != 0) {
        graph->number_of[graph->numbers] = number;
        graph->number[graph->numbers++] = value;
    }
    return number;
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

ebb_status ebb_cudnn_graph_end(ebb_cudnn_graph **out, ebb_cudnn_graph *graph)
{
    graph->graph = ebb_cudnn_make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    ebb_cudnn_set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  graph->operations, graph->operation);
    ebb_cudnn_finalize(graph, graph->graph, "the graph");
    ebb_status status = graph->broken;
    *out = status == NULL ? graph : NULL;
    if (status != NULL)
        ebb_cudnn_graph_free(graph);
    return status;
}
