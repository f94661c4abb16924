/* cross_entropy.c: the losses over class scores [N, C, d...] and labels [N, d...], and the gradient
 * of the first.
 */
#include "kernels/call/misfit.h"
#include "kernels/plain/indices.h"
#include "kernels/plain/vmath.h"

#include <math.h>
#include <string.h>

#define LOOPS "kernels/plain/scores/cross_entropy_loops.inc"
#include "kernels/plain/both_floats.inc"

static ebb_status read_labels(const ebb_call *c, int64_t classes, ebb_labels *l)
{
    return ebb_labels_read(c, &c->in[ebb_cross_entropy_first(c) + 1], classes, l);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_span s = ebb_span_of(&c->in[0].type, 1);
    *bytes = (size_t)job_count(s) * 2 * sizeof(double);
    return NULL;
}

/* (scores, labels, weights?) {reduction, ignore_index?} -> loss, log_prob?. log_prob may be scores.
 * (log_prob, labels, weights?) -> loss, for NegativeLogLikelihoodLoss. */
static ebb_status run_loss(const ebb_call *c)
{
    ebb_labels l;
    ebb_span s = ebb_span_of(&c->in[0].type, 1);
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
    ebb_span s = ebb_span_of(&c->in[1].type, 1);
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

// clang-format off
const ebb_kernel ebb_plain_cross_entropy[] = {
    {.name = "plain.softmax_cross_entropy_loss",      .op = EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS,      .dtypes = ebb_plain_floats, .fits = ebb_cross_entropy_misfit, .workspace = workspace, .run = run_loss},
    {.name = "plain.softmax_cross_entropy_loss_grad", .op = EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, .dtypes = ebb_plain_floats, .fits = ebb_cross_entropy_misfit, .run = run_grad},
    {.name = "plain.negative_log_likelihood_loss",    .op = EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS,    .dtypes = ebb_plain_floats, .fits = ebb_cross_entropy_misfit, .workspace = workspace, .run = run_loss},
};
// clang-format on
EBB_PLAIN_COUNT(cross_entropy)
