/* wire.h: look at protobuf bytes before protobuf-c does.
 *
 * protobuf-c parses what it is given: it copies every byte string and recurses as deep as the input
 * says. So the bytes are walked first, without recursion, against protobuf-c's own descriptors:
 * wire types, lengths inside the parent, varints of at most 10 bytes, no groups, bounded depth,
 * bounded memory for what the parse will allocate. A second walk writes a message again without its
 * weights: each TensorProto.raw_data becomes a reference into the original bytes. Each one, so none
 * can be forged. After the parse raw_data is pointed back at the original bytes, which must outlive
 * the message.
 *
 * A whole model as messages takes many times the bytes of the file. So it is checked as a whole and
 * then parsed in parts: a message without some of its fields, and what those hold one after the
 * other. A part is known by where it lies: a pointer to its length in the checked bytes.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "onnx/words/arena.h"

enum { EBB_WIRE_DEPTH = 64 }; /* messages inside messages; a subgraph in a subgraph takes three */

/* Checks and parses; the message lives in the arena, raw_data in `bytes`. EBB_REJECTED says at
 * which byte, in which field: "byte 1234: graph.node[3].attribute[0]: length runs past its parent".
 */
ebb_status ebb_wire_parse(ProtobufCMessage **message, ebb_arena *arena,
                          const ProtobufCMessageDescriptor *type, const void *bytes, size_t size);

/* The same check alone. */
ebb_status ebb_wire_check(const ProtobufCMessageDescriptor *type, const void *bytes, size_t size);

typedef struct ebb_encoded {
    const uint8_t *bytes;
    size_t size;
} ebb_encoded;

#define EBB_FIELD(number) (UINT64_C(1) << (number)) /* of a set of fields with numbers below 64 */

/* A message of checked bytes, without what it holds in the fields of a set. */
ebb_status ebb_wire_part(ProtobufCMessage **message, ebb_arena *arena,
                         const ProtobufCMessageDescriptor *type, ebb_encoded bytes,
                         uint64_t without);
/* The bytes of a part. */
ebb_encoded ebb_wire_bytes(const void *part);
/* The parts that a message of checked bytes has in a field of messages, one call after the other
 * with *at from 0 on; NULL: no more. */
size_t ebb_wire_count(ebb_encoded message, uint32_t field);
const void *ebb_wire_next(ebb_encoded message, uint32_t field, size_t *at);
