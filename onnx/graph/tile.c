/* tile.c: what operators do with rows. Roles follow from shapes where the operator works element by
 * element or row by row; the others have a rule each. */
#include "onnx/graph/tile.h"

typedef struct node {
    ebb_op op;
    const ebb_attrs *attrs;
    const ebb_type *const *in, *const *out;
    uint32_t in_count, out_count, slot;
    int64_t rows;
    ebb_tiling *t;
} node;

static const ebb_type *in_of(const node *n, uint32_t i)
{
    return i < n->in_count ? n->in[i] : NULL;
}

static bool has_rows(const node *n, const ebb_type *t)
{
    return t != NULL && t->rank > 0 && t->dims[0] == n->rows;
}

static bool flag(const node *n, const char *name)
{
    return ebb_attr_int(n->attrs, name, 0) != 0;
}

/* Every operand broadcasts against output 0, from the right. */
static const char *pointwise(node *n)
{
    int rank = n->in[n->slot]->rank;
    for (uint32_t k = 0; k < n->out_count; k++) {
        if (n->out[k] == NULL)
            continue;
        if (n->out[k]->rank != rank || !has_rows(n, n->out[k]))
            return "its rows are not those of what its reader makes";
        n->t->out[k] = EBB_TILE_ROWS;
    }
    for (uint32_t i = 0; i < n->in_count; i++)
        if (n->in[i] != NULL && n->in[i]->rank == rank && has_rows(n, n->in[i]) && n->rows != 1)
            n->t->in[i] = EBB_TILE_ROWS;
    return NULL;
}

/* Element by element, beside one packed bit for each: rows end where bytes end. */
static const char *with_bits(node *n, uint32_t bits)
{
    const ebb_type *packed = in_of(n, bits), *x = n->in[n->slot];
    int64_t elements;
    if (n->slot == bits || packed == NULL || packed->rank != 1 ||
        !ebb_type_elements(x, &elements) || packed->dims[0] * 8 != elements)
        return "its rows do not end where the bytes of a mask do";
    for (uint32_t i = 0; i < n->in_count; i++)
        if (i != bits && !has_rows(n, in_of(n, i)))
            return "its reader's operands have other rows";
    n->t->out[0] = EBB_TILE_ROWS;
    for (uint32_t i = 0; i < n->in_count; i++)
        n->t->in[i] = EBB_TILE_ROWS;
    return NULL;
}

/* Axis 0 is not what each row is normalised along. */
static const char *rowwise(node *n, const char *attr, int64_t otherwise)
{
    int rank = n->in[n->slot]->rank;
    int64_t axis = ebb_attr_int(n->attrs, attr, otherwise);
    if (axis + (axis < 0 ? rank : 0) < 1)
        return "its reader works along the rows";
    return NULL;
}

static const char *none(node *n)
{
    (void)n;
    return "its reader cannot take it by rows";
}

static const char *mask_grad(node *n)
{
    return with_bits(n, 1);
}

static const char *branch_grad(node *n)
{
    return with_bits(n, 2);
}

static const char *softmax_grad(node *n)
{
    const char *refused = rowwise(n, "axis", -1);
    return refused != NULL ? refused : pointwise(n);
}

/* Inputs from 2 on, so many of them, are scale and bias, outputs 1 and 2 their gradients; statistics
 * have a row each. */
static const char *with_scale(node *n, uint32_t whole)
{
    for (uint32_t i = 0; i < n->in_count; i++)
        if ((i < 2 || i >= 2 + whole) && n->in[i] != NULL) {
            if (!has_rows(n, n->in[i]))
                return "its reader's operands have other rows";
            n->t->in[i] = EBB_TILE_ROWS;
        }
    n->t->out[0] = EBB_TILE_ROWS;
    n->t->out[1] = n->t->out[2] = EBB_TILE_SUM;
    return NULL;
}

static const char *norm_grad(node *n)
{
    return with_scale(n, 1);
}

static const char *norm_from(node *n)
{
    return with_scale(n, 2);
}

static const char *row_norm_grad(node *n)
{
    const char *refused = rowwise(n, "axis", -1);
    return refused != NULL ? refused : norm_grad(n);
}

static const char *row_norm_from(node *n)
{
    const char *refused = rowwise(n, "axis", -1);
    return refused != NULL ? refused : norm_from(n);
}

static const char *batch_norm_grad(node *n)
{
    if (!has_rows(n, in_of(n, 0)) || !has_rows(n, in_of(n, 1)) || n->in[0]->rank < 2)
        return "its reader's operands have other rows";
    if (n->out_count < 3 || n->out[1] == NULL || n->out[2] == NULL)
        return "its reader does not make the sums that its rows need";
    n->t->in[0] = n->t->in[1] = EBB_TILE_ROWS;
    n->t->out[0] = EBB_TILE_ROWS;
    n->t->out[1] = n->t->out[2] = EBB_TILE_SUM;
    n->t->two_walks = true;
    return NULL;
}

static const char *conv_weight_grad(node *n)
{
    if (!has_rows(n, in_of(n, 0)) || !has_rows(n, in_of(n, 1)))
        return "its reader's operands have other rows";
    n->t->in[0] = n->t->in[1] = EBB_TILE_ROWS;
    n->t->out[0] = EBB_TILE_SUM;
    return NULL;
}

/* A matrix product: over the rows (both operands transposed so that they are what is summed over),
 * by rows of the left matrix, or by the outermost of the batch's axes. */
static const char *of_matrices(node *n, bool left_turned, bool right_turned)
{
    const ebb_type *a = in_of(n, 0), *b = in_of(n, 1);
    if (a == NULL || b == NULL || a->rank < 2 || b->rank < 2)
        return "its reader has an operand of rank below 2";
    if (a->rank > 2 && a->rank == b->rank && has_rows(n, a) && has_rows(n, b)) {
        n->t->in[0] = n->t->in[1] = n->t->out[0] = EBB_TILE_ROWS;
        return NULL;
    }
    bool bias = in_of(n, 2) != NULL;
    if (a->rank == 2 && b->rank == 2 && left_turned && !right_turned && !bias && has_rows(n, a) &&
        has_rows(n, b)) {
        n->t->in[0] = n->t->in[1] = EBB_TILE_ROWS;
        n->t->out[0] = EBB_TILE_SUM;
        return NULL;
    }
    if (n->slot == 0 && b->rank == 2 && (a->rank > 2 || !left_turned) && has_rows(n, n->out[0])) {
        if (bias && n->in[2]->rank == 2 && n->in[2]->dims[0] != 1)
            return "its reader adds a matrix";
        n->t->in[0] = n->t->out[0] = EBB_TILE_ROWS;
        return NULL;
    }
    return "its reader needs all rows at once";
}

static const char *matmul(node *n)
{
    return of_matrices(n, false, false);
}

static const char *product(node *n)
{
    return of_matrices(n, flag(n, "transA"), flag(n, "transB"));
}

/* Column tile of ops.def. */
static const char *(*const roles[EBB_OP_COUNT])(node *n) = {
    [EBB_OP_UNKNOWN] = none,
#define EBB_OP(id, domain, name, since, operands, reads, slots, traits, alias, infer, grad, cost, \
               sizes, tile, ...)                                                                  \
    [EBB_OP_##id] = tile,
#include "onnx/tables/ops.def"
#undef EBB_OP
};

const char *ebb_tiling_find(ebb_tiling *tiling, ebb_op op, const ebb_attrs *attrs,
                            const ebb_type *const *in, uint32_t in_count,
                            const ebb_type *const *out, uint32_t out_count, uint32_t slot)
{
    *tiling = (ebb_tiling){0};
    if (in_count > EBB_TILE_OPERANDS || out_count > EBB_TILE_OPERANDS || slot >= in_count ||
        in[slot] == NULL || out_count == 0 || out[0] == NULL)
        return "its reader has too many operands";
    if (in[slot]->rank < 1 || in[slot]->dims[0] < 1)
        return "it has no rows";
    node n = {op, attrs, in, out, in_count, out_count, slot, in[slot]->dims[0], tiling};
    const char *refused = roles[op](&n);
    if (refused == NULL && tiling->in[slot] != EBB_TILE_ROWS)
        refused = "its reader cannot take it by rows";
    return refused;
}
