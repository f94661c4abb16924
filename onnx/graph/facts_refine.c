/* facts_refine.c: dims that facts fill. */
#include "onnx/graph/facts.h"

#include "onnx/graph/shape.h"

static void set_item(ebb_type *type, int at, ebb_fact_item item)
{
    type->dims[at] = item.known && item.value >= 0 ? item.value : -1;
    type->symbols[at] = item.known ? (ebb_str){0} : item.symbol;
}

/* Reshape to a list of which some items are only named. The -1 among them is what is left, once the
 * named sizes of x are matched with those of the list. */
static void refine_reshape(const ebb_type *x, const ebb_fact *to, bool keep_zero, ebb_type *out)
{
    if (to->count > EBB_MAX_RANK)
        return;
    ebb_type type = ebb_type_ranked((ebb_dtype)x->dtype, to->count);
    bool matched[EBB_MAX_RANK] = {false}, sound = x->rank >= 0;
    int rest = -1;
    int64_t have = 1, used = 1;
    for (int i = 0; i < to->count; i++) {
        ebb_fact_item item = to->items[i];
        if (ebb_fact_is(item, -1)) {
            rest = i;
            continue;
        }
        if (ebb_fact_is(item, 0) && !keep_zero) {
            if (i >= x->rank)
                return;
            ebb_type_put_dim(&type, i, x, i);
        } else {
            set_item(&type, i, item);
        }
        if (type.dims[i] >= 0) {
            sound = sound && !__builtin_mul_overflow(used, type.dims[i], &used);
            continue;
        }
        bool found = false;
        for (int k = 0; k < x->rank && !found; k++)
            if (!matched[k] && x->dims[k] < 0 && x->symbols[k].i != 0 &&
                ebb_same_str(x->symbols[k], type.symbols[i]))
                found = matched[k] = true;
        sound = sound && found;
    }
    int open = -1;
    for (int k = 0; k < x->rank; k++)
        if (x->dims[k] >= 0) {
            sound = sound && !__builtin_mul_overflow(have, x->dims[k], &have);
        } else if (!matched[k]) {
            sound = sound && open < 0;
            open = k;
        }
    if (rest >= 0 && sound && open < 0 && used > 0 && have % used == 0)
        ebb_type_set_dim(&type, rest, have / used);
    else if (rest >= 0 && sound && open >= 0 && used == have)
        ebb_type_put_dim(&type, rest, x, open);
    *out = type;
}

static void refine_expand(const ebb_type *x, const ebb_fact *to, ebb_type *out)
{
    int rank = x->rank > to->count ? x->rank : to->count;
    if (x->rank < 0 || rank > EBB_MAX_RANK)
        return;
    ebb_type type = ebb_type_ranked((ebb_dtype)x->dtype, rank);
    for (int i = 0; i < rank; i++) {
        int a = i - (rank - x->rank), t = i - (rank - to->count);
        ebb_fact_item want = t < 0 ? ebb_fact_known(1) : to->items[t];
        if (a < 0 || x->dims[a] == 1)
            set_item(&type, i, want);
        else if (x->dims[a] > 1 || !want.known || want.value == 1)
            ebb_type_put_dim(&type, i, x, a);
        else
            set_item(&type, i, want);
        // a named size of x against another name: either could be the 1
        if (a >= 0 && x->dims[a] < 0 && !want.known && !ebb_same_str(x->symbols[a], want.symbol))
            ebb_type_set_dim(&type, i, -1);
    }
    *out = type;
}

/* SequenceAt of a SplitToSequence whose sizes and position are known. */
static void refine_sequence_at(ebb_facts *facts, ebb_node n, ebb_type *out)
{
    const ebb_graph *g = facts->g;
    ebb_node split = ebb_value_of(g, ebb_in(g, n, 0))->producer;
    const ebb_fact *at = ebb_fact_of_input(facts, n, 1);
    if (split.i == 0 || ebb_node_of(g, split)->op != EBB_OP_SPLIT_TO_SEQUENCE || at == NULL ||
        at->count != 1 || !at->items[0].known)
        return;
    const ebb_fact *sizes = ebb_fact_of_input(facts, split, 1);
    const ebb_type *x = ebb_value_of(g, ebb_in(g, split, 0))->type;
    ebb_attrs attrs = ebb_node_attrs(g, split);
    int64_t axis = ebb_attr_int(&attrs, "axis", 0), i = at->items[0].value;
    axis = axis < 0 ? axis + x->rank : axis;
    if (sizes == NULL || x->rank < 0 || out->rank != x->rank || axis < 0 || axis >= x->rank)
        return;
    if (sizes->rank == 1) {
        i = i < 0 ? i + sizes->count : i;
        if (i >= 0 && i < sizes->count)
            set_item(out, (int)axis, sizes->items[i]);
        return;
    }
    int64_t whole = x->dims[axis], each = sizes->items[0].value;
    if (whole < 0 || !sizes->items[0].known || each < 1)
        return;
    int64_t parts = whole / each + (whole % each != 0);
    i = i < 0 ? i + parts : i;
    if (i >= 0 && i < parts)
        ebb_type_set_dim(out, (int)axis, whole - i * each < each ? whole - i * each : each);
}

void ebb_facts_refine(ebb_facts *facts, ebb_node n, ebb_type *out)
{
    const ebb_graph *g = facts->g;
    ebb_op op = ebb_node_of(g, n)->op;
    if (op == EBB_OP_SEQUENCE_AT) {
        refine_sequence_at(facts, n, &out[0]);
        return;
    }
    if ((op != EBB_OP_RESHAPE && op != EBB_OP_EXPAND && op != EBB_OP_CONSTANT_OF_SHAPE &&
         op != EBB_OP_RANGE) ||
        ebb_type_is_static(&out[0]))
        return;
    const ebb_type *x = ebb_value_of(g, ebb_in(g, n, 0))->type;
    const ebb_fact *to = ebb_fact_of_input(facts, n, op == EBB_OP_CONSTANT_OF_SHAPE ? 0 : 1);
    if (to == NULL || to->count > EBB_MAX_RANK)
        return;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    if (op == EBB_OP_RESHAPE) {
        refine_reshape(x, to, ebb_attr_int(&attrs, "allowzero", 0) != 0, &out[0]);
    } else if (op == EBB_OP_EXPAND) {
        refine_expand(x, to, &out[0]);
    } else if (op == EBB_OP_CONSTANT_OF_SHAPE) {
        out[0] = ebb_type_ranked((ebb_dtype)out[0].dtype, to->count);
        for (int i = 0; i < to->count; i++)
            set_item(&out[0], i, to->items[i]);
    } else { // Range(0, size, 1) has that size
        const ebb_fact *start = ebb_fact_of_input(facts, n, 0),
                       *step = ebb_fact_of_input(facts, n, 2);
        if (start != NULL && step != NULL && start->count == 1 && step->count == 1 &&
            to->count == 1 && ebb_fact_is(start->items[0], 0) && ebb_fact_is(step->items[0], 1))
            set_item(&out[0], 0, to->items[0]);
    }
}
