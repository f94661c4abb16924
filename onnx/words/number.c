/* number.c: a number as an option gives it, checked against the range that the option states.
 *
 *     [0, 4096]    [0, 1)    [1, inf)    seconds (0, 1e6]    [32, 4096] by 32
 *
 * A range is written as in mathematics: with [ and ] the end belongs to it, with ( and ) it does
 * not, and inf is no end. Its unit may stand before it, and behind it what its numbers are
 * multiples of.
 */
#include "onnx/words/status.h"

#include "onnx/words/print.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bound {
    const char *text; /* within the range's text */
    int length;
    bool open, none; /* the number itself is left out; there is no such bound */
} bound;

typedef struct range {
    bound least, most;
    const char *unit; /* "seconds " */
    int unit_length;
    int64_t by; /* numbers are multiples of it */
} range;

/* No text: every number. */
static range read_range(const char *text)
{
    range r = {.least = {.none = true}, .most = {.none = true}, .by = 1};
    if (text == NULL)
        return r;
    const char *begin = text + strcspn(text, "[("), *comma = strchr(begin, ',');
    const char *end = comma + strcspn(comma, "])"), *by = strstr(end, " by ");
    r.by = by != NULL ? strtoll(by + 4, NULL, 10) : 1;
    r.unit = text;
    r.unit_length = (int)(begin - text);
    r.least = (bound){begin + 1, (int)(comma - begin - 1), *begin == '(', false};
    r.most = (bound){comma + 2, (int)(end - comma - 2), *end == ')', false};
    r.least.none = strncmp(r.least.text, "-inf", 4) == 0;
    r.most.none = strncmp(r.most.text, "inf", 3) == 0;
    return r;
}

/* "--threads takes a whole number from 0 to 4096, not 'abc'" */
static ebb_status refuse(const char *text, const char *kind, const range *r, const char *what)
{
    char least[64] = "", most[64] = "", multiple[64];
    if (r->by != 1) {
        (void)snprintf(multiple, sizeof multiple, "multiple of %lld", (long long)r->by);
        kind = multiple;
    }
    const bool both = !r->least.none && !r->most.none;
    const bool within = both && !r->least.open && !r->most.open;
    if (!r->least.none)
        (void)snprintf(least, sizeof least, "%s%.*s",
                       within          ? " from "
                       : r->least.open ? " above "
                                       : " of at least ",
                       r->least.length, r->least.text);
    if (!r->most.none)
        (void)snprintf(most, sizeof most, "%s%s%.*s", both && !within ? " and" : "",
                       within         ? " to "
                       : r->most.open ? " below "
                                      : " at most ",
                       r->most.length, r->most.text);
    return ebb_error(EBB_USAGE, "%s takes a %s%s%.*s%s%s, not '%.64s'", what, kind,
                     r->unit_length > 0 ? " of " : "", r->unit_length > 0 ? r->unit_length - 1 : 0,
                     r->unit_length > 0 ? r->unit : "", least, most, text);
}

EBB_API ebb_status ebb_whole_parse(int64_t *number, const char *text, const char *range_text,
                                   const char *what)
{
    EBB_NEED(number);
    EBB_NEED(text);
    EBB_NEED(what);
    const range r = read_range(range_text);
    const char *digits = text + (text[0] == '-');
    bool fits = digits[0] != '\0' && strspn(digits, "0123456789") == strlen(digits);
    errno = 0;
    const long long n = strtoll(text, NULL, 10);
    fits = fits && errno == 0;
    if (fits && !r.least.none)
        fits = n - r.least.open >= strtoll(r.least.text, NULL, 10);
    if (fits && !r.most.none)
        fits = n <= strtoll(r.most.text, NULL, 10) - r.most.open;
    if (!fits || n % r.by != 0)
        return refuse(text, "whole number", &r, what);
    *number = n;
    return NULL;
}

EBB_API ebb_status ebb_real_parse(double *number, const char *text, const char *range_text,
                                  const char *what)
{
    EBB_NEED(number);
    EBB_NEED(text);
    EBB_NEED(what);
    const range r = read_range(range_text);
    char *end;
    const double x = ebb_strtod(text, &end);
    // It would also take "inf", "nan" and "0x10".
    bool fits = end != text && *end == '\0' && strspn(text, "0123456789+-.eE") == strlen(text) &&
                isfinite(x);
    const double least = r.least.none ? 0 : ebb_strtod(r.least.text, NULL);
    const double most = r.most.none ? 0 : ebb_strtod(r.most.text, NULL);
    fits = fits && (r.least.none || x > least || (x >= least && !r.least.open));
    fits = fits && (r.most.none || x < most || (x <= most && !r.most.open));
    if (!fits)
        return refuse(text, "number", &r, what);
    *number = x;
    return NULL;
}
