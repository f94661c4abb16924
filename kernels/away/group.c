/* group.c: what a group does whatever its transport is. */
#include "kernels/away/group.h"

#include "kernels/away/group_mpi.h"
#include "kernels/away/group_shared.h"
#include "kernels/parallel.h"
#include "onnx/words/arena.h"
#include "onnx/words/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- joining ---- */

/* Each process of a machine has a GPU to itself: that of its place among them, of those that it may see. Before CUDA
 * is asked for the first time. Who has left it one alone, or fewer than processes, is not contradicted. */
static void choose_gpu(int place)
{
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");
    char own[64];
    (void)snprintf(own, sizeof own, "%d", place);
    if (seen != NULL) {
        if (strchr(seen, ',') == NULL)
            return;
        for (; place > 0 && seen != NULL; place--)
            seen = strchr(seen, ',') != NULL ? strchr(seen, ',') + 1 : NULL;
        if (seen == NULL)
            return;
        (void)snprintf(own, sizeof own, "%.*s", (int)strcspn(seen, ","), seen);
    }
    if (place >= 0)
        (void)setenv("CUDA_VISIBLE_DEVICES", own, 1);
}

/* Processes of a machine share its processors, unless who started them has said how many threads each has, or bound each to
 * its own. */
static void share_processors(int processes)
{
    char threads[32];
    int own;
    if (processes < 1) // the launcher does not say
        return;
    const long all = sysconf(_SC_NPROCESSORS_ONLN), each = processes < all ? all / processes : 1;
    (void)snprintf(threads, sizeof threads, "%ld", each);
    if (getenv("OMP_NUM_THREADS") == NULL && ebb_threads_read(&own, 0) == NULL && own > each)
        (void)setenv("OMP_NUM_THREADS", threads, 0);
}

EBB_API ebb_status ebb_group_join(ebb_group **group)
{
    EBB_NEED(group);
    *group = NULL;
    const char *where = getenv(EBB_SHARED_VARIABLE);
    if (where == NULL && !ebb_mpi_is_here())
        return NULL;
    if (where != NULL && ebb_mpi_processes() > 1)
        return ebb_hint(ebb_error(EBB_USAGE, "both `ebb launch` and an MPI have started this "
                                             "process: it would be of two groups"),
                        "start them once: by mpirun, or by one `ebb launch -n` of all");
    ebb_group *g = ebb_alloc(sizeof *g);
    EBB_GOT(g);
    ebb_status status = where != NULL ? ebb_shared_join(g, where) : ebb_mpi_join(g);
    if (status == NULL) {
        int here = g->ranks;
        choose_gpu(where != NULL ? g->rank : ebb_mpi_place(&here));
        share_processors(here);
        *group = g;
    } else {
        ebb_free(g);
    }
    (void)unsetenv(EBB_SHARED_VARIABLE); // what this process starts is no member
    return status;
}

EBB_API void ebb_group_leave(ebb_group *group)
{
    if (group == NULL)
        return;
    group->transport->close(group->context);
    ebb_free(group);
}

EBB_API int ebb_group_rank(const ebb_group *group)
{
    return group != NULL ? group->rank : 0;
}

EBB_API int ebb_group_ranks(const ebb_group *group)
{
    return group != NULL ? group->ranks : 1;
}

EBB_API bool ebb_group_speaks(ebb_group *group)
{
    return group == NULL || group->transport->speaks(group->context);
}

/* ---- exchanging ---- */

ebb_status ebb_group_differ(int rank, const char *what, uint64_t block, int other,
                            const char *others, uint64_t others_block)
{
    return ebb_error(EBB_RUNTIME,
                     "rank %d is at %s (%llu bytes) and rank %d at %s (%llu bytes): all must be "
                     "started with the same files and options",
                     rank, what, (unsigned long long)block, other, others,
                     (unsigned long long)others_block);
}

static ebb_status exchange(ebb_group *group, ebb_group_verb verb, const void *from, void *to,
                           size_t block, const char *what)
{
    if (ebb_group_ranks(group) == 1)
        return memmove(to, from, block), NULL;
    group->exchanges++;
    group->sent_bytes += (uint64_t)block * (uint64_t)(group->ranks - 1);
    return group->transport->exchange(group->context, verb, from, to, block, what);
}

ebb_status ebb_group_all_to_all(ebb_group *group, const void *from, void *to, size_t block,
                                const char *what)
{
    return exchange(group, EBB_ALL_TO_ALL, from, to, block, what);
}

ebb_status ebb_group_all_gather(ebb_group *group, const void *own, void *all, size_t block,
                                const char *what)
{
    return exchange(group, EBB_ALL_GATHER, own, all, block, what);
}

/* Counted as what the order of ranks takes: two exchanges of a block each. */
ebb_status ebb_group_sum(ebb_group *group, const void *from, void *to, size_t count, int dtype,
                         const char *what, bool *done)
{
    *done = group->transport->sum != NULL;
    if (!*done)
        return NULL;
    const uint64_t ranks = (uint64_t)group->ranks;
    group->exchanges += 2;
    group->sent_bytes += 2 * (ranks - 1) * ((count + ranks - 1) / ranks) *
                         (uint64_t)(ebb_dtype_bits((ebb_dtype)dtype) / 8);
    return group->transport->sum(group->context, from, to, count, dtype, what);
}

ebb_status ebb_group_agree(ebb_group *group, const char *what, uint64_t number)
{
    uint64_t all[EBB_GROUP_MOST];
    EBB_TRY(ebb_group_all_gather(group, &number, all, sizeof number, what));
    for (int r = 1; r < ebb_group_ranks(group); r++)
        if (all[r] != all[0])
            return ebb_error(EBB_USAGE,
                             "%s differs between processes: rank 0 has %llx, rank %d has %llx: all "
                             "must be started with the same files and options",
                             what, (unsigned long long)all[0], r, (unsigned long long)all[r]);
    return NULL;
}

ebb_status ebb_group_least(ebb_group *group, const char *what, int64_t *number)
{
    int64_t all[EBB_GROUP_MOST];
    EBB_TRY(ebb_group_all_gather(group, number, all, sizeof *number, what));
    for (int r = 0; r < ebb_group_ranks(group); r++)
        *number = all[r] < *number ? all[r] : *number;
    return NULL;
}
