/* cast.cu: Cast and CastLike among floats, integers and bool.
 *
 * Among the floats of training, eight elements a thread; the other pairs of types share a kernel
 * that looks at both types as it runs; one more where either has 8 bits of a float or fewer of
 * anything: there a thread makes the elements of a byte.
 */
#include "kernels/cuda/small.h"

typedef struct cast_args {
    void *out;
    const void *in;
    int64_t n, packed; /* the first so many elements in eights */
    uint8_t from, to;
    bool real, small, saturate; /* from is a float; to is a float of 8 or 4 bits */
    uint32_t bits;              /* of to */
    ebb_rounding rounding;
} cast_args;

EBB_GLOBAL(cast_any, cast_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        if (a.from == EBB_F32 || a.from == EBB_F64 || a.from == EBB_F16 || a.from == EBB_BF16)
            ebb_store_real(a.out, i, a.to, ebb_load_real(a.in, i, a.from));
        else
            ebb_store_whole(a.out, i, a.to, ebb_load_whole(a.in, i, a.from), a.from == EBB_U64);
    }
}

/* The bits of an element of fewer than 8, or of a float of 8. Integers are cut off, floats that no
 * int64 holds become 0. */
EBB_GPU_INLINE uint32_t small_of(const cast_args *a, int64_t i)
{
    int64_t whole = a->real ? 0 : ebb_load_integer(a->in, i, a->from);
    const double v =
        a->real ? ebb_load_number(a->in, i, a->from) : ebb_odd_double(whole, a->from == EBB_U64);
    if (a->small)
        return ebb_small_of(a->to, v, a->saturate, a->rounding);
    if (!a->real)
        return (uint32_t)whole & ((1u << a->bits) - 1);
    if (v > -9223372036854775808.0 && v < 9223372036854775808.0)
        whole = (int64_t)v;
    return (uint32_t)whole & ((1u << a->bits) - 1);
}

EBB_GLOBAL(cast_small, cast_args)
{
    const int64_t each = a.bits < 8 ? 8 / (int64_t)a.bits : 1;
    EBB_GRID_LOOP(g, (a.n + each - 1) / each)
    {
        uint32_t byte = 0;
        if (!a.small && a.bits >= 8) {
            if (a.real)
                ebb_store_real(a.out, g, a.to, ebb_load_number(a.in, g, a.from));
            else
                ebb_store_whole(a.out, g, a.to, ebb_load_integer(a.in, g, a.from), false);
            continue;
        }
        for (int64_t i = g * each; i < a.n && i < (g + 1) * each; i++)
            byte |= small_of(&a, i) << (uint32_t)(i - g * each) * a.bits;
        ((uint8_t *)a.out)[g] = (uint8_t)byte;
    }
}

#define SAME(v) (v)

#define EIGHT(T, name)    \
    typedef struct name { \
        T v[8];           \
    } EBB_ALIGN(16) name;
EIGHT(float, eight_f32)
EIGHT(ebb_f16, eight_f16)
EIGHT(ebb_bf16, eight_bf16)

#define CAST(from, from_t, read, to, to_t, write)                               \
    EBB_GLOBAL(cast_##from##_##to, cast_args)                                   \
    {                                                                           \
        const from_t *in = (const from_t *)a.in;                                \
        to_t *out = (to_t *)a.out;                                              \
        EBB_GRID_LOOP(g, a.packed / 8)                                          \
        {                                                                       \
            eight_##from x = *(const eight_##from *)(const void *)(in + g * 8); \
            eight_##to y;                                                       \
            EBB_UNROLL                                                          \
            for (int l = 0; l < 8; l++)                                         \
                y.v[l] = write(read(x.v[l]));                                   \
            *(eight_##to *)(void *)(out + g * 8) = y;                           \
        }                                                                       \
        EBB_GRID_LOOP(j, a.n - a.packed)                                        \
        out[a.packed + j] = write(read(in[a.packed + j]));                      \
    }
CAST(f32, float, SAME, f16, ebb_f16, ebb_to_f16)
CAST(f32, float, SAME, bf16, ebb_bf16, ebb_to_bf16)
CAST(f16, ebb_f16, ebb_from_f16, f32, float, SAME)
CAST(bf16, ebb_bf16, ebb_from_bf16, f32, float, SAME)
CAST(f16, ebb_f16, ebb_from_f16, bf16, ebb_bf16, ebb_to_bf16)
CAST(bf16, ebb_bf16, ebb_from_bf16, f16, ebb_f16, ebb_to_f16)

static const struct pair {
    uint8_t from, to;
    ebb_gpu_kernel kernel;
} pairs[] = {
    {EBB_F32, EBB_F16, (ebb_gpu_kernel)cast_f32_f16},
    {EBB_F32, EBB_BF16, (ebb_gpu_kernel)cast_f32_bf16},
    {EBB_F16, EBB_F32, (ebb_gpu_kernel)cast_f16_f32},
    {EBB_BF16, EBB_F32, (ebb_gpu_kernel)cast_bf16_f32},
    {EBB_F16, EBB_BF16, (ebb_gpu_kernel)cast_f16_bf16},
    {EBB_BF16, EBB_F16, (ebb_gpu_kernel)cast_bf16_f16},
};

static bool is_small(uint8_t dtype)
{
    return ebb_dtype_is_small_float((ebb_dtype)dtype) || ebb_dtype_bits((ebb_dtype)dtype) < 8;
}

static ebb_status run_small(const ebb_call *c, const cast_args *args)
{
    const char *mode = ebb_attr_string(&c->attrs, "round_mode", "up");
    cast_args a = *args;
    a.real = ebb_dtype_is_float((ebb_dtype)a.from) || ebb_dtype_is_small_float((ebb_dtype)a.from);
    a.small = ebb_dtype_is_small_float((ebb_dtype)a.to);
    a.saturate = ebb_attr_int(&c->attrs, "saturate", 1) != 0;
    a.bits = ebb_dtype_bits((ebb_dtype)a.to);
    a.rounding = strcmp(mode, "down") == 0      ? EBB_ROUND_DOWN
                 : strcmp(mode, "nearest") == 0 ? EBB_ROUND_NEAREST
                                                : EBB_ROUND_UP;
    const int64_t each = a.bits < 8 ? 8 / (int64_t)a.bits : 1;
    return EBB_LAUNCH(c, cast_small, ebb_cuda_grid((a.n + each - 1) / each), EBB_CUDA_BLOCK, 0, a);
}

/* (X) {to, saturate = 1, round_mode = "up"} -> Y. */
static ebb_status run_cast(const ebb_call *c)
{
    cast_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    a.in = c->in[0].data;
    a.n = ebb_elements(&c->out[0].type);
    a.from = c->in[0].type.dtype;
    a.to = c->out[0].type.dtype;
    if (a.from == a.to)
        return a.out == a.in || a.n == 0 ? NULL
                                         : ebb_gpu_copy(ebb_cuda_queue_of(c)->stream, a.out, a.in,
                                                        c->out[0].bytes, EBB_ON_DEVICE);
    if (is_small(a.from) || is_small(a.to))
        return run_small(c, &a);
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++)
        if (pairs[k].from == a.from && pairs[k].to == a.to) {
            bool aligned = (uintptr_t)a.out % 16 == 0 && (uintptr_t)a.in % 16 == 0;
            a.packed = aligned ? a.n / 8 * 8 : 0;
            return EBB_LAUNCH(c, pairs[k].kernel, ebb_cuda_grid(aligned ? (a.n + 7) / 8 : a.n),
                              EBB_CUDA_BLOCK, 0, a);
        }
    return EBB_LAUNCH(c, cast_any, ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

static bool can(ebb_dtype dtype)
{
    return dtype == EBB_BOOL || ebb_dtype_is_float(dtype) || ebb_dtype_is_small_float(dtype) ||
           ebb_dtype_is_integer(dtype);
}

static const char *dtypes_of_cast(const ebb_call *c)
{
    if (!can((ebb_dtype)c->in[0].type.dtype) || !can((ebb_dtype)c->out[0].type.dtype))
        return "casts among numbers and bool only";
    EBB_ASK(ebb_operand_misfit(&c->in[0], true));
    return ebb_operand_misfit(&c->out[0], true);
}

static const char *dtypes_of_cast_like(const ebb_call *c) // the second input lends its dtype only
{
    ebb_call one = *c;
    one.input_count = 1;
    return dtypes_of_cast(&one);
}

const ebb_kernel ebb_cuda_cast[] = {
    {.name = "cuda.cast", .op = EBB_OP_CAST, .dtypes = dtypes_of_cast, .run = run_cast},
    {.name = "cuda.cast_like",
     .op = EBB_OP_CAST_LIKE,
     .dtypes = dtypes_of_cast_like,
     .run = run_cast},
};
EBB_CUDA_COUNT(cast)
