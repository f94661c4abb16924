/* call.h: calls of kernels for tests: operands with guard bytes around them, attributes, all
 * phases.
 *
 *     TESTING(t);                                          until its block ends
 *     begin(&t, EBB_OP_CONV);
 *     put_ints(&t, "strides", 2, (int64_t[]){2, 2});
 *     put_in(&t, EBB_F32, 4, (int64_t[]){1, 3, 8, 8});     random values
 *     put_out(&t, EBB_F32, 4, (int64_t[]){1, 4, 4, 4});
 *     run_with(&t, "plain.conv");                          asserts that no guard was touched
 */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "tests/test.h"

enum { GUARD = 256, GUARD_BYTE = 0xA5 }; /* operands begin as a device's do */

/* Dims or other sizes: put_in(&t, EBB_F32, 2, D(3, 4)). */
#define D(...) ((const int64_t[]){__VA_ARGS__})

typedef struct testing {
    ebb_call call;
    ebb_operand in[16], out[8];
    ebb_attr attr[16];
    int64_t ints[16][8];
    uint64_t draws;
} testing;

/* What begins again before that is ended first. */
#define TESTING(t) __attribute__((cleanup(end))) testing t = {0}

/* Of all calls: the same bits for every number of threads. */
static bool deterministic;

static inline void begin(testing *t, ebb_op op)
{
    memset(t, 0, sizeof *t);
    t->call.deterministic = deterministic;
    t->call.op = op;
    t->call.version = 20;
    t->call.node = "the test's node";
    t->call.in = t->in;
    t->call.out = t->out;
    t->call.attrs.list = t->attr;
    t->draws = 1;
}

static inline ebb_attr *next_attr(testing *t, const char *name, ebb_attr_type type)
{
    ebb_attr *a = &t->attr[t->call.attrs.count++];
    a->name = name;
    a->type = type;
    return a;
}

static inline void put_int(testing *t, const char *name, int64_t value)
{
    next_attr(t, name, EBB_ATTR_INT)->i = value;
}

static inline void put_float(testing *t, const char *name, double value)
{
    next_attr(t, name, EBB_ATTR_FLOAT)->f = value;
}

static inline void put_string(testing *t, const char *name, const char *value)
{
    ebb_attr *a = next_attr(t, name, EBB_ATTR_STRING);
    a->s = value;
    a->s_bytes = strlen(value);
}

static inline void put_ints(testing *t, const char *name, uint32_t count, const int64_t *list)
{
    int64_t *keep = t->ints[t->call.attrs.count];
    ebb_attr *a = next_attr(t, name, EBB_ATTR_INTS);
    memcpy(keep, list, count * sizeof *keep);
    a->ints = keep;
    a->count = count;
}

/* Where operands lie, if not where aligned_alloc puts them: on a device that must reach them. */
static void *(*more_allocate)(size_t bytes);
static void (*more_free)(void *memory);
static void (*more_wait)(void); /* until what was asked of the device is done */
/* Who watches accesses hears where memory lies between its guards, in place of what was told of it as
 * `was`, and whether it has been written. */
static void (*more_bounds)(const void *was, const void *data, size_t bytes, bool is_written);

/* bytes between two guards, `past` (below 256) after a multiple of 256. */
static inline void *guarded_at(size_t bytes, size_t past)
{
    size_t room = (bytes + past + 3 * GUARD - 1) / GUARD * GUARD;
    unsigned char *block = more_allocate != NULL ? more_allocate(room) : aligned_alloc(GUARD, room);
    assert_non_null(block);
    memset(block, GUARD_BYTE, room);
    if (more_bounds != NULL)
        more_bounds(block, block + GUARD + past, bytes, true);
    return block + GUARD + past;
}

static inline void *guarded(size_t bytes)
{
    return guarded_at(bytes, 0);
}

static inline void check_guards(const void *data, size_t bytes, const char *what)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < GUARD; i++)
        if (p[bytes + i] != GUARD_BYTE || *(p - 1 - i) != GUARD_BYTE)
            fail_msg("%s: a byte %zu beyond its end or before its start was written", what, i);
}

static inline void unguard(void *data)
{
    unsigned char *p = data;
    if (data != NULL && more_bounds != NULL)
        more_bounds(data, NULL, 0, false);
    if (data != NULL)
        (more_free != NULL ? more_free : free)(p - GUARD - ((uintptr_t)p - GUARD) % GUARD);
}

/* In [-1, 1); a fixed sequence for each test. */
static inline double draw(testing *t)
{
    t->draws = t->draws * 6364136223846793005u + 1442695040888963407u;
    return (double)(t->draws >> 40) / 8388608.0 - 1.0;
}

static inline size_t count_of(const ebb_operand *o)
{
    int64_t n = 1;
    for (int i = 0; i < o->type.rank; i++)
        n *= o->type.dims[i];
    return (size_t)n;
}

static inline double value_of(const ebb_operand *o, size_t i)
{
    switch (o->type.dtype) {
    case EBB_F32:
        return (double)((const float *)o->data)[i];
    case EBB_F64:
        return ((const double *)o->data)[i];
    case EBB_I64:
        return (double)((const int64_t *)o->data)[i];
    case EBB_I32:
        return (double)((const int32_t *)o->data)[i];
    case EBB_BF16:
        return (double)ebb_bf16_to_float(((const uint16_t *)o->data)[i]);
    case EBB_F16:
        return (double)ebb_half_to_float(((const uint16_t *)o->data)[i]);
    default:
        fail_msg("a dtype that this test does not read");
        return 0;
    }
}

static inline void set_value(ebb_operand *o, size_t i, double value)
{
    if (o->type.dtype == EBB_F32)
        ((float *)o->data)[i] = (float)value;
    else if (o->type.dtype == EBB_F64)
        ((double *)o->data)[i] = value;
    else if (o->type.dtype == EBB_U8)
        ((uint8_t *)o->data)[i] = (uint8_t)(127.0 * value + 128.0);
    else if (o->type.dtype == EBB_BF16)
        ((uint16_t *)o->data)[i] = ebb_float_to_bf16((float)value);
    else if (o->type.dtype == EBB_F16)
        ((uint16_t *)o->data)[i] = ebb_float_to_half((float)value);
    else
        ((int64_t *)o->data)[i] = (int64_t)value;
}

static inline void make_operand(ebb_operand *o, ebb_dtype dtype, int rank, const int64_t *dims)
{
    o->type = ebb_type_tensor(dtype, rank, dims);
    o->bytes = (count_of(o) * ebb_dtype_bits(dtype) + 7) / 8;
    /* $EBB_TEST_SKEW: an element past a multiple of 256, as rows of a tile may lie. */
    const size_t size = ebb_dtype_bits(dtype) < 8 ? 1 : ebb_dtype_bits(dtype) / 8;
    o->data = guarded_at(o->bytes, getenv("EBB_TEST_SKEW") != NULL ? size : 0);
}

static inline ebb_operand *put_in(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, rank, dims);
    for (size_t i = 0; i < count_of(o); i++)
        set_value(o, i, draw(t));
    return o;
}

static inline ebb_operand *put_values(testing *t, int rank, const int64_t *dims,
                                      const double *values)
{
    ebb_operand *o = put_in(t, EBB_F64, rank, dims);
    for (size_t i = 0; i < count_of(o); i++)
        set_value(o, i, values[i]);
    return o;
}

static inline void put_absent(testing *t)
{
    t->in[t->call.input_count++].type = ebb_type_none();
}

static inline void maybe_in(testing *t, bool there, ebb_dtype dtype, int rank, const int64_t *dims)
{
    if (there)
        put_in(t, dtype, rank, dims);
    else
        put_absent(t);
}

static inline ebb_operand *put_out(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->out[t->call.output_count++];
    make_operand(o, dtype, rank, dims);
    return o;
}

static inline void end(testing *t)
{
    for (uint32_t i = 0; i < t->call.input_count; i++)
        unguard(t->in[i].data);
    for (uint32_t o = 0; o < t->call.output_count; o++)
        unguard(t->out[o].data);
    t->call.input_count = t->call.output_count = 0;
}

/* A back end that is not linked into every test, and its queue. */
static const ebb_backend *more_backend;
static void *more_queue;

static inline const ebb_kernel *kernel_named(const char *name)
{
    const ebb_backend *const all[] = {&ebb_backend_plain, &ebb_backend_dnnl, more_backend};
    for (size_t b = 0; b < 3 && all[b] != NULL; b++)
        for (const ebb_family *f = all[b]->families; f->kernels != NULL; f++)
            for (size_t k = 0; k < *f->count; k++)
                if (strcmp(f->kernels[k].name, name) == 0)
                    return &f->kernels[k];
    fail_msg("no kernel is called %s", name);
    return NULL;
}

static inline const char *declined_by(testing *t, const char *name)
{
    return ebb_kernel_declines(kernel_named(name), &t->call);
}

static inline void check_status(ebb_status status, const char *kernel)
{
    if (status != NULL)
        fail_msg("%s: %s", kernel, ebb_status_text(status));
}

/* Of a run by itself: then what it wrote may be read. */
static inline void check_run(ebb_status status, const char *kernel)
{
    check_status(status, kernel);
    if (more_wait != NULL)
        more_wait();
}

/* What the kernel is to write: NaN as float32 and float64. */
static inline void make_unwritten(void *data, size_t bytes)
{
    memset(data, 0xFF, bytes);
    if (more_bounds != NULL)
        more_bounds(data, data, bytes, false);
}

/* An output, which a later call may read, whoever wrote it. */
static inline void check_written(const ebb_operand *o, const char *what)
{
    check_guards(o->data, o->bytes, what);
    if (more_bounds != NULL)
        more_bounds(o->data, o->data, o->bytes, true);
}

/* All phases by the call's kernel. Outputs begin as NaN and workspace holds garbage; its guards are
 * checked like the operands'. */
static inline void compute_picked(testing *t, const char *what)
{
    ebb_call *c = &t->call;
    const ebb_kernel *k = c->kernel;
    c->workspace_bytes = 0;
    if (k->workspace != NULL)
        check_status(k->workspace(c, &c->workspace_bytes), what);
    c->workspace = guarded(c->workspace_bytes);
    make_unwritten(c->workspace, c->workspace_bytes);
    for (uint32_t o = 0; o < c->output_count; o++)
        if (t->out[o].data != NULL)
            make_unwritten(t->out[o].data, t->out[o].bytes);
    if (k->prepare != NULL)
        check_status(k->prepare(c), what);
    check_run(k->run(c), what);
    if (k->release != NULL && c->state != NULL)
        k->release(c);
    check_guards(c->workspace, c->workspace_bytes, what);
    for (uint32_t i = 0; i < c->input_count; i++)
        if (t->in[i].data != NULL)
            check_guards(t->in[i].data, t->in[i].bytes, what);
    for (uint32_t o = 0; o < c->output_count; o++)
        if (t->out[o].data != NULL)
            check_written(&t->out[o], what);
    unguard(c->workspace);
    c->workspace = NULL;
    c->state = NULL;
}

static inline void run_with(testing *t, const char *name)
{
    const char *why = declined_by(t, name);
    if (why != NULL)
        fail_msg("%s declines: %s", name, why);
    t->call.kernel = kernel_named(name);
    t->call.queue = more_queue;
    compute_picked(t, name);
}

/* Each |a - b| <= tolerance * (1 + largest |b|). */
static inline void check_close(const ebb_operand *o, const double *expected, double tolerance,
                               const char *what)
{
    double largest = 0;
    for (size_t i = 0; i < count_of(o); i++)
        largest = fmax(largest, isfinite(expected[i]) ? fabs(expected[i]) : 0);
    for (size_t i = 0; i < count_of(o); i++) {
        double got = value_of(o, i);
        if (got == expected[i] || (isnan(got) && isnan(expected[i])))
            continue;
        if (!(fabs(got - expected[i]) <= tolerance * (1 + largest)))
            fail_msg("%s: element %zu is %.9g, expected %.9g", what, i, got, expected[i]);
    }
}

static inline double *values_of(const ebb_operand *o)
{
    double *v = malloc((count_of(o) + 1) * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < count_of(o); i++)
        v[i] = value_of(o, i);
    return v;
}

/* One kernel against another, all outputs. */
static inline void check_agree(testing *t, const char *kernel, const char *oracle, double tolerance)
{
    double *expected[8] = {NULL};
    run_with(t, oracle);
    for (uint32_t o = 0; o < t->call.output_count; o++)
        expected[o] = t->out[o].data == NULL ? NULL : values_of(&t->out[o]);
    run_with(t, kernel);
    for (uint32_t o = 0; o < t->call.output_count; o++) {
        if (expected[o] != NULL)
            check_close(&t->out[o], expected[o], tolerance, kernel);
        free(expected[o]);
    }
}
