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
 * A launch takes the tensors of several calls (many.h); they need share nothing but the dtype.
 */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/fuse/group.h"
#include "kernels/cuda/lots.h"
#include "kernels/cuda/many.h"
#include "kernels/call/codes.h"
#include "kernels/math/philox.h"

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

enum { PARTS = 15 };

typedef struct low_bit_many {
    low_bit_args part[PARTS];
    uint32_t end[PARTS], count;
} low_bit_many;

static_assert(sizeof(low_bit_many) <= EBB_MANY_PARAMETERS, "more than a kernel's parameters");

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

/* ---- one call ---- */

/* (lr, T, W, G, M, M_scale, V, V_scale, M_map, V_map, key?) -> W', M', M_scale', V', V_scale'. */
static void read_adamw(low_bit_args *a, const ebb_call *c)
{
    a->alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.9f);
    a->beta = ebb_attr_float(&c->attrs, "beta", (double)0.999f);
    a->epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-8f);
    a->decay = ebb_attr_float(&c->attrs, "weight_decay", (double)0.01f);
}

/* (R, T, W, G, V, V_scale, V_map, key?) -> W', V', V_scale'. */
static void read_momentum(low_bit_args *a, const ebb_call *c)
{
    a->alpha = ebb_attr_float(&c->attrs, "alpha", 0.0);
    a->beta = ebb_attr_float(&c->attrs, "beta", 1.0);
    a->decay = ebb_attr_float(&c->attrs, "norm_coefficient", 0.0);
}

static void read_call(low_bit_args *a, const ebb_call *c)
{
    const ebb_low_bit cut = ebb_low_bit_of(c);
    memset(a, 0, sizeof *a);
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
    if (cut.states > 1)
        read_adamw(a, c);
    else
        read_momentum(a, c);
}

/* ---- many ---- */

/* Does either write where the other reads or writes? Scalars and maps are read too. */
static bool clash(const ebb_call *a, const ebb_call *b)
{
    for (int turn = 0; turn < 2; turn++) {
        const ebb_call *writer = turn == 0 ? a : b, *other = turn == 0 ? b : a;
        for (uint32_t o = 0; o < writer->output_count; o++) {
            const ebb_operand *w = &writer->out[o];
            for (uint32_t i = 0; i < other->input_count; i++)
                if (ebb_many_overlap(w->data, w->bytes, other->in[i].data, other->in[i].bytes))
                    return true;
            for (uint32_t k = 0; k < other->output_count; k++)
                if (ebb_many_overlap(w->data, w->bytes, other->out[k].data, other->out[k].bytes))
                    return true;
        }
    }
    return false;
}

/* All are of one dtype, and have as many states. */
static ebb_status launch(const ebb_call *calls, uint32_t count)
{
    const uint8_t dtype = calls[0].in[2].type.dtype;
    const size_t real = dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    uint32_t blocks = 0;
    low_bit_many a;
    memset(&a, 0, sizeof a);
    for (uint32_t k = 0; k < count; k++) {
        low_bit_args *p = &a.part[a.count];
        read_call(p, &calls[k]);
        const uint32_t of_this = ebb_cuda_grid(p->cut.blocks * p->team).x;
        if (of_this > 0)
            a.end[a.count++] = blocks += of_this;
    }
    const uint32_t states = a.part[0].cut.states;
    const ebb_gpu_kernel *kernels = states > 1 ? adamw : momentum;
    return EBB_LAUNCH(calls, kernels[ebb_cuda_float_row(dtype)], ebb_cuda_blocks(blocks),
                      EBB_CUDA_BLOCK, (uint32_t)(4 * sizeof(double) + states * TABLE * real), a);
}

/* As many of the calls as one launch can take. */
static uint32_t together(const ebb_call *calls, uint32_t count)
{
    const uint32_t states = ebb_low_bit_of(&calls[0]).states;
    uint32_t n = 1;
    bool fits = true;
    while (fits && n < count && n < PARTS) {
        fits = calls[n].in[2].type.dtype == calls[0].in[2].type.dtype &&
               ebb_low_bit_of(&calls[n]).states == states;
        for (uint32_t k = 0; fits && k < n; k++)
            fits = !clash(&calls[k], &calls[n]);
        n += fits;
    }
    return n;
}

ebb_status ebb_cuda_low_bit_run(const ebb_call *calls, uint32_t count)
{
    for (uint32_t k = 0, n; k < count; k += n) {
        n = together(&calls[k], count - k);
        EBB_TRY(launch(&calls[k], n));
    }
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    return ebb_cuda_low_bit_run(c, 1);
}

static const char *misfit(const ebb_call *c)
{
    const char *why = ebb_low_bit_misfit(c);
    for (uint32_t i = 0; i < 2 && why == NULL; i++)
        if (c->in[i].type.dtype == EBB_F16 || c->in[i].type.dtype == EBB_BF16)
            why = "the rate or the step count has 16 bits";
    return why;
}

// clang-format off
const ebb_kernel ebb_cuda_low_bit[] = {
    {.name = "cuda.adamw_low_bit",               .op = EBB_OP_ADAMW_LOW_BIT,               .dtypes = ebb_call_any, .fits = misfit, .run = run},
    {.name = "cuda.adamw_low_bit_stochastic",    .op = EBB_OP_ADAMW_LOW_BIT_STOCHASTIC,    .dtypes = ebb_call_any, .fits = misfit, .run = run},
    {.name = "cuda.momentum_low_bit",            .op = EBB_OP_MOMENTUM_LOW_BIT,            .dtypes = ebb_call_any, .fits = misfit, .run = run},
    {.name = "cuda.momentum_low_bit_stochastic", .op = EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC, .dtypes = ebb_call_any, .fits = misfit, .run = run},
};
// clang-format on
EBB_CUDA_COUNT(low_bit)
