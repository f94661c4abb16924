/* sensitivity.c: how much each saved tensor of a step bears to be coded, measured on one batch.
 *
 *   look     a copy of the step, its saved tensors and the gradients beside them made outputs:
 *              range2       mean over groups of 256 (as quantise groups) of (largest - least)^2
 *              grad2        sum of squares of the gradients that meet the tensor in the backward:
 *                           dy of ConvWeightGrad(dy, x), of dW = x^T dy, of LayerNormGrad(dy, x)
 *   tensor   three copies each, where it alone is coded: g0 and g1 at 1 bit, drawn apart, g2 at 8:
 *              sensitivity  max(|g0 - g1|^2, 2 |g0 - g2|^2, 2 |g1 - g2|^2)
 *
 * where g are the gradients of all parameters together. Everything but the draws of the code is
 * equal in all runs: batch, weights, dropout. An update is of no account: gradients are read where
 * they are made ("w_grad"), whatever the optimizer does with them.
 *
 * What bears no fewer than 8 bits (scores of attention) has g0 and g1 at 8 and g2 as it is, times
 * 255^2: the variance goes with 1 / (2^bits - 1)^2. So it is with g2 where 8 bits save nothing.
 *
 * The variance of dW = x^T dy by rounding x is (range of x)^2 |dy|^2, which is why grad2 is of what
 * x meets, and not of x's own gradient; that is taken where nothing else is found.
 *
 * Papers: Chen et al., ActNN, ICML 2021 (range2, grad2); Liu et al., GACT, ICML 2022 (sensitivity).
 */
#include "api/api.h"

#include <math.h>
#include <string.h>

#include "api/sensitivity_met.h"
#include "exec/run/program.h"
#include "onnx/file/sink.h"
#include "passes/pipeline.h"
#include "onnx/words/options.h"

enum { GROUP = 256 }; /* quantise's own default */

typedef struct part { /* of all gradients: one parameter's */
    const char *name; /* of the gradient */
    ebb_type type;
    size_t bytes, offset;
} part;

typedef struct measured { /* of one saved tensor */
    const char *name;
    int64_t bytes;
    bool exponent;
    ebb_value root;
    ebb_met met; /* the gradients that meet it */
    double range2, grad2, sensitivity;
    const char *skipped; /* why, as a clause; NULL: measured */
} measured;

typedef struct study {
    const ebb_sensitivity_options *o;
    ebb_arena arena;
    ebb_model *base; /* no marks of shared memory; the gradients of all parameters are outputs */
    ebb_code_sites sites;
    measured *list;
    size_t count;
    part *parts;
    size_t part_count, bytes; /* of all gradients */
    unsigned char *exact, *g[3];
} study;

/* ---- the step and its tensors ---- */

static bool has_backward(const ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->phase == EBB_BACKWARD)
            return true;
    return false;
}

static ebb_status show(ebb_graph *g, ebb_value v)
{
    bool shown = (ebb_value_of(g, v)->flags & (EBB_IS_OUTPUT | EBB_IS_INPUT)) != 0;
    return shown ? NULL : ebb_graph_add_output(g, v);
}

static ebb_status add_part(study *s, ebb_value w)
{
    ebb_graph *g = s->base->graph;
    const char *name = ebb_arena_printf(&s->arena, "%s_grad", ebb_value_name(g, w));
    EBB_GOT(name);
    ebb_value grad = ebb_value_find(g, name);
    const ebb_value_info *info = ebb_value_of(g, grad);
    part p = {.name = name, .type = *info->type, .offset = s->bytes};
    if (grad.i == 0 || info->dead || info->producer.i == 0 ||
        !ebb_dtype_is_float((ebb_dtype)info->type->dtype) || !ebb_type_bytes(info->type, &p.bytes))
        return NULL;
    size_t room = (p.bytes + 15) / 16 * 16; // each begins where its elements are aligned
    EBB_GOT(room >= p.bytes && s->bytes <= SIZE_MAX / 2 - room);
    s->bytes += room;
    s->parts[s->part_count++] = p;
    return show(g, grad);
}

static ebb_status find_parts(study *s)
{
    const ebb_graph *g = s->base->graph;
    if (!has_backward(g))
        return ebb_hint(ebb_error(EBB_USAGE, "it is no training step: nothing is kept in it"),
                        "make one with `ebb grad`, or give its --loss");
    s->parts = EBB_NEW(&s->arena, part, g->initializer_count + 1);
    EBB_GOT(s->parts);
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_value_of(g, g->initializers[i])->role == EBB_ROLE_PARAMETER)
            EBB_TRY(add_part(s, g->initializers[i]));
    if (s->part_count == 0)
        return ebb_hint(
            ebb_error(EBB_USAGE, "the step has no parameter w with a gradient 'w_grad'"),
            "make it with `ebb grad`, whatever the optimizer");
    unsigned char **all[4] = {&s->exact, &s->g[0], &s->g[1], &s->g[2]};
    for (size_t i = 0; i < 4; i++)
        EBB_GOT((*all[i] = ebb_arena_zeroed(&s->arena, s->bytes + 1, 1)) != NULL);
    return NULL;
}

static ebb_status find_tensors(study *s)
{
    ebb_edit e = {.g = s->base->graph, .scratch = &s->arena, .keep = &s->arena};
    EBB_TRY(ebb_code_sites_find(&s->sites, &e, NULL));
    ebb_meetings meetings = {e.g, &s->sites.reads.saves, &s->arena, NULL};
    EBB_TRY(ebb_meetings_init(&meetings));
    s->list = EBB_NEW(&s->arena, measured, s->sites.count + 1);
    EBB_GOT(s->list);
    for (size_t i = 0; i < s->sites.count; i++) {
        const ebb_code_site *site = &s->sites.list[i];
        if (site->refused != NULL) // quantise never codes it: nothing to know
            continue;
        measured *m = &s->list[s->count++];
        *m = (measured){.root = site->root, .bytes = site->bytes, .exponent = site->exponent};
        m->name = ebb_arena_strdup(&s->arena, ebb_value_name(e.g, site->root));
        EBB_GOT(m->name);
        EBB_TRY(ebb_met_find(&m->met, &meetings, site, m->name));
        if (m->met.count == 0)
            m->skipped = "no gradient meets it in the backward";
    }
    return NULL;
}

/* ---- running ---- */

static ebb_status step(const study *s, ebb_model *model, ebb_program **program)
{
    const ebb_compile_options options = {
        .backend = s->o->backend, .seed = s->o->seed, .threads = s->o->threads};
    EBB_TRY(ebb_pipeline_mark(model->graph)); // now that it is known what is to be seen
    EBB_TRY(ebb_program_compile(program, model, &options));
    return ebb_program_step(*program, s->o->batch);
}

static ebb_status collect(const study *s, ebb_program *program, unsigned char *into)
{
    for (size_t i = 0; i < s->part_count; i++) {
        ebb_named t;
        EBB_TRY(ebb_program_get(program, s->parts[i].name, &t));
        memcpy(into + s->parts[i].offset, t.data, s->parts[i].bytes);
    }
    return NULL;
}

static int64_t elements_of(const ebb_type *type)
{
    int64_t count;
    return ebb_type_elements(type, &count) ? count : 0;
}

static double element(const ebb_tensor *t, int64_t i)
{
    float f;
    if (t->type.dtype != EBB_F32)
        return ebb_tensor_double(t, i);
    memcpy(&f, (const unsigned char *)t->data + (size_t)i * sizeof f, sizeof f);
    return (double)f;
}

/* |a - b|^2 over all gradients; b NULL: |a|^2. */
static double distance(const study *s, const unsigned char *a, const unsigned char *b)
{
    double sum = 0;
    for (size_t i = 0; i < s->part_count; i++) {
        const part *p = &s->parts[i];
        int64_t count = elements_of(&p->type);
        ebb_tensor x = {.type = p->type, .data = a + p->offset, .bytes = p->bytes}, y = x;
        y.data = b != NULL ? b + p->offset : NULL;
        for (int64_t k = 0; k < count; k++) {
            double d = element(&x, k) - (b != NULL ? element(&y, k) : 0);
            sum += d * d;
        }
    }
    return sum;
}

/* ---- looking ---- */

static ebb_tensor tensor_of(const ebb_named *t)
{
    ebb_tensor x = {.type = ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims),
                    .data = t->data};
    return ebb_type_bytes(&x.type, &x.bytes) ? x : (ebb_tensor){.type = x.type};
}

static double range2(const ebb_tensor *x)
{
    int axis;
    int64_t rows, count = elements_of(&x->type), groups = 0;
    double sum = 0;
    (void)ebb_code_rows(&x->type, &axis, &rows);
    int64_t row = rows > 0 ? count / rows : 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = 0; at < row; at += GROUP, groups++) {
            double least = INFINITY, most = -INFINITY;
            for (int64_t i = at; i < row && i < at + GROUP; i++) {
                double v = element(x, r * row + i);
                least = v < least || isnan(v) ? v : least;
                most = v > most || isnan(v) ? v : most;
            }
            sum += (most - least) * (most - least);
        }
    return groups > 0 ? sum / (double)groups : 0;
}

static double squares(const ebb_tensor *x)
{
    int64_t count = elements_of(&x->type);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += element(x, i) * element(x, i);
    return sum;
}

/* What a program has of its inputs it may write over within the step: they are as the batch is. */
static ebb_status read_value(const study *s, ebb_program *program, ebb_value v, ebb_tensor *x)
{
    const ebb_graph *g = s->base->graph;
    const char *name = ebb_value_name(g, v);
    ebb_named t = {0};
    if ((ebb_value_of(g, v)->flags & EBB_IS_INPUT) == 0)
        EBB_TRY(ebb_program_get(program, name, &t));
    const ebb_named *given = t.data == NULL ? ebb_batch_find(s->o->batch, name) : NULL;
    if (given != NULL)
        t = *given;
    if (t.data == NULL)
        return ebb_error(EBB_RUNTIME, "'%s' has no elements after the step", name);
    *x = tensor_of(&t);
    return NULL;
}

static ebb_status read_tensors(study *s, ebb_program *program)
{
    EBB_TRY(collect(s, program, s->exact));
    if (!isfinite(distance(s, s->exact, NULL)))
        return ebb_error(EBB_RUNTIME, "the gradients of the step are not finite on this batch");
    for (size_t i = 0; i < s->count; i++) {
        measured *m = &s->list[i];
        ebb_tensor x;
        if (m->skipped != NULL)
            continue;
        EBB_TRY(read_value(s, program, m->root, &x));
        m->range2 = range2(&x);
        for (size_t k = 0; k < m->met.count; k++) {
            EBB_TRY(read_value(s, program, m->met.list[k], &x));
            m->grad2 += squares(&x);
        }
        if (!isfinite(m->range2) || !isfinite(m->grad2))
            m->skipped = "its numbers are not finite";
    }
    return NULL;
}

static ebb_status look(study *s)
{
    ebb_model *copy;
    ebb_program *program = NULL;
    const ebb_graph *g = s->base->graph;
    EBB_TRY(ebb_model_copy(&copy, s->base));
    ebb_status status = NULL;
    for (size_t i = 0; status == NULL && i < s->count; i++) {
        const measured *m = &s->list[i];
        if (m->skipped != NULL)
            continue;
        status = show(copy->graph, ebb_value_find(copy->graph, m->name));
        for (size_t k = 0; status == NULL && k < m->met.count; k++)
            status =
                show(copy->graph, ebb_value_find(copy->graph, ebb_value_name(g, m->met.list[k])));
    }
    if (status == NULL)
        status = step(s, copy, &program);
    if (status == NULL)
        status = read_tensors(s, program);
    ebb_program_free(program);
    ebb_model_free(copy);
    return status;
}

/* ---- one tensor, coded ---- */

/* quantise takes patterns: what is no input, whose names the batch knows, gets a name without. */
static ebb_status name_to_code(ebb_graph *g, const char *name, const char **pattern)
{
    ebb_value v = ebb_value_find(g, name);
    *pattern = name;
    if ((ebb_value_of(g, v)->flags & EBB_IS_INPUT) != 0)
        return NULL;
    EBB_TRY(ebb_value_step_aside(g, v, "ebb.coded"));
    *pattern = ebb_value_name(g, v);
    return NULL;
}

/* Why it was left as it is; NULL: its reads are coded. */
static ebb_status quantise(study *s, ebb_model *copy, const char *name, int bits, const char **why)
{
    ebb_graph *g = copy->graph;
    ebb_report report;
    char text[8];
    (void)snprintf(text, sizeof text, "%d", bits);
    struct ebb_option_value options[] = {{"bits", text}, {"only", NULL}, {NULL, NULL}};
    EBB_LOCAL_ARENA(keep);
    ebb_status status = name_to_code(g, name, &options[1].value);
    if (status == NULL && strpbrk(options[1].value, "*?,; ") != NULL) {
        *why = "an input whose name has one of * ? , ; or a space cannot be asked for alone";
        return NULL;
    }
    if (status == NULL)
        status = ebb_pipeline_one(g, ebb_pass_find("quantise"), options, NULL, NULL, keep, &report);
    *why = NULL;
    if (status == NULL && report.applied == 0) {
        *why = ebb_arena_strdup(&s->arena, report.skip_count > 0 ? report.skips[0].reason
                                                                 : "quantise finds nothing to do");
        status = *why == NULL ? ebb_error_memory() : NULL;
    }
    return status;
}

/* Nodes from `first` on draw from a stream of their own. */
static ebb_status draw_apart(ebb_graph *g, size_t first)
{
    EBB_EACH_NODE(g, n)
        if (n.i >= first && ebb_node_of(g, n)->op == EBB_OP_QUANTIZE)
            EBB_TRY(ebb_node_set_int(g, n, "stream", ebb_random_stream(g, "ebb.drawn.apart")));
    return NULL;
}

static ebb_status run_coded(study *s, const measured *m, int bits, bool apart, unsigned char *into,
                            const char **why)
{
    ebb_model *copy;
    ebb_program *program = NULL;
    EBB_TRY(ebb_model_copy(&copy, s->base));
    size_t first = copy->graph->node_count;
    ebb_status status = quantise(s, copy, m->name, bits, why);
    if (status == NULL && *why == NULL) {
        status = apart ? draw_apart(copy->graph, first) : NULL;
        if (status == NULL)
            status = step(s, copy, &program);
        if (status == NULL)
            status = collect(s, program, into);
        ebb_program_free(program);
    }
    ebb_model_free(copy);
    return ebb_while(status, "coding '%s' with %d bits", m->name, bits);
}

static ebb_status measure(study *s, measured *m)
{
    int few = m->exponent ? 8 : 1;
    const char *why = NULL;
    const unsigned char *fine = s->exact;
    EBB_TRY(run_coded(s, m, few, false, s->g[0], &m->skipped));
    if (m->skipped != NULL)
        return NULL;
    EBB_TRY(run_coded(s, m, few, true, s->g[1], &m->skipped));
    if (!m->exponent) {
        EBB_TRY(run_coded(s, m, 8, false, s->g[2], &why));
        fine = why == NULL ? s->g[2] : s->exact;
    }
    double apart = distance(s, s->g[0], s->g[1]);
    double one = 2 * distance(s, s->g[0], fine), other = 2 * distance(s, s->g[1], fine);
    m->sensitivity = (m->exponent ? 255.0 * 255.0 : 1) * fmax(apart, fmax(one, other));
    if (!isfinite(apart) || !isfinite(one) || !isfinite(other)) // fmax hides what is no number
        m->skipped = "gradients are not finite where it is coded";
    return NULL;
}

static ebb_status measure_all(study *s)
{
    for (size_t i = 0; i < s->count; i++) {
        measured *m = &s->list[i];
        if (s->o->progress != NULL)
            s->o->progress(s->o->context, i, s->count, m->name);
        if (m->skipped == NULL)
            EBB_TRY(measure(s, m));
    }
    if (s->o->progress != NULL)
        s->o->progress(s->o->context, s->count, s->count, NULL);
    return NULL;
}

/* ---- the answer ---- */

static void count_skipped(json_t *list, const char *reason)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *o = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(o, "reason")), reason) != 0)
            continue;
        json_int_t count = json_integer_value(json_object_get(o, "count"));
        (void)json_object_set_new(o, "count", json_integer(count + 1));
        return;
    }
    (void)json_array_append_new(list, json_pack("{s:s, s:i}", "reason", reason, "count", 1));
}

static json_t *answer(const study *s, const char *path)
{
    json_t *tensors = json_array(), *skipped = json_array();
    for (size_t i = 0; i < s->count; i++) {
        const measured *m = &s->list[i];
        json_t *o = m->skipped != NULL
                        ? NULL
                        : json_pack("{s:s, s:I, s:f, s:f, s:f}", "name", m->name, "bytes",
                                    (json_int_t)m->bytes, "range2", m->range2, "grad2", m->grad2,
                                    "sensitivity", m->sensitivity);
        if (o != NULL)
            (void)json_array_append_new(tensors, o);
        else
            count_skipped(skipped, m->skipped != NULL ? m->skipped : "its name is not UTF-8");
    }
    return json_pack("{s:s, s:s, s:I, s:o, s:o}", "schema", "ebb.sensitivity/1", "model", path,
                     "gradients", (json_int_t)s->part_count, "tensors", tensors, "skipped",
                     skipped);
}

static ebb_status run(study *s, const ebb_model *model)
{
    EBB_TRY(ebb_model_copy(&s->base, model));
    ebb_pipeline_unmark(s->base->graph); // what is to be seen must not be written over: see step
    EBB_TRY(find_parts(s));
    EBB_TRY(find_tensors(s));
    EBB_TRY(look(s));
    return measure_all(s);
}

ebb_status ebb_sensitivity(const ebb_model *model, const ebb_sensitivity_options *options,
                           const char *path, char **json)
{
    EBB_NEED(model);
    ebb_sensitivity_options own;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_sensitivity_options, &own, context, options));
    EBB_NEED_COUNT(own.threads);
    study s = {.o = &own};
    char *text = NULL;
    if (own.batch == NULL)
        return ebb_error(EBB_USAGE, "sensitivities are measured on a batch: give one");
    if (path != NULL)
        EBB_TRY(ebb_sink_check(path)); // or the results of all the runs would be lost
    ebb_status status = ebb_at(run(&s, model), model->path);
    if (status == NULL)
        status = ebb_json_text(&text, answer(&s, model->path));
    if (status == NULL && path != NULL)
        status = ebb_sink_text(path, text);
    if (status == NULL && json != NULL) {
        *json = text;
        text = NULL;
    }
    ebb_release(text);
    ebb_model_free(s.base);
    ebb_arena_fini(&s.arena);
    return status;
}
