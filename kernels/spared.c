/* spared.c: a count of the thread's own, as calls of other programs may run beside. */
#include "kernels/spared.h"

static _Thread_local double spared;

void ebb_spare(double operations)
{
    spared += operations;
}

double ebb_spared(void)
{
    const double all = spared;
    spared = 0;
    return all;
}
