/* loop.c: the gradient of a Scan is a Scan over the same steps, last first.
 *
 *   forward    h, all = Scan (h0, x)                  step t: h2, out = b(h, x[t]) with captured w
 *   becomes    h, all, s = Scan (h0, x)               s[t]: what the backward reads of step t
 *   backward   dh0, dw, dx = Scan (dh, 0, dall, x, s) step t, from the last: dh, dw += , dx[t]
 *
 * One copy of the body gets its own backward, by the same reverse mode as any graph. Then it is parted:
 * the forward's nodes go with the forward, where what the backward's nodes read of them becomes an output
 * that is put together over the steps, and an input of the backward that is walked through from the end.
 * A state's gradient goes from step to step as the state did, so it is a state of the backward; what the
 * body reads by name gets a sum, which is a state, too, and begins with what later nodes have given: so a
 * loop in several parts adds up as one does. Slices of what was scanned are read again where
 * they are, views are made again, and what the forward puts together anyway is kept once. With loops=again
 * states alone are kept, and the backward computes each step again: the same bits, in less memory.
 */
#include "passes/gradient/loop_parts.h"

/* ---- which values have a gradient ---- */

static bool is_float(const ebb_graph *g, ebb_value v)
{
    return ebb_dtype_is_float((ebb_dtype)ebb_value_of(g, v)->type->dtype);
}

/* What a state gets from a later step, and gives to one, counts: until nothing changes. */
static void mark(ebb_loop_back *l)
{
    ebb_reverse *v = &l->v;
    const ebb_graph *j = l->joint;
    for (bool again = true; again;) {
        again = false;
        memset(v->counts, 0, v->value_count * sizeof *v->counts);
        memset(v->left, 0, v->value_count * sizeof *v->left);
        ebb_reverse_mark(v);
        for (uint32_t i = 0; i < l->s.states; i++) {
            ebb_value old = j->inputs[i], new = j->outputs[i];
            if (v->wants[new.i] && !v->trains[old.i])
                again = v->trains[old.i] = true;
            if (v->counts[old.i] && !v->ys[new.i])
                again = v->ys[new.i] = true;
        }
    }
}

static ebb_status open(ebb_loop_back *l, const bool *wants)
{
    ebb_reverse *v = &l->v;
    for (bool changed = true; changed;) {
        *v = (ebb_reverse){.e = &l->inner, .g = l->joint, .nameless = true};
        v->straight = l->r->straight;
        v->again = l->r->again;
        EBB_TRY(ebb_reverse_open(v, EBB_NO_NODE));
        v->ys = EBB_SCRATCH(l->r->e, bool, v->value_count);
        EBB_GOT(v->ys);
        for (uint32_t i = 0; i < l->s.states + l->s.inputs; i++)
            v->trains[l->joint->inputs[i].i] = wants[i] && is_float(l->joint, l->joint->inputs[i]);
        for (size_t i = 0; i < l->captured_count; i++) {
            ebb_value x = l->captured[i].x;
            v->trains[ebb_value_find(l->joint, ebb_value_name(l->r->g, x)).i] =
                l->r->wants[x.i] && is_float(l->r->g, x);
        }
        for (uint32_t k = 0; k < l->s.states + l->s.outputs; k++)
            v->ys[l->joint->outputs[k].i] = l->dy[k].i != 0;
        mark(l);
        EBB_TRY(ebb_reverse_expand(v, &changed));
    }
    EBB_TRY(ebb_reverse_find_unsupported(v));
    return ebb_reverse_say_unsupported(v);
}

/* ---- the backward of one step ---- */

static ebb_status add_input(ebb_loop_back *l, ebb_value *v, ebb_value like)
{
    EBB_TRY(ebb_value_add(l->joint, v, NULL, ebb_value_of(l->joint, like)->type));
    return ebb_graph_add_input(l->joint, *v);
}

static ebb_status reverse_step(ebb_loop_back *l)
{
    ebb_reverse *v = &l->v;
    for (uint32_t k = 0; k < l->s.states + l->s.outputs; k++) {
        ebb_value y = l->joint->outputs[k];
        const bool arrives = v->ys[y.i] && v->wants[y.i];
        // what a state gets in a step goes to the step before, whether that one's is made of it or not
        if (!arrives && !(k < l->s.states && v->counts[l->inputs[k].i]))
            continue;
        EBB_TRY(add_input(l, &l->given[k], y));
        if (arrives)
            v->grad[y.i] = l->given[k];
    }
    v->b = ebb_edit_build(&l->inner, EBB_NO_NODE, EBB_BACKWARD);
    v->b.phase = EBB_BACKWARD;
    l->forward_nodes = l->joint->node_count;
    return ebb_reverse_run(v);
}

/* ---- its outputs ---- */

static bool is_of_forward(const ebb_loop_back *l, ebb_node n)
{
    return n.i != 0 && n.i < l->forward_nodes;
}

/* Made by a node of the backward, and by no other output's. */
static ebb_value apart(ebb_loop_back *l, const ebb_value *made, size_t count, ebb_value v)
{
    ebb_node p = ebb_value_of(l->joint, v)->producer;
    bool is_apart = p.i != 0 && !is_of_forward(l, p);
    for (size_t i = 0; i < count; i++)
        is_apart = is_apart && !ebb_same_value(made[i], v);
    return is_apart ? v : ebb_emit(&l->v.b, EBB_OP_IDENTITY, v);
}

/* ---- what the backward reads of the forward ---- */

static ebb_status save(ebb_loop_back *l, ebb_value v, ebb_loop_source from, uint32_t k)
{
    for (size_t i = 0; i < l->count; i++)
        if (ebb_same_value(l->list[i].v, v))
            return NULL;
    EBB_GOT(ebb_arena_grow(l->r->e->scratch, &l->list, l->count, &l->capacity, sizeof *l->list));
    l->list[l->count++] = (ebb_loop_saved){v, from, k};
    return NULL;
}

/* The node's output that puts v together over the steps. */
static bool is_made(const ebb_loop_back *l, ebb_value v, uint32_t *k)
{
    for (*k = 0; *k < l->s.outputs; ++*k)
        if (ebb_same_value(l->equal[*k], v) && ebb_out(l->r->g, l->n, l->s.states + *k).i != 0)
            return true;
    return false;
}

static bool is_made_again(const ebb_loop_back *l, const ebb_node_info *node)
{
    return ebb_op_has(node->op, EBB_VIEW) || (l->r->again && !ebb_draws_by_name(node));
}

/* One operand of a node of the backward, or of a view that is made again: that node reads, too. */
static ebb_status find_operand(ebb_loop_back *l, ebb_value v, bool *reads)
{
    const uint32_t given = l->s.states + l->s.inputs;
    ebb_node p = ebb_value_of(l->joint, v)->producer;
    uint32_t k = 0;
    while (k < given && !ebb_same_value(v, l->inputs[k]))
        k++;
    if (k < given)
        return save(l, v, k < l->s.states ? EBB_LOOP_STACKED : EBB_LOOP_SCANNED,
                    k < l->s.states ? 0 : k - l->s.states);
    if (!is_of_forward(l, p)) {
        reads[p.i] = true;
        return NULL;
    }
    if (is_made(l, v, &k))
        return save(l, v, EBB_LOOP_KEPT, k);
    if (!is_made_again(l, ebb_node_of(l->joint, p)))
        return save(l, v, EBB_LOOP_STACKED, 0);
    reads[p.i] = true;
    return NULL;
}

/* What the body of a loop within reads by name. */
static ebb_status find_named(ebb_loop_back *l, ebb_node n, bool *reads)
{
    uint32_t count;
    const ebb_value *list = ebb_captures_of(l->joint, n, l->r->e->scratch, &count);
    EBB_GOT(list);
    for (uint32_t i = 0; i < count; i++)
        EBB_TRY(find_operand(l, list[i], reads));
    return NULL;
}

/* From what the backward makes back to what it reads; what it emitted for nothing reads nothing. */
static ebb_status find_saved(ebb_loop_back *l)
{
    bool *reads = EBB_SCRATCH(l->r->e, bool, l->joint->node_count);
    EBB_GOT(reads);
    for (uint32_t i = 0; i < l->o.out_count; i++)
        reads[ebb_value_of(l->joint, l->o.out[i])->producer.i] = true;
    for (ebb_node n = ebb_last(l->joint); n.i != 0; n = ebb_prev(l->joint, n)) {
        const ebb_node_info *info = ebb_node_of(l->joint, n);
        for (uint32_t i = 0; reads[n.i] && i < info->in_count; i++)
            if (info->in[i].i != 0)
                EBB_TRY(find_operand(l, info->in[i], reads));
        if (reads[n.i] && info->op == EBB_OP_SCAN)
            EBB_TRY(find_named(l, n, reads));
    }
    return NULL;
}

/* ---- what it takes over from step to step, and makes ---- */

static bool make_room(ebb_loop_back *l)
{
    const size_t in = l->s.states + l->captured_count + l->s.outputs + l->joint->value_count,
                 out = l->s.states + l->captured_count + l->s.inputs + 1;
    ebb_arena *scratch = l->r->e->scratch;
    ebb_loop_operands *o = &l->o;
    o->in = EBB_NEW(scratch, ebb_value, in);
    o->outside = EBB_NEW(scratch, ebb_value, in);
    o->axes = EBB_NEW(scratch, int64_t, in);
    o->directions = EBB_NEW(scratch, int64_t, in);
    o->out = EBB_NEW(scratch, ebb_value, out);
    o->out_axes = EBB_NEW(scratch, int64_t, out);
    o->out_directions = EBB_NEW(scratch, int64_t, out);
    return o->in != NULL && o->outside != NULL && o->axes != NULL && o->directions != NULL &&
           o->out != NULL && o->out_axes != NULL && o->out_directions != NULL;
}

static void carry(ebb_loop_back *l, ebb_value in, ebb_value outside, ebb_value out)
{
    l->o.in[l->o.count] = in;
    l->o.outside[l->o.count++] = outside;
    l->o.out[l->o.out_count++] = out;
}

/* Gradients of states, and sums. */
static ebb_status carry_states(ebb_loop_back *l)
{
    ebb_build *b = &l->v.b;
    const ebb_graph *g = l->r->g;
    for (uint32_t i = 0; i < l->s.states; i++) {
        if (l->given[i].i == 0)
            continue;
        ebb_value d = l->v.grad[l->inputs[i].i];
        ebb_value last = l->dy[i];
        if (d.i == 0)
            d = ebb_emit_zeros_like(b, l->inputs[i]);
        if (last.i == 0)
            last = ebb_emit_zeros_like(&l->r->b, ebb_in(g, l->n, i));
        EBB_TRY(b->status);
        carry(l, l->given[i], last, apart(l, l->o.out, l->o.out_count, d));
    }
    for (size_t i = 0; i < l->captured_count; i++) {
        ebb_value x = ebb_value_find(l->joint, ebb_value_name(g, l->captured[i].x));
        ebb_value d = l->v.trains[x.i] ? l->v.grad[x.i] : EBB_NO_VALUE;
        if (d.i == 0)
            continue;
        ebb_value so_far = l->captured[i].dx;
        if (so_far.i == 0)
            so_far = ebb_emit_zeros_like(&l->r->b, l->captured[i].x);
        EBB_TRY(add_input(l, &l->sum[i], x));
        carry(l, l->sum[i], so_far, ebb_emit(b, EBB_OP_ADD, l->sum[i], d));
    }
    l->o.states = l->o.count;
    EBB_TRY(b->status);
    return l->r->b.status;
}

static bool has_slices(const ebb_loop_back *l, uint32_t j)
{
    ebb_value x = l->inputs[l->s.states + j];
    return l->v.trains[x.i] && l->v.grad[x.i].i != 0;
}

static ebb_status make_slices(ebb_loop_back *l)
{
    ebb_loop_operands *o = &l->o;
    for (uint32_t j = 0; j < l->s.inputs; j++) {
        ebb_slices slices;
        if (!has_slices(l, j))
            continue;
        const char *why = ebb_scan_slices(&slices, l->r->g, l->n, false, j);
        if (why != NULL)
            return ebb_error(EBB_UNSUPPORTED, "%s: %s", ebb_node_label(l->r->g, l->n), why);
        o->out_axes[o->out_count - o->states] = slices.axis;
        o->out_directions[o->out_count - o->states] = !slices.backwards;
        ebb_value d = l->v.grad[l->inputs[l->s.states + j].i];
        d = apart(l, o->out, o->out_count, d);
        o->out[o->out_count++] = d;
    }
    return l->v.b.status;
}

/* ---- all ---- */

static ebb_status copy_body(ebb_loop_back *l)
{
    ebb_arena *scratch = l->r->e->scratch;
    EBB_TRY(ebb_graph_copy(&l->joint, l->r->g, l->s.body));
    l->inner = *l->r->e;
    l->inner.g = l->joint;
    l->inner.report = &l->unread;
    l->unread = (ebb_report){.pass = l->r->e->pass->name};
    l->given = EBB_NEW(scratch, ebb_value, l->s.states + l->s.outputs + (size_t)1);
    l->sum = EBB_NEW(scratch, ebb_value, l->captured_count + 1);
    l->inputs = EBB_NEW(scratch, ebb_value, l->s.states + l->s.inputs + (size_t)1);
    l->equal = EBB_NEW(scratch, ebb_value, l->s.outputs + (size_t)1);
    return l->given == NULL || l->sum == NULL || l->inputs == NULL || l->equal == NULL
               ? ebb_error_memory()
               : NULL;
}

/* The lists of the body, which stay as they are while it gets its backward. */
static void look_at_body(ebb_loop_back *l)
{
    memcpy(l->inputs, l->joint->inputs, (l->s.states + l->s.inputs) * sizeof *l->inputs);
    for (uint32_t k = 0; k < l->s.outputs; k++) {
        ebb_value y = l->joint->outputs[l->s.states + k];
        l->equal[k] = ebb_producer_op(l->joint, y) == EBB_OP_IDENTITY
                          ? ebb_in(l->joint, ebb_value_of(l->joint, y)->producer, 0)
                          : y;
    }
}

static ebb_status differentiate(ebb_loop_back *l, const bool *wants, ebb_value *dx)
{
    EBB_TRY(copy_body(l));
    EBB_TRY(open(l, wants));
    look_at_body(l);
    EBB_TRY(reverse_step(l));
    EBB_GOT(make_room(l));
    EBB_TRY(carry_states(l));
    EBB_TRY(make_slices(l));
    if (l->o.out_count == 0)
        return NULL;
    EBB_TRY(find_saved(l));
    ebb_value *made = EBB_SCRATCH(l->r->e, ebb_value, l->o.out_count + (size_t)1);
    EBB_GOT(made);
    EBB_TRY(ebb_loop_part(l, made));
    for (uint32_t i = 0; i < l->s.states; i++)
        if (l->given[i].i != 0) {
            dx[i] = wants[i] ? *made : EBB_NO_VALUE;
            made++;
        }
    for (size_t i = 0; i < l->captured_count; i++)
        if (l->sum[i].i != 0)
            l->captured[i].dx = *made++;
    for (uint32_t j = 0; j < l->s.inputs; j++)
        if (has_slices(l, j))
            dx[l->s.states + j] = *made++;
    return NULL;
}

ebb_status ebb_loop_grad(ebb_reverse *r, ebb_node n, const ebb_value *dy, const bool *wants,
                         ebb_value *dx, ebb_captured_grad *captured, size_t count)
{
    ebb_loop_back l = {.r = r, .n = n, .captured = captured, .captured_count = count};
    const char *why = ebb_scan_read(&l.s, r->g, n);
    if (why != NULL)
        return ebb_error(EBB_UNSUPPORTED, "%s: %s", ebb_node_label(r->g, n), why);
    const ebb_node_info *info = ebb_node_of(r->g, n);
    l.name = ebb_text(r->g, info->name);
    for (uint32_t k = 0; k < info->out_count && l.name[0] == '\0'; k++)
        l.name = ebb_value_name(r->g, info->out[k]);
    ebb_value *all = EBB_SCRATCH(r->e, ebb_value, l.s.states + l.s.outputs + (size_t)1);
    EBB_GOT(all);
    memcpy(all, dy, info->out_count * sizeof *all);
    l.dy = all;
    return differentiate(&l, wants, dx);
}
