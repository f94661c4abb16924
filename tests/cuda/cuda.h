/* cuda.h: the kernels of kernels/cuda, compiled for the host, against the plain ones.
 *
 *     with_cuda();                                     in main: kernels "cuda.NAME" are found
 *     agrees(&t, "cuda.conv", "plain.conv");           forwards and with the threads in reverse:
 *                                                      both the same bits, both near the oracle
 *
 * $EBB_TEST_CASE: the one case of a suite that is run.
 */
#pragma once

#include "tests/cuda/bounds.h"

static inline void run_one_case(void)
{
    const char *name = getenv("EBB_TEST_CASE");
    if (name != NULL)
        cmocka_set_test_filter(name);
}

#if defined(EBB_TEST_ON_DEVICE)

/* The same tests on a GPU, by libebb_cuda.so: operands lie where both sides reach them. Launches
 * wait by CUDA_LAUNCH_BLOCKING; copies and libraries need to be waited for. */
#include "kernels/plugin.h"

static const ebb_plugin *on_device;
#define ebb_backend_cuda (*on_device->backend)

static inline void wait_for_device(void)
{
    static void *word;
    uint32_t here = 0;
    const ebb_device *d = ebb_backend_cuda.device;
    ebb_status status = word == NULL ? d->allocate(more_queue, sizeof here, &word) : NULL;
    check_status(status == NULL ? d->read(more_queue, &here, word, sizeof here) : status,
                 "waiting");
}

static inline void with_cuda(void)
{
    run_one_case();
    ebb_status status = ebb_plugin_open(&on_device, 0);
    if (status == NULL)
        status = ebb_backend_cuda.device->open(&more_queue);
    if (status != NULL) {
        printf("SKIP: no GPU to run these kernels on: %s\n", ebb_status_text(status));
        exit(77);
    }
    more_backend = &ebb_backend_cuda;
    more_allocate = on_device->shared;
    more_free = on_device->unshare;
    more_wait = wait_for_device;
}

#else

#include "kernels/cuda/host/player.h"
#include "kernels/cuda/runtime.h"

extern const ebb_backend ebb_backend_cuda;

static inline void tell_bounds(const void *was, const void *data, size_t bytes, bool is_written)
{
    ebb_host_player_named()->released(was);
    if (data != NULL)
        ebb_host_player_named()->allocated(data, bytes, is_written);
}

static inline void with_cuda(void)
{
    run_one_case();
    more_backend = &ebb_backend_cuda;
    more_allocate = ebb_gpu_shared; // who watches accesses knows of it
    more_free = ebb_gpu_release;
    if (ebb_host_player_named() != NULL)
        more_bounds = tell_bounds;
    if (ebb_backend_cuda.device->open(&more_queue) != NULL)
        abort();
}

#endif

/* All outputs, in both orders of threads: the same bits there, and near the oracle. */
static inline void agrees_within(testing *t, const char *kernel, const char *oracle, double stated)
{
    double *expected[8] = {NULL};
    unsigned char *first[8] = {NULL};
    const bool is_watched = getenv("EBB_TEST_SKEW") != NULL; // an order that matters is told then
    run_with(t, oracle);
    for (uint32_t o = 0; o < t->call.output_count; o++)
        expected[o] = t->out[o].data == NULL ? NULL : values_of(&t->out[o]);
    if (!is_watched) {
        (void)setenv("EBB_CUDA_ORDER", "reverse", 1);
        run_with(t, kernel);
        (void)unsetenv("EBB_CUDA_ORDER");
    }
    for (uint32_t o = 0; !is_watched && o < t->call.output_count; o++)
        if (t->out[o].data != NULL) {
            first[o] = malloc(t->out[o].bytes + 1);
            assert_non_null(first[o]);
            memcpy(first[o], t->out[o].data, t->out[o].bytes);
        }
    run_with(t, kernel);
    for (uint32_t o = 0; o < t->call.output_count; o++) {
        if (expected[o] != NULL)
            check_bound(&t->out[o], expected[o], stated, kernel);
        if (first[o] != NULL && memcmp(first[o], t->out[o].data, t->out[o].bytes) != 0)
            fail_msg("%s: output %u depends on the order of threads", kernel, o);
        free(expected[o]);
        free(first[o]);
    }
}

/* Within what bounds.def states; without a row there: the same values. */
static inline void agrees(testing *t, const char *kernel, const char *oracle)
{
    agrees_within(t, kernel, oracle, bound_for(t, kernel));
}
