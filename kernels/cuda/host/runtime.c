/* runtime.c: runtime.h on the host: threads of a block as fibers, one block after another.
 *
 *     scheduler <-> fiber 0   threads 0, 1, 2, ...   one after another while none has to wait
 *               <-> fiber 1   begins when fiber 0 waits at a barrier, with the next thread
 *               <-> ...
 *
 * A kernel without barriers thus runs on one fiber at the speed of a loop; one with barriers takes
 * as many fibers as threads. Threads that never meet at a barrier, or memory that is read before it
 * is written, show: shared memory begins as NaNs, and $EBB_CUDA_ORDER=reverse starts the threads
 * from the last, which must change nothing. Built to be watched, each access is (check.c). Where
 * $EBB_CUDA_PLAYER names who executes launches (player.h), it does, and hears of memory.
 *
 * It is for tests: no device is faster than none.
 */
#define _GNU_SOURCE // MAP_ANONYMOUS
#include "kernels/cuda/runtime.h"

#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/player.h"
#include "kernels/cuda/host/words.h"
#include "onnx/words/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define STARTS(keep, to, size) __sanitizer_start_switch_fiber((keep), (to), (size))
#define ENDS(keep, from, size) __sanitizer_finish_switch_fiber((keep), (from), (size))
#else
#define STARTS(keep, to, size) ((void)0)
#define ENDS(keep, from, size) ((void)0)
#endif

enum { MAX_THREADS = 1024, WARP = 32, STACK = 128 * 1024 };

/* Of shared memory: what a block may have on every described device (compute capability 8.9). */
enum { SHARED = 99 * 1024 };

typedef enum waiting { RUNS, AT_BARRIER, AT_WARP, READY, IDLE } waiting;

typedef struct fiber {
    void *sp;
    unsigned char *stack;
    uint32_t thread;
    waiting waits;
    void *fake; /* the sanitizer's */
} fiber;

typedef struct noted { /* a launch or a copy, kept in a record or until it is asked for */
    struct noted *next;
    ebb_gpu_kernel kernel; /* NULL: a copy; to with from NULL: a clear */
    void (*work)(void *);  /* NULL, or what the host does with `to` */
    ebb_gpu_grid blocks;
    uint32_t threads, shared_bytes;
    void *to;
    const void *from;
    size_t bytes; /* of args or of the copy */
    _Alignas(16) unsigned char args[];
} noted;

enum { MOST_LOADED = 1024 };

/* Work of one stream is done when it is given. Of one that is beside another, which it has followed first, it is
 * when that asks for it, where $EBB_CUDA_ORDER is "reverse": as late as a device may be. */
typedef struct stream {
    bool records;
    noted *first, **last;
    struct stream *leader, *beside; /* the first of those beside this one */
    struct stream *next;            /* beside the same leader */
    noted *held, **held_last;
    uint64_t given, done, asked;   /* beside another: pieces of work */
    uint64_t record_count, joined; /* joined: the leader's record that it belongs to */
    uint32_t loaded;               /* kernels that were launched without being recorded */
    ebb_gpu_kernel kernels[MOST_LOADED];
} stream;

ebb_host_where ebb_host;

static struct {
    fiber fibers[MAX_THREADS];
    uint32_t made;
    void *sp; /* the scheduler's */
    void *fake;
    const void *stack_bottom; /* the scheduler's, as the sanitizer tells it */
    size_t stack_size;
    fiber *running;
    ebb_gpu_kernel kernel;
    const void *args;
    uint32_t started, finished, at_barrier;
    uint32_t at_warp[MAX_THREADS / WARP], round[MAX_THREADS / WARP];
    uint64_t slots[2][MAX_THREADS];
    bool reverse;
    _Alignas(16) unsigned char shared[SHARED];
} host;

/* ---- fibers ---- */

#if defined(__x86_64__)
void ebb_host_switch(void **from, void *to);
__asm__(".text\n.globl ebb_host_switch\n.hidden ebb_host_switch\n"
        ".type ebb_host_switch, @function\nebb_host_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size ebb_host_switch, .-ebb_host_switch\n");
enum { SAVED = 6 };
#elif defined(__aarch64__)
void ebb_host_switch(void **from, void *to);
__asm__(".text\n.globl ebb_host_switch\n.hidden ebb_host_switch\n"
        ".type ebb_host_switch, %function\nebb_host_switch:\n"
        "sub sp, sp, #160\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\nmov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\nadd sp, sp, #160\nret\n"
        ".size ebb_host_switch, .-ebb_host_switch\n");
#else
#error "host/runtime.c switches stacks on x86-64 and aarch64 only: configure with EBB_CUDA_HOST=OFF"
#endif

static void to_scheduler(waiting why)
{
    fiber *f = host.running;
    f->waits = why;
    STARTS(&f->fake, host.stack_bottom, host.stack_size);
    ebb_host_switch(&f->sp, host.sp);
    ENDS(f->fake, &host.stack_bottom, &host.stack_size);
}

static void resume(fiber *f)
{
    host.running = f;
    f->waits = RUNS;
    ebb_host.thread = f->thread;
    ebb_check_thread(f->stack, STACK);
    STARTS(&host.fake, f->stack, STACK);
    ebb_host_switch(&host.sp, f->sp);
    ENDS(host.fake, NULL, NULL);
}

/* A fiber's whole life: threads as long as there are some, then idle until the next block. */
static void live(void)
{
    ENDS(NULL, &host.stack_bottom, &host.stack_size);
    for (;;) {
        while (host.started < ebb_host.threads) {
            uint32_t t = host.started++;
            fiber *f = host.running;
            f->thread = ebb_host.thread = host.reverse ? ebb_host.threads - 1 - t : t;
            ((void (*)(const void *))host.kernel)(host.args);
            host.finished++;
        }
        to_scheduler(IDLE);
    }
}

static fiber *idle_fiber(void)
{
    for (uint32_t i = 0; i < host.made; i++)
        if (host.fibers[i].waits == IDLE)
            return &host.fibers[i];
    if (host.made == MAX_THREADS)
        return NULL;
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED)
        return NULL;
    fiber *f = &host.fibers[host.made++];
    f->stack = stack;
#if defined(__x86_64__)
    void **top = (void **)(void *)(f->stack + STACK) - 2;
    top[0] = (void *)(uintptr_t)live;
    top[1] = NULL; // live() has no one to return to
    f->sp = memset(top - SAVED, 0, SAVED * sizeof *top);
#else
    void **top = (void **)(void *)(f->stack + STACK) - 20;
    memset(top, 0, 20 * sizeof *top);
    top[11] = (void *)(uintptr_t)live;
    f->sp = top;
#endif
    return f;
}

/* ---- words ---- */

void *ebb_host_shared(void)
{
    return host.shared;
}

void ebb_barrier(void)
{
    host.at_barrier++;
    to_scheduler(AT_BARRIER);
}

uint64_t ebb_host_exchange(uint64_t mine, uint32_t lane)
{
    uint32_t warp = ebb_host.thread / WARP, turn = host.round[warp] & 1;
    host.slots[turn][ebb_host.thread] = mine;
    host.at_warp[warp]++;
    to_scheduler(AT_WARP);
    return host.slots[turn][warp * WARP + lane % WARP];
}

uint32_t ebb_ballot(int flag)
{
    uint32_t warp = ebb_host.thread / WARP, turn = host.round[warp] & 1, bits = 0;
    (void)ebb_host_exchange(flag != 0, 0);
    for (uint32_t lane = 0; lane < WARP; lane++)
        bits |= (uint32_t)host.slots[turn][warp * WARP + lane] << lane;
    return bits;
}

/* ---- blocks ---- */

/* Lets through those whose barrier or warp is complete. */
static void open_barriers(void)
{
    bool all = host.at_barrier == ebb_host.threads;
    if (all) {
        host.at_barrier = 0;
        ebb_check_barrier();
    }
    for (uint32_t i = 0; i < host.made; i++) {
        fiber *f = &host.fibers[i];
        if ((f->waits == AT_BARRIER && all) ||
            (f->waits == AT_WARP && host.at_warp[f->thread / WARP] == WARP))
            f->waits = READY;
    }
    for (uint32_t w = 0; w < ebb_host.threads / WARP; w++)
        if (host.at_warp[w] == WARP) {
            host.at_warp[w] = 0;
            host.round[w]++;
            ebb_check_warp(w);
        }
}

static ebb_status run_block(void)
{
    host.started = host.finished = host.at_barrier = 0;
    memset(host.at_warp, 0, sizeof host.at_warp);
    while (host.finished < ebb_host.threads) {
        bool moved = false;
        if (host.started < ebb_host.threads) {
            fiber *f = idle_fiber();
            EBB_GOT(f);
            resume(f);
            moved = true;
        }
        open_barriers();
        for (uint32_t i = 0; i < host.made; i++)
            if (host.fibers[i].waits == READY) {
                resume(&host.fibers[i]);
                moved = true;
            }
        if (!moved) {
            host.made = 0; // those that wait are given up, with their stacks
            return ebb_error(EBB_RUNTIME,
                             "a kernel's threads wait for each other: %u of %u have "
                             "ended, %u are at a barrier",
                             host.finished, ebb_host.threads, host.at_barrier);
        }
    }
    return NULL;
}

/* Was the kernel compiled for so many threads? A device refuses the launch, for registers. */
static ebb_status fits(void)
{
    return ebb_host.threads <= ebb_host.most
               ? NULL
               : ebb_error(EBB_RUNTIME,
                           "CUDA: launching a kernel: too many resources requested for launch: "
                           "%u threads a block of a kernel compiled for %u (gpu.h)",
                           ebb_host.threads, ebb_host.most);
}

static ebb_status run_blocks(ebb_gpu_grid blocks, uint32_t shared_bytes)
{
    for (ebb_host.block_z = 0; ebb_host.block_z < blocks.z; ebb_host.block_z++)
        for (ebb_host.block_y = 0; ebb_host.block_y < blocks.y; ebb_host.block_y++)
            for (uint32_t x = 0; x < blocks.x; x++) {
                ebb_host.block = host.reverse ? blocks.x - 1 - x : x;
                memset(host.shared, 0xFF, shared_bytes);
                ebb_check_block(((uint64_t)ebb_host.block_z * blocks.y + ebb_host.block_y) *
                                        blocks.x +
                                    ebb_host.block,
                                (uint64_t)blocks.x * blocks.y * blocks.z);
                EBB_TRY(run_block());
                EBB_TRY(fits());
            }
    return NULL;
}

static bool is_reverse(void)
{
    const char *order = getenv("EBB_CUDA_ORDER");
    return order != NULL && strcmp(order, "reverse") == 0;
}

static ebb_status run_kernel(ebb_gpu_kernel kernel, ebb_gpu_grid blocks, uint32_t threads,
                             uint32_t shared_bytes, const void *args, size_t bytes)
{
    const ebb_host_player *player = ebb_host_player_named();
    if (player != NULL) {
        const uint32_t grid[3] = {blocks.x, blocks.y, blocks.z};
        const char *wrong = player->launch(kernel, grid, threads, shared_bytes, args, bytes);
        return wrong != NULL ? ebb_error(EBB_RUNTIME, "a kernel: %s", wrong) : NULL;
    }
    host.reverse = is_reverse();
    host.kernel = kernel;
    host.args = args;
    ebb_host.threads = threads;
    ebb_host.blocks = blocks.x;
    ebb_host.most = MAX_THREADS; // until the kernel says
    const ebb_check_launch launch = {args, bytes, host.shared, shared_bytes, SHARED, false};
    ebb_check_begin(&launch);
    ebb_status status = run_blocks(blocks, shared_bytes);
    ebb_status found = ebb_check_end();
    return status != NULL ? status : found;
}

/* ---- runtime.h ---- */

static void tell_allocated(const void *memory, size_t bytes, bool is_written)
{
    const ebb_host_player *player = ebb_host_player_named();
    ebb_check_allocated(memory, bytes);
    if (player != NULL)
        player->allocated(memory, bytes, is_written);
}

static void tell_released(const void *memory)
{
    const ebb_host_player *player = ebb_host_player_named();
    ebb_check_released(memory);
    if (player != NULL)
        player->released(memory);
}

/* $EBB_CUDA_ABSENT: what a machine without a device says, for tests. */
static ebb_status present(void)
{
    if (getenv("EBB_CUDA_ABSENT") == NULL)
        return NULL;
    return ebb_hint(ebb_error(EBB_DEVICE, "there is no CUDA device on this machine"),
                    "--backend cpu needs none");
}

ebb_status ebb_gpu_open(void **opened)
{
    EBB_TRY(present());
    return ebb_gpu_open_another(opened);
}

ebb_status ebb_gpu_open_another(void **opened)
{
    stream *s = ebb_alloc(sizeof *s);
    EBB_GOT(s);
    memset(s, 0, sizeof *s);
    s->held_last = &s->held;
    *opened = s;
    return NULL;
}

void ebb_gpu_close(void *opened)
{
    stream *s = opened;
    if (s == NULL)
        return;
    ebb_gpu_forget(s->held);
    stream **at = s->leader != NULL ? &s->leader->beside : NULL;
    while (at != NULL && *at != s)
        at = &(*at)->next;
    if (at != NULL)
        *at = s->next;
    ebb_free(s);
}

ebb_status ebb_gpu_allocate(size_t bytes, void **memory)
{
    const char *limit = getenv("EBB_CUDA_HOST_BYTES");
    *memory = NULL;
    if (limit == NULL || bytes <= strtoull(limit, NULL, 10))
        *memory = ebb_alloc_aligned(256, bytes);
    if (*memory != NULL) {
        tell_allocated(*memory, bytes, false);
        return NULL;
    }
    return ebb_hint(ebb_error(EBB_RUNTIME, "%zu bytes of device memory cannot be had: %s are free",
                              bytes, limit != NULL ? limit : "fewer"),
                    "plan with a smaller --budget, or see what else is on the device");
}

void *ebb_gpu_shared(size_t bytes)
{
    void *memory = ebb_alloc_aligned(256, bytes);
    if (memory != NULL)
        tell_allocated(memory, bytes, true); // the host writes it too, and nobody hears
    return memory;
}

void ebb_gpu_release(void *memory)
{
    tell_released(memory);
    ebb_free_aligned(memory);
}

static ebb_status keep(noted ***last, const noted *what, const void *args)
{
    size_t bytes = what->kernel != NULL ? what->bytes : 0;
    noted *n = ebb_alloc_aligned(16, (sizeof *n + bytes + 15) / 16 * 16);
    EBB_GOT(n);
    memcpy(n, what, sizeof *n);
    if (args != NULL)
        memcpy(n->args, args, bytes);
    n->next = NULL;
    **last = n;
    *last = &n->next;
    return NULL;
}

static ebb_status carry_out(const noted *n, const void *args)
{
    if (n->work != NULL)
        return n->work(n->to), NULL;
    if (n->kernel != NULL)
        return run_kernel(n->kernel, n->blocks, n->threads, n->shared_bytes, args, n->bytes);
    const ebb_host_player *player = ebb_host_player_named();
    if (n->from == NULL)
        memset(n->to, 0, n->bytes);
    else if (n->bytes > 0)
        memmove(n->to, n->from, n->bytes);
    if (player != NULL)
        player->written(n->to, n->bytes);
    return NULL;
}

/* Now, or into the record of who leads. */
static ebb_status pass_on(stream *s, const noted *n, const void *args)
{
    stream *to = s->leader != NULL ? s->leader : s;
    if (!to->records)
        return carry_out(n, args);
    if (to != s && s->joined != to->record_count)
        return ebb_error(EBB_RUNTIME, "work beside a step that is recorded does not follow it");
    return keep(&to->last, n, args);
}

static ebb_status give(stream *s, const noted *n, const void *args)
{
    s->given++;
    return s->leader != NULL && is_reverse() ? keep(&s->held_last, n, args) : pass_on(s, n, args);
}

/* What was given first, until so many pieces of work are done. */
static ebb_status ask_for(stream *s, uint64_t count)
{
    s->asked = count > s->asked ? count : s->asked;
    while (s->held != NULL && s->done < count) {
        noted *n = s->held;
        ebb_status status = pass_on(s, n, n->args);
        s->held = n->next;
        s->held_last = s->held != NULL ? s->held_last : &s->held;
        s->done++;
        ebb_free_aligned(n);
        EBB_TRY(status);
    }
    return NULL;
}

static ebb_status move(stream *s, void *to, const void *from, size_t bytes)
{
    const noted n = {.to = to, .from = from, .bytes = bytes};
    return give(s, &n, NULL);
}

ebb_status ebb_gpu_copy(void *opened, void *to, const void *from, size_t bytes, ebb_gpu_way way)
{
    const stream *s = opened;
    if (s->records && way != EBB_ON_DEVICE)
        return ebb_error(EBB_RUNTIME, "a step that is recorded copies to or from the host");
    return move(opened, to, from, bytes);
}

ebb_status ebb_gpu_stage(size_t bytes, void **memory)
{
    *memory = ebb_alloc_aligned(64, bytes);
    return *memory != NULL ? NULL : ebb_error_memory();
}

void ebb_gpu_unstage(void *memory)
{
    ebb_free_aligned(memory);
}

ebb_status ebb_gpu_copy_later(void *opened, void *to, const void *from, size_t bytes,
                              ebb_gpu_way way)
{
    (void)way;
    return move(opened, to, from, bytes);
}

ebb_status ebb_gpu_visit(void *opened, void (*work)(void *), void *context)
{
    const noted n = {.to = context, .work = work};
    return give(opened, &n, NULL);
}

ebb_status ebb_gpu_clear(void *opened, void *to, size_t bytes)
{
    return move(opened, to, NULL, bytes);
}

ebb_status ebb_gpu_wait(void *opened)
{
    const stream *s = opened;
    return s->records ? ebb_error(EBB_RUNTIME, "a step that is recorded waits for the device")
                      : NULL;
}

ebb_status ebb_gpu_done(void *opened, bool *is_done)
{
    *is_done = true;
    return ebb_gpu_wait(opened);
}

/* Was the kernel launched before? If not, it was now. A step that is recorded must not be the first
 * to launch one: kernels load, and libraries allocate, when they are first used. */
static bool is_loaded(stream *s, ebb_gpu_kernel kernel)
{
    for (uint32_t k = 0; k < s->loaded; k++)
        if (s->kernels[k] == kernel)
            return true;
    if (s->loaded == MOST_LOADED)
        return true;
    s->kernels[s->loaded++] = kernel;
    return false;
}

/* $EBB_CUDA_RECORDS=0: what a device says that cannot record, for tests. */
static ebb_status can_record(stream *s, ebb_gpu_kernel kernel)
{
    const char *records = getenv("EBB_CUDA_RECORDS");
    const bool loaded = is_loaded(s, kernel);
    if (!s->records && (s->leader == NULL || !s->leader->records))
        return NULL;
    if (!loaded)
        return ebb_error(EBB_RUNTIME, "a kernel is loaded while a step is recorded");
    if (records != NULL && strcmp(records, "0") == 0)
        return ebb_error(EBB_RUNTIME, "a launch cannot be recorded");
    return NULL;
}

ebb_status ebb_gpu_launch(void *opened, ebb_gpu_kernel kernel, ebb_gpu_grid blocks,
                          uint32_t threads, uint32_t shared_bytes, const void *args, size_t bytes)
{
    stream *s = opened;
    if (threads == 0 || threads > MAX_THREADS || threads % WARP != 0 || shared_bytes > SHARED ||
        blocks.y > 65535 || blocks.z > 65535 || blocks.x > 0x7FFFFFFF)
        return ebb_error(EBB_RUNTIME,
                         "CUDA: launching a kernel: invalid configuration: %u x %u x "
                         "%u blocks of %u threads with %u bytes",
                         blocks.x, blocks.y, blocks.z, threads, shared_bytes);
    EBB_TRY(can_record(s, kernel));
    const noted n = {.kernel = kernel,
                     .blocks = blocks,
                     .threads = threads,
                     .shared_bytes = shared_bytes,
                     .bytes = bytes};
    return give(s, &n, args);
}

ebb_status ebb_gpu_record(void *opened)
{
    stream *s = opened;
    s->records = true;
    s->record_count++;
    s->first = NULL;
    s->last = &s->first;
    return NULL;
}

ebb_status ebb_gpu_recorded(void *opened, void **record)
{
    stream *s = opened;
    s->records = false;
    *record = s->first;
    s->first = NULL;
    bool all = true;
    for (stream *b = s->beside; b != NULL; b = b->next) {
        all = all && b->asked == b->given;
        ebb_gpu_forget(b->held);
        b->held = NULL;
        b->held_last = &b->held;
        b->done = b->asked = b->given;
    }
    return all ? NULL
               : ebb_error(EBB_RUNTIME, "a step that is recorded ends before what is beside it");
}

ebb_status ebb_gpu_replay(void *opened, void *record)
{
    (void)opened;
    for (const noted *n = record; n != NULL; n = n->next)
        EBB_TRY(carry_out(n, n->args));
    return NULL;
}

void ebb_gpu_forget(void *record)
{
    for (noted *n = record, *next; n != NULL; n = next) {
        next = n->next;
        ebb_free_aligned(n);
    }
}

typedef struct mark {
    int64_t ns;
    stream *of;
    uint64_t given; /* to it, before the mark */
} mark;

ebb_status ebb_gpu_mark(void *opened, void **made)
{
    stream *s = opened; // NULL: it is not yet of any
    struct timespec t;
    if (*made == NULL && (*made = ebb_alloc(sizeof(mark))) == NULL)
        return ebb_error_memory();
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    *(mark *)*made =
        (mark){(int64_t)t.tv_sec * 1000000000 + t.tv_nsec, s, s != NULL ? s->given : 0};
    return NULL;
}

ebb_status ebb_gpu_follow(void *opened, void *made)
{
    stream *s = opened;
    const mark *m = made;
    stream *other = m->of;
    if (s->leader == NULL && other->leader == NULL) {
        s->leader = other;
        s->next = other->beside;
        other->beside = s;
    }
    if (s->leader == other)
        s->joined = other->record_count;
    return other->leader == s ? ask_for(other, m->given) : NULL;
}

int64_t ebb_gpu_between(void *earlier, void *later)
{
    return ((mark *)later)->ns - ((mark *)earlier)->ns;
}

void ebb_gpu_unmark(void *made)
{
    ebb_free(made);
}

ebb_status ebb_gpu_facts(ebb_device_facts *facts)
{
    EBB_TRY(present());
    *facts = (ebb_device_facts){
        .name = "the CPU in place of a GPU", .total_bytes = 1u << 30, .free_bytes = 1u << 30};
    return NULL;
}
