/* loop.c: walks the body of a loop, step by step. What lies outside of the body's arena is read and
 * written where it is (exec/weigh/loop.h): before each step the addresses of those operands are set. */
#include "exec/weigh/loop.h"

#include <stdio.h>

#include "exec/weigh/call.h"

/* ---- addresses ---- */

static void *address_of(const ebb_loop *loop, struct ebb_loop_spot spot)
{
    switch (spot.where) {
    case EBB_LOOP_OLD:
        return loop->states[spot.k].old;
    case EBB_LOOP_NEW:
        return loop->states[spot.k].new;
    case EBB_LOOP_READ:
        return loop->read[spot.k].slice;
    case EBB_LOOP_MADE:
        return loop->made[spot.k].slice;
    default:
        return loop->fixed[spot.k].data;
    }
}

static void set_data(ebb_loop *loop, char *arena, void **data, ebb_value v)
{
    const struct ebb_loop_spot spot = loop->spots[v.i];
    uint32_t tensor = loop->plan.memory.tensor_of[v.i];
    if (v.i == 0)
        return;
    if (spot.where == EBB_LOOP_ARENA) {
        *data = arena + (tensor == 0 ? 0 : loop->plan.intervals[tensor - 1].offset);
        return;
    }
    *data = address_of(loop, spot);
    if (spot.where != EBB_LOOP_FIXED)
        loop->moves[loop->move_count++] = (struct ebb_loop_move){data, spot};
}

/* Slices that are copied, or that nobody wants, have a place in the arena. */
static void find_slices(ebb_loop *loop, const ebb_call *call, bool output)
{
    struct ebb_loop_slices *list = output ? loop->made : loop->read;
    const uint32_t count = output ? loop->scan.outputs : loop->scan.inputs;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t tensor = loop->plan.memory.tensor_of[list[k].inner.i], at = loop->scan.states + k;
        list[k].slice =
            (char *)call->workspace + (tensor == 0 ? 0 : loop->plan.intervals[tensor - 1].offset);
        if (!list[k].unread)
            list[k].whole = (output ? call->out : call->in)[at].data;
        if (list[k].together)
            list[k].slice = list[k].whole;
    }
}

static void *place_of(const ebb_call *call, const struct ebb_loop_state *s, uint32_t i, int which)
{
    if (s->places[which] != 0)
        return (char *)call->workspace + s->places[which] - 1;
    return which == 0 ? call->out[i].data : NULL;
}

/* The last step writes place 0, the one before it place 1, and so on; the first one reads what is
 * given, but where the state is written over. */
static void turn_states(ebb_loop *loop, const ebb_call *call, int64_t t)
{
    for (uint32_t i = 0; i < loop->scan.states; i++) {
        struct ebb_loop_state *s = &loop->states[i];
        int which = s->in_place ? 0 : (int)((loop->scan.trips - 1 - t) % 2);
        s->new = place_of(call, s, i, which);
        s->old = s->in_place ? s->new
                 : t == 0    ? ebb_read_only(s->first)
                             : place_of(call, s, i, 1 - which);
    }
}

static void turn_slices(const ebb_loop *loop, struct ebb_loop_slices *list, uint32_t count,
                        int64_t t)
{
    for (uint32_t k = 0; k < count; k++)
        if (list[k].together) {
            int64_t i = list[k].of.backwards ? loop->scan.trips - 1 - t : t;
            list[k].slice = (char *)list[k].whole + (size_t)i * list[k].of.bytes;
        }
}

static void copy_slices(const ebb_loop *loop, const struct ebb_loop_slices *list, uint32_t count,
                        int64_t t, bool output)
{
    for (uint32_t k = 0; k < count; k++) {
        const ebb_slices *s = &list[k].of;
        if (list[k].together || list[k].unread)
            continue;
        char *slice = list[k].slice;
        char *whole = (char *)list[k].whole +
                      (size_t)(s->backwards ? loop->scan.trips - 1 - t : t) * s->bytes;
        for (size_t p = 0; p < s->parts; p++, slice += s->bytes, whole += s->stride)
            memcpy(output ? whole : slice, output ? slice : whole, s->bytes);
    }
}

/* ---- draws ---- */

/* The stream of the node that copy t would be: "loop/3/noise"; of one within a loop there: "loop/3/inner/5/noise". */
static void turn_streams(const ebb_loop *loop, int64_t t)
{
    char step[32];
    (void)snprintf(step, sizeof step, "/%lld/", (long long)t);
    const uint64_t here = ebb_stream_longer(ebb_stream_longer(loop->before, loop->name), step);
    for (uint32_t i = 0; i < loop->draw_count; i++) {
        ebb_loop *within = ebb_loop_of(loop->draws[i].call);
        if (within != NULL)
            within->before = here;
        else
            loop->draws[i].call->stream = ebb_stream_longer(here, loop->draws[i].name);
    }
}

/* ---- the kernel ---- */

static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    *bytes = ((const ebb_loop *)call->state)->workspace_bytes;
    return NULL;
}

static void turn(ebb_loop *loop, const ebb_call *call, int64_t t)
{
    turn_states(loop, call, t);
    turn_slices(loop, loop->read, loop->scan.inputs, t);
    turn_slices(loop, loop->made, loop->scan.outputs, t);
    for (uint32_t i = 0; i < loop->move_count; i++)
        *loop->moves[i].data = address_of(loop, loop->moves[i].spot);
    if (loop->draw_count > 0)
        turn_streams(loop, t);
}

/* What a call of the body reads and writes; of a loop also what its body reads by name. */
static void point_call(ebb_loop *loop, char *arena, uint32_t p)
{
    ebb_call *inner = &loop->plan.calls[p];
    ebb_loop *within = ebb_loop_of(inner);
    const ebb_node_info *node = ebb_node_of(loop->plan.g, loop->plan.order[p]);
    uint32_t space = loop->plan.memory.workspace_of[loop->plan.order[p].i];
    for (uint32_t i = 0; i < inner->input_count; i++)
        set_data(loop, arena, &inner->in[i].data, node->in[i]);
    for (uint32_t k = 0; k < inner->output_count; k++) {
        inner->out[k].last_read = EBB_OUTLIVES;
        set_data(loop, arena, &inner->out[k].data, node->out[k]);
    }
    for (uint32_t i = 0; within != NULL && i < within->fixed_count; i++)
        set_data(loop, arena, &within->fixed[i].data, within->fixed[i].outside);
    inner->workspace = arena + (space == 0 ? 0 : loop->plan.intervals[space - 1].offset);
}

static void point(ebb_loop *loop, const ebb_call *call)
{
    loop->move_count = 0;
    find_slices(loop, call, false);
    find_slices(loop, call, true);
    for (uint32_t i = 0; i < loop->scan.states; i++)
        loop->states[i].first = call->in[i].data;
    turn_states(loop, call, 0);
    for (uint32_t p = 0; p < loop->plan.count; p++)
        point_call(loop, call->workspace, p);
}

static ebb_status prepare(ebb_call *call)
{
    ebb_loop *loop = call->state;
    point(loop, call);
    for (uint32_t p = 0; p < loop->plan.count && loop->scan.trips > 0; p++) {
        ebb_call *inner = &loop->plan.calls[p];
        inner->queue = call->queue;
        inner->position = call->position;
        if ((inner->state == NULL || ebb_loop_of(inner) != NULL) && inner->kernel->prepare != NULL)
            EBB_TRY(inner->kernel->prepare(inner));
    }
    return NULL;
}

static ebb_status step(ebb_loop *loop, const ebb_call *call, int64_t t)
{
    turn(loop, call, t);
    copy_slices(loop, loop->read, loop->scan.inputs, t, false);
    for (uint32_t p = 0; p < loop->plan.count; p++) {
        ebb_call *inner = &loop->plan.calls[p];
        inner->step = call->step;
        EBB_TRY(inner->kernel->run(inner));
    }
    copy_slices(loop, loop->made, loop->scan.outputs, t, true);
    return NULL;
}

static ebb_status run(const ebb_call *call)
{
    ebb_loop *loop = call->state;
    point(loop, call); // in a loop around, what it is given lies elsewhere in each step
    for (uint32_t i = 0; i < loop->scan.states; i++) {
        void *to = place_of(call, &loop->states[i], i, 0);
        bool begins = loop->states[i].in_place || loop->scan.trips == 0;
        if (begins && loop->states[i].bytes > 0)
            memcpy(to, loop->states[i].first, loop->states[i].bytes);
    }
    for (int64_t t = 0; t < loop->scan.trips; t++)
        EBB_TRY(ebb_while(step(loop, call, t), "in step %lld of %s", (long long)t, call->node));
    return NULL;
}

static void release(ebb_call *call)
{
    ebb_plan_release(&((ebb_loop *)call->state)->plan);
}

const ebb_kernel ebb_loop_kernel = {
    .name = "loop",
    .op = EBB_OP_SCAN,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .release = release,
};
