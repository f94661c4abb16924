/* reader.h: what read.c (models, files), read_graph.c and read_node.c share. */
#pragma once

#include "onnx/file/proto.h"

typedef struct ebb_reader {
    ebb_model *model;
    ebb_arena *arena;   /* the model's */
    ebb_arena *scratch; /* until the reading ends */
    ebb_proto_files files;
    ebb_value *slots; /* of the node being added */
    size_t slot_capacity;
    char label[160];
} ebb_reader;

static inline const char *ebb_reader_text(const char *text)
{
    return text != NULL ? text : "";
}

static inline bool ebb_reader_is_blank(const char *text)
{
    return text == NULL || text[0] == '\0';
}

static inline bool ebb_reader_has_key(const Onnx__StringStringEntryProto *entry, const char *key)
{
    return entry->key != NULL && strcmp(entry->key, key) == 0;
}

/* The number of a spelling; 0 where there is none. */
uint8_t ebb_reader_number(const char *text, const char *const *spellings, int count);

/* "KIND 'NAME': " before the sentence. */
ebb_status ebb_reader_placed(ebb_status status, const char *kind, const char *name);

/* NULL stays "absent" and "" stays "". */
ebb_status ebb_reader_name(ebb_reader *r, ebb_str *name, const char *text);
ebb_status ebb_reader_prop(ebb_reader *r, ebb_props *props,
                           const Onnx__StringStringEntryProto *entry);

/* The value of a name, here or outside. A value of the graph outside gets a stand-in in each graph on the way. None
 * when there is none. */
ebb_status ebb_reader_value(ebb_reader *r, ebb_graph *g, ebb_value *value, const char *name);

/* A graph from its part; nodes, attributes and types from what `whole` has in a field. */
ebb_status ebb_reader_graph(ebb_reader *r, ebb_graph *g, const void *part);
ebb_status ebb_reader_nodes(ebb_reader *r, ebb_graph *g, ebb_encoded whole, uint32_t field);
ebb_status ebb_reader_infos(ebb_reader *r, ebb_graph *g, ebb_encoded whole, uint32_t field);
/* The list in this arena, what it points at in the model's. */
ebb_status ebb_reader_attrs(ebb_reader *r, ebb_graph *g, ebb_arena *lists, ebb_attr **attrs,
                            size_t *count, ebb_encoded whole, uint32_t field);

/* Calls `read` for each message that `whole` has in a field, without fields of a set. The message
 * is good until it returns; the part stays. */
typedef ebb_status ebb_part_reader(ebb_reader *r, ebb_graph *g, const void *part,
                                   const ProtobufCMessage *message);
ebb_status ebb_reader_parts(ebb_reader *r, ebb_graph *g, ebb_encoded whole, uint32_t field,
                            const ProtobufCMessageDescriptor *type, uint64_t without,
                            ebb_part_reader *read);
