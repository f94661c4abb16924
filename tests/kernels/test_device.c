/* test_device.c: the host as a device: large blocks are of large pages where the kernel has them. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/device.h"
#include "tests/test.h"

/* Whether /proc/self/smaps marks the mapping of this address "hg": it was asked for. */
static bool asked_for(const void *address)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    bool here = false, asked = false;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = from <= (uintptr_t)address && (uintptr_t)address < to;
        if (here && strncmp(line, "VmFlags:", 8) == 0)
            asked = strstr(line, " hg") != NULL;
    }
    (void)fclose(maps);
    return asked;
}

/* An emulator of another processor says nothing of what was asked for. */
static bool tells_what_is_asked_for(void)
{
    const size_t bytes = (size_t)4 << 20;
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(block, MAP_FAILED);
    const bool asked = madvise(block, bytes, MADV_HUGEPAGE) == 0 && asked_for(block);
    assert_int_equal(munmap(block, bytes), 0);
    return asked;
}

TEST(large_blocks_ask_for_large_pages_and_small_ones_do_not)
{
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0 ||
        !tells_what_is_asked_for())
        skip(); // the kernel has none, or does not say
    static const size_t bytes[] = {(size_t)256 << 20, (size_t)1 << 20};
    for (int k = 0; k < 2; k++) {
        const ebb_device *d = &ebb_device_host;
        void *queue, *block;
        assert_null(d->open(&queue));
        assert_null(d->allocate(queue, bytes[k], &block));
        assert_int_equal(asked_for((char *)block + bytes[k] / 2), k == 0);
        d->release(queue, block);
        d->close(queue);
    }
}
