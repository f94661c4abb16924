/* pointwise.cu: operators of one to three inputs, broadcast: element i of the output from element i
 * of each. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"

typedef struct binary_args {
    void *y;
    const void *x[2];
    int64_t n;
    ebb_cuda_walk walk;
} binary_args;

#define BINARY(name, value)                               \
    EBB_GLOBAL(NAMED(name), binary_args)                  \
    {                                                     \
        STORED *out = (STORED *)a.y;                      \
        const STORED *p = (const STORED *)a.x[0];         \
        const STORED *q = (const STORED *)a.x[1];         \
        EBB_GRID_LOOP(i, a.n)                             \
        {                                                 \
            REAL x = LOAD(p, ebb_cuda_at(&a.walk, 0, i)); \
            REAL y = LOAD(q, ebb_cuda_at(&a.walk, 1, i)); \
            STORE(out, i, value);                         \
        }                                                 \
    }

#define KERNELS "kernels/cuda/pointwise_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel adds[] = EBB_CUDA_FLOATS(add);

static ebb_status run_add(const ebb_call *c)
{
    binary_args a = {c->out[0].data, {c->in[0].data, c->in[1].data}, 0, {0}};
    const ebb_type *in[2] = {&c->in[0].type, &c->in[1].type};
    a.n = ebb_cuda_elements(&c->out[0].type);
    ebb_cuda_walk_make(&a.walk, &c->out[0].type, in, 2);
    return EBB_LAUNCH(c, adds[ebb_cuda_float_row(c->in[0].type.dtype)], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

const ebb_kernel ebb_cuda_pointwise[] = {
    {"cuda.add", EBB_OP_ADD, ebb_cuda_floats, NULL, NULL, run_add, NULL},
};
EBB_CUDA_COUNT(pointwise)
