/* jobs.h: pieces of planning that do not wait for each other, by several threads.
 *
 * Jobs are numbered. Threads take them in this order; who needs what a job finds waits for it, or does it
 * itself. A job may need jobs of lower numbers. What it finds lies in an arena of its own and does not
 * depend on who did it when: a plan is the same for every number of threads.
 */
#pragma once

#include "onnx/words/arena.h"

typedef struct ebb_jobs ebb_jobs;
typedef ebb_status ebb_job(void *of, uint32_t number, ebb_arena *arena);

/* threads: the caller's among them, which works where it waits; fewer where the system has no more. */
ebb_status ebb_jobs_start(ebb_jobs **jobs, ebb_job *todo, void *of, uint32_t count, int threads,
                          ebb_arena *arena);

/* When job `number` is done: its status. */
ebb_status ebb_jobs_need(ebb_jobs *jobs, uint32_t number);

/* The threads end, and what jobs found lies in `arena`. `status`: how the caller fared; after an error,
 * also of a job, the jobs that nobody has begun are left undone. Returns the first error. */
ebb_status ebb_jobs_end(ebb_jobs *jobs, ebb_status status, ebb_arena *arena);
