/* dropout-seed: draw the dropout mask again in the backward instead of keeping it.
 *
 *   before   y, mask = ai.ebb.Dropout(x, key)   dx = DropoutGrad(dy, mask)      8 bits an element
 *   after    y = ai.ebb.Dropout(x, key)         dx = ai.ebb.DropoutSeedGrad(dy, key)      nothing
 *
 * The generator is a counter (Philox): its numbers depend on the key, the node's stream and the
 * element alone, so the second draw is the first one. The key changes only at the end of the step.
 *
 * Exact: dy is multiplied by the same float, or replaced by the same zero.
 *
 * Declines where the mask was made by the standard Dropout, which has no key: run train-mode first;
 * and where dropout-mask, the alternative that keeps bits, came first.
 */
#include "exec/weigh/estimate.h"
#include "passes/common.h"

static ebb_status reseed(ebb_edit *e, ebb_node n, ebb_node forward)
{
    ebb_graph *g = e->g;
    ebb_build b = ebb_edit_build_for(e, n);
    ebb_with_draw(&b, forward);
    ebb_value dx =
        ebb_emit(&b, EBB_OP_EBB_DROPOUT_SEED_GRAD, ebb_in(g, n, 0), ebb_in(g, forward, 1));
    EBB_TRY(b.status);
    ebb_value mask = ebb_in(g, n, 1);
    EBB_TRY(ebb_edit_swap(e, n, dx));
    if (!ebb_value_is_read(g, mask))
        EBB_TRY(ebb_node_set_output(g, forward, 1, EBB_NO_VALUE));
    ebb_applied(e);
    return NULL;
}

static ebb_offer offer_of(const ebb_graph *g, ebb_node n)
{
    ebb_value mask = ebb_in(g, n, 1);
    double dy = (double)ebb_stored_bytes(g, ebb_in(g, n, 0));
    int64_t elements = 0;
    if (!ebb_type_elements(ebb_value_of(g, mask)->type, &elements))
        elements = 0;
    return (ebb_offer){.value = mask,
                       .saved_bytes = ebb_stored_bytes(g, mask),
                       .added_ns =
                           ebb_roofline_ns(g, EBB_FLOPS_PER_DRAW * (double)elements, 2 * dy) -
                           ebb_node_ns(g, n)};
}

static ebb_status run(ebb_edit *e)
{
    EBB_EACH_NODE(e->g, n) {
        if (ebb_node_of(e->g, n)->op == EBB_OP_MASK_GRAD &&
            ebb_producer_op(e->g, ebb_in(e->g, n, 1)) == EBB_OP_EBB_DROPOUT_PACKED)
            EBB_TRY(ebb_declined(e, n, "its mask is kept as bits already"));
        if (ebb_node_of(e->g, n)->op != EBB_OP_DROPOUT_GRAD)
            continue;
        ebb_node forward = ebb_value_of(e->g, ebb_in(e->g, n, 1))->producer;
        if (forward.i == 0 || ebb_node_of(e->g, forward)->op != EBB_OP_EBB_DROPOUT) {
            EBB_TRY(ebb_declined(e, n, "its mask was drawn without a key"));
            continue;
        }
        ebb_found(e);
        ebb_offer offer = offer_of(e->g, n);
        if (ebb_offered(e, n, &offer))
            EBB_TRY(reseed(e, n, forward));
    }
    return NULL;
}

const ebb_pass ebb_pass_dropout_seed = {
    .name = "dropout-seed",
    .doc = "draw dropout masks again in the backward instead of keeping them",
    .exactness = EBB_EXACT,
    .run = run,
};
