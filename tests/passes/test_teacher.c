/* test_teacher.c: a second model beside the first: what it says, what of it is trained (nothing), which
 * models can be none.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/text/text.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"
#include "tests/text.h"

#define HEAD "<ir_version: 8, opset_import: [\"\" : 17]> "
#define LIST(...)         \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static const char student[] = HEAD "g (float[2,2] x) => (float[2,3] y) "
                                   "<float[2,3] w = {1,-1,0.5,2,0.25,-2}> { y = MatMul (x, w) }";
/* Of an older opset, of any batch, with the student's names, with dropout. */
static const char teacher[] = "<ir_version: 8, opset_import: [\"\" : 13]> g (float[n,2] image) => "
                              "(float[n,3] y, float[n,3] h) "
                              "<float[2,3] w = {2,0,1,-1,1,3}, float half = {0.5}, bool yes = {1}> "
                              "{ h = MatMul (image, w) d = Dropout (h, half, yes) y = Relu (d) }";

static const float x_of_two[4] = {1, 2, -1, 0.5f};
static char folder[] = "/tmp/ebb-teacher-XXXXXX";

static const char *path_of(const char *name)
{
    static char text[8][128];
    static unsigned next;
    char *path = text[next++ % 8];
    (void)snprintf(path, sizeof text[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || mkdir(path_of("other"), 0700) != 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return system(formatted("rm -rf %s", folder));
}

static const char *write_model(const char *name, const char *text, size_t external_above)
{
    OWNED_MODEL *model = model_of(text);
    const char *path = path_of(name);
    good(
        ebb_model_write(model, path, &(ebb_write_options){.external_above_bytes = external_above}));
    return path;
}

static ebb_status make(ebb_model *model, const char *file, const char *loss, const char *train)
{
    RELEASED char *pipeline = NULL;
    const ebb_step_options step = {
        .losses = LIST(loss), .optimizer = "sgd:lr=0.1", .train = LIST(train), .teacher = file};
    ebb_status status = ebb_step_pipeline(&pipeline, &step);
    if (status == NULL)
        status = ebb_rewrite(model, pipeline, &(ebb_rewrite_options){.verify_each = true}, NULL);
    return status;
}

static double loss_of(ebb_model *model)
{
    static const int64_t dims[2] = {2, 2};
    const ebb_named x = {"x", 1, 2, dims, x_of_two};
    OWNED_PROGRAM *p = NULL;
    ebb_named loss;
    good(ebb_program_compile(&p, model, NULL));
    good(ebb_program_step(p, &(ebb_batch){&x, 1}));
    good(ebb_program_get(p, "loss", &loss));
    const double value = ebb_element(&loss, 0);
    return value;
}

/* mean (x w - max(x v, 0))^2 */
static double expected(bool relu)
{
    static const double w[6] = {1, -1, 0.5, 2, 0.25, -2}, v[6] = {2, 0, 1, -1, 1, 3};
    double sum = 0;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) {
            const double a = (double)x_of_two[2 * i], b = (double)x_of_two[2 * i + 1];
            const double said = a * v[k] + b * v[3 + k], y = a * w[k] + b * w[3 + k];
            const double off = y - (relu && said < 0 ? 0 : said);
            sum += off * off / 6;
        }
    return sum;
}

static void is_near(double x, double y)
{
    if (!(fabs(x - y) <= 1e-6 * fabs(y)))
        fail_msg("%.9g is not %.9g", x, y);
}

TEST(its_outputs_are_targets_and_its_weights_are_not_trained)
{
    const char *file = write_model("t.onnx", teacher, 0);
    for (int k = 0; k < 2; k++) {
        ebb_model *model = model_of(student), *again;
        good(make(model, file, k == 0 ? "mse:target=teacher/y" : "mse:target=teacher/h", "*"));
        const ebb_graph *g = model->graph;
        const ebb_value w = ebb_value_find(g, "w"), v = ebb_value_find(g, "teacher/w");
        assert_int_equal(ebb_value_of(g, w)->role, EBB_ROLE_PARAMETER);
        assert_int_equal(ebb_value_of(g, v)->role, EBB_ROLE_CONSTANT);
        assert_int_equal(ebb_graph_bound(g, v).i, 0);
        assert_int_equal(g->input_count, 1);
        for (size_t i = 0; i < g->output_count; i++)
            assert_null(strstr(ebb_value_name(g, g->outputs[i]), "teacher"));
        is_near(loss_of(model), expected(k == 0));
        good(ebb_save(model, path_of("step.onnx")));
        ebb_close(model);
        good(ebb_open(&again, path_of("step.onnx"))); // where there is no other file any more
        is_near(loss_of(again), expected(k == 0));
        ebb_close(again);
    }
}

/* Both files have their weights in a file beside them, of the same name. */
TEST(bytes_in_files_beside_them_are_kept_apart)
{
    ebb_model *model, *again;
    char file[128];
    (void)snprintf(file, sizeof file, "%s", write_model("other/m.onnx", teacher, 16));
    good(ebb_open(&model, write_model("m.onnx", student, 16)));
    good(make(model, file, "mse:target=teacher/y", "w"));
    is_near(loss_of(model), expected(true));
    good(ebb_save(model, path_of("step.onnx")));
    ebb_close(model);
    good(ebb_open(&again, path_of("step.onnx")));
    is_near(loss_of(again), expected(true));
    ebb_close(again);
}

static void is_refused(const char *model_text, const char *teacher_text, const char *loss,
                       ebb_code code, const char *says)
{
    OWNED_MODEL *model = model_of(model_text);
    const char *file = write_model("no.onnx", teacher_text, 0);
    ebb_status status = make(model, file, loss, "*");
    if (status == NULL || ebb_status_code(status) != code ||
        strstr(ebb_status_text(status), says) == NULL)
        fail_msg("%s\nis %d, and does not say: %s", ebb_status_text(status),
                 (int)ebb_status_code(status), says);
}

TEST(what_cannot_teach_is_refused_by_name)
{
    static const char loss[] = "mse:target=teacher/y";
    is_refused(student, teacher, "mse", EBB_USAGE, "no loss reads what the teacher");
    is_refused(student, teacher, "mse:target=teacher/z", EBB_USAGE,
               "there is no 'teacher/z'; the teacher has teacher/y, teacher/h");
    is_refused(student, HEAD "t (float[2,2] a, float[2,2] b) => (float[2,2] y) { y = Add (a, b) }",
               loss, EBB_USAGE, "no.onnx: its input 'a' is none of the model, which has 'x'");
    is_refused(student, HEAD "t (int64[2,2] x) => (float[2,2] y) { y = Cast <to = 1> (x) }", loss,
               EBB_USAGE, "its input 'x' is int64[2,2], and the model's 'x' is float32[2,2]");
    is_refused(student, HEAD "t (float[2,5] x) => (float[2,5] y) { y = Relu (x) }", loss, EBB_USAGE,
               "no.onnx: its input 'x' is float32[2,5], and the model's 'x' is float32[2,2]");
    is_refused(student, HEAD "t (float[2,2] x) => (float[2,2] y) { y = Relu (x) }", loss, EBB_USAGE,
               "'teacher/y' is float32[2,2], as a target of 'y' it should be float32[2,3]");
    is_refused(student, HEAD "t (float[2,2] x) => (float[2,2] y) { y = some.Thing (x) }", loss,
               EBB_UNSUPPORTED, "no operator of this name is known");
    is_refused(student,
               "<ir_version: 10, opset_import: [\"\" : 20]> t (float[2,2] x) => (float[2,2] y) "
               "{ y = Relu (x) }",
               loss, EBB_UNSUPPORTED, "it is of opset 20, and the model of 17");
    ebb_model *model = model_of(student), *step = model_of(student);
    good(make(step, NULL, "mse", "w"));
    good(ebb_save(step, path_of("step.onnx")));
    ebb_status status = make(model, path_of("step.onnx"), loss, "*");
    assert_non_null(strstr(ebb_status_text(status), "it is a training step"));
    ebb_close(step);
    status = make(model, path_of("none.onnx"), loss, "*");
    assert_int_equal(ebb_status_code(status), EBB_IO);
    ebb_close(model);
    model = model_of(student);
    status = make(model, NULL, loss, "*");
    assert_non_null(strstr(ebb_status_text(status), "as no teacher is given"));
    ebb_close(model);
}

TEST(where_memory_ends_nothing_leaks)
{
    const char *file = write_model("t.onnx", teacher, 0);
    bool done = false;
    for (long n = 1; n < 100000 && !done; n += 1 + n / 40) {
        OWNED_MODEL *model = model_of(student);
        char pipeline[192];
        (void)snprintf(pipeline, sizeof pipeline, "teacher:file=%s", file);
        ebb_alloc_fail_after(n);
        done = ebb_rewrite(model, pipeline, NULL, NULL) == NULL;
        ebb_alloc_fail_after(0);
    }
    assert_true(done);
}

const fixture around_all = {make_folder, remove_folder};
