/* plan.h: plans of a call as onednn.c runs them. A call has one, or two where its images go
 * through in parts (onednn.h), and they follow each other in the same workspace.
 *
 * oneDNN divides work, and sums, by the number of threads. Where that may not show in the bits it
 * computes with one, and the work is divided here, into pieces that follow from shapes alone:
 *
 *     slot 0   | piece 0 | piece 2 | piece 4 |      a slot: one thread with a workspace of its own
 *     slot 1   | piece 1 | piece 3 |
 *
 * Pieces are runs of a repeated primitive, or plan->pieces parts of the result, each of which may
 * be the sum of several runs, added in their order.
 */
#pragma once

#include "kernels/fast/onednn/onednn.h"

typedef struct ebb_dnnl_plans {
    uint32_t count;
    ebb_dnnl_plan part[EBB_DNNL_PARTS];
    size_t bytes; /* of a slot */
    uint32_t slots;
    size_t sum; /* bytes behind the slots: see ebb_dnnl_port */
} ebb_dnnl_plans;

/* NULL, or why there are none: then nothing is left to drop. */
const char *ebb_dnnl_make_plans(ebb_dnnl_plans *all, const ebb_call *call, ebb_dnnl_make make);
void ebb_dnnl_drop_plans(ebb_dnnl_plans *all);

/* Bytes of workspace of all slots and the sum. False: more than can be addressed. */
bool ebb_dnnl_bytes_of(size_t *bytes, const ebb_dnnl_plans *all);

/* The reorder that a copied operand needs. */
const char *ebb_dnnl_reorder_of(dnnl_primitive_desc_t *reorder, const ebb_dnnl_port *port);

/* As many threads as oneDNN may have for the call. */
ebb_threads_before ebb_dnnl_enter(const ebb_call *call);
