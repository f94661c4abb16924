/* diff.c: what changed between two files, and which pass saved how much of it.
 *
 * A file remembers its passes with their options ("ebb.passes"), so what `after` has seen and
 * `before` has not can be run again on copies of `before`:
 *
 *   in order   each where it stands, after those before it; adds up to the whole
 *   alone      it and no other: what it could save
 *   last in    the others without it, then it: what would be lost without it
 *
 * Savings do not add: two passes that shrink the same tensor both look good alone, and neither
 * last.
 *
 * The memory comes from a file, which may say anything: only names of passes that there are and
 * options that are options are run, no pass that reads a file, and not more than MOST of them.
 */

#include "exec/look/diff.h"
#include "exec/weigh/estimate.h"
#include "exec/json.h"
#include "onnx/words/options.h"
#include "passes/pipeline.h"

enum { MOST = 32 };

typedef struct entry {
    const char *text;     /* "sign-mask:option=value" for a pipeline; NULL: cannot be run */
    const char *reason;   /* then why, or what went wrong with it; NULL: nothing */
    const json_t *report; /* of ebb.passes */
    int64_t in_order, alone, last_in;
    bool has_in_order, has_alone, has_last_in;
} entry;

typedef struct study {
    ebb_model *before;
    const ebb_plan_options *options;
    ebb_arena *arena;
    entry *list;
    size_t count;
    uint64_t before_peak;
} study;

/* ---- what the files remember ---- */

static json_t *passes_of(const ebb_model *model)
{
    const char *text = ebb_props_get(model->graph, &model->props, "ebb.passes");
    json_t *list = text != NULL ? json_loads(text, 0, NULL) : NULL;
    if (!json_is_array(list)) {
        json_decref(list);
        list = json_array();
    }
    return list;
}

static const char *word(const json_t *report, const char *key)
{
    return json_string_value(json_object_get(report, key));
}

/* Of two files that were made alike; what an older file does not say counts as equal. */
static bool same_pass(const json_t *a, const json_t *b)
{
    const char *x = word(a, "name"), *y = word(b, "name");
    const char *u = word(a, "options"), *v = word(b, "options");
    return x != NULL && y != NULL && strcmp(x, y) == 0 &&
           (u == NULL || v == NULL || strcmp(u, v) == 0);
}

/* The stretch of `after` that is not in `before`: a step made with and without some passes agrees
 * at both ends. False where `before` has seen others: then nothing follows from running again. */
static bool find_stretch(const json_t *before, const json_t *after, size_t *from, size_t *to)
{
    size_t m = json_array_size(before), n = json_array_size(after), head = 0, tail = 0;
    while (head < m && head < n &&
           same_pass(json_array_get(before, head), json_array_get(after, head)))
        head++;
    while (tail < m - head && tail < n - head &&
           same_pass(json_array_get(before, m - 1 - tail), json_array_get(after, n - 1 - tail)))
        tail++;
    bool continues = head + tail == m;
    *from = continues ? head : 0;
    *to = continues ? n - tail : n;
    return continues;
}

/* Every part between commas is NAME=VALUE, so that it cannot be the next pass of a pipeline. */
static bool are_options(const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ","), name = strcspn(text, "=:,");
        if (name == 0 || text[name] != '=')
            return false;
        text += length + (text[length] == ',');
    }
    return true;
}

static bool reads_files(const ebb_pass *pass)
{
    for (const ebb_option *o = pass->options; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, "file") == 0)
            return true;
    return false;
}

static ebb_status read_entry(study *s, entry *e, const json_t *report)
{
    const char *name = word(report, "name"), *options = word(report, "options");
    const ebb_pass *pass = name != NULL ? ebb_pass_find(name) : NULL;
    *e = (entry){.report = report};
    if (pass == NULL)
        e->reason = "there is no pass of this name here";
    else if (options == NULL)
        e->reason = "the file does not say with which options it ran";
    else if (!are_options(options))
        e->reason = "its options in the file are not options";
    else if (reads_files(pass))
        e->reason = "it read a file; it is left out";
    if (e->reason != NULL)
        return NULL;
    e->text = ebb_arena_printf(s->arena, "%s%s%s", name, options[0] != '\0' ? ":" : "", options);
    return e->text != NULL ? NULL : ebb_error_memory();
}

/* ---- running again ---- */

static ebb_status weigh(const study *s, const ebb_model *model, uint64_t *peak)
{
    EBB_LOCAL_ARENA(arena);
    ebb_estimate estimate;
    EBB_TRY(ebb_estimate_make(&estimate, arena, model->graph, s->options->backend));
    *peak = estimate.peak_bytes;
    return NULL;
}

static ebb_status run_one(ebb_model *model, const entry *e)
{
    const ebb_rewrite_options options = {0};
    EBB_LOCAL_ARENA(keep);
    ebb_report *reports;
    size_t count;
    return ebb_pipeline_run(model, e->text, &options, keep, &reports, &count);
}

/* All but `without` (count: none), each followed by a look at the peak where peaks is not NULL. */
static ebb_status run_others(const study *s, ebb_model *model, size_t without, uint64_t *peaks)
{
    for (size_t i = 0; i < s->count; i++) {
        if (i == without || s->list[i].text == NULL)
            continue;
        EBB_TRY(run_one(model, &s->list[i]));
        if (peaks != NULL)
            EBB_TRY(weigh(s, model, &peaks[i]));
    }
    return NULL;
}

/* The sentence without its trail, kept. Errors of a pass are an answer here, not a failure. */
static void note_reason(const study *s, entry *e, const char *when, ebb_status status)
{
    const char *text = ebb_status_text(status);
    const char *kept = ebb_arena_printf(s->arena, "%s: %.*s", when, (int)strcspn(text, "\n"), text);
    if (e->reason == NULL)
        e->reason = kept != NULL ? kept : when;
}

static ebb_status study_alone(study *s, entry *e)
{
    ebb_model *copy;
    uint64_t peak = 0;
    EBB_TRY(ebb_model_copy(&copy, s->before));
    ebb_status status = run_one(copy, e);
    if (status == NULL)
        status = weigh(s, copy, &peak);
    ebb_model_free(copy);
    e->has_alone = status == NULL;
    e->alone = (int64_t)s->before_peak - (int64_t)peak;
    if (status != NULL)
        note_reason(s, e, "alone", status);
    return NULL;
}

static ebb_status study_last(study *s, size_t i)
{
    ebb_model *copy;
    entry *e = &s->list[i];
    uint64_t without = 0, with = 0;
    EBB_TRY(ebb_model_copy(&copy, s->before));
    ebb_status status = run_others(s, copy, i, NULL);
    if (status == NULL)
        status = weigh(s, copy, &without);
    if (status == NULL)
        status = run_one(copy, e);
    if (status == NULL)
        status = weigh(s, copy, &with);
    ebb_model_free(copy);
    e->has_last_in = status == NULL;
    e->last_in = (int64_t)without - (int64_t)with;
    if (status != NULL)
        note_reason(s, e, "last in", status);
    return NULL;
}

/* What the passes reported when they ran is without workspace and, where `alias` came later,
 * without sharing; so all are run again here, too, and weighed as the others are. */
static ebb_status study_in_order(study *s)
{
    ebb_model *copy;
    uint64_t peaks[MOST] = {0}, last = s->before_peak;
    EBB_TRY(ebb_model_copy(&copy, s->before));
    ebb_status status = run_others(s, copy, s->count, peaks);
    ebb_model_free(copy);
    for (size_t i = 0; status == NULL && i < s->count; i++) {
        entry *e = &s->list[i];
        if (e->text == NULL)
            continue;
        e->in_order = (int64_t)last - (int64_t)peaks[i];
        e->has_in_order = true;
        last = peaks[i];
    }
    return NULL;
}

/* As reported, where running again was not possible. */
static void take_reported(entry *e)
{
    int64_t from = json_integer_value(json_object_get(e->report, "peak_before_bytes"));
    int64_t to = json_integer_value(json_object_get(e->report, "peak_after_bytes"));
    if (e->has_in_order || from <= 0 || to <= 0)
        return;
    e->in_order = from - to;
    e->has_in_order = true;
}

static ebb_status study_all(study *s)
{
    EBB_TRY(study_in_order(s));
    for (size_t i = 0; i < s->count; i++) {
        if (s->list[i].text == NULL)
            continue;
        EBB_TRY(study_alone(s, &s->list[i]));
        EBB_TRY(study_last(s, i));
    }
    return NULL;
}

/* ---- the answer ---- */

static json_t *bytes_or_null(bool known, int64_t bytes)
{
    return known ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *entry_json(const entry *e)
{
    static const char *const kept[] = {"name", "options", "found", "applied", "saved_bytes"};
    json_t *o = json_object();
    for (size_t k = 0; k < sizeof kept / sizeof kept[0]; k++)
        if (json_object_get(e->report, kept[k]) != NULL)
            (void)json_object_set(o, kept[k], json_object_get(e->report, kept[k]));
    (void)json_object_set_new(o, "in_order_bytes", bytes_or_null(e->has_in_order, e->in_order));
    (void)json_object_set_new(o, "alone_bytes", bytes_or_null(e->has_alone, e->alone));
    (void)json_object_set_new(o, "last_in_bytes", bytes_or_null(e->has_last_in, e->last_in));
    if (e->reason != NULL)
        (void)json_object_set_new(o, "reason", json_string(e->reason));
    return o;
}

static uint64_t peak_of(const json_t *root, const char *side)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(root, side), "peak_bytes"));
}

static ebb_status by_pass(json_t *root, study *s, const json_t *old, const json_t *new)
{
    size_t from, to;
    bool continues = find_stretch(old, new, &from, &to);
    json_t *list = json_array();
    (void)json_object_set_new(root, "by_pass", list);
    s->list = EBB_NEW(s->arena, entry, to - from + 1);
    s->before_peak = peak_of(root, "before");
    EBB_GOT(s->list);
    for (size_t i = from; i < to; i++)
        EBB_TRY(read_entry(s, &s->list[s->count++], json_array_get(new, i)));
    const char *why = !continues        ? "the file before has seen passes that the other has not"
                      : s->count > MOST ? "too many passes to run each again"
                                        : NULL;
    if (why == NULL)
        EBB_TRY(study_all(s));
    for (size_t i = 0; i < s->count; i++) {
        entry *e = &s->list[i];
        take_reported(e);
        e->reason = why != NULL ? why : e->reason;
        (void)json_array_append_new(list, entry_json(e));
    }
    return NULL;
}

ebb_status ebb_diff_json(ebb_model *before, ebb_model *after, const ebb_plan_options *options,
                         char **json)
{
    EBB_NEED(before);
    EBB_NEED(after);
    EBB_NEED(json);
    ebb_plan_options own;
    EBB_LOCAL_ARENA(arena);
    *json = NULL;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_plan_options, &own, lives, options));
    EBB_NEED_COUNT(own.steps);
    EBB_NEED_COUNT(own.threads);
    study s = {.before = before, .options = &own, .arena = arena};
    json_t *root = json_object(), *old = passes_of(before), *new = passes_of(after);
    (void)json_object_set_new(root, "schema", json_string("ebb.diff/1"));
    ebb_status status = ebb_diff_measure(root, before, after, s.options);
    if (status == NULL && !s.options->brief)
        status = by_pass(root, &s, old, new);
    if (status == NULL)
        status = ebb_json_dump(root, json);
    json_decref(root);
    json_decref(old);
    json_decref(new);
    return status;
}
