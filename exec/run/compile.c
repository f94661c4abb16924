/* compile.c: a plan gets its block of memory, and each call its pointers.
 *
 *     block |= initializers =|---- packed by time: inputs, values, workspaces ----|
 *           0                                                        packing.height
 *
 * Update bindings whose two values share memory (the alias pass sees to most) cost nothing; the
 * others become copies after the walk, ordered so that each is read before it is overwritten.
 */
#include "exec/run/program.h"

#include "exec/weigh/call.h"
#include "exec/weigh/loop.h"
#include "onnx/words/amount.h"
#include "onnx/words/options.h"

#include <stdlib.h>

/* ---- pointers ---- */

static void *hand_out(ebb_program *p, uint32_t tensor, size_t bytes)
{
    if (tensor == 0)
        return p->block; /* no bytes, but a pointer */
    const ebb_interval *place = &p->plan.intervals[tensor - 1];
    size_t rounded = bytes;
    bool fits = ebb_size_align(&rounded, bytes, p->plan.align);
    if (fits && place->offset + rounded > p->touched_bytes)
        p->touched_bytes = place->offset + rounded;
    return (char *)p->block + place->offset;
}

void *ebb_program_pointer(const ebb_program *program, ebb_value v)
{
    uint32_t tensor = program->plan.memory.tensor_of[v.i];
    if (program->mapped[v.i])
        return program->seen[v.i] != NULL
                   ? program->seen[v.i]
                   : ebb_read_only(ebb_value_of(program->plan.g, v)->tensor->data);
    if (tensor == 0)
        return NULL;
    return (char *)program->block + program->plan.intervals[tensor - 1].offset;
}

/* What the body of a loop reads by its name. */
static void point_captured(ebb_program *p, ebb_loop *loop)
{
    for (uint32_t i = 0; loop != NULL && i < loop->fixed_count; i++) {
        struct ebb_loop_fixed *f = &loop->fixed[i];
        size_t bytes = 0;
        if (f->outside.i == 0 || !ebb_type_bytes(ebb_value_of(p->plan.g, f->outside)->type, &bytes))
            continue;
        f->data = hand_out(p, p->plan.memory.tensor_of[f->outside.i], bytes);
    }
}

void ebb_program_point_mapped(ebb_program *p)
{
    for (uint32_t k = 0; k < p->plan.count; k++) {
        ebb_call *call = &p->plan.calls[k];
        const ebb_node_info *node = ebb_node_of(p->plan.g, p->plan.order[k]);
        const ebb_loop *loop = ebb_loop_of(call);
        for (uint32_t i = 0; i < call->input_count; i++)
            if (p->mapped[node->in[i].i])
                call->in[i].data = ebb_program_pointer(p, node->in[i]);
        for (uint32_t i = 0; loop != NULL && i < loop->fixed_count; i++)
            if (p->mapped[loop->fixed[i].outside.i])
                loop->fixed[i].data = ebb_program_pointer(p, loop->fixed[i].outside);
    }
}

/* What lies in another place has its place there in stead of a pointer. */
static void set_spots(ebb_program *p, ebb_call *call, const ebb_node_info *node)
{
    const uint32_t *away_of = p->plan.memory.away_of;
    for (uint32_t i = 0; i < call->input_count; i++)
        call->in[i].spot = away_of[node->in[i].i];
    for (uint32_t i = 0; i < call->output_count; i++)
        call->out[i].spot = away_of[node->out[i].i];
}

static void set_pointers(ebb_program *p)
{
    const ebb_graph *g = p->plan.g;
    const ebb_memory *m = &p->plan.memory;
    for (uint32_t k = 0; k < p->plan.count; k++) {
        ebb_call *call = &p->plan.calls[k];
        const ebb_node_info *node = ebb_node_of(g, p->plan.order[k]);
        call->queue = p->queue;
        call->group = p->group;
        call->mover = p->mover;
        call->position = k;
        for (uint32_t i = 0; i < call->input_count; i++)
            if (node->in[i].i != 0)
                call->in[i].data = hand_out(p, m->tensor_of[node->in[i].i], call->in[i].bytes);
        for (uint32_t i = 0; i < call->output_count; i++)
            if (node->out[i].i != 0)
                call->out[i].data = hand_out(p, m->tensor_of[node->out[i].i], call->out[i].bytes);
        if (m->away_of != NULL)
            set_spots(p, call, node);
        call->workspace = hand_out(p, m->workspace_of[p->plan.order[k].i], call->workspace_bytes);
        point_captured(p, ebb_loop_of(call));
    }
    /* What no node reads is still copied in. */
    size_t bytes = 0;
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_type_bytes(ebb_value_of(g, g->initializers[i])->type, &bytes))
            (void)hand_out(p, m->tensor_of[g->initializers[i].i], bytes);
    for (size_t i = 0; i < g->input_count; i++)
        if (ebb_type_bytes(ebb_value_of(g, g->inputs[i])->type, &bytes))
            (void)hand_out(p, m->tensor_of[g->inputs[i].i], bytes);
}

/* ---- who reads last ---- */

/* What a decoder reads is read when its own reader asks for tiles: that counts as outliving. */
static uint32_t last_read(const ebb_program *p, const uint32_t *at, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(p->plan.g, v);
    uint32_t last = 0;
    if ((info->flags & EBB_IS_OUTPUT) != 0)
        return EBB_OUTLIVES;
    for (size_t k = 0; k < info->use_count; k++) {
        uint32_t position = at[info->uses[k].node.i];
        if (p->plan.calls[position].streamed)
            return EBB_OUTLIVES;
        last = position > last ? position : last;
    }
    return last;
}

static ebb_status group_calls(ebb_program *p, const ebb_backend *backend, ebb_arena *scratch)
{
    const ebb_graph *g = p->plan.g;
    uint32_t *at = EBB_NEW(scratch, uint32_t, g->node_count + 1);
    EBB_GOT(at);
    for (uint32_t k = 0; k < p->plan.count; k++)
        at[p->plan.order[k].i] = k;
    for (uint32_t k = 0; k < p->plan.count; k++) {
        ebb_call *call = &p->plan.calls[k];
        const ebb_node_info *node = ebb_node_of(g, p->plan.order[k]);
        for (uint32_t o = 0; o < call->output_count; o++)
            if (node->out[o].i != 0)
                call->out[o].last_read = last_read(p, at, node->out[o]);
    }
    return backend->group(p->plan.calls, p->plan.count);
}

/* ---- carries ---- */

/* Orders the copies: one that reads what another overwrites goes first. before[k] is the copy that
 * must wait for k (index + 1), waits[k] how many k waits for. */
static ebb_status order_carries(ebb_program *p, const ebb_binding *const *bindings,
                                const uint32_t *before, uint32_t *waits, ebb_arena *scratch)
{
    size_t count = p->carry_count, done = 0, head = 0;
    struct ebb_carry *sorted = EBB_NEW(&p->arena, struct ebb_carry, count + 1);
    size_t *queue = EBB_NEW(scratch, size_t, count + 1);
    EBB_GOT(sorted && queue);
    for (size_t k = 0; k < count; k++)
        if (waits[k] == 0)
            queue[done++] = k;
    while (head < done) {
        size_t k = queue[head];
        sorted[head++] = p->carries[k];
        if (before[k] != 0 && --waits[before[k] - 1] == 0)
            queue[done++] = before[k] - 1;
    }
    for (size_t k = 0; done < count && k < count; k++)
        if (waits[k] != 0)
            return ebb_error(EBB_UNSUPPORTED,
                             "update bindings exchange values in a circle, through state '%s'",
                             ebb_value_name(p->plan.g, bindings[k]->state));
    p->carries = sorted;
    return NULL;
}

static ebb_status make_carries(ebb_program *p, ebb_arena *scratch)
{
    const ebb_graph *g = p->plan.g;
    const ebb_memory *m = &p->plan.memory;
    size_t most = g->binding_count + 1;
    const ebb_binding **bindings =
        (const ebb_binding **)ebb_arena_zeroed(scratch, most, sizeof *bindings);
    uint32_t *writer = EBB_NEW(scratch, uint32_t, m->tensor_count + 1);
    uint32_t *before = EBB_NEW(scratch, uint32_t, most), *waits = EBB_NEW(scratch, uint32_t, most);
    p->carries = EBB_NEW(&p->arena, struct ebb_carry, most);
    EBB_GOT(bindings && writer && before && waits && p->carries);
    for (size_t i = 0; i < g->binding_count; i++) {
        const ebb_binding *b = &g->bindings[i];
        const ebb_type *state = ebb_value_of(g, b->state)->type;
        const ebb_type *next = ebb_value_of(g, b->next)->type;
        if (state->dtype != next->dtype || !ebb_type_same_shape(state, next))
            return ebb_error(EBB_REJECTED, "update binding: '%s' and '%s' differ in type",
                             ebb_value_name(g, b->state), ebb_value_name(g, b->next));
        uint32_t to = m->tensor_of[b->state.i];
        size_t bytes = 0;
        if (to == 0 || to == m->tensor_of[b->next.i] || !ebb_type_bytes(state, &bytes))
            continue;
        if (writer[to] != 0)
            return ebb_error(EBB_REJECTED, "update bindings replace state '%s' twice",
                             ebb_value_name(g, b->state));
        bindings[p->carry_count] = b;
        p->carries[p->carry_count++] = (struct ebb_carry){ebb_program_pointer(p, b->state),
                                                          ebb_program_pointer(p, b->next), bytes};
        writer[to] = (uint32_t)p->carry_count;
    }
    for (size_t k = 0; k < p->carry_count; k++) {
        before[k] = writer[m->tensor_of[bindings[k]->next.i]];
        if (before[k] != 0)
            waits[before[k] - 1]++;
    }
    return order_carries(p, bindings, before, waits, scratch);
}

/* ---- compile and free ---- */

/* The file says what it was made to fit, and for how many threads: with more of them some kernels
 * need more workspace. */
static ebb_status keep_budget(ebb_program *p)
{
    int planned, threads = p->plan.setting.threads;
    const uint64_t budget = ebb_budget_of(p->model, &planned), bytes = p->plan.packing.height;
    const bool others = planned != 0 && planned != threads;
    if (budget == 0)
        return NULL;
    if (bytes <= budget) {
        if (others)
            p->note =
                ebb_arena_printf(&p->arena,
                                 "the step was planned for --threads %d; with %d it takes "
                                 "%s, within its budget of %s",
                                 planned, threads, ebb_bytes(bytes).text, ebb_bytes(budget).text);
        return NULL;
    }
    ebb_status status =
        ebb_error(EBB_NO_PLAN, "with %d thread%s the step takes %s, above its budget of %s",
                  threads, threads == 1 ? "" : "s", ebb_bytes(bytes).text, ebb_bytes(budget).text);
    return others
               ? ebb_hint(status,
                          "it was planned for --threads %d: run it so, or plan it for "
                          "--threads %d",
                          planned, threads)
               : ebb_hint(status, "plan it anew: `ebb rewrite STEP -o STEP --pass fit:budget=%llu`",
                          (unsigned long long)bytes);
}

const char *ebb_spill_folder(const char *asked)
{
    const char *folder = asked != NULL ? asked : getenv("TMPDIR");
    return folder != NULL && folder[0] != '\0' ? folder : "/var/tmp";
}

static ebb_status open_mover(ebb_program *p, const ebb_compile_options *o, ebb_arena *scratch)
{
    const ebb_memory *m = &p->plan.memory;
    bool starts = m->away_count > 0;
    for (uint32_t k = 0; k < p->plan.count && p->device->is_host; k++) // another device has streams
        starts = starts || ebb_op_has(p->plan.calls[k].op, EBB_STARTS);
    if (!starts)
        return NULL;
    ebb_spot *spots = EBB_NEW(scratch, ebb_spot, m->away_count);
    EBB_GOT(spots);
    for (size_t i = 0; i < m->away_count; i++)
        spots[i] = (ebb_spot){m->away[i].place == EBB_PLACE_DISK, p->plan.away[i].offset};
    const ebb_mover_plan plan = {.folder = ebb_spill_folder(o->spill),
                                 .unchecked = o->spill_unchecked,
                                 .disk_bytes = p->plan.places[EBB_PLACE_DISK].height,
                                 .host_bytes = p->plan.places[EBB_PLACE_HOST].height,
                                 .spots = spots,
                                 .spot_count = m->away_count,
                                 .device = p->device,
                                 .queue = p->queue};
    return ebb_mover_open(&p->mover, &plan);
}

/* A step for several processes means something else in another number of them. */
static ebb_status check_ranks(const ebb_program *p)
{
    const int ranks = ebb_group_ranks(p->group);
    bool together = false;
    for (uint32_t k = 0; k < p->plan.count; k++) {
        const ebb_call *call = &p->plan.calls[k];
        if (!ebb_op_has(call->op, EBB_TOGETHER))
            continue;
        const int64_t wanted = ebb_attr_int(&call->attrs, "ranks", 1);
        together = true;
        if (wanted != ranks)
            return ebb_hint(
                ebb_error(EBB_USAGE, "%s: the step is for %lld processes, and %d %s here",
                          call->node, (long long)wanted, ranks, ranks == 1 ? "is" : "are"),
                "start it by `ebb launch -n %lld -- ebb train ...`; pass gather makes it a step of "
                "one process",
                (long long)wanted);
    }
    if (ranks > 1 && !together)
        return ebb_hint(ebb_error(EBB_USAGE, "the step is for one process, and %d are here", ranks),
                        "make it with --pass data-parallel:ranks=%d", ranks);
    return NULL;
}

static ebb_status compile(ebb_program *p, const ebb_graph *g, const ebb_compile_options *o)
{
    ebb_setting setting;
    EBB_TRY(ebb_setting_read(&setting, p->model, o->backend, o->seed, o->threads));
    const ebb_backend *const *backends = setting.backends;
    p->device = backends[0]->device;
    EBB_TRY(p->device->open(&p->queue));
    p->seed = o->seed;
    p->group = o->group;
    EBB_TRY(ebb_plan_make(&p->plan, &p->arena, g, &setting));
    EBB_TRY(check_ranks(p));
    if (g == p->model->graph)
        EBB_TRY(keep_budget(p));
    EBB_GOT(p->plan.packing.height <= SIZE_MAX - p->plan.align);
    size_t bytes = (size_t)p->plan.packing.height;
    EBB_TRY(p->device->allocate(p->queue, bytes != 0 ? bytes : p->plan.align, &p->block));
    p->filled = EBB_NEW(&p->arena, bool, g->value_count + 1);
    p->mapped = EBB_NEW(&p->arena, bool, g->value_count + 1);
    p->seen = EBB_NEW(&p->arena, void *, g->value_count + 1);
    EBB_GOT(p->filled && p->mapped && p->seen);
    for (size_t i = 0; i < p->plan.memory.mapped_count; i++)
        p->mapped[p->plan.memory.mapped[i].i] = true;
    if (o->profile) {
        p->node_ns = EBB_NEW(&p->arena, int64_t, p->plan.count + (size_t)1);
        p->node_spared = EBB_NEW(&p->arena, double, p->plan.count + (size_t)1);
        p->first_ns = EBB_NEW(&p->arena, int64_t, p->plan.count + (size_t)1);
        p->first_spared = EBB_NEW(&p->arena, double, p->plan.count + (size_t)1);
        EBB_GOT(p->node_ns && p->node_spared && p->first_ns && p->first_spared);
    }
    EBB_LOCAL_ARENA(scratch);
    EBB_TRY(open_mover(p, o, scratch));
    set_pointers(p);
    EBB_TRY(make_carries(p, scratch));
    return backends[0]->group != NULL && !o->profile ? group_calls(p, backends[0], scratch) : NULL;
}

ebb_status ebb_program_compile_graph(ebb_program **program, ebb_model *model, const ebb_graph *g,
                                     const ebb_compile_options *options)
{
    static const ebb_compile_options defaults = {0};
    *program = NULL;
    ebb_program *p = ebb_alloc(sizeof *p);
    EBB_GOT(p);
    *p = (ebb_program){.model = model};
    ebb_status status = compile(p, g, options != NULL ? options : &defaults);
    if (status != NULL) {
        ebb_program_free(p);
        return status;
    }
    *program = p;
    return NULL;
}

EBB_API ebb_status ebb_program_compile(ebb_program **program, ebb_model *model,
                                       const ebb_compile_options *options)
{
    EBB_NEED(program);
    EBB_NEED(model);
    ebb_compile_options own;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_compile_options, &own, group, options));
    EBB_NEED_COUNT(own.threads);
    return ebb_program_compile_graph(program, model, model->graph, &own);
}

EBB_API void ebb_program_free(ebb_program *program)
{
    if (program == NULL)
        return;
    ebb_mover_close(program->mover);
    ebb_plan_release(&program->plan);
    if (program->block != NULL)
        program->device->release(program->queue, program->block);
    if (program->device != NULL)
        program->device->close(program->queue);
    ebb_arena_fini(&program->arena);
    ebb_free(program);
}
