/* test_step.c: whole steps by --backend cuda where the device is played by the host.
 *
 * Four steps each: the first runs call by call, the second is recorded, the others replay the
 * record: a value that a kernel kept in its arguments would stand still.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "tests/models/models.h"
#include "tests/owned.h"
#include "tests/status.h"

enum { STEPS = 4 };

typedef struct sample { /* a model of the repository, and how its step is made */
    const char *model, *batch, *loss;
    const char *inputs[2]; /* then: arrays of the data */
    const char *data;
    const char *arrays[2];
} sample;

static const sample samples[] = {
    {"digits/cnn.onnx",
     "batch",
     "loss:cross-entropy",
     {"image", "target"},
     "digits/digits.npz",
     {"image", "label"}},
    {"digits/mlp.onnx",
     "batch",
     "loss:cross-entropy",
     {"image", "target"},
     "digits/digits.npz",
     {"image", "label"}},
    {"digits/transformer.onnx",
     "batch",
     "loss:cross-entropy",
     {"image", "target"},
     "digits/digits.npz",
     {"image", "label"}},
    {"text/char.onnx",
     "batch",
     "loss:cross-entropy,axis=-1",
     {"ids", "target"},
     "text/text.npz",
     {"ids", "target"}},
};
enum { SAMPLES = sizeof samples / sizeof samples[0], ROWS = 2 };

typedef struct running {
    ebb_model *model;
    ebb_program *program;
    ebb_data *data;
} running;

static ebb_status start(running *r, const sample *s, const char *passes, const char *backend,
                        bool profile)
{
    char path[1024], pipeline[1024];
    *r = (running){0};
    (void)snprintf(path, sizeof path, "%s/samples/%s", EBB_SOURCE_DIR, s->model);
    good(ebb_open(&r->model, path));
    good(ebb_set_dim(r->model, s->batch, ROWS));
    (void)snprintf(path, sizeof path, "%s/samples/%s", EBB_SOURCE_DIR, s->data);
    good(ebb_data_open(&r->data, path, NULL));
    (void)snprintf(pipeline, sizeof pipeline,
                   "inline,fold,train-mode,fold,fuse,%s,gradient,optimizer:adamw%s%s,drop-saves,"
                   "stream:tile=2KiB,alias",
                   s->loss, passes[0] != '\0' ? "," : "", passes);
    good(ebb_rewrite(r->model, pipeline, NULL, NULL));
    const ebb_compile_options options = {.backend = backend, .seed = 7, .profile = profile};
    return ebb_program_compile(&r->program, r->model, &options);
}

static void stop(running *r)
{
    ebb_program_free(r->program);
    ebb_data_close(r->data);
    ebb_close(r->model);
}

static ebb_status step(running *r, const sample *s, int number)
{
    const int64_t rows[ROWS] = {2 * number, 2 * number + 1};
    const char *feeds[5] = {s->arrays[0], s->inputs[0], s->arrays[1], s->inputs[1], NULL};
    ebb_batch batch;
    good(ebb_data_rows(r->data, rows, ROWS, feeds, &batch));
    return ebb_program_step(r->program, &batch);
}

static double loss_of(running *r)
{
    ebb_named loss;
    good(ebb_program_get(r->program, ebb_program_loss_name(r->program), &loss));
    return (double)*(const float *)loss.data;
}

static void losses_of(double *losses, const sample *s, const char *passes, const char *backend)
{
    running r;
    good(start(&r, s, passes, backend, false));
    for (int k = 0; k < STEPS; k++) {
        good(step(&r, s, k));
        losses[k] = loss_of(&r);
    }
    ebb_program_facts facts = ebb_program_measure(r.program);
    assert_true(facts.measured_arena_bytes == facts.planned_arena_bytes);
    stop(&r);
}

/* Of a sample without passes and chains; run once. */
static const double *usual_losses(size_t i)
{
    static double losses[SAMPLES][STEPS];
    if (losses[i][0] == 0) {
        (void)setenv("EBB_CUDA_CHAINS", "0", 1);
        losses_of(losses[i], &samples[i], "", "cuda");
        (void)unsetenv("EBB_CUDA_CHAINS");
    }
    return losses[i];
}

static void near_the_cpu(size_t i, const double *gpu, const double *cpu, double share)
{
    for (int k = 0; k < STEPS; k++)
        if (!(fabs(cpu[k] - gpu[k]) <= share * fabs(cpu[k])))
            fail_msg("%s, step %d: loss %.9g, on the CPU %.9g", samples[i].model, k, gpu[k],
                     cpu[k]);
}

TEST(steps_are_those_of_the_cpu)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        double cpu[STEPS], joined[STEPS];
        losses_of(cpu, &samples[i], "", "plain");
        near_the_cpu(i, usual_losses(i), cpu, 2e-4);
        if (i > 0)
            continue;
        losses_of(joined, &samples[i], "layout,relu-epilogue", "cuda"); // one kernel, or the parts'
        near_the_cpu(i, joined, cpu, 2e-4);
    }
}

/* And a second run of the same gives the same bits, whatever the order of threads. */
TEST(exact_passes_change_no_bit)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        double exact[STEPS];
        (void)setenv("EBB_CUDA_ORDER", "reverse", 1);
        losses_of(exact, &samples[i],
                  "sign-mask,pool-index,dropout-seed,recompute:budget=95%,"
                  "backend=cuda",
                  "cuda");
        (void)unsetenv("EBB_CUDA_ORDER");
        assert_memory_equal(usual_losses(i), exact, sizeof exact);
    }
}

/* Those that follow each other in one launch: the same bits, values that are kept for later too. */
TEST(chains_change_no_bit)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        double chained[STEPS];
        (void)setenv("EBB_CUDA_CHAINS", "1", 1);
        losses_of(chained, &samples[i], "sign-mask", "cuda");
        (void)unsetenv("EBB_CUDA_CHAINS");
        assert_memory_equal(usual_losses(i), chained, sizeof chained);
    }
}

/* What a step needs first (kernels that load, handles of libraries) is not for a record: the first
 * step of a program is run call by call, though it is the fourth of a training. */
TEST(a_training_goes_on_from_a_checkpoint)
{
    char path[] = "/tmp/ebb-step-XXXXXX";
    const sample *s = &samples[1];
    running r;
    double whole[STEPS], rest[STEPS];
    assert_true(mkstemp(path) >= 0);
    good(start(&r, s, "", "cuda", false));
    for (int k = 0; k < STEPS; k++) {
        if (k == 2)
            good(ebb_checkpoint_save(r.program, path, NULL));
        good(step(&r, s, k));
        whole[k] = loss_of(&r);
    }
    assert_int_equal(r.program->replayed, STEPS - 2);
    stop(&r);
    good(start(&r, s, "", "cuda", false));
    good(ebb_checkpoint_load(r.program, path, NULL));
    (void)remove(path);
    for (int k = 0; k < STEPS; k++) {
        good(step(&r, s, k + 2));
        rest[k] = loss_of(&r);
    }
    assert_int_equal(r.program->replayed, STEPS - 2);
    stop(&r);
    assert_memory_equal(rest, whole + 2, 2 * sizeof *rest);
}

TEST(a_step_that_cannot_be_recorded_is_run_call_by_call)
{
    const sample *s = &samples[1];
    running r;
    if (getenv("EBB_TEST_BACKEND") != NULL)
        skip(); // the emulator alone can be told not to record
    const double *expected = usual_losses(1);
    (void)setenv("EBB_CUDA_RECORDS", "0", 1);
    good(start(&r, s, "", "cuda", false));
    for (int k = 0; k < STEPS; k++) {
        good(step(&r, s, k));
        assert_true(loss_of(&r) == expected[k]);
    }
    (void)unsetenv("EBB_CUDA_RECORDS");
    assert_int_equal(r.program->replayed, 0);
    stop(&r);
}

TEST(techniques_run_there_too)
{
    static const char *const passes = "attention,invert,norm-from-output,dropout-seed,pool-index,"
                                      "quantise:bits=4";
    for (size_t i = 0; i < SAMPLES; i++) {
        double cpu[STEPS], gpu[STEPS];
        losses_of(cpu, &samples[i], passes, "plain");
        losses_of(gpu, &samples[i], passes, "cuda");
        near_the_cpu(i, gpu, cpu, 2e-2); // draws are the same; what rounding tips over is few
    }
}

TEST(a_profile_times_every_node)
{
    running r;
    char *json;
    good(start(&r, &samples[1], "", "cuda", true));
    for (int k = 0; k < 3; k++)
        good(step(&r, &samples[1], k));
    good(ebb_program_profile_json(r.program, &json));
    json_t *o = json_loads(json, 0, NULL), *node;
    size_t i, timed = 0;
    json_array_foreach(json_object_get(o, "nodes"), i, node) {
        assert_true(strncmp(json_string_value(json_object_get(node, "kernel")), "cuda.", 5) == 0 ||
                    strncmp(json_string_value(json_object_get(node, "kernel")), "stream", 6) == 0);
        timed += json_integer_value(json_object_get(node, "ns")) > 0;
    }
    assert_true(timed > i / 2);
    json_decref(o);
    ebb_release(json);
    stop(&r);
}

TEST(an_index_out_of_range_is_told_with_its_node)
{
    const sample *s = &samples[3];
    running r;
    if (getenv("EBB_CUDA_PLAYER") != NULL)
        skip(); // the rows that are left out are read before the step ends: it refuses that
    good(start(&r, s, "", "cuda", false));
    const int64_t rows[ROWS] = {0, 1};
    const char *feeds[5] = {s->arrays[0], s->inputs[0], s->arrays[1], s->inputs[1], NULL};
    for (int k = 0; k < 3; k++) { // before, while and after the step is recorded
        ebb_batch batch;
        good(ebb_data_rows(r.data, rows, ROWS, feeds, &batch));
        int64_t *ids = NULL;
        for (size_t i = 0; i < batch.count; i++)
            if (strcmp(batch.tensors[i].name, "ids") == 0)
                ids = (int64_t *)(uintptr_t)batch.tensors[i].data;
        assert_non_null(ids);
        int64_t kept = ids[3];
        ids[3] = 987654;
        ebb_status status = ebb_program_step(r.program, &batch);
        ids[3] = kept;
        assert_non_null(status);
        assert_int_equal(ebb_status_code(status), EBB_RUNTIME);
        if (strstr(ebb_status_text(status), "index 987654 is outside") == NULL ||
            strstr(ebb_status_text(status), "Gather") == NULL)
            fail_msg("step %d: %s", k, ebb_status_text(status));
    }
    stop(&r);
}

/* ---- the host in between ---- */

#define VISITING                                                                                   \
    "<ir_version: 10, opset_import: [\"\" : 20]> g (float[4,3] x, int64[4] lengths, int64 axis, "  \
    "float[4,3] target) => (float loss) <float[3,3] w = {0.5, -0.25, 0.125, 1, 0.75, -1, 0.25, "   \
    "0.5, -0.5}, "                                                                                 \
    "int64[1] last = {1}, int64[3] found, int64[3] first> "                                        \
    "{ h = MatMul (x, w) found, first, which = Unique (lengths) "                                  \
    "counts = TfIdfVectorizer <mode = \"TF\", min_gram_length = 1, max_gram_length = 1, "          \
    "max_skip_count = 0, ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_int64s = [1, 2, 3]> " \
    "(lengths) sums = CumSum (lengths, axis) at = Add (which, sums) of = Cast <to = 1> (at) rows " \
    "= Unsqueeze (of, last) "                                                                      \
    "y = Mul (h, rows) z = Add (y, counts) d = Sub (z, target) s = Mul (d, d) "                    \
    "loss = ReduceMean <keepdims = 0> (s) }"

/* One step; *loss is that of it. */
static ebb_status visiting_step(ebb_program *p, int64_t length, int64_t axis, float *loss)
{
    static const int64_t of_x[2] = {4, 3}, four = 4;
    static const float x[12] = {1, 2, 3, -1, 0.5f, 2, 0, 1, -2, 3, 0.25f, -0.75f}, target[12] = {0};
    const int64_t lengths[4] = {3, 1, length, 2};
    const ebb_named list[4] = {{"x", 1, 2, of_x, x},
                               {"lengths", 7, 1, &four, lengths},
                               {"axis", 7, 0, NULL, &axis},
                               {"target", 1, 2, of_x, target}};
    ebb_named t;
    EBB_TRY(ebb_program_step(p, &(ebb_batch){list, 4}));
    good(ebb_program_get(p, ebb_program_loss_name(p), &t));
    *loss = *(const float *)t.data;
    return NULL;
}

static ebb_program *visiting(ebb_model **model, const char *backend)
{
    ebb_program *p;
    const ebb_compile_options options = {.backend = backend};
    good(ebb_text_parse_model(model, VISITING));
    good(ebb_rewrite(*model, "loss:name=loss,gradient,optimizer:sgd,lr=0.1,drop-saves,alias", NULL,
                     NULL));
    good(ebb_program_compile(&p, *model, &options));
    return p;
}

TEST(what_the_device_has_no_kernel_for_the_host_computes)
{
    OWNED_MODEL *here = NULL, *there = NULL;
    ebb_program *host = visiting(&here, "plain"), *device = visiting(&there, "cuda");
    float expected, loss;
    for (int k = 0; k < STEPS; k++) {
        good(visiting_step(host, 2, 0, &expected));
        good(visiting_step(device, 2, -1, &loss));
        assert_true(fabsf(loss - expected) <= 1e-5f * fabsf(expected));
    }
    ebb_program_free(host);
    ebb_program_free(device);
    RELEASED char *json = NULL;
    good(ebb_plan_json(there, &(ebb_plan_options){.backend = "cuda"}, &json));
    json_t *o = json_loads(json, 0, NULL), *visits = json_object_get(o, "on_host");
    assert_int_equal(json_integer_value(json_object_get(visits, "CumSum")), 1);
    assert_int_equal(json_object_size(visits), 1);
    json_decref(o);
}

TEST(an_error_of_the_host_ends_the_step)
{
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *p = visiting(&model, "cuda");
    float loss;
    for (int k = 0; k < 3; k++) { // before, while and after the step is recorded
        ebb_status status = visiting_step(p, 2, 9, &loss);
        if (status == NULL || strstr(ebb_status_text(status), "axis 9 is outside") == NULL)
            fail_msg("step %d: %s", k, status != NULL ? ebb_status_text(status) : "no error");
        good(visiting_step(p, 2, 0, &loss));
    }
}

TEST(another_count_than_the_planned_is_told_with_its_node)
{
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *p = visiting(&model, "cuda");
    float loss;
    for (int k = 0; k < 3; k++) {
        ebb_status status = visiting_step(p, 9, 0, &loss);
        if (status == NULL ||
            strstr(ebb_status_text(status), "read or counted 4 where only 3 can be") == NULL)
            fail_msg("step %d: %s", k, status != NULL ? ebb_status_text(status) : "no error");
        good(visiting_step(p, 2, 0, &loss));
    }
}

TEST(no_device_and_too_little_memory_are_sentences)
{
    running r;
    if (getenv("EBB_TEST_BACKEND") != NULL)
        skip(); // the emulator alone can be told to have no device, or little memory
    (void)setenv("EBB_CUDA_ABSENT", "1", 1);
    ebb_status status = start(&r, &samples[0], "", "cuda", false);
    (void)unsetenv("EBB_CUDA_ABSENT");
    assert_non_null(status);
    assert_int_equal(ebb_status_code(status), EBB_DEVICE);
    stop(&r);
    (void)setenv("EBB_CUDA_HOST_BYTES", "10000", 1);
    status = start(&r, &samples[0], "", "cuda", false);
    (void)unsetenv("EBB_CUDA_HOST_BYTES");
    assert_non_null(status);
    refused(status, EBB_RUNTIME, "device memory");
    stop(&r);
    good(start(&r, &samples[0], "", "cpu", false)); // and the CPU is there as before
    good(step(&r, &samples[0], 0));
    stop(&r);
}

int main(void)
{
    if (getenv("EBB_TEST_BACKEND") != NULL && device_is_missing())
        return 77;
    (void)setenv("EBB_CUDA_PLUGIN", EBB_BINARY_DIR "/kernels/cuda/libebb_cuda_host_plugin.so", 0);
    return run_listed();
}
