/* options.h: structs of ebb.h that may get more fields, from and to a caller whose header is older or
 * newer than the library.
 *
 *     caller's   | size | a | b |                    an older one: c counts as zero
 *     own        | size | a | b | c |
 *     caller's   | size | a | b | c | d |            a newer one: d must be zero
 *
 * A new field goes to the end, behind the padding.
 */
#pragma once

#include "onnx/words/status.h"

/* `given`, or all zero where it is NULL, as this version has it. first: the bytes of version 0.1, which
 * size 0 stands for. EBB_USAGE: a field that this version does not have is set. */
ebb_status ebb_options_take(void *own, size_t own_size, size_t first, const void *given,
                            const char *type);
/* last: the last field of version 0.1. */
#define EBB_OPTIONS_TAKE(type, own, last, given) \
    ebb_options_take(own, sizeof(type), offsetof(type, last) + sizeof((own)->last), given, #type)
/* A count among them that is below zero is named: what several functions take, by the struct. */
#define EBB_OPTIONS_COUNT(type, own, field)                                    \
    do {                                                                       \
        if ((own)->field < 0)                                                  \
            return ebb_error_argument(#type, #field, (long long)(own)->field); \
    } while (0)

/* The first `size` bytes of what the caller reads; what is not there is zero. */
void ebb_facts_give(void *facts, size_t size, const void *own, size_t own_size);
