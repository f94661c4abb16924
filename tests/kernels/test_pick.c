/* test_pick.c: back ends by name: those that are here, and those of the table of plug-ins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/plugin.h"

static void says(const char *name, ebb_code code, const char *words)
{
    const ebb_backend *const *list;
    ebb_status status = ebb_backends(name, &list);
    assert_non_null(status);
    assert_null(list);
    assert_int_equal(ebb_status_code(status), code);
    if (strstr(ebb_status_text(status), words) == NULL)
        fail_msg("'%s' does not say '%s'", ebb_status_text(status), words);
}

static void a_backend_that_is_not_there_is_told_which_are(void **state)
{
    (void)state;
    static const char *const names[] = {"", "cud", "cudas", "plain:h100", "CUDA", ":"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        says(names[i], EBB_USAGE, "the backends are cpu, plain and cuda");
}

/* The names in the sentence are those of the table, each of which is a back end. */
static void every_plugin_is_asked_by_its_name(void **state)
{
    (void)state;
    char text[64];
    assert_int_equal(setenv("EBB_CUDA_PLUGIN", "/nowhere.so", 1), 0);
    assert_string_equal(ebb_plugin_name(0), "cuda");
    assert_null(ebb_plugin_name(1));
    for (int again = 0; again < 2; again++) // what came of it is remembered
        for (size_t i = 0; ebb_plugin_name(i) != NULL; i++) {
            says(ebb_plugin_name(i), EBB_DEVICE, "the CUDA back end cannot be opened: /nowhere.so");
            (void)snprintf(text, sizeof text, "%s:h100+tf32", ebb_plugin_name(i));
            says(text, EBB_DEVICE, "/nowhere.so");
        }
}

static void backends_of_this_machine_are_there(void **state)
{
    (void)state;
    const ebb_backend *const *list;
    assert_null(ebb_backends("cpu", &list));
    assert_ptr_equal(list[0], &ebb_backend_dnnl);
    assert_ptr_equal(list[1], &ebb_backend_plain);
    assert_null(list[2]);
    assert_null(ebb_backends("plain", &list));
    assert_ptr_equal(list[0], &ebb_backend_plain);
    assert_null(list[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backend_that_is_not_there_is_told_which_are),
        cmocka_unit_test(every_plugin_is_asked_by_its_name),
        cmocka_unit_test(backends_of_this_machine_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
