/* batch_rules.c: how operators treat parts of a batch: pointwise ones, views and moves, reductions;
 * batch_layers.c has the layers. Which rule is whose is a column of onnx/tables/ops.def. */
#include "passes/memory/rounding/batch_node.h"

typedef ebb_batch_node node;
typedef ebb_batch_form form;

const char ebb_batch_unknown[] = "how it treats parts of a batch is not known";
const char ebb_batch_mixes[] = "it mixes the samples of the batch";
const char ebb_batch_crossed[] = "its inputs are split along different axes";
static const char not_constant[] = "its axes or sizes are not constant";
static const char uneven[] = "the batch is not divisible by the number of parts there";

/* ---- pointwise ---- */

/* Inputs are broadcast to the output: all that have the batch's axis are split along it. */
static const char *pointwise(node *b, uint32_t count)
{
    int rank = out_type(b, 0)->rank, axis = -1;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_parts(b, i))
            continue;
        int at = b->in[i].axis + rank - in_type(b, i)->rank;
        if (axis >= 0 && axis != at)
            return ebb_batch_crossed;
        axis = at;
    }
    for (uint32_t i = 0; i < count; i++) {
        int at = axis - (rank - in_type(b, i)->rank);
        bool broadcast = !has_in(b, i) || at < 0 || in_type(b, i)->dims[at] == 1;
        if (broadcast ? !is_whole(b, i) : !ask(b, i, at))
            return ebb_batch_crossed;
    }
    if (axis < 0)
        return ebb_batch_unknown;
    give_all(b, axis);
    return NULL;
}

const char *ebb_parts_pointwise(node *b)
{
    return pointwise(b, in_count(b));
}

/* Element by element of the first input; the others are parameters of them all. */
const char *ebb_parts_first(node *b)
{
    return pointwise(b, 1);
}

/* Rows of a table that all samples look up alike, as one of positions: the smaller of both is summed. */
static bool is_small_table(const node *b)
{
    int64_t rows, table;
    return is_whole(b, 1) && b->in[2].where == EBB_BATCH_SUM &&
           ebb_type_elements(in_type(b, 2), &rows) && ebb_type_elements(out_type(b, 0), &table) &&
           table <= rows;
}

/* What is linear in sums of the parts is a sum of the parts again. */
static bool linear(node *b)
{
    uint32_t sums = 0, count = in_count(b);
    for (uint32_t i = 0; i < count; i++)
        sums += has_in(b, i) && b->in[i].where == EBB_BATCH_SUM;
    ebb_op op = op_of(b);
    bool one = sums == 1, first = count > 0 && b->in[0].where == EBB_BATCH_SUM;
    bool is = false;
    if (op == EBB_OP_ADD || op == EBB_OP_SUM || op == EBB_OP_SUB || op == EBB_OP_NEG ||
        op == EBB_OP_CONCAT)
        is = sums == count;
    else if (op == EBB_OP_MUL)
        is = one && (is_whole(b, 0) || is_whole(b, 1));
    else if (op == EBB_OP_DIV)
        is = one && first && is_whole(b, 1);
    else if (ebb_op_has(op, EBB_VIEW) || op == EBB_OP_TRANSPOSE || op == EBB_OP_SPLIT)
        is = one && first;
    else if (op == EBB_OP_GATHER_GRAD)
        is = one && is_small_table(b);
    for (uint32_t k = 0; is && k < out_count(b); k++)
        b->out[k] = (form){.where = EBB_BATCH_SUM};
    return is;
}

/* ---- views and moves ---- */

int ebb_batch_axis_through(const ebb_type *to, int64_t *outer, const ebb_type *from, int axis,
                           int64_t parts)
{
    int64_t before = *outer, so_far = 1, elements = 0;
    if (!ebb_type_elements(from, &elements) || elements == 0)
        return -1;
    for (int d = 0; d < axis; d++)
        before *= from->dims[d];
    for (int d = 0; d < to->rank && before % so_far == 0; so_far *= to->dims[d++]) {
        int64_t own = before / so_far, size = to->dims[d];
        if (size % own != 0 || size / own == 1 || size / own % parts != 0)
            continue;
        *outer = own;
        return d;
    }
    return -1;
}

const char *ebb_parts_view(node *b)
{
    int axis = is_parts(b, 0) ? ebb_batch_axis_through(out_type(b, 0), &b->outer, in_type(b, 0),
                                                       b->in[0].axis, b->parts)
                              : -1;
    if (axis < 0)
        return ebb_batch_mixes;
    b->shape_input = op_of(b) == EBB_OP_RESHAPE ? 1 : -1;
    give(b, 0, axis);
    return NULL;
}

const char *ebb_parts_transpose(node *b)
{
    if (!is_parts(b, 0))
        return ebb_batch_unknown;
    ebb_attrs attrs = ebb_node_attrs(b->g, b->n);
    uint32_t count;
    const int64_t *perm = ebb_attr_ints(&attrs, "perm", &count);
    int rank = in_type(b, 0)->rank;
    for (int i = 0; i < rank; i++)
        if ((perm != NULL ? perm[i] : rank - 1 - i) == b->in[0].axis)
            give(b, 0, i);
    return NULL;
}

/* Concat: all inputs along the same axis, which is not the one that they are put together along. */
const char *ebb_parts_concat(node *b)
{
    int axis = -1;
    for (uint32_t i = 0; i < in_count(b); i++)
        if (is_parts(b, i))
            axis = b->in[i].axis;
    if (normal(int_attr(b, "axis", 0), in_type(b, 0)->rank) == axis)
        return ebb_batch_mixes;
    for (uint32_t i = 0; i < in_count(b); i++)
        if (!ask(b, i, axis))
            return ebb_batch_crossed;
    give(b, 0, axis);
    return NULL;
}

const char *ebb_batch_beside(node *b, int moved)
{
    if (!is_parts(b, 0) || !all_whole_from(b, 1))
        return ebb_batch_unknown;
    if (b->in[0].axis == moved)
        return ebb_batch_mixes;
    give_all(b, b->in[0].axis);
    return NULL;
}

const char *ebb_parts_split(node *b)
{
    return ebb_batch_beside(b, normal(int_attr(b, "axis", 0), in_type(b, 0)->rank));
}

const char *ebb_parts_top_k(node *b)
{
    return ebb_batch_beside(b, normal(int_attr(b, "axis", -1), in_type(b, 0)->rank));
}

/* Matrices in the last two axes, each for itself. */
const char *ebb_parts_matrices(node *b)
{
    return b->in[0].axis < in_type(b, 0)->rank - 2 ? ebb_batch_beside(b, -1) : ebb_batch_mixes;
}

/* Slice, and SliceGrad with its shape before the bounds. */
static const char *slice(node *b, uint32_t first)
{
    const int64_t *axes, *starts;
    uint32_t count, bounds;
    int rank = in_type(b, 0)->rank;
    if (!ints_of(b, NULL, first + 2, &axes, &count) || !ints_of(b, NULL, first, &starts, &bounds))
        return not_constant;
    for (uint32_t i = 0; i < bounds; i++)
        if (normal(axes != NULL && i < count ? axes[i] : (int64_t)i, rank) == b->in[0].axis)
            return ebb_batch_mixes;
    b->shape_input = first == 2 ? 1 : -1;
    return ebb_batch_beside(b, -1);
}

const char *ebb_parts_slice(node *b)
{
    return slice(b, 1);
}

const char *ebb_parts_slice_grad(node *b)
{
    return slice(b, 2);
}

const char *ebb_parts_pad(node *b)
{
    const int64_t *pads;
    uint32_t count;
    int rank = in_type(b, 0)->rank, axis = b->in[0].axis;
    if (has_in(b, 3) || !ints_of(b, "pads", 1, &pads, &count) || count != 2u * (uint32_t)rank)
        return not_constant;
    return axis >= 0 && axis < rank && (pads[axis] != 0 || pads[axis + rank] != 0)
               ? ebb_batch_mixes
               : ebb_batch_beside(b, -1);
}

const char *ebb_parts_expand(node *b)
{
    int rank = out_type(b, 0)->rank, own = in_type(b, 0)->rank;
    if (!is_parts(b, 0) || !is_whole(b, 1))
        return ebb_batch_unknown;
    b->shape_input = 1;
    give(b, 0, b->in[0].axis + rank - own);
    return NULL;
}

const char *ebb_parts_tile(node *b)
{
    const int64_t *repeats;
    uint32_t count;
    int axis = b->in[0].axis;
    if (!ints_of(b, NULL, 1, &repeats, &count) || axis < 0 || (uint32_t)axis >= count)
        return not_constant;
    return ebb_batch_beside(b, repeats[axis] != 1 ? axis : -1);
}

const char *ebb_parts_gather(node *b)
{
    int axis = normal(int_attr(b, "axis", 0), in_type(b, 0)->rank);
    int indices = in_type(b, 1)->rank;
    if (is_parts(b, 1) && is_whole(b, 0)) {
        give(b, 0, axis + b->in[1].axis);
        return NULL;
    }
    if (!is_parts(b, 0) || !is_whole(b, 1) || b->in[0].axis == axis)
        return ebb_batch_mixes;
    give(b, 0, b->in[0].axis < axis ? b->in[0].axis : b->in[0].axis - 1 + indices);
    return NULL;
}

/* Rows of a table that nobody trains. */
const char *ebb_parts_gather_frozen(node *b)
{
    if (!is_parts(b, 1) || !all_whole_from(b, 2) || !is_whole(b, 0))
        return ebb_batch_mixes;
    give(b, 0, normal(int_attr(b, "gather_axis", 0), in_type(b, 0)->rank) + b->in[1].axis);
    return NULL;
}

/* (shape, indices, dY): samples that gather from one table add up in its gradient. */
const char *ebb_parts_gather_grad(node *b)
{
    if (!is_parts(b, 2) || !is_whole(b, 0))
        return ebb_batch_unknown;
    int indices = in_type(b, 1)->rank, at = b->in[2].axis;
    int axis = normal(int_attr(b, "axis", 0), out_type(b, 0)->rank);
    if (at >= axis && at < axis + indices) {
        if (!ask(b, 1, at - axis))
            return ebb_batch_crossed;
        b->out[0] = (form){.where = EBB_BATCH_SUM};
        return NULL;
    }
    if (!is_whole(b, 1))
        return ebb_batch_mixes;
    b->shape_input = 0;
    give(b, 0, at < axis ? at : at - indices + 1);
    return NULL;
}

/* (data, indices) or (dY, shape, indices): each along the same axis. */
static const char *gather_elements(node *b, uint32_t indices)
{
    int axis = is_parts(b, 0) ? b->in[0].axis : is_parts(b, indices) ? b->in[indices].axis : -1;
    int along = normal(int_attr(b, "axis", 0), in_type(b, 0)->rank);
    if (axis < 0 || axis == along)
        return ebb_batch_mixes;
    if (!ask(b, 0, axis) || !ask(b, indices, axis))
        return ebb_batch_crossed;
    b->shape_input = indices == 2 ? 1 : -1;
    give(b, 0, axis);
    return NULL;
}

const char *ebb_parts_gather_elements(node *b)
{
    return gather_elements(b, 1);
}

const char *ebb_parts_gather_elements_grad(node *b)
{
    return gather_elements(b, 2);
}

/* ---- reductions ---- */

const char *ebb_parts_reduce(node *b)
{
    const int64_t *axes;
    uint32_t count;
    int rank = in_type(b, 0)->rank, axis = b->in[0].axis, before = 0;
    bool keep = int_attr(b, "keepdims", 1) != 0, reduced = false;
    if (!is_parts(b, 0) || !ints_of(b, "axes", 1, &axes, &count))
        return not_constant;
    if (count == 0 && int_attr(b, "noop_with_empty_axes", 0) != 0)
        return ebb_batch_beside(b, -1);
    for (uint32_t i = 0; i < count; i++) {
        int at = normal(axes[i], rank);
        reduced = reduced || at == axis;
        before += at < axis;
    }
    if (!reduced && count > 0) {
        give(b, 0, keep ? axis : axis - before);
        return NULL;
    }
    b->mean = op_of(b) == EBB_OP_REDUCE_MEAN;
    if (b->mean && !ebb_dtype_is_float((ebb_dtype)out_type(b, 0)->dtype))
        return ebb_batch_mixes;
    if (!b->mean && op_of(b) != EBB_OP_REDUCE_SUM && op_of(b) != EBB_OP_REDUCE_SUM_SQUARE)
        return ebb_batch_mixes;
    b->out[0] = (form){.where = EBB_BATCH_SUM};
    return NULL;
}

const char *ebb_parts_arg_max(node *b)
{
    int axis = normal(int_attr(b, "axis", 0), in_type(b, 0)->rank);
    const char *why = ebb_batch_beside(b, axis);
    if (why == NULL && int_attr(b, "keepdims", 1) == 0 && axis < b->in[0].axis)
        give(b, 0, b->in[0].axis - 1);
    return why;
}

const char *ebb_parts_cum_sum(node *b)
{
    double axis;
    return ebb_scalar_of(b->g, ebb_in(b->g, b->n, 1), &axis)
               ? ebb_batch_beside(b, normal((int64_t)axis, in_type(b, 0)->rank))
               : not_constant;
}

/* ---- the rule of an operator ---- */

const char *ebb_parts_unknown(node *b)
{
    (void)b;
    return ebb_batch_unknown;
}

static const char *(*const rules[EBB_OP_COUNT])(node *b) = {
    [EBB_OP_UNKNOWN] = ebb_parts_unknown,
#define EBB_OP(id, domain, name, since, operands, reads, slots, traits, alias, infer, grad, cost, \
               sizes, tile, batch, ...)                                                           \
    [EBB_OP_##id] = ebb_parts_##batch,
#include "onnx/tables/ops.def"
#undef EBB_OP
};

static bool is_divided(const ebb_type *t, form f, int64_t parts)
{
    return f.axis >= 0 && f.axis < t->rank && f.outer > 0 && t->dims[f.axis] % f.outer == 0 &&
           t->dims[f.axis] / f.outer % parts == 0 && (f.outer == 1 || t->rank < EBB_MAX_RANK);
}

/* Whether the split axes of what a rule has decided can be divided. */
static const char *divides(const node *b)
{
    for (uint32_t i = 0; i < in_count(b); i++)
        if (is_parts(b, i) && !is_divided(in_type(b, i), b->in[i], b->parts))
            return uneven;
    for (uint32_t k = 0; k < out_count(b); k++)
        if (has_out(b, k) && b->out[k].where == EBB_BATCH_PARTS &&
            !is_divided(out_type(b, k), b->out[k], b->parts))
            return uneven;
    return NULL;
}

const char *ebb_batch_rule(ebb_batch_node *b)
{
    b->shape_input = -1;
    b->mean = b->weighs = false;
    b->outer = 0;
    for (uint32_t k = 0; k < out_count(b); k++)
        b->out[k] = (form){.axis = -1};
    if (linear(b))
        return NULL;
    for (uint32_t i = 0; i < in_count(b); i++)
        if (has_in(b, i) && (b->in[i].where == EBB_BATCH_SUM || b->in[i].where > EBB_BATCH_OWN))
            return "it needs a result of the whole batch";
    for (uint32_t i = 0; i < in_count(b); i++) {
        bool mine = (op_of(b) == EBB_OP_BATCH_NORM_GRAD && i >= 3) ||
                    (op_of(b) == EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT && i == 4);
        if (has_in(b, i) && b->in[i].where == EBB_BATCH_OWN && !mine)
            return ebb_batch_mixes;
    }
    for (uint32_t i = 0; i < in_count(b); i++) {
        if (!is_parts(b, i))
            continue;
        if (b->outer != 0 && b->outer != b->in[i].outer)
            return ebb_batch_crossed;
        b->outer = b->in[i].outer;
    }
    const char *why = rules[op_of(b)](b);
    return why != NULL ? why : divides(b);
}
