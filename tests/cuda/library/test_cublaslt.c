/* test_cublaslt.c: what of cuBLASLt needs no device: that it opens, and that its descriptors take
 * the products and what may be done after them. Skipped where it cannot be opened.
 */
#include "tests/kernels/call.h"

#include "kernels/cuda/library/lt.h"

#include <sys/wait.h>
#include <unistd.h>

static ebb_lt_problem problem_of(uint32_t dtype, uint32_t after)
{
    ebb_lt_problem p;
    memset(&p, 0, sizeof p);
    p.map.left = (ebb_lt_matrix){96, 40, 96, 96 * 40, 0};
    p.map.right = (ebb_lt_matrix){40, 24, 40, 0, 0};
    p.map.result = (ebb_lt_matrix){96, 24, 96, 96 * 24, 0};
    p.map.batches = after == EBB_LT_NOTHING ? 3 : 1;
    p.dtype = dtype;
    p.after = after;
    p.aux_lead = ebb_lt_has_aux(after) ? ebb_lt_aux_lead(96) : 0;
    return p;
}

static void descriptors_take_every_product_without_a_device(void **state)
{
    (void)state;
    static const uint32_t dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};
    for (size_t i = 0; i < 4; i++)
        for (uint32_t after = EBB_LT_NOTHING; after < EBB_LT_AFTERS; after++)
            for (uint32_t tf32 = 0; tf32 < 2; tf32++) {
                ebb_lt_plan *plan = NULL;
                ebb_lt_problem p = problem_of(dtypes[i], after);
                p.tf32 = tf32;
                check_status(ebb_lt_plan_new(&plan, &p), "descriptors");
                assert_int_equal(ebb_lt_plan_count(plan), 0);
                ebb_lt_operands o;
                memset(&o, 0, sizeof o);
                assert_int_equal(ebb_status_code(ebb_lt_plan_run(plan, NULL, 0, &o, NULL)),
                                 EBB_USAGE);
                ebb_lt_plan_free(plan);
            }
}

static void what_cannot_be_done_after_a_product_is_named(void **state)
{
    (void)state;
    ebb_lt_plan *plan = NULL;
    ebb_lt_problem p = problem_of(EBB_F32, EBB_LT_AFTERS);
    assert_int_equal(ebb_status_code(ebb_lt_plan_new(&plan, &p)), EBB_USAGE);
    assert_null(plan);
}

/* A row of bits fills whole lines of 128. */
static void bits_of_a_row_are_padded(void **state)
{
    (void)state;
    assert_int_equal(ebb_lt_aux_lead(1), 128);
    assert_int_equal(ebb_lt_aux_lead(128), 128);
    assert_int_equal(ebb_lt_aux_lead(129), 256);
    assert_int_equal(ebb_lt_aux_bytes(10, 129), 320);
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
        cmocka_unit_test(what_cannot_be_done_after_a_product_is_named),
        cmocka_unit_test(bits_of_a_row_are_padded),
    };
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
