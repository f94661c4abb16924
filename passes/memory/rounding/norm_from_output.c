/* norm-from-output: the backward of a norm reads what the norm made, where that is kept anyway.
 *
 *   before   y = LayerNormalization(x, s, t)      h = MatMul(y, w)
 *            dw = MatMul(y', dh)                             y is kept for this
 *            dx = LayerNormalizationGrad(dy, x, s, mean, r)  x and the mean are kept for this alone
 *   after    dx = ai.ebb.LayerNormGradFromOutput(dy, y, s, t, r)
 *
 * The same for RMS, batch, group and instance norm: xhat = (y - t) / s. One large tensor less for
 * each norm whose output a product, a convolution or an activation keeps.
 *
 * Rounding: y was rounded by u, so xhat is off by u (|t| + |s xhat|) / |s|: `amplify` bounds
 * (|t| + |s|) / |s| over the scales s and biases t of a norm, by their values at the time of
 * rewriting. They change in training: a scale that shrinks to a tenth makes that ten times larger,
 * never unbounded: the kernels take |s| as at least 2^-24 |t|, below which y has nothing left of
 * xhat. A scale that is exactly 0 gets the gradient 0 and stays; such norms are declined.
 *
 * Declines where x stays anyway or is read in the backward for another reason, where y is kept for
 * nobody else, and where rounding would grow by more than `amplify`.
 *
 * Paper: Andoorveedu et al., "Tempo: accelerating transformer-based model training through memory
 * footprint reduction", NeurIPS 2022, for LayerNorm.
 */
#include "passes/memory/rounding/norm_sites.h"

typedef struct state {
    ebb_edit *e;
    ebb_saves saves;
    ebb_norm_site *sites;
    size_t count;
    uint32_t *asked; /* by root of x: sites that can do without it */
    int8_t *taken;   /* by root of x: 1: they do, -1: the plan refused, 0: not yet decided */
    double limit;
    ebb_norm_guard guard;
} state;

static const char no_gain[] = "its output is kept for nobody else: one tensor would be kept for "
                              "another";

static ebb_value root_of(const state *s, ebb_value v)
{
    return ebb_saves_root(&s->saves, v);
}

/* y is there in the backward whatever happens to this site. */
static bool stays(const state *s, ebb_value y)
{
    ebb_value root = root_of(s, y);
    return root.i < s->saves.value_count && (s->saves.kept[root.i] || s->saves.reads[root.i] > 0);
}

static ebb_status collect(state *s)
{
    const ebb_graph *g = s->e->g;
    s->sites = EBB_SCRATCH(s->e, ebb_norm_site, g->node_count);
    s->asked = EBB_SCRATCH(s->e, uint32_t, s->saves.value_count);
    s->taken = EBB_SCRATCH(s->e, int8_t, s->saves.value_count);
    EBB_GOT(s->sites && s->asked && s->taken);
    EBB_EACH_NODE(g, n) {
        ebb_norm_site *site = &s->sites[s->count];
        if (!ebb_norm_site_find(site, g, n))
            continue;
        s->count++;
        if (site->refused == NULL && !stays(s, site->y))
            site->refused = no_gain;
        if (site->refused == NULL)
            ebb_norm_site_measure(site, g, (ebb_norm_act){.slope = 1});
        if (site->refused == NULL && ebb_norm_site_guard(site, g, s->limit) == NULL)
            s->asked[root_of(s, site->x).i]++;
    }
    return NULL;
}

/* All sites that read x, together. */
static const char *decide(state *s, const ebb_norm_site *site)
{
    const ebb_graph *g = s->e->g;
    ebb_value root = root_of(s, site->x);
    if (!s->saves.forward[root.i])
        return "its input is made by the backward";
    if (s->saves.kept[root.i])
        return "its input stays to the end of the step anyway";
    if (s->taken[root.i] != 0)
        return s->taken[root.i] > 0 ? NULL : "the plan does without it";
    if (s->saves.reads[root.i] > s->asked[root.i])
        return "the backward reads its input for another reason";
    ebb_offer offer = {.value = root, .saved_bytes = ebb_stored_bytes(g, root)};
    if (offer.saved_bytes == 0)
        return "the size of its input is not known";
    for (size_t i = 0; i < s->count; i++)
        if (s->sites[i].refused == NULL && ebb_same_value(root_of(s, s->sites[i].x), root))
            offer.saved_bytes += ebb_norm_site_mean_bytes(g, &s->sites[i]);
    s->taken[root.i] = ebb_offered(s->e, site->grad, &offer) ? 1 : -1;
    return NULL;
}

static ebb_status visit(state *s, ebb_norm_site *site)
{
    ebb_found(s->e);
    if (site->refused == NULL && !stays(s, site->y))
        site->refused = no_gain; // since what read it reads something else now
    if (site->refused != NULL)
        return ebb_skipped(s->e, site->grad, site->refused);
    const char *reason = ebb_norm_site_guard(site, s->e->g, s->limit);
    if (reason != NULL)
        return ebb_norm_guard_declined(s->e, site, reason);
    reason = decide(s, site);
    if (reason != NULL)
        return ebb_skipped(s->e, site->grad, reason);
    ebb_value root = root_of(s, site->x);
    if (s->taken[root.i] < 0) // just now, and ebb_offered has counted it
        return NULL;
    ebb_value dy = ebb_in(s->e->g, site->grad, 0);
    EBB_TRY(ebb_norm_site_rewrite(s->e, site, dy, site->y, (ebb_norm_act){.slope = 1}));
    s->saves.reads[root.i]--;
    s->asked[root.i]--;
    s->saves.reads[root_of(s, site->y).i]++;
    ebb_norm_guard_passed(&s->guard, site);
    ebb_applied(s->e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e, .limit = ebb_option_float(e, "amplify")};
    EBB_TRY(ebb_saves_find(&s.saves, e->g, e->scratch));
    EBB_TRY(collect(&s));
    for (size_t i = 0; i < s.count; i++)
        EBB_TRY(visit(&s, &s.sites[i]));
    return ebb_norm_guard_note(e, &s.guard);
}

// clang-format off
static const ebb_option options[] = {
    {"amplify", EBB_OPTION_FLOAT, "1000", "[1, inf)", "how many times rounding of the output may grow on its way to the normalised value (1000: 6e-5 in float32; 16-bit types: at most 4)"},
    {NULL, EBB_OPTION_INT, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_norm_from_output = {
    .name = "norm-from-output",
    .doc = "let the backward of a norm read the norm's output where that is kept anyway, and keep its input no more",
    .paper = "Andoorveedu et al., Tempo, NeurIPS 2022",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
// clang-format on
