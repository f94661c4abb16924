/* literals.h: operands and results of plain kernels as lists of numbers. */
#pragma once

#include "call.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define LIST(...) ((const double[]){__VA_ARGS__})

/* An input of any dtype, with these bytes. */
static inline ebb_operand *put_data(testing *t, ebb_dtype dtype, int rank, const int64_t *dims,
                                    const void *data)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, rank, dims);
    memcpy(o->data, data, o->bytes);
    return o;
}

/* What run says, where it must refuse. */
static inline const char *refusal_of(testing *t, const char *name)
{
    const ebb_kernel *k = kernel_named(name);
    assert_null(declined_by(t, name));
    ebb_status status = k->run(&t->call);
    assert_non_null(status);
    assert_int_equal(ebb_status_code(status), EBB_RUNTIME);
    return ebb_status_text(status);
}

static inline void close_to(const ebb_operand *o, const double *expected, const char *what)
{
    check_close(o, expected, 1e-7, what);
}
