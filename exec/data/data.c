/* data.c: named arrays and what they are made of; and the order in which an epoch reads rows. */
#include "exec/data/data.h"

#include "kernels/math/philox.h"
#include "onnx/words/print.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_OPEN = 256,        /* files that stay open; the others are opened for each row */
    SMALL_BYTES = 16 << 20, /* an array that may be copied, and used where it is mapped */
    SMALL_SUM = 64 << 20,   /* all of them together */
    SHORT_ROW = 16,         /* bytes: to ask the system for them costs many times what they are */
    SHORT_SUM = 128 << 20,  /* all arrays of such rows together: labels of 16 million */
};

/* ---- files ---- */

ebb_status ebb_data_map(ebb_data *data, const char *path, const ebb_mapping **mapping)
{
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not make us wait
    if (fd < 0)
        return ebb_error_io(path, "opening");
    int kept = data->file_count < MOST_OPEN ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    const bool known = fstat(fd, &facts) == 0;
    ebb_status status = ebb_mapping_take(&data->mappings, fd, path);
    const char *name = ebb_arena_strdup(&data->arena, path);
    if (status == NULL && !known)
        status = ebb_error_io(path, "reading");
    if (status == NULL &&
        (name == NULL || !ebb_arena_grow(&data->arena, &data->files, data->file_count,
                                         &data->file_capacity, sizeof *data->files)))
        status = ebb_error_memory();
    if (status != NULL) {
        if (kept >= 0)
            (void)close(kept);
        return status;
    }
    *mapping = data->mappings;
    data->files[data->file_count++] =
        (ebb_data_file){name, data->mappings, kept, (uint64_t)facts.st_dev, (uint64_t)facts.st_ino};
    return NULL;
}

/* The file that these bytes are mapped from, or EBB_IN_MEMORY. */
static size_t file_of(const ebb_data *data, const unsigned char *bytes)
{
    const uintptr_t at = (uintptr_t)bytes;
    for (size_t i = data->file_count; i-- > 0;) {
        const ebb_mapping *m = data->files[i].mapping;
        if (m->data != NULL && at >= (uintptr_t)m->data && at - (uintptr_t)m->data < m->bytes)
            return i;
    }
    return EBB_IN_MEMORY;
}

static ebb_status read_at(const ebb_data_file *file, int fd, uint64_t offset, unsigned char *out,
                          size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(fd, out + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ebb_error_io(file->path, "reading");
        if (n == 0)
            return ebb_error(EBB_IO, "%s: it became shorter while it was read", file->path);
        done += (size_t)n;
    }
    return NULL;
}

static ebb_status read_file(const ebb_data_file *file, uint64_t offset, unsigned char *out,
                            size_t bytes)
{
    struct stat facts;
    if (file->fd >= 0)
        return read_at(file, file->fd, offset, out, bytes);
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ebb_error_io(file->path, "opening");
    ebb_status status = NULL;
    if (fstat(fd, &facts) != 0 || (uint64_t)facts.st_dev != file->device ||
        (uint64_t)facts.st_ino != file->inode)
        status = ebb_error(EBB_IO, "%s: it was replaced while it was read", file->path);
    if (status == NULL)
        status = read_at(file, fd, offset, out, bytes);
    (void)close(fd);
    return status;
}

/* ---- arrays ---- */

/* Another file has more rows of an array that is there. */
static ebb_status join(ebb_data *data, size_t at, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_named *named = &data->list[at];
    bool same = named->dtype == (int)dtype && named->rank == rank && rank > 0;
    for (int i = 1; same && i < rank; i++)
        same = named->dims[i] == dims[i];
    if (!same) {
        char have[256], more[256];
        const ebb_type a = ebb_type_tensor((ebb_dtype)named->dtype, named->rank, named->dims);
        const ebb_type b = ebb_type_tensor(dtype, rank, dims);
        return ebb_error(EBB_REJECTED,
                         "array '%s' is %s here and %s in %s: rows of both cannot be "
                         "joined",
                         named->name, ebb_type_print(more, sizeof more, &b, NULL),
                         ebb_type_print(have, sizeof have, &a, NULL), data->path);
    }
    int64_t *shape = EBB_NEW(&data->arena, int64_t, (size_t)rank);
    EBB_GOT(shape);
    memcpy(shape, named->dims, (size_t)rank * sizeof *shape);
    if (__builtin_add_overflow(shape[0], dims[0], &shape[0]))
        return ebb_error(EBB_REJECTED, "array '%s' has too many rows", named->name);
    named->dims = shape;
    named->data = NULL;
    return NULL;
}

static ebb_status add_part(ebb_data *data, size_t at, int64_t rows, const unsigned char *bytes)
{
    ebb_array *array = &data->arrays[at];
    const int64_t from = array->part_count == 0 ? 0
                                                : array->parts[array->part_count - 1].from +
                                                      array->parts[array->part_count - 1].rows;
    const size_t file = file_of(data, bytes);
    const bool mapped = file != EBB_IN_MEMORY;
    EBB_GOT(ebb_arena_grow(&data->arena, &array->parts, array->part_count, &array->part_capacity,
                           sizeof *array->parts));
    array->parts[array->part_count++] =
        (ebb_part){.from = from,
                   .rows = rows,
                   .bytes = bytes,
                   .file = file,
                   .offset = mapped ? (uint64_t)(bytes - data->files[file].mapping->data) : 0,
                   .path = mapped ? data->files[file].path : data->from};
    array->opened = data->opened;
    return NULL;
}

/* A new entry of the list. */
static ebb_status begin(ebb_data *data, const char *name, size_t name_length, ebb_dtype dtype,
                        int rank, const int64_t *dims)
{
    ebb_str id = ebb_names_intern(&data->names, name, name_length);
    int64_t *shape = EBB_NEW(&data->arena, int64_t, (size_t)rank + 1);
    EBB_GOT(id.i != 0 && shape &&
            ebb_arena_grow(&data->arena, &data->list, data->count, &data->capacity,
                           sizeof *data->list) &&
            ebb_arena_grow(&data->arena, &data->arrays, data->count, &data->array_capacity,
                           sizeof *data->arrays));
    if (rank > 0)
        memcpy(shape, dims, (size_t)rank * sizeof *dims);
    data->list[data->count] =
        (ebb_named){ebb_names_text(&data->names, id), (int)dtype, rank, shape, NULL};
    data->arrays[data->count++] = (ebb_array){0};
    return NULL;
}

static size_t row_bytes_of(ebb_dtype dtype, int rank, const int64_t *dims)
{
    int64_t row[EBB_MAX_RANK] = {1};
    size_t bytes = 0;
    for (int i = 1; i < rank; i++)
        row[i] = dims[i];
    const ebb_type type = ebb_type_tensor(dtype, rank, row);
    return rank > 0 && ebb_dtype_bits(dtype) % 8 == 0 && ebb_type_bytes(&type, &bytes) ? bytes : 0;
}

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
    EBB_GOT(id.i != 0);
    const bool joins = id.i < known;
    const size_t at = joins ? id.i - 1 : data->count;
    if (joins && data->arrays[at].opened == data->opened)
        return ebb_error(EBB_REJECTED, "array '%.*s' is there twice", shown, name);
    EBB_TRY(joins ? join(data, at, dtype, rank, dims)
                  : begin(data, name, name_length, dtype, rank, dims));
    data->arrays[at].row_bytes = row_bytes_of(dtype, rank, dims);
    EBB_TRY(add_part(data, at, rank > 0 ? dims[0] : 1, bytes));

    ebb_part *part = &data->arrays[at].parts[data->arrays[at].part_count - 1];
    const size_t unit = ebb_dtype_bits(dtype) / 8;
    const bool unaligned = unit > 1 && (uintptr_t)bytes % (unit > 8 ? 8 : unit) != 0;
    const bool mapped = part->file != EBB_IN_MEMORY;
    if (unaligned && (!mapped || size <= SMALL_BYTES)) {
        void *aligned = ebb_arena_alloc(&data->arena, size + 1);
        EBB_GOT(aligned);
        memcpy(aligned, bytes, size);
        part->bytes = bytes = aligned;
    }
    if (!joins && !(unaligned && mapped && size > SMALL_BYTES))
        data->list[at].data = bytes;
    return NULL;
}

ebb_status ebb_data_add_pictures(ebb_data *data, const char *name, const char *const *paths,
                                 size_t count)
{
    const int64_t dims[] = {(int64_t)count, -1, -1, 3};
    if (ebb_data_find(data, name) != NULL)
        return ebb_error(EBB_REJECTED,
                         "array '%s' is there already: one folder of pictures is read", name);
    EBB_TRY(begin(data, name, strlen(name), EBB_U8, 4, dims));
    data->arrays[data->count - 1].opened = data->opened;
    data->arrays[data->count - 1].pictures = paths;
    return NULL;
}

/* How many bytes of it are in mapped files. */
static size_t mapped_bytes(const ebb_array *array)
{
    size_t bytes = 0;
    for (size_t k = 0; k < array->part_count; k++)
        if (array->parts[k].file != EBB_IN_MEMORY)
            bytes += (size_t)array->parts[k].rows * array->row_bytes;
    return bytes;
}

/* A mapping of so much would end the process where the file is cut meanwhile. */
static ebb_status take_in(ebb_data *data, ebb_part *part, size_t row_bytes)
{
    const size_t bytes = (size_t)part->rows * row_bytes;
    unsigned char *own = ebb_arena_alloc(&data->arena, bytes + 1);
    EBB_GOT(own);
    part->bytes = own;
    return read_file(&data->files[part->file], part->offset, own, bytes);
}

ebb_status ebb_data_settle(ebb_data *data)
{
    size_t small = 0, shorts = 0;
    for (size_t i = 0; i < data->count; i++) {
        ebb_array *array = &data->arrays[i];
        const size_t bytes = mapped_bytes(array);
        const bool is_small = bytes <= SMALL_BYTES && bytes <= SMALL_SUM - small;
        const bool is_short =
            !is_small && array->row_bytes <= SHORT_ROW && bytes <= SHORT_SUM - shorts;
        small += is_small ? bytes : 0;
        shorts += is_short ? bytes : 0;
        for (size_t k = 0; k < array->part_count && !is_small; k++) {
            ebb_part *part = &array->parts[k];
            if (part->file == EBB_IN_MEMORY)
                continue;
            part->bytes = NULL;
            if (is_short)
                EBB_TRY(take_in(data, part, array->row_bytes));
        }
    }
    return NULL;
}

/* ---- rows where they lie ---- */

static const ebb_part *part_of(const ebb_array *array, int64_t row)
{
    size_t low = 0, high = array->part_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(array->parts[middle].from <= row ? &low : &high) = middle;
    }
    return &array->parts[low];
}

ebb_status ebb_data_read(const ebb_data *data, const ebb_named *named, int64_t from, size_t count,
                         void *out)
{
    const ebb_array *array = &data->arrays[named - data->list];
    unsigned char *to = out;
    while (count > 0) {
        const ebb_part *part = part_of(array, from);
        const int64_t here = part->from + part->rows - from;
        const size_t rows = here < 0 ? 0 : (uint64_t)here < count ? (size_t)here : count;
        const size_t bytes = rows * array->row_bytes, skip = (size_t)(from - part->from);
        if (rows == 0)
            return ebb_error(EBB_USAGE, "array '%s' has no row %lld", named->name, (long long)from);
        if (part->bytes != NULL && bytes > 0)
            memcpy(to, part->bytes + skip * array->row_bytes, bytes);
        else if (bytes > 0)
            EBB_TRY(read_file(&data->files[part->file],
                              part->offset + (uint64_t)skip * array->row_bytes, to, bytes));
        to += bytes;
        from += (int64_t)rows;
        count -= rows;
    }
    return NULL;
}

const char *ebb_data_place(char text[512], const ebb_data *data, const ebb_named *named,
                           int64_t row)
{
    const ebb_array *array = &data->arrays[named - data->list];
    const ebb_part *part = array->part_count > 0 ? part_of(array, row) : NULL;
    if (array->pictures != NULL) {
        (void)snprintf(text, 512, "row %lld of '%.100s', %.350s", (long long)row, named->name,
                       array->pictures[row]);
        return text;
    }
    const char *path = part != NULL ? part->path : data->path;
    (void)snprintf(text, 512, "row %lld of '%.150s' in %.300s",
                   (long long)(part != NULL ? row - part->from : row), named->name, path);
    return text;
}

/* ---- the set ---- */

ebb_status ebb_data_init(ebb_data *data, const char *path)
{
    *data = (ebb_data){0};
    data->path = data->from = ebb_arena_strdup(&data->arena, path);
    EBB_GOT(data->path && ebb_names_init(&data->names, &data->arena));
    return NULL;
}

void ebb_data_fini(ebb_data *data)
{
    for (size_t i = 0; i < data->file_count && !data->borrows; i++)
        if (data->files[i].fd >= 0)
            (void)close(data->files[i].fd);
    if (!data->borrows)
        ebb_mappings_free(data->mappings);
    ebb_arena_fini(&data->arena);
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

ebb_status ebb_data_add_note(ebb_data *data, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)ebb_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (size_t i = 0; i < data->note_count; i++)
        if (strcmp(data->notes[i], text) == 0)
            return NULL;
    const char *kept = ebb_arena_strdup(&data->arena, text);
    EBB_GOT(kept && ebb_arena_grow(&data->arena, &data->notes, data->note_count,
                                   &data->note_capacity, sizeof *data->notes));
    data->notes[data->note_count++] = kept;
    return NULL;
}

EBB_API const char *ebb_data_note(const ebb_data *data, size_t index)
{
    return index < data->note_count ? data->notes[index] : NULL;
}

/* With which of the places 0..i that at i changes. */
static int64_t partner(int64_t i, uint64_t seed, uint64_t epoch)
{
    const uint32_t stream =
        0x73687566; /* of its own, so that dropout with this seed is unrelated */
    ebb_philox draw = ebb_philox_block(seed, epoch, stream, (uint64_t)i);
    uint64_t word = (uint64_t)draw.word[0] << 32 | draw.word[1];
    return (int64_t)(word % ((uint64_t)i + 1));
}

EBB_API void ebb_shuffle(int64_t *order, int64_t count, uint64_t seed, uint64_t epoch)
{
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = partner(i, seed, epoch), keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
}

void ebb_shuffle_32(uint32_t *order, int64_t count, uint64_t seed, uint64_t epoch)
{
    for (int64_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = partner(i, seed, epoch);
        const uint32_t keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
}
