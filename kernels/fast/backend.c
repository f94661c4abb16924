/* backend.c: the kernels that oneDNN or a loop of our own does faster than the plain ones. */
#include "kernels/fast/fast.h"

#define FAMILY(name) {ebb_dnnl_##name, &ebb_dnnl_##name##_count},

// clang-format off
static const ebb_family families[] = {
#if defined(EBB_ONEDNN)
    EBB_ONEDNN_FIRST(FAMILY)
#endif
    EBB_OWN_LOOPS(FAMILY)
#if defined(EBB_ONEDNN)
    EBB_ONEDNN_LAST(FAMILY)
#endif
    EBB_OWN_LAST(FAMILY)
    {NULL, NULL}};
// clang-format on

const ebb_backend ebb_backend_dnnl = {
    .name = "dnnl", .families = families, .device = &ebb_device_host};

/* ---- what all of them ask of operands ---- */

/* oneDNN's own arithmetic is in 32 bits, and divides: by what lies behind the first dim, pads
 * included. */
static bool is_countable(const ebb_type *type)
{
    const int64_t most = 1 << 30;
    int64_t behind = 1;
    for (int i = 1; i < type->rank; i++) {
        if (type->dims[i] > most / behind)
            return false;
        behind *= type->dims[i];
    }
    return type->rank == 0 || type->dims[0] <= INT32_MAX;
}

const char *ebb_dnnl_declines_shape(const ebb_operand *o, bool plain)
{
    if (o->type.dtype == EBB_NONE)
        return NULL;
    if (!ebb_type_is_static(&o->type))
        return "a dim is not known";
    for (int i = 0; i < o->type.rank; i++)
        if (o->type.dims[i] == 0)
            return "an operand has no elements";
    if (!is_countable(&o->type))
        return "a dim is too large";
    if (plain && o->type.layout.kind != EBB_LAYOUT_PLAIN)
        return "works on row-major tensors only";
    return NULL;
}

static const char *declines_operand(const ebb_operand *o, ebb_dtype dtype, bool plain)
{
    if (o->type.dtype != EBB_NONE && o->type.dtype != dtype)
        return dtype == EBB_F32 ? "computes in float32 only" : "operands of several dtypes";
    return ebb_dnnl_declines_shape(o, plain);
}

static const char *declines_operands(const ebb_call *call, ebb_dtype dtype, bool plain)
{
    for (uint32_t i = 0; i < call->input_count; i++)
        EBB_ASK(declines_operand(&call->in[i], dtype, plain));
    for (uint32_t o = 0; o < call->output_count; o++)
        EBB_ASK(declines_operand(&call->out[o], dtype, plain));
    return NULL;
}

const char *ebb_dnnl_floats(const ebb_call *call)
{
    return declines_operands(call, EBB_F32, false);
}

const char *ebb_dnnl_plain_of(const ebb_call *call, ebb_dtype dtype)
{
    return declines_operands(call, dtype, true);
}

const char *ebb_dnnl_plain_floats(const ebb_call *call)
{
    return ebb_dnnl_plain_of(call, EBB_F32);
}
