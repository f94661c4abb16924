/* select: operators whose output has as many rows as the values of their inputs say.
 *
 * A plan needs every size before anything runs, and the sizes here come out of the run. So they
 * are known only where the inputs are constant, or where the file declares them; then the kernels
 * run, and refuse by name a count that is not the planned one. Anything else stays unknown, and
 * what depends on it is refused when a plan is asked for. An upper bound in place of the size was
 * not taken: readers would see rows that are not there.
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* (X, condition) {axis?}: the slices of X, or without an axis its elements, that are chosen. */
ebb_status ebb_infer_compress(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    const int64_t *chosen;
    int64_t count, rows = -1;
    if (ebb_infer_constant_ints(c, 1, &chosen, &count)) {
        rows = 0;
        for (int64_t i = 0; i < count; i++)
            rows += chosen[i] != 0;
    }
    if (ebb_attr_find(&c->attrs, "axis") == NULL) {
        c->out[0] = ebb_type_ranked((ebb_dtype)x->dtype, 1);
        ebb_type_set_dim(&c->out[0], 0, rows);
        return NULL;
    }
    c->out[0] = *x;
    if (x->rank < 0)
        return NULL;
    int axis;
    EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->rank, &axis));
    ebb_type_set_dim(&c->out[0], axis, rows);
    return NULL;
}

/* (X) {axis?, sorted} -> Y, first places?, place in Y of each?, counts?. */
ebb_status ebb_infer_unique(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    int64_t n;
    ebb_type list = ebb_type_ranked(EBB_I64, 1), all = list;
    if (ebb_attr_find(&c->attrs, "axis") == NULL) {
        c->out[0] = ebb_type_ranked((ebb_dtype)x->dtype, 1);
        if (ebb_type_elements(x, &n))
            ebb_type_set_dim(&all, 0, n);
    } else {
        c->out[0] = *x;
        if (x->rank >= 0) {
            int axis;
            EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->rank, &axis));
            ebb_type_put_dim(&all, 0, x, axis);
            ebb_type_set_dim(&c->out[0], axis, -1);
        }
    }
    for (uint32_t k = 1; k < c->output_count && k < 4; k++)
        c->out[k] = k == 2 ? all : list;
    return NULL;
}

/* (boxes [N, B, 4], scores [N, C, B], ...) -> int64[chosen, 3]. */
/* Each box of each class against those that were chosen before it. */
double ebb_cost_non_max(const ebb_infer *c)
{
    const ebb_type *scores = ebb_infer_type(c, 1);
    const int64_t *most;
    int64_t count;
    if (scores == NULL || scores->rank != 3 || scores->dims[2] < 0)
        return 0;
    double chosen = (double)scores->dims[2];
    if (c->input_count > 2 && ebb_infer_constant_ints(c, 2, &most, &count) && count == 1 &&
        (double)most[0] < chosen)
        chosen = most[0] > 0 ? (double)most[0] : 0;
    return 10 * ebb_type_count(scores) * (chosen + 1);
}

ebb_status ebb_infer_non_max_suppression(ebb_infer *c)
{
    for (uint32_t i = 0; i < 2; i++)
        if (c->in[i]->rank >= 0 && c->in[i]->rank != 3)
            return ebb_infer_error(c, "input %u has rank %d, not 3", i, (int)c->in[i]->rank);
    c->out[0] = ebb_type_ranked(EBB_I64, 2);
    ebb_type_set_dim(&c->out[0], 1, 3);
    return NULL;
}
