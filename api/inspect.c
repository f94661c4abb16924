/* inspect.c: what is in a model, as JSON and as text. */
#include "api/api.h"

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"

json_t *ebb_dims_json(const ebb_graph *g, const ebb_type *t)
{
    json_t *dims = json_array();
    for (int i = 0; i < t->rank; i++) {
        const char *symbol = ebb_text(g, t->symbols[i]);
        json_array_append_new(dims, t->dims[i] >= 0
                                        ? json_integer((json_int_t)t->dims[i])
                                        : json_string(symbol[0] != '\0' ? symbol : "?"));
    }
    return dims;
}

static json_t *values_of(const ebb_graph *g, const ebb_value *list, size_t count, bool inputs)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        const ebb_value_info *v = ebb_value_of(g, list[i]);
        if (inputs && (v->flags & EBB_IS_INITIALIZER) != 0)
            continue;
        json_array_append_new(array, json_pack("{s:s, s:s, s:o}", "name", ebb_text(g, v->name),
                                               "dtype", ebb_dtype_name((ebb_dtype)v->type->dtype),
                                               "dims", ebb_dims_json(g, v->type)));
    }
    return array;
}

static json_t *count_operators(const ebb_graph *g)
{
    json_t *counts = json_object();
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        char name[256];
        const char *domain = ebb_text(g, info->domain);
        (void)snprintf(name, sizeof name, "%s%s%s", domain, domain[0] != '\0' ? "." : "",
                       ebb_text(g, info->op_name));
        json_object_set_new(counts, name,
                            json_integer(json_integer_value(json_object_get(counts, name)) + 1));
    }
    return counts;
}

ebb_status ebb_inspect_json(const ebb_model *model, char **json)
{
    EBB_NEED(model);
    EBB_NEED(json);
    const ebb_graph *g = model->graph;
    size_t bytes = 0, external = 0, missing = 0;
    const size_t nodes = ebb_graph_size(g);
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_tensor *t = ebb_value_of(g, g->initializers[i])->tensor;
        bytes += t->bytes;
        external += t->external ? t->bytes : 0;
        missing += t->data == NULL ? t->bytes : 0;
    }
    json_t *weights = NULL;
    EBB_TRY(ebb_weights_json(&weights, model));
    json_t *o = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:b, s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o}",
        "schema", "ebb.inspect/1", "path", model->path, "ir_version", (json_int_t)model->ir_version,
        "opset", (json_int_t)ebb_model_opset(model, ""), "nodes", (json_int_t)nodes, "is_step",
        (int)(g->binding_count > 0), "loss", g->loss.i != 0 ? ebb_value_name(g, g->loss) : "",
        "inputs", values_of(g, g->inputs, g->input_count, true), "outputs",
        values_of(g, g->outputs, g->output_count, false), "operators", count_operators(g),
        "initializers", (json_int_t)g->initializer_count, "initializer_bytes", (json_int_t)bytes,
        "external_bytes", (json_int_t)external, "missing_bytes", (json_int_t)missing, "functions",
        (json_int_t)model->function_count, "weights", weights);
    return ebb_json_text(json, o);
}

/* Text made with ebb_alloc, handed out as memory for ebb_release. */
static ebb_status hand_out(char **out, char *text)
{
    *out = text;
    return NULL;
}

ebb_status ebb_inspect_text(const ebb_model *model, char **text)
{
    EBB_NEED(model);
    EBB_NEED(text);
    char *printed = NULL;
    EBB_TRY(ebb_text_print(&printed, model->graph));
    return hand_out(text, printed);
}

static json_t *operands(const ebb_graph *g, const ebb_value *list, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        char type[256];
        const ebb_value_info *v = ebb_value_of(g, list[i]);
        (void)ebb_type_print(type, sizeof type, v->type, &g->model->names);
        const ebb_node_info *maker = ebb_node_of(g, v->producer);
        json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:I}", "name", ebb_text(g, v->name),
                                               "type", type, "made_by", ebb_text(g, maker->name),
                                               "uses", (json_int_t)v->use_count));
    }
    return array;
}

ebb_status ebb_inspect_node(const ebb_model *model, const char *node, char **text)
{
    EBB_NEED(model);
    EBB_NEED(node);
    EBB_NEED(text);
    const ebb_graph *g = model->graph;
    ebb_node n = ebb_node_find(g, node);
    if (n.i == 0)
        n = ebb_value_of(g, ebb_value_find(g, node))->producer;
    if (n.i == 0)
        return ebb_hint(
            ebb_error(EBB_USAGE, "no node is named '%s' or makes a value of that name", node),
            "`ebb inspect MODEL --text` shows them all");
    const ebb_node_info *info = ebb_node_of(g, n);
    json_t *attrs = json_object();
    for (uint32_t i = 0; i < info->attr_count; i++) {
        const ebb_attr *a = &info->attr[i];
        json_t *value = NULL;
        if (a->type == EBB_ATTR_INT)
            value = json_integer((json_int_t)a->i);
        else if (a->type == EBB_ATTR_FLOAT)
            value = json_real(a->f);
        else if (a->type == EBB_ATTR_STRING)
            value = json_string(a->s);
        else if (a->type == EBB_ATTR_INTS) {
            value = json_array();
            for (uint32_t k = 0; k < a->count; k++)
                json_array_append_new(value, json_integer((json_int_t)a->ints[k]));
        }
        json_object_set_new(attrs, a->name, value != NULL ? value : json_string("..."));
    }
    return ebb_json_text(
        text, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "node", ebb_text(g, info->name), "op",
                        ebb_text(g, info->op_name), "domain", ebb_text(g, info->domain), "inputs",
                        operands(g, info->in, info->in_count), "outputs",
                        operands(g, info->out, info->out_count), "attributes", attrs));
}
