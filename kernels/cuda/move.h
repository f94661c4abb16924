/* move.h: what all kernels share that move elements and compute nothing: strided copies, fills,
 * indices, elements by their size.
 *
 *     path: dims  4  3  5          element (i, j, k) goes from i * from[0] + j * from[1] + k *
 *           to   15  5  1          from[2] to i * to[0] + j * to[1] + k * to[2]
 *           from  5 20  1
 *
 * Dims that walk alike are merged, and elements that always go together are moved as one of up to
 * 16 bytes. What then turns around (neighbours in one tensor are far apart in the other) goes
 * through tiles in shared memory, so that both sides are read and written by whole lines.
 */
#pragma once

#include "kernels/cuda/cuda.h"

EBB_C_BEGIN

/* 16 bytes that are moved at once. */
typedef struct ebb_cuda_wide {
    uint64_t half[2];
} __attribute__((aligned(16))) ebb_cuda_wide;

/* Rows of a table of kernels by size, as all_sizes.inc makes them. */
#define EBB_CUDA_SIZES(name)                                                           \
    {                                                                                  \
        (ebb_gpu_kernel) name##_1, (ebb_gpu_kernel)name##_2, (ebb_gpu_kernel)name##_4, \
            (ebb_gpu_kernel)name##_8, (ebb_gpu_kernel)name##_16                        \
    }

static inline int ebb_cuda_size_row(size_t size)
{
    return size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4;
}

/* ---- paths ---- */

enum { EBB_CUDA_PATH_RANK = 2 * EBB_MAX_RANK };

typedef struct ebb_cuda_path { /* outermost dim first */
    int32_t rank;
    int64_t dims[EBB_CUDA_PATH_RANK], to[EBB_CUDA_PATH_RANK], from[EBB_CUDA_PATH_RANK];
} ebb_cuda_path;

/* Without dims of one step, neighbours merged where both sides walk on evenly. */
void ebb_cuda_path_make(ebb_cuda_path *p, int rank, const int64_t *dims, const int64_t *to,
                        const int64_t *from);

/* i / n for i >= 0, n > 0: in 32 bits, which is much faster, where they do. */
EBB_GPU_INLINE int64_t ebb_cuda_quotient(int64_t i, int64_t n)
{
    return (uint64_t)(i | n) >> 32 == 0 ? (int64_t)((uint32_t)i / (uint32_t)n) : i / n;
}

/* Where step i of a path, counted with the last dim fastest, comes from and goes to. */
EBB_GPU_INLINE void ebb_cuda_step_of(const ebb_cuda_path *p, int64_t i, int64_t *to, int64_t *from)
{
    int64_t t = 0, f = 0;
    for (int d = p->rank - 1; d > 0; d--) {
        int64_t next = ebb_cuda_quotient(i, p->dims[d]), at = i - next * p->dims[d];
        t += at * p->to[d];
        f += at * p->from[d];
        i = next;
    }
    if (p->rank > 0) {
        t += i * p->to[0];
        f += i * p->from[0];
    }
    *to = t;
    *from = f;
}

/* ---- copies ---- */

/* Elements of `size` bytes along a path; strides count elements and may be 0 (from) or negative. */
ebb_status ebb_cuda_strided(const ebb_call *c, void *to, const int64_t *to_stride, const void *from,
                            const int64_t *from_stride, int rank, const int64_t *dims, size_t size);
/* Nothing where `to` is `from`. */
ebb_status ebb_cuda_copy(const ebb_call *c, void *to, const void *from, size_t bytes);
/* n elements of `size` bytes like `value`, which lies on the host. */
ebb_status ebb_cuda_fill(const ebb_call *c, void *to, const void *value, int64_t n, size_t size);

/* The most bytes up to 16, a power of two times `size`, that divide `bytes` and both addresses. */
size_t ebb_cuda_widest(const void *a, const void *b, size_t size, int64_t bytes);

/* Threads that share a row of `inner` elements: 2^result of them, at most a warp where rows are
 * many, else a block. */
int ebb_cuda_lanes(int64_t rows, int64_t inner);

/* ---- indices ---- */

/* An int32 or int64 tensor of indices. */
typedef struct ebb_cuda_indices {
    const void *data;
    int32_t wide;
    uint32_t position; /* of the call, for faults */
    ebb_cuda_step *step;
} ebb_cuda_indices;

static inline ebb_cuda_indices ebb_cuda_indices_of(const ebb_call *c, uint32_t input)
{
    ebb_cuda_indices x = {c->in[input].data, c->in[input].type.dtype == EBB_I64, c->position,
                          ebb_cuda_queue_of(c)->step};
    return x;
}

EBB_GPU_INLINE int64_t ebb_cuda_index_at(const ebb_cuda_indices *x, int64_t i)
{
    return x->wide ? ((const int64_t *)x->data)[i] : (int64_t)((const int32_t *)x->data)[i];
}

/* Index i into an axis of n, counted from its front; -1 where it is outside: that is told. */
EBB_GPU_INLINE int64_t ebb_cuda_index(const ebb_cuda_indices *x, int64_t i, int64_t n)
{
    int64_t at = ebb_cuda_index_at(x, i);
    if (!ebb_cuda_inside(x->step, x->position, at, -n, n))
        return -1;
    return at < 0 ? at + n : at;
}

/* y [outer, count, inner] = the slices of x [outer, n, inner] that the list names; size: bytes of
 * an element. */
ebb_status ebb_cuda_take(const ebb_call *c, void *y, const void *x, const ebb_span *s,
                         const ebb_cuda_indices *index, int64_t count, size_t size);

EBB_C_END
