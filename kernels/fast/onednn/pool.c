/* pool.c: averages by oneDNN in any layout, and maxima of tensors that are not row-major, which the
 * rows of pool_rows.c do not take. */
#include "kernels/fast/onednn/onednn.h"

static const char *make(ebb_dnnl_plan *plan, const ebb_call *call)
{
    ebb_geometry w;
    EBB_ASK(ebb_call_wants(call, 1) ? "no Indices" : ebb_dnnl_numbers(call));
    EBB_ASK(ebb_pool_read(&w, call));
    bool most = call->op == EBB_OP_MAX_POOL; // beware: oneDNN passes over a NaN
    if (most && ebb_is_narrow(&call->in[0].type) &&
        call->in[0].type.layout.kind == EBB_LAYOUT_PLAIN)
        return "the rows of pool_rows.c, widened, see a NaN";
    bool padded = ebb_attr_int(&call->attrs, "count_include_pad", 0) != 0;
    ebb_dnnl_windows windows = {.stride = {0}};
    for (int i = 0; i < w.spatial; i++) {
        int from = EBB_AXES - w.spatial + i;
        int64_t beyond = (w.narrow[from] - 1) * w.stride[from] + w.kernel[from] - w.wide[from] -
                         w.pad_begin[from];
        if (w.dilation[from] != 1)
            return "no dilation";
        if (padded && !most && beyond > w.pad_end[from])
            return "an average whose last window runs beyond the padding";
        windows.stride[i] = w.stride[from];
        windows.kernel[i] = w.kernel[from];
        windows.begin[i] = w.pad_begin[from];
        windows.end[i] = beyond > 0 ? beyond : 0;
    }
    ebb_dnnl_layout source, result;
    EBB_ASK(ebb_dnnl_of_type(&source, &call->in[0].type));
    EBB_ASK(ebb_dnnl_of_type(&result, &call->out[0].type));
    EBB_ASK(ebb_dnnl_describe_pool(plan, most, padded, &source, &result, &windows));
    EBB_ASK(ebb_dnnl_add(plan, DNNL_ARG_SRC, false, 0, &source));
    return ebb_dnnl_add(plan, DNNL_ARG_DST, true, 0, &result);
}

EBB_DNNL_PHASES(make)

// clang-format off
const ebb_kernel ebb_dnnl_pool[] = {
    {.name = "dnnl.average_pool", .op = EBB_OP_AVERAGE_POOL, .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
};
EBB_DNNL_COUNT(pool)

const ebb_kernel ebb_dnnl_pool_most[] = {
    {.name = "dnnl.max_pool", .op = EBB_OP_MAX_POOL, .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
};
// clang-format on
EBB_DNNL_COUNT(pool_most)
