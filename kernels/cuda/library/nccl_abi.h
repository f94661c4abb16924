/* nccl_abi.h: what is called of NCCL 2, declared here, so that the build needs no header of it. Test
 * cuda.nccl_abi compares it with nccl.h where that is there.
 *
 * A communicator and a stream are pointers; a result, a dtype and a peer are ints.
 */
#pragma once

#include "onnx/words/status.h"

EBB_C_BEGIN

/* Of a communicator, before there is one: rank 0 makes it, all get it. */
typedef struct ebb_nccl_id {
    char bytes[128];
} ebb_nccl_id;

enum {
    EBB_NCCL_SUCCESS = 0,
    EBB_NCCL_UINT8 = 1,
    EBB_NCCL_INT32 = 2,
    EBB_NCCL_INT64 = 4,
    EBB_NCCL_FLOAT32 = 7,
    EBB_NCCL_FLOAT64 = 8,
    EBB_NCCL_SUM = 0
};

// clang-format off
#define EBB_NCCL_FUNCTIONS(X)                                                                                 \
    X(GetVersion,        int, (int *version))                                                                 \
    X(GetErrorString,    const char *, (int result))                                                          \
    X(GetUniqueId,       int, (ebb_nccl_id *id))                                                              \
    X(CommInitRank,      int, (void **comm, int ranks, ebb_nccl_id id, int rank))                             \
    X(CommDestroy,       int, (void *comm))                                                                   \
    X(CommAbort,         int, (void *comm))                                                                   \
    X(CommGetAsyncError, int, (void *comm, int *result))                                                      \
    X(AllGather,         int, (const void *from, void *to, size_t count, int dtype, void *comm, void *stream)) \
    X(AllReduce,         int, (const void *from, void *to, size_t count, int dtype, int op, void *comm, void *stream)) \
    X(Send,              int, (const void *from, size_t count, int dtype, int peer, void *comm, void *stream)) \
    X(Recv,              int, (void *to, size_t count, int dtype, int peer, void *comm, void *stream))         \
    X(GroupStart,        int, (void))                                                                         \
    X(GroupEnd,          int, (void))
// clang-format on

#define EBB_NCCL_TYPE(name, result, parameters) typedef result ebb_nccl_##name parameters;
EBB_NCCL_FUNCTIONS(EBB_NCCL_TYPE)

EBB_C_END
