/* status.h: calls that must succeed, and calls that must be refused in these words. */
#pragma once

#include <string.h>

#include "ebb.h"
#include "tests/test.h"

static inline void good(ebb_status status)
{
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
}

/* One of many of its kind: `what` tells which. */
static inline void good_for(ebb_status status, const char *what)
{
    if (status != NULL)
        fail_msg("%s: %s", what, ebb_status_text(status));
}

static inline void refused(ebb_status status, ebb_code code, const char *words)
{
    if (status == NULL || ebb_status_code(status) != code ||
        strstr(ebb_status_text(status), words) == NULL)
        fail_msg("code %d: %s\nexpected %d: %s", (int)ebb_status_code(status),
                 ebb_status_text(status), (int)code, words);
}
