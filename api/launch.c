/* launch.c: processes of a group on this machine: started, watched, ended together. */
#define _GNU_SOURCE // execvpe
#include "api/api.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/away/group_mpi.h"
#include "kernels/away/group_shared.h"
#include "kernels/parallel.h"
#include "onnx/words/clock.h"
#include "onnx/words/options.h"

enum { LOOK_NS = 10000000, GRACE_S = 3, LATE_MS = 600000, NOT_STARTED = 127 };

typedef struct launch {
    const ebb_launch_options *o;
    ebb_shared *shared;
    int descriptor;
    pid_t pids[EBB_GROUP_MOST]; /* 0: it has ended */
    int running;
    int failed, status; /* the rank that ended first with an error, and how; -1: none has */
    int64_t failed_ns;
    bool is_killed;
} launch;

/* ---- starting ---- */

extern char **environ;

/* Made before the fork, behind which a process of several threads may do little. */
typedef struct surroundings {
    char **list, group[64], threads[64];
} surroundings;

static ebb_status surround(surroundings *s, const launch *l, int rank)
{
    size_t count = 0, kept = 0;
    int all; // that this process may use
    EBB_TRY(ebb_threads_read(&all, 0));
    while (environ[count] != NULL)
        count++;
    s->list = ebb_alloc((count + 3) * sizeof *s->list);
    EBB_GOT(s->list);
    const int each = all > l->o->ranks ? all / l->o->ranks : 1;
    (void)snprintf(s->group, sizeof s->group, EBB_SHARED_VARIABLE "=%d:%d", l->descriptor, rank);
    (void)snprintf(s->threads, sizeof s->threads, "OMP_NUM_THREADS=%d", each);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], EBB_SHARED_VARIABLE "=", sizeof EBB_SHARED_VARIABLE) != 0)
            s->list[kept++] = environ[i];
    s->list[kept++] = s->group;
    if (getenv("OMP_NUM_THREADS") == NULL)
        s->list[kept++] = s->threads;
    s->list[kept] = NULL;
    return NULL;
}

/* In a group of processes of its own: a key on the terminal is one signal, to who has started them. */
static _Noreturn void become(const launch *l, const surroundings *s, pid_t parent)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        (void)execvpe(l->o->command[0], (char *const *)(uintptr_t)l->o->command, s->list);
    _exit(NOT_STARTED);
}

static ebb_status start(launch *l, int rank)
{
    surroundings s;
    const pid_t parent = getpid();
    EBB_TRY(surround(&s, l, rank));
    const pid_t pid = fork();
    if (pid == 0)
        become(l, &s, parent);
    ebb_free(s.list);
    if (pid < 0)
        return ebb_error_io(l->o->command[0], "starting it");
    l->pids[rank] = pid;
    l->running++;
    return NULL;
}

/* ---- watching ---- */

static void signal_all(const launch *l, int number)
{
    for (int r = 0; r < l->o->ranks; r++)
        if (l->pids[r] != 0)
            (void)kill(l->pids[r], number);
}

static void take_end(launch *l, int rank, int status)
{
    const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    l->pids[rank] = 0;
    l->running--;
    ebb_shared_ended(l->shared, rank, failed);
    if (!failed || l->failed >= 0)
        return;
    l->failed = rank;
    l->status = status;
    l->failed_ns = ebb_now_ns();
}

static void watch(launch *l)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};
    while (l->running > 0) {
        for (int r = 0, status; r < l->o->ranks; r++)
            if (l->pids[r] != 0 && waitpid(l->pids[r], &status, WNOHANG) == l->pids[r])
                take_end(l, r, status);
        if (l->o->signal != NULL && *l->o->signal != 0 && l->pids[0] != 0) {
            (void)kill(l->pids[0], *l->o->signal);
            *l->o->signal = 0;
        }
        if (l->failed >= 0 && !l->is_killed &&
            ebb_now_ns() - l->failed_ns > GRACE_S * INT64_C(1000000000)) {
            signal_all(l, SIGKILL);
            l->is_killed = true;
        }
        if (l->running > 0)
            (void)nanosleep(&look, NULL);
    }
}

/* What the process that failed could not say itself. */
static ebb_status tell(const launch *l, int *code)
{
    *code = 0;
    if (l->failed < 0)
        return NULL;
    *code = WIFEXITED(l->status) ? WEXITSTATUS(l->status) : 128 + WTERMSIG(l->status);
    if (*code == NOT_STARTED && WIFEXITED(l->status)) {
        *code = EBB_USAGE;
        return ebb_error(EBB_USAGE, "%s: it cannot be started", l->o->command[0]);
    }
    if (!WIFSIGNALED(l->status))
        return NULL;
    const int number = WTERMSIG(l->status);
    ebb_status status =
        ebb_error(EBB_RUNTIME, "rank %d of %d was ended by signal %d (%s), and the others with it",
                  l->failed, l->o->ranks, number, strsignal(number));
    return number == SIGKILL
               ? ebb_hint(status,
                          "the system does so where memory is short: `ebb plan --ranks %d` "
                          "says what each needs",
                          l->o->ranks)
               : status;
}

EBB_API ebb_status ebb_launch(const ebb_launch_options *options, int *code)
{
    EBB_NEED(options);
    EBB_NEED(code);
    ebb_launch_options own, *o = &own;
    EBB_TRY(EBB_OPTIONS_TAKE(ebb_launch_options, &own, link_gb, options));
    launch l = {.o = o, .failed = -1};
    *code = EBB_OK;
    if (o->ranks < 1 || o->ranks > EBB_GROUP_MOST || o->command == NULL || o->command[0] == NULL)
        return ebb_error(EBB_USAGE, "a group is a command and 1 to %d processes", EBB_GROUP_MOST);
    if (!(o->late_s >= 0 && o->link_us >= 0 && o->link_gb >= 0))
        return ebb_error(EBB_USAGE, "ebb_launch: late_s, link_us and link_gb must be 0 or more");
    if (getenv(EBB_SHARED_VARIABLE) != NULL || ebb_mpi_processes() > 1)
        return ebb_hint(ebb_error(EBB_USAGE,
                                  "this process is one of several already: each of them "
                                  "would start a group of its own, which trains by itself"),
                        "start them once: by mpirun, or by one `ebb launch -n` of all");
    const double late = o->late_s > 0 ? fmin(o->late_s * 1000, 4e9) : LATE_MS;
    const ebb_shared_terms terms = {.late_ms = (uint32_t)late,
                                    .message_ns = o->link_us * 1e3,
                                    .byte_ns = o->link_gb > 0 ? 1 / o->link_gb : 0};
    EBB_TRY(ebb_shared_make(&l.shared, &l.descriptor, o->ranks, &terms));
    ebb_status status = NULL;
    for (int r = 0; status == NULL && r < o->ranks; r++)
        status = start(&l, r);
    if (status != NULL)
        signal_all(&l, SIGKILL);
    watch(&l);
    if (status == NULL)
        status = tell(&l, code);
    ebb_shared_drop(l.shared, l.descriptor, o->ranks);
    return status;
}
