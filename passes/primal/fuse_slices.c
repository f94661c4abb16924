/* fuse_slices.c: slices that take a tensor apart along one axis are one Split.
 *
 *   before   a = Slice(x, 0, 512)  b = Slice(x, 1024, 1536)  c = Slice(x, 512, 1024)
 *   after    a, c, b = Split(x, [512, 512, 512])
 *
 * Exporters cut the gates of a recurrent layer so, to put them together in another order, and packed
 * projections. The gradient of Split is one Concat; that of each Slice is a Pad as large as x, and
 * all of them are added up. Numbers are the same (a zero may have the other sign).
 *
 * Left alone where slices overlap, leave something out or step, and where a size is not known.
 */
#include "passes/primal/fuse_slices.h"

#include <stdlib.h>

#include "onnx/graph/shape.h"
#include "passes/common.h"

typedef struct cut {
    ebb_node n;
    int axis;
    int64_t from, to;
} cut;

/* The one number that an input of a Slice gives; none: `otherwise`. */
static bool number(const ebb_edit *e, ebb_node n, uint32_t slot, int64_t otherwise, int64_t *x)
{
    const int64_t *list;
    uint32_t count;
    *x = otherwise;
    if (ebb_in(e->g, n, slot).i == 0)
        return true;
    if (!ebb_ints_of(e->g, ebb_in(e->g, n, slot), e->scratch, &list, &count) || count != 1)
        return false;
    *x = list[0];
    return true;
}

/* What n takes of x, by one axis and without steps; false: otherwise. */
static bool read_cut(const ebb_edit *e, ebb_node n, cut *c)
{
    const ebb_graph *g = e->g;
    const ebb_type *x = ebb_value_of(g, ebb_in(g, n, 0))->type;
    int64_t axis, step, from, to;
    if (ebb_node_of(g, n)->op != EBB_OP_SLICE || !ebb_type_is_static(x) ||
        ebb_value_is_held(g, ebb_out(g, n, 0)) || !number(e, n, 1, 0, &from) ||
        !number(e, n, 2, 0, &to) || !number(e, n, 3, 0, &axis) || !number(e, n, 4, 1, &step))
        return false;
    axis += axis < 0 ? x->rank : 0;
    if (step != 1 || axis < 0 || axis >= x->rank)
        return false;
    int64_t size;
    from = ebb_slice_bounds(x->dims[axis], from, to, step, &size);
    *c = (cut){n, (int)axis, from, from + size};
    return size > 0;
}

static int by_place(const void *a, const void *b)
{
    const cut *p = a, *q = b;
    return p->from < q->from ? -1 : p->from > q->from;
}

/* All slices of x along the axis of n, by their place; *count 0: they do not make x up. */
static ebb_status find_cuts(ebb_edit *e, const cut *first, cut **cuts, uint32_t *count)
{
    const ebb_graph *g = e->g;
    ebb_value v = ebb_in(g, first->n, 0);
    const ebb_value_info *x = ebb_value_of(g, v);
    int64_t at = 0;
    cut other;
    *count = 0;
    *cuts = EBB_SCRATCH(e, cut, x->use_count);
    EBB_GOT(*cuts);
    for (size_t i = 0; i < x->use_count; i++)
        if (x->uses[i].slot == 0 && read_cut(e, x->uses[i].node, &other) &&
            other.axis == first->axis)
            (*cuts)[(*count)++] = other;
    qsort(*cuts, *count, sizeof **cuts, by_place);
    for (uint32_t k = 0; k < *count && at >= 0; k++)
        at = (*cuts)[k].from == at ? (*cuts)[k].to : -1;
    if (at != x->type->dims[first->axis] || *count < 2)
        *count = 0;
    return NULL;
}

ebb_status ebb_fuse_slices(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    cut first, *cuts;
    uint32_t count;
    if (!read_cut(e, n, &first))
        return NULL;
    EBB_TRY(find_cuts(e, &first, &cuts, &count));
    if (count == 0)
        return NULL;
    ebb_found(e);
    int64_t *lengths = EBB_SCRATCH(e, int64_t, count);
    ebb_value *out = EBB_SCRATCH(e, ebb_value, count);
    EBB_GOT(lengths && out);
    for (uint32_t k = 0; k < count; k++)
        lengths[k] = cuts[k].to - cuts[k].from;
    ebb_build b = ebb_edit_build(e, n, ebb_node_of(g, n)->phase);
    b.name = ebb_value_name(g, ebb_in(g, n, 0));
    ebb_with_int(&b, "axis", first.axis);
    ebb_value in[] = {ebb_in(g, n, 0), ebb_const_ints(&b, lengths, count)};
    ebb_emit_node(&b, EBB_OP_SPLIT, in, 2, out, count, UINT32_MAX);
    EBB_TRY(b.status);
    for (uint32_t k = 0; k < count; k++) {
        EBB_TRY(ebb_edit_replace(e, ebb_out(g, cuts[k].n, 0), out[k]));
        if (!ebb_same_node(cuts[k].n, n))
            ebb_edit_remove(e, cuts[k].n);
    }
    ebb_edit_remove(e, n); // last: a walk goes on from here
    ebb_applied(e);
    return NULL;
}
