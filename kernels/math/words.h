/* words.h: the words of texts that several compilers read: gcc, nvcc, and NVRTC for chains.
 *
 *   EBB_BOTH    begins a function of the host that kernels of a device call too
 *
 * And the words of one float type, which a text is included for each type between:
 *
 *     #define REAL_BITS 32                      float32, or 64; 0: the words are forgotten
 *     #include "kernels/math/words.h"
 *
 *   REAL        float or double
 *   NAMED(x)    x_f32 or x_f64: what the text calls its own
 *   C(0.5)      a constant of the type
 *   M(log)      the function of the C library, logf or log
 *   V(exp)      the same; for float32 vmath.h's where that is included, whose loops are vector code
 */
#ifndef EBB_KERNELS_MATH_WORDS_H
#define EBB_KERNELS_MATH_WORDS_H

#if defined(__CUDACC__)
#define EBB_BOTH static __host__ __device__ inline
#elif defined(__GNUC__)
#define EBB_BOTH static inline __attribute__((unused))
#else
#define EBB_BOTH static inline
#endif

#endif

#if defined(REAL_BITS)
#undef REAL
#undef NAMED
#undef C
#undef M
#undef V
#if REAL_BITS == 32
#define REAL float
#define NAMED(name) name##_f32
#define M(name) name##f
#elif REAL_BITS == 64
#define REAL double
#define NAMED(name) name##_f64
#define M(name) name
#endif
#if REAL_BITS != 0
#define C(v) ((REAL)(v))
#endif
#if REAL_BITS == 32 && defined(EBB_VECTOR)
#define V(name) EBB_VECTOR(name)
#elif REAL_BITS != 0
#define V(name) M(name)
#endif
#undef REAL_BITS
#endif
