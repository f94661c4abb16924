/* unicode.c: patterns by PCRE2, characters by utf8proc. */
#include "exec/data/text/unicode.h"

#ifdef EBB_HAS_TEXT
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>
#endif

/* ---- text ---- */

void ebb_text_add(ebb_text *t, const char *bytes, size_t size)
{
    size_t most = 0;
    if (!ebb_size_add(&most, t->size, size) ||
        (most >= t->capacity &&
         !ebb_arena_grow(t->arena, &t->data, most, &t->capacity, sizeof *t->data)))
        t->full = true;
    if (t->full)
        return;
    if (size > 0)
        memcpy(t->data + t->size, bytes, size);
    t->size = most;
    t->data[most] = '\0';
}

void ebb_text_add_char(ebb_text *t, int32_t c)
{
    const uint32_t u = (uint32_t)c;
    char bytes[4];
    size_t size = 1;
    if (u < 0x80) {
        bytes[0] = (char)u;
    } else {
        size = u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
        bytes[0] = (char)((0xF00u >> size & 0xFF) | u >> 6 * (size - 1));
        for (size_t i = 1; i < size; i++)
            bytes[i] = (char)(0x80 | (u >> 6 * (size - 1 - i) & 0x3F));
    }
    ebb_text_add(t, bytes, size);
}

size_t ebb_char_at(const char *text, size_t size, int32_t *c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t first = (uint8_t)text[0];
    const size_t length = first < 0x80             ? 1
                          : (first & 0xE0) == 0xC0 ? 2
                          : (first & 0xF0) == 0xE0 ? 3
                          : (first & 0xF8) == 0xF0 ? 4
                                                   : 0;
    if (size == 0 || length == 0 || length > size)
        return 0;
    uint32_t u = length == 1 ? first : first & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (((uint8_t)text[i] & 0xC0) != 0x80)
            return 0;
        u = u << 6 | ((uint8_t)text[i] & 0x3F);
    }
    *c = (int32_t)u;
    return u < least[length] || u > 0x10FFFF || (u >= 0xD800 && u < 0xE000) ? 0 : length;
}

/* Bytes of the blank at text[0]; 0: there is none. */
static size_t blank_at(const char *text, size_t size)
{
    int32_t c;
    const size_t bytes = ebb_char_at(text, size, &c);
    return bytes > 0 && ebb_char_is(c, EBB_CHAR_SPACE) ? bytes : 0;
}

size_t ebb_blanks_end(const char *text, size_t from, size_t to)
{
    for (size_t bytes; from < to && (bytes = blank_at(text + from, to - from)) > 0;)
        from += bytes;
    return from;
}

size_t ebb_blanks_begin(const char *text, size_t from, size_t to)
{
    while (to > from) {
        size_t last = to - 1;
        while (last > from && ((uint8_t)text[last] & 0xC0) == 0x80)
            last--;
        if (blank_at(text + last, to - last) == 0)
            break;
        to = last;
    }
    return to;
}

#ifdef EBB_HAS_TEXT

/* ---- characters ---- */

bool ebb_char_is(int32_t c, ebb_char_kind kind)
{
    const utf8proc_category_t of = utf8proc_category(c);
    switch (kind) {
    case EBB_CHAR_SPACE:
        return (c >= 9 && c <= 13) || c == 0x85 || of == UTF8PROC_CATEGORY_ZS ||
               of == UTF8PROC_CATEGORY_ZL || of == UTF8PROC_CATEGORY_ZP;
    case EBB_CHAR_CONTROL:
        return of == UTF8PROC_CATEGORY_CC || of == UTF8PROC_CATEGORY_CF ||
               of == UTF8PROC_CATEGORY_CN || of == UTF8PROC_CATEGORY_CO ||
               of == UTF8PROC_CATEGORY_CS;
    case EBB_CHAR_MARK:
        return of == UTF8PROC_CATEGORY_MN || of == UTF8PROC_CATEGORY_MC ||
               of == UTF8PROC_CATEGORY_ME;
    default:
        return of == UTF8PROC_CATEGORY_MN;
    }
}

/* One character becomes one, but for the I with a dot, which keeps its dot. */
void ebb_text_add_lower(ebb_text *t, int32_t c)
{
    enum { DOTTED = 0x130, DOT = 0x307 };
    ebb_text_add_char(t, c == DOTTED ? 'i' : utf8proc_tolower(c));
    if (c == DOTTED)
        ebb_text_add_char(t, DOT);
}

size_t ebb_grapheme_at(const char *text, size_t size)
{
    int32_t last, next, state = 0;
    size_t end = ebb_char_at(text, size, &last);
    for (size_t bytes; end > 0 && end < size; end += bytes, last = next) {
        bytes = ebb_char_at(text + end, size - end, &next);
        if (bytes == 0)
            return 0;
        if (utf8proc_grapheme_break_stateful(last, next, &state))
            break;
    }
    return end;
}

ebb_status ebb_text_add_form(ebb_text *t, const char *text, size_t size, const char *form)
{
    int flags = UTF8PROC_STABLE;
    flags |= form[strlen(form) - 1] == 'C' ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    flags |= form[2] == 'K' ? UTF8PROC_COMPAT : 0;
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t length = utf8proc_map(
        (const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &made, (utf8proc_option_t)flags);
    if (length < 0)
        return length == UTF8PROC_ERROR_NOMEM
                   ? ebb_error_memory()
                   : ebb_error(EBB_REJECTED, "%s: %s", form, utf8proc_errmsg(length));
    ebb_text_add(t, (const char *)made, (size_t)length);
    free(made);
    return NULL;
}

/* ---- patterns ---- */

struct ebb_regex {
    pcre2_code *code;
    pcre2_match_data *match;
};

ebb_status ebb_regex_make(ebb_regex **r, const char *pattern, bool literal)
{
    int error;
    PCRE2_SIZE at;
    PCRE2_UCHAR says[128] = {0};
    const uint32_t flags = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP);
    ebb_regex *made = ebb_alloc(sizeof *made);
    *r = NULL;
    EBB_GOT(made);
    made->code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, flags, &error, &at, NULL);
    if (made->code == NULL) {
        ebb_free(made);
        (void)pcre2_get_error_message(error, says, sizeof says);
        return ebb_error(EBB_REJECTED, "the pattern \"%s\" is not taken: %s", pattern,
                         (const char *)says);
    }
    made->match = pcre2_match_data_create_from_pattern(made->code, NULL);
    if (made->match == NULL) {
        ebb_regex_free(made);
        return ebb_error_memory();
    }
    (void)pcre2_jit_compile(made->code,
                            PCRE2_JIT_COMPLETE); // without it a pattern is slower, no more
    *r = made;
    return NULL;
}

void ebb_regex_free(ebb_regex *r)
{
    if (r == NULL)
        return;
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
    ebb_free(r);
}

ebb_status ebb_regex_find(const ebb_regex *r, const char *text, size_t size, size_t at,
                          int64_t *from, int64_t *to)
{
    const uint32_t flags = at > 0 ? PCRE2_NO_UTF_CHECK : 0; // of all of the text, each time
    const int code = pcre2_match(r->code, (PCRE2_SPTR)text, size, at, flags, r->match, NULL);
    PCRE2_UCHAR says[128] = {0};
    *from = *to = -1;
    if (code == PCRE2_ERROR_NOMATCH)
        return NULL;
    if (code < 0) {
        (void)pcre2_get_error_message(code, says, sizeof says);
        return ebb_error(EBB_REJECTED, "a pattern of the tokenizer: %s", (const char *)says);
    }
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(r->match);
    *from = (int64_t)place[0];
    *to = (int64_t)place[1];
    return NULL;
}

#else

static ebb_status not_there(void)
{
    return ebb_hint(
        ebb_error(EBB_UNSUPPORTED, "this build reads no text"),
        "build it where libpcre2-8 and libutf8proc are (libpcre2-dev, libutf8proc-dev)");
}

bool ebb_char_is(int32_t c, ebb_char_kind kind)
{
    (void)c, (void)kind;
    return false;
}

void ebb_text_add_lower(ebb_text *t, int32_t c)
{
    ebb_text_add_char(t, c);
}

size_t ebb_grapheme_at(const char *text, size_t size)
{
    (void)text, (void)size;
    return 0;
}

ebb_status ebb_text_add_form(ebb_text *t, const char *text, size_t size, const char *form)
{
    (void)t, (void)text, (void)size, (void)form;
    return not_there();
}

ebb_status ebb_regex_make(ebb_regex **r, const char *pattern, bool literal)
{
    (void)pattern, (void)literal;
    *r = NULL;
    return not_there();
}

void ebb_regex_free(ebb_regex *r)
{
    (void)r;
}

ebb_status ebb_regex_find(const ebb_regex *r, const char *text, size_t size, size_t at,
                          int64_t *from, int64_t *to)
{
    (void)r, (void)text, (void)size, (void)at;
    *from = *to = -1;
    return not_there();
}

#endif
