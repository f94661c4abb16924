/* cross_entropy.c: the losses over class scores [N, C, d...] and labels [N, d...], and the gradient
 * of the first.
 */
#include "kernels/plain/indices.h"
#include "kernels/plain/vmath.h"

#include <math.h>
#include <string.h>

#define LOOPS "kernels/plain/cross_entropy_loops.inc"
#include "kernels/plain/both_floats.inc"

/* Which inputs are what: the gradient has dY before the others. */
static uint32_t first_of(const ebb_call *c)
{
    return c->op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD ? 1 : 0;
}

static ebb_status read_labels(const ebb_call *c, int64_t classes, ebb_labels *l)
{
    return ebb_labels_read(c, &c->in[first_of(c) + 1], classes, l);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_span s = ebb_plain_span(&c->in[0].type, 1);
    *bytes = (size_t)job_count(s) * 2 * sizeof(double);
    return NULL;
}

/* (scores, labels, weights?) {reduction, ignore_index?} -> loss, log_prob?. log_prob may be scores.
 * (log_prob, labels, weights?) -> loss, for NegativeLogLikelihoodLoss. */
static ebb_status run_loss(const ebb_call *c)
{
    ebb_labels l;
    ebb_span s = ebb_plain_span(&c->in[0].type, 1);
    EBB_TRY(read_labels(c, s.n, &l));
    const char *reduction = ebb_attr_string(&c->attrs, "reduction", "mean");
    bool none = strcmp(reduction, "none") == 0, mean = strcmp(reduction, "mean") == 0;
    const void *x = c->in[0].data, *weight = ebb_call_has(c, 2) ? c->in[2].data : NULL;
    void *loss = ebb_call_wants(c, 0) ? c->out[0].data : NULL, *each = none ? loss : NULL;
    void *log_prob = ebb_call_wants(c, 1) ? c->out[1].data : NULL;
    bool wide = c->in[0].type.dtype == EBB_F64, nll = c->op == EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS;
    double *parts = c->workspace;
    if (nll)
        wide ? nll_f64(each, parts, x, s, &l, weight) : nll_f32(each, parts, x, s, &l, weight);
    else
        wide ? cross_entropy_f64(each, log_prob, parts, x, s, &l, weight)
             : cross_entropy_f32(each, log_prob, parts, x, s, &l, weight);
    if (loss != NULL && !none)
        wide ? finish_f64(loss, parts, job_count(s), mean)
             : finish_f32(loss, parts, job_count(s), mean);
    return NULL;
}

/* (dY, log_prob, labels, weights?) {reduction, ignore_index?} -> dX. dX may be log_prob. */
static ebb_status run_grad(const ebb_call *c)
{
    ebb_labels l;
    ebb_span s = ebb_plain_span(&c->in[1].type, 1);
    EBB_TRY(read_labels(c, s.n, &l));
    const char *reduction = ebb_attr_string(&c->attrs, "reduction", "mean");
    bool none = strcmp(reduction, "none") == 0, mean = strcmp(reduction, "mean") == 0;
    const void *weight = ebb_call_has(c, 3) ? c->in[3].data : NULL;
    const void *dy = c->in[0].data, *p = c->in[1].data;
    if (c->in[1].type.dtype == EBB_F64)
        cross_entropy_grad_f64(c->out[0].data, dy, p, s, &l, weight, none, mean);
    else
        cross_entropy_grad_f32(c->out[0].data, dy, p, s, &l, weight, none, mean);
    return NULL;
}

static const char *declines(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    if (why != NULL)
        return why;
    uint32_t first = first_of(c);
    const ebb_type *x = &c->in[first].type, *t = &c->in[first + 1].type;
    const char *reduction = ebb_attr_string(&c->attrs, "reduction", "mean");
    bool none = strcmp(reduction, "none") == 0;
    if (!none && strcmp(reduction, "mean") != 0 && strcmp(reduction, "sum") != 0)
        return "the reduction is none of none, mean and sum";
    if (!ebb_indices_are(&c->in[first + 1]))
        return "labels are neither int32 nor int64";
    if (x->rank < 2 || t->rank != x->rank - 1)
        return "labels do not fit the scores";
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] != x->dims[d == 0 ? 0 : d + 1])
            return "labels do not fit the scores";
    if (ebb_call_has(c, first + 2) && (c->in[first + 2].type.dtype != x->dtype ||
                                       ebb_elements(&c->in[first + 2].type) != x->dims[1]))
        return "weights are not one a class";
    int64_t losses = none ? ebb_elements(t) : 1;
    const ebb_operand *loss = first == 1 ? &c->in[0] : &c->out[0];
    if (loss->type.dtype != EBB_NONE && ebb_elements(&loss->type) != losses)
        return "the loss has the wrong size";
    return NULL;
}

const ebb_kernel ebb_plain_cross_entropy[] = {
    {.name = "plain.softmax_cross_entropy_loss",
     .op = EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS,
     .declines = declines,
     .workspace = workspace,
     .run = run_loss},
    {.name = "plain.softmax_cross_entropy_loss_grad",
     .op = EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD,
     .declines = declines,
     .run = run_grad},
    {.name = "plain.negative_log_likelihood_loss",
     .op = EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS,
     .declines = declines,
     .workspace = workspace,
     .run = run_loss},
};
EBB_PLAIN_COUNT(cross_entropy)
