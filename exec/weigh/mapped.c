/* mapped.c: which weights are read in the model's file. */
#include "exec/weigh/memory.h"

#include "onnx/file/wire.h"

/* Its bytes are those of the .onnx file, not a copy of them. */
static bool lies_in_file(const ebb_tensor *t)
{
    if (t->origin == NULL || t->data == NULL)
        return false;
    const ebb_encoded whole = ebb_wire_bytes(t->origin);
    const uintptr_t at = (uintptr_t)t->data - (uintptr_t)whole.bytes;
    return at < whole.size && t->bytes <= whole.size - at;
}

bool ebb_memory_maps(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    const ebb_tensor *t = info->tensor;
    const uint32_t initializer = info->flags & EBB_IS_INITIALIZER;
    const uint32_t other = info->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT);
    size_t bytes;
    if (initializer == 0 || other != 0 || info->dead || info->bound != 0 || g->outer != NULL ||
        t == NULL || ebb_value_is_state(g, v) || !ebb_type_bytes(info->type, &bytes) ||
        bytes < EBB_MAPPED_LEAST || bytes != t->bytes)
        return false;
    const unsigned bits = ebb_dtype_bits((ebb_dtype)info->type->dtype);
    return t->external ? t->offset % (bits < 8 ? 1 : bits / 8) == 0 : bits <= 8 && lies_in_file(t);
}
