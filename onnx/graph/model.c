/* model.c: the model that a graph hangs on: lifetime, imports, deep copy. */
#include "onnx/graph/graph.h"

#include "onnx/words/map.h"

ebb_status ebb_graph_new(ebb_graph **graph, ebb_model *model, ebb_graph *outer)
{
    ebb_graph *g = EBB_NEW(&model->arena, ebb_graph, 1);
    EBB_GOT(g);
    g->model = model;
    g->outer = outer;
    g->nodes[0] = EBB_NEW(&model->arena, ebb_node_info, EBB_BLOCK_LEAST);
    g->values[0] = EBB_NEW(&model->arena, ebb_value_info, EBB_BLOCK_LEAST);
    EBB_GOT(g->nodes[0] && g->values[0]);
    g->node_count = g->value_count = 1; // the list's head, and "none"
    g->values[0]->type = &ebb_type_unknown;
    *graph = g;
    return NULL;
}

static ebb_status set_up(ebb_model *model, int64_t opset)
{
    EBB_GOT(ebb_names_init(&model->names, &model->arena));
    model->ir_version = 10;
    model->path = model->folder = "";
    EBB_TRY(ebb_graph_new(&model->graph, model, NULL));
    return opset > 0 ? ebb_model_import(model, EBB_DOMAIN_ONNX, opset) : NULL;
}

ebb_status ebb_model_new(ebb_model **model, int64_t opset)
{
    ebb_model *m = ebb_alloc(sizeof *m);
    EBB_GOT(m);
    memset(m, 0, sizeof *m);
    ebb_status status = set_up(m, opset);
    if (status != NULL) {
        ebb_model_free(m);
        return status;
    }
    *model = m;
    return NULL;
}

void ebb_model_free(ebb_model *model)
{
    if (model == NULL)
        return;
    ebb_mappings_free(model->mappings);
    ebb_arena_fini(&model->arena);
    ebb_free(model);
}

static bool same_domain(const ebb_model *model, ebb_str domain, const char *name)
{
    const char *text = ebb_names_text(&model->names, domain);
    if (strcmp(text, "ai.onnx") == 0)
        text = "";
    return strcmp(text, strcmp(name, "ai.onnx") == 0 ? "" : name) == 0;
}

int64_t ebb_model_opset(const ebb_model *model, const char *domain)
{
    for (size_t i = 0; i < model->import_count; i++)
        if (same_domain(model, model->imports[i].domain, domain))
            return model->imports[i].version;
    return 0;
}

ebb_status ebb_model_import(ebb_model *model, const char *domain, int64_t version)
{
    if (ebb_model_opset(model, domain) != 0)
        return NULL;
    ebb_str name = ebb_names_intern(&model->names, domain, strlen(domain));
    EBB_GOT(name.i != 0 && ebb_arena_grow(&model->arena, &model->imports, model->import_count,
                                          &model->import_capacity, sizeof *model->imports));
    model->imports[model->import_count++] = (ebb_import){name, version};
    return NULL;
}

/* ---- copy ---- */

/* A copy of count elements in the arena, with *failed set when there is no memory. */
static void *copied(ebb_arena *arena, const void *from, size_t count, size_t size, bool *failed)
{
    if (count == 0)
        return NULL;
    void *to = ebb_arena_zeroed(arena, count, size);
    if (to == NULL)
        *failed = true;
    else
        memcpy(to, from, count * size);
    return to;
}

#define COPY(arena, field, count, failed) \
    (field) = copied((arena), (field), (count), sizeof *(field), (failed))

static void copy_props(ebb_arena *arena, ebb_props *props, bool *failed)
{
    const uint32_t count = ebb_props_count(props);
    if (count == 0)
        props->all = NULL;
    else if ((props->all = copied(arena, props->all, 1,
                                  sizeof *props->all + count * sizeof *props->all->at, failed)))
        props->all->capacity = count;
}

/* Copies of the blocks with the first `count` records in; the last has room for more. */
static void copy_blocks(ebb_arena *arena, void *blocks, size_t count, size_t size, bool *failed)
{
    void *block;
    unsigned char *place = blocks; // T *[EBB_BLOCKS]: read without breaking aliasing
    for (size_t room = EBB_BLOCK_LEAST; count > 0 && !*failed; room *= 2, place += sizeof block) {
        size_t here = count < room ? count : room;
        const void *old;
        memcpy(&old, place, sizeof old);
        block = ebb_arena_alloc(arena, room * size);
        *failed = block == NULL;
        if (block != NULL)
            memcpy(block, old, here * size);
        memcpy(place, &block, sizeof block);
        count -= here;
    }
}

static void copy_operands(ebb_arena *arena, ebb_node_info *n, bool *failed)
{
    ebb_value *in = EBB_NEW(arena, ebb_value, (size_t)n->in_count + n->out_count);
    *failed = *failed || in == NULL;
    if (in == NULL)
        return;
    if (n->in_count > 0)
        memcpy(in, n->in, n->in_count * sizeof *in);
    if (n->out_count > 0)
        memcpy(in + n->in_count, n->out, n->out_count * sizeof *in);
    n->in = in;
    n->out = in + n->in_count;
}

static ebb_status copy_graph(ebb_graph **to, ebb_model *model, ebb_graph *outer,
                             const ebb_graph *from);

static ebb_status copy_attr_graphs(ebb_attr *attr, ebb_model *model, ebb_graph *g)
{
    if (attr->graphs == NULL)
        return NULL;
    ebb_graph **list = EBB_NEW(&model->arena, ebb_graph *, attr->count);
    EBB_GOT(list);
    for (uint32_t i = 0; i < attr->count; i++)
        EBB_TRY(copy_graph(&list[i], model, g, attr->graphs[i]));
    attr->graphs = list;
    return NULL;
}

/* Attributes stay the original's, but those that hold graphs. */
static ebb_status copy_bodies(ebb_node_info *n, ebb_model *model, ebb_graph *g)
{
    bool any = false, failed = false;
    for (uint32_t a = 0; a < n->attr_count; a++)
        any |= n->attr[a].graphs != NULL;
    if (!any)
        return NULL;
    ebb_attr *list = copied(&model->arena, n->attr, n->attr_count, sizeof *list, &failed);
    EBB_GOT(!failed);
    n->attr = list;
    for (uint32_t a = 0; a < n->attr_count; a++)
        EBB_TRY(copy_attr_graphs(&list[a], model, g));
    return NULL;
}

static ebb_status copy_graph(ebb_graph **to, ebb_model *model, ebb_graph *outer,
                             const ebb_graph *from)
{
    ebb_arena *arena = &model->arena;
    bool failed = false;
    ebb_graph *g = copied(arena, from, 1, sizeof *from, &failed);
    EBB_GOT(!failed);
    g->model = model;
    g->outer = outer;
    copy_blocks(arena, g->nodes, g->node_count, sizeof **g->nodes, &failed);
    copy_blocks(arena, g->values, g->value_count, sizeof **g->values, &failed);
    COPY(arena, g->inputs, g->input_count, &failed);
    COPY(arena, g->outputs, g->output_count, &failed);
    COPY(arena, g->initializers, g->initializer_count, &failed);
    COPY(arena, g->by_name, g->name_slots, &failed);
    COPY(arena, g->bindings, g->binding_count, &failed);
    copy_props(arena, &g->props, &failed);
    EBB_GOT(!failed);
    g->input_capacity = g->input_count;
    g->output_capacity = g->output_count;
    g->initializer_capacity = g->initializer_count;
    g->binding_capacity = g->binding_count;
    for (uint32_t i = 1; i < g->value_count; i++) {
        ebb_value_info *v = ebb_value_of(g, (ebb_value){i});
        COPY(arena, v->uses, v->use_count, &failed);
        v->use_capacity = v->use_count;
        copy_props(arena, &v->props, &failed); // its tensor is not changed, but for another
    }
    for (uint32_t i = 1; i < g->node_count; i++) {
        ebb_node_info *n = ebb_node_of(g, (ebb_node){i});
        copy_operands(arena, n, &failed);
        copy_props(arena, &n->props, &failed);
        EBB_GOT(!failed);
        EBB_TRY(copy_bodies(n, model, g));
    }
    *to = g;
    return failed ? ebb_error_memory() : NULL;
}

ebb_status ebb_graph_copy(ebb_graph **copy, ebb_graph *outer, const ebb_graph *from)
{
    return copy_graph(copy, outer->model, outer, from);
}

static ebb_status copy_model(ebb_model *m, const ebb_model *from)
{
    ebb_arena *arena = &m->arena;
    bool failed = false;
    m->names = from->names; // the same ids and the same texts
    m->names.arena = arena;
    m->names.left = 0; // the rest of the room is the original's
    COPY(arena, m->names.text, m->names.capacity, &failed);
    COPY(arena, m->names.hash, m->names.slots, &failed);
    COPY(arena, m->names.tag, m->names.slots, &failed);
    m->ir_version = from->ir_version;
    m->path = ebb_arena_strdup(arena, from->path);
    m->folder = ebb_arena_strdup(arena, from->folder);
    m->origin = from->origin;
    m->origin_bytes = from->origin_bytes;
    m->torchscript = from->torchscript;
    m->trusted = from->trusted;
    m->rates = from->rates;
    m->threads = from->threads;
    m->deterministic = from->deterministic;
    m->imports = copied(arena, from->imports, from->import_count, sizeof *m->imports, &failed);
    m->import_count = m->import_capacity = from->import_count;
    m->functions =
        copied(arena, from->functions, from->function_count, sizeof *m->functions, &failed);
    m->function_count = m->function_capacity = from->function_count;
    m->init_bindings = copied(arena, from->init_bindings, from->init_binding_count,
                              sizeof *m->init_bindings, &failed);
    m->init_binding_count = from->init_binding_count;
    m->props = from->props;
    copy_props(arena, &m->props, &failed);
    EBB_GOT(!failed && m->path && m->folder);
    for (size_t i = 0; i < m->function_count; i++)
        EBB_TRY(copy_graph(&m->functions[i].body, m, NULL, from->functions[i].body));
    if (from->initialization != NULL)
        EBB_TRY(copy_graph(&m->initialization, m, NULL, from->initialization));
    return copy_graph(&m->graph, m, NULL, from->graph);
}

ebb_status ebb_model_copy(ebb_model **copy, const ebb_model *model)
{
    ebb_model *m = ebb_alloc(sizeof *m);
    EBB_GOT(m);
    memset(m, 0, sizeof *m);
    ebb_status status = copy_model(m, model);
    if (status != NULL) {
        ebb_model_free(m);
        return status;
    }
    *copy = m;
    return NULL;
}

/* ---- adopt ---- */

static void belong_to(ebb_graph *g, ebb_model *model, ebb_graph *outer)
{
    g->model = model;
    g->outer = outer;
    for (uint32_t i = 1; i < g->node_count; i++)
        EBB_EACH_BODY(ebb_node_of(g, (ebb_node){i}), body)
            belong_to(*body, model, g);
}

void ebb_model_adopt(ebb_model *model, ebb_model *copy)
{
    ebb_graph *graph = model->graph;
    ebb_arena_take(&copy->arena, &model->arena); // the copy reads bytes of what it is a copy of
    struct ebb_mapping **oldest = &copy->mappings;
    while (*oldest != NULL)
        oldest = &(*oldest)->older;
    *oldest = model->mappings;
    *graph = *copy->graph;
    *model = *copy;
    ebb_free(copy);
    model->graph = graph;
    model->names.arena = &model->arena;
    belong_to(graph, model, NULL);
    for (size_t i = 0; i < model->function_count; i++)
        belong_to(model->functions[i].body, model, NULL);
    if (model->initialization != NULL)
        belong_to(model->initialization, model, NULL);
}
