/* memory.c: the ruler. Two walks over the nodes, one over the values: O(nodes + uses).
 *
 * Values that share memory form a group (union-find over their marks `over`); facts are gathered at each
 * group's root, and each root becomes one tensor.
 */
#include "exec/weigh/memory.h"

#include "onnx/graph/stream.h"

#include <assert.h>

const char *ebb_category_name(ebb_category category)
{
    static const char *const names[EBB_CATEGORY_COUNT] = {
        "PARAMETER",  "GRADIENT",  "OPTIMIZER_STATE", "INPUT",
        "ACTIVATION", "TEMPORARY", "WORKSPACE",       "COMM",
    };
    assert(category < EBB_CATEGORY_COUNT);
    return names[category];
}

enum { /* what is known of a group; the first that is so tells its category */
       HOLDS_STATE = 1 << 0,
       HOLDS_PARAMETER = 1 << 1,
       HOLDS_INPUT = 1 << 2,
       HOLDS_GATHERED = 1 << 3,
       HOLDS_SAVED = 1 << 4,
       HOLDS_GRADIENT = 1 << 5,
       IS_SEEN = 1 << 6,      /* a value of it has been */
       IS_ELSEWHERE = 1 << 7, /* others weigh it */
};

enum { SEEN = 1, FIRST_IS_AWAY = 2 /* of a root: the group lies in another place */ };

typedef struct ruler {
    const ebb_graph *g;
    uint32_t *parent;        /* by value id: union-find */
    uint32_t *birth, *death; /* by root */
    uint64_t *bytes;         /* by root */
    uint8_t *holds;          /* by root */
    uint32_t *first; /* first members, by value id, in the order that they are met; NULL: no list */
    uint32_t first_count;
    uint8_t *seen; /* by value id */
    uint32_t last; /* last position */
    uint32_t align;
    size_t away_count; /* groups that lie in another place */
} ruler;

static uint32_t root_of(const ruler *r, uint32_t v)
{
    while (r->parent[v] != v) {
        r->parent[v] = r->parent[r->parent[v]];
        v = r->parent[v];
    }
    return v;
}

/* The lower id becomes the root: earlier values tend to be the initializers and inputs. */
static void unite(ruler *r, ebb_value a, ebb_value b)
{
    uint32_t x = root_of(r, a.i), y = root_of(r, b.i);
    if (x < y)
        r->parent[y] = x;
    else
        r->parent[x] = y;
}

static ebb_status too_big(const ebb_graph *g, ebb_value v)
{
    char text[256];
    const ebb_value_info *info = ebb_value_of(g, v);
    ebb_type_print(text, sizeof text, info->type, &g->model->names);
    if (ebb_type_is_static(info->type))
        return ebb_error(EBB_REJECTED, "value '%s' of type %s has no size that can be weighed",
                         ebb_value_name(g, v), text);
    return ebb_hint(ebb_error(EBB_REJECTED,
                              "value '%s' has the type %s: its size is not known before the run",
                              ebb_value_name(g, v), text),
                    "give sizes to symbolic dims with --dim NAME=SIZE");
}

/* Value v is in use at position p. */
static ebb_status touch(ruler *r, ebb_value v, uint32_t p)
{
    if (v.i == 0)
        return NULL;
    uint32_t root = root_of(r, v.i);
    if ((r->holds[root] & IS_ELSEWHERE) != 0)
        return NULL;
    if ((r->seen[v.i] & SEEN) == 0) {
        size_t bytes = 0;
        const ebb_place place = ebb_value_place(r->g, v);
        if (!ebb_type_bytes(ebb_value_of(r->g, v)->type, &bytes) ||
            !ebb_size_align(&bytes, bytes, place == EBB_PLACE_DISK ? EBB_DISK_ALIGN : r->align))
            return too_big(r->g, v);
        r->seen[v.i] |= SEEN;
        if (r->bytes[root] < bytes)
            r->bytes[root] = bytes;
        if ((r->holds[root] & IS_SEEN) == 0) {
            r->holds[root] |= IS_SEEN;
            if (r->first != NULL)
                r->first[r->first_count++] = v.i;
            r->birth[root] = r->death[root] = p;
            r->seen[root] |= place != EBB_PLACE_DEVICE ? FIRST_IS_AWAY : 0;
            r->away_count += place != EBB_PLACE_DEVICE;
        }
    }
    if (p < r->birth[root])
        r->birth[root] = p;
    if (p > r->death[root])
        r->death[root] = p;
    return NULL;
}

/* ---- what is read in the model's file ---- */

/* They take nothing of the device. What shares its memory with another value does: that may be written. */
static ebb_status find_mapped(ruler *r, ebb_memory *m, ebb_arena *arena, ebb_arena *scratch)
{
    const ebb_graph *g = r->g;
    bool *shares = EBB_NEW(scratch, bool, g->value_count + (size_t)1);
    m->mapped = EBB_NEW(arena, ebb_value, g->initializer_count + 1);
    EBB_GOT(shares && m->mapped);
    for (uint32_t v = 1; v < g->value_count; v++)
        if (root_of(r, v) != v)
            shares[root_of(r, v)] = true;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value v = g->initializers[i];
        if (root_of(r, v.i) != v.i || shares[v.i] || !ebb_memory_maps(g, v))
            continue;
        r->holds[v.i] |= IS_ELSEWHERE;
        m->mapped[m->mapped_count++] = v;
    }
    return NULL;
}

/* All of them, from the first node to the last. */
static ebb_status weigh_mapped(const ruler *r, ebb_memory *m, ebb_arena *arena)
{
    uint64_t all = 0;
    for (size_t i = 0; i < m->mapped_count; i++)
        if (__builtin_add_overflow(all, ebb_value_of(r->g, m->mapped[i])->tensor->bytes, &all))
            return ebb_error(EBB_REJECTED, "the weights in the model's file pass 2^64 bytes");
    if (all == 0)
        return NULL;
    uint64_t *live = EBB_NEW(arena, uint64_t, (size_t)r->last + 2);
    EBB_GOT(live);
    for (uint32_t p = 0; p <= r->last; p++)
        live[p] = all;
    m->places[EBB_PLACE_MAPPED].live = live;
    m->places[EBB_PLACE_MAPPED].peak_bytes = all;
    return NULL;
}

/* ---- births and deaths ---- */

static ebb_status touch_initializers(ruler *r)
{
    const ebb_graph *g = r->g;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        if (info->dead)
            continue;
        EBB_TRY(touch(r, v, 0));
        EBB_TRY(touch(r, v, r->last));
        bool state = info->role == EBB_ROLE_OPTIMIZER || info->role == EBB_ROLE_RANDOM;
        r->holds[root_of(r, v.i)] |= state ? HOLDS_STATE : HOLDS_PARAMETER;
    }
    for (size_t i = 0; i < g->input_count; i++) {
        ebb_value v = g->inputs[i];
        if (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER)
            continue;
        EBB_TRY(touch(r, v, 0));
        r->holds[root_of(r, v.i)] |= HOLDS_INPUT;
    }
    return NULL;
}

/* What is made forward and read backward is saved; what is made backward and read by the optimizer
 * is a gradient. Files of others may leave the forward unmarked. */
static void note_read(ruler *r, ebb_value v, ebb_phase reader)
{
    const ebb_value_info *info = ebb_value_of(r->g, v);
    if (info->producer.i == 0)
        return;
    uint8_t made = ebb_node_of(r->g, info->producer)->phase;
    const ebb_op op = ebb_node_of(r->g, info->producer)->op;
    if (op == EBB_OP_UNSHARD || op == EBB_OP_START_UNSHARD)
        r->holds[root_of(r, v.i)] |= HOLDS_GATHERED;
    if (reader == EBB_BACKWARD && made != EBB_BACKWARD && made != EBB_UPDATE)
        r->holds[root_of(r, v.i)] |= HOLDS_SAVED;
    if (reader == EBB_UPDATE && made == EBB_BACKWARD)
        r->holds[root_of(r, v.i)] |= HOLDS_GRADIENT;
}

/* The values outside that the node's subgraphs read are alive while it runs. */
static ebb_status touch_captured(ruler *r, const ebb_graph *inner, uint32_t p, ebb_phase reader)
{
    EBB_EACH_VALUE(inner, v) {
        ebb_value outside = ebb_body_outside(r->g, inner, v);
        if (outside.i == 0)
            continue;
        EBB_TRY(touch(r, outside, p));
        note_read(r, outside, reader);
    }
    return NULL;
}

/* What is never whole takes no memory; its codes are read where it is. */
static ebb_status touch_read(ruler *r, ebb_value v, uint32_t p)
{
    ebb_node source = ebb_stream_source(r->g, v);
    if (source.i == 0)
        return touch(r, v, p);
    const ebb_node_info *decode = ebb_node_of(r->g, source);
    for (uint32_t i = 0; i < decode->in_count; i++)
        EBB_TRY(touch(r, decode->in[i], p));
    return NULL;
}

static ebb_status touch_nodes(ruler *r)
{
    const ebb_graph *g = r->g;
    uint32_t p = 0;
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *node = ebb_node_of(g, n);
        for (uint32_t i = 0; i < node->in_count; i++) {
            if (node->in[i].i == 0)
                continue;
            EBB_TRY(touch_read(r, node->in[i], p));
            note_read(r, node->in[i], (ebb_phase)node->phase);
        }
        for (uint32_t i = 0; i < node->out_count && node->tile_rows == 0; i++)
            EBB_TRY(touch(r, node->out[i], p));
        EBB_EACH_BODY(node, body)
            EBB_TRY(touch_captured(r, *body, p, (ebb_phase)node->phase));
        p++;
    }
    for (size_t i = 0; i < g->output_count; i++) {
        ebb_value v = g->outputs[i];
        EBB_TRY(touch(r, v, r->last));
        const char *name = ebb_value_name(g, v);
        size_t length = strlen(name);
        if (length > 5 && strcmp(name + length - 5, "_grad") == 0)
            r->holds[root_of(r, v.i)] |= HOLDS_GRADIENT;
    }
    for (size_t i = 0; i < g->binding_count; i++)
        EBB_TRY(touch(r, g->bindings[i].next, r->last));
    return NULL;
}

static ebb_category category_of(uint8_t holds)
{
    static const ebb_category is[] = {EBB_OPTIMIZER_STATE, EBB_PARAMETER, EBB_INPUT, EBB_COMM,
                                      EBB_ACTIVATION,      EBB_GRADIENT};
    for (size_t k = 0; k < sizeof is / sizeof *is; k++)
        if (holds & 1 << k)
            return is[k];
    return EBB_TEMPORARY;
}

static void add_away(const ruler *r, ebb_memory *m, ebb_value v, uint32_t root)
{
    ebb_memory_away *t = &m->away[m->away_count++];
    *t = (ebb_memory_away){.place = ebb_value_place(r->g, v),
                           .birth = r->birth[root],
                           .death = r->death[root],
                           .bytes = r->bytes[root],
                           .value = v};
    m->away_of[root] = (uint32_t)m->away_count;
    const ebb_node split = ebb_value_of(r->g, v)->producer;
    if (split.i == 0 || ebb_node_of(r->g, split)->op != EBB_OP_SPLIT)
        return;
    t->within = m->away_of[root_of(r, ebb_in(r->g, split, 0).i)];
    m->away[t->within - 1].in_parts = true;
    for (uint32_t i = 0; !ebb_same_value(ebb_out(r->g, split, i), v); i++)
        t->at += r->bytes[root_of(r, ebb_out(r->g, split, i).i)];
}

/* It counts: live[] holds differences, modulo 2^64, until the peak is looked for. */
static ebb_status count_tensor(const ruler *r, ebb_memory *m, const ebb_memory_tensor *t)
{
    if (__builtin_add_overflow(m->total_bytes, t->bytes, &m->total_bytes))
        return ebb_error(EBB_REJECTED, "the values of graph '%s' together pass 2^64 bytes",
                         ebb_text(r->g, r->g->name));
    m->live[t->birth] += t->bytes;
    m->live[t->death + (size_t)1] -= t->bytes;
    return NULL;
}

/* The tensor of a group with bytes; v: its first. Without a list it is only counted. */
static ebb_status take_group(const ruler *r, ebb_memory *m, ebb_value v)
{
    const uint32_t root = root_of(r, v.i);
    if ((r->seen[root] & FIRST_IS_AWAY) != 0) {
        if (m->away != NULL)
            add_away(r, m, v, root);
        return NULL;
    }
    if (r->bytes[root] == 0)
        return NULL;
    const ebb_memory_tensor t = {.birth = r->birth[root],
                                 .death = r->death[root],
                                 .bytes = r->bytes[root],
                                 .category = category_of(r->holds[root]),
                                 .value = v,
                                 .node = ebb_value_of(r->g, v)->producer};
    EBB_TRY(count_tensor(r, m, &t));
    if ((r->holds[root] & HOLDS_SAVED) && r->holds[root] % HOLDS_SAVED == 0)
        m->saved_bytes += t.bytes;
    if (m->tensors == NULL)
        return NULL;
    m->tensors[m->tensor_count++] = t;
    m->tensor_of[root] = (uint32_t)m->tensor_count;
    return NULL;
}

static ebb_status count_groups(const ruler *r, ebb_memory *m)
{
    EBB_EACH_VALUE(r->g, v)
        if (r->parent[v.i] == v.i && (r->holds[v.i] & IS_SEEN) != 0)
            EBB_TRY(take_group(r, m, v));
    return NULL;
}

/* Where the work of a node at p is over: by the Wait for what it starts. */
static uint32_t ends_at(const ruler *r, ebb_node n, uint32_t p)
{
    const ebb_value made = ebb_out(r->g, n, 0);
    if (!ebb_op_has(ebb_node_of(r->g, n)->op, EBB_STARTS) || made.i == 0 ||
        ebb_value_of(r->g, made)->use_count == 0)
        return p;
    const ebb_node wait = ebb_value_of(r->g, made)->uses[0].node;
    for (; n.i != 0 && !ebb_same_node(n, wait); n = ebb_next(r->g, n))
        p++;
    return p;
}

static ebb_status take_workspaces(const ruler *r, ebb_memory *m, const size_t *workspace_bytes)
{
    uint32_t p = 0;
    EBB_EACH_NODE(r->g, n) {
        size_t bytes = workspace_bytes[n.i];
        if (bytes != 0) {
            if (!ebb_size_align(&bytes, bytes, r->align))
                return ebb_error(EBB_REJECTED, "%s: its workspace of %zu bytes is too large",
                                 ebb_node_label(r->g, n), workspace_bytes[n.i]);
            const bool together = ebb_op_has(ebb_node_of(r->g, n)->op, EBB_TOGETHER);
            const ebb_memory_tensor t = {.birth = p,
                                         .death = ends_at(r, n, p),
                                         .bytes = bytes,
                                         .category = together ? EBB_COMM : EBB_WORKSPACE,
                                         .node = n};
            EBB_TRY(count_tensor(r, m, &t));
            m->tensors[m->tensor_count++] = t;
            m->workspace_of[n.i] = (uint32_t)m->tensor_count;
        }
        p++;
    }
    return NULL;
}

/* Groups, then workspaces. */
static ebb_status list_tensors(ruler *r, ebb_memory *m, ebb_arena *arena,
                               const size_t *workspace_bytes)
{
    const ebb_graph *g = r->g;
    size_t most = r->first_count;
    for (size_t i = 0; workspace_bytes != NULL && i < g->node_count; i++)
        most += workspace_bytes[i] != 0;
    m->tensors = EBB_NEW(arena, ebb_memory_tensor, most + 1);
    m->tensor_of = EBB_NEW(arena, uint32_t, g->value_count + (size_t)1);
    m->workspace_of = EBB_NEW(arena, uint32_t, g->node_count + (size_t)1);
    EBB_GOT(m->tensors && m->tensor_of && m->workspace_of);
    if (r->away_count > 0) {
        m->away = EBB_NEW(arena, ebb_memory_away, r->away_count);
        m->away_of = EBB_NEW(arena, uint32_t, g->value_count + (size_t)1);
        EBB_GOT(m->away && m->away_of);
    }
    for (uint32_t k = 0; k < r->first_count; k++)
        EBB_TRY(take_group(r, m, (ebb_value){r->first[k]}));
    for (uint32_t v = 1; v < g->value_count; v++)
        if ((r->seen[v] & SEEN) != 0) {
            m->tensor_of[v] = m->tensor_of[root_of(r, v)];
            if (m->away_of != NULL)
                m->away_of[v] = m->away_of[root_of(r, v)];
        }
    return workspace_bytes != NULL ? take_workspaces(r, m, workspace_bytes) : NULL;
}

static void find_peak(const ruler *r, ebb_memory *m)
{
    for (size_t p = 0; p <= r->last; p++) {
        m->live[p] += p > 0 ? m->live[p - 1] : 0;
        if (m->live[p] > m->peak_bytes) {
            m->peak_bytes = m->live[p];
            m->peak_position = (uint32_t)p;
        }
    }
    for (size_t i = 0; i < m->tensor_count; i++) {
        const ebb_memory_tensor *t = &m->tensors[i];
        if (t->birth <= m->peak_position && m->peak_position <= t->death)
            m->at_peak[t->category] += t->bytes;
    }
}

/* What lies elsewhere is written where it lay; in parts, where it is in parts. */
static void unite_bound(ruler *r, const ebb_binding *b)
{
    const ebb_node split = ebb_state_split(r->g, b->state);
    const ebb_node concat = ebb_value_of(r->g, b->next)->producer;
    unite(r, b->state, b->next);
    for (uint32_t i = 0; split.i != 0 && i < ebb_node_of(r->g, split)->out_count; i++)
        unite(r, ebb_out(r->g, split, i), ebb_in(r->g, concat, i));
}

/* Without an arena nothing is listed. */
static ebb_status weigh(ebb_memory *m, ebb_arena *arena, const ebb_graph *g,
                        const ebb_memory_terms *terms, ebb_arena *scratch)
{
    ruler r = {.g = g, .align = terms->align};
    size_t values = g->value_count + 1;
    EBB_EACH_NODE(g, n)
        m->positions++;
    r.last = m->positions == 0 ? 0 : m->positions - 1;

    m->live = EBB_NEW(arena != NULL ? arena : scratch, uint64_t, (size_t)r.last + 2);
    r.parent = EBB_NEW(scratch, uint32_t, values);
    r.birth = EBB_NEW(scratch, uint32_t, values);
    r.death = EBB_NEW(scratch, uint32_t, values);
    r.bytes = EBB_NEW(scratch, uint64_t, values);
    r.holds = EBB_NEW(scratch, uint8_t, values);
    r.seen = EBB_NEW(scratch, uint8_t, values);
    r.first = arena != NULL ? EBB_NEW(scratch, uint32_t, values) : NULL;
    EBB_GOT(m->live && r.parent && r.birth && r.death && r.bytes && r.holds && r.seen &&
            (r.first || arena == NULL));

    for (uint32_t v = 0; v < values; v++)
        r.parent[v] = v;
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *node = ebb_node_of(g, n);
        for (uint32_t k = 0; k < node->out_count; k++) {
            const uint32_t over = ebb_node_over(g, n, k);
            const ebb_value in = over == 0 ? EBB_NO_VALUE : ebb_in(g, n, over - 1);
            if (in.i != 0)
                unite(&r, node->out[k], in);
        }
        if (node->op == EBB_OP_WAIT && ebb_out(g, n, 0).i != 0 && ebb_in(g, n, 0).i != 0)
            unite(&r, node->out[0], node->in[0]);
    }
    for (size_t i = 0; i < g->binding_count; i++)
        if (ebb_value_place(g, g->bindings[i].state) != EBB_PLACE_DEVICE)
            unite_bound(&r, &g->bindings[i]);
    for (uint32_t v = 1; terms->elsewhere != NULL && v < g->value_count; v++)
        if (terms->elsewhere[v])
            r.holds[root_of(&r, v)] |= IS_ELSEWHERE;
    if (terms->maps && arena != NULL)
        EBB_TRY(find_mapped(&r, m, arena, scratch));
    EBB_TRY(touch_initializers(&r));
    EBB_TRY(touch_nodes(&r));
    EBB_TRY(arena != NULL ? list_tensors(&r, m, arena, terms->workspace_bytes)
                          : count_groups(&r, m));
    find_peak(&r, m);
    if (arena == NULL)
        return NULL;
    EBB_TRY(ebb_memory_weigh_away(m, arena));
    return weigh_mapped(&r, m, arena);
}

ebb_status ebb_memory_weigh(ebb_memory *memory, ebb_arena *arena, const ebb_graph *g,
                            const ebb_memory_terms *terms)
{
    *memory = (ebb_memory){0};
    EBB_LOCAL_ARENA(scratch);
    return weigh(memory, arena, g, terms, scratch);
}

ebb_status ebb_memory_total(ebb_memory *memory, const ebb_graph *g, uint32_t align)
{
    ebb_status status = ebb_memory_weigh(memory, NULL, g, &(ebb_memory_terms){.align = align});
    memory->live = NULL; // it was scratch
    return status;
}
