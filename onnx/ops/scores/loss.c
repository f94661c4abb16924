/* loss: softmax, and the losses over class scores [N, C, d...] and labels [N, d...]. */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* ---- inference ---- */

/* The labels' type fits the scores'; weights are one a class. */
static ebb_status check_classes(const ebb_infer *c, uint32_t scores, uint32_t labels,
                                uint32_t weights)
{
    const ebb_type *x = c->in[scores], *t = c->in[labels];
    if (t->dtype != EBB_NONE && t->dtype != EBB_I64 && t->dtype != EBB_I32)
        return ebb_infer_error(c, "labels are %s, not int64 or int32",
                               ebb_dtype_name((ebb_dtype)t->dtype));
    if (x->rank < 0)
        return NULL;
    if (x->rank < 2)
        return ebb_infer_error(c, "scores have rank %d, at least [N, C] is expected", (int)x->rank);
    if (t->rank >= 0 && t->rank != x->rank - 1)
        return ebb_infer_error(c, "scores have rank %d, so labels need rank %d and have %d",
                               (int)x->rank, (int)x->rank - 1, (int)t->rank);
    for (int i = 0; i < t->rank; i++) {
        int at = i == 0 ? 0 : i + 1;
        if (t->dims[i] >= 0 && x->dims[at] >= 0 && t->dims[i] != x->dims[at])
            return ebb_infer_error(c, "dim %d of the labels is %lld, that of the scores %lld", i,
                                   (long long)t->dims[i], (long long)x->dims[at]);
    }
    const ebb_type *w = ebb_infer_type(c, weights);
    if (w != NULL && w->rank >= 0 &&
        (w->rank != 1 || (w->dims[0] >= 0 && x->dims[1] >= 0 && w->dims[0] != x->dims[1])))
        return ebb_infer_error(c, "weights are not one for each of the %lld classes",
                               (long long)x->dims[1]);
    return NULL;
}

static ebb_status loss_type(const ebb_infer *c, ebb_type *out)
{
    const char *reduction = ebb_attr_string(&c->attrs, "reduction", "mean");
    bool none = strcmp(reduction, "none") == 0;
    if (!none && strcmp(reduction, "mean") != 0 && strcmp(reduction, "sum") != 0)
        return ebb_infer_error(c, "reduction '%s' is not none, mean or sum", reduction);
    *out = none ? *c->in[1] : ebb_type_tensor(EBB_NONE, 0, NULL);
    out->dtype = c->in[0]->dtype;
    return NULL;
}

/* (scores, labels, weights?) -> loss, log_prob?. */
ebb_status ebb_infer_cross_entropy(ebb_infer *c)
{
    EBB_TRY(ebb_infer_nll_loss(c));
    if (c->output_count > 1)
        c->out[1] = *c->in[0];
    return NULL;
}

/* (dY, log_prob, label, weight?) -> dscores. */
ebb_status ebb_infer_cross_entropy_grad(ebb_infer *c)
{
    EBB_TRY(check_classes(c, 1, 2, 3));
    c->out[0] = *c->in[1];
    return NULL;
}

/* (dY, scores, label, weight?) -> loss, dscores. */
ebb_status ebb_infer_scores_cross_entropy(ebb_infer *c)
{
    EBB_TRY(check_classes(c, 1, 2, 3));
    c->out[0] = *c->in[0];
    if (c->output_count > 1)
        c->out[1] = *c->in[1];
    return NULL;
}

/* (log_prob, labels, weights?) -> loss. */
ebb_status ebb_infer_nll_loss(ebb_infer *c)
{
    EBB_TRY(check_classes(c, 0, 1, 2));
    return loss_type(c, &c->out[0]);
}

/* Bias or weights of a linear layer's loss. */
static ebb_status check_sums(const ebb_infer *c, uint32_t i, uint8_t dtype)
{
    const ebb_type *t = ebb_infer_type(c, i);
    if (t == NULL || t->dtype == EBB_NONE || dtype == EBB_NONE || t->dtype == dtype)
        return NULL;
    return ebb_infer_error(c, "input %u is %s, %s is expected", (unsigned)i,
                           ebb_dtype_name((ebb_dtype)t->dtype), ebb_dtype_name((ebb_dtype)dtype));
}

/* (x [..., K], w [K, C] or with transB [C, K], bias? [C], target, weights? [C]) -> loss, dx?, dw?,
 * dbias?. Beside 16 bits bias, weights and what is a sum over rows are float32. to: the
 * dtype of those. */
ebb_status ebb_infer_linear_cross_entropy(ebb_infer *c)
{
    const ebb_type *x = c->in[0], *w = c->in[1], *target = ebb_infer_type(c, 3);
    bool turned = ebb_attr_int(&c->attrs, "transB", 0) != 0;
    if (target == NULL)
        return ebb_infer_error(c, "it has no target");
    if (target->dtype != EBB_NONE && target->dtype != EBB_I64 && target->dtype != EBB_I32)
        return ebb_infer_error(c, "labels are %s, not int64 or int32",
                               ebb_dtype_name((ebb_dtype)target->dtype));
    if (strcmp(ebb_attr_string(&c->attrs, "reduction", "mean"), "none") == 0)
        return ebb_infer_error(c, "reduction 'none' is not mean or sum");
    if ((x->rank >= 0 && x->rank < 2) || (w->rank >= 0 && w->rank != 2))
        return ebb_infer_error(c,
                               "inputs have ranks %d and %d, rows [..., K] and a matrix are "
                               "expected",
                               (int)x->rank, (int)w->rank);
    EBB_TRY(ebb_infer_same_dtype(c, 0, 1));
    const uint8_t sums = ebb_is_narrow(x) ? EBB_F32 : x->dtype;
    EBB_TRY(check_sums(c, 2, sums));
    EBB_TRY(check_sums(c, 4, sums));
    if (ebb_attr_int(&c->attrs, "to", sums) != sums)
        return ebb_infer_error(c, "to is not %s, as which sums over %s rows are kept",
                               ebb_dtype_name((ebb_dtype)sums),
                               ebb_dtype_name((ebb_dtype)x->dtype));
    int64_t classes = w->rank == 2 ? w->dims[turned ? 0 : 1] : -1, rows, labels;
    int64_t inner = w->rank == 2 ? w->dims[turned ? 1 : 0] : -1;
    EBB_TRY(ebb_infer_vector(c, 2, classes, "classes"));
    EBB_TRY(ebb_infer_vector(c, 4, classes, "classes"));
    if (x->rank >= 2 && inner >= 0 && x->dims[x->rank - 1] >= 0 && x->dims[x->rank - 1] != inner)
        return ebb_infer_error(c, "input 0 has %lld columns, input 1 has %lld rows",
                               (long long)x->dims[x->rank - 1], (long long)inner);
    if (ebb_type_elements(x, &rows) && inner > 0 && ebb_type_elements(target, &labels) &&
        labels != rows / inner)
        return ebb_infer_error(c, "there are %lld labels for %lld rows", (long long)labels,
                               (long long)(rows / inner));
    EBB_TRY(loss_type(c, &c->out[0]));
    c->out[0].dtype = sums;
    for (uint32_t k = 1; k < c->output_count && k < 3; k++)
        c->out[k] = *c->in[k - 1];
    if (c->output_count > 2)
        c->out[2].dtype = sums;
    if (c->output_count > 3) {
        c->out[3] = ebb_type_tensor((ebb_dtype)sums, 1, &classes);
        if (w->rank == 2)
            ebb_type_put_dim(&c->out[3], 0, w, turned ? 0 : 1);
    }
    return NULL;
}

/* A product of 2 K operations for each score, and one more for dx and for dw; softmax and its
 * gradient as a norm. */
double ebb_cost_linear_loss(const ebb_infer *c)
{
    const ebb_type *x = ebb_infer_type(c, 0), *w = ebb_infer_type(c, 1);
    if (x == NULL || w == NULL || x->rank < 2 || w->rank != 2 || x->dims[x->rank - 1] < 1)
        return 0.0;
    double rows = ebb_type_count(x) / (double)x->dims[x->rank - 1];
    double classes = ebb_type_count(w) / (double)x->dims[x->rank - 1];
    int products = 1;
    for (uint32_t k = 1; k < c->output_count && k < 3; k++)
        products += c->out_wanted[k];
    return (double)products * 2.0 * rows * ebb_type_count(w) + 8.0 * rows * classes;
}

/* ---- gradients ---- */

ebb_value ebb_guarded_softmax(const ebb_graph *g, ebb_value y)
{
    const ebb_value_info *info = ebb_value_of(g, y);
    double zero;
    for (size_t i = 0; i < info->use_count && ebb_producer_op(g, y) == EBB_OP_SOFTMAX; i++) {
        const ebb_node n = info->uses[i].node;
        const ebb_value question = ebb_in(g, n, 0);
        if (ebb_node_of(g, n)->op == EBB_OP_WHERE && info->uses[i].slot == 2 &&
            ebb_producer_op(g, question) == EBB_OP_IS_NAN &&
            ebb_same_value(ebb_in(g, ebb_value_of(g, question)->producer, 0), y) &&
            ebb_constant_scalar(g, ebb_in(g, n, 1), &zero) && zero == 0 &&
            ebb_type_same_shape(ebb_value_of(g, ebb_out(g, n, 0))->type, info->type))
            return ebb_out(g, n, 0);
    }
    return EBB_NO_VALUE;
}

/* y = e^x / sum e^x.  dx = y (dy - sum dy y), and 0 in a row that a guard made zeros of. */
void ebb_grad_softmax(ebb_build *b, ebb_grad *c)
{
    const ebb_value guarded = ebb_guarded_softmax(b->g, c->y[0]);
    ebb_with_int(b, "axis", ebb_attr_int(&c->attrs, "axis", -1));
    c->dx[0] = ebb_emit(b, EBB_OP_SOFTMAX_GRAD, c->dy[0], guarded.i != 0 ? guarded : c->y[0]);
}

/* y = x - ln sum e^x.  dx = dy - e^y sum dy. */
void ebb_grad_log_softmax(ebb_build *b, ebb_grad *c)
{
    ebb_with_int(b, "axis", ebb_attr_int(&c->attrs, "axis", -1));
    c->dx[0] = ebb_emit(b, EBB_OP_LOG_SOFTMAX_GRAD, c->dy[0], c->y[0]);
}

/* The same of a matrix: all axes before `axis` are its rows. */
void ebb_grad_softmax_flat(ebb_build *b, ebb_grad *c)
{
    const ebb_type *y = ebb_build_type(b, c->y[0]);
    int64_t axis = ebb_attr_int(&c->attrs, "axis", 1), dims[2] = {1, 1};
    ebb_op op = ebb_node_of(b->g, c->node)->op;
    for (int i = 0; i < y->rank; i++)
        dims[i >= (axis < 0 ? axis + y->rank : axis)] *= y->dims[i];
    ebb_value dy_2 = ebb_emit_reshape(b, c->dy[0], dims, 2);
    ebb_value y_2 = ebb_emit_reshape(b, c->y[0], dims, 2);
    ebb_with_int(b, "axis", 1);
    ebb_value dx = ebb_emit(
        b, op == EBB_OP_SOFTMAX_FLAT ? EBB_OP_SOFTMAX_GRAD : EBB_OP_LOG_SOFTMAX_GRAD, dy_2, y_2);
    c->dx[0] = ebb_emit_reshape_like(b, dx, c->x[0]);
}

/* p = log softmax x, y = -sum w_t p_t (/ sum w_t).  dx = (e^p - [class is t]) w_t dy (/ sum w_t),
 * 0 where t is the ignored class; what arrives at p itself is added. Needs p, not x. */
void ebb_grad_cross_entropy(ebb_build *b, ebb_grad *c)
{
    ebb_value log_prob = ebb_grad_need_output(b, c, 1, "log_prob");
    ebb_value dx = EBB_NO_VALUE;
    if (c->dy[0].i != 0) {
        ebb_with_string(b, "reduction", ebb_attr_string(&c->attrs, "reduction", "mean"));
        if (ebb_attr_find(&c->attrs, "ignore_index") != NULL)
            ebb_with_int(b, "ignore_index", ebb_attr_int(&c->attrs, "ignore_index", 0));
        dx = ebb_emit(b, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, c->dy[0], log_prob, c->x[1],
                      c->input_count > 2 ? c->x[2] : EBB_NO_VALUE);
    }
    if (c->output_count > 1 && c->dy[1].i != 0) {
        ebb_with_int(b, "axis", 1);
        ebb_value more = ebb_emit(b, EBB_OP_LOG_SOFTMAX_GRAD, c->dy[1], log_prob);
        dx = dx.i != 0 ? ebb_emit(b, EBB_OP_ADD, dx, more) : more;
    }
    c->dx[0] = dx;
}

/* y = -sum w_t p_t (/ sum w_t).  dp_t = -w_t dy (/ sum w_t) at the label's place, 0 elsewhere and
 * where the label is the ignored class. */
void ebb_grad_nll_loss(ebb_build *b, ebb_grad *c)
{
    ebb_value label = c->x[1], p = c->x[0];
    ebb_type labels = *ebb_build_type(b, label);
    if (!ebb_type_is_static(&labels)) {
        ebb_grad_fail(b, c, "the shape of its labels is not known");
        return;
    }
    ebb_value counts = EBB_NO_VALUE, zero = ebb_const_like(b, p, 0.0);
    if (ebb_attr_find(&c->attrs, "ignore_index") != NULL) {
        double ignored = (double)ebb_attr_int(&c->attrs, "ignore_index", 0);
        ebb_value out = ebb_emit(b, EBB_OP_EQUAL, label, ebb_const_like(b, label, ignored));
        label = ebb_emit(b, EBB_OP_WHERE, out, ebb_const_like(b, label, 0.0), label);
        counts = ebb_emit(b, EBB_OP_NOT, out);
    }
    // w: the weight of each label, of the labels' shape
    ebb_value w;
    if (ebb_grad_has(c, 2)) {
        ebb_with_int(b, "axis", 0);
        w = ebb_emit(b, EBB_OP_GATHER, c->x[2], label);
    } else {
        ebb_value shape = ebb_const_shape(b, label);
        w = ebb_emit(b, EBB_OP_EXPAND, ebb_const_like(b, p, 1.0), shape);
    }
    if (counts.i != 0)
        w = ebb_emit(b, EBB_OP_WHERE, counts, w, zero);
    ebb_value dy = c->dy[0];
    if (strcmp(ebb_attr_string(&c->attrs, "reduction", "mean"), "mean") == 0) {
        int64_t axes[EBB_MAX_RANK];
        for (int i = 0; i < labels.rank; i++)
            axes[i] = i;
        ebb_value sum =
            ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, w, axes, (uint32_t)labels.rank, false);
        dy = ebb_emit(b, EBB_OP_DIV, dy, sum);
    }
    ebb_value at = ebb_emit(b, EBB_OP_NEG, ebb_emit(b, EBB_OP_MUL, w, dy));
    int64_t dims[EBB_MAX_RANK]; // [N, d...] as [N, 1, d...]
    if (labels.rank >= EBB_MAX_RANK) {
        ebb_grad_fail(b, c, "its rank is above the limit");
        return;
    }
    for (int i = 0; i <= labels.rank; i++)
        dims[i] = i == 1 ? 1 : labels.dims[i == 0 ? 0 : i - 1];
    at = ebb_emit_reshape(b, at, dims, labels.rank + 1);
    label = ebb_emit_reshape(b, label, dims, labels.rank + 1);
    ebb_value none = ebb_emit_zeros_like(b, p);
    ebb_with_int(b, "axis", 1);
    c->dx[0] = ebb_emit(b, EBB_OP_SCATTER_ELEMENTS, none, label, at);
}
