/* test_cudnn_race.c: which of several plans is taken, and that it is taken ever after. Plans are
 * for a described device, and the clock is the test's: nothing runs. */
#include "tests/kernels/call.h"

#include "kernels/cuda/library/cudnn/cache.h"
#include "kernels/cuda/library/cudnn_plans.h"

typedef struct clock { /* candidates by the order in which they come */
    int runs, candidates, favourite;
    int64_t engine, workspace_bytes; /* of the favourite; of the largest */
} clock_of_test;

static ebb_status trial(void *context, const ebb_cudnn_plan *plan, int64_t *ns)
{
    clock_of_test *c = context;
    const ebb_cudnn_choice *choice = ebb_cudnn_plan_choice(plan);
    int candidate = c->candidates > 0 ? c->runs % c->candidates : c->runs;
    *ns = candidate == c->favourite ? 1000 : 2000;
    if (candidate == c->favourite)
        c->engine = choice->engine;
    if (choice->workspace_bytes > c->workspace_bytes)
        c->workspace_bytes = choice->workspace_bytes;
    c->runs++;
    return NULL;
}

static void put_conv(ebb_cudnn_conv_sizes *s)
{
    memset(s, 0, sizeof *s);
    s->dtype = EBB_BF16;
    s->channels_last = true;
    s->batch = 8;
    s->channels = s->filters = 64;
    s->groups = 1;
    s->window.spatial = 2;
    for (int i = 0; i < 2; i++) {
        s->in[i] = 28;
        s->kernel[i] = 3;
        s->window.stride[i] = s->window.dilation[i] = 1;
        s->window.before[i] = s->window.after[i] = 1;
    }
}

static void the_winner_of_a_race_is_kept_and_runs_no_second_one(void **state)
{
    (void)state;
    enum { CANDIDATES = 4, ROUNDS = 5 }; // rivals of cache.c, rounds of choose.h
    ebb_cudnn_device h100;
    ebb_cudnn_conv_sizes s;
    ebb_cudnn_graph *g = NULL;
    ebb_cudnn_plan *first = NULL, *winner = NULL, *again = NULL;
    clock_of_test c = {.candidates = CANDIDATES, .favourite = 2};
    const ebb_cudnn_target target = {.device = &h100};
    const ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
    bool cached = false;
    char path[1024];
    put_conv(&s);
    check_status(ebb_cudnn_device_find(&h100, "h100"), "h100");
    check_status(ebb_cudnn_conv_backward_filter(&g, &s, 0), "graph");
    check_status(ebb_cudnn_cache_path(path, sizeof path, g, &target, &rules), "path");
    assert_non_null(strstr(path, "/h100"));
    (void)remove(path);
    check_status(ebb_cudnn_plan_cached(&first, g, &target, &rules, &cached), "first");
    assert_false(cached);
    assert_false(ebb_cudnn_plan_choice(first)->timed);
    const int64_t most = ebb_cudnn_plan_choice(first)->workspace_bytes;

    check_status(ebb_cudnn_plan_raced(&winner, g, &target, &rules, most, trial, &c), "race");
    assert_non_null(winner);
    assert_int_equal(c.runs, CANDIDATES * ROUNDS);
    assert_int_equal(ebb_cudnn_plan_choice(winner)->engine, c.engine);
    assert_true(ebb_cudnn_plan_choice(winner)->timed);
    assert_true(c.workspace_bytes <= most); // what was planned for the first holds them all

    check_status(ebb_cudnn_plan_cached(&again, g, &target, &rules, &cached), "again");
    assert_true(cached && ebb_cudnn_plan_choice(again)->timed);
    assert_int_equal(ebb_cudnn_plan_choice(again)->engine, c.engine);
    ebb_cudnn_plan_free(again);
    check_status(ebb_cudnn_plan_raced(&again, g, &target, &rules, most, trial, &c), "again");
    assert_int_equal(c.runs, CANDIDATES * ROUNDS);
    assert_int_equal(ebb_cudnn_plan_choice(again)->engine, c.engine);
    ebb_cudnn_plan_free(first);
    ebb_cudnn_plan_free(winner);
    ebb_cudnn_plan_free(again);
    ebb_cudnn_graph_free(g);
}

static void a_choice_that_cannot_be_kept_is_not_made(void **state)
{
    (void)state;
    ebb_cudnn_device h100;
    ebb_cudnn_conv_sizes s;
    ebb_cudnn_graph *g = NULL;
    ebb_cudnn_plan *winner = NULL;
    clock_of_test c = {.favourite = 1};
    const ebb_cudnn_target target = {.device = &h100};
    const ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
    put_conv(&s);
    check_status(ebb_cudnn_device_find(&h100, "h100"), "h100");
    check_status(ebb_cudnn_conv_forward(&g, &s, 0), "graph");
    assert_int_equal(setenv("EBB_CACHE", "/dev/null/nowhere", 1), 0);
    check_status(ebb_cudnn_plan_raced(&winner, g, &target, &rules, 1 << 20, trial, &c), "race");
    assert_null(winner);
    assert_int_equal(setenv("EBB_CACHE", EBB_BINARY_DIR "/cudnn_cache_of_tests", 1), 0);
    ebb_cudnn_graph_free(g);
}

static void nothing_races_on_a_described_device(void **state)
{
    (void)state;
    ebb_cuda_cudnn_ask ask;
    clock_of_test c = {.favourite = 1};
    const char *why;
    memset(&ask, 0, sizeof ask);
    put_conv(&ask.of.conv);
    check_status(ebb_cuda_cudnn_describe("h100"), "h100");
    const ebb_cudnn_plan *before = ebb_cuda_cudnn_plan(&why, &ask);
    assert_non_null(before);
    ebb_cuda_cudnn_race(&ask, trial, &c);
    assert_int_equal(c.runs, 0);
    assert_ptr_equal(ebb_cuda_cudnn_plan(&why, &ask), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_winner_of_a_race_is_kept_and_runs_no_second_one),
        cmocka_unit_test(a_choice_that_cannot_be_kept_is_not_made),
        cmocka_unit_test(nothing_races_on_a_described_device),
    };
    if (setenv("EBB_CACHE", EBB_BINARY_DIR "/cudnn_cache_of_tests", 1) != 0)
        return 1;
    ebb_status status = ebb_cudnn_open();
    if (status == NULL)
        return cmocka_run_group_tests(tests, NULL, NULL);
    printf("SKIP: no plan can be made: %s\n", ebb_status_text(status));
    return 77;
}
