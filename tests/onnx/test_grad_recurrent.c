/* test_grad_recurrent.c: the gradients of RNN, GRU and LSTM, with whatever their attributes say. */
#include "grad.h"

static const grad_case cases[] = {
#include "grad_recurrent.def"
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void gradients_through_time_agree_with_the_difference_quotient(void **state)
{
    (void)state;
    all_cases_pass(cases, CASES, first_order_passes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_through_time_agree_with_the_difference_quotient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
