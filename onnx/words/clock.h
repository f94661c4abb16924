/* clock.h: a clock that nobody sets, for how long something takes. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t ebb_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
