/* test_threads.c: what the command says and keeps where the number of threads decides how much
 * memory a step takes.
 */
#include "cli.h"

#define CHAR                                                                                     \
    EBB_SOURCE_DIR "/samples/text/char.onnx --loss cross-entropy:axis=-1 --budget 4MiB --allow " \
                   "rounding --plan-time 0.1 "
#define ROWS "--data " EBB_SOURCE_DIR "/samples/text/text.npz --batch 64 --steps 1 "

static long long number_after(const char *key)
{
    const char *at = strstr(output, key);
    long long n = -1;
    if (at == NULL || sscanf(at + strlen(key), ":%lld", &n) != 1)
        fail_msg("no number '%s' in:\n%s", key, output);
    return n;
}

/* Kept, or refused: a slot of attention's workspace is needed for each thread. */
TEST(a_budget_holds_for_the_threads_that_run)
{
    int code = ebb("train " CHAR ROWS "--threads 16 --json");
    if (code != 3) {
        assert_int_equal(code, 0);
        assert_true(number_after("\"arena_bytes\"") <= 4194304);
    }
}

TEST(a_step_says_for_how_many_threads_it_was_planned)
{
    assert_int_equal(ebb("grad " CHAR "--dim batch=64 --threads 1 -o one.onnx"), 0);
    says("plan one.onnx --threads 1 --json", 0, "\"budget_threads\": 1");
    long long one = number_after("\"arena_bytes\"");
    says("plan one.onnx --threads 16 --json", 0, "\"threads\": 16");
    assert_true(number_after("\"arena_bytes\"") > one);
    says("train one.onnx " ROWS "--threads 16", 3, "above its budget of 4.00 MiB");
    says("train one.onnx " ROWS "--threads 16", 3, "it was planned for --threads 1");
    says("plan one.onnx --threads 16 --run", 3, "above its budget of 4.00 MiB");
    assert_int_equal(ebb("train one.onnx " ROWS "--threads 1"), 0);
    assert_null(strstr(output, "planned for"));
}

TEST(a_budget_that_other_threads_keep_as_well_is_a_note)
{
    says("grad " EBB_SOURCE_DIR "/samples/digits/mlp.onnx --loss cross-entropy --dim batch=8 "
         "--budget 100MiB --threads 1 -o roomy.onnx",
         0, "wrote roomy.onnx");
    says("train roomy.onnx --data " EBB_SOURCE_DIR "/samples/digits/digits.npz --map label=target "
         "--batch 8 --steps 1 --threads 2",
         0, "the step was planned for --threads 1");
    assert_int_equal(ebb("train roomy.onnx --data " EBB_SOURCE_DIR
                         "/samples/digits/digits.npz --map label=target --batch 8 --steps 1 "
                         "--threads 1"),
                     0);
    assert_null(strstr(output, "planned for"));
}

const fixture around_all = {make_folder, remove_folder};
