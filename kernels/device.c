/* device.c: the host as a device: everything at once, nothing recorded. */
#include "kernels/device.h"

#include "onnx/words/arena.h"
#include "onnx/words/amount.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, LARGE_PAGE = 2 << 20, LARGE_BLOCK = 64 << 20 };

static ebb_status open_queue(void **queue)
{
    *queue = NULL;
    return NULL;
}

static void close_queue(void *queue)
{
    (void)queue;
}

/* Large pages for a large block: what a program touches is nearly all of it, so that it takes no more
 * memory; each page is cleared when it is first touched, which by 4 KiB takes several times as long. Where the
 * kernel has none, or was told to give none, nothing changes. */
static void ask_for_large_pages(void *block, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const size_t before = (LARGE_PAGE - (uintptr_t)block % LARGE_PAGE) % LARGE_PAGE;
    if (bytes >= LARGE_BLOCK)
        (void)madvise((char *)block + before, (bytes - before) / LARGE_PAGE * LARGE_PAGE,
                      MADV_HUGEPAGE);
#else
    (void)block;
    (void)bytes;
#endif
}

static ebb_status allocate(void *queue, size_t bytes, void **block)
{
    (void)queue;
    *block = ebb_alloc_aligned(ALIGN, bytes);
    if (*block != NULL) {
        ask_for_large_pages(*block, bytes);
        return NULL;
    }
    return ebb_error(EBB_RUNTIME, "a step needs %s, which cannot be allocated",
                     ebb_bytes(bytes).text);
}

static void release(void *queue, void *block)
{
    (void)queue;
    ebb_free_aligned(block);
}

static ebb_status copy(void *queue, void *to, const void *from, size_t bytes)
{
    (void)queue;
    memcpy(to, from, bytes);
    return NULL;
}

static ebb_status begin(void *queue, uint64_t step, bool *replays)
{
    (void)queue;
    (void)step;
    *replays = false;
    return NULL;
}

static ebb_status end(void *queue, ebb_fault *fault)
{
    (void)queue;
    *fault = (ebb_fault){0};
    return NULL;
}

static bool abandon(void *queue)
{
    (void)queue;
    return false;
}

static ebb_status facts(void *queue, ebb_device_facts *f)
{
    (void)queue;
    *f = (ebb_device_facts){.name = "host"};
    return NULL;
}

/* One core of a present-day server processor, and a disk without moving parts, whose bytes are copied and
 * summed by cores that else compute. Products of 16 bits: by the processor's own instructions (AVX512-BF16 gave
 * 230 GFLOP/s, float32 128), whichever machine plans: a plan is one file for all. */
static const ebb_rates *rates(void)
{
    static const ebb_rates core = {.products16 = 90,
                                   .products32 = 50,
                                   .operations = 50,
                                   .bytes = 10,
                                   .node_ns = 1000,
                                   .disk = {1, 1, 0.25},
                                   .link = {0.2, 0.2, 0.2}};
    return &core;
}

const ebb_device ebb_device_host = {
    .name = "host",
    .align = ALIGN,
    .open = open_queue,
    .close = close_queue,
    .allocate = allocate,
    .release = release,
    .write = copy,
    .read = copy,
    .copy = copy,
    .begin = begin,
    .end = end,
    .abandon = abandon,
    .facts = facts,
    .rates = rates,
    .is_host = true,
};
