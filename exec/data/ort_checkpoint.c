/* ort_checkpoint.c: reading. A FlatBuffer: tables that name their fields by place, found by
 * offsets.
 *
 *     root ──> Checkpoint { version, module_state, optimizer_groups, property_bag }
 *                 ModuleState { requires_grad_params, frozen_params, is_nominal_state,
 *                               has_external_data }
 *                    Tensor { name, doc_string, dims, data_type, raw_data, string_data,
 *                             external_data_offset }
 *                 OptimizerGroup { group_name, step, initial_learning_rate, optimizer_states }
 *                    ParameterOptimizerState { param_name, momentums }
 *
 * An adapter (.onnx_adapter, ONNX Runtime 1.20 on) is the same kind of file:
 *
 *     root ──> Adapter { format_version, adapter_version, model_version, parameters }
 *                 Parameter { name, dims, data_type, raw_data }
 *
 *     table       [to vtable: int32] fields ...
 *     vtable      [its bytes: u16] [table's bytes: u16] [field k at: u16] ...
 *     vector      [count: u32] elements ...
 *     reference   [forward to it: u32]
 *
 * Every step is checked against the file's size before a byte is read, nothing recurses, and no
 * byte serves two arrays: many small references to one large block would else cost many times the
 * file.
 */
#include "exec/data/ort_checkpoint.h"

#include <limits.h>

enum {
    ROOT_MODULE = 1, // fields by number
    ROOT_GROUPS = 2,
    MODULE_TRAINED = 0,
    MODULE_FROZEN = 1,
    MODULE_NOMINAL = 2,
    TENSOR_NAME = 0,
    TENSOR_DIMS = 2, // of an adapter's parameter, this and the next two are one less
    TENSOR_TYPE = 3,
    TENSOR_RAW = 4,
    TENSOR_OUTLYING = 6,
    ADAPTER_VERSION = 0,
    ADAPTER_PARAMETERS = 3,
    GROUP_STEP = 1,
    GROUP_RATE = 2,
    GROUP_STATES = 3,
    STATE_NAME = 0,
    STATE_MOMENTUMS = 1,
    MOMENTUMS_MOST = 2,
};

typedef struct reader {
    ebb_data *data;
    const unsigned char *bytes;
    uint64_t size;
    uint64_t given; // bytes handed out so far
    const char *folder, *name;
    const char *outside; // the file of outlying bytes, once it was asked for
    unsigned less;       // what fields of a tensor are less by: 1 in an adapter
} reader;

typedef struct table {
    uint64_t at, bytes, vtable, vtable_bytes;
} table;

typedef struct vector {
    uint64_t at, count; // at 0: absent
} vector;

static ebb_status wrong(const char *what, uint64_t at)
{
    return ebb_error(EBB_REJECTED, "byte %llu: %s", (unsigned long long)at, what);
}

/* ---- numbers ---- */

static bool holds(const reader *r, uint64_t at, uint64_t bytes)
{
    return at <= r->size && bytes <= r->size - at;
}

/* The caller has asked `holds`. */
static uint64_t number(const reader *r, uint64_t at, unsigned bytes)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < bytes; i++)
        x |= (uint64_t)r->bytes[at + i] << (8 * i);
    return x;
}

static int64_t signed_number(uint64_t bits)
{
    return bits <= INT64_MAX ? (int64_t)bits : -(int64_t)(UINT64_MAX - bits) - 1;
}

/* ---- tables, vectors ---- */

static ebb_status open_table(const reader *r, uint64_t at, table *t)
{
    if (!holds(r, at, 4))
        return wrong("a table lies outside of the file", at);
    uint32_t back = (uint32_t)number(r, at, 4);
    uint64_t vtable = (back & 0x80000000u) != 0 ? at + ((uint64_t)~back + 1) : at - back;
    if ((back & 0x80000000u) == 0 && back > at)
        return wrong("a table of fields lies before the file", at);
    if (!holds(r, vtable, 4))
        return wrong("a table of fields lies outside of the file", at);
    *t = (table){at, number(r, vtable + 2, 2), vtable, number(r, vtable, 2)};
    if (t->vtable_bytes < 4 || t->vtable_bytes % 2 != 0 || !holds(r, vtable, t->vtable_bytes))
        return wrong("a table of fields has an impossible size", vtable);
    if (t->bytes < 4 || !holds(r, at, t->bytes))
        return wrong("a table has an impossible size", at);
    return NULL;
}

/* Where field `number` with so many bytes is; *at 0: the table has none. */
static ebb_status field(const reader *r, const table *t, unsigned which, unsigned bytes,
                        uint64_t *at)
{
    uint64_t entry = 4 + 2 * (uint64_t)which;
    *at = 0;
    if (entry + 2 > t->vtable_bytes)
        return NULL;
    uint64_t offset = number(r, t->vtable + entry, 2);
    if (offset == 0)
        return NULL;
    if (offset + bytes > t->bytes)
        return wrong("a field lies outside of its table", t->at);
    *at = t->at + offset;
    return NULL;
}

/* What the reference at `at` points to. */
static ebb_status follow(const reader *r, uint64_t at, uint64_t *to)
{
    if (!holds(r, at, 4))
        return wrong("a reference lies outside of the file", at);
    uint64_t offset = number(r, at, 4);
    if (offset == 0 || !holds(r, at + offset, 4))
        return wrong("a reference leads out of the file", at);
    *to = at + offset;
    return NULL;
}

static ebb_status open_vector(const reader *r, const table *t, unsigned which, unsigned unit,
                              vector *v)
{
    uint64_t at, to;
    *v = (vector){0};
    EBB_TRY(field(r, t, which, 4, &at));
    if (at == 0)
        return NULL;
    EBB_TRY(follow(r, at, &to));
    uint64_t count = number(r, to, 4);
    if (!holds(r, to + 4, count * unit))
        return wrong("a list is longer than the file", to);
    *v = (vector){to + 4, count};
    return NULL;
}

static ebb_status open_child(const reader *r, const vector *v, uint64_t i, table *t)
{
    uint64_t to;
    EBB_TRY(follow(r, v->at + 4 * i, &to));
    return open_table(r, to, t);
}

/* ---- tensors ---- */

/* Bytes of a file beside this one, from where the tensor says on. */
static ebb_status outlying(reader *r, const table *t, const ebb_type *type, const void **bytes)
{
    const ebb_mapping *mapping;
    uint64_t at;
    size_t need;
    EBB_TRY(field(r, t, TENSOR_OUTLYING, 8, &at));
    if (at == 0 || r->folder == NULL)
        return wrong("a tensor has no bytes", t->at);
    int64_t offset = signed_number(number(r, at, 8));
    if (r->outside == NULL) // the mapping keeps its name
        r->outside = ebb_arena_printf(&r->data->arena, "%s.data", r->name);
    EBB_GOT(r->outside);
    EBB_TRY(ebb_external_open(&r->data->mappings, &mapping, r->folder, r->outside));
    if (mapping->absent)
        return ebb_error(EBB_IO, "its bytes are in %s, which is not there", r->outside);
    if (!ebb_type_bytes(type, &need) || offset < 0 || (uint64_t)offset > mapping->bytes ||
        need > mapping->bytes - (uint64_t)offset)
        return wrong("a tensor's bytes lie outside of the file beside it", at);
    *bytes = mapping->data + offset;
    return NULL;
}

static ebb_status tensor_type(const reader *r, const table *t, ebb_type *type)
{
    vector dims;
    uint64_t at;
    int64_t shape[EBB_MAX_RANK];
    EBB_TRY(open_vector(r, t, TENSOR_DIMS - r->less, 8, &dims));
    EBB_TRY(field(r, t, TENSOR_TYPE - r->less, 4, &at));
    if (dims.count > EBB_MAX_RANK)
        return wrong("a tensor has too many dims", t->at);
    for (uint64_t i = 0; i < dims.count; i++)
        if ((shape[i] = signed_number(number(r, dims.at + 8 * i, 8))) < 0)
            return wrong("a tensor has a negative dim", t->at);
    uint64_t dtype = at != 0 ? number(r, at, 4) : 0;
    if (dtype == 0 || dtype > 0xFF || ebb_dtype_bits((ebb_dtype)dtype) < 8)
        return wrong("a tensor is of a data type that is not read here", t->at);
    *type = ebb_type_tensor((ebb_dtype)dtype, (int)dims.count, shape);
    return NULL;
}

static ebb_status add_tensor(reader *r, const table *t, const char *name, size_t length)
{
    ebb_type type;
    vector raw;
    size_t need = 0;
    EBB_TRY(tensor_type(r, t, &type));
    EBB_TRY(open_vector(r, t, TENSOR_RAW - r->less, 1, &raw));
    if (!ebb_type_bytes(&type, &need))
        return wrong("a tensor has an impossible size", t->at);
    const void *bytes = r->bytes + raw.at;
    size_t size = (size_t)raw.count;
    if (raw.at == 0 && need > 0) {
        EBB_TRY(outlying(r, t, &type, &bytes));
        size = need;
    } else if ((r->given += raw.count) > r->size) {
        return wrong("its tensors have more bytes than the file", t->at);
    }
    return ebb_data_add(r->data, name, length, (ebb_dtype)type.dtype, type.rank, type.dims, bytes,
                        size);
}

static ebb_status add_parameters(reader *r, const table *module, unsigned which)
{
    vector list, name;
    EBB_TRY(open_vector(r, module, which, 4, &list));
    for (uint64_t i = 0; i < list.count; i++) {
        table t;
        EBB_TRY(open_child(r, &list, i, &t));
        EBB_TRY(open_vector(r, &t, TENSOR_NAME, 1, &name));
        if (name.count == 0)
            return wrong("a parameter has no name", t.at);
        EBB_TRY(add_tensor(r, &t, (const char *)r->bytes + name.at, (size_t)name.count));
    }
    return NULL;
}

/* ---- the optimizer ---- */

/* The first and second moments of one parameter. */
static ebb_status add_state(reader *r, const table *state)
{
    static const char *const suffix[MOMENTUMS_MOST] = {".exp_avg", ".exp_avg_sq"};
    vector name, list;
    EBB_TRY(open_vector(r, state, STATE_NAME, 1, &name));
    EBB_TRY(open_vector(r, state, STATE_MOMENTUMS, 4, &list));
    if (list.count > MOMENTUMS_MOST || name.count > INT_MAX)
        return wrong("an optimizer keeps more for a parameter than two moments", state->at);
    for (uint64_t i = 0; i < list.count; i++) {
        table t;
        EBB_TRY(open_child(r, &list, i, &t));
        char *full = ebb_arena_printf(&r->data->arena, "%.*s%s", (int)name.count,
                                      (const char *)r->bytes + name.at, suffix[i]);
        EBB_GOT(full);
        EBB_TRY(add_tensor(r, &t, full, strlen(full)));
    }
    return NULL;
}

/* A number of the group as an array without dims. */
static ebb_status add_scalar(reader *r, const table *group, unsigned which, const char *name,
                             ebb_dtype dtype)
{
    uint64_t at;
    unsigned bytes = (unsigned)ebb_dtype_bits(dtype) / 8;
    EBB_TRY(field(r, group, which, bytes, &at));
    const void *value = at != 0 ? r->bytes + at : ebb_arena_zeroed(&r->data->arena, bytes, 1);
    EBB_GOT(value);
    return ebb_data_add(r->data, name, strlen(name), dtype, 0, NULL, value, bytes);
}

static ebb_status add_groups(reader *r, const table *root)
{
    vector groups, states;
    table group, state;
    EBB_TRY(open_vector(r, root, ROOT_GROUPS, 4, &groups));
    if (groups.count > 1)
        return wrong("the optimizer has several groups of parameters", groups.at);
    if (groups.count == 0)
        return NULL;
    EBB_TRY(open_child(r, &groups, 0, &group));
    EBB_TRY(add_scalar(r, &group, GROUP_STEP, "ebb.step", EBB_I64));
    EBB_TRY(add_scalar(r, &group, GROUP_RATE, "ebb.lr", EBB_F32));
    EBB_TRY(open_vector(r, &group, GROUP_STATES, 4, &states));
    for (uint64_t i = 0; i < states.count; i++) {
        EBB_TRY(open_child(r, &states, i, &state));
        EBB_TRY(add_state(r, &state));
    }
    return NULL;
}

/* ---- the file ---- */

bool ebb_ort_checkpoint_is(const unsigned char *bytes, size_t size)
{
    return size >= 8 && memcmp(bytes + 4, "ODTC", 4) == 0;
}

ebb_status ebb_ort_checkpoint_parse(ebb_data *data, const unsigned char *bytes, size_t size,
                                    const char *folder, const char *name, size_t *trained)
{
    reader r = {.data = data, .bytes = bytes, .size = size, .folder = folder, .name = name};
    table root, module;
    uint64_t at, to;
    if (!ebb_ort_checkpoint_is(bytes, size))
        return ebb_error(EBB_REJECTED, "it is no checkpoint of ONNX Runtime");
    EBB_TRY(follow(&r, 0, &to));
    EBB_TRY(open_table(&r, to, &root));
    EBB_TRY(field(&r, &root, ROOT_MODULE, 4, &at));
    if (at == 0)
        return ebb_error(EBB_REJECTED, "the checkpoint holds no parameters");
    EBB_TRY(follow(&r, at, &to));
    EBB_TRY(open_table(&r, to, &module));
    EBB_TRY(field(&r, &module, MODULE_NOMINAL, 1, &at));
    if (at != 0 && r.bytes[at] != 0)
        return ebb_hint(ebb_error(EBB_REJECTED, "the checkpoint is nominal: it names parameters "
                                                "and has no values for them"),
                        "give the full one, `checkpoint`");
    EBB_TRY(add_parameters(&r, &module, MODULE_TRAINED));
    if (trained != NULL)
        *trained = data->count;
    EBB_TRY(add_parameters(&r, &module, MODULE_FROZEN));
    return add_groups(&r, &root);
}

ebb_status ebb_ort_checkpoint_read(ebb_data *data, const char *path, size_t *trained)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? ebb_arena_printf(&data->arena, ".")
                   : slash == path
                       ? ebb_arena_printf(&data->arena, "/")
                       : ebb_arena_printf(&data->arena, "%.*s", (int)(slash - path), path);
    EBB_GOT(folder);
    EBB_TRY(ebb_mapping_open(&data->mappings, path));
    const ebb_mapping *file = data->mappings;
    ebb_status status = ebb_ort_checkpoint_parse(data, file->data, file->bytes, folder,
                                                 slash != NULL ? slash + 1 : path, trained);
    return ebb_at(status, path);
}

/* ---- adapters ---- */

ebb_status ebb_ort_adapter_parse(ebb_data *data, const unsigned char *bytes, size_t size)
{
    reader r = {.data = data, .bytes = bytes, .size = size, .less = 1};
    table root;
    uint64_t at, to;
    if (size < 8 || memcmp(bytes + 4, EBB_ORT_ADAPTER_MARK, 4) != 0)
        return ebb_error(EBB_REJECTED, "it is no adapter of ONNX Runtime");
    EBB_TRY(follow(&r, 0, &to));
    EBB_TRY(open_table(&r, to, &root));
    EBB_TRY(field(&r, &root, ADAPTER_VERSION, 4, &at));
    if (at == 0 || number(&r, at, 4) != EBB_ORT_ADAPTER_VERSION)
        return ebb_error(EBB_UNSUPPORTED, "it is an adapter of another version than 1");
    return add_parameters(&r, &root, ADAPTER_PARAMETERS);
}

ebb_status ebb_ort_adapter_read(ebb_data *data, const char *path)
{
    EBB_TRY(ebb_mapping_open(&data->mappings, path));
    return ebb_at(ebb_ort_adapter_parse(data, data->mappings->data, data->mappings->bytes), path);
}
