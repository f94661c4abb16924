/* test_pack.c: no two alive together overlap; the bound is met where that is easy, and neared where
 * it is hard. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <time.h>

#include "exec/pack.h"

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

static void random_intervals_never_overlap(void **state)
{
    (void)state;
    static ebb_interval v[200];
    random_state = 1;
    for (int round = 0; round < 60; round++) {
        size_t count = draw(200);
        for (size_t i = 0; i < count; i++) {
            uint32_t lower = draw(100);
            v[i] = (ebb_interval){lower, lower + draw(40), draw(5000), 0};
        }
        (void)pack(v, count, round % 2 ? 64 : 1);
    }
}

static void nested_lives_reach_the_bound(void **state)
{
    (void)state;
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

static void training_steps_come_within_one_percent(void **state)
{
    (void)state;
    static ebb_interval v[2000];
    random_state = 7;
    for (uint32_t layers = 4; layers <= 256; layers *= 4) {
        size_t count = training(v, layers);
        ebb_packing p = pack(v, count, 64);
        assert_true((double)p.height <= 1.01 * (double)p.lower_bound);
    }
}

static void the_same_input_gives_the_same_offsets(void **state)
{
    (void)state;
    static ebb_interval a[600], b[600];
    random_state = 9;
    for (size_t i = 0; i < 600; i++) {
        uint32_t lower = draw(300);
        a[i] = b[i] = (ebb_interval){lower, lower + 1 + draw(100), draw(100000), 0};
    }
    (void)pack(a, 600, 64);
    (void)pack(b, 600, 64);
    assert_memory_equal(a, b, sizeof a);
}

static void ten_thousand_intervals_are_quick(void **state)
{
    (void)state;
    static ebb_interval v[10000];
    ebb_arena arena = {0};
    ebb_packing p;
    random_state = 3;
    for (size_t i = 0; i < 10000; i++) {
        uint32_t lower = draw(10000);
        v[i] = (ebb_interval){lower, lower + 1 + draw(200), draw(100000), 0};
    }
    clock_t begin = clock();
    assert_null(ebb_pack(&p, v, 10000, &by_64, &arena));
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 10.0); /* ten times what it takes */
    ebb_arena_fini(&arena);
}

static void wrong_intervals_are_refused(void **state)
{
    (void)state;
    ebb_arena arena = {0};
    ebb_packing p;
    ebb_interval reversed[] = {{0, 4, 8, 0}, {5, 3, 8, 0}};
    ebb_interval large[] = {{0, 4, UINT64_MAX - 3, 0}};
    ebb_interval sum[] = {{0, 4, UINT64_MAX / 2, 0}, {1, 2, UINT64_MAX / 2, 0}, {0, 9, 5, 0}};
    assert_int_equal(ebb_status_code(ebb_pack(&p, reversed, 2, NULL, &arena)), EBB_REJECTED);
    assert_int_equal(ebb_status_code(ebb_pack(&p, large, 1, &by_64, &arena)), EBB_REJECTED);
    assert_int_equal(ebb_status_code(ebb_pack(&p, sum, 3, NULL, &arena)), EBB_REJECTED);
    assert_null(ebb_pack(&p, NULL, 0, &by_64, &arena));
    assert_int_equal(p.height, 0);
    ebb_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_intervals_never_overlap),
        cmocka_unit_test(nested_lives_reach_the_bound),
        cmocka_unit_test(training_steps_come_within_one_percent),
        cmocka_unit_test(the_same_input_gives_the_same_offsets),
        cmocka_unit_test(ten_thousand_intervals_are_quick),
        cmocka_unit_test(wrong_intervals_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
