/* test_interface.c: what ebb.h promises to programs that are older or newer than the library, to those that
 * call it wrongly, and to those that have models and data in memory.
 */
#include <stdlib.h>

#include "onnx/file/file.h"
#include "tests/folder.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

static const char linear[] = "<ir_version: 10, opset_import: [\"\" : 20]> g (float[2,4] x) => "
                             "(float[2,3] y) <float[4,3] w = "
                             "{1,2,3,4,5,6,7,8,9,10,11,12}> { y = MatMul (x, w) }";
static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
static const int64_t dims[] = {2, 4};
static const ebb_named x = {"x", EBB_F32, 2, dims, ones};

TEST(the_version_is_one_number_and_one_text)
{
    int a, b, c;
    assert_int_equal(sscanf(ebb_version(), "%d.%d.%d", &a, &b, &c), 3);
    assert_int_equal(ebb_version_number(), a * 10000 + b * 100 + c);
    assert_int_equal(ebb_version_number(), EBB_VERSION_NUMBER);
    assert_string_equal(ebb_version(), EBB_VERSION);
}

/* ---- structs of another size ---- */

typedef struct newer { /* a header that has one field more */
    ebb_step_options o;
    int64_t later;
} newer;

TEST(options_of_a_later_header_are_read_where_their_new_fields_are_zero)
{
    char *text, *plain;
    newer n = {.o = {.size = sizeof n, .optimizer = "sgd:lr=0.1"}};
    good(ebb_step_pipeline(&text, &n.o));
    good(ebb_step_pipeline(&plain, &(ebb_step_options){.optimizer = "sgd:lr=0.1"}));
    assert_string_equal(text, plain);
    ebb_release(text);
    ebb_release(plain);
    n.later = 1;
    refused(ebb_step_pipeline(&text, &n.o), EBB_USAGE, "ebb_step_options: it has a field that ebb");
}

/* What lies behind an older struct is not read: the block ends there. */
TEST(options_of_an_earlier_header_are_read_as_far_as_they_go)
{
    RELEASED char *text = NULL;
    const size_t size = offsetof(ebb_step_options, train);
    FREED ebb_step_options *older = malloc(size);
    assert_non_null(older);
    memcpy(older, &(ebb_step_options){.size = size, .optimizer = "sgd:lr=0.1"}, size);
    good(ebb_step_pipeline(&text, older));
    assert_non_null(strstr(text, "optimizer:kind=sgd,lr=0.1"));
}

TEST(a_size_that_nobody_set_is_named)
{
    char *text;
    const ebb_step_options wild = {.size = (size_t)1 << 40}, tiny = {.size = 3};
    refused(ebb_step_pipeline(&text, &wild), EBB_USAGE, "set it to sizeof(ebb_step_options)");
    refused(ebb_step_pipeline(&text, &tiny), EBB_USAGE, "set it to sizeof(ebb_step_options)");
}

TEST(facts_are_given_as_far_as_the_caller_has_room)
{
    OWNED_MODEL *m = model_of(linear);
    OWNED_PROGRAM *p = NULL;
    struct {
        ebb_program_facts facts;
        int64_t later;
    } more = {.later = 7};
    ebb_program_facts less;
    memset(&less, 0xaa, sizeof less);
    const ebb_program_facts untouched = less;
    good(ebb_program_compile(&p, m, NULL));
    ebb_program_measure_to(p, &more.facts, sizeof more);
    assert_true(more.facts.arena_bytes > 0 && more.later == 0);
    ebb_program_measure_to(p, &less, sizeof less.arena_bytes);
    assert_int_equal(less.arena_bytes, more.facts.arena_bytes);
    assert_int_equal(less.planned_arena_bytes, untouched.planned_arena_bytes);
}

/* ---- calls that are wrong ---- */

TEST(a_null_or_a_count_below_zero_is_named)
{
    static const char *const nobody[] = {"true", NULL};
    ebb_model *m = model_of(linear), *none;
    OWNED_PROGRAM *p = NULL;
    int64_t steps;
    int code;
    char *text;
    ebb_batch batch = {NULL, 1};
    refused(ebb_open(&none, NULL), EBB_USAGE, "ebb_open: path is NULL");
    refused(ebb_open(NULL, "a.onnx"), EBB_USAGE, "ebb_open: model is NULL");
    refused(ebb_rewrite(m, NULL, NULL, NULL), EBB_USAGE, "ebb_rewrite: pipeline is NULL");
    refused(ebb_set_dim(m, "n", -1), EBB_USAGE, "dim 'n': size is -1, and must be 0 or more");
    refused(ebb_set_shape(m, "x", NULL, 2), EBB_USAGE, "ebb_set_shape: dims is NULL");
    refused(ebb_set_shape(m, "x", (const int64_t[]){2, -4}, 2), EBB_USAGE, "dims[i] is -4");
    refused(ebb_set_threads(m, -2), EBB_USAGE, "ebb_set_threads: threads is -2");
    refused(ebb_program_compile(&p, m, &(ebb_compile_options){.threads = -1}), EBB_USAGE,
            "ebb_program_compile: threads is -1");
    refused(ebb_step_pipeline(&text, &(ebb_step_options){.accumulate = -2}), EBB_USAGE,
            "ebb_step_options: accumulate is -2");
    refused(ebb_diff_json(m, m, &(ebb_plan_options){.steps = -1}, &text), EBB_USAGE,
            "ebb_diff_json: steps is -1");
    refused(ebb_trainer_steps(&steps, &(ebb_trainer_options){.row_count = 9, .batch = -3}),
            EBB_USAGE, "ebb_trainer_options: batch is -3");
    refused(ebb_launch(&(ebb_launch_options){.command = nobody, .ranks = 1, .link_gb = -1}, &code),
            EBB_USAGE, "ebb_launch: late_s, link_us and link_gb must be 0 or more");
    good(ebb_program_compile(&p, m, NULL));
    refused(ebb_program_step(p, NULL), EBB_USAGE, "input 'x' is missing");
    refused(ebb_program_step(p, &batch), EBB_USAGE, "ebb_program_step: tensors is NULL");
    ebb_close(m);
}

/* ---- in memory ---- */

TEST(a_model_in_memory_runs_as_the_file_does)
{
    ebb_model *text = model_of(linear), *m;
    ebb_program *p;
    ebb_named y;
    RELEASED void *bytes = NULL;
    size_t size;
    good(ebb_model_write_memory(text, &bytes, &size));
    good(ebb_open_memory(&m, bytes, size, NULL));
    good(ebb_program_compile(&p, m, NULL));
    good(ebb_program_step(p, &(ebb_batch){&x, 1}));
    good(ebb_program_get(p, "y", &y));
    assert_true(ebb_element(&y, 0) == 22 && ebb_element(&y, 2) == 30);
    ebb_program_free(p);
    ebb_close(m);
    refused(ebb_open_memory(&m, bytes, size / 2, NULL), EBB_REJECTED, "not all of one");
    ebb_close(text);
}

TEST(external_data_of_a_model_in_memory_want_a_folder)
{
    OWNED_MODEL *text = model_of(linear), *m = NULL;
    static char bytes[1 << 16];
    const ebb_write_options apart = {.external_above_bytes = 1};
    good(ebb_model_write(text, path_of("apart.onnx"), &apart));
    FILE *file = fopen(path_of("apart.onnx"), "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    refused(ebb_open_memory(&m, bytes, size, NULL), EBB_REJECTED,
            "'w' has its data in another file: tell the folder");
    good(ebb_open_memory(&m, bytes, size, path_of(".")));
    RELEASED ebb_model_facts *f = NULL;
    good(ebb_facts_of(&f, m));
    assert_true(ebb_element(&f->weights[0]->value, 11) == 12);
}

TEST(arrays_in_memory_are_data_and_are_not_copied)
{
    ebb_data *data;
    ebb_batch batch;
    ebb_named wrong = x;
    const int64_t second = 1;
    good(ebb_data_of(&data, &x, 1, NULL));
    assert_ptr_equal(ebb_data_find(data, "x")->data, ones);
    good(ebb_data_rows(data, &second, 1, NULL, &batch));
    assert_int_equal(batch.tensors[0].dims[0], 1);
    ebb_data_close(data);
    wrong.data = NULL;
    refused(ebb_data_of(&data, &wrong, 1, NULL), EBB_USAGE, "ebb_data_of: data is NULL");
    wrong = (ebb_named){"x", 99, 2, dims, ones};
    refused(ebb_data_of(&data, &wrong, 1, NULL), EBB_USAGE, "array 'x' is of no type");
    refused(ebb_data_of(&data, (const ebb_named[]){x, x}, 2, NULL), EBB_REJECTED, "there twice");
}

/* ---- facts as structs ---- */

TEST(weights_and_plans_are_read_without_json)
{
    OWNED_MODEL *m = model_of(linear);
    ebb_model_facts *f;
    RELEASED ebb_plan_facts *plan = NULL;
    OWNED_PROGRAM *p = NULL;
    char *text;
    good(ebb_step_pipeline(&text, &(ebb_step_options){.loss = "mse"}));
    good(ebb_rewrite(m, text, NULL, NULL));
    ebb_release(text);
    good(ebb_facts_of(&f, m));
    size_t parameters = 0, replaced = 0;
    for (size_t i = 0; i < f->weight_count; i++) {
        const ebb_weight_facts *w = f->weights[i];
        parameters += strcmp(w->role, "parameter") == 0;
        replaced += w->is_replaced;
        if (strcmp(w->value.name, "w") == 0)
            assert_true(w->bytes == 48 && w->value.rank == 2 && ebb_element(&w->value, 4) == 5);
    }
    assert_int_equal(parameters, f->parameter_count);
    assert_int_equal(replaced, 4); // w, its two moments, the count of steps
    ebb_release(f);
    good(ebb_plan_facts_of(&plan, m, NULL));
    good(ebb_program_compile(&p, m, NULL));
    const ebb_program_facts measured = ebb_program_measure(p);
    assert_int_equal(plan->peak_bytes, measured.peak_bytes);
    assert_int_equal(plan->arena_bytes, measured.planned_arena_bytes);
    assert_int_equal(plan->parameter_bytes + plan->gradient_bytes + plan->optimizer_bytes +
                         plan->input_bytes + plan->activation_bytes + plan->temporary_bytes +
                         plan->workspace_bytes,
                     plan->peak_bytes);
    assert_non_null(plan->peak_node);
    assert_null(plan->missing);
}

const fixture around_all = {make_folder, remove_folder};
