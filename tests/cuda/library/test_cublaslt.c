/* test_cublaslt.c: what of cuBLASLt needs no device: that it opens, and that its descriptors take
 * the products and their bias. Skipped where it cannot be opened.
 */
#include "tests/kernels/call.h"

#include "kernels/cuda/library/lt.h"

#include <sys/wait.h>
#include <unistd.h>

static ebb_lt_problem problem_of(uint32_t dtype, uint32_t bias)
{
    ebb_lt_problem p;
    memset(&p, 0, sizeof p);
    p.map.left = (ebb_lt_matrix){96, 40, 96, 96 * 40, 0};
    p.map.right = (ebb_lt_matrix){40, 24, 40, 0, 0};
    p.map.result = (ebb_lt_matrix){96, 24, 96, 96 * 24, 0};
    p.map.batches = bias == 0 ? 3 : 1;
    p.dtype = dtype;
    p.bias = bias;
    return p;
}

static void descriptors_take_every_product_without_a_device(void **state)
{
    (void)state;
    static const uint32_t dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};
    for (size_t i = 0; i < 4; i++)
        for (uint32_t bias = 0; bias < 2; bias++)
            for (uint32_t tf32 = 0; tf32 < 2; tf32++) {
                ebb_lt_plan *plan = NULL;
                ebb_lt_problem p = problem_of(dtypes[i], bias);
                p.tf32 = tf32;
                check_status(ebb_lt_plan_new(&plan, &p), "descriptors");
                ebb_lt_operands o;
                memset(&o, 0, sizeof o);
                assert_int_equal(ebb_status_code(ebb_lt_plan_run(plan, NULL, &o, NULL)), EBB_USAGE);
                ebb_lt_plan_free(plan);
            }
}

/* In a process of its own, since a library is opened once. */
static void one_that_is_missing_is_named(void **state)
{
    (void)state;
    int code = 1;
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char text[400] = "NVRTC 13.0";
        (void)setenv("EBB_CUBLASLT", "/nowhere/libcublasLt.so.13", 1);
        ebb_lt_library(text, sizeof text, false);
        _exit(ebb_lt_version() == 0 && ebb_status_code(ebb_lt_open()) == EBB_DEVICE &&
                      strstr(text, "NVRTC 13.0, no cuBLASLt 13 (") == text &&
                      strstr(text, "/nowhere/libcublasLt.so.13") != NULL
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
}

static void its_version_is_told(void **state)
{
    (void)state;
    char text[80] = "", version[40];
    ebb_lt_library(text, sizeof text, false);
    assert_int_equal(ebb_lt_version() / 10000, 13);
    (void)snprintf(version, sizeof version, "cuBLASLt 13.%d.%d",
                   (int)(ebb_lt_version() / 100 % 100), (int)(ebb_lt_version() % 100));
    assert_string_equal(text, version);
}

int main(void)
{
    const struct CMUnitTest first[] = {cmocka_unit_test(one_that_is_missing_is_named)};
    int failed = cmocka_run_group_tests(first, NULL, NULL);
    ebb_status status = ebb_lt_open();
    if (status != NULL) {
        printf("skipped: %s\n", ebb_status_text(status));
        return failed != 0 ? failed : 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_version_is_told),
        cmocka_unit_test(descriptors_take_every_product_without_a_device),
    };
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
