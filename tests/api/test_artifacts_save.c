/* test_artifacts_save.c: steps as ONNX Runtime's training artifacts, opened again: the same losses.
 * That other programs take them is held by tests/models/ort_artifacts.py, and that ONNX Runtime
 * trains them to the same numbers by tests/dialect/train.py, which is run by hand.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "exec/data/sample.h"
#include "onnx/file/file.h"
#include "tests/folder.h"
#include "tests/owned.h"
#include "tests/status.h"

#define SAMPLES EBB_SOURCE_DIR "/samples/"
#define BEFORE "differentiate,inline,fold,unroll,train-mode:statistics=onnx,dropout=off,fold,fuse,"

enum { STEPS = 4, BATCH = 8 };

static const struct sample {
    const char *file, *loss;
} samples[] = {
    {"digits/mlp.onnx", "loss:cross-entropy"},
    {"digits/cnn.onnx", "loss:cross-entropy"},
    {"digits/transformer.onnx", "loss:cross-entropy"},
    {"text/char.onnx", "loss:cross-entropy,axis=-1"},
};
enum { SAMPLE_COUNT = sizeof samples / sizeof samples[0], CNN = 1 };
static void empty_folder(void)
{
    static const char *const names[] = {"training_model.onnx", "eval_model.onnx",
                                        "optimizer_model.onnx", "checkpoint"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(path_of(names[i]));
}

static ebb_model *make(const struct sample *s, const char *passes)
{
    ebb_model *m;
    char path[256], pipeline[512];
    (void)snprintf(path, sizeof path, SAMPLES "%s", s->file);
    (void)snprintf(pipeline, sizeof pipeline, BEFORE "%s,%s", s->loss, passes);
    good(ebb_open(&m, path));
    good(ebb_set_dim(m, "batch", BATCH));
    good(ebb_rewrite(m, pipeline, NULL, NULL));
    return m;
}

static double loss_of(ebb_program *p)
{
    ebb_named t;
    good(ebb_program_get(p, ebb_program_loss_name(p), &t));
    return (double)*(const float *)t.data;
}

/* Losses of so many steps on one batch, the same for every model with these inputs. The states go
 * back into the model. */
static void train(ebb_model *m, double *losses, int steps)
{
    OWNED_ARENA arena = {0};
    ebb_batch batch;
    const ebb_compile_options options = {.threads = 1};
    OWNED_PROGRAM *p = NULL;
    good(ebb_sample_batch(&batch, m->graph, 1, &arena));
    good(ebb_program_compile(&p, m, &options));
    for (int i = 0; i < steps; i++) {
        good(ebb_program_step(p, &batch));
        losses[i] = loss_of(p);
    }
    good(ebb_program_store(p, m));
}

static void save_and_open(const ebb_model *step, ebb_model **again)
{
    empty_folder();
    good(ebb_artifacts_save(step, folder, NULL));
    good(ebb_open(again, folder));
}

static void near(const char *name, const double *got, const double *want, int count)
{
    for (int i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-6 * fabs(want[i])))
            fail_msg("%s: loss %d is %.9g, of the step itself %.9g", name, i, got[i], want[i]);
}

static void a_sample_trains_as_its_step_does(const struct sample *s, const char *passes)
{
    double got[STEPS], want[STEPS];
    OWNED_MODEL *step = make(s, passes), *again = NULL;
    save_and_open(step, &again);
    train(step, want, STEPS);
    train(again, got, STEPS);
    near(s->file, got, want, STEPS);
    assert_true(want[STEPS - 1] < want[0]);
}

TEST(opened_again_they_train_as_the_step_does)
{
    static const char *const optimizers[] = {
        "gradient,optimizer:adamw,lr=0.003",
        "gradient,optimizer:adamw,order=transformers,lr=0.003,weight-decay=0.1",
        "gradient,optimizer:adamw,order=transformers,correct-bias=0,lr=0.002,epsilon=0.01",
        "gradient,optimizer:sgd,lr=0.02"};
    for (int k = 0; k < SAMPLE_COUNT; k++)
        a_sample_trains_as_its_step_does(&samples[k], optimizers[k]);
    for (int i = 0; i < 4; i++)
        a_sample_trains_as_its_step_does(&samples[0], optimizers[i]);
}

TEST(memory_passes_stay_in_them)
{
    a_sample_trains_as_its_step_does(
        &samples[CNN], "gradient,optimizer:adamw,sign-mask,pool-index,drop-saves,stream,alias");
    OWNED_MODEL *m = NULL;
    size_t packed = 0;
    good(ebb_model_read(&m, path_of("training_model.onnx")));
    EBB_EACH_NODE(m->graph, n)
        packed +=
            strcmp(ebb_text(m->graph, ebb_node_of(m->graph, n)->op_name), "MaxPoolPacked") == 0;
    assert_int_equal(packed, 1);
}

TEST(they_go_on_where_the_step_was)
{
    double first[2], got[2], want[STEPS];
    OWNED_MODEL *whole = make(&samples[CNN], "gradient,optimizer:adamw,lr=0.003");
    OWNED_MODEL *part = make(&samples[CNN], "gradient,optimizer:adamw,lr=0.003"), *again = NULL;
    train(whole, want, STEPS);
    train(part, first, 2);
    save_and_open(part, &again);
    train(again, got, 2);
    near("the second half", got, want + 2, 2);
}

TEST(the_checkpoint_alone_brings_states_into_others)
{
    double want[STEPS], got[2];
    ebb_model *part = make(&samples[CNN], "gradient,optimizer:adamw,lr=0.003"), *again;
    save_and_open(part, &again);
    train(part, want, 2);
    good(ebb_artifacts_checkpoint(part, path_of("checkpoint"), "{\"steps\": 2}"));
    ebb_close(again);
    good(ebb_open(&again, folder));
    train(part, want + 2, 2);
    train(again, got, 2);
    near("after the checkpoint", got, want + 2, 2);
    ebb_close(part);
    ebb_close(again);
}

TEST(an_eval_model_has_everything_at_rest)
{
    static const char with_dropout[] =
        "differentiate,inline,fold,unroll,train-mode:statistics=onnx,ratio=0.3,fold,fuse,";
    for (int k = 0; k < SAMPLE_COUNT; k++) {
        const struct sample *s = &samples[k];
        double got, want;
        char path[256], pipeline[512];
        (void)snprintf(path, sizeof path, SAMPLES "%s", s->file);
        OWNED_MODEL *step = NULL, *rest = NULL, *eval = NULL;
        good(ebb_open(&step, path));
        good(ebb_set_dim(step, "batch", BATCH));
        (void)snprintf(pipeline, sizeof pipeline, "%s%s,gradient,optimizer:adamw", with_dropout,
                       s->loss);
        good(ebb_rewrite(step, pipeline, NULL, NULL));
        empty_folder();
        good(ebb_artifacts_save(step, folder, NULL));
        good(ebb_open(&rest, path));
        good(ebb_set_dim(rest, "batch", BATCH));
        (void)snprintf(pipeline, sizeof pipeline,
                       "inline,fold,unroll,train-mode:dropout=off,batch-norm=frozen,fold,fuse,%s",
                       s->loss);
        good(ebb_rewrite(rest, pipeline, NULL, NULL));
        good(ebb_open(&eval, path_of("eval_model.onnx")));
        good(ebb_load_weights(eval, path_of("checkpoint")));
        OWNED_ARENA arena = {0};
        ebb_batch batch;
        ebb_program *p;
        ebb_named loss;
        good(ebb_sample_batch(&batch, rest->graph, 1, &arena));
        good(ebb_program_compile(&p, rest, NULL));
        good(ebb_program_step(p, &batch));
        want = loss_of(p);
        ebb_program_free(p);
        good(ebb_program_compile(&p, eval, NULL));
        good(ebb_program_step(p, &batch));
        assert_int_equal(ebb_program_output_count(p), 1);
        good(ebb_program_get(p, ebb_program_output_name(p, 0), &loss));
        got = (double)*(const float *)loss.data;
        near(s->file, &got, &want, 1);
        ebb_program_free(p);
    }
}

static size_t count_of(const ebb_graph *g, const char *domain, const char *op)
{
    size_t count = 0;
    EBB_EACH_NODE(g, n)
        count += strcmp(ebb_text(g, ebb_node_of(g, n)->op_name), op) == 0 &&
                 strcmp(ebb_text(g, ebb_node_of(g, n)->domain), domain) == 0;
    return count;
}

TEST(operators_bear_the_names_that_onnx_runtime_knows)
{
    ebb_model *step = make(&samples[CNN], "gradient,optimizer:adamw"), *m;
    const size_t convolutions = count_of(step->graph, "", "Conv");
    const size_t norms = count_of(step->graph, "ai.ebb", "BatchNormTraining");
    size_t trained = 0;
    empty_folder();
    good(ebb_artifacts_save(step, folder, NULL));
    for (size_t i = 0; i < step->graph->initializer_count; i++)
        trained +=
            ebb_value_of(step->graph, step->graph->initializers[i])->role == EBB_ROLE_PARAMETER;
    good(ebb_model_read(&m, path_of("training_model.onnx")));
    const ebb_graph *g = m->graph;
    assert_true(convolutions > 1 && norms > 0);
    assert_int_equal(count_of(g, "com.microsoft", "ConvGrad"), convolutions);
    assert_int_equal(count_of(g, "com.microsoft", "BatchNormInternal"), norms);
    assert_int_equal(count_of(g, "com.microsoft", "InPlaceAccumulatorV2"), trained);
    assert_int_equal(count_of(g, "", "ConvTranspose"), 0);
    assert_int_equal(count_of(g, "ai.ebb", "ConvWeightGrad"), 0);
    assert_int_equal(g->output_count, 1 + trained);
    assert_string_equal(ebb_value_name(g, g->outputs[0]), "loss");
    assert_string_equal(ebb_value_name(g, g->inputs[g->input_count - 1]), "lazy_reset_grad");
    ebb_close(m);
    good(ebb_open(&m, folder)); // and ebb knows them, whatever bodies stand beside them
    assert_int_equal(count_of(m->graph, "ai.ebb", "BatchNormTraining"), norms);
    assert_int_equal(count_of(m->graph, "ai.ebb", "ConvWeightGrad"), convolutions);
    empty_folder();
    good(ebb_artifacts_save(m, folder, NULL));
    ebb_close(m);
    good(ebb_model_read(&m, path_of("training_model.onnx")));
    assert_int_equal(count_of(m->graph, "com.microsoft", "ConvGrad"), convolutions);
    assert_int_equal(m->graph->output_count, 1 + trained);
    ebb_close(m);
    ebb_close(step);
}

/* Runs in ONNX Runtime, too, whose generator draws; ours must read it back. */
TEST(dropout_stands_with_its_mask)
{
    double losses[STEPS];
    OWNED_MODEL *step = NULL, *again = NULL, *m = NULL;
    good(ebb_open(&step, SAMPLES "digits/transformer.onnx"));
    good(ebb_set_dim(step, "batch", BATCH));
    good(ebb_rewrite(step,
                     "inline,fold,train-mode:ratio=0.2,fold,fuse,loss:cross-entropy,gradient,"
                     "optimizer:adamw,lr=0.003",
                     NULL, NULL));
    const size_t dropouts = count_of(step->graph, "ai.ebb", "Dropout");
    save_and_open(step, &again);
    good(ebb_model_read(&m, path_of("training_model.onnx")));
    assert_true(dropouts > 0);
    assert_int_equal(count_of(m->graph, "", "Dropout"), dropouts);
    assert_int_equal(count_of(m->graph, "com.microsoft", "DropoutGrad"), dropouts);
    assert_int_equal(ebb_value_find(m->graph, "ebb.key").i, 0);
    train(again, losses, STEPS);
    assert_true(losses[STEPS - 1] < losses[0]);
}

TEST(frozen_weights_are_inputs_without_gradients)
{
    double losses[STEPS], got[STEPS];
    char *json = NULL;
    OWNED_MODEL *step = make(&samples[0], "gradient:freeze=*bias*,optimizer:adamw,lr=0.003"),
                *again = NULL;
    empty_folder();
    good(ebb_artifacts_save(step, folder, &json));
    json_t *o = json_loads(json, 0, NULL);
    assert_true(json_integer_value(json_object_get(o, "frozen")) > 0);
    assert_true(json_integer_value(json_object_get(o, "trained")) > 0);
    assert_string_equal(json_string_value(json_object_get(o, "optimizer")), "AdamWOptimizer");
    json_decref(o);
    ebb_release(json);
    good(ebb_open(&again, folder));
    train(step, losses, STEPS);
    train(again, got, STEPS);
    near("frozen", got, losses, STEPS);
}

TEST(gradients_alone_need_no_optimizer)
{
    OWNED_MODEL *step = make(&samples[0], "gradient"), *again = NULL;
    save_and_open(step, &again);
    assert_int_equal(access(path_of("optimizer_model.onnx"), F_OK), -1);
    assert_true(again->graph->output_count > 1);
}

TEST(an_unbiased_variance_is_said_to_be_narrowed)
{
    RELEASED char *json = NULL;
    OWNED_MODEL *step = NULL;
    good(ebb_open(&step, SAMPLES "digits/cnn.onnx"));
    good(ebb_set_dim(step, "batch", BATCH));
    good(ebb_rewrite(step,
                     "inline,fold,train-mode,fold,fuse,loss:cross-entropy,gradient,"
                     "optimizer:adamw",
                     NULL, NULL));
    empty_folder();
    good(ebb_artifacts_save(step, folder, &json));
    assert_non_null(strstr(json, "as ONNX Runtime does it"));
}

TEST(what_has_no_place_in_them_is_refused)
{
    static const struct {
        const char *passes, *words;
    } cases[] = {
        {"gradient,optimizer:momentum", "by AdamW or by SGD without decay"},
        {"gradient,optimizer:sgd,weight-decay=0.1", "by AdamW or by SGD without decay"},
        {"gradient,optimizer:adamw,correct-bias=0", "by AdamW or by SGD without decay"},
        {"gradient,optimizer:lion", "by AdamW or by SGD without decay"},
        {"gradient,optimizer:adamw,schedule=constant,warmup=3", "follows a schedule"},
        {"gradient,optimizer:sgd,clip-norm=1", "is changed before the update"},
        {"gradient,optimizer:adam,weight-decay=0.1", "is changed before the update"},
        {"gradient,optimizer:adamw,ema=0.9", "for an average of it"},
        {"gradient,optimizer:adamw,groups=\"*bias:weight-decay=0\"", "is updated otherwise than"},
        {"gradient,optimizer:adamw,low-bit-state", "by AdamW or by SGD without decay"},
        {"gradient,optimizer:adamw,quantise", "changes with each step"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED_MODEL *step = make(&samples[CNN], cases[i].passes);
        refused(ebb_artifacts_save(step, path_of("none"), NULL), EBB_UNSUPPORTED, cases[i].words);
        assert_int_equal(access(path_of("none"), F_OK), -1);
    }
    OWNED_MODEL *forward = NULL;
    good(ebb_open(&forward, SAMPLES "digits/cnn.onnx"));
    refused(ebb_artifacts_save(forward, folder, NULL), EBB_USAGE, "no training step");
}

TEST(weights_without_bytes_are_refused)
{
    OWNED_MODEL *step = make(&samples[0], "gradient,optimizer:adamw");
    ebb_graph *g = step->graph;
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_value_of(g, g->initializers[i])->role == EBB_ROLE_PARAMETER)
            good(ebb_value_point(g, g->initializers[i], NULL));
    refused(ebb_artifacts_save(step, path_of("none"), NULL), EBB_USAGE, "has no bytes");
    assert_int_equal(access(path_of("none"), F_OK), -1);
}

const fixture around_all = {make_folder, remove_folder};
