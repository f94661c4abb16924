/* indices.h: index tensors: are they all within bounds, and where along an axis does each lead?
 * And labels: the classes that losses are told. */
#pragma once

#include "kernels/plain/plain.h"

/* Index i of an index tensor, counted from the front of an axis of n. */
static inline int64_t ebb_index_at(const ebb_operand *o, int64_t i, int64_t n)
{
    int64_t at = o->type.dtype == EBB_I64 ? ((const int64_t *)o->data)[i]
                                          : (int64_t)((const int32_t *)o->data)[i];
    return at < 0 ? at + n : at;
}

/* All indices are within low..high (inclusive; high < low: none is). An error names `what`
 * ("index", "label"), its value, its position in the flattened tensor, and the bounds. */
static inline ebb_status ebb_indices_check(const ebb_call *c, const ebb_operand *o,
                                           const char *what, int64_t low, int64_t high)
{
    int64_t count = ebb_elements(&o->type);
    int64_t bad = 0;
    if (o->type.dtype == EBB_I64) {
        const int64_t *x = o->data;
        EBB_SIMD_SUM(bad)
        for (int64_t i = 0; i < count; i++)
            bad += (x[i] < low) | (x[i] > high);
    } else {
        const int32_t *x = o->data;
        EBB_SIMD_SUM(bad)
        for (int64_t i = 0; i < count; i++)
            bad += (x[i] < low) | (x[i] > high);
    }
    if (bad == 0)
        return NULL;
    for (int64_t i = 0; i < count; i++) {
        int64_t x = ebb_plain_int(o, i);
        if (x >= low && x <= high)
            continue;
        if (high < low)
            return ebb_call_error(c, "%s %lld at position %lld leads into an axis of length 0",
                                  what, (long long)x, (long long)i);
        return ebb_call_error(c, "%s %lld at position %lld is outside %lld..%lld", what,
                              (long long)x, (long long)i, (long long)low, (long long)high);
    }
    return NULL;
}

/* Indices into an axis of n, negative ones from its end. */
static inline ebb_status ebb_indices_check_axis(const ebb_call *c, const ebb_operand *o, int64_t n)
{
    return ebb_indices_check(c, o, "index", -n, n - 1);
}

/* ---- labels ---- */

typedef struct ebb_labels {
    const ebb_operand *operand;
    bool ignores; /* samples of the label `ignored` do not count */
    int64_t ignored;
} ebb_labels;

static inline int64_t ebb_label_at(const ebb_labels *l, int64_t i)
{
    return ebb_plain_int(l->operand, i);
}

static inline bool ebb_label_counts(const ebb_labels *l, int64_t label)
{
    return !l->ignores || label != l->ignored;
}

/* The labels of a call with the attribute ignore_index, all of them classes or the ignored one. */
static inline ebb_status ebb_labels_read(const ebb_call *c, const ebb_operand *operand,
                                         int64_t classes, ebb_labels *l)
{
    const ebb_attr *ignored = ebb_attr_find(&c->attrs, "ignore_index");
    *l = (ebb_labels){.operand = operand};
    l->ignores = ignored != NULL && ignored->type == EBB_ATTR_INT;
    if (!l->ignores)
        return ebb_indices_check(c, operand, "label", 0, classes - 1);
    l->ignored = ignored->i;
    int64_t count = ebb_elements(&operand->type);
    for (int64_t i = 0; i < count; i++) {
        int64_t label = ebb_label_at(l, i);
        if (ebb_label_counts(l, label) && (label < 0 || label >= classes))
            return ebb_call_error(c, "label %lld at position %lld is outside 0..%lld",
                                  (long long)label, (long long)i, (long long)classes - 1);
    }
    return NULL;
}
