/* weights.c: weights of convolutions that are stored with channels last.
 *
 *   before   w [M, C, h, w]  drawn by d          after    w [M, h, w, C]  drawn by Transpose(d)
 *                                                         metadata ebb.turned = "0,2,3,1"
 *
 * The new initializer has the old one's name, role and metadata. What comes by name in the old
 * shape is turned by exec/data/weights.c.
 */
#include "passes/primal/layout/layout.h"

static const int64_t perm[] = {0, 2, 3, 1};

static bool only_convolutions_read(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_op op = ebb_node_of(g, info->uses[i].node)->op;
        if (info->uses[i].slot != 1 || (op != EBB_OP_CONV && op != EBB_OP_CONV_TRANSPOSE))
            return false;
    }
    return (info->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT | EBB_IS_STATE | EBB_IS_CAPTURED)) == 0;
}

static bool is_weight(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return (info->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT | EBB_IS_STATE | EBB_IS_CAPTURED)) == 0 &&
           (info->flags & EBB_IS_INITIALIZER) != 0 && info->tensor != NULL;
}

/* The Cast between a weight and its convolutions, where all read the weight through one. */
static ebb_node cast_of(const ebb_graph *g, ebb_value v)
{
    const bool is_cast = ebb_producer_op(g, v) == EBB_OP_CAST;
    const ebb_node n = is_cast ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
    return is_cast && ebb_value_of(g, ebb_in(g, n, 0))->use_count == 1 ? n : EBB_NO_NODE;
}

/* The elements of `from`, [a, b, c, d], as [a, c, d, b]. */
static void turn(unsigned char *to, const unsigned char *from, const ebb_type *t, size_t size)
{
    int64_t plane = t->dims[2] * t->dims[3];
    for (int64_t a = 0; a < t->dims[0]; a++)
        for (int64_t i = 0; i < plane; i++)
            for (int64_t b = 0; b < t->dims[1]; b++) {
                memcpy(to, from + (size_t)((a * t->dims[1] + b) * plane + i) * size, size);
                to += size;
            }
}

/* The initialization graph draws what it drew, turned. */
static ebb_status turn_draw(ebb_model *m, ebb_str state)
{
    for (size_t i = 0; i < m->init_binding_count; i++) {
        if (m->init_bindings[i].state.i != state.i)
            continue;
        ebb_build b = ebb_build_at(m->initialization, EBB_NO_NODE, EBB_PHASE_NONE, NULL);
        b.name = ebb_value_name(m->initialization, m->init_bindings[i].value);
        ebb_value turned = ebb_emit_transpose(&b, m->init_bindings[i].value, perm, 4);
        EBB_TRY(b.status);
        EBB_TRY(ebb_graph_add_output(m->initialization, turned));
        m->init_bindings[i].value = turned;
    }
    return NULL;
}

/* v is to be *stored, turned, under its name. */
static ebb_status store(ebb_images *s, ebb_value v, ebb_value *stored)
{
    ebb_graph *g = s->e->g;
    ebb_type type = *ebb_value_of(g, v)->type;
    const ebb_tensor *t = ebb_value_of(g, v)->tensor;
    size_t size = ebb_dtype_bits((ebb_dtype)type.dtype) / 8;
    unsigned char *bytes = NULL;
    if (t->data != NULL) {
        bytes = ebb_arena_alloc(s->e->scratch, t->bytes + 1);
        EBB_GOT(bytes);
        turn(bytes, t->data, &type, size);
    }
    const int64_t dims[] = {type.dims[0], type.dims[2], type.dims[3], type.dims[1]};
    ebb_type turned = ebb_type_tensor((ebb_dtype)type.dtype, 4, dims);
    uint8_t role = ebb_value_of(g, v)->role;
    EBB_TRY(
        ebb_graph_add_initializer(g, stored, ebb_value_name(g, v), &turned, bytes, (ebb_role)role));
    EBB_TRY(ebb_props_set_all(g, &ebb_value_of(g, *stored)->props, g, &ebb_value_of(g, v)->props));
    ebb_image_of(s, v)->last = *stored;
    ebb_image_of(s, v)->stored = true;
    return ebb_props_set(g, &ebb_value_of(g, *stored)->props, "ebb.turned", "0,2,3,1");
}

ebb_status ebb_weight_stored(ebb_images *s, ebb_build *b, ebb_value v, ebb_value *last)
{
    ebb_graph *g = s->e->g;
    const ebb_node cast = cast_of(g, v);
    const ebb_value w = cast.i != 0 ? ebb_in(g, cast, 0) : v;
    const ebb_type *type = ebb_value_of(g, w)->type;
    *last = EBB_NO_VALUE;
    if (w.i >= s->count || !is_weight(g, w) || !only_convolutions_read(g, v) ||
        ebb_dtype_bits((ebb_dtype)type->dtype) < 8 || !ebb_type_is_static(type))
        return NULL;
    if (type->dims[1] == type->dims[2] && type->dims[2] == type->dims[3])
        return NULL; // no reader of a file could tell the two by their shapes
    EBB_TRY(store(s, w, last));
    if (cast.i == 0)
        return NULL;
    ebb_with_attrs_of(b, cast);
    *last = ebb_emit(b, EBB_OP_CAST, *last);
    return b->status;
}

/* A convolution that stayed as it was reads v, or the Cast of v, as before. */
static ebb_status turn_back(ebb_images *s, ebb_value v, ebb_value last)
{
    ebb_graph *g = s->e->g;
    const ebb_node user =
        ebb_value_of(g, v)->use_count == 1 ? ebb_value_of(g, v)->uses[0].node : EBB_NO_NODE;
    if (user.i != 0 && ebb_node_of(g, user)->op == EBB_OP_CAST &&
        !ebb_value_is_read(g, ebb_out(g, user, 0))) {
        ebb_edit_remove(s->e, user);
        return NULL;
    }
    ebb_build b = ebb_edit_build(s->e, ebb_first(g), EBB_FORWARD);
    const ebb_type type = *ebb_value_of(g, v)->type;
    const ebb_value back = ebb_image_first(&b, last, &type);
    EBB_TRY(b.status);
    return ebb_value_replace(g, v, back);
}

ebb_status ebb_weights_settle(ebb_images *s)
{
    ebb_graph *g = s->e->g;
    for (uint32_t i = 1; i < s->count; i++) {
        ebb_value v = {i}, last = s->of[i].last;
        if (!s->of[i].stored)
            continue;
        if (ebb_value_of(g, v)->use_count > 0)
            EBB_TRY(turn_back(s, v, last));
        ebb_str name = ebb_value_of(g, v)->name;
        EBB_TRY(ebb_value_take_name(g, last, v));
        ebb_graph_remove_initializer(g, v);
        EBB_TRY(turn_draw(g->model, name));
    }
    return NULL;
}
