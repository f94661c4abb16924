/* files.h: a folder for the files of a test, which goes when it ends, and what is in them. */
#pragma once

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/words/map.h"
#include "tests/folder.h"
#include "tests/onnx/bytes.h"
#include "tests/test.h"

#define OK(call)                                                    \
    do {                                                            \
        ebb_status ok_status_ = (call);                             \
        if (ok_status_ != NULL)                                     \
            fail_msg("%s: %s", #call, ebb_status_text(ok_status_)); \
    } while (0)

static inline int make_folders(void **state)
{
    return make_folder(state) || mkdir(path_of("other"), 0700) != 0;
}

static inline size_t files_like(const char *pattern)
{
    glob_t found;
    size_t count = 0;
    if (glob(path_of(pattern), 0, NULL, &found) == 0) {
        count = found.gl_pathc;
        globfree(&found);
    }
    return count;
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
