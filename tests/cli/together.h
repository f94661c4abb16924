/* together.h: what the tests of several processes share. */
#pragma once

#include "cli.h"
#include "tests/formatted.h"

#define CLASSES \
    "--data " DIGITS "digits.npz --map label=target --loss cross-entropy --seed 4 --threads 1 "

static inline void same_bytes(const char *a, const char *b, const char *what)
{
    if (run_command(formatted("cmp %s %s 2>&1", a, b)) != 0)
        fail_msg("%s: %s", what, output);
}

static inline long long number_after(const char *key)
{
    const char *at = strstr(output, key);
    long long n = -1;
    if (at == NULL || sscanf(at + strlen(key), "%lld", &n) != 1)
        fail_msg("no number %s in:\n%s", key, output);
    return n;
}
