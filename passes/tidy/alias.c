/* alias: let a value take over the memory of one that is no longer needed.
 *
 *   before   y = Relu(x)          x and y are both there while Relu runs
 *   after    y = Relu(x) over x   one block, if nobody reads x (or what shares its memory) later
 *
 * A view (Reshape, Flatten, Squeeze, Unsqueeze, Identity) always shows its input's bytes; both may
 * be read as long as nobody writes. A node that writes (ebb_op_may_alias) may do so only when
 * everything that shares the input's memory has been read for the last time. Parameters and states
 * are overwritten only by what the step replaces them with. The marks are part of the file: node
 * metadata "ebb.inplace", obeyed by the ruler, hence by the plan, the arena and the run.
 *
 * Exact: the same kernels on the same operands; only addresses change.
 *
 * Declines where the input or a view of it is read again later, stays to the end of the step, or is
 * a constant; where the node reads the same memory through another operand; where the sizes differ.
 */
#include "onnx/graph/scan.h"
#include "onnx/graph/stream.h"
#include "passes/common.h"

enum { NEVER_DIES = UINT32_MAX };

typedef struct sharing {
    const ebb_graph *g;
    bool views_only;
    uint32_t *at;        /* node id -> position */
    uint32_t *group;     /* value id -> another of its group, union-find */
    uint32_t *last;      /* by root: position of the last read or write of any member */
    bool *fixed;         /* by root: a constant or parameter is in it */
    ebb_value *state;    /* by root: the state in it, if any */
    ebb_value *replaces; /* value id -> the state that a binding replaces by it */
    uint32_t states;     /* of a loop's body: its first inputs, which its first outputs replace */
} sharing;

/* An optimizer's node for several tensors goes through them one by one: only the first one's new
 * value may take the place of the old, since what a later one reads must still be there. */
static bool may_write(const ebb_node_info *info, uint32_t output, uint32_t input)
{
    bool several =
        (info->op == EBB_OP_ADAM && info->in_count > 6) ||
        ((info->op == EBB_OP_MOMENTUM || info->op == EBB_OP_ADAGRAD) && info->in_count > 5);
    return ebb_op_may_alias(info->op, output, input) && (!several || output == 0);
}

static uint32_t group_of(const sharing *s, ebb_value v)
{
    uint32_t i = v.i;
    while (s->group[i] != i) {
        s->group[i] = s->group[s->group[i]];
        i = s->group[i];
    }
    return i;
}

static void read_until(sharing *s, ebb_value v, uint32_t position)
{
    uint32_t root = group_of(s, v);
    if (s->last[root] < position)
        s->last[root] = position;
}

/* What subgraphs of node n read from outside counts as read by n. */
static void read_by_subgraphs(sharing *s, ebb_node n)
{
    EBB_EACH_BODY(ebb_node_of(s->g, n), body)
        EBB_EACH_VALUE(*body, v) {
            ebb_value outside = ebb_body_outside(s->g, *body, v);
            if (outside.i != 0)
                read_until(s, outside, s->at[n.i]);
        }
}

/* Of what is read in tiles, the codes are read. */
static void read_by_node(sharing *s, ebb_value v, ebb_node n)
{
    ebb_node source = ebb_stream_source(s->g, v);
    if (v.i != 0)
        read_until(s, v, s->at[n.i]);
    for (uint32_t i = 0; source.i != 0 && i < ebb_node_of(s->g, source)->in_count; i++)
        if (ebb_in(s->g, source, i).i != 0)
            read_until(s, ebb_in(s->g, source, i), s->at[n.i]);
}

static ebb_status find_lifetimes(sharing *s, ebb_arena *scratch)
{
    const ebb_graph *g = s->g;
    s->at = ebb_graph_positions(g, scratch);
    s->group = EBB_NEW(scratch, uint32_t, g->value_count);
    s->last = EBB_NEW(scratch, uint32_t, g->value_count);
    s->fixed = EBB_NEW(scratch, bool, g->value_count);
    s->state = EBB_NEW(scratch, ebb_value, g->value_count);
    s->replaces = EBB_NEW(scratch, ebb_value, g->value_count);
    EBB_GOT(s->at && s->group && s->last && s->fixed && s->state && s->replaces);
    EBB_EACH_VALUE(g, v) {
        const ebb_value_info *info = ebb_value_of(g, v);
        s->group[v.i] = v.i;
        const uint16_t given = EBB_IS_OUTER | (g->outer != NULL ? EBB_IS_INPUT : 0);
        if ((info->flags & EBB_IS_STATE) != 0)
            s->state[v.i] = v;
        else if ((info->flags & (EBB_IS_INITIALIZER | given)) != 0 ||
                 ebb_producer_op(g, v) == EBB_OP_CONSTANT)
            s->fixed[v.i] = true;
        if ((info->flags & EBB_IS_OUTPUT) != 0)
            s->last[v.i] = NEVER_DIES;
    }
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        for (uint32_t i = 0; i < info->in_count; i++)
            read_by_node(s, info->in[i], n);
        for (uint32_t k = 0; k < info->out_count; k++)
            if (info->out[k].i != 0)
                read_until(s, info->out[k], s->at[n.i]);
        read_by_subgraphs(s, n);
    }
    for (uint32_t i = 0; i < s->states; i++) {
        s->fixed[g->inputs[i].i] = false;
        s->state[g->inputs[i].i] = g->inputs[i];
        s->replaces[g->outputs[i].i] = g->inputs[i];
    }
    for (size_t i = 0; i < g->binding_count; i++) {
        ebb_value next = g->bindings[i].next;
        s->last[next.i] = NEVER_DIES;
        if (ebb_value_of(g, next)->producer.i != 0)
            s->replaces[next.i] = g->bindings[i].state;
    }
    return NULL;
}

static void join(sharing *s, ebb_value out, ebb_value in)
{
    uint32_t from = group_of(s, out), to = group_of(s, in);
    if (from == to)
        return;
    s->group[from] = to;
    if (s->last[to] < s->last[from])
        s->last[to] = s->last[from];
    s->fixed[to] = s->fixed[to] || s->fixed[from];
    if (s->state[to].i == 0)
        s->state[to] = s->state[from];
}

static bool same_size(const ebb_graph *g, ebb_value a, ebb_value b)
{
    const ebb_type *x = ebb_value_of(g, a)->type, *y = ebb_value_of(g, b)->type;
    size_t x_bytes, y_bytes;
    return ebb_type_bytes(x, &x_bytes) && ebb_type_bytes(y, &y_bytes) && x_bytes == y_bytes &&
           x_bytes > 0 && x->layout.kind == y->layout.kind && x->layout.block == y->layout.block;
}

/* A view writes nothing: it may share unless one of the two is to outlive a change of the other. */
static const char *refuses_view(const sharing *s, ebb_value out, ebb_value in)
{
    uint32_t root = group_of(s, in);
    if (!same_size(s->g, out, in))
        return "input and output differ in size or layout";
    if (s->replaces[out.i].i != 0 && s->state[root].i != 0 &&
        !ebb_same_value(s->replaces[out.i], s->state[root]))
        return "the step carries the output into another state";
    if (s->g->outer != NULL && s->last[group_of(s, out)] == NEVER_DIES &&
        (s->fixed[root] || s->last[root] == NEVER_DIES))
        return "the loop has a place of its own for what it shows";
    if (s->state[root].i != 0 && s->last[group_of(s, out)] == NEVER_DIES)
        return "it shows a state that the step replaces";
    return NULL;
}

static const char *refuses_write(const sharing *s, ebb_node n, uint32_t out_slot, uint32_t in_slot)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    ebb_value out = info->out[out_slot], in = info->in[in_slot];
    uint32_t root = group_of(s, in);
    bool own_state = s->state[root].i != 0 && ebb_same_value(s->replaces[out.i], s->state[root]);
    if (!same_size(s->g, out, in))
        return "input and output differ in size or layout";
    if (s->fixed[root])
        return "the input is a constant or a weight";
    if (s->state[root].i != 0 && !own_state)
        return "the input is a state that another value replaces";
    if (s->replaces[out.i].i != 0 && !own_state)
        return "the output replaces another state";
    if (s->last[root] == NEVER_DIES)
        return "the input stays to the end of the step";
    if (s->last[root] > s->at[n.i])
        return "the input is read again later";
    for (uint32_t i = 0; i < info->in_count; i++)
        if (i != in_slot && info->in[i].i != 0 && group_of(s, info->in[i]) == root)
            return "the node reads the same memory through another operand";
    for (uint32_t k = 0; k < info->out_count; k++)
        if (k != out_slot && info->out[k].i != 0 && group_of(s, info->out[k]) == root)
            return "another output of the node takes that memory";
    return NULL;
}

/* Places output k of n over one of its inputs, if it may. */
static ebb_status place(ebb_edit *e, sharing *s, ebb_node n, uint32_t k, uint8_t before)
{
    const ebb_node_info *info = ebb_node_of(e->g, n);
    const char *reason = NULL;
    bool view = k == 0 && ebb_op_has(info->op, EBB_VIEW);
    for (uint32_t i = 0; i < info->in_count && i < 8 && k < 8; i++) {
        if ((s->views_only && !view) || info->in[i].i == 0 || info->tile_rows != 0 ||
            ebb_stream_source(e->g, info->in[i]).i != 0 || (view ? i != 0 : !may_write(info, k, i)))
            continue;
        const char *refused =
            view ? refuses_view(s, info->out[k], info->in[i]) : refuses_write(s, n, k, i);
        if (refused != NULL) {
            reason = reason == NULL ? refused : reason;
            continue;
        }
        join(s, info->out[k], info->in[i]);
        ebb_node_set_over(e->g, n, k, i);
        if (before != i + 1) {
            ebb_found(e);
            ebb_applied(e);
        }
        return NULL;
    }
    return reason == NULL ? NULL : ebb_declined(e, n, reason);
}

static ebb_status share(ebb_edit *e, uint32_t states)
{
    sharing s = {.g = e->g,
                 .views_only = strcmp(ebb_option_string(e, "what"), "views") == 0,
                 .states = states};
    EBB_TRY(find_lifetimes(&s, e->scratch));
    EBB_EACH_NODE(e->g, n) {
        for (uint32_t k = 0; k < ebb_node_of(e->g, n)->out_count; k++) {
            ebb_value_info *out = ebb_value_of(e->g, ebb_out(e->g, n, k));
            const uint8_t before = out->over;
            out->over = 0;
            if (ebb_out(e->g, n, k).i != 0)
                EBB_TRY(place(e, &s, n, k, before));
        }
    }
    return NULL;
}

/* The body of a loop is a step of its own: its states are replaced in each of its steps. Loops may lie within. */
static ebb_status share_within(ebb_edit *e)
{
    EBB_EACH_NODE(e->g, n) {
        ebb_scan s;
        if (ebb_node_of(e->g, n)->op != EBB_OP_SCAN || ebb_scan_read(&s, e->g, n) != NULL)
            continue;
        ebb_edit inner = *e;
        inner.g = s.body;
        EBB_TRY(share(&inner, s.states));
        EBB_TRY(share_within(&inner));
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    EBB_TRY(share(e, 0));
    return strcmp(ebb_option_string(e, "what"), "views") == 0 ? NULL : share_within(e);
}

static const ebb_option options[] = {
    {"what", EBB_OPTION_CHOICE, "all", "all|views",
     "all: views and outputs written over inputs; views: Reshape and its like alone"},
    {NULL, EBB_OPTION_INT, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_alias = {
    .name = "alias",
    .doc = "compute in place and share memory between a value and its views",
    .exactness = EBB_EXACT,
    .options = options,
    .run = run,
};
