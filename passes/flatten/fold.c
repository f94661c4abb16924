/* fold: what is constant is computed now; what does nothing goes.
 *
 *   before   s = Shape(x)  b = Gather(s, 0)  t = Concat(b, -1)  y = Reshape(x, t)
 *   after    y = Reshape(x, t)                                   t is an initializer
 *
 * Exporters write shapes as arithmetic: four fifths of a transformer's nodes. Once the batch is
 * bound all of it is constant, and even before, whatever does not depend on it.
 *
 * Never through a weight: a float initializer may be trained, so Transpose(weight) stays a node.
 * What folds is made of integers, of lone numbers, and of what the file computes from them.
 *
 * Also here, because they are exact and every later pass is simpler for them:
 *   Identity, Cast to the same dtype, Dropout of 0; Reshape, Expand, Slice, Transpose, Pad, Tile
 *   and Concat that change nothing
 *   x * 1, x / 1, x - 0; And(x, true), Or(x, false); Where by a constant condition
 *   CastLike(x, t) -> Cast(x); Cast(Cast(x)) -> Cast(x) where the first rounds nothing
 *   Conv with a bias of constant zeros (dynamo writes one) -> Conv without
 *   sequences -> their tensors (sequences.c)
 */
#include "exec/run/eval.h"
#include "onnx/graph/facts.h"
#include "onnx/graph/infer.h"
#include "passes/common.h"
#include "passes/flatten/fold.h"
#include "passes/passes.h"
#include "passes/flatten/sequences.h"
#include "passes/trainable.h"

enum { RESULT_LIMIT = 64 << 20 }; // bytes; what is larger is better made in each step than stored

/* ---- what may be folded through ---- */

/* A lone number is no weight, unless the file says so. */
static bool is_number(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return info->type.rank == 0 && info->role != EBB_ROLE_FROZEN && !ebb_is_parameter(g, v);
}

static const ebb_tensor *foldable(const ebb_graph *g, ebb_value v)
{
    const ebb_tensor *t = v.i != 0 ? ebb_value_constant(g, v) : NULL;
    if (t == NULL || t->data == NULL)
        return NULL;
    const ebb_value_info *info = ebb_value_of(g, v);
    bool weight = (info->flags & EBB_IS_INITIALIZER) != 0 && info->role != EBB_ROLE_CONSTANT &&
                  ebb_dtype_is_float((ebb_dtype)t->type.dtype) && !is_number(g, v) &&
                  !ebb_feeds_sizes_alone(g, v);
    return weight ? NULL : t;
}

/* The node computes from constants alone, and its results are worth keeping. */
static bool all_constant(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (!ebb_op_has(info->op, EBB_FOLDS) || ebb_op_has(info->op, EBB_RANDOM) ||
        info->op == EBB_OP_CONSTANT)
        return false;
    for (uint32_t i = 0; i < info->in_count; i++)
        if (info->in[i].i != 0 && foldable(g, info->in[i]) == NULL)
            return false;
    return info->in_count > 0;
}

/* What leaves the graph is made by a node: it has a name of its own and memory of its own. */
static bool leaves(const ebb_graph *g, ebb_value v)
{
    return (ebb_value_of(g, v)->flags & EBB_IS_OUTPUT) != 0 || ebb_value_is_bound(g, v);
}

static bool makes_what_leaves(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0 && leaves(g, info->out[k]))
            return true;
    return false;
}

/* ---- constants ---- */

/* y, output of n, becomes an initializer of the same name; n is to be removed by the caller. */
static ebb_status hold(ebb_edit *e, ebb_value y, const ebb_tensor *t, ebb_role role,
                       ebb_value *made)
{
    EBB_TRY(ebb_graph_add_initializer(e->g, made, NULL, &t->type, t->data, role));
    return ebb_edit_replace(e, y, *made);
}

/* The node's outputs are these tensors. */
static ebb_status replace_by(ebb_edit *e, ebb_node n, const ebb_tensor *t, uint32_t count,
                             ebb_role role)
{
    ebb_graph *g = e->g;
    ebb_value *made = EBB_SCRATCH(e, ebb_value, count);
    const char **names = EBB_SCRATCH(e, const char *, count);
    if (made == NULL || names == NULL)
        return ebb_error_memory();
    for (uint32_t k = 0; k < count; k++) {
        ebb_value y = ebb_out(g, n, k);
        if (!ebb_value_is_read(g, y))
            continue;
        names[k] = ebb_value_name(g, y);
        EBB_TRY(hold(e, y, &t[k], role, &made[k]));
    }
    ebb_edit_remove(e, n);
    for (uint32_t k = 0; k < count; k++)
        if (made[k].i != 0)
            EBB_TRY(ebb_value_rename(g, made[k], names[k]));
    ebb_found(e);
    ebb_applied(e);
    return NULL;
}

/* A Constant node's value, whichever attribute holds it. False: strings, sparse, bytes missing. */
static bool constant_value(ebb_edit *e, ebb_node n, ebb_tensor *t)
{
    ebb_attrs attrs = ebb_node_attrs(e->g, n);
    const ebb_attr *a;
    int64_t dims[1];
    *t = (ebb_tensor){0};
    if ((a = ebb_attr_find(&attrs, "value")) != NULL && a->tensor != NULL) {
        *t = *a->tensor;
    } else if ((a = ebb_attr_find(&attrs, "value_int")) != NULL) {
        t->type = ebb_type_tensor(EBB_I64, 0, NULL);
        t->data = &a->i;
    } else if ((a = ebb_attr_find(&attrs, "value_ints")) != NULL) {
        dims[0] = a->count;
        t->type = ebb_type_tensor(EBB_I64, 1, dims);
        t->data = a->count > 0 ? (const void *)a->ints : (const void *)a;
    } else if ((a = ebb_attr_find(&attrs, "value_floats")) != NULL) {
        dims[0] = a->count;
        t->type = ebb_type_tensor(EBB_F32, 1, dims);
        t->data = a->count > 0 ? (const void *)a->floats : (const void *)a;
    } else if ((a = ebb_attr_find(&attrs, "value_float")) != NULL) {
        float *x = EBB_SCRATCH(e, float, 1);
        if (x != NULL)
            *x = (float)a->f;
        t->type = ebb_type_tensor(EBB_F32, 0, NULL);
        t->data = x;
    }
    return t->data != NULL && ebb_type_bytes(&t->type, &t->bytes);
}

static ebb_status fold_node(ebb_edit *e, ebb_node n, ebb_facts *facts, bool *done)
{
    ebb_graph *g = e->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    ebb_value y = ebb_out(g, n, 0);
    ebb_tensor value;
    *done = false;
    if (y.i == 0 || makes_what_leaves(g, n))
        return NULL;
    if (info->op == EBB_OP_CONSTANT) {
        if (!constant_value(e, n, &value))
            return NULL;
        *done = true;
        return replace_by(e, n, &value, 1, EBB_ROLE_CONSTANT);
    }
    const ebb_tensor *fact = facts->list[y.i < facts->count ? y.i : 0].tensor;
    if (fact != NULL && info->out_count == 1) {
        *done = true;
        return replace_by(e, n, fact, 1, EBB_ROLE_CONSTANT);
    }
    if (!all_constant(g, n))
        return NULL;
    ebb_tensor *out = EBB_SCRATCH(e, ebb_tensor, info->out_count);
    if (out == NULL)
        return ebb_error_memory();
    // Inputs that were folded just now may have said what the inference could not.
    EBB_TRY(ebb_infer_node(g, n));
    for (uint32_t k = 0; k < info->out_count; k++) {
        size_t bytes;
        const ebb_value_info *v = ebb_value_of(g, info->out[k]);
        if (info->out[k].i == 0)
            continue;
        if (!ebb_type_is_static(&v->type) || !ebb_type_bytes(&v->type, &bytes))
            return ebb_skipped(e, n, "the shape of its result depends on values");
        if (bytes > RESULT_LIMIT)
            return ebb_skipped(e, n, "its result is too large to be stored");
    }
    ebb_arena results = {0}; // of this node alone: the graph has copies
    ebb_status status = ebb_eval_node(g, n, out, info->out_count, RESULT_LIMIT, &results);
    if (status == NULL) {
        *done = true;
        status = replace_by(e, n, out, info->out_count, EBB_ROLE_CONSTANT);
    }
    ebb_arena_fini(&results);
    if (*done || status == ebb_error_memory())
        return status;
    return ebb_skipped(e, n,
                       ebb_status_code(status) == EBB_REJECTED
                           ? "it takes too long, or too much memory, before the run"
                           : "there is no kernel that computes it");
}

/* ---- nodes that do nothing ---- */

static const ebb_type *type_of(const ebb_graph *g, ebb_value v)
{
    return &ebb_value_of(g, v)->type;
}

/* All elements of a foldable constant are x. */
static bool is_all(const ebb_graph *g, ebb_value v, double x)
{
    const ebb_tensor *t = foldable(g, v);
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
        return x;
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
    if (leaves(g, y) && (from->producer.i == 0 || (from->flags & EBB_IS_OUTPUT) != 0))
        return NULL;
    EBB_TRY(ebb_edit_replace(e, y, x));
    ebb_edit_remove(e, n);
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

/* ---- the pass ---- */

/* Other forms and constants; *done: the node went. */
static ebb_status simplify(ebb_edit *e, ebb_node n, ebb_facts *facts, bool *done)
{
    EBB_TRY(ebb_facts_learn(facts, n));
    if (ebb_node_of(e->g, n)->op == EBB_OP_CAST_LIKE)
        EBB_TRY(cast_like_is_cast(e, n));
    if (ebb_node_of(e->g, n)->op == EBB_OP_CAST)
        EBB_TRY(cast_of_cast_is_cast(e, n));
    return fold_node(e, n, facts, done);
}

static ebb_status walk(ebb_edit *e, bool *changed)
{
    ebb_facts facts;
    ebb_graph *g = e->g;
    size_t before = e->report->applied;
    EBB_TRY(ebb_facts_init(&facts, g, e->scratch));
    for (ebb_node n = ebb_first(g), next; n.i != 0; n = next) {
        next = ebb_next(g, n);
        ebb_op op = ebb_node_of(g, n)->op;
        bool done;
        if (op == EBB_OP_UNKNOWN)
            continue;
        EBB_TRY(simplify(e, n, &facts, &done));
        if (!done)
            EBB_TRY(drop_idle(e, n, &done));
        if (!done && op == EBB_OP_CONV)
            EBB_TRY(drop_zero_bias(e, n));
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
    ebb_fact nothing = {0};
    ebb_facts facts = {.g = e->g, .arena = e->scratch, .list = &nothing, .count = 1};
    for (ebb_node n = node_after(e->g, after), next; !ebb_same_node(n, end); n = next) {
        bool done;
        next = ebb_next(e->g, n);
        if (ebb_node_of(e->g, n)->op != EBB_OP_UNKNOWN)
            EBB_TRY(fold_node(e, n, &facts, &done));
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

/* A Constant node of several floats; what it holds into *value. */
static bool holds_floats(ebb_edit *e, ebb_node n, ebb_tensor *value)
{
    int64_t elements;
    return ebb_node_of(e->g, n)->op == EBB_OP_CONSTANT && ebb_out(e->g, n, 0).i != 0 &&
           !makes_what_leaves(e->g, n) && constant_value(e, n, value) &&
           ebb_dtype_is_float((ebb_dtype)value->type.dtype) &&
           ebb_type_elements(&value->type, &elements) && elements > 1;
}

static ebb_status has_weights(ebb_edit *e, bool *yes)
{
    ebb_graph *g = e->g;
    ebb_trainable_source source;
    bool *trains = EBB_SCRATCH(e, bool, g->value_count);
    if (trains == NULL)
        return ebb_error_memory();
    EBB_TRY(ebb_trainable_find(trains, &source, g));
    *yes = false;
    for (size_t i = 0; i < g->initializer_count; i++)
        *yes = *yes || trains[g->initializers[i].i];
    return NULL;
}

/* Some exporters write every weight as a Constant node. Where no initializer is a weight, but such
 * nodes lie where operators take weights, those become weights, and others that have a name. */
static ebb_status take_weights(ebb_edit *e)
{
    ebb_graph *g = e->g;
    ebb_tensor value;
    bool any = false, there;
    EBB_TRY(has_weights(e, &there));
    for (ebb_node n = ebb_first(g); n.i != 0 && !there && !any; n = ebb_next(g, n))
        any = holds_floats(e, n, &value) && ebb_feeds_weight_slot(g, ebb_out(g, n, 0));
    for (ebb_node n = ebb_first(g), next; n.i != 0 && any; n = next) {
        next = ebb_next(g, n);
        if (holds_floats(e, n, &value) &&
            (ebb_feeds_weight_slot(g, ebb_out(g, n, 0)) ||
             !ebb_name_is_anonymous(ebb_value_name(g, ebb_out(g, n, 0)))))
            EBB_TRY(replace_by(e, n, &value, 1, EBB_ROLE_NONE));
    }
    return NULL;
}

ebb_status ebb_fold_all(ebb_edit *e)
{
    enum { ROUNDS = 4 }; // a second walk finds what better shapes allow; more has not been seen
    bool changed = true;
    drop_defaults(e->g);
    EBB_TRY(take_weights(e));
    for (int round = 0; round < ROUNDS && changed; round++) {
        e->report->skip_count = 0; // what was skipped may fold this time
        e->report->found = e->report->applied;
        EBB_TRY(ebb_infer_graph(e->g));
        EBB_TRY(walk(e, &changed));
        size_t before = e->report->applied;
        EBB_TRY(ebb_sequences_resolve(e)); // places of parts fold first
        changed = changed || e->report->applied != before;
        (void)ebb_graph_sweep(e->g);
    }
    return NULL;
}

const ebb_pass ebb_pass_fold = {
    .name = "fold",
    .doc = "compute what is constant, drop what does nothing",
    .exactness = EBB_EXACT,
    .run = ebb_fold_all,
};
