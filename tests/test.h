/* test.h: what each suite begins with. A test is said once:
 *
 *     TEST(relu_read_again_later_is_left_alone)
 *     {
 *         assert_true(...);
 *     }
 *
 * The tests of a suite run in the order in which they stand in its file, or the one that $EBB_TEST_CASE
 * names. A main() is written where there is more to do.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TEST(name)                                                  \
    static void name(void **state);                                 \
    __attribute__((constructor)) static void name##_is_listed(void) \
    {                                                               \
        list_test(#name, name, NULL);                               \
    }                                                               \
    static void name(__attribute__((unused)) void **state)

typedef struct fixture {
    int (*set_up)(void **state), (*tear_down)(void **state); /* or NULL */
} fixture;

/* A suite that wants some defines them. */
extern const fixture around_all, around_each;

/* A row of a table as a test; state: what it is handed. */
void list_test(const char *name, CMUnitTestFunction run, const void *state);

/* For a main() of one's own: how many failed, or 1 where there is none. */
int run_listed(void);
