/* cuda.h: the kernels of kernels/cuda, compiled for the host, against the plain ones.
 *
 *     const fixture around_all = {with_cuda, NULL};    kernels "cuda.NAME" are found
 *     agrees(&t, "cuda.conv", "plain.conv");           forwards and with the threads in reverse:
 *                                                      both the same bits, both near the oracle
 */
#pragma once

#include "tests/cuda/bounds.h"

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

static inline int with_cuda(void **state)
{
    (void)state;
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
    return 0;
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

static inline int with_cuda(void **state)
{
    (void)state;
    more_backend = &ebb_backend_cuda;
    more_allocate = ebb_gpu_shared; // who watches accesses knows of it
    more_free = ebb_gpu_release;
    if (ebb_host_player_named() != NULL)
        more_bounds = tell_bounds;
    return ebb_backend_cuda.device->open(&more_queue) != NULL;
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

/* The same call of float64 where t has float32; of what else it reads both have one. False: it has no
 * float32, other floats too, or one that is known before the run. */
static inline bool begin_wide(testing *wide, const testing *t)
{
    bool is_there = false;
    for (uint32_t i = 0; i < t->call.input_count; i++) {
        const ebb_dtype dtype = (ebb_dtype)t->in[i].type.dtype;
        if (ebb_dtype_is_float(dtype) && (dtype != EBB_F32 || t->in[i].constant != NULL))
            return false;
        is_there |= dtype == EBB_F32;
    }
    *wide = *t;
    wide->call.in = wide->in;
    wide->call.out = wide->out;
    wide->call.attrs.list = wide->attr;
    for (uint32_t i = 0; is_there && i < t->call.input_count; i++)
        if (t->in[i].data != NULL && t->in[i].type.dtype == EBB_F32) {
            make_operand(&wide->in[i], EBB_F64, t->in[i].type.rank, t->in[i].type.dims);
            for (size_t e = 0; e < count_of(&t->in[i]); e++)
                set_value(&wide->in[i], e, value_of(&t->in[i], e));
        }
    for (uint32_t o = 0; is_there && o < t->call.output_count; o++)
        if (t->out[o].data != NULL) {
            const ebb_type *type = &t->out[o].type;
            make_operand(&wide->out[o], type->dtype == EBB_F32 ? EBB_F64 : (ebb_dtype)type->dtype,
                         type->rank, type->dims);
        }
    return is_there;
}

static inline void end_wide(const testing *wide, const testing *t)
{
    for (uint32_t i = 0; i < t->call.input_count; i++)
        if (wide->in[i].data != t->in[i].data)
            unguard(wide->in[i].data);
    for (uint32_t o = 0; o < t->call.output_count; o++)
        unguard(wide->out[o].data);
}

/* Within what bounds.def states; without a row there: the same values. Of float32 in float64, too,
 * where both kernels have it. */
static inline void agrees(testing *t, const char *kernel, const char *oracle)
{
    testing wide;
    agrees_within(t, kernel, oracle, bound_for(t, kernel));
    if (!begin_wide(&wide, t))
        return;
    if (declined_by(&wide, kernel) == NULL && declined_by(&wide, oracle) == NULL)
        agrees_within(&wide, kernel, oracle, bound_for(&wide, kernel));
    end_wide(&wide, t);
}
