/* lt.h: products by cuBLASLt: descriptors, and the algorithm that it proposes.
 *
 *     EBB_TRY(ebb_lt_plan_new(&plan, &problem));        descriptors: needs no device
 *     EBB_TRY(ebb_lt_plan_find(plan, handle));          the algorithm that it proposes first
 *     EBB_TRY(ebb_lt_plan_run(plan, handle, ...));      enqueues it
 *
 * cuBLASLt is opened when first asked for: it has 500 MB, and a plugin that were linked to it could
 * not be opened on a machine without it.
 */
#pragma once

#include "kernels/cuda/library/lt_map.h"

EBB_C_BEGIN

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

typedef struct ebb_lt_problem { /* compared as bytes: clear it first */
    ebb_lt_map map;
    uint64_t workspace_bytes;
    uint32_t dtype, tf32; /* of all operands; float32 by TF32 */
    uint32_t bias;        /* one element a column of y is added on the way out */
    uint32_t align, wide; /* bytes: where operands begin, a power of two; 0: 256. y and c are
                             float32 beside 16 bits */
} ebb_lt_problem;

typedef struct ebb_lt_operands {
    const void *a, *b, *c; /* of the product in rows; c: read where beta is not 0 */
    void *y, *bias;        /* aligned as the problem says */
    double alpha, beta;
    void *workspace;
} ebb_lt_operands;

typedef struct ebb_lt_plan ebb_lt_plan;

ebb_status ebb_lt_plan_new(ebb_lt_plan **plan, const ebb_lt_problem *problem);
void ebb_lt_plan_free(ebb_lt_plan *plan);
/* The first algorithm that the library proposes and that fits the workspace. Sums are never cut into
 * parts that are added in any order. EBB_UNSUPPORTED where it has none. */
ebb_status ebb_lt_plan_find(ebb_lt_plan *plan, void *handle);
/* EBB_USAGE where none was found. stream: a cudaStream_t. */
ebb_status ebb_lt_plan_run(ebb_lt_plan *plan, void *handle, const ebb_lt_operands *o, void *stream);

EBB_C_END
