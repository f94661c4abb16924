/* epilogue_norm.c: batch norm in training with the sum and the ReLU behind it, and their way back.
 *
 *   before   y = BatchNormTraining(x, ..)     s = Add(y, a)       z = Relu(s)
 *            ds = ReluGrad(dz, z)             dx, .. = BatchNormalizationGrad(ds, x, ..)
 *   after    z, .., m = ai.ebb.BatchNormAddRelu(x, .., a)
 *            dx, .., ds = ai.ebb.BatchNormReluGrad(dz, x, .., m)
 *
 * The bits m of z > 0 are what the kernel of the way back takes: they are kept beside z, an eighth
 * of a byte an element, where another reads z. Where sign-mask has made them before, they are the
 * same bits, and z was let go already.
 *
 * Not made again from x on the way back, which would need neither z nor bits: the scale in float32
 * of what was saved is not the one that the forward has used, so an element near zero could be let
 * through that the forward has not.
 *
 * Declines where no library has one kernel for both: channels first, or no multiple of 8.
 */
#include "passes/speed/epilogue.h"

enum { ASKERS = 8 };

typedef ebb_epilogue_state state;

typedef struct way_back { /* of one gradient of the ReLU */
    ebb_node mask, norm;  /* ReluGrad or MaskGrad, and the batch norm's gradient behind it */
    bool read_elsewhere;  /* what the mask lets through */
} way_back;

typedef struct ways { /* back, and the PackSigns of z */
    way_back back[ASKERS];
    ebb_node packs[EBB_EPILOGUE_PACKS];
    uint32_t back_count, pack_count;
} ways;

static bool is_norm(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->op == EBB_OP_BATCH_NORM_TRAINING;
}

/* ---- the forward ---- */

/* [rows, channels], whatever images they are, with whole bytes of bits to a row. */
static bool has_channels_last(const ebb_type *x)
{
    int64_t after = 1, elements;
    for (int d = 2; d < x->rank; d++)
        after *= x->dims[d];
    return x->rank >= 2 && after == 1 && x->dims[1] % 8 == 0 && ebb_type_elements(x, &elements) &&
           elements > 0;
}

static bool stands_before(const state *s, ebb_node a, ebb_node b)
{
    const ebb_graph *g = s->e->g;
    if (a.i >= s->node_count || b.i >= s->node_count)
        return !ebb_is_backward(g, a) && ebb_is_backward(g, b);
    return s->at[a.i] < s->at[b.i];
}

/* The new node stands where the ReLU does. */
static bool statistics_can_wait(const state *s, const ebb_epilogue *t)
{
    const ebb_graph *g = s->e->g;
    for (uint32_t k = 1; k < ebb_node_of(g, t->maker)->out_count; k++) {
        ebb_value v = ebb_out(g, t->maker, k);
        if (v.i == 0)
            continue;
        if ((ebb_value_of(g, v)->flags & EBB_IS_CAPTURED) != 0)
            return false;
        for (size_t i = 0; i < ebb_value_of(g, v)->use_count; i++)
            if (!stands_before(s, t->relu, ebb_value_of(g, v)->uses[i].node))
                return false;
    }
    return true;
}

static const char *decline(const state *s, const ebb_epilogue *t)
{
    const ebb_graph *g = s->e->g;
    int64_t elements;
    if (!ebb_type_elements(ebb_value_of(g, ebb_out(g, t->relu, 0))->type, &elements))
        return "its size is not known";
    if (!has_channels_last(ebb_value_of(g, ebb_in(g, t->maker, 0))->type))
        return "its batch norm has channels first, or no multiple of 8, and no library has one "
               "kernel for both";
    return statistics_can_wait(s, t) ? NULL : "the statistics of its batch norm are read before it";
}

/* ---- the way back ---- */

/* The first gradient of a batch norm that reads v, views seen through. */
static ebb_node first_norm(const state *s, ebb_value v, int views)
{
    const ebb_graph *g = s->e->g;
    ebb_node first = EBB_NO_NODE;
    for (size_t i = 0; i < ebb_value_of(g, v)->use_count; i++) {
        ebb_use use = ebb_value_of(g, v)->uses[i];
        ebb_node n = EBB_NO_NODE;
        if (use.slot == 0 && ebb_node_of(g, use.node)->op == EBB_OP_BATCH_NORM_GRAD)
            n = use.node;
        else if (use.slot == 0 && views > 0 && ebb_epilogue_is_view(g, use.node))
            n = first_norm(s, ebb_out(g, use.node, 0), views - 1);
        if (n.i != 0 && (first.i == 0 || stands_before(s, n, first)))
            first = n;
    }
    return first;
}

/* Is all that n reads, but its gradient, there already where `where` stands? */
static bool can_move_up(const state *s, ebb_node n, ebb_node where)
{
    const ebb_graph *g = s->e->g;
    for (uint32_t i = 1; i < ebb_node_of(g, n)->in_count; i++) {
        ebb_node maker = ebb_value_of(g, ebb_in(g, n, i))->producer;
        if (maker.i != 0 && !stands_before(s, maker, where))
            return false;
    }
    return true;
}

static void add_way_back(const state *s, ways *t, ebb_node mask)
{
    const ebb_graph *g = s->e->g;
    ebb_value through = ebb_out(g, mask, 0);
    way_back w = {.mask = mask, .norm = first_norm(s, through, EBB_EPILOGUE_VIEWS)};
    if (w.norm.i == 0 || t->back_count == ASKERS)
        return;
    ebb_value v = ebb_in(g, w.norm, 0), x = ebb_in(g, w.norm, 1);
    for (ebb_node reader = w.norm; !w.read_elsewhere && reader.i != 0;
         reader = ebb_value_of(g, v)->producer, v = ebb_in(g, reader, 0)) {
        w.read_elsewhere = !ebb_same_node(ebb_only_user(g, v), reader);
        if (ebb_same_value(v, through))
            break;
    }
    const ebb_type *type = ebb_value_of(g, x)->type;
    if (has_channels_last(type) && type->dtype == ebb_value_of(g, through)->type->dtype &&
        (!w.read_elsewhere || can_move_up(s, w.norm, mask)))
        t->back[t->back_count++] = w;
}

static bool masks_alone(const ebb_graph *g, ebb_use use)
{
    ebb_attrs attrs = ebb_node_attrs(g, use.node);
    return ebb_node_of(g, use.node)->op == EBB_OP_MASK_GRAD && use.slot == 1 &&
           ebb_attr_float(&attrs, "scale", 1) == 1 && ebb_attr_float(&attrs, "alpha", 0) == 0;
}

/* Who asks whether z > 0 by z itself. */
static void find_grads(const state *s, ways *t, ebb_value z, int views)
{
    const ebb_graph *g = s->e->g;
    for (size_t i = 0; i < ebb_value_of(g, z)->use_count; i++) {
        ebb_use use = ebb_value_of(g, z)->uses[i];
        if (use.slot == 0 && views > 0 && ebb_epilogue_is_view(g, use.node))
            find_grads(s, t, ebb_out(g, use.node, 0), views - 1);
        else if (use.slot == 1 && ebb_node_of(g, use.node)->op == EBB_OP_RELU_GRAD)
            add_way_back(s, t, use.node);
    }
}

/* And by its bits. */
static void find_masks(const state *s, ways *t)
{
    const ebb_graph *g = s->e->g;
    for (uint32_t i = 0; i < t->pack_count; i++) {
        const ebb_value_info *bits = ebb_value_of(g, ebb_out(g, t->packs[i], 0));
        for (size_t k = 0; k < bits->use_count; k++)
            if (masks_alone(g, bits->uses[k]))
                add_way_back(s, t, bits->uses[k].node);
    }
}

/* ---- the new nodes ---- */

/* Which outputs of n there are, a bit each. */
static uint32_t outputs_of(const ebb_graph *g, ebb_node n)
{
    uint32_t there = 0;
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++)
        there |= ebb_out(g, n, k).i != 0 ? 1u << k : 0u;
    return there;
}

/* Outputs first .. last of n become those of the new node. */
static ebb_status replace_outputs(ebb_edit *e, ebb_node n, const ebb_value *made, uint32_t first,
                                  uint32_t last)
{
    for (uint32_t k = first; k <= last; k++)
        if (ebb_out(e->g, n, k).i != 0)
            EBB_TRY(ebb_edit_replace(e, ebb_out(e->g, n, k), made[k]));
    return NULL;
}

/* z and its bits. */
static ebb_status join_forward(ebb_edit *e, const ebb_epilogue *t, const ways *w, ebb_value *bits)
{
    ebb_graph *g = e->g;
    ebb_value made[6] = {{0}}, in[6], z = ebb_out(g, t->relu, 0);
    ebb_build b = ebb_edit_build(e, t->relu, EBB_PHASE_NONE);
    const bool adds = t->added.i != 0, asked = w->back_count + w->pack_count > 0;
    b.name = ebb_value_name(g, z);
    for (uint32_t i = 0; i < 5; i++)
        in[i] = ebb_in(g, t->maker, i);
    if (adds)
        in[5] = ebb_emit_reshape_like(&b, t->added, in[0]);
    ebb_with_attrs_of(&b, t->maker);
    ebb_emit_node(&b, adds ? EBB_OP_BATCH_NORM_ADD_RELU : EBB_OP_BATCH_NORM_RELU, in, adds ? 6 : 5,
                  made, asked ? 6 : 5, outputs_of(g, t->maker) | 1u | 1u << 5);
    ebb_node joined = b.last;
    ebb_value out = ebb_emit_reshape_like(&b, made[0], z);
    EBB_TRY(b.status);
    EBB_TRY(replace_outputs(e, t->maker, made, 1, 4));
    ebb_keep_name(g, joined, t->maker);
    *bits = made[5];
    return ebb_epilogue_joined(e, t, out, made[5], w->packs, w->pack_count);
}

static ebb_status join_back(ebb_edit *e, const way_back *w, ebb_value bits)
{
    ebb_graph *g = e->g;
    ebb_value made[4] = {{0}}, in[6], through = ebb_out(g, w->mask, 0);
    ebb_build b = ebb_edit_build(e, w->read_elsewhere ? w->mask : w->norm, EBB_PHASE_NONE);
    b.name = ebb_text(g, ebb_node_of(g, w->norm)->name);
    for (uint32_t i = 1; i < 5; i++)
        in[i] = ebb_in(g, w->norm, i);
    in[0] = ebb_emit_reshape_like(&b, ebb_in(g, w->mask, 0), in[1]);
    in[5] = bits;
    ebb_emit_node(&b, EBB_OP_BATCH_NORM_RELU_GRAD, in, 6, made, w->read_elsewhere ? 4 : 3,
                  outputs_of(g, w->norm) | 1u << 3);
    ebb_value out = w->read_elsewhere ? ebb_emit_reshape_like(&b, made[3], through) : through;
    EBB_TRY(b.status);
    EBB_TRY(replace_outputs(e, w->norm, made, 0, 2));
    ebb_edit_remove(e, w->norm);
    if (!w->read_elsewhere)
        return NULL; // the mask and its views are swept
    return ebb_edit_swap(e, w->mask, out);
}

static ebb_status join(const state *s, const ebb_epilogue *t)
{
    ways w = {.back_count = 0};
    ebb_value bits, z = ebb_out(s->e->g, t->relu, 0);
    w.pack_count = ebb_epilogue_packs(s->e->g, z, w.packs);
    find_grads(s, &w, z, EBB_EPILOGUE_VIEWS);
    find_masks(s, &w);
    EBB_TRY(join_forward(s->e, t, &w, &bits));
    for (uint32_t i = 0; i < w.back_count; i++)
        EBB_TRY(join_back(s->e, &w.back[i], bits));
    return NULL;
}

const ebb_epilogue_kind ebb_epilogue_norm = {is_norm, decline, join};
