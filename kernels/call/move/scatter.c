/* scatter.c: see scatter.h. */
#include "kernels/call/move/scatter.h"

ebb_combine ebb_combine_of(const ebb_call *c)
{
    static const char names[][5] = {"none", "add", "mul", "max", "min"};
    if (c->op == EBB_OP_GATHER_GRAD || c->op == EBB_OP_GATHER_ELEMENTS_GRAD)
        return EBB_COMBINE_ADD;
    const char *name = ebb_attr_string(&c->attrs, "reduction", "none");
    for (int i = 0; i < EBB_COMBINE_UNKNOWN; i++)
        if (strcmp(name, names[i]) == 0)
            return (ebb_combine)i;
    return EBB_COMBINE_UNKNOWN;
}

static const char *not_combined(const ebb_operand *index, const ebb_operand *update,
                                const ebb_type *out, bool combines)
{
    if (!ebb_indices_are(index))
        return "indices are neither int32 nor int64";
    if (update->type.dtype != out->dtype)
        return "operands differ in dtype";
    return combines ? NULL : "no such reduction of this dtype";
}

const char *ebb_scatter_elements_misfit(const ebb_call *c, bool combines)
{
    EBB_ASK(ebb_call_any(c));
    const bool grad = c->op == EBB_OP_GATHER_ELEMENTS_GRAD;
    const ebb_operand *index = &c->in[grad ? 2 : 1], *update = &c->in[grad ? 0 : 2];
    const ebb_type *out = &c->out[0].type;
    EBB_ASK(not_combined(index, update, out, combines));
    if (out->rank == 0 || index->type.rank != out->rank ||
        !ebb_type_same_shape(&index->type, &update->type))
        return "indices and updates do not fit the data";
    const int64_t axis = ebb_axis_of(c, "axis", 0, out->rank);
    for (int d = 0; d < out->rank; d++)
        if (d != axis && index->type.dims[d] > out->dims[d])
            return "indices and updates do not fit the data";
    return NULL;
}

const char *ebb_gather_grad_misfit(const ebb_call *c, bool combines)
{
    EBB_ASK(ebb_call_any(c));
    const ebb_type *out = &c->out[0].type;
    EBB_ASK(not_combined(&c->in[1], &c->in[2], out, combines));
    const int64_t axis = ebb_axis_of(c, "axis", 0, out->rank);
    if (axis < 0 || axis >= out->rank)
        return NULL; /* run() says it better */
    const ebb_span s = ebb_span_of(out, (int)axis);
    if (ebb_elements(&c->in[2].type) != s.outer * ebb_elements(&c->in[1].type) * s.inner)
        return "dY does not fit the shape and the indices";
    return NULL;
}

const char *ebb_scatter_nd_misfit(const ebb_call *c, bool combines)
{
    EBB_ASK(ebb_call_any(c));
    const ebb_type *data = &c->in[0].type, *index = &c->in[1].type, *update = &c->in[2].type;
    EBB_ASK(not_combined(&c->in[1], &c->in[2], data, combines));
    if (index->rank < 1 || index->dims[index->rank - 1] > data->rank)
        return "indices have more coordinates than the data";
    int64_t expected = 1;
    bool huge = false;
    for (int d = 0; d < index->rank - 1; d++)
        huge |= __builtin_mul_overflow(expected, index->dims[d], &expected);
    for (int d = (int)index->dims[index->rank - 1]; d < data->rank; d++)
        huge |= __builtin_mul_overflow(expected, data->dims[d], &expected);
    if (huge || ebb_elements(update) != expected)
        return "updates do not fit the data and the indices";
    return NULL;
}
