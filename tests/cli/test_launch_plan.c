/* test_launch_plan.c: what is planned of a step for several processes is what each of them takes and sends.
 */
#include "tests/cli/together.h"
#include "tests/formatted.h"
#include "tests/share.h"

/* Twice (N - 1) blocks of each gradient and of the loss, a block being its Nth part, rounded up. */
TEST(the_plan_has_its_scratch_and_the_run_its_traffic)
{
    says("grad " DIGITS "mlp.onnx --loss cross-entropy --dropout off --dim batch=8 --pass "
         "data-parallel:ranks=2 -o two.onnx",
         0, "wrote two.onnx");
    says("plan two.onnx --json", 0, "\"COMM\"");
    says("inspect two.onnx --text", 0, "AllReduce <ranks = 2>");
    static const char train[] = "launch -n 2 -- " EBB " train " DIGITS
                                "mlp.onnx --dropout off " CLASSES "--batch 32 --json --steps ";
    long long sent[2], made[2];
    for (int k = 0; k < 2; k++) {
        says(formatted("%s%d", train, k + 1), 0, "\"sent_bytes\":");
        sent[k] = number_after("\"sent_bytes\":");
        made[k] = number_after("\"exchanges\":");
        assert_int_equal(number_after("\"arena_bytes\":"),
                         number_after("\"measured_arena_bytes\":"));
    }
    /* What the second step adds: all weights, whose sizes are even; the loss and the count of labels, a
     * number each; and the end of the step, which is asked of all by 8 bytes. */
    says("inspect " DIGITS "mlp.onnx --json", 0, "\"schema\"");
    assert_int_equal(sent[1] - sent[0], number_after("\"initializer_bytes\":") + 2 * 8 + 8);
    assert_int_equal(made[1] - made[0], 2 * (10 + 2) + 1);
}

/* What one more step sends is what the plan says, and 8 bytes to each other by which all ask who goes on. */
static void sends_what_is_planned(const char *words)
{
    char command[2048];
    long long planned[2], sent[2], made[2];
    (void)snprintf(command, sizeof command,
                   "plan " DIGITS "mlp.onnx --loss cross-entropy --dropout off --dim batch=32 "
                   "--ranks 4 --json %s",
                   words);
    says(command, 0, "\"group\"");
    planned[0] = number_after("\"exchanges\":");
    planned[1] = number_after("\"sent_bytes\":");
    for (int k = 0; k < 2; k++) {
        (void)snprintf(command, sizeof command,
                       "launch -n 4 -- " EBB " train " DIGITS "mlp.onnx --dropout off " CLASSES
                       "--batch 32 --json --steps %d %s",
                       k + 1, words);
        says(command, 0, "\"sent_bytes\":");
        made[k] = number_after("\"exchanges\":");
        sent[k] = number_after("\"sent_bytes\":");
    }
    assert_int_equal(made[1] - made[0], planned[0] + 1);
    assert_int_equal(sent[1] - sent[0], planned[1] + 8 * 3);
}

TEST(a_run_sends_what_its_plan_says)
{
    sends_what_is_planned("");
    sends_what_is_planned("--pass shard:least=7");
    sends_what_is_planned("--pass shard --pass bucket --pass overlap");
    sends_what_is_planned("--pass shard:parameters --pass bucket --pass overlap");
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Of the mlp's tensors, in its order; a step reads the weights of norms forward and backward, biases forward. */
static const struct tensor {
    int64_t elements;
    bool is_read_again;
} tensors[] = {{8192, false}, {128, false}, {128, true},  {128, false}, {16384, true},
               {128, false},  {128, true},  {128, false}, {1280, true}, {10, false}};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static void plan_mlp(int ranks, const char *pass)
{
    char command[1024], more[64] = "";
    if (ranks > 1)
        (void)snprintf(more, sizeof more, "--ranks %d", ranks);
    (void)snprintf(command, sizeof command,
                   "plan " DIGITS "mlp.onnx --loss cross-entropy --dropout off --dim batch=32 "
                   "--optimizer adamw --json %s %s",
                   more, pass);
    says(command, 0, "\"OPTIMIZER_STATE\"");
}

/* What AdamW keeps: two numbers an element, whole or a part of each tensor, and two of the whole step. The weights
 * are a third; beside them stands what else a step keeps, the same with parts and without. */
TEST(states_take_what_their_parts_do)
{
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        int64_t whole = 0, part = 0;
        for (size_t i = 0; i < TENSORS; i++) {
            whole += aligned(4 * tensors[i].elements);
            part += aligned(4 * ((tensors[i].elements + ranks - 1) / ranks));
        }
        plan_mlp(ranks, "");
        assert_int_equal(number_after("\"OPTIMIZER_STATE\":"), 2 * whole + 2 * aligned(4));
        const int64_t beside = number_after("\"PARAMETER\":") - whole;
        if (ranks == 1)
            continue;
        plan_mlp(ranks, "--pass shard:least=1");
        assert_int_equal(number_after("\"OPTIMIZER_STATE\":"), 2 * part + 2 * aligned(4));
        assert_int_equal(number_after("\"PARAMETER\":"), beside + whole);
        plan_mlp(ranks, "--pass shard:parameters,least=1");
        assert_int_equal(number_after("\"OPTIMIZER_STATE\":"), 2 * part + 2 * aligned(4));
        assert_int_equal(number_after("\"PARAMETER\":"), beside + part);
    }
}

/* A part of each gradient, and of each weight as often as it is put together, to each of the others. */
TEST(weights_in_parts_send_what_their_parts_are)
{
    static const char *const passes[] = {"--pass shard:parameters,least=1,again=fit",
                                         "--pass shard:parameters,least=1"};
    for (int again = 0; again < 2; again++)
        for (int ranks = 2; ranks <= 16; ranks *= 8) {
            int64_t sent = 2 * 2 * 4 * (ranks - 1); // the loss, and how many labels count
            for (size_t i = 0; i < TENSORS; i++)
                if (tensors[i].elements >= ranks) // else it stays whole
                    sent += 4 * (ranks - 1) * ((tensors[i].elements + ranks - 1) / ranks) *
                            (again != 0 && tensors[i].is_read_again ? 3 : 2);
                else
                    sent += 2 * 4 * (ranks - 1);
            plan_mlp(ranks, passes[again]);
            assert_int_equal(number_after("\"sent_bytes\":"), sent);
        }
}

/* Of the table that is printed the row of so many processes, and what is behind it. */
static void take_row(int ranks)
{
    const char *row = strstr(output, "\"table\"");
    for (int n = 0; row != NULL && n != ranks;
         memmove(output, row, strlen(row) + 1), row = output) {
        row = strstr(row + 1, "\"ranks\":");
        if (row == NULL || sscanf(row, "\"ranks\": %d", &n) != 1)
            fail_msg("no row of %d processes in:\n%s", ranks, output);
    }
}

/* Each exchange is waited for, or, where it was begun, what of it the computation does not cover: nothing of a link that
 * takes no time, a part of one that does, and nearly all where the link takes far longer than the step. */
TEST(what_goes_beside_the_step_is_hidden)
{
    static const char *const passes[] = {"", "--pass overlap", "--pass shard:parameters",
                                         "--pass shard:parameters --pass overlap"};
    for (int i = 0; i < 4; i++)
        for (int slow = 0; slow < 2; slow++) {
            plan_mlp(4, formatted("%s --link %s", passes[i], slow != 0 ? "1000000,0.001" : "1,10"));
            take_row(4);
            const double link = (double)number_after("\"exchange_ns\":"),
                         exposed = (double)number_after("\"exposed_ns\":");
            assert_true(link > 0 && exposed <= link + 1);
            if (i % 2 == 0)
                assert_true(exposed >= link - 1);
            else
                assert_true(slow != 0 ? exposed > 0.99 * link : exposed < 0.9 * link);
        }
}

/* By a link that is slower than the step, no step takes less than what is planned to be sent takes; one by the memory
 * that they share does. */
TEST(a_step_takes_as_long_as_its_link)
{
    static const char link[] = "--link 400,0.02";
    plan_mlp(2, link);
    take_row(2);
    const long long planned = number_after("\"exchange_ns\":");
    for (int by = 0; by < 2; by++) {
        says(formatted("launch -n 2 %s -- " EBB " train " DIGITS "mlp.onnx --dropout off " CLASSES
                       "--optimizer adamw --batch 32 --json --steps 5",
                       by == 1 ? link : ""),
             0, "\"median_step_ns\":");
        assert_true(by == 0 || number_after("\"median_step_ns\":") >= planned);
    }
    says("launch -n 2 --link fast -- true", 2, "it is none of 1gbe");
}

/* What a message of a link of known delay and rate takes, by a measurement; whether the largest piece takes what it must. */
static bool measure_link(double *us)
{
    const double block = (1 << 20) / 2.0;
    double gb;
    says("launch -n 2 --link 500,0.05 -- " EBB " bench --calibrate-comm -o link.json --json", 0,
         "\"link\"");
    const char *at = strstr(output, "\"us\":");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"us\": %lf, \"gb\": %lf", us, &gb), 2);
    return *us * 1e3 + block / gb >= 0.9 * (500e3 + block / 0.05);
}

/* No exchange takes less, and where the machine has other work, some take more: two numbers fitted to all of them can then lie
 * below one of them, now and then. The file has them for plans, beside what else is measured into it before or after. */
TEST(a_link_is_measured)
{
    double us;
    says("bench --calibrate-comm -o link.json", 2, "one process has no link to measure");
    says("launch -n 2 -- " EBB " bench --calibrate -o link.json", 2,
         "operators are measured by one process, and this is one of several");
    for (int tries = 0; !measure_link(&us); tries++)
        assert_true(tries < 4);
    says("bench " DIGITS "mlp.onnx --loss cross-entropy --dim batch=8 --calibrate --steps 1 "
         "--threads 1 -o link.json --json",
         0, "\"rates\"");
    plan_mlp(2, "--costs link.json");
    assert_non_null(
        strstr(output, "\"crowd\":")); // how two slow each other; of four it does not know
    plan_mlp(4, "--costs link.json");
    assert_non_null(strstr(output, "\"crowd\": 1.0"));
    take_row(4);
    assert_true((double)number_after("\"exposed_ns\":") >=
                0.9 * 3 * us * 1e3 * (double)number_after("\"exchanges\":"));
    says("launch -n 2 -- " EBB " bench --calibrate-comm -o nowhere/link.json", 8, "nowhere");
}

/* To put a weight together again costs the link's time: by a slow one `fit` does it less. */
TEST(a_budget_asks_what_the_link_costs)
{
    static const char *const links[] = {"0,1000", "1000,0.01"};
    long long sent[2];
    for (int i = 0; i < 2; i++) {
        says(formatted("plan " DIGITS "transformer.onnx --loss cross-entropy --dropout off --dim "
                       "batch=32 --pass 'data-parallel:ranks=4,link=\"%s\"' --pass "
                       "shard:parameters,again=fit --budget 80%% --json",
                       links[i]),
             0, "\"group\"");
        sent[i] = number_after("\"sent_bytes\":");
    }
    assert_true(sent[1] < sent[0]);
}

/* The table has those that do not keep to a budget, too, and says so. */
TEST(a_budget_is_met_by_more_processes)
{
    plan_mlp(4, "--pass shard:parameters --budget 301000"); // one has 318 kB of weights and states
    assert_non_null(strstr(output, "\"fits\": false"));
    take_row(4);
    assert_non_null(strstr(output, "\"fits\": true"));
}

/* Which link it is stands above the table. */
TEST(a_table_names_its_link)
{
    says("plan " DIGITS "mlp.onnx --loss cross-entropy --dim batch=8 --ranks 2 --link ndr400", 0,
         "by a link of 5 us a message and 47 GB/s\n");
    assert_null(strstr(output, "do not know"));
}

/* A budget is each process's, and the bits are those that are due. */
TEST(a_budget_is_kept_by_each_process)
{
    static const char train[] =
        "launch -n 2 -- " EBB " train " DIGITS "cnn.onnx --batch-norm frozen " CLASSES
        "--batch 32 --steps 2 --json --checkpoint ";
    char command[2048];
    (void)snprintf(command, sizeof command, "%s free.st", train);
    says(command, 0, "\"arena_bytes\":");
    const long long free_bytes = number_after("\"arena_bytes\":");
    for (unsigned percent = 70; percent <= 90; percent += 10 * share(3)) {
        const long long budget = free_bytes * (long long)percent / 100;
        (void)snprintf(command, sizeof command, "%s kept.st --budget %lld", train, budget);
        says(command, 0, "\"arena_bytes\":");
        assert_true(number_after("\"arena_bytes\":") <= budget);
        assert_int_equal(number_after("\"arena_bytes\":"),
                         number_after("\"measured_arena_bytes\":"));
        same_bytes("free.st", "kept.st", command);
    }
}

const fixture around_all = {make_folder, remove_folder};
