/* watch.h: something hostile is done in a process of its own, which must end by itself: with an exit
 * code of ours, without a sanitizer's report, within ten seconds and 512 MiB.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/formatted.h"
#include "tests/share.h"

enum { WATCH_REPORT = 99, WATCH_ILLEGAL = 98, WATCH_CODES = 9 };

#define WATCH_SANITIZER \
    "exitcode=99:allocator_may_return_null=1:max_allocation_size_mb=512:detect_leaks=1"

/* A report must not look like an exit code of ours. Asked for by the sanitizer's own start. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return WATCH_SANITIZER;
}

#if defined(__SANITIZE_ADDRESS__)
int __lsan_do_recoverable_leak_check(void);
static inline bool watch_leaks(void)
{
    return __lsan_do_recoverable_leak_check() != 0;
}
#else
static inline bool watch_leaks(void)
{
    return false;
}
#endif

/* Exit code of the process in which use(path) runs, or of `ebb` with these words where there are
 * any; minus the signal that ended it. ms: its processor time. */
static inline int watch(int (*use)(const char *path), const char *path, char *const *words,
                        unsigned *ms)
{
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit memory = {512u << 20, 512u << 20}, time = {10, 10}, core = {0, 0};
        static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
        int nothing = open("/dev/null", O_WRONLY);
        (void)dup2(nothing, 1);
        (void)dup2(nothing, 2);
        if (!SANITIZED) // a sanitizer reserves terabytes of addresses
            (void)setrlimit(RLIMIT_DATA, &memory);
        (void)setrlimit(RLIMIT_CPU, &time);
        (void)setrlimit(RLIMIT_CORE, &core);
        (void)alarm(60); // who waits takes no time of the processor
        for (size_t i = 0; !SANITIZED && i < sizeof signals / sizeof signals[0]; i++)
            (void)signal(signals[i], SIG_DFL); // cmocka would catch them
        if (words != NULL) {
            (void)setenv("ASAN_OPTIONS", WATCH_SANITIZER, 1);
            (void)execv(EBB_BINARY_DIR "/ebb", words);
            _exit(127);
        }
        int code = use(path);
        _exit(watch_leaks() ? WATCH_REPORT : code);
    }
    int status = 0;
    struct rusage used;
    if (child < 0 || wait4(child, &status, 0, &used) != child)
        return -SIGCHLD;
    *ms = (unsigned)((used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                     (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- what comes of all of them ---- */

typedef struct watch_tally {
    unsigned done, failures, codes[WATCH_CODES];
    unsigned most_ms; // of the dearest, which is called
    char dearest[512];
} watch_tally;

/* Does it and counts; where it fails, the file is kept and named. */
static inline void watch_one(watch_tally *t, int (*use)(const char *path), const char *path,
                             char *const *words, const char *what)
{
    unsigned ms = 0;
    int how = watch(use, path, words, &ms);
    t->done++;
    if (ms > t->most_ms) {
        t->most_ms = ms;
        (void)snprintf(t->dearest, sizeof t->dearest, "%s", what);
    }
    if (how >= 0 && how < WATCH_CODES) {
        t->codes[how]++;
        return;
    }
    char kept[96];
    (void)snprintf(kept, sizeof kept, "/tmp/ebb-broken-by-%d-%u.onnx", (int)getpid(), t->failures);
    if (system(formatted("cp '%s' '%s'", path, kept)) != 0)
        (void)snprintf(kept, sizeof kept, "nowhere");
    (void)fprintf(stderr, "%s %s; the file is %s\n", what,
                  how == WATCH_REPORT    ? "made a sanitizer report"
                  : how == WATCH_ILLEGAL ? "became an illegal graph by a pass"
                                         : "ended by a signal or with an odd code",
                  kept);
    if (how != WATCH_REPORT && how != WATCH_ILLEGAL)
        (void)fprintf(stderr, "  it was %d\n", how);
    t->failures++;
}

static inline void watch_tell(const watch_tally *t, const char *of_what)
{
    (void)printf(
        "%u %s: %u ran, %u failed as they ran, %u unsupported, %u rejected; most time %u ms: %s\n",
        t->done, of_what, t->codes[0], t->codes[1], t->codes[5], t->codes[6], t->most_ms,
        t->dearest);
}
