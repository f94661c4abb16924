/* cuda.h: what the families of CUDA kernels share: the queue, grids, broadcasts, faults.
 *
 * Each family is a file of this folder and ends in an array of kernels; backend.cu lists the
 * arrays. The operands of a call lie on the device: run() reads none of them. What a launcher must
 * know (axes, shapes, ratios given as inputs) is in operand.constant, or the kernel declines.
 */
#pragma once

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/runtime.h"
#include "kernels/operand.h"

EBB_C_BEGIN

// clang-format off
#define EBB_CUDA_FAMILIES(X) X(pointwise) X(conv) X(pool) X(recurrent) X(move) X(move_shape) \
    X(move_index) X(top_k) X(scatter) X(packed) X(optim) X(random)                           \
    X(cast) X(invert) X(few_bit) X(norm) X(norm_group) X(norm_rows) X(norm_axes) \
    X(matmul) X(sample) X(attention) X(linear_loss) X(codes) X(low_bit) \
    X(reduce) X(arg) X(loss) X(cross_entropy) X(taper) X(linear_codes) X(frozen) \
    X(resize) X(einsum) X(heads) X(grid_sample) X(roi) X(place) X(recurrent_any) X(signal) \
    X(select) X(algebra) X(together) X(beside)
// clang-format on

#define EBB_CUDA_DECLARE(name)                 \
    extern const ebb_kernel ebb_cuda_##name[]; \
    extern const size_t ebb_cuda_##name##_count;
EBB_CUDA_FAMILIES(EBB_CUDA_DECLARE)

/* By libraries that only the GPU's build has; asked before all others. */
#if defined(EBB_CUBLASLT)
#define EBB_CUDA_LIBRARIES(X) X(cublas)
EBB_CUDA_LIBRARIES(EBB_CUDA_DECLARE)
void ebb_cuda_cublas_close(void *opened); /* ebb_cuda_queue.cublas */
#else
#define EBB_CUDA_LIBRARIES(X)
#endif

/* Closes a family's file: the count of `ebb_cuda_NAME`. */
#define EBB_CUDA_COUNT(name) \
    const size_t ebb_cuda_##name##_count = sizeof ebb_cuda_##name / sizeof ebb_cuda_##name[0];

/* ---- the queue ---- */

/* In device memory, one a queue: what changes from step to step, and the first fault. */
typedef struct ebb_cuda_step {
    uint64_t step;
    uint64_t fault; /* position << 32 | slot + 1 of the least; all ones: none */
    int64_t value[64], low[64], high[64]; /* by position % 64 */
} ebb_cuda_step;

typedef struct ebb_cuda_visit { /* work of the host, as a record keeps it */
    struct ebb_cuda_visit *next;
    struct ebb_cuda_queue *queue;
    ebb_status (*work)(void *context, uint64_t step);
    void *context;
} ebb_cuda_visit;

/* Work beside the step: what it makes, or stores, lies at `memory`. */
typedef struct ebb_cuda_started {
    struct ebb_cuda_started *next;
    const void *memory; /* NULL: it is waited for */
    void *mark;         /* where it is over */
} ebb_cuda_started;

typedef struct ebb_cuda_queue {
    void *stream;
    ebb_cuda_step *step; /* on the device */
    void *record;
    bool records;    /* this step */
    bool warm;       /* a step was run call by call */
    bool unrecorded; /* recording failed once: steps are run call by call */
    bool profiles;
    void **marks;
    uint32_t mark_count, mark_capacity;
    uint64_t allocated_bytes;
    void *cublas, *cudnn; /* handles of the libraries, made when first asked for */
    void (*free_cudnn)(void *handle);
    struct ebb_nccl
        *nccl;     /* of processes that compute together (together.cu): NULL until one asks */
    void *ways[2]; /* streams beside that of the step, to the host's memory [1] and from it [0] */
    void *way;     /* the one that copies are given now; NULL: that of the step */
    void *beside;  /* the stream on which processes do, from and to marks of that of the step */
    void *from, *to;
    ebb_cuda_started *started, *departs; /* departs: that of `way` */
    bool walked;                         /* this step's calls run: it is no replay */
    ebb_cuda_visit *visits;
    uint64_t number;        /* of this step, for visits */
    ebb_status visit_error; /* of this step: the first; streams visit side by side */
} ebb_cuda_queue;

static inline ebb_cuda_queue *ebb_cuda_queue_of(const ebb_call *c)
{
    return (ebb_cuda_queue *)c->queue;
}

/* beside.cu. The started work of what lies at `memory`, NULL: there is none; of NULL one that is free. */
ebb_status ebb_cuda_find_started(ebb_cuda_queue *q, const void *memory, ebb_cuda_started **found);
ebb_status ebb_cuda_depart(void *opened, bool to_host, const void *memory); /* of ebb_device */
ebb_status ebb_cuda_land(void *opened);
/* What the step has not waited for ends with it; after a failure it is let go; behind records, all of it goes. */
ebb_status ebb_cuda_beside_end(ebb_cuda_queue *q);
void ebb_cuda_beside_abandon(ebb_cuda_queue *q);
void ebb_cuda_beside_close(ebb_cuda_queue *q);

extern bool ebb_cuda_tf32; /* may float32 products be made of TF32 ones? */

/* ebb_backend.group: group.cu. */
ebb_status ebb_cuda_group(ebb_call *calls, uint32_t count);

/* ---- launches ---- */

/* Blocks for n elements, one a thread, at most 2048: kernels loop over the rest. */
static inline ebb_gpu_grid ebb_cuda_grid(int64_t n)
{
    int64_t blocks = (n + EBB_CUDA_BLOCK - 1) / EBB_CUDA_BLOCK;
    ebb_gpu_grid grid = {(uint32_t)(blocks < 2048 ? blocks : 2048), 1, 1};
    return grid;
}

/* One block for each of n rows or tiles. */
static inline ebb_gpu_grid ebb_cuda_blocks(int64_t n)
{
    ebb_gpu_grid grid = {(uint32_t)(n < 0x7FFFFFFF ? n : 0x7FFFFFFF), 1, 1};
    return grid;
}

/* An ebb_status. kernel: an EBB_GLOBAL; args: a variable of its struct. */
#define EBB_LAUNCH(call, kernel, grid, threads, shared_bytes, args)                              \
    ebb_gpu_launch(ebb_cuda_queue_of(call)->stream, (ebb_gpu_kernel)(kernel), (grid), (threads), \
                   (shared_bytes), &(args), sizeof(args))

/* ---- operands ---- */

/* A constant scalar input; `otherwise` where it is absent. */
double ebb_cuda_scalar(const ebb_call *c, uint32_t input, double otherwise);

/* Rows of a table of kernels by float dtype, as all_floats.inc makes them. */
static inline int ebb_cuda_float_row(uint8_t dtype)
{
    return dtype == EBB_F32 ? 0 : dtype == EBB_F64 ? 1 : dtype == EBB_F16 ? 2 : 3;
}

#define EBB_CUDA_FLOATS(name)                                                                \
    {                                                                                        \
        (ebb_gpu_kernel) name##_f32, (ebb_gpu_kernel)name##_f64, (ebb_gpu_kernel)name##_f16, \
            (ebb_gpu_kernel)name##_bf16                                                      \
    }

/* ---- what rows ask ---- */

/* ebb_call_any, and input 0 is f32, f64, f16 or bf16, and so are all float operands: one dtype for
 * all. */
const char *ebb_cuda_floats(const ebb_call *c);
const char *ebb_cuda_numbers(const ebb_call *c); /* ... or input 0 is an integer or bool */
/* NULL where input i is absent or known before the run; else why not. */
const char *ebb_cuda_constant(const ebb_call *c, uint32_t i);

/* ---- broadcast ---- */

enum { EBB_CUDA_INPUTS = 4 };

/* Output element i, read as an index over dims (innermost first), lies in input k at the sum of
 * index * stride. Dims that walk alike are merged; a dense input has strides 1, n0, n0 * n1 ... */
typedef struct ebb_cuda_walk {
    int32_t rank;
    bool narrow; /* fewer than 2^31 elements: divided in 32 bits, which is far cheaper */
    int64_t dims[EBB_MAX_RANK];
    int64_t stride[EBB_CUDA_INPUTS][EBB_MAX_RANK];
} ebb_cuda_walk;

/* Inputs broadcast to out, by ONNX's rule; count at most EBB_CUDA_MERGED. strides: a row of
 * EBB_MAX_RANK for each input. The rank of what is left. */
enum { EBB_CUDA_MERGED = 16 };
int ebb_cuda_walk_merge(const ebb_type *out, const ebb_type *const *in, int count, int64_t *dims,
                        int64_t (*strides)[EBB_MAX_RANK]);
void ebb_cuda_walk_make(ebb_cuda_walk *w, const ebb_type *out, const ebb_type *const *in,
                        int count);

EBB_GPU_INLINE int64_t ebb_cuda_at(const ebb_cuda_walk *w, int k, int64_t i)
{
    int64_t at = 0;
    if (w->rank <= 1)
        return i * w->stride[k][0];
    if (w->narrow) {
        uint32_t rest = (uint32_t)i;
        for (int d = 0; d < w->rank; d++) {
            uint32_t n = (uint32_t)w->dims[d], next = rest / n;
            at += (int64_t)(rest - next * n) * w->stride[k][d];
            rest = next;
        }
        return at;
    }
    for (int d = 0; d < w->rank; d++) {
        int64_t next = i / w->dims[d];
        at += (i - next * w->dims[d]) * w->stride[k][d];
        i = next;
    }
    return at;
}

/* ---- scalars that a kernel reads ---- */

/* A number that changes from step to step (a rate, a count of steps): where it lies, and its type.
 */
typedef struct ebb_cuda_number {
    const void *at;
    int32_t dtype;
} ebb_cuda_number;

static inline ebb_cuda_number ebb_cuda_number_of(const ebb_operand *o)
{
    ebb_cuda_number n = {o->data, o->type.dtype};
    return n;
}

EBB_GPU_INLINE double ebb_cuda_read(ebb_cuda_number n)
{
    switch (n.dtype) {
    case EBB_F32:
        return (double)*(const float *)n.at;
    case EBB_F64:
        return *(const double *)n.at;
    case EBB_I64:
        return (double)*(const int64_t *)n.at;
    case EBB_I32:
        return (double)*(const int32_t *)n.at;
    default:
        return (double)*(const uint8_t *)n.at;
    }
}

/* ---- faults ---- */

/* What a launcher gives for low and high to say that the divisor at position `value` is zero. */
enum { EBB_CUDA_ZERO_LOW = 1, EBB_CUDA_ZERO_HIGH = 0 };

/* Is low <= value < high? If not, the call's fault is told, once, and the kernel must not read
 * there. `step` and `position` come from the launcher: ebb_cuda_queue_of(c)->step, c->position. */
EBB_GPU_INLINE bool ebb_cuda_inside(ebb_cuda_step *step, uint32_t position, int64_t value,
                                    int64_t low, int64_t high)
{
    if (value >= low && value < high)
        return true;
    uint64_t mine = (uint64_t)position << 32;
    uint64_t before = ebb_atomic_min_u64(&step->fault, mine);
    if (mine < before) { // several threads of one launch may write: any of their values will do
        step->value[position % 64] = value;
        step->low[position % 64] = low;
        step->high[position % 64] = high;
    }
    return false;
}

EBB_C_END
