/* fuse: put together again what exporters take apart.
 *
 *   before   u = Div(x, 1.4142)  e = Erf(u)  a = Add(e, 1)  m = Mul(x, a)  y = Mul(m, 0.5)
 *   after    y = Gelu(x)                        only x is kept for the backward, not u, e, a and m
 *
 *   before   t = Transpose(w)  p = MatMul(x, t)
 *   after    p = FusedMatMul(x, w) {transB = 1}     no copy of w, neither here nor in the backward
 *
 *   before   p = MatMul(x [b, s, k], w)  y = Add(p, bias)
 *   after    r = Reshape(x)  q = Gemm(r, w, bias)  y = Reshape(q)       views take no memory
 *
 * Also: GELU by tanh, SiLU, quick-GELU, Mish, LayerNorm, RMSNorm, LogSoftmax with NLL loss, a
 * constant factor around a MatMul, SplitToSequence with SequenceAt (Split), slices that take a
 * tensor apart (Split; fuse_slices.c), products with a quantised weight (fuse_codes.c).
 *
 * Rounding: the same mathematics, rounded inside one kernel instead of after each node.
 */
#include "passes/common.h"
#include "passes/parameters/noted.h"
#include "passes/primal/fuse_codes.h"
#include "passes/primal/fuse_norm.h"
#include "passes/primal/fuse_slices.h"
#include "passes/parameters/weights.h"

/* ---- pointwise chains, as rules ---- */

/* The standard operator where the file's opset has it, else ONNX Runtime's. */
static void gelu(ebb_build *b, const ebb_match *m, ebb_value *root)
{
    ebb_value x = ebb_match_value(m, "x");
    if (ebb_model_opset(b->g->model, "") >= 20)
        *root = ebb_emit(b, EBB_OP_GELU, x);
    else
        *root = ebb_emit(b, EBB_OP_MS_GELU, x);
}

static void gelu_tanh(ebb_build *b, const ebb_match *m, ebb_value *root)
{
    ebb_value x = ebb_match_value(m, "x");
    if (ebb_model_opset(b->g->model, "") >= 20) {
        ebb_with_string(b, "approximate", "tanh");
        *root = ebb_emit(b, EBB_OP_GELU, x);
    } else {
        *root = ebb_emit(b, EBB_OP_MS_FAST_GELU, x);
    }
}

static void silu(ebb_build *b, const ebb_match *m, ebb_value *root)
{
    ebb_with_float(b, "alpha", 1);
    *root = ebb_emit(b, EBB_OP_MS_QUICK_GELU, ebb_match_value(m, "x"));
}

static void quick_gelu(ebb_build *b, const ebb_match *m, ebb_value *root)
{
    ebb_with_float(b, "alpha", 1.702);
    *root = ebb_emit(b, EBB_OP_MS_QUICK_GELU, ebb_match_value(m, "x"));
}

static void mish(ebb_build *b, const ebb_match *m, ebb_value *root)
{
    *root = ebb_emit(b, EBB_OP_MISH, ebb_match_value(m, "x"));
}

static const char *has_no_mish(const ebb_match *m)
{
    return ebb_model_opset(m->g->model, "") >= 18 ? NULL : "the model's opset is below 18: no Mish";
}

static void cross_entropy(ebb_build *b, const ebb_match *m, ebb_value *root)
{
    const ebb_graph *g = b->g;
    ebb_with_attrs_of(b, m->nodes[1]); // reduction, ignore_index: the same attributes
    *root = ebb_emit(b, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, ebb_match_value(m, "x"),
                     ebb_match_value(m, "t"), ebb_in(g, m->nodes[1], 2));
}

static const char *not_over_classes(const ebb_match *m)
{
    ebb_attrs attrs = ebb_node_attrs(m->g, m->nodes[0]);
    int64_t axis = ebb_attr_int(&attrs, "axis", -1);
    int rank = ebb_value_of(m->g, ebb_match_value(m, "x"))->type->rank;
    return axis == 1 || (axis == -1 && rank == 2) ? NULL
                                                  : "the LogSoftmax is not over the classes' axis";
}

#define ERF_DIV "u = Div(x, 1.4142135623730951)  e = Erf(u)  a = Add(e, 1.0)  "
#define ERF_MUL "u = Mul(x, 0.7071067811865476)  e = Erf(u)  a = Add(e, 1.0)  "
#define TANH_POW                                                                             \
    "c = Pow(x, 3.0)  k = Mul(c, 0.044715)  s = Add(x, k)  u = Mul(s, 0.7978845608028654)  " \
    "e = Tanh(u)  a = Add(e, 1.0)  "
#define TANH_MUL                                                          \
    "q = Mul(x, x)  c = Mul(q, x)  k = Mul(c, 0.044715)  s = Add(x, k)  " \
    "u = Mul(s, 0.7978845608028654)  e = Tanh(u)  a = Add(e, 1.0)  "
#define HALF_LAST "m = Mul(x, a)  y = Mul(m, 0.5)"
#define HALF_FIRST "h = Mul(x, 0.5)  y = Mul(h, a)"
#define HALF_BETWEEN "h = Mul(a, 0.5)  y = Mul(x, h)"

// clang-format off
static const ebb_rule rules[] = {
    {"gelu-erf",             ERF_DIV HALF_LAST,     NULL, NULL, gelu},
    {"gelu-erf-half-first",  ERF_DIV HALF_FIRST,    NULL, NULL, gelu},
    {"gelu-erf-half-between", ERF_DIV HALF_BETWEEN, NULL, NULL, gelu},
    {"gelu-erf-mul",             ERF_MUL HALF_LAST,     NULL, NULL, gelu},
    {"gelu-erf-mul-half-first",  ERF_MUL HALF_FIRST,    NULL, NULL, gelu},
    {"gelu-erf-mul-half-between", ERF_MUL HALF_BETWEEN, NULL, NULL, gelu},
    {"gelu-tanh",              TANH_POW HALF_LAST,    NULL, NULL, gelu_tanh},
    {"gelu-tanh-half-first",   TANH_POW HALF_FIRST,   NULL, NULL, gelu_tanh},
    {"gelu-tanh-half-between", TANH_POW HALF_BETWEEN, NULL, NULL, gelu_tanh},
    {"gelu-tanh-mul",              TANH_MUL HALF_LAST,    NULL, NULL, gelu_tanh},
    {"gelu-tanh-mul-half-first",   TANH_MUL HALF_FIRST,   NULL, NULL, gelu_tanh},
    {"gelu-tanh-mul-half-between", TANH_MUL HALF_BETWEEN, NULL, NULL, gelu_tanh},
    {"silu", "s = Sigmoid(x)  y = Mul(x, s)", NULL, NULL, silu},
    {"quick-gelu", "u = Mul(x, 1.702)  s = Sigmoid(u)  y = Mul(x, s)", NULL, NULL, quick_gelu},
    {"mish", "s = Softplus(x)  t = Tanh(s)  y = Mul(x, t)", NULL, has_no_mish, mish},
    {"cross-entropy", "p = LogSoftmax(x)  y = NegativeLogLikelihoodLoss(p, t)", NULL, not_over_classes, cross_entropy},
};
// clang-format on

/* ---- matmul ---- */

static int rank_of(const ebb_graph *g, ebb_value v)
{
    return v.i == 0 ? -1 : ebb_value_of(g, v)->type->rank;
}

static bool is_matmul(ebb_op op)
{
    return op == EBB_OP_MATMUL || op == EBB_OP_FUSED_MATMUL;
}

/* v = Transpose(w) of the last two axes alone: w, or none. */
static ebb_value transposed(const ebb_graph *g, ebb_value v)
{
    ebb_node n = ebb_value_of(g, v)->producer;
    if (n.i == 0 || ebb_node_of(g, n)->op != EBB_OP_TRANSPOSE)
        return EBB_NO_VALUE;
    int rank = rank_of(g, ebb_in(g, n, 0));
    ebb_attrs attrs = ebb_node_attrs(g, n);
    uint32_t count;
    const int64_t *perm = ebb_attr_ints(&attrs, "perm", &count);
    if (rank < 2 || (perm == NULL ? rank != 2 : count != (uint32_t)rank))
        return EBB_NO_VALUE;
    for (int d = 0; perm != NULL && d < rank; d++) {
        int64_t want = d == rank - 2 ? rank - 1 : d == rank - 1 ? rank - 2 : d;
        if (perm[d] != want)
            return EBB_NO_VALUE;
    }
    return ebb_in(g, n, 0);
}

/* A lone constant number; not "exp" of a temperature that is trained, which must be there when weights
 * are looked for. */
static bool is_factor(const ebb_graph *g, ebb_value v, double *c)
{
    bool made = (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0 &&
                ebb_name_is_after(ebb_value_name(g, v), "exp") && !g->model->torchscript &&
                ebb_is_from_pytorch(g);
    return ebb_scalar_of(g, v, c) && !made;
}

/* v = s x or x / d with a constant s or d of one element, read by this matmul alone: x, and
 * *factor. */
static ebb_value scaled(const ebb_graph *g, ebb_value v, double *factor)
{
    ebb_node n = ebb_value_of(g, v)->producer;
    double c;
    if (n.i == 0 || ebb_only_user(g, v).i == 0)
        return EBB_NO_VALUE;
    ebb_op op = ebb_node_of(g, n)->op;
    for (uint32_t i = 0; i < (op == EBB_OP_MUL ? 2u : op == EBB_OP_DIV ? 1u : 0u); i++) {
        ebb_value x = ebb_in(g, n, i), s = ebb_in(g, n, 1 - i);
        if (!is_factor(g, s, &c) || rank_of(g, s) > rank_of(g, x) ||
            ebb_value_constant(g, x) != NULL || (op == EBB_OP_DIV && c == 0))
            continue;
        *factor = op == EBB_OP_MUL ? c : 1 / c;
        return x;
    }
    return EBB_NO_VALUE;
}

static bool take_in_operand(const ebb_graph *g, ebb_value *v, bool *turned, double *alpha)
{
    double factor;
    ebb_value inner = transposed(g, *v);
    if (inner.i != 0) {
        *v = inner;
        *turned = !*turned;
        return true;
    }
    inner = scaled(g, *v, &factor);
    if (inner.i == 0 || rank_of(g, inner) != rank_of(g, *v))
        return false;
    *v = inner;
    *alpha *= factor;
    return true;
}

/* Which of two nodes names the one that is made of both: the product, whose path is a module's, where
 * the file has names. */
static ebb_node named_of(const ebb_graph *g, ebb_node maker, ebb_node n)
{
    const bool named = ebb_text(g, ebb_node_of(g, n)->name)[0] != '\0' &&
                       ebb_text(g, ebb_node_of(g, maker)->name)[0] != '\0';
    return named ? maker : n;
}

/* The attributes of a product that is not the plainest. */
static void put_product(ebb_build *b, const ebb_product *p)
{
    if (p->alpha != 1)
        ebb_with_float(b, "alpha", p->alpha);
    if (p->turn_a)
        ebb_with_int(b, "transA", 1);
    if (p->turn_b)
        ebb_with_int(b, "transB", 1);
}

/* Replaces node `last`, which made the product's value, by one FusedMatMul there. */
static ebb_status emit_product(ebb_edit *e, ebb_node last, ebb_node named, const ebb_product *p)
{
    ebb_graph *g = e->g;
    ebb_build b = ebb_edit_build(e, last, EBB_PHASE_NONE);
    b.name = ebb_node_name(g, named);
    put_product(&b, p);
    ebb_value y = ebb_emit(&b, EBB_OP_FUSED_MATMUL, p->a, p->b);
    EBB_TRY(b.status);
    ebb_keep_name(g, b.last, named);
    EBB_TRY(ebb_noted_keep(g, b.last, named));
    ebb_applied(e);
    return ebb_edit_swap(e, last, y);
}

static ebb_status fuse_operands(ebb_edit *e, ebb_node n)
{
    const ebb_graph *g = e->g;
    ebb_product p;
    if (!ebb_read_product(&p, g, n) || rank_of(g, p.a) < 2 || rank_of(g, p.b) < 2)
        return NULL;
    bool changed = false;
    while (take_in_operand(g, &p.a, &p.turn_a, &p.alpha) ||
           take_in_operand(g, &p.b, &p.turn_b, &p.alpha))
        changed = true;
    if (!changed)
        return NULL;
    ebb_found(e);
    return emit_product(e, n, n, &p);
}

/* n = Mul(MatMul(a, b), s) or Div by s. */
static ebb_status fuse_scale(ebb_edit *e, ebb_node n)
{
    const ebb_graph *g = e->g;
    ebb_op op = ebb_node_of(g, n)->op;
    for (uint32_t i = 0; i < (op == EBB_OP_MUL ? 2u : 1u); i++) {
        ebb_value v = ebb_in(g, n, i), s = ebb_in(g, n, 1 - i);
        ebb_node maker = ebb_value_of(g, v)->producer;
        double c;
        if (maker.i == 0 || !is_matmul(ebb_node_of(g, maker)->op) || ebb_only_user(g, v).i == 0 ||
            s.i == 0 || !is_factor(g, s, &c) || rank_of(g, v) < 2 ||
            rank_of(g, s) > rank_of(g, v) || (op == EBB_OP_DIV && c == 0))
            continue;
        ebb_product p;
        if (!ebb_read_product(&p, g, maker) || rank_of(g, p.a) < 2 || rank_of(g, p.b) < 2)
            continue;
        p.alpha *= op == EBB_OP_MUL ? c : 1 / c;
        ebb_found(e);
        return emit_product(e, n, named_of(g, maker, n), &p);
    }
    return NULL;
}

/* ---- bias ---- */

/* x [..., k] as [rows, k]: what it is a view of, a view of it that this pass has made, or a new
 * one. */
static ebb_value as_rows(ebb_build *b, ebb_value x, uint32_t old_nodes)
{
    const ebb_graph *g = b->g;
    const ebb_value_info *info = ebb_value_of(g, x);
    const ebb_node maker = info->producer;
    int64_t dims[2] = {1, info->type->dims[info->type->rank - 1]};
    for (int d = 0; d + 1 < info->type->rank; d++)
        dims[0] *= info->type->dims[d];
    const ebb_type rows = ebb_type_tensor((ebb_dtype)info->type->dtype, 2, dims);
    if (maker.i != 0 && ebb_node_of(g, maker)->op == EBB_OP_RESHAPE &&
        ebb_type_same_shape(ebb_value_of(g, ebb_in(g, maker, 0))->type, &rows))
        return ebb_in(g, maker, 0);
    for (size_t k = 0; k < info->use_count; k++) {
        const ebb_node user = info->uses[k].node;
        if (user.i >= old_nodes && ebb_node_of(g, user)->op == EBB_OP_RESHAPE &&
            ebb_type_same_shape(ebb_value_of(g, ebb_out(g, user, 0))->type, &rows))
            return ebb_out(g, user, 0);
    }
    return ebb_emit_reshape(b, x, dims, 2);
}

/* Is it a matrix times a matrix, or rows of any shape that is known times one? */
static bool is_linear(const ebb_graph *g, const ebb_product *p, ebb_value y)
{
    const ebb_type *a = ebb_value_of(g, p->a)->type;
    int64_t elements = 0;
    if (rank_of(g, p->b) != 2 || a->rank < 2 || a->rank != rank_of(g, y))
        return false;
    if (a->rank == 2)
        return true;
    return !p->turn_a && ebb_type_is_static(a) &&
           ebb_type_elements(ebb_value_of(g, y)->type, &elements) && elements > 0;
}

static ebb_status emit_linear(ebb_edit *e, ebb_node n, ebb_node maker, ebb_product p,
                              ebb_value bias, uint32_t old_nodes)
{
    ebb_graph *g = e->g;
    const ebb_node named = named_of(g, maker, n);
    const ebb_value old = ebb_out(g, n, 0);
    const ebb_type y = *ebb_value_of(g, old)->type;
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    b.name = ebb_node_name(g, named);
    if (y.rank > 2)
        p.a = as_rows(&b, p.a, old_nodes);
    put_product(&b, &p);
    ebb_value out = ebb_emit(&b, EBB_OP_GEMM, p.a, p.b, bias);
    const ebb_node gemm = b.last;
    if (y.rank > 2)
        out = ebb_emit_reshape(&b, out, y.dims, y.rank);
    EBB_TRY(b.status);
    ebb_keep_name(g, gemm, named);
    EBB_TRY(ebb_noted_keep(g, gemm, named));
    ebb_applied(e);
    return ebb_edit_swap(e, n, out);
}

/* n = Add(MatMul(a, b), bias), b a matrix and bias a vector: Gemm, on the rows of a. */
static ebb_status fuse_bias(ebb_edit *e, ebb_node n, uint32_t old_nodes)
{
    ebb_graph *g = e->g;
    for (uint32_t i = 0; i < 2; i++) {
        ebb_value v = ebb_in(g, n, i), bias = ebb_in(g, n, 1 - i);
        ebb_node maker = ebb_value_of(g, v)->producer;
        if (maker.i == 0 || !is_matmul(ebb_node_of(g, maker)->op) || ebb_only_user(g, v).i == 0 ||
            rank_of(g, bias) != 1 || rank_of(g, v) < 2)
            continue;
        ebb_product p;
        const ebb_type *y = ebb_value_of(g, v)->type, *c = ebb_value_of(g, bias)->type;
        if (!ebb_read_product(&p, g, maker) || !is_linear(g, &p, v) || y->dims[y->rank - 1] < 0 ||
            c->dims[0] != y->dims[y->rank - 1] || !ebb_dtype_is_float((ebb_dtype)y->dtype))
            continue;
        ebb_found(e);
        return emit_linear(e, n, maker, p, bias, old_nodes);
    }
    return NULL;
}

/* ---- the pass ---- */

static ebb_status fuse_node(ebb_edit *e, ebb_node n, uint32_t old_nodes)
{
    bool done = false;
    switch (ebb_node_of(e->g, n)->op) {
    case EBB_OP_ADD:
        EBB_TRY(ebb_fuse_layer_norm(e, n, &done));
        return done ? NULL : fuse_bias(e, n, old_nodes);
    case EBB_OP_MUL:
        EBB_TRY(ebb_fuse_rms_norm(e, n, &done));
        if (!done)
            EBB_TRY(ebb_fuse_integer_product(e, n, &done));
        return done ? NULL : fuse_scale(e, n);
    case EBB_OP_DIV:
        return fuse_scale(e, n);
    case EBB_OP_GEMM:
        return ebb_fuse_dequantized(e, n, &done);
    case EBB_OP_SLICE:
        return ebb_fuse_slices(e, n);
    case EBB_OP_MATMUL:
    case EBB_OP_FUSED_MATMUL:
        EBB_TRY(ebb_fuse_dequantized(e, n, &done));
        return done ? NULL : fuse_operands(e, n);
    default:
        return NULL;
    }
}

static ebb_status run(ebb_edit *e)
{
    EBB_TRY(ebb_rules_apply(e, rules, sizeof rules / sizeof *rules));
    const uint32_t old_nodes = (uint32_t)e->g->node_count;
    EBB_EACH_NODE(e->g, n)
        EBB_TRY(fuse_node(e, n, old_nodes));
    return NULL;
}

const ebb_pass ebb_pass_fuse = {
    .name = "fuse",
    .doc = "put decomposed GELU, SiLU, norms, losses and matrix products together again; products "
           "with "
           "quantised weights decode what they read",
    .exactness = EBB_ROUNDING,
    .run = run,
};
