/* text_parse.c: ONNX text into graphs, functions and models.
 *
 * A name may be used before its node comes, so values are made where they are first named, and once
 * a graph is read, each must turn out to be produced, an input, an initializer, or the outer
 * graph's.
 */
#include "onnx/file/file.h"

#include <assert.h>

#include "onnx/text/text.h"

enum { MAX_DEPTH = 32 }; // of graphs in attributes

/* ---- values ---- */

/* The graph's value of that name; "" is none. New where there is none yet. */
static ebb_status value_named(ebb_graph *g, ebb_value *v, const char *name)
{
    *v = EBB_NO_VALUE;
    if (name[0] == '\0')
        return NULL;
    *v = ebb_value_find(g, name);
    return v->i != 0 ? NULL : ebb_value_add(g, v, name, NULL);
}

/* Gives a value a tensor, and a place among the initializers. */
static ebb_status make_initializer(ebb_graph *g, ebb_value v, const ebb_tensor *tensor)
{
    EBB_GOT(ebb_arena_grow(&g->model->arena, &g->initializers, g->initializer_count,
                           &g->initializer_capacity, sizeof *g->initializers));
    ebb_value_of(g, v)->flags |= EBB_IS_INITIALIZER;
    g->initializers[g->initializer_count++] = v;
    return ebb_value_set_tensor(g, v, tensor);
}

/* ["location": "weights.bin", ...]: external data is not fetched for a text; the tensor is left
 * without bytes. */
static ebb_status skip_external(ebb_text_reader *r)
{
    while (!ebb_text_is(r, ']') && r->token != EBB_TOKEN_END)
        EBB_TRY(ebb_text_next(r));
    return ebb_text_expect(r, ']', "after external data");
}

/* "type name" or "name", then " = {1,2}" where values are allowed to have data. */
static ebb_status read_value(ebb_text_reader *r, ebb_graph *g, ebb_value *v, bool data_allowed)
{
    ebb_type type = ebb_type_none();
    const char *name;
    ebb_text_reader at = *r;
    bool typed = ebb_text_at_type(r);
    if (typed) {
        EBB_TRY(ebb_text_next(r));
        typed = !ebb_text_is(r, ',') && !ebb_text_is(r, ')'); // else a value that is named "float"
        *r = at;
    }
    if (typed)
        EBB_TRY(ebb_text_type_read(r, &type));
    EBB_TRY(ebb_text_name(r, &name, "the name of a value"));
    if (name[0] == '\0')
        return ebb_text_error(&at, "a value has an empty name");
    EBB_TRY(value_named(g, v, name));
    ebb_value_info *info = ebb_value_of(g, *v);
    if (typed)
        EBB_TRY(ebb_value_set_type(g, *v, &type));
    if (!ebb_text_is(r, '=') || !data_allowed)
        return NULL;
    if (!typed || info->tensor != NULL)
        return ebb_text_error(&at, "initializer '%s' %s", name,
                              typed ? "is given twice" : "has no type");
    ebb_tensor tensor = {.type = type};
    EBB_TRY(ebb_text_next(r));
    if (!ebb_text_is(r, '[')) {
        EBB_TRY(ebb_text_tensor_read(r, &tensor));
    } else {
        if (!ebb_type_bytes(&type, &tensor.bytes))
            return ebb_text_error(&at, "initializer '%s' has no size", name);
        EBB_TRY(skip_external(r));
    }
    return make_initializer(g, *v, &tensor);
}

typedef enum value_list { INPUTS, OUTPUTS, INFOS } value_list;

/* The values of a list in its order. `seen` may be NULL. */
typedef struct value_order {
    ebb_value *list;
    size_t count, capacity;
} value_order;

static ebb_status read_values(ebb_text_reader *r, ebb_graph *g, value_list kind, value_order *seen)
{
    char close = kind == INFOS ? '>' : ')';
    const char *where = kind == INPUTS    ? "after the inputs"
                        : kind == OUTPUTS ? "after the outputs"
                                          : "after the values";
    EBB_TRY(ebb_text_expect(r, kind == INFOS ? '<' : '(', "before a list of values"));
    while (!ebb_text_is(r, close)) {
        ebb_value v;
        ebb_text_reader at = *r;
        EBB_TRY(read_value(r, g, &v, kind != OUTPUTS));
        uint8_t flags = ebb_value_of(g, v)->flags;
        if ((kind == INPUTS && (flags & EBB_IS_INPUT) != 0) ||
            (kind == OUTPUTS && (flags & EBB_IS_OUTPUT) != 0))
            return ebb_text_error(&at, "'%s' is named twice", ebb_value_name(g, v));
        if (kind == INPUTS)
            EBB_TRY(ebb_graph_add_input(g, v));
        if (kind == OUTPUTS)
            EBB_TRY(ebb_graph_add_output(g, v));
        if (seen != NULL) {
            EBB_GOT(ebb_arena_grow(r->arena, &seen->list, seen->count, &seen->capacity, sizeof v));
            seen->list[seen->count++] = v;
        }
        if (!ebb_text_is(r, ','))
            break;
        EBB_TRY(ebb_text_next(r));
    }
    return ebb_text_expect(r, close, where);
}

/* ---- nodes ---- */

static ebb_status take_outputs(ebb_graph *g, const ebb_text_reader *at, const ebb_text_node *node,
                               ebb_value *out)
{
    for (size_t i = 0; i < node->out_count; i++) {
        const char *name = node->out[i].name;
        EBB_TRY(value_named(g, &out[i], name));
        if (out[i].i == 0)
            continue;
        const ebb_value_info *info = ebb_value_of(g, out[i]);
        bool twice = info->producer.i != 0;
        for (size_t k = 0; k < i; k++)
            twice |= ebb_same_value(out[k], out[i]);
        if (twice)
            return ebb_text_error(at, "value '%s' is produced by two nodes", name);
        if ((info->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER)) != 0)
            return ebb_text_error(at, "'%s' is an %s and the output of a node", name,
                                  (info->flags & EBB_IS_INPUT) != 0 ? "input" : "initializer");
    }
    return NULL;
}

static ebb_status set_attrs(ebb_graph *g, ebb_node n, const ebb_text_node *node)
{
    ebb_node_info *info = ebb_node_of(g, n);
    if (node->attr_count == 0)
        return NULL;
    info->attr = node->attr; // the reader's arena is the model's
    info->attr_count = (uint32_t)node->attr_count;
    return NULL;
}

/* The operator by the function's own imports, where one is being read. */
static void look_up_op(const ebb_text_reader *r, ebb_node_info *info, const ebb_text_node *node)
{
    for (size_t i = 0; i < r->import_count; i++) {
        const char *domain = ebb_names_text(&r->model->names, r->imports[i].domain);
        if (strcmp(strcmp(domain, "ai.onnx") == 0 ? "" : domain, node->domain) == 0)
            info->op = ebb_op_find(node->domain, node->op_name, r->imports[i].version);
    }
}

static ebb_status add_node(ebb_text_reader *r, ebb_graph *g, const ebb_text_reader *at,
                           const ebb_text_node *node)
{
    ebb_node n;
    if (node->out_count > UINT16_MAX || node->in_count > UINT16_MAX)
        return ebb_text_error(at, "a node has more than 65535 inputs or outputs");
    ebb_value *in = EBB_NEW(r->arena, ebb_value, node->in_count);
    ebb_value *out = EBB_NEW(r->arena, ebb_value, node->out_count);
    EBB_GOT(in && out);
    for (size_t i = 0; i < node->in_count; i++)
        EBB_TRY(value_named(g, &in[i], node->in[i].name));
    EBB_TRY(take_outputs(g, at, node, out));
    const char *domain = strcmp(node->domain, "ai.onnx") == 0 ? "" : node->domain;
    EBB_TRY(ebb_node_add(g, &n, EBB_NO_NODE, domain, node->op_name, in, (uint32_t)node->in_count,
                         out, (uint32_t)node->out_count));
    ebb_node_info *info = ebb_node_of(g, n);
    look_up_op(r, info, node);
    if (node->name[0] != '\0' && (info->name = ebb_graph_intern(g, node->name)).i == 0)
        return ebb_error_memory();
    if (node->overload[0] != '\0' && (info->overload = ebb_graph_intern(g, node->overload)).i == 0)
        return ebb_error_memory();
    return set_attrs(g, n, node);
}

/* ---- graphs ---- */

/* A value that nothing here makes: the outer graph's, or weights whose bytes are not in the text.
 */
static ebb_status settle(const ebb_text_reader *at, ebb_graph *g, ebb_value v)
{
    ebb_value_info *info = ebb_value_of(g, v);
    bool made = info->producer.i != 0 || (info->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER)) != 0;
    if (made)
        return NULL;
    if (info->type->kind == EBB_KIND_TENSOR && (info->flags & EBB_IS_OUTPUT) == 0) {
        ebb_tensor skeleton = {.type = *info->type};
        if (!ebb_type_bytes(info->type, &skeleton.bytes))
            return ebb_text_error(at, "weight '%s' has neither a producer nor a size",
                                  ebb_value_name(g, v));
        return make_initializer(g, v, &skeleton);
    }
    if (g->outer == NULL)
        return ebb_text_error(at, "nothing produces '%s'", ebb_value_name(g, v));
    ebb_value outside; // which the outer graph may itself still have to find
    EBB_TRY(value_named(g->outer, &outside, ebb_value_name(g, v)));
    info->flags |= EBB_IS_OUTER;
    ebb_value_of(g->outer, outside)->flags |= EBB_IS_CAPTURED;
    info->type = ebb_value_of(g->outer, outside)->type;
    ebb_value_of(g->outer, outside)->flags |= EBB_IS_CAPTURED;
    return NULL;
}

static ebb_status read_nodes(ebb_text_reader *r, ebb_graph *g)
{
    EBB_TRY(ebb_text_expect(r, '{', "before the nodes of a graph"));
    while (!ebb_text_is(r, '}')) {
        ebb_text_reader at = *r;
        ebb_text_node node;
        EBB_TRY(ebb_text_node_read(r, &node));
        EBB_TRY(add_node(r, g, &at, &node));
    }
    for (uint32_t i = 1; i < g->value_count; i++)
        EBB_TRY(settle(r, g, (ebb_value){i}));
    return ebb_text_next(r);
}

/* As listed: weights without bytes are known as such only after the nodes, and come last till then.
 */
static ebb_status order_initializers(ebb_text_reader *r, ebb_graph *g, const value_order *infos)
{
    size_t count = 0, most = g->initializer_count;
    bool *put = EBB_NEW(r->arena, bool, g->value_count);
    ebb_value *list = EBB_NEW(r->arena, ebb_value, most);
    EBB_GOT(put && list);
    for (size_t i = 0; i < infos->count + most; i++) {
        ebb_value v = i < infos->count ? infos->list[i] : g->initializers[i - infos->count];
        if ((ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) == 0 || put[v.i])
            continue;
        put[v.i] = true;
        list[count++] = v;
    }
    assert(count == most);
    memcpy(g->initializers, list, count * sizeof *list);
    return NULL;
}

/* "(inputs) => (outputs) <values> { nodes }", the name read. */
static ebb_status read_body(ebb_text_reader *r, ebb_graph *g)
{
    value_order infos = {0};
    EBB_TRY(read_values(r, g, INPUTS, NULL));
    if (r->token != EBB_TOKEN_ARROW)
        return ebb_text_expected(r, "'=>' after the inputs");
    EBB_TRY(ebb_text_next(r));
    EBB_TRY(read_values(r, g, OUTPUTS, NULL));
    if (ebb_text_is(r, '<'))
        EBB_TRY(read_values(r, g, INFOS, &infos));
    EBB_TRY(read_nodes(r, g));
    return g->initializer_count > 0 ? order_initializers(r, g, &infos) : NULL;
}

ebb_status ebb_text_graph_read(ebb_text_reader *r, ebb_graph **graph)
{
    const char *name;
    if (r->model == NULL)
        return ebb_text_error(r, "a graph cannot stand here");
    if (r->depth == MAX_DEPTH)
        return ebb_text_error(r, "graphs in graphs go deeper than %d", (int)MAX_DEPTH);
    ebb_graph *outer = r->graph, *g;
    EBB_TRY(ebb_graph_new(&g, r->model, outer));
    EBB_TRY(ebb_text_name(r, &name, "the name of a graph"));
    if (name[0] != '\0' && (g->name = ebb_graph_intern(g, name)).i == 0)
        return ebb_error_memory();
    r->graph = g;
    r->depth++;
    EBB_TRY(read_body(r, g));
    r->depth--;
    r->graph = outer;
    *graph = g;
    return NULL;
}

/* ---- headers: "<key: value, ...>" ---- */

static ebb_status header_int(ebb_text_reader *r, int64_t *value)
{
    ebb_attr attr = {.name = "", .type = EBB_ATTR_INT};
    EBB_TRY(ebb_text_attr_read(r, &attr));
    *value = attr.i;
    return NULL;
}

/* [ "" : 20, "ai.ebb" : 1 ] into a list, or into the model's where imports is NULL. */
static ebb_status read_imports(ebb_text_reader *r, ebb_import **imports, size_t *count,
                               size_t *capacity)
{
    ebb_model *m = r->model;
    EBB_TRY(ebb_text_expect(r, '[', "before the imports"));
    while (!ebb_text_is(r, ']')) {
        ebb_import import = {0};
        ebb_text_reader at = *r;
        const char *domain;
        EBB_TRY(ebb_text_name(r, &domain, "a domain in quotes"));
        EBB_TRY(ebb_text_expect(r, ':', "after a domain"));
        EBB_TRY(header_int(r, &import.version));
        if (import.version < 1 || import.version > INT32_MAX)
            return ebb_text_error(&at, "opset version %lld of '%s' is out of range",
                                  (long long)import.version, domain);
        if (imports == NULL) {
            EBB_TRY(ebb_model_import(m, domain, import.version));
        } else {
            import.domain = ebb_names_intern(&m->names, domain, strlen(domain));
            EBB_GOT(import.domain.i != 0 &&
                    ebb_arena_grow(&m->arena, imports, *count, capacity, sizeof import));
            (*imports)[(*count)++] = import;
        }
        if (!ebb_text_is(r, ','))
            break;
        EBB_TRY(ebb_text_next(r));
    }
    return ebb_text_expect(r, ']', "after the imports");
}

static ebb_status read_props(ebb_text_reader *r, ebb_model *m)
{
    EBB_TRY(ebb_text_expect(r, '[', "before metadata"));
    while (!ebb_text_is(r, ']')) {
        const char *key, *value;
        EBB_TRY(ebb_text_name(r, &key, "a key in quotes"));
        EBB_TRY(ebb_text_expect(r, ':', "after a key"));
        EBB_TRY(ebb_text_name(r, &value, "a value in quotes"));
        EBB_TRY(ebb_props_set(m->graph, &m->props, key, value));
        if (!ebb_text_is(r, ','))
            break;
        EBB_TRY(ebb_text_next(r));
    }
    return ebb_text_expect(r, ']', "after metadata");
}

static ebb_status model_key(ebb_text_reader *r, const char *key)
{
    if (strcmp(key, "ir_version") == 0)
        return header_int(r, &r->model->ir_version);
    if (strcmp(key, "opset_import") == 0)
        return read_imports(r, NULL, NULL, NULL);
    if (strcmp(key, "metadata_props") == 0)
        return read_props(r, r->model);
    return ebb_text_next(r); // producer_name, doc_string ...: one word each
}

static ebb_status read_header(ebb_text_reader *r, ebb_function *f, size_t *import_capacity)
{
    EBB_TRY(ebb_text_next(r));
    while (!ebb_text_is(r, '>')) {
        const char *key, *text;
        EBB_TRY(ebb_text_name(r, &key, "a key of the header"));
        EBB_TRY(ebb_text_expect(r, ':', "after a key of the header"));
        if (f == NULL) {
            EBB_TRY(model_key(r, key));
        } else if (strcmp(key, "opset_import") == 0) {
            EBB_TRY(read_imports(r, &f->imports, &f->import_count, import_capacity));
        } else if (strcmp(key, "domain") == 0 || strcmp(key, "overload") == 0) {
            EBB_TRY(ebb_text_name(r, &text, "a name in quotes"));
            ebb_str s = ebb_names_intern(&r->model->names, text, strlen(text));
            EBB_GOT(s.i != 0);
            *(key[0] == 'd' ? &f->domain : &f->overload) = s;
        } else {
            EBB_TRY(ebb_text_next(r));
        }
        if (!ebb_text_is(r, ','))
            break;
        EBB_TRY(ebb_text_next(r));
    }
    return ebb_text_expect(r, '>', "after the header");
}

/* ---- functions ---- */

/* "<alpha, beta: float = 0.5>" */
static ebb_status read_formals(ebb_text_reader *r, ebb_function *f)
{
    size_t attr_capacity = 0, default_capacity = 0;
    EBB_TRY(ebb_text_next(r));
    while (!ebb_text_is(r, '>')) {
        ebb_text_node one = {.name = ""};
        ebb_text_reader at = *r;
        const char *name;
        EBB_TRY(ebb_text_name(r, &name, "the name of an attribute"));
        if (ebb_text_is(r, ':') || ebb_text_is(r, '=')) {
            *r = at;
            EBB_TRY(ebb_text_one_attr(r, &one));
            EBB_GOT(ebb_arena_grow(r->arena, &f->defaults, f->default_count, &default_capacity,
                                   sizeof *f->defaults));
            f->defaults[f->default_count++] = one.attr[0];
        } else {
            ebb_str s = ebb_names_intern(&r->model->names, name, strlen(name));
            EBB_GOT(s.i != 0 && ebb_arena_grow(r->arena, &f->attrs, f->attr_count, &attr_capacity,
                                               sizeof *f->attrs));
            f->attrs[f->attr_count++] = s;
        }
        if (!ebb_text_is(r, ','))
            break;
        EBB_TRY(ebb_text_next(r));
    }
    return ebb_text_expect(r, '>', "after the attributes of a function");
}

static ebb_status read_function(ebb_text_reader *r, ebb_function *f)
{
    const char *name;
    size_t import_capacity = 0;
    memset(f, 0, sizeof *f);
    if (!ebb_text_is(r, '<'))
        return ebb_text_expected(r, "'<' with the domain of a function");
    EBB_TRY(read_header(r, f, &import_capacity));
    EBB_TRY(ebb_text_name(r, &name, "the name of a function"));
    f->name = ebb_names_intern(&r->model->names, name, strlen(name));
    EBB_GOT(f->name.i != 0);
    if (ebb_text_is(r, '<'))
        EBB_TRY(read_formals(r, f));
    EBB_TRY(ebb_graph_new(&f->body, r->model, NULL));
    f->body->name = f->name;
    r->imports = f->imports;
    r->import_count = f->import_count;
    r->graph = f->body;
    EBB_TRY(read_body(r, f->body));
    r->imports = NULL;
    r->import_count = 0;
    return NULL;
}

ebb_status ebb_text_parse_function(ebb_model *model, ebb_function *function, const char *text)
{
    ebb_text_reader r;
    EBB_TRY(ebb_text_start(&r, text, &model->arena));
    r.model = model;
    EBB_TRY(read_function(&r, function));
    return r.token == EBB_TOKEN_END ? NULL : ebb_text_expected(&r, "the end after a function");
}

ebb_status ebb_text_parse_body(ebb_model *model, ebb_function *function, ebb_op op, int64_t opset,
                               bool narrow)
{
    EBB_LOCAL_ARENA(scratch);
    const char *text = ebb_op_body_at(op, opset, narrow, scratch);
    return text != NULL ? ebb_text_parse_function(model, function, text) : ebb_error_memory();
}

/* ---- models ---- */

static ebb_status read_model(ebb_model *m, const char *text)
{
    ebb_text_reader r;
    const char *name;
    EBB_TRY(ebb_text_start(&r, text, &m->arena));
    r.model = m;
    r.graph = m->graph;
    if (ebb_text_is(&r, '<'))
        EBB_TRY(read_header(&r, NULL, NULL));
    EBB_TRY(ebb_text_name(&r, &name, "the name of the graph"));
    if (name[0] != '\0' && (m->graph->name = ebb_graph_intern(m->graph, name)).i == 0)
        return ebb_error_memory();
    EBB_TRY(read_body(&r, m->graph));
    while (r.token != EBB_TOKEN_END) {
        ebb_function f;
        EBB_TRY(read_function(&r, &f));
        EBB_GOT(ebb_arena_grow(&m->arena, &m->functions, m->function_count, &m->function_capacity,
                               sizeof f));
        m->functions[m->function_count++] = f;
    }
    return NULL;
}

ebb_status ebb_text_parse_model(ebb_model **model, const char *text)
{
    ebb_model *m;
    EBB_TRY(ebb_model_new(&m, 0)); // the header imports
    ebb_status status = read_model(m, text);
    if (status != NULL) {
        ebb_model_free(m);
        return status;
    }
    *model = m;
    return NULL;
}
