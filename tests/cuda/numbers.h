/* numbers.h: operands of any dtype for calls of pointwise kernels, and what is near what.
 *
 *     put_numbers(&t, EBB_F16, 2, dims, -3, 3);       random, and at times 0, infinite, NaN, at an end of range
 *     put_edges(&t, EBB_F16, n, 1);                   all of edges.h
 *     same_as(&t, "cuda.exp", "plain.exp");           within what bounds.def states; integers, bools
 *                                                     and NaN exactly; in both orders
 *     same_as_float32(&t, "cuda.exp");                16 bits: the float32 kernel's, rounded
 */
#pragma once

#include "tests/cuda/cuda.h"
#include "tests/cuda/edges.h"

#include "kernels/nested/widen.h"
#include "tests/owned.h"

static inline bool is_real(const ebb_operand *o)
{
    return ebb_dtype_is_float((ebb_dtype)o->type.dtype);
}

static inline bool is_narrow(const ebb_operand *o)
{
    return o->type.dtype == EBB_F16 || o->type.dtype == EBB_BF16;
}

static inline double real_at(const ebb_operand *o, size_t i)
{
    float wide;
    if (!is_narrow(o))
        return value_of(o, i);
    ebb_widen(&wide, (const uint16_t *)o->data + i, (ebb_dtype)o->type.dtype, 1);
    return (double)wide;
}

static inline void put_real(ebb_operand *o, size_t i, double v)
{
    float narrow = (float)v;
    if (is_narrow(o))
        ebb_narrow((uint16_t *)o->data + i, &narrow, (ebb_dtype)o->type.dtype, 1);
    else
        set_value(o, i, v);
}

static inline ebb_operand *put_numbers(testing *t, ebb_dtype dtype, int rank, const int64_t *dims,
                                       double low, double high)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, rank, dims);
    size_t size = ebb_dtype_bits(dtype) / 8;
    for (size_t i = 0; i < count_of(o); i++) {
        double v = low + (high - low) * (draw(t) + 1) / 2;
        if (is_real(o)) {
            bool is_odd = draw(t) > 0.8;
            put_real(o, i, is_odd ? edges[(size_t)((draw(t) + 1) / 2 * EDGES)] : v);
            continue;
        }
        int64_t whole = (int64_t)v;
        if (dtype == EBB_BOOL)
            whole = draw(t) > 0;
        memcpy((char *)o->data + i * size, &whole, size);
    }
    return o;
}

/* Edges by turns, each of them `run` times: of an operand with run 1 and one with run EDGES, ALL_PAIRS
 * elements are each pair at each place of a pack of eight. */
enum { ALL_PAIRS = 8 * EDGES * EDGES };

static inline ebb_operand *put_edges(testing *t, ebb_dtype dtype, int64_t n, size_t run)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, 1, &n);
    for (size_t i = 0; i < count_of(o); i++)
        put_real(o, i, edges[i / run % EDGES]);
    return o;
}

/* Bits of all inputs as they come: every integer, NaN of every kind. */
static inline void put_bits(testing *t, ebb_operand *o)
{
    for (size_t i = 0; i < o->bytes; i++)
        ((uint8_t *)o->data)[i] = (uint8_t)(int)((draw(t) + 1) * 128);
}

static inline double last_place(const ebb_operand *o)
{
    return o->type.dtype == EBB_F32   ? 0x1p-23
           : o->type.dtype == EBB_F64 ? 0x1p-52
           : o->type.dtype == EBB_F16 ? 0x1p-10
                                      : 0x1p-7;
}

/* Numbers below it have no leading bit, so that their last place stays what its last place is. */
static inline double least_normal(const ebb_operand *o)
{
    return o->type.dtype == EBB_F64 ? 0x1p-1022 : o->type.dtype == EBB_F16 ? 0x1p-14 : 0x1p-126;
}

/* `least`: below it the error is absolute. */
static inline void check_near(const ebb_operand *got, const void *expected, double places,
                              double least, const char *what)
{
    double worst = 0;
    ebb_operand e = *got;
    e.data = (void *)(uintptr_t)expected;
    least = fmax(least, least_normal(got));
    for (size_t i = 0; i < count_of(got); i++) {
        if (!is_real(got)) {
            size_t size = ebb_dtype_bits((ebb_dtype)got->type.dtype) / 8;
            if (memcmp((const char *)got->data + i * size, (const char *)expected + i * size,
                       size) != 0)
                fail_msg("%s: element %zu of %zu differs", what, i, count_of(got));
            continue;
        }
        double a = real_at(got, i), b = real_at(&e, i);
        if (a == b || (isnan(a) && isnan(b)))
            continue;
        worst = fmax(worst, fabs(a - b) / last_place(got) / fmax(fabs(b), least));
        if (!(fabs(a - b) <= places * last_place(got) * fmax(fabs(b), least)))
            fail_msg("%s: element %zu of %zu is %.9g, expected %.9g", what, i, count_of(got), a, b);
    }
    has_seen(what, got, worst, places);
}

static inline void *bytes_of(const ebb_operand *o)
{
    void *bytes = malloc(o->bytes + 1);
    assert_non_null(bytes);
    memcpy(bytes, o->data, o->bytes);
    return bytes;
}

/* Runs the kernel with the threads in both orders: both give the same bits. */
static inline void run_both_orders(testing *t, const char *kernel)
{
    (void)setenv("EBB_CUDA_ORDER", "reverse", 1);
    run_with(t, kernel);
    (void)unsetenv("EBB_CUDA_ORDER");
    FREED void *first = bytes_of(&t->out[0]);
    run_with(t, kernel);
    if (memcmp(first, t->out[0].data, t->out[0].bytes) != 0)
        fail_msg("%s depends on the order of threads", kernel);
}

static inline void same_as(testing *t, const char *kernel, const char *oracle)
{
    const bound b = bound_of(kernel);
    assert_true(b.in_places || b.f32 == 0);
    run_with(t, oracle);
    FREED void *expected = bytes_of(&t->out[0]);
    run_both_orders(t, kernel);
    check_near(&t->out[0], expected, b.f32, b.least, kernel);
}

/* A float32 operand of the same numbers, or none. */
static inline void widen_operand(ebb_operand *o)
{
    if (!is_narrow(o))
        return;
    ebb_operand wide;
    make_operand(&wide, EBB_F32, o->type.rank, o->type.dims);
    ebb_widen(wide.data, o->data, (ebb_dtype)o->type.dtype, (int64_t)count_of(o));
    unguard(o->data);
    *o = wide;
}

/* The call has float16 or bfloat16 operands; afterwards float32 ones. */
static inline void same_as_float32(testing *t, const char *kernel)
{
    run_both_orders(t, kernel);
    ebb_operand narrow = t->out[0];
    narrow.data = bytes_of(&narrow);
    for (uint32_t i = 0; i < t->call.input_count; i++)
        widen_operand(&t->in[i]);
    widen_operand(&t->out[0]);
    run_with(t, kernel);
    FREED void *rounded = malloc(narrow.bytes + 1);
    assert_non_null(rounded);
    if (is_narrow(&narrow))
        ebb_narrow(rounded, t->out[0].data, (ebb_dtype)narrow.type.dtype,
                   (int64_t)count_of(&narrow));
    else
        memcpy(rounded, t->out[0].data, narrow.bytes);
    check_near(&narrow, rounded, 0, 0, kernel);
    free(narrow.data);
}
