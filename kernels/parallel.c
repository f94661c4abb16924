/* parallel.c: see parallel.h. */
#include "kernels/parallel.h"

#if defined(_OPENMP)
#include <omp.h>
#include <stdlib.h>

static int most_threads(void)
{
    int limit = omp_get_thread_limit();
    return limit < EBB_MOST_THREADS ? limit : EBB_MOST_THREADS;
}

/* As OpenMP itself begins: OMP_NUM_THREADS, of which the first number is meant here, else one a
 * processor. What the calling thread has set since is its own affair. */
static int usual(void)
{
    const char *asked = getenv("OMP_NUM_THREADS");
    long count = asked != NULL ? strtol(asked, NULL, 10) : 0;
    const int most = most_threads();
    if (count < 1)
        count = omp_get_num_procs();
    return count < most ? (int)count : most;
}

/* A team that OpenMP makes smaller than it was asked for (`dynamic`) would leave work undone. */
ebb_threads_before ebb_threads_enter(int count)
{
    const ebb_threads_before before = {omp_get_max_threads(), omp_get_dynamic()};
    omp_set_dynamic(0);
    omp_set_num_threads(count > 0 ? count : usual());
    return before;
}

void ebb_threads_leave(ebb_threads_before before)
{
    omp_set_dynamic(before.dynamic);
    omp_set_num_threads(before.count);
}

int ebb_threads(void)
{
    return omp_get_max_threads();
}
#else
static int usual(void)
{
    return 1;
}

ebb_threads_before ebb_threads_enter(int count)
{
    (void)count;
    return (ebb_threads_before){1, 0};
}

void ebb_threads_leave(ebb_threads_before before)
{
    (void)before;
}

int ebb_threads(void)
{
    return 1;
}

static int most_threads(void)
{
    return EBB_MOST_THREADS;
}
#endif

ebb_status ebb_threads_read(int *count, int asked)
{
    *count = asked > 0 ? asked : usual();
    return asked <= most_threads()
               ? NULL
               : ebb_error(EBB_USAGE, "%d threads are more than the %d that there can be", asked,
                           most_threads());
}
