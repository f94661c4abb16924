/* fake_nccl.c: a libnccl.so.2 for processes of one machine without GPUs: the calls of nccl_abi.h over memory that
 * they share, for operands that the host reaches, as those of fake_runtime.c are. What is enqueued it gives to the
 * stream as work of the host, by the runtime that $EBB_CUDA_PLUGIN names.
 *
 * Where NCCL would wait for ever, it says what is wrong: before bytes move, each tells which call it is at; where
 * two differ, both say so on stderr and the communicator has failed. The memory has no name, and goes with them.
 *
 *     EBB_FAKE_NCCL=old           a version from before calls could be recorded
 *                   refuses       there is no joining
 *                   stuck:R:N     rank R does not come to its exchange N, from 1: nobody's streams end
 *                   differs:R:N   rank R is at another one
 */
#define _GNU_SOURCE // memfd_create
#include "kernels/cuda/host/fake_runtime.h"
#include "kernels/cuda/library/nccl_abi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

enum { MOST = 64, ROOM = 1 << 20, SYSTEM_ERROR = 2, USAGE_ERROR = 5, REMOTE_ERROR = 6 };
enum { PATIENCE_MS = 60000, STUCK_MS = 300 };

typedef struct post { /* where a rank is */
    uint64_t turn, bytes;
    uint32_t kind;
} post;

typedef struct shared {
    uint32_t joined;
    uint64_t arrived[MOST];
    post posts[MOST];
    unsigned char room[MOST][ROOM];
} shared;

typedef struct call { /* as a record keeps it */
    struct call *next;
    struct comm *comm;
    cudaStream_t stream;
    uint32_t kind;
    size_t bytes;
    int dtype;              /* of a sum */
    const void *from[MOST]; /* of a gather or a sum: one */
    void *to[MOST];
} call;

typedef struct comm {
    struct comm *next;
    shared *memory;
    int rank, ranks, result;
    uint64_t turn, barriers;
    call *calls;
} comm;

enum { GATHER = 1, TO_ALL = 2, SUM = 3 };

static bool is_open;     /* a group, */
static call *open_group; /* and what is in it */
static comm *given_up;

/* ---- the runtime ---- */

static void *in_runtime(const char *name)
{
    const char *file = getenv("EBB_CUDA_PLUGIN");
    void *library = file != NULL ? dlopen(file, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *found = library != NULL ? dlsym(library, name) : NULL;
    if (found == NULL) {
        (void)fprintf(stderr, "fake NCCL: $EBB_CUDA_PLUGIN has no %s\n", name);
        abort();
    }
    return found;
}

static void be_stuck(bool stuck)
{
    ((ebb_fake_runtime *)in_runtime("ebb_fake"))->stuck = stuck;
}

/* Is this process told to do so at this exchange? N of 0: at any. */
static bool is_told(const char *word, const comm *c, uint64_t turn)
{
    const char *told = getenv("EBB_FAKE_NCCL");
    const size_t length = strlen(word);
    int rank = -1, at = 0;
    if (told == NULL || strncmp(told, word, length) != 0)
        return false;
    if (told[length] == '\0')
        return true;
    return sscanf(told + length, ":%d:%d", &rank, &at) == 2 &&
           (c == NULL || (rank == c->rank && (uint64_t)at == turn));
}

/* ---- exchanging ---- */

/* Until all are here; false: they do not come. */
static bool meet(comm *c)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const long looks = (is_told("stuck", NULL, 0) ? STUCK_MS : PATIENCE_MS) * 10L;
    __atomic_store_n(&c->memory->arrived[c->rank], ++c->barriers, __ATOMIC_SEQ_CST);
    for (long look = 0; look < looks; look++) {
        int here = 0;
        for (int r = 0; r < c->ranks; r++)
            here += __atomic_load_n(&c->memory->arrived[r], __ATOMIC_SEQ_CST) >= c->barriers;
        if (here == c->ranks)
            return true;
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

static bool differs(const comm *c)
{
    const post *own = &c->memory->posts[c->rank];
    for (int r = 0; r < c->ranks; r++) {
        const post *p = &c->memory->posts[r];
        if (p->turn == own->turn && p->bytes == own->bytes && p->kind == own->kind)
            continue;
        (void)fprintf(
            stderr,
            "fake NCCL: rank %d is at exchange %llu, kind %u of %llu bytes, and rank %d at "
            "%llu, kind %u of %llu\n",
            c->rank, (unsigned long long)own->turn, own->kind, (unsigned long long)own->bytes, r,
            (unsigned long long)p->turn, p->kind, (unsigned long long)p->bytes);
        return true;
    }
    return false;
}

/* From the last rank down: another order than ours. */
#define ADD(type)                                                  \
    for (size_t i = 0; i < k->bytes / sizeof(type); i++) {         \
        type s = ((const type *)c->memory->room[c->ranks - 1])[i]; \
        for (int r = c->ranks - 2; r >= 0; r--)                    \
            s += ((const type *)c->memory->room[r])[i];            \
        ((type *)k->to[0])[i] = s;                                 \
    }
static void add(const comm *c, const call *k)
{
    if (k->dtype == EBB_NCCL_FLOAT32) {
        ADD(float)
    } else if (k->dtype == EBB_NCCL_FLOAT64) {
        ADD(double)
    } else if (k->dtype == EBB_NCCL_INT32) {
        ADD(uint32_t)
    } else {
        ADD(uint64_t)
    }
}

static void carry_out(void *context)
{
    const call *k = context;
    comm *c = k->comm;
    if (c->result != 0)
        return;
    c->turn++;
    if (is_told("stuck", c, c->turn)) {
        be_stuck(true);
        c->result = -1;
        return;
    }
    c->memory->posts[c->rank] = (post){c->turn, k->bytes + is_told("differs", c, c->turn), k->kind};
    for (int r = 0; r < (k->kind == TO_ALL ? c->ranks : 1); r++)
        memcpy(c->memory->room[c->rank] + (size_t)r * k->bytes, k->from[r], k->bytes);
    if (!meet(c)) {
        be_stuck(true);
        c->result = -1;
        return;
    }
    if (differs(c)) {
        c->result = REMOTE_ERROR;
        return;
    }
    for (int r = 0; r < (k->kind == SUM ? 0 : c->ranks); r++) {
        const size_t at = k->kind == GATHER ? 0 : (size_t)c->rank * k->bytes;
        char *to = k->kind == GATHER ? (char *)k->to[0] + (size_t)r * k->bytes : k->to[r];
        memcpy(to, c->memory->room[r] + at, k->bytes);
    }
    if (k->kind == SUM)
        add(c, k);
    (void)meet(c); // all have read
}

static int enqueue(call *k)
{
    cudaError_t (*launch)(cudaStream_t, cudaHostFn_t, void *);
    void *found = in_runtime("cudaLaunchHostFunc");
    memcpy(&launch, &found, sizeof launch);
    k->next = k->comm->calls;
    k->comm->calls = k;
    return launch(k->stream, carry_out, k) == cudaSuccess ? 0 : SYSTEM_ERROR;
}

static call *new_call(comm *c, cudaStream_t stream, uint32_t kind, size_t bytes)
{
    call *k = calloc(1, sizeof *k);
    if (k != NULL)
        *k = (call){.comm = c, .stream = stream, .kind = kind, .bytes = bytes};
    return k;
}

/* ---- NCCL's names ---- */

SHOWN int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    *version = is_told("old", NULL, 0) ? 2708 : 22809;
    return 0;
}

SHOWN const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result)
{
    return result == REMOTE_ERROR ? "remote process error" : "it is broken";
}

SHOWN int ncclGetUniqueId(ebb_nccl_id *id);
int ncclGetUniqueId(ebb_nccl_id *id)
{
    const int descriptor = memfd_create("fake-nccl", 0);
    if (descriptor < 0 || ftruncate(descriptor, sizeof(shared)) != 0)
        return SYSTEM_ERROR;
    (void)snprintf(id->bytes, sizeof id->bytes, "/proc/%d/fd/%d", (int)getpid(), descriptor);
    return 0;
}

SHOWN int ncclCommInitRank(void **made, int ranks, ebb_nccl_id id, int rank);
int ncclCommInitRank(void **made, int ranks, ebb_nccl_id id, int rank)
{
    const int descriptor = is_told("refuses", NULL, 0) ? -1 : open(id.bytes, O_RDWR | O_CLOEXEC);
    comm *c = calloc(1, sizeof *c);
    *made = NULL;
    if (descriptor < 0 || c == NULL || ranks > MOST)
        return free(c), USAGE_ERROR;
    c->memory = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    (void)close(descriptor);
    if (c->memory == MAP_FAILED)
        return free(c), SYSTEM_ERROR;
    c->rank = rank;
    c->ranks = ranks;
    *made = c;
    return meet(c) ? 0 : SYSTEM_ERROR;
}

SHOWN int ncclCommDestroy(void *comm_made);
int ncclCommDestroy(void *comm_made)
{
    comm *c = comm_made;
    for (call *k = c->calls, *next; k != NULL; k = next) {
        next = k->next;
        free(k);
    }
    (void)munmap(c->memory, sizeof(shared));
    free(c);
    return 0;
}

/* Its calls stay: what is recorded may name them. */
SHOWN int ncclCommAbort(void *comm_made);
int ncclCommAbort(void *comm_made)
{
    comm *c = comm_made;
    c->result = SYSTEM_ERROR;
    c->next = given_up;
    given_up = c;
    be_stuck(false);
    return 0;
}

SHOWN int ncclCommGetAsyncError(void *comm_made, int *result);
int ncclCommGetAsyncError(void *comm_made, int *result)
{
    const comm *c = comm_made;
    *result = c->result > 0 ? c->result : 0;
    return 0;
}

SHOWN int ncclAllGather(const void *from, void *to, size_t count, int dtype, void *comm_made,
                        void *stream);
int ncclAllGather(const void *from, void *to, size_t count, int dtype, void *comm_made,
                  void *stream)
{
    call *k = new_call(comm_made, stream, GATHER, count);
    if (k == NULL || is_open || dtype != EBB_NCCL_UINT8 || count > ROOM)
        return free(k), USAGE_ERROR;
    k->from[0] = from;
    k->to[0] = to;
    return enqueue(k);
}

SHOWN int ncclAllReduce(const void *from, void *to, size_t count, int dtype, int op,
                        void *comm_made, void *stream);
int ncclAllReduce(const void *from, void *to, size_t count, int dtype, int op, void *comm_made,
                  void *stream)
{
    const bool is_wide = dtype == EBB_NCCL_FLOAT64 || dtype == EBB_NCCL_INT64;
    call *k = new_call(comm_made, stream, SUM, count * (is_wide ? 8 : 4));
    if (k == NULL || is_open || op != EBB_NCCL_SUM || dtype == EBB_NCCL_UINT8 || k->bytes > ROOM)
        return free(k), USAGE_ERROR;
    k->dtype = dtype;
    k->from[0] = from;
    k->to[0] = to;
    return enqueue(k);
}

SHOWN int ncclGroupStart(void);
int ncclGroupStart(void)
{
    if (is_open)
        return USAGE_ERROR;
    is_open = true;
    return 0;
}

/* One of each to and from every rank, all of as many bytes. */
static int add_to_group(void *comm_made, void *stream, int peer, const void *from, void *to,
                        size_t count)
{
    const comm *c = comm_made;
    if (!is_open || peer < 0 || peer >= c->ranks || count * (size_t)c->ranks > ROOM)
        return USAGE_ERROR;
    if (open_group == NULL)
        open_group = new_call(comm_made, stream, TO_ALL, count);
    call *k = open_group;
    if (k == NULL || k->bytes != count || k->stream != (cudaStream_t)stream)
        return USAGE_ERROR;
    if (from != NULL)
        k->from[peer] = from;
    else
        k->to[peer] = to;
    return 0;
}

SHOWN int ncclSend(const void *from, size_t count, int dtype, int peer, void *comm_made,
                   void *stream);
int ncclSend(const void *from, size_t count, int dtype, int peer, void *comm_made, void *stream)
{
    return dtype != EBB_NCCL_UINT8 ? USAGE_ERROR
                                   : add_to_group(comm_made, stream, peer, from, NULL, count);
}

SHOWN int ncclRecv(void *to, size_t count, int dtype, int peer, void *comm_made, void *stream);
int ncclRecv(void *to, size_t count, int dtype, int peer, void *comm_made, void *stream)
{
    return dtype != EBB_NCCL_UINT8 ? USAGE_ERROR
                                   : add_to_group(comm_made, stream, peer, NULL, to, count);
}

SHOWN int ncclGroupEnd(void);
int ncclGroupEnd(void)
{
    call *k = open_group;
    if (!is_open)
        return USAGE_ERROR;
    is_open = false;
    open_group = NULL;
    for (int r = 0; k != NULL && r < k->comm->ranks; r++)
        if (k->from[r] == NULL || k->to[r] == NULL)
            return free(k), USAGE_ERROR;
    return k != NULL ? enqueue(k) : 0;
}
