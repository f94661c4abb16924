/* nccl.h: bytes between the GPUs of a group's processes, by NCCL, which is opened when it is first asked for.
 *
 * A communicator is made by all of them at the same node; the number that it has is brought by the group's own
 * transport. What is exchanged is enqueued on a stream, and may be recorded with a step. NCCL adds only
 * where a step asks for that: what its sums are depends on the machine, the size and the place in a buffer.
 */
#pragma once

#include "kernels/away/group.h"

EBB_C_BEGIN

typedef struct ebb_nccl ebb_nccl;

/* Adds "NCCL 2.28.9", or that there is none and why, to the list in text. */
void ebb_nccl_library(char *text, size_t size);

/* EBB_DEVICE: it is not there; EBB_RUNTIME: it refuses. what: for errors of the others. */
ebb_status ebb_nccl_open(ebb_nccl **nccl, ebb_group *group, const char *what);
/* Behind records that exchange by it. NULL is fine. */
void ebb_nccl_close(ebb_nccl *nccl);
/* As a transport's (group.h), but enqueued. */
ebb_status ebb_nccl_exchange(ebb_nccl *nccl, void *stream, ebb_group_verb verb, const void *from,
                             void *to, size_t block);
/* Of float32, float64, int32 or int64. */
ebb_status ebb_nccl_sum(ebb_nccl *nccl, void *stream, const void *from, void *to, size_t count,
                        int dtype);
/* A step, or a replay of what was enqueued last: what it exchanges is counted at its end. */
void ebb_nccl_begin(ebb_nccl *nccl);
/* What is under way ends: this process is no more where the others are. */
void ebb_nccl_give_up(ebb_nccl *nccl);
/* Until the stream's work is done. EBB_RUNTIME where another process does not come in time or NCCL fails: what is
 * under way is over then, and so is the communicator. */
ebb_status ebb_nccl_wait(ebb_nccl *nccl, void *stream);

EBB_C_END
