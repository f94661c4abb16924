/* model.c: save, bind dims, rewrite. */
#include "api/api.h"

#include "kernels/parallel.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/words/options.h"
#include "passes/pipeline.h"

#include <stdlib.h>

void ebb_trust(ebb_model *model)
{
    model->trusted = true;
}

void ebb_close(ebb_model *model)
{
    ebb_model_free(model);
}

ebb_status ebb_save(const ebb_model *model, const char *path)
{
    EBB_NEED(model);
    EBB_NEED(path);
    const ebb_write_options options = {0};
    return ebb_model_write(model, path, &options);
}

ebb_status ebb_set_threads(ebb_model *model, int threads)
{
    EBB_NEED(model);
    EBB_NEED_COUNT(threads);
    int count;
    EBB_TRY(ebb_threads_read(&count, threads));
    model->threads = threads;
    return NULL;
}

void ebb_set_deterministic(ebb_model *model, bool deterministic)
{
    model->deterministic = deterministic;
}

/* The names of the open dims of all inputs, for a message: "batch, seq". */
static const char *open_symbols(const ebb_graph *g, char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_type *t = ebb_value_of(g, g->inputs[i])->type;
        for (int d = 0; d < t->rank; d++) {
            const char *name = ebb_text(g, t->symbols[d]);
            size_t used = strlen(text);
            if (t->dims[d] >= 0 || name[0] == '\0' || strstr(text, name) != NULL ||
                used + strlen(name) + 3 > size)
                continue;
            (void)strcat(strcat(text, used > 0 ? ", " : ""), name);
        }
    }
    return text[0] != '\0' ? text : "none";
}

ebb_status ebb_set_dim(ebb_model *model, const char *symbol, int64_t size)
{
    EBB_NEED(model);
    EBB_NEED(symbol);
    char open[512];
    size_t bound = 0;
    if (size < 0)
        return ebb_error(EBB_USAGE,
                         "dim '%s': size is %lld, and must be 0 or more (--dim takes NAME=N)",
                         symbol, (long long)size);
    EBB_TRY(ebb_bind_dim(model->graph, symbol, size, &bound));
    if (bound == 0)
        return ebb_error(EBB_USAGE, "no input has a dimension '%s'; open ones: %s", symbol,
                         open_symbols(model->graph, open, sizeof open));
    return ebb_infer_graph(model->graph);
}

ebb_status ebb_set_shape(ebb_model *model, const char *input, const int64_t *dims, int rank)
{
    EBB_NEED(model);
    EBB_NEED(input);
    if (rank < 0)
        return ebb_error(
            EBB_USAGE,
            "'%s': rank is %d, and must be 0 or more (--shape takes INPUT:AxBxC, as in "
            "x:1x3x224x224)",
            input, rank);
    if (rank > 0)
        EBB_NEED(dims);
    for (int i = 0; i < rank; i++)
        EBB_NEED_COUNT(dims[i]);
    EBB_TRY(ebb_bind_shape(model->graph, input, dims, rank));
    return ebb_infer_graph(model->graph);
}

/* ---- rewriting ---- */

static const char *exactness_name(ebb_exactness exactness)
{
    static const char *const names[] = {"exact", "rounding", "lossy", "makes"};
    return names[exactness];
}

static const char *primal_name(const ebb_pass *pass)
{
    static const char *const names[] = {"nothing", "parameters", "computation"};
    return names[ebb_pass_moves(pass) ? 1 + (ebb_pass_phase_of(pass) == EBB_PHASE_COMPUTATION) : 0];
}

static json_t *report_to_json(const ebb_report *r)
{
    const ebb_pass *pass = ebb_pass_find(r->pass);
    json_t *skipped = json_array(), *notes = json_array();
    for (size_t i = 0; i < r->skip_count; i++) {
        json_t *nodes = json_array();
        for (size_t k = 0; k < r->skips[i].node_count; k++)
            json_array_append_new(nodes, json_string(r->skips[i].nodes[k]));
        json_array_append_new(skipped,
                              json_pack("{s:s, s:I, s:o}", "reason", r->skips[i].reason, "count",
                                        (json_int_t)r->skips[i].count, "nodes", nodes));
    }
    for (size_t i = 0; i < r->note_count; i++)
        json_array_append_new(notes, json_string(r->notes[i]));
    return json_pack("{s:s, s:s, s:b, s:s, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I}", "name",
                     r->pass, "exactness", exactness_name(r->exactness), "tidies",
                     (int)ebb_pass_tidies(pass), "primal", primal_name(pass), "found",
                     (json_int_t)r->found, "applied", (json_int_t)r->applied, "skipped", skipped,
                     "notes", notes, "saved_bytes", (json_int_t)r->saved_bytes, "peak_before_bytes",
                     (json_int_t)r->peak_before_bytes, "peak_after_bytes",
                     (json_int_t)r->peak_after_bytes, "ns", (json_int_t)r->ns);
}

ebb_status ebb_json_text(char **text, json_t *object)
{
    char *dumped = object != NULL ? json_dumps(object, JSON_INDENT(1)) : NULL;
    json_decref(object);
    EBB_GOT(dumped);
    *text = dumped;
    return NULL;
}

void ebb_release(void *memory)
{
    free(memory);
}

/* A pass that was asked for stands behind the optimizer, or has gone before the gradient. One that
 * tidies comes by itself and counts where it changes numbers. */
static bool is_technique(const ebb_report *r, bool behind)
{
    const ebb_pass *pass = ebb_pass_find(r->pass);
    if (!behind)
        return ebb_pass_moves(pass);
    return !ebb_pass_tidies(pass) || (r->found > 0 && r->exactness != EBB_EXACT);
}

static void find_techniques(bool *techniques, ebb_rewrite_facts *facts, const ebb_report *reports,
                            size_t count)
{
    size_t from = 0;
    ebb_exactness worst = EBB_EXACT;
    *facts = (ebb_rewrite_facts){0};
    for (size_t i = 0; i < count; i++)
        if (strcmp(reports[i].pass, "optimizer") == 0)
            from = i + 1;
    for (size_t i = 0; i < count; i++) {
        const ebb_report *r = &reports[i];
        techniques[i] = is_technique(r, i >= from);
        facts->applied += techniques[i] ? r->applied : 0;
        if (techniques[i] && r->applied > 0 && r->exactness != EBB_MAKES && r->exactness > worst)
            worst = r->exactness;
    }
    facts->exactness = exactness_name(worst);
}

static json_t *training_to_json(const ebb_training *t)
{
    json_t *left = json_array();
    for (size_t i = 0; i < t->weights - t->trained; i++)
        json_array_append_new(
            left, json_pack("{s:s, s:s}", "name", t->left_out[i].name, "why", t->left_out[i].why));
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "said", t->said, "weights",
                     (json_int_t)t->weights, "trained", (json_int_t)t->trained, "lost",
                     (json_int_t)t->lost, "elements", (json_int_t)t->elements, "trained_elements",
                     (json_int_t)t->trained_elements, "not", left);
}

enum { /* what size 0 stands for: as far as version 0.1 has it */
       FIRST_FACTS = offsetof(ebb_rewrite_facts, exactness) + sizeof(char *)
};

static ebb_status tell(const ebb_report *reports, size_t count, ebb_rewrite_facts *facts,
                       ebb_arena *arena, char **json)
{
    ebb_rewrite_facts own;
    bool *techniques = EBB_NEW(arena, bool, count + 1);
    EBB_GOT(techniques);
    find_techniques(techniques, &own, reports, count);
    if (facts != NULL) {
        own.size = facts->size;
        ebb_facts_give(facts, own.size != 0 ? own.size : FIRST_FACTS, &own, sizeof own);
    }
    if (json == NULL)
        return NULL;
    json_t *list = json_array(), *training = NULL;
    for (size_t i = 0; i < count; i++) {
        json_t *o = report_to_json(&reports[i]);
        if (reports[i].training != NULL && training == NULL)
            training = training_to_json(reports[i].training);
        (void)json_object_set_new(o, "technique", json_boolean(techniques[i]));
        json_array_append_new(list, o);
    }
    return ebb_json_text(json, json_pack("{s:s, s:o, s:o*}", "schema", "ebb.rewrite/1", "passes",
                                         list, "training", training));
}

ebb_status ebb_rewrite(ebb_model *model, const char *pipeline, const ebb_rewrite_options *options,
                       char **json)
{
    EBB_NEED(model);
    EBB_NEED(pipeline);
    ebb_rewrite_options own;
    EBB_LOCAL_ARENA(keep);
    ebb_report *reports = NULL;
    size_t count = 0;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_rewrite_options, &own, facts, options));
    EBB_TRY(ebb_pipeline_run(model, pipeline, &own, keep, &reports, &count));
    return tell(reports, count, own.facts, keep, json);
}

static const char *option_kind_name(ebb_option_kind kind)
{
    static const char *const names[] = {"integer", "number", "text", "choice", "bytes"};
    return names[kind];
}

ebb_status ebb_passes_json(char **json)
{
    EBB_NEED(json);
    size_t count;
    const ebb_pass *const *passes = ebb_passes(&count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *options = json_array();
        for (const ebb_option *o = passes[i]->options; o != NULL && o->name != NULL; o++) {
            const bool number = o->kind == EBB_OPTION_INT || o->kind == EBB_OPTION_FLOAT;
            const char *choices = o->choices != NULL ? o->choices : "";
            json_array_append_new(options,
                                  json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "name", o->name,
                                            "kind", option_kind_name(o->kind), "default",
                                            o->otherwise != NULL ? o->otherwise : "", "choices",
                                            number ? "" : choices, "range", number ? choices : "",
                                            "doc", o->doc));
        }
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:o}", "name",
                                              passes[i]->name, "doc", passes[i]->doc, "paper",
                                              passes[i]->paper != NULL ? passes[i]->paper : "",
                                              "exactness", exactness_name(passes[i]->exactness),
                                              "tidies", (int)ebb_pass_tidies(passes[i]), "primal",
                                              primal_name(passes[i]), "options", options));
    }
    json_t *short_names = json_array();
    const ebb_preset *presets = ebb_presets(&count);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(short_names,
                              json_pack("{s:s, s:s, s:s}", "name", presets[i].name, "stands_for",
                                        presets[i].stands_for, "doc", presets[i].doc));
    return ebb_json_text(json, json_pack("{s:s, s:o, s:o}", "schema", "ebb.passes/1", "passes",
                                         list, "presets", short_names));
}
