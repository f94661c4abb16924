/* cut.c: see cut.h. */
#include "kernels/nested/cut.h"

#include "kernels/parallel.h"

enum { PIECE = 1 << 12 }; /* elements */

/* The kernel must see an element alone, without its place: a drawn mask depends on the place. */
static bool is_pointwise(const ebb_call *c)
{
    return ebb_op_has(c->op, EBB_POINTWISE) && !ebb_op_has(c->op, EBB_RANDOM) &&
           c->op != EBB_OP_EBB_DROPOUT_SEED_GRAD && c->output_count == 1;
}

/* How many leading axes the call's result can be cut along: what is before the axis of a softmax or
 * a norm, images and channels of a pool, all of what is pointwise. */
static int free_axes(const ebb_call *c, int rank)
{
    const bool flat = c->op == EBB_OP_SOFTMAX_FLAT || c->op == EBB_OP_LOG_SOFTMAX_FLAT;
    int axis = 0;
    if (is_pointwise(c))
        return rank;
    switch (c->op) {
    case EBB_OP_SOFTMAX:
    case EBB_OP_LOG_SOFTMAX:
    case EBB_OP_SOFTMAX_FLAT:
    case EBB_OP_LOG_SOFTMAX_FLAT:
    case EBB_OP_SOFTMAX_GRAD:
    case EBB_OP_LOG_SOFTMAX_GRAD:
    case EBB_OP_LAYER_NORMALIZATION:
    case EBB_OP_RMS_NORMALIZATION:
    case EBB_OP_RMS_NORM:
        axis = (int)ebb_attr_int(&c->attrs, "axis", flat ? 1 : -1);
        axis = axis < 0 ? axis + rank : axis;
        return axis < 0 || axis > rank ? 0 : axis;
    case EBB_OP_MAX_POOL: // indices count through all images
        return ebb_call_wants(c, 1) || rank < 3 ? 0 : 2;
    case EBB_OP_AVERAGE_POOL:
    case EBB_OP_MAX_POOL_GRAD:
    case EBB_OP_AVERAGE_POOL_GRAD:
    case EBB_OP_GLOBAL_AVERAGE_POOL:
        return rank < 3 ? 0 : 2;
    default:
        return 0;
    }
}

static const ebb_operand *operand(const ebb_call *c, uint32_t k)
{
    return k < c->input_count ? &c->in[k] : &c->out[k - c->input_count];
}

static int64_t dim_of(const ebb_type *t, int rank, int axis)
{
    return axis < rank - t->rank ? 1 : t->dims[axis - (rank - t->rank)];
}

/* Whether it has places that can be counted in bytes: some elements, of whole bytes, in a row. */
static bool is_counted(const ebb_type *t)
{
    return ebb_elements(t) > 0 && ebb_dtype_bits((ebb_dtype)t->dtype) % 8 == 0 &&
           t->layout.kind == EBB_LAYOUT_PLAIN;
}

/* Whether the operand can be cut along y's axis and those before it, where each is its own or is
 * repeated over. */
static bool follows(const ebb_cut *k, const ebb_type *t)
{
    bool fine = t->rank <= k->rank && is_counted(t);
    for (int d = 0; fine && d <= k->axis; d++)
        fine = dim_of(t, k->rank, d) == 1 || dim_of(t, k->rank, d) == k->dims[d];
    return fine;
}

static bool all_follow(const ebb_cut *k, const ebb_call *c)
{
    for (uint32_t i = 0; i < c->input_count + c->output_count; i++)
        if (operand(c, i)->type.dtype != EBB_NONE && !follows(k, &operand(c, i)->type))
            return false;
    return true;
}

static bool is_flat(const ebb_call *c)
{
    const ebb_type *y = &c->out[0].type;
    for (uint32_t i = 0; i < c->input_count; i++) {
        const ebb_type *t = &c->in[i].type;
        const bool fine = is_counted(t) && (ebb_type_same_shape(t, y) || ebb_elements(t) == 1);
        if (t->dtype != EBB_NONE && !fine)
            return false;
    }
    return is_pointwise(c) && is_counted(y);
}

ebb_cut ebb_cut_find(const ebb_call *c)
{
    const ebb_type *y = &c->out[0].type;
    ebb_cut k = {.whole = true, .outer = 1, .per_piece = 1, .pieces = 1, .slots = 1};
    if (!(*c->backends)->device->is_host || c->output_count == 0 || y->dtype == EBB_NONE ||
        y->rank == 0 || ebb_elements(y) == 0 || free_axes(c, y->rank) == 0)
        return k;
    int64_t behind = ebb_elements(y);
    k.flat = is_flat(c);
    k.rank = k.flat ? 1 : y->rank;
    k.dims[0] = behind;
    memcpy(k.dims, k.flat ? k.dims : y->dims, (size_t)k.rank * sizeof *k.dims);
    const int last = (k.flat ? 1 : free_axes(c, y->rank)) - 1;
    for (behind /= k.dims[0]; k.axis < last && behind > PIECE; behind /= k.dims[k.axis]) {
        k.outer *= k.dims[k.axis];
        k.axis++;
    }
    const int64_t length = k.dims[k.axis];
    if (!k.flat && !all_follow(&k, c))
        return (ebb_cut){.whole = true, .outer = 1, .per_piece = 1, .pieces = 1, .slots = 1};
    k.whole = false;
    k.per_piece = behind >= PIECE ? 1 : PIECE / behind < length ? PIECE / behind : length;
    k.pieces = k.outer * ((length + k.per_piece - 1) / k.per_piece);
    if (ebb_elements(y) > EBB_PARALLEL_WORTH)
        k.slots = (uint32_t)(k.pieces < ebb_threads() ? k.pieces : ebb_threads());
    return k;
}

int64_t ebb_cut_rest(const ebb_cut *k)
{
    return k->whole ? 0 : k->dims[k->axis] % k->per_piece;
}

void ebb_cut_type(const ebb_cut *k, ebb_type *t, int64_t units)
{
    const bool moves = ebb_elements(t) > 1;
    if (k->flat) {
        t->rank = moves ? 1 : 0; // 0: so that it broadcasts against a flat piece
        t->dims[0] = moves ? units : 0;
        return;
    }
    for (int d = 0; d <= k->axis; d++)
        if (dim_of(t, k->rank, d) != 1)
            t->dims[d - (k->rank - t->rank)] = d == k->axis ? units : 1;
}

int64_t ebb_cut_first(const ebb_cut *k, const ebb_type *t, int64_t piece)
{
    const int64_t along = k->whole ? 1 : k->pieces / k->outer;
    int64_t start = piece % along * k->per_piece, place = piece / along, first = 0;
    if (k->whole || k->flat)
        return k->flat && ebb_elements(t) > 1 ? start : 0;
    int64_t behind = 1;
    for (int d = k->rank - 1; d > k->axis; d--)
        behind *= dim_of(t, k->rank, d);
    for (int d = k->axis; d >= k->rank - t->rank; d--) {
        const int64_t own = dim_of(t, k->rank, d);
        const int64_t index = d == k->axis ? start : place % k->dims[d];
        first += own == 1 ? 0 : index * behind;
        place = d == k->axis ? place : place / k->dims[d];
        behind *= own;
    }
    return first;
}
