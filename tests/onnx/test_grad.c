/* test_grad.c: the gradient rules of the basic operators, and that no row of the operator table has
 * a rule without a case in one of the files of cases. */
#include "grad.h"

static const grad_case cases[] = {
#include "grad_cases.def"
};
static const grad_case all[] = {
#include "grad_cases.def"
#include "grad_spatial.def"
#include "grad_algebra.def"
#include "grad_recurrent.def"
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* ---- tests ---- */

TEST(every_rule_agrees_with_the_difference_quotient)
{
    all_cases_pass(cases, CASES, first_order_passes);
}

/* What reads weights in few bits, and experts, is differentiated beside ONNX Runtime's results (dialect.recorded);
 * what goes straight through codes, beside PyTorch's (gradients.recorded). */
static const char *const elsewhere[] = {"MATMUL_CODES",           "MATMUL_DEQUANTIZED",
                                        "EXPERTS_MATMUL",         "EXPERTS_MATMUL_CODES",
                                        "GATHER_BLOCK_QUANTIZED", "QUANTIZE_LINEAR",
                                        "DYNAMIC_QUANTIZE_LINEAR"};

TEST(every_row_with_a_rule_has_a_case)
{
    int bad = 0;
    for (int op = 1; op < EBB_OP_COUNT; op++) {
        bool found = !ebb_op_has_grad((ebb_op)op) || ebb_op_stops_grad((ebb_op)op);
        for (size_t k = 0; !found && k < sizeof all / sizeof all[0]; k++)
            found = all[k].op == (ebb_op)op;
        for (size_t k = 0; !found && k < sizeof elsewhere / sizeof elsewhere[0]; k++)
            found = strcmp(elsewhere[k], ebb_op_row_of((ebb_op)op)->id) == 0;
        if (!found) {
            print_error("%s has a gradient rule and no case here\n", ebb_op_row_of((ebb_op)op)->id);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

/* dx of one input for values and dy = 1. */
static void gradient_of(ebb_op op, uint32_t count, const double (*x)[4], double (*dx)[4])
{
    static const grad_case blank = {EBB_OP_UNKNOWN, "", "", "1", 0};
    const int64_t dims[1] = {4};
    const double ones[4] = {1.0, 1.0, 1.0, 1.0};
    ebb_type type = ebb_type_tensor(EBB_F64, 1, dims);
    bench t = {.what = &blank, .in_count = count, .out_count = 1};
    assert_null(ebb_model_new(&t.model, 20));
    t.g = t.model->graph;
    t.b = ebb_build_at(t.g, EBB_NO_NODE, EBB_FORWARD, NULL);
    for (uint32_t i = 0; i < count; i++) {
        t.varies[i] = true;
        assert_null(ebb_graph_add_initializer(t.g, &t.x[i], "x", &type, x[i], EBB_ROLE_PARAMETER));
    }
    ebb_emit_node(&t.b, op, t.x, count, t.y, 1, 1);
    assert_null(t.b.status);
    t.node = t.b.last;
    ebb_type y = *ebb_value_of(t.g, t.y[0])->type;
    assert_null(ebb_graph_add_initializer(t.g, &t.dy[0], "dy", &y, ones, EBB_ROLE_PARAMETER));
    grad_case what = blank;
    what.op = op;
    t.what = &what;
    assert_true(differentiate(&t));
    EBB_EACH_NODE(t.g, n)
        assert_null(run_node(&t, n));
    for (uint32_t i = 0; i < count; i++)
        for (int64_t k = 0; k < 4; k++)
            dx[i][k] = ebb_tensor_double(ebb_value_of(t.g, t.dx[i])->tensor, k);
    ebb_model_free(t.model);
    ebb_arena_fini(&t.arena);
}

TEST(equals_share_the_gradient_of_a_maximum)
{
    const double pair[2][4] = {{1.0, 2.0, 3.0, 0.0}, {1.0, 1.0, 4.0, 0.0}};
    double d[2][4];
    const double first[4] = {0.5, 1.0, 0.0, 0.5}, second[4] = {0.5, 0.0, 1.0, 0.5};
    gradient_of(EBB_OP_MAX, 2, pair, d);
    assert_memory_equal(d[0], first, sizeof first);
    assert_memory_equal(d[1], second, sizeof second);
    const double row[1][4] = {{2.0, 1.0, 2.0, -1.0}};
    const double share[4] = {0.5, 0.0, 0.5, 0.0};
    gradient_of(EBB_OP_REDUCE_MAX, 1, row, d);
    assert_memory_equal(d[0], share, sizeof share);
}

TEST(relu_passes_nothing_at_zero)
{
    const double x[1][4] = {{0.0, -0.0, 1.0, -1.0}}, want[4] = {0.0, 0.0, 1.0, 0.0};
    double d[1][4];
    gradient_of(EBB_OP_RELU, 1, x, d);
    for (int i = 0; i < 4; i++)
        assert_true(d[0][i] == want[i]);
}

TEST(the_norm_of_nothing_has_gradient_zero)
{
    const double x[1][4] = {{0.0, 0.0, 0.0, 0.0}};
    double d[1][4];
    gradient_of(EBB_OP_REDUCE_L2, 1, x, d);
    for (int i = 0; i < 4; i++)
        assert_true(d[0][i] == 0.0);
}
