/* test_options.c: what the command takes as the value of an option, and what it refuses. */
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/text/text.h"
#include "tests/cli/cli.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/text.h"

#define MODEL DIGITS "mlp.onnx"
#define DATA DIGITS "digits.npz"
#define GRAD "grad " MODEL " --dim batch=8 --loss cross-entropy -o step.onnx "
#define TRAIN "train " MODEL " --data " DATA " --map label=target --loss cross-entropy --steps 1 "

TEST(every_numeric_option_states_its_range)
{
    static const struct {
        const char *words, *says;
    } wrong[] = {
        {TRAIN "--threads abc", "--threads takes a whole number from 0 to 4096, not 'abc'"},
        {TRAIN "--threads 80000", "--threads takes a whole number from 0 to 4096, not '80000'"},
        {TRAIN "--threads 4294967297", "from 0 to 4096, not '4294967297'"},
        {TRAIN "--threads -1", "from 0 to 4096, not '-1'"},
        {"plan " MODEL " --dim batch=8 --loss cross-entropy --run --threads 1.5", "not '1.5'"},
        {"run " MODEL " --data x.npz --threads 8x", "--threads takes a whole number"},
        {"run " MODEL " --data x.npz --save y.npz", "--save writes a safetensors file, no .npz"},
        {"train " MODEL " --data " DATA " --epochs 9223372036854775807",
         "--epochs takes a whole number from 1 to 1000000000, not '9223372036854775807'"},
        {"train " MODEL " --data " DATA " --epochs 0", "--epochs takes a whole number from 1"},
        {"train " MODEL " --data " DATA " --steps 99999999999999999999", "--steps takes"},
        {TRAIN "--batch 2147483648", "--batch takes a whole number from 1 to 2147483647"},
        {TRAIN "--seed -3", "--seed takes a whole number of at least 0, not '-3'"},
        {GRAD "--seed 1e3", "--seed takes a whole number of at least 0, not '1e3'"},
        {TRAIN "--checkpoint c.st --every 0", "--every takes a whole number of at least 1"},
        {GRAD "--budget disk=1GiB", "the device's memory, then other places"},
        {GRAD "--budget 1GiB,disk=1GiB,disk=2GiB", "each once"},
        {GRAD "--budget 1GiB,moon=1GiB", "then other places"},
        {GRAD "--budget 1GiB,time=5", "then other places"},
        {GRAD "--budget 1GiB,disk=0", "for --budget 1GiB,disk=0"},
        {GRAD "--budget 1GiB --plan-time nan", "--plan-time takes a number of seconds above 0"},
        {GRAD "--budget 1GiB --plan-time 1e7", "at most 1e6, not '1e7'"},
        {"pack x.csv -o y.csv --time 0", "--time takes a number of seconds above 0"},
        {"pack x.csv -o y.csv --align 0", "--align takes a whole number of bytes from 1"},
        {"pack x.csv -o y.csv --capacity 1.5", "--capacity takes a whole number of bytes"},
        {"few-bit --function silu --alpha inf", "--alpha takes a number above 0"},
        {"few-bit --function silu --alpha -1", "--alpha takes a number above 0"},
        {"few-bit --function gelu --bits 5", "--bits takes a whole number from 1 to 4"},
        {"reduce " MODEL " -o x.onnx --exit 256 -- true",
         "--exit takes a whole number from 0 to 255"},
        {"reduce " MODEL " -o x.onnx --timeout 0 -- true",
         "--timeout takes a whole number of seconds"},
        {"reduce " MODEL " -o x.onnx --tests no -- true", "--tests takes a whole number"},
        {"diff a.onnx b.onnx --run --steps 0", "--steps takes a whole number from 1"},
        {"bench --calibrate -o c.json --threads 5000", "--threads takes a whole number from 0"},
        {"bench " MODEL " --passes fold -o l.jsonl --run --steps many", "--steps takes"},
        {"plan " MODEL " --dim batch=8x",
         "--dim batch takes a whole number of at least 0, not '8x'"},
        {"plan " MODEL " --dim batch=99999999999999999999", "--dim batch takes a whole number"},
        {"plan " MODEL " --shape image:8xax8", "--shape image:AxBxC: a dim takes a whole number"},
        {"plan " MODEL " --shape image:1x1x1x1x1x1x1x1x1x1x1x1x1", "--shape takes INPUT:AxBxC"},
        {GRAD "--dropout 1.5", "ratio takes a number of at least 0 and below 1, not '1.5'"},
        {"train " MODEL " --data rows.jsonl --sequence 8 --tokenizer folder",
         "--tokenizer takes the model's tokenizer.json, not folder"},
        {GRAD "--dropout nan", "ratio takes a number of at least 0 and below 1, not 'nan'"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        says(wrong[i].words, 2, wrong[i].says);
    assert_false(exists("step.onnx"));
}

/* What they are is held by tests/kernels/test_split.c. */
TEST(products_of_float32_go_by_bfloat16_where_that_is_asked)
{
    static const char said[] = "cpu:bf16x3 is cpu with --fp32-by bf16x3";
    says(TRAIN "--fp32-by fp8", 2, said);
    says(TRAIN "--fp32-by bf16x3 --backend plain", 2, said);
    says("plan " MODEL " --dim batch=8 --loss cross-entropy --fp32-by bf16x3 --json", 0,
         "bf16x3.gemm");
    says(TRAIN "--seed 1", 0, "1 steps, loss ");
    const double expected = strtod(strstr(output, "1 steps, loss ") + 14, NULL);
    says(TRAIN "--seed 1 --fp32-by bf16x3", 0, "1 steps, loss ");
    const double got = strtod(strstr(output, "1 steps, loss ") + 14, NULL);
    assert_true(got - expected < 1e-4 && expected - got < 1e-4);
}

TEST(numbers_in_a_sweep_file_have_the_same_ranges)
{
    FILE *file = fopen(path_of("sweep.json"), "w");
    assert_non_null(file);
    fprintf(file,
            "{\"models\": [{\"model\": \"%s\", \"loss\": \"cross-entropy\", \"dim\": \"batch=8\", "
            "\"threads\": 80000, \"run\": true}], \"passes\": [\"sign-mask\"]}",
            MODEL);
    fclose(file);
    says("bench --sweep sweep.json -o lines.jsonl", 2,
         "--threads takes a whole number from 0 to 4096");
}

TEST(an_optimizers_numbers_have_ranges)
{
    static const char *const wrong[] = {
        "adamw:lr=-1",           "adamw:lr=nan",         "adamw:lr=inf",     "adamw:beta1=2",
        "adamw:beta1=-0.1",      "adamw:beta2=1",        "adamw:epsilon=-1", "adamw:epsilon=nan",
        "adamw:weight-decay=-1", "sgd:lr=-0.1",          "sgd:lr=nan",       "sgd:weight-decay=nan",
        "momentum:momentum=2",   "momentum:momentum=-1", "momentum:lr=x",    "momentum:lr=",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        says(formatted(GRAD "--optimizer %s", wrong[i]), 2, "pass optimizer: option ");
        assert_non_null(strstr(output, "takes a number"));
    }
    assert_false(exists("step.onnx"));
}

TEST(a_value_stays_the_value_of_its_option)
{
    says(GRAD "--train 'fc1*,freeze=x'", 2, "train=fc1*,freeze=x");
    says(GRAD "--freeze 'nothing,straight-through=on'", 2, "freeze=nothing,straight-through=on");
    says(GRAD "--train '\"1.weight'", 2, "train=\"1.weight");
    says(GRAD "--dropout '0.1,batch-norm=frozen'", 2, "'0.1,batch-norm=frozen'");
    says(GRAD "--batch-norm 'train,dropout=off'", 2, "batch-norm=train,dropout=off");
    says(GRAD "--precision 'bf16,sign-mask'", 2, "bf16,sign-mask");
    says(GRAD "--budget 1GiB --allow 'exact,time=5'", 2, "exact,time=5");
    says(GRAD "--optimizer 'sgd,sign-mask'", 2, "'sgd,sign-mask'");
    says(GRAD "--optimizer 'sgd:lr=0.1,fold'", 2, "'sgd:lr=0.1,fold'");
    says("grad " MODEL " --dim batch=8 --loss 'mse,sign-mask' -o step.onnx", 2, "'mse,sign-mask'");
    says(GRAD "--costs 'a,b.json'", 8, "a,b.json");
    assert_false(exists("step.onnx"));
    says(GRAD "--train '1.weight,3.weight'", 0, "");
    assert_true(exists("step.onnx"));
}

TEST(an_option_is_no_value_of_the_one_before)
{
    says("grad " MODEL " -o --loss mse", 2, "-o needs a value: -o FILE");
    says("train " MODEL " --data --batch 8", 2, "--data needs a value: --data FILE");
    says(TRAIN "--resume", 2, "--resume needs a value");
    says(TRAIN "--resume --seed 3", 2, "--resume needs a value");
    says(TRAIN "--resume=--seed", 8, "--seed"); // a file of that name is meant
}

/* ---- numbers that come out ---- */

/* The mean of (w x)^2, which is 14 / 3, in a type of its own. */
static void write_loss_of(int dtype)
{
    char text[1024];
    (void)snprintf(
        text, sizeof text,
        "<ir_version: 10, opset_import: [\"\" : 20]> g (float[2,3] x) => (%s loss) <float[3] w "
        "= {1, 2, 3}> { y = Mul (x, w) s = Mul (y, y) m = ReduceMean <keepdims = 0> (s) loss = "
        "Cast <to = %d> (m) }",
        dtype == 11 ? "double" : ebb_dtype_text(dtype), dtype);
    OWNED_MODEL *model = model_of(text);
    assert_null(ebb_save(model, path_of("loss.onnx")));
}

TEST(a_loss_is_read_as_what_it_is)
{
    static const float ones[6] = {1, 1, 1, 1, 1, 1};
    const ebb_named x = {"x", 1, 2, (const int64_t[]){2, 3}, ones};
    assert_null(ebb_tensors_save(path_of("x.safetensors"), &x, 1, NULL));
    static const struct {
        int dtype;
        const char *train, *run;
    } kinds[] = {{10, "loss 4.66796", "= 4.66796"},
                 {16, "loss 4.65625", "= 4.65625"},
                 {11, "loss 4.66666", "= 4.66666"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        write_loss_of(kinds[i].dtype);
        says("train loss.onnx --data x.safetensors --batch 2 --loss name=loss --optimizer sgd", 0,
             kinds[i].train);
        says("run loss.onnx --data x.safetensors", 0, kinds[i].run);
        says("run loss.onnx --data x.safetensors", 0, ebb_dtype_text(kinds[i].dtype));
        says("run loss.onnx --data x.safetensors --json", 0, "\"value\": 4.6");
    }
}

/* ---- marks in a file ---- */

/* The file `from` with each `old` replaced by `with`, which is as long. */
static void write_with(const char *to, const char *from, const char *old, const char *with)
{
    FILE *file = fopen(path_of(from), "rb");
    assert_non_null(file);
    size_t length = fread(output, 1, sizeof output, file), found = 0;
    fclose(file);
    for (size_t i = 0; i + strlen(old) <= length; i++)
        if (memcmp(output + i, old, strlen(old)) == 0) {
            memcpy(output + i, with, strlen(old));
            found++;
        }
    assert_true(found > 0);
    file = fopen(path_of(to), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(output, 1, length, file), length);
    fclose(file);
}

/* AdamW's outputs go over the weight and both moments. */
TEST(illegal_marks_of_memory_reject_the_file)
{
    static const struct {
        const char *marks, *says;
    } wrong[] = {
        {"0:0 1:4 2:5", "which has other bytes"},
        {"0:2 1:2 2:5", "over which another output is written"},
        {"0:3 1:4 2:5", "which the operator may not write over"},
        {"0:9 1:4 2:5", "metadata ebb.inplace is not a list"},
        {"x:2 1:4 2:5", "metadata ebb.inplace is not a list"},
    };
    says("grad " MODEL " --dim batch=8 --loss cross-entropy -o marks.onnx", 0, "");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_with("bad.onnx", "marks.onnx", "0:2 1:4 2:5", wrong[i].marks);
        says("plan bad.onnx", 6, wrong[i].says);
        says("check bad.onnx", 6, wrong[i].says);
        says("train bad.onnx --data " DATA " --map label=target --batch 8", 6, wrong[i].says);
    }
}

const fixture around_all = {make_folder, remove_folder};
