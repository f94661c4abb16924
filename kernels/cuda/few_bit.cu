/* few_bit.cu: a derivative in a few levels: FewBit notes which, FewBitGrad multiplies with it.
 *
 * Eight codes in a row make `bits` bytes, the number sum of code_i << (bits i) with its lowest byte
 * first: 3 bits an element are 3 bits, not 4.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/call/misfit.h"

typedef struct few_bit_args {
    void *out;         /* dx */
    const void *real;  /* x or dy */
    const void *table; /* borders or levels */
    uint8_t *codes;
    int64_t n;
    int32_t bits;
    bool aligned; /* out and real, to 16 bytes */
} few_bit_args;

EBB_GPU_INLINE void put_codes(uint8_t *codes, int64_t g, int32_t bits, uint32_t all)
{
    for (int k = 0; k < bits; k++)
        codes[g * bits + k] = (uint8_t)(all >> (8 * k));
}

EBB_GPU_INLINE uint32_t get_codes(const uint8_t *codes, int64_t g, int32_t bits)
{
    uint32_t all = 0;
    for (int k = 0; k < bits; k++)
        all |= (uint32_t)codes[g * bits + k] << (8 * k);
    return all;
}

#define KERNELS "kernels/cuda/few_bit_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel encodes[4] = EBB_CUDA_FLOATS(encode);
static const ebb_gpu_kernel multiplies[4] = EBB_CUDA_FLOATS(multiply);

static ebb_status run(const ebb_call *c, few_bit_args *given, const ebb_gpu_kernel kernels[4])
{
    few_bit_args a = *given;
    a.real = c->in[0].data;
    a.n = ebb_elements(&c->in[0].type);
    a.bits = (int32_t)ebb_attr_int(&c->attrs, "bits", 1);
    a.aligned = (uintptr_t)a.real % 16 == 0 && (uintptr_t)a.out % 16 == 0;
    return EBB_LAUNCH(c, kernels[ebb_cuda_float_row(c->in[0].type.dtype)],
                      ebb_cuda_grid((a.n + 7) / 8), EBB_CUDA_BLOCK, 0, a);
}

/* (X, borders) {bits} -> codes: uint8[ceil(n / 8) * bits] */
static ebb_status run_encode(const ebb_call *c)
{
    few_bit_args a;
    memset(&a, 0, sizeof a);
    a.table = c->in[1].data;
    a.codes = (uint8_t *)c->out[0].data;
    return run(c, &a, encodes);
}

/* (dY, codes, levels) {bits} -> dX; dx may be dy */
static ebb_status run_grad(const ebb_call *c)
{
    few_bit_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    a.codes = (uint8_t *)c->in[1].data;
    a.table = c->in[2].data;
    return run(c, &a, multiplies);
}

// clang-format off
const ebb_kernel ebb_cuda_few_bit[] = {
    {.name = "cuda.few_bit",      .op = EBB_OP_FEW_BIT,      .dtypes = ebb_cuda_floats, .fits = ebb_few_bit_misfit, .run = run_encode},
    {.name = "cuda.few_bit_grad", .op = EBB_OP_FEW_BIT_GRAD, .dtypes = ebb_cuda_floats, .fits = ebb_few_bit_misfit, .run = run_grad},
};
// clang-format on
EBB_CUDA_COUNT(few_bit)
