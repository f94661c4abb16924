/* pipeline_text.c: a pipeline's text becomes stages, each a pass with its options; and back. */
#include "passes/pipeline_text.h"

#include <stdio.h>

#include "passes/budget/planners/planner.h"
#include "passes/pipeline.h"

/* ---- presets ---- */

#define FLATTEN "differentiate,decoder,opset,inline,fold,unroll"

static const ebb_preset presets[] = {
    {"flatten", FLATTEN,
     "one flat graph of today's operators: no past, the bodies of functions, control flow and "
     "Gradient "
     "put in, constants computed"},
    {"normalise", FLATTEN ",fuse", "what exporters took apart, put together again"},
    {"default", "drop-saves,stream,alias", "what every step ends with"},
    {"tempo", "invert,norm-from-output,softmax-from-output,dropout-mask,dropout-recompute",
     "transformers: activations and norms from their outputs, dropouts from bits (or, after "
     "dropout-seed, from the key)"},
};

enum { PRESETS = sizeof presets / sizeof *presets };

const ebb_preset *ebb_presets(size_t *count)
{
    *count = PRESETS;
    return presets;
}

/* ---- words ---- */

static ebb_status unknown_pass(const ebb_stages *p, const char *name)
{
    const ebb_stage *before = p->count > 0 ? &p->list[p->count - 1] : NULL;
    const char *names[128];
    size_t count, known = 0;
    const ebb_pass *const *roll = ebb_passes(&count);
    for (size_t i = 0; i < count + PRESETS && known < 128; i++)
        names[known++] = i < count ? roll[i]->name : presets[i - count].name;
    const char *near = ebb_nearest(name, names, known);
    ebb_status status = ebb_error(EBB_USAGE, "there is no pass '%s'", name);
    if (near == NULL && before != NULL && before->option_count > 0)
        return ebb_hint(status, "a value with commas stands in quotes: %s:%s=\"%s,%s\"",
                        before->pass->name, before->options[before->option_count - 1].name,
                        before->options[before->option_count - 1].value, name);
    return near != NULL ? ebb_hint(status, "did you mean '%s'?", near) : status;
}

/* The choices are "a|b|c". */
static bool is_choice(const char *choices, const char *value)
{
    size_t length = strlen(value);
    for (const char *c = choices; length > 0 && *c != '\0';) {
        size_t n = strcspn(c, "|");
        if (n == length && strncmp(c, value, n) == 0)
            return true;
        c += n + (c[n] == '|');
    }
    return false;
}

static ebb_status wrong_choice(const ebb_pass *pass, const ebb_option *o, const char *value)
{
    char words[512], *at = words;
    const char *names[64];
    size_t count = 0;
    (void)snprintf(words, sizeof words, "%s", o->choices);
    for (char *name; count < 64 && (name = strsep(&at, "|")) != NULL;)
        names[count++] = name;
    const char *near = ebb_nearest(value, names, count);
    ebb_status status = ebb_error(EBB_USAGE, "pass %s: option %s=%s should be %s", pass->name,
                                  o->name, value, o->choices);
    return near != NULL ? ebb_hint(status, "did you mean '%s'?", near) : status;
}

static ebb_status check_value(const ebb_pass *pass, const ebb_option *o, const char *value)
{
    char what[128];
    (void)snprintf(what, sizeof what, "pass %s: option %s", pass->name, o->name);
    switch (o->kind) {
    case EBB_OPTION_INT:
        return ebb_whole_parse(&(int64_t){0}, value, o->choices, what);
    case EBB_OPTION_FLOAT:
        return ebb_real_parse(&(double){0}, value, o->choices, what);
    case EBB_OPTION_BYTES:
        return ebb_while(ebb_amount_parse(&(ebb_amount){0}, value), "reading option %s of pass %s",
                         o->name, pass->name);
    case EBB_OPTION_CHOICE:
        if (!is_choice(o->choices, value))
            return wrong_choice(pass, o, value);
        break;
    case EBB_OPTION_STRING:
        break;
    }
    return NULL;
}

static ebb_status add_option(ebb_stages *p, ebb_stage *s, const char *name, const char *value)
{
    const char *names[32];
    size_t count = 0;
    const ebb_option *found = NULL;
    for (const ebb_option *o = s->pass->options; o != NULL && o->name != NULL; o++) {
        if (count < 32)
            names[count++] = o->name;
        if (strcmp(o->name, name) == 0)
            found = o;
    }
    if (found == NULL) {
        const char *near = ebb_nearest(name, names, count);
        ebb_status status = ebb_error(EBB_USAGE, "pass %s has no option '%s'", s->pass->name, name);
        if (near != NULL)
            return ebb_hint(status, "did you mean '%s'?", near);
        return ebb_hint(status, "`ebb help passes %s` lists its options", s->pass->name);
    }
    EBB_TRY(check_value(s->pass, found, value));
    EBB_GOT(ebb_arena_grow(p->arena, &s->options, s->option_count, &s->option_capacity,
                           sizeof *s->options));
    s->options[s->option_count++] = (struct ebb_option_value){found->name, value};
    return NULL;
}

static ebb_status parse(ebb_stages *p, const char *text);

static ebb_status add_stage(ebb_stages *p, const char *name)
{
    for (size_t i = 0; i < PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0) {
            p->preset = ++p->preset_count;
            ebb_status status = parse(p, presets[i].stands_for);
            p->preset = 0;
            return status;
        }
    const ebb_planner *planner = ebb_planner_find(name); // "dtr" is "recompute:dtr"
    if (planner != NULL)
        return parse(p, ebb_arena_printf(p->arena, "recompute:%s", planner->name));
    const ebb_pass *pass = ebb_pass_find(name);
    if (pass == NULL)
        return unknown_pass(p, name);
    EBB_GOT(ebb_arena_grow(p->arena, &p->list, p->count, &p->capacity, sizeof *p->list));
    p->list[p->count++] = (ebb_stage){.pass = pass, .preset = p->preset};
    return NULL;
}

/* ---- quotes ---- */

/* Behind the first word of text: its comma, or the end. Quotes begin where a value may. */
static char *end_of_word(char *text)
{
    bool quoted = false;
    char *at = text;
    for (; *at != '\0' && (quoted || *at != ','); at++) {
        if (quoted && *at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '"')
            quoted = !quoted && at > text && (at[-1] == '=' || at[-1] == ':');
    }
    return at;
}

/* A value without its quotes, in place. */
static ebb_status unquote(char *value)
{
    char *to = value, *at = value + 1;
    if (value[0] != '"')
        return NULL;
    for (; *at != '\0' && *at != '"'; at++) {
        at += *at == '\\' && at[1] != '\0';
        *to++ = *at;
    }
    if (*at != '"' || at[1] != '\0')
        return ebb_error(EBB_USAGE, "the quotes in '%s' do not enclose a value: \"...\"", value);
    *to = '\0';
    return NULL;
}

const char *ebb_option_quoted(const char *value, ebb_arena *arena)
{
    if (value[0] != '"' && strchr(value, ',') == NULL)
        return value;
    char *quoted = ebb_arena_alloc(arena, 2 * strlen(value) + 3), *to = quoted;
    if (quoted == NULL)
        return NULL;
    *to++ = '"';
    for (; *value != '\0'; *to++ = *value++)
        if (*value == '"' || *value == '\\')
            *to++ = '\\';
    *to++ = '"';
    *to = '\0';
    return quoted;
}

const char *ebb_stage_text(const ebb_stage *s, ebb_arena *arena)
{
    const char *text = "";
    for (size_t i = 0; i < s->option_count && text != NULL; i++) {
        const char *value = ebb_option_quoted(s->options[i].value, arena);
        text = value != NULL ? ebb_arena_printf(arena, "%s%s%s=%s", text, i > 0 ? "," : "",
                                                s->options[i].name, value)
                             : NULL;
    }
    return text;
}

/* ---- stages ---- */

/* One option of the present stage: "name=value", or the first option's value alone. */
static ebb_status parse_option(ebb_stages *p, char *word)
{
    if (p->count == 0)
        return ebb_error(EBB_USAGE, "option '%s' stands before any pass", word);
    ebb_stage *s = &p->list[p->count - 1];
    char *equals = word[0] != '"' ? strchr(word, '=') : NULL;
    EBB_TRY(unquote(equals != NULL ? equals + 1 : word));
    if (equals != NULL) {
        *equals = '\0';
        return add_option(p, s, word, equals + 1);
    }
    if (s->pass->options == NULL)
        return ebb_error(EBB_USAGE, "pass %s has no options, so '%s' means nothing", s->pass->name,
                         word);
    return add_option(p, s, s->pass->options[0].name, word);
}

static ebb_status parse_word(ebb_stages *p, char *word)
{
    char *colon = strchr(word, ':'), *equals = strchr(word, '=');
    if (word[0] == '\0')
        return NULL;
    if (equals != NULL && (colon == NULL || equals < colon))
        return parse_option(p, word);
    if (colon != NULL)
        *colon = '\0';
    EBB_TRY(add_stage(p, word));
    return colon != NULL && colon[1] != '\0' ? parse_option(p, colon + 1) : NULL;
}

static ebb_status parse(ebb_stages *p, const char *text)
{
    char *words = text != NULL ? ebb_arena_strdup(p->arena, text) : NULL;
    EBB_GOT(words);
    for (bool more = true; more;) {
        char *end = end_of_word(words);
        more = *end == ',';
        *end = '\0';
        EBB_TRY(parse_word(p, words));
        words = end + more;
    }
    return NULL;
}

ebb_status ebb_stages_read(ebb_stages *stages, const char *text, ebb_arena *arena)
{
    *stages = (ebb_stages){.arena = arena};
    return parse(stages, text);
}

ebb_status ebb_stage_read(ebb_stage *stage, const char *pass, const char *spec, ebb_arena *arena)
{
    char *text = ebb_arena_printf(arena, "%s:%s", pass, spec);
    ebb_stages stages;
    EBB_GOT(text);
    char *colon = text + strlen(pass) + 1;
    colon += strcspn(colon, ":=\"");
    if (*colon == ':')
        *colon = ',';
    EBB_TRY(ebb_stages_read(&stages, text, arena));
    if (stages.count != 1)
        return ebb_error(EBB_USAGE, "'%s' is more than one %s: KIND:OPTION=VALUE,... is expected",
                         spec, pass);
    *stage = stages.list[0];
    return NULL;
}
