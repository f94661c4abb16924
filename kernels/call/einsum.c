/* einsum.c: see einsum.h. */
#include "kernels/call/einsum.h"

const char *ebb_einsum_misfit(ebb_einsum *e, const ebb_call *c)
{
    const ebb_type *types[EBB_EINSUM_INPUTS], *y = &c->out[0].type;
    if (c->input_count > EBB_EINSUM_INPUTS)
        return "it has too many inputs";
    for (uint32_t i = 0; i < c->input_count; i++)
        types[i] = &c->in[i].type;
    const char *equation = ebb_attr_string(&c->attrs, "equation", "");
    const char *why = ebb_einsum_read(e, equation, c->input_count, types);
    if (why != NULL)
        return why;
    if (e->out_rank != y->rank)
        return "the output has another rank than the equation";
    for (int d = 0; d < e->out_rank; d++)
        if (e->size[d] != y->dims[d])
            return "the output has another shape than the equation";
    return NULL;
}
