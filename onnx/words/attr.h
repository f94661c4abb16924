/* attr.h: the attributes of a node, as data.
 *
 * Apart from graph.h because kernels see attributes and never graphs.
 */
#pragma once

#include "onnx/words/tensor.h"

EBB_C_BEGIN

/* ONNX AttributeProto.AttributeType numbers. */
typedef enum ebb_attr_type {
    EBB_ATTR_UNDEFINED = 0,
    EBB_ATTR_FLOAT = 1,
    EBB_ATTR_INT = 2,
    EBB_ATTR_STRING = 3,
    EBB_ATTR_TENSOR = 4,
    EBB_ATTR_GRAPH = 5,
    EBB_ATTR_FLOATS = 6,
    EBB_ATTR_INTS = 7,
    EBB_ATTR_STRINGS = 8,
    EBB_ATTR_TENSORS = 9,
    EBB_ATTR_GRAPHS = 10,
    EBB_ATTR_SPARSE_TENSOR = 11,
    EBB_ATTR_SPARSE_TENSORS = 12,
    EBB_ATTR_TYPE_PROTO = 13,
    EBB_ATTR_TYPE_PROTOS = 14,
} ebb_attr_type;

typedef struct ebb_attr {
    const char *name;
    ebb_attr_type type;
    const char *ref; /* name of the function's attribute that this one stands for, or NULL */
    double f;        /* FLOAT (exactly a float) */
    int64_t i;       /* INT */
    const char *s;   /* STRING: terminated, may hold zeros: */
    size_t s_bytes;
    uint32_t count; /* of the list types */
    const float *floats;
    const int64_t *ints;
    const char *const *strings;
    const ebb_tensor *tensor;        /* TENSOR */
    struct ebb_graph *const *graphs; /* GRAPH (count 1), GRAPHS */
    const void *origin; /* the bytes of its AttributeProto, for the writer and the rarer types */
} ebb_attr;

typedef struct ebb_attrs {
    const ebb_attr *list;
    uint32_t count;
} ebb_attrs;

/* NULL where there is none of that name. */
const ebb_attr *ebb_attr_find(const ebb_attrs *attrs, const char *name);

/* Whether both have the same value, whatever their names; of lists of other than integers, tensors and graphs it
 * is not looked for. */
bool ebb_attr_is_equal(const ebb_attr *a, const ebb_attr *b);

/* The value, or the default where the attribute is absent or of another type. */
int64_t ebb_attr_int(const ebb_attrs *attrs, const char *name, int64_t otherwise);
double ebb_attr_float(const ebb_attrs *attrs, const char *name, double otherwise);
const char *ebb_attr_string(const ebb_attrs *attrs, const char *name, const char *otherwise);

/* The list and its length; NULL and 0 where absent. */
const int64_t *ebb_attr_ints(const ebb_attrs *attrs, const char *name, uint32_t *count);

EBB_C_END
