/* problem.c: a graph in numbers: who makes and reads which bytes, and at what cost. */
#include "passes/budget/planners/problem.h"

#include "onnx/graph/place.h"
#include "onnx/graph/scan.h"

typedef struct maker {
    const ebb_graph *g;
    const ebb_estimate *estimate;
    ebb_arena *arena;
    ebb_remat_source *s;
    ebb_remat_op *ops;
    ebb_remat_value *values;
    uint32_t *at;    /* node id -> operator + 1; 0: a view, or no node */
    bool *runs_once; /* by operator: what it makes is read as it is, not as a copy */
} maker;

/* ---- bytes ---- */

static ebb_status bytes_of(const maker *m, ebb_value v, uint64_t *bytes)
{
    size_t size = 0;
    const ebb_value_info *info = ebb_value_of(m->g, v);
    *bytes = 0;
    if (ebb_value_place(m->g, v) != EBB_PLACE_DEVICE)
        return NULL; // they lie elsewhere
    if (!ebb_type_bytes(info->type, &size) ||
        (m->s->has_arena && !ebb_size_align(&size, size, m->estimate->align)))
        return ebb_hint(
            ebb_error(EBB_REJECTED, "the size of value '%s' is not known", ebb_value_name(m->g, v)),
            "give sizes to symbolic dims with --dim NAME=SIZE");
    *bytes = size;
    return NULL;
}

/* ---- views ---- */

/* What the alias pass lets share its input's block: see refuses_view there. */
static bool is_view(const maker *m, ebb_node n)
{
    const ebb_node_info *node = ebb_node_of(m->g, n);
    ebb_value in = ebb_in(m->g, n, 0), out = ebb_out(m->g, n, 0);
    size_t in_bytes, out_bytes;
    if (!m->s->has_arena || !ebb_op_has(node->op, EBB_VIEW) || in.i == 0 || out.i == 0 ||
        node->out_count != 1)
        return false;
    const ebb_value_info *x = ebb_value_of(m->g, in), *y = ebb_value_of(m->g, out);
    if (!ebb_type_bytes(x->type, &in_bytes) || !ebb_type_bytes(y->type, &out_bytes) ||
        in_bytes != out_bytes || in_bytes == 0 || x->type->layout.kind != y->type->layout.kind ||
        x->type->layout.block != y->type->layout.block)
        return false;
    if (ebb_value_is_bound(m->g, out))
        return false;
    bool state = (ebb_value_of(m->g, m->s->root[in.i])->flags & EBB_IS_STATE) != 0;
    return !state || (y->flags & EBB_IS_OUTPUT) == 0;
}

static ebb_status find_roots(maker *m)
{
    ebb_remat_source *s = m->s;
    s->value_count = m->g->value_count;
    s->root = EBB_NEW(m->arena, ebb_value, s->value_count + 1);
    s->number = EBB_NEW(m->arena, uint32_t, s->value_count + 1);
    m->at = EBB_NEW(m->arena, uint32_t, m->g->node_count + 1);
    EBB_GOT(s->root && s->number && m->at);
    EBB_EACH_VALUE(m->g, v)
        s->root[v.i] = v;
    uint32_t count = 0;
    EBB_EACH_NODE(m->g, n) {
        if (is_view(m, n))
            s->root[ebb_out(m->g, n, 0).i] = s->root[ebb_in(m->g, n, 0).i];
        else
            m->at[n.i] = ++count;
    }
    s->problem.op_count = count;
    return NULL;
}

/* ---- values ---- */

static ebb_status number_value(maker *m, ebb_value v, uint32_t op)
{
    ebb_remat_source *s = m->s;
    if (s->number[v.i] != 0)
        return NULL;
    uint32_t at = s->problem.value_count++;
    s->number[v.i] = at + 1;
    s->value[at] = v;
    m->values[at].op = op;
    return bytes_of(m, v, &m->values[at].bytes);
}

static ebb_status number_values(maker *m)
{
    ebb_remat_source *s = m->s;
    const ebb_graph *g = m->g;
    m->values = EBB_NEW(m->arena, ebb_remat_value, s->value_count + 1);
    s->value = EBB_NEW(m->arena, ebb_value, s->value_count + 1);
    EBB_GOT(m->values && s->value);
    for (size_t i = 0; i < g->initializer_count; i++) {
        uint64_t bytes;
        if (ebb_value_of(g, g->initializers[i])->dead ||
            (m->estimate->maps && ebb_memory_maps(g, g->initializers[i])))
            continue;
        EBB_TRY(bytes_of(m, g->initializers[i], &bytes));
        if (__builtin_add_overflow(s->problem.base_bytes, bytes, &s->problem.base_bytes))
            return ebb_error(EBB_REJECTED, "the initializers together pass 2^64 bytes");
    }
    for (size_t i = 0; i < g->input_count; i++) {
        uint64_t bytes;
        if (ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER)
            continue;
        if (s->has_arena) {
            EBB_TRY(number_value(m, g->inputs[i], EBB_REMAT_NONE));
            continue;
        }
        EBB_TRY(bytes_of(m, g->inputs[i], &bytes));
        s->problem.base_bytes += bytes;
    }
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *node = ebb_node_of(g, n);
        for (uint32_t k = 0; m->at[n.i] != 0 && k < node->out_count; k++)
            if (node->out[k].i != 0)
                EBB_TRY(number_value(m, node->out[k], m->at[n.i] - 1));
    }
    s->problem.values = m->values;
    return NULL;
}

static uint32_t value_at(const maker *m, ebb_value v) /* NONE: counted in the base, or absent */
{
    uint32_t number = v.i == 0 ? 0 : m->s->number[m->s->root[v.i].i];
    return number == 0 ? EBB_REMAT_NONE : number - 1;
}

/* ---- operators ---- */

/* What the bodies of a node read by name; most nodes have none. */
static ebb_status names_of(const maker *m, ebb_node n, ebb_value **list, uint32_t *count)
{
    *list = NULL;
    *count = 0;
    if (!ebb_op_has(ebb_node_of(m->g, n)->op, EBB_BODIES))
        return NULL;
    *list = ebb_captures_of(m->g, n, m->arena, count);
    return *list != NULL ? NULL : ebb_error_memory();
}

/* Our dropout draws by (key, stream): the same bits each time. Others draw by the node's name. */
static bool must_not_repeat(const ebb_node_info *node)
{
    return ebb_draws_by_name(node) || ebb_op_has(node->op, EBB_UPDATES) ||
           node->phase == EBB_UPDATE;
}

static void add_once(uint32_t *list, uint32_t *count, uint32_t at)
{
    for (uint32_t i = 0; i < *count; i++)
        if (list[i] == at)
            return;
    list[(*count)++] = at;
}

typedef struct reads { /* values, each once */
    uint32_t *list;
    uint32_t count;
    size_t capacity;
} reads;

/* What who reads v needs: the bytes that it shows, and the sizes that the views on the way are made
 * by, where the step computes these. */
static ebb_status add_reads(const maker *m, reads *r, ebb_value v, int level)
{
    uint32_t at = value_at(m, v);
    if (v.i == 0)
        return NULL;
    if (level > EBB_REMAT_DEEP)
        return ebb_error(EBB_UNSUPPORTED, "value '%s' is a view by sizes that are views, %d deep",
                         ebb_value_name(m->g, v), EBB_REMAT_DEEP);
    if (at != EBB_REMAT_NONE) {
        EBB_GOT(ebb_arena_grow(m->arena, &r->list, r->count, &r->capacity, sizeof *r->list));
        add_once(r->list, &r->count, at);
    }
    for (ebb_value root = m->s->root[v.i]; !ebb_same_value(v, root);) {
        ebb_node view = ebb_value_of(m->g, v)->producer;
        for (uint32_t i = 1; i < ebb_node_of(m->g, view)->in_count; i++)
            EBB_TRY(add_reads(m, r, ebb_in(m->g, view, i), level + 1));
        v = ebb_in(m->g, view, 0);
    }
    return NULL;
}

/* v, and what it is a view by, is there when the step ends. */
static ebb_status stay(maker *m, reads *r, ebb_value v)
{
    r->count = 0;
    EBB_TRY(add_reads(m, r, v, 0));
    for (uint32_t i = 0; i < r->count; i++)
        m->values[r->list[i]].stays = true;
    return NULL;
}

static ebb_status mark_stays(maker *m)
{
    const ebb_graph *g = m->g;
    reads r = {0};
    EBB_EACH_VALUE(g, v)
        if (!ebb_value_of(g, v)->dead && (ebb_value_of(g, v)->flags & EBB_IS_OUTPUT) != 0)
            EBB_TRY(stay(m, &r, v));
    for (size_t i = 0; i < g->binding_count; i++)
        EBB_TRY(stay(m, &r, g->bindings[i].next));
    return NULL;
}

static void runs_once(maker *m, ebb_value v)
{
    const ebb_node by = ebb_value_of(m->g, m->s->root[v.i])->producer;
    if (by.i != 0 && m->at[by.i] != 0)
        m->runs_once[m->at[by.i] - 1] = true;
}

/* A body reads by name what the node itself makes, and a move is of that: not of a copy. A copy of what came
 * back would be a copy of the move. */
static ebb_status mark_single(maker *m)
{
    m->runs_once = EBB_NEW(m->arena, bool, m->s->problem.op_count + (size_t)1);
    EBB_GOT(m->runs_once);
    EBB_EACH_VALUE(m->g, v) {
        const ebb_value_info *info = ebb_value_of(m->g, v);
        if (!info->dead && (info->flags & EBB_IS_CAPTURED) != 0)
            runs_once(m, v);
    }
    EBB_EACH_NODE(m->g, n) {
        const ebb_op op = ebb_node_of(m->g, n)->op;
        if (op != EBB_OP_STORE && op != EBB_OP_FETCH)
            continue;
        const ebb_value moved = ebb_out(m->g, n, 0);
        runs_once(m, ebb_in(m->g, n, 0));
        runs_once(m, moved);
        for (size_t i = 0; i < ebb_value_of(m->g, moved)->use_count; i++)
            runs_once(m, ebb_out(m->g, ebb_value_of(m->g, moved)->uses[i].node, 0));
        m->s->problem.moves = true;
    }
    return NULL;
}

/* Where the kernel may write output over input; whether it does depends on what dies. */
static ebb_status find_overs(maker *m, const ebb_node_info *node, ebb_remat_op *op)
{
    ebb_remat_over *list = EBB_NEW(m->arena, ebb_remat_over, node->out_count * (size_t)8 + 1);
    EBB_GOT(list);
    for (uint32_t k = 0; k < node->out_count && k < 8; k++) {
        uint32_t out = value_at(m, node->out[k]);
        for (uint32_t i = 0; out != EBB_REMAT_NONE && i < node->in_count && i < 8; i++) {
            uint32_t in = value_at(m, node->in[i]);
            if (in == EBB_REMAT_NONE || !ebb_op_may_alias(node->op, k, i) ||
                m->values[in].bytes != m->values[out].bytes || m->values[out].bytes == 0 ||
                ebb_producer_op(m->g, m->s->root[node->in[i].i]) == EBB_OP_CONSTANT)
                continue;
            uint32_t operands = 0; // that lie in the same memory
            for (uint32_t j = 0; j < node->in_count; j++)
                operands += value_at(m, node->in[j]) == in;
            if (operands == 1)
                list[op->over_count++] = (ebb_remat_over){out, in};
        }
    }
    op->over = list;
    return NULL;
}

static ebb_status make_op(maker *m, ebb_node n)
{
    const ebb_node_info *node = ebb_node_of(m->g, n);
    uint32_t at = m->at[n.i] - 1;
    ebb_remat_op *op = &m->ops[at];
    reads in = {0};
    uint32_t *out = EBB_NEW(m->arena, uint32_t, node->out_count + (size_t)1);
    EBB_GOT(out);
    m->s->node[at] = n;
    ebb_value *names;
    uint32_t name_count;
    EBB_TRY(names_of(m, n, &names, &name_count));
    for (uint32_t i = 0; i < node->in_count; i++)
        EBB_TRY(add_reads(m, &in, node->in[i], 0));
    for (uint32_t i = 0; i < name_count; i++)
        EBB_TRY(add_reads(m, &in, names[i], 0));
    for (uint32_t k = 0; k < node->out_count; k++)
        if (node->out[k].i != 0)
            out[op->out_count++] = m->s->number[node->out[k].i] - 1;
    for (uint32_t k = 0; k < op->out_count && ebb_op_has(node->op, EBB_DECODES); k++)
        m->s->spare_bytes += m->values[out[k]].bytes;
    op->in = in.list;
    op->in_count = in.count;
    op->out = out;
    op->before = EBB_REMAT_NONE;
    op->cost_ns = ebb_node_ns(m->g, n);
    op->backward = node->phase == EBB_BACKWARD || node->phase == EBB_UPDATE;
    op->once = must_not_repeat(node) || m->runs_once[at];
    op->workspace = m->s->has_arena && m->estimate->workspace_bytes != NULL
                        ? m->estimate->workspace_bytes[n.i]
                        : 0;
    const uint64_t align = m->s->has_arena ? m->estimate->align : EBB_ALIGN;
    op->workspace = (op->workspace + align - 1) / align * align;
    return m->s->has_arena ? find_overs(m, node, op) : NULL;
}

/* ---- states ---- */

/* The update of a state writes over it if all that read the state have run. So the new state takes
 * no bytes, and its readers must not run again after the update. Statistics that a forward operator
 * updates are small: those just take bytes, and the operator may be repeated. */
static void constrain(maker *m, ebb_value state, ebb_value next)
{
    uint32_t made = value_at(m, next);
    ebb_node updater = ebb_value_of(m->g, next)->producer;
    if (made == EBB_REMAT_NONE || updater.i == 0 || m->at[updater.i] == 0)
        return;
    uint32_t at = m->at[updater.i] - 1;
    bool may = false;
    const ebb_node_info *node = ebb_node_of(m->g, updater);
    for (uint32_t k = 0; k < node->out_count && k < 8; k++)
        for (uint32_t i = 0; i < node->in_count && i < 8; i++)
            may = may || (ebb_same_value(node->out[k], next) && node->in[i].i != 0 &&
                          ebb_same_value(m->s->root[node->in[i].i], state) &&
                          ebb_op_may_alias(node->op, k, i));
    if (!may || !m->ops[at].once || !m->s->has_arena)
        return;
    uint32_t reader = 0;
    EBB_EACH_NODE(m->g, n) {
        const ebb_node_info *other = ebb_node_of(m->g, n);
        if (m->at[n.i] == 0)
            continue;
        reader = m->at[n.i] - 1;
        for (uint32_t i = 0; i < other->in_count && reader > at; i++)
            if (other->in[i].i != 0 && ebb_same_value(m->s->root[other->in[i].i], state))
                return; // it is read after the update as it stands: nothing is written over it
        if (reader > at && ebb_op_has(other->op, EBB_BODIES) &&
            (ebb_value_of(m->g, state)->flags & EBB_IS_CAPTURED) != 0)
            return; // or may be
    }
    m->values[made].bytes = 0;
}

/* state id -> the operator that writes over it + 1; then each reader's earliest. */
static ebb_status constrain_all(maker *m)
{
    const ebb_graph *g = m->g;
    uint32_t *written = EBB_NEW(m->arena, uint32_t, g->value_count + 1);
    EBB_GOT(written);
    for (size_t i = 0; i < g->binding_count; i++) {
        ebb_value state = g->bindings[i].state, next = g->bindings[i].next;
        uint32_t made = value_at(m, next);
        uint64_t before = made == EBB_REMAT_NONE ? 0 : m->values[made].bytes;
        constrain(m, state, next);
        if (before > 0 && m->values[made].bytes == 0)
            written[state.i] = m->values[made].op + 1;
        else
            m->s->spare_bytes += before;
    }
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *node = ebb_node_of(g, n);
        if (m->at[n.i] == 0)
            continue;
        ebb_remat_op *op = &m->ops[m->at[n.i] - 1];
        uint32_t *befores = NULL, name_count;
        ebb_value *names;
        EBB_TRY(names_of(m, n, &names, &name_count));
        for (uint32_t i = 0; i < node->in_count + name_count; i++) {
            const ebb_value in = i < node->in_count ? node->in[i] : names[i - node->in_count];
            uint32_t by = in.i == 0 ? 0 : written[m->s->root[in.i].i];
            if (by == 0 || by == m->at[n.i])
                continue;
            if (befores == NULL)
                op->befores = befores =
                    EBB_NEW(m->arena, uint32_t, node->in_count + (size_t)name_count);
            EBB_GOT(befores);
            add_once(befores, &op->before_count, by - 1);
            if (by - 1 < op->before)
                op->before = by - 1;
        }
    }
    return NULL;
}

/* ---- readers ---- */

static ebb_status find_readers(maker *m)
{
    ebb_remat_problem *p = &m->s->problem;
    size_t total = 0;
    for (uint32_t u = 0; u < p->op_count; u++)
        for (uint32_t k = 0; k < m->ops[u].in_count; k++, total++)
            m->values[m->ops[u].in[k]].reader_count++;
    uint32_t *pool = EBB_NEW(m->arena, uint32_t, total + 1);
    uint32_t **next = EBB_NEW(m->arena, uint32_t *, (size_t)p->value_count + 1);
    EBB_GOT(pool && next);
    for (uint32_t v = 0; v < p->value_count; v++) {
        m->values[v].readers = next[v] = pool;
        pool += m->values[v].reader_count;
    }
    for (uint32_t u = 0; u < p->op_count; u++)
        for (uint32_t k = 0; k < m->ops[u].in_count; k++)
            *next[m->ops[u].in[k]]++ = u;
    return NULL;
}

ebb_status ebb_remat_source_make(ebb_remat_source *source, ebb_arena *arena, const ebb_graph *g,
                                 const ebb_estimate *estimate)
{
    *source = (ebb_remat_source){.has_arena = estimate->runs};
    maker m = {.g = g, .estimate = estimate, .arena = arena, .s = source};
    EBB_TRY(find_roots(&m));
    EBB_TRY(number_values(&m));
    EBB_TRY(mark_stays(&m));
    EBB_TRY(mark_single(&m));
    m.ops = EBB_NEW(arena, ebb_remat_op, (size_t)source->problem.op_count + 1);
    source->node = EBB_NEW(arena, ebb_node, (size_t)source->problem.op_count + 1);
    EBB_GOT(m.ops && source->node);
    source->problem.ops = m.ops;
    source->problem.threads = estimate->threads;
    source->problem.move_ns = ebb_move_time_of(g, 1, EBB_PLACE_DISK, false).beside;
    EBB_EACH_NODE(g, n)
        if (m.at[n.i] != 0)
            EBB_TRY(make_op(&m, n));
    EBB_TRY(constrain_all(&m));
    return find_readers(&m);
}
