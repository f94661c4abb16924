/* print.h: text of numbers and numbers of text as in C's own locale: a point, and never the comma that
 * setlocale(LC_ALL, "") gives the caller's program in half of Europe. What is written into files, names and
 * sources must be the same everywhere. As the functions of stdio.h and stdlib.h, whose names they have.
 */
#pragma once

#include "onnx/words/status.h"

#include <stdarg.h>
#include <stddef.h>

EBB_C_BEGIN

int ebb_snprintf(char *text, size_t room, const char *format, ...) EBB_PRINTF(3, 4);
int ebb_vsnprintf(char *text, size_t room, const char *format, va_list args) EBB_PRINTF(3, 0);
double ebb_strtod(const char *text, char **end);
float ebb_strtof(const char *text, char **end); /* rounded once, which a cast double is not */

EBB_C_END
