/* rules.c: what operators behind a convolution become when images have channels last.
 *
 *   Relu, Add, Mul ...      the same; operands of lower rank are shaped so that they broadcast
 *   BatchNormalization      the same, of [N H W, C]
 *   MaxPool, AveragePool    the same, of [N, 1, H, W, C], with a window of 1 along C
 *   GlobalAveragePool       ReduceMean over H and W
 *   Concat, Split, Slice, Pad, ReduceMean ...   the same, over the axes where those are now
 *   Flatten of [N, C, 1, 1], Transpose to channels last   views; nothing
 */
#include "onnx/ops/window.h"
#include "passes/primal/layout/layout.h"

enum { MOST_OPERANDS = 16 };

static const int64_t place_of[4] = {0, 3, 1, 2}; /* of an axis, with channels last */

static bool axis_of(int64_t axis, int64_t *place)
{
    axis += axis < 0 ? 4 : 0;
    if (axis < 0 || axis > 3)
        return false;
    *place = place_of[axis];
    return true;
}

static const ebb_type *type_of(const ebb_build *b, ebb_value v)
{
    return ebb_value_of(b->g, v)->type;
}

/* ---- pointwise ---- */

static bool is_scalar(const ebb_type *t)
{
    bool one = t->rank >= 0 && t->rank <= 4;
    for (int i = 0; i < t->rank; i++)
        one = one && t->dims[i] == 1;
    return one;
}

static const char *refuses_operand(const ebb_build *b, ebb_value v)
{
    const ebb_type *t = type_of(b, v);
    if (v.i == 0 || is_scalar(t) || ebb_is_image(b->g, v))
        return NULL;
    return t->rank < 4 && ebb_type_is_static(t) ? NULL : "an operand's shape is not known";
}

/* [C, 1, 1] becomes [1, 1, C], by its own right or by a constant's new shape. */
static ebb_value shaped(ebb_build *b, ebb_value v)
{
    static const int64_t perm[] = {0, 2, 3, 1};
    ebb_type t = *type_of(b, v);
    int64_t first[4] = {1, 1, 1, 1};
    for (int i = 0; i < t.rank; i++)
        first[4 - t.rank + i] = t.dims[i];
    const int64_t last[3] = {first[2], first[3], first[1]};
    const ebb_tensor *constant = ebb_value_constant(b->g, v);
    if (first[1] != 1 && first[2] * first[3] != 1) // rank 3: the whole image, for all of the batch
        return ebb_emit_transpose(b, ebb_emit_reshape(b, v, first, 4), perm, 4);
    if (constant == NULL || constant->data == NULL)
        return ebb_emit_reshape(b, v, last, 3);
    ebb_type type = ebb_type_tensor((ebb_dtype)t.dtype, 3, last);
    return ebb_const_tensor(b, &type, constant->data);
}

static ebb_value operand(ebb_images *s, ebb_build *b, ebb_value v)
{
    if (v.i == 0 || is_scalar(type_of(b, v)))
        return v;
    if (type_of(b, v)->rank == 4)
        return ebb_image_last(s, b, v);
    ebb_image *image = ebb_image_of(s, v);
    if (image->operand.i == 0)
        image->operand = shaped(b, v);
    return image->operand;
}

static ebb_value as_image(ebb_build *b, ebb_value v, const ebb_type *first)
{
    const int64_t dims[] = {first->dims[0], first->dims[2], first->dims[3], first->dims[1]};
    return ebb_emit_reshape(b, v, dims, 4);
}

/* Whether all operands but the first are numbers. */
static bool is_unary(const ebb_build *b, ebb_node n)
{
    for (uint32_t i = 1; i < ebb_node_of(b->g, n)->in_count; i++)
        if (ebb_in(b->g, n, i).i != 0 && !is_scalar(type_of(b, ebb_in(b->g, n, i))))
            return false;
    return true;
}

static const char *pointwise(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_graph *g = b->g;
    ebb_op op = ebb_node_of(g, n)->op;
    ebb_value y = ebb_out(g, n, 0), in[MOST_OPERANDS];
    uint32_t count = ebb_node_of(g, n)->in_count;
    if (count > MOST_OPERANDS || ebb_node_of(g, n)->out_count != 1 || !ebb_is_image(g, y))
        return "it has too many operands, or no image for a result";
    for (uint32_t i = 0; i < count; i++)
        if (refuses_operand(b, ebb_in(g, n, i)) != NULL)
            return refuses_operand(b, ebb_in(g, n, i));
    // What norms and activations read of each other is one tensor: views stay outside.
    bool flat = is_unary(b, n) && ebb_image_of(s, ebb_in(g, n, 0))->flat.i != 0;
    for (uint32_t i = 0; i < count; i++)
        in[i] = op == EBB_OP_CAST_LIKE && i == 1 ? ebb_in(g, n, i) : operand(s, b, ebb_in(g, n, i));
    if (flat)
        in[0] = ebb_image_flat(s, b, ebb_in(g, n, 0));
    ebb_with_attrs_of(b, n);
    ebb_value made = ebb_emit_list(b, op, in, count);
    ebb_image_of(s, y)->flat = flat ? made : EBB_NO_VALUE;
    ebb_image_of(s, y)->last = flat ? as_image(b, made, type_of(b, y)) : made;
    return NULL;
}

/* ---- norms and pools ---- */

static const char *batch_norm(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_graph *g = b->g;
    ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0), in[5], out[5];
    uint32_t outputs = ebb_node_of(g, n)->out_count, wanted = 0;
    if (ebb_node_of(g, n)->in_count != 5 || outputs > 5 || !ebb_has_image(s, x) ||
        !ebb_is_image(g, y))
        return "it does not have the operands of a batch norm of an image";
    for (uint32_t i = 1; i < 5; i++)
        in[i] = ebb_in(g, n, i);
    for (uint32_t k = 0; k < outputs; k++)
        wanted |= (uint32_t)(ebb_out(g, n, k).i != 0) << k;
    in[0] = ebb_image_flat(s, b, x);
    ebb_with_attrs_of(b, n);
    ebb_emit_node(b, ebb_node_of(g, n)->op, in, 5, out, outputs, wanted);
    if (b->status == NULL)
        ebb_keep_name(g, b->last, n);
    ebb_image_of(s, y)->flat = out[0];
    ebb_image_of(s, y)->last = as_image(b, out[0], type_of(b, y));
    for (uint32_t k = 1; k < outputs; k++)
        if (ebb_out(g, n, k).i != 0)
            ebb_image_of(s, ebb_out(g, n, k))->instead = out[k];
    return NULL;
}

static void with_pool(ebb_build *b, const ebb_window *w, const ebb_attrs *attrs)
{
    const int64_t kernel[] = {w->kernel[0], w->kernel[1], 1};
    const int64_t stride[] = {w->stride[0], w->stride[1], 1};
    const int64_t dilation[] = {w->dilation[0], w->dilation[1], 1};
    const int64_t pads[] = {w->begin[0], w->begin[1], 0, w->end[0], w->end[1], 0};
    ebb_with_ints(b, "kernel_shape", kernel, 3);
    ebb_with_ints(b, "strides", stride, 3);
    ebb_with_ints(b, "pads", pads, 6);
    if (w->dilation[0] != 1 || w->dilation[1] != 1) // an attribute that came later
        ebb_with_ints(b, "dilations", dilation, 3);
    if (ebb_attr_int(attrs, "ceil_mode", 0) != 0)
        ebb_with_int(b, "ceil_mode", 1);
    if (ebb_attr_int(attrs, "count_include_pad", 0) != 0)
        ebb_with_int(b, "count_include_pad", 1);
}

static const char *pool(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_graph *g = b->g;
    ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0), indices = ebb_out(g, n, 1);
    ebb_attrs attrs = ebb_node_attrs(g, n);
    ebb_window w;
    if (ebb_value_is_read(g, indices))
        return "its Indices are read, which count elements of the old order";
    if (!ebb_is_image(g, y) ||
        ebb_window_resolve(&w, &attrs, 2, type_of(b, x)->dims + 2, NULL,
                           ebb_attr_int(&attrs, "ceil_mode", 0) != 0) != NULL)
        return "its window does not fit its input";
    const ebb_type t = *type_of(b, x);
    const int64_t dims[] = {t.dims[0], 1, t.dims[2], t.dims[3], t.dims[1]};
    // Of the tensor itself, not of a view of a view: others look for who reads it.
    ebb_value last = ebb_image_last(s, b, x), flat = ebb_image_of(s, x)->flat;
    ebb_value volume = ebb_emit_reshape(b, flat.i != 0 ? flat : last, dims, 5);
    with_pool(b, &w, &attrs);
    ebb_value made = ebb_emit(b, ebb_node_of(g, n)->op, volume);
    ebb_image_of(s, y)->last = as_image(b, made, type_of(b, y));
    return NULL;
}

/* ---- reductions ---- */

static const char *global_pool(ebb_images *s, ebb_build *b, ebb_node n)
{
    static const int64_t axes[] = {1, 2};
    bool most = ebb_node_of(b->g, n)->op == EBB_OP_GLOBAL_MAX_POOL;
    ebb_value x = ebb_image_last(s, b, ebb_in(b->g, n, 0));
    if (!ebb_is_image(b->g, ebb_out(b->g, n, 0)))
        return "its result's shape is not known";
    ebb_image_of(s, ebb_out(b->g, n, 0))->last =
        ebb_emit_reduce(b, most ? EBB_OP_REDUCE_MAX : EBB_OP_REDUCE_MEAN, x, axes, 2, true);
    return NULL;
}

/* The list of an attribute, or of a constant input. */
static bool list_of(ebb_images *s, ebb_node n, const char *attr, uint32_t input,
                    const int64_t **list, uint32_t *count)
{
    ebb_attrs attrs = ebb_node_attrs(s->e->g, n);
    *list = attr != NULL ? ebb_attr_ints(&attrs, attr, count) : NULL;
    if (*list != NULL)
        return *count > 0;
    ebb_value v = ebb_in(s->e->g, n, input);
    return v.i != 0 && ebb_ints_of(s->e->g, v, s->e->scratch, list, count) && *count > 0;
}

static const char *reduce(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_graph *g = b->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const int64_t *axes;
    int64_t places[4];
    uint32_t count;
    bool gone[4] = {false}, keep = ebb_attr_int(&attrs, "keepdims", 1) != 0;
    ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0);
    if (!keep && ebb_attr_find(&attrs, "axes") == NULL && ebb_in(g, n, 1).i == 0 &&
        ebb_attr_int(&attrs, "noop_with_empty_axes", 0) == 0) { // all axes, in whatever order
        ebb_with_attrs_of(b, n);
        ebb_image_of(s, y)->instead = ebb_emit(b, ebb_node_of(g, n)->op, ebb_image_last(s, b, x));
        return NULL;
    }
    if (!list_of(s, n, "axes", 1, &axes, &count) || count > 4)
        return "its axes are not known";
    for (uint32_t i = 0; i < count; i++) {
        if (!axis_of(axes[i], &places[i]))
            return "its axes are not known";
        gone[places[i]] = true;
    }
    if (!keep && !gone[3] && !(gone[1] && gone[2]))
        return "its result has the channels before another axis";
    if (keep && !ebb_is_image(g, y))
        return "its result's shape is not known";
    ebb_value made =
        ebb_emit_reduce(b, ebb_node_of(g, n)->op, ebb_image_last(s, b, x), places, count, keep);
    *(keep ? &ebb_image_of(s, y)->last : &ebb_image_of(s, y)->instead) = made;
    return NULL;
}

/* ---- moves ---- */

static const char *concat(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_graph *g = b->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    uint32_t count = ebb_node_of(g, n)->in_count;
    int64_t place;
    ebb_value in[MOST_OPERANDS], y = ebb_out(g, n, 0);
    if (count > MOST_OPERANDS || !axis_of(ebb_attr_int(&attrs, "axis", 1), &place) ||
        !ebb_is_image(g, y))
        return "it has many operands, or its shape is not known";
    for (uint32_t i = 0; i < count; i++)
        if (!ebb_is_image(g, ebb_in(g, n, i)))
            return "an operand's shape is not known";
    for (uint32_t i = 0; i < count; i++)
        in[i] = ebb_image_last(s, b, ebb_in(g, n, i));
    ebb_with_int(b, "axis", place);
    ebb_image_of(s, y)->last = ebb_emit_list(b, EBB_OP_CONCAT, in, count);
    return NULL;
}

static const char *split(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_graph *g = b->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    uint32_t outputs = ebb_node_of(g, n)->out_count;
    int64_t place;
    ebb_value out[EBB_BUILD_OUTPUTS];
    if (outputs > EBB_BUILD_OUTPUTS || !axis_of(ebb_attr_int(&attrs, "axis", 0), &place))
        return "it has many results";
    for (uint32_t k = 0; k < outputs; k++)
        if (!ebb_is_image(g, ebb_out(g, n, k)))
            return "its results' shapes are not known";
    const ebb_value in[] = {ebb_image_last(s, b, ebb_in(g, n, 0)), ebb_in(g, n, 1)};
    uint32_t sizes;
    const int64_t *list = ebb_attr_ints(&attrs, "split", &sizes);
    if (list != NULL)
        ebb_with_ints(b, "split", list, sizes);
    if (ebb_attr_find(&attrs, "num_outputs") != NULL)
        ebb_with_int(b, "num_outputs", ebb_attr_int(&attrs, "num_outputs", outputs));
    ebb_with_int(b, "axis", place);
    ebb_emit_node(b, EBB_OP_SPLIT, in, 2, out, outputs, (1u << outputs) - 1);
    for (uint32_t k = 0; k < outputs; k++)
        ebb_image_of(s, ebb_out(g, n, k))->last = out[k];
    return NULL;
}

static const char *slice(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_graph *g = b->g;
    const int64_t *axes;
    int64_t places[4];
    uint32_t count;
    if (!list_of(s, n, NULL, 3, &axes, &count) || count > 4 || !ebb_is_image(g, ebb_out(g, n, 0)))
        return "its axes are not known";
    for (uint32_t i = 0; i < count; i++)
        if (!axis_of(axes[i], &places[i]))
            return "its axes are not known";
    ebb_value x = ebb_image_last(s, b, ebb_in(g, n, 0));
    ebb_image_of(s, ebb_out(g, n, 0))->last =
        ebb_emit(b, EBB_OP_SLICE, x, ebb_in(g, n, 1), ebb_in(g, n, 2),
                 ebb_const_ints(b, places, count), ebb_in(g, n, 4));
    return NULL;
}

static const char *pad(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_graph *g = b->g;
    const int64_t *pads;
    int64_t places[8];
    uint32_t count;
    if (ebb_in(g, n, 3).i != 0 || !list_of(s, n, "pads", 1, &pads, &count) || count != 8 ||
        !ebb_is_image(g, ebb_out(g, n, 0)))
        return "its pads are not known";
    for (int i = 0; i < 4; i++) {
        places[place_of[i]] = pads[i];
        places[4 + place_of[i]] = pads[4 + i];
    }
    ebb_value x = ebb_image_last(s, b, ebb_in(g, n, 0));
    ebb_with_attrs_of(b, n);
    ebb_image_of(s, ebb_out(g, n, 0))->last =
        ebb_emit(b, EBB_OP_PAD, x, ebb_const_ints(b, places, 8), ebb_in(g, n, 2));
    return NULL;
}

/* An image of one pixel is its channels, in either order. */
static const char *view(ebb_images *s, ebb_build *b, ebb_node n)
{
    ebb_value x = ebb_in(b->g, n, 0), y = ebb_out(b->g, n, 0);
    const ebb_type from = *type_of(b, x), to = *type_of(b, y);
    int unknown = 0;
    for (int i = 0; i < to.rank; i++)
        unknown += to.dims[i] < 0;
    if (!ebb_has_image(s, x) || from.dims[2] != 1 || from.dims[3] != 1)
        return "it sees the elements in their old order";
    if (to.rank < 0 || unknown > 1)
        return "its result's shape is not known";
    ebb_value made = ebb_emit_reshape(b, ebb_image_last(s, b, x), to.dims, to.rank);
    if (ebb_same_value(made, ebb_image_of(s, x)->last)) // the same shape: a node of its own is due
        made = ebb_emit(b, EBB_OP_IDENTITY, made);
    ebb_image_of(s, y)->instead = made;
    return NULL;
}

static bool has_perm(const ebb_graph *g, ebb_node n, const int64_t perm[4])
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    uint32_t count;
    const int64_t *given = ebb_attr_ints(&attrs, "perm", &count);
    return count == 4 && memcmp(given, perm, 4 * sizeof *perm) == 0;
}

static const char *transpose(ebb_images *s, ebb_build *b, ebb_node n)
{
    static const int64_t to_last[] = {0, 2, 3, 1};
    if (!ebb_has_image(s, ebb_in(b->g, n, 0)) || !has_perm(b->g, n, to_last))
        return "it wants the old order";
    ebb_image_of(s, ebb_out(b->g, n, 0))->instead = ebb_image_last(s, b, ebb_in(b->g, n, 0));
    return NULL;
}

bool ebb_layout_comes_last(ebb_images *s, ebb_node n)
{
    const ebb_graph *g = s->e->g;
    ebb_value y = ebb_out(g, n, 0);
    if (ebb_node_of(g, n)->op != EBB_OP_TRANSPOSE || !ebb_is_image(g, y) ||
        !has_perm(g, n, place_of))
        return false;
    ebb_image_of(s, y)->last = ebb_in(g, n, 0);
    return true;
}

static const char *identity(ebb_images *s, ebb_build *b, ebb_node n)
{
    if (ebb_is_detach(b->g, n))
        return "no gradient passes it";
    *ebb_image_of(s, ebb_out(b->g, n, 0)) = *ebb_image_of(s, ebb_in(b->g, n, 0));
    return NULL;
}

static const char *none(ebb_images *s, ebb_build *b, ebb_node n)
{
    (void)s, (void)b, (void)n;
    return "it wants the old order";
}

const char *ebb_layout_follow(ebb_images *s, ebb_build *b, ebb_node n)
{
    static const char *(*const rules[EBB_OP_COUNT])(ebb_images *, ebb_build *, ebb_node) = {
        [EBB_OP_UNKNOWN] = none,
#define EBB_OP(id, domain, name, since, operands, reads, slots, traits, alias, infer, grad, cost, \
               sizes, tile, batch, half, layout)                                                  \
    [EBB_OP_##id] = layout,
#include "onnx/tables/ops.def"
#undef EBB_OP
    };
    return rules[ebb_node_of(b->g, n)->op](s, b, n);
}
