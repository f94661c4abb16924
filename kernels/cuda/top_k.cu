/* top_k.cu: TopK. */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/order.h"

typedef struct top_args {
    void *value;    /* NULL: nobody wants them */
    int64_t *place; /* NULL: nobody wants them */
    const void *x;
    uint64_t *keys; /* `room` for each block, a power of two */
    int64_t *room_places;
    int64_t lines, n, k, inner, room;
    uint64_t flip; /* all ones of a key: the largest come first */
} top_args;

/* k pairs of `room`, ascending, by the block: a bitonic sort in memory. */
EBB_GPU_INLINE void sort_pairs(uint64_t *keys, int64_t *places, int64_t k, int64_t room)
{
    for (int64_t j = k + EBB_THREAD; j < room; j += EBB_THREADS) {
        keys[j] = ~(uint64_t)0;
        places[j] = INT64_MAX;
    }
    for (int64_t run = 2; run <= room; run *= 2)
        for (int64_t apart = run / 2; apart > 0; apart /= 2) {
            ebb_barrier();
            for (int64_t j = EBB_THREAD; j < room; j += EBB_THREADS) {
                int64_t other = j ^ apart;
                if (other < j)
                    continue;
                bool greater =
                    keys[j] > keys[other] || (keys[j] == keys[other] && places[j] > places[other]);
                if (greater != ((j & run) == 0))
                    continue;
                uint64_t key = keys[j];
                int64_t place = places[j];
                keys[j] = keys[other];
                places[j] = places[other];
                keys[other] = key;
                places[other] = place;
            }
        }
    ebb_barrier();
}

EBB_GPU_INLINE uint64_t bits_f32(float v)
{
    if (v != v)
        return 0xFFFFFFFFu;
    uint32_t bits = v == 0 ? 0 : ebb_bits_of_f32(v);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

EBB_GPU_INLINE uint64_t bits_f64(double v)
{
    uint64_t bits, top = (uint64_t)1 << 63;
    if (v != v)
        return ~(uint64_t)0;
    memcpy(&bits, &v, sizeof bits);
    bits = v == 0 ? 0 : bits;
    return (bits & top) != 0 ? ~bits : bits | top;
}

EBB_GPU_INLINE uint64_t bits_f16(ebb_f16 v)
{
    return bits_f32(ebb_from_f16(v));
}

EBB_GPU_INLINE uint64_t bits_bf16(ebb_bf16 v)
{
    return bits_f32(ebb_from_bf16(v));
}

EBB_GPU_INLINE uint64_t bits_i32(int32_t v)
{
    return (uint32_t)v ^ 0x80000000u;
}

EBB_GPU_INLINE uint64_t bits_i16(int16_t v)
{
    return bits_i32(v);
}

EBB_GPU_INLINE uint64_t bits_i8(int8_t v)
{
    return bits_i32(v);
}

EBB_GPU_INLINE uint64_t bits_u8(uint8_t v)
{
    return v;
}

EBB_GPU_INLINE uint64_t bits_u16(uint16_t v)
{
    return v;
}

EBB_GPU_INLINE uint64_t bits_u32(uint32_t v)
{
    return v;
}

EBB_GPU_INLINE uint64_t bits_u64(uint64_t v)
{
    return v;
}

EBB_GPU_INLINE uint64_t bits_i64(int64_t v)
{
    return (uint64_t)v ^ (uint64_t)1 << 63;
}

#define KERNELS "kernels/cuda/top_k_kernels.inc"
#define STORED float
#define SUFFIX f32
#define KEY_BITS 32
#include "kernels/cuda/one_type.inc"
#define STORED ebb_f16
#define SUFFIX f16
#include "kernels/cuda/one_type.inc"
#define STORED ebb_bf16
#define SUFFIX bf16
#include "kernels/cuda/one_type.inc"
#define STORED int8_t
#define SUFFIX i8
#include "kernels/cuda/one_type.inc"
#define STORED uint8_t
#define SUFFIX u8
#include "kernels/cuda/one_type.inc"
#define STORED int16_t
#define SUFFIX i16
#include "kernels/cuda/one_type.inc"
#define STORED uint16_t
#define SUFFIX u16
#include "kernels/cuda/one_type.inc"
#define STORED int32_t
#define SUFFIX i32
#include "kernels/cuda/one_type.inc"
#define STORED uint32_t
#define SUFFIX u32
#include "kernels/cuda/one_type.inc"
#undef KEY_BITS
#define KEY_BITS 64
#define STORED double
#define SUFFIX f64
#include "kernels/cuda/one_type.inc"
#define STORED int64_t
#define SUFFIX i64
#include "kernels/cuda/one_type.inc"
#define STORED uint64_t
#define SUFFIX u64
#include "kernels/cuda/one_type.inc"
#undef KERNELS
#undef KEY_BITS

static ebb_gpu_kernel kernel_of(uint8_t dtype)
{
    switch (dtype) {
    case EBB_F32:
        return (ebb_gpu_kernel)top_k_f32;
    case EBB_F64:
        return (ebb_gpu_kernel)top_k_f64;
    case EBB_F16:
        return (ebb_gpu_kernel)top_k_f16;
    case EBB_BF16:
        return (ebb_gpu_kernel)top_k_bf16;
    case EBB_I8:
        return (ebb_gpu_kernel)top_k_i8;
    case EBB_U8:
        return (ebb_gpu_kernel)top_k_u8;
    case EBB_I16:
        return (ebb_gpu_kernel)top_k_i16;
    case EBB_U16:
        return (ebb_gpu_kernel)top_k_u16;
    case EBB_I32:
        return (ebb_gpu_kernel)top_k_i32;
    case EBB_U32:
        return (ebb_gpu_kernel)top_k_u32;
    case EBB_U64:
        return (ebb_gpu_kernel)top_k_u64;
    case EBB_I64:
        return (ebb_gpu_kernel)top_k_i64;
    default:
        return NULL;
    }
}

/* At most so many lines are worked on at once. */
static const int64_t most_blocks = 528;

static ebb_status shape_of(const ebb_call *c, top_args *a)
{
    int axis;
    memset(a, 0, sizeof *a);
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -1), c->in[0].type.rank, &axis));
    ebb_span s = ebb_span_of(&c->in[0].type, axis);
    a->k = (ebb_call_wants(c, 0) ? c->out[0] : c->out[1]).type.dims[axis];
    if (a->k > s.n)
        return ebb_call_error(c, "%lld of %lld elements are asked for", (long long)a->k,
                              (long long)s.n);
    a->lines = a->k > 0 ? s.outer * s.inner : 0;
    a->n = s.n;
    a->inner = s.inner;
    for (a->room = 1; a->room < a->k;)
        a->room *= 2;
    return NULL;
}

static size_t rooms_of(const top_args *a)
{
    return (size_t)(a->lines < most_blocks ? a->lines : most_blocks) * (size_t)a->room;
}

static ebb_status top_k_workspace(const ebb_call *c, size_t *bytes)
{
    top_args a;
    EBB_TRY(shape_of(c, &a));
    *bytes = rooms_of(&a) * (sizeof *a.keys + sizeof *a.room_places);
    return NULL;
}

/* (X, K) {axis = -1, largest = 1} -> values?, places?; sorted always. Equal elements: the lower
 * place is first. NaN is the biggest. */
static ebb_status run_top_k(const ebb_call *c)
{
    top_args a;
    EBB_TRY(shape_of(c, &a));
    uint8_t dtype = c->in[0].type.dtype;
    a.value = ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    a.place = ebb_call_wants(c, 1) ? (int64_t *)c->out[1].data : NULL;
    a.x = c->in[0].data;
    a.keys = (uint64_t *)c->workspace;
    a.room_places = (int64_t *)(a.keys + rooms_of(&a));
    if (ebb_attr_int(&c->attrs, "largest", 1) != 0)
        a.flip = ebb_element_bytes(&c->in[0].type) == 8 ? ~(uint64_t)0 : 0xFFFFFFFFu;
    return EBB_LAUNCH(c, kernel_of(dtype),
                      ebb_cuda_blocks(a.lines < most_blocks ? a.lines : most_blocks),
                      EBB_CUDA_BLOCK, 256 * sizeof(uint32_t), a);
}

static const char *misfit_top_k(const ebb_call *c)
{
    if (kernel_of(c->in[0].type.dtype) == NULL)
        return "only floats and integers";
    if (!ebb_call_wants(c, 0) && !ebb_call_wants(c, 1))
        return "no output is wanted";
    if (ebb_call_wants(c, 0) && c->out[0].type.dtype != c->in[0].type.dtype)
        return "operands differ in dtype";
    if (ebb_call_wants(c, 1) && c->out[1].type.dtype != EBB_I64)
        return "places are not int64";
    return ebb_elements(&c->in[0].type) > 0x7FFFFFFF ? "more than 2^31 elements" : NULL;
}

// clang-format off
const ebb_kernel ebb_cuda_top_k[] = {
    {.name = "cuda.top_k", .op = EBB_OP_TOP_K, .dtypes = ebb_call_any, .fits = misfit_top_k, .workspace = top_k_workspace, .run = run_top_k},
};
// clang-format on
EBB_CUDA_COUNT(top_k)
