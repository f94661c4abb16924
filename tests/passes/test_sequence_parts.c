/* test_sequence_parts.c: a sequence in parts gives what the whole gives, and what is known of chains is
 * done with its parts: kept, made again, put on disk. */
#include "tests/formatted.h"
#include "tests/passes/loops.h"

#define LOOSE 2e-5

/* 11 steps: two states, one input that learns and one walked through backwards, and two results. */
static const char loop[] =
    HEAD "g (float[2,3] h0, float[2,3] c0, float[11,2,4] x, float[11,2,3] u)"
         " => (float[11,2,3] y, float[2,11,3] z, float[2,3] h_end)\n"
         "<float[4,3] v = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, -0.8, 0.9, 0.15, 0.25, -0.35},\n"
         " float[3,3] w = {0.5, 0.25, -0.5, 0.75, 0.5, 0.25, -0.25, 0.125, 0.5},\n"
         " float[3] b = {0.01, 0.02, -0.03}>\n"
         "{\n"
         "   learned = MatMul (x, v)\n"
         "   h_end, c_end, y, z = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1],"
         " scan_output_axes = [0, 1], scan_output_directions = [0, 1],"
         " body = cell (float[2,3] h, float[2,3] c, float[2,3] l, float[2,3] t)"
         " => (float[2,3] h2, float[2,3] c2, float[2,3] out, float[2,3] also) {\n"
         "      hw = MatMul (h, w)\n"
         "      s = Add (hw, l)\n"
         "      sb = Add (s, b)\n"
         "      h2 = Tanh (sb)\n"
         "      g = Sigmoid (t)\n"
         "      gc = Mul (g, c)\n"
         "      c2 = Add (gc, h2)\n"
         "      out = Mul (c2, t)\n"
         "      also = Sin (c2)\n"
         "   }> (h0, c0, learned, u)\n"
         "}\n";

/* A Loop that counts: its table of iterations is cut, too. */
static const char counting[] =
    HEAD "g (float[2,3] x) => (float[2,3] y, float[7,2,3] all)\n"
         "<float[7,3] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3},"
         " float[3,3] w = {0.5, 0.25, -0.5, 0.75, 0.5, 0.25, -0.25, 0.125, 0.5}>\n"
         "{\n"
         "   trips = Constant <value = int64 {7}> ()\n"
         "   y, all = Loop <body = b (int64 i, bool on, float[2,3] s)"
         " => (bool on_next, float[2,3] s_next, float[2,3] out) {\n"
         "      on_next = Identity (on)\n"
         "      row = Gather (table, i)\n"
         "      t = MatMul (s, w)\n"
         "      v = Add (t, row)\n"
         "      s_next = Tanh (v)\n"
         "      out = Mul (s_next, row)\n"
         "   }> (trips, \"\", x)\n"
         "}\n";

static const char gradients[] = ",loss:mse,gradient,drop-saves,alias";

static void compare(const char *text, const char *flat, const char *parts, const char *behind,
                    double share)
{
    char passes[512];
    ran whole, cut;
    (void)snprintf(passes, sizeof passes, "%s%s", flat, behind);
    good(prepare(&whole, text, passes));
    (void)snprintf(passes, sizeof passes, "%s,%s%s", flat, parts, behind);
    good(prepare(&cut, text, passes));
    assert_true(cut.model->graph->node_count > whole.model->graph->node_count);
    for (int steps = 0; steps < 2; steps++) {
        good(step(&whole, &cpu));
        good(step(&cut, &cpu));
        agree(&whole, &cut, share);
    }
    planned_is_measured(&cut);
    finish(&whole);
    finish(&cut);
}

TEST(a_loop_in_parts_gives_the_same_bits)
{
    static const char *const lengths[] = {"1", "2", "3", "4", "5", "6", "10"};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char parts[64];
        (void)snprintf(parts, sizeof parts, "sequence-parts:steps=%s", lengths[i]);
        const char *const flat = "opset,inline,fold,unroll:most=1";
        compare(loop, flat, parts, "", 0);
        compare(loop, flat, parts, gradients, 0);
        compare(loop, flat, parts, ",loss:mse,gradient:loops=again,drop-saves,alias", 0);
        if (lengths[i][1] == '\0' && lengths[i][0] < '7') {
            compare(counting, flat, parts, "", 0);
            compare(counting, flat, parts, gradients, 0);
        }
    }
}

/* ---- operators ---- */

/* h, c: how many states; direction and further attributes. */
static void recurrent(char *text, size_t size, const char *op, int gates, const char *more)
{
    const bool lstm = strcmp(op, "LSTM") == 0;
    (void)snprintf(text, size,
                   HEAD "g (float[11,2,4] x) => (float[11,2,3] y, float[2,3] end)\n"
                        "<float[1,%d,4] w, float[1,%d,3] r, float[1,%d] b>\n"
                        "{\n"
                        "   axis = Constant <value = int64[1] {1}> ()\n"
                        "   zero = Constant <value = int64[1] {0}> ()\n"
                        "   y4, end3%s = %s <hidden_size = 3%s> (x, w, r, b)\n"
                        "   y = Squeeze (y4, axis)\n"
                        "   end = Squeeze (end3, zero)\n"
                        "}\n",
                   gates * 3, gates * 3, gates * 6, lstm ? ", c3" : "", op, more);
}

static void give_weights(ran *r)
{
    const ebb_graph *g = r->model->graph;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value v = g->initializers[i];
        const ebb_type *type = ebb_value_of(g, v)->type;
        if (type->dtype != EBB_F32 || ebb_value_of(g, v)->tensor->data != NULL)
            continue;
        const ebb_named named = {ebb_value_name(g, v), type->dtype, type->rank, type->dims,
                                 array_for(ebb_value_name(g, v), type)};
        good(ebb_program_set(r->program, &named));
        free((void *)(uintptr_t)named.data);
    }
}

#define LEARNT ",loss:mse,gradient:train=*,drop-saves,alias"

/* One step of weights that the text leaves without numbers. */
static ebb_status step_of(ran *r, const char *text, const char *passes)
{
    EBB_TRY(prepare(r, text, passes));
    EBB_TRY(ebb_program_compile(&r->program, r->model, &cpu));
    give_weights(r);
    return step(r, &cpu);
}

TEST(recurrent_operators_in_parts_agree)
{
    static const struct {
        const char *op;
        int gates;
        const char *more;
    } cases[] = {{"LSTM", 4, ""},
                 {"LSTM", 4, ", direction = \"reverse\""},
                 {"GRU", 3, ", linear_before_reset = 1"},
                 {"GRU", 3, ", direction = \"reverse\""},
                 {"RNN", 1, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        ran whole, cut;
        recurrent(text, sizeof text, cases[i].op, cases[i].gates, cases[i].more);
        good(step_of(&whole, text, "opset,inline,fold,unroll" LEARNT));
        good(step_of(&cut, text, "opset,inline,fold,unroll,sequence-parts:steps=4" LEARNT));
        agree(&whole, &cut, LOOSE);
        planned_is_measured(&cut);
        finish(&whole);
        finish(&cut);
    }
}

static size_t count_of(const ran *r, ebb_op op)
{
    size_t count = 0;
    EBB_EACH_NODE(r->model->graph, n)
        count += ebb_node_of(r->model->graph, n)->op == op;
    return count;
}

/* ---- two loops, one behind the other ---- */

static const char two[] =
    HEAD "g (float[2] s, float[9,2] x) => (float[2] end)\n"
         "<float[2] w = {0.5, -0.25}, float[2] v = {0.75, 0.5}>\n"
         "{\n"
         "   first, all = Scan <num_scan_inputs = 1, body = a (float[2] h, float[2] t)"
         " => (float[2] h2, float[2] out) { ht = Add (h, t)  p = Mul (ht, w)  h2 = Tanh (p)"
         "  out = Sin (h2) }> (s, x)\n"
         "   end = Scan <num_scan_inputs = 1, body = b (float[2] k, float[2] u)"
         " => (float[2] k2) { ku = Add (k, u)  q = Mul (ku, v)  k2 = Tanh (q) }> (s, all)\n"
         "}\n";

TEST(parts_of_one_loop_are_those_of_the_next)
{
    ran r;
    const char *const flat = "opset,inline,fold,unroll:most=1";
    compare(two, flat, "sequence-parts:steps=2", gradients, 0);
    good(prepare(&r, two, "opset,inline,fold,unroll:most=1,sequence-parts:steps=2,drop-saves"));
    assert_int_equal(r.loops, 10);
    assert_int_equal(count_of(&r, EBB_OP_CONCAT), 0);
    assert_int_equal(count_of(&r, EBB_OP_SPLIT), 0);
    assert_int_equal(count_of(&r, EBB_OP_SLICE), 5);
    finish(&r);
}

/* Two layers as PyTorch writes them: the parts of both by turns, and nothing is whole between them. */
TEST(layers_go_through_their_parts_together)
{
    static const char layers[] = HEAD
        "g (float[12,2,4] x) => (float[1,2,3] y)\n"
        "<float[1,12,4] w, float[1,12,3] r, float[1,24] b, float[1,12,3] w2, float[1,12,3] r2>\n"
        "{\n"
        "   axis = Constant <value = int64[1] {1}> ()\n"
        "   all = LSTM <hidden_size = 3> (x, w, r, b)\n"
        "   between = Squeeze (all, axis)\n"
        "   all2, y = LSTM <hidden_size = 3> (between, w2, r2)\n"
        "}\n";
    ran whole, cut;
    good(step_of(&whole, layers, "opset,inline,fold,unroll" LEARNT));
    good(step_of(&cut, layers, "opset,inline,fold,unroll,sequence-parts:steps=4" LEARNT));
    assert_int_equal(count_of(&cut, EBB_OP_CONCAT), 0);
    assert_int_equal(count_of(&cut, EBB_OP_SPLIT), 0);
    agree(&whole, &cut, LOOSE);
    finish(&whole);
    finish(&cut);
    ran r;
    char order[16] = "";
    good(prepare(&r, layers, "fold,sequence-parts:steps=4,drop-saves"));
    EBB_EACH_NODE(r.model->graph, n)
        if (ebb_node_of(r.model->graph, n)->op == EBB_OP_LSTM) {
            const bool first =
                strcmp(ebb_value_name(r.model->graph, ebb_in(r.model->graph, n, 1)), "w") == 0;
            (void)strcat(order, first ? "a" : "b");
        }
    assert_string_equal(order, "ababab");
    finish(&r);
}

/* ---- schedules ---- */

static const char long_loop[] =
    HEAD "g (float[4,8] s, float[150,4,2] x) => (float[4,8] end)\n"
         "<float[8] w = {0.5, -0.25, 0.75, 0.5, 0.1, -0.9, 0.3, 0.2}, float[2,8] v = {0.1, 0.2, "
         "0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}>\n"
         "{\n"
         "   end = Scan <num_scan_inputs = 1, body = cell (float[4,8] h, float[4,2] t)"
         " => (float[4,8] h2) { tv = MatMul (t, v)  hw = Mul (h, w)  a = Add (tv, hw)"
         "  b = Tanh (a)  c = Sigmoid (a)  h2 = Mul (b, c) }> (s, x)\n"
         "}\n";

TEST(published_schedules_run_on_loops)
{
    static const char *const planners[] = {
        "revolve",
        "rotor",
        "sqrt",
        "disk-revolve",
        "periodic-disk-revolve",
        "hrevolve",
        "multistage",
        "double-checkpoint",
        "search",
    };
    ran kept;
    good(prepare(&kept, long_loop,
                 "opset,inline,fold,unroll:most=1,loss:mse,gradient,drop-saves,alias"));
    good(step(&kept, &cpu));
    const uint64_t all = ebb_program_measure(kept.program).planned_arena_bytes;
    for (size_t i = 0; i < sizeof planners / sizeof *planners; i++) {
        ran r;
        good(prepare(&r, long_loop,
                     formatted("opset,inline,fold,unroll:most=1,sequence-parts,loss:mse,gradient,"
                               "drop-saves,recompute:planner=%s,budget=35%%,alias",
                               planners[i])));
        for (int steps = 0; steps < 2; steps++)
            good(step(&r, &cpu));
        agree(&kept, &r, 0);
        planned_is_measured(&r);
        const ebb_program_facts facts = ebb_program_measure(r.program);
        assert_int_equal(facts.planned_disk_bytes, facts.disk_bytes);
        assert_true(facts.planned_arena_bytes < all * 45 / 100);
        finish(&r);
    }
    finish(&kept);
}

/* Far below a hundredth of what keeps everything, where the levels of the search end. */
TEST(fit_keeps_a_long_sequence_in_little)
{
    static const char deep[] =
        HEAD "g (float[16,8] s, float[4000,1,1] x) => (float[16,8] end)\n"
             "<float[8] w = {0.5, -0.25, 0.75, 0.5, 0.1, -0.9, 0.3, 0.2}>\n"
             "{\n"
             "   end = Scan <num_scan_inputs = 1, body = cell (float[16,8] h, float[1,1] t)"
             " => (float[16,8] h2) { hw = Mul (h, w)  a = Add (hw, t)"
             "  b = Tanh (a)  c = Sigmoid (a)  h2 = Mul (b, c) }> (s, x)\n"
             "}\n";
    ran kept, r;
    good(
        prepare(&kept, deep, "opset,inline,fold,unroll:most=1,loss:mse,gradient,drop-saves,alias"));
    good(prepare(&r, deep,
                 "opset,inline,fold,unroll:most=1,sequence-parts:steps=10,loss:mse,gradient,"
                 "drop-saves,fit:budget=1.85%,time=1,alias"));
    good(step(&kept, &cpu));
    good(step(&r, &cpu));
    agree(&kept, &r, 0);
    planned_is_measured(&r);
    assert_true(ebb_program_measure(r.program).planned_arena_bytes <
                ebb_program_measure(kept.program).planned_arena_bytes / 50);
    finish(&r);
    finish(&kept);
}

/* ---- what stays whole ---- */

static size_t parts_of(const char *text, const char *passes, ebb_op op)
{
    ran r;
    good(prepare(&r, text, passes));
    const size_t count = count_of(&r, op);
    finish(&r);
    return count;
}

TEST(what_cannot_be_cut_stays_whole)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   HEAD "g (float[11,2,4] x) => (float[11,2,2,3] y)\n"
                        "<float[2,3,4] w, float[2,3,3] r>\n"
                        "{ y = RNN <hidden_size = 3, direction = \"bidirectional\"> (x, w, r) }\n");
    assert_int_equal(parts_of(text, "sequence-parts:steps=4", EBB_OP_RNN), 1);
    assert_int_equal(parts_of(two, "unroll:most=1,sequence-parts:steps=9", EBB_OP_SCAN), 2);
    (void)snprintf(text, sizeof text,
                   HEAD "g (float[70000,1,1] x) => (float[1,1,1] y)\n"
                        "<float[1,1,1] w, float[1,1,1] r>\n"
                        "{ all, y = RNN <hidden_size = 1> (x, w, r) }\n");
    assert_int_equal(parts_of(text, "sequence-parts:steps=1", EBB_OP_RNN), 1);
    assert_int_equal(parts_of(text, "sequence-parts", EBB_OP_RNN), 256);
    // once is enough
    assert_int_equal(
        parts_of(two, "unroll:most=1,sequence-parts:steps=5,sequence-parts:steps=2", EBB_OP_SCAN),
        4);
}
