/* batch_layers.c: how layers treat parts of a batch: products, convolutions and pools, norms,
 * losses, RNN, GRU and LSTM. */
#include "passes/memory/rounding/batch_node.h"

#include <ctype.h>

typedef ebb_batch_node node;
typedef ebb_batch_form form;

/* ---- products ---- */

/* y = op(a) op(b): a split along rows or b along columns splits y; both along what is summed over
 * makes sums; batch axes are as in a pointwise operator. */
const char *ebb_parts_matmul(node *b)
{
    bool plain = op_of(b) == EBB_OP_MATMUL;
    int ranks[2] = {in_type(b, 0)->rank, in_type(b, 1)->rank}, y = out_type(b, 0)->rank;
    int batch = y - 2; // its batch axes
    if (ranks[0] < 2 || ranks[1] < 2)
        return ebb_batch_unknown;
    int at[2] = {-1,
                 -1}; // counted as in y: 0.. batch - 1; batch: rows; batch + 1: columns; y: inner
    for (uint32_t i = 0; i < 2; i++) {
        if (!is_parts(b, i))
            continue;
        int from_end = ranks[i] - b->in[i].axis;
        bool turned = !plain && int_attr(b, i == 0 ? "transA" : "transB", 0) != 0;
        if (from_end > 2)
            at[i] = y - from_end;
        else if (i == 0)
            at[i] = (from_end == 2) != turned ? batch : y;
        else
            at[i] = (from_end == 1) != turned ? batch + 1 : y;
    }
    int axis = at[0] >= 0 ? at[0] : at[1];
    for (uint32_t i = 0; i < 2; i++) { // the other operand has that axis too: ask for its parts
        bool turned = !plain && int_attr(b, i == 0 ? "transA" : "transB", 0) != 0;
        int own = axis < batch ? axis - (y - ranks[i]) : -1;
        if (axis == y)
            own = ranks[i] - ((i == 0) != turned ? 1 : 2);
        if (at[i] >= 0 || (own >= 0 && in_type(b, i)->dims[own] == 1 && axis < batch))
            own = -1;
        if (own >= 0 && ask(b, i, own))
            at[i] = axis;
        if (at[i] < 0 ? !is_whole(b, i) : at[i] != axis)
            return ebb_batch_crossed;
    }
    if (axis < y) {
        give(b, 0, axis);
        return NULL;
    }
    b->out[0] = (form){.where = EBB_BATCH_SUM};
    return NULL;
}

const char *ebb_parts_gemm(node *b)
{
    const char *why = ebb_parts_matmul(b);
    if (why != NULL || !has_in(b, 2))
        return why;
    if (b->out[0].where != EBB_BATCH_PARTS)
        return ebb_batch_unknown; // what is added would be added in each part
    int rank = in_type(b, 2)->rank, at = b->out[0].axis - (2 - rank);
    if (at < 0 || in_type(b, 2)->dims[at] == 1)
        return is_whole(b, 2) ? NULL : ebb_batch_crossed;
    return ask(b, 2, at) ? NULL : ebb_batch_crossed;
}

/* Rows beside a weight in few bits. */
const char *ebb_parts_frozen(node *b)
{
    return ebb_batch_beside(b, in_type(b, 0)->rank - 1);
}

/* ---- operands told by letters ---- */

/* What each operand is: a digit, in parts along that one of `axes`; w whole, o each part's own, s a sum, - whatever it
 * is. The last letter is that of all behind it. */
static const char *layer(node *b, const int *axes, const char *in, const char *out)
{
    for (uint32_t i = 0; i < in_count(b); i++) {
        const bool own = b->in[i].where == EBB_BATCH_OWN, parts = isdigit((unsigned char)*in) != 0;
        if (parts ? !ask(b, i, axes[*in - '0']) : *in == 'o' ? !own : *in == 'w' && !is_whole(b, i))
            return ebb_batch_crossed;
        in += in[1] != '\0';
    }
    for (uint32_t k = 0; k < out_count(b); k++) {
        if (*out == 's')
            b->out[k] = (form){.where = EBB_BATCH_SUM};
        else
            give(b, k, axes[*out - '0']);
        out += out[1] != '\0';
    }
    return NULL;
}

/* ---- convolution and pooling: the batch is axis 0 ---- */

const char *ebb_parts_images(node *b)
{
    return b->in[0].axis == 0 ? ebb_batch_beside(b, -1) : ebb_batch_mixes;
}

const char *ebb_parts_weight_grad(node *b)
{
    return layer(b, (const int[]){0}, "0", "s");
}

/* Images and channels are pooled one by one; with two inputs, both are so split. */
const char *ebb_parts_pool(node *b)
{
    int axis = is_parts(b, 0) ? b->in[0].axis : b->in[1].axis;
    if (axis != 0)
        return ebb_batch_mixes;
    return has_out(b, 1) ? "its indices count over the whole batch"
                         : layer(b, (const int[]){0}, "0", "0");
}

/* ---- norms ---- */

/* Rows from axis `axis` of input `data` on are normalised. */
static const char *row_norm(node *b, uint32_t data, const char *in, const char *out)
{
    int axis = -1;
    for (uint32_t i = 0; i < in_count(b); i++)
        if (is_parts(b, i))
            axis = b->in[i].axis;
    return axis < 0 || axis >= normal(int_attr(b, "axis", -1), in_type(b, data)->rank)
               ? ebb_batch_mixes
               : layer(b, (const int[]){axis}, in, out);
}

const char *ebb_parts_row_norm(node *b)
{
    return row_norm(b, 0, "0w", "0");
}

const char *ebb_parts_layer_norm_grad(node *b)
{
    return row_norm(b, 1, "00w00w", "0s");
}

const char *ebb_parts_layer_norm_from(node *b)
{
    return row_norm(b, 1, "00ww0w", "0s");
}

const char *ebb_parts_rms_norm_grad(node *b)
{
    return row_norm(b, 1, "00w0w", "0s");
}

const char *ebb_parts_group_norm(node *b)
{
    return layer(b, (const int[]){0}, "0w", "0");
}

const char *ebb_parts_group_norm_grad(node *b)
{
    return layer(b, (const int[]){0}, "00w00w", "0s");
}

const char *ebb_parts_group_norm_from(node *b)
{
    return layer(b, (const int[]){0}, "00ww0w", "0s");
}

const char *ebb_parts_softmax(node *b)
{
    int along = normal(int_attr(b, "axis", -1), in_type(b, 0)->rank);
    int axis = is_parts(b, 0) ? b->in[0].axis : b->in[1].axis;
    return axis == along ? ebb_batch_mixes : layer(b, (const int[]){axis}, "0", "0");
}

/* (x, scale, bias, mean, variance) -> y, running mean and variance, the part's own statistics. */
const char *ebb_parts_batch_norm(node *b)
{
    if (op_of(b) == EBB_OP_BATCH_NORMALIZATION && int_attr(b, "training_mode", 0) == 0)
        return ebb_batch_beside(b, 1);
    if (!b->norm_per_part || op_of(b) != EBB_OP_BATCH_NORM_TRAINING)
        return b->spread
                   ? "batch norm takes its statistics over the whole batch; --batch-norm sync "
                     "adds up those of all processes, --batch-norm frozen takes none"
                   : "batch norm takes its statistics over the whole batch; "
                     "batch-norm=per-part allows those of each part";
    const char *why = ebb_parts_images(b);
    for (uint32_t k = 1; why == NULL && k < out_count(b); k++)
        b->out[k] = (form){.where = k < 3 ? EBB_BATCH_CHAIN : EBB_BATCH_OWN};
    return why;
}

/* (dY, X, scale, mean or bias, inverse deviation) -> dX, dscale, dbias. */
const char *ebb_parts_batch_norm_grad(node *b)
{
    return layer(b, (const int[]){0}, "00woow", "0s");
}

const char *ebb_parts_batch_norm_from(node *b)
{
    return layer(b, (const int[]){0}, "00wwow", "0s");
}

/* ---- losses ---- */

/* Scores [N, C, d...] at input `scores`, labels [N, d...] and weights [C] behind them. */
static const char *loss(node *b, uint32_t scores, bool gradient)
{
    ebb_attrs attrs = ebb_node_attrs(b->g, b->n);
    const char *reduction = ebb_attr_string(&attrs, "reduction", "mean");
    int axis = is_parts(b, scores) ? b->in[scores].axis : 0;
    const int axes[] = {axis, axis == 0 ? 0 : axis - 1};
    bool each = strcmp(reduction, "none") == 0;
    if (axis == 1)
        return ebb_batch_mixes;
    b->weighs = strcmp(reduction, "mean") == 0;
    return gradient ? layer(b, axes, each ? "101w" : "w01w", "0")
                    : layer(b, axes, "01w", each ? "10" : "s0");
}

const char *ebb_parts_loss(node *b)
{
    return loss(b, 0, false);
}

const char *ebb_parts_loss_grad(node *b)
{
    return loss(b, 1, true);
}

/* Both at once: (dY, scores, labels, weights) -> loss, dscores. */
const char *ebb_parts_scores_loss(node *b)
{
    const char *why = loss(b, 1, true);
    b->out[0] = b->in[0].where == EBB_BATCH_PARTS ? b->in[0] : (form){.where = EBB_BATCH_SUM};
    return why;
}

/* LinearCrossEntropy: (x, w, bias, labels, weights) -> loss, dx, dw, dbias. */
const char *ebb_parts_linear_loss(node *b)
{
    ebb_attrs attrs = ebb_node_attrs(b->g, b->n);
    int axis = b->in[0].axis, labels = -1;
    if (is_parts(b, 0) && b->outer == 1)
        labels = ebb_batch_axis_through(in_type(b, 3), &b->outer, in_type(b, 0), axis, b->parts);
    if (labels < 0 || b->outer != 1 || axis == in_type(b, 0)->rank - 1)
        return ebb_batch_mixes;
    b->weighs = strcmp(ebb_attr_string(&attrs, "reduction", "mean"), "mean") == 0;
    return layer(b, (const int[]){axis, labels}, "0ww1w", "s0s");
}

/* ---- recurrent ---- */

/* Axes of what is there once for each row, of states, and of what has a row for each step. */
static const char *recurrent(node *b, const char *in, const char *out)
{
    bool first = int_attr(b, "layout", 0) != 0;
    return layer(b, (const int[]){0, first ? 0 : 1, first ? 0 : 2}, in, out);
}

/* RNN, GRU, LSTM and LSTMTraining: (X, W, R, B, lengths, h0, c0, P) -> Y, Y_h, Y_c, CAll, iofc. */
const char *ebb_parts_recurrent(node *b)
{
    return recurrent(b, "1www011w", "2112");
}

static const char recurrent_grads[] = "1sss11s1"; // dX dW dR dB dh0 dc0 dP

const char *ebb_parts_rnn_grad(node *b)
{
    return recurrent(b, "1www01221-", recurrent_grads);
}

const char *ebb_parts_lstm_grad(node *b)
{
    return recurrent(b, "1ww011222211-", recurrent_grads);
}

const char *ebb_parts_ebb_lstm_grad(node *b)
{
    return recurrent(b, "1www011w2211-", recurrent_grads);
}
