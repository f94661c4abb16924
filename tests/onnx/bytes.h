/* bytes.h: protobuf by hand, for models that no writer would make.
 *
 *     bytes b = {0};
 *     size_t graph = open_message(&b, 7);
 *     put_text(&b, 2, "g");
 *     close_message(&b, graph);
 */
#pragma once

#include <assert.h>
#include <stdint.h>
#include <string.h>

typedef struct bytes {
    uint8_t data[8192];
    size_t count;
} bytes;

static inline void put_byte(bytes *b, uint8_t x)
{
    assert(b->count < sizeof b->data);
    b->data[b->count++] = x;
}

static inline void put_varint(bytes *b, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        put_byte(b, (uint8_t)(x | 0x80));
    put_byte(b, (uint8_t)x);
}

static inline void put_tag(bytes *b, unsigned field, unsigned wire)
{
    put_varint(b, field << 3 | wire);
}

static inline void put_int(bytes *b, unsigned field, int64_t x)
{
    put_tag(b, field, 0);
    put_varint(b, (uint64_t)x);
}

static inline void put_blob(bytes *b, unsigned field, const void *data, size_t count)
{
    put_tag(b, field, 2);
    put_varint(b, count);
    for (size_t i = 0; i < count; i++)
        put_byte(b, ((const uint8_t *)data)[i]);
}

static inline void put_text(bytes *b, unsigned field, const char *text)
{
    put_blob(b, field, text, strlen(text));
}

/* The message's length is put in when it is closed. */
static inline size_t open_message(bytes *b, unsigned field)
{
    put_tag(b, field, 2);
    return b->count;
}

static inline void close_message(bytes *b, size_t start)
{
    bytes inside = {.count = b->count - start};
    memcpy(inside.data, b->data + start, inside.count);
    b->count = start;
    put_varint(b, inside.count);
    for (size_t i = 0; i < inside.count; i++)
        put_byte(b, inside.data[i]);
}

static inline void put_entry(bytes *b, unsigned field, const char *key, const char *value)
{
    size_t entry = open_message(b, field);
    put_text(b, 1, key);
    put_text(b, 2, value);
    close_message(b, entry);
}

/* ---- pieces of a model, in the order of their numbers ---- */

static inline size_t open_model(bytes *b)
{
    put_int(b, 1, 10);
    return open_message(b, 7);
}

static inline void close_model(bytes *b, size_t graph)
{
    close_message(b, graph);
    size_t import = open_message(b, 8);
    put_text(b, 1, "");
    put_int(b, 2, 17);
    close_message(b, import);
}

/* Inputs and outputs NULL-terminated. */
static inline void put_node(bytes *b, const char *op, const char *name, const char *const *in,
                            const char *const *out)
{
    size_t node = open_message(b, 1);
    for (; *in != NULL; in++)
        put_text(b, 1, *in);
    for (; *out != NULL; out++)
        put_text(b, 2, *out);
    put_text(b, 3, name);
    put_text(b, 4, op);
    close_message(b, node);
}

/* field: 11 input, 12 output, 13 value_info. A float tensor of `rank` dims. */
static inline void put_value(bytes *b, unsigned field, const char *name, int rank,
                             const int64_t *dims)
{
    size_t value = open_message(b, field);
    put_text(b, 1, name);
    size_t type = open_message(b, 2), tensor = open_message(b, 1);
    put_int(b, 1, 1);
    size_t shape = open_message(b, 2);
    for (int i = 0; i < rank; i++) {
        size_t dim = open_message(b, 1);
        put_int(b, 1, dims[i]);
        close_message(b, dim);
    }
    close_message(b, shape);
    close_message(b, tensor);
    close_message(b, type);
    close_message(b, value);
}

static inline size_t open_initializer(bytes *b, int rank, const int64_t *dims)
{
    size_t tensor = open_message(b, 5);
    for (int i = 0; i < rank; i++)
        put_int(b, 1, dims[i]);
    put_int(b, 2, 1);
    return tensor;
}

static inline void put_initializer(bytes *b, const char *name, int rank, const int64_t *dims,
                                   size_t raw_bytes)
{
    static const uint8_t raw[256];
    size_t tensor = open_initializer(b, rank, dims);
    put_text(b, 8, name);
    put_blob(b, 9, raw, raw_bytes);
    close_message(b, tensor);
}

static inline void put_external(bytes *b, const char *name, int64_t elements, const char *location,
                                const char *offset, const char *length)
{
    size_t tensor = open_initializer(b, 1, &elements);
    put_text(b, 8, name);
    put_entry(b, 13, "location", location);
    if (offset != NULL)
        put_entry(b, 13, "offset", offset);
    if (length != NULL)
        put_entry(b, 13, "length", length);
    put_int(b, 14, 1);
    close_message(b, tensor);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DIMS(...)                                                    \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
        ((const int64_t[]){__VA_ARGS__})
