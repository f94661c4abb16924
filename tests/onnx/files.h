/* files.h: a folder for the files of a test, which goes when it ends, and what is in them. */
#ifndef EBB_TESTS_ONNX_FILES_H
#define EBB_TESTS_ONNX_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/words/map.h"
#include "tests/onnx/bytes.h"

#define OK(call)                                                    \
    do {                                                            \
        ebb_status ok_status_ = (call);                             \
        if (ok_status_ != NULL)                                     \
            fail_msg("%s: %s", #call, ebb_status_text(ok_status_)); \
    } while (0)

static char folder[] = "/tmp/ebb-file-XXXXXX";

static inline const char *in_folder(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    char *text = path[turn++ % 4];
    (void)snprintf(text, sizeof path[0], "%s/%s", folder, name);
    return text;
}

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || mkdir(in_folder("other"), 0700) != 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    static const char *const patterns[] = {"other/*", "*"};
    for (size_t i = 0; i < 2; i++) {
        glob_t found;
        if (glob(in_folder(patterns[i]), 0, NULL, &found) == 0) {
            for (size_t k = 0; k < found.gl_pathc; k++)
                (void)remove(found.gl_pathv[k]);
            globfree(&found);
        }
    }
    return rmdir(folder);
}

static inline size_t files_like(const char *pattern)
{
    glob_t found;
    size_t count = 0;
    if (glob(in_folder(pattern), 0, NULL, &found) == 0) {
        count = found.gl_pathc;
        globfree(&found);
    }
    return count;
}

static inline void put_file(const char *path, const void *data, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static inline void assert_file(const char *path, const void *data, size_t count)
{
    ebb_mapping *file = NULL;
    OK(ebb_mapping_open(&file, path));
    if (file->bytes != count || memcmp(file->data, data, count) != 0)
        fail_msg("%s: other bytes than expected", path);
    ebb_mappings_free(file);
}

static inline ebb_model *again(const ebb_model *model, void **memory)
{
    ebb_model *copy;
    size_t size;
    OK(ebb_model_write_memory(model, memory, &size));
    OK(ebb_model_read_memory(&copy, *memory, size, NULL));
    return copy;
}

#endif
