/* test_places.c: whole steps with tensors on disk, all of them and drawn at random: bit-equal to the step
 * without, bytes as planned in each place. */
#include <stdio.h>
#include <string.h>

#include "exec/weigh/plan.h"
#include "onnx/graph/place.h"
#include "passes/budget/trial.h"
#include "tests/models/alike.h"
#include "tests/owned.h"

static ebb_program_facts check(const run *kept, const char *path, const char *pass)
{
    run away = {NULL, NULL};
    run_open(&away, path, pass);
    const ebb_program_facts f = ebb_program_measure(away.program);
    compare(kept, &away, pass);
    assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
    assert_int_equal(f.planned_disk_bytes, f.disk_bytes);
    assert_int_equal(f.planned_host_bytes, f.host_bytes);
    run_close(&away);
    return f;
}

/* Every pass that makes offers leaves what waits on disk as it is: behind it the step is legal, and is the same
 * where the pass is exact; and so it is behind fit, which takes their offers. Whatever was refused says so. */
static void check_offers(const run *kept, const char *path, uint64_t arena)
{
    static const char moved[] = "offload:least=1,values=*";
    const ebb_rewrite_options each = {.verify_each = true};
    const ebb_pass *pass;
    char text[256];
    for (int i = 1; (pass = ebb_pass_offering(i)) != NULL; i++) {
        ebb_model *m = NULL;
        (void)snprintf(text, sizeof text, "%s,%s", moved, pass->name);
        good(ebb_open(&m, path));
        good(ebb_rewrite(m, moved, &each, NULL));
        good(ebb_rewrite(m, pass->name, &each, NULL));
        ebb_close(m);
        if (pass->exactness == EBB_EXACT)
            (void)check(kept, path, text);
    }
    (void)snprintf(text, sizeof text, "fit:budget=%llu,time=0.1", (unsigned long long)arena);
    run fitted = {NULL, NULL};
    good(ebb_open(&fitted.model, path));
    good(ebb_rewrite(fitted.model, moved, &each, NULL));
    good(ebb_rewrite(fitted.model, text, &each, NULL));
    run_start(&fitted);
    compare(kept, &fitted, text);
    run_close(&fitted);
}

/* The pass for a random subset of what the nodes make. */
static void draw_pass(char *text, size_t size, const ebb_model *m, uint64_t seed)
{
    const ebb_graph *g = m->graph;
    uint64_t state = seed;
    const uint64_t share = 1 + draw(&state) % 9;
    size_t at = (size_t)snprintf(text, size, "offload:place=%s,least=1,values=none",
                                 seed % 3 == 0 ? "host" : "disk");
    EBB_EACH_NODE(g, n)
        for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++) {
            const ebb_value v = ebb_out(g, n, k);
            const char *name = v.i != 0 ? ebb_value_name(g, v) : "";
            if (name[0] != '\0' && draw(&state) % 10 < share && strlen(name) + at + 2 < size)
                at += (size_t)snprintf(text + at, size - at, ";%s", name);
        }
}

/* The arena of the step with this pass, and its planned time; false: no plan keeps to the budget. */
static bool plan(const char *path, const char *pass, uint64_t *arena, double *ns)
{
    OWNED_MODEL *m = NULL;
    ebb_setting setting;
    OWNED_ARENA memory = {0};
    ebb_plan p;
    good(ebb_open(&m, path));
    ebb_status status = ebb_rewrite(m, pass, NULL, NULL);
    if (status == NULL) {
        good(ebb_setting_read(&setting, m, NULL, 0, 0));
        good(ebb_plan_make(&p, &memory, m->graph, &setting));
        *arena = p.packing.height;
        *ns = p.planned_ns;
        ebb_plan_release(&p);
    } else if (ebb_status_code(status) != EBB_NO_PLAN) {
        fail_msg("%s: %s", pass, ebb_status_text(status));
    }
    return status == NULL;
}

/* The least arena that fit reaches without a disk, as it says itself. */
static uint64_t least_of(const char *path)
{
    OWNED_MODEL *m = NULL;
    unsigned long long least = 0;
    good(ebb_open(&m, path));
    ebb_status status = ebb_rewrite(m, "fit:budget=1,time=0.1", NULL, NULL);
    const char *said = strstr(ebb_status_text(status), "of at least ");
    assert_int_equal(ebb_status_code(status), EBB_NO_PLAN);
    assert_non_null(said);
    assert_int_equal(sscanf(said, "of at least %llu", &least), 1);
    return least;
}

/* A disk is one more way to keep to a budget: it never makes the step slower, nor the least larger. How many
 * of the budgets it was taken for. */
static int check_fit(const run *kept, const char *path, uint64_t arena)
{
    int moved = 0;
    const uint64_t budgets[] = {arena / 100 * 60, arena / 100 * 30, least_of(path) - 1};
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        char with[256], without[256];
        const uint64_t budget = budgets[i], room = arena;
        uint64_t bytes[2];
        double ns[2];
        (void)snprintf(without, sizeof without, "fit:budget=%llu,time=0.1,stream,alias",
                       (unsigned long long)budget);
        (void)snprintf(with, sizeof with, "fit:budget=%llu,disk=%llu,time=0.1,stream,alias",
                       (unsigned long long)budget, (unsigned long long)room);
        const bool fits = plan(path, without, &bytes[0], &ns[0]);
        const bool fits_moved = plan(path, with, &bytes[1], &ns[1]);
        assert_true(!fits || fits_moved);
        if (!fits_moved)
            continue;
        assert_true(bytes[1] <= budget);
        assert_true(!fits || ns[1] <= ns[0] * (1 + 1e-9));
        const ebb_program_facts f = check(kept, path, with);
        assert_true(f.disk_bytes <= room);
        moved += f.disk_bytes > 0;
    }
    return moved;
}

/* For planners, too, what lies elsewhere takes no memory; moves and what they move are not run again. */
static void check_numbers(const char *path)
{
    OWNED_MODEL *m = NULL;
    OWNED_ARENA memory = {0};
    ebb_trial trial;
    ebb_remat_schedule all;
    ebb_remat_weight weight;
    good(ebb_open(&m, path));
    good(ebb_rewrite(m, "offload:least=1,values=*", NULL, NULL));
    good(ebb_trial_weigh(&trial, &memory, m->graph, NULL));
    const ebb_remat_problem *p = &trial.source.problem;
    good(ebb_remat_keep_all(&all, p, &memory));
    good(ebb_remat_weigh(&weight, NULL, p, &all, &memory));
    assert_true(weight.peak_bytes <= trial.estimate.arena_bytes + trial.source.spare_bytes);
    bool *once = EBB_NEW(&memory, bool, m->graph->node_count + 1);
    assert_non_null(once);
    for (uint32_t u = 0; u < p->op_count; u++)
        once[trial.source.node[u].i] = p->ops[u].once;
    EBB_EACH_NODE(m->graph, n) {
        if (!ebb_op_moves(ebb_node_of(m->graph, n)->op))
            continue;
        const ebb_node by = ebb_value_of(m->graph, ebb_in(m->graph, n, 0))->producer;
        assert_true(once[n.i] && once[by.i]);
    }
}

static int check_step(const char *path, bool fits)
{
    static char pass[1 << 16];
    run kept = {NULL, NULL};
    run_open(&kept, path, NULL);
    const uint64_t arena = ebb_program_measure(kept.program).planned_arena_bytes;
    const ebb_program_facts all = check(&kept, path, "offload:least=1,values=*");
    assert_true(all.planned_disk_bytes > 0);
    assert_true(all.planned_arena_bytes < arena);
    check_offers(&kept, path, all.planned_arena_bytes);
    for (uint64_t i = 0; i < 50; i += share(5)) {
        draw_pass(pass, sizeof pass, kept.model, i);
        (void)check(&kept, path, pass);
    }
    /* A budget is kept, or the least that was reached is said. */
    for (uint64_t share = 95; share >= 35; share -= 20) {
        run away = {NULL, NULL};
        const uint64_t budget = arena / 100 * share;
        (void)snprintf(pass, sizeof pass, "offload:least=1,budget=%llu",
                       (unsigned long long)budget);
        good(ebb_open(&away.model, path));
        ebb_status status = ebb_rewrite(away.model, pass, NULL, NULL);
        ebb_close(away.model);
        if (status != NULL)
            assert_int_equal(ebb_status_code(status), EBB_NO_PLAN);
        else
            assert_true(check(&kept, path, pass).planned_arena_bytes <= budget);
    }
    const int moved = fits ? check_fit(&kept, path, arena) : 0; // the text takes long to plan
    run_close(&kept);
    return moved;
}

TEST(samples_train_alike_wherever_their_values_lie)
{
    int moved = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        char step[256];
        write_step(step, sizeof step, "places", i);
        moved += check_step(step, i < 2);
        check_numbers(step);
        (void)remove(step);
    }
    assert_true(moved > 0);
}
