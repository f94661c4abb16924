/* parallel.h: loops over threads and lanes; the only place that names OpenMP.
 *
 *   EBB_PARALLEL_FOR(work)   iterations are independent; threads when `work` elements are worth it
 *   EBB_SIMD                 iterations are independent; lanes. Also true where an output is
 *                            written exactly over the input that the same iteration reads
 *   EBB_SIMD_SUM(x)          the same, adding into x: in an order that the compiler fixes
 *
 * Results must not depend on how iterations are dealt out: no reductions over threads.
 */
#ifndef EBB_KERNELS_PARALLEL_H
#define EBB_KERNELS_PARALLEL_H

#if defined(_OPENMP)
#define EBB_PRAGMA(text) _Pragma(#text)
#else
#define EBB_PRAGMA(text)
#endif

/* Below this many elements, waking threads costs more than it gives (about 5 us against 8 GB/s). */
#define EBB_PARALLEL_WORTH 16384

#define EBB_PARALLEL_FOR(work) \
    EBB_PRAGMA(omp parallel for schedule(static) if ((work) > EBB_PARALLEL_WORTH))
#define EBB_SIMD EBB_PRAGMA(omp simd)
#define EBB_SIMD_SUM(x) EBB_PRAGMA(omp simd reduction(+ : x))
/* The least into l, the largest into h, a sum into x. */
#define EBB_SIMD_RANGE(l, h, x) \
    EBB_PRAGMA(omp simd reduction(min : l) reduction(max : h) reduction(+ : x))

#endif
