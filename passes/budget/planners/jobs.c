/* jobs.c: see jobs.h. */
#include "passes/budget/planners/jobs.h"

#include "onnx/words/thread.h"

enum { MOST_THREADS = 64 };

typedef enum job_state { OPEN, BEGUN, DONE } job_state;

typedef struct job {
    job_state state;
    ebb_status status;
    ebb_arena arena;
} job;

struct ebb_jobs {
    ebb_job *job;
    void *of;
    job *list;
    uint32_t count, next; /* none is open below `next` */
    bool given_up;
    pthread_mutex_t lock;
    pthread_cond_t done;
    pthread_t threads[MOST_THREADS];
    int thread_count; /* beside the caller's */
};

/* With the lock, which it leaves for the time of the work. */
static void carry_out(ebb_jobs *jobs, uint32_t number)
{
    job *j = &jobs->list[number];
    j->state = BEGUN;
    (void)pthread_mutex_unlock(&jobs->lock);
    ebb_status status = jobs->job(jobs->of, number, &j->arena);
    (void)pthread_mutex_lock(&jobs->lock);
    j->status = status;
    j->state = DONE;
    jobs->given_up |= status != NULL;
    (void)pthread_cond_broadcast(&jobs->done);
}

static bool find_open(ebb_jobs *jobs)
{
    while (jobs->next < jobs->count && jobs->list[jobs->next].state != OPEN)
        jobs->next++;
    return jobs->next < jobs->count && !jobs->given_up;
}

static void carry_out_all(ebb_jobs *jobs)
{
    (void)pthread_mutex_lock(&jobs->lock);
    while (find_open(jobs))
        carry_out(jobs, jobs->next);
    (void)pthread_mutex_unlock(&jobs->lock);
}

static void *work(void *of_thread)
{
    carry_out_all(of_thread);
    return NULL;
}

static void start_threads(ebb_jobs *jobs, int count)
{
    while (jobs->thread_count < count && jobs->thread_count < MOST_THREADS &&
           ebb_thread_start(&jobs->threads[jobs->thread_count], work, jobs))
        jobs->thread_count++;
}

ebb_status ebb_jobs_start(ebb_jobs **out, ebb_job *todo, void *of, uint32_t count, int threads,
                          ebb_arena *arena)
{
    ebb_jobs *jobs = EBB_NEW(arena, ebb_jobs, 1);
    EBB_GOT(jobs);
    *jobs = (ebb_jobs){.job = todo,
                       .of = of,
                       .count = count,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .done = PTHREAD_COND_INITIALIZER};
    jobs->list = EBB_NEW(arena, job, (size_t)count + 1);
    EBB_GOT(jobs->list);
    *out = jobs; // which jobs may ask for
    start_threads(jobs, (int64_t)threads <= count ? threads - 1 : (int)count);
    return NULL;
}

ebb_status ebb_jobs_need(ebb_jobs *jobs, uint32_t number)
{
    job *j = &jobs->list[number];
    (void)pthread_mutex_lock(&jobs->lock);
    if (j->state == OPEN)
        carry_out(jobs, number);
    while (j->state != DONE)
        (void)pthread_cond_wait(&jobs->done, &jobs->lock);
    (void)pthread_mutex_unlock(&jobs->lock);
    return j->status;
}

ebb_status ebb_jobs_end(ebb_jobs *jobs, ebb_status status, ebb_arena *arena)
{
    (void)pthread_mutex_lock(&jobs->lock);
    jobs->given_up |= status != NULL;
    (void)pthread_mutex_unlock(&jobs->lock);
    carry_out_all(jobs);
    for (int i = 0; i < jobs->thread_count; i++)
        (void)pthread_join(jobs->threads[i], NULL);
    for (uint32_t i = 0; i < jobs->count; i++) {
        if (status == NULL)
            status = jobs->list[i].status;
        ebb_arena_take(arena, &jobs->list[i].arena);
    }
    (void)pthread_cond_destroy(&jobs->done);
    (void)pthread_mutex_destroy(&jobs->lock);
    return status;
}
