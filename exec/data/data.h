/* data.h: named arrays from files, and safetensors out. Files are hostile until proven otherwise.
 *
 * data.c holds the arrays and gathers rows; npz.c and safetensors.c read their formats into it;
 * checkpoint.c writes.
 */
#ifndef EBB_EXEC_DATA_DATA_H
#define EBB_EXEC_DATA_DATA_H

#include "onnx/words/map.h"
#include "onnx/words/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_row_buffer { /* one array of the batch that ebb_data_rows gathers */
    void *memory;
    size_t capacity;
    int64_t dims[EBB_MAX_RANK];
} ebb_row_buffer;

struct ebb_data {
    ebb_arena arena;
    const char *path;
    ebb_named *list;
    size_t count, capacity;
    ebb_names names; /* of the arrays: id = index + 1 */
    ebb_mapping *mappings;
    char *metadata; /* safetensors: __metadata__ as JSON text in arena memory, or NULL */
    bool checked;   /* safetensors: the bytes are those that the file's own checksum is of */
    ebb_row_buffer *buffers;
    ebb_named *batch;
    size_t buffer_count;
    const char **notes;
    size_t note_count, note_capacity;
};

ebb_status ebb_data_init(ebb_data *data, const char *path);
void ebb_data_fini(ebb_data *data);

/* An array of this type whose bytes are data[0..bytes): copied only where elements would be
 * unaligned. EBB_REJECTED for a name given twice or a type that does not need exactly these bytes.
 */
ebb_status ebb_data_add(ebb_data *data, const char *name, size_t name_length, ebb_dtype dtype,
                        int rank, const int64_t *dims, const void *bytes, size_t size);

/* bind.c; a sentence for the user, said once. */
ebb_status ebb_data_add_note(ebb_data *data, const char *format, ...) EBB_PRINTF(2, 3);

ebb_status ebb_npz_read(ebb_data *data, const char *path);
ebb_status ebb_npy_read(ebb_data *data, const char *path);
ebb_status ebb_safetensors_read(ebb_data *data, const char *path);
/* From memory, which must outlive data. */
ebb_status ebb_npy_parse(ebb_data *data, const char *name, size_t name_length,
                         const unsigned char *bytes, size_t size);
ebb_status ebb_safetensors_parse(ebb_data *data, const unsigned char *bytes, size_t size);

#ifdef __cplusplus
}
#endif
#endif
