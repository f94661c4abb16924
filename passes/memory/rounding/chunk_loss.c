/* chunk-loss: the last linear layer, its loss and their gradients by blocks of rows, so that the
 * scores of all rows never exist.
 *
 *   before   scores = MatMul(x, w)                      [rows, classes], the largest tensor of a
 *            loss, p = SoftmaxCrossEntropyLoss(scores, t)                       language model
 *            ds = SoftmaxCrossEntropyLossGrad(1, p, t)  [rows, classes]
 *            dx = MatMul(ds, w'),  dw = MatMul(x', ds)
 *   after    loss, dx, dw = ai.ebb.LinearCrossEntropy(x, w, bias?, t, weights?) {rows}
 *
 * One sweep makes the scores of a block, turns them into their gradient, and adds that to dx and
 * dw: as many products as before. Gradients are made where the loss is, for a loss gradient of 1;
 * where another one arrives, they are multiplied by it at their old places.
 *
 * Between the layer and the loss may stand a bias, and whatever leaves rows as they are: Reshape
 * and kin, Transpose of the classes' axis, and Slice, which then takes rows of x instead (a
 * language model that predicts its own input drops the last position). And a Cast, where a layer in
 * 16 bits has its loss in float32: loss, dw and the bias's gradient are then float32 from the
 * start. In float16 all is float32 within, x and dx too: its gradients need the scale of the loss,
 * which they are given behind the sweep.
 *
 * Where the layer's matrix is one in few bits, or an adapter stands beside it, the blocks are nodes, one behind
 * the other (chunk_blocks.c): then nothing of the matrix is trained.
 *
 * Rows whose label is ignored cost no product: the operator passes them by, and the blocks of nodes have zeros
 * there, which the kernels of the layer's product do not multiply. So nothing need be known of how many there are:
 * no operator more, and no bound on them.
 *
 * Rounding: sums over rows are made block by block.
 *
 * Declines where scores, log-probabilities or gradients are read by something else too, and where
 * one block would hold all rows.
 *
 * Paper: Hsu et al., "Liger kernel: efficient Triton kernels for LLM training", arXiv 2410.10989;
 * Wijmans et al., "Cut your losses in large-vocabulary language models", arXiv 2411.09009.
 */
#include "exec/weigh/estimate.h"
#include "passes/memory/rounding/chunk_sites.h"

static const ebb_type *type_of(const ebb_chunk_site *s, ebb_value v)
{
    return ebb_value_of(s->g, v)->type;
}

/* ---- blocks ---- */

/* Rows of a block: a sixteenth of all, but not so few that products are slow, nor so many that the
 * block is more than tens of MiB; all blocks about alike. */
static int64_t block_of(const ebb_chunk_site *s, int64_t rows, size_t size)
{
    enum { PARTS = 16, FEWEST = 64, MOST_BYTES = 64 << 20 };
    int64_t given = ebb_option_int(s->e, "rows");
    if (given > 0)
        return given;
    int64_t block = (rows + PARTS - 1) / PARTS, most = MOST_BYTES / (int64_t)size / s->classes;
    block = block > most ? most : block;
    block = block < FEWEST ? FEWEST : block;
    int64_t blocks = (rows + block - 1) / block;
    return (rows + blocks - 1) / blocks;
}

/* Three products over all rows, in blocks: each block reads w and the sum of its gradient anew. */
static double products_ns(const ebb_graph *g, const ebb_type *scores, double rows, double block,
                          double inner, double classes)
{
    ebb_dtype dtype = (ebb_dtype)scores->dtype;
    double size = (double)ebb_dtype_bits(dtype) / 8;
    double blocks = rows / block, w = inner * classes * size, flops = 2 * block * inner * classes;
    double moved = w + block * (inner + classes) * size;
    return blocks * (2 * ebb_product_ns(g, dtype, flops, moved) +
                     ebb_product_ns(g, dtype, flops, moved + w));
}

static const char *choose_block(ebb_chunk_site *s, ebb_offer *offer)
{
    const ebb_type *scores = type_of(s, ebb_in(s->g, s->loss, 0)), *x = type_of(s, s->x);
    int64_t elements;
    size_t bytes, size = ebb_dtype_bits((ebb_dtype)scores->dtype) / 8;
    if (!ebb_type_elements(scores, &elements) || !ebb_type_bytes(scores, &bytes))
        return ebb_chunk_unknown_shape;
    int64_t rows = elements / s->classes, inner = x->dims[x->rank - 1];
    s->block = block_of(s, rows, size);
    if (s->block >= rows)
        return "one block would hold all rows";
    offer->value = ebb_out(s->g, s->loss, 1);
    offer->saved_bytes = (int64_t)bytes;
    offer->transient_bytes = s->block * s->classes * (int64_t)size;
    double n = (double)rows, k = (double)inner, c = (double)s->classes, block = (double)s->block;
    offer->added_ns =
        products_ns(s->g, scores, n, block, k, c) - products_ns(s->g, scores, n, n, k, c);
    return NULL;
}

/* ---- the rewriting ---- */

/* The new value takes the old one's uses and, where it can, its name. */
static ebb_status put(ebb_chunk_site *s, ebb_value old, ebb_value with)
{
    ebb_graph *g = s->g;
    if (!ebb_value_is_held(g, old) && (ebb_value_of(g, with)->flags & EBB_IS_OUTPUT) == 0)
        EBB_TRY(ebb_value_take_name(g, with, old));
    return ebb_edit_replace(s->e, old, with);
}

/* The same number in float32: what it was before it was cast, where that is known. */
static ebb_value wide(const ebb_chunk_site *s, ebb_build *b, ebb_value v)
{
    if (v.i == 0)
        return v;
    ebb_node n = ebb_value_of(s->g, v)->producer;
    bool known = n.i != 0 && ebb_node_of(s->g, n)->op == EBB_OP_CAST &&
                 type_of(s, ebb_in(s->g, n, 0))->dtype == EBB_F32;
    return known ? ebb_in(s->g, n, 0) : ebb_emit_cast(b, v, EBB_F32);
}

/* A gradient in 16 bits that is only cast to float32: the cast's. */
static ebb_value behind_cast(const ebb_chunk_site *s, ebb_value v)
{
    ebb_node n = ebb_only_user(s->g, v);
    bool widens = s->widened && n.i != 0 && ebb_node_of(s->g, n)->op == EBB_OP_CAST &&
                  type_of(s, ebb_out(s->g, n, 0))->dtype == EBB_F32;
    return widens ? ebb_out(s->g, n, 0) : v;
}

/* One gradient at its old place: scaled, with all rows, in its old shape. */
static ebb_status put_gradient(ebb_chunk_site *s, ebb_value old, ebb_value made)
{
    if (old.i == 0)
        return NULL;
    double scale;
    ebb_value dy = ebb_in(s->g, s->grad, 0);
    bool rows = ebb_same_value(old, s->dx) || ebb_same_value(old, s->dlow);
    old = rows ? old : behind_cast(s, old);
    ebb_type type = *type_of(s, old);
    ebb_build b = ebb_edit_build(s->e, ebb_value_of(s->g, old)->producer, EBB_PHASE_NONE);
    b.name = ebb_value_name(s->g, old);
    if (!ebb_scalar_of(s->g, dy, &scale) || scale != 1)
        made =
            ebb_emit(&b, EBB_OP_MUL, ebb_emit_cast(&b, made, (ebb_dtype)type_of(s, dy)->dtype), dy);
    made = ebb_emit_cast(&b, made, (ebb_dtype)type.dtype);
    if (rows)
        made = ebb_chunk_uncut_rows(s, &b, made, type.dims[type.rank - 1]);
    made = ebb_emit_reshape(&b, made, type.dims, type.rank);
    EBB_TRY(b.status);
    return put(s, old, made);
}

enum { LOSS, DX, DW, DBIAS, OUTPUTS };

/* One operator for the whole: scores of a block exist within it. */
static ebb_status put_operator(const ebb_chunk_site *s, ebb_build *b, ebb_chunk_made *made)
{
    ebb_attrs attrs = ebb_node_attrs(s->g, s->loss);
    ebb_value in[5] = {EBB_NO_VALUE, s->w, s->bias, ebb_in(s->g, s->loss, 1),
                       ebb_in(s->g, s->loss, 2)};
    ebb_value out[OUTPUTS] = {{0}};
    in[0] = ebb_chunk_cut_rows(s, b, s->x);
    if (type_of(s, s->x)->dtype == EBB_F16) {
        in[0] = ebb_emit_cast(b, in[0], EBB_F32);
        in[1] = wide(s, b, in[1]);
    }
    if (s->widened)
        in[2] = wide(s, b, in[2]);
    if (in[2].i != 0)
        in[2] = ebb_emit_reshape(b, in[2], &s->classes, 1);
    if (s->turned)
        ebb_with_int(b, "transB", 1);
    if (s->alpha != 1)
        ebb_with_float(b, "alpha", s->alpha);
    ebb_with_string(b, "reduction", ebb_attr_string(&attrs, "reduction", "mean"));
    if (ebb_attr_find(&attrs, "ignore_index") != NULL)
        ebb_with_int(b, "ignore_index", ebb_attr_int(&attrs, "ignore_index", 0));
    ebb_with_int(b, "rows", s->block);
    if (type_of(s, s->x)->dtype == EBB_F64)
        ebb_with_int(b, "to", EBB_F64);
    uint32_t wanted =
        1u | (s->dx.i != 0 ? 2u : 0) | (s->dw.i != 0 ? 4u : 0) | (s->dbias.i != 0 ? 8u : 0);
    ebb_emit_node(b, EBB_OP_LINEAR_CROSS_ENTROPY, in, 5, out, OUTPUTS, wanted);
    *made = (ebb_chunk_made){.loss = out[LOSS], .dx = out[DX], .dw = out[DW], .dbias = out[DBIAS]};
    return b->status;
}

static ebb_status rewrite(ebb_chunk_site *s)
{
    ebb_graph *g = s->g;
    ebb_build b = ebb_edit_build(s->e, s->loss, EBB_PHASE_NONE);
    ebb_chunk_made made = {.loss = EBB_NO_VALUE};
    b.name = ebb_node_name(g, s->loss);
    EBB_TRY(s->frozen || s->low.i != 0 ? ebb_chunk_put_blocks(s, &b, &made)
                                       : put_operator(s, &b, &made));
    ebb_keep_name(g, b.last, s->loss);
    EBB_TRY(put_gradient(s, s->dx, made.dx));
    EBB_TRY(put_gradient(s, s->dw, made.dw));
    EBB_TRY(put_gradient(s, s->dbias, made.dbias));
    EBB_TRY(put_gradient(s, s->dlow, made.dlow));
    EBB_TRY(put_gradient(s, s->dup, made.dup));
    EBB_TRY(put(s, ebb_out(g, s->loss, 0), made.loss));
    ebb_applied(s->e);
    return NULL;
}

static ebb_status visit(ebb_edit *e, ebb_node n)
{
    ebb_chunk_site s;
    ebb_offer offer = {.saved_bytes = 0};
    const char *reason = ebb_chunk_site_find(&s, e, n);
    if (reason == NULL)
        reason = choose_block(&s, &offer);
    if (reason != NULL)
        return ebb_declined(e, n, reason);
    ebb_found(e);
    return ebb_offered(e, n, &offer) ? rewrite(&s) : NULL;
}

static ebb_status run(ebb_edit *e)
{
    EBB_EACH_NODE(e->g, n)
        if (ebb_node_of(e->g, n)->op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS)
            EBB_TRY(visit(e, n));
    return NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"rows", EBB_OPTION_INT, "0", "[0, inf)", "rows of a block; 0: a sixteenth, at least 64, at most 64 MiB of scores"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_chunk_loss = {
    .name = "chunk-loss",
    .doc = "last linear layer, cross-entropy and their gradients by blocks of rows",
    .paper = "Hsu et al., Liger kernel, arXiv 2410.10989",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
