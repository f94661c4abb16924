/* read_graph.c: a graph from its message.
 *
 * Inputs, initializers, all outputs of all nodes as values; then the nodes, whose inputs must be
 * among those values (or among those of the graph outside); then outputs and types. So nodes may
 * come in any order that has no cycle. Each record keeps the bytes of its message as `origin`, for
 * the writer; the message itself goes when it is read.
 */
#include "onnx/file/reader.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- small things ---- */

ebb_status ebb_reader_name(ebb_reader *r, ebb_str *name, const char *text)
{
    *name = (ebb_str){0};
    if (text == NULL)
        return NULL;
    *name = ebb_names_intern(&r->model->names, text, strlen(text));
    return name->i != 0 ? NULL : ebb_error_memory();
}

ebb_status ebb_reader_placed(ebb_status status, const char *kind, const char *name)
{
    char place[128];
    (void)snprintf(place, sizeof place, "%s '%.100s'", kind, ebb_reader_text(name));
    return ebb_at(status, place);
}

ebb_status ebb_reader_prop(ebb_reader *r, ebb_props *props,
                           const Onnx__StringStringEntryProto *entry)
{
    ebb_prop prop;
    EBB_TRY(ebb_reader_name(r, &prop.key, entry->key));
    EBB_TRY(ebb_reader_name(r, &prop.value, entry->value));
    return ebb_props_add(r->model->graph, props, prop);
}

static ebb_status read_props(ebb_reader *r, ebb_props *props, Onnx__StringStringEntryProto **list,
                             size_t count)
{
    for (size_t i = 0; i < count; i++)
        EBB_TRY(ebb_reader_prop(r, props, list[i]));
    return NULL;
}

uint8_t ebb_reader_number(const char *text, const char *const *spellings, int count)
{
    for (int i = 1; i < count; i++)
        if (strcmp(text, spellings[i]) == 0)
            return (uint8_t)i;
    return 0;
}

static bool append_value(ebb_reader *r, ebb_value **list, size_t *count, size_t *capacity,
                         ebb_value v)
{
    if (!ebb_arena_grow(r->arena, list, *count, capacity, sizeof **list))
        return false;
    (*list)[(*count)++] = v;
    return true;
}

/* ---- parts ---- */

ebb_status ebb_reader_parts(ebb_reader *r, ebb_graph *g, ebb_encoded whole, uint32_t field,
                            const ProtobufCMessageDescriptor *type, uint64_t without,
                            ebb_part_reader *read)
{
    enum { SCRATCH_BYTES = 1 << 20 };
    EBB_LOCAL_ARENA(scratch);
    size_t at = 0;
    for (const void *part; (part = ebb_wire_next(whole, field, &at)) != NULL;) {
        ProtobufCMessage *message;
        EBB_TRY(ebb_wire_part(&message, scratch, type, ebb_wire_bytes(part), without));
        EBB_TRY(read(r, g, part, message));
        if (scratch->used_bytes > SCRATCH_BYTES)
            ebb_arena_fini(scratch);
    }
    return NULL;
}

/* ---- values ---- */

ebb_status ebb_reader_value(ebb_reader *r, ebb_graph *g, ebb_value *value, const char *name)
{
    *value = ebb_value_find(g, name);
    if (value->i != 0 || g->outer == NULL)
        return NULL;
    ebb_value outside;
    EBB_TRY(ebb_reader_value(r, g->outer, &outside, name));
    if (outside.i == 0)
        return NULL;
    EBB_TRY(ebb_value_add(g, value, name, ebb_value_of(g->outer, outside)->type));
    ebb_value_of(g, *value)->flags |= EBB_IS_OUTER;
    ebb_value_of(g->outer, outside)->flags |= EBB_IS_CAPTURED;
    return NULL;
}

static ebb_status read_input(ebb_reader *r, ebb_graph *g, const void *part,
                             const ProtobufCMessage *message)
{
    const Onnx__ValueInfoProto *info = (const Onnx__ValueInfoProto *)(const void *)message;
    ebb_type type;
    ebb_value v;
    if (ebb_reader_is_blank(info->name))
        return ebb_error(EBB_REJECTED, "input %zu has no name", g->input_count);
    if (ebb_value_find(g, info->name).i != 0)
        return ebb_error(EBB_REJECTED, "input '%.100s' is there twice", info->name);
    ebb_status status = ebb_proto_type(&type, &r->model->names, info->type);
    if (status != NULL)
        return ebb_reader_placed(status, "input", info->name);
    EBB_TRY(ebb_value_add(g, &v, info->name, &type));
    ebb_value_of(g, v)->origin = part;
    EBB_TRY(
        read_props(r, &ebb_value_of(g, v)->props, info->metadata_props, info->n_metadata_props));
    return ebb_graph_add_input(g, v);
}

/* Where the bytes are at hand, and still where they were: who moved them has had them. */
static ebb_status check_sum(ebb_tensor *t, const char *text)
{
    const uint64_t then = strtoull(text, NULL, 16), now = ebb_proto_external_sum(t);
    t->summed = true;
    if (then >> 32 != now >> 32 || then == now)
        return NULL;
    return ebb_hint(ebb_error(EBB_REJECTED,
                              "external data '%.100s' has changed since this file was made: it "
                              "was written again, with other weights or in another order",
                              t->location),
                    "make the file again from the model; a trained model that is saved under a "
                    "name of its own leaves the data of others as they are");
}

static ebb_status read_initializer_props(ebb_reader *r, ebb_value_info *value, ebb_tensor *tensor,
                                         const Onnx__TensorProto *proto)
{
    for (size_t i = 0; i < proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = proto->metadata_props[i];
        uint8_t role = ebb_reader_has_key(entry, "ebb.role")
                           ? ebb_reader_number(ebb_reader_text(entry->value), ebb_role_spelling,
                                               EBB_ROLE_COUNT)
                           : 0;
        if (role != 0)
            value->role = role;
        else if (ebb_reader_has_key(entry, EBB_EXTERNAL_SUM) && tensor->external &&
                 tensor->data != NULL)
            EBB_TRY(check_sum(tensor, ebb_reader_text(entry->value)));
        else
            EBB_TRY(ebb_reader_prop(r, &value->props, entry));
    }
    return NULL;
}

/* A value that may be an input, too: old files list each initializer as one. */
static ebb_status add_initializer(ebb_graph *g, ebb_value *value, const char *name,
                                  ebb_tensor *tensor)
{
    if (ebb_reader_is_blank(name))
        return ebb_error(EBB_REJECTED, "an initializer has no name");
    *value = ebb_value_find(g, name);
    if (value->i == 0)
        EBB_TRY(ebb_value_add(g, value, name, &tensor->type));
    ebb_value_info *info = ebb_value_of(g, *value);
    if ((info->flags & EBB_IS_INITIALIZER) != 0)
        return ebb_error(EBB_REJECTED, "initializer '%.100s' is there twice", name);
    info->flags |= EBB_IS_INITIALIZER;
    info->tensor = tensor;
    return ebb_value_set_type(g, *value, &tensor->type);
}

static ebb_status read_initializer(ebb_reader *r, ebb_graph *g, const void *part,
                                   const ProtobufCMessage *message)
{
    const Onnx__TensorProto *t = (const Onnx__TensorProto *)(const void *)message;
    ebb_tensor *tensor = EBB_NEW(r->arena, ebb_tensor, 1);
    ebb_value v;
    EBB_GOT(tensor);
    ebb_status status = ebb_proto_tensor(tensor, r->arena, &r->files, t, part);
    if (status != NULL)
        return ebb_reader_placed(status, "initializer", t->name);
    EBB_TRY(add_initializer(g, &v, t->name, tensor));
    status = read_initializer_props(r, ebb_value_of(g, v), tensor, t);
    if (status != NULL)
        return ebb_reader_placed(status, "initializer", t->name);
    return append_value(r, &g->initializers, &g->initializer_count, &g->initializer_capacity, v)
               ? NULL
               : ebb_error_memory();
}

/* A sparse initializer is a constant whose bytes we do not spell out; the writer keeps its message.
 */
static ebb_status read_sparse(ebb_reader *r, ebb_graph *g, const Onnx__GraphProto *proto)
{
    for (size_t i = 0; i < proto->n_sparse_initializer; i++) {
        const Onnx__SparseTensorProto *s = proto->sparse_initializer[i];
        if (s->values == NULL || ebb_reader_is_blank(s->values->name))
            return ebb_error(EBB_REJECTED, "sparse initializer %zu has no name", i);
        ebb_tensor *t = EBB_NEW(r->arena, ebb_tensor, 1);
        EBB_GOT(t);
        if (s->n_dims > EBB_MAX_RANK)
            return ebb_error(EBB_REJECTED, "sparse initializer '%.100s': rank %zu is above %d",
                             s->values->name, s->n_dims, EBB_MAX_RANK);
        bool known = s->values->data_type > 0 && s->values->data_type < EBB_DTYPE_COUNT;
        t->type = ebb_type_tensor(known ? (ebb_dtype)s->values->data_type : EBB_NONE,
                                  (int)s->n_dims, s->dims);
        for (size_t k = 0; k < s->n_dims; k++)
            if (s->dims[k] < 0)
                return ebb_error(EBB_REJECTED, "sparse initializer '%.100s': dim %zu is negative",
                                 s->values->name, k);
        if (known && t->type.dtype != EBB_STRING && !ebb_type_bytes(&t->type, &t->bytes))
            return ebb_error(EBB_REJECTED,
                             "sparse initializer '%.100s': the product of its dims is too large",
                             s->values->name);
        ebb_value v;
        EBB_TRY(add_initializer(g, &v, s->values->name, t));
    }
    return NULL;
}

/* ---- graphs ---- */

/* Type, metadata and message of a value that exists; what it knows already, it keeps. */
static ebb_status read_info(ebb_reader *r, ebb_graph *g, ebb_value v, const void *part,
                            const Onnx__ValueInfoProto *info)
{
    ebb_value_info *value = ebb_value_of(g, v);
    if (value->type->kind == EBB_KIND_UNKNOWN) {
        ebb_type type;
        ebb_status status = ebb_proto_type(&type, &r->model->names, info->type);
        if (status != NULL)
            return ebb_reader_placed(status, "value", info->name);
        EBB_TRY(ebb_value_set_type(g, v, &type));
    }
    if (value->origin != NULL)
        return NULL;
    value->origin = part;
    return read_props(r, &value->props, info->metadata_props, info->n_metadata_props);
}

static ebb_status read_output(ebb_reader *r, ebb_graph *g, const void *part,
                              const ProtobufCMessage *message)
{
    const Onnx__ValueInfoProto *info = (const Onnx__ValueInfoProto *)(const void *)message;
    ebb_value v;
    if (ebb_reader_is_blank(info->name))
        return ebb_error(EBB_REJECTED, "output %zu has no name", g->output_count);
    EBB_TRY(ebb_reader_value(r, g, &v, info->name));
    if (v.i == 0)
        return ebb_error(EBB_REJECTED, "output '%.100s' is made by no node", info->name);
    EBB_TRY(read_info(r, g, v, part, info));
    return ebb_graph_add_output(g, v);
}

static ebb_status read_inner(ebb_reader *r, ebb_graph *g, const void *part,
                             const ProtobufCMessage *message)
{
    const Onnx__ValueInfoProto *info = (const Onnx__ValueInfoProto *)(const void *)message;
    ebb_value v = ebb_reader_is_blank(info->name) ? EBB_NO_VALUE : ebb_value_find(g, info->name);
    return v.i != 0 ? read_info(r, g, v, part, info) : NULL;
}

ebb_status ebb_reader_infos(ebb_reader *r, ebb_graph *g, ebb_encoded whole, uint32_t field)
{
    return ebb_reader_parts(r, g, whole, field, &onnx__value_info_proto__descriptor, 0, read_inner);
}

static ebb_status read_metadata(ebb_reader *r, ebb_graph *g, const Onnx__GraphProto *proto)
{
    for (size_t i = 0; i < proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = proto->metadata_props[i];
        ebb_value loss = ebb_reader_has_key(entry, "ebb.loss")
                             ? ebb_value_find(g, ebb_reader_text(entry->value))
                             : EBB_NO_VALUE;
        if (loss.i != 0)
            g->loss = loss;
        else
            EBB_TRY(ebb_reader_prop(r, &g->props, entry));
    }
    return NULL;
}

/* frame: what is left without the parts. */
static ebb_status read_around(ebb_reader *r, ebb_graph *g, ebb_encoded whole,
                              const Onnx__GraphProto *frame)
{
    const ProtobufCMessageDescriptor *info = &onnx__value_info_proto__descriptor;
    EBB_TRY(ebb_reader_name(r, &g->name, frame->name));
    EBB_TRY(ebb_reader_name(r, &g->doc, frame->doc_string));
    EBB_TRY(ebb_reader_parts(r, g, whole, EBB_GRAPH_INPUT, info, 0, read_input));
    EBB_TRY(ebb_reader_parts(r, g, whole, EBB_GRAPH_INITIALIZER, &onnx__tensor_proto__descriptor, 0,
                             read_initializer));
    EBB_TRY(read_sparse(r, g, frame));
    EBB_TRY(ebb_reader_nodes(r, g, whole, EBB_GRAPH_NODE));
    EBB_TRY(ebb_reader_parts(r, g, whole, EBB_GRAPH_OUTPUT, info, 0, read_output));
    EBB_TRY(ebb_reader_infos(r, g, whole, EBB_GRAPH_VALUE_INFO));
    return read_metadata(r, g, frame);
}

ebb_status ebb_reader_graph(ebb_reader *r, ebb_graph *g, const void *part)
{
    const ebb_encoded whole = ebb_wire_bytes(part);
    ProtobufCMessage *frame;
    EBB_LOCAL_ARENA(scratch);
    g->origin = part;
    EBB_TRY(ebb_wire_part(&frame, scratch, &onnx__graph_proto__descriptor, whole, EBB_GRAPH_PARTS));
    return read_around(r, g, whole, (const Onnx__GraphProto *)(const void *)frame);
}
