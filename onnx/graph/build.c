/* build.c: emit nodes as formulas, with a sticky error. */
#include "onnx/graph/build.h"

#include <assert.h>
#include <stdio.h>

#include "onnx/graph/infer.h"

ebb_build ebb_build_at(ebb_graph *g, ebb_node before, ebb_phase phase, const char *pass)
{
    return (ebb_build){.g = g, .before = before, .phase = phase, .pass = pass};
}

void ebb_build_fail(ebb_build *b, ebb_status status)
{
    if (b->status == NULL)
        b->status = status;
}

bool ebb_build_got(ebb_build *b, bool memory)
{
    if (!memory)
        ebb_build_fail(b, ebb_error_memory());
    return memory;
}

const ebb_type *ebb_build_type(const ebb_build *b, ebb_value v)
{
    return ebb_value_of(b->g, v)->type;
}

/* ---- attributes, before their node ---- */

static void *hold(ebb_build *b, const void *data, size_t bytes)
{
    void *copy = ebb_arena_alloc(&b->g->model->arena, bytes);
    if (ebb_build_got(b, copy) && bytes > 0)
        memcpy(copy, data, bytes);
    return copy;
}

static void put(ebb_build *b, ebb_attr attr)
{
    if (b->status != NULL)
        return;
    assert(b->pending_count < EBB_BUILD_ATTRS);
    ebb_str name = ebb_graph_intern(b->g, attr.name);
    (void)ebb_build_got(b, name.i != 0);
    attr.name = ebb_text(b->g, name);
    b->pending[b->pending_count++] = attr;
}

void ebb_with_int(ebb_build *b, const char *name, int64_t i)
{
    put(b, (ebb_attr){.name = name, .type = EBB_ATTR_INT, .i = i});
}

void ebb_with_float(ebb_build *b, const char *name, double f)
{
    put(b, (ebb_attr){.name = name, .type = EBB_ATTR_FLOAT, .f = (double)(float)f});
}

void ebb_with_string(ebb_build *b, const char *name, const char *s)
{
    put(b, (ebb_attr){.name = name,
                      .type = EBB_ATTR_STRING,
                      .s = hold(b, s, strlen(s) + 1),
                      .s_bytes = strlen(s)});
}

void ebb_with_ints(ebb_build *b, const char *name, const int64_t *list, uint32_t count)
{
    put(b, (ebb_attr){.name = name,
                      .type = EBB_ATTR_INTS,
                      .ints = hold(b, list, count * sizeof *list),
                      .count = count});
}

void ebb_with_floats(ebb_build *b, const char *name, const float *list, uint32_t count)
{
    put(b, (ebb_attr){.name = name,
                      .type = EBB_ATTR_FLOATS,
                      .floats = hold(b, list, count * sizeof *list),
                      .count = count});
}

void ebb_with_strings(ebb_build *b, const char *name, const char *const *list, uint32_t count)
{
    const char **own = ebb_arena_alloc(&b->g->model->arena, (count + 1) * sizeof *own);
    for (uint32_t i = 0; own != NULL && i < count; i++)
        own[i] = hold(b, list[i], strlen(list[i]) + 1);
    (void)ebb_build_got(b, own);
    put(b, (ebb_attr){.name = name, .type = EBB_ATTR_STRINGS, .strings = own, .count = count});
}

void ebb_with_name(ebb_build *b, const char *output_name)
{
    b->output_name = output_name;
}

void ebb_with_attrs_of(ebb_build *b, ebb_node n)
{
    if (b->status != NULL)
        return;
    assert(b->like_count < EBB_BUILD_LIKE);
    b->like[b->like_count++] = n;
}

void ebb_without_attrs(ebb_build *b)
{
    b->pending_count = 0;
    b->like_count = 0;
}

static bool are_distinct(const ebb_attr *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (list[k].name == list[i].name)
                return false;
    return true;
}

static ebb_status set_attrs(ebb_build *b, ebb_node n)
{
    if (b->like_count == 0 && are_distinct(b->pending, b->pending_count))
        return ebb_node_set_attrs(b->g, n, b->pending, b->pending_count);
    for (uint32_t k = 0; k < b->like_count; k++)
        for (uint32_t i = 0; i < ebb_node_of(b->g, b->like[k])->attr_count; i++)
            EBB_TRY(ebb_node_set_attr(b->g, n, &ebb_node_of(b->g, b->like[k])->attr[i]));
    for (uint32_t i = 0; i < b->pending_count; i++)
        EBB_TRY(ebb_node_set_attr(b->g, n, &b->pending[i]));
    return NULL;
}

/* ---- nodes ---- */

enum { COUNTED_NAMES = 10 };

/* "base/Op", or with a number behind it: ONNX Runtime takes no model in which two nodes share a
 * name. Texts that nothing in the model uses are free, whatever else they could name. */
static ebb_str node_name(ebb_build *b, ebb_node n, const char *op_name)
{
    char name[512];
    const char *base = b->name != NULL ? b->name : "ebb";
    const int length = snprintf(name, sizeof name, "%.400s/%.80s", base, op_name);
    const size_t known = b->g->model->names.count; // ids below are of texts in use
    ebb_str text = ebb_graph_intern(b->g, name);
    for (uint32_t i = 1; text.i != 0 && text.i < known; i++) {
        (void)snprintf(name + length, sizeof name - (size_t)length, "_%u",
                       (unsigned)(i < COUNTED_NAMES ? i : i + n.i)); // ids are not used twice
        text = ebb_graph_intern(b->g, name);
    }
    return text;
}

static ebb_status stamp(ebb_build *b, ebb_node n, const char *op_name)
{
    ebb_node_info *info = ebb_node_of(b->g, n);
    info->phase = (uint8_t)b->phase;
    info->name = node_name(b, n, op_name);
    EBB_GOT(info->name.i != 0);
    if (b->phase == EBB_BACKWARD) { // the mark by which ONNX Runtime's tools tell backward nodes
        info->doc = ebb_graph_intern(b->g, "Backward pass");
        EBB_GOT(info->doc.i != 0);
    }
    if (b->pass != NULL)
        return ebb_props_set(b->g, &info->props, "ebb.pass", b->pass);
    return NULL;
}

static ebb_status emit_node(ebb_build *b, ebb_op op, const ebb_value *in, uint32_t count,
                            ebb_value *out, uint32_t out_count, uint32_t wanted)
{
    const ebb_op_row *row = ebb_op_row_of(op);
    EBB_TRY(ebb_model_import(b->g->model, row->domain, row->since));
    while (count > 0 && in[count - 1].i == 0)
        count--;
    for (uint32_t k = 0; k < out_count; k++) {
        out[k] = EBB_NO_VALUE;
        if (k < 32 && (wanted >> k & 1u) == 0)
            continue;
        char name[512];
        if (k == 0 && b->output_name != NULL)
            (void)snprintf(name, sizeof name, "%.500s", b->output_name);
        else
            (void)snprintf(name, sizeof name, "%.400s/%.90s_%u", b->name != NULL ? b->name : "ebb",
                           row->name, (unsigned)k);
        EBB_TRY(ebb_value_add(b->g, &out[k], name, NULL));
    }
    EBB_TRY(
        ebb_node_add(b->g, &b->last, b->before, row->domain, row->name, in, count, out, out_count));
    ebb_node_of(b->g, b->last)->op = op; // exactly this row, whatever the file imports
    EBB_TRY(stamp(b, b->last, row->name));
    EBB_TRY(set_attrs(b, b->last));
    return ebb_infer_node(b->g, b->last);
}

void ebb_emit_node(ebb_build *b, ebb_op op, const ebb_value *in, uint32_t count, ebb_value *out,
                   uint32_t out_count, uint32_t wanted)
{
    assert(out_count <= EBB_BUILD_OUTPUTS);
    if (b->status == NULL)
        ebb_build_fail(b, emit_node(b, op, in, count, out, out_count, wanted));
    if (b->status != NULL)
        for (uint32_t k = 0; k < out_count; k++)
            out[k] = EBB_NO_VALUE;
    ebb_without_attrs(b);
    b->output_name = NULL;
}

ebb_value ebb_emit_list(ebb_build *b, ebb_op op, const ebb_value *in, uint32_t count)
{
    ebb_value y;
    ebb_emit_node(b, op, in, count, &y, 1, 1);
    return y;
}

/* ---- constants ---- */

/* An initializer of ours with these very bytes, made earlier. */
static ebb_value find_constant(const ebb_graph *g, const ebb_type *type, const void *data,
                               size_t bytes)
{
    enum { LOOK_BACK = 64, SMALL = 256 }; // sharing is a nicety: do not search far for it
    if (bytes > SMALL)
        return EBB_NO_VALUE;
    size_t first = g->initializer_count > LOOK_BACK ? g->initializer_count - LOOK_BACK : 0;
    for (size_t i = g->initializer_count; i-- > first;) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        const ebb_tensor *t = info->tensor;
        if (info->role == EBB_ROLE_CONSTANT && t->origin == NULL && t->bytes == bytes &&
            t->type.dtype == type->dtype && ebb_type_same_shape(&t->type, type) &&
            (info->flags & EBB_IS_STATE) == 0 && (bytes == 0 || memcmp(t->data, data, bytes) == 0))
            return g->initializers[i];
    }
    return EBB_NO_VALUE;
}

ebb_value ebb_const_tensor(ebb_build *b, const ebb_type *type, const void *data)
{
    ebb_value v = EBB_NO_VALUE;
    size_t bytes;
    if (b->status != NULL)
        return v;
    if (!ebb_type_bytes(type, &bytes)) {
        ebb_build_fail(b, ebb_error(EBB_REJECTED, "a constant has no size"));
        return v;
    }
    v = find_constant(b->g, type, data, bytes);
    if (v.i == 0)
        ebb_build_fail(
            b, ebb_graph_add_initializer(b->g, &v, "ebb/const", type, data, EBB_ROLE_CONSTANT));
    return v;
}

ebb_value ebb_const_scalar(ebb_build *b, ebb_dtype dtype, double x)
{
    ebb_type type = ebb_type_tensor(dtype, 0, NULL);
    union {
        float f32;
        double f64;
        int64_t i64;
        int32_t i32;
        uint16_t u16;
        uint8_t u8;
    } bits;
    memset(&bits, 0, sizeof bits);
    switch (dtype) {
    case EBB_F32:
        bits.f32 = (float)x;
        break;
    case EBB_F64:
        bits.f64 = x;
        break;
    case EBB_F16:
        bits.u16 = ebb_float_to_half((float)x);
        break;
    case EBB_BF16:
        bits.u16 = ebb_float_to_bf16((float)x);
        break;
    case EBB_I64:
    case EBB_U64:
        bits.i64 = (int64_t)x;
        break;
    case EBB_I32:
    case EBB_U32:
        bits.i32 = (int32_t)(int64_t)x;
        break;
    case EBB_BOOL:
        bits.u8 = x != 0;
        break;
    case EBB_U8:
    case EBB_I8:
        bits.u8 = (uint8_t)(int64_t)x;
        break;
    default:
        ebb_build_fail(b, ebb_error(EBB_UNSUPPORTED, "no constant of dtype %s can be made",
                                    ebb_dtype_name(dtype)));
    }
    return ebb_const_tensor(b, &type, &bits);
}

ebb_value ebb_const_like(ebb_build *b, ebb_value like, double x)
{
    return ebb_const_scalar(b, (ebb_dtype)ebb_build_type(b, like)->dtype, x);
}

ebb_value ebb_const_ints(ebb_build *b, const int64_t *list, uint32_t count)
{
    const int64_t dims[1] = {count};
    ebb_type type = ebb_type_tensor(EBB_I64, 1, dims);
    return ebb_const_tensor(b, &type, list);
}

ebb_value ebb_const_floats(ebb_build *b, ebb_dtype dtype, int rank, const int64_t *dims,
                           const double *list)
{
    ebb_type type = ebb_type_tensor(dtype, rank, dims);
    int64_t n = 0;
    size_t bytes;
    if (b->status != NULL)
        return EBB_NO_VALUE;
    if (!ebb_type_elements(&type, &n) || !ebb_type_bytes(&type, &bytes)) {
        ebb_build_fail(b, ebb_error(EBB_REJECTED, "a constant has no size"));
        return EBB_NO_VALUE;
    }
    unsigned char *data = ebb_alloc(bytes);
    if (!ebb_build_got(b, data))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < n; i++) {
        float f32 = (float)list[i];
        uint16_t u16 = dtype == EBB_F16 ? ebb_float_to_half(f32) : ebb_float_to_bf16(f32);
        if (dtype == EBB_F64)
            memcpy(data + (size_t)i * 8, &list[i], 8);
        else if (dtype == EBB_F32)
            memcpy(data + (size_t)i * 4, &f32, 4);
        else
            memcpy(data + (size_t)i * 2, &u16, 2);
    }
    ebb_value v = ebb_const_tensor(b, &type, data);
    ebb_free(data);
    return v;
}

static bool needs_static(ebb_build *b, ebb_value v)
{
    if (b->status != NULL)
        return false;
    if (ebb_type_is_static(ebb_build_type(b, v)))
        return true;
    ebb_status status = ebb_refuse_sizes_of_values(b->g);
    ebb_build_fail(b, status != NULL ? status
                                     : ebb_error(EBB_REJECTED, "the shape of '%s' is not known",
                                                 ebb_value_name(b->g, v)));
    return false;
}

ebb_value ebb_const_shape(ebb_build *b, ebb_value of)
{
    if (!needs_static(b, of))
        return EBB_NO_VALUE;
    ebb_type t = *ebb_build_type(b, of);
    return ebb_const_ints(b, t.dims, (uint32_t)t.rank);
}

/* ---- formulas ---- */

ebb_value ebb_emit_reshape(ebb_build *b, ebb_value x, const int64_t *dims, int rank)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    const ebb_type *t = ebb_build_type(b, x);
    ebb_type wanted = ebb_type_tensor((ebb_dtype)t->dtype, rank, dims);
    int64_t of_x, of_wanted;
    if (ebb_type_same_shape(t, &wanted))
        return x;
    // A zero copies the input's size there, unless it is said that it is meant.
    if (ebb_type_elements(t, &of_x) && of_x == 0 && ebb_type_elements(&wanted, &of_wanted) &&
        ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) >= 14)
        ebb_with_int(b, "allowzero", 1);
    return ebb_emit(b, EBB_OP_RESHAPE, x, ebb_const_ints(b, dims, (uint32_t)rank));
}

ebb_value ebb_emit_reshape_like(ebb_build *b, ebb_value x, ebb_value like)
{
    if (!needs_static(b, like))
        return EBB_NO_VALUE;
    ebb_type t = *ebb_build_type(b, like);
    return ebb_emit_reshape(b, x, t.dims, t.rank);
}

ebb_value ebb_emit_transpose(ebb_build *b, ebb_value x, const int64_t *perm, int rank)
{
    ebb_with_ints(b, "perm", perm, (uint32_t)rank);
    return ebb_emit(b, EBB_OP_TRANSPOSE, x);
}

ebb_value ebb_emit_cast(ebb_build *b, ebb_value x, ebb_dtype dtype)
{
    if (b->status != NULL || ebb_build_type(b, x)->dtype == dtype)
        return x;
    ebb_with_int(b, "to", dtype);
    return ebb_emit(b, EBB_OP_CAST, x);
}

ebb_value ebb_emit_zeros_like(ebb_build *b, ebb_value x)
{
    ebb_value shape = ebb_const_shape(b, x);
    return ebb_emit(b, EBB_OP_EXPAND, ebb_const_like(b, x, 0.0), shape);
}

ebb_value ebb_emit_reduce(ebb_build *b, ebb_op op, ebb_value x, const int64_t *axes, uint32_t count,
                          bool keepdims)
{
    // Axes are an input of ReduceSum since opset 13 and of the others since 18.
    int64_t opset = ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX);
    bool as_input = opset >= 18 || (op == EBB_OP_REDUCE_SUM && opset >= 13);
    ebb_with_int(b, "keepdims", keepdims);
    if (as_input)
        return ebb_emit(b, op, x, ebb_const_ints(b, axes, count));
    ebb_with_ints(b, "axes", axes, count);
    return ebb_emit(b, op, x);
}

ebb_value ebb_emit_unbroadcast(ebb_build *b, ebb_value dy, ebb_value like)
{
    if (!needs_static(b, dy) || !needs_static(b, like))
        return EBB_NO_VALUE;
    ebb_type from = *ebb_build_type(b, dy), to = *ebb_build_type(b, like);
    int64_t axes[EBB_MAX_RANK];
    uint32_t count = 0;
    int lead = from.rank - to.rank;
    for (int i = 0; i < from.rank; i++)
        if (i < lead || (to.dims[i - lead] == 1 && from.dims[i] != 1))
            axes[count++] = i;
    if (count > 0)
        dy = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, dy, axes, count, false);
    return ebb_emit_reshape(b, dy, to.dims, to.rank);
}

/* ---- gradient rules ---- */

/* A dim of 0 does not make the others' product fit; what is not known is no dim. */
static bool is_countable(const ebb_type *type)
{
    int64_t most = 1;
    for (int d = 0; d < type->rank; d++)
        if (__builtin_mul_overflow(most, type->dims[d] > 0 ? type->dims[d] : 1, &most) ||
            most > INT64_MAX >> 12)
            return false;
    return true;
}

static void check_countable(ebb_build *b, const ebb_grad *c, const ebb_value *list, uint32_t count)
{
    for (uint32_t i = 0; b->status == NULL && i < count; i++)
        if (list[i].i != 0 && !is_countable(ebb_build_type(b, list[i])))
            ebb_build_fail(b,
                           ebb_error(EBB_REJECTED, "%s: the shape of '%s' is too large",
                                     ebb_node_label(b->g, c->node), ebb_value_name(b->g, list[i])));
}

void ebb_grad_rule(ebb_build *b, ebb_op op, ebb_grad *c)
{
    check_countable(b, c, c->x, c->input_count);
    check_countable(b, c, c->y, c->output_count);
    if (b->status == NULL) // no rule asks that before it emits
        ebb_op_row_of(op)->grad(b, c);
}

ebb_value ebb_grad_need_output(ebb_build *b, ebb_grad *c, uint32_t slot, const char *suffix)
{
    ebb_value v = ebb_out(b->g, c->node, slot);
    if (b->status != NULL || v.i != 0)
        return v;
    char name[512];
    (void)snprintf(name, sizeof name, "%.400s_%.100s",
                   ebb_value_name(b->g, ebb_out(b->g, c->node, 0)), suffix);
    ebb_build_fail(b, ebb_value_add(b->g, &v, name, NULL));
    if (b->status == NULL)
        ebb_build_fail(b, ebb_node_set_output(b->g, c->node, slot, v));
    if (b->status == NULL)
        ebb_build_fail(b, ebb_infer_node(b->g, c->node));
    return v;
}
