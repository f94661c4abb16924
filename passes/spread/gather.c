/* gather: make a step for several processes one of a single process again.
 *
 *   before   y = f(x, w)        d = g(x, y)          dw = AllReduce(d)       in each of 2 processes
 *   after    y_0 = f(x[0:b], w)    d_0 = g(x[0:b], y_0)
 *            y_1 = f(x[b:2b], w)   d_1 = g(x[b:2b], y_1)     dw = d_0 + d_1
 *
 * What all processes have alike is computed once; what each has for itself, rank by rank, in the order in which
 * AllReduce adds. So the step has the bits that the processes had together; and where their sums need
 * nothing of each other's before the last, the order of nodes and the memory of pass micro-batch.
 *
 * A sum that rows are computed of (how many labels count, the statistics of a batch norm) must be there before any
 * rank goes on. So the nodes are put into stages, each as late as what reads it allows; within a stage rank 0
 * computes all of its own, then rank 1.
 *
 * Weights and states in parts (pass shard) are whole again: the update is computed once.
 *
 * Rounding: the norm of all gradients, which pass shard makes of sums of parts. All else is exact.
 *
 * Declines a step without exchanges, and what other passes have put between parts and what is made of them
 * that is not computed element by element.
 */
#include <stdio.h>

#include "onnx/graph/infer.h"
#include "onnx/graph/place.h"
#include "passes/common.h"
#include "passes/spread/gather_parts.h"
#include "passes/spread/shard_parts.h"

typedef struct gathering {
    ebb_edit *e;
    ebb_graph *g;
    int64_t ranks;
    size_t value_count; /* before nodes are copied */
    ebb_held *held;     /* by value id */
    int32_t *stage;     /* by node id */
    int32_t last;       /* stage in which ranks compute; behind it all is there */
    ebb_value **copy;   /* by value id: each rank's own */
    ebb_node *list;     /* the nodes as they were; ends with none */
    bool *is_named;     /* by name id: a node, before */
    size_t name_count;  /* of then */
    ebb_build b;
} gathering;

/* What all make together: a sum, or all rows. */
static bool meets(const ebb_graph *g, ebb_node n)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    return op == EBB_OP_ALL_REDUCE || op == EBB_OP_UNSHARD;
}

static bool is_own(const gathering *s, ebb_node n)
{
    bool is = false;
    for (uint32_t k = 0; k < ebb_node_of(s->g, n)->out_count; k++)
        is = is || s->held[ebb_out(s->g, n, k).i] == EBB_HELD_OWN;
    return is;
}

/* ---- stages ---- */

/* How many sums stand behind one another before something that each rank computes for itself. */
static ebb_status count_stages(gathering *s)
{
    const ebb_graph *g = s->g;
    int32_t *depth = EBB_SCRATCH(s->e, int32_t, g->value_count);
    EBB_GOT(depth);
    for (const ebb_node *n = s->list; n->i != 0; n++) {
        int32_t most = 0;
        for (uint32_t i = 0; i < ebb_node_of(g, *n)->in_count; i++)
            most = depth[ebb_in(g, *n, i).i] > most ? depth[ebb_in(g, *n, i).i] : most;
        if ((is_own(s, *n) || meets(g, *n)) && most > s->last)
            s->last = most;
        for (uint32_t k = 0; k < ebb_node_of(g, *n)->out_count; k++)
            depth[ebb_out(g, *n, k).i] = most + (meets(g, *n) ? 1 : 0);
    }
    return NULL;
}

/* The last stage in which n may be computed for all that reads it. */
static int32_t latest(const gathering *s, ebb_node n)
{
    const ebb_graph *g = s->g;
    const bool adds = meets(g, n);
    int32_t stage = s->last + (is_own(s, n) || adds ? 0 : 1);
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++) {
        const ebb_value_info *v = ebb_value_of(g, ebb_out(g, n, k));
        for (uint32_t u = 0; u < v->use_count; u++) {
            const int32_t reader = s->stage[v->uses[u].node.i] - (adds ? 1 : 0);
            stage = reader < stage ? reader : stage;
        }
    }
    return stage;
}

static ebb_status find_stages(gathering *s)
{
    size_t count = 0;
    EBB_EACH_NODE(s->g, n)
        s->list[count++] = n;
    s->list[count] = EBB_NO_NODE;
    EBB_TRY(count_stages(s));
    while (count-- > 0)
        s->stage[s->list[count].i] = latest(s, s->list[count]);
    return NULL;
}

/* ---- one node of one rank ---- */

static ebb_value rows_of(gathering *s, ebb_value x, int64_t r)
{
    const int64_t axis = ebb_rows_axis(s->g, x);
    const int64_t size = ebb_value_of(s->g, x)->type->dims[axis] / s->ranks;
    const int64_t from = r * size, to = from + size;
    s->b.name = ebb_value_name(s->g, x);
    return ebb_emit(&s->b, EBB_OP_SLICE, x, ebb_const_ints(&s->b, &from, 1),
                    ebb_const_ints(&s->b, &to, 1), ebb_const_ints(&s->b, &axis, 1));
}

/* What rank r has as v. */
static ebb_value of_rank(gathering *s, ebb_value v, int64_t r)
{
    const ebb_held held = v.i < s->value_count ? s->held[v.i] : EBB_HELD_SAME;
    if (held == EBB_HELD_SHARE && r > 0)
        return ebb_emit_zeros_like(&s->b, v);
    if (held != EBB_HELD_OWN)
        return v;
    if (s->copy[v.i] == NULL)
        s->copy[v.i] = EBB_SCRATCH(s->e, ebb_value, (size_t)s->ranks);
    if (!ebb_build_got(&s->b, s->copy[v.i]))
        return EBB_NO_VALUE;
    if (s->copy[v.i][r].i == 0 && ebb_value_of(s->g, v)->producer.i == 0)
        s->copy[v.i][r] = rows_of(s, v, r);
    return s->copy[v.i][r];
}

/* That with the rank behind it, unless another node has it: values' names tell apart. */
static ebb_str name_of_copy(const gathering *s, ebb_node n, ebb_node made, int64_t r)
{
    char name[560];
    (void)snprintf(name, sizeof name, "%.500s_%lld", ebb_text(s->g, ebb_node_of(s->g, n)->name),
                   (long long)r);
    const ebb_str had = ebb_names_find(&s->g->model->names, name);
    if (had.i != 0 && had.i < s->name_count && s->is_named[had.i])
        (void)snprintf(name, sizeof name, "%.500s/copy",
                       ebb_value_name(s->g, ebb_out(s->g, made, 0)));
    return ebb_graph_intern(s->g, name);
}

static ebb_status keep_copy(gathering *s, ebb_node n, ebb_node made, int64_t r)
{
    ebb_graph *g = s->g;
    const ebb_node_info *from = ebb_node_of(g, n);
    ebb_node_info *info = ebb_node_of(g, made);
    EBB_TRY(ebb_props_set_all(g, &info->props, g, &from->props));
    EBB_TRY(ebb_props_set(g, &info->props, "ebb.pass", s->e->pass->name));
    info->name = name_of_copy(s, n, made, r);
    info->overload = from->overload;
    info->doc = from->doc;
    info->phase = from->phase;
    return info->name.i != 0 ? ebb_infer_node(g, made) : ebb_error_memory();
}

static ebb_status copy_node(gathering *s, ebb_node n, int64_t r)
{
    ebb_graph *g = s->g;
    const uint32_t ins = ebb_node_of(g, n)->in_count, outs = ebb_node_of(g, n)->out_count;
    ebb_value *in = EBB_SCRATCH(s->e, ebb_value, ins + (size_t)1);
    ebb_value *out = EBB_SCRATCH(s->e, ebb_value, outs + (size_t)1);
    ebb_node made;
    EBB_GOT(in && out);
    for (uint32_t i = 0; i < ins; i++)
        in[i] = of_rank(s, ebb_in(g, n, i), r);
    EBB_TRY(s->b.status);
    for (uint32_t k = 0; k < outs; k++) {
        const ebb_value old = ebb_out(g, n, k);
        char name[560];
        if (old.i == 0)
            continue;
        (void)snprintf(name, sizeof name, "%.500s_%lld", ebb_value_name(g, old), (long long)r);
        const ebb_type type = *ebb_value_of(g, old)->type;
        EBB_TRY(ebb_value_add(g, &out[k], name, &type));
        (void)of_rank(s, old, r);
        EBB_TRY(s->b.status);
        s->copy[old.i][r] = out[k];
    }
    EBB_TRY(ebb_node_add(g, &made, EBB_NO_NODE, ebb_text(g, ebb_node_of(g, n)->domain),
                         ebb_text(g, ebb_node_of(g, n)->op_name), in, ins, out, outs));
    EBB_TRY(ebb_node_set_attrs(g, made, ebb_node_of(g, n)->attr, ebb_node_of(g, n)->attr_count));
    return keep_copy(s, n, made, r);
}

/* An output's rows are those of all ranks. */
static ebb_status put_together(gathering *s, ebb_node n)
{
    ebb_graph *g = s->g;
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++) {
        const ebb_value v = ebb_out(g, n, k);
        if ((ebb_value_of(g, v)->flags & EBB_IS_OUTPUT) == 0)
            continue;
        s->b.name = ebb_value_name(g, v);
        ebb_with_int(&s->b, "axis", ebb_rows_axis(g, v));
        const ebb_value all = ebb_emit_list(&s->b, EBB_OP_CONCAT, s->copy[v.i], (uint32_t)s->ranks);
        EBB_TRY(s->b.status);
        EBB_TRY(ebb_edit_replace(s->e, v, all));
    }
    return NULL;
}

static ebb_status compute_own(gathering *s, ebb_node n, int64_t r)
{
    if (ebb_node_of(s->g, n)->op == EBB_OP_RANK) {
        (void)of_rank(s, ebb_out(s->g, n, 0), r);
        const ebb_value is = ebb_const_scalar(&s->b, EBB_I64, (double)r);
        EBB_TRY(s->b.status);
        s->copy[ebb_out(s->g, n, 0).i][r] = is;
        return NULL;
    }
    EBB_TRY(copy_node(s, n, r));
    return r + 1 == s->ranks ? put_together(s, n) : NULL;
}

/* The rows of all ranks, which each has in one row. */
static ebb_status join(gathering *s, ebb_node n)
{
    const ebb_value x = ebb_in(s->g, n, 0), old = ebb_out(s->g, n, 0);
    s->b.name = ebb_value_name(s->g, old);
    ebb_with_int(&s->b, "axis", 0);
    ebb_value all = ebb_emit_list(&s->b, EBB_OP_CONCAT, s->copy[x.i], (uint32_t)s->ranks);
    all = ebb_emit_reshape_like(&s->b, all, old);
    EBB_TRY(s->b.status);
    return ebb_edit_replace(s->e, old, all);
}

/* In the order of ranks, as soon as each has its own. */
static ebb_status add(gathering *s, ebb_node n, int64_t r)
{
    const ebb_value x = ebb_in(s->g, n, 0), old = ebb_out(s->g, n, 0), own = of_rank(s, x, r);
    if (s->copy[old.i] == NULL && (s->copy[old.i] = EBB_SCRATCH(s->e, ebb_value, 1)) == NULL)
        return ebb_error_memory();
    ebb_value *sum = s->copy[old.i];
    s->b.name = ebb_value_name(s->g, old);
    *sum = r == 0 ? own : ebb_emit(&s->b, EBB_OP_ADD, *sum, own);
    EBB_TRY(s->b.status);
    return r + 1 == s->ranks ? ebb_edit_replace(s->e, old, *sum) : NULL;
}

/* ---- the step ---- */

static ebb_status take_all_rows(gathering *s)
{
    ebb_graph *g = s->g;
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_value v = g->inputs[i];
        ebb_type t = *ebb_value_of(g, v)->type;
        if (s->held[v.i] != EBB_HELD_OWN)
            continue;
        int64_t *rows = &t.dims[ebb_rows_axis(g, v)];
        if (__builtin_mul_overflow(*rows, s->ranks, rows))
            return ebb_error(EBB_REJECTED, "'%s' has too many rows", ebb_value_name(g, v));
        EBB_TRY(ebb_value_set_type(g, v, &t));
    }
    return NULL;
}

static ebb_status compute(gathering *s, ebb_node n, int64_t r)
{
    s->b.phase = (ebb_phase)ebb_node_of(s->g, n)->phase;
    if (ebb_node_of(s->g, n)->op == EBB_OP_UNSHARD)
        return r + 1 == s->ranks ? join(s, n) : NULL;
    if (meets(s->g, n))
        return add(s, n, r);
    if (is_own(s, n))
        return compute_own(s, n, r);
    if (r == 0)
        ebb_node_move(s->g, n, EBB_NO_NODE);
    return NULL;
}

static ebb_status rewrite(gathering *s)
{
    ebb_graph *g = s->g;
    EBB_TRY(find_stages(s));
    EBB_TRY(take_all_rows(s));
    for (int32_t stage = 0; stage <= s->last + 1; stage++)
        for (int64_t r = 0; r < s->ranks; r++)
            for (const ebb_node *n = s->list; n->i != 0; n++)
                if (s->stage[n->i] == stage)
                    EBB_TRY(compute(s, *n, r));
    for (size_t i = 0; i < g->input_count; i++)
        EBB_TRY(ebb_rows_mark(g, g->inputs[i], -1));
    size_t count = 0;
    while (s->list[count].i != 0)
        count++;
    while (count-- > 0)
        if (is_own(s, s->list[count]) || meets(g, s->list[count]))
            ebb_edit_remove(s->e, s->list[count]);
    ebb_applied(s->e);
    return NULL;
}

static ebb_status make_room(gathering *s)
{
    const size_t count = s->g->value_count, were = s->value_count;
    const ebb_held *held = s->held;
    s->held = EBB_SCRATCH(s->e, ebb_held, count);
    s->copy = EBB_SCRATCH(s->e, ebb_value *, count);
    s->stage = EBB_SCRATCH(s->e, int32_t, s->g->node_count);
    s->list = EBB_SCRATCH(s->e, ebb_node, s->g->node_count);
    s->name_count = s->g->model->names.count;
    s->is_named = EBB_SCRATCH(s->e, bool, s->name_count);
    EBB_GOT(s->held && s->copy && s->stage && s->list && s->is_named);
    EBB_EACH_NODE(s->g, n)
        s->is_named[ebb_node_of(s->g, n)->name.i] = true;
    for (size_t v = 0; v < were; v++)
        s->held[v] = held[v] != EBB_HELD_PART ? held[v] : EBB_HELD_SAME;
    s->value_count = count;
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    gathering s = {.e = e, .g = g, .ranks = ebb_ranks_in(g)};
    const char *why;
    ebb_node at;
    if (s.ranks < 2)
        return NULL;
    EBB_TRY(ebb_require_static(g));
    ebb_found(e);
    s.value_count = g->value_count;
    s.held = EBB_SCRATCH(e, ebb_held, g->value_count);
    EBB_GOT(s.held);
    ebb_held_find(s.held, g, s.ranks, &why, &at);
    if (why != NULL)
        return ebb_skipped(e, at, why);
    EBB_TRY(ebb_parts_whole(e, s.held, s.ranks));
    EBB_TRY(make_room(&s));
    s.b = ebb_edit_build(e, EBB_NO_NODE, EBB_FORWARD);
    return rewrite(&s);
}

const ebb_pass ebb_pass_gather = {
    .name = "gather",
    .doc = "make a step for several processes one of a single process again",
    .exactness = EBB_ROUNDING,
    .run = run,
};
