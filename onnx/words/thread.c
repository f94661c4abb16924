/* thread.c: see thread.h. */
#include "onnx/words/thread.h"

#include <signal.h>
#include <stddef.h>

bool ebb_thread_start(pthread_t *thread, void *(*work)(void *), void *of)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    const bool runs = pthread_create(thread, NULL, work, of) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return runs;
}
