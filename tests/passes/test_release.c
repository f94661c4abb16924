/* test_release.c: updates that must wait, and those that need not. */
#include <stdio.h>
#include <string.h>

#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"
#include "tests/text.h"

#define FORWARD                                                                                  \
    "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]> g (float[8,4] x, float lr) => " \
    "(float loss, float[8,4] dx) <float[4,4] w, float[4] b, float top = {1}, int64[1] rows = "   \
    "{0}, int64[1] flat = {16}, int64[2] square = {4, 4}> {"                                     \
    "[fc] h = MatMul (x, w) [add] y = Add (h, b) "                                               \
    "[loss] loss = ReduceSumSquare <keepdims = 0> (y) "
#define BACKWARD                                                            \
    "[dy] dy = Add (y, y) [db] db = ReduceSum <keepdims = 0> (dy, rows) "   \
    "[xt] xt = Transpose <perm = [1, 0]> (x) [dw] dw = MatMul (xt, dy) "    \
    "[flat_w] fw = Reshape (w, flat) [square_w] sw = Reshape (fw, square) " \
    "[wt] wt = Transpose <perm = [1, 0]> (sw) [dx] dx = MatMul (dy, wt) "

/* Nodes from `dy` on are of the backward, those whose names begin with "up" of the update. */
static ebb_model *step(const char *text)
{
    ebb_model *model = parsed(text);
    ebb_graph *g = model->graph;
    ebb_phase phase = EBB_FORWARD;
    EBB_EACH_NODE(g, n) {
        const char *name = ebb_text(g, ebb_node_of(g, n)->name);
        if (strcmp(name, "dy") == 0)
            phase = EBB_BACKWARD;
        if (strncmp(name, "up", 2) == 0)
            phase = EBB_UPDATE;
        ebb_node_of(g, n)->phase = (uint8_t)phase;
    }
    const char *const states[][2] = {{"w", "w_next"}, {"b", "b_next"}};
    for (int i = 0; i < 2; i++) {
        ebb_value state = ebb_value_find(g, states[i][0]), next = ebb_value_find(g, states[i][1]);
        if (next.i != 0) {
            ebb_value_of(g, state)->role = EBB_ROLE_PARAMETER;
            assert_null(ebb_graph_bind(g, state, next));
        }
    }
    return model;
}

/* Runs the pass; order: the nodes' names from `dy` on, with a space behind each. */
static void release(ebb_model *model, char *order, size_t most, size_t *applied, const char **why)
{
    static char reason[256];
    ebb_arena keep = {0};
    ebb_report *reports;
    size_t count;
    const ebb_rewrite_options options = {.verify_each = true};
    good(ebb_pipeline_run(model, "release", &options, &keep, &reports, &count));
    *applied = reports[0].applied;
    (void)snprintf(reason, sizeof reason, "%s",
                   reports[0].skip_count > 0 ? reports[0].skips[0].reason : "");
    *why = reason;
    ebb_arena_fini(&keep);
    order[0] = '\0';
    bool backward = false;
    EBB_EACH_NODE(model->graph, n) {
        const char *name = ebb_text(model->graph, ebb_node_of(model->graph, n)->name);
        backward = backward || strcmp(name, "dy") == 0;
        if (backward && strlen(order) + strlen(name) + 2 < most)
            (void)strcat(strcat(order, name), " ");
    }
}

static void becomes(const char *text, const char *expected, size_t applied, const char *reason)
{
    char order[1024];
    size_t count;
    const char *why;
    OWNED_MODEL *model = step(text);
    release(model, order, sizeof order, &count, &why);
    assert_string_equal(order, expected);
    assert_int_equal(count, applied);
    if (strstr(why, reason) == NULL)
        fail_msg("the reason is '%s'", why);
    release(model, order, sizeof order, &count, &why);
    assert_string_equal(order, expected);
    assert_int_equal(count, 0);
}

TEST(an_update_waits_until_its_parameter_is_read_through_views)
{
    becomes(FORWARD BACKWARD "[up_w] w_next = ai.ebb.Sgd (lr, w, dw) "
                             "[up_b] b_next = ai.ebb.Sgd (lr, b, db) }",
            "dy db up_b xt dw flat_w square_w wt up_w dx ", 2, "");
}

TEST(clipping_by_the_global_norm_holds_them_all)
{
    becomes(FORWARD BACKWARD "[up_nw] nw = ReduceSumSquare <keepdims = 0> (dw) "
                             "[up_nb] nb = ReduceSumSquare <keepdims = 0> (db) "
                             "[up_sum] squares = Add (nw, nb) [up_norm] norm = Sqrt (squares) "
                             "[up_scale] scale = Div (top, norm) "
                             "[up_cw] cw = Mul (dw, scale) [up_cb] cb = Mul (db, scale) "
                             "[up_w] w_next = ai.ebb.Sgd (lr, w, cw) "
                             "[up_b] b_next = ai.ebb.Sgd (lr, b, cb) }",
            "dy db xt dw flat_w square_w wt dx up_nw up_nb up_sum up_norm up_scale up_cw up_cb "
            "up_w up_b ",
            0, "global norm");
}

TEST(clipping_one_gradient_moves_along)
{
    becomes(FORWARD BACKWARD "[up_half] half = Mul (lr, top) "
                             "[up_cb] cb = Mul (db, half) [up_cw] cw = Mul (dw, half) "
                             "[up_b] b_next = ai.ebb.Sgd (lr, b, cb) "
                             "[up_w] w_next = ai.ebb.Sgd (lr, w, cw) }",
            "dy db up_half up_cb up_b xt dw flat_w square_w wt up_cw up_w dx ", 2, "");
}

TEST(a_new_parameter_with_memory_of_its_own_stays)
{
    becomes(FORWARD BACKWARD "[up_t] t = Transpose (dw) [up_w] w_next = MatMul (w, t) "
                             "[up_b] b_next = ai.ebb.Sgd (lr, b, db) }",
            "dy db up_b xt dw flat_w square_w wt dx up_t up_w ", 1, "memory of its own");
}
