/* group_shared.h: the transport between processes of one machine: memory that they share.
 *
 *     | header: who has arrived where | rank 0: even turns, odd turns | rank 1: ... |
 *
 * It is a file without a name, which a launcher makes and its processes inherit: nobody else can find it,
 * and it goes with the last of them, however that ends. Its size is sealed. In turn t a rank writes what it
 * gives into its half t mod 2, says that it has arrived, and reads the others' when all have: whoever
 * writes that half again has seen all arrive at turn t + 1, so nobody reads it any more.
 */
#pragma once

#include "kernels/away/group.h"

#define EBB_SHARED_VARIABLE "EBB_GROUP" /* in the environment: "DESCRIPTOR:RANK" */

/* EBB_USAGE: the text names no such memory, or another process has its rank. */
ebb_status ebb_shared_join(ebb_group *group, const char *where);

/* ---- for who starts the processes ---- */

typedef struct ebb_shared ebb_shared;

typedef struct ebb_shared_terms {
    uint32_t late_ms; /* so long a rank may keep the others waiting */
    /* What a link between machines would take, which an exchange then takes, too: of a message to one of the others,
     * and of a byte. From where the last has come. */
    double message_ns, byte_ns;
} ebb_shared_terms;

ebb_status ebb_shared_make(ebb_shared **shared, int *descriptor, int ranks,
                           const ebb_shared_terms *terms);
void ebb_shared_drop(ebb_shared *shared, int descriptor, int ranks);
/* Rank r is there no more; failed: all others are to end as well, at their next exchange. */
void ebb_shared_ended(ebb_shared *shared, int r, bool failed);
