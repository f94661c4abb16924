/* test_facts.c: the recipe of a step, what a program learns of models, losses and arrays, and that
 * what the recipe writes is one thing with what the pipeline reads. */
#include <math.h>
#include <string.h>

#include "onnx/text/text.h"
#include "tests/owned.h"
#include "tests/text.h"

static const char linear[] =
    "<ir_version: 10, opset_import: [\"\" : 20]> g (float[n,4] x) => (float[n,3] y) <float[4,3] w> "
    "{ y = MatMul (x, w) }";

static void is(char *text, const char *expected)
{
    assert_string_equal(text, expected);
    ebb_release(text);
}

TEST(one_recipe_writes_every_step)
{
    char *text;
    assert_null(ebb_step_pipeline(&text, NULL));
    is(text, "flatten,train-mode:seed=0,batch-norm=train,dropout=on,fold,fuse,gradient,"
             "optimizer:kind=adamw,drop-saves,stream,alias");
    const ebb_step_options all = {
        .loss = "cross-entropy:axis=1",
        .optimizer = "sgd:lr=0.1",
        .train = (const char *const[]){"a,b", "c", NULL},
        .freeze = (const char *const[]){"d\"", NULL},
        .straight_through = true,
        .dropout = "0.3",
        .batch_norm = "frozen",
        .onnx_statistics = true,
        .precision = "bf16",
        .seed = 7,
        .passes = (const char *const[]){"sign-mask,pool-index", "", "tempo", NULL},
        .costs = "my,costs.json",
        .budget = "80%",
        .plan_time = "2",
        .allow = "lossy",
        .backend = "cuda:h100"};
    assert_null(ebb_step_pipeline(&text, &all));
    is(text,
       "flatten,train-mode:seed=7,batch-norm=frozen,statistics=onnx,dropout=on,ratio=0.3,fold,"
       "fuse,loss:kind=cross-entropy,axis=1,precision:dtype=bf16,gradient:train=\"a,b;c\",freeze="
       "d\","
       "straight-through=on,optimizer:kind=sgd,lr=0.1,cost:file=\"my,costs.json\",sign-mask,"
       "pool-index,tempo,drop-saves,fit:budget=80%,time=2,allow=lossy,costs=\"my,costs.json\","
       "backend=cuda:h100,stream,alias,cost:file=\"my,costs.json\"");
    const ebb_step_options again = {.passes =
                                        (const char *const[]){"sign-mask", "gradient:loops=again",
                                                              "train-mode:copies=apart", NULL}};
    assert_null(ebb_step_pipeline(&text, &again)); // both are there already: their options
    is(text, "flatten,train-mode:seed=0,batch-norm=train,dropout=on,copies=apart,fold,fuse,"
             "gradient:loops=again,optimizer:kind=adamw,sign-mask,drop-saves,stream,alias");
    assert_null(ebb_evaluation_pipeline(&text, &all));
    is(text,
       "flatten,train-mode:dropout=off,batch-norm=frozen,fold,fuse,loss:kind=cross-entropy,axis=1,"
       "keep-output=1,drop-saves,stream,alias");
    OWNED_MODEL *model = model_of(linear);
    assert_null(ebb_change_pipeline(&text, model, NULL));
    is(text, "");
    assert_null(ebb_change_pipeline(&text, model, &all));
    is(text,
       "cost:file=\"my,costs.json\",sign-mask,pool-index,tempo,fit:budget=80%,time=2,allow=lossy,"
       "costs=\"my,costs.json\",backend=cuda:h100,cost:file=\"my,costs.json\"");
}

/* Where a schedule ends is filled in where one is asked for and does not say it. */
TEST(rates_groups_and_averages_are_options_of_the_optimizer)
{
    char *text;
    ebb_step_options o = {
        .optimizer = "lion:lr=0.003",
        .schedule = "cosine:warmup=10,floor=0.1",
        .steps = 1000,
        .clip_norm = 0.5,
        .accumulate = 4,
        .groups = (const char *const[]){"bias,*norm*:weight-decay=0", "head*:kind=sgd", NULL},
        .ema = 0.999};
    assert_null(ebb_step_pipeline(&text, &o));
    is(text, "flatten,train-mode:seed=0,batch-norm=train,dropout=on,fold,fuse,gradient,"
             "optimizer:kind=lion,lr=0.003,schedule=cosine,warmup=10,floor=0.1,steps=1000,"
             "clip-norm=0.5,ema=0.999,groups=\"bias,*norm*:weight-decay=0|head*:kind=sgd\","
             "micro-batch:parts=4,batch-norm=per-part,require=1,drop-saves,stream,alias");
    o = (ebb_step_options){.schedule = "linear:steps=7", .steps = 1000};
    assert_null(ebb_step_pipeline(&text, &o));
    is(text, "flatten,train-mode:seed=0,batch-norm=train,dropout=on,fold,fuse,gradient,"
             "optimizer:kind=adamw,schedule=linear,steps=7,drop-saves,stream,alias");
    o = (ebb_step_options){.steps = 1000};
    assert_null(ebb_step_pipeline(&text, &o));
    is(text, "flatten,train-mode:seed=0,batch-norm=train,dropout=on,fold,fuse,gradient,"
             "optimizer:kind=adamw,drop-saves,stream,alias");
    o = (ebb_step_options){.schedule = "sine"};
    assert_int_equal(ebb_status_code(ebb_step_pipeline(&text, &o)), EBB_USAGE);
    assert_null(text);
}

TEST(a_loss_or_optimizer_is_one_pass)
{
    RELEASED char *text = NULL;
    static const ebb_step_options wrong[] = {{.loss = "mse,sign-mask"},
                                             {.loss = "mse:target=t,fold"},
                                             {.optimizer = "sgd:lr=0.1,fold"},
                                             {.optimizer = "sgdd"},
                                             {.loss = "mse:target=\"t"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ebb_status status = ebb_step_pipeline(&text, &wrong[i]);
        assert_int_equal(ebb_status_code(status), EBB_USAGE);
        assert_null(text);
    }
    const ebb_step_options quoted = {.loss = "mse:target=\"a,b\""};
    assert_null(ebb_evaluation_pipeline(&text, &quoted));
    assert_non_null(strstr(text, "loss:kind=mse,target=\"a,b\",keep-output=1"));
}

TEST(facts_are_those_of_the_graph)
{
    ebb_model_facts *f;
    char *text;
    OWNED_MODEL *model = model_of(linear);
    assert_null(ebb_facts_of(&f, model));
    assert_int_equal(f->input_count, 1); // w is an initializer
    assert_string_equal(f->inputs[0].name, "x");
    assert_int_equal(f->inputs[0].dtype, 1);
    assert_int_equal(f->inputs[0].rank, 2);
    assert_int_equal(f->inputs[0].dims[0], -1);
    assert_int_equal(f->inputs[0].dims[1], 4);
    assert_string_equal(f->outputs[0].name, "y");
    assert_int_equal(f->node_count, 1);
    assert_null(f->loss);
    assert_false(f->is_step || f->has_gradient);
    ebb_release(f);
    assert_null(ebb_set_dim(model, "n", 2));
    const ebb_step_options mse = {.loss = "mse"};
    assert_null(ebb_step_pipeline(&text, &mse));
    ebb_rewrite_facts done = {.applied = 9};
    const ebb_rewrite_options options = {.facts = &done};
    assert_null(ebb_rewrite(model, text, &options, NULL));
    ebb_release(text);
    assert_int_equal(done.applied, 0);
    assert_string_equal(done.exactness, "exact");
    assert_null(ebb_facts_of(&f, model));
    assert_int_equal(f->input_count, 2);
    assert_string_equal(f->inputs[1].name, "target");
    assert_string_equal(f->loss, "loss");
    assert_int_equal(f->parameter_count, 1);
    assert_true(f->is_step && f->has_gradient);
    ebb_release(f);
}

TEST(what_a_loss_says_has_defaults)
{
    ebb_loss_facts *f;
    assert_null(ebb_loss_facts_of(&f, "cross-entropy"));
    assert_string_equal(f->kind, "cross-entropy");
    assert_string_equal(f->target, "target");
    assert_null(f->output);
    assert_int_equal(f->axis, 1);
    assert_int_equal(f->ignore_index, -100);
    assert_false(f->is_sum);
    ebb_release(f);
    assert_null(ebb_loss_facts_of(
        &f, "cross-entropy:axis=-1,ignore_index=3,reduction=sum,output=\"a,b\",target=t"));
    assert_string_equal(f->output, "a,b");
    assert_string_equal(f->target, "t");
    assert_int_equal(f->axis, -1);
    assert_int_equal(f->ignore_index, 3);
    assert_true(f->is_sum);
    ebb_release(f);
    assert_int_equal(ebb_status_code(ebb_loss_facts_of(&f, "crossentropy")), EBB_USAGE);
    assert_null(f);
}

TEST(an_element_is_read_as_its_type_says)
{
    static const int64_t two[] = {2};
    static const uint16_t half[] = {0x3C00, 0xC100}, brain[] = {0x3F80, 0xC020};
    static const double wide[] = {1, -2.5};
    static const float single[] = {1, -2.5f};
    static const int8_t small[] = {1, -3};
    const ebb_named list[] = {{"", 10, 1, two, half},
                              {"", 16, 1, two, brain},
                              {"", 11, 1, two, wide},
                              {"", 1, 1, two, single},
                              {"", 3, 1, two, small}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        assert_true(ebb_element(&list[i], 0) == 1);
        assert_true(ebb_element(&list[i], 1) == (i == 4 ? -3 : -2.5));
        assert_true(isnan(ebb_element(&list[i], 2)));
    }
    assert_string_equal(ebb_dtype_text(16), "bfloat16");
    assert_string_equal(ebb_dtype_text(99), "?");
}
