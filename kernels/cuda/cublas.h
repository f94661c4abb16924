/* cublas.h: what the callers of cuBLASLt share: its handle, the choices that were made, and one
 * run.
 *
 * cublas.cu chooses and runs products; cublas_after.cu joins what follows them, where cublas_probe.cu
 * finds that it may.
 */
#ifndef EBB_KERNELS_CUDA_CUBLAS_H
#define EBB_KERNELS_CUDA_CUBLAS_H

#include "kernels/cuda/group.h"
#include "kernels/cuda/lt.h"
#include "kernels/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_cublas_choice { /* one a problem; kept by the queue */
    struct ebb_cublas_choice *next;
    ebb_lt_problem problem;
    ebb_lt_plan *plan; /* NULL: there is no algorithm */
    uint32_t algorithm;
    bool raced;
} ebb_cublas_choice;

typedef struct ebb_cublas_answer {
    bool asked;
    char why[200]; /* not; empty: it has the bits of the own kernels */
} ebb_cublas_answer;

typedef struct ebb_cublas { /* ebb_cuda_queue.cublas */
    void *handle;           /* NULL: it cannot use the device, products are our own */
    ebb_cublas_choice *first;
    char device[320];                            /* in the cache */
    ebb_cublas_answer answers[4][EBB_LT_AFTERS]; /* by float dtype */
} ebb_cublas;

/* Makes queue->cublas, once. */
ebb_status ebb_cublas_open(ebb_cuda_queue *queue);

/* The product of a MatMul, FusedMatMul, Gemm or Einsum, and its pointers. */
void ebb_cublas_read(ebb_cuda_product *p, const ebb_call *c);
/* Is what is added to it a bias, which the library adds on the way out? */
bool ebb_cublas_adds_bias(const ebb_cuda_product *p, uint8_t dtype);
/* Algorithm number i of a plan for p's problem, whatever the plan does after it; aux: its bits. */
ebb_status ebb_cublas_run(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                          ebb_lt_plan *plan, uint32_t i, void *aux);

/* Bits that the library keeps together: a row of its own ends where one of these does. */
enum { EBB_CUBLAS_LINE = 128 };
/* NULL where what the library does after a product has the bits of the own kernels, else why it is
 * not joined. Asks the device where nobody has, and waits for it. The text is the queue's. */
const char *ebb_cublas_differs(ebb_cuda_queue *queue, uint8_t dtype, uint32_t after);
/* All of these, for `ebb devices`; nothing where the library cannot use the device. */
void ebb_cublas_probes(ebb_cuda_queue *queue, ebb_plugin_tell tell, void *to);

/* An ebb_cuda_grouper: a product and the Relu, PackSign or MaskGrad behind it. */
ebb_status ebb_cublas_group(ebb_call *calls, uint32_t count, int version, uint32_t *taken);

#ifdef __cplusplus
}
#endif
#endif
