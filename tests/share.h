/* share.h: what a test repeats for long is tried in part; EBB_TEST_ALL=1 asks for all of it.
 *
 *     for (i = 0; i < count; i += share(4))      one in four
 *
 * What takes hours may be counted in parts: EBB_TEST_PART=k/n does every n-th of them, from the k-th on.
 *
 * Sanitizers are slow, so they see every FEWER-th: enough for the code's lines, while the build without
 * them sees more for the results.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1, FEWER = 8 };
#else
enum { SANITIZED = 0, FEWER = 1 };
#endif

static inline unsigned share(unsigned one_in)
{
    const char *all = getenv("EBB_TEST_ALL");
    return all != NULL && all[0] == '1' ? 1 : one_in;
}

static inline bool share_is_here(unsigned i)
{
    const char *part = getenv("EBB_TEST_PART");
    unsigned k = 0, n = 1;
    return part == NULL || sscanf(part, "%u/%u", &k, &n) != 2 || n == 0 || i % n == k;
}
