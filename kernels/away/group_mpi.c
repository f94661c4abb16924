/* group_mpi.c: see group_mpi.h. Before the bytes of an exchange go the numbers that tell which it is, since an
 * MPI waits for ever, or worse, where two processes mean different ones. */
#include "kernels/away/group_mpi.h"

#include "kernels/plugin.h"
#include "onnx/words/arena.h"
#include "onnx/words/print.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct side {
    const ebb_mpi *mpi;
    int rank, ranks;
    double late_s;
} side;

enum { SUM = 2 }; /* a verb beside those of group.h */

typedef struct head { /* which exchange it is */
    uint64_t block;
    uint32_t verb;
    char what[108];
} head;

/* By what its launcher puts into the environment of a process: how many there are, how many of them on this machine, and its
 * place among these. */
static const struct launcher {
    const char *variable, *here, *place, *object, *title, *package;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "libebb_mpi_openmpi.so", "Open MPI", "libopenmpi-dev"},
    {"PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", "libebb_mpi_mpich.so", "MPICH",
     "libmpich-dev"},
};

static const struct launcher *launcher_here(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (getenv(launchers[i].variable) != NULL)
            return &launchers[i];
    return NULL;
}

bool ebb_mpi_is_here(void)
{
    return launcher_here() != NULL;
}

int ebb_mpi_processes(void)
{
    const struct launcher *l = launcher_here();
    return l != NULL ? atoi(getenv(l->variable)) : 0;
}

/* ---- an exchange ---- */

static ebb_status bring(const side *s, const void *send, size_t stride, void *receive, size_t bytes,
                        const char *what)
{
    int late = -1;
    const char *why = s->mpi->exchange(send, stride, receive, bytes, s->late_s, &late);
    if (late >= 0)
        return ebb_error(EBB_RUNTIME,
                         "%s: rank %d did not come within %g s ($EBB_LATE): it is at something "
                         "else, or stands still",
                         what, late, s->late_s);
    return why != NULL ? ebb_error(EBB_RUNTIME, "%s: %s", what, why) : NULL;
}

static ebb_status be_at_one(const side *s, uint32_t verb, size_t block, const char *what)
{
    head own = {.block = block, .verb = verb}, all[EBB_GROUP_MOST];
    (void)snprintf(own.what, sizeof own.what, "%s", what);
    EBB_TRY(bring(s, &own, 0, all, sizeof own, what));
    for (int r = 0; r < s->ranks; r++) {
        all[r].what[sizeof own.what - 1] = '\0';
        if (all[r].block != own.block || all[r].verb != own.verb ||
            strcmp(all[r].what, own.what) != 0)
            return ebb_group_differ(s->rank, own.what, own.block, r, all[r].what, all[r].block);
    }
    return NULL;
}

static ebb_status exchange(void *context, ebb_group_verb verb, const void *from, void *to,
                           size_t block, const char *what)
{
    const side *s = context;
    EBB_TRY(be_at_one(s, verb, block, what));
    return bring(s, from, verb == EBB_ALL_TO_ALL ? block : 0, to, block, what);
}

static ebb_status sum(void *context, const void *from, void *to, size_t count, int dtype,
                      const char *what)
{
    const side *s = context;
    EBB_TRY(be_at_one(s, SUM, count, what));
    const char *why = s->mpi->sum(from, to, count, dtype, s->late_s);
    return why != NULL ? ebb_error(EBB_RUNTIME, "%s: %s", what, why) : NULL;
}

static bool speaks(void *context)
{
    const side *s = context;
    int *said = s->mpi->said();
    return said == NULL || __atomic_exchange_n(said, 1, __ATOMIC_SEQ_CST) == 0;
}

static void leave(void *context)
{
    side *s = context;
    s->mpi->leave();
    ebb_free(s);
}

static const ebb_transport transport_mpi = {
    .exchange = exchange, .sum = sum, .speaks = speaks, .close = leave};

/* ---- joining ---- */

static ebb_status open_object(const ebb_mpi **mpi, const struct launcher *l)
{
    char why[512] = "";
    void *handle = ebb_object_open(l->object, "EBB_MPI_PLUGIN", "away/mpi", why);
    *mpi = handle != NULL ? dlsym(handle, "ebb_mpi_table") : NULL;
    if (handle == NULL)
        return ebb_hint(
            ebb_error(EBB_USAGE, "this process was started by %s, and %s cannot be opened: %s",
                      l->title, l->object, why),
            "install %s and build ebb anew, or start it by `ebb launch -n N --`", l->package);
    if (*mpi == NULL || (*mpi)->version != EBB_MPI_VERSION)
        return ebb_error(EBB_USAGE, "%s is of another version of ebb", l->object);
    return NULL;
}

/* A process that another MPI's launcher has started is alone to this one, and says nothing. */
static ebb_status check(const struct launcher *l, int ranks)
{
    const long said = strtol(getenv(l->variable), NULL, 10);
    if (said != ranks)
        return ebb_hint(ebb_error(EBB_USAGE,
                                  "%s says that it has started %ld processes, and MPI that there "
                                  "are %d: the launcher is of one MPI, and the library of another",
                                  l->title, said, ranks),
                        "start it by the mpirun of the library that EBB_MPI_PLUGIN names, or "
                        "leave that out");
    if (ranks > EBB_GROUP_MOST)
        return ebb_error(EBB_USAGE, "%d processes are more than the %d that can be", ranks,
                         EBB_GROUP_MOST);
    return NULL;
}

static double patience(void)
{
    const char *said = getenv("EBB_LATE");
    const double seconds = said != NULL ? ebb_strtod(said, NULL) : 0;
    return seconds > 0 && seconds <= 1e9 ? seconds : 600;
}

static int number_in(const char *variable)
{
    const char *said = getenv(variable);
    return said != NULL ? (int)strtol(said, NULL, 10) : -1;
}

int ebb_mpi_place(int *here)
{
    const struct launcher *l = launcher_here();
    *here = l != NULL ? number_in(l->here) : -1;
    return l != NULL ? number_in(l->place) : -1;
}

ebb_status ebb_mpi_join(ebb_group *group)
{
    int rank, ranks;
    const struct launcher *l = launcher_here();
    const ebb_mpi *mpi;
    EBB_TRY(open_object(&mpi, l));
    side *s = ebb_alloc(sizeof *s);
    EBB_GOT(s);
    const char *why = mpi->join(&rank, &ranks);
    ebb_status status =
        why != NULL ? ebb_error(EBB_USAGE, "%s: %s", l->title, why) : check(l, ranks);
    if (status != NULL) {
        mpi->leave();
        ebb_free(s);
        return status;
    }
    *s = (side){.mpi = mpi, .rank = rank, .ranks = ranks, .late_s = patience()};
    *group = (ebb_group){.transport = &transport_mpi,
                         .context = s,
                         .rank = rank,
                         .ranks = ranks,
                         .late_s = s->late_s};
    return NULL;
}
