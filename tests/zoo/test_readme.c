/* test_readme.c: the export calls that README advises, tried where PyTorch is found: newcomer.py says
 * what they are held to. EBB_TORCH names a Python that has torch, onnx, onnxscript and onnxruntime;
 * else it is python3.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/formatted.h"
#include "tests/test.h"

enum { SCREEN = 50 }; // lines

static void the_calls_are_on_the_first_screen(void **state)
{
    (void)state;
    char line[512];
    int calls = 0;
    FILE *file = fopen(EBB_SOURCE_DIR "/README.md", "r");
    assert_non_null(file);
    for (int i = 0; i < SCREEN && fgets(line, sizeof line, file) != NULL; i++)
        calls += strncmp(line, "torch.onnx.export(", 18) == 0;
    (void)fclose(file);
    assert_int_equal(calls, 2);
}

static const char *python(void)
{
    const char *given = getenv("EBB_TORCH");
    return given != NULL ? given : "python3";
}

static bool has_torch(void)
{
    return system(formatted("'%s' -c 'import torch, onnx, onnxscript, onnxruntime' 2>/dev/null",
                            python())) == 0;
}

static void the_calls_keep_all_that_is_trained(void **state)
{
    (void)state;
    assert_int_equal(system(formatted("'%s' '%s/tests/zoo/newcomer.py' readme --ebb '%s/ebb' 2>&1",
                                      python(), EBB_SOURCE_DIR, EBB_BINARY_DIR)),
                     0);
}

int main(void)
{
    const struct CMUnitTest always[] = {
        cmocka_unit_test(the_calls_are_on_the_first_screen),
    };
    const struct CMUnitTest with_torch[] = {
        cmocka_unit_test(the_calls_keep_all_that_is_trained),
    };
    if (cmocka_run_group_tests(always, NULL, NULL) != 0)
        return 1;
    if (!has_torch()) {
        printf("SKIP: no PyTorch to export with: EBB_TORCH=PYTHON names one that has it\n");
        return 77;
    }
    return cmocka_run_group_tests(with_torch, NULL, NULL);
}
