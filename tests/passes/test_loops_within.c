/* test_loops_within.c: long loops within long loops: kept, drawn anew in each step of both, or refused; and what bodies take. */
#include "tests/owned.h"
#include "tests/passes/loops.h"

#include "exec/weigh/estimate.h"
#include "exec/weigh/plan.h"
#include "tests/text.h"

/* Two digits of one number: no two steps of both loops have one key. */
TEST(dropout_draws_anew_in_each_step_of_both_loops)
{
    static const char text[] = HEAD
        "g (float[64] s, float[3,4,64] x) => (float[3,4,64] all, float[3,64] outer)\n"
        "<float ratio = {0.5}>\n"
        "{\n"
        "   last, all, outer = Scan <num_scan_inputs = 1, body = rows (float[64] h, float[4,64] "
        "row)"
        " => (float[64] h2, float[4,64] outs, float[64] o) {\n"
        "      h2, outs = Scan <num_scan_inputs = 1, body = step (float[64] state, float[64] t)"
        " => (float[64] next, float[64] out) {\n"
        "         next = Identity (state)\n"
        "         n = Mul (t, t)\n"
        "         a = Sqrt (n)\n"
        "         d = Div (a, a)\n"
        "         out = Dropout (d, ratio)\n"
        "      }> (h, row)\n"
        "      m = Mul (h, h)\n"
        "      q = Sqrt (m)\n"
        "      r = Div (q, q)\n"
        "      o = Dropout (r, ratio)\n"
        "   }> (s, x)\n"
        "}\n";
    ran r;
    float drawn_rows[2 * 15][64];
    good(prepare(&r, text, "opset,inline,fold,unroll:most=1,train-mode,alias"));
    for (int steps = 0; steps < 2; steps++) {
        ebb_named all, outer;
        good(step(&r, &plain));
        good(ebb_program_get(r.program, "all", &all));
        good(ebb_program_get(r.program, "outer", &outer));
        memcpy(drawn_rows[15 * steps], all.data, 12 * sizeof *drawn_rows);
        memcpy(drawn_rows[15 * steps + 12], outer.data, 3 * sizeof *drawn_rows);
    }
    for (int i = 0; i < 30; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(drawn_rows[i], drawn_rows[j], sizeof *drawn_rows);
    finish(&r);
}

#define LONG(outer, inner)                                                                         \
    HEAD                                                                                           \
        "g (float[2] s, float[" outer "] x, float[" inner "] t) => (float[2] last)\n"              \
        "{\n"                                                                                      \
        "   last = Scan <num_scan_inputs = 1, body = a (float[2] h, float p) => (float[2] h2) {\n" \
        "      g = Mul (h, p)\n"                                                                   \
        "      h2 = Scan <num_scan_inputs = 1, body = b (float[2] u, float q) => (float[2] u2) "   \
        "{\n"                                                                                      \
        "         v = Mul (u, q)\n"                                                                \
        "         w = Add (v, h)\n"                                                                \
        "         u2 = Sin (w)\n"                                                                  \
        "      }> (g, t)\n"                                                                        \
        "   }> (s, x)\n"                                                                           \
        "}\n"

/* Both lengths are of loops that stay: what is held are the ends, and one step of each. */
TEST(a_long_loop_within_a_long_loop_stays)
{
    ran r;
    ebb_scan s, within;
    good(prepare(&r, LONG("1100", "1200"), "fold,unroll,alias"));
    assert_int_equal(r.loops, 1);
    assert_null(ebb_scan_read(&s, r.model->graph, ebb_last(r.model->graph)));
    assert_null(ebb_scan_read(&within, s.body, ebb_last(s.body)));
    assert_int_equal(within.trips, 1200);
    good(step(&r, &plain));
    planned_is_measured(&r);
    assert_true(ebb_program_measure(r.program).planned_arena_bytes <= 4 * (1100 + 1200) + 12 * 64);
    finish(&r);
}

/* Nothing of a file may make a step take for ever. */
TEST(loops_of_endless_steps_within_one_another_are_refused)
{
    ran r;
    good(prepare(&r, LONG("2000000", "2000000"), "unroll"));
    refused(ebb_program_compile(&r.program, r.model, &plain), EBB_REJECTED, "Scan 'last'");
    finish(&r);
}

/* What cannot be kept is named, with why. */
TEST(what_cannot_be_kept_stays_and_is_named)
{
    static const char text[] = HEAD
        "g (float[4] s, int64 trips, float[3000,4] x) => (float[4] y)\n"
        "{\n"
        "   y = Scan <num_scan_inputs = 1, body = step (float[4] state, float[4] t)"
        " => (float[4] next) {\n"
        "      next = Loop <body = c (int64 i, bool on, float[4] v) => (bool on2, float[4] v2) {\n"
        "         on2 = Identity (on)\n"
        "         v2 = Sin (v)\n"
        "      }> (trips, \"\", state)\n"
        "   }> (s, x)\n"
        "}\n";
    ran r;
    good(prepare(&r, text, "unroll"));
    refused(ebb_program_compile(&r.program, r.model, &plain), EBB_UNSUPPORTED, "Scan 'y'");
    finish(&r);
}

/* As x[:i+1] is exported: no two steps have one size. */
TEST(a_slice_as_long_as_the_steps_number_is_named)
{
    static const char text[] =
        HEAD "g (float[4] s, float[3000,4] x) => (float[4] y)\n"
             "<int64 trips = {3000}, int64[1] first = {0}, int64 one = {1}, int64[1] axis = {0}>\n"
             "{\n"
             "   y = Loop <body = c (int64 i, bool on, float[4] v) => (bool on2, float[4] v2) {\n"
             "      on2 = Identity (on)\n"
             "      next = Add (i, one)\n"
             "      end = Unsqueeze (next, axis)\n"
             "      part = Slice (x, first, end)\n"
             "      sum = ReduceSum <keepdims = 0> (part, axis)\n"
             "      v2 = Add (v, sum)\n"
             "   }> (trips, \"\", s)\n"
             "}\n";
    const ebb_rewrite_options options = {.verify_each = true};
    OWNED_ARENA keep = {0};
    ebb_report *reports;
    size_t count;
    OWNED_MODEL *model = parsed(text);
    good(ebb_pipeline_run(model, "unroll", &options, &keep, &reports, &count));
    assert_int_equal(reports[0].skip_count, 1);
    assert_non_null(strstr(reports[0].skips[0].reason, "Slice 'part'"));
    assert_non_null(strstr(reports[0].skips[0].reason, "a mask over the whole"));
}

/* Copies of one body are planned once in an estimate; another takes what itself needs, and no body more than that,
 * however large the arena of the step may be. */
TEST(an_estimate_knows_what_each_body_takes)
{
#define LOOP(last, body)                                                                  \
    "   " last " = Scan <num_scan_inputs = 1, body = step (float[64] state, float[64] t)" \
    " => (float[64] next) " body "}> (s, x)\n"
    static const char text[] =
        HEAD "g (float[64] s, float[5,64] x) => (float[64] p, float[64] q, float[64] r)\n"
             "{\n"
        // clang-format off
        LOOP("p", "<float[1] w = {0.5}> { a = Mul (state, w) b = Sin (a) next = Add (b, t) ")
        LOOP("q", "<float[1] w = {0.5}> { a = Mul (state, w) b = Sin (a) next = Add (b, t) ")
        LOOP("r", "<int64[1] z = {0}, int64[1] e = {64}> { a = Concat <axis = 0> (state, t)"
                  " b = Slice (a, z, e) next = Add (b, t) ")
        // clang-format on
        "}\n";
#undef LOOP
    EBB_LOCAL_ARENA(arena);
    ran r;
    ebb_setting setting;
    ebb_plan run;
    ebb_estimate estimate;
    size_t takes[3], count = 0;
    good(prepare(&r, text, "unroll:most=1"));
    assert_int_equal(r.loops, 3);
    good(ebb_setting_read(&setting, r.model, "plain", 0, 1));
    good(ebb_plan_make(&run, arena, r.model->graph, &setting));
    good(ebb_estimate_within(&estimate, arena, r.model->graph, "plain", UINT64_MAX));
    assert_true(estimate.runs);
    EBB_EACH_NODE(r.model->graph, n) {
        assert_int_equal(estimate.workspace_bytes[n.i], run.workspace_bytes[n.i]);
        takes[count++] = estimate.workspace_bytes[n.i];
    }
    assert_true(takes[0] > 0 && takes[0] == takes[1] && takes[2] > takes[0]);
    ebb_plan_release(&run);
    finish(&r);
}
