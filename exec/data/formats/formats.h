/* formats.h: the formats of data. open.c has the table of them: whether a path is of it, and how its arrays
 * come in. */
#pragma once

#include "exec/data/data.h"

/* npz.c; of an .npy the array has the file's name. */
ebb_status ebb_npz_read(ebb_data *data, const char *path);
ebb_status ebb_npy_read(ebb_data *data, const char *path);
/* From memory, which must outlive data. */
ebb_status ebb_npy_parse(ebb_data *data, const char *name, size_t name_length,
                         const unsigned char *bytes, size_t size);

/* csv.c: columns are arrays, by the names in the first line. */
ebb_status ebb_csv_read(ebb_data *data, const char *path);

/* input_0.pb, input_1.pb ... of a test_data_set folder. */
ebb_status ebb_test_data_read(ebb_data *data, const char *path, const ebb_model *model);

/* folder.c: a folder of files that are joined; and of pictures by class, which gives the arrays "image"
 * and "label" and the names of the classes as metadata. */
bool ebb_shards_are(const char *path);
ebb_status ebb_shards_list(const char *const **paths, const char *path, ebb_arena *arena);
bool ebb_pictures_are(const char *path);
ebb_status ebb_pictures_read(ebb_data *data, const char *path, const ebb_model *model);

/* tokens.c: rows of `sequence` tokens from the texts of `from`, padded or packed. */
ebb_status ebb_tokens_read(ebb_data *to, const ebb_data *from, int64_t sequence, bool pack);

/* texts.c: .jsonl and .txt, by the tokenizer of the options, as tokens.c takes them. */
ebb_status ebb_jsonl_read(ebb_data *data, const char *path);
ebb_status ebb_txt_read(ebb_data *data, const char *path);

/* stored.c: where the bytes of an entry lie in a mapped .npz that holds them as they are: stored, not
 * compressed. False: they do not, or the archive contradicts itself. */
bool ebb_npz_stored(const unsigned char *archive, size_t size, const char *entry,
                    uint64_t entry_bytes, uint64_t *offset);
