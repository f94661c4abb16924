/* fake_runtime.h: the CUDA runtime's functions that runtime.cu calls, answered by the host, so that
 * the code for devices is run by tests to its last line of errors.
 *
 * Each call that can fail is counted. A test says which of them fails, and how, in ebb_fake, or
 * in the environment of a child:
 *
 *     EBB_FAKE_FAULT=launch:3:700:stays     the third call whose name holds "launch" (any case),
 *                                           and all after it, say cudaErrorIllegalAddress
 *     EBB_FAKE_CAPABILITY=50                the device's compute capability, 10 times
 *     EBB_FAKE_BYTES=1000                   bytes of its memory that are free
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ebb_fake_runtime {
    uint64_t at;        /* the number of the call that fails, from 1; 0: none */
    char name[40];      /* counts only calls whose name holds it; "": all */
    int error;          /* a cudaError_t */
    bool stays;         /* all calls after it fail too, as after a kernel's failure */
    uint64_t calls;     /* so far */
    const char *failed; /* the name of the call that did; NULL: none */
    int64_t live;       /* what was made and is not gone: memory, streams, events, graphs */
    int capability;
    uint64_t free_bytes;
    bool stuck;
} ebb_fake_runtime;

/* Exported by the plugin, to be found by dlsym(). */
extern ebb_fake_runtime ebb_fake;

cudaError_t ebb_fake_launch(const void *kernel, struct dim3 grid, struct dim3 block, void **list,
                            size_t bytes, size_t shared, cudaStream_t stream);

/* A launch's arguments have no size in CUDA's call, since compiled kernels know it: here it is
 * taken from ebb_gpu_launch(), whose parameter `bytes` says it. */
#define cudaLaunchKernel(kernel, grid, block, list, shared, stream) \
    ebb_fake_launch((kernel), (grid), (block), (list), bytes, (shared), (stream))
