/* wire.h: a model's file as a tree of protobuf fields, which can be changed where it hurts, and
 * written again. What a field is comes from the generated descriptors of onnx.proto; what a mutant
 * is, no writer would make.
 *
 *     bytes of a file --> wire_message: fields, of which some are messages --> strikes --> bytes
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "onnx.pb-c.h"

#include "onnx/words/arena.h"
#include "tests/hostile/draw.h"

typedef struct wire_message wire_message;

typedef struct wire_field {
    const ProtobufCFieldDescriptor *as; /* NULL: nobody knows it */
    uint32_t number;
    unsigned wire;  /* 0 varint, 1 eight bytes, 2 with a length, 5 four bytes */
    uint64_t value; /* of 0, 1 and 5 */
    const uint8_t *data;
    size_t size;           /* of 2 */
    wire_message *message; /* of 2, instead of data */
    uint64_t lie;          /* added to the length that is written */
} wire_field;

struct wire_message {
    const ProtobufCMessageDescriptor *as;
    wire_field *fields;
    size_t count, capacity;
};

/* ---- reading ---- */

static inline bool wire_varint(uint64_t *x, const uint8_t **at, const uint8_t *end)
{
    *x = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        *x |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static inline bool wire_fixed(uint64_t *x, const uint8_t **at, const uint8_t *end, size_t size)
{
    if ((size_t)(end - *at) < size)
        return false;
    *x = 0;
    for (size_t i = 0; i < size; i++)
        *x |= (uint64_t) * (*at)++ << (8 * i);
    return true;
}

static inline wire_field *wire_add(wire_message *m, ebb_arena *arena)
{
    if (!ebb_arena_grow(arena, &m->fields, m->count, &m->capacity, sizeof *m->fields))
        return NULL;
    m->fields[m->count] = (wire_field){0};
    return &m->fields[m->count++];
}

/* NULL: it is no message of this kind, or there is no memory. */
static inline wire_message *wire_read(const ProtobufCMessageDescriptor *as, const uint8_t *at,
                                      size_t size, ebb_arena *arena)
{
    const uint8_t *end = at + size;
    wire_message *m = EBB_NEW(arena, wire_message, 1);
    if (m == NULL)
        return NULL;
    m->as = as;
    while (at < end) {
        uint64_t tag, length;
        wire_field *f = wire_add(m, arena);
        if (f == NULL || !wire_varint(&tag, &at, end))
            return NULL;
        f->number = (uint32_t)(tag >> 3);
        f->wire = tag & 7;
        f->as = protobuf_c_message_descriptor_get_field(as, f->number);
        if (f->wire == 0 || f->wire == 1 || f->wire == 5) {
            if (f->wire == 0 ? !wire_varint(&f->value, &at, end)
                             : !wire_fixed(&f->value, &at, end, f->wire == 1 ? 8 : 4))
                return NULL;
            continue;
        }
        if (f->wire != 2 || !wire_varint(&length, &at, end) || length > (uint64_t)(end - at))
            return NULL;
        f->data = at;
        f->size = (size_t)length;
        at += length;
        if (f->as != NULL && f->as->type == PROTOBUF_C_TYPE_MESSAGE)
            f->message = wire_read(f->as->descriptor, f->data, f->size, arena);
    }
    return m;
}

/* ---- writing ---- */

static inline size_t wire_varint_size(uint64_t x)
{
    size_t size = 1;
    for (; x >= 0x80; x >>= 7)
        size++;
    return size;
}

static inline size_t wire_size(const wire_message *m);

static inline size_t wire_inner_size(const wire_field *f)
{
    return f->message != NULL ? wire_size(f->message) : f->size;
}

static inline size_t wire_size(const wire_message *m)
{
    size_t size = 0;
    for (size_t i = 0; i < m->count; i++) {
        const wire_field *f = &m->fields[i];
        size_t inner = f->wire == 2 ? wire_inner_size(f) : 0;
        size += wire_varint_size((uint64_t)f->number << 3 | f->wire);
        size += f->wire == 0   ? wire_varint_size(f->value)
                : f->wire == 1 ? 8
                : f->wire == 5 ? 4
                : f->wire == 2 ? wire_varint_size(inner + f->lie) + inner
                               : 0;
    }
    return size;
}

static inline uint8_t *wire_put_varint(uint8_t *to, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        *to++ = (uint8_t)(x | 0x80);
    *to++ = (uint8_t)x;
    return to;
}

/* to: room for wire_size(m). */
static inline uint8_t *wire_write(uint8_t *to, const wire_message *m)
{
    for (size_t i = 0; i < m->count; i++) {
        const wire_field *f = &m->fields[i];
        to = wire_put_varint(to, (uint64_t)f->number << 3 | f->wire);
        if (f->wire == 0)
            to = wire_put_varint(to, f->value);
        for (unsigned k = 0; k < (f->wire == 1 ? 8u : f->wire == 5 ? 4u : 0u); k++)
            *to++ = (uint8_t)(f->value >> (8 * k));
        if (f->wire != 2)
            continue;
        to = wire_put_varint(to, wire_inner_size(f) + f->lie);
        if (f->message != NULL) {
            to = wire_write(to, f->message);
        } else if (f->size > 0) {
            memcpy(to, f->data, f->size);
            to += f->size;
        }
    }
    return to;
}

/* ---- finding ---- */

typedef struct wire_place {
    wire_message *in;
    size_t at;
} wire_place;

typedef struct wire_places {
    wire_place *list;
    size_t count, capacity;
    ebb_arena *arena;
} wire_places;

typedef bool wire_test(const wire_field *f, const void *like);

/* Every field below m that passes the test. */
static inline bool wire_find(wire_places *p, wire_message *m, wire_test *test, const void *like)
{
    for (size_t i = 0; i < m->count; i++) {
        if (test(&m->fields[i], like)) {
            if (!ebb_arena_grow(p->arena, &p->list, p->count, &p->capacity, sizeof *p->list))
                return false;
            p->list[p->count++] = (wire_place){m, i};
        }
        if (m->fields[i].message != NULL && !wire_find(p, m->fields[i].message, test, like))
            return false;
    }
    return true;
}

static inline bool wire_is_any(const wire_field *f, const void *like)
{
    (void)f, (void)like;
    return true;
}

static inline bool wire_is_number(const wire_field *f, const void *like)
{
    (void)like;
    return f->wire == 0;
}

/* What decides about sizes and kinds: dims, kinds of elements and attributes, versions. */
static inline bool wire_is_size(const wire_field *f, const void *like)
{
    static const char *const names[] = {"dims",    "dim_value", "data_type", "elem_type", "type",
                                        "version", "ints",      "i",         "int64_data"};
    (void)like;
    for (size_t i = 0; f->as != NULL && f->wire == 0 && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(f->as->name, names[i]) == 0)
            return true;
    return false;
}

static inline bool wire_is_text(const wire_field *f, const void *like)
{
    (void)like;
    return f->as != NULL && f->wire == 2 && f->as->type == PROTOBUF_C_TYPE_STRING;
}

static inline bool wire_is_blob(const wire_field *f, const void *like)
{
    (void)like;
    return f->wire == 2 && f->message == NULL;
}

static inline bool wire_is_message(const wire_field *f, const void *like)
{
    return f->message != NULL && (like == NULL || f->message->as == like);
}

/* One of those, or NULL. */
static inline wire_field *wire_pick(draws *d, wire_message *m, wire_test *test, const void *like,
                                    ebb_arena *arena, wire_place *place)
{
    wire_places p = {.arena = arena};
    if (!wire_find(&p, m, test, like) || p.count == 0)
        return NULL;
    *place = p.list[draw(d, p.count)];
    return &place->in->fields[place->at];
}

/* By a walk from the root, which comes to what there is little of as often as to nodes. */
static inline wire_field *wire_walk(draws *d, wire_message *m, wire_place *place)
{
    while (m->count > 0) {
        *place = (wire_place){m, (size_t)draw(d, m->count)};
        wire_field *f = &m->fields[place->at];
        if (f->message == NULL || f->message->count == 0 || draw_once_in(d, 4))
            return f;
        m = f->message;
    }
    return NULL;
}

/* ---- changing ---- */

static inline wire_message *wire_copy(const wire_message *m, ebb_arena *arena)
{
    wire_message *copy = EBB_NEW(arena, wire_message, 1);
    if (copy == NULL)
        return NULL;
    copy->as = m->as;
    for (size_t i = 0; i < m->count; i++) {
        wire_field *f = wire_add(copy, arena);
        if (f == NULL)
            return NULL;
        *f = m->fields[i];
        if (f->message != NULL && (f->message = wire_copy(f->message, arena)) == NULL)
            return NULL;
    }
    return copy;
}

static inline void wire_drop(wire_place p)
{
    wire_message *m = p.in;
    memmove(&m->fields[p.at], &m->fields[p.at + 1], (m->count - p.at - 1) * sizeof *m->fields);
    m->count--;
}

/* Once more, at the end of its message. */
static inline void wire_double(wire_place p, ebb_arena *arena)
{
    wire_field *f = wire_add(p.in, arena);
    if (f == NULL)
        return;
    *f = p.in->fields[p.at];
    if (f->message != NULL)
        f->message = wire_copy(f->message, arena);
    if (f->message == NULL && p.in->fields[p.at].message != NULL)
        p.in->count--;
}

static inline uint64_t wire_extreme(draws *d)
{
    static const uint64_t odd[] = {0,
                                   1,
                                   2,
                                   UINT64_MAX,
                                   UINT64_MAX - 1,
                                   INT64_MAX,
                                   (uint64_t)INT64_MIN,
                                   INT32_MAX,
                                   (uint64_t)INT64_C(-2147483648),
                                   UINT32_MAX,
                                   UINT64_C(1) << 32,
                                   UINT64_C(1) << 40,
                                   UINT64_C(1) << 62,
                                   1000,
                                   65536};
    return draw_once_in(d, 3) ? draw(d, 32) : DRAW_ONE_OF(d, odd);
}

static inline void wire_retype(draws *d, wire_field *f, ebb_arena *arena)
{
    static const unsigned wires[] = {0, 1, 2, 5, 3, 4, 6};
    unsigned wire = DRAW_ONE_OF(d, wires);
    uint8_t *data = EBB_NEW(arena, uint8_t, 16);
    f->value = wire_extreme(d);
    f->message = wire == 2 ? f->message : NULL;
    if (wire == 2 && f->wire != 2 && data != NULL) {
        f->data = data;
        f->size = (size_t)(wire_put_varint(data, f->value) - data);
    }
    f->wire = wire;
}

static inline void wire_renumber(draws *d, wire_message *m, wire_field *f)
{
    static const uint32_t odd[] = {0, 1, 99, 536870911, 19000};
    f->number = m->as->n_fields > 0 && !draw_once_in(d, 4)
                    ? m->as->fields[draw(d, m->as->n_fields)].id
                    : DRAW_ONE_OF(d, odd);
}

static inline void wire_reword(draws *d, wire_message *root, wire_field *f, ebb_arena *arena)
{
    static const char *const odd[] = {
        "",     "..", "../../etc/passwd", "x",   "\xff\xfe", "a\0b", "ai.ebb", "com.microsoft",
        "Loop", "If", "ebb.key",          "0:0", "n"};
    wire_place other;
    wire_field *from = wire_pick(d, root, wire_is_text, NULL, arena, &other);
    if (from != NULL && !draw_once_in(d, 3)) { // exchanged, or the same
        wire_field kept = *f;
        f->data = from->data;
        f->size = from->size;
        if (draw_once_in(d, 2)) {
            from->data = kept.data;
            from->size = kept.size;
        }
    } else if (draw_once_in(d, 6)) {
        enum { LONG = 100000 };
        char *text = ebb_arena_alloc(arena, LONG);
        if (text != NULL)
            f->data = memset(text, 'l', LONG), f->size = LONG;
    } else {
        const char *text = DRAW_ONE_OF(d, odd);
        f->data = (const uint8_t *)text;
        f->size = text[0] == 'a' && text[1] == '\0' ? 3 : strlen(text);
    }
}

static inline void wire_strike(draws *d, wire_message *root, ebb_arena *arena)
{
    wire_place p, q;
    wire_field *f, *other;
    const uint64_t kind = draw(d, 14);
    f = draw_once_in(d, 2) ? wire_walk(d, root, &p)
                           : wire_pick(d, root, wire_is_any, NULL, arena, &p);
    if (f == NULL)
        return;
    switch (kind) {
    case 0:
        wire_drop(p);
        return;
    case 1:
        wire_double(p, arena);
        return;
    case 2:
        wire_retype(d, f, arena);
        return;
    case 3:
        wire_renumber(d, p.in, f);
        return;
    case 4:
    case 5:
    case 6:
        if ((f = wire_pick(d, root, kind == 4 ? wire_is_number : wire_is_size, NULL, arena, &p)))
            f->value = wire_extreme(d);
        return;
    case 7:
    case 8:
        if ((f = wire_pick(d, root, wire_is_text, NULL, arena, &p)) != NULL)
            wire_reword(d, root, f, arena);
        return;
    case 9:  // two messages of a kind exchange their places
    case 10: // or one stands in both, which may be around the other
        f = wire_pick(d, root, wire_is_message, NULL, arena, &p);
        other = f == NULL ? NULL : wire_pick(d, root, wire_is_message, f->message->as, arena, &q);
        if (other == NULL)
            return;
        wire_message *mine = wire_copy(f->message, arena),
                     *theirs = wire_copy(other->message, arena);
        if (mine == NULL || theirs == NULL)
            return;
        f->message = theirs;
        if (kind == 9)
            other->message = mine;
        return;
    case 11:
        if (f->wire == 2)
            f->lie = draw_once_in(d, 2) ? wire_extreme(d) : draw(d, 9) - 4;
        return;
    case 12:
        if ((f = wire_pick(d, root, wire_is_blob, NULL, arena, &p)) != NULL)
            f->size = f->size == 0 ? 0 : draw(d, f->size);
        return;
    default: // fields in another order
        for (size_t i = 0; i < p.in->count / 2; i++) {
            wire_field kept = p.in->fields[i];
            p.in->fields[i] = p.in->fields[p.in->count - 1 - i];
            p.in->fields[p.in->count - 1 - i] = kept;
        }
        return;
    }
}
