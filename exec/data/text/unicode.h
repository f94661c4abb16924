/* unicode.h: what tokenizers ask of Unicode: patterns (PCRE2), kinds and forms of characters (utf8proc). A build
 * without the two libraries says so when a tokenizer is opened.
 */
#pragma once

#include "onnx/words/arena.h"

/* ---- text that grows, in an arena ---- */

typedef struct ebb_text {
    ebb_arena *arena;
    char *data;
    size_t size, capacity;
    bool full; /* out of memory: sticky */
} ebb_text;

void ebb_text_add(ebb_text *t, const char *bytes, size_t size);
void ebb_text_add_char(ebb_text *t, int32_t c);

/* ---- characters ---- */

/* The character at text[0]; how many bytes it has; 0: this is no UTF-8. */
size_t ebb_char_at(const char *text, size_t size, int32_t *c);

typedef enum ebb_char_kind {
    EBB_CHAR_SPACE,   /* White_Space */
    EBB_CHAR_CONTROL, /* Cc, Cf, Cn, Co, Cs */
    EBB_CHAR_MARK,    /* Mn, Mc, Me */
    EBB_CHAR_NONSPACING,
} ebb_char_kind;

bool ebb_char_is(int32_t c, ebb_char_kind kind);
/* Of text[from] to text[to - 1]: where the blanks that it begins with end, and where those that it ends with begin. */
size_t ebb_blanks_end(const char *text, size_t from, size_t to);
size_t ebb_blanks_begin(const char *text, size_t from, size_t to);
void ebb_text_add_lower(ebb_text *t, int32_t c);

/* Where the grapheme cluster (UAX 29, extended) that begins at text[0] ends; 0: this is no UTF-8. */
size_t ebb_grapheme_at(const char *text, size_t size);

/* The text in a normal form: "NFC", "NFD", "NFKC", "NFKD". */
ebb_status ebb_text_add_form(ebb_text *t, const char *text, size_t size, const char *form);

/* ---- patterns ---- */

typedef struct ebb_regex ebb_regex;

/* `literal`: these very characters. EBB_REJECTED for what PCRE2 does not take; EBB_UNSUPPORTED where it is
 * not there. */
ebb_status ebb_regex_make(ebb_regex **r, const char *pattern, bool literal);
void ebb_regex_free(ebb_regex *r);

/* The first match from `at` on: *from, *to; both -1: there is none. A text is searched from 0 first, which checks
 * that it is UTF-8; a search from further on relies on that. */
ebb_status ebb_regex_find(const ebb_regex *r, const char *text, size_t size, size_t at,
                          int64_t *from, int64_t *to);
