/* writer.h: what write.c (models, files), write_out.c (bytes), write_graph.c (graphs and below),
 * write_info.c and write_tensor.c share.
 *
 * Messages are made anew in scratch memory, each as a copy of the one it came from (`origin`) with
 * the fields that the graph owns put in: what we do not know stays, and equal fields give equal
 * bytes. Of the main graph's nodes, initializers and values each is made when it is counted and
 * again when it is written, and forgotten each time: a length stands before what it is of, and all
 * of them together take many times the memory of the graph.
 */
#pragma once

#include "onnx/file/file.h"
#include "onnx/file/proto.h"
#include "onnx/file/sink.h"

typedef struct ebb_moved { /* weights that go to the data file */
    const void *data;
    size_t bytes;
    uint64_t offset;
} ebb_moved;

typedef struct ebb_writer {
    const ebb_model *model;
    ebb_arena arena;             /* of the messages at hand */
    ebb_arena kept;              /* until all is written */
    const Onnx__ModelProto *was; /* the file's model without its parts; NULL: there is no file */
    bool keeps_external;         /* external references stay good where the output goes */
    bool sums_external;          /* they are written with a sum of what they refer to */
    size_t external_above;       /* bytes; 0: leave weights where they are */
    const char *data_name;       /* file name for moved weights, NULL: nothing may move */
    const char *absent_name;     /* file name for weights that nobody has */
    uint64_t graph_bytes;        /* of the main graph */
    uint64_t data_end;
    ebb_moved *moved;
    size_t moved_count, moved_capacity;
    bool new_metadata;    /* needs IR version 10 */
    bool changed;         /* the main graph has other nodes than the file's */
    bool in_function;     /* nodes follow the function's imports, not the model's */
    const char **domains; /* used by nodes and not imported */
    size_t domain_count, domain_capacity;
    bool no_bodies;
    bool bodies[EBB_OP_COUNT]; /* operators in use that are to have their bodies in the file */
    bool bodies_narrow[EBB_OP_COUNT]; /* of these: a node is of 16 bits */
    bool bodies_wrong[EBB_OP_COUNT];  /* of these: a node uses it otherwise than the body says */
    bool failed;                      /* out of memory: asked once, at the end */
} ebb_writer;

/* Scratch memory, cleared; NULL sets `failed`. */
void *ebb_writer_new(ebb_writer *w, size_t count, size_t size);
#define EBB_WRITER_NEW(w, type, count) ((type *)ebb_writer_new((w), (count), sizeof(type)))

/* The message that something came from, without what it holds in the fields of a set, or an empty
 * one; NULL sets `failed`. */
void *ebb_writer_message(ebb_writer *w, const ProtobufCMessageDescriptor *type, const void *origin,
                         uint64_t without);
#define EBB_WRITER_MESSAGE(w, type, name, origin, without) \
    ((type *)ebb_writer_message((w), &onnx__##name##__descriptor, (origin), (without)))

/* protobuf-c's structs have no const; nothing writes through them. */
void *ebb_writer_loan(const void *memory);

/* NULL for an absent name. */
char *ebb_writer_text(const ebb_graph *g, ebb_str name);

typedef struct ebb_owned {   /* metadata that stands for a field of the graph's */
    const char *key, *value; /* value NULL: the field is not set */
} ebb_owned;

typedef struct ebb_entries {
    Onnx__StringStringEntryProto **list;
    size_t count;
} ebb_entries;

/* `was` with its values brought up to `props` and `owned`; then what is new. Keys in `elsewhere`
 * are another message's and not new. */
ebb_entries ebb_writer_props(ebb_writer *w, const ebb_graph *g, const ebb_props *props,
                             ebb_entries was, ebb_entries elsewhere, const ebb_owned *owned,
                             size_t owned_count);
bool ebb_writer_has_key(ebb_entries entries, const char *key);
Onnx__StringStringEntryProto *ebb_writer_entry(ebb_writer *w, const char *key, const char *value);

/* write_tensor.c. movable: an initializer, which may stand in a data file. */
Onnx__TensorProto *ebb_writer_tensor(ebb_writer *w, const ebb_tensor *tensor, bool movable);

const char *ebb_writer_free_name(ebb_writer *w, const char *base); /* for the data file */

/* Whether references to the data of others are written with a sum of the bytes: where the file is another than that
 * which it was made of, and has metadata of initializers. */
bool ebb_writer_sums(const ebb_writer *w);
/* The sum as text; NULL: the tensor is written with none. */
const char *ebb_writer_sum(ebb_writer *w, const ebb_tensor *tensor);
enum { EBB_IR_METADATA = 10 }; /* the first version with such metadata */

/* Whether nodes have come or gone since the file was read. */
bool ebb_writer_changed(const ebb_graph *g);

/* Takes the messages that a graph has many of, one after the other. It may empty w->arena. */
typedef struct ebb_pieces {
    void (*take)(struct ebb_pieces *pieces, ebb_writer *w, const ProtobufCMessage *message);
} ebb_pieces;

void ebb_writer_each_node(ebb_writer *w, const ebb_graph *g, ebb_pieces *to);
void ebb_writer_each_initializer(ebb_writer *w, const ebb_graph *g, ebb_pieces *to);
void ebb_writer_each_info(ebb_writer *w, const ebb_graph *g, ebb_pieces *to);
/* A graph without these, and with them; NULL when out of memory. */
Onnx__GraphProto *ebb_writer_frame(ebb_writer *w, const ebb_graph *g);
Onnx__GraphProto *ebb_writer_graph(ebb_writer *w, const ebb_graph *g);
void ebb_writer_nodes(ebb_writer *w, const ebb_graph *g, Onnx__NodeProto ***list, size_t *count);

/* write_info.c: v as an input, an output or a value in between. */
Onnx__ValueInfoProto *ebb_writer_info(ebb_writer *w, const ebb_graph *g, ebb_value v,
                                      const void *origin);

/* write_out.c: the bytes of a model whose graph is a frame, to be filled from w->model; sink NULL:
 * they are only counted. */
ebb_status ebb_writer_out(ebb_writer *w, const Onnx__ModelProto *model, ebb_sink *sink,
                          uint64_t *bytes);
/* What w->graph_bytes is, and what is noted while a graph's messages are made. */
void ebb_writer_count(ebb_writer *w, const Onnx__GraphProto *frame);

Onnx__AttributeProto *ebb_writer_attr(ebb_writer *w, const ebb_graph *g, const ebb_attr *attr);

/* write_body.c: the body that its operator has does not compute what this node does; it is of 16 bits. */
bool ebb_body_is_wrong(const ebb_graph *g, ebb_node n);
bool ebb_body_is_narrow(const ebb_graph *g, ebb_node n);
