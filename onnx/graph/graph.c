/* graph.c: nodes and values: add, replace, move, remove. The invariants that verify.c checks are kept
 * here and in the files that change.h names. */
#include "onnx/graph/change.h"

#include <assert.h>

#include "onnx/graph/scan.h"

/* Room for one more in a short list, whose numbers take 32 bits in each record. */
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

ebb_graph *const *ebb_body_next(const ebb_node_info *info, ebb_graph *const *at)
{
    bool behind = at == NULL;
    for (uint32_t i = 0; i < info->attr_count; i++)
        for (uint32_t k = 0; info->attr[i].graphs != NULL && k < info->attr[i].count; k++) {
            if (behind)
                return &info->attr[i].graphs[k];
            behind = &info->attr[i].graphs[k] == at;
        }
    return NULL;
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
    v = ebb_value_meant(&g, v);
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

bool ebb_values_have_sizes(const ebb_graph *g, const ebb_value *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i].i != 0 && !ebb_type_is_static(ebb_value_of(g, list[i])->type))
            return false;
    return true;
}

size_t ebb_graph_size(const ebb_graph *g)
{
    size_t count = 0;
    EBB_EACH_NODE(g, n)
        count++;
    return count;
}

const char *ebb_node_name(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const char *name = ebb_text(g, info->name);
    for (uint32_t i = 0; i < info->out_count && name[0] == '\0'; i++)
        name = ebb_value_name(g, info->out[i]);
    return name;
}

const char *ebb_node_label(const ebb_graph *g, ebb_node n)
{
    enum { BUFFERS = 8, BYTES = 256 };
    static _Thread_local char ring[BUFFERS][BYTES];
    static _Thread_local unsigned next;
    char *text = ring[next++ % BUFFERS];
    const char *parts[] = {ebb_text(g, ebb_node_of(g, n)->op_name), " '", ebb_node_name(g, n), "'"};
    size_t at = 0;
    for (int i = 0; i < 4; i++) { // not printed: inference asks for the label of every node
        size_t length = strnlen(parts[i], BYTES - 1 - at);
        memcpy(text + at, parts[i], length);
        at += length;
    }
    text[at] = '\0';
    return text;
}

/* ---- values ---- */

static const ebb_type *share_type(ebb_graph *g, const ebb_type *type)
{
    return ebb_types_share(&g->model->types, &g->model->arena, type);
}

ebb_status ebb_value_set_type(ebb_graph *g, ebb_value v, const ebb_type *type)
{
    const ebb_type *shared = share_type(g, type);
    EBB_GOT(shared);
    ebb_value_of(g, v)->type = shared;
    return NULL;
}

ebb_status ebb_value_add(ebb_graph *g, ebb_value *value, const char *name, const ebb_type *type)
{
    ebb_str fresh = ebb_graph_fresh(g, name != NULL && name[0] != '\0' ? name : "v");
    ebb_value v = {(uint32_t)g->value_count};
    uint32_t at, block = ebb_block_of(v.i, &at);
    const ebb_type *shared = type == NULL ? &ebb_type_unknown : share_type(g, type);
    EBB_GOT(fresh.i != 0 && shared && MAKE_BLOCK(g, g->values, block) && ebb_name_make_room(g));
    g->values[block][at] = (ebb_value_info){.type = shared};
    g->value_count++;
    ebb_name_take(g, v, fresh);
    *value = v;
    return NULL;
}

static ebb_status add_use(ebb_graph *g, ebb_value v, ebb_node n, uint32_t slot)
{
    if (v.i == 0)
        return NULL;
    ebb_value_info *info = ebb_value_of(g, v);
    EBB_GOT(grow_list(g, &info->uses, info->use_count, &info->use_capacity, sizeof *info->uses));
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
    ebb_name_free(g, v);
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

static void set_producer(ebb_graph *g, ebb_value v, ebb_node n, uint32_t slot)
{
    if (v.i == 0)
        return;
    ebb_value_info *info = ebb_value_of(g, v);
    assert(info->producer.i == 0 || ebb_same_node(info->producer, n));
    info->producer = n;
    info->producer_slot = slot;
}

static void leave_producer(ebb_graph *g, ebb_value v)
{
    ebb_value_of(g, v)->producer = EBB_NO_NODE;
    ebb_value_of(g, v)->over = 0;
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
    info.in = EBB_NEW(&g->model->arena, ebb_value, (size_t)in_count + out_count);
    EBB_GOT(info.in);
    info.out = info.in + in_count;
    if (in_count > 0)
        memcpy(info.in, in, in_count * sizeof *in);
    if (out_count > 0)
        memcpy(info.out, out, out_count * sizeof *out);
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
        leave_producer(g, info->out[i]);
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
    EBB_GOT(longer);
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
    EBB_TRY(extend(g, &info->out, &info->out_count, slot));
    ebb_value old = info->out[slot];
    const uint8_t over = ebb_value_of(g, old)->over;
    info->out[slot] = EBB_NO_VALUE;
    if (old.i != 0 && !ebb_same_value(old, v)) {
        leave_producer(g, old);
        if (!ebb_value_is_read(g, old))
            ebb_value_bury(g, old);
    }
    info->out[slot] = v;
    set_producer(g, v, n, slot);
    if (v.i != 0)
        ebb_value_of(g, v)->over = over;
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

void ebb_node_set_over(ebb_graph *g, ebb_node n, uint32_t output, uint32_t input)
{
    const ebb_value v = ebb_out(g, n, output);
    assert(v.i != 0 && input < ebb_node_of(g, n)->in_count && input < UINT8_MAX);
    ebb_value_of(g, v)->over = (uint8_t)(input + 1);
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
    ebb_interface_replace(g, old, with);
    return ebb_captures_replace(g, old, with);
}

/* ---- order ---- */

/* *bodies: one went, and what it read by name may be read by nobody now. */
static size_t sweep(ebb_graph *g, bool *bodies)
{
    size_t removed = 0;
    *bodies = false;
    for (ebb_node n = ebb_last(g), prev; n.i != 0; n = prev) { // backwards: users go first
        prev = ebb_prev(g, n);
        const ebb_node_info *info = ebb_node_of(g, n);
        bool wanted = false;
        for (uint32_t i = 0; i < info->out_count && !wanted; i++)
            wanted = ebb_value_is_read(g, info->out[i]);
        if (wanted)
            continue;
        *bodies |= (ebb_body_next(info, NULL) != NULL);
        ebb_node_remove(g, n);
        removed++;
    }
    return removed;
}

size_t ebb_graph_sweep(ebb_graph *g)
{
    bool bodies;
    size_t removed = sweep(g, &bodies);
    while (bodies) {
        ebb_captures_mark(g);
        removed += sweep(g, &bodies);
    }
    ebb_interface_sweep(g);
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
