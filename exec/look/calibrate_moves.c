/* calibrate_moves.c: what moves to disk and back take, by themselves and beside steps.
 *
 *     round    steps, beside them one store after the other | the same of fetches | stores | fetches
 *
 * Of rounds the fastest counts, and of a round the mean of its moves: a file that the system begins to write to
 * the disk takes some at the disk's speed, others at that of memory. So the file is as long as the step's arena, up
 * to 512 MiB. By how much a move makes a step longer is not seen in the times of steps, which others on the
 * machine disturb by more: it is what the move keeps a processor busy, where the step computes on all of them,
 * and else nothing.
 */
#define _GNU_SOURCE // CPU_COUNT
#include "exec/weigh/costs.h"

#include "exec/data/sample.h"
#include "exec/run/program.h"
#include "kernels/away/mover.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { SPOTS = 16, MOST_SPOTS = 128, SPOT_BYTES = 4 << 20, WAYS = 2 };
static const double part_ns = 60e6, all_ns = 8e9; // of the steps of a round's part; of all rounds

typedef struct timer {
    ebb_program *program;
    ebb_batch batch;
    ebb_mover *mover;
    char *memory; /* of the first spots; the others' bytes are the same */
    uint32_t spots;
    bool ends;                         /* read by another thread: atomic */
    double alone[WAYS], beside[WAYS];  /* ns of a byte: the least so far */
    double busy_ns[WAYS], bytes[WAYS]; /* of processors, for moves by themselves */
} timer;

typedef struct stream {
    timer *t;
    int way;
    double bytes;
    ebb_status status;
} stream;

static double now_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void keep_least(double *least, double began, double bytes)
{
    *least = fmin(*least, (now_ns(CLOCK_MONOTONIC) - began) / bytes);
}

static ebb_status move(timer *t, int way, uint32_t spot)
{
    char *memory = t->memory + (size_t)(spot % SPOTS) * SPOT_BYTES;
    EBB_TRY(way == 0 ? ebb_mover_store(t->mover, spot, memory, SPOT_BYTES, "calibration")
                     : ebb_mover_fetch(t->mover, spot, memory, SPOT_BYTES, "calibration"));
    return ebb_mover_wait(t->mover, memory);
}

static ebb_status run_steps(timer *t, int steps)
{
    for (int i = 0; i < steps; i++)
        EBB_TRY(ebb_program_step(t->program, &t->batch));
    return NULL;
}

/* At least one move, until it is told to end. */
static void *flow(void *context)
{
    stream *s = context;
    for (uint32_t spot = 0; s->status == NULL; spot = (spot + 1) % s->t->spots) {
        s->status = move(s->t, s->way, spot);
        s->bytes += SPOT_BYTES;
        if (__atomic_load_n(&s->t->ends, __ATOMIC_ACQUIRE))
            break;
    }
    return NULL;
}

static ebb_status run_beside(timer *t, int way, int steps)
{
    pthread_t thread;
    stream s = {.t = t, .way = way};
    const double began = now_ns(CLOCK_MONOTONIC);
    t->ends = false;
    if (pthread_create(&thread, NULL, flow, &s) != 0)
        return ebb_error(EBB_RUNTIME, "no thread can be started that moves bytes to disk");
    ebb_status status = run_steps(t, steps);
    __atomic_store_n(&t->ends, true, __ATOMIC_RELEASE);
    (void)pthread_join(thread, NULL);
    keep_least(&t->beside[way], began, s.bytes);
    return status != NULL ? status : s.status;
}

static ebb_status move_all(timer *t, int way)
{
    const double busy = now_ns(CLOCK_PROCESS_CPUTIME_ID), began = now_ns(CLOCK_MONOTONIC);
    const double bytes = (double)t->spots * SPOT_BYTES;
    for (uint32_t spot = 0; spot < t->spots; spot++)
        EBB_TRY(move(t, way, spot));
    keep_least(&t->alone[way], began, bytes);
    t->busy_ns[way] += now_ns(CLOCK_PROCESS_CPUTIME_ID) - busy;
    t->bytes[way] += bytes;
    return NULL;
}

static void forget(timer *t)
{
    for (int way = 0; way < WAYS; way++) {
        t->alone[way] = t->beside[way] = INFINITY;
        t->busy_ns[way] = t->bytes[way] = 0;
    }
}

/* rounds 0: as many as there is time for. */
static ebb_status run_rounds(timer *t, int rounds)
{
    EBB_TRY(run_steps(t, 3)); // kernels are prepared
    EBB_TRY(move_all(t, 0));  // and pages
    forget(t);
    const double ns = (double)t->program->step_ns, began = now_ns(CLOCK_MONOTONIC);
    const int steps = ns < part_ns ? (int)(part_ns / (ns + 1)) + 1 : 1;
    do {
        for (int way = 0; way < WAYS; way++)
            EBB_TRY(run_beside(t, way, steps));
        for (int way = 0; way < WAYS; way++)
            EBB_TRY(move_all(t, way));
    } while (--rounds != 0 && now_ns(CLOCK_MONOTONIC) - began < all_ns);
    return NULL;
}

static void keep(ebb_costs *costs, timer *t, double scale)
{
    cpu_set_t may;
    const bool all = sched_getaffinity(0, sizeof may, &may) != 0 ||
                     costs->threads >= CPU_COUNT(&may); // of those that this process may use
    costs->moves = true;
    for (int way = 0; way < WAYS; way++) {
        const double busy = t->busy_ns[way] / t->bytes[way];
        costs->ways[way] = (ebb_move_time){.alone = scale * t->alone[way],
                                           .beside = scale * t->beside[way],
                                           .taken = all ? scale * busy : 0};
        costs->processor_ns[way] = busy;
    }
}

static ebb_status open_and_time(timer *t, const char *folder, int rounds, ebb_arena *scratch)
{
    ebb_spot spots[MOST_SPOTS];
    const uint64_t wanted = t->program->plan.packing.height / SPOT_BYTES;
    t->spots = wanted < SPOTS ? SPOTS : wanted < MOST_SPOTS ? (uint32_t)wanted : MOST_SPOTS;
    for (size_t i = 0; i < t->spots; i++)
        spots[i] = (ebb_spot){true, i * SPOT_BYTES};
    const ebb_mover_plan plan = {.folder = folder,
                                 .disk_bytes = (uint64_t)t->spots * SPOT_BYTES,
                                 .spots = spots,
                                 .spot_count = t->spots};
    t->memory = ebb_arena_zeroed(scratch, SPOTS, SPOT_BYTES);
    EBB_GOT(t->memory);
    EBB_TRY(ebb_sample_batch(&t->batch, t->program->plan.g, 0, scratch));
    EBB_TRY(ebb_mover_open(&t->mover, &plan));
    ebb_status status = run_rounds(t, rounds);
    ebb_mover_close(t->mover);
    return status;
}

ebb_status ebb_costs_time_moves(ebb_costs *costs, ebb_model *model, const ebb_timing *options,
                                double scale)
{
    const ebb_compile_options compile = {.backend = options->backend,
                                         .seed = options->seed,
                                         .threads = options->threads,
                                         .spill = options->spill};
    EBB_LOCAL_ARENA(scratch);
    timer *t = EBB_NEW(scratch, timer, 1);
    EBB_GOT(t);
    ebb_status status = ebb_program_compile(&t->program, model, &compile);
    if (status == NULL && t->program->device->is_host) {
        if (options->sweep)
            status = ebb_costs_fill(t->program);
        if (status == NULL)
            status = open_and_time(t, ebb_spill_folder(options->spill), options->steps, scratch);
        if (status == NULL)
            keep(costs, t, scale);
    }
    ebb_program_free(t->program);
    return status;
}
