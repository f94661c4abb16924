/* lt.h: products by cuBLASLt: descriptors, the algorithms that it proposes, and what it can do to
 * the result on the way out.
 *
 *     EBB_TRY(ebb_lt_plan_new(&plan, &problem));        descriptors: needs no device
 *     EBB_TRY(ebb_lt_plan_find(plan, handle));          asks for algorithms: at most EBB_LT_PLANS
 *     EBB_TRY(ebb_lt_plan_run(plan, handle, i, ...));   enqueues number i
 *
 * cuBLASLt is opened when first asked for: it has 500 MB, and a plugin that were linked to it could
 * not be opened on a machine without it.
 */
#ifndef EBB_KERNELS_CUDA_LIBRARY_LT_H
#define EBB_KERNELS_CUDA_LIBRARY_LT_H

#include "kernels/cuda/library/lt_map.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_LT_PLANS = 8 };

/* Opens libcublasLt.so.13, once a process; the file named by
 * $EBB_CUBLASLT where that is set (find_library.h).
 * EBB_DEVICE, saying what to install, where there is none. */
ebb_status ebb_lt_open(void);
/* 130101 for 13.1.1; 0 where it cannot be opened. */
int64_t ebb_lt_version(void);
/* Adds "cuBLASLt 13.1.1", or that there is none and why, to the list in text. device: one is here,
 * and to use it the library must be able to. */
void ebb_lt_library(char *text, size_t size, bool device);

/* For the current device; EBB_DEVICE where there is none. */
ebb_status ebb_lt_handle_new(void **handle);
void ebb_lt_handle_free(void *handle);

/* What becomes of alpha a b + beta c. A column of y in rows is a row of it in columns: bias and its
 * gradient have one element a column of y. */
typedef enum ebb_lt_after {
    EBB_LT_NOTHING,
    EBB_LT_BIAS,          /* + bias */
    EBB_LT_RELU,          /* max(0, it) */
    EBB_LT_RELU_BIAS,     /* max(0, + bias) */
    EBB_LT_RELU_AUX,      /* max(0, it), and a bit for each element: was it above 0 */
    EBB_LT_RELU_AUX_BIAS, /* of + bias */
    EBB_LT_DRELU,         /* 0 where the bit is */
    EBB_LT_DRELU_BGRAD,   /* and the columns' sums to bias */
    EBB_LT_SUM_A,         /* nothing, but a is summed over k: m sums to bias, of y's type */
    EBB_LT_SUM_B,         /* b is: n sums */
    EBB_LT_AFTERS
} ebb_lt_after;

static inline bool ebb_lt_has_bias(uint32_t after)
{
    return after == EBB_LT_BIAS || after == EBB_LT_RELU_BIAS || after == EBB_LT_RELU_AUX_BIAS ||
           after == EBB_LT_DRELU_BGRAD;
}

static inline bool ebb_lt_has_aux(uint32_t after)
{
    return after >= EBB_LT_RELU_AUX && after <= EBB_LT_DRELU_BGRAD;
}

static inline bool ebb_lt_has_sums(uint32_t after)
{
    return after == EBB_LT_SUM_A || after == EBB_LT_SUM_B;
}

typedef struct ebb_lt_problem { /* compared as bytes: clear it first */
    ebb_lt_map map;
    int64_t aux_lead; /* of the bits, in bits: ebb_lt_aux_lead(n); 0 without */
    uint64_t workspace_bytes;
    uint32_t dtype, after; /* of all operands; ebb_lt_after */
    uint32_t tf32, splits; /* float32 by TF32; sums of a product may be cut into parts */
    uint32_t align, wide;  /* bytes: where operands begin, a power of two; 0: 256. y and c are
                              float32 beside 16 bits */
} ebb_lt_problem;

/* Bits from one row of y to the next in an aux of bits; its bytes for m rows. The order of the bits
 * is not documented: cublas_after.cu finds out. */
static inline int64_t ebb_lt_aux_lead(int64_t n)
{
    return (n + 127) / 128 * 128;
}

static inline size_t ebb_lt_aux_bytes(int64_t m, int64_t n)
{
    return (size_t)m * (size_t)(ebb_lt_aux_lead(n) / 8);
}

typedef struct ebb_lt_operands {
    const void *a, *b, *c; /* of the product in rows; c: read where beta is not 0 */
    void *y, *bias, *aux;  /* aligned as the problem says */
    double alpha, beta;
    void *workspace;
} ebb_lt_operands;

typedef struct ebb_lt_plan ebb_lt_plan;

ebb_status ebb_lt_plan_new(ebb_lt_plan **plan, const ebb_lt_problem *problem);
void ebb_lt_plan_free(ebb_lt_plan *plan);
/* EBB_UNSUPPORTED where the library has no algorithm for it. */
ebb_status ebb_lt_plan_find(ebb_lt_plan *plan, void *handle);
uint32_t ebb_lt_plan_count(const ebb_lt_plan *plan);

/* Algorithm number i in bytes; and back: then it is the plan's only one. EBB_UNSUPPORTED where the
 * library refuses it on this device, or it wants more workspace than the problem has. */
enum { EBB_LT_ALGORITHM = 64 };
void ebb_lt_plan_save(const ebb_lt_plan *plan, uint32_t i, uint8_t bytes[EBB_LT_ALGORITHM]);
ebb_status ebb_lt_plan_restore(ebb_lt_plan *plan, void *handle,
                               const uint8_t bytes[EBB_LT_ALGORITHM]);

/* The algorithm that won a problem, on disk beside the chains (cache_files.h):
 *     cublaslt-130101/DEVICE/5d41402abc4b2a76.bin     hash of the problem, which is in the file
 * What is damaged, of another version, or cannot be written is as if it were not there. */
void ebb_lt_keep(const char *device, const ebb_lt_problem *problem,
                 const uint8_t bytes[EBB_LT_ALGORITHM]);
bool ebb_lt_recall(const char *device, const ebb_lt_problem *problem,
                   uint8_t bytes[EBB_LT_ALGORITHM]);
/* Where it lies. EBB_IO where the environment names no folder. */
ebb_status ebb_lt_cache_path(char *path, size_t size, const char *device,
                             const ebb_lt_problem *problem);

/* Algorithm number i, the library's best guess first; stream: a cudaStream_t. */
ebb_status ebb_lt_plan_run(ebb_lt_plan *plan, void *handle, uint32_t i, const ebb_lt_operands *o,
                           void *stream);

#ifdef __cplusplus
}
#endif
#endif
