/* infer.c: types over a graph.
 *
 * Each row of ops.def has its own rule; here is what surrounds it: what the rule gets to see, how
 * its answer meets what the file says, and the sizes that a user binds. Integers that describe
 * shapes are followed through the graph by facts.c, so that shape arithmetic leads somewhere before
 * it is folded.
 */
#include "onnx/graph/infer.h"

#include "onnx/graph/facts.h"
#include "onnx/graph/scan.h"
#include "onnx/graph/schema.h"

/* ---- one node ---- */

/* What a rule sees. constants NULL: those of the graph alone. */
static ebb_status show(ebb_infer *c, const ebb_graph *g, ebb_node n, ebb_facts *facts,
                       ebb_arena *scratch)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const ebb_type **in = EBB_NEW(scratch, const ebb_type *, info->in_count);
    const ebb_tensor **constant = EBB_NEW(scratch, const ebb_tensor *, info->in_count);
    ebb_type *out = EBB_NEW(scratch, ebb_type, info->out_count);
    EBB_GOT(in && constant && out);
    for (uint32_t i = 0; i < info->in_count; i++) {
        ebb_value v = info->in[i];
        if (v.i == 0)
            continue;
        in[i] = ebb_value_of(g, v)->type;
        constant[i] = facts != NULL ? ebb_facts_tensor(facts, v) : ebb_value_constant(g, v);
    }
    const char *domain = ebb_text(g, info->domain);
    *c = (ebb_infer){.op = info->op,
                     .version = ebb_model_opset(g->model, domain),
                     .node = ebb_node_label(g, n),
                     .attrs = ebb_node_attrs(g, n),
                     .input_count = info->in_count,
                     .output_count = info->out_count,
                     .in = in,
                     .constant = constant,
                     .out = out,
                     .scratch = scratch};
    for (uint32_t k = 0; k < info->out_count; k++) {
        out[k] = ebb_type_none();
        if (k < EBB_INFER_MAX)
            c->out_wanted[k] = info->out[k].i != 0;
    }
    return NULL;
}

/* A rule's answer meets what is known already. The rule wins; where it says nothing, the file's
 * hint stays. Only a declared graph output of another dtype is a contradiction: its dims may be those of
 * the exporter's own batch, and its rank that of a branch which is never taken (TorchScript's
 * scatter_reduce). */
static ebb_status settle(ebb_graph *g, ebb_node n, ebb_value v, ebb_type found)
{
    ebb_value_info *info = ebb_value_of(g, v);
    ebb_type old = *info->type;
    if (found.kind == EBB_KIND_UNKNOWN)
        return NULL;
    if (old.kind == EBB_KIND_UNKNOWN)
        return ebb_value_set_type(g, v, &found);
    if (found.dtype == EBB_NONE)
        found.dtype = old.dtype;
    bool declared = (info->flags & EBB_IS_OUTPUT) != 0 && old.kind == found.kind;
    if (declared && old.dtype != EBB_NONE && old.dtype != found.dtype)
        return ebb_error(EBB_REJECTED, "%s: output '%s' is declared %s, but it is %s",
                         ebb_node_label(g, n), ebb_value_name(g, v),
                         ebb_dtype_name((ebb_dtype)old.dtype),
                         ebb_dtype_name((ebb_dtype)found.dtype));
    if (found.rank < 0 && old.rank >= 0) {
        old.kind = found.kind;
        old.dtype = found.dtype;
        return ebb_value_set_type(g, v, &old);
    }
    if (found.rank == old.rank)
        for (int i = 0; i < found.rank; i++)
            if (found.dims[i] < 0) {
                found.dims[i] = old.dims[i];
                if (old.dims[i] >= 0 || old.symbols[i].i != 0)
                    found.symbols[i] = old.dims[i] >= 0 ? (ebb_str){0} : old.symbols[i];
            }
    found.layout = old.layout;
    return ebb_value_set_type(g, v, &found);
}

/* An attribute that stands for one of the function's is not known here. */
static bool has_reference(const ebb_node_info *info)
{
    for (uint32_t i = 0; i < info->attr_count; i++)
        if (info->attr[i].ref != NULL)
            return true;
    return false;
}

static ebb_status infer_one(ebb_graph *g, ebb_node n, ebb_facts *facts, ebb_arena *scratch)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (info->op == EBB_OP_UNKNOWN || has_reference(info))
        return NULL;
    EBB_TRY(ebb_schema_check(g, n));
    ebb_infer c;
    EBB_TRY(show(&c, g, n, facts, scratch));
    EBB_TRY(ebb_op_row_of(info->op)->infer(&c));
    if (info->op == EBB_OP_SCAN) // no rule sees bodies
        EBB_TRY(ebb_scan_infer(g, n, c.out));
    if (facts != NULL)
        ebb_facts_refine(facts, n, c.out);
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0)
            EBB_TRY(settle(g, n, info->out[k], c.out[k]));
    return NULL;
}

ebb_status ebb_infer_node(ebb_graph *g, ebb_node n)
{
    EBB_LOCAL_ARENA(scratch);
    return infer_one(g, n, NULL, scratch);
}

/* ---- all nodes ---- */

static ebb_status infer_and_learn(ebb_graph *g, ebb_node n, ebb_facts *facts, ebb_arena *scratch)
{
    EBB_TRY(infer_one(g, n, facts, scratch));
    return ebb_facts_learn(facts, n);
}

ebb_status ebb_infer_through(ebb_graph *g, ebb_contradicted told, void *context)
{
    enum { SCRATCH_BYTES = 1 << 20 };
    ebb_arena scratch = {0}, known = {0};
    ebb_facts facts;
    ebb_status status = ebb_facts_init(&facts, g, &known);
    EBB_EACH_NODE(g, n) {
        if (status != NULL)
            break;
        status = infer_and_learn(g, n, &facts, &scratch);
        if (told != NULL && ebb_status_code(status) == EBB_REJECTED)
            status = told(context, n, status);
        if (scratch.used_bytes > SCRATCH_BYTES)
            ebb_arena_fini(&scratch);
    }
    ebb_arena_fini(&scratch);
    ebb_arena_fini(&known);
    return ebb_while(status, "inferring shapes");
}

ebb_status ebb_infer_graph(ebb_graph *g)
{
    return ebb_infer_through(g, NULL, NULL);
}

/* ---- open sizes ---- */

bool ebb_node_gives_no_size(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (info->op == EBB_OP_UNKNOWN || ebb_op_has(info->op, EBB_BODIES) ||
        !ebb_values_have_sizes(g, info->in, info->in_count))
        return false; // or told elsewhere
    for (uint32_t o = 0; o < info->out_count; o++) {
        ebb_value y = info->out[o];
        const ebb_type *type = y.i != 0 ? ebb_value_of(g, y)->type : NULL;
        bool wanted = y.i != 0 && (ebb_value_is_read(g, y) || ebb_value_is_held(g, y));
        if (wanted && type->kind == EBB_KIND_TENSOR && !ebb_type_is_static(type))
            return true;
    }
    return false;
}

/* Whether a mask tells which of a router's highest scores are an expert's. */
static bool is_of_experts(const ebb_graph *g, ebb_node n)
{
    enum { FAR = 12 };
    for (int step = 0; step < FAR && n.i != 0; step++) {
        const ebb_value x = ebb_in(g, n, 0);
        n = x.i != 0 ? ebb_value_of(g, x)->producer : EBB_NO_NODE;
        if (n.i != 0 && ebb_node_of(g, n)->op == EBB_OP_TOP_K)
            return true;
    }
    return false;
}

/* nn.Embedding(max_norm=...) scales each row that is looked up, and each row once. */
static bool is_of_max_norm(const ebb_graph *g, ebb_node n)
{
    const char *call =
        n.i != 0 ? ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL) : NULL;
    return call != NULL && strstr(call, "aten.embedding_renorm.") != NULL;
}

const char *ebb_help_of_sizes(const ebb_graph *g, ebb_node n)
{
    return is_of_max_norm(g, n) ? "this is max_norm of nn.Embedding: export the model without it "
                                  "(module.max_norm = None)"
           : is_of_experts(g, n)
               ? "a mixture of experts has its sizes where the module is exported behind "
                 "set_experts_implementation(\"batched_mm\"), or by ONNX Runtime GenAI's builder"
               : "weigh or mask places in place of choosing them by their values";
}

ebb_status ebb_refuse_sizes_of_values(const ebb_graph *g)
{
    EBB_LOCAL_ARENA(scratch);
    bool *open = EBB_NEW(scratch, bool, g->value_count); // itself, or what it is computed of
    EBB_GOT(open);
    for (size_t k = 0; k < g->input_count; k++)
        open[g->inputs[k].i] = !ebb_type_is_static(ebb_value_of(g, g->inputs[k])->type);
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        bool of_open = false;
        for (uint32_t i = 0; i < info->in_count; i++)
            of_open |= open[info->in[i].i];
        if (!of_open && ebb_node_gives_no_size(g, n))
            return ebb_hint(
                ebb_error(EBB_UNSUPPORTED,
                          "%s: how large its output is hangs on values, and a step has all "
                          "its sizes before it runs",
                          ebb_node_label(g, n)),
                ebb_help_of_sizes(g, n));
        for (uint32_t o = 0; o < info->out_count; o++)
            open[info->out[o].i] = of_open && info->out[o].i != 0;
    }
    return NULL;
}

ebb_status ebb_require_static(const ebb_graph *g)
{
    for (size_t k = 0; k < g->input_count; k++) {
        const ebb_value_info *info = ebb_value_of(g, g->inputs[k]);
        if ((info->flags & EBB_IS_INITIALIZER) != 0 || info->type->kind != EBB_KIND_TENSOR)
            continue;
        const char *name = ebb_text(g, info->name);
        if (!ebb_type_is_static(info->type))
            EBB_TRY(ebb_refuse_sizes_of_values(g));
        if (info->type->rank < 0)
            return ebb_hint(ebb_error(EBB_USAGE, "the shape of input '%s' is not known", name),
                            "give it with --shape %s=DIM,DIM,...", name);
        for (int i = 0; i < info->type->rank; i++) {
            if (info->type->dims[i] >= 0)
                continue;
            if (info->type->symbols[i].i == 0)
                return ebb_hint(ebb_error(EBB_USAGE, "dim %d of input '%s' has no size", i, name),
                                "give it with --shape %s=DIM,DIM,...", name);
            const char *symbol = ebb_text(g, info->type->symbols[i]);
            return ebb_hint(
                ebb_error(EBB_USAGE, "dim %d ('%s') of input '%s' has no size", i, symbol, name),
                "give it with --dim %s=SIZE", symbol);
        }
    }
    return NULL;
}

/* ---- cost ---- */

double ebb_node_flops(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (info->op == EBB_OP_UNKNOWN)
        return 0;
    if (info->op == EBB_OP_SCAN)
        return ebb_scan_flops(g, n);
    EBB_LOCAL_ARENA(scratch);
    ebb_infer c;
    double flops = 0;
    if (show(&c, g, n, NULL, scratch) == NULL) {
        for (uint32_t k = 0; k < info->out_count; k++)
            if (info->out[k].i != 0)
                c.out[k] = *ebb_value_of(g, info->out[k])->type;
        flops = ebb_op_row_of(info->op)->cost(&c);
    }
    return flops;
}
