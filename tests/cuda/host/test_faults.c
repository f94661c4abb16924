/* test_faults.c: what goes wrong with a device. libebb_cuda_fake_plugin.so is the back end with the
 * very code that calls the CUDA runtime, over one that is played by the host (fake_runtime.h): each
 * of its calls fails once, and once for good. What must come of it: right numbers or one sentence,
 * the node's name where there is one, nothing that is left over, and a CPU that is as before.
 *
 * Then the commands, each in a process of its own: no device, other libraries, the real runtime
 * over a driver that is too old or does not begin (fake_driver.c).
 */
#include <dlfcn.h>
#include <jansson.h>
#include <math.h>

#include "exec/run/program.h"
#include "kernels/cuda/host/fake_runtime.h"
#include "onnx/file/file.h"
#include "tests/cli/cli.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/text.h"

#define PLUGIN EBB_BINARY_DIR "/kernels/cuda/libebb_cuda_fake_plugin.so"
#define WITHOUT "EBB_CUDNN=/nowhere EBB_CUBLASLT=/nowhere EBB_NVRTC=/nowhere "

/* ---- every call of the runtime fails in turn ---- */

enum { STEPS = 4 }; /* call by call, recorded, replayed twice */

/* CumSum over an axis that only the run knows is computed by the host in the midst of the step. */
#define MODEL                                                                                      \
    "<ir_version: 10, opset_import: [\"\" : 20]> g (float[4,3] x, int64[4] lengths, int64 axis) "  \
    "=> (float loss) <float[3,3] w = {0.5, -0.25, 0.125, 1, 0.75, -1, 0.25, 0.5, -0.5}, int64[1] " \
    "last = {1}> { h = MatMul (x, w) sums = CumSum (lengths, axis) of = Cast <to = 1> (sums) "     \
    "rows "                                                                                        \
    "= Unsqueeze (of, last) y = Mul (h, rows) z = Tanh (y) s = Mul (z, z) loss = ReduceMean "      \
    "<keepdims = 0> (s) }"

static ebb_fake_runtime *fake;

typedef struct training {
    ebb_program *program;
    int done;
    float loss[STEPS];
} training;

static ebb_status step(training *t)
{
    static const int64_t of_x[2] = {4, 3}, four = 4, lengths[4] = {3, 1, 2, 2}, axis = 0;
    static const float x[12] = {1, 2, 3, -1, 0.5f, 2, 0, 1, -2, 3, 0.25f, -0.75f};
    const ebb_named list[3] = {
        {"x", 1, 2, of_x, x}, {"lengths", 7, 1, &four, lengths}, {"axis", 7, 0, NULL, &axis}};
    ebb_named loss;
    EBB_TRY(ebb_program_step(t->program, &(ebb_batch){list, 3}));
    EBB_TRY(ebb_program_get(t->program, ebb_program_loss_name(t->program), &loss));
    t->loss[t->done++] = *(const float *)loss.data;
    return NULL;
}

static ebb_status train(training *t, ebb_model *model, const char *backend, bool profile)
{
    const ebb_compile_options options = {.backend = backend, .profile = profile};
    *t = (training){0};
    EBB_TRY(ebb_program_compile(&t->program, model, &options));
    while (t->done < STEPS)
        EBB_TRY(step(t));
    (void)ebb_program_measure(t->program);
    return NULL;
}

static bool names_a_node(const ebb_program *p, const char *text)
{
    for (uint32_t k = 0; k < p->plan.count; k++)
        if (strncmp(text, p->plan.calls[k].node, strlen(p->plan.calls[k].node)) == 0)
            return true;
    return false;
}

/* One sentence, CUDA's name of the error in it; lines below it are trail and hint. */
static void judge(const training *t, ebb_status status, const char *expected)
{
    const char *text = ebb_status_text(status), *call = fake->failed;
    const size_t length = strcspn(text, "\n");
    char sentence[2048];
    (void)snprintf(sentence, sizeof sentence, "%.*s", (int)length, text);
    if (strstr(sentence, expected) == NULL && strstr(sentence, "of device memory cannot") == NULL)
        fail_msg("%s failed, call %llu; said: %s", call, (unsigned long long)fake->at, text);
    const ebb_code code = ebb_status_code(status);
    if (code != EBB_RUNTIME && (code != EBB_DEVICE || t->program != NULL))
        fail_msg("%s failed: code %d: %s", call, (int)code, text);
    if (code == EBB_DEVICE && strstr(text, "\n  hint: ") == NULL)
        fail_msg("%s failed, and what would help is not said: %s", call, text);
    if ((strcmp(call, "cudaLaunchKernel") == 0 || strcmp(call, "cudaLaunchHostFunc") == 0) &&
        !names_a_node(t->program, text))
        fail_msg("%s failed, and no node is named: %s", call, text);
}

/* False: no call had this number, so all have failed. */
static bool fail_at(uint64_t at, int error, bool stays, bool profile, ebb_model *model,
                    const training *right)
{
    training t;
    *fake = (ebb_fake_runtime){
        .at = at, .error = error, .stays = stays, .capability = 90, .free_bytes = 1u << 30};
    ebb_status status = train(&t, model, "cuda", profile);
    const char *call = fake->failed;
    if (status != NULL && call == NULL)
        fail_msg("no call failed: %s", ebb_status_text(status));
    if (status != NULL)
        judge(&t, status, error == 2 ? "cudaErrorMemoryAllocation" : "cudaErrorIllegalAddress");
    else if (memcmp(t.loss, right->loss, sizeof t.loss) != 0)
        fail_msg("%s failed, and the numbers are others: %g for %g", call,
                 (double)t.loss[STEPS - 1], (double)right->loss[STEPS - 1]);
    if (status != NULL && t.program != NULL && !stays && (status = step(&t)) != NULL)
        fail_msg("after %s had failed once: %s", call, ebb_status_text(status));
    ebb_program_free(t.program);
    if (fake->live != 0)
        fail_msg("%s failed: %lld things of the device are left over", call, (long long)fake->live);
    return call != NULL;
}

/* In the first so many ways: of two none has a profile. */
static void each_call_may_fail(const char *behind, size_t count)
{
    static const struct {
        int error;
        bool stays, profile;
    } ways[] = {{2, false, false}, {700, true, false}, {2, false, true}, {700, true, true}};
    training right, cpu;
    char passes[256];
    (void)snprintf(passes, sizeof passes,
                   "loss:name=loss,gradient,optimizer:sgd,lr=0.1,drop-saves%s,alias", behind);
    OWNED_MODEL *model = parsed(MODEL);
    assert_null(ebb_rewrite(model, passes, NULL, NULL));
    *fake = (ebb_fake_runtime){.capability = 90, .free_bytes = 1u << 30};
    assert_null(train(&right, model, "cuda", false));
    assert_int_equal(right.program->replayed, STEPS - 2);
    ebb_program_free(right.program);
    for (size_t i = 0; i < count; i++) {
        uint64_t at = 1;
        while (fail_at(at, ways[i].error, ways[i].stays, ways[i].profile, model, &right))
            at++;
        assert_true(at > 60);
    }
    ebb_status status = train(&cpu, model, "cpu", false);
    if (status != NULL)
        fail_msg("on the CPU, after all that: %s", ebb_status_text(status));
    ebb_program_free(cpu.program);
}

TEST(each_call_of_the_runtime_may_fail)
{
    each_call_may_fail("", 4);
}

/* Streams, events and pinned memory that values in other places ask for. */
TEST(each_call_beside_the_work_may_fail)
{
    each_call_may_fail(",offload:place=host,least=1", 2);
    each_call_may_fail(",offload:place=disk,least=1", 2);
}

/* Of two diffs, all but times. */
static void same_numbers(const char *a, const char *b)
{
    static const char *const keys[] = {"values", "gradients", "bit_equal", "max_abs_error"};
    json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        const json_t *of = json_object_get(y, keys[k]);
        assert_non_null(of);
        assert_true(json_equal(json_object_get(x, keys[k]), of));
    }
    json_decref(x);
    json_decref(y);
}

/* A diff that could not read a value may not say that the two are the same. */
TEST(a_comparison_that_cannot_read_the_device_is_an_error)
{
    static const char small[] =
        "<ir_version: 10, opset_import: [\"\" : 20]> g (float[4,3] x) => (float loss) <float[3,3] "
        "w = {0.5, -0.25, 0.125, 1, 0.75, -1, 0.25, 0.5, -0.5}> { h = MatMul (x, w) z = Tanh (h) "
        "s = Mul (z, z) loss = ReduceMean <keepdims = 0> (s) }";
    ebb_model *models[2];
    const ebb_plan_options options = {.backend = "cuda", .run = true, .brief = true};
    char *right = NULL, *json = NULL;
    uint64_t at = 0, failures = 0;
    for (int k = 0; k < 2; k++) {
        assert_null(ebb_text_parse_model(&models[k], small));
        assert_null(ebb_rewrite(models[k], "loss:name=loss,gradient,optimizer:sgd", NULL, NULL));
    }
    *fake = (ebb_fake_runtime){.capability = 90, .free_bytes = 1u << 30};
    ebb_status status = ebb_diff_json(models[0], models[1], &options, &right);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
    do {
        *fake = (ebb_fake_runtime){
            .at = ++at, .name = "cudaMemcpy", .error = 2, .capability = 90, .free_bytes = 1u << 30};
        status = ebb_diff_json(models[0], models[1], &options, &json);
        if (status == NULL)
            same_numbers(json, right);
        failures += status != NULL;
        assert_int_equal(fake->live, 0);
        ebb_release(json);
        json = NULL;
    } while (fake->failed != NULL);
    assert_true(failures > 10 && failures == at - 1);
    ebb_release(right);
    for (int k = 0; k < 2; k++)
        ebb_close(models[k]);
}

/* The gradient of a LayerNorm sums in shared memory: 52 KB of it for so wide a row, of which a device
 * gives 48 KiB unasked. */
TEST(shared_memory_beyond_48_KiB_is_asked_for)
{
    static const char wide[] =
        "<ir_version: 10, opset_import: [\"\" : 20]> g (float[4,1600,2] x) => (float loss) "
        "<float[2] "
        "w = {0.5, 0.75}, int64[2] columns = {1600, 2}> { scale = Expand (w, columns) y = "
        "LayerNormalization <axis = -2> (x, scale) s = Tanh (y) loss = ReduceMean <keepdims = 0> "
        "(s) }";
    static const int64_t dims[3] = {4, 1600, 2};
    static const char *const backends[] = {"cuda", "cpu"};
    static float x[4 * 3200];
    const ebb_named input = {"x", 1, 3, dims, x};
    float w[2] = {0};
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = (float)(i * i % 97);
    OWNED_MODEL *model = parsed(wide);
    ebb_status status =
        ebb_rewrite(model, "loss:name=loss,gradient,optimizer:sgd,lr=0.1", NULL, NULL);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
    *fake = (ebb_fake_runtime){
        .name = "cudaFuncSetAttribute", .capability = 90, .free_bytes = 1u << 30};
    for (int k = 0; k < 2; k++) {
        const ebb_compile_options options = {.backend = backends[k]};
        OWNED_PROGRAM *program = NULL;
        ebb_named value;
        assert_null(ebb_program_compile(&program, model, &options));
        status = ebb_program_step(program, &(ebb_batch){&input, 1});
        if (status != NULL)
            fail_msg("%s: %s", backends[k], ebb_status_text(status));
        assert_null(ebb_program_get(program, "w", &value));
        w[k] = *(const float *)value.data;
    }
    assert_true(fake->calls > 0);
    assert_true(w[0] != 0.5f && fabsf(w[0] - w[1]) < 1e-6f);
}

/* ---- commands ---- */

#define ON_DIGITS \
    "--map label=target --batch 2 --loss cross-entropy --data " DIGITS "digits.npz --steps "
#define TRAIN DIGITS "mlp.onnx " ON_DIGITS "4"

/* Operators of which chains are made. */
#define CHAINED DIGITS "transformer.onnx " ON_DIGITS "2"

/* In the environment `with`; a child that hangs is ended with 124. */
static void said(const char *with, const char *arguments, int code, const char *words)
{
    const int got = run_command(formatted("env %s timeout 60 " EBB " %s 2>&1", with, arguments));
    if (got != code || strstr(output, words) == NULL)
        fail_msg("%s ebb %s\nexit %d, expected %d; said:\n%s\nexpected to read: %s\n", with,
                 arguments, got, code, output, words);
}

static int make_step(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    said("", "grad " DIGITS "mlp.onnx --dim batch=2 --loss cross-entropy -o step.onnx", 0, "");
    return 0;
}

/* Each verb where the device is `with`; and the CPU, which knows nothing of it. */
static void verbs_say(const char *with, int code, const char *words)
{
    said(with, "train " TRAIN " --backend cuda", code, words);
    said(with, "plan step.onnx --run --backend cuda", code, words);
    said(with, "diff step.onnx step.onnx --run --backend cuda", code, words);
    said(with, "bench --calibrate step.onnx -o c.json --backend cuda", code, words);
    said(with, "train " TRAIN, 0, "4 steps");
    said(with, "plan step.onnx --run --backend cpu", 0, "arena");
    said(with, "plan step.onnx --backend cuda", 0, "arena");
    said(with, "devices", 0, "the processor");
}

TEST(without_a_device_verbs_exit_with_7_and_the_cpu_goes_on)
{
    verbs_say(WITHOUT "EBB_FAKE_FAULT=cudaGetDeviceCount:1:100:stays", 7, "no CUDA device");
    assert_non_null(strstr(output, "no CUDA device"));
    said("EBB_CUDA_PLUGIN=/nowhere.so", "train " TRAIN " --backend cuda", 7, "/nowhere.so");
    said("EBB_CUDA_PLUGIN=/nowhere.so", "train " TRAIN, 0, "4 steps");
    said("EBB_CUDA_PLUGIN=" DIGITS "mlp.onnx", "devices", 0, "mlp.onnx: ");
}

TEST(a_device_that_cannot_be_used_says_what_would_help)
{
    static const struct {
        const char *with, *words, *help;
    } all[] = {
        {"EBB_FAKE_FAULT=cudaGetDeviceCount:1:100:stays CUDA_VISIBLE_DEVICES=7", "no CUDA device",
         "CUDA_VISIBLE_DEVICES is '7'"},
        {"EBB_FAKE_CAPABILITY=50", "compute capability 5.0, this needs 8.0", "--backend cpu"},
        {"EBB_FAKE_FAULT=cudaGetDeviceCount:1:803:stays", "cudaErrorSystemDriverMismatch",
         "restart the machine"},
        {"EBB_FAKE_FAULT=cudaGetDeviceCount:1:802:stays", "cudaErrorSystemNotReady",
         "nvidia-fabricmanager"},
        {"EBB_FAKE_FAULT=cudaGetDevice:2:800:stays", "cudaErrorNotPermitted", "COMPUTE"},
        {"EBB_FAKE_FAULT=cudaMemGetInfo:1:46:stays", "cudaErrorDevicesUnavailable", "COMPUTE"},
        {"EBB_FAKE_FAULT=cudaMemGetInfo:1:2:stays", "cudaErrorMemoryAllocation",
         "others hold its memory"},
        {"EBB_FAKE_FAULT=cudaMemGetInfo:1:805:stays", "cudaErrorMpsConnectionFailed", "MPS"},
    };
    char with[256];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        (void)snprintf(with, sizeof with, WITHOUT "%s", all[i].with);
        said(with, "devices", 0, all[i].words);
        if (strstr(output, all[i].help) == NULL)
            fail_msg("%s: expected to read %s:\n%s", with, all[i].help, output);
    }
    said(WITHOUT "EBB_FAKE_CAPABILITY=50", "train " TRAIN " --backend cuda", 7, "capability 5.0");
    said(WITHOUT "EBB_FAKE_FAULT=cudaStreamCreate:1:2:stays", "train " TRAIN " --backend cuda", 7,
         "others hold its memory");
}

TEST(memory_that_others_hold_and_kernels_that_fail_exit_with_1)
{
    verbs_say(WITHOUT "EBB_FAKE_BYTES=10000", 1, "of device memory cannot be had: 10000 of");
    said(WITHOUT "EBB_FAKE_FAULT=launch:9:700:stays", "train " TRAIN " --backend cuda", 1,
         "CUDA_LAUNCH_BLOCKING=1 with --profile names the node");
    said(WITHOUT "EBB_FAKE_FAULT=cudaGraphLaunch:2:702:stays", "train " TRAIN " --backend cuda", 1,
         "shows a screen");
    said(WITHOUT "EBB_FAKE_FAULT=cudaStreamSync:30:214:stays", "train " TRAIN " --backend cuda", 1,
         "the device failed, not the model");
}

/* Where a copy fails nothing is told that was not read. */
TEST(what_cannot_be_read_is_not_told)
{
    static const char *const verbs[] = {"train " TRAIN " --backend cuda",
                                        "run " DIGITS "mlp.onnx --dim batch=2 --backend cuda "
                                        "--data image.safetensors"};
    static const float zeros[2 * 64];
    static const int64_t dims[4] = {2, 1, 8, 8};
    const ebb_named image = {"image", 1, 4, dims, zeros};
    char with[256], right[512];
    assert_null(ebb_tensors_save(path_of("image.safetensors"), &image, 1, NULL));
    for (int k = 0; k < 2; k++) {
        int failures = 0, code = 1;
        said(WITHOUT, verbs[k], 0, "");
        const char *arena = strstr(output, ", arena"); // after it stand times
        const size_t length = arena != NULL ? (size_t)(arena - output) : strcspn(output, ",");
        (void)snprintf(right, sizeof right, "%.*s", (int)length, output);
        for (int at = 1; code == 1; at += 3, failures++) {
            (void)snprintf(with, sizeof with, "env " WITHOUT "EBB_FAKE_FAULT=cudaMemcpy:%d:2 ", at);
            code = run_command(formatted("%s timeout 60 " EBB " %s 2>&1", with, verbs[k]));
        }
        if (code != 0 || failures < 5 || strncmp(output, right, strlen(right)) != 0)
            fail_msg("%s ebb %s\nexit %d:\n%s\nwithout the fault:\n%s", with, verbs[k], code,
                     output, right);
    }
}

TEST(libraries_that_are_not_what_they_should_be_are_told_and_own_kernels_compute)
{
    static const char *const names[] = {"cuDNN 9", "cuBLASLt 13", "NVRTC 13"};
    static const char *const variables[] = {"EBB_CUDNN", "EBB_CUBLASLT", "EBB_NVRTC"};
    static const struct {
        const char *file, *mode, *words[3];
    } all[] = {
        {EBB_FAKE_LIBRARY, "old", {"version 8.9, and 9", "version 12.8, and 13", "version 11.8"}},
        {EBB_FAKE_PART, "", {"has no cudnnCreate", "has no cublasLtCreate", "has no nvrtcCreate"}},
        {EBB_FAKE_LIBRARY, "refuses", {"it is broken", "it is broken", "NVRTC 13.0"}},
        {DIGITS "mlp.onnx", "", {"mlp.onnx: ", "mlp.onnx: ", "mlp.onnx: "}},
    };
    char with[2048], reason[256];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        (void)snprintf(with, sizeof with, "EBB_FAKE_LIBRARY=%s EBB_CACHE=%s %s=%s %s=%s %s=%s",
                       all[i].mode, folder, variables[0], all[i].file, variables[1], all[i].file,
                       variables[2], all[i].file);
        said(with, "devices", 0, "a device of the tests");
        for (int k = 0; k < 3; k++) {
            (void)snprintf(reason, sizeof reason, "no %s (", names[k]);
            if (strstr(output, all[i].words[k]) == NULL ||
                (strstr(output, reason) == NULL && strcmp(all[i].words[k], "NVRTC 13.0") != 0))
                fail_msg("%s: expected to read %s%s:\n%s", with, reason, all[i].words[k], output);
        }
        (void)strncat(with, " EBB_CUDA_CHAINS=1", sizeof with - strlen(with) - 1);
        said(with, "train " CHAINED " --backend cuda", 0, "2 steps");
        said(with, "train " TRAIN, 0, "4 steps");
        said(with, "plan step.onnx --device h100", 0, "arena");
    }
}

TEST(the_real_runtime_over_a_driver_that_cannot_serve_it)
{
    static const struct {
        const char *with, *words;
    } all[] = {
        {"EBB_FAKE_DRIVER=11000", "the NVIDIA driver is for CUDA 11.0, this needs 13."},
        {"EBB_FAKE_INIT=100", "there is no CUDA device on this machine"},
        {"EBB_FAKE_INIT=2", "cudaErrorMemoryAllocation"},
        {"EBB_FAKE_INIT=46", "cudaErrorDevicesUnavailable"},
        {"EBB_FAKE_INIT=800", "cudaErrorNotPermitted"},
        {"EBB_FAKE_INIT=802", "cudaErrorSystemNotReady"},
        {"EBB_FAKE_INIT=803", "cudaErrorSystemDriverMismatch"},
        {"EBB_FAKE_INIT=999", "cudaErrorUnknown"},
    };
    char with[2048];
    if (access(EBB_REAL_PLUGIN, R_OK) != 0) {
        print_message("SKIPPED: libebb_cuda.so is not built, which carries the real runtime\n");
        skip();
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        (void)snprintf(with, sizeof with,
                       "%s LD_LIBRARY_PATH=" EBB_FAKE_DRIVER_FOLDER
                       " EBB_CUDA_PLUGIN=" EBB_REAL_PLUGIN " " WITHOUT,
                       all[i].with);
        said(with, "devices", 0, all[i].words);
        assert_non_null(strstr(output, "hint: "));
        said(with, "train " TRAIN " --backend cuda", 7, all[i].words);
        said(with, "train " TRAIN, 0, "4 steps");
    }
}

const fixture around_all = {make_step, remove_folder};

int main(void)
{
    void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    fake = plugin != NULL ? dlsym(plugin, "ebb_fake") : NULL;
    if (fake == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    (void)setenv("EBB_CUDA_PLUGIN", PLUGIN, 1);
    (void)setenv("EBB_CUDNN", "/nowhere", 1);
    (void)setenv("EBB_CUBLASLT", "/nowhere", 1);
    return run_listed();
}
