/* calibrate.c: what operators cost here, measured within steps and written to a file. */
#include "api/api.h"

#include "api/sweep.h"
#include "exec/look/calibrate_link.h"
#include "exec/weigh/costs.h"
#include "onnx/words/options.h"

#include <unistd.h>

static json_t *timed_json(const char *name, const ebb_timed *t)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "model", name, "nodes", (json_int_t)t->nodes,
                     "steps", (json_int_t)t->steps, "step_ns", (json_int_t)t->step_ns, "nodes_ns",
                     (json_int_t)t->nodes_ns);
}

static ebb_status time_models(ebb_costs *costs, ebb_model *const *models, size_t count,
                              const ebb_timing *timing, json_t *list)
{
    double scale = 1;
    for (size_t i = 0; i < count; i++) {
        ebb_timed timed;
        EBB_TRY(ebb_at(ebb_costs_time(costs, &timed, models[i], timing), models[i]->path));
        (void)json_array_append_new(list, timed_json(models[i]->path, &timed));
        if (i == 0 && timed.nodes_ns > 0)
            scale = timed.step_ns / timed.nodes_ns;
    }
    return ebb_at(ebb_costs_time_moves(costs, models[0], timing, scale), models[0]->path);
}

/* Beside which of our steps moves are measured: of all threads, and short. */
static ebb_status time_moves(ebb_costs *costs, const ebb_timing *timing)
{
    ebb_model *model;
    EBB_TRY(ebb_sweep_make(&model, 0));
    ebb_status status = ebb_costs_time_moves(costs, model, timing, 1);
    ebb_model_free(model);
    return ebb_while(status, "timing moves to disk beside the step '%s'", ebb_sweep_name(0));
}

static ebb_status time_sweep(ebb_costs *costs, ebb_timing timing, json_t *list)
{
    timing.sweep = true;
    for (size_t i = 0; i < ebb_sweep_count(); i++) {
        ebb_model *model;
        ebb_timed timed;
        EBB_TRY(ebb_sweep_make(&model, i));
        ebb_status status = ebb_costs_time(costs, &timed, model, &timing);
        ebb_model_free(model);
        EBB_TRY(ebb_while(status, "timing the step '%s'", ebb_sweep_name(i)));
        (void)json_array_append_new(list, timed_json(ebb_sweep_name(i), &timed));
    }
    return time_moves(costs, &timing);
}

static ebb_status summary(const ebb_costs *c, const char *path, json_t *steps, char **json)
{
    json_t *rates = json_array();
    for (size_t i = 0; i < c->rate_count; i++)
        (void)json_array_append_new(
            rates, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "family", c->rates[i].family,
                             "entries", (json_int_t)c->rates[i].entries, "fixed_ns",
                             c->rates[i].fixed_ns, "ns_per_flop", c->rates[i].ns_per_flop,
                             "ns_per_byte", c->rates[i].ns_per_byte, "error", c->rates[i].error));
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:i, s:s, s:I, s:o, s:O}", "schema", "ebb.bench/1", "path", path,
                  "processor", c->processor, "threads", c->threads, "backend", c->backend,
                  "entries", (json_int_t)c->entry_count, "rates", rates, "steps", steps);
    ebb_costs_ways_write(root, c);
    return ebb_json_text(json, root);
}

/* What an earlier file here knows of other processes stays; one that cannot be read is replaced. */
static void take_link(ebb_costs *costs, const char *path)
{
    ebb_costs *before = NULL;
    if (access(path, F_OK) != 0 || ebb_costs_read(&before, path) != NULL)
        return;
    costs->linked = before->linked;
    costs->link = before->link;
    memcpy(costs->crowds, before->crowds, sizeof costs->crowds);
    ebb_costs_free(before);
}

ebb_status ebb_calibrate(ebb_model *const *models, size_t count,
                         const ebb_calibrate_options *options, const char *path, char **json)
{
    EBB_NEED(path);
    ebb_calibrate_options own, *o = &own;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_calibrate_options, o, spill, options));
    EBB_NEED_COUNT(o->threads);
    EBB_NEED_COUNT(o->steps);
    if (count > 0)
        EBB_NEED(models);
    const ebb_timing timing = {.backend = o->backend != NULL ? o->backend : "cpu",
                               .seed = o->seed,
                               .threads = o->threads,
                               .steps = o->steps,
                               .spill = o->spill};
    json_t *steps = json_array();
    ebb_costs *costs = NULL;
    ebb_status status = ebb_costs_new(&costs, timing.backend, timing.threads);
    if (status == NULL)
        status = count > 0 ? time_models(costs, models, count, &timing, steps)
                           : time_sweep(costs, timing, steps);
    if (status == NULL)
        status = ebb_costs_fit(costs);
    if (status == NULL) {
        take_link(costs, path);
        status = ebb_costs_write(costs, path);
    }
    if (status == NULL && json != NULL)
        status = summary(costs, path, steps, json);
    json_decref(steps);
    ebb_costs_free(costs);
    return status;
}

/* ---- between processes ---- */

/* The file's other measurements stay. */
static ebb_status keep_link(const ebb_link *link, const ebb_crowd *crowd, int ranks,
                            const char *path)
{
    ebb_costs *costs = NULL;
    EBB_TRY(access(path, F_OK) == 0 ? ebb_costs_read(&costs, path)
                                    : ebb_costs_new(&costs, "cpu", 0));
    costs->linked = true;
    costs->link = *link;
    costs->crowds[ranks] = *crowd;
    ebb_status status = ebb_costs_write(costs, path);
    ebb_costs_free(costs);
    return status;
}

/* By a step of each kind of ours, of a size that several of them take little time. */
static ebb_status time_crowd(ebb_crowd *crowd, ebb_group *group, ebb_arena *scratch)
{
    ebb_model *models[EBB_SWEEP_MIX] = {0};
    ebb_status status = NULL;
    for (size_t i = 0; i < EBB_SWEEP_MIX && status == NULL; i++)
        status = ebb_sweep_make_mix(&models[i], i);
    if (status == NULL)
        status = ebb_crowd_time(crowd, group, models, EBB_SWEEP_MIX, scratch);
    for (size_t i = 0; i < EBB_SWEEP_MIX; i++)
        ebb_model_free(models[i]);
    return ebb_while(status, "timing steps of all processes at once");
}

ebb_status ebb_calibrate_link(ebb_group *group, const char *path, char **json)
{
    EBB_NEED(group);
    EBB_NEED(path);
    EBB_LOCAL_ARENA(scratch);
    ebb_link link;
    ebb_crowd crowd = {0};
    double error;
    const int ranks = ebb_group_ranks(group);
    if (ranks < 2)
        return ebb_error(EBB_USAGE, "one process has no link to measure: start two or more");
    EBB_TRY(ebb_link_time(&link, &error, group, scratch));
    EBB_TRY(time_crowd(&crowd, group, scratch));
    if (ebb_group_rank(group) == 0)
        EBB_TRY(keep_link(&link, &crowd, ranks, path));
    return json == NULL
               ? NULL
               : ebb_json_text(json, json_pack("{s:s, s:s, s:i, s:o, s:f, s:i, s:f, s:f}", "schema",
                                               "ebb.bench/1", "path", path, "ranks", ranks, "link",
                                               ebb_link_json(&link), "error", error, "threads",
                                               crowd.threads, "alone_ns", crowd.alone_ns,
                                               "together_ns", crowd.together_ns));
}
