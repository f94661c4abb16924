/* diff.c: what a model weighs, and what changed between two, as JSON; with a run, in numbers too.
 *
 * plan   one model: peak, arena, categories at the peak, who is alive there
 * diff   two: both plans, and after one step on the same random batch with the same weights the
 *        largest deviation of every output and state that they have in common
 */
#include "exec/diff.h"

#include "exec/program.h"
#include "exec/sample.h"
#include "exec/timeline.h"

#include <math.h>
#include <stdlib.h>

static const ebb_plan_options no_options = {0};

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

static ebb_status plan_to_json(const ebb_plan *plan, const char *missing, json_t **out)
{
    const ebb_memory *m = &plan->memory;
    ebb_arena scratch = {0};
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
    (void)json_object_set_new(o, "peak_tensors", peak_tensors(plan, &scratch));
    if (missing != NULL)
        (void)json_object_set_new(o, "unsupported", json_string(missing));
    ebb_arena_fini(&scratch);
    *out = o;
    return ebb_timeline_json(o, plan);
}

/* Weighs without running. What has no kernel is weighed by its bytes and named. */
static ebb_status estimate(ebb_model *model, const ebb_plan_options *o, json_t **out)
{
    const char *name = o->backend != NULL ? o->backend : "cpu", *missing = NULL;
    const ebb_backend *const *backends = ebb_backends(name);
    if (backends == NULL)
        return ebb_hint(ebb_error(EBB_USAGE, "there is no backend '%s'", name),
                        "the backends are cpu and plain");
    ebb_arena arena = {0};
    ebb_plan plan;
    ebb_status status = ebb_plan_estimate(&plan, &arena, model->graph, backends, o->seed, &missing);
    if (status == NULL) {
        status = plan_to_json(&plan, missing, out);
        ebb_plan_release(&plan);
    }
    ebb_arena_fini(&arena);
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
    ebb_arena scratch = {0};
    ebb_batch batch;
    ebb_status status = ebb_sample_batch(&batch, p->plan.g, seed, &scratch);
    if (status == NULL)
        status = ebb_program_step(p, &batch);
    ebb_arena_fini(&scratch);
    return status;
}

static ebb_status measured(const ebb_program *p, json_t **out)
{
    ebb_program_facts facts = ebb_program_measure(p);
    EBB_TRY(plan_to_json(&p->plan, NULL, out));
    set_int(*out, "measured_arena_bytes", facts.measured_arena_bytes);
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
    const ebb_plan_options *o = options != NULL ? options : &no_options;
    json_t *root = NULL;
    *json = NULL;
    ebb_status status = NULL;
    if (!o->run) {
        status = estimate(model, o, &root);
    } else {
        ebb_program *p = NULL;
        status = compile(&p, model, o);
        for (int i = 0; i < 2 && status == NULL; i++) /* the first also prepares and touches */
            status = step(p, o->seed);
        if (status == NULL)
            status = measured(p, &root);
        ebb_program_free(p);
    }
    if (status == NULL)
        (void)json_object_set_new(root, "schema", json_string("ebb.plan/1"));
    return finish(status, root, json);
}

/* ---- numbers ---- */

typedef struct deviation {
    double max_abs, max_rel; /* max_rel: by the largest magnitude in the tensor */
    double cosine;
    bool bit_equal;
} deviation;

static deviation compare(const ebb_named *a, const ebb_named *b)
{
    ebb_type type = ebb_type_tensor((ebb_dtype)a->dtype, a->rank, a->dims);
    deviation d = {.cosine = 1.0, .bit_equal = true};
    int64_t count = 0;
    size_t bytes = 0;
    if (!ebb_type_elements(&type, &count) || !ebb_type_bytes(&type, &bytes) || bytes == 0)
        return d;
    ebb_tensor x = {.type = type, .data = a->data, .bytes = bytes};
    ebb_tensor y = {.type = type, .data = b->data, .bytes = bytes};
    d.bit_equal = memcmp(a->data, b->data, bytes) == 0;
    double xx = 0, yy = 0, xy = 0, largest = 0;
    bool broken = false;
    for (int64_t i = 0; i < count; i++) {
        double u = ebb_tensor_double(&x, i), v = ebb_tensor_double(&y, i);
        if (isnan(u) && isnan(v))
            continue;
        double error = u == v ? 0.0 : fabs(u - v);
        broken |= !isfinite(error);
        d.max_abs = error > d.max_abs ? error : d.max_abs;
        largest = fabs(u) > largest ? fabs(u) : largest;
        xx += u * u;
        yy += v * v;
        xy += u * v;
    }
    if (xx > 0 && yy > 0)
        d.cosine = xy / (sqrt(xx) * sqrt(yy));
    else if (xx > 0 || yy > 0)
        d.cosine = 0.0;
    d.max_rel = d.max_abs == 0 ? 0.0 : d.max_abs / largest;
    if (broken)
        d.max_abs = d.max_rel = d.cosine = NAN;
    return d;
}

/* JSON has no NaN and no infinity: null says that the numbers are not finite. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static bool same_type(const ebb_named *a, const ebb_named *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i];
    return same && ebb_dtype_bits((ebb_dtype)a->dtype) >= 8 && a->dtype != EBB_C64 &&
           a->dtype != EBB_C128;
}

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

static ebb_status compare_programs(ebb_program *before, ebb_program *after, json_t *root)
{
    const ebb_graph *g = before->plan.g;
    double max_abs = 0, max_rel = 0;
    bool equal = true;
    json_t *values = json_array(), *cosine = json_object();
    (void)json_object_set_new(root, "values", values);
    for (uint32_t i = 1; i < g->value_count; i++) {
        ebb_value v = {i};
        const ebb_value_info *info = ebb_value_of(g, v);
        bool output = (info->flags & EBB_IS_OUTPUT) != 0;
        if (info->dead || !(output || (info->flags & EBB_IS_STATE)))
            continue;
        const char *name = ebb_value_name(g, v);
        ebb_named a, b;
        if (ebb_program_get(before, name, &a) != NULL || ebb_program_get(after, name, &b) != NULL ||
            !same_type(&a, &b))
            continue;
        deviation d = compare(&a, &b);
        equal &= d.bit_equal;
        max_abs = d.max_abs > max_abs || isnan(d.max_abs) ? d.max_abs : max_abs;
        max_rel = d.max_rel > max_rel || isnan(d.max_rel) ? d.max_rel : max_rel;
        json_t *entry = json_object();
        (void)json_object_set_new(entry, "name", json_string(name));
        (void)json_object_set_new(entry, "kind", json_string(output ? "output" : "state"));
        (void)json_object_set_new(entry, "max_abs_error", number(d.max_abs));
        (void)json_object_set_new(entry, "max_rel_error", number(d.max_rel));
        (void)json_object_set_new(entry, "cosine", number(d.cosine));
        (void)json_object_set_new(entry, "bit_equal", json_boolean(d.bit_equal));
        (void)json_array_append_new(values, entry);
        (void)json_object_set_new(cosine, name, number(d.cosine));
    }
    (void)json_object_set_new(root, "max_abs_error", number(max_abs));
    (void)json_object_set_new(root, "max_rel_error", number(max_rel));
    (void)json_object_set_new(root, "cosine", cosine);
    (void)json_object_set_new(root, "bit_equal", json_boolean(equal));
    return NULL;
}

static ebb_status run_both(ebb_model *before, ebb_model *after, const ebb_plan_options *o,
                           ebb_program **p, ebb_program **q, json_t *root)
{
    json_t *first = NULL, *second = NULL;
    EBB_TRY(ebb_while(compile(p, before, o), "in the model before"));
    EBB_TRY(ebb_while(compile(q, after, o), "in the model after"));
    EBB_TRY(ebb_while(ebb_program_fill(*p), "in the model before"));
    EBB_TRY(share_weights(*p, *q));
    EBB_TRY(ebb_while(step(*p, o->seed), "in the model before"));
    EBB_TRY(ebb_while(step(*q, o->seed), "in the model after"));
    EBB_TRY(measured(*p, &first));
    (void)json_object_set_new(root, "before", first);
    EBB_TRY(measured(*q, &second));
    (void)json_object_set_new(root, "after", second);
    return compare_programs(*p, *q, root);
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
        status = run_both(before, after, options, &p, &q, root);
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
