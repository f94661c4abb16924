/* share.h: what a test repeats for long is tried in part; EBB_TEST_ALL=1 asks for all of it.
 *
 *     for (i = 0; i < count; i += share(4))      one in four
 *
 * Sanitizers are slow, so they see every FEWER-th: enough for the code's lines, while the build without
 * them sees more for the results.
 */
#pragma once

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
