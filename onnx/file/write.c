/* write.c: a model into a file or into memory: imports, functions, training information, data file.
 */
#include "onnx/file/writer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { IR_TRAINING = 7, IR_FUNCTIONS = 8, LARGE_TENSOR_BYTES = 1024 };

static const char *or_blank(const char *text)
{
    return text != NULL ? text : "";
}

/* ---- imports ---- */

static Onnx__OperatorSetIdProto *make_import(ebb_writer *w, const char *domain, int64_t version)
{
    Onnx__OperatorSetIdProto *import =
        EBB_WRITER_MESSAGE(w, Onnx__OperatorSetIdProto, operator_set_id_proto, NULL, 0);
    if (import == NULL)
        return NULL;
    import->domain = ebb_writer_loan(domain);
    import->has_version = true;
    import->version = version;
    return import;
}

static bool same_domain(const char *a, const char *b)
{
    a = strcmp(a, "ai.onnx") == 0 ? "" : a;
    b = strcmp(b, "ai.onnx") == 0 ? "" : b;
    return strcmp(a, b) == 0;
}

static bool imported(Onnx__OperatorSetIdProto *const *list, size_t count, const char *domain)
{
    for (size_t i = 0; i < count; i++)
        if (same_domain(or_blank(list[i]->domain), domain))
            return true;
    return false;
}

/* The file's, then the model's that are new, then those of domains that nodes use unasked. */
static void set_imports(ebb_writer *w, Onnx__ModelProto *proto)
{
    const ebb_model *m = w->model;
    Onnx__OperatorSetIdProto *const *was = proto->opset_import;
    size_t was_count = proto->n_opset_import, count = 0;
    Onnx__OperatorSetIdProto **list = EBB_WRITER_NEW(w, Onnx__OperatorSetIdProto *,
                                                     was_count + m->import_count + w->domain_count);
    if (list == NULL)
        return;
    for (size_t i = 0; i < was_count; i++, count++) {
        int64_t version = ebb_model_opset(m, or_blank(was[i]->domain));
        const bool repeated = imported(list, count, or_blank(was[i]->domain)) && !w->changed;
        list[count] = repeated || version == was[i]->version
                          ? was[i]
                          : make_import(w, or_blank(was[i]->domain), version);
        if (list[count] == NULL)
            return;
    }
    for (size_t i = 0; i < m->import_count + w->domain_count; i++) {
        bool unasked = i >= m->import_count;
        const char *domain = unasked ? w->domains[i - m->import_count]
                                     : ebb_names_text(&m->names, m->imports[i].domain);
        if (imported(list, count, domain))
            continue;
        list[count] = make_import(w, domain, unasked ? 1 : m->imports[i].version);
        if (list[count++] == NULL)
            return;
    }
    proto->opset_import = list;
    proto->n_opset_import = count;
}

/* ---- functions ---- */

static char **names_of(ebb_writer *w, const ebb_graph *g, const ebb_value *values, size_t count)
{
    char **names = EBB_WRITER_NEW(w, char *, count);
    for (size_t i = 0; names != NULL && i < count; i++)
        names[i] = ebb_writer_loan(ebb_value_name(g, values[i]));
    return names;
}

/* What a function has apart from its body; the file's own functions keep theirs. */
static void set_signature(ebb_writer *w, Onnx__FunctionProto *proto, const ebb_function *f)
{
    const ebb_graph *g = f->body;
    proto->name = ebb_writer_text(g, f->name);
    proto->domain = ebb_writer_text(g, f->domain);
    proto->overload = ebb_writer_text(g, f->overload);
    proto->n_attribute = f->attr_count;
    proto->attribute = EBB_WRITER_NEW(w, char *, f->attr_count);
    for (size_t i = 0; proto->attribute != NULL && i < f->attr_count; i++)
        proto->attribute[i] = ebb_writer_text(g, f->attrs[i]);
    proto->n_attribute_proto = f->default_count;
    proto->attribute_proto = EBB_WRITER_NEW(w, Onnx__AttributeProto *, f->default_count);
    for (size_t i = 0; proto->attribute_proto != NULL && i < f->default_count; i++)
        proto->attribute_proto[i] = ebb_writer_attr(w, g, &f->defaults[i]);
    proto->n_opset_import = f->import_count;
    proto->opset_import = EBB_WRITER_NEW(w, Onnx__OperatorSetIdProto *, f->import_count);
    for (size_t i = 0; proto->opset_import != NULL && i < f->import_count; i++)
        proto->opset_import[i] =
            make_import(w, ebb_text(g, f->imports[i].domain), f->imports[i].version);
}

static Onnx__FunctionProto *make_function(ebb_writer *w, const ebb_function *f)
{
    Onnx__FunctionProto *proto = EBB_WRITER_MESSAGE(w, Onnx__FunctionProto, function_proto,
                                                    f->origin, EBB_FIELD(EBB_FUNCTION_NODE));
    if (proto == NULL)
        return NULL;
    w->in_function = true;
    if (f->origin == NULL)
        set_signature(w, proto, f);
    proto->n_input = f->body->input_count;
    proto->input = names_of(w, f->body, f->body->inputs, f->body->input_count);
    proto->n_output = f->body->output_count;
    proto->output = names_of(w, f->body, f->body->outputs, f->body->output_count);
    ebb_writer_nodes(w, f->body, &proto->node, &proto->n_node);
    w->in_function = false;
    return proto;
}

static bool has_function(const ebb_model *m, const ebb_op_row *row)
{
    for (size_t i = 0; i < m->function_count; i++)
        if (strcmp(ebb_names_text(&m->names, m->functions[i].domain), row->domain) == 0 &&
            strcmp(ebb_names_text(&m->names, m->functions[i].name), row->name) == 0)
            return true;
    return false;
}

/* Bodies of the operators in use, and of those that these use. `host` owns what is parsed. */
static ebb_status add_bodies(ebb_writer *w, ebb_model *host, Onnx__FunctionProto **list,
                             size_t *count)
{
    const int64_t opset = ebb_model_opset(w->model, EBB_DOMAIN_ONNX);
    bool done[EBB_OP_COUNT] = {false}, again = true;
    while (again) {
        again = false;
        for (int op = 1; op < EBB_OP_COUNT; op++) {
            if (!w->bodies[op] || w->bodies_wrong[op] || done[op])
                continue;
            done[op] = again = true;
            if (has_function(w->model, ebb_op_row_of((ebb_op)op)))
                continue;
            ebb_function *f = EBB_NEW(&host->arena, ebb_function, 1);
            EBB_GOT(f);
            const ebb_op_row *row = ebb_op_row_of((ebb_op)op);
            EBB_TRY(ebb_while(ebb_text_parse_body(host, f, (ebb_op)op, opset, w->bodies_narrow[op]),
                              "making the body of %s.%s", row->domain, row->name));
            f->origin = NULL;
            list[*count] = make_function(w, f);
            EBB_GOT(list[(*count)++]);
        }
    }
    return NULL;
}

static ebb_status set_functions(ebb_writer *w, Onnx__ModelProto *proto, ebb_model *host)
{
    const ebb_model *m = w->model;
    size_t count = 0;
    Onnx__FunctionProto **list =
        EBB_WRITER_NEW(w, Onnx__FunctionProto *, m->function_count + EBB_OP_COUNT);
    EBB_GOT(list);
    for (size_t i = 0; i < m->function_count; i++)
        EBB_GOT((list[count++] = make_function(w, &m->functions[i])) != NULL);
    EBB_TRY(add_bodies(w, host, list, &count));
    proto->functions = list;
    proto->n_functions = count;
    return NULL;
}

/* ---- training information ---- */

static bool is_initializer(const ebb_graph *g, const char *name)
{
    ebb_value v = ebb_value_find(g, name);
    return v.i != 0 && (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0;
}

static void set_initialization(ebb_writer *w, Onnx__TrainingInfoProto *info)
{
    const ebb_model *m = w->model;
    const ebb_graph *g = m->initialization;
    info->initialization = ebb_writer_graph(w, g);
    info->initialization_binding =
        EBB_WRITER_NEW(w, Onnx__StringStringEntryProto *, m->init_binding_count);
    info->n_initialization_binding = 0;
    for (size_t i = 0; info->initialization_binding != NULL && i < m->init_binding_count; i++) {
        const char *state = ebb_names_text(&m->names, m->init_bindings[i].state);
        if (!is_initializer(m->graph, state))
            continue; // it went, and so goes the drawing of it
        info->initialization_binding[info->n_initialization_binding++] =
            ebb_writer_entry(w, state, ebb_value_name(g, m->init_bindings[i].value));
    }
}

static bool bound_in(Onnx__StringStringEntryProto *const *list, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(or_blank(list[i]->key), key) == 0)
            return true;
    return false;
}

/* The graph's bindings; before them those of an algorithm graph, which only the file knows. */
static void set_bindings(ebb_writer *w, Onnx__TrainingInfoProto *info)
{
    const ebb_graph *g = w->model->graph;
    bool algorithm = info->algorithm != NULL && info->algorithm->n_node > 0;
    Onnx__StringStringEntryProto *const *was = info->update_binding;
    size_t was_count = algorithm ? info->n_update_binding : 0, count = 0;
    Onnx__StringStringEntryProto **list =
        EBB_WRITER_NEW(w, Onnx__StringStringEntryProto *, was_count + g->binding_count);
    if (list == NULL)
        return;
    for (; count < was_count; count++)
        list[count] = was[count];
    for (size_t i = 0; i < g->binding_count; i++) {
        const char *state = ebb_value_name(g, g->bindings[i].state);
        if (!bound_in(list, was_count, state))
            list[count++] = ebb_writer_entry(w, state, ebb_value_name(g, g->bindings[i].next));
    }
    info->update_binding = list;
    info->n_update_binding = count;
}

/* The file had one, and it was taken from the model. */
static void drop_initialization(Onnx__TrainingInfoProto *info)
{
    info->initialization = NULL;
    info->initialization_binding = NULL;
    info->n_initialization_binding = 0;
}

static ebb_encoded file_of(const ebb_writer *w)
{
    return (ebb_encoded){w->model->origin, w->model->origin_bytes};
}

static void set_training(ebb_writer *w, Onnx__ModelProto *proto)
{
    const ebb_model *m = w->model;
    const size_t had = ebb_wire_count(file_of(w), EBB_MODEL_TRAINING_INFO);
    if (had == 0 && m->initialization == NULL && m->graph->binding_count == 0)
        return;
    size_t count = had > 0 ? had : 1, at = 0;
    Onnx__TrainingInfoProto **list = EBB_WRITER_NEW(w, Onnx__TrainingInfoProto *, count);
    for (size_t i = 0; list != NULL && i < count && !w->failed; i++) {
        const void *part = ebb_wire_next(file_of(w), EBB_MODEL_TRAINING_INFO, &at);
        list[i] = EBB_WRITER_MESSAGE(w, Onnx__TrainingInfoProto, training_info_proto, part,
                                     i == 0 ? EBB_FIELD(EBB_TRAINING_INITIALIZATION) : 0);
    }
    if (w->failed)
        return;
    if (m->initialization != NULL)
        set_initialization(w, list[0]);
    else
        drop_initialization(list[0]);
    set_bindings(w, list[0]);
    bool empty = list[0]->initialization == NULL && list[0]->algorithm == NULL &&
                 list[0]->n_update_binding == 0 && count == 1;
    proto->training_info = list;
    proto->n_training_info = empty ? 0 : count;
}

/* ---- the model ---- */

/* "ebb.loss" where the file had it on the model; otherwise the graph carries it. */
static void set_model_props(ebb_writer *w, Onnx__ModelProto *proto)
{
    const ebb_model *m = w->model;
    const ebb_graph *g = m->graph;
    ebb_entries was = {proto->metadata_props, proto->n_metadata_props}, none = {NULL, 0};
    bool here = bound_in(was.list, was.count, "ebb.loss") &&
                !bound_in(proto->graph->metadata_props, proto->graph->n_metadata_props, "ebb.loss");
    const ebb_owned loss = {"ebb.loss", here && g->loss.i != 0 ? ebb_value_name(g, g->loss) : NULL};
    bool new_metadata = w->new_metadata;
    ebb_entries now = ebb_writer_props(w, g, &m->props, was, none, &loss, 1);
    w->new_metadata = new_metadata; // models have had metadata from the start
    proto->metadata_props = now.list;
    proto->n_metadata_props = now.count;
}

/* All but the graph's many messages, which are counted. Kept until all is written. */
static ebb_status make_model(ebb_writer *w, Onnx__ModelProto **model, ebb_model *host)
{
    const ebb_model *m = w->model;
    Onnx__ModelProto *proto = EBB_WRITER_MESSAGE(w, Onnx__ModelProto, model_proto, NULL, 0);
    ProtobufCMessage *was;
    EBB_GOT(proto);
    if (m->origin != NULL) {
        EBB_TRY(ebb_wire_part(&was, &w->kept, &onnx__model_proto__descriptor, file_of(w),
                              EBB_MODEL_PARTS));
        w->was = (const Onnx__ModelProto *)(const void *)was;
        *proto = *w->was;
    }
    proto->graph = ebb_writer_frame(w, m->graph);
    EBB_GOT(proto->graph);
    ebb_arena_take(&w->kept, &w->arena);
    ebb_writer_count(w, proto->graph);
    set_training(w, proto); // whose graph has operators with bodies, too
    EBB_TRY(set_functions(w, proto, host));
    set_imports(w, proto);
    set_model_props(w, proto);
    if (m->origin == NULL)
        proto->producer_name = ebb_writer_loan("ebb");
    const bool new_functions = proto->n_functions > ebb_wire_count(file_of(w), EBB_MODEL_FUNCTIONS);
    const bool new_training =
        proto->n_training_info > ebb_wire_count(file_of(w), EBB_MODEL_TRAINING_INFO);
    int64_t least = w->new_metadata ? EBB_IR_METADATA
                    : new_functions ? IR_FUNCTIONS
                    : new_training  ? IR_TRAINING
                                    : 0;
    proto->ir_version = m->ir_version > least ? m->ir_version : least;
    proto->has_ir_version |= m->origin == NULL || least > 0 || m->ir_version != 0;
    *model = proto;
    ebb_arena_take(&w->kept, &w->arena);
    return w->failed ? ebb_error_memory() : NULL;
}

/* ---- out ---- */

static ebb_status write_data(ebb_writer *w, ebb_sink *sink)
{
    for (size_t i = 0; i < w->moved_count; i++) {
        ebb_sink_zeros(sink, w->moved[i].offset);
        ebb_sink_write(sink, w->moved[i].data, w->moved[i].bytes);
    }
    return ebb_sink_finish(sink);
}

/* Both files are complete before either appears; the data first, since the model refers to it. */
static ebb_status write_files(ebb_writer *w, const Onnx__ModelProto *proto, const char *path,
                              const char *data_path)
{
    ebb_sink model, data = {.fd = -1};
    EBB_TRY(ebb_sink_open(&model, path));
    ebb_status status = NULL;
    uint64_t bytes;
    if (model.is_stream && w->moved_count > 0)
        status = ebb_error(EBB_USAGE, "%s: weights of 2 GiB need a file, with one beside it", path);
    if (status == NULL)
        status = ebb_writer_out(w, proto, &model, &bytes);
    if (status == NULL && w->moved_count > 0)
        status = ebb_sink_open(&data, data_path);
    if (status == NULL && w->moved_count > 0)
        status = write_data(w, &data);
    if (status == NULL && w->moved_count > 0)
        status = ebb_sink_rename(&data);
    if (status == NULL)
        status = ebb_sink_rename(&model);
    ebb_sink_close(&model);
    if (w->moved_count > 0)
        ebb_sink_close(&data);
    return status;
}

static bool same_folder(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* The path behind links, in memory of the writer's. */
static ebb_status follow_links(ebb_writer *w, const char **path)
{
    char *target;
    EBB_TRY(ebb_sink_target(&target, *path));
    *path = ebb_arena_strdup(&w->kept, target);
    ebb_free(target);
    return *path != NULL ? NULL : ebb_error_memory();
}

/* Names beside what `path` leads to, and whether external references mean the same there. */
static ebb_status look_around(ebb_writer *w, const char *path, const char **data_path)
{
    EBB_TRY(follow_links(w, &path));
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    const char *folder = slash == NULL ? "."
                         : slash == path
                             ? "/"
                             : ebb_arena_printf(&w->kept, "%.*s", (int)(slash - path), path);
    const char *data_name = ebb_arena_printf(&w->kept, "%s.data", base);
    w->absent_name = ebb_arena_printf(&w->kept, "%s.absent", base);
    EBB_GOT(folder && data_name && w->absent_name);
    w->keeps_external = same_folder(folder, w->model->folder);
    w->data_name = ebb_writer_free_name(w, data_name);
    *data_path = w->data_name == NULL
                     ? NULL
                     : ebb_arena_printf(&w->kept, "%.*s%s", (int)(base - path), path, w->data_name);
    return *data_path != NULL ? NULL : ebb_error_memory();
}

static void forget(ebb_writer *w)
{
    w->data_end = 0;
    w->moved_count = 0;
    w->domain_count = 0;
    memset(w->bodies, 0, sizeof w->bodies);
    memset(w->bodies_wrong, 0, sizeof w->bodies_wrong);
}

static ebb_status write_to(ebb_writer *w, ebb_model *host, const char *path,
                           const ebb_write_options *o)
{
    const char *data_path;
    Onnx__ModelProto *proto;
    uint64_t bytes;
    w->no_bodies = o != NULL && o->no_bodies;
    EBB_TRY(look_around(w, path, &data_path));
    w->external_above = o != NULL ? o->external_above_bytes : 0;
    EBB_TRY(make_model(w, &proto, host));
    EBB_TRY(ebb_writer_out(w, proto, NULL, &bytes));
    if (bytes > INT32_MAX) {
        forget(w);
        w->external_above = LARGE_TENSOR_BYTES;
        EBB_TRY(make_model(w, &proto, host));
        EBB_TRY(ebb_writer_out(w, proto, NULL, &bytes));
        if (bytes > INT32_MAX)
            return ebb_error(EBB_IO, "%s: would be larger than 2 GiB without its weights", path);
    }
    return write_files(w, proto, path, data_path);
}

static ebb_status write_memory(ebb_writer *w, ebb_model *host, void **bytes, size_t *size)
{
    Onnx__ModelProto *proto;
    uint64_t packed;
    ebb_sink sink;
    w->keeps_external = true;
    w->absent_name = "weights.absent";
    EBB_TRY(make_model(w, &proto, host));
    EBB_TRY(ebb_writer_out(w, proto, NULL, &packed));
    if (packed > INT32_MAX)
        return ebb_error(EBB_IO, "the model is larger than 2 GiB");
    EBB_TRY(ebb_sink_memory(&sink, (size_t)packed));
    ebb_status status = ebb_writer_out(w, proto, &sink, &packed);
    if (status != NULL) {
        ebb_sink_close(&sink);
        return status;
    }
    *bytes = sink.buffer;
    *size = sink.used;
    return NULL;
}

static ebb_status write_model(const ebb_model *model, const char *path, const ebb_write_options *o,
                              void **bytes, size_t *size)
{
    ebb_writer *w = ebb_alloc(sizeof *w);
    ebb_model *host = NULL;
    EBB_GOT(w);
    *w = (ebb_writer){.model = model, .changed = ebb_writer_changed(model->graph)};
    w->sums_external = ebb_writer_sums(w);
    ebb_status status = ebb_model_new(&host, 0);
    if (status == NULL)
        status = path != NULL ? write_to(w, host, path, o) : write_memory(w, host, bytes, size);
    ebb_model_free(host);
    ebb_arena_fini(&w->arena);
    ebb_arena_fini(&w->kept);
    ebb_free(w);
    return status;
}

ebb_status ebb_model_write(const ebb_model *model, const char *path, const ebb_write_options *o)
{
    return write_model(model, path, o, NULL, NULL);
}

ebb_status ebb_model_write_memory(const ebb_model *model, void **bytes, size_t *size)
{
    return write_model(model, NULL, NULL, bytes, size);
}
