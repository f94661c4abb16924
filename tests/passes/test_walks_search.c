/* test_walks_search.c: no walk there is takes less time than those that are planned.
 *
 * The least time is that of the shortest way through all that can be the case on a chain: which
 * state is at hand, which ones are stored where, which steps are left.
 */
#include "tests/walks.h"

#include <stdlib.h>

#include "passes/budget/planners/chain/revolve.h"
#include "tests/share.h"

static uint64_t seed;

static uint32_t draw(uint32_t below) /* 0 .. below - 1 */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* ---- all walks there are ---- */

/* Where a walk stands: the working state (or steps: none), the steps that are left, and the states
 * that lie at two levels, as bits. */
typedef struct search {
    const ebb_course *c;
    uint16_t *least; /* by place + 1; 0: not reached */
    uint32_t *queue[4096];
    size_t count[4096], room[4096]; /* by time */
    uint32_t bits;
} search;

static uint32_t place_of(const search *s, uint32_t working, uint32_t left, uint32_t fast,
                         uint32_t slow)
{
    return (((working * (s->c->steps + 1) + left) << s->bits | fast) << s->bits) | slow;
}

static void reach_place(search *s, uint32_t time, uint32_t place)
{
    assert_true(time < 4096);
    if (s->least[place] != 0 && s->least[place] <= time + 1)
        return;
    s->least[place] = (uint16_t)(time + 1);
    if (s->count[time] == s->room[time]) {
        s->room[time] = s->room[time] * 2 + 64;
        s->queue[time] = realloc(s->queue[time], s->room[time] * sizeof **s->queue);
    }
    s->queue[time][s->count[time]++] = place;
}

static void reach(search *s, uint32_t time, uint32_t working, uint32_t left, uint32_t fast,
                  uint32_t slow)
{
    uint32_t keep = (1u << left) - 1;
    reach_place(s, time, place_of(s, working, left, fast & keep, slow & keep));
}

static uint32_t bits_in(uint32_t set)
{
    return (uint32_t)__builtin_popcount(set);
}

static bool expand(search *s, uint32_t time, uint32_t place)
{
    const ebb_course *c = s->c;
    uint32_t n = c->steps, mask = (1u << s->bits) - 1;
    uint32_t set[2] = {place >> s->bits & mask, place & mask};
    uint32_t head = place >> s->bits >> s->bits, left = head % (n + 1), at = head / (n + 1);
    if (left == 0)
        return true;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t other = set[1 - k];
        for (uint32_t i = 0; i < left; i++) {
            if ((set[k] >> i & 1) == 0)
                continue;
            uint32_t less = set[k] & ~(1u << i), read = (uint32_t)c->level[k].read;
            reach(s, time, at, left, k == 0 ? less : other, k == 0 ? other : less);
            reach(s, time + read, i, left, set[0], set[1]);
        }
        if (at < left && (set[k] >> at & 1) == 0 && bits_in(set[k]) < c->level[k].slots) {
            uint32_t more = set[k] | 1u << at, write = (uint32_t)c->level[k].write;
            reach(s, time + write, at, left, k == 0 ? more : other, k == 0 ? other : more);
        }
    }
    if (at + 1 < left)
        reach(s, time + (uint32_t)c->forward, at + 1, left, set[0], set[1]);
    if (at + 1 == left)
        reach(s, time + (uint32_t)c->backward, n, left - 1, set[0], set[1]);
    return false;
}

/* The time of the fastest walk from what is reached already; UINT32_MAX: none. */
static uint32_t least_time(search *s)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t time = 0; found == UINT32_MAX && time < 4096; time++)
        for (size_t i = 0; i < s->count[time] && found == UINT32_MAX; i++)
            if (s->least[s->queue[time][i]] == time + 1 && expand(s, time, s->queue[time][i]))
                found = time;
    for (uint32_t time = 0; time < 4096; time++)
        free(s->queue[time]);
    free(s->least);
    free(s);
    return found;
}

static search *search_of(const ebb_course *c, uint32_t bits, size_t places)
{
    search *s = calloc(1, sizeof *s);
    s->c = c;
    s->bits = bits;
    s->least = calloc(places, sizeof *s->least);
    return s;
}

static uint32_t least_of_all_walks(const ebb_course *c)
{
    uint32_t n = c->steps;
    search *s = search_of(c, n, ((size_t)(n + 1) * (n + 1)) << (2 * n));
    reach(s, 0, 0, n, 0, 0);
    return least_time(s);
}

static void no_walk_over_two_memories_is_faster(void **state)
{
    (void)state;
    seed = 5;
    uint32_t rounds = SANITIZED ? 20 : 120;
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t n = round % 20 == 0 ? 9 : 2 + draw(6);
        ebb_course c = course_of(n - 1, 1 + draw(3), 1 + draw(3), draw(5), draw(5));
        c.forward = 1 + draw(3);
        c.backward = c.forward + draw(3);
        walk_count count = walked(ebb_walk_hrevolve, &c);
        uint32_t best = least_of_all_walks(&c);
        if ((uint32_t)count.time != best)
            print_error("%u steps, slots %u %u, write %g read %g forward %g: %g, search %u\n", n,
                        c.level[0].slots, c.level[1].slots, c.level[1].write, c.level[1].read,
                        c.forward, count.time, best);
        assert_int_equal((uint32_t)count.time, best);
    }
}

static void no_walk_with_a_disk_is_faster(void **state)
{
    (void)state;
    seed = 9;
    uint32_t rounds = SANITIZED ? 10 : 60;
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t n = round % 20 == 0 ? 9 : 2 + draw(6);
        ebb_course c = course_of(n - 1, 1 + draw(3), EBB_WALK_NO_LIMIT, draw(6), draw(6));
        walk_count count = walked(ebb_walk_disk_revolve, &c);
        uint32_t best = least_of_all_walks(&c);
        if ((uint32_t)count.time != best)
            print_error("%u steps, %u slots, write %g read %g: %g, search %u\n", n,
                        c.level[0].slots, c.level[1].write, c.level[1].read, count.time, best);
        assert_int_equal((uint32_t)count.time, best);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_walk_over_two_memories_is_faster),
        cmocka_unit_test(no_walk_with_a_disk_is_faster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
