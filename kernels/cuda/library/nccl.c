/* nccl.c: see nccl.h. */
#include "kernels/cuda/library/nccl.h"

#include "kernels/cuda/library/find_library.h"
#include "kernels/cuda/library/nccl_abi.h"
#include "kernels/cuda/runtime.h"
#include "onnx/words/arena.h"
#include "onnx/words/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct ebb_nccl {
    void *comm; /* NULL: it was given up */
    ebb_group *group;
    uint64_t exchanges, sent_bytes; /* of a step */
};

/* ---- the library ---- */

enum { OLDEST = 20900 }; /* whose calls can be recorded */

#define PLACE(name, result, parameters) ebb_nccl_##name *name;
static struct {
    EBB_NCCL_FUNCTIONS(PLACE)
} nccl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char trouble[512];
static int version;

static void look_up(void *library, const char *name, void *place)
{
    if (!ebb_library_symbol(library, name, place) && trouble[0] == 0)
        (void)snprintf(trouble, sizeof trouble, "the NCCL that was opened has no %s", name);
}

static void open_library(void)
{
    char why[400] = "";
    void *library = ebb_library_find("EBB_NCCL", "libnccl.so.2", why, sizeof why);
    if (library == NULL) {
        (void)snprintf(trouble, sizeof trouble, "NCCL 2 cannot be opened: %s", why);
        return;
    }
#define LOOK_UP(name, result, parameters) look_up(library, "nccl" #name, &nccl.name);
    EBB_NCCL_FUNCTIONS(LOOK_UP)
    if (trouble[0] == 0 &&
        (nccl.GetVersion(&version) != EBB_NCCL_SUCCESS || version < OLDEST || version >= 30000))
        (void)snprintf(trouble, sizeof trouble,
                       "the NCCL that was opened has the number %d, and version 2, from 2.9 on, is "
                       "needed",
                       version);
}

static ebb_status be_open(void)
{
    (void)pthread_once(&once, open_library);
    if (trouble[0] == 0)
        return NULL;
    return ebb_hint(
        ebb_error(EBB_DEVICE, "processes with a GPU each exchange by NCCL: %s", trouble),
        "install it (libnccl2, or pip's nvidia-nccl-cu13), or name its file in EBB_NCCL; "
        "--backend cpu needs none");
}

void ebb_nccl_library(char *text, size_t size)
{
    char number[48];
    const bool is_there = be_open() == NULL;
    (void)snprintf(number, sizeof number, "%d.%d.%d", version / 10000, version / 100 % 100,
                   version % 100);
    ebb_library_list(text, size, is_there ? "NCCL" : "NCCL 2", is_there ? number : NULL, trouble);
}

static ebb_status check(int result, const char *what)
{
    if (result == EBB_NCCL_SUCCESS)
        return NULL;
    return ebb_hint(ebb_error(EBB_RUNTIME, "NCCL: %s: %s", what, nccl.GetErrorString(result)),
                    "NCCL_DEBUG=WARN tells more; each process needs a GPU to itself");
}

/* ---- a communicator ---- */

ebb_status ebb_nccl_open(ebb_nccl **made, ebb_group *group, const char *what)
{
    ebb_nccl_id own, all[EBB_GROUP_MOST];
    *made = NULL;
    memset(&own, 0, sizeof own);
    EBB_TRY(be_open());
    if (group->rank == 0)
        EBB_TRY(check(nccl.GetUniqueId(&own), "beginning"));
    EBB_TRY(
        group->transport->exchange(group->context, EBB_ALL_GATHER, &own, all, sizeof own, what));
    ebb_nccl *n = (ebb_nccl *)ebb_alloc(sizeof *n);
    EBB_GOT(n);
    memset(n, 0, sizeof *n);
    n->group = group;
    const int result = nccl.CommInitRank(&n->comm, group->ranks, all[0], group->rank);
    if (result == EBB_NCCL_SUCCESS)
        return *made = n, NULL;
    ebb_free(n);
    return check(result, "joining the other processes");
}

void ebb_nccl_close(ebb_nccl *n)
{
    if (n == NULL)
        return;
    if (n->comm != NULL)
        (void)nccl.CommDestroy(n->comm);
    ebb_free(n);
}

void ebb_nccl_give_up(ebb_nccl *n)
{
    if (n->comm != NULL)
        (void)nccl.CommAbort(n->comm); // ends what waits on the device
    n->comm = NULL;
}

/* ---- an exchange ---- */

/* To all and from all at once, since NCCL sends nothing that nobody takes. */
static int all_to_all(const ebb_nccl *n, void *stream, const char *from, char *to, size_t block)
{
    int result = nccl.GroupStart();
    for (int r = 0; r < n->group->ranks && result == EBB_NCCL_SUCCESS; r++) {
        const size_t at = (size_t)r * block;
        result = nccl.Send(from + at, block, EBB_NCCL_UINT8, r, n->comm, stream);
        if (result == EBB_NCCL_SUCCESS)
            result = nccl.Recv(to + at, block, EBB_NCCL_UINT8, r, n->comm, stream);
    }
    const int end = nccl.GroupEnd();
    return result != EBB_NCCL_SUCCESS ? result : end;
}

ebb_status ebb_nccl_exchange(ebb_nccl *n, void *stream, ebb_group_verb verb, const void *from,
                             void *to, size_t block)
{
    if (n->comm == NULL)
        return ebb_error(EBB_RUNTIME, "NCCL: an earlier exchange has failed");
    n->exchanges++;
    n->sent_bytes += (uint64_t)block * (uint64_t)(n->group->ranks - 1);
    if (verb == EBB_ALL_TO_ALL)
        return check(all_to_all(n, stream, (const char *)from, (char *)to, block), "exchanging");
    return check(nccl.AllGather(from, to, block, EBB_NCCL_UINT8, n->comm, stream), "gathering");
}

/* Counted as what the order of ranks takes (kernels/away/group.c). */
ebb_status ebb_nccl_sum(ebb_nccl *n, void *stream, const void *from, void *to, size_t count,
                        int dtype)
{
    const uint64_t ranks = (uint64_t)n->group->ranks;
    const bool is_wide = dtype == EBB_F64 || dtype == EBB_I64;
    const int type = dtype == EBB_F32   ? EBB_NCCL_FLOAT32
                     : dtype == EBB_F64 ? EBB_NCCL_FLOAT64
                     : dtype == EBB_I32 ? EBB_NCCL_INT32
                                        : EBB_NCCL_INT64;
    if (n->comm == NULL)
        return ebb_error(EBB_RUNTIME, "NCCL: an earlier exchange has failed");
    n->exchanges += 2;
    n->sent_bytes += 2 * (ranks - 1) * ((count + ranks - 1) / ranks) * (is_wide ? 8 : 4);
    return check(nccl.AllReduce(from, to, count, type, EBB_NCCL_SUM, n->comm, stream), "adding");
}

/* ---- a step ---- */

void ebb_nccl_begin(ebb_nccl *n)
{
    n->exchanges = n->sent_bytes = 0;
}

static double now(void)
{
    return 1e-9 * (double)ebb_now_ns();
}

/* Has what was enqueued come to nothing? */
static ebb_status trouble_of(const ebb_nccl *n, double until)
{
    int result = EBB_NCCL_SUCCESS;
    EBB_TRY(check(nccl.CommGetAsyncError(n->comm, &result), "asking it"));
    EBB_TRY(check(result, "exchanging with the other processes"));
    if (now() < until)
        return NULL;
    return ebb_error(
        EBB_RUNTIME,
        "the other processes did not come within %g s (--late, under MPI $EBB_LATE) to "
        "what this step exchanges: one is at something else, or stands still",
        n->group->late_s);
}

ebb_status ebb_nccl_wait(ebb_nccl *n, void *stream)
{
    const struct timespec pause = {0, 20000};
    const double until = now() + n->group->late_s;
    bool is_done = false;
    while (n->comm != NULL) {
        ebb_status status = ebb_gpu_done(stream, &is_done);
        if (status == NULL)
            status = trouble_of(n, is_done ? until + 1e9 : until);
        if (status != NULL) {
            ebb_nccl_give_up(n);
            return status;
        }
        if (is_done)
            break;
        (void)nanosleep(&pause, NULL);
    }
    EBB_TRY(ebb_gpu_wait(stream));
    n->group->exchanges += n->exchanges;
    n->group->sent_bytes += n->sent_bytes;
    return NULL;
}
