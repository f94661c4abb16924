/* words.h: gpu.h for the host. A thread of a block is a fiber; what it is lies in ebb_host_thread.
 * A kernel is a function of a pointer to its arguments, under the same name as for nvcc. */
#pragma once

#include <stdint.h>

typedef struct ebb_host_where {
    uint32_t thread, threads, block, block_y, block_z, blocks;
    uint32_t most; /* threads that the kernel was compiled for */
} ebb_host_where;

#if defined(EBB_HOST_LOADED) // a chain, compiled by itself: who loads it says where
__attribute__((visibility("default"))) ebb_host_where *ebb_host_place;
#define ebb_host (*ebb_host_place)
#else
extern ebb_host_where ebb_host; /* of the running thread */
#endif

/* Does the block fit what the kernel was compiled for? If not, its threads do nothing. */
static inline int ebb_host_fits(uint32_t most)
{
    ebb_host.most = most;
    return ebb_host.threads <= most;
}

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __restrict__ restrict

#define EBB_GLOBAL(name, args) EBB_GLOBAL_OF(name, args, EBB_CUDA_BLOCK)
#define EBB_GLOBAL_OF(name, args, most) EBB_GLOBAL_OF_(name, args, most)
#define EBB_GLOBAL_OF_(name, args, most)              \
    static void ebb_body_##name(const args a);        \
    static void name(const void *ebb_args)            \
    {                                                 \
        if (ebb_host_fits(most))                      \
            ebb_body_##name(*(const args *)ebb_args); \
    }                                                 \
    static void ebb_body_##name(const args a)
#define EBB_NAMED_GLOBAL(name, args)                                        \
    static void ebb_body_##name(const args a);                              \
    __attribute__((visibility("default"))) void name(const void *ebb_args); \
    __attribute__((visibility("default"))) void name(const void *ebb_args)  \
    {                                                                       \
        if (ebb_host_fits(EBB_CUDA_BLOCK))                                  \
            ebb_body_##name(*(const args *)ebb_args);                       \
    }                                                                       \
    static void ebb_body_##name(const args a)
#define EBB_GPU_INLINE static inline __attribute__((unused))
#define EBB_SHARED(type, name) type *name = (type *)ebb_host_shared()

#define EBB_UNROLL

#define EBB_THREAD (ebb_host.thread)
#define EBB_THREADS (ebb_host.threads)
#define EBB_BLOCK (ebb_host.block)
#define EBB_BLOCKS (ebb_host.blocks)
#define EBB_BLOCK_Y (ebb_host.block_y)
#define EBB_BLOCK_Z (ebb_host.block_z)

void *ebb_host_shared(void);
void ebb_barrier(void);
/* 64 bits of every lane of the warp go round; each takes those of `lane`. */
uint64_t ebb_host_exchange(uint64_t mine, uint32_t lane);
uint32_t ebb_ballot(int flag);

static inline uint32_t ebb_bits_of_f32(float v)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float ebb_f32_of_bits(uint32_t bits)
{
    float v;
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint32_t ebb_lane_from_u32(uint32_t v, uint32_t lane)
{
    return (uint32_t)ebb_host_exchange(v, lane);
}

static inline uint32_t ebb_lane_xor_u32(uint32_t v, uint32_t lanes)
{
    return (uint32_t)ebb_host_exchange(v, (ebb_host.thread % 32) ^ lanes);
}

static inline float ebb_lane_xor(float v, uint32_t lanes)
{
    return ebb_f32_of_bits(ebb_lane_xor_u32(ebb_bits_of_f32(v), lanes));
}

static inline double ebb_lane_xor_f64(double v, uint32_t lanes)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &v, sizeof bits);
    bits = ebb_host_exchange(bits, (ebb_host.thread % 32) ^ lanes);
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
}

#if defined(EBB_HOST_CHECKED) // check.c, which is not watched itself
uint32_t ebb_atomic_add_u32(uint32_t *p, uint32_t v);
uint32_t ebb_atomic_or_u32(uint32_t *p, uint32_t v);
uint64_t ebb_atomic_min_u64(uint64_t *p, uint64_t v);
#else
/* Blocks and threads take turns on one processor: what they do between turns is undivided. */
static inline uint32_t ebb_atomic_add_u32(uint32_t *p, uint32_t v)
{
    uint32_t old = *p;
    *p = old + v;
    return old;
}

static inline uint32_t ebb_atomic_or_u32(uint32_t *p, uint32_t v)
{
    uint32_t old = *p;
    *p = old | v;
    return old;
}

static inline uint64_t ebb_atomic_min_u64(uint64_t *p, uint64_t v)
{
    uint64_t old = *p;
    *p = v < old ? v : old;
    return old;
}
#endif

#define ebb_popcount(v) __builtin_popcount(v)

static inline __attribute__((unused)) int32_t ebb_dot_i8(uint32_t a, uint32_t b, int32_t c)
{
    for (uint32_t shift = 0; shift < 32; shift += 8)
        c += (int32_t)(int8_t)(a >> shift) * (int8_t)(b >> shift);
    return c;
}
