/* recurrent: LSTM, and what its training keeps.
 *
 *   X: [seq, batch, in]   W: [dirs, 4*hidden, in]   R: [dirs, 4*hidden, hidden]
 *   Y: [seq, dirs, batch, hidden]   Y_h, Y_c: [dirs, batch, hidden]
 *   com.microsoft LSTMTraining adds CAll: [seq, dirs, batch, hidden] and iofc: [seq, dirs, batch,
 * 4*hidden]
 *
 * layout = 1 puts batch first: X [batch, seq, in], Y [batch, seq, dirs, hidden], Y_h [batch, dirs,
 * hidden].
 */
#include "onnx/ops/ops.h"
#include "onnx/ops/shape.h"

static int64_t directions(const ebb_attrs *attrs)
{
    return strcmp(ebb_attr_string(attrs, "direction", "forward"), "bidirectional") == 0 ? 2 : 1;
}

ebb_status ebb_infer_lstm(ebb_infer *c)
{
    EBB_TRY(ebb_infer_need(c, 3));
    const ebb_type *x = c->in[0], *w = c->in[1], *r = c->in[2];
    ebb_dtype dtype = (ebb_dtype)x->dtype;
    bool batch_first = ebb_attr_int(&c->attrs, "layout", 0) != 0;
    int64_t dirs = directions(&c->attrs);
    if ((x->rank >= 0 && x->rank != 3) || (w->rank >= 0 && w->rank != 3) ||
        (r->rank >= 0 && r->rank != 3))
        return ebb_infer_error(c, "X, W and R must have rank 3; they have %d, %d and %d",
                               (int)x->rank, (int)w->rank, (int)r->rank);
    int64_t hidden = ebb_attr_int(&c->attrs, "hidden_size", r->rank == 3 ? r->dims[2] : -1);
    if (hidden > INT32_MAX || hidden < -1)
        return ebb_infer_error(c, "hidden_size is %lld", (long long)hidden);
    if (r->rank == 3 && r->dims[2] >= 0 && (r->dims[2] != hidden))
        return ebb_infer_error(c, "hidden_size is %lld, R has %lld", (long long)hidden,
                               (long long)r->dims[2]);
    if (w->rank == 3 && hidden >= 0 && w->dims[1] >= 0 && w->dims[1] != 4 * hidden)
        return ebb_infer_error(c, "W has %lld rows, 4 * hidden_size is %lld", (long long)w->dims[1],
                               (long long)(4 * hidden));
    if ((w->rank == 3 && w->dims[0] >= 0 && w->dims[0] != dirs) ||
        (r->rank == 3 && r->dims[0] >= 0 && r->dims[0] != dirs))
        return ebb_infer_error(c, "W or R is not for %lld directions", (long long)dirs);
    if (w->rank == 3 && x->rank == 3 && w->dims[2] >= 0 && x->dims[2] >= 0 &&
        w->dims[2] != x->dims[2])
        return ebb_infer_error(c, "W expects %lld input features, X has %lld",
                               (long long)w->dims[2], (long long)x->dims[2]);

    ebb_type all = ebb_type_ranked(dtype, 4), last = ebb_type_ranked(dtype, 3);
    if (x->rank == 3) {
        ebb_type_put_dim(&all, 0, x, 0);
        ebb_type_put_dim(&all, batch_first ? 1 : 2, x, 1);
        ebb_type_put_dim(&last, batch_first ? 0 : 1, x, batch_first ? 0 : 1);
    }
    ebb_type_set_dim(&all, batch_first ? 2 : 1, dirs);
    ebb_type_set_dim(&all, 3, hidden);
    ebb_type_set_dim(&last, batch_first ? 1 : 0, dirs);
    ebb_type_set_dim(&last, 2, hidden);
    for (uint32_t i = 0; i < c->output_count && i < 5; i++)
        c->out[i] = i == 1 || i == 2 ? last : all;
    if (c->output_count > 4)
        ebb_type_set_dim(&c->out[4], 3, hidden < 0 ? -1 : 4 * hidden);
    return NULL;
}

/* LSTMGrad(X, W, R, SL?, H0?, C0?, HAll?, CAll?, iofc?, dHAll?, dHFinal?, dCFinal?)
 *   -> dX?, dW?, dR?, dB?, dH0?, dC0?, dP? */
ebb_status ebb_infer_lstm_grad(ebb_infer *c)
{
    EBB_TRY(ebb_infer_need(c, 3));
    const ebb_type *x = c->in[0], *r = c->in[2];
    ebb_dtype dtype = (ebb_dtype)x->dtype;
    int64_t dirs = directions(&c->attrs);
    int64_t hidden = ebb_attr_int(&c->attrs, "hidden_size", r->rank == 3 ? r->dims[2] : -1);
    if (hidden > INT32_MAX || hidden < -1)
        return ebb_infer_error(c, "hidden_size is %lld", (long long)hidden);
    ebb_type state = ebb_type_ranked(dtype, 3), flat = ebb_type_ranked(dtype, 2);
    ebb_type_set_dim(&state, 0, dirs);
    if (x->rank == 3)
        ebb_type_put_dim(&state, 1, x, 1);
    ebb_type_set_dim(&state, 2, hidden);
    ebb_type_set_dim(&flat, 0, dirs);
    for (uint32_t i = 0; i < c->output_count && i < 7; i++) {
        if (i < 3) {
            c->out[i] = *c->in[i];
        } else if (i == 4 || i == 5) {
            c->out[i] = state;
        } else {
            c->out[i] = flat;
            ebb_type_set_dim(&c->out[i], 1, hidden < 0 ? -1 : hidden * (i == 3 ? 8 : 3));
        }
    }
    return NULL;
}

/* Two matrix products a step; the backward does each of them twice. */
double ebb_cost_lstm(const ebb_infer *c)
{
    if (c->input_count < 3 || c->in[0] == NULL || c->in[1] == NULL || c->in[2] == NULL)
        return 0;
    const ebb_type *x = c->in[0];
    int64_t w, r;
    if (x->rank != 3 || x->dims[0] < 0 || x->dims[1] < 0 || !ebb_type_elements(c->in[1], &w) ||
        !ebb_type_elements(c->in[2], &r))
        return 0;
    double forward = 2.0 * (double)x->dims[0] * (double)x->dims[1] * ((double)w + (double)r);
    return c->op == EBB_OP_LSTM_GRAD ? 2 * forward : forward;
}

/* The forward becomes LSTMTraining, which also gives all cell states and gates; LSTMGrad reads
 * them. */
void ebb_grad_lstm(ebb_build *b, ebb_grad *c)
{
    if (b->status != NULL)
        return;
    if (ebb_attr_int(&c->attrs, "layout", 0) != 0) {
        ebb_build_fail(b, ebb_error(EBB_UNSUPPORTED, "%s: no gradient for layout = 1",
                                    ebb_node_label(b->g, c->node)));
        return;
    }
    if (ebb_node_of(b->g, c->node)->op == EBB_OP_LSTM) {
        ebb_build_fail(b, ebb_model_import(b->g->model, EBB_DOMAIN_MS, 1));
        ebb_build_fail(b, ebb_node_set_op(b->g, c->node, EBB_OP_LSTM_TRAINING));
    }
    ebb_value h_all = ebb_grad_need_output(b, c, 0, "h_all");
    ebb_value c_all = ebb_grad_need_output(b, c, 3, "c_all");
    ebb_value gates = ebb_grad_need_output(b, c, 4, "iofc");
    if (b->status != NULL)
        return;
    ebb_value in[12] = {{0}}, out[7];
    for (uint32_t i = 0; i < 3; i++)
        in[i] = c->x[i];
    for (uint32_t i = 4; i < 7; i++) // sequence lengths, first hidden and cell state
        in[i - 1] = i < c->input_count ? c->x[i] : EBB_NO_VALUE;
    in[6] = h_all;
    in[7] = c_all;
    in[8] = gates;
    for (uint32_t i = 0; i < 3; i++)
        in[9 + i] = i < c->output_count ? c->dy[i] : EBB_NO_VALUE;
    // which gradient output serves which input: X W R B SL H0 C0 P
    static const int output_of[8] = {0, 1, 2, 3, -1, 4, 5, 6};
    uint32_t wanted = 0, count = 0;
    for (uint32_t i = 0; i < c->input_count && i < 8; i++)
        if (output_of[i] >= 0 && c->wants[i]) {
            wanted |= UINT32_C(1) << output_of[i];
            count = (uint32_t)output_of[i] + 1 > count ? (uint32_t)output_of[i] + 1 : count;
        }
    if (count == 0)
        return;
    ebb_with_attrs_of(b, c->node);
    ebb_emit_node(b, EBB_OP_LSTM_GRAD, in, 12, out, count, wanted);
    for (uint32_t i = 0; i < c->input_count && i < 8; i++)
        if (output_of[i] >= 0 && c->wants[i])
            c->dx[i] = out[output_of[i]];
}
