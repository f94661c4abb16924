/* optim: the optimizers' steps: new weights and states like the old ones. */
#include "onnx/ops/common.h"
#include "onnx/ops/ops.h"
#include "onnx/ops/shape.h"

/* Input i is a scalar: rank 0, or one element. */
static ebb_status check_scalar(const ebb_infer *c, uint32_t i, const char *what)
{
    const ebb_type *t = ebb_infer_type(c, i);
    if (t != NULL && t->rank >= 0 && (t->rank > 1 || (t->rank == 1 && t->dims[0] > 1)))
        return ebb_infer_error(c, "the %s is not a scalar", what);
    return NULL;
}

/* Output k takes the type of the state in input i, which a gradient of the same shape changes. */
static ebb_status replaces(ebb_infer *c, uint32_t k, uint32_t i, uint32_t gradient)
{
    EBB_TRY(ebb_infer_same_dims(c, i, gradient));
    EBB_TRY(ebb_infer_same_dtype(c, i, gradient));
    if (k < c->output_count)
        c->out[k] = *c->in[i];
    return NULL;
}

/* (lr, W, G) -> W'. */
ebb_status ebb_infer_sgd(ebb_infer *c)
{
    EBB_TRY(ebb_infer_need(c, 3));
    EBB_TRY(check_scalar(c, 0, "learning rate"));
    return replaces(c, 0, 1, 2);
}

/* (R, T, X..., G..., V...) -> X'..., V'..., in as many groups as there are. */
ebb_status ebb_infer_optim_momentum(ebb_infer *c)
{
    uint32_t groups = c->input_count < 5 ? 0 : (c->input_count - 2) / 3;
    if (groups == 0 || c->input_count != 2 + 3 * groups)
        return ebb_infer_error(c, "%u inputs are not R, T and groups of X, G, V",
                               (unsigned)c->input_count);
    EBB_TRY(ebb_infer_need(c, c->input_count));
    EBB_TRY(check_scalar(c, 0, "learning rate"));
    EBB_TRY(check_scalar(c, 1, "step count"));
    for (uint32_t i = 0; i < groups; i++) {
        uint32_t x = 2 + i, g = x + groups, v = g + groups;
        EBB_TRY(replaces(c, i, x, g));
        EBB_TRY(replaces(c, i + groups, v, g));
    }
    return NULL;
}

/* (lr, T, W, G, M, V) -> W', M', V'. */
ebb_status ebb_infer_adamw(ebb_infer *c)
{
    EBB_TRY(ebb_infer_need(c, 6));
    EBB_TRY(check_scalar(c, 0, "learning rate"));
    EBB_TRY(check_scalar(c, 1, "step count"));
    EBB_TRY(replaces(c, 0, 2, 3));
    EBB_TRY(replaces(c, 1, 4, 3));
    return replaces(c, 2, 5, 3);
}
