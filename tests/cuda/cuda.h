/* cuda.h: the kernels of kernels/cuda, compiled for the host, against the plain ones.
 *
 *     with_cuda();                                     in main: kernels "cuda.NAME" are found
 *     agrees(&t, "cuda.add", "plain.add", 1e-6);       forwards and with the threads in reverse:
 *                                                      both the same bits, both near the oracle
 */
#ifndef EBB_TESTS_CUDA_CUDA_H
#define EBB_TESTS_CUDA_CUDA_H

#include "tests/kernels/call.h"

#if defined(EBB_TEST_ON_DEVICE)

/* The same tests on a GPU, by libebb_cuda.so: operands lie where both sides reach them, and
 * CUDA_LAUNCH_BLOCKING makes each launch wait. */
#include "kernels/plugin.h"

static const ebb_plugin *on_device;
#define ebb_backend_cuda (*on_device->backend)

static inline void with_cuda(void)
{
    ebb_status status = ebb_plugin_cuda(&on_device);
    if (status == NULL)
        status = ebb_backend_cuda.device->open(&more_queue);
    if (status != NULL) {
        printf("SKIP: no GPU to run these kernels on: %s\n", ebb_status_text(status));
        exit(77);
    }
    more_backend = &ebb_backend_cuda;
    more_allocate = on_device->shared;
    more_free = on_device->unshare;
}

#else

extern const ebb_backend ebb_backend_cuda;

static inline void with_cuda(void)
{
    more_backend = &ebb_backend_cuda;
    if (ebb_backend_cuda.device->open(&more_queue) != NULL)
        abort();
}

#endif

static inline void agrees(testing *t, const char *kernel, const char *oracle, double tolerance)
{
    unsigned char *first[8] = {NULL};
    (void)setenv("EBB_CUDA_ORDER", "reverse", 1);
    run_with(t, kernel);
    (void)unsetenv("EBB_CUDA_ORDER");
    for (uint32_t o = 0; o < t->call.output_count; o++)
        if (t->out[o].data != NULL) {
            first[o] = malloc(t->out[o].bytes + 1);
            assert_non_null(first[o]);
            memcpy(first[o], t->out[o].data, t->out[o].bytes);
        }
    check_agree(t, kernel, oracle, tolerance);
    for (uint32_t o = 0; o < t->call.output_count; o++) {
        if (first[o] != NULL && memcmp(first[o], t->out[o].data, t->out[o].bytes) != 0)
            fail_msg("%s: output %u depends on the order of threads", kernel, o);
        free(first[o]);
    }
}

#endif
