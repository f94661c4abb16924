/* test_pack.c: no two alive together overlap; the bound is met where that is easy, and neared where
 * it is hard. */

#include <time.h>

#include "exec/weigh/pack.h"
#include "exec/weigh/pack/exact.h"
#include "exec/weigh/pack/space.h"
#include "tests/owned.h"
#include "tests/share.h"
#include "tests/test.h"

static const ebb_pack_options by_64 = {.alignment = 64};
static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static void check_places(const ebb_interval *v, size_t count, const ebb_packing *p, uint64_t align)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(v[i].offset % align, 0);
        if (v[i].lower == v[i].upper)
            continue;
        assert_true(v[i].offset + v[i].size <= p->height);
        for (size_t j = 0; j < i; j++) {
            bool together =
                v[j].lower < v[j].upper && v[i].lower < v[j].upper && v[j].lower < v[i].upper;
            bool overlap =
                v[i].offset < v[j].offset + v[j].size && v[j].offset < v[i].offset + v[i].size;
            if (together && overlap)
                fail_msg("intervals %zu and %zu overlap", j, i);
        }
    }
    assert_true(p->height >= p->lower_bound);
}

static ebb_packing pack(ebb_interval *v, size_t count, uint64_t align)
{
    ebb_arena arena = {0};
    ebb_packing p;
    ebb_status status = ebb_pack(&p, v, count, &(ebb_pack_options){.alignment = align}, &arena);
    ebb_arena_fini(&arena);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
    check_places(v, count, &p, align);
    return p;
}

/* By a walk over those that are placed, which lie in `list` by offset. */
static uint64_t lowest_free(const ebb_piece *list, uint32_t placed, const ebb_piece *z)
{
    uint64_t offset = 0;
    for (uint32_t k = 0; k < placed && list[k].at < offset + z->size; k++)
        if (list[k].lower < z->upper && z->lower < list[k].upper &&
            list[k].at + list[k].size > offset)
            offset = list[k].at + list[k].size;
    return offset;
}

static void places_go_as_by_a_walk(const ebb_piece *list, uint32_t count)
{
    OWNED_ARENA arena = {0};
    ebb_space *space = ebb_space_new(list, count, &arena);
    ebb_piece *placed = EBB_NEW(&arena, ebb_piece, count);
    assert_non_null(space);
    assert_non_null(placed);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t offset = ebb_space_first(space, &list[i]);
        assert_int_equal(offset, lowest_free(placed, i, &list[i]));
        assert_true(ebb_space_take(space, &list[i], offset));
        uint32_t k = i;
        for (; k > 0 && placed[k - 1].at > offset; k--)
            placed[k] = placed[k - 1];
        placed[k] = list[i];
        placed[k].at = offset;
    }
}

TEST(the_tree_finds_the_lowest_free_place)
{
    enum { COUNT = 600 };
    static ebb_piece list[COUNT];
    random_state = 7;
    for (uint32_t span = 2; span < 5000; span *= 3) {
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t lower = draw(span), life = draw(4) == 0 ? span : 1 + span / 50;
            list[i] = (ebb_piece){.lower = lower, .upper = lower + 1 + draw(life)};
            list[i].size = 64 * (1 + (uint64_t)draw(4));
        }
        places_go_as_by_a_walk(list, COUNT);
    }
}

/* Two nests of lives, which take turns, and then short lives in a row: what a training step has. */
TEST(places_in_nests_of_lives_are_the_lowest)
{
    enum { NEST = 1200, SHORT = 2 * NEST, COUNT = 2 * NEST + 2 * SHORT };
    static ebb_piece list[COUNT];
    uint32_t n = 0;
    random_state = 11;
    for (uint32_t i = 0; i < NEST; i++) {
        const uint32_t end = 4 * NEST, middle = 3 * NEST + draw(3);
        list[n++] = (ebb_piece){.lower = i, .upper = end - 2 * i, .size = 64};
        list[n++] = (ebb_piece){.lower = middle - i, .upper = middle + i + 1, .size = 64};
    }
    for (uint32_t i = 0; i < SHORT; i++)
        list[n++] = (ebb_piece){.lower = 2 * i, .upper = 2 * i + 4 + draw(2), .size = 64};
    for (uint32_t i = 0; i < SHORT; i++)
        list[n++] = (ebb_piece){.lower = 2 * i, .upper = 2 * i + 1, .size = 64 * (1 + draw(20))};
    places_go_as_by_a_walk(list, COUNT);
}

TEST(random_intervals_never_overlap)
{
    static ebb_interval v[200];
    random_state = 1;
    for (int round = 0; round < 64 / FEWER; round++) {
        size_t count = draw(200);
        for (size_t i = 0; i < count; i++) {
            uint32_t lower = draw(100);
            v[i] = (ebb_interval){lower, lower + draw(40), draw(5000), 0};
        }
        (void)pack(v, count, round % 2 ? 64 : 1);
    }
}

TEST(nested_lives_reach_the_bound)
{
    ebb_interval v[32];
    for (uint32_t i = 0; i < 32; i++)
        v[i] = (ebb_interval){i, 64 - i, 100 + 37 * (uint64_t)i, 0};
    ebb_packing p = pack(v, 32, 1);
    assert_int_equal(p.height, p.lower_bound);
}

/* Forward makes, backward reads in reverse; sizes fall with depth, gradients live to the end. */
static size_t training(ebb_interval *v, uint32_t layers)
{
    size_t n = 0;
    uint32_t end = 3 * layers;
    for (uint32_t l = 0; l < layers; l++) {
        uint32_t back = end - 1 - 2 * l;
        uint64_t size = UINT64_C(4000000) >> (l * 5 / layers);
        v[n++] = (ebb_interval){l, back + 1, size, 0};
        v[n++] = (ebb_interval){back - 1, back + 2 < end ? back + 2 : end, size, 0};
        v[n++] = (ebb_interval){back - 1, end, (draw(50) + 1) * UINT64_C(4000), 0};
        v[n++] = (ebb_interval){0, end, (draw(50) + 1) * UINT64_C(4000), 0};
        if (draw(2))
            v[n++] = (ebb_interval){l, l + 1 + draw(3), (draw(100) + 1) * UINT64_C(20000), 0};
    }
    return n;
}

TEST(training_steps_come_within_one_percent)
{
    static ebb_interval v[2000];
    random_state = 7;
    for (uint32_t layers = 4; layers <= 256; layers *= 4) {
        size_t count = training(v, layers);
        ebb_packing p = pack(v, count, 64);
        assert_true((double)p.height <= 1.01 * (double)p.lower_bound);
    }
}

/* Packs as many others as are remembered. */
static void forget(void)
{
    for (uint64_t i = 0; i < 300; i++)
        (void)pack(&(ebb_interval){0, 1, 1000000 + i, 0}, 1, 1);
}

TEST(the_same_input_gives_the_same_offsets)
{
    static ebb_interval given[600], a[600], b[600];
    random_state = 9;
    for (size_t i = 0; i < 600; i++) {
        uint32_t lower = draw(300);
        given[i] = (ebb_interval){lower, lower + 1 + draw(100), draw(100000), 0};
    }
    memcpy(a, given, sizeof a);
    memcpy(b, given, sizeof b);
    const ebb_packing one = pack(a, 600, 64);
    forget();
    const ebb_packing two = pack(b, 600, 64);
    assert_memory_equal(a, b, sizeof a);
    memcpy(b, given, sizeof b);
    const ebb_packing three = pack(b, 600, 64); /* remembered */
    assert_memory_equal(a, b, sizeof a);
    assert_string_equal(one.method, two.method);
    assert_string_equal(one.method, three.method);
    assert_true(one.height == two.height && one.height == three.height && one.least == three.least);
}

TEST(what_is_remembered_is_of_equal_intervals_and_options)
{
    OWNED_ARENA arena = {0};
    ebb_packing p;
    const ebb_interval given[] = {{0, 2, 65, 0}, {1, 3, 65, 0}};
    ebb_interval v[2];
    for (int k = 0; k < 2; k++) {
        memcpy(v, given, sizeof v);
        assert_int_equal(pack(v, 2, 64).height, 128 + 65);
        memcpy(v, given, sizeof v);
        assert_int_equal(pack(v, 2, 1).height, 130);
        memcpy(v, given, sizeof v);
        v[1].lower = 2; /* no longer together */
        assert_int_equal(pack(v, 2, 64).height, 65);
        memcpy(v, given, sizeof v);
        v[0].size = 64;
        assert_int_equal(pack(v, 2, 64).height, 64 + 65);
        memcpy(v, given, sizeof v);
        const bool fixed[] = {false, true};
        v[1].offset = 64;
        const ebb_pack_options options = {.alignment = 64, .fixed = fixed};
        assert_null(ebb_pack(&p, v, 2, &options, &arena));
        assert_int_equal(v[0].offset, 192);
    }
}

TEST(ten_thousand_intervals_are_quick)
{
    static ebb_interval v[10000];
    OWNED_ARENA arena = {0};
    ebb_packing p;
    random_state = 3;
    for (size_t i = 0; i < 10000; i++) {
        uint32_t lower = draw(10000);
        v[i] = (ebb_interval){lower, lower + 1 + draw(200), draw(100000), 0};
    }
    clock_t begin = clock();
    assert_null(ebb_pack(&p, v, 10000, &by_64, &arena));
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 10.0); /* ten times what it takes */
}

/* ---- against brute force ---- */

enum { TINY = 7 };

typedef struct tiny {
    ebb_piece pieces[TINY];
    uint64_t offsets[TINY];
    bool placed[TINY];
    int count;
    uint64_t alignment, best;
} tiny;

static bool collide(const tiny *t, int i, uint64_t offset, int j)
{
    const ebb_piece *x = &t->pieces[i], *y = &t->pieces[j];
    uint64_t other = y->fixed ? y->at : t->offsets[j];
    return x->lower < y->upper && y->lower < x->upper && offset < other + y->bytes &&
           other < offset + x->bytes;
}

/* Every order of placing each at its lowest place: the lowest packing is among them. */
static void try_every_order(tiny *t, int done, uint64_t height)
{
    if (height >= t->best)
        return;
    if (done == t->count) {
        t->best = height;
        return;
    }
    for (int i = 0; i < t->count; i++) {
        uint64_t offset = t->pieces[i].fixed ? t->pieces[i].at : 0;
        if (t->placed[i])
            continue;
        for (int j = 0; j < t->count && !t->pieces[i].fixed; j++)
            if (j != i && (t->placed[j] || t->pieces[j].fixed) && collide(t, i, offset, j)) {
                offset += t->alignment;
                j = -1; /* all of them again, one step higher */
            }
        uint64_t end = offset + t->pieces[i].bytes;
        t->placed[i] = true;
        t->offsets[i] = offset;
        try_every_order(t, done + 1, end > height ? end : height);
        t->placed[i] = false;
        if (t->pieces[i].fixed)
            return; /* its turn makes no difference */
    }
}

static void draw_tiny(tiny *t)
{
    static const uint64_t alignments[] = {1, 1, 2, 4};
    *t = (tiny){.count = 1 + (int)draw(TINY), .alignment = alignments[draw(4)], .best = 1000};
    uint32_t positions = 3 + draw(8), sizes = 1 + draw(9);
    bool with_fixed = draw(3) == 0;
    for (int i = 0; i < t->count; i++) {
        uint32_t lower = draw(positions);
        uint64_t bytes = 1 + draw(sizes);
        ebb_piece *z = &t->pieces[i];
        *z = (ebb_piece){.lower = lower,
                         .upper = lower + 1 + draw(positions),
                         .size = (bytes + t->alignment - 1) / t->alignment * t->alignment,
                         .bytes = bytes,
                         .index = (uint32_t)i};
        if (!with_fixed || draw(3) != 0)
            continue;
        z->at = draw(12) * t->alignment;
        z->fixed = true;
        for (int j = 0; j < i; j++)
            if (t->pieces[j].fixed && collide(t, i, z->at, j))
                z->fixed = false;
        z->at = z->fixed ? z->at : 0;
    }
    try_every_order(t, 0, 0);
}

static void check_tiny(const tiny *t, const uint64_t *offsets, uint64_t capacity)
{
    for (int i = 0; i < t->count; i++) {
        const ebb_piece *x = &t->pieces[i];
        assert_true(offsets[i] + x->bytes <= capacity);
        assert_int_equal(offsets[i] % t->alignment, 0);
        assert_true(!x->fixed || offsets[i] == x->at);
        for (int j = 0; j < i; j++) {
            const ebb_piece *y = &t->pieces[j];
            if (x->lower < y->upper && y->lower < x->upper)
                assert_true(offsets[i] >= offsets[j] + y->bytes ||
                            offsets[j] >= offsets[i] + x->bytes);
        }
    }
}

TEST(exact_search_agrees_with_brute_force)
{
    random_state = 11;
    for (int round = 0; round < 3000 / FEWER; round++) {
        tiny t;
        draw_tiny(&t);
        for (uint64_t capacity = t.best - 1; capacity <= t.best + 1; capacity++) {
            uint64_t offsets[TINY];
            ebb_budget budget = {.most = UINT64_MAX};
            ebb_verdict verdict;
            assert_null(ebb_pack_exact(&verdict, offsets, t.pieces, (uint32_t)t.count, t.alignment,
                                       capacity, &budget));
            assert_int_equal(verdict, capacity < t.best ? EBB_IMPOSSIBLE : EBB_FOUND);
            if (verdict == EBB_FOUND)
                check_tiny(&t, offsets, capacity);
        }
    }
}

TEST(small_instances_are_packed_as_low_as_can_be)
{
    random_state = 12;
    for (int round = 0; round < 1000 / FEWER; round++) {
        tiny t;
        ebb_interval v[TINY];
        bool fixed[TINY];
        uint64_t offsets[TINY];
        OWNED_ARENA arena = {0};
        ebb_packing p;
        draw_tiny(&t);
        for (int i = 0; i < t.count; i++) {
            const ebb_piece *z = &t.pieces[i];
            v[i] = (ebb_interval){z->lower, z->upper, z->bytes, z->at};
            fixed[i] = z->fixed;
        }
        ebb_pack_options options = {.alignment = t.alignment, .fixed = fixed};
        assert_null(ebb_pack(&p, v, (size_t)t.count, &options, &arena));
        assert_int_equal(p.height, t.best);
        assert_true(p.proven && p.least == t.best && p.lower_bound <= t.best && p.fits);
        for (int i = 0; i < t.count; i++)
            offsets[i] = v[i].offset;
        check_tiny(&t, offsets, p.height);
        options.capacity = t.best - 1; /* 0 would mean none */
        if (options.capacity != 0) {
            assert_null(ebb_pack(&p, v, (size_t)t.count, &options, &arena));
            assert_true(!p.fits && p.least > options.capacity);
        }
    }
}

/* A rectangle of positions x bytes is cut at random: the bound can be met, and no order meets it.
 */
static size_t cut_rectangle(ebb_interval *v, size_t count, uint32_t positions, uint64_t bytes)
{
    size_t n = 1;
    v[0] = (ebb_interval){0, positions, bytes, 0};
    while (n < count) {
        size_t i = draw((uint32_t)n);
        ebb_interval *a = &v[i], b = *a;
        if (draw(2) == 0 && a->upper - a->lower > 1) {
            a->upper = b.lower = a->lower + 1 + draw(a->upper - a->lower - 1);
            v[n++] = b;
        } else if (a->size > 1) {
            a->size = 1 + draw((uint32_t)a->size - 1);
            b.size -= a->size;
            v[n++] = b;
        }
    }
    return n;
}

TEST(what_orders_miss_is_found_by_exact_search)
{
    int exact = 0;
    random_state = 21;
    for (int round = 0; round < 8; round++) {
        ebb_interval v[80];
        size_t count = cut_rectangle(v, 80, 120, 1024);
        ebb_packing p = pack(v, count, 1);
        assert_int_equal(p.lower_bound, 1024);
        assert_int_equal(p.height, 1024);
        assert_true(p.proven);
        exact += strcmp(p.method, "exact search") == 0;
    }
    assert_true(exact >= 4);
}

TEST(a_capacity_is_met_or_said_to_be_missed)
{
    static ebb_interval v[300];
    OWNED_ARENA arena = {0};
    ebb_packing p;
    random_state = 5;
    for (size_t i = 0; i < 300; i++) {
        uint32_t lower = draw(100);
        v[i] = (ebb_interval){lower, lower + 1 + draw(30), 64 * (1 + (uint64_t)draw(1000)), 0};
    }
    ebb_pack_options options = {.alignment = 64};
    assert_null(ebb_pack(&p, v, 300, &options, &arena));
    uint64_t bound = p.lower_bound;
    options.capacity = bound * 3;
    assert_null(ebb_pack(&p, v, 300, &options, &arena));
    assert_true(p.fits && p.height <= options.capacity);
    check_places(v, 300, &p, 64);
    options.capacity = bound - 64;
    assert_null(ebb_pack(&p, v, 300, &options, &arena));
    assert_true(!p.fits && p.least > options.capacity);
    check_places(v, 300, &p, 64);
}

TEST(sizes_beyond_32_bits_are_packed)
{
    ebb_interval v[40];
    random_state = 31;
    size_t count = cut_rectangle(v, 40, 60, 1024);
    for (size_t i = 0; i < count; i++)
        v[i].size = (v[i].size << 44) + i; /* no common divisor, 2^54 in all */
    ebb_packing p = pack(v, count, 1);
    assert_true((double)p.height <= 1.001 * (double)p.lower_bound);
}

TEST(a_lack_of_memory_is_said)
{
    int failed = 0;
    for (long n = 1;; n++) {
        static ebb_interval v[1000]; /* enough to ask for memory more than once */
        ebb_arena arena = {0};
        ebb_packing p;
        random_state = 21;
        size_t count = cut_rectangle(v, 1000 / FEWER, 4000, 1 << 20);
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_pack(&p, v, count, NULL, &arena);
        ebb_alloc_fail_after(0);
        ebb_arena_fini(&arena);
        if (status == NULL)
            break;
        failed++;
    }
    assert_true(failed > 1);
}

TEST(wrong_intervals_are_refused)
{
    OWNED_ARENA arena = {0};
    ebb_packing p;
    ebb_interval reversed[] = {{0, 4, 8, 0}, {5, 3, 8, 0}};
    ebb_interval large[] = {{0, 4, UINT64_MAX - 3, 0}};
    ebb_interval sum[] = {{0, 4, UINT64_MAX / 2, 0}, {1, 2, UINT64_MAX / 2, 0}, {0, 9, 5, 0}};
    assert_int_equal(ebb_status_code(ebb_pack(&p, reversed, 2, NULL, &arena)), EBB_REJECTED);
    assert_int_equal(ebb_status_code(ebb_pack(&p, large, 1, &by_64, &arena)), EBB_REJECTED);
    assert_int_equal(ebb_status_code(ebb_pack(&p, sum, 3, NULL, &arena)), EBB_REJECTED);
    assert_null(ebb_pack(&p, NULL, 0, &by_64, &arena));
    assert_int_equal(p.height, 0);
}

static void refused(ebb_interval a, ebb_interval b, const char *words)
{
    static const bool fixed[] = {true, true};
    static const size_t lines[] = {2, 5};
    const ebb_pack_options options = {.alignment = 64, .fixed = fixed, .lines = lines};
    ebb_interval v[] = {a, b};
    OWNED_ARENA arena = {0};
    ebb_packing p;
    ebb_status status = ebb_pack(&p, v, 2, &options, &arena);
    assert_int_equal(ebb_status_code(status), EBB_REJECTED);
    if (strstr(ebb_status_text(status), words) == NULL)
        fail_msg("'%s' does not say '%s'", ebb_status_text(status), words);
}

TEST(wrong_fixed_offsets_are_refused)
{
    const ebb_interval a = {0, 4, 100, 0};
    refused(a, (ebb_interval){3, 5, 10, 64}, "line 5: its fixed offset overlaps that of line 2");
    refused((ebb_interval){3, 5, 10, 64}, a, "line 5: its fixed offset overlaps that of line 2");
    refused(a, (ebb_interval){5, 6, 10, 100}, "line 5: its fixed offset 100 is no multiple");
    refused(a, (ebb_interval){5, 6, 10, UINT64_MAX - 63}, "line 5: its fixed offset is too large");
}
