/* text_tokens.c: ONNX text into tokens, and what a parser says of one that it did not expect. */
#include "onnx/text/text.h"

#include "onnx/words/print.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- errors ---- */

ebb_status ebb_text_error(const ebb_text_reader *r, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    ebb_vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return ebb_error(EBB_REJECTED, "line %zu:%zu: %s", r->line, r->column, text);
}

ebb_status ebb_text_expected(const ebb_text_reader *r, const char *what)
{
    if (r->token == EBB_TOKEN_END)
        return ebb_text_error(r, "expected %s, found the end", what);
    return ebb_text_error(r, "expected %s, found '%.40s'", what, r->word);
}

/* ---- tokens ---- */

static void skip_blank(ebb_text_reader *r)
{
    for (; *r->at != '\0'; r->at++) {
        if (*r->at == '#') { // a comment, up to the end of the line
            while (r->at[1] != '\0' && r->at[1] != '\n')
                r->at++;
        } else if (*r->at == '\n') {
            r->next_line++;
            r->line_start = r->at + 1;
        } else if (!isspace((unsigned char)*r->at)) {
            return;
        }
    }
}

static bool starts_name(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

static bool goes_on_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static ebb_status take_word(ebb_text_reader *r, const char *end)
{
    size_t count = (size_t)(end - r->at);
    char *word = ebb_arena_alloc(r->arena, count + 1);
    EBB_GOT(word);
    memcpy(word, r->at, count);
    word[count] = '\0';
    r->word = word;
    r->word_bytes = count;
    r->at = end;
    return NULL;
}

/* "..." at r->at. A backslash takes the next character as it is, but \0, which is a zero byte. */
static ebb_status take_quoted(ebb_text_reader *r)
{
    const char *c = r->at + 1;
    size_t room = 1;
    for (; *c != '\0' && *c != '"'; c++, room++)
        if (*c == '\\' && c[1] != '\0')
            c++;
    if (*c == '\0')
        return ebb_text_error(r, "a string starts here and does not end");
    char *word = ebb_arena_alloc(r->arena, room);
    EBB_GOT(word);
    size_t count = 0;
    for (c = r->at + 1; *c != '"'; c++) {
        if (*c == '\n') {
            r->next_line++;
            r->line_start = c + 1;
        }
        if (*c == '\\') {
            c++;
            word[count++] = *c == '0' ? '\0' : *c;
        } else {
            word[count++] = *c;
        }
    }
    word[count] = '\0';
    r->word = word;
    r->word_bytes = count;
    r->at = c + 1;
    return NULL;
}

/* A number: its end, and whether it is a float. NULL where there is none. */
static const char *end_of_number(const char *c, bool *is_float)
{
    *is_float = false;
    if (*c == '-' || *c == '+')
        c++;
    if (strncmp(c, "inf", 3) == 0 || strncmp(c, "nan", 3) == 0) {
        *is_float = true;
        return goes_on_name(c[3]) ? NULL : c + 3;
    }
    if (!isdigit((unsigned char)*c) && !(*c == '.' && isdigit((unsigned char)c[1])))
        return NULL;
    while (isdigit((unsigned char)*c))
        c++;
    if (*c == '.') {
        *is_float = true;
        for (c++; isdigit((unsigned char)*c);)
            c++;
    }
    if (*c == 'e' || *c == 'E') {
        const char *e = c + 1;
        if (*e == '-' || *e == '+')
            e++;
        if (isdigit((unsigned char)*e)) {
            *is_float = true;
            for (c = e; isdigit((unsigned char)*c);)
                c++;
        }
    }
    return c;
}

ebb_status ebb_text_next(ebb_text_reader *r)
{
    skip_blank(r);
    r->line = r->next_line;
    r->column = (size_t)(r->at - r->line_start) + 1;
    r->word = "";
    r->word_bytes = 0;
    char c = *r->at;
    if (c == '\0') {
        r->token = EBB_TOKEN_END;
        return NULL;
    }
    if (c == '"') {
        r->token = EBB_TOKEN_QUOTED;
        return take_quoted(r);
    }
    if (starts_name(c)) {
        const char *end = r->at + 1;
        while (goes_on_name(*end))
            end++;
        r->token = EBB_TOKEN_NAME;
        return take_word(r, end);
    }
    bool is_float;
    const char *end = end_of_number(r->at, &is_float);
    if (end != NULL) {
        r->token = is_float ? EBB_TOKEN_FLOAT : EBB_TOKEN_INT;
        return take_word(r, end);
    }
    if (c == '=' && r->at[1] == '>') {
        r->token = EBB_TOKEN_ARROW;
        return take_word(r, r->at + 2);
    }
    r->token = EBB_TOKEN_SIGN;
    return take_word(r, r->at + 1);
}

ebb_status ebb_text_start(ebb_text_reader *r, const char *text, ebb_arena *arena)
{
    *r = (ebb_text_reader){.start = text, .at = text, .line_start = text, .next_line = 1};
    r->arena = arena;
    r->bytes = strlen(text);
    return ebb_text_next(r);
}

bool ebb_text_is(const ebb_text_reader *r, char sign)
{
    return r->token == EBB_TOKEN_SIGN && r->word[0] == sign;
}

ebb_status ebb_text_expect(ebb_text_reader *r, char sign, const char *where)
{
    if (ebb_text_is(r, sign))
        return ebb_text_next(r);
    char what[96];
    snprintf(what, sizeof what, "'%c' %s", sign, where);
    return ebb_text_expected(r, what);
}

ebb_status ebb_text_name(ebb_text_reader *r, const char **name, const char *what)
{
    if (r->token != EBB_TOKEN_NAME && r->token != EBB_TOKEN_QUOTED)
        return ebb_text_expected(r, what);
    if (strlen(r->word) != r->word_bytes)
        return ebb_text_error(r, "a name holds a zero byte");
    *name = r->word;
    return ebb_text_next(r);
}

ebb_status ebb_text_next_in_list(ebb_text_reader *r, char close, const char *where, bool *more)
{
    *more = ebb_text_is(r, ',');
    if (*more)
        return ebb_text_next(r);
    return ebb_text_expect(r, close, where);
}
