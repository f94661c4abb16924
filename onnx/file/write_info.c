/* write_info.c: types, and what a graph says of its values, into messages. */
#include "onnx/file/writer.h"

/* ---- types ---- */

static Onnx__TensorShapeProto *make_shape(ebb_writer *w, const ebb_graph *g, const ebb_type *type)
{
    Onnx__TensorShapeProto *shape =
        EBB_WRITER_MESSAGE(w, Onnx__TensorShapeProto, tensor_shape_proto, NULL, 0);
    if (shape == NULL)
        return NULL;
    shape->n_dim = (size_t)type->rank;
    shape->dim = EBB_WRITER_NEW(w, Onnx__TensorShapeProto__Dimension *, shape->n_dim);
    for (int i = 0; shape->dim != NULL && i < type->rank; i++) {
        Onnx__TensorShapeProto__Dimension *dim = EBB_WRITER_MESSAGE(
            w, Onnx__TensorShapeProto__Dimension, tensor_shape_proto__dimension, NULL, 0);
        if (dim == NULL)
            return NULL;
        if (type->dims[i] >= 0) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim->dim_value = type->dims[i];
        } else if (type->symbols[i].i != 0) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dim->dim_param = ebb_writer_text(g, type->symbols[i]);
        }
        shape->dim[i] = dim;
    }
    return shape;
}

static Onnx__TypeProto *make_type(ebb_writer *w, const ebb_graph *g, const ebb_type *type)
{
    Onnx__TypeProto *proto = EBB_WRITER_MESSAGE(w, Onnx__TypeProto, type_proto, NULL, 0);
    if (proto == NULL)
        return NULL;
    if (type->kind == EBB_KIND_SEQUENCE) {
        proto->value_case = ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE;
        proto->sequence_type =
            EBB_WRITER_MESSAGE(w, Onnx__TypeProto__Sequence, type_proto__sequence, NULL, 0);
    } else if (type->kind == EBB_KIND_OPTIONAL) {
        proto->value_case = ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
        proto->optional_type =
            EBB_WRITER_MESSAGE(w, Onnx__TypeProto__Optional, type_proto__optional, NULL, 0);
    } else {
        proto->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
        proto->tensor_type =
            EBB_WRITER_MESSAGE(w, Onnx__TypeProto__Tensor, type_proto__tensor, NULL, 0);
        if (proto->tensor_type == NULL)
            return NULL;
        proto->tensor_type->has_elem_type = true;
        proto->tensor_type->elem_type = type->dtype;
        if (type->rank >= 0)
            proto->tensor_type->shape = make_shape(w, g, type);
        return proto;
    }
    ebb_type element = *type;
    element.kind = EBB_KIND_TENSOR;
    if (w->failed)
        return NULL;
    if (type->kind == EBB_KIND_SEQUENCE)
        proto->sequence_type->elem_type = make_type(w, g, &element);
    else
        proto->optional_type->elem_type = make_type(w, g, &element);
    return proto;
}

static bool same_dim(const ebb_graph *g, const ebb_type *type, int i,
                     const Onnx__TensorShapeProto__Dimension *dim)
{
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
        return dim->dim_value == type->dims[i];
    if (type->dims[i] >= 0)
        return false;
    return dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
               ? type->symbols[i].i == 0
               : strcmp(dim->dim_param, ebb_text(g, type->symbols[i])) == 0;
}

/* Whether the message would be read as this type. */
static bool same_type(const ebb_graph *g, const ebb_type *type, const Onnx__TypeProto *proto)
{
    if (type->kind == EBB_KIND_OTHER || type->kind == EBB_KIND_UNKNOWN)
        return true; // nothing better is known than what the file says
    if (proto == NULL)
        return false;
    if (proto->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE)
        return type->kind == EBB_KIND_SEQUENCE;
    if (proto->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE)
        return type->kind == EBB_KIND_OPTIONAL;
    if (proto->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || type->kind != EBB_KIND_TENSOR)
        return false;
    const Onnx__TensorShapeProto *shape = proto->tensor_type->shape;
    if (type->dtype != EBB_NONE && proto->tensor_type->elem_type != type->dtype)
        return false;
    if (shape == NULL || type->rank < 0)
        return type->rank < 0;
    if (shape->n_dim != (size_t)type->rank)
        return false;
    for (int i = 0; i < type->rank; i++)
        if (!same_dim(g, type, i, shape->dim[i]))
            return false;
    return true;
}

/* An initializer's type is its tensor's; an input or value_info of its name may say less than that,
 * as it came, but nothing else: a constant that was folded may be of another dtype than what it
 * stands for, and a weight that is stored in another layout is of another shape. */
static bool says_no_more(const ebb_type *type, const Onnx__TypeProto *proto)
{
    if (proto->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return false;
    const Onnx__TensorShapeProto *shape = proto->tensor_type->shape;
    if (proto->tensor_type->elem_type != EBB_NONE && proto->tensor_type->elem_type != type->dtype)
        return false;
    if (shape != NULL && shape->n_dim != (size_t)type->rank)
        return false;
    for (int i = 0; shape != NULL && i < type->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            dim->dim_value != type->dims[i])
            return false;
    }
    return true;
}

/* Of an initializer's metadata, the part that its value_info had; the rest goes with the tensor. */
static ebb_props props_with_key_in(ebb_writer *w, const ebb_graph *g, const ebb_props *props,
                                   ebb_entries was)
{
    const size_t bytes = sizeof *props->all + ebb_props_count(props) * sizeof *props->all->at;
    ebb_props some = {ebb_arena_zeroed(&w->arena, 1, bytes)};
    w->failed |= some.all == NULL;
    if (some.all != NULL)
        EBB_EACH_PROP(props, p)
            if (ebb_writer_has_key(was, ebb_writer_text(g, p->key)))
                some.all->at[some.all->count++] = *p;
    return some;
}

Onnx__ValueInfoProto *ebb_writer_info(ebb_writer *w, const ebb_graph *g, ebb_value v,
                                      const void *origin)
{
    const ebb_value_info *value = ebb_value_of(g, v);
    Onnx__ValueInfoProto *info =
        EBB_WRITER_MESSAGE(w, Onnx__ValueInfoProto, value_info_proto, origin, 0);
    if (info == NULL)
        return NULL;
    info->name = ebb_writer_text(g, value->name);
    bool keep = origin != NULL && info->type != NULL && value->tensor != NULL &&
                says_no_more(value->type, info->type);
    if (!keep && !same_type(g, value->type, info->type))
        info->type = make_type(w, g, value->type);
    if (value->origin != origin)
        return info; // an input that is an output, too: its metadata is the other message's
    ebb_entries was = {info->metadata_props, info->n_metadata_props}, none = {NULL, 0};
    ebb_props props =
        value->tensor != NULL ? props_with_key_in(w, g, &value->props, was) : value->props;
    ebb_entries now = ebb_writer_props(w, g, &props, was, none, NULL, 0);
    info->metadata_props = now.list;
    info->n_metadata_props = now.count;
    return info;
}
