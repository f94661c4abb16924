/* group.h: calls that follow each other become one launch: who looks for them, and what they share.
 *
 *     group.cu          walks over a step's calls and asks, at each, one grouper after another
 *     group_chains.cu   pointwise calls: a kernel whose source is written for them (chain.h)
 *     group_optim.cu    optimizers' steps: one launch over many tensors (many.h)
 *
 * A grouper takes calls[0] and what follows it, or nothing: then the next is asked, and at last the
 * walk goes on at calls[1]. What it takes gets other kernels: the first call does the work of all,
 * the others nothing. Memory is planned as before, so a grouper looks at pointers: what is computed
 * and kept for later calls must stay the same, bit for bit, and nothing may be written that is yet
 * to be read.
 */
#pragma once

#include "kernels/cuda/cuda.h"

EBB_C_BEGIN

/* Before the calls are prepared. *taken: how many calls from calls[0] on it has made one; 0: none.
 * The state that it gives calls[0] is freed by its new kernel. version: of the device. */
typedef ebb_status (*ebb_cuda_grouper)(ebb_call *calls, uint32_t count, int version,
                                       uint32_t *taken);

ebb_status ebb_cuda_group_chain(ebb_call *calls, uint32_t count, int version, uint32_t *taken);
ebb_status ebb_cuda_group_optim(ebb_call *calls, uint32_t count, int version, uint32_t *taken);

/* Of a call whose work an earlier one does. */
extern const ebb_kernel ebb_cuda_joined;

bool ebb_cuda_overlap(const ebb_operand *a, const ebb_operand *b);
/* Element i of one over element i of the other. */
bool ebb_cuda_exactly_over(const ebb_operand *a, const ebb_operand *b);

/* The steps of `count` calls of kernels of one family, in as few launches as may be. */
ebb_status ebb_cuda_optim_run(const ebb_call *calls, uint32_t count);
ebb_status ebb_cuda_low_bit_run(const ebb_call *calls, uint32_t count);

EBB_C_END
