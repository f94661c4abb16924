/* wire.c: walk protobuf bytes against descriptors, slim them, hand them to protobuf-c.
 *
 * One stack of frames, one for each message that is open. The first walk checks; the second, of
 * bytes that are known to be fine, makes the slim copy, which is the input with every tag
 * and length rewritten: the length of a message is kept open as five bytes until the message ends
 * (a padded varint is legal, and protobuf-c reads up to five).
 */
#include "onnx/file/wire.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "onnx.pb-c.h"

enum { VARINT_MOST = 10, LENGTH_BYTES = 5, FIELDS_MOST = 32, REFERENCE_BYTES = 16 };

enum { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_LENGTH = 2, WIRE_4_BYTES = 5 };

typedef struct frame {
    const ProtobufCMessageDescriptor *type;
    size_t end;       /* of this message in the input */
    size_t length_at; /* where the slim copy holds its length */
    unsigned member_count;
    unsigned field;             /* being read, as an index into type->fields; UINT_MAX: unknown */
    uint32_t number;            /* of that field */
    uint32_t seen[FIELDS_MOST]; /* how often each field was there */
} frame;

typedef struct walk {
    const uint8_t *bytes;
    size_t at, size;
    bool copies;      /* of bytes that are known to be fine: makes the slim copy */
    uint64_t without; /* fields of the outermost message that the copy leaves out */
    uint8_t *slim;    /* from ebb_alloc */
    size_t slim_bytes, slim_capacity;
    size_t raw_bytes; /* of raw_data left out so far */
    uint64_t cost;    /* bytes that the parse will allocate, estimated from above */
    int depth;
    frame stack[EBB_WIRE_DEPTH];
} walk;

/* ---- errors ---- */

/* "graph.node[3].attribute", as deep as the stack is. */
static const char *path_of(const walk *w, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < w->depth && used + 1 < size; d++) {
        const frame *f = &w->stack[d];
        const char *dot = d > 0 ? "." : "";
        int n = 0;
        if (f->field == UINT_MAX && f->number == 0)
            break;
        if (f->field == UINT_MAX)
            n = snprintf(text + used, size - used, "%s(field %" PRIu32 ")", dot, f->number);
        else if (f->type->fields[f->field].label == PROTOBUF_C_LABEL_REPEATED)
            n = snprintf(text + used, size - used, "%s%s[%" PRIu32 "]", dot,
                         f->type->fields[f->field].name, f->seen[f->field] - 1);
        else
            n = snprintf(text + used, size - used, "%s%s", dot, f->type->fields[f->field].name);
        used += n > 0 ? (size_t)n : 0;
    }
    return text[0] != '\0' ? text : w->stack[0].type->short_name;
}

static ebb_status refuse(const walk *w, size_t at, const char *what)
{
    char path[256];
    return ebb_error(EBB_REJECTED, "byte %zu: %s: %s", at, path_of(w, path, sizeof path), what);
}

/* ---- the slim copy ---- */

static ebb_status reserve(walk *w, size_t bytes)
{
    size_t least;
    EBB_GOT(ebb_size_add(&least, w->slim_bytes, bytes));
    if (least <= w->slim_capacity)
        return NULL;
    size_t capacity = w->slim_capacity > 0 ? w->slim_capacity : 4096;
    while (capacity < least)
        EBB_GOT(ebb_size_mul(&capacity, capacity, 2));
    uint8_t *slim = ebb_realloc(w->slim, capacity);
    EBB_GOT(slim);
    w->slim = slim;
    w->slim_capacity = capacity;
    return NULL;
}

static ebb_status put_bytes(walk *w, const void *bytes, size_t count)
{
    if (w->copies)
        EBB_TRY(reserve(w, count));
    if (w->copies && count > 0)
        memcpy(w->slim + w->slim_bytes, bytes, count);
    w->slim_bytes += count;
    return NULL;
}

static ebb_status put_varint(walk *w, uint64_t x)
{
    uint8_t text[VARINT_MOST];
    size_t n = 0;
    for (; x >= 0x80; x >>= 7)
        text[n++] = (uint8_t)(x | 0x80);
    text[n++] = (uint8_t)x;
    return put_bytes(w, text, n);
}

static void set_length(walk *w, size_t at, size_t length)
{
    for (int i = 0; w->copies && i < LENGTH_BYTES; i++, length >>= 7)
        w->slim[at + (size_t)i] = (uint8_t)((length & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

/* ---- reading ---- */

static ebb_status get_varint(walk *w, size_t end, uint64_t *x)
{
    size_t start = w->at;
    *x = 0;
    for (int i = 0; i < VARINT_MOST; i++) {
        if (w->at >= end)
            return refuse(w, start, "a number runs past its parent");
        uint8_t byte = w->bytes[w->at++];
        if (i == VARINT_MOST - 1 && byte > 1)
            return refuse(w, start, "a number has more than 64 bits");
        *x |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80)
            return NULL;
    }
    return refuse(w, start, "a number has more than 10 bytes");
}

static ebb_status get_length(walk *w, size_t end, size_t *length)
{
    size_t start = w->at;
    uint64_t x;
    EBB_TRY(get_varint(w, end, &x));
    if (x > end - w->at)
        return refuse(w, start, "length runs past its parent");
    *length = (size_t)x;
    return NULL;
}

static int wire_type_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return WIRE_4_BYTES;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return WIRE_8_BYTES;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_LENGTH;
    default:
        return WIRE_VARINT;
    }
}

static unsigned field_index(const ProtobufCMessageDescriptor *type, uint32_t number)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(type, number);
    return f != NULL ? (unsigned)(f - type->fields) : UINT_MAX;
}

/* The parse may cost a fixed sum and a multiple of what the file holds beside weights, no more: a
 * two-byte empty message makes a struct a hundred times as large. Exporters' files need 3 to 10. */
static ebb_status charge(walk *w, uint64_t bytes)
{
    const uint64_t base = UINT64_C(64) << 20, factor = 32, most = UINT64_C(8) << 30;
    w->cost += bytes;
    if (w->copies)
        return NULL;
    uint64_t limit = base + factor * (w->at - w->raw_bytes);
    if (w->cost > (limit < most ? limit : most))
        return refuse(w, w->at, "would need far more memory than the file's size explains");
    return NULL;
}

static uint64_t grain(uint64_t bytes)
{
    return (bytes + 15) & ~UINT64_C(15);
}

/* A scanned member: protobuf-c keeps 16 on its stack and the rest in blocks that double. */
static ebb_status charge_member(walk *w, frame *f)
{
    enum { MEMBER_BYTES = 40 };
    return charge(w, ++f->member_count > 16 ? 2 * MEMBER_BYTES : 0);
}

static ebb_status push(walk *w, const ProtobufCMessageDescriptor *type, size_t length)
{
    if (w->depth == EBB_WIRE_DEPTH)
        return refuse(w, w->at, "messages are nested too deeply");
    assert(type->n_fields <= FIELDS_MOST);
    frame *f = &w->stack[w->depth];
    *f =
        (frame){.type = type, .end = w->at + length, .length_at = w->slim_bytes, .field = UINT_MAX};
    w->depth++;
    return charge(w, grain(type->sizeof_message) + 16);
}

static ebb_status walk_packed(walk *w, const ProtobufCFieldDescriptor *field, size_t length)
{
    size_t start = w->at, end = w->at + length;
    uint64_t count = 0, x;
    int wire = wire_type_of(field->type);
    if (wire == WIRE_VARINT) {
        for (; w->at < end; count++)
            EBB_TRY(get_varint(w, end, &x));
    } else {
        size_t each = wire == WIRE_4_BYTES ? 4 : 8;
        if (length % each != 0)
            return refuse(w, start, "a packed list ends inside an element");
        count = length / each;
        w->at = end;
    }
    EBB_TRY(charge(w, grain(count * (wire == WIRE_4_BYTES ? 4 : 8))));
    EBB_TRY(put_varint(w, length));
    return put_bytes(w, w->bytes + start, length);
}

/* A string, bytes, a packed list, an unknown field, or raw_data. */
static ebb_status walk_blob(walk *w, const ProtobufCFieldDescriptor *field, size_t length)
{
    const uint8_t *data = w->bytes + w->at;
    if (field != NULL && wire_type_of(field->type) != WIRE_LENGTH)
        return walk_packed(w, field, length);
    if (field != NULL && field->type == PROTOBUF_C_TYPE_STRING && length > 0 &&
        memchr(data, 0, length) != NULL)
        return refuse(w, w->at, "text holds a zero byte");
    w->at += length;
    const frame *f = &w->stack[w->depth - 1];
    if (field != NULL && f->type == &onnx__tensor_proto__descriptor &&
        strcmp(field->name, "raw_data") == 0) {
        uint64_t reference[2] = {(uint64_t)(data - w->bytes), length};
        static_assert(sizeof reference == REFERENCE_BYTES, "offset and length");
        w->raw_bytes += length;
        EBB_TRY(charge(w, 2 * REFERENCE_BYTES));
        EBB_TRY(put_varint(w, REFERENCE_BYTES));
        return put_bytes(w, reference, REFERENCE_BYTES);
    }
    EBB_TRY(charge(w, grain(length + 1) + 32));
    EBB_TRY(put_varint(w, length));
    return put_bytes(w, data, length);
}

static ebb_status walk_field(walk *w)
{
    frame *f = &w->stack[w->depth - 1];
    size_t start = w->at, length = 0;
    uint64_t tag, x;
    f->field = UINT_MAX;
    f->number = 0;
    EBB_TRY(get_varint(w, f->end, &tag));
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return refuse(w, start, "no field has this number");
    int wire = (int)(tag & 7);
    f->number = (uint32_t)(tag >> 3);
    f->field = field_index(f->type, f->number);
    const ProtobufCFieldDescriptor *field =
        f->field != UINT_MAX ? &f->type->fields[f->field] : NULL;
    bool repeated = field != NULL && field->label == PROTOBUF_C_LABEL_REPEATED;
    if (field != NULL)
        f->seen[f->field]++;
    if (wire == 3 || wire == 4)
        return refuse(w, start, "groups are not part of the format");
    if (wire > WIRE_4_BYTES)
        return refuse(w, start, "no such wire type");
    if (field != NULL && wire != wire_type_of(field->type) && !(repeated && wire == WIRE_LENGTH))
        return refuse(w, start, "the wire type is not this field's");
    if (field != NULL && field->type == PROTOBUF_C_TYPE_MESSAGE && !repeated &&
        f->seen[f->field] > 1)
        return refuse(w, start, "is given twice");
    EBB_TRY(charge_member(w, f));
    if (repeated)
        EBB_TRY(charge(w, 8));
    if (field == NULL)
        EBB_TRY(charge(w, 48));
    if (w->depth == 1 && wire == WIRE_LENGTH && f->number < 64 &&
        (w->without & EBB_FIELD(f->number)) != 0) {
        EBB_TRY(get_length(w, f->end, &length));
        w->at += length;
        return NULL;
    }
    EBB_TRY(put_varint(w, tag));

    switch (wire) {
    case WIRE_VARINT:
        EBB_TRY(get_varint(w, f->end, &x));
        return put_varint(w, x);
    case WIRE_8_BYTES:
    case WIRE_4_BYTES:
        length = wire == WIRE_4_BYTES ? 4 : 8;
        if (f->end - w->at < length)
            return refuse(w, start, "a number runs past its parent");
        w->at += length;
        return put_bytes(w, w->bytes + w->at - length, length);
    default:
        EBB_TRY(get_length(w, f->end, &length));
        if (field == NULL || field->type != PROTOBUF_C_TYPE_MESSAGE)
            return walk_blob(w, field, length);
        EBB_TRY(push(w, field->descriptor, length));
        if (w->copies)
            EBB_TRY(reserve(w, LENGTH_BYTES));
        w->slim_bytes += LENGTH_BYTES;
        return NULL;
    }
}

static ebb_status walk_message(walk *w, const ProtobufCMessageDescriptor *type)
{
    EBB_TRY(push(w, type, w->size));
    while (w->depth > 0) {
        frame *f = &w->stack[w->depth - 1];
        if (w->at < f->end) {
            EBB_TRY(walk_field(w));
            continue;
        }
        if (w->depth > 1) {
            size_t length = w->slim_bytes - f->length_at - LENGTH_BYTES;
            if (length > INT_MAX)
                return refuse(w, w->at, "is larger than 2 GiB without its weights");
            set_length(w, f->length_at, length);
        }
        w->depth--;
    }
    return NULL;
}

/* ---- the parse ---- */

static void *arena_alloc(void *arena, size_t bytes)
{
    return ebb_arena_alloc(arena, bytes);
}

static void arena_keep(void *arena, void *memory)
{
    (void)arena;
    (void)memory;
}

static void restore_fields(ProtobufCMessage *m, const uint8_t *bytes);

/* Points raw_data at the original bytes. The references were all written by the walk. */
static void restore_raw(Onnx__TensorProto *t, const uint8_t *bytes)
{
    uint64_t reference[2];
    if (!t->has_raw_data)
        return;
    assert(t->raw_data.len == REFERENCE_BYTES);
    memcpy(reference, t->raw_data.data, REFERENCE_BYTES);
    const uint8_t *data = bytes + reference[0];
    memcpy(&t->raw_data.data, &data, sizeof data); // the struct has no const; nobody writes there
    t->raw_data.len = (size_t)reference[1];
}

/* Depth is bounded by the walk. */
static void restore_message(ProtobufCMessage *m, const uint8_t *bytes)
{
    if (m == NULL)
        return;
    if (m->descriptor == &onnx__tensor_proto__descriptor)
        restore_raw((Onnx__TensorProto *)(void *)m, bytes);
    else
        restore_fields(m, bytes);
}

static void restore_fields(ProtobufCMessage *m, const uint8_t *bytes)
{
    char *base = (char *)m;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &m->descriptor->fields[i];
        if (field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t count;
            ProtobufCMessage **list;
            memcpy(&count, base + field->quantifier_offset, sizeof count);
            memcpy(&list, base + field->offset, sizeof list);
            for (size_t k = 0; k < count; k++)
                restore_message(list[k], bytes);
            continue;
        }
        uint32_t chosen;
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
            memcpy(&chosen, base + field->quantifier_offset, sizeof chosen);
            if (chosen != field->id)
                continue;
        }
        ProtobufCMessage *child;
        memcpy(&child, base + field->offset, sizeof child);
        restore_message(child, bytes);
    }
}

static ebb_status make_walk(walk **w, const void *bytes, size_t size)
{
    *w = ebb_alloc(sizeof **w);
    EBB_GOT(*w);
    memset(*w, 0, offsetof(walk, stack));
    (*w)->bytes = bytes;
    (*w)->size = size;
    return NULL;
}

ebb_status ebb_wire_check(const ProtobufCMessageDescriptor *type, const void *bytes, size_t size)
{
    walk *w;
    EBB_TRY(make_walk(&w, bytes, size));
    ebb_status status = walk_message(w, type);
    if (status == NULL && w->slim_bytes > INT_MAX)
        status = ebb_error(EBB_REJECTED, "is larger than 2 GiB without its weights");
    ebb_free(w);
    return status;
}

ebb_status ebb_wire_part(ProtobufCMessage **message, ebb_arena *arena,
                         const ProtobufCMessageDescriptor *type, ebb_encoded bytes,
                         uint64_t without)
{
    walk *w;
    EBB_TRY(make_walk(&w, bytes.bytes, bytes.size));
    w->copies = true;
    w->without = without;
    ebb_status status = walk_message(w, type);
    if (status == NULL) {
        ProtobufCAllocator allocator = {arena_alloc, arena_keep, arena};
        static const uint8_t nothing[1];
        const uint8_t *slim = w->slim != NULL ? w->slim : nothing;
        *message = protobuf_c_message_unpack(type, &allocator, w->slim_bytes, slim);
        // The walk has checked all that the parse checks, so that it can only want for memory.
        if (*message == NULL)
            status = ebb_error_memory();
        else
            restore_message(*message, bytes.bytes);
    }
    ebb_free(w->slim);
    ebb_free(w);
    return status;
}

ebb_status ebb_wire_parse(ProtobufCMessage **message, ebb_arena *arena,
                          const ProtobufCMessageDescriptor *type, const void *bytes, size_t size)
{
    EBB_TRY(ebb_wire_check(type, bytes, size));
    return ebb_wire_part(message, arena, type, (ebb_encoded){bytes, size}, 0);
}
