/* proto.h: single messages of the file format into plain data: a type, a tensor.
 *
 * Between wire.h (bytes to messages) and read.c (a model message to a graph). Only the files that
 * read and write the format include this.
 */
#ifndef EBB_ONNX_FILE_PROTO_H
#define EBB_ONNX_FILE_PROTO_H

#include "onnx.pb-c.h"

#include "onnx/graph/graph.h"
#include "onnx/words/map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NULL or a type without a value gives kind UNKNOWN. Names are interned for symbols. EBB_REJECTED
 * for ranks above EBB_MAX_RANK and for negative dims other than -1, which some writers use for
 * unknown. */
ebb_status ebb_proto_type(ebb_type *type, ebb_names *names, const Onnx__TypeProto *proto);

/* Where external weights are looked for; mappings are added to the list. folder NULL: nowhere. */
typedef struct ebb_proto_files {
    struct ebb_mapping **mappings;
    const char *folder;
} ebb_proto_files;

/* The bytes stay where they are (raw, external, or a typed list whose elements are as wide as the
 * dtype's); other typed lists are narrowed into the arena. The sentence of an error has no place.
 */
ebb_status ebb_proto_tensor(ebb_tensor *tensor, ebb_arena *arena, const ebb_proto_files *files,
                            const Onnx__TensorProto *proto);

/* Spellings in metadata "ebb.phase" and "ebb.role", by number; "" at 0. */
extern const char *const ebb_phase_spelling[EBB_PHASE_COUNT];
extern const char *const ebb_role_spelling[EBB_ROLE_COUNT];

/* The doc_string of a gradient node in ONNX Runtime's training graphs, and in ours. */
#define EBB_BACKWARD_DOC "Backward pass"

#ifdef __cplusplus
}
#endif
#endif
