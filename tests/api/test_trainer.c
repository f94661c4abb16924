/* test_trainer.c: the loop of a training through ebb.h alone: what it tells, how it is stopped, what is
 * left where memory ends.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "onnx/words/arena.h"
#include "tests/folder.h"
#include "tests/owned.h"
#include "tests/status.h"

#define DIGITS EBB_SOURCE_DIR "/samples/digits/"

static const char *const map[] = {"label", "target", NULL};
static const char *const eval_map[] = {"test_image", "image", "test_label", "target", NULL};
static const char *const losses[] = {"cross-entropy", NULL};

typedef struct scene {
    ebb_model *exported, *step;
    ebb_data *data, *eval_data;
    ebb_program *program;
    ebb_evaluator *evaluator;
    ebb_trainer_options options;
    int steps, epochs, evaluations, saved, stop_at;
    ebb_trainer *trainer; /* to be stopped in its last evaluation; or NULL */
} scene;

static void tell(void *context, ebb_trainer *trainer, ebb_trainer_event event)
{
    scene *s = context;
    const ebb_trainer_facts f = ebb_trainer_measure(trainer);
    s->steps += event == EBB_TRAINER_STEP;
    s->epochs += event == EBB_TRAINER_EPOCH;
    s->evaluations += event == EBB_TRAINER_EVALUATED;
    s->saved += event == EBB_TRAINER_SAVED;
    if (event == EBB_TRAINER_STEP && f.steps == s->stop_at)
        ebb_trainer_stop(trainer);
}

static void open_scene_of(scene *s, const char *model)
{
    int64_t rows = 0;
    char *pipeline;
    const ebb_step_options options = {.losses = losses, .optimizer = "sgd:lr=0.1"};
    *s = (scene){0};
    good(ebb_open(&s->exported, model));
    good(ebb_open(&s->step, model));
    good(ebb_data_open(&s->data, DIGITS "digits.npz", s->step));
    good(ebb_data_open(&s->eval_data, DIGITS "digits.npz", s->step));
    good(ebb_data_shape(s->data, s->step, map, 32, &rows));
    good(ebb_step_pipeline(&pipeline, &options));
    good(ebb_rewrite(s->step, pipeline, NULL, NULL));
    ebb_release(pipeline);
    good(ebb_data_bind(s->data, s->step, map));
    good(ebb_program_compile(&s->program, s->step, &(ebb_compile_options){.threads = 1}));
    s->options = (ebb_trainer_options){
        .row_count = rows, .batch = 32, .epochs = 2, .seed = 7, .tell = tell, .context = s};
}

static void open_scene(scene *s)
{
    open_scene_of(s, DIGITS "mlp.onnx");
}

static const ebb_evaluator_options of_test = {
    .losses = losses, .map = eval_map, .batch = 100, .threads = 1};

static void close_scene(scene *s)
{
    ebb_evaluator_free(s->evaluator);
    ebb_program_free(s->program);
    ebb_data_close(s->data);
    ebb_data_close(s->eval_data);
    ebb_close(s->exported);
    ebb_close(s->step);
}

TEST(a_training_tells_what_it_does)
{
    scene s;
    ebb_trainer *t;
    open_scene(&s);
    good(ebb_evaluator_new(&s.evaluator, s.exported, s.eval_data, &of_test));
    s.options.evaluator = s.evaluator;
    good(ebb_trainer_new(&t, s.program, s.data, &s.options));
    good(ebb_trainer_run(t));
    const ebb_trainer_facts f = ebb_trainer_measure(t);
    assert_int_equal(s.steps, 88);
    assert_int_equal(s.epochs, 2);
    assert_int_equal(s.evaluations, 2);
    assert_int_equal(f.steps, 88);
    assert_int_equal(f.left_out, 1437 - 44 * 32);
    assert_int_equal(ebb_evaluator_rows(s.evaluator), 360);
    assert_true(f.loss < 1 && f.epoch_loss < 1 && f.median_ns > 0 && f.rows_per_second > 0);
    assert_true(f.best == ebb_evaluator_at(s.evaluator, 0).value && f.best_at == 88);
    assert_true(fabs(f.rate - 0.1) < 1e-6);
    assert_string_equal(ebb_evaluator_at(s.evaluator, 1).name, "accuracy");
    ebb_trainer_free(t);
    close_scene(&s);
}

/* Rows of one archive, a part of them held out: as who has read the data once gives them to both. */
TEST(data_may_be_trained_and_evaluated_on)
{
    double best[2];
    for (int shared = 0; shared < 2; shared++) {
        scene s;
        ebb_trainer *t;
        int64_t order[1437], held;
        open_scene(&s);
        good(ebb_rows_split(order, 1437, 0.25, &held));
        ebb_evaluator_options options = of_test;
        options.map = map;
        options.rows = order + 1437 - held;
        options.row_count = held;
        good(ebb_evaluator_new(&s.evaluator, s.exported, shared ? s.data : s.eval_data, &options));
        s.options.evaluator = s.evaluator;
        s.options.rows = order;
        s.options.row_count = 1437 - held;
        s.options.eval_every = 10;
        good(ebb_trainer_new(&t, s.program, s.data, &s.options));
        good(ebb_trainer_run(t));
        best[shared] = ebb_trainer_measure(t).best;
        ebb_trainer_free(t);
        close_scene(&s);
    }
    assert_true(best[0] == best[1] && best[0] < 1);
}

TEST(a_training_is_stopped_after_a_step)
{
    scene s;
    ebb_trainer *t;
    open_scene(&s);
    s.stop_at = 5;
    good(ebb_trainer_new(&t, s.program, s.data, &s.options));
    good(ebb_trainer_run(t));
    const ebb_trainer_facts f = ebb_trainer_measure(t);
    assert_int_equal(f.steps, 5);
    assert_true(f.was_stopped && !f.stopped_early && !f.was_over);
    ebb_trainer_free(t);
    s.options.row_count = 31;
    assert_non_null(ebb_trainer_new(&t, s.program, s.data, &s.options));
    assert_null(t);
    close_scene(&s);
}

TEST(rows_are_held_out_once_and_for_all)
{
    int64_t order[100], again[100], held = 0;
    bool seen[100] = {false};
    good(ebb_rows_split(order, 100, 0.2, &held));
    assert_int_equal(held, 20);
    for (int i = 0; i < 100; i++) {
        assert_true(order[i] >= 0 && order[i] < 100 && !seen[order[i]]);
        seen[order[i]] = true;
        assert_true(i == 0 || i == 80 || order[i] > order[i - 1]);
    }
    good(ebb_rows_split(again, 100, 0.2, &held));
    assert_memory_equal(order, again, sizeof order);
    assert_non_null(ebb_rows_split(order, 100, 0.001, &held));
    assert_non_null(ebb_rows_split(order, 100, 0.999, &held));
}

/* An evaluation makes its programs anew: what comes then comes in its midst. */
static void trained_of(const char *model, const char *saved)
{
    scene s;
    ebb_trainer *t;
    open_scene_of(&s, model);
    s.options.exported = s.exported;
    s.options.save_model = saved;
    good(ebb_trainer_new(&t, s.program, s.data, &s.options));
    good(ebb_trainer_run(t));
    ebb_trainer_free(t);
    close_scene(&s);
}

/* As PyTorch's dynamo exporter writes them: the trained model goes beside it, or over it. */
TEST(a_model_with_its_weights_beside_it_is_trained_as_any_other)
{
    const char *path[] = {path_of("inside.onnx"), path_of("beside.onnx"), path_of("trained.onnx")};
    ebb_model *inside, *outside;
    good(ebb_open(&inside, DIGITS "mlp.onnx"));
    good(ebb_model_write(inside, path[1], &(ebb_write_options){.external_above_bytes = 1}));
    ebb_close(inside);
    trained_of(DIGITS "mlp.onnx", path[0]);
    good(ebb_open(&inside, path[0]));
    for (int i = 2; i > 0; i--) {
        trained_of(path[1], path[i]);
        good(ebb_open(&outside, path[i]));
        const ebb_graph *g = inside->graph;
        for (size_t k = 0; k < g->initializer_count; k++) {
            const ebb_tensor *a = ebb_value_of(g, g->initializers[k])->tensor;
            const ebb_tensor *b =
                ebb_value_of(outside->graph, outside->graph->initializers[k])->tensor;
            assert_int_equal(a->bytes, b->bytes);
            assert_true(b->external);
            assert_memory_equal(a->data, b->data, a->bytes);
        }
        ebb_close(outside);
    }
    ebb_close(inside);
}

static void stop_in_the_last_evaluation(void *context, ebb_model *model)
{
    scene *s = context;
    (void)model;
    if (s->trainer == NULL)
        return;
    const ebb_trainer_facts f = ebb_trainer_measure(s->trainer);
    if (f.steps == f.until)
        ebb_trainer_stop(s->trainer);
}

/* To its end, or to a stop within the evaluation there. */
static ebb_trainer_facts train_and_save(const char *checkpoint, const char *resume, bool stops)
{
    scene s;
    open_scene(&s);
    ebb_evaluator_options options = of_test;
    options.bind = stop_in_the_last_evaluation;
    options.context = &s;
    good(ebb_evaluator_new(&s.evaluator, s.exported, s.eval_data, &options));
    s.options.evaluator = s.evaluator;
    s.options.checkpoint = checkpoint;
    s.options.resume = resume;
    ebb_trainer *t;
    good(ebb_trainer_new(&t, s.program, s.data, &s.options));
    s.trainer = stops ? t : NULL;
    good(ebb_trainer_run(t));
    const ebb_trainer_facts f = ebb_trainer_measure(t);
    assert_int_equal(s.saved, checkpoint != NULL);
    ebb_trainer_free(t);
    close_scene(&s);
    return f;
}

static size_t bytes_of(const char *path, char **bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const size_t size = (size_t)ftell(f);
    rewind(f);
    *bytes = malloc(size + 1);
    assert_non_null(*bytes);
    assert_int_equal(fread(*bytes, 1, size, f), size);
    (void)fclose(f);
    return size;
}

static bool same_bytes(const char *a, const char *b)
{
    FREED char *x = NULL, *y = NULL;
    const size_t n = bytes_of(a, &x), m = bytes_of(b, &y);
    const bool same = n == m && memcmp(x, y, n) == 0;
    return same;
}

TEST(a_last_evaluation_that_was_stopped_is_made_up_and_saved)
{
    const char *whole = path_of("whole.safetensors"), *stopped = path_of("stopped.safetensors");
    ebb_trainer_facts f = train_and_save(whole, NULL, false);
    assert_int_equal(f.evaluated_at, 88);
    f = train_and_save(stopped, NULL, true);
    assert_int_equal(f.steps, 88);
    assert_int_equal(f.evaluated_at, 44);
    assert_false(same_bytes(whole, stopped)); // one says that the evaluation is still to come
    f = train_and_save(stopped, stopped, false);
    assert_int_equal(f.evaluated_at, 88);
    assert_true(f.was_over);
    assert_true(same_bytes(whole, stopped));
}

TEST(where_memory_ends_nothing_is_lost_or_leaks)
{
    const char *checkpoint = path_of("c.st");
    const char *const logs[] = {path_of("l.csv"), NULL};
    scene s;
    open_scene(&s);
    s.options.checkpoint = checkpoint;
    s.options.logs = logs;
    s.options.steps = 2;
    s.options.evaluator = NULL;
    bool done = false;
    for (long n = 1; n < 2000 && !done; n++) {
        ebb_trainer *t = NULL;
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_trainer_new(&t, s.program, s.data, &s.options);
        if (status == NULL)
            status = ebb_trainer_run(t);
        ebb_alloc_fail_after(0);
        done = status == NULL;
        ebb_trainer_free(t);
    }
    assert_true(done);
    char *extra;
    good(ebb_checkpoint_load(s.program, checkpoint, &extra));
    assert_non_null(strstr(extra, "\"steps\":2"));
    ebb_release(extra);
    done = false;
    for (long n = 1; n < 100000 && !done; n = n < 60 ? n + 1 : n + n / 7) {
        ebb_evaluator *e = NULL;
        ebb_alloc_fail_after(n);
        done = ebb_evaluator_new(&e, s.exported, s.eval_data, &of_test) == NULL;
        ebb_alloc_fail_after(0);
        ebb_evaluator_free(e);
    }
    assert_true(done);
    close_scene(&s);
}

const fixture around_all = {make_folder, remove_folder};
