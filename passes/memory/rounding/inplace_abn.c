/* inplace-abn: of a norm and the activation behind it, keep only what the activation made.
 *
 *   before   y = BatchNorm(x, s, t)   z = LeakyRelu(y)   h = Conv(z, w)
 *            dw = ConvWeightGrad(dh, z)                       z is kept for this
 *            dy = LeakyReluGrad(dz, z)
 *            dx = BatchNormalizationGrad(dy, x, s, mean, r)   x and the mean, for this alone
 *   after    dx = ai.ebb.BatchNormGradFromOutput(dz, z, s, t, r) {slope}
 *
 * Batch, group and instance norm; LeakyRelu with a positive slope, Elu with a positive alpha, or no
 * activation at all. The activation is undone first, then the norm, element by element on the way:
 * neither y nor dy nor xhat is ever in memory, and dx may be written over dz.
 *
 * xhat = (y - t) / s divides by the scale with its sign, so weights with negative scales stay what
 * they are: nothing is trained by another formula.
 *
 * Rounding: as norm-from-output says of `amplify`; an Elu flattens and makes more of it, a
 * LeakyRelu does not.
 *
 * Declines where the activation makes different inputs equal (a ReLU, a Clip), where z is kept for
 * nobody else, where x or dy is read for another reason, and where rounding would grow by more than
 * `amplify`.
 *
 * Paper: Rota Bulo, Porzi, Kontschieder, "In-place activated BatchNorm for memory-optimized
 * training of DNNs", CVPR 2018.
 */
#include "passes/memory/rounding/norm_sites.h"

typedef struct act_site { /* the backward of what stands behind a norm */
    ebb_norm_act act;
    ebb_value dz, z;
    uint32_t own_reads; /* of z, by nodes of the backward that go */
    ebb_value other;    /* y, where the activation's gradient reads that and not z; else none */
    const char *refused;
} act_site;

/* ---- what stands behind the norm ---- */

/* What an operator of the forward makes of y; none where no such reads it. A LeakyRelu must have
 * this slope. */
static ebb_value made_of(const ebb_graph *g, ebb_value y, ebb_op op, double slope)
{
    const ebb_value_info *info = ebb_value_of(g, y);
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        ebb_attrs attrs = ebb_node_attrs(g, n);
        if (ebb_node_of(g, n)->op == op && info->uses[i].slot == 0 && !ebb_is_backward(g, n) &&
            (op != EBB_OP_LEAKY_RELU || ebb_attr_float(&attrs, "alpha", (double)0.01f) == slope))
            return ebb_out(g, n, 0);
    }
    return EBB_NO_VALUE;
}

static void read_leaky(act_site *a, const ebb_graph *g, ebb_node n, ebb_value y)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    double slope = ebb_attr_float(&attrs, "alpha", (double)0.01f);
    ebb_value z = made_of(g, y, EBB_OP_LEAKY_RELU, slope);
    if (z.i == 0)
        return; // of something else that this dy comes from
    a->act.slope = slope;
    a->dz = ebb_in(g, n, 0);
    a->z = z;
    if (!(slope > 0))
        a->refused = "its LeakyRelu has a slope that is not positive, and makes different inputs "
                     "equal";
    else if (ebb_same_value(ebb_in(g, n, 1), z))
        a->own_reads = 1;
    else
        a->other = y;
}

/* Where(z > 0, dz, dz (z + alpha)) of z = Elu(y). */
static bool read_elu(act_site *a, const ebb_graph *g, ebb_node n, ebb_value y)
{
    ebb_node on = ebb_value_of(g, ebb_in(g, n, 0))->producer;
    ebb_node low = ebb_value_of(g, ebb_in(g, n, 2))->producer;
    double zero = 1, alpha = 0;
    if (on.i == 0 || low.i == 0 || ebb_node_of(g, on)->op != EBB_OP_GREATER ||
        ebb_node_of(g, low)->op != EBB_OP_MUL || !ebb_scalar_of(g, ebb_in(g, on, 1), &zero) ||
        zero != 0 || !ebb_same_value(ebb_in(g, low, 0), ebb_in(g, n, 1)))
        return false;
    ebb_value z = ebb_in(g, on, 0);
    ebb_node raised = ebb_value_of(g, ebb_in(g, low, 1))->producer;
    ebb_node elu = ebb_value_of(g, z)->producer;
    if (raised.i == 0 || elu.i == 0 || ebb_node_of(g, raised)->op != EBB_OP_ADD ||
        ebb_node_of(g, elu)->op != EBB_OP_ELU || !ebb_same_value(ebb_in(g, elu, 0), y) ||
        !ebb_same_value(ebb_in(g, raised, 0), z) ||
        !ebb_scalar_of(g, ebb_in(g, raised, 1), &alpha) || !(alpha > 0))
        return false;
    a->act.elu = alpha;
    a->dz = ebb_in(g, n, 1);
    a->z = z;
    a->own_reads = 2;
    return true;
}

/* An activation that is behind y and cannot be undone, or whose bits are kept. */
static void read_flat(act_site *a, const ebb_graph *g, ebb_value y)
{
    if (made_of(g, y, EBB_OP_RELU, 0).i != 0)
        a->refused = "a ReLU cannot be undone: what was below 0 is 0 in its output";
    else if (made_of(g, y, EBB_OP_CLIP, 0).i != 0)
        a->refused = "a Clip cannot be undone: what was beyond a bound is the bound in its output";
}

/* By what makes dy. An activation that is none of ours leaves y as what may be kept. */
static act_site read_activation(const ebb_graph *g, const ebb_norm_site *site)
{
    ebb_value dy = ebb_in(g, site->grad, 0);
    ebb_node n = ebb_value_of(g, dy)->producer;
    act_site a = {.act = {.slope = 1}, .dz = dy, .z = site->y};
    switch (n.i != 0 ? ebb_node_of(g, n)->op : EBB_OP_UNKNOWN) {
    case EBB_OP_LEAKY_RELU_GRAD:
        read_leaky(&a, g, n, site->y);
        break;
    case EBB_OP_RELU_GRAD:
    case EBB_OP_CLIP_GRAD:
    case EBB_OP_MASK_GRAD:
        read_flat(&a, g, site->y);
        break;
    case EBB_OP_WHERE:
        (void)read_elu(&a, g, n, site->y);
        break;
    default:
        break;
    }
    bool acts = !ebb_same_value(a.z, site->y);
    if (a.refused == NULL && acts && ebb_only_user(g, dy).i == 0)
        a.refused = "the gradient of its output is read for another reason";
    return a;
}

/* ---- decide ---- */

static const char *declines(const ebb_saves *saves, const ebb_graph *g, const ebb_norm_site *site,
                            const act_site *a, ebb_offer *offer)
{
    ebb_value x = ebb_saves_root(saves, site->x), z = ebb_saves_root(saves, a->z);
    if (!saves->forward[x.i])
        return "its input is made by the backward";
    if (saves->kept[x.i])
        return "its input stays to the end of the step anyway";
    if (saves->reads[x.i] > 1)
        return "the backward reads its input for another reason";
    if (!saves->kept[z.i] && saves->reads[z.i] <= a->own_reads)
        return "what it makes is kept for nobody else: one tensor would be kept for another";
    *offer = (ebb_offer){.value = x, .saved_bytes = ebb_stored_bytes(g, x)};
    if (offer->saved_bytes == 0)
        return "the size of its input is not known";
    offer->saved_bytes += ebb_norm_site_mean_bytes(g, site);
    if (a->other.i != 0) {
        ebb_value y = ebb_saves_root(saves, a->other);
        if (!saves->kept[y.i] && saves->reads[y.i] == 1)
            offer->saved_bytes += ebb_stored_bytes(g, y);
    }
    return NULL;
}

static void account(ebb_saves *saves, const ebb_norm_site *site, const act_site *a)
{
    ebb_value x = ebb_saves_root(saves, site->x), z = ebb_saves_root(saves, a->z);
    saves->reads[x.i]--;
    saves->reads[z.i] += 1 - a->own_reads;
    if (a->other.i != 0)
        saves->reads[ebb_saves_root(saves, a->other).i]--;
}

static ebb_status visit(ebb_edit *e, ebb_saves *saves, ebb_norm_site *site, double limit,
                        ebb_norm_guard *guard)
{
    ebb_offer offer;
    if (site->refused != NULL)
        return ebb_declined(e, site->grad, site->refused);
    act_site a = read_activation(e->g, site);
    ebb_found(e);
    if (a.refused != NULL)
        return ebb_skipped(e, site->grad, a.refused);
    const char *reason = declines(saves, e->g, site, &a, &offer);
    if (reason != NULL)
        return ebb_skipped(e, site->grad, reason);
    ebb_norm_site_measure(site, e->g, a.act);
    if (site->refused != NULL)
        return ebb_skipped(e, site->grad, site->refused);
    reason = ebb_norm_site_guard(site, e->g, limit);
    if (reason != NULL)
        return ebb_norm_guard_declined(e, site, reason);
    if (!ebb_offered(e, site->grad, &offer))
        return NULL;
    EBB_TRY(ebb_norm_site_rewrite(e, site, a.dz, a.z, a.act));
    account(saves, site, &a);
    ebb_norm_guard_passed(guard, site);
    ebb_applied(e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    double limit = ebb_option_float(e, "amplify");
    ebb_norm_guard guard = {0};
    ebb_saves saves;
    ebb_node next;
    EBB_TRY(ebb_saves_find(&saves, e->g, e->scratch));
    for (ebb_node n = ebb_first(e->g); n.i != 0; n = next) {
        ebb_norm_site site;
        next = ebb_next(e->g, n);
        if (ebb_norm_site_find(&site, e->g, n) && site.by_channel)
            EBB_TRY(visit(e, &saves, &site, limit, &guard));
    }
    return ebb_norm_guard_note(e, &guard);
}

// clang-format off
static const ebb_option options[] = {
    {"amplify", EBB_OPTION_FLOAT, "1000", "[1, inf)", "how many times rounding of what is kept may grow on its way to the normalised value (1000: 6e-5 in float32; 16-bit types: at most 4)"},
    {NULL, EBB_OPTION_INT, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_inplace_abn = {
    .name = "inplace-abn",
    .doc = "of a batch, group or instance norm with LeakyRelu, Elu or nothing behind it, keep only what that makes",
    .paper = "Rota Bulo et al., In-place activated BatchNorm, CVPR 2018",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
// clang-format on
