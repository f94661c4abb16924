/* call_error.c: an error of a call. Alone in its file: plugins carry it too. */
#include "kernels/kernels.h"

#include "onnx/words/print.h"

#include <stdarg.h>
#include <stdio.h>

ebb_status ebb_call_error(const ebb_call *call, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    ebb_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ebb_error(EBB_RUNTIME, "%s: %s",
                     call->node != NULL ? call->node : ebb_op_row_of(call->op)->name, text);
}
