/* test_help.c: what help shows can be done, and what is hinted at helps. */
#include "tests/cli/cli.h"

#include "tests/formatted.h"
#include "tests/text.h"

/* ---- examples ---- */

static int make_inputs(void **state)
{
    static const char csv[] = "id,lower,upper,size\n1,0,2,100\n2,1,3,50\n";
    if (make_folder(state) != 0 || setenv("OMP_NUM_THREADS", "1", 1) != 0 ||
        setenv("PATH", ".:/usr/bin:/bin", 1) != 0) // launch starts ebb
        return 1;
    put_file(path_of("intervals.csv"), csv, sizeof csv - 1);
    /* two nodes contradict each other in it */
    ebb_model *m = parsed("<ir_version: 10, opset_import: [\"\" : 20]>\n"
                          "g (float[2,3] x, float[4,5] w) => (float[2,5] y)\n"
                          "{ [first] y = MatMul (x, w) }");
    good(ebb_save(m, path_of("broken.onnx")));
    ebb_close(m);
    return run_command("ln -s " EBB " ebb && cp " DIGITS "cnn.onnx model.onnx && cp " DIGITS
                       "digits.npz data.npz && "
                       "printf '#!/bin/sh\\n! " EBB
                       " check \"$1\" > /dev/null\\n' > still-fails.sh "
                       "&& chmod +x still-fails.sh");
}

/* The verbs of the overview: lines of two spaces, a name, and more spaces. */
static int verbs_of(char verbs[32][16])
{
    int count = 0;
    assert_int_equal(ebb("help"), 0);
    for (const char *line = output; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "  ", 2) == 0 && count < 32 && sscanf(line, "%15s", verbs[count]) == 1)
            count++;
    }
    return count;
}

/* As somebody would who reads help from top to bottom, in the order in which it lists the verbs. */
TEST(every_example_of_help_runs)
{
    static char verbs[32][16], text[sizeof output];
    const int count = verbs_of(verbs);
    int examples = 0;
    assert_true(count >= 17);
    for (int i = 0; i < count; i++) {
        assert_int_equal(ebb(formatted("help %s", verbs[i])), 0);
        (void)snprintf(text, sizeof text, "%s", output);
        const char *line = strstr(text, "\nexamples:\n");
        assert_non_null(line);
        for (line = strstr(line, "\n  ebb "); line != NULL; line = strstr(line + 1, "\n  ebb ")) {
            char example[512];
            (void)snprintf(example, sizeof example, "%.*s", (int)strcspn(line + 7, "\n"), line + 7);
            int code = ebb(example);
            if (code != 0)
                fail_msg("ebb %s\nexit %d:\n%s", example, code, output);
            examples++;
        }
    }
    assert_true(examples > count);
}

/* ---- options ---- */

TEST(every_option_is_shown_once_below_a_title)
{
    static char verbs[32][16];
    const int count = verbs_of(verbs);
    for (int i = 0; i < count; i++) {
        static char seen[128][64];
        int options = 0;
        assert_int_equal(ebb(formatted("help %s", verbs[i])), 0);
        for (const char *line = strstr(output, "\n  -"); line != NULL;
             line = strstr(line + 1, "\n  -")) {
            assert_int_equal(sscanf(line, " %63s", seen[options]), 1);
            for (int k = 0; k < options; k++)
                if (strcmp(seen[k], seen[options]) == 0)
                    fail_msg("ebb help %s shows %s twice", verbs[i], seen[k]);
            options++;
        }
        assert_true(options > 0);
    }
    says("help train", 0, "\nthe training step:\n  --loss");
    says("help bench", 0, "[with --sweep, --passes]");
}

/* ---- hints ---- */

TEST(a_hint_names_what_the_verb_takes)
{
    says("train model.onnx --bacth 9", 2, "did you mean '--batch'?");
    says("grad model.onnx --bacth 9", 2, "unknown option '--bacth'");
    assert_null(strstr(output, "--batch'"));
    says("train model.onnx --gpu", 2, "here it is --backend cuda");
    says("inspect model.onnx --gpu", 2, "see `ebb help inspect`");
    says("train model.onnx --batch-size 9", 2, "here it is --batch 32");
    says("grad model.onnx --batch-size 9", 2, "unknown option '--batch-size'");
    assert_null(strstr(output, "here it is"));
}

/* As beginners write: each hint is one that helps. */
TEST(a_hint_is_what_was_meant)
{
#define STEP "grad model.onnx -o step.onnx --dim batch=4 --loss cross-entropy"
    static const struct {
        const char *words, *says;
    } wrong[] = {
        {STEP " --optimizer Adam:lr=0.1", "did you mean 'adam'?"},
        {STEP " --optimizer adam:learning-rate=0.1", "`ebb help passes optimizer` lists"},
        {STEP ":output=logit", "did you mean 'logits'?"},
        {STEP " --shape images:4x1x8x8", "did you mean 'image'?"},
        {STEP " --shape image:4,1,8,8", "--shape image:AxBxC: a dim takes"},
        {STEP " --train conv1", "`ebb inspect MODEL` lists the weights"},
        {"grad model.onnx -o step.onnx", "--loss name=OUTPUT"},
        {"train model.onnx --data data.npz -o x.onnx", "here it is --save-model FILE"},
        {"train model.onnx --quiet", "see `ebb help train`"},
        {"train", "`ebb help train` has examples"},
        {"help pass", "did you mean 'passes'?"},
        {"help passes sign_mask", "there is no pass 'sign_mask'"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        says(wrong[i].words, 2, wrong[i].says);
    says(STEP " --precision fp8", 2, "bf16|fp16");
    assert_null(strstr(output, "did you mean"));
    says("help passes optimizer", 0, "schedule");
    assert_null(strstr(output, "sign-mask"));
    says("-h sign-mask", 0, "sign-mask");
    assert_null(strstr(output, "dropout"));
}

/* What a hint says is done, and the next one does not send back. */
TEST(hints_do_not_lead_in_a_circle)
{
    says(STEP, 0, "wrote step.onnx");
    says("diff step.onnx model.onnx", 2, "--dim batch=");
    says("diff step.onnx model.onnx --dim batch=4", 0, "peak");
    says("diff step.onnx model.onnx --dim bacth=4", 2, "no input has a dimension 'bacth'");
    says("plan step.onnx --budget 1KiB", 3, "or --allow rounding");
    says("plan step.onnx --budget 1KiB --allow rounding", 3, "give a budget of at least");
    assert_null(strstr(output, "--allow"));
}

/* The doctor sends to `inspect --node`, which has to open what the doctor found fault with. */
TEST(a_model_that_contradicts_itself_can_be_looked_at)
{
    says("check broken.onnx", 6, "`ebb inspect MODEL --node NAME`");
    says("inspect broken.onnx --node y", 0, "MatMul");
    says("inspect broken.onnx", 0, "1  MatMul");
    says("inspect broken.onnx --node nowhere", 2, "`ebb inspect MODEL --text`");
    says("inspect broken.onnx --text", 0, "MatMul");
}

/* ---- weights ---- */

TEST(inspect_lists_weights)
{
    says("inspect model.onnx", 0, "would be trained");
    assert_non_null(strstr(output, "statistic not trained: a running mean or variance"));
    says("grad model.onnx -o made.onnx --dim batch=4 --loss cross-entropy", 0, "optimizer");
    says("inspect made.onnx", 0, "are trained");
    assert_non_null(strstr(output, "optimizer not trained: a state of the optimizer"));
    assert_non_null(strstr(output, "the step updates it"));
    assert_non_null(strstr(output, "more (-v shows them)"));
    says("inspect made.onnx -v", 0, "are trained");
    assert_null(strstr(output, "-v shows them"));
}

const fixture around_all = {make_inputs, remove_folder};
