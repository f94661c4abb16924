/* test_pofo.c: the least time over all plans that offload and make again, by listing them all. */
#include <math.h>

#include "passes/budget/planners/walk/pofo.h"
#include "tests/owned.h"
#include "tests/share.h"
#include "tests/test.h"

#define OK(call) assert_null(call)

enum { MOST = 8 };

static uint64_t seed;

static uint32_t draw(uint32_t below) /* 0 .. below - 1 */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* ---- a plan, played ---- */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Highest while stages i .. end-1 run and are dropped. */
static uint32_t dropping(const ebb_pofo *c, uint32_t i, uint32_t end)
{
    uint32_t most = 0;
    for (uint32_t s = i; s < end; s++)
        most = larger(most, c->stage[s].drop + (s > i ? c->stage[s].in : 0));
    return most;
}

static double running(const ebb_pofo *c, uint32_t i, uint32_t end)
{
    double time = 0;
    for (uint32_t s = i; s < end; s++)
        time += c->stage[s].forward;
    return time;
}

/* Stages i .. j forward and back in m slots: every way to do it. */
static double reverse(const ebb_pofo *c, uint32_t i, uint32_t j, uint32_t m)
{
    const ebb_pofo_stage *s = &c->stage[i];
    double best = HUGE_VAL, own = s->forward + s->backward;
    if (m >= larger(s->fill + c->stage[j].grad, s->back))
        best = i == j ? own : m >= s->saved ? own + reverse(c, i + 1, j, m - s->saved) : HUGE_VAL;
    for (uint32_t k = i + 1; k <= j; k++) {
        if (m < larger(dropping(c, i, k) + c->stage[j].grad, c->stage[k].in))
            continue;
        double time =
            running(c, i, k) + reverse(c, k, j, m - c->stage[k].in) + reverse(c, i, k - 1, m);
        best = time < best ? time : best;
    }
    return best;
}

typedef struct side { /* forward, or backward seen from the end */
    double time, queue;
} side;

/* A unit that takes `busy` and `slots` beside what lies there: first the queue must leave room. */
static bool take(side *s, const ebb_pofo *c, uint32_t there, uint32_t slots, double busy)
{
    double over = s->queue + there + slots - c->slots;
    if (there + slots > c->slots)
        return false;
    if (over > 0) {
        s->time += over / c->rate;
        s->queue -= over;
    }
    s->time += busy;
    s->queue = s->queue > busy * c->rate ? s->queue - busy * c->rate : 0;
    return true;
}

/* The time of these units; HUGE_VAL: they do not fit. */
static double play(const ebb_pofo *c, const ebb_pofo_unit *unit, uint32_t count)
{
    side forth = {0, 0}, back = {0, 0};
    uint32_t stays = 0;
    for (uint32_t u = 0; u < count; u++) {
        const ebb_pofo_unit *n = &unit[u];
        const ebb_pofo_stage *s = &c->stage[n->first];
        uint32_t held = u == 0 ? 0 : unit[u - 1].all ? s[-1].saved : s->in;
        if (n->end == c->stages) {
            double time = reverse(c, n->first, c->stages - 1, n->slots);
            if (n->all || n->away || isinf(time) || !take(&forth, c, stays + held, n->slots, 0) ||
                !take(&back, c, stays + held, n->slots, 0))
                return HUGE_VAL;
            double link = forth.queue + back.queue > 0 ? (forth.queue + back.queue) / c->rate : 0;
            return forth.time + back.time + (link > time ? link : time);
        }
        double again = n->all ? s->backward : reverse(c, n->first, n->end - 1, n->slots);
        if (isinf(again) ||
            !take(&forth, c, stays + held, n->all ? s->fill : dropping(c, n->first, n->end),
                  running(c, n->first, n->end)) ||
            !take(&back, c, stays + held, n->all ? s->back : n->slots, again))
            return HUGE_VAL;
        if (n->away) {
            forth.queue += held;
            back.queue += held;
        } else {
            stays += held;
        }
    }
    return HUGE_VAL;
}

/* ---- all plans ---- */

static double best_of_all(const ebb_pofo *c, ebb_pofo_unit *unit, uint32_t count, uint32_t at)
{
    double best = HUGE_VAL;
    for (uint32_t end = at + 1; end <= c->stages; end++) {
        for (uint32_t slots = 0; slots <= c->slots; slots++) {
            for (int how = 0; how < 4; how++) { // away, all
                if ((how / 2 == 1 && (slots > 0 || end > at + 1)) || (how % 2 == 1 && at == 0))
                    continue;
                unit[count] = (ebb_pofo_unit){at, end, how / 2, how % 2, slots};
                if (isinf(play(c, unit, count + 1)) && end == c->stages)
                    continue;
                double time = end == c->stages ? play(c, unit, count + 1)
                                               : best_of_all(c, unit, count + 1, end);
                best = time < best ? time : best;
            }
        }
    }
    return best;
}

static void draw_chain(ebb_pofo *c, ebb_pofo_stage *stage)
{
    for (uint32_t s = 0; s < c->stages; s++) {
        stage[s] = (ebb_pofo_stage){.forward = 1 + draw(3), .backward = 1 + draw(4)};
        stage[s].in = s > 0 ? 1 + draw(2) : 0;
    }
    for (uint32_t s = 0; s < c->stages; s++) {
        uint32_t out = s + 1 < c->stages ? stage[s + 1].in : 1;
        stage[s].saved = out + draw(2);
        stage[s].drop = out + draw(2);
        stage[s].fill = larger(stage[s].saved, stage[s].drop) + draw(2);
        stage[s].back = stage[s].saved + draw(2);
        stage[s].grad = draw(2);
    }
}

TEST(no_plan_is_faster)
{
    uint32_t offloaded = 0, plans = 0;
    seed = 3;
    for (int round = 0; round < 400 / FEWER; round++) {
        ebb_pofo_stage stage[MOST];
        ebb_pofo_unit units[MOST];
        OWNED_ARENA arena = {0};
        ebb_pofo_plan plan;
        ebb_pofo c = {stage, 1 + draw(4), 2 + draw(5), round % 8 == 0 ? 0 : 1};
        draw_chain(&c, stage);
        double *rotor = ebb_pofo_rotor(&c, &arena);
        assert_non_null(rotor);
        for (uint32_t j = 0; j < c.stages; j++)
            for (uint32_t i = 0; i <= j; i++)
                for (uint32_t m = 0; m <= c.slots; m++)
                    assert_true(rotor[(j * (j + 1) / 2 + i) * (c.slots + 1) + m] ==
                                reverse(&c, i, j, m));
        OK(ebb_pofo_make(&plan, &c, rotor, &arena));
        double best = best_of_all(&c, units, 0, 0);
        if (c.rate > 0 ? plan.time != best : plan.time < best)
            print_error("round %d: %u stages, %u slots: %g, search %g\n", round, c.stages, c.slots,
                        plan.time, best);
        assert_true(plan.time == best || (isinf(plan.time) && isinf(best)));
        plans += plan.count > 0;
        assert_true(plan.count == 0 || play(&c, plan.units, plan.count) == plan.time);
        for (uint32_t u = 0; u < plan.count; u++)
            offloaded += plan.units[u].away;
    }
    print_message("%u plans, %u units offloaded\n", plans, offloaded);
    assert_true(plans > 100 / FEWER && offloaded > 20 / FEWER);
}

/* Equal stages: offloading never makes it slower, and less memory never faster. */
TEST(more_memory_and_a_faster_link_take_no_more_time)
{
    enum { STAGES = 16, SLOTS = 20 };
    ebb_pofo_stage stage[STAGES];
    double before[SLOTS + 1];
    for (uint32_t s = 0; s < STAGES; s++)
        stage[s] = (ebb_pofo_stage){2, 4, s > 0, 3, 1, 3, 3, 0};
    for (uint32_t m = 0; m <= SLOTS; m++)
        before[m] = HUGE_VAL;
    for (int link = 0; link < 4; link++) {
        static const double rates[] = {0, 0.25, 0.5, 2};
        double last = HUGE_VAL;
        for (uint32_t slots = 4; slots <= SLOTS; slots += 2) {
            OWNED_ARENA arena = {0};
            ebb_pofo_plan plan;
            ebb_pofo c = {stage, STAGES, slots, rates[link]};
            double *rotor = ebb_pofo_rotor(&c, &arena);
            OK(ebb_pofo_make(&plan, &c, rotor, &arena));
            assert_true(plan.time <= last && plan.time <= before[slots]);
            last = before[slots] = plan.time;
            print_message("rate %.2f, %2u of 48 slots: %.3f times\n", rates[link], slots,
                          plan.time / (STAGES * 6.0));
        }
    }
}
