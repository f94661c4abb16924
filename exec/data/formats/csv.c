/* csv.c: tables of numbers as text, one row a line.
 *
 *     age,income,bought        each column is an array of its name:     age: int64[N], income: float32[N]
 *     31,2100.5,1       ──>    --columns x=age,income: side by side     x: float32[N, 2]
 *     44,,0                    without a line of names: one array, called after the file
 *
 * A column of whole numbers is int64, another float32; what is missing (nothing, NA) is a NaN. Commas,
 * semicolons or tabs part the columns, whichever the first line has most of. The text is read twice, a
 * piece at a time: to see what is there, and to take it.
 */
#include "exec/data/feed/feed.h"
#include "exec/data/formats/formats.h"
#include "onnx/words/print.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- lines ---- */

enum { PIECE = 1 << 16, LONGEST = 1 << 26, DIGITS = 64 };

typedef struct lines {
    int fd;
    char *buffer;
    size_t capacity, from, to; /* from .. to is read and not taken */
    bool ended;
    int64_t number; /* of the line that was taken last */
} lines;

/* At least one byte more, or the end. */
static ebb_status read_on(lines *l)
{
    if (l->from > 0)
        memmove(l->buffer, l->buffer + l->from, l->to - l->from);
    l->to -= l->from;
    l->from = 0;
    if (l->to == l->capacity) {
        const size_t more = l->capacity > 0 ? 2 * l->capacity : PIECE;
        char *buffer = more <= LONGEST ? ebb_realloc(l->buffer, more) : NULL;
        if (more > LONGEST)
            return ebb_error(EBB_REJECTED, "line %lld is longer than 64 MiB",
                             (long long)l->number + 1);
        EBB_GOT(buffer);
        l->buffer = buffer;
        l->capacity = more;
    }
    ssize_t n = -1;
    while (n < 0) {
        n = read(l->fd, l->buffer + l->to, l->capacity - l->to);
        if (n < 0 && errno != EINTR)
            return ebb_error(EBB_IO, "reading: %s", strerror(errno));
    }
    l->ended = n == 0;
    l->to += (size_t)n;
    return NULL;
}

/* The next line that is not empty, without its end; *text NULL: there is none. */
static ebb_status next_line(lines *l, const char **text, size_t *length)
{
    static const char mark[] = "\xef\xbb\xbf"; // of UTF-8, as spreadsheets write it
    size_t seen = 0;
    for (*text = NULL; *text == NULL;) {
        const size_t there = l->to - l->from;
        const char *at = l->buffer + l->from;
        const char *end = there > seen ? memchr(at + seen, '\n', there - seen) : NULL;
        if (end == NULL && !l->ended) {
            seen = there;
            EBB_TRY(read_on(l));
            continue;
        }
        if (end == NULL && there == 0)
            return NULL;
        size_t bytes = end != NULL ? (size_t)(end - at) : there;
        l->from += bytes + (end != NULL);
        seen = 0;
        if (l->number == 0 && bytes >= 2 &&
            (memcmp(at, "\xff\xfe", 2) == 0 || memcmp(at, "\xfe\xff", 2) == 0))
            return ebb_error(EBB_REJECTED, "it is text in UTF-16: save it as UTF-8");
        if (l->number++ == 0 && bytes >= 3 && memcmp(at, mark, 3) == 0) {
            at += 3;
            bytes -= 3;
        }
        while (bytes > 0 && strchr("\r \t", at[bytes - 1]) != NULL)
            bytes--;
        if (bytes > 0) {
            *text = at;
            *length = bytes;
        }
    }
    return NULL;
}

/* ---- cells ---- */

typedef struct cell {
    const char *text;
    size_t length;
} cell;

/* Spaces around it and quotes go. */
static cell trimmed(const char *text, size_t length)
{
    while (length > 0 && text[0] == ' ') {
        text++;
        length--;
    }
    while (length > 0 && text[length - 1] == ' ')
        length--;
    const bool quoted = length >= 2 && text[0] == '"' && text[length - 1] == '"';
    return quoted ? (cell){text + 1, length - 2} : (cell){text, length};
}

/* *at goes behind it; false: there is none any more. A line that ends in a comma ends in an empty one. */
static bool next_cell(cell *c, const char **at, const char *end, char comma)
{
    bool quoted = false;
    const char *from = *at, *to = from;
    if (from > end)
        return false;
    while (to < end && (quoted || *to != comma))
        quoted ^= *to++ == '"';
    *c = trimmed(from, (size_t)(to - from));
    *at = to + 1;
    return true;
}

static bool is_word(const cell *c, const char *word)
{
    return strlen(word) == c->length && memcmp(c->text, word, c->length) == 0;
}

typedef struct number {
    bool whole;
    int64_t i;
    float f;
} number;

static bool read_number(number *n, const cell *c)
{
    static const char truths[][6] = {"False", "True", "false", "true", "FALSE", "TRUE"};
    char text[DIGITS], *end;
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
        if (is_word(c, truths[i]))
            return *n = (number){true, (int64_t)i % 2, (float)(i % 2)}, true;
    *n = (number){.f = NAN};
    if (c->length == 0 || is_word(c, "NA"))
        return true;
    if (c->length >= sizeof text || memchr(c->text, '\0', c->length) != NULL)
        return false;
    memcpy(text, c->text, c->length);
    text[c->length] = '\0';
    errno = 0;
    n->i = strtoll(text, &end, 10);
    n->whole = errno == 0 && end == text + c->length;
    n->f = ebb_strtof(text, &end);
    return end == text + c->length && strpbrk(text, "xX") == NULL; // no hexadecimal
}

/* ---- columns ---- */

typedef struct column {
    const char *name;
    bool whole;
    size_t array, place; /* of which, and where in its rows */
} column;

typedef struct array {
    const char *name;
    size_t width;
    bool whole, flat; /* of int64; [N], not [N, width] */
    void *bytes;
} array;

typedef struct table {
    ebb_data *data;
    lines l;
    char comma;
    bool named; /* the first line has the names */
    column *columns;
    array *arrays;
    size_t column_count, column_capacity, array_count;
    int64_t rows;
} table;

static char comma_of(const char *text, size_t length)
{
    static const char marks[] = ",;\t";
    size_t count[3] = {0};
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        quoted ^= text[i] == '"';
        for (int k = 0; k < 3 && !quoted; k++)
            count[k] += text[i] == marks[k];
    }
    const int best = count[1] > count[0] ? 1 : 0;
    return marks[count[2] > count[best] ? 2 : best];
}

static ebb_status read_names(table *t, const char *text, size_t length)
{
    const char *at = text, *const end = text + length;
    t->comma = comma_of(text, length);
    for (cell c; next_cell(&c, &at, end, t->comma);) {
        number n;
        EBB_GOT(ebb_arena_grow(&t->data->arena, &t->columns, t->column_count, &t->column_capacity,
                               sizeof *t->columns));
        const char *name = ebb_arena_printf(&t->data->arena, "%.*s", (int)c.length, c.text);
        EBB_GOT(name);
        t->columns[t->column_count++] = (column){.name = name, .whole = true};
        t->named = t->named || !read_number(&n, &c);
    }
    return NULL;
}

static const char *advice(const cell *c)
{
    if (c->text[0] == '"')
        return "the quote has no end in this line";
    return c->length < DIGITS && memchr(c->text, ',', c->length) != NULL &&
                   strspn(c->text, "+-0123456789.,") >= c->length
               ? "numbers have a point before their decimals, and no commas"
               : "classes and words have to be numbers here, counted from 0";
}

/* A cell of a row to where it belongs; first: only what kind of number it is. */
static ebb_status take_cell(table *t, size_t k, const cell *c, bool first)
{
    number n;
    column *col = &t->columns[k];
    if (!read_number(&n, c))
        return ebb_hint(ebb_error(EBB_REJECTED, "line %lld, column '%.100s': '%.*s' is no number",
                                  (long long)t->l.number, t->named ? col->name : "",
                                  c->length < 60 ? (int)c->length : 60, c->text),
                        "%s", advice(c));
    if (first) {
        col->whole = col->whole && n.whole;
        return NULL;
    }
    const array *a = &t->arrays[col->array];
    const size_t at = (size_t)t->rows * a->width + col->place;
    if (a->whole)
        ((int64_t *)a->bytes)[at] = n.i;
    else
        ((float *)a->bytes)[at] = n.f;
    return NULL;
}

static ebb_status take_row(table *t, const char *text, size_t length, bool first)
{
    const char *at = text, *const end = text + length;
    size_t k = 0;
    for (cell c; next_cell(&c, &at, end, t->comma); k++)
        if (k < t->column_count)
            EBB_TRY(take_cell(t, k, &c, first));
    if (k != t->column_count)
        return ebb_error(EBB_REJECTED, "line %lld has %zu columns, and the first one %zu",
                         (long long)t->l.number, k, t->column_count);
    return NULL;
}

/* All rows, from the beginning. `most`: there is room for no more. */
static ebb_status read_rows(table *t, bool first, int64_t most)
{
    const char *text;
    size_t length;
    if (lseek(t->l.fd, 0, SEEK_SET) != 0)
        return ebb_error(EBB_IO, "it is no file that can be read twice");
    t->l.from = t->l.to = 0;
    t->l.number = 0;
    t->l.ended = false;
    EBB_TRY(next_line(&t->l, &text, &length));
    if (first && text != NULL)
        EBB_TRY(read_names(t, text, length));
    if (t->named)
        EBB_TRY(next_line(&t->l, &text, &length));
    for (t->rows = 0; text != NULL && t->rows < most; t->rows++) {
        EBB_TRY(take_row(t, text, length, first));
        EBB_TRY(next_line(&t->l, &text, &length));
    }
    if (text == NULL && (first || t->rows == most))
        return NULL;
    return ebb_error(EBB_IO, "it was changed while it was read");
}

/* ---- arrays ---- */

static bool is_float_already(const table *t, const char *name)
{
    const ebb_named *there = ebb_data_find(t->data, name); // of a file before this one
    return there != NULL && there->dtype == EBB_F32;
}

static void join(table *t, column *c, const char *name, bool flat)
{
    size_t k = 0;
    while (k < t->array_count &&
           (flat || t->arrays[k].flat || strcmp(t->arrays[k].name, name) != 0))
        k++;
    if (k == t->array_count)
        t->arrays[t->array_count++] =
            (array){.name = name, .flat = flat, .whole = !is_float_already(t, name)};
    c->array = k;
    c->place = t->arrays[k].width++;
    t->arrays[k].whole = t->arrays[k].whole && c->whole;
}

/* The columns that "x=sepal*,petal*" puts side by side are named x, if they have no name yet. A file that has one
 * of them has all. */
static ebb_status name_group(const table *t, const char *word, const char **names)
{
    const char *equals = strchr(word, '='), *missing = NULL;
    char *name = ebb_arena_printf(&t->data->arena, "%.*s", (int)(equals - word), word);
    char *list = ebb_arena_strdup(&t->data->arena, equals + 1), *rest = NULL;
    bool any = false;
    EBB_GOT(name && list);
    for (char *p = strtok_r(list, ",", &rest); p != NULL; p = strtok_r(NULL, ",", &rest)) {
        bool found = false;
        for (size_t k = 0; k < t->column_count; k++)
            if (fnmatch(p, t->columns[k].name, 0) == 0) {
                found = true;
                names[k] = names[k] != NULL ? names[k] : name;
            }
        any |= found;
        missing = found ? missing : p;
    }
    return !any || missing == NULL
               ? NULL
               : ebb_hint(ebb_error(EBB_USAGE, "no column is called '%.100s', of '%.150s'", missing,
                                    word),
                          "columns are called as the first line says");
}

static ebb_status part_columns(table *t, const char *whole_name)
{
    const char *const *words = t->data->fit != NULL ? t->data->fit->columns : NULL;
    const char **names = EBB_NEW(&t->data->arena, const char *, t->column_count + 1);
    t->arrays = EBB_NEW(&t->data->arena, array, t->column_count + 1);
    EBB_GOT(names && t->arrays);
    for (size_t i = 0; t->named && words != NULL && words[i] != NULL; i++)
        EBB_TRY(name_group(t, words[i], names));
    for (size_t k = 0; k < t->column_count; k++) {
        const char *name = t->named ? names[k] : whole_name;
        join(t, &t->columns[k], name != NULL ? name : t->columns[k].name, name == NULL);
    }
    return NULL;
}

static ebb_status make_arrays(table *t)
{
    for (size_t k = 0; k < t->array_count; k++) {
        array *a = &t->arrays[k];
        size_t count, bytes;
        EBB_GOT(ebb_size_mul(&count, (size_t)t->rows, a->width) &&
                ebb_size_mul(&bytes, count, a->whole ? sizeof(int64_t) : sizeof(float)));
        a->bytes = ebb_arena_alloc(&t->data->arena, bytes + 1);
        EBB_GOT(a->bytes);
    }
    return NULL;
}

static ebb_status add_arrays(table *t)
{
    for (size_t k = 0; k < t->array_count; k++) {
        const array *a = &t->arrays[k];
        const int64_t dims[2] = {t->rows, (int64_t)a->width};
        EBB_TRY(ebb_data_add(
            t->data, a->name, strlen(a->name), a->whole ? EBB_I64 : EBB_F32, a->flat ? 1 : 2, dims,
            a->bytes, (size_t)t->rows * a->width * (a->whole ? sizeof(int64_t) : sizeof(float))));
    }
    return NULL;
}

static ebb_status read_table(table *t, const char *whole_name)
{
    EBB_TRY(read_rows(t, true, INT64_MAX));
    if (t->rows == 0)
        return ebb_error(EBB_REJECTED, "it has no row of numbers");
    EBB_TRY(part_columns(t, whole_name));
    EBB_TRY(make_arrays(t));
    EBB_TRY(read_rows(t, false, t->rows));
    return add_arrays(t);
}

ebb_status ebb_csv_read(ebb_data *data, const char *path)
{
    table t = {.data = data, .l = {.fd = -1}};
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    const char *name =
        ebb_arena_printf(&data->arena, "%.*s", (int)(strlen(base) - strlen(".csv")), base);
    EBB_GOT(name);
    t.l.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (t.l.fd < 0)
        return ebb_error_io(path, "opening");
    ebb_status status = ebb_at(read_table(&t, name), path);
    (void)close(t.l.fd);
    ebb_free(t.l.buffer);
    return status;
}
