/* safetensors.c: reading. Eight bytes of length, a JSON header of that length, then the bytes.
 *
 *     {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {...}}
 */
#include "exec/data/data.h"

#include "exec/data/checkpoint.h"
#include "exec/data/checksum.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADER_LIMIT = 100 * 1024 * 1024 }; /* the format's own bound */

static const struct {
    const char *name;
    ebb_dtype dtype;
} dtypes[] = {
    {"F64", EBB_F64},          {"F32", EBB_F32},        {"F16", EBB_F16},   {"BF16", EBB_BF16},
    {"I64", EBB_I64},          {"I32", EBB_I32},        {"I16", EBB_I16},   {"I8", EBB_I8},
    {"U64", EBB_U64},          {"U32", EBB_U32},        {"U16", EBB_U16},   {"U8", EBB_U8},
    {"F8_E4M3", EBB_F8E4M3FN}, {"F8_E5M2", EBB_F8E5M2}, {"BOOL", EBB_BOOL},
};

const char *ebb_safetensors_dtype(ebb_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

static ebb_dtype dtype_named(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].dtype;
    return EBB_NONE;
}

typedef struct span { /* where a tensor lies behind the header */
    size_t begin, end;
    const char *name;
} span;

static ebb_status read_tensor(ebb_data *data, const char *name, const json_t *entry,
                              const unsigned char *bytes, size_t size, span *where)
{
    const char *dtype_text = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (dtype_text == NULL || !json_is_array(shape) || json_array_size(offsets) != 2)
        return ebb_error(EBB_REJECTED, "tensor '%.200s' lacks dtype, shape or data_offsets", name);
    ebb_dtype dtype = dtype_named(dtype_text);
    if (dtype == EBB_NONE)
        return ebb_error(EBB_REJECTED, "tensor '%.200s' has the unknown dtype '%.40s'", name,
                         dtype_text);
    int64_t dims[EBB_MAX_RANK];
    size_t rank = json_array_size(shape);
    if (rank > EBB_MAX_RANK)
        return ebb_error(EBB_REJECTED, "tensor '%.200s' has rank %zu, above %d", name, rank,
                         (int)EBB_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(shape, i);
        dims[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || dims[i] < 0)
            return ebb_error(EBB_REJECTED, "tensor '%.200s' has a negative or odd dim", name);
    }
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    json_int_t begin = json_integer_value(from), end = json_integer_value(to);
    if (!json_is_integer(from) || !json_is_integer(to) || begin < 0 || end < begin ||
        (uint64_t)end > size)
        return ebb_error(EBB_REJECTED,
                         "tensor '%.200s' lies at %lld to %lld, outside of the file's %zu bytes",
                         name, (long long)begin, (long long)end, size);
    *where = (span){(size_t)begin, (size_t)end, name};
    return ebb_data_add(data, name, strlen(name), dtype, (int)rank, dims, bytes + begin,
                        (size_t)(end - begin));
}

static ebb_status keep_metadata(ebb_data *data, const json_t *metadata)
{
    if (metadata == NULL)
        return NULL;
    if (!json_is_object(metadata))
        return ebb_error(EBB_REJECTED, "__metadata__ is no object");
    size_t size = json_dumpb(metadata, NULL, 0, JSON_COMPACT);
    data->metadata = size == 0 ? NULL : ebb_arena_zeroed(&data->arena, size + 1, 1);
    if (data->metadata == NULL || json_dumpb(metadata, data->metadata, size, JSON_COMPACT) != size)
        return ebb_error_memory();
    return NULL;
}

static int by_place(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The format wants every byte to belong to one tensor: what two share or none has could hide
 * something from whoever looked at the file before. */
static ebb_status spans_fill(span *spans, size_t count, size_t size)
{
    size_t at = 0;
    qsort(spans, count, sizeof *spans, by_place);
    for (size_t i = 0; i < count; at = spans[i++].end)
        if (spans[i].begin < at)
            return ebb_error(EBB_REJECTED, "tensors '%.200s' and '%.200s' overlap",
                             spans[i - 1].name, spans[i].name);
        else if (spans[i].begin > at)
            return ebb_error(EBB_REJECTED, "bytes %zu to %zu belong to no tensor", at,
                             spans[i].begin);
    if (at != size)
        return ebb_error(EBB_REJECTED, "bytes %zu to %zu belong to no tensor", at, size);
    return NULL;
}

static ebb_status read_header(ebb_data *data, json_t *root, const unsigned char *bytes, size_t size)
{
    EBB_TRY(keep_metadata(data, json_object_get(root, "__metadata__")));
    void *at = json_object_iter(root);
    size_t count = 0;
    span *spans = EBB_NEW(&data->arena, span, json_object_size(root) + 1);
    EBB_GOT(spans);
    for (; at != NULL; at = json_object_iter_next(root, at)) {
        const char *name = json_object_iter_key(at);
        if (strcmp(name, "__metadata__") != 0)
            EBB_TRY(
                read_tensor(data, name, json_object_iter_value(at), bytes, size, &spans[count++]));
    }
    return spans_fill(spans, count, size);
}

const char *ebb_text_find(const char *text, size_t length, const char *words)
{
    size_t count = strlen(words);
    for (size_t i = 0; i + count <= length; i++)
        if (text[i] == words[0] && memcmp(text + i, words, count) == 0)
            return text + i;
    return NULL;
}

/* Of the whole file, where its metadata have a checksum; length: of the header. */
static ebb_status check_sum(ebb_data *data, const json_t *root, const unsigned char *bytes,
                            size_t size, size_t length)
{
    const size_t digit_count = strlen(EBB_CHECKSUM_ZERO), kind = strlen(EBB_CHECKSUM_KIND);
    const char *given =
        json_string_value(json_object_get(json_object_get(root, "__metadata__"), EBB_CHECKSUM_KEY));
    const char *header = (const char *)bytes + 8;
    const char *field = ebb_text_find(header, length, EBB_CHECKSUM_FIELD);
    char digits[sizeof EBB_CHECKSUM_ZERO];
    ebb_checksum sum;
    if (given == NULL)
        return NULL;
    if (field == NULL || strlen(given) != kind + digit_count ||
        memcmp(field + strlen(EBB_CHECKSUM_FIELD), given + kind, digit_count) != 0)
        return ebb_error(EBB_REJECTED, "its checksum is '%.40s', which cannot be read", given);
    const unsigned char *at = (const unsigned char *)field + strlen(EBB_CHECKSUM_FIELD);
    ebb_checksum_begin(&sum);
    ebb_checksum_add(&sum, bytes, (size_t)(at - bytes));
    ebb_checksum_add(&sum, EBB_CHECKSUM_ZERO, digit_count);
    ebb_checksum_add(&sum, at + digit_count, size - (size_t)(at - bytes) - digit_count);
    (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)ebb_checksum_end(&sum));
    data->checked = memcmp(digits, at, digit_count) == 0;
    if (data->checked)
        return NULL;
    return ebb_hint(ebb_error(EBB_REJECTED,
                              "the file is damaged: the checksum of its bytes is %s, and it was "
                              "written with %.16s",
                              digits, given + kind),
                    "where another tool has written it anew, take '%s' out of its metadata",
                    EBB_CHECKSUM_KEY);
}

ebb_status ebb_safetensors_parse(ebb_data *data, const unsigned char *bytes, size_t size)
{
    if (size < 8)
        return ebb_error(EBB_REJECTED, "%zu bytes are too few for a safetensors file", size);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > HEADER_LIMIT || length > size - 8)
        return ebb_error(
            EBB_REJECTED,
            "it is no safetensors file, or not all of one: the header claims %llu bytes "
            "of the file's %zu",
            (unsigned long long)length, size);
    json_error_t error;
    json_t *root =
        json_loadb((const char *)bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return ebb_error(EBB_REJECTED, "the header is not JSON: %s at byte %d", error.text,
                         8 + error.position);
    ebb_status status = NULL;
    if (!json_is_object(root))
        status = ebb_error(EBB_REJECTED, "the header is no JSON object");
    else
        status = check_sum(data, root, bytes, size, (size_t)length);
    if (status == NULL)
        status = read_header(data, root, bytes + 8 + length, size - 8 - (size_t)length);
    json_decref(root);
    return status;
}

ebb_status ebb_safetensors_read(ebb_data *data, const char *path)
{
    const ebb_mapping *m;
    EBB_TRY(ebb_data_map(data, path, &m));
    return ebb_at(ebb_safetensors_parse(data, m->data, m->bytes), path);
}
