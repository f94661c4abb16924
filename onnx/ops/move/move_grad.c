/* move, gradients: what went somewhere comes back from there.
 *
 * None of them needs the values of the data: shapes, axes and indices alone.
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

static void refuse(ebb_build *b, const ebb_grad *c, const char *why)
{
    ebb_build_fail(
        b, ebb_error(EBB_UNSUPPORTED, "%s: no gradient %s", ebb_node_label(b->g, c->node), why));
}

static bool wants(const ebb_grad *c, uint32_t i)
{
    return i < c->input_count && c->wants[i];
}

/* ---- views and permutations ---- */

/* Also of steps (round, floor, ceil), straight through. */
void ebb_grad_identity(ebb_build *b, ebb_grad *c)
{
    (void)b;
    c->dx[0] = c->dy[0];
}

/* Reshape, Flatten, Squeeze, Unsqueeze. */
void ebb_grad_reshape(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit_reshape_like(b, c->dy[0], c->x[0]);
}

void ebb_grad_transpose(ebb_build *b, ebb_grad *c)
{
    int rank = ebb_build_type(b, c->x[0])->rank;
    uint32_t count;
    const int64_t *perm = ebb_attr_ints(&c->attrs, "perm", &count);
    int64_t back[EBB_MAX_RANK];
    for (int i = 0; i < rank; i++)
        back[count != 0 ? perm[i] : rank - 1 - i] = i;
    c->dx[0] = ebb_emit_transpose(b, c->dy[0], back, rank);
}

/* y = Concat(x0, x1, ...).  One Split where all parts are wanted, else a Slice for each. */
void ebb_grad_concat(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    if (!ebb_grad_shape(b, c, c->x[0], &x))
        return;
    int axis = ebb_grad_axis(c, 1, x.rank);
    int64_t sizes[EBB_BUILD_OUTPUTS], from = 0;
    bool all = c->input_count > 1 && c->input_count <= EBB_BUILD_OUTPUTS &&
               ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) >= 13;
    for (uint32_t i = 0; i < c->input_count; i++) {
        if (!ebb_grad_shape(b, c, c->x[i], &x))
            return;
        all = all && c->wants[i];
        if (i < EBB_BUILD_OUTPUTS)
            sizes[i] = x.dims[axis];
    }
    if (all) {
        ebb_value in[2] = {c->dy[0], ebb_const_ints(b, sizes, c->input_count)};
        ebb_with_int(b, "axis", axis);
        ebb_emit_node(b, EBB_OP_SPLIT, in, 2, c->dx, c->input_count,
                      (UINT32_C(1) << c->input_count) - 1);
        return;
    }
    for (uint32_t i = 0; i < c->input_count; i++) {
        int64_t size = ebb_build_type(b, c->x[i])->dims[axis];
        if (c->wants[i])
            c->dx[i] =
                c->input_count == 1 ? c->dy[0] : ebb_emit_part(b, c->dy[0], axis, from, size);
        from += size;
    }
}

/* y0, y1, ... = Split(x).  Concat of all dy, zeros where none arrives. */
void ebb_grad_split(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    if (!ebb_grad_shape(b, c, c->x[0], &x))
        return;
    int axis = ebb_grad_axis(c, 0, x.rank);
    ebb_value *parts = EBB_NEW(&b->g->model->arena, ebb_value, c->output_count);
    if (!ebb_build_got(b, parts))
        return;
    // Neighbours without a gradient become one block of zeros. An output nobody named has no type,
    // so block sizes come from what the split leaves between those that have one.
    const int64_t *sizes = NULL;
    int64_t list[2 * EBB_MAX_RANK], each = 0;
    int count = 0;
    uint32_t attr_count;
    if (ebb_grad_ints(b, c, 1, list, &count))
        sizes = list;
    else if ((sizes = ebb_attr_ints(&c->attrs, "split", &attr_count)) != NULL)
        count = (int)attr_count;
    else
        each = (x.dims[axis] + (int64_t)c->output_count - 1) / (int64_t)c->output_count;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->output_count; i++) {
        if (c->dy[i].i != 0) {
            parts[n++] = c->dy[i];
            continue;
        }
        ebb_type zeros = x;
        int64_t left = x.dims[axis] - each * (int64_t)i;
        if (c->y[i].i != 0 && ebb_type_is_static(ebb_build_type(b, c->y[i])))
            zeros.dims[axis] = ebb_build_type(b, c->y[i])->dims[axis];
        else
            zeros.dims[axis] = sizes != NULL && (int)i < count ? sizes[i]
                               : left < each                   ? left
                                                               : each;
        ebb_value shape = ebb_const_ints(b, zeros.dims, (uint32_t)zeros.rank);
        parts[n++] = ebb_emit(b, EBB_OP_EXPAND, ebb_const_like(b, c->x[0], 0.0), shape);
    }
    ebb_with_int(b, "axis", axis);
    c->dx[0] = n == 1 ? parts[0] : ebb_emit_list(b, EBB_OP_CONCAT, parts, n);
    if (n == 1)
        ebb_without_attrs(b);
}

/* ---- parts and frames ---- */

/* y = Slice(x).  Where steps are 1, dy is padded with zeros; else SliceGrad puts it in place. */
void ebb_grad_slice(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    if (!ebb_grad_shape(b, c, c->x[0], &x))
        return;
    int64_t starts[2 * EBB_MAX_RANK], ends[2 * EBB_MAX_RANK];
    int64_t axes[2 * EBB_MAX_RANK], steps[2 * EBB_MAX_RANK], pads[2 * EBB_MAX_RANK] = {0};
    int count = 0, end_count = 0, axis_count, step_count;
    bool known = ebb_grad_ints(b, c, 1, starts, &count) &&
                 ebb_grad_ints(b, c, 2, ends, &end_count) && count == end_count && count <= x.rank;
    for (int i = 0; known && i < count; i++) {
        axes[i] = i;
        steps[i] = 1;
    }
    if (ebb_grad_has(c, 3))
        known = known && ebb_grad_ints(b, c, 3, axes, &axis_count) && axis_count == count;
    if (ebb_grad_has(c, 4))
        known = known && ebb_grad_ints(b, c, 4, steps, &step_count) && step_count == count;
    for (int i = 0; known && i < count; i++)
        known = steps[i] == 1;
    if (!known) {
        ebb_value in[6] = {c->dy[0], ebb_const_shape(b, c->x[0]), c->x[1], c->x[2]};
        in[4] = ebb_grad_has(c, 3) ? c->x[3] : EBB_NO_VALUE;
        in[5] = ebb_grad_has(c, 4) ? c->x[4] : EBB_NO_VALUE;
        c->dx[0] = ebb_emit_list(b, EBB_OP_SLICE_GRAD, in, 6);
        return;
    }
    for (int i = 0; i < count; i++) {
        int axis = (int)(axes[i] < 0 ? axes[i] + x.rank : axes[i]);
        int64_t size, first = ebb_slice_bounds(x.dims[axis], starts[i], ends[i], 1, &size);
        pads[axis] = first;
        pads[axis + x.rank] = x.dims[axis] - first - size;
    }
    ebb_value frame = ebb_const_ints(b, pads, 2 * (uint32_t)x.rank);
    c->dx[0] = ebb_emit(b, EBB_OP_PAD, c->dy[0], frame);
}

/* Modes reflect, edge, wrap: what stands at a position along an axis came from one place, which
 * Pad of the places themselves tells. dy is added up there, axis by axis. */
static void grad_pad_around(ebb_build *b, ebb_grad *c, const int64_t *begin, const int64_t *end)
{
    ebb_type x, y;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !ebb_grad_shape(b, c, c->y[0], &y))
        return;
    ebb_value dx = c->dy[0], one = ebb_const_scalar(b, EBB_I64, 1);
    for (int axis = x.rank - 1; axis >= 0; axis--) {
        if (begin[axis] == 0 && end[axis] == 0)
            continue;
        int64_t frame[2] = {begin[axis], end[axis]};
        ebb_value size = ebb_const_scalar(b, EBB_I64, (double)x.dims[axis]);
        ebb_value places = ebb_emit(b, EBB_OP_RANGE, ebb_const_scalar(b, EBB_I64, 0), size, one);
        ebb_with_string(b, "mode", ebb_attr_string(&c->attrs, "mode", ""));
        ebb_value from = ebb_emit(b, EBB_OP_PAD, places, ebb_const_ints(b, frame, 2));
        y.dims[axis] = x.dims[axis];
        ebb_value shape = ebb_const_ints(b, y.dims, (uint32_t)y.rank);
        ebb_with_int(b, "axis", axis);
        dx = ebb_emit(b, EBB_OP_GATHER_GRAD, shape, from, dx);
    }
    c->dx[0] = dx;
}

/* y = Pad(x, pads).  Constant mode: the frame is cut off; where pads were negative it is put on. */
void ebb_grad_pad(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    if (!ebb_grad_shape(b, c, c->x[0], &x))
        return;
    const char *mode = ebb_attr_string(&c->attrs, "mode", "constant");
    int64_t pads[2 * EBB_MAX_RANK], axes[2 * EBB_MAX_RANK];
    int pad_count, count = x.rank;
    if (!ebb_grad_ints(b, c, 1, pads, &pad_count) ||
        (ebb_grad_has(c, 3) && !ebb_grad_ints(b, c, 3, axes, &count))) {
        refuse(b, c, "where the pads are not constant");
        return;
    }
    int64_t starts[EBB_MAX_RANK], ends[EBB_MAX_RANK], along[EBB_MAX_RANK];
    int64_t frame[2 * EBB_MAX_RANK] = {0};
    int64_t begins[EBB_MAX_RANK] = {0}, over[EBB_MAX_RANK] = {0};
    uint32_t cut = 0;
    bool framed = false;
    for (int i = 0; i < count; i++) {
        int64_t axis = ebb_grad_has(c, 3) ? axes[i] < 0 ? axes[i] + x.rank : axes[i] : i;
        int64_t begin = begins[axis] = pads[i], end = over[axis] = pads[i + count];
        frame[axis] = begin < 0 ? -begin : 0;
        frame[axis + x.rank] = end < 0 ? -end : 0;
        framed = framed || begin < 0 || end < 0;
        if (begin > 0 || end > 0) {
            int64_t out = x.dims[axis] + begin + end;
            starts[cut] = begin > 0 ? begin : 0;
            ends[cut] = end > 0 ? out - end : out;
            along[cut++] = axis;
        }
    }
    if (strcmp(mode, "constant") != 0) {
        grad_pad_around(b, c, begins, over);
        return;
    }
    ebb_value dx = c->dy[0];
    if (cut > 0) {
        ebb_value first = ebb_const_ints(b, starts, cut), last = ebb_const_ints(b, ends, cut);
        dx = ebb_emit(b, EBB_OP_SLICE, dx, first, last, ebb_const_ints(b, along, cut));
    }
    if (framed) {
        ebb_value shape = ebb_const_ints(b, frame, 2 * (uint32_t)x.rank);
        dx = ebb_emit(b, EBB_OP_PAD, dx, shape);
    }
    if (ebb_grad_wants(c, 0))
        c->dx[0] = dx;
    if (ebb_grad_has(c, 2) && ebb_grad_wants(c, 2)) { // dy where ones around a hole of zeros are
        ebb_value hole = ebb_emit_zeros_like(b, c->x[0]), one = ebb_const_like(b, c->x[2], 1.0);
        ebb_value axis_list = ebb_grad_has(c, 3) ? c->x[3] : EBB_NO_VALUE;
        ebb_value rim = ebb_emit(b, EBB_OP_PAD, hole, c->x[1], one, axis_list);
        ebb_grad_give(b, c, 2, ebb_emit(b, EBB_OP_MUL, c->dy[0], rim));
    }
}

void ebb_grad_expand(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit_unbroadcast(b, c->dy[0], c->x[0]);
}

/* y = Tile(x, r).  dy as [r0, d0, r1, d1, ...], summed over the r. */
void ebb_grad_tile(ebb_build *b, ebb_grad *c)
{
    ebb_type x, y;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !ebb_grad_shape(b, c, c->y[0], &y))
        return;
    int64_t dims[2 * EBB_MAX_RANK], axes[EBB_MAX_RANK];
    int rank = 0;
    uint32_t count = 0;
    for (int i = 0; i < x.rank; i++) {
        int64_t repeat = x.dims[i] > 0 ? y.dims[i] / x.dims[i] : 1;
        if (repeat != 1) {
            axes[count++] = rank;
            dims[rank++] = repeat;
        }
        dims[rank++] = x.dims[i];
    }
    if (rank > EBB_MAX_RANK) {
        refuse(b, c, "for so many repeated axes");
        return;
    }
    ebb_value dy = ebb_emit_reshape(b, c->dy[0], dims, rank);
    c->dx[0] = count == 0 ? dy : ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, dy, axes, count, false);
}

void ebb_grad_trilu(ebb_build *b, ebb_grad *c)
{
    ebb_value k = ebb_grad_has(c, 1) ? c->x[1] : EBB_NO_VALUE;
    ebb_with_attrs_of(b, c->node);
    c->dx[0] = ebb_emit(b, EBB_OP_TRILU, c->dy[0], k);
}

/* ---- by index ---- */

void ebb_grad_gather(ebb_build *b, ebb_grad *c)
{
    ebb_value shape = ebb_const_shape(b, c->x[0]);
    ebb_with_int(b, "axis", ebb_attr_int(&c->attrs, "axis", 0));
    c->dx[0] = ebb_emit(b, EBB_OP_GATHER_GRAD, shape, c->x[1], c->dy[0]);
}

void ebb_grad_gather_elements(ebb_build *b, ebb_grad *c)
{
    ebb_value shape = ebb_const_shape(b, c->x[0]);
    ebb_with_int(b, "axis", ebb_attr_int(&c->attrs, "axis", 0));
    c->dx[0] = ebb_emit(b, EBB_OP_GATHER_ELEMENTS_GRAD, c->dy[0], shape, c->x[1]);
}

/* Indices that begin with the place in the batch, which ScatterND does not know by itself: for
 * batch_dims = 1, index [B, n, k] becomes [B, n, 1 + k]. */
static ebb_value with_batch(ebb_build *b, ebb_value index, int batch)
{
    ebb_type type = *ebb_build_type(b, index);
    const int last = type.rank - 1;
    int64_t dims[EBB_MAX_RANK], count = 1;
    EBB_LOCAL_ARENA(scratch);
    memcpy(dims, type.dims, sizeof dims);
    for (int i = 0; i < last; i++)
        count *= type.dims[i] = i < batch ? type.dims[i] : 1;
    type.dims[last] = dims[last] = batch;
    int64_t *place = EBB_NEW(scratch, int64_t, (size_t)(count * batch));
    if (!ebb_build_got(b, place))
        return EBB_NO_VALUE;
    for (int64_t row = 0; row < count; row++)
        for (int64_t i = batch, rest = row; i-- > 0; rest /= dims[i])
            place[row * batch + i] = rest % dims[i];
    const ebb_value parts[] = {
        ebb_emit(b, EBB_OP_EXPAND, ebb_const_tensor(b, &type, place),
                 ebb_const_ints(b, dims, (uint32_t)type.rank)),
        index,
    };
    ebb_with_int(b, "axis", last);
    return ebb_emit_list(b, EBB_OP_CONCAT, parts, 2);
}

/* dy is added up where it came from: ScatterND with reduction = add, which opset 16 has first. */
void ebb_grad_gather_nd(ebb_build *b, ebb_grad *c)
{
    if (ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) < 16) {
        refuse(b, c, "before opset 16, where ScatterND cannot add");
        return;
    }
    const int batch = (int)ebb_attr_int(&c->attrs, "batch_dims", 0);
    ebb_value zeros = ebb_emit_zeros_like(b, c->x[0]);
    ebb_value index = batch == 0 ? c->x[1] : with_batch(b, c->x[1], batch);
    ebb_with_string(b, "reduction", "add");
    c->dx[0] = ebb_emit(b, EBB_OP_SCATTER_ND, zeros, index, c->dy[0]);
}

/* A scatter over the rule's own indices, and its way back. */
static ebb_value scattered(ebb_build *b, const ebb_grad *c, ebb_value data, ebb_value updates,
                           const char *reduction)
{
    ebb_op op = ebb_node_of(b->g, c->node)->op;
    if (op == EBB_OP_SCATTER_ELEMENTS)
        ebb_with_int(b, "axis", ebb_attr_int(&c->attrs, "axis", 0));
    ebb_with_string(b, "reduction", reduction);
    return ebb_emit(b, op, data, c->x[1], updates);
}

static ebb_value gathered(ebb_build *b, const ebb_grad *c, ebb_value v)
{
    bool elements = ebb_node_of(b->g, c->node)->op == EBB_OP_SCATTER_ELEMENTS;
    if (elements)
        ebb_with_int(b, "axis", ebb_attr_int(&c->attrs, "axis", 0));
    return ebb_emit(b, elements ? EBB_OP_GATHER_ELEMENTS : EBB_OP_GATHER_ND, v, c->x[1]);
}

/* y = max of x and of the u that went there, or min.  All that equal y share dy. */
static void scatter_extreme(ebb_build *b, ebb_grad *c)
{
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, c->x[0])->dtype;
    ebb_value x_hit = ebb_emit(b, EBB_OP_EQUAL, c->x[0], c->y[0]);
    ebb_value u_hit = ebb_emit(b, EBB_OP_EQUAL, c->x[2], gathered(b, c, c->y[0]));
    ebb_value there = ebb_emit_cast(b, u_hit, dtype);
    ebb_value hits = scattered(b, c, ebb_emit_cast(b, x_hit, dtype), there, "add");
    ebb_value share = ebb_emit(b, EBB_OP_DIV, c->dy[0], hits);
    ebb_value zero = ebb_const_like(b, c->x[0], 0.0);
    if (wants(c, 0))
        c->dx[0] = ebb_emit(b, EBB_OP_WHERE, x_hit, share, zero);
    if (wants(c, 2))
        c->dx[2] = ebb_emit(b, EBB_OP_WHERE, u_hit, gathered(b, c, share), zero);
}

/* y = x times the u that went there.  dx = dy times them; du = dy x times the others: what is not
 * zero is divided out of the product of what is not zero, and where one u is zero, it alone gets
 * something. */
static void scatter_product(ebb_build *b, ebb_grad *c)
{
    if (wants(c, 0))
        c->dx[0] = scattered(b, c, c->dy[0], c->x[2], "mul");
    if (!wants(c, 2))
        return;
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, c->x[0])->dtype;
    ebb_value zero = ebb_const_like(b, c->x[2], 0.0), one = ebb_const_like(b, c->x[2], 1.0);
    ebb_value is_zero = ebb_emit(b, EBB_OP_EQUAL, c->x[2], zero);
    ebb_value safe = ebb_emit(b, EBB_OP_WHERE, is_zero, one, c->x[2]);
    ebb_value all = ebb_emit(b, EBB_OP_MUL, scattered(b, c, c->x[0], safe, "mul"), c->dy[0]);
    ebb_value counted = ebb_emit_cast(b, is_zero, dtype);
    ebb_value zeros = scattered(b, c, ebb_emit_zeros_like(b, c->x[0]), counted, "add");
    ebb_value own = ebb_emit_cast(b, is_zero, dtype);
    ebb_value others = ebb_emit(b, EBB_OP_EQUAL, gathered(b, c, zeros), own); // none of them is 0
    ebb_value part = ebb_emit(b, EBB_OP_DIV, gathered(b, c, all), safe);
    c->dx[2] = ebb_emit(b, EBB_OP_WHERE, others, part, zero);
}

/* y = Scatter(x, indices, u).  Without reduction, what was overwritten gets no gradient; with add,
 * all of it does. u's is gathered from where it went. */
void ebb_grad_scatter_at(ebb_build *b, ebb_grad *c)
{
    const char *reduction = ebb_attr_string(&c->attrs, "reduction", "none");
    bool adds = strcmp(reduction, "add") == 0;
    if (strcmp(reduction, "mul") == 0) {
        scatter_product(b, c);
        return;
    }
    if (!adds && strcmp(reduction, "none") != 0) {
        scatter_extreme(b, c);
        return;
    }
    if (wants(c, 0)) {
        c->dx[0] = c->dy[0];
        if (!adds) {
            ebb_value zeros = ebb_emit_zeros_like(b, c->x[2]);
            ebb_with_attrs_of(b, c->node);
            c->dx[0] = ebb_emit(b, ebb_node_of(b->g, c->node)->op, c->dy[0], c->x[1], zeros);
        }
    }
    if (wants(c, 2))
        c->dx[2] = gathered(b, c, c->dy[0]);
}

void ebb_grad_top_k(ebb_build *b, ebb_grad *c)
{
    ebb_value indices = ebb_grad_need_output(b, c, 1, "indices");
    ebb_value shape = ebb_const_shape(b, c->x[0]);
    ebb_with_int(b, "axis", ebb_attr_int(&c->attrs, "axis", -1));
    c->dx[0] = ebb_emit(b, EBB_OP_GATHER_ELEMENTS_GRAD, c->dy[0], shape, indices);
}

/* ---- blocks of channels ---- */

/* Depth is ordered (block row, block column, channel) in mode DCR, which is what SpaceToDepth
 * makes; in mode CRD it is (channel, row, column), undone by hand. */
void ebb_grad_depth_to_space(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    if (!ebb_grad_shape(b, c, c->x[0], &x))
        return;
    int64_t block = ebb_attr_int(&c->attrs, "blocksize", 1);
    if (strcmp(ebb_attr_string(&c->attrs, "mode", "DCR"), "CRD") != 0) {
        ebb_with_int(b, "blocksize", block);
        c->dx[0] = ebb_emit(b, EBB_OP_SPACE_TO_DEPTH, c->dy[0]);
        return;
    }
    const int64_t apart[6] = {x.dims[0], x.dims[1] / (block * block), x.dims[2], block, x.dims[3],
                              block};
    static const int64_t perm[6] = {0, 1, 3, 5, 2, 4};
    ebb_value dy = ebb_emit_reshape(b, c->dy[0], apart, 6);
    dy = ebb_emit_transpose(b, dy, perm, 6);
    c->dx[0] = ebb_emit_reshape(b, dy, x.dims, 4);
}

void ebb_grad_space_to_depth(ebb_build *b, ebb_grad *c)
{
    ebb_with_int(b, "blocksize", ebb_attr_int(&c->attrs, "blocksize", 1));
    ebb_with_string(b, "mode", "DCR");
    c->dx[0] = ebb_emit(b, EBB_OP_DEPTH_TO_SPACE, c->dy[0]);
}
