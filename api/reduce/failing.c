/* failing.c: does a model fail, and as it did before? */
#include "api/reduce/reduce.h"

#include "api/doctor/doctor.h"

#include <ctype.h>
#include <math.h>

#include "exec/run/program.h"
#include "exec/data/sample.h"
#include "onnx/graph/infer.h"

/* ---- criteria ---- */

static ebb_status types_fail(const ebb_reduce_options *o, ebb_model *model)
{
    (void)o;
    EBB_TRY(ebb_infer_graph(model->graph));
    return ebb_verify(model->graph);
}

/* All problems in one sentence. */
static ebb_status check_fails(const ebb_reduce_options *o, ebb_model *model)
{
    char text[2048] = "";
    ebb_doctor d;
    (void)o;
    ebb_status status = ebb_doctor_examine(&d, model);
    const ebb_code code = ebb_doctor_code(&d);
    for (size_t i = 0; i < d.count; i++) {
        size_t used = strlen(text);
        if (d.list[i].severity == EBB_PROBLEM)
            (void)snprintf(text + used, sizeof text - used, "%s%s: %s", used > 0 ? "; " : "",
                           d.list[i].kind, d.list[i].what);
    }
    ebb_doctor_fini(&d);
    return status != NULL || code == EBB_OK ? status : ebb_error(code, "%s", text);
}

static ebb_status rewrite_fails(const ebb_reduce_options *o, ebb_model *model)
{
    return o->pipeline != NULL ? ebb_rewrite(model, o->pipeline, NULL, NULL) : NULL;
}

static ebb_status plan_fails(const ebb_reduce_options *o, ebb_model *model)
{
    ebb_setting setting;
    EBB_LOCAL_ARENA(arena);
    ebb_plan plan;
    EBB_TRY(ebb_infer_graph(model->graph));
    EBB_TRY(rewrite_fails(o, model));
    EBB_TRY(ebb_setting_read(&setting, model, o->backend, o->seed, o->threads));
    ebb_status status = ebb_plan_make(&plan, arena, model->graph, &setting);
    if (status == NULL)
        ebb_plan_release(&plan);
    return status;
}

static bool is_finite(const ebb_named *t)
{
    ebb_type type = ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims);
    ebb_tensor tensor = {.type = type, .data = t->data};
    int64_t count;
    if (!ebb_dtype_is_float((ebb_dtype)t->dtype) || !ebb_type_elements(&type, &count))
        return true;
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(ebb_tensor_double(&tensor, i)))
            return false;
    return true;
}

static ebb_status outputs_are_finite(ebb_program *p)
{
    for (size_t i = 0; i < ebb_program_output_count(p); i++) {
        ebb_named t;
        const char *name = ebb_program_output_name(p, i);
        EBB_TRY(ebb_program_get(p, name, &t));
        if (!is_finite(&t))
            return ebb_error(EBB_RUNTIME, "output '%s' is not finite", name);
    }
    return NULL;
}

static ebb_status run_once(const ebb_reduce_options *o, ebb_model *model, ebb_status *not_finite)
{
    ebb_program *p = NULL;
    ebb_batch batch;
    EBB_LOCAL_ARENA(arena);
    const ebb_compile_options options = {
        .backend = o->backend, .seed = o->seed, .threads = o->threads};
    bool as_it_is = o->pipeline != NULL || model->graph->binding_count > 0;
    EBB_TRY(as_it_is ? rewrite_fails(o, model) : ebb_rewrite(model, "flatten", NULL, NULL));
    EBB_TRY(ebb_sample_weights(model, o->seed));
    EBB_TRY(ebb_program_compile(&p, model, &options));
    ebb_status status = ebb_sample_batch(&batch, model->graph, o->seed, arena);
    if (status == NULL)
        status = ebb_program_step(p, &batch);
    if (status == NULL && not_finite != NULL)
        *not_finite = outputs_are_finite(p);
    ebb_program_free(p);
    return status;
}

static ebb_status run_fails(const ebb_reduce_options *o, ebb_model *model)
{
    return run_once(o, model, NULL);
}

static ebb_status is_not_finite(const ebb_reduce_options *o, ebb_model *model)
{
    ebb_status not_finite = NULL, status = run_once(o, model, &not_finite);
    if (status != NULL)
        return ebb_error(EBB_USAGE, "it does not run: %s", ebb_status_text(status));
    return not_finite;
}

static const struct {
    const char *name;
    ebb_status (*fails)(const ebb_reduce_options *o, ebb_model *model);
} criteria[] = {
    {"types", types_fail}, {"check", check_fails}, {"rewrite", rewrite_fails},
    {"plan", plan_fails},  {"run", run_fails},     {"nan", is_not_finite},
};
enum { CRITERIA = (int)(sizeof criteria / sizeof criteria[0]) };

ebb_status ebb_failure_known(const char *criterion)
{
    for (int i = 0; i < CRITERIA; i++)
        if (strcmp(criteria[i].name, criterion) == 0)
            return NULL;
    return ebb_error(EBB_USAGE, "there is no criterion '%s': types, check, rewrite, plan, run, nan",
                     criterion);
}

ebb_status ebb_failure_find(ebb_failure *failure, const ebb_reduce_options *o, ebb_model *model,
                            ebb_arena *arena)
{
    ebb_status status = NULL;
    for (int i = 0; i < CRITERIA; i++)
        if (strcmp(criteria[i].name, o->fails) == 0)
            status = criteria[i].fails(o, model);
    *failure = (ebb_failure){.code = ebb_status_code(status), .status = status, .match = o->match};
    if (status == NULL)
        return NULL;
    const char *text = ebb_status_text(status), *trail = text;
    while ((trail = strchr(trail, '\n')) != NULL && strncmp(trail, "\n  while ", 9) != 0 &&
           strncmp(trail, "\n  hint: ", 9) != 0)
        trail++;
    size_t length = trail != NULL ? (size_t)(trail - text) : strlen(text);
    failure->sentence = ebb_arena_printf(arena, "%.*s", (int)length, text);
    return failure->sentence != NULL ? NULL : ebb_error_memory();
}

/* ---- the same failure ---- */

/* One word of a sentence, names and numbers apart, into `word`; 0 at the end. Words that tell one
 * from many are one. */
static size_t next_word(const char **at, char word[64])
{
    const char *c = *at;
    size_t length = 0;
    while (*c != '\0' && !isalpha((unsigned char)*c) &&
           (*c != '\'' || (c > *at && isalnum((unsigned char)c[-1]))))
        c++;
    if (*c == '\'') { // a name
        const char *end = strchr(c + 1, '\'');
        *at = end != NULL ? end + 1 : c + strlen(c);
        return (size_t)snprintf(word, 64, "''");
    }
    for (; isalnum((unsigned char)*c) || *c == '_' || *c == '-'; c++)
        if (length < 62 && !isdigit((unsigned char)*c))
            word[length++] = *c;
    *at = c;
    if (length > 1 && word[length - 1] == 's')
        length--;
    word[length] = '\0';
    if (strcmp(word, "have") == 0)
        length = (size_t)snprintf(word, 64, "ha");
    return length;
}

static bool has_word(const char *sentence, const char *word)
{
    char one[64];
    while (next_word(&sentence, one) > 0)
        if (strcmp(one, word) == 0)
            return true;
    return false;
}

bool ebb_failure_same(const ebb_failure *first, const ebb_failure *other)
{
    if (other->code != first->code || other->code == EBB_OK)
        return false;
    if (first->match != NULL)
        return strstr(other->sentence, first->match) != NULL;
    const char *sentence = other->sentence;
    char word[64];
    while (next_word(&sentence, word) > 0)
        if (!has_word(first->sentence, word))
            return false;
    return true;
}
