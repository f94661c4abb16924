/* report.c: options in; sites found, applied, skipped and why, out. */
#include "rewrite/rewrite.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "onnx/graph/place.h"
#include "onnx/words/print.h"

/* ---- the report ---- */

void ebb_found(ebb_edit *e)
{
    e->report->found++;
}

void ebb_applied(ebb_edit *e)
{
    e->report->applied++;
}

static ebb_skip *skip_of(ebb_edit *e, const char *reason)
{
    ebb_report *r = e->report;
    for (size_t i = 0; i < r->skip_count; i++)
        if (strcmp(r->skips[i].reason, reason) == 0)
            return &r->skips[i];
    if (!ebb_arena_grow(e->keep, &r->skips, r->skip_count, &r->skip_capacity, sizeof *r->skips))
        return NULL;
    r->skips[r->skip_count] = (ebb_skip){.reason = reason};
    return &r->skips[r->skip_count++];
}

ebb_status ebb_skipped(ebb_edit *e, ebb_node n, const char *reason)
{
    enum { NAMED = 8 };
    ebb_skip *skip = skip_of(e, reason);
    EBB_GOT(skip);
    skip->count++;
    if (n.i == 0 || skip->node_count == NAMED)
        return NULL;
    if (skip->nodes == NULL)
        skip->nodes = EBB_NEW(e->keep, char *, NAMED);
    char *label = ebb_arena_strdup(e->keep, ebb_node_label(e->g, n));
    EBB_GOT(skip->nodes && label);
    skip->nodes[skip->node_count++] = label;
    return NULL;
}

bool ebb_offered(ebb_edit *e, ebb_node site, const ebb_offer *offer)
{
    const char *refused = NULL;
    if (offer->value.i != 0 && ebb_value_is_moved(e->g, offer->value))
        refused = "it waits in another place";
    else if (e->decides != NULL)
        refused = e->decides(e->context, e->pass, site, offer);
    if (refused == NULL)
        return true;
    (void)ebb_skipped(e, site, refused); // a lost count is no reason to stop
    return false;
}

ebb_status ebb_note(ebb_edit *e, const char *format, ...)
{
    ebb_report *r = e->report;
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)ebb_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    EBB_GOT(ebb_arena_grow(e->keep, &r->notes, r->note_count, &r->note_capacity, sizeof *r->notes));
    char *copy = ebb_arena_strdup(e->keep, text);
    EBB_GOT(copy);
    r->notes[r->note_count++] = copy;
    return NULL;
}

/* ---- options ---- */

bool ebb_option_given(const ebb_edit *e, const char *name)
{
    for (size_t i = 0; i < e->option_count; i++)
        if (strcmp(e->options[i].name, name) == 0)
            return true;
    return false;
}

const char *ebb_option_string(const ebb_edit *e, const char *name)
{
    for (size_t i = e->option_count; i-- > 0;)
        if (strcmp(e->options[i].name, name) == 0)
            return e->options[i].value;
    for (const ebb_option *o = e->pass->options; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, name) == 0)
            return o->otherwise;
    assert(!"a pass asked for an option that its descriptor does not have");
    return NULL;
}

int64_t ebb_option_int(const ebb_edit *e, const char *name)
{
    const char *text = ebb_option_string(e, name);
    return text == NULL ? 0 : strtoll(text, NULL, 10);
}

double ebb_option_float(const ebb_edit *e, const char *name)
{
    const char *text = ebb_option_string(e, name);
    return text == NULL ? 0.0 : ebb_strtod(text, NULL);
}

ebb_status ebb_option_bytes(const ebb_edit *e, const char *name, uint64_t whole, uint64_t *bytes)
{
    const char *text = ebb_option_string(e, name);
    ebb_amount amount = {0};
    *bytes = 0;
    if (text == NULL)
        return NULL;
    EBB_TRY(ebb_amount_parse(&amount, text));
    *bytes = ebb_amount_of(&amount, whole);
    return NULL;
}

/* ---- globs ---- */

/* One pattern of `length` characters. The last star is where a mismatch goes back to. */
static bool fits(const char *pattern, size_t length, const char *text)
{
    size_t p = 0, star = SIZE_MAX;
    const char *after_star = NULL;
    while (*text != '\0') {
        if (p < length && (pattern[p] == '?' || (pattern[p] == *text && pattern[p] != '*'))) {
            p++;
            text++;
        } else if (p < length && pattern[p] == '*') {
            star = p++;
            after_star = text;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            text = ++after_star;
        } else {
            return false;
        }
    }
    while (p < length && pattern[p] == '*')
        p++;
    return p == length;
}

static const char separators[] = ",; ";

bool ebb_glob(const char *pattern, const char *text)
{
    while (*pattern != '\0') {
        size_t length = strcspn(pattern, separators);
        if (length > 0 && fits(pattern, length, text))
            return true;
        pattern += length;
        pattern += strspn(pattern, separators);
    }
    return false;
}

bool ebb_glob_part(const char *pattern, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (ebb_glob(pattern, name))
        return true;
    for (size_t length; dot != NULL && *pattern != '\0'; pattern += length) {
        pattern += strspn(pattern, separators);
        length = strcspn(pattern, separators);
        if (length > 0 && length == strlen(dot + 1) && memcmp(pattern, dot + 1, length) == 0)
            return true;
    }
    return false;
}
