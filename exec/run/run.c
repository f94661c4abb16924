/* run.c: walks the program. Decides, looks up and allocates nothing once it is ready.
 *
 * A step: inputs are checked and copied in; the calls run in node order; then the update bindings
 * that do not share memory are copied. A step that fails half way leaves states that were updated
 * in place as they are.
 */
#include "exec/run/part.h"

#include "exec/weigh/call.h"
#include "kernels/parallel.h"
#include "kernels/spared.h"
#include "onnx/graph/infer.h"
#include "onnx/words/clock.h"
#include "onnx/words/map.h"
#include "onnx/words/options.h"

/* ---- arrays of the caller ---- */

/* Does the array have exactly the type of v? */
static ebb_status check_named(const ebb_graph *g, ebb_value v, const char *what,
                              const ebb_named *named)
{
    const ebb_type *type = ebb_value_of(g, v)->type;
    char have[256], need[256];
    ebb_type given = ebb_type_none();
    bool same = named->rank == type->rank && named->dtype == (int)type->dtype;
    for (int i = 0; same && i < named->rank; i++)
        same = named->dims[i] == type->dims[i];
    size_t bytes = 0;
    if (same && (named->data != NULL || (ebb_type_bytes(type, &bytes) && bytes == 0)))
        return NULL;
    if (!same) {
        if (named->rank >= 0 && named->rank <= EBB_MAX_RANK && named->dtype > 0 &&
            named->dtype < EBB_DTYPE_COUNT)
            given = ebb_type_tensor((ebb_dtype)named->dtype, named->rank, named->dims);
        return ebb_error(EBB_USAGE, "%s '%s' is %s, the program wants %s", what, named->name,
                         ebb_type_print(have, sizeof have, &given, NULL),
                         ebb_type_print(need, sizeof need, type, &g->model->names));
    }
    return ebb_error(EBB_USAGE, "%s '%s' has no data", what, named->name);
}

/* A caller's bytes for a weight that is mapped: where they differ, they are read instead of it. */
static ebb_status replace_mapped(ebb_program *p, ebb_value v, const void *data)
{
    const ebb_tensor *t = ebb_value_of(p->plan.g, v)->tensor;
    const void *now = ebb_program_pointer(p, v);
    if (now != NULL && memcmp(now, data, t->bytes) == 0)
        return NULL;
    if (p->seen[v.i] == NULL && (p->seen[v.i] = ebb_arena_alloc(&p->arena, t->bytes)) == NULL)
        return ebb_error_memory();
    memcpy(p->seen[v.i], data, t->bytes);
    ebb_program_point_mapped(p);
    return NULL;
}

/* 1 + where the mover has it; 0: it does not lie in another place. */
static uint32_t spot_of(const ebb_program *p, ebb_value v)
{
    const uint32_t *away_of = p->plan.memory.away_of;
    return away_of != NULL ? away_of[v.i] : 0;
}

/* The next of the spots in which v lies, from *spot on: itself, or one for each of its parts. */
static const ebb_memory_away *next_spot(const ebb_program *p, ebb_value v, uint32_t *spot,
                                        size_t *bytes)
{
    const ebb_memory *m = &p->plan.memory;
    const uint32_t whole = spot_of(p, v);
    for (; *spot < m->away_count; ++*spot) {
        const ebb_memory_away *t = &m->away[*spot];
        if ((*spot + 1 == whole && !t->in_parts) || t->within == whole)
            return ebb_type_bytes(ebb_value_of(p->plan.g, t->value)->type, bytes) ? t : NULL;
    }
    return NULL;
}

/* The writing thread reads it alone. */
static ebb_status put_away(ebb_program *p, ebb_value v, const void *data)
{
    const ebb_memory_away *t;
    ebb_status status = NULL;
    size_t bytes;
    for (uint32_t i = 0; status == NULL && (t = next_spot(p, v, &i, &bytes)) != NULL; i++)
        status = ebb_mover_store(p->mover, i, ebb_read_only((const char *)data + t->at), bytes,
                                 ebb_value_name(p->plan.g, v));
    ebb_status settled = ebb_mover_settle(p->mover);
    return status != NULL ? status : settled;
}

static ebb_status copy_in(ebb_program *p, ebb_value v, const void *data)
{
    size_t bytes = 0;
    if (spot_of(p, v) != 0 && data != NULL)
        return put_away(p, v, data);
    void *to = ebb_program_pointer(p, v);
    if (to == NULL || data == NULL || !ebb_type_bytes(ebb_value_of(p->plan.g, v)->type, &bytes))
        return NULL;
    return ebb_while(p->device->write(p->queue, to, data, bytes), "writing '%s' to the device",
                     ebb_value_name(p->plan.g, v));
}

static bool is_initializer(const ebb_graph *g, ebb_value v)
{
    return (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0;
}

static ebb_status unknown_input(const ebb_graph *g, const char *name)
{
    return ebb_meant(ebb_error(EBB_USAGE, "the graph has no input '%s'", name), g, g->inputs,
                     g->input_count, name);
}

static ebb_status take_inputs(ebb_program *p, const ebb_batch *batch)
{
    const ebb_graph *g = p->plan.g;
    size_t count = batch != NULL ? batch->count : 0;
    for (size_t i = 0; i < count; i++) {
        const ebb_named *named = &batch->tensors[i];
        ebb_value v = ebb_value_find(g, named->name);
        if (v.i == 0 || !(ebb_value_of(g, v)->flags & EBB_IS_INPUT))
            return unknown_input(g, named->name);
        EBB_TRY(check_named(g, v, "input", named));
    }
    for (size_t k = 0; k < g->input_count; k++) {
        if (is_initializer(g, g->inputs[k]))
            continue;
        const char *name = ebb_value_name(g, g->inputs[k]);
        size_t found = 0;
        for (size_t i = 0; i < count; i++)
            found += strcmp(batch->tensors[i].name, name) == 0;
        if (found != 1)
            return ebb_error(EBB_USAGE,
                             found == 0 ? "input '%s' is missing: a step needs an array for it"
                                        : "input '%s' is given twice",
                             name);
    }
    for (size_t i = 0; i < count; i++) {
        ebb_value v = ebb_value_find(g, batch->tensors[i].name);
        EBB_TRY(copy_in(p, v, batch->tensors[i].data));
        if (is_initializer(g, v))
            p->filled[v.i] = true;
    }
    return NULL;
}

/* ---- initializers ---- */

/* *there: the model tells what v starts as. */
static ebb_status fill_one(ebb_program *p, ebb_value v, bool *there)
{
    const ebb_value_info *info = ebb_value_of(p->plan.g, v);
    const void *data;
    EBB_LOCAL_ARENA(scratch);
    size_t bytes = 0;
    *there = true;
    if (!ebb_type_bytes(info->type, &bytes) || bytes == 0)
        return NULL;
    ebb_status status = ebb_part_at_start(&data, p, v, scratch);
    if (status == NULL && data == NULL && info->tensor != NULL) {
        data = info->tensor->data;
        if (data != NULL && info->tensor->bytes != bytes)
            status = ebb_error(EBB_REJECTED, "initializer '%s' has %zu bytes, its type needs %zu",
                               ebb_value_name(p->plan.g, v), info->tensor->bytes, bytes);
    }
    *there = data != NULL;
    if (status == NULL && *there && !p->mapped[v.i])
        status = copy_in(p, v, data);
    return status;
}

ebb_status ebb_program_fill(ebb_program *p)
{
    enum { SHOWN = 3 };
    const ebb_graph *g = p->plan.g;
    const char *missing[SHOWN];
    size_t missing_count = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        size_t bytes = 0;
        bool there;
        if (p->filled[v.i] || info->dead || !ebb_type_bytes(info->type, &bytes))
            continue;
        EBB_TRY(fill_one(p, v, &there));
        if (!there) {
            if (missing_count < SHOWN)
                missing[missing_count] = ebb_value_name(g, v);
            missing_count++;
            continue;
        }
        p->filled[v.i] = true;
    }
    ebb_program_point_mapped(p);
    if (missing_count == 0)
        return NULL;
    return ebb_hint(ebb_error(EBB_RUNTIME, "%zu initializer%s no bytes: '%s'%s%s%s%s%s%s%s",
                              missing_count, missing_count == 1 ? " has" : "s have", missing[0],
                              missing_count > 1 ? ", '" : "", missing_count > 1 ? missing[1] : "",
                              missing_count > 1 ? "'" : "", missing_count > 2 ? ", '" : "",
                              missing_count > 2 ? missing[2] : "", missing_count > 2 ? "'" : "",
                              missing_count > 3 ? " and others" : ""),
                    "draw them with --init, or give them with --weights FILE.safetensors");
}

/* A device's error knows no graph: the node's name is put before it. */
static ebb_status name_node(ebb_status status, const ebb_call *call)
{
    if (status == NULL || call->node == NULL || strstr(ebb_status_text(status), call->node) != NULL)
        return status;
    return ebb_at(status, call->node);
}

static ebb_status get_ready(ebb_program *p)
{
    EBB_TRY(ebb_program_fill(p));
    for (; p->prepared < p->plan.count; p->prepared++) {
        ebb_call *call = &p->plan.calls[p->prepared];
        const bool had_state = call->state != NULL; // of a group
        ebb_status status = call->kernel->prepare != NULL ? call->kernel->prepare(call) : NULL;
        if (status == NULL)
            continue;
        if (!had_state && call->state != NULL && call->kernel->release != NULL) {
            call->kernel->release(call); // the next step prepares it anew
            call->state = NULL;
        }
        return name_node(status, call);
    }
    p->ready = true;
    return NULL;
}

/* ---- a step ---- */

/* All calls, then the carries. Times by the clock on the host, by the device's marks elsewhere. */
static ebb_status walk(ebb_program *p, int64_t last)
{
    bool marks = p->node_ns != NULL && p->device->mark != NULL;
    (void)ebb_spared();
    if (marks)
        EBB_TRY(p->device->mark(p->queue));
    for (uint32_t k = 0; k < p->plan.count; k++) {
        ebb_call *call = &p->plan.calls[k];
        call->step = p->steps;
        EBB_TRY(name_node(call->kernel->run(call), call));
        if (marks) {
            EBB_TRY(p->device->mark(p->queue));
        } else if (p->node_ns != NULL) {
            int64_t now = ebb_now_ns();
            p->node_ns[k] += now - last;
            p->node_spared[k] += ebb_spared();
            last = now;
        }
    }
    for (size_t k = 0; k < p->carry_count; k++)
        EBB_TRY(
            p->device->copy(p->queue, p->carries[k].to, p->carries[k].from, p->carries[k].bytes));
    return NULL;
}

static ebb_status fault_error(const ebb_program *p, const ebb_fault *f)
{
    const char *node = f->position < p->plan.count ? p->plan.calls[f->position].node : "a node";
    if (f->kind == EBB_FAULT_DIVISOR)
        return ebb_error(EBB_RUNTIME, "%s: integer division by zero: divisor at position %lld",
                         node, (long long)f->value);
    if (f->low + 1 == f->high)
        return ebb_error(EBB_RUNTIME, "%s: read or counted %lld where only %lld can be", node,
                         (long long)f->value, (long long)f->low);
    return ebb_error(EBB_RUNTIME, "%s: index %lld is outside %lld..%lld", node, (long long)f->value,
                     (long long)f->low, (long long)f->high - 1);
}

/* The calls, or the replay of their record. What cannot be recorded is run call by call; where that
 * cannot even begin the device has failed, and why is what was said first. */
static ebb_status run_calls(ebb_program *p, int64_t began, ebb_fault *fault)
{
    ebb_status first = NULL;
    for (;;) {
        bool replays;
        ebb_status status = p->device->begin(p->queue, p->steps, &replays);
        if (status != NULL)
            return first != NULL ? first : status;
        if (!replays)
            status = walk(p, began);
        if (status == NULL)
            status = p->device->end(p->queue, fault);
        if (status == NULL) {
            p->replayed += replays;
            return NULL;
        }
        if (p->mover != NULL)
            (void)ebb_mover_settle(p->mover); // what is under way belongs to what has failed
        first = status;
        if (!p->device->abandon(p->queue))
            return status;
    }
}

static ebb_status step(ebb_program *p, const ebb_batch *batch)
{
    EBB_TRY(take_inputs(p, batch));
    if (!p->ready) {
        EBB_TRY(get_ready(p));
        EBB_TRY(take_inputs(p, batch)); // kernels may have tried themselves out where inputs lie
    }
    int64_t begin = ebb_now_ns();
    ebb_fault fault;
    EBB_TRY(run_calls(p, begin, &fault));
    if (fault.there)
        return fault_error(p, &fault);
    if (p->node_ns != NULL && p->device->mark != NULL)
        for (uint32_t k = 0; k < p->plan.count; k++)
            p->node_ns[k] += p->device->between(p->queue, k);
    if (p->node_ns != NULL && p->profiled++ == 0) {
        memcpy(p->first_ns, p->node_ns, p->plan.count * sizeof *p->first_ns);
        memcpy(p->first_spared, p->node_spared, p->plan.count * sizeof *p->first_spared);
    }
    p->step_ns = ebb_now_ns() - begin;
    p->steps++;
    return NULL;
}

EBB_API ebb_status ebb_program_step(ebb_program *program, const ebb_batch *batch)
{
    EBB_NEED(program);
    if (batch != NULL && batch->count > 0)
        EBB_NEED(batch->tensors);
    const ebb_threads_before before = ebb_threads_enter(program->plan.setting.threads);
    ebb_status status = step(program, batch);
    ebb_threads_leave(before);
    return status;
}

/* ---- looking and setting ---- */

/* A copy on the host, for as long as the program lives. */
static ebb_status show(ebb_program *p, ebb_value v, void **data)
{
    size_t bytes = 0;
    EBB_GOT(ebb_type_bytes(ebb_value_of(p->plan.g, v)->type, &bytes));
    if (p->seen[v.i] == NULL)
        p->seen[v.i] = ebb_arena_alloc(&p->arena, bytes + 1);
    EBB_GOT(p->seen[v.i]);
    EBB_TRY(ebb_while(p->device->read(p->queue, p->seen[v.i], *data, bytes),
                      "reading '%s' from the device", ebb_value_name(p->plan.g, v)));
    *data = p->seen[v.i];
    return NULL;
}

/* Where it lies in another place. */
static ebb_status show_away(ebb_program *p, ebb_value v, void **data)
{
    const ebb_memory_away *t;
    const void *there;
    size_t bytes;
    if (spot_of(p, v) == 0)
        return NULL;
    for (uint32_t i = 0; (t = next_spot(p, v, &i, &bytes)) != NULL; i++) {
        EBB_TRY(ebb_mover_look(p->mover, &there, i, bytes, ebb_value_name(p->plan.g, v)));
        if (t->at == 0) // what lies behind it is the rest
            *data = ebb_read_only(there);
    }
    return NULL;
}

EBB_API ebb_status ebb_program_get(ebb_program *program, const char *name, ebb_named *named)
{
    EBB_NEED(program);
    EBB_NEED(name);
    EBB_NEED(named);
    const ebb_graph *g = program->plan.g;
    ebb_value v = ebb_value_find(g, name);
    const ebb_value_info *info = ebb_value_of(g, v);
    if (v.i == 0 || !(info->flags & (EBB_IS_OUTPUT | EBB_IS_INITIALIZER | EBB_IS_INPUT)))
        return ebb_error(EBB_USAGE, "the program has no output and no initializer '%s'", name);
    if (is_initializer(g, v) && !program->filled[v.i]) {
        ebb_status status = ebb_program_fill(program);
        if (status != NULL && !program->filled[v.i])
            return status;
    }
    void *data = ebb_program_pointer(program, v);
    if (data != NULL && !program->device->is_host)
        EBB_TRY(show(program, v, &data));
    EBB_TRY(show_away(program, v, &data));
    *named = (ebb_named){.name = ebb_value_name(g, v),
                         .dtype = info->type->dtype,
                         .rank = info->type->rank,
                         .dims = info->type->dims,
                         .data = data != NULL ? data : program->block};
    return NULL;
}

EBB_API const char *ebb_program_note(const ebb_program *program)
{
    return program->note;
}

EBB_API size_t ebb_program_output_count(const ebb_program *program)
{
    return program->plan.g->output_count;
}

EBB_API const char *ebb_program_output_name(const ebb_program *program, size_t index)
{
    const ebb_graph *g = program->plan.g;
    return index < g->output_count ? ebb_value_name(g, g->outputs[index]) : NULL;
}

EBB_API const char *ebb_program_loss_name(const ebb_program *program)
{
    const ebb_graph *g = program->plan.g;
    return g->loss.i != 0 ? ebb_value_name(g, g->loss) : NULL;
}

EBB_API ebb_status ebb_program_set(ebb_program *program, const ebb_named *named)
{
    EBB_NEED(program);
    EBB_NEED(named);
    const ebb_graph *g = program->plan.g;
    ebb_value v = ebb_value_find(g, named->name);
    if (v.i == 0 || !is_initializer(g, v))
        return ebb_error(EBB_USAGE, "the program has no initializer '%s'", named->name);
    EBB_TRY(check_named(g, v, "initializer", named));
    EBB_TRY(program->mapped[v.i] ? replace_mapped(program, v, named->data)
                                 : copy_in(program, v, named->data));
    program->filled[v.i] = true;
    return NULL;
}

bool ebb_program_is_state(const ebb_program *program, ebb_value v)
{
    return !ebb_value_of(program->plan.g, v)->dead && ebb_value_is_state(program->plan.g, v);
}

/* A copy of a model has its files mapped by the original. */
static bool is_in_file(const ebb_model *model, const void *data)
{
    const ebb_mapping *m = model->mappings;
    while (m != NULL && (uintptr_t)data - (uintptr_t)m->data >= m->bytes)
        m = m->older;
    return m != NULL || model->mappings == NULL;
}

static uint64_t mapped_bytes(const ebb_program *p)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->plan.memory.mapped_count; i++) {
        const ebb_value v = p->plan.memory.mapped[i];
        const bool in = p->filled[v.i] && is_in_file(p->model, ebb_program_pointer(p, v));
        bytes += in ? ebb_value_of(p->plan.g, v)->tensor->bytes : 0;
    }
    return bytes;
}

EBB_API void ebb_program_measure_to(const ebb_program *program, ebb_program_facts *facts,
                                    size_t size)
{
    ebb_device_facts device = {0};
    if (!program->device->is_host && program->device->facts(program->queue, &device) != NULL)
        device = (ebb_device_facts){0};
    ebb_mover_facts moved = {0};
    if (program->mover != NULL)
        moved = ebb_mover_measure(program->mover);
    const ebb_program_facts own = {
        .device_bytes = device.allocated_bytes,
        .process_bytes = device.process_bytes,
        .arena_bytes = program->plan.packing.height,
        .planned_arena_bytes = program->plan.packing.height,
        .peak_bytes = program->plan.memory.peak_bytes,
        .measured_arena_bytes = program->touched_bytes,
        .steps = program->steps,
        .step_ns = program->step_ns,
        .exchanges = program->group != NULL ? program->group->exchanges : 0,
        .sent_bytes = program->group != NULL ? program->group->sent_bytes : 0,
        .planned_disk_bytes = program->plan.places[EBB_PLACE_DISK].height,
        .planned_host_bytes = program->plan.places[EBB_PLACE_HOST].height,
        .disk_bytes = moved.disk_bytes,
        .host_bytes = moved.host_bytes,
        .waited_ns = moved.waited_ns,
        .planned_mapped_bytes = program->plan.places[EBB_PLACE_MAPPED].height,
        .mapped_bytes = mapped_bytes(program),
    };
    ebb_facts_give(facts, size, &own, sizeof own);
}
