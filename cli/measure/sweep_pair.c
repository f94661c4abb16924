/* sweep_pair.c: one line of a sweep: a step without and with techniques, compared. */
#include "cli/measure/sweep_pair.h"

#include <stdlib.h>
#include <string.h>

static ebb_status make(const cli *c, ebb_model **model, cli_pair *p, char **report,
                       ebb_rewrite_facts *facts)
{
    int64_t rows;
    bool step = false;
    ebb_status status = cli_open_whole(c, model);
    if (status == NULL && cli_has(c, "--data") && p->data == NULL)
        status = cli_open_data(c, "--data", false, *model, &p->data);
    if (status == NULL && p->data != NULL)
        status = cli_bind_rows(*model, p->data, &p->map, cli_whole(c, "--batch", 32), &rows);
    if (status == NULL)
        status = cli_has_step(*model, &step);
    p->refused = status == NULL && step ? cli_step_option(c) : NULL;
    if (status == NULL && p->refused == NULL)
        status = cli_rewrite(c, *model, !step, report, facts);
    return status;
}

/* What the report says of the techniques, without their nodes. */
static json_t *sites_of(const char *report)
{
    json_t *o = json_loads(report != NULL ? report : "{}", 0, NULL), *out = json_array(), *p;
    size_t i;
    json_array_foreach(json_object_get(o, "passes"), i, p) {
        json_t *site = json_object(), *reasons = json_array(), *reason;
        size_t k;
        (void)json_object_set(site, "pass", json_object_get(p, "name"));
        (void)json_object_set(site, "found", json_object_get(p, "found"));
        (void)json_object_set(site, "applied", json_object_get(p, "applied"));
        json_array_foreach(json_object_get(p, "skipped"), k, reason) {
            (void)json_object_del(reason, "nodes");
            (void)json_array_append(reasons, reason);
        }
        (void)json_object_set_new(site, "skipped", reasons);
        if (json_is_true(json_object_get(p, "technique")))
            (void)json_array_append(out, site);
        json_decref(site);
    }
    json_decref(o);
    return out;
}

static json_t *weights_of(const json_t *plan)
{
    static const char *const keys[] = {"peak_bytes", "arena_bytes",          "saved_bytes",
                                       "planned_ns", "measured_arena_bytes", "step_ns",
                                       "peak_node"};
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(plan, keys[i]) != NULL)
            (void)json_object_set(out, keys[i], json_object_get(plan, keys[i]));
    return out;
}

static double relative_loss(const json_t *values, const char *loss)
{
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)values, i, v)
        if (strcmp(cli_text(v, "name"), loss) == 0)
            return cli_real(v, "max_rel_error");
    return 0;
}

static void take_numbers(json_t *line, json_t *diff)
{
    json_t *g = json_object_get(diff, "gradients");
    (void)json_object_set_new(line, "exact", weights_of(json_object_get(diff, "before")));
    (void)json_object_set_new(line, "with", weights_of(json_object_get(diff, "after")));
    if (json_object_get(diff, "bit_equal") == NULL)
        return;
    (void)json_object_set(line, "time_ratio", json_object_get(diff, "time_ratio"));
    (void)json_object_set(line, "timed_steps", json_object_get(diff, "timed_steps"));
    (void)json_object_set(line, "bit_equal", json_object_get(diff, "bit_equal"));
    double loss = relative_loss(json_object_get(diff, "values"), "loss");
    (void)json_object_set_new(line, "loss_relative_error", json_real(loss));
    if (g == NULL)
        return;
    json_t *worst = json_array_get(json_object_get(g, "worst"), 0);
    (void)json_object_del(g, "worst");
    if (worst != NULL)
        (void)json_object_set(g, "farthest", json_object_get(worst, "name"));
    (void)json_object_set(line, "gradients", g);
}

static ebb_status compare(cli_pair *p, int steps, json_t *line)
{
    const cli *c = &p->other;
    ebb_batch batch = {0};
    char *text = NULL;
    const int64_t rows = cli_whole(c, "--batch", 32);
    ebb_status status = NULL;
    bool feed = p->data != NULL && cli_has(c, "--run");
    int64_t *index = calloc((size_t)rows, sizeof *index);
    for (int64_t i = 0; index != NULL && i < rows; i++)
        index[i] = i;
    if (feed && index != NULL)
        status = cli_find_feeds(p->after, p->data, &p->map);
    if (status == NULL && feed && index != NULL)
        status = ebb_data_rows(p->data, index, (size_t)rows, p->map.feeds, &batch);
    const ebb_plan_options options = {.backend = cli_backend(c),
                                      .run = cli_has(c, "--run"),
                                      .seed = cli_seed(c),
                                      .threads = cli_threads(c),
                                      .batch = feed ? &batch : NULL,
                                      .steps = steps,
                                      .brief = true};
    if (status == NULL)
        status = ebb_diff_json(p->before, p->after, &options, &text);
    free(index);
    json_t *diff = status == NULL ? json_loads(text, 0, NULL) : NULL;
    ebb_release(text);
    if (diff != NULL)
        take_numbers(line, diff);
    json_decref(diff);
    return status;
}

static void set_error(json_t *line, ebb_status status)
{
    const char *text = ebb_status_text(status);
    (void)json_object_set_new(line, "outcome", json_string("failed"));
    (void)json_object_set_new(line, "code", json_integer(ebb_status_code(status)));
    (void)json_object_set_new(line, "error", json_stringn(text, strcspn(text, "\n")));
}

static void set_refused(json_t *line, const char *option)
{
    (void)json_object_set_new(line, "outcome", json_string("failed"));
    (void)json_object_set_new(line, "code", json_integer(EBB_USAGE));
    (void)json_object_set_new(
        line, "error",
        json_sprintf("it is a training step already: %s has no effect on it", option));
}

void cli_pair_measure(cli_pair *p, int steps, json_t *line)
{
    ebb_rewrite_facts facts = {.exactness = "exact"};
    ebb_status status = make(&p->other, &p->after, p, &p->report, &facts);
    (void)json_object_set_new(line, "exactness", json_string(facts.exactness));
    (void)json_object_set_new(line, "sites", sites_of(p->report));
    if (p->refused != NULL) {
        set_refused(line, p->refused);
        return;
    }
    if (status == NULL && facts.applied == 0) {
        (void)json_object_set_new(line, "outcome", json_string("found nothing"));
        return;
    }
    if (status == NULL)
        status = make(&p->exact, &p->before, p, NULL, NULL);
    if (status == NULL)
        status = compare(p, steps, line);
    if (status != NULL)
        set_error(line, status);
    else
        (void)json_object_set_new(
            line, "outcome", json_string(cli_has(&p->other, "--run") ? "measured" : "planned"));
}

void cli_pair_free(cli_pair *p)
{
    ebb_close(p->before);
    ebb_close(p->after);
    ebb_data_close(p->data);
    cli_free_map(&p->map);
    ebb_release(p->report);
    free(p);
}
