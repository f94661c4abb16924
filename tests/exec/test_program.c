/* test_program.c: steps of graphs small enough to follow by hand, on the plain kernels. */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/data/weights.h"
#include "exec/run/eval.h"
#include "exec/run/program.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1, \"ai.ebb\" : 1]>\n"

static const ebb_compile_options plain = {.backend = "plain", .profile = true};

static ebb_value value_of(const ebb_model *m, const char *name)
{
    ebb_value v = ebb_value_find(m->graph, name);
    assert_true(v.i != 0);
    return v;
}

static void bind(ebb_model *m, const char *state, const char *next)
{
    assert_null(ebb_graph_bind(m->graph, value_of(m, state), value_of(m, next)));
}

static const float *get(ebb_program *p, const char *name)
{
    ebb_named named;
    good(ebb_program_get(p, name, &named));
    return named.data;
}

/* y = relu(x * w); the gradient of sum(y) by hand; w -= lr * w_grad. */
static const char step_text[] =
    HEAD "g (float[4] x) => (float[4] y) <float[4] w = {1, -1, 2, 3}, float lr = {0.5},"
         " float[4] ones = {1, 1, 1, 1}> {\n"
         "  h = Mul(x, w)\n"
         "  y = Relu(h)\n"
         "  h_grad = com.microsoft.ReluGrad(ones, y)\n"
         "  w_grad = Mul(h_grad, x)\n"
         "  w_next = ai.ebb.Sgd(lr, w, w_grad)\n"
         "}\n";

static const int64_t four[] = {4};
static const float x_data[] = {1, 1, 2, 4};
static const ebb_named x_named = {"x", EBB_F32, 1, four, x_data};
static const ebb_batch x_batch = {&x_named, 1};

static ebb_model *step_model(void)
{
    ebb_model *m = model_of(step_text);
    ebb_value_of(m->graph, value_of(m, "w"))->role = EBB_ROLE_PARAMETER;
    bind(m, "w", "w_next");
    return m;
}

static void two_steps(ebb_model *m)
{
    OWNED_PROGRAM *p = NULL;
    good(ebb_program_compile(&p, m, &plain));
    good(ebb_program_step(p, &x_batch));
    const float y[] = {1, 0, 4, 12}, w1[] = {0.5f, -1, 1, 1}, w2[] = {0, -1, 0, -1};
    assert_memory_equal(get(p, "y"), y, sizeof y);
    assert_memory_equal(get(p, "w"), w1, sizeof w1);
    good(ebb_program_step(p, &x_batch));
    assert_memory_equal(get(p, "w"), w2, sizeof w2);
    ebb_program_facts facts = ebb_program_measure(p);
    assert_int_equal(facts.steps, 2);
    assert_int_equal(facts.planned_arena_bytes, facts.measured_arena_bytes);
    assert_true(facts.measured_arena_bytes >= facts.peak_bytes);
}

TEST(a_step_trains_and_planned_is_measured)
{
    OWNED_MODEL *m = step_model();
    two_steps(m);
}

TEST(a_step_in_place_gives_the_same_numbers)
{
    OWNED_MODEL *m = step_model();
    static const struct {
        const char *output;
        uint32_t input;
    } over[] = {{"y", 0}, {"w_grad", 0}, {"w_next", 1}};
    for (size_t i = 0; i < 3; i++) {
        ebb_node n = ebb_value_of(m->graph, value_of(m, over[i].output))->producer;
        ebb_node_set_over(m->graph, n, 0, over[i].input);
    }
    two_steps(m);
}

TEST(inputs_are_checked_by_name_and_type)
{
    OWNED_MODEL *m = step_model();
    ebb_program *p = NULL;
    good(ebb_program_compile(&p, m, &plain));
    refused(ebb_program_step(p, NULL), EBB_USAGE, "'x' is missing");
    const int64_t three[] = {3};
    const ebb_named other = {"z", EBB_F32, 1, four, x_data},
                    small = {"x", EBB_F32, 1, three, x_data},
                    ints = {"x", EBB_I32, 1, four, x_data}, twice[] = {x_named, x_named};
    refused(ebb_program_step(p, &(ebb_batch){&other, 1}), EBB_USAGE, "'z'");
    refused(ebb_program_step(p, &(ebb_batch){&small, 1}), EBB_USAGE, "float32[3]");
    refused(ebb_program_step(p, &(ebb_batch){&ints, 1}), EBB_USAGE, "int32[4]");
    refused(ebb_program_step(p, &(ebb_batch){twice, 2}), EBB_USAGE, "twice");
    ebb_named named;
    refused(ebb_program_get(p, "nothing", &named), EBB_USAGE, "'nothing'");
    assert_int_equal(ebb_program_output_count(p), 1);
    assert_string_equal(ebb_program_output_name(p, 0), "y");
    ebb_program_free(p);
    refused(ebb_program_compile(&p, m, &(ebb_compile_options){.backend = "abacus"}), EBB_USAGE,
            "'abacus'");
}

TEST(missing_weights_are_named_and_may_be_set)
{
    OWNED_MODEL *m = step_model();
    good(ebb_value_point(m->graph, value_of(m, "w"), NULL));
    OWNED_PROGRAM *p = NULL;
    good(ebb_program_compile(&p, m, &plain));
    ebb_status status = ebb_program_step(p, &x_batch);
    refused(status, EBB_RUNTIME, "'w'");
    refused(status, EBB_RUNTIME, "--weights");
    const float w[] = {1, -1, 2, 3};
    const ebb_named named = {"w", EBB_F32, 1, four, w};
    good(ebb_program_set(p, &named));
    good(ebb_program_step(p, &x_batch));
}

/* prev <- w and w <- next: prev must get the old w whatever the order of the bindings. */
TEST(a_state_carried_to_another_is_the_old_one)
{
    for (int order = 0; order < 2; order++) {
        OWNED_MODEL *m = model_of(HEAD "g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}, "
                                       "float[4] prev = {0, 0, 0, 0}> {\n"
                                       "  next = Add(w, x)\n  y = Sub(next, prev)\n}\n");
        if (order == 0)
            bind(m, "w", "next");
        bind(m, "prev", "w");
        if (order == 1)
            bind(m, "w", "next");
        OWNED_PROGRAM *p = NULL;
        good(ebb_program_compile(&p, m, &plain));
        good(ebb_program_step(p, &x_batch));
        const float prev[] = {1, 2, 3, 4}, w[] = {2, 3, 5, 8};
        assert_memory_equal(get(p, "prev"), prev, sizeof prev);
        assert_memory_equal(get(p, "w"), w, sizeof w);
    }
}

TEST(states_that_change_places_are_refused)
{
    OWNED_MODEL *m = model_of(HEAD "g (float[4] x) => (float[4] y) <float[4] a = {1, 2, 3, 4}, "
                                   "float[4] b = {0, 0, 0, 0}> {\n  y = Add(a, x)\n}\n");
    bind(m, "a", "b");
    bind(m, "b", "a");
    ebb_program *p = NULL;
    refused(ebb_program_compile(&p, m, &plain), EBB_UNSUPPORTED, "circle");
    assert_null(p);
}

TEST(every_node_without_kernel_is_named)
{
    OWNED_MODEL *m =
        model_of("<ir_version: 10, opset_import: [\"\" : 20, \"acme\" : 1]>\n"
                 "g (float[4] x) => (float[4] y) <float[4] a, float[4] b, float[4] c> {\n"
                 "  a = acme.Spin(x)\n  b = acme.Spin(a)\n  c = acme.Turn(b)\n  y = Relu(c)\n}\n");
    ebb_program *p = NULL;
    ebb_status status = ebb_program_compile(&p, m, &plain);
    refused(status, EBB_UNSUPPORTED, "3 nodes");
    refused(status, EBB_UNSUPPORTED, "Spin (2)");
    refused(status, EBB_UNSUPPORTED, "Turn (1)");
    FREED char *json = NULL;
    good(ebb_plan_json(m, NULL, &json)); /* weighed all the same */
    assert_non_null(strstr(json, "unsupported"));
}

/* So many nodes stand behind it that what an estimate knows of it is let go meanwhile. */
TEST(a_node_without_kernel_is_named_in_a_long_graph)
{
    enum { NODES = 20000, LINE = 32 };
    FREED char *text = malloc(1024 + (size_t)NODES * LINE);
    assert_non_null(text);
    int at = sprintf(text, "<ir_version: 10, opset_import: [\"\" : 20, \"acme\" : 1]>\n"
                           "g (float[4] x) => (float[4] y) <float[4] v0> { v0 = acme.Spin(x) ");
    for (int i = 0; i < NODES; i++)
        at += snprintf(text + at, LINE, "v%d = Relu(v%d) ", i + 1, i);
    (void)sprintf(text + at, "y = Relu(v%d) }", NODES);
    OWNED_MODEL *m = model_of(text);
    RELEASED ebb_plan_facts *facts = NULL;
    good(ebb_plan_facts_of(&facts, m, NULL));
    assert_non_null(facts->missing);
    assert_non_null(strstr(facts->missing, "Spin (1): Spin 'v0'"));
}

TEST(a_checkpoint_brings_states_and_steps_back)
{
    char path[] = "/tmp/ebb_checkpoint_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    ebb_model *m = step_model();
    ebb_program *p = NULL, *q = NULL;
    good(ebb_program_compile(&p, m, &plain));
    good(ebb_program_step(p, &x_batch));
    good(ebb_checkpoint_save(p, path, "{\"epoch\": 3}"));
    good(ebb_program_compile(&q, m, &plain));
    char *extra = NULL;
    good(ebb_checkpoint_load(q, path, &extra));
    assert_string_equal(extra, "{\"epoch\": 3}");
    free(extra);
    assert_memory_equal(get(p, "w"), get(q, "w"), 16);
    assert_int_equal(ebb_program_measure(q).steps, 1);
    ebb_model *other =
        model_of(HEAD "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v"
                      " = {1, 2}> {\n y = Add(x, w)\n z = Add(y, v)\n}\n");
    bind(other, "w", "y");
    bind(other, "v", "z");
    ebb_program *r = NULL;
    good(ebb_program_compile(&r, other, &plain));
    ebb_status status = ebb_checkpoint_load(r, path, NULL);
    refused(status, EBB_REJECTED, "'w' is float32[4] in the file, float32[2] in the program");
    refused(status, EBB_REJECTED, "'v' is not in the file");
    ebb_program_free(r);
    ebb_program_free(q);
    ebb_program_free(p);
    ebb_model_free(other);
    ebb_model_free(m);
    assert_int_equal(unlink(path), 0);
}

TEST(trained_weights_go_back_into_a_model)
{
    OWNED_MODEL *m = step_model(), *target = model_of(step_text);
    OWNED_PROGRAM *p = NULL;
    good(ebb_program_compile(&p, m, &plain));
    good(ebb_program_step(p, &x_batch));
    good(ebb_program_store(p, target));
    good(ebb_program_store(p, m));
    ebb_named own;
    good(ebb_program_get(p, "w", &own));
    const ebb_tensor *const *now = &ebb_value_of(target->graph, value_of(target, "w"))->tensor;
    assert_ptr_not_equal((*now)->data, own.data);
    good(ebb_program_lend(p, target)); // no second copy of all weights for who only saves them
    assert_ptr_equal((*now)->data, own.data);
    const float w[] = {0.5f, -1, 1, 1};
    assert_memory_equal(ebb_value_of(target->graph, value_of(target, "w"))->tensor->data, w, 16);
    assert_memory_equal(ebb_value_of(m->graph, value_of(m, "w"))->tensor->data, w, 16);
}

TEST(plan_and_diff_have_their_fields)
{
    static const char *const fields[] = {
        "peak_bytes",      "arena_bytes", "lower_bound_bytes", "categories", "saved_bytes",
        "peak_node",       "nodes",       "recompute_flops",   "flops",      "planned_ns",
        "workspace_bytes", "step_ns",     "peak_tensors",      "schema",     "measured_arena_bytes",
    };
    const ebb_plan_options run = {.backend = "plain", .run = true, .seed = 5};
    OWNED_MODEL *m = step_model(), *n = step_model();
    char *json = NULL;
    good(ebb_plan_json(m, &run, &json));
    json_t *root = json_loads(json, 0, NULL);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (json_object_get(root, fields[i]) == NULL)
            fail_msg("plan has no %s", fields[i]);
    json_int_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(root, "categories"), key, value)
        sum += json_integer_value(value);
    assert_int_equal(sum, json_integer_value(json_object_get(root, "peak_bytes")));
    assert_int_equal(json_integer_value(json_object_get(root, "arena_bytes")),
                     json_integer_value(json_object_get(root, "measured_arena_bytes")));
    json_decref(root);
    free(json);
    ebb_node relu = ebb_value_of(n->graph, value_of(n, "y"))->producer;
    ebb_node_set_over(n->graph, relu, 0, 0);
    good(ebb_diff_json(m, n, &run, &json));
    root = json_loads(json, 0, NULL);
    assert_true(json_is_true(json_object_get(root, "bit_equal")));
    assert_int_equal(json_array_size(json_object_get(root, "values")), 2); /* y and w */
    assert_non_null(json_object_get(json_object_get(root, "after"), "peak_bytes"));
    assert_non_null(json_object_get(root, "by_pass"));
    assert_non_null(json_object_get(root, "peak_saved_bytes"));
    json_decref(root);
    free(json);
}

static json_t *profile_of(const ebb_program *p)
{
    char *json = NULL;
    good(ebb_program_profile_json(p, &json));
    json_t *root = json_loads(json, 0, NULL);
    free(json);
    assert_non_null(root);
    return root;
}

TEST(a_profile_counts_each_operator)
{
    OWNED_MODEL *m = step_model();
    OWNED_PROGRAM *p = NULL;
    good(ebb_program_compile(&p, m, &plain));
    good(ebb_program_step(p, &x_batch));
    json_t *root = profile_of(p);
    json_t *operators = json_object_get(root, "operators");
    assert_int_equal(json_array_size(operators), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *o = json_array_get(operators, i);
        if (strcmp(json_string_value(json_object_get(o, "op")), "Mul") == 0)
            assert_int_equal(json_integer_value(json_object_get(o, "calls")), 2);
    }
    assert_int_equal(json_array_size(json_object_get(root, "nodes")), 5);
    json_decref(root);
}

/* Steps before a checkpoint are none of this process's; its first is left out where others came. */
TEST(a_profile_is_of_the_steps_behind_the_first)
{
    OWNED_MODEL *m = step_model();
    OWNED_PROGRAM *p = NULL;
    good(ebb_program_compile(&p, m, &plain));
    p->steps = 1000; // as a checkpoint had
    double flops[3];
    for (int i = 0; i < 3; i++) {
        good(ebb_program_step(p, &x_batch));
        json_t *root = profile_of(p);
        const json_t *first = json_array_get(json_object_get(root, "nodes"), 0);
        assert_int_equal(json_integer_value(json_object_get(root, "steps")), i == 0 ? 1 : i);
        flops[i] = json_number_value(json_object_get(first, "flops"));
        json_decref(root);
    }
    assert_true(flops[0] > 0 && flops[1] == flops[0] && flops[2] == 2 * flops[0]);
}

TEST(a_node_on_constants_is_computed)
{
    OWNED_MODEL *m =
        model_of(HEAD "g (float[2] x) => (float[2] y, float[2] z) <float[2] a = {1, 2}, "
                      "float[2] b = {3, 5}> {\n y = Mul(a, b)\n z = Mul(x, b)\n}\n");
    ebb_tensor out;
    ebb_node n = ebb_first(m->graph);
    good(ebb_eval_node(m->graph, n, &out, 1, 1024, &m->arena));
    const float product[] = {3, 10};
    assert_int_equal(out.bytes, 8);
    assert_memory_equal(out.data, product, 8);
    refused(ebb_eval_node(m->graph, n, &out, 1, 4, &m->arena), EBB_RUNTIME, "limit");
    refused(ebb_eval_node(m->graph, ebb_next(m->graph, n), &out, 1, 64, &m->arena), EBB_RUNTIME,
            "not a constant");
}

TEST(running_out_of_memory_is_a_status)
{
    OWNED_MODEL *m = step_model();
    for (long n = 1;; n++) {
        ebb_program *p = NULL;
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_program_compile(&p, m, &plain);
        if (status == NULL)
            status = ebb_program_step(p, &x_batch);
        ebb_alloc_fail_after(0);
        ebb_program_free(p);
        if (status == NULL)
            break;
        assert_int_equal(ebb_status_code(status), EBB_RUNTIME);
        assert_true(n < 500);
    }
}
