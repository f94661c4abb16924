/* test_training.c: a training that people leave alone: it is evaluated as it goes on, keeps what was
 * best, writes down what happened, and loses nothing where it is stopped.
 */
#define _XOPEN_SOURCE 700 // terminals
#include "tests/cli/cli.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>

#include "ebb.h"
#include "tests/formatted.h"
#include "tests/share.h"

#define MODEL DIGITS "cnn.onnx"
#define DATA DIGITS "digits.npz"
#define TRAIN                                                                             \
    "train " MODEL " --data " DATA " --map label=target --batch 32 --loss cross-entropy " \
    "--optimizer adamw:lr=0.003 --seed 3 --threads 1 "
#define EVAL "--eval " DATA " --eval-map test_image=image --eval-map test_label=target "
#define HELD_OUT \
    "--data " DATA " --map test_image=image --map test_label=target --loss cross-entropy "

static json_t *json_of(const char *arguments)
{
    int code = stdout_of(arguments);
    json_t *o = json_loads(output, 0, NULL);
    if (code != 0 || !json_is_object(o))
        fail_msg("ebb %s\nexit %d; on stdout:\n%s", arguments, code, output);
    return o;
}

static double real_of(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    if (!json_is_number(value))
        fail_msg("no number '%s'", key);
    return json_number_value(value);
}

static void same_file(const char *a, const char *b)
{
    if (run_command(formatted("cmp %s %s", a, b)) != 0)
        fail_msg("%s and %s are not the same:\n%s", a, b, output);
}

/* ---- evaluation ---- */

TEST(each_epoch_is_evaluated_and_the_best_is_kept)
{
    /* so large a rate that not every evaluation is better than the one before */
    json_t *o = json_of("train " MODEL " --data " DATA " --map label=target --loss cross-entropy "
                        "--optimizer momentum:lr=0.2 --seed 5 --threads 1 --epochs 3 " EVAL
                        "--eval-every 11 --keep best --save-model best.onnx --checkpoint b.st "
                        "--json");
    json_t *evaluations = json_object_get(o, "evaluations"), *e;
    size_t i;
    double best = INFINITY, last = 0;
    assert_int_equal(json_array_size(evaluations), 12);
    json_array_foreach(evaluations, i, e) {
        assert_int_equal(real_of(e, "step"), 11 * (double)(i + 1));
        assert_int_equal(real_of(e, "rows"), 360);
        last = real_of(e, "loss");
        best = last < best ? last : best;
    }
    assert_true(best < last);
    assert_true(real_of(json_object_get(o, "best"), "loss") == best);
    assert_int_equal(json_array_size(json_object_get(o, "epochs")), 3);
    assert_true(real_of(json_object_get(o, "eval"), "loss") == last);
    json_decref(o);
    o = json_of("eval best.onnx " HELD_OUT "--threads 1 --json");
    assert_true(real_of(o, "loss") == best);
    assert_true(real_of(o, "accuracy") > 0.5);
    json_decref(o);
    o = json_of("eval " MODEL " --weights b-best.st " HELD_OUT "--threads 1 --json");
    assert_true(real_of(o, "loss") == best);
    json_decref(o);
    o = json_of("eval " MODEL " --weights b.st " HELD_OUT "--threads 1 --json");
    assert_true(real_of(o, "loss") == last);
    json_decref(o);
}

/* With this rate and order it is another evaluation than that of the least loss. */
TEST(the_best_is_by_the_metric_that_is_named)
{
#define BY                                                                                 \
    "train " MODEL " --data " DATA " --map label=target --loss cross-entropy --optimizer " \
    "momentum:lr=0.1 --seed 6 --threads 1 " EVAL "--eval-every 6 --checkpoint by.st "
    json_t *o = json_of(BY "--steps 66 --keep best:accuracy,2 --save-model by.onnx --json"), *e;
    const json_t *best = json_object_get(o, "best");
    size_t i;
    double most = 0, at = 0;
    json_array_foreach(json_object_get(o, "evaluations"), i, e) {
        at = real_of(e, "accuracy") > most ? real_of(e, "step") : at;
        most = fmax(most, real_of(e, "accuracy"));
    }
    assert_true(real_of(best, "accuracy") == most && real_of(best, "step") == at);
    json_decref(o);
    o = json_of("eval by.onnx " HELD_OUT "--threads 1 --json");
    assert_true(real_of(o, "accuracy") == most);
    json_decref(o);
    o = json_of(BY "--steps 69 --keep best --resume by.st --json"); // no best by that yet
    assert_true(real_of(json_object_get(o, "best"), "step") == 69);
    assert_non_null(json_object_get(json_object_get(o, "best"), "loss"));
    json_decref(o);
    says(BY "--epochs 1 --keep best:acuracy", 2, "did you mean 'accuracy'");
    says(BY "--epochs 1 --keep best:f1", 2, "--metric f1");
}

/* In batches of 7, of 360 and all at once: a mean over all rows does not know. */
TEST(each_row_of_an_evaluation_counts_once)
{
    static const char *const batches[] = {"7", "360", "1000", "32"};
    double loss[4];
    for (size_t i = 0; i < 4; i++) {
        json_t *o = json_of(formatted("eval " MODEL " " HELD_OUT "--batch %s --json", batches[i]));
        assert_int_equal(real_of(o, "counted"), 360);
        loss[i] = real_of(o, "loss");
        json_decref(o);
        assert_true(fabs(loss[i] - loss[0]) < 1e-5);
    }
    says("eval " MODEL " " HELD_OUT "--batch 7", 0, "of 360");
    says("eval " MODEL " --data " DATA, 2, "--loss");
    says("eval " MODEL " --loss mse", 2, "--data FILE");
    says(TRAIN "--steps 2", 0, "29 of 1437 rows left out of each epoch");
}

TEST(a_share_of_the_rows_is_held_out)
{
    json_t *o = json_of(TRAIN "--epochs 2 --eval-split 0.1 --json");
    assert_int_equal(real_of(json_object_get(o, "eval"), "rows"), 144);
    assert_int_equal(real_of(o, "steps"), 2 * (1437 - 144) / 32);
    json_decref(o);
    says(TRAIN "--epochs 1 --eval-split 0.00001", 2, "is not a part of them");
    says(TRAIN "--epochs 1 --eval-split 0.1 " EVAL, 2, "--eval-split has no effect beside --eval");
    says(TRAIN "--epochs 1 --eval-split 1.5", 2, "--eval-split takes a number");
    says(TRAIN "--steps 9 --eval-split 0.1 --checkpoint split.st", 0, "9 steps");
    says(TRAIN "--steps 12 --resume split.st", 2, "over 1293 rows, not 32 over 1437");
    assert_non_null(strstr(output, "give the --batch, the --accumulate and the data"));
}

TEST(patience_ends_a_training)
{
#define HASTY                                                                              \
    "train " MODEL " --data " DATA " --map label=target --loss cross-entropy --optimizer " \
    "momentum:lr=0.2 --seed 5 --threads 1 --steps 99 " EVAL "--eval-every 11 --patience 2 "
    json_t *o = json_of(HASTY "--keep best --save-model p.onnx --checkpoint p.st --json");
    const double steps = real_of(o, "steps"), best = real_of(json_object_get(o, "best"), "step");
    assert_true(json_is_true(json_object_get(o, "stopped_early")));
    assert_true(steps < 99 && steps == best + 2 * 11);
    json_decref(o);
    says(HASTY "--resume p.st", 0, "none is left to do of 99");
    says(TRAIN "--steps 9 --patience 2", 2, "--patience needs a --eval");
    says(TRAIN "--steps 9 --keep best --checkpoint x.st", 2, "decides which is the best");
    says(TRAIN "--steps 9 --keep best " EVAL, 2, "say what is to be kept");
    says(TRAIN "--steps 9 --keep some --checkpoint x.st", 2, "--keep takes a whole number");
}

/* ---- what is written down ---- */

static json_t *line_of(const char *name, int number)
{
    char line[4096];
    FILE *file = fopen(path_of(name), "r");
    assert_non_null(file);
    for (int i = 0; i < number; i++)
        assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    json_t *o = json_loads(line, 0, NULL);
    assert_non_null(o);
    return o;
}

TEST(a_log_has_a_line_a_step_and_goes_on)
{
    says(TRAIN "--steps 50 " EVAL
               "--checkpoint l.st --every 20 --log l.jsonl --log l.csv --log tb/",
         0, "50 steps");
    assert_int_equal(lines_of("l.jsonl"), 50);
    assert_int_equal(lines_of("l.csv"), 51);
    json_t *o = line_of("l.jsonl", 44); // the end of the epoch
    assert_int_equal(real_of(o, "step"), 44);
    assert_true(real_of(o, "epoch_loss") > 0 && real_of(json_object_get(o, "eval"), "loss") > 0);
    assert_true(fabs(real_of(o, "rate") - 0.003) < 1e-9);
    json_decref(o);
    assert_int_equal(run_command("head -1 l.csv"), 0);
    assert_string_equal(output, "step,epoch,time,loss,rate,step_ns,rows_per_s,epoch_loss,eval_loss,"
                                "eval_accuracy\n");
    assert_int_equal(run_command("ls tb | grep -c tfevents"), 0);
    /* a run that was killed behind its checkpoint: those steps are done, and written, again */
    says(TRAIN "--steps 30 --checkpoint part.st --log part.jsonl", 0, "30 steps");
    assert_int_equal(
        run_command("cp l.jsonl part.jsonl && cp l.csv part.csv && printf '{\"step\":51' "
                    ">> part.jsonl"),
        0);
    says(TRAIN "--steps 60 " EVAL "--resume part.st --log part.jsonl --log part.csv", 0,
         "60 steps");
    assert_int_equal(lines_of("part.jsonl"), 60);
    assert_int_equal(lines_of("part.csv"), 61);
    o = line_of("part.jsonl", 31);
    assert_int_equal(real_of(o, "step"), 31);
    json_decref(o);
    says(TRAIN "--steps 4 --log l.jsonl --log-every 2", 0, "4 steps"); // another run begins anew
    assert_int_equal(lines_of("l.jsonl"), 2);
    says(TRAIN "--steps 4 --log l.txt", 2, "a log ends in .jsonl or .csv");
    says(TRAIN "--steps 4 --log nowhere/l.csv", 8, "nowhere/l.csv");
    says(TRAIN "--steps 4 --log l.jsonl --log new.csv --log l.txt", 2, "a log ends in");
    assert_int_equal(lines_of("l.jsonl"), 2); // what it held is not lost to another one's name
    assert_false(exists("new.csv"));
    says(TRAIN "--steps 3 --log - 2>&1 >/dev/null", 0, "");
    assert_int_equal(run_command(EBB " " TRAIN "--steps 3 --log - 2>/dev/null | wc -l"), 0);
    assert_int_equal(atoi(output), 3);
    assert_int_equal(run_command("echo head > both; " EBB " " TRAIN "--steps 3 --log - >> both "
                                 "2>said && head -1 both && wc -l < both && ! grep -q { said"),
                     0); // a file that stdout is
    assert_string_equal(output, "head\n4\n");
}

/* What the command draws on a terminal of so many columns. */
static void run_on_terminal(unsigned short columns, const char *arguments)
{
    char words[2048];
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    int terminal = posix_openpt(O_RDWR | O_NOCTTY), status;
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int side = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    assert_true(side >= 0 && ioctl(side, TIOCSWINSZ, &size) == 0);
    (void)snprintf(words, sizeof words, "exec " EBB " %s >/dev/null", arguments);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(side, STDERR_FILENO);
        (void)setenv("TERM", "xterm", 1);
        (void)execl("/bin/sh", "sh", "-c", words, (char *)NULL);
        _exit(127);
    }
    (void)close(side);
    size_t used = 0;
    for (ssize_t n; used < sizeof output - 1 &&
                    (n = read(terminal, output + used, sizeof output - 1 - used)) > 0;)
        used += (size_t)n;
    output[used] = '\0';
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    (void)close(terminal);
}

TEST(progress_fits_any_terminal)
{
    static const unsigned short widths[] = {20, 40, 80, 200};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        run_on_terminal(widths[i], TRAIN "--epochs 1");
        assert_non_null(strstr(output, "/44"));
        assert_non_null(strstr(output, "epoch 1: mean loss")); // a line of its own
        if (widths[i] >= 80) {
            assert_non_null(strstr(output, "ETA "));
            assert_non_null(strstr(output, "rows/s"));
        }
        for (const char *at = output, *end; (at = strstr(at, "\r\033[K")) != NULL; at = end) {
            at += 4;
            end = at + strcspn(at, "\r\n");
            if (strncmp(at, "epoch 1:", 8) != 0 && end - at >= widths[i])
                fail_msg("%d columns do not hold: %.*s", widths[i], (int)(end - at), at);
        }
    }
    says(TRAIN "--epochs 1", 0, "epoch 1: mean loss");
    assert_null(strchr(output, '\r')); // no terminal, no bar
}

/* ---- stopping ---- */

static pid_t begin(const char *arguments)
{
    char words[2048];
    (void)snprintf(words, sizeof words, "cd %s && exec " EBB " %s >said 2>&1", folder, arguments);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)execl("/bin/sh", "sh", "-c", words, (char *)NULL);
        _exit(127);
    }
    return child;
}

static void nap(void)
{
    (void)nanosleep(&(const struct timespec){.tv_nsec = 2000000}, NULL);
}

static void wait_for_lines(const char *name, int count)
{
    for (int i = 0; i < 5000; i++, nap())
        if (exists(name) && lines_of(name) >= count)
            return;
    fail_msg("%s has no %d lines after 10 s", name, count);
}

static int ended(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

TEST(a_signal_saves_and_ends_with_its_code)
{
    static const struct {
        int signal, code;
    } ends[] = {{SIGINT, 130}, {SIGTERM, 143}};
    says(TRAIN "--steps 400 --checkpoint whole.st --save-model whole.onnx", 0, "400 steps");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_int_equal(run_command("rm -f steps.jsonl cut.st cut.onnx"), 0);
        pid_t child = begin(TRAIN "--steps 400 --checkpoint cut.st --save-model cut.onnx "
                                  "--log steps.jsonl --json");
        wait_for_lines("steps.jsonl", 10);
        assert_int_equal(kill(child, ends[i].signal), 0);
        const int status = ended(child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), ends[i].code);
        assert_true(exists("cut.st") && exists("cut.onnx"));
        assert_int_equal(run_command("grep -h '^{' said"), 0);
        json_t *o = json_loads(output, 0, NULL);
        const double steps = real_of(o, "steps");
        assert_true(steps >= 10 && steps < 400);
        assert_non_null(json_object_get(o, "interrupted"));
        json_decref(o);
        says(TRAIN "--steps 400 --resume cut.st --checkpoint joined.st --save-model joined.onnx", 0,
             "400 steps");
        same_file("whole.st", "joined.st");
        same_file("whole.onnx", "joined.onnx");
    }
}

/* The second one while the first is being obeyed, which a pipe without a reader makes long. */
TEST(the_second_signal_ends_at_once)
{
    assert_int_equal(run_command("rm -f steps.jsonl; mkfifo blocked"), 0);
    pid_t child =
        begin(TRAIN "--steps 100000 --save-model blocked --log steps.jsonl --checkpoint twice.st");
    wait_for_lines("steps.jsonl", 5);
    assert_int_equal(kill(child, SIGTERM), 0);
    for (int i = 0; i < 5000 && !exists("twice.st"); i++)
        nap(); // then it waits for the reader
    assert_int_equal(kill(child, SIGTERM), 0);
    const int status = ended(child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    says(TRAIN "--steps 1 --resume twice.st", 0, "none is left to do of 1");
}

TEST(what_cannot_be_written_is_known_before_the_first_step)
{
    static const char *const wrong[] = {"--checkpoint nowhere/c.st", "--save-model nowhere/m.onnx",
                                        "--save-adapter nowhere/a.safetensors",
                                        "--save-checkpoint nowhere/o",
                                        "--checkpoint . --save-model m.onnx"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char words[1024];
        (void)snprintf(words, sizeof words, TRAIN "--epochs 1 --repeat-batch %s", wrong[i]);
        says(words, 8, "writing");
        assert_null(strstr(output, "step 1:"));
    }
    says(TRAIN "--epochs 1 --repeat-batch --eval nowhere.npz", 8, "nowhere.npz");
    assert_null(strstr(output, "step 1:"));
    says(TRAIN "--epochs 1 --repeat-batch --eval " DATA " --eval-map test_imgae=image", 2, "imgae");
    assert_null(strstr(output, "step 1:"));
    says(TRAIN "--epochs 1 --repeat-batch --save-adapter none", 2, "has no adapters to save");
    assert_null(strstr(output, "step 1:"));
    says(TRAIN "--steps 1 --pass lora --save-adapter a.npz", 2,
         "a.npz: adapters are not saved to a file of this ending\n  hint: FILE.safetensors, "
         "FILE.onnx_adapter");
    assert_null(strstr(output, "step 1:"));
    says(TRAIN "--steps 1 --checkpoint one --save-model one", 2, "would both be written to one");
    static const char *const reads[] = {"--checkpoint", "--save-model", "--log"};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        char words[1024];
        (void)snprintf(words, sizeof words, TRAIN "--steps 1 --eval seen.csv %s seen.csv",
                       reads[i]);
        put_file(path_of("seen.csv"), "a\n1\n", 4);
        says(words, 2, "would replace seen.csv, which --eval reads");
    }
}

TEST(nothing_left_to_do_is_said)
{
    says(TRAIN "--steps 5 --checkpoint five.st", 0, "5 steps");
    says(TRAIN "--steps 5 --resume five.st --save-model five.onnx", 0, "none is left to do of 5");
    assert_null(strstr(output, "nan")); // there is no loss of this run
    assert_true(exists("five.onnx"));   // what was asked for is written all the same
}

TEST(checkpoints_rotate)
{
    says(TRAIN "--steps 47 --checkpoint r.st --every 10 --keep 3", 0, "47 steps");
    assert_int_equal(run_command("ls r-*.st r.st | tr '\\n' ' '"), 0);
    assert_string_equal(output, "r-000000030.st r-000000040.st r.st ");
    says(TRAIN "--steps 47 --resume r-000000030.st --checkpoint again.st", 0, "47 steps");
    same_file("r.st", "again.st");
    says(TRAIN "--steps 4 --checkpoint t.st --every 0.000001s --keep 9", 0, "4 steps");
    assert_int_equal(run_command("ls t-*.st t.st | tr '\\n' ' '"), 0);
    assert_string_equal(output, "t-000000001.st t-000000002.st t-000000003.st t.st ");
    /* where the name is a link, the file is replaced, and its elders lie beside it */
    assert_int_equal(run_command("mkdir disk && ln -s disk/d.st link.st"), 0);
    says(TRAIN "--steps 47 --checkpoint link.st --every 10 --keep 3", 0, "47 steps");
    assert_int_equal(run_command("test -L link.st && ls disk | tr '\\n' ' '"), 0);
    assert_string_equal(output, "d-000000030.st d-000000040.st d.st ");
    same_file("r.st", "disk/d.st");
    same_file("r-000000040.st", "disk/d-000000040.st");
    says(TRAIN "--steps 4 --checkpoint t.st --every soon", 2, "90s, 10min, 2h");
    says(TRAIN "--steps 4 --keep 3", 2, "of which --checkpoint");
}

/* Also with what an evaluation has seen so far, and the mean of an epoch that was cut in two. */
TEST(a_run_with_evaluations_resumes_byte_for_byte)
{
#define RUN TRAIN "--epochs 2 " EVAL "--eval-every 7 --keep best --patience 9 "
    says(RUN "--checkpoint e.st --save-model e.onnx --every 30 --log e.jsonl", 0, "88 steps");
    says(TRAIN "--steps 30 " EVAL "--eval-every 7 --keep best --patience 9 --checkpoint f.st "
               "--save-model f.onnx",
         0, "30 steps");
    /* the end of that run was an evaluation that the whole one does not have */
    says(TRAIN "--steps 28 " EVAL "--eval-every 7 --keep best --patience 9 --checkpoint f.st "
               "--save-model f.onnx --log f.jsonl",
         0, "28 steps");
    says(RUN "--resume f.st --checkpoint f.st --save-model f.onnx --log f.jsonl", 0, "88 steps");
    same_file("e.st", "f.st");
    same_file("e-best.st", "f-best.st");
    same_file("e.onnx", "f.onnx");
    json_t *whole = line_of("e.jsonl", 44), *joined = line_of("f.jsonl", 44);
    assert_true(real_of(whole, "epoch_loss") == real_of(joined, "epoch_loss"));
    json_decref(whole);
    json_decref(joined);
}

TEST(a_run_that_was_cut_between_epochs_resumes_byte_for_byte)
{
    says(TRAIN "--steps 50 --checkpoint fifty.st", 0, "50 steps");
    says(TRAIN "--steps 44 --checkpoint epoch.st", 0, "44 steps");
    says(TRAIN "--steps 50 --resume epoch.st --checkpoint joined.st", 0, "50 steps");
    same_file("fifty.st", "joined.st");
    says(TRAIN "--steps 44 --resume epoch.st --checkpoint joined.st", 0,
         "none is left to do of 44");
    same_file("epoch.st", "joined.st");
}

/* ---- a model that pass train-mode has been over ---- */

TEST(a_model_in_training_mode_still_takes_a_loss)
{
    says("rewrite " MODEL " --pass train-mode -o mode.onnx", 0, "wrote mode.onnx");
#define MODE                                                                     \
    "train mode.onnx --data " DATA " --map label=target --batch 32 --optimizer " \
    "adamw:lr=0.003 --seed 3 --threads 1 --steps 20 "
    says(MODE "--loss cross-entropy", 0, "20 steps");
    says(MODE, 2, "the graph has no loss");
    /* options that take back what the pass did hold as for the export itself */
    static const char *const options[] = {"--dropout off", "--batch-norm frozen --dropout off"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        double losses[2][2];
        static const char *const models[] = {MODEL, "mode.onnx"};
        for (size_t k = 0; k < 2; k++) {
            json_t *o = json_of(formatted("train %s --data " DATA
                                          " --map label=target --loss cross-entropy "
                                          "--seed 3 --threads 1 --steps 20 --json %s " EVAL,
                                          models[k], options[i]));
            losses[k][0] = real_of(o, "loss");
            losses[k][1] = real_of(json_object_get(o, "eval"), "loss");
            json_decref(o);
        }
        assert_true(losses[0][0] == losses[1][0]);
        assert_true(losses[0][1] == losses[1][1]);
    }
}

/* Adapters beside the small chat model, on one stream of tokens. */
#define CHAT EBB_SOURCE_DIR "/samples/chat/model_q4.onnx"
#define ADAPT                                                                                 \
    "train " CHAT " --data ids.safetensors --threads 2 --pass lora:rank=8,target=all-linear " \
    "--optimizer adamw --loss cross-entropy:output=logits,axis=-1 --json "

static void put_ids(void)
{
    enum { COUNT = 24 * 256 + 1 };
    static int32_t ids[COUNT];
    static const int64_t dims[] = {COUNT};
    for (int i = 0; i < COUNT; i++)
        ids[i] = i * 7919 % 500;
    assert_null(ebb_tensors_save(path_of("ids.safetensors"),
                                 &(ebb_named){"input_ids", EBB_I32, 1, dims, ids}, 1, NULL));
}

/* Beside the arena and what is mapped of the model's file there are programs, the graph and what libraries have: no copy
 * of anything, whatever the step's size. */
TEST(what_is_resident_is_what_was_planned_and_little_more)
{
    enum { BEYOND = 60 << 20 };
    struct stat file;
    put_ids();
    assert_int_equal(stat(CHAT, &file), 0);
    json_t *o = json_of(ADAPT "--sequence 256 --batch 24 --steps 2");
    const double arena = real_of(o, "arena_bytes"), resident = real_of(o, "resident_bytes");
    assert_true(arena == real_of(o, "measured_arena_bytes"));
    json_decref(o);
    print_message("arena %.1f MiB, resident %.1f MiB\n", arena / 1048576, resident / 1048576);
    assert_true(arena > 100e6);
    if (!SANITIZED) // a sanitizer keeps a byte beside each eight
        assert_true(resident <= arena + (double)file.st_size + BEYOND);
}

TEST(a_folder_for_what_is_on_disk_is_told_where_nothing_is)
{
    says(TRAIN "--steps 1 --spill .", 0, "note: nothing waits on disk, so --spill has no effect");
    says(TRAIN "--steps 1 --spill . --pass offload:least=1,values=*", 0, "1 steps, loss");
    assert_null(strstr(output, "--spill has"));
}

TEST(a_sequence_that_is_longer_than_the_models_tables_is_told)
{
    put_ids();
    says(ADAPT "--sequence 257 --batch 1 --steps 1", 6, "sines and cosines 256 positions");
    assert_non_null(strstr(output, "--sequence 256"));
}

/* Before it has taken the time, that is. */
TEST(adapters_that_go_into_no_weight_are_told_before_training)
{
    put_ids();
    says(ADAPT "--sequence 16 --batch 1 --steps 1 --save-model merged.onnx", 5,
         "cannot be added into a weight");
    assert_null(strstr(output, "\"steps\""));
}

/* Not what the program held that started it. */
TEST(what_was_resident_is_that_of_the_training)
{
    enum { BYTES = 300 << 20 };
    char *held = malloc(BYTES);
    assert_non_null(held);
    memset(held, 1, BYTES);
    assert_int_equal(run_command("exec " EBB " " TRAIN "--steps 1 --json 2>/dev/null"), 0);
    json_t *o = json_loads(output, 0, NULL);
    const double bytes = real_of(o, "resident_bytes");
    json_decref(o);
    assert_int_equal(held[BYTES - 1], 1);
    free(held);
    assert_true(bytes > 1e6);
    if (bytes > 250e6)
        fail_msg("%.0f bytes", bytes);
}

const fixture around_all = {make_folder, remove_folder};
