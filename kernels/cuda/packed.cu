/* packed.cu: PackSign and PackBits, one bit an element; MaskGrad and UnpackBits, which read the
 * bits.
 *
 * Bit i % 8 of byte i / 8 belongs to element i, the least significant bit first.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/call/misfit.h"

typedef struct packed_args {
    void *y;
    const void *x;
    uint8_t *bits;
    int64_t n;
    double low, high;    /* or scale and alpha */
    int32_t bottom, top; /* an infinite bound is none: the infinity itself is then inside */
    bool aligned;        /* x and y, to 16 bytes: rows of a tile may begin anywhere */
} packed_args;

#define KERNELS "kernels/cuda/packed_kernels.inc"
#include "kernels/cuda/all_floats.inc"

typedef struct bits_args {
    uint8_t *flags, *bits;
    int64_t n;
    bool aligned; /* flags, to 8 bytes */
} bits_args;

/* Eight bytes at once: a flag is any byte but 0. */
EBB_GLOBAL(pack_bits, bits_args)
{
    EBB_GRID_LOOP(b, (a.n + 7) / 8)
    {
        uint64_t eight = 0;
        uint32_t bits = 0;
        if (a.aligned && a.n - b * 8 >= 8)
            eight = ((const uint64_t *)(const void *)a.flags)[b];
        else
            for (int64_t i = b * 8; i < a.n && i < b * 8 + 8; i++)
                eight |= (uint64_t)a.flags[i] << (i & 7) * 8;
        for (uint32_t i = 0; i < 8; i++)
            bits |= (uint32_t)((eight >> i * 8 & 255) != 0) << i;
        a.bits[b] = (uint8_t)bits;
    }
}

EBB_GLOBAL(unpack_bits, bits_args)
{
    EBB_GRID_LOOP(b, (a.n + 7) / 8)
    {
        uint64_t eight = 0, bits = a.bits[b];
        for (uint32_t i = 0; i < 8; i++)
            eight |= (bits >> i & 1) << i * 8;
        if (a.aligned && a.n - b * 8 >= 8)
            ((uint64_t *)(void *)a.flags)[b] = eight;
        else
            for (int64_t i = b * 8; i < a.n && i < b * 8 + 8; i++)
                a.flags[i] = (uint8_t)(eight >> (i & 7) * 8);
    }
}

static ebb_status launch(const ebb_call *c, const ebb_gpu_kernel *kernels, packed_args *a)
{
    a->n = ebb_elements(&c->in[0].type);
    a->aligned = (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->y % 16 == 0;
    return EBB_LAUNCH(c, kernels[ebb_cuda_float_row(c->in[0].type.dtype)],
                      ebb_cuda_grid((a->n + 7) / 8), EBB_CUDA_BLOCK, 0, *a);
}

/* (Y) {low = 0, high = +inf} -> uint8[ceil(n / 8)]. */
static ebb_status run_pack_sign(const ebb_call *c)
{
    static const ebb_gpu_kernel kernels[] = EBB_CUDA_FLOATS(pack_sign);
    packed_args a = {NULL, c->in[0].data, (uint8_t *)c->out[0].data, 0, 0, 0, 0, 0, false};
    a.low = ebb_attr_float(&c->attrs, "low", 0.0);
    a.high = ebb_attr_float(&c->attrs, "high", (double)INFINITY);
    bool wide = c->in[0].type.dtype == EBB_F64;
    double low = wide ? a.low : (double)(float)a.low, high = wide ? a.high : (double)(float)a.high;
    a.bottom = isinf(low) && low < 0;
    a.top = isinf(high) && high > 0;
    return launch(c, kernels, &a);
}

/* (dY, mask) {scale = 1, alpha = 0} -> dX: scale * dY where the bit is set, else alpha * dY. dX may
 * be dY. */
static ebb_status run_mask_grad(const ebb_call *c)
{
    static const ebb_gpu_kernel kernels[] = EBB_CUDA_FLOATS(mask_grad);
    packed_args a = {c->out[0].data, c->in[0].data, (uint8_t *)c->in[1].data, 0, 0, 0, 0, 0, false};
    a.low = ebb_attr_float(&c->attrs, "scale", 1.0);
    a.high = ebb_attr_float(&c->attrs, "alpha", 0.0);
    return launch(c, kernels, &a);
}

/* (B) -> uint8[ceil(n / 8)]. */
static ebb_status run_pack_bits(const ebb_call *c)
{
    bits_args a = {(uint8_t *)c->in[0].data, (uint8_t *)c->out[0].data,
                   ebb_elements(&c->in[0].type), (uintptr_t)c->in[0].data % 8 == 0};
    return EBB_LAUNCH(c, pack_bits, ebb_cuda_grid((a.n + 7) / 8), EBB_CUDA_BLOCK, 0, a);
}

/* (bits) {shape} -> B. */
static ebb_status run_unpack_bits(const ebb_call *c)
{
    bits_args a = {(uint8_t *)c->out[0].data, (uint8_t *)c->in[0].data,
                   ebb_elements(&c->out[0].type), (uintptr_t)c->out[0].data % 8 == 0};
    return EBB_LAUNCH(c, unpack_bits, ebb_cuda_grid((a.n + 7) / 8), EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_packed[] = {
    {.name = "cuda.pack_sign",   .op = EBB_OP_PACK_SIGN,   .dtypes = ebb_cuda_floats, .fits = ebb_pack_sign_misfit, .run = run_pack_sign},
    {.name = "cuda.mask_grad",   .op = EBB_OP_MASK_GRAD,   .dtypes = ebb_cuda_floats, .fits = ebb_pack_sign_misfit, .run = run_mask_grad},
    {.name = "cuda.pack_bits",   .op = EBB_OP_PACK_BITS,   .dtypes = ebb_call_any,    .fits = ebb_pack_bits_misfit, .run = run_pack_bits},
    {.name = "cuda.unpack_bits", .op = EBB_OP_UNPACK_BITS, .dtypes = ebb_call_any,    .fits = ebb_pack_bits_misfit, .run = run_unpack_bits},
};
// clang-format on
EBB_CUDA_COUNT(packed)
