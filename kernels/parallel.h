/* parallel.h: loops over threads and lanes; the only place that names OpenMP.
 *
 *   EBB_PARALLEL_FOR(work)   iterations are independent; threads when `work` elements are worth it
 *   EBB_SIMD                 iterations are independent; lanes. Also true where an output is
 *                            written exactly over the input that the same iteration reads
 *   EBB_SIMD_SUM(x)          the same, adding into x: in an order that the compiler fixes
 *
 * Results must not depend on how iterations are dealt out: no reductions over threads.
 *
 *   ebb_threads_enter, ebb_threads_leave, ebb_threads   how many threads there are
 */
#pragma once

#include "onnx/words/status.h"

#if defined(_OPENMP)
#define EBB_PRAGMA(text) _Pragma(#text)
#else
#define EBB_PRAGMA(text)
#endif

/* How many threads may work, one pool with oneDNN's, is a setting of the thread that calls. Who
 * plans, prepares or runs calls enters the number that the calls are planned for, and leaves it
 * with what the caller had before: so it does not matter which thread calls, and what it has set.
 * What a call needs (workspace) and how it divides its work may depend on ebb_threads() alone. */
enum { EBB_MOST_THREADS = 4096 };

typedef struct ebb_threads_before {
    int count, dynamic;
} ebb_threads_before;

/* 0: as OMP_NUM_THREADS says, or as many as processors. */
ebb_threads_before ebb_threads_enter(int count);
void ebb_threads_leave(ebb_threads_before before);
int ebb_threads(void); /* in what was entered last */
/* The number that `asked` stands for, 0 as above. EBB_USAGE: too many. */
ebb_status ebb_threads_read(int *count, int asked);

/* Below this many elements, waking threads costs more than it gives (about 5 us against 8 GB/s). */
#define EBB_PARALLEL_WORTH 16384

#define EBB_PARALLEL_FOR(work) \
    EBB_PRAGMA(omp parallel for schedule(static) if ((work) > EBB_PARALLEL_WORTH))
#define EBB_SIMD EBB_PRAGMA(omp simd)
#define EBB_SIMD_SUM(x) EBB_PRAGMA(omp simd reduction(+ : x))
/* The least into l, the largest into h, a sum into x. */
#define EBB_SIMD_RANGE(l, h, x) \
    EBB_PRAGMA(omp simd reduction(min : l) reduction(max : h) reduction(+ : x))
