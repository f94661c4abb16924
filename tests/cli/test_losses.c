/* test_losses.c: --loss, given more than once, and --metric. */

#include "cli.h"
#include "ebb.h"

#define CNN DIGITS "cnn.onnx"
#define MLP DIGITS "mlp.onnx"
#define DATA "--data " DIGITS "digits.npz --map label=target --batch 16 "
#define EVAL "--eval " DIGITS "digits.npz --eval-map test_image=image --eval-map test_label=target "

static double number_after(const char *words)
{
    const char *at = strstr(output, words);
    if (at == NULL)
        fail_msg("no '%s' in:\n%s", words, output);
    return at != NULL ? strtod(at + strlen(words), NULL) : 0;
}

TEST(metrics_are_told_at_the_end)
{
    says("train " CNN " " DATA EVAL "--loss cross-entropy:label-smoothing=0.1 --epochs 3 "
         "--metric accuracy --metric top-5 --metric f1 --metric perplexity",
         0, "digits.npz: loss ");
    char *end = strstr(output, "digits.npz: loss "); // behind what was said of each epoch
    assert_non_null(end);
    memmove(output, end, strlen(end) + 1);
    assert_true(number_after("accuracy ") > 85);
    assert_true(number_after("top-5 ") > 0.98);
    assert_true(number_after("f1 ") > 0.85);
    assert_true(number_after("perplexity ") > 1 && number_after("perplexity ") < 3);
    assert_int_equal(stdout_of("train " CNN " " DATA EVAL
                               "--loss cross-entropy --epochs 2 --metric f1-macro --json"),
                     0);
    assert_true(number_after("\"f1-macro\":") > 0.1);
    assert_null(strstr(output, "accuracy"));
}

TEST(a_metric_that_does_not_fit_is_refused_before_the_first_step)
{
    says("train " MLP " " DATA EVAL "--loss cross-entropy --metric r2", 2,
         "ebb: metric 'r2' does not fit the loss cross-entropy");
    assert_null(strstr(output, "epoch"));
    says("train " MLP " " DATA EVAL "--loss cross-entropy --metric acuracy", 2,
         "did you mean 'accuracy'?");
    says("train " MLP " " DATA "--loss cross-entropy --metric f1", 2, "--metric needs a --eval");
}

/* The other model's outputs are an array of the data, made by the command itself. */
TEST(a_small_model_learns_what_a_larger_one_says)
{
    says("train " CNN " " DATA "--loss cross-entropy --epochs 3 --save-model teacher.onnx", 0, "");
    says("run teacher.onnx --data " DIGITS "digits.npz --save said.safetensors", 0, "logits");
    says("train " MLP " " DATA "--data said.safetensors --map logits=teacher "
         "--loss cross-entropy:weight=0.3,target=target "
         "--loss kl:target=teacher,temperature=2,weight=0.7 --epochs 4",
         0, "epoch 1");
    assert_true(number_after("steps, loss ") < number_after("epoch 1: mean loss "));
}

static bool are_equal(const char *a, const char *b)
{
    return run_command(formatted("cmp %s %s", a, b)) == 0;
}

/* In the step, or before it, where it has to be made ready for use first. */
TEST(a_teacher_in_the_step_says_what_it_says_alone)
{
#define TWO(target)                                                          \
    "--loss cross-entropy:weight=0.3,target=target --loss kl:target=" target \
    ",temperature=2,weight=0.7 "
    says("train " CNN " " DATA "--loss cross-entropy --epochs 2 --save-model teacher.onnx", 0, "");
    says("export teacher.onnx -o used.onnx", 0, "");
    says("run used.onnx --data " DIGITS "digits.npz --save said.safetensors", 0, "logits");
    says("train " MLP " " DATA "--data said.safetensors --map logits=said " TWO(
             "said") "--threads 1 --save-model before.onnx",
         0, "");
    says("train " MLP " " DATA "--teacher teacher.onnx " TWO(
             "teacher/logits") "--threads 1 --save-model beside.onnx --train '*'",
         0, "training 10 of 10 weights");
    assert_true(are_equal("before.onnx", "beside.onnx"));
    says("train " MLP " " DATA
         "--teacher teacher.onnx " TWO("teacher/logits") "--accumulate 2 --eval-split 0.1 "
                                                         "--checkpoint c.safetensors --steps 20",
         0, "loss/teacher/logits");
    says("train " MLP " " DATA "--teacher teacher.onnx " TWO(
             "teacher/logits") "--accumulate 2 --eval-split 0.1 --resume c.safetensors --steps 25",
         0, "25 steps");
    says("eval beside.onnx --data " DIGITS
         "digits.npz --map label=target --teacher teacher.onnx " TWO("teacher/logits"),
         0, "accuracy");
    says("train " MLP " " DATA "--teacher teacher.onnx --loss cross-entropy", 2,
         "no loss reads what the teacher teacher.onnx says");
}

TEST(a_loss_is_named_with_all_there_are)
{
    says("train " MLP " " DATA "--loss cross-entropi", 2, "smooth-l1|focal|dice|cosine|kl|ctc");
    says("train " MLP " " DATA "--loss cross-entropy:delta=1", 2, "has no option 'delta'");
    says("help passes", 0, "which loss: cross-entropy mse l1");
}

/* In the help and on the page of docs. */
TEST(every_loss_and_metric_is_written_down)
{
    static const char *const losses[] = {
#define EBB_LOSS(build, name, task, target, takes) name,
#include "passes/loss/losses.def"
#include "tests/formatted.h"
#undef EBB_LOSS
    };
    static char page[1 << 16];
    char word[64];
    FILE *file = fopen(EBB_SOURCE_DIR "/docs/training.md", "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    (void)fclose(file);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        (void)snprintf(word, sizeof word, "`%s`", losses[i]);
        if (strstr(page, word) == NULL)
            fail_msg("docs/training.md has no loss %s", word);
    }
    assert_int_equal(ebb("help train"), 0);
    for (size_t i = 0; ebb_metric_name(i) != NULL; i++) {
        (void)snprintf(word, sizeof word, "`%s`", ebb_metric_name(i));
        if (strstr(page, word) == NULL || strstr(output, ebb_metric_name(i)) == NULL)
            fail_msg("docs/training.md or `ebb help train` has no metric %s", word);
    }
}

const fixture around_all = {make_folder, remove_folder};
