/* move: operators that only say where elements go: their types. Gradients: move_grad.c; the ones
 * that are led by an index tensor (Gather, Scatter, TopK ...): move_index.c.
 *
 * Everything here copes with unknown dims (-1, perhaps with a symbol) and unknown ranks; what
 * cannot be known comes out unknown, and only what can be seen to be wrong is refused.
 */
#include "onnx/ops/ops.h"
#include "onnx/graph/shape.h"

/* ---- views ---- */

/* dims a and b seen at the same place: the known one. False where both are known and differ. */
static bool join_dim(ebb_type *out, int at, const ebb_type *other, int which)
{
    if (other->dims[which] < 0)
        return true;
    if (out->dims[at] < 0) {
        ebb_type_put_dim(out, at, other, which);
        return true;
    }
    return out->dims[at] == other->dims[which];
}

/* The dim written -1: what is left of x after the other dims, where unknown dims of x that were
 * copied by 0 cancel out. */
static ebb_status rest_dim(ebb_infer *c, ebb_type *out, int at, const bool *copied)
{
    const ebb_type *x = c->in[0];
    int64_t have = 1, used = 1;
    int unknown = -1, unknown_count = 0;
    for (int i = 0; i < out->rank; i++)
        if (i != at && !copied[i]) {
            if (out->dims[i] < 0)
                return NULL;
            if (__builtin_mul_overflow(used, out->dims[i], &used))
                return ebb_infer_error(c, "the target shape is too large");
        }
    for (int i = 0; i < x->rank; i++) {
        if (i < out->rank && copied[i])
            continue;
        if (x->dims[i] < 0) {
            unknown = i;
            unknown_count++;
        } else if (__builtin_mul_overflow(have, x->dims[i], &have)) {
            return ebb_infer_error(c, "the input is too large");
        }
    }
    if (unknown_count == 1 && have == used) {
        ebb_type_put_dim(out, at, x, unknown);
    } else if (unknown_count == 0) {
        if (used == 0 ? have != 0 : have % used != 0)
            return ebb_infer_error(c, "%lld elements do not divide by %lld for the dim -1",
                                   (long long)have, (long long)used);
        ebb_type_set_dim(out, at, used == 0 ? 0 : have / used);
    }
    return NULL;
}

ebb_status ebb_infer_reshape(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    const int64_t *dims;
    int64_t rank;
    if (!ebb_infer_constant_ints(c, 1, &dims, &rank)) {
        c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
        if (c->in[1]->rank == 1 && c->in[1]->dims[0] >= 0 && c->in[1]->dims[0] <= EBB_MAX_RANK)
            c->out[0] = ebb_type_ranked((ebb_dtype)x->dtype, (int)c->in[1]->dims[0]);
        return NULL;
    }
    if (rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "rank %lld is above the limit of %d", (long long)rank,
                               EBB_MAX_RANK);
    bool keep_zero = ebb_attr_int(&c->attrs, "allowzero", 0) != 0;
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, (int)rank);
    bool copied[EBB_MAX_RANK] = {false};
    int rest = -1;
    for (int i = 0; i < (int)rank; i++) {
        if (dims[i] == -1) {
            if (rest >= 0)
                return ebb_infer_error(c, "the shape has more than one -1");
            rest = i;
        } else if (dims[i] == 0 && !keep_zero) {
            copied[i] = true;
            if (x->rank >= 0) {
                if (i >= x->rank)
                    return ebb_infer_error(c, "dim %d is 0 (copy), but the input has rank %d", i,
                                           (int)x->rank);
                ebb_type_put_dim(&out, i, x, i);
            }
        } else if (dims[i] < 0) {
            return ebb_infer_error(c, "dim %d of the shape is %lld", i, (long long)dims[i]);
        } else {
            ebb_type_set_dim(&out, i, dims[i]);
        }
    }
    if (rest >= 0 && x->rank >= 0)
        EBB_TRY(rest_dim(c, &out, rest, copied));
    int64_t before, after;
    if (ebb_type_elements(x, &before) && ebb_type_elements(&out, &after) && before != after)
        return ebb_infer_error(c, "%lld elements cannot take a shape of %lld", (long long)before,
                               (long long)after);
    c->out[0] = out;
    return NULL;
}

/* One dim out of dims [from, to) of x: the product, with the symbol where it stands alone. */
static void merge_dims(ebb_type *out, int at, const ebb_type *x, int from, int to)
{
    int64_t product = 1;
    int unknown = -1;
    for (int i = from; i < to; i++) {
        if (x->dims[i] < 0) {
            if (unknown >= 0)
                return;
            unknown = i;
        } else if (__builtin_mul_overflow(product, x->dims[i], &product)) {
            return;
        }
    }
    if (unknown < 0)
        ebb_type_set_dim(out, at, product);
    else if (product == 1)
        ebb_type_put_dim(out, at, x, unknown);
}

ebb_status ebb_infer_flatten(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, 2);
    if (x->rank >= 0) {
        int64_t axis = ebb_attr_int(&c->attrs, "axis", 1);
        if (axis < -x->rank || axis > x->rank)
            return ebb_infer_error(c, "axis %lld lies outside of rank %d", (long long)axis,
                                   (int)x->rank);
        if (axis < 0)
            axis += x->rank;
        merge_dims(&out, 0, x, 0, (int)axis);
        merge_dims(&out, 1, x, (int)axis, x->rank);
    }
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_squeeze(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    const int64_t *axes;
    uint32_t count;
    bool known;
    EBB_TRY(ebb_infer_ints(c, "axes", 1, &axes, &count, &known));
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (x->rank < 0 || !known)
        return NULL;
    bool gone[EBB_MAX_RANK] = {false};
    bool given = count > 0 || (c->input_count > 1 && c->in[1] != NULL) ||
                 ebb_attr_find(&c->attrs, "axes") != NULL;
    for (uint32_t i = 0; i < count; i++) {
        int axis;
        EBB_TRY(ebb_infer_axis(c, axes[i], x->rank, &axis));
        if (x->dims[axis] > 1 || x->dims[axis] == 0)
            return ebb_infer_error(c, "axis %d has %lld elements and cannot be squeezed", axis,
                                   (long long)x->dims[axis]);
        gone[axis] = true;
    }
    if (!given)
        for (int i = 0; i < x->rank; i++) {
            if (x->dims[i] < 0)
                return NULL;
            gone[i] = x->dims[i] == 1;
        }
    int rank = 0;
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, 0);
    for (int i = 0; i < x->rank; i++)
        if (!gone[i])
            ebb_type_put_dim(&out, rank++, x, i);
    out.rank = (int8_t)rank;
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_unsqueeze(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    const int64_t *axes;
    uint32_t count;
    bool known;
    EBB_TRY(ebb_infer_ints(c, "axes", 1, &axes, &count, &known));
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (x->rank < 0)
        return NULL;
    if (!known) {
        const ebb_type *list = c->in[1];
        int64_t more = list->rank == 0 ? 1 : list->rank == 1 ? list->dims[0] : -1;
        if (more >= 0 && more + x->rank <= EBB_MAX_RANK)
            c->out[0] = ebb_type_ranked((ebb_dtype)x->dtype, (int)more + x->rank);
        return NULL;
    }
    if (count > EBB_MAX_RANK || x->rank + (int)count > EBB_MAX_RANK)
        return ebb_infer_error(c, "rank %u is above the limit of %d", (unsigned)x->rank + count,
                               EBB_MAX_RANK);
    int rank = x->rank + (int)count;
    bool made[EBB_MAX_RANK] = {false};
    for (uint32_t i = 0; i < count; i++) {
        int axis;
        EBB_TRY(ebb_infer_axis(c, axes[i], rank, &axis));
        if (made[axis])
            return ebb_infer_error(c, "axis %d is given twice", axis);
        made[axis] = true;
    }
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, rank);
    for (int i = 0, from = 0; i < rank; i++) {
        if (made[i])
            ebb_type_set_dim(&out, i, 1);
        else
            ebb_type_put_dim(&out, i, x, from++);
    }
    c->out[0] = out;
    return NULL;
}

/* ---- where elements go ---- */

ebb_status ebb_infer_transpose(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    uint32_t count;
    const int64_t *perm = ebb_attr_ints(&c->attrs, "perm", &count);
    bool given = ebb_attr_find(&c->attrs, "perm") != NULL;
    int rank = x->rank >= 0 ? x->rank : given && count <= EBB_MAX_RANK ? (int)count : -1;
    if (rank < 0) {
        c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
        return NULL;
    }
    if (given && count != (uint32_t)rank)
        return ebb_infer_error(c, "perm has %u entries and the input rank %d", (unsigned)count,
                               rank);
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, rank);
    bool seen[EBB_MAX_RANK] = {false};
    for (int i = 0; i < rank; i++) {
        int64_t from = given ? perm[i] : rank - 1 - i;
        if (from < 0 || from >= rank || seen[from])
            return ebb_infer_error(c, "perm is not a permutation of 0..%d", rank - 1);
        seen[from] = true;
        if (x->rank >= 0)
            ebb_type_put_dim(&out, i, x, (int)from);
    }
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_concat(ebb_infer *c)
{
    ebb_type out = ebb_type_unranked((ebb_dtype)c->in[0]->dtype);
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->in[i] != NULL && c->in[i]->rank >= 0 && out.rank < 0)
            out = ebb_type_ranked((ebb_dtype)c->in[0]->dtype, c->in[i]->rank);
    c->out[0] = out;
    if (out.rank < 0)
        return NULL;
    int axis;
    EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", 1), out.rank, &axis));
    int64_t sum = 0;
    for (uint32_t i = 0; i < c->input_count; i++) {
        const ebb_type *x = c->in[i];
        if (x == NULL)
            return ebb_infer_error(c, "input %u is absent", (unsigned)i);
        if (x->rank < 0) {
            sum = -1;
            continue;
        }
        if (x->rank != out.rank)
            return ebb_infer_error(c, "input %u has rank %d, others have %d", (unsigned)i,
                                   (int)x->rank, (int)out.rank);
        for (int k = 0; k < out.rank; k++)
            if (k != axis && !join_dim(&out, k, x, k))
                return ebb_infer_error(c, "input %u has %lld elements along axis %d, others %lld",
                                       (unsigned)i, (long long)x->dims[k], k,
                                       (long long)out.dims[k]);
            else if (k != axis && out.dims[k] < 0 && out.symbols[k].i == 0)
                out.symbols[k] = x->symbols[k];
        if (x->dims[axis] < 0)
            sum = -1;
        else if (sum >= 0 && __builtin_add_overflow(sum, x->dims[axis], &sum))
            return ebb_infer_error(c, "the sum along axis %d is too large", axis);
    }
    ebb_type_set_dim(&out, axis, sum);
    if (sum < 0 && c->input_count == 1)
        ebb_type_put_dim(&out, axis, c->in[0], axis);
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_split(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    const int64_t *sizes;
    uint32_t count, parts = c->output_count;
    bool known;
    EBB_TRY(ebb_infer_ints(c, "split", 1, &sizes, &count, &known));
    if (x->rank < 0) {
        for (uint32_t i = 0; i < parts; i++)
            c->out[i] = ebb_type_unranked((ebb_dtype)x->dtype);
        return NULL;
    }
    int axis;
    EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->rank, &axis));
    int64_t whole = x->dims[axis], each = -1;
    bool listed = known && count > 0;
    if (listed) {
        if (count != parts)
            return ebb_infer_error(c, "%u sizes for %u outputs", (unsigned)count, (unsigned)parts);
        int64_t sum = 0;
        for (uint32_t i = 0; i < count; i++)
            if (sizes[i] < 0 || __builtin_add_overflow(sum, sizes[i], &sum))
                return ebb_infer_error(c, "size %u is %lld", (unsigned)i, (long long)sizes[i]);
        if (whole >= 0 && sum != whole)
            return ebb_infer_error(c, "sizes add up to %lld, axis %d has %lld", (long long)sum,
                                   axis, (long long)whole);
    } else if (known && whole >= 0) {
        int64_t asked = ebb_attr_int(&c->attrs, "num_outputs", (int64_t)parts);
        if (asked != (int64_t)parts || parts == 0)
            return ebb_infer_error(c, "num_outputs is %lld, there are %u", (long long)asked,
                                   (unsigned)parts);
        if (whole % (int64_t)parts != 0 && ebb_attr_find(&c->attrs, "num_outputs") == NULL)
            return ebb_infer_error(c, "%lld elements do not split into %u equal parts",
                                   (long long)whole, (unsigned)parts);
        each = whole / (int64_t)parts + (whole % (int64_t)parts != 0);
    }
    for (uint32_t i = 0; i < parts; i++) {
        c->out[i] = *x;
        int64_t before, left = -1;
        if (each >= 0 && !__builtin_mul_overflow(each, (int64_t)i, &before))
            left = whole - before;
        int64_t size = listed ? sizes[i] : each < 0 ? -1 : left < each ? left : each;
        if (each >= 0 && size < 0)
            return ebb_infer_error(c, "%lld elements do not give %u parts", (long long)whole,
                                   (unsigned)parts);
        ebb_type_set_dim(&c->out[i], axis, size);
    }
    return NULL;
}

ebb_status ebb_infer_slice(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (x->rank < 0)
        return NULL;
    const int64_t *starts, *ends, *axes = NULL, *steps = NULL;
    int64_t count, end_count, axis_count = 0, step_count = 0;
    bool has_axes = c->input_count > 3 && c->in[3] != NULL;
    bool has_steps = c->input_count > 4 && c->in[4] != NULL;
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, x->rank);
    if (has_axes && !ebb_infer_constant_ints(c, 3, &axes, &axis_count)) {
        c->out[0] = out;
        return NULL;
    }
    bool starts_known = ebb_infer_constant_ints(c, 1, &starts, &count);
    bool ends_known = ebb_infer_constant_ints(c, 2, &ends, &end_count);
    bool known = starts_known && ends_known &&
                 (!has_steps || ebb_infer_constant_ints(c, 4, &steps, &step_count));
    if (!known) {
        if (has_axes) {
            out = *x;
            for (int64_t i = 0; i < axis_count; i++) {
                int axis;
                EBB_TRY(ebb_infer_axis(c, axes[i], x->rank, &axis));
                ebb_type_set_dim(&out, axis, -1);
            }
        }
        c->out[0] = out;
        return NULL;
    }
    if (end_count != count || (has_axes && axis_count != count) ||
        (has_steps && step_count != count) || (!has_axes && count > x->rank))
        return ebb_infer_error(c, "starts, ends, axes and steps differ in length");
    out = *x;
    for (int64_t i = 0; i < count; i++) {
        int axis;
        int64_t step = has_steps ? steps[i] : 1, size;
        EBB_TRY(ebb_infer_axis(c, has_axes ? axes[i] : i, x->rank, &axis));
        if (step == 0 || step == INT64_MIN)
            return ebb_infer_error(c, "step %lld along axis %d", (long long)step, axis);
        if (x->dims[axis] < 0) {
            bool whole = step == 1 && starts[i] == 0 && ends[i] >= INT32_MAX;
            if (!whole)
                ebb_type_set_dim(&out, axis, -1);
            continue;
        }
        ebb_slice_bounds(x->dims[axis], starts[i], ends[i], step, &size);
        ebb_type_set_dim(&out, axis, size);
    }
    c->out[0] = out;
    return NULL;
}

int64_t ebb_slice_bounds(int64_t dim, int64_t start, int64_t end, int64_t step, int64_t *size)
{
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim : dim - 1;
    if (start < 0)
        start = start < -dim ? -1 : start + dim;
    if (end < 0)
        end = end < -dim ? -1 : end + dim;
    if (step > 0 || start < 0)
        start = start < 0 ? 0 : start;
    start = start > high ? high : start;
    end = end < low ? low : end > dim ? dim : end;
    int64_t span = step > 0 ? end - start : start - end;
    int64_t stride = step > 0 ? step : -step;
    *size = span > 0 && dim > 0 ? (span - 1) / stride + 1 : 0;
    return start < 0 ? 0 : start;
}

ebb_status ebb_infer_pad(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (x->rank < 0)
        return NULL;
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, x->rank);
    const int64_t *pads, *axes = NULL;
    int64_t pad_count, count = x->rank;
    bool has_axes = c->input_count > 3 && c->in[3] != NULL;
    bool known = ebb_infer_constant_ints(c, 1, &pads, &pad_count);
    if (has_axes)
        known = ebb_infer_constant_ints(c, 3, &axes, &count) && known;
    if (!known) {
        c->out[0] = out;
        return NULL;
    }
    if (pad_count != 2 * count)
        return ebb_infer_error(c, "%lld pads for %lld axes", (long long)pad_count,
                               (long long)count);
    out = *x;
    for (int64_t i = 0; i < count; i++) {
        int axis;
        int64_t sum;
        EBB_TRY(ebb_infer_axis(c, has_axes ? axes[i] : i, x->rank, &axis));
        if (__builtin_add_overflow(pads[i], pads[i + count], &sum))
            return ebb_infer_error(c, "pads along axis %d are too large", axis);
        if (x->dims[axis] < 0) {
            if (sum != 0)
                ebb_type_set_dim(&out, axis, -1);
            continue;
        }
        if (__builtin_add_overflow(x->dims[axis], sum, &sum) || sum < 0)
            return ebb_infer_error(c, "pads along axis %d leave %lld elements", axis,
                                   (long long)sum);
        ebb_type_set_dim(&out, axis, sum);
    }
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_expand(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    EBB_TRY(ebb_infer_shape_input(c, 1, (ebb_dtype)x->dtype));
    ebb_type shape = c->out[0];
    if (shape.rank < 0 || x->rank < 0) {
        c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
        return NULL;
    }
    bool known = c->constant[1] != NULL;
    int rank = shape.rank > x->rank ? shape.rank : x->rank;
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, rank);
    for (int i = 0; i < rank; i++) {
        int a = i - (rank - x->rank), s = i - (rank - shape.rank);
        int64_t have = a < 0 ? 1 : x->dims[a], want = s < 0 ? 1 : known ? shape.dims[s] : -1;
        if (want == 1 && a >= 0)
            ebb_type_put_dim(&out, i, x, a);
        else if (have > 1 && want > 1 && have != want)
            return ebb_infer_error(c, "%lld elements cannot be expanded to %lld", (long long)have,
                                   (long long)want);
        else
            ebb_type_set_dim(&out, i, want >= 0 ? want : have > 1 ? have : -1);
    }
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_tile(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    const int64_t *repeats;
    int64_t count;
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (x->rank < 0)
        return NULL;
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, x->rank);
    if (ebb_infer_constant_ints(c, 1, &repeats, &count)) {
        if (count != x->rank)
            return ebb_infer_error(c, "%lld repeats for rank %d", (long long)count, (int)x->rank);
        for (int i = 0; i < x->rank; i++) {
            int64_t size = -1;
            if (repeats[i] < 0)
                return ebb_infer_error(c, "repeat %d is %lld", i, (long long)repeats[i]);
            if (repeats[i] == 1)
                ebb_type_put_dim(&out, i, x, i);
            else if (x->dims[i] >= 0 && __builtin_mul_overflow(x->dims[i], repeats[i], &size))
                return ebb_infer_error(c, "repeat %d is too large", i);
            else
                ebb_type_set_dim(&out, i, size);
        }
    }
    c->out[0] = out;
    return NULL;
}

/* ---- blocks of channels ---- */

static ebb_status blocks(ebb_infer *c, bool to_space)
{
    const ebb_type *x = c->in[0];
    int64_t block = ebb_attr_int(&c->attrs, "blocksize", 0), area;
    if (block <= 0 || __builtin_mul_overflow(block, block, &area))
        return ebb_infer_error(c, "blocksize is %lld", (long long)block);
    if (x->rank >= 0 && x->rank != 4)
        return ebb_infer_error(c, "the input has rank %d, not 4", (int)x->rank);
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, 4);
    for (int i = 0; i < 4 && x->rank == 4; i++) {
        int64_t dim = x->dims[i], size;
        if (i == 0) {
            ebb_type_put_dim(&out, 0, x, 0);
            continue;
        }
        if (dim < 0)
            continue;
        int64_t by = i == 1 ? area : block;
        if ((i == 1) == to_space) {
            if (dim % by != 0)
                return ebb_infer_error(c, "dim %d (%lld) does not divide by %lld", i,
                                       (long long)dim, (long long)by);
            size = dim / by;
        } else if (__builtin_mul_overflow(dim, by, &size)) {
            return ebb_infer_error(c, "dim %d is too large", i);
        }
        ebb_type_set_dim(&out, i, size);
    }
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_depth_to_space(ebb_infer *c)
{
    return blocks(c, true);
}

ebb_status ebb_infer_space_to_depth(ebb_infer *c)
{
    return blocks(c, false);
}

/* ---- sequences ---- */

/* A sequence's type holds the dims of its elements, -1 along the axis where they differ. */
ebb_status ebb_infer_split_to_sequence(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    ebb_type out = *x;
    out.kind = EBB_KIND_SEQUENCE;
    c->out[0] = out;
    if (x->rank < 0)
        return NULL;
    int axis;
    EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->rank, &axis));
    bool given = c->input_count > 1 && c->in[1] != NULL;
    if (!given) {
        if (ebb_attr_int(&c->attrs, "keepdims", 1) != 0) {
            ebb_type_set_dim(&out, axis, 1);
        } else {
            for (int i = axis; i + 1 < x->rank; i++)
                ebb_type_put_dim(&out, i, x, i + 1);
            out.rank--;
        }
        c->out[0] = out;
        return NULL;
    }
    const int64_t *sizes;
    int64_t count, each = -1;
    if (ebb_infer_constant_ints(c, 1, &sizes, &count) && count > 0) {
        each = sizes[0];
        if (c->constant[1]->type.rank == 0) {
            if (each <= 0)
                return ebb_infer_error(c, "split is %lld", (long long)each);
            if (x->dims[axis] < 0 || x->dims[axis] % each != 0)
                each = -1;
        } else {
            for (int64_t i = 1; i < count; i++)
                if (sizes[i] != sizes[0])
                    each = -1;
        }
    }
    ebb_type_set_dim(&out, axis, each);
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_sequence_at(ebb_infer *c)
{
    c->out[0] = *c->in[0];
    c->out[0].kind = c->in[0]->kind == EBB_KIND_SEQUENCE ? EBB_KIND_TENSOR : EBB_KIND_UNKNOWN;
    return NULL;
}
