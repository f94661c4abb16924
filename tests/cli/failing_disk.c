/* failing_disk.c: put before the C library's (LD_PRELOAD), a disk on which one call of its kind fails
 * that is made of a file without a name.
 *
 *     EBB_FAIL = pwrite:7:5    the seventh pwrite of a spilled tensor ends with error 5 (EIO)
 *
 * Kinds: pwrite, pread, posix_fallocate. All else goes where it would have gone. */
#define _GNU_SOURCE // RTLD_NEXT
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h> // posix_fallocate
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(const char *kind, int file)
{
    struct stat s;
    static int calls;
    const char *what = getenv("EBB_FAIL");
    char wanted[32];
    int at, code;
    if (what == NULL || sscanf(what, "%31[^:]:%d:%d", wanted, &at, &code) != 3 ||
        strcmp(wanted, kind) != 0 || fstat(file, &s) != 0 || s.st_nlink != 0 ||
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != at)
        return 0;
    return code;
}

/* ISO C has no way from an object's address to a function's. */
static void find(const char *name, void *function, size_t size)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, size);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t);
    find("pwrite", &real, sizeof real);
    const int code = fails("pwrite", file);
    if (code == 0)
        return real(file, bytes, count, offset);
    errno = code;
    return -1;
}

ssize_t pread(int file, void *bytes, size_t count, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t);
    find("pread", &real, sizeof real);
    const int code = fails("pread", file);
    if (code == 0)
        return real(file, bytes, count, offset);
    errno = code;
    return -1;
}

int posix_fallocate(int file, off_t offset, off_t count)
{
    int (*real)(int, off_t, off_t);
    find("posix_fallocate", &real, sizeof real);
    const int code = fails("posix_fallocate", file);
    return code != 0 ? code : real(file, offset, count);
}
