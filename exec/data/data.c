/* data.c: named arrays, rows of them, and the order in which an epoch reads them. */
#include "exec/data/data.h"

#include "kernels/math/philox.h"
#include "onnx/file/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- the set ---- */

ebb_status ebb_data_add(ebb_data *data, const char *name, size_t name_length, ebb_dtype dtype,
                        int rank, const int64_t *dims, const void *bytes, size_t size)
{
    size_t need = 0;
    ebb_type type = ebb_type_tensor(dtype, rank, dims);
    int shown = name_length < 200 ? (int)name_length : 200;
    if (memchr(name, '\0', name_length) != NULL)
        return ebb_error(EBB_REJECTED, "an array's name holds a zero byte");
    if (!ebb_type_bytes(&type, &need) || need != size) {
        char text[256];
        return ebb_error(EBB_REJECTED, "array '%.*s' of type %s does not fit its %zu bytes", shown,
                         name, ebb_type_print(text, sizeof text, &type, NULL), size);
    }
    size_t known = data->names.count;
    ebb_str id = ebb_names_intern(&data->names, name, name_length);
    if (id.i != 0 && id.i < known)
        return ebb_error(EBB_REJECTED, "array '%.*s' is there twice", shown, name);
    int64_t *shape = EBB_NEW(&data->arena, int64_t, (size_t)rank + 1);
    if (id.i == 0 || shape == NULL ||
        !ebb_arena_grow(&data->arena, &data->list, data->count, &data->capacity,
                        sizeof *data->list))
        return ebb_error_memory();
    if (rank > 0)
        memcpy(shape, dims, (size_t)rank * sizeof *dims);
    size_t unit = ebb_dtype_bits(dtype) / 8;
    if (unit > 1 && (uintptr_t)bytes % (unit > 8 ? 8 : unit) != 0) {
        void *aligned = ebb_arena_alloc(&data->arena, size + 1);
        if (aligned == NULL)
            return ebb_error_memory();
        memcpy(aligned, bytes, size);
        bytes = aligned;
    }
    data->list[data->count++] =
        (ebb_named){ebb_names_text(&data->names, id), (int)dtype, rank, shape, bytes};
    return NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* input_0.pb, input_1.pb ... of a test_data_set folder. A tensor without a name, and every tensor
 * whose name the model does not know, gets that of the model's input at its place. */
static ebb_status read_folder(ebb_data *data, const char *path, const ebb_model *model)
{
    const ebb_graph *g = model != NULL ? model->graph : NULL;
    size_t place = 0;
    for (int k = 0;; k++) {
        const char *file = ebb_arena_printf(&data->arena, "%s/input_%d.pb", path, k);
        struct stat facts;
        if (file == NULL)
            return ebb_error_memory();
        if (stat(file, &facts) != 0) {
            if (k == 0)
                return ebb_error_io(path, "no input_0.pb in the folder");
            return NULL;
        }
        ebb_tensor tensor = {0};
        const char *name = NULL;
        EBB_TRY(ebb_tensor_read_pb(&tensor, &name, &data->arena, file));
        while (g != NULL && place < g->input_count &&
               (ebb_value_of(g, g->inputs[place])->flags & EBB_IS_INITIALIZER))
            place++;
        bool known = name != NULL && name[0] != '\0' && (g == NULL || ebb_value_find(g, name).i);
        if (!known) {
            if (g == NULL || place >= g->input_count)
                return ebb_error(EBB_REJECTED, "%s: the model has no input number %d", file, k);
            name = ebb_value_name(g, g->inputs[place]);
        }
        place++;
        if (tensor.data == NULL && tensor.bytes != 0)
            return ebb_error(EBB_REJECTED, "%s: the tensor has no bytes", file);
        EBB_TRY(ebb_data_add(data, name, strlen(name), (ebb_dtype)tensor.type.dtype,
                             tensor.type.rank, tensor.type.dims, tensor.data, tensor.bytes));
    }
}

static ebb_status read_any(ebb_data *data, const char *path, const ebb_model *model)
{
    struct stat facts;
    if (stat(path, &facts) != 0)
        return ebb_error_io(path, "cannot be opened");
    if (S_ISDIR(facts.st_mode))
        return read_folder(data, path, model);
    if (ends_with(path, ".npz"))
        return ebb_npz_read(data, path);
    if (ends_with(path, ".npy"))
        return ebb_npy_read(data, path);
    if (ends_with(path, ".safetensors"))
        return ebb_safetensors_read(data, path);
    return ebb_error(EBB_USAGE,
                     "%s: data is read from .npz, .npy, .safetensors or a test_data_set folder",
                     path);
}

EBB_API ebb_status ebb_data_open(ebb_data **data, const char *path, const ebb_model *model)
{
    *data = NULL;
    ebb_data *d = ebb_alloc(sizeof *d);
    if (d == NULL)
        return ebb_error_memory();
    ebb_status status = ebb_data_init(d, path);
    if (status == NULL)
        status = read_any(d, path, model);
    if (status != NULL) {
        ebb_data_close(d);
        return status;
    }
    *data = d;
    return NULL;
}

ebb_status ebb_data_init(ebb_data *data, const char *path)
{
    *data = (ebb_data){0};
    data->path = ebb_arena_strdup(&data->arena, path);
    if (data->path == NULL || !ebb_names_init(&data->names, &data->arena))
        return ebb_error_memory();
    return NULL;
}

void ebb_data_fini(ebb_data *data)
{
    for (size_t i = 0; i < data->buffer_count; i++)
        ebb_free(data->buffers[i].memory);
    ebb_mappings_free(data->mappings);
    ebb_arena_fini(&data->arena);
}

EBB_API void ebb_data_close(ebb_data *data)
{
    if (data == NULL)
        return;
    ebb_data_fini(data);
    ebb_free(data);
}

EBB_API const char *ebb_data_metadata(const ebb_data *data)
{
    return data->metadata;
}

EBB_API size_t ebb_data_count(const ebb_data *data)
{
    return data->count;
}

EBB_API const ebb_named *ebb_data_at(const ebb_data *data, size_t index)
{
    return index < data->count ? &data->list[index] : NULL;
}

EBB_API const ebb_named *ebb_data_find(const ebb_data *data, const char *name)
{
    ebb_str id = ebb_names_find(&data->names, name);
    return id.i == 0 || id.i > data->count ? NULL : &data->list[id.i - 1];
}

/* ---- rows ---- */

static ebb_status make_buffers(ebb_data *data)
{
    if (data->buffers != NULL)
        return NULL;
    data->batch = EBB_NEW(&data->arena, ebb_named, data->count + 1);
    data->buffers = EBB_NEW(&data->arena, ebb_row_buffer, data->count + 1);
    if (data->batch == NULL || data->buffers == NULL)
        return ebb_error_memory();
    data->buffer_count = data->count;
    return NULL;
}

static ebb_status gather(ebb_named *out, ebb_row_buffer *buffer, const ebb_named *array,
                         const char *name, const int64_t *index, size_t count)
{
    if (array->rank < 1)
        return ebb_error(EBB_USAGE, "array '%s' is a scalar: it has no rows", array->name);
    memcpy(buffer->dims, array->dims, (size_t)array->rank * sizeof *array->dims);
    buffer->dims[0] = 1;
    ebb_type row = ebb_type_tensor((ebb_dtype)array->dtype, array->rank, buffer->dims);
    size_t row_bytes = 0, bytes = 0;
    if (ebb_dtype_bits((ebb_dtype)array->dtype) % 8 != 0 || !ebb_type_bytes(&row, &row_bytes) ||
        !ebb_size_mul(&bytes, row_bytes, count) || count > INT64_MAX)
        return ebb_error(EBB_USAGE, "array '%s': %zu rows of it cannot be gathered", array->name,
                         count);
    buffer->dims[0] = (int64_t)count;
    if (bytes > buffer->capacity || buffer->memory == NULL) {
        void *memory = ebb_alloc(bytes);
        if (memory == NULL)
            return ebb_error_memory();
        ebb_free(buffer->memory);
        buffer->memory = memory;
        buffer->capacity = bytes;
    }
    for (size_t i = 0; i < count; i++) {
        if (index[i] < 0 || index[i] >= array->dims[0])
            return ebb_error(EBB_USAGE, "array '%s' has %lld rows: there is no row %lld",
                             array->name, (long long)array->dims[0], (long long)index[i]);
        if (row_bytes != 0)
            memcpy((char *)buffer->memory + i * row_bytes,
                   (const char *)array->data + (size_t)index[i] * row_bytes, row_bytes);
    }
    *out = (ebb_named){name, array->dtype, array->rank, buffer->dims, buffer->memory};
    return NULL;
}

EBB_API ebb_status ebb_data_rows(ebb_data *data, const int64_t *index, size_t count,
                                 const char *const *map, ebb_batch *batch)
{
    EBB_TRY(make_buffers(data));
    size_t made = 0;
    for (size_t i = 0; map == NULL && i < data->count; i++, made++)
        EBB_TRY(gather(&data->batch[i], &data->buffers[i], &data->list[i], data->list[i].name,
                       index, count));
    for (size_t i = 0; map != NULL && map[2 * i] != NULL; i++, made++) {
        const ebb_named *array = ebb_data_find(data, map[2 * i]);
        if (array == NULL)
            return ebb_error(EBB_USAGE, "%s: there is no array '%s'", data->path, map[2 * i]);
        if (i >= data->count)
            return ebb_error(EBB_USAGE, "%s: more inputs are mapped than there are arrays",
                             data->path);
        EBB_TRY(gather(&data->batch[i], &data->buffers[i], array, map[2 * i + 1], index, count));
    }
    *batch = (ebb_batch){data->batch, made};
    return NULL;
}

EBB_API void ebb_shuffle(int64_t *order, int64_t count, uint64_t seed, uint64_t epoch)
{
    const uint32_t stream =
        0x73687566; /* of its own, so that dropout with this seed is unrelated */
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        ebb_philox draw = ebb_philox_block(seed, epoch, stream, (uint64_t)i);
        uint64_t word = (uint64_t)draw.word[0] << 32 | draw.word[1];
        int64_t j = (int64_t)(word % ((uint64_t)i + 1));
        int64_t keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
}
