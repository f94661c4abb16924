/* plan.c: everything about a step that needs no weights: calls, kernels, workspaces, offsets, cost.
 */
#include "exec/weigh/plan.h"

#include "exec/weigh/alike.h"
#include "exec/weigh/call.h"
#include "exec/weigh/allowance.h"
#include "exec/weigh/loop.h"
#include "exec/weigh/node_time.h"
#include "kernels/parallel.h"
#include "onnx/graph/infer.h"
#include "onnx/graph/stream.h"

#include <stdlib.h>

/* ---- what has no kernel ---- */

enum { SHOWN_LABELS = 3 };

typedef struct gap { /* nodes of one op without a kernel */
    const char *op;
    const char *reason;
    size_t count;
    const char *labels[SHOWN_LABELS];
} gap;

typedef struct gaps {
    gap *list;
    size_t count, capacity, nodes;
} gaps;

static ebb_status note_gap(gaps *all, ebb_arena *scratch, const ebb_graph *g, ebb_node n,
                           const char *label, ebb_status why)
{
    const ebb_node_info *node = ebb_node_of(g, n);
    const char *op = ebb_text(g, node->op_name);
    const char *domain = ebb_text(g, node->domain);
    gap *found = NULL;
    for (size_t i = 0; i < all->count && found == NULL; i++)
        if (strcmp(all->list[i].op, op) == 0)
            found = &all->list[i];
    if (found == NULL) {
        EBB_GOT(ebb_arena_grow(scratch, &all->list, all->count, &all->capacity, sizeof *all->list));
        found = &all->list[all->count];
        *found = (gap){.op = op};
        /* The sentence without its trail, and without the label that we show anyway. */
        const char *text =
            node->op == EBB_OP_UNKNOWN ? "not in the operator table" : ebb_status_text(why);
        size_t length = strlen(label);
        if (strncmp(text, label, length) == 0 && text[length] == ':')
            text += length + 1 + strspn(text + length + 1, " ");
        found->reason = ebb_arena_printf(scratch, "%.*s%s%s", (int)strcspn(text, "\n"), text,
                                         domain[0] != '\0' ? "; domain " : "", domain);
        EBB_GOT(found->reason);
        all->count++;
    }
    if (found->count < SHOWN_LABELS) { // the operands of its call may go, and this with them
        found->labels[found->count] = ebb_arena_strdup(scratch, label);
        EBB_GOT(found->labels[found->count]);
    }
    found->count++;
    all->nodes++;
    return NULL;
}

/* "2 nodes have no kernel\n  If (1): If 'a': not in the table" */
static const char *describe_gaps(const gaps *all, ebb_arena *arena)
{
    const char *text = ebb_arena_printf(arena, "%zu node%s no kernel", all->nodes,
                                        all->nodes == 1 ? " has" : "s have");
    for (size_t i = 0; text != NULL && i < all->count; i++) {
        const gap *f = &all->list[i];
        text = ebb_arena_printf(
            arena, "%s\n  %s (%zu): %s%s%s%s%s%s: %s", text, f->op, f->count, f->labels[0],
            f->count > 1 ? ", " : "", f->count > 1 ? f->labels[1] : "", f->count > 2 ? ", " : "",
            f->count > 2 ? f->labels[2] : "", f->count > SHOWN_LABELS ? ", ..." : "", f->reason);
    }
    return text;
}

/* ---- the plan ---- */

ebb_status ebb_setting_read(ebb_setting *setting, const ebb_model *model, const char *backend,
                            uint64_t seed, int threads)
{
    *setting = (ebb_setting){.seed = seed, .deterministic = model->deterministic};
    EBB_TRY(ebb_threads_read(&setting->threads, threads != 0 ? threads : model->threads));
    return ebb_backends(backend, &setting->backends);
}

static uint64_t number_of(const ebb_model *model, const char *key)
{
    const char *text = ebb_props_get(model->graph, &model->props, key);
    return text != NULL && text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : 0;
}

uint64_t ebb_budget_of(const ebb_model *model, int *threads)
{
    uint64_t count = number_of(model, "ebb.budget_threads");
    *threads = count <= EBB_MOST_THREADS ? (int)count : 0;
    return number_of(model, "ebb.budget_bytes");
}

/* Recomputed nodes bear the mark of what they repeat. */
static bool is_recompute(const ebb_graph *g, ebb_node n)
{
    return ebb_props_get(g, &ebb_node_of(g, n)->props, "ebb.copied_from") != NULL;
}

static void add_cost(ebb_plan *plan, const ebb_rates *rates, ebb_node n)
{
    double flops = ebb_node_flops(plan->g, n);
    plan->flops += flops;
    if (is_recompute(plan->g, n))
        plan->recompute_flops += flops;
    plan->planned_ns += ebb_node_ns_by(rates, plan->g, n);
}

/* Operands that are never whole point at the call that decodes them. */
static ebb_status find_sources(ebb_plan *plan, ebb_call *call, ebb_node n, const uint32_t *at)
{
    const ebb_graph *g = plan->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    ebb_use reader;
    if (info->tile_rows != 0) {
        const char *refused = ebb_stream_refuses(g, n, &reader);
        if (refused != NULL)
            return ebb_error(EBB_REJECTED, "%s: it cannot be read in tiles: %s", call->node,
                             refused);
        call->streamed = true;
    }
    for (uint32_t i = 0; i < info->in_count; i++) {
        ebb_node source = ebb_stream_source(g, info->in[i]);
        if (source.i == 0)
            continue;
        call->in[i].source = &plan->calls[at[source.i]];
        call->in[i].tile_rows = ebb_node_of(g, source)->tile_rows;
    }
    return NULL;
}

/* Where a kernel is all that is asked of a call, its operands go. */
static void forget_operands(ebb_call *call, ebb_arena *passing)
{
    enum { PASSING_BYTES = 1 << 20 };
    call->in = call->out = NULL;
    call->node = NULL;
    if (passing->used_bytes > PASSING_BYTES)
        ebb_arena_fini(passing);
}

/* What reads a constant, decodes or moves is asked by itself; and so is a loop that is to run. */
static bool asks_alike(const ebb_call *call, bool estimate)
{
    if (call->op == EBB_OP_SCAN)
        return estimate;
    bool plain = !call->streamed && call->op != EBB_OP_UNKNOWN && !ebb_op_moves(call->op);
    for (uint32_t i = 0; i < call->input_count; i++)
        plain = plain && call->in[i].constant == NULL && call->in[i].source == NULL;
    return plain;
}

/* Takes kernel and workspace of the first that is alike. False: there is none that has them. */
static bool take_alike(ebb_plan *plan, ebb_alikes *all, ebb_call *call, ebb_node n,
                       const uint32_t *at)
{
    const ebb_node first = ebb_alikes_first(all, n);
    const ebb_call *other = &plan->calls[at[first.i]];
    if (first.i == 0 || other->kernel == NULL)
        return false;
    call->kernel = other->kernel;
    call->backends = other->backends;
    call->workspace_bytes = plan->workspace_bytes[n.i] = other->workspace_bytes;
    return true;
}

static ebb_status leave(const ebb_call *call)
{
    (void)call;
    return NULL;
}

/* Of what takes apart, or puts together, what lies in another place. */
static const ebb_kernel rests = {.name = "rests", .op = EBB_OP_UNKNOWN, .run = leave};

/* passing: memory for operands that go; NULL: all stay. */
static ebb_status make_calls(ebb_plan *plan, ebb_arena *arena, ebb_arena *passing,
                             ebb_arena *scratch, gaps *missing)
{
    const ebb_setting *setting = &plan->setting;
    const ebb_backend *const *backends = setting->backends;
    const ebb_rates *rates = backends[0]->device->rates();
    const ebb_allowance allowance = ebb_allowance_of(plan->g->model);
    uint32_t *at = EBB_NEW(scratch, uint32_t, plan->g->node_count + 1);
    EBB_GOT(at);
    ebb_alikes known;
    EBB_TRY(ebb_alikes_make(&known, plan->g, scratch));
    EBB_EACH_NODE(plan->g, n) {
        ebb_call *call = &plan->calls[plan->count];
        bool goes = passing != NULL && ebb_node_of(plan->g, n)->tile_rows == 0;
        EBB_TRY(ebb_call_make(call, goes ? passing : arena, plan->g, n, setting->seed));
        call->deterministic = setting->deterministic;
        at[n.i] = plan->count;
        const char *misplaced = ebb_place_refuses(plan->g, n);
        if (misplaced != NULL)
            return ebb_error(EBB_REJECTED, "%s: %s", call->node, misplaced);
        EBB_TRY(find_sources(plan, call, n, at));
        plan->order[plan->count++] = n;
        add_cost(plan, rates, n);
        const bool stays = ebb_node_rests(plan->g, n);
        const bool taken =
            !stays && asks_alike(call, passing != NULL) && take_alike(plan, &known, call, n, at);
        if (stays)
            call->kernel = &rests;
        ebb_status why = taken || stays            ? NULL
                         : call->op == EBB_OP_SCAN ? ebb_loop_plan(call, arena, plan->g, n, setting)
                                                   : ebb_pick(call, backends);
        if (why != NULL && ebb_status_code(why) != EBB_UNSUPPORTED)
            return why;
        if (why != NULL) {
            call->kernel = NULL;
            EBB_TRY(note_gap(missing, scratch, plan->g, n, call->node, why));
        } else if (!taken && call->kernel->workspace != NULL) {
            EBB_TRY(call->kernel->workspace(call, &call->workspace_bytes));
            plan->workspace_bytes[n.i] = call->workspace_bytes;
        }
        if (call->kernel != NULL)
            EBB_TRY(ebb_allowance_check(&allowance, plan->g, n, call->workspace_bytes));
        if (goes)
            forget_operands(call, passing);
    }
    return NULL;
}

static ebb_status pack_tensors(ebb_plan *plan, ebb_arena *arena, ebb_arena *scratch)
{
    const ebb_memory *m = &plan->memory;
    plan->intervals = EBB_NEW(arena, ebb_interval, m->tensor_count + 1);
    EBB_GOT(plan->intervals);
    for (size_t i = 0; i < m->tensor_count; i++) {
        const ebb_memory_tensor *t = &m->tensors[i];
        plan->intervals[i] = (ebb_interval){t->birth, t->death + 1, t->bytes, 0};
    }
    plan->packing = (ebb_packing){.height = m->peak_bytes, .lower_bound = m->peak_bytes};
    if (plan->setting.enough == UINT64_MAX) // nobody asks where they lie
        return NULL;
    const ebb_pack_options options = {.alignment = plan->align, .capacity = plan->setting.enough};
    return ebb_pack(&plan->packing, plan->intervals, m->tensor_count, &options, scratch);
}

/* Each other place is packed as the arena is, but bytes there are not worth a search: an eighth more than can
 * be needed is well. */
static ebb_status pack_away(ebb_plan *plan, ebb_arena *arena, ebb_arena *scratch)
{
    const ebb_memory *m = &plan->memory;
    const uint64_t mapped = m->places[EBB_PLACE_MAPPED].peak_bytes;
    plan->places[EBB_PLACE_MAPPED] = (ebb_packing){.height = mapped, .lower_bound = mapped};
    if (m->away_count == 0)
        return NULL;
    plan->away = EBB_NEW(arena, ebb_interval, m->away_count);
    ebb_interval *list = EBB_NEW(scratch, ebb_interval, m->away_count);
    EBB_GOT(plan->away && list);
    for (int place = 0; place < EBB_PLACE_COUNT; place++) {
        const uint64_t peak = m->places[place].peak_bytes;
        const ebb_pack_options options = {.alignment = place == EBB_PLACE_DISK ? EBB_DISK_ALIGN
                                                                               : plan->align,
                                          .capacity = peak + peak / 8};
        size_t count = 0, at = 0;
        for (size_t i = 0; i < m->away_count; i++) {
            const ebb_memory_away *t = &m->away[i];
            if ((int)t->place == place && t->within == 0)
                list[count++] = (ebb_interval){t->birth, t->death + 1, t->bytes, 0};
        }
        if (count == 0)
            continue;
        EBB_TRY(ebb_pack(&plan->places[place], list, count, &options, scratch));
        for (size_t i = 0; i < m->away_count; i++)
            if ((int)m->away[i].place == place && m->away[i].within == 0)
                plan->away[i] = list[at++];
    }
    for (size_t i = 0; i < m->away_count; i++)
        if (m->away[i].within != 0)
            plan->away[i].offset = plan->away[m->away[i].within - 1].offset + m->away[i].at;
    return NULL;
}

static void release_calls(ebb_plan *plan)
{
    for (uint32_t p = 0; plan->calls != NULL && p < plan->count; p++) {
        ebb_call *call = &plan->calls[p];
        if (call->kernel != NULL && call->kernel->release != NULL && call->state != NULL)
            call->kernel->release(call);
    }
    plan->calls = NULL;
}

/* Of the calls of an estimate their kernels stay. */
static ebb_status drop_calls(ebb_plan *plan, ebb_arena *arena)
{
    const ebb_call *calls = plan->calls;
    plan->kernels = EBB_NEW(arena, const ebb_kernel *, plan->count + (size_t)1);
    EBB_GOT(plan->kernels);
    for (uint32_t p = 0; p < plan->count; p++)
        plan->kernels[p] = calls[p].kernel;
    release_calls(plan);
    ebb_arena_drop(arena, calls);
    return NULL;
}

static ebb_status estimate(ebb_plan *plan, ebb_arena *arena, ebb_arena *passing, ebb_arena *scratch,
                           const char **missing)
{
    const ebb_graph *g = plan->g;
    const size_t nodes = ebb_graph_size(g);
    plan->order = EBB_NEW(arena, ebb_node, nodes + 1);
    plan->calls = EBB_NEW(arena, ebb_call, nodes + 1);
    plan->workspace_bytes = EBB_NEW(arena, size_t, g->node_count + 1);
    EBB_GOT(plan->order && plan->calls && plan->workspace_bytes);
    gaps without = {0};
    EBB_TRY(make_calls(plan, arena, passing, scratch, &without));
    if (without.nodes != 0) {
        *missing = describe_gaps(&without, arena);
        EBB_GOT(*missing);
    }
    if (passing != NULL)
        EBB_TRY(drop_calls(plan, arena));
    plan->align = plan->setting.backends[0]->device->align;
    const ebb_memory_terms terms = {.workspace_bytes = plan->workspace_bytes,
                                    .align = plan->align,
                                    .maps = plan->setting.backends[0]->device->is_host,
                                    .elsewhere = plan->elsewhere};
    EBB_TRY(ebb_memory_weigh(&plan->memory, arena, g, &terms));
    ebb_waits waits;
    EBB_TRY(ebb_waits_of(&waits, plan->setting.backends[0]->device->rates(), g, scratch));
    plan->planned_ns += waits.stood;
    EBB_TRY(pack_tensors(plan, arena, scratch));
    return pack_away(plan, arena, scratch);
}

static ebb_status make(ebb_plan *plan, ebb_arena *arena, ebb_arena *passing, const ebb_graph *g,
                       const bool *elsewhere, const ebb_setting *setting, const char **missing)
{
    *plan = (ebb_plan){.g = g, .elsewhere = elsewhere, .setting = *setting};
    *missing = NULL;
    if (g->outer == NULL && g == g->model->graph)
        EBB_TRY(ebb_require_static(g));
    EBB_LOCAL_ARENA(scratch);
    const ebb_threads_before before = ebb_threads_enter(setting->threads);
    ebb_status status = estimate(plan, arena, passing, scratch, missing);
    ebb_threads_leave(before);
    if (status != NULL)
        ebb_plan_release(plan);
    return status;
}

ebb_status ebb_plan_estimate(ebb_plan *plan, ebb_arena *arena, const ebb_graph *g,
                             const ebb_setting *setting, const char **missing)
{
    EBB_LOCAL_ARENA(passing);
    return make(plan, arena, passing, g, NULL, setting, missing);
}

ebb_status ebb_plan_make(ebb_plan *plan, ebb_arena *arena, const ebb_graph *g,
                         const ebb_setting *setting)
{
    const char *missing;
    EBB_TRY(make(plan, arena, NULL, g, NULL, setting, &missing));
    if (missing == NULL)
        return NULL;
    ebb_plan_release(plan);
    return ebb_error(EBB_UNSUPPORTED, "%s", missing);
}

ebb_status ebb_plan_body(ebb_plan *plan, ebb_arena *arena, const ebb_graph *body,
                         const bool *elsewhere, const ebb_setting *setting, const char **missing)
{
    return make(plan, arena, NULL, body, elsewhere, setting, missing);
}

void ebb_plan_release(ebb_plan *plan)
{
    release_calls(plan);
    plan->count = 0;
}
