/* write_graph.c: graphs, nodes, attributes and metadata into messages. */
#include "onnx/file/writer.h"

#include <inttypes.h>
#include <stdio.h>

enum { MOST_MATCHED_PROPS = 4096 };

void *ebb_writer_new(ebb_writer *w, size_t count, size_t size)
{
    void *memory = ebb_arena_zeroed(&w->arena, count, size);
    if (memory == NULL)
        w->failed = true;
    return memory;
}

void *ebb_writer_loan(const void *memory)
{
    void *loan;
    memcpy(&loan, &memory, sizeof loan);
    return loan;
}

char *ebb_writer_text(const ebb_graph *g, ebb_str name)
{
    return name.i == 0 ? NULL : ebb_writer_loan(ebb_text(g, name));
}

void *ebb_writer_message(ebb_writer *w, const ProtobufCMessageDescriptor *type, const void *origin,
                         uint64_t without)
{
    ProtobufCMessage *message;
    if (origin == NULL) {
        message = ebb_writer_new(w, 1, type->sizeof_message);
        if (message != NULL)
            type->message_init(message);
        return message;
    }
    ebb_status status = ebb_wire_part(&message, &w->arena, type, ebb_wire_bytes(origin), without);
    w->failed |= status != NULL; // the bytes are checked: it can only want for memory
    return status == NULL ? message : NULL;
}

/* ---- metadata ---- */

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

Onnx__StringStringEntryProto *ebb_writer_entry(ebb_writer *w, const char *key, const char *value)
{
    Onnx__StringStringEntryProto *e =
        EBB_WRITER_MESSAGE(w, Onnx__StringStringEntryProto, string_string_entry_proto, NULL, 0);
    if (e == NULL)
        return NULL;
    e->key = ebb_writer_loan(key);
    e->value = ebb_writer_loan(value);
    return e;
}

bool ebb_writer_has_key(ebb_entries entries, const char *key)
{
    for (size_t i = 0; i < entries.count; i++)
        if (same_text(entries.list[i]->key, key))
            return true;
    return false;
}

static bool entry_is(const ebb_graph *g, const Onnx__StringStringEntryProto *e, ebb_prop prop)
{
    return same_text(e->key, ebb_writer_text(g, prop.key)) &&
           same_text(e->value, ebb_writer_text(g, prop.value));
}

/* As it was: all entries in order, and no field of the graph's to add. */
static bool props_unchanged(const ebb_graph *g, const ebb_props *props, ebb_entries was,
                            const ebb_owned *owned, size_t owned_count)
{
    for (size_t i = 0; i < owned_count; i++)
        if (owned[i].value != NULL)
            return false;
    if (ebb_props_count(props) != was.count)
        return false;
    size_t i = 0;
    EBB_EACH_PROP(props, p)
        if (!entry_is(g, was.list[i++], *p))
            return false;
    return true;
}

/* The entry brought up to date; NULL where it is gone. */
static Onnx__StringStringEntryProto *updated(ebb_writer *w, const ebb_graph *g,
                                             const ebb_props *props,
                                             Onnx__StringStringEntryProto *e,
                                             const ebb_owned *owned, size_t owned_count)
{
    for (size_t i = 0; i < owned_count; i++)
        if (owned[i].value != NULL && same_text(e->key, owned[i].key))
            return same_text(e->value, owned[i].value)
                       ? e
                       : ebb_writer_entry(w, owned[i].key, owned[i].value);
    const ebb_prop *same_key = NULL;
    EBB_EACH_PROP(props, p) {
        if (entry_is(g, e, *p))
            return e;
        if (same_key == NULL && same_text(e->key, ebb_writer_text(g, p->key)))
            same_key = p;
    }
    return same_key == NULL ? NULL
                            : ebb_writer_entry(w, e->key, ebb_writer_text(g, same_key->value));
}

static void add_entry(ebb_writer *w, ebb_entries *now, const char *key, const char *value)
{
    Onnx__StringStringEntryProto *e = ebb_writer_entry(w, key, value);
    if (e != NULL)
        now->list[now->count++] = e;
    w->new_metadata = true;
}

ebb_entries ebb_writer_props(ebb_writer *w, const ebb_graph *g, const ebb_props *props,
                             ebb_entries was, ebb_entries elsewhere, const ebb_owned *owned,
                             size_t owned_count)
{
    if (props_unchanged(g, props, was, owned, owned_count) || was.count > MOST_MATCHED_PROPS)
        return was;
    ebb_entries now = {EBB_WRITER_NEW(w, Onnx__StringStringEntryProto *,
                                      was.count + ebb_props_count(props) + owned_count),
                       0};
    if (now.list == NULL)
        return now;
    for (size_t i = 0; i < was.count; i++) {
        Onnx__StringStringEntryProto *e = updated(w, g, props, was.list[i], owned, owned_count);
        if (e != NULL)
            now.list[now.count++] = e;
    }
    EBB_EACH_PROP(props, p) {
        const char *key = ebb_writer_text(g, p->key);
        if (!ebb_writer_has_key(was, key) && !ebb_writer_has_key(elsewhere, key))
            add_entry(w, &now, key, ebb_writer_text(g, p->value));
    }
    for (size_t i = 0; i < owned_count; i++)
        if (owned[i].value != NULL && !ebb_writer_has_key(was, owned[i].key))
            add_entry(w, &now, owned[i].key, owned[i].value);
    return now;
}

/* ---- initializers ---- */

static Onnx__TensorProto *make_initializer(ebb_writer *w, const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *value = ebb_value_of(g, v);
    Onnx__TensorProto *t = ebb_writer_tensor(w, value->tensor, true);
    if (t == NULL)
        return NULL;
    t->name = ebb_writer_text(g, value->name);
    const Onnx__ValueInfoProto *info = NULL;
    ebb_entries was = {t->metadata_props, t->n_metadata_props}, others = {NULL, 0};
    if (value->origin != NULL)
        info = EBB_WRITER_MESSAGE(w, Onnx__ValueInfoProto, value_info_proto, value->origin, 0);
    if (info != NULL)
        others = (ebb_entries){info->metadata_props, info->n_metadata_props};
    const ebb_owned owned[] = {
        {"ebb.role", value->role != 0 ? ebb_role_spelling[value->role] : NULL},
        {EBB_EXTERNAL_SUM, ebb_writer_sum(w, value->tensor)}};
    ebb_entries now = ebb_writer_props(w, g, &value->props, was, others, owned, 2);
    t->metadata_props = now.list;
    t->n_metadata_props = now.count;
    return t;
}

/* ---- attributes ---- */

static void set_graphs(ebb_writer *w, Onnx__AttributeProto *a, const ebb_attr *attr)
{
    if (attr->type == EBB_ATTR_GRAPH) {
        a->g = ebb_writer_graph(w, attr->graphs[0]);
        return;
    }
    a->n_graphs = attr->count;
    a->graphs = EBB_WRITER_NEW(w, Onnx__GraphProto *, attr->count);
    for (uint32_t i = 0; a->graphs != NULL && i < attr->count; i++)
        a->graphs[i] = ebb_writer_graph(w, attr->graphs[i]);
}

static void set_strings(ebb_writer *w, Onnx__AttributeProto *a, const ebb_attr *attr)
{
    a->n_strings = attr->count;
    a->strings = EBB_WRITER_NEW(w, ProtobufCBinaryData, attr->count);
    for (uint32_t i = 0; a->strings != NULL && i < attr->count; i++) {
        a->strings[i].data = ebb_writer_loan(attr->strings[i]);
        a->strings[i].len = strlen(attr->strings[i]);
    }
}

static void set_value(ebb_writer *w, Onnx__AttributeProto *a, const ebb_attr *attr)
{
    switch (attr->type) {
    case EBB_ATTR_FLOAT:
        a->has_f = true;
        a->f = (float)attr->f;
        break;
    case EBB_ATTR_INT:
        a->has_i = true;
        a->i = attr->i;
        break;
    case EBB_ATTR_STRING:
        a->has_s = true;
        a->s.data = ebb_writer_loan(attr->s);
        a->s.len = attr->s_bytes;
        break;
    case EBB_ATTR_TENSOR:
        a->t = ebb_writer_tensor(w, attr->tensor, false);
        break;
    case EBB_ATTR_FLOATS:
        a->n_floats = attr->count;
        a->floats = ebb_writer_loan(attr->floats);
        break;
    case EBB_ATTR_INTS:
        a->n_ints = attr->count;
        a->ints = ebb_writer_loan(attr->ints);
        break;
    case EBB_ATTR_STRINGS:
        set_strings(w, a, attr);
        break;
    case EBB_ATTR_GRAPH:
    case EBB_ATTR_GRAPHS:
        set_graphs(w, a, attr);
        break;
    default:
        break;
    }
}

Onnx__AttributeProto *ebb_writer_attr(ebb_writer *w, const ebb_graph *g, const ebb_attr *attr)
{
    const void *origin = attr->origin;
    uint64_t without = attr->graphs == NULL           ? 0
                       : attr->type == EBB_ATTR_GRAPH ? EBB_FIELD(EBB_ATTRIBUTE_GRAPH)
                                                      : EBB_FIELD(EBB_ATTRIBUTE_GRAPHS);
    (void)g;
    Onnx__AttributeProto *a =
        EBB_WRITER_MESSAGE(w, Onnx__AttributeProto, attribute_proto, origin, without);
    // An attribute that stood for a function's and has been resolved is another attribute.
    if (a != NULL && origin != NULL && same_text(a->ref_attr_name, "") == false &&
        (a->ref_attr_name != NULL) != (attr->ref != NULL)) {
        origin = NULL;
        a = EBB_WRITER_MESSAGE(w, Onnx__AttributeProto, attribute_proto, NULL, 0);
    }
    if (a == NULL)
        return NULL;
    a->name = ebb_writer_loan(attr->name);
    if (attr->ref != NULL)
        a->ref_attr_name = ebb_writer_loan(attr->ref);
    if (origin == NULL) {
        a->has_type = true;
        a->type = (Onnx__AttributeProto__AttributeType)attr->type;
        if (attr->ref == NULL)
            set_value(w, a, attr);
    } else if (attr->graphs != NULL) {
        set_graphs(w, a, attr);
    } else if (attr->type == EBB_ATTR_TENSOR && attr->tensor != NULL && attr->tensor->external) {
        a->t = ebb_writer_tensor(w, attr->tensor, false); // its file may not be where we write
    }
    return a;
}

/* ---- nodes ---- */

/* Whether the node's operator is to have its body in the file. Operators of ours always; others',
 * where the node or the graph is not as the file had it. */
static bool wants_body(const ebb_writer *w, const ebb_graph *g, const ebb_node_info *info)
{
    if (w->no_bodies || ebb_op_body(info->op) == NULL)
        return false;
    const char *domain = ebb_text(g, info->domain);
    return w->changed || info->origin == NULL || strcmp(domain, EBB_DOMAIN_EBB) == 0;
}

static void note_operator(ebb_writer *w, const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const char *domain = ebb_text(g, info->domain);
    if (wants_body(w, g, info)) {
        w->bodies[info->op] = true;
        w->bodies_narrow[info->op] |= ebb_body_is_narrow(g, n);
        w->bodies_wrong[info->op] |= ebb_body_is_wrong(g, n);
    }
    if (w->in_function || ebb_model_opset(w->model, domain) != 0 ||
        (info->origin != NULL && !w->changed)) // a file that forgot an import is left as it is
        return;
    for (size_t i = 0; i < w->domain_count; i++)
        if (strcmp(w->domains[i], domain) == 0)
            return;
    if (ebb_arena_grow(&w->kept, &w->domains, w->domain_count, &w->domain_capacity,
                       sizeof *w->domains))
        w->domains[w->domain_count++] = domain;
    else
        w->failed = true;
}

/* How many outputs the function that a node calls declares; 0: it calls none. Some runtimes want a
 * call to name them all, be it by "". */
static uint32_t declared_outputs(const ebb_writer *w, const ebb_graph *g, const ebb_node_info *info)
{
    const ebb_model *m = w->model;
    bool ours = ebb_op_body(info->op) != NULL;
    for (size_t i = 0; i < m->function_count; i++)
        if (ebb_same_str(m->functions[i].name, info->op_name) &&
            ebb_same_str(m->functions[i].domain, info->domain))
            return ours || m->functions[i].origin == NULL
                       ? (uint32_t)m->functions[i].body->output_count
                       : 0; // a call of the file's own stays as it is
    return ours && wants_body(w, g, info) ? ebb_op_body_outputs(info->op) : 0;
}

/* The first `count` of `list`, then "" up to `least`. */
static char **value_names(ebb_writer *w, const ebb_graph *g, const ebb_value *list, uint32_t count,
                          uint32_t least)
{
    char **names = EBB_WRITER_NEW(w, char *, count > least ? count : least);
    for (uint32_t i = 0; names != NULL && i < count; i++)
        names[i] = ebb_writer_loan(ebb_value_name(g, list[i]));
    for (uint32_t i = count; names != NULL && i < least; i++)
        names[i] = ebb_writer_loan("");
    return names;
}

/* "0:1 2:0", or NULL where no output is written over an input. */
static const char *in_place(ebb_writer *w, const ebb_graph *g, ebb_node n)
{
    const char *text = NULL;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->out_count; i++) {
        const uint32_t over = ebb_node_over(g, n, i);
        if (over == 0)
            continue;
        text = ebb_arena_printf(&w->arena, "%s%s%u:%u", text != NULL ? text : "",
                                text != NULL ? " " : "", (unsigned)i, (unsigned)over - 1);
        w->failed |= text == NULL;
    }
    return text;
}

static const char *tile_rows(ebb_writer *w, const ebb_node_info *info)
{
    if (info->tile_rows == 0)
        return NULL;
    const char *text = ebb_arena_printf(&w->arena, "%lld", (long long)info->tile_rows);
    w->failed |= text == NULL;
    return text;
}

/* ONNX Runtime marks gradient nodes by doc_string alone; such a node keeps to that. */
static bool marked_by_doc(const ebb_graph *g, const ebb_node_info *info, ebb_entries was)
{
    return info->origin != NULL && info->phase == EBB_BACKWARD &&
           !ebb_writer_has_key(was, "ebb.phase") &&
           strcmp(ebb_text(g, info->doc), EBB_BACKWARD_DOC) == 0;
}

static Onnx__NodeProto *make_node(ebb_writer *w, const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    Onnx__NodeProto *node = EBB_WRITER_MESSAGE(w, Onnx__NodeProto, node_proto, info->origin,
                                               EBB_FIELD(EBB_NODE_ATTRIBUTE));
    if (node == NULL)
        return NULL;
    note_operator(w, g, n);
    uint32_t declared = declared_outputs(w, g, info);
    node->n_input = info->in_count;
    node->input = value_names(w, g, info->in, info->in_count, 0);
    node->n_output = info->out_count > declared ? info->out_count : declared;
    node->output = value_names(w, g, info->out, info->out_count, declared);
    node->name = ebb_writer_text(g, info->name);
    node->op_type = ebb_writer_text(g, info->op_name);
    node->domain = ebb_writer_text(g, info->domain);
    node->overload = ebb_writer_text(g, info->overload);
    node->doc_string = ebb_writer_text(g, info->doc);
    if (info->origin == NULL && info->phase == EBB_BACKWARD && info->doc.i == 0)
        node->doc_string = ebb_writer_loan(EBB_BACKWARD_DOC);
    node->n_attribute = info->attr_count;
    node->attribute = EBB_WRITER_NEW(w, Onnx__AttributeProto *, info->attr_count);
    for (uint32_t i = 0; node->attribute != NULL && i < info->attr_count; i++)
        node->attribute[i] = ebb_writer_attr(w, g, &info->attr[i]);

    ebb_entries was = {node->metadata_props, node->n_metadata_props}, none = {NULL, 0};
    bool plain = info->phase == EBB_PHASE_NONE || marked_by_doc(g, info, was);
    const ebb_owned owned[] = {{"ebb.phase", plain ? NULL : ebb_phase_spelling[info->phase]},
                               {"ebb.inplace", in_place(w, g, n)},
                               {"ebb.stream", tile_rows(w, info)}};
    ebb_entries now = ebb_writer_props(w, g, &info->props, was, none, owned, 3);
    node->metadata_props = now.list;
    node->n_metadata_props = now.count;
    return node;
}

void ebb_writer_each_node(ebb_writer *w, const ebb_graph *g, ebb_pieces *to)
{
    EBB_EACH_NODE(g, n) {
        const Onnx__NodeProto *node = make_node(w, g, n);
        if (w->failed)
            return;
        to->take(to, w, &node->base);
    }
}

/* A list of messages, with room for as many as there may be. */
typedef struct gathered {
    ebb_pieces base;
    const ProtobufCMessage **list;
    size_t count;
} gathered;

static void gather(ebb_pieces *pieces, ebb_writer *w, const ProtobufCMessage *message)
{
    gathered *g = (gathered *)(void *)pieces;
    (void)w;
    g->list[g->count++] = message;
}

static gathered gather_all(ebb_writer *w, const ebb_graph *g, size_t most,
                           void (*each)(ebb_writer *, const ebb_graph *, ebb_pieces *))
{
    gathered all = {.base = {gather}, .list = EBB_WRITER_NEW(w, const ProtobufCMessage *, most)};
    if (all.list != NULL)
        each(w, g, &all.base);
    return all;
}

void ebb_writer_nodes(ebb_writer *w, const ebb_graph *g, Onnx__NodeProto ***list, size_t *count)
{
    gathered nodes = gather_all(w, g, g->node_count, ebb_writer_each_node);
    *list = ebb_writer_loan(nodes.list);
    *count = nodes.count;
}

/* ---- graphs ---- */

bool ebb_writer_changed(const ebb_graph *g)
{
    size_t count = 0;
    EBB_EACH_NODE(g, n) {
        count++;
        if (ebb_node_of(g, n)->origin == NULL)
            return true;
    }
    return g->origin == NULL || count != ebb_wire_count(ebb_wire_bytes(g->origin), EBB_GRAPH_NODE);
}

/* The next message that the file's graph has in a field of values, and its bytes; NULL: no more. */
static const Onnx__ValueInfoProto *next_info(ebb_writer *w, const ebb_graph *g, uint32_t field,
                                             size_t *at, const void **part)
{
    *part = g->origin != NULL ? ebb_wire_next(ebb_wire_bytes(g->origin), field, at) : NULL;
    return *part != NULL ? EBB_WRITER_MESSAGE(w, Onnx__ValueInfoProto, value_info_proto, *part, 0)
                         : NULL;
}

/* Inputs or outputs: the message at the same place, where it has the name, else the value's own. */
static Onnx__ValueInfoProto **make_infos(ebb_writer *w, const ebb_graph *g, const ebb_value *values,
                                         size_t count, uint32_t field)
{
    Onnx__ValueInfoProto **list = EBB_WRITER_NEW(w, Onnx__ValueInfoProto *, count);
    size_t at = 0;
    for (size_t i = 0; list != NULL && i < count; i++) {
        const void *part;
        const Onnx__ValueInfoProto *was = next_info(w, g, field, &at, &part);
        bool here = was != NULL && same_text(was->name, ebb_value_name(g, values[i]));
        list[i] =
            ebb_writer_info(w, g, values[i], here ? part : ebb_value_of(g, values[i])->origin);
    }
    return list;
}

void ebb_writer_each_info(ebb_writer *w, const ebb_graph *g, ebb_pieces *to)
{
    bool changed = ebb_writer_changed(g);
    const Onnx__ValueInfoProto *was;
    const void *part;
    size_t at = 0;
    EBB_LOCAL_ARENA(scratch);
    uint8_t *done = EBB_NEW(scratch, uint8_t, g->value_count);
    w->failed |= done == NULL;
    while (!w->failed && (was = next_info(w, g, EBB_GRAPH_VALUE_INFO, &at, &part)) != NULL) {
        ebb_value v = was->name != NULL ? ebb_value_find(g, was->name) : EBB_NO_VALUE;
        const bool there = v.i != 0 && !ebb_value_of(g, v)->dead;
        if (there) {
            done[v.i] = 1;
            was = ebb_writer_info(w, g, v, part);
        }
        if (!w->failed && (there || !changed)) // or about a value that was never there
            to->take(to, w, &was->base);
    }
    const uint16_t listed = EBB_IS_INPUT | EBB_IS_OUTPUT | EBB_IS_INITIALIZER | EBB_IS_OUTER;
    for (ebb_value v = {1}; changed && !w->failed && v.i < g->value_count; v.i++) {
        const ebb_value_info *value = ebb_value_of(g, v);
        bool known = value->type->kind == EBB_KIND_TENSOR ||
                     value->type->kind == EBB_KIND_SEQUENCE ||
                     value->type->kind == EBB_KIND_OPTIONAL;
        if (value->dead || done[v.i] || (value->flags & listed) != 0 || value->producer.i == 0 ||
            !known || value->type->dtype == EBB_NONE)
            continue;
        const Onnx__ValueInfoProto *info = ebb_writer_info(w, g, v, value->origin);
        if (!w->failed)
            to->take(to, w, &info->base);
    }
}

void ebb_writer_each_initializer(ebb_writer *w, const ebb_graph *g, ebb_pieces *to)
{
    for (size_t i = 0; i < g->initializer_count; i++) {
        const Onnx__TensorProto *tensor = make_initializer(w, g, g->initializers[i]);
        if (w->failed)
            return;
        to->take(to, w, &tensor->base);
    }
}

static void set_sparse(ebb_writer *w, const ebb_graph *g, Onnx__GraphProto *graph)
{
    Onnx__SparseTensorProto *const *was = graph->sparse_initializer;
    size_t was_count = graph->n_sparse_initializer, count = 0;
    graph->sparse_initializer = EBB_WRITER_NEW(w, Onnx__SparseTensorProto *, was_count);
    for (size_t i = 0; graph->sparse_initializer != NULL && i < was_count; i++) {
        ebb_value v = ebb_value_find(g, was[i]->values->name);
        if (v.i != 0 && !ebb_value_of(g, v)->dead)
            graph->sparse_initializer[count++] = was[i];
    }
    graph->n_sparse_initializer = count;
}

/* The loss stands on the graph, unless the file had it on the model. */
static const char *loss_name(const ebb_writer *w, const ebb_graph *g, ebb_entries was)
{
    const Onnx__ModelProto *model = w->was;
    bool on_model = model != NULL && !ebb_writer_has_key(was, "ebb.loss") &&
                    ebb_writer_has_key(
                        (ebb_entries){model->metadata_props, model->n_metadata_props}, "ebb.loss");
    return g->loss.i == 0 || (on_model && g == w->model->graph) ? NULL : ebb_value_name(g, g->loss);
}

Onnx__GraphProto *ebb_writer_frame(ebb_writer *w, const ebb_graph *g)
{
    Onnx__GraphProto *graph =
        EBB_WRITER_MESSAGE(w, Onnx__GraphProto, graph_proto, g->origin, EBB_GRAPH_PARTS);
    if (graph == NULL)
        return NULL;
    graph->name = ebb_writer_text(g, g->name);
    if (graph->name == NULL && g->origin == NULL)
        graph->name = ebb_writer_loan("main");
    graph->doc_string = ebb_writer_text(g, g->doc);
    graph->input = make_infos(w, g, g->inputs, g->input_count, EBB_GRAPH_INPUT);
    graph->n_input = g->input_count;
    graph->output = make_infos(w, g, g->outputs, g->output_count, EBB_GRAPH_OUTPUT);
    graph->n_output = g->output_count;
    set_sparse(w, g, graph);
    ebb_entries was = {graph->metadata_props, graph->n_metadata_props}, none = {NULL, 0};
    const ebb_owned loss = {"ebb.loss", loss_name(w, g, was)};
    ebb_entries now = ebb_writer_props(w, g, &g->props, was, none, &loss, 1);
    graph->metadata_props = now.list;
    graph->n_metadata_props = now.count;
    return w->failed ? NULL : graph;
}

Onnx__GraphProto *ebb_writer_graph(ebb_writer *w, const ebb_graph *g)
{
    Onnx__GraphProto *graph = ebb_writer_frame(w, g);
    size_t infos = g->value_count;
    if (graph == NULL)
        return NULL;
    if (g->origin != NULL)
        infos += ebb_wire_count(ebb_wire_bytes(g->origin), EBB_GRAPH_VALUE_INFO);
    ebb_writer_nodes(w, g, &graph->node, &graph->n_node);
    gathered all = gather_all(w, g, g->initializer_count, ebb_writer_each_initializer);
    graph->initializer = ebb_writer_loan(all.list);
    graph->n_initializer = all.count;
    all = gather_all(w, g, infos, ebb_writer_each_info);
    graph->value_info = ebb_writer_loan(all.list);
    graph->n_value_info = all.count;
    return w->failed ? NULL : graph;
}
