/* proto.c: types and tensors from messages. */
#include "onnx/file/proto.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "onnx/file/file.h"

const char *const ebb_phase_spelling[EBB_PHASE_COUNT] = {
    [EBB_PHASE_NONE] = "",       [EBB_FORWARD] = "forward", [EBB_LOSS] = "loss",
    [EBB_BACKWARD] = "backward", [EBB_UPDATE] = "update",
};

const char *const ebb_role_spelling[EBB_ROLE_COUNT] = {
    [EBB_ROLE_NONE] = "",
    [EBB_ROLE_PARAMETER] = "parameter",
    [EBB_ROLE_FROZEN] = "frozen",
    [EBB_ROLE_STATISTIC] = "statistic",
    [EBB_ROLE_OPTIMIZER] = "optimizer",
    [EBB_ROLE_RANDOM] = "random",
    [EBB_ROLE_CONSTANT] = "constant",
};

/* ---- types ---- */

static ebb_status read_shape(ebb_type *type, ebb_names *names, const Onnx__TensorShapeProto *shape)
{
    if (shape == NULL)
        return NULL;
    if (shape->n_dim > EBB_MAX_RANK)
        return ebb_error(EBB_REJECTED, "rank %zu is above the %d that are supported", shape->n_dim,
                         EBB_MAX_RANK);
    type->rank = (int8_t)shape->n_dim;
    for (size_t i = 0; i < shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        type->dims[i] = -1;
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
            if (dim->dim_value < -1)
                return ebb_error(EBB_REJECTED, "dim %zu is %" PRId64, i, dim->dim_value);
            type->dims[i] = dim->dim_value;
        } else if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
                   dim->dim_param[0] != '\0') {
            type->symbols[i] = ebb_names_intern(names, dim->dim_param, strlen(dim->dim_param));
            EBB_GOT(type->symbols[i].i != 0);
        }
    }
    return NULL;
}

static ebb_dtype known_dtype(int32_t number)
{
    return number > EBB_NONE && number < EBB_DTYPE_COUNT ? (ebb_dtype)number : EBB_NONE;
}

/* A sequence or an optional has the dtype and the dims of its elements, where those are tensors. */
static ebb_status read_element(ebb_type *type, ebb_names *names, const Onnx__TypeProto *element,
                               ebb_kind kind)
{
    EBB_TRY(ebb_proto_type(type, names, element));
    if (type->kind != EBB_KIND_TENSOR)
        *type = ebb_type_none();
    type->kind = (uint8_t)kind;
    return NULL;
}

ebb_status ebb_proto_type(ebb_type *type, ebb_names *names, const Onnx__TypeProto *proto)
{
    *type = ebb_type_none();
    if (proto == NULL)
        return NULL;
    switch (proto->value_case) {
    case ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE:
        type->kind = EBB_KIND_TENSOR;
        type->dtype = (uint8_t)known_dtype(proto->tensor_type->elem_type);
        return read_shape(type, names, proto->tensor_type->shape);
    case ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE:
        return read_element(type, names, proto->sequence_type->elem_type, EBB_KIND_SEQUENCE);
    case ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE:
        return read_element(type, names, proto->optional_type->elem_type, EBB_KIND_OPTIONAL);
    case ONNX__TYPE_PROTO__VALUE__NOT_SET:
        return NULL;
    default:
        type->kind = EBB_KIND_OTHER;
        return NULL;
    }
}

/* ---- tensors: what a typed list holds ---- */

/* In which list a dtype's elements stand when they are not raw, and how many bytes of the tensor
 * one entry of it makes. */
typedef struct typed_list {
    const void *data;
    size_t count, entry_bytes;
    size_t made_bytes;
} typed_list;

static typed_list list_of(const Onnx__TensorProto *t, ebb_dtype dtype)
{
    switch (dtype) {
    case EBB_F32:
    case EBB_C64:
        return (typed_list){t->float_data, t->n_float_data, 4, 4};
    case EBB_F64:
    case EBB_C128:
        return (typed_list){t->double_data, t->n_double_data, 8, 8};
    case EBB_I64:
        return (typed_list){t->int64_data, t->n_int64_data, 8, 8};
    case EBB_U64:
        return (typed_list){t->uint64_data, t->n_uint64_data, 8, 8};
    case EBB_U32:
        return (typed_list){t->uint64_data, t->n_uint64_data, 8, 4};
    case EBB_I32:
        return (typed_list){t->int32_data, t->n_int32_data, 4, 4};
    case EBB_I16:
    case EBB_U16:
    case EBB_F16:
    case EBB_BF16:
        return (typed_list){t->int32_data, t->n_int32_data, 4, 2};
    default: // a byte each: 8 bits, bool, or two or four of the narrower ones
        return (typed_list){t->int32_data, t->n_int32_data, 4, 1};
    }
}

static ebb_status read_typed(ebb_tensor *tensor, ebb_arena *arena, const Onnx__TensorProto *proto)
{
    typed_list list = list_of(proto, (ebb_dtype)tensor->type.dtype);
    size_t wanted = tensor->bytes / list.made_bytes;
    if (list.count != wanted)
        return ebb_error(EBB_REJECTED, "has %zu numbers where its shape wants %zu", list.count,
                         wanted);
    unsigned char *made = ebb_arena_alloc(arena, tensor->bytes);
    EBB_GOT(made);
    const unsigned char *from = list.data;
    for (size_t i = 0; i < list.count; i++) // little-endian hosts alone: tensor.h reads so, too
        memcpy(made + i * list.made_bytes, from + i * list.entry_bytes, list.made_bytes);
    tensor->data = made;
    return NULL;
}

/* ---- tensors: external data ---- */

static const char *entry_of(const Onnx__TensorProto *t, const char *key)
{
    for (size_t i = 0; i < t->n_external_data; i++) {
        const Onnx__StringStringEntryProto *e = t->external_data[i];
        if (e->key != NULL && e->value != NULL && strcmp(e->key, key) == 0)
            return e->value;
    }
    return NULL;
}

static ebb_status read_number(uint64_t *number, const char *text, const char *key)
{
    *number = 0;
    if (text == NULL)
        return NULL;
    size_t digits = strspn(text, "0123456789");
    errno = 0;
    unsigned long long x = strtoull(text, NULL, 10);
    if (digits == 0 || text[digits] != '\0' || errno != 0)
        return ebb_error(EBB_REJECTED, "external data %s '%.40s' is not a number", key, text);
    *number = x;
    return NULL;
}

/* The same text, which stays: one for each file. */
static const char *kept_name(ebb_arena *arena, const ebb_proto_files *files, const char *name)
{
    for (const ebb_mapping *m = *files->mappings; m != NULL; m = m->older)
        if (m->name != NULL && strcmp(m->name, name) == 0)
            return m->name;
    return ebb_arena_strdup(arena, name);
}

static ebb_status read_external(ebb_tensor *tensor, ebb_arena *arena, const ebb_proto_files *files,
                                const Onnx__TensorProto *proto)
{
    const char *location = entry_of(proto, "location");
    tensor->external = true;
    if (location == NULL)
        return ebb_error(EBB_REJECTED, "is external but names no file");
    tensor->location = kept_name(arena, files, location);
    EBB_GOT(tensor->location);
    EBB_TRY(read_number(&tensor->offset, entry_of(proto, "offset"), "offset"));
    EBB_TRY(read_number(&tensor->length, entry_of(proto, "length"), "length"));
    if (entry_of(proto, "length") != NULL && tensor->length != tensor->bytes)
        return ebb_error(EBB_REJECTED,
                         "external data has %" PRIu64 " bytes where its shape wants %zu",
                         tensor->length, tensor->bytes);
    const ebb_mapping *m;
    EBB_TRY(ebb_external_open(files->mappings, &m, files->folder, tensor->location));
    if (m->absent)
        return NULL;
    if (tensor->offset > m->bytes || tensor->bytes > m->bytes - tensor->offset)
        return ebb_error(EBB_REJECTED,
                         "external data at %" PRIu64
                         " with %zu bytes runs past the end of '%.100s' "
                         "(%zu bytes)",
                         tensor->offset, tensor->bytes, tensor->location, m->bytes);
    tensor->data = m->data != NULL ? m->data + tensor->offset : (const void *)"";
    return NULL;
}

static uint32_t mixed(uint32_t sum, const void *bytes, size_t count)
{
    for (const unsigned char *b = bytes; count > 0; count--)
        sum = (sum ^ *b++) * 16777619u; // FNV-1a
    return sum;
}

/* Of the first, the middle and the last bytes: training changes all, and so does another order. */
uint64_t ebb_proto_external_sum(const ebb_tensor *t)
{
    enum { SAMPLE = 64 };
    const uint32_t start = 2166136261u;
    const size_t some = t->bytes < SAMPLE ? t->bytes : SAMPLE, rest = t->bytes - some;
    const unsigned char *bytes = t->data;
    uint32_t place = mixed(start, t->location, strlen(t->location)), sum = start;
    place = mixed(place, &t->offset, sizeof t->offset);
    for (size_t k = 0; k < 3; k++)
        sum = mixed(sum, bytes + rest / 2 * k, some);
    return (uint64_t)place << 32 | sum;
}

/* ---- tensors ---- */

static ebb_status read_dims(ebb_type *type, const Onnx__TensorProto *proto, int64_t *count)
{
    if (proto->n_dims > EBB_MAX_RANK)
        return ebb_error(EBB_REJECTED, "rank %zu is above the %d that are supported", proto->n_dims,
                         EBB_MAX_RANK);
    for (size_t i = 0; i < proto->n_dims; i++)
        if (proto->dims[i] < 0)
            return ebb_error(EBB_REJECTED, "dim %zu is negative (%" PRId64 ")", i, proto->dims[i]);
    *type = ebb_type_tensor(known_dtype(proto->data_type), (int)proto->n_dims, proto->dims);
    if (!ebb_type_elements(type, count))
        return ebb_error(EBB_REJECTED, "the product of its dims is too large");
    return NULL;
}

ebb_status ebb_proto_tensor(ebb_tensor *tensor, ebb_arena *arena, const ebb_proto_files *files,
                            const Onnx__TensorProto *proto, const void *origin)
{
    int64_t count;
    *tensor = (ebb_tensor){.origin = origin};
    EBB_TRY(read_dims(&tensor->type, proto, &count));
    if (proto->segment != NULL)
        return ebb_error(EBB_REJECTED, "comes in segments, which are not supported");
    if (tensor->type.dtype == EBB_NONE)
        return NULL; // a dtype that is newer than we are: kept, without bytes
    if (tensor->type.dtype == EBB_STRING) {
        if (proto->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL &&
            proto->n_string_data != (uint64_t)count)
            return ebb_error(EBB_REJECTED, "has %zu strings where its shape wants %" PRId64,
                             proto->n_string_data, count);
        return NULL;
    }
    if (!ebb_type_bytes(&tensor->type, &tensor->bytes))
        return ebb_error(EBB_REJECTED, "the product of its dims is too large");
    if (proto->has_data_location &&
        proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return read_external(tensor, arena, files, proto);
    if (!proto->has_raw_data || (proto->raw_data.len == 0 && tensor->bytes > 0))
        return read_typed(tensor, arena, proto);
    if (proto->raw_data.len != tensor->bytes)
        return ebb_error(EBB_REJECTED, "has %zu bytes where its shape wants %zu",
                         proto->raw_data.len, tensor->bytes);
    tensor->data = proto->raw_data.data;
    return NULL;
}

/* ---- a tensor in a file of its own ---- */

static ebb_status read_tensor(ebb_tensor *tensor, const char **name, ebb_arena *arena,
                              const ebb_mapping *file)
{
    ebb_mapping *none = NULL;
    const ebb_proto_files nowhere = {&none, NULL};
    ProtobufCMessage *message;
    EBB_TRY(
        ebb_wire_parse(&message, arena, &onnx__tensor_proto__descriptor, file->data, file->bytes));
    const Onnx__TensorProto *proto = (const Onnx__TensorProto *)(const void *)message;
    ebb_status status = ebb_proto_tensor(tensor, arena, &nowhere, proto, NULL);
    ebb_mappings_free(none);
    EBB_TRY(status);
    *name = proto->name != NULL ? proto->name : "";
    if (tensor->data == NULL)
        return NULL;
    void *copy = ebb_arena_alloc(arena, tensor->bytes); // the mapping goes, the bytes stay
    EBB_GOT(copy);
    tensor->data = memcpy(copy, tensor->data, tensor->bytes);
    return NULL;
}

ebb_status ebb_tensor_read_pb(ebb_tensor *tensor, const char **name, ebb_arena *arena,
                              const char *path)
{
    ebb_mapping *file = NULL;
    EBB_TRY(ebb_mapping_open(&file, path));
    ebb_status status = read_tensor(tensor, name, arena, file);
    ebb_mappings_free(file);
    return ebb_at(status, path);
}
