/* ops.c: the table of operators, or what a model has of it. */
#include "api/api.h"

#include "kernels/kernels.h"
#include "passes/flatten/dialect/dialect.h"
#include "passes/gradient/reverse.h"

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

static const char *gradient_word(ebb_op op)
{
    if (op == EBB_OP_UNKNOWN)
        return "";
    if (ebb_op_has(op, EBB_STEPS))
        return "straight-through";
    if (ebb_op_stops_grad(op) || ebb_op_has_grad(op))
        return ebb_op_stops_grad(op) ? "stops" : "yes";
    return ebb_reverse_expands(op) ? "by its body" : "no";
}

static json_t *row(const char *node, const char *domain, const char *name, int64_t since,
                   const char *kernel, const char *gradient, const char *reason)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:s}", "node", node, "domain", domain, "op",
                     name, "since", (json_int_t)since, "kernel", kernel, "gradient", gradient,
                     "reason", reason);
}

ebb_status ebb_ops_json(const ebb_model *model, char **json)
{
    EBB_NEED(json);
    bool used[EBB_OP_COUNT] = {false};
    json_t *list = json_array();
    char kernels[64];
    if (model != NULL) {
        const ebb_graph *g = model->graph;
        EBB_EACH_NODE(g, n) {
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
