/* write_out.c: a model's message into bytes, of its graph one piece after the other.
 *
 *     model  fields 1 to 6 | 7, length of the graph | graph | the other fields
 *     graph  nodes | name | initializers | doc_string, inputs, outputs | value_info | the others
 *
 * So protobuf-c would order them: by number. Messages may come in parts, whose bytes are
 * concatenated.
 */
#include "onnx/file/writer.h"

enum { MODEL_GRAPH = 7, GRAPH_NODE = 1, GRAPH_INITIALIZER = 5, GRAPH_VALUE_INFO = 13 };
enum { SCRATCH_BYTES = 1 << 20 };

typedef struct out {
    ebb_pieces base;
    ebb_sink *sink; /* NULL: bytes are only counted */
    uint64_t bytes;
    uint64_t field; /* of the graph, of the messages to come */
} out;

static void put_varint(out *o, uint64_t x)
{
    uint8_t text[10];
    size_t n = 0;
    for (; x >= 0x80; x >>= 7)
        text[n++] = (uint8_t)(x | 0x80);
    text[n++] = (uint8_t)x;
    o->bytes += n;
    if (o->sink != NULL)
        ebb_sink_write(o->sink, text, n);
}

/* The number of a field that is a message, and its length. */
static void put_head(out *o, uint64_t field, uint64_t bytes)
{
    enum { LENGTH_DELIMITED = 2 };
    put_varint(o, field << 3 | LENGTH_DELIMITED);
    put_varint(o, bytes);
}

static void put_fields(out *o, const ProtobufCMessage *message)
{
    o->bytes += o->sink != NULL ? protobuf_c_message_pack_to_buffer(message, &o->sink->base)
                                : protobuf_c_message_get_packed_size(message);
}

static void put_piece(ebb_pieces *pieces, ebb_writer *w, const ProtobufCMessage *message)
{
    out *o = (out *)(void *)pieces;
    const size_t bytes = protobuf_c_message_get_packed_size(message);
    put_head(o, o->field, bytes);
    if (o->sink != NULL)
        (void)protobuf_c_message_pack_to_buffer(message, &o->sink->base);
    o->bytes += bytes;
    if (w->arena.used_bytes > SCRATCH_BYTES) {
        ebb_arena_fini(&w->arena);
        ebb_mappings_rest(w->model->mappings);
    }
}

static void put_graph(out *o, ebb_writer *w, const Onnx__GraphProto *frame)
{
    const ebb_graph *g = w->model->graph;
    Onnx__GraphProto some = ONNX__GRAPH_PROTO__INIT, rest = *frame;
    o->field = GRAPH_NODE;
    ebb_writer_each_node(w, g, &o->base);
    some.name = frame->name;
    put_fields(o, &some.base);
    o->field = GRAPH_INITIALIZER;
    ebb_writer_each_initializer(w, g, &o->base);
    some = (Onnx__GraphProto)ONNX__GRAPH_PROTO__INIT;
    some.doc_string = frame->doc_string;
    some.n_input = frame->n_input;
    some.input = frame->input;
    some.n_output = frame->n_output;
    some.output = frame->output;
    put_fields(o, &some.base);
    o->field = GRAPH_VALUE_INFO;
    ebb_writer_each_info(w, g, &o->base);
    rest.name = rest.doc_string = NULL;
    rest.n_input = rest.n_output = 0;
    put_fields(o, &rest.base);
    ebb_arena_fini(&w->arena);
}

void ebb_writer_count(ebb_writer *w, const Onnx__GraphProto *frame)
{
    out o = {.base = {put_piece}};
    put_graph(&o, w, frame);
    w->graph_bytes = o.bytes;
}

ebb_status ebb_writer_out(ebb_writer *w, const Onnx__ModelProto *model, ebb_sink *sink,
                          uint64_t *bytes)
{
    out o = {.base = {put_piece}, .sink = sink};
    Onnx__ModelProto first = *model, rest = *model;
    first.graph = rest.graph = NULL;
    first.n_opset_import = first.n_metadata_props = first.n_training_info = first.n_functions = 0;
    first.n_configuration = 0;
    first.base.n_unknown_fields = 0;
    rest.has_ir_version = rest.has_model_version = false;
    rest.producer_name = rest.producer_version = rest.domain = rest.doc_string = NULL;
    put_fields(&o, &first.base);
    put_head(&o, MODEL_GRAPH, w->graph_bytes);
    if (sink != NULL) {
        const size_t moved_count = w->moved_count;
        const uint64_t data_end = w->data_end;
        w->moved_count = 0; // the graph's weights come first, and take their places again
        w->data_end = 0;
        put_graph(&o, w, model->graph);
        w->moved_count = moved_count;
        w->data_end = data_end;
    } else {
        o.bytes += w->graph_bytes;
    }
    put_fields(&o, &rest.base);
    *bytes = o.bytes;
    EBB_GOT(!w->failed);
    return sink != NULL ? ebb_sink_finish(sink) : NULL;
}
