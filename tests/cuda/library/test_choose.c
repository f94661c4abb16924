/* test_choose.c: which of several candidates is taken, by a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cuda/library/choose.h"

enum { ROUNDS = EBB_CHOOSE_ROUNDS + 1 };

typedef struct script { /* what the clock will say, by candidate and round; 0: it fails */
    int64_t ns[4][ROUNDS];
    int runs[4];
    int order[64], count;
} script;

static ebb_status trial(void *context, int candidate, int64_t *ns)
{
    script *s = context;
    int64_t next = s->ns[candidate][s->runs[candidate]++];
    s->order[s->count++] = candidate;
    *ns = next;
    return next == 0 ? ebb_error(EBB_RUNTIME, "it fails") : NULL;
}

static void the_least_of_the_counted_rounds_decides(void **state)
{
    (void)state;
    script s = {
        .ns = {{1, 200, 190, 210, 200}, {999, 180, 100, 300, 170}, {1, 150, 150, 150, 150}}};
    assert_int_equal(ebb_choose(3, trial, &s), 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(s.runs[i], ROUNDS);
    for (int i = 0; i < s.count; i++) // in turn, so that a slow moment is everybody's
        assert_int_equal(s.order[i], i % 3);
}

static void the_earlier_of_two_that_are_nearly_equal_is_taken(void **state)
{
    (void)state;
    script near = {.ns = {{1, 210, 210, 210, 210}, {1, 200, 200, 200, 200}}};
    script far = {.ns = {{1, 211, 211, 211, 211}, {1, 200, 200, 200, 200}}};
    assert_int_equal(ebb_choose(2, trial, &near), 0);
    assert_int_equal(ebb_choose(2, trial, &far), 1);
}

static void one_that_fails_is_out_and_is_not_run_again(void **state)
{
    (void)state;
    script s = {.ns = {{1, 5, 5, 0, 5}, {0}, {1, 90, 90, 90, 90}}};
    assert_int_equal(ebb_choose(3, trial, &s), 2);
    assert_int_equal(s.runs[0], 4);
    assert_int_equal(s.runs[1], 1);
    script none = {.ns = {{0}, {0}}};
    assert_int_equal(ebb_choose(2, trial, &none), -1);
    assert_int_equal(ebb_choose(0, trial, &none), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_of_the_counted_rounds_decides),
        cmocka_unit_test(the_earlier_of_two_that_are_nearly_equal_is_taken),
        cmocka_unit_test(one_that_fails_is_out_and_is_not_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
