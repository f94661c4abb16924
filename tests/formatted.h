/* formatted.h: words that a test puts together, where they are needed. */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Good until sixteen later calls of the thread; what is too long ends the program. */
__attribute__((format(printf, 1, 2))) static inline const char *formatted(const char *format, ...)
{
    static _Thread_local char text[16][4096];
    static _Thread_local unsigned next;
    char *to = text[next++ % 16];
    va_list list;
    va_start(list, format);
    const int length = vsnprintf(to, sizeof text[0], format, list);
    va_end(list);
    if (length < 0 || (size_t)length >= sizeof text[0])
        abort();
    return to;
}
