/* test_rates.c: what a device does at best, found by the names that users and drivers give it. */

#include "kernels/cuda/library/rates.h"
#include "tests/test.h"

TEST(a_device_is_found_by_what_users_and_drivers_call_it)
{
    static const struct {
        const char *word, *driver;
        double bytes; /* GB/s, as in the data sheet */
    } same[] = {
        {"a100", "NVIDIA A100-SXM4-80GB", 2039},
        {"h100", "NVIDIA H100 80GB HBM3", 3350},
        {"h200", "NVIDIA H200", 4800},
        {"l4", "NVIDIA L4", 300},
        {"rtx4090", "NVIDIA GeForce RTX 4090", 1008},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_ptr_equal(ebb_cuda_rates(same[i].word, false),
                         ebb_cuda_rates(same[i].driver, false));
        assert_true(ebb_cuda_rates(same[i].word, false)->bytes == same[i].bytes);
    }
    const ebb_rates *unknown = ebb_cuda_rates("a device of the tests", false);
    assert_ptr_equal(ebb_cuda_rates("NVIDIA L40S", false), unknown);
    assert_ptr_not_equal(ebb_cuda_rates("l4", false), unknown);
}

TEST(tf32_hastens_products_of_float32_alone)
{
    const ebb_rates *full = ebb_cuda_rates("h100", false), *tf32 = ebb_cuda_rates("h100", true);
    assert_true(full->products32 == full->operations);
    assert_true(tf32->products32 == 494e3); // TFLOP/s, in operations a nanosecond
    assert_true(tf32->operations == full->operations);
    assert_true(tf32->products16 == full->products16);
    assert_true(tf32->products16 == 989e3);
}
