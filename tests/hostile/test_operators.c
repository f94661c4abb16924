/* test_operators.c: every row of the table, with operands and attributes drawn by chance, through
 * types, gradient, plan and kernels (exercise.h). A draw ends with a status, never with a signal.
 *
 * Each operator's draws are made by a process of its own; where that dies, the next begins behind
 * the draw that killed it. A draw is named by the operator and its number, which is its seed:
 *     test_hostile_operators CONV 17
 */
#include <stdbool.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onnx/file/file.h"
#include "tests/hostile/exercise.h"
#include "tests/owned.h"

enum { DRAWS = 60, SECONDS = 10, SHOWN = 1000 };

typedef struct tally { /* shared with the children */
    volatile uint32_t at;
    uint32_t reached[4]; /* by what exercise returns */
    char said[400];
} tally;

static tally *shared;
static bool shown; /* one draw by hand: its graph is printed */

/* By the operator's name, so that a new row changes no other's draws. */
static draws draws_of(ebb_op op, uint32_t number)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (const char *at = ebb_op_row_of(op)->id; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001B3);
    return (draws){.state = hash + number * UINT64_C(0xD1B54A32D192ED03)};
}

/* false: a pass made an illegal graph. That a gradient's type does not fit its value is not that:
 * the walk backwards says so by name and stops. */
static bool one_draw(ebb_op op, uint32_t number)
{
    draws d = draws_of(op, number);
    OWNED_MODEL *model = NULL;
    ebb_status status = draw_graph(&d, op, 1, &model);
    if (status != NULL)
        return true; // a name that is taken, say
    char *text = NULL;
    if (shown && ebb_text_print(&text, model->graph) == NULL)
        (void)fputs(text, stdout);
    ebb_free(text);
    int reached = exercise(model, &d, &status);
    shared->reached[reached]++;
    bool legal = ebb_status_code(status) != EBB_VERIFY ||
                 strstr(ebb_status_text(status), "and its gradient") != NULL;
    if (!legal)
        (void)snprintf(shared->said, sizeof shared->said, "%s", ebb_status_text(status));
    return legal;
}

/* One line about the draw that a child died of. */
static void describe(ebb_op op, uint32_t number, int how)
{
    print_error("%s %u: %s %d %s\n", ebb_op_row_of(op)->id, (unsigned)number,
                WIFSIGNALED(how) ? "signal" : "exit",
                WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how), shared->said);
}

/* All draws of one operator from `first` on; which it died of, or DRAWS. */
static uint32_t run_child(ebb_op op, uint32_t first, int *how)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    shared->said[0] = '\0';
    shared->at = first;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
            (void)signal(signals[i], SIG_DFL); // cmocka would go on where a draw has died
        for (uint32_t k = first; k < DRAWS; k++) {
            shared->at = k;
            (void)alarm(SECONDS);
            if (!one_draw(op, k))
                _exit(1);
        }
        _exit(0);
    }
    (void)waitpid(child, how, 0);
    return *how == 0 ? DRAWS : shared->at;
}

TEST(no_draw_of_any_operator_crashes_hangs_or_breaks_the_graph)
{
    unsigned failures = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (int op = 1; op < EBB_OP_COUNT; op++)
        for (uint32_t next = 0; next < DRAWS && failures < SHOWN;) {
            int how;
            uint32_t died = run_child((ebb_op)op, next, &how);
            if (died < DRAWS) {
                describe((ebb_op)op, died, how);
                failures++;
            }
            next = died < DRAWS ? died + 1 : DRAWS;
        }
    print_message("%d draws: %u not typed, %u typed, %u made a step, %u ran\n",
                  (EBB_OP_COUNT - 1) * DRAWS, shared->reached[0], shared->reached[1],
                  shared->reached[2], shared->reached[3]);
    assert_int_equal(failures, 0);
    assert_true(shared->reached[3] > EBB_OP_COUNT); // else draws do not reach the kernels
}

/* By hand, for one draw that failed. */
static int repeat(const char *id, uint32_t number)
{
    static tally own;
    shared = &own;
    shown = true;
    for (int op = 1; op < EBB_OP_COUNT; op++)
        if (strcmp(ebb_op_row_of((ebb_op)op)->id, id) == 0)
            return one_draw((ebb_op)op, number) ? 0 : printf("%s\n", own.said) > 0;
    return 2;
}

int main(int argc, char **argv)
{
    (void)setenv("OMP_NUM_THREADS", "1", 1);
    if (argc == 3)
        return repeat(argv[1], (uint32_t)strtoul(argv[2], NULL, 10));
    return run_listed();
}
