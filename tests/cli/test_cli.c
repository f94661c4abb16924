/* test_cli.c: the command as a user meets it: what it says to mistakes, and that training resumes.
 */
#include "tests/cli/cli.h"
#include "tests/formatted.h"

#define MODEL DIGITS "cnn.onnx"
#define DATA DIGITS "digits.npz"
#define TRAIN                                                                             \
    "train " MODEL " --data " DATA " --map label=target --batch 32 --loss cross-entropy " \
    "--optimizer adamw:lr=0.003 --seed 3 --threads 1 "

TEST(mistakes_get_one_sentence_and_the_right_exit_code)
{
    says("trian x", 2, "did you mean 'train'");
    says("inspect", 2, "usage: ebb inspect");
    says("inspect nowhere.onnx", 8, "nowhere.onnx");
    says("inspect " MODEL " --jsno", 2, "did you mean '--json'");
    says("inspect " MODEL " --loss x", 2, "takes no option --loss");
    says("plan " MODEL, 2, "--dim batch=");
    says("plan " MODEL " --dim bacth=8", 2, "bacth");
    says("plan " MODEL " --dim batch", 2, "NAME=N");
    says("rewrite " MODEL " -o x.onnx --pass sign-msak", 2, "sign-mask");
    says("grad " MODEL " --dim batch=4 --loss cross-entrpy -o x.onnx", 2, "cross-entropy");
    says("grad " MODEL " --dim batch=4 --loss cross-entropy --optimizer adamw:learning=1 -o x.onnx",
         2, "learning");
    says("grad " MODEL " --dim batch=4 --loss cross-entropy", 2, "-o FILE");
    says("grad " MODEL " --dim batch=4 -o x.onnx", 2, "--loss");
    says("train " MODEL " --data nowhere.npz --loss cross-entropy", 8, "nowhere.npz");
    says("train " MODEL " --data " DATA " --batch 0", 2, "--batch");
    says("run " MODEL, 2, "--data");
    assert_false(exists("x.onnx"));
}

/* Each would change nothing where it stands. */
TEST(an_option_without_effect_is_a_usage_error)
{
    static const struct {
        const char *words, *says;
    } wrong[] = {
        {"inspect " MODEL " --text --json", "`ebb inspect --text` takes no option --json"},
        {"inspect " MODEL " --node x --text", "`ebb inspect --node` takes no option --text"},
        {"grad " MODEL " --loss mse -o x.onnx --allow lossy", "--allow needs a --budget"},
        {"grad " MODEL " --loss mse -o x.onnx --backend plain", "--backend needs a --budget"},
        {"rewrite " MODEL " --pass fold -o x.onnx --seed 3", "--seed needs a --init"},
        {"diff " MODEL " " MODEL " --steps 2", "--steps needs a --run"},
        {"train " MODEL " --data " DATA " --steps 2 --epochs 3", "--epochs has no effect beside"},
        {"train " MODEL " --data " DATA " --every 2", "--every needs a --checkpoint"},
        {"train " MODEL " --data " DATA " --eval-map a=b", "--eval-map needs a --eval"},
        {"bench --calibrate -o c.json --loss mse", "takes no option --loss"},
        {"bench --calibrate --data x -o c.json", "takes no option --data"},
        {"bench " MODEL " --sensitivity --calibrate", "takes no option --sensitivity"},
        {"bench " MODEL " --sensitivity --run", "`ebb bench --sensitivity` takes no option --run"},
        {"bench " MODEL " --sensitivity --steps 3", "takes no option --steps"},
        {"bench " MODEL " --passes fold --steps 3", "--steps needs a --run"},
        {"bench " MODEL " --passes fold --map a=b", "--map needs a --data"},
        {"bench " MODEL, "say what to measure"},
        {"few-bit --function gelu --alpha 2", "--alpha is of silu and elu"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        says(wrong[i].words, 2, wrong[i].says);
}

TEST(what_makes_a_step_is_refused_where_there_is_one)
{
    static const char *const verbs[] = {"plan made.onnx", "train made.onnx --data " DATA,
                                        "bench made.onnx --calibrate -o c.json",
                                        "bench made.onnx --sensitivity -o c.json --data " DATA};
    static const char *const options[] = {
        "--loss mse",         "--optimizer sgd", "--train '*'",        "--freeze '*'",
        "--straight-through", "--dropout off",   "--batch-norm train", "--precision bf16"};
    says("grad " DIGITS "mlp.onnx --dim batch=4 --loss cross-entropy -o made.onnx", 0, "");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
            says(formatted("%s %s", verbs[i], options[k]), 2,
                 "made.onnx is a training step already");
        }
    says("bench made.onnx --passes fold --loss mse -o step_lines.jsonl", 1,
         "it is a training step already: --loss has no effect");
}

static void write_text(const char *name, const char *text, size_t size);

#define STEP MODEL " --dim batch=8 --loss cross-entropy "

TEST(a_budget_is_read_before_anything_is_done)
{
    static const char *const wrong[] = {"0",   "0%",    "-6GiB", "-1",  "6XB", "abc",
                                        "1e9", "6GiB,", "inf",   "0x8", "",    "80%%"};
    static const char *const verbs[] = {"grad " STEP "-o budget.onnx", "plan " STEP,
                                        "train " STEP "--data " DATA " --checkpoint budget.st"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t k = 0; k < sizeof verbs / sizeof *verbs; k++) {
            says(formatted("%s '--budget=%s'", verbs[k], wrong[i]), 2,
                 "6GiB, 1.5G, 512MB, 1000 (bytes) or 80%");
        }
    says("plan nowhere.onnx --budget 6XB", 2, "its unit is not known");
    says("plan " STEP "--budget 1GiB,disk", 2, "'disk' is no amount");
    says("plan " STEP "--budget 1GiB,disk=6XB", 2, "its unit is not known");
    says("plan " STEP "--budget 1GiB,moon=1GiB", 2, "moon");
    says("plan " STEP "--plan-time 5", 2, "needs a --budget");
    says("plan " STEP "--budget 1GiB --plan-time soon", 2, "number of seconds");
    says("plan " STEP "--budget 1GiB --plan-time 0", 2, "number of seconds");
    says("plan " STEP "--budget none", 0, "live bytes over the step");
    says("inspect " MODEL " --budget 1GiB", 2, "takes no option --budget");
    assert_false(exists("budget.onnx"));
    assert_false(exists("budget.st"));
}

static long long number_after(const char *key)
{
    const char *at = strstr(output, key);
    long long n = -1;
    if (at == NULL || sscanf(at + strlen(key), ": %lld", &n) != 1)
        fail_msg("no number '%s' in:\n%s", key, output);
    return n;
}

TEST(a_step_is_made_to_fit)
{
    says("plan " STEP "--json", 0, "arena_bytes");
    long long whole = number_after("\"arena_bytes\""), ns = number_after("\"planned_ns\"");
    says("plan " STEP "--budget 80% --plan-time 1 --json", 0, "\"fit\"");
    assert_true(number_after("\"arena_bytes\"") <= whole * 8 / 10);
    long long less = number_after("\"planned_ns\"");
    says("plan " STEP "--budget 100GiB --json", 0, "\"fit\""); // the more room the faster
    assert_true(number_after("\"planned_ns\"") <= (less < ns ? less : ns));
    says("plan " STEP "--budget 1KiB --plan-time 1", 3, "1.00 KiB");
    says("grad " STEP "-o fits.onnx --budget 1KiB --plan-time 1", 3, "1.00 KiB");
    says("train " STEP "--data " DATA " --map label=target --batch 8 --steps 1 --budget 1KiB "
         "--plan-time 1 --checkpoint fits.st",
         3, "1.00 KiB");
    assert_false(exists("fits.onnx"));
    assert_false(exists("fits.st"));
    says("grad " STEP "-o fits.onnx --budget 80% --plan-time 1", 0, "fit ");
    says("plan fits.onnx --json", 0, "arena_bytes");
    assert_true(number_after("\"arena_bytes\"") <= whole * 8 / 10);
    says("grad " STEP "-o whole.onnx", 0, "");
    says("plan whole.onnx --budget 80% --plan-time 1 --json", 0, "\"fit\"");
    assert_true(number_after("\"arena_bytes\"") <= whole * 8 / 10);
}

TEST(the_least_that_a_hopeless_budget_names_is_a_budget_that_fits)
{
    static const char *const optimizers[] = {"sgd", "momentum", "adamw"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        char words[1024];
        long long least = 0;
        (void)snprintf(words, sizeof words, "grad " STEP "--optimizer %s --pass release -o s.onnx",
                       optimizers[i]);
        says(words, 0, "");
        says("rewrite s.onnx -o least.onnx --pass fit:budget=1KiB,time=1", 3, "at least ");
        if (sscanf(strstr(output, "at least "), "at least %lld", &least) != 1)
            fail_msg("no number of bytes in:\n%s", output);
        (void)snprintf(words, sizeof words,
                       "rewrite s.onnx -o least.onnx --pass fit:budget=%lld,time=1", least);
        says(words, 0, "fit");
        says("plan least.onnx --json", 0, "arena_bytes");
        assert_true(number_after("\"arena_bytes\"") <= least);
    }
}

TEST(a_pass_with_a_budget_says_what_is_wrong_and_writes_nothing)
{
    static const struct {
        const char *pass;
        int code;
        const char *words;
    } wrong[] = {
        {"fit", 2, "needs a budget"},
        {"recompute:planner=dtr", 2, "needs a budget"},
        {"fit:budget=0", 2, "more than zero"},
        {"fit:budget=-5", 2, "below zero"},
        {"fit:budget=6XB", 2, "its unit is not known"},
        {"fit:budgt=1MB", 2, "did you mean 'budget'"},
        {"fit:budget=1MB,time=soon", 2, "option time takes a number of seconds above 0"},
        {"fit:budget=1MB,allow=never", 2, "exact|rounding|lossy"},
        {"recompute:budget=1KiB,planner=serch", 2, "did you mean 'search'"},
        {"recompute:budget=0,planner=dtr", 2, "more than zero"},
        {"recompute:budget=1KiB,planner=dtr", 3, "the least that it reaches is"},
        {"fit:budget=1KiB,time=0.1", 3, "the least reached is"},
    };
    char words[1024];
    says("grad " STEP "-o whole.onnx", 0, "");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        (void)snprintf(words, sizeof words, "rewrite whole.onnx -o never.onnx --pass '%s'",
                       wrong[i].pass);
        says(words, wrong[i].code, wrong[i].words);
        assert_false(exists("never.onnx"));
        (void)snprintf(words, sizeof words, "plan whole.onnx --pass '%s'", wrong[i].pass);
        says(words, wrong[i].code, wrong[i].words);
    }
    says("rewrite whole.onnx -o fast.onnx --pass fit:budget=100GiB", 0, "estimated time");
    says("rewrite fast.onnx -o idle.onnx --pass fit:budget=100GiB", 0, "nothing to do");
    says("plan whole.onnx --pass recompute:budget=100GiB", 0, "nothing to do");
    says("rewrite fast.onnx -o idle.onnx --strict --pass fit:budget=100GiB", 0, "nothing to do");
    says("grad " STEP "-o idle.onnx --strict --budget 100%", 0, "estimated time");
    says("rewrite whole.onnx -o idle.onnx --strict --pass recompute:budget=100GiB", 0,
         "nothing to do");
}

TEST(a_plan_shows_the_curve_and_where_the_peak_is)
{
    says("plan " STEP, 0, "live bytes over the step");
    assert_non_null(strstr(output, "forward"));
    assert_non_null(strstr(output, "around the peak"));
    const char *peak = strstr(output, "\n> ");
    assert_non_null(peak);
    int rows = 0;
    for (const char *at = output; (at = strstr(at, "|\n")) != NULL; at++)
        rows++;
    assert_int_equal(rows, 10);
    says("plan " STEP "--json", 0, "\"neighbourhood\"");
}

TEST(operators_are_measured_and_planned_by)
{
    says("bench", 2, "--calibrate");
    says("bench --calibrate", 2, "-o FILE");
    says("bench --calibrate -o costs.json --threads many", 2, "--threads");
    says("bench nowhere.onnx --calibrate -o costs.json", 8, "nowhere.onnx");
    assert_false(exists("costs.json"));
    says("bench " STEP "--calibrate -o costs.json --steps 3 --threads 1", 0, "signatures");
    assert_true(exists("costs.json"));
    says("plan " STEP "--costs costs.json", 0, "nodes: 52 as measured, 0 by the rates");
    says("grad " STEP "-o step.onnx --costs costs.json --pass sign-mask", 0, "as measured");
    says("inspect step.onnx --text", 0, "Conv");
    says("plan step.onnx --costs costs.json", 0, "as measured");
    says("rewrite step.onnx -o again.onnx --costs costs.json", 0, "as measured");
    says("plan " STEP "--costs nowhere.json", 8, "nowhere.json");
    write_text("wrong.json", "{\"schema\": 1}", 13);
    says("grad " STEP "-o wrong.onnx --costs wrong.json", 6, "wrong.json");
    says("grad " STEP "-o wrong.onnx --costs a,b.json", 8, "a,b.json");
    assert_false(exists("wrong.onnx"));
}

TEST(a_plan_of_a_finished_step_runs_the_passes_asked_for)
{
    says("grad " STEP "-o plain.onnx", 0, "");
    says("plan plain.onnx --pass sign-msak", 2, "sign-mask");
    says("plan plain.onnx --json", 0, "\"peak_bytes\"");
    char before[64], after[64];
    assert_int_equal(sscanf(strstr(output, "\"saved_bytes\""), "%63[^,]", before), 1);
    says("plan plain.onnx --pass sign-mask --json", 0, "\"sign-mask\"");
    assert_int_equal(sscanf(strstr(output, "\"saved_bytes\""), "%63[^,]", after), 1);
    assert_string_not_equal(before, after);
}

TEST(a_difference_says_who_saved_what)
{
    says("grad " STEP "-o one.onnx", 0, "");
    says("grad " STEP "-o two.onnx --pass sign-mask --pass dropout-seed", 0, "");
    says("diff one.onnx two.onnx", 0, "alone      last in");
    assert_non_null(strstr(output, "  sign-mask "));
    assert_non_null(strstr(output, "peak before at"));
    assert_non_null(strstr(output, "after: live bytes"));
}

static void write_text(const char *name, const char *text, size_t size)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    fclose(file);
}

TEST(a_file_that_is_no_model_is_rejected_at_a_byte)
{
    write_text("text.onnx", "this is not a model", 19);
    says("inspect text.onnx", 6, "byte");
    says("rewrite text.onnx -o out.onnx --pass fold", 6, "text.onnx");
    assert_false(exists("out.onnx"));
}

TEST(what_a_run_gives_is_one_object)
{
    static const char header[] = "{\"image\":{\"dtype\":\"F32\",\"shape\":[2,1,8,8],"
                                 "\"data_offsets\":[0,512]}}   ";
    static char bytes[8 + sizeof header - 1 + 512];
    bytes[0] = (char)(sizeof header - 1);
    memcpy(bytes + 8, header, sizeof header - 1);
    write_text("image.safetensors", bytes, sizeof bytes);
    says("run " DIGITS "mlp.onnx --data image.safetensors --json --profile", 0, "\"ebb.run/1\"");
    assert_non_null(strstr(output, "\"profile\""));
    assert_true(output[0] == '{' && strstr(output, "\n}\n") != NULL);
}

/* 32 black images in a safetensors file; image 5 is labelled 17. */
TEST(a_label_out_of_range_is_named)
{
    static const char header[] = "{\"image\":{\"dtype\":\"F32\",\"shape\":[32,1,8,8],"
                                 "\"data_offsets\":[0,8192]},\"label\":{\"dtype\":\"I64\","
                                 "\"shape\":[32],\"data_offsets\":[8192,8448]}} ";
    static char bytes[8 + sizeof header - 1 + 8448];
    int64_t label = 17;
    bytes[0] = (char)(sizeof header - 1);
    memcpy(bytes + 8, header, sizeof header - 1);
    memcpy(bytes + 8 + sizeof header - 1 + 8192 + 5 * sizeof label, &label, sizeof label);
    write_text("bad.safetensors", bytes, sizeof bytes);
    says("train " MODEL
         " --data bad.safetensors --map label=target --batch 32 --loss cross-entropy "
         "--no-shuffle --checkpoint never.safetensors",
         1, "row 5 of 'label' in bad.safetensors: label 17");
    assert_false(exists("never.safetensors"));
}

/* A file system of 64 KiB, where the test may mount one. */
TEST(nothing_is_left_on_a_full_disk)
{
    char command[1024];
    says("grad " MODEL " --dim batch=4 --loss cross-entropy -o /nonexistent/x.onnx", 8,
         "/nonexistent/x.onnx");
    (void)snprintf(command, sizeof command,
                   "mkdir %s/small && mount -t tmpfs -o size=64k tmpfs %s/small 2>/dev/null",
                   folder, folder);
    if (system(command) != 0) {
        print_message("SKIP: no right to mount a small file system\n");
        skip();
    }
    says("grad " MODEL " --dim batch=4 --loss cross-entropy -o small/x.onnx", 8, "No space left");
    says(TRAIN "--steps 2 --checkpoint small/x.st", 8, "No space left");
    (void)snprintf(command, sizeof command, "ls -A %s/small; umount %s/small", folder, folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fread(output, 1, 1, pipe), 0);
    assert_int_equal(pclose(pipe), 0);
}

TEST(loss_that_is_not_a_number_stops_the_run)
{
    says("train " MODEL " --data " DATA " --map label=target --batch 32 --loss cross-entropy "
         "--optimizer sgd:lr=1e30 --steps 20 --checkpoint nan.safetensors",
         1, "the loss");
    assert_false(exists("nan.safetensors"));
}

static void same_file(const char *a, const char *b)
{
    assert_int_equal(system(formatted("cd %s && cmp %s %s", folder, a, b)), 0);
}

TEST(training_resumes_byte_for_byte)
{
    says(TRAIN "--steps 60 --checkpoint whole.st --save-model whole.onnx", 0, "");
    says(TRAIN "--steps 25 --checkpoint part.st", 0, "");
    says(TRAIN "--steps 60 --resume part.st --checkpoint joined.st --save-model joined.onnx", 0,
         "");
    same_file("whole.st", "joined.st");
    same_file("whole.onnx", "joined.onnx");
}

TEST(training_with_states_in_codes_resumes_byte_for_byte)
{
    static const char *const passes[] = {"low-bit-state:least=128",
                                         "low-bit-state:least=128,bits=4,rounding=stochastic"};
    for (int i = 0; i < 2; i++) {
        char words[1024];
        const char *const runs[] = {
            "--steps 30 --checkpoint whole_codes.st", "--steps 13 --checkpoint part_codes.st",
            "--steps 30 --resume part_codes.st --checkpoint joined_codes.st"};
        for (int k = 0; k < 3; k++) {
            (void)snprintf(words, sizeof words, TRAIN "--strict --pass %s %s", passes[i], runs[k]);
            says(words, 0, "planned and measured equal");
        }
        same_file("whole_codes.st", "joined_codes.st");
        (void)snprintf(words, sizeof words, TRAIN "--steps 40 --resume part_codes.st");
        says(words, 6, "exp_avg"); // codes are no state of a run without the pass
    }
    says("grad " STEP "-o codes.onnx --pass low-bit-state:bits=3", 2, "8|4");
    says("grad " STEP "-o codes.onnx --pass low-bit-state:block=48", 2,
         "multiple of 32 from 32 to 4096");
    says("grad " STEP "-o codes.onnx --pass low-bit-state:rounding=up", 2, "dynamic|stochastic");
    says("grad " STEP "-o codes.onnx --pass low-bit-state:least=0", 2, "elements of at least 1");
    says("grad " STEP "-o codes.onnx --optimizer sgd --strict --pass low-bit-state", 5,
         "low-bit-state");
    assert_false(exists("codes.onnx"));
}

/* Each sample learns more than how often each class comes, which is a loss of ln 10 = 2.303 for the
 * digits and of 3.11 for the letters of the text. */
TEST(the_samples_learn)
{
    static const struct {
        const char *arguments;
        double below; /* nats */
    } samples[] = {
        {"digits/cnn.onnx --data " DATA " --map label=target --loss cross-entropy --epochs 2", 1.0},
        {"digits/mlp.onnx --data " DATA " --map label=target --loss cross-entropy --epochs 2", 0.5},
        {"digits/cnn.onnx --data " DATA " --map label=target --loss cross-entropy --epochs 2 "
         "--precision bf16",
         1.0},
        {"digits/mlp.onnx --data " DATA " --map label=target --loss cross-entropy --epochs 2 "
         "--pass precision:fp16",
         0.5},
        {"digits/transformer.onnx --data " DATA " --map label=target --loss cross-entropy "
         "--epochs 3",
         2.0},
        {"text/char.onnx --data " EBB_SOURCE_DIR "/samples/text/text.npz --batch 16 --steps 65 "
         "--loss cross-entropy:axis=-1",
         2.85},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        says(formatted("train " EBB_SOURCE_DIR "/samples/%s --optimizer adamw:lr=0.003",
                       samples[i].arguments),
             0, "planned and measured equal");
        const char *at = strstr(output, "steps, loss ");
        assert_non_null(at);
        double loss = strtod(at + strlen("steps, loss "), NULL);
        if (!(loss < samples[i].below))
            fail_msg("%s: loss %g, not below %g", samples[i].arguments, loss, samples[i].below);
    }
}

TEST(a_checkpoint_of_another_run_is_refused)
{
    says(TRAIN "--steps 3 --checkpoint three.st", 0, "");
    says("train " MODEL " --data " DATA " --map label=target --batch 16 --loss cross-entropy "
         "--optimizer adamw --resume three.st",
         2, "batch 32");
    says("train " MODEL " --data " DATA " --map label=target --batch 32 --loss cross-entropy "
         "--optimizer sgd --resume three.st",
         6, "three.st");
}

TEST(trained_weights_go_back_into_the_export)
{
    says(TRAIN "--steps 5 --save-model trained.onnx", 0, "");
    says("inspect trained.onnx", 0, "IR 8, opset 17, 22 nodes");
}

TEST(steps_go_to_onnx_runtimes_training_and_come_back)
{
    says("grad " MODEL " --dim batch=32 --loss cross-entropy --dialect ork -o set", 2,
         "--dialect takes onnx or ort, not 'ork'");
    says("rewrite " MODEL " -o x.onnx", 2, "--pass NAME");
    says("grad " MODEL " --dim batch=32 --loss cross-entropy --dialect ort -o set --dropout off "
         "--optimizer momentum",
         5, "by AdamW or by SGD");
    assert_false(exists("set"));
    says("grad " MODEL " --dim batch=32 --loss cross-entropy --dialect ort -o set --dropout off", 0,
         "wrote set");
    assert_true(exists("set/training_model.onnx") && exists("set/eval_model.onnx") &&
                exists("set/optimizer_model.onnx") && exists("set/checkpoint"));
    says("train set --data " DATA " --map label=target --batch 32 --steps 3 --threads 1 "
         "--save-checkpoint trained",
         0, "3 steps");
    says("train set --data " DATA " --map label=target --batch 32 --steps 1 --threads 1 --weights "
         "trained --save-checkpoint further",
         0, "1 steps");
    says("rewrite set -o step.onnx --dialect onnx", 0, "wrote step.onnx");
    says("rewrite step.onnx -o smaller --dialect ort --pass sign-mask", 0, "wrote smaller");
    assert_true(exists("smaller/training_model.onnx"));
    says("inspect smaller/training_model.onnx --text", 0, "PackSign");
    says("train " MODEL " --data " DATA " --map label=target --batch 32 --steps 1 --loss "
         "cross-entropy --optimizer momentum --save-checkpoint none",
         5, "by AdamW or by SGD");
    assert_false(exists("none"));
}

TEST(dropout_takes_a_ratio)
{
    static const char transformer[] = "grad " EBB_SOURCE_DIR "/samples/digits/transformer.onnx "
                                      "--dim batch=4 --loss cross-entropy --dry-run --dropout ";
    char words[256];
    (void)snprintf(words, sizeof words, "%s0.3", transformer);
    says(words, 0, "with ratio 0.3");
    (void)snprintf(words, sizeof words, "%s1.5", transformer);
    says(words, 2, "ratio takes a number of at least 0 and below 1");
}

TEST(tables_of_few_bits_are_made)
{
    says("few-bit --function gelu --bits 3", 0, "up to     2.416946");
    says("few-bit --function silu --bits 1 --weight normal --json", 0, "\"weight\": \"normal\"");
    says("few-bit", 2, "--function gelu");
    says("few-bit --function relu", 2, "there is no table for 'relu'");
    says("few-bit --function gelu --bits 5", 2, "--bits takes a whole number from 1 to 4");
    says("few-bit --function gelu --weight heavy", 2, "flat or normal");
    says("few-bit --function silu --alpha x", 2, "--alpha takes a number above 0");
    says("few-bit --function silu --alpha -1", 2, "--alpha takes a number above 0");
}

TEST(intervals_are_packed)
{
    static const char intervals[] = "id,lower,upper,size\na,0,4,100\nb,2,6,50\n";
    static const char reversed[] = "id,lower,upper,size\na,0,4,100\nb,6,2,50\n";
    write_text("in.csv", intervals, sizeof intervals - 1);
    write_text("reversed.csv", reversed, sizeof reversed - 1);
    says("pack in.csv -o packed.csv", 0, "proven: no packing is lower");
    assert_true(exists("packed.csv"));
    says("pack packed.csv -o again.csv --capacity 150", 0, "height 150 bytes");
    same_file("packed.csv", "again.csv");
    says("pack in.csv --dry-run --json --align 64", 0, "\"height_bytes\": 164");
    says("pack in.csv", 2, "-o FILE");
    says("pack in.csv -o x.csv --capacity 1.5", 2, "--capacity takes a whole number");
    says("pack in.csv -o x.csv --capacity -3", 2, "--capacity takes a whole number");
    says("pack in.csv -o x.csv --align 0", 2, "--align takes a whole number");
    says("pack in.csv -o x.csv --time soon", 2, "--time takes a number of seconds");
    says("pack in.csv -o x.csv --time 0", 2, "--time takes a number of seconds");
    says("pack in.csv -o x.csv --capacity 149", 3, "the lowest found takes 150");
    says("pack reversed.csv -o x.csv", 6, "reversed.csv: line 3: the interval is reversed");
    says("pack nowhere.csv -o x.csv", 8, "nowhere.csv");
    assert_false(exists("x.csv"));
}

#define EVAL "--eval " DATA " --eval-map test_image=image --eval-map test_label=target "

static double loss_after(const char *words)
{
    const char *at = strstr(output, words);
    if (at == NULL)
        fail_msg("no '%s' in:\n%s", words, output);
    return strtod(at + strlen(words), NULL);
}

/* 360 rows are five batches of 64 and one of 40; a step that changes nothing, over all of them with
 * dropout off and running statistics, has the same loss. */
TEST(a_trained_model_is_held_against_a_test_set)
{
    says("train " MODEL " --data " DATA " --map label=target --batch 64 --loss cross-entropy "
         "--optimizer adamw:lr=0.003 --epochs 3 --seed 3 --save-model tested.onnx " EVAL,
         0, "of 360");
    double loss = loss_after("digits.npz: loss ");
    const char *last = strstr(strstr(output, "digits.npz: loss "), "accuracy ");
    assert_true(last != NULL && strtod(last + strlen("accuracy "), NULL) > 85);
    says("train tested.onnx --data " DATA " --map test_image=image --map test_label=target "
         "--batch 360 --steps 1 --loss cross-entropy --optimizer sgd:lr=0 --dropout off "
         "--batch-norm frozen",
         0, "steps, loss ");
    double other = loss_after("steps, loss ");
    if (!(loss > other - 2e-5 && loss < other + 2e-5))
        fail_msg("%g is not %g", loss, other);
    says("train " MODEL " --data " DATA " --map label=target --loss cross-entropy --steps 1 "
         "--eval nowhere.npz",
         8, "nowhere.npz");
    says("train " MODEL " --data " DATA " --map label=target --loss cross-entropy --steps 1 "
         "--eval " DATA " --eval-map test_image",
         2, "ARRAY=INPUT");
    says("grad " STEP "-o plain.onnx", 0, "");
    says("train plain.onnx --data " DATA " --map label=target --batch 8 --steps 1 " EVAL, 2,
         "--eval runs the exported model");
}

#define COMPARE                                                                            \
    "bench " MODEL " --run --data " DATA " --map label=target --batch 8 --steps 1 --loss " \
    "cross-entropy -o lines.jsonl "

TEST(a_sweep_goes_on_where_it_stopped)
{
    says("bench --passes sign-mask", 2, "-o FILE");
    says("bench --passes sign-mask -o lines.jsonl", 2, "a list of \"models\"");
    says("bench " MODEL " --sweep x.json -o lines.jsonl", 2, "names models and passes itself");
    says("bench --sweep nowhere.json -o lines.jsonl", 2, "nowhere.json");
    write_text("other.txt", "not\na sweep", 11);
    says("bench " MODEL " --passes sign-mask -o other.txt", 2, "no file of a sweep");
    says(COMPARE "--passes sign-mask --passes attention --passes nothing-such", 1,
         "3 lines added to lines.jsonl, 0 were there");
    assert_non_null(strstr(output, "1.000000 0"));
    assert_non_null(strstr(output, "found nothing"));
    assert_non_null(strstr(output, "failed: there is no pass 'nothing-such'"));
    assert_non_null(strstr(output, "1 of 3 lines say that their step failed"));
    assert_int_equal(lines_of("lines.jsonl"), 3);
    says(COMPARE "--passes sign-mask --passes dropout-seed", 0, "1 lines added to lines.jsonl, 1");
    assert_int_equal(lines_of("lines.jsonl"), 3);    // what failed is tried again
    FILE *file = fopen(path_of("lines.jsonl"), "a"); // stopped in the middle of a line
    assert_non_null(file);
    (void)fputs("{\"schema\": \"ebb.sw", file);
    fclose(file);
    says(COMPARE "--passes dropout-seed --passes pool-index", 0, "1 lines added to lines.jsonl, 1");
    assert_int_equal(lines_of("lines.jsonl"), 4);
    file = fopen(path_of("lines.jsonl"), "r");
    assert_non_null(file);
    output[fread(output, 1, sizeof output - 1, file)] = '\0';
    fclose(file);
    assert_null(strstr(output, "ebb.sw{"));
    assert_non_null(strstr(output, "\"outcome\":\"measured\""));
    assert_non_null(strstr(output, "\"measured_arena_bytes\""));
}

TEST(a_sweep_file_lists_models_and_passes)
{
    static const char right[] =
        "{\"models\": [{\"name\": \"one\", \"model\": \"" MODEL
        "\", \"loss\": \"cross-entropy\", \"dim\": [\"batch=8\"]}],"
        " \"passes\": [\"sign-mask\", {\"passes\": \"\", \"budget\": \"80%\", \"plan-time\": 1},"
        " {\"passes\": \"pool-index\", \"models\": [\"two\"]}]}";
    static const char wrong[] = "{\"models\": [{\"model\": \"" MODEL
                                "\", \"colour\": \"red\"}], \"passes\": [\"sign-mask\"]}";
    static const char nameless[] = "{\"models\": [{\"name\": \"one\"}], \"passes\": [7]}";
    write_text("right.json", right, sizeof right - 1);
    write_text("wrong.json", wrong, sizeof wrong - 1);
    write_text("nameless.json", nameless, sizeof nameless - 1);
    says("bench --sweep right.json -o planned.jsonl", 0, "2 lines added to planned.jsonl");
    says("bench --sweep right.json -o planned.jsonl --json", 0, "\"there\": 2");
    says("bench --sweep wrong.json -o x.jsonl", 2, "'colour' is no option of `ebb bench`");
    says("bench --sweep nameless.json -o x.jsonl", 2, "\"model\": FILE");
}

#define MEASURE "bench " MODEL " --sensitivity --loss cross-entropy "

TEST(saved_tensors_are_measured_for_their_bits)
{
    says("bench --sensitivity", 2, "takes one model, not 0");
    says("bench " MODEL " " MODEL " --sensitivity", 2, "takes one model, not 2");
    says(MEASURE "-o s.json", 2, "--data FILE");
    says(MEASURE "--data " DATA, 2, "-o FILE");
    says(MEASURE "-o s.json --data nowhere.npz", 8, "nowhere.npz");
    says(MEASURE "-o s.json --data " DATA " --batch none", 2, "--batch takes a whole number");
    says(MEASURE "-o s.json --data " DATA " --batch 100000 --map label=target", 2,
         "rows are fewer than one batch");
    says(MEASURE "-o s.json --data " DATA " --map label", 2, "ARRAY=INPUT");
    says("bench " MODEL " --sensitivity --data " DATA " -o s.json", 2, "is no training step");
    assert_false(exists("s.json"));
    says(MEASURE "-o s.json --data " DATA " --map label=target --batch 8", 0,
         "7 tensors by the gradients of 11 parameters");
    assert_non_null(strstr(output, "7 of 7: /13/GlobalAveragePool_output_0"));
    says("grad " STEP "-o step.onnx --pass quantise:bits=mixed,measured=s.json", 0, "applied    7");
    says("grad " STEP "-o step.onnx", 0, "");
    says("bench step.onnx --sensitivity --data " DATA " --map label=target --json -o t.json", 0,
         "\"ebb.sensitivity/1\"");
    assert_true(exists("t.json"));
}

const fixture around_all = {make_folder, remove_folder};
