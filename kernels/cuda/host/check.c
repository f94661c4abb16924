/* check.c: watches every access to memory of kernels that are compiled with -fsanitize=thread,
 * whose calls are answered here instead of by the sanitizer's own library.
 *
 *     thread 5   writes shared[40] ─┐ no barrier between them: which comes first is not known
 *     thread 70  reads  shared[40] ─┘
 *
 * For each byte it is kept who wrote and who read it last in this launch; what is a race: races.h.
 * Also told:
 *   - memory that is not the device's: a pointer into the host;
 *   - shared memory that was not asked for, or is read before this block wrote it;
 *   - an access that is not aligned to its size, which the device refuses.
 *
 * The first finding of a launch is its error. `+0x...` is a place in the program, for addr2line.
 */
#include "kernels/cuda/host/check.h"
#include "kernels/cuda/host/races.h"
#include "kernels/cuda/host/words.h"
#include "onnx/words/arena.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef ebb_race_access access;
typedef ebb_race_cell cell;

enum { PAGE = 1024, BUCKETS = 1 << 14, MOST_BLOCKS = 8192, WARPS = 32, WATCHED = 3 };

typedef struct page { /* of 1024 units of device memory: bytes or words */
    struct page *next;
    uintptr_t number;
    cell cells[PAGE];
} page;

typedef struct memory {
    uintptr_t from, to;
} memory;

static struct {
    bool runs;
    bool watched; /* something of this launch was seen */
    ebb_check_launch launch;
    uint32_t serial, block, epoch, round[WARPS];
    uintptr_t stack;
    size_t stack_room;
    page *pages[BUCKETS], *last;
    cell *shared[2]; /* of bytes, of words; launch: number of the block since the start */
    uint32_t blocks, blocks_before; /* begun; when this launch began */
    memory all[MOST_BLOCKS];
    size_t count, hit;
    char found[400];
} check;

extern const char __executable_start, data_start; /* the linker's: code and constants between */

/* ---- findings ---- */

static const char *where(char *text, size_t size, uintptr_t at)
{
    uintptr_t shared = (uintptr_t)check.launch.shared;
    if (at >= shared && at < shared + check.launch.shared_room)
        (void)snprintf(text, size, "byte %zu of shared memory", (size_t)(at - shared));
    else if (check.hit < check.count && at >= check.all[check.hit].from &&
             at < check.all[check.hit].to)
        (void)snprintf(text, size, "byte %zu of a block of %zu",
                       (size_t)(at - check.all[check.hit].from),
                       (size_t)(check.all[check.hit].to - check.all[check.hit].from));
    else
        (void)snprintf(text, size, "address %#zx", (size_t)at);
    return text;
}

static void tell(const char *what, uintptr_t at, const access *other, const void *caller)
{
    char place[80], of[80] = "";
    if (check.found[0] != '\0')
        return;
    if (other != NULL)
        (void)snprintf(of, sizeof of, ", after thread %u of block %u", other->thread, other->block);
    (void)snprintf(check.found, sizeof check.found, "thread %u of block %u %s %s%s (+%#zx)",
                   ebb_host.thread, check.block, what, where(place, sizeof place, at), of,
                   (size_t)((uintptr_t)caller - (uintptr_t)&__executable_start));
}

/* ---- cells ---- */

/* Of the unit at `at`, which is of 1 << size bytes; units of each size are kept apart. */
static cell *cell_of(uintptr_t at, unsigned size)
{
    const uintptr_t unit = at >> size, number = unit / PAGE * 2 + (size > 0);
    if (check.last == NULL || check.last->number != number) {
        page **bucket = &check.pages[number % BUCKETS], *p = *bucket;
        while (p != NULL && p->number != number)
            p = p->next;
        if (p == NULL && (p = ebb_alloc(sizeof *p)) != NULL) {
            memset(p, 0, sizeof *p);
            p->number = number;
            p->next = *bucket;
            *bucket = p;
        }
        check.last = p;
    }
    return check.last != NULL ? &check.last->cells[unit % PAGE] : NULL;
}

static bool is_device(uintptr_t at)
{
    if (check.hit < check.count && at >= check.all[check.hit].from && at < check.all[check.hit].to)
        return true;
    for (size_t k = 0; k < check.count; k++)
        if (at >= check.all[k].from && at < check.all[k].to) {
            check.hit = k;
            return true;
        }
    return false;
}

static void meet(cell *c, const access *me, bool writes, uintptr_t at, const void *caller)
{
    access other;
    const char *wrong = ebb_race_meet(c, me, writes, &other);
    if (wrong != NULL)
        tell(wrong, at, &other, caller);
}

/* ---- an access ---- */

static void see(const void *p, size_t bytes, bool writes, const void *caller)
{
    const uintptr_t at = (uintptr_t)p, shared = (uintptr_t)check.launch.shared;
    if (!check.runs || at - check.stack < check.stack_room ||
        at - (uintptr_t)&ebb_host < sizeof ebb_host)
        return;
    if (at - (uintptr_t)check.launch.args < check.launch.args_bytes) {
        if (writes)
            tell("writes its arguments at", at, NULL, caller);
        return;
    }
    access me = {.launch = check.serial,
                 .block = check.block,
                 .epoch = (uint16_t)check.epoch,
                 .round = (uint16_t)check.round[ebb_host.thread / 32 % WARPS],
                 .thread = (uint16_t)ebb_host.thread,
                 .atomic = check.launch.atomic};
    const unsigned size = at % 4 == 0 && bytes % 4 == 0 ? 2 : 0;
    if (at >= shared && at < shared + check.launch.shared_room) {
        if (at + bytes > shared + check.launch.shared_bytes)
            tell("goes beyond the shared memory that was asked for, at", at, NULL, caller);
        me.launch = check.blocks;
        for (size_t i = 0; i < bytes; i += (size_t)1 << size) {
            cell *c = &check.shared[size > 0][(at - shared + i) >> size];
            if (!writes && c->write.launch != me.launch)
                tell("reads what no thread of its block wrote,", at + i, NULL, caller);
            meet(c, &me, writes, at + i, caller);
        }
        return;
    }
    if (!is_device(at) || !is_device(at + bytes - 1)) {
        const bool constant = at >= (uintptr_t)&__executable_start && at < (uintptr_t)&data_start;
        if (writes || !constant)
            tell(writes ? "writes memory that is not the device's, at"
                        : "reads memory that is not the device's, at",
                 at, NULL, caller);
        return;
    }
    for (size_t i = 0; i < bytes; i += (size_t)1 << size) {
        cell *c = cell_of(at + i, size);
        if (c != NULL)
            meet(c, &me, writes, at + i, caller);
    }
}

/* ---- what runtime.c tells ---- */

void ebb_check_begin(const ebb_check_launch *launch)
{
    check.launch = *launch;
    check.serial++;
    check.found[0] = '\0';
    check.watched = false;
    check.blocks_before = check.blocks;
    for (int k = 0; k < 2; k++)
        if (check.shared[k] == NULL &&
            (check.shared[k] = ebb_alloc(launch->shared_room * sizeof(cell))) != NULL)
            memset(check.shared[k], 0, launch->shared_room * sizeof(cell));
}

void ebb_check_block(uint64_t number, uint64_t count)
{
    check.runs = check.shared[0] != NULL && check.shared[1] != NULL &&
                 (number < WATCHED || number + WATCHED >= count);
    check.block = (uint32_t)number;
    check.blocks++;
    check.epoch = 0;
    memset(check.round, 0, sizeof check.round);
}

void ebb_check_barrier(void)
{
    check.epoch++;
}

void ebb_check_warp(uint32_t warp)
{
    check.round[warp % WARPS]++;
}

void ebb_check_thread(const void *stack, size_t room)
{
    check.stack = (uintptr_t)stack;
    check.stack_room = room;
}

ebb_status ebb_check_end(void)
{
    check.runs = false;
    if (!check.watched && check.blocks != check.blocks_before)
        return ebb_error(EBB_RUNTIME, "a kernel is of a file that is not compiled to be watched: "
                                      "name it in kernels/cuda/CMakeLists.txt");
    return check.found[0] == '\0' ? NULL : ebb_error(EBB_RUNTIME, "a kernel: %s", check.found);
}

void ebb_check_allocated(const void *p, size_t bytes)
{
    if (check.count < MOST_BLOCKS)
        check.all[check.count++] = (memory){(uintptr_t)p, (uintptr_t)p + bytes};
}

void ebb_check_released(const void *p)
{
    for (size_t k = 0; k < check.count; k++)
        if (check.all[k].from == (uintptr_t)p) {
            check.all[k] = check.all[--check.count];
            return;
        }
}

/* ---- atomics ---- */

static void see_atomic(const void *p, size_t bytes, const void *caller)
{
    check.launch.atomic = true;
    see(p, bytes, true, caller);
    check.launch.atomic = false;
}

uint32_t ebb_atomic_add_u32(uint32_t *p, uint32_t v)
{
    const uint32_t old = *p;
    see_atomic(p, sizeof *p, __builtin_return_address(0));
    *p = old + v;
    return old;
}

uint32_t ebb_atomic_or_u32(uint32_t *p, uint32_t v)
{
    const uint32_t old = *p;
    see_atomic(p, sizeof *p, __builtin_return_address(0));
    *p = old | v;
    return old;
}

uint64_t ebb_atomic_min_u64(uint64_t *p, uint64_t v)
{
    const uint64_t old = *p;
    see_atomic(p, sizeof *p, __builtin_return_address(0));
    *p = v < old ? v : old;
    return old;
}

/* ---- what the compiler calls ---- */

#define HOOK(name, ...)              \
    void __tsan_##name(__VA_ARGS__); \
    void __tsan_##name(__VA_ARGS__)

HOOK(init, void) {}
HOOK(func_entry, void *caller)
{
    (void)caller;
    check.watched = true;
}
HOOK(func_exit, void) {}

#define SIZE(n)                                        \
    HOOK(read##n, void *p)                             \
    {                                                  \
        see(p, n, false, __builtin_return_address(0)); \
    }                                                  \
    HOOK(write##n, void *p)                            \
    {                                                  \
        see(p, n, true, __builtin_return_address(0));  \
    }                                                  \
    HOOK(unaligned_read##n, void *p)                   \
    {                                                  \
        see(p, n, false, __builtin_return_address(0)); \
    }                                                  \
    HOOK(unaligned_write##n, void *p)                  \
    {                                                  \
        see(p, n, true, __builtin_return_address(0));  \
    }
SIZE(1)
SIZE(2)
SIZE(4)
SIZE(8)
SIZE(16)

HOOK(read_range, void *p, unsigned long bytes)
{
    see(p, bytes, false, __builtin_return_address(0));
}
HOOK(write_range, void *p, unsigned long bytes)
{
    see(p, bytes, true, __builtin_return_address(0));
}

typedef struct mismatch { /* as the compiler lays it out */
    const char *file;
    uint32_t line, column;
    const void *type;
    unsigned char log_alignment, kind;
} mismatch;

void __ubsan_handle_type_mismatch_v1(const mismatch *m, const void *p);
void __ubsan_handle_type_mismatch_v1(const mismatch *m, const void *p)
{
    char what[200];
    if (!check.runs)
        return;
    (void)snprintf(what, sizeof what, "takes (%s:%u) what is not aligned to %u bytes, at", m->file,
                   m->line, 1u << m->log_alignment);
    tell(what, (uintptr_t)p, NULL, __builtin_return_address(0));
}
