/* test_contest.c: passes side by side that want the same tensor: one gets it, whatever the order,
 * and the other says to whom it lost.
 */
#include <string.h>

#include "onnx/file/file.h"
#include "passes/budget/contest.h"
#include "passes/pipeline.h"
#include "tests/test.h"

static const char source[] =
    "<ir_version: 10, opset_import: [\"\" : 20]>\n"
    "g (float[64,64] x) => (float[64,64] y) <float[64,64] w, float p = {0.1}, bool on = {1}>\n"
    "{ h = MatMul (x, w) [drop] y = Dropout (h, p, on) }";

typedef struct outcome {
    ebb_arena keep;
    ebb_model *model;
    ebb_report *reports;
    size_t count;
    char *text;
} outcome;

static void run(outcome *o, const char *passes)
{
    const ebb_rewrite_options options = {.verify_each = true};
    *o = (outcome){.count = 0};
    assert_null(ebb_text_parse_model(&o->model, source));
    assert_null(ebb_pipeline_run(o->model, "train-mode,loss:mse,gradient", &options, &o->keep,
                                 &o->reports, &o->count));
    ebb_status status =
        ebb_pipeline_run(o->model, passes, &options, &o->keep, &o->reports, &o->count);
    if (status != NULL)
        fail_msg("%s: %s", passes, ebb_status_text(status));
    assert_null(ebb_text_print(&o->text, o->model->graph));
}

static void done(outcome *o)
{
    ebb_free(o->text);
    ebb_model_free(o->model);
    ebb_arena_fini(&o->keep);
}

static const ebb_report *report_of(const outcome *o, const char *pass)
{
    for (size_t i = 0; i < o->count; i++)
        if (strcmp(o->reports[i].pass, pass) == 0)
            return &o->reports[i];
    fail_msg("%s has no report", pass);
    return NULL;
}

TEST(the_order_of_a_list_decides_nothing)
{
    static const char *const orders[] = {"dropout-seed,dropout-mask", "dropout-mask,dropout-seed"};
    outcome o[2];
    for (int k = 0; k < 2; k++) {
        run(&o[k], orders[k]);
        assert_int_equal(report_of(&o[k], "dropout-mask")->applied, 1);
        assert_int_equal(report_of(&o[k], "dropout-seed")->applied, 0);
    }
    assert_string_equal(o[0].text, o[1].text);
    const ebb_report *loser = report_of(&o[0], "dropout-seed");
    assert_int_equal(loser->skip_count > 0, 1);
    assert_string_equal(loser->skips[0].reason,
                        "dropout-mask saves more of its tensor for the time");
    for (int k = 0; k < 2; k++)
        done(&o[k]);
}

TEST(a_pass_alone_gets_what_it_wants)
{
    outcome o;
    run(&o, "dropout-seed");
    assert_int_equal(report_of(&o, "dropout-seed")->applied, 1);
    done(&o);
}

TEST(the_better_offer_wins_and_free_offers_compare_by_bytes)
{
    outcome o;
    run(&o, "drop-saves");
    const ebb_graph *g = o.model->graph;
    const ebb_pass *list[] = {ebb_pass_find("dropout-seed"), ebb_pass_find("dropout-mask")};
    const ebb_value v = g->inputs[0];
    static const struct {
        ebb_offer first, second;
        bool first_wins;
    } rows[] = {
        {{.saved_bytes = 1 << 20, .added_ns = 1e6},
         {.saved_bytes = 1 << 20, .added_ns = 2e6},
         true},
        {{.saved_bytes = 1 << 20, .added_ns = 2e6},
         {.saved_bytes = 1 << 20, .added_ns = 1e6},
         false},
        {{.saved_bytes = 1 << 20, .added_ns = 1e6},
         {.saved_bytes = 1 << 22, .added_ns = 2e6},
         false},
        {{.saved_bytes = 1 << 20, .added_ns = -5e5},
         {.saved_bytes = 1 << 22, .added_ns = 0},
         false},
        {{.saved_bytes = 1 << 22, .added_ns = 0}, {.saved_bytes = 1 << 20, .added_ns = -5e5}, true},
        {{.saved_bytes = 1 << 20, .added_ns = 5e5}, {.saved_bytes = 0, .added_ns = 0}, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ebb_contest c;
        ebb_offer offers[] = {rows[i].first, rows[i].second};
        offers[0].value = offers[1].value = v;
        assert_null(ebb_contest_init(&c, g, list, 2, &o.keep));
        for (c.now = 0; c.now < 2; c.now++)
            assert_non_null(ebb_contest_hear(&c, list[c.now], ebb_first(g), &offers[c.now]));
        c.now = 0;
        const char *answer = ebb_contest_judge(&c, list[0], ebb_first(g), &offers[0]);
        assert_int_equal(answer == NULL, rows[i].first_wins);
        c.now = 1; // the last has nobody to wait for
        assert_null(ebb_contest_judge(&c, list[1], ebb_first(g), &offers[1]));
    }
    done(&o);
}
