/* folder.h: a folder for the files of a test, which goes with all that is in it when the test ends. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/formatted.h"
#include "tests/test.h"

static char folder[] = "/tmp/ebb-test-XXXXXX";

/* Good until eight later calls of the thread. */
static inline const char *path_of(const char *name)
{
    static _Thread_local char text[8][1024];
    static _Thread_local unsigned next;
    char *path = text[next++ % 8];
    (void)snprintf(path, sizeof text[0], "%s/%s", folder, name);
    return path;
}

/* For cmocka: before and after all tests. */
static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return system(formatted("rm -rf %s", folder));
}

static inline void put_file(const char *path, const void *data, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}
