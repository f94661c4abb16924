/* data_files.h: small .npy and .npz files for the tests of data, written here. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <zip.h>

#include "ebb.h"
#include "tests/folder.h"
#include "tests/owned.h"
#include "tests/test.h"

typedef struct member {
    const char *name, *descr, *shape; /* "x", "<f4", "3, 2" */
    const void *data;
    size_t bytes;
} member;

/* The bytes of an .npy with this header, which are below 1024, and these of its data; how many. */
static inline size_t put_npy(unsigned char *out, const char *header, const void *data, size_t bytes)
{
    const size_t length = strlen(header), total = (10 + length + 1 + 63) / 64 * 64;
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (unsigned char)(total - 10);
    out[9] = (unsigned char)((total - 10) >> 8);
    memcpy(out + 10, header, length);
    memset(out + 10 + length, ' ', total - 10 - length);
    out[total - 1] = '\n';
    if (bytes > 0)
        memcpy(out + total, data, bytes);
    return total + bytes;
}

/* An .npy in new memory, for free(). */
static inline unsigned char *npy_of(const member *m, size_t *size)
{
    char header[512];
    (void)snprintf(header, sizeof header,
                   "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", m->descr, m->shape);
    unsigned char *out = calloc(1, 1024 + m->bytes);
    assert_non_null(out);
    *size = put_npy(out, header, m->data, m->bytes);
    return out;
}

static inline void write_npy(const char *path, const member *m)
{
    size_t size;
    FREED unsigned char *bytes = npy_of(m, &size);
    put_file(path, bytes, size);
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
