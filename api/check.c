/* check.c: what would keep a model from being trained, every problem at once; and the table. */
#include "api/api.h"

#include <stdlib.h>

#include "kernels/kernels.h"
#include "onnx/infer.h"
#include "passes/dialect/dialect.h"
#include "passes/lost.h"

/* The back ends that have a kernel for the op: "dnnl plain". */
static const char *kernel_names(ebb_op op, char *text, size_t size)
{
    const ebb_backend *const *backends;
    text[0] = '\0';
    if (ebb_backends("cpu", &backends) != NULL)
        return text;
    for (; op != EBB_OP_UNKNOWN && *backends != NULL; backends++) {
        size_t used = strlen(text);
        if (ebb_backend_find(*backends, op) != NULL)
            (void)snprintf(text + used, size - used, "%s%s", used > 0 ? " " : "",
                           (*backends)->name);
    }
    return text;
}

/* Handled by fold or inline before anything runs. */
static bool normalised_away(ebb_op op)
{
    return op == EBB_OP_SPLIT_TO_SEQUENCE || op == EBB_OP_SEQUENCE_AT || op == EBB_OP_CONSTANT;
}

static const char *gradient_word(ebb_op op)
{
    if (op == EBB_OP_UNKNOWN)
        return "";
    if (ebb_op_has(op, EBB_STEPS))
        return "straight-through";
    return ebb_op_stops_grad(op) ? "stops" : ebb_op_has_grad(op) ? "yes" : "no";
}

static json_t *row(const char *node, const char *domain, const char *name, int64_t since,
                   const char *kernel, const char *gradient, const char *reason)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:s}", "node", node, "domain", domain, "op",
                     name, "since", (json_int_t)since, "kernel", kernel, "gradient", gradient,
                     "reason", reason);
}

static bool is_local_function(const ebb_model *m, const ebb_graph *g, const ebb_node_info *info)
{
    for (size_t i = 0; i < m->function_count; i++)
        if (strcmp(ebb_names_text(&m->names, m->functions[i].name), ebb_text(g, info->op_name)) ==
                0 &&
            strcmp(ebb_names_text(&m->names, m->functions[i].domain), ebb_text(g, info->domain)) ==
                0)
            return true;
    return false;
}

/* Whether a float value reaches this node: else no gradient is asked of it. */
static bool carries_gradient(const ebb_graph *g, const ebb_node_info *info)
{
    for (uint32_t i = 0; i < info->out_count; i++)
        if (ebb_dtype_is_float((ebb_dtype)ebb_value_of(g, info->out[i])->type.dtype))
            return true;
    return false;
}

static json_t *problem_of(const ebb_model *m, const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    char kernels[64], reason[512];
    const char *domain = ebb_text(g, info->domain), *name = ebb_text(g, info->op_name);
    int64_t opset = ebb_model_opset(m, domain);
    if (is_local_function(m, g, info) || normalised_away(info->op) || ebb_dialect_knows(g, n))
        return NULL;
    (void)kernel_names(info->op, kernels, sizeof kernels);
    const char *gradient = gradient_word(info->op);
    if (info->op == EBB_OP_UNKNOWN)
        (void)snprintf(reason, sizeof reason, "operator %s%s%s of opset %lld is not known to ebb",
                       domain, domain[0] != '\0' ? "." : "", name, (long long)opset);
    else if (kernels[0] == '\0')
        (void)snprintf(reason, sizeof reason, "%s has no kernel", name);
    else if (strcmp(gradient, "no") == 0 && info->phase <= EBB_FORWARD &&
             m->graph->binding_count == 0 && carries_gradient(g, info))
        (void)snprintf(reason, sizeof reason,
                       "%s has no gradient; training works if no trained parameter lies behind it",
                       name);
    else
        return NULL;
    return row(ebb_node_label(g, n), domain, name, ebb_op_row_of(info->op)->since, kernels,
               gradient, reason);
}

static json_t *open_dims(const ebb_graph *g)
{
    json_t *notes = json_array();
    char text[512];
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_type *t = &ebb_value_of(g, g->inputs[i])->type;
        for (int d = 0; d < t->rank; d++) {
            if (t->dims[d] >= 0)
                continue;
            (void)snprintf(text, sizeof text,
                           "input '%s' has an open dimension '%s': bind it with --dim %s=N",
                           ebb_value_name(g, g->inputs[i]), ebb_text(g, t->symbols[d]),
                           ebb_text(g, t->symbols[d]));
            json_array_append_new(notes, json_string(text));
        }
    }
    return notes;
}

ebb_status ebb_check_json(const ebb_model *model, char **json)
{
    const ebb_graph *g = model->graph;
    ebb_arena scratch = {0};
    json_t *problems = json_array(), *warnings = json_array();
    EBB_EACH_NODE(g, n)
    {
        json_t *p = problem_of(model, g, n);
        if (p != NULL)
            json_array_append_new(problems, p);
    }
    char **lost = NULL;
    size_t lost_count = 0;
    ebb_status status = ebb_lost_find(g, &scratch, &lost, &lost_count);
    for (size_t i = 0; status == NULL && i < lost_count; i++)
        json_array_append_new(warnings, json_string(lost[i]));
    json_t *o = json_pack("{s:s, s:o, s:o, s:o}", "schema", "ebb.check/1", "problems", problems,
                          "warnings", warnings, "notes", open_dims(g));
    ebb_arena_fini(&scratch);
    if (status != NULL) {
        json_decref(o);
        return status;
    }
    return ebb_json_text(json, o);
}

ebb_status ebb_ops_json(const ebb_model *model, char **json)
{
    bool used[EBB_OP_COUNT] = {false};
    json_t *list = json_array();
    char kernels[64];
    if (model != NULL) {
        const ebb_graph *g = model->graph;
        EBB_EACH_NODE(g, n)
        {
            const ebb_node_info *info = ebb_node_of(g, n);
            if (info->op == EBB_OP_UNKNOWN && !ebb_dialect_knows(g, n))
                json_array_append_new(list, row(ebb_node_label(g, n), ebb_text(g, info->domain),
                                                ebb_text(g, info->op_name), 0, "", "",
                                                "not known to ebb"));
            used[info->op] = true;
        }
    }
    for (int op = 1; op < EBB_OP_COUNT; op++) {
        const ebb_op_row *r = ebb_op_row_of((ebb_op)op);
        if (model == NULL || used[op])
            json_array_append_new(list, row("", r->domain, r->name, r->since,
                                            kernel_names((ebb_op)op, kernels, sizeof kernels),
                                            gradient_word((ebb_op)op), ""));
    }
    return ebb_json_text(json, json_pack("{s:s, s:o}", "schema", "ebb.ops/1", "operators", list));
}
