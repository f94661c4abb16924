/* test_away.c: placements in numbers against exhaustive search, and steps of real graphs against every choice
 * of what may go. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "passes/budget/planners/away.h"
#include "passes/budget/trial.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

enum { GRAPHS = 50, MOST_VALUES = 12, MOST_SITES = 9, MOST_POSITIONS = 2 * MOST_VALUES + 1 };

static uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* ---- problems in numbers ---- */

typedef struct drawn {
    ebb_away_problem p;
    ebb_away_site sites[MOST_VALUES];
    double starts[MOST_POSITIONS + 1];
    uint64_t live[MOST_POSITIONS];
    uint64_t most;
} drawn;

/* By `next`, each in a ring of its tensor's. */
static void sort_sites(drawn *d)
{
    for (size_t i = 1; i < d->p.site_count; i++)
        for (ebb_away_site *to = &d->sites[i]; to > d->sites && to[-1].next > to->next; to--) {
            const ebb_away_site swap = *to;
            *to = to[-1];
            to[-1] = swap;
        }
    for (uint32_t i = 0; i < d->p.site_count; i++) {
        uint32_t k = i;
        do
            k = (k + 1) % (uint32_t)d->p.site_count;
        while (d->sites[k].tensor != d->sites[i].tensor);
        d->sites[i].ring = k;
    }
}

/* A forward of `count` operators and a backward that reads what they made, in the other order or any, some of it
 * in between, too; one or two places, of little room or much, of all mixtures of fast and slow, busy and free. */
static void draw_problem(drawn *d, uint64_t seed)
{
    uint64_t s = seed * 7919 + 1;
    const uint32_t count = 3 + (uint32_t)(draw(&s) % (MOST_VALUES - 2));
    *d = (drawn){.p.count = 2 * count + 1, .p.node_ns = (double)(draw(&s) % 3)};
    for (uint32_t i = 0; i < d->p.count; i++)
        d->starts[i + 1] = d->starts[i] + 1 + (double)(draw(&s) % 100);
    for (uint32_t i = 0; i < d->p.count; i++)
        d->live[i] = draw(&s) % 64;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t made = i, last = i + (uint32_t)(draw(&s) % 2);
        uint32_t next = d->p.count - 1 - i;
        if (draw(&s) % 3 == 0)
            next = last + 2 + (uint32_t)draw(&s) % (d->p.count - last - 2);
        const uint64_t bytes = 1 + draw(&s) % 200;
        for (uint32_t q = made; q <= next; q++)
            d->live[q] += bytes;
        const uint32_t gaps = count <= MOST_VALUES / 2 ? 1 + (uint32_t)draw(&s) % 3 : 1;
        for (uint32_t k = 0, from = last; k < gaps && (gaps == 1 || d->p.site_count < MOST_SITES);
             k++) {
            const uint32_t to = from + (next - from) / (gaps - k);
            if (to > from + 2)
                d->sites[d->p.site_count++] = (ebb_away_site){
                    .tensor = i, .bytes = bytes, .made = made, .last = from, .next = to};
            from = to;
        }
    }
    sort_sites(d);
    d->p.place_count = 1 + draw(&s) % 2;
    for (size_t k = 0; k < d->p.place_count; k++) {
        ebb_away_place *place = &d->p.places[k];
        place->align = draw(&s) % 2 ? 1 : 64;
        place->room = draw(&s) % 3 == 0 ? 100 + draw(&s) % 400 : UINT64_MAX;
        for (int way = 0; way < 2; way++) {
            const double beside = (double)(1 + draw(&s) % 40) / 40 * (k == 0 ? 1 : 4);
            place->way[way] = (ebb_move_time){beside * (double)(1 + draw(&s) % 4) / 4, beside,
                                              draw(&s) % 3 ? (double)(draw(&s) % 10) / 20 : 0};
        }
    }
    d->p.starts = d->starts;
    d->p.live = d->live;
    d->p.sites = d->sites;
    uint64_t peak = 0, least = 0;
    for (uint32_t q = 0; q < d->p.count; q++) {
        uint64_t low = d->live[q];
        for (size_t i = 0; i < d->p.site_count; i++)
            if (d->sites[i].last < q && q < d->sites[i].next)
                low -= d->sites[i].bytes;
        peak = d->live[q] > peak ? d->live[q] : peak;
        least = low > least ? low : least;
    }
    d->most = least + (peak - least) * (draw(&s) % 100) / 100;
}

/* A tensor is in one place, and there once. */
static bool has_room(const drawn *d)
{
    uint64_t taken[EBB_AWAY_PLACES] = {0};
    for (size_t i = 0; i < d->p.site_count; i++) {
        const ebb_away_site *s = &d->sites[i];
        bool written = false;
        for (size_t k = 0; k < i && s->place != 0; k++)
            if (d->sites[k].tensor == s->tensor && d->sites[k].place != 0) {
                written = true;
                if (d->sites[k].place != s->place)
                    return false;
            }
        if (s->place == 0 || written)
            continue;
        const uint64_t align = d->p.places[s->place - 1].align;
        taken[s->place - 1] += (s->bytes + align - 1) / align * align;
    }
    for (size_t k = 0; k < d->p.place_count; k++)
        if (taken[k] > d->p.places[k].room)
            return false;
    return true;
}

static bool next_placement(drawn *d)
{
    for (size_t i = 0; i < d->p.site_count; i++) {
        if (++d->sites[i].place <= d->p.place_count)
            return true;
        d->sites[i].place = 0;
    }
    return false;
}

TEST(few_values_are_placed_as_well_as_can_be)
{
    ebb_arena scratch = {0};
    size_t moved = 0, impossible = 0, placements = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        drawn d;
        ebb_away_weight found, one;
        draw_problem(&d, seed);
        good(ebb_away_find(&found, &d.p, d.most, false, &scratch));
        assert_true(found.proven);
        assert_true(has_room(&d));
        for (size_t i = 0; i < d.p.site_count; i++)
            moved += d.sites[i].place != 0;
        double best = INFINITY;
        memset(&one, 0, sizeof one);
        for (size_t i = 0; i < d.p.site_count; i++)
            d.sites[i].place = 0;
        do {
            placements++;
            if (!has_room(&d))
                continue;
            good(ebb_away_weigh(&one, &d.p, d.most, &scratch));
            if (one.peak_bytes <= d.most && one.added_ns < best)
                best = one.added_ns;
            ebb_arena_fini(&scratch);
        } while (next_placement(&d));
        impossible += best == INFINITY;
        if (best == INFINITY ? found.peak_bytes <= d.most : found.added_ns > best * (1 + 1e-12))
            fail_msg("seed %llu: %g ns are added, and %g would do", (unsigned long long)seed,
                     found.added_ns, best);
    }
    assert_true(moved > GRAPHS);
    assert_true(impossible < GRAPHS / 4);
    assert_true(placements > 100000);
    ebb_arena_fini(&scratch);
}

/* The bytes alive and the time that a placement takes, once more: position by position, from what is alive when
 * and from moves that go on a little at a time. */
TEST(what_a_placement_takes_is_what_happens)
{
    OWNED_ARENA scratch = {0};
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        drawn d;
        ebb_away_weight found;
        draw_problem(&d, seed);
        good(ebb_away_find(&found, &d.p, d.most, seed % 2, &scratch));
        uint64_t peak = 0;
        for (uint32_t q = 0; q < d.p.count; q++) {
            uint64_t alive = d.live[q];
            for (size_t i = 0; i < d.p.site_count; i++) {
                const ebb_away_site *s = &d.sites[i];
                if (s->place != 0) {
                    assert_true(s->last < s->gone && s->gone < s->back && s->back <= s->next);
                    alive -= s->gone <= q && q < s->back ? s->bytes : 0;
                }
            }
            peak = alive > peak ? alive : peak;
        }
        assert_true(peak <= (found.peak_bytes > d.most ? found.peak_bytes : d.most));
        assert_true(found.added_ns >= 0);
    }
}

static double waiting(const drawn *d, uint32_t site)
{
    return d->starts[d->sites[site].next] - d->starts[d->sites[site].last + 1];
}

/* As the rule was before a tensor could go oftener: what it finds is looked at beside the other. */
TEST(a_tensor_that_goes_once_goes_for_its_longest_time)
{
    OWNED_ARENA scratch = {0};
    size_t less = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        drawn d;
        ebb_away_rule once, often;
        draw_problem(&d, seed);
        good(ebb_away_rule_make(&once, &d.p, true, &scratch));
        good(ebb_away_rule_make(&often, &d.p, false, &scratch));
        for (size_t k = 0; k < once.count; k++) {
            assert_true(once.peak[k + 1] <= once.peak[k]);
            for (uint32_t i = d.sites[once.site[k]].ring; i != once.site[k]; i = d.sites[i].ring) {
                assert_true(waiting(&d, i) <= waiting(&d, once.site[k]));
                for (size_t other = 0; other < once.count; other++)
                    assert_int_not_equal(once.site[other], i);
            }
        }
        assert_true(often.peak[often.count] <= once.peak[once.count]);
        less += once.count < often.count;
    }
    assert_true(less > 0);
}

/* ---- real graphs ---- */

/* Layers of two widths, read again in the other order, and some of them once before that. */
static ebb_model *draw_graph(uint64_t seed, int layers)
{
    static const char *const names[] = {"Sin", "Exp", "Relu", "Tanh"};
    char text[4096];
    uint64_t s = seed * 104729 + 7;
    size_t at = (size_t)snprintf(
        text, sizeof text,
        "<ir_version: 10, opset_import: [\"\" : 20]> g (float[64] v0, float[128,64] w0, "
        "float[512,64] w1) => (float[64] y, float[64] z) <int64[1] axis = {0}> { ");
    for (int i = 0; i < layers; i++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "h%d = Mul(w%d, v%d) a%d = %s(h%d) "
                               "v%d = ReduceMax<keepdims = 0>(a%d, axis) ",
                               i, (int)(draw(&s) % 2), i, i, names[draw(&s) % 4], i, i + 1, i);
    at += (size_t)snprintf(text + at, sizeof text - at, "b%d = Neg(v%d) m0 = Neg(v%d) ", layers,
                           layers, layers);
    for (int i = 0; i < layers; i++) { // some are read in between, too
        if (draw(&s) % 2 == 0)
            at += (size_t)snprintf(text + at, sizeof text - at,
                                   "n%d = Mul(a%d, m%d) m%d = ReduceMax<keepdims = 0>(n%d, axis) ",
                                   i, i, i, i + 1, i);
        else
            at += (size_t)snprintf(text + at, sizeof text - at, "m%d = Neg(m%d) ", i + 1, i);
    }
    at += (size_t)snprintf(text + at, sizeof text - at, "z = Neg(m%d) ", layers);
    for (int i = layers; i-- > 0;)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "g%d = Mul(a%d, b%d) b%d = ReduceMin<keepdims = 0>(g%d, axis) ", i,
                               i, i + 1, i, i);
    (void)snprintf(text + at, sizeof text - at, "y = Neg(b0) }");
    ebb_model *m = model_of(text);
    return m;
}

/* The step's time with this pass; NAN: it does not keep to the budget. */
static double time_with(const ebb_model *model, const char *pass, uint64_t *bytes)
{
    OWNED_MODEL *m = NULL;
    const ebb_rewrite_options options = {.verify_each = true};
    OWNED_ARENA memory = {0};
    ebb_report *reports;
    size_t count;
    ebb_trial trial;
    double ns = NAN;
    good(ebb_model_copy(&m, model));
    ebb_status status =
        pass == NULL ? NULL : ebb_pipeline_run(m, pass, &options, &memory, &reports, &count);
    if (status == NULL) {
        good(ebb_trial_weigh(&trial, &memory, m->graph, "plain"));
        ns = trial.estimate.ns;
        *bytes = trial.bytes;
    } else {
        assert_int_equal(ebb_status_code(status), EBB_NO_PLAN);
    }
    return ns;
}

/* By the ruler itself: whatever is kept from going, the step is no faster. */
TEST(no_choice_among_few_tensors_is_faster)
{
    int better = 0, made = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        const int layers = 3 + (int)(seed % 4);
        OWNED_MODEL *m = draw_graph(seed, layers);
        uint64_t all, bytes = 0, s = seed;
        (void)time_with(m, NULL, &all);
        const uint64_t budget = all * (60 + draw(&s) % 35) / 100;
        char pass[512];
        (void)snprintf(pass, sizeof pass, "offload:backend=plain,least=1,budget=%llu",
                       (unsigned long long)budget);
        const double ns = time_with(m, pass, &bytes);
        if (!isnan(ns)) {
            made++;
            assert_true(bytes <= budget);
        }
        for (unsigned set = 1; set + 1 < 1u << layers; set++) {
            int at =
                snprintf(pass, sizeof pass, "offload:backend=plain,least=1,budget=%llu,values=none",
                         (unsigned long long)budget);
            for (int i = 0; i < layers; i++)
                if (set >> i & 1)
                    at += snprintf(pass + at, sizeof pass - (size_t)at, ";a%d", i);
            const double other = time_with(m, pass, &bytes);
            if (!isnan(other) && !(ns <= other * (1 + 1e-9))) {
                better++;
                printf("seed %llu, %d layers, budget %llu of %llu: %.0f ns, and %.0f with %s\n",
                       (unsigned long long)seed, layers, (unsigned long long)budget,
                       (unsigned long long)all, ns, other, pass);
            }
        }
    }
    assert_true(made > GRAPHS / 2);
    assert_int_equal(better, 0);
}

/* A tensor of 40 bytes is read at 11, a state of 10 at 10, over a link of a byte a nanosecond: the state comes first, and
 * nothing stands still; its next value has gone when the link had the time. */
TEST(a_state_does_not_wait_behind_a_tensor)
{
    enum { POSITIONS = 12 };
    double starts[POSITIONS + 1];
    uint64_t live[POSITIONS];
    ebb_away_site sites[] = {
        {.tensor = 1,
         .bytes = 10,
         .last = UINT32_MAX,
         .next = 10,
         .lasts = EBB_AWAY_RETURNS,
         .place = 1,
         .ring = 0},
        {.tensor = 0, .bytes = 40, .made = 0, .last = 0, .next = 11, .ring = 1},
        {.tensor = 2,
         .bytes = 10,
         .made = 4,
         .last = 4,
         .next = POSITIONS,
         .lasts = EBB_AWAY_LEAVES,
         .place = 1,
         .ring = 2},
    };
    ebb_away_problem p = {.starts = starts,
                          .live = live,
                          .count = POSITIONS,
                          .sites = sites,
                          .site_count = 3,
                          .place_count = 1};
    p.places[0] = (ebb_away_place){UINT64_MAX, 1, {{1, 1, 0}, {1, 1, 0}}};
    for (int i = 0; i <= POSITIONS; i++)
        starts[i] = 10 * i;
    for (int i = 0; i < POSITIONS; i++)
        live[i] = i == 6 ? 140 : 60;
    OWNED_ARENA scratch = {0};
    ebb_away_weight weight;
    good(ebb_away_find(&weight, &p, 110, false, &scratch));
    assert_int_equal(weight.peak_bytes, 100);
    assert_int_equal(sites[1].place, 1);
    assert_true(weight.added_ns == 0);
    assert_int_equal(sites[0].back, 6);
    assert_int_equal(sites[1].back, 7);
    assert_int_equal(sites[2].gone, 6);
    p.fill = 1; // no room for any time beside the step
    good(ebb_away_weigh(&weight, &p, 110, &scratch));
    assert_true(weight.added_ns > 0);
    assert_int_equal(sites[0].back, 10);
    assert_int_equal(sites[2].gone, 5);
}
