/* split.c: a text is cut into words, each of which the model takes by itself. Every cut is one by a pattern: its
 * matches, and what lies between them, become words as the behavior says.
 */
#include "exec/data/text/tokenizer.h"

/* Kinds that are a pattern with a behavior. */
static const struct {
    const char *kind, *pattern, *behavior;
    bool invert;
} patterns[] = {
    {"Whitespace", "\\w+|[^\\w\\s]+", "Removed", true},
    {"WhitespaceSplit", "\\s", "Removed", false},
    {"Punctuation", "[\\p{P}!-/:-@\\[-`{-~]", "Isolated", false},
};

static const char bytes_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* ---- reading ---- */

static bool is_behavior(const char *text)
{
    static const char *const all[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                      "Contiguous"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (is(text, all[i]))
            return true;
    return false;
}

static ebb_status add(ebb_splitter *s, size_t *capacity, ebb_arena *arena,
                      const ebb_split_step *step, const char *pattern, bool literal)
{
    if (!is_behavior(step->behavior))
        return ebb_error(EBB_UNSUPPORTED,
                         "its pre-tokenizer's behavior %s is none of those computed here",
                         step->behavior);
    EBB_GOT(ebb_arena_grow(arena, &s->list, s->count, capacity, sizeof *s->list));
    s->list[s->count] = *step;
    return ebb_regex_make(&s->list[s->count++].pattern, pattern, literal);
}

static ebb_status read_metaspace(ebb_splitter *s, const json_t *o, size_t *capacity,
                                 ebb_arena *arena)
{
    ebb_split_step step = {.kind = "Metaspace", .behavior = "MergedWithNext"};
    step.replacement = ebb_said_text(o, "replacement", "\xE2\x96\x81");
    step.scheme = ebb_said_text(o, "prepend_scheme",
                                ebb_said_flag(o, "add_prefix_space", true) ? "always" : "never");
    step.splits = ebb_said_flag(o, "split", true);
    return add(s, capacity, arena, &step, step.replacement, true);
}

static ebb_status read_one(ebb_splitter *s, const json_t *o, const char *kind, size_t *capacity,
                           ebb_arena *arena)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *literal = ebb_said_text(pattern, "String", NULL);
    ebb_split_step step = {.kind = "Split", .splits = true};
    if (is(kind, "Split")) {
        step.behavior = ebb_said_text(o, "behavior", "");
        step.invert = ebb_said_flag(o, "invert", false);
        return add(s, capacity, arena, &step,
                   literal != NULL ? literal : ebb_said_text(pattern, "Regex", ""),
                   literal != NULL);
    }
    if (is(kind, "ByteLevel")) {
        step = (ebb_split_step){.kind = "ByteLevel", .behavior = "Isolated"};
        step.prefix = ebb_said_flag(o, "add_prefix_space", true);
        step.splits = ebb_said_flag(o, "use_regex", true);
        return add(s, capacity, arena, &step, bytes_pattern, false);
    }
    if (is(kind, "Metaspace"))
        return read_metaspace(s, o, capacity, arena);
    if (is(kind, "Digits")) {
        step.behavior = ebb_said_flag(o, "individual_digits", false) ? "Isolated" : "Contiguous";
        return add(s, capacity, arena, &step, "\\p{N}", false);
    }
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (!is(kind, patterns[i].kind))
            continue;
        step.behavior = ebb_said_text(o, "behavior", patterns[i].behavior);
        step.invert = patterns[i].invert;
        return add(s, capacity, arena, &step, patterns[i].pattern, false);
    }
    return ebb_error(EBB_UNSUPPORTED, "its pre-tokenizer %s is none of those computed here", kind);
}

static ebb_status read_into(ebb_splitter *s, const json_t *o, size_t *capacity, ebb_arena *arena)
{
    const char *kind = ebb_said_text(o, "type", "");
    const json_t *parts = json_object_get(o, "pretokenizers");
    if (o == NULL || json_is_null(o))
        return NULL;
    if (is(kind, "Sequence")) {
        for (size_t i = 0; i < json_array_size(parts); i++)
            EBB_TRY(read_into(s, json_array_get(parts, i), capacity, arena));
        return NULL;
    }
    if (is(kind, "BertPreTokenizer")) {
        const ebb_split_step blanks = {.kind = "Split", .splits = true, .behavior = "Removed"},
                             marks = {.kind = "Split", .splits = true, .behavior = "Isolated"};
        EBB_TRY(add(s, capacity, arena, &blanks, patterns[1].pattern, false));
        return add(s, capacity, arena, &marks, patterns[2].pattern, false);
    }
    return read_one(s, o, kind, capacity, arena);
}

ebb_status ebb_splitter_read(ebb_splitter *s, const json_t *o, ebb_arena *arena)
{
    size_t capacity = 0;
    *s = (ebb_splitter){0};
    return read_into(s, o, &capacity, arena);
}

void ebb_splitter_free(ebb_splitter *s)
{
    for (size_t i = 0; i < s->count; i++)
        ebb_regex_free(s->list[i].pattern);
}

/* ---- cutting ---- */

typedef struct span {
    size_t from, to;
    bool match;
} span;

typedef struct spans {
    ebb_arena *arena;
    span *list;
    size_t count, capacity;
} spans;

static ebb_status put(spans *all, size_t from, size_t to, bool match)
{
    if (from == to)
        return NULL;
    EBB_GOT(ebb_arena_grow(all->arena, &all->list, all->count, &all->capacity, sizeof *all->list));
    all->list[all->count++] = (span){from, to, match};
    return NULL;
}

/* Matches, and what is between them. An empty match is none. */
static ebb_status find(spans *all, const ebb_split_step *s, const char *text, size_t size)
{
    size_t done = 0;
    for (size_t at = 0; at < size;) {
        int64_t from, to;
        int32_t c;
        EBB_TRY(ebb_regex_find(s->pattern, text, size, at, &from, &to));
        if (from < 0)
            break;
        if (to == from) {
            at = (size_t)from;
            at += at < size ? ebb_char_at(text + at, size - at, &c) : 1;
            continue;
        }
        EBB_TRY(put(all, done, (size_t)from, s->invert));
        EBB_TRY(put(all, (size_t)from, (size_t)to, !s->invert));
        at = done = (size_t)to;
    }
    return put(all, done, size, s->invert);
}

/* Whether span i goes on the word that the one before it is in. */
static bool goes_on(const ebb_split_step *s, const span *list, size_t i)
{
    if (i == 0)
        return false;
    if (is(s->behavior, "Contiguous"))
        return list[i].match == list[i - 1].match;
    if (is(s->behavior, "MergedWithPrevious"))
        return list[i].match && !list[i - 1].match;
    if (is(s->behavior, "MergedWithNext"))
        return list[i - 1].match && !list[i].match;
    return false;
}

typedef struct cutting {
    const ebb_splitter *s;
    ebb_arena *arena;
    ebb_word_fn fn;
    void *to;
} cutting;

static ebb_status cut(const cutting *c, size_t step, const char *text, size_t size, bool first);

/* The byte's own character, as byte-level vocabularies have it: printable ones as they are, the others from 256
 * on, in their order. */
static int32_t char_of_byte(uint8_t b)
{
    int32_t aside = 256;
    if ((b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE)
        return b;
    for (int i = 0; i < b; i++)
        aside += !((i >= '!' && i <= '~') || (i >= 0xA1 && i <= 0xAC) || i >= 0xAE);
    return aside;
}

static ebb_status next(const cutting *c, size_t step, const char *text, size_t size, bool first)
{
    ebb_text t = {.arena = c->arena};
    if (!is(c->s->list[step].kind, "ByteLevel"))
        return cut(c, step + 1, text, size, first);
    for (size_t i = 0; i < size; i++)
        ebb_text_add_char(&t, char_of_byte((uint8_t)text[i]));
    return t.full ? ebb_error_memory() : cut(c, step + 1, t.data, t.size, first);
}

static ebb_status cut_by(const cutting *c, size_t step, const char *text, size_t size, bool first)
{
    const ebb_split_step *s = &c->s->list[step];
    spans all = {.arena = c->arena};
    if (!s->splits)
        return next(c, step, text, size, first);
    EBB_TRY(find(&all, s, text, size));
    for (size_t i = 0; i < all.count;) {
        size_t end = i + 1;
        while (end < all.count && goes_on(s, all.list, end))
            end++;
        const span *a = &all.list[i], *b = &all.list[end - 1];
        if (!(is(s->behavior, "Removed") && a->match))
            EBB_TRY(next(c, step, text + a->from, b->to - a->from, first && a->from == 0));
        i = end;
    }
    return NULL;
}

/* A space at the front, where there is none. */
static ebb_status cut_prefixed(const cutting *c, size_t step, const char *text, size_t size,
                               bool first)
{
    ebb_text t = {.arena = c->arena};
    ebb_text_add(&t, " ", 1);
    ebb_text_add(&t, text, size);
    return t.full ? ebb_error_memory() : cut_by(c, step, t.data, t.size, first);
}

static ebb_status cut_metaspace(const cutting *c, size_t step, const char *text, size_t size,
                                bool first)
{
    const ebb_split_step *s = &c->s->list[step];
    const size_t mark = strlen(s->replacement);
    ebb_text t = {.arena = c->arena};
    const bool there =
        size > 0 && (text[0] == ' ' || (size >= mark && memcmp(text, s->replacement, mark) == 0));
    if (!there && (is(s->scheme, "always") || (is(s->scheme, "first") && first)))
        ebb_text_add(&t, s->replacement, mark);
    for (size_t i = 0; i < size; i++)
        ebb_text_add(&t, text[i] == ' ' ? s->replacement : text + i, text[i] == ' ' ? mark : 1);
    return t.full ? ebb_error_memory() : cut_by(c, step, t.data, t.size, first);
}

static ebb_status cut(const cutting *c, size_t step, const char *text, size_t size, bool first)
{
    if (size == 0)
        return NULL;
    if (step == c->s->count)
        return c->fn(c->to, text, size);
    const ebb_split_step *s = &c->s->list[step];
    if (is(s->kind, "Metaspace"))
        return cut_metaspace(c, step, text, size, first);
    if (s->prefix && text[0] != ' ')
        return cut_prefixed(c, step, text, size, first);
    return cut_by(c, step, text, size, first);
}

ebb_status ebb_split(const ebb_splitter *s, const char *text, size_t size, bool first,
                     ebb_arena *arena, ebb_word_fn fn, void *to)
{
    const cutting c = {s, arena, fn, to};
    return cut(&c, 0, text, size, first);
}
