/* test_rates.c: schedules, accumulation, averages and resuming, by the command. */
#include "ebb.h"
#include "tests/cli/cli.h"
#include "tests/formatted.h"

#define TRAIN(options)                                                                \
    "train " DIGITS "mlp.onnx --data " DIGITS "digits.npz --map label=target --loss " \
    "cross-entropy --no-shuffle --dropout off --threads 1 " options
#define TRAIN_CNN(options)                                                            \
    "train " DIGITS "cnn.onnx --data " DIGITS "digits.npz --map label=target --loss " \
    "cross-entropy --no-shuffle --dropout off --threads 1 " options

static void does(const char *arguments)
{
    const int code = ebb(arguments);
    if (code != 0)
        fail_msg("%s: exit %d\n%s", arguments, code, output);
}

static bool same(const char *a, const char *b)
{
    return run_command(formatted("cmp -s %s %s", a, b)) == 0;
}

/* Behind `words` in what was said. */
static double number_behind(const char *words)
{
    const char *at = strstr(output, words);
    if (at == NULL)
        fail_msg("'%s' is not in: %s", words, output);
    return strtod(at + strlen(words), NULL);
}

TEST(a_schedule_ends_with_the_run_where_it_does_not_say)
{
    does(TRAIN("--steps 12 --lr-schedule cosine:warmup=3 --save-model filled.onnx"));
    does(TRAIN("--steps 12 --lr-schedule cosine:warmup=3,steps=12 --save-model said.onnx"));
    does(TRAIN("--steps 12 --lr-schedule cosine:warmup=3,steps=40 --save-model longer.onnx"));
    assert_true(same("filled.onnx", "said.onnx"));
    assert_false(same("filled.onnx", "longer.onnx"));
    does(TRAIN("--batch 100 --epochs 2 --optimizer adamw:schedule=linear --save-model "
               "filled.onnx"));
    does(TRAIN("--batch 100 --epochs 2 --lr-schedule linear:steps=28 --save-model said.onnx"));
    assert_true(same("filled.onnx", "said.onnx"));
}

TEST(words_about_rates_are_checked)
{
    says("grad " DIGITS
         "mlp.onnx --dim batch=8 --loss cross-entropy -o s.onnx --lr-schedule cosine",
         EBB_USAGE, "schedule cosine needs steps=N");
    says(TRAIN("--lr-schedule sine"), EBB_USAGE, "option schedule=sine should be constant|linear|");
    says(TRAIN("--lr-schedule cosine:warmup=-1"), EBB_USAGE, "option warmup takes");
    says(TRAIN("--clip-norm 0"), EBB_USAGE, "--clip-norm takes a number above 0");
    says(TRAIN("--ema 1"), EBB_USAGE, "--ema takes a number above 0 and below 1");
    says(TRAIN("--group 'nothing*:lr=1'"), EBB_USAGE,
         "the group 'nothing*' has no trained parameter");
    says(TRAIN("--steps 1 --group 'bias,*norm*:lr=0'"), EBB_OK,
         "no trained parameter's name matches '*norm*'");
    says(TRAIN("--optimizer sgd:momentum=0.9"), EBB_USAGE, "sgd has no option 'momentum'");
    says(TRAIN("--batch 2147483647 --accumulate 2"), EBB_USAGE, "are too many");
    does("grad " DIGITS "mlp.onnx --dim batch=8 --loss cross-entropy -o s.onnx");
    static const char *const late[] = {"--lr-schedule constant", "--clip-norm 1", "--accumulate 2",
                                       "--group 'bias:lr=0'", "--ema 0.9"};
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        says(formatted("train s.onnx --data " DIGITS "digits.npz --map "
                       "label=target --batch 8 %s",
                       late[i]),
             EBB_USAGE, "is a training step already");
    }
}

/* Two groups, the first that matches counts: with no rate left nothing changes. */
TEST(groups_are_given_one_by_one)
{
    does(TRAIN("--steps 3 --optimizer sgd --group 'bias:lr=0' --group '*:lr=0' --save-model "
               "still.onnx"));
    does(TRAIN("--steps 3 --optimizer sgd:lr=0 --save-model zero.onnx"));
    does(TRAIN("--steps 3 --optimizer sgd --group 'bias:lr=0' --save-model moved.onnx"));
    assert_true(same("still.onnx", "zero.onnx"));
    assert_false(same("moved.onnx", "zero.onnx"));
}

/* The mean is over all rows of a step, so the loss is that of the large batch, in less memory. */
TEST(accumulation_is_a_large_batch_in_parts)
{
    does(TRAIN("--steps 6 --batch 64"));
    const double whole = number_behind("loss ");
    does(TRAIN("--steps 6 --batch 16 --accumulate 4"));
    assert_true(number_behind("loss ") > whole - 1e-5 && number_behind("loss ") < whole + 1e-5);
    does(TRAIN_CNN("--steps 2 --batch 64 --json"));
    const double large = number_behind("\"arena_bytes\":");
    does(TRAIN_CNN("--steps 2 --batch 16 --accumulate 4 --json"));
    assert_true(number_behind("\"arena_bytes\":") < 0.6 * large);
    says("grad " DIGITS "mlp.onnx --dim batch=30 --loss cross-entropy -o s.onnx --accumulate 4",
         EBB_UNSUPPORTED, "cannot be split into 4 parts: the batch is not divisible");
}

TEST(a_run_resumes_in_the_middle_of_its_warm_up)
{
#define RUN "--lr-schedule linear:warmup=6,steps=20 --clip-norm 0.5 --ema 0.9 --batch 16 "
    does(TRAIN(RUN "--steps 9 --checkpoint whole.safetensors --save-model whole.onnx"));
    does(TRAIN(RUN "--steps 4 --checkpoint part.safetensors"));
    does(TRAIN(RUN
               "--steps 9 --resume part.safetensors --checkpoint again.safetensors --save-model "
               "again.onnx"));
    assert_true(same("whole.safetensors", "again.safetensors"));
    assert_true(same("whole.onnx", "again.onnx"));
#undef RUN
}

/* Not the checkpoint's: with a rate of 0 nothing moves any more. */
TEST(a_rate_changed_on_resuming_counts)
{
    does(TRAIN("--steps 3 --optimizer momentum:lr=0.1 --checkpoint c.safetensors --save-model "
               "three.onnx"));
    does(TRAIN("--steps 6 --optimizer momentum:lr=0 --resume c.safetensors --save-model six.onnx"));
    assert_non_null(strstr(output, "ebb.lr is 0 now; it was 0.1 where the checkpoint was made"));
    assert_true(same("three.onnx", "six.onnx"));
    does(TRAIN("--steps 6 --optimizer momentum:lr=0.1 --resume c.safetensors"));
    assert_null(strstr(output, "where the checkpoint was made"));
    does(TRAIN("--steps 6 --optimizer momentum:lr=0.1 --lr-schedule constant:warmup=20 --resume "
               "c.safetensors"));
    assert_non_null(strstr(output, "the schedule is constant,warmup=20"));
}

/* What is evaluated is what is saved, and both are the averages. */
TEST(averages_are_evaluated_and_saved)
{
#define EVALUATED                                                          \
    " --eval " DIGITS "digits.npz --eval-map test_image=image --eval-map " \
    "test_label=target"
    does(TRAIN("--steps 8 --optimizer sgd --save-model last.onnx" EVALUATED));
    const double last = number_behind("digits.npz: loss ");
    does(TRAIN("--steps 8 --optimizer sgd --ema 0.9 --save-model mean.onnx" EVALUATED));
    const double mean = number_behind("digits.npz: loss ");
    assert_true(mean != last);
    assert_false(same("last.onnx", "mean.onnx"));
    does("train mean.onnx --data " DIGITS "digits.npz --map label=target --loss cross-entropy "
         "--threads 1 --optimizer sgd:lr=0 --steps 1" EVALUATED);
    assert_true(number_behind("digits.npz: loss ") == mean);
#undef EVALUATED
}

const fixture around_all = {make_folder, remove_folder};
