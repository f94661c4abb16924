/* operators.c: operators that are not known, or that nothing here computes. */
#include "api/doctor/doctor.h"

#include "exec/weigh/call.h"
#include "onnx/graph/infer.h"
#include "passes/flatten/dialect/dialect.h"
#include "passes/primal/habit.h"

/* ---- not known ---- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The nearest operator of this domain by name, or of any domain where the name is the same. */
static const char *near(ebb_doctor *d, const char *domain, const char *name)
{
    const char *names[EBB_OP_COUNT];
    size_t count = 0;
    for (int op = 1; op < EBB_OP_COUNT; op++) {
        const ebb_op_row *r = ebb_op_row_of((ebb_op)op);
        if (strcmp(r->domain, domain) == 0)
            names[count++] = r->name;
        else if (strcmp(r->name, name) == 0)
            return ebb_arena_printf(&d->arena,
                                    "ebb knows %s of domain %s: has the file the wrong "
                                    "domain?",
                                    name, r->domain[0] != '\0' ? r->domain : "ai.onnx");
    }
    const char *found = ebb_nearest(name, names, count);
    return found != NULL ? ebb_arena_printf(&d->arena, "did the exporter mean %s?", found) : "";
}

static const char *help_for(ebb_doctor *d, const ebb_graph *g, ebb_node n, const ebb_finding *f)
{
    const char *domain = f->domain, *name = f->op;
    int64_t opset = f->opset;
    ebb_op newer = ebb_op_find(domain, name, INT32_MAX);
    if (newer != EBB_OP_UNKNOWN)
        return ebb_arena_printf(
            &d->arena,
            "ebb knows it from opset %d on, and the file says %lld: export with opset_version=%d "
            "or more, or bring the file there with onnx.version_converter",
            ebb_op_row_of(newer)->since, (long long)opset,
            ebb_op_row_of(newer)->since > 13 ? ebb_op_row_of(newer)->since : 13);
    if (strcmp(name, "ZipMap") == 0)
        return "it makes maps of probabilities: convert with options={'zipmap': False}, so that "
               "they are an output";
    if (ebb_dialect_knows(g, n))
        return "ebb translates it, but not as it is used here, or not before open dims have sizes "
               "(--dim): see the warning `foreign`";
    if (begins(domain, "ai.onnx.ml") || begins(name, "String") || begins(name, "Regex") ||
        begins(name, "TfIdf") || begins(name, "Image"))
        return "ebb trains what deals in tensors of numbers: keep this part before the model";
    if (begins(domain, "com.microsoft") || begins(domain, "com.ms."))
        return "ONNX Runtime's optimiser left it: use the file from before that, or write it with "
               "the optimisation level off or basic";
    if (strstr(domain, "aten") != NULL || strstr(domain, "prim") != NULL ||
        begins(domain, "org.pytorch") || begins(domain, "pkg."))
        return "the exporter fell back to an operator of its own: export with dynamo=True or a "
               "newer opset_version, so that it is written in ONNX's operators";
    const char *close = near(d, domain, name);
    if (close == NULL || close[0] != '\0')
        return close;
    if (domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0)
        return "export with another opset_version, or replace it in the model by operators that "
               "`ebb ops` lists";
    return "add a function of this name to the file, in ONNX's operators (custom_translation_table "
           "of the exporter does so): it is inlined";
}

/* Whether a pass may make something known of it. */
static bool is_for_passes(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    return ebb_dialect_knows(g, n) ||
           ebb_op_find(ebb_text(g, info->domain), ebb_text(g, info->op_name), INT32_MAX) !=
               EBB_OP_UNKNOWN;
}

static ebb_status look_at(void *context, const ebb_graph *g, ebb_node n)
{
    ebb_doctor *d = context;
    const ebb_node_info *info = ebb_node_of(g, n);
    if (info->op != EBB_OP_UNKNOWN || ebb_calls_function(g, n))
        return NULL;
    if (is_for_passes(g, n) && g->model == d->raw && d->tidy != NULL)
        return NULL; // what opset and inline leave of them is told with the tidied copy's
    if (!is_for_passes(g, n) && g->model == d->tidy)
        return NULL; // told
    ebb_finding *f = ebb_doctor_about(d, EBB_PROBLEM, "operator", g, n);
    EBB_GOT(f);
    if (f->count == 0) {
        f->code = EBB_UNSUPPORTED;
        f->what =
            ebb_arena_printf(&d->arena, "%s of domain %s, opset %lld, is not known to ebb", f->op,
                             f->domain[0] != '\0' ? f->domain : "ai.onnx", (long long)f->opset);
        f->help = help_for(d, g, n, f);
        EBB_GOT(f->what && f->help);
    }
    return ebb_doctor_node(d, f, g, n);
}

/* ---- without a kernel ---- */

/* What passes turn into other nodes needs none. */
static bool is_rewritten(ebb_op op)
{
    return op == EBB_OP_CONSTANT || op == EBB_OP_SPLIT_TO_SEQUENCE || op == EBB_OP_SEQUENCE_AT ||
           ebb_op_has(op, EBB_BODIES);
}

static bool has_kernel(ebb_op op, const ebb_backend *const *backends)
{
    for (; *backends != NULL; backends++)
        if (ebb_backend_find(*backends, op) != NULL)
            return true;
    return false;
}

/* Why no kernel takes this node; NULL: one does, or its sizes are not known. */
static ebb_status why_not(ebb_doctor *d, const ebb_graph *g, ebb_node n,
                          const ebb_backend *const *backends, const char **why)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_call call;
    ebb_op op = ebb_node_of(g, n)->op;
    *why = NULL;
    ebb_status status = ebb_call_make(&call, scratch, g, n, 0);
    if (status == NULL && !is_rewritten(op)) {
        ebb_status picked = ebb_pick(&call, backends);
        if (ebb_status_code(picked) == EBB_UNSUPPORTED)
            *why = ebb_doctor_sentence(d, picked);
    } else if (!is_rewritten(op) && !has_kernel(op, backends)) {
        *why = ebb_arena_printf(&d->arena, "%s: no kernel computes this operator",
                                ebb_node_label(g, n));
    }
    return ebb_status_code(status) == EBB_RUNTIME ? status : NULL;
}

ebb_status ebb_doctor_operators(ebb_doctor *d)
{
    const ebb_backend *const *backends;
    EBB_TRY(ebb_visit_nodes(d->raw, look_at, d));
    if (d->tidy != NULL)
        EBB_TRY(ebb_visit_nodes(d->tidy, look_at, d));
    EBB_TRY(ebb_backends("cpu", &backends));
    const ebb_model *looked = d->sized != NULL ? d->sized : d->tidy != NULL ? d->tidy : d->raw;
    const ebb_graph *g = looked->graph;
    EBB_EACH_NODE(g, n) {
        const char *why;
        if (ebb_node_of(g, n)->op == EBB_OP_UNKNOWN || ebb_calls_function(g, n))
            continue;
        EBB_TRY(why_not(d, g, n, backends, &why));
        if (why == NULL)
            continue;
        ebb_finding *f = ebb_doctor_about(d, EBB_PROBLEM, "kernel", g, n);
        EBB_GOT(f);
        if (f->count == 0) {
            f->code = EBB_UNSUPPORTED;
            f->what = why;
            f->help = strstr(why, "dtype") != NULL
                          ? "export with float32 or float64 in its place, or with another "
                            "opset_version"
                          : "say it in other operators where the model is made, or export with "
                            "another opset_version";
        }
        EBB_TRY(ebb_doctor_node(d, f, g, n));
    }
    return NULL;
}
