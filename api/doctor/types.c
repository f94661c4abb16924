/* types.c: nodes that contradict what they read, and rules of a graph that are broken. */
#include "api/doctor/doctor.h"

#include "onnx/graph/infer.h"
#include "passes/mended/zeros.h"

static ebb_status contradicted(void *context, ebb_node n, ebb_status why)
{
    ebb_doctor *d = context;
    const ebb_graph *g = d->raw->graph;
    const ebb_node_info *info = ebb_node_of(g, n);
    ebb_finding *f = ebb_doctor_add(d, EBB_PROBLEM, "types");
    EBB_GOT(f);
    f->code = EBB_REJECTED;
    f->op = ebb_arena_strdup(&d->arena, ebb_text(g, info->op_name));
    f->domain = ebb_arena_strdup(&d->arena, ebb_text(g, info->domain));
    EBB_GOT(f->op && f->domain);
    f->opset = ebb_model_opset(d->raw, f->domain);
    f->help = "correct the model, or the sizes given with --dim and --shape; `ebb inspect MODEL "
              "--node NAME` shows the node's operands";
    f->what = ebb_doctor_sentence(d, why);
    return f->what != NULL ? ebb_doctor_node(d, f, g, n) : ebb_error_memory();
}

ebb_status ebb_doctor_types(ebb_doctor *d)
{
    EBB_TRY(ebb_model_copy(&d->raw, d->model));
    EBB_TRY(ebb_zeros_drop(d->raw->graph));
    EBB_TRY(ebb_infer_through(d->raw->graph, contradicted, d));
    ebb_status broken = ebb_verify(d->raw->graph);
    if (broken == NULL)
        return NULL;
    ebb_finding *f = ebb_doctor_add(d, EBB_PROBLEM, "graph");
    EBB_GOT(f);
    f->code = ebb_status_code(broken) == EBB_VERIFY ? EBB_REJECTED : ebb_status_code(broken);
    f->what = ebb_doctor_sentence(d, broken);
    f->help = "the file breaks a rule of ONNX: write it again with its exporter";
    return f->what != NULL ? NULL : ebb_error_memory();
}
