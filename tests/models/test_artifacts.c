/* test_artifacts.c: ONNX Runtime's training artifacts as steps of ours. The graphs in them are
 * those of its gradient builder, with its operators; the numbers are those that PyTorch recorded
 * for the same weights, and what our own gradient of the same model gives.
 *
 * The artifacts are not part of the repository: without ../shared/models_ort this test skips.
 */
#include <math.h>
#include <unistd.h>

#include "tests/formatted.h"
#include "tests/models/models.h"
#include "tests/owned.h"
#include "tests/status.h"

#define ARTIFACTS EBB_SOURCE_DIR "/../shared/models_ort/"

static const char *const names[] = {"mlp_digits", "cnn_digits", "resnet20_cifar"};
enum { COUNT = sizeof names / sizeof names[0], STEPS = 5, BATCH = 16 };

static ebb_data *reference_of(const char *name)
{
    ebb_data *data = NULL;
    good_for(ebb_data_open(&data, formatted(SHARED "%s/reference.safetensors", name), NULL), name);
    return data;
}

/* The recorded batch under these names of the inputs. */
static ebb_batch batch_of(const ebb_data *reference, ebb_named tensors[2], const char *target)
{
    tensors[0] = *ebb_data_find(reference, "input/input");
    tensors[1] = *ebb_data_find(reference, "target");
    tensors[0].name = "input";
    tensors[1].name = target;
    return (ebb_batch){tensors, 2};
}

static double loss_of(ebb_program *p)
{
    ebb_named t;
    good_for(ebb_program_get(p, ebb_program_loss_name(p), &t), "loss");
    return (double)*(const float *)t.data;
}

/* Five losses of a model with this pipeline run over it. */
static void train(double *losses, const char *path, const char *pipeline, const char *target,
                  const ebb_data *reference)
{
    OWNED_MODEL *m = NULL;
    OWNED_PROGRAM *p = NULL;
    ebb_named tensors[2];
    ebb_batch batch = batch_of(reference, tensors, target);
    const ebb_compile_options options = {.threads = 1};
    good_for(ebb_open(&m, path), path);
    good_for(ebb_set_dim(m, "batch", tensors[0].dims[0]), path);
    if (pipeline != NULL)
        good_for(ebb_rewrite(m, pipeline, NULL, NULL), path);
    good_for(ebb_program_compile(&p, m, &options), path);
    for (int i = 0; i < STEPS; i++) {
        good_for(ebb_program_step(p, &batch), path);
        losses[i] = loss_of(p);
    }
    ebb_program_facts f = ebb_program_measure(p);
    assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
}

TEST(artifacts_train_as_our_own_step_of_the_model_does)
{
    static const char ours[] =
        "inline,fold,train-mode:statistics=onnx,fold,fuse,loss:cross-entropy,gradient,"
        "optimizer:adamw,order=transformers,epsilon=1e-6,weight-decay=0,lr=0.001";
    for (int k = 0; k < COUNT; k++) {
        char path[512];
        double theirs[STEPS], wanted[STEPS];
        OWNED_DATA *reference = reference_of(names[k]);
        (void)snprintf(path, sizeof path, ARTIFACTS "%s", names[k]);
        train(theirs, path, NULL, "labels", reference);
        (void)snprintf(path, sizeof path, SHARED "%s/ts.onnx", names[k]);
        train(wanted, path, ours, "target", reference);
        double pytorch = (double)*(const float *)ebb_data_find(reference, "loss")->data;
        print_message("%-16s", names[k]);
        for (int i = 0; i < STEPS; i++)
            print_message(" %.5f", theirs[i]);
        print_message("\n");
        assert_true(fabs(theirs[0] - pytorch) <= 1e-5 * pytorch);
        for (int i = 0; i < STEPS; i++) // Adam makes much of the rounding of a gradient near zero
            assert_true(fabs(theirs[i] - wanted[i]) <= 2e-3 * wanted[i]);
        assert_true(theirs[STEPS - 1] < theirs[0]);
    }
}

TEST(memory_passes_leave_their_losses_as_they_are)
{
    static const char passes[] =
        "inline,fold,drop-saves,pool-index,sign-mask,fit:budget=240KiB,alias";
    char path[512];
    double before[STEPS], after[STEPS];
    OWNED_DATA *reference = reference_of("cnn_digits");
    (void)snprintf(path, sizeof path, ARTIFACTS "cnn_digits");
    train(before, path, NULL, "labels", reference);
    train(after, path, passes, "labels", reference);
    for (int i = 0; i < STEPS; i++)
        assert_true(fabs(after[i] - before[i]) <= 1e-4 * before[i]);
}

/* training_model.onnx and checkpoint alone, in a folder of their own. */
static void link_without_optimizer(char *folder, const char *name)
{
    static const char *const files[] = {"training_model.onnx", "checkpoint"};
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        char from[512];
        (void)snprintf(from, sizeof from, ARTIFACTS "%s/%s", name, files[i]);
        assert_int_equal(symlink(from, formatted("%s/%s", folder, files[i])), 0);
    }
}

static void unlink_all(const char *folder)
{
    static const char *const files[] = {"training_model.onnx", "checkpoint"};
    for (int i = 0; i < 2; i++) {
        (void)unlink(formatted("%s/%s", folder, files[i]));
    }
    (void)rmdir(folder);
}

/* Every "GROUP/W" of the reference against the program's W + suffix; the worst difference by the
 * largest magnitude in the tensor. */
static double worst(const ebb_data *reference, ebb_program *p, const char *group,
                    const char *suffix)
{
    double most = 0;
    size_t compared = 0;
    for (size_t i = 0; i < ebb_data_count(reference); i++) {
        const ebb_named *want = ebb_data_at(reference, i);
        char name[512];
        ebb_named got;
        if (strncmp(want->name, group, strlen(group)) != 0)
            continue;
        (void)snprintf(name, sizeof name, "%s%s", want->name + strlen(group), suffix);
        good_for(ebb_program_get(p, name, &got), name);
        size_t n = 1;
        for (int d = 0; d < want->rank; d++)
            n *= (size_t)want->dims[d];
        const float *a = got.data, *b = want->data;
        double scale = 1e-3; // a bias before batch norm has a gradient of nothing but rounding
        for (size_t k = 0; k < n; k++)
            scale = fmax(scale, fabs((double)b[k]));
        for (size_t k = 0; k < n; k++)
            most = fmax(most, fabs((double)a[k] - (double)b[k]) / scale);
        compared++;
    }
    assert_true(compared > 4);
    return most;
}

TEST(gradients_and_three_steps_are_those_that_pytorch_recorded)
{
    for (int k = 0; k < COUNT; k++) {
        char folder[] = "/tmp/ebb-artifacts-XXXXXX";
        ebb_model *m = NULL;
        ebb_program *p = NULL;
        ebb_named tensors[2];
        OWNED_DATA *reference = reference_of(names[k]);
        ebb_batch batch = batch_of(reference, tensors, "labels");
        link_without_optimizer(folder, names[k]);
        good_for(ebb_open(&m, folder), names[k]);
        good_for(ebb_set_dim(m, "batch", tensors[0].dims[0]), names[k]);
        good_for(ebb_program_compile(&p, m, NULL), names[k]);
        good_for(ebb_program_step(p, &batch), names[k]);
        double of_gradients = worst(reference, p, "grad/", "_grad");
        ebb_program_free(p);
        good_for(ebb_rewrite(m, "optimizer:momentum,lr=0.1,momentum=0.9", NULL, NULL), names[k]);
        good_for(ebb_program_compile(&p, m, NULL), names[k]);
        for (int i = 0; i < 3; i++)
            good_for(ebb_program_step(p, &batch), names[k]);
        double of_steps = worst(reference, p, "sgd3/", "");
        print_message("%-16s gradients %.1e, three steps %.1e\n", names[k], of_gradients, of_steps);
        assert_true(of_gradients < 1e-4);
        assert_true(of_steps < 2e-2);
        ebb_program_free(p);
        ebb_close(m);
        unlink_all(folder);
    }
}

TEST(an_eval_model_takes_its_weights_from_the_checkpoint)
{
    OWNED_MODEL *m = NULL;
    OWNED_PROGRAM *p = NULL;
    ebb_named tensors[2], loss;
    OWNED_DATA *reference = reference_of("mlp_digits");
    ebb_batch batch = batch_of(reference, tensors, "labels");
    good_for(ebb_open(&m, ARTIFACTS "mlp_digits/eval_model.onnx"), "eval");
    good_for(ebb_load_weights(m, ARTIFACTS "mlp_digits/checkpoint"), "eval");
    good_for(ebb_set_dim(m, "batch", tensors[0].dims[0]), "eval");
    good_for(ebb_program_compile(&p, m, NULL), "eval");
    good_for(ebb_program_step(p, &batch), "eval");
    good_for(ebb_program_get(p, ebb_program_output_name(p, 0), &loss), "eval");
    double pytorch = (double)*(const float *)ebb_data_find(reference, "loss")->data;
    assert_true(fabs((double)*(const float *)loss.data - pytorch) <= 1e-5 * pytorch);
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    if (access(ARTIFACTS "mlp_digits/training_model.onnx", R_OK) != 0) {
        printf("SKIP: no artifacts of ONNX Runtime in %s\n", ARTIFACTS);
        return SKIPPED;
    }
    return run_listed();
}
