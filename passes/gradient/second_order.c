/* second_order: what has no gradient rule becomes its body, which has.
 *
 *   before   dx, dw = ai.ebb.GruGrad (x, w, ..., h_all, dh)     dx is differentiated once more
 *   after    dx, dw = standard operators, unrolled over the steps
 *
 * Rules of first order emit operators that need none themselves, as long as nobody asks for a
 * second order. Where one does, their function bodies (onnx/tables/bodies.def) say what they compute in
 * operators that have rules. Nothing is lost but the kernel that did all of it at once, and that is
 * for this node alone. States that such a node reads from the forward lead back to the forward's
 * own rule; what the forward kept for its gradient alone (EBB_KEEPS: the deviation of a norm, say)
 * leads through the forward's body.
 */
#include "onnx/text/text.h"
#include "onnx/file/writer.h"
#include "passes/flatten/functions.h"
#include "passes/gradient/reverse.h"
#include "passes/flatten/control.h"

enum { STEPS_MOST = 1024 }; /* as pass unroll has it */

static ebb_status expand(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    const int64_t opset = ebb_model_opset(g->model, EBB_DOMAIN_ONNX);
    ebb_node after = ebb_prev(g, n), end = ebb_next(g, n);
    ebb_function body;
    EBB_TRY(ebb_while(ebb_text_parse_body(g->model, &body, ebb_node_of(g, n)->op, opset,
                                          ebb_body_is_narrow(g, n)),
                      "reading the body of %s", ebb_node_label(g, n)));
    EBB_TRY(ebb_inline_call(e, &body, n));
    return ebb_unroll_between(e, after, end, STEPS_MOST);
}

/* com.microsoft's gradient of LSTM reads cells and gates that the forward kept, and no rule leads
 * back from those. Ours makes them again from what the forward was given. */
static ebb_status make_gates_again(ebb_graph *g, ebb_node n)
{
    enum { GATES = 8, BIAS = 3, LENGTHS = 4, INPUTS = 12 };
    // h0, c0, h_all, and the gradients of all h, the last h and the last c: here, and there
    static const uint32_t moved[][2] = {{5, 4}, {6, 5}, {8, 6}, {9, 9}, {10, 10}, {11, 11}};
    ebb_value in[INPUTS] = {{0}};
    ebb_value gates = ebb_in(g, n, GATES);
    if (ebb_node_of(g, n)->op != EBB_OP_LSTM_GRAD || gates.i == 0 ||
        ebb_producer_op(g, gates) != EBB_OP_LSTM_TRAINING)
        return NULL;
    ebb_node forward = ebb_value_of(g, gates)->producer;
    for (uint32_t i = 0; i < 3; i++)
        in[i] = ebb_in(g, n, i);
    in[BIAS] = ebb_in(g, forward, BIAS);
    in[LENGTHS] = ebb_in(g, forward, LENGTHS);
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++)
        in[moved[i][0]] = ebb_in(g, n, moved[i][1]);
    for (uint32_t i = 0; i < INPUTS; i++)
        EBB_TRY(ebb_node_set_input(g, n, i, in[i]));
    EBB_TRY(ebb_model_import(g->model, EBB_DOMAIN_EBB, 1));
    return ebb_node_set_op(g, n, EBB_OP_EBB_LSTM_GRAD);
}

bool ebb_reverse_expands(ebb_op op)
{
    return ebb_op_body(op) != NULL && !ebb_op_has(op, EBB_UPDATES) && !ebb_op_has(op, EBB_RANDOM);
}

/* What the forward kept for its gradient counts itself, and its rule knows of no such thing. */
static bool keeps_what_counts(const ebb_reverse *r, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(r->g, n);
    for (uint32_t k = 1; ebb_op_has(info->op, EBB_KEEPS) && k < info->out_count; k++)
        if (info->out[k].i != 0 && r->counts[info->out[k].i])
            return true;
    return false;
}

ebb_status ebb_reverse_expand(ebb_reverse *r, bool *changed)
{
    *changed = false;
    for (size_t k = 0; k < r->node_count; k++) {
        ebb_node n = r->order[k];
        bool rule = ebb_op_has_grad(ebb_node_of(r->g, n)->op) && !keeps_what_counts(r, n);
        if (rule || !ebb_reverse_passes(r, n))
            continue;
        EBB_TRY(make_gates_again(r->g, n));
        if (!ebb_reverse_expands(ebb_node_of(r->g, n)->op) || ebb_body_is_wrong(r->g, n))
            continue;
        EBB_TRY(ebb_while(expand(r->e, n), "making a second order possible for %s",
                          ebb_node_label(r->g, n)));
        *changed = true;
    }
    return NULL;
}
