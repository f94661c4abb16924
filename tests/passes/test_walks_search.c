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

typedef bool (*expansion)(search *s, uint32_t time, uint32_t place); /* true: it is the end */

/* The time of the fastest walk from what is reached already; UINT32_MAX: none. */
static uint32_t least_time(search *s, expansion expand_place)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t time = 0; found == UINT32_MAX && time < 4096; time++)
        for (size_t i = 0; i < s->count[time] && found == UINT32_MAX; i++)
            if (s->least[s->queue[time][i]] == time + 1 && expand_place(s, time, s->queue[time][i]))
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
    return least_time(s, expand);
}

TEST(no_walk_over_two_memories_is_faster)
{
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

TEST(no_walk_with_a_disk_is_faster)
{
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

/* ---- chains that meet ---- */

/* bits: states. The place, from the lowest on: states stored, turned, the working state, steps left
 * of each chain. */
static uint32_t join_place(const search *s, uint32_t stored, bool turned, uint32_t working,
                           const uint32_t *left)
{
    uint32_t place = 0;
    for (uint32_t b = s->c->branch_count; b-- > 0;)
        place = place * (s->c->branch[b] + 1) + left[b];
    place = (place * (s->bits + 1) + working) * 2 + turned;
    return place << s->bits | stored;
}

/* Steps forward take 1, all else nothing. */
static bool expand_join(search *s, uint32_t time, uint32_t place)
{
    const ebb_course *c = s->c;
    uint32_t stored = place & ((1u << s->bits) - 1), head = place >> s->bits, at, all = 0;
    uint32_t left[EBB_WALK_BRANCHES], outputs = 0, first = 0;
    bool turned = head % 2;
    at = head / 2 % (s->bits + 1);
    head = head / 2 / (s->bits + 1);
    for (uint32_t b = 0; b < c->branch_count; b++) {
        left[b] = head % (c->branch[b] + 1);
        head /= c->branch[b] + 1;
        all += left[b];
    }
    if (turned && all == 0)
        return true;
    if (at < s->bits && (stored >> at & 1) == 0 && bits_in(stored) < c->level[0].slots)
        reach_place(s, time, join_place(s, stored | 1u << at, turned, at, left));
    for (uint32_t b = 0; b < c->branch_count; first += c->branch[b++] + 1) {
        uint32_t output = first + c->branch[b], end = first + left[b];
        outputs |= 1u << output;
        for (uint32_t i = first; i <= output; i++) {
            if ((stored >> i & 1) == 0)
                continue;
            if (i < end || !turned)
                reach_place(s, time, join_place(s, stored, turned, i, left));
            if (!turned || i < output)
                reach_place(s, time, join_place(s, stored & ~(1u << i), turned, at, left));
        }
        if (at >= first && at < end && (!turned || at + 1 < end))
            reach_place(s, time + 1, join_place(s, stored, turned, at + 1, left));
        if (turned && at + 1 == end && at >= first && left[b] > 0) {
            uint32_t kept = stored & ~(left[b] == 1 ? 1u << output : 0);
            left[b]--;
            reach_place(s, time, join_place(s, kept, true, s->bits, left));
            left[b]++;
        }
    }
    if (!turned && (stored & outputs) == outputs)
        reach_place(s, time, join_place(s, stored, true, s->bits, left));
    return false;
}

static uint32_t least_of_all_joins(const ebb_course *c)
{
    uint32_t first = 0, stored = 0, places = 2 * (c->steps + 1);
    for (uint32_t b = 0; b < c->branch_count; first += c->branch[b++] + 1) {
        stored |= 1u << first;
        places *= c->branch[b] + 1;
    }
    search *s = search_of(c, c->steps, (size_t)places << c->steps);
    if (bits_in(stored) <= c->level[0].slots)
        reach_place(s, 0, join_place(s, stored, false, s->bits, c->branch));
    return least_time(s, expand_join);
}

static ebb_course join_of(uint32_t count, const uint32_t *length, uint32_t slots)
{
    ebb_course c = {.forward = 1, .level = {{slots, 0, 0}}, .level_count = 1};
    c.branch_count = count;
    for (uint32_t b = 0; b < count; b++) {
        c.branch[b] = length[b];
        c.steps += length[b] + 1;
    }
    return c;
}

TEST(no_walk_over_chains_that_meet_is_faster)
{
    static const uint32_t lengths[][4] = {{1, 5},       {2, 1, 1}, {2, 3, 2}, {2, 4, 4},
                                          {2, 6, 3},    {2, 8, 1}, {2, 5, 5}, {3, 2, 2, 2},
                                          {3, 4, 2, 1}, {1, 9}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (uint32_t slots = 1; slots <= (SANITIZED ? 6 : 9); slots++) {
            ebb_course c = join_of(lengths[i][0], &lengths[i][1], slots);
            uint32_t best = least_of_all_joins(&c);
            if (slots < 2 * lengths[i][0]) {
                ebb_arena arena = {0};
                ebb_walk w = {.arena = &arena};
                double cost;
                assert_int_equal(best, UINT32_MAX);
                assert_int_equal(ebb_status_code(ebb_walk_join(&w, &c, &cost)), EBB_NO_PLAN);
                ebb_arena_fini(&arena);
                continue;
            }
            walk_count count = walked(ebb_walk_join, &c);
            if (count.forwards != best)
                print_error("case %zu, %u slots: %u forwards, search %u\n", i, slots,
                            (unsigned)count.forwards, best);
            assert_int_equal(count.forwards, best);
        }
    }
}

/* One chain that meets none: the turn is one step more, and its gradient takes a slot. */
TEST(a_single_chain_is_that_of_revolve)
{
    for (uint32_t n = 1; n < 200; n += 7) {
        for (uint32_t slots = 2; slots < 12; slots += 3) {
            ebb_course c = join_of(1, &n, slots);
            assert_int_equal(walked(ebb_walk_join, &c).forwards,
                             ebb_revolve_forwards(n + 1, slots - 1));
        }
    }
}

TEST(longer_chains_that_meet_keep_to_their_slots)
{
    static const uint32_t length[] = {60, 25, 12};
    uint64_t before = UINT64_MAX;
    for (uint32_t slots = 6; slots <= 30; slots += 4) {
        ebb_course c = join_of(3, length, slots);
        walk_count count = walked(ebb_walk_join, &c);
        assert_true(count.forwards <= before);
        assert_in_range(count.most[0], 6, slots);
        before = count.forwards;
    }
}
