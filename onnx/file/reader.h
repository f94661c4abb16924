/* reader.h: what read.c (models, files) and read_graph.c (graphs and below) share. */
#ifndef EBB_ONNX_FILE_READER_H
#define EBB_ONNX_FILE_READER_H

#include "onnx/file/proto.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_reader {
    ebb_model *model;
    ebb_arena *arena;  /* the model's */
    ebb_arena scratch; /* until the reading ends */
    ebb_proto_files files;
    ebb_value *slots; /* of the node being added */
    size_t slot_capacity;
    char label[160];
} ebb_reader;

static inline const char *ebb_reader_text(const char *text)
{
    return text != NULL ? text : "";
}

/* "KIND 'NAME': " before the sentence. */
ebb_status ebb_reader_placed(ebb_status status, const char *kind, const char *name);

/* NULL stays "absent" and "" stays "". */
ebb_status ebb_reader_name(ebb_reader *r, ebb_str *name, const char *text);
ebb_status ebb_reader_prop(ebb_reader *r, ebb_props *props,
                           const Onnx__StringStringEntryProto *entry);

ebb_status ebb_reader_graph(ebb_reader *r, ebb_graph *g, const Onnx__GraphProto *proto);

/* Parts of a graph, for function bodies. */
ebb_status ebb_reader_nodes(ebb_reader *r, ebb_graph *g, Onnx__NodeProto *const *protos,
                            size_t count);
ebb_status ebb_reader_attrs(ebb_reader *r, ebb_graph *g, ebb_attr **attrs,
                            Onnx__AttributeProto *const *protos, size_t count);
ebb_status ebb_reader_infos(ebb_reader *r, ebb_graph *g, Onnx__ValueInfoProto *const *list,
                            size_t count);

#ifdef __cplusplus
}
#endif
#endif
