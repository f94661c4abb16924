/* facts.c: what is known of values, and what nodes make of it. */
#include "onnx/graph/facts.h"

#include "onnx/graph/shape.h"

ebb_status ebb_facts_init(ebb_facts *facts, const ebb_graph *g, ebb_arena *arena)
{
    *facts = (ebb_facts){.g = g, .arena = arena, .count = g->value_count};
    facts->list = EBB_NEW(arena, const ebb_fact *, g->value_count);
    return facts->list == NULL ? ebb_error_memory() : NULL;
}

static bool followed(ebb_dtype dtype)
{
    return dtype == EBB_I64 || dtype == EBB_I32 || dtype == EBB_BOOL;
}

/* Room for values that came after the start. False: no memory, and a hint less. */
static bool reach(ebb_facts *facts, ebb_value v)
{
    if (v.i < facts->count)
        return true;
    size_t count = facts->g->value_count + facts->count;
    const ebb_fact **longer = EBB_NEW(facts->arena, const ebb_fact *, count);
    if (longer == NULL)
        return false;
    memcpy(longer, facts->list, facts->count * sizeof *longer);
    facts->list = longer;
    facts->count = count;
    return true;
}

/* What a constant of the graph says; without items: nothing. NULL: no memory. */
static const ebb_fact *read_constant(ebb_facts *facts, ebb_value v)
{
    static const ebb_fact nothing = {0};
    const ebb_tensor *t = ebb_value_constant(facts->g, v);
    int64_t count;
    if (t == NULL || t->data == NULL || t->type.rank < 0 || t->type.rank > 1 ||
        !followed((ebb_dtype)t->type.dtype) || !ebb_type_elements(&t->type, &count) ||
        count > EBB_FACT_MAX)
        return &nothing;
    ebb_fact *fact = EBB_NEW(facts->arena, ebb_fact, 1);
    ebb_fact_item *items = EBB_NEW(facts->arena, ebb_fact_item, (size_t)count + 1);
    if (fact == NULL || items == NULL)
        return NULL;
    for (int64_t i = 0; i < count; i++)
        items[i] = ebb_fact_known(ebb_tensor_int(t, i));
    *fact = (ebb_fact){.items = items, .count = (int)count, .rank = t->type.rank};
    return fact;
}

/* The fact about v; constants of the graph become one when they are first asked for. NULL: none, or
 * no memory, which is a hint less. */
static const ebb_fact *fact_of(ebb_facts *facts, ebb_value v)
{
    if (v.i == 0 || !reach(facts, v))
        return NULL;
    const ebb_fact **fact = &facts->list[v.i];
    if (*fact == NULL)
        *fact = read_constant(facts, v);
    return *fact != NULL && (*fact)->items != NULL ? *fact : NULL;
}

const ebb_fact *ebb_fact_of_input(ebb_facts *facts, ebb_node n, uint32_t i)
{
    return fact_of(facts, ebb_in(facts->g, n, i));
}

const ebb_tensor *ebb_facts_tensor(ebb_facts *facts, ebb_value v)
{
    const ebb_tensor *constant = ebb_value_constant(facts->g, v);
    return constant != NULL ? constant : ebb_facts_learned(facts, v);
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
    ebb_fact *fact = EBB_NEW(facts->arena, ebb_fact, 1);
    ebb_fact_item *items = EBB_NEW(facts->arena, ebb_fact_item, (size_t)l->count + 1);
    EBB_GOT(fact && items);
    memcpy(items, l->items, (size_t)l->count * sizeof *items);
    *fact = (ebb_fact){.items = items,
                       .count = l->count,
                       .rank = type->rank,
                       .tensor = ebb_facts_learned(facts, v)};
    facts->list[v.i] = fact;
    for (int i = 0; i < l->count; i++)
        if (!l->items[i].known)
            return NULL;
    int64_t dims[1] = {l->count};
    ebb_tensor *t = EBB_NEW(facts->arena, ebb_tensor, 1);
    EBB_GOT(t);
    t->type = ebb_type_tensor((ebb_dtype)type->dtype, type->rank, dims);
    t->bytes = (size_t)l->count * (ebb_dtype_bits((ebb_dtype)type->dtype) / 8);
    unsigned char *bytes = ebb_arena_alloc(facts->arena, t->bytes + 1);
    EBB_GOT(bytes);
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
        ebb_fact_item item = ebb_fact_known(x->dims[i]);
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
    l->items[l->count++] = ebb_fact_known(count);
    return true;
}

static bool from_gather(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *x = ebb_fact_of_input(facts, n, 0), *index = ebb_fact_of_input(facts, n, 1);
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
    const ebb_fact *x = ebb_fact_of_input(facts, n, 0), *start = ebb_fact_of_input(facts, n, 1);
    const ebb_fact *end = ebb_fact_of_input(facts, n, 2), *step = ebb_fact_of_input(facts, n, 4);
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
        if (!copy_all(l, ebb_fact_of_input(facts, n, i)))
            return false;
    return true;
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
        return sound ? ebb_fact_known(r) : (ebb_fact_item){0};
    }
    if (op == EBB_OP_EQUAL) {
        // a size is never negative
        bool differ = (a.size && b.known && b.value < 0) || (b.size && a.known && a.value < 0);
        return differ ? ebb_fact_known(0) : (ebb_fact_item){0};
    }
    if ((op == EBB_OP_ADD || op == EBB_OP_SUB) && ebb_fact_is(b, 0))
        return a;
    if (op == EBB_OP_ADD && ebb_fact_is(a, 0))
        return b;
    if ((op == EBB_OP_MUL || op == EBB_OP_DIV) && ebb_fact_is(b, 1))
        return a;
    if (op == EBB_OP_MUL && ebb_fact_is(a, 1))
        return b;
    open.size = (op == EBB_OP_ADD || op == EBB_OP_MUL) && (a.size || (a.known && a.value >= 0)) &&
                (b.size || (b.known && b.value >= 0));
    return open;
}

static bool from_binary(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *a = ebb_fact_of_input(facts, n, 0), *b = ebb_fact_of_input(facts, n, 1);
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
        in[k] = ebb_fact_of_input(facts, n, k);
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
    ebb_fact_item item = ebb_fact_known(0);
    int64_t count;
    if (!ebb_type_elements(type, &count) || count > EBB_FACT_MAX || type->rank > 1 ||
        !followed((ebb_dtype)type->dtype))
        return false;
    if (expand) {
        const ebb_fact *x = ebb_fact_of_input(facts, n, 0);
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
            item = ebb_fact_known(ebb_tensor_int(value->tensor, 0));
        }
    }
    for (int64_t i = 0; i < count; i++)
        l->items[l->count++] = item;
    return true;
}

static bool from_range(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *start = ebb_fact_of_input(facts, n, 0), *step = ebb_fact_of_input(facts, n, 2);
    const ebb_type *type = ebb_value_of(facts->g, ebb_out(facts->g, n, 0))->type;
    int64_t count, at;
    if (start == NULL || step == NULL || !start->items[0].known || !step->items[0].known ||
        !ebb_type_elements(type, &count) || count > EBB_FACT_MAX)
        return false;
    at = start->items[0].value;
    for (int64_t i = 0; i < count; i++) {
        l->items[l->count++] = ebb_fact_known(at);
        if (__builtin_add_overflow(at, step->items[0].value, &at))
            return i + 1 == count;
    }
    return true;
}

static bool from_product(ebb_facts *facts, ebb_node n, learned *l)
{
    const ebb_fact *x = ebb_fact_of_input(facts, n, 0);
    const ebb_type *type = ebb_value_of(facts->g, ebb_out(facts->g, n, 0))->type;
    int64_t count;
    if (x == NULL || !ebb_type_elements(type, &count) || count != 1 || x->rank != 1)
        return false;
    ebb_fact_item product = ebb_fact_known(1);
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
        l->items[l->count++] = ebb_fact_known(one->i);
    for (uint32_t i = 0; many != NULL && i < many->count && i < EBB_FACT_MAX; i++)
        l->items[l->count++] = ebb_fact_known(many->ints[i]);
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
    if (copy_all(l, ebb_fact_of_input(facts, n, 0)))
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
        l->items[l->count++] = ebb_fact_known((int64_t)value);
    }
    return true;
}

static bool from_copy(ebb_facts *facts, ebb_node n, learned *l)
{
    return copy_all(l, ebb_fact_of_input(facts, n, 0));
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
