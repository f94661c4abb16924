/* sink.c: write a file so that it is whole or absent.
 *
 *     path -> target           through symbolic links: they stay, and what they name is replaced
 *     target.ebb-tmp-XXXXXX    beside the target, locked by its writer until it is renamed
 *
 * What is there and no regular file (a device, a pipe, an open descriptor as /dev/fd/N) has no such
 * other name: the bytes go straight into it.
 *
 * A lock ends with the process that holds it, so a temporary that can be locked is a dead run's,
 * and goes when the same file is written again. Process ids would not tell: they are used again,
 * and a folder may be shared with another machine.
 */
#include "onnx/file/sink.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 * 1024, MOST_LINKS = 40 /* as Linux follows */ };

static const char mark[] = ".ebb-tmp-", drawn[] = "XXXXXX";

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
    static uint8_t zeros[4096]; // not const: so it takes no room in the library's file
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

/* ---- where the file is to be ---- */

/* Length of the folder's part of a path, with the slash. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash + 1 - path) : 0;
}

/* head[0..length) and tail, for ebb_free(); NULL without memory. */
static char *joined(const char *head, size_t length, const char *tail)
{
    size_t rest = strlen(tail) + 1;
    char *text = ebb_alloc(length + rest);
    if (text == NULL)
        return NULL;
    memcpy(text, head, length);
    memcpy(text + length, tail, rest);
    return text;
}

/* What the link *path names takes its place. False where it is no link, or with errno. */
static bool follow(char **path)
{
    char name[4096];
    ssize_t length = readlink(*path, name, sizeof name);
    errno = length < 0 ? errno : length == (ssize_t)sizeof name ? ENAMETOOLONG : 0;
    if (length < 0 || errno != 0)
        return false;
    name[length] = '\0';
    char *next = joined(*path, name[0] == '/' ? 0 : folder_length(*path), name);
    errno = next == NULL ? ENOMEM : 0;
    if (next == NULL)
        return false;
    ebb_free(*path);
    *path = next;
    return true;
}

int ebb_sink_descriptor(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    char *end = NULL;
    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *digits = path + strlen(folders[i]);
        if (strncmp(path, folders[i], strlen(folders[i])) != 0 || *digits < '0' || *digits > '9')
            continue;
        long n = strtol(digits, &end, 10);
        return *end == '\0' && n <= INT_MAX ? (int)n : -1;
    }
    return -1;
}

ebb_status ebb_sink_target(char **target, const char *path)
{
    *target = joined(path, strlen(path), "");
    EBB_GOT(*target);
    if (ebb_sink_descriptor(path) >= 0)
        return NULL;
    int links = 0;
    while (follow(target))
        if (++links > MOST_LINKS) {
            errno = ELOOP;
            break;
        }
    ebb_status status = NULL;
    if (errno == ENOMEM)
        status = ebb_error_memory();
    else if (errno == ENAMETOOLONG || links > MOST_LINKS)
        status = ebb_error_io(path, "following the link");
    if (status != NULL) {
        ebb_free(*target);
        *target = NULL;
    }
    return status;
}

static ebb_status find_target(ebb_sink *s)
{
    struct stat facts;
    if (ebb_sink_descriptor(s->path) >= 0) {
        s->is_stream = true;
        return NULL;
    }
    EBB_TRY(ebb_sink_target(&s->target, s->path));
    s->is_stream = stat(s->target, &facts) == 0 && !S_ISREG(facts.st_mode);
    if (s->is_stream && S_ISDIR(facts.st_mode))
        return ebb_error(EBB_IO, "%s: writing: it is a folder", s->path);
    return NULL;
}

/* ---- temporaries ---- */

/* Only its writer has it locked. */
static bool lock(int file)
{
    while (flock(file, LOCK_EX | LOCK_NB) != 0)
        if (errno != EINTR)
            return false;
    return true;
}

static void remove_if_dead(int folder, const char *name)
{
    struct stat facts;
    int file = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return;
    if (fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && lock(file))
        (void)unlinkat(folder, name, 0);
    (void)close(file);
}

/* Temporaries of this target whose writers are no more. What cannot be looked at stays. */
static void remove_dead(const char *target)
{
    size_t length = folder_length(target);
    const char *base = target + length;
    size_t named = strlen(base), marked = named + strlen(mark);
    char *folder = joined(target, length, ".");
    DIR *entries = folder != NULL ? opendir(folder) : NULL;
    const struct dirent *e;
    while (entries != NULL && (e = readdir(entries)) != NULL)
        if (strncmp(e->d_name, base, named) == 0 &&
            strncmp(e->d_name + named, mark, strlen(mark)) == 0 &&
            strlen(e->d_name + marked) == strlen(drawn))
            remove_if_dead(dirfd(entries), e->d_name);
    if (entries != NULL)
        (void)closedir(entries);
    ebb_free(folder);
}

/* s->temporary, open and locked. A writer that looks for dead ones may have had it first. */
static bool make_temporary(ebb_sink *s)
{
    size_t length = strlen(s->temporary);
    struct stat facts;
    for (;;) {
        memcpy(s->temporary + length - strlen(drawn), drawn, strlen(drawn));
        s->fd = mkstemp(s->temporary);
        if (s->fd < 0)
            return false;
        (void)fcntl(s->fd, F_SETFD, FD_CLOEXEC);         // no other program holds the lock
        bool ours = lock(s->fd) || errno != EWOULDBLOCK; // else it locks nothing, and so nobody
        if (ours && fstat(s->fd, &facts) == 0 && facts.st_nlink > 0)
            return true;
        (void)close(s->fd);
    }
}

static ebb_status open_stream(ebb_sink *s)
{
    const int open_already = ebb_sink_descriptor(s->path);
    s->fd = open_already >= 0 ? dup(open_already) : open(s->target, O_WRONLY | O_CLOEXEC);
    return s->fd >= 0 ? NULL : ebb_error_io(s->path, "writing");
}

static ebb_status open_file(ebb_sink *s)
{
    char tail[sizeof mark + sizeof drawn];
    EBB_TRY(find_target(s));
    s->buffer = ebb_alloc(BUFFER_BYTES);
    EBB_GOT(s->buffer);
    if (s->is_stream)
        return open_stream(s);
    (void)snprintf(tail, sizeof tail, "%s%s", mark, drawn);
    s->temporary = joined(s->target, strlen(s->target), tail);
    EBB_GOT(s->temporary);
    remove_dead(s->target);
    if (make_temporary(s) && fchmod(s->fd, mode_for(s->target)) == 0)
        return NULL;
    ebb_status status = ebb_error_io(s->path, "writing");
    if (s->fd < 0) {
        ebb_free(s->temporary);
        s->temporary = NULL;
    }
    return status;
}

ebb_status ebb_sink_open(ebb_sink *s, const char *path)
{
    *s = (ebb_sink){.base = {append}, .path = path, .fd = -1, .capacity = BUFFER_BYTES};
    ebb_status status = open_file(s);
    if (status != NULL)
        ebb_sink_close(s);
    return status;
}

ebb_status ebb_sink_check(const char *path)
{
    ebb_sink s = {.path = path, .fd = -1};
    ebb_status status = find_target(&s);
    if (status == NULL && !s.is_stream) {
        ebb_free(s.target);
        status = ebb_sink_open(&s, path);
    } else if (status == NULL) {
        const int file = ebb_sink_descriptor(path);
        if (file >= 0 ? fcntl(file, F_GETFL) < 0 : access(path, W_OK) != 0)
            status = ebb_error_io(path, "writing");
    }
    ebb_sink_close(&s);
    return status;
}

ebb_status ebb_sink_finish(ebb_sink *s)
{
    if (s->path == NULL)
        return NULL;
    flush(s);
    if (s->error == 0 && fsync(s->fd) != 0 && !s->is_stream) // of which most have no disk
        s->error = errno;
    errno = s->error;
    return s->error == 0 ? NULL : ebb_error_io(s->path, "writing");
}

/* The new name is on disk when the folder is. Some file systems cannot be asked for it. */
static bool sync_folder(const char *target)
{
    char *folder = joined(target, folder_length(target), ".");
    int file = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    ebb_free(folder);
    bool fine = file < 0 || fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP;
    int error = errno;
    if (file >= 0)
        (void)close(file);
    errno = error;
    return fine;
}

ebb_status ebb_sink_rename(ebb_sink *s)
{
    if (s->path == NULL || s->is_stream)
        return NULL;
    if (rename(s->temporary, s->target) != 0)
        return ebb_error_io(s->path, "writing");
    ebb_free(s->temporary);
    s->temporary = NULL;
    return sync_folder(s->target) ? NULL : ebb_error_io(s->path, "writing");
}

void ebb_sink_close(ebb_sink *s)
{
    if (s->temporary != NULL)
        unlink(s->temporary);
    if (s->fd >= 0)
        close(s->fd);
    ebb_free(s->temporary);
    ebb_free(s->target);
    ebb_free(s->buffer);
    *s = (ebb_sink){.fd = -1};
}

ebb_status ebb_sink_done(ebb_sink *s, ebb_status status)
{
    if (status == NULL)
        status = ebb_sink_finish(s);
    if (status == NULL)
        status = ebb_sink_rename(s);
    ebb_sink_close(s);
    return status;
}

ebb_status ebb_sink_text(const char *path, const char *text)
{
    ebb_sink s;
    EBB_TRY(ebb_sink_open(&s, path));
    ebb_sink_write(&s, text, strlen(text));
    ebb_sink_write(&s, "\n", 1);
    return ebb_sink_done(&s, NULL);
}
