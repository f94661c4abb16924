/* read.c: a model from a file or from memory: imports, functions, training information. */
#include "onnx/file/file.h"

#include "onnx/file/reader.h"
#include "onnx/file/wire.h"

/* ---- functions ---- */

static ebb_status read_imports(ebb_reader *r, ebb_import **list, size_t *list_count,
                               Onnx__OperatorSetIdProto *const *protos, size_t count)
{
    *list = EBB_NEW(r->arena, ebb_import, count);
    if (*list == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < count; i++) {
        EBB_TRY(ebb_reader_name(r, &(*list)[i].domain, protos[i]->domain));
        (*list)[i].version = protos[i]->version;
    }
    *list_count = count;
    return NULL;
}

/* A function's operators follow its own imports, not the model's. */
static void find_ops_again(const ebb_model *model, const ebb_function *f, ebb_graph *g)
{
    EBB_EACH_NODE(g, n) {
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

static ebb_status read_function_body(ebb_reader *r, ebb_function *f,
                                     const Onnx__FunctionProto *proto)
{
    EBB_TRY(ebb_graph_new(&f->body, r->model, NULL));
    for (size_t i = 0; i < proto->n_input; i++) {
        ebb_value v;
        if (proto->input[i][0] == '\0' || ebb_value_find(f->body, proto->input[i]).i != 0)
            return ebb_error(EBB_REJECTED, "input '%.100s' is nameless or there twice",
                             proto->input[i]);
        EBB_TRY(ebb_value_add(f->body, &v, proto->input[i], NULL));
        EBB_TRY(ebb_graph_add_input(f->body, v));
    }
    EBB_TRY(ebb_reader_nodes(r, f->body, proto->node, proto->n_node));
    for (size_t i = 0; i < proto->n_output; i++) {
        ebb_value v = ebb_value_find(f->body, proto->output[i]);
        if (v.i == 0)
            return ebb_error(EBB_REJECTED, "output '%.100s' is made by no node", proto->output[i]);
        EBB_TRY(ebb_graph_add_output(f->body, v));
    }
    return ebb_reader_infos(r, f->body, proto->value_info, proto->n_value_info);
}

static ebb_status read_function(ebb_reader *r, ebb_function *f, const Onnx__FunctionProto *proto)
{
    f->origin = proto;
    EBB_TRY(ebb_reader_name(r, &f->domain, proto->domain));
    EBB_TRY(ebb_reader_name(r, &f->name, proto->name));
    EBB_TRY(ebb_reader_name(r, &f->overload, proto->overload));
    EBB_TRY(
        read_imports(r, &f->imports, &f->import_count, proto->opset_import, proto->n_opset_import));
    f->attrs = EBB_NEW(r->arena, ebb_str, proto->n_attribute);
    if (f->attrs == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < proto->n_attribute; i++)
        EBB_TRY(ebb_reader_name(r, &f->attrs[i], proto->attribute[i]));
    f->attr_count = proto->n_attribute;
    EBB_TRY(read_function_body(r, f, proto));
    EBB_TRY(ebb_reader_attrs(r, f->body, &f->defaults, proto->attribute_proto,
                             proto->n_attribute_proto));
    f->default_count = proto->n_attribute_proto;
    find_ops_again(r->model, f, f->body);
    return NULL;
}

static ebb_status read_functions(ebb_reader *r, const Onnx__ModelProto *proto)
{
    ebb_model *m = r->model;
    m->functions = EBB_NEW(r->arena, ebb_function, proto->n_functions);
    if (m->functions == NULL)
        return ebb_error_memory();
    m->function_capacity = proto->n_functions;
    for (size_t i = 0; i < proto->n_functions; i++) {
        ebb_status status = read_function(r, &m->functions[i], proto->functions[i]);
        if (status != NULL)
            return ebb_reader_placed(status, "function", proto->functions[i]->name);
        m->function_count++;
    }
    return NULL;
}

/* ---- training information ---- */

static ebb_status read_initialization(ebb_reader *r, const Onnx__TrainingInfoProto *info)
{
    ebb_model *m = r->model;
    if (info->initialization == NULL)
        return NULL;
    EBB_TRY(ebb_graph_new(&m->initialization, m, NULL));
    EBB_TRY(ebb_while(ebb_reader_graph(r, m->initialization, info->initialization),
                      "reading training_info[0].initialization"));
    size_t count = info->n_initialization_binding;
    m->init_bindings = EBB_NEW(r->arena, struct ebb_init_binding, count);
    if (m->init_bindings == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < count; i++) {
        const Onnx__StringStringEntryProto *entry = info->initialization_binding[i];
        struct ebb_init_binding *b = &m->init_bindings[i];
        EBB_TRY(ebb_reader_name(r, &b->state, ebb_reader_text(entry->key)));
        b->value = ebb_value_find(m->initialization, ebb_reader_text(entry->value));
        if (b->value.i == 0)
            return ebb_error(EBB_REJECTED,
                             "initialization of '%.80s' is bound to '%.80s', which the "
                             "initialization graph does not make",
                             ebb_reader_text(entry->key), ebb_reader_text(entry->value));
    }
    m->init_binding_count = count;
    return NULL;
}

/* With an algorithm graph of its own the bindings speak of that graph's values, and the writer
 * keeps them as they are; those that speak of the main graph's are bound all the same. */
static ebb_status read_bindings(ebb_reader *r, const Onnx__TrainingInfoProto *info)
{
    ebb_graph *g = r->model->graph;
    bool algorithm = info->algorithm != NULL && info->algorithm->n_node > 0;
    for (size_t i = 0; i < info->n_update_binding; i++) {
        const Onnx__StringStringEntryProto *entry = info->update_binding[i];
        ebb_value state = ebb_value_find(g, ebb_reader_text(entry->key));
        ebb_value next = ebb_value_find(g, ebb_reader_text(entry->value));
        bool is_state = (ebb_value_of(g, state)->flags & EBB_IS_INITIALIZER) != 0;
        if (is_state && next.i != 0 && ebb_graph_bound(g, state).i == 0)
            EBB_TRY(ebb_graph_bind(g, state, next));
        else if (!algorithm)
            return ebb_error(EBB_REJECTED, "update binding of '%.80s' to '%.80s': %s",
                             ebb_reader_text(entry->key), ebb_reader_text(entry->value),
                             !is_state     ? "there is no such initializer"
                             : next.i == 0 ? "no node makes that"
                                           : "it is bound twice");
    }
    return NULL;
}

/* ---- models ---- */

static ebb_status read_model_props(ebb_reader *r, const Onnx__ModelProto *proto)
{
    ebb_graph *g = r->model->graph;
    for (size_t i = 0; i < proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = proto->metadata_props[i];
        ebb_value loss = strcmp(ebb_reader_text(entry->key), "ebb.loss") == 0 && g->loss.i == 0
                             ? ebb_value_find(g, ebb_reader_text(entry->value))
                             : EBB_NO_VALUE;
        if (loss.i != 0)
            g->loss = loss;
        else
            EBB_TRY(ebb_reader_prop(r, &r->model->props, entry));
    }
    return NULL;
}

/* PyTorch's other exporter marks what is a parameter. */
static bool is_torchscript(const ebb_graph *g, const Onnx__ModelProto *proto)
{
    if (strcmp(ebb_reader_text(proto->producer_name), "pytorch") != 0)
        return false;
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_props_get(g, &ebb_value_of(g, g->initializers[i])->props,
                          "pkg.torch.export.graph_signature.InputSpec.kind") != NULL)
            return false;
    return true;
}

static ebb_status read_model(ebb_reader *r, const Onnx__ModelProto *proto)
{
    ebb_model *m = r->model;
    m->origin = proto;
    m->ir_version = proto->ir_version;
    if (proto->graph == NULL)
        return ebb_error(EBB_REJECTED, "is not an ONNX model: it has no graph");
    for (size_t i = 0; i < proto->n_opset_import; i++)
        EBB_TRY(ebb_model_import(m, ebb_reader_text(proto->opset_import[i]->domain),
                                 proto->opset_import[i]->version));
    EBB_TRY(read_functions(r, proto));
    EBB_TRY(ebb_reader_graph(r, m->graph, proto->graph));
    m->torchscript = is_torchscript(m->graph, proto);
    EBB_TRY(read_model_props(r, proto));
    if (proto->n_training_info == 0)
        return NULL;
    EBB_TRY(read_initialization(r, proto->training_info[0]));
    return read_bindings(r, proto->training_info[0]);
}

static ebb_status read_bytes(ebb_model *m, const void *bytes, size_t size)
{
    ebb_reader r = {.model = m, .arena = &m->arena, .files = {&m->mappings, m->folder}};
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
