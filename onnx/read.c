/* read.c: a parsed model message into a graph.
 *
 * Per graph: inputs, initializers, all outputs of all nodes as values; then the nodes, whose inputs
 * must be among those values (or among those of the graph outside); then outputs and types. So
 * nodes may come in any order that has no cycle. Each record keeps its message as `origin`, for the
 * writer.
 */
#include "onnx/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "onnx/map.h"
#include "onnx/proto.h"
#include "onnx/wire.h"

/* A subgraph's table of names is as long as there are names: this many entries for all of them. */
static const size_t most_name_slots = (size_t)1 << 28;

typedef struct reader {
    ebb_model *model;
    ebb_arena *arena;  /* the model's */
    ebb_arena scratch; /* until the reading ends */
    ebb_proto_files files;
    size_t name_slots; /* of all subgraphs so far */
    ebb_value *slots;  /* of the node being added */
    size_t slot_capacity;
    char label[160];
} reader;

static ebb_status read_graph(reader *r, ebb_graph *g, const Onnx__GraphProto *proto);

/* ---- small things ---- */

/* NULL stays "absent" and "" stays "". */
static ebb_status read_name(reader *r, ebb_str *name, const char *text)
{
    *name = (ebb_str){0};
    if (text == NULL)
        return NULL;
    *name = ebb_names_intern(&r->model->names, text, strlen(text));
    return name->i != 0 ? NULL : ebb_error_memory();
}

static bool is_blank(const char *text)
{
    return text == NULL || text[0] == '\0';
}

static const char *or_blank(const char *text)
{
    return text != NULL ? text : "";
}

/* "Conv 'layer3.conv1'" before there is a node; good until the next call. */
static const char *label_of(reader *r, const Onnx__NodeProto *n)
{
    const char *name = or_blank(n->name);
    for (size_t i = 0; name[0] == '\0' && i < n->n_output; i++)
        name = n->output[i];
    (void)snprintf(r->label, sizeof r->label, "%.50s '%.90s'", or_blank(n->op_type), name);
    return r->label;
}

/* "KIND 'NAME': " before the sentence. */
static ebb_status placed(ebb_status status, const char *kind, const char *name)
{
    char place[128];
    (void)snprintf(place, sizeof place, "%s '%.100s'", kind, or_blank(name));
    return ebb_at(status, place);
}

static ebb_status add_prop(reader *r, ebb_props *props, const Onnx__StringStringEntryProto *entry)
{
    ebb_prop prop;
    EBB_TRY(read_name(r, &prop.key, entry->key));
    EBB_TRY(read_name(r, &prop.value, entry->value));
    if (!ebb_arena_grow(r->arena, &props->list, props->count, &props->capacity,
                        sizeof *props->list))
        return ebb_error_memory();
    props->list[props->count++] = prop;
    return NULL;
}

static bool has_key(const Onnx__StringStringEntryProto *entry, const char *key)
{
    return entry->key != NULL && strcmp(entry->key, key) == 0;
}

static ebb_status read_props(reader *r, ebb_props *props, Onnx__StringStringEntryProto **list,
                             size_t count)
{
    for (size_t i = 0; i < count; i++)
        EBB_TRY(add_prop(r, props, list[i]));
    return NULL;
}

/* The number of a spelling; 0 where there is none. */
static uint8_t number_of(const char *text, const char *const *spellings, int count)
{
    for (int i = 1; i < count; i++)
        if (strcmp(text, spellings[i]) == 0)
            return (uint8_t)i;
    return 0;
}

static bool append_value(reader *r, ebb_value **list, size_t *count, size_t *capacity, ebb_value v)
{
    if (!ebb_arena_grow(r->arena, list, *count, capacity, sizeof **list))
        return false;
    (*list)[(*count)++] = v;
    return true;
}

/* ---- values ---- */

/* The value of a name, here or outside. A value of the graph outside gets a stand-in in each graph
 * on the way. None when there is none. */
static ebb_status find_value(reader *r, ebb_graph *g, ebb_value *value, const char *name)
{
    *value = ebb_value_find(g, name);
    if (value->i != 0 || g->outer == NULL)
        return NULL;
    ebb_value outside;
    EBB_TRY(find_value(r, g->outer, &outside, name));
    if (outside.i == 0)
        return NULL;
    ebb_type type = ebb_value_of(g->outer, outside)->type;
    EBB_TRY(ebb_value_add(g, value, name, &type));
    ebb_value_of(g, *value)->flags |= EBB_IS_OUTER;
    return NULL;
}

static ebb_status read_inputs(reader *r, ebb_graph *g, const Onnx__GraphProto *proto)
{
    for (size_t i = 0; i < proto->n_input; i++) {
        const Onnx__ValueInfoProto *info = proto->input[i];
        ebb_type type;
        ebb_value v;
        if (is_blank(info->name))
            return ebb_error(EBB_REJECTED, "input %zu has no name", i);
        if (ebb_value_find(g, info->name).i != 0)
            return ebb_error(EBB_REJECTED, "input '%.100s' is there twice", info->name);
        ebb_status status = ebb_proto_type(&type, &r->model->names, info->type);
        if (status != NULL)
            return placed(status, "input", info->name);
        EBB_TRY(ebb_value_add(g, &v, info->name, &type));
        ebb_value_of(g, v)->origin = info;
        EBB_TRY(read_props(r, &ebb_value_of(g, v)->props, info->metadata_props,
                           info->n_metadata_props));
        EBB_TRY(ebb_graph_add_input(g, v));
    }
    return NULL;
}

static ebb_status read_initializer_props(reader *r, ebb_value_info *value,
                                         const Onnx__TensorProto *proto)
{
    for (size_t i = 0; i < proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = proto->metadata_props[i];
        uint8_t role = has_key(entry, "ebb.role")
                           ? number_of(or_blank(entry->value), ebb_role_spelling, EBB_ROLE_COUNT)
                           : 0;
        if (role != 0)
            value->role = role;
        else
            EBB_TRY(add_prop(r, &value->props, entry));
    }
    return NULL;
}

/* A value that may be an input, too: old files list each initializer as one. */
static ebb_status add_initializer(ebb_graph *g, ebb_value *value, const char *name,
                                  ebb_tensor *tensor)
{
    if (is_blank(name))
        return ebb_error(EBB_REJECTED, "an initializer has no name");
    *value = ebb_value_find(g, name);
    if (value->i == 0)
        EBB_TRY(ebb_value_add(g, value, name, &tensor->type));
    ebb_value_info *info = ebb_value_of(g, *value);
    if ((info->flags & EBB_IS_INITIALIZER) != 0)
        return ebb_error(EBB_REJECTED, "initializer '%.100s' is there twice", name);
    info->flags |= EBB_IS_INITIALIZER;
    info->tensor = tensor;
    info->type = tensor->type;
    return NULL;
}

static ebb_status read_initializers(reader *r, ebb_graph *g, const Onnx__GraphProto *proto)
{
    ebb_tensor *tensors = EBB_NEW(r->arena, ebb_tensor, proto->n_initializer);
    if (tensors == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < proto->n_initializer; i++) {
        const Onnx__TensorProto *t = proto->initializer[i];
        ebb_value v;
        ebb_status status = ebb_proto_tensor(&tensors[i], r->arena, &r->files, t);
        if (status != NULL)
            return placed(status, "initializer", t->name);
        EBB_TRY(add_initializer(g, &v, t->name, &tensors[i]));
        EBB_TRY(read_initializer_props(r, ebb_value_of(g, v), t));
        if (!append_value(r, &g->initializers, &g->initializer_count, &g->initializer_capacity, v))
            return ebb_error_memory();
    }
    return NULL;
}

/* A sparse initializer is a constant whose bytes we do not spell out; the writer keeps its message.
 */
static ebb_status read_sparse(reader *r, ebb_graph *g, const Onnx__GraphProto *proto)
{
    for (size_t i = 0; i < proto->n_sparse_initializer; i++) {
        const Onnx__SparseTensorProto *s = proto->sparse_initializer[i];
        if (s->values == NULL || is_blank(s->values->name))
            return ebb_error(EBB_REJECTED, "sparse initializer %zu has no name", i);
        ebb_tensor *t = EBB_NEW(r->arena, ebb_tensor, 1);
        if (t == NULL)
            return ebb_error_memory();
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

/* ---- attributes ---- */

static ebb_attr_type guessed_type(const Onnx__AttributeProto *a)
{
    // The first version of the format had no type field.
    return a->has_f           ? EBB_ATTR_FLOAT
           : a->has_i         ? EBB_ATTR_INT
           : a->has_s         ? EBB_ATTR_STRING
           : a->t != NULL     ? EBB_ATTR_TENSOR
           : a->g != NULL     ? EBB_ATTR_GRAPH
           : a->n_floats > 0  ? EBB_ATTR_FLOATS
           : a->n_ints > 0    ? EBB_ATTR_INTS
           : a->n_strings > 0 ? EBB_ATTR_STRINGS
           : a->n_tensors > 0 ? EBB_ATTR_TENSORS
           : a->n_graphs > 0  ? EBB_ATTR_GRAPHS
                              : EBB_ATTR_UNDEFINED;
}

static char *terminated(reader *r, const ProtobufCBinaryData *bytes)
{
    char *text = ebb_arena_alloc(r->arena, bytes->len + 1);
    if (text == NULL)
        return NULL;
    if (bytes->len > 0)
        memcpy(text, bytes->data, bytes->len);
    text[bytes->len] = '\0';
    return text;
}

static ebb_status read_strings(reader *r, ebb_attr *attr, const Onnx__AttributeProto *proto)
{
    const char **list = EBB_NEW(r->arena, const char *, proto->n_strings);
    if (list == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < proto->n_strings; i++)
        if ((list[i] = terminated(r, &proto->strings[i])) == NULL)
            return ebb_error_memory();
    attr->strings = list;
    attr->count = (uint32_t)proto->n_strings;
    return NULL;
}

static ebb_status read_graphs(reader *r, ebb_graph *g, ebb_attr *attr,
                              Onnx__GraphProto *const *protos, size_t count)
{
    ebb_graph **list = EBB_NEW(r->arena, ebb_graph *, count);
    if (list == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < count; i++) {
        r->name_slots += r->model->names.count;
        if (r->name_slots > most_name_slots)
            return ebb_error(EBB_REJECTED, "there are too many subgraphs");
        EBB_TRY(ebb_graph_new(&list[i], r->model, g));
        EBB_TRY(read_graph(r, list[i], protos[i]));
    }
    attr->graphs = list;
    attr->count = (uint32_t)count;
    return NULL;
}

/* The value, by type. A type whose value is not there is refused. */
static ebb_status read_attr_value(reader *r, ebb_graph *g, ebb_attr *attr,
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
        attr->floats = proto->floats;
        attr->count = (uint32_t)proto->n_floats;
        return NULL;
    case EBB_ATTR_INTS:
        attr->ints = proto->ints;
        attr->count = (uint32_t)proto->n_ints;
        return NULL;
    case EBB_ATTR_STRINGS:
        return read_strings(r, attr, proto);
    case EBB_ATTR_TENSOR: {
        if (proto->t == NULL)
            return ebb_error(EBB_REJECTED, "holds no tensor");
        ebb_tensor *tensor = EBB_NEW(r->arena, ebb_tensor, 1);
        if (tensor == NULL)
            return ebb_error_memory();
        attr->tensor = tensor;
        return ebb_proto_tensor(tensor, r->arena, &r->files, proto->t);
    }
    case EBB_ATTR_GRAPH:
        if (proto->g == NULL)
            return ebb_error(EBB_REJECTED, "holds no graph");
        return read_graphs(r, g, attr, &proto->g, 1);
    case EBB_ATTR_GRAPHS:
        return read_graphs(r, g, attr, proto->graphs, proto->n_graphs);
    case EBB_ATTR_TENSORS:
        attr->count = (uint32_t)proto->n_tensors;
        return NULL;
    default:
        return NULL; // the rarer ones are kept as `origin`
    }
}

static ebb_status read_attr(reader *r, ebb_graph *g, ebb_attr *attr,
                            const Onnx__AttributeProto *proto)
{
    if (is_blank(proto->name))
        return ebb_error(EBB_REJECTED, "an attribute has no name");
    *attr = (ebb_attr){.name = proto->name, .origin = proto};
    attr->type = proto->has_type ? (ebb_attr_type)proto->type : guessed_type(proto);
    if (!is_blank(proto->ref_attr_name)) {
        attr->ref = proto->ref_attr_name;
        return NULL;
    }
    ebb_status status = read_attr_value(r, g, attr, proto);
    return status != NULL ? placed(status, "attribute", proto->name) : NULL;
}

static ebb_status read_attrs(reader *r, ebb_graph *g, ebb_attr **attrs,
                             Onnx__AttributeProto *const *protos, size_t count)
{
    *attrs = EBB_NEW(r->arena, ebb_attr, count);
    if (*attrs == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < count; i++)
        EBB_TRY(read_attr(r, g, &(*attrs)[i], protos[i]));
    return NULL;
}

/* ---- nodes ---- */

static const char *what_it_is(const ebb_graph *g, ebb_value v)
{
    uint16_t flags = ebb_value_of(g, v)->flags;
    return (flags & EBB_IS_INPUT) != 0         ? "an input"
           : (flags & EBB_IS_INITIALIZER) != 0 ? "an initializer"
                                               : "a node's output";
}

static ebb_status add_outputs(reader *r, ebb_graph *g, const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < node->n_output; i++) {
        const char *name = node->output[i];
        if (name[0] == '\0')
            continue;
        ebb_value v = ebb_value_find(g, name);
        if (v.i != 0)
            return ebb_error(EBB_REJECTED, "%s makes '%.100s', which is %s already",
                             label_of(r, node), name, what_it_is(g, v));
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
        EBB_TRY(ebb_node_set_over(g, n, (uint32_t)output, (uint32_t)input));
        text = rest + strspn(rest, " ");
    }
    return *text == '\0' ? NULL
                         : ebb_error(EBB_REJECTED,
                                     "%s: metadata ebb.inplace is not a list of "
                                     "output:input",
                                     ebb_node_label(g, n));
}

static ebb_status read_node_props(reader *r, ebb_graph *g, ebb_node n, const Onnx__NodeProto *proto)
{
    for (size_t i = 0; i < proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = proto->metadata_props[i];
        ebb_node_info *info = ebb_node_of(g, n);
        const char *value = or_blank(entry->value);
        uint8_t phase =
            has_key(entry, "ebb.phase") ? number_of(value, ebb_phase_spelling, EBB_PHASE_COUNT) : 0;
        if (phase != 0)
            info->phase = phase;
        else if (has_key(entry, "ebb.inplace"))
            EBB_TRY(read_in_place(g, n, value));
        else
            EBB_TRY(add_prop(r, &info->props, entry));
    }
    ebb_node_info *info = ebb_node_of(g, n);
    if (info->phase == EBB_PHASE_NONE && strcmp(or_blank(proto->doc_string), EBB_BACKWARD_DOC) == 0)
        info->phase = EBB_BACKWARD;
    return NULL;
}

/* Inputs and then outputs into r->slots. */
static ebb_status find_slots(reader *r, ebb_graph *g, const Onnx__NodeProto *node)
{
    size_t count = node->n_input + node->n_output;
    if (!ebb_arena_grow(&r->scratch, &r->slots, count, &r->slot_capacity, sizeof *r->slots))
        return ebb_error_memory();
    for (size_t i = 0; i < count; i++) {
        const char *name = i < node->n_input ? node->input[i] : node->output[i - node->n_input];
        r->slots[i] = EBB_NO_VALUE;
        if (name[0] == '\0')
            continue;
        EBB_TRY(find_value(r, g, &r->slots[i], name));
        if (r->slots[i].i == 0)
            return ebb_error(EBB_REJECTED,
                             "%s reads '%.100s', which is no input, no initializer and no node's "
                             "output",
                             label_of(r, node), name);
    }
    return NULL;
}

static ebb_status read_node(reader *r, ebb_graph *g, const Onnx__NodeProto *proto)
{
    ebb_node n;
    if (is_blank(proto->op_type))
        return ebb_error(EBB_REJECTED, "node%s has no operator", label_of(r, proto));
    EBB_TRY(find_slots(r, g, proto));
    EBB_TRY(ebb_node_add(g, &n, EBB_NO_NODE, or_blank(proto->domain), proto->op_type, r->slots,
                         (uint32_t)proto->n_input, r->slots + proto->n_input,
                         (uint32_t)proto->n_output));
    ebb_node_info *info = ebb_node_of(g, n);
    info->origin = proto;
    EBB_TRY(read_name(r, &info->name, proto->name));
    EBB_TRY(read_name(r, &info->domain, proto->domain));
    EBB_TRY(read_name(r, &info->overload, proto->overload));
    EBB_TRY(read_name(r, &info->doc, proto->doc_string));
    ebb_attr *attrs;
    ebb_status status = read_attrs(r, g, &attrs, proto->attribute, proto->n_attribute);
    if (status != NULL)
        return ebb_at(status, label_of(r, proto));
    info = ebb_node_of(g, n);
    info->attr = attrs;
    info->attr_count = (uint32_t)proto->n_attribute;
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
    EBB_EACH_VALUE(inner, v)
    {
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

static ebb_status check_all_captures(reader *r, const ebb_graph *g)
{
    uint8_t *made = EBB_NEW(&r->scratch, uint8_t, g->node_count);
    if (made == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(g, n)
    {
        const ebb_node_info *info = ebb_node_of(g, n);
        for (uint32_t a = 0; a < info->attr_count; a++)
            for (uint32_t k = 0; info->attr[a].graphs != NULL && k < info->attr[a].count; k++)
                EBB_TRY(check_captures(g, made, n, info->attr[a].graphs[k]));
        made[n.i] = 1;
    }
    return NULL;
}

static ebb_status read_nodes(reader *r, ebb_graph *g, Onnx__NodeProto *const *protos, size_t count)
{
    for (size_t i = 0; i < count; i++)
        EBB_TRY(add_outputs(r, g, protos[i]));
    for (size_t i = 0; i < count; i++)
        EBB_TRY(read_node(r, g, protos[i]));
    if (out_of_order(g))
        EBB_TRY(ebb_graph_sort(g));
    return check_all_captures(r, g);
}

/* ---- graphs ---- */

/* Type, metadata and message of a value that exists; what it knows already, it keeps. */
static ebb_status read_info(reader *r, ebb_graph *g, ebb_value v, const Onnx__ValueInfoProto *info)
{
    ebb_value_info *value = ebb_value_of(g, v);
    if (value->type.kind == EBB_KIND_UNKNOWN) {
        ebb_status status = ebb_proto_type(&value->type, &r->model->names, info->type);
        if (status != NULL)
            return placed(status, "value", info->name);
    }
    if (value->origin != NULL)
        return NULL;
    value->origin = info;
    return read_props(r, &value->props, info->metadata_props, info->n_metadata_props);
}

static ebb_status read_outputs(reader *r, ebb_graph *g, const Onnx__GraphProto *proto)
{
    for (size_t i = 0; i < proto->n_output; i++) {
        ebb_value v;
        if (is_blank(proto->output[i]->name))
            return ebb_error(EBB_REJECTED, "output %zu has no name", i);
        EBB_TRY(find_value(r, g, &v, proto->output[i]->name));
        if (v.i == 0)
            return ebb_error(EBB_REJECTED, "output '%.100s' is made by no node",
                             proto->output[i]->name);
        EBB_TRY(read_info(r, g, v, proto->output[i]));
        EBB_TRY(ebb_graph_add_output(g, v));
    }
    return NULL;
}

static ebb_status read_infos(reader *r, ebb_graph *g, Onnx__ValueInfoProto *const *list,
                             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ebb_value v = is_blank(list[i]->name) ? EBB_NO_VALUE : ebb_value_find(g, list[i]->name);
        if (v.i != 0)
            EBB_TRY(read_info(r, g, v, list[i]));
    }
    return NULL;
}

static ebb_status read_graph(reader *r, ebb_graph *g, const Onnx__GraphProto *proto)
{
    g->origin = proto;
    EBB_TRY(read_name(r, &g->name, proto->name));
    EBB_TRY(read_name(r, &g->doc, proto->doc_string));
    EBB_TRY(read_inputs(r, g, proto));
    EBB_TRY(read_initializers(r, g, proto));
    EBB_TRY(read_sparse(r, g, proto));
    EBB_TRY(read_nodes(r, g, proto->node, proto->n_node));
    EBB_TRY(read_outputs(r, g, proto));
    EBB_TRY(read_infos(r, g, proto->value_info, proto->n_value_info));
    for (size_t i = 0; i < proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = proto->metadata_props[i];
        ebb_value loss =
            has_key(entry, "ebb.loss") ? ebb_value_find(g, or_blank(entry->value)) : EBB_NO_VALUE;
        if (loss.i != 0)
            g->loss = loss;
        else
            EBB_TRY(add_prop(r, &g->props, entry));
    }
    return NULL;
}

/* ---- functions ---- */

static ebb_status read_imports(reader *r, ebb_import **list, size_t *list_count,
                               Onnx__OperatorSetIdProto *const *protos, size_t count)
{
    *list = EBB_NEW(r->arena, ebb_import, count);
    if (*list == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < count; i++) {
        EBB_TRY(read_name(r, &(*list)[i].domain, protos[i]->domain));
        (*list)[i].version = protos[i]->version;
    }
    *list_count = count;
    return NULL;
}

/* A function's operators follow its own imports, not the model's. */
static void find_ops_again(const ebb_model *model, const ebb_function *f, ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
    {
        ebb_node_info *info = ebb_node_of(g, n);
        const char *domain = ebb_text(g, info->domain);
        for (size_t i = 0; i < f->import_count; i++) {
            const char *imported = ebb_names_text(&model->names, f->imports[i].domain);
            bool both_onnx = (domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0) &&
                             (imported[0] == '\0' || strcmp(imported, "ai.onnx") == 0);
            if (both_onnx || strcmp(domain, imported) == 0)
                info->op = ebb_op_find(domain, ebb_text(g, info->op_name), f->imports[i].version);
        }
        for (uint32_t a = 0; a < info->attr_count; a++)
            for (uint32_t k = 0; info->attr[a].graphs != NULL && k < info->attr[a].count; k++)
                find_ops_again(model, f, info->attr[a].graphs[k]);
    }
}

static ebb_status read_function_body(reader *r, ebb_function *f, const Onnx__FunctionProto *proto)
{
    EBB_TRY(ebb_graph_new(&f->body, r->model, NULL));
    for (size_t i = 0; i < proto->n_input; i++) {
        ebb_value v;
        if (is_blank(proto->input[i]) || ebb_value_find(f->body, proto->input[i]).i != 0)
            return ebb_error(EBB_REJECTED, "input '%.100s' is nameless or there twice",
                             proto->input[i]);
        EBB_TRY(ebb_value_add(f->body, &v, proto->input[i], NULL));
        EBB_TRY(ebb_graph_add_input(f->body, v));
    }
    EBB_TRY(read_nodes(r, f->body, proto->node, proto->n_node));
    for (size_t i = 0; i < proto->n_output; i++) {
        ebb_value v = ebb_value_find(f->body, proto->output[i]);
        if (v.i == 0)
            return ebb_error(EBB_REJECTED, "output '%.100s' is made by no node", proto->output[i]);
        EBB_TRY(ebb_graph_add_output(f->body, v));
    }
    return read_infos(r, f->body, proto->value_info, proto->n_value_info);
}

static ebb_status read_function(reader *r, ebb_function *f, const Onnx__FunctionProto *proto)
{
    f->origin = proto;
    EBB_TRY(read_name(r, &f->domain, proto->domain));
    EBB_TRY(read_name(r, &f->name, proto->name));
    EBB_TRY(read_name(r, &f->overload, proto->overload));
    EBB_TRY(
        read_imports(r, &f->imports, &f->import_count, proto->opset_import, proto->n_opset_import));
    f->attrs = EBB_NEW(r->arena, ebb_str, proto->n_attribute);
    if (f->attrs == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < proto->n_attribute; i++)
        EBB_TRY(read_name(r, &f->attrs[i], proto->attribute[i]));
    f->attr_count = proto->n_attribute;
    EBB_TRY(read_function_body(r, f, proto));
    EBB_TRY(read_attrs(r, f->body, &f->defaults, proto->attribute_proto, proto->n_attribute_proto));
    f->default_count = proto->n_attribute_proto;
    find_ops_again(r->model, f, f->body);
    return NULL;
}

static ebb_status read_functions(reader *r, const Onnx__ModelProto *proto)
{
    ebb_model *m = r->model;
    m->functions = EBB_NEW(r->arena, ebb_function, proto->n_functions);
    if (m->functions == NULL)
        return ebb_error_memory();
    m->function_capacity = proto->n_functions;
    for (size_t i = 0; i < proto->n_functions; i++) {
        ebb_status status = read_function(r, &m->functions[i], proto->functions[i]);
        if (status != NULL)
            return placed(status, "function", proto->functions[i]->name);
        m->function_count++;
    }
    return NULL;
}

/* ---- training information ---- */

static ebb_status read_initialization(reader *r, const Onnx__TrainingInfoProto *info)
{
    ebb_model *m = r->model;
    if (info->initialization == NULL)
        return NULL;
    EBB_TRY(ebb_graph_new(&m->initialization, m, NULL));
    EBB_TRY(ebb_while(read_graph(r, m->initialization, info->initialization),
                      "reading training_info[0].initialization"));
    size_t count = info->n_initialization_binding;
    m->init_bindings = EBB_NEW(r->arena, struct ebb_init_binding, count);
    if (m->init_bindings == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < count; i++) {
        const Onnx__StringStringEntryProto *entry = info->initialization_binding[i];
        struct ebb_init_binding *b = &m->init_bindings[i];
        EBB_TRY(read_name(r, &b->state, or_blank(entry->key)));
        b->value = ebb_value_find(m->initialization, or_blank(entry->value));
        if (b->value.i == 0)
            return ebb_error(EBB_REJECTED,
                             "initialization of '%.80s' is bound to '%.80s', which the "
                             "initialization graph does not make",
                             or_blank(entry->key), or_blank(entry->value));
    }
    m->init_binding_count = count;
    return NULL;
}

/* With an algorithm graph of its own the bindings speak of that graph's values, and the writer
 * keeps them as they are; those that speak of the main graph's are bound all the same. */
static ebb_status read_bindings(reader *r, const Onnx__TrainingInfoProto *info)
{
    ebb_graph *g = r->model->graph;
    bool algorithm = info->algorithm != NULL && info->algorithm->n_node > 0;
    for (size_t i = 0; i < info->n_update_binding; i++) {
        const Onnx__StringStringEntryProto *entry = info->update_binding[i];
        ebb_value state = ebb_value_find(g, or_blank(entry->key));
        ebb_value next = ebb_value_find(g, or_blank(entry->value));
        bool is_state = (ebb_value_of(g, state)->flags & EBB_IS_INITIALIZER) != 0;
        if (is_state && next.i != 0 && ebb_graph_bound(g, state).i == 0)
            EBB_TRY(ebb_graph_bind(g, state, next));
        else if (!algorithm)
            return ebb_error(EBB_REJECTED, "update binding of '%.80s' to '%.80s': %s",
                             or_blank(entry->key), or_blank(entry->value),
                             !is_state     ? "there is no such initializer"
                             : next.i == 0 ? "no node makes that"
                                           : "it is bound twice");
    }
    return NULL;
}

/* ---- models ---- */

static ebb_status read_model_props(reader *r, const Onnx__ModelProto *proto)
{
    ebb_graph *g = r->model->graph;
    for (size_t i = 0; i < proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = proto->metadata_props[i];
        ebb_value loss = has_key(entry, "ebb.loss") && g->loss.i == 0
                             ? ebb_value_find(g, or_blank(entry->value))
                             : EBB_NO_VALUE;
        if (loss.i != 0)
            g->loss = loss;
        else
            EBB_TRY(add_prop(r, &r->model->props, entry));
    }
    return NULL;
}

static ebb_status read_model(reader *r, const Onnx__ModelProto *proto)
{
    ebb_model *m = r->model;
    m->origin = proto;
    m->ir_version = proto->ir_version;
    if (proto->graph == NULL)
        return ebb_error(EBB_REJECTED, "is not an ONNX model: it has no graph");
    for (size_t i = 0; i < proto->n_opset_import; i++)
        EBB_TRY(ebb_model_import(m, or_blank(proto->opset_import[i]->domain),
                                 proto->opset_import[i]->version));
    EBB_TRY(read_functions(r, proto));
    EBB_TRY(read_graph(r, m->graph, proto->graph));
    EBB_TRY(read_model_props(r, proto));
    if (proto->n_training_info == 0)
        return NULL;
    EBB_TRY(read_initialization(r, proto->training_info[0]));
    return read_bindings(r, proto->training_info[0]);
}

static ebb_status read_bytes(ebb_model *m, const void *bytes, size_t size)
{
    reader r = {.model = m, .arena = &m->arena, .files = {&m->mappings, m->folder}};
    ProtobufCMessage *message;
    EBB_TRY(ebb_wire_parse(&message, &m->arena, &onnx__model_proto__descriptor, bytes, size));
    ebb_status status = read_model(&r, (const Onnx__ModelProto *)(const void *)message);
    ebb_arena_fini(&r.scratch);
    return status;
}

static ebb_status read_file(ebb_model *m, const char *path)
{
    const char *slash = strrchr(path, '/');
    m->path = ebb_arena_strdup(&m->arena, path);
    m->folder = slash == NULL   ? "."
                : slash == path ? "/"
                                : ebb_arena_printf(&m->arena, "%.*s", (int)(slash - path), path);
    if (m->path == NULL || m->folder == NULL)
        return ebb_error_memory();
    EBB_TRY(ebb_mapping_open(&m->mappings, path));
    const ebb_mapping *file = m->mappings;
    return ebb_at(read_bytes(m, file->data, file->bytes), path);
}

ebb_status ebb_model_read(ebb_model **model, const char *path)
{
    ebb_model *m;
    EBB_TRY(ebb_model_new(&m, 0));
    ebb_status status = read_file(m, path);
    if (status == NULL)
        *model = m;
    else
        ebb_model_free(m);
    return status;
}

ebb_status ebb_model_read_memory(ebb_model **model, const void *bytes, size_t size,
                                 const char *folder)
{
    ebb_model *m;
    EBB_TRY(ebb_model_new(&m, 0));
    m->folder = folder != NULL ? ebb_arena_strdup(&m->arena, folder) : NULL;
    ebb_status status =
        folder != NULL && m->folder == NULL ? ebb_error_memory() : read_bytes(m, bytes, size);
    if (m->folder == NULL)
        m->folder = "";
    if (status == NULL)
        *model = m;
    else
        ebb_model_free(m);
    return status;
}
