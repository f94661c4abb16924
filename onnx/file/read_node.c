/* read_node.c: nodes and their attributes from their messages. */
#include "onnx/file/reader.h"

#include <stdio.h>
#include <stdlib.h>

/* "Conv 'layer3.conv1'" before there is a node; good until the next call. */
static const char *label_of(ebb_reader *r, const Onnx__NodeProto *n)
{
    const char *name = ebb_reader_text(n->name);
    for (size_t i = 0; name[0] == '\0' && i < n->n_output; i++)
        name = n->output[i];
    (void)snprintf(r->label, sizeof r->label, "%.50s '%.90s'", ebb_reader_text(n->op_type), name);
    return r->label;
}

static const void *first_part(ebb_encoded whole, uint32_t field)
{
    size_t at = 0;
    return ebb_wire_next(whole, field, &at);
}

/* A list of numbers that outlives its message; NULL: out of memory. */
static const void *kept(ebb_reader *r, const void *list, size_t count, size_t size)
{
    void *copy = ebb_arena_zeroed(r->arena, count, size);
    if (copy != NULL && count > 0)
        memcpy(copy, list, count * size);
    return copy;
}

/* ---- attributes ---- */

static ebb_attr_type guessed_type(const Onnx__AttributeProto *a, ebb_encoded whole)
{
    // The first version of the format had no type field.
    return a->has_f                                          ? EBB_ATTR_FLOAT
           : a->has_i                                        ? EBB_ATTR_INT
           : a->has_s                                        ? EBB_ATTR_STRING
           : a->t != NULL                                    ? EBB_ATTR_TENSOR
           : first_part(whole, EBB_ATTRIBUTE_GRAPH) != NULL  ? EBB_ATTR_GRAPH
           : a->n_floats > 0                                 ? EBB_ATTR_FLOATS
           : a->n_ints > 0                                   ? EBB_ATTR_INTS
           : a->n_strings > 0                                ? EBB_ATTR_STRINGS
           : a->n_tensors > 0                                ? EBB_ATTR_TENSORS
           : first_part(whole, EBB_ATTRIBUTE_GRAPHS) != NULL ? EBB_ATTR_GRAPHS
                                                             : EBB_ATTR_UNDEFINED;
}

static char *terminated(ebb_reader *r, const ProtobufCBinaryData *bytes)
{
    char *text = ebb_arena_alloc(r->arena, bytes->len + 1);
    if (text == NULL)
        return NULL;
    if (bytes->len > 0)
        memcpy(text, bytes->data, bytes->len);
    text[bytes->len] = '\0';
    return text;
}

static ebb_status read_strings(ebb_reader *r, ebb_attr *attr, const Onnx__AttributeProto *proto)
{
    const char **list = EBB_NEW(r->arena, const char *, proto->n_strings);
    EBB_GOT(list);
    for (size_t i = 0; i < proto->n_strings; i++)
        EBB_GOT((list[i] = terminated(r, &proto->strings[i])) != NULL);
    attr->strings = list;
    attr->count = (uint32_t)proto->n_strings;
    return NULL;
}

static ebb_status read_graphs(ebb_reader *r, ebb_graph *g, ebb_attr *attr, ebb_encoded whole,
                              uint32_t field)
{
    size_t at = 0;
    uint32_t i = 0;
    attr->count = (uint32_t)ebb_wire_count(whole, field);
    ebb_graph **list = EBB_NEW(r->arena, ebb_graph *, attr->count);
    EBB_GOT(list);
    for (const void *part; (part = ebb_wire_next(whole, field, &at)) != NULL; i++) {
        EBB_TRY(ebb_graph_new(&list[i], r->model, g));
        EBB_TRY(ebb_reader_graph(r, list[i], part));
    }
    attr->graphs = list;
    return NULL;
}

/* The value, by type. A type whose value is not there is refused. */
static ebb_status read_attr_value(ebb_reader *r, ebb_graph *g, ebb_attr *attr, ebb_encoded whole,
                                  const Onnx__AttributeProto *proto)
{
    switch (attr->type) {
    case EBB_ATTR_FLOAT:
        attr->f = (double)proto->f;
        return NULL;
    case EBB_ATTR_INT:
        attr->i = proto->i;
        return NULL;
    case EBB_ATTR_STRING:
        attr->s = terminated(r, &proto->s);
        attr->s_bytes = proto->s.len;
        return attr->s != NULL ? NULL : ebb_error_memory();
    case EBB_ATTR_FLOATS:
        attr->floats = kept(r, proto->floats, proto->n_floats, sizeof *proto->floats);
        attr->count = (uint32_t)proto->n_floats;
        return attr->floats != NULL ? NULL : ebb_error_memory();
    case EBB_ATTR_INTS:
        attr->ints = kept(r, proto->ints, proto->n_ints, sizeof *proto->ints);
        attr->count = (uint32_t)proto->n_ints;
        return attr->ints != NULL ? NULL : ebb_error_memory();
    case EBB_ATTR_STRINGS:
        return read_strings(r, attr, proto);
    case EBB_ATTR_TENSOR: {
        if (proto->t == NULL)
            return ebb_error(EBB_REJECTED, "holds no tensor");
        ebb_tensor *tensor = EBB_NEW(r->arena, ebb_tensor, 1);
        EBB_GOT(tensor);
        attr->tensor = tensor;
        return ebb_proto_tensor(tensor, r->arena, &r->files, proto->t,
                                first_part(whole, EBB_ATTRIBUTE_TENSOR));
    }
    case EBB_ATTR_GRAPH:
        if (first_part(whole, EBB_ATTRIBUTE_GRAPH) == NULL)
            return ebb_error(EBB_REJECTED, "holds no graph");
        return read_graphs(r, g, attr, whole, EBB_ATTRIBUTE_GRAPH);
    case EBB_ATTR_GRAPHS:
        return read_graphs(r, g, attr, whole, EBB_ATTRIBUTE_GRAPHS);
    case EBB_ATTR_TENSORS:
        attr->count = (uint32_t)proto->n_tensors;
        return NULL;
    default:
        return NULL; // the rarer ones are kept as `origin`
    }
}

static ebb_status read_text(ebb_reader *r, const char **text, const char *from)
{
    ebb_str name;
    EBB_TRY(ebb_reader_name(r, &name, from));
    *text = ebb_names_text(&r->model->names, name);
    return NULL;
}

/* Whether the message says no more than its name, its type and a value that nodes may share
 * (ebb_node_set_attrs): it is written from these. */
static bool says_no_more(const Onnx__AttributeProto *proto, ebb_encoded whole)
{
    Onnx__AttributeProto a = ONNX__ATTRIBUTE_PROTO__INIT;
    a.name = proto->name;
    a.has_type = true;
    a.type = proto->type;
    a.has_f = a.type == (Onnx__AttributeProto__AttributeType)EBB_ATTR_FLOAT;
    a.f = proto->f;
    a.has_i = a.type == (Onnx__AttributeProto__AttributeType)EBB_ATTR_INT;
    a.i = proto->i;
    a.n_ints = a.type == (Onnx__AttributeProto__AttributeType)EBB_ATTR_INTS ? proto->n_ints : 0;
    a.ints = proto->ints;
    const size_t bytes = protobuf_c_message_get_packed_size(&a.base);
    return proto->has_type && a.has_f == proto->has_f && a.has_i == proto->has_i && a.f == a.f &&
           bytes == whole.size && bytes == protobuf_c_message_get_packed_size(&proto->base);
}

static ebb_status read_attr(ebb_reader *r, ebb_graph *g, ebb_attr *attr, const void *part,
                            const Onnx__AttributeProto *proto)
{
    const ebb_encoded whole = ebb_wire_bytes(part);
    if (ebb_reader_is_blank(proto->name))
        return ebb_error(EBB_REJECTED, "an attribute has no name");
    *attr = (ebb_attr){.origin = says_no_more(proto, whole) ? NULL : part};
    EBB_TRY(read_text(r, &attr->name, proto->name));
    attr->type = proto->has_type ? (ebb_attr_type)proto->type : guessed_type(proto, whole);
    if (!ebb_reader_is_blank(proto->ref_attr_name))
        return read_text(r, &attr->ref, proto->ref_attr_name);
    ebb_status status = read_attr_value(r, g, attr, whole, proto);
    return status != NULL ? ebb_reader_placed(status, "attribute", proto->name) : NULL;
}

ebb_status ebb_reader_attrs(ebb_reader *r, ebb_graph *g, ebb_arena *lists, ebb_attr **attrs,
                            size_t *count, ebb_encoded whole, uint32_t field)
{
    const uint64_t graphs = EBB_FIELD(EBB_ATTRIBUTE_GRAPH) | EBB_FIELD(EBB_ATTRIBUTE_GRAPHS);
    size_t at = 0, i = 0;
    EBB_LOCAL_ARENA(scratch);
    *count = ebb_wire_count(whole, field);
    *attrs = EBB_NEW(lists, ebb_attr, *count);
    EBB_GOT(*attrs);
    for (const void *part; (part = ebb_wire_next(whole, field, &at)) != NULL;) {
        ProtobufCMessage *message;
        EBB_TRY(ebb_wire_part(&message, scratch, &onnx__attribute_proto__descriptor,
                              ebb_wire_bytes(part), graphs));
        EBB_TRY(read_attr(r, g, &(*attrs)[i++], part,
                          (const Onnx__AttributeProto *)(const void *)message));
    }
    return NULL;
}

/* ---- nodes ---- */

static const char *what_it_is(const ebb_graph *g, ebb_value v)
{
    uint8_t flags = ebb_value_of(g, v)->flags;
    return (flags & EBB_IS_INPUT) != 0         ? "an input"
           : (flags & EBB_IS_INITIALIZER) != 0 ? "an initializer"
                                               : "a node's output";
}

static ebb_status made_twice(const ebb_graph *g, ebb_value v, const char *node)
{
    ebb_status status = ebb_error(EBB_REJECTED, "%s makes '%.100s', which is %s already", node,
                                  ebb_value_name(g, v), what_it_is(g, v));
    return (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) == 0
               ? status
               : ebb_hint(status, "PyTorch writes so where a buffer or parameter has the name of a "
                                  "call, as self.mean: rename it and export again");
}

static ebb_status add_outputs(ebb_reader *r, ebb_graph *g, const void *part,
                              const ProtobufCMessage *message)
{
    const Onnx__NodeProto *node = (const Onnx__NodeProto *)(const void *)message;
    (void)part;
    for (size_t i = 0; i < node->n_output; i++) {
        const char *name = node->output[i];
        if (name[0] == '\0')
            continue;
        ebb_value v = ebb_value_find(g, name);
        if (v.i != 0)
            return made_twice(g, v, label_of(r, node));
        EBB_TRY(ebb_value_add(g, &v, name, NULL));
    }
    return NULL;
}

/* "0:1 2:0": output 0 is written over input 1, output 2 over input 0. */
static ebb_status read_in_place(ebb_graph *g, ebb_node n, const char *text)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    while (*text != '\0') {
        char *rest;
        unsigned long output = strtoul(text, &rest, 10), input;
        if (rest == text || *rest != ':')
            break;
        text = rest + 1;
        input = strtoul(text, &rest, 10);
        if (rest == text || (*rest != ' ' && *rest != '\0') || output >= info->out_count ||
            input >= info->in_count || input >= UINT8_MAX)
            break;
        if (info->out[output].i == 0)
            return ebb_error(EBB_REJECTED, "%s: output %lu is absent, and written over input %lu",
                             ebb_node_label(g, n), output, input);
        ebb_node_set_over(g, n, (uint32_t)output, (uint32_t)input);
        text = rest + strspn(rest, " ");
    }
    return *text == '\0' ? NULL
                         : ebb_error(EBB_REJECTED,
                                     "%s: metadata ebb.inplace is not a list of "
                                     "output:input",
                                     ebb_node_label(g, n));
}

static ebb_status read_tile_rows(ebb_graph *g, ebb_node n, const char *text)
{
    char *rest;
    long long rows = strtoll(text, &rest, 10);
    if (rest == text || *rest != '\0' || rows <= 0 || rows == LLONG_MAX)
        return ebb_error(EBB_REJECTED, "%s: metadata ebb.stream is not a number of rows",
                         ebb_node_label(g, n));
    ebb_node_of(g, n)->tile_rows = rows;
    return NULL;
}

static ebb_status read_node_props(ebb_reader *r, ebb_graph *g, ebb_node n,
                                  const Onnx__NodeProto *proto)
{
    for (size_t i = 0; i < proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = proto->metadata_props[i];
        ebb_node_info *info = ebb_node_of(g, n);
        const char *value = ebb_reader_text(entry->value);
        uint8_t phase = ebb_reader_has_key(entry, "ebb.phase")
                            ? ebb_reader_number(value, ebb_phase_spelling, EBB_PHASE_COUNT)
                            : 0;
        if (phase != 0)
            info->phase = phase;
        else if (ebb_reader_has_key(entry, "ebb.inplace"))
            EBB_TRY(read_in_place(g, n, value));
        else if (ebb_reader_has_key(entry, "ebb.stream"))
            EBB_TRY(read_tile_rows(g, n, value));
        else
            EBB_TRY(ebb_reader_prop(r, &info->props, entry));
    }
    ebb_node_info *info = ebb_node_of(g, n);
    if (info->phase == EBB_PHASE_NONE &&
        strcmp(ebb_reader_text(proto->doc_string), EBB_BACKWARD_DOC) == 0)
        info->phase = EBB_BACKWARD;
    return NULL;
}

/* Inputs and then outputs into r->slots. */
static ebb_status find_slots(ebb_reader *r, ebb_graph *g, const Onnx__NodeProto *node)
{
    size_t count = node->n_input + node->n_output;
    EBB_GOT(ebb_arena_grow(r->scratch, &r->slots, count, &r->slot_capacity, sizeof *r->slots));
    for (size_t i = 0; i < count; i++) {
        const char *name = i < node->n_input ? node->input[i] : node->output[i - node->n_input];
        r->slots[i] = EBB_NO_VALUE;
        if (name[0] == '\0')
            continue;
        EBB_TRY(ebb_reader_value(r, g, &r->slots[i], name));
        if (r->slots[i].i == 0)
            return ebb_hint(ebb_error(EBB_REJECTED,
                                      "%s reads '%.100s', which is no input, no initializer and no "
                                      "node's output",
                                      label_of(r, node), name),
                            "if it is a weight, export with the weights in the file (in PyTorch: "
                            "export_params=True)");
    }
    return NULL;
}

static ebb_status read_node(ebb_reader *r, ebb_graph *g, const void *part,
                            const ProtobufCMessage *message)
{
    const Onnx__NodeProto *proto = (const Onnx__NodeProto *)(const void *)message;
    ebb_node n;
    if (ebb_reader_is_blank(proto->op_type))
        return ebb_error(EBB_REJECTED, "node%s has no operator", label_of(r, proto));
    EBB_TRY(find_slots(r, g, proto));
    EBB_TRY(ebb_node_add(g, &n, EBB_NO_NODE, ebb_reader_text(proto->domain), proto->op_type,
                         r->slots, (uint32_t)proto->n_input, r->slots + proto->n_input,
                         (uint32_t)proto->n_output));
    ebb_node_info *info = ebb_node_of(g, n);
    info->origin = part;
    EBB_TRY(ebb_reader_name(r, &info->name, proto->name));
    EBB_TRY(ebb_reader_name(r, &info->domain, proto->domain));
    EBB_TRY(ebb_reader_name(r, &info->overload, proto->overload));
    EBB_TRY(ebb_reader_name(r, &info->doc, proto->doc_string));
    EBB_LOCAL_ARENA(scratch);
    ebb_attr *attrs;
    size_t count;
    ebb_status status =
        ebb_reader_attrs(r, g, scratch, &attrs, &count, ebb_wire_bytes(part), EBB_NODE_ATTRIBUTE);
    if (status == NULL)
        status = ebb_node_set_attrs(g, n, attrs, (uint32_t)count);
    if (status != NULL)
        return ebb_at(status, label_of(r, proto));
    return read_node_props(r, g, n, proto);
}

/* Whether some node reads a value before it is made. Ids are in the file's order. */
static bool out_of_order(const ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++)
            if (ebb_value_of(g, ebb_in(g, n, i))->producer.i >= n.i)
                return true;
    return false;
}

/* A subgraph may read only what has been made before the node that holds it. */
static ebb_status check_captures(const ebb_graph *g, const uint8_t *made, ebb_node n,
                                 const ebb_graph *inner)
{
    EBB_EACH_VALUE(inner, v) {
        const ebb_value_info *info = ebb_value_of(inner, v);
        if ((info->flags & EBB_IS_OUTER) == 0)
            continue;
        ebb_node producer =
            ebb_value_of(g, ebb_value_find(g, ebb_text(inner, info->name)))->producer;
        if (producer.i != 0 && !made[producer.i])
            return ebb_error(EBB_REJECTED, "%s reads '%.100s' in a subgraph before it is made",
                             ebb_node_label(g, n), ebb_text(inner, info->name));
    }
    return NULL;
}

static ebb_status check_all_captures(ebb_reader *r, const ebb_graph *g)
{
    uint8_t *made = EBB_NEW(r->scratch, uint8_t, g->node_count);
    EBB_GOT(made);
    EBB_EACH_NODE(g, n) {
        EBB_EACH_BODY(ebb_node_of(g, n), body)
            EBB_TRY(check_captures(g, made, n, *body));
        made[n.i] = 1;
    }
    return NULL;
}

ebb_status ebb_reader_nodes(ebb_reader *r, ebb_graph *g, ebb_encoded whole, uint32_t field)
{
    const ProtobufCMessageDescriptor *type = &onnx__node_proto__descriptor;
    const uint64_t attributes = EBB_FIELD(EBB_NODE_ATTRIBUTE);
    EBB_TRY(ebb_reader_parts(r, g, whole, field, type, attributes, add_outputs));
    EBB_TRY(ebb_reader_parts(r, g, whole, field, type, attributes, read_node));
    if (out_of_order(g))
        EBB_TRY(ebb_graph_sort(g));
    return check_all_captures(r, g);
}
