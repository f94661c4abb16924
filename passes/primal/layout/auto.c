/* auto.c: whether channels last pay, by what is copied either way.
 *
 * oneDNN's kernels want images by blocks of channels, or channels last, and a kernel that gets channels first copies each
 * image into its workspace and back. With channels last images lie as the kernels read them, but Transposes stand where
 * images come in and go.
 *
 *     price = 2 (elements of the convolutions' workspaces) + elements that Transpose and Pad read and write
 *
 * Both forms of the forward are planned, and the lower price is taken: the backward copies what the forward does, and as
 * much again, in either form. A processor needs no pads. On a GPU, whose libraries copy where no plan sees it, channels
 * last are taken. No kernel is slower with channels last but for what it copies: `ebb bench --calibrate` of resnet50 and
 * mobilenet_v2 in both forms (one thread of an AMD EPYC, Zen 5).
 */
#include "exec/weigh/estimate.h"
#include "onnx/graph/infer.h"
#include "passes/primal/layout/layout.h"

static bool convolves(ebb_op op)
{
    return op == EBB_OP_CONV || op == EBB_OP_CONV_TRANSPOSE || op == EBB_OP_CONV_NHWC ||
           op == EBB_OP_CONV_TRANSPOSE_NHWC;
}

static ebb_status price_of(double *elements, bool *on_host, const ebb_graph *g, ebb_arena *arena,
                           const char *backend)
{
    ebb_estimate estimate;
    EBB_TRY(ebb_estimate_within(&estimate, arena, g, backend, UINT64_MAX));
    *on_host = estimate.maps;
    *elements = 0;
    EBB_EACH_NODE(g, n) {
        const ebb_op op = ebb_node_of(g, n)->op;
        if (!convolves(op) && op != EBB_OP_TRANSPOSE && op != EBB_OP_PAD)
            continue;
        const ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, ebb_in(g, n, 0))->type->dtype;
        const double bytes =
            convolves(op) ? 2 * (double)estimate.workspace_bytes[n.i] : ebb_node_bytes(g, n);
        if (bytes > 0) // none of strings, whose bits are none
            *elements += 8 * bytes / (double)ebb_dtype_bits(dtype);
    }
    return NULL;
}

static ebb_status try(double *elements, ebb_edit *e, ebb_graph *g, ebb_arena *arena)
{
    bool on_host;
    ebb_report report = {.pass = e->pass->name};
    ebb_edit edit = *e;
    edit.g = g;
    edit.report = &report;
    edit.scratch = edit.keep = arena;
    EBB_TRY(ebb_layout_apply(&edit, 1));
    (void)ebb_graph_sweep(g);
    return price_of(elements, &on_host, g, arena, ebb_option_string(e, "backend"));
}

ebb_status ebb_layout_pays(const char **why_not, int64_t *pad, ebb_edit *e)
{
    EBB_LOCAL_ARENA(arena);
    *why_not = ebb_require_static(e->g) != NULL ? "the sizes of its images are not known" : NULL;
    if (*why_not != NULL)
        return NULL;
    const char *backend = ebb_option_string(e, "backend");
    double now, then;
    bool on_host, knows;
    ebb_model *copy = NULL;
    EBB_TRY(price_of(&now, &on_host, e->g, arena, backend));
    EBB_TRY(ebb_estimate_knows(&knows, backend, EBB_OP_CONV_NHWC));
    if (!knows)
        *why_not = "the back end has plain loops alone for channels last";
    if (!knows || !on_host)
        return NULL;
    *pad = 1;
    EBB_TRY(ebb_model_copy(&copy, e->g->model));
    ebb_status status = try(&then, e, copy->graph, arena);
    ebb_model_free(copy);
    if (status == NULL && then >= now)
        *why_not = "channels last would take as long as channels first do";
    return status;
}
