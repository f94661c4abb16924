/* cublas.h: what the callers of cuBLASLt share: its handle, the choices that were made, and one
 * run.
 *
 * cublas.cu chooses and runs products; cublas_after.cu joins what follows them.
 */
#ifndef EBB_KERNELS_CUDA_CUBLAS_H
#define EBB_KERNELS_CUDA_CUBLAS_H

#include "kernels/cuda/group.h"
#include "kernels/cuda/lt.h"

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

typedef struct ebb_cublas { /* ebb_cuda_queue.cublas */
    void *handle;           /* NULL: it cannot use the device, products are our own */
    ebb_cublas_choice *first;
    char device[320]; /* in the cache */
    /* By dtype, a bit for each ebb_lt_after: which have been tried, and which of these give the
     * bits of the own kernels. */
    uint32_t tried[EBB_DTYPE_COUNT], agrees[EBB_DTYPE_COUNT];
} ebb_cublas;

/* The product of a MatMul, FusedMatMul, Gemm or Einsum, and its pointers. */
void ebb_cublas_read(ebb_cuda_product *p, const ebb_call *c);
/* Is what is added to it a bias, which the library adds on the way out? */
bool ebb_cublas_adds_bias(const ebb_cuda_product *p, uint8_t dtype);
/* Algorithm number i of a plan for p's problem, whatever the plan does after it; aux: its bits. */
ebb_status ebb_cublas_run(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                          ebb_lt_plan *plan, uint32_t i, void *aux);

/* An ebb_cuda_grouper: a product and the Relu, PackSign or MaskGrad behind it. */
ebb_status ebb_cublas_group(ebb_call *calls, uint32_t count, int version, uint32_t *taken);

#ifdef __cplusplus
}
#endif
#endif
