/* proto.h: single messages of the file format into plain data: a type, a tensor.
 *
 * Between wire.h (bytes to messages) and read.c (a model message to a graph). Only the files that
 * read and write the format include this.
 */
#pragma once

#include "onnx.pb-c.h"

#include "onnx/file/wire.h"
#include "onnx/graph/graph.h"
#include "onnx/words/map.h"

/* NULL or a type without a value gives kind UNKNOWN. Names are interned for symbols. EBB_REJECTED
 * for ranks above EBB_MAX_RANK and for negative dims other than -1, which some writers use for
 * unknown. */
ebb_status ebb_proto_type(ebb_type *type, ebb_names *names, const Onnx__TypeProto *proto);

/* Where external weights are looked for; mappings are added to the list. folder NULL: nowhere. */
typedef struct ebb_proto_files {
    struct ebb_mapping **mappings;
    const char *folder;
} ebb_proto_files;

/* The bytes stay where they are (raw or external), or are copied into the arena (a typed list), so
 * that the message may go; origin: its bytes. The sentence of an error has no place. */
ebb_status ebb_proto_tensor(ebb_tensor *tensor, ebb_arena *arena, const ebb_proto_files *files,
                            const Onnx__TensorProto *proto, const void *origin);

/* Metadata of an initializer whose bytes lie in a file that another one is the owner of: 16 hexadecimal digits, of where
 * they lie (the upper half) and of some of them. */
#define EBB_EXTERNAL_SUM "ebb.sum"
uint64_t ebb_proto_external_sum(const ebb_tensor *tensor);

/* Fields whose messages are read and written one after the other: onnx.proto has their numbers. */
enum {
    EBB_MODEL_GRAPH = 7,
    EBB_MODEL_TRAINING_INFO = 20,
    EBB_MODEL_FUNCTIONS = 25,
    EBB_TRAINING_INITIALIZATION = 1,
    EBB_FUNCTION_NODE = 7,
    EBB_FUNCTION_DEFAULT = 11,
    EBB_FUNCTION_VALUE_INFO = 12,
    EBB_GRAPH_NODE = 1,
    EBB_GRAPH_INITIALIZER = 5,
    EBB_GRAPH_INPUT = 11,
    EBB_GRAPH_OUTPUT = 12,
    EBB_GRAPH_VALUE_INFO = 13,
    EBB_NODE_ATTRIBUTE = 5,
    EBB_ATTRIBUTE_TENSOR = 5,
    EBB_ATTRIBUTE_GRAPH = 6,
    EBB_ATTRIBUTE_GRAPHS = 11,
};

#define EBB_MODEL_PARTS                                                \
    (EBB_FIELD(EBB_MODEL_GRAPH) | EBB_FIELD(EBB_MODEL_TRAINING_INFO) | \
     EBB_FIELD(EBB_MODEL_FUNCTIONS))
#define EBB_GRAPH_PARTS                                                                          \
    (EBB_FIELD(EBB_GRAPH_NODE) | EBB_FIELD(EBB_GRAPH_INITIALIZER) | EBB_FIELD(EBB_GRAPH_INPUT) | \
     EBB_FIELD(EBB_GRAPH_OUTPUT) | EBB_FIELD(EBB_GRAPH_VALUE_INFO))

/* Spellings in metadata "ebb.phase" and "ebb.role", by number; "" at 0. */
extern const char *const ebb_phase_spelling[EBB_PHASE_COUNT];
extern const char *const ebb_role_spelling[EBB_ROLE_COUNT];

/* The doc_string of a gradient node in ONNX Runtime's training graphs, and in ours. */
#define EBB_BACKWARD_DOC "Backward pass"
