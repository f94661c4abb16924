/* bits.h: for kernels that must give the very bits of another: operands of any dtype, lists known
 * before the run, faults.
 *
 *     put_raw(&t, EBB_BF16, 2, (int64_t[]){3, 5});      random bytes
 *     put_list(&t, 2, (int64_t[]){0, 1});               a constant int64 vector
 *     same_bits(&t, "cuda.pad", "plain.pad");           in both orders of threads
 */
#pragma once

#include "tests/cuda/cuda.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static inline ebb_operand *put_raw(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, rank, dims);
    for (size_t i = 0; i < o->bytes; i++)
        ((uint8_t *)o->data)[i] = (uint8_t)(127.0 * draw(t) + 128.0);
    return o;
}

/* The operand's value is known before the run, as axes and shapes must be. */
static inline void make_constant(testing *t, ebb_operand *o)
{
    static ebb_tensor known[16];
    ebb_tensor *c = &known[o - t->in];
    *c = (ebb_tensor){.type = o->type, .data = o->data, .bytes = o->bytes};
    o->constant = c;
}

static inline ebb_operand *put_list(testing *t, int64_t count, const int64_t *list)
{
    ebb_operand *o = put_raw(t, EBB_I64, 1, &count);
    if (count > 0)
        memcpy(o->data, list, o->bytes);
    make_constant(t, o);
    return o;
}

/* Random indices of -n .. n - 1. */
static inline ebb_operand *put_indices(testing *t, ebb_dtype dtype, int rank, const int64_t *dims,
                                       int64_t n)
{
    ebb_operand *o = put_raw(t, dtype, rank, dims);
    for (size_t i = 0; i < count_of(o); i++) {
        int64_t at = (int64_t)(draw(t) * (double)n);
        if (dtype == EBB_I32)
            ((int32_t *)o->data)[i] = (int32_t)at;
        else
            ((int64_t *)o->data)[i] = at;
    }
    return o;
}

/* Are both no numbers? Which bits such a result has is the machine's. */
static inline bool both_nan(const ebb_operand *o, size_t byte, const void *a, const void *b)
{
    double x[2] = {0, 0};
    const void *of[2] = {a, b};
    for (int k = 0; k < 2; k++)
        if (o->type.dtype == EBB_F32) {
            float v;
            memcpy(&v, (const char *)of[k] + byte / sizeof v * sizeof v, sizeof v);
            x[k] = (double)v;
        } else if (o->type.dtype == EBB_F16 || o->type.dtype == EBB_BF16) {
            uint16_t v;
            memcpy(&v, (const char *)of[k] + byte / sizeof v * sizeof v, sizeof v);
            x[k] = (v & 0x7FFF) > (o->type.dtype == EBB_F16 ? 0x7C00 : 0x7F80) ? (double)NAN : 0;
        } else if (o->type.dtype == EBB_F64) {
            memcpy(&x[k], (const char *)of[k] + byte / sizeof x[k] * sizeof x[k], sizeof x[k]);
        }
    return isnan(x[0]) && isnan(x[1]);
}

/* All outputs, of any dtype; the oracle may be the kernel itself, which then meets both orders.
 * computes: floats are made, not moved, so that any NaN is as good. */
static inline void same_bits_but(testing *t, const char *kernel, const char *oracle, bool computes)
{
    unsigned char *expected[8] = {NULL};
    run_with(t, oracle);
    for (uint32_t o = 0; o < t->call.output_count; o++)
        if (t->out[o].data != NULL) {
            expected[o] = malloc(t->out[o].bytes + 1);
            assert_non_null(expected[o]);
            memcpy(expected[o], t->out[o].data, t->out[o].bytes);
        }
    const int orders = getenv("EBB_TEST_SKEW") != NULL ? 1 : 2; // as in agrees()
    for (int reverse = 0; reverse < orders; reverse++) {
        (void)setenv("EBB_CUDA_ORDER", reverse ? "reverse" : "forward", 1);
        run_with(t, kernel);
        (void)unsetenv("EBB_CUDA_ORDER");
        for (uint32_t o = 0; o < t->call.output_count; o++)
            for (size_t i = 0; expected[o] != NULL && i < t->out[o].bytes; i++)
                if (expected[o][i] != ((unsigned char *)t->out[o].data)[i] &&
                    !(computes && both_nan(&t->out[o], i, expected[o], t->out[o].data)))
                    fail_msg("%s: byte %zu of output %u is %02x, expected %02x%s", kernel, i, o,
                             ((unsigned char *)t->out[o].data)[i], expected[o][i],
                             reverse ? " (threads in reverse)" : "");
    }
    has_seen(kernel, &t->out[0], 0, 0);
    for (uint32_t o = 0; o < t->call.output_count; o++)
        free(expected[o]);
}

static inline void same_bits(testing *t, const char *kernel, const char *oracle)
{
    same_bits_but(t, kernel, oracle, false);
}

/* What the device says of one run of the kernel as call number `position`. */
static inline ebb_fault fault_of(testing *t, const char *kernel, uint32_t position)
{
    const ebb_device *d = ebb_backend_cuda.device;
    ebb_fault fault;
    bool replays;
    t->call.position = position;
    check_status(d->begin(more_queue, 0, &replays), kernel);
    run_with(t, kernel);
    check_status(d->end(more_queue, &fault), kernel);
    return fault;
}

/* The kernel met `value` where -n .. n - 1 is right. */
static inline void check_fault(testing *t, const char *kernel, int64_t value, int64_t n)
{
    ebb_fault fault = fault_of(t, kernel, 70);
    assert_true(fault.there);
    assert_int_equal(fault.kind, EBB_FAULT_RANGE);
    assert_int_equal(fault.position, 70);
    assert_int_equal(fault.value, value);
    assert_int_equal(fault.low, -n);
    assert_int_equal(fault.high, n);
}
