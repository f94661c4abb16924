/* reduce.c: ebb_reduce: search, write, read back, test again, report. */
#include "api/reduce/reduce.h"

#include <sys/stat.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/words/options.h"

static json_t *sizes_of(const ebb_model *model)
{
    const ebb_graph *g = model->graph;
    size_t nodes = ebb_graph_size(g), inputs = 0, bytes = 0;
    for (size_t i = 0; i < g->input_count; i++)
        inputs += (ebb_value_of(g, g->inputs[i])->flags & EBB_IS_INITIALIZER) == 0;
    for (size_t i = 0; i < g->initializer_count; i++)
        bytes += ebb_value_of(g, g->initializers[i])->tensor->bytes;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "nodes", (json_int_t)nodes, "inputs",
                     (json_int_t)inputs, "outputs", (json_int_t)g->output_count, "initializers",
                     (json_int_t)g->initializer_count, "initializer_bytes", (json_int_t)bytes,
                     "functions", (json_int_t)model->function_count);
}

/* The whole must fail, or there is nothing to reduce. */
static ebb_status begin(ebb_reducer *r, const ebb_model *model)
{
    const ebb_reduce_options *o = r->options;
    ebb_model *copy;
    if (o->fails != NULL)
        EBB_TRY(ebb_failure_known(o->fails));
    else if (o->test == NULL)
        return ebb_error(EBB_USAGE, "reduce: neither a criterion nor a test is given");
    EBB_TRY(ebb_model_copy(&copy, model));
    r->kept = EBB_NEW(&r->arena, ebb_model *, 64);
    if (r->kept == NULL) {
        ebb_model_free(copy);
        return ebb_error_memory();
    }
    r->capacity = 64;
    r->kept[r->count++] = copy;
    ebb_status typed = ebb_infer_graph(copy->graph);
    r->typed = typed == NULL && ebb_verify(copy->graph) == NULL;
    if (ebb_status_code(typed) == EBB_RUNTIME)
        return typed;
    bool fails = false;
    if (o->fails != NULL) {
        EBB_TRY(ebb_model_copy(&copy, ebb_reduce_best(r)));
        ebb_status status = ebb_failure_find(&r->failure, o, copy, &r->arena);
        ebb_model_free(copy);
        EBB_TRY(status);
        fails = r->failure.code != EBB_OK;
        if (r->failure.code == EBB_USAGE) // no failure of the model
            return ebb_while(r->failure.status, "trying the model as it is, before it is reduced");
        if (fails && o->match != NULL && strstr(r->failure.sentence, o->match) == NULL)
            return ebb_error(EBB_USAGE, "reduce: the model fails otherwise than '%s': %s", o->match,
                             r->failure.sentence);
    } else {
        EBB_TRY(ebb_reduce_test(r, ebb_reduce_best(r), &fails));
    }
    if (fails)
        return NULL;
    return ebb_error(EBB_USAGE,
                     "reduce: the model does not fail%s%s, so there is nothing to reduce",
                     o->fails != NULL ? " at " : "", o->fails != NULL ? o->fails : "");
}

/* What is written is what is tested last. */
static ebb_status write_and_verify(ebb_reducer *r, const char *path)
{
    const ebb_write_options options = {0};
    ebb_model *read;
    bool still = false;
    EBB_TRY(ebb_model_write(ebb_reduce_best(r), path, &options));
    EBB_TRY(ebb_model_read(&read, path));
    read->trusted = ebb_reduce_best(r)->trusted;
    ebb_status status = r->typed ? ebb_infer_graph(read->graph) : NULL;
    if (status == NULL)
        status = ebb_reduce_test(r, read, &still);
    ebb_model_free(read);
    if (status == NULL && !still)
        return ebb_error(EBB_VERIFY,
                         "reduce: %s, read back, does not fail as the model in memory "
                         "does; is the test the same in every run?",
                         path);
    return status;
}

static ebb_status report(const ebb_reducer *r, const ebb_model *model, const char *path,
                         char **json)
{
    struct stat s = {0};
    if (path != NULL && stat(path, &s) != 0)
        s.st_size = 0;
    return ebb_json_text(
        json,
        json_pack("{s:s, s:s, s:i, s:s, s:o, s:o, s:I, s:I, s:b}", "schema", "ebb.reduce/1",
                  "fails", r->options->fails != NULL ? r->options->fails : "test", "code",
                  (int)r->failure.code, "sentence",
                  r->failure.sentence != NULL ? r->failure.sentence : "", "before", sizes_of(model),
                  "after", sizes_of(ebb_reduce_best(r)), "file_bytes", (json_int_t)s.st_size,
                  "tests", (json_int_t)r->tests, "verified", path != NULL));
}

ebb_status ebb_reduce(const ebb_model *model, const char *path, const ebb_reduce_options *options,
                      char **json)
{
    EBB_NEED(model);
    ebb_reduce_options own;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_reduce_options, &own, threads, options));
    EBB_NEED_COUNT(own.threads);
    ebb_reducer r = {.options = &own, .limit = own.most_tests};
    ebb_status status = begin(&r, model);
    if (status == NULL)
        status = ebb_reduce_search(&r);
    if (status == NULL && path != NULL)
        status = write_and_verify(&r, path);
    if (status == NULL && json != NULL)
        status = report(&r, model, path, json);
    for (size_t i = r.count; i-- > 0;)
        ebb_model_free(r.kept[i]);
    ebb_arena_fini(&r.arena);
    return status;
}
