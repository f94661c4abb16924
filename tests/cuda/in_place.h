/* in_place.h: a CUDA kernel whose output 0 lies over one of its inputs, against itself beside it:
 * the same bits, in both orders of threads. */
#pragma once

#include "tests/cuda/cuda.h"
#include "tests/owned.h"

static inline void agrees_in_place(testing *t, const char *kernel, uint32_t input)
{
    const ebb_kernel *k = kernel_named(kernel);
    const size_t bytes = t->out[0].bytes;
    run_with(t, kernel);
    FREED unsigned char *before = malloc(bytes + 1);
    assert_non_null(before);
    memcpy(before, t->in[input].data, bytes);
    for (int reverse = 0; reverse < 2; reverse++) {
        ebb_operand out[8];
        memcpy(out, t->out, sizeof out);
        out[0].data = t->in[input].data;
        ebb_call c = t->call;
        c.out = out;
        c.workspace = guarded(c.workspace_bytes);
        memset(c.workspace, 0xFF, c.workspace_bytes);
        if (reverse)
            (void)setenv("EBB_CUDA_ORDER", "reverse", 1);
        check_run(k->run(&c), kernel);
        (void)unsetenv("EBB_CUDA_ORDER");
        unguard(c.workspace);
        if (memcmp(out[0].data, t->out[0].data, bytes) != 0)
            fail_msg("%s over its input %u is not what it is beside it", kernel, input);
        memcpy(t->in[input].data, before, bytes);
    }
}
