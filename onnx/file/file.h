/* file.h: .onnx files and ONNX text, in and out.
 *
 * Reading: the file is mapped; wire.c checks the bytes against the schema (bounded, iterative) and
 * finds where raw weights lie; protobuf-c parses what is left; read.c makes the graph. Weights stay
 * mapped. Writing streams: weights go from the mapping to the file without a copy.
 */
#pragma once

#include "onnx/graph/graph.h"

/* From a file; external data is looked for beside it (of a link: beside what it names, and where nothing is there
 * beside the link) and must lie inside its folder. Missing
 * external files are no error: such tensors have no bytes (a skeleton). EBB_IO when it cannot be
 * read, EBB_REJECTED with the byte offset or node when it is not a legal model. */
ebb_status ebb_model_read(ebb_model **model, const char *path);
/* From memory, which must outlive the model. folder: for external data; NULL: there is none. */
ebb_status ebb_model_read_memory(ebb_model **model, const void *bytes, size_t size,
                                 const char *folder);

typedef struct ebb_write_options {
    size_t external_above_bytes; /* initializers of this size or more go to PATH.data; 0: as they
                                    are, unless the file would pass 2 GiB */
    bool no_bodies;              /* leave out the function bodies of operators */
} ebb_write_options;

/* Atomically: a temporary file beside it, renamed when complete. Nothing is left on failure. */
ebb_status ebb_model_write(const ebb_model *model, const char *path, const ebb_write_options *o);
/* Into memory from malloc, to be released with ebb_free. */
ebb_status ebb_model_write_memory(const ebb_model *model, void **bytes, size_t *size);

/* ONNX textual syntax (the dialect of onnx.parser and onnx.printer). Whole models, and the node
 * list alone, which is what patterns and bodies are written in. Errors name line and column. */
ebb_status ebb_text_parse_model(ebb_model **model, const char *text);
ebb_status ebb_text_parse_function(ebb_model *model, ebb_function *function, const char *text);
/* An operator's body (op.h). */
ebb_status ebb_text_parse_body(ebb_model *model, ebb_function *function, ebb_op op, int64_t opset,
                               bool narrow);
/* Into memory from malloc, to be released with ebb_free. Tensors of more than 64 elements are left
 * out and read back without bytes. Reading infers no types: ebb_infer_graph does. */
ebb_status ebb_text_print(char **text, const ebb_graph *g);
ebb_status ebb_text_print_model(char **text, const ebb_model *model);

/* The bytes of one value as a TensorProto file (test_data_set_*). Arena memory of the model's. */
ebb_status ebb_tensor_read_pb(ebb_tensor *tensor, const char **name, ebb_arena *arena,
                              const char *path);
