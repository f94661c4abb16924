/* group_mpi.h: the transport between processes that an MPI has started, on one machine or several.
 *
 * The MPIs differ in all that a compiler sees of them, so each has a shared object of its own, made of one
 * source (kernels/away/mpi/mpi.c) by that MPI's compiler, and opened where its launcher has started this process:
 * libebb needs none of them. Bytes alone go by MPI; sums are made as everywhere (group.h), but
 * where a step asks for MPI's own.
 *
 *     mpirun -n 2 ebb train ...     sets OMPI_COMM_WORLD_SIZE  -> libebb_mpi_openmpi.so
 *                                   sets PMI_SIZE              -> libebb_mpi_mpich.so
 */
#pragma once

#include "kernels/away/group.h"

enum { EBB_MPI_VERSION = 2 }; /* raise it when what follows changes */

/* One name, ebb_mpi_table, is what an object exports. Functions give NULL, or why not: text that stays until
 * the next call. */
typedef struct ebb_mpi {
    uint32_t version;
    const char *(*join)(int *rank, int *ranks);
    /* Sends `send + r * stride` to each rank r, `bytes` of them, and takes as many from each. late: the rank
     * that was not there after so many seconds; -1: none. */
    const char *(*exchange)(const void *send, size_t stride, void *receive, size_t bytes,
                            double seconds, int *late);
    /* Of all ranks' numbers, as MPI adds them; from may be to. */
    const char *(*sum)(const void *from, void *to, size_t count, int dtype, double seconds);
    int *(*said)(void); /* shared by the processes of this machine; NULL: there is none */
    void (*leave)(void);
} ebb_mpi;

/* Has an MPI's launcher started this process? */
bool ebb_mpi_is_here(void);
/* How many it has started; 0: none has. */
int ebb_mpi_processes(void);
/* EBB_USAGE: its object is not there, or is of another MPI than the launcher. */
ebb_status ebb_mpi_join(ebb_group *group);
/* Of this process among those of its machine, and how many these are, as the launcher says it; -1: it does not. */
int ebb_mpi_place(int *here);
