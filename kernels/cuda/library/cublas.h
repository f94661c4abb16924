/* cublas.h: what the callers of cuBLASLt share: its handle, the choices that were made, and one
 * run.
 *
 * cublas.cu chooses and runs products; cublas_after.cu joins what follows them, where cublas_probe.cu
 * finds that it may.
 */
#ifndef EBB_KERNELS_CUDA_LIBRARY_CUBLAS_H
#define EBB_KERNELS_CUDA_LIBRARY_CUBLAS_H

#include "kernels/cuda/fuse/group.h"
#include "kernels/cuda/library/lt.h"
#include "kernels/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_cublas_choice { /* one a problem; kept by the queue */
    struct ebb_cublas_choice *next;
    ebb_lt_problem problem;
    ebb_lt_plan *plan; /* NULL: there is no algorithm, or one call after the other is faster */
    uint32_t algorithm;
    bool raced;    /* its algorithms, with each other */
    bool compared; /* with one call after the other, where it has sums */
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
/* Where it begins: at a multiple of so many bytes. A tile's operands lie where its rows begin
 * (kernels/nested/stream.c), and are not known yet. */
uint32_t ebb_cublas_align(const ebb_operand *o);
/* Is what is added to it a bias, which the library adds on the way out? */
bool ebb_cublas_adds_bias(const ebb_cuda_product *p, uint8_t dtype);
typedef struct ebb_cublas_beside { /* what a plan reads or writes beside p's operands */
    void *aux, *sums;
} ebb_cublas_beside;

/* Algorithm number i of a plan for p's problem, whatever the plan does after it. beside: may be
 * NULL. */
ebb_status ebb_cublas_run(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                          ebb_lt_plan *plan, uint32_t i, const ebb_cublas_beside *beside);
/* In prepare(): the choice for p with the sums of one side beside it; NULL: the library cannot be
 * asked. after: EBB_LT_SUM_A or EBB_LT_SUM_B. Where all pointers are there the algorithms race, and
 * y and the sums are written. */
ebb_status ebb_cublas_choose_sums(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                                  uint32_t after, void *sums, ebb_cublas_choice **one);
/* One call after the other is faster than that choice: remembered as a choice is, or not at all. */
void ebb_cublas_keep_apart(const ebb_call *c, ebb_cublas_choice *one);

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
