/* wire_parts.c: where the messages inside a message lie, in bytes that have been checked. */
#include "onnx/file/wire.h"

enum { VARINT = 0, LENGTH = 2, FOUR_BYTES = 5 }; // wire types

static uint64_t checked_varint(const uint8_t **at)
{
    uint64_t x = 0;
    unsigned shift = 0;
    for (; **at >= 0x80; shift += 7)
        x |= (uint64_t)(*(*at)++ & 0x7f) << shift;
    return x | (uint64_t) * (*at)++ << shift;
}

ebb_encoded ebb_wire_bytes(const void *part)
{
    const uint8_t *at = part;
    size_t size = (size_t)checked_varint(&at);
    return (ebb_encoded){at, size};
}

const void *ebb_wire_next(ebb_encoded message, uint32_t field, size_t *at)
{
    while (*at < message.size) {
        const uint8_t *byte = message.bytes + *at, *part;
        uint64_t tag = checked_varint(&byte);
        part = byte;
        switch (tag & 7) {
        case VARINT:
            (void)checked_varint(&byte);
            break;
        case LENGTH: {
            ebb_encoded held = ebb_wire_bytes(part);
            byte = held.bytes + held.size;
            break;
        }
        default:
            byte += (tag & 7) == FOUR_BYTES ? 4 : 8;
        }
        *at = (size_t)(byte - message.bytes);
        if (tag == ((uint64_t)field << 3 | LENGTH))
            return part;
    }
    return NULL;
}

size_t ebb_wire_count(ebb_encoded message, uint32_t field)
{
    size_t count = 0;
    for (size_t at = 0; ebb_wire_next(message, field, &at) != NULL;)
        count++;
    return count;
}
