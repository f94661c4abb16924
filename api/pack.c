/* pack.c: intervals from a CSV file, packed, back into a CSV file with their offsets.
 *
 *     id,lower,upper,size            id,lower,upper,size,offset
 *     a,0,4,100             ->       a,0,4,100,0
 *     "b,c",2,6,50                   "b,c",2,6,50,100
 *
 * Columns are found by their names; what else a row holds is written back as it was. Fields may be
 * quoted, lines may end in CR LF. A row is checked before anything is packed, and a mistake is said
 * with its line.
 */
#include "api/api.h"

#include "exec/weigh/pack.h"
#include "onnx/file/sink.h"
#include "onnx/words/clock.h"
#include "onnx/words/options.h"
#include "onnx/words/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 64 };

typedef enum column { ID, LOWER, UPPER, SIZE, OFFSET, KINDS } column;

static const char *const column_names[KINDS] = {"id", "lower", "upper", "size", "offset"};

typedef struct field {
    const char *begin, *end;      /* as in the file, with quotes and blanks */
    const char *text, *texts_end; /* without them; doubled quotes stay doubled */
} field;

typedef struct row {
    const char *begin, *end;         /* of its text, without the line's end */
    const char *offset, *offset_end; /* of the offset's field; NULL: no such column */
    field id;
    uint64_t lower, upper;
    size_t line;
} row;

typedef struct table {
    const char *path;
    char *bytes;
    const char *at, *end; /* what is still to be read */
    size_t line;
    const char *line_end; /* "\n" or "\r\n", as the header has it */
    row header;
    size_t column_count;
    int column_of[KINDS]; /* -1: not there */
    row *rows;
    ebb_interval *intervals;
    bool *fixed;
    size_t *lines;
    size_t count;
    ebb_arena arena;
} table;

/* ---- reading ---- */

static ebb_status read_file(table *t)
{
    FILE *file = fopen(t->path, "rb");
    if (file == NULL)
        return ebb_error_io(t->path, "cannot be opened");
    size_t size = 0, capacity = 1u << 16;
    ebb_status status = NULL;
    t->bytes = ebb_alloc(capacity);
    while (status == NULL && t->bytes != NULL) {
        size_t got = fread(t->bytes + size, 1, capacity - size, file);
        size += got;
        if (got == 0)
            break;
        if (size < capacity)
            continue;
        char *more = capacity > SIZE_MAX / 2 ? NULL : ebb_realloc(t->bytes, 2 * capacity);
        if (more == NULL) {
            status = ebb_error_memory();
            continue;
        }
        t->bytes = more;
        capacity *= 2;
    }
    if (status == NULL && t->bytes == NULL)
        status = ebb_error_memory();
    if (status == NULL && ferror(file))
        status = ebb_error_io(t->path, "cannot be read");
    fclose(file);
    t->at = t->bytes;
    t->end = t->bytes == NULL ? NULL : t->bytes + size;
    if (size >= 3 && memcmp(t->bytes, "\xEF\xBB\xBF", 3) == 0)
        t->at += 3; /* a byte order mark */
    return status;
}

static ebb_status wrong(const table *t, size_t line, const char *format, ...) EBB_PRINTF(3, 4);

static ebb_status wrong(const table *t, size_t line, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)ebb_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ebb_error(EBB_REJECTED, "%s: line %zu: %s", t->path, line, text);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* One field; t->at is then at the comma, the line's end or the file's. */
static ebb_status read_field(table *t, field *f)
{
    size_t line = t->line;
    f->begin = t->at;
    while (t->at < t->end && is_blank(*t->at))
        t->at++;
    if (t->at < t->end && *t->at == '"') {
        f->text = ++t->at;
        for (; t->at < t->end; t->at++) {
            if (*t->at == '"' && t->at + 1 < t->end && t->at[1] == '"')
                t->at++;
            else if (*t->at == '"')
                break;
            t->line += *t->at == '\n';
        }
        if (t->at == t->end)
            return wrong(t, line, "a quote is opened and not closed");
        f->texts_end = t->at++;
        while (t->at < t->end && (is_blank(*t->at) || *t->at == '\r'))
            t->at++;
        if (t->at < t->end && *t->at != ',' && *t->at != '\n')
            return wrong(t, line, "there is text behind a closing quote");
        f->end = t->at;
        return NULL;
    }
    f->text = t->at;
    while (t->at < t->end && *t->at != ',' && *t->at != '\n')
        t->at++;
    f->end = f->texts_end = t->at;
    while (f->texts_end > f->text && (is_blank(f->texts_end[-1]) || f->texts_end[-1] == '\r'))
        f->texts_end--;
    return NULL;
}

/* The fields of one line that is not blank; *count 0: the file is at its end. */
static ebb_status read_fields(table *t, row *r, field *fields, size_t *count)
{
    *count = 0;
    for (;;) {
        const char *at = t->at;
        while (at < t->end && (is_blank(*at) || *at == '\r'))
            at++;
        if (at == t->end)
            return NULL;
        if (*at != '\n')
            break;
        t->at = at + 1;
        t->line++;
    }
    r->line = t->line;
    r->begin = t->at;
    for (;;) {
        if (*count == COLUMNS)
            return wrong(t, r->line, "there are more than %d columns", COLUMNS);
        EBB_TRY(read_field(t, &fields[(*count)++]));
        if (t->at == t->end || *t->at == '\n')
            break;
        t->at++;
    }
    r->end = t->at;
    if (r->end > r->begin && r->end[-1] == '\r') {
        r->end--;
        if (fields[*count - 1].end > r->end)
            fields[*count - 1].end = r->end;
    }
    if (t->at < t->end) {
        t->at++;
        t->line++;
    }
    return NULL;
}

static bool same_text(const field *f, const char *text)
{
    size_t length = (size_t)(f->texts_end - f->text);
    return length == strlen(text) && memcmp(f->text, text, length) == 0;
}

static ebb_status read_header(table *t)
{
    field fields[COLUMNS];
    t->line = 1;
    EBB_TRY(read_fields(t, &t->header, fields, &t->column_count));
    if (t->column_count == 0)
        return ebb_error(EBB_REJECTED,
                         "%s: the file is empty: it should begin with a line such as "
                         "id,lower,upper,size",
                         t->path);
    t->line_end = t->header.end < t->end && *t->header.end == '\r' ? "\r\n" : "\n";
    for (int k = 0; k < KINDS; k++) {
        t->column_of[k] = -1;
        for (size_t c = 0; c < t->column_count; c++) {
            if (!same_text(&fields[c], column_names[k]))
                continue;
            if (t->column_of[k] >= 0)
                return wrong(t, t->header.line, "there are two columns '%s'", column_names[k]);
            t->column_of[k] = (int)c;
        }
        if (t->column_of[k] < 0 && k != OFFSET)
            return wrong(t, t->header.line,
                         "there is no column '%s': the first line should name the columns id, "
                         "lower, upper and size",
                         column_names[k]);
    }
    return NULL;
}

static ebb_status read_number(const table *t, const row *r, column kind, const field *f,
                              uint64_t *number)
{
    const char *name = column_names[kind];
    int length = f->texts_end - f->text > 40 ? 40 : (int)(f->texts_end - f->text);
    if (length == 0)
        return wrong(t, r->line, "%s is missing", name);
    bool negative = *f->text == '-', zero = true;
    const char *digits = f->text + negative;
    for (const char *at = digits; at < f->texts_end || at == digits; at++) {
        if (at == f->texts_end || *at < '0' || *at > '9')
            return wrong(t, r->line, "%s '%.*s' is no whole number", name, length, f->text);
        zero = zero && *at == '0';
    }
    if (negative && !zero)
        return wrong(t, r->line, "%s %.*s is negative", name, length, f->text);
    *number = 0;
    for (const char *at = digits; at < f->texts_end; at++)
        if (__builtin_mul_overflow(*number, UINT64_C(10), number) ||
            __builtin_add_overflow(*number, (uint64_t)(*at - '0'), number) || *number > INT64_MAX)
            return wrong(t, r->line, "%s %.*s is too large", name, length, f->text);
    return NULL;
}

static ebb_status read_row(table *t, row *r, const field *fields, ebb_interval *v, bool *fixed)
{
    EBB_TRY(read_number(t, r, LOWER, &fields[t->column_of[LOWER]], &r->lower));
    EBB_TRY(read_number(t, r, UPPER, &fields[t->column_of[UPPER]], &r->upper));
    EBB_TRY(read_number(t, r, SIZE, &fields[t->column_of[SIZE]], &v->size));
    if (r->lower > r->upper)
        return wrong(t, r->line, "the interval is reversed: lower %" PRIu64 ", upper %" PRIu64,
                     r->lower, r->upper);
    r->id = fields[t->column_of[ID]];
    if (t->column_of[OFFSET] < 0)
        return NULL;
    const field *offset = &fields[t->column_of[OFFSET]];
    r->offset = offset->begin;
    r->offset_end = offset->end;
    *fixed = offset->text < offset->texts_end;
    return *fixed ? read_number(t, r, OFFSET, offset, &v->offset) : NULL;
}

static ebb_status read_rows(table *t)
{
    field fields[COLUMNS];
    size_t lines = 1, count;
    for (const char *at = t->at; at < t->end; at++)
        lines += *at == '\n';
    t->rows = EBB_NEW(&t->arena, row, lines);
    t->intervals = EBB_NEW(&t->arena, ebb_interval, lines);
    t->fixed = EBB_NEW(&t->arena, bool, lines);
    t->lines = EBB_NEW(&t->arena, size_t, lines);
    EBB_GOT(t->rows && t->intervals && t->fixed && t->lines);
    for (;; t->count++) {
        row *r = &t->rows[t->count];
        EBB_TRY(read_fields(t, r, fields, &count));
        if (count == 0)
            return NULL;
        if (count != t->column_count)
            return wrong(t, r->line, "there are %zu fields where the first line names %zu", count,
                         t->column_count);
        EBB_TRY(read_row(t, r, fields, &t->intervals[t->count], &t->fixed[t->count]));
        t->lines[t->count] = r->line;
    }
}

/* ---- the table as a whole ---- */

static int compare_ids(const void *a, const void *b)
{
    const row *x = *(const row *const *)a, *y = *(const row *const *)b;
    size_t m = (size_t)(x->id.texts_end - x->id.text), n = (size_t)(y->id.texts_end - y->id.text);
    int c = memcmp(x->id.text, y->id.text, m < n ? m : n);
    if (c != 0 || m != n)
        return c != 0 ? c : m < n ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

static ebb_status check_ids(table *t)
{
    const row **sorted = EBB_NEW(&t->arena, const row *, t->count + 1);
    const row *again = NULL, *first = NULL;
    EBB_GOT(sorted);
    for (size_t i = 0; i < t->count; i++)
        sorted[i] = &t->rows[i];
    qsort(sorted, t->count, sizeof *sorted, compare_ids);
    for (size_t i = 1; i < t->count; i++) {
        const field *x = &sorted[i - 1]->id, *y = &sorted[i]->id;
        size_t length = (size_t)(x->texts_end - x->text);
        if (length != (size_t)(y->texts_end - y->text) || memcmp(x->text, y->text, length) != 0)
            continue;
        if (again == NULL || sorted[i]->line < again->line) {
            again = sorted[i];
            first = sorted[i - 1];
        }
    }
    if (again == NULL)
        return NULL;
    size_t length = (size_t)(again->id.texts_end - again->id.text);
    return wrong(t, again->line, "the id '%.*s' is that of line %zu",
                 length > 80 ? 80 : (int)length, again->id.text, first->line);
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Positions as 32 bits: as they are, or, where they are too large, by rank among all. */
static ebb_status set_positions(table *t)
{
    uint64_t most = 0;
    for (size_t i = 0; i < t->count; i++)
        most = t->rows[i].upper > most ? t->rows[i].upper : most;
    if (most <= UINT32_MAX) {
        for (size_t i = 0; i < t->count; i++) {
            t->intervals[i].lower = (uint32_t)t->rows[i].lower;
            t->intervals[i].upper = (uint32_t)t->rows[i].upper;
        }
        return NULL;
    }
    uint64_t *all = EBB_NEW(&t->arena, uint64_t, 2 * t->count);
    size_t count = 0;
    EBB_GOT(all && t->count <= UINT32_MAX / 2);
    for (size_t i = 0; i < t->count; i++) {
        all[count++] = t->rows[i].lower;
        all[count++] = t->rows[i].upper;
    }
    qsort(all, count, sizeof *all, compare_numbers);
    size_t distinct = 1;
    for (size_t i = 1; i < count; i++)
        if (all[i] != all[distinct - 1])
            all[distinct++] = all[i];
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        const uint64_t *lower = bsearch(&r->lower, all, distinct, sizeof *all, compare_numbers);
        const uint64_t *upper = bsearch(&r->upper, all, distinct, sizeof *all, compare_numbers);
        t->intervals[i].lower = (uint32_t)(lower - all);
        t->intervals[i].upper = (uint32_t)(upper - all);
    }
    return NULL;
}

static ebb_status read_table(table *t)
{
    EBB_TRY(read_file(t));
    EBB_TRY(read_header(t));
    EBB_TRY(read_rows(t));
    if (t->count == 0)
        return ebb_error(EBB_REJECTED, "%s: there are no intervals below the first line", t->path);
    EBB_TRY(check_ids(t));
    return set_positions(t);
}

/* ---- writing ---- */

static void write_text(ebb_sink *sink, const char *begin, const char *end)
{
    ebb_sink_write(sink, begin, (size_t)(end - begin));
}

static ebb_status write_table(const table *t, const char *path)
{
    ebb_sink sink;
    EBB_TRY(ebb_sink_open(&sink, path));
    write_text(&sink, t->header.begin, t->header.end);
    if (t->column_of[OFFSET] < 0)
        ebb_sink_write(&sink, ",offset", 7);
    ebb_sink_write(&sink, t->line_end, strlen(t->line_end));
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        char number[32];
        int length = snprintf(number, sizeof number, "%s%" PRIu64, r->offset == NULL ? "," : "",
                              t->intervals[i].offset);
        write_text(&sink, r->begin, r->offset == NULL ? r->end : r->offset);
        ebb_sink_write(&sink, number, (size_t)length);
        if (r->offset != NULL)
            write_text(&sink, r->offset_end, r->end);
        ebb_sink_write(&sink, t->line_end, strlen(t->line_end));
    }
    return ebb_sink_done(&sink, NULL);
}

/* ---- the call ---- */

static ebb_status no_packing(const table *t, const ebb_packing *p, uint64_t capacity)
{
    const char *more = p->least <= capacity         ? "that there is no lower one is not proven"
                       : p->least == p->lower_bound ? "so there is none within the capacity"
                                                    : "and search has proven that none fits";
    return ebb_error(EBB_NO_PLAN,
                     "%s: no packing within %" PRIu64 " bytes: the lowest found takes %" PRIu64
                     "; at most %" PRIu64 " bytes are alive at once, %s",
                     t->path, capacity, p->height, p->lower_bound, more);
}

static json_t *describe(const table *t, const ebb_packing *p, uint64_t capacity, int64_t ns)
{
    double bound = p->lower_bound != 0 ? (double)p->lower_bound : 1.0;
    json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:b, s:s, s:I}", "schema", "ebb.pack/1",
                          "intervals", (json_int_t)t->count, "height_bytes", (json_int_t)p->height,
                          "lower_bound_bytes", (json_int_t)p->lower_bound, "least_bytes",
                          (json_int_t)p->least, "ratio",
                          p->lower_bound != 0 ? (double)p->height / bound : 1.0, "proven",
                          (int)p->proven, "method", p->method, "ns", (json_int_t)ns);
    if (o != NULL && capacity != 0)
        (void)json_object_set_new(o, "capacity_bytes", json_integer((json_int_t)capacity));
    return o;
}

static ebb_status pack(table *t, const char *out, const ebb_pack_csv_options *given, char **json)
{
    EBB_TRY(read_table(t));
    ebb_packing packing;
    const ebb_pack_options options = {.alignment = given->alignment,
                                      .capacity = given->capacity,
                                      .fixed = t->fixed,
                                      .lines = t->lines,
                                      .time_ns = given->time_ns};
    int64_t begin = ebb_now_ns();
    ebb_status status = ebb_pack(&packing, t->intervals, t->count, &options, &t->arena);
    if (status != NULL)
        return ebb_at(status, t->path);
    int64_t ns = ebb_now_ns() - begin;
    if (!packing.fits)
        return no_packing(t, &packing, given->capacity);
    if (out != NULL)
        EBB_TRY(write_table(t, out));
    return json == NULL ? NULL : ebb_json_text(json, describe(t, &packing, given->capacity, ns));
}

ebb_status ebb_pack_csv(const char *in, const char *out, const ebb_pack_csv_options *options,
                        char **json)
{
    EBB_NEED(in);
    ebb_pack_csv_options own;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_pack_csv_options, &own, time_ns, options));
    EBB_NEED_COUNT(own.time_ns);
    table t = {.path = in};
    if (json != NULL)
        *json = NULL;
    ebb_status status = pack(&t, out, &own, json);
    ebb_free(t.bytes);
    ebb_arena_fini(&t.arena);
    return status;
}
