/* linear_loss.c: see linear_loss.h. */
#include "kernels/call/linear_loss.h"

#include <string.h>

enum { X, W, BIAS, TARGET, WEIGHTS };
enum { LOSS, DX, DW, DBIAS };

ebb_linear_sizes ebb_linear_loss_read(const ebb_call *c)
{
    const ebb_type *x = &c->in[X].type, *w = &c->in[W].type;
    ebb_linear_sizes s = {.rows = 1};
    s.turned = ebb_attr_int(&c->attrs, "transB", 0) != 0;
    s.inner = w->dims[s.turned ? 1 : 0];
    s.classes = w->dims[s.turned ? 0 : 1];
    for (int d = 0; d + 1 < x->rank; d++)
        s.rows *= x->dims[d];
    const int64_t block = ebb_attr_int(&c->attrs, "rows", 0);
    s.block = block > 0 && block < s.rows ? block : s.rows;
    s.alpha = ebb_attr_float(&c->attrs, "alpha", 1.0);
    s.mean = strcmp(ebb_attr_string(&c->attrs, "reduction", "mean"), "mean") == 0;
    return s;
}

static bool is_vector(const ebb_type *t, int64_t size)
{
    return t->rank == 1 && t->dims[0] == size;
}

const char *ebb_linear_loss_misfit(const ebb_call *c)
{
    const char *reduction = ebb_attr_string(&c->attrs, "reduction", "mean");
    if (strcmp(reduction, "mean") != 0 && strcmp(reduction, "sum") != 0)
        return "the reduction is neither mean nor sum";
    if (!ebb_call_has(c, W) || !ebb_call_has(c, TARGET) || !ebb_indices_are(&c->in[TARGET]))
        return "labels are neither int32 nor int64";
    if (c->in[X].type.rank < 2 || c->in[W].type.rank != 2)
        return "the operands are no matrices";
    const ebb_linear_sizes s = ebb_linear_loss_read(c);
    if (c->in[X].type.dims[c->in[X].type.rank - 1] != s.inner)
        return "the shapes of the operands disagree";
    if (ebb_elements(&c->in[TARGET].type) != s.rows)
        return "labels are not one a row";
    if (ebb_call_has(c, BIAS) && !is_vector(&c->in[BIAS].type, s.classes))
        return "the bias is not one a class";
    if (ebb_call_has(c, WEIGHTS) && !is_vector(&c->in[WEIGHTS].type, s.classes))
        return "weights are not one a class";
    if ((ebb_call_wants(c, LOSS) && ebb_elements(&c->out[LOSS].type) != 1) ||
        (ebb_call_wants(c, DX) && !ebb_type_same_shape(&c->out[DX].type, &c->in[X].type)) ||
        (ebb_call_wants(c, DW) && !ebb_type_same_shape(&c->out[DW].type, &c->in[W].type)) ||
        (ebb_call_wants(c, DBIAS) && !is_vector(&c->out[DBIAS].type, s.classes)))
        return "an output has the wrong shape";
    return NULL;
}
