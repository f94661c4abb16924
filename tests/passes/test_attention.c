/* test_attention.c: a step whose attention is one node computes what the step of single operators
 * does: each spelling, on both back ends, with dropout drawing the same elements.
 */
#include <stdio.h>

#include <math.h>

#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/status.h"

enum { BATCH = 2, S = 70, D = 6, HEADS = 2, FEATURES = HEADS * D };

/* x [2, 70, 12] to two heads of 6 features and back; `chain` makes p of q, k and kt, where kt is k
 * turned, and pad [2, 1, 1, 70] says which tokens are there. */
typedef struct spelling {
    const char *name, *constants, *chain;
} spelling;

#define LOW "-3.4028234663852886e38"
#define TRIANGLE                                                               \
    "big = Constant <value_int = 70> ()\n nil = Constant <value_int = 0> ()\n" \
    "one = Constant <value_int = 1> ()\n r = Range (nil, big, one)\n"          \
    "ax = Constant <value_ints = [1]> ()\n c = Unsqueeze (r, ax)\n"            \
    "tri = LessOrEqual (r, c)\n"

static const spelling spellings[] = {
    {"scores alone", "", "s = MatMul (q, kt)\n p = Softmax <axis = -1> (s)\n"},
    {"scaled and padded", "float h = {0.4}, float z = {0}, float low = {" LOW "}",
     "s0 = MatMul (q, kt)\n s = Mul (s0, h)\n m = Where (pad, z, low)\n a = Add (s, m)\n"
     "p = Softmax <axis = -1> (a)\n"},
    {"causal and padded on the left, where early rows have no key",
     "float h = {0.4}, float z = {0}, float low = {" LOW "}",
     TRIANGLE "s0 = MatMul (q, kt)\n s = Mul (s0, h)\n b = And (tri, pad)\n"
              "m = Where (b, z, low)\n a = Add (m, s)\n p = Softmax <axis = -1> (a)\n"},
    {"guarded", "float root = {0.7}, float z = {0}, float low = {-inf}",
     TRIANGLE "rq = Mul (q, root)\n rk = Mul (kt, root)\n s = MatMul (rq, rk)\n"
              "b = And (tri, pad)\n m = Where (b, z, low)\n a = Add (s, m)\n"
              "p0 = Softmax <axis = -1> (a)\n n = IsNaN (p0)\n p = Where (n, z, p0)\n"},
    {"replaced", "float h = {2.5}, float low = {-2}",
     "s0 = MatMul (q, kt)\n s = Div (s0, h)\n no = Not (pad)\n a = Where (no, low, s)\n"
     "p = Softmax <axis = -1> (a)\n"},
    {"biased", "",
     TRIANGLE "s = MatMul (q, kt)\n f = Cast <to = 1> (pad)\n a = Add (s, f)\n"
              "p = Softmax <axis = 3> (a)\n"},
    {"replaced by the triangle, then biased", "float low = {-10000}",
     TRIANGLE "s = MatMul (q, kt)\n w = Where (tri, s, low)\n f = Cast <to = 1> (pad)\n"
              "a = Add (w, f)\n p = Softmax <axis = 3> (a)\n"},
};

static uint64_t state_of_draws;

static double draw(void)
{
    state_of_draws = state_of_draws * 6364136223846793005u + 1442695040888963407u;
    return (double)(state_of_draws >> 40) / 8388608.0 - 1.0;
}

static size_t put_weight(char *to, size_t room, const char *name)
{
    size_t n = (size_t)snprintf(to, room, "float[%d,%d] %s = {", FEATURES, FEATURES, name);
    for (int i = 0; i < FEATURES * FEATURES; i++)
        n += (size_t)snprintf(to + n, room - n, "%s%.4f", i > 0 ? "," : "", draw() * 0.6);
    return n + (size_t)snprintf(to + n, room - n, "}, ");
}

static ebb_model *model_of(const spelling *s, const char *ratio)
{
    static char text[1 << 15];
    static const char *const weights[] = {"wq", "wk", "wv"};
    size_t n = (size_t)snprintf(text, sizeof text,
                                "<ir_version: 10, opset_import: [\"\" : 20]>\n"
                                "g (float[2,70,12] x, bool[2,1,1,70] pad) => (float[2,70,12] y) <");
    state_of_draws = 5;
    for (int i = 0; i < 3; i++)
        n += put_weight(text + n, sizeof text - n, weights[i]);
    n += (size_t)snprintf(
        text + n, sizeof text - n,
        "float ratio = {%s}, bool on = {1}, int64[4] split = {2, 70, 2, 6}, "
        "int64[3] join = {2, 70, 12}%s%s> {\n"
        "q0 = MatMul (x, wq)\n k0 = MatMul (x, wk)\n v0 = MatMul (x, wv)\n"
        "q1 = Reshape (q0, split)\n k1 = Reshape (k0, split)\n v1 = Reshape (v0, split)\n"
        "q = Transpose <perm = [0, 2, 1, 3]> (q1)\n kt = Transpose <perm = [0, 2, 3, 1]> (k1)\n"
        "v = Transpose <perm = [0, 2, 1, 3]> (v1)\n %s [drop] d = Dropout (p, ratio, on)\n"
        "o = MatMul (d, v)\n j = Transpose <perm = [0, 2, 1, 3]> (o)\n y = Reshape (j, join)\n}",
        ratio, s->constants[0] != '\0' ? ", " : "", s->constants, s->chain);
    assert_true(n < sizeof text);
    ebb_model *model;
    good_for(ebb_text_parse_model(&model, text), s->name);
    return model;
}

/* The step of this pipeline, run once on the back end. */
static ebb_program *step_of(const spelling *s, ebb_model *model, const char *passes,
                            const char *backend, size_t *applied)
{
    const ebb_compile_options options = {.backend = backend};
    const ebb_rewrite_options checks = {.verify_each = true};
    static float x[BATCH * S * FEATURES], target[BATCH * S * FEATURES];
    static uint8_t pad[BATCH * S];
    static const int64_t dims[] = {BATCH, S, FEATURES}, pad_dims[] = {BATCH, 1, 1, S};
    const ebb_named inputs[] = {{"x", EBB_F32, 3, dims, x},
                                {"pad", EBB_BOOL, 4, pad_dims, pad},
                                {"target", EBB_F32, 3, dims, target}};
    const ebb_batch batch = {inputs, 3};
    ebb_arena keep = {0};
    ebb_report *reports;
    ebb_program *program;
    size_t count;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
        x[i] = (float)draw();
        target[i] = (float)draw();
    }
    for (int i = 0; i < S; i++) {
        pad[i] = i >= 3;     // the first rows of a causal mask see nobody
        pad[S + i] = i < 50; // and padding on the right
    }
    good_for(ebb_pipeline_run(model, passes, &checks, &keep, &reports, &count), s->name);
    *applied = reports[count - 3].applied;
    ebb_arena_fini(&keep);
    good_for(ebb_program_compile(&program, model, &options), s->name);
    good_for(ebb_program_step(program, &batch), s->name);
    ebb_program_facts facts = ebb_program_measure(program);
    assert_int_equal(facts.planned_arena_bytes, facts.measured_arena_bytes);
    return program;
}

static void compare(const spelling *s, ebb_program *chain, ebb_program *node, const char *name)
{
    ebb_named a, b;
    good_for(ebb_program_get(chain, name, &a), s->name);
    good_for(ebb_program_get(node, name, &b), s->name);
    size_t n = 1;
    double largest = 0;
    for (int i = 0; i < a.rank; i++)
        n *= (size_t)a.dims[i];
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)((const float *)a.data)[i]));
    for (size_t i = 0; i < n; i++) {
        double x = (double)((const float *)a.data)[i], y = (double)((const float *)b.data)[i];
        if (!(fabs(x - y) <= 2e-5 * largest))
            fail_msg("%s: element %zu of %s is %g in the chain and %g in one node", s->name, i,
                     name, x, y);
    }
}

#define BEFORE "train-mode,inline,fold,fuse,loss:mse,gradient,"
#define AFTER "drop-saves,alias"

static void check(const spelling *s, const char *ratio, const char *before, const char *after,
                  const char *backend)
{
    static const char *const names[] = {"loss", "wq_grad", "wk_grad", "wv_grad"};
    ebb_model *models[2] = {model_of(s, ratio), model_of(s, ratio)};
    size_t applied;
    state_of_draws = 77;
    OWNED_PROGRAM *chain = step_of(s, models[0], before, "plain", &applied);
    state_of_draws = 77;
    OWNED_PROGRAM *node = step_of(s, models[1], after, backend, &applied);
    if (applied != 1)
        fail_msg("%s: attention was not found", s->name);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        compare(s, chain, node, names[i]);
    ebb_model_free(models[0]);
    ebb_model_free(models[1]);
}

TEST(a_step_with_attention_in_one_node_computes_the_same)
{
    static const char *const backends[] = {"plain", "cpu"};
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
        for (size_t b = 0; b < 2; b++) {
            check(&spellings[i], "0.0", BEFORE AFTER, BEFORE "attention," AFTER, backends[b]);
            check(&spellings[i], "0.3", BEFORE AFTER, BEFORE "attention," AFTER, backends[b]);
        }
}

TEST(masks_that_are_drawn_again_or_packed_are_found_too)
{
    check(&spellings[1], "0.3", BEFORE AFTER, BEFORE "dropout-seed,attention," AFTER, "cpu");
    check(&spellings[1], "0.3", BEFORE AFTER, BEFORE "dropout-mask,attention," AFTER, "cpu");
}

/* The pass before the gradient: the operator's own rule makes the backward. */
TEST(the_rule_of_the_operator_makes_the_same_backward)
{
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        const spelling *s = &spellings[i];
        ebb_model *models[2] = {model_of(s, "0.3"), model_of(s, "0.3")};
        size_t applied;
        state_of_draws = 77;
        OWNED_PROGRAM *chain = step_of(s, models[0], BEFORE "attention," AFTER, "cpu", &applied);
        state_of_draws = 77;
        OWNED_PROGRAM *node =
            step_of(s, models[1], "train-mode,inline,fold,fuse,attention,loss:mse,gradient," AFTER,
                    "cpu", &applied);
        compare(s, chain, node, "loss");
        compare(s, chain, node, "wk_grad");
        ebb_model_free(models[0]);
        ebb_model_free(models[1]);
    }
}

/* The planner for all passes: it may refuse a site, which then stays as it is. */
static const char *refuse(void *context, const ebb_pass *pass, ebb_node site,
                          const ebb_offer *offer)
{
    (void)pass;
    (void)site;
    *(ebb_offer *)context = *offer;
    return "refused";
}

TEST(an_offer_says_what_is_saved_and_may_be_refused)
{
    const ebb_rewrite_options checks = {.verify_each = true};
    OWNED_MODEL *model = model_of(&spellings[1], "0.3");
    OWNED_ARENA keep = {0}, scratch = {0};
    ebb_report *reports, report = {0};
    ebb_offer offer = {.saved_bytes = 0};
    size_t count;
    const ebb_pass *pass = ebb_pass_find("attention");
    good_for(ebb_pipeline_run(model, "train-mode,inline,fold,fuse,loss:mse,gradient", &checks,
                              &keep, &reports, &count),
             "step");
    RELEASED char *before = NULL, *after = NULL;
    good_for(ebb_text_print(&before, model->graph), "text");
    ebb_edit edit = {.g = model->graph,
                     .pass = pass,
                     .scratch = &scratch,
                     .keep = &keep,
                     .report = &report,
                     .decides = refuse,
                     .context = &offer};
    good_for(pass->run(&edit), "attention");
    good_for(ebb_text_print(&after, model->graph), "text");
    assert_string_equal(before, after);
    assert_int_equal(report.found, 1);
    assert_int_equal(report.applied, 0);
    const int64_t scores = BATCH * HEADS * S * S, rows = BATCH * HEADS * S;
    assert_int_equal(offer.saved_bytes, scores * (4 + 4 + 1) - rows * 8);
}
