/* low_bit.cu: optimizers' steps whose states are codes: the bits of the plain kernels in codes and
 * scales.
 *
 * A team of lanes owns a block of elements, a lane eight in a row:
 *
 *     decode -> next state -> the largest magnitude, by shuffles -> weight, codes and scale
 *
 * A block of up to 256 elements stays in registers; of a longer one the states are computed twice,
 * since nothing may be written that is read again (outputs lie over inputs). Maps and boundaries
 * are in shared memory; a code is found by halving. Rates are read from the device, once a block.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/lots.h"
#include "kernels/low_bit.h"
#include "kernels/philox.h"

typedef struct low_bit_args {
    void *w_out;
    const void *w, *g;
    const uint8_t *codes[2]; /* of M and V, or of V */
    const void *scale[2], *map[2];
    uint8_t *codes_out[2];
    void *scale_out[2];
    const int64_t *key; /* {seed, step}; NULL: to the nearest */
    ebb_low_bit cut;
    uint32_t team; /* lanes of a block of elements */
    bool dense;    /* lots may be read and written at once */
    ebb_cuda_number rate, count;
    double alpha, beta, epsilon, decay;
} low_bit_args;

enum { TABLE = 2 * EBB_LOW_BIT_CODES }; /* levels, then boundaries, of a state */

#define FORMULA EBB_GPU_INLINE
#define KERNELS "kernels/cuda/low_bit_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel adamw[] = EBB_CUDA_FLOATS(adamw);
static const ebb_gpu_kernel momentum[] = EBB_CUDA_FLOATS(momentum);

static bool is_dense(const low_bit_args *a)
{
    uintptr_t wide = (uintptr_t)a->w | (uintptr_t)a->g | (uintptr_t)a->w_out, narrow = 0;
    for (uint32_t k = 0; k < a->cut.states; k++)
        narrow |= (uintptr_t)a->codes[k] | (uintptr_t)a->codes_out[k];
    return wide % 16 == 0 && narrow % 8 == 0;
}

static ebb_status launch(const ebb_call *c, const ebb_gpu_kernel *kernels, low_bit_args *a)
{
    const ebb_low_bit cut = ebb_low_bit_of(c);
    const uint8_t dtype = c->in[2].type.dtype;
    const size_t real = dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    a->cut = cut;
    a->rate = ebb_cuda_number_of(&c->in[0]);
    a->count = ebb_cuda_number_of(&c->in[1]);
    a->w = c->in[2].data;
    a->g = c->in[3].data;
    a->w_out = c->out[0].data;
    for (uint32_t k = 0; k < cut.states; k++) {
        a->codes[k] = (const uint8_t *)c->in[4 + 2 * k].data;
        a->scale[k] = c->in[5 + 2 * k].data;
        a->map[k] = c->in[4 + 2 * cut.states + k].data;
        a->codes_out[k] = (uint8_t *)c->out[1 + 2 * k].data;
        a->scale_out[k] = c->out[2 + 2 * k].data;
    }
    a->key = cut.draws ? (const int64_t *)c->in[c->input_count - 1].data : NULL;
    a->team = ebb_lot_team(cut.block);
    a->dense = is_dense(a);
    return EBB_LAUNCH(c, kernels[ebb_cuda_float_row(dtype)], ebb_cuda_grid(cut.blocks * a->team),
                      EBB_CUDA_BLOCK, (uint32_t)(4 * sizeof(double) + cut.states * TABLE * real),
                      *a);
}

/* (lr, T, W, G, M, M_scale, V, V_scale, M_map, V_map, key?) -> W', M', M_scale', V', V_scale'. */
static ebb_status run_adamw(const ebb_call *c)
{
    low_bit_args a;
    memset(&a, 0, sizeof a);
    a.alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.9f);
    a.beta = ebb_attr_float(&c->attrs, "beta", (double)0.999f);
    a.epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-8f);
    a.decay = ebb_attr_float(&c->attrs, "weight_decay", (double)0.01f);
    return launch(c, adamw, &a);
}

/* (R, T, W, G, V, V_scale, V_map, key?) -> W', V', V_scale'. */
static ebb_status run_momentum(const ebb_call *c)
{
    low_bit_args a;
    memset(&a, 0, sizeof a);
    a.alpha = ebb_attr_float(&c->attrs, "alpha", 0.0);
    a.beta = ebb_attr_float(&c->attrs, "beta", 1.0);
    a.decay = ebb_attr_float(&c->attrs, "norm_coefficient", 0.0);
    return launch(c, momentum, &a);
}

static const char *declines(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    if (why == NULL)
        why = ebb_low_bit_unfit(c);
    for (uint32_t i = 0; i < 2 && why == NULL; i++)
        if (c->in[i].type.dtype == EBB_F16 || c->in[i].type.dtype == EBB_BF16)
            why = "the rate or the step count has 16 bits";
    return why;
}

// clang-format off
const ebb_kernel ebb_cuda_low_bit[] = {
    {"cuda.adamw_low_bit",               EBB_OP_ADAMW_LOW_BIT,               declines, NULL, NULL, run_adamw,    NULL},
    {"cuda.adamw_low_bit_stochastic",    EBB_OP_ADAMW_LOW_BIT_STOCHASTIC,    declines, NULL, NULL, run_adamw,    NULL},
    {"cuda.momentum_low_bit",            EBB_OP_MOMENTUM_LOW_BIT,            declines, NULL, NULL, run_momentum, NULL},
    {"cuda.momentum_low_bit_stochastic", EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC, declines, NULL, NULL, run_momentum, NULL},
};
// clang-format on
EBB_CUDA_COUNT(low_bit)
