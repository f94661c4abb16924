/* both.h: EBB_BOTH begins a function of the host that kernels of a device call too: where plain and
 * CUDA mean the same numbers, they have the same text. */
#ifndef EBB_KERNELS_MATH_BOTH_H
#define EBB_KERNELS_MATH_BOTH_H

#if defined(__CUDACC__)
#define EBB_BOTH static __host__ __device__ inline
#elif defined(__GNUC__)
#define EBB_BOTH static inline __attribute__((unused))
#else
#define EBB_BOTH static inline
#endif

#endif
