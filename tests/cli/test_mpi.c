/* test_mpi.c: processes that an MPI has started have the bits of those that `ebb launch` starts; what is said where
 * the launcher and the library are of two MPIs, and what is left when one of them dies. Each MPI that is here.
 */
#include "cli.h"
#include "tests/formatted.h"

#include <signal.h>

#define MLP                                               \
    "train " DIGITS "mlp.onnx --data " DIGITS             \
    "digits.npz --map label=target --loss cross-entropy " \
    "--seed 4 --threads 1 --batch 32 "

typedef struct mpi {
    const char *name, *run; /* as root, and more processes than processors, if it must be */
} mpi;

static const mpi mpis[] = {
    {"openmpi", "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi "
                "--oversubscribe"},
    {"mpich", "mpirun.mpich"},
};
enum { MPIS = sizeof mpis / sizeof *mpis };

#define OBJECT EBB_BINARY_DIR "/kernels/away/mpi/libebb_mpi_%s.so"

static bool is_here(const mpi *m)
{
    return access(formatted(OBJECT, m->name), R_OK) == 0;
}

static void expect(const char *command, int code, const char *words)
{
    const int got = run_command(command);
    if ((code < 0 ? got == 0 : got != code) || strstr(output, words) == NULL)
        fail_msg("%s\nexit %d, expected %d; said:\n%s\nexpected to read: %s\n", command, got, code,
                 output, words);
}

static void trained_by(const mpi *m, int ranks, const char *words)
{
    expect(formatted("%s -n %d " EBB " " MLP "--steps 4 --checkpoint mpi.st %s 2>&1", m->run, ranks,
                     words),
           0, "planned and measured equal");
    const char *first = strstr(output, "4 steps, loss");
    if (first == NULL || strstr(first + 1, "4 steps, loss") != NULL)
        fail_msg("said not once, but:\n%s", output);
    expect("cmp launch.st mpi.st 2>&1", 0, "");
}

/* MPI's own sum of two is theirs, whatever its order. MPICH's processes without a processor of their own wait for long: not more than two of them. */
TEST(all_mpis_have_the_bits_of_launch)
{
    bool any = false;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        says(formatted("launch -n %d -- " EBB " " MLP "--steps 4 --checkpoint launch.st", ranks), 0,
             "planned and measured equal");
        for (int i = 0; i < (ranks == 2 ? MPIS : 1); i++) {
            if (!is_here(&mpis[i]))
                continue;
            any = true;
            trained_by(&mpis[i], ranks, "--pass shard:parameters --pass bucket --pass overlap");
            if (ranks == 2)
                trained_by(&mpis[i], ranks, "--pass data-parallel:ranks=2,order=library");
        }
    }
    if (!any)
        skip();
}

/* Unless they are told how many threads each has, or each is bound to processors of its own. */
TEST(processes_share_the_processors)
{
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    char words[64];
    (void)snprintf(words, sizeof words, "\"threads\": %ld,", all > 2 ? all / 2 : 1);
    for (int i = 0; i < MPIS; i++) {
        if (!is_here(&mpis[i]))
            continue;
        expect(formatted("env -u OMP_NUM_THREADS %s %s -n 2 " EBB
                         " bench --calibrate-comm -o c.json --json 2>&1",
                         mpis[i].run, i == 0 ? "--bind-to none" : ""),
               0, words);
    }
}

TEST(a_launcher_that_does_not_count_is_no_error)
{
    for (int i = 0; i < MPIS; i++) {
        if (!is_here(&mpis[i]))
            continue;
        expect(formatted("%s -n 2 env OMPI_COMM_WORLD_LOCAL_SIZE=none MPI_LOCALNRANKS=none " EBB
                         " " MLP "--steps 1 2>&1",
                         mpis[i].run),
               0, "1 steps, loss");
    }
}

TEST(another_mpis_library_is_refused)
{
    char command[4096];
    if (!is_here(&mpis[0]) || !is_here(&mpis[1]))
        skip();
    for (int i = 0; i < MPIS; i++) {
        (void)snprintf(command, sizeof command,
                       "EBB_MPI_PLUGIN=" OBJECT " %s -n 2 " EBB " " MLP "--steps 4 2>&1",
                       mpis[1 - i].name, mpis[i].run);
        expect(command, -1, "the launcher is of one MPI, and the library of another");
    }
    (void)snprintf(command, sizeof command,
                   "OMPI_COMM_WORLD_SIZE=2 EBB_MPI_PLUGIN=/no/such.so " EBB " " MLP
                   "--steps 4 2>&1");
    expect(command, 2, "was started by Open MPI");
}

TEST(processes_that_differ_are_told)
{
    for (int i = 0; i < MPIS; i++) {
        if (!is_here(&mpis[i]))
            continue;
        expect(formatted("%s -n 1 " EBB " " MLP "--steps 4 : -n 1 " EBB " " MLP "--steps 5 2>&1",
                         mpis[i].run),
               2, "(checksum of its rows and options) differs");
    }
}

/* Runs two processes, of which the second gets this signal when there is a checkpoint. Returns what
 * the launcher ends with. */
static int struck(const mpi *m, const char *signal, const char *before)
{
    return run_command(
        formatted("rm -f c.st; %s timeout 60 %s -n 2 sh -c 'if [ "
                  "\"${PMI_RANK:-$OMPI_COMM_WORLD_RANK}\" = 1 ]; then "
                  "(while [ ! -s c.st ]; do sleep 0.05; done; kill -%s $$) & fi; exec " EBB " " MLP
                  "--steps 100000 --checkpoint $PWD/c.st --every 3' 2>&1",
                  before, m->run, signal));
}

/* A launcher may end before what it has started does. Others may run this test beside, in folders of
 * their own. */
static void all_are_gone(void)
{
    expect("for i in $(seq 100); do pgrep -f \"ebb train .*$PWD/c.st\" | grep -v $$ | grep -q . || "
           "exit 0; sleep 0.05; done; exit 1",
           0, "");
}

TEST(all_end_when_one_is_killed)
{
    for (int i = 0; i < MPIS; i++) {
        if (!is_here(&mpis[i]))
            continue;
        const int code = struck(&mpis[i], "9", "");
        if (code == 0 || code == 124)
            fail_msg("%s: exit %d, said:\n%s", mpis[i].name, code, output);
        all_are_gone();
        says(MLP "--steps 1 --resume c.st", 0, "steps are done");
    }
}

TEST(one_that_stands_still_is_named)
{
    for (int i = 0; i < MPIS; i++) {
        if (!is_here(&mpis[i]))
            continue;
        const int code = struck(&mpis[i], "STOP", "export EBB_LATE=1;");
        if (code == 0 || strstr(output, "rank 1 did not come within 1 s") == NULL)
            fail_msg("%s: exit %d, said:\n%s", mpis[i].name, code, output);
        all_are_gone();
    }
}

const fixture around_all = {make_folder, remove_folder};
