/* cross_entropy.c: the losses over class scores [N, C, d...] and labels [N, d...], the gradient
 * of the first, and both at once.
 */
#include "kernels/call/misfit.h"
#include "kernels/plain/halves.h"
#include "kernels/plain/indices.h"
#include "kernels/plain/vmath.h"

#include <math.h>
#include <string.h>

typedef struct entropy {
    ebb_span s;
    ebb_dtype dtype; /* of x and y */
    enum { SCORES, LOG_PROBABILITIES } of;
    const void *x, *weight, *dy;
    ebb_labels labels;
    bool each, mean; /* each: a dy for each sample */
    void *loss;      /* one a sample; NULL: not wanted */
    void *y;         /* log-probabilities; of a dy the gradient; NULL: not wanted */
    double *parts;   /* by job the sums of losses and weights; NULL: not wanted */
    double weights;  /* what the gradient is divided by */
} entropy;

#define LOOPS "kernels/plain/scores/cross_entropy_loops.inc"
#include "kernels/plain/both_floats.inc"

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_span s = ebb_span_of(&c->in[ebb_cross_entropy_first(c)].type, 1);
    *bytes = (size_t)job_count(s) * 2 * sizeof(double);
    return NULL;
}

/* (scores, labels, weights?) {reduction, ignore_index?} -> loss, log_prob?. log_prob may be scores.
 * (log_prob, labels, weights?) -> loss, for NegativeLogLikelihoodLoss.
 * (dY, log_prob, labels, weights?) -> dX, for the gradient. dX may be log_prob.
 * (dY, scores, labels, weights?) -> loss, dX, for both. dX may be scores. */
static ebb_status run(const ebb_call *c)
{
    const uint32_t first = ebb_cross_entropy_first(c);
    const ebb_operand *x = &c->in[first];
    const char *reduction = ebb_attr_string(&c->attrs, "reduction", "mean");
    const bool grad = c->op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD;
    const bool none = strcmp(reduction, "none") == 0;
    void *loss = !grad && ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    entropy e = {.s = ebb_span_of(&x->type, 1),
                 .dtype = (ebb_dtype)x->type.dtype,
                 .of = grad || c->op == EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS ? LOG_PROBABILITIES
                                                                            : SCORES,
                 .x = x->data,
                 .weight = ebb_call_has(c, first + 2) ? c->in[first + 2].data : NULL,
                 .dy = first == 1 ? c->in[0].data : NULL,
                 .each = none,
                 .mean = strcmp(reduction, "mean") == 0,
                 .loss = none ? loss : NULL,
                 .y = ebb_call_wants(c, !grad) ? c->out[!grad].data : NULL,
                 .parts = grad ? NULL : c->workspace};
    EBB_TRY(ebb_labels_read(c, &c->in[first + 1], e.s.n, &e.labels));
    EBB_BY_FLOAT(*x, cross_entropy, &e);
    if (loss != NULL && !none)
        EBB_BY_FLOAT(*x, finish, loss, &e);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_cross_entropy[] = {
    {.name = "plain.softmax_cross_entropy_loss",      .op = EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS,      .dtypes = ebb_plain_floats, .fits = ebb_cross_entropy_misfit, .workspace = workspace, .run = run},
    {.name = "plain.softmax_cross_entropy_loss_grad", .op = EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, .dtypes = ebb_plain_floats, .fits = ebb_cross_entropy_misfit, .run = run},
    {.name = "plain.negative_log_likelihood_loss",    .op = EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS,    .dtypes = ebb_plain_floats, .fits = ebb_cross_entropy_misfit, .workspace = workspace, .run = run},
    {.name = "plain.scores_cross_entropy",            .op = EBB_OP_SCORES_CROSS_ENTROPY,            .dtypes = ebb_scores_dtypes, .fits = ebb_cross_entropy_misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(cross_entropy)
