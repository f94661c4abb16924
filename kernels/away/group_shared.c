/* group_shared.c: see group_shared.h. Waiting is a futex, so that processes without a processor of their
 * own cost the others nothing: who yields instead comes behind all that others do on its processor. */
#define _GNU_SOURCE // memfd_create, seals
#include "kernels/away/group_shared.h"

#include "onnx/words/arena.h"
#include "onnx/words/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS = 64, PATIENCE_NS = 20000000, LINE = 64, WHAT = 228 };

static const uint64_t magic = UINT64_C(0x7072672f32626265);

typedef struct post { /* what a rank gives in a turn */
    uint64_t block;
    uint32_t verb;
    char what[WHAT];
} post;

typedef struct member {
    uint64_t arrived; /* turns */
    uint32_t is_taken, has_left;
    post posts[2];
} member;

struct ebb_shared {
    uint64_t magic;
    ebb_shared_terms terms;
    uint64_t came;   /* by a link: to all turns, all ranks */
    int64_t until;   /* by a link: when the last to come meant to wake */
    int64_t late_ns; /* how much later than that a rank has woken: a running median */
    uint32_t tick;   /* a futex: something has changed */
    uint32_t failed; /* 1 + the rank that ended first with an error */
    uint32_t said;
    union {
        member is;
        char room[(sizeof(member) + LINE - 1) / LINE * LINE];
    } member[EBB_GROUP_MOST];
};

enum { HEAD = (sizeof(struct ebb_shared) + 4095) / 4096 * 4096 };

typedef struct side { /* one process's */
    ebb_shared *shared;
    size_t bytes;
    int rank, ranks; /* copied out: the memory is others' too */
    int looks;       /* at who has come, before it sleeps */
    uint64_t turn;
    pthread_t joined; /* who computes */
} side;

static char *half_of(const side *s, int rank, uint64_t turn)
{
    return (char *)s->shared + HEAD +
           ((size_t)rank * 2 + (size_t)(turn & 1)) * (size_t)EBB_GROUP_PIECE;
}

static member *member_of(const side *s, int rank)
{
    return &s->shared->member[rank].is;
}

static size_t bytes_for(int ranks)
{
    return HEAD + (size_t)ranks * 2 * EBB_GROUP_PIECE;
}

/* The size is sealed; what stands in the memory any of them could change. */
static int ranks_in(size_t bytes)
{
    const size_t ranks = (bytes - HEAD) / (2 * (size_t)EBB_GROUP_PIECE);
    return ranks <= EBB_GROUP_MOST ? (int)ranks : -1;
}

static void wake(ebb_shared *shared)
{
    (void)__atomic_add_fetch(&shared->tick, 1, __ATOMIC_SEQ_CST);
    (void)syscall(SYS_futex, &shared->tick, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- waiting ---- */

enum { MS = 1000000, S = 1000000000 }; /* in ns */

/* The first that has not arrived, or -1. */
static int missing(const side *s, uint64_t turn)
{
    for (int r = 0; r < s->ranks; r++)
        if (__atomic_load_n(&member_of(s, r)->arrived, __ATOMIC_SEQ_CST) < turn)
            return r;
    return -1;
}

static ebb_status ended(int rank, const char *what)
{
    return ebb_error(EBB_RUNTIME, "%s: rank %d has ended", what, rank);
}

static ebb_status too_late(const side *s, int rank, const char *what)
{
    return ebb_error(EBB_RUNTIME,
                     "%s: rank %d did not come within %g s (--late): it is at something else, or "
                     "stands still",
                     what, rank, (double)s->shared->terms.late_ms / 1000);
}

static ebb_status wait_for_all(side *s, uint64_t turn, const char *what)
{
    const struct timespec patience = {.tv_nsec = PATIENCE_NS};
    const int64_t until = ebb_now_ns() + (int64_t)s->shared->terms.late_ms * MS;
    for (int tries = 0;; tries++) {
        const uint32_t tick = __atomic_load_n(&s->shared->tick, __ATOMIC_SEQ_CST);
        const int rank = missing(s, turn);
        if (rank < 0)
            return NULL;
        const uint32_t failed = __atomic_load_n(&s->shared->failed, __ATOMIC_ACQUIRE);
        if (failed != 0)
            return ended((int)failed - 1, what);
        if (__atomic_load_n(&member_of(s, rank)->has_left, __ATOMIC_ACQUIRE) != 0 &&
            missing(s, turn) == rank)
            return ended(rank, what);
        if (ebb_now_ns() > until)
            return too_late(s, rank, what);
        if (tries >= s->looks)
            (void)syscall(SYS_futex, &s->shared->tick, FUTEX_WAIT, tick, &patience, NULL, 0);
    }
}

/* ---- a turn ---- */

static void write_post(side *s, ebb_group_verb verb, size_t block, const char *what)
{
    post *p = &member_of(s, s->rank)->posts[s->turn & 1];
    p->block = block;
    p->verb = verb;
    (void)snprintf(p->what, sizeof p->what, "%s", what);
}

/* A copy, since the memory is others' too. */
static post read_post(const side *s, int rank)
{
    post p = member_of(s, rank)->posts[s->turn & 1];
    p.what[WHAT - 1] = '\0';
    return p;
}

static ebb_status compare(const side *s)
{
    const post own = read_post(s, s->rank);
    for (int r = 0; r < s->ranks; r++) {
        const post p = read_post(s, r);
        if (p.verb != own.verb || p.block != own.block || strcmp(p.what, own.what) != 0)
            return ebb_group_differ(s->rank, own.what, own.block, r, p.what, p.block);
    }
    return NULL;
}

static double link_takes(const side *s, size_t block)
{
    const ebb_shared_terms *t = &s->shared->terms;
    const double takes = (s->ranks - 1) * (t->message_ns + (double)block * t->byte_ns);
    return takes > 0 && takes < 1e18 ? takes : 0;
}

/* Until a link would have brought it all. A link takes no processor: so nobody looks at the clock until then, and whom it
 * keeps for no time sets no timer, which costs some microseconds. */
static void sleep_on_link(int64_t over)
{
    const struct timespec at = {.tv_sec = over / S, .tv_nsec = over % S};
    while (ebb_now_ns() < over &&
           clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

/* The others sleep until the last has come. If there is a link, that one waits for all, before it has, until `over`: 0 is
 * without. */
static void arrive(side *s, int64_t over)
{
    const uint64_t turns = s->turn + 1;
    if (over > 0 &&
        __atomic_add_fetch(&s->shared->came, 1, __ATOMIC_SEQ_CST) == turns * (uint64_t)s->ranks) {
        const int64_t now = ebb_now_ns();
        int64_t until = over - __atomic_load_n(&s->shared->late_ns, __ATOMIC_RELAXED);
        until = until > now ? until : now;
        __atomic_store_n(&s->shared->until, until, __ATOMIC_RELAXED);
        sleep_on_link(until);
    }
    __atomic_store_n(&member_of(s, s->rank)->arrived, turns, __ATOMIC_SEQ_CST);
    if (missing(s, turns) < 0)
        wake(s->shared);
}

/* Who sleeps wakes late, by tens of microseconds with whom it wakes: the next turn sleeps so much less. */
static void learn_late(ebb_shared *shared)
{
    enum { STEP_NS = 1000 };
    const int64_t late = ebb_now_ns() - __atomic_load_n(&shared->until, __ATOMIC_RELAXED);
    const bool later = late > __atomic_load_n(&shared->late_ns, __ATOMIC_RELAXED);
    (void)__atomic_add_fetch(&shared->late_ns, later ? STEP_NS : -STEP_NS, __ATOMIC_RELAXED);
}

/* What a link would take is from the first byte given to the last one taken: the copies here are within. */
static ebb_status give_and_take(side *s, ebb_group_verb verb, const void *from, void *to,
                                size_t block, const char *what, double takes)
{
    const bool to_all = verb == EBB_ALL_TO_ALL;
    const size_t given = to_all ? block * (size_t)s->ranks : block;
    if (block > EBB_GROUP_PIECE / (size_t)s->ranks)
        return ebb_error(EBB_RUNTIME, "%s: a block of %zu bytes is more than goes at once", what,
                         block);
    const int64_t began = ebb_now_ns();
    memcpy(half_of(s, s->rank, s->turn), from, given);
    write_post(s, verb, block, what);
    const int64_t copying = (ebb_now_ns() - began) * (to_all ? 1 : s->ranks); // of what is taken
    arrive(s, takes > 0 ? began + (int64_t)takes - copying : 0);
    EBB_TRY(wait_for_all(s, s->turn + 1, what));
    if (takes > 0)
        learn_late(s->shared);
    EBB_TRY(compare(s));
    for (int r = 0; r < s->ranks; r++)
        memcpy((char *)to + (size_t)r * block,
               half_of(s, r, s->turn) + (to_all ? (size_t)s->rank * block : 0), block);
    s->turn++;
    return NULL;
}

/* A link waits for no processor. So who plays one comes before all that computes, where the system lets it: else a
 * thread that wakes may stand behind the step for some milliseconds. */
static bool come_first(int *policy, struct sched_param *before)
{
    const struct sched_param first = {.sched_priority = 1};
    *policy = sched_getscheduler(0);
    return *policy >= 0 && *policy != SCHED_FIFO && sched_getparam(0, before) == 0 &&
           sched_setscheduler(0, SCHED_FIFO, &first) == 0;
}

static ebb_status exchange(void *context, ebb_group_verb verb, const void *from, void *to,
                           size_t block, const char *what)
{
    side *s = context;
    const double takes = link_takes(s, block);
    int policy = SCHED_OTHER;
    struct sched_param before;
    const bool came_first = takes > 0 && come_first(&policy, &before);
    ebb_status status = give_and_take(s, verb, from, to, block, what, takes);
    if (came_first && pthread_equal(pthread_self(), s->joined)) // another only exchanges
        (void)sched_setscheduler(0, policy, &before);
    return status;
}

static bool speaks(void *context)
{
    const side *s = context;
    return __atomic_exchange_n(&s->shared->said, 1, __ATOMIC_SEQ_CST) == 0;
}

static void leave(void *context)
{
    side *s = context;
    (void)munmap(s->shared, s->bytes);
    ebb_free(s);
}

static const ebb_transport transport_shared = {
    .exchange = exchange, .speaks = speaks, .close = leave};

/* ---- joining ---- */

/* Whatever stands in the environment: memory that can neither shrink nor is of another kind. */
static ebb_status look_at(int descriptor, size_t *bytes)
{
    struct stat facts;
    const int seals = fcntl(descriptor, F_GET_SEALS);
    if (fstat(descriptor, &facts) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
        facts.st_size < HEAD)
        return ebb_error(EBB_USAGE,
                         EBB_SHARED_VARIABLE " names no group: start the processes by `ebb "
                                             "launch`");
    *bytes = (size_t)facts.st_size;
    return NULL;
}

static ebb_status check(const ebb_shared *shared, size_t bytes, long rank)
{
    const int ranks = ranks_in(bytes);
    if (shared->magic != magic || ranks < 1 || ranks > EBB_GROUP_MOST || bytes != bytes_for(ranks))
        return ebb_error(EBB_USAGE,
                         EBB_SHARED_VARIABLE ": the memory is of another version of ebb");
    if (rank < 0 || rank >= ranks)
        return ebb_error(EBB_USAGE, EBB_SHARED_VARIABLE ": there is no rank %ld among %d", rank,
                         ranks);
    return NULL;
}

static ebb_status take_rank(side *s, long rank)
{
    s->rank = (int)rank;
    s->ranks = ranks_in(s->bytes);
    if (__atomic_exchange_n(&member_of(s, s->rank)->is_taken, 1, __ATOMIC_SEQ_CST) != 0)
        return ebb_error(EBB_USAGE,
                         "rank %d has begun already: `ebb launch` starts each process "
                         "for one training",
                         s->rank);
    return NULL;
}

/* Looking pays while another computes the last of its part on a processor of its own: not where they share them, and not
 * before a link is over. */
static void choose_wait(side *s)
{
    const bool by_link = s->shared->terms.message_ns > 0 || s->shared->terms.byte_ns > 0;
    s->looks = by_link || s->ranks > sysconf(_SC_NPROCESSORS_ONLN) ? 0 : LOOKS;
    if (by_link)
        (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); // sleeps are as long as asked
}

ebb_status ebb_shared_join(ebb_group *group, const char *where)
{
    char *end, *rest;
    const long descriptor = strtol(where, &end, 10);
    const long own = *end == ':' && end[1] != '\0' ? strtol(end + 1, &rest, 10) : -1;
    size_t bytes = 0;
    if (end == where || descriptor < 0 || descriptor > INT_MAX || own < 0 || *rest != '\0')
        return ebb_error(EBB_USAGE, EBB_SHARED_VARIABLE "=%.40s is not DESCRIPTOR:RANK", where);
    EBB_TRY(look_at((int)descriptor, &bytes));
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, (int)descriptor, 0);
    if (memory == MAP_FAILED) {
        char name[48];
        (void)snprintf(name, sizeof name, "rank %ld: the group's memory", own);
        return ebb_error_io(name, "mapping it");
    }
    side *s = ebb_alloc(sizeof *s);
    ebb_status status = s == NULL ? ebb_error_memory() : check(memory, bytes, own);
    if (status == NULL) {
        *s = (side){.shared = memory, .bytes = bytes, .joined = pthread_self()};
        status = take_rank(s, own);
        choose_wait(s);
    }
    if (status != NULL) {
        (void)munmap(memory, bytes);
        ebb_free(s);
        return status;
    }
    (void)close((int)descriptor);
    *group = (ebb_group){.transport = &transport_shared,
                         .context = s,
                         .rank = s->rank,
                         .ranks = s->ranks,
                         .late_s = (double)s->shared->terms.late_ms / 1000};
    return NULL;
}

/* ---- for who starts the processes ---- */

ebb_status ebb_shared_make(ebb_shared **shared, int *descriptor, int ranks,
                           const ebb_shared_terms *terms)
{
    const size_t bytes = bytes_for(ranks);
    *descriptor = memfd_create("ebb-group", MFD_ALLOW_SEALING);
    if (*descriptor < 0)
        return ebb_error_io("the group's memory", "making it");
    void *memory = MAP_FAILED;
    if (ftruncate(*descriptor, (off_t)bytes) == 0 &&
        fcntl(*descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *descriptor, 0);
    if (memory == MAP_FAILED) {
        ebb_status status = ebb_error_io("the group's memory", "making it");
        (void)close(*descriptor);
        return status;
    }
    *shared = memory;
    (*shared)->terms = *terms;
    (*shared)->magic = magic;
    return NULL;
}

void ebb_shared_drop(ebb_shared *shared, int descriptor, int ranks)
{
    (void)munmap(shared, bytes_for(ranks));
    (void)close(descriptor);
}

void ebb_shared_ended(ebb_shared *shared, int r, bool failed)
{
    uint32_t nobody = 0;
    if (failed)
        (void)__atomic_compare_exchange_n(&shared->failed, &nobody, (uint32_t)r + 1, false,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    __atomic_store_n(&shared->member[r].is.has_left, 1, __ATOMIC_RELEASE);
    wake(shared);
}
