/* calibrate_link.c: what an exchange between the processes of a group takes.
 *
 * Both verbs of the transport, in sizes from a number to the largest piece; of each the median of its times, since
 * who comes late keeps all waiting now and then. What a message takes and what a byte takes is fitted to them as rates
 * of operators are (rates.c).
 */
#include "exec/look/calibrate_link.h"

#include "kernels/away/group.h"
#include "onnx/words/clock.h"

#include <stdlib.h>

enum { SIZES = 8, TIMES = 31 };

static ebb_status once(ebb_group *group, ebb_group_verb verb, char *from, char *to, size_t block)
{
    return (verb == EBB_ALL_TO_ALL ? ebb_group_all_to_all
                                   : ebb_group_all_gather)(group, from, to, block, "calibration");
}

/* All have arrived at the one before it, so its time is that of the exchange alone. */
static ebb_status median_of(double *ns, ebb_group *group, ebb_group_verb verb, char *memory,
                            size_t block)
{
    double times[TIMES];
    char *to = memory + EBB_GROUP_PIECE;
    EBB_TRY(once(group, verb, memory, to, block));
    for (int i = 0; i < TIMES; i++) {
        const int64_t began = ebb_now_ns();
        EBB_TRY(once(group, verb, memory, to, block));
        times[i] = (double)(ebb_now_ns() - began);
    }
    *ns = ebb_quantile(times, TIMES, 2);
    return NULL;
}

/* Of one of the others: a message, and its bytes. */
static ebb_status sample(ebb_cost_sample samples[2 * SIZES], ebb_group *group, char *memory)
{
    const int ranks = ebb_group_ranks(group);
    for (int i = 0; i < SIZES; i++) {
        const size_t bytes = (EBB_GROUP_PIECE / (size_t)ranks) >> (2 * i);
        const size_t block = bytes > 8 ? bytes / 8 * 8 : 8;
        for (int verb = EBB_ALL_TO_ALL; verb <= EBB_ALL_GATHER; verb++) {
            double ns;
            EBB_TRY(median_of(&ns, group, (ebb_group_verb)verb, memory, block));
            samples[2 * i + verb] =
                (ebb_cost_sample){.ns = ns / (ranks - 1), .bytes = (double)block};
        }
    }
    return NULL;
}

ebb_status ebb_link_time(ebb_link *link, double *error, ebb_group *group, ebb_arena *scratch)
{
    ebb_cost_sample samples[2 * SIZES];
    ebb_cost_rate rate;
    char *memory = ebb_arena_zeroed(scratch, 2, EBB_GROUP_PIECE);
    EBB_GOT(memory);
    EBB_TRY(sample(samples, group, memory));
    EBB_GOT(ebb_rate_fit(&rate, samples, 2 * SIZES));
    /* Where bytes cost nothing that can be seen, as fast as is ever said. */
    *link = (ebb_link){rate.fixed_ns, rate.ns_per_byte > 1e-9 ? rate.ns_per_byte : 1e-9, 0};
    *error = rate.error;
    return NULL;
}
