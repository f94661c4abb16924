/* mover.h: moves tensors to other places and back, and exchanges them with other processes, while the step
 * goes on.
 *
 * A program whose step starts such work has a mover. Three threads do what nodes start, one writing, one
 * reading and one exchanging, each in the order in which it was started; so a step that waits for all at once
 * computes the same bits as one that waits late. What lies on disk is in one file without a name, as long as was planned, which the
 * system takes back however the process ends.
 *
 * A device that is not the host moves by itself (kernels/away/beside.h), to and from memory that it pins;
 * what goes to disk passes through a piece of it.
 *
 * A move that fails is said by the next start, wait or settle: EBB_IO, with the node and the folder.
 */
#pragma once

#include "kernels/device.h"

typedef struct ebb_mover ebb_mover;

typedef struct ebb_spot { /* where a tensor lies in its place */
    bool on_disk;         /* else in the host's memory */
    uint64_t offset;      /* on disk a multiple of 4096, and so is the room behind it */
} ebb_spot;

typedef struct ebb_mover_plan {
    const char *folder; /* of the file */
    bool unchecked;     /* what is read there is taken without a checksum of what was written */
    uint64_t disk_bytes, host_bytes;
    const ebb_spot *spots;
    size_t spot_count;
    const ebb_device *device; /* NULL or not the host: the host's memory is what it stages */
    void *queue;
} ebb_mover_plan;

typedef struct ebb_mover_facts {
    uint64_t disk_bytes, host_bytes; /* taken: the file's size, the memory's */
    uint64_t stored_bytes, fetched_bytes;
    int64_t waited_ns; /* the step stood still for moves */
} ebb_mover_facts;

/* Makes the file as long as it will be, so that a full disk is said before the first step. */
ebb_status ebb_mover_open(ebb_mover **mover, const ebb_mover_plan *plan);
void ebb_mover_close(ebb_mover *mover); /* NULL is fine. Ends what is under way */

/* Start a move of the tensor at `memory`, which stays as it is until ebb_mover_wait(memory). They return at
 * once, unless very many moves are under way. node: for errors; outlives the move. */
ebb_status ebb_mover_store(ebb_mover *mover, uint32_t spot, void *memory, size_t bytes,
                           const char *node);
ebb_status ebb_mover_fetch(ebb_mover *mover, uint32_t spot, void *memory, size_t bytes,
                           const char *node);
/* ---- for a device that moves by itself ---- */

enum { EBB_MOVER_PIECE = 1 << 20 };

/* Where a tensor lies in the host's memory; NULL: on disk, piece by piece through a room, one each way. */
void *ebb_mover_memory(const ebb_mover *mover, uint32_t spot);
void *ebb_mover_room(const ebb_mover *mover, bool stores);

typedef struct ebb_mover_piece {
    ebb_mover *mover;
    uint32_t spot;
    bool stores;             /* else it fetches */
    size_t at, bytes, whole; /* of the tensor */
    const char *node;
} ebb_mover_piece;

/* Between the room and the disk; for ebb_device.visit: context is an ebb_mover_piece, those of a tensor come
 * in order. */
ebb_status ebb_mover_carry(void *context, uint64_t step);

/* ---- exchanges ---- */

/* Runs run(call) beside the step, behind all exchanges that were started before. memory: what it makes, to
 * be waited for. The call stays until then. */
struct ebb_call;
ebb_status ebb_mover_exchange(ebb_mover *mover, ebb_status (*run)(const struct ebb_call *),
                              const struct ebb_call *call, void *memory);
/* Until no exchange is under way: whoever exchanges beside the mover comes behind all that was started. */
ebb_status ebb_mover_quiet(ebb_mover *mover);
/* Until no work on what lies at `memory` is under way. */
ebb_status ebb_mover_wait(ebb_mover *mover, const void *memory);
/* The bytes of a tensor in its place, to be read until the next step. name: for errors. */
ebb_status ebb_mover_look(ebb_mover *mover, const void **data, uint32_t spot, size_t bytes,
                          const char *name);
/* At the end of a step: until nothing is under way. A failure is said, and forgotten. */
ebb_status ebb_mover_settle(ebb_mover *mover);

ebb_mover_facts ebb_mover_measure(ebb_mover *mover);
