/* dropout-mask: keep one bit of a dropout's mask for each element, not a byte.
 *
 *   before   y, mask = ai.ebb.Dropout(x, key)           dx = DropoutGrad(dy, mask)     8 bits each
 *   after    y, bits = ai.ebb.DropoutPacked(x, key)     dx = MaskGrad(dy, bits)        1 bit
 *
 *   before   y, mask = Dropout(x, ratio, true)          dx = DropoutGrad(dy, mask)
 *   after    y, mask = Dropout(x, ratio, true), bits = PackBits(mask)
 *                                                       dx = MaskGrad(dy, bits)
 *
 * Where ratio or training mode are not constant, the bits are unpacked again before DropoutGrad.
 *
 * Exact: dy is multiplied by the same float, or replaced by the same zero.
 *
 * The alternative is dropout-seed, which keeps nothing and draws again: less memory, more time. It
 * needs a key. Whichever comes first leaves nothing to the other.
 *
 * Declines where the mask is read for another reason.
 */
#include "exec/weigh/estimate.h"
#include "passes/common.h"

/* Every reader of the mask is a DropoutGrad: for them bits will do. */
static bool for_gradients_alone(const ebb_graph *g, ebb_value mask)
{
    const ebb_value_info *info = ebb_value_of(g, mask);
    if (ebb_value_is_held(g, mask))
        return false;
    for (size_t i = 0; i < info->use_count; i++)
        if (ebb_node_of(g, info->uses[i].node)->op != EBB_OP_DROPOUT_GRAD ||
            info->uses[i].slot != 1)
            return false;
    return true;
}

/* What DropoutGrad multiplies by, where it is known to be active. */
static bool scale_of(const ebb_graph *g, ebb_node n, double *scale)
{
    double ratio = 0.5, active = 1;
    if ((ebb_in(g, n, 2).i != 0 && !ebb_scalar_of(g, ebb_in(g, n, 2), &ratio)) ||
        (ebb_in(g, n, 3).i != 0 && !ebb_scalar_of(g, ebb_in(g, n, 3), &active)))
        return false;
    *scale = ratio == 1 ? 0 : 1 / (1 - ratio);
    return active != 0 && ratio >= 0 && ratio <= 1;
}

static const char *declines(const ebb_graph *g, ebb_node n, ebb_offer *offer)
{
    ebb_value mask = ebb_in(g, n, 1);
    ebb_op maker = ebb_producer_op(g, mask);
    int64_t elements;
    double scale;
    if (maker == EBB_OP_UNPACK_BITS)
        return "its mask is kept as bits already";
    if (maker != EBB_OP_DROPOUT && maker != EBB_OP_EBB_DROPOUT)
        return "its mask comes from no dropout";
    if (!for_gradients_alone(g, mask))
        return "its mask is read for another reason";
    if (!ebb_type_elements(ebb_value_of(g, mask)->type, &elements))
        return "the size of its mask is not known";
    double bytes = (double)elements, dy = (double)ebb_stored_bytes(g, ebb_in(g, n, 0));
    int64_t bits = ebb_stored_bits(elements, 1);
    bool packed = maker == EBB_OP_EBB_DROPOUT, scaled = scale_of(g, n, &scale);
    *offer = (ebb_offer){.value = mask, .saved_bytes = ebb_stored_bytes(g, mask) - bits};
    if (offer->saved_bytes <= 0)
        return "its mask is so small that bits would not be smaller";
    if (!scaled)
        offer->transient_bytes = ebb_stored_bytes(g, mask);
    if (!packed)
        offer->added_ns += ebb_roofline_ns(g, 0, bytes + (double)bits);
    offer->added_ns += scaled ? ebb_roofline_ns(g, 0, 2 * dy + (double)bits) - ebb_node_ns(g, n)
                              : ebb_roofline_ns(g, 0, bytes + (double)bits);
    return NULL;
}

/* The forward makes bits; none yet where no gradient before this one asked for them. */
static ebb_status make_bits(ebb_edit *e, ebb_value mask, ebb_value *bits)
{
    ebb_graph *g = e->g;
    ebb_node forward = ebb_value_of(g, mask)->producer;
    bool keyed = ebb_node_of(g, forward)->op == EBB_OP_EBB_DROPOUT;
    ebb_build b = ebb_edit_build(e, keyed ? forward : ebb_next(g, forward), EBB_FORWARD);
    ebb_value y = ebb_out(g, forward, 0), made[2];
    b.name = ebb_value_name(g, y);
    if (!keyed) {
        *bits = ebb_emit(&b, EBB_OP_PACK_BITS, mask);
        return b.status;
    }
    ebb_with_draw(&b, forward);
    ebb_emit_node(&b, EBB_OP_EBB_DROPOUT_PACKED,
                  (ebb_value[]){ebb_in(g, forward, 0), ebb_in(g, forward, 1)}, 2, made, 2, 3);
    EBB_TRY(b.status);
    ebb_keep_name(g, b.last, forward);
    EBB_TRY(ebb_edit_replace(e, y, made[0]));
    *bits = made[1];
    return NULL;
}

/* dx of one DropoutGrad, from bits. */
static ebb_status read_bits(ebb_edit *e, ebb_node n, ebb_value bits)
{
    ebb_graph *g = e->g;
    ebb_build b = ebb_edit_build_for(e, n);
    double scale;
    if (scale_of(g, n, &scale)) {
        ebb_with_float(&b, "scale", scale);
        ebb_value dx = ebb_emit(&b, EBB_OP_MASK_GRAD, ebb_in(g, n, 0), bits);
        EBB_TRY(b.status);
        return ebb_edit_swap(e, n, dx);
    }
    ebb_type type = *ebb_value_of(g, ebb_in(g, n, 1))->type;
    ebb_with_ints(&b, "shape", type.dims, (uint32_t)type.rank);
    ebb_value again = ebb_emit(&b, EBB_OP_UNPACK_BITS, bits);
    EBB_TRY(b.status);
    return ebb_node_set_input(g, n, 1, again);
}

static ebb_status pack(ebb_edit *e, ebb_value mask)
{
    ebb_graph *g = e->g;
    ebb_node forward = ebb_value_of(g, mask)->producer;
    ebb_value bits;
    EBB_TRY(make_bits(e, mask, &bits));
    for (size_t i = ebb_value_of(g, mask)->use_count; i-- > 0;) {
        ebb_node n = ebb_value_of(g, mask)->uses[i].node;
        if (ebb_node_of(g, n)->op == EBB_OP_DROPOUT_GRAD)
            EBB_TRY(read_bits(e, n, bits));
    }
    if (ebb_node_of(g, forward)->op == EBB_OP_EBB_DROPOUT)
        ebb_edit_remove(e, forward);
    ebb_applied(e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_node next;
    for (ebb_node n = ebb_first(e->g); n.i != 0; n = next) {
        ebb_offer offer;
        next = ebb_next(e->g, n);
        ebb_op op = ebb_node_of(e->g, n)->op;
        if (op == EBB_OP_EBB_DROPOUT_SEED_GRAD)
            EBB_TRY(ebb_declined(e, n, "the backward draws its mask again already"));
        if (op != EBB_OP_DROPOUT_GRAD || ebb_node_of(e->g, n)->dead || !ebb_is_backward(e->g, n))
            continue;
        ebb_found(e);
        const char *reason = declines(e->g, n, &offer);
        if (reason != NULL)
            EBB_TRY(ebb_skipped(e, n, reason));
        else if (ebb_offered(e, n, &offer))
            EBB_TRY(pack(e, ebb_in(e->g, n, 1)));
    }
    return NULL;
}

const ebb_pass ebb_pass_dropout_mask = {
    .name = "dropout-mask",
    .doc = "keep dropout masks as one bit an element",
    .exactness = EBB_EXACT,
    .run = run,
};
