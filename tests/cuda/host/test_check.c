/* test_check.c: the watch over kernels' memory (kernels/cuda/host/check.c) finds what it is there
 * to find, and nothing in kernels that are right. */
#include "tests/cuda/cuda.h"

#include "kernels/cuda/gpu.h"

typedef enum fault {
    NONE,
    NO_BARRIER,  /* a neighbour's word is read while it may be written */
    NO_SECOND,   /* a word is written while a neighbour may still read it */
    ONE_WORD,    /* all blocks write the same word */
    OTHER_BLOCK, /* a block reads what another writes */
    UNWRITTEN,   /* shared memory that nobody wrote */
    BEYOND,      /* more shared memory than was asked for */
    FROM_HOST,   /* a pointer to the host's memory */
    ASKEW,       /* 16 bytes at once from where they are not aligned */
} fault;

typedef struct fault_args {
    uint32_t *out; /* [blocks, threads] */
    const uint32_t *in;
    uint32_t *counter;
    fault is;
} fault_args;

typedef struct four {
    uint32_t v[4];
} EBB_ALIGN(16) four;

EBB_GLOBAL(faulty, fault_args)
{
    EBB_SHARED(uint32_t, word);
    const uint32_t next = (EBB_THREAD + 1) % EBB_THREADS;
    const uint32_t at = EBB_BLOCK * EBB_THREADS + EBB_THREAD;
    if (a.is != UNWRITTEN || EBB_THREAD != 5)
        word[EBB_THREAD] = a.in[EBB_THREAD];
    if (a.is != NO_BARRIER)
        ebb_barrier();
    uint32_t sum = word[next];
    if (a.is != NO_SECOND)
        ebb_barrier();
    word[EBB_THREAD] = sum;
    if (a.is == BEYOND && EBB_THREAD == 0)
        word[EBB_THREADS] = 1;
    if (a.is == ASKEW && EBB_THREAD == 0) {
        const four taken = *(const four *)(const void *)(a.in + 1);
        sum += taken.v[2];
    }
    (void)ebb_atomic_add_u32(a.counter, 1);
    a.out[a.is == ONE_WORD ? EBB_THREAD : at] = sum;
    if (a.is == OTHER_BLOCK && EBB_BLOCK == 1)
        a.out[at] += a.out[EBB_THREAD];
}

enum { THREADS = 96, BLOCKS = 2 };

/* What is told of a launch, in either order of threads; NULL: nothing. */
static ebb_status launched(fault is)
{
    uint32_t *memory = ebb_gpu_shared((BLOCKS * THREADS + THREADS + 8) * sizeof *memory);
    static uint32_t host[THREADS];
    void *stream;
    assert_non_null(memory);
    memset(memory, 0, (BLOCKS * THREADS + THREADS + 8) * sizeof *memory);
    check_status(ebb_gpu_open(&stream), "open");
    const fault_args a = {memory + THREADS + 8, is == FROM_HOST ? host : memory, memory + THREADS,
                          is};
    ebb_status status = ebb_gpu_launch(stream, (ebb_gpu_kernel)faulty, (ebb_gpu_grid){BLOCKS, 1, 1},
                                       THREADS, THREADS * sizeof(uint32_t), &a, sizeof a);
    if (status == NULL)
        assert_int_equal(memory[THREADS], THREADS * BLOCKS);
    ebb_gpu_close(stream);
    ebb_gpu_release(memory);
    return status;
}

TEST(what_only_a_device_would_show_is_told)
{
    static const struct {
        fault is;
        const char *says;
    } faults[] = {
        {NO_BARRIER, "no thread of its block wrote"},
        {NO_SECOND, "another thread"},
        {ONE_WORD, "of block 0"},
        {OTHER_BLOCK, "of block 0"},
        {UNWRITTEN, "no thread of its block wrote"},
        {BEYOND, "beyond the shared"},
        {FROM_HOST, "not the device's"},
        {ASKEW, "not aligned to 16 bytes"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        ebb_status status = launched(faults[i].is);
        if (status == NULL || strstr(ebb_status_text(status), faults[i].says) == NULL)
            fail_msg("fault %d: %s", (int)faults[i].is,
                     status != NULL ? ebb_status_text(status) : "nothing is told");
    }
}

TEST(nothing_is_told_of_what_is_right)
{
    check_status(launched(NONE), "a kernel without faults");
}
