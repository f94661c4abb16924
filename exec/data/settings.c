/* settings.c: the rates and the schedule of a step's file beside those of a checkpoint. */
#include "exec/data/settings.h"

#include <string.h>

#include "exec/json.h"

static const char schedule_key[] = "schedule";

static const char *schedule_of(const ebb_program *p)
{
    const ebb_graph *g = p->plan.g;
    const char *text = ebb_props_get(g, &g->model->props, "ebb.schedule");
    return text != NULL ? text : "";
}

/* A rate as the file has it. */
static bool is_rate(const ebb_program *p, ebb_value v, float *rate)
{
    const ebb_graph *g = p->plan.g;
    const ebb_value_info *info = ebb_value_of(g, v);
    if (info->role != EBB_ROLE_OPTIMIZER || info->type->dtype != EBB_F32 || info->type->rank != 0 ||
        info->tensor == NULL || info->tensor->data == NULL || ebb_graph_bound(g, v).i != 0)
        return false;
    memcpy(rate, info->tensor->data, sizeof *rate);
    return true;
}

char *ebb_settings_text(const ebb_program *p)
{
    const ebb_graph *g = p->plan.g;
    json_t *root = json_object();
    float rate;
    for (size_t i = 0; i < g->initializer_count; i++)
        if (is_rate(p, g->initializers[i], &rate))
            (void)json_object_set_new(root, ebb_value_name(g, g->initializers[i]),
                                      json_real((double)rate));
    (void)json_object_set_new(root, schedule_key, json_string(schedule_of(p)));
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

/* One rate. The file's, what the checkpoint says that its file had, and what it holds. */
static ebb_status compare_rate(bool *keeps, const char **note, const char *name, float file,
                               const json_t *said, const ebb_named *holds, ebb_arena *scratch)
{
    float bits = file;
    if (holds != NULL && holds->dtype == EBB_F32 && holds->rank == 0)
        memcpy(&bits, holds->data, sizeof bits); // what else is wrong with it others say
    const double held = (double)bits;
    const json_t *was = json_object_get(said, name);
    if (said == NULL && held != (double)file)
        return ebb_hint(
            ebb_error(EBB_USAGE,
                      "%s is %g in the checkpoint, which does not tell whether that was set in its "
                      "run, and %g in the step",
                      name, held, (double)file),
            "make the step with the checkpoint's rate");
    if (said == NULL)
        return NULL;
    if (!json_is_number(was))
        return ebb_error(EBB_REJECTED, "the checkpoint's settings do not say %s", name);
    *keeps = (float)json_number_value(was) != file;
    if (!*keeps)
        return NULL;
    *note = ebb_arena_printf(scratch, "%s%s%s is %g now; it was %g where the checkpoint was made",
                             *note != NULL ? *note : "", *note != NULL ? "; " : "", name,
                             (double)file, json_number_value(was));
    return *note != NULL ? NULL : ebb_error_memory();
}

static ebb_status compare_all(bool *keeps, const char **note, const ebb_program *p,
                              const ebb_data *there, const json_t *said, ebb_arena *scratch)
{
    const ebb_graph *g = p->plan.g;
    const char *now = schedule_of(p), *was = json_string_value(json_object_get(said, schedule_key));
    float rate;
    *note = NULL;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const char *name = ebb_value_name(g, g->initializers[i]);
        if (is_rate(p, g->initializers[i], &rate))
            EBB_TRY(compare_rate(&keeps[i], note, name, rate, said, ebb_data_find(there, name),
                                 scratch));
    }
    if (said == NULL || (was != NULL && strcmp(was, now) == 0))
        return NULL;
    if (was == NULL)
        return ebb_error(EBB_REJECTED, "the checkpoint's settings do not say the schedule");
    *note = ebb_arena_printf(
        scratch, "%s%sthe schedule is %.200s now; it was %.200s where the checkpoint was made",
        *note != NULL ? *note : "", *note != NULL ? "; " : "", *now != '\0' ? now : "none",
        *was != '\0' ? was : "none");
    return *note != NULL ? NULL : ebb_error_memory();
}

ebb_status ebb_settings_compare(bool *keeps, const char **note, const ebb_program *program,
                                const ebb_data *there, const char *said, ebb_arena *scratch)
{
    json_t *root = said != NULL ? json_loads(said, 0, NULL) : NULL;
    *note = NULL;
    if (said != NULL && !json_is_object(root)) {
        json_decref(root);
        return ebb_error(EBB_REJECTED, "the checkpoint's settings are no JSON object");
    }
    ebb_status status = compare_all(keeps, note, program, there, root, scratch);
    json_decref(root);
    return status;
}
