/* test_outputs.c: where results go: never over what is no regular file, to stdout for "-", and as
 * one JSON object whatever happened.
 */
#include "tests/cli/cli.h"

#include <jansson.h>

#define MODEL DIGITS "mlp.onnx"
#define TRAIN                                                                           \
    "train " MODEL " --data " DIGITS "digits.npz --map label=target --batch 32 --loss " \
    "cross-entropy --threads 1 "

/* The one JSON object that the command prints, whatever its exit code is. */
static json_t *object_of(const char *arguments, int code)
{
    int got = stdout_of(arguments);
    json_t *o = json_loads(output, 0, NULL);
    if (got != code || !json_is_object(o))
        fail_msg("ebb %s\nexit %d, expected %d; on stdout:\n%s", arguments, got, code, output);
    return o;
}

TEST(a_loss_that_is_no_number_is_null)
{
    json_t *o = object_of(TRAIN "--optimizer sgd:lr=1e30 --steps 9 --on-nan warn --json", 0);
    assert_true(json_is_null(json_object_get(o, "loss")));
    assert_int_equal(json_integer_value(json_object_get(o, "steps")), 9);
    json_decref(o);
}

TEST(an_error_is_one_object_as_well)
{
    static const struct {
        const char *words;
        int code;
        const char *says;
    } wrong[] = {
        {TRAIN "--optimizer sgd:lr=1e30 --steps 9 --json", 1, "the loss"},
        {TRAIN "--bacth 9 --json", 2, "did you mean '--batch'"},
        {"inspect nowhere.onnx --json", 8, "nowhere.onnx"},
        {"plan " MODEL " --dim batch=8 --loss cross-entropy --budget 1KiB --plan-time 0.1 --json",
         3, "1.00 KiB"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *o = object_of(wrong[i].words, wrong[i].code);
        const char *text = json_string_value(json_object_get(o, "error"));
        assert_int_equal(json_integer_value(json_object_get(o, "code")), wrong[i].code);
        if (text == NULL || strstr(text, wrong[i].says) == NULL)
            fail_msg("%s\ndoes not say '%s': %s", wrong[i].words, wrong[i].says, output);
        json_decref(o);
    }
}

TEST(a_pipe_and_a_device_are_written_into)
{
    assert_int_equal(run_command("mkfifo pipe && (cat pipe > through &)"), 0);
    says(TRAIN "--steps 2 --save-model pipe --save-checkpoint /dev/null", 0, "2 steps");
    says(TRAIN "--steps 2 --save-model plain.onnx", 0, "2 steps");
    assert_int_equal(run_command("test -p pipe && test -c /dev/null && cmp through plain.onnx"), 0);
}

TEST(a_link_stays_where_a_model_is_saved)
{
    assert_int_equal(run_command("mkdir real && ln -s real/model.onnx link.onnx"), 0);
    says(TRAIN "--steps 1 --save-model link.onnx", 0, "1 steps");
    assert_int_equal(run_command("test -L link.onnx && test -f real/model.onnx"), 0);
}

TEST(a_dash_is_stdout)
{
    assert_int_equal(ebb("grad " MODEL " --dim batch=8 --loss mse -o step.onnx"), 0);
    assert_int_equal(run_command(EBB " grad " MODEL " --dim batch=8 --loss mse -o - 2>said "
                                     "| cmp - step.onnx"),
                     0);
    assert_int_equal(run_command("grep -q gradient said"), 0); // the table, aside
    assert_int_equal(run_command("echo head > both && " EBB " grad " MODEL
                                 " --dim batch=8 --loss mse -o - 2>said >> both && "
                                 "tail -c +6 both | cmp - step.onnx"),
                     0);
    says("grad " MODEL " --dim batch=8 --loss mse -o - --json", 2, "both want stdout");
    says(TRAIN "--steps 1 --save-model - --checkpoint -", 2, "one result alone");
    says("bench " MODEL " --dim batch=8 --loss mse --passes fold -o -", 2, "go to a file");
}

TEST(an_option_given_twice_is_a_mistake_unless_it_is_repeatable)
{
    says(TRAIN "--steps 2 --steps 3", 2, "--steps is given twice");
    says(TRAIN "--steps=2 --seed 1 --seed 1", 2, "--seed is given twice");
    says("inspect " MODEL " --json --json", 2, "--json is given twice");
    says("grad " MODEL " -o a.onnx -o b.onnx", 2, "-o is given twice");
    says("grad " MODEL " --dim batch=8 --loss mse -o a.onnx --pass sign-mask --pass dropout-seed",
         0, "wrote a.onnx");
    says("help train", 0, "size of a symbolic dimension, e.g. batch=8 (repeatable)");
}

TEST(threads_are_as_many_as_openmp_is_told)
{
    const char *const plan = EBB " plan " MODEL " --dim batch=8 --loss mse --json --run";
    char command[1024];
    (void)snprintf(command, sizeof command, "OMP_NUM_THREADS=3 %s", plan);
    assert_int_equal(run_command(command), 0);
    assert_non_null(strstr(output, "\"threads\": 3"));
    (void)snprintf(command, sizeof command, "OMP_NUM_THREADS=3 %s --threads 2", plan);
    assert_int_equal(run_command(command), 0);
    assert_non_null(strstr(output, "\"threads\": 2"));
}

/* What decides how they wait is not passed on to the commands of `ebb reduce`. */
TEST(a_command_sees_the_environment_of_its_user)
{
    (void)run_command("unset GOMP_SPINCOUNT OMP_WAIT_POLICY; " EBB " reduce " MODEL
                      " -o small.onnx --tests 2 -- sh -c 'env > environment; true' 2>&1");
    assert_int_equal(run_command("test -s environment && ! grep -e SPINCOUNT -e BEGUN environment"),
                     0);
}

/* The system's signal for it would end the command without a word. */
TEST(a_file_that_may_not_grow_is_an_error_of_writing)
{
    static const char limit[] = "(ulimit -f 8; " EBB " ";
    char command[2048];
    (void)snprintf(command, sizeof command,
                   "%sgrad " DIGITS "cnn.onnx --dim batch=4 --loss cross-entropy -o big.onnx) 2>&1",
                   limit);
    assert_int_equal(run_command(command), 8);
    assert_non_null(strstr(output, "ebb: big.onnx: writing: "));
    assert_int_equal(run_command("test ! -e big.onnx"), 0);
    (void)snprintf(command, sizeof command,
                   "%strain " DIGITS "cnn.onnx --data " DIGITS "digits.npz --map label=target"
                   " --loss cross-entropy --pass 'offload:least=1,values=*' --spill . --steps 1)"
                   " 2>&1",
                   limit);
    assert_int_equal(run_command(command), 8);
    assert_non_null(strstr(output, "ebb: "));
}

const fixture around_all = {make_folder, remove_folder};
