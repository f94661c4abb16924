/* facts.c: see facts.h. */
#include "onnx/graph/facts.h"

#include "onnx/graph/shape.h"

ebb_status ebb_facts_init(ebb_facts *facts, const ebb_graph *g, ebb_arena *arena)
{
    *facts = (ebb_facts){.g = g, .arena = arena, .count = g->value_count};
    facts->list = EBB_NEW(arena, ebb_fact, g->value_count);
    return facts->list == NULL ? ebb_error_memory() : NULL;
}

static bool followed(ebb_dtype dtype)
{
    return dtype == EBB_I64 || dtype == EBB_I32 || dtype == EBB_BOOL;
}

static ebb_fact_item known(int64_t value)
{
    return (ebb_fact_item){.value = value, .known = true};
}

/* Room for values that came after the start. False: no memory, and a hint less. */
static bool reach(ebb_facts *facts, ebb_value v)
{
    if (v.i < facts->count)
        return true;
    size_t count = facts->g->value_count + facts->count;
    ebb_fact *longer = EBB_NEW(facts->arena, ebb_fact, count);
    if (longer == NULL)
        return false;
    memcpy(longer, facts->list, facts->count * sizeof *longer);
    facts->list = longer;
    facts->count = count;
    return true;
}

/* The fact about v; constants of the graph become one when they are first asked for. NULL: none. */
static const ebb_fact *fact_of(ebb_facts *facts, ebb_value v)
{
    if (v.i == 0 || !reach(facts, v))
        return NULL;
    ebb_fact *fact = &facts->list[v.i];
    if (fact->items != NULL)
        return fact;
    if (fact->looked)
        return NULL;
    fact->looked = true;
    const ebb_tensor *t = ebb_value_constant(facts->g, v);
    int64_t count;
    if (t == NULL || t->data == NULL || t->type.rank < 0 || t->type.rank > 1 ||
        !followed((ebb_dtype)t->type.dtype) || !ebb_type_elements(&t->type, &count) ||
        count > EBB_FACT_MAX)
        return NULL;
    ebb_fact_item *items = EBB_NEW(facts->arena, ebb_fact_item, (size_t)count + 1);
    if (items == NULL)
        return NULL; // a hint less
    for (int64_t i = 0; i < count; i++)
        items[i] = known(ebb_tensor_int(t, i));
    fact->items = items;
    fact->count = (int)count;
    fact->rank = t->type.rank;
    return fact;
}

static const ebb_fact *input_fact(ebb_facts *facts, ebb_node n, uint32_t i)
{
    return fact_of(facts, ebb_in(facts->g, n, i));
}

const ebb_tensor *ebb_facts_tensor(ebb_facts *facts, ebb_value v)
{
    const ebb_tensor *constant = ebb_value_constant(facts->g, v);
    if (constant != NULL || v.i >= facts->count)
        return constant;
    return facts->list[v.i].tensor;
}

/* ---- learning ---- */

typedef struct learned {
    ebb_fact_item items[EBB_FACT_MAX];
    int count;
} learned;

static ebb_status keep(ebb_facts *facts, ebb_value v, const learned *l)
{
    const ebb_type *type = ebb_value_of(facts->g, v)->type;
    bool fits = type->kind == EBB_KIND_TENSOR && followed((ebb_dtype)type->dtype) &&
                type->rank >= 0 && type->rank <= 1 &&
                (type->rank == 0 ? l->count == 1 : type->dims[0] < 0 || type->dims[0] == l->count);
    if (!fits || !reach(facts, v))
        return NULL;
    ebb_fact *fact = &facts->list[v.i];
    fact->items = EBB_NEW(facts->arena, ebb_fact_item, (size_t)l->count + 1);
    if (fact->items == NULL)
        return ebb_error_memory();
    memcpy(fact->items, l->items, (size_t)l->count * sizeof *l->items);
    fact->count = l->count;
    fact->rank = type->rank;
    for (int i = 0; i < l->count; i++)
        if (!l->items[i].known)
            return NULL;
    int64_t dims[1] = {l->count};
    ebb_tensor *t = EBB_NEW(facts->arena, ebb_tensor, 1);
    if (t == NULL)
        return ebb_error_memory();
    t->type = ebb_type_tensor((ebb_dtype)type->dtype, type->rank, dims);
    t->bytes = (size_t)l->count * (ebb_dtype_bits((ebb_dtype)type->dtype) / 8);
    unsigned char *bytes = ebb_arena_alloc(facts->arena, t->bytes + 1);
    if (bytes == NULL)
        return ebb_error_memory();
    for (int i = 0; i < l->count; i++) {
        int64_t wide = l->items[i].value;
        int32_t narrow = (int32_t)wide;
        if (type->dtype == EBB_I64)
            memcpy(bytes + 8 * i, &wide, 8);
        else if (type->dtype == EBB_I32)
            memcpy(bytes + 4 * i, &narrow, 4);
        else
            bytes[i] = wide != 0;
    }
    t->data = bytes;
    fact->tensor = t;
    return NULL;
}

static bool copy_all(learned *l, const ebb_fact *from)
{
    if (from == NULL || l->count + from->count > EBB_FACT_MAX)
        return false;
    memcpy(l->items + l->count, from->items, (size_t)from->count * sizeof *from->items);
    l->count += from->count;
    return true;
}

static bool from_shape(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_type *x = ebb_value_of(facts->g, ebb_in(facts->g, n, 0))->type;
    ebb_attrs attrs = ebb_node_attrs(facts->g, n);
    int64_t rank = x->rank;
    if (x->kind != EBB_KIND_TENSOR || rank < 0)
        return false;
    int64_t start = ebb_attr_int(&attrs, "start", 0), end = ebb_attr_int(&attrs, "end", rank);
    start = start < 0 ? start + rank : start;
    end = end < 0 ? end + rank : end;
    for (int64_t i = start < 0 ? 0 : start; i < end && i < rank; i++) {
        ebb_fact_item item = known(x->dims[i]);
        if (x->dims[i] < 0)
            item = (ebb_fact_item){.symbol = x->symbols[i], .size = true};
        l->items[l->count++] = item;
    }
    return true;
}

static bool from_size(ebb_facts *facts, ebb_node n, learned *l)
{
    int64_t count;
    if (!ebb_type_elements(ebb_value_of(facts->g, ebb_in(facts->g, n, 0))->type, &count))
        return false;
    l->items[l->count++] = known(count);
    return true;
}

static bool from_gather(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *x = input_fact(facts, n, 0), *index = input_fact(facts, n, 1);
    if (x == NULL || index == NULL || x->rank != 1)
        return false;
    for (int i = 0; i < index->count; i++) {
        int64_t at = index->items[i].value;
        at = at < 0 ? at + x->count : at;
        if (!index->items[i].known || at < 0 || at >= x->count)
            return false;
        l->items[l->count++] = x->items[at];
    }
    return true;
}

static bool from_slice(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *x = input_fact(facts, n, 0), *start = input_fact(facts, n, 1);
    const ebb_fact *end = input_fact(facts, n, 2), *step = input_fact(facts, n, 4);
    bool has_step = ebb_in(facts->g, n, 4).i != 0;
    if (x == NULL || x->rank != 1 || start == NULL || end == NULL || start->count != 1 ||
        end->count != 1 || !start->items[0].known || !end->items[0].known ||
        (has_step && (step == NULL || step->count != 1 || !step->items[0].known)))
        return false;
    int64_t by = has_step ? step->items[0].value : 1, size;
    if (by == 0 || by == INT64_MIN)
        return false;
    int64_t at = ebb_slice_bounds(x->count, start->items[0].value, end->items[0].value, by, &size);
    for (int64_t i = 0; i < size; i++)
        l->items[l->count++] = x->items[at + i * by];
    return true;
}

static bool from_concat(ebb_facts *facts, ebb_node n, learned *l)
{
    uint32_t count = ebb_node_of(facts->g, n)->in_count;
    for (uint32_t i = 0; i < count; i++)
        if (!copy_all(l, input_fact(facts, n, i)))
            return false;
    return true;
}

static bool is_number(ebb_fact_item item, int64_t value)
{
    return item.known && item.value == value;
}

/* One element of a binary operator; what is not known may still keep its name (x * 1). */
static ebb_fact_item combine(ebb_op op, ebb_fact_item a, ebb_fact_item b)
{
    ebb_fact_item open = {.size = a.size && b.size};
    int64_t r = 0;
    if (a.known && b.known) {
        bool sound = true;
        switch (op) {
        case EBB_OP_ADD:
            sound = !__builtin_add_overflow(a.value, b.value, &r);
            break;
        case EBB_OP_SUB:
            sound = !__builtin_sub_overflow(a.value, b.value, &r);
            break;
        case EBB_OP_MUL:
            sound = !__builtin_mul_overflow(a.value, b.value, &r);
            break;
        case EBB_OP_DIV: // integers: towards zero
            sound = b.value != 0 && !(a.value == INT64_MIN && b.value == -1);
            r = sound ? a.value / b.value : 0;
            break;
        case EBB_OP_MOD: // with the divisor's sign
            sound = b.value != 0 && b.value != -1;
            r = sound ? a.value % b.value : 0;
            r = r != 0 && (r < 0) != (b.value < 0) ? r + b.value : r;
            break;
        case EBB_OP_MAX:
            r = a.value > b.value ? a.value : b.value;
            break;
        case EBB_OP_MIN:
            r = a.value < b.value ? a.value : b.value;
            break;
        default: // EQUAL
            r = a.value == b.value;
        }
        return sound ? known(r) : (ebb_fact_item){0};
    }
    if (op == EBB_OP_EQUAL) {
        // a size is never negative
        bool differ = (a.size && b.known && b.value < 0) || (b.size && a.known && a.value < 0);
        return differ ? known(0) : (ebb_fact_item){0};
    }
    if ((op == EBB_OP_ADD || op == EBB_OP_SUB) && is_number(b, 0))
        return a;
    if (op == EBB_OP_ADD && is_number(a, 0))
        return b;
    if ((op == EBB_OP_MUL || op == EBB_OP_DIV) && is_number(b, 1))
        return a;
    if (op == EBB_OP_MUL && is_number(a, 1))
        return b;
    open.size = (op == EBB_OP_ADD || op == EBB_OP_MUL) && (a.size || (a.known && a.value >= 0)) &&
                (b.size || (b.known && b.value >= 0));
    return open;
}

static bool from_binary(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *a = input_fact(facts, n, 0), *b = input_fact(facts, n, 1);
    if (a == NULL || b == NULL || ebb_node_of(facts->g, n)->in_count != 2 ||
        (a->count != b->count && a->count != 1 && b->count != 1))
        return false;
    int count = a->count == 1 ? b->count : a->count;
    for (int i = 0; i < count; i++)
        l->items[l->count++] =
            combine(ebb_node_of(facts->g, n)->op, a->items[a->count == 1 ? 0 : i],
                    b->items[b->count == 1 ? 0 : i]);
    return true;
}

static bool from_mod(ebb_facts *facts, ebb_node n, learned *l)
{
    ebb_attrs attrs = ebb_node_attrs(facts->g, n);
    return ebb_attr_int(&attrs, "fmod", 0) == 0 && from_binary(facts, n, l);
}

static bool from_where(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *in[3];
    int count = 1;
    for (uint32_t k = 0; k < 3; k++) {
        in[k] = input_fact(facts, n, k);
        if (in[k] == NULL)
            return false;
        count = in[k]->count != 1 ? in[k]->count : count;
    }
    for (int i = 0; i < count; i++) {
        ebb_fact_item item[3];
        for (int k = 0; k < 3; k++) {
            if (in[k]->count != 1 && in[k]->count != count)
                return false;
            item[k] = in[k]->items[in[k]->count == 1 ? 0 : i];
        }
        l->items[l->count++] =
            item[0].known ? item[0].value != 0 ? item[1] : item[2] : (ebb_fact_item){0};
    }
    return true;
}

/* ConstantOfShape and Expand: one item, repeated. */
static bool from_fill(ebb_facts *facts, ebb_node n, learned *l)
{
    bool expand = ebb_node_of(facts->g, n)->op == EBB_OP_EXPAND;
    const ebb_type *type = ebb_value_of(facts->g, ebb_out(facts->g, n, 0))->type;
    ebb_fact_item item = known(0);
    int64_t count;
    if (!ebb_type_elements(type, &count) || count > EBB_FACT_MAX || type->rank > 1 ||
        !followed((ebb_dtype)type->dtype))
        return false;
    if (expand) {
        const ebb_fact *x = input_fact(facts, n, 0);
        if (x == NULL || x->count != 1)
            return x != NULL && x->count == count && copy_all(l, x);
        item = x->items[0];
    } else {
        ebb_attrs attrs = ebb_node_attrs(facts->g, n);
        const ebb_attr *value = ebb_attr_find(&attrs, "value");
        int64_t one;
        if (value != NULL) {
            if (value->tensor == NULL || value->tensor->data == NULL ||
                !ebb_type_elements(&value->tensor->type, &one) || one != 1)
                return false;
            item = known(ebb_tensor_int(value->tensor, 0));
        }
    }
    for (int64_t i = 0; i < count; i++)
        l->items[l->count++] = item;
    return true;
}

static bool from_range(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *start = input_fact(facts, n, 0), *step = input_fact(facts, n, 2);
    const ebb_type *type = ebb_value_of(facts->g, ebb_out(facts->g, n, 0))->type;
    int64_t count, at;
    if (start == NULL || step == NULL || !start->items[0].known || !step->items[0].known ||
        !ebb_type_elements(type, &count) || count > EBB_FACT_MAX)
        return false;
    at = start->items[0].value;
    for (int64_t i = 0; i < count; i++) {
        l->items[l->count++] = known(at);
        if (__builtin_add_overflow(at, step->items[0].value, &at))
            return i + 1 == count;
    }
    return true;
}

static bool from_product(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *x = input_fact(facts, n, 0);
    const ebb_type *type = ebb_value_of(facts->g, ebb_out(facts->g, n, 0))->type;
    int64_t count;
    if (x == NULL || !ebb_type_elements(type, &count) || count != 1 || x->rank != 1)
        return false;
    ebb_fact_item product = known(1);
    for (int i = 0; i < x->count; i++)
        product = combine(EBB_OP_MUL, product, x->items[i]);
    l->items[l->count++] = product;
    return true;
}

static bool from_constant(ebb_facts *facts, ebb_node n, learned *l)
{
    ebb_attrs attrs = ebb_node_attrs(facts->g, n);
    const ebb_attr *one = ebb_attr_find(&attrs, "value_int");
    const ebb_attr *many = ebb_attr_find(&attrs, "value_ints");
    if (one != NULL)
        l->items[l->count++] = known(one->i);
    for (uint32_t i = 0; many != NULL && i < many->count && i < EBB_FACT_MAX; i++)
        l->items[l->count++] = known(many->ints[i]);
    return one != NULL || (many != NULL && many->count <= EBB_FACT_MAX);
}

/* Cast and CastLike to an integer; exporters write CastLike(0.0, n). keep() refuses other targets.
 */
static bool from_cast(ebb_facts *facts, ebb_node n, learned *l)
{
    const double limit = 9007199254740992.0; // beyond, a double is no exact integer
    ebb_value x = ebb_in(facts->g, n, 0);
    const ebb_tensor *t = x.i != 0 ? ebb_value_constant(facts->g, x) : NULL;
    int64_t count;
    if (copy_all(l, input_fact(facts, n, 0)))
        return ebb_value_of(facts->g, ebb_out(facts->g, n, 0))->type->dtype != EBB_BOOL ||
               ebb_value_of(facts->g, x)->type->dtype == EBB_BOOL;
    if (t == NULL || t->data == NULL || !ebb_dtype_is_float((ebb_dtype)t->type.dtype) ||
        !ebb_type_elements(&t->type, &count) || count > EBB_FACT_MAX ||
        ebb_value_of(facts->g, ebb_out(facts->g, n, 0))->type->dtype == EBB_BOOL)
        return false;
    for (int64_t i = 0; i < count; i++) {
        double value = ebb_tensor_double(t, i);
        if (!(value > -limit && value < limit))
            return false;
        l->items[l->count++] = known((int64_t)value);
    }
    return true;
}

static bool from_copy(ebb_facts *facts, ebb_node n, learned *l)
{
    return copy_all(l, input_fact(facts, n, 0));
}

static bool from_none(ebb_facts *facts, ebb_node n, learned *l)
{
    (void)facts, (void)n, (void)l;
    return false;
}

/* Column sizes of ops.def. */
static bool (*const rules[EBB_OP_COUNT])(ebb_facts *facts, ebb_node n, learned *l) = {
    [EBB_OP_UNKNOWN] = from_none,
#define EBB_OP(id, domain, name, since, operands, reads, slots, traits, alias, infer, grad, cost, \
               sizes, ...)                                                                        \
    [EBB_OP_##id] = from_##sizes,
#include "onnx/tables/ops.def"
#undef EBB_OP
};

ebb_status ebb_facts_learn(ebb_facts *facts, ebb_node n)
{
    ebb_value out = ebb_out(facts->g, n, 0);
    learned l;
    l.count = 0;
    if (out.i == 0 || !rules[ebb_node_of(facts->g, n)->op](facts, n, &l))
        return NULL;
    return keep(facts, out, &l);
}

/* ---- refining ---- */

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
        if (is_number(item, -1)) {
            rest = i;
            continue;
        }
        if (is_number(item, 0) && !keep_zero) {
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
        ebb_fact_item want = t < 0 ? known(1) : to->items[t];
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
    const ebb_fact *at = input_fact(facts, n, 1);
    if (split.i == 0 || ebb_node_of(g, split)->op != EBB_OP_SPLIT_TO_SEQUENCE || at == NULL ||
        at->count != 1 || !at->items[0].known)
        return;
    const ebb_fact *sizes = input_fact(facts, split, 1);
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
    const ebb_fact *to = input_fact(facts, n, op == EBB_OP_CONSTANT_OF_SHAPE ? 0 : 1);
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
        const ebb_fact *start = input_fact(facts, n, 0), *step = input_fact(facts, n, 2);
        if (start != NULL && step != NULL && start->count == 1 && step->count == 1 &&
            to->count == 1 && is_number(start->items[0], 0) && is_number(step->items[0], 1))
            set_item(&out[0], 0, to->items[0]);
    }
}
