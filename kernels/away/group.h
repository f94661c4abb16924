/* group.h: the processes that compute a step together.
 *
 * All hold the same step; each has its own rows, and a rank that tells which. Nodes with the trait
 * EBB_TOGETHER exchange bytes with the others. The order of nodes is the order of exchanges, so it is the
 * same in all processes, and each says at which node it is: where two differ, both are told.
 *
 * A transport brings the bytes. It has two verbs, which return when what arrives has arrived:
 *
 *     rank 0 [a0 a1]   all_to_all   [a0 b0]        rank 0 [a]   all_gather   [a b]
 *     rank 1 [b0 b1]   --------->   [a1 b1]        rank 1 [b]   --------->   [a b]
 *
 * Sums are made of the first by whoever asks, in the order of ranks: their bits depend on no transport. Who asks for
 * a sum by the transport's library gets one of other last bits, where there are more than two ranks.
 */
#pragma once

#include "onnx/words/status.h"

#include <stdint.h>

enum {
    EBB_GROUP_MOST = 64,
    EBB_GROUP_PIECE = 1 << 20
}; /* ranks; bytes that a rank gives at once */

typedef enum ebb_group_verb { EBB_ALL_TO_ALL, EBB_ALL_GATHER } ebb_group_verb;

typedef struct ebb_transport {
    /* Blocks of `block` bytes: one from each rank, and one for each or the same for all. what: for errors,
     * and to be compared. */
    ebb_status (*exchange)(void *context, ebb_group_verb verb, const void *from, void *to,
                           size_t block, const char *what);
    /* Of all ranks' `count` numbers the sum, in whatever order; NULL: it has none. */
    ebb_status (*sum)(void *context, const void *from, void *to, size_t count, int dtype,
                      const char *what);
    bool (*speaks)(void *context); /* of all processes the first that asks is the one that does */
    void (*close)(void *context);
} ebb_transport;

struct ebb_group {
    const ebb_transport *transport;
    void *context;
    int rank, ranks;
    double late_s;                  /* so long one may keep the others waiting */
    uint64_t exchanges, sent_bytes; /* to the others */
};

/* What two ranks are told that are at different exchanges. */
ebb_status ebb_group_differ(int rank, const char *what, uint64_t block, int other,
                            const char *others, uint64_t others_block);

/* Of a group of one they copy. */
ebb_status ebb_group_all_to_all(ebb_group *group, const void *from, void *to, size_t block,
                                const char *what);
ebb_status ebb_group_all_gather(ebb_group *group, const void *own, void *all, size_t block,
                                const char *what);

/* Of as many float32, float64, int32 or int64 as the transport's library adds them; *done: it has sums. */
ebb_status ebb_group_sum(ebb_group *group, const void *from, void *to, size_t count, int dtype,
                         const char *what, bool *done);

/* EBB_USAGE where a number is not the same in all processes: names `what`, a rank and both. */
ebb_status ebb_group_agree(ebb_group *group, const char *what, uint64_t number);
/* The least of all processes' numbers. */
ebb_status ebb_group_least(ebb_group *group, const char *what, int64_t *number);
