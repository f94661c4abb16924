/* sink.c: write a file so that it is whole or absent. */
#include "onnx/file/sink.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 * 1024 };

static void write_all(ebb_sink *s, const uint8_t *bytes, size_t count)
{
    while (count > 0 && s->error == 0) {
        const size_t most = (size_t)1 << 30; // Linux writes no more than 2 GiB at once
        ssize_t n = write(s->fd, bytes, count < most ? count : most);
        if (n < 0 && errno != EINTR)
            s->error = errno;
        if (n <= 0)
            continue;
        bytes += n;
        count -= (size_t)n;
    }
}

static void flush(ebb_sink *s)
{
    write_all(s, s->buffer, s->used);
    s->used = 0;
}

void ebb_sink_write(ebb_sink *s, const void *bytes, size_t count)
{
    s->written += count;
    if (s->path != NULL && count > s->capacity - s->used)
        flush(s);
    if (s->path != NULL && count > s->capacity) {
        write_all(s, bytes, count); // weights go straight from their mapping
        return;
    }
    assert(count <= s->capacity - s->used);
    if (count > 0)
        memcpy(s->buffer + s->used, bytes, count);
    s->used += count;
}

void ebb_sink_zeros(ebb_sink *s, uint64_t until)
{
    static const uint8_t zeros[4096];
    while (s->written < until) {
        uint64_t left = until - s->written;
        ebb_sink_write(s, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros);
    }
}

static void append(ProtobufCBuffer *base, size_t count, const uint8_t *bytes)
{
    ebb_sink_write((ebb_sink *)(void *)base, bytes, count);
}

ebb_status ebb_sink_memory(ebb_sink *s, size_t bytes)
{
    *s = (ebb_sink){.base = {append}, .fd = -1, .capacity = bytes};
    s->buffer = ebb_alloc(bytes);
    return s->buffer != NULL ? NULL : ebb_error_memory();
}

/* As open(2) would have made it, or as the file that will be replaced has it. */
static mode_t mode_for(const char *path)
{
    struct stat facts;
    if (stat(path, &facts) == 0)
        return facts.st_mode & 0777;
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

ebb_status ebb_sink_open(ebb_sink *s, const char *path)
{
    size_t length = strlen(path) + sizeof ".XXXXXX";
    *s = (ebb_sink){.base = {append}, .path = path, .fd = -1, .capacity = BUFFER_BYTES};
    s->temporary = ebb_alloc(length);
    s->buffer = ebb_alloc(BUFFER_BYTES);
    if (s->temporary == NULL || s->buffer == NULL) {
        ebb_free(s->temporary);
        s->temporary = NULL;
        ebb_sink_close(s);
        return ebb_error_memory();
    }
    (void)snprintf(s->temporary, length, "%s.XXXXXX", path);
    s->fd = mkstemp(s->temporary);
    if (s->fd >= 0 && fchmod(s->fd, mode_for(path)) == 0)
        return NULL;
    ebb_status status = ebb_error_io(path, "writing");
    if (s->fd < 0) {
        ebb_free(s->temporary);
        s->temporary = NULL;
    }
    ebb_sink_close(s);
    return status;
}

ebb_status ebb_sink_finish(ebb_sink *s)
{
    if (s->path == NULL)
        return NULL;
    flush(s);
    if (s->error == 0 && fsync(s->fd) != 0)
        s->error = errno;
    if (close(s->fd) != 0 && s->error == 0)
        s->error = errno;
    s->fd = -1;
    errno = s->error;
    return s->error == 0 ? NULL : ebb_error_io(s->path, "writing");
}

ebb_status ebb_sink_rename(ebb_sink *s)
{
    if (s->path == NULL)
        return NULL;
    if (rename(s->temporary, s->path) != 0)
        return ebb_error_io(s->path, "writing");
    ebb_free(s->temporary);
    s->temporary = NULL;
    return NULL;
}

void ebb_sink_close(ebb_sink *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->temporary != NULL)
        unlink(s->temporary);
    ebb_free(s->temporary);
    ebb_free(s->buffer);
    *s = (ebb_sink){.fd = -1};
}
