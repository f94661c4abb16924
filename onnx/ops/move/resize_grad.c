/* resize, gradient: of Resize and Upsample.
 *
 * Both are linear, and a product over the axes: along an axis every place of y is a sum of shares
 * of elements of x. So dx is made an axis at a time, the shares turned round:
 *
 *     y   . . . . . .      dy [outer, out, inner]
 *         |\|/|\|/|        each element gets the shares that it gave
 *     x    .   .   .       dx [outer, in, inner]
 *
 * Where scales and roi are known, so are the shares, and become constants. Three ways, by what they
 * are: a sum over blocks (nearest, by a whole scale); a product with the matrix of shares; and for
 * a long axis, whose matrix is large and nearly all zeros, a sum of elements gathered.
 *
 * Where scales or roi are known in the run alone, the operator itself makes the matrix of shares:
 * the identity, resized along one axis.
 */
#include "onnx/ops/common.h"
#include "onnx/words/resize.h"

enum { MATRIX_MOST = 1 << 20, MATRIX_SIDE = 1 << 10 }; /* elements; of the identity */

typedef struct share { /* of element `in` of x in place `out` of y */
    int64_t in, out;
    double weight;
} share;

typedef struct shares {
    const ebb_resize_axis *axis;
    share *list; /* by place of y; an element of x once in each */
    int64_t count;
} shares;

/* ---- what the constants say ---- */

static bool numbers(const ebb_build *b, const ebb_grad *c, uint32_t i, double *list, int64_t most,
                    int64_t *count)
{
    const ebb_tensor *t =
        i < c->input_count && c->x[i].i != 0 ? ebb_value_constant(b->g, c->x[i]) : NULL;
    if (t == NULL || t->data == NULL || !ebb_type_elements(&t->type, count) || *count > most)
        return false;
    bool whole = ebb_dtype_is_integer((ebb_dtype)t->type.dtype);
    for (int64_t k = 0; k < *count; k++)
        list[k] = whole ? (double)ebb_tensor_int(t, k) : ebb_tensor_double(t, k);
    return true;
}

static bool is_cropped(const ebb_resize *r, const ebb_grad *c, bool old)
{
    return !old && r->transform == EBB_RESIZE_CROP && ebb_grad_has(c, 1);
}

/* Which axis entry k of scales, sizes or roi is of. */
static int axis_of(const ebb_grad *c, int rank, int64_t k)
{
    uint32_t count;
    const int64_t *axes = ebb_attr_ints(&c->attrs, "axes", &count);
    if (axes == NULL)
        return (int)k;
    return (int)(axes[k] < 0 ? axes[k] + rank : axes[k]);
}

/* Sizes that are computed in the run are what y has, unless they only bound it. */
static bool sizes_of_y(const ebb_resize *r, const ebb_grad *c, double *sizes, int64_t *count)
{
    const char *policy = ebb_attr_string(&c->attrs, "keep_aspect_ratio_policy", "stretch");
    *count = ebb_resize_entries(&c->attrs, r->rank);
    if (!ebb_grad_has(c, 3) || strcmp(policy, "stretch") != 0)
        return false;
    for (int64_t k = 0; k < *count; k++)
        sizes[k] = (double)r->axis[axis_of(c, r->rank, k)].out;
    return true;
}

/* A sentence where something that the shares depend on is wrong; *known: all of it is constant. */
static const char *read_scales(ebb_resize *r, const ebb_build *b, const ebb_grad *c, bool old,
                               bool *known)
{
    double scales[EBB_MAX_RANK], sizes[EBB_MAX_RANK], roi[2 * EBB_MAX_RANK];
    ebb_resize_values values = {.scales = scales};
    const ebb_attr *attr = ebb_attr_find(&c->attrs, "scales");
    int64_t entries = ebb_resize_entries(&c->attrs, r->rank), count = 0;
    *known = false;
    if (entries > EBB_MAX_RANK)
        return "axes names an axis twice";
    if (!old && ((numbers(b, c, 3, sizes, EBB_MAX_RANK, &count) && count > 0) ||
                 sizes_of_y(r, c, sizes, &count))) {
        values.sizes = sizes;
    } else if (attr != NULL && attr->floats != NULL && attr->count <= EBB_MAX_RANK) {
        count = (int64_t)attr->count;
        for (int64_t i = 0; i < count; i++)
            scales[i] = (double)attr->floats[i];
    } else if (!numbers(b, c, old ? 1 : 2, scales, EBB_MAX_RANK, &count)) {
        return NULL;
    }
    if (count != entries)
        return "there is not one scale for each axis";
    if (is_cropped(r, c, old)) {
        if (!numbers(b, c, 1, roi, 2 * EBB_MAX_RANK, &values.roi_count))
            return NULL;
        values.roi = roi;
    }
    *known = true;
    return ebb_resize_scale(r, &c->attrs, &values);
}

/* The shares of axis d. False where there is no memory, or scale and sizes do not fit; the builder
 * says which. */
static bool read_shares(shares *s, const ebb_resize *r, int d, ebb_build *b, const ebb_grad *c)
{
    const ebb_resize_axis *l = &r->axis[d];
    size_t most, bytes;
    *s = (shares){.axis = l};
    if (ebb_size_mul(&most, (size_t)l->out, (size_t)l->taps) &&
        ebb_size_mul(&bytes, most, sizeof *s->list))
        s->list = ebb_alloc(bytes);
    if (!ebb_build_got(b, s->list))
        return false;
    double *weight = ebb_alloc((size_t)l->taps * sizeof *weight);
    for (int64_t o = 0; weight != NULL && o < l->out; o++) {
        int64_t begin, first = s->count, n = ebb_resize_place(r, d, o, &begin, weight);
        if (n == EBB_RESIZE_WRONG) {
            ebb_grad_fail(b, c, "its scales do not fit its shapes");
            break;
        }
        for (int64_t k = 0; k < n; k++) { // n < 0 outside: no share
            int64_t i = ebb_resize_at(l, begin + k);
            bool again = s->count > first && s->list[s->count - 1].in == i;
            if (again)
                s->list[s->count - 1].weight += weight[k];
            else if (weight[k] != 0)
                s->list[s->count++] = (share){.in = i, .out = o, .weight = weight[k]};
        }
    }
    (void)ebb_build_got(b, weight);
    ebb_free(weight);
    return b->status == NULL;
}

/* ---- sums ---- */

/* How many places in a row each element fills, whole and in order; 0 where it is not so. 1: the
 * axis stays as it is. */
static int64_t block_of(const shares *s)
{
    int64_t in = s->axis->in, out = s->axis->out;
    if (in == 0 || out % in != 0 || s->count != out)
        return 0;
    for (int64_t o = 0; o < out; o++)
        if (s->list[o].out != o || s->list[o].in != o / (out / in) || s->list[o].weight != 1)
            return 0;
    return out / in;
}

static ebb_value by_blocks(ebb_build *b, ebb_value dy, const int64_t *span, int64_t in,
                           int64_t block)
{
    const int64_t dims[4] = {span[0], in, block, span[2]}, axis = 2;
    ebb_value apart = ebb_emit_reshape(b, dy, dims, 4);
    return ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, apart, &axis, 1, false);
}

static ebb_value by_matrix(ebb_build *b, ebb_value dy, const int64_t *span, const shares *s)
{
    int64_t in = s->axis->in, out = s->axis->out;
    bool last = span[2] == 1; // then dy [outer, out] times the matrix, else its transpose times dy
    const int64_t flat[2] = {span[0], out}, dims[2] = {last ? out : in, last ? in : out};
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, dy)->dtype;
    double *matrix = ebb_alloc((size_t)(in * out) * sizeof *matrix);
    if (!ebb_build_got(b, matrix))
        return EBB_NO_VALUE;
    memset(matrix, 0, (size_t)(in * out) * sizeof *matrix);
    for (int64_t k = 0; k < s->count; k++) {
        const share *e = &s->list[k];
        matrix[last ? e->out * in + e->in : e->in * out + e->out] += e->weight;
    }
    ebb_value m = ebb_const_floats(b, dtype, 2, dims, matrix);
    ebb_free(matrix);
    if (last)
        return ebb_emit(b, EBB_OP_MATMUL, ebb_emit_reshape(b, dy, flat, 2), m);
    return ebb_emit(b, EBB_OP_MATMUL, m, ebb_emit_reshape(b, dy, span, 3));
}

/* Each element has as many places as the one with most; weight 0 where it has fewer. */
static ebb_value by_gathering(ebb_build *b, ebb_value dy, const int64_t *span, const shares *s)
{
    int64_t in = s->axis->in, most = 1, axis = 2;
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, dy)->dtype;
    int64_t *count = ebb_alloc((size_t)in * sizeof *count), *places = NULL;
    double *weights = NULL;
    size_t total = 0;
    if (count != NULL) {
        memset(count, 0, (size_t)in * sizeof *count);
        for (int64_t k = 0; k < s->count; k++)
            if (++count[s->list[k].in] > most)
                most = count[s->list[k].in];
        memset(count, 0, (size_t)in * sizeof *count);
    }
    if (ebb_size_mul(&total, (size_t)in, (size_t)most) && total <= UINT32_MAX) {
        places = ebb_alloc(total * sizeof *places);
        weights = ebb_alloc(total * sizeof *weights);
    }
    if (!ebb_build_got(b, count && places && weights))
        total = 0;
    for (size_t k = 0; k < total; k++) {
        places[k] = 0;
        weights[k] = 0;
    }
    for (int64_t k = 0; total > 0 && k < s->count; k++) {
        const share *e = &s->list[k];
        int64_t at = e->in * most + count[e->in]++;
        places[at] = e->out;
        weights[at] = e->weight;
    }
    ebb_value sum = EBB_NO_VALUE;
    if (total > 0) {
        const int64_t dims[4] = {span[0], in, most, span[2]}, column[3] = {in, most, 1};
        ebb_value taken =
            ebb_emit_picked(b, ebb_emit_reshape(b, dy, span, 3), 1, places, (uint32_t)total);
        ebb_value apart = ebb_emit_reshape(b, taken, dims, 4);
        ebb_value w = ebb_const_floats(b, dtype, 3, column, weights);
        sum = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, ebb_emit(b, EBB_OP_MUL, apart, w), &axis, 1,
                              false);
    }
    ebb_free(count);
    ebb_free(places);
    ebb_free(weights);
    return sum;
}

/* dy with the axis that `s` is of as x has it. span: dy as [outer, out, inner]. */
static ebb_value turned(ebb_build *b, ebb_value dy, const int64_t *span, const shares *s)
{
    int64_t block = block_of(s);
    if (block == 1)
        return dy;
    if (block > 1)
        return by_blocks(b, dy, span, s->axis->in, block);
    int64_t elements;
    if (!__builtin_mul_overflow(s->axis->in, s->axis->out, &elements) && elements <= MATRIX_MOST)
        return by_matrix(b, dy, span, s);
    return by_gathering(b, dy, span, s);
}

/* ---- in the run ---- */

/* Entry k of a list of one for each resized axis, and what the axis behind it has. */
static ebb_value entry_and(ebb_build *b, ebb_value list, int64_t k, double next)
{
    static const int64_t one = 1;
    ebb_value first = ebb_emit_part(b, list, 0, k, 1);
    if (b->status != NULL)
        return EBB_NO_VALUE;
    ebb_value second =
        ebb_const_floats(b, (ebb_dtype)ebb_build_type(b, list)->dtype, 1, &one, &next);
    ebb_with_int(b, "axis", 0);
    return ebb_emit(b, EBB_OP_CONCAT, first, second);
}

static ebb_value identity(ebb_build *b, ebb_dtype dtype, int64_t n)
{
    const int64_t dims[2] = {n, n};
    double *list = ebb_alloc((size_t)(n * n) * sizeof *list);
    if (!ebb_build_got(b, list))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < n * n; i++)
        list[i] = i % (n + 1) == 0;
    ebb_value v = ebb_const_floats(b, dtype, 2, dims, list);
    ebb_free(list);
    return v;
}

/* The shares of an axis, [out, in], by the operator itself. entry: which one of the lists is the
 * axis's. */
static ebb_value made_shares(ebb_build *b, ebb_grad *c, const ebb_resize *r, int d, int64_t entry,
                             bool old)
{
    static const int64_t both[2] = {0, 1};
    const ebb_resize_axis *l = &r->axis[d];
    const int64_t sizes[2] = {l->out, l->in}, entries = ebb_resize_entries(&c->attrs, r->rank);
    ebb_op op = ebb_node_of(b->g, c->node)->op;
    ebb_value in[4] = {identity(b, (ebb_dtype)ebb_build_type(b, c->dy[0])->dtype, l->in)};
    uint32_t count = old ? 2 : 3;
    if (is_cropped(r, c, old)) {
        ebb_value pair[2] = {entry_and(b, c->x[1], entry, 0),
                             entry_and(b, c->x[1], entries + entry, 1)};
        ebb_with_int(b, "axis", 0);
        in[1] = ebb_emit_list(b, EBB_OP_CONCAT, pair, 2);
    }
    if (!old && ebb_grad_has(c, 3)) {
        in[3] = ebb_const_ints(b, sizes, 2);
        count = 4;
    } else {
        in[count - 1] = entry_and(b, c->x[count - 1], entry, 1);
    }
    if (b->status != NULL)
        return EBB_NO_VALUE;
    ebb_with_attrs_of(b, c->node);
    if (ebb_attr_find(&c->attrs, "axes") != NULL)
        ebb_with_ints(b, "axes", both, 2);
    if (ebb_attr_find(&c->attrs, "extrapolation_value") != NULL)
        ebb_with_float(b, "extrapolation_value", 0);
    ebb_value m = ebb_emit_list(b, op, in, count);
    if (b->status != NULL)
        return m;
    ebb_type type = ebb_type_tensor((ebb_dtype)ebb_build_type(b, c->dy[0])->dtype, 2, sizes);
    ebb_build_fail(b, ebb_value_set_type(b->g, m, &type)); // what the scales of a run make of it,
    return m;                                              // y's type has told
}

/* As `turned`, by shares that are made in the run. */
static ebb_value turned_in_run(ebb_build *b, ebb_value dy, const int64_t *span, ebb_value m)
{
    static const int64_t swap[2] = {1, 0};
    const int64_t flat[2] = {span[0], span[1]};
    if (span[2] == 1)
        return ebb_emit(b, EBB_OP_MATMUL, ebb_emit_reshape(b, dy, flat, 2), m);
    ebb_value turn = ebb_emit_transpose(b, m, swap, 2);
    return ebb_emit(b, EBB_OP_MATMUL, turn, ebb_emit_reshape(b, dy, span, 3));
}

/* Why shares cannot be made in the run, or NULL. */
static const char *declines_run(const ebb_build *b, const ebb_grad *c, const ebb_resize *r,
                                bool old)
{
    const char *policy = ebb_attr_string(&c->attrs, "keep_aspect_ratio_policy", "stretch");
    if (!ebb_grad_has(c, old ? 1 : 2) && (old || !ebb_grad_has(c, 3)))
        return "it has neither scales nor sizes";
    if (ebb_grad_has(c, 3) && strcmp(policy, "stretch") != 0)
        return "its sizes or roi are not constant, and its aspect ratio is kept";
    if (ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) < 10)
        return "its scales are not constant, and its opset is older than 10";
    for (int d = 0; d < r->rank; d++)
        if (r->axis[d].in > MATRIX_SIDE || r->axis[d].out > MATRIX_MOST / MATRIX_SIDE)
            return "its scales are not constant, and an axis is too long for a matrix of shares";
    return NULL;
}

/* ---- the rule ---- */

/* dy with axis d as x has it; entry: of the lists; -1: the axis stays as it is. */
static ebb_value resized_back(ebb_build *b, ebb_grad *c, const ebb_resize *r, int d, int64_t entry,
                              ebb_value dy, const int64_t *span, bool known, bool old)
{
    shares s;
    if (!known)
        return entry < 0 ? dy : turned_in_run(b, dy, span, made_shares(b, c, r, d, entry, old));
    if (read_shares(&s, r, d, b, c))
        dy = turned(b, dy, span, &s);
    ebb_free(s.list);
    return dy;
}

/* y = Resize(x, roi?, scales?, sizes?).  Nothing flows into roi, scales or sizes. */
void ebb_grad_resize(ebb_build *b, ebb_grad *c)
{
    ebb_type x, y;
    ebb_resize r;
    bool known, old = ebb_node_of(b->g, c->node)->op == EBB_OP_UPSAMPLE ||
                      ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) < 11;
    if (!ebb_grad_wants(c, 0) || !ebb_grad_shape(b, c, c->x[0], &x) ||
        !ebb_grad_shape(b, c, c->y[0], &y))
        return;
    ebb_resize_read(&r, &c->attrs, old, &x, &y);
    const char *wrong = read_scales(&r, b, c, old, &known);
    int64_t of_x = 0, of_y = 0, entry[EBB_MAX_RANK];
    if (wrong == NULL && !known)
        wrong = declines_run(b, c, &r, old);
    if (wrong != NULL) {
        ebb_grad_fail(b, c, wrong);
        return;
    }
    if (!ebb_type_elements(&x, &of_x) || !ebb_type_elements(&y, &of_y) || of_x == 0 || of_y == 0) {
        c->dx[0] = ebb_emit_zeros_like(b, c->x[0]);
        return;
    }
    for (int d = 0; d < r.rank; d++)
        entry[d] = -1;
    for (int64_t k = 0; k < ebb_resize_entries(&c->attrs, r.rank); k++)
        entry[axis_of(c, r.rank, k)] = k;
    ebb_value dx = c->dy[0];
    for (int d = r.rank - 1; d >= 0 && b->status == NULL; d--) {
        int64_t span[3] = {1, y.dims[d], 1}; // of what is y in the axes before, x in those after
        for (int k = 0; k < d; k++)
            span[0] *= y.dims[k];
        for (int k = d + 1; k < r.rank; k++)
            span[2] *= x.dims[k];
        int64_t all;
        if (__builtin_mul_overflow(span[0], span[1], &all) ||
            __builtin_mul_overflow(all, span[2], &all)) {
            ebb_grad_fail(b, c, "its shapes are too large");
            return;
        }
        dx = resized_back(b, c, &r, d, entry[d], dx, span, known, old);
    }
    c->dx[0] = ebb_emit_reshape_like(b, dx, c->x[0]);
}
