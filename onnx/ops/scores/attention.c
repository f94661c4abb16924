/* attention: Y = softmax(scale Q K^T + mask) V as one operator, whose rows' statistics are kept
 * instead of its probabilities; and its gradient, which computes them again.
 *
 * Signatures and meaning stand above the bodies, in bodies_attention.def.
 *
 * Y for the gradient:  Attention -> Y -> Transpose -> T -> Reshape -> Gemm     T lives for dW = T' dy
 *                                                     +-> AttentionGrad         and is Y, turned
 *
 * The gradient is given Y, as it lies or turned, where it is made and something of the backward has
 * read Y already: so it costs no memory but between that reader and this one. From then on it is an
 * operand like any other: no exact pass takes it away, and what a kernel makes of it depends on no
 * decision about memory, so that a step has the same bits with those passes and without. (Were Y
 * filled in where a plan leaves it alive, cuDNN's sums would come from another kernel and ours from
 * other products, according to the budget.) A code for T lets go of it: such passes are lossy.
 * Where nothing reads Y (its projection is frozen), none is kept. In float32 and float64 neither:
 * these are the dtypes of CPUs, whose kernels have whole rows of P and find rowsum(P dP) for nothing.
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

enum { Q, K, V, KEEP, BIAS };
enum { KEY = 5, KEY_OF_GRAD = 8 }; /* where there is a dropout, inputs that are its key */

static bool draws(ebb_op op)
{
    return op == EBB_OP_EBB_ATTENTION_DROPOUT || op == EBB_OP_EBB_ATTENTION_DROPOUT_GRAD;
}

/* Whether K is [..., t, d] and must be turned for the product; k_perm says so as Transpose would.
 */
static ebb_status read_turn(const ebb_infer *c, int rank, bool *turned)
{
    uint32_t count = 0;
    const int64_t *perm = ebb_attr_ints(&c->attrs, "k_perm", &count);
    if (perm == NULL || count != (uint32_t)rank)
        return ebb_infer_error(c, "k_perm has %u entries, K has rank %d", (unsigned)count, rank);
    *turned = perm[rank - 1] == rank - 2;
    for (int i = 0; i < rank; i++) {
        int want = *turned && i >= rank - 2 ? 2 * rank - 3 - i : i;
        if (perm[i] != want)
            return ebb_infer_error(c, "k_perm does more than exchange the last two axes");
    }
    return NULL;
}

static bool differs(int64_t a, int64_t b)
{
    return a >= 0 && b >= 0 && a != b;
}

static ebb_status check_mask(const ebb_infer *c, uint32_t i, const ebb_type *scores)
{
    const ebb_type *mask = ebb_infer_type(c, i);
    if (mask == NULL || mask->rank < 0)
        return NULL;
    if (mask->rank > scores->rank)
        return ebb_infer_error(c, "input %u has more axes than the scores", (unsigned)i);
    for (int a = 0; a < mask->rank; a++) {
        int64_t have = mask->dims[a], want = scores->dims[scores->rank - mask->rank + a];
        if (have != 1 && differs(have, want))
            return ebb_infer_error(c, "input %u does not broadcast to the scores", (unsigned)i);
    }
    return NULL;
}

static ebb_status check_dtypes(const ebb_infer *c, uint32_t q)
{
    EBB_TRY(ebb_infer_same_dtype(c, q + Q, q + K));
    EBB_TRY(ebb_infer_same_dtype(c, q + Q, q + V));
    EBB_TRY(ebb_infer_same_dtype(c, q + Q, q + BIAS));
    const ebb_type *keep = ebb_infer_type(c, q + KEEP);
    if (keep != NULL && keep->dtype != EBB_NONE && keep->dtype != EBB_BOOL)
        return ebb_infer_error(c, "input %u is not bool", (unsigned)(q + KEEP));
    if (!draws(c->op))
        return NULL;
    const ebb_type *key = ebb_infer_type(c, q == 0 ? KEY : KEY_OF_GRAD);
    if (key != NULL && ((key->dtype != EBB_NONE && key->dtype != EBB_I64) || key->rank > 1 ||
                        (key->rank == 1 && differs(key->dims[0], 2) && differs(key->dims[0], 4))))
        return ebb_infer_error(c, "the key is not int64[2] or int64[4]");
    if (ebb_attr_int(&c->attrs, "run", 0) < 0)
        return ebb_infer_error(c, "run is below 0");
    double ratio = ebb_attr_float(&c->attrs, "ratio", -1.0);
    if (!(ratio >= 0.0 && ratio < 1.0))
        return ebb_infer_error(c, "ratio is missing or outside of [0, 1)");
    return NULL;
}

/* Checks Q, K, V, keep and bias, which begin at input q; scores is [..., s, t]. Of rank -1 where
 * the rank is not known. */
static ebb_status check_operands(const ebb_infer *c, uint32_t q, ebb_type *scores)
{
    const ebb_type *t[3] = {c->in[q + Q], c->in[q + K], c->in[q + V]};
    bool turned = false;
    EBB_TRY(check_dtypes(c, q));
    *scores = ebb_type_unranked((ebb_dtype)t[Q]->dtype);
    if (t[Q]->rank < 0 || t[K]->rank < 0 || t[V]->rank < 0)
        return NULL;
    int rank = t[Q]->rank;
    if (rank < 2 || t[K]->rank != rank || t[V]->rank != rank)
        return ebb_infer_error(c,
                               "Q, K and V have ranks %d, %d and %d; one of at least 2 is "
                               "expected",
                               rank, (int)t[K]->rank, (int)t[V]->rank);
    EBB_TRY(read_turn(c, rank, &turned));
    int features = turned ? rank - 1 : rank - 2, keys = turned ? rank - 2 : rank - 1;
    for (int i = 0; i < rank - 2; i++)
        if (differs(t[Q]->dims[i], t[K]->dims[i]) || differs(t[Q]->dims[i], t[V]->dims[i]))
            return ebb_infer_error(c, "axis %d of Q, K and V differs", i);
    if (differs(t[Q]->dims[rank - 1], t[K]->dims[features]))
        return ebb_infer_error(c, "Q has %lld features, K %lld", (long long)t[Q]->dims[rank - 1],
                               (long long)t[K]->dims[features]);
    if (differs(t[K]->dims[keys], t[V]->dims[rank - 2]))
        return ebb_infer_error(c, "K has %lld rows, V %lld", (long long)t[K]->dims[keys],
                               (long long)t[V]->dims[rank - 2]);
    *scores = *t[Q];
    ebb_type_put_dim(scores, rank - 1, t[K], keys);
    EBB_TRY(check_mask(c, q + KEEP, scores));
    return check_mask(c, q + BIAS, scores);
}

/* (Q, K, V, keep, bias, key?) -> Y, max, sum. */
ebb_status ebb_infer_attention(ebb_infer *c)
{
    ebb_type scores;
    EBB_TRY(check_operands(c, 0, &scores));
    c->out[0] = ebb_type_unranked((ebb_dtype)c->in[Q]->dtype);
    for (uint32_t o = 1; o < c->output_count && o < 3; o++)
        c->out[o] = c->out[0];
    if (scores.rank < 0)
        return NULL;
    c->out[0] = *c->in[Q];
    ebb_type_put_dim(&c->out[0], scores.rank - 1, c->in[V], scores.rank - 1);
    for (uint32_t o = 1; o < c->output_count && o < 3; o++) {
        c->out[o] = scores;
        if (ebb_dtype_bits((ebb_dtype)scores.dtype) == 16)
            c->out[o].dtype = EBB_F32;
        ebb_type_set_dim(&c->out[o], scores.rank - 1, 1);
    }
    return NULL;
}

/* The input of the gradient that may be Y. */
static uint32_t output_input(ebb_op op)
{
    return draws(op) ? KEY_OF_GRAD + 1 : KEY_OF_GRAD;
}

/* Y, where it is given, is the result, or what y_perm makes the result of. */
static ebb_status check_output(const ebb_infer *c, const ebb_type *scores)
{
    const uint32_t i = output_input(c->op);
    const ebb_type *y = ebb_infer_type(c, i), *v = c->in[1 + V];
    uint32_t count = 0, seen = 0;
    const int64_t *perm = ebb_attr_ints(&c->attrs, "y_perm", &count);
    const int rank = scores->rank;
    if (y == NULL || rank < 0)
        return NULL;
    EBB_TRY(ebb_infer_same_dtype(c, i, 1));
    if (perm != NULL && count != (uint32_t)rank)
        return ebb_infer_error(c, "y_perm has %u entries, Y has rank %d", (unsigned)count, rank);
    for (int a = 0; a < rank && y->rank >= 0; a++) {
        const int64_t from = perm == NULL ? a : perm[a];
        if (from < 0 || from >= rank || (seen >> from & 1) != 0 || (a == rank - 1 && from != a))
            return ebb_infer_error(c, "y_perm is no order of the axes with the last one last");
        seen |= UINT32_C(1) << from;
        const int64_t want = a < rank - 1 ? scores->dims[a] : v->dims[rank - 1];
        if (y->rank != rank || differs(y->dims[from], want))
            return ebb_infer_error(c, "input %u, the result, has another shape", (unsigned)i);
    }
    return NULL;
}

/* (dY, Q, K, V, keep, bias, max, sum, key?, Y?) -> dQ, dK, dV. */
ebb_status ebb_infer_attention_grad(ebb_infer *c)
{
    ebb_type scores;
    EBB_TRY(check_operands(c, 1, &scores));
    EBB_TRY(ebb_infer_same_dtype(c, 0, 1));
    EBB_TRY(check_output(c, &scores));
    const ebb_type *dy = c->in[0], *v = c->in[1 + V];
    if (scores.rank >= 0 && dy->rank >= 0) {
        if (dy->rank != scores.rank || differs(dy->dims[dy->rank - 1], v->dims[v->rank - 1]))
            return ebb_infer_error(c, "dY has not the shape of the result");
        for (int i = 0; i < dy->rank - 1; i++)
            if (differs(dy->dims[i], c->in[1]->dims[i]))
                return ebb_infer_error(c, "dY has not the shape of the result");
    }
    for (uint32_t i = 6; i < 8 && scores.rank >= 0; i++) {
        ebb_type row = scores;
        ebb_type_set_dim(&row, scores.rank - 1, 1);
        const ebb_type *given = c->in[i];
        if (given->rank < 0)
            continue;
        bool wrong = given->rank != row.rank;
        for (int a = 0; !wrong && a < row.rank; a++)
            wrong = differs(given->dims[a], row.dims[a]);
        if (wrong)
            return ebb_infer_error(c, "input %u is not one number a row", (unsigned)i);
    }
    for (uint32_t o = 0; o < c->output_count && o < 3; o++)
        c->out[o] = *c->in[1 + o];
    return NULL;
}

/* s t d products a pair of factors: forward two, backward five. */
static double product_cost(const ebb_infer *c, uint32_t q, double with_keys, double with_values)
{
    const ebb_type *queries = ebb_infer_type(c, q + Q), *v = ebb_infer_type(c, q + V);
    if (queries == NULL || v == NULL || queries->rank < 2 || v->rank != queries->rank)
        return 0.0;
    int64_t width = queries->dims[queries->rank - 1], values = v->dims[v->rank - 1];
    int64_t t = v->dims[v->rank - 2];
    if (width <= 0 || values < 0 || t < 0)
        return 0.0;
    double scores = ebb_type_count(queries) / (double)width * (double)t;
    return 2.0 * scores * (with_keys * (double)width + with_values * (double)values);
}

double ebb_cost_attention(const ebb_infer *c)
{
    return product_cost(c, 0, 1.0, 1.0);
}

double ebb_cost_attention_grad(const ebb_infer *c)
{
    return product_cost(c, 1, 3.0, 2.0);
}

/* ---- gradient ---- */

/* Whether the backward so far reads v, or a view of it. */
static bool is_kept(const ebb_graph *g, ebb_value v, int depth)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    for (size_t i = 0; i < info->use_count; i++) {
        const ebb_node_info *n = ebb_node_of(g, info->uses[i].node);
        const bool view = ebb_op_has(n->op, EBB_VIEW) && info->uses[i].slot == 0;
        if (view && depth > 0 && is_kept(g, n->out[0], depth - 1))
            return true;
        const bool unread = ebb_op_has(n->op, EBB_SHAPE_OF_0) && info->uses[i].slot == 0;
        if (!view && !unread && n->phase == EBB_BACKWARD)
            return true;
    }
    return false;
}

/* y, or what a Transpose made of it that left rows whole, whichever the backward reads anyway; none:
 * neither. perm: brings it to y. */
static ebb_value kept_output(const ebb_graph *g, ebb_value y, int64_t perm[EBB_MAX_RANK])
{
    enum { VIEWS = 4 };
    const ebb_value_info *info = ebb_value_of(g, y);
    const int rank = info->type->rank;
    for (int a = 0; a < rank; a++)
        perm[a] = a;
    if (is_kept(g, y, VIEWS))
        return y;
    for (size_t i = 0; i < info->use_count; i++) {
        const ebb_node n = info->uses[i].node;
        const ebb_attrs attrs = ebb_node_attrs(g, n);
        uint32_t count = 0;
        const int64_t *turn = ebb_attr_ints(&attrs, "perm", &count);
        if (ebb_node_of(g, n)->op != EBB_OP_TRANSPOSE || count != (uint32_t)rank ||
            turn[rank - 1] != rank - 1 || !is_kept(g, ebb_out(g, n, 0), VIEWS))
            continue;
        for (int a = 0; a < rank; a++)
            perm[turn[a]] = a;
        return ebb_out(g, n, 0);
    }
    return EBB_NO_VALUE;
}

void ebb_emit_attention_grad(ebb_build *b, ebb_node forward, ebb_value dy, ebb_value y,
                             uint32_t wanted, ebb_value *d)
{
    const ebb_graph *g = b->g;
    const bool keyed = draws(ebb_node_of(g, forward)->op);
    ebb_value in[10] = {dy, EBB_NO_VALUE};
    uint32_t count = 1;
    for (uint32_t i = Q; i <= BIAS; i++)
        in[count++] = ebb_in(g, forward, i);
    in[count++] = ebb_out(g, forward, 1);
    in[count++] = ebb_out(g, forward, 2);
    if (keyed)
        in[count++] = ebb_in(g, forward, KEY);
    const ebb_type *t = ebb_build_type(b, in[1 + Q]);
    const int rank = t->rank;
    int64_t perm[EBB_MAX_RANK];
    bool turned = false;
    ebb_with_attrs_of(b, forward);
    if (ebb_dtype_bits((ebb_dtype)t->dtype) == 16) {
        const bool made_again = ebb_node_of(g, forward)->phase == EBB_BACKWARD;
        in[count] = made_again ? ebb_out(g, forward, 0) : kept_output(g, y, perm);
        turned = in[count].i != 0 && !made_again && !ebb_same_value(in[count], y);
        count += in[count].i != 0;
    }
    if (turned)
        ebb_with_ints(b, "y_perm", perm, (uint32_t)rank);
    ebb_emit_node(b, keyed ? EBB_OP_EBB_ATTENTION_DROPOUT_GRAD : EBB_OP_EBB_ATTENTION_GRAD, in,
                  count, d, 3, wanted);
}

void ebb_grad_attention(ebb_build *b, ebb_grad *c)
{
    if (ebb_grad_wants(c, BIAS)) {
        ebb_grad_fail(b, c, "its bias is trained, which needs the gradient of all scores");
        return;
    }
    if ((c->output_count > 1 && c->dy[1].i != 0) || (c->output_count > 2 && c->dy[2].i != 0)) {
        ebb_grad_fail(b, c, "its rows' statistics are used as values");
        return;
    }
    (void)ebb_grad_need_output(b, c, 1, "max");
    (void)ebb_grad_need_output(b, c, 2, "sum");
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < 3; i++)
        wanted |= ebb_grad_wants(c, i) ? UINT32_C(1) << i : 0;
    if (b->status == NULL)
        ebb_emit_attention_grad(b, c->node, c->dy[0], c->y[0], wanted, c->dx);
}
