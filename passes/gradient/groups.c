/* groups.c: the table of optimizers, and which parameters are updated by which, with which options. */
#include <ctype.h>
#include <stdlib.h>

#include "passes/gradient/update.h"
#include "onnx/words/print.h"
#include "passes/pipeline_text.h"

/* ---- the table ---- */

static const ebb_optimizer optimizers[] = {
#define EBB_OPTIMIZER(name, ...) {#name, ebb_update_##name, {__VA_ARGS__}},
#include "passes/gradient/optimizers.def"
#undef EBB_OPTIMIZER
};

enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static const ebb_optimizer *find(const char *name)
{
    for (size_t i = 0; i < OPTIMIZERS; i++)
        if (strcmp(optimizers[i].name, name) == 0)
            return &optimizers[i];
    return NULL;
}

static const char *default_of(const ebb_optimizer *o, const char *option)
{
    for (size_t i = 0; i < EBB_UPDATE_OPTIONS && o->options[i].name != NULL; i++)
        if (strcmp(o->options[i].name, option) == 0)
            return o->options[i].otherwise;
    return NULL;
}

/* Whether it is an option of an update, and not one of the pass as a whole. */
static bool is_of_updates(const char *option)
{
    for (size_t i = 0; i < OPTIMIZERS; i++)
        if (default_of(&optimizers[i], option) != NULL)
            return true;
    return false;
}

static ebb_status has_no(ebb_arena *scratch, const ebb_optimizer *kind, const char *option)
{
    const char *who = NULL;
    for (size_t i = 0; i < OPTIMIZERS; i++)
        if (default_of(&optimizers[i], option) != NULL)
            who = who == NULL ? optimizers[i].name
                              : ebb_arena_printf(scratch, "%s, %s", who, optimizers[i].name);
    return ebb_hint(ebb_error(EBB_USAGE, "optimizer: %s has no option '%s'", kind->name, option),
                    "it is one of %s", who != NULL ? who : "another");
}

const char *ebb_update_group_text(const ebb_update_group *group, const char *option)
{
    for (const ebb_update_group *at = group; at != NULL; at = at->base)
        for (size_t i = at->given_count; i-- > 0;)
            if (strcmp(at->given[i].name, option) == 0)
                return at->given[i].value;
    return default_of(group->kind, option);
}

const char *ebb_update_text(const ebb_update *u, const char *option)
{
    const char *text = ebb_update_group_text(u->group, option);
    return text != NULL ? text : "0";
}

double ebb_update_number(const ebb_update *u, const char *option)
{
    return ebb_strtod(ebb_update_text(u, option), NULL);
}

/* ---- groups ---- */

static const char separators[] = ",; ";

/* In small letters, in scratch; NULL without memory. */
static char *lowered(const char *text, size_t length, ebb_arena *scratch)
{
    char *lower = ebb_arena_printf(scratch, "%.*s", (int)length, text);
    for (char *c = lower; c != NULL && *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    return lower;
}

/* Letters may be large or small: what is norm1 here is LayerNorm there. */
static bool word_fits(const char *word, const char *any_name, ebb_arena *scratch)
{
    const char *name = lowered(any_name, strlen(any_name), scratch);
    return name != NULL && ebb_glob_part(word, name);
}

/* The next word of globs, into scratch; NULL at the end. */
static char *next_word(const char **globs, ebb_arena *scratch)
{
    *globs += strspn(*globs, separators);
    const size_t length = strcspn(*globs, separators);
    char *word = length > 0 ? lowered(*globs, length, scratch) : NULL;
    *globs += length;
    return word;
}

static bool group_has(const ebb_update_group *group, const char *name, ebb_arena *scratch)
{
    const char *globs = group->globs, *word;
    while ((word = next_word(&globs, scratch)) != NULL)
        if (word_fits(word, name, scratch))
            return true;
    return false;
}

size_t ebb_update_group_of(const ebb_update_groups *r, ebb_value w)
{
    const char *name = ebb_value_name(r->e->g, w);
    for (size_t i = 1; i < r->count; i++)
        if (group_has(&r->list[i], name, r->e->scratch))
            return i;
    return 0;
}

/* "GLOBS:OPTION=VALUE,..." */
static ebb_status read_group(ebb_update_groups *r, char *text)
{
    ebb_update_group *group = &r->list[r->count];
    char *colon = strrchr(text, ':');
    ebb_stage stage;
    if (r->count > EBB_UPDATE_GROUPS)
        return ebb_error(EBB_USAGE, "optimizer: more than %d groups", EBB_UPDATE_GROUPS);
    if (colon == NULL || colon == text || colon[1] == '\0')
        return ebb_error(EBB_USAGE, "optimizer: the group '%s' is not GLOBS:OPTION=VALUE,...",
                         text);
    *colon = '\0';
    EBB_TRY(ebb_while(ebb_stage_read(&stage, "optimizer", colon + 1, r->e->scratch),
                      "reading the group '%s'", text));
    *group = (ebb_update_group){.globs = text,
                                .kind = r->list[0].kind,
                                .given = stage.options,
                                .given_count = stage.option_count,
                                .base = &r->list[0]};
    for (size_t i = 0; i < stage.option_count; i++)
        if (strcmp(stage.options[i].name, "kind") == 0)
            group->kind = find(stage.options[i].value);
    if (group->kind == NULL)
        return ebb_hint(ebb_error(EBB_USAGE, "optimizer: the group '%s' has kind=none", text),
                        "--freeze leaves weights as they are");
    if (group->kind != r->list[0].kind)
        group->base = NULL; // the options are another optimizer's
    for (size_t i = 0; i < stage.option_count; i++) {
        const char *name = stage.options[i].name;
        if (strcmp(name, "kind") == 0)
            continue;
        if (!is_of_updates(name))
            return ebb_error(EBB_USAGE, "optimizer: %s is the same for all groups, not of '%s'",
                             name, text);
        if (default_of(group->kind, name) == NULL)
            return has_no(r->e->scratch, group->kind, name);
    }
    r->count++;
    return NULL;
}

static ebb_status read_groups(ebb_update_groups *r)
{
    const char *given = ebb_option_string(r->e, "groups");
    char *text = given != NULL ? ebb_arena_strdup(r->e->scratch, given) : NULL;
    EBB_GOT(given == NULL || text);
    while (text != NULL) {
        char *end = strchr(text, '|');
        if (end != NULL)
            *end = '\0';
        EBB_TRY(read_group(r, text));
        text = end != NULL ? end + 1 : NULL;
    }
    return NULL;
}

ebb_status ebb_update_groups_read(ebb_update_groups *r, ebb_edit *e)
{
    static const char *const of_schedules[] = {"warmup", "steps", "floor", "every",
                                               "gamma",  "rise",  "start"};
    ebb_update_group *group = &r->list[0];
    r->e = e;
    *group = (ebb_update_group){.kind = find(ebb_option_string(e, "kind")),
                                .given = e->options,
                                .given_count = e->option_count};
    r->count = 1;
    for (size_t i = 0; i < e->option_count; i++) {
        const char *name = e->options[i].name;
        if (strcmp(name, "kind") == 0)
            continue;
        if (group->kind == NULL)
            return ebb_error(EBB_USAGE, "optimizer: none updates nothing: %s has no effect", name);
        if (is_of_updates(name) && default_of(group->kind, name) == NULL)
            return has_no(e->scratch, group->kind, name);
    }
    for (size_t i = 0; i < sizeof of_schedules / sizeof *of_schedules; i++)
        if (!ebb_schedule_asked(e) && ebb_option_given(e, of_schedules[i]))
            return ebb_error(EBB_USAGE, "optimizer: %s belongs to a schedule, and none is given",
                             of_schedules[i]);
    return read_groups(r);
}

ebb_status ebb_update_groups_tell(const ebb_update_groups *r)
{
    const ebb_graph *g = r->e->g;
    for (size_t k = 1; k < r->count; k++) {
        const char *globs = r->list[k].globs, *word;
        if (r->members[k] == 0)
            return ebb_error(EBB_USAGE, "optimizer: the group '%s' has no trained parameter",
                             globs);
        EBB_TRY(ebb_note(r->e, "group '%s': %zu parameter%s by %s", globs, r->members[k],
                         r->members[k] == 1 ? "" : "s", r->list[k].kind->name));
        while ((word = next_word(&globs, r->e->scratch)) != NULL) {
            bool fits = false;
            for (size_t i = 0; i < g->initializer_count && !fits; i++)
                fits = ebb_value_of(g, g->initializers[i])->role == EBB_ROLE_PARAMETER &&
                       word_fits(word, ebb_value_name(g, g->initializers[i]), r->e->scratch);
            if (!fits)
                EBB_TRY(ebb_note(r->e, "no trained parameter's name matches '%s'", word));
        }
    }
    return NULL;
}
