#include "tests/test.h"

#include <stdlib.h>

enum { MOST_TESTS = 1024 };

static struct CMUnitTest tests[MOST_TESTS];
static size_t test_count;

__attribute__((weak)) const fixture around_all = {NULL, NULL};
__attribute__((weak)) const fixture around_each = {NULL, NULL};

void list_test(const char *name, CMUnitTestFunction run, const void *state)
{
    if (test_count == MOST_TESTS)
        abort();
    tests[test_count++] = (struct CMUnitTest){name, run, around_each.set_up, around_each.tear_down,
                                              (void *)(uintptr_t)state};
}

int run_listed(void)
{
    const char *one = getenv("EBB_TEST_CASE");
    if (one != NULL)
        cmocka_set_test_filter(one);
    return test_count == 0 ? 1
                           : _cmocka_run_group_tests("tests", tests, test_count, around_all.set_up,
                                                     around_all.tear_down);
}
