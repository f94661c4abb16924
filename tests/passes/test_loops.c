/* test_loops.c: a loop that is kept gives what its copies give: values, gradients, draws; in the memory
 * that was planned. */
#include "tests/formatted.h"
#include "tests/passes/loops.h"
#include "tests/status.h"

/* ---- loops ---- */

/* Backwards over one input, along the second axis of the other; the results lie along their last axis. */
static const char axes[] = HEAD
    "g (float[2] s, float[5,2] a, float[2,5] b) => (float[2] last, float[2,5] all)\n"
    "{\n"
    "   last, all = Scan <num_scan_inputs = 2, scan_input_axes = [0, 1],"
    " scan_input_directions = [1, 0], scan_output_axes = [-1], scan_output_directions = [1],"
    " body = step (float[2] state, float[2] p, float[2] q) => (float[2] next, float[2] out) {\n"
    "      m = Mul (p, q)\n"
    "      next = Add (state, m)\n"
    "      out = Identity (next)\n"
    "   }> (s, a, b)\n"
    "}\n";

/* Two states that change places, one that is handed on as it is, and an output that is an input. */
static const char exchange[] =
    HEAD "g (float[3] s, float[3] u, float[4,3] x) => (float[3] p, float[3] q, float[3] r, "
         "float[4,3] all,"
         " float[4,3] same)\n"
         "{\n"
         "   p, q, r, all, same = Scan <num_scan_inputs = 1, body = step (float[3] a, float[3] b, "
         "float[3] c,"
         " float[3] t) => (float[3] b2, float[3] a2, float[3] c, float[3] sum, float[3] t) {\n"
         "      b2 = Sin (b)\n"
         "      a2 = Mul (a, t)\n"
         "      sum = Add (a2, b2)\n"
         "   }> (s, u, u, x)\n"
         "}\n";

/* A Loop that counts, with a weight of its own and a table outside. */
static const char counting[] =
    HEAD "g (float[2,3] x) => (float[2,3] y, float[6,2,3] all)\n"
         "<float[6,3] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}>\n"
         "{\n"
         "   trips = Constant <value = int64 {6}> ()\n"
         "   y, all = Loop <body = b (int64 i, bool on, float[2,3] s)"
         " => (bool on_next, float[2,3] s_next, float[2,3] out)\n"
         "   <float[3,3] w = {0.5, 0.25, -0.5, 0.75, 0.5, 0.25, -0.25, 0.125, 0.5}> {\n"
         "      on_next = Identity (on)\n"
         "      row = Gather (table, i)\n"
         "      t = MatMul (s, w)\n"
         "      v = Add (t, row)\n"
         "      s_next = Tanh (v)\n"
         "      out = Mul (s_next, row)\n"
         "   }> (trips, \"\", x)\n"
         "}\n";

/* What it carries counts while a sum is small: that is known in the run alone. */
static const char conditional[] =
    HEAD "g (float[2] x) => (float[2] y)\n"
         "{\n"
         "   trips = Constant <value = int64 {8}> ()\n"
         "   y = Loop <body = b (int64 i, bool on, float[2] s) => (bool go, float[2] s_next) {\n"
         "      step = Constant <value = float[2] {0.75, 0.5}> ()\n"
         "      most = Constant <value = float {2.5}> ()\n"
         "      s_next = Add (s, step)\n"
         "      sum = ReduceSum <keepdims = 0> (s_next)\n"
         "      go = Less (sum, most)\n"
         "   }> (trips, \"\", x)\n"
         "}\n";

/* LSTM, the weights outside. */
// clang-format off
#define LSTM(steps) HEAD \
    "g (float[2,3] h0, float[2,3] c0, float[" steps ",2,2] x) => (float[" steps ",2,3] y, float[2,3] h_end)\n" \
    "<float[2,12] w = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, -0.8, 0.9, 0.15, 0.25, -0.35, 0.45, " \
    "0.55," \
    " -0.65, 0.75, 0.85, -0.95, 0.12, 0.22, -0.32, 0.42, 0.52, -0.62},\n" \
    " float[3,12] r = {0.3, -0.1, 0.2, 0.5, -0.4, 0.1, 0.2, -0.3, 0.4, 0.25, 0.15, -0.45, 0.35, " \
    "0.5," \
    " -0.15, 0.25, 0.65, -0.75, 0.32, 0.12, -0.22, 0.24, 0.25, -0.26, 0.1, -0.2, 0.3, 0.4, -0.5, " \
    "0.6," \
    " 0.7, -0.8, 0.9, 0.15, 0.25, -0.35},\n" \
    " float[12] b = {0.01, 0.02, -0.03, 0.04, 0.05, -0.06, 0.07, 0.08, -0.09, 0.1, 0.11, -0.12}>\n" \
    "{\n" \
    "   h_end, c_end, y = Scan <num_scan_inputs = 1, body = cell (float[2,3] h, float[2,3] c," \
    " float[2,2] xt) => (float[2,3] h2, float[2,3] c2, float[2,3] out) {\n" \
    "      xw = MatMul (xt, w)\n" \
    "      hr = MatMul (h, r)\n" \
    "      a0 = Add (xw, hr)\n" \
    "      a = Add (a0, b)\n" \
    "      ai, ao, af, ag = Split <axis = -1, num_outputs = 4> (a)\n" \
    "      gi = Sigmoid (ai)\n" \
    "      go = Sigmoid (ao)\n" \
    "      gf = Sigmoid (af)\n" \
    "      gg = Tanh (ag)\n" \
    "      fc = Mul (gf, c)\n" \
    "      ig = Mul (gi, gg)\n" \
    "      c2 = Add (fc, ig)\n" \
    "      tc = Tanh (c2)\n" \
    "      h2 = Mul (go, tc)\n" \
    "      out = Identity (h2)\n" \
    "   }> (h0, c0, x)\n" \
    "}\n"
// clang-format on

static const char lstm[] = LSTM("7");

/* Noise in each step. */
static const char noise[] =
    HEAD "g (float[4] s, float[5,4] x) => (float[4] last, float[5,4] all)\n"
         "{\n"
         "   last, all = Scan <num_scan_inputs = 1, body = step (float[4] state, float[4] t)"
         " => (float[4] next, float[4] out) {\n"
         "      n = RandomNormalLike (t)\n"
         "      next = Add (state, n)\n"
         "      out = Mul (n, t)\n"
         "   }> (s, x)\n"
         "}\n";

static const char branching[] =
    HEAD "g (float[2] s, float[4,2] x) => (float[2] last)\n"
         "{\n"
         "   last = Scan <num_scan_inputs = 1, body = step (float[2] state, float[2] t)"
         " => (float[2] next) {\n"
         "      yes = Constant <value = bool {1}> ()\n"
         "      u = If (yes) <then_branch = a () => (float[2] p) { p = Mul (state, t) },"
         " else_branch = b () => (float[2] p) { p = Neg (t) }>\n"
         "      twice = Constant <value = int64 {2}> ()\n"
         "      next = Loop <body = c (int64 i, bool on, float[2] v) => (bool on2, float[2] v2) {\n"
         "         on2 = Identity (on)\n"
         "         v2 = Sin (v)\n"
         "      }> (twice, \"\", u)\n"
         "   }> (s, x)\n"
         "}\n";

/* A weight that is turned in each step is turned once, before. */
static const char turning[] =
    HEAD "g (float[2,3] s, float[4,2,2] x) => (float[2,3] y)\n"
         "<float[3,2] w = {0.5, 0.25, -0.5, 0.75, 0.5, 0.25}, float[3] b = {0.1, 0.2, -0.3}>\n"
         "{\n"
         "   y = Scan <num_scan_inputs = 1, body = step (float[2,3] state, float[2,2] t)"
         " => (float[2,3] next) {\n"
         "      two = Constant <value = float {2}> ()\n"
         "      turned = Transpose <perm = [1, 0]> (w)\n"
         "      bias = Mul (b, two)\n"
         "      p = MatMul (t, turned)\n"
         "      q = Add (p, bias)\n"
         "      r = Mul (q, state)\n"
         "      next = Tanh (r)\n"
         "   }> (s, x)\n"
         "}\n";

TEST(what_is_the_same_in_each_step_is_computed_once)
{
    ran r;
    ebb_scan s;
    good(prepare(&r, turning, "opset,inline,fold,unroll:most=1"));
    const ebb_graph *g = r.model->graph;
    assert_null(ebb_scan_read(&s, g, ebb_last(g)));
    EBB_EACH_NODE(s.body, n)
        assert_int_not_equal(ebb_node_of(s.body, n)->op, EBB_OP_TRANSPOSE);
    assert_int_equal(ebb_node_of(g, ebb_first(g))->op, EBB_OP_TRANSPOSE);
    finish(&r);
}

/* "$3" is three numbers. */
static const char *filled(const char *from)
{
    static char text[1 << 16];
    size_t at = 0;
    for (; *from != '\0' && at + 32 < sizeof text; from++) {
        if (*from != '$') {
            text[at++] = *from;
            continue;
        }
        char *end;
        const long count = strtol(from + 1, &end, 10);
        for (long i = 0; i < count && at + 32 < sizeof text; i++)
            at += (size_t)snprintf(text + at, 32, "%s%.4f", i > 0 ? ", " : "",
                                   0.3 * drawn("weight", (size_t)i + at));
        from = end - 1;
    }
    text[at] = '\0';
    return text;
}

/* What the body takes by the number of its step: upwards and down, along either axis, from the end, every other one,
 * two beside each other, and by a number that it counts itself. */
static const char by_number[] =
    HEAD "g (float[6,3] x, float[3,13] z) => (float[3] y, float[5,3] all)\n"
         "<float[6,3] w = {$18}>\n"
         "{\n"
         "   trips = Constant <value = int64 {5}> ()\n"
         "   none = Constant <value = float[3] {0, 0, 0}> ()\n"
         "   two = Constant <value = int64 {2}> ()\n"
         "   m, y, all = Loop <body = b (int64 i, bool on, int64 n, float[3] s)"
         " => (bool on2, int64 n2, float[3] s2, float[3] o) {\n"
         "      on2 = Identity (on)\n"
         "      one = Constant <value = int64 {1}> ()\n"
         "      first = Constant <value = int64[1] {0}> ()\n"
         "      second = Constant <value = int64[1] {1}> ()\n"
         "      pair = Constant <value = int64[1] {2}> ()\n"
         "      from = Unsqueeze (i, first)\n"
         "      i1 = Add (i, one)\n"
         "      to = Unsqueeze (i1, first)\n"
         "      row = Slice (x, from, to, first)\n"
         "      a = Squeeze (row, first)\n"
         "      last = Constant <value = int64 {-1}> ()\n"
         "      back = Sub (last, i)\n"
         "      b0 = Gather (w, back)\n"
         "      both = Mul (i, two)\n"
         "      c = Gather <axis = -1> (z, both)\n"
         "      to2 = Add (from, pair)\n"
         "      rows = Slice (x, from, to2, first)\n"
         "      d = ReduceMax <keepdims = 0> (rows, first)\n"
         "      e = Gather (x, n)\n"
         "      n2 = Sub (n, one)\n"
         "      ab = Mul (a, b0)\n"
         "      cd = Mul (c, d)\n"
         "      abcd = Add (ab, cd)\n"
         "      abcde = Add (abcd, e)\n"
         "      v = Add (abcde, s)\n"
         "      s2 = Tanh (v)\n"
         "      o = Mul (s2, a)\n"
         "   }> (trips, \"\", trips, none)\n"
         "}\n";

/* Places that no step has, or that are no number's: these are asked in each step. */
static const char by_other_number[] =
    HEAD "g (float[6,3] x, int64[5] order) => (float[3] y)\n"
         "{\n"
         "   none = Constant <value = float[3] {0, 0, 0}> ()\n"
         "   six = Constant <value = int64 {6}> ()\n"
         "   y = Scan <num_scan_inputs = 1, body = b (float[3] s, int64 k) => (float[3] s2) {\n"
         "      at = Mod (k, six)\n"
         "      row = Gather (x, at)\n"
         "      v = Add (row, s)\n"
         "      s2 = Tanh (v)\n"
         "   }> (none, order)\n"
         "}\n";

static size_t taken_by_number(const char *text, size_t *walked)
{
    ran r;
    ebb_scan s;
    size_t count = 0;
    good(prepare(&r, filled(text), "opset,inline,fold,unroll:most=1"));
    assert_null(ebb_scan_read(&s, r.model->graph, ebb_last(r.model->graph)));
    EBB_EACH_NODE(s.body, n)
        count += ebb_node_of(s.body, n)->op == EBB_OP_GATHER ||
                 ebb_node_of(s.body, n)->op == EBB_OP_SLICE;
    *walked = s.inputs;
    finish(&r);
    return count;
}

TEST(what_is_taken_by_the_number_of_the_step_is_walked_through)
{
    size_t walked;
    assert_int_equal(taken_by_number(by_number, &walked), 0);
    assert_int_equal(walked, 1 + 6);
    assert_int_equal(taken_by_number(by_other_number, &walked), 1);
    same_kept_and_unrolled(filled(by_number), "", 1, &plain, 0);
    same_kept_and_unrolled(filled(by_number), ",loss:mse,gradient,alias", 2, &cpu, 1e-6);
    same_kept_and_unrolled(filled(by_number), ",loss:mse,output=all,gradient:train=w,alias", 2,
                           &plain, 1e-6);
}

/* A value that is computed before the loop, and that each step reads by its name. */
static const char context[] =
    HEAD "g (float[4,16] h0, float[40,4,16] x, float[4,8] c) => (float[40,4,6] y)\n"
         "<float[8,16] w1 = {$128}, float[16,16] w = {$256}, float[16,16] r = {$256},"
         " float[16,64] w3 = {$1024}, float[64,6] w4 = {$384}>\n"
         "{\n"
         "   p = MatMul (c, w1)\n"
         "   ctx = Tanh (p)\n"
         "   e, s = Scan <num_scan_inputs = 1, body = b (float[4,16] h, float[4,16] t)"
         " => (float[4,16] h2, float[4,16] o) {\n"
         "      u = MatMul (t, w)\n"
         "      v = MatMul (h, r)\n"
         "      a = Add (u, v)\n"
         "      k = Add (a, ctx)\n"
         "      h2 = Tanh (k)\n"
         "      o = Identity (h2)\n"
         "   }> (h0, x)\n"
         "   q = MatMul (s, w3)\n"
         "   z = Relu (q)\n"
         "   y = MatMul (z, w4)\n"
         "}\n";

/* A loop within a loop: it begins with the state around, reads by name a weight, a table of its own, the slice
 * and a value that are given or made there, and what it makes goes on as a state and is put together. */
static const char nested[] =
    HEAD "g (float[2,3] h0, float[4,5,2,3] x) => (float[2,3] h_end, float[4,5,2,3] all, "
         "float[4,2,3] ends)\n"
         "<float[3,3] w = {0.5, 0.25, -0.5, 0.75, 0.5, 0.25, -0.25, 0.125, 0.5},\n"
         " float[2,3] b = {0.1, 0.2, -0.3, 0.4, -0.5, 0.6}>\n"
         "{\n"
         "   h_end, all, ends = Scan <num_scan_inputs = 1, body = outer (float[2,3] h, "
         "float[5,2,3] rows)"
         " => (float[2,3] h2, float[5,2,3] row_out, float[2,3] end) {\n"
         "      gate = Sigmoid (h)\n"
         "      h1, row_out = Scan <num_scan_inputs = 1, scan_input_directions = [1], body = inner"
         " (float[2,3] u, float[2,3] t) => (float[2,3] u2, float[2,3] out)\n"
         "      <float[2,3] own = {1, 0.5, 2, -1, 0.25, 0.75}> {\n"
         "         p = MatMul (u, w)\n"
         "         q = Mul (t, gate)\n"
         "         r = Add (p, q)\n"
         "         k = Mul (h, own)\n"
         "         m = Add (r, k)\n"
         "         u2 = Tanh (m)\n"
         "         out = Mul (u2, t)\n"
         "      }> (h, rows)\n"
         "      h3 = Add (h1, b)\n"
         "      h2 = Sin (h3)\n"
         "      end = Mul (h1, gate)\n"
         "   }> (h0, x)\n"
         "}\n";

/* Loops of Loop within one another, three deep, with a branch that the run decides. */
static const char deep[] = HEAD
    "g (float[2,3] x, float[2,3] other) => (float[2,3] y, float[3,2,3] all)\n"
    "{\n"
    "   three = Constant <value = int64 {3}> ()\n"
    "   y, all = Loop <body = a (int64 i, bool on, float[2,3] s) => (bool on2, float[2,3] s2, "
    "float[2,3] o)\n"
    "   <float[3,3] w = {0.5, 0.25, -0.5, 0.75, 0.5, 0.25, -0.25, 0.125, 0.5}> {\n"
    "      on2 = Identity (on)\n"
    "      two = Constant <value = int64 {2}> ()\n"
    "      s1 = Loop <body = b (int64 j, bool go, float[2,3] t) => (bool go2, float[2,3] t2) {\n"
    "         go2 = Identity (go)\n"
    "         near = Loop <body = c (int64 k, bool may, float[2,3] v) => (bool may2, float[2,3] "
    "v2)\n"
    "         <float[3] scale = {0.9, 1.1, 0.7}> {\n"
    "            may2 = Identity (may)\n"
    "            n = Add (i, j)\n"
    "            f = Cast <to = 1> (n)\n"
    "            sum = ReduceSum <keepdims = 0> (v)\n"
    "            zero = Constant <value = float {0}> ()\n"
    "            up = Less (zero, sum)\n"
    "            u = If (up) <then_branch = d () => (float[2,3] p) { p = MatMul (v, w) },"
    " else_branch = e () => (float[2,3] p) { p = Mul (other, v) }>\n"
    "            l = Mul (u, scale)\n"
    "            z = Add (l, f)\n"
    "            v2 = Sin (z)\n"
    "         }> (two, \"\", t)\n"
    "         t2 = Add (near, s)\n"
    "      }> (three, \"\", s)\n"
    "      s2 = Tanh (s1)\n"
    "      o = Mul (s1, s)\n"
    "   }> (three, \"\", x)\n"
    "}\n";

/* Weights as Constant nodes, some exporters' way, the innermost in two loops. */
static const char constants[] = HEAD
    "g (float[2,3] x, float[3,2,3] rows) => (float[2,3] y)\n"
    "{\n"
    "   y = Scan <num_scan_inputs = 1, body = a (float[2,3] s, float[2,3] row) => (float[2,3] s2) "
    "{\n"
    "      three = Constant <value = int64 {3}> ()\n"
    "      t = Loop <body = b (int64 i, bool on, float[2,3] v) => (bool on2, float[2,3] v2) {\n"
    "         on2 = Identity (on)\n"
    "         weight = Constant <value = float[3,3] {0.5, 0.25, -0.5, 0.75, 0.5, 0.25, -0.25, "
    "0.125, 0.5}> ()\n"
    "         p = MatMul (v, weight)\n"
    "         v2 = Tanh (p)\n"
    "      }> (three, \"\", row)\n"
    "      s2 = Add (s, t)\n"
    "   }> (x, rows)\n"
    "}\n";

/* A recurrent operator in each step. */
static const char operator_within[] =
    HEAD "g (float[1,2,3] h0, float[4,5,2,2] x) => (float[1,2,3] h_end, float[4,5,1,2,3] all)\n"
         "<float[1,12,2] w = {$24}, float[1,12,3] r = {$36}, float[1,24] b = {$24}>\n"
         "{\n"
         "   h_end, c_end, all = Scan <num_scan_inputs = 1, body = outer (float[1,2,3] h, "
         "float[1,2,3] c,"
         " float[5,2,2] t) => (float[1,2,3] h2, float[1,2,3] c2, float[5,1,2,3] y) {\n"
         "      y, h2, c2 = LSTM <hidden_size = 3> (t, w, r, b, \"\", h, c)\n"
         "   }> (h0, h0, x)\n"
         "}\n";

/* Noise in each step of a loop within a loop. */
static const char nested_noise[] =
    HEAD "g (float[4] s, float[3,5,4] x) => (float[4] last, float[3,5,4] all)\n"
         "{\n"
         "   last, all = Scan <num_scan_inputs = 1, body = outer (float[4] h, float[5,4] row)"
         " => (float[4] h2, float[5,4] outs) {\n"
         "      m = RandomUniformLike (h)\n"
         "      h1 = Add (h, m)\n"
         "      u, outs = Scan <num_scan_inputs = 1, body = step (float[4] state, float[4] t)"
         " => (float[4] next, float[4] out) {\n"
         "         n = RandomNormalLike (t)\n"
         "         next = Add (state, n)\n"
         "         out = Mul (n, t)\n"
         "      }> (h1, row)\n"
         "      h2 = Sin (u)\n"
         "   }> (s, x)\n"
         "}\n";

TEST(planners_know_what_a_body_reads_by_name)
{
    static const char *const passes[] = {"reorder", "fit:budget=95%", "recompute:budget=97%",
                                         "release,reorder"};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        ran as_it_is, planned;
        good(
            prepare(&planned, filled(context),
                    formatted("opset,inline,fold,unroll:most=1,loss:mse,gradient:train=\"w*;r\",%s,"
                              "stream,alias",
                              passes[i])));
        good(prepare(&as_it_is, filled(context),
                     "opset,inline,fold,unroll:most=1,loss:mse,gradient:train=\"w*;r\""));
        good(step(&as_it_is, &cpu));
        good(step(&planned, &cpu));
        agree(&as_it_is, &planned, 0);
        planned_is_measured(&planned);
        finish(&as_it_is);
        finish(&planned);
    }
}

TEST(a_kept_loop_gives_what_its_copies_give)
{
    static const char *const texts[] = {axes, exchange,       counting, conditional,
                                        lstm, branching,      turning,  nested,
                                        deep, operator_within};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = filled(texts[i]);
        same_kept_and_unrolled(text, "", 1, &plain, 0);
        same_kept_and_unrolled(text, ",alias", 1, &plain, 0);
        same_kept_and_unrolled(text, ",alias", 1, &cpu, 1e-6);
    }
}

TEST(what_draws_draws_as_its_copies_do)
{
    same_kept_and_unrolled(noise, "", 1, &plain, 0);
    same_kept_and_unrolled(nested_noise, ",alias", 1, &plain, 0);
}

TEST(a_kept_loop_is_differentiated_as_its_copies_are)
{
    static const struct {
        const char *text, *behind;
    } cases[] = {
        {lstm, ",loss:mse,gradient"},
        {lstm, ",loss:mse,gradient,alias"},
        {lstm, ",loss:mse,gradient,optimizer:sgd,drop-saves,stream,alias"},
        {counting, ",loss:mse,gradient"},
        {turning, ",loss:mse,gradient,alias"},
        {counting, ",loss:mse,gradient:train=\"w;table\",alias"},
        {nested, ",loss:mse,gradient"},
        {nested,
         ",loss:mse,output=all,gradient:train=\"w;b;own\",optimizer:sgd,drop-saves,stream,alias"},
        {deep, ",loss:mse,gradient:train=\"w;scale\",drop-saves,alias"},
        {deep, ",loss:mse,output=all,gradient,alias"},
        {constants, ",loss:mse,gradient,alias"},
        {operator_within, ",loss:mse,output=all,gradient:train=\"w;r;b\",drop-saves,alias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = filled(cases[i].text);
        same_kept_and_unrolled(text, cases[i].behind, 2, &plain, 1e-6);
        same_kept_and_unrolled(text, cases[i].behind, 2, &cpu, 1e-6);
    }
}

/* States alone are kept, and each step is computed again: the same bits from less. */
TEST(a_step_that_is_computed_again_gives_the_same_bits)
{
    static const struct {
        const char *text, *behind;
    } cases[] = {{LSTM("500"), ",loss:mse,gradient%s,optimizer:sgd,drop-saves,alias"},
                 {LSTM("500"), ",loss:mse,gradient%s,alias"},
                 {turning, ",loss:mse,gradient%s,alias"},
                 {counting, ",loss:mse,gradient%s"},
                 {nested, ",loss:mse,gradient%s,drop-saves,alias"},
                 {deep, ",loss:mse,output=all,gradient%s,alias"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ran keeps, computes;
        for (int again = 0; again < 2; again++) {
            char passes[256] = "opset,inline,fold,unroll:most=1";
            size_t length = strlen(passes);
            const char *hole = strstr(cases[i].behind, "%s");
            (void)snprintf(passes + length, sizeof passes - length, "%.*s%s%s",
                           (int)(hole - cases[i].behind), cases[i].behind,
                           again ? ":loops=again" : "", hole + 2);
            good(prepare(again ? &computes : &keeps, cases[i].text, passes));
        }
        for (int steps = 0; steps < 2; steps++) {
            good(step(&keeps, &plain));
            good(step(&computes, &plain));
            agree(&keeps, &computes, 0);
        }
        planned_is_measured(&computes);
        if (i == 0)
            assert_true(ebb_program_measure(computes.program).planned_arena_bytes * 3 <
                        ebb_program_measure(keeps.program).planned_arena_bytes * 2);
        finish(&keeps);
        finish(&computes);
    }
}

TEST(threads_change_no_bit_of_a_loop)
{
    static const ebb_compile_options many = {.backend = "plain", .threads = 4, .seed = 3};
    ran one, four;
    for (ran *r = &one; r != NULL; r = r == &one ? &four : NULL) {
        good(prepare(r, LSTM("50"), "opset,inline,fold,unroll:most=1,loss:mse,gradient,alias"));
        good(step(r, r == &one ? &plain : &many));
    }
    agree(&one, &four, 0);
    finish(&one);
    finish(&four);
}

TEST(a_loop_stays_kept_until_copies_are_asked_for)
{
    ran r;
    good(prepare(&r, axes, "unroll:most=1,unroll"));
    assert_int_equal(r.loops, 1);
    finish(&r);
    good(prepare(&r, axes, "unroll:most=1,unroll:most=1024"));
    assert_int_equal(r.loops, 0);
    finish(&r);
}

TEST(an_error_tells_the_step)
{
    static const char text[] =
        HEAD "g (float[3] s, float[3] x) => (float[3] y)\n"
             "<int64[3] at = {0, 1, 9}>\n"
             "{\n"
             "   y = Scan <num_scan_inputs = 1, body = step (float[3] state, int64 i)"
             " => (float[3] next) {\n"
             "      row = Gather (x, i)\n"
             "      next = Add (state, row)\n"
             "   }> (s, at)\n"
             "}\n";
    ran r;
    good(prepare(&r, text, "unroll:most=1"));
    ebb_status status = step(&r, &plain);
    refused(status, EBB_RUNTIME, "in step 2 of Scan 'y'");
    assert_non_null(strstr(ebb_status_text(status), "Gather"));
    finish(&r);
}

/* What it holds is what one step holds, and what is put together. */
TEST(a_long_loop_takes_the_memory_of_its_ends_and_one_step)
{
    static const char text[] =
        HEAD "g (float[64] s, float[100000,1] x) => (float[64] last)\n"
             "{\n"
             "   last = Scan <num_scan_inputs = 1, body = step (float[64] state, float[1] t)"
             " => (float[64] next) {\n"
             "      a = Mul (state, t)\n"
             "      next = Sin (a)\n"
             "   }> (s, x)\n"
             "}\n";
    ran r;
    good(prepare(&r, text, "fold,unroll,alias"));
    assert_int_equal(r.loops, 1);
    good(step(&r, &plain));
    planned_is_measured(&r);
    assert_true(ebb_program_measure(r.program).planned_arena_bytes <= 400000 + 5 * 256 + 64);
    finish(&r);
}

/* Forward and backward of as many steps as no copies could have. */
TEST(a_hundred_thousand_steps_are_trained)
{
    ran r;
    ebb_named loss;
    double first = 0, now = 0;
    good(prepare(
        &r, LSTM("100000"),
        "opset,inline,fold,unroll,loss:mse,gradient,optimizer:sgd,lr=0.1,drop-saves,alias"));
    assert_int_equal(r.loops, 2);
    for (int i = 0; i < 3; i++) {
        good(step(&r, &plain));
        good(ebb_program_get(r.program, ebb_program_loss_name(r.program), &loss));
        now = number_at(&loss, 0);
        first = i == 0 ? now : first;
    }
    assert_true(now < first);
    planned_is_measured(&r);
    // x, its target, y, its gradient: 100,000 x 2 x 2 or 3 floats; and what the backward reads of each step
    const double a_step = 4.0 * (4 + 6 * 14);
    assert_true((double)ebb_program_measure(r.program).planned_arena_bytes < 1e5 * a_step);
    finish(&r);
}

TEST(dropout_draws_anew_in_each_step)
{
    static const char text[] =
        HEAD "g (float[64] s, float[8,64] x) => (float[8,64] all)\n"
             "<float ratio = {0.5}>\n"
             "{\n"
             "   last, all = Scan <num_scan_inputs = 1, body = step (float[64] state, float[64] t)"
             " => (float[64] next, float[64] out) {\n"
             "      next = Identity (state)\n"
             "      n = Mul (t, t)\n"
             "      a = Sqrt (n)\n"
             "      d = Div (a, a)\n"
             "      out = Dropout (d, ratio)\n"
             "   }> (s, x)\n"
             "}\n";
    ran r;
    ebb_named all;
    float before[8 * 64];
    good(prepare(&r, text, "opset,inline,fold,unroll:most=1,train-mode,alias"));
    for (int steps = 0; steps < 2; steps++) {
        good(step(&r, &plain));
        good(ebb_program_get(r.program, "all", &all));
        const float *at = all.data;
        for (int i = 0; i < 8; i++) {
            int zeros = 0;
            for (int k = 0; k < 64; k++)
                zeros += at[i * 64 + k] == 0;
            assert_in_range(zeros, 12, 52);
            for (int j = 0; j < i; j++)
                assert_memory_not_equal(at + i * 64, at + j * 64, 64 * sizeof *at);
        }
        if (steps > 0)
            assert_memory_not_equal(before, at, sizeof before);
        memcpy(before, at, sizeof before);
    }
    finish(&r);
}

/* Nothing of a file may make a step take for ever. */
TEST(a_loop_of_endless_steps_over_nothing_is_refused)
{
    static const char text[] =
        HEAD "g (float[4] s, float[1099511627776,0] x) => (float[4] y)\n"
             "{\n"
             "   y = Scan <num_scan_inputs = 1, body = step (float[4] state, float[0] t)"
             " => (float[4] next) {\n"
             "      next = Identity (state)\n"
             "   }> (s, x)\n"
             "}\n";
    ran r;
    good(prepare(&r, text, "unroll"));
    refused(ebb_program_compile(&r.program, r.model, &plain), EBB_REJECTED, "Scan 'y'");
    finish(&r);
}

/* What a state is known by, where it begins, is what replaces it at the end. */
TEST(a_state_that_grows_from_step_to_step_is_refused)
{
    static const char text[] =
        HEAD "g (float[4] s, float[3,4] x) => (float[N] y)\n"
             "{\n"
             "   y = Scan <num_scan_inputs = 1, body = step (float[M] state, float[4] t)"
             " => (float[K] next) {\n"
             "      next = Concat <axis = 0> (state, t)\n"
             "   }> (s, x)\n"
             "}\n";
    ran r;
    refused(prepare(&r, text, "unroll"), EBB_REJECTED,
            "Scan 'y': state 0 is float32[4], and its body makes float32[8] of it");
    finish(&r);
}
