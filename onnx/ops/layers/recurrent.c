/* recurrent: RNN, GRU, LSTM, and their gradients.
 *
 *   X: [seq, batch, in]   W: [dirs, gates*hidden, in]   R: [dirs, gates*hidden, hidden]
 *   Y: [seq, dirs, batch, hidden]   Y_h, Y_c: [dirs, batch, hidden]
 *   com.microsoft LSTMTraining adds CAll: [seq, dirs, batch, hidden] and iofc: [seq, dirs, batch,
 *   4*hidden]
 *
 * layout = 1 puts batch first: X [batch, seq, in], Y [batch, seq, dirs, hidden], Y_h [batch, dirs,
 * hidden].
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

static int64_t directions(const ebb_attrs *attrs)
{
    return strcmp(ebb_attr_string(attrs, "direction", "forward"), "bidirectional") == 0 ? 2 : 1;
}

static int64_t gates_of(ebb_op op)
{
    return op == EBB_OP_RNN || op == EBB_OP_RNN_GRAD   ? 1
           : op == EBB_OP_GRU || op == EBB_OP_GRU_GRAD ? 3
                                                       : 4;
}

/* hidden_size, or what R says; -1: not known. */
static ebb_status hidden_size(const ebb_infer *c, int64_t *hidden)
{
    const ebb_type *r = c->in[2];
    int64_t of_r = r->rank == 3 ? r->dims[2] : -1;
    *hidden = ebb_attr_int(&c->attrs, "hidden_size", of_r);
    if (*hidden > INT32_MAX || *hidden < -1)
        return ebb_infer_error(c, "hidden_size is %lld", (long long)*hidden);
    if (of_r >= 0 && of_r != *hidden)
        return ebb_infer_error(c, "hidden_size is %lld, R has %lld", (long long)*hidden,
                               (long long)of_r);
    return NULL;
}

static ebb_status check_weights(const ebb_infer *c, int64_t hidden)
{
    const ebb_type *x = c->in[0], *w = c->in[1], *r = c->in[2];
    int64_t dirs = directions(&c->attrs), gates = gates_of(c->op);
    if ((x->rank >= 0 && x->rank != 3) || (w->rank >= 0 && w->rank != 3) ||
        (r->rank >= 0 && r->rank != 3))
        return ebb_infer_error(c, "X, W and R must have rank 3; they have %d, %d and %d",
                               (int)x->rank, (int)w->rank, (int)r->rank);
    if (w->rank == 3 && hidden >= 0 && w->dims[1] >= 0 && w->dims[1] != gates * hidden)
        return ebb_infer_error(c, "W has %lld rows, %lld * hidden_size is %lld",
                               (long long)w->dims[1], (long long)gates,
                               (long long)(gates * hidden));
    if ((w->rank == 3 && w->dims[0] >= 0 && w->dims[0] != dirs) ||
        (r->rank == 3 && r->dims[0] >= 0 && r->dims[0] != dirs))
        return ebb_infer_error(c, "W or R is not for %lld directions", (long long)dirs);
    if (w->rank == 3 && x->rank == 3 && w->dims[2] >= 0 && x->dims[2] >= 0 &&
        w->dims[2] != x->dims[2])
        return ebb_infer_error(c, "W expects %lld input features, X has %lld",
                               (long long)w->dims[2], (long long)x->dims[2]);
    return NULL;
}

/* Of an initial or final state. */
static ebb_type state_type(const ebb_infer *c, int64_t hidden)
{
    const ebb_type *x = c->in[0];
    ebb_type state = ebb_type_ranked((ebb_dtype)x->dtype, 3);
    bool batch_first = ebb_attr_int(&c->attrs, "layout", 0) != 0;
    if (x->rank == 3)
        ebb_type_put_dim(&state, batch_first ? 0 : 1, x, batch_first ? 0 : 1);
    ebb_type_set_dim(&state, batch_first ? 1 : 0, directions(&c->attrs));
    ebb_type_set_dim(&state, 2, hidden);
    return state;
}

/* Bias, peepholes and initial states: their last dim hangs on hidden_size alone. */
static ebb_status check_columns(const ebb_infer *c, int64_t hidden)
{
    const struct {
        uint32_t slot;
        const char *name;
        int64_t columns;
    } all[] = {{3, "B", 2 * gates_of(c->op) * hidden},
               {5, "initial_h", hidden},
               {6, "initial_c", hidden},
               {7, "P", 3 * hidden}};
    for (size_t i = 0; hidden >= 0 && i < sizeof all / sizeof *all; i++) {
        const ebb_type *t = all[i].slot < c->input_count ? c->in[all[i].slot] : NULL;
        int64_t have = t != NULL && t->rank > 0 ? t->dims[t->rank - 1] : -1;
        if (have < 0 || have == all[i].columns)
            continue;
        return ebb_infer_error(c, "%s has %lld columns; by hidden_size, %lld, it has %lld%s",
                               all[i].name, (long long)have, (long long)hidden,
                               (long long)all[i].columns,
                               all[i].slot == 6 ? " (ONNX has no LSTM with a projection: an "
                                                  "exporter that drops it leaves this)"
                                                : "");
    }
    return NULL;
}

ebb_status ebb_infer_recurrent(ebb_infer *c)
{
    int64_t hidden;
    EBB_TRY(hidden_size(c, &hidden));
    EBB_TRY(check_weights(c, hidden));
    EBB_TRY(check_columns(c, hidden));
    const ebb_type *x = c->in[0];
    bool batch_first = ebb_attr_int(&c->attrs, "layout", 0) != 0;
    ebb_type all = ebb_type_ranked((ebb_dtype)x->dtype, 4);
    if (x->rank == 3) {
        ebb_type_put_dim(&all, 0, x, 0);
        ebb_type_put_dim(&all, batch_first ? 1 : 2, x, 1);
    }
    ebb_type_set_dim(&all, batch_first ? 2 : 1, directions(&c->attrs));
    ebb_type_set_dim(&all, 3, hidden);
    for (uint32_t i = 0; i < c->output_count && i < 5; i++)
        c->out[i] = i == 1 || i == 2 ? state_type(c, hidden) : all;
    if (c->output_count > 4)
        ebb_type_set_dim(&c->out[4], 3, hidden < 0 ? -1 : gates_of(c->op) * hidden);
    return NULL;
}

/* ...Grad(X, W, R, ...) -> dX?, dW?, dR?, dB?, dh0?, dc0?, dP?; see kernels/plain/layers/recurrent.c */
ebb_status ebb_infer_recurrent_grad(ebb_infer *c)
{
    int64_t hidden;
    EBB_TRY(hidden_size(c, &hidden));
    EBB_TRY(check_weights(c, hidden));
    ebb_type flat = ebb_type_ranked((ebb_dtype)c->in[0]->dtype, 2);
    ebb_type_set_dim(&flat, 0, directions(&c->attrs));
    for (uint32_t i = 0; i < c->output_count && i < 7; i++) {
        if (i < 3) {
            c->out[i] = *c->in[i];
        } else if (i == 4 || i == 5) {
            c->out[i] = state_type(c, hidden);
        } else {
            c->out[i] = flat;
            int64_t rows = i == 3 ? 2 * gates_of(c->op) : 3;
            ebb_type_set_dim(&c->out[i], 1, hidden < 0 ? -1 : hidden * rows);
        }
    }
    return NULL;
}

/* Two matrix products a step; the backward does each of them twice, and once more where the gates
 * were not kept. */
double ebb_cost_recurrent(const ebb_infer *c)
{
    if (c->input_count < 3 || c->in[0] == NULL || c->in[1] == NULL || c->in[2] == NULL)
        return 0;
    const ebb_type *x = c->in[0];
    int64_t w, r;
    if (x->rank != 3 || x->dims[0] < 0 || x->dims[1] < 0 || !ebb_type_elements(c->in[1], &w) ||
        !ebb_type_elements(c->in[2], &r))
        return 0;
    double forward = 2.0 * (double)x->dims[0] * (double)x->dims[1] * ((double)w + (double)r);
    switch (c->op) {
    case EBB_OP_LSTM_GRAD:
        return 2 * forward;
    case EBB_OP_RNN_GRAD:
    case EBB_OP_GRU_GRAD:
    case EBB_OP_EBB_LSTM_GRAD:
        return 3 * forward;
    default:
        return forward;
    }
}

/* ---- gradient ---- */

enum { INPUTS = 8 }; /* X W R B lengths h0 c0 P */

/* Which output of a gradient serves which input: dX dW dR dB - dh0 dc0 dP. */
static const int output_of[INPUTS] = {0, 1, 2, 3, -1, 4, 5, 6};

static void emit_grad(ebb_build *b, ebb_grad *c, ebb_op op, const ebb_value *in, uint32_t in_count)
{
    ebb_value out[7];
    uint32_t wanted = 0, count = 0;
    for (uint32_t i = 0; i < c->input_count && i < INPUTS; i++)
        if (output_of[i] >= 0 && c->wants[i]) {
            wanted |= UINT32_C(1) << output_of[i];
            count = (uint32_t)output_of[i] + 1 > count ? (uint32_t)output_of[i] + 1 : count;
        }
    if (count == 0 || b->status != NULL)
        return;
    ebb_with_attrs_of(b, c->node);
    ebb_emit_node(b, op, in, in_count, out, count, wanted);
    for (uint32_t i = 0; i < c->input_count && i < INPUTS; i++)
        if (output_of[i] >= 0 && c->wants[i])
            c->dx[i] = out[output_of[i]];
}

static bool is_full(const ebb_graph *g, ebb_value lengths, ebb_value x)
{
    const ebb_tensor *list = ebb_value_constant(g, lengths);
    const ebb_type *type = ebb_value_of(g, x)->type;
    int64_t count;
    if (list == NULL || list->data == NULL || type->rank != 3 ||
        !ebb_type_elements(&list->type, &count))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (ebb_tensor_int(list, i) != type->dims[0])
            return false;
    return true;
}

/* What com.microsoft's pair computes; others are asked for ours. */
static bool is_usual_lstm(const ebb_build *b, const ebb_grad *c)
{
    static const char *const usual[] = {"Sigmoid", "Tanh", "Tanh"};
    const ebb_attr *names = ebb_attr_find(&c->attrs, "activations");
    for (uint32_t i = 0; names != NULL && i < names->count; i++)
        if (names->type != EBB_ATTR_STRINGS || strcmp(names->strings[i], usual[i % 3]) != 0)
            return false;
    return ebb_attr_find(&c->attrs, "clip") == NULL &&
           ebb_attr_int(&c->attrs, "input_forget", 0) == 0 &&
           ebb_attr_int(&c->attrs, "layout", 0) == 0 &&
           (c->input_count <= 4 || c->x[4].i == 0 || is_full(b->g, c->x[4], c->x[0])) &&
           (c->input_count <= 7 || c->x[7].i == 0);
}

/* The forward becomes LSTMTraining, which also gives all cell states and gates; LSTMGrad reads
 * them. */
static void grad_usual_lstm(ebb_build *b, ebb_grad *c)
{
    if (ebb_node_of(b->g, c->node)->op == EBB_OP_LSTM) {
        ebb_build_fail(b, ebb_model_import(b->g->model, EBB_DOMAIN_MS, 1));
        ebb_build_fail(b, ebb_node_set_op(b->g, c->node, EBB_OP_LSTM_TRAINING));
    }
    ebb_value h_all = ebb_grad_need_output(b, c, 0, "h_all");
    ebb_value c_all = ebb_grad_need_output(b, c, 3, "c_all");
    ebb_value gates = ebb_grad_need_output(b, c, 4, "iofc");
    if (b->status != NULL)
        return;
    ebb_value in[12] = {{0}};
    for (uint32_t i = 0; i < 3; i++)
        in[i] = c->x[i];
    for (uint32_t i = 4; i < 7; i++) // sequence lengths, first hidden and cell state
        in[i - 1] = i < c->input_count ? c->x[i] : EBB_NO_VALUE;
    in[6] = h_all;
    in[7] = c_all;
    in[8] = gates;
    for (uint32_t i = 0; i < 3; i++)
        in[9 + i] = ebb_grad_of(c, i);
    emit_grad(b, c, EBB_OP_LSTM_GRAD, in, 12);
}

/* The forward stays what it is, but for Y: all else is computed again from the states in it. */
void ebb_grad_recurrent(ebb_build *b, ebb_grad *c)
{
    ebb_op op = ebb_node_of(b->g, c->node)->op;
    bool lstm = op != EBB_OP_RNN && op != EBB_OP_GRU;
    if (lstm && is_usual_lstm(b, c)) {
        grad_usual_lstm(b, c);
        return;
    }
    uint32_t inputs = lstm ? INPUTS : INPUTS - 2, count = inputs;
    ebb_value in[INPUTS + 4] = {{0}};
    for (uint32_t i = 0; i < inputs && i < c->input_count; i++)
        in[i] = c->x[i];
    in[count++] = ebb_grad_need_output(b, c, 0, "h_all");
    for (uint32_t i = 0; i < (lstm ? 3U : 2U); i++)
        in[count++] = ebb_grad_of(c, i);
    emit_grad(b, c,
              lstm               ? EBB_OP_EBB_LSTM_GRAD
              : op == EBB_OP_GRU ? EBB_OP_GRU_GRAD
                                 : EBB_OP_RNN_GRAD,
              in, count);
}
