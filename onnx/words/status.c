/* status.c: a ring of error records for each thread.
 *
 * A ring outlives its thread, so that a status may be read by whoever waits for it: then the next
 * thread without a ring takes it over, the one that was left first before the others. The rings are
 * as many as there were threads at once with errors, and are never freed.
 */
#include "onnx/words/status.h"

#include "onnx/words/print.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { RING = 64, TEXT_BYTES = 4096 };

struct ebb_error {
    ebb_code code;
    char text[TEXT_BYTES];
};

typedef struct ring {
    struct ebb_error records[RING];
    unsigned turn;
    struct ring *next; /* of those without a thread */
} ring;

static ring first_ring; // so that one thread needs no memory for its errors
static ring *left = &first_ring, **left_end = &first_ring.next;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Thread_local ring *own;

static void leave_ring(void *of_thread)
{
    ring *r = of_thread;
    r->next = own = NULL;
    (void)pthread_mutex_lock(&mutex);
    *left_end = r;
    left_end = &r->next;
    (void)pthread_mutex_unlock(&mutex);
}

static void make_key(void)
{
    (void)pthread_key_create(&key, leave_ring);
}

static ring *take_ring(void)
{
    (void)pthread_once(&once, make_key);
    (void)pthread_mutex_lock(&mutex);
    ring *r = left;
    if (r != NULL)
        left = r->next;
    if (left == NULL)
        left_end = &left;
    (void)pthread_mutex_unlock(&mutex);
    if (r == NULL)
        r = calloc(1, sizeof *r);
    if (r != NULL)
        (void)pthread_setspecific(key, r);
    return r;
}

/* NULL: out of memory. */
static struct ebb_error *next_record(ebb_code code)
{
    if (own == NULL)
        own = take_ring();
    if (own == NULL)
        return NULL;
    struct ebb_error *error = &own->records[own->turn++ % RING];
    error->code = code;
    error->text[0] = '\0';
    return error;
}

ebb_code ebb_status_code(ebb_status status)
{
    return status == NULL ? EBB_OK : status->code;
}

const char *ebb_status_text(ebb_status status)
{
    return status == NULL ? "" : status->text;
}

ebb_status ebb_error(ebb_code code, const char *format, ...)
{
    struct ebb_error *error = next_record(code);
    EBB_GOT(error);
    va_list args;
    va_start(args, format);
    (void)ebb_vsnprintf(error->text, TEXT_BYTES, format, args);
    va_end(args);
    return error;
}

ebb_status ebb_error_argument(const char *function, const char *argument, long long value)
{
    const char *dot = strrchr(argument, '.'),
               *arrow = strrchr(argument, '>'); // own.threads: threads
    argument = dot != NULL ? dot + 1 : arrow != NULL ? arrow + 1 : argument;
    return value == 0 ? ebb_error(EBB_USAGE, "%s: %s is NULL", function, argument)
                      : ebb_error(EBB_USAGE, "%s: %s is %lld, and must be 0 or more", function,
                                  argument, value);
}

ebb_status ebb_error_memory(void)
{
    static const struct ebb_error memory = {EBB_RUNTIME, "out of memory"};
    return &memory;
}

ebb_status ebb_error_io(const char *path, const char *what)
{
    char why[256] = "unknown error";
    (void)strerror_r(errno, why, sizeof why);
    return ebb_error(EBB_IO, "%s: %s: %s", path, what, why);
}

/* Appends to text[TEXT_BYTES] at `at`; cut where it is full. Returns the new end. */
static size_t put(char *text, size_t at, const char *format, const char *word)
{
    int n = snprintf(text + at, TEXT_BYTES - at, format, word);
    size_t end = n < 0 ? at : at + (size_t)n;
    return end < TEXT_BYTES ? end : TEXT_BYTES - 1;
}

static const char hint_line[] = "\n  hint: ";

/* A longer version of the same error, in a record of its own, so that a status stays as it was.
 * Hints are its last lines. */
static ebb_status extended(ebb_status status, const char *before, const char *label,
                           const char *format, va_list args)
{
    struct ebb_error *error = next_record(status->code);
    const bool is_while = label != NULL && label[0] == 'w';
    const char *text = status->text, *hint = is_while ? strstr(text, hint_line) : NULL;
    char line[TEXT_BYTES];
    size_t at = 0;
    EBB_GOT(error);
    if (before != NULL)
        at = put(error->text, at, "%s: ", before);
    at = put(error->text, at, "%s", text);
    if (format == NULL)
        return error;
    (void)ebb_vsnprintf(line, sizeof line, format, args);
    if (hint != NULL)
        at = (size_t)(hint - text);
    at = put(error->text, at, "\n  %s", label);
    at = put(error->text, at, "%s", line);
    if (hint != NULL)
        (void)put(error->text, at, "%s", hint);
    return error;
}

ebb_status ebb_while(ebb_status status, const char *format, ...)
{
    if (status == NULL)
        return NULL;
    va_list args;
    va_start(args, format);
    status = extended(status, NULL, "while ", format, args);
    va_end(args);
    return status;
}

ebb_status ebb_hint(ebb_status status, const char *format, ...)
{
    if (status == NULL)
        return NULL;
    va_list args;
    va_start(args, format);
    status = extended(status, NULL, "hint: ", format, args);
    va_end(args);
    return status;
}

static ebb_status put_before(ebb_status status, const char *place, ...)
{
    va_list none;
    va_start(none, place);
    status = extended(status, place, NULL, NULL, none);
    va_end(none);
    return status;
}

ebb_status ebb_at(ebb_status status, const char *place)
{
    return status == NULL ? NULL : put_before(status, place);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* How many letters are missing, too many, others, or in the place of their neighbours. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    size_t m = strlen(a), n = strlen(b);
    if (m > LONGEST || n > LONGEST)
        return SIZE_MAX;
    size_t rows[3][LONGEST + 1]; // of the last three beginnings of a
    for (size_t i = 0; i <= m; i++) {
        size_t *row = rows[i % 3];
        const size_t *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        for (size_t j = 0; j <= n; j++) {
            if (i == 0 || j == 0) {
                row[j] = i + j;
                continue;
            }
            row[j] =
                least(least(before[j], row[j - 1]) + 1, before[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                row[j] = least(row[j], two_before[j - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

const char *ebb_nearest(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL, *longer = NULL;
    size_t best_distance = (strlen(word + strspn(word, "-")) + 1) / 2; // half wrong is not near
    for (size_t i = 0; i < count; i++) {
        const size_t d = distance(word, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        } else if (longer == NULL && strncasecmp(names[i], word, strlen(word)) == 0) {
            longer = names[i];
        }
    }
    return best != NULL ? best : longer;
}
