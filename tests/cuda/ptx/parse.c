/* parse.c: the text of a module: its functions' places, its constants, the names of its sources. */
#include "tests/cuda/ptx/ptx.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char ptx_error[1024];

bool ptx_fail(const char *format, ...)
{
    va_list list;
    if (ptx_error[0] != '\0')
        return false;
    va_start(list, format);
    (void)vsnprintf(ptx_error, sizeof ptx_error, format, list);
    va_end(list);
    return false;
}

/* ---- words ---- */

static bool is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

/* Texts end with a zero. */
bool ptx_next(reader *r, word *w)
{
    for (; isspace((unsigned char)*r->at) || strncmp(r->at, "//", 2) == 0; r->at++)
        if (*r->at == '/')
            r->at += strcspn(r->at, "\n") - 1; // at the line's last sign
        else if (*r->at == '\n')
            r->line++;
    const char *to = r->at;
    if (*to == '"') {
        to += 1 + strcspn(to + 1, "\"");
        to += *to == '"';
    } else {
        for (to += *to == '-'; is_of_name(*to);)
            to++;
    }
    to += to == r->at && *to != '\0'; // one sign
    *w = (word){r->at, (uint32_t)(to - r->at)};
    r->at = to;
    return w->length > 0;
}

bool ptx_is(word w, const char *text)
{
    return strlen(text) == w.length && memcmp(w.at, text, w.length) == 0;
}

bool ptx_number(word w, uint64_t *value)
{
    const uint32_t sign = w.length > 1 && w.at[0] == '-' ? 1 : 0;
    if (w.length == 0 || !isdigit((unsigned char)w.at[sign]))
        return false;
    const char kind = w.length > sign + 2 && w.at[sign] == '0' ? w.at[sign + 1] : ' ';
    const bool is_float = strchr("fFdD", kind) != NULL, is_hex = is_float || kind == 'x';
    char *end;
    *value = strtoull(w.at + (is_float ? sign + 2 : 0), &end, is_hex ? 16 : 10);
    return end == w.at + w.length || (*end == 'U' && end + 1 == w.at + w.length);
}

uint32_t ptx_type(word w, bool *is_signed)
{
    static const char *const bits[] = {"8", "16", "32", "64"};
    *is_signed = w.length > 1 && w.at[1] == 's';
    if (w.length < 3 || w.at[0] != '.' || strchr("busf", w.at[1]) == NULL)
        return 0;
    for (uint32_t k = 0; k < 4; k++)
        if (ptx_is((word){w.at + 2, w.length - 2}, bits[k]))
            return 1u << k;
    return 0;
}

/* first: .align, or the type. Leaves the reader behind the name and its [count]. */
bool ptx_declare(reader *r, word first, variable *v, uint32_t *align)
{
    word w = first;
    uint64_t count = 1, value = 0;
    *align = 0;
    if (ptx_is(w, ".align")) {
        if (!ptx_next(r, &w) || !ptx_number(w, &value) || value == 0 || value > 256)
            return ptx_fail("line %u: an alignment is expected", r->line);
        *align = (uint32_t)value;
        (void)ptx_next(r, &w);
    }
    bool is_signed;
    const uint32_t bytes = ptx_type(w, &is_signed);
    if (bytes == 0)
        return ptx_fail("line %u: unknown type '%.*s'", r->line, (int)w.length, w.at);
    if (*align == 0)
        *align = bytes;
    if (!ptx_next(r, &w))
        return ptx_fail("line %u: a name is expected", r->line);
    *v = (variable){.name = w.at, .length = w.length};
    reader ahead = *r;
    if (ptx_next(&ahead, &w) && ptx_is(w, "[")) {
        *r = ahead;
        (void)ptx_next(r, &w);
        if (ptx_is(w, "]"))
            count = 0; // of a size that the launch tells
        else if (!ptx_number(w, &count) || count > 1u << 24 || !ptx_next(r, &w))
            return ptx_fail("line %u: a count is expected", r->line);
    }
    v->bytes = (uint32_t)count * bytes;
    return true;
}

/* ---- a module ---- */

bool ptx_more(void *list, uint32_t count, uint32_t *room, size_t size)
{
    void **at = list;
    if (count < *room)
        return true;
    const uint32_t bigger = *room == 0 ? 64 : 2 * *room;
    void *grown = realloc(*at, bigger * size);
    if (grown == NULL)
        return ptx_fail("no memory");
    *at = grown;
    *room = bigger;
    return true;
}

static bool skip_past(reader *r, const char *sign)
{
    word w;
    while (ptx_next(r, &w))
        if (ptx_is(w, sign))
            return true;
    return ptx_fail("line %u: '%s' is missing", r->line, sign);
}

/* Behind the } that closes the { at which the reader is. */
static bool skip_braces(reader *r)
{
    int depth = 0;
    for (; *r->at != '\0'; r->at++) {
        r->line += *r->at == '\n';
        depth += (*r->at == '{') - (*r->at == '}');
        if (*r->at == '}' && depth == 0) {
            r->at++;
            return true;
        }
    }
    return ptx_fail("line %u: a brace is not closed", r->line);
}

static bool read_function(module *m, reader *r, bool is_entry)
{
    reader ahead = *r;
    word w;
    if (!ptx_more(&m->functions, m->function_count, &m->function_room, sizeof *m->functions))
        return false;
    function f = {.module = m, .is_entry = is_entry, .header = r->at, .line = r->line};
    (void)ptx_next(&ahead, &w);
    if (ptx_is(w, "(") && !skip_past(&ahead, ")"))
        return false;
    if (ptx_is(w, "("))
        (void)ptx_next(&ahead, &w);
    f.name = w.at;
    f.name_length = w.length;
    while (ptx_next(&ahead, &w))
        if (ptx_is(w, ";")) { // only declared
            *r = ahead;
            return true;
        } else if (ptx_is(w, "{")) {
            ahead.at--;
            if (!skip_braces(&ahead))
                return false;
            *r = ahead;
            m->functions[m->function_count++] = f;
            return true;
        }
    return ptx_fail("line %u: a function without a body", r->line);
}

static bool read_symbol(module *m, reader *r, bool is_shared)
{
    word w;
    variable v;
    uint32_t align;
    if (!ptx_more(&m->symbols, m->symbol_count, &m->symbol_room, sizeof *m->symbols))
        return false;
    if (!ptx_next(r, &w) || !ptx_declare(r, w, &v, &align))
        return false;
    const uint32_t element = v.bytes; // of initial values: bytes
    symbol s = {.name = v.name, .length = v.length, .is_shared = is_shared, .bytes = v.bytes};
    if (is_shared) { // what the launch asks for lies behind what is declared
        m->shared_bytes = (m->shared_bytes + align - 1) / align * align;
        s.offset = m->shared_bytes;
        m->shared_bytes += v.bytes;
    } else if ((s.data = calloc(1, (size_t)element + 16)) == NULL) {
        return ptx_fail("no memory");
    }
    (void)ptx_next(r, &w);
    if (!is_shared && ptx_is(w, "=")) {
        uint64_t value, at = 0;
        (void)ptx_next(r, &w);
        if (!ptx_is(w, "{"))
            return ptx_fail("line %u: an initial value that is no list of bytes", r->line);
        while (ptx_next(r, &w) && !ptx_is(w, "}")) {
            if (ptx_is(w, ","))
                continue;
            if (!ptx_number(w, &value) || value > 255 || at >= s.bytes)
                return ptx_fail("line %u: an initial value that is no list of bytes", r->line);
            s.data[at++] = (uint8_t)value;
        }
        (void)ptx_next(r, &w);
    }
    if (!ptx_is(w, ";"))
        return ptx_fail("line %u: '%.*s' in a declaration", r->line, (int)w.length, w.at);
    if (s.data != NULL)
        ptx_allocated(s.data, s.bytes, true);
    m->symbols[m->symbol_count++] = s;
    return true;
}

static bool read_file_name(module *m, reader *r)
{
    word number, name;
    uint64_t n;
    if (!ptx_next(r, &number) || !ptx_number(number, &n) || !ptx_next(r, &name) ||
        n >= sizeof m->files / sizeof *m->files || name.length < 2)
        return ptx_fail("line %u: .file", r->line);
    free(m->files[n]);
    m->files[n] = strndup(name.at + 1, name.length - 2);
    return true;
}

static bool read_item(module *m, reader *r, word w)
{
    if (ptx_is(w, ".entry") || ptx_is(w, ".func"))
        return read_function(m, r, ptx_is(w, ".entry"));
    if (ptx_is(w, ".visible") || ptx_is(w, ".extern") || ptx_is(w, ".weak"))
        return true; // the next word says what
    if (ptx_is(w, ".global") || ptx_is(w, ".shared"))
        return read_symbol(m, r, ptx_is(w, ".shared"));
    if (ptx_is(w, ".file"))
        return read_file_name(m, r);
    if (ptx_is(w, ".section")) // of the debugger's names
        return ptx_next(r, &w) && skip_braces(r);
    if (ptx_is(w, ".version") || ptx_is(w, ".address_size") || ptx_is(w, ".target"))
        return ptx_next(r, &w);
    return ptx_fail("line %u: unknown '%.*s'", r->line, (int)w.length, w.at);
}

module *ptx_parse(char *text)
{
    reader r = {text, 1};
    word w;
    module *m = calloc(1, sizeof *m);
    if (m == NULL) {
        free(text);
        return NULL;
    }
    m->text = text;
    while (ptx_next(&r, &w))
        if (!read_item(m, &r, w)) {
            ptx_free(m);
            return NULL;
        }
    return m;
}

void ptx_free(module *m)
{
    for (uint32_t k = 0; k < m->function_count; k++) {
        free(m->functions[k].code);
        free(m->functions[k].constants);
    }
    for (uint32_t k = 0; k < m->symbol_count; k++) {
        ptx_released(m->symbols[k].data);
        free(m->symbols[k].data);
    }
    for (size_t k = 0; k < sizeof m->files / sizeof *m->files; k++)
        free(m->files[k]);
    free(m->functions);
    free(m->symbols);
    free(m->text);
    free(m);
}

function *ptx_find(module *m, const char *name, size_t length)
{
    for (uint32_t k = 0; k < m->function_count; k++)
        if (m->functions[k].name_length == length &&
            memcmp(m->functions[k].name, name, length) == 0)
            return &m->functions[k];
    return NULL;
}

const symbol *ptx_symbol(const module *m, const char *name, size_t length)
{
    for (uint32_t k = 0; k < m->symbol_count; k++)
        if (m->symbols[k].length == length && memcmp(m->symbols[k].name, name, length) == 0)
            return &m->symbols[k];
    return NULL;
}

const char *ptx_source(const module *m, uint32_t place, char *text, size_t size)
{
    const char *file = m->files[place >> 20 & 255];
    const char *from = file != NULL ? strstr(file, "/kernels/") : NULL;
    (void)snprintf(text, size, "%s:%u",
                   from != NULL   ? from + 1
                   : file != NULL ? file
                                  : "PTX",
                   place & 0xFFFFF);
    return text;
}
