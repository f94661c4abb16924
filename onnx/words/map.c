/* map.c: map a file, unmap a list of them. */
#define _GNU_SOURCE // O_TMPFILE
#include "onnx/words/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static ebb_status map_open_file(ebb_mapping *m, int fd, const char *path)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0)
        return ebb_error_io(path, "reading");
    if (!S_ISREG(facts.st_mode))
        return ebb_error(EBB_IO, "%s: not a regular file", path);
    m->bytes = (size_t)facts.st_size;
    m->shared = facts.st_nlink > 1;
    if (m->bytes == 0)
        return NULL;
    void *data = mmap(NULL, m->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return ebb_error_io(path, "mapping");
    m->data = data;
    return NULL;
}

ebb_status ebb_mapping_take(ebb_mapping **list, int fd, const char *name)
{
    ebb_mapping *m = ebb_alloc(sizeof *m);
    ebb_status status = ebb_error_memory();
    if (m != NULL) {
        *m = (ebb_mapping){.older = *list};
        status = map_open_file(m, fd, name);
        if (status == NULL)
            *list = m;
        else
            ebb_free(m);
    }
    close(fd);
    return status;
}

ebb_status ebb_mapping_open(ebb_mapping **list, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not make us wait
    return fd < 0 ? ebb_error_io(path, "opening") : ebb_mapping_take(list, fd, path);
}

/* ---- files without a name ---- */

int ebb_nameless_open(const char *folder)
{
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0)
        return file;
    const size_t length = strlen(folder) + sizeof "/ebb-spill-XXXXXX";
    char *path = ebb_alloc(length);
    if (path == NULL)
        return -1;
    (void)snprintf(path, length, "%s/ebb-spill-XXXXXX", folder);
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0)
        (void)unlink(path);
    ebb_free(path);
    return file;
}

ebb_status ebb_mapping_make(ebb_mapping **list, int *file, const char *folder, size_t bytes)
{
    *file = ebb_nameless_open(folder);
    if (*file < 0)
        return ebb_error_io(folder, "making a file in");
    const int why = bytes <= INT64_MAX ? posix_fallocate(*file, 0, (off_t)bytes) : EFBIG;
    const int again = why == 0 ? dup(*file) : -1; // the mapping closes the one that it is given
    if (again < 0)
        errno = why != 0 ? why : errno;
    ebb_status status = again >= 0 ? ebb_mapping_take(list, again, folder)
                                   : ebb_error_io(folder, "making a file in");
    if (status != NULL) {
        close(*file);
        *file = -1;
    }
    return status;
}

/* What mmap gave, without const. */
static void *given(const ebb_mapping *m)
{
    void *data;
    memcpy(&data, &m->data, sizeof data);
    return data;
}

void ebb_mappings_rest(const ebb_mapping *list)
{
    for (const ebb_mapping *m = list; m != NULL; m = m->older)
        if (m->data != NULL)
            (void)madvise(given(m), m->bytes, MADV_DONTNEED);
}

void ebb_mappings_free(ebb_mapping *list)
{
    for (ebb_mapping *m = list, *older; m != NULL; m = older) {
        older = m->older;
        if (m->data != NULL)
            munmap(given(m), m->bytes);
        ebb_free(m);
    }
}
