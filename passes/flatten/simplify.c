/* simplify.c: what is constant is computed, and what does nothing goes, in walks over the graph or a
 * stretch of it. */
#include "passes/flatten/simplify.h"

#include "onnx/graph/infer.h"
#include "passes/common.h"
#include "passes/flatten/constants.h"
#include "passes/flatten/sequences.h"

/* ---- nodes that do nothing ---- */

static const ebb_type *type_of(const ebb_graph *g, ebb_value v)
{
    return ebb_value_of(g, v)->type;
}

/* All elements of a foldable constant are x. */
static bool is_all(const ebb_graph *g, ebb_value v, double x)
{
    const ebb_tensor *t = ebb_constant_foldable(g, v);
    int64_t count;
    if (t == NULL || !ebb_type_elements(&t->type, &count) || count == 0)
        return false;
    bool real = ebb_dtype_is_float((ebb_dtype)t->type.dtype);
    if (!real && !ebb_dtype_is_integer((ebb_dtype)t->type.dtype) && t->type.dtype != EBB_BOOL)
        return false;
    for (int64_t i = 0; i < count; i++)
        if ((real ? ebb_tensor_double(t, i) : (double)ebb_tensor_int(t, i)) != x)
            return false;
    return true;
}

static bool is_whole_slice(const ebb_graph *g, ebb_node n)
{
    ebb_value steps = ebb_in(g, n, 4);
    if (steps.i == 0)
        return true;
    const ebb_tensor *t = ebb_value_constant(g, steps);
    int64_t count;
    if (t == NULL || t->data == NULL || !ebb_type_elements(&t->type, &count))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (ebb_tensor_int(t, i) < 0) // as long as the input, but backwards
            return false;
    return true;
}

static bool is_unmoved(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    uint32_t count;
    const int64_t *perm = ebb_attr_ints(&attrs, "perm", &count);
    for (uint32_t i = 0; i < count; i++)
        if (perm[i] != (int64_t)i)
            return false;
    return count > 0 ||
           (type_of(g, ebb_in(g, n, 0))->rank >= 0 && type_of(g, ebb_in(g, n, 0))->rank <= 1);
}

/* The same dtype and dims; a dim that is only named is equal to itself. */
static bool same_type(const ebb_type *a, const ebb_type *b)
{
    bool same = a->kind == EBB_KIND_TENSOR && b->kind == EBB_KIND_TENSOR && a->rank >= 0 &&
                a->rank == b->rank && a->dtype == b->dtype;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i] &&
               (a->dims[i] >= 0 ||
                (a->symbols[i].i != 0 && ebb_same_str(a->symbols[i], b->symbols[i])));
    return same;
}

/* A product over no columns: where an adapter may be given and none is, its A is [in, 0]. */
static bool is_sum_of_nothing(const ebb_graph *g, ebb_value v)
{
    const ebb_node n = ebb_value_of(g, v)->producer;
    if (n.i == 0 || ebb_node_of(g, n)->op != EBB_OP_MATMUL)
        return false;
    const ebb_type *a = type_of(g, ebb_in(g, n, 0));
    return a->rank > 0 && a->dims[a->rank - 1] == 0;
}

/* The input that output 0 equals, or none. */
static ebb_value equal_input(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    ebb_value x = ebb_in(g, n, 0), other = ebb_in(g, n, 1), y = ebb_out(g, n, 0);
    if (x.i == 0 || y.i == 0)
        return EBB_NO_VALUE;
    const ebb_type *tx = type_of(g, x), *ty = type_of(g, y);
    bool alike = same_type(tx, ty);
    bool other_alike = other.i != 0 && same_type(type_of(g, other), ty);
    switch (info->op) {
    case EBB_OP_IDENTITY:
        return ebb_is_detach(g, n) ? EBB_NO_VALUE : x;
    case EBB_OP_CAST:
    case EBB_OP_CAST_LIKE:
        return tx->dtype != EBB_NONE && tx->dtype == ty->dtype ? x : EBB_NO_VALUE;
    case EBB_OP_RESHAPE:
    case EBB_OP_FLATTEN:
    case EBB_OP_SQUEEZE:
    case EBB_OP_UNSQUEEZE:
    case EBB_OP_EXPAND:
    case EBB_OP_TILE:
        return alike ? x : EBB_NO_VALUE;
    case EBB_OP_SLICE:
        return alike && is_whole_slice(g, n) ? x : EBB_NO_VALUE;
    case EBB_OP_TRANSPOSE:
        return is_unmoved(g, n) ? x : EBB_NO_VALUE;
    case EBB_OP_PAD:
        return is_all(g, other, 0) ? x : EBB_NO_VALUE;
    case EBB_OP_CONCAT:
        return info->in_count == 1 ? x : EBB_NO_VALUE;
    case EBB_OP_SPLIT:
        return info->out_count == 1 && alike ? x : EBB_NO_VALUE;
    case EBB_OP_ADD:
        if (alike && is_sum_of_nothing(g, other))
            return x;
        return other_alike && is_sum_of_nothing(g, x) ? other : EBB_NO_VALUE;
    case EBB_OP_MUL:
        if (alike && is_all(g, other, 1))
            return x;
        return other_alike && is_all(g, x, 1) ? other : EBB_NO_VALUE;
    case EBB_OP_DIV:
        return alike && is_all(g, other, 1) ? x : EBB_NO_VALUE;
    case EBB_OP_SUB:
        return alike && is_all(g, other, 0) ? x : EBB_NO_VALUE;
    case EBB_OP_AND:
    case EBB_OP_OR:
        if (alike && is_all(g, other, info->op == EBB_OP_AND))
            return x;
        return other_alike && is_all(g, x, info->op == EBB_OP_AND) ? other : EBB_NO_VALUE;
    case EBB_OP_WHERE: {
        ebb_value third = ebb_in(g, n, 2);
        if (other_alike && is_all(g, x, 1))
            return other;
        bool third_alike = third.i != 0 && same_type(type_of(g, third), ty);
        return third_alike && is_all(g, x, 0) ? third : EBB_NO_VALUE;
    }
    case EBB_OP_DROPOUT: {
        ebb_value mask = ebb_out(g, n, 1);
        return !ebb_value_is_read(g, mask) && is_all(g, other, 0) ? x : EBB_NO_VALUE;
    }
    default:
        return EBB_NO_VALUE;
    }
}

static ebb_status drop_idle(ebb_edit *e, ebb_node n, bool *done)
{
    ebb_graph *g = e->g;
    ebb_value x = equal_input(g, n), y = ebb_out(g, n, 0);
    *done = false;
    if (x.i == 0)
        return NULL;
    const ebb_value_info *from = ebb_value_of(g, x);
    if (ebb_constant_leaves(g, y) && (from->producer.i == 0 || (from->flags & EBB_IS_OUTPUT) != 0))
        return NULL;
    EBB_TRY(ebb_edit_swap(e, n, x));
    ebb_found(e);
    ebb_applied(e);
    *done = true;
    return NULL;
}

/* ---- other forms ---- */

/* The dtype is known by now, and the value that it was taken from is often a weight. */
static ebb_status cast_like_is_cast(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    ebb_dtype dtype = (ebb_dtype)type_of(g, ebb_out(g, n, 0))->dtype;
    if (dtype == EBB_NONE)
        return NULL;
    EBB_TRY(ebb_node_set_input(g, n, 1, EBB_NO_VALUE));
    ebb_node_of(g, n)->in_count = 1;
    EBB_TRY(ebb_node_set_op(g, n, EBB_OP_CAST));
    EBB_TRY(ebb_node_set_int(g, n, "to", dtype));
    ebb_found(e);
    ebb_applied(e);
    return NULL;
}

/* Whether every value of `from` is one of `to`, too. */
static bool holds(ebb_dtype to, ebb_dtype from)
{
    static const uint8_t digits[EBB_DTYPE_COUNT] = {
        [EBB_F64] = 53, [EBB_F32] = 24, [EBB_F16] = 11, [EBB_BF16] = 8}; // of a float's fraction
    unsigned bits = ebb_dtype_bits(from), room = ebb_dtype_bits(to);
    bool is_signed = from == EBB_I8 || from == EBB_I16 || from == EBB_I32 || from == EBB_I64;
    bool to_signed = to == EBB_I8 || to == EBB_I16 || to == EBB_I32 || to == EBB_I64;
    if (ebb_dtype_is_float(from))
        return to == EBB_F64 || (to == EBB_F32 && from != EBB_F64) || to == from;
    if (from == EBB_BOOL)
        return ebb_dtype_is_float(to) || ebb_dtype_is_integer(to);
    if (!ebb_dtype_is_integer(from) || bits < 8)
        return false;
    if (ebb_dtype_is_float(to))
        return bits <= digits[to];
    if (!ebb_dtype_is_integer(to))
        return false;
    return is_signed == to_signed ? room >= bits : to_signed && room > bits;
}

static ebb_status cast_of_cast_is_cast(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    ebb_value between = ebb_in(g, n, 0);
    if (ebb_producer_op(g, between) != EBB_OP_CAST)
        return NULL;
    ebb_value x = ebb_in(g, ebb_value_of(g, between)->producer, 0);
    if (x.i == 0 || !holds((ebb_dtype)type_of(g, between)->dtype, (ebb_dtype)type_of(g, x)->dtype))
        return NULL;
    EBB_TRY(ebb_node_set_input(g, n, 0, x));
    ebb_found(e);
    ebb_applied(e);
    return NULL;
}

static ebb_status drop_zero_bias(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    ebb_value bias = ebb_in(g, n, 2);
    if (bias.i == 0 || ebb_value_of(g, bias)->role != EBB_ROLE_CONSTANT || !is_all(g, bias, 0))
        return NULL;
    EBB_TRY(ebb_node_set_input(g, n, 2, EBB_NO_VALUE));
    ebb_node_of(g, n)->in_count = 2;
    ebb_found(e);
    ebb_applied(e);
    return NULL;
}

/* ---- walks ---- */

/* Other forms and constants; *done: the node went. */
static ebb_status simplify(ebb_edit *e, ebb_node n, ebb_facts *facts, bool *done)
{
    EBB_TRY(ebb_facts_learn(facts, n));
    if (ebb_node_of(e->g, n)->op == EBB_OP_CAST_LIKE)
        EBB_TRY(cast_like_is_cast(e, n));
    if (ebb_node_of(e->g, n)->op == EBB_OP_CAST)
        EBB_TRY(cast_of_cast_is_cast(e, n));
    return ebb_constant_fold(e, n, facts, done);
}

static ebb_status walk(ebb_edit *e, bool *changed)
{
    ebb_facts facts;
    ebb_sequences sequences;
    ebb_graph *g = e->g;
    size_t before = e->report->applied;
    EBB_TRY(ebb_facts_init(&facts, g, e->scratch));
    EBB_TRY(ebb_sequences_init(&sequences, e));
    for (ebb_node n = ebb_first(g), next; n.i != 0; n = next) {
        next = ebb_next(g, n);
        ebb_op op = ebb_node_of(g, n)->op;
        bool done;
        if (op == EBB_OP_UNKNOWN)
            continue;
        if (ebb_node_gives_no_size(g, n)) // of what was folded in this walk it may
            EBB_TRY(ebb_infer_node(g, n));
        EBB_TRY(simplify(e, n, &facts, &done));
        if (!done)
            EBB_TRY(drop_idle(e, n, &done));
        if (!done && op == EBB_OP_CONV)
            EBB_TRY(drop_zero_bias(e, n));
        if (!done)
            EBB_TRY(ebb_sequences_visit(&sequences, n));
    }
    *changed = e->report->applied != before;
    return NULL;
}

static ebb_node node_after(const ebb_graph *g, ebb_node n)
{
    return n.i != 0 ? ebb_next(g, n) : ebb_first(g);
}

ebb_status ebb_fold_between(ebb_edit *e, ebb_node after, ebb_node end)
{
    ebb_facts nothing = {.g = e->g, .arena = e->scratch};
    for (ebb_node n = node_after(e->g, after), next; !ebb_same_node(n, end); n = next) {
        bool done;
        next = ebb_next(e->g, n);
        if (ebb_node_of(e->g, n)->op != EBB_OP_UNKNOWN)
            EBB_TRY(ebb_constant_fold(e, n, &nothing, &done));
    }
    return NULL;
}

ebb_status ebb_fold_shapes_between(ebb_edit *e, ebb_node after, ebb_node end)
{
    ebb_facts facts;
    EBB_TRY(ebb_facts_init(&facts, e->g, e->scratch));
    for (ebb_node n = node_after(e->g, after), next; !ebb_same_node(n, end); n = next) {
        bool done;
        next = ebb_next(e->g, n);
        if (ebb_node_of(e->g, n)->op == EBB_OP_UNKNOWN)
            continue;
        EBB_TRY(ebb_infer_node(e->g, n));
        EBB_TRY(simplify(e, n, &facts, &done));
    }
    return NULL;
}

/* Old files, and exporters that are asked to, list initializers as inputs too, so that a caller may
 * give others. Here nobody does: what has a value in the file is that value. */
static void drop_defaults(ebb_graph *g)
{
    for (size_t i = g->input_count; i-- > 0;)
        if ((ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER) != 0)
            ebb_graph_remove_input(g, g->inputs[i]);
}

ebb_status ebb_fold_all(ebb_edit *e)
{
    enum { WALKS = 64 }; // few are needed: only what readers behind it let go of waits for the next
    bool changed = true;
    drop_defaults(e->g);
    EBB_TRY(ebb_constant_take_weights(e));
    for (int walks = 0; changed && walks < WALKS; walks++) {
        e->report->skip_count = 0; // what was skipped may fold this time
        e->report->found = e->report->applied;
        EBB_TRY(ebb_infer_graph(e->g));
        EBB_TRY(walk(e, &changed)); // a second one finds what better shapes allow
        (void)ebb_graph_sweep(e->g);
    }
    return changed ? ebb_note(e, "ended after %d walks: another fold may find more", WALKS) : NULL;
}
