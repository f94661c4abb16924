/* diff.c: what a model weighs, and what changed between two, as JSON; with a run, in numbers too.
 *
 * plan   one model: peak, arena, categories at the peak, who is alive there
 * diff   two: both plans, and after one step on the same batch with the same weights how far every
 *        output, state and gradient that they have in common is apart (deviation.h)
 */
#include "exec/look/diff.h"

#include "exec/look/deviation.h"
#include "exec/run/program.h"
#include "exec/data/sample.h"
#include "exec/look/timeline.h"
#include "exec/weigh/costs.h"
#include "exec/weigh/link.h"
#include "exec/weigh/move_time.h"
#include "exec/weigh/traffic.h"
#include "kernels/nested/on_host.h"
#include "onnx/words/options.h"

#include <math.h>
#include <stdlib.h>

/* ---- a plan ---- */

enum { PEAK_TENSORS = 20 };

static int largest_first(const void *a, const void *b)
{
    const ebb_memory_tensor *x = *(const ebb_memory_tensor *const *)a;
    const ebb_memory_tensor *y = *(const ebb_memory_tensor *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->value.i < y->value.i ? -1 : x->value.i > y->value.i;
}

static json_t *peak_tensors(const ebb_plan *plan, ebb_arena *scratch)
{
    const ebb_memory *m = &plan->memory;
    const ebb_memory_tensor **list =
        (const ebb_memory_tensor **)ebb_arena_zeroed(scratch, m->tensor_count + 1, sizeof *list);
    json_t *out = json_array();
    size_t count = 0;
    for (size_t i = 0; list != NULL && i < m->tensor_count; i++)
        if (m->tensors[i].birth <= m->peak_position && m->peak_position <= m->tensors[i].death)
            list[count++] = &m->tensors[i];
    if (count != 0)
        qsort(list, count, sizeof *list, largest_first);
    for (size_t i = 0; i < count && i < PEAK_TENSORS; i++) {
        const ebb_memory_tensor *t = list[i];
        const char *name = t->value.i != 0 ? ebb_value_name(plan->g, t->value) : "workspace";
        json_t *entry = json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)t->bytes,
                                  "category", ebb_category_name(t->category));
        json_t *node = t->node.i != 0 ? json_string(ebb_node_label(plan->g, t->node)) : json_null();
        (void)json_object_set_new(entry, "node", node);
        (void)json_array_append_new(out, entry);
    }
    return out;
}

static void set_int(json_t *object, const char *key, uint64_t value)
{
    (void)json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* How many nodes of each operator the host computes in place of the device; NULL: none. */
static json_t *host_work(const ebb_plan *plan)
{
    json_t *list = json_object();
    for (uint32_t k = 0; k < plan->count; k++) {
        if (!ebb_is_on_host(ebb_plan_kernel(plan, k)))
            continue;
        const char *op = ebb_op_row_of(ebb_node_of(plan->g, plan->order[k])->op)->name;
        json_int_t so_far = json_integer_value(json_object_get(list, op));
        (void)json_object_set_new(list, op, json_integer(so_far + 1));
    }
    if (json_object_size(list) > 0)
        return list;
    json_decref(list);
    return NULL;
}

typedef struct work { /* of one kernel for one operator */
    const char *op, *kernel;
    uint64_t nodes, bytes;
} work;

static int most_bytes_first(const void *a, const void *b)
{
    const work *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static uint64_t operand_bytes(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    uint64_t sum = 0;
    size_t bytes;
    for (uint32_t i = 0; i < info->in_count + info->out_count; i++) {
        ebb_value v = i < info->in_count ? info->in[i] : info->out[i - info->in_count];
        if (v.i != 0 && ebb_type_bytes(ebb_value_of(g, v)->type, &bytes))
            sum += bytes;
    }
    return sum;
}

/* Which kernel computes the nodes of each operator, with the bytes of their operands. */
static json_t *kernels_of(const ebb_plan *plan, ebb_arena *scratch)
{
    json_t *list = json_array();
    work *rows = NULL;
    size_t count = 0, capacity = 0, at;
    for (uint32_t k = 0; k < plan->count; k++) {
        const char *op = ebb_op_row_of(ebb_node_of(plan->g, plan->order[k])->op)->name;
        const ebb_kernel *by = ebb_plan_kernel(plan, k);
        const char *kernel = by != NULL ? by->name : "none";
        for (at = 0; at < count; at++)
            if (strcmp(rows[at].op, op) == 0 && strcmp(rows[at].kernel, kernel) == 0)
                break;
        if (!ebb_arena_grow(scratch, &rows, at, &capacity, sizeof *rows))
            break;
        count += at == count;
        rows[at].op = op;
        rows[at].kernel = kernel;
        rows[at].nodes++;
        rows[at].bytes += operand_bytes(plan->g, plan->order[k]);
    }
    if (count > 0)
        qsort(rows, count, sizeof *rows, most_bytes_first);
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "operator", rows[i].op,
                                                    "kernel", rows[i].kernel, "nodes",
                                                    (json_int_t)rows[i].nodes, "bytes",
                                                    (json_int_t)rows[i].bytes));
    return list;
}

/* What lies in other places; NULL: nothing does. */
static json_t *places_of(const ebb_plan *plan)
{
    json_t *list = json_array();
    for (int place = 0; place < EBB_PLACE_COUNT; place++) {
        const uint64_t peak = plan->memory.places[place].peak_bytes;
        const uint32_t at = plan->memory.places[place].peak_position;
        if (peak == 0)
            continue;
        json_t *entry =
            json_pack("{s:s, s:I, s:I, s:s}", "place", ebb_place_name((ebb_place)place), "bytes",
                      (json_int_t)plan->places[place].height, "peak_bytes", (json_int_t)peak,
                      "peak_node", ebb_node_label(plan->g, plan->order[at]));
        (void)json_object_set_new(
            entry, "curve",
            ebb_timeline_curve(plan->memory.places[place].live, plan->memory.positions));
        (void)json_array_append_new(list, entry);
    }
    if (json_array_size(list) > 0)
        return list;
    json_decref(list);
    return NULL;
}

/* What the processes exchange: counted, and what it takes by a link that is known. */
static ebb_status group_of(json_t **group, const ebb_plan *plan, ebb_arena *scratch)
{
    const ebb_traffic t = ebb_traffic_of(plan->g);
    ebb_link link;
    ebb_waits waits;
    *group = NULL;
    if (t.ranks < 2)
        return NULL;
    *group = json_pack("{s:I, s:I, s:I, s:I}", "ranks", (json_int_t)t.ranks, "nodes",
                       (json_int_t)t.nodes, "exchanges", (json_int_t)t.exchanges, "sent_bytes",
                       (json_int_t)t.sent_bytes);
    EBB_GOT(*group);
    if (!ebb_link_of(&link, plan->g))
        return NULL;
    EBB_TRY(ebb_waits_of(&waits, plan->setting.backends[0]->device->rates(), plan->g, scratch));
    (void)json_object_set_new(*group, "link", ebb_link_json(&link));
    set_int(*group, "exchange_ns", (uint64_t)waits.exchange);
    set_int(*group, "exposed_ns", (uint64_t)waits.exposed);
    return NULL;
}

static ebb_status plan_to_json(const ebb_plan *plan, const char *missing, bool lives, json_t **out)
{
    const ebb_memory *m = &plan->memory;
    EBB_LOCAL_ARENA(scratch);
    json_t *o = json_object(), *categories = json_object();
    uint64_t workspace = 0;
    for (int c = 0; c < EBB_CATEGORY_COUNT; c++)
        set_int(categories, ebb_category_name((ebb_category)c), m->at_peak[c]);
    for (size_t i = 0; i < m->tensor_count; i++)
        if (m->tensors[i].category == EBB_WORKSPACE && m->tensors[i].bytes > workspace)
            workspace = m->tensors[i].bytes;
    set_int(o, "peak_bytes", m->peak_bytes);
    set_int(o, "arena_bytes", plan->packing.height);
    set_int(o, "lower_bound_bytes", plan->packing.lower_bound);
    double bound = plan->packing.lower_bound != 0 ? (double)plan->packing.lower_bound : 1.0;
    double ratio = plan->packing.lower_bound != 0 ? (double)plan->packing.height / bound : 1.0;
    (void)json_object_set_new(o, "packing_ratio", json_real(ratio));
    (void)json_object_set_new(o, "packing_order", json_string(plan->packing.method));
    (void)json_object_set_new(o, "categories", categories);
    set_int(o, "saved_bytes", m->saved_bytes);
    set_int(o, "total_bytes", m->total_bytes);
    set_int(o, "workspace_bytes", workspace); /* the largest of one node */
    json_t *node = json_null();
    if (m->peak_position < plan->count)
        node = json_string(ebb_node_label(plan->g, plan->order[m->peak_position]));
    (void)json_object_set_new(o, "peak_node", node);
    set_int(o, "peak_position", m->peak_position);
    set_int(o, "nodes", plan->count);
    set_int(o, "flops", (uint64_t)plan->flops);
    set_int(o, "recompute_flops", (uint64_t)plan->recompute_flops);
    set_int(o, "planned_ns", (uint64_t)plan->planned_ns);
    (void)json_object_set_new(o, "peak_tensors", peak_tensors(plan, scratch));
    (void)json_object_set_new(o, "kernels", kernels_of(plan, scratch));
    json_t *on_host = host_work(plan);
    if (on_host != NULL)
        (void)json_object_set_new(o, "on_host", on_host);
    json_t *group;
    ebb_status status = group_of(&group, plan, scratch);
    if (group != NULL)
        (void)json_object_set_new(o, "group", group);
    json_t *places = places_of(plan);
    if (places != NULL)
        (void)json_object_set_new(o, "places", places);
    if (missing != NULL)
        (void)json_object_set_new(o, "unsupported", json_string(missing));
    *out = o;
    if (lives)
        ebb_timeline_lives(o, plan);
    return status != NULL ? status : ebb_timeline_json(o, plan);
}

/* Weighs without running. What has no kernel is weighed by its bytes and named. */
static ebb_status estimate(ebb_model *model, const ebb_plan_options *o, json_t **out)
{
    const char *missing = NULL;
    ebb_setting setting;
    EBB_TRY(ebb_setting_read(&setting, model, o->backend, o->seed, o->threads));
    EBB_LOCAL_ARENA(arena);
    ebb_plan plan;
    ebb_status status = ebb_plan_estimate(&plan, arena, model->graph, &setting, &missing);
    if (status == NULL) {
        status = plan_to_json(&plan, missing, o->lives, out);
        ebb_plan_release(&plan);
    }
    return status;
}

/* ---- with a run ---- */

static ebb_status compile(ebb_program **p, ebb_model *model, const ebb_plan_options *o)
{
    EBB_TRY(ebb_sample_weights(model, o->seed));
    ebb_compile_options options = {.backend = o->backend, .seed = o->seed, .threads = o->threads};
    return ebb_program_compile(p, model, &options);
}

static ebb_status step(ebb_program *p, uint64_t seed)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_batch batch;
    EBB_TRY(ebb_sample_batch(&batch, p->plan.g, seed, scratch));
    return ebb_program_step(p, &batch);
}

static ebb_status measured(const ebb_program *p, bool lives, json_t **out)
{
    ebb_program_facts facts = ebb_program_measure(p);
    EBB_TRY(plan_to_json(&p->plan, NULL, lives, out));
    set_int(*out, "measured_arena_bytes", facts.measured_arena_bytes);
    if (facts.device_bytes != 0) {
        set_int(*out, "device_bytes", facts.device_bytes);
        set_int(*out, "process_bytes", facts.process_bytes);
    }
    set_int(*out, "step_ns", (uint64_t)facts.step_ns);
    return NULL;
}

static ebb_status finish(ebb_status status, json_t *root, char **json)
{
    if (status == NULL)
        status = ebb_json_dump(root, json);
    json_decref(root);
    return status;
}

EBB_API ebb_status ebb_plan_json(ebb_model *model, const ebb_plan_options *options, char **json)
{
    EBB_NEED(model);
    EBB_NEED(json);
    ebb_plan_options own, *o = &own;
    json_t *root = NULL;
    *json = NULL;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_plan_options, o, lives, options));
    EBB_NEED_COUNT(o->threads);
    ebb_status status = NULL;
    if (!o->run) {
        status = estimate(model, o, &root);
    } else {
        ebb_program *p = NULL;
        status = compile(&p, model, o);
        for (int i = 0; i < 2 && status == NULL; i++) /* the first also prepares and touches */
            status = step(p, o->seed);
        if (status == NULL)
            status = measured(p, o->lives, &root);
        ebb_program_free(p);
    }
    if (status == NULL)
        (void)json_object_set_new(root, "schema", json_string("ebb.plan/1"));
    return finish(status, root, json);
}

/* ---- both ---- */

/* The initializers that make up the weights: after's become before's. */
static ebb_status share_weights(ebb_program *before, ebb_program *after)
{
    const ebb_graph *g = after->plan.g;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        ebb_value there = ebb_value_find(before->plan.g, ebb_value_name(g, v));
        bool bare = info->tensor == NULL || info->tensor->data == NULL;
        if (there.i == 0 || info->dead ||
            !(ebb_value_of(before->plan.g, there)->flags & EBB_IS_INITIALIZER) ||
            !(bare || info->role == EBB_ROLE_FROZEN || ebb_program_is_state(after, v)))
            continue;
        ebb_named named;
        EBB_TRY(ebb_program_get(before, ebb_value_name(g, v), &named));
        EBB_TRY(ebb_program_set(after, &named));
    }
    return NULL;
}

/* Steps of both in turns, so that what else the machine does touches both alike. */
static ebb_status time_both(ebb_program *p, ebb_program *q, const ebb_plan_options *o,
                            const ebb_batch *batch, ebb_arena *scratch, json_t *root)
{
    double *times[2], typical[2];
    ebb_program *programs[2] = {p, q};
    static const char *const sides[2] = {"before", "after"};
    for (int k = 0; k < 2; k++)
        EBB_GOT((times[k] = EBB_NEW(scratch, double, (size_t)o->steps)) != NULL);
    for (int i = 0; i < o->steps; i++) {
        for (int k = 0; k < 2; k++) {
            int side = (k + i) % 2;
            EBB_TRY(ebb_program_step(programs[side], batch));
            times[side][i] = (double)ebb_program_measure(programs[side]).step_ns;
        }
    }
    for (int k = 0; k < 2; k++) {
        typical[k] =
            ebb_quantile(times[k], (size_t)o->steps, 4); // others only ever make a step slower
        set_int(json_object_get(root, sides[k]), "step_ns", (uint64_t)typical[k]);
    }
    (void)json_object_set_new(root, "time_ratio", json_real(typical[1] / fmax(typical[0], 1)));
    (void)json_object_set_new(root, "timed_steps", json_integer(o->steps));
    return NULL;
}

static ebb_status run_both(ebb_model *before, ebb_model *after, const ebb_plan_options *o,
                           ebb_program **p, ebb_program **q, ebb_arena *scratch, json_t *root)
{
    json_t *first = NULL, *second = NULL;
    ebb_batch random;
    ebb_kept_states kept;
    EBB_TRY(ebb_while(compile(p, before, o), "in the model before"));
    EBB_TRY(ebb_while(compile(q, after, o), "in the model after"));
    EBB_TRY(ebb_while(ebb_program_fill(*p), "in the model before"));
    EBB_TRY(share_weights(*p, *q));
    EBB_TRY(ebb_keep_states(&kept, *p, scratch));
    if (o->batch == NULL)
        EBB_TRY(ebb_sample_batch(&random, (*p)->plan.g, o->seed, scratch));
    const ebb_batch *batch = o->batch != NULL ? o->batch : &random;
    EBB_TRY(ebb_while(ebb_program_step(*p, batch), "in the model before"));
    EBB_TRY(ebb_while(ebb_program_step(*q, batch), "in the model after"));
    EBB_TRY(measured(*p, o->lives, &first));
    (void)json_object_set_new(root, "before", first);
    EBB_TRY(measured(*q, o->lives, &second));
    (void)json_object_set_new(root, "after", second);
    EBB_TRY(ebb_deviation_json(root, *p, *q, &kept, scratch));
    return o->steps > 0 ? time_both(*p, *q, o, batch, scratch, root) : NULL;
}

static ebb_status weigh_both(ebb_model *before, ebb_model *after, const ebb_plan_options *o,
                             json_t *root)
{
    json_t *first = NULL, *second = NULL;
    EBB_TRY(ebb_while(estimate(before, o, &first), "in the model before"));
    (void)json_object_set_new(root, "before", first);
    EBB_TRY(ebb_while(estimate(after, o, &second), "in the model after"));
    (void)json_object_set_new(root, "after", second);
    return NULL;
}

ebb_status ebb_diff_measure(json_t *root, ebb_model *before, ebb_model *after,
                            const ebb_plan_options *options)
{
    ebb_status status = NULL;
    if (options->run) {
        ebb_program *p = NULL, *q = NULL;
        EBB_LOCAL_ARENA(scratch);
        status = run_both(before, after, options, &p, &q, scratch, root);
        ebb_program_free(p);
        ebb_program_free(q);
    } else {
        status = weigh_both(before, after, options, root);
    }
    const json_t *a = json_object_get(json_object_get(root, "before"), "peak_bytes");
    const json_t *b = json_object_get(json_object_get(root, "after"), "peak_bytes");
    json_int_t saved = json_integer_value(a) - json_integer_value(b);
    (void)json_object_set_new(root, "peak_saved_bytes", json_integer(saved));
    return status;
}
