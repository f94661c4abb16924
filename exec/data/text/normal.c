/* normal.c: what is changed in a text before it is cut. */
#include "exec/data/text/tokenizer.h"

static const char *const kinds[] = {"NFC",          "NFD",   "NFKC",    "NFKD",    "Lowercase",
                                    "StripAccents", "Strip", "Prepend", "Replace", "BertNormalizer",
                                    "Precompiled"};

static bool is(const ebb_normal_step *s, const char *kind)
{
    return strcmp(s->kind, kind) == 0;
}

/* ---- reading ---- */

static ebb_status read_step(ebb_normal_step *s, const json_t *o, const char *kind, ebb_arena *arena)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *literal = ebb_said_text(pattern, "String", NULL);
    *s = (ebb_normal_step){.kind = kind};
    s->text = ebb_said_text(o, is(s, "Prepend") ? "prepend" : "content", "");
    s->left = ebb_said_flag(o, "strip_left", true);
    s->right = ebb_said_flag(o, "strip_right", true);
    s->clean = ebb_said_flag(o, "clean_text", true);
    s->chinese = ebb_said_flag(o, "handle_chinese_chars", true);
    s->lower = ebb_said_flag(o, "lowercase", true);
    s->accents = ebb_said_flag(o, "strip_accents", s->lower);
    if (is(s, "Precompiled"))
        return ebb_charsmap_read(&s->map, ebb_said_text(o, "precompiled_charsmap", ""), arena);
    if (!is(s, "Replace"))
        return NULL;
    return ebb_regex_make(&s->pattern,
                          literal != NULL ? literal : ebb_said_text(pattern, "Regex", ""),
                          literal != NULL);
}

static ebb_status read_into(ebb_normalizer *n, const json_t *o, size_t *capacity, ebb_arena *arena)
{
    const char *kind = ebb_said_text(o, "type", "");
    const json_t *parts = json_object_get(o, "normalizers");
    if (o == NULL || json_is_null(o))
        return NULL;
    if (strcmp(kind, "Sequence") == 0) {
        for (size_t i = 0; i < json_array_size(parts); i++)
            EBB_TRY(read_into(n, json_array_get(parts, i), capacity, arena));
        return NULL;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i], kind) != 0)
            continue;
        EBB_GOT(ebb_arena_grow(arena, &n->list, n->count, capacity, sizeof *n->list));
        return read_step(&n->list[n->count++], o, kinds[i], arena);
    }
    return ebb_error(EBB_UNSUPPORTED, "its normalizer %s is none of those computed here", kind);
}

ebb_status ebb_normalizer_read(ebb_normalizer *n, const json_t *o, ebb_arena *arena)
{
    size_t capacity = 0;
    *n = (ebb_normalizer){0};
    return read_into(n, o, &capacity, arena);
}

void ebb_normalizer_free(ebb_normalizer *n)
{
    for (size_t i = 0; i < n->count; i++)
        ebb_regex_free(n->list[i].pattern);
}

/* ---- steps ---- */

static bool is_chinese(int32_t c)
{
    static const int32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                        {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                        {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

/* What Bert's first two changes make of a character. */
static void put_clean(ebb_text *t, const ebb_normal_step *s, int32_t c)
{
    const bool blank = c == '\t' || c == '\n' || c == '\r' || ebb_char_is(c, EBB_CHAR_SPACE);
    const bool control = c == 0 || c == 0xFFFD ||
                         (c != '\t' && c != '\n' && c != '\r' && ebb_char_is(c, EBB_CHAR_CONTROL));
    if (s->clean && control)
        return;
    const bool apart = s->chinese && is_chinese(c);
    if (apart)
        ebb_text_add_char(t, ' ');
    ebb_text_add_char(t, s->clean && blank ? ' ' : c);
    if (apart)
        ebb_text_add_char(t, ' ');
}

typedef enum change { CLEAN, NO_MARKS, NO_ACCENTS, LOWER } change;

static ebb_status each(ebb_text *t, const ebb_normal_step *s, change what, const char *text,
                       size_t size)
{
    for (size_t at = 0; at < size;) {
        int32_t c;
        const size_t bytes = ebb_char_at(text + at, size - at, &c);
        if (bytes == 0)
            return ebb_error(EBB_REJECTED, "it is not UTF-8");
        at += bytes;
        if (what == CLEAN)
            put_clean(t, s, c);
        else if (what == LOWER)
            ebb_text_add_lower(t, c);
        else if (!ebb_char_is(c, what == NO_MARKS ? EBB_CHAR_NONSPACING : EBB_CHAR_MARK))
            ebb_text_add_char(t, c);
    }
    return NULL;
}

static ebb_status bert(ebb_text *t, const ebb_normal_step *s, const char *text, size_t size)
{
    ebb_text one = {.arena = t->arena}, two = one, three = one;
    EBB_TRY(each(&one, s, CLEAN, text, size));
    if (s->accents) {
        EBB_TRY(ebb_text_add_form(&two, one.data, one.size, "NFD"));
        EBB_TRY(each(&three, s, NO_MARKS, two.data, two.size));
    } else {
        three = one;
    }
    if (s->lower)
        return each(t, s, LOWER, three.data, three.size);
    ebb_text_add(t, three.data, three.size);
    return NULL;
}

static ebb_status replace(ebb_text *t, const ebb_normal_step *s, const char *text, size_t size)
{
    for (size_t at = 0; at <= size;) {
        int64_t from, to;
        EBB_TRY(ebb_regex_find(s->pattern, text, size, at, &from, &to));
        if (from < 0 || to <= from) {
            ebb_text_add(t, text + at, size - at);
            return NULL;
        }
        ebb_text_add(t, text + at, (size_t)from - at);
        ebb_text_add(t, s->text, strlen(s->text));
        at = (size_t)to;
    }
    return NULL;
}

static void strip(ebb_text *t, const ebb_normal_step *s, const char *text, size_t size)
{
    const size_t from = s->left ? ebb_blanks_end(text, 0, size) : 0;
    const size_t to = s->right ? ebb_blanks_begin(text, from, size) : size;
    ebb_text_add(t, text + from, to - from);
}

static ebb_status apply(ebb_text *t, const ebb_normal_step *s, const char *text, size_t size)
{
    if (is(s, "BertNormalizer"))
        return bert(t, s, text, size);
    if (is(s, "Lowercase"))
        return each(t, s, LOWER, text, size);
    if (is(s, "StripAccents"))
        return each(t, s, NO_ACCENTS, text, size);
    if (is(s, "Replace"))
        return replace(t, s, text, size);
    if (is(s, "Precompiled"))
        return ebb_charsmap_apply(s->map, t, text, size);
    if (s->kind[0] == 'N')
        return ebb_text_add_form(t, text, size, s->kind);
    if (is(s, "Strip")) {
        strip(t, s, text, size);
        return NULL;
    }
    if (size > 0)
        ebb_text_add(t, s->text, strlen(s->text)); // Prepend
    ebb_text_add(t, text, size);
    return NULL;
}

ebb_status ebb_normalize(const ebb_normalizer *n, const char *text, size_t size, ebb_arena *arena,
                         const char **out, size_t *out_size)
{
    *out = text;
    *out_size = size;
    for (size_t i = 0; i < n->count; i++) {
        ebb_text t = {.arena = arena};
        ebb_text_add(&t, "", 0);
        EBB_TRY(apply(&t, &n->list[i], *out, *out_size));
        EBB_GOT(!t.full);
        *out = t.data;
        *out_size = t.size;
    }
    return NULL;
}
