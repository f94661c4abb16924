/* corpus.h: files made to break a reader, a table by class: what is written, what is done with it,
 * the exit code and the sentence that it must end with. The classes are those in which other tools
 * have failed.
 *
 * A file's content is one of
 *     text    a model in ONNX text, for what is wrong with operators
 *     make    protobuf written field by field (bytes.h), for what no writer would write
 *     bytes   as they stand; BYTES(0x3a, ...)
 *     json    the header of a safetensors file, `count` bytes of zeros behind it
 *     NULL    none: it is there already (link, pipe, folder)
 * `command` is what follows `ebb`; % is the file. Beside the file lie those of corpus_beside().
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>
#include <unistd.h>

#include "onnx/file/file.h"
#include "tests/formatted.h"
#include "tests/onnx/bytes.h"

typedef struct hostile_file {
    const char *class, *name, *command;
    int code; /* exit code: ebb_code */
    const char *says;
    const char *text;
    void (*make)(bytes *b); /* the fields of a graph */
    void (*make_model)(bytes *b);
    const char *json;
    size_t count;
    const uint8_t *data;
} hostile_file;

#define BYTES(...) \
    .data = (const uint8_t[]){__VA_ARGS__}, .count = sizeof((const uint8_t[]){__VA_ARGS__})

/* A model in text: inputs, outputs, initializers, nodes. */
#define MODEL(in, out, init, nodes)                                                      \
    .text = "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>\ng (" in \
            ") => (" out ") <" init "> {" nodes "}\n"

#include "tests/hostile/corpus_bytes.h"
#include "tests/hostile/corpus_text.h"
#include "tests/owned.h"

/* All of them. */
static const struct {
    const hostile_file *files;
    size_t count;
} corpus_parts[] = {
    {corpus_bytes, sizeof corpus_bytes / sizeof corpus_bytes[0]},
    {corpus_text, sizeof corpus_text / sizeof corpus_text[0]},
};
enum { CORPUS_PARTS = sizeof corpus_parts / sizeof corpus_parts[0] };

/* ---- writing them ---- */

static inline bool corpus_write(const char *folder, const char *name, const void *data, size_t size)
{
    FILE *file = fopen(formatted("%s/%s", folder, name), "wb");
    bool written = file != NULL && fwrite(data, 1, size, file) == size;
    return file != NULL && fclose(file) == 0 && written;
}

/* The file's bytes, from malloc; false where it has none of its own, or its text is no model (which
 * is said). */
static inline bool corpus_content(const hostile_file *f, void **data, size_t *size)
{
    bytes b = {.count = 0};
    *data = NULL;
    if (f->text != NULL) {
        OWNED_MODEL *model = NULL;
        ebb_status status = ebb_text_parse_model(&model, f->text);
        if (status == NULL)
            status = ebb_model_write_memory(model, data, size);
        if (status != NULL)
            (void)fprintf(stderr, "%s: %s\n", f->name, ebb_status_text(status));
        return status == NULL;
    }
    if (f->make != NULL) {
        size_t graph = open_model(&b);
        f->make(&b);
        close_model(&b, graph);
    } else if (f->make_model != NULL) {
        f->make_model(&b);
    } else if (f->json != NULL) {
        size_t length = strlen(f->json);
        for (int i = 0; i < 8; i++)
            put_byte(&b, (uint8_t)((uint64_t)length >> (8 * i)));
        for (size_t i = 0; i < length + f->count; i++)
            put_byte(&b, i < length ? (uint8_t)f->json[i] : 0);
    } else if (f->data != NULL) {
        memcpy(b.data, f->data, f->count);
        b.count = f->count;
    } else {
        return false;
    }
    *data = malloc(b.count + 1);
    *size = b.count;
    if (*data != NULL)
        memcpy(*data, b.data, b.count);
    return *data != NULL;
}

/* What hostile models point at: weights, and everything that only looks like weights. */
static inline bool corpus_beside(const char *folder)
{
    char path[512], to[512];
    uint8_t weights[64] = {0};
    if (!corpus_write(folder, "w.bin", weights, sizeof weights))
        return false;
#define BESIDE(call, name)                                 \
    (void)snprintf(path, sizeof path, "%s/" name, folder); \
    if ((call) != 0)                                       \
    return false
    BESIDE(symlink("/etc/hostname", path), "link");
    BESIDE(symlink("/etc", path), "folder_link");
    BESIDE(symlink("loop", path), "loop");
    BESIDE(mkdir(path, 0700), "folder");
    BESIDE(mkfifo(path, 0600), "pipe");
    (void)snprintf(to, sizeof to, "%s/w.bin", folder);
    BESIDE(0, "hard");
    if (!corpus_write(folder, "origin", weights, sizeof weights))
        return false;
    (void)snprintf(to, sizeof to, "%s/origin", folder);
    BESIDE(link(to, path), "hard");
#undef BESIDE
    return true;
}
