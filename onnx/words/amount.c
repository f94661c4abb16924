/* amount.c: amounts of memory as people write them: 6GiB, 512MB, 1.5G, 1000, 80%.
 *
 * Read by hand, because strtod would also take "inf", "0x10", "1e9" and "-1", and would round what
 * is given to the byte. Digits before the point are exact; a fraction is rounded down to a byte.
 */
#include "onnx/words/amount.h"

#include <stdio.h>
#include <string.h>

#include "onnx/words/print.h"
#include "onnx/words/status.h"

static const struct {
    const char *name;
    uint64_t bytes;
} units[] = {
    {"", 1},
    {"b", 1},
    {"k", 1ull << 10},
    {"kib", 1ull << 10},
    {"kb", 1000ull},
    {"m", 1ull << 20},
    {"mib", 1ull << 20},
    {"mb", 1000000ull},
    {"g", 1ull << 30},
    {"gib", 1ull << 30},
    {"gb", 1000000000ull},
    {"t", 1ull << 40},
    {"tib", 1ull << 40},
    {"tb", 1000000000000ull},
};

static ebb_status wrong(const char *text, const char *why)
{
    return ebb_hint(ebb_error(EBB_USAGE, "'%.64s' is no amount of memory: %s", text, why),
                    "such as 6GiB, 1.5G, 512MB, 1000 (bytes) or 80%%");
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits before the point into *whole, those behind it into *fraction; NULL where there is none, or
 * too many. */
static const char *read_number(const char *at, uint64_t *whole, double *fraction)
{
    const char *begin = at;
    double place = 0.1;
    for (; is_digit(*at); at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (*whole > (UINT64_MAX - digit) / 10)
            return NULL;
        *whole = *whole * 10 + digit;
    }
    bool any = at != begin;
    if (*at != '.')
        return any ? at : NULL;
    for (at++; is_digit(*at); at++, place /= 10, any = true)
        *fraction += place * (*at - '0');
    return any ? at : NULL;
}

/* Bytes of a unit in any case; 0: there is no such unit. */
static uint64_t unit_of(const char *text)
{
    char lower[4] = {0};
    size_t length = strlen(text);
    for (size_t i = 0; i < length && length < sizeof lower; i++)
        lower[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]);
    for (size_t i = 0; length < sizeof lower && i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, lower) == 0)
            return units[i].bytes;
    return 0;
}

EBB_API ebb_status ebb_amount_parse(ebb_amount *amount, const char *text)
{
    EBB_NEED(amount);
    EBB_NEED(text);
    uint64_t whole = 0;
    double fraction = 0;
    *amount = (ebb_amount){0};
    if (text[0] == '-')
        return wrong(text, "it is below zero");
    const char *end = read_number(text, &whole, &fraction);
    if (end == NULL)
        return wrong(text, is_digit(text[0]) ? "it is too large" : "it begins with no number");
    end += strspn(end, " ");
    bool share = strcmp(end, "%") == 0;
    uint64_t unit = share ? 1 : unit_of(end);
    if (unit == 0)
        return wrong(text, "its unit is not known");
    if (whole == 0 && fraction <= 0)
        return wrong(text, "it must be more than zero");
    if (share) {
        amount->percent = (double)whole + fraction;
        return NULL;
    }
    if (whole > (INT64_MAX - (unit - 1)) / unit)
        return wrong(text, "it is too large");
    amount->bytes = whole * unit + (uint64_t)(fraction * (double)unit);
    return amount->bytes != 0 ? NULL : wrong(text, "it is less than one byte");
}

EBB_API uint64_t ebb_amount_of(const ebb_amount *amount, uint64_t whole)
{
    if (amount->bytes != 0)
        return amount->bytes;
    if (amount->percent == 100.0)
        return whole;
    double bytes = (double)whole / 100 * amount->percent;
    return bytes < 9223372036854774784.0 ? (uint64_t)bytes : INT64_MAX;
}

ebb_bytes_text ebb_bytes(uint64_t bytes)
{
    static const char names[][4] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    ebb_bytes_text t;
    double number = (double)bytes;
    int unit = 0;
    for (; number >= 1024.0; unit++)
        number /= 1024.0;
    (void)ebb_snprintf(t.text, sizeof t.text, unit == 0 ? "%.0f %s" : "%.2f %s", number,
                       names[unit]);
    return t;
}
