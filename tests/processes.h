/* processes.h: a test in several processes that share memory. Each is a fork, which ends with the number of
 * what went wrong in it.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include <sys/wait.h>
#include <unistd.h>

#include "kernels/away/group_shared.h"
#include "tests/formatted.h"
#include "tests/test.h"

typedef int each_process(ebb_group *group);

enum { CANNOT_JOIN = 90 };

/* How each of them ended; a rank whose bit `gone` has ends before it joins. */
static inline void run_all(int ranks, uint32_t late_ms, unsigned gone, each_process *what,
                           int ends[])
{
    ebb_shared *shared;
    int descriptor;
    pid_t pids[EBB_GROUP_MOST];
    assert_null(
        ebb_shared_make(&shared, &descriptor, ranks, &(ebb_shared_terms){.late_ms = late_ms}));
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] != 0)
            continue;
        ebb_group *group = NULL;
        (void)setenv(EBB_SHARED_VARIABLE, formatted("%d:%d", descriptor, r), 1);
        if ((gone >> r & 1) != 0)
            _exit(1);
        if (ebb_group_join(&group) != NULL || ebb_group_rank(group) != r ||
            ebb_group_ranks(group) != ranks)
            _exit(CANNOT_JOIN);
        const int end = what(group);
        ebb_group_leave(group);
        _exit(end);
    }
    for (int r = 0, status; r < ranks; r++) {
        if ((gone >> r & 1) == 0)
            continue;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        ebb_shared_ended(shared, r, true);
    }
    for (int r = 0, status; r < ranks; r++) {
        if ((gone >> r & 1) != 0)
            continue;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        ends[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    ebb_shared_drop(shared, descriptor, ranks);
}

static inline void all_are_right(int ranks, each_process *what)
{
    int ends[EBB_GROUP_MOST] = {0};
    run_all(ranks, 60000, 0, what, ends);
    for (int r = 0; r < ranks; r++)
        if (ends[r] != 0)
            fail_msg("rank %d of %d: its check %d failed", r, ranks, ends[r]);
}
