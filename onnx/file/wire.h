/* wire.h: look at protobuf bytes before protobuf-c does.
 *
 * protobuf-c parses what it is given: it copies every byte string and recurses as deep as the input
 * says. So the bytes are walked first, without recursion, against protobuf-c's own descriptors:
 * wire types, lengths inside the parent, varints of at most 10 bytes, no groups, bounded depth,
 * bounded memory for what the parse will allocate. The walk writes the message again without its
 * weights: each TensorProto.raw_data becomes a reference into the original bytes. Each one, so none
 * can be forged. After the parse raw_data is pointed back at the original bytes, which must outlive
 * the message.
 */
#ifndef EBB_ONNX_FILE_WIRE_H
#define EBB_ONNX_FILE_WIRE_H

#include <protobuf-c/protobuf-c.h>

#include "onnx/words/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_WIRE_DEPTH = 64 }; /* messages inside messages; a subgraph in a subgraph takes three */

/* Checks and parses; the message lives in the arena, raw_data in `bytes`. EBB_REJECTED says at
 * which byte, in which field: "byte 1234: graph.node[3].attribute[0]: length runs past its parent".
 */
ebb_status ebb_wire_parse(ProtobufCMessage **message, ebb_arena *arena,
                          const ProtobufCMessageDescriptor *type, const void *bytes, size_t size);

#ifdef __cplusplus
}
#endif
#endif
