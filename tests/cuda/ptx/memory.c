/* memory.c: the memory of the device, which is the host's, and a block's shared memory, watched.
 *
 * Of each word, and of bytes where single ones are accessed, it is kept who wrote and read it last
 * (races.h); of memory that only copies and kernels write, what was written at all.
 */
#include "tests/cuda/ptx/ptx.h"

#include "kernels/cuda/host/races.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct area {
    uint64_t from, to;
    ebb_race_cell *cells[2]; /* of bytes, of words */
    uint8_t *written;        /* a bit a byte; NULL: all is */
} area;

enum { MOST_AREAS = 1 << 16 };

static struct {
    area *all; /* by address */
    size_t count, room, hit;
    ebb_race_cell *shared[2];
    uint64_t shared_room;
} memory;

/* Zeros that take no memory until they are written. */
static void *untouched(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p != MAP_FAILED ? p : NULL;
}

static size_t cells_bytes(const area *a, int size)
{
    return ((size_t)(a->to - a->from) / (size > 0 ? 4 : 1) + 1) * sizeof(ebb_race_cell);
}

static size_t first_behind(uint64_t address)
{
    size_t low = 0, high = memory.count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (memory.all[middle].from <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void ptx_allocated(const void *p, size_t bytes, bool is_written)
{
    area a = {.from = (uintptr_t)p, .to = (uintptr_t)p + bytes};
    if (memory.count == memory.room) {
        memory.room = memory.room == 0 ? 256 : 2 * memory.room;
        area *more = realloc(memory.all, memory.room * sizeof a);
        if (more == NULL)
            abort();
        memory.all = more;
    }
    if (!is_written)
        a.written = calloc(1, bytes / 8 + 1);
    const size_t at = first_behind(a.from);
    memmove(memory.all + at + 1, memory.all + at, (memory.count - at) * sizeof a);
    memory.all[at] = a;
    memory.count++;
}

static area *area_of(uint64_t address)
{
    if (memory.hit < memory.count && address >= memory.all[memory.hit].from &&
        address < memory.all[memory.hit].to)
        return &memory.all[memory.hit];
    const size_t behind = first_behind(address);
    if (behind == 0 || address >= memory.all[behind - 1].to)
        return NULL;
    memory.hit = behind - 1;
    return &memory.all[behind - 1];
}

void ptx_released(const void *p)
{
    const size_t behind = first_behind((uintptr_t)p);
    if (p == NULL || behind == 0 || memory.all[behind - 1].from != (uintptr_t)p)
        return;
    area *a = &memory.all[behind - 1];
    for (int k = 0; k < 2; k++)
        if (a->cells[k] != NULL)
            (void)munmap(a->cells[k], cells_bytes(a, k));
    free(a->written);
    memmove(a, a + 1, (memory.count - behind) * sizeof *a);
    memory.count--;
}

static void mark(area *a, uint64_t from, uint64_t bytes)
{
    for (uint64_t i = from - a->from, end = i + bytes; i < end;)
        if (i % 8 == 0 && end - i >= 8) {
            a->written[i / 8] = 255;
            i += 8;
        } else {
            a->written[i / 8] |= (uint8_t)(1u << i % 8);
            i++;
        }
}

void ptx_written(const void *p, size_t bytes)
{
    area *a = area_of((uintptr_t)p);
    if (a != NULL && a->written != NULL && (uintptr_t)p + bytes <= a->to)
        mark(a, (uintptr_t)p, bytes);
}

/* ---- an access ---- */

static bool refuse(const char *what, const char *of, uint64_t at, const ebb_race_access *other)
{
    if (other != NULL)
        return ptx_fail("%s byte %llu of %s, after thread %u of block %u", what,
                        (unsigned long long)at, of, other->thread, other->block);
    return ptx_fail("%s byte %llu of %s", what, (unsigned long long)at, of);
}

static ebb_race_access access_of(const block_run *b, seeing who, bool is_shared)
{
    return (ebb_race_access){.launch = is_shared ? b->serial : b->launch,
                             .block = b->number,
                             .epoch = (uint16_t)b->epoch,
                             .round = (uint16_t)who.round,
                             .thread = (uint16_t)who.thread,
                             .atomic = who.atomic};
}

static bool meet(ebb_race_cell *const cells[2], uint64_t at, uint32_t bytes, seeing who,
                 const ebb_race_access *me, const char *of)
{
    const int size = at % 4 == 0 && bytes % 4 == 0;
    for (uint32_t i = 0; i < bytes; i += size ? 4 : 1) {
        ebb_race_access other;
        const char *wrong =
            ebb_race_meet(&cells[size][size ? (at + i) / 4 : at + i], me, who.writes, &other);
        if (wrong != NULL)
            return refuse(wrong, of, at + i, &other);
    }
    return true;
}

static bool is_written(const area *a, uint64_t at, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        if ((a->written[(at + i) / 8] >> (at + i) % 8 & 1) == 0)
            return false;
    return true;
}

void *ptx_global(const block_run *b, uint64_t address, uint32_t bytes, seeing who)
{
    static const char *const of = "memory of the device";
    area *a = area_of(address);
    if (a == NULL || bytes > a->to - address) {
        (void)ptx_fail("%s memory that is not the device's, at %#llx",
                       who.writes ? "writes" : "reads", (unsigned long long)address);
        return NULL;
    }
    const uint64_t at = address - a->from;
    const int size = at % 4 == 0 && bytes % 4 == 0;
    if (a->cells[size] == NULL && (a->cells[size] = untouched(cells_bytes(a, size))) == NULL) {
        (void)ptx_fail("no memory");
        return NULL;
    }
    const ebb_race_access me = access_of(b, who, false);
    if (!meet(a->cells, at, bytes, who, &me, of))
        return NULL;
    if (a->written != NULL && !who.writes && !is_written(a, at, bytes)) {
        (void)refuse("reads what nobody wrote,", of, at, NULL);
        return NULL;
    }
    if (a->written != NULL && who.writes)
        mark(a, address, bytes);
    return (void *)(uintptr_t)address;
}

void *ptx_shared(const block_run *b, uint64_t at, uint32_t bytes, seeing who)
{
    static const char *const of = "shared memory";
    if (at > b->shared_bytes || bytes > b->shared_bytes - at) {
        (void)refuse("goes beyond the shared memory that was asked for,", of, at, NULL);
        return NULL;
    }
    for (int k = 0; k < 2; k++)
        if (memory.shared[k] == NULL &&
            (memory.shared[k] = untouched((1 << 18) * sizeof(ebb_race_cell))) == NULL) {
            (void)ptx_fail("no memory");
            return NULL;
        }
    const ebb_race_access me = access_of(b, who, true);
    const int size = at % 4 == 0 && bytes % 4 == 0;
    for (uint32_t i = 0; !who.writes && i < bytes; i += size ? 4 : 1)
        if (memory.shared[size][size ? (at + i) / 4 : at + i].write.launch != b->serial) {
            (void)refuse("reads what no thread of its block wrote,", of, at + i, NULL);
            return NULL;
        }
    return meet(memory.shared, at, bytes, who, &me, of) ? b->shared + at : NULL;
}
