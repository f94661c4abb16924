/* status.h: the error value.
 *
 * A status is NULL for success, else a record: code, one sentence, and a trail of what was being
 * done. It needs no freeing, so any layer may drop it, and "out of memory" can be said without
 * memory. Each thread has a ring of records: a status is good until the thread that made it has
 * made 64 later ones; another thread may read it, also when that one has ended.
 *
 *     model.onnx: Conv 'layer3.conv1': weight expects 64 input channels, input 'relu_7' has 32
 *       while inferring shapes; opset 17
 *       hint: `ebb inspect model.onnx --node layer3.conv1` shows both
 *
 * Wrong input is a status. A wrong program is an assert. Read next: arena.h.
 */
#pragma once

#include <stddef.h>
#include <stdarg.h>

#include "ebb.h"

/* C linkage, of what nvcc reads as C++. */
#ifdef __cplusplus
#define EBB_C_BEGIN extern "C" {
#define EBB_C_END }
#else
#define EBB_C_BEGIN
#define EBB_C_END
#endif

EBB_C_BEGIN

#if defined(__GNUC__)
#define EBB_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define EBB_MUST_USE __attribute__((warn_unused_result))
#define EBB_NEVER_NULL __attribute__((returns_nonnull)) /* an error is never success */
#else
#define EBB_PRINTF(text, first)
#define EBB_MUST_USE
#define EBB_NEVER_NULL
#endif

/* Pass a failure up. The caller adds a line with ebb_while() only when it knows something new. */
#define EBB_TRY(call)                        \
    do {                                     \
        ebb_status ebb_try_status_ = (call); \
        if (ebb_try_status_ != NULL)         \
            return ebb_try_status_;          \
    } while (0)

/* What was asked for is there, or memory has run out: EBB_GOT(list && names). */
#define EBB_GOT(it)                    \
    do {                               \
        if (!(it))                     \
            return ebb_error_memory(); \
    } while (0)

/* What a public function needs of its caller. */
#define EBB_NEED(argument)                                     \
    do {                                                       \
        if ((argument) == NULL)                                \
            return ebb_error_argument(__func__, #argument, 0); \
    } while (0)
#define EBB_NEED_COUNT(argument)                                                   \
    do {                                                                           \
        if ((argument) < 0)                                                        \
            return ebb_error_argument(__func__, #argument, (long long)(argument)); \
    } while (0)

/* value 0: it is NULL; else it is a count below zero. */
ebb_status ebb_error_argument(const char *function, const char *argument,
                              long long value) EBB_NEVER_NULL;

/* Makes an error. The sentence names the place and says what is wrong; no full stop, no newline. */
ebb_status ebb_error(ebb_code code, const char *format, ...) EBB_PRINTF(2, 3) EBB_NEVER_NULL;

/* "Out of memory" needs no memory: one static record. */
ebb_status ebb_error_memory(void) EBB_NEVER_NULL;

/* The same with errno's text: "PATH: WHAT: No such file or directory". Code is EBB_IO. */
ebb_status ebb_error_io(const char *path, const char *what) EBB_NEVER_NULL;

/* Adds "  while ..." or "  hint: ..." below the sentence. Each returns its argument. */
ebb_status ebb_while(ebb_status status, const char *format, ...) EBB_PRINTF(2, 3);
ebb_status ebb_hint(ebb_status status, const char *format, ...) EBB_PRINTF(2, 3);

/* Puts "PLACE: " before the sentence, as a reader does with the file's name. */
ebb_status ebb_at(ebb_status status, const char *place);

EBB_C_END
