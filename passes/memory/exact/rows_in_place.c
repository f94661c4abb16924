/* rows-in-place: the gradient of rows that were looked up in a table, added to its other gradient where that lies.
 *
 *   before   d = product(...)   ...   s = GatherGrad(ids, dy)               as large as the table
 *                                     g = d + s
 *   after    d = product(...)   ...   p = GatherGrad(first, dy)             a row for each id
 *                                     g = ScatterND(d + 0, ids, d[ids] + p[first])    over d
 *                                     first = last[ids]    last = ScatterElements(zeros, ids, 0 1 2 ..., max)
 *
 * So it is with the head of a language model that is tied to its embedding, where the table is the largest tensor
 * there is; with one that an encoder and a decoder look up in; and with one that is looked up in twice.
 *
 * Exact: p adds the rows of equal ids in the order in which s does, at the place of the last of them, and every one
 * of them puts the same sum into its row. Other rows have d + 0, which is 0 where d is -0.
 *
 * Declines where the ids are more than a quarter of the rows, since what is put together for them is then no less
 * than the table; where d is read by something else, or made later; and before opset 18.
 */
#include "exec/weigh/estimate.h"
#include "passes/common.h"

enum { FEW = 4 }; /* of the table's rows, as a divisor */

typedef struct site {
    ebb_node add, lookup;
    ebb_value dense, ids;
    int64_t rows, count; /* of the table, of ids */
} site;

static bool is_lookup(const ebb_graph *g, ebb_value v)
{
    if (ebb_producer_op(g, v) != EBB_OP_GATHER_GRAD || ebb_only_user(g, v).i == 0)
        return false;
    const ebb_attrs attrs = ebb_node_attrs(g, ebb_value_of(g, v)->producer);
    return ebb_attr_int(&attrs, "axis", 0) == 0;
}

/* NULL: read; "": no such sum; else why it stays. */
static const char *read_site(site *s, const ebb_graph *g, const uint32_t *at, ebb_node add)
{
    const bool second = is_lookup(g, ebb_in(g, add, 1));
    const ebb_value looked_up = ebb_in(g, add, second);
    if (!is_lookup(g, looked_up))
        return "";
    *s = (site){.add = add, .lookup = ebb_value_of(g, looked_up)->producer};
    s->dense = ebb_in(g, add, !second);
    s->ids = ebb_in(g, s->lookup, 1);
    const ebb_node maker = ebb_value_of(g, s->dense)->producer;
    const ebb_type *table = ebb_value_of(g, looked_up)->type;
    int64_t elements;
    if (!ebb_type_same_shape(ebb_value_of(g, s->dense)->type, table) ||
        !ebb_type_elements(table, &elements) || elements == 0 ||
        !ebb_type_elements(ebb_value_of(g, s->ids)->type, &s->count) || s->count == 0)
        return "its shapes are not known, or differ";
    s->rows = table->dims[0];
    if (ebb_only_user(g, s->dense).i == 0)
        return "the other gradient is read by something else, too";
    if (maker.i == 0 || at[maker.i] > at[s->lookup.i])
        return "the other gradient is not made before it";
    if (s->count > s->rows / FEW)
        return "it looks up more than a quarter of the rows";
    if (ebb_model_opset(g->model, EBB_DOMAIN_ONNX) < 18)
        return "ScatterElements takes no maximum before opset 18";
    return NULL;
}

/* For each id the position of the last id that is equal, in ids' order. */
static ebb_value last_of(ebb_build *b, const site *s, ebb_value ids)
{
    const ebb_value zero = ebb_const_scalar(b, EBB_I64, 0);
    const ebb_value positions =
        ebb_emit(b, EBB_OP_RANGE, zero, ebb_const_scalar(b, EBB_I64, (double)s->count),
                 ebb_const_scalar(b, EBB_I64, 1));
    const ebb_value none = ebb_emit(b, EBB_OP_EXPAND, zero, ebb_const_ints(b, &s->rows, 1));
    ebb_with_string(b, "reduction", "max");
    const ebb_value last = ebb_emit(b, EBB_OP_SCATTER_ELEMENTS, none, ids, positions);
    return ebb_emit(b, EBB_OP_GATHER, last, ids);
}

static ebb_status rewrite(ebb_edit *e, const site *s)
{
    ebb_graph *g = e->g;
    const int64_t flat = -1, column[] = {s->count, 1};
    const ebb_type *table = ebb_value_of(g, s->dense)->type;
    int64_t *dims = EBB_SCRATCH(e, int64_t, (size_t)table->rank);
    EBB_GOT(dims);
    memcpy(dims, table->dims, (size_t)table->rank * sizeof *dims);
    dims[0] = s->count;
    ebb_build b = ebb_edit_build(e, s->add, EBB_PHASE_NONE);
    b.name = ebb_value_name(g, ebb_out(g, s->add, 0));
    const ebb_value ids = ebb_emit_reshape(&b, s->ids, &flat, 1), first = last_of(&b, s, ids);
    const ebb_value dy = ebb_emit_reshape(&b, ebb_in(g, s->lookup, 2), dims, table->rank);
    const ebb_value parts = ebb_emit(&b, EBB_OP_GATHER_GRAD,
                                     ebb_const_ints(&b, dims, (uint32_t)table->rank), first, dy);
    const ebb_value sums = ebb_emit(&b, EBB_OP_ADD, ebb_emit(&b, EBB_OP_GATHER, s->dense, ids),
                                    ebb_emit(&b, EBB_OP_GATHER, parts, first));
    const ebb_value clean = ebb_emit(&b, EBB_OP_ADD, s->dense, ebb_const_like(&b, s->dense, 0));
    const ebb_value whole =
        ebb_emit(&b, EBB_OP_SCATTER_ND, clean, ebb_emit_reshape(&b, ids, column, 2), sums);
    EBB_TRY(b.status);
    ebb_applied(e);
    return ebb_edit_swap(e, s->add, whole);
}

/* A table is neither filled, nor written, nor read; some rows are a few times. */
static ebb_offer offer_of(const ebb_graph *g, const site *s)
{
    enum { MOVES_OF_ROWS = 12 };
    const ebb_value rows = ebb_out(g, s->lookup, 0);
    const double table = (double)ebb_stored_bytes(g, rows);
    const double moved = table / (double)s->rows * (double)s->count * MOVES_OF_ROWS;
    return (ebb_offer){.value = rows,
                       .saved_bytes = ebb_stored_bytes(g, rows),
                       .added_ns = ebb_roofline_ns(g, 0, 2 * table + moved) -
                                   ebb_node_ns(g, s->lookup) - ebb_node_ns(g, s->add)};
}

static ebb_status run(ebb_edit *e)
{
    const uint32_t *at = ebb_graph_positions(e->g, e->scratch);
    site s;
    EBB_GOT(at);
    EBB_EACH_NODE(e->g, n) {
        const char *reason =
            ebb_node_of(e->g, n)->op == EBB_OP_ADD ? read_site(&s, e->g, at, n) : "";
        if (reason != NULL && reason[0] == '\0')
            continue;
        if (reason != NULL) {
            EBB_TRY(ebb_declined(e, n, reason));
            continue;
        }
        ebb_found(e);
        const ebb_offer offer = offer_of(e->g, &s);
        if (ebb_offered(e, n, &offer))
            EBB_TRY(rewrite(e, &s));
    }
    return NULL;
}

const ebb_pass ebb_pass_rows_in_place = {
    .name = "rows-in-place",
    .doc = "add the gradient of rows that were looked up to the table's other one, where that lies",
    .exactness = EBB_EXACT,
    .run = run,
};
