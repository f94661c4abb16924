/* experts: a layer of experts in one operator, as onnxruntime's exporters write it.
 *
 *   MoE(x, router, W1, b1?, W2, b2?, W3?, b3?)
 *   QMoE(x, router, codes1, scales1, b1?, codes2 ..., zero points, router_weights?)
 *
 *   p = Softmax(router),  w, chosen = TopK(p, k)          tokens x k
 *   rows of x, each k times, in the order of their experts: one product for the rows of an expert
 *   y = the sum of w (act(x W1' + b1) W2' + b2) over a token's experts
 *
 * What a row goes to is an index, so nothing flows through the choice; the router learns through w. The shares of
 * a token's experts are made to add up to 1 where normalize_routing_weights says so, and by QMoE that has no
 * router_weights in any case: onnxruntime's kernel for processors asks the attribute beside these alone.
 * Weights in few bits stay as the file has them (ai.ebb ExpertsMatMulCodes). accuracy_level is not followed.
 */
#include "passes/flatten/dialect/dialect.h"

#include <math.h>

typedef struct weights { /* of one of the three products; b: none where there is no bias */
    ebb_value w, b, scales, zeros;
    int64_t bits; /* 0: floats */
} weights;

typedef struct layer {
    weights fc[3];
    bool normalised; /* a token's shares add up to 1 */
    ebb_value mix;   /* what is weighed with instead of the router's softmax; none: that */
    int64_t tokens, hidden, experts, k, rows;
    int64_t block; /* codes that share a scale; 0: a row */
    ebb_value of;  /* the expert of each row, in order */
} layer;

static bool says(const ebb_foreign *f, const char *attribute, const char *otherwise,
                 const char *word)
{
    return strcmp(ebb_attr_string(&f->attrs, attribute, otherwise), word) == 0;
}

/* ---- what is there ---- */

static void take_floats(layer *l, const ebb_foreign *f)
{
    for (uint32_t i = 0; i < 3; i++)
        l->fc[i] = (weights){.w = f->x[2 + 2 * i], .b = f->x[3 + 2 * i]};
    l->normalised = ebb_attr_int(&f->attrs, "normalize_routing_weights", 0) != 0;
}

static void take_codes(layer *l, const ebb_foreign *f)
{
    static const char *const own[3] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                       "fc3_expert_weight_bits"};
    for (uint32_t i = 0; i < 3; i++)
        l->fc[i] =
            (weights){.w = f->x[2 + 3 * i],
                      .scales = f->x[3 + 3 * i],
                      .b = f->x[4 + 3 * i],
                      .zeros = f->x[11 + i],
                      .bits = ebb_attr_int(&f->attrs, own[i],
                                           ebb_attr_int(&f->attrs, "expert_weight_bits", 4))};
    l->mix = f->x[14];
    l->normalised = l->mix.i == 0 || ebb_attr_int(&f->attrs, "normalize_routing_weights", 0) != 0;
    l->block = ebb_attr_int(&f->attrs, "block_size", 0);
}

/* Forms that are read by nobody here, or that no exporter for a processor writes. */
static const char *unread(const ebb_foreign *f, const layer *l)
{
    if (ebb_attr_int(&f->attrs, "use_sparse_mixer", 0) != 0)
        return "use_sparse_mixer is not computed";
    if (ebb_attr_int(&f->attrs, "swiglu_limit_after_activation", 0) != 0)
        return "swiglu_limit_after_activation is not computed";
    if (!says(f, "quant_type", "int", "int"))
        return "quant_type is not 'int': quantise the experts to integers of 2, 4 or 8 bits";
    if (ebb_attr_int(&f->attrs, "weights_prepacked", -1) == 1)
        return "the weights are packed for one kind of device (weights_prepacked): export without";
    for (int i = 0; i < 3; i++)
        if (l->fc[i].scales.i != 0 && l->fc[i].bits != 2 && l->fc[i].bits != 4 &&
            l->fc[i].bits != 8)
            return "expert_weight_bits is none of 2, 4 and 8";
    return NULL;
}

static const char *incomplete(const ebb_build *b, const ebb_foreign *f, const layer *l)
{
    if (f->x[0].i == 0 || f->x[1].i == 0 || l->fc[0].w.i == 0 || l->fc[1].w.i == 0)
        return "input, router or weights are missing";
    for (int i = 0; i < 3; i++)
        if (l->fc[i].bits != 0 && l->fc[i].w.i != 0 && l->fc[i].scales.i == 0)
            return "weights in few bits have no scales";
    const ebb_type *x = ebb_build_type(b, f->x[0]), *router = ebb_build_type(b, f->x[1]);
    if (x->rank < 2 || router->rank != 2)
        return "input 0 has fewer than two dims, or input 1, the router's scores, is no matrix";
    if (l->block < 0 || (l->block > 0 && (l->block < 16 || (l->block & (l->block - 1)) != 0)))
        return "block_size is no power of 2 from 16 on";
    return NULL;
}

/* Sizes, which must be known: rows are as many as tokens have experts. */
static const char *measure(const ebb_build *b, const ebb_foreign *f, layer *l)
{
    const ebb_type *x = ebb_build_type(b, f->x[0]), *router = ebb_build_type(b, f->x[1]);
    int64_t count;
    l->hidden = x->dims[x->rank - 1];
    l->tokens = router->dims[0];
    l->experts = router->dims[1];
    l->k = ebb_attr_int(&f->attrs, "k", 1);
    if (!ebb_type_elements(x, &count) || l->tokens < 0 || l->experts < 0)
        return NULL;
    if (l->hidden < 1 || count != l->tokens * l->hidden)
        return "input 1 has not one row of scores for each token of input 0";
    if (l->k < 1 || l->k > l->experts)
        return "k, the experts of a token, is not a number from 1 to all of them";
    l->rows = l->tokens * l->k;
    return NULL;
}

/* ---- products ---- */

/* Zero points of whole rows: one for each, in rows of all of them; read as bytes, a row each. */
static ebb_value zeros_apart(ebb_build *b, const ebb_foreign *f, const weights *w, int64_t experts,
                             int64_t n)
{
    const ebb_tensor *t = ebb_value_constant(b->g, w->zeros);
    const int64_t bytes = (n * w->bits + 7) / 8, dims[2] = {experts * n, 1};
    int64_t count;
    if (t == NULL || t->data == NULL || t->type.dtype != EBB_U8 ||
        !ebb_type_elements(&t->type, &count) || count != experts * bytes) {
        ebb_foreign_refuse(b, f, EBB_REJECTED,
                           "zero points of whole rows are no constant of one for each row");
        return EBB_NO_VALUE;
    }
    uint8_t *each = ebb_arena_alloc(f->scratch, (size_t)(experts * n) + 1);
    if (!ebb_build_got(b, each))
        return EBB_NO_VALUE;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t i = 0; i < n; i++)
            each[e * n + i] =
                (uint8_t)ebb_bits_get((const uint8_t *)t->data + e * bytes, i, (unsigned)w->bits);
    const ebb_type type = ebb_type_tensor(EBB_U8, 2, dims);
    return ebb_const_tensor(b, &type, each);
}

static ebb_value zeros_of(ebb_build *b, const ebb_foreign *f, const layer *l, const weights *w,
                          int64_t n)
{
    int64_t count;
    if (w->zeros.i == 0)
        return ebb_emit_middle(b, w->bits);
    if (l->block == 0)
        return zeros_apart(b, f, w, l->experts, n);
    if (!ebb_type_elements(ebb_build_type(b, w->zeros), &count) || count % (l->experts * n) != 0)
        return w->zeros; // inference says what is wrong with it
    return ebb_emit_reshape(b, w->zeros,
                            (const int64_t[]){l->experts * n, count / (l->experts * n)}, 2);
}

/* Of codes: a row of a matrix is as long as what it is multiplied with. */
static ebb_value by_codes(ebb_build *b, const ebb_foreign *f, const layer *l, const weights *w,
                          ebb_value x, int64_t n)
{
    const int64_t k = ebb_build_type(b, x)->dims[1];
    ebb_value zeros = zeros_of(b, f, l, w, n), table = ebb_emit_levels(b, w->scales, w->bits, NULL);
    ebb_with_int(b, "experts", l->experts);
    ebb_with_int(b, "N", n);
    ebb_with_int(b, "K", k);
    ebb_with_int(b, "bits", w->bits);
    ebb_with_int(b, "block_size", l->block > 0 ? l->block : k);
    return ebb_emit(b, EBB_OP_EXPERTS_MATMUL_CODES, x, w->w, w->scales, zeros, table, l->of);
}

static bool fits_rows(const ebb_type *bias, const ebb_type *w)
{
    return bias->rank == 2 && bias->dims[0] == w->dims[0] && bias->dims[1] == w->dims[1];
}

/* x W' + b, each row by its expert's. */
static ebb_value product(ebb_build *b, const ebb_foreign *f, const layer *l, const weights *w,
                         ebb_value x)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    const ebb_type type = *ebb_build_type(b, w->w);
    if (type.rank != 3 || type.dims[0] != l->experts || type.dims[1] < 1)
        ebb_foreign_refuse(b, f, EBB_REJECTED, "weights are not [experts, rows, columns]");
    else if (w->b.i != 0 && !fits_rows(ebb_build_type(b, w->b), &type))
        ebb_foreign_refuse(b, f, EBB_REJECTED, "a bias is not [experts, rows of their weights]");
    if (b->status != NULL)
        return EBB_NO_VALUE;
    ebb_value y = w->bits != 0 ? by_codes(b, f, l, w, x, type.dims[1])
                               : ebb_emit(b, EBB_OP_EXPERTS_MATMUL, x, w->w, l->of);
    return w->b.i == 0 ? y : ebb_emit(b, EBB_OP_ADD, y, ebb_emit(b, EBB_OP_GATHER, w->b, l->of));
}

/* ---- activations ---- */

static ebb_value sigmoid_of(ebb_build *b, ebb_value x, double slope)
{
    return ebb_emit(b, EBB_OP_SIGMOID, slope == 1 ? x : ebb_emit_scaled(b, x, slope));
}

/* The two halves of rows: neighbours, or the first and the second half. */
static ebb_value half(ebb_build *b, ebb_value x, bool neighbours, int64_t which)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    const int64_t size = ebb_build_type(b, x)->dims[1] / 2, pairs[3] = {0, size, 2},
                  flat[2] = {0, size};
    if (!neighbours)
        return ebb_emit_between(b, x, 1, which * size, (which + 1) * size);
    ebb_value apart = ebb_emit_shaped(b, x, pairs, 3);
    return ebb_emit_shaped(b, ebb_emit_between(b, apart, 2, which, which + 1), flat, 2);
}

static ebb_value swiglu(ebb_build *b, const ebb_foreign *f, ebb_value gate, ebb_value linear)
{
    const double limit = ebb_attr_float(&f->attrs, "swiglu_limit", (double)INFINITY);
    if (isfinite(limit)) {
        gate = ebb_emit(b, EBB_OP_MIN, gate, ebb_const_like(b, gate, limit));
        linear = ebb_emit(b, EBB_OP_CLIP, linear, ebb_const_like(b, linear, -limit),
                          ebb_const_like(b, linear, limit));
    }
    const double beta = ebb_attr_float(&f->attrs, "activation_beta", 0);
    ebb_value slope = sigmoid_of(b, gate, ebb_attr_float(&f->attrs, "activation_alpha", 1));
    return ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_MUL, gate, slope),
                    beta == 0 ? linear : ebb_emit_shifted(b, linear, beta));
}

static ebb_value activated(ebb_build *b, const ebb_foreign *f, ebb_value x)
{
    static const char word[] = "activation_type", otherwise[] = "relu";
    if (says(f, word, otherwise, "relu"))
        return ebb_emit(b, EBB_OP_RELU, x);
    if (says(f, word, otherwise, "gelu"))
        return ebb_emit(b, EBB_OP_MS_FAST_GELU, x);
    if (says(f, word, otherwise, "silu"))
        return ebb_emit(b, EBB_OP_MUL, x, sigmoid_of(b, x, 1));
    if (!says(f, word, otherwise, "identity"))
        ebb_foreign_refuse(b, f, EBB_UNSUPPORTED,
                           "activation_type is none of relu, gelu, silu, swiglu and identity");
    return x;
}

/* What the second product reads. */
static ebb_value between(ebb_build *b, const ebb_foreign *f, const layer *l, ebb_value x)
{
    const int64_t fusion = ebb_attr_int(&f->attrs, "swiglu_fusion", 0);
    const bool gated = says(f, "activation_type", "relu", "swiglu");
    ebb_value first = product(b, f, l, &l->fc[0], x);
    if (gated && (fusion == 1 || fusion == 2)) {
        if (b->status == NULL && ebb_build_type(b, first)->dims[1] % 2 != 0)
            ebb_foreign_refuse(b, f, EBB_REJECTED,
                               "gates and what they let through are an odd number of rows");
        ebb_value through = half(b, first, fusion == 1, 1);
        return swiglu(b, f, half(b, first, fusion == 1, 0), through);
    }
    if (gated && l->fc[2].w.i == 0)
        ebb_foreign_refuse(b, f, EBB_REJECTED,
                           "swiglu has neither swiglu_fusion nor a third product");
    ebb_value third = l->fc[2].w.i != 0 ? product(b, f, l, &l->fc[2], x) : EBB_NO_VALUE;
    if (gated)
        return swiglu(b, f, first, third);
    first = activated(b, f, first);
    return third.i != 0 ? ebb_emit(b, EBB_OP_MUL, first, third) : first;
}

/* ---- the layer ---- */

/* The places of a list's elements in rising order; equal ones stay in theirs. sorted: the elements so. */
static ebb_value order_of(ebb_build *b, ebb_value list, int64_t count, ebb_value *sorted)
{
    ebb_value y[2] = {EBB_NO_VALUE, EBB_NO_VALUE};
    ebb_with_int(b, "largest", 0);
    ebb_emit_node(b, EBB_OP_TOP_K, (ebb_value[]){list, ebb_const_ints(b, &count, 1)}, 2, y, 2,
                  UINT32_MAX);
    if (sorted != NULL)
        *sorted = y[0];
    return y[1];
}

/* How much of each of its experts a token gets, [tokens, k]; *chosen: which these are. */
static ebb_value choose(ebb_build *b, const ebb_foreign *f, const layer *l, ebb_value *chosen)
{
    ebb_value y[2] = {EBB_NO_VALUE, EBB_NO_VALUE};
    ebb_with_int(b, "axis", -1);
    ebb_value p = ebb_emit(b, EBB_OP_SOFTMAX, f->x[1]);
    ebb_emit_node(b, EBB_OP_TOP_K, (ebb_value[]){p, ebb_const_ints(b, &l->k, 1)}, 2, y, 2,
                  UINT32_MAX);
    *chosen = y[1];
    if (l->mix.i != 0) {
        ebb_with_int(b, "axis", 1);
        y[0] = ebb_emit(b, EBB_OP_GATHER_ELEMENTS, l->mix, y[1]);
    }
    if (!l->normalised)
        return y[0];
    return ebb_emit(b, EBB_OP_DIV, y[0],
                    ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, y[0], &(int64_t){-1}, 1, true));
}

static ebb_value mixed(ebb_build *b, const ebb_foreign *f, layer *l)
{
    const int64_t flat[2] = {l->tokens, l->hidden}, list[1] = {l->rows},
                  each[3] = {l->tokens, l->k, l->hidden}, share[3] = {l->tokens, l->k, 1};
    ebb_value chosen;
    ebb_value w = choose(b, f, l, &chosen);
    ebb_value order = order_of(b, ebb_emit_reshape(b, chosen, list, 1), l->rows, &l->of);
    ebb_value back = order_of(b, order, l->rows, NULL);
    ebb_value token = ebb_emit(b, EBB_OP_DIV, order, ebb_const_like(b, order, (double)l->k));
    ebb_value x = ebb_emit(b, EBB_OP_GATHER, ebb_emit_reshape(b, f->x[0], flat, 2), token);
    ebb_value y = product(b, f, l, &l->fc[1], between(b, f, l, x));
    y = ebb_emit_reshape(b, ebb_emit(b, EBB_OP_GATHER, y, back), each, 3);
    y = ebb_emit(b, EBB_OP_MUL, y, ebb_emit_reshape(b, w, share, 3));
    return ebb_emit_reshape_like(
        b, ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, y, &(int64_t){1}, 1, false), f->x[0]);
}

static void put_in(ebb_build *b, ebb_foreign *f, layer *l)
{
    const char *why = unread(f, l), *wrong = incomplete(b, f, l);
    if (why == NULL && wrong == NULL)
        wrong = measure(b, f, l);
    if (why != NULL)
        ebb_foreign_refuse(b, f, EBB_UNSUPPORTED, why);
    else if (wrong != NULL)
        ebb_foreign_refuse(b, f, EBB_REJECTED, wrong);
    else if (l->rows == 0)
        f->declines = "the number of its tokens is not known";
    else
        f->y[0] = mixed(b, f, l);
}

void ebb_dialect_moe(ebb_build *b, ebb_foreign *f)
{
    layer l = {0};
    take_floats(&l, f);
    put_in(b, f, &l);
}

void ebb_dialect_qmoe(ebb_build *b, ebb_foreign *f)
{
    layer l = {0};
    take_codes(&l, f);
    put_in(b, f, &l);
}
