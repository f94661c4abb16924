/* options.c: structs of ebb.h that may get more fields. */
#include "onnx/words/options.h"

#include <string.h>

enum { MOST_SIZE = 4096 }; /* bytes: no struct of options will ever have so many */

ebb_status ebb_options_take(void *own, size_t own_size, size_t first, const void *given,
                            const char *type)
{
    size_t size = first;
    memset(own, 0, own_size);
    if (given == NULL)
        return NULL;
    memcpy(&size, given, sizeof size);
    if (size != 0 && (size < sizeof size || size > MOST_SIZE))
        return ebb_error(EBB_USAGE, "%s: size is %zu: set it to sizeof(%s)", type, size, type);
    size = size == 0 ? first : size;
    for (size_t i = own_size; i < size; i++)
        if (((const unsigned char *)given)[i] != 0)
            return ebb_error(
                EBB_USAGE,
                "%s: it has a field that ebb %s does not know: take a later libebb, or "
                "leave it zero",
                type, EBB_VERSION);
    memcpy(own, given, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    return NULL;
}

void ebb_facts_give(void *facts, size_t size, const void *own, size_t own_size)
{
    memset(facts, 0, size);
    memcpy(facts, own, size < own_size ? size : own_size);
}
