/* attr.c: look up attributes. Nodes have few, so a walk it is. */
#include "onnx/words/attr.h"

const ebb_attr *ebb_attr_find(const ebb_attrs *attrs, const char *name)
{
    for (uint32_t i = 0; i < attrs->count; i++)
        if (strcmp(attrs->list[i].name, name) == 0)
            return &attrs->list[i];
    return NULL;
}

static const ebb_attr *of_type(const ebb_attrs *attrs, const char *name, ebb_attr_type type)
{
    const ebb_attr *a = ebb_attr_find(attrs, name);
    return a != NULL && a->type == type && a->ref == NULL ? a : NULL;
}

bool ebb_attr_is_equal(const ebb_attr *a, const ebb_attr *b)
{
    if (a->type != b->type || a->ref != b->ref)
        return false;
    switch (a->type) {
    case EBB_ATTR_INT:
        return a->i == b->i;
    case EBB_ATTR_FLOAT:
        return a->f == b->f;
    case EBB_ATTR_STRING:
        return a->s_bytes == b->s_bytes && (a->s_bytes == 0 || memcmp(a->s, b->s, a->s_bytes) == 0);
    case EBB_ATTR_INTS:
        return a->count == b->count &&
               (a->count == 0 || memcmp(a->ints, b->ints, a->count * sizeof *a->ints) == 0);
    default:
        return false;
    }
}

int64_t ebb_attr_int(const ebb_attrs *attrs, const char *name, int64_t otherwise)
{
    const ebb_attr *a = of_type(attrs, name, EBB_ATTR_INT);
    return a != NULL ? a->i : otherwise;
}

double ebb_attr_float(const ebb_attrs *attrs, const char *name, double otherwise)
{
    const ebb_attr *a = of_type(attrs, name, EBB_ATTR_FLOAT);
    return a != NULL ? a->f : otherwise;
}

const char *ebb_attr_string(const ebb_attrs *attrs, const char *name, const char *otherwise)
{
    const ebb_attr *a = of_type(attrs, name, EBB_ATTR_STRING);
    return a != NULL ? a->s : otherwise;
}

const int64_t *ebb_attr_ints(const ebb_attrs *attrs, const char *name, uint32_t *count)
{
    const ebb_attr *a = of_type(attrs, name, EBB_ATTR_INTS);
    *count = a != NULL ? a->count : 0;
    return a != NULL ? a->ints : NULL;
}
