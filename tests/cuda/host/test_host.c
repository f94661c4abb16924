/* test_host.c: the emulator under the kernels: it must find what it is there to find. */
#include "tests/cuda/cuda.h"

#include "kernels/cuda/floats.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/runtime.h"

typedef struct sum_args {
    double *sums;
    const double *x;
    int64_t n;
    int fault; /* 0: right; 1: no barrier; 2: some threads leave early */
} sum_args;

EBB_GLOBAL(block_sum, sum_args)
{
    EBB_SHARED(double, part);
    if (a.fault == 2 && EBB_THREAD >= 64)
        return;
    double sum = 0;
    EBB_BLOCK_LOOP(i, a.n)
    sum += a.x[i];
    part[EBB_THREAD] = sum;
    ebb_barrier();
    for (uint32_t half = EBB_THREADS / 2; half > 0; half /= 2) {
        if (EBB_THREAD < half)
            part[EBB_THREAD] += part[EBB_THREAD + half];
        if (a.fault != 1)
            ebb_barrier();
    }
    if (EBB_THREAD == 0)
        a.sums[EBB_BLOCK] = part[0];
}

typedef struct lane_args {
    uint32_t *out;
} lane_args;

EBB_GLOBAL(lanes, lane_args)
{
    uint32_t v = EBB_THREAD * 3 + 1;
    for (uint32_t half = 16; half > 0; half /= 2)
        v += ebb_lane_xor_u32(v, half);
    uint32_t odd = ebb_ballot(EBB_THREAD % 2 == 1);
    a.out[EBB_THREAD] = v + odd + ebb_lane_from_u32(EBB_THREAD, 5);
}

EBB_GLOBAL_OF(wide_lanes, lane_args, 512)
{
    a.out[EBB_BLOCK * EBB_THREADS + EBB_THREAD] = 1;
}

static void *stream;

static ebb_status launch_sum(int fault, double *sums, const double *x, int64_t n)
{
    const sum_args a = {sums, x, n, fault};
    return ebb_gpu_launch(stream, (ebb_gpu_kernel)block_sum, (ebb_gpu_grid){3, 1, 1}, 256,
                          256 * sizeof(double), &a, sizeof a);
}

TEST(blocks_sum_with_barriers)
{
    double x[1000], sums[3] = {0};
    for (int i = 0; i < 1000; i++)
        x[i] = i;
    for (int reverse = 0; reverse < 2; reverse++) {
        (void)setenv("EBB_CUDA_ORDER", reverse ? "reverse" : "forward", 1);
        check_status(launch_sum(0, sums, x, 1000), "block_sum");
        for (int b = 0; b < 3; b++)
            assert_true(sums[b] == 499500.0);
    }
    (void)unsetenv("EBB_CUDA_ORDER");
}

TEST(a_forgotten_barrier_shows_in_one_order_or_the_other)
{
    double x[1000], sums[2][3];
    for (int i = 0; i < 1000; i++)
        x[i] = i;
    for (int reverse = 0; reverse < 2; reverse++) {
        (void)setenv("EBB_CUDA_ORDER", reverse ? "reverse" : "forward", 1);
        check_status(launch_sum(1, sums[reverse], x, 1000), "block_sum");
    }
    (void)unsetenv("EBB_CUDA_ORDER");
    assert_true(sums[0][0] != 499500.0 || sums[1][0] != 499500.0);
}

TEST(threads_that_miss_a_barrier_are_an_error_not_a_hang)
{
    double x[8] = {0}, sums[3];
    ebb_status status = launch_sum(2, sums, x, 8);
    assert_non_null(status);
    assert_non_null(strstr(ebb_status_text(status), "wait for each other"));
}

TEST(warps_exchange_and_vote)
{
    uint32_t out[96];
    const lane_args a = {out};
    check_status(
        ebb_gpu_launch(stream, (ebb_gpu_kernel)lanes, (ebb_gpu_grid){1, 1, 1}, 96, 0, &a, sizeof a),
        "lanes");
    for (uint32_t t = 0; t < 96; t++) {
        uint32_t w = t / 32, sum = 0;
        for (uint32_t l = 0; l < 32; l++)
            sum += (w * 32 + l) * 3 + 1;
        assert_int_equal(out[t], sum + 0xAAAAAAAAu + w * 32 + 5);
    }
}

/* A record keeps arguments as they were: a value that changes between steps must not be one. */
TEST(a_record_repeats_its_arguments)
{
    double x[4] = {1, 2, 3, 4}, sums[3] = {0};
    void *record;
    check_status(ebb_gpu_record(stream), "record");
    check_status(launch_sum(0, sums, x, 4), "block_sum");
    assert_non_null(ebb_gpu_wait(stream));
    assert_true(sums[0] == 0);
    check_status(ebb_gpu_recorded(stream, &record), "recorded");
    for (int step = 0; step < 3; step++) {
        x[0] = step;
        check_status(ebb_gpu_replay(stream, record), "replay");
        assert_true(sums[2] == 9.0 + step);
    }
    ebb_gpu_forget(record);
}

/* By what a device says: cudaLaunchKernel's invalid configuration, and its lack of resources. */
TEST(impossible_launches_are_refused)
{
    static const struct {
        ebb_gpu_kernel kernel;
        ebb_gpu_grid blocks;
        uint32_t threads, shared_bytes;
        const char *words; /* NULL: it is possible */
    } all[] = {
        {(ebb_gpu_kernel)lanes, {1, 1, 1}, 256, 0, NULL},
        {(ebb_gpu_kernel)lanes, {1, 1, 1}, 288, 0, "288 threads"},
        {(ebb_gpu_kernel)lanes, {1, 1, 1}, 0, 0, "invalid configuration"},
        {(ebb_gpu_kernel)lanes, {1, 1, 1}, 48, 0, "invalid configuration"},
        {(ebb_gpu_kernel)lanes, {1, 1, 1}, 2048, 0, "invalid configuration"},
        {(ebb_gpu_kernel)lanes, {1, 1, 1}, 32, 99 * 1024, NULL},
        {(ebb_gpu_kernel)lanes, {1, 1, 1}, 32, 99 * 1024 + 1, "invalid configuration"},
        {(ebb_gpu_kernel)lanes, {1, 70000, 1}, 32, 0, "invalid configuration"},
        {(ebb_gpu_kernel)lanes, {1, 1, 70000}, 32, 0, "invalid configuration"},
        {(ebb_gpu_kernel)lanes, {0x80000000u, 1, 1}, 32, 0, "invalid configuration"},
        {(ebb_gpu_kernel)wide_lanes, {2, 1, 1}, 512, 0, NULL},
        {(ebb_gpu_kernel)wide_lanes, {2, 1, 1}, 544, 0, "544 threads"},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        uint32_t out[1024] = {0};
        const lane_args a = {out};
        const ebb_status status = ebb_gpu_launch(stream, all[k].kernel, all[k].blocks,
                                                 all[k].threads, all[k].shared_bytes, &a, sizeof a);
        if (all[k].words == NULL)
            check_status(status, "launch");
        else if (status == NULL || strstr(ebb_status_text(status), all[k].words) == NULL)
            fail_msg("launch %zu: %s", k, status == NULL ? "done" : ebb_status_text(status));
        else
            assert_int_equal(out[0], 0); // no thread has done anything
    }
}

/* Every float16 and bfloat16, and what lies between two of them, by onnx/words/tensor.c. */
TEST(halves_are_rounded_as_everywhere)
{
    for (uint32_t b = 0; b < 65536; b++) {
        ebb_f16 h = {(uint16_t)b};
        ebb_bf16 g = {(uint16_t)b};
        float f = ebb_from_f16(h), e = ebb_half_to_float((uint16_t)b);
        assert_true(f == e || (isnan(f) && isnan(e)));
        f = ebb_from_bf16(g);
        e = ebb_bf16_to_float((uint16_t)b);
        assert_true(f == e || (isnan(f) && isnan(e)));
    }
    for (uint64_t bits = 0; bits < 0x100000000u; bits += 12345) {
        float v = ebb_f32_of_bits((uint32_t)bits);
        if (isnan(v))
            continue;
        assert_int_equal(ebb_to_f16(v).bits, ebb_float_to_half(v));
        assert_int_equal(ebb_to_bf16(v).bits, ebb_float_to_bf16(v));
    }
    assert_true(isnan(ebb_from_f16(ebb_to_f16(NAN))) && isnan(ebb_from_bf16(ebb_to_bf16(NAN))));
}

static int open_stream(void **state)
{
    (void)state;
    return ebb_gpu_open(&stream) == NULL ? 0 : 1;
}

static int close_stream(void **state)
{
    (void)state;
    ebb_gpu_close(stream);
    return 0;
}

const fixture around_all = {open_stream, close_stream};
