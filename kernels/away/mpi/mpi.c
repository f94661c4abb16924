/* mpi.c: the words of one MPI, compiled by its own compiler: libebb_mpi_openmpi.so, libebb_mpi_mpich.so.
 *
 * Messages are posted and asked for in turns, so that a process which never comes is named instead of waited
 * for; between turns it sleeps, so that two on one processor let each other work.
 */
#include "kernels/away/group_mpi.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TURNS = 20, GRACE_S = 3 };

static MPI_Comm world;
static MPI_Win shared = MPI_WIN_NULL;
static int rank_here, rank_count, *said_here;
static char text[MPI_MAX_ERROR_STRING + 32];

static const char *error_of(int code)
{
    int length;
    if (code == MPI_SUCCESS)
        return NULL;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        (void)snprintf(text, sizeof text, "MPI's error %d", code);
    return text;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest(int turns)
{
    const struct timespec pause = {.tv_nsec = 50000};
    if (turns >= TURNS) // yielding instead would come behind all that others do on this processor
        (void)nanosleep(&pause, NULL);
}

/* ---- joining ---- */

/* One number that the processes of a machine share, where they all are on one. */
static int share_number(void)
{
    MPI_Comm near;
    int count = 0, own, unit, code;
    MPI_Aint bytes;
    code = MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    if (code != MPI_SUCCESS)
        return code;
    (void)MPI_Comm_size(near, &count);
    (void)MPI_Comm_rank(near, &own);
    if (count == rank_count) {
        code = MPI_Win_allocate_shared(own == 0 ? (MPI_Aint)sizeof(int) : 0, sizeof(int),
                                       MPI_INFO_NULL, near, &said_here, &shared);
        if (code == MPI_SUCCESS)
            code = MPI_Win_shared_query(shared, 0, &bytes, &unit, &said_here);
        if (code == MPI_SUCCESS && own == 0)
            *said_here = 0;
        if (code == MPI_SUCCESS)
            code = MPI_Barrier(near);
    }
    (void)MPI_Comm_free(&near);
    return code;
}

static const char *join(int *rank, int *ranks)
{
    int level = 0, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS)
        return error_of(code);
    if (level < MPI_THREAD_SERIALIZED)
        return "it lets one thread alone send";
    code = MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (code != MPI_SUCCESS)
        return error_of(code);
    (void)MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    (void)MPI_Comm_size(world, &rank_count);
    (void)MPI_Comm_rank(world, &rank_here);
    *rank = rank_here;
    *ranks = rank_count;
    return error_of(share_number());
}

static int *said(void)
{
    return said_here;
}

/* ---- exchanging ---- */

/* Until all are done; -1, or the first whose message has not come. */
static int wait_for(MPI_Request *from, MPI_Request *to, double seconds, int *code)
{
    MPI_Status each[EBB_GROUP_MOST];
    const double until = now() + seconds;
    for (int turns = 0;; turns++) {
        int received = 0, sent = 0;
        *code = MPI_Testall(rank_count, from, &received, each);
        if (*code == MPI_SUCCESS)
            *code = MPI_Testall(rank_count, to, &sent, each);
        if (*code != MPI_SUCCESS || (received && sent))
            return -1;
        if (now() > until)
            break;
        rest(turns);
    }
    for (int r = 0; r < rank_count; r++) {
        int is_done = 1;
        if (from[r] != MPI_REQUEST_NULL)
            *code = MPI_Test(&from[r], &is_done, MPI_STATUS_IGNORE);
        if (!is_done)
            return r;
    }
    return rank_here == 0 ? rank_count - 1 : 0; // who does not take what is sent
}

static const char *exchange(const void *send, size_t stride, void *receive, size_t bytes,
                            double seconds, int *late)
{
    MPI_Request from[EBB_GROUP_MOST], to[EBB_GROUP_MOST];
    const int count = (int)bytes; // at most EBB_GROUP_PIECE
    int code = MPI_SUCCESS;
    for (int r = 0; r < rank_count; r++)
        from[r] = to[r] = MPI_REQUEST_NULL;
    memcpy((char *)receive + (size_t)rank_here * bytes,
           (const char *)send + (size_t)rank_here * stride, bytes);
    for (int k = 1; k < rank_count && code == MPI_SUCCESS; k++) {
        const int r = (rank_here + k) % rank_count;
        code =
            MPI_Irecv((char *)receive + (size_t)r * bytes, count, MPI_BYTE, r, 0, world, &from[r]);
    }
    for (int k = 1; k < rank_count && code == MPI_SUCCESS; k++) {
        const int r = (rank_here + k) % rank_count;
        code = MPI_Isend((const char *)send + (size_t)r * stride, count, MPI_BYTE, r, 0, world,
                         &to[r]);
    }
    *late = -1;
    if (code == MPI_SUCCESS)
        *late = wait_for(from, to, seconds, &code);
    return error_of(code);
}

static MPI_Datatype type_of(int dtype)
{
    switch (dtype) {
    case EBB_F32:
        return MPI_FLOAT;
    case EBB_F64:
        return MPI_DOUBLE;
    default:
        return dtype == EBB_I32 ? MPI_INT32_T : MPI_INT64_T;
    }
}

/* All have said that they are here. */
static const char *sum(const void *from, void *to, size_t count, int dtype, double seconds)
{
    MPI_Request all;
    int is_done = 0;
    const double until = now() + seconds;
    int code = MPI_Iallreduce(from == to ? MPI_IN_PLACE : from, to, (int)count, type_of(dtype),
                              MPI_SUM, world, &all);
    for (int turns = 0; code == MPI_SUCCESS && !is_done; turns++) {
        code = MPI_Test(&all, &is_done, MPI_STATUS_IGNORE);
        if (!is_done && now() > until)
            return "a process stands still in the midst of MPI's sum";
        if (!is_done)
            rest(turns);
    }
    return error_of(code);
}

/* ---- leaving ---- */

/* Where not all come, one has failed: its launcher ends the others when this process has ended without
 * MPI's last word. */
static void leave(void)
{
    MPI_Request all;
    int is_here = 0, is_ready = 0;
    if (MPI_Initialized(&is_ready) != MPI_SUCCESS || !is_ready || rank_count == 0)
        return;
    if (MPI_Ibarrier(world, &all) != MPI_SUCCESS)
        return;
    const double until = now() + GRACE_S;
    for (int turns = 0; !is_here && now() < until; turns++) {
        if (MPI_Test(&all, &is_here, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        if (!is_here)
            rest(turns);
    }
    if (!is_here)
        return;
    if (shared != MPI_WIN_NULL)
        (void)MPI_Win_free(&shared);
    (void)MPI_Comm_free(&world);
    (void)MPI_Finalize();
}

__attribute__((visibility("default"))) extern const ebb_mpi ebb_mpi_table;
const ebb_mpi ebb_mpi_table = {.version = EBB_MPI_VERSION,
                               .join = join,
                               .exchange = exchange,
                               .sum = sum,
                               .said = said,
                               .leave = leave};
