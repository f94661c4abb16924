/* gpu.h: the words in which kernels are written, for two compilers.
 *
 * A .cu file is compiled by nvcc for the GPU, and by gcc as C11 for the host, where host/runtime.c
 * plays blocks, threads, barriers and warps: so the tests run these very kernels without a GPU.
 * Hence the subset: no templates, no references, casts of void pointers written out, and a kernel
 * takes one struct by value.
 *
 *     typedef struct scale_args { float *y; const float *x; int64_t n; float by; } scale_args;
 *
 *     EBB_GLOBAL(scale, scale_args)
 *     {
 *         EBB_GRID_LOOP(i, a.n)
 *         a.y[i] = a.x[i] * a.by;
 *     }
 *
 *     scale_args a = {...};
 *     return EBB_LAUNCH(call, scale, ebb_cuda_grid(n), EBB_CUDA_BLOCK, 0, a);
 *
 * A block of EBB_CUDA_BLOCK threads, or of the most that EBB_GLOBAL_OF names, fits a device: the
 * compiler keeps its registers within the 65,536 that a block may have. Of more threads a kernel is
 * not launched, here or there.
 *
 * Barriers: every thread of a block must come to the same ones. Warp words: every lane of a warp
 * must come to them; blocks are multiples of 32 threads wide and one-dimensional. No atomics on
 * floats: sums must come out the same each time.
 */
#pragma once

#if defined(__CUDACC_RTC__) // chains are compiled at run time, where there are no headers
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7F800000)
#else
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#endif

enum { EBB_WARP = 32, EBB_CUDA_BLOCK = 256 /* threads, unless a kernel needs another number */ };

#define EBB_ALIGN(bytes) __attribute__((aligned(bytes))) /* after the } of a struct */

#if defined(__CUDACC__)

#if !defined(__CUDACC_RTC__)
#include <cuda_runtime.h>
#endif

#define EBB_GLOBAL(name, args) EBB_GLOBAL_OF(name, args, EBB_CUDA_BLOCK)
/* __grid_constant__: a's arrays may be indexed without a copy of a in each thread. */
#define EBB_GLOBAL_OF(name, args, most) EBB_GLOBAL_OF_(name, args, most)
#define EBB_GLOBAL_OF_(name, args, most) \
    static __global__ void __launch_bounds__(most) name(const __grid_constant__ args a)
/* Found by its name in what was compiled at run time. */
#define EBB_NAMED_GLOBAL(name, args)                             \
    extern "C" __global__ void __launch_bounds__(EBB_CUDA_BLOCK) \
        name(const __grid_constant__ args a)
#define EBB_GPU_INLINE static __device__ inline
#define EBB_SHARED(type, name)                                        \
    extern __shared__ __align__(16) unsigned char ebb_shared_bytes[]; \
    type *name = (type *)ebb_shared_bytes

#define EBB_UNROLL _Pragma("unroll")

#define EBB_THREAD threadIdx.x
#define EBB_THREADS blockDim.x
#define EBB_BLOCK blockIdx.x
#define EBB_BLOCKS gridDim.x
#define EBB_BLOCK_Y blockIdx.y
#define EBB_BLOCK_Z blockIdx.z

#define ebb_barrier() __syncthreads()
#define ebb_lane_xor(v, lanes) __shfl_xor_sync(0xFFFFFFFFu, (v), (lanes))
#define ebb_lane_xor_f64(v, lanes) __shfl_xor_sync(0xFFFFFFFFu, (v), (lanes))
#define ebb_lane_xor_u32(v, lanes) __shfl_xor_sync(0xFFFFFFFFu, (v), (lanes))
#define ebb_lane_from_u32(v, lane) __shfl_sync(0xFFFFFFFFu, (v), (lane))
#define ebb_ballot(flag) __ballot_sync(0xFFFFFFFFu, (flag))
#define ebb_atomic_add_u32(p, v) atomicAdd((p), (v))
#define ebb_atomic_or_u32(p, v) atomicOr((p), (v))
#define ebb_atomic_min_u64(p, v) \
    ((uint64_t)atomicMin((unsigned long long *)(p), (unsigned long long)(v)))

#define ebb_popcount(v) __popc(v)
/* c and the four products of int8, as they lie in words. */
#define ebb_dot_i8(a, b, c) __dp4a((int)(a), (int)(b), (int)(c))
#define ebb_bits_of_f32(v) __float_as_uint(v)
#define ebb_f32_of_bits(v) __uint_as_float(v)

#else

#include "kernels/cuda/host/words.h"

#endif

/* i over 0 .. n-1, dealt out to all threads of the grid. */
#define EBB_GRID_LOOP(i, n)                                                                       \
    for (int64_t i = (int64_t)EBB_BLOCK * EBB_THREADS + EBB_THREAD, ebb_end_ = (n); i < ebb_end_; \
         i += (int64_t)EBB_BLOCKS * EBB_THREADS)
/* i over 0 .. n-1, dealt out to the threads of the block. */
#define EBB_BLOCK_LOOP(i, n) \
    for (int64_t i = EBB_THREAD, ebb_end_ = (n); i < ebb_end_; i += EBB_THREADS)
