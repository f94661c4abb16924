/* test_grad_recurrent.c: the gradients of RNN, GRU and LSTM, with whatever their attributes say. */
#include "grad.h"

static const grad_case cases[] = {
#include "grad_recurrent.def"
};
enum { CASES = sizeof cases / sizeof cases[0] };

TEST(gradients_through_time_agree_with_the_difference_quotient)
{
    all_cases_pass(cases, CASES, first_order_passes);
}
