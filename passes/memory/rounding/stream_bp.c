/* stream-bp: what is computed for each token by itself is computed for parts of the sequence, one after another.
 *
 *   before   q, k, v = F (x)      a = Attention (q, k, v)      y = G (a, x)   loss = H (y)     and the backward
 *   after    q0, k0, v0 = F (x0)  q1, k1, v1 = F (x1) ...      q = Concat (q0, q1 ...) ...
 *            a = Attention (q, k, v)
 *            y0 = G (a0, x0)  loss0 = H (y0)  da0, dx0 = G' (y0)  dw = dw0
 *            y1 = G (a1, x1)  loss1 = H (y1)  da1, dx1 = G' (y1)  dw = dw + dw1 ...   da = Concat (da0, da1 ...)
 *
 * Nodes are taken in their order. Those that work row by row (projections, norms, MLPs, the loss: the rules of
 * micro-batch, batch_rules.h) gather in a run; where a node needs the whole of what a run makes, the run is
 * emitted first, part by part, and what is needed is put together: attention needs all keys, an update needs
 * the sum over all parts. So between two such nodes one part's values are alive at a time, gradients of the
 * logits among them. Attention that is still made of its products goes by rows of queries, beside whole keys.
 *
 * Of the forward stays what another run reads: the sum that goes on from block to block, attention's operands. What
 * the backward reads beyond that is made again for its part right before the part's backward (saved=again), so that
 * never more than one part's values of a block are there. Behind `recompute` a block's operands of attention are made
 * again, too: its copies are nodes like others.
 *
 * Rounding: sums over the tokens (weight gradients, the loss) are made part by part.
 *
 * Leaves whole what mixes the sequence, draws without a key, or has no rule; declines where the sequence is not
 * divisible by the number of parts, or nothing goes row by row.
 *
 * Paper: Luo et al., "StreamBP: Memory-Efficient Exact Backpropagation for Long Sequence Training of LLMs", 2025.
 */
#include "onnx/graph/infer.h"
#include "passes/memory/rounding/batch_split.h"

typedef ebb_batch_form form;
typedef ebb_batch_split splitting;

typedef struct streaming {
    splitting split;
    int64_t length;   /* of the sequence */
    ebb_node *run;    /* that are not emitted yet */
    size_t count;     /* of them */
    uint32_t *number; /* by value id: in which run it is made, from 1 */
    uint32_t runs;    /* that are over */
    bool planned;     /* forms, runs and what is made again are known: nodes are moved and made */
    uint32_t *in_run; /* by node id: from 1; 0: it is whole */
    bool *joined;     /* by value id: put together */
    bool *crosses; /* by value id: a later run of the forward reads it in parts, so each is kept */
    uint32_t *asked;  /* by node id: the run that asked for it again last */
    bool *kept;       /* by run: what the backward reads of it stays */
    ebb_node *cloned; /* all of them, in order */
    size_t cloned_count;
    ebb_node *again; /* of the present run */
    size_t again_count;
} streaming;

/* ---- what goes row by row ---- */

static bool is_known(const splitting *s, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    int64_t count;
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0 &&
            (!ebb_type_is_static(ebb_value_of(s->g, info->out[k])->type) ||
             !ebb_type_elements(ebb_value_of(s->g, info->out[k])->type, &count)))
            return false;
    return info->in_count <= EBB_BATCH_OPERANDS && info->out_count <= EBB_BATCH_OPERANDS;
}

static bool has_axis(const splitting *s, ebb_value v)
{
    return v.i != 0 && s->form[v.i].axis >= 0;
}

/* What the rule says where only input `alone` is in parts; -1: all whose axis is known. NULL in *b: it refuses. */
static ebb_status ask_rule(const splitting *s, ebb_node n, int alone, ebb_batch_node **b)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    *b = EBB_SCRATCH(s->e, ebb_batch_node, 1);
    EBB_GOT(*b);
    **b = (ebb_batch_node){.g = s->g, .n = n, .scratch = s->e->scratch, .parts = s->parts};
    for (uint32_t i = 0; i < info->in_count; i++) {
        (*b)->in[i] = (form){EBB_BATCH_WHOLE, -1, 0};
        if (has_axis(s, info->in[i]) && (alone < 0 || alone == (int)i))
            (*b)->in[i] =
                (form){EBB_BATCH_PARTS, s->form[info->in[i].i].axis, s->form[info->in[i].i].outer};
    }
    if (ebb_batch_rule(*b) != NULL)
        *b = NULL;
    return NULL;
}

/* Whether n may be computed in parts as the rule says: each output is a part or a sum, and no subgraph reads it. */
static bool may_go(const splitting *s, ebb_node n, const ebb_batch_node *b)
{
    const ebb_node_info *info = ebb_node_of(s->g, n);
    const bool draws = ebb_op_has(info->op, EBB_RANDOM) && !ebb_op_has(info->op, EBB_KEYED);
    if (info->phase == EBB_UPDATE || draws || !ebb_batch_has_floats(s->g, n))
        return false;
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0 &&
            ((b->out[k].where != EBB_BATCH_PARTS && b->out[k].where != EBB_BATCH_SUM) ||
             (ebb_value_of(s->g, info->out[k])->flags & EBB_IS_CAPTURED) != 0))
            return false;
    const ebb_value labels = b->weighs ? ebb_in(s->g, n, ebb_batch_labels(info->op)) : EBB_NO_VALUE;
    return labels.i == 0 || s->form[labels.i].where == EBB_BATCH_WHOLE;
}

/* The sequence's axis in a value that is there whole: any can be sliced, so a guess does no harm. */
static form guess(const streaming *t, ebb_node n, ebb_value v)
{
    const splitting *s = &t->split;
    const ebb_type *type = ebb_value_of(s->g, v)->type;
    int axis = -1, found = 0;
    for (uint32_t i = 0; i < ebb_node_of(s->g, n)->in_count; i++) {
        const ebb_value x = ebb_in(s->g, n, i);
        const form f = has_axis(s, x) ? s->form[x.i] : (form){.axis = -1};
        if (f.axis >= 0 && type->rank == ebb_value_of(s->g, x)->type->rank &&
            type->dims[f.axis] == ebb_value_of(s->g, x)->type->dims[f.axis])
            return (form){EBB_BATCH_WHOLE, f.axis, f.outer};
    }
    for (int d = 0; d < type->rank && type->rank > 2; d++)
        if (type->dims[d] == t->length) {
            axis = d;
            found++;
        }
    return (form){EBB_BATCH_WHOLE, found == 1 ? axis : -1, found == 1};
}

static bool reads_axis(const splitting *s, ebb_node n)
{
    bool any = false;
    for (uint32_t i = 0; i < ebb_node_of(s->g, n)->in_count; i++)
        any = any || has_axis(s, ebb_in(s->g, n, i));
    return any;
}

/* *b: how n is computed in parts; NULL: it is not. Forms of what it makes. */
static ebb_status decide(streaming *t, ebb_node n, ebb_batch_node **b)
{
    splitting *s = &t->split;
    const ebb_node_info *info = ebb_node_of(s->g, n);
    ebb_batch_node *told = NULL;
    *b = NULL;
    if (info->phase == EBB_UPDATE || !is_known(s, n) || !reads_axis(s, n))
        return NULL;
    for (int alone = -1; alone < (int)info->in_count && *b == NULL; alone++) {
        if (alone >= 0 && !has_axis(s, info->in[alone]))
            continue;
        EBB_TRY(ask_rule(s, n, alone, b));
        told = told != NULL ? told : *b;
        if (*b != NULL && !may_go(s, n, *b))
            *b = NULL;
    }
    for (uint32_t k = 0; k < info->out_count; k++) {
        const ebb_value v = info->out[k];
        if (v.i == 0)
            continue;
        s->form[v.i] = guess(t, n, v);
        if (told != NULL && told->out[k].where == EBB_BATCH_PARTS)
            s->form[v.i] = (form){*b != NULL ? EBB_BATCH_PARTS : EBB_BATCH_WHOLE, told->out[k].axis,
                                  told->out[k].outer};
        if (*b == NULL)
            continue;
        if ((*b)->out[k].where == EBB_BATCH_PARTS)
            s->form[v.i] = (*b)->out[k];
        else
            s->early[v.i] = s->needed[v.i] = true; // the sum is what others read
    }
    return NULL;
}

/* ---- in order ---- */

/* ---- what the backward reads of an earlier run ---- */

/* Of the forward, or a copy of that in the backward (passes/budget/planners/apply.c). */
static bool is_forward(const ebb_graph *g, ebb_node n)
{
    return !ebb_is_backward(g, n) ||
           ebb_props_get(g, &ebb_node_of(g, n)->props, "ebb.copied_from") != NULL;
}

/* It is made again for each part, if its run is: not what goes on in parts, or is put together. */
static bool may_go_again(const streaming *t, ebb_value v)
{
    const splitting *s = &t->split;
    if (v.i == 0 || t->number[v.i] == 0 || t->crosses[v.i] || t->joined[v.i] ||
        s->form[v.i].where != EBB_BATCH_PARTS)
        return false;
    const ebb_node maker = ebb_value_of(s->g, v)->producer;
    for (uint32_t k = 0; k < ebb_node_of(s->g, maker)->out_count; k++)
        if (s->early[ebb_out(s->g, maker, k).i])
            return false; // a sum would count twice
    return is_forward(s->g, maker);
}

/* Its parts are not there any more when a run of the backward reads them. */
static bool goes(const streaming *t, ebb_value v)
{
    return may_go_again(t, v) && t->number[v.i] != t->runs + 1 && !t->kept[t->number[v.i]];
}

static bool is_read_back(const streaming *t, ebb_value v, bool elsewhere)
{
    const ebb_graph *g = t->split.g;
    const ebb_value_info *info = ebb_value_of(g, v);
    for (size_t i = 0; i < info->use_count; i++) {
        const ebb_node n = info->uses[i].node;
        if (ebb_is_backward(g, n) && (!elsewhere || t->in_run[n.i] != t->number[v.i]))
            return true;
    }
    return false;
}

/* Whether what goes of a run is more than what must stay to make it again: what earlier passes chose to save is
 * little, and made of more. */
static ebb_status weigh_runs(streaming *t, bool keeps)
{
    const splitting *s = &t->split;
    int64_t *gain = EBB_SCRATCH(s->e, int64_t, t->runs + (size_t)2);
    uint32_t *counted =
        EBB_SCRATCH(s->e, uint32_t, s->value_count); // as what must stay, for that run
    bool *again = EBB_SCRATCH(s->e, bool, s->node_count);
    t->kept = EBB_SCRATCH(s->e, bool, t->runs + (size_t)2);
    EBB_GOT(gain && counted && again && t->kept);
    for (size_t c = t->cloned_count; c-- > 0;) {
        const ebb_node n = t->cloned[c];
        const ebb_node_info *info = ebb_node_of(s->g, n);
        const uint32_t run = t->in_run[n.i];
        for (uint32_t k = 0; k < info->out_count; k++)
            if (may_go_again(t, info->out[k]) && is_read_back(t, info->out[k], true)) {
                gain[run] += ebb_stored_bytes(s->g, info->out[k]);
                again[n.i] = true;
            }
        for (uint32_t i = 0; again[n.i] && i < info->in_count; i++) {
            const ebb_value x = info->in[i];
            if (x.i == 0)
                continue;
            const ebb_value_info *of = ebb_value_of(s->g, x);
            if (may_go_again(t, x) && t->number[x.i] == run) {
                again[of->producer.i] = true;
            } else if (of->producer.i != 0 && counted[x.i] != run && !is_read_back(t, x, false)) {
                counted[x.i] = run;
                gain[run] -= ebb_stored_bytes(s->g, x);
            }
        }
    }
    for (uint32_t r = 0; r <= t->runs + 1; r++)
        t->kept[r] = keeps || gain[r] <= 0;
    return NULL;
}

/* Marks the nodes that n needs again; later ones are asked first. */
static void ask_again(streaming *t, ebb_node n)
{
    const splitting *s = &t->split;
    const ebb_node_info *info = ebb_node_of(s->g, n);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (s->rule[n.i]->in[i].where == EBB_BATCH_PARTS && goes(t, info->in[i]))
            t->asked[ebb_value_of(s->g, info->in[i])->producer.i] = t->runs + 1;
}

static void find_again(streaming *t)
{
    t->again_count = 0;
    for (size_t k = 0; k < t->count; k++)
        if (ebb_is_backward(t->split.g, t->run[k]))
            ask_again(t, t->run[k]);
    for (size_t k = t->cloned_count; k-- > 0;)
        if (t->asked[t->cloned[k].i] == t->runs + 1)
            ask_again(t, t->cloned[k]);
    for (size_t k = 0; k < t->cloned_count; k++)
        if (t->asked[t->cloned[k].i] == t->runs + 1)
            t->again[t->again_count++] = t->cloned[k];
}

/* What was put together is read there from now on: its parts may go. And slices that another run took. */
static void forget_parts(streaming *t)
{
    splitting *s = &t->split;
    memset(s->slices, 0, s->value_count * sizeof *s->slices);
    for (size_t k = 0; k < t->cloned_count; k++)
        for (uint32_t o = 0; o < ebb_node_of(s->g, t->cloned[k])->out_count; o++) {
            const ebb_value v = ebb_out(s->g, t->cloned[k], o);
            if (v.i != 0 && s->whole[v.i].i != 0)
                memset(s->part[v.i], 0, (size_t)s->parts * sizeof *s->part[v.i]);
        }
}

static ebb_status emit_run(streaming *t)
{
    splitting *s = &t->split;
    find_again(t);
    forget_parts(t);
    for (int64_t i = 0; i < s->parts; i++) {
        s->again = true;
        for (size_t k = 0; k < t->again_count; k++)
            EBB_TRY(ebb_batch_compute(s, t->again[k], i));
        s->again = false;
        for (size_t k = 0; k < t->count; k++)
            EBB_TRY(ebb_batch_compute(s, t->run[k], i));
    }
    t->runs += t->count > 0;
    t->count = 0;
    return NULL;
}

/* Made in parts, and read whole: its run comes first, and it is put together. */
static ebb_status need_whole(streaming *t, ebb_value v, ebb_value *whole)
{
    splitting *s = &t->split;
    *whole = v;
    if (v.i == 0 || v.i >= s->value_count || t->number[v.i] == 0)
        return NULL;
    if (t->number[v.i] == t->runs + 1 && t->planned)
        EBB_TRY(emit_run(t));
    else if (t->number[v.i] == t->runs + 1)
        t->runs++;
    t->joined[v.i] = t->joined[v.i] || !s->early[v.i];
    if (!t->planned)
        return NULL;
    if (!s->early[v.i])
        return ebb_batch_whole(s, v, whole);
    *whole = s->sum[v.i];
    return NULL;
}

static ebb_status take_whole(streaming *t, ebb_node n)
{
    splitting *s = &t->split;
    s->b.phase = (ebb_phase)ebb_node_of(s->g, n)->phase;
    for (uint32_t i = 0; i < ebb_node_of(s->g, n)->in_count; i++) {
        ebb_value whole;
        EBB_TRY(need_whole(t, ebb_in(s->g, n, i), &whole));
        if (!ebb_same_value(whole, ebb_in(s->g, n, i)))
            EBB_TRY(ebb_node_set_input(s->g, n, i, whole));
    }
    if (t->planned)
        ebb_node_move(s->g, n, EBB_NO_NODE);
    return NULL;
}

static ebb_status take_in_parts(streaming *t, ebb_node n)
{
    splitting *s = &t->split;
    const ebb_batch_node *b = s->rule[n.i];
    const ebb_node_info *info = ebb_node_of(s->g, n);
    s->b.phase = (ebb_phase)info->phase;
    for (uint32_t i = 0; i < info->in_count; i++) {
        const ebb_value v = info->in[i];
        ebb_value whole;
        const form own = s->form[v.i], wanted = b->in[i];
        const bool in_parts = wanted.where == EBB_BATCH_PARTS && own.where == EBB_BATCH_PARTS &&
                              wanted.axis == own.axis && wanted.outer == own.outer;
        if (!in_parts)
            EBB_TRY(need_whole(t, v, &whole));
        else if (t->number[v.i] != t->runs + 1 && is_forward(s->g, n))
            t->crosses[v.i] = true;
    }
    for (uint32_t k = 0; k < info->out_count; k++)
        t->number[info->out[k].i] = info->out[k].i != 0 ? t->runs + 1 : 0;
    if (t->planned) {
        t->run[t->count++] = n;
        return ebb_batch_make_room(s, n);
    }
    t->in_run[n.i] = t->runs + 1;
    t->cloned[t->cloned_count++] = n;
    return NULL;
}

/* Outputs and what states are replaced by. */
static ebb_status put_ends(streaming *t)
{
    splitting *s = &t->split;
    s->b.phase = EBB_BACKWARD;
    for (size_t i = 0; i < s->g->output_count; i++) {
        const ebb_value v = s->g->outputs[i];
        if (v.i < s->value_count && t->number[v.i] != 0)
            EBB_TRY(ebb_batch_put_together(s, v));
    }
    for (size_t i = 0; i < s->g->binding_count; i++) {
        const ebb_value v = s->g->bindings[i].next;
        if (v.i < s->value_count && t->number[v.i] != 0)
            EBB_TRY(ebb_batch_put_together(s, v));
    }
    return NULL;
}

static ebb_status take(streaming *t, ebb_node n)
{
    return t->split.rule[n.i] != NULL ? take_in_parts(t, n) : take_whole(t, n);
}

static ebb_status stream(streaming *t, bool keeps)
{
    splitting *s = &t->split;
    ebb_node *list = EBB_SCRATCH(s->e, ebb_node, s->node_count + 1);
    size_t count = 0;
    t->run = EBB_SCRATCH(s->e, ebb_node, s->node_count + 1);
    t->cloned = EBB_SCRATCH(s->e, ebb_node, s->node_count + 1);
    t->again = EBB_SCRATCH(s->e, ebb_node, s->node_count + 1);
    t->number = EBB_SCRATCH(s->e, uint32_t, s->value_count);
    t->crosses = EBB_SCRATCH(s->e, bool, s->value_count);
    t->joined = EBB_SCRATCH(s->e, bool, s->value_count);
    t->asked = EBB_SCRATCH(s->e, uint32_t, s->node_count);
    t->in_run = EBB_SCRATCH(s->e, uint32_t, s->node_count);
    EBB_GOT(list && t->run && t->cloned && t->again && t->number && t->crosses && t->asked &&
            t->joined && t->in_run);
    EBB_EACH_NODE(s->g, n)
        list[count++] = n;
    s->b = ebb_build_at(s->g, EBB_NO_NODE, EBB_FORWARD, s->e->pass->name);
    for (size_t i = 0; i < count; i++) {
        EBB_TRY(decide(t, list[i], &s->rule[list[i].i]));
        EBB_TRY(take(t, list[i]));
    }
    EBB_TRY(weigh_runs(t, keeps));
    t->planned = true;
    t->runs = 0;
    memset(t->number, 0, s->value_count * sizeof *t->number);
    for (size_t i = 0; i < count; i++)
        EBB_TRY(take(t, list[i]));
    EBB_TRY(emit_run(t));
    EBB_TRY(put_ends(t));
    while (t->cloned_count-- > 0)
        ebb_edit_remove(s->e, t->cloned[t->cloned_count]);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    streaming t = {.split = {.e = e, .g = e->g, .parts = ebb_option_int(e, "parts")}};
    splitting *s = &t.split;
    const char *why = NULL;
    s->axis = (int)ebb_option_int(e, "axis");
    if (ebb_batch_is_split(e))
        return ebb_declined(e, EBB_NO_NODE, "the sequence is in parts already");
    EBB_TRY(ebb_require_static(e->g));
    EBB_TRY(ebb_batch_begin(s, &why));
    if (why != NULL)
        return ebb_declined(e, EBB_NO_NODE, "no input has a sequence that is divisible so");
    for (size_t i = 0; i < e->g->input_count && t.length == 0; i++)
        if (has_axis(s, e->g->inputs[i]))
            t.length = ebb_value_of(e->g, e->g->inputs[i])->type->dims[s->axis];
    ebb_found(e);
    EBB_TRY(stream(&t, strcmp(ebb_option_string(e, "saved"), "kept") == 0));
    if (t.runs == 0)
        return ebb_skipped(e, EBB_NO_NODE, "nothing goes row by row");
    ebb_applied(e);
    return ebb_note(e, "%lld tokens in %lld parts, in %u runs between nodes that need them all",
                    (long long)t.length, (long long)s->parts, t.runs);
}

// clang-format off
static const ebb_option options[] = {
    {"parts", EBB_OPTION_INT, "4", "[2, 4096]", "how many; the sequence must be divisible by it"},
    {"axis",  EBB_OPTION_INT, "1", "[0, 11]",   "the sequence's in the graph inputs"},
    {"saved", EBB_OPTION_CHOICE, "again", "again|kept", "what the backward reads of a part: made again with its backward, or kept"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_stream_bp = {
    .name = "stream-bp",
    .doc = "compute what goes row by row for parts of the sequence, forward and backward",
    .paper = "Luo et al., \"StreamBP: Memory-Efficient Exact Backpropagation for Long Sequence "
             "Training of "
             "LLMs\", 2025 (arXiv 2506.03077)",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
