/* test_allowance.c: how much a node may do, by what its file holds; and what is computed before a
 * run. Files that ask for too much: tests/hostile/corpus_text.h. */

#include "exec/run/eval.h"
#include "exec/run/program.h"
#include "exec/weigh/allowance.h"
#include "onnx/graph/infer.h"
#include "onnx/file/file.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/test.h"

static ebb_model *model_of(const char *graph)
{
    ebb_model *model = NULL;
    ebb_status status = ebb_text_parse_model(
        &model, formatted("<ir_version: 10, opset_import: [\"\" : 21]>\ng %s", graph));
    if (status == NULL)
        status = ebb_infer_graph(model->graph);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
    return model;
}

static ebb_code plans(const ebb_model *model)
{
    ebb_setting setting;
    OWNED_ARENA arena = {0};
    ebb_plan plan;
    assert_null(ebb_setting_read(&setting, model, "plain", 0, 0));
    ebb_status status = ebb_plan_make(&plan, &arena, model->graph, &setting);
    ebb_code code = ebb_status_code(status);
    if (status == NULL)
        ebb_plan_release(&plan);
    return code;
}

TEST(what_is_given_allows_more)
{
    OWNED_MODEL *small = model_of("(float[1024] x) => (float[] y) { y = Relu(x) }");
    OWNED_MODEL *large = model_of("(float[1048576] x) => (float[] y) { y = Relu(x) }");
    ebb_allowance a = ebb_allowance_of(small), b = ebb_allowance_of(large);
    assert_true(a.given == 4096 && b.given == 4194304);
    assert_true(b.operations > a.operations && b.bytes > a.bytes);
    assert_true(a.operations >= 1e12 && a.bytes >= 0x1p34);
    small->trusted = true;
    assert_true(ebb_allowance_of(small).bytes > 1e300);
}

/* 2 * 65536^3 operations are 5.6e14: for 34 GB of operands little, for a number each much. */
TEST(the_same_product_is_right_for_large_operands_alone)
{
    OWNED_MODEL *given = model_of("(float[65536,65536] a, float[65536,65536] b) => (float[] y) "
                                  "{ y = MatMul(a, b) }");
    OWNED_MODEL *made = model_of("(float[1,1] n) => (float[] y) <int64[2] s = {65536, 65536}> "
                                 "{ a = Expand(n, s) y = MatMul(a, a) }");
    assert_int_equal(plans(given), EBB_OK);
    assert_int_equal(plans(made), EBB_REJECTED);
    made->trusted = true;
    assert_int_equal(plans(made), EBB_OK);
}

/* Nodes that are computed before a run: the trust of a model goes with its copies. */
TEST(much_work_is_left_to_the_run)
{
    OWNED_MODEL *model =
        model_of("() => (float[] y) <float[1] x = {1.0}, int64[2] n = {2000, 2000}> "
                 "{ a = Expand(x, n) y = MatMul(a, a) }");
    OWNED_MODEL *copy = NULL;
    ebb_node product = ebb_next(model->graph, ebb_first(model->graph));
    assert_true(ebb_allowance_evaluates(model->graph, ebb_first(model->graph), 16000000));
    assert_false(ebb_allowance_evaluates(model->graph, product, 16000000)); // 1.6e10 operations
    assert_false(ebb_allowance_evaluates(model->graph, ebb_first(model->graph), (size_t)1 << 29));
    model->trusted = true;
    assert_true(ebb_allowance_evaluates(model->graph, product, 16000000));
    assert_null(ebb_model_copy(&copy, model));
    assert_true(copy->trusted);
}
