/* read.c: a model from a file or from memory: imports, functions, training information. */
#include "onnx/file/file.h"

#include "onnx/file/reader.h"
#include "onnx/file/sink.h"

/* ---- functions ---- */

static ebb_status read_imports(ebb_reader *r, ebb_import **list, size_t *list_count,
                               Onnx__OperatorSetIdProto *const *protos, size_t count)
{
    *list = EBB_NEW(r->arena, ebb_import, count);
    EBB_GOT(*list);
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
        EBB_EACH_BODY(info, body)
            find_ops_again(model, f, *body);
    }
}

static ebb_status read_function_body(ebb_reader *r, ebb_function *f, ebb_encoded whole,
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
    EBB_TRY(ebb_reader_nodes(r, f->body, whole, EBB_FUNCTION_NODE));
    for (size_t i = 0; i < proto->n_output; i++) {
        ebb_value v = ebb_value_find(f->body, proto->output[i]);
        if (v.i == 0)
            return ebb_error(EBB_REJECTED, "output '%.100s' is made by no node", proto->output[i]);
        EBB_TRY(ebb_graph_add_output(f->body, v));
    }
    return ebb_reader_infos(r, f->body, whole, EBB_FUNCTION_VALUE_INFO);
}

static ebb_status read_function(ebb_reader *r, ebb_function *f, const void *part,
                                const Onnx__FunctionProto *proto)
{
    const ebb_encoded whole = ebb_wire_bytes(part);
    f->origin = part;
    EBB_TRY(ebb_reader_name(r, &f->domain, proto->domain));
    EBB_TRY(ebb_reader_name(r, &f->name, proto->name));
    EBB_TRY(ebb_reader_name(r, &f->overload, proto->overload));
    EBB_TRY(
        read_imports(r, &f->imports, &f->import_count, proto->opset_import, proto->n_opset_import));
    f->attrs = EBB_NEW(r->arena, ebb_str, proto->n_attribute);
    EBB_GOT(f->attrs);
    for (size_t i = 0; i < proto->n_attribute; i++)
        EBB_TRY(ebb_reader_name(r, &f->attrs[i], proto->attribute[i]));
    f->attr_count = proto->n_attribute;
    EBB_TRY(read_function_body(r, f, whole, proto));
    EBB_TRY(ebb_reader_attrs(r, f->body, r->arena, &f->defaults, &f->default_count, whole,
                             EBB_FUNCTION_DEFAULT));
    find_ops_again(r->model, f, f->body);
    return NULL;
}

static ebb_status read_next_function(ebb_reader *r, ebb_graph *g, const void *part,
                                     const ProtobufCMessage *message)
{
    const Onnx__FunctionProto *proto = (const Onnx__FunctionProto *)(const void *)message;
    ebb_model *m = r->model;
    (void)g;
    ebb_status status = read_function(r, &m->functions[m->function_count], part, proto);
    if (status != NULL)
        return ebb_reader_placed(status, "function", proto->name);
    m->function_count++;
    return NULL;
}

static ebb_status read_functions(ebb_reader *r, ebb_encoded whole)
{
    ebb_model *m = r->model;
    m->function_capacity = ebb_wire_count(whole, EBB_MODEL_FUNCTIONS);
    m->functions = EBB_NEW(r->arena, ebb_function, m->function_capacity);
    EBB_GOT(m->functions);
    return ebb_reader_parts(r, m->graph, whole, EBB_MODEL_FUNCTIONS,
                            &onnx__function_proto__descriptor,
                            EBB_FIELD(EBB_FUNCTION_NODE) | EBB_FIELD(EBB_FUNCTION_DEFAULT) |
                                EBB_FIELD(EBB_FUNCTION_VALUE_INFO),
                            read_next_function);
}

/* ---- training information ---- */

static ebb_status read_initialization(ebb_reader *r, ebb_encoded whole,
                                      const Onnx__TrainingInfoProto *info)
{
    ebb_model *m = r->model;
    size_t at = 0;
    const void *part = ebb_wire_next(whole, EBB_TRAINING_INITIALIZATION, &at);
    if (part == NULL)
        return NULL;
    EBB_TRY(ebb_graph_new(&m->initialization, m, NULL));
    EBB_TRY(ebb_while(ebb_reader_graph(r, m->initialization, part),
                      "reading training_info[0].initialization"));
    size_t count = info->n_initialization_binding;
    m->init_bindings = EBB_NEW(r->arena, struct ebb_init_binding, count);
    EBB_GOT(m->init_bindings);
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

/* The first; others the writer keeps as they are. */
static ebb_status read_training(ebb_reader *r, ebb_encoded whole)
{
    size_t at = 0;
    const void *part = ebb_wire_next(whole, EBB_MODEL_TRAINING_INFO, &at);
    ProtobufCMessage *message;
    EBB_LOCAL_ARENA(scratch);
    if (part == NULL)
        return NULL;
    const ebb_encoded span = ebb_wire_bytes(part);
    EBB_TRY(ebb_wire_part(&message, scratch, &onnx__training_info_proto__descriptor, span,
                          EBB_FIELD(EBB_TRAINING_INITIALIZATION)));
    const Onnx__TrainingInfoProto *info = (const Onnx__TrainingInfoProto *)(const void *)message;
    EBB_TRY(read_initialization(r, span, info));
    return read_bindings(r, info);
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

/* PyTorch's other exporter marks what is a parameter, and lists them where folding left no mark. */
static bool is_torchscript(const ebb_graph *g, const Onnx__ModelProto *proto)
{
    if (strcmp(ebb_reader_text(proto->producer_name), "pytorch") != 0 ||
        ebb_props_get(g, &g->props, "pkg.torch.export.ExportedProgram.graph_signature") != NULL)
        return false;
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_props_get(g, &ebb_value_of(g, g->initializers[i])->props,
                          "pkg.torch.export.graph_signature.InputSpec.kind") != NULL)
            return false;
    return true;
}

/* frame: what is left without graph, functions and training information. */
static ebb_status read_model(ebb_reader *r, ebb_encoded whole, const Onnx__ModelProto *frame)
{
    ebb_model *m = r->model;
    size_t at = 0;
    const void *graph = ebb_wire_next(whole, EBB_MODEL_GRAPH, &at);
    m->origin = whole.bytes;
    m->origin_bytes = whole.size;
    m->ir_version = frame->ir_version;
    if (graph == NULL)
        return ebb_error(EBB_REJECTED, "is not an ONNX model: it has no graph");
    for (size_t i = 0; i < frame->n_opset_import; i++)
        EBB_TRY(ebb_model_import(m, ebb_reader_text(frame->opset_import[i]->domain),
                                 frame->opset_import[i]->version));
    EBB_TRY(read_functions(r, whole));
    EBB_TRY(ebb_reader_graph(r, m->graph, graph));
    m->torchscript = is_torchscript(m->graph, frame);
    EBB_TRY(read_model_props(r, frame));
    return read_training(r, whole);
}

static ebb_status read_bytes(ebb_model *m, const void *bytes, size_t size)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_reader r = {
        .model = m, .arena = &m->arena, .scratch = scratch, .files = {&m->mappings, m->folder}};
    const ProtobufCMessageDescriptor *type = &onnx__model_proto__descriptor;
    const ebb_encoded whole = {bytes, size};
    ProtobufCMessage *frame;
    ebb_status status = ebb_wire_check(type, bytes, size);
    if (ebb_status_code(status) == EBB_REJECTED)
        return ebb_hint(
            status, "it is no ONNX model (torch.onnx.export writes one), or not all of one: was it "
                    "copied to its end?");
    EBB_TRY(status);
    EBB_TRY(ebb_wire_part(&frame, scratch, type, whole, EBB_MODEL_PARTS));
    return read_model(&r, whole, (const Onnx__ModelProto *)(const void *)frame);
}

/* External data are looked for beside `place`. */
static ebb_status read_file(ebb_model *m, const char *path, const char *place)
{
    const char *slash = strrchr(place, '/');
    m->path = ebb_arena_strdup(&m->arena, path);
    m->folder = slash == NULL    ? "."
                : slash == place ? "/"
                                 : ebb_arena_printf(&m->arena, "%.*s", (int)(slash - place), place);
    EBB_GOT(m->path && m->folder);
    EBB_TRY(ebb_mapping_open(&m->mappings, path));
    const ebb_mapping *file = m->mappings;
    ebb_status status = read_bytes(m, file->data, file->bytes);
    ebb_mappings_rest(m->mappings);
    return ebb_at(status, path);
}

static ebb_status read_from(ebb_model **model, const char *path, const char *place)
{
    ebb_model *m;
    *model = NULL;
    EBB_TRY(ebb_model_new(&m, 0));
    ebb_status status = read_file(m, path, place);
    if (status == NULL)
        *model = m;
    else
        ebb_model_free(m);
    return status;
}

/* It has external data, and none of them where they were looked for. */
static bool has_found_nothing(const ebb_model *m)
{
    bool looked = false;
    for (const ebb_mapping *f = m->mappings; f != NULL; f = f->older) {
        if (f->name != NULL && !f->absent)
            return false;
        looked |= f->name != NULL;
    }
    return looked;
}

/* A link stands for the file that it names, with what lies beside that; else with what lies beside the link. */
ebb_status ebb_model_read(ebb_model **model, const char *path)
{
    char *target;
    EBB_TRY(ebb_sink_target(&target, path));
    ebb_model *m;
    ebb_status status = read_from(&m, path, target);
    if (status == NULL && strcmp(target, path) != 0 && has_found_nothing(m)) {
        ebb_model_free(m);
        status = read_from(&m, path, path);
    }
    ebb_free(target);
    if (status == NULL)
        *model = m;
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
