/* loop.c: see loop.h. */
#include "exec/weigh/loop.h"

#include "exec/weigh/call.h"

/* ---- where the values of the body lie ---- */

typedef struct layout {
    ebb_loop *loop;
    ebb_arena *arena, *scratch;
    const ebb_graph *g, *body;
    ebb_node n;
    bool *elsewhere; /* by value id of the body */
    const char *why;
} layout;

static ebb_status refuse(const layout *l, const char *why)
{
    return ebb_error(EBB_UNSUPPORTED, "%s: it cannot be run as a loop: %s",
                     ebb_node_label(l->g, l->n), why);
}

static void put(layout *l, ebb_value v, ebb_loop_where where, uint32_t k)
{
    l->loop->spots[v.i] = (struct ebb_loop_spot){where, k};
    l->elsewhere[v.i] = true;
}

static bool same_type(const ebb_type *a, const ebb_type *b)
{
    return a->kind == EBB_KIND_TENSOR && b->kind == EBB_KIND_TENSOR && a->dtype == b->dtype &&
           ebb_type_is_static(a) && ebb_type_same_shape(a, b);
}

/* Addresses are enough only where each output is made by a node, and no value is listed twice. */
static const char *outputs_are_apart(const ebb_graph *body)
{
    for (size_t i = 0; i < body->output_count; i++) {
        if (ebb_value_of(body, body->outputs[i])->producer.i == 0)
            return "its body hands a value on that none of its nodes makes";
        for (size_t k = 0; k < i; k++)
            if (ebb_same_value(body->outputs[i], body->outputs[k]))
                return "its body hands a value on twice";
    }
    for (size_t i = 0; i < body->input_count; i++)
        for (size_t k = 0; k < i; k++)
            if (ebb_same_value(body->inputs[i], body->inputs[k]))
                return "its body takes a value twice";
    return NULL;
}

static ebb_status place_fixed(layout *l)
{
    ebb_loop *loop = l->loop;
    loop->fixed = EBB_NEW(l->arena, struct ebb_loop_fixed, l->body->value_count + 1);
    EBB_GOT(loop->fixed);
    EBB_EACH_VALUE(l->body, v) {
        const ebb_value_info *info = ebb_value_of(l->body, v);
        struct ebb_loop_fixed *f = &loop->fixed[loop->fixed_count];
        if (info->dead || (info->flags & (EBB_IS_OUTER | EBB_IS_INITIALIZER)) == 0 ||
            (info->flags & EBB_IS_INPUT) != 0)
            continue;
        *f = (struct ebb_loop_fixed){0};
        if ((info->flags & EBB_IS_OUTER) != 0) {
            f->outside = ebb_value_find(l->g, ebb_value_name(l->body, v));
            if (!same_type(ebb_value_of(l->g, f->outside)->type, info->type))
                return refuse(l, "what its body reads from outside has another type there");
        } else if (info->tensor == NULL || info->tensor->data == NULL) {
            return refuse(l, "its body has an initializer without bytes");
        } else { // it may lie anywhere in a file
            size_t bytes;
            char *own;
            if (!ebb_type_bytes(info->type, &bytes) || bytes != info->tensor->bytes)
                return refuse(l, "its body has an initializer of another size than its type says");
            own = ebb_arena_alloc(l->arena, bytes + EBB_ALIGN);
            EBB_GOT(own);
            own += (EBB_ALIGN - (uintptr_t)own % EBB_ALIGN) % EBB_ALIGN;
            memcpy(own, info->tensor->data, bytes);
            f->data = own;
        }
        put(l, v, EBB_LOOP_FIXED, loop->fixed_count++);
    }
    return NULL;
}

/* Whether the state behind the step is written over the one before it: a chain of marks leads there. */
static bool over_itself(const ebb_graph *body, ebb_value old, ebb_value new)
{
    while (!ebb_same_value(old, new)) {
        const ebb_value_info *info = ebb_value_of(body, new);
        const ebb_node_info *node = ebb_node_of(body, info->producer);
        const uint32_t over = info->producer.i == 0 || node->tile_rows != 0 ? 0 : info->over;
        if (over == 0)
            return false;
        new = ebb_in(body, info->producer, over - 1);
    }
    return true;
}

static ebb_status place_states(layout *l)
{
    ebb_loop *loop = l->loop;
    loop->states = EBB_NEW(l->arena, struct ebb_loop_state, loop->scan.states + (size_t)1);
    EBB_GOT(loop->states);
    for (uint32_t i = 0; i < loop->scan.states; i++) {
        struct ebb_loop_state *s = &loop->states[i];
        ebb_value old = l->body->inputs[i], new = l->body->outputs[i],
                  last = ebb_out(l->g, l->n, i);
        const ebb_type *type = ebb_value_of(l->g, ebb_in(l->g, l->n, i))->type;
        if (!same_type(type, ebb_value_of(l->body, old)->type) ||
            !same_type(type, ebb_value_of(l->body, new)->type) ||
            (last.i != 0 && !same_type(type, ebb_value_of(l->g, last)->type)))
            return refuse(l, "a state changes its type on its way");
        if (!ebb_type_bytes(type, &s->bytes))
            return refuse(l, "a state has no size");
        put(l, old, EBB_LOOP_OLD, i);
        put(l, new, EBB_LOOP_NEW, i);
        s->in_place = over_itself(l->body, old, new);
    }
    return NULL;
}

static ebb_status place_slices(layout *l, bool output, struct ebb_loop_slices **list)
{
    ebb_loop *loop = l->loop;
    const uint32_t count = output ? loop->scan.outputs : loop->scan.inputs;
    *list = EBB_NEW(l->arena, struct ebb_loop_slices, count + (size_t)1);
    EBB_GOT(*list);
    for (uint32_t k = 0; k < count; k++) {
        struct ebb_loop_slices *s = &(*list)[k];
        s->inner = (output ? l->body->outputs : l->body->inputs)[loop->scan.states + k];
        s->unread = output && ebb_out(l->g, l->n, loop->scan.states + k).i == 0;
        if (s->unread)
            continue;
        const char *why = ebb_scan_slices(&s->of, l->g, l->n, output, k);
        if (why != NULL)
            return refuse(l, why);
        if (!same_type(&s->of.type, ebb_value_of(l->body, s->inner)->type))
            return refuse(l, "its body takes or makes slices of another type");
        s->together = s->of.parts == 1;
        if (s->together)
            put(l, s->inner, output ? EBB_LOOP_MADE : EBB_LOOP_READ, k);
    }
    return NULL;
}

/* ---- what shares memory with those ---- */

/* Two values that lie elsewhere may share memory where they are one state; and nothing is written over
 * what is only read. A file may claim otherwise. */
static ebb_status share(layout *l)
{
    struct ebb_loop_spot *spots = l->loop->spots;
    uint32_t *group = EBB_NEW(l->scratch, uint32_t, l->body->value_count + 1);
    EBB_GOT(group);
    EBB_EACH_VALUE(l->body, v)
        group[v.i] = v.i;
    EBB_EACH_NODE(l->body, n) { // those before a node have their root already
        const ebb_node_info *info = ebb_node_of(l->body, n);
        for (uint32_t k = 0; k < info->out_count; k++) {
            const uint32_t over = ebb_node_over(l->body, n, k);
            const ebb_value in = over == 0 ? EBB_NO_VALUE : ebb_in(l->body, n, over - 1);
            if (in.i == 0)
                continue;
            uint32_t root = group[in.i], out = info->out[k].i;
            struct ebb_loop_spot *a = &spots[root], *b = &spots[out];
            bool own = a->where == EBB_LOOP_OLD && b->where == EBB_LOOP_NEW && a->k == b->k;
            bool only_read = a->where == EBB_LOOP_FIXED || a->where == EBB_LOOP_READ ||
                             (a->where == EBB_LOOP_OLD && !l->loop->states[a->k].in_place);
            if ((a->where != EBB_LOOP_ARENA && b->where != EBB_LOOP_ARENA && !own) ||
                (only_read && !ebb_op_has(info->op, EBB_VIEW)))
                return refuse(l, "its body shares memory of what it only reads");
            group[out] = root;
            if (a->where == EBB_LOOP_ARENA)
                *a = *b;
        }
    }
    EBB_EACH_VALUE(l->body, v)
        if (spots[v.i].where == EBB_LOOP_ARENA)
            spots[v.i] = spots[group[v.i]];
    return NULL;
}

/* ---- behind the arena of the body ---- */

/* Places in the workspace, so that the output, where there is one, is the last that is written. */
static bool place_behind(layout *l)
{
    ebb_loop *loop = l->loop;
    size_t end = (size_t)loop->plan.packing.height;
    bool fits = loop->plan.packing.height <= SIZE_MAX;
    for (uint32_t i = 0; i < loop->scan.states; i++) {
        struct ebb_loop_state *s = &loop->states[i];
        bool has_output = ebb_out(l->g, l->n, i).i != 0;
        for (int p = 0; p < 2; p++) {
            size_t bytes;
            if ((p == 0 && has_output) || (p == 1 && s->in_place))
                continue;
            s->places[p] = end + 1;
            fits = fits && ebb_size_align(&bytes, s->bytes, loop->plan.align) &&
                   ebb_size_add(&end, end, bytes);
        }
    }
    loop->workspace_bytes = end;
    return fits;
}

/* ---- operands ---- */

static uint32_t count_operands(const ebb_loop *loop)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < loop->plan.count; p++) {
        const ebb_call *call = &loop->plan.calls[p];
        const ebb_loop *within = ebb_loop_of(call);
        count += call->input_count + call->output_count;
        count += within != NULL ? within->fixed_count : 0;
    }
    return count;
}

/* What draws without a key draws by its name: that of the copy that it would be. */
static ebb_status list_draws(layout *l)
{
    ebb_loop *loop = l->loop;
    const ebb_node_info *info = ebb_node_of(l->g, l->n);
    const char *name = ebb_text(l->g, info->name);
    for (uint32_t k = 0; k < info->out_count && name[0] == '\0'; k++)
        name = ebb_value_name(l->g, info->out[k]);
    loop->name = ebb_arena_strdup(l->arena, name);
    loop->draws = EBB_NEW(l->arena, struct ebb_loop_draw, loop->plan.count + (size_t)1);
    EBB_GOT(loop->name && loop->draws);
    for (uint32_t p = 0; p < loop->plan.count; p++) {
        const ebb_node_info *node = ebb_node_of(l->body, loop->plan.order[p]);
        const ebb_loop *within = ebb_loop_of(&loop->plan.calls[p]);
        if (!ebb_op_has(node->op, EBB_RANDOM) && (within == NULL || within->draw_count == 0))
            continue;
        name = ebb_text(l->body, node->name);
        for (uint32_t k = 0; k < node->out_count && name[0] == '\0'; k++)
            name = ebb_value_name(l->body, node->out[k]);
        struct ebb_loop_draw *d = &loop->draws[loop->draw_count++];
        *d = (struct ebb_loop_draw){&loop->plan.calls[p], ebb_arena_strdup(l->arena, name)};
        EBB_GOT(d->name);
    }
    return NULL;
}

static ebb_status lay_out(layout *l, const ebb_setting *setting)
{
    ebb_loop *loop = l->loop;
    ebb_setting within = *setting;
    const char *missing, *why = ebb_scan_read(&loop->scan, l->g, l->n);
    within.enough = 0; // of the step's arena; the body's is workspace
    if (why != NULL)
        return refuse(l, why);
    l->body = loop->scan.body;
    if (!setting->backends[0]->device->is_host)
        return refuse(l, "loops are computed by the host's back ends alone; as copies of its body "
                         "(pass unroll, option `most`) it runs anywhere");
    why = outputs_are_apart(l->body);
    EBB_EACH_NODE(l->body, k)
        if (ebb_node_of(l->body, k)->tile_rows != 0)
            why = "its body has what is read in tiles";
    if (why != NULL)
        return refuse(l, why);
    loop->spots = EBB_NEW(l->arena, struct ebb_loop_spot, l->body->value_count + 1);
    l->elsewhere = EBB_NEW(l->arena, bool, l->body->value_count + 1);
    EBB_GOT(loop->spots && l->elsewhere);
    EBB_TRY(place_fixed(l));
    EBB_TRY(place_states(l));
    EBB_TRY(place_slices(l, false, &loop->read));
    EBB_TRY(place_slices(l, true, &loop->made));
    EBB_TRY(share(l));
    EBB_TRY(ebb_plan_body(&loop->plan, l->arena, l->body, l->elsewhere, &within, &missing));
    if (missing != NULL) { // a number of nodes, then a line for each operator
        const char *first = strchr(missing, '\n');
        return refuse(l, first != NULL ? first + 1 + strspn(first + 1, " ") : missing);
    }
    if (!place_behind(l))
        return refuse(l, "it takes more memory than there is");
    loop->moves = EBB_NEW(l->arena, struct ebb_loop_move, count_operands(loop) + (size_t)1);
    return loop->moves == NULL ? ebb_error_memory() : list_draws(l);
}

ebb_status ebb_loop_plan(ebb_call *call, ebb_arena *arena, const ebb_graph *g, ebb_node n,
                         const ebb_setting *setting)
{
    EBB_LOCAL_ARENA(scratch);
    layout l = {.arena = arena, .scratch = scratch, .g = g, .n = n};
    l.loop = EBB_NEW(arena, ebb_loop, 1);
    EBB_GOT(l.loop);
    l.loop->before = EBB_STREAM_OF_NO_NAME;
    ebb_status status = lay_out(&l, setting);
    if (status != NULL) {
        ebb_plan_release(&l.loop->plan);
        return status;
    }
    call->kernel = &ebb_loop_kernel;
    call->backends = setting->backends;
    call->state = l.loop;
    return NULL;
}

ebb_loop *ebb_loop_of(const ebb_call *call)
{
    return call->kernel == &ebb_loop_kernel ? call->state : NULL;
}
