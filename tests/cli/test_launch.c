/* test_launch.c: `ebb train` in several processes: the bits of one process that computes parts, the row
 * that is whose, what is said where processes differ, and what is left when one of them dies.
 *
 * A process tells its rank by the end of $EBB_GROUP: so a test makes one of them differ.
 */
#include "tests/cli/together.h"
#include "tests/formatted.h"
#include "tests/share.h"

#include <math.h>
#include <signal.h>

#define TEXT                                                                                  \
    EBB_SOURCE_DIR "/samples/text/char.onnx --data " EBB_SOURCE_DIR "/samples/text/text.npz " \
                   "--loss cross-entropy:axis=-1 --seed 4 --threads 1 "
#define RANK "${EBB_GROUP##*:}"

#define EVALUATION \
    "--data " DIGITS "digits.npz --map label=target --loss cross-entropy --metric f1 --threads 1"

/* ---- bits ---- */

/* Five steps of AdamW: all states, by one that computes N parts, and by N processes, which pass more words. */
static void train_parts(const char *words, int ranks)
{
    says(formatted("train %s --batch 32 --steps 5 --pass micro-batch:parts=%d,require=1 "
                   "--checkpoint one.st",
                   words, ranks),
         0, "planned and measured equal");
}

static void same_so(const char *words, int ranks, const char *more)
{
    char command[2048];
    (void)snprintf(command, sizeof command,
                   "launch -n %d -- " EBB " train %s --batch 32 --steps 5 --checkpoint all.st%s",
                   ranks, words, more);
    says(command, 0, "planned and measured equal");
    same_bytes("one.st", "all.st", command);
}

static void same_with(const char *words, int ranks, const char *more)
{
    train_parts(words, ranks);
    same_so(words, ranks, more);
}

static void same_as_parts(const char *words, int ranks)
{
    same_with(words, ranks, "");
}

TEST(processes_have_the_bits_of_parts)
{
    same_as_parts(DIGITS "mlp.onnx --dropout off --eval-split 0.1 --eval-every 2 " CLASSES, 2);
    same_as_parts(DIGITS "mlp.onnx " CLASSES, 4);
    same_as_parts(DIGITS "cnn.onnx --dropout off --batch-norm frozen " CLASSES, 2);
    same_as_parts(DIGITS "transformer.onnx --clip-norm 1 " CLASSES, 4);
    same_as_parts(TEXT, 2);
}

/* Any bucket, any depth, of sums and of parts; by default one of each. */
TEST(exchanges_together_and_beside_the_step_have_the_same_bits)
{
    static const char *const passes[] = {
        " --pass bucket:bytes=700 --pass overlap",
        " --pass bucket",
        " --pass overlap:depth=1 --pass release",
        " --pass shard --pass release --pass bucket:bytes=1048576 --pass overlap",
        " --pass shard:least=1 --pass overlap:depth=100",
        " --pass release --pass bucket --pass overlap",
    };
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i += share(3)) {
        const int ranks = i < 3 ? 2 : 4;
        if (i % 3 == 0)
            train_parts(DIGITS "transformer.onnx " CLASSES, ranks);
        same_so(DIGITS "transformer.onnx " CLASSES, ranks, passes[i]);
    }
}

/* Rows whose label is ignored stand anywhere: some processes have more of them than others. */
TEST(what_counts_is_counted_over_all)
{
    same_as_parts(DIGITS "mlp.onnx --dropout off --no-shuffle --data " DIGITS
                         "digits.npz --map label=target --loss cross-entropy:ignore_index=3 "
                         "--threads 1",
                  4);
}

/* In turn, and in parts of each process: the sum of a process's parts is what it adds to the others'. So does one that
 * goes on from a checkpoint, and one whose gradients go together beside the step. */
TEST(a_process_computes_its_rows_in_parts)
{
    static const char words[] = "train " DIGITS "mlp.onnx --dropout off --clip-norm 1 --ema 0.9 "
                                "--eval-split 0.2 " CLASSES;
    static const char *const steps[] = {"3", "5 --resume all.st --pass bucket --pass overlap"};
    char command[2048];
    (void)snprintf(
        command, sizeof command,
        "%s --batch 32 --steps 5 --checkpoint one.st --pass data-parallel:ranks=2 --pass "
        "micro-batch:parts=4,require=1 --pass gather",
        words);
    says(command, 0, "5 steps, loss");
    for (int i = 0; i < 2; i++) {
        (void)snprintf(command, sizeof command,
                       "launch -n 2 -- " EBB " %s --batch 8 --accumulate 4 --checkpoint all.st "
                       "--steps %s",
                       words, steps[i]);
        says(command, 0, "steps, loss");
    }
    same_bytes("one.st", "all.st", command);
}

/* Gradients in parts, of any size; states that start as zeros, and one that starts as its weight, which is what is
 * evaluated. */
TEST(parts_of_the_states_have_the_bits_of_the_whole)
{
    same_with(DIGITS "mlp.onnx --dropout off --ema 0.9 --eval-split 0.1 " CLASSES, 2,
              " --pass shard:least=1");
    same_with(DIGITS "mlp.onnx --dropout off --optimizer nesterov " CLASSES, 4,
              " --pass shard:least=1");
    same_with(DIGITS "transformer.onnx --dropout off " CLASSES, 4, " --pass shard");
}

/* Weights in parts, too: in a checkpoint, in the model that is saved and in an evaluation they are whole. */
TEST(parts_of_the_weights_have_the_bits_of_the_whole)
{
    same_with(DIGITS
              "mlp.onnx --dropout off --ema 0.9 --eval-split 0.1 --save-model m.onnx " CLASSES,
              4, " --pass shard:parameters,least=1");
    assert_int_equal(run_command("mv m.onnx all.onnx"), 0);
    train_parts(
        DIGITS "mlp.onnx --dropout off --ema 0.9 --eval-split 0.1 --save-model m.onnx " CLASSES, 4);
    same_bytes("m.onnx", "all.onnx", "the models that are saved");
    train_parts(DIGITS "transformer.onnx " CLASSES, 2);
    same_so(DIGITS "transformer.onnx " CLASSES, 2,
            " --pass shard:parameters --pass bucket --pass overlap");
    same_so(DIGITS "transformer.onnx " CLASSES, 2,
            " --pass shard:parameters,again=fit --pass release");
    same_with(DIGITS "cnn.onnx --dropout off --batch-norm frozen " CLASSES, 2,
              " --pass shard:parameters,least=1");
    same_with(TEXT, 2, " --pass shard:parameters");
}

/* A checkpoint has states and weights whole: any number of processes reads it, and writes the same bytes. */
TEST(a_checkpoint_of_parts_is_read_by_any_number)
{
#define MLP "train " DIGITS "mlp.onnx --dropout off --batch 24 " CLASSES
    static const char *const passes[] = {"shard:parameters,least=1", "shard"};
    static const int others[] = {1, 2, 3, 8};
    char command[2048];
    for (size_t k = 0; k < 2; k++) { // by three processes, and by four
        (void)snprintf(command, sizeof command,
                       "launch -n %zu -- " EBB " " MLP "--pass %s --steps 3 --every 2 --checkpoint "
                       "saved.st",
                       3 + k, passes[k]);
        says(command, 0, "3 steps, loss");
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            (void)snprintf(command, sizeof command,
                           "launch -n %d -- " EBB " " MLP "--pass %s --steps 3 --resume saved.st "
                           "--checkpoint other.st",
                           others[i], passes[(k + i) % 2]);
            says(command, 0, "steps are done");
            same_bytes("saved.st", "other.st", command);
        }
    }
    says(MLP "--pass micro-batch:parts=4 --steps 5 --resume saved.st --checkpoint one.st", 0,
         "5 steps");
    says("launch -n 4 -- " EBB " " MLP "--pass shard --steps 5 --resume saved.st "
         "--checkpoint again.st",
         0, "5 steps");
    same_bytes("again.st", "one.st", "read by one");
    says("launch -n 2 -- " EBB " " MLP "--pass shard --steps 1 --save-checkpoint ort", 5,
         "states are in parts");
}

/* ---- what is counted over all ---- */

static double real_after(const char *key)
{
    const char *at = strstr(output, key);
    double x = 0;
    if (at == NULL || sscanf(at + strlen(key), "%lf", &x) != 1)
        fail_msg("no number %s in:\n%s", key, output);
    return x;
}

static void near(double a, double b, double part, const char *what)
{
    if (!(fabs(a - b) <= part * fabs(b)))
        fail_msg("%s: %.9g in one process, %.9g in several", what, b, a);
}

/* One step as three files: for processes, gathered from that, and in parts. The norm of gradients in parts (clipped) is
 * made of other sums: there the losses are near, elsewhere all states have the same bytes. */
static void same_gathered(const char *model, int ranks, const char *passes, bool exactly)
{
    static const char *const made[] = {"all", "parts", "one"};
    char command[2048];
    double loss[3];
    for (int k = 0; k < 2; k++) {
        (void)snprintf(command, sizeof command,
                       "grad " DIGITS "%s --loss cross-entropy --optimizer adamw --dim batch=24 "
                       "--seed 4 --pass %s=%d %s -o %s.onnx",
                       model, k == 0 ? "data-parallel:ranks" : "micro-batch:parts", ranks,
                       k == 0 ? passes : "", made[k]);
        says(command, 0, "wrote");
    }
    says("rewrite all.onnx --strict --pass gather -o one.onnx", 0, "wrote one.onnx");
    for (int k = 0; k < 3; k++) {
        char launch[64] = "";
        if (k == 0)
            (void)snprintf(launch, sizeof launch, "launch -n %d -- " EBB, ranks);
        (void)snprintf(command, sizeof command,
                       "%s train %s.onnx --data " DIGITS "digits.npz --map label=target --batch 24 "
                       "--steps 3 --threads 1 --json --checkpoint %s.st",
                       launch, made[k], made[k]);
        says(command, 0, "\"steps\":3,\"loss\":");
        loss[k] = real_after("\"steps\":3,\"loss\":");
        near(loss[k], loss[0], exactly ? 0 : 1e-6, passes);
        if (exactly && k > 0)
            same_bytes("all.st", k == 1 ? "parts.st" : "one.st", passes);
    }
}

TEST(a_step_of_several_is_one_of_a_single_process_again)
{
    const unsigned apart = share(2);
    same_gathered("mlp.onnx", 3, "--pass shard:parameters,least=1 --pass bucket", true);
    same_gathered("mlp.onnx --clip-norm 1", 2, "--pass shard --pass bucket", false);
    if (apart > 1)
        return;
    same_gathered("mlp.onnx --dropout off", 4, "--pass shard:parameters --pass overlap", true);
    same_gathered("transformer.onnx --clip-norm 1", 2, "--pass bucket --pass release", true);
    same_gathered("cnn.onnx --dropout off --batch-norm frozen", 2, "--pass overlap", true);
}

/* Of the last step and of an evaluation, which reads the running statistics. */
static void losses_are_near(const char *words, const char *one, const char *more, double part)
{
    double loss[2], eval[2];
    for (int k = 0; k < 2; k++) {
        says(formatted("%s train %s %s --batch 32 --steps 6 --eval-split 0.2 --optimizer "
                       "momentum --json",
                       k == 0 ? "" : "launch -n 4 -- " EBB, words, k == 0 ? one : more),
             0, "\"evaluations\":");
        loss[k] = real_after("\"steps\":6,\"loss\":");
        memmove(output, strstr(output, "\"eval\":"), strlen(strstr(output, "\"eval\":")) + 1);
        eval[k] = real_after("\"loss\":");
    }
    near(loss[1], loss[0], part, words);
    near(eval[1], eval[0], part, words);
}

TEST(batch_norm_takes_the_statistics_of_all_rows)
{
    losses_are_near(DIGITS "cnn.onnx --dropout off " CLASSES, "--batch-norm train",
                    "--batch-norm sync", 1e-4);
}

TEST(weights_of_classes_are_counted_over_all)
{
    losses_are_near(DIGITS
                    "mlp.onnx --dropout off --no-shuffle --data " DIGITS
                    "digits.npz --map label=target --threads 1 --loss "
                    "'cross-entropy:class-weights=\"9,1,0.1,4,1,0.5,1,1,7,1\",ignore_index=3'",
                    "", "", 1e-5);
}

/* One of two has no row that counts, the other all: a mean of both processes' means would be half the loss and half of each
 * gradient. */
TEST(a_process_may_have_no_row_that_counts)
{
    static const char words[] =
        DIGITS "mlp.onnx --dropout off --no-shuffle --data half.csv --columns image=p* --map "
               "label=target --loss cross-entropy:ignore_index=3 --seed 4 --threads 1";
    double loss[2];
    FILE *f = fopen(path_of("half.csv"), "w");
    assert_non_null(f);
    for (int i = 0; i < 64; i++)
        (void)fprintf(f, "p%d,", i);
    (void)fprintf(f, "label\n");
    for (int row = 0; row < 32; row++) {
        for (int i = 0; i < 64; i++)
            (void)fprintf(f, "0.%d,", (row * 37 + i * i * 11) % 97);
        (void)fprintf(f, "%d\n", row < 16 ? 3 : 4 + row % 6);
    }
    assert_int_equal(fclose(f), 0);
    same_as_parts(words, 2);
    for (int k = 0; k < 2; k++) {
        says(formatted("%s train %s --batch 32 --steps 5 --json",
                       k == 0 ? "" : "launch -n 2 -- " EBB, words),
             0, "\"steps\":5,\"loss\":");
        loss[k] = real_after("\"steps\":5,\"loss\":");
    }
    near(loss[1], loss[0], 1e-5, words);
}

/* Of an evaluation: each row once, in whichever process, and the same decisions in all. */
TEST(evaluation_counts_each_row_once)
{
    static const char words[] = "train " DIGITS "mlp.onnx --dropout off " CLASSES
                                "--batch 32 --steps 6 --eval-split 0.2 --eval-every 2 --json "
                                "--metric accuracy --metric f1-macro";
    char command[2048], one[4096];
    for (int ranks = 4; ranks <= 8; ranks *= 2) {
        (void)snprintf(command, sizeof command, "%s --pass micro-batch:parts=%d,require=1", words,
                       ranks);
        says(command, 0, "\"counted\":287");
        const char *at = strstr(output, "\"evaluations\":");
        (void)snprintf(one, sizeof one, "%.*s", (int)(strstr(at, "]") - at), at);
        (void)snprintf(command, sizeof command, "launch -n %d -- " EBB " %s", ranks, words);
        says(command, 0, one);
    }
}

static int times_in_output(const char *words)
{
    int count = 0;
    for (const char *at = output; (at = strstr(at, words)) != NULL; at++)
        count++;
    return count;
}

/* Ten batches and a smaller one: each once, whoever takes it; one process alone says the numbers. */
TEST(several_evaluate_as_one)
{
    says("eval " DIGITS "mlp.onnx --batch 143 " EVALUATION, 0, "loss");
    says("launch -n 3 -- " EBB " eval " DIGITS "mlp.onnx --batch 143 " EVALUATION, 0,
         formatted("%.500s", output));
    assert_int_equal(times_in_output("loss"), 1);
    says("launch -n 2 -- sh -c 'exec " EBB " eval " DIGITS "mlp.onnx --batch 1" RANK " " EVALUATION
         "'",
         2, "the evaluation (checksum of its rows and batch) differs between processes");
    assert_int_equal(times_in_output("ebb: "), 1);
}

/* ---- who says what ---- */

TEST(a_step_for_others_is_not_run_alone)
{
    says("grad " DIGITS "mlp.onnx --loss cross-entropy --dropout off --dim batch=8 --pass "
         "data-parallel:ranks=2 -o two.onnx",
         0, "wrote two.onnx");
    says("train two.onnx --batch 4 --steps 1 --data " DIGITS "digits.npz --map label=target", 2,
         "the step is for 2 processes, and 1 is here");
    says("train two.onnx --batch 4 --steps 1 --data " DIGITS "digits.npz --map label=target", 2,
         "ebb launch -n 2 --");
    says("launch -n 3 -- " EBB " train two.onnx --batch 12 --steps 1 --data " DIGITS
         "digits.npz --map label=target",
         2, "the step is for 2 processes, and 3 are here");
    says("launch -n 2 -- " EBB " train " DIGITS "mlp.onnx --dropout off --steps 1 --pass "
         "data-parallel:4 " CLASSES,
         2, "data-parallel: ranks=4 is asked for, and the step is for 2 processes already");
    says("launch -n 2 -- " EBB " train " DIGITS "mlp.onnx --dropout off --steps 1 --pass "
         "data-parallel:ranks=2 " CLASSES,
         0, "1 steps, loss");
    says("launch -n 2 -- " EBB " train two.onnx --batch 8 --steps 2 --data " DIGITS
         "digits.npz --map label=target",
         0, "2 steps, loss");
    says("train two.onnx --steps 1 --data " DIGITS "digits.npz --map label=target", 2,
         "the step is for 2 processes of 4 rows each, and input 'image' is given 32");
    says("train two.onnx --steps 1 --data " DIGITS "digits.npz --map label=target", 2,
         "ebb launch -n 2 -- ebb train ... --batch 8");
}

TEST(what_cannot_be_split_is_refused)
{
    says("launch -n 2 -- " EBB " train " DIGITS "cnn.onnx --dropout off --steps 1 " CLASSES, 5,
         "batch norm takes its statistics over the whole batch; --batch-norm sync");
    says("launch -n 3 -- " EBB " train " DIGITS
         "mlp.onnx --dropout off --batch 32 --steps 1 " CLASSES,
         5, "the batch is not divisible by the number of parts\n  hint: it has 32 rows: 33 can be");
}

TEST(one_process_speaks_for_all)
{
    says("launch -n 4 -- " EBB " train " DIGITS "mlp.onnx --dropout off --steps 2 " CLASSES, 0,
         "2 steps, loss");
    assert_int_equal(times_in_output("2 steps, loss"), 1);
    says("launch -n 4 -- " EBB " train " DIGITS "nowhere.onnx --steps 2 " CLASSES, 8,
         "nowhere.onnx");
    assert_int_equal(times_in_output("ebb: "), 1);
    says("launch -n 2 -- env PMI_SIZE=2 " EBB " train " DIGITS "mlp.onnx --data x", 2,
         "both `ebb launch` and an MPI have started this process");
    says("launch -n 2 -- no-such-command", 2, "no-such-command: it cannot be started");
    says("launch -n 65 -- true", 2, "-n");
    says("launch -n 2", 2, "say what to start");
    says("launch -n 2 " EBB " train --data x", 2, "put -- before");
    assert_int_equal(run_command("ulimit -f 1; " EBB " launch -n 2 -- true 2>&1"), 8);
    assert_non_null(strstr(output, "the group's memory: making it: File too large"));
    says("launch -n 2 -- true", 0, "");
    says("launch -n 2 -- false", 1, "");
    says("launch -n 2 -- " EBB " launch -n 2 -- true", 2, "is one of several already");
    assert_int_equal(run_command("PMI_SIZE=2 " EBB " launch -n 2 -- true 2>&1"), 2);
    says("launch -n 2 -- sh -c 'PMI_SIZE=1 exec env -u EBB_GROUP " EBB " launch -n 2 -- true'", 0,
         "");
}

/* While rank 0 says much, too. */
TEST(a_line_is_said_at_once)
{
    assert_int_equal(
        run_command("for again in 1 2; do " EBB " launch -n 2 -- sh -c 'i=0; if [ " RANK
                    " = 1 ]; then exec " EBB " train nowhere.onnx --data x; fi; while [ $i -lt "
                    "100000 ]; do echo . >&2; i=$((i+1)); done' 2>&1; done | grep -c '^rank 1: "
                    "ebb: nowhere.onnx: opening: No such file or directory$'"),
        0);
    assert_int_equal(atoi(output), 2);
    assert_int_equal(run_command("for again in 1 2; do " EBB " launch -n 8 -- " EBB
                                 " train --wrong 2>&1; done | grep -c \"^ebb: unknown option "
                                 "'--wrong': see .ebb help train.$\""),
                     0);
    assert_int_equal(atoi(output), 16);
}

/* As many rows of as many numbers; one label is not the same. */
static void write_rows(const char *name, char label)
{
    enum { ROWS = 32, IMAGE = 64 * 4 };
    static const char zeros[ROWS * IMAGE];
    char head[256], labels[ROWS] = {0};
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    (void)snprintf(head, sizeof head,
                   "{\"image\":{\"dtype\":\"F32\",\"shape\":[%d,1,8,8],\"data_offsets\":[0,%d]},"
                   "\"target\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]}}",
                   ROWS, ROWS * IMAGE, ROWS, ROWS * IMAGE, ROWS * IMAGE + ROWS);
    const uint64_t length = strlen(head);
    labels[ROWS - 1] = label;
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_int_equal(fwrite(head, length, 1, file), 1);
    assert_int_equal(fwrite(zeros, sizeof zeros, 1, file), 1);
    assert_int_equal(fwrite(labels, sizeof labels, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

TEST(processes_whose_data_differ_are_told)
{
    write_rows("rows0.safetensors", 3);
    write_rows("rows1.safetensors", 4);
    const int code = run_command(EBB " launch -n 2 -- sh -c 'exec " EBB " train " DIGITS
                                     "mlp.onnx --batch 4 --data rows" RANK
                                     ".safetensors --loss cross-entropy --steps 2' 2>&1");
    if (code != 2 || strstr(output, "the data (checksum of 16 rows or more) differs") == NULL)
        fail_msg("exit %d, said:\n%s", code, output);
    // so where they evaluate, alone and beside a training
    static const char *const evaluations[] = {
        "eval " DIGITS "mlp.onnx --batch 4 --data rows" RANK ".safetensors",
        "train " DIGITS "mlp.onnx --batch 4 --data rows0.safetensors --steps 2 --eval rows" RANK
        ".safetensors",
    };
    for (size_t i = 0; i < sizeof evaluations / sizeof *evaluations; i++) {
        says(formatted("launch -n 2 -- sh -c 'exec " EBB " %s --loss cross-entropy'",
                       evaluations[i]),
             2, "the data (checksum of 16 rows or more) differs between processes");
        assert_non_null(strstr(output, "comparing what is evaluated on"));
    }
}

TEST(processes_that_differ_are_told)
{
    static const char line[] =
        EBB " launch -n 2 -- sh -c 'exec " EBB " train " DIGITS
            "mlp.onnx --dropout off --batch 32 --data " DIGITS
            "digits.npz --map label=target --loss cross-entropy --threads 1 %s' 2>&1";
    static const char *const cases[][2] = {
        {"--steps 1" RANK, "the training (checksum of its rows and options) differs"},
        {"--steps 3 --seed " RANK, "the training (checksum of its rows and options) differs"},
        {"--steps 3 --optimizer sgd:lr=0." RANK "1",
         "the step (checksum of its nodes and weights) differs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int code = run_command(formatted(line, cases[i][0]));
        if (code != 2 || strstr(output, cases[i][1]) == NULL || times_in_output("ebb: ") != 1)
            fail_msg("%s: exit %d, said:\n%s", cases[i][0], code, output);
    }
}

/* ---- one that dies ---- */

#define ENDLESS                                                                         \
    "mlp.onnx --dropout off --batch 32 --data " DIGITS "digits.npz --map label=target " \
    "--loss cross-entropy --seed 4 --threads 1 --checkpoint $PWD/c.st --every 3 "

/* Others train beside this test, in folders of their own. */
static bool is_any_left(void)
{
    return run_command("pgrep -f \"" EBB
                       " train .*$PWD/c.st\" | grep -v $$ | head -1 | grep -q .") == 0;
}

/* What is left is a whole checkpoint, from which one process goes on to the bytes of a run that nobody ended. */
static void goes_on_alone(void)
{
    says("train " DIGITS ENDLESS "--pass micro-batch:parts=2 --resume c.st --steps 400", 0,
         "steps, loss");
    says("train " DIGITS "mlp.onnx --dropout off " CLASSES
         "--batch 32 --pass micro-batch:parts=2 --checkpoint never.st --steps 400",
         0, "400 steps");
    same_bytes("c.st", "never.st", "resumed after a process died");
}

TEST(all_end_when_one_is_killed)
{
    const int code = run_command("rm -f c.st; timeout 60 " EBB " launch -n 2 -- sh -c 'if [ " RANK
                                 " = 1 ]; then (while [ ! "
                                 "-s c.st ]; do sleep 0.05; done; kill -9 $$) & fi; exec " EBB
                                 " train " DIGITS ENDLESS "--steps 399' 2>&1");
    if (code == 0) // it was faster than the one that ends it
        return;
    assert_int_equal(code, 128 + SIGKILL);
    assert_non_null(strstr(output, "rank 1 of 2 was ended by signal 9"));
    assert_non_null(strstr(output, "where memory is short: `ebb plan --ranks 2`"));
    assert_false(is_any_left());
    goes_on_alone();
}

TEST(one_that_stands_still_is_named)
{
    const int code = run_command(
        "rm -f c.st; timeout 60 " EBB " launch -n 2 --late 1 -- sh -c 'if [ " RANK " = 1 ]; then "
        "(while [ ! -s c.st ]; do sleep 0.05; done; kill -STOP $$) & fi; exec " EBB
        " train " DIGITS ENDLESS "--steps 100000' 2>&1");
    if (code != 1 || strstr(output, "rank 1 did not come within 1 s") == NULL)
        fail_msg("exit %d, said:\n%s", code, output);
    assert_false(is_any_left());
}

TEST(a_signal_stops_all_after_the_same_step)
{
    const int code = run_command(
        "rm -f c.st; " EBB " launch -n 2 -- " EBB " train " DIGITS ENDLESS
        "--steps 100000 > said 2>&1 & PID=$!; while [ ! -s c.st ]; do sleep 0.05; done; kill "
        "-TERM $PID; wait $PID; CODE=$?; cat said; exit $CODE");
    if (code != 128 + SIGTERM || strstr(output, "stopped by SIGTERM after step") == NULL)
        fail_msg("exit %d, said:\n%s", code, output);
    assert_false(is_any_left());
    says("train " DIGITS ENDLESS "--pass micro-batch:parts=2 --resume c.st --steps 1", 0,
         "steps are done");
}

const fixture around_all = {make_folder, remove_folder};
