/* test_relu_epilogue.c: the step of a network exported in eval mode, convolutions joined with what
 * follows them, against the same step without: on the CPU every bit, and no more memory. */
#include "tests/eval_net.h"

#include "exec/run/program.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/status.h"

/* before: of the gradient; behind: of it. sites: that the pass found, and applied itself at. */
static ebb_model *step_of(const char *before, const char *behind, int sites[2])
{
    const ebb_rewrite_options options = {.verify_each = true};
    char pipeline[256];
    OWNED_ARENA keep = {0};
    ebb_report *reports;
    size_t count;
    ebb_model *m = eval_net();
    (void)snprintf(pipeline, sizeof pipeline, "fold,loss:mse,%sgradient,%sdrop-saves,alias", before,
                   behind);
    good_for(ebb_pipeline_run(m, pipeline, &options, &keep, &reports, &count), pipeline);
    for (size_t i = 0; i < count; i++)
        if (strcmp(reports[i].pass, "relu-epilogue") == 0) {
            sites[0] = (int)reports[i].found;
            sites[1] = (int)reports[i].applied;
        }
    return m;
}

static ebb_program *run(ebb_model *m, const char *backend)
{
    static float x[2 * 8 * 8 * 8], target[2 * 16];
    const int64_t dims[2][4] = {{2, 8, 8, 8}, {2, 16, 1, 1}};
    const ebb_named inputs[] = {{"x", EBB_F32, 4, dims[0], x},
                                {"target", EBB_F32, 4, dims[1], target}};
    const ebb_compile_options options = {.backend = backend, .seed = 7};
    const ebb_batch batch = {inputs, 2};
    ebb_program *p = NULL;
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)eval_net_draw(&seed);
    good_for(ebb_program_compile(&p, m, &options), backend);
    good_for(ebb_program_step(p, &batch), backend);
    ebb_program_facts f = ebb_program_measure(p);
    assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
    return p;
}

/* The loss and each weight's gradient. */
static void same_bits(ebb_program *a, ebb_program *b, const char *what)
{
    for (int w = -1; w < EVAL_NET_WEIGHTS; w++) {
        char name[32];
        ebb_named one, other;
        bool any = false;
        (void)snprintf(name, sizeof name, "%s_grad", w < 0 ? "" : eval_net_weights[w].name);
        good_for(ebb_program_get(a, w < 0 ? ebb_program_loss_name(a) : name, &one), what);
        good_for(ebb_program_get(b, w < 0 ? ebb_program_loss_name(b) : name, &other), what);
        const size_t count = w < 0 ? 1 : (size_t)eval_net_weights[w].count;
        for (size_t i = 0; i < count; i++) {
            uint32_t p, q;
            memcpy(&p, (const float *)one.data + i, sizeof p);
            memcpy(&q, (const float *)other.data + i, sizeof q);
            any = any || p != 0;
            if (p != q)
                fail_msg("%s: element %zu of %s differs", what, i, name);
        }
        assert_true(any);
    }
}

static const struct {
    const char *before, *memory, *backend;
    int found, applied;
} rows[] = {
    {"", "", "cpu", 4, 3}, /* the sum stays in float32 */
    {"layout:nhwc,", "", "cpu", 4, 3},
    {"", "pool-index,sign-mask,", "plain", 4, 3},
    {"precision:bf16,layout:nhwc,", "", "cpu", 4, 4},
    {"precision:bf16,layout:nhwc,", "pool-index,sign-mask,", "cpu", 4, 4},
    {"precision:fp16,layout:nhwc,", "pool-index,sign-mask,", "plain", 4, 4},
};

TEST(joined_convolutions_change_no_bit_on_the_cpu_and_take_no_more_memory)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int sites[2] = {0, 0};
        char what[128], behind[128];
        (void)snprintf(what, sizeof what, "%s%s%s", rows[i].before, rows[i].memory,
                       rows[i].backend);
        (void)snprintf(behind, sizeof behind, "%srelu-epilogue,", rows[i].memory);
        OWNED_MODEL *parts = step_of(rows[i].before, rows[i].memory, sites);
        OWNED_MODEL *joined = step_of(rows[i].before, behind, sites);
        if (sites[0] != rows[i].found || sites[1] != rows[i].applied)
            fail_msg("%s: found %d, applied %d", what, sites[0], sites[1]);
        OWNED_PROGRAM *one = run(parts, rows[i].backend), *other = run(joined, rows[i].backend);
        same_bits(one, other, what);
        assert_true(ebb_program_measure(other).planned_arena_bytes <=
                    ebb_program_measure(one).planned_arena_bytes);
    }
}
