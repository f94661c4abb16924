/* overlap_rows.c: a table that is looked up in and multiplied by, as the head of a language model that is tied to its
 * embedding.
 *
 *   before   d = product(...)    ...    s = GatherGrad(ids, dy)    g = AllReduce(d + s)
 *   after    a = AllReduce(d)    ...    s = GatherGrad(ids, dy)    r = AllReduce(d[all] + s[all])    g = (a + 0) with r at all
 *                                                                                   all: the ids of all processes
 *
 * The product is the first that the backward makes and the rows are the last, so a large exchange stood behind the
 * step. Only rows that somebody looked up differ between the two sums: those are exchanged again, as they would have
 * been, and the others have what they had: a sum of zeros and d, in the order of ranks. (0 is added since d + s is 0
 * where d is -0.) The rows of d are read before its exchange, so that its memory may go.
 *
 * It sends those rows twice: so they must be few, a quarter of the table at most.
 */
#include "passes/spread/overlap_rows.h"

#include "onnx/graph/infer.h"
#include "passes/common.h"
#include "passes/spread/shard_parts.h"

enum {
    LEAST = 65536, /* bytes of a table: a smaller one takes no time to speak of */
    FEW = 4        /* the table's share, as a divisor, that is sent twice at most */
};

typedef struct tied {
    ebb_node sum;          /* AllReduce */
    ebb_value dense, rows; /* what it adds up */
    ebb_value ids;
    int64_t count; /* of all processes' ids */
} tied;

static bool is_read_once(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return info->use_count == 1 && (info->flags & (EBB_IS_OUTPUT | EBB_IS_CAPTURED)) == 0;
}

static bool is_lookup_of(const ebb_graph *g, ebb_value v)
{
    if (ebb_producer_op(g, v) != EBB_OP_GATHER_GRAD || !is_read_once(g, v))
        return false;
    const ebb_attrs attrs = ebb_node_attrs(g, ebb_value_of(g, v)->producer);
    return ebb_attr_int(&attrs, "axis", 0) == 0;
}

static bool is_first(const ebb_graph *g, const uint32_t *positions, ebb_value a, ebb_value b)
{
    return positions[ebb_value_of(g, a)->producer.i] < positions[ebb_value_of(g, b)->producer.i];
}

static bool find(tied *t, const ebb_graph *g, ebb_node n, const uint32_t *positions)
{
    const ebb_value x = ebb_in(g, n, 0);
    size_t bytes = 0;
    if (ebb_node_of(g, n)->op != EBB_OP_ALL_REDUCE || ebb_producer_op(g, x) != EBB_OP_ADD ||
        !is_read_once(g, x))
        return false;
    const ebb_node add = ebb_value_of(g, x)->producer;
    const bool second = is_lookup_of(g, ebb_in(g, add, 1));
    *t = (tied){.sum = n, .dense = ebb_in(g, add, !second), .rows = ebb_in(g, add, second)};
    const ebb_type *type = ebb_value_of(g, x)->type;
    if (!is_lookup_of(g, t->rows) || ebb_value_of(g, t->dense)->producer.i == 0 ||
        !is_read_once(g, t->dense) || !is_first(g, positions, t->dense, t->rows) ||
        !ebb_type_same_shape(ebb_value_of(g, t->dense)->type, type) ||
        !ebb_type_bytes(type, &bytes) || bytes < LEAST)
        return false;
    t->ids = ebb_in(g, ebb_value_of(g, t->rows)->producer, 1);
    if (!ebb_type_elements(ebb_value_of(g, t->ids)->type, &t->count) ||
        __builtin_mul_overflow(t->count, ebb_ranks_of(g, n), &t->count))
        return false;
    return t->count > 0 && t->count <= type->dims[0] / FEW;
}

/* Those of all processes: begun with the step, or where they are made. */
static ebb_value all_ids(ebb_build *b, const tied *t)
{
    static const int64_t flat = -1;
    const ebb_node maker = ebb_value_of(b->g, t->ids)->producer, end = b->before;
    b->before = maker.i != 0 ? ebb_next(b->g, maker) : ebb_first(b->g);
    b->name = ebb_value_name(b->g, t->ids);
    const ebb_value own = ebb_emit_reshape(b, t->ids, &flat, 1);
    ebb_with_int(b, "ranks", ebb_ranks_of(b->g, t->sum));
    ebb_with_ints(b, "shape", &t->count, 1);
    const ebb_value begun = ebb_emit(b, EBB_OP_START_UNSHARD, own);
    b->before = end;
    return ebb_emit(b, EBB_OP_WAIT, begun, own);
}

static ebb_value sum(ebb_build *b, const tied *t, ebb_value x)
{
    ebb_with_exchange_of(b, t->sum);
    return ebb_emit(b, EBB_OP_ALL_REDUCE, x);
}

static ebb_status part(ebb_edit *e, const tied *t)
{
    ebb_graph *g = e->g;
    const int64_t column[] = {t->count, 1};
    const ebb_node maker = ebb_value_of(g, t->dense)->producer;
    ebb_build b = ebb_edit_build(e, ebb_next(g, maker), (ebb_phase)ebb_node_of(g, maker)->phase);
    const ebb_value all = all_ids(&b, t);
    b.name = ebb_value_name(g, t->dense);
    const ebb_value first = ebb_emit(&b, EBB_OP_GATHER, t->dense, all);
    const ebb_value early = sum(&b, t, t->dense);
    b.before = t->sum;
    b.name = ebb_value_name(g, ebb_out(g, t->sum, 0));
    const ebb_value second = ebb_emit(&b, EBB_OP_GATHER, t->rows, all);
    const ebb_value late = sum(&b, t, ebb_emit(&b, EBB_OP_ADD, first, second));
    b.phase = EBB_UPDATE;
    const ebb_value clean = ebb_emit(&b, EBB_OP_ADD, early, ebb_const_like(&b, early, 0));
    const ebb_value whole =
        ebb_emit(&b, EBB_OP_SCATTER_ND, clean, ebb_emit_reshape(&b, all, column, 2), late);
    EBB_TRY(b.status);
    ebb_applied(e);
    return ebb_edit_swap(e, t->sum, whole);
}

ebb_status ebb_overlap_rows(ebb_edit *e)
{
    ebb_graph *g = e->g;
    const uint32_t *positions = ebb_graph_positions(g, e->scratch);
    tied t;
    EBB_GOT(positions);
    EBB_EACH_NODE(g, n)
        if (ebb_ranks_of(g, n) > 1 && find(&t, g, n, positions)) {
            ebb_found(e);
            return part(e, &t); // a step has one such table
        }
    return NULL;
}
