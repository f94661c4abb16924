/* test_nccl_abi.c: what kernels/cuda/library/nccl_abi.h declares of NCCL is what its own header does. Each of our
 * types is given a function that calls NCCL's with what it was given: other parameters would not compile.
 */
#include "kernels/cuda/library/nccl_abi.h"
#include "tests/test.h"

#include <string.h>

#include <nccl.h>

_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int), "");
_Static_assert(sizeof(ncclUniqueId) == sizeof(ebb_nccl_id), "");
_Static_assert(_Alignof(ncclUniqueId) == _Alignof(ebb_nccl_id), "");
_Static_assert((int)ncclSuccess == EBB_NCCL_SUCCESS && (int)ncclUint8 == EBB_NCCL_UINT8, "");
_Static_assert((int)ncclInt32 == EBB_NCCL_INT32 && (int)ncclInt64 == EBB_NCCL_INT64, "");
_Static_assert((int)ncclFloat32 == EBB_NCCL_FLOAT32 && (int)ncclFloat64 == EBB_NCCL_FLOAT64, "");
_Static_assert((int)ncclSum == EBB_NCCL_SUM && sizeof(ncclRedOp_t) == sizeof(int), "");
_Static_assert(sizeof(ncclComm_t) == sizeof(void *) && sizeof(cudaStream_t) == sizeof(void *), "");

#define COMM ((ncclComm_t)comm)
#define STREAM ((cudaStream_t)stream)

/* NCCL's functions, told apart from ours by how they are called; never run: none of them is linked. */
#define SAME_AS_NCCL(name, result, parameters, given) \
    static inline result ours_##name parameters       \
    {                                                 \
        __typeof__(&nccl##name) theirs = NULL;        \
        return (result)theirs given;                  \
    }                                                 \
    _Static_assert(                                   \
        __builtin_types_compatible_p(__typeof__(ours_##name), __typeof__(ebb_nccl_##name)), "");

static ncclUniqueId id_of(ebb_nccl_id id)
{
    ncclUniqueId made;
    memcpy(&made, &id, sizeof made);
    return made;
}

// clang-format off
SAME_AS_NCCL(GetVersion, int, (int *version), (version))
SAME_AS_NCCL(GetErrorString, const char *, (int result), ((ncclResult_t)result))
SAME_AS_NCCL(GetUniqueId, int, (ebb_nccl_id *id), ((ncclUniqueId *)(void *)id))
SAME_AS_NCCL(CommInitRank, int, (void **comm, int ranks, ebb_nccl_id id, int rank), ((ncclComm_t *)(void *)comm, ranks, id_of(id), rank))
SAME_AS_NCCL(CommDestroy, int, (void *comm), (COMM))
SAME_AS_NCCL(CommAbort, int, (void *comm), (COMM))
SAME_AS_NCCL(CommGetAsyncError, int, (void *comm, int *result), (COMM, (ncclResult_t *)(void *)result))
SAME_AS_NCCL(AllGather, int, (const void *from, void *to, size_t count, int dtype, void *comm, void *stream), (from, to, count, (ncclDataType_t)dtype, COMM, STREAM))
SAME_AS_NCCL(AllReduce, int, (const void *from, void *to, size_t count, int dtype, int op, void *comm, void *stream), (from, to, count, (ncclDataType_t)dtype, (ncclRedOp_t)op, COMM, STREAM))
SAME_AS_NCCL(Send, int, (const void *from, size_t count, int dtype, int peer, void *comm, void *stream), (from, count, (ncclDataType_t)dtype, peer, COMM, STREAM))
SAME_AS_NCCL(Recv, int, (void *to, size_t count, int dtype, int peer, void *comm, void *stream), (to, count, (ncclDataType_t)dtype, peer, COMM, STREAM))
SAME_AS_NCCL(GroupStart, int, (void), ())
SAME_AS_NCCL(GroupEnd, int, (void), ())
// clang-format on

/* All that we call is there: a function of nccl_abi.h without a line above does not compile here. */
#define IS_COMPARED(name, result, parameters) (uintptr_t) ours_##name,

TEST(what_is_declared_is_what_nccl_has)
{
    const uintptr_t compared[] = {EBB_NCCL_FUNCTIONS(IS_COMPARED)};
    assert_int_equal(sizeof compared / sizeof *compared, 13);
}
