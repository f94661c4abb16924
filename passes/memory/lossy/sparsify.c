/* sparsify: of the input of a linear layer, keep random mixtures of its rows.
 *
 *   before   dW = H' G                              H [n, d] is kept for this
 *   after    M = ai.ebb.RandomSketch(H, key) = S H  M [k, d] is kept, k = ratio n
 *            dW = M' (S G)                          S [k, n]: random signs by 1 / sqrt(k)
 *
 * The signs come from the key and a stream of Philox, so that the backward mixes G by the same S;
 * nobody ever stores it. The mean of S' S over draws is the identity, so that of dW is H' G.
 * Layers that read one H share M.
 *
 * Lossy: unbiased, without a bound on one draw (the offer's error is 1, as large as the gradient).
 * The forward, dX and the bias's gradient stay exact. S H and S G are products of their own, k n d
 * and k n e multiplications beside the n d e that become k d e: mostly it is a longer step, which
 * the offer says. sample-matmul needs no products for its share of the rows.
 *
 * Declines where the backward reads H, or a view of it, for another reason, where H stays to the
 * end of the step anyway, and where the mixtures would not be smaller.
 *
 * Paper: Bershatsky et al., "Memory-efficient backpropagation through large linear layers", 2022;
 * in the tables of Novikov et al., "Few-bit backward", 2022, with a ratio of 0.2.
 */
#include "exec/weigh/estimate.h"
#include "passes/memory/linear.h"

/* S of k x n by n x columns. */
static double sketch_ns(const ebb_graph *g, const ebb_linear_group *group, int64_t k,
                        int64_t columns)
{
    double products = 2 * (double)k * (double)group->n * (double)columns;
    double draws = EBB_FLOPS_PER_DRAW * (double)k * (double)group->n / 32;
    ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, group->root)->type->dtype;
    return ebb_product_ns(g, dtype, products + draws,
                          (double)ebb_linear_bytes(g, group, group->n, columns) +
                              (double)ebb_linear_bytes(g, group, k, columns));
}

static void weigh(ebb_offer *offer, const ebb_graph *g, const ebb_linear_group *group, int64_t k)
{
    double share = (double)k / (double)group->n;
    offer->saved_bytes -= ebb_linear_bytes(g, group, k, group->d);
    offer->added_ns += sketch_ns(g, group, k, group->d);
    for (size_t i = 0; i < group->count; i++) {
        int64_t e = ebb_linear_columns(g, &group->sites[i]);
        int64_t mixed = ebb_linear_bytes(g, group, k, e);
        offer->transient_bytes = mixed > offer->transient_bytes ? mixed : offer->transient_bytes;
        offer->added_ns += sketch_ns(g, group, k, e);
        offer->added_ns -= (1 - share) * ebb_node_ns(g, group->sites[i].node);
    }
}

static ebb_value sketch(ebb_build *b, ebb_value x, ebb_value key, int64_t k, int64_t stream)
{
    ebb_with_int(b, "rows", k);
    ebb_with_int(b, "stream", stream);
    return ebb_emit(b, EBB_OP_RANDOM_SKETCH, x, key);
}

static ebb_status rewrite(ebb_edit *e, const ebb_linear_group *group, int64_t k)
{
    ebb_value key, matrix;
    EBB_TRY(ebb_random_key(e, &key));
    ebb_build b = ebb_linear_after(e, group, &matrix);
    EBB_TRY(b.status);
    int64_t stream = ebb_random_stream(e->g, b.name);
    ebb_value part = sketch(&b, matrix, key, k, stream);
    EBB_TRY(b.status);
    for (size_t i = 0; i < group->count; i++) {
        ebb_linear_site s = group->sites[i];
        ebb_build at = ebb_edit_build_for(e, s.node);
        ebb_value g = sketch(&at, ebb_in(e->g, s.node, 1 - s.slot), key, k, stream);
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

static const ebb_option options[] = {
    {"ratio", EBB_OPTION_FLOAT, "0.2", "(0, 1)", "mixtures kept for each row, above 0 and below 1"},
    {0},
};

const ebb_pass ebb_pass_sparsify = {
    .name = "sparsify",
    .doc = "keep random mixtures of the rows of linear layers' inputs for the weight gradient",
    .paper =
        "Bershatsky et al., Memory-efficient backpropagation through large linear layers, 2022",
    .exactness = EBB_LOSSY,
    .options = options,
    .run = run,
};
