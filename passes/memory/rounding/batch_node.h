/* batch_node.h: what the rules of batch_rules.c and batch_layers.c ask of a node and say of it. */
#pragma once

#include "passes/memory/rounding/batch_rules.h"

extern const char ebb_batch_mixes[], ebb_batch_crossed[], ebb_batch_unknown[];

/* ---- looking ---- */

static inline const ebb_type *in_type(const ebb_batch_node *b, uint32_t i)
{
    return ebb_value_of(b->g, ebb_in(b->g, b->n, i))->type;
}

static inline const ebb_type *out_type(const ebb_batch_node *b, uint32_t k)
{
    return ebb_value_of(b->g, ebb_out(b->g, b->n, k))->type;
}

static inline bool has_in(const ebb_batch_node *b, uint32_t i)
{
    return ebb_in(b->g, b->n, i).i != 0;
}

static inline bool has_out(const ebb_batch_node *b, uint32_t k)
{
    return ebb_out(b->g, b->n, k).i != 0;
}

static inline bool is_parts(const ebb_batch_node *b, uint32_t i)
{
    return has_in(b, i) && b->in[i].where == EBB_BATCH_PARTS;
}

static inline uint32_t in_count(const ebb_batch_node *b)
{
    return ebb_node_of(b->g, b->n)->in_count;
}

static inline uint32_t out_count(const ebb_batch_node *b)
{
    return ebb_node_of(b->g, b->n)->out_count;
}

static inline ebb_op op_of(const ebb_batch_node *b)
{
    return ebb_node_of(b->g, b->n)->op;
}

static inline int64_t int_attr(const ebb_batch_node *b, const char *name, int64_t otherwise)
{
    ebb_attrs attrs = ebb_node_attrs(b->g, b->n);
    return ebb_attr_int(&attrs, name, otherwise);
}

static inline int normal(int64_t axis, int rank)
{
    return (int)(axis < 0 ? axis + rank : axis);
}

/* Integers by attribute or constant input; *list NULL: neither is given. */
static inline bool ints_of(const ebb_batch_node *b, const char *attr, uint32_t input,
                           const int64_t **list, uint32_t *count)
{
    ebb_attrs attrs = ebb_node_attrs(b->g, b->n);
    *count = 0;
    *list = attr != NULL ? ebb_attr_ints(&attrs, attr, count) : NULL;
    return !has_in(b, input) || *list != NULL ||
           ebb_ints_of(b->g, ebb_in(b->g, b->n, input), b->scratch, list, count);
}

/* ---- asking and giving ---- */

/* Input i in parts along `axis`: it is so already, or whole. */
static inline bool ask(ebb_batch_node *b, uint32_t i, int axis)
{
    if (!has_in(b, i))
        return true;
    if (b->in[i].where == EBB_BATCH_WHOLE)
        b->in[i] = (ebb_batch_form){EBB_BATCH_PARTS, axis, b->outer};
    return b->in[i].where == EBB_BATCH_PARTS && b->in[i].axis == axis;
}

static inline bool is_whole(const ebb_batch_node *b, uint32_t i)
{
    return !has_in(b, i) || b->in[i].where == EBB_BATCH_WHOLE;
}

static inline bool all_whole_from(const ebb_batch_node *b, uint32_t first)
{
    for (uint32_t i = first; i < in_count(b); i++)
        if (!is_whole(b, i))
            return false;
    return true;
}

static inline void give(ebb_batch_node *b, uint32_t k, int axis)
{
    b->out[k] = (ebb_batch_form){EBB_BATCH_PARTS, axis, b->outer};
}

static inline void give_all(ebb_batch_node *b, int axis)
{
    for (uint32_t k = 0; k < out_count(b); k++)
        give(b, k, axis);
}

/* ---- batch_rules.c ---- */

/* Input 0 along an axis that the node leaves alone; the others are whole. `moved`: an axis that it
 * does not leave alone. */
const char *ebb_batch_beside(ebb_batch_node *b, int moved);

/* Where the split of from's axis is in `to`, which has the same elements: as many before the batch,
 * in whole axes or, *outer of them, in the axis itself. -1: nowhere. */
int ebb_batch_axis_through(const ebb_type *to, int64_t *outer, const ebb_type *from, int axis,
                           int64_t parts);

/* ---- the rules: column `batch` of ops.def, batch_rules.c and batch_layers.c ---- */

/* Operators share rules: repeated prototypes are harmless. A rule fills b->out, and asks of b->in;
 * NULL, or why the node cannot be computed in parts. */
#define EBB_OP(id, domain, name, since, operands, reads, slots, traits, alias, infer, grad, cost, \
               sizes, tile, batch, ...)                                                           \
    const char *ebb_parts_##batch(ebb_batch_node *b);
#include "onnx/tables/ops.def"
#undef EBB_OP
