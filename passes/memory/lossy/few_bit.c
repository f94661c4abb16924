/* few-bit: the derivative of an activation in a few levels: keep which, 1 to 4 bits, not its input.
 *
 *   before   y = Gelu(x)                            dx = GeluGrad(dy, x)          x: 32 bits
 *   after    y = Gelu(x), c = FewBit(x, borders)    dx = FewBitGrad(dy, c, levels)    c: 3 bits
 *
 *   before   y = Softplus(x)                        dx = Mul(dy, Sigmoid(x))
 *   after    y = Softplus(x), c = FewBit(x, borders)    dx = FewBitGrad(dy, c, levels)
 *
 * For GELU, SiLU, quick-GELU, Mish, and what the gradient makes of HardSwish, Softplus, Softsign,
 * Erf and Atan: a product of dy with what is made of x alone. Borders and levels are the best that
 * there are, by a dynamic programme (few_bit_table.h): over the whole line (weight=flat), or where
 * x is N(0, 1) (weight=normal). table=regelu2 takes those of ReGELU2 and ReSiLU2 instead, for
 * comparison; tables=FILE takes what `ebb few-bit --json` has printed.
 *
 * Lossy, with a bias: each derivative is off by what the table is, always the same way. Largest
 * error of f' for GELU with 1, 2, 3 and 4 bits, flat: 0.50, 0.17, 0.13, 0.06.
 *
 * Declines where the derivative comes from the output, which is kept anyway (Tanh, Sigmoid, and
 * Elu, which this pass does not look at); where the backward reads x for another reason, or x stays
 * to the end of the step.
 *
 * Papers: Novikov et al., "Few-bit backward", ICML 2023; Yang et al., ReGELU2, ICML 2024.
 */
#include "exec/weigh/estimate.h"
#include "passes/common.h"
#include "passes/memory/decode.h"
#include "passes/memory/lossy/few_bit_table.h"

typedef struct site {
    ebb_node grad;     /* makes dx of dy */
    ebb_value x, dy;   /* x: none where there is no x to let go */
    const char *named; /* of few_bit_table.h */
    double alpha;
    uint32_t reads; /* of x, that go with the site */
    const char *refused;
} site;

typedef struct kept_table {
    const char *function;
    double alpha;
    bool there;
    ebb_few_bit_table table;
} kept_table;

typedef struct state {
    ebb_edit *e;
    ebb_saves saves;
    site *sites;
    size_t count, capacity;
    kept_table *tables;
    size_t table_count;
    unsigned bits;
    bool normal, regelu2;
    const char *file;
} state;

/* ---- sites ---- */

static site fused_site(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    site s = {.grad = n, .x = ebb_in(g, n, 1), .dy = ebb_in(g, n, 0), .alpha = 1, .reads = 1};
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_GELU_GRAD:
        s.named = "gelu";
        break;
    case EBB_OP_FAST_GELU_GRAD:
        s.named = "gelu-tanh";
        break;
    case EBB_OP_QUICK_GELU_GRAD:
        s.named = "silu";
        s.alpha = ebb_attr_float(&attrs, "alpha", (double)1.702f);
        if (!(s.alpha > 0))
            s.refused = "its alpha is not positive";
        break;
    case EBB_OP_MISH_GRAD:
        s.named = "mish";
        break;
    case EBB_OP_TANH_GRAD:
    case EBB_OP_SIGMOID_GRAD:
        s.named = "";
        s.refused = "its derivative comes from its output, which needs no table";
        break;
    default:
        break;
    }
    return s;
}

/* Functions whose gradient is a product of standard operators. */
static const char *product_of(ebb_op op)
{
    return op == EBB_OP_SOFTPLUS     ? "softplus"
           : op == EBB_OP_SOFTSIGN   ? "softsign"
           : op == EBB_OP_HARD_SWISH ? "hardswish"
           : op == EBB_OP_ERF        ? "erf"
           : op == EBB_OP_ATAN       ? "atan"
                                     : NULL;
}

/* Whether the gradient of what node n, which is not `self`, makes of its inputs may read them. */
static bool may_read(const ebb_graph *g, ebb_node n)
{
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_ADD:
    case EBB_OP_SUB:
    case EBB_OP_SUM:
    case EBB_OP_NEG:
    case EBB_OP_PACK_SIGN:
        return false;
    default:
        return !ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW);
    }
}

/* What node n of the backward reads: of the derivative d(x) that is being followed, of x, of
 * others. */
static void reads_of(const ebb_graph *g, ebb_node n, ebb_value x, const bool *derived,
                     uint32_t *own, uint32_t *direct, uint32_t *others)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    *own = *direct = *others = 0;
    for (uint32_t i = 0; i < info->in_count; i++) {
        ebb_value v = info->in[i];
        if (v.i == 0)
            continue;
        if (ebb_same_value(v, x))
            ++*direct;
        else if (derived[v.i])
            ++*own;
        else if (ebb_value_constant(g, v) == NULL)
            ++*others;
    }
}

/* Follows what the backward makes of x alone up to the one product with something else. */
static void follow(const ebb_graph *g, site *s, bool *derived)
{
    s->refused = "its gradient is not one product of dy with what is made of its input";
    EBB_EACH_NODE(g, n) {
        uint32_t own, direct, others;
        if (!ebb_is_backward(g, n))
            continue;
        reads_of(g, n, s->x, derived, &own, &direct, &others);
        ebb_op op = ebb_node_of(g, n)->op;
        s->reads += direct;
        if (own + direct == 0)
            continue;
        if (others == 0 && ebb_op_has(op, EBB_POINTWISE) && ebb_node_of(g, n)->out_count == 1) {
            derived[ebb_out(g, n, 0).i] = true;
            continue;
        }
        ebb_value a = ebb_in(g, n, 0), b = ebb_in(g, n, 1);
        bool first = op == EBB_OP_MUL && others == 1 && own == 1 && derived[a.i];
        bool second = (op == EBB_OP_MUL || op == EBB_OP_DIV) && others == 1 && own == 1 &&
                      b.i != 0 && derived[b.i];
        if (s->grad.i != 0 || (!first && !second)) {
            s->grad = EBB_NO_NODE;
            return;
        }
        s->grad = n;
        s->dy = first ? b : a;
    }
    if (s->grad.i != 0)
        s->refused = NULL;
}

static ebb_status product_site(state *st, ebb_node n, site *s)
{
    const ebb_graph *g = st->e->g;
    *s = (site){.x = ebb_in(g, n, 0), .alpha = 1, .named = product_of(ebb_node_of(g, n)->op)};
    bool *derived = EBB_SCRATCH(st->e, bool, g->value_count);
    EBB_GOT(derived);
    follow(g, s, derived);
    const ebb_value_info *info = ebb_value_of(g, s->x);
    for (size_t i = 0; i < info->use_count && s->refused == NULL; i++) {
        ebb_node m = info->uses[i].node;
        if (m.i != n.i && !ebb_is_backward(g, m) && may_read(g, m))
            s->refused = "another operator reads its input, too";
    }
    return NULL;
}

static ebb_status collect(state *st)
{
    const ebb_graph *g = st->e->g;
    st->capacity = g->node_count;
    st->sites = EBB_SCRATCH(st->e, site, st->capacity);
    st->tables = EBB_SCRATCH(st->e, kept_table, st->capacity);
    EBB_GOT(st->sites && st->tables);
    EBB_EACH_NODE(g, n) {
        site s = {.named = NULL};
        ebb_value x = ebb_in(g, n, 0);
        if (ebb_is_backward(g, n)) {
            s = fused_site(g, n);
        } else if (product_of(ebb_node_of(g, n)->op) != NULL && x.i != 0 &&
                   ebb_node_of(g, n)->phase != EBB_LOSS) {
            ebb_value root = ebb_saves_root(&st->saves, x);
            if (st->saves.reads[root.i] == 0)
                continue; // not trained, or coded already
            EBB_TRY(product_site(st, n, &s));
            if (s.grad.i == 0)
                s.grad = n; // to be named
        }
        if (s.named != NULL && st->count < st->capacity)
            st->sites[st->count++] = s;
    }
    return NULL;
}

/* ---- tables ---- */

/* The table for a site; *table is NULL where the variant has none. */
static ebb_status table_of(state *st, const site *s, const ebb_few_bit_table **table)
{
    for (size_t i = 0; i < st->table_count; i++) {
        const kept_table *t = &st->tables[i];
        if (strcmp(t->function, s->named) == 0 && t->alpha == s->alpha) {
            *table = t->there ? &t->table : NULL;
            return NULL;
        }
    }
    kept_table *t = &st->tables[st->table_count++];
    *t = (kept_table){.function = s->named, .alpha = s->alpha, .there = true};
    if (st->regelu2) {
        t->there = ebb_few_bit_published(&t->table, s->named, s->alpha, st->e->scratch);
    } else if (st->file != NULL) {
        EBB_TRY(ebb_few_bit_read(&t->table, st->file, s->named, st->bits));
        for (size_t i = 0; i + 1 < (size_t)1 << st->bits; i++)
            t->table.borders[i] /= s->alpha;
        EBB_TRY(ebb_few_bit_judge(&t->table, s->alpha, st->normal, st->e->scratch));
    } else {
        EBB_TRY(
            ebb_few_bit_best(&t->table, s->named, s->alpha, st->bits, st->normal, st->e->scratch));
    }
    *table = t->there ? &t->table : NULL;
    return NULL;
}

/* ---- rewriting ---- */

static const char *weigh(ebb_offer *offer, const state *st, const site *s,
                         const ebb_few_bit_table *table)
{
    const ebb_graph *g = st->e->g;
    const ebb_type *type = ebb_value_of(g, s->x)->type;
    int64_t n = 0, bytes = ebb_stored_bytes(g, s->x);
    ebb_value root = ebb_saves_root(&st->saves, s->x);
    if (s->refused != NULL)
        return s->refused;
    if (s->x.i >= st->saves.value_count || !st->saves.forward[root.i])
        return "it reads a value that the backward makes";
    if (st->saves.kept[root.i])
        return "its input stays to the end of the step anyway";
    if (st->saves.reads[root.i] > s->reads)
        return "the backward reads its input for another reason";
    if (!ebb_dtype_is_float((ebb_dtype)type->dtype))
        return "its input has no floats";
    if (bytes == 0 || !ebb_type_elements(type, &n) ||
        !ebb_type_same_shape(type, ebb_value_of(g, s->dy)->type))
        return "the size of its input is not known";
    if (table == NULL)
        return "ReGELU2 has no table for it";
    int64_t codes = ebb_stored_bits((n + 7) / 8 * 8, st->bits);
    *offer = (ebb_offer){.value = root, .saved_bytes = bytes - codes, .error = table->relative};
    offer->added_ns =
        ebb_roofline_ns(g, (double)n * (double)(1 << st->bits), (double)(bytes + codes)) +
        ebb_roofline_ns(g, 0, 2.0 * (double)bytes + (double)codes) - ebb_node_ns(g, s->grad);
    return offer->saved_bytes > 0 ? NULL : "its input is so small that codes would not be smaller";
}

static ebb_value list_of(ebb_build *b, ebb_dtype dtype, const double *list, int64_t count)
{
    double single[EBB_FEW_BIT_LEVELS]; // a table of float64 is that of float32
    for (int64_t i = 0; i < count; i++)
        single[i] = (double)(float)list[i];
    return ebb_const_floats(b, dtype, 1, &count, single);
}

static ebb_status rewrite(ebb_edit *e, const site *s, const ebb_few_bit_table *table)
{
    ebb_graph *g = e->g;
    ebb_dtype dtype = (ebb_dtype)ebb_value_of(g, s->x)->type->dtype;
    int64_t levels = INT64_C(1) << table->bits;
    ebb_build f = ebb_encode_after(e, s->x);
    ebb_value borders = list_of(&f, dtype, table->borders, levels - 1);
    ebb_with_int(&f, "bits", table->bits);
    ebb_value codes = ebb_emit(&f, EBB_OP_FEW_BIT, s->x, borders);
    EBB_TRY(f.status);

    ebb_build b = ebb_edit_build_for(e, s->grad);
    ebb_value list = list_of(&b, dtype, table->levels, levels);
    ebb_with_int(&b, "bits", table->bits);
    ebb_value dx = ebb_emit(&b, EBB_OP_FEW_BIT_GRAD, s->dy, codes, list);
    EBB_TRY(b.status);
    ebb_applied(e);
    return ebb_edit_swap(e, s->grad, dx);
}

static ebb_status run(ebb_edit *e)
{
    state st = {.e = e, .bits = (unsigned)ebb_option_int(e, "bits")};
    st.normal = strcmp(ebb_option_string(e, "weight"), "normal") == 0;
    st.regelu2 = strcmp(ebb_option_string(e, "table"), "regelu2") == 0;
    st.file = ebb_option_string(e, "tables");
    if (st.regelu2 && (st.file != NULL || (ebb_option_given(e, "bits") && st.bits != 2)))
        return ebb_error(EBB_USAGE,
                         "few-bit: table=regelu2 has 2 bits, and goes without tables=FILE");
    if (st.regelu2)
        st.bits = 2;
    EBB_TRY(ebb_saves_find(&st.saves, e->g, e->scratch));
    EBB_TRY(collect(&st));
    for (size_t i = 0; i < st.count; i++) {
        const site *s = &st.sites[i];
        const ebb_few_bit_table *table = NULL;
        ebb_offer offer;
        if (s->refused == NULL)
            EBB_TRY(table_of(&st, s, &table));
        const char *reason = weigh(&offer, &st, s, table);
        ebb_found(e);
        if (reason != NULL)
            EBB_TRY(ebb_skipped(e, s->grad, reason));
        else if (ebb_offered(e, s->grad, &offer))
            EBB_TRY(rewrite(e, s, table));
    }
    return NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"bits",   EBB_OPTION_CHOICE, "3",    "1|2|3|4",     "of each code"},
    {"weight", EBB_OPTION_CHOICE, "flat", "flat|normal", "where the tables are best: on the whole line, or for N(0, 1)"},
    {"table",  EBB_OPTION_CHOICE, "own",  "own|regelu2", "our own, or the published 2-bit tables of ReGELU2 and ReSiLU2"},
    {"tables", EBB_OPTION_STRING, NULL,   NULL,          "a file of tables, as `ebb few-bit --json` prints them"},
    {NULL, 0, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_few_bit = {
    .name = "few-bit",
    .doc = "keep which of 2 to 16 levels the derivative of an activation is on, not its input",
    .paper = "Novikov et al., Few-bit backward, ICML 2023",
    .exactness = EBB_LOSSY,
    .options = options,
    .run = run,
};
// clang-format on
