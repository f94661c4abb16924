/* test_chain_counts.c: the exact numbers behind the planners for chains.
 *
 * Binomial counts are compared with the published values and with each other's forms, the two
 * objectives of a chain with brute force over all subsets.
 */

#include "passes/budget/planners/chain/links.h"
#include "passes/budget/planners/chain/revolve.h"
#include "tests/owned.h"
#include "tests/test.h"

static uint64_t seed;

static uint32_t draw(uint32_t below) /* 0 .. below - 1 */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

#define OK(call) assert_null(call)

/* ---- binomial counts ---- */

TEST(forward_steps_are_those_of_algorithm_799)
{
    static const uint64_t known[][3] = {{10, 3, 15},     {50, 5, 122},   {100, 5, 316},
                                        {100, 10, 222},  {200, 12, 495}, {1000, 10, 3636},
                                        {1000, 30, 2472}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(ebb_revolve_forwards(known[i][0], known[i][1]), known[i][2]);
    assert_int_equal(ebb_revolve_beta(3, 4), 35);
    assert_int_equal(ebb_revolve_beta(0, 9), 1);
    assert_int_equal(ebb_revolve_beta(-1, 2), 0);
    assert_int_equal(ebb_revolve_beta(3, -1), 0);
    assert_int_equal(ebb_revolve_beta(33, 33), 7219428434016265740u);
    assert_true(ebb_revolve_beta(1000, 1000) == UINT64_MAX);
}

static uint64_t by_rule(uint64_t steps, uint64_t slots)
{
    uint64_t sum = 0;
    while (steps > 1) {
        uint64_t advance = ebb_revolve_advance(steps, slots);
        assert_in_range(advance, 1, steps - 1);
        sum += advance + (slots > 1 ? by_rule(steps - advance, slots - 1) : 0);
        steps = advance;
    }
    return sum;
}

TEST(always_advancing_by_the_rule_takes_that_many_steps)
{
    for (uint64_t slots = 1; slots <= 8; slots++)
        for (uint64_t steps = 1; steps < 120; steps++)
            assert_int_equal(by_rule(steps, slots), ebb_revolve_forwards(steps, slots));
}

/* ---- objectives of a chain ---- */

typedef struct links_case {
    uint32_t n;
    uint64_t keep[12], inner[12], work[12];
} links_case;

static uint64_t segment(const links_case *c, uint32_t i, uint32_t j)
{
    uint64_t sum = 0, most = 0;
    for (uint32_t k = i + 1; k <= j; k++) {
        sum += c->inner[k];
        most = c->work[k] > most ? c->work[k] : most;
    }
    return (sum > c->keep[j] ? sum - c->keep[j] : 0) + most;
}

/* Both objectives of one subset, bit k for node k. */
static void objectives(const links_case *c, uint32_t subset, uint64_t *resident, uint64_t *running)
{
    uint64_t kept = 0, largest = 0, sum = 0;
    uint32_t left = 0;
    *running = 0;
    for (uint32_t j = 1; j <= c->n + 1; j++) {
        if (j <= c->n && (subset >> j & 1) == 0)
            continue;
        uint64_t s = segment(c, left, j);
        largest = s > largest ? s : largest;
        *running = sum + s > *running ? sum + s : *running;
        kept += j <= c->n ? c->keep[j] : 0;
        sum = kept;
        left = j;
    }
    *resident = kept + largest;
}

/* plain: outputs alone, as in the paper. Else stages that make more than leaves them. */
static void draw_links(links_case *c, bool plain)
{
    *c = (links_case){.n = 1 + draw(9)};
    for (uint32_t k = 1; k <= c->n + 1; k++) {
        uint64_t bytes = 1 + draw(30);
        c->keep[k] = k <= c->n ? bytes : 0;
        c->inner[k] = plain ? c->keep[k] : bytes + draw(20);
        c->work[k] = plain ? 0 : draw(15);
    }
}

TEST(chain_objectives_equal_brute_force)
{
    seed = 11;
    for (int round = 0; round < 800; round++) {
        links_case c;
        OWNED_ARENA arena = {0};
        ebb_links links;
        uint64_t resident = UINT64_MAX, running = UINT64_MAX, need[12], bound[12], a, b;
        draw_links(&c, round < 400);
        for (uint32_t subset = 0; subset < 2u << c.n; subset += 2) {
            objectives(&c, subset, &a, &b);
            resident = a < resident ? a : resident;
            running = b < running ? b : running;
        }
        OK(ebb_links_make(&links, c.n, c.keep, c.inner, c.work, &arena));
        OK(ebb_links_least_resident(&links, NULL, need, bound, &arena));
        assert_int_equal(need[c.n + 1], resident);
        bool kept[12] = {false};
        uint32_t subset = 0;
        ebb_links_resident(&links, bound[c.n + 1]);
        ebb_links_trace(&links, c.n + 1, kept);
        for (uint32_t k = 1; k <= c.n; k++)
            subset |= (uint32_t)kept[k] << k;
        objectives(&c, subset, &a, &b);
        assert_int_equal(a, resident);
        assert_int_equal(ebb_links_least_running(&links), running);
    }
}

TEST(a_thousand_equal_outputs_need_63_and_44)
{
    enum { N = 1024 };
    RELEASED uint64_t *one = ebb_alloc((N + 2) * sizeof *one),
                      *need = ebb_alloc((N + 2) * sizeof *need);
    RELEASED uint64_t *bound = ebb_alloc((N + 2) * sizeof *bound);
    for (int k = 0; k < N + 2; k++)
        one[k] = k >= 1 && k <= N;
    OWNED_ARENA arena = {0};
    ebb_links links;
    OK(ebb_links_make(&links, N, one, one, NULL, &arena));
    OK(ebb_links_least_resident(&links, NULL, need, bound, &arena));
    assert_int_equal(need[N + 1], 63);
    assert_int_equal(ebb_links_least_running(&links), 44);
}
