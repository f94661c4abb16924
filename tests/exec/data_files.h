/* data_files.h: small .npy and .npz files for the tests of data, written here. */
#ifndef EBB_TESTS_EXEC_DATA_FILES_H
#define EBB_TESTS_EXEC_DATA_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <cmocka.h>
#include <zip.h>

#include "ebb.h"

static char folder[] = "/tmp/ebb_test_data_XXXXXX";

/* Good until eight later calls. */
static inline const char *path_of(const char *name)
{
    static char text[8][256];
    static unsigned next;
    char *path = text[next++ % 8];
    (void)snprintf(path, sizeof text[0], "%s/%s", folder, name);
    return path;
}

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

typedef struct member {
    const char *name, *descr, *shape; /* "x", "<f4", "3, 2" */
    const void *data;
    size_t bytes;
} member;

/* An .npy in new memory, for free(). */
static inline unsigned char *npy_of(const member *m, size_t *size)
{
    char header[512];
    (void)snprintf(header, sizeof header,
                   "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", m->descr, m->shape);
    const size_t length = strlen(header), total = (10 + length + 1 + 63) / 64 * 64;
    unsigned char *out = calloc(1, total + m->bytes);
    assert_non_null(out);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (unsigned char)(total - 10);
    out[9] = (unsigned char)((total - 10) >> 8);
    memcpy(out + 10, header, length);
    memset(out + 10 + length, ' ', total - 10 - length);
    out[total - 1] = '\n';
    if (m->bytes > 0)
        memcpy(out + total, m->data, m->bytes);
    *size = total + m->bytes;
    return out;
}

static inline void write_npy(const char *path, const member *m)
{
    size_t size;
    unsigned char *bytes = npy_of(m, &size);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    free(bytes);
}

/* As numpy.savez writes it, or numpy.savez_compressed. */
static inline void write_npz(const char *path, const member *list, size_t count, bool compressed)
{
    unsigned char *bytes[8] = {NULL};
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    assert_non_null(zip);
    assert_true(count <= 8);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        size_t size;
        bytes[i] = npy_of(&list[i], &size);
        (void)snprintf(name, sizeof name, "%s.npy", list[i].name);
        zip_int64_t at = zip_file_add(zip, name, zip_source_buffer(zip, bytes[i], size, 0), 0);
        assert_true(at >= 0);
        assert_int_equal(zip_set_file_compression(zip, (zip_uint64_t)at,
                                                  compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0),
                         0);
    }
    assert_int_equal(zip_close(zip), 0);
    for (size_t i = 0; i < count; i++)
        free(bytes[i]);
}

#define MEMBER(name, descr, shape, array)       \
    {                                           \
        name, descr, shape, array, sizeof array \
    }

#endif
