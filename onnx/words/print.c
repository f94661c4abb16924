#include "onnx/words/print.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct locales {
    locale_t c, caller;
} locales;

/* C's own locale for this thread. It takes no memory in glibc or musl; where there is none, the caller's stays. */
static locales begin(void)
{
    locales l = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (l.c != (locale_t)0)
        l.caller = uselocale(l.c);
    return l;
}

static void end(locales l)
{
    if (l.c == (locale_t)0)
        return;
    uselocale(l.caller);
    freelocale(l.c);
}

int ebb_vsnprintf(char *text, size_t room, const char *format, va_list args)
{
    const locales l = begin();
    const int length = vsnprintf(text, room, format, args);
    end(l);
    return length;
}

int ebb_snprintf(char *text, size_t room, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = ebb_vsnprintf(text, room, format, args);
    va_end(args);
    return length;
}

double ebb_strtod(const char *text, char **after)
{
    const locales l = begin();
    const double x = strtod(text, after);
    end(l);
    return x;
}

float ebb_strtof(const char *text, char **after)
{
    const locales l = begin();
    const float x = strtof(text, after);
    end(l);
    return x;
}
