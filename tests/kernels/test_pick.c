/* test_pick.c: back ends by name: those that are here, and those of the table of plug-ins. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/plugin.h"
#include "kernels/processor.h"
#include "tests/formatted.h"
#include "tests/status.h"
#include "tests/test.h"

static void says(const char *name, ebb_code code, const char *words)
{
    const ebb_backend *const *list;
    ebb_status status = ebb_backends(name, &list);
    assert_non_null(status);
    assert_null(list);
    refused(status, code, words);
}

TEST(a_backend_that_is_not_there_is_told_which_are)
{
    static const char *const names[] = {"", "cud", "cudas", "plain:h100", "CUDA", ":"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        says(names[i], EBB_USAGE, "the backends are cpu, plain and cuda");
}

/* The names in the sentence are those of the table, each of which is a back end. */
TEST(every_plugin_is_asked_by_its_name)
{
    assert_int_equal(setenv("EBB_CUDA_PLUGIN", "/nowhere.so", 1), 0);
    assert_string_equal(ebb_plugin_name(0), "cuda");
    assert_null(ebb_plugin_name(1));
    for (int again = 0; again < 2; again++) // what came of it is remembered
        for (size_t i = 0; ebb_plugin_name(i) != NULL; i++) {
            says(ebb_plugin_name(i), EBB_DEVICE, "the CUDA back end cannot be opened: /nowhere.so");
            says(formatted("%s:h100+tf32", ebb_plugin_name(i)), EBB_DEVICE, "/nowhere.so");
        }
}

TEST(backends_of_this_machine_are_there)
{
    const ebb_backend *const *list;
    assert_null(ebb_backends("cpu", &list));
    assert_string_equal(list[0]->name, "dnnl");
    assert_string_equal(list[1]->name, "plain");
    assert_null(list[2]);
    const ebb_backend *plain = list[1];
    assert_null(ebb_backends("plain", &list));
    assert_ptr_equal(list[0], plain);
    assert_null(list[1]);
}

/* Each kind of processor that this machine can stand for has kernels of its own, and keeps to them. */
TEST(a_processor_is_chosen_by_its_name)
{
    static const char *const names[] = {"avx512bf16", "avx512", "avx2", "baseline", "native"};
    const char *before = getenv("EBB_CPU");
    char asked[32];
    (void)snprintf(asked, sizeof asked, "%s", before != NULL ? before : "");
    const ebb_backend *seen[5];
    size_t count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ebb_processor *chosen;
        const ebb_backend *const *list;
        assert_int_equal(setenv("EBB_CPU", names[i], 1), 0);
        if (ebb_processor_choose(&chosen) != NULL)
            continue;
        assert_string_equal(chosen->name, names[i]);
        assert_null(ebb_backends("plain", &list));
        assert_ptr_equal(list[0], chosen->cpu[1]);
        for (size_t k = 0; k < count; k++)
            assert_ptr_not_equal(list[0], seen[k]);
        seen[count++] = list[0];
    }
    assert_true(count > 0);
    assert_int_equal(setenv("EBB_CPU", "z80", 1), 0);
    says("plain", EBB_USAGE, "EBB_CPU is 'z80'");
    assert_int_equal(asked[0] != '\0' ? setenv("EBB_CPU", asked, 1) : unsetenv("EBB_CPU"), 0);
}
