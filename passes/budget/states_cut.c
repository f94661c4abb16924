/* states_cut.c: an update of a large weight by parts of its rows, so that of its states a part is here at a time.
 *
 *   before   w', m' = F(w, g, m)                                              m <- m'
 *   after    m0, m1 = Split(m)
 *            w0, n0 = F(Slice(w), Slice(g), m0)     v = ScatterND(w, rows, w0)
 *            w1, n1 = F(Slice(v), Slice(g), m1)     w' = ScatterND(v, rows, w1)
 *                                                                  m <- Concat(n0, n1)
 *
 * Where m lies in another place Split and Concat take no memory, and v is written over w.
 *
 * Exact: F is computed element by element.
 *
 * Declines for optimizers of several nodes, of several tensors or in few bits, and where rows fill no pages.
 */
#include "passes/budget/states_cut.h"

#include "passes/common.h"

enum { PARTS = 8, FIRST = 2 /* of an update's operands: the weight, its gradient, states */ };

typedef struct cut {
    ebb_edit *e;
    ebb_node node;
    const ebb_type *type; /* of the weight */
    uint32_t in_count;
    int64_t rows; /* of a part */
    uint32_t parts;
    uint64_t bytes; /* of its operands */
} cut;

static uint32_t operands_of(ebb_op op)
{
    return op == EBB_OP_ADAMW || op == EBB_OP_ADAM ? 6 : op == EBB_OP_MOMENTUM ? 5 : 0;
}

/* How many rows of so many bytes fill pages of the file, at least. */
static int64_t rows_of_pages(int64_t row_bytes)
{
    int64_t rows = EBB_DISK_ALIGN;
    while (rows > 1 && rows / 2 * row_bytes % EBB_DISK_ALIGN == 0)
        rows /= 2;
    return rows;
}

/* Operand i of n is a state that may go, and that nothing else reads. */
static bool is_own_state(const ebb_graph *g, const ebb_away_states *wish, ebb_node n, uint32_t i)
{
    const ebb_value state = ebb_in(g, n, i), next = ebb_out(g, n, i - FIRST - 1);
    return next.i != 0 && ebb_same_value(ebb_graph_bound(g, state), next) &&
           ebb_value_of(g, state)->use_count == 1 && ebb_value_of(g, next)->use_count == 0 &&
           ebb_state_may_go(g, wish, state, next);
}

/* n can be cut, into parts that may go. */
static bool read_cut(cut *c, ebb_edit *e, const ebb_away_states *wish, ebb_node n)
{
    const ebb_graph *g = e->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    const uint32_t count = info->in_count;
    if (count == 0 || operands_of(info->op) != count || info->out[0].i == 0)
        return false;
    const ebb_type *type = ebb_value_of(g, info->in[FIRST])->type;
    if (type->rank < 2 || !ebb_type_is_static(type) || type->dims[0] == 0)
        return false;
    int64_t bytes = 0, fill = 1; // rows that fill pages: a power of two
    for (uint32_t i = FIRST; i < count; i++) {
        const int64_t own = ebb_stored_bytes(g, info->in[i]);
        if (!ebb_type_same_shape(ebb_value_of(g, info->in[i])->type, type) ||
            (i > FIRST + 1 && !is_own_state(g, wish, n, i)))
            return false;
        const int64_t rows = rows_of_pages(own / type->dims[0]);
        fill = rows > fill ? rows : fill;
        bytes += own;
    }
    const int64_t rows = ((type->dims[0] + PARTS - 1) / PARTS + fill - 1) / fill * fill;
    const int64_t parts = (type->dims[0] + rows - 1) / rows;
    *c = (cut){e, n, type, count, rows, (uint32_t)parts, (uint64_t)bytes};
    return parts > 1 &&
           (uint64_t)(ebb_stored_bytes(g, info->in[FIRST]) / type->dims[0] * rows) >= wish->least;
}

static ebb_value some_rows(ebb_build *b, ebb_value v, int64_t from, int64_t to)
{
    const int64_t axis = 0;
    return ebb_emit(b, EBB_OP_SLICE, v, ebb_const_ints(b, &from, 1), ebb_const_ints(b, &to, 1),
                    ebb_const_ints(b, &axis, 1));
}

/* `rows` takes the place of those of w. */
static ebb_value put_rows(ebb_build *b, ebb_value w, ebb_value rows, int64_t from, int64_t to)
{
    const int64_t column[] = {to - from, 1};
    const ebb_value ids =
        ebb_emit(b, EBB_OP_RANGE, ebb_const_scalar(b, EBB_I64, (double)from),
                 ebb_const_scalar(b, EBB_I64, (double)to), ebb_const_scalar(b, EBB_I64, 1));
    return ebb_emit(b, EBB_OP_SCATTER_ND, w, ebb_emit_reshape(b, ids, column, 2), rows);
}

static ebb_status split_states(const cut *c, ebb_build *b, ebb_value (*part)[PARTS],
                               ebb_node *split)
{
    int64_t sizes[PARTS];
    for (uint32_t k = 0; k < c->parts; k++)
        sizes[k] = k + 1 < c->parts ? c->rows : c->type->dims[0] - c->rows * (int64_t)k;
    for (uint32_t i = FIRST + 2; i < c->in_count; i++) {
        const ebb_value state = ebb_in(c->e->g, c->node, i);
        const ebb_value in[] = {state, ebb_const_ints(b, sizes, c->parts)};
        ebb_emit_node(b, EBB_OP_SPLIT, in, 2, part[i], c->parts, UINT32_MAX);
        split[state.i] = b->last;
    }
    return b->status;
}

static ebb_status join_states(const cut *c, ebb_value (*next)[PARTS])
{
    ebb_graph *g = c->e->g;
    for (uint32_t i = FIRST + 2; i < c->in_count; i++) {
        const ebb_value state = ebb_in(g, c->node, i);
        ebb_build b = ebb_edit_build(c->e, EBB_NO_NODE, EBB_UPDATE); // at the end: parts come late
        b.name = ebb_value_name(g, state);
        ebb_with_int(&b, "axis", 0);
        const ebb_value whole = ebb_emit_list(&b, EBB_OP_CONCAT, next[i], c->parts);
        EBB_TRY(b.status);
        ebb_graph_unbind(g, state);
        EBB_TRY(ebb_graph_bind(g, state, whole));
    }
    return NULL;
}

static ebb_status apply(const cut *c, ebb_node *split)
{
    enum { MOST = 6 };
    ebb_graph *g = c->e->g;
    ebb_value part[MOST][PARTS], next[MOST][PARTS], in[MOST], out[MOST];
    ebb_build b = ebb_edit_build_for(c->e, c->node);
    ebb_value w = ebb_in(g, c->node, FIRST);
    EBB_TRY(split_states(c, &b, part, split));
    for (uint32_t k = 0; k < c->parts; k++) {
        const int64_t from = c->rows * (int64_t)k;
        const int64_t to = k + 1 < c->parts ? from + c->rows : c->type->dims[0];
        for (uint32_t i = 0; i < c->in_count; i++)
            in[i] = i < FIRST ? ebb_in(g, c->node, i) : part[i][k];
        in[FIRST] = some_rows(&b, w, from, to);
        in[FIRST + 1] = some_rows(&b, ebb_in(g, c->node, FIRST + 1), from, to);
        ebb_with_attrs_of(&b, c->node);
        ebb_emit_node(&b, ebb_node_of(g, c->node)->op, in, c->in_count, out,
                      c->in_count - FIRST - 1, UINT32_MAX);
        EBB_TRY(b.status);
        for (uint32_t i = FIRST + 2; i < c->in_count; i++)
            next[i][k] = out[i - FIRST - 1];
        w = put_rows(&b, w, out[0], from, to);
    }
    EBB_TRY(b.status);
    EBB_TRY(join_states(c, next));
    return ebb_edit_swap(c->e, c->node, w);
}

ebb_status ebb_states_cut(ebb_cuts *cuts, ebb_edit *e, ebb_away_states *wish)
{
    cut c;
    cuts->count = (uint32_t)e->g->value_count;
    ebb_node *split = EBB_SCRATCH(e, ebb_node, cuts->count);
    EBB_GOT(split);
    cuts->split = split;
    wish->cut_count = 0;
    wish->largest = 0;
    for (ebb_node n = ebb_first(e->g), next; n.i != 0; n = next) {
        next = ebb_next(e->g, n);
        if (!read_cut(&c, e, wish, n))
            continue;
        wish->largest = c.bytes > wish->largest ? c.bytes : wish->largest;
        if (wish->most == 0 || c.bytes <= wish->most)
            continue;
        EBB_TRY(apply(&c, split));
        wish->cut_count++;
    }
    return NULL;
}
