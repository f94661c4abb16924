/* sample-matmul: of the input of a linear layer, keep a share of the rows, chosen at random.
 *
 *   before   dW = H' G                                    H [n, d] is kept for this
 *   after    rows, w = ai.ebb.SampleRows(H, norms, key)   k = ratio n of the rows, and weights
 *            S = w * H[rows]                              S [k, d] is kept
 *            dW = S' G[rows]
 *            norms <- |G_i|: state, for the next step
 *
 * The rows of the largest |H_i| |G_i| are taken for sure, the others with a chance in proportion to
 * it and a weight that makes up for it. The backward's |G_i| is not known yet, so that of the same
 * row in the last step stands for it, raised to an eighth of the mean: no row is without a chance,
 * and whatever the norms are (in the first step they are all 1) the mean of dW over draws is H' G.
 * Layers that read one H share the rows, with the norms of their G side by side. Beside 16 bits the
 * norms are float32; those of float16 are made of widened G, whose squares pass its range, and a
 * row of a step that overflowed keeps the norm that it had.
 *
 * Lossy: unbiased, without a bound on one draw (the offer's error is 1, as large as the gradient).
 * The forward, dX and the bias's gradient stay exact. The product has k rows instead of n, so it is
 * a shorter step.
 *
 * Declines where the backward reads H, or a view of it, for another reason, where H stays to the
 * end of the step anyway, and where the rows kept with their norms would not be smaller.
 *
 * Paper: Liu et al., "Winner-take-all column row sampling for memory efficient adaptation of
 * language model", NeurIPS 2023.
 */
#include "exec/weigh/estimate.h"
#include "passes/memory/linear.h"

#include <math.h>

/* Of the norms: float32 beside 16 bits. */
static ebb_dtype norm_dtype(const ebb_graph *g, const ebb_linear_group *group)
{
    return ebb_value_of(g, group->root)->type->dtype == EBB_F64 ? EBB_F64 : EBB_F32;
}

static int64_t norm_bytes(const ebb_graph *g, const ebb_linear_group *group)
{
    int64_t bits = (int64_t)ebb_dtype_bits(norm_dtype(g, group));
    return (group->n * bits / 8 + EBB_ALIGN - 1) / EBB_ALIGN * EBB_ALIGN;
}

static bool widens(const ebb_graph *g, const ebb_linear_group *group)
{
    return ebb_value_of(g, group->root)->type->dtype == EBB_F16;
}

static void weigh(ebb_offer *offer, const ebb_graph *g, const ebb_linear_group *group, int64_t k)
{
    const double n = (double)group->n, share = (double)k / n;
    const double whole = (double)ebb_linear_bytes(g, group, group->n, group->d);
    const int64_t part = ebb_linear_bytes(g, group, k, group->d);
    offer->saved_bytes -= part + norm_bytes(g, group);
    offer->saved_bytes -= (k * (int64_t)sizeof(int64_t) + EBB_ALIGN - 1) / EBB_ALIGN * EBB_ALIGN;
    offer->added_ns += ebb_roofline_ns(g, 2 * n * (double)group->d, whole) +
                       ebb_roofline_ns(g, 0, 4 * (double)part);
    for (size_t i = 0; i < group->count; i++) {
        int64_t e = ebb_linear_columns(g, &group->sites[i]);
        int64_t rows = ebb_linear_bytes(g, group, k, e);
        double all = (double)ebb_linear_bytes(g, group, group->n, e);
        int64_t wide = widens(g, group) ? 2 * ebb_linear_bytes(g, group, group->n, e) : 0;
        int64_t most = rows > wide ? rows : wide;
        offer->transient_bytes = most > offer->transient_bytes ? most : offer->transient_bytes;
        offer->added_ns += ebb_roofline_ns(g, 2 * n * (double)e, all + 2 * (double)rows);
        offer->added_ns -= (1 - share) * ebb_node_ns(g, group->sites[i].node);
    }
}

/* State of n ones: the norms before there are any. */
static ebb_status add_norms(ebb_edit *e, const ebb_linear_group *group, ebb_value *norms)
{
    ebb_graph *g = e->g;
    const int64_t dims[1] = {group->n};
    ebb_type type = ebb_type_tensor(norm_dtype(g, group), 1, dims);
    bool wide = type.dtype == EBB_F64;
    char *name = ebb_arena_printf(e->scratch, "ebb.norms.%s", ebb_value_name(g, group->root));
    void *ones = ebb_arena_alloc(e->scratch, (size_t)group->n * (wide ? 8 : 4));
    EBB_GOT(name && ones);
    for (int64_t i = 0; i < group->n; i++)
        if (wide)
            ((double *)ones)[i] = 1;
        else
            ((float *)ones)[i] = 1;
    return ebb_graph_add_initializer(g, norms, name, &type, ones, EBB_ROLE_OPTIMIZER);
}

/* The rows' norms of all G side by side, once the last of them is there. */
static ebb_status bind_norms(ebb_edit *e, const ebb_linear_group *group, ebb_value norms)
{
    const int64_t axis = 1;
    const ebb_linear_site *sites = group->sites, *last = &sites[group->count - 1];
    const ebb_dtype dtype = norm_dtype(e->g, group);
    ebb_build b = ebb_edit_build(e, last->node, EBB_PHASE_NONE);
    ebb_value next = EBB_NO_VALUE;
    b.name = ebb_value_name(e->g, group->root);
    for (size_t i = 0; i < group->count; i++) {
        b.before = sites[i].node;
        ebb_value g = ebb_in(e->g, sites[i].node, 1 - sites[i].slot);
        ebb_op op = group->count == 1 ? EBB_OP_REDUCE_L2 : EBB_OP_REDUCE_SUM_SQUARE;
        if (widens(e->g, group))
            g = ebb_emit_cast(&b, g, dtype);
        ebb_value own = ebb_emit_cast(&b, ebb_emit_reduce(&b, op, g, &axis, 1, false), dtype);
        next = i == 0 ? own : ebb_emit(&b, EBB_OP_ADD, next, own);
    }
    if (group->count > 1)
        next = ebb_emit(&b, EBB_OP_SQRT, next);
    if (widens(e->g, group)) {
        ebb_value most = ebb_const_scalar(&b, EBB_F32, (double)INFINITY);
        next = ebb_emit(&b, EBB_OP_WHERE, ebb_emit(&b, EBB_OP_LESS, next, most), next, norms);
    }
    EBB_TRY(b.status);
    return ebb_graph_bind(e->g, norms, next);
}

static ebb_status rewrite(ebb_edit *e, const ebb_linear_group *group, int64_t k)
{
    ebb_value key, norms, matrix, drawn[2];
    EBB_TRY(ebb_random_key(e, &key));
    EBB_TRY(add_norms(e, group, &norms));
    ebb_build b = ebb_linear_after(e, group, &matrix);
    EBB_TRY(b.status);
    ebb_with_int(&b, "k", k);
    ebb_with_int(&b, "stream", ebb_random_stream(e->g, b.name));
    ebb_emit_node(&b, EBB_OP_SAMPLE_ROWS, (ebb_value[]){matrix, norms, key}, 3, drawn, 2, 3);
    ebb_value part = ebb_emit(&b, EBB_OP_GATHER, matrix, drawn[0]);
    part = ebb_emit(&b, EBB_OP_MUL, part, drawn[1]);
    EBB_TRY(b.status);
    EBB_TRY(bind_norms(e, group, norms));
    for (size_t i = 0; i < group->count; i++) {
        ebb_linear_site s = group->sites[i];
        ebb_build at = ebb_edit_build_for(e, s.node);
        ebb_value g = ebb_emit(&at, EBB_OP_GATHER, ebb_in(e->g, s.node, 1 - s.slot), drawn[0]);
        EBB_TRY(at.status);
        EBB_TRY(ebb_linear_replace(e, &s, part, g));
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_linear_plan plan = {
        .weigh = weigh, .rewrite = rewrite, .ratio = ebb_option_float(e, "ratio")};
    return ebb_linear_visit(e, &plan);
}

// clang-format off
static const ebb_option options[] = {
    {"ratio", EBB_OPTION_FLOAT, "0.3", "(0, 1)", "share of the rows that is kept, above 0 and below 1"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_sample_matmul = {
    .name = "sample-matmul",
    .doc = "keep a random share of the rows of linear layers' inputs for the weight gradient",
    .paper = "Liu et al., Winner-take-all column row sampling, NeurIPS 2023",
    .exactness = EBB_LOSSY,
    .options = options,
    .run = run,
};
