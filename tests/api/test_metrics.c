/* test_metrics.c: metrics beside what scikit-learn 1.9 and torchmetrics 1.9 say of the same numbers,
 * over batches of different sizes. */
#include <math.h>
#include <string.h>

#include "api/tally.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/text/text.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"

/* Numbers in [-1, 1), the same as those that the libraries got. */
static void draw(float *x, int count, uint32_t seed)
{
    for (int i = 0; i < count; i++) {
        seed = (seed * 1103515245u + 12345u) & 0x7fffffffu;
        x[i] = (float)(seed >> 8) / (float)(1 << 22) - 1;
    }
}

typedef struct problem {
    const char *graph; /* of float[n, ...] x => y */
    const char *const *losses, *const *names;
    int rank; /* of x; the target drops dim `dropped`, -1: none */
    int64_t dims[4];
    int dropped, dtype;
    int64_t labels; /* in a row of the target; 0: it has the dims of x */
    size_t size;    /* of an element of the target */
    const float *x;
    const void *target;
} problem;

/* Rows from .. to as one batch of a program of its own. */
static ebb_status take(ebb_metrics *m, const problem *p, int64_t from, int64_t to)
{
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    char *pipeline;
    int64_t dims[4], target[4], row = 1, target_row = 1;
    int target_rank = 0;
    for (int d = 0; d < p->rank; d++) {
        dims[d] = d == 0 ? to - from : p->dims[d];
        row *= d == 0 ? 1 : dims[d];
        if (d == p->dropped || (p->labels > 0 && d > 0))
            continue;
        target_row *= d == 0 ? 1 : dims[d];
        target[target_rank++] = dims[d];
    }
    if (p->labels > 0)
        target[target_rank++] = target_row = p->labels;
    const ebb_named in[2] = {{"x", 1, p->rank, dims, p->x + from * row},
                             {"target", p->dtype, target_rank, target,
                              (const char *)p->target + (size_t)(from * target_row) * p->size}};
    const ebb_batch batch = {in, 2};
    assert_null(ebb_text_parse_model(&model, p->graph));
    assert_null(ebb_infer_graph(model->graph));
    assert_null(ebb_set_dim(model, "n", to - from));
    const ebb_step_options step = {.loss = p->losses[0]};
    assert_null(ebb_evaluation_pipeline(&pipeline, &step));
    assert_null(ebb_rewrite(model, pipeline, NULL, NULL));
    ebb_release(pipeline);
    assert_null(ebb_program_compile(&program, model, NULL));
    assert_null(ebb_program_step(program, &batch));
    ebb_status status = ebb_metrics_take(m, program, &batch);
    return status;
}

/* All rows, in two batches of different sizes. */
static ebb_metrics *evaluate(const problem *p)
{
    ebb_metrics *m;
    const int64_t rows = p->dims[0], half = rows * 2 / 3;
    assert_null(ebb_metrics_new(&m, p->losses, p->names));
    assert_null(take(m, p, 0, half));
    assert_null(take(m, p, half, rows));
    return m;
}

static void is_near(double x, double expected, double most)
{
    if (!(fabs(x - expected) <= most))
        fail_msg("%.12g is not %.12g", x, expected);
}

static double value_of(const ebb_metrics *m, const char *name)
{
    for (size_t i = 0; i < ebb_metrics_count(m); i++)
        if (strcmp(ebb_metrics_at(m, i).name, name) == 0)
            return ebb_metrics_at(m, i).value;
    return -12345;
}

#define LIST(...)         \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }
/* Targets: a class for each row, or place; a number for each of x. */
#define CLASSES .dropped = 1, .dtype = 7, .size = 8
#define NUMBERS .dropped = -1, .dtype = 1, .size = 4
#define GRAPH(in, out)                                                            \
    "<ir_version: 10, opset_import: [\"\" : 20]> g (float" in " x) => (float" out \
    " y) { y = Identity (x) }"

TEST(lists_are_decoded_greedily_and_compared_as_torchmetrics_does)
{
    float x[9 * 6 * 4];
    int64_t t[9 * 3];
    draw(x, 9 * 6 * 4, 5);
    for (int i = 0; i < 27; i++)
        t[i] = i % 3 > i / 3 % 4 ? -100 : i * 7 % 5 % 3 + 1;
    problem p = {.graph = GRAPH("[n,6,4]", "[n,6,4]"),
                 .losses = LIST("ctc:time-axis=1,labels=3"),
                 .names = LIST("token-error-rate"),
                 .rank = 3,
                 .dims = {9, 6, 4},
                 .dropped = -1,
                 .labels = 3,
                 .dtype = 7,
                 .size = 8,
                 .x = x,
                 .target = t};
    ebb_metrics *m = evaluate(&p);
    is_near(value_of(m, "token-error-rate"), 22.0 / 19, 1e-12);
    assert_int_equal(ebb_metrics_at(m, 1).counted, 19);
    assert_false(ebb_metrics_at(m, 1).higher_is_better);
    ebb_metrics_free(m);
    p.losses = LIST("ctc:time-axis=1,labels=3,blank=3"); // a label that is none is met by nothing
    p.names = NULL;
    m = evaluate(&p);
    is_near(value_of(m, "token-error-rate"), 23.0 / 19, 1e-12);
    ebb_metrics_free(m);
}

/* Both orders of the axes, and rows that end before the others. */
TEST(lists_end_where_their_lengths_say)
{
    static const int64_t way[2][6] = {{0, 2, 2, 0, 2, 1}, {1, 1, 2, 2, 3, 3}};
    static const int64_t said[2][3] = {{2, 1, -100}, {1, 2, 3}}, steps[2] = {6, 4};
    float first[6][2][4] = {{{0}}}, second[2][6][4] = {{{0}}};
    for (int n = 0; n < 2; n++)
        for (int k = 0; k < 6; k++)
            first[k][n][way[n][k]] = second[n][k][way[n][k]] = 1;
    for (int axis = 0; axis < 2; axis++)
        for (int ends = 0; ends < 2; ends++) {
            bool fits = false;
            const int64_t dims[2][3] = {{6, 2, 4}, {2, 6, 4}}, labels[2] = {2, 3}, two[1] = {2};
            ebb_tally tally = {.task = EBB_TASK_LISTS, .axis = axis, .ignore_index = -100};
            const ebb_tensor scores = {.type = ebb_type_tensor(EBB_F32, 3, dims[axis]),
                                       .data = axis == 0 ? (const void *)first : second};
            const ebb_tensor target = {.type = ebb_type_tensor(EBB_I64, 2, labels), .data = said};
            const ebb_tensor lengths = {.type = ebb_type_tensor(EBB_I64, 1, two), .data = steps};
            assert_null(ebb_tally_take(&tally, &scores, &target, ends ? &lengths : NULL, &fits));
            assert_true(fits);
            assert_int_equal(tally.counted, 5);
            assert_int_equal(tally.errors, 1 + ends); // 2 2 1 for 2 1; and 1 2 for 1 2 3
            ebb_tally_fini(&tally);
        }
}

TEST(classes_are_counted_as_scikit_learn_does)
{
    float x[12 * 7];
    int64_t t[12];
    draw(x, 12 * 7, 1);
    for (int i = 0; i < 12; i++)
        t[i] = i == 3 ? -100 : i * 5 % 9 % 6;
    problem p = {.graph = GRAPH("[n,7]", "[n,7]"),
                 .losses = LIST("cross-entropy"),
                 .names = LIST("accuracy", "top-5", "f1", "f1-macro", "miou", "perplexity"),
                 .rank = 2,
                 .dims = {12, 7},
                 CLASSES,
                 .x = x,
                 .target = t};
    ebb_metrics *m = evaluate(&p);
    assert_int_equal(ebb_metrics_count(m), 7);
    assert_string_equal(ebb_metrics_at(m, 0).name, "loss");
    assert_false(ebb_metrics_at(m, 0).higher_is_better);
    assert_int_equal(ebb_metrics_at(m, 0).counted, 11);
    is_near(value_of(m, "loss"), log(9.470433235168457), 1e-6);
    is_near(value_of(m, "accuracy"), 0.09090909090909091, 1e-12);
    is_near(value_of(m, "top-5"), 0.5454545454545454, 1e-12);
    is_near(value_of(m, "f1"), 0.1111111111111111, 1e-12);
    is_near(value_of(m, "f1-macro"), 0.1111111111111111, 1e-12);
    is_near(value_of(m, "miou"), 0.08333333333333333, 1e-12);
    is_near(value_of(m, "perplexity"), 9.470433235168457, 1e-5);
    ebb_metrics_clear(m);
    assert_int_equal(ebb_metrics_count(m), 1);
    assert_true(isnan(value_of(m, "loss")));
    ebb_metrics_free(m);
    p.names = NULL; // what is usual
    m = evaluate(&p);
    assert_int_equal(ebb_metrics_count(m), 2);
    is_near(value_of(m, "accuracy"), 0.09090909090909091, 1e-12);
    ebb_metrics_free(m);
}

/* Batches are weighed by the weights of their labels, as one batch of all is. */
TEST(the_mean_of_a_weighted_loss_is_that_of_all_rows)
{
    static const struct {
        const char *loss;
        double value;
    } cases[] = {
        {"cross-entropy:class-weights=\"1,2,0.5,3,1,4,1\"", 2.1919766781102603},
        {"cross-entropy:class-weights=\"1,2,0.5,3,1,4,1\",label-smoothing=0.1", 2.167154653169513},
        {"cross-entropy:class-weights=\"1,2,0.5,3,1,4,1\",weight=0.5", 2.1919766781102603 / 2},
    };
    float x[12 * 7];
    int64_t t[12];
    draw(x, 12 * 7, 1);
    for (int i = 0; i < 12; i++)
        t[i] = i == 3 ? -100 : i * 5 % 9 % 6;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const problem p = {.graph = GRAPH("[n,7]", "[n,7]"),
                           .losses = LIST(cases[i].loss),
                           .rank = 2,
                           .dims = {12, 7},
                           CLASSES,
                           .x = x,
                           .target = t};
        ebb_metrics *m = evaluate(&p);
        is_near(value_of(m, "loss"), cases[i].value, 1e-6);
        assert_int_equal(ebb_metrics_at(m, 0).counted, 11);
        ebb_metrics_free(m);
    }
}

/* Class numbers or yes and no: the target tells. */
TEST(masks_are_of_classes_or_of_labels)
{
    float x[24], yes[24];
    int64_t image[8] = {0, 1, 2, 1, 2, 2, 0, 255};
    draw(x, 24, 7);
    draw(yes, 24, 9);
    for (int i = 0; i < 24; i++)
        yes[i] = yes[i] > 0;
    problem p = {.graph = GRAPH("[n,3,2,2]", "[n,3,2,2]"),
                 .losses = LIST("dice:axis=1,ignore_index=255"),
                 .rank = 4,
                 .dims = {2, 3, 2, 2},
                 CLASSES,
                 .x = x,
                 .target = image};
    ebb_metrics *m = evaluate(&p);
    is_near(value_of(m, "loss"), 0.5329844721619238, 1e-6);
    is_near(value_of(m, "miou"), 0.06666667014360428, 1e-7);
    ebb_metrics_free(m);
    p.losses = LIST("dice");
    p.dropped = -1;
    p.dtype = 1;
    p.size = 4;
    p.target = yes;
    m = evaluate(&p);
    assert_int_equal(ebb_metrics_count(m), 4); // loss, accuracy, f1, miou
    assert_true(value_of(m, "miou") > 0 && value_of(m, "miou") < 1);
    ebb_metrics_free(m);
}

TEST(f1_of_two_classes_is_that_of_the_second)
{
    float x[24];
    int64_t t[12];
    draw(x, 24, 2);
    for (int i = 0; i < 12; i++)
        t[i] = i % 3 == 0;
    const problem p = {.graph = GRAPH("[n,2]", "[n,2]"),
                       .losses = LIST("cross-entropy"),
                       .names = LIST("f1"),
                       .rank = 2,
                       .dims = {12, 2},
                       CLASSES,
                       .x = x,
                       .target = t};
    ebb_metrics *m = evaluate(&p);
    is_near(value_of(m, "f1"), 0.3333333333333333, 1e-12);
    ebb_metrics_free(m);
}

TEST(labels_are_counted_by_column)
{
    float x[36], t[36], first[12], wanted[12];
    draw(x, 36, 3);
    draw(t, 36, 4);
    for (int i = 0; i < 36; i++)
        t[i] = t[i] > 0.2f;
    for (int i = 0; i < 12; i++) {
        first[i] = x[3 * i];
        wanted[i] = t[3 * i];
    }
    problem p = {.graph = GRAPH("[n,3]", "[n,3]"),
                 .losses = LIST("bce-logits"),
                 .names = LIST("accuracy", "f1", "miou"),
                 .rank = 2,
                 .dims = {12, 3},
                 NUMBERS,
                 .x = x,
                 .target = t};
    ebb_metrics *m = evaluate(&p);
    is_near(value_of(m, "accuracy"), 0.5833333333333334, 1e-12);
    is_near(value_of(m, "f1"), 0.404040404040404, 1e-12);
    is_near(value_of(m, "miou"), 0.2916666666666667, 1e-12);
    ebb_metrics_free(m);
    p.graph = GRAPH("[n,1]", "[n,1]");
    p.dims[1] = 1;
    p.x = first;
    p.target = wanted;
    p.names = NULL;
    m = evaluate(&p);
    assert_int_equal(ebb_metrics_count(m), 3); // loss, accuracy, f1
    is_near(value_of(m, "f1"), 0.6666666666666666, 1e-12);
    ebb_metrics_free(m);
}

TEST(numbers_far_from_zero_keep_their_r2)
{
    float x[36], y[36], off[36];
    draw(y, 36, 5);
    draw(off, 36, 6);
    for (int i = 0; i < 36; i++) {
        y[i] = y[i] * 3 + 100;
        x[i] = y[i] + off[i] * 0.5f;
    }
    const problem p = {.graph = GRAPH("[n,3]", "[n,3]"),
                       .losses = LIST("mse"),
                       .names = LIST("r2", "mae", "rmse"),
                       .rank = 2,
                       .dims = {12, 3},
                       NUMBERS,
                       .x = x,
                       .target = y};
    ebb_metrics *m = evaluate(&p);
    is_near(value_of(m, "r2"), 0.964906578545, 1e-11);
    is_near(value_of(m, "mae"), 0.269668791029, 1e-11);
    is_near(value_of(m, "rmse"), 0.295585245066, 1e-11);
    is_near(value_of(m, "loss"), 0.295585245066 * 0.295585245066, 1e-7);
    ebb_metrics_free(m);
}

TEST(images_have_an_iou_and_texts_a_perplexity)
{
    float x[40];
    int64_t image[8] = {0, 1, 2, 1, 2, 2, 0, 255}, text[8] = {0, 1, 2, 3, 4, -100, 1, 2};
    draw(x, 24, 7);
    problem p = {.graph = GRAPH("[n,3,2,2]", "[n,3,2,2]"),
                 .losses = LIST("cross-entropy:axis=1,ignore_index=255"),
                 .rank = 4,
                 .dims = {2, 3, 2, 2},
                 CLASSES,
                 .x = x,
                 .target = image};
    ebb_metrics *m = evaluate(&p);
    assert_int_equal(ebb_metrics_count(m), 3);
    is_near(value_of(m, "miou"), 0.06666667014360428, 1e-7);
    is_near(value_of(m, "accuracy"), 0.14285714285714285, 1e-12);
    ebb_metrics_free(m);
    draw(x, 40, 8);
    for (int i = 0; i < 40; i++)
        x[i] *= 4;
    p.graph = GRAPH("[n,4,5]", "[n,4,5]");
    p.losses = LIST("cross-entropy:axis=-1");
    p.rank = 3;
    p.dims[1] = 4;
    p.dims[2] = 5;
    p.dropped = 2;
    p.target = text;
    m = evaluate(&p);
    assert_int_equal(ebb_metrics_count(m), 3);
    is_near(value_of(m, "perplexity"), 41.27167510986328, 1e-4);
    is_near(value_of(m, "accuracy"), 0.2857142857142857, 1e-12);
    ebb_metrics_free(m);
}

static void is_usage(ebb_status status, const char *says)
{
    refused(status, EBB_USAGE, says);
}

TEST(what_does_not_fit_is_refused)
{
    ebb_metrics *m;
    const char *const *losses = LIST("cross-entropy");
    is_usage(ebb_metrics_new(&m, losses, LIST("acuracy")), "did you mean 'accuracy'?");
    assert_null(m);
    is_usage(ebb_metrics_new(&m, losses, LIST("r2")),
             "metric 'r2' does not fit the loss cross-entropy");
    is_usage(ebb_metrics_new(&m, losses, LIST("f1", "f1")), "asked for twice");
    is_usage(ebb_metrics_new(&m, LIST("crossentropy"), NULL), "kind=crossentropy should be");
    float x[4] = {0}, t[4] = {0};
    const problem p = {.graph = GRAPH("[n,2]", "[n,2]"),
                       .losses = LIST("mse"),
                       .rank = 2,
                       .dims = {2, 2},
                       NUMBERS,
                       .x = x,
                       .target = t};
    assert_null(ebb_metrics_new(&m, LIST("mse:target=other"), LIST("r2")));
    is_usage(take(m, &p, 0, 2), "metric 'r2': the types or sizes");
    ebb_metrics_free(m);
    ebb_metrics_free(NULL);
}

TEST(the_table_has_an_end)
{
    assert_string_equal(ebb_metric_name(0), "accuracy");
    size_t count = 0;
    while (ebb_metric_name(count) != NULL)
        count++;
    assert_true(count >= 9 && count < 32);
    assert_null(ebb_metric_name(count + 5));
}
