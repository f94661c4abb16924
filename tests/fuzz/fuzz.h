/* fuzz.h: what every target of libFuzzer shares.
 *
 * A target is given bytes that nobody vouches for and must come back with a status. What it
 * promises beyond that (what was written can be read again) it says with `fuzz_must`, which stops
 * the run so that libFuzzer keeps the bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "ebb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_must(ebb_status status, const char *what)
{
    if (status == NULL)
        return;
    (void)fprintf(stderr, "%s: %s\n", what, ebb_status_text(status));
    abort();
}
