/* verbs.h: a file through what `ebb check`, `grad`, `plan`, `run` and `reduce` do with it, by the
 * library, in this process.
 */
#pragma once

#include "ebb.h"
#include "exec/data/sample.h"
#include "tests/hostile/watch.h"
#include "tests/owned.h"

static bool verbs_are_shown; /* by hand: what each says goes to stdout */

static inline int verbs_end(const char *verb, ebb_status status)
{
    if (verbs_are_shown)
        (void)printf("%s: %s\n", verb, status != NULL ? ebb_status_text(status) : "ok");
    return (int)ebb_status_code(status);
}

/* What a pass does not leave legal is a failure of ours, whatever the file; but that a gradient's
 * type does not fit its value the walk backwards says by name, and stops. */
static inline ebb_status verbs_rewrite(ebb_model *model, const char *pipeline, bool *illegal)
{
    const ebb_rewrite_options options = {.verify_each = true};
    ebb_status status = ebb_rewrite(model, pipeline, &options, NULL);
    *illegal = *illegal || (ebb_status_code(status) == EBB_VERIFY &&
                            strstr(ebb_status_text(status), "and its gradient") == NULL);
    return status;
}

static inline ebb_status verbs_check(ebb_model *model, bool *illegal)
{
    RELEASED char *json = NULL;
    ebb_status status = ebb_check_json(model, &json);
    (void)illegal;
    return status;
}

static inline ebb_status verbs_grad(ebb_model *model, bool *illegal)
{
    ebb_status status = verbs_rewrite(
        model, "flatten,train-mode,fold,fuse,loss:mse,gradient,optimizer:adamw", illegal);
    if (status == NULL)
        status = verbs_rewrite(model, "sign-mask,pool-index,drop-saves,stream,alias", illegal);
    return status;
}

static inline ebb_status verbs_plan(ebb_model *model, bool *illegal)
{
    const ebb_plan_options options = {.backend = "cpu", .threads = 1};
    RELEASED char *json = NULL;
    (void)ebb_set_dim(model, "batch", 2); // it may have none
    ebb_status status = verbs_rewrite(model, "flatten", illegal);
    if (status == NULL)
        status = ebb_plan_json(model, &options, &json);
    return status;
}

/* The steps of `ebb run`, on a batch of random numbers. */
static inline ebb_status verbs_settle(ebb_model *model, const ebb_batch *batch, bool *illegal)
{
    size_t bound = 1;
    ebb_status status = ebb_bind_defaults(model, batch, &bound);
    if (status == NULL)
        status = verbs_rewrite(model, "flatten,fold", illegal);
    bound = 1;
    for (int round = 0; status == NULL && bound > 0 && round < 8; round++) {
        status = ebb_bind_values(model, batch, &bound);
        if (status == NULL && bound > 0)
            status = verbs_rewrite(model, "fold,unroll,fold", illegal);
    }
    return status;
}

static inline ebb_status verbs_run(ebb_model *model, bool *illegal)
{
    const ebb_compile_options options = {.backend = "cpu", .threads = 1};
    OWNED_PROGRAM *program = NULL;
    OWNED_ARENA arena = {0};
    ebb_batch batch;
    (void)ebb_set_dim(model, "batch", 2);
    ebb_status status = ebb_sample_batch(&batch, model->graph, 1, &arena);
    if (status == NULL)
        status = verbs_settle(model, &batch, illegal);
    if (status == NULL) // some inputs may have become constants
        status = ebb_sample_batch(&batch, model->graph, 1, &arena);
    if (status == NULL)
        status = ebb_program_compile(&program, model, &options);
    if (status == NULL)
        status = ebb_program_step(program, &batch);
    return status;
}

/* Loops stay loops wherever they can: forward, then a step of training. */
static inline ebb_status verbs_keep(ebb_model *model, bool *illegal)
{
    static const char *const pipelines[] = {
        "opset,inline,fold,unroll:most=1,alias",
        "train-mode,loss:mse,gradient:loops=again,optimizer:sgd,drop-saves,stream,alias"};
    const ebb_compile_options options = {.backend = "cpu", .threads = 1};
    ebb_status status = NULL;
    (void)ebb_set_dim(model, "batch", 2);
    for (size_t i = 0; i < 2 && status == NULL; i++) {
        OWNED_PROGRAM *program = NULL;
        OWNED_ARENA arena = {0};
        ebb_batch batch;
        status = verbs_rewrite(model, pipelines[i], illegal);
        if (status == NULL)
            status = ebb_sample_batch(&batch, model->graph, 1, &arena);
        if (status == NULL)
            status = ebb_program_compile(&program, model, &options);
        if (status == NULL)
            status = ebb_program_step(program, &batch);
    }
    return status;
}

static inline ebb_status verbs_reduce(ebb_model *model, bool *illegal)
{
    ebb_reduce_options options = {.fails = "check", .most_tests = 12, .threads = 1};
    (void)illegal;
    ebb_status status = ebb_reduce(model, NULL, &options, NULL);
    options.fails = "run";
    return ebb_status_code(status) != EBB_USAGE ? status : ebb_reduce(model, NULL, &options, NULL);
}

/* The exit code of run, which asks the most of a file; WATCH_ILLEGAL. */
static inline int verbs_on(const char *path)
{
    static const struct {
        const char *name;
        ebb_status (*does)(ebb_model *model, bool *illegal);
        bool as_it_is; // also what breaks a rule
    } verbs[] = {{"check", verbs_check, true}, {"grad", verbs_grad, false},
                 {"plan", verbs_plan, false},  {"run", verbs_run, false},
                 {"keep", verbs_keep, false},  {"reduce", verbs_reduce, true}};
    int of_run = 0;
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        ebb_model *model = NULL;
        bool illegal = false;
        ebb_status status =
            verbs[i].as_it_is ? ebb_open_as_is(&model, path) : ebb_open(&model, path);
        const bool opened = status == NULL;
        if (opened)
            status = verbs[i].does(model, &illegal);
        int code = verbs_end(verbs[i].name, status);
        of_run = verbs[i].does == verbs_run ? code : of_run;
        ebb_close(model);
        if (illegal)
            return WATCH_ILLEGAL;
        if (!opened && verbs[i].as_it_is)
            return code;
    }
    return of_run;
}
