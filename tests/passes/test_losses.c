/* test_losses.c: several losses, what pass loss refuses and says, and what other passes make of losses.
 * Their numbers: tests/gradients/test_losses.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/text/text.h"
#include "tests/owned.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]> "

static const char two_heads[] =
    HEAD "g (float[4,2] x) => (float[4,3] a, float[4,2] b) "
         "<float[2,3] v = {1,-1,0.5,2,0.25,-2}, float[2,2] w = {1,0,-1,2}> "
         "{ a = MatMul (x, v) b = MatMul (x, w) }";

static const float x_of_two[8] = {1, 2, -1, 0.5f, 0.25f, -2, 1, 1};
static const int64_t labels[4] = {2, 0, 1, 2};
static const float numbers[8] = {1, 0, -1, 2, 0.5f, 1, 3, -2};

/* The whole step, gradients as outputs. */
static ebb_status make(ebb_model *model, const char *const *losses, const char *pass, bool strict)
{
    RELEASED char *pipeline = NULL;
    const ebb_step_options step = {
        .losses = losses, .optimizer = "none", .passes = (const char *const[]){pass, NULL}};
    const ebb_rewrite_options options = {.strict = strict, .verify_each = true};
    ebb_status status = ebb_step_pipeline(&pipeline, &step);
    if (status == NULL)
        status = ebb_rewrite(model, pipeline, &options, NULL);
    return status;
}

#define LIST(...)         \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static ebb_batch batch_of_two(ebb_named in[3])
{
    static const int64_t rows[2] = {4, 2};
    in[0] = (ebb_named){"x", 1, 2, rows, x_of_two};
    in[1] = (ebb_named){"label", 7, 1, rows, labels};
    in[2] = (ebb_named){"number", 1, 2, rows, numbers};
    return (ebb_batch){in, 3};
}

typedef struct results {
    double loss, label, number, v[6], w[4];
} results;

static void read(ebb_program *p, const char *name, double *to, size_t count)
{
    ebb_named got;
    good(ebb_program_get(p, name, &got));
    for (size_t i = 0; i < count; i++)
        to[i] = ebb_element(&got, i);
}

static void step(results *r, const char *const *losses, const char *pass)
{
    ebb_named in[3];
    OWNED_PROGRAM *p = NULL;
    OWNED_MODEL *model = model_of(two_heads);
    ebb_batch batch = batch_of_two(in);
    batch.count = losses[1] == NULL ? 2 : 3;
    if (strstr(losses[0], "label") == NULL)
        in[1] = in[2];
    good(make(model, losses, pass, pass[0] != '\0'));
    good(ebb_program_compile(&p, model, NULL));
    assert_string_equal(ebb_program_loss_name(p), "loss");
    good(ebb_program_step(p, &batch));
    memset(r, 0, sizeof *r);
    read(p, "loss", &r->loss, 1);
    if (losses[1] != NULL) {
        read(p, "loss_label", &r->label, 1);
        read(p, "loss_number", &r->number, 1);
    }
    if (strstr(losses[0], "output=a") != NULL)
        read(p, "v_grad", r->v, 6);
    if (losses[1] != NULL || strstr(losses[0], "output=b") != NULL)
        read(p, "w_grad", r->w, 4);
}

static void is_near(double x, double expected)
{
    if (!(fabs(x - expected) <= 1e-6 * (1 + fabs(expected))))
        fail_msg("%.9g is not %.9g", x, expected);
}

#define BOTH                                                                                      \
    LIST("cross-entropy:output=a,target=label,weight=0.5", "huber:output=b,target=number,weight=" \
                                                           "3")

TEST(several_losses_are_added_up_with_their_weights)
{
    results both, first, second;
    step(&both, BOTH, "");
    step(&first, LIST("cross-entropy:output=a,target=label"), "");
    step(&second, LIST("huber:output=b,target=number"), "");
    is_near(both.loss, 0.5 * first.loss + 3 * second.loss);
    is_near(both.label, 0.5 * first.loss);
    is_near(both.number, 3 * second.loss);
    for (int i = 0; i < 6; i++)
        is_near(both.v[i], 0.5 * first.v[i]);
    for (int i = 0; i < 4; i++)
        is_near(both.w[i], 3 * second.w[i]);
    results parts;
    step(&parts, BOTH, "micro-batch:parts=2");
    is_near(parts.loss, both.loss);
    is_near(parts.label, both.label);
    for (int i = 0; i < 4; i++)
        is_near(parts.w[i], both.w[i]);
}

TEST(three_losses_have_one_sum)
{
    RELEASED ebb_model_facts *f = NULL;
    OWNED_MODEL *model = model_of(two_heads);
    good(make(
        model,
        LIST("mse:output=a,target=one", "l1:output=a,target=one", "cosine:output=b,target=two"), "",
        false));
    good(ebb_facts_of(&f, model));
    assert_string_equal(f->loss, "loss");
    assert_int_equal(f->input_count, 3); // x, one, two: the first two losses share a target
}

/* A loss that the model has counts among several where its name is given, and is not forgotten. */
TEST(a_loss_that_is_there_is_taken_along_by_its_name)
{
    static const char with_loss[] =
        HEAD "g (float[4,2] x) => (float[4,2] y, float penalty) <float[2,2] w = {1,2,3,4}> "
             "{ y = MatMul (x, w) s = Mul (w, w) penalty = ReduceSum <keepdims = 0> (s) }";
    ebb_named in[3];
    ebb_program *p;
    double loss, number;
    ebb_model *model = model_of(with_loss);
    ebb_batch batch = batch_of_two(in);
    in[1] = in[2];
    batch.count = 2;
    good(make(model, LIST("name=penalty,weight=0.5", "mse:output=y,target=number"), "", false));
    good(ebb_program_compile(&p, model, NULL));
    good(ebb_program_step(p, &batch));
    read(p, "loss", &loss, 1);
    read(p, "loss_number", &number, 1);
    is_near(loss, 15 + number); // 0.5 (1 + 4 + 9 + 16)
    ebb_program_free(p);
    ebb_close(model);
    model = model_of(with_loss);
    good(ebb_rewrite(model, "loss:name=penalty", NULL, NULL));
    refused(make(model, LIST("mse:output=y,target=a", "l1:output=y,target=a"), "", false),
            EBB_USAGE, "the graph has the loss 'penalty' already");
    ebb_close(model);
}

TEST(an_evaluation_has_the_loss_of_each)
{
    ebb_named in[3];
    OWNED_PROGRAM *p = NULL;
    ebb_metrics *m;
    char *pipeline;
    results both;
    OWNED_MODEL *model = model_of(two_heads);
    ebb_batch batch = batch_of_two(in);
    const ebb_step_options options = {.losses = BOTH};
    step(&both, BOTH, "");
    good(ebb_evaluation_pipeline(&pipeline, &options));
    good(ebb_rewrite(model, pipeline, NULL, NULL));
    ebb_release(pipeline);
    good(ebb_program_compile(&p, model, NULL));
    good(ebb_program_step(p, &batch));
    good(ebb_metrics_new(&m, BOTH, NULL));
    good(ebb_metrics_take(m, p, &batch));
    static const char *const names[] = {"loss", "loss/label", "loss/number", "accuracy", "r2"};
    assert_int_equal(ebb_metrics_count(m), 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(ebb_metrics_at(m, i).name, names[i]);
    is_near(ebb_metrics_at(m, 0).value, both.loss);
    is_near(ebb_metrics_at(m, 1).value, both.label);
    is_near(ebb_metrics_at(m, 2).value, both.number);
    ebb_metrics_free(m);
}

TEST(a_target_may_be_what_the_model_reads)
{
    RELEASED ebb_model_facts *f = NULL;
    OWNED_MODEL *model =
        model_of(HEAD "g (float[4,2] x) => (float[4,2] y) <float[2,2] w = {1,2,3,4}> "
                      "{ y = MatMul (x, w) }");
    good(make(model, LIST("mse:target=x"), "", false));
    good(ebb_facts_of(&f, model));
    assert_int_equal(f->input_count, 1);
}

TEST(what_is_said_wrongly_is_refused)
{
    static const struct {
        const char *first, *second, *says;
    } wrong[] = {
        {"mse:output=b,axis=1", NULL, "mse has no option 'axis'; it takes output, target"},
        {"huber:output=b,beta=2", NULL, "weight and delta"},
        {"huber:output=b,delta=0", NULL, "option delta"},
        {"focal:output=b,gamma=0.5", NULL, "option gamma"},
        {"cross-entropy:output=a,label-smoothing=1", NULL, "option label-smoothing"},
        {"cross-entropy:output=a,class-weights=\"1,2\"", NULL,
         "class-weights has 2 numbers, output 'a' has 3 classes"},
        {"cross-entropy:output=a,class-weights=\"1,-2,1\"", NULL, "-2 is no finite number"},
        {"cross-entropy:output=a,class-weights=nowhere.txt", NULL, "nowhere.txt"},
        {"bce-logits:output=a,pos-weight=\"1,2\"", NULL, "pos-weight has 2 numbers"},
        {"kl:output=a,target-is=probabilities,temperature=2", NULL, "has no temperature"},
        {"kl:output=a,target-is=labels", NULL, "target-is=labels should be"},
        {"dice:output=a,over=batch,axis=1,delta=1", NULL, "dice has no option 'delta'"},
        {"mse:output=a,target=x", NULL, "the input 'x' is float32[4,2]"},
        {"mse:output=a,weight=0", NULL, "option weight"},
        {"mse:output=a", "l1:output=b", "'target' is the target of another loss"},
        {"mse:output=a,target=t", "l1:output=b,target=t", "the input 't' is float32[4,3]"},
        {"name=a", "l1:output=b,target=t", "output 'a' is not a single"},
        {"hubert", NULL, "kind=hubert should be cross-entropy|mse|"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OWNED_MODEL *model = model_of(two_heads);
        refused(make(model, LIST(wrong[i].first, wrong[i].second), "", false),
                strstr(wrong[i].says, "nowhere") != NULL ? EBB_IO : EBB_USAGE, wrong[i].says);
    }
}

TEST(what_ctc_needs_is_said)
{
    static const struct {
        const char *loss, *says;
    } wrong[] = {
        {"ctc", "the axis of time in output 'y' must be said"},
        {"ctc:time-axis=1", "say how many labels a row of the target has: labels=N"},
        {"ctc:time-axis=1,labels=0", "option labels"},
        {"ctc:time-axis=1,labels=2,blank=5", "blank=5 is none of the 5 classes of 'y'"},
        {"ctc:time-axis=1,labels=2,input-lengths=x", "input-lengths=x names something"},
        {"ctc:time-axis=1,labels=2,target=x", "the input 'x' is float32[n,7,5]"},
        {"ctc:time-axis=0,labels=2", "sizes that are known"},
        {"ctc:time-axis=1,labels=2,axis=2", "ctc has no option 'axis'"},
    };
    static const char model_of_sounds[] =
        HEAD "g (float[n,7,5] x) => (float[n,7,5] y) <float[5] b = {1,2,3,4,5}> { y = Mul (x, b) }";
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OWNED_MODEL *model = model_of(model_of_sounds);
        refused(make(model, LIST(wrong[i].loss), "", false), EBB_USAGE, wrong[i].says);
    }
    OWNED_MODEL *flat = model_of(two_heads);
    refused(make(flat, LIST("ctc:output=a,time-axis=1,labels=2"), "", false), EBB_USAGE,
            "output 'a' has rank 2");
}

/* 1,000 steps of time, in parts of the batch, beside PyTorch's numbers in float64; its own in float32 are
 * off by 3e-4. */
TEST(a_long_sequence_is_trained)
{
    OWNED_MODEL *model = model_of(HEAD "g (float[2,1000,3] x) => (float[2,1000,3] y) "
                                       "<float[3] b = {1,2,3}> { y = Mul (x, b) }");
    OWNED_PROGRAM *p = NULL;
    ebb_named got;
    static const int64_t dims[3] = {2, 1000, 3}, lists[2] = {2, 20};
    static float x[6000];
    static int64_t said[40];
    for (int i = 0; i < 6000; i++)
        x[i] = sinf((float)i);
    for (int i = 0; i < 40; i++)
        said[i] = i < 33 ? 1 + i % 2 : -100;
    const ebb_named in[2] = {{"x", 1, 3, dims, x}, {"target", 7, 2, lists, said}};
    const ebb_batch batch = {in, 2};
    good(make(model, LIST("ctc:time-axis=1,labels=20"), "micro-batch:parts=2", true));
    good(ebb_program_compile(&p, model, NULL));
    good(ebb_program_step(p, &batch));
    good(ebb_program_get(p, "loss", &got));
    is_near(ebb_element(&got, 0), 92.94289057647111);
    good(ebb_program_get(p, "b_grad", &got));
    static const double gradient[3] = {4.914082399569043, 5.4698666367148725, 13.138032455036068};
    for (size_t i = 0; i < 3; i++)
        if (!(fabs(ebb_element(&got, i) - gradient[i]) <= 1e-3 * fabs(gradient[i])))
            fail_msg("%.9g is not %.9g", ebb_element(&got, i), gradient[i]);
}

TEST(class_weights_come_from_a_list_or_a_file)
{
    static const float weights[3] = {1, 0.5f, 2};
    static const int64_t three[1] = {3};
    const ebb_named array = {"w", 1, 1, three, weights};
    results list, text, arrays;
    FILE *file = fopen("class_weights.txt", "w");
    assert_non_null(file);
    (void)fputs("1\n0.5\n2\n", file);
    assert_int_equal(fclose(file), 0);
    good(ebb_tensors_save("class_weights.safetensors", &array, 1, NULL));
    step(&list, LIST("cross-entropy:output=a,target=label,class-weights=\"1,0.5,2\""), "");
    step(&text, LIST("cross-entropy:output=a,target=label,class-weights=class_weights.txt"), "");
    step(&arrays,
         LIST("cross-entropy:output=a,target=label,class-weights=class_weights.safetensors"), "");
    is_near(text.loss, list.loss);
    is_near(arrays.loss, list.loss);
    for (int i = 0; i < 6; i++) {
        is_near(text.v[i], list.v[i]);
        is_near(arrays.v[i], list.v[i]);
    }
    (void)remove("class_weights.txt");
    (void)remove("class_weights.safetensors");
}

TEST(constants_of_a_loss_are_not_trained)
{
    static const char *const losses[] = {
        "cross-entropy:output=a,target=label,class-weights=\"1,2,3\",label-smoothing=0.1",
        "bce-logits:output=a,target=t,pos-weight=\"1,2,3\"",
        "dice:output=a,target=label,axis=1,over=batch", "huber:output=a,target=t,delta=0.5"};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        RELEASED ebb_model_facts *f = NULL;
        OWNED_MODEL *model = model_of(two_heads);
        good(make(model, LIST(losses[i]), "", false));
        good(ebb_facts_of(&f, model));
        size_t gradients = 0;
        for (size_t k = 0; k < f->output_count; k++)
            gradients += strstr(f->outputs[k].name, "_grad") != NULL;
        assert_int_equal(gradients, 1); // v's
    }
}

/* The sums of a fraction are of the whole batch: no part has its share of it. */
TEST(dice_over_the_batch_is_not_split)
{
    OWNED_MODEL *model = model_of(two_heads);
    refused(make(model, LIST("dice:output=a,target=t,over=batch"), "micro-batch:parts=2", true),
            EBB_UNSUPPORTED, "it needs a result of the whole batch");
}

static char *report_of(const char *loss, const char *pass)
{
    char *pipeline, *json;
    OWNED_MODEL *model = model_of(
        HEAD "g (float[256,2] x) => (float[256,3] y) <float[2,3] v = {1,-1,0.5,2,0.25,-2}> "
             "{ y = MatMul (x, v) }");
    const ebb_step_options options = {
        .loss = loss, .optimizer = "none", .passes = (const char *const[]){pass, NULL}};
    good(ebb_step_pipeline(&pipeline, &options));
    good(ebb_rewrite(model, pipeline, NULL, &json));
    ebb_release(pipeline);
    return json;
}

static bool applied(const char *json, const char *pass)
{
    char name[64];
    (void)snprintf(name, sizeof name, "\"name\": \"%s\"", pass);
    const char *at = strstr(json, name);
    assert_non_null(at);
    at = strstr(at, "\"applied\": ");
    assert_non_null(at);
    return atoi(at + 11) > 0;
}

TEST(a_weighted_loss_is_chunked_and_a_smoothed_one_is_not)
{
    char *json = report_of("cross-entropy:class-weights=\"1,2,3\"", "chunk-loss:rows=64");
    assert_true(applied(json, "chunk-loss"));
    ebb_release(json);
    json = report_of("cross-entropy:label-smoothing=0.1", "chunk-loss:rows=64");
    assert_false(applied(json, "chunk-loss"));
    ebb_release(json);
}

static void by_rows(double loss_and_gradient[7], const char *loss, const char *pass)
{
    static float x[512];
    static int64_t target[256];
    static const int64_t dims[2] = {256, 2};
    OWNED_PROGRAM *p = NULL;
    OWNED_MODEL *model = model_of(
        HEAD "g (float[256,2] x) => (float[256,3] y) <float[2,3] v = {1,-1,0.5,2,0.25,-2}> "
             "{ y = MatMul (x, v) }");
    for (int i = 0; i < 512; i++)
        x[i] = sinf((float)(3 * i));
    for (int i = 0; i < 256; i++)
        target[i] = i % 11 == 0 ? -100 : i % 3;
    const ebb_named in[2] = {{"x", 1, 2, dims, x}, {"target", 7, 1, dims, target}};
    const ebb_batch batch = {in, 2};
    good(make(model, LIST(loss), pass, pass[0] != '\0'));
    good(ebb_program_compile(&p, model, NULL));
    good(ebb_program_step(p, &batch));
    read(p, "loss", loss_and_gradient, 1);
    read(p, "v_grad", loss_and_gradient + 1, 6);
}

TEST(labels_that_are_no_class_are_errors)
{
    static const struct {
        const char *loss;
        int64_t label;
    } wrong[] = {
        {"cross-entropy:axis=-1,target=target", 255},
        {"cross-entropy:axis=-1,target=target", -1},
        {"dice:axis=-1,target=target", 255},
        {"dice:axis=-1,target=target", -1},
        {"ctc:time-axis=1,labels=2", 255},
        {"ctc:time-axis=1,labels=2", -1},
    };
    static const int64_t dims[3] = {1, 2, 3}, lists[2] = {1, 2};
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const int64_t said[2] = {1, wrong[i].label};
        const ebb_named in[2] = {{"x", 1, 3, dims, x}, {"target", 7, 2, lists, said}};
        const ebb_batch batch = {in, 2};
        OWNED_PROGRAM *p = NULL;
        OWNED_MODEL *model = model_of(HEAD "g (float[1,2,3] x) => (float[1,2,3] y) "
                                           "<float[3] b = {1,2,3}> { y = Mul (x, b) }");
        good(make(model, LIST(wrong[i].loss), "", false));
        good(ebb_program_compile(&p, model, NULL));
        ebb_status status = ebb_program_step(p, &batch);
        if (status == NULL)
            fail_msg("%s: a label of %lld is no error", wrong[i].loss, (long long)wrong[i].label);
        assert_non_null(strstr(ebb_status_text(status), "is outside"));
    }
}

TEST(a_chunked_loss_has_its_weights)
{
    static const char loss[] = "cross-entropy:class-weights=\"1,2,3\",weight=0.5";
    double whole[7], chunks[7], parts[7];
    by_rows(whole, loss, "");
    by_rows(chunks, loss, "chunk-loss:rows=64");
    by_rows(parts, loss, "chunk-loss:rows=64,micro-batch:parts=2");
    for (int i = 0; i < 7; i++) {
        is_near(chunks[i], whole[i]);
        is_near(parts[i], whole[i]);
    }
}

/* In 16 bits a loss keeps its 32: otherwise 1e-12 would be 0. */
TEST(a_loss_is_computed_in_float32)
{
    static const char *const losses[] = {
        "cosine:output=b,target=number", "kl:output=b,target=number",
        "focal:output=b,target=number", "dice:output=b,target=number",
        "huber:output=b,target=number"};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        RELEASED char *pipeline = NULL, *text = NULL;
        OWNED_MODEL *model = model_of(two_heads);
        const ebb_step_options options = {
            .loss = losses[i], .optimizer = "none", .precision = "bf16"};
        good(ebb_step_pipeline(&pipeline, &options));
        good(ebb_rewrite(model, pipeline, NULL, NULL));
        good(ebb_inspect_text(model, &text));
        assert_non_null(strstr(text, "(float loss"));
        assert_null(strstr(text, "number_bf16"));
    }
}
