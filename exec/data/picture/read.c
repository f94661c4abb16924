/* read.c: a picture file into memory, and to the library that knows its kind by its first bytes. */
#include "exec/data/picture/picture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILE_BYTES = 1 << 28 };

void ebb_picture_free(ebb_picture *picture)
{
    ebb_free(picture->rgb);
    *picture = (ebb_picture){0};
}

ebb_status ebb_picture_size(ebb_picture *picture, uint64_t width, uint64_t height)
{
    if (width == 0 || height == 0 || width > EBB_PICTURE_SIDE || height > EBB_PICTURE_SIDE ||
        height > EBB_PICTURE_PIXELS / width)
        return ebb_error(EBB_REJECTED,
                         "a picture of %llu x %llu pixels: at most %d are read, and %d "
                         "along a side",
                         (unsigned long long)width, (unsigned long long)height,
                         (int)EBB_PICTURE_PIXELS, (int)EBB_PICTURE_SIDE);
    const size_t bytes = (size_t)width * (size_t)height * 3;
    if (bytes > picture->capacity) {
        unsigned char *more = ebb_alloc(bytes);
        EBB_GOT(more);
        ebb_free(picture->rgb);
        picture->rgb = more;
        picture->capacity = bytes;
    }
    picture->width = (int)width;
    picture->height = (int)height;
    return NULL;
}

static ebb_status read_all(int fd, const char *path, void **file, size_t *capacity, size_t *size)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0)
        return ebb_error_io(path, "reading");
    if (!S_ISREG(facts.st_mode) || facts.st_size < 8 || facts.st_size > MOST_FILE_BYTES)
        return ebb_error(EBB_REJECTED, "%s: not a picture, by its size", path);
    *size = (size_t)facts.st_size;
    if (*size > *capacity) {
        void *more = ebb_alloc(*size);
        EBB_GOT(more);
        ebb_free(*file);
        *file = more;
        *capacity = *size;
    }
    for (size_t done = 0; done < *size;) {
        const ssize_t n = read(fd, (char *)*file + done, *size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? ebb_error_io(path, "reading")
                         : ebb_error(EBB_IO, "%s: it became shorter while it was read", path);
        done += (size_t)n;
    }
    return NULL;
}

ebb_status ebb_picture_read(ebb_picture *picture, const char *path, void **file, size_t *capacity)
{
    static const unsigned char jpeg[3] = {0xFF, 0xD8, 0xFF};
    static const unsigned char png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    size_t size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ebb_error_io(path, "opening");
    ebb_status status = read_all(fd, path, file, capacity, &size);
    (void)close(fd);
    if (status != NULL)
        return status;
    if (memcmp(*file, jpeg, sizeof jpeg) == 0)
        return ebb_at(ebb_jpeg_read(picture, *file, size), path);
    if (memcmp(*file, png, sizeof png) == 0)
        return ebb_at(ebb_png_read(picture, *file, size), path);
    return ebb_error(EBB_REJECTED, "%s: neither JPEG nor PNG by its first bytes", path);
}
