/* choose.c: rounds of trials, and the first candidate that is nearly the fastest. */
#include "kernels/cuda/library/choose.h"

#include <stdbool.h>

int ebb_choose(int count, ebb_choose_trial trial, void *context)
{
    int64_t best[EBB_CHOOSE_MOST], least = INT64_MAX;
    bool out[EBB_CHOOSE_MOST] = {false};
    count = count < EBB_CHOOSE_MOST ? count : EBB_CHOOSE_MOST;
    for (int i = 0; i < count; i++)
        best[i] = INT64_MAX;
    for (int round = 0; round <= EBB_CHOOSE_ROUNDS; round++)
        for (int i = 0; i < count; i++) {
            int64_t ns = INT64_MAX;
            if (out[i])
                continue;
            out[i] = trial(context, i, &ns) != NULL;
            if (round > 0 && ns < best[i])
                best[i] = ns;
        }
    for (int i = 0; i < count; i++)
        if (!out[i] && best[i] < least)
            least = best[i];
    for (int i = 0; i < count; i++)
        if (!out[i] && best[i] <= least + least / 20)
            return i;
    return -1;
}
