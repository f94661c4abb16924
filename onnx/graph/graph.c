/* graph.c: add, replace, move, remove. The invariants that verify.c checks are kept here. */
#include "onnx/graph/graph.h"

#include <assert.h>
#include <stdio.h>

#define GROW(g, array, count, capacity) \
    ebb_arena_grow(&(g)->model->arena, &(array), (count), &(capacity), sizeof *(array))

/* A short list, whose numbers take 32 bits in each record. */
static bool grow_list(ebb_graph *g, void *array, uint32_t count, uint32_t *capacity, size_t size)
{
    size_t room = *capacity;
    if (count == UINT32_MAX || !ebb_arena_grow(&g->model->arena, array, count, &room, size))
        return false;
    *capacity = room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
    return true;
}

/* The block is there; it is not cleared, as pages that nobody has touched cost nothing. */
#define MAKE_BLOCK(g, blocks, k)                                                           \
    ((blocks)[k] != NULL ||                                                                \
     ((blocks)[k] = ebb_arena_alloc(&(g)->model->arena, ((size_t)EBB_BLOCK_LEAST << (k)) * \
                                                            sizeof **(blocks))) != NULL)

/* ---- look ---- */

static size_t first_slot(const ebb_graph *g, ebb_str name)
{
    return (size_t)((name.i * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (g->name_slots - 1);
}

/* The slot of the value of this name, or the free one where it would go. */
static size_t slot_of(const ebb_graph *g, ebb_str name)
{
    size_t slot = first_slot(g, name);
    while (g->by_name[slot].i != 0 && ebb_value_of(g, g->by_name[slot])->name.i != name.i)
        slot = (slot + 1) & (g->name_slots - 1);
    return slot;
}

ebb_value ebb_value_named(const ebb_graph *g, ebb_str name)
{
    return name.i == 0 || g->name_slots == 0 ? EBB_NO_VALUE : g->by_name[slot_of(g, name)];
}

ebb_value ebb_value_find(const ebb_graph *g, const char *name)
{
    return ebb_value_named(g, ebb_names_find(&g->model->names, name));
}

ebb_node ebb_node_find(const ebb_graph *g, const char *name)
{
    ebb_str s = ebb_names_find(&g->model->names, name);
    if (s.i != 0)
        EBB_EACH_NODE(g, n)
            if (ebb_node_of(g, n)->name.i == s.i)
                return n;
    return EBB_NO_NODE;
}

ebb_value ebb_in(const ebb_graph *g, ebb_node n, uint32_t i)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    return i < info->in_count ? info->in[i] : EBB_NO_VALUE;
}

ebb_value ebb_out(const ebb_graph *g, ebb_node n, uint32_t i)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    return i < info->out_count ? info->out[i] : EBB_NO_VALUE;
}

ebb_op ebb_producer_op(const ebb_graph *g, ebb_value v)
{
    return ebb_node_of(g, ebb_value_of(g, v)->producer)->op;
}

ebb_attrs ebb_node_attrs(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    return (ebb_attrs){info->attr, info->attr_count};
}

const ebb_graph *ebb_node_body(const ebb_graph *g, ebb_node n, const char *name)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const ebb_attr *a = ebb_attr_find(&attrs, name);
    return a != NULL && a->type == EBB_ATTR_GRAPH && a->graphs != NULL ? a->graphs[0] : NULL;
}

bool ebb_value_is_bound(const ebb_graph *g, ebb_value v)
{
    return ebb_value_of(g, v)->bound > 0;
}

bool ebb_value_is_held(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 && ((ebb_value_of(g, v)->flags & (EBB_IS_OUTPUT | EBB_IS_CAPTURED)) != 0 ||
                        ebb_same_value(g->loss, v) || ebb_value_is_bound(g, v));
}

bool ebb_value_is_read(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 && (ebb_value_of(g, v)->use_count > 0 || ebb_value_is_held(g, v));
}

bool ebb_value_is_state(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return (info->flags & EBB_IS_INITIALIZER) != 0 &&
           ((info->flags & EBB_IS_STATE) != 0 || info->role == EBB_ROLE_PARAMETER ||
            info->role == EBB_ROLE_STATISTIC || info->role == EBB_ROLE_OPTIMIZER ||
            info->role == EBB_ROLE_RANDOM);
}

const ebb_tensor *ebb_value_constant(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (v.i == 0)
        return NULL;
    if (info->tensor != NULL) {
        bool changes = (info->flags & EBB_IS_INPUT) != 0 || ebb_value_is_state(g, v);
        return changes || info->tensor->data == NULL ? NULL : info->tensor;
    }
    if (ebb_producer_op(g, v) != EBB_OP_CONSTANT)
        return NULL;
    ebb_attrs attrs = ebb_node_attrs(g, info->producer);
    const ebb_attr *a = ebb_attr_find(&attrs, "value");
    return a != NULL && a->tensor != NULL && a->tensor->data != NULL ? a->tensor : NULL;
}

const char *ebb_value_name(const ebb_graph *g, ebb_value v)
{
    return ebb_text(g, ebb_value_of(g, v)->name);
}

const char *ebb_node_label(const ebb_graph *g, ebb_node n)
{
    enum { BUFFERS = 8, BYTES = 256 };
    static _Thread_local char ring[BUFFERS][BYTES];
    static _Thread_local unsigned next;
    char *text = ring[next++ % BUFFERS];
    const ebb_node_info *info = ebb_node_of(g, n);
    const char *name = ebb_text(g, info->name);
    for (uint32_t i = 0; i < info->out_count && name[0] == '\0'; i++)
        name = ebb_value_name(g, info->out[i]);
    (void)snprintf(text, BYTES, "%s '%s'", ebb_text(g, info->op_name), name);
    return text;
}

/* ---- values ---- */

ebb_str ebb_graph_intern(ebb_graph *g, const char *text)
{
    return ebb_names_intern(&g->model->names, text, strlen(text));
}

/* Room for one more, at most half full. */
static bool make_name_room(ebb_graph *g)
{
    if (g->name_count * 2 < g->name_slots)
        return true;
    ebb_value *old = g->by_name;
    size_t old_slots = g->name_slots, slots = old_slots > 0 ? old_slots * 2 : 16;
    ebb_value *longer = EBB_NEW(&g->model->arena, ebb_value, slots);
    if (longer == NULL)
        return false;
    g->by_name = longer;
    g->name_slots = slots;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].i != 0)
            longer[slot_of(g, ebb_value_of(g, old[i])->name)] = old[i];
    ebb_arena_drop(&g->model->arena, old);
    return true;
}

/* Nothing else has the name, and there is room. */
static void take_name(ebb_graph *g, ebb_value v, ebb_str name)
{
    ebb_value_of(g, v)->name = name;
    g->by_name[slot_of(g, name)] = v;
    g->name_count++;
}

/* The name is free. Slots behind it that could stand nearer to their first do so, as a search ends at
 * the first free one. */
static void free_name(ebb_graph *g, ebb_value v)
{
    size_t mask = g->name_slots - 1, hole = slot_of(g, ebb_value_of(g, v)->name);
    if (!ebb_same_value(g->by_name[hole], v)) // freed before: another's, by now, or nobody's
        return;
    for (size_t i = (hole + 1) & mask; g->by_name[i].i != 0; i = (i + 1) & mask) {
        size_t first = first_slot(g, ebb_value_of(g, g->by_name[i])->name);
        if (((i - first) & mask) < ((i - hole) & mask))
            continue;
        g->by_name[hole] = g->by_name[i];
        hole = i;
    }
    g->by_name[hole] = EBB_NO_VALUE;
    g->name_count--;
}

ebb_str ebb_graph_fresh(ebb_graph *g, const char *base)
{
    ebb_str name = ebb_graph_intern(g, base);
    enum { COUNTED_NAMES = 100 };
    char text[512];
    for (unsigned i = 1; ebb_value_named(g, name).i != 0; i++) {
        // ids are not used twice: a file of a million equal names is not counted through each time
        (void)snprintf(text, sizeof text, "%.490s_%u", base,
                       i < COUNTED_NAMES ? i : i + (unsigned)g->value_count);
        name = ebb_graph_intern(g, text);
    }
    return name;
}

static const ebb_type *share_type(ebb_graph *g, const ebb_type *type)
{
    return ebb_types_share(&g->model->types, &g->model->arena, type);
}

ebb_status ebb_value_set_type(ebb_graph *g, ebb_value v, const ebb_type *type)
{
    const ebb_type *shared = share_type(g, type);
    if (shared == NULL)
        return ebb_error_memory();
    ebb_value_of(g, v)->type = shared;
    return NULL;
}

ebb_status ebb_value_add(ebb_graph *g, ebb_value *value, const char *name, const ebb_type *type)
{
    ebb_str fresh = ebb_graph_fresh(g, name != NULL && name[0] != '\0' ? name : "v");
    ebb_value v = {(uint32_t)g->value_count};
    uint32_t at, block = ebb_block_of(v.i, &at);
    const ebb_type *shared = type == NULL ? &ebb_type_unknown : share_type(g, type);
    if (fresh.i == 0 || shared == NULL || !MAKE_BLOCK(g, g->values, block) || !make_name_room(g))
        return ebb_error_memory();
    g->values[block][at] = (ebb_value_info){.type = shared};
    g->value_count++;
    take_name(g, v, fresh);
    *value = v;
    return NULL;
}

ebb_status ebb_value_rename(ebb_graph *g, ebb_value v, const char *name)
{
    ebb_str s = ebb_graph_intern(g, name);
    if (s.i == 0)
        return ebb_error_memory();
    ebb_value taken = ebb_value_named(g, s);
    if (taken.i != 0 && !ebb_same_value(taken, v))
        return ebb_error(EBB_REJECTED, "value name '%s' is taken", name);
    if (!make_name_room(g))
        return ebb_error_memory();
    ebb_str old = ebb_value_of(g, v)->name;
    free_name(g, v);
    take_name(g, v, s);
    return old.i == s.i ? NULL : ebb_captures_rename(g, v, ebb_text(g, old));
}

static ebb_status add_use(ebb_graph *g, ebb_value v, ebb_node n, uint32_t slot)
{
    if (v.i == 0)
        return NULL;
    ebb_value_info *info = ebb_value_of(g, v);
    if (!grow_list(g, &info->uses, info->use_count, &info->use_capacity, sizeof *info->uses))
        return ebb_error_memory();
    info->uses[info->use_count++] = (ebb_use){n, slot};
    return NULL;
}

static void drop_use(ebb_graph *g, ebb_value v, ebb_node n, uint32_t slot)
{
    ebb_value_info *info = ebb_value_of(g, v);
    for (size_t i = 0; i < info->use_count; i++) {
        if (info->uses[i].node.i != n.i || info->uses[i].slot != slot)
            continue;
        info->uses[i] = info->uses[--info->use_count];
        return;
    }
}

void ebb_value_bury(ebb_graph *g, ebb_value v)
{
    ebb_value_of(g, v)->dead = true;
    free_name(g, v);
}

/* ---- nodes ---- */

static void link_before(ebb_graph *g, ebb_node n, ebb_node before)
{
    ebb_node prev = ebb_prev(g, before); // before = 0 is the head: the end of the ring
    ebb_node_of(g, n)->prev = prev;
    ebb_node_of(g, n)->next = before;
    ebb_node_of(g, prev)->next = n;
    ebb_node_of(g, before)->prev = n;
}

static void unlink_node(ebb_graph *g, ebb_node n)
{
    ebb_node prev = ebb_prev(g, n), next = ebb_next(g, n);
    ebb_node_of(g, prev)->next = next;
    ebb_node_of(g, next)->prev = prev;
}

static ebb_status copy_values(ebb_graph *g, ebb_value **list, const ebb_value *from, uint32_t count)
{
    *list = EBB_NEW(&g->model->arena, ebb_value, count);
    if (*list == NULL)
        return ebb_error_memory();
    if (count > 0)
        memcpy(*list, from, count * sizeof *from);
    return NULL;
}

static void set_producer(ebb_graph *g, ebb_value v, ebb_node n, uint32_t slot)
{
    if (v.i == 0)
        return;
    ebb_value_info *info = ebb_value_of(g, v);
    assert(info->producer.i == 0 || ebb_same_node(info->producer, n));
    info->producer = n;
    info->producer_slot = slot;
}

ebb_status ebb_node_add(ebb_graph *g, ebb_node *node, ebb_node before, const char *domain,
                        const char *op_name, const ebb_value *in, uint32_t in_count,
                        const ebb_value *out, uint32_t out_count)
{
    ebb_node n = {(uint32_t)g->node_count};
    ebb_node_info info = {.in_count = in_count, .out_count = out_count};
    uint32_t at, block = ebb_block_of(n.i, &at);
    int64_t version = ebb_model_opset(g->model, domain);
    info.op = ebb_op_find(domain, op_name, version > 0 ? version : 1);
    info.op_name = ebb_graph_intern(g, op_name);
    if (domain[0] != '\0')
        info.domain = ebb_graph_intern(g, domain);
    if (info.op_name.i == 0 || (domain[0] != '\0' && info.domain.i == 0) ||
        !MAKE_BLOCK(g, g->nodes, block))
        return ebb_error_memory();
    EBB_TRY(copy_values(g, &info.in, in, in_count));
    EBB_TRY(copy_values(g, &info.out, out, out_count));
    g->nodes[block][at] = info;
    g->node_count++;
    link_before(g, n, before);
    for (uint32_t i = 0; i < in_count; i++)
        EBB_TRY(add_use(g, in[i], n, i));
    for (uint32_t i = 0; i < out_count; i++)
        set_producer(g, out[i], n, i);
    *node = n;
    return NULL;
}

void ebb_node_move(ebb_graph *g, ebb_node n, ebb_node before)
{
    if (ebb_same_node(n, before))
        return;
    unlink_node(g, n);
    link_before(g, n, before);
}

void ebb_node_remove(ebb_graph *g, ebb_node n)
{
    ebb_node_info *info = ebb_node_of(g, n);
    assert(n.i != 0 && !info->dead);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (info->in[i].i != 0)
            drop_use(g, info->in[i], n, i);
    for (uint32_t i = 0; i < info->out_count; i++) {
        if (info->out[i].i == 0)
            continue;
        ebb_value_of(g, info->out[i])->producer = EBB_NO_NODE;
        if (!ebb_value_is_read(g, info->out[i]))
            ebb_value_bury(g, info->out[i]);
    }
    unlink_node(g, n); // its own links stay, so that a walk may go on
    info->dead = true;
}

/* Makes room for slot in a list of values; absent ones in between. */
static ebb_status extend(ebb_graph *g, ebb_value **list, uint32_t *count, uint32_t slot)
{
    if (slot < *count)
        return NULL;
    ebb_value *longer = EBB_NEW(&g->model->arena, ebb_value, slot + 1);
    if (longer == NULL)
        return ebb_error_memory();
    if (*count > 0)
        memcpy(longer, *list, *count * sizeof **list);
    *list = longer;
    *count = slot + 1;
    return NULL;
}

ebb_status ebb_node_set_input(ebb_graph *g, ebb_node n, uint32_t slot, ebb_value v)
{
    ebb_node_info *info = ebb_node_of(g, n);
    if (v.i == 0 && slot >= info->in_count)
        return NULL;
    EBB_TRY(extend(g, &info->in, &info->in_count, slot));
    if (info->in[slot].i != 0)
        drop_use(g, info->in[slot], n, slot);
    info->in[slot] = v;
    EBB_TRY(add_use(g, v, n, slot));
    while (info->in_count > 0 && info->in[info->in_count - 1].i == 0)
        info->in_count--;
    return NULL;
}

ebb_status ebb_node_set_output(ebb_graph *g, ebb_node n, uint32_t slot, ebb_value v)
{
    ebb_node_info *info = ebb_node_of(g, n);
    if (v.i == 0 && slot >= info->out_count)
        return NULL;
    uint32_t before = info->out_count;
    EBB_TRY(extend(g, &info->out, &info->out_count, slot));
    if (info->over != NULL && info->out_count > before) {
        uint8_t *over = EBB_NEW(&g->model->arena, uint8_t, info->out_count);
        if (over == NULL)
            return ebb_error_memory();
        memcpy(over, info->over, before);
        info->over = over;
    }
    ebb_value old = info->out[slot];
    info->out[slot] = EBB_NO_VALUE;
    if (old.i != 0 && !ebb_same_value(old, v)) {
        ebb_value_of(g, old)->producer = EBB_NO_NODE;
        if (!ebb_value_is_read(g, old))
            ebb_value_bury(g, old);
    }
    info->out[slot] = v;
    set_producer(g, v, n, slot);
    while (info->out_count > 0 && info->out[info->out_count - 1].i == 0)
        info->out_count--;
    return NULL;
}

ebb_status ebb_node_set_op(ebb_graph *g, ebb_node n, ebb_op op)
{
    const ebb_op_row *row = ebb_op_row_of(op);
    ebb_str name = ebb_graph_intern(g, row->name), domain = {0};
    if (row->domain[0] != '\0')
        domain = ebb_graph_intern(g, row->domain);
    if (name.i == 0 || (row->domain[0] != '\0' && domain.i == 0))
        return ebb_error_memory();
    EBB_TRY(ebb_model_import(g->model, row->domain, row->since));
    ebb_node_info *info = ebb_node_of(g, n);
    info->op = op;
    info->op_name = name;
    info->domain = domain;
    return NULL;
}

ebb_status ebb_node_set_over(ebb_graph *g, ebb_node n, uint32_t output, uint32_t input)
{
    ebb_node_info *info = ebb_node_of(g, n);
    assert(output < info->out_count && input < info->in_count && input < 255);
    if (info->over == NULL) {
        info->over = EBB_NEW(&g->model->arena, uint8_t, info->out_count);
        if (info->over == NULL)
            return ebb_error_memory();
    }
    info->over[output] = (uint8_t)(input + 1);
    return NULL;
}

static bool put_on_list(ebb_graph *g, ebb_value **list, size_t *count, size_t *capacity,
                        ebb_value v)
{
    if (!ebb_arena_grow(&g->model->arena, list, *count, capacity, sizeof **list))
        return false;
    (*list)[(*count)++] = v;
    return true;
}

static void take_off_list(ebb_value *list, size_t *count, ebb_value v)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (!ebb_same_value(list[i], v))
            list[kept++] = list[i];
    *count = kept;
}

void ebb_graph_remove_outputs(ebb_graph *g, const bool *gone)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->output_count; i++) {
        ebb_value v = g->outputs[i];
        if (gone[v.i])
            ebb_value_of(g, v)->flags &= (uint16_t)~EBB_IS_OUTPUT;
        else
            g->outputs[kept++] = v;
    }
    g->output_count = kept;
}

static void set_next(ebb_graph *g, ebb_binding *b, ebb_value next)
{
    if (b->next.i != 0)
        ebb_value_of(g, b->next)->bound--;
    ebb_value_of(g, next)->bound++;
    b->next = next;
}

ebb_status ebb_value_replace(ebb_graph *g, ebb_value old, ebb_value with)
{
    assert(!ebb_same_value(old, with));
    ebb_value_info *info = ebb_value_of(g, old);
    while (info->use_count > 0) {
        ebb_use use = info->uses[--info->use_count];
        ebb_node_of(g, use.node)->in[use.slot] = with;
        EBB_TRY(add_use(g, with, use.node, use.slot));
    }
    for (size_t i = 0; i < g->output_count; i++) {
        if (!ebb_same_value(g->outputs[i], old))
            continue;
        g->outputs[i] = with;
        info->flags &= (uint16_t)~EBB_IS_OUTPUT;
        ebb_value_of(g, with)->flags |= EBB_IS_OUTPUT;
    }
    for (size_t i = 0; i < g->binding_count && info->bound > 0; i++)
        if (ebb_same_value(g->bindings[i].next, old))
            set_next(g, &g->bindings[i], with);
    if (ebb_same_value(g->loss, old))
        g->loss = with;
    return ebb_captures_replace(g, old, with);
}

/* ---- attributes ---- */

static ebb_status set_attr(ebb_graph *g, ebb_node n, ebb_attr attr)
{
    ebb_str name = ebb_graph_intern(g, attr.name);
    if (name.i == 0)
        return ebb_error_memory();
    attr.name = ebb_text(g, name);
    return ebb_node_set_attr(g, n, &attr);
}

/* A list of the node's attributes to change, with room for `more`: nodes may share theirs. */
static ebb_attr *copy_attrs(ebb_graph *g, const ebb_node_info *info, uint32_t more)
{
    ebb_attr *list = EBB_NEW(&g->model->arena, ebb_attr, (size_t)info->attr_count + more);
    if (list != NULL && info->attr_count > 0)
        memcpy(list, info->attr, info->attr_count * sizeof *list);
    return list;
}

ebb_status ebb_node_set_attr(ebb_graph *g, ebb_node n, const ebb_attr *attr)
{
    ebb_node_info *info = ebb_node_of(g, n);
    uint32_t at = 0;
    while (at < info->attr_count && strcmp(info->attr[at].name, attr->name) != 0)
        at++;
    const bool is_new = at == info->attr_count;
    ebb_attr *list = copy_attrs(g, info, is_new);
    if (list == NULL)
        return ebb_error_memory();
    list[at] = *attr;
    info->attr = list;
    info->attr_count += is_new;
    return NULL;
}

ebb_status ebb_node_set_int(ebb_graph *g, ebb_node n, const char *name, int64_t i)
{
    return set_attr(g, n, (ebb_attr){.name = name, .type = EBB_ATTR_INT, .i = i});
}

ebb_status ebb_node_set_float(ebb_graph *g, ebb_node n, const char *name, double f)
{
    return set_attr(g, n, (ebb_attr){.name = name, .type = EBB_ATTR_FLOAT, .f = (double)(float)f});
}

ebb_status ebb_node_set_string(ebb_graph *g, ebb_node n, const char *name, const char *s)
{
    char *copy = ebb_arena_strdup(&g->model->arena, s);
    if (copy == NULL)
        return ebb_error_memory();
    return set_attr(
        g, n, (ebb_attr){.name = name, .type = EBB_ATTR_STRING, .s = copy, .s_bytes = strlen(s)});
}

ebb_status ebb_node_set_ints(ebb_graph *g, ebb_node n, const char *name, const int64_t *list,
                             uint32_t count)
{
    int64_t *copy = EBB_NEW(&g->model->arena, int64_t, count);
    if (copy == NULL)
        return ebb_error_memory();
    if (count > 0)
        memcpy(copy, list, count * sizeof *list);
    return set_attr(g, n,
                    (ebb_attr){.name = name, .type = EBB_ATTR_INTS, .ints = copy, .count = count});
}

static ebb_tensor *copy_tensor(ebb_graph *g, const ebb_tensor *t)
{
    ebb_tensor *copy = EBB_NEW(&g->model->arena, ebb_tensor, 1);
    if (copy == NULL)
        return NULL;
    *copy = *t;
    if (t->data != NULL) {
        void *data = ebb_arena_alloc(&g->model->arena, t->bytes);
        if (data == NULL)
            return NULL;
        if (t->bytes > 0)
            memcpy(data, t->data, t->bytes);
        copy->data = data;
    }
    return copy;
}

ebb_status ebb_node_drop_attr(ebb_graph *g, ebb_node n, const char *name)
{
    ebb_node_info *info = ebb_node_of(g, n);
    ebb_attr *list = copy_attrs(g, info, 0);
    uint32_t kept = 0;
    if (list == NULL)
        return ebb_error_memory();
    for (uint32_t i = 0; i < info->attr_count; i++)
        if (strcmp(info->attr[i].name, name) != 0)
            list[kept++] = info->attr[i];
    info->attr = list;
    info->attr_count = kept;
    return NULL;
}

/* Of the types that most nodes have; others are not equal. */
static bool equal_attr(const ebb_attr *a, const ebb_attr *b)
{
    if (a->name != b->name || a->type != b->type || a->ref != b->ref || a->origin != b->origin)
        return false;
    if (a->type == EBB_ATTR_INTS)
        return a->count == b->count && memcmp(a->ints, b->ints, a->count * sizeof *a->ints) == 0;
    return (a->type == EBB_ATTR_INT && a->i == b->i) || (a->type == EBB_ATTR_FLOAT && a->f == b->f);
}

static bool equal_attrs(const ebb_attrs *shared, const ebb_attr *list, uint32_t count)
{
    if (shared->count != count)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!equal_attr(&shared->list[i], &list[i]))
            return false;
    return true;
}

ebb_status ebb_node_set_attrs(ebb_graph *g, ebb_node n, const ebb_attr *list, uint32_t count)
{
    ebb_node_info *info = ebb_node_of(g, n);
    uint64_t hash = count;
    for (uint32_t i = 0; i < count; i++)
        hash =
            (hash ^ (uintptr_t)list[i].name ^ (uint64_t)list[i].i) * UINT64_C(0x9e3779b97f4a7c15);
    ebb_attrs *shared = &g->model->attrs[hash >> 32 & (EBB_SHARED_ATTRS - 1)];
    if (!equal_attrs(shared, list, count)) {
        const ebb_node_info given = {.attr = list, .attr_count = count};
        const ebb_attr *copy = copy_attrs(g, &given, 0);
        if (copy == NULL)
            return ebb_error_memory();
        *shared = (ebb_attrs){copy, count};
    }
    info->attr = shared->list;
    info->attr_count = count;
    return NULL;
}

/* ---- metadata ---- */

const char *ebb_props_get(const ebb_graph *g, const ebb_props *props, const char *key)
{
    for (size_t i = 0; i < props->count; i++)
        if (strcmp(ebb_text(g, props->list[i].key), key) == 0)
            return ebb_text(g, props->list[i].value);
    return NULL;
}

ebb_status ebb_props_add(ebb_graph *g, ebb_props *props, ebb_prop prop)
{
    if (!grow_list(g, &props->list, props->count, &props->capacity, sizeof *props->list))
        return ebb_error_memory();
    props->list[props->count++] = prop;
    return NULL;
}

ebb_status ebb_props_set(ebb_graph *g, ebb_props *props, const char *key, const char *value)
{
    ebb_prop p = {ebb_graph_intern(g, key), ebb_graph_intern(g, value)};
    if (p.key.i == 0 || p.value.i == 0)
        return ebb_error_memory();
    for (size_t i = 0; i < props->count; i++) {
        if (props->list[i].key.i != p.key.i)
            continue;
        props->list[i] = p;
        return NULL;
    }
    return ebb_props_add(g, props, p);
}

/* ---- graph inputs, outputs, initializers, bindings ---- */

ebb_status ebb_graph_add_input(ebb_graph *g, ebb_value v)
{
    if (!put_on_list(g, &g->inputs, &g->input_count, &g->input_capacity, v))
        return ebb_error_memory();
    ebb_value_of(g, v)->flags |= EBB_IS_INPUT;
    return NULL;
}

ebb_status ebb_graph_add_output(ebb_graph *g, ebb_value v)
{
    if (!put_on_list(g, &g->outputs, &g->output_count, &g->output_capacity, v))
        return ebb_error_memory();
    ebb_value_of(g, v)->flags |= EBB_IS_OUTPUT;
    return NULL;
}

void ebb_graph_remove_output(ebb_graph *g, ebb_value v)
{
    take_off_list(g->outputs, &g->output_count, v);
    ebb_value_of(g, v)->flags &= (uint16_t)~EBB_IS_OUTPUT;
}

/* v, which nothing makes, holds these bytes from now on. */
static ebb_status initialize(ebb_graph *g, ebb_value v, const ebb_tensor *given, ebb_role role)
{
    ebb_tensor *tensor = copy_tensor(g, given);
    if (tensor == NULL ||
        !put_on_list(g, &g->initializers, &g->initializer_count, &g->initializer_capacity, v))
        return ebb_error_memory();
    ebb_value_info *info = ebb_value_of(g, v);
    info->tensor = tensor;
    info->role = (uint8_t)role;
    info->flags |= EBB_IS_INITIALIZER;
    return NULL;
}

ebb_status ebb_graph_add_initializer(ebb_graph *g, ebb_value *value, const char *name,
                                     const ebb_type *type, const void *data, ebb_role role)
{
    ebb_tensor given = {.type = *type, .data = data};
    if (!ebb_type_bytes(type, &given.bytes))
        return ebb_error(EBB_REJECTED, "initializer '%s' has no size", name != NULL ? name : "");
    EBB_TRY(ebb_value_add(g, value, name, type));
    return initialize(g, *value, &given, role);
}

ebb_status ebb_graph_keep_input(ebb_graph *g, ebb_value v, ebb_role role)
{
    ebb_tensor given = {.type = *ebb_value_of(g, v)->type};
    if (!ebb_type_bytes(&given.type, &given.bytes))
        return ebb_error(EBB_REJECTED, "input '%s' has no fixed size: it cannot be a weight",
                         ebb_value_name(g, v));
    EBB_TRY(initialize(g, v, &given, role));
    take_off_list(g->inputs, &g->input_count, v);
    ebb_value_of(g, v)->flags &= (uint16_t)~EBB_IS_INPUT;
    return NULL;
}

ebb_status ebb_graph_ask_input(ebb_graph *g, ebb_value v)
{
    ebb_value_info *info = ebb_value_of(g, v);
    if ((info->flags & EBB_IS_INPUT) == 0)
        EBB_TRY(ebb_graph_add_input(g, v));
    take_off_list(g->initializers, &g->initializer_count, v);
    info->flags &= (uint16_t)~EBB_IS_INITIALIZER;
    info->tensor = NULL;
    return NULL;
}

void ebb_graph_remove_input(ebb_graph *g, ebb_value v)
{
    ebb_value_info *info = ebb_value_of(g, v);
    assert(info->use_count == 0 || (info->flags & EBB_IS_INITIALIZER) != 0);
    take_off_list(g->inputs, &g->input_count, v);
    info->flags &= (uint16_t)~EBB_IS_INPUT;
    if ((info->flags & (EBB_IS_INITIALIZER | EBB_IS_OUTPUT)) == 0)
        ebb_value_bury(g, v);
}

/* v, which is on the list no more, is no initializer. */
static void uninitialize(ebb_graph *g, ebb_value v)
{
    ebb_value_info *info = ebb_value_of(g, v);
    assert(info->use_count == 0);
    info->flags &= (uint16_t)~EBB_IS_INITIALIZER;
    info->tensor = NULL;
    if ((info->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT)) == 0)
        ebb_value_bury(g, v);
}

void ebb_graph_remove_initializer(ebb_graph *g, ebb_value v)
{
    take_off_list(g->initializers, &g->initializer_count, v);
    uninitialize(g, v);
}

ebb_status ebb_graph_bind(ebb_graph *g, ebb_value state, ebb_value next)
{
    ebb_value_info *info = ebb_value_of(g, state);
    if (info->binding == 0) {
        if (!GROW(g, g->bindings, g->binding_count, g->binding_capacity))
            return ebb_error_memory();
        g->bindings[g->binding_count++] = (ebb_binding){.state = state};
        info->binding = (uint32_t)g->binding_count;
        info->flags |= EBB_IS_STATE;
    }
    set_next(g, &g->bindings[info->binding - 1], next);
    return NULL;
}

void ebb_graph_unbind(ebb_graph *g, ebb_value state)
{
    ebb_value_info *info = ebb_value_of(g, state);
    info->flags &= (uint16_t)~EBB_IS_STATE;
    if (info->binding == 0)
        return;
    size_t at = info->binding - 1;
    ebb_value_of(g, g->bindings[at].next)->bound--;
    info->binding = 0;
    g->binding_count--;
    for (; at < g->binding_count; at++) {
        g->bindings[at] = g->bindings[at + 1];
        ebb_value_of(g, g->bindings[at].state)->binding = (uint32_t)at + 1;
    }
}

ebb_value ebb_graph_bound(const ebb_graph *g, ebb_value state)
{
    uint32_t at = ebb_value_of(g, state)->binding;
    return at > 0 ? g->bindings[at - 1].next : EBB_NO_VALUE;
}

/* ---- order ---- */

size_t ebb_graph_sweep(ebb_graph *g)
{
    size_t removed = 0;
    for (ebb_node n = ebb_last(g), prev; n.i != 0; n = prev) { // backwards: users go first
        prev = ebb_prev(g, n);
        const ebb_node_info *info = ebb_node_of(g, n);
        bool wanted = false;
        for (uint32_t i = 0; i < info->out_count && !wanted; i++)
            wanted = ebb_value_is_read(g, info->out[i]);
        if (wanted)
            continue;
        ebb_node_remove(g, n);
        removed++;
    }
    size_t kept = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        bool ours = info->tensor != NULL && info->tensor->origin == NULL;
        if (ours && !ebb_value_is_read(g, v) && (info->flags & (EBB_IS_STATE | EBB_IS_INPUT)) == 0)
            uninitialize(g, v);
        else
            g->initializers[kept++] = v;
    }
    g->initializer_count = kept;
    return removed;
}

uint32_t *ebb_graph_positions(const ebb_graph *g, ebb_arena *scratch)
{
    uint32_t *at = EBB_NEW(scratch, uint32_t, g->node_count), p = 0;
    if (at == NULL)
        return NULL;
    for (size_t i = 0; i < g->node_count; i++)
        at[i] = UINT32_MAX;
    EBB_EACH_NODE(g, n)
        at[n.i] = p++;
    return at;
}
