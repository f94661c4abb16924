/* sink.h: a file being written, or memory, as a protobuf-c buffer. A file appears under its name
 * when it is complete and on disk, or not at all; where the name is a symbolic link, under the name
 * that it leads to. What a run that was killed left of the same file goes when it is written again.
 * A device, a pipe or a descriptor (/dev/fd/N, /dev/stdout) is never replaced: it is written into.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "onnx/words/arena.h"

typedef struct ebb_sink {
    ProtobufCBuffer base; /* first: protobuf-c calls back with this */
    const char *path;     /* of the finished file; NULL: memory */
    char *target;         /* what path leads to */
    char *temporary;
    bool is_stream; /* no regular file: written into, from its opening on */
    int fd;
    int error; /* errno of the first failure, after which nothing is written */
    uint8_t *buffer;
    size_t used, capacity;
    uint64_t written; /* bytes appended so far */
} ebb_sink;

/* A temporary file beside what `path`, which must stay valid, leads to; or that itself, where it is
 * no regular file. */
ebb_status ebb_sink_open(ebb_sink *sink, const char *path);
/* Whether one could be opened, before there is anything to write. Nothing is left or changed. */
ebb_status ebb_sink_check(const char *path);
/* The file that a path leads to through links, be it there yet or not; for ebb_free(). A descriptor's path is its own. */
ebb_status ebb_sink_target(char **target, const char *path);
/* The open descriptor that a path stands for, as /dev/fd/N does; -1: none. */
int ebb_sink_descriptor(const char *path);
/* Memory for exactly `bytes`; afterwards sink.buffer is the caller's, from ebb_alloc. */
ebb_status ebb_sink_memory(ebb_sink *sink, size_t bytes);

void ebb_sink_write(ebb_sink *sink, const void *bytes, size_t count); /* failure is kept */
void ebb_sink_zeros(ebb_sink *sink, uint64_t until);                  /* up to that offset */

ebb_status
ebb_sink_finish(ebb_sink *sink); /* flush, fsync; the file is still under its other name */
ebb_status ebb_sink_rename(ebb_sink *sink); /* now it appears */
void ebb_sink_close(ebb_sink *sink);        /* removes what was not renamed; memory is freed */
/* All three: the file appears, or not where `status` or a step of these is an error, which is returned. */
ebb_status ebb_sink_done(ebb_sink *sink, ebb_status status);

/* A whole file of a text and the end of its line. */
ebb_status ebb_sink_text(const char *path, const char *text);
