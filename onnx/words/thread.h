/* thread.h: a thread that works beside the caller's. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

/* Signals are for other threads. False: the system has no more; who asked can do without. */
bool ebb_thread_start(pthread_t *thread, void *(*work)(void *), void *of);
