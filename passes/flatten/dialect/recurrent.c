/* recurrent: RNN, GRU and LSTM in forms that ebb computes and others do not, and GRU as ONNX
 * Runtime trains it.
 *
 *   y = LSTM <layout = 1> (x, ...)     x: [batch, steps, in]
 *   ──> t = Transpose (x),  s = LSTM (t, ...),  y = Transpose (s)
 *
 * Runtimes for inference refuse layout 1, and the bodies of the gradients are for layout 0.
 */
#include "passes/flatten/dialect/dialect.h"

/* ---- batch first ---- */

static ebb_value turned(ebb_build *b, ebb_value x)
{
    static const int64_t perm[3] = {1, 0, 2};
    return x.i == 0 ? x : ebb_emit_transpose(b, x, perm, 3);
}

/* (X, W, R, B?, lengths?, H0?, C0?, P?) -> Y?, last H?, last C? */
void ebb_dialect_batch_first(ebb_build *b, ebb_foreign *f)
{
    static const int64_t perm[4] = {2, 0, 1, 3}; // [steps, directions, batch, hidden]
    ebb_value in[8] = {{0}}, out[3] = {{0}};
    const uint32_t count = f->output_count < 3 ? f->output_count : 3;
    f->native = ebb_attr_int(&f->attrs, "layout", 0) == 0;
    if (f->native || b->status != NULL)
        return;
    for (uint32_t i = 0; i < 8; i++)
        in[i] = i == 0 || i == 5 || i == 6 ? turned(b, f->x[i]) : f->x[i];
    ebb_with_attrs_of(b, f->node);
    ebb_with_int(b, "layout", 0);
    ebb_emit_node(b, ebb_node_of(b->g, f->node)->op, in, f->input_count < 8 ? f->input_count : 8,
                  out, count, ebb_foreign_wanted(f));
    if (f->wants[0])
        f->y[0] = ebb_emit_transpose(b, out[0], perm, 4);
    for (uint32_t k = 1; k < count; k++)
        f->y[k] = f->wants[k] ? turned(b, out[k]) : EBB_NO_VALUE;
}

/* ---- of training ---- */

/* GRUTraining(X, W, R, B?, lengths?, H0?) -> all H, last H, gates, which only GRUGrad reads. */
void ebb_dialect_gru_training(ebb_build *b, ebb_foreign *f)
{
    if (!ebb_foreign_ranked(b, f, 0, &(ebb_type){0}) || // asked again when GRUGrad has gone
        ebb_foreign_declines(f, f->wants[2], "its gates are read by what is not known here"))
        return;
    ebb_with_attrs_of(b, f->node);
    ebb_emit_node(b, EBB_OP_GRU, f->x, 6, f->y, 2, ebb_foreign_wanted(f));
}

/* GRUGrad(X, W, R, B?, lengths?, H0?, all H, gates?, d all H?, d last H?) -> dX, dW, dR, dB, dH0:
 * ours makes the gates again. */
void ebb_dialect_gru_grad(ebb_build *b, ebb_foreign *f)
{
    ebb_value in[9];
    if (!ebb_foreign_ranked(b, f, 0, &(ebb_type){0}) ||
        ebb_foreign_declines(f, f->x[6].i == 0, "the states of its steps are missing"))
        return;
    for (uint32_t i = 0; i < 9; i++)
        in[i] = f->x[i < 7 ? i : i + 1];
    ebb_build_fail(b, ebb_model_import(b->g->model, EBB_DOMAIN_EBB, 1));
    ebb_with_attrs_of(b, f->node);
    ebb_emit_node(b, EBB_OP_GRU_GRAD, in, 9, f->y, 5, ebb_foreign_wanted(f));
}
