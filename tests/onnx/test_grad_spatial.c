/* test_grad_spatial.c: the gradient rules of what samples, pools and places elements in space. */
#include "grad.h"

static const grad_case cases[] = {
#include "grad_spatial.def"
};

TEST(every_rule_agrees_with_the_difference_quotient)
{
    all_cases_pass(cases, sizeof cases / sizeof cases[0], first_order_passes);
}

/* A matrix of shares would have 1,001 * 2,002 elements: they are gathered. x[i] is i, y is linear
 * in x, so that sum(y) and dx . x are the same number. */
TEST(a_long_axis_is_resized_without_a_matrix)
{
    enum { IN = 1001, OUT = 2002 };
    static double x[IN], ones[OUT];
    const int64_t in[3] = {1, 1, IN}, out[3] = {1, 1, OUT};
    const ebb_type type = ebb_type_tensor(EBB_F64, 3, in), wide = ebb_type_tensor(EBB_F64, 3, out);
    static const grad_case what = {EBB_OP_RESIZE, "long", "", "1", 0};
    bench t = {.what = &what, .in_count = 4, .out_count = 1, .varies = {true}};
    double sum = 0, along = 0;
    for (int i = 0; i < OUT; i++) {
        ones[i] = 1;
        x[i / 2] = i / 2;
    }
    assert_null(ebb_model_new(&t.model, 20));
    t.g = t.model->graph;
    t.b = ebb_build_at(t.g, EBB_NO_NODE, EBB_FORWARD, NULL);
    assert_null(ebb_graph_add_initializer(t.g, &t.x[0], "x", &type, x, EBB_ROLE_PARAMETER));
    assert_null(ebb_graph_add_initializer(t.g, &t.dy[0], "dy", &wide, ones, EBB_ROLE_PARAMETER));
    t.x[3] = ebb_const_ints(&t.b, out, 3);
    ebb_with_string(&t.b, "mode", "linear");
    ebb_emit_node(&t.b, EBB_OP_RESIZE, t.x, 4, t.y, 1, 1);
    assert_null(t.b.status);
    t.node = t.b.last;
    assert_true(differentiate(&t));
    EBB_EACH_NODE(t.g, n) {
        assert_int_not_equal(ebb_node_of(t.g, n)->op, EBB_OP_MATMUL);
        assert_null(run_node(&t, n));
    }
    const ebb_tensor *y = ebb_value_of(t.g, t.y[0])->tensor,
                     *dx = ebb_value_of(t.g, t.dx[0])->tensor;
    for (int i = 0; i < OUT; i++)
        sum += ebb_tensor_double(y, i);
    for (int i = 0; i < IN; i++)
        along += ebb_tensor_double(dx, i) * x[i];
    assert_true(sum > 1e5 && fabs(sum - along) < 1e-6);
    ebb_model_free(t.model);
    ebb_arena_fini(&t.arena);
}

TEST(a_rule_that_cannot_work_says_why)
{
#define CROP "mode=linear coordinate_transformation_mode=tf_crop_and_resize"
    static const struct {
        grad_case what;
        const char *why;
    } refused[] = {
        {{EBB_OP_RESIZE, "d[1,1,3,3] q[2] - i{1,1,5,5}", CROP, "1", 0},
         "two numbers for each axis"},
        {{EBB_OP_RESIZE, "d[1,1,3,3] p[8] - i{1,1,5,5}",
          CROP " keep_aspect_ratio_policy=not_larger", "1", 0},
         "its aspect ratio is kept"},
        {{EBB_OP_LP_POOL, "d[1,1,4]", "kernel_shape=[2] p=0", "1", 0}, "p is less than 1"},
        {{EBB_OP_LRN, "d[1,2,3]", "size=0", "1", 0}, "size or rank is out of range"},
        {{EBB_OP_COL2IM, "d[1,2,2] i{3} i{2}", "pads=[-1,1]", "1", 0}, "out of range"},
        {{EBB_OP_COL2IM, "d[1,2,3] i{3} i{2}", "", "1", 0}, "rows and columns"},
        {{EBB_OP_MAX_UNPOOL, "d[1,1,3] i[1,1,3]{0,1,2} i{1,1,2}", "kernel_shape=[2]", "1", 0},
         "do not fit its output"},
        {{EBB_OP_DEFORM_CONV, "d[1,3,4,4] d[2,3,2,2] d[1,16,3,3]", "offset_group=2", "1", 0},
         "do not divide its channels"},
    };
    for (size_t k = 0; k < sizeof refused / sizeof refused[0]; k++) {
        bench t = {.what = &refused[k].what};
        state_of_draws = k;
        assert_true(set_up(&t));
        ebb_grad rule = {.node = t.node,
                         .input_count = t.in_count,
                         .output_count = 1,
                         .x = t.x,
                         .y = t.y,
                         .dy = t.dy,
                         .wants = t.varies,
                         .dx = t.dx,
                         .attrs = ebb_node_attrs(t.g, t.node)};
        ebb_grad_rule(&t.b, t.what->op, &rule);
        assert_non_null(t.b.status);
        if (strstr(ebb_status_text(t.b.status), refused[k].why) == NULL)
            fail_msg("%s: no word of '%s'", ebb_status_text(t.b.status), refused[k].why);
        ebb_model_free(t.model);
        ebb_arena_fini(&t.arena);
    }
}

/* The shape of y is known, as a file says it; roi, scales and sizes are computed in the run. */
static bool passes_in_run(const grad_case *c, uint64_t seed)
{
    bench t = {.what = c};
    state_of_draws = seed;
    bool good = set_up(&t);
    for (uint32_t i = 1; good && i < t.in_count; i++)
        if (t.x[i].i != 0)
            ebb_value_of(t.g, t.x[i])->role = EBB_ROLE_PARAMETER; // no constant any more
    good = good && rule_agrees(&t);
    ebb_model_free(t.model);
    ebb_arena_fini(&t.arena);
    return good;
}

TEST(scales_that_are_computed_in_the_run_are_differentiated_there)
{
    grad_case list[sizeof cases / sizeof cases[0]];
    size_t count = 0;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        bool resizes = cases[k].op == EBB_OP_RESIZE || cases[k].op == EBB_OP_UPSAMPLE;
        if (resizes && strstr(cases[k].attrs, "aspect") == NULL && cases[k].opset != 9)
            list[count++] = cases[k];
    }
    assert_true(count >= 10);
    all_cases_pass(list, count, passes_in_run);
}
