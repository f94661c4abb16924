/* walks.h: what tests of walks have in common: a walk, planned and judged. */
#pragma once

#include <math.h>

#include "tests/owned.h"
#include "tests/test.h"
#include "tests/walk_simulate.h"

#define OK(call) assert_null(call)

typedef ebb_status (*method)(ebb_walk *, const ebb_course *, double *);

/* The walk is legal, keeps to its slots, and takes the time that its method says. */
static inline walk_count walked(method plan, const ebb_course *c)
{
    OWNED_ARENA arena = {0};
    ebb_walk walk = {.arena = &arena};
    walk_count count;
    double cost;
    OK(plan(&walk, c, &cost));
    ebb_status status = simulated(&count, c, &walk);
    if (status != NULL)
        print_error("%s\n", ebb_status_text(status));
    OK(status);
    assert_true(fabs(count.time - cost) <= 1e-9 * cost);
    return count;
}

/* steps counts as in the published recurrences: those before the last. */
static inline ebb_course course_of(uint32_t steps, uint32_t fast, uint32_t slow, double write,
                                   double read)
{
    return (ebb_course){.steps = steps + 1,
                        .forward = 1,
                        .backward = 1,
                        .level = {{fast, 0, 0}, {slow, write, read}},
                        .level_count = slow > 0 ? 2 : 1,
                        .buffers = 2};
}
