/* data.h: named arrays from files, rows of them as a model wants them, and safetensors out. Files are
 * hostile until proven otherwise.
 *
 *     files ──formats/──> arrays of parts ──feed/──> rows as the inputs take them ──> batch
 *
 * data.c holds the arrays and knows neither of the two rooms; safetensors.c stands beside it, because
 * checkpoints and weights are such files too; checkpoint.c writes.
 */
#pragma once

#include "onnx/words/map.h"
#include "onnx/words/tensor.h"

/* A file that arrays lie in as they are. Its rows are read, not touched in the mapping: what is read
 * does not stay in the memory of the process, and a file that is cut meanwhile is an error instead of
 * a signal. */
typedef struct ebb_data_file {
    const char *path;
    const ebb_mapping *mapping;
    int fd; /* -1: opened for each row, because many files are */
    uint64_t device, inode;
} ebb_data_file;

#define EBB_IN_MEMORY SIZE_MAX /* as a file: none, whatever files come later */

/* Rows of an array that lie behind each other. */
typedef struct ebb_part {
    int64_t from, rows;         /* which rows of the array they are */
    const unsigned char *bytes; /* in memory, or NULL: */
    size_t file;                /* in ebb_data.files, or EBB_IN_MEMORY */
    uint64_t offset;            /* of the first byte there */
    const char *path;
} ebb_part;

/* What is beside the ebb_named of the same place in the list. */
typedef struct ebb_array {
    ebb_part *parts;
    size_t part_count, part_capacity;
    size_t row_bytes;            /* 0 for a scalar */
    size_t opened;               /* which of the opened paths was the last to add to it */
    const char *const *pictures; /* the file that each row is made of; or NULL */
} ebb_array;

struct ebb_data {
    ebb_arena arena;
    const char *path; /* for messages: of the first */
    const char *from; /* for messages: what is being opened */
    ebb_named *list;
    ebb_array *arrays;
    size_t count, capacity, array_capacity;
    ebb_names names; /* of the arrays: id = index + 1 */
    ebb_mapping *mappings;
    ebb_data_file *files;
    size_t file_count, file_capacity, opened;
    char *metadata; /* safetensors: __metadata__ as JSON text in arena memory, or NULL */
    bool checked;   /* safetensors: the bytes are those that the file's own checksum is of */
    const char **notes;
    size_t note_count, note_capacity;
    bool borrows;              /* arrays and files are another's */
    const struct ebb_fit *fit; /* feed/feed.h: what the options say; NULL: nothing */
    struct ebb_reader *reader; /* feed/rows.h; NULL: no row was asked for yet */
};

ebb_status ebb_data_init(ebb_data *data, const char *path);
void ebb_data_fini(ebb_data *data);

/* Maps a file whose arrays are to be read where they lie. */
ebb_status ebb_data_map(ebb_data *data, const char *path, const ebb_mapping **mapping);

/* An array of this type whose bytes are data[0..bytes). They are copied where elements would be
 * unaligned, unless they are many and of a mapped file: then there is no pointer to the whole.
 * An array that an earlier path has gets more rows. EBB_REJECTED for a name given twice in one file or a
 * type that does not need exactly these bytes. */
ebb_status ebb_data_add(ebb_data *data, const char *name, size_t name_length, ebb_dtype dtype,
                        int rank, const int64_t *dims, const void *bytes, size_t size);

/* An array uint8[count, -1, -1, 3] of pictures, whose size comes with the input that they feed. */
ebb_status ebb_data_add_pictures(ebb_data *data, const char *name, const char *const *paths,
                                 size_t count);

/* After the last file: large arrays are read from their files from now on, small ones stay mapped, and
 * those of short rows, such as labels, are read into memory as far as that is not much. */
ebb_status ebb_data_settle(ebb_data *data);

/* Rows from .. from + count of an array that lies in memory or files, to `out`. */
ebb_status ebb_data_read(const ebb_data *data, const ebb_named *array, int64_t from, size_t count,
                         void *out);
/* "row 17 of 'label' in a.npz" */
const char *ebb_data_place(char text[512], const ebb_data *data, const ebb_named *array,
                           int64_t row);

/* ebb_shuffle in half the memory, for at most 2^32 rows. */
void ebb_shuffle_32(uint32_t *order, int64_t count, uint64_t seed, uint64_t epoch);

/* The same arrays taken in the same way, with nothing drawn: who reads them so binds and reads beside whom
 * `data` is for. To be closed first. */
ebb_status ebb_data_beside(ebb_data **beside, const ebb_data *data);

/* A sentence for the user, said once. */
ebb_status ebb_data_add_note(ebb_data *data, const char *format, ...) EBB_PRINTF(2, 3);

ebb_status ebb_safetensors_read(ebb_data *data, const char *path);
/* From memory, which must outlive data. */
ebb_status ebb_safetensors_parse(ebb_data *data, const unsigned char *bytes, size_t size);
