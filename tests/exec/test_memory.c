/* test_memory.c: the ruler on graphs small enough to weigh by hand. */

#include "exec/weigh/memory.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1, \"ai.ebb\" : 1]>\n"

static ebb_value value_of(const ebb_model *m, const char *name)
{
    ebb_value v = ebb_value_find(m->graph, name);
    assert_true(v.i != 0);
    return v;
}

static void set_phase(ebb_model *m, const char *output, ebb_phase phase)
{
    ebb_node n = ebb_value_of(m->graph, value_of(m, output))->producer;
    ebb_node_of(m->graph, n)->phase = (uint8_t)phase;
}

static const ebb_memory_tensor *tensor_of(const ebb_memory *w, const ebb_model *m, const char *name)
{
    uint32_t t = w->tensor_of[value_of(m, name).i];
    assert_true(t != 0);
    return &w->tensors[t - 1];
}

static void adds_up(const ebb_memory *w)
{
    uint64_t sum = 0;
    for (int c = 0; c < EBB_CATEGORY_COUNT; c++)
        sum += w->at_peak[c];
    assert_int_equal(sum, w->peak_bytes);
}

/* Each float[32] is 128 bytes, each scalar 64. */
static const char step_text[] =
    HEAD "g (float[32] x) => (float[32] y) <float[32] w, float lr = {0.5}> {\n"
         "  h = Mul(x, w)\n"                              /* 0 forward */
         "  r = Relu(h)\n"                                /* 1 forward */
         "  y = Neg(r)\n"                                 /* 2 forward */
         "  r_grad = Exp(y)\n"                            /* 3 backward */
         "  h_grad = com.microsoft.ReluGrad(r_grad, r)\n" /* 4 backward */
         "  w_grad = Mul(h_grad, x)\n"                    /* 5 backward */
         "  w_next = ai.ebb.Sgd(lr, w, w_grad)\n"         /* 6 update */
         "}\n";

static ebb_model *step_model(void)
{
    ebb_model *m = model_of(step_text);
    const char *const forward[] = {"h", "r", "y"}, *const backward[] = {"r_grad", "h_grad",
                                                                        "w_grad"};
    for (int i = 0; i < 3; i++) {
        set_phase(m, forward[i], EBB_FORWARD);
        set_phase(m, backward[i], EBB_BACKWARD);
    }
    set_phase(m, "w_next", EBB_UPDATE);
    ebb_value_of(m->graph, value_of(m, "w"))->role = EBB_ROLE_PARAMETER;
    assert_null(ebb_graph_bind(m->graph, value_of(m, "w"), value_of(m, "w_next")));
    return m;
}

TEST(a_step_is_weighed_as_by_hand)
{
    OWNED_MODEL *m = step_model();
    OWNED_ARENA arena = {0};
    ebb_memory w;
    assert_null(ebb_memory_weigh(&w, &arena, m->graph, &(ebb_memory_terms){.align = EBB_ALIGN}));
    assert_int_equal(w.positions, 7);
    assert_int_equal(tensor_of(&w, m, "w")->category, EBB_PARAMETER);
    assert_int_equal(tensor_of(&w, m, "w")->death, 6);
    assert_int_equal(tensor_of(&w, m, "lr")->bytes, 64);
    assert_int_equal(tensor_of(&w, m, "x")->category, EBB_INPUT);
    assert_int_equal(tensor_of(&w, m, "x")->death, 5);
    assert_int_equal(tensor_of(&w, m, "h")->category, EBB_TEMPORARY);
    assert_int_equal(tensor_of(&w, m, "h")->birth, 0);
    assert_int_equal(tensor_of(&w, m, "h")->death, 1);
    assert_int_equal(tensor_of(&w, m, "r")->category, EBB_ACTIVATION);
    assert_int_equal(tensor_of(&w, m, "r")->death, 4);
    assert_int_equal(tensor_of(&w, m, "y")->death, 6); /* a graph output */
    assert_int_equal(tensor_of(&w, m, "w_grad")->category, EBB_GRADIENT);
    assert_int_equal(tensor_of(&w, m, "w_next")->death, 6);
    /* r and y are made forward and read backward */
    assert_int_equal(w.saved_bytes, 256);
    /* at 4: w lr x | r y r_grad h_grad */
    assert_int_equal(w.peak_position, 4);
    assert_int_equal(w.peak_bytes, 6 * 128 + 64);
    assert_int_equal(w.live[0], 3 * 128 + 64);
    assert_int_equal(w.at_peak[EBB_PARAMETER], 192);
    assert_int_equal(w.at_peak[EBB_ACTIVATION], 256);
    adds_up(&w);
}

/* Another device's tensors begin at multiples of 256: so much do they take. */
TEST(sizes_are_rounded_for_the_device)
{
    OWNED_MODEL *m = step_model();
    OWNED_ARENA arena = {0};
    ebb_memory w;
    size_t bytes[64] = {0};
    assert_null(ebb_memory_weigh(&w, &arena, m->graph, &(ebb_memory_terms){.align = 256}));
    assert_int_equal(tensor_of(&w, m, "lr")->bytes, 256);
    assert_int_equal(w.peak_position, 4);
    assert_int_equal(w.peak_bytes, 7 * 256);
    for (size_t i = 0; i < 64; i++)
        bytes[i] = 257;
    assert_true(m->graph->node_count < 64);
    assert_null(ebb_memory_weigh(&w, &arena, m->graph,
                                 &(ebb_memory_terms){.workspace_bytes = bytes, .align = 256}));
    assert_int_equal(w.peak_bytes, 9 * 256);
    assert_int_equal(w.at_peak[EBB_WORKSPACE], 512);
    adds_up(&w);
}

TEST(values_in_place_are_one_tensor)
{
    OWNED_MODEL *m = step_model();
    ebb_graph *g = m->graph;
    ebb_node relu = ebb_value_of(g, value_of(m, "r"))->producer;
    ebb_node back = ebb_value_of(g, value_of(m, "h_grad"))->producer;
    ebb_node sgd = ebb_value_of(g, value_of(m, "w_next"))->producer;
    ebb_node_set_over(g, relu, 0, 0); /* r over h */
    ebb_node_set_over(g, back, 0, 1); /* h_grad over r, and so over h */
    ebb_node_set_over(g, sgd, 0, 1);  /* w_next over w */
    OWNED_ARENA arena = {0};
    ebb_memory w;
    assert_null(ebb_memory_weigh(&w, &arena, g, &(ebb_memory_terms){.align = EBB_ALIGN}));
    assert_ptr_equal(tensor_of(&w, m, "h"), tensor_of(&w, m, "r"));
    assert_ptr_equal(tensor_of(&w, m, "h"), tensor_of(&w, m, "h_grad"));
    assert_int_equal(tensor_of(&w, m, "h")->birth, 0);
    assert_int_equal(tensor_of(&w, m, "h")->death, 5);
    assert_int_equal(tensor_of(&w, m, "h")->category, EBB_ACTIVATION);
    assert_ptr_equal(tensor_of(&w, m, "w"), tensor_of(&w, m, "w_next"));
    assert_int_equal(tensor_of(&w, m, "w")->category, EBB_PARAMETER);
    assert_int_equal(w.saved_bytes, 256); /* the group once, and y */
    adds_up(&w);
}

TEST(a_workspace_lives_while_its_node_runs)
{
    OWNED_MODEL *m = step_model();
    ebb_node relu = ebb_value_of(m->graph, value_of(m, "r"))->producer;
    OWNED_ARENA arena = {0};
    ebb_memory w;
    size_t *bytes = EBB_NEW(&arena, size_t, m->graph->node_count);
    bytes[relu.i] = 1000;
    assert_null(ebb_memory_weigh(
        &w, &arena, m->graph, &(ebb_memory_terms){.workspace_bytes = bytes, .align = EBB_ALIGN}));
    const ebb_memory_tensor *t = &w.tensors[w.workspace_of[relu.i] - 1];
    assert_int_equal(t->bytes, 1024);
    assert_int_equal(t->birth, 1);
    assert_int_equal(t->death, 1);
    assert_int_equal(w.peak_position, 1);
    assert_int_equal(w.at_peak[EBB_WORKSPACE], 1024);
    adds_up(&w);
}

TEST(an_unknown_size_is_refused_by_name)
{
    OWNED_MODEL *m = model_of(HEAD "g (float[batch,3] x) => (float[batch,3] y) { y = Relu(x) }");
    OWNED_ARENA arena = {0};
    ebb_memory w;
    refused(ebb_memory_weigh(&w, &arena, m->graph, &(ebb_memory_terms){.align = EBB_ALIGN}),
            EBB_REJECTED, "'x'");
}

TEST(empty_tensors_take_nothing)
{
    OWNED_MODEL *m = model_of(HEAD "g (float[0,3] x) => (float[0,3] y) { y = Relu(x) }");
    OWNED_ARENA arena = {0};
    ebb_memory w;
    assert_null(ebb_memory_weigh(&w, &arena, m->graph, &(ebb_memory_terms){.align = EBB_ALIGN}));
    assert_int_equal(w.tensor_count, 0);
    assert_int_equal(w.peak_bytes, 0);
}

TEST(running_out_of_memory_is_a_status)
{
    OWNED_MODEL *m = step_model();
    for (long n = 1;; n++) {
        ebb_arena arena = {0};
        ebb_memory w;
        ebb_alloc_fail_after(n);
        ebb_status status =
            ebb_memory_weigh(&w, &arena, m->graph, &(ebb_memory_terms){.align = EBB_ALIGN});
        ebb_alloc_fail_after(0);
        ebb_arena_fini(&arena);
        if (status == NULL)
            break;
        assert_true(n < 100);
    }
}
